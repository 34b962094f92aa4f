/* What the front ends share: a place in a text, the characters there, and expressions that wait to become one. */
#ifndef RN_SAMPLING_GRAMMAR_READER_H
#define RN_SAMPLING_GRAMMAR_READER_H

#include "sampling/grammar/grammar.h"

struct rn_reader {
    struct rn_grammar *g;
    const char *text; /* [n], UTF-8 */
    size_t n, at;
    size_t source_at; /* of text in the grammar's source */
    uint32_t depth;   /* of what is being read */
    rn_expr *parts;   /* expressions that wait */
    uint32_t n_parts, room_parts;
};

void rn_reader_fini(struct rn_reader *reader);

/* An error at the reader's place. */
#define rn_reader_fail(reader, status, ...)                             \
    do {                                                                \
        rn_grammar_at((reader)->g, (reader)->source_at + (reader)->at); \
        rn_grammar_fail((reader)->g, status, __VA_ARGS__);              \
    } while (0)

/* Nothing more is to be read: the end of the text, or an error. */
static inline bool rn_reader_done(const struct rn_reader *r)
{
    return r->at >= r->n || rn_grammar_failed(r->g);
}

/* The byte `ahead` of the place; 0 behind the end. */
static inline char rn_reader_peek(const struct rn_reader *r, size_t ahead)
{
    return ahead < r->n - r->at ? r->text[r->at + ahead] : '\0';
}

/* Takes these bytes if they come next. */
bool rn_reader_take(struct rn_reader *r, const char *bytes);

/* Takes one character; an error at the end. */
uint32_t rn_reader_character(struct rn_reader *r);

/* Takes one character of a text in quotes or of a class, with its escape: one of the characters of `escapes` behind a
 * backslash. n t r f v are control characters, x u U numbers of 2, 4, 8 hexadecimal digits; the others stand for
 * themselves. */
uint32_t rn_reader_escaped(struct rn_reader *r, const char *escapes);

/* Passes spaces, tabs and comments from # on, with `slashes` from // on too; with `lines` ends of lines. */
void rn_reader_skip_space(struct rn_reader *r, bool lines, bool slashes);
/* Does the text go on with another alternative, perhaps on a later line? Then what stands before its bar is passed. */
bool rn_reader_goes_on(struct rn_reader *r, bool slashes);
/* Nothing but spaces and comments may be left of the line. */
void rn_reader_end_line(struct rn_reader *r, bool slashes);

/* Takes n hexadecimal digits; an error where there are fewer. */
uint32_t rn_reader_hex(struct rn_reader *r, uint32_t n);

/* Takes decimal digits; false: there are none. More than 10^9 is an error. */
bool rn_reader_number(struct rn_reader *r, uint32_t *number);

/* Puts an expression on the list of those that wait. */
void rn_reader_push(struct rn_reader *r, rn_expr e);

/* Those from `from` on become one, and leave the list. */
rn_expr rn_reader_sequence(struct rn_reader *r, uint32_t from);
rn_expr rn_reader_alternatives(struct rn_reader *r, uint32_t from);

/* One level deeper; false: too deep, which is an error. Each success has its rn_reader_leave. */
bool rn_reader_enter(struct rn_reader *r);
void rn_reader_leave(struct rn_reader *r);

/* <[17]> or <name>, which comes next: a token of the vocabulary. */
rn_expr rn_reader_token(struct rn_reader *r, bool but);

/* The character with this code point, as an expression; surrogates are an error. */
rn_expr rn_reader_code_point(struct rn_reader *r, uint32_t code_point);

#endif
