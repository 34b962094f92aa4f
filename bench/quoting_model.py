#!/usr/bin/env python3
"""A model that quotes, with weights written down instead of trained: the answer goes on as the text did behind the last
place that is most like the text's end. For benchmarks of n-gram drafts, whose gain lives on such answers.

    quoting_model.py VOCABULARY.gguf OUT.gguf [--seed 1]

VOCABULARY gives the tokens (any GGUF file with some). Llama architecture, two layers, one key-value head, F16. Every token
t has a random code c(t) of 256 signs. The residual stream:

    [ c(x_i) | c'(x_i-1) | c'(x_i-2) | ... c'(x_i-5) | c(next) | 1 ]        c': the first 28 signs of c
      256      28          28              28          256       bias

    layer 0   five heads. Keys are one constant vector in pairs that RoPE turns quickly; the query of head h is that vector
              turned back by h positions. So it looks at position i - h, and copies c' from there.
    layer 1   one head that counts. In pairs that RoPE hardly turns (base 1e10) the query has c' of x_i ... x_i-4, the key
              has c' of x_j-1 ... x_j-5; each that agrees adds 1.4, 1.3 ... 1 to the score. Pairs between the quick and the
              slow ones favour what is near: the last of several equal places wins. The value is c(x_j).
    output    the token whose code is most like c(next)

So four agreeing tokens outweigh the nearest one: where an answer departs from its source by a token (padded_model.py
--noise or --agree makes it do so), it goes on with the source behind it, as an editor would. The feed-forward is 0.
padded_model.py gives it a large model's cost. Reads make_gguf.py from ../shared/tools or $RUNNEL_SHARED."""
import argparse

import numpy as np

from padded_model import Reader, gguf

CODE, PART, HEAD, FF = 256, 28, 256, 32
BASE = 1e10
WEIGHTS = (1.4, 1.3, 1.2, 1.1, 1.0)  # of the last token, of the one before it ...
HEADS = len(WEIGHTS)
DIM = HEAD * HEADS
BEFORE = [CODE + PART * h for h in range(HEADS)]
NEXT = BEFORE[-1] + PART
ONE = NEXT + CODE
QUICK = range(0, 24)       # pairs that tell neighbours apart
MEDIUM = range(24, 52)     # 0.013 to 8e-5 a position ...
SLOW = 56                  # from here on less than 5e-5: 0.05 over a thousand positions
NEIGHBOUR, MATCH = 15.0, 40.0  # nats: of a quick pair, of an agreeing token
NEAR = 0.02                # a medium pair's weight against an agreeing token's


def rates():
    return BASE ** (-np.arange(0, HEAD, 2) / HEAD)


def scaled(score):
    """Of query and key both: so that their product over sqrt(HEAD) is the score."""
    return np.sqrt(score * np.sqrt(HEAD))


def looks_back(query, key):
    for p in QUICK:
        key[2 * p, ONE] = scaled(NEIGHBOUR)
        for h in range(HEADS):
            angle = -(h + 1) * rates()[p]
            query[HEAD * h + 2 * p, ONE] = scaled(NEIGHBOUR) * np.cos(angle)
            query[HEAD * h + 2 * p + 1, ONE] = scaled(NEIGHBOUR) * np.sin(angle)


def finds(query, key):
    sources = [0, *BEFORE]
    for k in range(HEADS):
        for i in range(PART):
            row = 2 * SLOW + PART * k + i
            query[row, sources[k] + i] = scaled(MATCH / PART) * WEIGHTS[k]
            key[row, BEFORE[k] + i] = scaled(MATCH / PART)
    for p in [*range(12, 24), *MEDIUM]:
        query[2 * p, ONE] = key[2 * p, ONE] = scaled(MATCH * NEAR)


def layer(tensors, i, filled):
    """filled: of the residual stream before this layer, the values that are 1 or -1."""
    w = f"blk.{i}."
    query, key = np.zeros((DIM, DIM), np.float32), np.zeros((HEAD, DIM), np.float32)
    value, output = np.zeros((HEAD, DIM), np.float32), np.zeros((DIM, DIM), np.float32)
    value[np.arange(CODE), np.arange(CODE)] = 1
    if i == 0:
        looks_back(query, key)
        for h in range(HEADS):
            output[BEFORE[h] + np.arange(PART), HEAD * h + np.arange(PART)] = 1
    else:
        finds(query, key)
        output[NEXT + np.arange(CODE), np.arange(CODE)] = 1
    tensors[w + "attn_norm.weight"] = np.full(DIM, np.sqrt(filled / DIM), np.float32)  # undoes the division
    tensors[w + "attn_q.weight"], tensors[w + "attn_k.weight"] = query, key
    tensors[w + "attn_v.weight"], tensors[w + "attn_output.weight"] = value, output
    tensors[w + "ffn_norm.weight"] = np.ones(DIM, np.float32)
    tensors[w + "ffn_gate.weight"] = tensors[w + "ffn_up.weight"] = np.zeros((FF, DIM), np.float32)
    tensors[w + "ffn_down.weight"] = np.zeros((DIM, FF), np.float32)


def weights(n_vocab, seed):
    codes = np.random.default_rng(seed).choice(np.array([-1, 1], np.float32), (n_vocab, CODE))
    tensors = {"token_embd.weight": np.zeros((n_vocab, DIM), np.float32)}
    tensors["token_embd.weight"][:, :CODE] = codes
    tensors["token_embd.weight"][:, ONE] = 1
    tensors["output.weight"] = np.zeros((n_vocab, DIM), np.float32)
    tensors["output.weight"][:, NEXT:NEXT + CODE] = codes / 8
    layer(tensors, 0, CODE + 1)
    layer(tensors, 1, CODE + 1 + HEADS * PART)
    tensors["output_norm.weight"] = np.full(DIM, np.sqrt((2 * CODE + 1 + HEADS * PART) / DIM), np.float32)
    return tensors


def write(vocabulary, tensors, path):
    writer = gguf.Writer()
    n_vocab = len(tensors["token_embd.weight"])
    gguf.header(writer, "quoting", DIM, 2, HEADS, 1, FF, n_vocab, 2048, BASE)
    for key, (kind, value, item) in vocabulary.items():
        if key.startswith("tokenizer."):
            writer.add(key, kind, value, item)
    for name, values in tensors.items():
        kind = "F16" if values.ndim == 2 else "F32"
        writer.tensor(name, values.shape[::-1], kind, lambda values=values, kind=kind: gguf.quantize(values, kind))
    writer.write(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vocabulary")
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    vocabulary = Reader(args.vocabulary).keys
    write(vocabulary, weights(len(vocabulary["tokenizer.ggml.tokens"][1]), args.seed), args.out)


if __name__ == "__main__":
    main()
