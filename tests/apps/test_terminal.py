#!/usr/bin/env python3
"""The program on a pseudo-terminal: the line editor of chat, Ctrl-C in its three meanings, progress bars."""
import json
import os
import pathlib
import signal
import tempfile
import termios
import unittest

import common
from common import MODEL, run
from terminal import CTRL_C, CTRL_D, Terminal, need_terminals

class Chat(unittest.TestCase):
    def setUp(self):
        self.terminal = Terminal("chat", MODEL, "-n", "40")
        self.terminal.wait_for_prompt()

    def ask(self, text):
        self.terminal.type(text)
        answer = self.terminal.wait_for(b"answer: ")
        self.terminal.wait_for_prompt()
        return answer

    def test_greeting_and_help(self):
        self.assertIn(b"runnel-tiny-Q8_0.gguf; /help tells", self.terminal.seen)
        self.terminal.type(b"/help\r")
        self.terminal.wait_for(b"/load FILE")
        self.terminal.wait_for_prompt()
        self.terminal.type(b"/bye\r")
        self.assertEqual(self.terminal.end(), 0)

    def test_answers_and_ctrl_d(self):
        want = run("chat", MODEL, "-n", "40", stdin=b"Hello\n").stdout.rstrip(b"\n")
        self.assertIn(want, self.ask(b"Hello\r"))
        self.terminal.type(b"/clear\r")
        self.terminal.wait_for(b"/clear\r\n")
        self.terminal.wait_for_prompt()
        self.assertIn(want, self.ask(b"Hello\r"))
        self.terminal.type(CTRL_D)
        self.assertEqual(self.terminal.end(), 0)

    def test_several_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "talk")
            for typed, said in ((b"One\\\rtwo\\\rthree\r", rb"One\ntwo\nthree"), (b'"""\rfour\r/five\r\rsix\r"""\r',
                                                                                     rb"four\n/five\n\nsix")):
                self.terminal.type(typed)
                self.terminal.wait_for(b"answer: ")
                self.terminal.wait_for_prompt()
                self.terminal.type(f"/save {path}\r".encode())
                self.terminal.wait_for(b"saved")
                self.terminal.wait_for_prompt()
                self.assertIn(b'"content":"' + said + b'"', pathlib.Path(path).read_bytes())
        self.terminal.type(b"/exit\r")
        self.assertEqual(self.terminal.end(), 0)

    def test_history(self):
        want = run("chat", MODEL, "-n", "40", stdin=b"Hello\n").stdout.rstrip(b"\n")
        self.ask(b"Hello\r")
        self.terminal.type(b"/clear\r")
        self.terminal.wait_for(b"/clear\r\n")
        self.terminal.wait_for_prompt()
        self.assertIn(want, self.ask(b"\x1b[A\x1b[A\r"))  # the line before the last
        self.terminal.type(b"/exit\r")
        self.assertEqual(self.terminal.end(), 0)

    def test_ctrl_c_drops_the_line(self):
        want = run("chat", MODEL, "-n", "40", stdin=b"Hello\n").stdout.rstrip(b"\n")
        self.assertIn(want, self.ask(b"some nonsense" + CTRL_C + b"Hello\r"))
        self.terminal.type(b"/exit\r")
        self.assertEqual(self.terminal.end(), 0)

    def test_terminal_is_left_as_found(self):
        self.terminal.type(b"/exit\r")
        flags = None
        try:
            while True:
                flags = termios.tcgetattr(self.terminal.fd)
                if not self.terminal.read_some(common.PATIENCE):
                    break
        except termios.error:
            pass
        self.assertEqual(self.terminal.end(), 0)
        self.assertTrue(flags[3] & termios.ICANON and flags[3] & termios.ECHO and flags[3] & termios.ISIG)


# An answer longer than what a terminal holds that nobody reads: it cannot end before a Ctrl-C has come.
ENDLESS = ["--ignore-eos", "--reference", "--ctx", "60000"]


class Interrupts(unittest.TestCase):
    def test_ctrl_c_stops_the_answer_only(self):
        terminal = Terminal("chat", MODEL, *ENDLESS, "--logit-bias", "2047=-inf")
        terminal.wait_for_prompt()
        for _ in range(3):
            terminal.type(b"Tell me a story\r")
            terminal.wait_for(b"story\r\n")
            for _ in range(12):
                terminal.wait_for(b" ")
            terminal.type(CTRL_C)
            terminal.wait_for(b"answer: ")
            terminal.wait_for_prompt()
        terminal.type(b"/exit\r")
        self.assertEqual(terminal.end(), 0)

    def test_ctrl_c_stops_run(self):
        terminal = Terminal("run", MODEL, "-p", "Once upon a time", *ENDLESS)
        terminal.wait_for(b" lived near")
        terminal.type(CTRL_C)
        self.assertEqual(terminal.end(), 130)
        self.assertIn(b"answer: ", terminal.seen)

    def test_run_without_a_reader_of_signals(self):
        terminal = Terminal("run", MODEL, "-f", "-")  # waits for a text, or will
        terminal.type(CTRL_C)
        self.assertEqual(terminal.end(), -signal.SIGINT)

    def test_progress_stays_off_the_text(self):
        terminal = Terminal("run", MODEL, "-p", "Once upon a time", "-n", "10")
        self.assertEqual(terminal.end(), 0)
        text = run("run", MODEL, "-p", "Once upon a time", "-n", "10", "-q").stdout
        self.assertIn(b"\x1b[K" + text + b"\r\n", terminal.seen)
        quiet = Terminal("run", MODEL, "-p", "Once upon a time", "-n", "10", "-q")
        self.assertEqual(quiet.end(), 0)
        self.assertEqual(quiet.seen, text + b"\r\n")


class Controls(unittest.TestCase):
    """Control characters of an answer are shown on a terminal, and go through a pipe as they are."""
    TEXT = "a\x1b[31mb\tc\r\x9b1m\x7f\né"
    SHOWN = "a^[[31mb\tc^M<U+009B>1m^?\r\né".encode()  # the terminal makes \r\n of a newline

    def test_run(self):
        choose = "run", MODEL, "Hi", "-q", "--choice", self.TEXT
        self.assertEqual(run(*choose).stdout, self.TEXT.encode())
        told = run(*choose, "--json").stdout
        self.assertEqual("".join(json.loads(line).get("text", "") for line in told.splitlines()), self.TEXT)
        self.assertFalse({0x1b, 0x9b, 0x7f} & set(told))
        for more in (), ("--n", "2"):
            terminal = Terminal(*choose, *more)
            self.assertEqual(terminal.end(), 0)
            self.assertEqual(terminal.seen.count(self.SHOWN), 1 + len(more) // 2, terminal.seen)
            self.assertNotIn(b"\x1b", terminal.seen)

    def test_chat(self):
        choose = "chat", MODEL, "-q", "--choice", self.TEXT
        self.assertEqual(run(*choose, stdin=b"Hi\n").stdout, self.TEXT.encode() + b"\n")
        terminal = Terminal(*choose)
        terminal.wait_for_prompt()
        terminal.type(b"Hi\r")
        terminal.wait_for(self.SHOWN)
        terminal.wait_for_prompt()
        terminal.type(CTRL_D)
        self.assertEqual(terminal.end(), 0)

    def test_template_and_messages(self):
        with tempfile.NamedTemporaryFile(suffix=".jinja") as file, tempfile.NamedTemporaryFile() as context:
            file.write(self.TEXT.encode() + b"{{ x }}")
            context.write(b"{}")
            file.flush(), context.flush()
            args = "template", "--file", file.name, "--context", context.name
            self.assertEqual(run(*args).stdout, self.TEXT.replace("\r", "\n").encode())  # as Jinja does
            terminal = Terminal(*args)
            self.assertEqual(terminal.end(), 0)
            self.assertEqual(terminal.seen, self.SHOWN.replace(b"^M", b"\r\n"))
        self.assertIn("'a^[[31m' is not a command".encode(), run("a\x1b[31m").stderr)


class Locale(unittest.TestCase):
    def test_utf8_without_a_locale(self):
        """What is typed comes whole, at any width, whatever the environment says."""
        kept = {name: os.environ[name] for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS") if name in os.environ}
        for columns, env in ((80, {}), (40, {"LC_ALL": "POSIX"})):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "talk")
                terminal = Terminal("chat", MODEL, "-n", "3", "--session", path, columns=columns, env={**kept, **env})
                terminal.wait_for_prompt()
                terminal.type("Zoë says 你好 🦉 to everyone who is here with her\r".encode())
                terminal.wait_for(b"answer: ")
                terminal.wait_for_prompt()
                terminal.type(CTRL_D)
                self.assertEqual(terminal.end(), 0)
                self.assertIn("Zoë says 你好 🦉 to everyone".encode(), pathlib.Path(path).read_bytes())

    def test_colours(self):
        for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
            terminal = Terminal("tokenize", MODEL, "-p", "Once upon", "--show", "-q", env={**os.environ, **env})
            self.assertEqual(terminal.end(), 0)
            self.assertEqual(b"\x1b[4" in terminal.seen, coloured)


class Bars(unittest.TestCase):
    def test_a_training_fits(self):
        """Each redraw fits in its line, so that the next one is drawn over it."""
        for columns in 80, 40:
            with tempfile.TemporaryDirectory() as folder:
                corpus = os.path.join(folder, "corpus")
                pathlib.Path(corpus).write_text("Once upon a time there was a fox. " * 80)
                terminal = Terminal("eagle-train", MODEL, corpus, "-o", os.path.join(folder, "head"), "--steps", "2",
                                    "--text-tokens", "16", "--unroll", "1", columns=columns)
                self.assertEqual(terminal.end(), 0, terminal.seen)
            shown = [row.replace(b"\x1b[K", b"") for row in terminal.seen.split(b"\r") if b"\n" not in row]
            self.assertTrue(any(row.startswith(b"training") and b"100 %" in row for row in shown), terminal.seen)
            self.assertLess(max(map(len, shown)), columns, shown)


class HangUp(unittest.TestCase):
    """The terminal goes: what was said is kept."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "talk")

    def talk(self, *options):
        terminal = Terminal("chat", MODEL, "--session", self.path, *options)
        terminal.wait_for_prompt()
        terminal.type(b"Hello there\r")
        return terminal

    def check(self, terminal):
        code = os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1])
        self.assertGreaterEqual(code, 0)  # no signal ended it
        self.assertIn(b"Hello there", pathlib.Path(self.path).read_bytes())
        again = Terminal("chat", MODEL, "-n", "5", "--session", self.path)
        again.wait_for(b"loaded")
        again.wait_for_prompt()
        again.type(CTRL_D)
        self.assertEqual(again.end(), 0)

    def test_at_the_prompt(self):
        terminal = self.talk("-n", "5")
        terminal.wait_for(b"answer: ")
        terminal.wait_for_prompt()
        os.kill(terminal.pid, signal.SIGHUP)
        self.check(terminal)
        os.close(terminal.fd)

    def test_sigterm_at_the_prompt(self):
        terminal = self.talk("-n", "5")
        terminal.wait_for(b"answer: ")
        terminal.wait_for_prompt()
        os.kill(terminal.pid, signal.SIGTERM)
        self.check(terminal)
        os.close(terminal.fd)

    def test_the_terminal_closes(self):
        terminal = self.talk("-n", "5")
        terminal.wait_for(b"answer: ")
        terminal.wait_for_prompt()
        os.close(terminal.fd)
        self.check(terminal)

    def test_in_an_answer(self):
        terminal = self.talk(*ENDLESS, "--logit-bias", "2047=-inf")
        terminal.wait_for(b"there\r\n")
        terminal.wait_for(b" ")
        os.close(terminal.fd)
        self.check(terminal)


if __name__ == "__main__":
    need_terminals()
    common.main("__main__")
