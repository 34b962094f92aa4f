"""How a task of asyncio waits for a piece: with one future for all of its waits, and with what else may stand for it."""

import asyncio
import asyncio.futures
import asyncio.tasks
import contextvars
import gc
import select
import sys
import weakref

import pytest
import runnel
from conftest import MODEL

PROMPT = "Once upon a time"
ENDLESS = {"max_tokens": -1, "ignore_eos": 2, "context_keep": 0}


class Owner:
    """Holds a stream, and is held by it."""

    def choose(self, candidates):
        return None

    def progress(self, fraction):
        return None


async def test_a_stream_that_its_own_function_holds_is_collected(engine, model):
    """Nobody else has it: it is cancelled, and its slot is free again."""
    for reads in (False, True):
        owner = Owner()
        owner.stream = model.stream(PROMPT, temperature=1, choose=owner.choose, **ENDLESS)
        if reads:
            await owner.stream.__anext__()
        gone = weakref.ref(owner)
        gc.collect()
        assert gone() is not None and not owner.stream.ended
        del owner
        gc.collect()
        while engine.streams():
            await asyncio.sleep(0.001)
        gc.collect()
        assert gone() is None


async def test_a_model_that_its_own_on_progress_holds_is_collected(engine, model_path):
    owner = Owner()
    owner.model = await engine.load_model(model_path, on_progress=owner.progress)
    gone = weakref.ref(owner)
    owner.stream = owner.model.stream(PROMPT, **ENDLESS)  # it holds its model while it runs
    gc.collect()
    assert gone() is not None
    del owner
    gc.collect()
    assert gone() is None
    while engine.streams():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("whole", [False, True])
async def test_a_task_that_only_its_stream_holds_is_not_collected(model, whole):
    """asyncio itself has but a weak reference to a task that waits."""
    loop = asyncio.get_running_loop()
    told = loop.create_future()

    async def read():
        stream, n = model.stream(PROMPT, max_tokens=30, ignore_eos=2), 0
        if whole:
            n = len((await stream.result()).tokens)
        else:
            async for piece in stream:
                n += piece.kind == "token"
        told.set_result(n)

    def collect():
        gc.collect()
        if not told.done():
            loop.call_soon(collect)

    asyncio.create_task(read())
    loop.call_soon(collect)
    assert await told == 30


class Counting(asyncio.SelectorEventLoop):
    """A loop that counts its futures."""

    made = 0

    def create_future(self):
        self.made += 1
        return super().create_future()


class MyFuture(asyncio.Future):
    """Not asyncio's own type, so that nothing is known of it."""


class Foreign(Counting):
    def create_future(self):
        self.made += 1
        return MyFuture(loop=self)


class Plain(Counting):
    """A loop of Python alone."""

    def create_future(self):
        self.made += 1
        return asyncio.futures._PyFuture(loop=self)


class Tasks(Counting):
    """A loop whose tasks are of Python, as some debuggers make them."""

    def create_task(self, coroutine, **options):
        return asyncio.tasks._PyTask(coroutine, loop=self, **options)


def run(loop, function):
    try:
        return loop.run_until_complete(function(loop))
    finally:
        loop.close()


async def read_all(loop):
    """How many futures that took, besides those of the loop itself."""
    async with runnel.Engine(compute_threads=1, gather_us=0) as engine:
        model = await engine.load_model(MODEL)
        expected = await model.generate(PROMPT, max_tokens=40, ignore_eos=2)
        stream, before = model.stream(PROMPT, max_tokens=40, ignore_eos=2), loop.made
        text = [piece.text async for piece in stream]
        made = loop.made - before
        assert "".join(text) == expected.text
        return made


@pytest.mark.parametrize("kind", [Counting, Tasks, Plain, Foreign])
def test_all_kinds_of_futures_and_tasks(kind):
    made = run(kind(), read_all)
    if kind is Counting and sys.version_info < (3, 14):
        assert made <= 1


def drawn_by_hand(model, **options):
    """A stream that has a piece each time that `go` is called, and none before."""
    begun = asyncio.Event()

    def choose(candidates):
        begun.set()
        return runnel.CHOOSE_LATER

    stream = model.stream(PROMPT, temperature=1, choose=choose, ignore_eos=2, **options)

    async def go():
        await begun.wait()
        begun.clear()
        stream.choose(0)

    return stream, go


async def test_tasks_that_take_turns_have_their_own_contexts(engine, model):
    """One stream, whose pieces go to one task after another: each wakes as itself."""
    name = contextvars.ContextVar("name")
    stream, go = drawn_by_hand(model, max_tokens=12)
    seen = []

    async def one(index):
        name.set(index)
        me = asyncio.current_task()
        await stream.__anext__()
        seen.append((index, name.get(), asyncio.current_task() is me))

    async def several(index):
        name.set(index)
        me = asyncio.current_task()
        for _ in range(2):
            await stream.__anext__()
            seen.append((index, name.get(), asyncio.current_task() is me))

    for index, kind in enumerate((one, several, one, one, several, several)):
        task = asyncio.create_task(kind(index))
        for _ in range(2 if kind is several else 1):
            await go()
            await asyncio.sleep(0)
        await task
    assert seen == [(index, index, True) for index in (0, 1, 1, 2, 3, 4, 4, 5, 5)]
    stream.cancel()


async def test_a_piece_that_comes_while_its_task_is_being_cancelled(engine, model):
    """The cancel was first: the task has it, and the stream ends."""
    stream, go = drawn_by_hand(model, max_tokens=5)
    await go()
    await stream.__anext__()
    task = asyncio.create_task(stream.__anext__())
    await asyncio.sleep(0)
    await go()  # the piece is on its way: no turn of the loop from here on
    task.cancel()
    for _ in range(3):
        select.select([engine._core.fd()], [], [], 1)
        engine._core.dispatch(stream._host, 256)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await stream.result()).finish == "cancelled"


async def test_a_task_that_goes_on_after_it_was_cancelled(engine, model):
    """The next wait has a future of its own."""
    first, go_first = drawn_by_hand(model, max_tokens=5)
    second, go_second = drawn_by_hand(model, max_tokens=5)
    said = []

    async def read():
        try:
            await first.__anext__()
        except asyncio.CancelledError:
            said.append("cancelled")
        said.append((await second.__anext__()).kind)
        try:
            await second.__anext__()
        except asyncio.CancelledError:
            said.append("again")
        with pytest.raises(StopAsyncIteration):
            await second.__anext__()

    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    task.cancel()
    await go_second()
    while len(said) < 2:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0)
    task.cancel()
    await task
    assert said == ["cancelled", "token", "again"]


async def test_a_stream_keeps_no_task(engine, model):
    """One that has ended goes with its last reference, though the stream it read from is still there."""
    stream = model.stream(PROMPT, **ENDLESS)

    async def read():
        for _ in range(20):
            await stream.__anext__()

    gc.disable()
    try:
        task = asyncio.create_task(read())
        await task
        gone = weakref.ref(task)
        del task
        await asyncio.sleep(0)
        assert gone() is None
    finally:
        gc.enable()
    await stream.aclose()


async def test_a_piece_that_is_kept_awaited_keeps_its_coroutine(engine, model):
    """A coroutine that somebody holds is not used for the next piece."""
    stream = model.stream(PROMPT, max_tokens=10, ignore_eos=2)
    held = []
    for _ in range(5):
        held.append(stream.__anext__())
        await held[-1]
    assert len(set(map(id, held))) == 5
    for coroutine in held:
        with pytest.raises(RuntimeError, match="reuse"):
            await coroutine
    assert len([piece async for piece in stream]) == 5


async def test_the_stream_goes_while_its_coroutine_is_awaited(engine, model):
    stream, go = drawn_by_hand(model, max_tokens=5)
    coroutine = stream.__anext__()
    task = asyncio.create_task(coroutine)
    await asyncio.sleep(0)
    await go()
    gone = weakref.ref(stream)
    del stream, coroutine, go
    assert (await task).kind == "token"
    del task
    gc.collect()
    assert gone() is None
    while engine.stats().streams:
        await asyncio.sleep(0.001)


async def test_a_coroutine_that_has_given_its_piece_keeps_no_stream(engine, model):
    """Neither the one that is used for the next piece nor one beside it."""
    stream = model.stream(PROMPT, max_tokens=5, ignore_eos=2)
    held = [stream.__anext__() for _ in range(2)]
    for coroutine in held:
        await coroutine
    gone = weakref.ref(stream)
    del stream, coroutine
    gc.collect()
    assert gone() is None and len(held) == 2


async def test_a_task_that_awaits_the_future_itself(engine, model):
    """It goes on, though the coroutine that gave the future does not."""
    stream, go = drawn_by_hand(model, max_tokens=5)
    coroutine = stream.__anext__()
    future = coroutine.send(None)
    future._asyncio_future_blocking = False

    async def wait():
        return await future

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await go()
    assert await asyncio.wait_for(task, 1000) is None
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    assert ended.value.value.kind == "token"
    stream.cancel()


async def test_by_hand(engine, model):
    """Without a task: what a coroutine gives is a future of the loop, which is done when a piece has come."""
    stream, go = drawn_by_hand(model, max_tokens=5)
    coroutine = stream.__anext__()
    future = coroutine.send(None)
    assert isinstance(future, asyncio.Future) and future.get_loop() is asyncio.get_running_loop()
    assert future._asyncio_future_blocking and not future.done()
    future._asyncio_future_blocking = False
    await go()
    assert await asyncio.wait_for(future, 1000) is None
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    assert ended.value.value.kind == "token"
    stream.cancel()
