"""An LLM of LlamaIndex's.

    llm = Runnel(model=model, max_tokens=100)
    print(await llm.acomplete("Once upon a time"))
"""

import copy
from typing import Any, Optional

from llama_index.core.bridge.pydantic import Field
from llama_index.core.llms import (
    LLM,
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
    MessageRole,
    TextBlock,
)
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback

from ._runnel import InvalidError
from .openai import AsyncOpenAI, Object, OpenAI


def _chat_response(content, calls, raw, delta=None):
    own = {"tool_calls": calls} if calls else {}
    message = ChatMessage(role=MessageRole.ASSISTANT, content=content, additional_kwargs=own)
    return ChatResponse(message=message, raw=raw.model_dump(), delta=delta)


class _Chats:
    """Chunks of a chat as what LlamaIndex streams: the text and the tool calls so far, and what text is new."""

    def __init__(self):
        self._text = ""
        self._calls = {}

    def __call__(self, chunk):
        said = chunk.choices[0].delta if chunk.choices else Object()  # the usage alone
        for call in said.tool_calls or []:
            if call.index not in self._calls:
                self._calls[call.index] = {"id": call.id, "type": call.type, "function": {
                    "name": call.function.name, "arguments": ""}}
            self._calls[call.index]["function"]["arguments"] += call.function.arguments
        delta = said.content or ""
        self._text += delta
        return _chat_response(self._text, copy.deepcopy(list(self._calls.values())), chunk, delta)


class _Texts:
    def __init__(self):
        self._text = ""

    def __call__(self, chunk):
        delta = chunk.choices[0].text if chunk.choices else ""  # the usage alone
        self._text += delta
        return CompletionResponse(text=self._text, delta=delta, raw=chunk.model_dump())


def _whole_text(answer):
    return CompletionResponse(text=answer.choices[0].text, raw=answer.model_dump())


def _whole_chat(answer):
    message = answer.choices[0].message
    return _chat_response(message.content, [call.model_dump() for call in message.tool_calls or []], answer)


def _message(message):
    """As OpenAI has it. Tool calls, and the id of the one that is answered, are in additional_kwargs."""
    for block in message.blocks:
        if not isinstance(block, TextBlock):
            raise InvalidError(f"messages: only blocks of text are supported, not {type(block).__name__}")
    own = {name: message.additional_kwargs[name] for name in ("tool_calls", "tool_call_id", "name")
           if message.additional_kwargs.get(name)}
    return {"role": message.role.value, "content": message.content or "", **own}


def _each(stream, make):
    with stream:
        for chunk in stream:
            yield make(chunk)


async def _async_each(stream, make):
    async with stream:
        async for chunk in stream:
            yield make(chunk)


class Runnel(LLM):
    """A model of runnel's or runnel.blocking's; what is awaited runs on the caller's event loop. Tool calls of an
    answer are in its message's additional_kwargs["tool_calls"], as OpenAI has them."""

    model: Any = Field(exclude=True, description="The model")
    temperature: Optional[float] = Field(default=None, description="0: the likeliest token; default 1")
    max_tokens: int = Field(default=256, description="Tokens of an answer at most")
    additional_kwargs: dict[str, Any] = Field(default_factory=dict, description="Further parameters of each request")

    @classmethod
    def class_name(cls):
        return "Runnel"

    @property
    def metadata(self):
        return LLMMetadata(context_window=self.model.info().context_tokens, num_output=self.max_tokens,
                           is_chat_model=True, model_name="runnel")

    def _parameters(self, more):
        own = {"temperature": self.temperature, "max_tokens": self.max_tokens, **self.additional_kwargs, **more}
        if own.pop("n", None) not in (None, 1):
            raise InvalidError("n: a Runnel gives one answer")
        own.pop("stream", None)  # the method that is called says it
        return own

    def _chat(self, messages, more):
        return {**self._parameters(more), "messages": [_message(message) for message in messages]}

    @llm_chat_callback()
    def chat(self, messages, **kwargs):
        return _whole_chat(OpenAI(self.model).chat.completions.create(**self._chat(messages, kwargs)))

    @llm_chat_callback()
    async def achat(self, messages, **kwargs):
        return _whole_chat(await AsyncOpenAI(self.model).chat.completions.create(**self._chat(messages, kwargs)))

    @llm_chat_callback()
    def stream_chat(self, messages, **kwargs):
        stream = OpenAI(self.model).chat.completions.create(**self._chat(messages, kwargs), stream=True)
        return _each(stream, _Chats())

    @llm_chat_callback()
    async def astream_chat(self, messages, **kwargs):
        stream = await AsyncOpenAI(self.model).chat.completions.create(**self._chat(messages, kwargs), stream=True)
        return _async_each(stream, _Chats())

    @llm_completion_callback()
    def complete(self, prompt, formatted=False, **kwargs):
        return _whole_text(OpenAI(self.model).completions.create(prompt=prompt, **self._parameters(kwargs)))

    @llm_completion_callback()
    async def acomplete(self, prompt, formatted=False, **kwargs):
        create = AsyncOpenAI(self.model).completions.create
        return _whole_text(await create(prompt=prompt, **self._parameters(kwargs)))

    @llm_completion_callback()
    def stream_complete(self, prompt, formatted=False, **kwargs):
        stream = OpenAI(self.model).completions.create(prompt=prompt, **self._parameters(kwargs), stream=True)
        return _each(stream, _Texts())

    @llm_completion_callback()
    async def astream_complete(self, prompt, formatted=False, **kwargs):
        create = AsyncOpenAI(self.model).completions.create
        return _async_each(await create(prompt=prompt, **self._parameters(kwargs), stream=True), _Texts())
