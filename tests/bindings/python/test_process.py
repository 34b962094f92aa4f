"""The extension in its process: what it exports, how it ends, forks."""

import subprocess
import sys
import threading

import pytest
import runnel
from conftest import PACKAGE, UNDER_ASAN, run_python

BLOCKING = """
import os, sys, threading, runnel
engine = runnel.blocking.Engine(compute_threads=1)
model = engine.load_model(sys.argv[1])
endless = dict(max_tokens=-1, ignore_eos=2, context_keep=0)
"""


def test_only_the_entry_point_is_exported():
    listing = subprocess.run(["nm", "-D", "--defined-only", runnel._runnel.__file__], capture_output=True, text=True,
                             check=True).stdout
    names = [line.split()[-1] for line in listing.splitlines()]
    assert [name for name in names if "asan" not in name and "ubsan" not in name] == ["PyInit__runnel"]


@pytest.mark.left_out(UNDER_ASAN)
def test_it_loads_without_help_of_the_environment():
    done = subprocess.run(["env", "-i", "PYTHONPATH=" + PACKAGE, sys.executable, "-c", "import runnel"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_process_ends_though_an_engine_is_open():
    done = run_python(BLOCKING + "print(model.generate('Once', max_tokens=3))")
    assert done.returncode == 0 and done.stdout and not done.stderr, done


def test_the_process_ends_in_the_middle_of_streams():
    done = run_python(BLOCKING + """
def read(stream):
    for piece in stream:
        began.set()
began = threading.Event()
for _ in range(4):
    threading.Thread(target=read, args=(model.stream("Once", **endless),), daemon=True).start()
began.wait()
""")
    assert done.returncode == 0, done


def test_an_event_loop_that_is_left_in_the_middle_of_streams():
    done = run_python("""
import asyncio, sys, runnel
async def main():
    global kept
    engine = runnel.Engine(compute_threads=1)
    model = await engine.load_model(sys.argv[1])
    kept = [model.stream("Once", max_tokens=-1, ignore_eos=2, context_keep=0) for _ in range(20)]
    await kept[0].__anext__()
    asyncio.create_task(kept[1].result())
    await asyncio.sleep(0)
asyncio.run(main())
""")
    assert done.returncode == 0 and not done.stderr, done


def test_an_exit_in_the_middle_of_a_callback():
    done = run_python(BLOCKING + """
def choose(candidates):
    sys.exit(7)
model.generate("Once", temperature=1, choose=choose, **endless)
""")
    assert done.returncode == 7, done


def test_a_forks_child_is_told_and_the_parent_goes_on():
    done = run_python(BLOCKING + """
before = model.generate("Once", max_tokens=8).text
child = os.fork()
if child == 0:
    try:
        model.generate("Once")
    except runnel.StateError as error:
        engine.close()
        with runnel.blocking.Engine(compute_threads=1) as own:
            same = own.load_model(sys.argv[1]).generate("Once", max_tokens=8).text == before
        sys.exit(42 if same else 1)
    sys.exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
assert model.generate("Once", max_tokens=8).text == before
import subprocess
assert subprocess.run(["true"]).returncode == 0
assert model.generate("Once", max_tokens=8).text == before
print("both")
""")
    assert done.returncode == 0 and done.stdout == "both\n", done


def test_a_signal_ends_a_blocking_call():
    done = run_python(BLOCKING + """
import signal
def stop(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    model.generate("Once", **endless)
except KeyboardInterrupt:
    print("stopped")
assert engine.stats().streams == 0
""")
    assert done.stdout == "stopped\n" and done.returncode == 0, done


def test_blocking_threads_read_at_once(blocking_model):
    expected = blocking_model.generate("Once upon a time", max_tokens=40).text
    texts = [None] * 8

    def read(index):
        texts[index] = "".join(piece.text for piece in blocking_model.stream("Once upon a time", max_tokens=40))

    threads = [threading.Thread(target=read, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [expected] * 8


def test_blocking_threads_read_one_stream(blocking_model):
    expected = blocking_model.generate("Once upon a time", max_tokens=40)
    for _ in range(5):
        stream = blocking_model.stream("Once upon a time", max_tokens=40)
        pieces, others = [], []

        def read():
            while True:
                try:
                    pieces.extend(stream)
                    return
                except runnel.StateError as error:
                    others.append(str(error))

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(piece.token for piece in pieces if piece.token >= 0) == sorted(expected.tokens)
        assert stream.result().text == expected.text
        assert set(others) <= {"another thread reads the stream"}


def test_closing_an_engine_ends_blocking_calls_of_other_threads(model_path):
    engine = runnel.blocking.Engine(compute_threads=1)
    model = engine.load_model(model_path)
    ends, began = [], threading.Event()

    def read():
        try:
            for _ in model.stream("Once", max_tokens=-1, ignore_eos=2, context_keep=0):
                began.set()
        except runnel.Error as error:
            ends.append(error.name)

    thread = threading.Thread(target=read)
    thread.start()
    began.wait()
    engine.close()
    thread.join()
    assert ends and ends[0] in ("CLOSED", "CANCELLED")


def test_a_load_tells_its_progress(model_path):
    seen = []
    with runnel.blocking.Engine(compute_threads=1) as engine:
        engine.load_model(model_path, on_progress=seen.append)
    assert seen == sorted(seen) and seen[-1] == 1


async def test_an_engine_is_closed_while_another_one_closes(model_path):
    """The end of a stream, told while its engine is freed, closes a second engine, whose stream then ends, too."""
    endless = dict(max_tokens=-1, ignore_eos=2, context_keep=0)
    first = runnel.Engine(compute_threads=1)
    second = runnel.Engine(compute_threads=1)
    inner = (await second.load_model(model_path)).stream("Once upon a time", **endless)
    running = (await first.load_model(model_path)).stream("Once upon a time", **endless)
    host = first._hosts.current()
    told = host.ended
    host.ended = lambda: (second.close(), told())
    first.close()
    assert first.closed and second.closed and running.ended and inner.ended
