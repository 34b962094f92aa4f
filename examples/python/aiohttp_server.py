"""Server-sent events with aiohttp: aiohttp_server.py MODEL [PORT], then curl -N 'localhost:PORT/?prompt=Once'

Port 0 lets the system choose; "listening on PORT" is printed once the model is loaded.

A client that goes away cancels its stream: aiohttp cancels the handler, whose loop is left. Before aiohttp 3.9 the next
write fails instead."""

import inspect
import json
import socket
import sys

import runnel
from aiohttp import web


async def answer(request):
    try:
        max_tokens = int(request.query.get("max_tokens", 60))
        stream = request.app["model"].stream(request.query["prompt"], max_tokens=max_tokens)
    except runnel.BusyError as error:
        raise web.HTTPServiceUnavailable(headers={"Retry-After": str(int(error.retry_after or 1) + 1)}) from error
    except (KeyError, ValueError, runnel.ContextError) as error:  # runnel.InvalidError is a ValueError
        raise web.HTTPBadRequest(text=str(error)) from error
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    async with stream:
        await response.prepare(request)
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
options = {"handler_cancellation": True} if "handler_cancellation" in inspect.signature(web.run_app).parameters else {}
listener = socket.create_server(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 8080))
address = f"listening on {listener.getsockname()[1]}"
web.run_app(app, sock=listener, print=lambda _: print(address, flush=True), **options)
