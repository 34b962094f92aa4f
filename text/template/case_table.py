#!/usr/bin/env python3
"""Writes case_table.c: the characters whose upper or title case is more than one character.

    python3 text/template/case_table.py > text/template/case_table.c

Uses the Unicode version of this Python's unicodedata, which is written into the file."""
import unicodedata

rows = []
for c in range(0x110000):
    upper, title = chr(c).upper(), chr(c).title()
    if 0xd800 <= c < 0xe000 or len(upper) == 1:
        continue
    pad = lambda s: ", ".join("0x%x" % ord(s[i]) if i < len(s) else "0" for i in range(3))
    rows.append("    {0x%x, {%s}, {%s}}," % (c, pad(upper), pad(title)))
print("""/* Characters with a long upper case, Unicode %s. Written by case_table.py; do not edit. See value_case.c. */
#include "text/template/case_table.h"

const uint32_t rn_case_long_count = %d;
const struct rn_case_long rn_case_longs[] = {
%s
};""" % (unicodedata.unidata_version, len(rows), "\n".join(rows)))
