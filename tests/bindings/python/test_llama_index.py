"""The LLM of LlamaIndex's, with the real llama-index-core."""

import json

import pytest
from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
from runnel.llama_index import Runnel
from test_openai import TEMPLATE, TOOLS

HELLO = [ChatMessage(role="user", content="Hello")]


@pytest.fixture
def llm(blocking_model):
    return Runnel(model=blocking_model, temperature=0, max_tokens=12)


async def test_completions(llm, blocking_model):
    text = blocking_model.generate("Once upon a time", temperature=0, max_tokens=12).text
    streamed = list(llm.stream_complete("Once upon a time"))
    awaited = [part async for part in await llm.astream_complete("Once upon a time")]
    assert llm.complete("Once upon a time").text == (await llm.acomplete("Once upon a time")).text == text
    for parts in (streamed, awaited):
        assert parts[-1].text == "".join(part.delta for part in parts) == text
    assert llm.metadata.context_window == blocking_model.info().context_tokens and llm.metadata.num_output == 12


async def test_chats(llm, blocking_model):
    text = blocking_model.generate(messages=[{"role": "user", "content": "Hello"}], temperature=0, max_tokens=12).text
    streamed = list(llm.stream_chat(HELLO))
    awaited = [part async for part in await llm.astream_chat(HELLO)]
    whole = llm.chat(HELLO)
    assert whole.message.content == (await llm.achat(HELLO)).message.content == text
    assert whole.raw["usage"]["completion_tokens"] > 0
    for parts in (streamed, awaited):
        assert parts[-1].message.content == "".join(part.delta for part in parts) == text
    assert llm.chat(HELLO, stop=[text[4:8]]).message.content == text[:4]


async def test_usage_in_parts(llm):
    """The last part has it where it is asked for; `stream` is the method's."""
    asked = Runnel(model=llm.model, temperature=0, max_tokens=12,
                   additional_kwargs={"stream_options": {"include_usage": True}, "stream": False})
    whole = llm.chat(HELLO)
    for part in (list(asked.stream_chat(HELLO))[-1], [one async for one in await asked.astream_chat(HELLO)][-1],
                 asked.chat(HELLO, stream=True)):
        assert part.message.content == whole.message.content
        assert part.raw["usage"]["completion_tokens"] == whole.raw["usage"]["completion_tokens"]
    whole = llm.complete("Once")
    for part in (list(asked.stream_complete("Once"))[-1], asked.complete("Once", stream=True)):
        assert part.text == whole.text
        assert part.raw["usage"]["completion_tokens"] == whole.raw["usage"]["completion_tokens"]


async def test_tool_calls(llm):
    parameters = {"template_text": TEMPLATE, "tools": TOOLS, "tool_choice": "required", "max_tokens": 200,
                  "parallel_tool_calls": False}
    streamed = list(llm.stream_chat(HELLO, **parameters))
    awaited = [part async for part in await llm.astream_chat(HELLO, **parameters)]
    answers = [llm.chat(HELLO, **parameters), await llm.achat(HELLO, **parameters), streamed[-1], awaited[-1]]
    for answer in answers:
        call, = answer.message.additional_kwargs["tool_calls"]
        assert call["function"]["name"] == "look" and call["id"] and call["type"] == "function"
        assert json.loads(call["function"]["arguments"])["where"] in ("up", "down")
    arguments = [part.message.additional_kwargs["tool_calls"][0]["function"]["arguments"] for part in streamed
                 if part.message.additional_kwargs]
    assert sorted(arguments, key=len) == arguments and arguments[0] != arguments[-1]
    said = ChatMessage(role="tool", content="Nothing.", additional_kwargs={"tool_call_id": "1"})
    history = [*HELLO, answers[0].message, said]
    plain = [{"role": "user", "content": "Hello"},
             {"role": "assistant", "content": "", "tool_calls": answers[0].message.additional_kwargs["tool_calls"]},
             {"role": "tool", "content": "Nothing.", "tool_call_id": "1"}]
    prompt = llm.model.tokenize_chat(plain, template_text=TEMPLATE)
    answer = llm.chat(history, template_text=TEMPLATE, max_tokens=5)
    assert answer.raw["usage"]["prompt_tokens"] == len(prompt)
    assert "tool_calls" not in llm.chat(HELLO).message.additional_kwargs


async def test_blocks_that_are_no_text_are_refused(llm):
    image = ImageBlock(url="http://localhost/picture.png")
    messages = [ChatMessage(role="user", blocks=[TextBlock(text="What is this?"), image])]
    for call in (lambda: llm.chat(messages), lambda: list(llm.stream_chat(messages))):
        with pytest.raises(ValueError, match="only blocks of text"):
            call()
    with pytest.raises(ValueError, match="only blocks of text"):
        await llm.achat(messages)
    texts = [ChatMessage(role="user", blocks=[TextBlock(text="What"), TextBlock(text="is 2+2?")])]
    joined = [ChatMessage(role="user", content="What\nis 2+2?")]
    assert llm.chat(texts).message.content == llm.chat(joined).message.content


async def test_one_answer(llm):
    for call in (llm.complete, llm.stream_complete):
        with pytest.raises(ValueError, match="n: a Runnel gives one answer"):
            list(call("Once", n=2))
    with pytest.raises(ValueError, match="n: a Runnel gives one answer"):
        await llm.achat(HELLO, n=2)
    assert llm.complete("Once", n=1).text == llm.complete("Once").text
