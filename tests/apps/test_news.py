#!/usr/bin/env python3
"""What one process puts into a shared tier or a folder is found by others that are running already. The judge of every
text is a process without any cache tier. Nothing here depends on how long anything takes: what was asked too early is a
miss, and another prompt is tried."""
import json
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import common
from common import MODEL

TRIES = 40
LEAST = 600  # tokens of a prompt
STORY = "there was a small house at the edge of the wood, and an old man lived in it with a red fox. "


class Chat:
    """A process that answers prompts, each a conversation of its own."""

    def __init__(self, *options):
        self.process = common.popen([common.program, "chat", MODEL, "-n", "8", "--json", "-q", "--metrics", "-",
                                     *options],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.ask("Hello")  # it is loaded

    def ask(self, prompt):
        self.process.stdin.write(b"/clear\n" + prompt.encode() + b"\n")
        self.process.stdin.flush()
        text = ""
        for line in self.process.stdout:
            event = json.loads(line)
            if event["type"] == "done":
                return text, event["usage"]
            text += event.get("text", "")
        raise AssertionError("it has ended: " + self.process.stderr.read().decode())

    def close(self):
        """How many blocks it has heard of."""
        _, error = self.process.communicate(timeout=common.PATIENCE)
        assert self.process.returncode == 0, error
        return int(re.search(rb'^runnel_cache_adopted_blocks_total{.*} (\d+)$', error, re.MULTILINE)[1])


class News(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.chats = []
        self.n_prompts = 0
        self.plain = self.chat()

    def tearDown(self):
        for chat in self.chats:
            chat.process.kill()
            chat.process.communicate()
        self.temporary.cleanup()

    def chat(self, *options):
        self.chats.append(Chat(*options))
        return self.chats[-1]

    def prompt(self):
        """Another one, which begins like none before."""
        self.n_prompts += 1
        return f"{self.n_prompts} times " + STORY * 30

    def hears(self, reader, writer, field):
        """What the writer has computed comes to the reader, sooner or later."""
        for attempt in range(TRIES):
            prompt = self.prompt()
            expected, usage = self.plain.ask(prompt)
            self.assertGreater(usage["prompt_tokens"], LEAST)
            self.assertEqual(writer.ask(prompt)[0], expected)
            time.sleep(min(0.4 + 0.2 * attempt, 3))
            text, usage = reader.ask(prompt)
            self.assertEqual(text, expected)
            if usage.get(field, 0) > LEAST // 2:
                return
        self.fail(f"after {TRIES} prompts: {usage}")


class Folder(News):
    def test_reader(self):
        """The second process has not the lock."""
        options = ("--cache-dir", self.temporary.name + "/cache")
        writer = self.chat(*options)
        reader = self.chat(*options)
        self.hears(reader, writer, "cold_tokens")
        self.assertGreater(reader.close(), 0)
        self.assertEqual(writer.close(), 0)

    def records(self):
        listed = common.run("cache", "ls", self.temporary.name + "/cache", "--json")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        return sum(entry["records"] for entry in json.loads(listed.stdout)["entries"])

    def begins_to_write(self, chat):
        """It is alone with the folder, and sooner or later what it computes is there."""
        before = self.records()
        for attempt in range(TRIES):
            prompt = self.prompt()
            self.assertEqual(chat.ask(prompt)[0], self.plain.ask(prompt)[0])
            time.sleep(min(0.4 + 0.2 * attempt, 3))
            if self.records() > before:
                return
        self.fail(f"after {TRIES} prompts there are {before} records")

    def test_writer_goes(self):
        """A rolling restart: each process takes the place of the one before, killed or closed, and the next hears
        it."""
        options = ("--cache-dir", self.temporary.name + "/cache")
        before, after = self.chat(*options), self.chat(*options)
        self.hears(after, before, "cold_tokens")
        for killed in (True, False, True):
            if killed:
                before.process.kill()
                before.process.wait()
            else:
                before.close()
            self.begins_to_write(after)
            before, after = after, self.chat(*options)
            self.hears(after, before, "cold_tokens")
        before.close()
        verified = common.run("cache", "verify", self.temporary.name + "/cache")
        self.assertEqual(verified.returncode, 0, verified.stdout)


@unittest.skipIf(shutil.which("redis-server") is None, "there is no redis-server")
class Shared(News):
    def setUp(self):
        super().setUp()
        self.start()
        self.options = ("--cache-shared", "unix:" + self.socket)

    def start(self):
        self.server, self.socket = common.start_redis(self.temporary.name)

    def stop(self):
        common.stop_redis(self.server, self.socket)

    def tearDown(self):
        self.stop()
        super().tearDown()

    def redis(self, *words, stdin=b""):
        return subprocess.run(["redis-cli", "-s", self.socket, *words], input=stdin, capture_output=True,
                              check=True).stdout

    def test_both_ways(self):
        one, other = self.chat(*self.options), self.chat(*self.options)
        self.hears(other, one, "shared_tokens")
        self.hears(one, other, "shared_tokens")
        for chat in (one, other):
            self.assertGreater(chat.close(), 0)

    def test_replaced(self):
        """The server is gone, and another, empty one has taken its place: all that comes is heard of again."""
        one, other = self.chat(*self.options), self.chat(*self.options)
        self.hears(other, one, "shared_tokens")
        self.stop()
        prompt = self.prompt()
        self.assertEqual(one.ask(prompt)[0], self.plain.ask(prompt)[0])
        self.assertEqual(other.ask(prompt)[0], self.plain.ask(prompt)[0])
        self.start()
        self.hears(other, one, "shared_tokens")

    def test_garbage(self):
        """Who can write to the stream says nonsense, and much of it."""
        one, other = self.chat(*self.options), self.chat(*self.options)
        self.hears(other, one, "shared_tokens")
        stream = [key for key in self.redis("KEYS", "*").decode().split() if key.endswith(":news")]
        self.assertEqual(len(stream), 1)
        writer = "0123456789abcdef"
        garbage = [f"XADD {stream[0]} * {writer} {i:032x}" for i in range(5000)]
        garbage += [f"XADD {stream[0]} * x y", f"XADD {stream[0]} * {writer} {'z' * 32}",
                    f"XADD {stream[0]} * {writer} {'0' * 31}", f"XADD {stream[0]} * a b c d",
                    f"SET {stream[0][:-4]}{'0' * 32} nothing", f"XADD {stream[0]} * {writer} {'0' * 32}",
                    f"LPUSH {stream[0][:-4]}{'1' * 32} nothing", f"XADD {stream[0]} * {writer} {'1' * 32}"]
        self.redis(stdin="\n".join(garbage).encode() + b"\n")
        self.hears(other, one, "shared_tokens")
        self.redis("XTRIM", stream[0], "MAXLEN", "0")
        self.hears(other, one, "shared_tokens")

    def test_no_stream(self):
        """Its key is of another type, or the command is not allowed: all else works."""
        before = self.chat(*self.options)
        prompts = [self.prompt() for _ in range(2)]
        before.ask(prompts[0])
        before.close()
        for how in ("type", "denied"):
            stream = [key for key in self.redis("KEYS", "*").decode().split() if key.endswith(":news")][0]
            if how == "type":
                self.redis("DEL", stream)
                self.redis("SET", stream, "x")
            else:
                self.redis("ACL", "SETUSER", "default", "-@stream")
            one = self.chat(*self.options)
            text, usage = one.ask(prompts[0])
            self.assertEqual(text, self.plain.ask(prompts[0])[0])
            self.assertGreater(usage["shared_tokens"], LEAST // 2)
            self.assertEqual(one.ask(prompts[1])[0], self.plain.ask(prompts[1])[0])
            self.assertEqual(one.close(), 0)
            other = self.chat(*self.options)
            self.assertGreater(other.ask(prompts[1])[1]["shared_tokens"], LEAST // 2)
            other.close()


if __name__ == "__main__":
    common.main(__name__)
