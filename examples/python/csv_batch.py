"""A column of a CSV file becomes prompts, the answers a new column: csv_batch.py MODEL IN.csv OUT.csv COLUMN

All rows are submitted as fast as the engine takes them; it runs them together. A bar on standard error says how far it
is."""

import asyncio
import csv
import sys

import runnel

AT_ONCE = 64


async def main(path, source, target, column):
    with open(source, newline="") as file:
        rows = list(csv.DictReader(file))
    done, room = 0, asyncio.Semaphore(AT_ONCE)

    async def answer(row):
        nonlocal done
        async with room:
            row["answer"] = (await model.generate(row[column], max_tokens=40)).text
        done += 1
        filled = 40 * done // len(rows)
        print(f"\r[{'#' * filled:40}] {done} of {len(rows)}", end="", file=sys.stderr, flush=True)

    async with runnel.Engine() as engine:
        model = await engine.load_model(path)
        await asyncio.gather(*map(answer, rows))
    print(file=sys.stderr)
    with open(target, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


asyncio.run(main(*sys.argv[1:5]))
