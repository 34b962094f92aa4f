/* "hybriddna" in GGUF: byte-level BPE, but what stands between <dna> and </dna> is cut into pieces of six bases, in
 * capitals, the last one filled up with A. Such a piece is stored with U+E000 behind it, so that it is not taken for
 * the word of the same letters; one that is not a token is <oov>. */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "text/merge.h"
#include "text/vocab.h"

#define OPEN "<dna>"
#define CLOSE "</dna>"
#define BASES 6

static bool push(struct rn_tokens *tokens, int32_t id)
{
    if (!rn_tokens_reserve(tokens, 1))
        return false;
    tokens->ids[tokens->n++] = id;
    return true;
}

/* The first `what` in text[at..n), or n. */
static size_t find(const char *text, size_t at, size_t n, const char *what)
{
    const char *found = at < n ? memmem(text + at, n - at, what, strlen(what)) : NULL;

    return found != NULL ? (size_t)(found - text) : n;
}

static bool push_bases(const struct rn_vocab *vocab, const char *text, size_t n, struct rn_tokens *tokens)
{
    char piece[BASES + 3] = {0, 0, 0, 0, 0, 0, '\xee', '\x80', '\x80'};
    size_t at, i;

    for (at = 0; at < n; at += BASES) {
        int32_t id;

        for (i = 0; i < BASES; i++) {
            char c = at + i < n ? text[at + i] : 'A';

            piece[i] = c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
        }
        id = rn_vocab_find(vocab, piece, sizeof piece);
        if (!push(tokens, id >= 0 ? id : vocab->dna_other))
            return false;
    }
    return true;
}

bool rn_dna_encode(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                   bool after_special, struct rn_tokens *tokens)
{
    size_t at = 0;

    while (at < n) {
        size_t open = vocab->dna_other >= 0 ? find(text, at, n, OPEN) : n;
        size_t from, to;

        if (open > at && !rn_bpe_encode(vocab, scratch, text + at, open - at, after_special, tokens))
            return false;
        if (open == n)
            return true;
        from = open + strlen(OPEN);
        to = find(text, from, n, CLOSE);
        if (!push(tokens, vocab->dna_open) || !push_bases(vocab, text + from, to - from, tokens))
            return false;
        if (to == n)
            return true;
        if (!push(tokens, vocab->dna_close))
            return false;
        at = to + strlen(CLOSE);
    }
    return true;
}
