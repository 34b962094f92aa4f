"""What streams leave behind: nothing. In an interpreter of its own, because pytest keeps what it has seen: with
AddressSanitizer it is looked through by LeakSanitizer when it ends, else the blocks of the interpreter and the bytes of
the C library's heap are counted."""

import pytest

from conftest import UNDER_ASAN, run_python

COMMON = """
import asyncio, ctypes, gc, sys
import runnel

ENDLESS = dict(max_tokens=-1, ignore_eos=2, context_keep=0)


async def several(model):
    async for _ in model.stream("a", max_tokens=4, want_logprobs=True, n_top=2, want_progress=True):
        pass
    async for _ in model.stream("a", **ENDLESS):
        break
    await model.generate("a", max_tokens=2)
    stream = model.stream("a", **ENDLESS)
    stream.cancel()
    await stream.result()
    stream = model.stream("a", **ENDLESS)
    await stream.__anext__()
    await stream.aclose()
    task = asyncio.create_task(model.stream("a", **ENDLESS).result())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    try:
        await model.generate("a", grammar=runnel.Grammar.regex("("))
    except runnel.Error:
        pass
    model.stream("a", max_tokens=100)  # nobody has it
"""

LOOKED_THROUGH = COMMON + """

async def main(path):
    async with runnel.Engine(compute_threads=1, log_level="debug", on_log=lambda *_: None, on_trace=lambda *_: None) as engine:
        model = await engine.load_model(path)
        for _ in range(3):
            await several(model)
        await model.generate("a", max_tokens=2, want_logits=True)
        await model.generate("a", max_tokens=2, temperature=1, choose=lambda candidates: 0)
        await model.embed("A cat sat.")
        session = model.session()
        await session.generate("a", max_tokens=2)
        engine.metrics()
        try:
            await engine.load_model("README.md")
        except runnel.Error:
            pass
        running = model.stream("a", **ENDLESS)
        await running.__anext__()


asyncio.run(main(sys.argv[1]))
with runnel.blocking.Engine(compute_threads=1) as engine:
    model = engine.load_model(sys.argv[1])
    list(model.stream("a", max_tokens=4))
    next(model.stream("a", **ENDLESS))
if len(sys.argv) > 2:  # a leak, to see that it would be seen
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p
    malloc(4711)
"""

COUNTED = COMMON + """

class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks",
                                                     "fsmblks", "uordblks", "fordblks", "keepcost")]


mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Mallinfo2


async def counts(engine):
    while engine.streams():
        await asyncio.sleep(0.002)
    await asyncio.sleep(0.01)
    gc.collect()
    return sys.getallocatedblocks(), mallinfo2().uordblks


async def main(path):
    async with runnel.Engine(compute_threads=1) as engine:
        model = await engine.load_model(path)
        for _ in range(40):
            await several(model)
        grown = []  # what leaks does so in each stretch; the lists of free objects fill up in one
        for _ in range(3):
            before = await counts(engine)
            for _ in range(80):
                await several(model)
            after = await counts(engine)
            grown.append((after[0] - before[0], after[1] - before[1]))
        print(*map(min, zip(*grown)))


asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.left_out(not UNDER_ASAN)
def test_leak_sanitizer_finds_nothing(monkeypatch):
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=1:exitcode=23")
    planted = run_python(LOOKED_THROUGH, "leak")
    if "LeakSanitizer has encountered a fatal error" in planted.stderr:
        pytest.skip("LeakSanitizer may not look at processes here")
    assert planted.returncode == 23 and "leak of 4711 byte(s)" in planted.stderr
    clean = run_python(LOOKED_THROUGH)
    assert clean.returncode == 0 and "leak of" not in clean.stderr, clean.stderr[:8000]


@pytest.mark.left_out(UNDER_ASAN)
def test_blocks_and_bytes_stay():
    counted = run_python(COUNTED)
    assert counted.returncode == 0, counted.stderr
    blocks, in_use = map(int, counted.stdout.split())
    # 640 streams: one object of every other, or the bytes of one, would be more
    assert blocks < 320 and in_use < 640 * 16 + 16384, counted.stdout
