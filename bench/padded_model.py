#!/usr/bin/env python3
"""A small trained model inside the shape of a large one: the cost of the large, the texts of the small.

    padded_model.py SMALL.gguf OUT.gguf [--like tinyllama-1b] [--type Q4_0|Q8_0|F16] [--seed 1] [--layers N]
                    [--noise 0.0 | --agree 0.8 [--draft DRAFT.gguf] [--prompts FILE]]
    padded_model.py HEAD.gguf OUT.gguf --print PRINT [--like ...] [--type ...] [--seed ...]

For benchmarks of speculation, which need a slow target whose tokens a fast draft model foretells as often as in real life
(random weights cannot: nothing foretells them). The function of SMALL (llama architecture, F16 or F32) is kept:

    residual stream   SMALL's d values stand first, the rest of the D is zero everywhere
    norms             weight * sqrt(d / D), epsilon * d / D: the mean over D values of which D - d are zero
    attention         heads of SMALL's size, more of them; SMALL's head h of the key-value head g stands among the heads
                      of g; what is new has random queries, keys and values, and an output of zero
    feed-forward      the new units are random, and their output is zero
    layers            the new ones have random weights, and their outputs are zero

What is lost is the rounding of --type. --noise S adds Gaussian noise of S times their deviation to the weights of the output
matrix: the same cost, other tokens, so a lower acceptance. --agree A looks for the noise with which DRAFT (without it: SMALL
itself) foretells the share A of the target's tokens, and prints what it found: both are run in numpy, with the target's
weights rounded to --type, along the target's own greedy answers to a few prompts (--prompts: token ids, a prompt in each
line; else beginnings that the target draws by itself).

An EAGLE head of SMALL (runnel eagle-train) grows with it: PRINT is what `bench_heads --print` says of the padded target, whose
residual streams hold SMALL's behind the same blocks. Reads make_gguf.py from ../shared/tools or $RUNNEL_SHARED."""
import argparse
import os
import pathlib
import struct
import sys

import numpy as np

from small_llama import Llama

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, os.path.join(os.environ.get("RUNNEL_SHARED", ROOT.parent / "shared"), "tools"))
import make_gguf as gguf  # noqa: E402

SCALARS = {gguf.U8: "B", gguf.I8: "b", gguf.U16: "H", gguf.I16: "h", gguf.U32: "I", gguf.I32: "i", gguf.F32: "f",
           gguf.BOOL: "?", gguf.U64: "Q", gguf.I64: "q", gguf.F64: "d"}
FLOATS = {0: "<f4", 1: "<f2"}
BEGINNINGS, DRAWN, GREEDY = 8, 16, 96  # of --agree: prompts, tokens drawn for each, tokens of each answer
TURNS, HALVINGS, ENOUGH, MOST_NOISE = 8, 12, 0.01, 8.0


class Reader:
    """Metadata as {key: (kind, value, item kind)}, tensors as {name: float32 array, rows first}."""

    def __init__(self, path):
        self.bytes = pathlib.Path(path).read_bytes()
        n_tensors, n_keys = struct.unpack_from("<QQ", self.bytes, 8)
        self.at = 24
        self.keys = {}
        for _ in range(n_keys):
            key = self.value(gguf.STR).decode()
            kind = self.value(gguf.U32)
            value = self.value(kind)
            self.keys[key] = (kind, value[1], value[0]) if kind == gguf.ARR else (kind, value, None)
        infos = [self.info() for _ in range(n_tensors)]
        self.prefix = self.keys["general.architecture"][1].decode() + "."
        start = -(-self.at // gguf.ALIGN) * gguf.ALIGN
        self.tensors = {name: self.tensor(name, dims, kind, start + offset) for name, dims, kind, offset in infos}

    def value(self, kind):
        if kind == gguf.STR:
            n = self.value(gguf.U64)
            self.at += n
            return self.bytes[self.at - n:self.at]
        if kind == gguf.ARR:
            item, n = self.value(gguf.U32), self.value(gguf.U64)
            return item, [self.value(item) for _ in range(n)]
        self.at += struct.calcsize(SCALARS[kind])
        return struct.unpack_from("<" + SCALARS[kind], self.bytes, self.at - struct.calcsize(SCALARS[kind]))[0]

    def info(self):
        name = self.value(gguf.STR).decode()
        dims = [self.value(gguf.U64) for _ in range(self.value(gguf.U32))]
        return name, dims, self.value(gguf.U32), self.value(gguf.U64)

    def tensor(self, name, dims, kind, at):
        if kind not in FLOATS:
            sys.exit(f"padded_model: {name} is neither F32 nor F16")
        flat = np.frombuffer(self.bytes, FLOATS[kind], int(np.prod(dims)), at)
        return flat.astype(np.float32).reshape(dims[::-1])

    def number(self, key):
        return self.keys[self.prefix + key][1]


class Shape:
    def __init__(self, dim, layers, heads, kv_heads, ff):
        self.dim, self.layers, self.heads, self.kv_heads, self.ff = dim, layers, heads, kv_heads, ff


def large_shape(small, preset, layers, head_dim):
    dim, n_layers, heads, kv_heads, ff = gguf.PRESETS[preset][:5]
    width = dim // heads * kv_heads  # of keys; heads of the small model's size, as many as fill the same width
    large = Shape(dim, layers or n_layers, dim // head_dim, width // head_dim, ff)
    fits = (dim % 256 == 0 and dim >= small.dim and ff >= small.ff and large.layers >= small.layers and
            large.kv_heads >= small.kv_heads and large.heads // large.kv_heads >= small.heads // small.kv_heads)
    if not fits:
        sys.exit("padded_model: the small model does not fit into " + preset)
    return large


class Padder:
    def __init__(self, source, large, small, args):
        self.source, self.large, self.small, self.args = source, large, small, args
        self.head_dim = small.dim // small.heads
        self.random = np.random.default_rng(args.seed)
        self.noise = args.noise
        self.writer = gguf.Writer()

    def fresh(self, rows, cols):
        return self.random.standard_normal((rows, cols), dtype=np.float32) / np.float32(np.sqrt(cols))

    def put(self, name, make, shape):
        """make() when the file is written, so that one matrix is in memory at a time."""
        kind = self.args.type if len(shape) == 2 else "F32"
        self.writer.tensor(name, shape[::-1], kind, lambda: gguf.quantize(make(), kind))

    def norm(self, name):
        scale = np.sqrt(self.small.dim / self.large.dim)
        old = self.source.tensors.get(name, np.ones(self.small.dim, np.float32))

        def make():
            out = np.ones((1, self.large.dim), np.float32)
            out[0, :self.small.dim] = old * scale
            return out
        self.put(name, make, (self.large.dim,))

    def head_rows(self, n_heads, n_kv, large_heads, large_kv):
        """Where rows of the small model's heads stand among the large one's."""
        group, large_group = n_heads // n_kv, large_heads // large_kv
        heads = [h // group * large_group + h % group for h in range(n_heads)]
        return np.concatenate([np.arange(h * self.head_dim, (h + 1) * self.head_dim) for h in heads])

    def inward(self, name, rows, at):
        """Reads the residual stream: rows at `at` are the small model's."""
        old = self.source.tensors.get(name)

        def make():
            out = self.fresh(rows, self.large.dim)
            if old is not None:
                out[at] = 0
                out[at, :self.small.dim] = old
            return out
        self.put(name, make, (rows, self.large.dim))

    def outward(self, name, cols, at):
        """Writes to the residual stream: from columns at `at` alone, to the first rows alone."""
        old = self.source.tensors.get(name)

        def make():
            out = np.zeros((self.large.dim, cols), np.float32)
            if old is not None:
                out[np.ix_(np.arange(self.small.dim), at)] = old
            return out
        self.put(name, make, (self.large.dim, cols))

    def layer(self, i):
        small, large, prefix = self.small, self.large, f"blk.{i}."
        queries = self.head_rows(small.heads, small.kv_heads, large.heads, large.kv_heads)
        keys = self.head_rows(small.kv_heads, small.kv_heads, large.kv_heads, large.kv_heads)
        units = np.arange(small.ff)
        kv_width = large.kv_heads * self.head_dim
        self.norm(prefix + "attn_norm.weight")
        self.inward(prefix + "attn_q.weight", large.dim, queries)
        self.inward(prefix + "attn_k.weight", kv_width, keys)
        self.inward(prefix + "attn_v.weight", kv_width, keys)
        self.outward(prefix + "attn_output.weight", large.dim, queries)
        self.norm(prefix + "ffn_norm.weight")
        self.inward(prefix + "ffn_gate.weight", large.ff, units)
        self.inward(prefix + "ffn_up.weight", large.ff, units)
        self.outward(prefix + "ffn_down.weight", large.ff, units)

    def vocabulary(self, name, old):
        def make():
            out = np.zeros((len(old), self.large.dim), np.float32)
            out[:, :self.small.dim] = old
            return out
        self.put(name, make, (len(old), self.large.dim))

    def header(self):
        small, large = self.small, self.large
        changed = {"embedding_length": large.dim, "block_count": large.layers, "feed_forward_length": large.ff,
                   "attention.head_count": large.heads, "attention.head_count_kv": large.kv_heads}
        for key, (kind, value, item) in self.source.keys.items():
            name = key.removeprefix(self.source.prefix)
            if key == "general.name":
                value = value + b", padded like " + self.args.like.encode()
            elif key.endswith("layer_norm_rms_epsilon"):
                value = value * small.dim / large.dim
            elif name == "target_print":
                value = self.args.print
            self.writer.add(key, kind, changed.get(name, value), item)

    def run(self, path):
        tensors = self.source.tensors
        self.header()
        self.vocabulary("token_embd.weight", tensors["token_embd.weight"])
        self.norm("output_norm.weight")
        for i in range(self.large.layers):
            self.layer(i)
        self.vocabulary("output.weight", head_of(self.source) + self.noise * noise_of(self.source, self.args.seed))
        self.writer.write(path)


class HeadPadder(Padder):
    """A head: model/heads/head.h has its formula, train/head_file.h its tensors. What it reads are several vectors side by side."""

    def side_by_side(self, name):
        small, large, old = self.small.dim, self.large.dim, self.source.tensors[name]
        n = old.shape[1] // small

        def make():
            out = np.zeros((large, n * large), np.float32)
            for i in range(n):
                out[:small, i * large:i * large + small] = old[:, i * small:(i + 1) * small]
            return out
        self.put(name, make, (large, n * large))

    def run(self, path):
        self.header()
        if "fc.weight" in self.source.tensors:
            self.side_by_side("fc.weight")
        for name in ("enorm", "hnorm"):
            self.norm(f"blk.0.nextn.{name}.weight")
        self.side_by_side("blk.0.nextn.eh_proj.weight")
        self.layer(0)
        self.norm("output_norm.weight")
        self.writer.write(path)


# ---- How often a draft is right ----

def head_of(source):
    return source.tensors.get("output.weight", source.tensors["token_embd.weight"])


def noise_of(source, seed):
    head = head_of(source)
    return np.random.default_rng([seed, 1]).standard_normal(head.shape, dtype=np.float32) * head.std()


def rounded(x, kind):
    """What is left of the values after a block format."""
    if x.ndim != 2 or kind == "F16":
        return x
    blocks = np.frombuffer(gguf.quantize(x, kind), np.uint8).reshape(-1, gguf.TYPES[kind][2])
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    if kind == "Q8_0":
        values = blocks[:, 2:].view(np.int8).astype(np.float32)
    else:
        values = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], 1).astype(np.float32) - 8
    return (scale * values).reshape(x.shape)


def llama(source, tensors):
    number = source.number
    return Llama(tensors, number("block_count"), number("attention.head_count"), number("attention.head_count_kv"),
                 number("attention.layer_norm_rms_epsilon"), number("rope.freq_base"))


def walk(target, target_head, draft, draft_head, prompt, random):
    """(states behind each token of a greedy answer, what the draft finds likeliest there). A prompt of one token is gone on
    with by tokens that are drawn."""
    token, states, guesses = prompt[0], [], []
    drawn = DRAWN if len(prompt) == 1 else 0
    for i in range(len(prompt) + drawn + GREEDY - 1):
        states.append(target.hidden(token))
        guesses.append(np.argmax(draft_head @ draft.hidden(token)))
        logits = target_head @ states[-1]
        if i + 1 < len(prompt):
            token = prompt[i + 1]
        elif i < drawn:
            shares = np.exp(logits - logits.max())
            token = random.choice(len(shares), p=shares / shares.sum())
        else:
            token = np.argmax(logits)
    return states[-GREEDY:], guesses[-GREEDY:]


def foretold(head, states, guesses):
    return np.mean(np.argmax(states @ head.T, 1) == guesses)


def find_noise(source, draft, args):
    """(noise, measured share). Answers are those of the noise found so far, so that it is looked for a few times; the noise
    whose own answers came nearest is taken."""
    tensors = {name: rounded(x, args.type) for name, x in source.tensors.items()}
    prompts = [[source.keys.get("tokenizer.ggml.bos_token_id", (0, 0))[1]]] * BEGINNINGS
    if args.prompts:
        lines = pathlib.Path(args.prompts).read_text(encoding="utf-8").splitlines()
        prompts = [[int(i) for i in line.split()] for line in lines if line.strip()]
    noise, direction, best = 0.0, noise_of(source, args.seed), None
    for turn in range(TURNS):
        random = np.random.default_rng([args.seed, 2])
        head = rounded(head_of(source) + noise * direction, args.type)
        walks = [walk(llama(source, tensors), head, llama(draft, draft.tensors), head_of(draft), prompt, random)
                 for prompt in prompts]
        states, guesses = (np.concatenate(part) for part in zip(*walks))
        share = foretold(head, states, guesses)
        if turn == 0 and share < args.agree:
            sys.exit(f"padded_model: without any noise {share:.3f} of the tokens are foretold: --agree is more")
        if best is None or abs(share - args.agree) < abs(best[1] - args.agree):
            best = noise, share
        if abs(share - args.agree) < ENOUGH:
            break
        before, low, high = noise, 0.0, MOST_NOISE
        for _ in range(HALVINGS):
            noise = (low + high) / 2
            right = foretold(rounded(head_of(source) + noise * direction, args.type), states, guesses)
            low, high = (noise, high) if right > args.agree else (low, noise)
        noise = (before + noise) / 2 if turn > 1 else noise  # or it may swing between two values
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("small")
    parser.add_argument("out")
    parser.add_argument("--like", default="tinyllama-1b", choices=gguf.PRESETS)
    parser.add_argument("--type", default="Q4_0", choices=["F16", "Q8_0", "Q4_0"])
    parser.add_argument("--noise", type=float, default=0)
    parser.add_argument("--agree", type=float)
    parser.add_argument("--draft")
    parser.add_argument("--prompts")
    parser.add_argument("--print")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int)
    args = parser.parse_args()
    source = Reader(args.small)
    is_head = source.prefix == "runnel-eagle."
    if source.prefix != "llama." and not is_head:
        sys.exit("padded_model: neither of the llama architecture nor a head")
    if is_head and args.print is None:
        sys.exit("padded_model: a head wants --print")
    small = Shape(source.number("embedding_length"), source.number("block_count"), source.number("attention.head_count"),
                  source.number("attention.head_count_kv"), source.number("feed_forward_length"))
    large = large_shape(small, args.like, 1 if is_head else args.layers, small.dim // small.heads)
    if args.agree is not None:
        args.noise, share = find_noise(source, Reader(args.draft) if args.draft else source, args)
        print(f"noise {args.noise:.4f}: {share:.3f} of the tokens foretold")
    (HeadPadder if is_head else Padder)(source, large, small, args).run(args.out)


if __name__ == "__main__":
    main()
