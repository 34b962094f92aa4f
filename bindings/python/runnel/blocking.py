"""The same without an event loop: calls block, and release the GIL while they do.

    with runnel.blocking.Engine() as engine:
        model = engine.load_model("model.gguf")
        for piece in model.stream("Once upon a time", max_tokens=100):
            print(piece.text, end="")

Any number of threads may read streams of their own at once.
"""

import os

from . import _runnel
from ._engine import open_engines
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
    seconds,
    start_training,
)

_MOST_MS = 1 << 62


class Engine(EngineBase):
    """As runnel.Engine: `with Engine() as engine`."""

    def __init__(self, *, on_log=None, on_trace=None, **options):
        self._core = open_engine(options, on_log, on_trace)
        self._hosts = Hosts(self._core)
        open_engines.add(self._core)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def drain(self, timeout=None):
        """Refuses new requests from now on; True once all streams have ended, False after `timeout` seconds."""
        return self._core.drain(int(min(1000 * seconds(timeout), _MOST_MS)))

    def load_model(self, path, *, on_progress=None, **options):
        """Loads a GGUF file; on_progress(fraction) is called on this thread."""
        core = _runnel.Model(self._core, os.fsencode(path), plain_options(options), None, on_progress)
        try:
            core.block()
        except BaseException:  # a load that is given up would go on, and the model stay
            core.close()
            raise
        return Model(self, core)

    def train(self, model, corpus, head, **options):
        """As runnel.Engine.train."""
        return start_training(self._core, None, model, corpus, head, options)

    def measure(self):
        """What the machine can do at most; takes about a second."""
        return Record(**self._core.measure())

    def device(self, name="auto"):
        """As runnel.Engine.device."""
        return Record(**self._core.device(name))


class Model(ModelBase):
    """As runnel.Model."""

    def stream(self, prompt=None, **options):
        """Submits a request and returns its Stream."""
        return self._submit(request_options(prompt, options, self), False)

    def generate(self, prompt=None, **options):
        """The same, to its end: a Result."""
        return self._submit(request_options(prompt, options, self), True).result()

    def _submit(self, options, collect):
        return self._begin(lambda: self._core.generate(options, None, collect))

    def _begin(self, submit):
        self._engine._hosts.take_rest()
        return Stream(submit())

    def embed(self, text=None, **options):
        """The embedding of a text, or of `tokens`: a memoryview of floats."""
        return self._embed({"text": text, **options}).result().embedding

    def _embed(self, options):
        options = plain_options(options)
        return self._begin(lambda: self._core.embed(options, None))

    def score(self, text=None, *, query=None, **options):
        """How well a text answers a query, or how it is classified: a memoryview of floats."""
        options = plain_options({"text": text, "query": query, **options})
        return self._begin(lambda: self._core.score(options, None)).result().embedding

    def session(self):
        """A conversation whose KV blocks stay between its turns."""
        return Session(self, self._core.session_new())

    def load_session(self, path, **options):
        """A session from a file."""
        options = plain_options({"path": path, **options})
        made = []

        def begin():
            id, core = self._core.session_import(options, None)
            made.append(id)
            return core

        stream = self._begin(begin)
        session = Session(self, made[0])
        try:
            stream.result()
        except BaseException:
            session.close()
            raise
        return session

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


class Session(SessionBase):
    """As runnel.Session."""

    __slots__ = ()

    def stream(self, prompt=None, **options):
        return self._model.stream(prompt, session=self, **options)

    def generate(self, prompt=None, **options):
        return self._model.generate(prompt, session=self, **options)

    def save(self, path, **options):
        """Writes the session to a file; note: bytes of your own."""
        core, id, options = self._model._core, self._open_id(), plain_options({"path": path, **options})
        return self._model._begin(lambda: core.session_export(id, options, None)).result()


class Stream(Unique):
    """A running request: `for piece in stream`. Closing it, or the last reference that goes, cancels it and waits for
    its end, which is within a step. Its model stays until the stream has ended."""

    __slots__ = ("_core", "__weakref__")

    def __init__(self, core):
        self._core = core

    def __iter__(self):
        return self

    def __next__(self):
        return self._core.next()

    def result(self):
        """Waits for the end. Pieces that were not read are only in the result."""
        self._core.finish()
        return Result(self._core.result())

    def cancel(self):
        """Ends the stream within a step. False: it has ended already."""
        return self._core.cancel()

    def close(self):
        self._core.abandon()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def pause(self):
        """As runnel.Stream.pause: whoever reads waits then until another thread calls resume()."""
        return self._core.pause(True)

    def resume(self):
        return self._core.pause(False)

    def choose(self, place):
        """Makes the choice for which `choose` has returned CHOOSE_LATER, from another thread."""
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
