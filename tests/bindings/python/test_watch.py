"""How long pieces of many streams gather before they wake a loop of asyncio's (native/watch.c). Where a test has holds
that last for ever, a hold that ought not to be is a test that never ends."""

import asyncio
import select

import pytest
import runnel
from runnel import _hosts, _runnel

from conftest import MODEL

PROMPT = "Once upon a time"
ENDLESS = dict(max_tokens=-1, ignore_eos=2, context_keep=0)
#: with so many there is a hold: FEWEST_STREAMS
MANY = 16


def hold_for_ever(monkeypatch):
    def opened(host, descriptor, gather_us, most_us):
        return _runnel.Watch._open(host, descriptor, 10**12, 10**13)

    monkeypatch.setattr(_hosts.AsyncioHost, "_open", opened)


async def loaded(engine):
    return await engine.load_model(MODEL, context_tokens=256, kv_bytes=256 << 20)


def begin(model, n, **options):
    return [model.stream(PROMPT, seed=seed, temperature=1, **options) for seed in range(n)]


async def read(stream):
    return "".join([piece.text async for piece in stream])


async def finish(streams):
    return await asyncio.wait_for(asyncio.gather(*map(read, streams)), 300)


class Held:
    """Many streams that are read, and held. To be closed with the engine."""

    def __init__(self, engine, model):
        self.count = 0
        self.engine, self.model = engine, model  # without a reference to its model a stream is cancelled
        self.host = engine._hosts.current()
        self.tasks = [asyncio.create_task(self._read(stream)) for stream in begin(model, MANY, **ENDLESS)]

    async def _read(self, stream):
        async for _ in stream:
            self.count += 1

    async def begun(self):
        while not self.host._holds:
            await asyncio.sleep(0)
        return self

    async def stays(self):
        """Events wait in the engine, and no turn of the loop has them."""
        poll = select.poll()
        poll.register(self.engine._core.fd(), select.POLLIN)
        assert poll.poll(300000)
        before = self.count
        for _ in range(100):
            await asyncio.sleep(0)
        return self.host._holds and self.count == before

    async def close(self):
        await self.engine.aclose()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_pieces_of_many_streams_are_held(monkeypatch):
    hold_for_ever(monkeypatch)
    engine = runnel.Engine(compute_threads=1)
    held = await asyncio.wait_for(Held(engine, await loaded(engine)).begun(), 300)
    assert await held.stays()
    await held.close()


async def test_what_begins_ends_a_hold(monkeypatch):
    """A first token, and a load, come while others' pieces would be held for ever."""
    hold_for_ever(monkeypatch)
    engine = runnel.Engine(compute_threads=1)
    model = await loaded(engine)
    held = await asyncio.wait_for(Held(engine, model).begun(), 300)
    piece = await asyncio.wait_for(model.stream(PROMPT, **ENDLESS).__anext__(), 300)
    assert piece.kind == "token"
    other = await asyncio.wait_for(engine.load_model(MODEL), 300)
    assert other.info().context_tokens > 0
    await held.close()


async def test_few_streams_are_not_held(monkeypatch):
    hold_for_ever(monkeypatch)
    async with runnel.Engine(compute_threads=1) as engine:
        model = await loaded(engine)
        assert all(await finish(begin(model, MANY - 1, max_tokens=60, ignore_eos=2)))


async def test_a_stream_that_python_draws_for_is_never_held(monkeypatch):
    hold_for_ever(monkeypatch)
    async with runnel.Engine(compute_threads=1) as engine:
        model = await loaded(engine)
        drawn = model.stream(PROMPT, temperature=1, choose=lambda candidates: runnel.CHOOSE_DRAW, **ENDLESS)
        reader = asyncio.create_task(read(drawn))
        assert all(await finish(begin(model, MANY, max_tokens=60, ignore_eos=2)))
        drawn.cancel()
        assert await asyncio.wait_for(reader, 300)


async def test_what_a_dispatch_leaves_behind_is_not_held(monkeypatch):
    hold_for_ever(monkeypatch)
    monkeypatch.setattr(_hosts, "EVENTS_PER_TURN", 1)
    async with runnel.Engine(compute_threads=1) as engine:
        model = await loaded(engine)
        assert all(await finish(begin(model, MANY, max_tokens=30, ignore_eos=2)))


async def test_without_gathering_nothing_is_held(monkeypatch):
    monkeypatch.setattr(_hosts, "MOST_HELD_US", 10**13)
    async with runnel.Engine(compute_threads=1, gather_us=0) as engine:
        model = await loaded(engine)
        assert all(await finish(begin(model, 4 * MANY, max_tokens=30, ignore_eos=2)))


@pytest.mark.parametrize("most_us", [None, 0])
async def test_held_pieces_come(monkeypatch, most_us):
    """By the timer, all of them, to each stream its own; with 0 nothing is ever held."""
    holds = []
    if most_us is not None:
        monkeypatch.setattr(_hosts, "MOST_HELD_US", most_us)
    async with runnel.Engine(compute_threads=1) as engine:
        model, host = await loaded(engine), engine._hosts.current()
        alone = await finish(begin(model, 1, max_tokens=60, ignore_eos=2))

        async def watched(stream):
            texts = []
            async for piece in stream:
                texts.append(piece.text)
                holds.append(host._holds)
            return "".join(texts)

        streams = begin(model, 4 * MANY, max_tokens=60, ignore_eos=2)
        texts = await asyncio.wait_for(asyncio.gather(*map(watched, streams)), 300)
        results = [await stream.result() for stream in streams]
        assert texts == [result.text for result in results]
        assert texts[0] == alone[0]
        assert most_us is None or not any(holds)
        assert host._running == 0
