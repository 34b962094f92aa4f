"""What moe_shape.py and latent_shape.py share: files in the shape of a published model with fewer blocks, its
vocabulary cut in proportion, and random weights, so that a block costs what it costs in the whole model."""
import argparse
import os
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, os.path.join(os.environ.get("RUNNEL_SHARED", ROOT.parent / "shared"), "tools"))
import make_gguf as gguf  # noqa: E402


class Shape(gguf.Writer):
    def __init__(self, architecture):
        super().__init__()
        self.architecture, self.rng = architecture, np.random.default_rng(7)
        self.add("general.architecture", gguf.STR, architecture)

    def numbers(self, kind, values):
        for key, value in values.items():
            self.add(f"{self.architecture}.{key}", kind, value)

    def tokenizer(self, pre, vocabulary):
        self.add("tokenizer.ggml.model", gguf.STR, "gpt2")
        self.add("tokenizer.ggml.pre", gguf.STR, pre)
        self.add("tokenizer.ggml.tokens", gguf.ARR, ["t%d" % i for i in range(vocabulary)], gguf.STR)
        self.add("tokenizer.ggml.token_type", gguf.ARR, [1] * vocabulary, gguf.I32)
        self.add("tokenizer.ggml.merges", gguf.ARR, ["t 0"], gguf.STR)
        self.add("tokenizer.ggml.eos_token_id", gguf.U32, 1)

    def random(self, name, shape, kind):
        self.tensor(name, shape, kind, lambda: gguf.random_bytes(self.rng, shape, kind))

    def norm(self, name, n):
        self.tensor(name, (n,), "F32", lambda: np.ones(n, "<f4").tobytes())


def parser(doc, layers):
    result = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("out")
    result.add_argument("--layers", type=int, default=layers)
    return result
