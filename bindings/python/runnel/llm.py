"""A plugin of the program `llm`: GGUF files as its models, computed in its process.

    llm runnel add tiny model.gguf
    llm -m tiny "Once upon a time" -o max_tokens 100

Loaded by llm through the package's entry point. The models' names stand in runnel.json in llm's folder. Chats, tools,
schemas, embeddings; asynchronous models run on the caller's event loop.
"""

import asyncio
import json
import pathlib
import threading
from typing import Optional

import click
import llm
from pydantic import Field

from . import blocking
from ._shared import Grammar
from .openai import AsyncOpenAI, OpenAI


def _list():
    return llm.user_dir() / "runnel.json"


def _paths():
    return json.loads(_list().read_text()) if _list().exists() else {}


_engine = None
_models = {}
_lock = threading.Lock()


def _load(path):
    """The model of a file, loaded once for every thread and loop. It stays until the process ends."""
    global _engine
    with _lock:
        if path not in _models:
            _engine = _engine or blocking.Engine()
            _models[path] = _engine.load_model(path)
        return _models[path]


# ---- From llm's objects to OpenAI's and back ------------------------------------------------


def _messages(prompt):
    messages = []
    for message in prompt.messages:
        parts = [part.to_dict() for part in message.parts]
        texts = [part["text"] for part in parts if part["type"] == "text"]
        calls = [{"id": part.get("tool_call_id"), "type": "function",
                  "function": {"name": part["name"], "arguments": json.dumps(part["arguments"])}}
                 for part in parts if part["type"] == "tool_call"]
        results = [{"role": "tool", "tool_call_id": part.get("tool_call_id"), "content": part["output"]}
                   for part in parts if part["type"] == "tool_result"]
        if texts or calls:
            content = "".join(texts) or (None if calls else "")
            messages.append({"role": message.role, "content": content, "tool_calls": calls or None})
        messages += results
    return messages or [{"role": "user", "content": ""}]


def _parameters(prompt, stream):
    parameters = {"messages": _messages(prompt), **prompt.options.model_dump(exclude_none=True)}
    if prompt.schema:
        # closed: else a model may invent names for ever
        parameters["grammar"] = Grammar.json_schema(prompt.schema, closed=True, allow_unenforced=True)
    if prompt.tools:
        parameters["tools"] = [{"type": "function", "function": {
            "name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}}
            for tool in prompt.tools]
        parameters["tool_choice"] = "auto"
    if stream:
        parameters.update(stream=True, stream_options={"include_usage": True})
    return parameters


class _Taker:
    """What an answer, whole or in chunks, tells llm's response."""

    def __init__(self, response):
        self._response = response
        self._calls = {}

    def take(self, part):
        """The text of a chunk or an answer."""
        text = ""
        for choice in part.choices:
            said = choice.delta if hasattr(choice, "delta") else choice.message
            text += said.content or ""
            for number, call in enumerate(said.tool_calls or []):
                own = self._calls.setdefault(getattr(call, "index", number), {"arguments": ""})
                own["arguments"] += call.function.arguments
                if call.id:
                    own.update(name=call.function.name, tool_call_id=call.id)
        if part.usage:
            self._response.set_usage(input=part.usage.prompt_tokens, output=part.usage.completion_tokens)
        return text

    def end(self):
        for call in self._calls.values():
            try:
                arguments = json.loads(call.pop("arguments") or "{}")
            except ValueError:
                continue  # cut off by the length
            self._response.add_tool_call(llm.ToolCall(arguments=arguments, **call))


class _Options(llm.Options):
    max_tokens: Optional[int] = Field(description="Tokens of an answer at most", default=None)
    temperature: Optional[float] = Field(description="0: the likeliest token; default 1", default=None, ge=0)
    top_p: Optional[float] = Field(description="Of the likeliest tokens, this share", default=None, ge=0, le=1)
    top_k: Optional[int] = Field(description="The likeliest so many", default=None, ge=0)
    min_p: Optional[float] = Field(description="Tokens at least so likely as a share of the likeliest", default=None)
    seed: Optional[int] = Field(description="The same seed gives the same text", default=None)
    stop: Optional[str] = Field(description="The answer ends before this text", default=None)
    template_text: Optional[str] = Field(description="A Jinja template instead of the model's", default=None)


class _OfFile:
    can_stream = supports_schema = supports_tools = True
    Options = _Options

    def __init__(self, name, path):
        self.model_id = name
        self._path = path


class RunnelModel(_OfFile, llm.Model):
    def execute(self, prompt, stream, response, conversation):
        taker = _Taker(response)
        answer = OpenAI(_load(self._path)).chat.completions.create(**_parameters(prompt, stream))
        for part in answer if stream else [answer]:
            yield taker.take(part)
        taker.end()


class AsyncRunnelModel(_OfFile, llm.AsyncModel):
    async def execute(self, prompt, stream, response, conversation):
        taker = _Taker(response)
        client = AsyncOpenAI(await asyncio.to_thread(_load, self._path))
        answer = await client.chat.completions.create(**_parameters(prompt, stream))
        if stream:
            async with answer:
                async for part in answer:
                    yield taker.take(part)
        else:
            yield taker.take(answer)
        taker.end()


class RunnelEmbeddings(llm.EmbeddingModel):
    def __init__(self, name, path):
        self.model_id = name
        self._path = path

    def embed_batch(self, items, key=None):
        items = list(items)
        answer = OpenAI(_load(self._path)).embeddings.create(input=items) if items else None
        return iter([one.embedding for one in answer.data] if answer else [])


# ---- Hooks ---------------------------------------------------------------------------------


@llm.hookimpl
def register_models(register):
    for name, path in _paths().items():
        register(RunnelModel(name, path), AsyncRunnelModel(name, path))


@llm.hookimpl
def register_embedding_models(register):
    for name, path in _paths().items():
        register(RunnelEmbeddings(name, path))


@llm.hookimpl
def register_commands(cli):
    @cli.group(name="runnel")
    def runnel():
        """GGUF files as models"""

    @runnel.command()
    @click.argument("name")
    @click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path))
    def add(name, path):
        """The file PATH becomes the model NAME"""
        _list().write_text(json.dumps({**_paths(), name: str(path.resolve())}, indent=2))

    @runnel.command()
    @click.argument("name")
    def remove(name):
        """Forgets the model NAME; its file stays"""
        paths = _paths()
        if name not in paths:
            raise click.ClickException(f"there is no model {name}")
        del paths[name]
        _list().write_text(json.dumps(paths, indent=2))
