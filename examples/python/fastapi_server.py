"""Server-sent events with FastAPI: fastapi_server.py MODEL [PORT], then curl -N 'localhost:PORT/?prompt=Once'

Port 0 lets the system choose; "listening on PORT" is printed, and who comes then waits for the model."""

import json
import socket
import sys

import fastapi
import runnel
import uvicorn
from fastapi.responses import StreamingResponse

app = fastapi.FastAPI()


@app.on_event("startup")
async def load():
    app.state.engine = runnel.Engine()
    app.state.model = await app.state.engine.load_model(sys.argv[1])


@app.on_event("shutdown")
async def close():
    await app.state.engine.aclose()


@app.get("/")
async def answer(prompt: str, max_tokens: int = 60):
    try:
        stream = app.state.model.stream(prompt, max_tokens=max_tokens)
    except runnel.BusyError as error:
        raise fastapi.HTTPException(503, str(error), {"Retry-After": str(int(error.retry_after or 1) + 1)}) from error
    except (runnel.InvalidError, runnel.ContextError) as error:
        raise fastapi.HTTPException(400, str(error)) from error

    async def lines():
        async with stream:
            async for piece in stream:
                yield f"data: {json.dumps(piece.text)}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


listener = socket.create_server(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 8080))
print(f"listening on {listener.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
