"""A LangChain chat model.

    chat = ChatRunnel(model=model, max_tokens=100)
    print((await chat.ainvoke("Hello")).content)
"""

import json
from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, convert_to_openai_messages
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.output_parsers.openai_tools import make_invalid_tool_call, parse_tool_call
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from pydantic import BaseModel, Field

from ._runnel import InvalidError
from ._shared import Grammar
from .openai import AsyncOpenAI, OpenAI

_STREAM = {"stream_options": {"include_usage": True}}


def _usage(usage):
    return {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens,
            "total_tokens": usage.total_tokens,
            "input_token_details": {"cache_read": usage.prompt_tokens_details.cached_tokens}}


def _reasoning(said):
    return {"reasoning_content": said.reasoning_content} if said.reasoning_content else {}


def _metadata(choice, model):
    """As langchain-openai has it: of a whole answer, or of what a chunk says of it."""
    found = {"finish_reason": choice.finish_reason, "model_name": model} if choice.finish_reason else {}
    return {**found, "logprobs": choice.logprobs.model_dump()} if choice.logprobs else found


def _result(answer):
    choice = answer.choices[0]
    calls, invalid = [], []
    for call in choice.message.model_dump().get("tool_calls", []):
        try:
            calls.append(parse_tool_call(call))
        except OutputParserException as error:  # cut off by the length
            invalid.append(make_invalid_tool_call(call, str(error)))
    message = AIMessage(content=choice.message.content or "", tool_calls=calls, invalid_tool_calls=invalid,
                        additional_kwargs=_reasoning(choice.message), usage_metadata=_usage(answer.usage),
                        response_metadata=_metadata(choice, answer.model))
    return ChatResult(generations=[ChatGeneration(message=message)])


def _chunk(chunk):
    if not chunk.choices:
        return ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=_usage(chunk.usage)))
    choice = chunk.choices[0]
    calls = [tool_call_chunk(name=call.function.name, args=call.function.arguments, id=call.id, index=call.index)
             for call in choice.delta.tool_calls or []]
    return ChatGenerationChunk(message=AIMessageChunk(
        content=choice.delta.content or "", tool_call_chunks=calls, additional_kwargs=_reasoning(choice.delta),
        response_metadata=_metadata(choice, chunk.model)))


class _Whole:
    """Refuses an answer that was cut off: langchain's own parsers repair it, and nobody sees that a part is missing."""

    def parse_result(self, result, *, partial=False):
        message = getattr(result[0], "message", None)
        ended = message is not None and "finish_reason" in message.response_metadata
        if ended or not partial:
            try:
                json.loads(result[0].text)
            except ValueError as error:
                said = f"the answer is no whole JSON text: {error}"
                raise OutputParserException(said, llm_output=result[0].text) from error
        return super().parse_result(result, partial=partial)


class _WholeJson(_Whole, JsonOutputParser):
    pass


class _WholePydantic(_Whole, PydanticOutputParser):
    pass


def _with_raw(parser):
    def parse(message):
        try:
            return {"raw": message, "parsed": parser.invoke(message), "parsing_error": None}
        except OutputParserException as error:  # cut off by the length
            return {"raw": message, "parsed": None, "parsing_error": error}

    return RunnableLambda(parse)


class ChatRunnel(BaseChatModel):
    """A model of runnel's or runnel.blocking's. Streams, tools, structured output, usage; what is awaited runs on the
    caller's event loop."""

    model: Any = Field(exclude=True)
    temperature: Optional[float] = None
    top_p: Optional[float] = None
    max_tokens: Optional[int] = None
    seed: Optional[int] = None
    stop: Optional[list[str]] = None
    model_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further parameters of each request: those of runnel.openai."""

    @property
    def _llm_type(self):
        return "runnel"

    @property
    def _identifying_params(self):
        return self.model_dump(include={"temperature", "top_p", "max_tokens", "seed", "stop", "model_kwargs"},
                               exclude_none=True)

    def _parameters(self, messages, stop, more):
        own = self._identifying_params
        further = own.pop("model_kwargs", {})
        own = {**own, **further, **more, "messages": convert_to_openai_messages(messages)}
        if own.pop("n", None) not in (None, 1):
            raise InvalidError("n: a ChatRunnel gives one answer; batch() gives several")
        own.pop("stream", None)  # which of the two it is, stream() or invoke(), has been decided
        return {**own, "stop": stop} if stop else own

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        create = OpenAI(self.model).chat.completions.create
        return _result(create(**self._parameters(messages, stop, kwargs)))

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        create = AsyncOpenAI(self.model).chat.completions.create
        return _result(await create(**self._parameters(messages, stop, kwargs)))

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        create = OpenAI(self.model).chat.completions.create
        with create(**{**_STREAM, **self._parameters(messages, stop, kwargs)}, stream=True) as stream:
            for part in stream:
                chunk = _chunk(part)
                if run_manager:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        create = AsyncOpenAI(self.model).chat.completions.create
        async with await create(**{**_STREAM, **self._parameters(messages, stop, kwargs)}, stream=True) as stream:
            async for part in stream:
                chunk = _chunk(part)
                if run_manager:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    def bind_tools(
        self,
        tools: Sequence[Union[dict[str, Any], type, Callable[..., Any], BaseTool]],
        *,
        tool_choice: Union[str, bool, dict[str, Any], None] = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """tool_choice: "auto" (default), "none", "any" or a tool's name. Calls fit the schemas of their tools."""
        if tool_choice in (True, "any"):
            tool_choice = "required"
        elif tool_choice not in (None, "auto", "none", "required") and not isinstance(tool_choice, dict):
            tool_choice = {"type": "function", "function": {"name": tool_choice}}
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], tool_choice=tool_choice or "auto",
                         **kwargs)

    def with_structured_output(
        self, schema: Union[dict[str, Any], type], *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Union[dict[str, Any], BaseModel]]:
        """Answers are JSON that fits the schema: no other text can be drawn. One that was cut off by its length raises
        OutputParserException. include_raw: a dict of the message as `raw`, what it says as `parsed`, and, where it was
        cut off, `parsing_error`."""
        # closed: else a model may invent names for ever
        grammar = Grammar.json_schema(convert_to_json_schema(schema), closed=True, allow_unenforced=True)
        is_class = isinstance(schema, type) and issubclass(schema, BaseModel)
        parser = _WholePydantic(pydantic_object=schema) if is_class else _WholeJson()
        return self.bind(grammar=grammar) | (_with_raw(parser) if include_raw else parser)
