/* Pre-tokenizers: where byte-level BPE cuts a text into words before it merges.
 *
 * Each is known by its name in tokenizer.ggml.pre and defined by regular expressions, which are
 * applied one after the other: every piece of the text left by one expression, match or gap between
 * matches, is cut by the next as if it were a text of its own. Here each expression is a function
 * written by hand that gives the end of the next piece; it is named beside its expression in
 * splitter.c. Every function reads each character a bounded number of times.
 *
 * The expressions are those that llama.cpp applies (a fact of the file format, with "\s" the
 * property White_Space); tests/text/test_splitter.c holds them against PCRE2. */
#ifndef RN_TEXT_SPLITTER_H
#define RN_TEXT_SPLITTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RN_SPLIT_MAX_PASSES 6

struct rn_pass {
    /* End of the piece that begins at text + at, at < end; text[end] is well-formed UTF-8. */
    size_t (*next)(const struct rn_pass *pass, const char *text, size_t at, size_t end);
    bool (*in)(uint32_t code_point); /* the set of a set pass */
    uint32_t most;                   /* characters of a match at most; digits in a row for next_words */
    bool flag;                       /* a set pass: one white space may precede; next_words: marks are letters */
};

struct rn_pre {
    const char *names; /* separated by spaces */
    struct rn_pass passes[RN_SPLIT_MAX_PASSES];
    uint32_t n_passes;
    bool whole_words; /* a word that is a token is that token, whatever the merges say */
    bool add_bos;     /* unless the file says otherwise */
};

/* By its name in tokenizer.ggml.pre; NULL: not known. */
const struct rn_pre *rn_pre_find(const char *name, size_t n);

/* The index'th of the table, for tests; NULL beyond its end. */
const struct rn_pre *rn_pre_at(uint32_t index);

struct rn_split {
    const struct rn_pre *pre;
    const char *text;
    size_t at[RN_SPLIT_MAX_PASSES];  /* where each pass goes on ... */
    size_t end[RN_SPLIT_MAX_PASSES]; /* ... in the piece it was given */
};

/* text[n]: well-formed UTF-8, borrowed. */
void rn_split_init(struct rn_split *split, const struct rn_pre *pre, const char *text, size_t n);

/* The next word, [*begin, *end) of the text, never empty; false at the end. The words are the text. */
bool rn_split_next(struct rn_split *split, size_t *begin, size_t *end);

#endif
