#!/usr/bin/env python3
"""runnel serve whose --cache-dir or --weights-dir lies on a disk without room: answers stay right, one warning says so,
nothing half-written stays, and where there is room again the folder is used again. The disks are file systems in
memory, of a user namespace of the test's own."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import common
from common import run
from server import Server

FEW, MANY = "size=4m", "size=64m"  # some two dozen blocks of the cache, without the weights; and all of them
INSIDE = "RUNNEL_INSIDE"           # this process may mount
GREEDY = {"max_tokens": 6, "temperature": 0}
TOKEN = 3072  # bytes of a token's keys and values
N = 16  # requests of a round, more than fit into the smaller disk


def prompt(round, i):
    return f"Story {i} of round {round}. " + "Once upon a time a fox named Ada lived near the harbour. " * 8


class FullDisk(unittest.TestCase):
    def setUp(self):
        self.disk = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        subprocess.run(["mount", "-t", "tmpfs", "-o", FEW, "none", self.disk], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.disk], check=True)  # behind the servers' ends

    def resize(self, size):
        subprocess.run(["mount", "-o", f"remount,{size}", self.disk], check=True)

    def serve(self, *options):
        server = Server(*options)
        self.addCleanup(server.log.close)
        self.addCleanup(server.stop)
        return server

    def files(self):
        return sorted(path for path in self.disk.rglob("*") if path.is_file() and path.name != "lock")

    def warnings(self, server):
        return [line for line in server.lines() if "No space left" in line]

    def round(self, server, number):
        """(texts, tokens of prompts that were cached)"""
        got = [server.post("/v1/completions", {"prompt": prompt(number, i), **GREEDY}) for i in range(N)]
        self.assertEqual([status for status, _ in got], [200] * N)
        return ([body["choices"][0]["text"] for _, body in got],
                [body["usage"]["prompt_tokens_details"]["cached_tokens"] for _, body in got])

    def until(self, server, want, done):
        """Rounds, until the server has written so much; blocks are written when it has time, or needs the room."""
        for number in range(1000):
            self.assertEqual(self.round(server, number % 4)[0], want[number % 4])
            if done():
                return
        self.fail("nothing of that kind was written")

    def test_cache(self):
        plain = self.serve("--no-prefix-cache")
        want = [self.round(plain, number)[0] for number in range(4)]
        self.assertEqual(plain.stop()[0], 0)
        options = ("--cache-dir", self.disk / "cache", "--kv-size", "2M")
        server = self.serve(*options)
        self.until(server, want, lambda: server.metric("runnel_cache_errors_total") > 0)
        self.assertEqual(len(self.warnings(server)), 1)
        self.assertTrue(0 < self.size() <= 4 << 20)
        got = run("cache", "verify", self.disk / "cache")
        self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
        self.resize(MANY)
        self.until(server, want, lambda: self.size() > 8 << 20)
        self.assertEqual(len(self.warnings(server)), 1)
        self.assertEqual(server.stop()[0], 0)
        got = run("cache", "verify", self.disk / "cache")
        self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
        server = self.serve(*options)
        cached = 0
        for number in range(4):
            texts, counts = self.round(server, number)
            self.assertEqual(texts, want[number])
            cached += sum(counts)
        self.assertGreater(cached * TOKEN, 6 << 20)  # more than the smaller disk had room for
        self.assertEqual((self.warnings(server), server.stop()[0]), ([], 0))

    def size(self):
        return sum(file.stat().st_size for file in self.files())

    def test_weights(self):
        plain = self.serve()
        want = self.round(plain, 0)[0]
        self.assertEqual(plain.stop()[0], 0)
        for size, n_files, n_warnings in ((FEW, 0, 1), (MANY, 1, 0), (MANY, 1, 0)):
            self.resize(size)
            server = self.serve("--weights", "tiles", "--weights-dir", self.disk / "weights")
            self.assertEqual(self.round(server, 0)[0], want)
            self.assertEqual(len(self.warnings(server)), n_warnings)
            self.assertEqual([file.suffix for file in self.files()], [".tiles"] * n_files)
            self.assertEqual(server.stop()[0], 0)


def main():
    if INSIDE not in os.environ:
        can = subprocess.run(["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL) if subprocess.run(
                                 ["sh", "-c", "command -v unshare"],
                                 stdout=subprocess.DEVNULL).returncode == 0 else None
        if can is None or can.returncode != 0:
            common.skip("no file system can be mounted in a namespace of one's own")
        os.execvpe("unshare", ["unshare", "-rm", sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})
    common.main("__main__")


if __name__ == "__main__":
    main()
