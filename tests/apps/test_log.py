#!/usr/bin/env python3
"""What the engine says on standard error: --log-level, and the live streams at SIGUSR1."""
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import common
from batch_job import story
from common import MODEL, run

COMMANDS = ("run chat doctor info tokenize logits embed perplexity template batch eagle-train cache bench "
            "repack").split()


class Levels(unittest.TestCase):
    def lines(self, *options):
        """What `run` says besides its figures; the cache server is away, which is a warning."""
        result = run("run", MODEL, "-p", "Once", "-n", "3", "--label", "mine", "--cache-shared", "unix:/none/such",
                     *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return [line for line in result.stderr.decode().splitlines() if line.startswith("runnel: ")]

    def test_levels(self):
        seen = {level: self.lines("--log-level", level) for level in ("none", "error", "warning", "info", "debug")}
        kinds = {level: {line.split(": ")[1] for line in lines} for level, lines in seen.items()}
        self.assertEqual((kinds["none"], kinds["error"]), (set(), set()))
        self.assertEqual((kinds["warning"], kinds["info"]), ({"warning"}, {"warning", "info"}))
        self.assertEqual(kinds["debug"], {"warning", "info", "debug"})
        self.assertTrue(any("loaded" in line for line in seen["info"]), seen["info"])
        self.assertTrue(any(line.startswith("runnel: debug: ") and "mine" in line for line in seen["debug"]),
                        seen["debug"])

    def test_default(self):
        plain, = self.lines()
        self.assertEqual("runnel: warning: " + plain[len("runnel: "):], self.lines("--log-level", "warning")[0])
        self.assertEqual(self.lines("--quiet"), [])
        self.assertEqual(len(self.lines("--quiet", "--log-level", "warning")), 1)

    def test_errors(self):
        result = run("run", "/none/such", "-p", "a", "--log-level", "error")
        self.assertEqual(result.returncode, 1)

    def test_everywhere(self):
        for command in COMMANDS:
            self.assertIn("--log-level", run(command, "--help").stdout.decode(), command)
        self.assertEqual(run("tokenize", MODEL, "-p", "a", "--ids", "--log-level", "info").returncode, 0)
        self.assertIn(b"--log-level 'loud' is not allowed: it takes one of none|error|warning|info|debug",
                      run("info", MODEL, "--log-level", "loud").stderr)

    def test_training(self):
        with tempfile.TemporaryDirectory() as folder:
            corpus = os.path.join(folder, "corpus")
            with open(corpus, "w", encoding="utf-8") as file:
                file.write("Once upon a time there was a fox. " * 80)
            result = run("eagle-train", MODEL, corpus, "-o", os.path.join(folder, "head"), "--steps", "1",
                         "--text-tokens",
                         "16", "--unroll", "1", "--log-level", "debug")
            self.assertEqual(result.returncode, 0, result.stderr)


class Streams(unittest.TestCase):
    """SIGUSR1 lists the streams of a job and ends nothing."""

    def start(self, *options):
        process = common.popen([common.program, "batch", MODEL, "-", "-", "-q", *options], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not common.catches(process, signal.SIGUSR1):
            self.assertIsNone(process.poll())
            time.sleep(0.002)
        return process

    def end(self, process):
        out, err = process.communicate(timeout=common.PATIENCE)
        self.assertEqual(process.returncode, 0, err)
        return out, err.decode()

    def test_none(self):
        process = self.start()
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.stderr.readline(), b"0 streams\n")  # it waits for its input
        process.stdin.write(story(0).encode() + b"\n")
        out, err = self.end(process)
        self.assertEqual((out.count(b"\n"), err), (1, ""))

    def test_live(self, n=40):
        process = self.start("--streams", "3")
        said = []
        reader = threading.Thread(target=lambda: said.append(process.stdout.read()))
        reader.start()
        process.stdin.write("".join(story(i, 60) + "\n" for i in range(n)).encode())
        process.stdin.close()
        text = ""
        while process.poll() is None and "DECODE" not in text:
            process.send_signal(signal.SIGUSR1)
            line = ""
            while not re.search(r"\d+ streams?$", line) and process.poll() is None:
                line = process.stderr.readline().decode()
                text += line
        reader.join()
        text += process.stderr.read().decode()
        self.assertEqual(process.wait(common.PATIENCE), 0, text)
        process.stdout.close()
        process.stderr.close()
        self.assertEqual(said[0].count(b"\n"), n)
        if "DECODE" not in text:  # all was done before it was asked
            return self.test_live(4 * n)
        self.assertRegex(text, r"(?m)^  DECODE +\d+ tokens? +runnel-tiny-Q8_0  s\d+$")
        for block in re.findall(r"((?:  [A-Z].*\n)*)(\d+) stream", text):
            self.assertEqual(block[0].count("\n"), int(block[1]), text)
            self.assertLessEqual(int(block[1]), 4, text)


if __name__ == "__main__":
    common.main("__main__")
