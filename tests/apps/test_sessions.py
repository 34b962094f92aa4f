#!/usr/bin/env python3
"""runnel chat with conversations in files: each run a new process, and the text that of one that was never left."""
import json
import os
import pathlib
import re
import shutil
import tempfile
import unittest

import common
from common import MODEL, SHARED, run

OTHER = SHARED / "models/runnel-tiny-draft-Q8_0.gguf"
LINES = ["Hello", "What is 2 plus 3?", "Tell me a story about a boat.", "And then?"]


def chat(lines, *options, model=MODEL):
    return run("chat", model, "-n", "40", *options, stdin="".join(line + "\n" for line in lines).encode())


class Sessions(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="runnel-test-"))
        self.file = self.folder / "talk.session"

    def tearDown(self):
        shutil.rmtree(self.folder)

    def check_restarts(self, *options):
        whole = chat(LINES, *options)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        text = b""
        for line in LINES:
            one = chat([line], "--session", self.file, *options)
            self.assertEqual(one.returncode, 0, one.stderr)
            text += one.stdout
        self.assertEqual(text, whole.stdout)
        self.assertEqual(os.listdir(self.folder), ["talk.session"])

    def test_restarts(self):
        self.check_restarts()

    def test_restarts_sampled(self):
        self.check_restarts("--temperature", "0.9", "--seed", "5", "--top-p", "0.9", "--system", "You are a sailor.")

    def test_nothing_is_computed_twice(self):
        chat(LINES[:3], "--session", self.file)
        events = [json.loads(line) for line in chat(LINES[3:], "--session", self.file, "--json").stdout.splitlines()]
        usage = events[-1]["usage"]
        saved = re.search(r"loaded .*: (\d+) tokens, (\d+) of them computed",
                          chat([], "--session", self.file).stderr.decode())
        self.assertGreater(usage["cached_tokens"], 60)
        self.assertLess(usage["prompt_tokens"] - usage["cached_tokens"], 30)
        self.assertEqual(int(saved[1]), int(saved[2]) + 1)

    def test_another_format_is_computed(self):
        whole = chat(LINES, "--kv-type", "f32")
        chat(LINES[:2], "--session", self.file, "--kv-type", "f32")
        rest = chat(LINES[2:], "--session", self.file)
        self.assertIn(b", 0 of them computed", rest.stderr)
        self.assertEqual(rest.returncode, 0)
        self.assertEqual(len(rest.stdout.splitlines()), len(whole.stdout.splitlines()[2:]))

    def test_save_load_fork_back(self):
        save = [LINES[0], f"/save {self.file}", LINES[1], f"/load {self.file}", LINES[1], "/fork", LINES[2], "/back",
                LINES[2], "/back", "/load", "/load nosuch", LINES[3]]
        got = chat(save, "-q")
        answers = chat(LINES, "-q").stdout.splitlines()
        self.assertEqual(got.stdout.splitlines(), [answers[i] for i in (0, 1, 1, 2, 2, 3)])
        errors = got.stderr.decode().splitlines()
        self.assertEqual(len(errors), 3, errors)
        self.assertIn("nothing is set aside", errors[0])
        self.assertIn("/load needs a file: /load FILE", errors[1])
        self.assertIn("nosuch: No such file", errors[2])

    def test_nul(self):
        """Of the user's line, and of the answer: a kept conversation goes on behind either."""
        whole = chat(["a\0b", "Hello"])
        self.assertEqual(chat(["a\0b"], "--session", self.file).returncode, 0)
        rest = chat(["Hello"], "--session", self.file)
        self.assertEqual((rest.returncode, rest.stdout), (0, whole.stdout.splitlines(True)[-1]), rest.stderr)
        self.file.unlink()
        one = chat(["Hello", f"/save {self.file}", f"/load {self.file}"], "--regex", r"a\x00b")
        self.assertEqual((one.returncode, one.stdout), (0, b"a\0b\n"), one.stderr)
        self.assertIn(b"it holds 1 turn;", one.stderr)
        self.assertEqual(chat(["Hello"], "--session", self.file).returncode, 0)

    def test_links_and_pipes(self):
        """A link's target is replaced, also one that is not there yet; what is no regular file stays what it is."""
        link, pipe = self.folder / "link", self.folder / "pipe"
        link.symlink_to("talk.session")
        os.mkfifo(pipe)
        for line in LINES[:2]:
            self.assertEqual(chat([line], "--session", link).returncode, 0)
            self.assertTrue(link.is_symlink())
        self.assertIn(b"it holds 2 turns", chat([], "--session", self.file).stderr)
        done = chat([LINES[0], f"/save {pipe}", f"/save {self.folder}"], "-q")
        self.assertEqual(done.stderr.decode().splitlines(),
                         [f"runnel: {path}: not a regular file" for path in (pipe, self.folder)])
        self.assertTrue(pipe.is_fifo())
        self.assertEqual(sorted(os.listdir(self.folder)), ["link", "pipe", "talk.session"])

    def check_refused(self, model, what):
        before = self.file.read_bytes()
        result = chat(["Hello"], "--session", self.file, model=model)
        self.assertEqual((result.returncode, result.stdout), (1, b""))
        self.assertIn(what, result.stderr.decode())
        self.assertEqual(self.file.read_bytes(), before)

    def test_damaged(self):
        chat(["Hello"], "--session", self.file)
        good = bytearray(self.file.read_bytes())
        for at in (0, 8, 20, 100, 130, 200, len(good) // 2, len(good) - 1):
            bad = bytearray(good)
            bad[at] ^= 0x10
            self.file.write_bytes(bad)
            self.check_refused(MODEL, "talk.session")
        self.file.write_bytes(good[:-1])
        self.check_refused(MODEL, "not what its header says")
        self.file.write_bytes(b"")
        self.check_refused(MODEL, "ends too early")

    @unittest.skipUnless(OTHER.exists(), "there is only one model")
    def test_another_model(self):
        chat(["Hello"], "--session", self.file)
        self.check_refused(OTHER, "a session of another model")

    def test_no_place_for_it(self):
        """Told before there is a conversation."""
        (self.folder / "link").symlink_to("no/such/talk.session")
        for path in (self.folder / "no/such/talk.session", self.folder / "link", "", f"{self.folder}/new/"):
            result = chat(["Hello"], "--session", path)
            self.assertEqual((result.returncode, result.stdout), (1, b""), path)
            self.assertIn(f"--session {path}: nothing can be written there: No such file", result.stderr.decode())
        self.assertEqual(os.listdir(self.folder), ["link"])


if __name__ == "__main__":
    common.main(__name__)
