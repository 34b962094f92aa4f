#!/usr/bin/env python3
"""EAGLE-3 heads of other programs judged by their formula (arXiv 2503.01840, model/heads/eagle3.c), in double precision.

Files of a small model and of heads for it are written here, with random weights in the layout that llama.cpp's
converter gives published heads, in the forms that such files have: an embedding and an output matrix of their own or
the model's, an output of some tokens (d2t), another width than the model's, norms in other places, divisors of
rotation.
What they should give is computed here from the same numbers, and shares nothing with runnel but the file format:

    g(t) = fc . (norm of) the residual streams that blocks target_layers read, side by side
    x    = [attn_norm(embedding(token t + 1)), attn_norm_2(g(t))]
    h(t) = a block of Llama's over x, its residual stream beginning with g(t) or attn_norm_2(g(t))
    logits of token t + 2 = output . output_norm(h(t)); -infinity for tokens that d2t does not name

run_nextn says what runnel gives: the model's g, final norm and logits; then of all rows of the head, with g as input,
h and logits; then the same where rows behind the sixth have h of the row before as input, as drafts have.
Both backends must agree to NMSE 1e-6 and have the same likeliest tokens.

usage: eagle3_judge.py RUN_NEXTN
"""
import math
import random
import struct
import subprocess
import sys
import tempfile

from nextn_judge import F16, F32, File, average, block, gated, make, nmse, times

I64 = 27
GIVEN = 6  # rows of the second pass whose input is g


# ---- Files ----

def make_head(target, s):
    f, width, heads, dim = File(), s["width"], s["heads"], s["head_dim"]
    kind, stem = s["kind"], "blk.0."

    f.keys += [("general.architecture", "text", "eagle3"), ("eagle3.block_count", "u32", 1),
               ("eagle3.context_length", "u32", 64), ("eagle3.embedding_length", "u32", width),
               ("eagle3.attention.head_count", "u32", heads), ("eagle3.attention.head_count_kv", "u32", s["kv_heads"]),
               ("eagle3.attention.key_length", "u32", dim), ("eagle3.attention.value_length", "u32", dim),
               ("eagle3.attention.layer_norm_rms_epsilon", "f32", s["eps"]),
               ("eagle3.feed_forward_length", "u32", s["ff"]), ("eagle3.rope.freq_base", "f32", s["base"]),
               ("eagle3.rope.dimension_count", "u32", dim), ("eagle3.vocab_size", "u32", target["vocab"]),
               (s.get("layers_key", "eagle3.target_layers"), "u32s", s["layers"]),
               ("eagle3.target_hidden_size", "u32", target["width"])]
    for key in "norm_before_fc", "norm_before_residual":
        if key in s:
            f.keys.append(("eagle3." + key, "bool", s[key]))
    streams = len(s["layers"]) * target["width"]
    f.add("fc.weight", width, streams, 0.2, kind)
    if s.get("norm_before_fc"):
        f.add("enc.output_norm.weight", 1, streams, 0.3, F32, 1)
    if s.get("own_embedding"):
        f.add("token_embd.weight", target["vocab"], width, 1, kind)
    if s.get("tokens"):
        ids = random.sample(range(target["vocab"]), s["tokens"])
        f.tensors["d2t"] = ((len(ids),), I64, struct.pack("<%dq" % len(ids), *ids), ids)
    if s.get("tokens") or s.get("own_output"):
        f.add("output.weight", s.get("tokens") or target["vocab"], width, 0.3, kind)
    if s.get("divisors"):
        f.add("rope_freqs.weight", 1, dim // 2, 0.5, F32, 2)
    for name in "output_norm", stem + "attn_norm", stem + "attn_norm_2", stem + "ffn_norm":
        f.add(name + ".weight", 1, width, 0.3, F32, 1)
    f.add(stem + "attn_q.weight", heads * dim, 2 * width, 0.3, kind)
    for name in "attn_k", "attn_v":
        f.add(stem + name + ".weight", s["kv_heads"] * dim, 2 * width, 0.3, kind)
    f.add(stem + "attn_output.weight", width, heads * dim, 0.3, kind)
    for name in "ffn_gate", "ffn_up":
        f.add(stem + name + ".weight", s["ff"], width, 0.3, kind)
    f.add(stem + "ffn_down.weight", width, s["ff"], 0.3, kind)
    return f


# ---- The formula ----

def norm(x, weight, eps):
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + struct.unpack("<f", struct.pack("<f", eps))[0])
    return [v * scale * w for v, w in zip(x, weight)]


def plus(a, b):
    return [x + y for x, y in zip(a, b)]


class Head:
    def __init__(self, f, s, target):
        self.f, self.s, self.target, self.keys, self.values = f, s, target, [], []

    def vector(self, name):
        return self.f.vector(name + ".weight")

    def product(self, name, x):
        return times(self.f.matrix(name + ".weight"), x)

    def norm(self, name, x):
        return norm(x, self.vector(name), self.s["eps"])

    def rotate(self, x, t):
        dim, out = self.s["head_dim"], list(x)
        divisors = self.vector("rope_freqs") if self.s.get("divisors") else [1] * (dim // 2)
        for i in range(dim // 2):
            angle = t * self.s["base"] ** (-2 * i / dim) / divisors[i]
            a, b, c, s = x[2 * i], x[2 * i + 1], math.cos(angle), math.sin(angle)
            out[2 * i], out[2 * i + 1] = a * c - b * s, a * s + b * c
        return out

    def fused(self, streams):
        x = [v for stream in streams for v in stream]
        if self.s.get("norm_before_fc"):
            x = self.norm("enc.output_norm", x)
        return self.product("fc", x)

    def attends(self, t, x):
        s, dim = self.s, self.s["head_dim"]
        q, k, v = (self.product("blk.0.attn_" + which, x) for which in "qkv")
        self.keys.append([self.rotate(k[h * dim:(h + 1) * dim], t) for h in range(s["kv_heads"])])
        self.values.append([v[h * dim:(h + 1) * dim] for h in range(s["kv_heads"])])
        mixed = []
        for h in range(s["heads"]):
            which = h // (s["heads"] // s["kv_heads"])
            mixed += average(self.rotate(q[h * dim:(h + 1) * dim], t), [key[which] for key in self.keys],
                             [value[which] for value in self.values], dim)
        return self.product("blk.0.attn_output", mixed)

    def row(self, t, token, g):
        """h and logits of the row at position t."""
        embedding = self.f.matrix("token_embd.weight") or self.target.matrix("token_embd.weight")
        normed = self.norm("blk.0.attn_norm_2", g)
        x = self.norm("blk.0.attn_norm", embedding[token]) + normed
        x = plus(self.attends(t, x), normed if self.s.get("norm_before_residual") else g)
        n = self.norm("blk.0.ffn_norm", x)
        h = plus(x, gated(*(self.f.matrix("blk.0.ffn_%s.weight" % what) for what in ("gate", "up", "down")), n))
        output = self.f.matrix("output.weight") or self.target.matrix("output.weight") or \
            self.target.matrix("token_embd.weight")
        some = times(output, self.norm("output_norm", h))
        if "d2t" not in self.f.tensors:
            return h, some
        logits = [-math.inf] * len(self.target.matrix("token_embd.weight"))
        for token, value in zip(self.f.matrix("d2t"), some):
            logits[token] = value
        return h, logits


def expected(f, s, head, shape, tokens):
    """[(features, logits)]: of the model, of the head, and of the head with inputs of its own."""
    embedding = f.matrix("token_embd.weight")
    streams = [[list(embedding[t]) for t in tokens]]
    for i in range(s["blocks"]):
        streams.append(block(f, s, i, streams[-1]))
    last = [norm(x, f.vector("output_norm.weight"), 1e-5) for x in streams[-1]]
    output = f.matrix("output.weight") or embedding
    fuses = Head(head, shape, f)
    g = [fuses.fused([streams[layer][t] for layer in shape["layers"]]) for t in range(len(tokens))]
    passes = [([a + b for a, b in zip(g, last)], [times(output, x) for x in last])]
    for given in len(tokens), GIVEN:
        one, rows = Head(head, shape, f), []
        for t in range(len(tokens) - 1):
            rows.append(one.row(t, tokens[t + 1], g[t] if t < given else rows[-1][0]))
        passes.append(([h for h, _ in rows], [logits for _, logits in rows]))
    return passes


# ---- The comparison ----

def compare(name, backend, data, passes):
    at = 0
    for number, (features, logits) in enumerate(passes):
        for what, rows in (("features", features), ("logits", logits)):
            want = [v for row in rows for v in row]
            got = struct.unpack_from("<%df" % len(want), data, at)
            at += 4 * len(want)
            assert [v == -math.inf for v in got] == [v == -math.inf for v in want], (name, backend, number, what)
            error = nmse([v for v in got if v != -math.inf], [v for v in want if v != -math.inf])
            print("%-24s %-9s pass %d, %-8s nmse %.2g" % (name, backend, number, what, error))
            assert error <= 1e-6, (name, backend, number, what, error)
        width = len(logits[0])
        for t, row in enumerate(logits):
            mine = got[t * width:(t + 1) * width]
            assert mine.index(max(mine)) == row.index(max(row)), (name, backend, number, t)
    assert at == len(data), (at, len(data))


TARGET = dict(arch="llama", blocks=4, layers=0, width=32, heads=4, kv_heads=2, head_dim=8, rotated=8, ff=40, vocab=48,
              base=10000.0, kind=F32, tied=False, own_norm=set(), own_ends=set())
HEAD = dict(width=32, heads=4, kv_heads=2, head_dim=8, ff=40, eps=1e-5, base=10000.0, kind=F32, layers=[1, 2, 3])
SHAPES = {
    "the model's matrices": (TARGET, HEAD),
    "of 20 tokens": (TARGET, dict(HEAD, tokens=20, norm_before_residual=False, base=500000.0)),
    "of 20, own embedding": (TARGET, dict(HEAD, tokens=20, own_embedding=True, norm_before_residual=True,
                                          divisors=True)),
    "another width, F16": (TARGET, dict(HEAD, tokens=30, own_embedding=True, width=24, heads=2, kv_heads=1, head_dim=16,
                                        ff=56, eps=1e-2, kind=F16, layers=[1, 3, 4], norm_before_fc=True)),
    "own output, EAGLE-3.1": (TARGET, dict(HEAD, own_output=True, heads=6, kv_heads=3, norm_before_fc=True,
                                           norm_before_residual=True, eps=1e-3)),
    "tied, own embedding": (dict(TARGET, tied=True), dict(HEAD, own_embedding=True, divisors=True,
                                                          layers_key="eagle3.extract_layers")),
    "tied, two of qwen3": (dict(TARGET, arch="qwen3", tied=True, halves=True, head_norm=True, kind=F16),
                           dict(HEAD, layers=[2, 4], kind=F16)),
    "one of all": (TARGET, dict(HEAD, layers=[4], tokens=48)),
}


def main():
    for name, (s, shape) in SHAPES.items():
        random.seed(7)
        f = make(s)
        head = make_head(s, shape)
        tokens = [random.randrange(s["vocab"]) for _ in range(20)]
        passes = expected(f, s, head, shape, tokens)
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file, tempfile.NamedTemporaryFile(suffix=".gguf") as other:
            f.write(file.name)
            head.write(other.name)
            for backend in ("reference", "fast"):
                done = subprocess.run([sys.argv[1], file.name, backend, "head:" + other.name] +
                                      [str(t) for t in tokens], capture_output=True)
                assert done.returncode == 0, done.stderr.decode()
                compare(name, backend, done.stdout, passes)


if __name__ == "__main__":
    main()
