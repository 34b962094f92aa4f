#!/usr/bin/env python3
"""Prediction layers judged by the formula of DeepSeek-V3 (arXiv 2412.19437, section 2.2), in double precision.

Model files are written here, with random weights in the layout that converters give real files: blocks, then D
prediction layers as further blocks with nextn.* tensors. What the model and each layer should give is computed here
from the same numbers, as they stand in the file, and shares nothing with runnel but the file format:

    x0(t)  = the model's final norm of its residual stream          logits: output . x0
    x'd(t) = eh_proj . [enorm(embedding(token t + d)), hnorm(x(d-1)(t))]
    xd(t)  = shared_head_norm(block(x'd)(t))                        logits of token t + d + 1: head . xd

A shape with experts has them in all blocks but the first, as files of GLM-4.5 have (arXiv 2508.06471): sigmoids choose
with a bias and weigh without it; beside them stands one that all rows share. Such a file also norms each head of
queries and keys, rotates halves, and has another name for the norm before the feed-forward.

Shapes of DeepSeek-V2 and V3 (arXiv 2405.04434) attend by a latent: one vector of few values is all that is kept of keys
and values, beside a rotated part of the keys that all heads share; what makes keys of it is absorbed into the queries.
Those of Qwen3-Next gate what attention finds by sigmoids, choose experts by a softmax, and gate the shared one; their
blocks here all attend, since a prediction layer does and the states of other blocks have judges of their own.

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

    def add(self, name, rows, cols, scale, kind=F32, around=0.0, experts=0):
        code = "<%de" if kind == F16 else "<%df"
        values = [around + random.gauss(0, scale) for _ in range(rows * cols * max(experts, 1))]
        data = struct.pack(code % len(values), *values)
        flat = struct.unpack(code % len(values), data)
        matrix = [flat[at:at + cols] for at in range(0, len(flat), cols)]
        self.tensors[name] = ((cols, rows, experts) if experts else (cols,) if rows == 1 else (cols, rows), kind, data,
                              matrix)

    def matrix(self, name):
        return self.tensors[name][3] if name in self.tensors else None

    def vector(self, name):
        return self.tensors[name][3][0]

    def write(self, path):
        def text(s):
            return struct.pack("<Q", len(s)) + s.encode()

        out = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys))
        for name, kind, value in self.keys:
            if kind == "u32":
                out += text(name) + struct.pack("<II", 4, value)
            elif kind == "f32":
                out += text(name) + struct.pack("<If", 6, value)
            elif kind == "bool":
                out += text(name) + struct.pack("<I?", 7, value)
            elif kind == "u32s":
                out += text(name) + struct.pack("<IIQ", 9, 4, len(value)) + struct.pack("<%dI" % len(value), *value)
            else:
                out += text(name) + struct.pack("<I", 8) + text(value)
        data = b""
        for name, (dims, kind, values, _) in self.tensors.items():
            out += text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, kind, len(data))
            data += values + b"\0" * (-len(values) % 32)
        out += b"\0" * (-len(out) % 32)
        with open(path, "wb") as f:
            f.write(out + data)


def add_experts(f, s, stem):
    n, ff, width, kind = s["experts"], s["expert_ff"], s["width"], s["kind"]

    f.add(stem + "ffn_gate_inp.weight", n, width, 0.3)
    if s.get("softmax"):
        f.add(stem + "ffn_gate_inp_shexp.weight", 1, width, 0.3)
    else:
        f.add(stem + "exp_probs_b.bias", 1, n, 0.3)
    for what in "gate", "up":
        f.add(stem + "ffn_%s_exps.weight" % what, ff, width, 0.3, kind, experts=n)
        f.add(stem + "ffn_%s_shexp.weight" % what, ff, width, 0.3, kind)
    f.add(stem + "ffn_down_exps.weight", width, ff, 0.3, kind, experts=n)
    f.add(stem + "ffn_down_shexp.weight", width, ff, 0.3, kind)


def add_latent(f, s, stem):
    nope, latent, heads, kind = s["head_dim"] - s["rotated"], s["latent"], s["heads"], s["kind"]

    if s.get("q_latent"):
        f.add(stem + "attn_q_a.weight", s["q_latent"], s["width"], 0.3, kind)
        f.add(stem + "attn_q_a_norm.weight", 1, s["q_latent"], 0.3, F32, 1)
        f.add(stem + "attn_q_b.weight", heads * s["head_dim"], s["q_latent"], 0.3, kind)
    else:
        f.add(stem + "attn_q.weight", heads * s["head_dim"], s["width"], 0.3, kind)
    f.add(stem + "attn_kv_a_mqa.weight", latent + s["rotated"], s["width"], 0.3, kind)
    f.add(stem + "attn_kv_a_norm.weight", 1, latent, 0.3, F32, 1)
    f.add(stem + "attn_k_b.weight", latent, nope, 0.3, kind, experts=heads)
    f.add(stem + "attn_v_b.weight", s["v_dim"], latent, 0.3, kind, experts=heads)
    f.add(stem + "attn_output.weight", s["width"], heads * s["v_dim"], 0.3, kind)
    if s.get("chosen"):  # as many as there are positions: who chooses chooses all
        f.add(stem + "indexer.attn_k.weight", 16, s["width"], 0.3, kind)
        f.add(stem + "indexer.k_norm.weight", 1, 16, 0.3, F32, 1)
        f.add(stem + "indexer.k_norm.bias", 1, 16, 0.3)
        f.add(stem + "indexer.attn_q_b.weight", 2 * 16, s["q_latent"], 0.3, kind)
        f.add(stem + "indexer.proj.weight", 2, s["width"], 0.3, kind)


def add_attention(f, s, stem):
    wide, narrow, kind = s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"], s["kind"]

    f.add(stem + "attn_q.weight", wide * (2 if s.get("gated") else 1), s["width"], 0.3, kind)
    f.add(stem + "attn_k.weight", narrow, s["width"], 0.3, kind)
    f.add(stem + "attn_v.weight", narrow, s["width"], 0.3, kind)
    f.add(stem + "attn_output.weight", s["width"], wide, 0.3, kind)
    if s.get("head_norm"):
        f.add(stem + "attn_q_norm.weight", 1, s["head_dim"], 0.3, F32, 1)
        f.add(stem + "attn_k_norm.weight", 1, s["head_dim"], 0.3, F32, 1)


def keys_of(s):
    """Those that not every shape has."""
    keys = [(s["arch"] + "." + name, "u32", value) for name, value in s.get("more", {}).items()]

    if s.get("latent"):
        keys += [(s["arch"] + ".attention." + name, "u32", value) for name, value in (
            ("kv_lora_rank", s["latent"]), ("key_length", s["latent"] + s["rotated"]), ("value_length", s["latent"]),
            ("key_length_mla", s["head_dim"]), ("value_length_mla", s["v_dim"]))]
        keys += [(s["arch"] + ".attention.q_lora_rank", "u32", s["q_latent"])] if s.get("q_latent") else []
    else:
        keys += [(s["arch"] + ".attention.key_length", "u32", s["head_dim"]),
                 (s["arch"] + ".attention.value_length", "u32", s["head_dim"])]
    if s.get("experts"):
        keys += [(s["arch"] + ".expert_count", "u32", s["experts"]),
                 (s["arch"] + ".expert_used_count", "u32", s["used"]),
                 (s["arch"] + ".expert_feed_forward_length", "u32", s["expert_ff"]),
                 (s["arch"] + ".expert_shared_count", "u32", 1),
                 (s["arch"] + ".leading_dense_block_count", "u32", 1),
                 (s["arch"] + ".expert_gating_func", "u32", 1 if s.get("softmax") else 2),
                 (s["arch"] + ".expert_weights_scale", "f32", s["expert_scale"]),
                 (s["arch"] + ".expert_weights_norm", "bool", True)]
    return keys


def make(shape):
    """The file of a shape, and nothing else: what is computed comes from its tensors."""
    s, f = shape, File()
    blocks, kind = s["blocks"] + s["layers"], s["kind"]

    f.keys += [("general.architecture", "text", s["arch"]), (s["arch"] + ".block_count", "u32", blocks),
               (s["arch"] + ".nextn_predict_layers", "u32", s["layers"]), (s["arch"] + ".context_length", "u32", 64),
               (s["arch"] + ".embedding_length", "u32", s["width"]),
               (s["arch"] + ".attention.head_count", "u32", s["heads"]),
               (s["arch"] + ".attention.head_count_kv", "u32", s["kv_heads"]),
               (s["arch"] + ".attention.layer_norm_rms_epsilon", "f32", 1e-5),
               (s["arch"] + ".rope.freq_base", "f32", s["base"]),
               (s["arch"] + ".rope.dimension_count", "u32", s["rotated"]),
               (s["arch"] + ".feed_forward_length", "u32s", [s["ff"] + 8 * (i % 3) for i in range(blocks)]),
               (s["arch"] + ".vocab_size", "u32", s["vocab"])]
    f.keys += keys_of(s)
    f.add("token_embd.weight", s["vocab"], s["width"], 1, kind)
    f.add("output_norm.weight", 1, s["width"], 0.3, F32, 1)
    if not s["tied"]:
        f.add("output.weight", s["vocab"], s["width"], 0.3, kind)
    for i in range(blocks):
        ff, stem = s["ff"] + 8 * (i % 3), "blk.%d." % i
        f.add(stem + "attn_norm.weight", 1, s["width"], 0.3, F32, 1)
        (add_latent if s.get("latent") else add_attention)(f, s, stem)
        f.add(stem + s.get("ffn_norm", "ffn_norm") + ".weight", 1, s["width"], 0.3, F32, 1)
        if s.get("experts") and (i > 0 or s.get("softmax")):
            add_experts(f, s, stem)
            continue
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


def rotate(x, position, shape):
    """Pairs of neighbours, as files of Llama's converters have them, or of halves."""
    rotated, out = shape["rotated"], list(x)
    for i in range(0, rotated, 2):
        angle = position * shape["base"] ** (-i / rotated)
        a, b = (i // 2, i // 2 + rotated // 2) if shape.get("halves") else (i, i + 1)
        c, s = math.cos(angle), math.sin(angle)
        out[a], out[b] = x[a] * c - x[b] * s, x[a] * s + x[b] * c
    return out


def sigmoid(v):
    return 1 / (1 + math.exp(-v))


def gated(gate, up, down, n):
    return times(down, [g / (1 + math.exp(-g)) * u for g, u in zip(times(gate, n), times(up, n))])


def feed_forward(f, s, stem, n):
    if f.matrix(stem + "ffn_gate_inp.weight") is None:
        return gated(*(f.matrix(stem + "ffn_%s.weight" % what) for what in ("gate", "up", "down")), n)
    share = times(f.matrix(stem + "ffn_gate_inp.weight"), n)
    share = [math.exp(v) for v in share] if s.get("softmax") else [sigmoid(v) for v in share]
    bias = [0] * s["experts"] if s.get("softmax") else f.vector(stem + "exp_probs_b.bias")
    chosen = sorted(range(s["experts"]), key=lambda e: -(share[e] + bias[e]))[:s["used"]]
    out = gated(*(f.matrix(stem + "ffn_%s_shexp.weight" % what) for what in ("gate", "up", "down")), n)
    if s.get("softmax"):
        part = sigmoid(times(f.matrix(stem + "ffn_gate_inp_shexp.weight"), n)[0])
        out = [part * v for v in out]
    for e in chosen:
        gate, up, down = (f.matrix(stem + "ffn_%s_exps.weight" % what) for what in ("gate", "up", "down"))
        ff, width = s["expert_ff"], s["width"]
        one = gated(gate[e * ff:(e + 1) * ff], up[e * ff:(e + 1) * ff], down[e * width:(e + 1) * width], n)
        weight = s["expert_scale"] * share[e] / sum(share[c] for c in chosen)
        out = [a + weight * b for a, b in zip(out, one)]
    return out


def head(f, s, stem, which, values, h, t):
    """Head h of queries or keys at position t, normed where the file norms them, and rotated."""
    x = values[h * s["head_dim"]:(h + 1) * s["head_dim"]]
    if s.get("head_norm"):
        x = norm(x, f.vector(stem + "attn_%s_norm.weight" % which))
    return rotate(x, t, s)


def average(query, keys, values, dim):
    """Of values, by the softmax of their keys' scores."""
    scores = [sum(a * b for a, b in zip(query, key)) / math.sqrt(dim) for key in keys]
    most = max(scores)
    weights = [math.exp(score - most) for score in scores]
    return [sum(w * value[j] for w, value in zip(weights, values)) / sum(weights) for j in range(len(values[0]))]


class Attention:
    """Of one block: what each position attends to, one position after the other."""

    def __init__(self, f, s, stem):
        self.f, self.s, self.stem, self.keys, self.values = f, s, stem, [], []

    def matrix(self, name):
        return self.f.matrix(self.stem + name + ".weight")

    def finds(self, t, n):
        s, f, stem, dim = self.s, self.f, self.stem, self.s["head_dim"]
        q, k, v = (times(self.matrix(name), n) for name in ("attn_q", "attn_k", "attn_v"))
        gates = []
        if s.get("gated"):
            gates = [sigmoid(q[2 * h * dim + dim + j]) for h in range(s["heads"]) for j in range(dim)]
            q = [q[2 * h * dim + j] for h in range(s["heads"]) for j in range(dim)]
        self.keys.append([head(f, s, stem, "k", k, h, t) for h in range(s["kv_heads"])])
        self.values.append([v[h * dim:(h + 1) * dim] for h in range(s["kv_heads"])])
        mixed = []
        for h in range(s["heads"]):
            which = h // (s["heads"] // s["kv_heads"])
            mixed += average(head(f, s, stem, "q", q, h, t), [key[which] for key in self.keys],
                             [value[which] for value in self.values], dim)
        return [a * b for a, b in zip(mixed, gates)] if gates else mixed


class Latent(Attention):
    def finds(self, t, n):
        s, f, stem, dim, latent = self.s, self.f, self.stem, self.s["head_dim"], self.s["latent"]
        nope = dim - s["rotated"]
        if s.get("q_latent"):
            q = times(self.matrix("attn_q_b"), norm(times(self.matrix("attn_q_a"), n),
                                                    f.vector(stem + "attn_q_a_norm.weight")))
        else:
            q = times(self.matrix("attn_q"), n)
        both = times(self.matrix("attn_kv_a_mqa"), n)
        self.values.append(norm(both[:latent], f.vector(stem + "attn_kv_a_norm.weight")))
        self.keys.append(self.values[-1] + rotate(both[latent:], t, s))
        mixed = []
        for h in range(s["heads"]):
            query = q[h * dim:(h + 1) * dim]
            absorbed = times(self.matrix("attn_k_b")[h * latent:(h + 1) * latent], query[:nope])
            found = average(absorbed + rotate(query[nope:], t, s), self.keys, self.values, dim)
            mixed += times(self.matrix("attn_v_b")[h * s["v_dim"]:(h + 1) * s["v_dim"]], found)
        return mixed


def block(f, s, i, rows):
    """A decoder block over the rows at positions 0, 1, ..."""
    stem, out = "blk.%d." % i, []
    attention = (Latent if s.get("latent") else Attention)(f, s, stem)

    for t, x in enumerate(rows):
        mixed = attention.finds(t, norm(x, f.vector(stem + "attn_norm.weight")))
        x = [a + b for a, b in zip(x, times(f.matrix(stem + "attn_output.weight"), mixed))]
        n = norm(x, f.vector(stem + s.get("ffn_norm", "ffn_norm") + ".weight"))
        out.append([a + b for a, b in zip(x, feed_forward(f, s, stem, n))])
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
    "three, F16, tied": dict(arch="mistral3", blocks=1, layers=3, width=32, heads=4, kv_heads=1, head_dim=16,
                             rotated=16, ff=32, vocab=64, base=10000.0, kind=F16, tied=True, own_norm={0, 1, 2},
                             own_ends={0, 2}),
    "glm4moe": dict(arch="glm4moe", blocks=2, layers=1, width=32, heads=4, kv_heads=2, head_dim=16, rotated=8, ff=40,
                    vocab=48, base=10000.0, kind=F32, tied=False, own_norm={0}, own_ends={0}, halves=True,
                    head_norm=True, ffn_norm="post_attention_norm", experts=8, used=3, expert_ff=24, expert_scale=1.5),
    "glm4moe, two": dict(arch="glm4moe", blocks=1, layers=2, width=32, heads=2, kv_heads=1, head_dim=16, rotated=16,
                         ff=40, vocab=40, base=10000.0, kind=F16, tied=False, own_norm={0, 1}, own_ends=set(),
                         halves=True, ffn_norm="post_attention_norm", experts=4, used=2, expert_ff=16,
                         expert_scale=1.0),
    "deepseek2": dict(arch="deepseek2", blocks=2, layers=1, width=32, heads=4, kv_heads=1, head_dim=24, rotated=8,
                      latent=20, q_latent=28, v_dim=12, ff=40, vocab=48, base=10000.0, kind=F32, tied=False,
                      own_norm={0}, own_ends={0}, experts=8, used=3, expert_ff=24, expert_scale=2.5),
    "deepseek2, two": dict(arch="deepseek2", blocks=1, layers=2, width=32, heads=2, kv_heads=1, head_dim=16, rotated=8,
                           latent=16, v_dim=16, ff=40, vocab=40, base=10000.0, kind=F16, tied=False, own_norm={0, 1},
                           own_ends=set(), experts=4, used=2, expert_ff=16, expert_scale=1.0),
    "deepseek32": dict(arch="deepseek32", blocks=2, layers=1, width=32, heads=2, kv_heads=1, head_dim=24, rotated=8,
                       latent=16, q_latent=24, v_dim=16, ff=40, vocab=48, base=10000.0, kind=F32, tied=False,
                       own_norm={0}, own_ends={0}, experts=4, used=2, expert_ff=16, expert_scale=1.0, chosen=32,
                       more={"attention.indexer.head_count": 2, "attention.indexer.key_length": 16,
                             "attention.indexer.top_k": 32}),
    "qwen3next": dict(arch="qwen3next", blocks=2, layers=1, width=32, heads=4, kv_heads=2, head_dim=16, rotated=8,
                      ff=48, vocab=48, base=10000.0, kind=F32, tied=False, own_norm={0}, own_ends=set(), halves=True,
                      head_norm=True, gated=True, softmax=True, ffn_norm="post_attention_norm", experts=8, used=3,
                      expert_ff=24, expert_scale=1.0,
                      more={"full_attention_interval": 1, "ssm.conv_kernel": 4, "ssm.state_size": 8,
                            "ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.inner_size": 32}),
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
                                      capture_output=True)
                assert done.returncode == 0, done.stderr.decode()
                compare(name, backend, s, done.stdout, passes)


if __name__ == "__main__":
    main()
