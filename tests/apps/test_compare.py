#!/usr/bin/env python3
"""bench/compare with programs that only pretend, whose speeds are known: medians, ratios, turns, what is refused; and
once with the real runnel on our side."""
import csv
import json
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import unittest

import common
from common import MODEL, ROOT

COMPARE = ROOT / "bench/compare"

# Speed of call number n (from 0): the n-th of the list in NAME.speeds, counted by the file NAME.calls.
NEXT = """#!/usr/bin/env python3
import json, pathlib, sys
here, name = pathlib.Path(sys.argv[0]).parent, pathlib.Path(sys.argv[0]).name
calls = here / (name + ".calls")
lines = calls.read_text().splitlines() if calls.exists() else []
calls.write_text("\\n".join(lines + [" ".join(sys.argv[1:])]) + "\\n")
speeds = json.loads((here / (name + ".speeds")).read_text())
speed = speeds[len(lines) % len(speeds)]
given = {sys.argv[i]: sys.argv[i + 1] for i in range(1, len(sys.argv) - 1) if sys.argv[i].startswith("-")}
def values(option, default):
    return [int(v) for v in given.get(option, default).split(",")]
"""
PEER = NEXT + """
rows = [{"n_prompt": p, "n_gen": 0, "n_depth": d, "avg_ts": 10 * speed} for p in values("-p", "512") if p
        for d in values("-d", "0")]
rows += [{"n_prompt": 0, "n_gen": n, "n_depth": d, "avg_ts": speed} for n in values("-n", "128") if n
         for d in values("-d", "0")]
print("warning: [this] is {not} JSON\\n" + json.dumps(rows, indent=2) + "\\nllama_perf: done")
"""
BATCHED = NEXT + """
for pp in values("-npp", ""):
    for tg in values("-ntg", ""):
        for pl in values("-npl", ""):
            print("log line")
            print(json.dumps({"pp": pp, "tg": tg, "pl": pl, "speed_pp": 1.0, "speed_tg": speed * pl}))
"""
OURS = NEXT + """
print("program,model,format,test,prompt_tokens,gen_tokens,streams,depth,tokens_per_s,limit_percent")
for s in values("--streams", "1"):
    for p in values("-p", "512"):
        if p: print(f"runnel,m,Q9_9,prefill,{p},0,{s},0,{10 * speed * s},50")
    for n in values("-n", "64"):
        for d in values("--depth", "0"):
            if n: print(f"runnel,m,Q9_9,decode,0,{n},{s},{d},{speed * s},80")
"""


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.at = pathlib.Path(self.folder.name)
        self.model = str(self.at / "m.gguf")
        pathlib.Path(self.model).write_bytes(b"")
        self.ours = self.program("ours", OURS, [300])

    def program(self, name, text, speeds=(1,)):
        path = self.at / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        (self.at / f"{name}.speeds").write_text(json.dumps(list(speeds)))
        return str(path)

    def calls(self, name):
        return (self.at / f"{name}.calls").read_text().splitlines()

    def compare(self, *args, code=0):
        command = [sys.executable, COMPARE, "--ours", self.ours, "-o", self.at / "out", "-t", "3", *args, self.model]
        result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=common.PATIENCE)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def rows(self):
        with open(self.at / "out.csv", newline="") as file:
            return list(csv.DictReader(file))

    def test_medians_and_ratios(self):
        self.ours = self.program("ours", OURS, [300, 100, 200])
        peer = self.program("peer", PEER, [100, 100, 50])
        out = self.compare("--peer", f"other={peer}", "-p", "128,256", "-n", "64", "--rounds", "3").stdout
        rows = self.rows()
        self.assertEqual([(r["program"], r["test"], r["prompt_tokens"], r["gen_tokens"]) for r in rows],
                         [(p, *t) for t in (("prefill", "128", "0"), ("prefill", "256", "0"), ("decode", "0", "64"))
                          for p in ("runnel", "other")])
        ours, theirs = rows[4:6]
        self.assertEqual([float(ours[c]) for c in ("tokens_per_s", "tokens_per_s_min", "tokens_per_s_max")],
                         [200, 100, 300])
        self.assertEqual((ours["ratio"], ours["limit_percent"], ours["format"], ours["threads"]),
                         ("", "80", "Q9_9", "3"))
        self.assertEqual(float(theirs["tokens_per_s"]), 100)
        # Of the rounds: 300/100, 100/100, 200/50.
        self.assertEqual([float(theirs[c]) for c in ("ratio", "ratio_min", "ratio_max")], [3, 1, 4])
        self.assertRegex(out, r"\| m +\| decode 64 +\| 1 +\| 0 +\| 200.0 +\| 80 % +\| 100.0 +\| 3.00 +\| 1.00..4.00")

    def test_same_threads_lengths_and_turns(self):
        peer, log = self.program("peer", PEER), self.at / "out.txt"
        self.compare("--peer", peer, "-p", "128", "-n", "64", "--rounds", "4", "--kv-type", "f32", "--peer-args=-fa 1")
        for call in self.calls("ours"):
            self.assertIn("--threads 3 --kv-type f32 -p 128 -n 64 --streams 1 --depth 0", call)
        for call in self.calls("peer"):
            self.assertIn("-p 128 -n 64 -t 3 -r 1 -o json -ctk f32 -ctv f32 -fa 1", call)
            self.assertNotIn("-d ", call)
        order = "".join("o" if "/ours bench" in line else "p" for line in log.read_text().splitlines()
                        if line.startswith("$ "))
        self.assertEqual(order, "oppoop" + "po")

    def test_depth_and_streams(self):
        peer, batched = self.program("peer", PEER, [100]), self.program("batched", BATCHED, [50])
        self.compare("--peer", f"a={peer}", "--peer-batched", f"a={batched}", "-p", "0", "-n", "64", "--depth", "0,512",
                     "--streams", "1,16", "--rounds", "1")
        got = {(r["program"], int(r["streams"]), int(r["depth"])): (float(r["tokens_per_s"]), r["ratio"])
               for r in self.rows()}
        self.assertEqual(got, {("runnel", 1, 0): (300, ""), ("a", 1, 0): (100, "3"),
                               ("runnel", 16, 0): (4800, ""), ("a", 16, 0): (800, "6"),
                               ("runnel", 1, 512): (300, ""), ("a", 1, 512): (100, "3"),
                               ("runnel", 16, 512): (4800, ""), ("a", 16, 512): (800, "6")})
        self.assertIn("-d 512", self.calls("peer")[1])
        self.assertIn("-c 4096 -npp 1 -ntg 64,1 -npl 16", self.calls("batched")[0])
        self.assertIn("-c 12288 -npp 512 -ntg 64,1 -npl 16", self.calls("batched")[1])

    def test_peer_without_batches(self):
        peer = self.program("peer", PEER, [100])
        out = self.compare("--peer", peer, "-p", "0", "--streams", "1,4", "--rounds", "2").stdout
        self.assertEqual([(r["program"], r["streams"]) for r in self.rows()],
                         [("runnel", "1"), ("peer", "1"), ("runnel", "4")])
        self.assertRegex(out, r"\| 4 .*\| - +\| - +\| - +\|")

    def test_rows_lost_now_and_then(self):
        peer = self.program("peer", PEER)
        losing = BATCHED.replace("for pp in", "if len(lines) % 2 == 0: sys.exit(0)\nfor pp in")
        batched = self.program("batched", losing)
        self.compare("--peer", peer, "--peer-batched", batched, "-p", "0", "--streams", "4", "--rounds", "2")
        self.assertEqual(len(self.calls("batched")), 4)

    def test_two_peers(self):
        a, b = self.program("a", PEER, [100]), self.program("b", PEER, [150])
        self.compare("--peer", f"x={a}", "--peer", f"y={b}", "-p", "0", "--rounds", "2")
        self.assertEqual([(r["program"], r["ratio"]) for r in self.rows()], [("runnel", ""), ("x", "3"), ("y", "2")])
        self.compare("--peer", f"x={a}", "--peer", f"x={b}", code=2)

    def test_failures(self):
        for text, words in ((PEER + "sys.exit('out of memory')\n", "out of memory"),
                            ("#!/bin/sh\necho no JSON here\n", "told no result"),
                            ("#!/bin/sh\necho '[{\"n_gen\":64,\"avg_ts\":0}]'\n", "not a speed"),
                            ("#!/bin/sh\necho '[{\"n_gen\":64,\"avg_ts\":\"fast\"}]'\n", "not a speed"),
                            ("#!/bin/sh\necho '[{\"n_gen\":64,\"avg_ts\":NaN}]'\n", "not a speed")):
            with self.subTest(words=words):
                peer = self.program("peer", text)
                self.assertIn(words, self.compare("--peer", peer, "-p", "0", code=1).stderr)
                self.assertFalse((self.at / "out.csv").exists())
        self.ours = self.program("broken", "#!/bin/sh\necho hello\n")
        peer = self.program("peer", PEER)
        self.assertIn("told no result", self.compare("--peer", peer, code=1).stderr)

    def test_refused(self):
        peer = self.program("peer", PEER)
        for args, words in ((["--peer", "/does/not/exist"], "not a program"), (["--peer", peer, "-p", "1,x"], "list"),
                            (["--peer", peer, "-n", "-1"], "list"), (["--peer", peer, "--rounds", "0"], "at least 1"),
                            (["--peer", peer, "--streams", "0"], "at least 1"), ([], "--peer"),
                            (["--peer", f"a={peer}", "--peer-batched", f"b={peer}"], "no --peer of that name"),
                            (["--peer", f"runnel={peer}"], "name of its own"),
                            (["--peer", peer, "/does/not/exist.gguf"], "cannot be read")):
            with self.subTest(args=args):
                self.assertIn(words, self.compare(*args, code=2).stderr)
        self.assertIn("nothing to time", self.compare("--peer", peer, "-p", "0", "-n", "0", code=1).stderr)

    def test_real_program(self):
        self.ours, self.model = common.program, MODEL
        peer = self.program("peer", PEER, [100])
        self.compare("--peer", peer, "-p", "16", "-n", "4", "--depth", "0,40", "--rounds", "1", "-t", "2")
        rows = [r for r in self.rows() if r["program"] == "runnel"]
        self.assertEqual([(r["test"], r["depth"]) for r in rows], [("prefill", "0"), ("decode", "0"), ("decode", "40")])
        for row in rows:
            self.assertGreater(float(row["tokens_per_s"]), 0)
            self.assertGreater(float(row["limit_percent"]), 0)
        self.assertTrue(re.search(r"^\$ .*bench", (self.at / "out.txt").read_text(), re.M))


if __name__ == "__main__":
    common.main("__main__")
