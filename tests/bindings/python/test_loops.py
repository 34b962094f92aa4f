"""Event loops other than asyncio's own, and several of them."""

import asyncio
import contextvars
import gc
import selectors
import sys
import threading
import time

import anyio
import pytest
import runnel
import trio
import uvloop
from conftest import MODEL

PROMPT = "Once upon a time"
ENDLESS = {"max_tokens": -1, "ignore_eos": 2, "context_keep": 0}


async def say():
    """What a program does, in terms of no loop in particular."""
    async with runnel.Engine(compute_threads=1) as engine:
        fractions = []
        model = await engine.load_model(MODEL, on_progress=fractions.append)
        pieces = [piece.text async for piece in model.stream(PROMPT, max_tokens=30)]
        result = await model.generate(PROMPT, max_tokens=30)
        assert "".join(pieces) == result.text and fractions[-1] == 1
        async for _ in model.stream(PROMPT, ignore_eos=2, context_keep=0):
            break
        async with model.stream(PROMPT, ignore_eos=2, context_keep=0) as stream:
            await stream.__anext__()
        with anyio.move_on_after(0.05):
            await model.generate(PROMPT, ignore_eos=2, context_keep=0)
        while engine.stats().streams:
            await anyio.sleep(0.001)
        with pytest.raises(runnel.FormatError):
            await engine.load_model(__file__)
        assert engine.metrics().cancelled == 3
        return result.text


def test_all_loops_say_the_same():
    texts = [
        asyncio.run(say()),
        uvloop.new_event_loop().run_until_complete(say()),
        trio.run(say),
        anyio.run(say, backend="asyncio"),
        anyio.run(say, backend="trio"),
        anyio.run(say, backend="asyncio", backend_options={"use_uvloop": True}),
    ]
    assert texts[0] and len(set(texts)) == 1


def test_one_engine_for_loops_one_after_another():
    engine = runnel.Engine(compute_threads=1)
    models = []

    async def load():
        models.append(await engine.load_model(MODEL))

    async def read():
        return "".join([piece.text async for piece in models[0].stream(PROMPT, max_tokens=20)])

    asyncio.run(load())
    texts = {asyncio.run(read()), trio.run(read), asyncio.run(read()), uvloop.new_event_loop().run_until_complete(read())}
    assert len(texts) == 1
    engine.close()


def test_one_engine_for_loops_of_several_threads_and_blocking_calls():
    engine = runnel.Engine(compute_threads=1)
    texts, lock = [], threading.Lock()

    async def read(model, turns):
        for _ in range(turns):
            text = "".join([piece.text async for piece in model.stream(PROMPT, max_tokens=20)])
            with lock:
                texts.append(text)

    async def load():
        return await engine.load_model(MODEL)

    model = asyncio.run(load())
    threads = [threading.Thread(target=runner, args=(read, model, 20)) for runner in
               [lambda *a: asyncio.run(a[0](*a[1:])), lambda *a: asyncio.run(a[0](*a[1:])), lambda *a: trio.run(*a)]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 60 and len(set(texts)) == 1
    engine.close()


def test_trio_ends_with_streams_that_run():
    async def leave():
        engine = runnel.Engine(compute_threads=1)
        model = await engine.load_model(MODEL)
        stream = model.stream(PROMPT, ignore_eos=2, context_keep=0)
        await stream.__anext__()
        return engine, stream

    engine, stream = trio.run(leave)
    engine.close()
    with pytest.raises(runnel.CancelledError):
        trio.run(stream.result)


LOOPS = {
    "asyncio": lambda function: asyncio.run(function()),
    "uvloop": lambda function: uvloop.new_event_loop().run_until_complete(function()),
    "trio": trio.run,
}


async def none_left(engine):
    while engine.stats().streams:
        await anyio.sleep(0.001)


@pytest.mark.parametrize("run", LOOPS.values(), ids=LOOPS)
def test_what_cancels_in_each_loop(run):
    """A task group with one that fails, scopes with a time limit, an exception in the body: no stream goes on."""
    async def read(stream, event=None):
        async for _ in stream:
            if event is not None:
                event.set()

    async def fail(begun):
        await begun.wait()
        raise ZeroDivisionError

    async def cases():
        async with runnel.Engine(compute_threads=1) as engine:
            model = await engine.load_model(MODEL)
            streams = [model.stream(PROMPT, **ENDLESS) for _ in range(4)]
            begun = anyio.Event()
            with pytest.raises(BaseException) as raised:
                async with anyio.create_task_group() as group:
                    for stream in streams:
                        group.start_soon(read, stream, begun)
                    group.start_soon(fail, begun)
            errors = getattr(raised.value, "exceptions", (raised.value,))
            assert [type(error) for error in errors] == [ZeroDivisionError]
            for stream in streams:
                assert (await stream.result()).finish == "cancelled"
            stream = model.stream(PROMPT, **ENDLESS)
            with anyio.move_on_after(0.02) as scope:
                await read(stream)
            assert scope.cancel_called and (await stream.result()).finish == "cancelled"
            stream = model.stream(PROMPT, **ENDLESS)
            with pytest.raises(TimeoutError):
                with anyio.fail_after(0.02):
                    await stream.result()
            stream = model.stream(PROMPT, **ENDLESS)
            with anyio.CancelScope(shield=True):  # a scope that is not cancelled changes nothing
                assert (await stream.__anext__()).kind == "token"
            with pytest.raises(KeyError):
                async for piece in stream:
                    raise KeyError(piece.text)
            assert not stream.ended  # its reference is still here
            del stream
            await none_left(engine)
            assert (await model.generate(PROMPT, max_tokens=3, ignore_eos=2)).usage.completion_tokens == 3

    run(cases)


@pytest.mark.parametrize("run", LOOPS.values(), ids=LOOPS)
def test_closing_that_is_cancelled_closes(run):
    """Whatever else runs on the engine ends, and does not wait for ever."""
    async def cases():
        engine = runnel.Engine(compute_threads=1)
        model = await engine.load_model(MODEL)
        ended = []

        async def other():
            with pytest.raises(runnel.CancelledError):
                await model.generate(PROMPT, **ENDLESS)
            ended.append(True)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(other)
            while engine.stats().streams < 3:
                await anyio.sleep(0.001)
            with anyio.CancelScope() as scope:
                scope.cancel()
                await engine.aclose()
                assert False, "what cancels comes behind the end"
            assert engine.closed
        assert ended == [True] * 3

    run(cases)


@pytest.mark.parametrize("run", LOOPS.values(), ids=LOOPS)
def test_contexts_and_subclasses_in_each_loop(run):
    name = contextvars.ContextVar("name")

    class Named(runnel.Engine):
        def __init__(self, **options):
            super().__init__(**options)
            self.said = []

        async def load_model(self, path, **options):
            self.said.append(path)
            return await super().load_model(path, **options)

    class Mine(runnel.Stream):
        async def texts(self):
            async for piece in self:
                yield piece.text

    async def cases():
        async with Named(compute_threads=1) as engine:
            model = await engine.load_model(MODEL)
            assert engine.said == [MODEL]
            seen = []

            async def read(index):
                name.set(index)
                async for _ in model.stream(PROMPT, max_tokens=20, ignore_eos=2, seed=index):
                    seen.append(name.get() == index)

            async with anyio.create_task_group() as group:
                for index in range(8):
                    group.start_soon(read, index)
            assert seen == [True] * 160 and name.get(None) is None
            begun = model.stream(PROMPT, max_tokens=20, ignore_eos=2)
            texts = [text async for text in Mine(begun._core, begun._host).texts()]
            assert "".join(texts) == (await begun.result()).text

    run(cases)


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_loop_that_is_closed_with_streams_open(make):
    """Its tasks were never cancelled; the engine serves other loops, and ends."""
    engine = runnel.Engine(compute_threads=1)
    loop = make()
    model = loop.run_until_complete(engine.load_model(MODEL))
    held = []

    async def read(stream):
        async for piece in stream:
            held.append(piece)

    async def begin():
        tasks = [asyncio.ensure_future(read(model.stream(PROMPT, **ENDLESS))) for _ in range(8)]
        while len(held) < 50:
            await asyncio.sleep(0.001)
        return tasks

    tasks = loop.run_until_complete(begin())
    loop.close()

    async def after():
        return (await model.generate(PROMPT, max_tokens=5, ignore_eos=2)).usage.completion_tokens

    async def others_end():
        while engine.stats().streams:
            assert await after() == 5

    assert asyncio.run(after()) == 5 and engine.stats().streams == 8
    for task in tasks:
        task._log_destroy_pending = False
    del tasks, task
    gc.collect()
    asyncio.run(others_end())
    engine.close()


stopped = []


def run_and_stop(function):
    """The loop is not closed: it might run again."""
    stopped.append(asyncio.new_event_loop())
    return stopped[-1].run_until_complete(function())


@pytest.mark.parametrize("blocks", [False, True], ids=["loop", "blocking"])
@pytest.mark.parametrize("run", [LOOPS["asyncio"], trio.run, run_and_stop], ids=["asyncio", "trio", "stopped"])
def test_places_that_a_loop_leaves_when_it_ends(run, blocks):
    """All that the engine has; nothing else runs when the next loop asks, or a blocking call."""
    engine = runnel.Engine(compute_threads=1, max_streams=4)
    models = []

    async def leave():
        models.append(await engine.load_model(MODEL))
        streams = [models[0].stream(PROMPT, **ENDLESS) for _ in range(4)]
        await streams[0].__anext__()

    async def ask():
        while True:
            try:
                return await models[0].generate(PROMPT, max_tokens=5, ignore_eos=2)
            except runnel.BusyError:  # until they have ended, which is within a step
                await anyio.sleep(0.001)

    def ask_blocking():
        while True:
            try:
                model = runnel.blocking.Model(engine, models[0]._core)
                return model.generate(PROMPT, max_tokens=5, ignore_eos=2)
            except runnel.BusyError:
                time.sleep(0.001)

    run(leave)
    gc.collect()
    assert (ask_blocking() if blocks else run(ask)).usage.completion_tokens == 5
    engine.close()
    while stopped:
        stopped.pop().close()


class Counting:
    """An engine that counts how often a loop takes events of it."""

    def __init__(self, core):
        self._core, self.n = core, 0

    def __getattr__(self, name):
        return getattr(self._core, name)

    def dispatch(self, host, most):
        self.n += 1
        return self._core.dispatch(host, most)


def end_early(stream, options):
    """A blocking stream, which the engine's end ends."""
    with pytest.raises((runnel.CancelledError, runnel.ClosedError)):
        list(stream(PROMPT, **options))


def drawn_elsewhere(run):
    """A request on another thread, inside whose draw that thread is until the second event is set."""
    asked, go = threading.Event(), threading.Event()

    def choose(candidates):
        asked.set()
        go.wait()

    thread = threading.Thread(target=run, args=(dict(max_tokens=3, ignore_eos=2, temperature=1, choose=choose),))
    thread.start()
    asked.wait()
    return thread, go


@pytest.mark.parametrize("run", LOOPS.values(), ids=LOOPS)
def test_a_loop_rests_while_another_one_draws(run):
    """The other thread is inside the engine's dispatch: this loop does not spin, and has its events afterwards."""
    engine = runnel.Engine(compute_threads=1)
    models = []

    async def load():
        models.append(await engine.load_model(MODEL))

    asyncio.run(load())

    async def draw(options):
        return await models[0].generate(PROMPT, **options)

    thread, go = drawn_elsewhere(lambda options: asyncio.run(draw(options)))

    async def other():
        host, made = engine._hosts.current(), engine.stats().tokens
        core = host._core = Counting(host._core)
        stream = models[0].stream(PROMPT, max_tokens=5, ignore_eos=2)
        while engine.stats().tokens < made + 4:  # its first events wait to be taken
            await anyio.sleep(0.001)
        before = core.n
        for _ in range(200):
            await anyio.sleep(0)
        wakes = core.n - before
        go.set()
        assert (await stream.result()).usage.completion_tokens == 5
        return wakes

    assert run(other) < 5
    thread.join()
    engine.close()


@pytest.mark.parametrize("run", LOOPS.values(), ids=LOOPS)
def test_a_loop_goes_on_while_closing_waits(run):
    """For a call on another thread, inside whose draw that thread is."""
    engine = runnel.Engine(compute_threads=1)
    models = []

    async def load():
        models.append(await engine.load_model(MODEL))

    asyncio.run(load())
    thread, go = drawn_elsewhere(lambda options: end_early(
        runnel.blocking.Model(engine, models[0]._core).stream, options))
    closer = threading.Thread(target=engine.close)

    async def other():
        stream = models[0].stream(PROMPT, **ENDLESS)
        await stream.__anext__()
        closer.start()
        while not engine.closed:
            await anyio.sleep(0.001)
        with pytest.raises(runnel.ClosedError):
            models[0].stream(PROMPT)
        with anyio.fail_after(300):
            for _ in range(300):  # more than may wait for a reader
                await stream.__anext__()
        go.set()
        with pytest.raises(runnel.CancelledError):
            while True:
                await stream.__anext__()

    run(other)
    closer.join()
    thread.join()


class Turns(selectors.DefaultSelector):
    """Sets the event when the loop rests, or has turned so often without."""

    event, n, rests = None, 0, False

    def select(self, timeout=None):
        if self.event is not None and not self.event.is_set():
            self.n += 1
            self.rests = timeout != 0
            if self.rests or self.n == 1000:
                self.event.set()
        return super().select(timeout)


def test_a_loop_rests_while_a_scope_of_anyio_that_is_cancelled_closes_an_engine():
    turns = Turns()

    async def cases():
        engine = runnel.Engine(compute_threads=1)
        model = await engine.load_model(MODEL)
        thread, go = drawn_elsewhere(lambda options: end_early(
            runnel.blocking.Model(engine, model._core).stream, options))
        with anyio.CancelScope() as scope:
            scope.cancel()
            turns.event = go
            await engine.aclose()
            assert False, "what cancels comes behind the end"
        assert engine.closed and turns.rests
        await asyncio.sleep(0)  # nothing is left that cancels
        thread.join()

    loop = asyncio.SelectorEventLoop(turns)
    loop.run_until_complete(cases())
    loop.close()


class Raising:
    """An engine whose log raises what is no Exception when events are delivered."""

    def __init__(self, core):
        self._core = core

    def __getattr__(self, name):
        return getattr(self._core, name)

    def dispatch(self, host, most):
        raise SystemExit(3)


@pytest.mark.parametrize("run", LOOPS.values(), ids=LOOPS)
def test_what_raises_while_a_request_begins_leaves_nothing(run):
    async def cases():
        async with runnel.Engine(compute_threads=1) as engine:
            model, host = await engine.load_model(MODEL), engine._hosts.current()
            core = host._core
            while host._running:
                await anyio.sleep(0.001)
            await anyio.sleep(0)
            host._core = Raising(core)
            with pytest.raises(SystemExit):
                model.stream(PROMPT)
            assert host._running == 0 and engine.stats().streams == 0
            host._core = core
            assert (await model.generate(PROMPT, max_tokens=5, ignore_eos=2)).usage.completion_tokens == 5

    run(cases)


@pytest.mark.parametrize("run", LOOPS.values(), ids=LOOPS)
def test_draining_leaves_choose_on_the_loop(run):
    async def cases():
        async with runnel.Engine(compute_threads=1) as engine:
            model, threads, results = await engine.load_model(MODEL), [], []

            def choose(candidates):
                threads.append(threading.get_ident())

            async def read(stream):
                results.append(await stream.result())

            async with anyio.create_task_group() as group:
                group.start_soon(read, model.stream(PROMPT, max_tokens=200, ignore_eos=2, temperature=1, choose=choose))
                await engine.drain()
                assert engine.stats().streams == 0
            assert results[0].usage.completion_tokens == len(threads) == 200
            assert set(threads) == {threading.get_ident()}

    run(cases)


def test_draining_waits_for_a_choice_that_a_task_makes():
    async def cases():
        async with runnel.Engine(compute_threads=1) as engine:
            model, tasks = await engine.load_model(MODEL), set()

            async def decide():
                await asyncio.sleep(0)
                stream.choose(0)

            def choose(candidates):
                tasks.add(asyncio.get_running_loop().create_task(decide()))
                return runnel.CHOOSE_LATER

            stream = model.stream(PROMPT, max_tokens=60, ignore_eos=2, temperature=1, choose=choose)
            result, _ = await asyncio.gather(stream.result(), engine.drain())
            assert len(result.tokens) == len(tasks) == 60

    asyncio.run(cases())


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_is_no_exception_reaches_a_task_of_trio(kind):
    """Of functions that the loop calls, where it would be trio's internal error."""
    raises = []

    def told(*_):
        if raises:
            raise raises.pop()

    def progress(fraction):
        raise kind

    async def cases():
        async with runnel.Engine(compute_threads=1, on_log=told, on_trace=told, log_level="debug") as engine:
            model = await engine.load_model(MODEL)
            stream = model.stream(PROMPT, **ENDLESS)
            raises.append(kind)
            with pytest.raises(kind):  # this task waits
                async for _ in stream:
                    pass
            with pytest.raises(kind):
                await engine.load_model(MODEL, on_progress=progress)
            stream = model.stream(PROMPT, **ENDLESS)
            raises.append(kind)
            while raises:
                await trio.sleep(0.001)
            with pytest.raises(kind):  # nobody waited
                model.stream(PROMPT)
            await stream.aclose()
            assert (await model.generate(PROMPT, max_tokens=5, ignore_eos=2)).usage.completion_tokens == 5
            await none_left(engine)

    trio.run(cases)


@pytest.mark.parametrize("run", [LOOPS["asyncio"], trio.run], ids=["asyncio", "trio"])
def test_an_engine_keeps_nothing_of_loops_that_have_ended(run):
    engine = runnel.Engine(compute_threads=1)
    models = []

    async def load():
        models.append(await engine.load_model(MODEL))

    async def ask():
        await models[0].generate(PROMPT, max_tokens=1)

    run(load)
    for _ in range(5):
        run(ask)
    gc.collect()
    assert len(engine._hosts._hosts) == 0
    engine.close()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.timeout and TaskGroup")
def test_timeouts_and_groups_of_asyncio():
    async def cases():
        async with runnel.Engine(compute_threads=1) as engine:
            model = await engine.load_model(MODEL)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    async for _ in model.stream(PROMPT, **ENDLESS):
                        pass
            with pytest.raises(BaseExceptionGroup) as raised:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(model.generate(PROMPT, **ENDLESS)) for _ in range(3)]
                    group.create_task(model.generate(PROMPT, temperature=-1))
            assert [type(error) for error in raised.value.exceptions] == [runnel.InvalidError]
            assert all(task.cancelled() for task in tasks)
            await none_left(engine)

    asyncio.run(cases())
