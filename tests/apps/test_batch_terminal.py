#!/usr/bin/env python3
"""runnel batch: its bar on a terminal, its figures elsewhere."""
import os
import pty
import subprocess
import unittest

import common
from batch_job import Job, story


class Terminal(unittest.TestCase):
    def on_terminal(self, job, *options, columns=80, later=None, term="xterm"):
        """What the job shows on a terminal; of another width once it has shown something, if `later` is given."""
        master, slave = pty.openpty()
        common.set_columns(slave, columns)
        process = common.popen(job.command(*options), stderr=slave, stdout=subprocess.DEVNULL,
                               env={**os.environ, "TERM": term})
        text = b""
        if later is not None:
            while text.count(b"\r") < 2 and process.poll() is None:
                text += os.read(master, 1)
            common.set_columns(master, later)
            text += b"\0"
        os.close(slave)
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:  # how a terminal ends
                break
            if not data:
                break
            text += data
        os.close(master)
        self.assertEqual(process.wait(common.PATIENCE), 0)
        return text.decode()

    def test_bar(self, n=80):
        lines = [story(i, 40) for i in range(n)]
        text = self.on_terminal(Job(lines, "--streams", "4"))
        if " left" not in text:  # all was done before there was anything to tell
            return self.test_bar(4 * n)
        self.assertRegex(text, r"\rbatch +\[#* *\] +\d+ %  \d+ lines, [\d.]+/s, \d+:\d\d:\d\d left")
        self.assertRegex(text, rf"\r\033\[Klines: {n}, {n} ok, 0 errors")
        self.assertEqual(self.on_terminal(Job(lines[:3]), "--quiet"), "")

    def redraws(self, text):
        return [part.replace("\033[K", "") for part in text.split("lines: ")[0].split("\r") if part]

    def test_width(self, n=80):
        """Each redraw fits in its line, so that the next one is drawn over it."""
        lines = [story(i, 40) for i in range(n)]
        for columns, later in ((80, None), (40, None), (12, None), (200, None), (80, 40)):
            text = self.on_terminal(Job(lines, "--streams", "4"), columns=columns, later=later)
            if " left" not in text and columns >= 40:  # all was done before there was anything to tell
                return self.test_width(4 * n)
            shown = [part for part in self.redraws(text.replace("\0", "")) if part]
            self.assertTrue(all(part.startswith(("batch", "loading")) for part in shown), shown)
            lengths = [len(part) for part in shown]
            self.assertLess(max(lengths), columns, shown)
            if later is None and columns != 40:  # there is room for the bar of "loading" alone
                self.assertEqual(any("[" in part for part in shown), columns > 40, shown)
            if later is not None:  # from some redraw on
                if lengths[-1] >= later:
                    return self.test_width(4 * n)
                first = next(i for i, length in enumerate(lengths) if length < later)
                self.assertLess(max(lengths[first:]), later, shown)

    def test_dumb(self):
        lines = [story(i) for i in range(3)]
        for term in ("dumb", ""):
            self.assertRegex(self.on_terminal(Job(lines), term=term), r"^lines: 3, 3 ok")

    def test_pipe(self):
        job = Job([story(0), "{"])
        text = job.run().stderr.decode()
        self.assertRegex(text, r"^lines: 2, 1 ok, 1 error\ntokens: \d+ of prompts \(\d+ cached\), 8 of answers\n"
                               r"time: [\d.]+ s, [\d.]+ lines/s, [\d.]+ tokens/s\n$")
        self.assertEqual(Job([story(0)]).run("-q").stderr, b"")


if __name__ == "__main__":
    common.main("__main__")
