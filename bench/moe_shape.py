#!/usr/bin/env python3
"""A file of Qwen3-30B-A3B's shape with fewer blocks, its vocabulary cut in proportion, and random weights: what a token
costs in each block is what it costs in the whole model.

    moe_shape.py OUT.gguf [--layers 6] [--type Q4_K_M|Q4_0]

In Q4_K_M the values, the products behind experts and the output are Q6_K in every second block."""
import argparse
import os
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, os.path.join(os.environ.get("RUNNEL_SHARED", ROOT.parent / "shared"), "tools"))
import make_gguf as gguf  # noqa: E402

WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN, EXPERTS, USED = 2048, 32, 4, 128, 768, 128, 8
BLOCKS, VOCABULARY = 48, 151936


def keys(w, layers, vocabulary):
    w.add("general.architecture", gguf.STR, "qwen3moe")
    for key, value in (("context_length", 32768), ("embedding_length", WIDTH), ("block_count", layers),
                       ("feed_forward_length", 6144), ("attention.head_count", HEADS),
                       ("attention.head_count_kv", KV_HEADS), ("attention.key_length", HEAD),
                       ("attention.value_length", HEAD), ("expert_count", EXPERTS), ("expert_used_count", USED),
                       ("expert_feed_forward_length", HIDDEN)):
        w.add("qwen3moe." + key, gguf.U32, value)
    w.add("qwen3moe.attention.layer_norm_rms_epsilon", gguf.F32, 1e-6)
    w.add("qwen3moe.rope.freq_base", gguf.F32, 1e6)
    w.add("tokenizer.ggml.model", gguf.STR, "gpt2")
    w.add("tokenizer.ggml.pre", gguf.STR, "qwen2")
    w.add("tokenizer.ggml.tokens", gguf.ARR, ["t%d" % i for i in range(vocabulary)], gguf.STR)
    w.add("tokenizer.ggml.token_type", gguf.ARR, [1] * vocabulary, gguf.I32)
    w.add("tokenizer.ggml.merges", gguf.ARR, ["t 0"], gguf.STR)
    w.add("tokenizer.ggml.eos_token_id", gguf.U32, 1)


def tensors(w, layers, vocabulary, kind):
    rng = np.random.default_rng(7)
    low, high = ("Q4_K", "Q6_K") if kind == "Q4_K_M" else (kind, kind)

    def put(name, shape, t):
        w.tensor(name, shape, t, lambda: gguf.random_bytes(rng, shape, t))

    def norm(name, n):
        w.tensor(name, (n,), "F32", lambda: np.ones(n, "<f4").tobytes())

    put("token_embd.weight", (WIDTH, vocabulary), low)
    norm("output_norm.weight", WIDTH)
    put("output.weight", (WIDTH, vocabulary), "Q6_K")
    for i in range(layers):
        b, up = "blk.%d." % i, high if i % 2 == 0 else low
        norm(b + "attn_norm.weight", WIDTH)
        norm(b + "ffn_norm.weight", WIDTH)
        norm(b + "attn_q_norm.weight", HEAD)
        norm(b + "attn_k_norm.weight", HEAD)
        put(b + "attn_q.weight", (WIDTH, HEADS * HEAD), low)
        put(b + "attn_k.weight", (WIDTH, KV_HEADS * HEAD), low)
        put(b + "attn_v.weight", (WIDTH, KV_HEADS * HEAD), up)
        put(b + "attn_output.weight", (HEADS * HEAD, WIDTH), low)
        put(b + "ffn_gate_inp.weight", (WIDTH, EXPERTS), "F32")
        put(b + "ffn_gate_exps.weight", (WIDTH, HIDDEN, EXPERTS), low)
        put(b + "ffn_up_exps.weight", (WIDTH, HIDDEN, EXPERTS), low)
        put(b + "ffn_down_exps.weight", (HIDDEN, WIDTH, EXPERTS), up)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--type", default="Q4_K_M", choices=["Q4_K_M", "Q4_0"])
    args = parser.parse_args()
    writer, vocabulary = gguf.Writer(), VOCABULARY * args.layers // BLOCKS
    keys(writer, args.layers, vocabulary)
    tensors(writer, args.layers, vocabulary, args.type)
    writer.write(args.out)


if __name__ == "__main__":
    main()
