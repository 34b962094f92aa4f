"""Event loops other than asyncio's own, and several of them."""

import asyncio
import threading

import anyio
import pytest
import runnel
import trio
import uvloop
from conftest import MODEL

PROMPT = "Once upon a time"


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
