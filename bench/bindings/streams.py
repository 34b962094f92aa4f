#!/usr/bin/env python3
"""What a token costs on its way to asyncio, and how late the loop's timers are meanwhile.

    bench/bindings/streams.py PACKAGE_FOLDER [--streams 64] [--tokens 200] [--model FILE] [--gather US] [--ways NAME,NAME]
                              [--peer-streams N]

Per token: the processor time of the loop's thread from the first call to the last piece, without what it waits. The way
of other bindings, a hop to a thread pool for each token (run_in_executor), runs after it on the same engine; and with
--peer-streams llama-cpp-python itself, where it is installed: its object has one sequence, so that its streams come one
after another, with as many threads as ours. Timers: one of 1 ms on the loop, how late it is at the median, at p99 and at most, with the streams (a second time, so that it is not
in the cost) and on an idle loop.
"""
import argparse
import asyncio
import json
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


async def timers(late, running):
    while running[0]:
        begin = time.perf_counter()
        await asyncio.sleep(0.001)
        late.append(time.perf_counter() - begin - 0.001)


def quantiles(late):
    late = sorted(late) or [0.0]
    return {"p50_ms": round(late[len(late) // 2] * 1e3, 3), "p99_ms": round(late[len(late) * 99 // 100] * 1e3, 3),
            "most_ms": round(late[-1] * 1e3, 3), "timers": len(late)}


async def measured(read, streams):
    cpu, wall = time.thread_time(), time.perf_counter()
    counts = await asyncio.gather(*(read(index) for index in range(streams)))
    cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
    late, running = [], [True]
    timer = asyncio.create_task(timers(late, running))
    await asyncio.gather(*(read(index) for index in range(streams)))
    running[0] = False
    await timer
    tokens = sum(counts)
    return {"tokens": tokens, "tokens_per_s": round(tokens / wall), "loop_us_per_token": round(cpu / tokens * 1e6, 3),
            **quantiles(late)}


async def main(options, runnel):
    gather = {} if options.gather is None else {"gather_us": options.gather}
    async with runnel.Engine(compute_threads=options.threads, **gather) as engine:
        model = await engine.load_model(options.model)
        face = runnel.blocking.Model(engine, model._core)
        request = {"prompt": "Once upon a time", "max_tokens": options.tokens, "ignore_eos": 2, "temperature": 1}

        async def by_loop(index):
            count = 0
            async for _ in model.stream(seed=index, **request):
                count += 1
            return count

        async def by_pool(index):
            loop, stream, count = asyncio.get_running_loop(), face.stream(seed=index, **request), 0
            while await loop.run_in_executor(None, next, stream, None) is not None:
                count += 1
            return count

        async def by_result(index):
            return (await model.generate(seed=index, **request)).usage.completion_tokens

        def peer():
            import llama_cpp

            other, turn = llama_cpp.Llama(options.model, n_ctx=512, n_threads=options.threads, verbose=False), asyncio.Lock()

            async def by_peer(index):
                loop, count = asyncio.get_running_loop(), 0
                async with turn:
                    pieces = other(request["prompt"], max_tokens=options.tokens, temperature=1.0, seed=index, stream=True)
                    while await loop.run_in_executor(None, next, pieces, None) is not None:
                        count += 1
                return count

            return by_peer

        await measured(by_loop, 2)
        late, running = [], [True]
        timer = asyncio.create_task(timers(late, running))
        await asyncio.sleep(1)
        running[0] = False
        await timer
        print(json.dumps({"way": "idle loop", **quantiles(late)}))
        for way, read in (("async for", by_loop), ("generate", by_result), ("thread pool per token", by_pool)):
            if way not in options.ways.split(","):
                continue
            print(json.dumps({"way": way, "streams": options.streams, **await measured(read, options.streams)}), flush=True)
        if options.peer_streams > 0:
            n = options.peer_streams
            print(json.dumps({"way": "llama-cpp-python", "streams": n, **await measured(peer(), n)}), flush=True)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("package")
parser.add_argument("--streams", type=int, default=64)
parser.add_argument("--tokens", type=int, default=200)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--gather", type=int, help="how long events gather, in microseconds")
parser.add_argument("--peer-streams", type=int, default=0, help="streams of llama-cpp-python; 0: it is left out")
parser.add_argument("--ways", default="async for,generate,thread pool per token", help="those that are measured")
parser.add_argument("--model", default=str(ROOT / "examples/models/runnel-tiny-Q8_0.gguf"))
arguments = parser.parse_args()
sys.path.insert(0, arguments.package)
import runnel  # noqa: E402

asyncio.run(main(arguments, runnel))
