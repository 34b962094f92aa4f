#!/usr/bin/env python3
"""runnel serve beside its answers: what HTTP refuses, connections, who leaves, limits, signals, keys, priorities and
options."""
import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import common
from batch_job import CHAT, EMBED, TEXT
from common import MODEL, run
from server import NAME, Served, Server

STORY = "Once upon a time"
LONG = {"prompt": STORY, "max_tokens": 1 << 30, "ignore_eos": True, "context_keep": 0}  # never ends by itself


class Http(Served):
    def test_what_http_refuses(self):
        """Also before a route has seen the request the error has the form of the route."""
        server = Server("--max-body", 1000)
        for path, form in ((CHAT, ["code", "message", "param", "type"]), ("/v1/messages", ["message", "type"]),
                           ("/api/chat", None), ("/completion", ["code", "message", "param", "type"])):
            status, answer = server.post(path, "x" * 2000)
            self.assertEqual(status, 413)
            self.assertEqual("too long" in answer["error"] if form is None else sorted(answer["error"]), form or True)
        _, answer = server.post(CHAT, "x" * 2000)
        self.assertEqual(answer["error"], {"message": "the body is too long", "type": "invalid_request_error",
                                           "param": None, "code": "content_too_large"})
        status, data, headers = server.ask("GET", "/v1/" + "a" * 40000)
        self.assertEqual((status, headers["content-type"], json.loads(data)["error"]["code"]),
                         (414, "application/json", "uri_too_long"))
        status, data, _ = server.ask("GET", "/v1/models", headers={"X": "a" * 40000})
        self.assertEqual((status, json.loads(data)["error"]["code"]), (431, "headers_too_large"))
        counted = [line for line in server.get("/metrics")[1].splitlines() if b'"4xx"' in line]
        self.assertEqual(counted, [b'runnel_http_answers_total{status="4xx"} 7'])
        self.assertEqual(server.stop()[0], 0)

    def test_refusals_of_http_are_told(self):
        """Each has an id, of its client where its head could be read, and a line of the log."""
        server = Server("--max-body", 1000, "--log-json")
        long, chunked, own = {"Content-Length": "2000"}, {"Transfer-Encoding": "chunked"}, {"X-Request-Id": "mine"}
        told = []
        for method, path, headers, body, status in (
                ("POST", "/v1/messages", {**long, **own}, b"", 413), ("POST", CHAT, {**own, "Expect": "x"}, b"", 417),
                ("POST", "/v1/messages", {**chunked, **own}, b"7d0\r\n" + b"x" * 2000, 413),
                ("GET", "/v1/" + "a" * 40000, own, b"", 414), ("GET", "/ready", {**own, "X": "a" * 40000}, b"", 431),
                ("HEAD", CHAT, {**own, **long}, b"", 413), ("POST", CHAT, {**own, "Content-Length": "x"}, b"", 400)):
            client = server.connect()
            client.putrequest(method, path, skip_accept_encoding=True)
            for name, value in headers.items():
                client.putheader(name, value)
            client.endheaders(body)
            answer = client.getresponse()
            data, name = answer.read(), answer.headers["x-request-id"]
            self.assertEqual((answer.status, data == b""), (status, method == "HEAD"))
            if path == "/v1/messages":
                self.assertEqual((json.loads(data)["request_id"], answer.headers["request-id"]), (name, name))
                self.assertEqual(json.loads(data)["error"]["type"], "request_too_large")
            if status in (414, 431):
                self.assertRegex(name, "^req_")
            else:
                self.assertEqual(name, "mine")
            told.append((name, status, 0 if method == "HEAD" else len(data), False))
            client.close()
            while sum('"message":"request"' in entry for entry in server.lines()) < len(told):
                pass
        code, said = server.stop()
        lines = [entry for entry in map(json.loads, said.splitlines()) if entry["message"] == "request"]
        self.assertEqual(code, 0)
        self.assertEqual([(e["id"], e["status"], e["bytes"], e["cancelled"]) for e in lines], told)
        self.assertEqual([(e["method"], e["route"]) for e in lines[:2]], [("POST", "/v1/messages"), ("POST", CHAT)])
        self.assertEqual([e["method"] for e in lines[3:6]], ["other", "other", "HEAD"])

    def test_too_many_connections_are_told(self):
        server = Server("--max-connections", 2)
        clients, refused = [server.connect() for _ in range(3)], []
        for client in clients:
            client.request("GET", "/health")
            answer = client.getresponse()
            answer.read()
            if answer.status == 503:
                self.assertEqual(answer.headers["retry-after"], "1")
                refused.append(answer.headers["x-request-id"])
        for client in clients:
            client.close()
        code, said = server.stop()
        self.assertEqual((code, len(refused) > 0), (0, True))
        for name in refused:
            self.assertRegex(said, rf"(?m)^\S+ other - 503, \d+ bytes, \S+ ms, {name}$")

    def test_bodies_in_a_coding(self):
        for path in (TEXT, "/v1/messages"):
            status, data, headers = self.server.ask("POST", path, b"\x1f\x8b\x08", {"Content-Encoding": "gzip"})
            self.assertEqual((status, headers["accept-encoding"]), (415, "identity"))
            self.assertIn("Content-Encoding", json.loads(data)["error"]["message"])
        body = json.dumps({"prompt": "a", "max_tokens": 1})
        self.assertEqual(self.server.ask("POST", TEXT, body, {"Content-Encoding": "identity"})[0], 200)

    def wait_for(self, name, value):
        while self.server.metric(name) != value:
            time.sleep(0.01)

    def test_who_leaves_ends_what_was_asked(self):
        for stream in (True, False):
            for read in ((0, 2000) if stream else (0,)):
                with self.subTest(stream=stream, read=read):
                    client = self.server.begin(TEXT, {**LONG, "n": 4, "stream": stream})
                    self.wait_for("runnel_streams", 4)
                    while read > 0:
                        read -= len(client.recv(1000))
                    client.close()
                    self.wait_for("runnel_streams", 0)
        with socket.create_connection(("127.0.0.1", self.server.port)) as client:  # before the request is whole
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        self.assertEqual(self.server.get("/health")[0], 200)

    def test_many_at_once_and_one_that_never_reads(self):
        lazy = self.server.begin(TEXT, {**LONG, "stream": True})
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = {"prompt": STORY, "max_tokens": 24, "temperature": 0}
        want = self.server.post(TEXT, body)[1]["choices"][0]["text"]
        got = [None] * 48

        def client(i):
            events = self.server.events(TEXT, body)
            got[i] = "".join(c["text"] for _, e in events if e != "[DONE]" for c in e["choices"])

        threads = [threading.Thread(target=client, args=(i,)) for i in range(len(got))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(got), {want})
        lazy.close()
        self.wait_for("runnel_streams", 0)


class Limits(unittest.TestCase):
    def test_full_and_going_down(self):
        server = Server("--max-streams", 2)
        held = server.begin(TEXT, {**LONG, "n": 2, "stream": True})
        while server.metric("runnel_streams") != 2:
            pass
        status, body, headers = server.ask("POST", TEXT, json.dumps({"prompt": "a"}))
        self.assertEqual((status, json.loads(body)["error"]["code"]), (503, "server_busy"))
        self.assertGreaterEqual(int(headers["retry-after"]), 1)
        self.assertEqual(server.post(EMBED, {"input": ["a", "b"]})[0], 503)
        held.close()
        while server.metric("runnel_streams") != 0:
            pass
        self.more_numbers_than_streams(server)
        client = server.connect()
        client.request("POST", TEXT,
                       json.dumps({"prompt": STORY, "max_tokens": 60, "ignore_eos": True, "stream": True}))
        answer = client.getresponse()
        answer.read(10)
        server.process.send_signal(signal.SIGTERM)
        self.assertTrue(answer.read().endswith(b"data: [DONE]\n\n"))
        answer.close()
        self.assertEqual(server.stop()[0], 0)

    def more_numbers_than_streams(self, server):
        """Are computed one after the other, also beside a stream of somebody else's; who leaves takes them along."""
        texts = [f"{STORY} {i}" for i in range(9)]
        want = [item["embedding"] for item in json.loads(run("embed", MODEL, *texts, "--json", "-q").stdout)["data"]]
        with contextlib.closing(server.begin(TEXT, {**LONG, "stream": True})):
            while server.metric("runnel_streams") != 1:
                pass
            status, got = server.post(EMBED, {"input": texts})
            self.assertEqual((status, [item["embedding"] for item in got["data"]]), (200, want))
            self.assertEqual([item["index"] for item in got["data"]], list(range(9)))
            status, got = server.post(EMBED, {"input": [*texts, [1 << 30]]})
            self.assertEqual((status, "vocabulary" in got["error"]["message"]), (400, True), got)
            left = server.begin(EMBED, {"input": texts * 200})
            while server.metric("runnel_streams") != 2:
                pass
            left.close()
        while server.metric("runnel_streams") != 0:
            pass
        self.assertEqual(server.metric("runnel_http_disconnected_total"), 3)

    def test_a_second_signal_ends_at_once(self):
        server = Server()
        client = server.connect()
        client.request("POST", TEXT, json.dumps({**LONG, "stream": True}))
        answer = client.getresponse()
        answer.read(10)
        server.process.send_signal(signal.SIGTERM)
        while "going down" not in server.said():
            pass
        self.assertEqual(server.stop(signal.SIGINT)[0], 0)
        answer.close()

    def test_keys(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("# two of them\nfirst-key\n\nsecond-key\n")
            keys.flush()
            env = {**os.environ, "RUNNEL_API_KEY": "third-key"}
            server = Server("--api-key-file", keys.name, "--cors", "https://a.example", env=env)
        body = json.dumps({"prompt": STORY, "max_tokens": 1})
        for field in ({}, {"Authorization": "Bearer first"}, {"Authorization": "Bearer first-keyx"},
                      {"Authorization": "Bearer "}, {"Authorization": "first-key"}, {"X-Api-Key": "x" * 300}):
            for method, path in (("POST", TEXT), ("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/nothing"),
                                 ("POST", "/tokenize"), ("GET", "/props")):
                with self.subTest(field=field, path=path):
                    status, answer, headers = server.ask(method, path, body if method == "POST" else None, field)
                    self.assertEqual((status, headers["www-authenticate"]), (401, "Bearer"))
                    self.assertNotIn(b"first-key", answer)
        for key in ("first-key", "second-key", "third-key"):
            self.assertEqual(server.ask("POST", TEXT, body, {"Authorization": f"Bearer {key}"})[0], 200)
            self.assertEqual(server.ask("POST", TEXT, body, {"x-api-key": key})[0], 200)
        self.assertEqual(server.get("/health")[0], 200)
        for origin, seen in (("https://a.example", "https://a.example"), ("https://a.example.evil.org", None),
                             ("https://a.exampl", None), ("null", None)):
            headers = server.ask("OPTIONS", TEXT, None, {"Origin": origin})[2]
            self.assertEqual(headers.get("access-control-allow-origin"), seen)
        server.stop()

    def test_what_needs_no_key_needs_no_body(self):
        """Else who has no key could fill the room that all bodies share."""
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("first-key\n")
            keys.flush()
            server = Server("--api-key-file", keys.name)
        for method, path, status in (("GET", "/health", 200), ("GET", "/ready", 200), ("GET", "/", 200),
                                     ("HEAD", "/page/main.js", 200), ("GET", "/page/none", 404),
                                     ("POST", "/health", 401)):
            client = server.connect()
            client.request(method, path, headers={"Content-Length": "1000"})  # of which nothing comes
            answer = client.getresponse()
            answer.read()
            self.assertEqual((answer.status, answer.headers["connection"]), (status, "close"))
            client.request("GET", "/health", b"abc")
            self.assertEqual(client.getresponse().read(), b'{"status":"ok"}')
            client.close()
        self.assertEqual(server.stop()[0], 0)

    def test_tenants_share_no_cache(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("one\ntwo\n")
            keys.flush()
            server = Server("--api-key-file", keys.name)
        body = json.dumps({"prompt": STORY * 40, "max_tokens": 1})

        def cached(key):
            answer = server.ask("POST", TEXT, body, {"Authorization": f"Bearer {key}"})[1]
            return json.loads(answer)["usage"]["prompt_tokens_details"]["cached_tokens"]

        self.assertEqual(cached("one"), 0)
        self.assertGreater(cached("one"), 0)
        self.assertEqual(cached("two"), 0)
        server.stop()

    def test_nice(self):
        """The system tells the priority of threads that compute, and of the others."""
        mine = os.nice(0)
        for options, env, by in (((), {}, 10), (("--nice", 3), {}, 3), (("--nice", 0), {}, 0),
                                 ((), {"RUNNEL_NICE": "4"}, 4)):
            server = Server("--quiet", *options, env={**os.environ, **env})
            server.post(TEXT, {"prompt": STORY, "max_tokens": 1})
            seen = {True: set(), False: set()}
            for thread in os.listdir(f"/proc/{server.process.pid}/task"):
                with open(f"/proc/{server.process.pid}/task/{thread}/stat", encoding="utf-8") as file:
                    name, fields = file.read().split("(", 1)[1].rsplit(")", 1)
                seen[name.startswith("rn-cpu-")].add(int(fields.split()[16]))
            self.assertEqual(seen, {True: {min(mine + by, 19)}, False: {mine}})
            self.assertEqual(server.stop()[0], 0)
        for value in ("-1", "20", "low"):
            result = run("serve", MODEL, "--nice", value)
            self.assertEqual((result.returncode, b"--nice" in result.stderr), (2, True))

    def test_environment(self):
        env = {**os.environ, "RUNNEL_MAX_STREAMS": "1", "RUNNEL_CTX": "64"}
        server = Server(env=env)
        self.assertEqual(json.loads(server.get("/v1/models")[1])["data"][0]["max_model_len"], 64)
        self.assertEqual(server.post(TEXT, {"prompt": "a", "n": 2})[0], 400)  # no time helps
        server.stop()
        result = subprocess.run([common.program, "serve", MODEL], env={**os.environ, "RUNNEL_PORT": "http"},
                                capture_output=True, timeout=common.PATIENCE)
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"RUNNEL_PORT", result.stderr)

    def test_several_models(self):
        server = Server(f"copy={MODEL}")
        while json.loads(server.get("/ready")[1])["status"] != "ready":
            pass
        self.assertEqual([m["id"] for m in json.loads(server.get("/v1/models")[1])["data"]], [NAME, "copy"])
        body = {"prompt": STORY, "max_tokens": 8, "temperature": 0}
        _, one = server.post(TEXT, {**body, "model": NAME})
        _, two = server.post(TEXT, {**body, "model": "copy"})
        self.assertEqual((one["model"], two["model"]), (NAME, "copy"))
        self.assertEqual(one["choices"], two["choices"])
        server.stop()

    def test_refused_at_the_start(self):
        for words, code, part in ((("serve",), 2, b"MODEL"), (("serve", "/nosuch.gguf", "--port", "0"), 1, b"/nosuch"),
                                  (("serve", MODEL, MODEL, "--port", "0"), 2, b"two models"),
                                  (("serve", MODEL, "--port", "99999"), 2, b"--port"),
                                  (("serve", f"={MODEL}", "--port", "0"), 2, b"1 to 127"),
                                  (("serve", f"{'a' * 128}={MODEL}", "--port", "0"), 2, b"1 to 127"),
                                  (("serve", MODEL, "--tls-cert", "x"), 2, b"--tls-key"),
                                  (("serve", MODEL, "--host", "999.1.1.1", "--port", "0"), 1, b"cannot listen"),
                                  (("serve", MODEL, "--api-key-file", "/dev/null", "--port", "0"), 1, b"no key"),
                                  (("serve", "--models-dir", "/nosuch", "--port", "0"), 1, b"/nosuch")):
            with self.subTest(words=words):
                result = run(*words)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn(part, result.stderr)


if __name__ == "__main__":
    common.main("__main__")
