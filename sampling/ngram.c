/* Drafts from the sequence's own past: see ngram.h. */
#include "sampling/ngram.h"

#include <stdbool.h>
#include <string.h>

#define LEAST_SLOTS 1024u
#define MOST_SLOTS 16384u /* 64 KiB: an index of the last three thousand tokens is hardly worn by collisions */

struct ngram {
    struct rn_proposer proposer; /* first */
    struct rn_heap *heap;
    const struct rn_ngram_store *store; /* or NULL */
    uint32_t n_indexed;                 /* tokens whose n-grams are in the table: those that end before it */
    uint32_t mask;
    uint32_t slots[]; /* [mask + 1]; 0: empty */
};

static uint32_t *slot_of(struct ngram *ngram, const int32_t *tokens, uint32_t n)
{
    return &ngram->slots[rn_ngram_hash(tokens, n) & ngram->mask];
}

/* The n-grams that end in front of a token that is known. */
static void index_tokens(struct ngram *ngram, const int32_t *tokens, uint32_t n_tokens)
{
    for (uint32_t end = ngram->n_indexed; end + 1 <= n_tokens; end++)
        for (uint32_t n = RN_NGRAM_LEAST; n <= RN_NGRAM_MOST && n <= end; n++)
            *slot_of(ngram, tokens + end - n, n) = end;
    ngram->n_indexed = n_tokens;
}

/* Where the sequence went on after its last n tokens; 0: it never did. A place beyond its end is of a sequence that was
 * longer. */
static uint32_t find(struct ngram *ngram, const int32_t *tokens, uint32_t n_tokens, uint32_t n)
{
    uint32_t at = n_tokens > n ? *slot_of(ngram, tokens + n_tokens - n, n) : 0;
    bool same = at >= n && at < n_tokens && memcmp(tokens + at - n, tokens + n_tokens - n, n * sizeof tokens[0]) == 0;

    return same ? at : 0;
}

static uint32_t propose(struct rn_proposer *proposer, const int32_t *tokens, uint32_t n_tokens, uint32_t most,
                        int32_t *drafts)
{
    struct ngram *ngram = (struct ngram *)proposer;
    uint32_t at = 0, n = RN_NGRAM_MOST + 1, n_shared = 0;

    index_tokens(ngram, tokens, n_tokens);
    while (at == 0 && n > RN_NGRAM_LEAST)
        at = find(ngram, tokens, n_tokens, --n);
    if (ngram->store != NULL)
        n_shared = rn_ngram_store_propose(ngram->store, tokens, n_tokens, at == 0 ? 0 : n + 1, most, drafts);
    if (at == 0 || n_shared > 0)
        return n_shared;
    for (uint32_t i = 0; i < most; i++) /* a match near the end repeats itself, as in LZ77 */
        drafts[i] = at + i < n_tokens ? tokens[at + i] : drafts[at + i - n_tokens];
    return most;
}

static void restart(struct rn_proposer *proposer)
{
    struct ngram *ngram = (struct ngram *)proposer;

    memset(ngram->slots, 0, (ngram->mask + 1) * sizeof ngram->slots[0]);
    ngram->n_indexed = 0;
}

static void free_ngram(struct rn_proposer *proposer)
{
    rn_free(((struct ngram *)proposer)->heap, proposer);
}

static const struct rn_proposer_ops ngram_ops = {.propose = propose, .restart = restart, .free = free_ngram};

void rn_ngram_share(struct rn_proposer *proposer, const struct rn_ngram_store *store)
{
    if (proposer->ops == &ngram_ops)
        ((struct ngram *)proposer)->store = store;
}

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
