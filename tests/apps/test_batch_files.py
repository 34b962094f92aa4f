#!/usr/bin/env python3
"""runnel batch: files, signals, a full disk, standard input and output."""
import json
import os
import pathlib
import resource
import signal
import sqlite3
import stat
import subprocess
import tempfile
import time
import unittest

import common
from batch_job import EMBED, TEXT, Job, line, story
from common import MODEL, run


class Files(unittest.TestCase):
    def refused(self, result, words, code=1):
        text = result.stderr.decode()
        self.assertEqual(result.returncode, code, text)
        self.assertTrue(text.startswith("runnel: "), text)
        self.assertEqual(text.count("\n"), 1, text)
        self.assertIn(words, text)

    def test_order(self):
        lines = [story(i, 1 + (37 * i) % 24) for i in range(40)]
        ordered, unordered = Job(lines), Job(lines, "--unordered")
        for job in (ordered, unordered):
            self.assertEqual(job.run().returncode, 0)
        self.assertEqual([a["custom_id"] for a in ordered.answers()], [f"s{i}" for i in range(40)])
        self.assertEqual(sorted(ordered.output.read_bytes().split(b"\n")),
                         sorted(unordered.output.read_bytes().split(b"\n")))
        # One story, without its ends of text, goes on while the others are written: on a fast machine, a longer one.
        for length in (900 << doubling for doubling in range(7)):
            first = story(0, length, logit_bias={str(end): -100 for end in (2045, 2046, 2047)}, context_keep=16)
            slow = Job([first] + [story(i, 1) for i in range(1, 40)], "--unordered", "--streams", "4")
            self.assertEqual(slow.run().returncode, 0)
            if slow.answers()[0]["custom_id"] != "s0":
                break
        else:
            self.fail("every answer waited for the first line's")

    def test_existing(self):
        job = Job([story(0)])
        self.assertEqual(job.run().returncode, 0)
        want = job.output.read_bytes()
        self.refused(job.run(), "--resume goes on with its job, --overwrite begins anew", 2)
        job.output.unlink()
        self.refused(job.run(), "journal exists already", 2)
        self.refused(job.run("--resume"), "has 0 bytes")
        self.assertEqual(job.run("--overwrite").returncode, 0)
        self.assertEqual(job.output.read_bytes(), want)
        self.assertEqual(job.run("--resume").returncode, 0)  # nothing is left to do
        self.assertEqual(job.output.read_bytes(), want)
        job.journal.unlink()
        self.refused(job.run("--resume"), "its journal", 2)
        self.assertEqual(job.output.read_bytes(), want)
        self.refused(job.run("--resume", "--overwrite"), "exclude each other", 2)

    def test_resume_begins(self):
        job = Job([story(0)])
        self.assertEqual(job.run("--resume").returncode, 0)
        self.assertEqual(len(job.answers()), 1)

    def test_names_of_journals(self):
        """What SQLite would take for no file, or for a URI, is a file like any other."""
        for name in (":memory:", "file:x?mode=memory", "file:x"):
            with self.subTest(name=name):
                job = Job([story(0), story(1)])
                command = [common.program, "batch", MODEL, "in.jsonl", name, "--limit", "1"]
                first = subprocess.run(command, cwd=job.path, capture_output=True, timeout=common.PATIENCE)
                self.assertEqual(first.returncode, 0, first.stderr)
                self.assertEqual(sorted(os.listdir(job.path)), sorted(["in.jsonl", name, name + ".journal"]))
                rest = subprocess.run([*command[:-2], "--resume"], cwd=job.path, capture_output=True,
                                      timeout=common.PATIENCE)
                self.assertEqual(rest.returncode, 0, rest.stderr)
                self.assertEqual(len((job.path / name).read_bytes().splitlines()), 2)
                job = Job([story(0)], "--journal", name)
                self.assertEqual(job.run(cwd=job.path).returncode, 0)
                self.assertIn(name, os.listdir(job.path))
                self.assertEqual(job.run("--resume", cwd=job.path).returncode, 0)

    def test_same_file(self):
        job = Job([story(0)])
        (job.path / "link").symlink_to(job.input)
        os.link(job.input, job.path / "hard")
        before = job.input.read_bytes()
        for paths, words in (((job.input, job.input), "the input and the output"),
                             ((job.input, job.path / "link"), "the input and the output"),
                             ((job.input, job.path / "hard"), "the input and the output"),
                             ((job.input, MODEL), "the model and the output"),
                             ((job.input, job.output, "--journal", job.input), "the input and the journal"),
                             ((job.input, job.output, "--journal", job.output), "the output and the journal")):
            self.refused(run("batch", MODEL, *paths, "--overwrite"), words, 2)
        self.assertEqual(job.input.read_bytes(), before)
        self.refused(run("batch", MODEL, job.path, job.output), "not a regular file")
        self.refused(run("batch", MODEL, job.path / "none", job.output), "No such file")
        self.refused(run("batch", MODEL, job.input, job.path / "none" / "out"), "none/out")
        self.assertFalse(job.output.exists())

    def test_changed_input(self):
        lines = [story(i) for i in range(5)]
        job = Job(lines)
        self.assertEqual(job.run().returncode, 0)
        want = job.output.read_bytes()
        for data, number in ((lines[:2] + [story(9)] + lines[3:], 3), (lines[:4], 5), (lines + [story(6)], 6),
                             (lines[:1] + [""] + lines[1:], 2)):
            job.input.write_text("\n".join(data) + "\n")
            self.refused(job.run("--resume"), f"line {number} is not the line that the journal knows")
            self.assertEqual(job.output.read_bytes(), want)

    def test_other_settings(self):
        job = Job([story(0)])
        self.assertEqual(job.run().returncode, 0)
        for options, words in ((["--ctx", "512"], "its context: 1024 there, 512 now"),
                               (["--kv-type", "f32"], "its kv-type"), (["--unordered"], "its order"),
                               (["--max-line-bytes", "1M"], "its max-line-bytes")):
            self.refused(job.run("--resume", *options), words)
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / pathlib.Path(MODEL).name
            data = bytearray(pathlib.Path(MODEL).read_bytes())
            data[-1] ^= 1
            model.write_bytes(data)
            job.model = str(model)
            self.refused(job.run("--resume"), "its model")
        job.model = MODEL
        self.assertEqual(job.run("--resume", "--streams", "3", "--threads", "1").returncode, 0)

    def test_changed_output(self):
        job = Job([story(i) for i in range(3)])
        self.assertEqual(job.run().returncode, 0)
        want = job.output.read_bytes()
        job.output.write_bytes(want[:-5])
        self.refused(job.run("--resume"), "it was changed")
        job.output.write_bytes(want[:-5] + b"#####")
        self.refused(job.run("--resume"), "it was changed")
        job.output.write_bytes(want + b'{"id":"torn')  # more than the journal knows is a torn tail
        self.assertEqual(job.run("--resume").returncode, 0)
        self.assertEqual(job.output.read_bytes(), want)

    def test_foreign_journals(self):
        job = Job([story(0)])
        job.journal.write_bytes(b"precious" * 1000)
        self.refused(job.run("--overwrite"), "damaged, or no journal")
        self.assertEqual(job.journal.read_bytes(), b"precious" * 1000)
        job.journal.unlink()
        other = sqlite3.connect(job.journal)
        other.execute("CREATE TABLE precious (x)")
        other.commit()
        other.close()
        before = job.journal.read_bytes()
        self.refused(job.run("--overwrite"), "no journal of runnel batch")
        self.assertEqual(job.journal.read_bytes(), before)

    def test_two_at_once(self):
        job = Job([story(i, 400) for i in range(1000)], "--streams", "2")
        first = job.start()
        while not job.output.exists():  # the journal is locked before
            self.assertIsNone(first.poll())
            time.sleep(0.001)
        first.send_signal(signal.SIGSTOP)
        try:
            self.refused(job.run("--resume"), "another process is working with it")
        finally:
            first.kill()
            first.communicate()

    def interrupted(self, job, number, size):
        """Sends a signal once the output is larger than so many bytes; the exit code, and what was said."""
        process = job.start("--resume")
        while not (job.output.exists() and job.output.stat().st_size > size) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(number)
        text = process.communicate(timeout=common.PATIENCE)[1].decode()
        return process.returncode, text

    def test_interrupt(self, n=60):
        lines = [story(i, 60) for i in range(n)]
        whole = Job(lines)
        self.assertEqual(whole.run().returncode, 0)
        job = Job(lines, "--streams", "4")
        size = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            code, text = self.interrupted(job, number, size)
            if code == 0:  # all was done before this thread saw the first of it: it gets more to do
                return self.test_interrupt(4 * n)
            self.assertEqual(code, 130, text)
            self.assertRegex(text, r"^runnel: \d+ lines? (was|were) done in this run; the same command with --resume "
                                   r"goes on\n$")
            self.assertTrue(whole.output.read_bytes().startswith(job.output.read_bytes()))
            size = job.output.stat().st_size + 100  # beyond the torn tail
            with open(job.output, "ab") as out:
                out.write(b'{"id":"a torn tail')
        result = job.run("--resume")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stderr.decode(), rf"^lines: {n}, {n} ok, 0 errors \(\d+ from earlier runs\)\n")
        self.assertEqual(job.output.read_bytes(), whole.output.read_bytes())

    def test_full_disk(self):
        """A limit on the size of files is as a full disk: the write fails, the output's or the journal's."""
        lines = [story(i, 20, n=4) for i in range(40)]
        whole = Job(lines)
        self.assertEqual(whole.run().returncode, 0)
        seen = set()
        for limit in (0, 3000, 9000, 20000, 40000, 60000):
            job = Job(lines)
            result = job.run(preexec_fn=lambda most=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))
            text = result.stderr.decode()
            with self.subTest(limit=limit, text=text):
                self.assertEqual(result.returncode, 1)
                self.assertRegex(text.splitlines()[0], r"^runnel: .*out.jsonl(.journal)?: ")
                self.assertRegex(text, "File too large|disk I/O error|full")
                seen.add(".journal: " in text)
                result = job.run("--resume")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(job.output.read_bytes(), whole.output.read_bytes())
        self.assertIn(True, seen)

    def test_output_full(self):
        """The output alone: a journal of this size fits, the output of long answers does not."""
        lines = [line(str(i), TEXT, {"prompt": "Once", "max_tokens": 40, "logprobs": 5}) for i in range(60)]
        whole = Job(lines)
        self.assertEqual(whole.run().returncode, 0)
        size = whole.output.stat().st_size
        job = Job(lines, "--streams", "2")
        most = int(0.75 * size)
        result = job.run(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn(b"--resume goes on", result.stderr)
        self.assertEqual(job.run("--resume").returncode, 0)
        self.assertEqual(job.output.read_bytes(), whole.output.read_bytes())


class Standard(unittest.TestCase):
    """- is standard input or output."""

    def batch(self, source, target, *options, **how):
        return subprocess.run([common.program, "batch", MODEL, source, target, *options], capture_output=True,
                              timeout=common.PATIENCE, **how)

    def texts(self, data):
        answers = [json.loads(text) for text in data.splitlines()]
        return [(a["custom_id"], a["response"] and a["response"]["body"].get("choices")) for a in answers]

    def test_pipes(self):
        lines = [story(i, 12) for i in range(20)] + ["{broken"]
        whole = Job(lines)
        self.assertEqual(whole.run().returncode, 0)
        want, data = self.texts(whole.output.read_bytes()), "\n".join(lines).encode()
        with tempfile.TemporaryDirectory() as folder:
            result = self.batch("-", "-", input=data, cwd=folder)
            self.assertEqual((result.returncode, self.texts(result.stdout)), (0, want))
            self.assertIn(b"lines: 21, 20 ok, 1 error", result.stderr)
            result = self.batch(whole.input, "-", "-q", cwd=folder)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (0, whole.output.read_bytes(), b""))
            with open(whole.input, "rb") as source:
                result = self.batch("-", "out", "-q", stdin=source, cwd=folder)
            self.assertEqual((result.returncode, result.stdout), (0, b""))
            self.assertEqual((pathlib.Path(folder) / "out").read_bytes(), whole.output.read_bytes())
            self.assertEqual(os.listdir(folder), ["out"])
            self.assertIn(b"--overwrite", self.batch("-", "out", input=data, cwd=folder).stderr)
            for option in (["--resume"], ["--journal", "j"]):
                result = self.batch("-", "-", *option, input=data, cwd=folder)
                self.assertEqual((result.returncode, result.stdout), (2, b""))
                self.assertIn(b"cannot go on", result.stderr)

    def test_what_cannot_be_read_or_written(self):
        """A pipe by its name is refused without a word of --resume; a closed output is called so."""
        reader, writer = os.pipe()
        result = self.batch(f"/dev/fd/{reader}", "-", pass_fds=[reader])
        os.close(reader)
        os.close(writer)
        self.assertEqual((result.returncode, result.stderr.decode()),
                         (1, f"runnel: /dev/fd/{reader} is not a regular file; - is standard input\n"))
        result = self.batch("-", "-", input=story(0).encode(), preexec_fn=lambda: os.close(1))
        self.assertEqual((result.returncode, result.stderr), (1, b"runnel: standard output: it is closed\n"))

    def test_a_place_where_none_can_be(self):
        """Told before anything is made."""
        for option in ("--errors", "--journal"):
            job = Job([story(0)])
            result = job.run(option, job.path / "none" / "e")
            self.assertEqual((result.returncode, result.stderr.decode()),
                             (1, f"runnel: {job.path}/none/e: No such file or directory\n"))
            self.assertEqual(os.listdir(job.path), ["in.jsonl"])

    def test_line_by_line(self):
        """An answer comes although the input has not ended."""
        process = common.popen([common.program, "batch", MODEL, "-", "-", "-q"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
        for i in range(3):
            process.stdin.write(story(i).encode() + b"\n")
            process.stdin.flush()
            self.assertEqual(json.loads(process.stdout.readline())["custom_id"], f"s{i}")
        process.stdin.close()
        self.assertEqual((process.stdout.read(), process.wait(common.PATIENCE)), (b"", 0))
        process.stdout.close()

    def test_reader_goes(self):
        process = common.popen([common.program, "batch", MODEL, "-", "-"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        process.stdin.write(story(0).encode() + b"\n")
        process.stdin.flush()
        self.assertEqual(process.wait(common.PATIENCE), 130)
        self.assertEqual(process.stderr.read(), b"")
        process.stdin.close()
        process.stderr.close()


class Limit(unittest.TestCase):
    def test_parts(self):
        """A job in parts is the job as a whole; a limit below what is done changes nothing."""
        lines = [story(i, 4) for i in range(4)] + ["", "{", story(6, 4), story(7, 4)]
        whole, job = Job(lines), Job(lines, "--resume")
        self.assertEqual(whole.run().returncode, 0)
        want = whole.output.read_bytes().splitlines(keepends=True)
        for limit, count in ((3, 3), (3, 3), (5, 4), (2, 4), (6, 5), (8, 7), (100, 7)):
            result = job.run("--limit", limit)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(job.output.read_bytes(), b"".join(want[:count]), limit)
        self.assertEqual(job.run().returncode, 0)
        self.assertEqual(job.output.read_bytes(), b"".join(want))


class Errors(unittest.TestCase):
    """--errors: what is wrong goes to a file of its own, as in OpenAI's batches."""
    LINES = [story(0, 4), "{", story(1, 4), line("bad", TEXT, {"prompt": 5}), story(2, 4), story(0, 4), story(3, 4)]

    def job(self, *options):
        return Job(self.LINES, *options, apart=True)

    def test_apart(self):
        both = Job(self.LINES)
        self.assertEqual(both.run().returncode, 0)
        for options in ([], ["--unordered"]):
            job = self.job(*options)
            self.assertEqual(job.run().returncode, 0)
            good = [json.loads(text) for text in job.output.read_bytes().splitlines()]
            bad = [json.loads(text) for text in job.errors.read_bytes().splitlines()]
            self.assertTrue(all(a["response"]["status_code"] == 200 and a["error"] is None for a in good))
            self.assertEqual([(a["custom_id"], a["response"] and a["response"]["status_code"],
                               a["error"] and a["error"]["code"]) for a in bad],
                             [(None, None, "invalid_json_line"), ("bad", 400, None),
                              ("s0", None, "duplicate_custom_id")])
            self.assertTrue(all(set(a) == {"id", "custom_id", "response", "error"} for a in good + bad))
            self.assertEqual(sorted(job.output.read_bytes().splitlines() + job.errors.read_bytes().splitlines()),
                             sorted(both.output.read_bytes().splitlines()))
            self.assertEqual([a["custom_id"] for a in good], ["s0", "s1", "s2", "s3"])

    def test_resume(self):
        whole, job = self.job(), self.job()
        self.assertEqual(whole.run().returncode, 0)
        for limit in (["--limit", 1], ["--limit", 2], ["--limit", 4], []):
            self.assertEqual(job.run("--resume", *limit).returncode, 0)
            for file in (job.output, job.errors):
                with open(file, "ab") as out:
                    out.write(b'{"id":"a torn tail')
        self.assertEqual(job.run("--resume").returncode, 0)
        for mine, its in ((job.output, whole.output), (job.errors, whole.errors)):
            self.assertEqual(mine.read_bytes(), its.read_bytes())

    def test_refused(self):
        job = self.job()
        for options, words, code in ((["--errors", "-"], b"--errors takes a file", 2),
                                     (["--errors", job.output], b"the output and --errors", 2),
                                     (["--errors", job.input], b"the input and --errors", 2)):
            result = job.run(*options)
            self.assertEqual(result.returncode, code)
            self.assertIn(words, result.stderr)
        job.errors.write_bytes(b"precious")
        result = job.run()
        self.assertEqual((result.returncode, job.errors.read_bytes()), (2, b"precious"))
        self.assertIn(b"errors.jsonl exists already", result.stderr)
        self.assertFalse(job.output.exists())
        self.assertEqual(job.run("--overwrite").returncode, 0)
        want = job.errors.read_bytes()
        job.errors.write_bytes(want[:-4] + b"####")
        result = job.run("--resume")
        self.assertEqual((result.returncode, job.errors.read_bytes()), (1, want[:-4] + b"####"))
        self.assertIn(b"it was changed", result.stderr)
        job.options = []
        result = job.run("--resume")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"its errors: in a file of their own there, none now", result.stderr)


class Summary(unittest.TestCase):
    def test_counts(self):
        both = {"prompt": ["Once upon a time", "A cat"], "max_tokens": 4}
        job = Job([story(0), "{", line("two", TEXT, {**both, "best_of": 3}), line("n", TEXT, {**both, "n": 2}),
                   line("vectors", EMBED, {"input": ["Once upon a time", "A cat"]})])
        path = job.path / "summary.json"
        self.assertEqual(job.run("--summary", path, "-q").returncode, 0)
        told = json.loads(path.read_text())
        usage = [a["response"]["body"]["usage"] for a in job.answers() if a["response"]]
        self.assertEqual((told["object"], told["status"], told["exit_code"], told["model"]),
                         ("batch", "completed", 0, pathlib.Path(MODEL).name))
        self.assertEqual(told["request_counts"], {"total": 5, "completed": 4, "failed": 1})
        self.assertEqual((told["usage"]["input_tokens"], told["usage"]["output_tokens"], told["usage"]["total_tokens"]),
                         tuple(sum(u.get(k, 0) for u in usage)
                               for k in ("prompt_tokens", "completion_tokens", "total_tokens")))
        self.assertEqual((told["input_file"], told["output_file"], told["error_file"]),
                         (str(job.input), str(job.output), None))
        self.assertEqual((told["run"]["lines"], told["run"]["seconds"] > 0), (5, True))
        result = job.run("--resume", "--summary", "-", "-q", "--fail-on", "any")
        told = json.loads(result.stdout)
        self.assertEqual((result.returncode, told["exit_code"], told["status"], told["run"]["lines"]),
                         (3, 3, "completed", 0))
        self.assertEqual(sorted(os.listdir(job.path)), ["in.jsonl", "out.jsonl", "out.jsonl.journal", "summary.json"])

    def test_a_place_where_none_can_be(self):
        """Told before anything is computed."""
        job = Job([story(0)])
        result = job.run("--summary", job.path / "none" / "s")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"none/s: nothing can be written there: No such file", result.stderr)
        self.assertEqual(os.listdir(job.path), ["in.jsonl"])

    def test_where_it_goes(self):
        """A pipe and the program's own output are written to, a link's target is replaced, a folder is refused."""
        job = Job([story(0)])
        pipe, link, target = (job.path / name for name in ("pipe", "link", "target"))
        os.mkfifo(pipe)
        link.symlink_to("target")
        reader = common.popen(["cat", pipe], stdout=subprocess.PIPE)
        self.assertEqual(job.run("--summary", pipe, "-q").returncode, 0)
        if not pipe.is_fifo():  # else the reader waits for ever
            reader.kill()
        told = json.loads(reader.communicate(timeout=common.PATIENCE)[0])
        self.assertEqual((told["status"], pipe.is_fifo()), ("completed", True))
        for before in (None, "old"):
            if before is not None:
                target.write_text(before)
            self.assertEqual(job.run("--resume", "--summary", link, "-q").returncode, 0)
            self.assertTrue(link.is_symlink())
            self.assertEqual(json.loads(target.read_text())["object"], "batch")
        with open(job.path / "all", "w") as both:  # a file that the shell has opened as standard error
            both.write("before\n")
            both.flush()
            command = job.command("--resume", "--summary", "/proc/self/fd/2", "-q")
            self.assertEqual(subprocess.run(command, stderr=both, timeout=common.PATIENCE).returncode, 0)
        before, told = (job.path / "all").read_text().splitlines()
        self.assertEqual((before, json.loads(told)["object"]), ("before", "batch"))
        read, write = os.pipe()  # as a shell's >(command)
        command = job.command("--resume", "--summary", f"/dev/fd/{write}", "-q")
        done = subprocess.run(command, pass_fds=[write], capture_output=True, timeout=common.PATIENCE)
        os.close(write)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(read) as told:
            self.assertEqual(json.load(told)["object"], "batch")
        (job.path / "folder").mkdir()
        done = job.run("--overwrite", "--summary", job.path / "folder")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"not a file, a pipe or a terminal", done.stderr)
        self.assertEqual(len(job.answers()), 1)  # it was refused before anything began

    def test_shifts(self):
        """What answers that went on have lost stands in each line and in the sum: as often as the context was full."""
        keep, ctx, n, prompt = 3, 64, 200, "Once upon a time there was an owl"
        job = Job([line("a", TEXT, {"prompt": prompt, "max_tokens": n, "temperature": 0, "context_keep": keep, "n": 2,
                                   "logit_bias": {str(end): -100 for end in (2045, 2046, 2047)}}),
                   line("b", TEXT, {"prompt": prompt, "max_tokens": 4, "context_keep": keep}),
                   line("c", TEXT, {"prompt": prompt, "max_tokens": 4}),
                   line("bad", TEXT, {"prompt": prompt, "context_keep": ctx}),
                   line("d", "/v1/responses", {"input": prompt, "max_output_tokens": n, "context_keep": keep})])
        job.options = ["--ctx", str(ctx)]
        result = job.run("--summary", job.path / "s")
        self.assertEqual(result.returncode, 0, result.stderr)
        *_, bad, _ = answers = job.answers()
        self.assertIn("half the context", json.dumps(bad["response"]["body"]))
        a, b, c, d = [answer["response"]["body"]["usage"] for answer in answers if answer is not bad]

        def lost(tokens):
            """Tokens that a text of so many has lost behind its head, when the last one was drawn."""
            seen = shifts = gone = 0
            for _ in range(tokens):
                if seen == ctx:
                    seen = keep + (ctx - keep) // 2
                    shifts, gone = shifts + 1, gone + ctx - seen
                seen += 1
            return shifts, gone

        want = lost(a["prompt_tokens"] + n)
        self.assertGreater(want[0], 3)
        self.assertEqual((a["shifts"], a["shifted_tokens"]), (2 * want[0], 2 * want[1]))
        self.assertEqual((b["shifts"], b["shifted_tokens"]), (0, 0))
        self.assertNotIn("shifts", c)
        self.assertEqual((d["shifts"], d["shifted_tokens"]), lost(d["input_tokens"] + d["output_tokens"]))
        both = [2 * w + d[k] for w, k in zip(want, ("shifts", "shifted_tokens"))]
        told = json.loads((job.path / "s").read_text())["usage"]
        self.assertEqual([told["shifts"], told["shifted_tokens"]], both)
        self.assertIn(f"context: full {both[0]} times, {both[1]} tokens of the texts went".encode(), result.stderr)
        # a journal from before there was such a thing
        with sqlite3.connect(job.journal) as journal:
            journal.execute("DROP TABLE shift")
        journal.close()
        self.assertEqual(job.run("--resume", "--summary", job.path / "s").returncode, 0)
        told = json.loads((job.path / "s").read_text())
        self.assertEqual((told["request_counts"]["completed"], told["usage"]["shifts"]), (4, 0))
        self.assertEqual(told["request_counts"]["failed"], 1)

    def test_cancelled(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "summary.json"
            process = common.popen([common.program, "batch", MODEL, "-", "-", "-q", "--summary", str(path)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            process.stdin.write(story(0).encode() + b"\n")
            process.stdin.flush()
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(common.PATIENCE), 130)
            process.stdin.close()
            process.stdout.close()
            told = json.loads(path.read_text())
        self.assertEqual((told["status"], told["exit_code"], told["request_counts"]["completed"]),
                         ("cancelled", 130, 1))

    def test_exit_code(self):
        fine, both, broken, none = Job([story(0)]), Job([story(0), "{"]), Job(["{", "["]), Job([])
        for job, want in ((fine, {"any": 0, "all": 0, "none": 0}), (both, {"any": 3, "all": 0, "none": 0}),
                          (broken, {"any": 3, "all": 3, "none": 0}), (none, {"any": 0, "all": 0, "none": 0})):
            for when, code in want.items():
                result = job.run("--overwrite", "--fail-on", when)
                self.assertEqual(result.returncode, code, (when, result.stderr))
        self.assertEqual(both.run("--overwrite").returncode, 0)


class Figures(unittest.TestCase):
    def test_private_journal(self):
        for umask in (0, 0o022, 0o777):
            job = Job([story(0)])
            self.assertEqual(job.run("-q", preexec_fn=lambda: os.umask(umask)).returncode, 0)
            self.assertEqual(stat.S_IMODE(job.journal.stat().st_mode), 0o600, oct(umask))

    def test_choices(self):
        """A prompt of several choices counts once, in the line and in the summary."""
        job = Job([story(0, n=3),
                   line("two", TEXT, {"prompt": ["Once upon a time", "A cat"], "n": 2, "max_tokens": 4})])
        result = job.run()
        usage = [a["response"]["body"]["usage"] for a in job.answers()]
        self.assertIn(f"tokens: {sum(u['prompt_tokens'] for u in usage)} of prompts".encode(), result.stderr)
        self.assertIn(f"{sum(u['completion_tokens'] for u in usage)} of answers".encode(), result.stderr)


if __name__ == "__main__":
    common.main("__main__")
