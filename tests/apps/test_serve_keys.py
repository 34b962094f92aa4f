#!/usr/bin/env python3
"""runnel serve: who may ask for what, and how much. Each route of the table is tried without a key, with a wrong one,
with one of another scope and with its own."""
import hashlib
import json
import os
import re
import subprocess
import tempfile
import unittest

import common
from batch_job import CHAT, EMBED, TEXT, USER
from common import MODEL, run
from server import NAME, Server

SCOPES = ("chat", "embeddings", "tokens", "models", "metrics", "admin")
PUBLIC = {"/", "/page/", "/health", "/v1/health", "/ready"}  # what needs no key: nothing else may join this list unseen
SHORT = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
LONG = {"prompt": "Once", "max_tokens": 1 << 30, "ignore_eos": True, "context_keep": 0}  # never ends by itself
MESSAGES = "/v1/messages"


def table():
    """method, path and scope ("": public) of each route, from the source."""
    text = (common.ROOT / "apps/serve/routes.c").read_text()
    rows = re.findall(r'\{"([A-Z]+)",\s+"([^"]+)",\s+SCOPE_(\w+),', text)
    assert len(rows) == text.count('    {"GET", ') + text.count('    {"POST", ') + text.count('    {"DELETE", ')
    return [(method, path, "" if scope == "PUBLIC" else scope.lower()) for method, path, scope in rows]


def key_file(text):
    file = tempfile.NamedTemporaryFile("w")
    file.write(text)
    file.flush()
    return file


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def hashed(key):
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


class Routes(unittest.TestCase):
    def test_each_route(self):
        with key_file("".join(f"{hashed('key-of-' + s)} {s}-only scopes={s}\n" for s in SCOPES)) as keys:
            server = Server("--api-key-file", keys.name)
        rows = table()
        self.assertGreater(len(rows), 20)
        self.assertEqual({path for _, path, scope in rows if not scope}, PUBLIC)
        for method, path, scope in rows:
            path += "x" if path.endswith("/") and path != "/" else ""
            body = "{" if method == "POST" else None
            for field in ({}, bearer("wrong"), bearer(hashed("key-of-chat")), bearer("key-of-chat" + "x" * 300)):
                with self.subTest(path=path, field=field):
                    status = server.ask(method, path, body, field)[0]
                    self.assertEqual(status == 401, scope != "", status)
            for other in SCOPES:
                with self.subTest(path=path, other=other):
                    status, answer, _ = server.ask(method, path, body, bearer(f"key-of-{other}"))
                    self.assertEqual(status == 403, scope not in ("", other), answer)
                    self.assertNotEqual(status, 401)
                    self.assertNotIn(b"key-of", answer)
        error = json.loads(server.ask("POST", TEXT, "{", bearer("key-of-metrics"))[1])["error"]
        self.assertEqual((error["type"], error["code"]), ("permission_error", "insufficient_scope"))
        error = json.loads(server.ask("POST", MESSAGES, "{", bearer("key-of-metrics"))[1])["error"]
        self.assertEqual(error["type"], "permission_error")
        said = server.stop()[1]
        self.assertNotIn("key-of", said)


class Limits(unittest.TestCase):
    def serve(self, words):
        with key_file(f"first {words}\nsecond\n") as keys:
            server = Server("--api-key-file", keys.name)
        self.addCleanup(server.stop)
        return server

    def ask(self, server, body=None, path=TEXT, key="first"):
        status, answer, headers = server.ask("POST", path, json.dumps(body or SHORT), bearer(key))
        return status, json.loads(answer), headers

    def refused(self, got, kind, code):
        status, answer, headers = got
        self.assertEqual(status, 429, answer)
        self.assertEqual((answer["error"]["type"], answer["error"]["code"]), (kind, code))
        self.assertEqual(sorted(answer["error"]), ["code", "message", "param", "type"])
        return headers

    def test_requests_a_minute(self):
        server = self.serve("requests=3")
        for left in (2, 1, 0):
            status, _, headers = self.ask(server)
            self.assertEqual((status, headers["x-ratelimit-limit-requests"]), (200, "3"))
            self.assertLessEqual(left, int(headers["x-ratelimit-remaining-requests"]))
        statuses = [self.ask(server) for _ in range(30)]  # a machine that needs 20 s for one of these sees one more
        refused = [got for got in statuses if got[0] == 429]
        headers = self.refused(refused[0], "requests", "rate_limit_exceeded")
        self.assertGreaterEqual(int(headers["retry-after"]), 1)
        self.assertLessEqual(int(headers["retry-after"]), 20)
        self.assertRegex(headers["x-ratelimit-reset-requests"], r"^(\d+m)?\d+(\.\d+)?m?s$")
        self.assertEqual(self.ask(server, key="second")[0], 200)
        self.assertNotIn("x-ratelimit-limit-requests", self.ask(server, key="second")[2])
        self.assertEqual(server.ask("GET", "/v1/models", None, bearer("first"))[0], 200)
        while True:  # each of these may be let in where the machine is slow
            status, answer, headers = self.ask(server, {"messages": USER, "max_tokens": 1}, MESSAGES)
            if status == 429:
                break
        self.assertEqual((answer["type"], answer["error"]["type"]), ("error", "rate_limit_error"))
        self.assertIn("retry-after", headers)

    def test_tokens_a_minute(self):
        server = self.serve("tokens=1000")
        status, answer, headers = self.ask(server, {**SHORT, "max_tokens": 400, "n": 4, "context_keep": 0})
        self.assertEqual((status, headers["x-ratelimit-remaining-tokens"]), (200, "1000"))
        self.assertEqual(answer["usage"]["completion_tokens"], 1600)
        got = self.ask(server)
        self.refused(got, "tokens", "rate_limit_exceeded")
        self.assertEqual(got[2]["x-ratelimit-remaining-tokens"], "0")

    def test_budget(self):
        server = self.serve("budget=64")
        status, answer, _ = self.ask(server)
        each = answer["usage"]["total_tokens"]
        for _ in range(63 // each - 1):
            self.assertEqual(self.ask(server)[0], 200)
        self.ask(server)  # it crosses the budget: whole or cut off, by which token is the last
        headers = self.refused(self.ask(server), "insufficient_quota", "insufficient_quota")
        self.assertNotIn("retry-after", headers)
        self.assertEqual(self.ask(server, key="second")[0], 200)

    def test_budget_ends_an_answer(self):
        for stream in (False, True):
            server = self.serve("budget=200")
            status, data, _ = server.ask("POST", TEXT, json.dumps({**LONG, "stream": stream}), bearer("first"))
            self.assertEqual(status, 200 if stream else 429)
            self.assertIn(b"insufficient_quota", data)
            self.assertEqual(self.ask(server)[0], 429)

    def test_embeddings_are_paid(self):
        server = self.serve("budget=10")
        status, answer, _ = self.ask(server, {"input": "one two three four five six seven " * 3}, EMBED)
        self.assertEqual(status, 200)
        self.assertGreaterEqual(answer["usage"]["total_tokens"], 10)
        self.assertEqual(self.ask(server, {"input": "one"}, EMBED)[0], 429)

    def test_answers_at_once(self):
        server = self.serve("streams=2")
        for more, param, path in (({"n": 3}, "n", TEXT), ({"prompt": ["a", "b", "c"]}, "prompt", TEXT),
                                  ({"n": 1, "best_of": 3}, "best_of", TEXT), ({"n_cmpl": 3}, "n_cmpl", "/completion"),
                                  ({"n": 3}, "n", "/completion")):  # no time helps
            status, answer, headers = self.ask(server, {**SHORT, **more}, path)
            self.assertEqual((status, answer["error"]["param"]), (400, param))
            self.assertIn("this key may have 2", answer["error"]["message"])
            self.assertNotIn("retry-after", headers)
        self.assertEqual(self.ask(server, {**SHORT, "n": 2})[0], 200)
        client = server.connect()
        client.request("POST", TEXT, json.dumps({**LONG, "stream": True}), bearer("first"))
        client.getresponse().read(10)
        self.refused(self.ask(server, {**SHORT, "n": 2}), "requests", "rate_limit_exceeded")
        self.assertEqual(self.ask(server)[0], 200)
        status, answer, _ = self.ask(server, {"input": ["one", "two", "three"]}, EMBED)  # one after the other
        self.assertEqual((status, len(answer["data"])), (200, 3))
        client.close()
        while self.ask(server, {**SHORT, "n": 2})[0] != 200:
            pass

    def test_bad_files(self):
        for text, part in (("a\nb c\n", "line 2"), ("sha256:12 x\n", "64 hexadecimal"),
                           ("a scopes=all\n", "scopes are"),
                           ("a\na\n", "this key was there"), ("a\0b\n", "NUL"), ("# nothing\n", "no key"),
                           ("a requests=0\n", "1 to 10^12")):
            with self.subTest(text=text), key_file(text) as keys:
                result = run("serve", MODEL, "--port", "0", "--api-key-file", keys.name)
                self.assertEqual(result.returncode, 1)
                self.assertIn(part, result.stderr.decode())
        result = subprocess.run([common.program, "serve", MODEL, "--port", "0"], capture_output=True,
                                timeout=common.PATIENCE, env={**os.environ, "RUNNEL_API_KEY": ""})
        self.assertEqual((result.returncode, b"RUNNEL_API_KEY is empty" in result.stderr), (1, True))
        result = run("serve", MODEL, "--port", "0", "--api-key-file", "/nosuch")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"/nosuch", result.stderr)


class Others(unittest.TestCase):
    def test_names_of_other_servers(self):
        for names, pairs in (("vllm", {"vllm:generation_tokens_total": "runnel_generation_tokens_total",
                                       "vllm:time_to_first_token_seconds_count":
                                           "runnel_time_to_first_token_seconds_count",
                                       "vllm:num_requests_running": "runnel_num_requests_running"}),
                             ("llamacpp", {"llamacpp:tokens_predicted_total": "runnel_generation_tokens_total",
                                           "llamacpp:n_decode_total": "runnel_steps_total"})):
            server = Server("--metrics-compat", names)
            self.addCleanup(server.stop)
            server.post(TEXT, SHORT)
            for theirs, ours in pairs.items():
                self.assertEqual(server.metric(theirs), server.metric(ours))
            self.assertEqual(server.metric(next(iter(pairs))), 4)
            text = server.get("/metrics")[1].decode()
            self.assertNotIn("vllm:context_shifts", text)
            self.assertNotIn("llamacpp:" if names == "vllm" else "vllm:", text)
        self.assertEqual(run("serve", MODEL, "--metrics-compat", "x").returncode, 2)

    def test_pings(self):
        server = Server("--ping", 0.02, "--ctx", 64, "--kv-size", 196608)  # blocks for one context
        self.addCleanup(server.stop)
        held = server.begin(TEXT, {**LONG, "stream": True})
        held.recv(100)
        waits = server.begin(TEXT, {**SHORT, "stream": True, "max_tokens": 40})
        data = b""
        while data.count(b": still here") < 3:
            data += waits.recv(100)
        held.close()
        while not data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
            data += waits.recv(1000)


    def test_priority(self):
        """There is memory for one answer at a time. Those that wait begin, and end, in the order of their priorities;
        equal ones as they came."""
        server = Server("--log-json", "--ctx", 64, "--kv-size", 196608)
        self.addCleanup(server.stop)
        held = server.begin(TEXT, {**LONG, "stream": True, "priority": 100})
        held.recv(100)
        waiting, tokens = [], 0
        for name, priority in zip("abcde", (0, 5, -3, 9, 5)):
            prompt = f"{name} river, {name} stone and {name} bird" * 3
            tokens += len(server.post("/tokenize", {"content": prompt, "add_special": True})[1]["tokens"])
            body = {"prompt": prompt, "max_tokens": 4, "ignore_eos": True, "priority": priority}
            waiting.append(server.connect())
            waiting[-1].request("POST", TEXT, json.dumps(body), {"X-Request-Id": name})
            while server.metric("runnel_queued_tokens") != tokens:  # each waits before the next one comes
                pass
        held.close()
        for connection in waiting:
            self.assertEqual(connection.getresponse().status, 200)
            connection.close()
        while len(ended := [line["id"] for line in map(json.loads, server.lines())
                            if line.get("id") in tuple("abcde")]) < 5:
            pass
        self.assertEqual("".join(ended), "dbeac")


class Logs(unittest.TestCase):
    def requests(self, server):
        lines = [json.loads(line) for line in server.lines()]
        return [line for line in lines if line["message"] == "request"]

    def wait(self, server, n):  # hangs where a line is missing
        while len(self.requests(server)) < n:
            pass
        return self.requests(server)

    def test_the_engines_lines_are_objects_too(self):
        for options in ((), ("--log-level", "info")):
            server = Server("--log-json", "--cache-shared", "redis://127.0.0.1:1", *options)
            said = server.stop()[1]
            lines = [json.loads(line) for line in said.splitlines()]
            self.assertTrue(any(line["level"] == "warning" and "127.0.0.1:1: Connection refused" in line["message"]
                                for line in lines), said)
            for line in lines:
                self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertEqual(any("KV blocks" in line["message"] for line in lines), options != ())

    def test_default_names(self):
        """By the key's place; where a key before has been given that name, the next that is free."""
        with key_file("one name=key-2\ntwo\nthree\n") as keys:
            server = Server("--api-key-file", keys.name, "--log-json")
        for i, key in enumerate(("one", "two", "three")):
            self.assertEqual(server.ask("GET", "/v1/models", None, bearer(key))[0], 200)
            self.assertEqual(self.wait(server, i + 1)[-1]["key"], f"key-{i + 2}")
        self.assertEqual(server.stop()[0], 0)

    def test_json(self):
        with key_file("the-key name=alice\n") as keys:
            server = Server("--api-key-file", keys.name, "--log-json")
        fields = {**bearer("the-key"), "X-Request-Id": "abc-1.2:3"}
        status, body, headers = server.ask("POST", TEXT, json.dumps({**SHORT, "prompt": "Secretly"}), fields)
        self.assertEqual((status, headers["x-request-id"]), (200, "abc-1.2:3"))
        usage = json.loads(body)["usage"]
        line = self.wait(server, 1)[0]
        self.assertEqual({k: line[k] for k in ("level", "id", "key", "method", "route", "status", "bytes", "cancelled",
                                               "model", "prompt_tokens", "completion_tokens")},
                         {"level": "info", "id": "abc-1.2:3", "key": "alice", "method": "POST", "route": TEXT,
                          "status": 200, "bytes": len(body), "cancelled": False, "model": NAME,
                          "prompt_tokens": usage["prompt_tokens"], "completion_tokens": 4})
        self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertTrue(0 <= line["queue_ms"] <= line["first_token_ms"] <= line["total_ms"], line)
        made = set()
        for i, bad in enumerate(("", "a b", "x" * 65, 'a"b', "a/b")):
            got = server.ask("POST", TEXT, "{", {**bearer("the-key"), "X-Request-Id": bad})[2]["x-request-id"]
            self.assertRegex(got, r"^req_[0-9a-f]+$")
            made.add(got)
            self.assertEqual(self.wait(server, i + 2)[-1]["status"], 400)
        self.assertEqual(len(made), 5)
        server.ask("GET", '/no%22such', None, {})
        line = self.wait(server, 7)[-1]
        self.assertEqual((line["status"], line["route"], line["key"]), (401, '/no"such', ""))
        client = server.connect()
        client.request("POST", TEXT, json.dumps({**LONG, "stream": True}), bearer("the-key"))
        client.getresponse().read(10)
        client.sock.close()
        client.close()
        line = self.wait(server, 8)[-1]
        self.assertTrue(line["cancelled"])
        self.assertGreater(line["completion_tokens"], 0)
        said = server.stop()[1]
        self.assertEqual([json.loads(x)["message"] for x in said.splitlines()][-1],
                         "going down: what has begun comes to its end")
        self.assertNotIn("the-key", said)
        self.assertNotIn("Secretly", said)

    def test_plain_and_prompts(self):
        server = Server("--log-prompts")
        server.post(TEXT, {**SHORT, "prompt": "Secretly\n\x1b[31m"})
        server.get("/health")
        server.get("/v1/models")
        while not any("/v1/models" in line for line in server.lines()):
            pass
        lines = server.lines()
        self.assertEqual([line for line in lines if "/health" in line or "/ready" in line], [])
        line = next(line for line in lines if TEXT in line)
        self.assertRegex(line, r"^\d{4}-.*Z POST /v1/completions 200, tokens \d+ \+ 4, \d+ bytes, [\d.]+ ms "
                               r"\(queue [\d.]+, first token [\d.]+\), req_\w+, .*Secretly")
        self.assertNotIn("\x1b", line)
        server.stop()
        server = Server(env={**os.environ, "RUNNEL_LOG_JSON": "1", "RUNNEL_LOG_PROMPTS": "1"})
        server.post(TEXT, {**SHORT, "prompt": "Secretly"})
        self.assertEqual(json.loads(self.wait(server, 1)[0]["body"])["prompt"], "Secretly")
        server.stop()
        server = Server("-q")
        server.post(TEXT, SHORT)
        self.assertEqual(server.stop()[1], "")


if __name__ == "__main__":
    common.main("__main__")
