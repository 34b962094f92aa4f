import types
from collections.abc import Mapping
from typing import Any
from typing_extensions import Self

from ._engine import Model as _Model
from .blocking import Model as _BlockingModel

_Models = _Model | _BlockingModel | Mapping[str, _Model] | Mapping[str, _BlockingModel]

class Object(types.SimpleNamespace):
    annotations: Any
    audio: Any
    function_call: Any
    refusal: Any
    tool_calls: Any
    role: Any
    content: Any
    reasoning_content: Any
    system_fingerprint: Any
    service_tier: Any
    metadata: Any
    usage: Any
    logprobs: Any
    id: Any
    type: Any
    name: Any
    audio_tokens: Any
    reasoning_tokens: Any
    def model_dump(self, *, exclude_none: bool = False, **_: object) -> dict[str, Any]: ...
    def to_dict(self, *, exclude_none: bool = False, **_: object) -> dict[str, Any]: ...
    def model_dump_json(self, *, indent: int | None = None, exclude_none: bool = False, **_: object) -> str: ...
    def to_json(self, *, indent: int | None = None, exclude_none: bool = False, **_: object) -> str: ...

class _Chunks:
    def __init__(self, model: Any, answer: Any, with_usage: bool) -> None: ...

class Stream(_Chunks):
    def __iter__(self) -> Self: ...
    def __next__(self) -> Object: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

class AsyncStream(_Chunks):
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> Object: ...
    async def close(self) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exception: object) -> None: ...

class _Resource:
    def __init__(self, models: _Models) -> None: ...

class _Completions(_Resource):
    # the answer, or with `stream` a Stream
    def create(
        self,
        *,
        stream: bool = False,
        stream_options: Mapping[str, Any] | None = None,
        model: str | None = None,
        **parameters: Any,
    ) -> Any: ...

class _AsyncCompletions(_Resource):
    # the answer, or with `stream` an AsyncStream
    async def create(
        self,
        *,
        stream: bool = False,
        stream_options: Mapping[str, Any] | None = None,
        model: str | None = None,
        **parameters: Any,
    ) -> Any: ...

class _OfChats: ...
class _OfTexts: ...
class ChatCompletions(_OfChats, _Completions): ...
class AsyncChatCompletions(_OfChats, _AsyncCompletions): ...
class Completions(_OfTexts, _Completions): ...
class AsyncCompletions(_OfTexts, _AsyncCompletions): ...

class Embeddings(_Resource):
    def create(
        self,
        *,
        input: Any,
        model: str | None = None,
        dimensions: int | None = None,
        encoding_format: str | None = None,
        **parameters: Any,
    ) -> Object: ...

class AsyncEmbeddings(_Resource):
    async def create(
        self,
        *,
        input: Any,
        model: str | None = None,
        dimensions: int | None = None,
        encoding_format: str | None = None,
        **parameters: Any,
    ) -> Object: ...

class Chat:
    completions: ChatCompletions
    def __init__(self, models: _Models) -> None: ...

class AsyncChat:
    completions: AsyncChatCompletions
    def __init__(self, models: _Models) -> None: ...

class OpenAI:
    chat: Chat
    completions: Completions
    embeddings: Embeddings
    def __init__(self, models: _Models) -> None: ...

class AsyncOpenAI:
    chat: AsyncChat
    completions: AsyncCompletions
    embeddings: AsyncEmbeddings
    def __init__(self, models: _Models) -> None: ...
