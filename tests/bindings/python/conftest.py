"""What the tests of the Python binding share. ctest names the package's folder and the program in the environment."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = os.environ["RUNNEL_PYTHON_PACKAGE"]
sys.path.insert(0, PACKAGE)
sys.path.append(str(ROOT / "tests/support"))
MODEL = str(ROOT / "examples/models/runnel-tiny-Q8_0.gguf")
#: AddressSanitizer's shadow counts as memory
UNDER_ASAN = "LD_PRELOAD" in os.environ


def pytest_configure(config):
    config.addinivalue_line("markers", "left_out(condition): not a test of this build, where the condition holds")


def pytest_collection_modifyitems(config, items):
    left = [item for item in items for mark in item.iter_markers("left_out") if mark.args[0]]
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=left)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def run_python(code, *arguments, timeout=1000):
    """A fresh interpreter with the package; the code finds the model as sys.argv[1]."""
    return subprocess.run([sys.executable, "-c", code, MODEL, *arguments], capture_output=True, text=True,
                          timeout=timeout, env={**os.environ, "PYTHONPATH": PACKAGE})


@pytest.fixture
def model_path():
    return MODEL


@pytest.fixture
def program():
    path = os.environ.get("RUNNEL_PROGRAM", "")
    if not path:
        pytest.skip("the program is not built")
    return path


@pytest.fixture
async def engine():
    import runnel

    async with runnel.Engine(compute_threads=1) as engine:
        yield engine


@pytest.fixture
async def model(engine, model_path):
    return await engine.load_model(model_path)


@pytest.fixture
def blocking_model(model_path):
    import runnel

    with runnel.blocking.Engine(compute_threads=1) as engine:
        yield engine.load_model(model_path)
