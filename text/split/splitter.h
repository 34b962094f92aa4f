/* Pre-tokenizers: where byte-level BPE cuts a text into words before it merges.
 *
 * Each is known by its name in tokenizer.ggml.pre and defined by regular expressions, which are
 * applied one after the other: every piece of the text left by one expression, match or gap between
 * matches, is cut by the next as if it were a text of its own. Here each expression is a function
 * written by hand that gives the end of the next piece; it is named beside its expression in
 * passes.c. Every function reads each character a bounded number of times.
 *
 * The expressions are those of the models' own tokenizer.json (read as Unicode expressions, with "\s"
 * the property White_Space), and so what the models were trained with; where llama.cpp writes one of
 * them in another way, docs/TOKENIZERS.md says how the two differ. tests/text/test_splitter.c holds
 * them against PCRE2. */
#ifndef RN_TEXT_SPLIT_SPLITTER_H
#define RN_TEXT_SPLIT_SPLITTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RN_SPLIT_MAX_PASSES 6

enum rn_pass_flag {
    RN_PASS_SPACE = 1,       /* set passes: one white space may precede */
    RN_PASS_BLANK = 2,       /* set passes: one U+0020 may precede */
    RN_PASS_MARKS = 4,       /* words: marks are letters */
    RN_PASS_NO_SHORT = 8,    /* words: no English short forms ('s, 're) */
    RN_PASS_NO_TAIL = 16,    /* words, DeepSeek's: signs without the newlines after them */
    RN_PASS_SLASHES = 32,    /* cased words: slashes as well as newlines after signs */
    RN_PASS_CASCADE = 64,    /* words: white space in parts of 512, 256, ... */
    RN_PASS_HAN_APART = 128, /* cased words: Han characters are words of their own */
    RN_PASS_JOINERS = 256    /* words: marks, U+200C and U+200D are letters, but go on with signs */
};

struct rn_pass {
    /* End of the piece that begins at text + at; text[from..end), from <= at < end, is what the pass
     * was given to cut, and is well-formed UTF-8. */
    size_t (*next)(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end);
    uint8_t (*set)(uint32_t code_point); /* set passes: the number of its set, 0 for none */
    uint32_t most;                       /* characters of a match at most; digits in a row for words */
    uint32_t flags;                      /* enum rn_pass_flag */
};

struct rn_pre {
    const char *names; /* separated by spaces */
    struct rn_pass passes[RN_SPLIT_MAX_PASSES];
    uint32_t n_passes;
    uint32_t flags; /* enum rn_pre_flag */
};

enum rn_pre_flag {
    RN_PRE_WHOLE_WORDS = 1,   /* a word that is a token is that token, whatever the merges say */
    RN_PRE_ADD_BOS = 2,       /* unless the file says otherwise */
    RN_PRE_TEXT = 4,          /* merges characters, not bytes in GPT-2's alphabet; bytes are <0xNN> */
    RN_PRE_BLOCKS = 8,        /* with RN_PRE_TEXT: U+2581 stands for a space in the tokens */
    RN_PRE_NEWLINES = 16,     /* with RN_PRE_TEXT: a run of newlines that is a token is that token */
    RN_PRE_MUST_ADD_BOS = 32, /* whatever the file says */
    RN_PRE_ADD_SEP = 64       /* a separator between two texts, unless the file says otherwise */
};

/* By its name in tokenizer.ggml.pre; NULL: not known. */
const struct rn_pre *rn_pre_find(const char *name, size_t n);

/* The index'th of the table, for tests; NULL beyond its end. */
const struct rn_pre *rn_pre_at(uint32_t index);

struct rn_split {
    const struct rn_pre *pre;
    const char *text;
    size_t from[RN_SPLIT_MAX_PASSES]; /* the piece that each pass was given begins here, ... */
    size_t at[RN_SPLIT_MAX_PASSES];   /* ... the pass goes on here ... */
    size_t end[RN_SPLIT_MAX_PASSES];  /* ... and the piece ends here */
};

/* text[n]: well-formed UTF-8, borrowed. */
void rn_split_init(struct rn_split *split, const struct rn_pre *pre, const char *text, size_t n);

/* The next word, [*begin, *end) of the text, never empty; false at the end. The words are the text. */
bool rn_split_next(struct rn_split *split, size_t *begin, size_t *end);

#endif
