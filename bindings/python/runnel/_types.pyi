# Printed by bindings/python/stubs.py: do not edit. For type checkers alone: at run time the module is empty.
#
#     if TYPE_CHECKING:
#         from runnel._types import RequestOptions

import enum
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict
from typing_extensions import TypeAlias

from ._shared import Candidates, Grammar, Record, SessionBase

Flag: TypeAlias = bool | int
Text: TypeAlias = str | bytes
Texts: TypeAlias = str | bytes | Iterable[str | bytes]
Path: TypeAlias = str | os.PathLike[str]
Messages: TypeAlias = str | bytes | Sequence[Mapping[str, Any]]
Json: TypeAlias = str | bytes | Sequence[Any] | Mapping[str, Any]
Choose: TypeAlias = Callable[[Candidates], int | None]
FinishName: TypeAlias = Literal["stop", "length", "cancelled", "none"]
PieceKind: TypeAlias = Literal["token", "progress", "logits", "reasoning", "tool_call", "tool_id",
    "tool_arguments", "tool_end", "embedding"]
KvTypeName: TypeAlias = Literal["f16", "f32", "bf16", "fp8", "q8", "q4", "q3"]
WeightOrderName: TypeAlias = Literal["measured", "file", "tiles"]
LogLevelName: TypeAlias = Literal["none", "error", "warning", "info", "debug"]
GrammarKindName: TypeAlias = Literal["none", "gbnf", "regex", "ebnf", "choices", "json", "json_object",
    "json_schema"]
DraftName: TypeAlias = Literal["none", "ngram", "model"]
CacheWaitName: TypeAlias = Literal["best_effort", "wait", "deadline"]
PoolingName: TypeAlias = Literal["default", "mean", "first", "last"]
ScoreFormName: TypeAlias = Literal["of_model", "logits", "probabilities"]
PenaltyScopeName: TypeAlias = Literal["all", "answer"]

class KvType(enum.IntEnum):
    F16 = 0
    F32 = 1
    BF16 = 2
    FP8 = 3
    Q8 = 4
    Q4 = 5
    Q3 = 6

class WeightOrder(enum.IntEnum):
    MEASURED = 0
    FILE = 1
    TILES = 2

class LogLevel(enum.IntEnum):
    NONE = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    DEBUG = 4

class TraceKind(enum.IntEnum):
    ACTOR = 0
    STEP = 1
    REQUEST = 2

class Finish(enum.IntEnum):
    NONE = 0
    STOP = 1
    LENGTH = 2

class GrammarKind(enum.IntEnum):
    NONE = 0
    GBNF = 1
    REGEX = 2
    EBNF = 3
    CHOICES = 4
    JSON = 5
    JSON_OBJECT = 6
    JSON_SCHEMA = 7

class Recommended(enum.IntFlag):
    TEMPERATURE = 1
    TOP_K = 2
    TOP_P = 4
    MIN_P = 8
    REPETITION_PENALTY = 16
    PENALTY_TOKENS = 32
    XTC_PROBABILITY = 64
    XTC_THRESHOLD = 128
    MIROSTAT = 256
    MIROSTAT_TAU = 512
    MIROSTAT_ETA = 1024

class Draft(enum.IntFlag):
    NONE = 0
    NGRAM = 1
    MODEL = 2

class CacheWait(enum.IntEnum):
    BEST_EFFORT = 0
    WAIT = 1
    DEADLINE = 2

class Pooling(enum.IntEnum):
    DEFAULT = 0
    MEAN = 1
    FIRST = 2
    LAST = 3

class ScoreForm(enum.IntEnum):
    OF_MODEL = 0
    LOGITS = 1
    PROBABILITIES = 2

class PenaltyScope(enum.IntEnum):
    ALL = 0
    ANSWER = 1

class TemplateTrait(enum.IntFlag):
    SYSTEM = 1
    TOOLS = 2
    REASONING = 4
    THINKING = 8
    PARTS = 16

class TrainingState(enum.IntEnum):
    RUNNING = 0
    DONE = 1
    CANCELLED = 2
    FAILED = 3

class EventType(enum.IntEnum):
    TOKEN = 0
    PROGRESS = 1
    LOGITS = 2
    REASONING = 3
    TOOL_CALL = 4
    TOOL_ID = 5
    TOOL_ARGUMENTS = 6
    TOOL_END = 7
    EMBEDDING = 8
    DONE = 9
    CANCELLED = 10
    FAILED = 11

class Phase(enum.IntEnum):
    QUEUED = 0
    PREFILL = 1
    DECODE = 2
    FILE = 3
    ENDED = 4

class Rest(enum.IntEnum):
    NONE = 0
    WRONG = 1
    DEAR = 2
    SLOW = 3
    MEMORY = 4
    BROKEN = 5

class Status(enum.IntEnum):
    OK = 0
    INVALID = -1
    NO_MEMORY = -2
    BUSY = -3
    NOT_FOUND = -4
    IO = -5
    FORMAT = -6
    UNSUPPORTED = -7
    CONTEXT = -8
    CANCELLED = -9
    TIMEOUT = -10
    CLOSED = -11
    NUMERIC = -12
    DEVICE = -13
    STATE = -14

ArchitectureRow = TypedDict("ArchitectureRow", {
    "name": Text | None,
    "like": Text | None,
    "with": Text | None,
    "without": Text | None,
    "activation": Text | None,
    "ffn_norm": Text | None,
    "unused": Texts | None,
    "window_period": int | None,
}, total=False)

class EngineOptions(TypedDict, total=False):
    scheduler_threads: int | None
    compute_threads: int | None
    max_streams: int | None
    max_sessions: int | None
    log_level: LogLevel | LogLevelName | int | None
    max_queued_tokens: int | None
    max_queued_bytes: int | None
    device_library: Path | None
    compute_nice: int | None
    gather_us: int | None
    architectures: Iterable[ArchitectureRow] | None

class ModelOptions(TypedDict, total=False):
    context_tokens: int | None
    batch_tokens: int | None
    kv_bytes: int | None
    kv_type: KvType | KvTypeName | int | None
    chunk_mean: int | None
    device: Text | None
    vocab_only: Flag | None
    no_prefix_cache: Flag | None
    max_slowdown: float | None
    draft_path: Path | None
    draft_kv_bytes: int | None
    draft_threads: int | None
    draft_measure_ms: int | None
    cache_warm_bytes: int | None
    cache_dir: Path | None
    cache_cold_bytes: int | None
    cache_codec: Text | None
    cache_shared: Text | None
    cache_shared_ca: Path | None
    cache_shared_cert: Path | None
    cache_shared_key: Path | None
    weight_order: WeightOrder | WeightOrderName | int | None
    bound_windows: int | None
    weights_dir: Path | None
    device_layers: int | None
    device_expert_bytes: int | None
    adapters: Mapping[str, Path | tuple[Path, float]] | None

class SamplingOptions(TypedDict, total=False):
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    penalty_tokens: int | None
    seed: int | None
    biases: Mapping[int, float] | None

class SamplersOptions(TypedDict, total=False):
    order: Text | None
    dry_breakers: Texts | None
    min_tokens: int | None
    penalty_scope: PenaltyScope | PenaltyScopeName | int | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_tokens: int | None
    top_n_sigma: float | None
    typical_p: float | None
    xtc_probability: float | None
    xtc_threshold: float | None
    temperature_range: float | None
    temperature_exponent: float | None
    mirostat: int | None
    mirostat_tau: float | None
    mirostat_eta: float | None
    adaptive_target: float | None
    adaptive_decay: float | None
    logprobs_after: int | None
    choose: Choose | None

class ChatOptions(TypedDict, total=False):
    tools: Json | None
    variables: Json | None
    template_text: Text | None
    template_name: Text | None
    now_s: int | None
    no_generation_prompt: Flag | None
    single_call: Flag | None
    continue_final: Flag | None
    tool_choice: Text | None

class TurnOptions(SamplingOptions, SamplersOptions, ChatOptions, total=False):
    tokens: Iterable[int] | None
    max_tokens: int | None
    stops: Texts | None
    stop_tokens: Iterable[int] | None
    label: Text | None
    cache_salt: int | None
    tenant: int | None
    priority: int | None
    deadline_ms: int | None
    n_top: int | None
    coalesce_bytes: int | None
    draft: Draft | DraftName | int | None
    draft_max: int | None
    cache_wait: CacheWait | CacheWaitName | int | None
    cache_wait_ms: int | None
    parse_special: Flag | None
    ignore_eos: Flag | None
    want_logprobs: Flag | None
    want_progress: Flag | None
    want_logits: Flag | None
    raw_answer: Flag | None
    pin_prefix: Flag | None
    draft_share: Flag | None
    draft_chain: Flag | None
    keep_stop: Flag | None
    context_keep: int | None
    adapter: Text | None
    messages: Messages | None
    messages_json: Messages | None
    grammar: Grammar | None

class RequestOptions(TurnOptions, total=False):
    session: SessionBase | int | None

class EmbedOptions(TypedDict, total=False):
    tokens: Iterable[int] | None
    label: Text | None
    cache_salt: int | None
    tenant: int | None
    priority: int | None
    deadline_ms: int | None
    pooling: Pooling | PoolingName | int | None
    dimensions: int | None
    parse_special: Flag | None
    want_progress: Flag | None
    raw: Flag | None
    adapter: Text | None

class ScoreOptions(TypedDict, total=False):
    tokens: Iterable[int] | None
    label: Text | None
    cache_salt: int | None
    tenant: int | None
    priority: int | None
    deadline_ms: int | None
    form: ScoreForm | ScoreFormName | int | None
    parse_special: Flag | None
    want_progress: Flag | None
    adapter: Text | None

class InfillOptions(TypedDict, total=False):
    repository: Text | None
    name: Text | None
    suffix_first: Flag | None

class SessionFileOptions(TypedDict, total=False):
    note: Text | None
    cache_salt: int | None
    label: Text | None

class TrainingOptions(TypedDict, total=False):
    steps: int | None
    text_tokens: int | None
    texts: int | None
    unroll: int | None
    layers: Iterable[int] | None
    rate: float | None
    seed: int | None
    state: Path | None
    resume: Flag | None

class PurgeOptions(TypedDict, total=False):
    fingerprint: Text | None
    salt: int | None
    keep_bytes: int | None
    by_salt: Flag | None

class GrammarFlags(TypedDict, total=False):
    free_white: Flag | None
    any_order: Flag | None
    closed: Flag | None
    one_of_as_any_of: Flag | None
    allow_unenforced: Flag | None
    free_reasoning: Flag | None

class GrammarOptions(GrammarFlags, total=False):
    text: Text | None
    choices: Texts | None

class RecommendedSampling(TypedDict, total=False):
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    penalty_tokens: int
    xtc_probability: float
    xtc_threshold: float
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float

class Histogram(Record):
    edges: memoryview[float]
    counts: memoryview[int]
    count: int
    sum: float

class StreamInfo(Record):
    stream: int
    model: str
    phase: str
    paused: bool
    tokens: int
    label: str

class ExpertUse(Record):
    model: str
    n_blocks: int
    n_experts: int
    hits: int
    misses: int
    fetched_bytes: int
    counts: memoryview[int]

class Span(Record):
    kind: int
    track: int
    name: str
    model: str
    messages: str
    begin_ns: int
    end_ns: int
    stream: int
    rows: int
    sequences: int
    prompt_tokens: int
    tokens: int
    label: str

class Metadata(Record):
    key: str
    type: str
    count: int

class EngineStats(Record):
    streams: int
    sessions: int
    models: int
    messages: int
    blocks_used: int
    blocks_total: int
    heap_bytes: int
    steps: int
    prompt_tokens: int
    tokens: int
    prefix_hit_tokens: int
    prefix_missed_tokens: int
    prefix_ceiling: float
    evicted_blocks: int
    preemptions: int
    queued_tokens: int
    queued_bytes: int

class Metrics(Record):
    requests: int
    stopped: int
    length: int
    cancelled: int
    failed: int
    refused: int
    tokens: int
    prompt_tokens: int
    steps: int
    prefix_queries: int
    prefix_hits: int
    evicted_blocks: int
    preemptions: int
    trace_dropped: int
    drafted: int
    accepted: int
    branched: int
    branched_right: int
    drafts: int
    drafted_at: memoryview[int]
    accepted_at: memoryview[int]
    draft_passes: int
    draft_us: int
    draft_beside_us: int
    draft_branches: int
    draft_branches_right: int
    warm_hits: int
    cold_hits: int
    shared_hits: int
    warm_bytes_in: int
    warm_bytes_out: int
    cold_bytes_in: int
    cold_bytes_out: int
    shared_bytes_in: int
    shared_bytes_out: int
    cache_dropped: int
    cache_unpaid: int
    cache_copy_us: int
    cache_skipped: int
    cache_errors: int
    cache_adopted: int
    warm_bytes: int
    cold_bytes: int
    shared_bytes: int
    cold_writes: int
    running: int
    waiting: int
    queued_tokens: int
    sessions: int
    blocks_used: int
    blocks_total: int
    first_token_s: Histogram
    inter_token_s: Histogram
    per_token_s: Histogram
    queue_s: Histogram
    prefill_s: Histogram
    decode_s: Histogram
    inference_s: Histogram
    request_s: Histogram
    request_prompt_tokens: Histogram
    request_computed_tokens: Histogram
    request_tokens: Histogram
    step_s: Histogram
    step_rows: Histogram
    step_sequences: Histogram
    context_shifts: int
    forced: int
    cut: int
    compared: int

class Machine(Record):
    compute_threads: int
    memory_nodes: int
    level: str
    cpu: str
    memory_bytes: int
    read_bytes_per_s: float
    read_median_bytes_per_s: float
    integer_ops_per_s: float
    float_ops_per_s: float

class DeviceInfo(Record):
    n_devices: int
    index: int
    memory_bytes: int
    free_bytes: int
    name: str
    capability: str
    kernels: str
    driver: str
    why: str

class ModelInfo(Record):
    vocab_tokens: int
    context_tokens: int
    trained_tokens: int
    embedding: int
    layers: int
    bos: int
    eos: int
    add_bos: int
    parameters: int
    weight_bytes: int
    kv_bytes: int
    kv_bytes_per_token: int
    block_tokens: int
    chunk_mean: int
    kv_bytes_longest: int
    draft_parameters: int
    draft_kv_bytes: int
    tiled_bytes: int
    mapped_bytes: int
    device_layers: int
    device_experts: int
    device_expert_bytes: int
    state_bytes: int
    draft_weight_bytes: int

class Adapter(Record):
    name: str
    path: str
    scale: float

class ScoresInfo(Record):
    n_scores: int
    n_labels: int
    of_tokens: int
    has_template: int
    labels: list[str]

class TemplateInfo(Record):
    name: str
    format: str
    bytes: int
    knows: TemplateTrait

class Usage(Record):
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    warm_tokens: int
    cold_tokens: int
    shared_tokens: int
    rested_passes: int
    rest: int
    shifts: int
    shifted_tokens: int

class Timings(Record):
    admitted_us: int
    first_token_us: int
    end_us: int

class FileInfo(Record):
    version: int
    parts: int
    alignment: int
    n_metadata: int
    n_tensors: int
    file_bytes: int
    parameters: int
    weight_bytes: int

class Tensor(Record):
    name: str
    type: str
    part: int
    dims: memoryview[int]
    bytes: int
    offset: int

class CacheTotals(Record):
    fingerprints: int
    segments: int
    records: int
    bytes: int
    damaged: int
    foreign: int

class CacheEntry(Record):
    fingerprint: str
    model: str
    block_tokens: int
    block_bytes: int
    segments: int
    records: int
    salts: int
    prefixes: int
    longest_tokens: int
    file_bytes: int
    record_bytes: int
    damaged: int

class CacheRecord(Record):
    id: int
    parent: int
    salt: int
    tokens: memoryview[int]
    depth: int
    bytes: int

class CacheDamage(Record):
    fingerprint: str
    file: str
    offset: int
    bytes: int
    what: str

class TrainingProgress(Record):
    state: TrainingState
    step: int
    steps: int
    loss: float
    accepted: float
