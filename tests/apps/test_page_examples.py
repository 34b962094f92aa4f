#!/usr/bin/env python3
"""The examples of pages are what the program says, and each option of a page's group in --help has one.

    test_page_examples.py RUNNEL             compares
    test_page_examples.py RUNNEL --update    writes the pages anew

A block behind `<!-- run -->` has commands behind "$ " (and "> " where they go on), each with its output. They run in
one folder with model.gguf and the files that the page's blocks behind `<!-- file: NAME -->` are. Each option changes
the output of one of its examples."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import common

PAGES = {"docs/GRAMMARS.md": "what the answer may be: docs/GRAMMARS.md:", "docs/SAMPLING.md": "sampling:"}
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```\n", re.DOTALL)
RUN = re.compile(r"<!-- run -->\n```\n(.*?)```\n", re.DOTALL)
OPTION = re.compile(r"^ +(?:(-.), )?(--[a-z-]+)( [A-Z]\S*)?", re.MULTILINE)
WORD = r"""(?:'[^']*'|"[^"]*"|[^\s'"])+"""
ONCE = os.environ.get("RUNNEL_EXAMPLES") == "once"  # sanitizers: each command runs once


def commands(block):
    """The lines of each command, without what it printed."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append([line])
        elif line.startswith("> ") and found and len(found[-1]) >= 1 and not found[-1][-1].startswith("|"):
            found[-1].append(line)
    return found


def text_of(lines):
    return "\n".join(line[2:] for line in lines)


def execute(text, folder):
    result = subprocess.run(["bash", "-c", text], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}, timeout=common.PATIENCE)
    printed = result.stdout.decode()
    return printed if printed.endswith("\n") or not printed else printed + "\n", result.stderr.decode()


def output(lines, folder):
    printed, complaint = execute(text_of(lines), folder)
    if complaint:
        raise AssertionError(f"{text_of(lines)}: {complaint}")
    return printed


def render(block, folder):
    body = "".join("\n".join(lines) + "\n" + output(lines, folder) for lines in commands(block))
    return f"<!-- run -->\n```\n{body}```\n"


def options_of(command, heading):
    """(letter or "", name, has it a value) of the options below a heading of --help."""
    text = common.run(command, "--help").stdout.decode()
    group = text[text.index("\n" + heading) + 1:].split("\n\n")[0]
    return [(letter, name, bool(value)) for letter, name, value in OPTION.findall(group)]


def without(text, letter, name, value):
    """The command without an option, all of them where it is repeated."""
    names = "|".join(re.escape(one) for one in (letter, name) if one)
    return re.sub(rf"\s(?:{names})" + (rf"\s+{WORD}" if value else r"(?=\s|$)"), "", text)


def lay_out(page):
    """A folder in which the page's commands can run."""
    folder = tempfile.TemporaryDirectory()
    where = pathlib.Path(folder.name)
    (where / "model.gguf").symlink_to(common.MODEL)
    (where / "runnel").symlink_to(pathlib.Path(common.program or sys.argv[1]).resolve())
    for name, text in FILE.findall(page):
        (where / name).write_text(text)
    return folder


class Pages(unittest.TestCase):
    maxDiff = None

    def test_examples(self):
        for path in PAGES:
            page = (common.ROOT / path).read_text()
            with self.subTest(page=path), lay_out(page) as folder:
                self.assertGreater(len(RUN.findall(page)), 6)
                for block in RUN.findall(page):
                    self.assertEqual(f"<!-- run -->\n```\n{block}```\n", render(block, folder))

    def test_each_option_has_one(self):
        for path, heading in PAGES.items():
            shown = "\n".join(RUN.findall((common.ROOT / path).read_text()))
            for command in ("run", "chat"):
                options = options_of(command, heading)
                self.assertGreater(len(options), 13)
                for letter, name, _ in options:
                    names = "|".join(re.escape(one) for one in (letter, name) if one)
                    self.assertRegex(shown, rf"(?<=\s)({names})\s", f"{path}: {name}")

    @unittest.skipIf(ONCE, "each command runs once")
    def test_each_option_shows_something(self):
        for path, heading in PAGES.items():
            page = (common.ROOT / path).read_text()
            options = sorted({*options_of("run", heading), *options_of("chat", heading)})
            with lay_out(page) as folder:
                texts = [text_of(lines) for block in RUN.findall(page) for lines in commands(block)]
                for option in options:
                    pairs = [(text, without(text, *option)) for text in texts]
                    shown = any(execute(shorter, folder)[0] != execute(text, folder)[0]
                                for text, shorter in pairs if shorter != text)
                    self.assertTrue(shown, f"{path}: {option[1]} changes nothing in its examples")


if __name__ == "__main__":
    if sys.argv[2:] == ["--update"]:
        for path in PAGES:
            page = (common.ROOT / path).read_text()
            with lay_out(page) as folder:
                (common.ROOT / path).write_text(RUN.sub(lambda found: render(found[1], folder), page))
    else:
        common.main("__main__")
