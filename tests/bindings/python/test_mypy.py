"""The stubs, as mypy reads them: a program that is right passes, and each line that is wrong is told."""

import re

import mypy.api
import pytest
from conftest import ROOT

RIGHT = '''
import asyncio
import runnel
from pathlib import Path

async def main() -> None:
    async with runnel.Engine(compute_threads=1) as engine:
        model = await engine.load_model("model.gguf", kv_type="q8")
        async for piece in model.stream("Once", max_tokens=10, seed=7):
            text: str = piece.text
            print(text, piece.logprob)
        result = await model.generate(messages=[{"role": "user", "content": "Hello"}], max_tokens=5)
        n: int = result.usage.completion_tokens
        adapted = await engine.load_model("model.gguf", adapters={"sql": Path("sql.gguf"), "law": ("law.gguf", 0.5)})
        print(adapted.adapters[0].scale, await adapted.generate("Once", adapter="sql"))
        print(await adapted.embed("a", adapter=None))
        async with engine.train("model.gguf", "text", "head.gguf", steps=n) as training:
            async for progress in training:
                print(progress.loss)

with runnel.blocking.Engine() as other:
    other.close(timeout=1.5)
'''
WRONG = '''
import runnel
engine = runnel.blocking.Engine(compute_thread=1)  # wrong
model = engine.load_model("m", kv_type="q8")
model = engine.load_model("m", kv_type="q5")  # wrong
model = engine.load_model("m", adapters=["sql.gguf"])  # wrong
model.generate("x", adapter=5)  # wrong
model.generate("x", max_token=1)  # wrong
n: str = model.generate("x").usage.completion_tokens  # wrong
engine.close(timeout="soon")  # wrong
for piece in model.stream("x"):
    piece.txt  # wrong
'''


CHAIN = '''
from typing import Any
from runnel.langchain import ChatRunnel

def build(model: Any) -> None:
    chat = ChatRunnel(model=model, max_tokens=10)
    print(chat.with_structured_output({"title": "A"}, include_raw=True).invoke("x"))
    print(chat.bind_tools([], tool_choice="any").invoke("x").content)
'''


def test_a_chain_is_typed(tmp_path, monkeypatch):
    pytest.importorskip("langchain_core")
    monkeypatch.setenv("MYPYPATH", str(ROOT / "bindings/python"))
    program = tmp_path / "chain.py"
    program.write_text(CHAIN)
    said, failed, _ = mypy.api.run(["--strict", "--follow-imports", "silent", "--cache-dir", str(tmp_path / "cache"),
                                    str(program)])
    assert "error" not in said, said + failed


def test_right_and_wrong_programs(tmp_path, monkeypatch):
    monkeypatch.setenv("MYPYPATH", str(ROOT / "bindings/python"))
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(RIGHT)
    wrong.write_text(WRONG)
    said, failed, code = mypy.api.run(["--strict", "--cache-dir", str(tmp_path / "cache"), str(right), str(wrong)])
    told = [(name, int(line)) for name, line in re.findall(r"(\w+)\.py:(\d+): error", said)]
    assert told == [("wrong", at) for at, line in enumerate(WRONG.splitlines(), 1) if "# wrong" in line], said + failed
    assert code == 1
