"""runnel.openai: answers shaped as those of OpenAI's client. Judges are the program's batch lines and, where the
package is importable, OpenAI's own types."""

import asyncio
import base64
import importlib.util
import json
import subprocess

import pytest
import runnel
from conftest import MODEL
from runnel.openai import AsyncOpenAI, OpenAI

HELLO = [{"role": "user", "content": "Hello"}]
TOOLS = [{"type": "function", "function": {"name": "look", "description": "", "parameters": {
    "type": "object", "properties": {"where": {"enum": ["up", "down"]}}, "required": ["where"]}}}]
TEMPLATE = ("{% for t in tools %}{{ t.function.name }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
            "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", "
            "\"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
            "<|im_start|>assistant\n")
SCHEMA = {"type": "object", "properties": {"name": {"enum": ["Ann", "Bob"]}, "old": {"type": "boolean"}},
          "required": ["name", "old"], "additionalProperties": False}


def unknown(read):
    """Members that a type of OpenAI's does not have."""
    if isinstance(read, list):
        return set().union(*map(unknown, read))
    if not hasattr(read, "model_extra"):
        return set()
    return set(read.model_extra or ()).union(*(unknown(getattr(read, name)) for name in type(read).model_fields))


def judge(answer, name):
    """By OpenAI's own types: nothing missing, nothing of another type, nothing more."""
    if importlib.util.find_spec("openai") is None:
        return answer
    import openai.types

    kinds = {"chat": openai.types.chat.ChatCompletion, "chunk": openai.types.chat.ChatCompletionChunk,
             "completion": openai.types.Completion, "embeddings": openai.types.CreateEmbeddingResponse}
    parts = answer.model_dump()
    for choice in parts.get("choices", []):
        if name == "completion" and choice["finish_reason"] is None:
            choice["finish_reason"] = "stop"  # their type has no null, which their chunks have
        logprobs = choice["logprobs"] if name == "completion" else None
        if logprobs and None in logprobs["token_logprobs"]:  # of the first token of a prompt, as with them
            logprobs["token_logprobs"][0] = 0.0
            logprobs["top_logprobs"] = (logprobs["top_logprobs"] or [])[1:]
    read = kinds[name].model_validate_json(json.dumps(parts), strict=True)
    assert unknown(read) <= {"reasoning_content", "stop_reason"}  # vLLM's
    return answer


def same(ours, theirs):
    """Equal but for ids, times and the last digits of numbers."""
    if isinstance(theirs, dict):
        for name in theirs:
            if name not in ("id", "created", "model"):
                same(ours[name], theirs[name])
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for pair in zip(ours, theirs):
            same(*pair)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)
    else:
        assert ours == theirs


BODIES = [
    ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 12, "seed": 3, "n": 3}),
    ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 6, "seed": 3, "logprobs": True, "top_logprobs": 2}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "What"},
                                                                       {"type": "text", "text": "is 2+2?"}]}],
                              "temperature": 0, "stop": ["4"], "logit_bias": {"5": -100}}),
    ("/v1/chat/completions", {"messages": HELLO, "max_completion_tokens": 60, "seed": 5, "top_p": 0.9,
                              "response_format": {"type": "json_schema", "json_schema": {
                                  "name": "person", "schema": SCHEMA, "strict": True}}}),
    ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 40, "seed": 5,
                              "response_format": {"type": "json_object"}}),
    ("/v1/completions", {"prompt": ["Once upon a time", "A lamb"], "n": 2, "seed": 7, "presence_penalty": 0.5}),
    ("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 5, "top_p": 0, "logprobs": 2}),
    ("/v1/completions", {"prompt": "Once", "max_tokens": 5, "temperature": 0, "echo": True}),
    ("/v1/completions", {"prompt": ["Once upon a time", "A lamb – näher"], "max_tokens": 3, "seed": 2, "logprobs": 2,
                         "echo": True}),
    ("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 3, "seed": 2, "n": 2, "logprobs": 0, "echo": True}),
    ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 5, "seed": 3, "logprobs": False, "top_logprobs": 0,
                              "n": 2, "best_of": 2}),
    ("/v1/completions", {"prompt": "Once", "max_tokens": 5, "temperature": 0, "suffix": "", "best_of": 1}),
    ("/v1/embeddings", {"input": ["Hello", "A lamb named Hugo"], "dimensions": 8}),
    ("/v1/embeddings", {"input": "Hello", "encoding_format": "base64"}),
    ("/v1/embeddings", {"input": ["Hello", "A lamb named Hugo"], "normalize": False, "pooling": "first"}),
    ("/v1/embeddings", {"input": "Hello", "normalize": True}),
]


def test_the_answers_are_those_of_batch_lines(program, tmp_path, blocking_model):
    lines = [{"custom_id": str(i), "method": "POST", "url": url, "body": body} for i, (url, body) in enumerate(BODIES)]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    subprocess.run([program, "batch", MODEL, source, target, "--quiet", "--fail-on", "any"], check=True)
    client = OpenAI(blocking_model)
    resources = {"/v1/chat/completions": client.chat.completions, "/v1/completions": client.completions,
                 "/v1/embeddings": client.embeddings}
    for (url, body), line in zip(BODIES, target.read_text().splitlines()):
        answer = resources[url].create(**body)
        same(answer.model_dump(), json.loads(line)["response"]["body"])
        if body.get("encoding_format") != "base64":  # what their client decodes
            judge(answer, {"/v1/chat/completions": "chat", "/v1/completions": "completion"}.get(url, "embeddings"))


REFUSED = [("/v1/chat/completions", {"messages": HELLO, **more}) for more in (
    {"n": 0}, {"n": -1}, {"n": 300}, {"n": "2"}, {"seed": 1.5}, {"logit_bias": {"x": 1}}, {"logit_bias": [1]},
    {"top_logprobs": 3}, {"n": 2, "best_of": 1}, {"response_format": "json"}, {"response_format": {"type": "xml"}},
    {"response_format": {"type": "json_schema"}}, {"tool_choice": {}}, {"messages": []}, {"messages": "hi"},
    {"messages": ["hi"]}, {"messages": [{"content": "x"}]}, {"messages": [{"role": "banana", "content": "x"}]},
    {"messages": [{"role": "user"}]}, {"messages": [{"role": "user", "content": 5}]},
    {"messages": [{"role": "user", "content": ["x"]}]}, {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
    {"messages": [{"role": "assistant", "tool_calls": [{}]}]}, {"messages": [{"role": "assistant", "tool_calls": 5}]},
    {"tools": [{"type": "web_search"}], "tool_choice": "auto"}, {"tools": [{"type": "web_search"}]},
    {"tools": [{"type": "function", "name": "f"}], "tool_choice": "auto"}, {"tools": [None]}, {"tools": "abc"},
    {"tools": TOOLS[0]}, {"tools": [{"type": "function", "function": {"name": "f", "strict": 1}}]}, {"functions": "x"},
    {"functions": [{}]}, {"max_tokens": 0}, {"max_completion_tokens": 0}, {"logit_bias": {"1.5": 1}},
    {"logit_bias": {"-1": 1}}, {"logit_bias": {"5": 101}}, {"logit_bias": {"5": "x"}}, {"logprobs": "yes"},
    {"logprobs": 0}, {"stream_options": 5}, {"chat_template_kwargs": 5}, {"parallel_tool_calls": 1}, {"stop": 5},
    {"stop": {"a": 1}}, {"stop": [5]})] + [
    ("/v1/chat/completions", {"max_tokens": 5}), ("/v1/completions", {"max_tokens": 5}),
    ("/v1/completions", {"prompt": []}), ("/v1/completions", {"prompt": 5}), ("/v1/completions", {"prompt": ""}),
    ("/v1/completions", {"prompt": [5, 6], "suffix": "x"}), ("/v1/completions", {"prompt": "x", "logprobs": True}),
    ("/v1/embeddings", {"input": []}), ("/v1/embeddings", {"input": ""}), ("/v1/embeddings", {"input": {"a": 1}}),
    ("/v1/embeddings", {"input": "x", "dimensions": 0}), ("/v1/embeddings", {"input": "x", "dimensions": "8"}),
    ("/v1/embeddings", {"input": "x", "normalize": 1}), ("/v1/embeddings", {"input": "x", "encoding_format": 5})]


def test_what_the_program_refuses_is_refused(program, tmp_path, blocking_model):
    lines = [{"custom_id": str(i), "method": "POST", "url": url, "body": body} for i, (url, body) in enumerate(REFUSED)]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    subprocess.run([program, "batch", MODEL, source, target, "--quiet"], check=False)
    answers = {one["custom_id"]: one for one in map(json.loads, target.read_text().splitlines())}
    assert all(answers[str(i)]["response"]["status_code"] == 400 for i in range(len(REFUSED)))
    client = OpenAI(blocking_model)
    resources = {"/v1/chat/completions": client.chat.completions, "/v1/completions": client.completions,
                 "/v1/embeddings": client.embeddings}
    for url, body in REFUSED:
        with pytest.raises((runnel.InvalidError, TypeError)) as raised:
            resources[url].create(**body)
        told = str(raised.value)
        assert any(name in told for name in (*body, "messages", "prompt", "text is empty")), told


def test_what_openai_s_own_client_takes(blocking_model):
    """Values that mean that nothing is given, and times as httpx has them."""
    create = OpenAI(blocking_model).chat.completions.create
    plain = create(messages=HELLO, max_tokens=5, temperature=0)

    class Omit:
        __module__ = "openai._types"

        def __bool__(self):
            return False

    class Timeout:
        connect = write = pool = 1
        read = 1000

    more = {name: Omit() for name in ("stop", "n", "seed", "logprobs", "stream", "stream_options", "model", "tools")}
    assert create(messages=HELLO, max_tokens=5, temperature=0, timeout=Timeout(), **more).choices == plain.choices
    for timeout in (float("inf"), 10**9, None):
        assert create(messages=HELLO, max_tokens=5, temperature=0, timeout=timeout).choices == plain.choices
    for error, timeout in ((runnel.InvalidError, -1), (TypeError, "soon")):
        with pytest.raises(error, match="^timeout: "):
            create(messages=HELLO, timeout=timeout)
    with pytest.raises(TypeError, match="^response_format: a dict is wanted"):
        create(messages=HELLO, response_format=dict)


def test_what_no_body_can_be(blocking_model):
    """What is wrong in Python alone."""
    create = OpenAI(blocking_model).chat.completions.create
    for error, match, parameters in [
            (runnel.InvalidError, "^logit_bias: .* 1.5", {"logit_bias": {1.5: 100}}),
            (TypeError, "^extra_body: a dict", {"extra_body": [1]}), (TypeError, "^stream: ", {"stream": 1}),
            (TypeError, "^stream_options: a dict", {"stream_options": 5, "stream": True}),
            (TypeError, "^stream_options.include_usage: ", {"stream_options": {"include_usage": 1}, "stream": True})]:
        with pytest.raises(error, match=match):
            create(messages=HELLO, **parameters)
    plain = create(messages=HELLO, max_tokens=5, temperature=0)
    assert create(messages=HELLO, temperature=0, max_tokens=None, extra_body={"max_tokens": 5}).choices == plain.choices
    assert len(create(messages=HELLO, max_tokens=2, extra_body={"n": 2}).choices) == 2
    assert create(messages=HELLO, temperature=0, max_completion_tokens=5, max_tokens=2).choices == plain.choices


class Row(list):
    """As an array of numpy's has it: no number, though it has the method."""

    def __index__(self):
        raise TypeError("only integer scalar arrays can be converted to a scalar index")


def test_arrays_of_ids(blocking_model):
    client = OpenAI(blocking_model)
    ids = [[5, 6, 7], [8, 9, 10]]
    arrays = [[Row(row) for row in ids], Row([Row(row) for row in ids])]
    if importlib.util.find_spec("numpy"):
        import numpy

        arrays += [numpy.array(ids), [numpy.array(row) for row in ids]]
    for create, name in ((client.completions.create, "prompt"), (client.embeddings.create, "input")):
        more = {"max_tokens": 3, "temperature": 0} if name == "prompt" else {}
        answers = [create(**{name: given}, **more).model_dump() for given in (ids, *arrays)]
        parts = [answer["choices" if name == "prompt" else "data"] for answer in answers]
        assert len(parts[0]) == 2 and all(part == parts[0] for part in parts)
        one = [create(**{name: given}, **more).usage.prompt_tokens for given in (ids[0], Row(ids[0]))]
        assert one == [3, 3]
        with pytest.raises(TypeError, match=f"^{name}: "):
            create(**{name: {"a set"}}, **more)


def test_parameters_of_embeddings(blocking_model):
    create = OpenAI(blocking_model).embeddings.create
    expected = create(input="Hello").data
    assert create(input="Hello", timeout=1000, user="me", extra_headers={}, extra_body={"priority": 1}).data == expected
    raw = create(input="Hello", normalize=False).data
    assert raw != expected and create(input="Hello", extra_body={"normalize": False}).data == raw
    short = create(input="Hello", dimensions=4, encoding_format="base64").data
    assert create(input="Hello", extra_body={"dimensions": 4, "encoding_format": "base64"}).data == short
    with pytest.raises(runnel.InvalidError, match="^timeout: "):
        create(input="Hello", timeout=-1)
    with pytest.raises(TypeError, match="nonsense"):
        create(input="Hello", nonsense=1)


async def test_the_best_of_several_answers_does_not_stream(model_path):
    """As with the server: which are the best is known at their end."""
    with runnel.blocking.Engine(compute_threads=1) as engine:
        model = engine.load_model(model_path)
        for name, client in (("blocks", OpenAI(model)), ("awaits", AsyncOpenAI(model))):
            for create, asked in ((client.completions.create, {"prompt": "Once"}),
                                  (client.chat.completions.create, {"messages": HELLO})):
                for more in ({"best_of": 2}, {"extra_body": {"best_of": 2}}):
                    parameters = {**asked, "n": 2, "max_tokens": 2, **more}
                    with pytest.raises(runnel.InvalidError, match="^best_of: .*stream"):
                        answer = create(**parameters, stream=True)
                        await answer if name == "awaits" else answer
                    answer = create(**parameters, stream=False)
                    assert len((await answer if name == "awaits" else answer).choices) == 2
                stream = create(**asked, best_of=1, max_tokens=2, stream=True)
                assert await read_all(await stream) if name == "awaits" else list(stream)


async def test_more_choices_than_the_engine_has_streams(model_path):
    """Their chunks come as those of others."""
    async with runnel.Engine(compute_threads=1, max_streams=3) as engine:
        model = await engine.load_model(model_path)
        parameters = {"messages": HELLO, "max_tokens": 4, "seed": 3, "n": 8, "ignore_eos": True}
        whole = (await AsyncOpenAI(model).chat.completions.create(**parameters)).choices
        more = {"stream": True, "stream_options": {"include_usage": True}}
        awaited = await read_all(await AsyncOpenAI(model).chat.completions.create(**parameters, **more))
        blocked = list(OpenAI(model).chat.completions.create(**parameters, **more))
        for chunks in (awaited, blocked):
            assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 32
            texts = [""] * 8
            for chunk in chunks[:-1]:
                texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
            assert texts == [choice.message.content for choice in whole]
        stream = await AsyncOpenAI(model).chat.completions.create(**parameters, stream=True)
        await stream.__anext__()
        await stream.close()
        assert await read_all(stream) == [] and engine.streams() == []
        async with model.stream("x", max_tokens=-1, ignore_eos=True, context_keep=0), \
                model.stream("x", max_tokens=-1, ignore_eos=True, context_keep=0), \
                model.stream("x", max_tokens=-1, ignore_eos=True, context_keep=0):
            with pytest.raises(runnel.BusyError):
                await AsyncOpenAI(model).chat.completions.create(**parameters, stream=True)


async def test_more_texts_than_the_engine_has_streams(model_path):
    async with runnel.Engine(compute_threads=1, max_streams=3) as engine:
        model = await engine.load_model(model_path)
        texts = [f"{i} times" for i in range(40)]
        data = (await AsyncOpenAI(model).embeddings.create(input=texts)).data
        again = OpenAI(model).embeddings.create(input=texts).data
        assert [one.embedding for one in data] == [one.embedding for one in again]
        assert [data[i].embedding for i in (0, 39)] == [list(await model.embed(texts[i])) for i in (0, 39)]
        answer = await AsyncOpenAI(model).completions.create(prompt=texts, max_tokens=2, temperature=0, n=2)
        assert [choice.index for choice in answer.choices] == list(range(80))
        async with model.stream("x", max_tokens=-1, ignore_eos=True, context_keep=0) as one:
            async with model.stream("x", max_tokens=-1, ignore_eos=True, context_keep=0) as two:
                assert len((await AsyncOpenAI(model).embeddings.create(input=texts)).data) == 40
                async with model.stream("x", max_tokens=-1, ignore_eos=True, context_keep=0) as three:
                    with pytest.raises(runnel.BusyError):
                        await AsyncOpenAI(model).embeddings.create(input=texts)
                    assert not (one.ended or two.ended or three.ended)


def test_an_input_longer_than_an_engine_has_streams(blocking_model):
    assert len(OpenAI(blocking_model).embeddings.create(input=["a"] * 1100).data) == 1100


@pytest.mark.parametrize("more", [{"n": 16}, {"n": 16, "logprobs": 2}, {"prompt": [f"{i} times" for i in range(16)]}])
async def test_the_choices_of_a_call_run_at_once(model_path, more):
    """Also of one whose chunks come one after another."""
    async with runnel.Engine(compute_threads=1) as engine:
        model = await engine.load_model(model_path)
        parameters = {"prompt": "Once", "max_tokens": 150, "seed": 5, "ignore_eos": True, **more}

        def steps_of_one():
            before = engine.stats().steps
            OpenAI(model).completions.create(**{**parameters, "n": 1, "prompt": "Once"})
            return engine.stats().steps - before

        async def awaited():
            return await read_all(await AsyncOpenAI(model).completions.create(**parameters, stream=True))

        most, texts = 2 * steps_of_one(), []
        for read in (lambda: OpenAI(model).completions.create(**parameters),
                     lambda: list(OpenAI(model).completions.create(**parameters, stream=True)), awaited):
            before, answer = engine.stats().steps, read()
            answer = await answer if asyncio.iscoroutine(answer) else answer
            assert engine.stats().steps - before < most
            own = [""] * 16
            for one in answer if isinstance(answer, list) else [answer]:
                for choice in one.choices:
                    own[choice.index] += choice.text
            texts.append(own)
        assert texts[0] == texts[1] == texts[2] and all(texts[0])


def test_texts_to_stop_at(blocking_model):
    """Any iterable of texts."""
    create = OpenAI(blocking_model).chat.completions.create
    parameters = {"messages": HELLO, "temperature": 0, "max_tokens": 60, "ignore_eos": True}
    stop = create(**parameters).choices[0].message.content[10:14]
    for stops in (stop, [stop], (stop,), {stop}, iter([stop])):
        choice = create(**parameters, stop=stops).choices[0]
        assert choice.finish_reason == "stop" and choice.stop_reason == stop
    for stops in (stop.encode(), [stop.encode()], {stop: 1}):
        with pytest.raises(TypeError, match="stop"):
            create(**parameters, stop=stops)


async def test_an_answer_that_was_cancelled_has_not_stopped(model):
    create = AsyncOpenAI(model).chat.completions.create
    stream = await create(messages=HELLO, stream=True, n=2, max_tokens=-1, ignore_eos=True, context_keep=0)
    for _ in range(3):
        await stream.__anext__()
    task = asyncio.create_task(read_all(stream))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(2):
        with pytest.raises(runnel.CancelledError):
            await read_all(stream)


async def test_one_task_reads_a_stream(model):
    create = AsyncOpenAI(model).chat.completions.create
    parameters = {"messages": HELLO, "max_tokens": 50, "temperature": 0, "ignore_eos": True}
    stream = await create(**parameters, stream=True)
    told = await asyncio.gather(read_all(stream), read_all(stream), return_exceptions=True)
    assert type(told[1]) is runnel.StateError and "another task" in str(told[1])
    text = "".join(chunk.choices[0].delta.content or "" for chunk in told[0])
    assert text == (await create(**parameters)).choices[0].message.content
    stream = await create(**parameters, stream=True, context_keep=0, n=2)
    task = asyncio.create_task(read_all(stream))
    await asyncio.sleep(0)
    await stream.close()  # who reads has its end
    assert all(chunk.choices[0].finish_reason is None for chunk in await task)


async def read_all(stream):
    return [chunk async for chunk in stream]


@pytest.mark.parametrize("parameters", [
    {"max_tokens": 12, "n": 2}, {"max_tokens": 6, "logprobs": True, "top_logprobs": 2}, {"max_tokens": 200},
    {"max_tokens": 200, "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False,
     "template_text": TEMPLATE}])
async def test_chunks_of_a_chat_join_to_its_message(model, parameters):
    create = AsyncOpenAI({"tiny": model}).chat.completions.create
    parameters = {"messages": HELLO, "model": "tiny", "seed": 11, **parameters}
    whole = judge(await create(**parameters), "chat")
    stream = await create(**parameters, stream=True, stream_options={"include_usage": True})
    chunks = [judge(chunk, "chunk") async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == whole.usage.total_tokens
    for choice in whole.choices:
        own = [chunk.choices[0] for chunk in chunks[:-1] if chunk.choices[0].index == choice.index]
        calls = [call for one in own for call in one.delta.tool_calls or []]
        assert "".join(one.delta.content or "" for one in own) == (choice.message.content or "")
        assert "".join(call.function.arguments for call in calls) == "".join(
            call.function.arguments for call in choice.message.tool_calls or [])
        assert [call.function.name for call in calls if call.id] == [
            call.function.name for call in choice.message.tool_calls or []]
        assert [(one.finish_reason, one.stop_reason) for one in own if one.finish_reason] == [
            (choice.finish_reason, choice.stop_reason)]
        entries = [entry.token for one in own if one.logprobs for entry in one.logprobs.content]
        assert entries == [entry.token for entry in choice.logprobs.content] if choice.logprobs else entries == []


def test_chunks_of_a_text_join_to_it(blocking_model):
    create = OpenAI(blocking_model).completions.create
    parameters = {"prompt": ["Once", [5, 6]], "max_tokens": 6, "seed": 1, "n": 2}
    for more in ({"echo": True}, {"logprobs": 1}, {"echo": True, "logprobs": 1}):
        whole = create(**parameters, **more)
        with create(**parameters, **more, stream=True) as stream:
            chunks = [judge(chunk, "completion").choices[0] for chunk in stream]
        for choice in whole.choices:
            own = [chunk for chunk in chunks if chunk.index == choice.index]
            assert "".join(chunk.text for chunk in own) == choice.text
            if choice.logprobs:
                lists = [one.logprobs for one in own if one.logprobs]
                for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                    assert sum((getattr(one, name) for one in lists), []) == getattr(choice.logprobs, name)


async def test_reasoning_is_counted(model):
    create = AsyncOpenAI(model).chat.completions.create
    parameters = {"messages": HELLO, "temperature": 0, "max_tokens": 12, "n": 2,
                  "template_text": "{{ messages[0].content }}</think><think>\n"}
    whole = judge(await create(**parameters), "chat")
    alone = [len(model.tokenize(choice.message.reasoning_content)) for choice in whole.choices]
    chunks = [chunk async for chunk in await create(**parameters, stream=True, stream_options={"include_usage": True})]
    for usage in (whole.usage, chunks[-1].usage):
        assert 0 < usage.completion_tokens_details.reasoning_tokens == sum(min(n, 12) for n in alone)


async def test_a_conversation_with_a_tool(model):
    create = AsyncOpenAI(model).chat.completions.create
    more = {"tools": TOOLS, "template_text": TEMPLATE, "max_tokens": 200, "parallel_tool_calls": False}
    first = judge(await create(messages=HELLO, tool_choice={"type": "function", "function": {"name": "look"}}, **more),
                  "chat").choices[0]
    call, = first.message.tool_calls
    assert first.finish_reason == "tool_calls" and first.message.content is None
    assert json.loads(call.function.arguments)["where"] in ("up", "down")
    # the message goes back as it is; the template sees arguments as an object
    result = {"role": "tool", "tool_call_id": call.id, "content": "Nothing."}
    second = await create(messages=[*HELLO, first.message, result], **{**more, "max_tokens": 5}, tool_choice="none")
    messages = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [{"function": {
        "name": "look", "arguments": json.loads(call.function.arguments)}}]}, result]
    assert second.usage.prompt_tokens == len(model.tokenize_chat(messages, template_text=TEMPLATE))
    assert second.choices[0].message.tool_calls is None


FUNCTIONS = {"functions": [tool["function"] for tool in TOOLS], "function_call": {"name": "look"}, "max_tokens": 200,
             "seed": 4}


def test_functions_are_as_in_a_batch_line(program, tmp_path, blocking_model):
    """The form before tools: the program's own answer for the same request."""
    template, source, target = tmp_path / "t.jinja", tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    template.write_text(TEMPLATE)
    said = [*HELLO, {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
            {"role": "function", "name": "look", "content": "Nothing."}]
    bodies = [{"messages": HELLO, **FUNCTIONS}, {"messages": said, **FUNCTIONS, "function_call": "none", "max_tokens": 5}]
    source.write_text("".join(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions",
                                          "body": body}) + "\n" for i, body in enumerate(bodies)))
    subprocess.run([program, "batch", MODEL, source, target, "--quiet", "--fail-on", "any", "--template", template],
                   check=True)
    create = OpenAI(blocking_model).chat.completions.create
    for body, line in zip(bodies, target.read_text().splitlines()):
        answer = judge(create(**body, template_text=TEMPLATE), "chat")
        same(answer.model_dump(), json.loads(line)["response"]["body"])
        chunks = [judge(chunk, "chunk").choices[0] for chunk in create(**body, template_text=TEMPLATE, stream=True)]
        calls = [chunk.delta.function_call for chunk in chunks if chunk.delta.function_call]
        call, = [choice.message.function_call for choice in answer.choices]
        assert chunks[-1].finish_reason == answer.choices[0].finish_reason == ("function_call" if call else "length")
        assert "".join(part.arguments for part in calls) == (call.arguments if call else "")
        assert [part.name for part in calls if part.name] == (["look"] if body is bodies[0] else [])


async def test_leaving_cancels(engine, model):
    stream = await AsyncOpenAI(model).chat.completions.create(messages=HELLO, n=3, ignore_eos=True, stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()
    assert engine.streams() == [] and [chunk async for chunk in stream] == []
    task = asyncio.ensure_future(AsyncOpenAI(model).completions.create(prompt="x", max_tokens=-1, n=2, ignore_eos=True))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await engine.drain()
    assert engine.streams() == []


async def test_a_cancelled_reader_cancels_all_choices(engine, model):
    ask = AsyncOpenAI(model).completions.create
    stream = await ask(prompt="x", max_tokens=-1, n=3, ignore_eos=True, context_keep=8, stream=True)
    begun = asyncio.Event()

    async def read():
        async for _ in stream:
            begun.set()

    task = asyncio.ensure_future(read())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(engine.drain(), 600)  # what runs on has no end
    assert engine.streams() == []
    with pytest.raises(runnel.CancelledError):
        async for _ in stream:  # what had come before, if the machine is slow
            pass


async def test_both_clients_serve_models_of_both_kinds(model, blocking_model):
    texts = set()
    for one in (model, blocking_model):
        parameters = {"prompt": "Once", "temperature": 0}
        texts.add((await AsyncOpenAI(one).completions.create(**parameters)).choices[0].text)
        texts.add((await asyncio.to_thread(OpenAI(one).completions.create, **parameters)).choices[0].text)
    assert len(texts) == 1


def test_embeddings_are_the_model_s(blocking_model):
    create = OpenAI(blocking_model).embeddings.create
    expected = blocking_model.embed("Hello")
    assert create(input="Hello").data[0].embedding == list(expected)
    data = create(input="Hello", encoding_format="base64").data[0].embedding
    assert list(memoryview(base64.b64decode(data)).cast("f")) == list(expected)


def test_what_is_wrong(blocking_model):
    client = OpenAI({"tiny": blocking_model})
    create = client.chat.completions.create
    for error, parameters in [
            (runnel.NotFoundError, {"model": "other"}), (runnel.InvalidError, {"temperature": -1}),
            (TypeError, {"nonsense": []}), (runnel.InvalidError, {"tool_choice": "required"}),
            (runnel.InvalidError, {"function_call": "look"}),
            (runnel.InvalidError, {"messages": [{"role": "function", "content": "Nothing."}]}),
            (runnel.InvalidError, {"response_format": {"type": "xml"}}),
            (runnel.InvalidError, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            (runnel.TimeoutError, {"timeout": 0.001, "ignore_eos": True})]:
        for stream in (False, True):
            with pytest.raises(error):
                answer = create(**{"messages": HELLO, "model": "tiny", "stream": stream, **parameters})
                list(answer)
    with pytest.raises(runnel.InvalidError):
        client.embeddings.create(model="tiny", input="x", encoding_format="hex")
    with pytest.raises(runnel.InvalidError):
        client.completions.create(model="tiny", prompt="x", suffix="y", logprobs=1, echo=True)
