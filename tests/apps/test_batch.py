#!/usr/bin/env python3
"""runnel batch: what lines become, held against run and chat; every bad line; files, signals, a full disk, memory."""
import base64
import json
import os
import pathlib
import pty
import re
import resource
import signal
import sqlite3
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import common
from common import MODEL, run

CHAT, TEXT, EMBED = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
USER = [{"role": "user", "content": "What is 2+2?"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def line(custom_id, url, body, **more):
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body, **more})


def story(i, length=8, **more):
    return line(f"s{i}", TEXT, {"prompt": f"Once upon a time {i}", "max_tokens": length, **more})


class Job:
    """A job in a folder of its own."""

    def __init__(self, data, *options, model=MODEL):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.input, self.output = self.path / "in.jsonl", self.path / "out.jsonl"
        self.journal = self.path / "out.jsonl.journal"
        self.options, self.model = list(options), model
        if isinstance(data, list):
            data = "\n".join(data) + "\n"
        self.input.write_bytes(data if isinstance(data, bytes) else data.encode())
        os.utime(self.input, (1000000000, 1000000000))  # answers are dated with it

    def __del__(self):
        self.folder.cleanup()

    def command(self, *more):
        return [common.program, "batch", self.model, str(self.input), str(self.output), *map(str, self.options),
                *map(str, more)]

    def run(self, *more, **how):
        return subprocess.run(self.command(*more), capture_output=True, timeout=common.PATIENCE, **how)

    def start(self, *more):
        return subprocess.Popen(self.command(*more), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def answers(self):
        data = self.output.read_bytes()
        assert data == b"" or data.endswith(b"\n")
        return [json.loads(text) for text in data.split(b"\n")[:-1]]


def answers(data, *options, **more):
    job = Job(data, *options, **more)
    result = job.run()
    assert result.returncode == 0, result.stderr
    assert result.stdout == b""
    return job.answers()


def bodies(data, *options, **more):
    got = answers(data, *options, **more)
    for answer in got:
        assert answer["error"] is None and answer["response"]["status_code"] == 200, answer
    return [answer["response"]["body"] for answer in got]


class Same(unittest.TestCase):
    """A line gives what the other commands give for the same parameters."""

    def events(self, *args):
        result = run(*args, "--json", "-q")
        self.assertEqual(result.returncode, 0, result.stderr)
        return [json.loads(text) for text in result.stdout.splitlines()]

    def test_completions(self):
        cases = [({}, []), ({"temperature": 0.9, "top_p": 0.9, "seed": 7},
                            ["--temperature", "0.9", "--top-p", "0.9", "--seed", "7"]),
                 ({"temperature": 1.5, "top_k": 5, "min_p": 0.05, "repetition_penalty": 1.3, "seed": 11},
                  ["--temperature", "1.5", "--top-k", "5", "--min-p", "0.05", "--repetition-penalty", "1.3",
                   "--seed", "11"]),
                 ({"temperature": 1, "frequency_penalty": 0.5, "presence_penalty": 0.25, "seed": 3},
                  ["--temperature", "1", "--frequency-penalty", "0.5", "--presence-penalty", "0.25", "--seed", "3"]),
                 ({"stop": ["harbour", ". "]}, ["--stop", "harbour", "--stop", ". "]),
                 ({"logit_bias": {"44": -100, "46": 2.5}}, ["--logit-bias", "44=-100", "--logit-bias", "46=2.5"])]
        lines = [line(str(i), TEXT, {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0,
                                     "logprobs": 3, **body}) for i, (body, _) in enumerate(cases)]
        for body, (_, options) in zip(bodies(lines), cases):
            events = self.events("run", MODEL, "-p", "Once upon a time", "-n", "24", "--logprobs", "3", *options)
            tokens = [e for e in events if e["type"] == "token" and e["id"] >= 0]
            choice, done = body["choices"][0], events[-1]
            with self.subTest(options=options):
                self.assertEqual(choice["text"], "".join(e["text"] for e in events if e["type"] == "token"))
                self.assertEqual(choice["finish_reason"], done["finish"])
                self.assertEqual(choice["logprobs"]["token_logprobs"], [t["logprob"] for t in tokens])
                self.assertEqual([list(top.values()) for top in choice["logprobs"]["top_logprobs"]],
                                 [[o["logprob"] for o in t["top"]] for t in tokens])
                self.assertEqual(body["usage"]["prompt_tokens"], done["usage"]["prompt_tokens"])
                self.assertEqual(body["usage"]["completion_tokens"], done["usage"]["completion_tokens"])
                self.assertEqual(body["usage"]["total_tokens"], sum(list(body["usage"].values())[:2]))
                self.assertEqual(body["object"], "text_completion")
        offsets = bodies(lines)[0]["choices"][0]
        for token, offset in zip(offsets["logprobs"]["tokens"], offsets["logprobs"]["text_offset"]):
            self.assertEqual(offsets["text"][offset:offset + len(token)], token)

    def test_chat(self):
        turns = ["Hello", "What is 2+2?", "Tell me a story"]
        for options, body in (([], {}), (["--temperature", "1.2", "--seed", "5"], {"temperature": 1.2, "seed": 5})):
            lines = [line(str(i), CHAT, {"messages": [{"role": "system", "content": "Be kind."},
                                                      {"role": "user", "content": [{"type": "text", "text": turn}]}],
                                         "temperature": 0, "max_completion_tokens": 40, **body})
                     for i, turn in enumerate(turns)]
            for turn, got in zip(turns, bodies(lines)):
                want = run("chat", MODEL, "--system", "Be kind.", "-n", "40", "-q", *options,
                           stdin=f"{turn}\n".encode())
                message = got["choices"][0]["message"]
                self.assertEqual(message["content"] + "\n", want.stdout.decode())
                self.assertEqual((message["role"], message["refusal"]), ("assistant", None))
                self.assertEqual((got["object"], got["model"]), ("chat.completion", pathlib.Path(MODEL).name))
                self.assertEqual(got["created"], 1000000000)

    def test_token_prompts(self):
        ids = [int(i) for i in run("tokenize", MODEL, "-p", "Once upon a time", "--ids", "--bos").stdout.split()]
        both = bodies([line("a", TEXT, {"prompt": ids, "temperature": 0}),
                       line("b", TEXT, {"prompt": "Once upon a time", "temperature": 0}),
                       line("c", TEXT, {"prompt": [ids, ids], "temperature": 0, "echo": True})])
        self.assertEqual(both[0]["choices"], both[1]["choices"])
        self.assertEqual(both[0]["usage"]["completion_tokens"], 16)  # the default
        self.assertEqual([c["index"] for c in both[2]["choices"]], [0, 1])
        for choice in both[2]["choices"]:
            self.assertTrue(choice["text"].endswith("Once upon a time" + both[0]["choices"][0]["text"]))

    def test_seed_of_a_line(self):
        lines = [story(i, 12, n=3) for i in (1, 1, 2)]
        lines[1] = lines[1].replace('"s1"', '"other"')
        a, b, c = bodies(lines)
        self.assertEqual(len({choice["text"] for choice in a["choices"]}), 3)
        self.assertNotEqual([x["text"] for x in a["choices"]], [x["text"] for x in b["choices"]])
        self.assertEqual(bodies(lines), [a, b, c])
        self.assertEqual(a["usage"]["prompt_tokens"], 6)  # once, whatever n is

    def test_prompts_and_n(self):
        prompts = ["Once upon a time", "2 plus 2 is"]
        many = bodies([line("m", TEXT, {"prompt": prompts, "n": 2, "seed": 9, "max_tokens": 10})])[0]
        ones = bodies([line(str(i), TEXT, {"prompt": p, "n": 2, "seed": 9, "max_tokens": 10})
                       for i, p in enumerate(prompts)])
        self.assertEqual([c["text"] for c in many["choices"]],
                         [c["text"] for body in ones for c in body["choices"]])
        self.assertEqual([c["index"] for c in many["choices"]], [0, 1, 2, 3])
        for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
            self.assertEqual(many["usage"][key], sum(body["usage"][key] for body in ones))

    def test_echo_and_nothing(self):
        body = bodies([line("a", TEXT, {"prompt": "Grüße 🦉", "echo": True, "max_tokens": 0, "model": "my \"m\""})])[0]
        self.assertEqual((body["choices"][0]["text"], body["choices"][0]["finish_reason"]), ("Grüße 🦉", "length"))
        self.assertEqual(body["model"], "my \"m\"")

    def test_chat_logprobs(self):
        body = bodies([line("a", CHAT, {"messages": USER, "temperature": 0, "logprobs": True, "top_logprobs": 2})])[0]
        choice = body["choices"][0]
        entries = choice["logprobs"]["content"]
        self.assertEqual("".join(e["token"] for e in entries), choice["message"]["content"])
        for entry in entries:
            self.assertEqual(bytes(entry["bytes"]).decode(), entry["token"])
            self.assertEqual(entry["top_logprobs"][0]["logprob"], entry["logprob"])
            self.assertEqual(len(entry["top_logprobs"]), 2)

    def test_schedule(self):
        """Neither streams nor batch size nor the cache changes a byte."""
        lines = [story(i, 10, n=1 + i % 3) for i in range(20)]
        jobs = [Job(lines, *options) for options in ([], ["--streams", "1"], ["--streams", "64", "--batch", "16"],
                                                     ["--no-prefix-cache", "--threads", "1"])]
        for job in jobs:
            self.assertEqual(job.run().returncode, 0)
        self.assertEqual(len({job.output.read_bytes() for job in jobs}), 1)


class Tools(unittest.TestCase):
    # [TOOL_CALLS]f{} is a call in this template's format; the bias leaves the model little else to say.
    TEMPLATE = "{% for m in messages %}{{ m['role'] + m['content'] }}{% endfor %}{% if tools %}[TOOL_CALLS]{% endif %}"
    BODY = {"messages": [{"role": "user", "content": "x"}], "n": 128, "temperature": 2, "max_tokens": 4,
            "repetition_penalty": 1000, "logit_bias": {"102": 90, "123": 95, "125": 98, "2047": 70}, "tools": [TOOL]}

    def choices(self, **more):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(self.TEMPLATE)
            file.flush()
            got = bodies([line(str(i), CHAT, {**self.BODY, "seed": i, **more}) for i in range(2)],
                         "--template", file.name)
        return [choice for body in got for choice in body["choices"]]

    def test_calls(self):
        found = [c for c in self.choices() if c["finish_reason"] == "tool_calls"]
        self.assertTrue(found)
        for choice in found:
            message = choice["message"]
            self.assertEqual([(c["type"], c["function"]["name"]) for c in message["tool_calls"]], [("function", "f")])
            json.loads(message["tool_calls"][0]["function"]["arguments"])
            self.assertIsNone(message["content"])
        ids = [c["message"]["tool_calls"][0]["id"] for c in found]
        self.assertEqual(len(ids), len(set(ids)))

    def test_none(self):
        self.assertEqual([c for c in self.choices(tool_choice="none") if "tool_calls" in c["message"]], [])

    def test_history(self):
        """Arguments come to the template as what they say, contents of parts as text."""
        template = "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments.city }}{% endfor %}" \
                   "{{ m.content or '' }};{% endfor %}"
        messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                    {"role": "assistant", "content": None, "tool_calls": [{
                        "id": "1", "type": "function",
                        "function": {"name": "w", "arguments": "{\"city\": \"Rome\"}"}}]},
                    {"role": "tool", "tool_call_id": "1", "content": "sun"}]
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(template)
            file.flush()
            chat = bodies([line("a", CHAT, {"messages": messages, "temperature": 0, "max_tokens": 8})], "--template",
                          file.name)[0]
        text = bodies([line("a", TEXT, {"prompt": "a\nb;Rome;sun;", "temperature": 0, "max_tokens": 8})])[0]
        self.assertEqual(chat["usage"]["prompt_tokens"], text["usage"]["prompt_tokens"])
        self.assertEqual(chat["choices"][0]["message"]["content"], text["choices"][0]["text"])

    def test_variables_and_reasoning(self):
        template = "{% if think %}{{ reasoning_effort }}</think><think>\n{% endif %}"
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(template)
            file.flush()
            body = bodies([line("a", CHAT, {"messages": USER, "temperature": 0, "max_tokens": 6,
                                            "reasoning_effort": "low", "chat_template_kwargs": {"think": True}})],
                          "--template", file.name)[0]
        message = body["choices"][0]["message"]
        self.assertTrue(message["reasoning_content"])
        self.assertEqual(message["content"], "")


BAD_LINES = [  # a line, the code of its error, its param
    ("{broken", "invalid_json_line", None),
    ('"text"', "invalid_type", "line"),
    ("[]", "invalid_type", "line"),
    ("{} {}", "invalid_json_line", None),
    ("[" * 100000, "invalid_json_line", None),
    (b'{"custom_id": "\xff\xfe"}', "invalid_json_line", None),
    (line("x", TEXT, {"prompt": "a", "seed": 10 ** 30}), "invalid_json_line", None),
    (json.dumps({"method": "POST", "url": TEXT, "body": {}}), "missing_required_parameter", "custom_id"),
    (line(5, TEXT, {}), "invalid_type", "custom_id"),
    (line("", TEXT, {}), "invalid_value", "custom_id"),
    (json.dumps({"custom_id": "m", "url": TEXT, "body": {}}), "missing_required_parameter", "method"),
    (line("get", TEXT, {}).replace("POST", "GET"), "invalid_method", "method"),
    (line("url", "/v1/images", {}), "invalid_url", "url"),
    (line("body", TEXT, []), "invalid_type", "body"),
    (line("more", TEXT, {}, extra=1), "unknown_parameter", "extra"),
]
BAD_BODIES = [  # url, body, code, param
    (EMBED, {}, "missing_required_parameter", "input"),
    (EMBED, {"input": []}, "invalid_value", "input"),
    (EMBED, {"input": ["a", 5]}, "invalid_type", "input[1]"),
    (EMBED, {"input": [[1, 2], [-1]]}, "invalid_value", "input[1][0]"),
    (EMBED, {"input": "a", "encoding_format": "hex"}, "invalid_value", "encoding_format"),
    (EMBED, {"input": "a", "dimensions": 0}, "invalid_value", "dimensions"),
    (EMBED, {"input": "a", "prompt": "b"}, "unknown_parameter", "prompt"),
    (TEXT, {"prompt": "a", "input": "b"}, "unknown_parameter", "input"),
    (TEXT, {}, "missing_required_parameter", "prompt"),
    (CHAT, {}, "missing_required_parameter", "messages"),
    (CHAT, {"messages": None}, "missing_required_parameter", "messages"),
    (CHAT, {"messages": "hi"}, "invalid_type", "messages"),
    (CHAT, {"messages": []}, "invalid_value", "messages"),
    (CHAT, {"messages": ["hi"]}, "invalid_type", "messages[0]"),
    (CHAT, {"messages": [{"content": "a"}]}, "missing_required_parameter", "messages[0].role"),
    (CHAT, {"messages": [{"role": "boss", "content": "a"}]}, "invalid_value", "messages[0].role"),
    (CHAT, {"messages": USER + [{"role": "user"}]}, "missing_required_parameter", "messages[1].content"),
    (CHAT, {"messages": [{"role": "user", "content": 5}]}, "invalid_type", "messages[0].content"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "unsupported_value",
     "messages[0].content[0]"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "missing_required_parameter",
     "messages[0].content[0].text"),
    (CHAT, {"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "missing_required_parameter",
     "messages[0].tool_calls[0].function"),
    (CHAT, {"messages": USER, "prompt": "x"}, "unknown_parameter", "prompt"),
    (CHAT, {"messages": USER, "nonsense": 1}, "unknown_parameter", "nonsense"),
    (CHAT, {"messages": USER, "tools": {}}, "invalid_type", "tools"),
    (CHAT, {"messages": USER, "tools": [{"type": "x"}]}, "invalid_value", "tools[0].type"),
    (CHAT, {"messages": USER, "tools": [{"type": "function", "function": {}}]}, "missing_required_parameter",
     "tools[0].function.name"),
    (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": "required"}, "unsupported_value", "tool_choice"),
    (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": {"type": "function"}}, "unsupported_value",
     "tool_choice"),
    (CHAT, {"messages": USER, "response_format": {"type": "json_object"}}, "unsupported_value", "response_format"),
    (CHAT, {"messages": USER, "top_logprobs": 2}, "invalid_value", "top_logprobs"),
    (CHAT, {"messages": USER, "logprobs": 2}, "invalid_type", "logprobs"),
    (CHAT, {"messages": USER, "max_tokens": 0}, "invalid_value", "max_tokens"),
    (CHAT, {"messages": USER, "max_completion_tokens": "9"}, "invalid_type", "max_completion_tokens"),
    (CHAT, {"messages": USER, "modalities": ["audio"]}, "unsupported_value", "modalities"),
    (CHAT, {"messages": USER, "functions": []}, "unsupported_parameter", "functions"),
    (CHAT, {"messages": USER, "chat_template_kwargs": []}, "invalid_type", "chat_template_kwargs"),
    (TEXT, {"prompt": {}}, "invalid_type", "prompt"),
    (TEXT, {"prompt": []}, "invalid_value", "prompt"),
    (TEXT, {"prompt": ["a", 5]}, "invalid_type", "prompt[1]"),
    (TEXT, {"prompt": [1, "a"]}, "invalid_type", "prompt[1]"),
    (TEXT, {"prompt": [-1]}, "invalid_value", "prompt[0]"),
    (TEXT, {"prompt": [1 << 20]}, None, None),
    (TEXT, {"prompt": "a", "stream": True}, "unsupported_value", "stream"),
    (TEXT, {"prompt": "a", "stream": 1}, "invalid_type", "stream"),
    (TEXT, {"prompt": "a", "temperature": "hot"}, "invalid_type", "temperature"),
    (TEXT, {"prompt": "a", "temperature": 2.1}, "invalid_value", "temperature"),
    (TEXT, {"prompt": "a", "top_p": -0.1}, "invalid_value", "top_p"),
    (TEXT, {"prompt": "a", "top_k": 1.5}, "invalid_type", "top_k"),
    (TEXT, {"prompt": "a", "min_p": 2}, "invalid_value", "min_p"),
    (TEXT, {"prompt": "a", "repetition_penalty": 0}, "invalid_value", "repetition_penalty"),
    (TEXT, {"prompt": "a", "frequency_penalty": 3}, "invalid_value", "frequency_penalty"),
    (TEXT, {"prompt": "a", "presence_penalty": "x"}, "invalid_type", "presence_penalty"),
    (TEXT, {"prompt": "a", "n": 0}, "invalid_value", "n"),
    (TEXT, {"prompt": ["a"] * 100, "n": 100}, "invalid_value", "n"),
    (TEXT, {"prompt": "a", "seed": 1.5}, "invalid_type", "seed"),
    (TEXT, {"prompt": "a", "stop": 5}, "invalid_type", "stop"),
    (TEXT, {"prompt": "a", "stop": ["a", ""]}, "invalid_value", "stop[1]"),
    (TEXT, {"prompt": "a", "stop": ["a"] * 17}, "invalid_value", "stop"),
    (TEXT, {"prompt": "a", "stop": "a\0b"}, "invalid_value", "stop"),
    (TEXT, {"prompt": "a", "logit_bias": {"x": 1}}, "invalid_value", "logit_bias.x"),
    (TEXT, {"prompt": "a", "logit_bias": {"5": "x"}}, "invalid_type", "logit_bias.5"),
    (TEXT, {"prompt": "a", "logit_bias": {"5": 101}}, "invalid_value", "logit_bias.5"),
    (TEXT, {"prompt": "a", "logit_bias": {"2048": 1}}, None, None),
    (TEXT, {"prompt": "a", "logprobs": 21}, "invalid_value", "logprobs"),
    (TEXT, {"prompt": "a", "echo": "x"}, "invalid_type", "echo"),
    (TEXT, {"prompt": "a", "echo": True, "logprobs": 1}, "unsupported_value", "echo"),
    (TEXT, {"prompt": "a", "best_of": 2}, "unsupported_parameter", "best_of"),
    (TEXT, {"prompt": "a", "suffix": "x"}, "unsupported_parameter", "suffix"),
    (TEXT, {"prompt": "a", "model": 5}, "invalid_type", "model"),
    (TEXT, {"prompt": "a " * 3000}, "context_length_exceeded", None),
    (CHAT, {"messages": [{"role": "user", "content": "a " * 3000}]}, "context_length_exceeded", None),
]


class Embeddings(unittest.TestCase):
    """Against runnel embed, which is judged by another program's vectors."""

    def vectors(self, *texts, options=()):
        out = common.run("embed", common.MODEL, *texts, "-q", *options).stdout.decode()
        return [[float(x) for x in row.split()] for row in out.splitlines()]

    def body(self, body):
        answer = answers([line("e", EMBED, body)])[0]
        self.assertIsNone(answer["error"])
        self.assertEqual(answer["response"]["status_code"], 200)
        return answer["response"]["body"]

    def test_texts_and_ids(self):
        texts = ["Once upon a time", "Hello", "K\u00f6ln \u00fc"]
        expected = self.vectors(*texts)
        got = self.body({"input": texts, "model": "mine", "encoding_format": "float"})
        self.assertEqual([item["embedding"] for item in got["data"]], expected)
        self.assertEqual([item["index"] for item in got["data"]], [0, 1, 2])
        self.assertEqual((got["object"], got["model"]), ("list", "mine"))
        self.assertEqual(self.body({"input": texts[1]})["data"][0]["embedding"], expected[1])
        ids = [[int(i) for i in common.run("tokenize", common.MODEL, "-p", t, "--ids", "--bos").stdout.split()]
               for t in texts]
        got = self.body({"input": ids})
        self.assertEqual([item["embedding"] for item in got["data"]], expected)
        self.assertEqual(got["usage"], {"prompt_tokens": sum(map(len, ids)), "total_tokens": sum(map(len, ids))})
        self.assertEqual(self.body({"input": ids[0]})["data"][0]["embedding"], expected[0])

    def test_base64_and_dimensions(self):
        for n in (1, 2, 3, 256):  # each kind of padding
            with self.subTest(n=n):
                expected = self.vectors("Hello", options=("--dimensions", str(n)))[0]
                got = self.body({"input": "Hello", "dimensions": n, "encoding_format": "base64"})
                data = base64.b64decode(got["data"][0]["embedding"], validate=True)
                self.assertEqual(list(struct.unpack(f"<{n}f", data)), [struct.unpack("f", struct.pack("f", x))[0]
                                                                       for x in expected])

    def test_at_fault(self):
        got = answers([line("empty", EMBED, {"input": ["a", ""]}), line("wide", EMBED, {"input": "a", "dimensions": 257}),
                       line("ids", EMBED, {"input": [10 ** 6]}), line("good", EMBED, {"input": "a"})])
        for answer, part in zip(got, ("empty", "dimensions", "vocabulary")):
            self.assertEqual(answer["response"]["status_code"], 400)
            self.assertIn(part, answer["response"]["body"]["error"]["message"])
        self.assertEqual(got[3]["response"]["status_code"], 200)


class Bad(unittest.TestCase):
    def test_lines(self):
        data = b"\n".join(text if isinstance(text, bytes) else text.encode() for text, _, _ in BAD_LINES)
        got = answers(data + b"\n" + story(0).encode())
        self.assertEqual(len(got), len(BAD_LINES) + 1)
        for i, ((text, code, param), answer) in enumerate(zip(BAD_LINES, got)):
            with self.subTest(text=text[:80]):
                self.assertIsNone(answer["response"])
                self.assertEqual((answer["error"]["code"], answer["error"]["param"], answer["error"]["line"]),
                                 (code, param, i + 1))
                self.assertTrue(answer["error"]["message"])
        self.assertEqual(got[-1]["response"]["status_code"], 200)

    def test_bodies(self):
        got = answers([line(str(i), url, body) for i, (url, body, _, _) in enumerate(BAD_BODIES)])
        for (url, body, code, param), answer in zip(BAD_BODIES, got):
            with self.subTest(url=url, body=str(body)[:80]):
                self.assertIsNone(answer["error"])
                self.assertEqual(answer["response"]["status_code"], 400)
                error = answer["response"]["body"]["error"]
                self.assertEqual(set(error), {"message", "type", "param", "code"})
                self.assertEqual((error["type"], error["code"], error["param"]), ("invalid_request_error", code, param))
                if param is not None:
                    self.assertIn(param.split(".")[0], error["message"])

    def test_nulls_and_ignored(self):
        fields = ("temperature", "top_p", "n", "stop", "seed", "logprobs", "tools", "stream", "audio",
                  "response_format")
        bodies([line("a", CHAT, {"messages": USER, "max_tokens": 3, **dict.fromkeys(fields)}),
                line("b", CHAT, {"messages": USER, "max_tokens": 3, "user": "u", "metadata": {"a": "b"}, "store": False,
                                 "service_tier": "auto", "response_format": {"type": "text"}, "top_p": 0})])

    def test_duplicates(self):
        got = answers([story(1), line("s1", TEXT, {"prompt": 5}), story(2), story(1)])
        self.assertEqual([a["error"] and a["error"]["code"] for a in got],
                         [None, "duplicate_custom_id", None, "duplicate_custom_id"])
        self.assertIn("line 1 ", got[3]["error"]["message"])

    def test_layout(self):
        """Blank lines, carriage returns, a byte order mark, no newline at the end, nothing at all."""
        got = answers(b"\xef\xbb\xbf" + story(0).encode() + b"\r\n\r\n   \n\n" + story(1).encode() + b"\n\t\n" + b"{x")
        self.assertEqual([a["custom_id"] for a in got], ["s0", "s1", None])
        self.assertEqual([a["response"] and a["response"]["status_code"] for a in got], [200, 200, None])
        self.assertEqual(got[2]["error"]["line"], 7)
        self.assertEqual(answers(b""), [])
        self.assertEqual(answers(b"\n\n"), [])
        odd = json.loads(json.dumps("\0\u2028\ud83e\udd89\"\\"))
        self.assertEqual(answers([line(odd, TEXT, {"prompt": "a", "max_tokens": 1})])[0]["custom_id"], odd)

    def test_long_lines(self):
        at_limit = story(1)
        at_limit = at_limit.replace("Once", "Once" + " " * (1000 - len(at_limit)))
        beyond = at_limit.replace("Once", "Once ").replace("s1", "s2")
        self.assertEqual((len(at_limit), len(beyond)), (1000, 1001))
        got = answers([story(0), at_limit, beyond, "x" * 500000, story(3)], "--max-line-bytes", "1000")
        self.assertEqual([a["error"] and a["error"]["code"] for a in got],
                         [None, None, "line_too_long", "line_too_long", None])

    def peak(self, job):
        """Of the program's own memory. What a parent had before it began counts in ru_maxrss too, so a small one."""
        env = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"}
        parent = ("import os, sys; pid = os.fork(); pid or os.execv(sys.argv[1], sys.argv[1:]); "
                  "_, status, usage = os.wait4(pid, 0); print(status, usage.ru_maxrss)")
        told = subprocess.run([sys.executable, "-S", "-E", "-c", parent, *job.command("--quiet")], env=env,
                              capture_output=True, timeout=common.PATIENCE, check=True)
        status, kilobytes = map(int, told.stdout.split())
        self.assertEqual((status, told.stderr), (0, b""))
        return kilobytes * 1024

    def test_memory(self):
        small = self.peak(Job([story(0)]))
        huge = Job([])
        with open(huge.input, "wb") as file:
            file.write(b'{"custom_id": "')
            for _ in range(100):
                file.write(b"x" * 1000000)
            file.write(b'"}\n' + story(0).encode())
        self.assertLess(self.peak(huge) - small, 40 << 20)  # the limit of a line, and its growth
        self.assertEqual([a["error"] and a["error"]["code"] for a in huge.answers()], ["line_too_long", None])
        many = Job([line(f"line {i}", TEXT, {"prompt": "x" * 400, "n": "x"}) for i in range(40000)])
        self.assertGreater(many.input.stat().st_size, 18e6)
        self.assertLess(self.peak(many) - small, 16 << 20)
        self.assertEqual(len(many.answers()), 40000)


class Files(unittest.TestCase):
    def refused(self, result, words, code=1):
        text = result.stderr.decode()
        self.assertEqual(result.returncode, code, text)
        self.assertTrue(text.startswith("runnel: "), text)
        self.assertEqual(text.count("\n"), 1, text)
        self.assertIn(words, text)

    def test_order(self):
        lines = [story(i, 1 + (37 * i) % 24) for i in range(40)]
        ordered, unordered = Job(lines), Job(lines, "--unordered")
        for job in (ordered, unordered):
            self.assertEqual(job.run().returncode, 0)
        self.assertEqual([a["custom_id"] for a in ordered.answers()], [f"s{i}" for i in range(40)])
        self.assertEqual(sorted(ordered.output.read_bytes().split(b"\n")),
                         sorted(unordered.output.read_bytes().split(b"\n")))
        # Without its ends of text, much longer than the pause between two flushes of the output.
        first = story(0, 900, logit_bias={str(end): -100 for end in (2045, 2046, 2047)})
        slow = Job([first] + [story(i, 1) for i in range(1, 40)], "--unordered", "--streams", "4")
        self.assertEqual(slow.run().returncode, 0)
        self.assertNotEqual(slow.answers()[0]["custom_id"], "s0")

    def test_existing(self):
        job = Job([story(0)])
        self.assertEqual(job.run().returncode, 0)
        want = job.output.read_bytes()
        self.refused(job.run(), "--resume goes on with its job, --overwrite begins anew", 2)
        job.output.unlink()
        self.refused(job.run(), "journal exists already", 2)
        self.refused(job.run("--resume"), "has 0 bytes")
        self.assertEqual(job.run("--overwrite").returncode, 0)
        self.assertEqual(job.output.read_bytes(), want)
        self.assertEqual(job.run("--resume").returncode, 0)  # nothing is left to do
        self.assertEqual(job.output.read_bytes(), want)
        job.journal.unlink()
        self.refused(job.run("--resume"), "its journal", 2)
        self.assertEqual(job.output.read_bytes(), want)
        self.refused(job.run("--resume", "--overwrite"), "exclude each other", 2)

    def test_resume_begins(self):
        job = Job([story(0)])
        self.assertEqual(job.run("--resume").returncode, 0)
        self.assertEqual(len(job.answers()), 1)

    def test_same_file(self):
        job = Job([story(0)])
        (job.path / "link").symlink_to(job.input)
        os.link(job.input, job.path / "hard")
        before = job.input.read_bytes()
        for paths, words in (((job.input, job.input), "the input and the output"),
                             ((job.input, job.path / "link"), "the input and the output"),
                             ((job.input, job.path / "hard"), "the input and the output"),
                             ((job.input, MODEL), "the model and the output"),
                             ((job.input, job.output, "--journal", job.input), "the input and the journal"),
                             ((job.input, job.output, "--journal", job.output), "the output and the journal")):
            self.refused(run("batch", MODEL, *paths, "--overwrite"), words, 2)
        self.assertEqual(job.input.read_bytes(), before)
        self.refused(run("batch", MODEL, job.path, job.output), "not a regular file")
        self.refused(run("batch", MODEL, job.path / "none", job.output), "No such file")
        self.refused(run("batch", MODEL, job.input, job.path / "none" / "out"), "none/out")
        self.assertFalse(job.output.exists())

    def test_changed_input(self):
        lines = [story(i) for i in range(5)]
        job = Job(lines)
        self.assertEqual(job.run().returncode, 0)
        want = job.output.read_bytes()
        for data, number in ((lines[:2] + [story(9)] + lines[3:], 3), (lines[:4], 5), (lines + [story(6)], 6),
                             (lines[:1] + [""] + lines[1:], 2)):
            job.input.write_text("\n".join(data) + "\n")
            self.refused(job.run("--resume"), f"line {number} is not the line that the journal knows")
            self.assertEqual(job.output.read_bytes(), want)

    def test_other_settings(self):
        job = Job([story(0)])
        self.assertEqual(job.run().returncode, 0)
        for options, words in ((["--ctx", "512"], "another context: 1024 there, 512 now"),
                               (["--kv-type", "f32"], "another kv-type"), (["--unordered"], "another order"),
                               (["--max-line-bytes", "1M"], "another max-line-bytes")):
            self.refused(job.run("--resume", *options), words)
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / pathlib.Path(MODEL).name
            data = bytearray(pathlib.Path(MODEL).read_bytes())
            data[-1] ^= 1
            model.write_bytes(data)
            job.model = str(model)
            self.refused(job.run("--resume"), "another model")
        job.model = MODEL
        self.assertEqual(job.run("--resume", "--streams", "3", "--threads", "1").returncode, 0)

    def test_changed_output(self):
        job = Job([story(i) for i in range(3)])
        self.assertEqual(job.run().returncode, 0)
        want = job.output.read_bytes()
        job.output.write_bytes(want[:-5])
        self.refused(job.run("--resume"), "it was changed")
        job.output.write_bytes(want[:-5] + b"#####")
        self.refused(job.run("--resume"), "it was changed")
        job.output.write_bytes(want + b'{"id":"torn')  # more than the journal knows is a torn tail
        self.assertEqual(job.run("--resume").returncode, 0)
        self.assertEqual(job.output.read_bytes(), want)

    def test_foreign_journals(self):
        job = Job([story(0)])
        job.journal.write_bytes(b"precious" * 1000)
        self.refused(job.run("--overwrite"), "damaged, or no journal")
        self.assertEqual(job.journal.read_bytes(), b"precious" * 1000)
        job.journal.unlink()
        other = sqlite3.connect(job.journal)
        other.execute("CREATE TABLE precious (x)")
        other.commit()
        other.close()
        before = job.journal.read_bytes()
        self.refused(job.run("--overwrite"), "no journal of runnel batch")
        self.assertEqual(job.journal.read_bytes(), before)

    def test_two_at_once(self):
        job = Job([story(i, 400) for i in range(1000)], "--streams", "2")
        first = job.start()
        while not job.output.exists():  # the journal is locked before
            self.assertIsNone(first.poll())
            time.sleep(0.001)
        first.send_signal(signal.SIGSTOP)
        try:
            self.refused(job.run("--resume"), "another process is working with it")
        finally:
            first.kill()
            first.communicate()

    def interrupted(self, job, number, size):
        """Sends a signal once the output is larger than so many bytes; the exit code, and what was said."""
        process = job.start("--resume")
        while not (job.output.exists() and job.output.stat().st_size > size) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(number)
        text = process.communicate(timeout=common.PATIENCE)[1].decode()
        return process.returncode, text

    def test_interrupt(self, n=60):
        lines = [story(i, 60) for i in range(n)]
        whole = Job(lines)
        self.assertEqual(whole.run().returncode, 0)
        job = Job(lines, "--streams", "4")
        size = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            code, text = self.interrupted(job, number, size)
            if code == 0:  # all was done before this thread saw the first of it: it gets more to do
                return self.test_interrupt(4 * n)
            self.assertEqual(code, 130, text)
            self.assertRegex(text, r"^runnel: \d+ lines? (was|were) done in this run; the same command with --resume "
                                   r"goes on\n$")
            self.assertTrue(whole.output.read_bytes().startswith(job.output.read_bytes()))
            size = job.output.stat().st_size + 100  # beyond the torn tail
            with open(job.output, "ab") as out:
                out.write(b'{"id":"a torn tail')
        result = job.run("--resume")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stderr.decode(), rf"^lines: {n}, {n} ok, 0 errors \(\d+ from earlier runs\)\n")
        self.assertEqual(job.output.read_bytes(), whole.output.read_bytes())

    def test_full_disk(self):
        """A limit on the size of files is as a full disk: the write fails, the output's or the journal's."""
        lines = [story(i, 20, n=4) for i in range(40)]
        whole = Job(lines)
        self.assertEqual(whole.run().returncode, 0)
        seen = set()
        for limit in (0, 3000, 9000, 20000, 40000, 60000):
            job = Job(lines)
            result = job.run(preexec_fn=lambda most=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))
            text = result.stderr.decode()
            with self.subTest(limit=limit, text=text):
                self.assertEqual(result.returncode, 1)
                self.assertRegex(text.splitlines()[0], r"^runnel: .*out.jsonl(.journal)?: ")
                self.assertRegex(text, "File too large|disk I/O error|full")
                seen.add(".journal: " in text)
                result = job.run("--resume")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(job.output.read_bytes(), whole.output.read_bytes())
        self.assertIn(True, seen)

    def test_output_full(self):
        """The output alone: a journal of this size fits, the output of long answers does not."""
        lines = [line(str(i), TEXT, {"prompt": "Once", "max_tokens": 40, "logprobs": 5}) for i in range(60)]
        whole = Job(lines)
        self.assertEqual(whole.run().returncode, 0)
        size = whole.output.stat().st_size
        job = Job(lines, "--streams", "2")
        most = int(0.75 * size)
        result = job.run(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn(b"--resume goes on", result.stderr)
        self.assertEqual(job.run("--resume").returncode, 0)
        self.assertEqual(job.output.read_bytes(), whole.output.read_bytes())


class Standard(unittest.TestCase):
    """- is standard input or output."""

    def batch(self, source, target, *options, **how):
        return subprocess.run([common.program, "batch", MODEL, source, target, *options], capture_output=True,
                              timeout=common.PATIENCE, **how)

    def texts(self, data):
        answers = [json.loads(text) for text in data.splitlines()]
        return [(a["custom_id"], a["response"] and a["response"]["body"].get("choices")) for a in answers]

    def test_pipes(self):
        lines = [story(i, 12) for i in range(20)] + ["{broken"]
        whole = Job(lines)
        self.assertEqual(whole.run().returncode, 0)
        want, data = self.texts(whole.output.read_bytes()), "\n".join(lines).encode()
        with tempfile.TemporaryDirectory() as folder:
            result = self.batch("-", "-", input=data, cwd=folder)
            self.assertEqual((result.returncode, self.texts(result.stdout)), (0, want))
            self.assertIn(b"lines: 21, 20 ok, 1 error", result.stderr)
            result = self.batch(whole.input, "-", "-q", cwd=folder)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (0, whole.output.read_bytes(), b""))
            with open(whole.input, "rb") as source:
                result = self.batch("-", "out", "-q", stdin=source, cwd=folder)
            self.assertEqual((result.returncode, result.stdout), (0, b""))
            self.assertEqual((pathlib.Path(folder) / "out").read_bytes(), whole.output.read_bytes())
            self.assertEqual(os.listdir(folder), ["out"])
            self.assertIn(b"--overwrite", self.batch("-", "out", input=data, cwd=folder).stderr)
            for option in (["--resume"], ["--journal", "j"]):
                result = self.batch("-", "-", *option, input=data, cwd=folder)
                self.assertEqual((result.returncode, result.stdout), (2, b""))
                self.assertIn(b"cannot go on", result.stderr)

    def test_line_by_line(self):
        """An answer comes although the input has not ended."""
        process = subprocess.Popen([common.program, "batch", MODEL, "-", "-", "-q"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
        for i in range(3):
            process.stdin.write(story(i).encode() + b"\n")
            process.stdin.flush()
            self.assertEqual(json.loads(process.stdout.readline())["custom_id"], f"s{i}")
        process.stdin.close()
        self.assertEqual((process.stdout.read(), process.wait(common.PATIENCE)), (b"", 0))
        process.stdout.close()

    def test_reader_goes(self):
        process = subprocess.Popen([common.program, "batch", MODEL, "-", "-"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        process.stdin.write(story(0).encode() + b"\n")
        process.stdin.flush()
        self.assertEqual(process.wait(common.PATIENCE), 130)
        self.assertEqual(process.stderr.read(), b"")
        process.stdin.close()
        process.stderr.close()


class Figures(unittest.TestCase):
    def test_private_journal(self):
        for umask in (0, 0o022, 0o777):
            job = Job([story(0)])
            self.assertEqual(job.run("-q", preexec_fn=lambda: os.umask(umask)).returncode, 0)
            self.assertEqual(stat.S_IMODE(job.journal.stat().st_mode), 0o600, oct(umask))

    def test_choices(self):
        """A prompt of several choices counts once, in the line and in the summary."""
        job = Job([story(0, n=3), line("two", TEXT, {"prompt": ["Once upon a time", "A cat"], "n": 2, "max_tokens": 4})])
        result = job.run()
        usage = [a["response"]["body"]["usage"] for a in job.answers()]
        self.assertIn(f"tokens: {sum(u['prompt_tokens'] for u in usage)} of prompts".encode(), result.stderr)
        self.assertIn(f"{sum(u['completion_tokens'] for u in usage)} of answers".encode(), result.stderr)


class Terminal(unittest.TestCase):
    def on_terminal(self, job, *options, columns=80, later=None, term="xterm"):
        """What the job shows on a terminal; of another width once it has shown something, if `later` is given."""
        master, slave = pty.openpty()
        common.set_columns(slave, columns)
        process = subprocess.Popen(job.command(*options), stderr=slave, stdout=subprocess.DEVNULL,
                                   env={**os.environ, "TERM": term})
        text = b""
        if later is not None:
            while text.count(b"\r") < 2 and process.poll() is None:
                text += os.read(master, 1)
            common.set_columns(master, later)
            text += b"\0"
        os.close(slave)
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:  # how a terminal ends
                break
            if not data:
                break
            text += data
        os.close(master)
        self.assertEqual(process.wait(common.PATIENCE), 0)
        return text.decode()

    def test_bar(self, n=80):
        lines = [story(i, 40) for i in range(n)]
        text = self.on_terminal(Job(lines, "--streams", "4"))
        if " left" not in text:  # all was done before there was anything to tell
            return self.test_bar(4 * n)
        self.assertRegex(text, r"\rbatch +\[#* *\] +\d+ %  \d+ lines, [\d.]+/s, \d+:\d\d:\d\d left")
        self.assertRegex(text, rf"\r\033\[Klines: {n}, {n} ok, 0 errors")
        self.assertEqual(self.on_terminal(Job(lines[:3]), "--quiet"), "")

    def redraws(self, text):
        return [part.replace("\033[K", "") for part in text.split("lines: ")[0].split("\r") if part]

    def test_width(self, n=80):
        """Each redraw fits in its line, so that the next one is drawn over it."""
        lines = [story(i, 40) for i in range(n)]
        for columns, later in ((80, None), (40, None), (12, None), (200, None), (80, 40)):
            text = self.on_terminal(Job(lines, "--streams", "4"), columns=columns, later=later)
            if " left" not in text and columns >= 40:  # all was done before there was anything to tell
                return self.test_width(4 * n)
            shown = [part for part in self.redraws(text.replace("\0", "")) if part]
            self.assertTrue(all(part.startswith(("batch", "loading")) for part in shown), shown)
            lengths = [len(part) for part in shown]
            self.assertLess(max(lengths), columns, shown)
            if later is None and columns != 40:  # there is room for the bar of "loading" alone
                self.assertEqual(any("[" in part for part in shown), columns > 40, shown)
            if later is not None:  # from some redraw on
                if lengths[-1] >= later:
                    return self.test_width(4 * n)
                first = next(i for i, length in enumerate(lengths) if length < later)
                self.assertLess(max(lengths[first:]), later, shown)

    def test_dumb(self):
        lines = [story(i) for i in range(3)]
        for term in ("dumb", ""):
            self.assertRegex(self.on_terminal(Job(lines), term=term), r"^lines: 3, 3 ok")

    def test_pipe(self):
        job = Job([story(0), "{"])
        text = job.run().stderr.decode()
        self.assertRegex(text, r"^lines: 2, 1 ok, 1 error\ntokens: \d+ of prompts \(\d+ cached\), 8 of answers\n"
                               r"time: [\d.]+ s, [\d.]+ lines/s, [\d.]+ tokens/s\n$")
        self.assertEqual(Job([story(0)]).run("-q").stderr, b"")


if __name__ == "__main__":
    common.main("__main__")
