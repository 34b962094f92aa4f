/* What a code point is: letter, mark, number, punctuation, symbol or white space.
 *
 * Categories are those of Unicode 16 (the version is named in unicode_table.c), as a table of our own:
 * what a text becomes must not depend on which Unicode library a machine has. It is 16 because that is what
 * the programs know with which today's models are trained (tiktoken and Hugging Face's tokenizers by their
 * Rust crates); categories of characters that exist hardly ever change, a later version only adds some.
 * White space is the property White_Space: category Z and the controls U+0009..D and U+0085. */
#ifndef RN_TEXT_UNICODE_H
#define RN_TEXT_UNICODE_H

#include <stddef.h>
#include <stdint.h>

enum rn_char_class {                              /* masks, one bit per general category or group of them */
                     RN_CHAR_UNASSIGNED = 1 << 0, /* Cn */
                     RN_CHAR_LU = 1 << 1,
                     RN_CHAR_LL = 1 << 2,
                     RN_CHAR_LT = 1 << 3,
                     RN_CHAR_LM = 1 << 4,
                     RN_CHAR_LO = 1 << 5,
                     RN_CHAR_MN = 1 << 6,
                     RN_CHAR_MC = 1 << 7, /* Mc and Me */
                     RN_CHAR_ND = 1 << 8,
                     RN_CHAR_NL = 1 << 9,
                     RN_CHAR_PC = 1 << 10,
                     RN_CHAR_PO = 1 << 11, /* the other kinds of P */
                     RN_CHAR_SYMBOL = 1 << 12,
                     RN_CHAR_SPACE = 1 << 13,
                     RN_CHAR_CONTROL = 1 << 14, /* Cc but for white space, Cf, Cs, Co */
                     RN_CHAR_NO = 1 << 15,
                     RN_CHAR_OTHER = RN_CHAR_UNASSIGNED | RN_CHAR_CONTROL,
                     RN_CHAR_MARK = RN_CHAR_MN | RN_CHAR_MC,
                     RN_CHAR_NUMBER = RN_CHAR_ND | RN_CHAR_NL | RN_CHAR_NO,
                     RN_CHAR_PUNCT = RN_CHAR_PC | RN_CHAR_PO,
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
