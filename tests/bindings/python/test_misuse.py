"""What a program does wrong: each is an error of the language, and takes nothing from what else runs."""

import asyncio
import collections.abc
import copy
import logging
import pickle
import signal
import sys
import threading
import time

import pytest
import runnel
import runnel.files
from conftest import UNDER_ASAN, run_python

PROMPT = "Once upon a time"
ENDLESS = {"max_tokens": -1, "ignore_eos": 2, "context_keep": 0}


async def test_a_closed_model_is_closed(engine, model_path):
    """Also when it has gone for good, and its memory is another's."""
    model = await engine.load_model(model_path)
    session = model.session()
    model.close()
    while engine.stats().models:
        await asyncio.sleep(0.001)
    again = await engine.load_model(model_path)
    for _ in range(20):
        for call in (model.info, model.session, model.scores, model.templates, lambda: model.tokenize("a"),
                     lambda: model.stream(PROMPT), session.fork):
            with pytest.raises(runnel.ClosedError):
                call()
        session.close()
        model.close()
    assert (await again.generate(PROMPT, max_tokens=3)).usage.completion_tokens == 3


def test_a_closed_model_is_closed_where_freed_memory_is_overwritten(monkeypatch):
    monkeypatch.setenv("MALLOC_PERTURB_", "85")
    done = run_python("""
import sys, time, runnel
with runnel.blocking.Engine(compute_threads=1) as engine:
    model = engine.load_model(sys.argv[1])
    model.close()
    while engine.stats().models:
        time.sleep(0.001)
    for _ in range(100):
        try:
            model.tokenize("a")
        except runnel.ClosedError:
            pass
    print(engine.load_model(sys.argv[1]).generate("Once", max_tokens=3))
""")
    assert done.returncode == 0 and done.stdout, done


async def test_things_have_no_copies(engine, model):
    """A copy that goes would end the stream, or free the session, of the first."""
    stream, session = model.stream(PROMPT, max_tokens=40, ignore_eos=2), model.session()
    for thing in (engine, model, session, stream, stream.__anext__()):
        for make in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError):
                make(thing)
    assert len((await stream.result()).tokens) == 40
    assert (await session.generate(PROMPT, max_tokens=2)).usage.completion_tokens == 2


def test_blocking_things_have_no_copies(blocking_model):
    stream = blocking_model.stream(PROMPT, max_tokens=40, ignore_eos=2)
    for thing in (blocking_model._engine, blocking_model, blocking_model.session(), stream):
        for make in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError):
                make(thing)
    assert len(list(stream)) == 40


def test_results_are_copied_and_go_to_other_processes(blocking_model):
    result = blocking_model.generate(PROMPT, max_tokens=5, ignore_eos=2, want_logprobs=True, n_top=2, want_logits=True)
    embedding = blocking_model._embed({"text": PROMPT}).result()
    for again in (copy.copy, copy.deepcopy, *(lambda one, protocol=protocol: pickle.loads(pickle.dumps(one, protocol))
                                              for protocol in range(pickle.HIGHEST_PROTOCOL + 1))):
        other = again(result)
        for name in runnel.Result.__slots__:
            assert getattr(other, name) == getattr(result, name), name
        assert other.tokens.format == "i" and other.logits[0].format == "f"
        assert again(embedding).embedding == embedding.embedding


def test_records_are_copied_and_go_to_other_processes(blocking_model):
    blocking_model.generate(PROMPT, max_tokens=3)
    metrics = blocking_model._engine.metrics()
    for record in (metrics, blocking_model.info(), blocking_model._engine.stats()):
        for again in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
            assert again(record) == record and type(again(record)) is type(record)
    other = pickle.loads(pickle.dumps(metrics))
    histograms = [name for name, value in vars(metrics).items() if hasattr(value, "edges")]
    assert histograms and all(getattr(other, name).edges.format == "d" for name in histograms)


def test_pieces_are_values(blocking_model):
    options = {"max_tokens": 6, "ignore_eos": 2, "want_logprobs": True, "n_top": 2, "want_logits": True,
               "want_progress": True}
    pieces = list(blocking_model.stream(PROMPT, **options))
    assert {piece.kind for piece in pieces} == {"progress", "logits", "token"}
    for piece in pieces:
        assert copy.copy(piece) is piece and copy.deepcopy(piece) is piece
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            other = pickle.loads(pickle.dumps(piece, protocol))
            assert other is not piece and other == piece and not other != piece and hash(other) == hash(piece)
            assert repr(other) == repr(piece) and str(other) == str(piece)
            for name in ("kind", "text", "token", "n_tokens", "logprob", "top", "tool_call", "logits", "embedding",
                         "position", "prompt_done", "prompt_total", "shifts", "shifted_tokens"):
                assert getattr(other, name) == getattr(piece, name), name
        assert piece != piece.text and (piece == 5) is False
        with pytest.raises(TypeError):
            piece < piece
    drawn = [piece for piece in pieces if piece.kind != "progress"]  # the second prompt is in the cache
    assert drawn == [piece for piece in blocking_model.stream(PROMPT, **options) if piece.kind != "progress"]
    tokens = [piece for piece in pieces if piece.kind == "token"]
    assert len(set(tokens)) == len({piece._parts()[1:4] + piece._parts()[6:] for piece in tokens})
    assert type(tokens[0]).__match_args__ == ("kind", "text")


@pytest.mark.parametrize("parts", [(), (1,) * 14, ("token", "x", None, None, None, None, "1", 0, 0, 0, 0, 0, 0, 0)])
def test_parts_that_are_no_pieces(parts):
    with pytest.raises(TypeError):
        runnel._runnel.piece_of(*parts)


def test_errors_go_to_other_processes():
    for kind in (runnel.BusyError, runnel.InvalidError, runnel.IOError, runnel.CancelledError):
        error = kind("a sentence")
        error.retry_after = 0.5
        same = pickle.loads(pickle.dumps(error))
        assert type(same) is kind and str(same) == "a sentence" and same.retry_after == 0.5 and same.name == error.name


class Changing:
    """A number that takes all out of its dict when it is read."""

    def __init__(self, values):
        self.values = values

    def __index__(self):
        self.values.clear()
        return 1


async def test_a_grammar_that_is_changed_while_it_is_read(model):
    for _ in range(50):
        grammar = runnel.Grammar.json(any_order=1)
        grammar["free_white"] = Changing(grammar)  # an object that the dict alone has
        assert (await model.generate(PROMPT, max_tokens=2, grammar=grammar)).usage.completion_tokens == 2
        assert not grammar


class Odd(collections.abc.Mapping):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, key):
        raise KeyError(key)

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 0

    def items(self):
        return self.rows


@pytest.mark.parametrize("options, kind", [
    ({"biases": [(1, 2.0)]}, TypeError),
    ({"biases": Odd([1, 2])}, TypeError),
    ({"biases": Odd([(1,)])}, TypeError),
    ({"biases": Odd([(1, 2, 3)])}, TypeError),
    ({"biases": {"a": 1}}, TypeError),
    ({"biases": {2**40: 1}}, ValueError),
    ({"biases": 5}, TypeError),
    ({"max_tokens": "many"}, TypeError),
    ({"max_tokens": 2**70}, ValueError),
    ({"seed": -1}, ValueError),
    ({"seed": 2**64}, ValueError),
    ({"temperature": "hot"}, TypeError),
    ({"temperature": float("nan")}, ValueError),
    ({"tokens": "abc"}, TypeError),
    ({"tokens": [2**31]}, ValueError),
    ({"tokens": [1.5]}, TypeError),
    ({"tokens": 7}, TypeError),
    ({"stops": [5]}, TypeError),
    ({"stops": ["a\0b"]}, ValueError),
    ({"prompt": 5}, TypeError),
    ({"prompt": "\ud800"}, ValueError),
    ({"grammar": "json"}, TypeError),
    ({"grammar": {5: 5}}, TypeError),
    ({"choose": 5}, TypeError),
    ({"session": "mine"}, TypeError),
    ({"draft": "nothing such"}, ValueError),
    ({"no_such_option": 1}, TypeError),
    ({"messages": [{"role": object()}]}, TypeError),
    ({"want_logprobs": "no"}, TypeError),
])
async def test_options_of_the_wrong_kind(engine, model, options, kind):
    with pytest.raises(kind):
        model.stream(**{"prompt": PROMPT, **options})
    assert engine.stats().streams == 0
    assert (await model.generate(PROMPT, max_tokens=2)).usage.completion_tokens == 2


@pytest.mark.parametrize("options, message", [
    ({"temperature": "hot"}, "temperature: a number is wanted, not <class 'str'>"),
    ({"top_p": 10**400}, "top_p: a number that a float can have is wanted"),
    ({"max_tokens": "many"}, "max_tokens: a whole number is wanted, not <class 'str'>"),
    ({"seed": 1.5}, "seed: a whole number is wanted, not <class 'float'>"),
    ({"priority": 2**31}, "priority: a number from -2147483648 to 2147483647 is wanted"),
    ({"tokens": 7}, "tokens: a list of whole numbers is wanted, not <class 'int'>"),
    ({"tokens": [1.5]}, "tokens: a whole number is wanted, not <class 'float'>"),
    ({"stops": 7}, "stops: a list of texts is wanted, not <class 'int'>"),
    ({"biases": "x"}, "biases: a mapping of tokens to biases is wanted, not <class 'str'>"),
    ({"biases": {1: "x"}}, "biases: a number is wanted, not <class 'str'>"),
])
def test_errors_of_options_name_the_option(blocking_model, options, message):
    kind = TypeError if "not <class" in message else ValueError
    with pytest.raises(kind) as raised:
        blocking_model.stream(**{"prompt": PROMPT, **options})
    assert str(raised.value) == message


async def test_a_session_of_another_model_is_refused(engine, model, model_path):
    """Its number may be that of one of the model's own."""
    other = await engine.load_model(model_path)
    with runnel.blocking.Engine(compute_threads=1) as stranger:
        blocking, own = stranger.load_model(model_path), model.session()
        refused = {"match": "^session: it belongs to another model"}
        for session in (other.session(), blocking.session()):
            for call in (model.stream, model.check_sampling, model.check_grammar):
                with pytest.raises(runnel.InvalidError, **refused):
                    call(session=session)
            with pytest.raises(runnel.InvalidError, **refused):
                await model.generate(PROMPT, session=session, max_tokens=1)
        with pytest.raises(runnel.InvalidError, **refused):
            blocking.generate(PROMPT, session=own, max_tokens=1)
    for session in (own, own.id):
        assert (await model.generate(PROMPT, session=session, max_tokens=1)).usage.completion_tokens == 1
    with pytest.raises(TypeError, match="session"):
        await model.embed("a", session=own)


def test_errors_say_what_is_wrong(model_path):
    with runnel.blocking.Engine(compute_threads=1, max_sessions=1) as engine:
        model, words = engine.load_model(model_path), engine.load_model(model_path, vocab_only=True)
        session = model.session()
        for call, kind, told in (
                (model.session, runnel.BusyError, "max_sessions"), (session.fork, runnel.BusyError, "max_sessions"),
                (words.session, runnel.StateError, "not loaded for generation"),
                (lambda: model.detokenize([10**6]), runnel.InvalidError, "not in the vocabulary"),
                *((lambda token=token: model.token_text(token), runnel.InvalidError, "not in the vocabulary")
                  for token in (-1, model.info().vocab_tokens)),
                (lambda: model.token_text(2**31), runnel.InvalidError, "^token: a number from"),
                (lambda: model.token_text([1]), TypeError, "^token: a whole number"),
                (lambda: model.tokenize(b"\xff"), runnel.InvalidError, "not UTF-8"),
                (model.scores, runnel.UnsupportedError, "no head that ranks")):
            with pytest.raises(kind, match=told):
                call()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_is_no_exception_leaves_the_functions_that_are_told(model_path, kind):
    """As the interrupt of a terminal does that comes while one of them runs. Nothing of the stream is lost."""
    raises = []

    def told(*_):
        if raises:
            raise raises.pop()

    with runnel.blocking.Engine(compute_threads=1, on_trace=told, on_log=told, log_level="debug") as engine:
        model = engine.load_model(model_path)
        expected = [piece.text for piece in model.stream(PROMPT, max_tokens=50, ignore_eos=2)]
        stream, texts = model.stream(PROMPT, max_tokens=50, ignore_eos=2), []
        raises.append(kind)
        with pytest.raises(kind):
            for piece in stream:
                texts.append(piece.text)
        assert texts + [piece.text for piece in stream] == expected
        raises.append(kind)
        with pytest.raises(kind):
            model.generate(PROMPT, max_tokens=50, ignore_eos=2)
        raises.append(kind)
        most = engine.stats().heap_bytes + 2**20
        with pytest.raises(kind):
            engine.load_model(model_path, on_progress=told)
        quiet = 0
        while quiet < 200:  # the load that was given up leaves nothing, also when it has had the time to go on
            time.sleep(0.001)
            quiet = quiet + 1 if engine.stats().heap_bytes < most else 0
        assert not raises and engine.load_model(model_path, on_progress=told).info().layers > 0


def test_functions_that_are_none(model_path):
    for options in ({"on_log": 5}, {"on_trace": "x"}):
        with pytest.raises(TypeError):
            runnel.blocking.Engine(**options)
    with runnel.blocking.Engine(compute_threads=1) as engine, pytest.raises(TypeError):
        engine.load_model(model_path, on_progress=5)


async def test_progress_that_is_no_function(engine, model_path):
    with pytest.raises(TypeError):
        await engine.load_model(model_path, on_progress=5)


def test_types_that_the_library_makes():
    for kind in (runnel._runnel.Stream, runnel._runnel.Next, runnel.Piece):
        with pytest.raises(TypeError):
            kind()
    for kind in (runnel._runnel.Stream, runnel._runnel.Next, runnel.Piece):
        with pytest.raises(TypeError):
            type("Mine", (kind,), {})
    with pytest.raises(RuntimeError):
        runnel._runnel.Reader().__anext__()
    stream = runnel.Stream.__new__(runnel.Stream)
    with pytest.raises((RuntimeError, AttributeError)):
        stream.__anext__()
    del stream


def in_thread(function):
    """What it returns or raises on a thread of its own."""
    box = []

    def run():
        try:
            box.append((function(), None))
        except BaseException as error:
            box.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(1000)
    result, error = box[0]
    if error is not None:
        raise error
    return result


def test_a_stream_that_another_thread_reads_is_closed(blocking_model):
    for delay in range(40):
        stream = blocking_model.stream(PROMPT, **ENDLESS)
        failed = []

        def read():
            try:
                for _ in stream:
                    pass
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        time.sleep(delay / 5000)
        stream.close()
        assert stream.ended
        thread.join()
        assert not failed
        assert stream.result().finish == "cancelled"


def test_a_stream_is_read_while_another_thread_closes_it(blocking_model):
    """Whoever closes waits for the step of a long prompt; whoever comes to read meanwhile ends with the stream."""
    for seed in range(20):
        stream = blocking_model.stream(f"{seed} " + PROMPT * 200, **ENDLESS)
        closer = threading.Thread(target=stream.close)
        closer.start()
        list(stream)
        closer.join()
        assert stream.ended


def test_a_stream_is_closed_by_the_handler_of_a_signal(blocking_model):
    stream = blocking_model.stream(PROMPT, **ENDLESS)
    pieces = iter(stream)
    before = signal.signal(signal.SIGALRM, lambda *_: stream.close())
    try:
        assert next(pieces)
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        for _ in pieces:
            pass
    finally:
        signal.signal(signal.SIGALRM, before)
    assert stream.ended and stream.result().finish == "cancelled"


async def test_a_stream_is_not_another_loops(engine, model):
    """Another loop cannot wait for its pieces; its own readers do not notice that one has tried."""
    stream = model.stream(PROMPT, max_tokens=200, ignore_eos=2)
    await stream.__anext__()
    stream.pause()
    count = 1

    async def elsewhere():
        try:
            while True:
                await stream.__anext__()
                pieces.append(1)
        except RuntimeError as error:
            return str(error)

    pieces = []
    told = await asyncio.get_running_loop().run_in_executor(None, in_thread, lambda: asyncio.run(elsewhere()))
    assert "different loop" in told
    stream.resume()
    async for _ in stream:
        count += 1
    assert count + len(pieces) == 200 and (await stream.result()).finish == "length"


def test_an_engine_that_a_loop_watches_is_closed_by_another(model_path, caplog):
    """The loop's streams end, and it can use another engine, whose descriptor may have the same number."""
    began, closed = threading.Event(), threading.Event()
    caplog.set_level(logging.ERROR)

    async def read(engine, model):
        with pytest.raises(runnel.CancelledError):
            async for _ in model.stream(PROMPT, **ENDLESS):
                began.set()
        await asyncio.get_running_loop().run_in_executor(None, closed.wait)
        for _ in range(3):
            async with runnel.Engine(compute_threads=1) as other:
                mine = await other.load_model(model_path)
                assert (await mine.generate(PROMPT, max_tokens=3)).usage.completion_tokens == 3

    engine = runnel.Engine(compute_threads=1)
    model = asyncio.run(engine.load_model(model_path))
    failed = []

    def run():
        try:
            asyncio.run(asyncio.wait_for(read(engine, model), 60))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert began.wait(1000)
    engine.close()
    closed.set()
    thread.join(1000)
    assert not failed and not thread.is_alive() and not caplog.records, (failed, caplog.records)


def test_progress_is_told_on_the_loop_that_loads(model_path):
    """Though another loop, which shares the engine, delivers its events as well."""
    engine = runnel.Engine(compute_threads=1)
    model = asyncio.run(engine.load_model(model_path))
    wrong, over = [], threading.Event()

    async def load():
        me = threading.get_ident()
        for _ in range(20):
            fractions = []

            def progress(fraction):
                fractions.append(fraction)
                if threading.get_ident() != me:
                    wrong.append(fraction)

            other = await engine.load_model(model_path, on_progress=progress)
            assert fractions[-1] == 1 and fractions == sorted(fractions)
            other.close()
        over.set()

    async def read():
        while not over.is_set():
            await asyncio.gather(*(model.generate(PROMPT, max_tokens=8) for _ in range(4)))

    threads = [threading.Thread(target=lambda work=work: asyncio.run(work())) for work in (load, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(1000)
    engine.close()
    assert over.is_set() and not wrong


def test_a_file_that_is_closed_while_it_is_read(model_path):
    for _ in range(20):
        file = runnel.files.File(model_path)
        begun = threading.Barrier(4)

        def read():
            begun.wait()
            try:
                while True:
                    assert file.plan() and file.info().n_tensors > 0 and file.templates()
            except runnel.ClosedError:
                pass

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        begun.wait()
        file.plan()
        file.close()
        file.close()
        for reader in readers:
            reader.join()
        for call in (file.info, file.plan, file.metadata, file.tensors, file.templates, file.recommended_sampling,
                     lambda: file.set_architectures([])):
            with pytest.raises(runnel.ClosedError):
                call()


def test_a_stream_that_is_used_by_its_own_choose(blocking_model):
    """A function that draws may use the model, but not the stream that asks it, nor close the engine."""
    told = []

    def choose(candidates):
        for call in (stream.__next__, stream.result, blocking_model._engine.close):
            try:
                call()
            except runnel.StateError as error:
                told.append(error)
        return None

    stream = blocking_model.stream(PROMPT, max_tokens=4, ignore_eos=2, choose=choose, temperature=1)
    assert len(list(stream)) == 4 and len(told) == 12


@pytest.mark.parametrize("place", [-7, 2**40, "first", 1.5, [], 2**80])
async def test_places_that_are_none(engine, model, place):
    with pytest.raises((runnel.Error, TypeError, OverflowError, ValueError)):
        await model.generate(PROMPT, max_tokens=4, choose=lambda candidates: place)
    assert (await model.generate(PROMPT, max_tokens=2)).usage.completion_tokens == 2


async def test_next_pieces_that_are_asked_for_and_not_awaited(model):
    stream = model.stream(PROMPT, max_tokens=30, ignore_eos=2)
    asked = [stream.__anext__() for _ in range(20)]
    first = await asked[0]
    assert first.kind == "token"
    with pytest.raises(RuntimeError):
        await asked[0]
    asked.clear()
    assert len([piece async for piece in stream]) == 29


@pytest.mark.left_out(UNDER_ASAN)
def test_another_interpreter_of_the_process_is_refused():
    done = run_python("""
import runnel, sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
other = interpreters.create()
try:
    failed = interpreters.run_string(other, f"import sys; sys.path[:] = {sys.path!r}; import runnel")
    print(getattr(failed, "type", failed))
except Exception as error:
    print(type(error), error)
""")
    assert done.returncode == 0 and "Error" in done.stdout, done


FORGET = """
import sys
def forget():
    for name in [name for name in sys.modules if name.partition(".")[0] == "runnel"]:
        del sys.modules[name]
"""


def test_a_second_import_says_what_it_is():
    done = run_python(FORGET + """
import runnel
forget()
try:
    import runnel
except ImportError as error:
    print(error)
""")
    assert done.stdout == "runnel is imported already and cannot be imported again: leave it in sys.modules\n", done


def test_an_import_that_failed_may_be_repeated():
    """asyncio is without its names, as a circular import shows it."""
    done = run_python(FORGET + """
import types
sys.modules["asyncio"] = types.ModuleType("asyncio")
try:
    import runnel._runnel
except Exception as error:
    print(type(error).__name__, error)
try:
    import runnel
except Exception as error:
    print(type(error).__name__, error)
del sys.modules["asyncio"]
forget()
import runnel
print(runnel.blocking.Engine(compute_threads=1).load_model(sys.argv[1]).generate("Once", max_tokens=3).finish)
""")
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and all("asyncio" in line and "SystemError" not in line for line in lines[:2]), done
    assert lines[2] == "length", done


def test_an_engine_is_closed_inside_callbacks_of_others(model_path):
    """Not inside its own, directly or by way of another engine's."""
    first, second = (runnel.blocking.Engine(compute_threads=1) for _ in range(2))
    models = [engine.load_model(model_path) for engine in (first, second)]
    told = []

    def attempt(engine):
        try:
            engine.close()
        except runnel.StateError as error:
            told.append(str(error))
        return engine.closed

    def inner(candidates):
        assert not attempt(first) and not attempt(second)

    def outer(candidates):
        models[1].generate(PROMPT, max_tokens=1, temperature=1, choose=inner)
        assert not attempt(first) and attempt(second)

    models[0].generate(PROMPT, max_tokens=1, temperature=1, choose=outer)
    assert told == ["an engine cannot be closed inside a callback of its own"] * 3
    assert attempt(first)


def test_engines_that_call_each_other_deeply(blocking_model, model_path):
    """Where more are nested than are noted none can be closed, and all can be behind that."""
    with runnel.blocking.Engine(compute_threads=1) as second, runnel.blocking.Engine(compute_threads=1) as third:
        models, closed = [blocking_model, second.load_model(model_path)], []

        def descend(depth):
            def choose(candidates):
                if depth < 40:
                    return descend(depth + 1)
                with pytest.raises(runnel.StateError):
                    third.close()

            models[depth % 2].generate(PROMPT, max_tokens=1, temperature=1, choose=choose)
            if depth == 8:
                third.close()
                closed.append(depth)

        descend(0)
        assert closed == [8] and third.closed and not second.closed


@pytest.mark.parametrize("timeout", [-1, -0.5, float("nan")])
def test_times_that_are_none(model_path, timeout):
    """Else they would be no limit at all."""
    with runnel.blocking.Engine(compute_threads=1) as engine:
        model = engine.load_model(model_path)
        with model.stream(PROMPT, **ENDLESS):
            for call in (engine.drain, engine.close):
                with pytest.raises(ValueError, match="timeout"):
                    call(timeout)
            assert not engine.drain(0) and not engine.closed


def test_options_that_are_changed_while_they_are_read(blocking_model):
    class Number:
        def __index__(self):
            options = sys._getframe(1).f_locals["options"]
            options.update({f"none {i}": i for i in range(1000)})
            return 2

    assert len(blocking_model.generate(PROMPT, max_tokens=Number(), ignore_eos=2, seed=1).tokens) == 2


def test_paths_and_names_that_end_early(blocking_model, model_path, tmp_path):
    train = blocking_model._engine.train
    path = model_path + "\0x"
    for call in (runnel.files.File, runnel.files.read_note, lambda path: train(path, "a", tmp_path / "head"),
                 lambda path: train(model_path, "a", path)):
        with pytest.raises(runnel.InvalidError, match="NUL"):
            call(path)
    with runnel.files.File(model_path) as file:
        for kind in (2**32, 2**40, -(2**32)):
            with pytest.raises(runnel.InvalidError):
                file.kv_bytes_per_token(kind)


def test_flags_are_true_or_not(blocking_model):
    text = "<|im_start|>a"
    assert blocking_model.tokenize(text, special=True) != blocking_model.tokenize(text)
    for bos in (2, "yes", [0]):
        assert blocking_model.tokenize(text, bos=bos) == blocking_model.tokenize(text, bos=True)
    assert blocking_model.tokenize(text, bos=None, special=0) == blocking_model.tokenize(text)
