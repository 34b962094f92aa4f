#!/usr/bin/env python3
"""runnel serve under hostile grammars, schemas, regular expressions and what comes with them: each is answered, with a
sentence or a text, at a cost that is bounded; nobody else waits for it; and thousands of different ones leave memory
bounded. What a request costs is its processor time beside that of a grammar that takes all steps of compiling that
there are (some 0.3 s), so that no verdict hangs on the machine's speed."""
import contextlib
import json
import os
import pathlib
import random
import re
import socket
import threading
import time
import unittest

import common
from batch_job import CALLING, CHAT, TEXT, USER
from server import Server, template

SMALL = os.environ.get("RUNNEL_HOSTILE") == "small"  # sanitizers: a case takes one way; memory is not the program's own
MOST = 50  # times all steps that there are: values are kept in up to 48 MB, texts read, tokens drawn besides


def chain(n, *more):
    return "\n".join([*more, "root ::= r0", *(f"r{i} ::= r{i + 1}" for i in range(n)), f'r{n} ::= "a"'])


def choices(depth, width):
    return {"const": depth} if depth == 0 else {"oneOf": [choices(depth - 1, width)] * width}


def steps(i=0):
    """Takes all steps of compiling. Another for each i."""
    return f'root ::= "{i}" ' + " ".join(['"w"?'] * 20000)


def slow(n):
    """Many ways to read a text, at each token."""
    return "root ::= " + " ".join(f"r{i}?" for i in range(n)) + "\n" + "\n".join(
        f"r{i} ::= [a-z] r{(i * 7 + 1) % n}?" for i in range(n))


GRAMMARS = [  # a word of the sentence; None: it is served
    ("root ::= ( [x]* )*", None), ("root ::= (([^x]*){0,99}){0,99}", None),
    ("root ::= " + "(" * 7 + "[^x]*" + "){0,99}" * 7, "states"),
    ("root ::= " + "(" * 60000 + '"a"' + ")" * 60000, "nested"), ("root ::= " + "(" * 30000, "nested"),
    ("root ::= " + "[" * 60000, "line 1"), (chain(5000), None), (chain(60000), "rules"),
    ('root ::= root "a" | "b"', None), ('root ::= x\nx ::= y "a"\ny ::= x | "b"', None), ("root ::= root", "no text"),
    ("root ::= " + " | ".join(f'"w{i}"' for i in range(20000)), None), ("root ::= " + '"a" ' * 60000, None),
    (steps(), "steps to compile"), ("root ::= " + "[a-z]{0,500} " * 2000, "states"),
    ('root ::= s{1,400}\ns ::= s s | s s s | "a"', None), ('root ::= "a"{1000000000}', "number"),
    ("root ::= \"\\x", "line 1"), ("x" * 200000, "line 1"), (slow(300), "too many ways"),
    ('root ::= s\ns ::= "(" s ")" | s s | "a" | ""', None), ("root ::= <no-such-token>", "token"), ("", "no rules"),
]
REGEXES = [
    ("^+[a-z]$", "nothing to repeat"), ("^{2}times$", "nothing to repeat"), ("(?<=x)*", "lookbehind"),
    ("(" * 50000, "nested"), ("[abc", "class"), ("(a+)+$", None), ("(a|a)*b", None), ("a{1,100000}", None),
    ("\\p{", "property"), ("(?=a)b", "lookahead"), ("\\1", "back references"), ("(a*)*", None),
    ("((((a{1,99}){1,99}){1,99}){1,99})", "states"), ("(.{0,400}){0,400}", "states"), ("(x+x+)+y", None),
    ("(.*a.{200}b.*){1,30}", "st"), ("[^a]*a[^b]{300}", None), ("\\ud800", "not a character"), ("\\u{110000}", ""),
]
SCHEMAS = [
    ({"$ref": "#"}, "refers to itself"),
    ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "refers to itself"),
    ({"$ref": "#/nowhere"}, "$ref"), ({"$ref": "http://127.0.0.1/x"}, "$ref"),
    (choices(4, 20), "more than"), ({"enum": [f"string{i}" for i in range(100000)]}, "states"),
    ({"type": "array", "minItems": 10 ** 9}, "minItems"), ({"type": "string", "maxLength": 2 ** 31}, "maxLength"),
    ({"type": "string", "minLength": 2 ** 31}, "minLength"),
    ({"type": "integer", "minimum": -2 ** 63, "maximum": 2 ** 63 - 1}, None),
    ({"type": "integer", "exclusiveMinimum": -2 ** 63, "exclusiveMaximum": 2 ** 63 - 1, "multipleOf": 7}, None),
    ({"type": "number", "multipleOf": 1e-300}, "multipleOf"),
    ({"type": "integer", "multipleOf": 999999937}, "multipleOf"),
    ({"type": 5}, "type"), ({"type": ["x"]}, "type"), ({"properties": [1, 2]}, "properties"), (True, None),
    (False, "no text"), ({"items": [{"type": "integer"}, {"type": "string"}]}, None),
    ({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(5000)}}, ""),
    ({"allOf": [{"pattern": f"a{{{i}}}.*b{{{i}}}"} for i in range(40)]}, "steps"),
    ({"type": "array", "uniqueItems": True, "items": {"enum": list(range(64))}}, "uniqueItems"),
    ({"$defs": {**{f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(60)}, "d60": {"const": 1}},
      "$ref": "#/$defs/d0"}, "cases"),
    ({"$defs": {**{f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(60)},
                "d60": {"type": "integer"}},
      "$ref": "#/$defs/d0"}, None),
    ({"allOf": [{"anyOf": [{"pattern": f"{c}{i}"} for c in "abc"]} for i in range(24)]}, "cases"),
    ({"if": {"properties": {"a": {"pattern": ".*a.{20}"}}}, "then": {"properties": {"b": {"pattern": ".*b.{30}"}}},
      "else": {"not": {"pattern": "x{0,1000}"}}}, "steps"),
    ({"required": [f"k{i}" for i in range(10000)], "type": "object"}, ""), ({"pattern": "(" * 50000}, "nested"),
    *(({"type": "string", "pattern": text}, words if words else "") for text, words in REGEXES),
]
FORMS = [  # how a body is broken around them: members, the member at fault
    (TEXT, {"prompt": "a", "response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    (TEXT, {"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {"schema": []}}},
     "response_format.json_schema.schema"),
    (TEXT, {"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
     "response_format.json_schema.schema"),
    (TEXT, {"prompt": "a", "guided_json": "[" * 100000}, "guided_json"),
    (TEXT, {"prompt": "a", "guided_json": 5}, "guided_json"),
    (TEXT, {"prompt": "a", "guided_choice": []}, "guided_choice"),
    (TEXT, {"prompt": "a", "guided_choice": [5]}, "guided_choice"),
    (TEXT, {"prompt": "a", "grammar": "x" * (3 << 20)}, "grammar"),
    (TEXT, {"prompt": "a", "grammar": 'root ::= "a"', "guided_regex": "b"}, "guided_regex"),
    (TEXT, {"prompt": "a", "structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs.choice"),
    (TEXT, {"prompt": "a", "stop": [str(i) for i in range(10000)]}, "stop"),
    (TEXT, {"prompt": "a", "stop": [""]}, "stop[0]"),
    (CHAT, {"messages": USER, "tools": [[]] * 3000}, "tools[0].type"), (CHAT, {"messages": USER, "tools": 5}, "tools"),
    (CHAT, {"messages": USER, "tools": [{"type": "function", "function": {"name": f"f{i}", "strict": True}}
                                        for i in range(3000)]}, "tools"),
    (CHAT, {"messages": USER, "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "x"}},
     "tool_choice"),
]


def tool(schema):
    """With the schema as that of a parameter."""
    inner = dict(schema) if isinstance(schema, dict) else schema
    parameters = {"type": "object", "properties": {"v": inner}, "required": ["v"]}
    if isinstance(schema, dict) and "$defs" in schema:
        parameters["$defs"] = inner.pop("$defs")
    return {"type": "function", "function": {"name": "f", "strict": True, "parameters": parameters}}


def schema_ways(schema):
    """(what it is sent as, its URL, its body's members)"""
    yield "response_format", TEXT, {"prompt": "a", "response_format": {
        "type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}}
    if not isinstance(schema, dict) or "pattern" not in schema:
        yield "guided_json", TEXT, {"prompt": "a", "guided_json": schema}
    yield "tools", CHAT, {"messages": USER, "tools": [tool(schema)]}


def some(i, ways):
    """All ways to send case number i; where it is SMALL one of them, each in its turn: they lead to the same
    compiler."""
    ways = list(ways)
    return [ways[i % len(ways)]] if SMALL else ways


def resident(server):
    """KiB of memory that it has."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # prompts do not tell of tools, which may be large
        with template(CALLING[CALLING.index("{% for m"):]) as options:
            cls.server = Server(*options)

    @classmethod
    def tearDownClass(cls):
        code, said = cls.server.stop()
        assert code == 0, (code, said)

    def spent(self):
        """Nanoseconds of processor that the server has had."""
        return sum(int(path.read_text().split()[0])
                   for path in pathlib.Path(f"/proc/{self.server.process.pid}/task").glob("*/schedstat"))

    def cost(self, url, body):
        before = self.spent()
        answer = self.server.post(url, body)
        return self.spent() - before, *answer

    def judge(self, url, body, param, words):
        """Served where words is None; where it is "", served or not; else 400 with a sentence that has them."""
        cost, status, got = self.cost(url, {"max_tokens": 24, "temperature": 1, "seed": 1, **body})
        self.assertLess(cost, MOST * self.reference, (status, str(got)[:300]))
        if words is None:
            self.assertEqual(status, 200, got)
        elif words != "" or status != 200:
            error = got["error"]
            self.assertEqual((status, error["type"], error["param"]), (400, "invalid_request_error", param), got)
            self.assertRegex(error["message"], r"\A[^\n]{10,600}\Z")
            self.assertIn(words, error["message"])
            self.assertTrue(error["message"].startswith((param + ":", param + " ", param + "[")), error)

    def test_each_is_answered(self):
        type(self).reference = min(self.cost(TEXT, {"prompt": "a", "grammar": steps(i)})[0] for i in range(3))
        for i, (text, words) in enumerate(GRAMMARS):
            for param in some(i, ("grammar", "guided_grammar") if "::=" in text else ("grammar",)):
                with self.subTest(grammar=text[:80], way=param):
                    self.judge(TEXT, {"prompt": "a", param: text}, param, words)
        for text, words in REGEXES:
            with self.subTest(regex=text[:80]):
                self.judge(TEXT, {"prompt": "a", "guided_regex": text}, "guided_regex", words)
        for i, (schema, words) in enumerate(SCHEMAS):
            for way, url, body in some(i, schema_ways(schema)):
                with self.subTest(schema=str(schema)[:80], way=way):
                    param = "response_format.json_schema.schema" if way == "response_format" else way
                    other = way == "tools" and schema == {"$ref": "#"}  # it means another schema there
                    self.judge(url, body, param, "no text" if other else words)
        for url, body, param in FORMS:
            with self.subTest(body=str(body)[:120]):
                self.judge(url, body, param, " ")

    def test_templates_of_clients_are_not_taken(self):
        body = {"messages": USER, "max_tokens": 8, "temperature": 0}
        _, want = self.server.post(CHAT, body)
        status, got = self.server.post(CHAT, {**body, "chat_parser": "x", "chat_template_kwargs": {
            "tokenize": True, "messages": [], "chat_template": "{{ 1 }}"}})
        self.assertEqual((status, got["choices"]), (200, want["choices"]))
        status, got = self.server.post(CHAT, {**body, "chat_template": "{% for i in range(10**9) %}x{% endfor %}"})
        self.assertEqual((status, got["error"]["param"]), (400, "chat_template"))

    def short_beside_hostile(self):
        """Whether eight short answers came before six grammars were compiled that take a hundred times as long."""
        done, hostile = [], 6

        def client(i):
            done.append(self.server.post(TEXT, {"prompt": "a", "max_tokens": 1, "grammar": steps(100 + i)})[0])

        threads = [threading.Thread(target=client, args=(i,)) for i in range(hostile)]
        for thread in threads:
            thread.start()
        while not done and self.server.metric("runnel_streams") < 2:
            pass
        for _ in range(8):
            self.assertEqual(self.server.post(TEXT, {"prompt": "a", "max_tokens": 4, "temperature": 0})[0], 200)
            self.assertEqual(self.server.get("/health")[0], 200)
        beside = len(done) < hostile
        for thread in threads:
            thread.join()
        self.assertEqual(done, [400] * hostile)
        return beside

    def test_nobody_waits(self):
        """Where short requests waited for hostile ones, they never came first. Once is enough: this test may have
        stood still at another time."""
        began = time.monotonic()
        while not self.short_beside_hostile():
            self.assertLess(time.monotonic() - began, common.PATIENCE)

    @unittest.skipIf(SMALL, "memory is not the program's own")
    def test_bodies_are_bounded(self):
        """Forty begin a body each, none goes on; who comes then is served."""
        server, clients, size = Server("--max-body", "8M", "--max-queue", "32M"), [], 7 << 20
        before = resident(server)
        for _ in range(40):
            clients.append(socket.create_connection(("127.0.0.1", server.port), timeout=common.PATIENCE))
            with contextlib.suppress(ConnectionError):  # it was refused in the middle
                clients[-1].sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                                    % (TEXT.encode(), 8 << 20) + b" " * size)
            self.assertLess(resident(server) - before, 64 << 10)
        for _ in range(4):
            body = json.dumps({"prompt": "a", "max_tokens": 1, "temperature": 0}) + " " * (2 << 20)
            self.assertEqual(server.post(TEXT, body)[0], 200)
        self.assertLess(resident(server) - before, 64 << 10)
        for client in clients:
            client.close()
        self.assertEqual(server.stop()[0], 0)

    def test_bodies_that_were_read_leave_room(self):
        server = Server("--max-body", "1M", "--max-queue", "1M")
        for _ in range(6):
            body = json.dumps({"prompt": "a", "max_tokens": 1, "temperature": 0}) + " " * (600 << 10)
            self.assertEqual(server.post(TEXT, body)[0], 200)
        self.assertEqual(server.stop()[0], 0)

    @unittest.skipIf(SMALL, "memory is not the program's own")
    def test_memory_is_bounded(self):
        """What is compiled is kept in caches that fill up; after that, others make room."""
        drawn, server = random.Random(1), Server()
        client = server.connect()

        def send(n, words):
            before = resident(server)
            for _ in range(n):
                schema = {"enum": [f"{drawn.getrandbits(120):030x}" for _ in range(words)]}
                client.request("POST", TEXT, json.dumps({"prompt": "a", "max_tokens": 1, "json_schema": schema}))
                answer = client.getresponse()
                self.assertEqual((answer.status, len(answer.read()) > 0), (200, True))
            return resident(server) - before

        filled, rest, tiny = send(160, 1000), send(80, 1000), send(1200, 1)
        self.assertGreater(filled, 60 << 10)  # it is there that they lie
        self.assertLess(rest, filled / 4)
        self.assertLess(tiny, filled / 4)
        client.close()
        self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    common.main("__main__")
