#!/usr/bin/env python3
"""The clients of OpenAI, Anthropic, Ollama and Cohere, unmodified from PyPI (clients.txt), against runnel serve. Where
a client can judge answers by its own types, it does (strict). What they get is what the program writes for the same
seed."""
import asyncio
import contextlib
import json
import math
import os
import subprocess
import tempfile
import typing
import unittest

import anthropic
import cohere
import ollama
import openai
import pydantic

import common
import test_scores
from batch_job import TEXT, line
from common import MODEL, run
from server import NAME, Server, template

STORY = "Once upon a time"
USER = [{"role": "user", "content": "What is 2+2?"}]
HOT = {"temperature": 1, "seed": 7, "max_tokens": 32}
COLD = {"temperature": 0, "max_tokens": 32}
LONG = {"prompt": STORY, "max_tokens": 1 << 30, "extra_body": {"ignore_eos": True, "context_keep": 0}}
KEY = "key-of-first"


class Digit(pydantic.BaseModel):
    """A digit."""
    n: int = pydantic.Field(ge=0, le=9)


class Pet(pydantic.BaseModel):
    kind: typing.Literal["cat", "dog"]


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"],
          "additionalProperties": False}
CALL = {"tools": [openai.pydantic_function_tool(Digit)], "tool_choice": "required", "parallel_tool_calls": False,
        "temperature": 1, "seed": 7, "max_tokens": 700}
MANY = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 400}

server = None
left = contextlib.ExitStack()


def setUpModule():
    global server
    options = left.enter_context(template())
    server = Server(*options, "--files-dir", left.enter_context(tempfile.TemporaryDirectory()))


def tearDownModule():
    code, said = server.stop()
    left.close()
    assert code == 0, (code, said)


def program(prompt, *options, temperature=1, seed=7, max_tokens=32):
    """What runnel run writes."""
    got = run("run", MODEL, "-p", prompt, "-q", "--temperature", temperature, "--seed", seed, "-n", max_tokens,
              *options)
    assert got.returncode == 0, got.stderr
    return got.stdout.decode()


def program_chat(messages=None, **how):
    """Likewise, of the prompt that a conversation makes."""
    prompt = server.post("/apply-template", {"messages": messages or USER})[1]["prompt"]
    return program(prompt, "--special", **how)


def openai_client(kind=openai.OpenAI, of=None, key="none", strict=True):
    return kind(base_url=f"http://127.0.0.1:{(of or server).port}/v1", api_key=key, max_retries=0,
                timeout=common.PATIENCE, _strict_response_validation=strict)


def anthropic_client(kind=anthropic.Anthropic, of=None, key="none"):
    return kind(base_url=f"http://127.0.0.1:{(of or server).port}", api_key=key, max_retries=0,
                timeout=common.PATIENCE, _strict_response_validation=True)


def ollama_client(kind=ollama.Client, of=None, **how):
    return kind(f"http://127.0.0.1:{(of or server).port}", timeout=common.PATIENCE, **how)


def wait_for_streams(number, of=None):
    while (of or server).metric("runnel_streams") != number:
        pass


def close_early(test, ask):
    """Of an answer of hundreds of tokens; on a slow machine it may be over before it is closed, but not each time."""
    before = server.metric("runnel_http_disconnected_total")
    for _ in range(100):
        ask()
        wait_for_streams(0)
        if server.metric("runnel_http_disconnected_total") > before:
            return
    test.fail("no answer was cancelled")


class OpenAi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = openai_client()
        cls.addClassCleanup(cls.client.close)

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], [NAME])
        self.assertEqual(self.client.models.retrieve(NAME).object, "model")

    def test_chat_is_the_programs(self):
        answer = self.client.chat.completions.create(model=NAME, messages=USER, **HOT)
        self.assertEqual(answer.choices[0].message.content, program_chat())
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertRegex(answer._request_id, "^req_")
        several = self.client.chat.completions.create(model=NAME, messages=USER, n=3, **HOT)
        self.assertEqual([choice.index for choice in several.choices], [0, 1, 2])
        self.assertEqual(several.choices[0].message.content, program_chat())

    def test_chat_in_pieces(self):
        whole = self.client.chat.completions.create(model=NAME, messages=USER, logprobs=True, top_logprobs=2, **HOT)
        chunks = list(self.client.chat.completions.create(model=NAME, messages=USER, logprobs=True, top_logprobs=2,
                                                          stream=True, stream_options={"include_usage": True}, **HOT))
        choices = [choice for chunk in chunks for choice in chunk.choices]
        self.assertEqual("".join(choice.delta.content or "" for choice in choices), program_chat())
        entries = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content]
        self.assertEqual(entries, whole.choices[0].logprobs.content)
        self.assertEqual([choice.finish_reason for choice in choices if choice.finish_reason],
                         [whole.choices[0].finish_reason])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        with self.client.chat.completions.stream(model=NAME, messages=USER, **HOT) as stream:
            kinds = [event.type for event in stream]
            self.assertEqual(stream.get_final_completion().choices[0].message.content, program_chat())
        self.assertEqual(kinds[-1], "content.done")

    def test_completions(self):
        answer = self.client.completions.create(model=NAME, prompt=STORY, logprobs=3, **HOT)
        self.assertEqual(answer.choices[0].text, program(STORY))
        self.assertEqual(len(answer.choices[0].logprobs.tokens), answer.usage.completion_tokens)
        with openai_client(strict=False) as client:  # its type knows no chunk before the last
            chunks = client.completions.create(model=NAME, prompt=STORY, stream=True, **HOT)
            self.assertEqual("".join(choice.text for chunk in chunks for choice in chunk.choices), program(STORY))
        several = self.client.completions.create(model=NAME, prompt=[STORY, "The fox"], echo=True, **COLD)
        self.assertEqual([choice.text for choice in several.choices],
                         [STORY + program(STORY, temperature=0), "The fox" + program("The fox", temperature=0)])
        cut = self.client.completions.create(model=NAME, prompt=STORY, stop=[" was", ","], **COLD)
        self.assertEqual((cut.choices[0].finish_reason, "," in cut.choices[0].text), ("stop", False))

    def test_tools(self):
        answer = self.client.chat.completions.parse(model=NAME, messages=USER, **CALL)
        choice = answer.choices[0]
        self.assertEqual((choice.finish_reason, choice.message.content), ("tool_calls", None))
        call = choice.message.tool_calls[0]
        self.assertIsInstance(call.function.parsed_arguments, Digit)
        turns = [*USER, choice.message.model_dump(exclude_none=True),
                 {"role": "tool", "tool_call_id": call.id, "content": "4"}]
        after = self.client.chat.completions.create(model=NAME, messages=turns, **COLD)
        asked = [*USER, {"role": "assistant", "content": None, "tool_calls": [
            {"id": call.id, "type": "function", "function": {"name": "Digit", "arguments": call.function.arguments}}]},
            {"role": "tool", "tool_call_id": call.id, "content": "4"}]
        self.assertEqual(after.choices[0].message.content, program_chat(asked, temperature=0))

    def test_streamed_arguments(self):
        want = self.client.chat.completions.parse(model=NAME, messages=USER, **CALL).choices[0].message.tool_calls
        pieces, done = [], []
        with self.client.chat.completions.stream(model=NAME, messages=USER, **CALL) as stream:
            for event in stream:
                if event.type == "tool_calls.function.arguments.delta":
                    pieces.append(event.arguments_delta)
                elif event.type == "tool_calls.function.arguments.done":
                    done.append(event)
            got = stream.get_final_completion().choices[0]
        self.assertGreater(len(pieces), 2)
        self.assertEqual("".join(pieces), want[0].function.arguments)
        self.assertEqual([(event.name, event.parsed_arguments) for event in done],
                         [(call.function.name, call.function.parsed_arguments) for call in want])
        self.assertEqual((got.finish_reason, [call.function.arguments for call in got.message.tool_calls]),
                         ("tool_calls", [call.function.arguments for call in want]))

    def test_parse(self):
        answer = self.client.chat.completions.parse(model=NAME, messages=USER, response_format=Digit, **COLD)
        message = answer.choices[0].message
        self.assertEqual(message.parsed, Digit.model_validate_json(message.content))
        with self.client.chat.completions.stream(model=NAME, messages=USER, response_format=Digit, **COLD) as stream:
            self.assertEqual(stream.get_final_completion().choices[0].message.parsed, message.parsed)
        with self.assertRaises(openai.LengthFinishReasonError):
            self.client.chat.completions.parse(model=NAME, messages=USER, response_format=Digit, max_tokens=2)

    def test_embeddings(self):
        """The client asks for base64 and decodes it, unless it is told otherwise; only then its types fit (not
        strict)."""
        texts = [STORY, "Hello"]
        want = json.loads(run("embed", MODEL, *texts, "--json", "-q").stdout)["data"]
        with openai_client(strict=False) as client:
            got = client.embeddings.create(model=NAME, input=texts)
        for answer in (got, self.client.embeddings.create(model=NAME, input=texts, encoding_format="float")):
            self.assertEqual([item.index for item in answer.data], [0, 1])
            for item, other in zip(answer.data, want):
                self.assertEqual(len(item.embedding), len(other["embedding"]))
                for a, b in zip(item.embedding, other["embedding"]):
                    self.assertAlmostEqual(a, b, places=6)

    def test_responses(self):
        answer = self.client.responses.create(model=NAME, input=USER[0]["content"], max_output_tokens=32, temperature=0)
        self.assertEqual((answer.status, answer.output_text), ("completed", program_chat(temperature=0)))
        with self.client.responses.stream(model=NAME, input=USER[0]["content"], max_output_tokens=32,
                                          temperature=0) as stream:
            events = list(stream)
            self.assertEqual(stream.get_final_response().output, [
                item.model_copy(update={"id": stream.get_final_response().output[0].id}) for item in
                self.client.responses.parse(model=NAME, input=USER[0]["content"], max_output_tokens=32,
                                            temperature=0).output])
        self.assertEqual("".join(event.delta for event in events if event.type == "response.output_text.delta"),
                         answer.output_text)
        parsed = self.client.responses.parse(model=NAME, input=USER[0]["content"], text_format=Digit, temperature=0)
        self.assertEqual(parsed.output_parsed, Digit.model_validate_json(parsed.output_text))
        called = self.client.responses.parse(model=NAME, input=USER[0]["content"], temperature=0,
                                             tool_choice="required",
                                             tools=[openai.pydantic_responses_function_tool(Digit)],
                                             max_output_tokens=200)
        self.assertIsInstance(called.output[-1].parsed_arguments, Digit)
        cut = self.client.responses.create(model=NAME, input="Hi", max_output_tokens=1)
        self.assertEqual((cut.status, cut.incomplete_details.reason), ("incomplete", "max_output_tokens"))
        count = self.client.responses.input_tokens.count(model=NAME, input="Hi")
        self.assertEqual((count.object, count.input_tokens), ("response.input_tokens", cut.usage.input_tokens))
        chat = server.post("/v1/chat/completions/input_tokens", {"messages": [{"role": "user", "content": "Hi"}]})[1]
        self.assertEqual(chat["input_tokens"], cut.usage.input_tokens)

    def test_files_and_batches(self):
        client = self.client
        lines = "\n".join(line(str(i), TEXT, {"prompt": STORY, **HOT, "seed": i}) for i in range(3))
        lines += "\n" + line("bad", TEXT, {"prompt": STORY, "temperature": "hot"})
        file = client.files.create(file=("in.jsonl", lines.encode()), purpose="batch")
        self.assertEqual((file.bytes, client.files.retrieve(file.id)), (len(lines), file))
        batch = client.batches.create(input_file_id=file.id, endpoint=TEXT, completion_window="24h",
                                      metadata={"whose": "mine"})
        while batch.status not in ("completed", "failed"):
            batch = client.batches.retrieve(batch.id)
        self.assertEqual((batch.request_counts.completed, batch.request_counts.failed, batch.metadata),
                         (3, 1, {"whose": "mine"}))
        for text in client.files.content(batch.output_file_id).text.splitlines():
            item = json.loads(text)
            self.assertEqual(item["response"]["body"]["choices"][0]["text"],
                             program(STORY, seed=int(item["custom_id"])))
        self.assertIn("temperature", client.files.content(batch.error_file_id).text)
        self.assertEqual([item.id for item in client.batches.list(limit=1)], [batch.id])
        ids = [item.id for item in client.files.list(limit=1)]  # the client turns the pages
        self.assertEqual(sorted(ids), sorted([file.id, batch.output_file_id, batch.error_file_id]))
        long = client.files.create(file=("a", line("a", TEXT, {"prompt": STORY, "max_tokens": 1 << 30,
                                                               "ignore_eos": True, "context_keep": 0}).encode()),
                                   purpose="batch")
        running = client.batches.create(input_file_id=long.id, endpoint=TEXT, completion_window="24h")
        while client.batches.retrieve(running.id).status != "in_progress":
            pass
        with self.assertRaises(openai.ConflictError):
            client.files.delete(long.id)
        client.batches.cancel(running.id)
        while client.batches.retrieve(running.id).status != "cancelled":
            pass
        self.assertTrue(client.files.delete(file.id).deleted)
        with self.assertRaises(openai.NotFoundError):
            client.files.retrieve(file.id)

    def test_closed_early(self):
        with openai_client(strict=False) as client:
            stream = client.completions.create(model=NAME, stream=True, **LONG)
            next(iter(stream))
            wait_for_streams(1)
            stream.close()
            wait_for_streams(0)
        with self.client.chat.completions.stream(model=NAME, messages=USER, max_tokens=1 << 30,
                                                 extra_body=LONG["extra_body"]) as stream:
            next(iter(stream))
            wait_for_streams(1)
        wait_for_streams(0)
        with self.assertRaises(openai.APITimeoutError):  # also where nothing is streamed
            self.client.with_options(timeout=0.2).completions.create(model=NAME, **LONG)
        wait_for_streams(0)


class OpenAiAsync(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = openai_client(openai.AsyncOpenAI)
        self.addAsyncCleanup(self.client.close)

    async def test_chats_at_once(self):
        answers = await asyncio.gather(*(self.client.chat.completions.create(
            model=NAME, messages=USER, **{**HOT, "seed": i}) for i in range(4)))
        self.assertEqual([answer.choices[0].message.content for answer in answers],
                         [program_chat(seed=i) for i in range(4)])
        self.assertEqual([model.id async for model in self.client.models.list()], [NAME])

    async def test_in_pieces(self):
        text = ""
        async for chunk in await self.client.chat.completions.create(model=NAME, messages=USER, stream=True, **HOT):
            text += chunk.choices[0].delta.content or ""
        self.assertEqual(text, program_chat())
        async with self.client.chat.completions.stream(model=NAME, messages=USER, **CALL) as stream:
            pieces = [event.arguments_delta async for event in stream
                      if event.type == "tool_calls.function.arguments.delta"]
            call = (await stream.get_final_completion()).choices[0].message.tool_calls[0]
        self.assertEqual("".join(pieces), call.function.arguments)
        async with self.client.responses.stream(model=NAME, input=USER[0]["content"], temperature=0,
                                                max_output_tokens=32) as stream:
            self.assertEqual((await stream.get_final_response()).output_text, program_chat(temperature=0))

    async def test_other_calls(self):
        parsed = await self.client.chat.completions.parse(model=NAME, messages=USER, response_format=Digit, **COLD)
        self.assertIsInstance(parsed.choices[0].message.parsed, Digit)
        async with openai_client(openai.AsyncOpenAI, strict=False) as client:
            got = await client.embeddings.create(model=NAME, input="Hello")
        want = json.loads(run("embed", MODEL, "Hello", "--json", "-q").stdout)["data"][0]["embedding"]
        self.assertEqual(len(got.data[0].embedding), len(want))
        file = await self.client.files.create(file=("a.jsonl", b"{}\n"), purpose="batch")
        self.assertEqual((await self.client.files.content(file.id)).content, b"{}\n")
        self.assertTrue((await self.client.files.delete(file.id)).deleted)
        with self.assertRaises(openai.NotFoundError):
            await self.client.chat.completions.create(model="other", messages=USER)

    async def test_cancelled(self):
        async def read():
            async for _ in await self.client.chat.completions.create(model=NAME, stream=True, messages=USER,
                                                                     max_tokens=1 << 30,
                                                                     extra_body=LONG["extra_body"]):
                pass

        async def wait_for(number):
            while server.metric("runnel_streams") != number:
                await asyncio.sleep(0.001)

        for ask in (read, lambda: self.client.completions.create(model=NAME, **LONG)):
            task = asyncio.create_task(ask())
            await wait_for(1)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            await wait_for(0)


class Anthropic(unittest.TestCase):
    TOOLS = [{"name": "f", "description": "Takes a digit", "input_schema": SCHEMA}]
    ASK = {"model": NAME, "messages": USER,
           "max_tokens": 32}  # what this client has no argument for goes into extra_body
    HOT = {"temperature": 1, "seed": 7}

    @classmethod
    def setUpClass(cls):
        cls.client = anthropic_client()
        cls.addClassCleanup(cls.client.close)

    def call(self, **more):
        return {**self.ASK, "max_tokens": 200, "tools": self.TOOLS, "tool_choice": {"type": "any"},
                "extra_body": {"temperature": 0}, **more}

    def test_messages(self):
        message = self.client.messages.create(**self.ASK, extra_body={"temperature": 0})
        self.assertEqual([block.type for block in message.content], ["text"])
        self.assertEqual((message.role, message.content[0].text, message.stop_reason),
                         ("assistant", program_chat(temperature=0), "end_turn"))
        self.assertGreater(message.usage.output_tokens, 0)
        system = [{"role": "system", "content": "Be short."}]
        message = self.client.messages.create(**{**self.ASK, "max_tokens": 3}, system="Be short.",
                                              extra_body={"temperature": 0})
        self.assertEqual((message.content[0].text, message.stop_reason),
                         (program_chat(system + USER, temperature=0, max_tokens=3), "max_tokens"))

    def test_in_pieces(self):
        kinds = []
        with self.client.messages.stream(**self.ASK, extra_body={"temperature": 0}) as stream:
            for event in stream:
                kinds.append(event.type)
            message = stream.get_final_message()
        self.assertEqual(message.content[0].text, program_chat(temperature=0))
        self.assertEqual((kinds[0], kinds[-3:]), ("message_start", ["content_block_stop", "message_delta",
                                                                    "message_stop"]))
        with self.client.messages.stream(**self.ASK, extra_body={"temperature": 0}) as stream:
            self.assertEqual("".join(stream.text_stream), message.content[0].text)
        events = list(self.client.messages.create(**self.ASK, stream=True, extra_body={"temperature": 0}))
        self.assertEqual(events[-2].delta.stop_reason, message.stop_reason)
        self.assertEqual(events[-2].usage.output_tokens, message.usage.output_tokens)

    def test_tools(self):
        message = self.client.messages.create(**self.call())
        use = message.content[-1]
        self.assertEqual((use.type, use.name, list(use.input), message.stop_reason),
                         ("tool_use", "f", ["n"], "tool_use"))
        pieces = []
        with self.client.messages.stream(**self.call()) as stream:
            for event in stream:
                if event.type == "input_json":
                    pieces.append(event.partial_json)
            got = stream.get_final_message()
        self.assertEqual((got.content[-1].input, json.loads("".join(pieces)), got.stop_reason),
                         (use.input, use.input, "tool_use"))
        turns = [*USER, {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in
                                                          message.content]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "4"}]}]
        asked = [*USER, {"role": "assistant", "content": None, "tool_calls": [
            {"id": use.id, "type": "function", "function": {"name": "f", "arguments": json.dumps(use.input)}}]},
            {"role": "tool", "tool_call_id": use.id, "content": "4"}]
        after = self.client.messages.create(**{**self.ASK, "messages": turns}, extra_body={"temperature": 0})
        self.assertEqual(after.content[0].text, program_chat(asked, temperature=0))

    def test_parse(self):
        message = self.client.messages.parse(**self.ASK, output_format=Pet, extra_body={"temperature": 0})
        self.assertEqual(message.parsed_output, Pet.model_validate_json(message.content[0].text))
        with self.client.messages.stream(**self.ASK, output_format=Pet, extra_body={"temperature": 0}) as stream:
            self.assertEqual(stream.get_final_message().parsed_output, message.parsed_output)

    def test_count_tokens(self):
        count = self.client.messages.count_tokens(model=NAME, messages=USER, system="Be short.", tools=self.TOOLS)
        usage = self.client.messages.create(**{**self.ASK, "max_tokens": 1}, system="Be short.", tools=self.TOOLS).usage
        self.assertEqual(count.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)

    def test_models(self):
        models = list(self.client.models.list())
        self.assertEqual([(model.id, model.type) for model in models], [(NAME, "model")])
        self.assertEqual(self.client.models.retrieve(NAME), models[0])
        with self.assertRaises(anthropic.NotFoundError):
            self.client.models.retrieve("other")

    def test_closed_early(self):
        def ask():
            with self.client.messages.stream(**{**self.ASK, "max_tokens": 1000}, extra_body={
                    "output_config": {"format": {"type": "json_schema", "schema": MANY}}}) as stream:
                next(iter(stream))

        close_early(self, ask)

    def test_async(self):
        async def ask():
            async with anthropic_client(anthropic.AsyncAnthropic) as client:
                async with client.messages.stream(**self.ASK, extra_body={"temperature": 0}) as stream:
                    return "".join([text async for text in stream.text_stream])

        self.assertEqual(asyncio.run(ask()), program_chat(temperature=0))


class Ollama(unittest.TestCase):
    OPTIONS = {"temperature": 1, "seed": 7, "num_predict": 32, "top_k": 0, "top_p": 1}

    @classmethod
    def setUpClass(cls):
        cls.client = ollama_client()
        cls.addClassCleanup(cls.client.close)

    def test_generate(self):
        answer = self.client.generate(NAME, USER[0]["content"], options=self.OPTIONS)
        self.assertEqual((answer.response, answer.done, answer.model), (program_chat(), True, NAME))
        pieces = list(self.client.generate(NAME, USER[0]["content"], options=self.OPTIONS, stream=True))
        self.assertEqual("".join(piece.response for piece in pieces), program_chat())
        self.assertEqual([piece.done for piece in pieces], [False] * (len(pieces) - 1) + [True])
        self.assertEqual((pieces[-1].eval_count, pieces[-1].prompt_eval_count, pieces[-1].done_reason),
                         (answer.eval_count, answer.prompt_eval_count, answer.done_reason))

    def test_chat(self):
        answer = self.client.chat(NAME, USER, options=self.OPTIONS)
        self.assertEqual((answer.message.role, answer.message.content), ("assistant", program_chat()))
        pieces = list(self.client.chat(NAME, USER, options=self.OPTIONS, stream=True))
        self.assertEqual("".join(piece.message.content for piece in pieces), program_chat())
        shaped = self.client.chat(NAME, USER, format=SCHEMA, options=self.OPTIONS)
        Digit.model_validate_json(shaped.message.content)

    def test_tools(self):
        def add(n: int) -> int:
            """Adds.

            Args:
              n: what is added
            """
            return n

        answer = self.client.chat(NAME, USER, tools=[add], options=self.OPTIONS)
        self.assertEqual(answer.message.role, "assistant")
        call = ollama.Message.ToolCall(function={"name": "add", "arguments": {"n": 2}})
        turns = [*USER, ollama.Message(role="assistant", content="", tool_calls=[call]),
                 ollama.Message(role="tool", content="4", tool_name="add")]
        asked = [*USER, {"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "function": {"name": "add", "arguments": '{"n":2}'}}]},
            {"role": "tool", "content": "4"}]
        self.assertEqual(self.client.chat(NAME, turns, options=self.OPTIONS).message.content, program_chat(asked))

    def test_raw(self):
        prompt = server.post("/apply-template", {"messages": USER})[1]["prompt"]
        answer = self.client.generate(NAME, prompt, raw=True, options=self.OPTIONS)
        self.assertEqual(answer.response, program_chat())
        self.assertEqual(answer.prompt_eval_count, self.client.chat(NAME, USER, options=self.OPTIONS).prompt_eval_count)
        pieces = self.client.generate(NAME, prompt, raw=True, options=self.OPTIONS, stream=True)
        self.assertEqual("".join(piece.response for piece in pieces), program_chat())
        for more in ({"suffix": "a"}, {"system": "a"}, {"template": "a"}, {"context": [1]}):
            with self.assertRaises(ollama.ResponseError) as caught:
                self.client.generate(NAME, prompt, raw=True, **more)
            self.assertEqual((caught.exception.status_code, next(iter(more)) in caught.exception.error), (400, True))

    def test_logprobs(self):
        options = {**self.OPTIONS, "num_predict": 6}
        with openai_client() as client:
            want = client.chat.completions.create(model=NAME, messages=USER, max_tokens=6, temperature=1, seed=7,
                                                  logprobs=True, top_logprobs=2).choices[0].logprobs.content
        want = [(x.token, x.logprob, [(t.token, t.logprob) for t in x.top_logprobs]) for x in want]
        prompt = server.post("/apply-template", {"messages": USER})[1]["prompt"]
        how = {"options": options, "logprobs": True, "top_logprobs": 2}
        for ask in (lambda **more: self.client.chat(NAME, USER, **how, **more),
                    lambda **more: self.client.generate(NAME, USER[0]["content"], **how, **more),
                    lambda **more: self.client.generate(NAME, prompt, raw=True, **how, **more)):
            for entries in (ask().logprobs, [x for piece in ask(stream=True) for x in piece.logprobs or ()]):
                self.assertEqual([(x.token, x.logprob, [(t.token, t.logprob) for t in x.top_logprobs])
                                  for x in entries],
                                 want)
        self.assertIsNone(self.client.chat(NAME, USER, options=options).logprobs)

    def test_embeddings(self):
        """The older form, whose vectors are as the model gives them."""
        want = json.loads(run("embed", MODEL, STORY, "--raw", "--json", "-q").stdout)["data"][0]["embedding"]
        self.assertNotAlmostEqual(math.hypot(*want), 1, 2)
        self.assertEqual(self.client.embeddings(NAME, STORY).embedding, want)

    def ids(self, text):
        return server.post("/tokenize", {"content": text, "add_special": True})[1]["tokens"]

    def test_long_texts_are_cut(self):
        text = "the river goes on " * 1000
        known = server.post("/tokenize", {"content": text, "add_special": True})[1]
        first = known["tokens"][:known["max_model_len"]]
        self.assertLess(len(first), known["count"])
        want = [x["embedding"] for x in server.post("/v1/embeddings", {"input": [first, self.ids(STORY)]})[1]["data"]]
        for text in (text, text * 6):  # read on the loop, and beside it
            self.assertEqual(self.client.embed(NAME, [text, STORY]).embeddings, want)
            with self.assertRaises(ollama.ResponseError) as caught:
                self.client.embed(NAME, text, truncate=False)
            self.assertEqual(caught.exception.status_code, 400)

    def test_embed(self):
        want = [item["embedding"] for item in json.loads(run("embed", MODEL, "Hello", STORY, "--json",
                                                             "-q").stdout)["data"]]
        self.assertEqual(self.client.embed(NAME, ["Hello", STORY]).embeddings, want)

    def test_models(self):
        self.assertEqual([model.model for model in self.client.list().models], [NAME])
        self.assertEqual([model.name for model in self.client.ps().models], [NAME])
        shown = self.client.show(NAME)
        self.assertIn("completion", shown.capabilities)
        self.assertGreater(shown.modelinfo["general.parameter_count"], 1000000)

    def test_closed_early(self):
        def ask():
            pieces = self.client.generate(NAME, STORY, options={"num_predict": -1, "seed": 1}, stream=True, format=MANY)
            next(pieces)
            pieces.close()

        close_early(self, ask)

    def test_errors(self):
        for ask, status in ((lambda: self.client.chat("other", USER), 404), (lambda: self.client.show("other"), 404),
                            (lambda: next(self.client.generate("other", "a", stream=True)), 404),
                            (lambda: self.client.generate(NAME, "a", options={"temperature": -1}), 400),
                            (lambda: self.client.embed(NAME, [""]), 400), (lambda: self.client.pull("other"), 404)):
            with self.assertRaises(ollama.ResponseError) as caught:
                ask()
            self.assertEqual((caught.exception.status_code, type(caught.exception.error)), (status, str))

    def test_async(self):
        async def ask():
            client = ollama_client(ollama.AsyncClient)
            try:
                return "".join([piece.message.content async for piece in
                                await client.chat(NAME, USER, options=self.OPTIONS, stream=True)])
            finally:
                await client.close()

        self.assertEqual(asyncio.run(ask()), program_chat())


class Cohere(unittest.TestCase):
    """Documents in the order in which another program ranks them (test_scores.py), by both versions of the
    interface."""

    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        ranker = os.path.join(folder, "ranker.gguf")
        subprocess.run([os.environ["RUNNEL_MAKE_RANKER"], MODEL, ranker, "template"], check=True)
        cls.server = Server("--quiet", model=ranker)
        how = {"api_key": "none", "base_url": f"http://127.0.0.1:{cls.server.port}", "timeout": common.PATIENCE}
        cls.first, cls.second = cohere.Client(**how), cohere.ClientV2(**how)

    @classmethod
    def tearDownClass(cls):
        code, said = cls.server.stop()
        assert code == 0, (code, said)

    def check(self, answer, order):
        self.assertEqual([result.index for result in answer.results], order)
        test_scores.Scores.near(self, [result.relevance_score for result in answer.results],
                                [test_scores.SCORES[i] for i in order])
        self.assertRegex(answer.id, "^rerank-")
        self.assertEqual(answer.meta.tokens.input_tokens, test_scores.TOKENS)

    def test_second(self):
        ask = {"model": "ranker", "query": test_scores.QUERY, "documents": test_scores.TEXTS}
        self.check(self.second.rerank(**ask), [0, 2, 3, 1])
        self.check(self.second.rerank(**ask, top_n=2, max_tokens_per_doc=4096), [0, 2])

    def test_first(self):
        ask = {"model": "ranker", "query": test_scores.QUERY,
               "documents": [{"text": text, "title": "t"} for text in test_scores.TEXTS]}
        self.check(self.first.rerank(**ask), [0, 2, 3, 1])
        answer = self.first.rerank(**ask, top_n=1, return_documents=True, rank_fields=["text"])
        self.check(answer, [0])
        self.assertEqual(answer.results[0].document.text, test_scores.TEXTS[0])

    def test_async(self):
        async def ask():
            async with cohere.AsyncClientV2(api_key="none", base_url=f"http://127.0.0.1:{self.server.port}") as client:
                return await client.rerank(model="ranker", query=test_scores.QUERY, documents=test_scores.TEXTS)

        self.check(asyncio.run(ask()), [0, 2, 3, 1])

    def test_errors(self):
        ask = {"query": test_scores.QUERY, "documents": test_scores.TEXTS}
        with self.assertRaises(cohere.NotFoundError) as caught:
            self.second.rerank(model="no-such", **ask)
        self.assertEqual(caught.exception.body["error"]["code"], "model_not_found")
        with self.assertRaises(cohere.BadRequestError) as caught:
            self.first.rerank(model="ranker", **ask, rank_fields=["title", "text"])
        self.assertEqual(caught.exception.body["error"]["param"], "rank_fields")
        with self.assertRaises(cohere.BadRequestError) as caught:
            self.second.rerank(model="ranker", query="a", documents=[])
        self.assertEqual(caught.exception.body["error"]["param"], "documents")


class Errors(unittest.TestCase):
    """Each status as the exception that a client makes of it."""

    @classmethod
    def setUpClass(cls):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write(f"{KEY}\nkey-of-second requests=1\nkey-of-third scopes=models\n")
            keys.flush()
            cls.server = Server("--api-key-file", keys.name, "--max-streams", 1)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop()[0] == 0

    def openai(self, key=KEY, **how):
        with openai_client(of=self.server, key=key) as client:
            client.chat.completions.create(**{"model": NAME, "messages": USER, "max_tokens": 1, **how})

    def openai_once_free(self, key):
        """The one stream of a test before this may be on its way to its end."""
        while True:
            with contextlib.suppress(openai.InternalServerError):
                return self.openai(key)

    def anthropic(self, key=KEY, **how):
        with anthropic_client(of=self.server, key=key) as client:
            client.messages.create(**{"model": NAME, "messages": USER, "max_tokens": 1, **how})

    def ollama(self, key=KEY, model=NAME, **how):
        with ollama_client(of=self.server, headers={"Authorization": f"Bearer {key}"}) as client:
            client.chat(model, USER, options={"num_predict": 1}, **how)

    def refused(self, status, openais, anthropics, ollamas=True, **how):
        with self.assertRaises(openais) as caught:
            self.openai(**how)
        self.assertEqual(caught.exception.status_code, status)
        with self.assertRaises(anthropics) as other:
            self.anthropic(**how)
        self.assertEqual((other.exception.status_code, other.exception.body["type"]), (status, "error"))
        self.assertRegex(other.exception.request_id, "^req_")
        self.assertEqual(other.exception.body["request_id"], other.exception.request_id)
        if ollamas:
            with self.assertRaises(ollama.ResponseError) as third:
                self.ollama(**how)
            self.assertEqual((third.exception.status_code, type(third.exception.error)), (status, str))
        return caught.exception

    def test_each(self):
        error = self.refused(401, openai.AuthenticationError, anthropic.AuthenticationError, key="wrong")
        self.assertEqual(error.code, "invalid_api_key")
        error = self.refused(403, openai.PermissionDeniedError, anthropic.PermissionDeniedError, key="key-of-third")
        self.assertEqual(error.code, "insufficient_scope")
        error = self.refused(404, openai.NotFoundError, anthropic.NotFoundError, model="other")
        self.assertEqual((error.code, error.param), ("model_not_found", "model"))
        error = self.refused(400, openai.BadRequestError, anthropic.BadRequestError, False, max_tokens=-5)
        self.assertEqual((error.code, error.param), ("invalid_value", "max_tokens"))

    def test_too_many(self):
        for _ in range(2):  # of a bound of one in a minute; a machine that needs a minute for one of these sees no more
            with contextlib.suppress(openai.RateLimitError):
                self.openai_once_free("key-of-second")
        error = self.refused(429, openai.RateLimitError, anthropic.RateLimitError, key="key-of-second")
        self.assertEqual(error.code, "rate_limit_exceeded")
        self.assertGreaterEqual(int(error.response.headers["retry-after"]), 1)

    def test_full(self):
        with openai_client(of=self.server, key=KEY, strict=False) as client:
            stream = client.completions.create(model=NAME, stream=True, **LONG)
            next(iter(stream))
            error = self.refused(503, openai.InternalServerError, anthropic.InternalServerError)
            self.assertEqual(error.code, "server_busy")
            self.assertGreaterEqual(int(error.response.headers["retry-after"]), 1)
            with self.assertRaises(openai.InternalServerError):
                client.completions.create(model=NAME, stream=True, **LONG)
            stream.close()


if __name__ == "__main__":
    common.main("__main__")
