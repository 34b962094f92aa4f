"""Server-sent events with aiohttp: aiohttp_server.py MODEL [PORT], then curl -N 'localhost:PORT/?prompt=Once'

A client that goes away cancels its stream: aiohttp cancels the handler, and the handler's loop is left."""

import json
import sys

import runnel
from aiohttp import web


async def answer(request):
    options = {"max_tokens": int(request.query.get("max_tokens", 60))}
    try:
        stream = request.app["model"].stream(request.query["prompt"], **options)
    except runnel.BusyError as error:
        raise web.HTTPServiceUnavailable(headers={"Retry-After": str(int(error.retry_after or 1) + 1)}) from error
    except (KeyError, runnel.InvalidError) as error:
        raise web.HTTPBadRequest(text=str(error)) from error
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    async with stream:
        async for piece in stream:
            await response.write(f"data: {json.dumps(piece.text)}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


async def engine_of(app):
    async with runnel.Engine() as engine:
        app["model"] = await engine.load_model(sys.argv[1])
        yield


app = web.Application()
app.cleanup_ctx.append(engine_of)
app.router.add_get("/", answer)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[2]) if len(sys.argv) > 2 else 8080)
