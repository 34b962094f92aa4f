/* A value as a model writes it, turned into JSON byte by byte.
 *
 *     JSON     {"a": [1, null]}             --> {"a": [1, null]}   its own bytes, checked
 *     PYTHON   {'a': (1, None,)}            --> {"a":[1,null]}     JSON is understood too
 *     GEMMA    {a:[1,<|"|>t<|"|>]}          --> {"a":[1,"t"]}      keys bare, strings between marks
 *
 * What comes out up to the end of the value is valid JSON, whatever comes in; depth is bounded. */
#ifndef RN_TEXT_ANSWER_LITERAL_H
#define RN_TEXT_ANSWER_LITERAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RN_LITERAL_DEPTH 256
#define RN_LITERAL_STEP_BYTES 80 /* what one step may write: a mark that was none, escaped, and a byte */
#define RN_JSON_ESCAPE_BYTES 6

enum rn_literal_dialect { RN_LITERAL_JSON, RN_LITERAL_PYTHON, RN_LITERAL_GEMMA };

enum rn_literal_result {
    RN_LITERAL_MORE,
    RN_LITERAL_DONE,        /* the byte was the last of the value */
    RN_LITERAL_DONE_BEFORE, /* the value ended before this byte, which is not part of it (numbers) */
    RN_LITERAL_BAD          /* no value of this dialect; the byte was not taken, nothing was written for it */
};

struct rn_literal {
    const char *mark; /* GEMMA: what opens and closes a string; begins with a byte that it has but once */
    const char *word; /* the JSON word being read */
    uint32_t code;    /* of the escape being read */
    uint16_t depth;
    uint8_t dialect, state;
    uint8_t quote;      /* what ends the string; 0: the mark */
    uint8_t at;         /* place in the word, the mark or the escape */
    uint8_t kind;       /* of the escape: 'x', 'u', 'U', '0' */
    uint8_t number;     /* state of the number */
    bool key;           /* the string, number or bare word is a key */
    bool may_close;     /* the container may end here */
    bool comma;         /* one is owed before the next item */
    bool low_surrogate; /* the next escape must be the second half of a pair */
    bool started;
    uint8_t closers[RN_LITERAL_DEPTH];
};

/* mark: for GEMMA, else NULL; borrowed. */
void rn_literal_init(struct rn_literal *literal, enum rn_literal_dialect dialect, const char *mark);

/* As if '{' had been taken (and written) already. */
void rn_literal_open_object(struct rn_literal *literal);

/* Takes one byte; writes up to RN_LITERAL_STEP_BYTES to out, *n_out of them. */
enum rn_literal_result rn_literal_step(struct rn_literal *literal, unsigned char byte, char *out, size_t *n_out);

/* The input ends: is what was taken a whole value? (A number has no end of its own.) */
bool rn_literal_whole(const struct rn_literal *literal);

/* The input ends: what is held of it (the quote that ends a string, the beginning of a mark), to out. */
size_t rn_literal_flush(struct rn_literal *literal, char *out);

/* Is text[n], without white space around it, one whole value of this dialect? */
bool rn_literal_is(enum rn_literal_dialect dialect, const char *text, size_t n);

/* A byte as it stands within a JSON string; 1 to RN_JSON_ESCAPE_BYTES bytes to out. */
size_t rn_json_escape(unsigned char byte, char *out);

#endif
