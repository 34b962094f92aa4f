"""A small model of the llama architecture in numpy, one token after another: for scripts that must know what a model
answers before they write it down. Nothing here is fast.

    x      = embedding of the token
    x     += Wo attend(rope(Wq n(x)), rope(Wk n(x)), Wv n(x))       n(x) = w x / sqrt(mean(x²) + epsilon)
    x     += Wdown (silu(Wgate n(x)) * Wup n(x))
    logits = Woutput n(x)

rope turns pairs of neighbouring values of a head, pair p at position i by the angle i * base^(-2 p / size of a head)."""
import numpy as np


class Llama:
    """tensors: {GGUF name: float32 array, rows first}; context: positions at most."""

    def __init__(self, tensors, layers, heads, kv_heads, epsilon, rope_base, context=2048):
        self.tensors, self.layers, self.heads, self.kv_heads = tensors, layers, heads, kv_heads
        self.epsilon = epsilon
        self.head_dim = len(tensors["blk.0.attn_q.weight"]) // heads
        self.rates = rope_base ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        self.keys = np.zeros((layers, kv_heads, context, self.head_dim), np.float32)
        self.values = np.zeros_like(self.keys)
        self.n = 0

    def norm(self, x, name):
        return self.tensors[name] * x / np.sqrt(np.mean(np.square(x, dtype=np.float64)) + self.epsilon)

    def rope(self, heads):
        angles = self.n * self.rates
        even, odd = heads[:, 0::2], heads[:, 1::2]
        out = np.empty_like(heads)
        out[:, 0::2] = even * np.cos(angles) - odd * np.sin(angles)
        out[:, 1::2] = even * np.sin(angles) + odd * np.cos(angles)
        return out

    def attend(self, x, i):
        w = f"blk.{i}.attn_"
        query, key, value = ((self.tensors[w + name + ".weight"] @ x).reshape(-1, self.head_dim) for name in "qkv")
        query = self.rope(query).reshape(self.kv_heads, -1, self.head_dim)
        self.keys[i, :, self.n] = self.rope(key)
        self.values[i, :, self.n] = value
        scores = query @ self.keys[i, :, :self.n + 1].transpose(0, 2, 1) / np.sqrt(self.head_dim)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        return self.tensors[w + "output.weight"] @ (shares @ self.values[i, :, :self.n + 1]).ravel()

    def hidden(self, token):
        """What the output matrix is multiplied with, behind this token."""
        x = self.tensors["token_embd.weight"][token].copy()
        for i in range(self.layers):
            w = f"blk.{i}."
            x += self.attend(self.norm(x, w + "attn_norm.weight"), i)
            h = self.norm(x, w + "ffn_norm.weight")
            gate = self.tensors[w + "ffn_gate.weight"] @ h
            gate = gate / (1 + np.exp(-np.clip(gate, -80, 80)))
            x += self.tensors[w + "ffn_down.weight"] @ (gate * (self.tensors[w + "ffn_up.weight"] @ h))
        self.n += 1
        return self.norm(x, "output_norm.weight")
