#!/usr/bin/env python3
"""Sources that pages and comments name are there: a file that is renamed takes its name along.

    tests/pages/file_names.py        in a checkout; 77 without git

A name counts if the end of a tracked path is the same (with * and [ch] as in a shell). Names in capitals stand for any
name. The notebook and the reasons keep the names of their day.
"""
import fnmatch
import re
import subprocess
import sys

HISTORY = {"docs/SPEED-LOG.md", "docs/RATIONALE.md"}
FOREIGN = {"ck_*.h", "cuda.h", "ggml-common.h", "ggml-quants.c", "node_api.h", "src/ggml-common.h", "uv.h",
           "xxh_x86dispatch.h"}
NAME = re.compile(r"(?<![\w/.*\[\]-])((?:\.\./)*[\w/*-][\w/.*-]*\.(?:c|h|inc|cu|cuh|awk|\[ch\]))(?![\w(])")
C = re.compile(r"\.(c|h|inc|cu|cuh|js|mjs)$")
SCRIPT = re.compile(r"\.(py|sh|cmake|awk)$|(^|/)CMakeLists\.txt$")


def texts(path, whole):
    """Where names count: offset and text."""
    if path.endswith(".md"):
        pattern = r"`[^`\n]+`"
    elif C.search(path):
        pattern = r"/\*.*?\*/|//[^\n]*"
    else:
        pattern = r"(?<!\S)# [^\n]*"
    return ((match.start(), match.group()) for match in re.finditer(pattern, whole, re.S))


def main():
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=False)
    files = listed.stdout.split("\n")[:-1]
    if listed.returncode != 0 or not files:
        print("skipped: there is no list of files")
        return 77
    known, wrong = {}, 0
    for path in files:
        if path in HISTORY or path == "tests/pages/file_names.py":
            continue
        if not (path.endswith(".md") or C.search(path) or SCRIPT.search(path)):
            continue
        with open(path, encoding="utf-8") as file:
            whole = file.read()
        for at, text in texts(path, whole):
            for name in NAME.findall(text):
                stem = re.search(r"[^/]*$", name).group().split(".")[0]
                if name in FOREIGN or name.startswith("../") or re.search(r"(^|_)[A-Z]{3,}(_|$)", stem):
                    continue
                if name not in known:
                    known[name] = any(fnmatch.fnmatchcase("/" + other, "*/" + name) for other in files)
                if not known[name]:
                    print(f"{path}:{whole.count(chr(10), 0, at) + 1}: {name}: there is no such file")
                    wrong += 1
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
