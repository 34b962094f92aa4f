#!/usr/bin/env python3
"""runnel serve under load, from bench_serve: 2,000 streams at once (500 with sanitizers), ten times more clients than
it takes, ten thousand quiet connections, and a process killed in the middle. Nothing is judged by time: answers are
whole and the same as the program's, memory is bounded, nothing is left behind.

    test_serve_load.py RUNNEL BENCH_SERVE"""
import contextlib
import json
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

import common
from common import MODEL
from server import Server

BENCH = sys.argv.pop(2)


def load(server, *options):
    """What bench_serve tells, all of whose answers have one text."""
    done = subprocess.run([BENCH, "--port", str(server.port), "--same", "--json", *map(str, options)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=common.PATIENCE)
    if done.returncode != 0:
        raise AssertionError(done.stderr.decode()[:2000])
    return json.loads(done.stdout)


def prompt(words):
    """What `--same --prompt words` asks: the same generator, by its definition."""
    names = "river stone lantern old and walked under silver the bird to house sings of blue morning".split()
    state, text = 0x9E3779B97F4A7C15, ""
    for _ in range(words):
        state ^= state << 13 & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 7
        state ^= state << 17 & 0xFFFFFFFFFFFFFFFF
        text += " " + names[state >> 60]
    return text


def program_text(text, tokens):
    words = [common.program, "run", MODEL, "-p", text, "-n", str(tokens), "--temperature", "0", "--ignore-eos", "-t",
             "2"]
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()


def memory_kib(server, field):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field + ":"))


class Load(unittest.TestCase):
    def serve(self, *options):
        server = Server(*options)
        self.addCleanup(lambda: server.process.poll() is None and server.stop(signal.SIGKILL))
        return server

    def expect_quiet(self, server):
        while server.metric("runnel_streams") > 0:
            pass

    def test_many_streams(self):
        """One never reads: the others are served, and the loop answers others in between."""
        n = 500 if common.sanitized() else 2000
        server = self.serve("--max-streams", 2048, "--max-connections", 2100)
        told = load(server, "--clients", n, "--requests", 1, "--never-read", 1, "--prompt", 8, "--max-tokens", 24,
                    "--probe", 5)
        self.assertEqual((told["answers"], told["refused"], told["tokens"]), (n, 0, n * 24))
        self.assertEqual(json.loads(f'"{told["text"]}"'), program_text(prompt(8), 24).removesuffix("\n"))
        self.expect_quiet(server)

    def test_overload(self):
        """Ten times more clients than streams: who is refused asks again until all are
        answered. Memory is that of what the server takes, not of what it is asked."""
        requests = 1 if common.sanitized() else 2
        server = self.serve("--max-streams", 32, "--max-connections", 400)
        load(server, "--clients", 32, "--requests", 2, "--prompt", 16, "--max-tokens", 32)
        before = memory_kib(server, "VmRSS")
        told = load(server, "--clients", 320, "--requests", requests, "--prompt", 16, "--max-tokens", 32)
        self.assertEqual((told["answers"], told["tokens"]), (320 * requests, 320 * requests * 32))
        self.assertGreater(told["refused"], 0)
        if not common.sanitized():
            self.assertLess(memory_kib(server, "VmHWM") - before, 32 * 1024)
        self.expect_quiet(server)
        self.assertEqual(server.get("/ready")[0], 200)

    def test_quiet_connections(self):
        """Ten thousand connections that ask nothing cost little, and nobody else."""
        n = min(10000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 200)
        resource.setrlimit(resource.RLIMIT_NOFILE, (n + 200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        server = self.serve("--max-connections", n + 64)
        before = memory_kib(server, "VmRSS")
        with contextlib.ExitStack() as stack:
            for _ in range(n):
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            told = load(server, "--clients", 8, "--requests", 2, "--prompt", 8, "--max-tokens", 16)
            self.assertEqual(told["answers"], 16)
            self.assertGreaterEqual(server.metric("runnel_http_connections"), n)
            if not common.sanitized():
                self.assertLess((memory_kib(server, "VmRSS") - before) / n, 8)  # KiB for each, all told
        while server.metric("runnel_http_connections") > 8:
            pass

    def test_killed(self):
        """kill -9 in the middle of answers: the next process takes what the cache's files have, with the same text."""
        with tempfile.TemporaryDirectory() as folder:
            options = ("--cache-dir", folder, "--max-streams", 32)
            body = {"prompt": "Once upon a time there was a lantern by the river. " * 12, "max_tokens": 16,
                    "temperature": 0}
            server = self.serve(*options)
            _, first = server.post("/v1/completions", body)
            self.assertEqual(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
            server.post("/v1/completions", body)  # a prefix that comes again goes into files
            while b'tier_bytes{model_name="runnel-tiny-Q8_0",tier="cold"} 0\n' in server.get("/metrics")[1]:
                pass
            clients = [server.begin("/v1/completions", {**body, "max_tokens": 4000, "ignore_eos": True, "stream": True})
                       for _ in range(8)]
            clients[0].recv(1)
            server.stop(signal.SIGKILL)
            for client in clients:
                client.close()
            server = self.serve(*options)
            _, second = server.post("/v1/completions", body)
            self.assertEqual(second["choices"], first["choices"])
            self.assertGreater(second["usage"]["prompt_tokens_details"]["cached_tokens"], 0)


if __name__ == "__main__":
    common.main("__main__")
