#!/usr/bin/env python3
"""A file of Qwen3-30B-A3B's shape with fewer blocks, its vocabulary cut in proportion, and random weights: what a token
costs in each block is what it costs in the whole model.

    moe_shape.py OUT.gguf [--layers 6] [--type Q4_K_M|Q4_0]

In Q4_K_M the values, the products behind experts and the output are Q6_K in every second block."""
from shape import Shape, gguf, parser

WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN, EXPERTS, USED = 2048, 32, 4, 128, 768, 128, 8
BLOCKS, VOCABULARY = 48, 151936


def keys(w, layers, vocabulary):
    w.numbers(gguf.U32, {
        "context_length": 32768, "embedding_length": WIDTH, "block_count": layers, "feed_forward_length": 6144,
        "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "attention.key_length": HEAD,
        "attention.value_length": HEAD, "expert_count": EXPERTS, "expert_used_count": USED,
        "expert_feed_forward_length": HIDDEN})
    w.numbers(gguf.F32, {"attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6})
    w.tokenizer("qwen2", vocabulary)


def tensors(w, layers, vocabulary, kind):
    low, high = ("Q4_K", "Q6_K") if kind == "Q4_K_M" else (kind, kind)
    w.random("token_embd.weight", (WIDTH, vocabulary), low)
    w.norm("output_norm.weight", WIDTH)
    w.random("output.weight", (WIDTH, vocabulary), "Q6_K")
    for i in range(layers):
        b, up = f"blk.{i}.", high if i % 2 == 0 else low
        w.norm(b + "attn_norm.weight", WIDTH)
        w.norm(b + "ffn_norm.weight", WIDTH)
        w.norm(b + "attn_q_norm.weight", HEAD)
        w.norm(b + "attn_k_norm.weight", HEAD)
        w.random(b + "attn_q.weight", (WIDTH, HEADS * HEAD), low)
        w.random(b + "attn_k.weight", (WIDTH, KV_HEADS * HEAD), low)
        w.random(b + "attn_v.weight", (WIDTH, KV_HEADS * HEAD), up)
        w.random(b + "attn_output.weight", (HEADS * HEAD, WIDTH), low)
        w.random(b + "ffn_gate_inp.weight", (WIDTH, EXPERTS), "F32")
        w.random(b + "ffn_gate_exps.weight", (WIDTH, HIDDEN, EXPERTS), low)
        w.random(b + "ffn_up_exps.weight", (WIDTH, HIDDEN, EXPERTS), low)
        w.random(b + "ffn_down_exps.weight", (HIDDEN, WIDTH, EXPERTS), up)


def main():
    arguments = parser(__doc__, layers=6)
    arguments.add_argument("--type", default="Q4_K_M", choices=["Q4_K_M", "Q4_0"])
    args = arguments.parse_args()
    writer, vocabulary = Shape("qwen3moe"), VOCABULARY * args.layers // BLOCKS
    keys(writer, args.layers, vocabulary)
    tensors(writer, args.layers, vocabulary, args.type)
    writer.write(args.out)


if __name__ == "__main__":
    main()
