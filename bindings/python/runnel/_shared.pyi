# What of this module is public.

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any
from typing_extensions import Self, Unpack

from ._types import (
    CacheWait as CacheWait,
    ChatOptions,
    Draft as Draft,
    EngineStats,
    EventType as EventType,
    ExpertUse,
    Finish as Finish,
    FinishName,
    GrammarFlags,
    GrammarKind as GrammarKind,
    GrammarKindName,
    GrammarOptions,
    InfillOptions,
    KvType as KvType,
    LogLevel as LogLevel,
    Messages,
    Metrics,
    ModelInfo,
    PenaltyScope as PenaltyScope,
    Phase as Phase,
    Pooling as Pooling,
    Recommended as Recommended,
    RecommendedSampling,
    RequestOptions,
    Rest as Rest,
    ScoreForm as ScoreForm,
    ScoresInfo,
    Status as Status,
    StreamInfo,
    TemplateInfo,
    TemplateTrait as TemplateTrait,
    Text,
    Timings,
    TraceKind as TraceKind,
    TrainingProgress,
    TrainingState as TrainingState,
    Usage,
    WeightOrder as WeightOrder,
)

class SessionBase:
    def __init__(self, model: ModelBase, id: int) -> None: ...
    def fork(self) -> Self: ...
    def close(self) -> None: ...
    @property
    def id(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

class Grammar(dict[str, Any]):
    def __init__(self, kind: GrammarKind | GrammarKindName | int, **options: Unpack[GrammarOptions]) -> None: ...
    @classmethod
    def json(cls, **options: Unpack[GrammarFlags]) -> Self: ...
    @classmethod
    def json_object(cls, **options: Unpack[GrammarFlags]) -> Self: ...
    @classmethod
    def json_schema(cls, schema: Text | Mapping[str, Any] | bool, **options: Unpack[GrammarFlags]) -> Self: ...
    @classmethod
    def regex(cls, text: Text, **options: Unpack[GrammarFlags]) -> Self: ...
    @classmethod
    def gbnf(cls, text: Text, **options: Unpack[GrammarFlags]) -> Self: ...
    @classmethod
    def ebnf(cls, text: Text, **options: Unpack[GrammarFlags]) -> Self: ...
    @classmethod
    def choices(cls, choices: Iterable[Text], **options: Unpack[GrammarFlags]) -> Self: ...

# Without its base, types.SimpleNamespace, which has every name: a name that is misspelt is an error.
class Record:
    def __init__(self, **members: Any) -> None: ...

class Candidates(Record):
    position: int
    sequence: memoryview[int]
    tokens: memoryview[int]
    logits: memoryview[float]

class ToolCall(Record):
    name: str
    id: str | None
    arguments: str
    complete: bool

class Result:
    text: str
    reasoning: str
    tokens: memoryview[int]
    logprobs: memoryview[float]
    top: list[tuple[tuple[int, float], ...]]
    tool_calls: list[ToolCall]
    finish: FinishName
    stop: int | None
    stop_token: int | None
    usage: Usage
    timings: Timings
    logits: list[memoryview[float]]
    embedding: memoryview[float] | None
    def __init__(self, parts: Mapping[str, Any]) -> None: ...
    def __str__(self) -> str: ...
    def __repr__(self) -> str: ...

class EngineBase:
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def stats(self) -> EngineStats: ...
    def metrics(self) -> Metrics: ...
    def prometheus(self) -> str: ...
    def streams(self) -> list[StreamInfo]: ...
    def expert_use(self, index: int) -> ExpertUse: ...

class ModelBase:
    def __init__(self, engine: EngineBase, core: Any) -> None: ...
    def info(self) -> ModelInfo: ...
    def close(self) -> None: ...
    def tokenize(self, text: Text, *, bos: bool = False, special: bool = False) -> memoryview[int]: ...
    def detokenize(self, tokens: Iterable[int], *, special: bool = False) -> bytes: ...
    def apply_template(self, messages: Messages, **options: Unpack[ChatOptions]) -> str: ...
    def tokenize_chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> memoryview[int]: ...
    def tokenize_infill(
        self,
        prefix: Text,
        suffix: Text,
        *,
        files: Iterable[tuple[Text | None, Text] | Sequence[Text]] = (),
        **options: Unpack[InfillOptions],
    ) -> memoryview[int]: ...
    def scores(self) -> ScoresInfo: ...
    def templates(self) -> list[TemplateInfo]: ...
    def recommended_sampling(self) -> RecommendedSampling: ...
    def check_grammar(self, **options: Unpack[RequestOptions]) -> None: ...

class Training:
    def __init__(self, core: Any, hosts: Any) -> None: ...
    def __iter__(self) -> Iterator[TrainingProgress]: ...
    def __aiter__(self) -> AsyncIterator[TrainingProgress]: ...
    def cancel(self) -> None: ...
