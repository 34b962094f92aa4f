"""What the tests of the program share: where things lie, how the program is run, a skip that CTest sees."""
import fcntl
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import termios
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/support"))
from processes import popen  # noqa: E402

SHARED = pathlib.Path(os.environ.get("RUNNEL_SHARED", ROOT.parent / "shared"))
MODEL = str(ROOT / "examples/models/runnel-tiny-Q8_0.gguf")
ORACLE_NOW = 1767323045  # 2026-01-02 03:04:05, what the chat oracles were rendered with
SKIP = 77
PATIENCE = 900  # seconds until a program counts as hanging; slow machines and sanitizers are not to be told from it

program = None  # set by main from the command line


def run(*args, stdin=b"", timeout=PATIENCE, merged=False):
    """merged: what goes to standard error stands in stdout, too, in the order in which it came."""
    return subprocess.run([program, *map(str, args)], input=stdin, timeout=timeout, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT if merged else subprocess.PIPE)


def metadata(model=MODEL):
    """The keys of a model's file and what they say, but for arrays."""
    told = json.loads(run("info", model, "--json").stdout)
    return {entry["key"]: entry["value"] for entry in told["metadata"] if "value" in entry}


def sanitized():
    """Whether the program is instrumented: slower by far, and what is freed stays with the process for a while."""
    with open(program, "rb") as file:
        return b"__asan_init" in file.read()


def set_columns(terminal, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def catches(process, number):
    """Whether a program has a handler for the signal by now."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[1], 16) >> (number - 1) & 1


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIP)


def need_shared():
    if not (SHARED / "oracles").is_dir():
        skip(f"{SHARED} is missing")


def start_redis(folder):
    """A redis-server that keeps nothing, listening on FOLDER/socket: (process, the socket's path)."""
    socket = os.path.join(folder, "socket")
    server = popen(["redis-server", "--unixsocket", socket, "--port", "0", "--save", "", "--appendonly",
                    "no",
                    "--dir", folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    began = time.monotonic()
    while not os.path.exists(socket):
        assert server.poll() is None and time.monotonic() - began < PATIENCE, "redis-server does not come up"
        time.sleep(0.005)
    return server, socket


def stop_redis(server, socket):
    server.kill()
    server.wait()
    pathlib.Path(socket).unlink(missing_ok=True)


def with_metadata(path, values, model=MODEL):
    """Writes the model to path with more metadata in front: floats, whole numbers and strings by their keys."""
    whole = pathlib.Path(model).read_bytes()
    n = struct.unpack_from("<Q", whole, 16)[0]

    def text(string):
        return struct.pack("<Q", len(string.encode())) + string.encode()

    def entry(key, value):
        kind, data = ((6, struct.pack("<f", value)) if isinstance(value, float) else
                      (4, struct.pack("<I", value)) if isinstance(value, int) else (8, text(value)))
        return text(key) + struct.pack("<I", kind) + data

    added = b"".join(entry(key, value) for key, value in values.items())
    added += entry("test.padding", " " * (-len(added + entry("test.padding", "")) % 32))  # tensors stay aligned
    pathlib.Path(path).write_bytes(whole[:16] + struct.pack("<Q", n + len(values) + 1) + added + whole[24:])
    return str(path)


def make_adapter(path, *options, model=MODEL):
    """A LoRA adapter of random numbers for the model."""
    subprocess.run([sys.executable, str(ROOT / "tests/oracle/make_adapter.py"), model, str(path), *map(str, options)],
                   check=True)
    return str(path)


def main(module):
    """argv: PROGRAM [unittest's own]. Where all that ran passed and some test was skipped, it ends with 77."""
    global program
    program = sys.argv.pop(1)
    result = unittest.main(module=module, verbosity=2, exit=False).result
    if result.wasSuccessful() and result.skipped:
        sys.exit(SKIP)
    sys.exit(not result.wasSuccessful() or result.testsRun == 0)
