#!/usr/bin/env python3
"""Writes unicode_table.c: general categories of all code points as runs.

    python3 text/unicode_table.py > text/unicode_table.c

Uses the Unicode version of this Python's unicodedata, which is written into the file."""
import unicodedata

NAMES = ["OTHER", "LU", "LL", "LT", "LM", "LO", "MARK", "NUMBER", "PUNCT", "SYMBOL", "SPACE"]
WHITE = set(range(9, 14)) | {0x85}  # White_Space is these controls and all of category Z
INDEXED = 0x20000


def category(c):
    k = unicodedata.category(chr(c))
    if c in WHITE or k[0] == "Z":
        return NAMES.index("SPACE")
    if k[0] == "L":
        return NAMES.index(k.upper())
    return {"M": 6, "N": 7, "P": 8, "S": 9}.get(k[0], 0)


def rows(values, form, per_row):
    out = []
    for i in range(0, len(values), per_row):
        out.append("    " + ", ".join(form % v for v in values[i:i + per_row]) + ",")
    return "\n".join(out)


runs = []
for c in range(0x110000):
    k = category(c)
    if not runs or runs[-1] & 0xff != k:
        runs.append(c << 8 | k)
index, r = [], 0
for page in range(INDEXED >> 8):
    while r + 1 < len(runs) and runs[r + 1] >> 8 <= page << 8:
        r += 1
    index.append(r)
print("""/* General categories of all code points, Unicode %s. Written by unicode_table.py; do not edit.
 *
 * A run is (first code point << 8) | category and ends where the next begins; the index gives the
 * run that holds the first code point of each 256-point page below U+%X. See unicode.h. */
#include "text/unicode.h"

const uint16_t rn_unicode_ascii[128] = {
%s
};

const uint32_t rn_unicode_runs[] = {
%s
};
const uint32_t rn_unicode_n_runs = sizeof rn_unicode_runs / sizeof rn_unicode_runs[0];

const uint16_t rn_unicode_index[RN_UNICODE_INDEXED >> 8] = {
%s
};""" % (unicodedata.unidata_version, INDEXED, rows([1 << category(c) for c in range(128)], "0x%x", 16),
         rows(runs, "0x%x", 9), rows(index, "%d", 19)))
