#!/usr/bin/env python3
"""runnel serve: nothing holds up the loop. Long bodies are read and answered while others are, with the answers that
short ones have; a log that nobody reads stops nobody; who leaves, and a server that ends, are seen meanwhile."""
import contextlib
import fcntl
import json
import os
import random
import re
import select
import signal
import socket
import struct
import subprocess
import threading
import unittest
from unittest import mock

import common
from batch_job import CHAT, EMBED, RESPONSES, TEXT, USER
from common import MODEL
from server import Server, template
from test_serve import BAD, STORY, WHOLE, join_chat, plain, without_ids

TRIES = 20  # of what a machine under load may spoil
F_SETPIPE_SZ = 1031


def sanitized():
    with open(common.program, "rb") as file:
        return b"__asan_init" in file.read()


MIB = 1 << 20
LONGEST, LONG = 32 * MIB, MIB  # texts; see setUpModule


def setUpModule():
    global LONGEST, LONG
    if sanitized():
        LONGEST, LONG = 2 * MIB, MIB // 4


def story(n):
    words = "river stone lantern old and walked under silver the bird to house sings of blue morning".split()
    return " ".join(random.Random(1).choices(words, k=n // 4))[:n]


def request(path, body, close=False):
    return (b"POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n"
            % (path.encode(), b"Connection: close\r\n" if close else b"", len(body)) + body)


class Loop(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-body", "80M", "--quiet", *cls.enterClassContext(template()))

    @classmethod
    def tearDownClass(cls):
        code, said = cls.server.stop()
        assert code == 0, (code, said)

    def send_all_but_the_last(self, path, body, close=True):
        """A socket with all of a request but its last byte, which the server has received."""
        data = request(path, body, close)
        before = self.server.metric("runnel_http_received_bytes_total")
        client = socket.create_connection(("127.0.0.1", self.server.port), timeout=common.PATIENCE)
        client.sendall(data[:-1])
        while self.server.metric("runnel_http_received_bytes_total") < before + len(data) - 1:
            pass
        return client, data[-1:]

    def probe_during(self, path, body):
        """The answer to a long body; and how often /health was answered between the end of the one and the beginning of
        the other. A server that reads or answers it on the loop answers nobody then."""
        probe = self.server.connect()
        client, last = self.send_all_but_the_last(path, body)
        answered = 0
        with client:
            client.sendall(last)
            while True:
                probe.request("GET", "/health")
                self.assertEqual(probe.getresponse().read(), b'{"status":"ok"}')
                if select.select([client], [], [], 0)[0]:
                    break
                answered += 1
            probe.close()
            parts = []
            while part := client.recv(MIB):
                parts.append(part)
        head, _, answer = b"".join(parts).partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), json.loads(answer), answered

    def ask(self, path, body):
        for _ in range(TRIES):
            status, answer, answered = self.probe_during(path, body)
            if answered > 0:
                return status, answer
        self.fail(f"{path}: nobody is answered meanwhile")

    def test_the_longest_text(self):
        text = story(LONGEST)
        status, got = self.ask("/tokenize", json.dumps({"content": text}).encode())
        self.assertEqual((status, got["count"]), (200, len(got["tokens"])))
        self.assertLess(got["count"], len(text) // 2)
        status, back = self.ask("/detokenize", json.dumps({"tokens": got["tokens"]}).encode())
        self.assertEqual((status, back["content"] == text), (200, True))

    def test_long_conversations(self):
        text = story(LONG)
        body = json.dumps({"messages": [{"role": "user", "content": text}], "max_tokens": 4}).encode()
        status, prompt = self.ask("/apply-template", body)
        self.assertEqual(status, 200)
        self.assertIn(text[:-1], prompt["prompt"])
        status, count = self.ask("/v1/messages/count_tokens", body)
        self.assertEqual(status, 200)
        want = self.server.post("/tokenize", {"content": prompt["prompt"], "parse_special": True, "add_special": True})
        self.assertEqual(count["input_tokens"], want[1]["count"])
        for path in (CHAT, "/v1/messages", "/api/chat"):
            with self.subTest(path=path):
                status, answer = self.ask(path, body)
                self.assertEqual(status, 400, answer)
                self.assertIn("tokens", json.dumps(answer))

    def test_long_prompts(self):
        text = story(LONG)
        for path, body in ((TEXT, {"prompt": [STORY, text]}), (EMBED, {"input": text}), (RESPONSES, {"input": text}),
                           (TEXT, {"prompt": [5] * (LONG // 8)}),
                           ("/infill", {"input_prefix": text, "input_suffix": "a"})):
            with self.subTest(path=path):
                status, answer = self.ask(path, json.dumps(body).encode())
                self.assertEqual(status, 400, answer)
                if path != "/infill":
                    self.assertEqual(answer["error"]["code"], "context_length_exceeded", answer)

    def test_many_embeddings(self):
        """All vectors are there, and the figures are asked for before the answer is written."""
        inputs = [f"{word} {i}" for i, word in enumerate(story(4000).split()[:400])]
        for _ in range(TRIES):
            with self.server.begin(EMBED, {"input": inputs}) as client:
                while self.server.metric("runnel_streams") == 0 and not select.select([client], [], [], 0)[0]:
                    pass
                while self.server.metric("runnel_streams") > 0:
                    pass
                if not select.select([client], [], [], 0)[0]:
                    break
        else:
            self.fail("nobody is answered meanwhile")
        got = self.server.post(EMBED, {"input": inputs})[1]["data"]
        for i in (0, 1, 399):
            self.assertEqual(got[i]["embedding"],
                             self.server.post(EMBED, {"input": inputs[i]})[1]["data"][0]["embedding"])
        self.assertEqual(len(self.server.post("/api/embed", {"input": inputs})[1]["embeddings"]), 400)

    def test_long_bodies_at_once(self):
        """A body that was read is done with before the next is read: many take no more memory than a few."""
        if sanitized():
            self.skipTest("memory is not the program's own")

        def highest():
            with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))

        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(self, "server", Server("--quiet")))
            stack.callback(self.server.stop)
            body = json.dumps({"prompt": "a", "max_tokens": 1, "x": [{}] * (LONG // 4)}).encode()
            tree = LONG // 4 * 300 >> 10  # about; KiB
            self.server.post(TEXT, {"prompt": "a", "max_tokens": 1})
            before = highest()
            clients = [self.send_all_but_the_last(TEXT, body) for _ in range(32)]
            for client, last in clients:
                client.sendall(last)
            for client, _ in clients:
                self.assertIn(b"HTTP/1.1 200 ", client.recv(100))
                client.close()
            self.assertLess(highest() - before, 12 * tree)

    def test_long_and_wrong(self):
        for body in (b"[" * LONG, b"{" + b" " * LONG, b'{"prompt": "' + b"\xff" * LONG + b'"}',
                     b'{"a": [1, {}]}' + b" " * LONG,
                     b'{"a": [' + b"[{}]," * (LONG // 5) + b"0]}"):
            with self.subTest(body=body[:20]):
                status, answer, _ = self.probe_during(TEXT, body)  # some are known to be wrong at once
                self.assertEqual((status, answer["error"]["type"]), (400, "invalid_request_error"), answer)

    def test_long_bodies_are_answered_as_short_ones(self):
        padding = {"unheard_of": "x" * 70000}
        for url, body in WHOLE:
            with self.subTest(body=body):
                want, got = self.server.post(url, body), self.server.post(url, {**body, **padding})
                self.assertEqual((want[0], plain(want[1])), (got[0], plain(got[1])))
                if url == CHAT:
                    want, got = (join_chat(self.server.events(url, {**body, **more})) for more in ({}, padding))
                    self.assertEqual(without_ids(want), without_ids(got))
        for url, body, status, code, param in BAD:
            if isinstance(body, dict):
                with self.subTest(url=url, body=str(body)[:100]):
                    got, answer = self.server.post(url, {**body, **padding})
                    self.assertEqual((got, answer["error"]["code"], answer["error"]["param"]), (status, code, param))

    def test_who_leaves(self):
        """In the middle of the work, and in the queue for it: two run at once."""
        body = json.dumps({"content": story(LONG)}).encode()
        for linger in (b"\0" * 8, struct.pack("ii", 1, 0)):
            clients = [self.send_all_but_the_last(path, body, False)
                       for path in ("/tokenize", "/tokenize", TEXT, "/tokenize", TEXT)]
            for client, last in clients:
                client.sendall(last)
            for client, _ in clients:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                client.close()
            while self.server.metric("runnel_http_connections") > 1:
                pass
        self.assertEqual(self.server.post("/tokenize", {"content": "a"})[1]["count"], 1)
        self.assertEqual(self.server.metric("runnel_streams"), 0)


class Ends(unittest.TestCase):
    def test_a_server_that_ends_meanwhile(self):
        server = Server("--drain", "0.05")
        data = request("/tokenize", json.dumps({"content": story(LONG)}).encode())
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(6)]
        threads = [threading.Thread(target=client.sendall, args=(data,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(server.stop()[0], 0)
        for client in clients:
            client.close()


class Log(unittest.TestCase):
    """Standard error is a pipe of a page."""

    def serve(self):
        process = common.popen([common.program, "serve", MODEL, "--port", "0", "-t", "2", "--log-json",
                                "--log-prompts"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        fcntl.fcntl(process.stderr.fileno(), F_SETPIPE_SZ, 4096)
        self.port = int(re.search(rb":(\d+)\n", process.stdout.readline())[1])
        return process

    def ask(self, n):
        """Each is a line of 60,000 bytes."""
        for i in range(n):
            body = json.dumps({"content": "a" * 60000}).encode()
            with socket.create_connection(("127.0.0.1", self.port), timeout=common.PATIENCE) as client:
                client.sendall(request("/tokenize", body, True))
                self.assertEqual(client.recv(MIB)[:13], b"HTTP/1.1 200 ", i)
                while client.recv(MIB):
                    pass

    def test_a_reader_that_stops(self):
        process = self.serve()
        self.ask(40)  # 1 MiB waits, and a page is in the pipe
        got, n_requests, lost = b"", 0, 0
        while n_requests + lost < 40:
            got += os.read(process.stderr.fileno(), MIB)
            lines = got.split(b"\n")
            got = lines.pop()
            for line in map(json.loads, lines):
                n_requests += line["message"] == "request"
                found = re.match(r"(\d+) lines of this log are lost", line["message"])
                lost += int(found[1]) if found else 0
        self.assertEqual(n_requests + lost, 40)
        self.assertGreater(lost, 0)
        self.assertGreater(n_requests, 10)
        self.ask(1)
        process.send_signal(signal.SIGTERM)
        rest = [json.loads(line) for line in (got + process.stderr.read()).splitlines()]
        self.assertEqual([line["message"] for line in rest][0], "request")
        self.assertEqual(process.wait(common.PATIENCE), 0)

    def test_a_reader_that_never_comes(self):
        process = self.serve()
        self.ask(4)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(common.PATIENCE), 0)

    def test_a_reader_that_has_gone(self):
        process = self.serve()
        process.stderr.close()
        self.ask(4)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(common.PATIENCE), 0)


if __name__ == "__main__":
    common.main("__main__")
