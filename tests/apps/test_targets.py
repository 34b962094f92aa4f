#!/usr/bin/env python3
"""What bench/ makes as targets of speculation: a model that quotes, a small model at a large one's cost, one whose
tokens a draft foretells as often as was asked for. Judges: the text that is quoted, the small model, logits of both."""
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import common
from common import ROOT, SHARED, run

TINY, DRAFT = (str(SHARED / f"models/runnel-tiny{name}-F16.gguf") for name in ("", "-draft"))
TEXTS = [
    ("Text: ",
     "Once upon a time, a hedgehog named Paul lived near the river. One evening, Paul found a golden key under a "
     "stone and wondered which door it would open. He asked the owl, the fox and the old beaver, but nobody knew.",
     "\nCorrected text: ", 17),
    ("List: ", "two lemons, a loaf of bread, six eggs and a jar of honey from the market by the old bridge.",
     "\nIn order: ",
     10),
    ("The report says: ", '"The bridge was closed in March because two of its nine cables had rusted through. Repairs '
     'began in May and were to last until autumn, but the steel came late."', "\nSummary with quotations: ", 22),
]


def script(name, *args):
    environment = dict(os.environ, RUNNEL_SHARED=str(SHARED), OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    done = subprocess.run([sys.executable, ROOT / "bench" / name, *map(str, args)], env=environment,
                          capture_output=True,
                          timeout=common.PATIENCE)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def answer(model, text, n, *args):
    done = run("run", model, "-p", text, "-n", n, "--ignore-eos", "-q", *args)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def logits(model, text, folder):
    """(tokens, logits by row) of every position."""
    path = pathlib.Path(folder) / "logits"
    done = run("logits", model, "-p", text, "-o", path)
    assert done.returncode == 0, done.stderr.decode()
    data = path.read_bytes()
    n, n_vocab = struct.unpack_from("<II", data)
    return np.frombuffer(data, "<i4", n, 8), np.frombuffer(data, "<f4", n * n_vocab, 8 + 4 * n).reshape(n, n_vocab)


class Targets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.quoting = pathlib.Path(cls.folder.name) / "quoting.gguf"
        script("quoting_model.py", TINY, cls.quoting)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def quotes(self, model, *args):
        for before, quoted, behind, n in TEXTS:
            prompt = before + quoted + behind + quoted[:n]
            got = answer(model, prompt, 24, *args)
            self.assertGreater(len(got), 24)
            self.assertTrue((quoted[n:] + behind).startswith(got) or got.startswith(quoted[n:]), got)

    def test_quotes(self):
        self.quotes(self.quoting)
        self.quotes(self.quoting, "--draft", "ngram")

    def test_quotes_what_came_last(self):
        prompt = " We saw that it was red. We saw that it was blue. We saw that it was green. We saw that it was"
        self.assertEqual(answer(self.quoting, prompt, 2)[:6], " green")

    def test_quotes_with_another_seed(self):
        other = pathlib.Path(self.folder.name) / "other.gguf"
        script("quoting_model.py", TINY, other, "--seed", "5")
        self.quotes(other)

    def test_padded(self):
        """Two layers of a large shape, in Q4_0, say what the small model says."""
        padded = pathlib.Path(self.folder.name) / "padded.gguf"
        script("padded_model.py", self.quoting, padded, "--layers", "2")
        self.assertGreater(padded.stat().st_size, 40 << 20)
        self.quotes(padded)

    def test_numpy_model(self):
        sys.path.insert(0, str(ROOT / "bench"))
        os.environ["RUNNEL_SHARED"] = str(SHARED)
        import padded_model
        source = padded_model.Reader(DRAFT)
        tokens, want = logits(DRAFT, "Once upon a time, a cat named Nora lived near the meadow.", self.folder.name)
        model = padded_model.llama(source, source.tensors)
        got = np.array([padded_model.head_of(source) @ model.hidden(t) for t in tokens])
        self.assertLess(np.sum((got - want) ** 2) / np.sum(want ** 2), 1e-5)

    def test_agree(self):
        """The share of tokens that the draft foretells, counted in the engine's own logits along the target's
        answers."""
        target, prompts = pathlib.Path(self.folder.name) / "target.gguf", pathlib.Path(self.folder.name) / "prompts"
        prompts.write_text("2045\n" * 4)  # a beginning alone: the target draws what follows
        text = script("padded_model.py", DRAFT, target, "--layers", "2", "--type", "Q8_0", "--agree", "0.8",
                      "--prompts",
                      prompts)
        self.assertAlmostEqual(float(text.split(":")[1].split()[0]), 0.8, delta=0.03)
        right = []
        for beginning in ("Once upon a time, a cat", "One day", "Long ago, there was", "The old fox", "In the garden"):
            n = len(logits(target, beginning, self.folder.name)[0])
            whole = beginning + answer(target, beginning, 80)
            tokens, of_target = logits(target, whole, self.folder.name)
            _, of_draft = logits(DRAFT, whole, self.folder.name)
            likeliest = of_target[n:].argmax(1)
            right += list(likeliest == of_draft[n:].argmax(1))
        self.assertGreater(len(right), 300)
        self.assertAlmostEqual(np.mean(right), 0.8, delta=0.1)

    def test_agree_more_than_there_is(self):
        with self.assertRaisesRegex(AssertionError, "--agree is more"):
            script("padded_model.py", DRAFT, pathlib.Path(self.folder.name) / "no.gguf", "--layers", "2", "--agree",
                   "1.1")

    def test_padded_head(self):
        """A head that grew with its model is right as often, and says nothing else in what is generated."""
        bench = os.environ.get("RUNNEL_BENCH_HEADS")
        if not bench:
            self.skipTest("without bench_heads")
        small, model, head = (str(pathlib.Path(self.folder.name) / name) for name in ("head", "large", "large-head"))
        corpus = pathlib.Path(self.folder.name) / "corpus"
        text = (SHARED / "oracles/runnel-tiny.heldout.txt").read_bytes()
        corpus.write_bytes(text[:8000])
        done = run("eagle-train", DRAFT, corpus, "-o", small, "--steps", "12", "--text-tokens", "24", "--lr", "0.004",
                   "--unroll", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        shape = ["--like", "tiny-256", "--type", "F16"]
        script("padded_model.py", DRAFT, model, "--layers", "4", *shape)
        print_of = subprocess.run([bench, "--print", model], capture_output=True, check=True).stdout.decode().strip()
        script("padded_model.py", small, head, "--print", print_of, *shape)
        corpus.write_bytes(text[-3000:])
        rates = [subprocess.run([bench, *pair, corpus], capture_output=True, check=True).stdout.decode().splitlines()
                 for pair in ((DRAFT, small), (model, head))]
        self.assertEqual(len(rates[0]), 4)
        for a, b in zip(*rates):
            self.assertAlmostEqual(float(a.split()[2]), float(b.split()[2]), delta=0.01)
        self.assertGreater(float(rates[0][0].split()[2]), 0.02)  # it has learned something: chance is 1 in 2048
        plain = answer(model, "Once upon a time", 60)
        self.assertEqual(answer(model, "Once upon a time", 60, "--draft", "eagle:" + head), plain)
        refused = run("run", model, "-p", "Once", "-n", "2", "--draft", "eagle:" + small)
        self.assertEqual(refused.returncode, 2)
        self.assertIn(b"fingerprint differs", refused.stderr)


if __name__ == "__main__":
    if not pathlib.Path(TINY).exists() or not (SHARED / "tools/make_gguf.py").exists():
        common.skip(f"{TINY} or {SHARED}/tools/make_gguf.py is missing")
    try:
        import numpy as np
    except ImportError:
        common.skip("numpy is missing")
    common.main("__main__")
