#!/usr/bin/env python3
"""Prefixes across processes: runnel cache warm into files and into a redis-server, and runs in other processes that
fetch them. The judge of every text is a run without any cache tier."""
import json
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile
import unittest

import common
from common import MODEL, run

STORY = "Once upon a time there was a small house at the edge of the wood. " * 14
PROMPTS = [STORY + ending for ending in ("An old man", "A red fox", "Two children")]


def answer(prompt, *options):
    done = run("run", MODEL, "-p", prompt, "-n", "12", "--json", "-q", *options)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    return "".join(e["text"] for e in events if e["type"] == "token"), events[-1]["usage"], done.stderr


class Folder(unittest.TestCase):
    def test_warm(self):
        with tempfile.TemporaryDirectory() as path:
            cache = pathlib.Path(path) / "cache"
            prompts = pathlib.Path(path) / "prompts"
            prompts.write_text(PROMPTS[0] + "\n\n" + json.dumps({"prompt": PROMPTS[1]}) + "\r\n")
            done = run("cache", "warm", MODEL, prompts, "--cache-dir", cache, "--json", "-q")
            self.assertEqual(done.returncode, 0, done.stderr)
            told = json.loads(done.stdout)
            self.assertEqual((told["prompts"], told["failed"]), (2, 0))
            listed = json.loads(run("cache", "ls", cache, "--json").stdout)["entries"]
            self.assertEqual([e["records"] for e in listed], [told["records"]])
            self.assertGreaterEqual(told["records"] * listed[0]["block_tokens"], told["tokens"] // 2 - 31)
            self.assertEqual(run("cache", "verify", cache).returncode, 0)
            for prompt in PROMPTS:
                text, usage, _ = answer(prompt, "--cache-dir", cache)
                plain, without, _ = answer(prompt)
                self.assertEqual(text, plain)
                self.assertGreater(usage["cold_tokens"], without["prompt_tokens"] * 3 // 4)
                self.assertEqual(without.get("cold_tokens", 0), 0)

    def test_salt(self):
        """What was warmed under a salt is for runs of this salt."""
        with tempfile.TemporaryDirectory() as cache:
            done = run("cache", "warm", MODEL, "-", "--cache-dir", cache, "--salt", 7, "-q", stdin=PROMPTS[0].encode())
            self.assertEqual(done.returncode, 0, done.stderr)
            plain = answer(PROMPTS[0])[0]
            for options, found in ((("--salt", "8"), False), ((), False), (("--salt", "7"), True)):
                text, usage, _ = answer(PROMPTS[0], "--cache-dir", cache, *options)
                self.assertEqual((text, usage.get("cold_tokens", 0) > 0), (plain, found), options)
            for wait in (0, 1, 1000000):  # the text does not depend on what has arrived
                options = "--cache-dir", cache, "--salt", "7", "--cache-wait", wait
                self.assertEqual(answer(PROMPTS[0], *options)[0], plain)

    def test_not_kept(self):
        """A tier that takes nothing, or not all: exit code 1, and what is said of a folder is true."""
        prompts = "".join(f"Number {i}: " + PROMPTS[0] + "\n" for i in range(8)).encode()

        def small():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, resource.RLIM_INFINITY))

        with tempfile.TemporaryDirectory() as path:
            done = run("cache", "warm", MODEL, "-", "--cache-shared", f"unix:{path}/none", stdin=prompts)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertNotIn(b"folder", done.stdout)
            self.assertRegex(done.stderr, b"(?m)^runnel: .*(not all is kept|it is not kept there)$")
            done = run("cache", "warm", MODEL, "-", "--cache-shared", f"unix:{path}/none", "--json", "-q",
                       stdin=b"Hello")
            self.assertEqual(done.returncode, 0)  # no whole block: there was nothing to keep
            self.assertNotIn("records", json.loads(done.stdout))
            cache = pathlib.Path(path) / "cache"
            command = [common.program, "cache", "warm", MODEL, "-", "--cache-dir", cache, "--json"]
            done = subprocess.run(command, input=prompts, capture_output=True, preexec_fn=small,
                                  timeout=common.PATIENCE)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(b"not all is kept", done.stderr)
            part = json.loads(done.stdout)["records"]
            for _ in range(2):  # with room it goes on where it was; a second time there is nothing to do
                done = run("cache", "warm", MODEL, "-", "--cache-dir", cache, "--json", stdin=prompts)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertGreater(json.loads(done.stdout)["records"], part)

    def test_damaged(self):
        """Records that cannot be read are computed again and kept: nothing is missing at the end."""
        prompts = "".join(f"Number {i}: " + PROMPTS[0] + "\n" for i in range(4)).encode()
        with tempfile.TemporaryDirectory() as path:
            cache = pathlib.Path(path) / "cache"
            command = ("cache", "warm", MODEL, "-", "--cache-dir", cache, "--json", "-q")
            first = json.loads(run(*command, stdin=prompts).stdout)
            for file in cache.glob("*/*.kv"):
                bytes_ = bytearray(file.read_bytes())
                bytes_[len(bytes_) // 2] ^= 1
                file.write_bytes(bytes_)
            self.assertEqual(run("cache", "verify", cache).returncode, 1)
            done = run(*command, stdin=prompts)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            again = json.loads(done.stdout)
            self.assertLess(again["cached_tokens"], again["tokens"] - 31 * again["prompts"])  # the damage was met
            self.assertEqual([again[k] for k in ("prompts", "tokens", "failed")],
                             [first[k] for k in ("prompts", "tokens", "failed")])
            prompt = prompts.decode().split("\n")[-2]
            text, usage, _ = answer(prompt, "--cache-dir", cache)
            self.assertEqual(text, answer(prompt)[0])
            self.assertGreater(usage["cold_tokens"], usage["prompt_tokens"] * 3 // 4)

    def test_refused(self):
        with tempfile.TemporaryDirectory() as path:
            cache = pathlib.Path(path) / "cache"
            for text, code, words in ((b"{\"prompt\": 3}\n", 1, b"line 1: there is no text"),
                                      (b"\n{bad\n", 1, b"line 2: "),
                                      (b"\xff\n", 1, b"line 1: not computed")):
                done = run("cache", "warm", MODEL, "-", "--cache-dir", cache, "-q", stdin=text)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(words, done.stderr)
            for args, words in ((["warm"], b"MODEL is missing"), (["warm", MODEL], b"PROMPTS is missing"),
                                (["warm", MODEL, "-"], b"needs --cache-dir or --cache-shared")):
                done = run("cache", *args)
                self.assertEqual(done.returncode, 2)
                self.assertIn(words, done.stderr)
            self.assertEqual(run("cache", "warm", MODEL, "/nonexistent", "--cache-dir", cache).returncode, 1)


@unittest.skipIf(shutil.which("redis-server") is None, "there is no redis-server")
class Shared(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.start()

    def start(self):
        self.server, self.socket = common.start_redis(self.temporary.name)
        self.url = "unix:" + self.socket

    def stop(self):
        common.stop_redis(self.server, self.socket)

    def tearDown(self):
        self.stop()
        self.temporary.cleanup()

    def test_two_processes(self):
        plain = [answer(p) for p in PROMPTS]
        text, usage, _ = answer(PROMPTS[0], "--cache-shared", self.url)
        self.assertEqual((text, usage.get("shared_tokens", 0)), (plain[0][0], 0))
        for prompt, (expected, without, _) in zip(PROMPTS, plain):
            text, usage, _ = answer(prompt, "--cache-shared", self.url)
            self.assertEqual(text, expected)
            self.assertGreater(usage["shared_tokens"], without["prompt_tokens"] * 3 // 4)
        text, usage, _ = answer(PROMPTS[0], "--cache-shared", self.url, "--kv-type", "f32")
        self.assertEqual(usage.get("shared_tokens", 0), 0)  # another KV format is another fingerprint
        self.stop()
        self.start()  # and is empty
        text, usage, _ = answer(PROMPTS[0], "--cache-shared", self.url)
        self.assertEqual((text, usage.get("shared_tokens", 0)), (plain[0][0], 0))

    def test_beside_a_folder(self):
        both = ("--cache-shared", self.url, "--cache-dir", self.temporary.name + "/cache")
        done = run("cache", "warm", MODEL, "-", *both, "-q", stdin=PROMPTS[0].encode())
        self.assertEqual(done.returncode, 0, done.stderr)
        for options, tier in ((both, "cold_tokens"), (both[:2], "shared_tokens"), (both[2:], "cold_tokens")):
            text, usage, _ = answer(PROMPTS[1], *options)
            self.assertEqual(text, answer(PROMPTS[1])[0])
            self.assertGreater(usage[tier], usage["prompt_tokens"] * 3 // 4, options)

    def test_garbage(self):
        expected = answer(PROMPTS[0])[0]
        answer(PROMPTS[0], "--cache-shared", self.url)
        ask = ["redis-cli", "-s", self.socket]
        keys = subprocess.run(ask + ["KEYS", "*"], capture_output=True, check=True).stdout.split()
        self.assertGreater(len(keys), 4)
        for i, key in enumerate(keys):
            words = [["SETRANGE", key, "300", "garbage"], ["SET", key, "x"], ["DEL", key], ["APPEND", key, "y"]][i % 4]
            subprocess.run(ask + words, check=True, capture_output=True)
        for _ in range(2):
            text, usage, _ = answer(PROMPTS[0], "--cache-shared", self.url)
            self.assertEqual(text, expected)
        self.assertGreater(usage.get("shared_tokens", 0), 0)  # what was bad has been replaced

    def test_away(self):
        expected = answer(PROMPTS[0])[0]
        self.stop()
        text, usage, error = answer(PROMPTS[0], "--cache-shared", self.url)
        self.assertEqual((text, usage.get("shared_tokens", 0)), (expected, 0))
        self.start()
        done = run("run", MODEL, "-p", "x", "-n", "1", "--cache-shared", "redis://")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"host is missing", done.stderr)

    def test_killed_meanwhile(self):
        """The server goes away while an engine that has known its blocks is running."""
        answer(PROMPTS[0], "--cache-shared", self.url)
        expected = [answer(p)[0] for p in PROMPTS[:2]]
        chat = common.popen([common.program, "run", MODEL, "-p", PROMPTS[0], "-n", "400", "--ignore-eos", "--json",
                             "-q", "--cache-shared", self.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        chat.stdout.readline()
        self.stop()
        events = [json.loads(line) for line in chat.communicate(timeout=common.PATIENCE)[0].splitlines()]
        self.assertEqual(chat.returncode, 0)
        self.assertEqual(events[-1]["type"], "done")
        self.start()
        self.assertEqual([answer(p, "--cache-shared", self.url)[0] for p in PROMPTS[:2]], expected)


if __name__ == "__main__":
    common.main(__name__)
