"""The examples, as a newcomer runs them."""

import csv
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
import runnel
from conftest import MODEL, PACKAGE, ROOT
from processes import popen

EXAMPLES = ROOT / "examples/python"
ENVIRONMENT = {**os.environ, "PYTHONPATH": PACKAGE}


def expected(prompt, n):
    with runnel.blocking.Engine(compute_threads=1) as engine:
        return engine.load_model(MODEL).generate(prompt, max_tokens=n).text


def test_stream():
    done = subprocess.run([sys.executable, EXAMPLES / "stream.py", MODEL, "Once"], capture_output=True, text=True,
                          check=True, env=ENVIRONMENT)
    assert done.stdout == expected("Once", 60) + "\n"


def test_csv_batch(tmp_path):
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("id,prompt\n1,Once upon a time\n2,\"A lamb, and\"\n")
    done = subprocess.run([sys.executable, EXAMPLES / "csv_batch.py", MODEL, source, target, "prompt"], check=True,
                          capture_output=True, text=True, env=ENVIRONMENT)
    assert "2 of 2" in done.stderr
    rows = list(csv.DictReader(target.open(newline="")))
    assert [row["answer"] for row in rows] == [expected(row["prompt"], 40) for row in rows]
    assert [row["error"] for row in rows] == ["", ""]


@pytest.mark.parametrize("text, answers", [
    ("id,prompt\n", []), ("id,prompt\n1,Once\n2,\n3\n4," + "a " * 5000 + "\n", [True, False, False, False]),
    ("id,prompt\n1,Once\n2,Once,more\n3,Once\n", [True, False, True])])
def test_csv_batch_of_rows_without_an_answer(tmp_path, text, answers):
    """The others have theirs all the same."""
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text(text)
    subprocess.run([sys.executable, EXAMPLES / "csv_batch.py", MODEL, source, target, "prompt"], check=True,
                   capture_output=True, text=True, env=ENVIRONMENT)
    rows = list(csv.DictReader(target.open(newline="")))
    assert target.read_text().startswith("id,prompt,answer,error")
    assert [(row["answer"] != "", row["error"] == "") for row in rows] == [(good, good) for good in answers]


def test_csv_batch_without_its_column(tmp_path):
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("id,text\n1,Once\n")
    done = subprocess.run([sys.executable, EXAMPLES / "csv_batch.py", MODEL, source, target, "prompt"],
                          capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 1 and "no column prompt" in done.stderr and not target.exists()


def get(port, query):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/?{query}") as answer:
        return answer.read().decode()


def port_of(server):
    """The port that it says it listens on; an error where it ends before."""
    for line in server.stdout:
        found = re.fullmatch(r"listening on (\d+)\n", line)
        if found:
            return int(found[1])
    raise AssertionError(f"the server ended with {server.wait()}")


@pytest.mark.parametrize("name", ["aiohttp_server.py", "fastapi_server.py"])
def test_servers(name):
    server = popen([sys.executable, EXAMPLES / name, MODEL, "0"], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    try:
        port = port_of(server)
        lines = [line[6:] for line in get(port, "prompt=Once&max_tokens=20").splitlines() if line]
        assert lines.pop() == "[DONE]" and "".join(map(json.loads, lines)) == expected("Once", 20)
        for query in ("prompt=", "prompt=Once&max_tokens=-5", "prompt=" + "a+" * 2000):
            with pytest.raises(urllib.error.HTTPError) as caught:
                get(port, query)
            assert caught.value.code == 400
        for query in ("prompt=Once&max_tokens=many", "max_tokens=5"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                get(port, query)
            assert caught.value.code in (400, 422)  # FastAPI's own checks say 422
    finally:
        server.terminate()
        server.wait(1000)
    assert server.returncode in (0, -15)
