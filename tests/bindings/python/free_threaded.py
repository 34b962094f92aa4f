"""The binding in an interpreter without a GIL: that importing it does not turn the GIL on, and that threads which really
run at once use one engine, one stream and several event loops. Needs no package.

    free_threaded.py PACKAGE MODEL
"""

import asyncio
import random
import sys
import threading

PACKAGE, MODEL = sys.argv[1:]
sys.path.insert(0, PACKAGE)
import runnel  # noqa: E402
import runnel.files  # noqa: E402

PROMPT = "Once upon a time"
TOKENS = 20
LONG = PROMPT * 4000  # to tokenize it takes longer than to close an engine
failed = []


def in_threads(*functions):
    def run(function):
        try:
            function()
        except BaseException as error:  # shown by the main thread
            failed.append(error)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def readers_of_their_own(model, expected):
    def read(seed):
        source = random.Random(seed)
        for _ in range(8):
            stream = model.stream(PROMPT, max_tokens=TOKENS)
            if source.random() < 0.3:
                stream.cancel()
                list(stream)
            else:
                assert "".join(piece.text for piece in stream) == expected

    in_threads(*(lambda seed=seed: read(seed) for seed in range(6)))


def readers_of_one_stream(model, expected):
    """One of them at a time gets the next piece; another one is told so, or waits."""
    for _ in range(8):
        stream = model.stream(PROMPT, max_tokens=TOKENS)
        pieces = []

        def read():
            while True:
                try:
                    for piece in stream:
                        pieces.append(piece.token)
                    return
                except runnel.StateError:
                    pass

        in_threads(*[read] * 4)
        assert len([token for token in pieces if token >= 0]) == TOKENS
        assert stream.result().text == expected


def closers_of_one_stream(model):
    """A stream is closed while another thread reads it: the reader's loop ends."""
    for seed in range(30):
        stream = model.stream(PROMPT, max_tokens=60, ignore_eos=2, temperature=1, seed=seed)

        def close():
            threading.Event().wait(seed / 5000)
            stream.close()

        in_threads(lambda: [piece.text for piece in stream], close)
        assert stream.ended


async def takers_of_one_stream():
    """A thread takes the pieces that another one's loop puts there, and a third one pauses: each once, none is lost."""
    async with runnel.Engine(compute_threads=1) as engine:
        model = await engine.load_model(MODEL, context_tokens=256)
        for seed in range(10):
            stream = model.stream(PROMPT, max_tokens=200, ignore_eos=2, temperature=1, seed=seed)
            taken = []

            def take():
                try:
                    while True:
                        piece = stream._core.pop()
                        if piece is not None and piece.token >= 0:
                            taken.append(piece.token)
                except StopAsyncIteration:
                    pass

            def pause():
                while stream.pause():
                    stream.resume()

            await asyncio.get_running_loop().run_in_executor(None, in_threads, take, pause)
            assert taken == list((await stream.result()).tokens)


def users_of_one_engine(engine, model, expected):
    """Threads that load and close models, look into a file, keep sessions and cancel what other threads read."""
    running, lock = [], threading.Lock()

    def load():
        for _ in range(4):
            fractions = []
            with engine.load_model(MODEL, context_tokens=256, on_progress=fractions.append) as other:
                assert other.generate(PROMPT, max_tokens=TOKENS).text == expected
            assert fractions and fractions == sorted(fractions)
            try:
                other.info()
            except runnel.ClosedError:
                continue
            raise AssertionError("a closed model tells of itself")

    def look():
        for _ in range(8):
            with runnel.files.File(MODEL) as file:
                threads = [threading.Thread(target=look_until_closed, args=(file,)) for _ in range(2)]
                for thread in threads:
                    thread.start()
                assert file.plan()
            for thread in threads:
                thread.join()

    def look_until_closed(file):
        try:
            while True:
                if file.info().n_tensors == 0 or not file.plan():
                    failed.append(AssertionError("a file has lost what is in it"))
                    return
        except runnel.ClosedError:
            pass

    def converse():
        for _ in range(6):
            with model.session() as session:
                session.generate(PROMPT, max_tokens=TOKENS)
                session.fork().generate(" and", max_tokens=4)

    def say():
        for _ in range(12):
            stream = model.stream(PROMPT, max_tokens=TOKENS)
            with lock:
                running.append(stream)
            said = "".join(piece.text for piece in stream)
            assert expected.startswith(said) and (said == expected or stream.result().finish == "cancelled")

    def cancel():
        for _ in range(300):
            with lock:
                stream = running.pop() if running else None
            if stream is not None:
                stream.cancel()
            engine.stats(), engine.streams(), engine.prometheus()

    in_threads(load, load, look, converse, say, say, say, cancel)


def engines_that_are_closed_in_the_middle():
    """Each call of each thread ends as it should, or says that the engine is closed."""
    for delay in range(8):
        engine = runnel.blocking.Engine(compute_threads=1)
        model = engine.load_model(MODEL, context_tokens=256)

        def use():
            try:
                while True:
                    model.generate(PROMPT, max_tokens=TOKENS)
                    list(model.stream(PROMPT, max_tokens=4))
            except (runnel.ClosedError, runnel.CancelledError):
                pass

        def tokenize():
            try:
                while True:
                    model.tokenize(LONG)
            except runnel.ClosedError:
                pass

        def close():
            threading.Event().wait(delay / 200)
            engine.close()

        in_threads(use, use, tokenize, close, close)


async def read(stream):
    return "".join([piece.text async for piece in stream])


async def one(model, way, expected):
    stream = model.stream(PROMPT, max_tokens=TOKENS)
    if way == 0:
        async for _ in stream:
            break
    elif way == 1:
        task = asyncio.create_task(stream.result())
        await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
    elif way == 2:
        assert len("".join(await asyncio.gather(*(read(stream) for _ in range(3))))) == len(expected)
    else:
        assert await read(stream) == expected


async def loops_of_several_threads(expected):
    async with runnel.Engine(compute_threads=1) as engine:
        model = await engine.load_model(MODEL, context_tokens=256)

        async def many():
            await asyncio.gather(*(one(model, i % 5, expected) for i in range(20)))

        others = asyncio.get_running_loop().run_in_executor(None, in_threads, *[lambda: asyncio.run(many())] * 3)
        await many()
        await others


def main():
    assert not sys._is_gil_enabled(), "the GIL is on"
    lines, spans = [], []
    told = {"on_log": lambda *line: lines.append(line), "on_trace": spans.append, "log_level": "debug"}
    with runnel.blocking.Engine(compute_threads=1, **told) as engine:
        model = engine.load_model(MODEL, context_tokens=256)
        expected = model.generate(PROMPT, max_tokens=TOKENS).text
        readers_of_their_own(model, expected)
        readers_of_one_stream(model, expected)
        closers_of_one_stream(model)
        users_of_one_engine(engine, model, expected)
    assert lines and spans
    engines_that_are_closed_in_the_middle()
    asyncio.run(loops_of_several_threads(expected))
    asyncio.run(takers_of_one_stream())
    assert not sys._is_gil_enabled()


if __name__ == "__main__":
    main()
