"""A column of a CSV file becomes prompts, the answers a new column: csv_batch.py MODEL IN.csv OUT.csv COLUMN

All rows are submitted as fast as the engine takes them; it runs them together. A row that gets no answer says why in
the column "error". A bar on standard error says how far it is."""

import asyncio
import csv
import sys

import runnel

AT_ONCE = 64


async def main(path, source, target, column):
    with open(source, newline="") as file:
        reader = csv.DictReader(file)
        rows, columns = list(reader), list(reader.fieldnames or ())
    if column not in columns:
        sys.exit(f"{source} has no column {column}")
    done, room = 0, asyncio.Semaphore(AT_ONCE)

    async def answer(row):
        nonlocal done
        more = row.pop(None, None)  # cells behind those of the last column
        async with room:
            try:
                if more:
                    raise runnel.InvalidError(f"the row has more cells than there are columns: {more}")
                row["answer"] = (await model.generate(row[column] or "", max_tokens=40)).text
            except runnel.Error as error:
                row["error"] = str(error)
        done += 1
        filled = 40 * done // len(rows)
        print(f"\r[{'#' * filled:40}] {done} of {len(rows)}", end="", file=sys.stderr, flush=True)

    async with runnel.Engine() as engine:
        model = await engine.load_model(path)
        await asyncio.gather(*map(answer, rows))
    print(file=sys.stderr)
    with open(target, "w", newline="") as file:
        writer = csv.DictWriter(file, dict.fromkeys([*columns, "answer", "error"]))
        writer.writeheader()
        writer.writerows(rows)


asyncio.run(main(*sys.argv[1:5]))
