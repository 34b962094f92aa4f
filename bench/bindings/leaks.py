"""What streams leave behind in Python: memory and objects after every tenth of many streams.

    bench/bindings/leaks.py PACKAGE [STREAMS] [--model FILE]      PACKAGE: build/PRESET/bindings/python

The streams are read by `async for`, left, cancelled, closed, awaited by their result, dropped and awaited by a task that
is cancelled, in turn; then by blocking calls. Each has a token or two, so that the model costs little. "blocks" are those
that the interpreter has allocated, "malloc" the bytes in use of the C library's heap."""

import argparse
import asyncio
import ctypes
import gc
import os
import pathlib
import sys

MODEL = pathlib.Path(__file__).resolve().parents[2] / "examples/models/runnel-tiny-Q8_0.gguf"


class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks",
                                                     "fsmblks", "uordblks", "fordblks", "keepcost")]


def malloc_bytes():
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Mallinfo2
    info = mallinfo2()
    return info.uordblks + info.hblkhd


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


async def one(model, i):
    way = i % 7
    stream = model.stream("a", max_tokens=1 + i % 2)
    if way == 0:
        async for _ in stream:
            pass
    elif way == 1:
        async for _ in stream:
            break
    elif way == 2:
        stream.cancel()
    elif way == 3:
        await stream.aclose()
    elif way == 4:
        await stream.result()
    elif way == 5:
        task = asyncio.create_task(stream.result())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])


async def many(model, n):
    numbers = iter(range(n))

    async def worker():
        for i in numbers:
            await one(model, i)

    await asyncio.gather(*(worker() for _ in range(16)))


def many_blocking(model, n):
    for i in range(n):
        stream = model.stream("a", max_tokens=1 + i % 2)
        if i % 4 == 0:
            list(stream)
        elif i % 4 == 1:
            next(stream)
        elif i % 4 == 2:
            stream.result()


def tell(kind, n):
    gc.collect()
    print(f"{kind} {n:7} streams: resident {resident_bytes() / 2**20:.2f} MB, malloc {malloc_bytes() / 2**20:.3f} MB, "
          f"{sys.getallocatedblocks()} blocks", flush=True)


async def in_loop(runnel, model_path, streams):
    async with runnel.Engine(compute_threads=1) as engine:
        model = await engine.load_model(model_path, context_tokens=256)
        tell("asyncio", 0)
        for i in range(10):
            await many(model, streams // 10)
            while engine.streams():
                await asyncio.sleep(0.005)
            tell("asyncio", (i + 1) * (streams // 10))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("package")
    parser.add_argument("streams", type=int, nargs="?", default=100000)
    parser.add_argument("--model", default=str(MODEL))
    arguments = parser.parse_args()
    sys.path.insert(0, arguments.package)
    import runnel

    asyncio.run(in_loop(runnel, arguments.model, arguments.streams))
    with runnel.blocking.Engine(compute_threads=1) as engine:
        model = engine.load_model(arguments.model, context_tokens=256)
        for i in range(11):
            if i > 0:
                many_blocking(model, arguments.streams // 50)
            tell("blocking", i * (arguments.streams // 50))


if __name__ == "__main__":
    main()
