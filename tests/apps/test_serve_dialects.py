#!/usr/bin/env python3
"""runnel serve in the words of Anthropic and Ollama: the same text as in OpenAI's."""
import json
import unittest

import common
from batch_job import CHAT
from common import MODEL, run
from server import NAME, Server, template
from test_serve import join_chat, whole_chat

USER = [{"role": "user", "content": "What is 2+2?"}]
MESSAGES = "/v1/messages"
CLOSED = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS = [{"name": "f", "input_schema": CLOSED}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": CLOSED}}
GREEDY = {"max_tokens": 24, "temperature": 0}

# Kimi K2's calls, whose ids have the names of their functions.
KIMI = """{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_user|>{{ m.content }}
{%- if m.tool_calls %}<|tool_calls_section_begin|>{% for c in m.tool_calls -%}
<|tool_call_begin|>functions.{{ c.function.name }}:{{ loop.index0 }}<|tool_call_argument_begin|>
{{- c.function.arguments | tojson }}<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>{% endif %}<|im_end|>
{%- endfor %}{% if add_generation_prompt %}<|im_assistant|>{% endif %}"""


class Dialects(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.template = cls.enterClassContext(template())
        cls.server = Server(*cls.template)

    @classmethod
    def tearDownClass(cls):
        code, said = cls.server.stop()
        assert code == 0, (code, said)

    def chat(self, **more):
        status, body = self.server.post(CHAT, {"messages": USER, **GREEDY, **more})
        self.assertEqual(status, 200, body)
        return body["choices"][0], body["usage"]

    def lines(self, path, body):
        status, data, headers = self.server.ask("POST", path, json.dumps(body))
        self.assertEqual((status, headers["content-type"]), (200, "application/x-ndjson"), data)
        return [json.loads(text) for text in data.decode().splitlines()]

    # ---- Anthropic

    def test_messages(self):
        want, usage = self.chat()
        status, got = self.server.post(MESSAGES, {"model": NAME, "messages": USER, **GREEDY})
        self.assertEqual((status, got["type"], got["role"], got["model"]), (200, "message", "assistant", NAME))
        self.assertEqual(got["content"], [{"type": "text", "text": want["message"]["content"]}])
        self.assertEqual(got["stop_reason"], {"length": "max_tokens", "stop": "end_turn"}[want["finish_reason"]])
        self.assertEqual(got["usage"]["input_tokens"] + got["usage"]["cache_read_input_tokens"], usage["prompt_tokens"])
        self.assertEqual(got["usage"]["output_tokens"], usage["completion_tokens"])

    def test_blocks_are_messages(self):
        turns = [{"role": "user", "content": [{"type": "text", "text": "Call f"}]},
                 {"role": "assistant", "content": [{"type": "text", "text": "Now."},
                                                   {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "3"},
                                              {"type": "text", "text": "And?"}]}]
        same = [{"role": "system", "content": "Be\nshort"}, {"role": "user", "content": "Call f"},
                {"role": "assistant", "content": "Now.", "tool_calls": [
                    {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}]},
                {"role": "tool", "tool_call_id": "t1", "content": "3"}, {"role": "user", "content": "And?"}]
        system = [{"type": "text", "text": "Be"}, {"type": "text", "text": "short"}]
        _, want = self.server.post(CHAT, {"messages": same, **GREEDY})
        status, got = self.server.post(MESSAGES, {"messages": turns, "system": system, **GREEDY})
        self.assertEqual(status, 200, got)
        self.assertEqual(got["content"][0]["text"], want["choices"][0]["message"]["content"])
        _, count = self.server.post(MESSAGES + "/count_tokens", {"messages": turns, "system": system})
        self.assertEqual(count, {"input_tokens": want["usage"]["prompt_tokens"]})

    def test_what_templates_are_told(self):
        """The prompt is all that a template is told: each dialect's body makes that of the same in OpenAI's form."""
        call = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
        ask, said = {"role": "user", "content": "Call f"}, {"role": "assistant", "content": "Now."}
        body = {"max_tokens": 6, "temperature": 0, "reasoning_effort": "low"}
        with template("{{ messages | tojson }}{{ (tools or []) | tojson }}{{ reasoning_effort }}\n") as options:
            server = Server(*options)
            plain = server.post("/apply-template", {"messages": [ask, said, ask]})[1]["prompt"]
            nothing = dict.fromkeys(("tool_calls", "function_call", "refusal", "audio", "reasoning_content", "name"))
            for member in (nothing, {"tool_calls": []}):  # as clients write the messages that they got
                self.assertEqual(server.post("/apply-template",
                                             {"messages": [ask, {**said, **member}, ask]})[1]["prompt"],
                                 plain)
            parts = [{"type": "refusal", "refusal": "No"}, {"type": "text", "text": "w."}]
            self.assertEqual(server.post("/apply-template",
                                         {"messages": [ask, {**said, "content": parts}, ask]})[1]["prompt"],
                             plain.replace("Now.", "No\\nw."))
            other = {"type": "function", "function": {"name": "g", "parameters": CLOSED}}
            allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}]}
            for choice in ({"type": "allowed_tools", "allowed_tools": allowed}, {"type": "allowed_tools", **allowed}):
                self.assertEqual(server.post("/apply-template", {"messages": [ask], "tools": [TOOL, other],
                                                                 "tool_choice": choice}),
                                 server.post("/apply-template", {"messages": [ask], "tools": [other]}))
            _, want = server.post(CHAT, {**body, "messages": [
                ask, {**said, "reasoning_content": "Hm.\nYes.", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "t1", "content": ""}]})
            status, got = server.post(MESSAGES, {**body, "output_config": {"effort": "low"}, "messages": [
                ask, {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": ""},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "thinking", "thinking": "Yes."}, {"type": "text", "text": "Now."},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": None}]}]})
            self.assertEqual((status, got["content"][0]["text"]), (200, want["choices"][0]["message"]["content"]))
            self.assertEqual(got["usage"]["input_tokens"] + got["usage"]["cache_read_input_tokens"],
                             want["usage"]["prompt_tokens"])
            _, want = server.post(CHAT, {**body, "top_k": 40, "top_p": 0.9, "messages": [
                ask, {"role": "assistant", "content": "", "reasoning_content": "Hm."},
                {"role": "tool", "content": "4", "name": "f"}]})
            _, got = server.post("/api/chat", {"stream": False, "think": "low", "messages": [
                ask, {"role": "assistant", "thinking": "Hm.", "images": []},
                {"role": "tool", "content": "4", "tool_name": "f"}],
                "options": {"temperature": 0, "num_predict": 6}})
            self.assertEqual((got["message"]["content"], got["prompt_eval_count"]),
                             (want["choices"][0]["message"]["content"], want["usage"]["prompt_tokens"]))
            self.assertEqual(server.stop()[0], 0)

    def test_what_was_answered_can_be_sent_back(self):
        """A turn with a call as each dialect answers it, for a template that takes neither null nor objects, neither
        "developer" nor "reasoning_content": the same prompt, and nothing is lost."""
        text = """{% for m in messages %}{% if m.role == 'system' %}{{ 'S:' + m.content }}
{% elif m.role == 'user' %}{{ 'U:' + m.content }}
{% elif m.role == 'tool' %}{{ 'T:' + m.content }}
{% elif m.role == 'assistant' %}{{ 'A:' + m.content }}{{ m.thinking }}{% for c in m.tool_calls %}
[{{ c.function.name + c.function.arguments }}]
{%- endfor %}{{ '' }}
{% endif %}{% endfor %}"""
        call = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
        same = [{"role": "developer", "content": "Rules"}, {"role": "user", "content": "Call f"},
                {"role": "assistant", "content": None, "reasoning_content": "Hm.", "refusal": None,
                 "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "t1", "content": "3"}]
        want = 'S:Rules\nU:Call f\nA:Hm.[f{"a":1}]\nT:3\n'
        with template(text) as options:
            server = Server(*options)
            self.addCleanup(server.stop)
            self.assertEqual(server.post("/apply-template", {"messages": same}), (200, {"prompt": want}))
            tokens = len(server.post("/tokenize", {"content": want, "add_special": True})[1]["tokens"])
            self.assertEqual(server.post(f"{CHAT}/input_tokens", {"messages": same})[1]["input_tokens"], tokens)
            items = [{"role": "developer", "content": "Rules"}, {"role": "user", "content": "Call f"},
                     {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
                     {"type": "function_call", "call_id": "t1", "name": "f", "arguments": '{"a":1}'},
                     {"type": "function_call_output", "call_id": "t1", "output": "3"}]
            self.assertEqual(server.post("/v1/responses/input_tokens", {"input": items})[1]["input_tokens"], tokens)
            turns = [{"role": "user", "content": "Call f"},
                     {"role": "assistant", "content": [
                         {"type": "thinking", "thinking": "Hm.", "signature": ""},
                         {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}]},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "3"}]}]
            self.assertEqual(server.post(f"{MESSAGES}/count_tokens", {"system": "Rules", "messages": turns}),
                             (200, {"input_tokens": tokens}))
            turns = [{"role": "system", "content": "Rules"}, {"role": "user", "content": "Call f"},
                     {"role": "assistant", "thinking": "Hm.",
                      "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
                     {"role": "tool", "content": "3", "tool_name": "f"}]
            status, got = server.post("/api/chat", {"messages": turns, "stream": False, "options": {"num_predict": 1}})
            self.assertEqual((status, got["prompt_eval_count"]), (200, tokens))

    def test_answers_that_were_begun(self):
        begun = [*USER, {"role": "assistant", "content": "The answer is:"}]
        want, usage = self.chat(messages=begun, continue_final_message=True)
        anew, _ = self.chat(messages=begun)
        self.assertNotEqual(want["message"], anew["message"])
        for last in ("The answer is:", [{"type": "text", "text": "The answer is:"}]):
            body = {"messages": [*USER, {"role": "assistant", "content": last}]}
            status, got = self.server.post(MESSAGES, {**body, **GREEDY})
            self.assertEqual((status, got["content"][0]["text"]), (200, want["message"]["content"]))
            self.assertEqual(self.server.post(MESSAGES + "/count_tokens", body)[1],
                             {"input_tokens": usage["prompt_tokens"]})
        got = self.lines("/api/chat", {"messages": begun, "options": {"num_predict": 24, "temperature": 0}})
        self.assertEqual("".join(line["message"]["content"] for line in got), want["message"]["content"])

    def join(self, events):
        """The message that the events of a stream add up to."""
        message = events[0][1]["message"]
        for name, event in events:
            self.assertEqual(name, event["type"])
            if name == "content_block_start":
                self.assertEqual(event["index"], len(message["content"]))
                message["content"].append({**event["content_block"], "json": ""})
            elif name == "content_block_delta":
                block, delta = message["content"][event["index"]], event["delta"]
                block["text" if delta["type"] == "text_delta" else "json"] += delta.get("text",
                                                                                        delta.get("partial_json"))
            elif name == "message_delta":
                message.update(event["delta"])
                message["usage"] = event["usage"]
        for block in message["content"]:
            arguments = block.pop("json")
            if block["type"] == "tool_use":
                block["input"] = json.loads(arguments) if arguments else {}
        return message

    def test_messages_in_pieces(self):
        for more in ({}, {"tools": TOOLS, "max_tokens": 400,
                          "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}):
            with self.subTest(more=more):
                body = {"messages": USER, **GREEDY, **more}
                _, want = self.server.post(MESSAGES, body)
                events = self.server.events(MESSAGES, body)
                self.assertEqual((events[0][0], events[-1][0]), ("message_start", "message_stop"))
                got = self.join(events)
                for message in (got, want):
                    for key in ("id", "usage"):
                        message.pop(key)
                    for block in message["content"]:
                        block.pop("id", None)
                self.assertEqual(got, want)
                self.assertEqual(want["content"][-1]["type"], "tool_use" if more else "text")

    def test_long_names_of_calls(self):
        """A name of 128 letters, and an id that has it, are in the pieces what they are in the whole."""
        name = "f" * 128
        function = {"name": name, "parameters": CLOSED}
        with template(KIMI) as options:
            server = Server(*options)
            self.addCleanup(server.stop)
            body = {"messages": USER, "max_tokens": 400, "temperature": 0, "tools": [
                {"type": "function", "function": function}], "tool_choice": "required", "parallel_tool_calls": False}
            want = whole_chat(server.post(CHAT, body)[1])
            self.assertEqual(want[0]["calls"][0]["name"], name)
            self.assertTrue(want[0]["calls"][0]["id"].startswith(f"functions.{name}:"))
            self.assertEqual(join_chat(server.events(CHAT, body)), want)
            body = {"messages": USER, "max_tokens": 400, "temperature": 0, "tools": [{**TOOLS[0], "name": name}],
                    "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
            want = server.post(MESSAGES, body)[1]["content"]
            self.assertEqual(want[-1]["name"], name)
            self.assertEqual(self.join(server.events(MESSAGES, body))["content"], want)

    def test_bad_messages(self):
        for body, status, part in (({"messages": USER}, 400, "max_tokens"),
                                   ({"messages": USER, "max_tokens": 5, "model": "x"}, 404, "no model"),
                                   ({"messages": [{"role": "system", "content": "a"}], "max_tokens": 5}, 400, "role"),
                                   ({"messages": [{"role": "user", "content": [{"type": "image"}]}], "max_tokens": 5},
                                    400, "image"),
                                   ({"messages": [5], "max_tokens": 5}, 400, "messages[0]"),
                                   ({"messages": [{"role": "user", "content": [{
                                       "type": "tool_result", "tool_use_id": "t", "content": [{"type": "image"}]}]}],
                                     "max_tokens": 5}, 400, "messages[0].content[0].content[0]:"),
                                   ({"messages": USER, "tools": [{"type": "web_search_20250305", "name": "web_search"}],
                                     "max_tokens": 5}, 400, "tools[0].type is 'web_search"),
                                   ({"messages": USER, "output_config": {"effort": 5}, "max_tokens": 5}, 400,
                                    "output_config.effort must"),
                                   ({"messages": USER, "tools": [{}], "max_tokens": 5}, 400, "tools[0].name"),
                                   ({"messages": USER, "tools": [TOOLS[0], {**TOOLS[0], "name": ""}], "max_tokens": 5},
                                    400, "tools[1].name:"),
                                   ({"messages": USER, "tools": [{**TOOLS[0], "name": "a.b"}], "max_tokens": 5}, 400,
                                    "tools[0].name:"),
                                   ({"messages": USER, "tools": [{**TOOLS[0], "name": "a" * 129}], "max_tokens": 5},
                                    400, "tools[0].name:"),
                                   ({"messages": USER, "tools": TOOLS, "max_tokens": 5,
                                     "tool_choice": {"type": "auto", "disable_parallel_tool_use": "yes"}}, 400,
                                    "tool_choice.disable_parallel_tool_use must"),
                                   ({"messages": USER, "tools": [{**TOOLS[0], "description": 5}], "max_tokens": 5}, 400,
                                    "tools[0].description must"),
                                   ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}],
                                     "max_tokens": 5}, 400, "messages[0].content[0].text must"),
                                   ({"messages": [{"role": "assistant", "content": [{
                                       "type": "tool_use", "id": "t", "name": "f"}]}], "max_tokens": 5}, 400,
                                    "messages[0].content[0].input is missing"),
                                   ({"messages": USER, "stop_sequences": ["a", ""], "max_tokens": 5}, 400,
                                    "stop_sequences[1]:"),
                                   ({"messages": USER, "stop_sequences": [5], "max_tokens": 5}, 400,
                                    "stop_sequences[0] must"),
                                   ({"messages": USER, "output_config": {"format": {
                                       "type": "json_schema", "schema": {"type": "x"}}}, "max_tokens": 5}, 400,
                                    'output_config.format.schema: the schema at "#"'),
                                   ({"messages": USER, "max_tokens": 5, "tool_choice": {"type": "any"},
                                     "tools": [{**TOOLS[0], "strict": True, "input_schema": {
                                         "type": "object",
                                         "properties": {"a": {"type": "string", "format": "regex"}}}}]},
                                    400, "tools: the tool "),
                                   ({"messages": USER, "tool_choice": {"type": "x"}, "max_tokens": 5}, 400,
                                    "tool_choice"),
                                   ([], 400, "object")):
            with self.subTest(body=body):
                got, answer = self.server.post(MESSAGES, body)
                self.assertEqual((got, answer["type"], sorted(answer["error"])), (status, "error", ["message", "type"]))
                self.assertIn(part, answer["error"]["message"])

    def test_output_format(self):
        """The earlier spelling of output_config.format: the same answer, the same errors, and never beside it."""
        form = {"type": "json_schema", "schema": CLOSED}
        body = {"messages": USER, "max_tokens": 100, "temperature": 0}
        want = self.server.post(MESSAGES, {**body, "output_config": {"format": form}})[1]["content"]
        for more in ({}, {"output_config": {"effort": "low"}}, {"output_config": None, "mcp_servers": []},
                     {"output_config": {"format": None}}):
            status, got = self.server.post(MESSAGES, {**body, "output_format": form, **more})
            self.assertEqual((status, got.get("content")), (200, want), got)
        for more, part in (({"output_format": form, "output_config": {"format": form}}, "output_format and output_co"),
                           ({"output_format": {"type": "text"}}, "output_format: only"),
                           ({"output_format": {"type": "json_schema"}}, "output_format.schema is missing"),
                           ({"output_format": {"type": "json_schema", "schema": {"type": "x"}}},
                            'output_format.schema: the schema at "#"'),
                           ({"output_format": 5}, "output_format must"),
                           ({"mcp_servers": [{"type": "url", "url": "http://x", "name": "a"}]}, "mcp_servers: ")):
            for path in (MESSAGES, MESSAGES + "/count_tokens"):
                if path != MESSAGES and '"x"' in json.dumps(more) and "output_format" in more:
                    continue  # schemas are judged where they are used
                status, got = self.server.post(path, {**body, **more})
                self.assertEqual(status, 400, (path, more, got))
                self.assertIn(part, got["error"]["message"])

    def test_prompts_that_are_too_long(self):
        """By the words by which clients of each kind know it, and with the true numbers; of texts whose length the
        loop finds out, and of longer ones."""
        context = json.loads(self.server.get("/v1/models")[1])["data"][0]["max_model_len"]
        for words in (context, 20000):
            text = "word " * words
            messages = [{"role": "user", "content": text}]
            count = self.server.post(MESSAGES + "/count_tokens", {"messages": messages})[1]["input_tokens"]
            plain = len(self.server.post("/tokenize", {"content": text, "add_special": True})[1]["tokens"])
            self.assertGreater(plain, context)
            tail = f"the prompt has %d tokens, {context - 1} fit"
            openai = f"This model's maximum context length is {context} tokens. However, {tail}"
            llama = f"request (%d tokens) exceeds the available context size ({context} tokens), try increasing it"
            ollama = f"the input length exceeds the context length: {tail}"
            for path, body, n, want in (
                    (CHAT, {"messages": messages}, count, openai),
                    ("/v1/completions", {"prompt": text}, plain, openai),
                    ("/v1/responses", {"input": text}, count, openai),
                    (MESSAGES, {"messages": messages}, count, f"prompt is too long: %d tokens > {context - 1} maximum"),
                    ("/api/chat", {"messages": messages}, count, ollama),
                    ("/api/generate", {"prompt": text, "raw": True}, plain, ollama),
                    ("/completion", {"prompt": text}, plain, llama)):
                for stream in (False, True):
                    with self.subTest(path=path, words=words, stream=stream):
                        status, got = self.server.post(path, {"max_tokens": 5, "stream": stream, **body})
                        error = got["error"]
                        self.assertEqual((status, error if isinstance(error, str) else error["message"]),
                                         (400, want % n))
                        if path in (CHAT, "/completion"):
                            self.assertEqual(error["code"], "context_length_exceeded")
            self.assertEqual((error["type"], error["n_prompt_tokens"], error["n_ctx"]),
                             ("exceed_context_size_error", plain, context))
            status, got = self.server.post("/api/embed", {"input": text, "truncate": False})
            self.assertEqual(status, 400)
            self.assertTrue(got["error"].startswith("the input length exceeds the context length: the prompt has "))

    def test_stop_sequences(self):
        text = self.chat()[0]["message"]["content"]
        stop = text[5:8]
        body = {"messages": USER, **GREEDY, "stop_sequences": ["no such text", stop]}
        _, got = self.server.post(MESSAGES, body)
        self.assertEqual((got["stop_reason"], got["stop_sequence"]), ("stop_sequence", stop))
        self.assertEqual(got["content"][0]["text"], text[:text.index(stop)])
        told = self.join(self.server.events(MESSAGES, body))
        self.assertEqual([told[key] for key in ("stop_reason", "stop_sequence", "content")],
                         [got[key] for key in ("stop_reason", "stop_sequence", "content")])

    def test_thinking(self):
        with template("{{ enable_thinking }} {{ thinking_budget }}</think><think>\n") as options:
            server = Server(*options)
            for thinking, variables in (({"type": "enabled", "budget_tokens": 2000},
                                         {"enable_thinking": True, "thinking_budget": 2000}),
                                        ({"type": "adaptive"}, {"enable_thinking": True}),
                                        ({"type": "disabled"}, {"enable_thinking": False}), (None, {})):
                with self.subTest(thinking=thinking):
                    body = {"messages": USER, "max_tokens": 6, "temperature": 0}
                    _, want = server.post(CHAT, {**body, "chat_template_kwargs": variables})
                    _, got = server.post(MESSAGES, {**body, "thinking": thinking})
                    said = want["choices"][0]["message"]
                    self.assertTrue(said["reasoning_content"])
                    self.assertEqual(got["content"][0], {"type": "thinking", "thinking": said["reasoning_content"],
                                                         "signature": ""})
                    count = server.post(MESSAGES + "/count_tokens", {"messages": USER, "thinking": thinking})[1]
                    self.assertEqual(count["input_tokens"], want["usage"]["prompt_tokens"])
            for thinking, part in (({"type": "much"}, "thinking.type"), ({}, "thinking.type"),
                                   ({"type": "enabled", "budget_tokens": "5"}, "budget_tokens")):
                status, got = server.post(MESSAGES, {"messages": USER, "max_tokens": 6, "thinking": thinking})
                self.assertEqual((status, part in got["error"]["message"]), (400, True), got)
            self.assertEqual(server.stop()[0], 0)

    def test_a_tool_that_failed(self):
        def turns(result):
            return [{"role": "user", "content": "Call f"},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", **result}]}]

        def same(content, **more):
            return [{"role": "user", "content": "Call f"},
                    {"role": "assistant", "content": None, "tool_calls": [
                        {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                    {"role": "tool", "tool_call_id": "t1", "content": content, **more}]

        with template("{% for m in messages %}{{ m.role }}:{{ m.is_error }}:{{ m.content }}\n{% endfor %}") as options:
            server = Server(*options)
            for result, messages in (({"content": "no file", "is_error": True}, same("Error: no file", is_error=True)),
                                     ({"content": "error 5", "is_error": True}, same("error 5", is_error=True)),
                                     ({"is_error": True}, same("Error: ", is_error=True)),
                                     ({"content": "3", "is_error": False}, same("3")), ({"content": "3"}, same("3"))):
                with self.subTest(result=result):
                    _, want = server.post(CHAT, {"messages": messages, **GREEDY})
                    status, got = server.post(MESSAGES, {"messages": turns(result), **GREEDY})
                    self.assertEqual(status, 200, got)
                    self.assertEqual(got["content"][0]["text"], want["choices"][0]["message"]["content"])
                    count = server.post(MESSAGES + "/count_tokens", {"messages": turns(result)})[1]
                    self.assertEqual(count["input_tokens"], want["usage"]["prompt_tokens"])
            status, got = server.post(MESSAGES, {"messages": turns({"is_error": "yes"}), **GREEDY})
            self.assertEqual((status, "messages[2]" in got["error"]["message"]), (400, True), got)
            self.assertEqual(server.stop()[0], 0)

    def test_request_id(self):
        for body in ({"messages": USER, **GREEDY}, {"messages": USER, **GREEDY, "stream": True}, {}):
            _, answer, headers = self.server.ask("POST", MESSAGES, json.dumps(body))
            self.assertRegex(headers["request-id"], "^req_")
            self.assertEqual(headers["request-id"], headers["x-request-id"])
        self.assertEqual(json.loads(answer)["request_id"], headers["request-id"])
        self.assertNotIn("request-id", self.server.ask("POST", CHAT, json.dumps({"messages": USER, **GREEDY}))[2])

    # ---- Ollama

    def test_ollama(self):
        want, usage = self.chat(top_k=40, top_p=0.9)
        options = {"temperature": 0, "num_predict": 24}
        status, got = self.server.post("/api/chat", {"model": NAME, "messages": USER, "stream": False,
                                                     "options": options})
        self.assertEqual((status, got["done"], got["message"]["content"]), (200, True, want["message"]["content"]))
        self.assertEqual((got["prompt_eval_count"], got["eval_count"]),
                         (usage["prompt_tokens"], usage["completion_tokens"]))
        self.judge_durations(got)
        lines = self.lines("/api/chat", {"model": NAME, "messages": USER, "options": options})
        self.assertEqual("".join(x["message"]["content"] for x in lines), want["message"]["content"])
        self.assertEqual([x["done"] for x in lines], [False] * (len(lines) - 1) + [True])
        self.judge_durations(lines[-1])
        lines = self.lines("/api/generate", {"model": NAME, "prompt": USER[0]["content"], "options": options})
        self.assertEqual("".join(x["response"] for x in lines), want["message"]["content"])
        schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
                  "required": ["a"], "additionalProperties": False}
        _, got = self.server.post("/api/chat", {"messages": USER, "stream": False, "format": schema,
                                                "options": {"temperature": 0}})
        self.assertEqual(list(json.loads(got["message"]["content"])), ["a"])
        del schema["additionalProperties"]  # as pydantic writes it
        for seed in range(8):
            hot = {"options": {"temperature": 2, "top_k": 0, "top_p": 1, "seed": seed, "num_predict": 200},
                   "stream": False}
            _, got = self.server.post("/api/chat", {"messages": USER, "format": schema, **hot})
            self.assertEqual(list(json.loads(got["message"]["content"])), ["a"])

    def test_ollama_samplers(self):
        """Each option against the same in OpenAI's words; each changes the text."""
        hot, all_of_it = {"temperature": 1.5, "top_p": 1, "top_k": 200, "seed": 35}, {"penalty_tokens": 64}
        loud, mirostat = {"presence_penalty": 2}, {"samplers": "penalties,temperature,mirostat"}
        rows = [({}, {}, all_of_it), ({"typical_p": 0.3}, {"typical_p": 0.3}, all_of_it),
                ({"min_p": 0.2}, {"min_p": 0.2}, all_of_it),
                ({"mirostat": 1, "mirostat_tau": 1.5}, {"mirostat": 1, "mirostat_tau": 1.5, **mirostat}, {}),
                ({"mirostat": 2, "mirostat_tau": 0.5}, {"mirostat": 2, "mirostat_tau": 0.5, **mirostat}, {}),
                ({"mirostat": 2, "mirostat_tau": 2, "mirostat_eta": 0.9},
                 {"mirostat": 2, "mirostat_tau": 2, "mirostat_eta": 0.9, **mirostat}, {}),
                ({"repeat_penalty": 1.5}, {"repetition_penalty": 1.5}, all_of_it),
                (loud, loud, all_of_it), ({**loud, "repeat_last_n": -1}, loud, {"penalty_tokens": 0}),
                ({**loud, "repeat_last_n": 2}, loud, {"penalty_tokens": 2}), ({**loud, "repeat_last_n": 0}, {}, {}),
                ({"frequency_penalty": 2}, {"frequency_penalty": 2}, all_of_it)]
        ask = [{"role": "user", "content": "Tell me a story about a lamb."}]
        story = ("Once upon a time, a lamb named Hugo lived near the harbour. One morning, when the wind was cold, "
                 "Hugo painted a yellow shell near the old mill.")
        turns = ask + [{"role": "assistant", "content": " ".join([story] * 5)}, *ask]
        texts = []
        for options, same, window in rows:
            with self.subTest(options=options):
                want, _ = self.chat(**{"messages": turns, "max_tokens": 40, **hot, **same, **window})
                _, got = self.server.post("/api/chat", {"messages": turns, "stream": False, "options": {
                    **hot, "num_predict": 40, **options}})
                self.assertEqual(got["message"]["content"], want["message"]["content"])
                texts.append(want["message"]["content"])
        free, last_64, everything, last_2, none = texts[0], *texts[7:11]
        self.assertEqual(none, free)
        self.assertTrue(last_64 not in (everything, last_2) and free not in texts[1:9] + texts[11:], texts)
        for options in ({"repeat_last_n": "x"}, {"repeat_last_n": -2}, {"mirostat": 3}, {"mirostat": "on"},
                        {"typical_p": 7}):
            status, got = self.server.post("/api/chat", {"messages": USER, "stream": False, "options": options})
            self.assertEqual((status, list(got)), (400, ["error"]))

    def test_ollama_numbers_that_mean_none(self):
        """num_predict below 1: as without it, until the context is full. A seed of -1: one of the server's."""
        for body in ({"messages": USER}, {"prompt": "Once upon a time"}, {"prompt": "Once upon a time", "raw": True}):
            path = "/api/chat" if "messages" in body else "/api/generate"
            with self.subTest(body=body):
                texts = []
                for more in ({}, {"num_predict": 0}, {"num_predict": -1}, {"num_predict": -2}):
                    status, got = self.server.post(path, {**body, "stream": False, "options": {
                        "temperature": 0, "stop": [".", "?"], **more}})
                    self.assertEqual((status, got.get("done_reason")), (200, "stop"), got)
                    texts.append(got["message"]["content"] if "messages" in body else got["response"])
                self.assertEqual(set(texts), {texts[0]})
                self.assertGreater(got["eval_count"], 1)
        for seed, many in ((-1, True), (5, False)):
            body = {"prompt": "Once upon a time", "raw": True, "stream": False, "options": {
                "temperature": 9, "top_k": 0, "top_p": 1, "num_predict": 40, "seed": seed}}
            texts = {self.server.post("/api/generate", body)[1]["response"] for _ in range(5)}
            self.assertEqual(len(texts) > 1, many, texts)

    def test_ollama_knows_no_bounds_of_openai(self):
        """What its clients send beyond them is drawn with, as in llama.cpp's form."""
        for options, fields in (({"temperature": 7, "seed": 4}, {}), ({"temperature": 0, "presence_penalty": 9}, {}),
                                ({"temperature": 0, "frequency_penalty": -30}, {})):
            status, got = self.server.post("/api/generate", {"prompt": "Once upon a time", "raw": True, "stream": False,
                                                             "options": {"num_predict": 12, **options}})
            self.assertEqual(status, 200, got)
            same = self.server.post("/completion", {"prompt": "Once upon a time", "n_predict": 12, "top_p": 0.9, "min_p": 0,
                                                    **options})[1]
            self.assertEqual(got["response"], same["content"], options)

    def test_ollama_names_its_own_fields(self):
        chat, text = ("/api/chat", {"messages": USER}), ("/api/generate", {"prompt": "a", "raw": True})
        for path, body in (chat, text):
            for options, name in (({"num_predict": "x"}, "num_predict"), ({"repeat_last_n": -2}, "repeat_last_n"),
                                  ({"repeat_penalty": -1}, "repeat_penalty"), ({"temperature": -1}, "temperature"),
                                  ({"mirostat": 7}, "mirostat"), ({"stop": ["a", ""]}, "stop[1]"),
                                  ({"seed": "x"}, "seed")):
                with self.subTest(path=path, options=options):
                    status, got = self.server.post(path, {**body, "options": options})
                    self.assertEqual(status, 400, got)
                    self.assertRegex(got["error"], "^options." + name.replace("[", r"\[") + "[ :]")
            status, got = self.server.post(path, {**body, "format": {"type": "no such type"}})
            self.assertTrue(got["error"].startswith("format: "), got)
            self.assertEqual((status, 'the schema at "#"' in got["error"]), (400, True), got)
        status, got = self.server.post("/api/embeddings", {"prompt": "word " * 20000})
        self.assertEqual(status, 400, got)

    def test_ollama_names_with_a_tag(self):
        tagged = NAME + ":latest"
        options = {"num_predict": 4, "temperature": 0}
        for path, body in (("/api/chat", {"messages": USER, "options": options}),
                           ("/api/generate", {"prompt": "a", "options": options}), ("/api/embed", {"input": "a"}),
                           ("/api/generate", {}), ("/api/chat", {"messages": []}), ("/api/embed", {})):
            with self.subTest(path=path, body=body):
                status, got = self.server.post(path, {"model": tagged, "stream": False, **body})
                self.assertEqual((status, got["model"]), (200, tagged), got)
        self.assertEqual(self.server.post("/api/show", {"model": tagged})[0], 200)
        self.assertEqual(self.server.post("/api/embeddings", {"model": tagged, "prompt": "a"})[0], 200)
        self.assertEqual(self.server.post(CHAT, {"messages": USER, **GREEDY, "model": tagged})[1]["model"], tagged)
        self.assertEqual(self.server.get(f"/v1/models/{tagged}")[0], 200)
        for name in (NAME + ":8b", NAME + ":", ":latest", NAME + ":latest:latest", "x" * 500 + ":latest"):
            self.assertEqual(self.server.post("/api/show", {"model": name})[0], 404, name)

    def test_ollama_vectors_of_nothing(self):
        """They load a model, as Ollama's do, and there is no vector."""
        for more in ({}, {"model": NAME}):
            for body in ({}, {"input": None}, {"input": ""}, {"input": []}):
                status, got = self.server.post("/api/embed", {**more, **body})
                self.assertEqual((status, got), (200, {"model": NAME, "embeddings": []}), body)
            for body in ({}, {"prompt": None}, {"prompt": ""}):
                status, got = self.server.post("/api/embeddings", {**more, **body})
                self.assertEqual((status, got), (200, {"embedding": []}), body)
        self.assertEqual(self.server.post("/api/embed", {"model": "x"})[0], 404)
        for given, name in ((5, "input"), ({}, "input"), ([1, 2], "input[0]"), (["a", 5], "input[1]"),
                            ([["a"]], "input[0]")):
            status, got = self.server.post("/api/embed", {"input": given})
            self.assertEqual((status, got["error"].split()[0]), (400, name), given)

    def judge_durations(self, answer):
        self.assertGreater(answer["prompt_eval_duration"], 0)
        self.assertGreater(answer["eval_duration"], 0)
        self.assertLess(answer["load_duration"], answer["total_duration"])
        self.assertLessEqual(answer["prompt_eval_duration"] + answer["eval_duration"], answer["total_duration"])

    def test_ollama_thinks(self):
        with template("{{ enable_thinking }} {{ reasoning_effort }}</think><think>\n") as options:
            server = Server(*options)
            options = {"temperature": 0, "num_predict": 6}
            for think in (True, "low", "high", "max", False):
                with self.subTest(think=think):
                    body = {"prompt": "x", "messages": USER, "think": think, "options": options, "stream": False}
                    text, chat = (server.post(path, body)[1] for path in ("/api/generate", "/api/chat"))
                    _, want = server.post(CHAT, {
                        "messages": USER, "max_tokens": 6, "temperature": 0, "top_p": 0.9, "top_k": 40,
                        "chat_template_kwargs": {"enable_thinking": think is not False},
                        **({"reasoning_effort": think} if isinstance(think, str) else {})})
                    said = want["choices"][0]["message"]
                    self.assertTrue(said["reasoning_content"])
                    self.assertEqual((text["thinking"], text["response"]), (said["reasoning_content"], said["content"]))
                    self.assertEqual(chat["message"]["thinking"], said["reasoning_content"])
                    self.assertEqual(text["prompt_eval_count"], want["usage"]["prompt_tokens"])
                    status, data, _ = server.ask("POST", "/api/generate", json.dumps({**body, "stream": True}))
                    lines = [json.loads(line) for line in data.decode().splitlines()]
                    self.assertEqual("".join(x.get("thinking", "") for x in lines), text["thinking"])
                    self.assertEqual("".join(x["response"] for x in lines), text["response"])
            for think in (5, "much", ["low"], {}):
                status, got = server.post("/api/chat", {"messages": USER, "think": think})
                self.assertEqual((status, "think" in got["error"]), (400, True))
            self.assertEqual(server.post("/api/show", {"model": NAME})[1]["capabilities"],
                             ["completion", "embedding", "thinking"])
            self.assertEqual(server.stop()[0], 0)

    def test_ollama_calls(self):
        body = {"messages": USER, "tools": [TOOL], "options": {"temperature": 0, "num_predict": 60}}
        _, whole = self.server.post("/api/chat", {**body, "stream": False})
        pieces = self.lines("/api/chat", body)
        for calls in (pieces[-1]["message"].get("tool_calls", []), whole["message"].get("tool_calls", [])):
            for i, call in enumerate(calls):
                self.assertRegex(call.pop("id"), f"^call_[0-9a-f]+_{i}$")
                self.assertEqual(call["function"].pop("index"), i)
                self.assertEqual(list(call), ["function"])
        self.assertEqual(pieces[-1]["message"].get("tool_calls"), whole["message"].get("tool_calls"))
        turns = USER + [{"role": "assistant", "content": "",
                         "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
                        {"role": "tool", "content": "4", "tool_name": "f"}]
        self.assertEqual(self.server.post("/api/chat", {**body, "messages": turns, "stream": False})[0], 200)

    def test_lines_are_lines_for_all_clients(self):
        """httpx, which Ollama's client reads with, splits lines as str.splitlines does."""
        called = 0
        for letter in "\u2028\u2029\u0085":
            body = {"prompt": "x", "format": {"const": f"a{letter}b"}, "options": {"num_predict": 60}}
            data = self.server.ask("POST", "/api/generate", json.dumps(body))[1].decode()
            lines = [json.loads(line) for line in data.splitlines()]
            self.assertEqual(json.loads("".join(line["response"] for line in lines)), f"a{letter}b")
        with template("<|python_tag|>{{ messages | tojson }}{{ tools | tojson }}\n") as options:  # a call is bare JSON
            server = Server(*options)
            self.addCleanup(server.stop)
        for text in ("a\u2028b", "a\u2029b", "a\u0085b"):
            given = {"type": "object", "properties": {"a": {"const": text}}, "required": ["a"],
                     "additionalProperties": False}
            form = {"type": "object", "properties": {"name": {"const": "f"}, "parameters": given},
                    "required": ["name", "parameters"], "additionalProperties": False}
            for seed in range(8):  # what is between the parts is drawn: also ends of lines
                body = {"messages": USER, "format": form, "options": {"num_predict": 100, "seed": seed},
                        "tools": [{"type": "function", "function": {"name": "f", "parameters": given}}]}
                data = server.ask("POST", "/api/chat", json.dumps(body))[1].decode()
                calls = [call["function"] for line in data.splitlines()
                         for call in json.loads(line)["message"].get("tool_calls", [])]
                self.assertLessEqual(len(calls), 1)  # none: the blanks had no end
                for call in calls:
                    self.assertEqual((call["name"], call["arguments"]), ("f", {"a": text}))
                    called += 1
        self.assertGreater(called, 0)

    def test_what_is_told_back_is_on_lines_for_all_clients(self):
        text = "a\u2028b\u2029c\u0085d"
        given = {"instructions": text, "metadata": {text: text}, "tools": [
            {"type": "function", "name": "f", "description": text, "parameters": CLOSED}], "text": {"format": {
                "type": "json_schema", "name": "a", "schema": {"const": text}, "description": text}}}
        data = self.server.ask("POST", "/v1/responses", json.dumps(
            {"input": "x", "max_output_tokens": 16, "stream": True, **given}))[1].decode()
        self.assertEqual(data.splitlines(), data.split("\n")[:-1])
        last = [json.loads(line[6:]) for line in data.split("\n") if line.startswith("data: ")][-1]["response"]
        self.assertEqual((last["instructions"], last["metadata"], last["tools"][0]["description"],
                          last["text"]["format"]["schema"]),
                         (text, {text: text}, text, {"const": text}))
        data = self.server.ask("POST", "/completion", json.dumps(
            {"prompt": text, "n_predict": 2, "stream": True, "response_fields": ["prompt", "stop"]}))[1].decode()
        self.assertEqual(data.splitlines(), data.split("\n")[:-1])
        self.assertEqual(json.loads(data.split("\n")[-3][6:]), {"prompt": text, "stop": True})

    def test_ollama_lists(self):
        get = self.server.get
        self.assertEqual(json.loads(get("/api/version")[1]), {"version": json.loads(
            get("/props")[1])["build_info"].split()[1]})
        for path in ("/api/tags", "/api/ps"):
            self.assertEqual([m["name"] for m in json.loads(get(path)[1])["models"]], [NAME])
        for path in ("/api/tags", "/api/ps"):
            model = json.loads(get(path)[1])["models"][0]
            self.assertEqual(model["details"]["family"], "llama")
            self.assertRegex(model["digest"], "[0-9a-f]{64}")
        shown = self.server.post("/api/show", {"model": NAME})[1]
        info = json.loads(run("info", MODEL, "--json").stdout)
        self.assertEqual(shown["model_info"], {
            "general.architecture": "llama", "general.parameter_count": info["parameters"], "llama.block_count": 6,
            **{key: common.metadata()[key] for key in ("llama.context_length", "llama.embedding_length")}})
        self.assertEqual(shown["details"]["quantization_level"], "Q8_0")
        self.assertEqual(shown["details"]["parameter_size"], f"{info['parameters'] / 1e6:.2f}M")
        self.assertEqual(shown["capabilities"], ["completion", "embedding", "tools"])
        with open(self.template[1]) as file:
            self.assertEqual(shown["template"], file.read())
        self.assertEqual(self.server.post("/api/show", {"model": "x"})[0], 404)
        status, got = self.server.post("/api/embed", {"model": NAME, "input": ["Hello"]})
        want = json.loads(run("embed", MODEL, "Hello", "--json", "-q").stdout)["data"][0]["embedding"]
        self.assertEqual((status, got["embeddings"]), (200, [want]))
        for path, body in (("/api/chat", {"messages": 5}), ("/api/chat", {"messages": USER, "options": 5}),
                           ("/api/generate", {}), ("/api/generate", {"prompt": "a", "raw": True, "system": "b"}),
                           ("/api/generate", {"prompt": "a", "images": ["x"]}), ("/api/embeddings", {"prompt": 5}),
                           ("/api/chat", {"messages": USER, "top_logprobs": 2}),
                           ("/api/chat", {"messages": [{"role": "user", "content": "a", "images": ["x"]}]}),
                           ("/api/chat", {"messages": USER, "format": "xml"}), ("/api/show", {})):
            with self.subTest(path=path, body=body):
                status, got = self.server.post(path, body)
                self.assertEqual((status, list(got)), (400, ["error"]))


if __name__ == "__main__":
    common.main("__main__")
