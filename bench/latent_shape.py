#!/usr/bin/env python3
"""A file of DeepSeek-V2-Lite's shape (arXiv 2405.04434) with fewer blocks, its vocabulary cut in proportion, and random
weights: what a token costs in each block is what it costs in the whole model.

    latent_shape.py OUT.gguf [--layers 7]

Queries are made of 1,536 values, as in DeepSeek-V2: ik_llama.cpp reads files without these if they have 27 blocks.
Weights are Q4_K, the output Q6_K; Q8_0 where 128 or 1,408 columns are no multiple of 256."""
from shape import Shape, gguf, parser

WIDTH, HEADS, LATENT, QUERIES, ROTATED, KEY, VALUE = 2048, 16, 512, 1536, 64, 128, 128
DENSE, HIDDEN, EXPERTS, USED, SHARED = 10944, 1408, 64, 6, 2
BLOCKS, VOCABULARY = 27, 102400


def keys(w, layers, vocabulary):
    w.numbers(gguf.U32, {
        "context_length": 4096, "embedding_length": WIDTH, "block_count": layers, "feed_forward_length": DENSE,
        "attention.head_count": HEADS, "attention.head_count_kv": 1, "attention.key_length": LATENT + ROTATED,
        "attention.value_length": LATENT, "attention.key_length_mla": KEY + ROTATED,
        "attention.value_length_mla": VALUE, "attention.q_lora_rank": QUERIES, "attention.kv_lora_rank": LATENT,
        "rope.dimension_count": ROTATED, "leading_dense_block_count": 1, "expert_count": EXPERTS,
        "expert_used_count": USED, "expert_feed_forward_length": HIDDEN, "expert_shared_count": SHARED,
        "expert_gating_func": 1, "vocab_size": vocabulary})
    w.numbers(gguf.F32, {
        "expert_weights_scale": 1.0, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e4})
    w.tokenizer("deepseek-llm", vocabulary)


def tensors(w, layers, vocabulary):
    def put(name, *shape, kind=None):
        w.random(name, shape, kind or ("Q4_K" if shape[0] % 256 == 0 else "Q8_0"))

    def feed_forward(block, ending, hidden, *experts):
        put(f"{block}ffn_gate{ending}.weight", WIDTH, hidden, *experts)
        put(f"{block}ffn_up{ending}.weight", WIDTH, hidden, *experts)
        put(f"{block}ffn_down{ending}.weight", hidden, WIDTH, *experts)

    put("token_embd.weight", WIDTH, vocabulary)
    w.norm("output_norm.weight", WIDTH)
    put("output.weight", WIDTH, vocabulary, kind="Q6_K")
    for i in range(layers):
        b = f"blk.{i}."
        w.norm(b + "attn_norm.weight", WIDTH)
        w.norm(b + "ffn_norm.weight", WIDTH)
        w.norm(b + "attn_kv_a_norm.weight", LATENT)
        w.norm(b + "attn_q_a_norm.weight", QUERIES)
        put(b + "attn_q_a.weight", WIDTH, QUERIES)
        put(b + "attn_q_b.weight", QUERIES, HEADS * (KEY + ROTATED))
        put(b + "attn_kv_a_mqa.weight", WIDTH, LATENT + ROTATED)
        put(b + "attn_k_b.weight", KEY, LATENT, HEADS)
        put(b + "attn_v_b.weight", LATENT, VALUE, HEADS)
        put(b + "attn_output.weight", HEADS * VALUE, WIDTH)
        if i == 0:
            feed_forward(b, "", DENSE)
            continue
        put(b + "ffn_gate_inp.weight", WIDTH, EXPERTS, kind="F32")
        feed_forward(b, "_exps", HIDDEN, EXPERTS)
        feed_forward(b, "_shexp", SHARED * HIDDEN)


def main():
    args = parser(__doc__, layers=7).parse_args()
    writer, vocabulary = Shape("deepseek2"), VOCABULARY * args.layers // BLOCKS
    keys(writer, args.layers, vocabulary)
    tensors(writer, args.layers, vocabulary)
    writer.write(args.out)


if __name__ == "__main__":
    main()
