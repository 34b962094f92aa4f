"""The shortest program: stream.py MODEL [PROMPT]"""

import asyncio
import sys

import runnel


async def main(path, prompt):
    async with runnel.Engine() as engine:
        model = await engine.load_model(path)
        async for piece in model.stream(prompt, max_tokens=60):
            print(piece.text, end="", flush=True)
    print()


asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "Once upon a time"))
