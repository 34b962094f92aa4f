/* The passes that pre-tokenizers are made of (passes.c, words.c) and the sets of
 * characters they look for (sets.c); for splitter.c's table. See splitter.h. */
#ifndef RN_TEXT_SPLIT_PASSES_H
#define RN_TEXT_SPLIT_PASSES_H

#include "base/utf8.h"
#include "text/split/splitter.h"
#include "text/unicode.h"

#define RN_MANY UINT32_MAX

typedef size_t rn_pass_next(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end);
typedef uint8_t rn_pass_set(uint32_t code_point);

rn_pass_next rn_next_set, rn_next_trailing, rn_next_three, rn_next_thousands, rn_next_number, rn_next_plain_number,
    rn_next_line, rn_next_sentinel, rn_next_image, rn_next_indent;
rn_pass_next rn_next_gpt2, rn_next_words, rn_next_cased, rn_next_deepseek, rn_next_spaced;

rn_pass_set rn_set_number, rn_set_letter, rn_set_punct, rn_set_line_end, rn_set_default_punct, rn_set_falcon_punct,
    rn_set_deepseek_punct, rn_set_deepseek_cjk, rn_set_deepseek_letter, rn_set_cjk_kana, rn_set_youtu, rn_set_afmoe,
    rn_set_bloom, rn_set_chameleon, rn_set_not_space;

/* A character of the script Han. */
bool rn_char_is_han(uint32_t code_point);

/* A character of \w as Oniguruma has it. */
bool rn_char_is_word(uint32_t code_point);

/* Class of the character at text + at and its bytes; 0 and 0 at the end. */
static inline uint16_t rn_peek(const char *text, size_t at, size_t end, uint32_t *n)
{
    *n = 0;
    return at < end ? rn_char_class(rn_utf8_decode(text + at, n)) : 0;
}

/* End of the run of at most `most` characters whose class is in `mask`. */
static inline size_t rn_run(const char *text, size_t at, size_t end, uint16_t mask, uint32_t most)
{
    uint32_t n;

    while (most > 0 && (rn_peek(text, at, end, &n) & mask) != 0) {
        at += n;
        most--;
    }
    return at;
}

/* The beginning of the character that ends at text + at. */
static inline size_t rn_before(const char *text, size_t at)
{
    do
        at--;
    while (((unsigned char)text[at] & 0xc0) == 0x80);
    return at;
}

#endif
