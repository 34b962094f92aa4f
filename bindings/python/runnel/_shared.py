"""What the asynchronous and the blocking classes share: options, results, constants."""

import array
import collections.abc
import copyreg
import enum
import json
import logging
import os
import threading
import types

from . import _runnel

# ---- Constants -----------------------------------------------------------------------------


def _enumeration(name, kind=enum.IntEnum):
    return kind(name, _runnel.enums[name], module="runnel")


KvType = _enumeration("KvType")
WeightOrder = _enumeration("WeightOrder")
LogLevel = _enumeration("LogLevel")
TraceKind = _enumeration("TraceKind")
Finish = _enumeration("Finish")
GrammarKind = _enumeration("GrammarKind")
Recommended = _enumeration("Recommended", enum.IntFlag)
Draft = _enumeration("Draft", enum.IntFlag)
CacheWait = _enumeration("CacheWait")
Pooling = _enumeration("Pooling")
ScoreForm = _enumeration("ScoreForm")
PenaltyScope = _enumeration("PenaltyScope")
TemplateTrait = _enumeration("TemplateTrait", enum.IntFlag)
TrainingState = _enumeration("TrainingState")
EventType = _enumeration("EventType")
Phase = _enumeration("Phase")
Rest = _enumeration("Rest")
Status = _enumeration("Status")

TOKENIZE_BOS, TOKENIZE_SPECIAL = 1, 2

#: options whose values are constants: a name in lower case stands for one, too
_NAMED = {
    "kv_type": KvType,
    "weight_order": WeightOrder,
    "log_level": LogLevel,
    "cache_wait": CacheWait,
    "pooling": Pooling,
    "form": ScoreForm,
    "penalty_scope": PenaltyScope,
    "draft": Draft,
    "kind": GrammarKind,
}
#: options that are JSON to the library
_JSON = {"messages_json", "tools", "variables"}
#: options that are paths
_PATHS = {"draft_path", "device_library", "cache_dir", "weights_dir", "state", "path", "cache_shared_ca",
          "cache_shared_cert", "cache_shared_key"}


def _adapter(name, value):
    """(name, path, scale) of a path, or of a pair of path and scale."""
    path, scale = value if isinstance(value, (tuple, list)) and len(value) == 2 else (value, 1)
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"adapters: a path or a pair of path and scale is wanted for {name!r}, not {value!r}")
    return name, os.fsencode(path), scale


def _adapters(adapters):
    if not isinstance(adapters, collections.abc.Mapping):
        raise TypeError(f"adapters: a mapping of names to paths is wanted, not {type(adapters)!r}")
    return [_adapter(name, value) for name, value in adapters.items()]


def plain_options(options):
    """Options as the extension takes them: constants by number, JSON as text, paths as bytes."""
    plain = {}
    for name, value in options.items():
        if isinstance(value, str) and name in _NAMED:
            try:
                value = _NAMED[name][value.upper()]
            except KeyError:
                known = ", ".join(member.lower() for member in _NAMED[name].__members__)
                raise _runnel.InvalidError(f"{name}: {value!r} is none of {known}") from None
        elif name in _JSON and value is not None and not isinstance(value, (str, bytes)):
            value = json.dumps(value)
        elif name in _PATHS and value is not None:
            value = os.fsencode(value)
        elif name == "adapters" and value is not None:
            value = _adapters(value)
        plain[name] = value
    return plain


def request_options(prompt, options, model):
    """Options of a request to the model; a list of messages becomes their JSON, a session its id."""
    options = dict(options)
    session = options.get("session")
    if isinstance(session, SessionBase):
        if session._model._core is not model._core:
            raise _runnel.InvalidError("session: it belongs to another model")
        options["session"] = session._open_id()
    if prompt is not None:
        options["prompt"] = prompt
    if options.get("messages") is not None:
        options["messages_json"] = options.pop("messages")
    if options.get("choose") is not None:
        function = options["choose"]
        if not callable(function):
            raise TypeError(f"choose: a function is wanted, not {type(function)!r}")
        options["choose"] = lambda candidates: function(Candidates(**candidates))
    return plain_options(options)


def seconds(timeout):
    """A timeout for the extension, where -1 is none."""
    if timeout is None:
        return -1
    if not timeout >= 0:
        raise ValueError(f"timeout: seconds from 0 on are wanted, not {timeout!r}")
    return timeout


class Unique:
    """What stands for one thing of the library, which goes with it: a copy would take it away from the first."""

    __slots__ = ()

    def __reduce_ex__(self, protocol):
        raise TypeError(f"cannot copy or pickle {type(self).__module__}.{type(self).__qualname__}")


class SessionBase(Unique):
    """A conversation of a model. Closing it, or the last reference that goes, frees it. fork() makes a copy."""

    __slots__ = ("_model", "_id", "__weakref__")

    def __init__(self, model, id):
        self._model = model
        self._id = id

    def fork(self):
        """A copy of what the session is once the turns submitted before have ended."""
        return type(self)(self._model, self._model._core.session_fork(self._open_id()))

    def _open_id(self):
        if not self._id:
            raise _runnel.ClosedError("the session is closed")
        return self._id

    def close(self):
        """Its KV blocks are freed once its turns have ended. Idempotent."""
        id, self._id = self._id, 0
        if id:
            try:
                self._model._core.session_free(id)
            except (_runnel.ClosedError, _runnel.NotFoundError, _runnel.StateError):
                pass  # it went with its model or engine, or belongs to a fork's parent

    @property
    def id(self):
        return self._id

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __del__(self):
        if getattr(self, "_id", 0):
            self.close()


class Grammar(dict):
    """What an answer may be: the options of runnel_grammar. Made by the functions below; docs/GRAMMARS.md."""

    def __init__(self, kind, **options):
        super().__init__(plain_options({"kind": kind, **options}))

    @classmethod
    def json(cls, **options):
        return cls("json", **options)

    @classmethod
    def json_object(cls, **options):
        return cls("json_object", **options)

    @classmethod
    def json_schema(cls, schema, **options):
        text = schema if isinstance(schema, (str, bytes)) else json.dumps(schema)
        return cls("json_schema", text=text, **options)

    @classmethod
    def regex(cls, text, **options):
        return cls("regex", text=text, **options)

    @classmethod
    def gbnf(cls, text, **options):
        return cls("gbnf", text=text, **options)

    @classmethod
    def ebnf(cls, text, **options):
        return cls("ebnf", text=text, **options)

    @classmethod
    def choices(cls, choices, **options):
        return cls("choices", choices=list(choices), **options)


# ---- Results -------------------------------------------------------------------------------


class Record(types.SimpleNamespace):
    """A struct of the library: its members are attributes. It can be copied and pickled."""

    def __reduce__(self):
        return _restored_record, (type(self), {name: _stored(value) for name, value in vars(self).items()})


class Candidates(Record):
    """What `choose` gets: position, sequence, tokens, and logits, which it may change."""


class ToolCall(Record):
    """A call of a tool: name, id (None where the format has none) and arguments, a JSON text; complete: it was not cut
    off."""


def _tool_calls(pieces):
    calls = {}
    for piece in pieces:
        if not piece.kind.startswith("tool_"):
            continue
        call = calls.setdefault(piece.tool_call, {"name": "", "id": None, "arguments": [],
                                                  "complete": False})
        if piece.kind == "tool_call":
            call["name"] = piece.text
        elif piece.kind == "tool_id":
            call["id"] = piece.text
        elif piece.kind == "tool_arguments":
            call["arguments"].append(piece.text)
        elif piece.kind == "tool_end":
            call["complete"] = True
    return [
        ToolCall(**{**call, "arguments": "".join(call["arguments"])})
        for _, call in sorted(calls.items())
    ]


def _stored(value):
    """What is pickled of a member of a result: an array for a memoryview, which cannot be."""
    if isinstance(value, memoryview):
        return array.array(value.format, value.tobytes())
    return [_stored(one) for one in value] if isinstance(value, list) else value


def _restored(value):
    if isinstance(value, array.array):
        return memoryview(value).toreadonly()
    return [_restored(one) for one in value] if isinstance(value, list) else value


def _restored_record(kind, members):
    return kind(**{name: _restored(value) for name, value in members.items()})


def _restored_piece(*parts):
    return _runnel.piece_of(*map(_restored, parts))


copyreg.pickle(_runnel.Piece, lambda piece: (_restored_piece, tuple(map(_stored, piece._parts()))))


class Result:
    """How a stream ended, and all that it said. str(result) is its text.

    text, reasoning  the answer and its reasoning
    tokens           a memoryview of ints. With coalesce_bytes those that were joined in one piece, whose token is -1,
                     are missing; usage has the number of all
    logprobs         with want_logprobs, a memoryview of floats, one for each token; else empty
    top              with n_top, ((token, logprob), ...) for each token; else []
    tool_calls       of a chat with tools
    finish           "stop", "length" or "cancelled"
    stop, stop_token which of stops ended it, by its index, or the token of stop_tokens that did; None: neither
    usage, timings   the members of runnel_usage and runnel_timings
    logits           with want_logits, of a stream whose pieces were not read: a memoryview for each position
    """

    __slots__ = ("text", "reasoning", "tokens", "logprobs", "top", "tool_calls", "finish", "stop", "stop_token",
                 "usage", "timings", "logits", "embedding")

    def __init__(self, parts):
        kept = parts["kept"]
        self.text = parts["text"]
        self.reasoning = parts["reasoning"]
        self.tokens = parts["tokens"]
        self.logprobs = parts["logprobs"]
        self.finish = parts["finish"]
        self.stop = parts["stop"]
        self.stop_token = parts["stop_token"]
        self.usage = Record(**parts["usage"])
        self.timings = Record(**parts["timings"])
        self.top = [piece.top for piece in kept if piece.top is not None]
        self.tool_calls = _tool_calls(kept)
        self.logits = [piece.logits for piece in kept if piece.logits is not None]
        self.embedding = next((piece.embedding for piece in kept if piece.embedding is not None), None)

    def __getstate__(self):
        return [_stored(getattr(self, name)) for name in self.__slots__]

    def __setstate__(self, state):
        for name, value in zip(self.__slots__, state):
            setattr(self, name, _restored(value))

    def __str__(self):
        return self.text

    def __repr__(self):
        return f"Result({self.text!r}, finish={self.finish!r}, usage={self.usage!r})"


# ---- Logging -------------------------------------------------------------------------------

_logger = logging.getLogger("runnel")
_LEVELS = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO, 4: logging.DEBUG}


def log(level, line):
    """Lines of the library go to the logger `runnel`."""
    _logger.log(_LEVELS.get(level, logging.INFO), "%s", line)


#: How long events gather before they wake an event loop again: bench/bindings/streams.py has what that saves.
GATHER_US = 1000


def open_engine(options, on_log, on_trace):
    """The extension's engine; on_trace gets a Record for each span."""
    for name, function in (("on_log", on_log), ("on_trace", on_trace)):
        if function is not None and not callable(function):
            raise TypeError(f"{name}: a function is wanted, not {type(function)!r}")
    if options.get("gather_us") is None:
        options = {**options, "gather_us": GATHER_US}
    tell = None if on_trace is None else lambda span: on_trace(Record(**span))
    return _runnel.Engine(plain_options(options), log if on_log is None else on_log, tell)


# ---- What engines and models of both kinds have --------------------------------------------


class EngineBase(Unique):
    """What an engine tells of itself."""

    @property
    def closed(self):
        return self._core.closed

    def close(self, timeout=None):
        """Cancels what runs, waits for its end, for a step of a model at most, and frees the engine. Idempotent; a
        second call waits for the first. A function of yours that another thread runs inside the engine (`choose`,
        `on_progress`) is waited for, too: at most `timeout` seconds, then TimeoutError is raised, and the engine is
        open as before."""
        self._core.close(seconds(timeout))

    def stats(self):
        """Counts: the members of runnel_engine_stats."""
        return Record(**self._core.stats())

    def metrics(self):
        """The members of runnel_metrics; a histogram is a Record of edges, counts, count and sum."""
        values = self._core.metrics()
        return Record(**{name: Record(**value) if isinstance(value, dict) else value for name, value in values.items()})

    def prometheus(self):
        """The metrics in Prometheus' text format."""
        return self._core.prometheus()

    def streams(self):
        """The streams alive now, a Record each."""
        return [Record(**info) for info in self._core.streams()]

    def expert_use(self, index):
        """How often each expert of the model number `index` of those with experts was chosen."""
        return Record(**self._core.expert_use(index))


class ModelBase(Unique):
    """What a model tells of itself, and its tokens."""

    def __init__(self, engine, core):
        self._engine = engine
        self._core = core

    def info(self):
        """The members of runnel_model_info."""
        return Record(**self._core.info())

    @property
    def adapters(self):
        """The LoRA adapters that requests may name, a Record of name, path and scale each."""
        return [Record(name=name, path=path, scale=scale) for name, path, scale in self._core.adapters()]

    def close(self):
        """Cancels what runs on the model and frees it."""
        self._core.close()

    def tokenize(self, text, *, bos=False, special=False):
        """The ids of a text, as a memoryview of ints. bos: with BOS and EOS as the model wants them; special: control
        tokens that the text spells become control tokens."""
        return self._core.tokenize(text, bool(bos) * TOKENIZE_BOS | bool(special) * TOKENIZE_SPECIAL)

    def detokenize(self, tokens, *, special=False):
        """The bytes that ids stand for; special: control tokens by their names."""
        return self._core.detokenize(tokens, bool(special))

    def token_text(self, token, *, special=False):
        """The bytes that an id stands for within a text: with its space in front, which detokenize leaves out where a
        text begins. special: a control token by its name."""
        return self._core.token_text(token, bool(special))

    def apply_template(self, messages, **options):
        """The prompt of a conversation as text; options are those of runnel_chat."""
        return self._core.apply_template(plain_options({"messages_json": messages, **options}))

    def tokenize_chat(self, messages, **options):
        """The same as ids."""
        return self._core.tokenize_chat(plain_options({"messages_json": messages, **options}))

    def tokenize_infill(self, prefix, suffix, *, files=(), **options):
        """The prompt of a model that fills a gap: ids for `tokens`. files: pairs of a name and a text."""
        return self._core.tokenize_infill({"prefix": prefix, "suffix": suffix, **options}, list(map(tuple, files)))

    def scores(self):
        """What a reranker or classifier scores: the members of runnel_scores_info, and labels."""
        return Record(**self._core.scores())

    def templates(self):
        """The chat templates of the model's file, a Record each; knows is of TemplateTrait."""
        return _templates(self._core.template)

    def recommended_sampling(self):
        """Options that the model's file recommends."""
        return self._core.sampling()

    def check_grammar(self, **options):
        """Raises what is wrong with the grammar or the tools of a request with these options."""
        self._core.grammar_check(request_options(None, options, self))

    def check_sampling(self, **options):
        """Raises what is wrong with how a request with these options has its tokens drawn."""
        self._core.sampling_check(request_options(None, options, self))


def _templates(template):
    found = []
    while True:
        try:
            found.append(Record(**template(len(found))))
        except _runnel.NotFoundError:
            break
    for one in found:
        one.knows = TemplateTrait(one.knows)
    return found


class Training(Unique):
    """A training of a head that drafts: `for progress in training`, or `async for`. It ends when the head's file is
    written. A failure is raised. A loop that was left, or whose task was cancelled, may be taken up again."""

    def __init__(self, core, hosts):
        self._core = core
        self._hosts = hosts
        self._waits = threading.RLock()  # one thread at a time: that of a task that was cancelled is still inside

    def _progress(self):
        with self._waits:
            progress = Record(**self._core.wait(100))
        progress.state = TrainingState(progress.state)
        return progress

    def __iter__(self):
        state = TrainingState.RUNNING
        while state == TrainingState.RUNNING:
            progress = self._progress()
            state = progress.state
            yield progress

    async def __aiter__(self):
        state = TrainingState.RUNNING
        while state == TrainingState.RUNNING:
            progress = await self._hosts.current().in_thread(self._progress)
            state = progress.state
            yield progress

    def cancel(self):
        """It ends within a step, with its state saved."""
        self._core.cancel()

    def close(self, timeout=None):
        """Cancels it, waits until it has ended, within a step, and frees what it holds. Idempotent; a loop over it then
        raises ClosedError. With a timeout in seconds, TimeoutError is raised where the step takes longer: then it is
        cancelled, and can be closed again. The last reference that goes closes it, too."""
        self._core.close(seconds(timeout))

    async def aclose(self, timeout=None):
        """The same, off the loop's thread. A task that is cancelled meanwhile closes it all the same, and is cancelled
        then."""
        await self._hosts.current().begin_thread(self.close, timeout)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        await self.aclose()


def start_training(core, hosts, model, corpus, head, options):
    paths = os.fsencode(model), corpus, os.fsencode(head)
    return Training(_runnel.Training(core, *paths, plain_options(options)), hosts)
