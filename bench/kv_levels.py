"""The levels of q4 and q3 of model/kv.h: Lloyd's iteration (Lloyd 1957, Max 1960) over groups of 32 Gaussian numbers, each
with the scale that fits it best of the eight that the encoder tries; then rounded to 127ths. Prints them and the
signal to noise they give, beside that of even levels and of even levels with a minimum of their own (half a bit more).

    kv_levels.py [seed]
"""
import sys

import numpy as np

SCALES = np.arange(10, 18) / 16


def half(x):
    return x.astype(np.float16).astype(np.float64)


def fit(x, levels):
    """The best scale of each group [n] and the codes under it [n, 32]; levels up to 1."""
    middles = (levels[1:] + levels[:-1]) / 2
    most = np.abs(x).max(axis=1)
    least, scale = np.full(len(x), np.inf), np.zeros(len(x))
    for s in SCALES:
        d = half(most * s)
        error = ((x - d[:, None] * levels[np.searchsorted(middles, x / d[:, None])]) ** 2).sum(axis=1)
        scale = np.where(error < least, d, scale)
        least = np.minimum(error, least)
    return scale, np.searchsorted(middles, x / scale[:, None]), least


def lloyd(x, bits, rounds=60):
    n = 1 << bits
    levels = (np.arange(n) - (n - 1) / 2) / ((n - 1) / 2)
    for _ in range(rounds):
        scale, codes, _ = fit(x, levels)
        weight = np.broadcast_to(scale[:, None] ** 2, x.shape)
        levels = np.array([(x / scale[:, None] * weight)[codes == c].sum() / weight[codes == c].sum() for c in range(n)])
        levels = (levels - levels[::-1]) / 2
        levels /= levels[-1]
    return np.rint(levels * 127).astype(int)


def decibels(x, error):
    return 10 * np.log10((x ** 2).sum() / error.sum())


def with_minimum(x, bits):
    low, n = half(x.min(axis=1))[:, None], (1 << bits) - 1
    d = half((x.max(axis=1) - x.min(axis=1)) / n)[:, None]
    return (x - low - d * np.clip(np.rint((x - low) / d), 0, n)) ** 2


def main():
    rng = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    x, fresh = rng.normal(size=(40000, 32)), rng.normal(size=(20000, 32))
    for bits in (4, 3):
        n = 1 << bits
        levels = lloyd(x, bits)
        even = (np.arange(n) - (n - 1) / 2) / ((n - 1) / 2)
        print(f"q{bits}: {', '.join(map(str, levels))}")
        print(f"    {decibels(fresh, fit(fresh, levels / 127)[2]):.2f} dB; even {decibels(fresh, fit(fresh, even)[2]):.2f}; "
              f"even with a minimum {decibels(fresh, with_minimum(fresh, bits)):.2f}")


main()
