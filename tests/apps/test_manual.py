#!/usr/bin/env python3
"""The manual page and the help have the same commands, options and words; groff finds nothing wrong with the page."""
import re
import shutil
import subprocess
import unittest

import common
from common import run


def plain(text):
    """A line of roff as it is read."""
    return re.sub(r"\\f[BIR]", "", text).replace(r"\-", "-").replace(r"\&", "").replace(r"\e", "\\")


class Manual(unittest.TestCase):
    def setUp(self):
        result = run("--manual")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.page = result.stdout.decode()

    def sections(self):
        parts = re.split(r"(?m)^\.SH RUNNEL (\S+)\n", self.page)
        return dict(zip(parts[1::2], parts[2::2]))

    def test_commands(self):
        listed = re.findall(r"(?m)^  ([a-z-]+) {2,}(.*)$", run("--help").stdout.decode().split("usage:")[1])
        listed = [(name, summary) for name, summary in listed if name != "runnel"]
        self.assertGreater(len(listed), 10)
        self.assertEqual(list(self.sections()), [name for name, _ in listed])
        described = re.findall(r"(?m)^\.TP\n\.B ([a-z-]+)\n(.*)$", self.page)
        self.assertEqual([(name, plain(text)) for name, text in described], listed)

    def test_options(self):
        for name, section in self.sections().items():
            told = run(name, "--help").stdout.decode()
            want = re.findall(r"(?m)^  (?:(-\w), |    )(--[\w-]+) ?(\S*) +(\S.*)$", told)
            got = [(*re.fullmatch(r"(?:(-\w), )?(--[\w-]+) ?(\S*)", plain(head)).groups(default=""), plain(text))
                   for head, text in re.findall(r"(?m)^\.TP\n(.*)\n(.*)$", section)]
            with self.subTest(command=name):
                self.assertGreater(len(want), 1)
                self.assertEqual(got, want)

    def test_groff(self):
        if shutil.which("groff") is None:
            self.skipTest("groff is not here")
        result = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=self.page.encode(), capture_output=True,
                                timeout=common.PATIENCE)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        text = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", result.stdout.decode())
        text = text.replace("\u2212", "-").replace("\u2010", "-")
        self.assertIn("runnel batch", text)
        self.assertIn("--log-level", text)


if __name__ == "__main__":
    common.main("__main__")
