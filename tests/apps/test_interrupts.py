#!/usr/bin/env python3
"""Ctrl-C in commands that work off many short texts: what has come stays, nothing vanishes, and the exit code says that
it is not all. A pipe that holds next to nothing keeps them from ending before the signal."""
import fcntl
import json
import mmap
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import common
from batch_job import story
from common import MODEL, run

PAGE = mmap.PAGESIZE  # the least that a pipe holds
LINES = 20000  # texts of which each takes next to no time


def begin(*args):
    """The program with a small pipe behind it, when its first output has come; and that byte."""
    process = common.popen([common.program, *map(str, args), "-q"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
    fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, PAGE)
    return process, os.read(process.stdout.fileno(), 1)


class Interrupts(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def lines(self, n=LINES):
        path = self.folder / f"lines{n}"
        path.write_text("".join(f"a line of text, number {i}\n" for i in range(n)))
        return path

    def interrupt(self, process):
        """(exit code, standard output, standard error) behind a signal."""
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=common.PATIENCE)
        return process.returncode, out, err

    def beginning(self, process, first, *args):
        """Runs it to its end behind a signal: what came is what the same command says of as many texts."""
        code, out, err = self.interrupt(process)
        rows = (first + out).splitlines(keepends=True)
        self.assertEqual((code, err), (130, b""))
        self.assertTrue(0 < len(rows) < LINES, len(rows))
        self.assertEqual(b"".join(rows), run(*args, "-f", self.lines(len(rows)), "-q").stdout)

    def test_embed(self):
        self.beginning(*begin("embed", MODEL, "-f", self.lines()), "embed", MODEL)

    def test_embed_json(self):
        process, first = begin("embed", MODEL, "-f", self.lines(), "--json")
        code, out, err = self.interrupt(process)
        told = json.loads(first + out)
        self.assertEqual((code, err, told["error"]), (130, b"", {"message": "cancelled"}))
        self.assertNotIn("usage", told)
        n = len(told["data"])
        self.assertTrue(n < LINES, n)
        whole = json.loads(run("embed", MODEL, "-f", self.lines(n), "--json", "-q").stdout) if n > 0 else {"data": []}
        self.assertEqual(told["data"], whole["data"])

    def test_score(self):
        model = self.folder / "ranker.gguf"
        subprocess.run([os.environ["RUNNEL_MAKE_RANKER"], MODEL, model, "bare"], check=True)
        args = "score", model, "--query", "who"
        self.beginning(*begin(*args, "-f", self.lines()), *args)

    def test_warm(self):
        """It has no output before its end: the signal comes when it is first listened to."""
        process = common.popen([common.program, "cache", "warm", MODEL, str(self.lines()), "--cache-dir",
                                str(self.folder / "cache"), "--json", "-q"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        while process.poll() is None and not common.catches(process, signal.SIGINT):
            time.sleep(0.001)
        code, out, err = self.interrupt(process)
        told = json.loads(out)
        self.assertEqual((code, err, told["cancelled"], told["failed"]), (130, b"", True, 0))
        self.assertLess(told["prompts"], LINES)

    def test_lines_of_a_batch_are_awaited(self):
        """Also in the middle of a line, which is none then."""
        for options, complete in ((["-"], story(1, 2)), (["--check"], "no object")):
            with self.subTest(options=options):
                process = common.popen([common.program, "batch", MODEL, "-", *options, "-q"], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                process.stdin.write(complete.encode() + b"\n" + story(2).encode()[:20])
                process.stdin.flush()
                self.assertTrue(process.stdout.readline().endswith(b"\n"))
                process.send_signal(signal.SIGINT)
                self.assertEqual(process.wait(common.PATIENCE), 130)
                self.assertEqual((process.stdout.read(), process.stderr.read()), (b"", b""))
                for end in process.stdin, process.stdout, process.stderr:
                    end.close()


if __name__ == "__main__":
    common.main("__main__")
