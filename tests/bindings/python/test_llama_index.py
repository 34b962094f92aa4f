"""The LLM of LlamaIndex's, with the real llama-index-core."""

import pytest
from llama_index.core.llms import ChatMessage
from runnel.llama_index import Runnel

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
