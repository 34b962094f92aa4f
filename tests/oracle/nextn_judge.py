#!/usr/bin/env python3
"""Prediction layers judged by the formula of DeepSeek-V3 (arXiv 2412.19437, section 2.2), in double precision.

Model files are written here, with random weights in the layout that converters give real files: blocks, then D
prediction layers as further blocks with nextn.* tensors. What the model and each layer should give is computed here from
the same numbers, as they stand in the file, and shares nothing with runnel but the file format:

    x0(t)  = the model's final norm of its residual stream          logits: output . x0
    x'd(t) = eh_proj . [enorm(embedding(token t + d)), hnorm(x(d-1)(t))]
    xd(t)  = shared_head_norm(block(x'd)(t))                        logits of token t + d + 1: head . xd

run_nextn says what runnel gives. Both backends must agree to NMSE 1e-6 and have the same likeliest tokens.

usage: nextn_judge.py RUN_NEXTN
"""
import math
import random
import struct
import subprocess
import sys
import tempfile

F32, F16 = 0, 1


class File:
    """A GGUF file: keys (name, kind, value) and tensors (name, dims, values), values rounded to what is stored."""

    def __init__(self):
        self.keys, self.tensors = [], {}

    def add(self, name, rows, cols, scale, kind=F32, around=0.0):
        code = "<%de" if kind == F16 else "<%df"
        values = [around + random.gauss(0, scale) for _ in range(rows * cols)]
        data = struct.pack(code % len(values), *values)
        flat = struct.unpack(code % len(values), data)
        self.tensors[name] = (rows, cols, kind, data, [flat[r * cols:(r + 1) * cols] for r in range(rows)])

    def matrix(self, name):
        return self.tensors[name][4] if name in self.tensors else None

    def vector(self, name):
        return self.tensors[name][4][0]

    def write(self, path):
        def text(s):
            return struct.pack("<Q", len(s)) + s.encode()

        out = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys))
        for name, kind, value in self.keys:
            if kind == "u32":
                out += text(name) + struct.pack("<II", 4, value)
            elif kind == "f32":
                out += text(name) + struct.pack("<If", 6, value)
            elif kind == "u32s":
                out += text(name) + struct.pack("<IIQ", 9, 4, len(value)) + struct.pack("<%dI" % len(value), *value)
            else:
                out += text(name) + struct.pack("<I", 8) + text(value)
        data = b""
        for name, (rows, cols, kind, values, _) in self.tensors.items():
            dims = (cols,) if rows == 1 else (cols, rows)
            out += text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, kind, len(data))
            data += values + b"\0" * (-len(values) % 32)
        out += b"\0" * (-len(out) % 32)
        with open(path, "wb") as f:
            f.write(out + data)


def make(shape):
    """The file of a shape, and nothing else: what is computed comes from its tensors."""
    s, f = shape, File()
    blocks, wide = s["blocks"] + s["layers"], s["heads"] * s["head_dim"]
    narrow, kind = s["kv_heads"] * s["head_dim"], s["kind"]

    f.keys += [("general.architecture", "text", s["arch"]), (s["arch"] + ".block_count", "u32", blocks),
               (s["arch"] + ".nextn_predict_layers", "u32", s["layers"]), (s["arch"] + ".context_length", "u32", 64),
               (s["arch"] + ".embedding_length", "u32", s["width"]),
               (s["arch"] + ".attention.head_count", "u32", s["heads"]),
               (s["arch"] + ".attention.head_count_kv", "u32", s["kv_heads"]),
               (s["arch"] + ".attention.key_length", "u32", s["head_dim"]),
               (s["arch"] + ".attention.value_length", "u32", s["head_dim"]),
               (s["arch"] + ".attention.layer_norm_rms_epsilon", "f32", 1e-5),
               (s["arch"] + ".rope.freq_base", "f32", s["base"]),
               (s["arch"] + ".rope.dimension_count", "u32", s["rotated"]),
               (s["arch"] + ".feed_forward_length", "u32s", [s["ff"] + 8 * (i % 3) for i in range(blocks)]),
               (s["arch"] + ".vocab_size", "u32", s["vocab"])]
    f.add("token_embd.weight", s["vocab"], s["width"], 1, kind)
    f.add("output_norm.weight", 1, s["width"], 0.3, F32, 1)
    if not s["tied"]:
        f.add("output.weight", s["vocab"], s["width"], 0.3, kind)
    for i in range(blocks):
        ff, stem = s["ff"] + 8 * (i % 3), "blk.%d." % i
        f.add(stem + "attn_norm.weight", 1, s["width"], 0.3, F32, 1)
        f.add(stem + "attn_q.weight", wide, s["width"], 0.3, kind)
        f.add(stem + "attn_k.weight", narrow, s["width"], 0.3, kind)
        f.add(stem + "attn_v.weight", narrow, s["width"], 0.3, kind)
        f.add(stem + "attn_output.weight", s["width"], wide, 0.3, kind)
        f.add(stem + "ffn_norm.weight", 1, s["width"], 0.3, F32, 1)
        f.add(stem + "ffn_gate.weight", ff, s["width"], 0.3, kind)
        f.add(stem + "ffn_up.weight", ff, s["width"], 0.3, kind)
        f.add(stem + "ffn_down.weight", s["width"], ff, 0.3, kind)
    for d in range(s["layers"]):
        stem = "blk.%d.nextn." % (s["blocks"] + d)
        f.add(stem + "enorm.weight", 1, s["width"], 0.3, F32, 1)
        f.add(stem + "hnorm.weight", 1, s["width"], 0.3, F32, 1)
        f.add(stem + "eh_proj.weight", s["width"], 2 * s["width"], 0.3, kind)
        if d in s["own_norm"]:
            f.add(stem + "shared_head_norm.weight", 1, s["width"], 0.3, F32, 1)
        if d in s["own_ends"]:
            f.add(stem + "embed_tokens.weight", s["vocab"], s["width"], 1, kind)
            f.add(stem + "shared_head_head.weight", s["vocab"], s["width"], 0.3, kind)
    return f


# ---- The formula ----

def times(matrix, x):
    return [sum(a * b for a, b in zip(row, x)) for row in matrix]


def norm(x, weight):
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + struct.unpack("<f", struct.pack("<f", 1e-5))[0])
    return [v * scale * w for v, w in zip(x, weight)]


def rotate(x, position, rotated, base):
    """Pairs of neighbours, as files of Llama's converters have them."""
    out = list(x)
    for i in range(0, rotated, 2):
        angle = position * base ** (-i / rotated)
        c, s = math.cos(angle), math.sin(angle)
        out[i], out[i + 1] = x[i] * c - x[i + 1] * s, x[i] * s + x[i + 1] * c
    return out


def block(f, s, i, rows):
    """A decoder block over the rows at positions 0, 1, ..."""
    stem, dim, group = "blk.%d." % i, s["head_dim"], s["heads"] // s["kv_heads"]
    keys, values, out = [], [], []

    for t, x in enumerate(rows):
        n = norm(x, f.vector(stem + "attn_norm.weight"))
        q, k, v = (times(f.matrix(stem + name), n) for name in ("attn_q.weight", "attn_k.weight", "attn_v.weight"))
        keys.append([rotate(k[h * dim:(h + 1) * dim], t, s["rotated"], s["base"]) for h in range(s["kv_heads"])])
        values.append([v[h * dim:(h + 1) * dim] for h in range(s["kv_heads"])])
        mixed = []
        for h in range(s["heads"]):
            query = rotate(q[h * dim:(h + 1) * dim], t, s["rotated"], s["base"])
            scores = [sum(a * b for a, b in zip(query, key[h // group])) / math.sqrt(dim) for key in keys]
            most = max(scores)
            weights = [math.exp(score - most) for score in scores]
            mixed += [sum(w * value[h // group][j] for w, value in zip(weights, values)) / sum(weights)
                      for j in range(dim)]
        x = [a + b for a, b in zip(x, times(f.matrix(stem + "attn_output.weight"), mixed))]
        n = norm(x, f.vector(stem + "ffn_norm.weight"))
        gate, up = times(f.matrix(stem + "ffn_gate.weight"), n), times(f.matrix(stem + "ffn_up.weight"), n)
        hidden = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]
        out.append([a + b for a, b in zip(x, times(f.matrix(stem + "ffn_down.weight"), hidden))])
    return out


def expected(f, s, tokens):
    """[(features, logits)] of the model and of each layer."""
    embedding, last = f.matrix("token_embd.weight"), f.vector("output_norm.weight")
    output = f.matrix("output.weight") or embedding
    x = [list(embedding[t]) for t in tokens]
    for i in range(s["blocks"]):
        x = block(f, s, i, x)
    x = [norm(v, last) for v in x]
    passes = [(x, [times(output, v) for v in x])]
    for d in range(s["layers"]):
        stem = "blk.%d.nextn." % (s["blocks"] + d)
        own = f.matrix(stem + "embed_tokens.weight") or embedding
        joined = [norm(own[tokens[t + 1 + d]], f.vector(stem + "enorm.weight")) +
                  norm(x[t], f.vector(stem + "hnorm.weight")) for t in range(len(tokens) - 1 - d)]
        x = block(f, s, s["blocks"] + d, [times(f.matrix(stem + "eh_proj.weight"), v) for v in joined])
        end = f.vector(stem + "shared_head_norm.weight") if d in s["own_norm"] else last
        x = [norm(v, end) for v in x]
        passes.append((x, [times(f.matrix(stem + "shared_head_head.weight") or output, v) for v in x]))
    return passes


# ---- The comparison ----

def nmse(got, want):
    return sum((a - b) ** 2 for a, b in zip(got, want)) / sum(b * b for b in want)


def compare(name, backend, s, data, passes):
    at = 0
    for number, (features, logits) in enumerate(passes):
        for what, rows in (("features", features), ("logits", logits)):
            want = [v for row in rows for v in row]
            got = struct.unpack_from("<%df" % len(want), data, at)
            at += 4 * len(want)
            error = nmse(got, want)
            print("%-16s %-9s %s, %-8s nmse %.2g" % (name, backend, "layer %d" % (number - 1) if number else "model  ",
                                                     what, error))
            assert error <= 1e-6, (name, backend, number, what, error)
        for t, row in enumerate(logits):
            mine = got[t * s["vocab"]:(t + 1) * s["vocab"]]
            assert mine.index(max(mine)) == row.index(max(row)), (name, backend, number, t)
    assert at == len(data), (at, len(data))


SHAPES = {
    "one layer": dict(arch="llama", blocks=2, layers=1, width=32, heads=4, kv_heads=2, head_dim=8, rotated=8, ff=40,
                      vocab=48, base=10000.0, kind=F32, tied=False, own_norm={0}, own_ends=set()),
    "three, mixed": dict(arch="llama", blocks=2, layers=3, width=48, heads=6, kv_heads=2, head_dim=10, rotated=6, ff=56,
                         vocab=40, base=500000.0, kind=F32, tied=False, own_norm={0, 1}, own_ends={1}),
    "three, F16, tied": dict(arch="mistral3", blocks=1, layers=3, width=32, heads=4, kv_heads=1, head_dim=16, rotated=16,
                             ff=32, vocab=64, base=10000.0, kind=F16, tied=True, own_norm={0, 1, 2}, own_ends={0, 2}),
}


def main():
    for name, s in SHAPES.items():
        random.seed(7)
        f = make(s)
        tokens = [random.randrange(s["vocab"]) for _ in range(20)]
        passes = expected(f, s, tokens)
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            f.write(file.name)
            for backend in ("reference", "fast"):
                done = subprocess.run([sys.argv[1], file.name, backend] + [str(t) for t in tokens],
                                      capture_output=True, timeout=60)
                assert done.returncode == 0, done.stderr.decode()
                compare(name, backend, s, done.stdout, passes)


if __name__ == "__main__":
    main()
