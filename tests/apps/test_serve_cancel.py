#!/usr/bin/env python3
"""runnel serve: who leaves ends what it has asked for, in each state that a request can be in, by closing the
connection (FIN) and by breaking it off (RST), of streamed answers and of whole ones. Judged by the server's own
figures: streams, messages, queued tokens and KV blocks fall to 0, and what was asked for counts as aborted."""
import os
import random
import socket
import struct
import subprocess
import tempfile
import time
import unittest

import common
from common import MODEL
from server import NAME, Server

TEXT = "/v1/completions"
TRIES = 50  # of what is over before its client has left
STORY = "Once upon a time there was a lantern by the river. "
ENDLESS = {"prompt": STORY, "max_tokens": 1 << 30, "ignore_eos": True, "context_keep": 0}
GAUGES = ("runnel_streams", "runnel_messages", "runnel_queued_tokens", "runnel_queued_bytes")
OF_MODEL = ("runnel_kv_blocks_used", "runnel_num_requests_running", "runnel_num_requests_waiting")


def words(n, seed):
    names = "river stone lantern old and walked under silver the bird to house sings of blue morning".split()
    return " ".join(random.Random(seed).choices(names, k=n))


class Cancel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        ranker = os.path.join(cls.folder, "ranker.gguf")
        subprocess.run([os.environ["RUNNEL_MAKE_RANKER"], MODEL, ranker, "bare"], check=True)
        cls.server = Server(f"ranker={ranker}", "--no-prefix-cache", "--kv-size", "3400K", "--max-streams", 256,
                            "--quiet")
        cls.seed = 0

    @classmethod
    def tearDownClass(cls):
        code, said = cls.server.stop()
        assert code == 0, (code, said)

    def figures(self):
        """Sums over the models by the names of the metrics."""
        sums = {}
        for line in self.server.get("/metrics")[1].decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                key = name.split("{")[0] + (":abort" if 'finished_reason="abort"' in name else "")
                sums[key] = sums.get(key, 0) + float(value)
        return sums

    def wait_until(self, fn):
        while not fn(figures := self.figures()):
            time.sleep(0.001)
        return figures

    def expect_quiet(self):
        return self.wait_until(lambda f: not any(f[name] for name in GAUGES + OF_MODEL) and
                               f["runnel_http_connections"] == 1)

    def leave(self, client, how):
        if how == "RST":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

    def matrix(self, path, body, reached, streams=(True, False)):
        """body(): of a new request; reached(figures): it is in the state."""
        for stream in streams:
            for how in ("FIN", "RST"):
                with self.subTest(stream=stream, how=how):
                    for _ in range(TRIES):
                        before = self.figures()["runnel_request_success_total:abort"]
                        client = self.server.begin(path, {**body(), "stream": stream})
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                        self.wait_until(reached)
                        self.leave(client, how)
                        if self.expect_quiet()["runnel_request_success_total:abort"] > before:
                            break
                    else:
                        self.fail("its request is always over before its client has left")

    def next_seed(self):
        type(self).seed += 1
        return self.seed

    def test_prefill(self):
        self.matrix(TEXT, lambda: {"prompt": [words(500, self.next_seed()) for _ in range(32)], "max_tokens": 1},
                    lambda f: f["runnel_num_requests_running"] > 0)

    def test_grammar(self):
        """Many alternatives that none has asked for before take a while to compile."""
        def body():
            seed = self.next_seed()
            self.n_steps = self.figures()["runnel_steps_total"]
            return {"prompt": STORY, "max_tokens": 1,
                    "guided_regex": "|".join(f"w{(i * 7919 + seed) % 1000003}x" for i in range(8000))}
        self.matrix(TEXT, body, lambda f: f["runnel_streams"] > 0 or f["runnel_steps_total"] > self.n_steps)

    def test_answers(self):
        self.matrix(TEXT, lambda: {**ENDLESS, "n": 4}, lambda f: f["runnel_num_requests_running"] == 4)

    def test_slow_reader(self):
        """Paused: more than a mebibyte waits for it, and its streams stand still."""
        def stand_still(figures):
            tokens = figures["runnel_generation_tokens_total"]
            still = tokens > 0 and tokens == self.tokens
            self.n_still = self.n_still + 1 if still else 0
            self.tokens = tokens
            time.sleep(0.01)
            return self.n_still == 5
        self.tokens = self.n_still = 0
        self.matrix(TEXT, lambda: {**ENDLESS, "logprobs": 5}, stand_still, streams=(True,))

    def test_embeddings(self):
        self.matrix("/v1/embeddings",
                    lambda: {"input": [words(500, self.next_seed()) for _ in range(32)], "model": NAME},
                    lambda f: f["runnel_streams"] > 0, streams=(False,))

    def test_ranking(self):
        self.matrix("/v1/rerank", lambda: {"model": "ranker", "query": "a lantern", "documents":
                                           [words(200, self.next_seed()) for _ in range(64)]},
                    lambda f: f["runnel_streams"] > 0, streams=(False,))

    def test_queue(self):
        """Behind a request that has nearly all of the KV blocks, and goes first whenever it needs more."""
        hog = self.server.begin(TEXT, {**ENDLESS, "prompt": words(600, 0), "priority": 9})
        before = self.wait_until(lambda f: f["runnel_kv_blocks_used"] > 20)["runnel_http_connections"]
        self.expect_quiet = lambda: self.wait_until(
            lambda f: f["runnel_streams"] == 1 and f["runnel_num_requests_waiting"] == 0 and
            f["runnel_http_connections"] == before)
        self.matrix(TEXT, lambda: {"prompt": words(500, self.next_seed()), "max_tokens": 1},
                    lambda f: f["runnel_num_requests_waiting"] > 0)
        del self.expect_quiet
        self.leave(hog, "FIN")
        self.expect_quiet()


if __name__ == "__main__":
    common.main("__main__")
