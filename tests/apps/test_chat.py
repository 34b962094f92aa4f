#!/usr/bin/env python3
"""runnel chat: its commands, its input of several lines, its history and its sampling, on a pseudo-terminal and off
one. The judge is `run` with the prompt that the template makes, and what --session and /save write."""
import json
import os
import pathlib
import re
import signal
import stat
import tempfile
import unittest

import common
from batch_job import CALLING, TOOL
from common import MODEL, run
from terminal import CTRL_D, Terminal, need_terminals

GREEDY = ["-n", "12", "--temperature", "0"]


def chat(*options, lines, model=MODEL):
    return run("chat", model, *options, stdin="".join(line + "\n" for line in lines).encode())


def messages(path):
    """What a session's file says was said: [(role, content)]."""
    data = pathlib.Path(path).read_bytes()
    found = max(re.findall(rb"\[\{\"role\":.*?\}\](?=[^,\]]|$)", data, re.DOTALL), key=len)
    return [(m["role"], m["content"]) for m in json.loads(found)]


def answer_to(*turns, system=None, options=()):
    """The greedy answer to the last of these turns, by run: turns alternate between user and assistant."""
    prompt = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    for i, turn in enumerate(turns):
        prompt += f"<|im_start|>{'assistant' if i % 2 else 'user'}\n{turn}<|im_end|>\n"
    return run("run", MODEL, "--special", "-q", "-n", "12", "--stop", "<|im_end|>", *options, "-p",
               prompt + "<|im_start|>assistant\n").stdout.decode()


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.kept = os.path.join(self.folder, "talk")

    def path(self, name, data):
        path = pathlib.Path(self.folder, name)
        path.write_bytes(data)
        return str(path)


class Commands(Folder):
    def said(self, *lines, options=()):
        """The messages of a conversation after these lines, and the run."""
        result = chat(*GREEDY, *options, lines=[*lines, f"/save {self.kept}"])
        return messages(self.kept), result

    def complaint(self, *lines):
        """What is said about the last of these lines."""
        err = chat(*GREEDY, "-q", lines=lines).stderr.decode()
        self.assertIn("runnel: ", err)
        return err.strip().splitlines()[-1]

    def test_system(self):
        said, result = self.said("/system Be kind.", "Hello")
        self.assertEqual(said[:2], [("system", "Be kind."), ("user", "Hello")])
        self.assertEqual(result.stdout.decode().splitlines()[0], answer_to("Hello", system="Be kind."))
        said, result = self.said("/system Be kind.", "/system", '/system ""', "Hello", options=["--system", "First."])
        self.assertEqual(said[0], ("user", "Hello"))
        self.assertIn("Be kind.\n", result.stderr.decode())
        said, _ = self.said("/system Two.", "Hello", "/clear", "Hello")
        self.assertEqual(said[:2], [("system", "Two."), ("user", "Hello")])

    def test_system_of_another_conversation(self):
        """The one that comes from a file, or back, has its own system message: /system shows it, /clear leaves it."""
        with_one, without = os.path.join(self.folder, "with"), os.path.join(self.folder, "without")
        chat(*GREEDY, "--system", "Be kind.", lines=["Hello", f"/save {with_one}"])
        chat(*GREEDY, lines=["Hello", f"/save {without}"])
        for options, lines in (([], [f"/load {with_one}"]), (["--session", with_one], [])):
            said, result = self.said(*lines, "/system", "/clear", "Hello", options=options)
            self.assertEqual(said[:2], [("system", "Be kind."), ("user", "Hello")])
            self.assertEqual(result.stderr.decode().splitlines().count("Be kind."), 1)
            self.assertNotIn("warning", result.stderr.decode())
        for lines in ([f"/load {without}"], ['/system ""', "/fork", "/system Be brief.", "/back"]):
            said, result = self.said(*lines, "/system", "/clear", "Hello", options=["--system", "First."])
            self.assertEqual(said[0], ("user", "Hello"))
            self.assertIn("there is no system message\n", result.stderr.decode())
        said, _ = self.said("/fork", "/system Be brief.", "/back", "/clear", "Hello", options=["--system", "First."])
        self.assertEqual(said[0], ("system", "First."))
        for kept, words in ((with_one, "its own system message"), (without, "no system message")):
            result = chat("--session", kept, "--system", "Other.", lines=["/exit"])
            self.assertIn(f"--system is not used: the conversation in {kept} has {words}", result.stderr.decode())

    def test_regen(self):
        said, result = self.said("Hello", "/regen", "/regen")
        answers = result.stdout.decode().splitlines()
        self.assertEqual(answers, [answer_to("Hello")] * 3)
        self.assertEqual(said, [("user", "Hello"), ("assistant", answers[0])])
        self.assertIn("the same answer comes", result.stderr.decode())
        warm = chat("-n", "12", "--temperature", "5", lines=["Hello", "/regen"]).stdout.decode().splitlines()
        other = chat("-n", "12", "--temperature", "5", lines=["Hello", "/regen"]).stdout.decode().splitlines()
        self.assertNotEqual(warm[0], warm[1])
        self.assertEqual(warm, other)
        self.assertIn("no message to answer", self.complaint("/regen"))

    def test_set(self):
        lines = ["/set temperature 0", "Hello", "/set temperature", "/set top_k=7", "/set", "/set --ignore-eos on"]
        result = chat("-n", "12", "--temperature", "2", lines=lines)
        self.assertEqual(result.stdout.decode().splitlines(), [answer_to("Hello")])
        err = result.stderr.decode()
        self.assertIn("temperature is 0", err)
        self.assertRegex(err, r"(?m)^  top-k +7$")
        self.assertEqual(result.returncode, 0, err)
        self.assertIn("did you mean temperature", self.complaint("/set temperatur 1"))
        listed = re.findall(r"(?m)^  ([a-z][a-z-]+) +\S+$", err)
        self.assertEqual(len(listed), len(set(listed)), listed)
        self.assertIn("mirostat", listed)
        self.assertTrue(self.complaint("/set xyzzyxyzzy 1").rstrip().endswith("there are " + ", ".join(listed)))
        self.assertIn("/set temperature", self.complaint("/set temperature hot"))
        self.assertIn("on or off", self.complaint("/set ignore-eos maybe"))

    def test_set_what_goes_together(self):
        err = chat("--ctx", "200", lines=["/set context-keep", "/set context-keep 100", "/set context-keep",
                                          "/set context-keep 101", "/set context-keep -1", "/set context-keep x",
                                          "/set context-keep off", "/set context-keep"]).stderr.decode().splitlines()
        self.assertEqual([line.split(":")[0] for line in err if line.startswith("context-keep is")],
                         [f"context-keep is {value}" for value in ("off", 100, "off")])
        self.assertEqual([line for line in err if "not allowed" in line],
                         ["runnel: /set context-keep 101 is not allowed: half of the context, 100 tokens, is the most",
                          "runnel: /set context-keep '-1' is not allowed: it takes a number of tokens, or off",
                          "runnel: /set context-keep 'x' is not allowed: it takes a number of tokens, or off"])
        result = chat("--ctx", "200", "--context-keep", "101", lines=["Hello"])
        self.assertEqual((result.returncode, result.stdout), (2, b""))
        self.assertIn("--context-keep 101 is not allowed", result.stderr.decode())
        err = chat(*GREEDY, lines=["/set json-object on", "/set json-value on", "/set json-value",
                                   "/set json-object off", "/set json-value on", "/set json-value"]).stderr.decode()
        self.assertEqual(err.count("--json-object and --json-value exclude each other"), 1)
        self.assertEqual(re.findall(r"json-value is (\w+)", err), ["off", "on"])

    def test_show_and_tokens(self):
        result = chat(*GREEDY, "--ctx", "200", "-q", lines=["/tokens", "Hello", "/tokens", "/show"])
        err = result.stderr.decode()
        first, second = re.findall(r"(\d+) of 200 tokens used, (\d+) free", err)
        used = len(run("tokenize", MODEL, "--special", "--bos", "--ids", "-p",
                       "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
                       + answer_to("Hello") + "<|im_end|>\n").stdout.split())
        self.assertEqual((first, second), (("0", "200"), (str(used), str(200 - used))))
        for text in ("model     ", "template  ", "sampling  temperature 0", "session   1 turn, 2 messages",
                     f"context   {used} of 200 tokens used"):
            self.assertIn(text, err)

    def test_read(self):
        path = self.path("notes.txt", "Zoë was here.\nTwice.\n\n".encode())
        said, result = self.said(f"/read {path}", f"/read {path}", "Who was here?", "Hello")
        text = "Zoë was here.\nTwice.\n\n"
        self.assertEqual(said[0], ("user", text + text + "Who was here?"))
        self.assertEqual(said[2], ("user", "Hello"))
        self.assertIn("in front of your next message", result.stderr.decode())
        for name, data, word in (("empty", b"\n", "is empty"), ("binary", b"a\0b", "no text in UTF-8"),
                                 ("latin", b"caf\xe9", "no text in UTF-8")):
            self.assertIn(word, self.complaint(f"/read {self.path(name, data)}"))
        self.assertIn("No such file", self.complaint(f"/read {self.folder}/none"))
        self.assertIn("not a regular file", self.complaint(f"/read {self.folder}"))
        for command in "/read", "/save", "/load":
            self.assertIn(f"{command} needs a file", self.complaint(command))

    def test_drop(self):
        said, result = self.said("One", "Two", "Three", "/drop 1", options=["--system", "S."])
        self.assertEqual([content for role, content in said if role != "assistant"], ["S.", "Two", "Three"])
        self.assertIn("forgot 1 of 3 turns", result.stderr.decode())
        said, _ = self.said("One", "Two", "Three", "/drop")
        self.assertEqual([content for role, content in said if role == "user"], ["Two", "Three"])
        said, result = self.said("One", "Two", "/drop 1", "Three")
        self.assertEqual(result.stdout.decode().splitlines()[2],
                         answer_to("Two", said[1][1], "Three"))  # as if the first turn had never been
        self.assertIn("the last one stays", self.complaint("One", "/drop"))
        self.assertIn("a number of turns", self.complaint("One", "Two", "/drop x"))

    def test_a_full_context(self):
        long = "And again. " * 40
        said, result = self.said("Hello", long, "/tokens", "/clear", "Hello", options=["--ctx", "64"])
        err = result.stderr.decode()
        for offer in ("Nothing is lost", "/drop", "/clear", "--ctx N", "trained for"):
            self.assertIn(offer, err)
        self.assertEqual(result.stdout.decode().splitlines(), [answer_to("Hello")] * 2)
        self.assertEqual(said[0], ("user", "Hello"))
        # the message that did not fit is there, and is answered when there is room
        short = "And again. " * 9
        said, result = self.said("Hello", short, "/drop 1", "/regen", options=["--ctx", "64", "-q"])
        self.assertEqual(said[0], ("user", short))
        self.assertEqual(result.stdout.decode().splitlines(), [answer_to("Hello"), answer_to(short)])

    def test_a_dialogue_goes_on(self):
        keep = ["--context-keep", "0", "--ctx", "100", "--system", "S."]
        turns = [f"And again, number {i}." for i in range(9)]
        said, result = self.said(*turns, options=keep)
        answers, err = result.stdout.decode().splitlines(), result.stderr.decode()
        forgotten = [(int(n), int(of))
                     for n, of in re.findall(r"the context is full: forgot (\d+) of (\d+) turns", err)]
        self.assertGreater(len(forgotten), 1, err)
        self.assertEqual(len(answers), 9)
        # the last turns alone are left, and each answer is the one to what was left then
        left = 9 - sum(n for n, _ in forgotten)
        self.assertEqual(said[0], ("system", "S."))
        self.assertEqual(said[1:], [m for turn, answer in list(zip(turns, answers))[-left:]
                                    for m in (("user", turn), ("assistant", answer))])
        self.assertEqual(answers[-1], answer_to(*[text for _, text in said[1:-1]], system="S."))
        # what was saved goes on: without its KV
        again = chat(*GREEDY, *keep, lines=[f"/load {self.kept}", "/regen"])
        self.assertEqual(again.stdout.decode().splitlines(), [answers[-1]], again.stderr)
        # nothing is forgotten where nothing else would help
        err = chat(*GREEDY, *keep, lines=["And again. " * 40]).stderr.decode()
        self.assertIn("Nothing is lost", err)
        self.assertIn("--context-keep 51 is not allowed: half of the context, 50 tokens, is the most",
                      chat(*GREEDY, "--ctx", "100", "--context-keep", "51", lines=["Hello"]).stderr.decode())

    def test_an_answer_goes_on(self):
        """As run's from the same prompt, which keeps as much: the system message."""
        options = ["--temperature", "0", "-n", "300", "--ctx", "100", "--ignore-eos", "--context-keep"]
        result = chat("--raw", *options, "0", "--system", "Be kind.", lines=["Tell me a story"])
        head = "<|im_start|>system\nBe kind.<|im_end|>\n"
        kept = len(run("tokenize", MODEL, "--special", "--bos", "--ids", "-p", head).stdout.split())
        want = run("run", MODEL, "--special", *options, str(kept), "-p",
                   head + "<|im_start|>user\nTell me a story<|im_end|>\n<|im_start|>assistant\n")
        self.assertEqual(result.stdout.decode(), want.stdout.decode() + "\n")
        full, gone = re.search(r"the context was full (\d+) times: .* without (\d+) older",
                               result.stderr.decode()).groups()
        self.assertIn(f"context: full {full} times, {gone} tokens", want.stderr.decode())
        self.assertGreater(int(full), 2)

    def test_an_answer_that_is_cut(self):
        options = ["--temperature", "0", "--ctx", "64", "--ignore-eos"]
        result = chat("--raw", *options, lines=["Tell me a story", "/tokens"])
        err = result.stderr.decode()
        self.assertIn("the context of 64 tokens is full: the answer is cut off", err)
        for offer in ("/drop", "/clear", "--ctx N", "/regen"):
            self.assertIn(offer, err)
        prompt = "<|im_start|>user\nTell me a story<|im_end|>\n<|im_start|>assistant\n"
        want = run("run", MODEL, "--special", "-q", *options, "-p", prompt).stdout.decode()
        self.assertEqual(result.stdout.decode(), want + "\n")
        quiet = chat(*options, "-q", lines=["Tell me a story"])
        self.assertNotIn("cut off", quiet.stderr.decode())
        self.assertNotIn("cut off", chat(*options, "-n", "5", lines=["Tell me a story"]).stderr.decode())

    def test_roles_that_a_template_lacks(self):
        told = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
        mute = "{% for m in messages %}{% if m.role != 'system' %}{{ m.content }}\n{% endif %}{% endfor %}"
        tools = self.path("tools.json", json.dumps([{"type": "function", "function": {
            "name": "look_up", "description": "d", "parameters": {"type": "object", "properties": {}}}}]).encode())
        for name, text, warns in (("told", told, False), ("mute", mute, True)):
            options = ["--template", self.path(name, text.encode()), "--system", "Be kind."]
            err = chat(*GREEDY, *options, lines=["Hello"]).stderr.decode()
            self.assertEqual("leaves out what a system message says" in err, warns, err)
            err = chat(*GREEDY, *options[:2], lines=["/system Be kind.", "Hello"]).stderr.decode()
            self.assertEqual("leaves out what a system message says" in err, warns, err)
            self.assertNotIn("leaves out", chat(*GREEDY, *options, "-q", lines=["Hello"]).stderr.decode())
            self.assertIn("leaves out the tools", chat(*GREEDY, *options[:2], "--tools", tools,
                                                       lines=["Hello"]).stderr.decode())
        knows = self.path("knows", (told + "{% for t in tools %}{{ t.function.name }}{% endfor %}").encode())
        self.assertNotIn("leaves out", chat(*GREEDY, "--template", knows, "--tools", tools, "--system", "S.",
                                            lines=["Hello"]).stderr.decode())

    def test_a_session_tells_what_it_holds(self):
        self.said("Hello", "What is 2+2?")
        err = chat(*GREEDY, "--session", self.kept, lines=[]).stderr.decode()
        self.assertIn("it holds 2 turns; the last one begins: What is 2+2?", err)

    def test_unknown(self):
        self.assertIn("did you mean /regen", self.complaint("/regne"))
        self.assertIn("takes nothing behind it", self.complaint("/clear all"))
        for line in "/regne", "/clear all", "/read":
            self.assertEqual(chat(*GREEDY, "-q", lines=[line, "Hello"]).returncode, 2, line)

    def test_many_calls(self):
        """Without an end of text the grammar leaves nothing but one call behind another."""
        template = self.path("t.jinja", CALLING.encode())
        tools = self.path("tools.json", json.dumps([TOOL]).encode())
        blanks = [word for token in (9, 10, 32) for word in ("--logit-bias", f"{token}=-50")]
        done = chat("-n", "2800", "--ctx", "4096", "-q", "--json", "--session", self.kept, "--template", template,
                    "--tools", tools, "--tool-choice", "required", "--forbid-eos", *blanks, lines=["Hello"])
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        events = [json.loads(line) for line in done.stdout.splitlines()]
        n = sum(event["type"] == "tool_end" for event in events)
        self.assertGreater(n, 32)
        self.assertEqual(events[-1]["type"], "done")
        self.assertEqual(pathlib.Path(self.kept).read_bytes().count(b'"function":{"name":"f"'), n)


class SeveralLines(Folder):
    """Piped input is read as if it were typed."""

    def said(self, text, *options):
        result = run("chat", MODEL, *GREEDY, "--session", self.kept, *options, stdin=text)
        said = [content for role, content in messages(self.kept) if role == "user"] if result.stdout else []
        return result, said

    def test_quotes_and_backslashes(self):
        for text, want in ((b'"""one\n/two\nthree"""\nfour\n', ["one\n/two\nthree", "four"]),
                           (b'"""\n\none\n"""\n', ["\none"]),
                           (b'"""one"""\ntwo\n', ["one", "two"]),
                           (b'one\\\n two\\\nthree\n', ["one\n two\nthree"]),
                           (b'one\r\ntwo', ["one", "two"]),
                           (b'a\0b\\\nc\0d\n', ["a\0b\nc\0d"])):
            result, said = self.said(text)
            self.assertEqual((result.returncode, said), (0, want), result.stderr)
            os.unlink(self.kept)

    def test_what_is_not_utf8_is_left_out(self):
        for text, word in ((b'caf\xe9\nHello\n', b"the user message is not UTF-8"),
                           (b'/system caf\xe9\nHello\n', b"the system message is not UTF-8")):
            result, said = self.said(text)
            self.assertEqual((result.returncode, said), (1, ["Hello"]), result.stderr)
            self.assertIn(word, result.stderr)
            os.unlink(self.kept)

    def test_an_end_inside_is_told(self):
        for text, word in ((b'Hello\n"""one\ntwo\n', b"three quotes"), (b'Hello\none\\\n', b"a backslash")):
            result, said = self.said(text)
            self.assertEqual((result.returncode, said), (1, ["Hello"]))
            self.assertIn(b"the input ends inside a message that " + word, result.stderr)
            os.unlink(self.kept)


class Sampling(Folder):
    PROMPT = "<|im_start|>user\nTell me a story<|im_end|>\n<|im_start|>assistant\n"

    def by_run(self, *options):
        return common.run("run", MODEL, "--special", "-q", "-n", "30", "--seed", "3", "--stop", "<|im_end|>", *options,
                          "-p", self.PROMPT).stdout.decode()

    def by_chat(self, *options, model=MODEL):
        return chat("-n", "30", "--seed", "3", *options, model=model, lines=["Tell me a story"]).stdout.decode()

    def test_the_program_has_its_own(self):
        want = self.by_run("--temperature", "0.7", "--top-p", "0.95", "--min-p", "0.05")
        self.assertEqual(self.by_chat(), want + "\n")
        hot = ["--temperature", "3"]
        self.assertEqual(self.by_chat(*hot), self.by_run(*hot, "--top-p", "0.95", "--min-p", "0.05") + "\n")
        self.assertEqual(self.by_chat("--temperature", "0"), self.by_run() + "\n")

    def test_the_file_recommends(self):
        model = common.with_metadata(os.path.join(self.folder, "m.gguf"),
                                     {"general.sampling.temp": 2.5, "general.sampling.top_k": 20})
        self.assertEqual(self.by_chat(model=model), self.by_run("--temperature", "2.5", "--top-k", "20") + "\n")
        self.assertEqual(self.by_chat("--top-k", "3", model=model),
                         self.by_run("--temperature", "2.5", "--top-k", "3") + "\n")
        chain = common.with_metadata(os.path.join(self.folder, "chain.gguf"),
                                     {"general.sampling.temp": 1.5, "general.sampling.mirostat": 2,
                                      "general.sampling.mirostat_tau": 3.0, "general.sampling.xtc_probability": 0.5})
        told = ["--temperature", "1.5", "--mirostat-ent", "3", "--xtc-probability", "0.5"]
        self.assertEqual(self.by_chat(model=chain), self.by_run(*told, "--mirostat", "2") + "\n")
        self.assertEqual(self.by_chat("--mirostat", "0", model=chain), self.by_run(*told) + "\n")
        self.assertEqual(self.by_chat("--adaptive-target", "0.3", model=chain),
                         self.by_run(*told, "--adaptive-target", "0.3") + "\n")
        terminal = Terminal("chat", model, "--top-k", "3")
        terminal.wait_for_prompt()
        self.assertIn(b"temperature 2.5, top-k 3", terminal.seen)
        self.assertIn(b"(as the file recommends)", terminal.seen)
        terminal.type(CTRL_D)
        self.assertEqual(terminal.end(), 0)

    def test_template(self):
        path = self.path("t.jinja", b"{% for m in messages %}<{{ m.role }}> {{ m.content }}\n{% endfor %}<me>")
        got = chat(*GREEDY, "--template", path, lines=["Hello"])
        want = common.run("run", MODEL, "-q", "-n", "12", "-p", "<user> Hello\n<me>").stdout
        self.assertEqual(got.stdout, want + b"\n", got.stderr)
        bad = self.path("bad.jinja", b"{% for m in messages %}")
        result = chat("--template", bad, lines=["Hello"])
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(b"bad.jinja: ", result.stderr)


class OnTerminal(Folder):
    def open(self, *options, columns=80, env=None):
        terminal = Terminal("chat", MODEL, *GREEDY, *options, columns=columns, env=env)
        terminal.wait_for_prompt()
        return terminal

    def ask(self, terminal, typed):
        terminal.type(typed)
        text = terminal.wait_for(b"answer: ")
        terminal.wait_for_prompt()
        return text

    def leave(self, terminal):
        terminal.type(CTRL_D)
        self.assertEqual(terminal.end(), 0)

    def test_a_paste_is_one_message(self):
        for columns in 80, 40:
            terminal = self.open("--session", self.kept, columns=columns)
            self.ask(terminal, b"\x1b[200~first line\r/second\x01\rthird\x1b[201~ and more\r")
            self.leave(terminal)
            self.assertEqual(messages(self.kept)[-2], ("user", "first line\n/second\nthird and more"))
            self.assertIn(b"\x1b[?2004h", terminal.seen)
            self.assertGreater(terminal.seen.rfind(b"\x1b[?2004l"), terminal.seen.rfind(b"\x1b[?2004h"))
            os.unlink(self.kept)

    def test_edit(self):
        editor = self.path("editor", b'#!/bin/sh\nstat -c %a "$2" > "$1.mode"\nsed -i s/Hello/Goodbye/ "$2"\n')
        os.chmod(editor, 0o700)
        os.mkdir(os.path.join(self.folder, "tmp"))
        env = {**os.environ, "EDITOR": f"{editor} {' ' * 2000}{editor}", "TMPDIR": os.path.join(self.folder, "tmp"),
               "XDG_STATE_HOME": self.folder}
        terminal = self.open("--session", self.kept, env=env)
        self.ask(terminal, b"Hello\r")
        self.assertIn(answer_to("Goodbye").encode().split(b"\n")[0], self.ask(terminal, b"/edit\r"))
        terminal.type(b"/edit\r")
        terminal.wait_for(b"nothing was changed")
        terminal.wait_for_prompt()
        self.leave(terminal)
        self.assertEqual([content for role, content in messages(self.kept) if role == "user"], ["Goodbye"])
        self.assertEqual(pathlib.Path(editor + ".mode").read_text(), "600\n")
        self.assertEqual(os.listdir(os.path.join(self.folder, "tmp")), [])
        terminal = self.open(env={**env, "EDITOR": "false"})
        terminal.type(b"/edit\r")
        terminal.wait_for(b"the editor 'false' failed")
        terminal.wait_for_prompt()
        self.leave(terminal)

    def test_history_between_runs(self):
        env = {**os.environ, "XDG_STATE_HOME": self.folder}
        path = pathlib.Path(self.folder, "runnel/chat_history")
        terminal = self.open(env=env)
        want = self.ask(terminal, b"Hello there\r")
        terminal.type(b"/exit\r")
        self.assertEqual(terminal.end(), 0)
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        terminal = self.open("--session", self.kept, env=env)
        self.ask(terminal, b"\x1b[A\x1b[A\r")
        self.leave(terminal)
        self.assertEqual(messages(self.kept)[0], ("user", "Hello there"))
        self.assertIn(answer_to("Hello there").encode().split(b"\n")[0], want)

    def test_history_is_bounded(self):
        env = {**os.environ, "XDG_STATE_HOME": self.folder}
        os.mkdir(os.path.join(self.folder, "runnel"))
        path = pathlib.Path(self.folder, "runnel/chat_history")
        lines = [b"line\\040%d\n" % i for i in range(2500)]
        path.write_bytes(b"_HiStOrY_V2_\n" + b"".join(lines))
        os.chmod(path, 0o644)
        other = self.open(env=env)
        inode = path.stat().st_ino
        self.assertEqual(path.read_bytes(), b"_HiStOrY_V2_\n" + b"".join(lines[-1000:]))
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        terminal = self.open("--session", self.kept, env=env)
        self.assertEqual(path.stat().st_ino, inode)  # nothing to do: it is left as it is
        self.ask(other, b"from the other\r")
        self.ask(terminal, b"\x1b[A\r")  # what is left is what the arrows find
        self.leave(terminal)
        self.leave(other)
        self.assertEqual(messages(self.kept)[0], ("user", "line 2499"))
        self.assertEqual(path.read_bytes().count(b"\n"), 1003)
        last = path.read_bytes().splitlines()[-2:]
        self.assertTrue(last[0].startswith(b"from\\040the\\040other") and last[1].startswith(b"line\\0402499"), last)
        self.assertEqual(sorted(os.listdir(path.parent)), ["chat_history"])

    def test_no_history(self):
        for options, env in ((["--no-history"], {**os.environ, "XDG_STATE_HOME": self.folder}),
                             ([],
                              {k: v for k, v in os.environ.items() if k != "HOME"} | {"XDG_STATE_HOME": self.folder})):
            terminal = self.open(*options, env=env)
            self.ask(terminal, b"Hello\r")
            self.leave(terminal)
            self.assertEqual(os.listdir(self.folder), [])
        other = self.path("foreign", b"not a history\n")
        os.mkdir(os.path.join(self.folder, "runnel"))
        os.symlink(other, os.path.join(self.folder, "runnel/chat_history"))
        terminal = self.open(env={**os.environ, "XDG_STATE_HOME": self.folder})
        self.assertIn(b"no history of this program", terminal.seen)
        self.leave(terminal)
        self.assertEqual(pathlib.Path(other).read_bytes(), b"not a history\n")

    def test_sigterm_without_a_session(self):
        terminal = self.open()
        os.kill(terminal.pid, signal.SIGTERM)
        self.assertEqual(terminal.end(), -signal.SIGTERM)

    def test_help_and_greeting_fit(self):
        for columns in 80, 40:
            terminal = self.open(columns=columns)
            terminal.type(b"/help\r")
            terminal.wait_for(b"a paste")
            terminal.wait_for_prompt()
            self.leave(terminal)
            text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.seen.decode())
            for group in "The conversation:", "Files:", "The model:", "Else:", "Keys:":
                self.assertIn(group, text)
            self.assertIn("sampling: temperature 0", text)
            for row in text.split("\n"):
                if "%" not in row:  # the load's progress is drawn over
                    self.assertLessEqual(len(row.rstrip("\r")), columns, row)


if __name__ == "__main__":
    need_terminals()
    common.main("__main__")
