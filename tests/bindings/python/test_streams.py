"""Streams on an event loop: what they say, and how they end."""

import asyncio
import concurrent.futures
import contextvars
import gc
import random
import subprocess
import threading
import time

import pytest
import runnel
from conftest import UNDER_ASAN, resident_bytes

PROMPT = "Once upon a time"


async def none_left(engine):
    while engine.stats().streams:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("options", [
    {},
    {"temperature": 0.9, "top_p": 0.95, "seed": 7},
    {"temperature": 1.2, "top_k": 40, "seed": 11, "repetition_penalty": 1.1},
    {"temperature": 0.8, "seed": 5, "mirostat": 2},
])
async def test_text_is_the_programs(model, program, model_path, options):
    arguments = [program, "run", model_path, "-p", PROMPT, "-n", "60"]
    for name, value in options.items():
        arguments += ["--" + name.replace("_", "-"), str(value)]
    expected = subprocess.run(arguments, capture_output=True, check=True).stdout.decode().removesuffix("\n")
    pieces = [piece.text async for piece in model.stream(PROMPT, max_tokens=60, **options)]
    assert "".join(pieces) == expected
    result = await model.generate(PROMPT, max_tokens=60, **options)
    assert str(result) == expected and result.usage.completion_tokens == 60 and result.finish == "length"


async def test_pieces_and_result_agree(model):
    stream = model.stream(PROMPT, max_tokens=20, want_logprobs=True, n_top=3, want_progress=True)
    pieces = [piece async for piece in stream]
    result = await stream.result()
    tokens = [piece for piece in pieces if piece.kind == "token"]
    assert [piece for piece in pieces if piece.kind == "progress"][-1].prompt_done == result.usage.prompt_tokens
    assert [piece.token for piece in tokens] == list(result.tokens) and len(tokens) == 20
    assert [piece.logprob for piece in tokens] == list(result.logprobs)
    assert result.top == [piece.top for piece in tokens] and all(len(top) == 3 for top in result.top)
    assert "".join(map(str, pieces)) == result.text
    for piece in tokens:
        assert dict(piece.top).get(piece.token, piece.logprob) == piece.logprob


async def test_a_stream_that_has_been_read_is_over(model):
    stream = model.stream(PROMPT, max_tokens=3)
    assert len([piece async for piece in stream]) == 3
    assert [piece async for piece in stream] == [] and stream.ended and stream.cancel() is False


async def test_leaving_the_loop_cancels(engine, model):
    async for _ in model.stream(PROMPT, max_tokens=-1, ignore_eos=2, context_keep=0):
        break
    await none_left(engine)
    assert engine.metrics().cancelled == 1


async def test_leaving_the_loop_over_a_stream_that_has_a_name(engine, model):
    """It goes on, until it is closed."""
    options = {"max_tokens": -1, "ignore_eos": 2, "context_keep": 0}
    stream = model.stream(PROMPT, **options)
    async for _ in stream:
        break
    assert not stream.ended and (await stream.__anext__()).kind == "token"
    await stream.aclose()
    assert stream.ended
    async with model.stream(PROMPT, **options) as stream:
        async for _ in stream:
            break
    assert stream.ended and engine.metrics().cancelled == 2


async def test_a_cancelled_task_cancels_its_stream(engine, model):
    stream = model.stream(PROMPT, max_tokens=-1, ignore_eos=2, context_keep=0)

    begun = asyncio.Event()

    async def read():
        async for _ in stream:
            begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    result = await stream.result()
    assert result.finish == "cancelled" and result.usage.completion_tokens > 0
    await none_left(engine)


async def test_aclose_and_with_cancel(engine, model):
    async with model.stream(PROMPT, max_tokens=-1, ignore_eos=2, context_keep=0) as stream:
        piece = await stream.__anext__()
        assert piece.text
    assert stream.ended and engine.stats().streams == 0

    async def pieces():
        async for piece in model.stream(PROMPT, max_tokens=-1, ignore_eos=2, context_keep=0):
            yield piece

    generator = pieces()
    await generator.__anext__()
    await generator.aclose()
    gc.collect()
    await none_left(engine)


async def test_readers_of_one_stream_share_its_pieces(engine, model):
    """Each piece goes to one of them, in order, and all of them have the end."""
    whole = await model.generate(PROMPT, max_tokens=60, ignore_eos=2, seed=3)
    stream, came = model.stream(PROMPT, max_tokens=60, ignore_eos=2, seed=3), []

    async def read():
        return [came.append(piece) async for piece in stream]

    counts = await asyncio.wait_for(asyncio.gather(*(read() for _ in range(3))), 60)
    assert sum(map(len, counts)) == len(came)
    assert "".join(piece.text for piece in came) == whole.text


async def test_one_waits_for_the_end_while_another_reads(engine, model):
    stream = model.stream(PROMPT, max_tokens=-1, ignore_eos=2, context_keep=0)
    await stream.__anext__()

    async def read():
        return [piece async for piece in stream]

    readers = [asyncio.create_task(read()) for _ in range(2)]
    results = [asyncio.create_task(stream.result()) for _ in range(2)]
    await asyncio.sleep(0.01)
    await asyncio.wait_for(stream.aclose(), 60)
    for task in readers:
        assert isinstance(await asyncio.wait_for(task, 1000), list)
    for task in results:
        assert (await asyncio.wait_for(task, 1000)).finish == "cancelled"


async def test_a_reader_that_is_cancelled_leaves_the_others(engine, model):
    """It cancels the stream, as a reader does; the others read what has come and its end."""
    stream = model.stream(PROMPT, max_tokens=-1, ignore_eos=2, context_keep=0)

    async def read():
        return [piece async for piece in stream]

    tasks = [asyncio.create_task(read()) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    for task in tasks[1:]:
        await asyncio.wait_for(task, 1000)
    assert (await stream.result()).finish == "cancelled"
    await none_left(engine)


async def test_the_next_piece_is_a_coroutine(engine, model):
    stream = model.stream(PROMPT, max_tokens=20, ignore_eos=2)
    assert asyncio.iscoroutine(stream.__anext__())
    first = await asyncio.wait_for(stream.__anext__(), 60)
    second = await asyncio.create_task(stream.__anext__())
    third, fourth = await asyncio.gather(stream.__anext__(), stream.__anext__())
    rest = [piece async for piece in stream]
    texts = [piece.text for piece in (first, second, third, fourth, *rest)]
    assert "".join(texts) == (await stream.result()).text
    coroutine = stream.__anext__()
    with pytest.raises(StopAsyncIteration):
        await coroutine
    with pytest.raises(RuntimeError, match="reuse"):
        await coroutine
    unused = stream.__anext__()
    unused.close()
    with pytest.raises(ZeroDivisionError):
        unused.throw(ZeroDivisionError)
    with pytest.raises(ZeroDivisionError, match="so"):
        unused.throw(ZeroDivisionError("so"))


async def test_a_time_limit_of_a_piece_cancels(engine, model):
    began = asyncio.Event()

    def choose(candidates):
        began.set()
        return runnel.CHOOSE_LATER  # nobody makes the choice

    stream = model.stream(PROMPT, max_tokens=5, temperature=1, choose=choose)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(stream.__anext__(), 0.05)
    assert (await stream.result()).finish == "cancelled"
    began.clear()
    task = asyncio.create_task(model.stream(PROMPT, max_tokens=5, temperature=1, choose=choose).__anext__())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await none_left(engine)


async def test_a_reader_keeps_its_context(engine, model):
    """Context variables, and the task that runs, as in any coroutine."""
    name = contextvars.ContextVar("name")

    async def read(index):
        name.set(index)
        task = asyncio.current_task()
        async for _ in model.stream(PROMPT, max_tokens=20, ignore_eos=2, seed=index):
            assert name.get() == index and asyncio.current_task() is task
        return name.get()

    assert await asyncio.gather(*(read(index) for index in range(8))) == list(range(8))
    assert name.get(None) is None


async def test_a_reader_may_begin_and_end_others(engine, model):
    """What a task does when its piece comes is outside of the dispatch that brought it."""
    async def read(depth):
        async for piece in model.stream(PROMPT, max_tokens=3, ignore_eos=2):
            if depth > 0:
                await read(depth - 1)
                model.stream(PROMPT).cancel()
        return piece

    assert (await read(3)).text is not None
    await none_left(engine)


async def test_news_may_gather(model_path):
    with pytest.raises(runnel.InvalidError, match="gather_us"):
        runnel.Engine(gather_us=1000001)
    texts = []
    for gather_us in (0, None, 20000):
        async with runnel.Engine(compute_threads=1, gather_us=gather_us) as engine:
            model = await engine.load_model(model_path)
            pieces = [piece async for piece in model.stream(PROMPT, max_tokens=40, seed=5, temperature=1)]
            texts.append("".join(piece.text for piece in pieces))
    assert texts[0] == texts[1] == texts[2] != ""


async def test_the_last_reference_cancels(engine, model):
    stream = model.stream(PROMPT, max_tokens=-1, ignore_eos=2, context_keep=0)
    del stream
    await none_left(engine)
    assert engine.metrics().cancelled == 1


async def test_a_reader_that_is_behind_pauses_its_stream_alone(engine, model):
    behind = model.stream(PROMPT, max_tokens=900, ignore_eos=2)
    await behind.__anext__()
    reader = await model.generate(PROMPT, max_tokens=300, ignore_eos=2)
    assert reader.usage.completion_tokens == 300
    ready = 0
    for _ in range(50):
        await asyncio.sleep(0.001)
        ready = engine.streams()[0].tokens
    assert ready < 400  # 64 pieces that wait here, and a window of the engine's
    assert 1 + len([piece async for piece in behind]) == 900


async def test_a_stream_that_is_paused_while_its_reader_is_behind_stays_so(engine, model):
    stream = model.stream(PROMPT, max_tokens=900, ignore_eos=2)
    while not engine.streams()[0].paused:
        await asyncio.sleep(0.001)
    assert stream.pause()
    count = 0
    while stream._core.pop() is not None:
        count += 1
    assert engine.streams()[0].paused and count < 900
    assert stream.resume() and not engine.streams()[0].paused
    assert count + len([piece async for piece in stream]) == 900
    assert stream.pause() is False and stream.resume() is False  # it has ended


async def test_a_stream_that_is_resumed_while_its_reader_is_behind_stays_paused(engine, model):
    """Until the reader has caught up: pieces that wait do not become more and more."""
    stream = model.stream(PROMPT, max_tokens=900, ignore_eos=2)
    while not engine.streams()[0].paused:
        await asyncio.sleep(0.001)
    assert stream.pause() and stream.resume()
    assert engine.streams()[0].paused
    assert len([piece async for piece in stream]) == 900


def test_a_blocking_stream_pauses(blocking_model):
    stream = blocking_model.stream(PROMPT, max_tokens=200, ignore_eos=2)
    assert next(stream) and stream.pause() and blocking_model._engine.streams()[0].paused
    assert stream.resume() and len(list(stream)) == 199
    assert stream.pause() is False and stream.resume() is False


async def test_a_stream_keeps_its_model_until_its_end(engine, model_path):
    async def begin():
        model = await engine.load_model(model_path)
        return model.stream(PROMPT, max_tokens=20, ignore_eos=2)

    stream = await begin()
    gc.collect()
    assert len([piece async for piece in stream]) == 20
    while engine.stats().models:
        await asyncio.sleep(0.001)
    assert (await stream.result()).finish == "length"


def test_a_blocking_stream_keeps_its_model_until_its_end(model_path):
    with runnel.blocking.Engine(compute_threads=1) as engine:
        stream = engine.load_model(model_path).stream(PROMPT, max_tokens=20, ignore_eos=2)
        gc.collect()
        assert len(list(stream)) == 20 and stream.result().finish == "length"
        stream = engine.load_model(model_path).stream(PROMPT, max_tokens=-1, ignore_eos=2, context_keep=0)
        next(stream)
        stream.close()
        while engine.stats().models:
            time.sleep(0.001)
        assert stream.ended


async def test_errors_are_exceptions_with_their_names(engine, model, model_path):
    with pytest.raises(runnel.InvalidError) as caught:
        model.stream(PROMPT, top_p=7)
    assert caught.value.name == "INVALID" and caught.value.status == runnel.Status.INVALID
    assert isinstance(caught.value, ValueError) and "top_p" in str(caught.value)
    with pytest.raises(TypeError, match="no option 'temprature'"):
        model.stream(PROMPT, temprature=1)
    with pytest.raises(runnel.ContextError):
        await model.generate(tokens=[1] * 5000)
    with pytest.raises(runnel.InvalidError):
        model.stream(PROMPT, max_tokens=1 << 70)
    with pytest.raises(runnel.InvalidError):
        model.stream(PROMPT, stops=["a\0b"])
    with pytest.raises(runnel.IOError) as caught:
        await engine.load_model("/nowhere.gguf")
    assert isinstance(caught.value, OSError) and "/nowhere.gguf" in str(caught.value)
    with pytest.raises(runnel.FormatError):
        await engine.load_model(__file__)
    with pytest.raises(runnel.TimeoutError):
        await model.generate(PROMPT, ignore_eos=2, context_keep=0, deadline_ms=1)
    with pytest.raises(runnel.FormatError, match="line 1, column 2"):
        await model.generate(PROMPT, grammar=runnel.Grammar.regex("("))
    for name, value in (("seed", -1), ("seed", 2**64), ("cache_salt", -1)):
        with pytest.raises(runnel.InvalidError, match=name + ": a number from 0"):
            model.stream(PROMPT, **{name: value})
    with pytest.raises(runnel.InvalidError, match="kv_bytes: a number from 0"):
        await engine.load_model(model_path, kv_bytes=-1)
    with pytest.raises(TypeError):
        model.stream(PROMPT, seed="one")
    assert (await model.generate(PROMPT, seed=2**64 - 1, temperature=1, max_tokens=1)).usage.completion_tokens == 1


async def test_busy_says_when_to_try_again(model_path):
    async with runnel.Engine(compute_threads=1, max_streams=1) as engine:
        model = await engine.load_model(model_path)
        await model.generate(PROMPT, max_tokens=2)
        async with model.stream(PROMPT, ignore_eos=2, context_keep=0) as stream:
            await stream.__anext__()
            with pytest.raises(runnel.BusyError) as caught:
                model.stream(PROMPT)
        assert caught.value.name == "BUSY" and caught.value.retry_after > 0


async def test_an_engine_that_closes_tells_its_streams(model_path):
    engine = runnel.Engine(compute_threads=1)
    model = await engine.load_model(model_path)
    stream = model.stream(PROMPT, ignore_eos=2, context_keep=0)
    await stream.__anext__()

    async def read():
        async for _ in stream:
            pass

    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    await engine.aclose()
    with pytest.raises(runnel.CancelledError):
        await task
    with pytest.raises(runnel.ClosedError):
        model.stream(PROMPT)
    await engine.aclose()


async def test_closing_needs_none_of_the_loop_s_threads(model_path):
    """They may all be busy; a task that is cancelled while it closes has closed."""
    loop, leave = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
    busy = loop.run_in_executor(None, leave.wait)
    engine = runnel.Engine(compute_threads=1)
    model = await engine.load_model(model_path)
    other = asyncio.create_task(model.generate(PROMPT, max_tokens=-1, ignore_eos=2, context_keep=0))
    await asyncio.sleep(0)
    task = asyncio.create_task(engine.aclose())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.closed
    with pytest.raises(runnel.CancelledError):
        await other
    leave.set()
    await busy


async def test_the_second_who_closes_waits_for_the_first(model_path):
    engine = runnel.Engine(compute_threads=1)
    model = runnel.blocking.Model(engine, (await engine.load_model(model_path))._core)
    entered, leave = threading.Event(), threading.Event()

    def choose(candidates):
        entered.set()
        leave.wait()

    def read():
        with pytest.raises(runnel.ClosedError):
            model.generate(PROMPT, max_tokens=5, temperature=1, choose=choose)

    reader = asyncio.create_task(asyncio.to_thread(read))
    await asyncio.to_thread(entered.wait)
    closers = [asyncio.create_task(engine.aclose()) for _ in range(2)]
    closers.append(asyncio.create_task(asyncio.to_thread(engine.close)))
    for _ in range(100):
        await asyncio.sleep(0)
    with pytest.raises(runnel.TimeoutError):
        await asyncio.to_thread(engine.close, 0.01)
    assert not any(closer.done() for closer in closers)
    leave.set()
    await asyncio.gather(reader, *closers)
    engine.close()


async def test_cancelling_a_load(engine, model_path):
    task = asyncio.create_task(engine.load_model(model_path))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while engine.stats().models:
        await asyncio.sleep(0.001)


async def test_two_engines(model_path):
    async with runnel.Engine(compute_threads=1) as one, runnel.Engine(compute_threads=1) as other:
        models = await asyncio.gather(one.load_model(model_path), other.load_model(model_path))
        results = await asyncio.gather(*(model.generate(PROMPT, max_tokens=30) for model in models))
        assert results[0].text == results[1].text
        await one.aclose()
        assert str(await models[1].generate(PROMPT, max_tokens=30)) == results[0].text


async def test_an_exception_in_choose_ends_the_stream(model):
    def choose(candidates):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        await model.generate(PROMPT, max_tokens=5, temperature=1, choose=choose)
    assert "choose" in [frame.name for frame in caught.traceback]  # where it was raised


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration])
async def test_what_ends_a_loop_in_choose_is_an_error(model, kind):
    """It would end the reader's loop as if all had come: as out of a generator it becomes a RuntimeError."""
    def choose(candidates):
        raise kind

    options = {"max_tokens": 5, "temperature": 1, "choose": choose}
    with pytest.raises(RuntimeError, match=f"choose raised {kind.__name__}") as caught:
        [piece async for piece in model.stream(PROMPT, **options)]
    assert type(caught.value.__cause__) is kind
    with pytest.raises(RuntimeError, match=f"choose raised {kind.__name__}"):
        await model.generate(PROMPT, **options)


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration])
def test_what_ends_a_loop_in_choose_is_an_error_of_blocking_calls(blocking_model, kind):
    def choose(candidates):
        raise kind

    options = {"max_tokens": 5, "temperature": 1, "choose": choose}
    with pytest.raises(RuntimeError, match=f"choose raised {kind.__name__}") as caught:
        list(blocking_model.stream(PROMPT, **options))
    assert type(caught.value.__cause__) is kind
    with pytest.raises(RuntimeError, match=f"choose raised {kind.__name__}"):
        blocking_model.generate(PROMPT, **options)


async def one_random_stream(model, random):
    stream = model.stream(PROMPT, max_tokens=random.choice([1, 8, 200]), temperature=1, seed=random.getrandbits(60))
    how = random.randrange(6)
    if how == 0:
        stream.cancel()
    elif how == 1:
        await stream.aclose()
    elif how == 2:
        return await stream.result()
    elif how == 3:
        task = asyncio.create_task(stream.result())
        await asyncio.sleep(random.random() * 0.003)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
    elif how == 4:
        count = random.randrange(20)
        async for _ in stream:
            count -= 1
            if count < 0:
                break
    return None  # 5, and all others: the last reference goes


async def test_a_thousand_streams_opened_and_cancelled_at_random(engine, model):
    source = random.Random(1)
    before = 0
    for turn in range(10):
        await asyncio.gather(*(one_random_stream(model, source) for _ in range(100)))
        if turn == 3:
            await none_left(engine)
            gc.collect()
            before = resident_bytes()
    await none_left(engine)
    gc.collect()
    metrics = engine.metrics()
    assert metrics.requests == 1000
    assert metrics.stopped + metrics.length + metrics.cancelled == 1000 and metrics.failed == 0
    assert UNDER_ASAN or resident_bytes() - before < 8 << 20
