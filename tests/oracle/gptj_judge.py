#!/usr/bin/env python3
"""GPT-J (Wang and Komatsuzaki 2021) as a straight line of double-precision arithmetic: the judge of its row.

No program at hand runs files of this architecture, so its made model is judged by the formula. With the rotation of
RoFormer (arXiv 2104.09864) over pairs of neighbours, of the first values of each head,

    n = norm(x)      x' = x + Wo . attention(Wq . n, Wk . n, Wv . n) + W2 . gelu(W1 . n + b1) + b2

one layer norm for both halves, no biases in attention, one for the logits. The GELU is that by the hyperbolic tangent.

usage: gptj_judge.py MAKE_MODEL TEXT LOGITS            the logits are those of the formula, to rounding in 32 bits
       gptj_judge.py MAKE_MODEL TEXT LOGITS --write    makes them
"""
import math
import os
import struct
import subprocess
import sys
import tempfile

TOKENS = [(7 * i * i + 3 * i + 5) % 64 for i in range(24)]
LIMIT = 1e-12


class Reader:
    """Keys and F32 tensors of a GGUF file of version 3."""

    SIMPLE = {4: "<I", 5: "<i", 6: "<f", 7: "<?"}

    def __init__(self, data):
        self.data, self.at = data, 8
        n_tensors, n_keys = self.take("<Q"), self.take("<Q")
        self.keys = {self.text(): self.value(self.take("<I")) for _ in range(n_keys)}
        heads = [self.head() for _ in range(n_tensors)]
        start = (self.at + 31) // 32 * 32
        self.tensors = {name: self.rows(start + offset, dims) for name, dims, offset in heads}

    def take(self, form):
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def text(self):
        n = self.take("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            item, n = self.take("<I"), self.take("<Q")
            return [self.value(item) for _ in range(n)]
        return self.take(self.SIMPLE[kind])

    def head(self):
        name, n = self.text(), self.take("<I")
        dims = [self.take("<Q") for _ in range(n)]
        if self.take("<I") != 0:
            raise ValueError("%s is not of type F32" % name)
        return name, dims, self.take("<Q")

    def rows(self, at, dims):
        cols = dims[0]
        flat = struct.unpack_from("<%df" % math.prod(dims), self.data, at)
        return [flat[i:i + cols] for i in range(0, len(flat), cols)]


def product(matrix, x):
    return [math.fsum(a * b for a, b in zip(row, x)) for row in matrix]


def add(*rows):
    return [math.fsum(values) for values in zip(*rows)]


def norm(x, weight, bias, eps):
    mean = math.fsum(x) / len(x)
    variance = math.fsum((v - mean) ** 2 for v in x) / len(x)
    return [(v - mean) / math.sqrt(variance + eps) * w + b for v, w, b in zip(x, weight, bias)]


def gelu(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def rotated(head, position, n):
    out = list(head)
    for i in range(0, n, 2):
        angle = position * 10000.0 ** (-i / n)
        out[i] = head[i] * math.cos(angle) - head[i + 1] * math.sin(angle)
        out[i + 1] = head[i] * math.sin(angle) + head[i + 1] * math.cos(angle)
    return out


def attention(queries, keys, values, dim):
    scores = [math.fsum(a * b for a, b in zip(queries, key)) / math.sqrt(dim) for key in keys]
    shares = [math.exp(s - max(scores)) for s in scores]
    return [math.fsum(s * v[i] for s, v in zip(shares, values)) / math.fsum(shares) for i in range(dim)]


def block(f, name, rows, eps):
    heads, turning = f.keys["gptj.attention.head_count"], f.keys["gptj.rope.dimension_count"]
    dim = len(rows[0]) // heads
    t = lambda stem: f.tensors[name + stem]
    normed = [norm(x, t("attn_norm.weight")[0], t("attn_norm.bias")[0], eps) for x in rows]
    q, k, v = ([product(t("attn_%s.weight" % c), n) for n in normed] for c in "qkv")
    cut = lambda row, h: row[h * dim:(h + 1) * dim]
    out = []
    for p, x in enumerate(rows):
        mixed = []
        for h in range(heads):
            seen = [rotated(cut(k[s], h), s, turning) for s in range(p + 1)]
            mixed += attention(rotated(cut(q[p], h), p, turning), seen, [cut(v[s], h) for s in range(p + 1)], dim)
        hidden = [gelu(a) for a in add(product(t("ffn_up.weight"), normed[p]), t("ffn_up.bias")[0])]
        out.append(add(x, product(t("attn_output.weight"), mixed), product(t("ffn_down.weight"), hidden),
                       t("ffn_down.bias")[0]))
    return out


def logits_of(f):
    eps, t = f.keys["gptj.attention.layer_norm_epsilon"], f.tensors
    rows = [list(t["token_embd.weight"][token]) for token in TOKENS]
    for i in range(f.keys["gptj.block_count"]):
        rows = block(f, "blk.%d." % i, rows, eps)
    normed = [norm(x, t["output_norm.weight"][0], t["output_norm.bias"][0], eps) for x in rows]
    return [add(product(t["output.weight"], x), t["output.bias"][0]) for x in normed]


def main():
    make, text, path = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "gptj.gguf")
        subprocess.run([make, text, file], check=True)
        with open(file, "rb") as f:
            model = Reader(f.read())
    rows = logits_of(model)
    flat = [x for row in rows for x in row]
    head = struct.pack("<II%di" % len(TOKENS), len(TOKENS), len(rows[0]), *TOKENS)
    if sys.argv[4:] == ["--write"]:
        with open(path, "wb") as f:
            f.write(head + struct.pack("<%df" % len(flat), *flat))
        return 0
    with open(path, "rb") as f:
        data = f.read()
    if data[:len(head)] != head or len(data) != len(head) + 4 * len(flat):
        print("%s is of other tokens" % path)
        return 1
    stored = struct.unpack("<%df" % len(flat), data[len(head):])
    error = sum((a - b) ** 2 for a, b in zip(stored, flat)) / sum(b * b for b in flat)
    print("nmse %.3g" % error)
    return 0 if error <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
