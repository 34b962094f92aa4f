/* A tenant's answers: see ngram_store.h. */
#include "sampling/ngram_store.h"

#include <stdbool.h>
#include <string.h>

#define RING 16384u
#define SLOTS 32768u

struct rn_ngram_store {
    struct rn_heap *heap;
    uint32_t end; /* places count on for ever; place p lies at p % RING. 0 is none */
    int32_t ring[RING];
    uint32_t slots[SLOTS];
};

struct rn_ngram_store *rn_ngram_store_new(struct rn_heap *heap)
{
    struct rn_ngram_store *store = rn_alloc(heap, 1, sizeof *store);

    if (store == NULL)
        return NULL;
    store->heap = heap;
    rn_ngram_store_clear(store);
    return store;
}

void rn_ngram_store_free(struct rn_ngram_store *store)
{
    if (store != NULL)
        rn_free(store->heap, store);
}

void rn_ngram_store_clear(struct rn_ngram_store *store)
{
    store->end = 1;
    memset(store->slots, 0, sizeof store->slots);
    memset(store->ring, 0xff, sizeof store->ring);
}

static void put(struct rn_ngram_store *store, int32_t token)
{
    store->ring[store->end++ % RING] = token;
}

void rn_ngram_store_add(struct rn_ngram_store *store, const int32_t *tokens, uint32_t n)
{
    uint32_t first = n < RING / 2 ? 0 : n - RING / 2;

    if (store->end > UINT32_MAX - RING) /* places would begin again: once in four thousand million tokens */
        rn_ngram_store_clear(store);
    for (uint32_t i = first; i < n; i++) {
        for (uint32_t k = RN_NGRAM_LEAST; k <= RN_NGRAM_MOST && k <= i - first; k++)
            store->slots[rn_ngram_hash(tokens + i - k, k) % SLOTS] = store->end;
        put(store, tokens[i]);
    }
    put(store, -1);
}

/* Do the n tokens in front of this place stand there still, and are they these? */
static bool stands(const struct rn_ngram_store *store, uint32_t place, const int32_t *tokens, uint32_t n)
{
    uint32_t i = 0;

    if (place <= n || store->end - (place - n) > RING)
        return false;
    while (i < n && store->ring[(place - n + i) % RING] == tokens[i])
        i++;
    return i == n;
}

uint32_t rn_ngram_store_propose(const struct rn_ngram_store *store, const int32_t *tokens, uint32_t n_tokens,
                                uint32_t least, uint32_t most, int32_t *drafts)
{
    uint32_t n = n_tokens < RN_NGRAM_MOST ? n_tokens : RN_NGRAM_MOST, place = 0, count = 0;

    least = least > RN_NGRAM_LEAST ? least : RN_NGRAM_LEAST;
    for (; n >= least && count == 0; n--) {
        place = store->slots[rn_ngram_hash(tokens + n_tokens - n, n) % SLOTS];
        if (!stands(store, place, tokens + n_tokens - n, n))
            continue;
        while (count < most && place != store->end && store->ring[place % RING] >= 0)
            drafts[count++] = store->ring[place++ % RING];
    }
    return count;
}
