from typing import Final

from . import blocking as blocking, files as files, openai as openai
from ._engine import Engine as Engine, Model as Model, Session as Session, Stream as Stream
from ._runnel import (
    LABEL_BYTES as LABEL_BYTES,
    MAX_BREAKER_BYTES as MAX_BREAKER_BYTES,
    MAX_BREAKERS as MAX_BREAKERS,
    MAX_COALESCE_BYTES as MAX_COALESCE_BYTES,
    MAX_DRAFTS as MAX_DRAFTS,
    MAX_GRAMMAR_BYTES as MAX_GRAMMAR_BYTES,
    MAX_STOP_BYTES as MAX_STOP_BYTES,
    MAX_STOPS as MAX_STOPS,
    MAX_TOP_LOGPROBS as MAX_TOP_LOGPROBS,
    VERSION_MAJOR as VERSION_MAJOR,
    VERSION_MINOR as VERSION_MINOR,
    VERSION_PATCH as VERSION_PATCH,
    BusyError as BusyError,
    CancelledError as CancelledError,
    ClosedError as ClosedError,
    ContextError as ContextError,
    DeviceError as DeviceError,
    Error as Error,
    FormatError as FormatError,
    InvalidError as InvalidError,
    IOError as IOError,
    NoMemoryError as NoMemoryError,
    NotFoundError as NotFoundError,
    NumericError as NumericError,
    Piece as Piece,
    StateError as StateError,
    TimeoutError as TimeoutError,
    UnsupportedError as UnsupportedError,
)
from ._shared import (
    CacheWait as CacheWait,
    Candidates as Candidates,
    Draft as Draft,
    EventType as EventType,
    Finish as Finish,
    Grammar as Grammar,
    GrammarKind as GrammarKind,
    KvType as KvType,
    LogLevel as LogLevel,
    PenaltyScope as PenaltyScope,
    Phase as Phase,
    Pooling as Pooling,
    Recommended as Recommended,
    Record as Record,
    Rest as Rest,
    Result as Result,
    ScoreForm as ScoreForm,
    Status as Status,
    TemplateTrait as TemplateTrait,
    ToolCall as ToolCall,
    TraceKind as TraceKind,
    Training as Training,
    TrainingState as TrainingState,
    WeightOrder as WeightOrder,
)

__version__: str
CHOOSE_LATER: Final[int]
CHOOSE_DRAW: Final[int]
