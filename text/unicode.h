/* What a code point is: letter, mark, number, punctuation, symbol or white space.
 *
 * Categories are those of Unicode 14 (the version is named in unicode_table.c), as a table of our
 * own: what a text becomes must not depend on which Unicode library a machine has.
 * White space is the property White_Space: category Z and the controls U+0009..D and U+0085. */
#ifndef RN_TEXT_UNICODE_H
#define RN_TEXT_UNICODE_H

#include <stddef.h>
#include <stdint.h>

enum rn_char_class { /* masks, one bit per general category */
    RN_CHAR_OTHER = 1 << 0, /* controls, format, unassigned, private */
    RN_CHAR_LU = 1 << 1,
    RN_CHAR_LL = 1 << 2,
    RN_CHAR_LT = 1 << 3,
    RN_CHAR_LM = 1 << 4,
    RN_CHAR_LO = 1 << 5,
    RN_CHAR_MARK = 1 << 6,
    RN_CHAR_NUMBER = 1 << 7,
    RN_CHAR_PUNCT = 1 << 8,
    RN_CHAR_SYMBOL = 1 << 9,
    RN_CHAR_SPACE = 1 << 10,
    RN_CHAR_LETTER = RN_CHAR_LU | RN_CHAR_LL | RN_CHAR_LT | RN_CHAR_LM | RN_CHAR_LO
};

#define RN_UNICODE_INDEXED 0x20000

extern const uint16_t rn_unicode_ascii[128]; /* masks */
extern const uint32_t rn_unicode_runs[];
extern const uint32_t rn_unicode_n_runs;
extern const uint16_t rn_unicode_index[RN_UNICODE_INDEXED >> 8];

/* The mask of a code point at or above U+0080; use rn_char_class. */
uint16_t rn_char_class_far(uint32_t code_point);

/* One bit of enum rn_char_class. Any value is allowed. */
static inline uint16_t rn_char_class(uint32_t code_point)
{
    return code_point < 128 ? rn_unicode_ascii[code_point] : rn_char_class_far(code_point);
}

#endif
