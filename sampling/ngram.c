/* Drafts from the sequence's own past: see ngram.h. */
#include "sampling/ngram.h"

#include <stdbool.h>
#include <string.h>

#define LEAST 2u /* tokens of an n-gram; shorter ones match by chance */
#define MOST 4u
#define LEAST_SLOTS 1024u
#define MOST_SLOTS 16384u /* 64 KiB: an index of the last five thousand tokens is hardly worn by collisions */

struct ngram {
    struct rn_proposer proposer; /* first */
    struct rn_heap *heap;
    uint32_t n_indexed; /* tokens whose n-grams are in the table: those that end before it */
    uint32_t mask;
    uint32_t slots[];   /* [mask + 1]; 0: empty */
};

static uint32_t *slot_of(struct ngram *ngram, const int32_t *tokens, uint32_t n)
{
    uint64_t hash = n;

    for (uint32_t i = 0; i < n; i++)
        hash = (hash ^ (uint32_t)tokens[i]) * 0x9e3779b97f4a7c15ull;
    return &ngram->slots[(hash >> 32) & ngram->mask];
}

/* The n-grams that end in front of a token that is known. */
static void index_tokens(struct ngram *ngram, const int32_t *tokens, uint32_t n_tokens)
{
    for (uint32_t end = ngram->n_indexed; end + 1 <= n_tokens; end++)
        for (uint32_t n = LEAST; n <= MOST && n <= end; n++)
            *slot_of(ngram, tokens + end - n, n) = end;
    ngram->n_indexed = n_tokens;
}

/* Where the sequence went on after its last n tokens; 0: it never did. */
static uint32_t find(struct ngram *ngram, const int32_t *tokens, uint32_t n_tokens, uint32_t n)
{
    uint32_t at = n_tokens > n ? *slot_of(ngram, tokens + n_tokens - n, n) : 0;
    bool same = at >= n && memcmp(tokens + at - n, tokens + n_tokens - n, n * sizeof tokens[0]) == 0;

    return same ? at : 0;
}

static uint32_t propose(struct rn_proposer *proposer, const int32_t *tokens, uint32_t n_tokens, uint32_t most,
                        int32_t *drafts)
{
    struct ngram *ngram = (struct ngram *)proposer;
    uint32_t at = 0;

    index_tokens(ngram, tokens, n_tokens);
    for (uint32_t n = MOST; n >= LEAST && at == 0; n--)
        at = find(ngram, tokens, n_tokens, n);
    if (at == 0)
        return 0;
    for (uint32_t i = 0; i < most; i++) /* a match near the end repeats itself, as in LZ77 */
        drafts[i] = at + i < n_tokens ? tokens[at + i] : drafts[at + i - n_tokens];
    return most;
}

static void free_ngram(struct rn_proposer *proposer)
{
    rn_free(((struct ngram *)proposer)->heap, proposer);
}

static const struct rn_proposer_ops ngram_ops = {.propose = propose, .free = free_ngram};

struct rn_proposer *rn_ngram_new(struct rn_heap *heap, uint32_t max_tokens)
{
    uint32_t n_slots = LEAST_SLOTS;
    struct ngram *ngram;

    while (n_slots < MOST_SLOTS && n_slots / 4 < max_tokens)
        n_slots *= 2;
    ngram = rn_calloc(heap, 1, sizeof *ngram + n_slots * sizeof ngram->slots[0]);
    if (ngram == NULL)
        return NULL;
    ngram->proposer.ops = &ngram_ops;
    ngram->heap = heap;
    ngram->mask = n_slots - 1;
    return &ngram->proposer;
}
