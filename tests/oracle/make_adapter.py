#!/usr/bin/env python3
"""Makes a LoRA adapter of random numbers for a GGUF model, in the layout of llama.cpp's convert_lora_to_gguf.py.

usage: make_adapter.py MODEL OUT [--seed N] [--rank R] [--alpha A] [--type f32|f16] [--strength S] [--only REGEX]

It changes the matrices blk.*.{attn_q,attn_k,attn_v,attn_output,ffn_gate,ffn_up,ffn_down}.weight that the model has, or
those whose names REGEX finds. What it adds to a product of inputs of size 1 is about S (default 0.2) in size.
"""
import argparse
import random
import re
import struct

NAMES = r"^blk\.\d+\.(attn_(q|k|v|qkv|output)|ffn_(gate|up|down))\.weight$"
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of GGUF's kinds of values


class Reader:
    """The directory of a GGUF file."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data, self.at = f.read(), 0
        magic, version, n_tensors, n_keys = self.numbers("<4sIQQ")
        assert magic == b"GGUF" and version in (2, 3), path
        self.keys = {}
        for _ in range(n_keys):
            name = self.text()
            self.keys[name] = self.value(self.numbers("<I")[0])
        self.tensors = {}
        for _ in range(n_tensors):
            name, n_dims = self.text(), self.numbers("<I")[0]
            self.tensors[name] = self.numbers("<%dQ" % n_dims)
            self.numbers("<IQ")

    def numbers(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def text(self):
        n, = self.numbers("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            item, n = self.numbers("<IQ")
            if item in (8, 9):
                for _ in range(n):
                    self.value(item)
            else:
                self.at += SIZES[item] * n
            return None
        self.at += SIZES[kind]
        return None


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def write(path, architecture, alpha, tensors, kind):
    """tensors: (name, (columns, rows), values)."""
    keys = [text(name) + struct.pack("<I", 8) + text(value) for name, value in (
        ("general.architecture", architecture), ("general.type", "adapter"), ("adapter.type", "lora"))]
    keys.append(text("adapter.lora.alpha") + struct.pack("<If", 6, alpha))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys)
    data = b""
    for name, dims, values in tensors:
        head += text(name) + struct.pack("<IQQIQ", 2, *dims, 1 if kind == "f16" else 0, len(data))
        data += struct.pack("<%d%s" % (len(values), "e" if kind == "f16" else "f"), *values)
        data += b"\0" * (-len(data) % 32)
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32) + data)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--alpha", type=float, default=16)
    parser.add_argument("--type", choices=("f32", "f16"), default="f16")
    parser.add_argument("--strength", type=float, default=0.2)
    parser.add_argument("--only", default=NAMES)
    options = parser.parse_args()
    model, coin = Reader(options.model), random.Random(options.seed)
    tensors = []
    for name, dims in model.tensors.items():
        if not re.search(options.only, name) or len(dims) != 2:
            continue
        cols, rows = dims
        factor = options.alpha / options.rank if options.alpha else 1
        size = options.strength / (factor * options.rank ** 0.5)
        tensors.append((name + ".lora_a", (cols, options.rank),
                        [coin.gauss(0, cols ** -0.5) for _ in range(cols * options.rank)]))
        tensors.append((name + ".lora_b", (options.rank, rows),
                        [coin.gauss(0, size) for _ in range(rows * options.rank)]))
    assert tensors, "no tensor of the model has such a name"
    write(options.out, model.keys["general.architecture"], options.alpha, tensors, options.type)


if __name__ == "__main__":
    main()
