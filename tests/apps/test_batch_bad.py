#!/usr/bin/env python3
"""runnel batch: every bad line, and the memory of large ones."""
import json
import os
import subprocess
import sys
import unittest

import common
from batch_job import CHAT, EMBED, RESPONSES, TEXT, TOOL, USER, Job, answers, bodies, line, story


BAD_LINES = [  # a line, the code of its error, its param
    ("{broken", "invalid_json_line", None),
    ('"text"', "invalid_type", "line"),
    ("[]", "invalid_type", "line"),
    ("{} {}", "invalid_json_line", None),
    ("[" * 100000, "invalid_json_line", None),
    (b'{"custom_id": "\xff\xfe"}', "invalid_json_line", None),
    (line("x", TEXT, {"prompt": "a"}).replace('"prompt"', '"prompt": "b", "prompt"'), "invalid_json_line", None),
    (line("zero", TEXT, {}).replace("POST", "POST\\u0000"), "invalid_method", "method"),
    (line("none", TEXT + "\0", {}), "invalid_url", "url"),
    (json.dumps({"method": "POST", "url": TEXT, "body": {}}), "missing_required_parameter", "custom_id"),
    (line(5, TEXT, {}), "invalid_type", "custom_id"),
    (line("", TEXT, {}), "invalid_value", "custom_id"),
    (json.dumps({"custom_id": "m", "url": TEXT, "body": {}}), "missing_required_parameter", "method"),
    (line("get", TEXT, {}).replace("POST", "GET"), "invalid_method", "method"),
    (line("url", "/v1/images", {}), "invalid_url", "url"),
    (line("body", TEXT, []), "invalid_type", "body"),
    (line("more", TEXT, {}, extra=1), "unknown_parameter", "extra"),
]
BAD_GRAMMARS = [  # url, body: found by compiling them
    (TEXT, {"prompt": "a", "guided_regex": "(a|b"}),
    (TEXT, {"prompt": "a", "guided_regex": "(a|b"}),  # the same again
    (TEXT, {"prompt": ["a", "b"], "guided_grammar": 'root ::= "a" other'}),
    (TEXT, {"prompt": "a" * 300000, "guided_regex": "(a|b"}),  # its length comes first
    (CHAT, {"messages": USER, "guided_json": {"type": "strin"}}),
    (CHAT, {"messages": USER, "response_format": {"type": "json_schema", "json_schema": {
        "name": "x", "strict": True,
        "schema": {"type": "string", "format": "uri-template", "not": {"pattern": "(?=a)"}}}}}),
    (TEXT, {"prompt": "a", "guided_regex": "((a{1,100}){1,100}){1,100}"}),
]
CALLS = [  # of an answer of before
    ({"function": {"name": "f"}}, "missing_required_parameter", "function.arguments"),
    ({"function": {"name": "f", "arguments": 5}}, "invalid_type", "function.arguments"),
    ({"function": {"name": "f", "arguments": None}}, "invalid_type", "function.arguments"),
    ({"function": {"name": "f\0g", "arguments": "{}"}}, "invalid_value", "function.name"),
    ({"id": ["c"], "function": {"name": "f", "arguments": "{}"}}, "invalid_type", "id"),
]
BAD_BODIES = [  # url, body, code, param
    (RESPONSES, {}, "missing_required_parameter", "input"),
    (RESPONSES, {"input": 5}, "invalid_type", "input"),
    (RESPONSES, {"input": []}, "invalid_value", "input"),
    (RESPONSES, {"input": ["a"]}, "invalid_type", "input[0]"),
    (RESPONSES, {"input": [{"content": "a"}]}, "missing_required_parameter", "input[0].role"),
    (RESPONSES, {"input": [{"role": "boss", "content": "a"}]}, "invalid_value", "input[0].role"),
    (RESPONSES, {"input": USER + [{"role": "user"}]}, "missing_required_parameter", "input[1].content"),
    (RESPONSES, {"input": [{"type": "function_call", "name": "f"}]}, "missing_required_parameter", "input[0].call_id"),
    (RESPONSES, {"input": [{"type": "computer_call"}]}, "unsupported_value", "input[0]"),
    (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "unsupported_value",
     "input[0].content[0]"),
    (RESPONSES, {"input": "a", "instructions": 5}, "invalid_type", "instructions"),
    (RESPONSES, {"input": "a", "messages": USER}, "unknown_parameter", "messages"),
    (RESPONSES, {"input": "a", "max_output_tokens": 0}, "invalid_value", "max_output_tokens"),
    (RESPONSES, {"input": "a", "max_tokens": 5}, "unknown_parameter", "max_tokens"),
    (RESPONSES, {"input": "a", "temperature": 3}, "invalid_value", "temperature"),
    (RESPONSES, {"input": "a", "text": {"format": {"type": "json_schema"}}}, "missing_required_parameter",
     "text.format.schema"),
    (RESPONSES, {"input": "a", "text": {"format": {"type": "grammar"}}}, "unsupported_value", "text.format"),
    (RESPONSES, {"input": "a", "tool_choice": "required"}, "invalid_value", "tool_choice"),
    (RESPONSES, {"input": "a", "tools": [TOOL]}, "missing_required_parameter", "tools[0].name"),
    (RESPONSES, {"input": "a", "include": ["x"]}, "unsupported_value", "include[0]"),
    (RESPONSES, {"input": "a", "previous_response_id": "resp_1"}, "unsupported_parameter", "previous_response_id"),
    (RESPONSES, {"input": "a", "background": True}, "unsupported_value", "background"),
    (RESPONSES, {"input": "a", "truncation": "auto"}, "unsupported_value", "truncation"),
    (RESPONSES, {"input": "a", "stream": True}, "unsupported_value", "stream"),
    (RESPONSES, {"input": "a " * 3000}, "context_length_exceeded", None),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]}, "unsupported_value",
     "messages[0].content[0]"),
    (TEXT, {"prompt": "a", "model": "a\0b"}, "invalid_value", "model"),
    (TEXT, {"prompt": "a", "samplers": "top_k\0;x"}, "invalid_value", "samplers"),
    (TEXT, {"prompt": "a", "samplers": ["top_k\0"]}, "invalid_value", "samplers"),
    (TEXT, {"prompt": "a", "dry_sequence_breakers": ["a\0b"]}, "invalid_value", "dry_sequence_breakers"),
    (CHAT, {"messages": [{"role": "user\0", "content": "a"}]}, "invalid_value", "messages[0].role"),
    (CHAT, {"messages": USER, "tools": [{"type": "function", "function": {"name": "f\0"}}]}, "invalid_value",
     "tools[0].function.name"),
    (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": "auto\0"}, "unsupported_value", "tool_choice"),
    (CHAT, {"messages": USER, "response_format": {"type": "text\0"}}, "unsupported_value", "response_format"),
    (RESPONSES, {"input": [{"role": "user\0", "content": "a"}]}, "invalid_value", "input[0].role"),
    (EMBED, {"input": "a", "encoding_format": "float\0"}, "invalid_value", "encoding_format"),
    (TEXT, {"prompt": "a", "max_tokens": 5.5}, "invalid_type", "max_tokens"),
    (EMBED, {"input": [[1 << 20]]}, "invalid_value", "input"),
    (EMBED, {"input": "a", "dimensions": 1 << 20}, "invalid_value", "dimensions"),
    (EMBED, {}, "missing_required_parameter", "input"),
    (EMBED, {"input": []}, "invalid_value", "input"),
    (EMBED, {"input": ["a", 5]}, "invalid_type", "input[1]"),
    (EMBED, {"input": [[1, 2], [-1]]}, "invalid_value", "input[1][0]"),
    (EMBED, {"input": "a", "encoding_format": "hex"}, "invalid_value", "encoding_format"),
    (EMBED, {"input": "a", "pooling": "none"}, "invalid_value", "pooling"),
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
    *((CHAT, {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function", **call}]}]}, code,
       f"messages[0].tool_calls[0].{param}") for call, code, param in CALLS),
    (CHAT, {"messages": [{"role": "tool", "content": "a", "tool_call_id": 5}]}, "invalid_type",
     "messages[0].tool_call_id"),
    (CHAT, {"messages": [{"role": "function", "content": "a", "name": "a\0b"}]}, "invalid_value", "messages[0].name"),
    (CHAT, {"messages": USER, "prompt": "x"}, "unknown_parameter", "prompt"),
    (CHAT, {"messages": USER, "nonsense": 1}, "unknown_parameter", "nonsense"),
    (CHAT, {"messages": USER, "tools": {}}, "invalid_type", "tools"),
    (CHAT, {"messages": USER, "tools": [{"type": "x"}]}, "invalid_value", "tools[0].type"),
    (CHAT, {"messages": USER, "tools": [{"type": "function", "function": {"name": "f", "description": 5}}]},
     "invalid_type", "tools[0].function.description"),
    (CHAT, {"messages": USER, "tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
     "invalid_type", "tools[0].function.parameters"),
    (CHAT, {"messages": USER, "functions": [{"name": "f", "parameters": "{}"}]}, "invalid_type",
     "functions[0].parameters"),
    (RESPONSES, {"input": "a", "tools": [{"type": "function", "name": "f", "parameters": 5}]}, "invalid_type",
     "tools[0].parameters"),
    (CHAT, {"messages": USER, "tools": [{"type": "function", "function": {}}]}, "missing_required_parameter",
     "tools[0].function.name"),
    *((CHAT, {"messages": USER, "tools": [TOOL, {"type": "function", "function": {"name": name}}]}, "invalid_value",
       "tools[1].function.name") for name in ("", "a b", "a.b", "\u00e9", "a" * 129)),
    (CHAT, {"messages": USER, "functions": [{"name": ""}]}, "invalid_value", "functions[0].name"),
    (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": "some"}, "unsupported_value", "tool_choice"),
    (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": 5}, "invalid_type", "tool_choice"),
    (CHAT, {"messages": USER, "tool_choice": "required"}, "invalid_value", "tool_choice"),
    (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": {"type": "function"}}, "missing_required_parameter",
     "tool_choice"),
    (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
     "invalid_value", "tool_choice"),
    (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": {"type": "allowed_tools"}},
     "missing_required_parameter", "tool_choice.allowed_tools"),
    (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {
        "mode": "none", "tools": []}}}, "invalid_value", "tool_choice.allowed_tools.mode"),
    (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {
        "mode": "auto", "tools": [{"type": "function", "function": {"name": "h"}}]}}}, "invalid_value",
     "tool_choice.allowed_tools.tools"),
    (CHAT, {"messages": USER, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
        {"type": "function", "function": {"name": "f"}}]}}}, "invalid_value", "tool_choice.allowed_tools.tools"),
    (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": {"type": "custom"}}, "unsupported_value", "tool_choice"),
    (CHAT, {"messages": USER, "response_format": 5}, "invalid_type", "response_format"),
    (CHAT, {"messages": USER, "response_format": {}}, "missing_required_parameter", "response_format"),
    (CHAT, {"messages": USER, "response_format": {"type": "xml"}}, "unsupported_value", "response_format"),
    (CHAT, {"messages": USER, "response_format": {"type": "json_schema"}}, "missing_required_parameter",
     "response_format.json_schema"),
    (CHAT, {"messages": USER, "response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
     "missing_required_parameter", "response_format.json_schema.schema"),
    (CHAT, {"messages": USER, "response_format": {"type": "json_schema", "json_schema": {"strict": 1, "schema": {}}}},
     "invalid_type", "response_format.json_schema"),
    (CHAT, {"messages": USER, "guided_json": []}, "invalid_type", "guided_json"),
    (CHAT, {"messages": USER, "guided_choice": []}, "invalid_value", "guided_choice"),
    (CHAT, {"messages": USER, "guided_choice": ["a", 5]}, "invalid_type", "guided_choice"),
    (CHAT, {"messages": USER, "guided_choice": ["a\0"]}, "invalid_value", "guided_choice"),
    (CHAT, {"messages": USER, "grammar": 5}, "invalid_type", "grammar"),
    (CHAT, {"messages": USER, "grammar": "x" * 2100000}, "invalid_value", "grammar"),
    (CHAT, {"messages": USER, "guided_regex": "a", "guided_choice": ["a"]}, "invalid_value", "guided_choice"),
    (CHAT, {"messages": USER, "structured_outputs": {"what": 1}}, "unknown_parameter", "structured_outputs.what"),
    (CHAT, {"messages": USER, "structured_outputs": {"json": 1}}, "invalid_type", "structured_outputs.json"),
    (CHAT, {"messages": USER, "grammar_options": {"what": True}}, "unknown_parameter", "grammar_options.what"),
    (CHAT, {"messages": USER, "grammar_options": {"closed": 1}}, "invalid_type", "grammar_options.closed"),
    (CHAT, {"messages": USER, "top_logprobs": 2}, "invalid_value", "top_logprobs"),
    (CHAT, {"messages": USER, "logprobs": 2}, "invalid_type", "logprobs"),
    (CHAT, {"messages": USER, "max_tokens": 0}, "invalid_value", "max_tokens"),
    (CHAT, {"messages": USER, "max_completion_tokens": "9"}, "invalid_type", "max_completion_tokens"),
    (CHAT, {"messages": USER, "modalities": ["audio"]}, "unsupported_value", "modalities"),
    (CHAT, {"messages": USER, "functions": "f"}, "invalid_type", "functions"),
    (CHAT, {"messages": USER, "user": 5}, "invalid_type", "user"),
    (CHAT, {"messages": USER, "verbosity": {}}, "invalid_type", "verbosity"),
    (CHAT, {"messages": USER, "chat_template_kwargs": []}, "invalid_type", "chat_template_kwargs"),
    (TEXT, {"prompt": {}}, "invalid_type", "prompt"),
    (TEXT, {"prompt": []}, "invalid_value", "prompt"), (TEXT, {"prompt": ""}, "invalid_value", "prompt"),
    (EMBED, {"input": ["a", ""]}, "invalid_value", "input"),
    (TEXT, {"prompt": ["a", 5]}, "invalid_type", "prompt[1]"),
    (TEXT, {"prompt": [1, "a"]}, "invalid_type", "prompt[1]"),
    (TEXT, {"prompt": [-1]}, "invalid_value", "prompt[0]"),
    (TEXT, {"prompt": [1 << 20]}, "invalid_value", "prompt"),
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
    (TEXT, {"prompt": "a", "seed": 10 ** 30}, "invalid_value", "seed"),
    (TEXT, {"prompt": "a", "stop": 5}, "invalid_type", "stop"),
    (TEXT, {"prompt": "a", "stop": ["a", ""]}, "invalid_value", "stop[1]"),
    (TEXT, {"prompt": "a", "stop": ["a"] * 257}, "invalid_value", "stop"),
    (TEXT, {"prompt": "a", "stop": "a\0b"}, "invalid_value", "stop"),
    (TEXT, {"prompt": "a", "logit_bias": {"x": 1}}, "invalid_value", "logit_bias.x"),
    (TEXT, {"prompt": "a", "logit_bias": {"5": "x"}}, "invalid_type", "logit_bias.5"),
    (TEXT, {"prompt": "a", "logit_bias": {"5": 101}}, "invalid_value", "logit_bias.5"),
    (TEXT, {"prompt": "a", "logit_bias": {"2048": 1}}, "invalid_value", "logit_bias"),
    (TEXT, {"prompt": "a", "logit_bias": {str(i): 1 for i in range(2049)}}, "invalid_value", "logit_bias"),
    (TEXT, {"prompt": "a", "logprobs": 21}, "invalid_value", "logprobs"),
    (TEXT, {"prompt": "a", "echo": "x"}, "invalid_type", "echo"),
    (TEXT, {"prompt": "a", "echo": True, "logprobs": 1, "suffix": "b"}, "unsupported_value", "echo"),
    (TEXT, {"prompt": "a", "echo": True, "logprobs": 1, "n": 17}, "invalid_value", "n"),
    (TEXT, {"prompt": "a", "n": 3, "best_of": 2}, "invalid_value", "best_of"),
    (TEXT, {"prompt": "a", "best_of": 129}, "invalid_value", "best_of"),
    (TEXT, {"prompt": "a", "suffix": 5}, "invalid_type", "suffix"),
    (TEXT, {"prompt": "a", "suffix": "x"}, None, None),  # the file names no tokens for it
    (TEXT, {"prompt": [1, 2], "suffix": "x"}, "unsupported_value", "prompt"),
    (TEXT, {"prompt": "a", "input_extra": {}}, "invalid_type", "input_extra"),
    (TEXT, {"prompt": "a", "input_extra": [5]}, "invalid_type", "input_extra[0]"),
    (TEXT, {"prompt": "a", "input_extra": [{"filename": "x"}]}, "missing_required_parameter", "input_extra[0].text"),
    (TEXT, {"prompt": "a", "input_extra": [{"text": "x", "filename": 5}]}, "invalid_type", "input_extra[0].filename"),
    (TEXT, {"prompt": "a", "model": 5}, "invalid_type", "model"),
    (TEXT, {"prompt": "a " * 3000}, "context_length_exceeded", None),
    (CHAT, {"messages": [{"role": "user", "content": "a " * 3000}]}, "context_length_exceeded", None),
]


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

    def test_numbers_beyond_64_bits(self):
        """Where an integer is asked for it is named; where a double is, it is one."""
        cases = [("max_tokens", "18446744073709551616"), ("seed", "18446744073709551616"), ("top_k", "1e30"),
                 ("temperature", "1" + "0" * 400), ("logit_bias.5", "18446744073709551616"), ("n", "-1e999"),
                 ("custom", "18446744073709551616")]
        lines = [story(i).replace('"body": {', '"body": {"%s": %s, ' % (
            (name, digits) if "." not in name else ("logit_bias", '{"5": %s}' % digits)))
            for i, (name, digits) in enumerate(cases)]
        lines = [text.replace(', "max_tokens": 8', "") if i == 0 else text for i, text in enumerate(lines)]
        for (name, _), answer in zip(cases, answers(lines)):
            error = answer["response"]["body"]["error"]
            self.assertEqual((answer["response"]["status_code"], error["param"]), (400, name), error)
        small = story(0).replace('"body": {', '"body": {"temperature": 0.' + "0" * 400 + '1, "logit_bias": {"5": '
                                 '1.00000000000000000000001}, "stop": null, ')
        self.assertEqual(answers([small])[0]["response"]["status_code"], 200, small)
        bad = line("a", CHAT, {"messages": [{"role": "user", "content": 5}]}).replace("5", "1" * 40)
        error = answers([bad])[0]["response"]["body"]["error"]
        self.assertEqual(error["message"], "messages[0].content must be a string, not a number")

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
        job = Job([line(odd, RESPONSES, {"input": "a", "max_output_tokens": 1, "instructions": "a\u2028b\x85c"})])
        self.assertEqual(job.run().returncode, 0)
        self.assertEqual(len(job.output.read_text().splitlines()), 1)  # splits at U+0085 and U+2028, too
        self.assertEqual(job.answers()[0]["response"]["body"]["instructions"], "a\u2028b\x85c")

    def test_long_lines(self):
        at_limit = story(1)
        at_limit = at_limit.replace("Once", "Once" + " " * (1000 - len(at_limit)))
        beyond = at_limit.replace("Once", "Once ").replace("s1", "s2")
        self.assertEqual((len(at_limit), len(beyond)), (1000, 1001))
        got = answers([story(0), at_limit, beyond, "x" * 500000, story(3)], "--max-line-bytes", "1000")
        self.assertEqual([a["error"] and a["error"]["code"] for a in got],
                         [None, None, "line_too_long", "line_too_long", None])

    def test_check(self):
        """--check names the lines that a job answers with an error, and no others, in the words of the job."""
        bad = [text if isinstance(text, bytes) else text.encode() for text, _, _ in BAD_LINES]
        bad += [line(f"b{i}", url, body).encode() for i, (url, body, _, _) in enumerate(BAD_BODIES)]
        good = [line("fine", RESPONSES, {"input": "a", "max_output_tokens": 1}), story(1, 1), story(2, 1),
                line("e", EMBED, {"input": ["a", [5]]}), line("regex", TEXT, {"prompt": "a", "guided_regex": "[ab]"}),
                line("schema", CHAT, {"messages": USER, "max_tokens": 9, "guided_json": {"enum": ["a", 5]}}),
                line("chat", CHAT, {"messages": USER, "max_tokens": 1})]
        job = Job(b"\n".join([good[0].encode(), b"", *bad, *map(str.encode, good[1:]), good[1].encode(),
                              *(line(f"g{i}", url, body).encode() for i, (url, body) in enumerate(BAD_GRAMMARS)),
                              line("none", EMBED, {"input": ["a", ""]}).encode(),
                              line("wide", EMBED, {"input": "a", "dimensions": 257}).encode()]))
        checked = job.run("--check")
        self.assertEqual(checked.returncode, 3, checked.stderr)
        self.assertEqual(sorted(os.listdir(job.path)), ["in.jsonl"])
        self.assertEqual(job.run().returncode, 0)
        want = []
        for number, answer in zip([1, *range(3, 3 + len(bad) + len(good) + len(BAD_GRAMMARS) + 2)], job.answers()):
            error = answer["error"] or answer["response"]["body"].get("error")
            if error is not None:
                want.append((number, answer["custom_id"], error["message"], error["code"]))
        got = checked.stdout.decode().splitlines()
        self.assertEqual(len(got), len(bad) + len(BAD_GRAMMARS) + 3)
        self.assertEqual([int(text.split(":")[1]) for text in got], [number for number, *_ in want])
        for text, (number, name, message, code) in zip(got, want):
            name = f"{json.dumps(name, ensure_ascii=False)}: " if name is not None else ""
            message = message.replace("\\", "\\\\")
            with self.subTest(line=number):
                self.assertEqual(text, f"{job.input}:{number}: {name}{message}" + (f" ({code})" if code else ""))
        self.assertRegex(checked.stderr.decode(),
                         rf"^lines: {len(want) + len(good)}, {len(good)} ok, {len(want)} errors; "
                         r"prompts of \d+ tokens\n$")

    def test_check_of_what_the_model_decides(self):
        """The job's verdict, in its words, where it hangs on the context, the model's head, samplers, or two fields."""
        whole = {"max_tokens": 1, "prompt": "a"}
        lines = [(TEXT, {**whole, "mirostat": 2, "adaptive_target": 0.5}), (TEXT, {**whole, "context_keep": 513}),
                 (TEXT, {**whole, "context_keep": 512}), (TEXT, {**whole, "mirostat": 2}),
                 (TEXT, {**whole, "prompt": [5] * 1024}), (TEXT, {**whole, "prompt": [5] * 1023}),
                 (EMBED, {"input": [5] * 1024}), (EMBED, {"input": [5] * 1025}),
                 ("/v1/rerank", {"query": "q", "documents": ["a"]}), ("/v1/classify", {"input": "a"}),
                 ("/v1/classify", {"input": ""}), ("/v1/nothing", {}),
                 (TEXT, {**whole, "samplers": ["top_k", "best"]}), (TEXT, {**whole, "samplers": "top_k;top_k"}),
                 (TEXT, {**whole, "logit_bias": {"4095": 1}})]
        job = Job([line(f"l{i}", url, body) for i, (url, body) in enumerate(lines)])
        checked = job.run("--check")
        self.assertEqual((checked.returncode, job.run().returncode), (3, 0))
        errors = [(i, answer["error"] or answer["response"]["body"].get("error"))
                  for i, answer in enumerate(job.answers())]
        self.assertEqual([i for i, error in errors if error], [0, 1, 4, 7, *range(8, 15)])
        self.assertEqual([text.split(": ", 2)[2] for text in checked.stdout.decode().splitlines()],
                         [error["message"] + (f" ({error['code']})" if error["code"] else "")
                          for _, error in errors if error])
        for url in ("chat/completions", "completions", "embeddings", "responses", "rerank", "classify"):
            self.assertIn("/v1/" + url, errors[11][1]["message"])

    def test_check_codes(self):
        fine, both, broken = Job([story(0)]), Job([story(0), "{"]), Job(["{", "["])
        for job, want in ((fine, {"any": 0, "all": 0, "none": 0, None: 0}),
                          (both, {"any": 3, "all": 0, "none": 0, None: 3}),
                          (broken, {"any": 3, "all": 3, "none": 0, None: 3})):
            for when, code in want.items():
                result = job.run("--check", *(["--fail-on", when] if when else []))
                self.assertEqual((result.returncode, result.stdout == b""), (code, job is fine), when)
        result = subprocess.run([common.program, "batch", common.MODEL, str(both.input), "--check", "--limit", "1",
                                 "-q"],
                                capture_output=True, timeout=common.PATIENCE)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, b"", b""))  # without OUT
        for model, source, words in (("/none/such", fine.input, b"/none/such"),
                                     (common.MODEL, "/none", b"/none: No such")):
            result = subprocess.run([common.program, "batch", model, str(source), "--check"], capture_output=True,
                                    timeout=common.PATIENCE)
            self.assertEqual((result.returncode, result.stdout), (1, b""))
            self.assertIn(words, result.stderr)
        for option in (["--resume"], ["--overwrite"], ["--errors", "e"], ["--summary", "s"], ["--journal", "j"]):
            result = fine.run("--check", *option)
            self.assertEqual(result.returncode, 2)
            self.assertIn(f"{option[0]} would have no effect".encode(), result.stderr)

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


if __name__ == "__main__":
    common.main("__main__")
