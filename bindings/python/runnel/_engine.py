"""The classes of an event loop."""

import atexit
import os
import sys
import weakref

from . import _runnel
from ._hosts import Hosts
from ._shared import (
    EngineBase,
    ModelBase,
    Record,
    Result,
    SessionBase,
    Unique,
    open_engine,
    plain_options,
    request_options,
    start_training,
)

open_engines = weakref.WeakSet()
#: how long the end of the interpreter waits for functions of the program that daemon threads run inside an engine
EXIT_TIMEOUT_S = 10


@atexit.register
def _close_all():
    """The interpreter ends: engines that are still open end in front of it."""
    for core in list(open_engines):
        try:
            core.close(EXIT_TIMEOUT_S)
        except BaseException:  # the others are closed all the same
            sys.excepthook(*sys.exc_info())


class Engine(EngineBase):
    """Threads, memory and models: `async with Engine() as engine`.

    Options are those of runnel_engine_options. on_log(level, line) gets the lines of the log (default: the logger
    "runnel"), on_trace(span) the spans of the trace; both run on the thread of a loop that dispatches.
    """

    def __init__(self, *, on_log=None, on_trace=None, **options):
        self._core = open_engine(options, on_log, on_trace)
        self._hosts = Hosts(self._core)
        open_engines.add(self._core)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        await self.aclose()

    async def aclose(self):
        """Cancels what runs, waits for its end and frees the engine. Idempotent; a second call waits for the first. A
        task that is cancelled meanwhile closes it all the same, and is cancelled then."""
        host = self._hosts.current()
        end = host.begin_thread(self._core.close)
        host.forget()  # what is left comes while it closes, on that thread
        await end

    async def drain(self):
        """Refuses new requests from now on, and waits until all streams have ended."""
        host = self._hosts.current()
        host.began()  # the loop has their events meanwhile, as ever
        try:
            while not self._core.drain(0):
                await host.nap()
        finally:
            host.ended()

    async def load_model(self, path, *, on_progress=None, **options):
        """Loads a GGUF file. Options are those of runnel_model_options; on_progress(fraction) is called on the loop.
        Cancelling the task cancels the load."""
        host = self._hosts.current()
        tell, wanted = on_progress, True

        def progress(fraction):
            nonlocal wanted
            if not wanted:
                return  # it was under way when the load was given up
            try:
                on_progress(fraction)
            except Exception:
                raise
            except BaseException:  # this ends the load
                wanted = False
                raise

        if callable(on_progress):
            def tell(fraction):
                host.tell(progress, fraction)
        host.began()
        try:
            core = _runnel.Model(self._core, os.fsencode(path), plain_options(options), host, tell)
        except BaseException:
            host.ended()
            raise
        waiter = host.waiter()
        waits = core.wait(waiter)
        if not waits and on_progress is not None:  # what another thread has left to be told comes first
            host.wake(waiter)
            waits = True
        if waits:
            try:
                await host.wait(waiter)
            except BaseException:
                wanted = False
                core.close()
                raise
        core.check()
        return Model(self, core)

    def train(self, model, corpus, head, **options):
        """Begins to train a head that drafts for a model's file: docs/EAGLE.md. Options are those of
        runnel_eagle_options."""
        return start_training(self._core, self._hosts, model, corpus, head, options)

    async def measure(self):
        """What the machine can do at most; takes about a second."""
        return Record(**await self._hosts.current().in_thread(self._core.measure))

    async def device(self, name="auto"):
        """What is known of a device; `why` is empty where models can be loaded on it."""
        return Record(**await self._hosts.current().in_thread(lambda: self._core.device(name)))


class Model(ModelBase):
    """A loaded model."""

    def stream(self, prompt=None, **options):
        """Submits a request and returns its Stream. Options are the members of runnel_request, runnel_sampling,
        runnel_samplers and runnel_chat by their names; `messages` is a list of messages in OpenAI's form, `grammar`
        a runnel.Grammar, `choose` a function that draws."""
        return self._submit(request_options(prompt, options, self), False)

    async def generate(self, prompt=None, **options):
        """The same, to its end: a Result. Its pieces are not made one by one."""
        return await self._submit(request_options(prompt, options, self), True).result()

    def _submit(self, options, collect):
        return self._begin(lambda host: self._core.generate(options, host, collect))

    def _begin(self, submit):
        host = self._engine._hosts.current()
        host.began()
        try:
            core = submit(host)
        except BaseException:
            host.ended()
            raise
        return Stream(core, host)

    async def embed(self, text=None, **options):
        """The embedding of a text, or of `tokens`: a memoryview of floats. Options are those of
        runnel_embed_request."""
        return (await self._embed({"text": text, **options}).result()).embedding

    def _embed(self, options):
        options = plain_options(options)
        return self._begin(lambda host: self._core.embed(options, host))

    async def score(self, text=None, *, query=None, **options):
        """How well a text answers a query, or how it is classified: a memoryview of floats, one for each label.
        Options are those of runnel_score_request."""
        options = plain_options({"text": text, "query": query, **options})
        return (await self._begin(lambda host: self._core.score(options, host)).result()).embedding

    def session(self):
        """A conversation whose KV blocks stay between its turns."""
        return Session(self, self._core.session_new())

    async def load_session(self, path, **options):
        """A session from a file: docs/SESSIONS.md."""
        options = plain_options({"path": path, **options})
        made = []

        def begin(host):
            id, core = self._core.session_import(options, host)
            made.append(id)
            return core

        stream = self._begin(begin)
        session = Session(self, made[0])
        try:
            await stream.result()
        except BaseException:
            session.close()
            raise
        return session

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        self.close()


class Session(SessionBase):
    """A conversation: its turns run one after another, in the order of their calls."""

    __slots__ = ()

    def stream(self, prompt=None, **options):
        """As Model.stream; the prompt continues the session."""
        return self._model.stream(prompt, session=self, **options)

    async def generate(self, prompt=None, **options):
        return await self._model.generate(prompt, session=self, **options)

    async def save(self, path, **options):
        """Writes the session to a file once its turns have ended: docs/SESSIONS.md. note: bytes of your own."""
        core, id, options = self._model._core, self._open_id(), plain_options({"path": path, **options})
        return await self._model._begin(lambda host: core.session_export(id, options, host)).result()


class Stream(Unique, _runnel.Reader):
    """A running request: `async for piece in stream`. A cancelled task, aclose(), the end of an `async with` and the
    last reference that goes all cancel it: so does leaving a loop over a stream that nothing else refers to. A reader
    that is behind pauses its stream, and costs the others nothing. Several readers share the pieces: each piece goes to
    one of them. Its model stays until the stream has ended."""

    __slots__ = ("_host", "__weakref__")

    def __init__(self, core, host):
        self._core = core
        self._host = host
        self._loop = host.future_loop()

    async def _next_piece(self):
        """The next piece, where the loop is not asyncio's; else the Reader has it."""
        piece = self._core.pop()
        while piece is None:
            await self._wait()
            piece = self._core.pop()
        return piece

    async def _wait(self):
        waiter = self._host.waiter()
        if not self._core.wait(waiter):
            return
        try:
            await self._host.wait(waiter)
        except BaseException:
            self._core.unwait(waiter)
            self._core.cancel()
            raise

    async def result(self):
        """Waits for the end. Pieces that were not read are only in the result. A stream that was cancelled by
        cancel() has a result, too; one that failed raises its error."""
        self._core.collect()
        while self._core.live:
            await self._wait()
        return Result(self._core.result())

    def cancel(self):
        """Ends the stream within a step: False: it has ended already. Pieces that have come can still be read."""
        return self._core.cancel()

    async def aclose(self):
        """Cancels and waits for the end."""
        self._core.cancel()
        self._core.collect()
        while self._core.live:
            await self._wait()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        await self.aclose()

    def pause(self):
        """Stops delivery until resume(); pieces that have come can still be read, and the stream stops after a bounded
        number of tokens. False: it has ended already."""
        return self._core.pause(True)

    def resume(self):
        """Goes on after pause(). False: it has ended already."""
        return self._core.pause(False)

    def choose(self, place):
        """Makes the choice for which `choose` has returned CHOOSE_LATER."""
        self._core.choose(place)

    @property
    def id(self):
        return self._core.id

    @property
    def ended(self):
        return not self._core.live

    def __del__(self):
        core = getattr(self, "_core", None)
        if core is not None:
            core.abandon()
