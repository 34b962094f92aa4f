"""Objects shaped as those of OpenAI's Python client, over a model in this process: no HTTP, no key.

    client = runnel.openai.AsyncOpenAI(model)
    answer = await client.chat.completions.create(messages=[{"role": "user", "content": "Hello"}], max_tokens=100)
    print(answer.choices[0].message.content)

OpenAI is the same with calls that block. Parameters are OpenAI's, and besides them all options of Model.stream. Those
of OpenAI's that need its servers (`user`, `store`, ...) have no effect; any other is a TypeError. Errors are runnel's.
The same request gives the same text as the server of `runnel serve`.
"""

import base64
import collections
import json
import math
import secrets
import time
import types

from . import _engine, blocking
from ._openai_requests import (
    chat_options,
    completion_options,
    embedding_options,
    flag,
    is_left_out,
    needed,
    prompts,
    seed_of,
    take_n,
    wants_usage,
    with_adapter,
)
from ._runnel import BusyError, CancelledError, ClosedError, InvalidError, NotFoundError, StateError, logprob_of
from ._shared import TOKENIZE_BOS, request_options

#: requests of one call that run at once: the others wait for them, and the engine has room for other callers'
_AT_ONCE = 64


class Object(types.SimpleNamespace):
    """A part of an answer: its members are attributes. Those of OpenAI's that it has no use for are None."""

    annotations = audio = function_call = refusal = tool_calls = role = content = reasoning_content = None
    system_fingerprint = service_tier = metadata = usage = logprobs = id = type = name = None
    audio_tokens = reasoning_tokens = None

    def model_dump(self, *, exclude_none=False, **_):
        """As a dict."""
        return {name: _dump(value, exclude_none) for name, value in vars(self).items()
                if value is not None or not exclude_none}

    def model_dump_json(self, *, indent=None, exclude_none=False, **_):
        """As a JSON text."""
        return json.dumps(self.model_dump(exclude_none=exclude_none), indent=indent)

    to_dict, to_json = model_dump, model_dump_json


def _dump(value, exclude_none):
    if isinstance(value, Object):
        return value.model_dump(exclude_none=exclude_none)
    return [_dump(item, exclude_none) for item in value] if isinstance(value, list) else value


# ---- Answers -------------------------------------------------------------------------------


def _finite(logprob):
    """OpenAI's stand-in for what has no logarithm."""
    return logprob if math.isfinite(logprob) else -9999.0


def _spelled(data):
    """A token as a key: pieces of characters stay apart."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


class _Answer:
    """The answer to a call, whole or in chunks: several choices, `n` for each prompt."""

    def __init__(self, model, name, n, options):
        self._core = model._core
        self._head = {"id": self.prefix + secrets.token_hex(12), "created": int(time.time()), "model": name}
        self._n = n
        self._logprobs = options[0].get("want_logprobs", False)
        self._top = options[0].get("n_top", 0)
        self.options = options
        self._characters = [0] * len(options)

    def _piece(self, token):
        """The bytes of a token within a text, control tokens by their names."""
        return self._core.token_text(token, True)

    def _whole_logprobs(self, index, result):
        if not self._logprobs:
            return None
        tops = result.top or [()] * len(result.tokens)
        return self._list(index, list(zip(result.tokens, result.logprobs, tops)))

    def _chunk_logprobs(self, index, piece):
        if not self._logprobs or piece.logprob is None:
            return None
        return self._list(index, [(piece.token, piece.logprob, piece.top or ())])

    def _usage(self, results):
        """A prompt counts once, however many answers it gets."""
        usages = [result.usage for result in results]
        prompt = sum(usage.prompt_tokens for usage in usages[::self._n])
        answers = sum(usage.completion_tokens for usage in usages)
        accepted = sum(usage.accepted_tokens for usage in usages)
        drafted = sum(usage.drafted_tokens for usage in usages)
        reasoning = sum(min(len(self._core.tokenize(result.reasoning, 0)), result.usage.completion_tokens)
                        for result in results if result.reasoning)
        return Object(
            prompt_tokens=prompt, completion_tokens=answers, total_tokens=prompt + answers,
            prompt_tokens_details=Object(cached_tokens=sum(usage.cached_tokens for usage in usages[::self._n])),
            completion_tokens_details=Object(reasoning_tokens=reasoning, accepted_prediction_tokens=accepted,
                                             rejected_prediction_tokens=drafted - accepted))

    def _stop(self, index, result):
        """vLLM's stop_reason: the stop string or the id of the stop token that ended the answer."""
        if result.stop is None:
            return result.stop_token
        stops = self.options[index]["stops"]
        return stops if isinstance(stops, str) else stops[result.stop]

    def whole(self, results):
        choices = [Object(index=index, **self._choice(index, result)) for index, result in enumerate(results)]
        return Object(**self._head, object=self.object, choices=choices, usage=self._usage(results))

    def _end(self, index, result, finish, **members):
        return [self._chunk(index, finish=finish, stop_reason=self._stop(index, result), **members)]

    def _chunk(self, index, piece=None, finish=None, **members):
        logprobs = self._chunk_logprobs(index, piece) if piece is not None else None
        choice = Object(index=index, logprobs=logprobs, finish_reason=finish, **members)
        return Object(**self._head, object=self.chunk_object, choices=[choice], usage=None)

    def usage_chunk(self, results):
        return Object(**self._head, object=self.chunk_object, choices=[], usage=self._usage(results))


class _Chat(_Answer):
    prefix, object, chunk_object = "chatcmpl-", "chat.completion", "chat.completion.chunk"

    def __init__(self, model, name, n, options):
        super().__init__(model, name, n, options)
        self._names, self._ids, self._begun = {}, {}, [0] * len(options)
        self._in_old_form = [one.pop("in_old_form") for one in options][0]
        self._calls_finish = "function_call" if self._in_old_form else "tool_calls"

    def _entry(self, token, logprob, **members):
        data = self._piece(token)
        return Object(token=data.decode(errors="replace"), logprob=_finite(logprob), bytes=list(data), **members)

    def _list(self, index, triples):
        return Object(refusal=None, content=[
            self._entry(token, logprob, top_logprobs=[self._entry(*other) for other in top])
            for token, logprob, top in triples])

    def _call_id(self, index, number, given):
        return given or f"call_{self._head['id'].rpartition('-')[2]}_{index}_{number}"

    def _choice(self, index, result):
        # a call that was cut off is shown only where the answer's length is why
        calls = [Object(id=self._call_id(index, number, call.id), type="function",
                        function=Object(name=call.name, arguments=call.arguments))
                 for number, call in enumerate(result.tool_calls) if call.complete or result.finish == "length"]
        if self.options[index]["single_call"]:
            calls = calls[:1]
        message = Object(role="assistant", content=None if calls and not result.text else result.text, refusal=None)
        if result.reasoning:
            message.reasoning_content = result.reasoning
        if calls and self._in_old_form:
            message.function_call = calls[0].function
        elif calls:
            message.tool_calls = calls
        finish = "length" if result.finish == "length" else self._calls_finish if calls else "stop"
        return {"message": message, "logprobs": self._whole_logprobs(index, result), "finish_reason": finish,
                "stop_reason": self._stop(index, result)}

    def begin(self, index):
        return [self._chunk(index, delta=Object(role="assistant", content=""))]

    def take(self, index, piece):
        if piece.kind.startswith("tool_"):
            return self._take_call(index, piece)
        member = {"token": "content", "reasoning": "reasoning_content"}.get(piece.kind)
        if member is None or not (piece.text or (self._logprobs and piece.logprob is not None)):
            return []
        return [self._chunk(index, piece, delta=Object(**{member: piece.text}))]

    def _take_call(self, index, piece):
        number = piece.tool_call
        if number > 0 and self.options[index]["single_call"]:
            return []
        if piece.kind == "tool_call":
            self._names[index, number] = piece.text
        elif piece.kind == "tool_id":
            self._ids[index, number] = piece.text
        else:
            return self._announce(index, number) + self._arguments(index, number, piece)
        return []

    def _announce(self, index, number):
        """The name, once the id is known or will not come."""
        name = self._names.pop((index, number), None)
        if name is None:
            return []
        self._begun[index] += 1
        if self._in_old_form:
            return [self._chunk(index, delta=Object(function_call=Object(name=name, arguments="")))]
        call = Object(index=number, id=self._call_id(index, number, self._ids.get((index, number))), type="function",
                      function=Object(name=name, arguments=""))
        return [self._chunk(index, delta=Object(tool_calls=[call]))]

    def _arguments(self, index, number, piece):
        if piece.kind != "tool_arguments" or not piece.text:
            return []
        if self._in_old_form:
            return [self._chunk(index, delta=Object(function_call=Object(arguments=piece.text)))]
        call = Object(index=number, function=Object(arguments=piece.text))
        return [self._chunk(index, delta=Object(tool_calls=[call]))]

    def end(self, index, result):
        finish = "length" if result.finish == "length" else self._calls_finish if self._begun[index] else "stop"
        return self._end(index, result, finish, delta=Object())


class _Completion(_Answer):
    prefix, object, chunk_object = "cmpl-", "text_completion", "text_completion"

    def __init__(self, model, name, n, options):
        super().__init__(model, name, n, options)
        self._echo = [one.pop("echo", False) for one in options]
        self._told = [[] for _ in options]  # of the prompt, until it is shown: (token, logprob, top)
        self._tokens = [None] * len(options)

    def _tell(self, index, logits):
        """The model's logits behind the next token of the prompt: what they say of the one after it."""
        told, tokens = self._told[index], self._tokens[index]
        if tokens is None:
            options = self.options[index]
            tokens = options.get("tokens")
            tokens = self._tokens[index] = (self._core.tokenize(options["prompt"], TOKENIZE_BOS)
                                            if tokens is None else tokens)
            told.append((tokens[0], None, ()))  # nothing has predicted it
        if len(told) < len(tokens):
            token = tokens[len(told)]
            told.append((token, *logprob_of(logits.obj, token, self._top)))

    def _take_told(self, index):
        told, self._told[index] = self._told[index], []
        return told

    def _list(self, index, triples):
        lists = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token, logprob, top in triples:
            data = self._piece(token)
            known = logprob is not None
            lists["tokens"].append(_spelled(data))
            lists["token_logprobs"].append(_finite(logprob) if known else None)
            best = {_spelled(self._piece(other)): _finite(value) for other, value in top}
            if known and token not in [other for other, _ in top]:
                best[_spelled(data)] = _finite(logprob)
            lists["top_logprobs"].append(best if known else None)
            lists["text_offset"].append(self._characters[index])
            if known or not self._is_own_bos(index, token):
                self._characters[index] += sum(byte & 0xC0 != 0x80 for byte in data)
        return Object(**lists)

    def _prompt(self, index):
        if not self._echo[index]:
            return ""
        options = self.options[index]
        prompt = options.get("prompt")
        return self._core.detokenize(options["tokens"], True).decode(errors="replace") if prompt is None else prompt

    def _is_own_bos(self, index, token):
        """The token in front of a prompt that is given as a text is no part of it."""
        info = self._core.info()
        return self.options[index].get("tokens") is None and info["add_bos"] and token == info["bos"]

    def _whole_logprobs(self, index, result):
        for logits in result.logits:
            self._tell(index, logits)
        told, answer = self._take_told(index), super()._whole_logprobs
        if not told:
            return answer(index, result)
        tops = result.top or [()] * len(result.tokens)
        return self._list(index, told + list(zip(result.tokens, result.logprobs, tops)))

    def _choice(self, index, result):
        return {"text": self._prompt(index) + result.text, "logprobs": self._whole_logprobs(index, result),
                "finish_reason": "length" if result.finish == "length" else "stop",
                "stop_reason": self._stop(index, result)}

    def begin(self, index):
        # with logprobs the prompt comes behind its logits
        return [self._chunk(index, text=self._prompt(index))] if self._echo[index] and not self._logprobs else []

    def _show_prompt(self, index):
        told = self._take_told(index)
        if not told:
            return []
        chunk = self._chunk(index, text=self._prompt(index))
        chunk.choices[0].logprobs = self._list(index, told)
        return [chunk]

    def take(self, index, piece):
        if piece.kind == "logits":
            self._tell(index, piece.logits)
        if piece.kind != "token" or not (piece.text or self._logprobs):
            return []
        return [*self._show_prompt(index), self._chunk(index, piece, text=piece.text)]

    def end(self, index, result):
        finish = "length" if result.finish == "length" else "stop"
        return [*self._show_prompt(index), *self._end(index, result, finish, text="")]


def _choices(each, n):
    """Options of each choice: n for each prompt, with seeds of their own."""
    return [{**options, "seed": seed_of(options["seed"], choice)} for options in each for choice in range(n)]


def _ask_chat(model, name, messages, parameters, streams):
    n = take_n(parameters, streams)
    return _Chat(model, name, n, _choices([chat_options(messages, parameters)], n))


def _ask_completion(model, name, prompt, parameters, streams):
    n, suffix = take_n(parameters, streams), parameters.pop("suffix", "")
    options, each = completion_options(parameters), prompts("prompt", prompt)
    if suffix and options.get("want_logits"):
        raise InvalidError("echo together with logprobs does not go with a suffix")
    if suffix and any("tokens" in one for one in each):
        raise InvalidError("prompt must be a text where there is a suffix, not token ids")
    if suffix:
        each = [{"tokens": model.tokenize_infill(one["prompt"], suffix)} for one in each]
    return _Completion(model, name, n, _choices([{**options, **one} for one in each], n))


class _Run:
    """Requests of which some run at once, and the results of all. The engine may have room for fewer: who finds it busy
    waits for one of these first."""

    def __init__(self, begin, each):
        self._begin = begin
        self._left = collections.deque(each)
        self.running = collections.deque()

    def next(self):
        """The stream whose result is next; None: all have been given."""
        while self._left and len(self.running) < _AT_ONCE:
            try:
                self.running.append(self._begin(self._left[0]))
            except BusyError:
                if not self.running:
                    raise
                break
            self._left.popleft()
        return self.running[0] if self.running else None

    def beside(self):
        """What runs besides the next one."""
        return [stream._core for stream in self.running][1:]

    def end(self):
        """Cancels those that run and returns them; no other begins."""
        self._left.clear()
        streams, self.running = self.running, collections.deque()
        for stream in streams:
            stream.cancel()
        return streams


class _Chunks:
    """The chunks of an answer. Its choices are computed together, as far as the engine has room for them, and come one
    after another; what has come of the later ones waits in memory. Leaving the loop and the last reference that goes
    cancel what has not come."""

    def __init__(self, model, answer, with_usage):
        self._answer = answer
        self._with_usage = with_usage
        self._run = _run_of(model, answer, False)
        self._results = []
        self._ready = collections.deque()
        self._stream = None  # of the choice whose chunks come
        try:
            self._current()
        except BaseException:
            self._run.end()
            raise

    def _current(self):
        """The stream whose pieces come next; None: all have ended."""
        if self._stream is None:
            self._stream = self._run.next()
            if self._stream is not None:
                self._turn()
                self._ready.extend(self._answer.begin(len(self._results)))
        return self._stream

    def _take(self, piece):
        self._ready.extend(self._answer.take(len(self._results), piece))

    def _end(self, result):
        """Of the stream whose pieces have come."""
        if result.finish == "cancelled":
            self._run.end()
            raise CancelledError("the answer was cancelled before its end")
        self._ready.extend(self._answer.end(len(self._results), result))
        self._results.append(result)
        self._run.running.popleft()
        self._stream = None
        if self._with_usage and len(self._results) == len(self._answer.options):
            self._ready.append(self._answer.usage_chunk(self._results))


class Stream(_Chunks):
    """`for chunk in stream`."""

    def _turn(self):
        self._others = self._run.beside()

    def _next_piece(self, stream):
        try:
            return stream._core.next(*self._others)
        except StopIteration:
            return None

    def __iter__(self):
        return self

    def __next__(self):
        while not self._ready:
            stream = self._current()
            if self._ready:
                break
            if stream is None:
                raise StopIteration
            piece = self._next_piece(stream)
            if piece is None:
                self._end(stream.result())
            else:
                self._take(piece)
        return self._ready.popleft()

    def close(self):
        self._stream = None
        self._run.end()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


class AsyncStream(_Chunks):
    """`async for chunk in stream`, in one task at a time."""

    _is_read = False

    def _turn(self):
        for core in self._run.beside():
            core.keep_all(True)
        self._stream._core.keep_all(False)

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self._is_read:
            raise StateError("another task reads the stream")
        self._is_read = True
        try:
            while not self._ready:
                await self._read()
        finally:
            self._is_read = False
        return self._ready.popleft()

    async def _read(self):
        stream = self._current()
        if self._ready:
            return
        if stream is None:
            raise StopAsyncIteration
        try:
            self._take(await stream.__anext__())
        except StopAsyncIteration:
            result = await stream.result()
            if self._stream is None:  # another task has closed it
                raise
            self._end(result)
        except BaseException as error:
            # the reader is cancelled, or the choice has failed: nobody gets the others. Else it is another loop's task
            if stream.ended or not isinstance(error, Exception):
                self._run.end()
            raise

    async def close(self):
        self._stream = None
        for stream in self._run.end():
            await stream.aclose()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        await self.close()


def _results(run):
    results = []
    try:
        while (stream := run.next()) is not None:
            stream._core.finish(*run.beside())
            results.append(stream.result())
            run.running.popleft()
    finally:
        run.end()
    return results


async def _async_results(run):
    results = []
    try:
        while (stream := run.next()) is not None:
            results.append(await stream.result())
            run.running.popleft()
    finally:
        run.end()
    return results


def _run_of(model, answer, collect):
    return _Run(lambda options: model._submit(request_options(None, options, model), collect), answer.options)


# ---- Embeddings ----------------------------------------------------------------------------


def _embed(model, input, options):
    each = [{"text" if name == "prompt" else name: value, **options}
            for one in prompts("input", input) for name, value in one.items()]
    return _Run(model._embed, each)


def _embeddings(name, form, results):
    write = (lambda view: base64.b64encode(view.tobytes()).decode()) if form == "base64" else list
    tokens = sum(result.usage.prompt_tokens for result in results)
    data = [Object(object="embedding", index=index, embedding=write(result.embedding))
            for index, result in enumerate(results)]
    return Object(object="list", data=data, model=name, usage=Object(prompt_tokens=tokens, total_tokens=tokens))


# ---- Clients -------------------------------------------------------------------------------


def _adapters(model):
    """Their names; a model that is closed has none."""
    try:
        return [adapter.name for adapter in model.adapters]
    except ClosedError:
        return []


class _Resource:
    def __init__(self, models):
        self._models = models

    def _find(self, name):
        """The model of this name, or with an adapter of this name; the name for its answers; that adapter. Of one alone
        any other name is right, too."""
        name = None if is_left_out(name) else name
        if not isinstance(self._models, dict):
            return self._models, name or "runnel", name if name in _adapters(self._models) else None
        if name in self._models:
            return self._models[name], name, None
        for model in self._models.values():
            if name in _adapters(model):
                return model, name, name
        raise NotFoundError(f"there is no model {name!r}")


class _Completions(_Resource):
    def create(self, *, stream=False, stream_options=None, model=None, **parameters):
        """The answer, or with `stream` a Stream of its chunks."""
        model, name, adapter = self._find(model)
        with_usage, streams = wants_usage(stream_options), not is_left_out(stream) and flag("stream", stream)
        answer = self._ask(model, name, with_adapter(parameters, adapter), streams)
        if streams:
            return Stream(model, answer, with_usage)
        return answer.whole(_results(_run_of(model, answer, True)))


class _AsyncCompletions(_Resource):
    async def create(self, *, stream=False, stream_options=None, model=None, **parameters):
        """The answer, or with `stream` an AsyncStream of its chunks."""
        model, name, adapter = self._find(model)
        with_usage, streams = wants_usage(stream_options), not is_left_out(stream) and flag("stream", stream)
        answer = self._ask(model, name, with_adapter(parameters, adapter), streams)
        if streams:
            return AsyncStream(model, answer, with_usage)
        return answer.whole(await _async_results(_run_of(model, answer, True)))


class _OfChats:
    @staticmethod
    def _ask(model, name, parameters, streams):
        return _ask_chat(model, name, needed(parameters, "messages"), parameters, streams)


class _OfTexts:
    @staticmethod
    def _ask(model, name, parameters, streams):
        return _ask_completion(model, name, needed(parameters, "prompt"), parameters, streams)


class ChatCompletions(_OfChats, _Completions):
    """client.chat.completions"""


class AsyncChatCompletions(_OfChats, _AsyncCompletions):
    """client.chat.completions"""


class Completions(_OfTexts, _Completions):
    """client.completions"""


class AsyncCompletions(_OfTexts, _AsyncCompletions):
    """client.completions"""


class Embeddings(_Resource):
    """client.embeddings"""

    def create(self, *, input, model=None, dimensions=None, encoding_format=None, **parameters):
        model, name, adapter = self._find(model)
        parameters = {"dimensions": dimensions, "encoding_format": encoding_format, **parameters}
        options, form = embedding_options(with_adapter(parameters, adapter))
        return _embeddings(name, form, _results(_embed(model, input, options)))


class AsyncEmbeddings(_Resource):
    """client.embeddings"""

    async def create(self, *, input, model=None, dimensions=None, encoding_format=None, **parameters):
        model, name, adapter = self._find(model)
        parameters = {"dimensions": dimensions, "encoding_format": encoding_format, **parameters}
        options, form = embedding_options(with_adapter(parameters, adapter))
        results = await _async_results(_embed(model, input, options))
        return _embeddings(name, form, results)


def _each(models, kind):
    """Models of an engine of either kind serve both clients."""
    if isinstance(models, dict):
        return {name: _each(model, kind) for name, model in models.items()}
    return models if isinstance(models, kind) else kind(models._engine, models._core)


class Chat:
    """client.chat"""

    __slots__ = ("completions",)

    def __init__(self, models):
        self.completions = ChatCompletions(models)


class AsyncChat:
    """client.chat"""

    __slots__ = ("completions",)

    def __init__(self, models):
        self.completions = AsyncChatCompletions(models)


class OpenAI:
    """Over a model, or a dict of models by the names that `model` asks for; runnel's or runnel.blocking's."""

    __slots__ = ("chat", "completions", "embeddings")

    def __init__(self, models):
        models = _each(models, blocking.Model)
        self.chat = Chat(models)
        self.completions = Completions(models)
        self.embeddings = Embeddings(models)


class AsyncOpenAI:
    """As OpenAI, on an event loop."""

    __slots__ = ("chat", "completions", "embeddings")

    def __init__(self, models):
        models = _each(models, _engine.Model)
        self.chat = AsyncChat(models)
        self.completions = AsyncCompletions(models)
        self.embeddings = AsyncEmbeddings(models)
