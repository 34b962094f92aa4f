#!/usr/bin/env python3
"""What answers may be, by the program's options and the lines of a batch: other programs judge them. And what is wrong
with a grammar is told in a sentence."""
import json
import os
import re
import sys
import tempfile
import unittest

import common
from batch_job import CALLING, CHAT, RESPONSES, TEXT, USER, Job, answers, bodies, line
from common import MODEL

try:
    from jsonschema import Draft202012Validator
except ImportError:
    common.skip("python3-jsonschema is missing")

PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer",
          "minimum": 0, "maximum": 99}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}},
          "required": ["name", "age"], "additionalProperties": False}
CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}, "n": {"type": "integer", "minimum": 0,
        "maximum": 9}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": CITY}},
         {"type": "function", "function": {"name": "stop_all", "parameters": {"type": "object", "properties": {}}}}]
TEMPLATE = """{% for t in tools or [] %}{{ t | tojson }}
{% endfor %}{% for m in messages %}<|user|>{{ m.content }}{% endfor %}<|assistant|>
{#- <tool_call>
{"name": "..", "arguments": {}}
</tool_call> #}"""
GBNF = 'root ::= "[" [0-9]{1,2} ("," [0-9]{1,2}){0,4} "]"'
LARK = 'start: WORD (" " WORD)~0..3 "."\nWORD: /[a-z]{1,5}/\n'
DRAWN = ("--temperature", "1", "-q", "-n", "200")


def valid(text, schema):
    return not list(Draft202012Validator(schema).iter_errors(json.loads(text)))


class Options(unittest.TestCase):
    def answers(self, *options, stdin=b""):
        """Three of different seeds."""
        for seed in range(3):
            result = common.run("run", MODEL, "-p", "Tell me.", *DRAWN, "--seed", seed, *options, stdin=stdin)
            self.assertEqual(result.returncode, 0, result.stderr)
            yield result.stdout.decode()

    def test_schema(self):
        for text in self.answers("--json-schema", json.dumps(PERSON)):
            self.assertTrue(valid(text, PERSON), text)
            self.assertNotIn("\n", text)
        for text in self.answers("--json-schema-file", "-", "--grammar-any-order", stdin=json.dumps(PERSON).encode()):
            self.assertTrue(valid(text, PERSON), text)

    def test_flags(self):
        open_schema = {key: value for key, value in PERSON.items() if key != "additionalProperties"}
        for text in self.answers("--json-schema", json.dumps(open_schema), "--grammar-closed"):
            self.assertLessEqual(set(json.loads(text)), set(PERSON["properties"]), text)
        overlap = {"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}
        for text in self.answers("--json-schema", json.dumps(overlap), "--grammar-one-of"):
            self.assertIn(json.loads(text), (1, 2, 3))
        odd = {"type": "string", "format": "regex", "maxLength": 4}
        for text in self.answers("--json-schema", json.dumps(odd), "--grammar-unenforced"):
            self.assertLessEqual(len(json.loads(text)), 4)

    def test_white_space(self):
        two = {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["a", "b"],
               "additionalProperties": False}
        space = common.run("tokenize", MODEL, "-p", " ", "--ids", "-q").stdout.split()[-1].decode()
        texts = {option: common.run("run", MODEL, "-p", "x", "-q", "-n", "200", "--temperature", "1", "--logit-bias",
                                    f"{space}=6", "--json-schema", json.dumps(two), *option).stdout.decode()
                 for option in [(), ("--grammar-white",)]}
        self.assertEqual(texts[()], '{"a":1,"b":2}')
        self.assertIn(" ", texts[("--grammar-white",)])

    def test_notations(self):
        for text in self.answers("--regex", "[a-c]{2,5}-\\d{3}(x|yz)?"):
            self.assertRegex(text, "^[a-c]{2,5}-[0-9]{3}(x|yz)?$")
        for text in self.answers("--choice", "yes,no", "--choice", "may\\, be"):
            self.assertIn(text, ("yes", "no", "may, be"))
        for text in self.answers("--grammar", GBNF):
            self.assertLessEqual(len(json.loads(text)), 5)
        with tempfile.TemporaryDirectory() as folder:
            for option, content in (("--grammar-file", GBNF), ("--ebnf-file", LARK)):
                path = os.path.join(folder, "grammar")
                with open(path, "w") as file:
                    file.write(content)
                for text in self.answers(option, path):
                    self.assertRegex(text,
                                     r"^\[[0-9,]+\]$" if option == "--grammar-file" else r"^[a-z]+( [a-z]+){0,3}\.$")

    def test_any_json(self):
        for option, kind in (("--json-object", dict), ("--json-value", object)):
            result = common.run("run", MODEL, "-p", "x", "-q", "-n", "300", "--json", "--temperature", "1", option)
            events = [json.loads(text) for text in result.stdout.splitlines()]
            self.assertEqual(events[-1]["type"], "done")
            if events[-1]["finish"] == "stop":
                text = "".join(event["text"] for event in events if event["type"] == "token")
                self.assertIsInstance(json.loads(text), kind)

    def test_exclusive(self):
        result = common.run("run", MODEL, "-p", "x", "--regex", "a", "--choice", "b")
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"--regex and --choice exclude each other", result.stderr)
        self.assertEqual(common.run("run", MODEL, "-p", "x", "--choice", "a,,b").returncode, 2)

    def test_chat(self):
        result = common.run("chat", MODEL, *DRAWN, "--json-schema", json.dumps(PERSON), stdin=b"Hello\nAgain\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        texts = result.stdout.decode().splitlines()
        self.assertEqual([valid(text, PERSON) for text in texts], [True, True])


class Hostile(unittest.TestCase):
    """A sentence, and an exit code that says so."""
    WRONG = [  # an option, a file's content, what the sentence says
        ("--grammar-file", b"root ::= \"a", "line 1, column 12"),
        ("--grammar-file", b"root ::= a\na ::= b", "line 2, column 7"),
        ("--grammar-file", b"x ::= \"a\"", "root"),
        ("--grammar-file", b"", "no rules"),
        ("--grammar-file", b"root ::= root", "no text"),
        ("--grammar-file", b"root ::= " + b"(" * 100000, "line 1"),
        ("--grammar-file", b"root ::= \"a\"{1000000} \"b\"{1000000}", "more than"),
        ("--grammar-file", b"root ::= <no such token>", "no token"),
        ("--grammar-file", b"\xff\xfe", "UTF-8"),
        ("--grammar-file", b"#" * (3 << 20), "2097152"),
        ("--ebnf-file", b"start: /(?=a)/", "lookahead"),
        ("--json-schema-file", b"{\"type\": \"strin", "JSON"),
        ("--json-schema-file", b"{\"type\": 5}", "\"#\""),
        ("--json-schema-file", b"{\"properties\": {\"a/b\": {\"uniqueItems\": true}}}", "\"#/properties/a~1b\""),
        ("--json-schema-file", b"[" * 100000, "nested deeper"),
        ("--json-schema-file", b"{\"$ref\": \"#\"}", "\"#\""),
        ("--json-schema-file", b"false", "no text"),
    ]

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "wrong")
            for option, content, words in self.WRONG:
                with self.subTest(option=option, content=content[:60]):
                    with open(path, "wb") as file:
                        file.write(content)
                    result = common.run("run", MODEL, "-p", "x", "-n", "8", "-q", option, path)
                    self.assertIn(result.returncode, (1, 2))
                    self.assertEqual(result.stdout, b"")
                    self.assertEqual(len(result.stderr.splitlines()), 1)
                    self.assertIn(words, result.stderr.decode())

    def test_no_file(self):
        result = common.run("run", MODEL, "-p", "x", "--grammar-file", "/no/such")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"/no/such", result.stderr)


FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}


class Batch(unittest.TestCase):
    HOT = {"temperature": 1, "max_tokens": 200}

    def contents(self, url, body):
        """Of several seeds."""
        first = {"prompt": "Tell me."} if url == TEXT else {"messages": USER} if url == CHAT else {"input": "Tell me."}
        hot = dict(self.HOT) if url != RESPONSES else {"temperature": 1, "max_output_tokens": 200}
        for got in bodies([line(str(i), url, {**first, **hot, "seed": i, **body}) for i in range(3)]):
            if url == RESPONSES:
                yield "".join(part["text"] for item in got["output"] if item["type"] == "message"
                              for part in item["content"])
            else:
                yield got["choices"][0]["text"] if url == TEXT else got["choices"][0]["message"]["content"]

    def test_schemas(self):
        cases = [(CHAT, {"response_format": FORMAT}), (TEXT, {"response_format": FORMAT}),
                 (CHAT, {"response_format": {"type": "json_object", "schema": PERSON}}),
                 (CHAT, {"guided_json": PERSON}), (TEXT, {"guided_json": json.dumps(PERSON)}),
                 (CHAT, {"structured_outputs": {"json": PERSON, "disable_any_whitespace": True}}),
                 (TEXT, {"json_schema": PERSON, "grammar_options": {"any_order": True}}),
                 (RESPONSES, {"text": {"format": {"type": "json_schema", "name": "p", "strict": True,
                                                  "schema": PERSON}}})]
        for url, body in cases:
            with self.subTest(url=url, body=str(body)[:60]):
                for text in self.contents(url, body):
                    self.assertTrue(valid(text, PERSON), text)

    def test_others(self):
        cases = [({"guided_regex": "[a-c]{3}"}, "^[a-c]{3}$"), ({"guided_choice": ["one", "two, three"]},
                                                              "^(one|two, three)$"),
                 ({"guided_grammar": GBNF}, r"^\[[0-9,]+\]$"), ({"guided_grammar": LARK}, r"^[a-z ]+\.$"),
                 ({"grammar": GBNF}, r"^\[[0-9,]+\]$"), ({"structured_outputs": {"choice": ["x", "y"]}}, "^[xy]$"),
                 ({"structured_outputs": {"regex": "q+r"}}, "^q+r$")]
        for body, pattern in cases:
            with self.subTest(body=body):
                for text in self.contents(TEXT, body):
                    self.assertRegex(text, re.compile(pattern))

    def test_not_strict(self):
        """What cannot be enforced is left out unless the schema is strict."""
        schema = {"type": "string", "format": "regex", "maxLength": 3}
        loose = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
        for text in self.contents(CHAT, {"response_format": loose}):
            self.assertLessEqual(len(json.loads(text)), 3)
        strict = {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": schema}}
        self.wrong({"response_format": strict}, "response_format.json_schema.schema", "\"format\" at \"#\"")

    def test_digits(self):
        """Each counts, as in a schema of the command line: of fractions, and beyond 64 bits."""
        for digits in ("0.1", "0.3", "18446744073709551615", "18446744073709551617", "0.12345678901234567891"):
            schema = '{"const": %s}' % digits
            self.assertEqual([*self.answers_of(schema)], [digits] * 3)
            text = line("a", TEXT, {"prompt": "x", "max_tokens": 40, "guided_json": "HERE"}).replace('"HERE"', schema)
            self.assertEqual(bodies([text])[0]["choices"][0]["text"], digits)
        tenth = {"type": "number", "multipleOf": 0.1, "minimum": 0.1, "exclusiveMaximum": 0.2}
        for text in self.contents(TEXT, {"guided_json": tenth}):
            self.assertRegex(text, "^0[.]10*$")

    def answers_of(self, schema):
        return Options().answers("--json-schema", schema)

    def wrong(self, body, param, words, code="invalid_value"):
        got = answers([line("a", CHAT, {"messages": USER, "max_tokens": 3, **body})])[0]
        self.assertEqual(got["response"]["status_code"], 400, got)
        error = got["response"]["body"]["error"]
        self.assertEqual((error["type"], error["code"], error["param"]), ("invalid_request_error", code, param))
        self.assertIn(words, error["message"])
        self.assertTrue(error["message"].startswith(param + ": "), error)

    def test_errors(self):
        self.wrong({"guided_regex": "a("}, "guided_regex", "line 1, column")
        self.wrong({"grammar": "root ::= x"}, "grammar", "x")
        self.wrong({"json_schema": {"items": {"type": 5}}}, "json_schema", "#/items")
        self.wrong({"structured_outputs": {"json": {"$ref": "http://x"}}}, "structured_outputs.json", "$ref")
        self.wrong({"grammar": "root ::= \"a\"", "guided_regex": "b"}, "guided_regex", "grammar has said already")

    def test_errors_name_the_field_at_fault(self):
        """Also where the other one, which is good, has the words of its errors."""
        good = {"type": "object"}
        bad = {"type": "object", "properties": {"the tool": {"type": "string", "format": "regex"}},
               "required": ["the tool"]}
        tools = [{"type": "function", "function": {"name": "f", "parameters": good}}]
        named = {"response_format": {"type": "json_schema", "json_schema": {"name": "tool", "strict": True, "schema": {
            **bad, "title": "the tool "}}}}
        name = "response_format.json_schema.schema"
        self.wrong(named, name, "format")
        for more in ({"tools": tools}, {"tools": tools, "tool_choice": "none"}):
            self.wrong({**named, **more}, name, "format")
        tools[0]["function"] = {"name": "f", "parameters": bad, "strict": True}
        self.wrong({"tools": tools, "tool_choice": "required"}, "tools", "no way to call tools")
        self.wrong({"functions": [tools[0]["function"]], "function_call": {"name": "f"}}, "functions",
                   "no way to call tools")

    def test_nulls(self):
        names = ("response_format", "guided_json", "guided_choice", "structured_outputs", "grammar", "json_schema",
                 "grammar_options", "tool_choice", "parallel_tool_calls")
        bodies([line("a", CHAT, {"messages": USER, "max_tokens": 3, **dict.fromkeys(names)}),
                line("b", CHAT, {"messages": USER, "max_tokens": 3, "structured_outputs": {"json": None}})])


class Tools(unittest.TestCase):
    def messages(self, **body):
        lines = [line(str(i), CHAT, {"messages": USER, "tools": TOOLS, "temperature": 1, "max_tokens": 300, "seed": i,
                                     **body}) for i in range(4)]
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
            template.write(TEMPLATE)
            template.flush()
            return [body["choices"][0] for body in bodies(lines, "--template", template.name)]

    def check(self, choices, names):
        for choice in choices:
            self.assertEqual(choice["finish_reason"], "tool_calls", choice)
            for call in choice["message"]["tool_calls"]:
                function = call["function"]
                self.assertIn(function["name"], names)
                schema = TOOLS[0 if function["name"] == "get_weather" else 1]["function"]["parameters"]
                self.assertTrue(valid(function["arguments"], schema), function)

    def test_required(self):
        self.check(self.messages(tool_choice="required"), ("get_weather", "stop_all"))

    def test_named(self):
        choice = {"type": "function", "function": {"name": "get_weather"}}
        choices = self.messages(tool_choice=choice, parallel_tool_calls=False)
        self.check(choices, ("get_weather",))
        self.assertEqual([len(choice["message"]["tool_calls"]) for choice in choices], [1] * 4)

    def test_auto_and_none(self):
        for choice in self.messages(tool_choice="none"):
            self.assertNotIn("tool_calls", choice["message"])
        for choice in self.messages(tool_choice="auto"):
            if choice["finish_reason"] == "tool_calls":
                self.check([choice], ("get_weather", "stop_all"))

    def test_chat(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tools.json")
            template = os.path.join(folder, "chat.jinja")
            with open(path, "w") as file:
                json.dump(TOOLS, file)
            with open(template, "w") as file:
                file.write(TEMPLATE)
            result = common.run("chat", MODEL, *DRAWN, "--template", template, "--json", "--tools", path,
                                "--tool-choice", "get_weather",
                                "--single-call", stdin=b"Hello\n")
            events = [json.loads(text) for text in result.stdout.splitlines()]
            arguments = "".join(event["text"] for event in events if event["type"] == "tool_arguments")
            self.assertTrue(valid(arguments, CITY), events)
            result = common.run("chat", MODEL, "--template", template, "--tools", path, "--tool-choice", "nothing",
                                stdin=b"Hello\n")
            self.assertIn(b"\"nothing\" names none of the tools", result.stderr)


class Strict(unittest.TestCase):
    """Tools with "strict": true bind without a tool_choice, and no others do."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.template, self.tools = os.path.join(folder.name, "t.jinja"), os.path.join(folder.name, "tools.json")
        with open(self.template, "w") as file:
            file.write(CALLING)

    def tool(self, name="get_weather", parameters=CITY, **more):
        return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}

    def lines(self, tools, **more):
        return [line(str(i), CHAT, {"messages": USER, "tools": tools, "temperature": 1, "max_tokens": 100, "seed": i,
                                    "parallel_tool_calls": False, **more}) for i in range(4)]

    def calls(self, tools, *options, **more):
        """How many of four answers are a call whose arguments fit."""
        schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}

        def fits(call):
            try:
                return valid(call["function"]["arguments"], schemas[call["function"]["name"]])
            except (KeyError, json.JSONDecodeError):
                return False

        return sum(fits(call) for body in bodies(self.lines(tools, **more), *options or ("--template", self.template))
                   for call in body["choices"][0]["message"].get("tool_calls", []))

    def test_batch(self):
        odd = {"type": "object", "properties": {"a": {"type": "string", "format": "regex", "maxLength": 3}},
               "required": ["a"]}
        self.assertEqual(self.calls([self.tool(strict=True)]), 4)
        self.assertEqual(self.calls([self.tool(strict=True), self.tool("odd", odd)]), 4)
        self.assertEqual(self.calls([self.tool(strict=True)], tool_choice="auto"), 4)
        for free in ({}, {"strict": False}, {"strict": None}):
            self.assertEqual(self.calls([self.tool(**free)]), 0)
        wrong = self.lines([self.tool(), self.tool("odd", odd, strict=True)])
        job = Job(wrong, "--template", self.template)
        checked = job.run("--check")
        self.assertEqual((checked.returncode, checked.stdout.count(b'the tool "odd": "format" at')), (3, 4), checked)
        self.assertEqual(job.run().returncode, 0)
        for answer in job.answers():
            error = answer["response"]["body"]["error"]
            self.assertEqual((error["param"], error["code"]), ("tools", "invalid_value"), error)
            self.assertIn('the tool "odd": "format" at', error["message"])
        self.assertEqual(self.calls([self.tool("odd", odd, strict=True)], grammar_options={"allow_unenforced": True}),
                         4)

    def test_templates_that_call_nothing(self):
        for strict in (True, False):
            self.assertEqual(self.calls([self.tool(strict=strict)], "-q"), 0)

    def test_responses(self):
        tool = {"type": "function", "name": "get_weather", "parameters": CITY, "strict": True}
        hot = {"input": "Rome?", "temperature": 1, "max_output_tokens": 100, "parallel_tool_calls": False}
        for body in bodies([line(str(i), RESPONSES, {**hot, "tools": [tool], "seed": i}) for i in range(3)],
                           "--template", self.template):
            self.assertEqual([item["type"] for item in body["output"]], ["function_call"])
            self.assertTrue(valid(body["output"][0]["arguments"], CITY), body)
        got = answers([line("a", RESPONSES, {**hot, "tools": [{**tool, "strict": "yes"}]}),
                       line("b", CHAT, {"messages": USER, "tools": [self.tool(strict=1)]})])
        self.assertEqual([answer["response"]["body"]["error"]["param"] for answer in got],
                         ["tools[0].strict", "tools[0].function.strict"])

    def test_chat(self):
        for strict, fits in ((True, True), (False, False)):
            with open(self.tools, "w") as file:
                json.dump([self.tool(strict=strict)], file)
            result = common.run("chat", MODEL, *DRAWN, "--template", self.template, "--json", "--tools", self.tools,
                                "--single-call", stdin=b"Hello\n")
            events = [json.loads(text) for text in result.stdout.splitlines()]
            arguments = "".join(event["text"] for event in events if event["type"] == "tool_arguments")
            self.assertEqual(bool(arguments) and valid(arguments, CITY), fits, events)


if __name__ == "__main__":
    common.main("__main__")
