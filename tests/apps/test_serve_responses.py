#!/usr/bin/env python3
"""/v1/responses of runnel serve: items, tools and log-probabilities as of a chat, in pieces as at once."""
import json
import unittest

import common
from batch_job import CHAT, RESPONSES, USER, bodies, line
from server import Server, template

PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"],
              "additionalProperties": False}
FLAT = [{"type": "function", "name": "f", "description": "d", "parameters": PARAMETERS, "strict": True},
        {"type": "function", "name": "g", "parameters": PARAMETERS}]
TOOLS = [{"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}} for tool in FLAT]
LENGTH = 120
HOT = {"temperature": 1, "seed": 5}

BAD = [
    ({"input": "a", "tools": [{"type": "web_search"}]}, "unsupported_value", "tools[0].type"),
    ({"input": "a", "tools": [5]}, "invalid_type", "tools[0]"),
    ({"input": "a", "tools": FLAT + [{"type": "function"}]}, "missing_required_parameter", "tools[2].name"),
    ({"input": "a", "tools": FLAT + [{"type": "function", "name": 5}]}, "invalid_type", "tools[2].name"),
    ({"input": "a", "tools": FLAT + [{"type": "function", "name": ""}]}, "invalid_value", "tools[2].name"),
    ({"input": "a", "tools": {}}, "invalid_type", "tools"),
    ({"input": "a", "tools": FLAT, "tool_choice": {"type": "function", "name": "h"}}, "invalid_value", "tool_choice"),
    ({"input": "a", "tools": FLAT, "tool_choice": {"type": "file_search"}}, "unsupported_value", "tool_choice"),
    ({"input": "a", "tools": FLAT, "tool_choice": {"type": "allowed_tools", "mode": "some", "tools": []}},
     "invalid_value", "tool_choice.mode"),
    ({"input": "a", "tools": FLAT, "tool_choice": {"type": "allowed_tools", "tools": []}},
     "missing_required_parameter", "tool_choice.mode"),
    ({"input": "a", "tools": FLAT, "tool_choice": {"type": "allowed_tools", "mode": "auto"}},
     "missing_required_parameter", "tool_choice.tools"),
    ({"input": "a", "tools": FLAT, "tool_choice": {"type": "allowed_tools", "mode": "auto",
                                                   "tools": [5, {"name": 5}, {"name": "h"}]}},
     "invalid_value", "tool_choice.tools"),
    ({"input": "a", "include": ["file_search_call.results"]}, "unsupported_value", "include[0]"),
    ({"input": "a", "include": [5]}, "invalid_type", "include[0]"),
    ({"input": "a", "include": "all"}, "invalid_type", "include"),
    ({"input": "a", "top_logprobs": 21, "include": ["message.output_text.logprobs"]}, "invalid_value", "top_logprobs"),
    ({"input": "a", "parallel_tool_calls": "no"}, "invalid_type", "parallel_tool_calls"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "unsupported_value", "input[0]"),
    ({"input": [{"type": 5}]}, "invalid_type", "input[0].type"),
    ({"input": [{"type": "reasoning", "summary": []}]}, "invalid_value", "input"),
    ({"input": [{"type": "reasoning", "content": "a"}]}, "invalid_type", "input[0].content"),
    ({"input": [{"type": "reasoning", "content": [{"type": "image"}]}]}, "unsupported_value", "input[0].content[0]"),
    ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "missing_required_parameter",
     "input[0].call_id"),
    ({"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]}, "missing_required_parameter",
     "input[0].name"),
    ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}]}, "invalid_type",
     "input[0].arguments"),
    ({"input": [{"type": "function_call_output", "output": "1"}]}, "missing_required_parameter", "input[0].call_id"),
    ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "missing_required_parameter", "input[0].output"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]}]},
     "unsupported_value", "input[0].output[0]"),
]


class Join:
    """What the events of a stream add up to; each event must fit what came before."""

    def __init__(self, events):
        self.output, self.last = [], None
        for i, (name, event) in enumerate(events):
            assert name == event["type"] and event["sequence_number"] == i, event
            assert self.last is None, "behind the end"
            getattr(self, name.replace("response.", "").replace(".", "_"))(event)

    def item(self, event):
        assert event["output_index"] == len(self.output) - 1, event
        item = self.output[-1]
        assert event["item_id"] == item["id"] and item["open"], event
        return item

    def created(self, event):
        assert event["response"]["status"] == "in_progress" and event["response"]["output"] == []

    in_progress = created

    def output_item_added(self, event):
        assert event["output_index"] == len(self.output) and all(not item["open"] for item in self.output)
        assert event["item"].get("status", "in_progress") == "in_progress"
        assert not event["item"].get("content") and not event["item"].get("arguments")
        self.output.append({**event["item"], "open": True})

    def content_part_added(self, event):
        item = self.item(event)
        assert event["content_index"] == len(item["content"]) == 0 and event["part"]["text"] == ""
        item["content"].append(event["part"])

    def output_text_delta(self, event):
        part = self.item(event)["content"][event["content_index"]]
        assert part["type"] == "output_text" and event["delta"]
        part["text"] += event["delta"]
        part["logprobs"] += event["logprobs"]

    def reasoning_text_delta(self, event):
        part = self.item(event)["content"][event["content_index"]]
        assert part["type"] == "reasoning_text" and event["delta"]
        part["text"] += event["delta"]

    def output_text_done(self, event):
        part = self.item(event)["content"][event["content_index"]]
        assert part["text"] == event["text"]
        assert event["logprobs"][:len(part["logprobs"])] == part["logprobs"]  # of tokens without text at the end
        part["logprobs"] = event["logprobs"]

    def reasoning_text_done(self, event):
        assert self.item(event)["content"][event["content_index"]]["text"] == event["text"]

    def content_part_done(self, event):
        assert self.item(event)["content"][event["content_index"]] == event["part"]

    def function_call_arguments_delta(self, event):
        assert event["delta"]
        self.item(event)["arguments"] += event["delta"]

    def function_call_arguments_done(self, event):
        item = self.item(event)
        assert (item["arguments"], item["name"]) == (event["arguments"], event["name"])

    def output_item_done(self, event):
        item = self.output[-1]
        assert event["output_index"] == len(self.output) - 1 and item.pop("open")
        if "status" in item:
            item["status"] = event["item"]["status"]
        assert item == event["item"], (item, event["item"])
        item["open"] = False

    def completed(self, event):
        for item in self.output:
            assert not item.pop("open")
        assert event["response"]["output"] == self.output
        assert event["type"] == "response." + event["response"]["status"]
        self.last = event["response"]

    incomplete = completed


def shape(response):
    """A response without ids."""
    for item in response["output"]:
        assert item.pop("id")
        if item["type"] == "function_call":
            assert item.pop("call_id")
    for key in ("id", "created_at"):
        response.pop(key)
    response["usage"].pop("input_tokens_details")
    return response


def as_chat(response):
    """content and calls, as a chat's message has them."""
    texts = [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(texts), [(item["name"], item["arguments"]) for item in response["output"]
                            if item["type"] == "function_call"]


def of_chat(body):
    message = body["choices"][0]["message"]
    return message["content"] or "", [(call["function"]["name"], call["function"]["arguments"])
                                      for call in message.get("tool_calls", [])]


class Responses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.template = cls.enterClassContext(template())
        cls.server = Server(*cls.template)

    @classmethod
    def tearDownClass(cls):
        code, said = cls.server.stop()
        assert code == 0, (code, said)

    def respond(self, **body):
        status, got = self.server.post(RESPONSES, {"max_output_tokens": LENGTH, **HOT, **body})
        self.assertEqual(status, 200, got)
        return got

    def chat(self, **body):
        status, got = self.server.post(CHAT, {"max_tokens": LENGTH, **HOT, **body})
        self.assertEqual(status, 200, got)
        return got

    CHOICES = [("required", "required"), ("auto", "auto"),
               ({"type": "function", "name": "g"}, {"type": "function", "function": {"name": "g"}})]

    def test_calls_are_those_of_a_chat(self):
        called = 0
        for flat, nested in self.CHOICES:
            for parallel in (True, False):
                with self.subTest(choice=flat, parallel=parallel):
                    more = {"parallel_tool_calls": parallel}
                    got = self.respond(input="What is 2+2?", tools=FLAT, tool_choice=flat, **more)
                    want = self.chat(messages=USER, tools=TOOLS, tool_choice=nested, **more)
                    self.assertEqual(as_chat(got), of_chat(want))
                    self.assertEqual((got["tools"], got["tool_choice"], got["parallel_tool_calls"]),
                                     (FLAT, flat, parallel))
                    self.assertEqual(got["usage"]["input_tokens"], want["usage"]["prompt_tokens"])
                    for item in got["output"]:
                        if item["type"] == "function_call" and item["status"] == "completed":
                            called += 1
                            self.assertEqual(list(json.loads(item["arguments"])), ["n"])
        self.assertGreater(called, 3)

    def test_a_batch_has_the_same(self):
        body = {"input": "What is 2+2?", "tools": FLAT, "tool_choice": "required", "max_output_tokens": LENGTH, **HOT}
        self.assertEqual(shape(self.respond(**body))["output"],
                         shape(bodies([line("a", RESPONSES, body)], *self.template)[0])["output"])

    def test_pieces_join_to_the_whole(self):
        logprobs = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
        for body in ({"tools": FLAT, "tool_choice": "required"}, {"tools": FLAT, "tool_choice": "auto", **logprobs},
                     {"tools": FLAT, "tool_choice": "required", "parallel_tool_calls": False},
                     {"tools": FLAT, "tool_choice": "required", "max_output_tokens": 20}, {}, logprobs,
                     {"max_output_tokens": 1}, {"reasoning": {"effort": "low"}, "instructions": "Be short."}):
            with self.subTest(body=body):
                body = {"input": "What is 2+2?", "max_output_tokens": LENGTH, **HOT, **body}
                joined = Join(self.server.events(RESPONSES, body))
                self.assertIsNotNone(joined.last)
                self.assertEqual(shape(joined.last), shape(self.respond(**body)))

    def test_many_calls(self):
        body = {"input": "x", "max_output_tokens": 2000, "temperature": 0, "tool_choice": "required",
                "tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]}
        with template("{{ tools | tojson }}List of tools: []\n") as options:
            server = Server(*options, "-c", "4096")
            joined = Join(server.events(RESPONSES, body))
            status, whole = server.post(RESPONSES, body)
            self.assertEqual((status, server.stop()[0]), (200, 0))
        calls = [item for item in joined.output if item["type"] == "function_call"]
        self.assertGreater(len(calls), 130)
        self.assertEqual({(item["name"], item["arguments"]) for item in calls}, {("f", "{}")})
        self.assertEqual(len({item["call_id"] for item in calls}), len(calls))
        self.assertEqual(shape(joined.last), shape(whole))

    def test_reasoning_in_pieces(self):
        with template("{{ reasoning_effort }}</think><think>\n") as options:
            server = Server(*options)
            body = {"input": "x", "temperature": 0, "max_output_tokens": 6, "reasoning": {"effort": "low"}}
            joined = Join(server.events(RESPONSES, body))
            status, whole = server.post(RESPONSES, body)
            self.assertEqual((status, server.stop()[0]), (200, 0))
        self.assertEqual([item["type"] for item in joined.output], ["reasoning", "message"])
        self.assertTrue(joined.output[0]["content"][0]["text"])
        self.assertEqual(shape(joined.last), shape(whole))

    def test_logprobs_are_those_of_a_chat(self):
        got = self.respond(input="What is 2+2?", include=["message.output_text.logprobs"], top_logprobs=3)
        want = self.chat(messages=USER, logprobs=True, top_logprobs=3)
        self.assertEqual(got["output"][0]["content"][0]["logprobs"], want["choices"][0]["logprobs"]["content"])
        self.assertEqual(got["top_logprobs"], 3)
        plain = self.respond(input="What is 2+2?", top_logprobs=3)  # they are not asked for
        self.assertEqual(plain["output"][0]["content"][0]["logprobs"], [])

    def test_items_are_messages(self):
        turns = [{"role": "user", "content": "Call f"},
                 {"type": "reasoning", "id": "rs_1", "summary": [],
                  "content": [{"type": "reasoning_text", "text": "hm"}]},
                 {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Now."}]},
                 {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": '{"n": 1}',
                  "status": "completed"},
                 {"type": "function_call", "call_id": "c2", "name": "g", "arguments": '{"n": 2}'},
                 {"type": "function_call_output", "call_id": "c1", "output": "3"},
                 {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "4"}]},
                 {"type": "function_call", "call_id": "c3", "name": "g", "arguments": "not JSON"},
                 {"type": "function_call_output", "call_id": "c3", "output": "5"}, {"role": "user", "content": "And?"}]

        def call(number, name, arguments):
            return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}

        messages = [{"role": "user", "content": "Call f"},
                    {"role": "assistant", "content": "Now.", "reasoning_content": "hm",
                     "tool_calls": [call("c1", "f", '{"n": 1}'), call("c2", "g", '{"n": 2}')]},
                    {"role": "tool", "tool_call_id": "c1", "content": "3"},
                    {"role": "tool", "tool_call_id": "c2", "content": "4"},
                    {"role": "assistant", "content": None, "tool_calls": [call("c3", "g", "not JSON")]},
                    {"role": "tool", "tool_call_id": "c3", "content": "5"}, {"role": "user", "content": "And?"}]
        with template("{{ messages | tojson }}{{ tools | tojson }}\n") as options:  # the prompt is what it is told
            server = Server(*options)
            more = {"temperature": 0}
            _, got = server.post(RESPONSES, {"input": turns, "tools": FLAT, "max_output_tokens": 30, **more})
            _, want = server.post(CHAT, {"messages": messages, "tools": TOOLS, "max_tokens": 30, **more})
            self.assertEqual(server.stop()[0], 0)
        self.assertEqual(as_chat(got), of_chat(want))
        self.assertEqual(got["usage"]["input_tokens"], want["usage"]["prompt_tokens"])
        self.assertGreater(want["usage"]["prompt_tokens"], 100)

    def test_allowed_tools(self):
        choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]}
        got = self.respond(input="What is 2+2?", tools=FLAT, tool_choice=choice)
        want = self.chat(messages=USER, tools=TOOLS[1:], tool_choice="required")
        self.assertEqual(as_chat(got), of_chat(want))
        self.assertEqual({item["name"] for item in got["output"] if item["type"] == "function_call"}, {"g"})
        self.assertEqual((got["tools"], got["tool_choice"]), (FLAT, choice))

    def test_a_conversation_goes_on(self):
        """The output of a response is the input of the next one."""
        first = self.respond(input=USER, tools=FLAT, tool_choice="required", parallel_tool_calls=False)
        call = next(item for item in first["output"] if item["type"] == "function_call")
        more = [{"type": "function_call_output", "call_id": call["call_id"], "output": "4"}]
        self.assertEqual(self.respond(input=USER + first["output"] + more, tools=FLAT)["object"], "response")

    def test_bad_requests(self):
        for body, code, param in BAD:
            with self.subTest(body=body):
                status, got = self.server.post(RESPONSES, body)
                self.assertEqual((status, got["error"]["code"], got["error"]["param"]), (400, code, param))


if __name__ == "__main__":
    common.main("__main__")
