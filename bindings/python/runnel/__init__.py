"""Token streams from language models on your own event loop.

    async with runnel.Engine() as engine:
        model = await engine.load_model("model.gguf")
        async for piece in model.stream("Once upon a time", max_tokens=100):
            print(piece.text, end="")

runnel.blocking has the same without an event loop; runnel.openai answers as OpenAI's client does.
"""

from . import blocking, files, openai
from ._engine import Engine, Model, Session, Stream
from ._runnel import (
    BusyError,
    CancelledError,
    ClosedError,
    ContextError,
    DeviceError,
    Error,
    FormatError,
    InvalidError,
    IOError,
    NoMemoryError,
    NotFoundError,
    NumericError,
    Piece,
    StateError,
    TimeoutError,
    UnsupportedError,
    library_version,
)
from ._runnel import (
    ADAPTER_BYTES,
    LABEL_BYTES,
    MAX_ADAPTERS,
    MAX_BREAKER_BYTES,
    MAX_BREAKERS,
    MAX_COALESCE_BYTES,
    MAX_DRAFTS,
    MAX_GRAMMAR_BYTES,
    MAX_STOP_BYTES,
    MAX_STOPS,
    MAX_TOP_LOGPROBS,
    VERSION_MAJOR,
    VERSION_MINOR,
    VERSION_PATCH,
)
from ._shared import (
    Candidates,
    CacheWait,
    Draft,
    EventType,
    Finish,
    Grammar,
    GrammarKind,
    KvType,
    LogLevel,
    PenaltyScope,
    Phase,
    Pooling,
    Recommended,
    Record,
    Rest,
    Result,
    ScoreForm,
    Status,
    TemplateTrait,
    ToolCall,
    TraceKind,
    Training,
    TrainingState,
    WeightOrder,
)

__version__ = library_version

#: What a function given as `choose` returns to put its choice off until Stream.choose.
CHOOSE_LATER = -2
#: ... and to let the library draw from the logits as they are now; None does so, too.
CHOOSE_DRAW = -1

__all__ = [name for name in globals() if not name.startswith("_") and name != "library_version"]
