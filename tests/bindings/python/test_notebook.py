"""A notebook: `async for` at the top level of a cell, and the interrupt of a cell that streams. The kernel is Jupyter's
own (ipykernel), and nbclient its host."""

import asyncio

import nbclient
import nbformat

from conftest import MODEL, PACKAGE

OPEN = f"""
import asyncio, sys
sys.path.insert(0, {PACKAGE!r})
import runnel
engine = runnel.Engine(compute_threads=1)
model = await engine.load_model({MODEL!r})
"""
STREAM = """
async for piece in model.stream("Once upon a time", max_tokens=20):
    print(piece.text, end="")
"""
ENDLESS = """
print("begun")
async for piece in model.stream("Once", max_tokens=-1, ignore_eos=2, context_keep=0):
    pass
"""
GENERATE = """
print("begun")
await model.generate("Once", max_tokens=-1, ignore_eos=2, context_keep=0)
"""
BLOCKING = """
print("begun")
with runnel.blocking.Engine(compute_threads=1) as other:
    for piece in other.load_model(%r).stream("Once", max_tokens=-1, ignore_eos=2, context_keep=0):
        pass
""" % MODEL
LEFT = """
while engine.streams():
    await asyncio.sleep(0.01)
print("none is left")
"""
CLOSE = "await engine.aclose()\nprint('closed')"


class Notebook:
    """Cells that are run one by one."""

    def __init__(self, client):
        self.client = client

    async def run(self, source, interrupt=False):
        cell = nbformat.v4.new_code_cell(source)
        self.client.nb.cells.append(cell)
        running = asyncio.create_task(self.client.async_execute_cell(cell, len(self.client.nb.cells) - 1))
        while interrupt and not cell.outputs:
            await asyncio.sleep(0.02)
        if interrupt:
            await self.client.km.interrupt_kernel()
        await running
        return cell.outputs


def text_of(outputs):
    assert all(output.output_type == "stream" for output in outputs), outputs
    return "".join(output.text for output in outputs)


async def test_cells_stream_and_are_interrupted(model):
    expected = (await model.generate("Once upon a time", max_tokens=20)).text
    client = nbclient.NotebookClient(nbformat.v4.new_notebook(), allow_errors=True, timeout=1000,
                                    startup_timeout=1000)
    async with client.async_setup_kernel():
        notebook = Notebook(client)
        assert text_of(await notebook.run(OPEN)) == ""
        assert text_of(await notebook.run(STREAM)) == expected
        for source in (ENDLESS, GENERATE, BLOCKING):
            outputs = await notebook.run(source, interrupt=True)
            assert outputs[-1].output_type == "error", outputs
            assert outputs[-1].ename in ("KeyboardInterrupt", "CancelledError"), outputs[-1]
            assert text_of(await notebook.run(LEFT)) == "none is left\n"
        assert text_of(await notebook.run(STREAM)) == expected
        assert text_of(await notebook.run(CLOSE)) == "closed\n"
