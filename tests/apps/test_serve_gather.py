#!/usr/bin/env python3
"""runnel serve --gather: tokens of a stream leave together, the first one and the end at once; answers are the same."""
import json
import os
import re
import time
import unittest

import common
from batch_job import CHAT, RESPONSES, TEXT, USER
from common import MODEL, run
from server import Server

STORY = "Once upon a time"
GATHER_MS = 10000  # the longest
BODIES = ((TEXT, {"prompt": STORY, "max_tokens": 60}), (CHAT, {"messages": USER, "max_tokens": 120}),
          (RESPONSES, {"input": STORY, "max_output_tokens": 60}),
          ("/v1/messages", {"messages": USER, "max_tokens": 60}),
          ("/api/generate", {"prompt": STORY, "raw": True, "options": {"seed": 1, "num_predict": 60}}),
          ("/completion", {"prompt": STORY, "n_predict": 60}))
TEXTS = re.compile(r'"(?:text|content|delta|response)":"((?:[^"\\]|\\.)*)"')


def text_of(data):
    """All texts of a stream's events, one behind the other. Tokens that come together may share an event."""
    return "".join(TEXTS.findall(data.decode()))


class Gather(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plain, cls.gathers = Server("--quiet"), Server("--quiet", "--gather", GATHER_MS)

    @classmethod
    def tearDownClass(cls):
        for server in (cls.plain, cls.gathers):
            code, said = server.stop()
            assert code == 0, (code, said)

    def stream(self, server, path, body):
        """The bytes of a stream, how many writes brought it, and how many times of --gather have passed at most."""
        connection, began = server.connect(), time.monotonic()
        telling = -server.metric("runnel_http_writes_total") + server.metric("runnel_http_writes_total")
        before = server.metric("runnel_http_writes_total") + telling
        connection.request("POST", path, json.dumps({"seed": 1, "temperature": 0, "ignore_eos": True, **body,
                                                     "stream": True}))
        answer = connection.getresponse()
        data = answer.read()
        self.assertEqual(answer.status, 200, data)
        connection.close()
        writes = server.metric("runnel_http_writes_total") - before
        return data, writes, (time.monotonic() - began) * 1000 / GATHER_MS

    def test_the_same_in_fewer_writes(self):
        """The first token, and what came until the end; more only where that takes longer than --gather."""
        for path, body in BODIES:
            with self.subTest(path=path):
                plain, _, _ = self.stream(self.plain, path, body)
                data, writes, times = self.stream(self.gathers, path, body)
                self.assertEqual(text_of(data), text_of(plain))
                self.assertNotEqual(text_of(plain), "")
                self.assertLessEqual(writes, 4 + times)

    def test_the_first_token(self):
        """The answer has no end, so what waits grows: here it has not."""
        client = self.gathers.begin("/completion",
                                    {"prompt": STORY * 20, "n_predict": -1, "context_keep": 0, "stream": True,
                                                    "ignore_eos": True, "return_progress": True})
        data = b""
        with client:
            while b'"content":"' not in data.replace(b'"content":""', b""):
                more = client.recv(1 << 16)
                self.assertNotEqual(more, b"")
                data += more
        self.assertLess(data.count(b"data: "), 100)

    def test_values(self):
        server = Server("--quiet", env={**os.environ, "RUNNEL_GATHER": "20"})
        _, writes, _ = self.stream(server, *BODIES[0])
        self.assertGreater(writes, 0)
        self.assertEqual(server.stop()[0], 0)
        for value in ("-1", "10001", "1.5", "soon"):
            result = run("serve", MODEL, "--gather", value)
            self.assertEqual((result.returncode, b"--gather" in result.stderr), (2, True))


if __name__ == "__main__":
    common.main("__main__")
