#!/usr/bin/env python3
"""runnel serve: answers against those of runnel batch, streams against whole answers, bodies that are refused."""
import json
import math
import re
import struct
import unittest

import common
from batch_job import CALLING, CHAT, EMBED, RESPONSES, TEXT, TOOL, USER, bodies, line
from common import MODEL, run
from server import NAME, Server, template

STORY = "Once upon a time"
VOCABULARY = 2048
WHOLE = [  # url, body: answered at once and by a batch job, to the same byte
    (TEXT, {"prompt": STORY, "max_tokens": 24, "seed": 1}),
    (TEXT, {"prompt": "<|im_start|>user\nHello<|im_end|>", "max_tokens": 8, "parse_special": True, "echo": True,
            "logprobs": 1, "logit_bias": {"44": False}, "temperature": 0}),
    (TEXT, {"prompt": STORY, "max_tokens": 24, "temperature": 0.9, "seed": 7, "n": 3}),
    (TEXT, {"prompt": [STORY, "The fox"], "max_tokens": 12, "echo": True, "temperature": 0}),
    (TEXT, {"prompt": [[300, 301, 302]], "max_tokens": 8, "logprobs": 3, "temperature": 0}),
    (TEXT, {"prompt": STORY, "max_tokens": 30, "stop": [" was", "the"], "temperature": 0}),
    (TEXT, {"prompt": STORY, "max_tokens": 30, "guided_regex": "[a-z ]{5,20}", "temperature": 0}),
    (CHAT, {"messages": USER, "max_tokens": 24, "temperature": 0}),
    (CHAT, {"messages": USER, "max_tokens": 16, "temperature": 1, "seed": 3, "logprobs": True, "top_logprobs": 2}),
    (CHAT, {"messages": USER, "max_tokens": 60, "temperature": 0, "tools": [TOOL], "tool_choice": "required"}),
    (CHAT, {"messages": USER, "max_tokens": 40, "temperature": 0, "response_format": {
        "type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {
            "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
            "additionalProperties": False}}}}),
    (RESPONSES, {"input": "What is 2+2?", "max_output_tokens": 12, "temperature": 0, "instructions": "Be short."}),
    (EMBED, {"input": [STORY, "Hello"]}),
    (EMBED, {"input": [STORY], "normalize": False}),
    (EMBED, {"input": STORY, "encoding_format": "base64", "dimensions": 16}),
]
BAD = [  # url, body, status, code, param
    (TEXT, "{", 400, "invalid_json", None),
    (TEXT, "[]", 400, "invalid_type", None),
    (TEXT, "null", 400, "invalid_type", None),
    (TEXT, "[" * 100000, 400, "invalid_json", None),
    (TEXT, b"\xff\xfe", 400, "invalid_json", None),
    (TEXT, '{"prompt": "a", "prompt": "b"}', 400, "invalid_json", None),
    (TEXT, {}, 400, "missing_required_parameter", "prompt"),
    (TEXT, {"prompt": "a", "max_tokens": "5"}, 400, "invalid_type", "max_tokens"),
    (TEXT, {"prompt": "a", "max_tokens": -2}, 400, "invalid_value", "max_tokens"),
    (TEXT, {"prompt": "a", "stream": 1}, 400, "invalid_type", "stream"),
    (TEXT, {"prompt": "a", "stream_options": {"include_usage": "yes"}}, 400, "invalid_type",
     "stream_options.include_usage"),
    (TEXT, {"prompt": "a", "n": 1000000}, 400, "invalid_value", "n"),
    (TEXT, {"prompt": "a", "user": 5}, 400, "invalid_type", "user"),
    (TEXT, {"prompt": "a", "cache_salt": ""}, 400, "invalid_value", "cache_salt"),
    (TEXT, {"prompt": "a", "return_token_ids": "yes"}, 400, "invalid_type", "return_token_ids"),
    (TEXT, {"prompt": "a", "echo": True, "logprobs": 1, "suffix": "b"}, 400, "unsupported_value", "echo"),
    (TEXT, {"prompt": ["a", "b"], "echo": True, "logprobs": 1, "n": 9}, 400, "invalid_value", "n"),
    (CHAT, {"messages": USER, "metadata": "x"}, 400, "invalid_type", "metadata"),
    (CHAT, {"messages": USER, "service_tier": 1}, 400, "invalid_type", "service_tier"),
    (CHAT, {"messages": USER, "store": "no"}, 400, "invalid_type", "store"),
    (CHAT, {"messages": USER, "functions": [{}]}, 400, "missing_required_parameter", "functions[0].name"),
    (CHAT, {"messages": USER, "functions": [5]}, 400, "invalid_type", "functions[0]"),
    (CHAT, {"messages": USER, "function_call": "required"}, 400, "invalid_value", "function_call"),
    (CHAT, {"messages": USER, "function_call": {}}, 400, "missing_required_parameter", "function_call.name"),
    (CHAT, {"messages": [{"role": "function", "content": "a"}]}, 400, "missing_required_parameter", "messages[0].name"),
    (TEXT, {"prompt": "a", "n": 2, "best_of": 3, "stream": True}, 400, "unsupported_value", "best_of"),
    (TEXT, {"prompt": "a", "n": 2, "best_of": 2, "stream": True}, 400, "unsupported_value", "best_of"),
    (CHAT, {"messages": USER, "n": 2, "best_of": 2, "stream": True}, 400, "unsupported_value", "best_of"),
    (TEXT, {"prompt": "a", "temperature": 9}, 400, "invalid_value", "temperature"),
    (TEXT, {"prompt": "a", "stop_token_ids": [-1]}, 400, "invalid_value", "stop_token_ids[0]"),
    (TEXT, {"prompt": [[1, 1 << 30]], "max_tokens": 1}, 400, "invalid_value", "prompt"),
    (TEXT, {"prompt": "a", "logit_bias": {"99999999": 1}}, 400, "invalid_value", "logit_bias"),
    (TEXT, {"prompt": "a", "samplers": "top_k;nosuch"}, 400, "invalid_value", "samplers"),
    (TEXT, {"prompt": "a", "mirostat": 1, "adaptive_target": 0.5}, 400, "invalid_value", "samplers"),
    (TEXT, {"prompt": "a", "stop_token_ids": [3, 99999]}, 400, "invalid_value", "stop_token_ids[1]"),
    (TEXT, {"prompt": "a", "context_keep": 1 << 30}, 400, "invalid_value", "context_keep"),
    (TEXT, {"prompt": "a", "max_tokens": 5.5}, 400, "invalid_type", "max_tokens"),
    (EMBED, {"input": "a", "dimensions": 99999}, 400, "invalid_value", "dimensions"),
    (EMBED, {"input": "a", "pooling": "none"}, 400, "invalid_value", "pooling"),
    (EMBED, {"input": [[99999]]}, 400, "invalid_value", "input"),
    ("/embedding", {"content": [99999]}, 400, "invalid_value", "content"),
    ("/completion", {"prompt": [99999]}, 400, "invalid_value", "prompt"),
    (TEXT, {"prompt": "a", "logit_bias": {"5": "x"}}, 400, "invalid_type", "logit_bias.5"),
    (TEXT, {"prompt": "word " * 20000, "max_tokens": 5}, 400, "context_length_exceeded", None),
    (TEXT, {"prompt": "a", "guided_regex": "("}, 400, "invalid_value", "guided_regex"),
    (TEXT, {"prompt": "a", "model": "gpt-5"}, 404, "model_not_found", "model"),
    (TEXT, {"prompt": "a", "model": 5}, 400, "invalid_type", "model"),
    (CHAT, {"messages": "hello"}, 400, "invalid_type", "messages"),
    (CHAT, {"messages": [{"role": "user", "content": 5}]}, 400, "invalid_type", "messages[0].content"),
    (CHAT, {"messages": USER, "tools": "all"}, 400, "invalid_type", "tools"),
    (EMBED, {"input": []}, 400, "invalid_value", "input"),
    (RESPONSES, {"input": "a", "previous_response_id": "resp_1"}, 400, "unsupported_parameter", "previous_response_id"),
    ("/tokenize", {"content": 5}, 400, "invalid_type", "content"),
    ("/detokenize", {"tokens": [1, "a"]}, 400, "invalid_type", "tokens[1]"),
    ("/detokenize", {"tokens": [1 << 40]}, 400, "invalid_value", "tokens[0]"),
    ("/detokenize", {"tokens": [1, VOCABULARY]}, 400, "invalid_value", "tokens[1]"),
    ("/detokenize", {"tokens": [-1]}, 400, "invalid_value", "tokens[0]"),
    (TEXT, {"prompt": "a", "model": NAME + "\0x"}, 400, "invalid_value", "model"),
    ("/tokenize", {"content": "a", "model": NAME + "\0x"}, 400, "invalid_value", "model"),
    ("/models/unload", {"model": NAME + "\0x"}, 404, "model_not_found", "model"),
    (TEXT, '{"prompt": "a", "prompt": "b"}', 400, "invalid_json", None),
    ("/apply-template", {}, 400, "missing_required_parameter", "messages"),
]


def plain(body):
    """A whole answer without what differs from run to run: ids, dates, what a cache had."""
    text = json.dumps(body)
    number = body.get("id", "-").replace("_", "-").rsplit("-", 1)[-1]
    body = json.loads(text.replace(number, "ID") if number else text)
    for key in ("id", "created", "created_at", "system_fingerprint"):
        body.pop(key, None)
    for key in ("prompt_tokens_details", "completion_tokens_details", "input_tokens_details"):
        body.get("usage", {}).pop(key, None)
    body.pop("model", None)
    return body


def join_chat(events):
    """The choices that the chunks of a chat add up to, as a whole answer has them."""
    choices = {}
    for _, chunk in events:
        if chunk == "[DONE]":
            continue
        for part in chunk["choices"]:
            choice = choices.setdefault(part["index"], {"content": "", "reasoning": "", "calls": {}, "logprobs": []})
            delta = part["delta"]
            choice["content"] += delta.get("content") or ""
            choice["reasoning"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", []):
                known = choice["calls"].setdefault(call["index"], {"id": call.get("id"), "name": "", "arguments": ""})
                known["name"] += call["function"].get("name", "")
                known["arguments"] += call["function"]["arguments"]
            if part["logprobs"]:
                choice["logprobs"] += part["logprobs"]["content"]
            if part["finish_reason"]:
                assert "finish" not in choice
                choice["finish"] = part["finish_reason"]
    return [choices[i] for i in sorted(choices)]


def whole_chat(body):
    choices = []
    for choice in body["choices"]:
        message = choice["message"]
        calls = {i: {"id": call["id"], **call["function"]} for i, call in enumerate(message.get("tool_calls", []))}
        choices.append({"content": message["content"] or "", "reasoning": message.get("reasoning_content", ""),
                        "calls": calls, "logprobs": (choice["logprobs"] or {}).get("content", []),
                        "finish": choice["finish_reason"]})
    return choices


def without_ids(choices):
    for choice in choices:
        for call in choice["calls"].values():
            call["id"] = bool(call["id"])
    return choices


class Serve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.template = cls.enterClassContext(template())
        cls.server = Server(*cls.template)

    @classmethod
    def tearDownClass(cls):
        code, said = cls.server.stop()
        assert code == 0, (code, said)

    def test_echo_with_logprobs(self):
        """Of the prompt's tokens what the program says of them; behind them those of the answer."""
        body = {"prompt": STORY, "temperature": 0, "max_tokens": 12, "logprobs": 3}
        _, plain_one = self.server.post(TEXT, body)
        whole, alone = plain_one["choices"][0]["text"], plain_one["choices"][0]["logprobs"]
        text = STORY + whole
        status, got = self.server.post(TEXT, {**body, "echo": True})
        self.assertEqual(status, 200, got)
        lists, n = got["choices"][0]["logprobs"], got["usage"]["prompt_tokens"]
        self.assertEqual(got["choices"][0]["text"], text)
        self.assertEqual({len(values) for values in lists.values()}, {n + 12})
        self.assertIsNone(lists["token_logprobs"][0])
        self.assertIsNone(lists["top_logprobs"][0])
        for name in ("tokens", "token_logprobs", "top_logprobs"):
            self.assertEqual(lists[name][n:], alone[name])
        for token, offset in zip(lists["tokens"][1:], lists["text_offset"][1:]):
            self.assertTrue(text[offset:].startswith(token) or text[offset:].startswith(token[1:]), (offset, token))
        # by the logits that the program writes
        ids = self.server.post("/tokenize", {"content": STORY, "add_special": True})[1]["tokens"]
        data = run("logits", MODEL, "--tokens", ",".join(map(str, ids)), "-o", "-", "-q").stdout
        size = struct.unpack_from("<I", data, 4)[0]
        for i, (logprob, top) in enumerate(zip(lists["token_logprobs"][1:n], lists["top_logprobs"][1:n])):
            row = struct.unpack_from(f"<{size}f", data, 8 + 4 * len(ids) + 4 * size * i)
            norm = math.log(math.fsum(math.exp(x - max(row)) for x in row)) + max(row)
            self.assertAlmostEqual(logprob, row[ids[i + 1]] - norm, 4)
            best = sorted(row, reverse=True)[:3]
            for told, want in zip(top.values(), best + [row[ids[i + 1]]] * (row[ids[i + 1]] < best[-1]), strict=True):
                self.assertAlmostEqual(told, want - norm, 4)
        # nothing but scores
        _, scored = self.server.post(TEXT, {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 3})
        self.assertEqual(scored["choices"][0]["logprobs"]["token_logprobs"], lists["token_logprobs"][:n])
        # in pieces, from a batch, and for several prompts it is the same
        joined = {name: [] for name in lists}
        for _, chunk in self.server.events(TEXT, {**body, "echo": True})[:-1]:
            for name, values in (chunk["choices"][0]["logprobs"] or {}).items():
                joined[name] += values
        self.assertEqual(joined, lists)
        asked = {**body, "echo": True, "prompt": [STORY, [300, 301]], "n": 2}
        _, several = self.server.post(TEXT, asked)
        self.assertEqual([c["logprobs"] for c in several["choices"][:2]], [lists, lists])
        self.assertEqual(bodies([line("a", TEXT, asked)], *self.template)[0]["choices"], several["choices"])

    def test_logprobs_of_the_end(self):
        """Of the end of a text what the logits say that the program writes, whatever made it likely. Its request is
        lm-eval's: a text is scored with the one token that it is answered with."""
        end = common.metadata()["tokenizer.ggml.eos_token_id"]
        body = {"prompt": STORY, "max_tokens": 1, "logprobs": 1, "echo": True, "logit_bias": {str(end): 100}, "seed": 1,
                "temperature": 0}
        got = self.server.post(TEXT, body)[1]
        choice, usage = got["choices"][0], got["usage"]
        lists, n = choice["logprobs"], usage["prompt_tokens"]
        self.assertEqual((choice["text"], choice["finish_reason"]), (STORY, "stop"))
        self.assertEqual(usage["completion_tokens"], 1)
        self.assertEqual({len(values) for values in lists.values()}, {n + 1})
        self.assertEqual(lists["text_offset"][-1], len(STORY))
        ids = self.server.post("/tokenize", {"content": STORY, "add_special": True})[1]["tokens"]
        data = run("logits", MODEL, "--tokens", ",".join(map(str, ids)), "-o", "-", "-q").stdout
        size = struct.unpack_from("<I", data, 4)[0]
        row = struct.unpack_from(f"<{size}f", data, 8 + 4 * len(ids) + 4 * size * (len(ids) - 1))
        norm = math.log(math.fsum(math.exp(x - max(row)) for x in row)) + max(row)
        self.assertAlmostEqual(lists["token_logprobs"][-1], row[end] - norm, 4)
        best, own = lists["top_logprobs"][-1].values()
        self.assertAlmostEqual(best, max(row) - norm, 4)
        self.assertEqual(own, lists["token_logprobs"][-1])
        # by its text, which another route spells
        text = self.server.post("/detokenize", {"tokens": [end, end]})[1]["content"]
        self.assertTrue(text.endswith(lists["tokens"][-1]) and lists["tokens"][-1], lists["tokens"])
        # the same in pieces, from a batch, and behind an answer that is not echoed
        self.assertEqual(bodies([line("a", TEXT, body)], *self.template)[0]["choices"], got["choices"])
        joined = {name: [] for name in lists}
        for _, chunk in self.server.events(TEXT, body)[:-1]:
            for name, values in (chunk["choices"][0]["logprobs"] or {}).items():
                joined[name] += values
        self.assertEqual(joined, lists)
        self.assertIsNotNone(chunk["choices"][0]["logprobs"])  # the last one
        alone = self.server.post(TEXT, {**body, "echo": False})[1]["choices"][0]["logprobs"]
        self.assertEqual((alone["token_logprobs"], alone["text_offset"]), (lists["token_logprobs"][-1:], [0]))
        # llama.cpp's, whole and in pieces
        asked = {"prompt": STORY, "n_predict": 4, "n_probs": 1, "temperature": 0, "logit_bias": [[end, 100]]}
        whole = self.server.post("/completion", asked)[1]
        entry, = whole["completion_probabilities"]
        self.assertEqual((entry["id"], entry["logprob"]), (end, lists["token_logprobs"][-1]))
        pieces = [piece for _, piece in self.server.events("/completion", asked)]
        self.assertEqual(pieces[-1]["completion_probabilities"], [entry])
        # OpenAI's chats and Ollama's texts have none of it
        chat = self.server.post(CHAT, {"messages": USER, "max_tokens": 4, "logprobs": True,
                                       "logit_bias": {str(end): 100}, "temperature": 0})[1]
        self.assertEqual((chat["choices"][0]["logprobs"]["content"], chat["usage"]["completion_tokens"]), ([], 1))
        told = self.server.post("/api/generate", {
            "prompt": STORY, "raw": True, "logprobs": True, "stream": False, "options": {
                "temperature": 0, "num_predict": 200, "stop": []}})[1]
        self.assertEqual("".join(entry["token"] for entry in told["logprobs"]).strip(), told["response"].strip())

    def test_functions(self):
        """The older form of tools: the same prompt, the same call, in its own form."""
        schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
                  "additionalProperties": False}
        function = {"name": "f", "parameters": schema}
        body = {"messages": USER, "max_tokens": 400, "temperature": 0}
        choice = {"type": "function", "function": {"name": "f"}}
        _, want = self.server.post(CHAT, {**body, "tools": [{"type": "function", "function": function}],
                                          "tool_choice": choice, "parallel_tool_calls": False})
        old = {**body, "functions": [function], "function_call": {"name": "f"}}
        status, got = self.server.post(CHAT, old)
        self.assertEqual(status, 200, got)
        call = want["choices"][0]["message"]["tool_calls"][0]["function"]
        self.assertEqual(got["usage"]["prompt_tokens"], want["usage"]["prompt_tokens"])
        message = got["choices"][0]["message"]
        self.assertEqual((message["function_call"], got["choices"][0]["finish_reason"]), (call, "function_call"))
        self.assertNotIn("tool_calls", message)
        name, arguments, finish = "", "", None
        for _, chunk in self.server.events(CHAT, old)[:-1]:
            part = chunk["choices"][0]
            name += part["delta"].get("function_call", {}).get("name", "")
            arguments += part["delta"].get("function_call", {}).get("arguments", "")
            finish = part["finish_reason"] or finish
        self.assertEqual((name, arguments, finish), (call["name"], call["arguments"], "function_call"))
        turns = USER + [{"role": "assistant", "content": None, "function_call": call},
                        {"role": "function", "name": "f", "content": "3"}]
        same = USER + [{"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": call}]}, {"role": "tool", "tool_call_id": "c", "content": "3"}]
        answers = [self.server.post(CHAT, {**body, "messages": m})[1] for m in (turns, same)]
        self.assertEqual(plain(answers[0]), plain(answers[1]))
        _, none = self.server.post(CHAT, {**old, "function_call": "none"})
        self.assertEqual(plain(none), plain(self.server.post(CHAT, body)[1]))
        self.assertEqual(bodies([line("a", CHAT, old)], *self.template)[0]["choices"], got["choices"])

    def test_cache_salt(self):
        """A prompt is shared by those of one salt alone."""
        def cached(**more):
            _, body = self.server.post(TEXT, {"prompt": "Salted. " * 60, "max_tokens": 2, **more})
            return body["usage"]["prompt_tokens_details"]["cached_tokens"]

        self.assertEqual([cached(cache_salt="a") > 0, cached(cache_salt="a") > 0], [False, True])
        self.assertEqual([cached() > 0, cached() > 0, cached(cache_salt=None) > 0], [False, True, True])
        self.assertEqual([cached(cache_salt="b") > 0, cached(cache_salt="b") > 0], [False, True])

    def test_answers_are_those_of_a_batch(self):
        want = bodies([line(str(i), url, body) for i, (url, body) in enumerate(WHOLE)],
                      *self.template)
        for (url, body), expected in zip(WHOLE, want):
            with self.subTest(body=body):
                status, got = self.server.post(url, body)
                self.assertEqual(status, 200, got)
                self.assertEqual(plain(got), plain(expected))

    def test_samplers_are_the_programs(self):
        """Samplers that OpenAI does not know, by the options of runnel run."""
        common_options = ("-q", "-n", "24", "--seed", "5", "--temperature", "1.5")
        rows = [({"dry_multiplier": 4, "dry_allowed_length": 1, "dry_base": 1.2, "dry_penalty_last_n": 40,
                  "dry_sequence_breakers": ["."], "xtc_probability": 1, "xtc_threshold": 0.02, "top_n_sigma": 2,
                  "min_tokens": 24},
                 ("--dry-multiplier", "4", "--dry-allowed-length", "1", "--dry-base", "1.2", "--dry-penalty-last-n",
                  "40", "--dry-sequence-breaker", ".", "--xtc-probability", "1", "--xtc-threshold", "0.02",
                  "--top-n-sigma", "2", "--min-tokens", "24")),
                ({"samplers": ["penalties", "typical_p", "temperature", "adaptive_p"], "typical_p": 0.9,
                  "repetition_penalty": 1.4, "penalty_tokens": 20, "dynatemp_range": 1, "dynatemp_exponent": 2,
                  "adaptive_target": 0.2, "adaptive_decay": 0.5},
                 ("--sampler-order", "penalties,typical_p,temperature,adaptive_p", "--typical", "0.9",
                  "--repetition-penalty", "1.4", "--penalty-tokens", "20", "--dynatemp-range", "1", "--dynatemp-exp",
                  "2", "--adaptive-target", "0.2", "--adaptive-decay", "0.5"))]
        texts = [run("run", MODEL, STORY, *common_options).stdout.decode()]
        for body, options in rows:
            with self.subTest(body=body):
                want = run("run", MODEL, STORY, *common_options, *options)
                self.assertEqual(want.returncode, 0, want.stderr)
                status, got = self.server.post(TEXT, {"prompt": STORY, "max_tokens": 24, "seed": 5, "temperature": 1.5,
                                                      **body})
                self.assertEqual((status, got["choices"][0]["text"]), (200, want.stdout.decode()))
                texts.append(want.stdout.decode())
        self.assertEqual(len(set(texts)), 3)

    def test_chunks_join_to_the_answer(self):
        for url, body in WHOLE:
            if url not in (CHAT, TEXT):
                continue
            with self.subTest(body=body):
                _, want = self.server.post(url, body)
                events = self.server.events(url, {**body, "stream_options": {"include_usage": True}})
                self.assertEqual(events[-1], (None, "[DONE]"))
                usage = events[-2][1]
                self.assertEqual(usage["choices"], [])
                self.assertEqual(plain({"usage": usage["usage"]})["usage"], plain(want)["usage"])
                self.assertFalse(any("usage" in chunk for _, chunk in events[:-2]))  # as vLLM and llama.cpp
                if url == CHAT:
                    self.assertEqual(without_ids(join_chat(events)), without_ids(whole_chat(want)))
                    self.assertEqual(events[0][1]["choices"][0]["delta"], {"role": "assistant", "content": ""})
                else:
                    for choice in want["choices"]:
                        parts = [p for _, c in events[:-2] for p in c["choices"] if p["index"] == choice["index"]]
                        self.assertEqual("".join(p["text"] for p in parts), choice["text"])
                        self.assertEqual([p["finish_reason"] for p in parts if p["finish_reason"]],
                                         [choice["finish_reason"]])
                        for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                            if choice["logprobs"]:
                                self.assertEqual([x for p in parts if p["logprobs"] for x in p["logprobs"][key]],
                                                 choice["logprobs"][key])

    def test_usage_in_each_chunk(self):
        events = self.server.events(TEXT, {"prompt": STORY, "max_tokens": 5, "temperature": 0, "ignore_eos": True,
                                           "stream_options": {"continuous_usage_stats": True}})
        tokens = [chunk["usage"]["completion_tokens"] for _, chunk in events[:-1]]
        self.assertEqual(tokens, sorted(tokens))
        self.assertEqual(tokens[-1], 5)
        self.assertEqual({chunk["usage"]["prompt_tokens"] for _, chunk in events[:-1]},
                         {self.server.post(TEXT, {"prompt": STORY, "max_tokens": 1})[1]["usage"]["prompt_tokens"]})

    def test_events_of_responses(self):
        body = {"input": "What is 2+2?", "max_output_tokens": 12, "temperature": 0, "instructions": "Be short."}
        _, want = self.server.post(RESPONSES, body)
        events = self.server.events(RESPONSES, body)
        self.assertEqual([e["sequence_number"] for _, e in events], list(range(len(events))))
        self.assertTrue(all(name == e["type"] for name, e in events))
        kinds = [e["type"].removeprefix("response.") for _, e in events]
        self.assertEqual(kinds[:4], ["created", "in_progress", "output_item.added", "content_part.added"])
        self.assertEqual(kinds[-4:-1], ["output_text.done", "content_part.done", "output_item.done"])
        self.assertEqual(set(kinds[4:-4]), {"output_text.delta"})
        text = "".join(e["delta"] for _, e in events if e["type"].endswith("output_text.delta"))
        self.assertEqual(text, want["output"][0]["content"][0]["text"])
        last = events[-1][1]
        self.assertEqual(last["type"], "response." + want["status"])
        self.assertEqual(plain(last["response"]), plain(want))

    def test_bad_requests(self):
        for url, body, status, code, param in BAD:
            with self.subTest(url=url, body=str(body)[:100]):
                got, answer = self.server.post(url, body)
                self.assertEqual((got, sorted(answer)), (status, ["error"]), answer)
                error = answer["error"]
                self.assertEqual(sorted(error), ["code", "message", "param", "type"])
                self.assertEqual((error["code"], error["param"]), (code, param), error)
                self.assertNotRegex(error["message"], r"sampling\.|^tokens\[\d+\] =|stop_tokens")
                if isinstance(body, dict) and url in (TEXT, CHAT) and "stream" not in body:
                    self.assertEqual(self.server.post(url, {**body, "stream": True}), (got, answer))

    def test_whole_numbers_are_integers(self):
        """As JSON Schema has it, however they are written."""
        text = {"prompt": [[300, 301]], "max_tokens": 6, "seed": 4, "n": 2, "top_k": 40, "logprobs": 1,
                "stop_token_ids": [3], "repetition_penalty": 2, "min_tokens": 1}
        llama = {"prompt": STORY, "n_predict": 6, "seed": 4, "repeat_last_n": 3, "n_probs": 1, "logit_bias": [[5, 1]]}
        ollama = {"prompt": "a", "stream": False, "options": {"num_predict": 6, "seed": 4, "top_k": 9}}
        messages = {"messages": USER, "max_tokens": 6, "temperature": 0}
        for path, body, names in ((TEXT, text, ("choices",)), ("/completion", llama, ("content", "tokens_predicted")),
                                  ("/api/generate", ollama, ("response", "eval_count")),
                                  ("/v1/messages", messages, ("content",)),
                                  ("/detokenize", {"tokens": [300]}, ("content",))):
            with self.subTest(path=path):
                status, want = self.server.post(path, body)
                self.assertEqual(status, 200, want)
                status, got = self.server.post(path, re.sub(r"\b(\d+)\b(?=[,\]}])", r"\1.0", json.dumps(body)))
                self.assertEqual(status, 200, got)
                self.assertEqual([got[name] for name in names], [want[name] for name in names])
        text.pop("stop_token_ids")  # a server's
        told = [bodies([line("a", TEXT, text)]), bodies([line("a", TEXT, {**text, "max_tokens": 6.0, "n": 2.0})])]
        self.assertEqual(told[0][0]["choices"], told[1][0]["choices"])

    def test_the_token_itself_is_among_the_best(self):
        """Or behind them, as OpenAI has it."""
        _, got = self.server.post(TEXT,
                                  {"prompt": STORY, "max_tokens": 24, "logprobs": 2, "temperature": 1.9, "seed": 1})
        lists = got["choices"][0]["logprobs"]
        sizes = set()
        for token, logprob, top in zip(lists["tokens"], lists["token_logprobs"], lists["top_logprobs"], strict=True):
            self.assertEqual(top[token], logprob)
            self.assertEqual(list(top.values()), sorted(top.values(), reverse=True))
            sizes.add(len(top))
        self.assertEqual(sizes, {2, 3})
        body = {"prompt": STORY, "max_tokens": 3, "logprobs": 0, "echo": True, "temperature": 0}
        for lists in (self.server.post(TEXT, body)[1]["choices"][0]["logprobs"],
                      bodies([line("a", TEXT, body)])[0]["choices"][0]["logprobs"]):
            pairs = list(zip(lists["tokens"], lists["token_logprobs"], strict=True))
            self.assertEqual(lists["top_logprobs"], [None] + [{token: logprob} for token, logprob in pairs[1:]])

    def test_what_clients_send_beside(self):
        body = {"prompt": STORY, "max_tokens": 4, "temperature": 0}
        _, want = self.server.post(TEXT, body)
        status, got = self.server.post(TEXT, {**body, "unheard_of": {"a": 1}, "user": "u", "seed": None, "stop": None,
                                              "stream": None, "stream_options": None, "model": NAME})
        self.assertEqual((status, plain(got)), (200, plain(want)))

    def test_stop_token_ids(self):
        body = {"prompt": STORY, "max_tokens": 12, "temperature": 0, "logprobs": 0}
        _, free = self.server.post(TEXT, body)
        ids = self.server.post("/tokenize", {"content": free["choices"][0]["text"]})[1]["tokens"]
        _, cut = self.server.post(TEXT, {**body, "stop_token_ids": [ids[3]]})
        self.assertEqual(cut["choices"][0]["finish_reason"], "stop")
        self.assertLessEqual(cut["usage"]["completion_tokens"], 4)

    def test_pages(self):
        get = self.server.get
        self.assertEqual(get("/health"), (200, b'{"status":"ok"}'))
        self.assertEqual(get("/ready"), (200, b'{"status":"ready"}'))
        models = json.loads(get("/v1/models")[1])
        self.assertEqual([m["id"] for m in models["data"]], [NAME])
        self.assertEqual(json.loads(get(f"/v1/models/{NAME}")[1]), models["data"][0])
        self.assertEqual(get("/v1/models/other")[0], 404)
        self.assertEqual(get("/v1/other")[0], 404)
        for path, meant in (("/chat/completions", "/v1/chat/completions"), ("/v1/api/chat", "/api/chat"),
                            ("/v1/other", None),
                            ("/v1/v1/messages", "/v1/messages"),
                            ("/v1/completions/", "/v1/completions"), ("/completion/", "/completion"),
                            ("/" + "a" * 200, None), ("/v1", None)):
            status, got = self.server.post(path, {})
            self.assertEqual((status, got["error"]["message"]),
                             (404, f"there is no POST {path[:160]}" + (f"; there is {meant}" if meant else "")))
        self.assertEqual(get("/v1/completions")[0], 405)
        self.assertEqual(self.server.post("/v1/models", {})[0], 405)
        self.assertEqual(self.server.ask("HEAD", "/health")[:2], (200, b""))
        self.assertIn(b"runnel_http_requests_total", get("/metrics")[1])
        self.assertIn("n_ctx", json.loads(get("/props")[1])["default_generation_settings"])

    def test_a_mark_in_front(self):
        """Of a byte order, as PowerShell and some editors write it."""
        body = json.dumps({"prompt": "a", "max_tokens": 2, "temperature": 0}).encode()
        status, got = self.server.post(TEXT, b"\xef\xbb\xbf" + body)
        self.assertEqual((status, got["choices"]), (200, self.server.post(TEXT, body)[1]["choices"]))
        for bad in (b"\xef\xbb\xbf", b"\xef\xbb", b"\xef\xbb\xbf\xef\xbb\xbf" + body):
            self.assertEqual(self.server.post(TEXT, bad)[1]["error"]["code"], "invalid_json")

    def test_tokens(self):
        text = "Héllo <|im_end|> world \U0001f600"
        ids = [int(x) for x in run("tokenize", MODEL, "-p", text, "--ids").stdout.split()]
        self.assertEqual(self.server.post("/tokenize", {"content": text})[1]["tokens"], ids)
        self.assertEqual(self.server.post("/detokenize", {"tokens": ids})[1]["content"], text)
        self.assertEqual(self.server.post("/detokenize", {"tokens": [VOCABULARY - 1]})[0], 200)
        special = self.server.post("/tokenize", {"content": "<|im_end|>", "parse_special": True})[1]
        self.assertEqual(special["count"], 1)
        prompt = self.server.post("/apply-template", {"messages": USER})[1]["prompt"]
        self.assertIn("What is 2+2?", prompt)
        self.assertIn("<|im_start|>", prompt)

    def test_zero_bytes(self):
        """Texts may have them, in each dialect; what was read is counted."""
        text = "The\0 fox\0"
        n = self.server.post("/tokenize", {"content": text, "add_special": True})[1]["count"]
        self.assertGreater(n, self.server.post("/tokenize", {"content": "The", "add_special": True})[1]["count"] + 2)
        short = {"max_tokens": 1, "temperature": 0}
        self.assertEqual(self.server.post(TEXT, {"prompt": text, **short})[1]["usage"]["prompt_tokens"], n)
        self.assertEqual(self.server.post("/completion", {"prompt": text, **short})[1]["tokens_evaluated"], n)
        self.assertEqual(self.server.post("/api/generate", {"prompt": text, "raw": True, "stream": False})[1]
                         ["prompt_eval_count"], n)
        prompts = [self.server.post("/apply-template",
                                    {"messages": [{"role": "user", "content": content}]})[1]["prompt"]
                   for content in (f"{text}\nend", "end")]
        self.assertIn(f"{text}\nend", prompts[0])
        n = self.server.post(CHAT, {"messages": [{"role": "user", "content": f"{text}\nend"}], **short})[1]["usage"]
        blocks = [{"type": "text", "text": text}, {"type": "text", "text": "end"}]
        for messages in ([{"role": "user", "content": blocks}],):
            self.assertEqual(self.server.post("/v1/messages/count_tokens", {"messages": messages})[1]["input_tokens"],
                             n["prompt_tokens"])
        result = [{"role": "user", "content": "a"},
                  {"role": "tool", "tool_call_id": "t", "content": f"Error: {text}\nend"}]
        n = self.server.post(CHAT, {"messages": result, **short})[1]["usage"]["prompt_tokens"]
        blocks = [{"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": blocks}]
        messages = [{"role": "user", "content": "a"}, {"role": "user", "content": blocks}]
        self.assertEqual(self.server.post("/v1/messages/count_tokens", {"messages": messages})[1]["input_tokens"], n)

class StrictTools(unittest.TestCase):
    def test_bind_without_a_choice(self):
        """In each dialect, streamed and whole."""
        city = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
        hot = {"temperature": 1, "max_tokens": 60, "parallel_tool_calls": False}

        def judge(arguments, strict):
            try:
                fits = json.loads(arguments)["city"] in ("Paris", "Rome")
            except (KeyError, TypeError, json.JSONDecodeError):
                fits = False
            self.assertEqual(fits, strict, arguments)

        def arguments_of(message):
            return message["tool_calls"][0]["function"]["arguments"] if message.get("tool_calls") else "null"

        with template(CALLING) as options:
            server = Server(*options)
        for strict in (True, False):
            function = {"name": "look", "parameters": city, "strict": strict}
            tools = [{"type": "function", "function": function}]
            for seed in range(2):
                body = {"messages": USER, "tools": tools, "seed": seed, **hot}
                judge(arguments_of(server.post(CHAT, body)[1]["choices"][0]["message"]), strict)
                calls = join_chat(server.events(CHAT, body))[0]["calls"]
                judge(calls[0]["arguments"] if calls else "null", strict)
                got = server.post(RESPONSES, {"input": "a", "tools": [{"type": "function", **function}], "seed": seed,
                                              "temperature": 1, "max_output_tokens": 60,
                                              "parallel_tool_calls": False})[1]
                judge(next((i["arguments"] for i in got["output"] if i["type"] == "function_call"), "null"), strict)
                got = server.post("/api/chat", {"messages": USER, "tools": tools, "stream": False, "options": {
                    "seed": seed, "temperature": 1, "num_predict": 200}})[1]
                judge(json.dumps(arguments_of(got["message"])), strict)
            got = server.post("/v1/messages",
                              {"messages": USER, "max_tokens": 200, "temperature": 1, "seed": 1, "tools": [
                {"name": "look", "input_schema": city, "strict": strict}]})[1]
            judge(json.dumps(next((b["input"] for b in got["content"] if b["type"] == "tool_use"), None)), strict)
        wrong = {"name": "look", "strict": True,
                 "parameters": {"type": "object", "properties": {"a": {"format": "regex"}}}}
        status, got = server.post(CHAT, {"messages": USER, "tools": [{"type": "function", "function": wrong}]})
        self.assertEqual((status, got["error"]["param"]), (400, "tools"), got)
        wrong["strict"] = False
        status, got = server.post(CHAT, {"messages": USER, "max_tokens": 4,
                                         "tools": [{"type": "function", "function": wrong}]})
        self.assertEqual(status, 200, got)
        self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    common.main("__main__")
