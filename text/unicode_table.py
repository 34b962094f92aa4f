#!/usr/bin/env python3
"""Writes unicode_table.c: general categories of all code points as runs.

    pip install unicodedata2==16.0.0
    python3 text/unicode_table.py > text/unicode_table.c

Which version stands is said in unicode.h, and why."""
import unicodedata2 as unicodedata

# In the order of the bits of enum rn_char_class.
BITS = {"Cn": 0, "Lu": 1, "Ll": 2, "Lt": 3, "Lm": 4, "Lo": 5, "Mn": 6, "Mc": 7, "Me": 7, "Nd": 8, "Nl": 9, "No": 15,
        "Pc": 10, "Pd": 11, "Ps": 11, "Pe": 11, "Pi": 11, "Pf": 11, "Po": 11, "Sm": 12, "Sc": 12, "Sk": 12, "So": 12,
        "Zs": 13, "Zl": 13, "Zp": 13, "Cc": 14, "Cf": 14, "Cs": 14, "Co": 14}
WHITE = set(range(9, 14)) | {0x85}  # White_Space is these controls and all of category Z
INDEXED = 0x20000


def category(c):
    return BITS["Zs"] if c in WHITE else BITS[unicodedata.category(chr(c))]


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
};""" % (unicodedata.unidata_version, INDEXED, rows([1 << category(c) for c in range(128)], "0x%x", 12),
         rows(runs, "0x%x", 9), rows(index, "%d", 19)))
