#!/usr/bin/env python3
"""bench/plot: pictures of what runnel bench and bench/compare write, the panels that the rows ask for, bad files."""
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import common
from common import MODEL, ROOT, run

PLOT = ROOT / "bench/plot"
HEAD = ("program,model,format,test,prompt_tokens,gen_tokens,streams,depth,tokens_per_s,tokens_per_s_min,"
        "tokens_per_s_max\n")


def rows(models=(("m", "Q8_0"),), programs=("runnel",), depths=(0,), streams=(1,), prompts=(128,)):
    out = HEAD
    for model, fmt in models:
        for program in programs:
            out += "".join(f"{program},{model},{fmt},prefill,{p},0,1,0,{p},{p - 1},{p + 1}\n" for p in prompts)
            out += "".join(f"{program},{model},{fmt},decode,0,64,{s},{d},{20 * s},{19 * s},{21 * s}\n"
                           for s in streams for d in depths)
    return out


class Plot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = pathlib.Path(folder.name)

    def plot(self, text, *args, name="out.svg", code=0):
        path = self.at / "in.csv"
        path.write_text(text)
        command = [sys.executable, PLOT, path, "-o", self.at / name, *args]
        result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=common.PATIENCE)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def texts(self):
        tree = xml.etree.ElementTree.parse(self.at / "out.svg")
        return {"".join(e.itertext()).strip() for e in tree.iter() if e.tag.endswith("}text")}

    def test_bars(self):
        result = self.plot(rows(models=(("a", "Q8_0"), ("b", "Q4_K")), programs=("runnel", "other")), "--title", "Ours")
        self.assertEqual((result.stdout, result.stderr), ("", ""))
        self.assertLessEqual({"runnel", "other", "Q8_0", "Q4_K", "Ours", "prefill of 128 tokens",
                              "decode of 64 tokens"}, self.texts())

    def test_names_where_formats_are_the_same(self):
        self.plot(rows(models=(("a_1", "Q8_0"), ("b", "Q8_0")), prompts=(128, 512)))
        self.assertLessEqual({"a_1", "b", "512", "prefill of so many tokens"}, self.texts())

    def test_lines(self):
        self.plot(rows(programs=("runnel", "other"), depths=(0, 1000, 8192), streams=(1, 16)))
        self.assertLessEqual({"decode over positions in the context", "decode over streams at once", "8192", "16"},
                             self.texts())
        script = self.plot(rows(depths=(0, 1000)), "--script").stdout
        self.assertIn("0 20.0 19.0 21.0\n1000 20.0 19.0 21.0", script)

    def test_png(self):
        self.plot(rows(), name="out.png")
        data = (self.at / "out.png").read_bytes()
        self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual(struct.unpack(">II", data[16:24]), (1280, 420))

    def test_what_bench_writes(self):
        out = run("bench", MODEL, "-p", "16", "-n", "4", "-r", "1", "--streams", "1,2", "--no-limits", "--csv").stdout
        self.plot(out.decode())
        self.assertLessEqual({"prefill of 16 tokens", "decode over streams at once", "runnel"}, self.texts())

    def test_labels(self):
        (self.at / "b.csv").write_text(rows())
        self.plot(rows(), self.at / "b.csv", "--label", "before", "--label", "after")
        self.assertLessEqual({"runnel before", "runnel after"}, self.texts())

    def test_hostile_names(self):
        mark = self.at / "mark"
        name = f"`touch {mark}` $(touch {mark}) {{/*9 big}}"
        self.plot(rows(models=((name, "Q8_0"), ("b", "Q8_0")), depths=(0, 9)), "--title", name)
        self.assertFalse(mark.exists())
        self.assertTrue(any(re.search(r"touch .*\{/\*9 big\}", text) for text in self.texts()))

    def test_refused(self):
        for text, words in (("", "no rows"), (HEAD, "no rows"), ("a,b\n1,2\n", "no rows with the columns program"),
                            (rows().replace(",20,", ",fast,"), "line 3")):
            with self.subTest(words=words):
                self.assertIn(words, self.plot(text, code=1).stderr)
        self.assertIn("must end with", self.plot(rows(), name="out.jpg", code=2).stderr)
        self.assertIn("once for each file", self.plot(rows(), "--label", "a", "--label", "b", code=2).stderr)


if __name__ == "__main__":
    if shutil.which("gnuplot") is None:
        common.skip("gnuplot is not here")
    common.main("__main__")
