#!/usr/bin/env python3
"""The manual pages and the help have the same commands, options and words, librunnel(3) has each function of the
headers; groff finds nothing wrong with them. RUNNEL_LIBRUNNEL_MANUAL is where the build has librunnel(3)."""
import os
import pathlib
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

    def test_a_page_of_a_command(self):
        for name, section in self.sections().items():
            page = run("--manual", name).stdout.decode()
            with self.subTest(command=name):
                self.assertTrue(page.startswith(f".TH RUNNEL\\-{name.upper()} 1 "), page[:80])
                options = r"(?m)^\.TP\n(\S*\\fB(?:\\-\w\\fR, \\fB)?\\-\\-.*)\n(.*)$"
                self.assertEqual(re.findall(options, page), re.findall(options, section))
                for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES"):
                    self.assertIn(f".SH {heading}\n", page)
        result = run("--manual", "nothing")
        self.assertEqual((result.returncode, result.stdout), (2, b""))

    def test_routes(self):
        page = run("--manual", "serve").stdout.decode()
        table = (common.ROOT / "apps/serve/routes.c").read_text()
        told = set(re.findall(r"(?m)^\\fB(?:GET|POST|DELETE) (\S+)\\fR$", page.replace(r"\-", "-")))
        self.assertEqual(told, set(re.findall(r'\{"(?:GET|POST|DELETE)",\s*"(/[^"]*)"', table)) - {"/page/"})

    def drawn(self, page):
        """As groff draws it, without warnings; hyphenated words whole."""
        if shutil.which("groff") is None:
            self.skipTest("groff is not here")
        result = subprocess.run(["groff", "-K", "utf8", "-man", "-Tutf8", "-ww", "-rHY=0"], input=page.encode(),
                                capture_output=True, timeout=common.PATIENCE)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        text = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", result.stdout.decode())
        return text.replace("\u2212", "-").replace("\u2010", "-")

    def test_groff(self):
        text = self.drawn(self.page)
        self.assertIn("runnel batch", text)
        self.assertIn("--log-level", text)
        self.assertIn("/v1/chat/completions", self.drawn(run("--manual", "serve").stdout.decode()))

    def test_the_library(self):
        path = os.environ.get("RUNNEL_LIBRUNNEL_MANUAL")
        if path is None:
            self.skipTest("RUNNEL_LIBRUNNEL_MANUAL is not set")
        text = self.drawn(pathlib.Path(path).read_text())
        headers = "".join(h.read_text() for h in sorted((common.ROOT / "include").glob("runnel*.h")))
        functions = re.findall(r"RUNNEL_API [^;(]*?(runnel_\w+)\(", headers)
        self.assertGreater(len(functions), 80)
        for name in functions:
            self.assertRegex(text, rf"\b{name}\(")
        for comment in re.findall(r"(?s)\n/\* ((?:(?!\*/).)*?)\*/\n(?:RUNNEL_API|typedef)", headers):
            words = re.sub(r"\n \* ?", " ", comment).split()[:6]
            self.assertIn(" ".join(words), " ".join(text.split()))


if __name__ == "__main__":
    common.main("__main__")
