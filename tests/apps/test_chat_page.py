#!/usr/bin/env python3
"""The examples of docs/CHAT.md are what the program says, and each command of /help has one. Each token of their
answers is likelier than any other by a factor of 20: arithmetic of another processor does not change them.

    test_chat_page.py RUNNEL             compares
    test_chat_page.py RUNNEL --update    writes the page anew

An example is a block behind a line `<!-- chat: OPTIONS -->`. What is typed stands behind "> "; a block whose options
begin with EDITOR=COMMAND is typed on a terminal, and must hold each line that comes. All blocks share a folder with
model.gguf."""
import os
import pathlib
import re
import shlex
import sys
import tempfile
import unittest

import common
from terminal import CTRL_D, Terminal, need_terminals

PAGE = common.ROOT / "docs/CHAT.md"
BLOCK = re.compile(r"<!-- chat:(.*?) -->\n```\n(.*?)```\n", re.DOTALL)
GREEDY = ["--temperature", "0", "-n", "16"]


def parse(text):
    """[(what is typed, the lines that follow)]"""
    turns = []
    for line in text.splitlines():
        if line.startswith("> "):
            turns.append((line[2:], []))
        else:
            turns[-1][1].append(line)
    return turns


def piped(options, typed):
    """What comes after each line: the same run once more with one line more."""
    seen, answers = "", []
    for n in range(1, len(typed) + 1):
        result = common.run("chat", "model.gguf", *GREEDY, *options, "--no-history", merged=True,
                            stdin="".join(line + "\n" for line in typed[:n]).encode())
        text = result.stdout.decode()
        if not text.startswith(seen):
            raise AssertionError(f"{typed[:n]}: {text!r} does not begin with {seen!r}")
        answers.append(text[len(seen):].splitlines())
        seen = text
    return answers


def on_terminal(options, typed, editor):
    terminal = Terminal("chat", "model.gguf", *GREEDY, *options, "--no-history", "-q",
                        env={**os.environ, "EDITOR": editor})
    answers = []
    terminal.wait_for_prompt()
    for line in typed:
        terminal.type(line.encode() + b"\r")
        terminal.wait_for(line[-8:].encode())
        begin = terminal.at
        terminal.wait_for_prompt()
        shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.seen[begin:terminal.at].decode())
        answers.append([row.strip() for row in shown.replace("\r", "\n").split("\n") if row.strip(" >")])
    terminal.type(CTRL_D)
    terminal.end()
    return answers


def answers_of(marker, typed):
    options = shlex.split(marker)
    if options and options[0].startswith("EDITOR="):
        return on_terminal(options[1:], typed, options[0].partition("=")[2])
    return piped(options, typed)


def render(marker, text):
    typed = [line for line, _ in parse(text)]
    rows = [row for line, answer in zip(typed, answers_of(marker, typed)) for row in (f"> {line}", *answer)]
    return f"<!-- chat:{marker} -->\n```\n" + "".join(row + "\n" for row in rows) + "```\n"


class Page(unittest.TestCase):
    maxDiff = None

    def test_examples(self):
        page = PAGE.read_text()
        self.assertGreater(len(BLOCK.findall(page)), 3)
        for marker, text in BLOCK.findall(page):
            self.assertEqual(f"<!-- chat:{marker} -->\n```\n{text}```\n", render(marker, text))

    def test_each_command_has_one(self):
        help_text = common.run("chat", "model.gguf", stdin=b"/help\n").stderr.decode()
        commands = set(re.findall(r"^  (/[a-z]+)", help_text, re.MULTILINE))
        self.assertGreater(len(commands), 12)
        typed = {line.split()[0] for _, text in BLOCK.findall(PAGE.read_text()) for line, _ in parse(text)}
        self.assertEqual(commands - typed, {"/help"})


if __name__ == "__main__":
    need_terminals()
    folder = tempfile.TemporaryDirectory()
    common.program = os.path.abspath(sys.argv[1])
    os.chdir(folder.name)
    os.symlink(common.MODEL, "model.gguf")
    pathlib.Path("facts.txt").write_text("The owl has 2 hens.\n")
    if "--update" in sys.argv:
        PAGE.write_text(BLOCK.sub(lambda block: render(*block.groups()), PAGE.read_text()))
        sys.exit(0)
    sys.argv[1] = common.program
    common.main("__main__")
