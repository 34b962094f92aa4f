#!/usr/bin/env python3
"""The command line: what is refused, with which exit code and which words; help; errors of files; signals."""
import array
import fcntl
import json
import mmap
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

import common
from common import MODEL, run

PAGE = mmap.PAGESIZE  # the least that a pipe holds

REFUSED = [  # arguments, words that standard error must contain
    ([], "usage: runnel COMMAND"),
    (["rnu"], "did you mean run?"),
    (["preplexity"], "did you mean perplexity?"),
    (["qqqqqqqqqq"], "see runnel --help"),
    (["run"], "MODEL is missing"),
    (["perplexity", MODEL], "FILE is missing"),
    (["run", MODEL, "some", "more"], "stands in quotes"),
    (["run", MODEL, "more", "-p", "text"], "--prompt has the text"),
    (["run", "-m", MODEL, "a", "b"], "one word too many"),
    (["run", "-m"], "needs a value"),
    (["run", "-hf", "some/repository"], "nothing is downloaded"),
    (["-hf", "some/repository"], "nothing is downloaded"),
    (["-ngl", "99", "-m", MODEL], "leave it out"),
    (["-m", MODEL, "-p", "text"], "comes behind a command: runnel run -m"),
    ([MODEL, "text"], "a command comes first, as in runnel run"),
    (["server", MODEL], "did you mean serve?"),
    (["rnu", MODEL], "did you mean run?"),
    (["run", MODEL, "-ngl", "99"], "leave it out"),
    (["run", MODEL, "--n-predict", "5"], "--max-tokens"),
    (["run", MODEL, "-cnv"], "the command chat"),
    (["run", MODEL, "-nx"], "not an option of run"),
    (["run", MODEL, "-n-2"], "a whole number from -1"),
    (["run", MODEL, "--temprature", "1"], "did you mean --temperature?"),
    (["run", MODEL, "--temp", "1"], "did you mean --temperature?"),
    (["run", MODEL, "--josn"], "did you mean --json?"),
    (["info", MODEL, "--seed", "1"], "not an option of info"),
    (["info"], "MODEL is missing"),
    (["info", MODEL, "--architectures"], "takes no MODEL"),
    (["chat", MODEL, "--file", "x"], "not an option of chat"),
    (["run", MODEL, "--seed"], "needs a value"),
    (["run", MODEL, "--json=1"], "takes no value"),
    (["run", MODEL, "-p", "a", "-f", "b"], "exclude each other"),
    (["run", MODEL, "--logprobs", "3"], "needs --json"),
    (["run", MODEL, "--logprobs", "101", "--json"], "from 0 to 100"),
    (["run", MODEL, "--kv-type", "q5"], "f16|f32|bf16"),
    (["run", MODEL, "--kv-type", ""], "f16|f32|bf16"),
    (["run", MODEL, "--device", "cp"], "cpu|auto|cuda|reference"),
    (["run", MODEL, "--device", "cuda:"], "cpu|auto|cuda|reference"),
    (["run", MODEL, "--device", "cuda:1x"], "cpu|auto|cuda|reference"),
    (["run", MODEL, "--device", "cpu:"], "cpu|auto|cuda|reference"),
    (["run", MODEL, "--device", "cpu:AVX2"], "cpu|auto|cuda|reference"),
    (["run", MODEL, "--stop", ""], "1 to 1024 bytes"),
    (["run", MODEL, "--stop", "x" * 1025], "1 to 1024 bytes"),
    (["run", MODEL] + ["--stop", "x"] * 257, "at most 256"),
    (["run", MODEL, "--logit-bias", "5"], "ID=NUMBER"),
    (["run", MODEL, "--logit-bias", "5=nan"], "ID=NUMBER"),
    (["run", MODEL, "--logit-bias", "-5=1"], "ID=NUMBER"),
    (["run", MODEL, "--logit-bias", "2048=1", "-p", "a"], "vocabulary"),
    (["run", MODEL, "-p", b"\xff"], "UTF-8"),
    (["tokenize", MODEL], "-p or -f"),
    (["tokenize", MODEL, "-p", "a", "--ids", "--show"], "exclude each other"),
    (["tokenize", MODEL, "-p", b"\xc0\x80"], "UTF-8"),
    (["logits", MODEL, "-p", "a"], "--output is missing"),
    (["logits", MODEL, "-o", "x"], "--tokens"),
    (["logits", MODEL, "-p", "a", "--tokens", "1", "-o", "x"], "--tokens"),
    (["logits", MODEL, "--tokens", "", "-o", "x"], "parted by commas"),
    (["logits", MODEL, "--tokens", "1,,2", "-o", "x"], "parted by commas"),
    (["logits", MODEL, "--tokens", "1,2,", "-o", "x"], "parted by commas"),
    (["logits", MODEL, "--tokens", "1, 2", "-o", "x"], "parted by commas"),
    (["run", MODEL, "-p", "a", "--batch", "7"], "from 8 to 8192"),
    (["bench"], "MODEL is missing"),
    (["bench"] + [MODEL] * 33, "one word too many"),
    (["bench", MODEL, "-p", ""], "parted by commas"),
    (["bench", MODEL, "-p", "1,,2"], "parted by commas"),
    (["bench", MODEL, "-p", "1,2,"], "parted by commas"),
    (["bench", MODEL, "-n", "1;2"], "parted by commas"),
    (["bench", MODEL, "-n", "-1"], "from 0 to 1048576"),
    (["bench", MODEL, "--streams", "0"], "from 1 to 1000"),
    (["bench", MODEL, "--streams", "1,1001"], "from 1 to 1000"),
    (["bench", MODEL, "--depth", "x"], "parted by commas"),
    (["bench", MODEL, "--depth", ",".join("1" * 17)], "1 to 16"),
    (["bench", MODEL, "-r", "0"], "from 1 to 1000"),
    (["bench", MODEL, "-p", "0", "-n", "0,0"], "nothing to time"),
    (["bench", MODEL, "--json", "--csv"], "exclude each other"),
    (["bench", MODEL, "--ctx", "64"], "not an option of bench"),
    (["bench", MODEL, "--repeat", "2"], "did you mean --repeats?"),
    (["run", MODEL, "-p", "a", "--max-slowdown", "1"], "--max-slowdown"),
    (["batch", MODEL, "x", "--max-slowdown", "nan"], "--max-slowdown"),
    (["run", MODEL, "-p", "a", "--cache-cold", "1G"], "needs --cache-dir"),
    (["run", MODEL, "-p", "a", "--draft", "ngram,none"], "behind 'ngram,'"),
    (["run", MODEL, "-p", "a", "--draft", "ngram,"], "behind 'ngram,'"),
    (["run", MODEL, "-p", "a", "--draft", ""], "it takes none, ngram"),
    (["run", MODEL, "-p", "a", "--draft", "ngram,eagle:"], "it takes none, ngram"),
    (["run", MODEL, "-p", "a", "--draft", f"eagle:{MODEL}"], "and no head"),
    (["run", MODEL, "-p", "a", "--threads", "257"], "from 1 to 256"),
    (["run", MODEL, "-p", "a", "--regex", "("], "a group has no"),
    (["run", MODEL, "-p", "a", "--grammar", "root"], "is expected"),
    (["run", MODEL, "-p", "a", "--json-schema", "{"], "the schema"),
    (["template", "--file", "x", "--context", "y", "--now", "0"], "from 1 to 253402300799"),
    (["batch", MODEL, "x", "y", "--journal", ""], "--journal is empty"),
    (["logits", MODEL, "--tokens", "-1", "-o", "x"], "parted by commas"),
    (["run", MODEL, "-f", "-", "--grammar-file", "-"], "--file and --grammar-file both read standard input"),
    (["template", "--file", "-", "--context", "-"], "--file and --context both read standard input"),
    (["batch", MODEL, "-", "x", "--template", "-"], "the input and --template both read standard input"),
    (["chat", MODEL, "--no-history", "--tools", "-"], "the conversation and --tools both read standard input"),
]
BAD_NUMBERS = {  # option: values outside its type or range
    "--temperature": ["", "x", "nan", "inf", "-1", "1x", " 1", "1 ", "0x1", "1e999", "1,5", "--"],
    "--top-p": ["0", "-0.1", "1.0001", "nan"],
    "--min-p": ["-0.1", "1.5", "1..0"],
    "--repetition-penalty": ["0", "-1", "1e-60"],
    "--top-k": ["-1", "1.5", "4294967296", "99999999999999999999", "+1", " 1", ""],
    "--max-tokens": ["-2", "1.0", "0x10", "2147483648"],
    "--seed": ["-1", "18446744073709551616", "1e3"],
    "--ctx": ["0", "-1", "4294967296"],
    "--batch": ["0"],
    "--threads": ["0", "1025"],
    "--kv-size": ["0", "K", "1T", "-1M", "1.5G", "18014398509481984K", "1KB"],
    "--stop-token": ["-1", "2147483648", "a"],
}


def hostile(body):
    file = tempfile.NamedTemporaryFile(suffix=".gguf")
    file.write(body)
    file.flush()
    return file


def memory_nodes():
    """Those that have processors this test may use; 1 where the kernel does not say."""
    mine, nodes, told = os.sched_getaffinity(0), 0, set()
    for path in pathlib.Path("/sys/devices/system/node").glob("node[0-9]*/cpulist"):
        ranges = [part.split("-") for part in path.read_text().strip().split(",") if part]
        cpus = {cpu for r in ranges for cpu in range(int(r[0]), int(r[-1]) + 1)} & mine
        told |= cpus
        nodes += bool(cpus)
    return nodes if told == mine else 1


class Arguments(unittest.TestCase):
    def one_line(self, result, code, words=""):
        text = result.stderr.decode()
        self.assertEqual(result.returncode, code, text)
        self.assertEqual(result.stdout, b"")
        self.assertTrue(text.startswith("runnel: "), text)
        self.assertEqual(text.count("\n"), 1, text)
        self.assertIn(words, text)

    def test_refused(self):
        for args, words in REFUSED:
            with self.subTest(args=args):
                result = subprocess.run([common.program, *args], capture_output=True, timeout=common.PATIENCE)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertEqual(result.stdout, b"")
                self.assertIn(words, result.stderr.decode())

    def test_long_names(self):
        """A message is UTF-8, wherever a name is cut, and whatever the name is."""
        for name in ("\u00e9" * 300, "a" + "\u00e9" * 300, b"caf\xe9", b"\xff" * 300):
            for args in ((name,), ("cache", name), ("run", MODEL, "x", name), ("run", name)):
                done = subprocess.run([common.program, *args], capture_output=True, timeout=common.PATIENCE)
                self.assertIn(done.returncode, (1, 2), args)
                self.assertNotIn("\ufffd", done.stderr.decode())
                if name == b"caf\xe9" and args[0] != "run":
                    self.assertIn(b"caf\\xE9", done.stderr)

    def test_bad_numbers(self):
        for option, values in BAD_NUMBERS.items():
            for i, value in enumerate(values):
                words = [option, value] if i % 2 == 0 else [f"{option}={value}"]
                with self.subTest(words=words):
                    self.one_line(run("run", MODEL, *words), 2, f"{option} '{value}'")

    def test_good_numbers(self):
        result = run("run", MODEL, "-p", "Once upon", "-n", "2", "-q", "--temperature", "1e-3", "--top-k", "4294967295",
                     "--top-p=.5", "--min-p", "0", "--repetition-penalty", "1.1", "--frequency-penalty", "-0.5",
                     "--presence-penalty", "+1", "--logit-bias", "5=-inf", "--logit-bias", "6=-1.5e1", "--seed",
                     "18446744073709551615", "--ctx", "64", "--batch", "8", "--threads", "1", "--kv-size", "64M",
                     "--kv-type", "f32", "--weights", "tiles", "--stop-token", "3", "--device", "cpu",
                     "--ignore-eos")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertGreater(len(result.stdout), 2)

    def test_help(self):
        for args in (["--help"], ["-h"], ["help"]):
            result = run(*args)
            self.assertEqual((result.returncode, result.stderr), (0, b""))
            self.assertIn(b"Exit codes: 0", result.stdout)
        for command in "run chat info tokenize logits perplexity bench".split():
            self.assertIn(command, result.stdout.decode())
            mine = run(command, "--help")
            self.assertEqual((mine.returncode, mine.stderr), (0, b""))
            self.assertIn(f"usage: runnel {command} MODEL", mine.stdout.decode())
            self.assertEqual(run("help", command).stdout, mine.stdout)
            self.assertLessEqual(max(map(len, mine.stdout.decode().splitlines())), 110)

    def test_help_begins_with_examples(self):
        for command in ("run chat doctor info tokenize logits embed perplexity template batch eagle-train cache bench "
                        "repack").split():
            lines = run(command, "--help").stdout.decode().splitlines()
            self.assertRegex(lines[2], r"^  (runnel|echo|printf) ", command)
            examples = [line for line in lines if line.startswith(f"  runnel {command} ")]
            self.assertGreater(len(examples), 0)
            self.assertLess(lines.index(examples[-1]), next(i for i, l in enumerate(lines) if l.startswith("usage: ")))
            headings = [i for i, line in enumerate(lines) if line.endswith(":") and
                        lines[i + 1].startswith(("  -", "   "))]
            self.assertGreater(len(headings), 1, command)

    def test_what_hands_type(self):
        want = run("run", MODEL, "-p", "Once upon", "--max-tokens", "5", "--ctx", "64", "--threads", "1", "-q")
        for words in ([MODEL, "Once upon", "-n", "5", "-c", "64", "-t", "1"], ["-m", MODEL, "-p", "Once upon", "-n5"],
                      ["--model", MODEL, "Once upon", "-n5", "-c64", "-t1"], ["-n", "5", "Once upon", "-m", MODEL]):
            result = run("run", *words, "-q")
            self.assertEqual((result.returncode, result.stdout), (0, want.stdout), result.stderr)

    def test_version(self):
        for word in ("--version", "-V", "version"):
            result = run(word)
            self.assertEqual(result.returncode, 0)
            self.assertRegex(result.stdout.decode(), r"^runnel \d+\.\d+\.\d+\n$")

    def test_files_that_fail(self):
        head = struct.pack("<4sIQQ", b"GGUF", 3, 1 << 62, 1 << 62)
        for body in (b"", b"GGUF", b"no model at all" * 100, head, head + b"\xff" * 4096,
                     pathlib.Path(MODEL).read_bytes()[:100000]):
            with hostile(body) as file:
                for command in ("info", "run", "tokenize"):
                    args = ["-p", "a"] if command != "info" else []
                    with self.subTest(command=command, body=body[:30]):
                        self.one_line(run(command, file.name, *args), 1)
        self.one_line(run("run", "/does/not/exist.gguf", "-p", "a"), 1, "/does/not/exist.gguf")
        self.one_line(run("run", "/tmp", "-p", "a"), 1, "/tmp")
        self.one_line(run("run", MODEL, "-f", "/does/not/exist"), 1, "No such file")
        self.one_line(run("logits", MODEL, "-p", "a", "-q", "-o", "/does/not/exist"), 1, "No such file")
        self.one_line(run("run", "/does/not/exist.gguf", "-p", "a"), 1, "No such file")
        self.one_line(run("run", MODEL, "-p", "a", "--draft", "/does/not/exist.gguf"), 1, "No such file")
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"[]")
            file.flush()
            self.one_line(run("template", MODEL, "--context", file.name), 2, "--context: not a JSON object")
        with tempfile.NamedTemporaryFile() as file, tempfile.NamedTemporaryFile() as context:
            file.write(b"text {# that has no end")
            context.write(b"{}")
            file.flush(), context.flush()
            self.one_line(run("template", "--file", file.name, "--context", context.name), 1,
                          f"{file.name}: line 1, column 6: missing end of comment tag")

    def test_doctor(self):
        fields = lambda result: dict(line.split(None, 1) for line in result.stdout.decode().splitlines() if line)
        alone, model = run("doctor"), run("doctor", MODEL, "--ctx", "512")
        self.assertEqual((alone.returncode, alone.stderr, model.returncode), (0, b"", 0), model.stderr)
        for name in ("processor", "instructions", "threads", "memory", "reads"):
            self.assertIn(name, fields(alone))
            self.assertIn(name, fields(model))
        self.assertRegex(fields(alone)["threads"], rf"^\d+ on {memory_nodes()} memory node")
        self.assertIn("context of 512 in f16", model.stdout.decode())
        self.assertEqual(fields(model)["loads"], "yes")
        self.assertRegex(fields(model)["order"], r"^weights lie (as in the file|\d+ % in tiles)$")
        self.assertEqual(fields(model)["verdict"], "all is well")
        self.assertEqual(fields(run("doctor", MODEL, "--weights", "file"))["order"], "weights lie as in the file")
        lacking = run("doctor", MODEL, "--ctx", "4294967295")
        self.assertEqual(lacking.returncode, 1)
        self.assertIn("memory: ", fields(lacking)["missing"])
        self.one_line(run("doctor", "/does/not/exist.gguf", "--threads", "300"), 2, "from 1 to 256")

    def test_closed_streams(self):
        """What is closed is not the next file that is opened."""
        result = subprocess.run([common.program, "chat", MODEL, "--no-history", "-q"], capture_output=True,
                                preexec_fn=lambda: os.close(0))
        self.one_line(result, 1, "standard input: Bad file descriptor")
        for fd, words in ((0, b""), (1, b"standard output: it is closed"), (2, b"")):
            result = subprocess.run([common.program, "run", MODEL, "-p", "Once", "-n", "3", "-q"], capture_output=True,
                                    timeout=common.PATIENCE, preexec_fn=lambda: os.close(fd))
            self.assertEqual(result.returncode, 1 if fd == 1 else 0)
            self.assertIn(words, result.stderr)

    def test_warnings(self):
        trained = json.loads(run("info", MODEL, "--json").stdout)["trained_tokens"]
        for context, warned in ((trained, False), (trained + 1, True)):
            result = run("run", MODEL, "-p", "Once", "-n", "1", "--ctx", context)
            self.assertEqual((result.returncode, b"was trained for" in result.stderr), (0, warned))
        for args, code, warned in (([], 2, True), (["--tokens", "1"], 0, True), (["-p", "Once"], 0, False),
                                   (["-f", "-"], 0, False), (["-q"], 2, False)):
            result = run("run", MODEL, "-n", "1", *args, stdin=b"Once")
            self.assertEqual((result.returncode, b"-f - takes it" in result.stderr), (code, warned), args)

    def test_disk_full(self):
        """One sentence of it, whichever command writes and however often."""
        line = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions",
                           "body": {"prompt": "Once", "max_tokens": 2}}).encode() + b"\n"
        cases = [(["run", MODEL, "-p", "Once", "-q"], b""),
                 (["run", MODEL, "-p", "Once", "-n", "3", "--json", "-q"], b""),
                 (["run", MODEL, "-p", "Once", "-n", "2", "--n", "2", "-q"], b""),
                 (["chat", MODEL, "-n", "3", "-q"], b"hi\nho\n"), (["chat", MODEL, "-n", "3", "--json", "-q"], b"hi\n"),
                 (["info", MODEL], b""), (["info", MODEL, "--json"], b""), (["info", MODEL, "--plan"], b""),
                 (["info", "--architectures"], b""), (["tokenize", MODEL, "-p", "Once"], b""),
                 (["tokenize", MODEL, "-p", "Once upon " * 9000], b""),
                 (["bench", MODEL, "-p", "8", "-n", "2", "-r", "1", "-q"], b""),
                 (["bench", MODEL, "-p", "8", "-n", "2", "-r", "1", "--json", "-q"], b""),
                 (["batch", MODEL, "-", "-", "-q"], line), (["embed", MODEL, "Once", "-q"], b""),
                 (["logits", MODEL, "-p", "Once", "-q", "-o", "-"], b""),
                 (["perplexity", MODEL, "-", "-q"], b"Once upon a time"),
                 (["template", MODEL, "--context", "-"], b'{"messages": [{"role": "user", "content": "hi"}]}'),
                 (["doctor"], b""), (["serve", MODEL, "--port", "0", "-q"], b""), (["--help"], b""),
                 (["--version"], b""),
                 (["--manual"], b""), (["--completion"], b"")]
        for args, stdin in cases:
            with self.subTest(args=args[:3]), open("/dev/full", "wb") as full:
                result = subprocess.run([common.program, *args], input=stdin, stdout=full, stderr=subprocess.PIPE,
                                        timeout=common.PATIENCE)
                self.assertEqual((result.returncode, result.stderr.decode()),
                                 (1, "runnel: standard output: No space left on device\n"))
        self.one_line(run("logits", MODEL, "-p", "Once", "-q", "-o", "/dev/full"), 1, "No space left")

    def test_reader_goes_away(self):
        process, _ = self.begin_endless("-q")
        process.stdout.close()
        self.assertEqual(process.wait(common.PATIENCE), 130)
        self.assertEqual(process.stderr.read(), b"")
        process.stderr.close()

    def test_nobody_reads(self):
        """Whether all of it fits into a buffer or not."""
        for args in (["info", MODEL], ["info", MODEL, "--plan"], ["info", "--architectures"], ["--completion"],
                     ["--help"],
                     ["tokenize", MODEL, "-p", "a " * 9000]):
            with self.subTest(args=args[:3]):
                reader, writer = os.pipe()
                os.close(reader)
                done = subprocess.run([common.program, *args], stdout=writer, stderr=subprocess.PIPE, check=False)
                os.close(writer)
                self.assertEqual((done.returncode, done.stderr), (130, b""))

    def test_a_file_that_may_not_grow(self):
        """Such a limit (ulimit -f) is told as a full disk is, and nothing half-written stays."""
        with tempfile.TemporaryDirectory() as folder:
            out, trace = os.path.join(folder, "out"), os.path.join(folder, "trace")
            for args in (["logits", MODEL, "-p", "Once upon a time", "-o", out],
                         ["run", MODEL, "-p", "Once", "-n", "3", "--trace", trace],
                         ["info", MODEL], ["embed", MODEL, "Once", "upon", "a time"]):
                with self.subTest(args=args[0]), open(os.path.join(folder, "stdout"), "wb") as stdout:
                    result = subprocess.run(
                        [common.program, *args, *([] if args[0] == "info" else ["-q"])], stdout=stdout,
                        stderr=subprocess.PIPE, timeout=common.PATIENCE,
                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)))
                    name = out if args[0] == "logits" else trace if args[0] == "run" else "standard output"
                    self.assertEqual(result.returncode, 1, result.stderr)
                    self.assertRegex(result.stderr.decode(),
                                     rf"^runnel: {name}: (File too large|it could not be written)\n$")
            self.assertFalse(os.path.exists(out))

    def test_a_pipe_that_nobody_opens(self):
        """One signal ends the program while it waits for the other end."""
        with tempfile.TemporaryDirectory() as folder:
            pipe = os.path.join(folder, "pipe")
            os.mkfifo(pipe)
            for args in (["run", MODEL, "hi", "-n", "1", "--cache-shared", "@" + pipe],
                         ["chat", MODEL, "--no-history", "--template", pipe]):
                process = common.popen([common.program, *args, "-q"], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                writer = -1
                while writer < 0 and process.poll() is None:
                    try:
                        writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)  # not before it is opened for reading
                    except OSError:
                        pass
                process.send_signal(signal.SIGINT)
                os.close(writer)
                self.assertEqual(process.wait(common.PATIENCE), -signal.SIGINT, args[0])

    ENDLESS = ["run", MODEL, "-p", "Once upon", "--ignore-eos", "--ctx", "4096", "-n", "2500"]

    def begin_endless(self, *args):
        """Its answer is longer than what the pipe holds: it cannot end before somebody reads on."""
        process = common.popen([common.program, *self.ENDLESS, *args],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, PAGE)
        return process, os.read(process.stdout.fileno(), 1)

    def test_interrupt(self):
        whole = run(*self.ENDLESS, "-q").stdout
        self.assertGreater(len(whole), PAGE + 2000)  # what is computed ahead of its reader is less
        for number in (signal.SIGINT, signal.SIGTERM):
            process, first = self.begin_endless("-q")
            process.send_signal(number)
            out, err = process.communicate(timeout=common.PATIENCE)
            self.assertEqual((process.returncode, err), (130, b""))
            self.assertTrue(whole.startswith(first + out), first + out)
            self.assertLess(len(first + out), len(whole))

    def test_interrupt_json(self):
        process, first = self.begin_endless("--json")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=common.PATIENCE)
        self.assertEqual(process.returncode, 130)
        lines = [json.loads(line) for line in (first + out).decode().splitlines()]
        self.assertEqual(lines[-1]["type"], "cancelled")
        self.assertEqual(sum(line["type"] == "cancelled" for line in lines), 1)

    def test_interrupt_twice(self):
        # Standard output is full and nobody reads: the first signal cannot be acted upon, the second ends.
        process, _ = self.begin_endless("-q")
        held, last, since = array.array("i", [0]), 0, time.monotonic()
        while held[0] < PAGE - 64 and time.monotonic() < since + 1:  # either way the verdict is the same
            fcntl.ioctl(process.stdout.fileno(), termios.FIONREAD, held)
            if held[0] != last:
                last, since = held[0], time.monotonic()
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        while self.is_pending(process, signal.SIGINT):  # two at once would be one
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        self.assertIn(process.wait(common.PATIENCE), (130, -signal.SIGINT))
        process.stdout.close()
        process.stderr.close()

    def is_pending(self, process, number):
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        return any(int(mask, 16) >> (number - 1) & 1 for mask in re.findall(r"^S\w+Pnd:\s*(\w+)", status, re.MULTILINE))


class Outputs(unittest.TestCase):
    """No output of a command is one of its inputs, or another output, by whatever name: told before any is opened."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.model = self.path("m.gguf")
        shutil.copy(MODEL, self.model)
        for name, text in (("text", "Once upon a time"), ("t.gguf.training", "a corpus"),
                           ("in", '{"custom_id": "a"}\n'), ("p-00001-of-00002.gguf", "x"),
                           ("p-00002-of-00002.gguf", "y"), ("sum.part", '{"custom_id": "a"}\n'), ("sum", "old"),
                           ("t.gguf.new", "a model"), ("t.gguf.training.new", "a corpus"), ("out.journal-wal", "x")):
            pathlib.Path(self.path(name)).write_text(text)
        os.mkdir(self.path("models"))
        shutil.copy(MODEL, self.path("models/a.gguf"))
        pathlib.Path(self.path("list")).write_text(json.dumps({"models": [{"path": "models/a.gguf"}]}))
        os.symlink("sum", self.path("link"))
        os.symlink("t.gguf", self.path("head"))
        os.link(self.model, self.path("hard.gguf"))
        os.symlink("m.gguf", self.path("soft.gguf"))
        os.symlink("new", self.path("nothing"))
        os.symlink(".", self.path("self"))

    def path(self, name):
        return str(self.folder / name)

    def whole(self):
        return {path.name: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    def test_refused(self):
        model, path, before = self.model, self.path, self.whole()
        text, new, job = path("text"), path("new"), ["batch", self.model, path("in"), path("out")]
        for args, first, second in (
                (["logits", model, "-p", "hi", "-o", model], "the model", "--output"),
                (["logits", model, "-p", "hi", "-o", path("hard.gguf")], "the model", "--output"),
                (["logits", path("soft.gguf"), "-p", "hi", "-o", model], "the model", "--output"),
                (["logits", path("p-00001-of-00002.gguf"), "-p", "hi", "-o", path("p-00002-of-00002.gguf")],
                 "the model", "--output"),
                (["run", model, "hi", "--trace", model], "the model", "--trace"),
                (["run", model, "hi", "--metrics", path("self/m.gguf")], "the model", "--metrics"),
                (["run", model, "hi", "--experts", model], "the model", "--experts"),
                (["run", model, "-f", text, "--trace", text], "--file", "--trace"),
                (["run", model, "hi", "--draft", "ngram," + text, "--trace", text], "--draft", "--trace"),
                (["run", model, "hi", "--json-schema-file", text, "--trace", text], "--json-schema-file", "--trace"),
                (["run", model, "hi", "--trace", new, "--metrics", new], "--metrics", "--trace"),
                (["run", model, "hi", "--trace", new, "--metrics", path("self/new")], "--metrics", "--trace"),
                (["run", model, "hi", "--trace", new, "--experts", path("nothing")], "--experts", "--trace"),
                (["chat", model, "--session", new, "--trace", new], "--session", "--trace"),
                (["chat", model, "--session", model], "the model", "--session"),
                (["bench", model, "--text", text, "--trace", text], "--text", "--trace"),
                (["perplexity", model, text, "--trace", text], "the text", "--trace"),
                ([*job, "--trace", path("in")], "the input", "--trace"),
                ([*job, "--trace", path("out.journal")], "the journal", "--trace"),
                ([*job, "--metrics", path("out")], "the output", "--metrics"),
                ([*job, "--summary", path("out")], "the output", "--summary"),
                ([*job, "--check", "--trace", path("in")], "the input", "--trace"),
                (["cache", "warm", model, text, "--trace", text], "the file of prompts", "--trace"),
                (["serve", f"name={model}", "--trace", model], "the model", "--trace"),
                (["serve", "--models-dir", path("models"), "--trace", path("models/a.gguf")], "--trace", "the model"),
                (["serve", "--models-file", path("list"), "--metrics", path("self/models/a.gguf")], "--metrics",
                 "the model"),
                (["batch", model, path("sum.part"), path("out"), "--summary", path("link")], "the input",
                 "--summary with .part"),
                (["batch", model, path("out.journal-wal"), path("out")], "the input", "the journal with -wal"),
                (["eagle-train", path("t.gguf.new"), text, "-o", path("head")], "the model", "--output with .new"),
                (["eagle-train", model, path("t.gguf.training.new"), "-o", path("t.gguf")], "the corpus",
                 "--output with .training.new"),
                (["eagle-train", model, text, "-o", model], "the model", "--output"),
                (["eagle-train", model, text, "-o", text], "the corpus", "--output"),
                (["eagle-train", model, path("t.gguf.training"), "-o", path("t.gguf")], "the corpus",
                 "--output with .training"),
                (["eagle-train", path("p-00001-of-00002.gguf"), text, "-o", path("p-00002-of-00002.gguf")],
                 "the model", "--output")):
            with self.subTest(args=args):
                result = run(*args)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertRegex(result.stderr.decode(), rf"^runnel: \S+ is {first} and {second} at once\n$")
                self.assertEqual(self.whole(), before)

    def test_a_conversation(self):
        before = self.whole()
        result = run("chat", self.model, "-q", stdin=f"/save {self.path('hard.gguf')}\n".encode())
        self.assertEqual(result.returncode, 2)
        self.assertIn("is the model and /save at once", result.stderr.decode())
        self.assertEqual(self.whole(), before)

    def test_the_lines_of_earlier_runs(self):
        lines = self.folder / "runnel/chat_history"
        lines.parent.mkdir()
        lines.write_text("_HiStOrY_V2_\nHello\n")
        env, before = {**os.environ, "XDG_STATE_HOME": str(self.folder)}, self.whole()
        chat = [common.program, "chat", self.model, "-q"]
        for words, stdin, part in (([], f"/save {lines}\n", "the history and /save"),
                                   (["--session", lines], "", "--session and the history")):
            result = subprocess.run([*chat, *words], input=stdin.encode(), capture_output=True, env=env,
                                    timeout=common.PATIENCE)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(f"is {part} at once", result.stderr.decode())
            self.assertEqual(self.whole(), before)

    def test_allowed(self):
        """What keeps nothing may be written twice; files that differ are made."""
        for trace, metrics in (("/dev/null", "/dev/null"), (self.path("a"), self.path("b"))):
            result = run("run", self.model, "hi", "-n", "1", "-q", "--trace", trace, "--metrics", metrics)
            self.assertEqual((result.returncode, result.stderr), (0, b""))

    def test_a_name_that_is_no_part_of_a_model(self):
        """A number of parts has five digits and no sign: what is no number does not become four billion names."""
        odd = self.path("m-00001-of--0001.gguf")
        os.link(self.model, odd)
        result = run("run", odd, "hi", "-n", "1", "-q", "--trace", self.path("new"))
        self.assertEqual((result.returncode, result.stderr), (0, b""))


if __name__ == "__main__":
    common.main("__main__")
