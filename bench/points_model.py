#!/usr/bin/env python3
"""A model in the shape of TinyLlama-1.1B whose weights are random blocks of an IQ format, for bench/compare.

    bench/points_model.py FORMAT VOCABULARY.gguf OUT.gguf      FORMAT: IQ2_S ...
"""
import argparse

import numpy as np

from shape import gguf

#: number of the type, columns and bytes of a block
FORMATS = {"IQ2_XXS": (16, 256, 66), "IQ2_XS": (17, 256, 74), "IQ3_XXS": (18, 256, 98), "IQ1_S": (19, 256, 50),
           "IQ3_S": (21, 256, 110), "IQ2_S": (22, 256, 82), "IQ1_M": (29, 256, 56)}
others = gguf.random_bytes


def random_bytes(rng, shape, kind):
    if kind not in FORMATS:
        return others(rng, shape, kind)
    _, columns, size = FORMATS[kind]
    blocks = rng.integers(0, 256, (int(np.prod(shape)) // columns, size), dtype=np.uint8)
    scale = np.full(len(blocks), 1 / np.sqrt(shape[0]) / (8 * 24), "<f2")
    if kind == "IQ1_M":  # its four nibbles are the last of four words
        for k in range(4):
            blocks[:, 49 + 2 * k] = blocks[:, 49 + 2 * k] & 15 | (scale.view("<u2") >> 4 * k & 15).astype(np.uint8) << 4
    else:
        blocks[:, :2] = scale[:, None].view(np.uint8)
    return blocks.tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("vocabulary")
    parser.add_argument("out")
    options = parser.parse_args()
    gguf.TYPES.update(FORMATS)
    gguf.random_bytes = random_bytes
    gguf.random(argparse.Namespace(preset="tinyllama-1b", layers=None, vocab=options.vocabulary, seed=1,
                                   type=options.format, tied=False, out=options.out))


if __name__ == "__main__":
    main()
