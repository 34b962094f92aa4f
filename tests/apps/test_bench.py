#!/usr/bin/env python3
"""runnel bench: its JSON and CSV have the columns that the help names, and figures that fit together."""
import csv
import io
import json
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

import common
from common import MODEL, run

COLUMNS = """program model architecture format test prompt_tokens gen_tokens streams depth tokens_per_s tokens_per_s_min
    tokens_per_s_max first_token_ms first_token_ms_min first_token_ms_max repeats threads batch_tokens kv_type
    chunk_mean device device_layers device_experts expert_hit_percent draft drafted accepted tokens_per_pass rested rest
    drafting_percent overlap_percent
    bytes_per_token ops_per_token bandwidth_percent peak_percent limit_percent load_s peak_rss_bytes file_bytes
    weight_bytes tiled_bytes mapped_bytes kv_bytes read_bytes_per_s integer_ops_per_s float_ops_per_s level
    cpu""".split()
SHORT = ["-p", "40", "-n", "8", "-r", "2", "--threads", "2"]


class Bench(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def good(self, *args, **more):
        result = run("bench", MODEL, *args, **more)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        return result.stdout.decode()

    def rows(self, *args):
        text = self.good("--csv", *args)
        rows = list(csv.DictReader(io.StringIO(text)))
        self.assertEqual(text.splitlines()[0].split(","), COLUMNS)
        return rows

    def test_csv(self):
        rows = self.rows(*SHORT, "--streams", "1,3", "--depth", "0,70")
        key = [(r["test"], int(r["prompt_tokens"]), int(r["gen_tokens"]), int(r["streams"]), int(r["depth"]))
               for r in rows]
        self.assertEqual(key, [("prefill", 40, 0, 1, 0), ("prefill", 40, 0, 3, 0), ("decode", 0, 8, 1, 0),
                               ("decode", 0, 8, 3, 0), ("decode", 0, 8, 1, 70), ("decode", 0, 8, 3, 70)])
        for row in rows:
            for name, value in row.items():
                self.assertNotRegex(value, r"^[\d.]+e\+", name)  # the limits are above 1e9
            self.assertGreater(int(row["integer_ops_per_s"]), 10**7)
            rate = [float(row["tokens_per_s" + end]) for end in ("_min", "", "_max")]
            self.assertEqual(rate, sorted(rate))
            self.assertGreater(rate[0], 0)
            self.assertEqual(row["first_token_ms"] == "", row["test"] == "decode")
            self.assertEqual((row["program"], row["architecture"], row["format"], row["threads"], row["repeats"]),
                             ("runnel", "llama", "Q8_0", "2", "2"))
            self.assertEqual(int(row["file_bytes"]), pathlib.Path(MODEL).stat().st_size)
            self.assertGreater(int(row["peak_rss_bytes"]), int(row["weight_bytes"]))
            self.assertAlmostEqual(float(row["limit_percent"]),
                                   max(float(row["bandwidth_percent"]), float(row["peak_percent"])))
            share = rate[1] * float(row["bytes_per_token"]) / float(row["read_bytes_per_s"])
            self.assertAlmostEqual(share * 100, float(row["bandwidth_percent"]), delta=share)

    def test_needs(self):
        """Bytes and operations per token, against the shapes of the bundled model (tied embedding, Q8_0)."""
        info = json.loads(run("info", MODEL, "--json").stdout)
        shapes = {t["name"]: t for t in info["tensors"]}
        weights = sum(t["bytes"] for t in shapes.values())
        kv = info["memory"]["kv_bytes_per_token"]
        head = shapes.get("output.weight", shapes["token_embd.weight"])
        if "output.weight" in shapes:
            weights -= shapes["token_embd.weight"]["bytes"]
        products = sum(2 * t["shape"][0] * t["shape"][1] for n, t in shapes.items()
                       if len(t["shape"]) > 1 and n not in ("token_embd.weight", "output.weight"))
        of_head = 2 * head["shape"][0] * head["shape"][1]
        rows = self.rows("--no-limits", *SHORT, "--streams", "1,4", "--depth", "0,64")
        for row in rows:
            got = float(row["bytes_per_token"]), float(row["ops_per_token"])
            if row["test"] == "prefill":
                n = int(row["streams"])
                want = (weights + n * 40 * kv) / (40 * n), products + of_head / 40
            else:
                depth = int(row["depth"]) + 8 / 2
                want = weights / int(row["streams"]) + depth * kv, products + of_head
            for a, b in zip(got, want):
                self.assertAlmostEqual(a / b, 1, places=6)

    def test_no_limits(self):
        for row in self.rows("--no-limits", *SHORT):
            self.assertEqual([row[c] for c in ("bandwidth_percent", "limit_percent", "read_bytes_per_s", "cpu")],
                             [""] * 4)

    def test_json(self):
        whole = json.loads(self.good(*SHORT, "--json", "--kv-type", "f32", "--batch", "16"))
        self.assertRegex(whole["runnel"], r"^\d+\.\d+\.\d+$")
        self.assertEqual([r["test"] for r in whole["results"]], ["prefill", "decode"])
        for result in whole["results"]:
            self.assertEqual(list(result), COLUMNS)
            self.assertEqual((result["kv_type"], result["batch_tokens"]), ("f32", 16))
        self.assertIsNone(whole["results"][1]["first_token_ms"])
        self.assertGreater(whole["results"][0]["first_token_ms"], 0)

    def test_drafts(self):
        """The model's own first layer guesses. How often depends on what steps take: in the runs that are told, perhaps
        never. What is told fits together."""
        rows, all_runs = self.drafting()
        drafted, accepted = (sum(int(r[c]) for r in rows) for c in ("drafted", "accepted"))
        self.assertLessEqual(drafted, all_runs["num_draft_tokens"])  # the runs that warm up have drafts, too
        self.assertLessEqual(accepted, all_runs["num_accepted_tokens"])
        self.assertGreater(all_runs["num_draft_tokens"], 0)  # before it is known what steps take
        for row in rows:
            self.fits_together(row)

    def drafting(self):
        """(rows, what the engine counted in all runs) of a bench whose drafter takes turns with the model."""
        path = pathlib.Path(self.folder.name) / "metrics"
        rows = self.rows("--no-limits", "--draft", "exit:1", "-p", "8", "-n", "150", "-r", "3", "--streams", "1,2",
                         "--metrics", path)
        text = path.read_text()
        return rows, {name: sum(map(float, re.findall(rf"(?m)^\w*spec_decode_{name}_total\S* (\S+)$", text)))
                      for name in ("num_draft_tokens", "num_accepted_tokens")}

    def fits_together(self, row):
        drafted, accepted = int(row["drafted"]), int(row["accepted"])
        self.assertEqual(row["draft"], "exit:1")
        self.assertLessEqual(accepted, drafted)
        self.assertLess(accepted, 151 * 3 * int(row["streams"]))
        self.assertEqual(row["tokens_per_pass"] == "", drafted == 0)
        if row["test"] == "prefill":
            self.assertEqual((drafted, row["drafting_percent"], row["overlap_percent"]), (0, "", ""))
            return
        self.assertTrue(0 <= float(row["drafting_percent"]) <= 100, row)
        self.assertIn(row["overlap_percent"], ("", "0"))  # they take turns
        if drafted > 0:
            self.assertGreater(float(row["drafting_percent"]), 0)
        rested = int(row["rested"])
        self.assertEqual(row["rest"] == "NONE", rested == 0, row)
        self.assertLess(rested, 151 * 3 * int(row["streams"]))
        if accepted > 0:
            passes = accepted / (float(row["tokens_per_pass"]) - 1)
            self.assertAlmostEqual(passes, round(passes), places=3)
            self.assertTrue(drafted / 8 <= round(passes) <= drafted, row)

    def test_drafts_of_ngrams(self):
        for args, draft in ((["--speculate"], "ngram"), (["--draft", "ngram"], "ngram"), ([], "none")):
            for row in self.rows("--no-limits", *args, "-p", "0", "-n", "100", "-r", "1"):
                self.assertEqual((row["draft"], row["drafting_percent"], row["overlap_percent"]), (draft, "", ""))
                self.assertEqual(row["tokens_per_pass"] == "", int(row["drafted"]) == 0)
                if draft == "none":
                    self.assertEqual((row["drafted"], row["accepted"]), ("0", "0"))

    def test_several_models(self):
        text = run("bench", MODEL, MODEL, "--csv", "--no-limits", *SHORT).stdout.decode()
        self.assertEqual(len(text.splitlines()), 1 + 2 * 2)
        whole = json.loads(run("bench", MODEL, MODEL, "--json", "--no-limits", *SHORT).stdout)
        self.assertEqual(len(whole["results"]), 4)

    def test_table(self):
        text = self.good(*SHORT)
        self.assertRegex(text, r"GB/s")
        self.assertRegex(text, r"(?m)^  prefill +40 +1 +0 +[\d.]+ +[\d.]+ \.\. [\d.]+ +[\d.]+ ms +\d+ % +\d+ %$")
        self.assertRegex(text, r"(?m)^  decode +8 +1 +0 +[\d.]+ ")
        self.assertLessEqual(max(map(len, text.splitlines())), 140)

    def test_prefill_or_decode_alone(self):
        self.assertEqual([r["test"] for r in self.rows("-p", "0", "-n", "5", "-r", "1", "--no-limits")], ["decode"])
        self.assertEqual([r["test"] for r in self.rows("-p", "5", "-n", "0", "-r", "1", "--no-limits")], ["prefill"])

    def test_text(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"Once upon a time there was a fox.")
            file.flush()
            self.rows("--text", file.name, "--no-limits", *SHORT)
        with tempfile.NamedTemporaryFile() as file:
            empty = run("bench", MODEL, "--text", file.name)
            self.assertEqual(empty.returncode, 1)
            self.assertIn(b"no text in it", empty.stderr)
        self.assertEqual(run("bench", MODEL, "--text", "/does/not/exist").returncode, 1)

    def test_bad_file(self):
        for path in ("/does/not/exist.gguf", __file__):
            result = run("bench", path)
            self.assertEqual((result.returncode, result.stdout), (1, b""))
        text = run("bench", MODEL, "/does/not/exist.gguf", "--csv", "--no-limits", *SHORT)
        self.assertEqual(text.returncode, 1)
        self.assertEqual(len(text.stdout.splitlines()), 3)  # what was measured before is told
        text = run("bench", MODEL, "/does/not/exist.gguf", "--json", "--no-limits", *SHORT)
        self.assertEqual((text.returncode, len(json.loads(text.stdout)["results"])), (1, 2))

    def test_files_of_one_model(self):
        for option in ("--metrics", "--trace", "--experts"):
            at = pathlib.Path(self.folder.name, "file")
            result = run("bench", MODEL, MODEL, option, at, "--no-limits", *SHORT)
            self.assertEqual((result.returncode, result.stdout, at.exists()), (2, b"", False))
            self.assertIn(option.encode(), result.stderr)

    def test_interrupt(self):
        process = common.popen([common.program, "bench", MODEL, "-r", "1000", "--reference", "-q"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not common.catches(process, signal.SIGINT):
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.communicate(timeout=common.PATIENCE), (b"", b""))
        self.assertEqual(process.returncode, 130)

    def test_help_names_columns(self):
        text = run("bench", "--help").stdout.decode()
        for column in COLUMNS:
            if not column.endswith(("_min", "_max")):
                self.assertIn(column, text)


if __name__ == "__main__":
    common.main("__main__")
