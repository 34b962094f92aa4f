/* Strings with origins: building, cutting, searching, changing case.
 *
 *     rn_sb  "user: " + content[3..]   bytes   u s e r :   h i
 *                                      ranges              [6, 8)      (the bytes that are data)
 *
 * Every function keeps the origin of each byte. Positions are bytes unless a name says chars. Work is counted in
 * the arena's steps. All raise. */
#ifndef RN_TEXT_TEMPLATE_VALUE_TEXT_H
#define RN_TEXT_TEMPLATE_VALUE_TEXT_H

#include "base/utf8.h"
#include "text/value.h"

#define RN_NOWHERE SIZE_MAX

/* ---- Builder ---- */

struct rn_sb {
    struct rn_arena *arena;
    bool on_heap; /* memory from the heap, not from the arena: the result outlives it */
    char *bytes;
    size_t n, cap, limit;
    struct rn_range *ranges;
    size_t n_ranges, cap_ranges;
};

/* In the arena: nothing to free. */
void rn_sb_init(struct rn_sb *sb, struct rn_arena *arena);

/* On the heap: at most `limit` bytes; freed by rn_sb_fini unless the caller has taken the two arrays. */
void rn_sb_init_heap(struct rn_sb *sb, struct rn_arena *arena, size_t limit);
void rn_sb_fini(struct rn_sb *sb);

void rn_sb_bytes(struct rn_sb *sb, const char *bytes, size_t n, enum rn_origin origin);
void rn_sb_text(struct rn_sb *sb, const char *text); /* NUL-terminated, trusted */
void rn_sb_char(struct rn_sb *sb, uint32_t code_point, enum rn_origin origin);
void rn_sb_str(struct rn_sb *sb, const struct rn_str *s);
void rn_sb_slice(struct rn_sb *sb, const struct rn_str *s, size_t from, size_t to);
void rn_sb_repeat(struct rn_sb *sb, const struct rn_str *s, size_t times);

/* The string; of an arena builder only. It ends the builder. */
const struct rn_str *rn_sb_done(struct rn_sb *sb);

/* ---- Strings ---- */

/* A string of a NUL-terminated text that lives as long as the arena; trusted. */
const struct rn_str *rn_str_of(struct rn_arena *arena, const char *text);

/* Bytes [from, to) of s; shares its memory. */
const struct rn_str *rn_str_slice(struct rn_arena *arena, const struct rn_str *s, size_t from, size_t to);

const struct rn_str *rn_str_concat(struct rn_arena *arena, const struct rn_str *a, const struct rn_str *b);

/* The same text, all of it data if any byte of it is. */
const struct rn_str *rn_str_smear(struct rn_arena *arena, const struct rn_str *s);

/* The same text with the Markup mark set or not. */
const struct rn_str *rn_str_marked(struct rn_arena *arena, const struct rn_str *s, bool markup);

enum rn_origin rn_str_origin_at(const struct rn_str *s, size_t at);
bool rn_str_any_data(const struct rn_str *s);
bool rn_str_equal(const struct rn_str *a, const struct rn_str *b);
bool rn_str_is(const struct rn_str *s, const char *text);

/* -1, 0, 1 by code points. */
int rn_str_compare(const struct rn_str *a, const struct rn_str *b);

/* The byte at which character number `chars` begins; n at the end. chars <= s->chars. */
size_t rn_str_offset(struct rn_arena *arena, const struct rn_str *s, size_t chars);

/* How many characters bytes [from, to) hold. */
size_t rn_str_chars(struct rn_arena *arena, const struct rn_str *s, size_t from, size_t to);

/* The first (last) place of needle wholly within [from, to), or RN_NOWHERE. An empty needle is found at once. */
size_t rn_str_find(struct rn_arena *arena, const struct rn_str *s, size_t from, size_t to, const struct rn_str *needle);
size_t rn_str_rfind(struct rn_arena *arena, const struct rn_str *s, size_t from, size_t to,
                    const struct rn_str *needle);

/* str.strip: characters of `set` (NULL: white space) off the left, the right, or both. */
const struct rn_str *rn_str_strip(struct rn_arena *arena, const struct rn_str *s, const struct rn_str *set, bool left,
                                  bool right);

/* str.replace; at most `most` times. */
const struct rn_str *rn_str_replace(struct rn_arena *arena, const struct rn_str *s, const struct rn_str *old,
                                    const struct rn_str *with, size_t most);

/* The end of the line that begins at `from`, as str.splitlines sees lines; *next gets where the next one begins. */
size_t rn_str_line_end(const struct rn_str *s, size_t from, size_t *next);

enum rn_case { RN_CASE_LOWER, RN_CASE_UPPER, RN_CASE_TITLE, RN_CASE_SWAP, RN_CASE_CAPITAL, RN_CASE_FOLD };

/* str.lower, upper, title, swapcase, capitalize, casefold: full mappings of Unicode, final sigma too. */
const struct rn_str *rn_str_case(struct rn_arena *arena, const struct rn_str *s, enum rn_case to);

/* One byte range of s in a case (LOWER or UPPER), as if it stood alone. */
void rn_sb_case(struct rn_sb *sb, const struct rn_str *s, size_t from, size_t to, enum rn_case to_case);

/* What Python's str.isspace says of a character, and \s. */
bool rn_char_is_space(uint32_t c);
bool rn_char_is_upper(uint32_t c);
bool rn_char_is_lower(uint32_t c);
bool rn_char_is_title(uint32_t c);
bool rn_char_is_printable(uint32_t c);

/* May it stand in an identifier of Python, or begin one? */
bool rn_char_in_name(uint32_t c, bool first);

#endif
