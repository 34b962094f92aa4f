#!/usr/bin/env python3
"""Adapters (LoRA) of the program: --lora, --adapter and the lines of batches. Answers are greedy, so each is one text;
what an adapter does to it the library's tests have."""
import json
import pathlib
import shutil
import tempfile
import unittest

import common
from batch_job import CHAT, EMBED, RESPONSES, TEXT, USER, Job, line
from common import MODEL, make_adapter, run

PROMPT = "Once upon a time"
ANSWER = ("-p", PROMPT, "-n", 24, "--ignore-eos", "-q")


class Adapters(unittest.TestCase):
    """Two of the model's."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.a = make_adapter(cls.folder / "a.gguf", "--seed", 1, "--strength", 1)
        cls.b = make_adapter(cls.folder / "b.gguf", "--seed", 2, "--rank", 3, "--strength", 1)

    def good(self, *words, **more):
        got = run(*words, **more)
        self.assertEqual(got.returncode, 0, got.stderr)
        return got.stdout

    def answer(self, *options):
        return self.good("run", MODEL, *ANSWER, *options)


class Program(Adapters):
    def test_answers(self):
        both = ("--lora", self.a, "--lora", self.b)
        base, a, b = self.answer(), self.answer("--lora", self.a), self.answer("--lora", self.b)
        self.assertEqual(len({base, a, b}), 3)
        self.assertEqual(self.answer(*both), base)
        self.assertEqual(self.answer(*both, "--adapter", "a"), a)
        self.assertEqual(self.answer(*both, "--adapter=b"), b)
        self.assertEqual(self.answer("--lora", self.a, "--adapter", ""), base)
        self.assertEqual(self.answer(*both, "--n", 2, "--adapter", "b").split(b"\n---\n"), [b, b])

    def test_names_and_scales(self):
        a, strong = self.answer("--lora", self.a), self.answer("--lora", self.a + ":2.5")
        self.assertNotEqual(a, strong)
        self.assertEqual(self.answer("--lora", f"a name={self.a}:1", "--adapter", "a name"), a)
        odd = shutil.copy(self.a, self.folder / "x=1:2y.gguf")  # a colon and an equals sign of the path
        self.assertEqual(self.answer("--lora", odd, "--adapter", "x=1:2y"), a)
        self.assertEqual(self.answer("--lora", f"{odd}:+2.5e0"), strong)
        self.assertEqual(self.answer("--lora", f"one={self.a}", "--lora", f"two={self.a}:2.5", "--adapter", "two"),
                         strong)

    def test_refusals(self):
        long = "n" * 64
        for options, code, part in (
                (("--lora", "/nosuch.gguf"), 1, "/nosuch.gguf: cannot be opened"),
                (("--lora", f"{self.a}:0.5x"), 1, "a.gguf:0.5x: cannot be opened"),
                (("--lora", MODEL), 1, f"{MODEL}: key general.type"),
                (("--lora", ""), 2, "--lora '' is not allowed: it takes [NAME=]PATH[:SCALE]"),
                (("--lora", f"={self.a}"), 2, "is not allowed"), (("--lora", "a="), 2, "is not allowed"),
                (("--lora", f"{self.a}:0"), 2, "a scale but 0"), (("--lora", f"{self.a}:1e-60"), 2, "a scale but 0"),
                (("--lora", f"{long}={self.a}"), 2, "a name of 1 to 63 bytes"),
                (("--lora", f"a\n={self.a}"), 2, "is not allowed"),
                (("--lora", self.a, "--lora", f"a={self.b}"), 2, "--lora: two adapters are called 'a'"),
                (("--lora", f"{self.a}:2", "--lora", self.a), 2, "--lora: two adapters are called 'a'"),
                (("--adapter", "a"), 2, "--adapter 'a' needs --lora"),
                (("--lora", self.a, "--adapter", "x"), 2, "--adapter 'x' is none of --lora; there is a"),
                (("--lora", self.a, "--lora", self.b, "--adapter", "A"), 2, "there are a, b")):
            with self.subTest(options=options):
                got = run("run", MODEL, *ANSWER, *options)
                self.assertEqual(got.returncode, code, got.stderr)
                self.assertIn(part, got.stderr.decode())
                self.assertEqual(got.stdout, b"")
        self.assertEqual(run("info", MODEL, "--lora", self.a).returncode, 2)
        got = run("run", MODEL, *ANSWER, *(word for i in range(65) for word in ("--lora", f"n{i}={self.a}")))
        self.assertEqual(got.returncode, 2)
        self.assertIn(b"at most 64 times", got.stderr)
        got = run("run", MODEL, *ANSWER, "--lora", self.a, "--metrics", self.a)  # not written over
        self.assertEqual((got.returncode, got.stdout), (2, b""))
        self.assertIn(b"--lora and --metrics at once", got.stderr)

    def test_other_commands(self):
        text = self.folder / "text"
        text.write_text("Once upon a time there was a little fox who lived in the woods.")
        for words in (("logits", MODEL, "-p", PROMPT, "-o", "-"), ("perplexity", MODEL, text, "--json"),
                      ("embed", MODEL, PROMPT), ("embed", MODEL, "-f", text, "--json")):
            with self.subTest(words=words):
                base, a, b = (self.good(*words, "-q", *options)
                              for options in ((), ("--lora", self.a), ("--lora", self.b)))
                self.assertEqual(len({base, a, b}), 3)
                both = ("-q", "--lora", self.a, "--lora", self.b)
                self.assertEqual(self.good(*words, *both), base)
                self.assertEqual(self.good(*words, *both, "--adapter", "a"), a)
        self.good("bench", MODEL, "-p", 8, "-n", 4, "-r", 1, "--no-limits", "-q", "--lora", self.a)

    def test_chat(self):
        def chat(*options):
            return self.good("chat", MODEL, "-n", 12, "--temperature", 0, "-q", "--no-history", *options,
                             stdin=b"What is 2+2?\nWhy?\n")

        base, a = chat(), chat("--lora", self.a)
        self.assertNotEqual(a, base)
        self.assertEqual(chat("--lora", self.a, "--lora", self.b, "--adapter", "a"), a)
        self.assertEqual(chat("--lora", self.a, "--adapter", ""), base)
        for options, want in ((("--lora", self.a), True), (("--lora", self.a, "--adapter", ""), False)):
            got = run("chat", MODEL, "-q", "--no-history", *options, stdin=b"/show\n")
            self.assertEqual(b"\nadapter   a\n" in got.stderr, want, got.stderr)

    def test_cached_prompts_are_their_adapters(self):
        """A folder of blocks: what was computed with one adapter is not used by another."""
        prompt = self.folder / "long"
        prompt.write_text("The fox went out on a chilly night. " * 40)
        words = ("run", MODEL, "-f", prompt, "-n", 8, "--ignore-eos", "-q")
        want = [self.good(*words, *options) for options in ((), ("--lora", self.a), ("--lora", self.b))]
        cache = ("--cache-dir", self.folder / "cache")
        for _ in range(2):
            got = [self.good(*words, *cache, *options) for options in ((), ("--lora", self.a), ("--lora", self.b))]
            self.assertEqual(got, want)


class Batches(Adapters):
    def body(self, **more):
        return {"prompt": PROMPT, "max_tokens": 24, "temperature": 0, "ignore_eos": True, **more}

    def texts(self, job):
        return {answer["custom_id"]: answer["response"]["body"]["choices"][0]["text"].encode()
                for answer in job.answers()}

    def test_lines(self):
        base, a, b = self.answer(), self.answer("--lora", self.a), self.answer("--lora", self.b)
        lines = [line(f"{i}", TEXT, self.body(**more))
                 for i, more in enumerate(({}, {"adapter": None}, {"adapter": ""}, {"adapter": "a"},
                                           {"adapter": "b"}))]
        for options, usual in ((("--lora", self.a, "--lora", self.b), base),
                               (("--lora", self.a, "--lora", self.b, "--adapter", "b"), b)):
            job = Job(lines, *options)
            self.assertEqual(job.run().returncode, 0)
            self.assertEqual(self.texts(job), {"0": usual, "1": usual, "2": base, "3": a, "4": b})
        job = Job(lines[:4], "--lora", self.a)
        self.assertEqual(job.run().returncode, 0)
        self.assertEqual(self.texts(job), {"0": a, "1": a, "2": base, "3": a})

    def test_each_endpoint(self):
        bodies = ((CHAT, {"messages": USER, "max_tokens": 12, "temperature": 0}), (EMBED, {"input": PROMPT}),
                  (RESPONSES, {"input": "What is 2+2?", "max_output_tokens": 12, "temperature": 0}))
        lines = [line(f"{i}{name}", url, {**body, "adapter": name}) for i, (url, body) in enumerate(bodies)
                 for name in ("", "a", "b")]
        job = Job(lines, "--lora", self.a, "--lora", self.b)
        self.assertEqual(job.run().returncode, 0)
        answers = {answer["custom_id"]: answer["response"]["body"] for answer in job.answers()}
        told = {name: json.dumps([body.get(key) for key in ("choices", "data", "output")])
                for name, body in answers.items()}
        told = {name: text.replace(answers[name].get("id", "?"), "") for name, text in told.items()}
        for i in range(len(bodies)):
            self.assertEqual(len({told[f"{i}{name}"] for name in ("", "a", "b")}), 3)

    def test_bad_lines(self):
        lines = [line("0", TEXT, self.body(adapter="x")), line("1", EMBED, {"input": "a", "adapter": "x"}),
                 line("2", TEXT, self.body(adapter=5)), line("3", TEXT, self.body(adapter="a")),
                 line("4", TEXT, self.body(lora=[]))]
        job = Job(lines, "--lora", self.a)
        self.assertEqual(job.run().returncode, 0)
        answers = [answer["response"] for answer in job.answers()]
        self.assertEqual([answer["status_code"] for answer in answers], [400, 400, 400, 200, 400])
        for i in range(2):
            error = answers[i]["body"]["error"]
            self.assertEqual((error["param"], error["message"]), ("adapter", "adapter: no --lora is called 'x'"))
        self.assertEqual(answers[2]["body"]["error"]["param"], "adapter")
        got = job.run("--check", "--fail-on", "none")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual([text.split(": ")[1] for text in got.stdout.decode().splitlines()],
                         ['"0"', '"1"', '"2"', '"4"'])
        self.assertIn("no --lora is called 'x'", got.stdout.decode())
        self.assertEqual(run("batch", MODEL, job.input, "--check", "--lora", "/nosuch").returncode, 1)

    def test_a_resumed_job_has_the_same_adapters(self):
        lines = [line("0", TEXT, self.body())]
        job = Job(lines, "--lora", self.a)
        self.assertEqual(job.run().returncode, 0)
        wrong = Job(lines)
        for path in (job.output, job.journal):
            shutil.copy(path, wrong.path)
        shutil.copystat(job.input, wrong.input)
        for options in ((), ("--lora", self.b), ("--lora", self.a + ":2"), ("--lora", self.a, "--adapter", "")):
            with self.subTest(options=options):
                got = wrong.run("--resume", *map(str, options))
                self.assertEqual(got.returncode, 1, got.stderr)
                self.assertRegex(got.stderr.decode(), r"belongs to another job: its adapters: 1 loaded, a used \(\w+\) "
                                                      r"there, (none|1 loaded, \w+ used \(\w+\)) now\n")
        self.assertEqual(wrong.run("--resume", "--lora", self.a).returncode, 0)

    def test_a_resumed_job_knows_all_of_an_adapter(self):
        """Two that begin and end alike for more than 2 MiB, and have one size."""
        path, end = self.folder / "long.gguf", 3 << 20
        make_adapter(path, "--rank", 128, "--type", "f32")
        job = Job([line("0", TEXT, self.body())], "--lora", path)
        self.assertEqual(job.run().returncode, 0)
        data = bytearray(path.read_bytes())
        self.assertGreater(len(data), 2 * end)
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        got = job.run("--resume")
        self.assertEqual(got.returncode, 1)
        self.assertIn(b"belongs to another job: its adapters", got.stderr)
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        self.assertEqual(job.run("--resume").returncode, 0)


if __name__ == "__main__":
    common.main(__name__)
