/* A query and a text on the way to the prompt of a reranker.
 *
 *     submit (host's thread)      joins both with the file's template, and remembers what came from whom
 *     tokenizer actor             tokenizes: control tokens from the template alone
 *
 * Without a template the two are tokenized apart, and the vocabulary's marks stand around them:
 *     [BOS] query [EOS] text [EOS]         [CLS] query [SEP] text [SEP]         <s> query </s></s> text </s> */
#ifndef RN_ACTORS_PROMPT_PAIR_H
#define RN_ACTORS_PROMPT_PAIR_H

#include <stdbool.h>

#include "base/alloc.h"
#include "base/status.h"
#include "model/gguf/gguf.h"
#include "text/range.h"
#include "text/vocab.h"

#define RN_PAIR_TEMPLATE "tokenizer.chat_template.rerank"

struct rn_pair {
    struct rn_heap *heap;
    char *text; /* [bytes] */
    size_t bytes;
    bool joined;           /* by a template; else text is the query, then the text */
    struct rn_range *data; /* joined: [n_data]: what is not the template's */
    size_t n_data;
    size_t query_bytes; /* not joined */
};

/* tmpl: n 0: there is none. most: bytes that may become of it. FORMAT: the template has no place for one of the two;
 * CONTEXT: more than `most`; INVALID: not UTF-8; NO_MEMORY. */
runnel_status rn_pair_new(struct rn_heap *heap, struct rn_view tmpl, struct rn_view query, struct rn_view text,
                          uint64_t most, struct rn_pair **out, runnel_error *error);
void rn_pair_free(struct rn_pair *pair); /* NULL is allowed */

/* *tokens is taken from the pair's heap. Errors of rn_tokenize_until. */
runnel_status rn_pair_tokenize(const struct rn_pair *pair, const struct rn_vocab *vocab,
                               const struct rn_interrupt *stop, int32_t **tokens, size_t *count, runnel_error *error);

#endif
