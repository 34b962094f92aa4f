/* Stores of answers by tenant: see share.h. */
#include "actors/draft/share.h"

#include "sampling/ngram.h"
#include "base/check.h"

#define CONTEXT 8u /* tokens of the prompt that an answer is stored with: its first ones then follow something */

void rn_draft_share_init(struct rn_draft_share *share, struct rn_heap *heap)
{
    *share = (struct rn_draft_share){.heap = heap};
}

void rn_draft_share_fini(struct rn_draft_share *share)
{
    for (uint32_t i = 0; i < RN_DRAFT_SHARES; i++)
        rn_ngram_store_free(share->places[i].store);
}

/* Its own place, or the one that was longest without a request; NULL: all are in use. */
static struct rn_draft_place *find(struct rn_draft_share *share, const struct rn_request *request)
{
    struct rn_draft_place *oldest = NULL;

    for (uint32_t i = 0; i < RN_DRAFT_SHARES; i++) {
        struct rn_draft_place *place = &share->places[i];

        if (place->used > 0 && place->tenant == request->tenant && place->salt == request->cache_salt)
            return place;
        if (place->n_users == 0 && (oldest == NULL || place->used < oldest->used))
            oldest = place;
    }
    if (oldest == NULL)
        return NULL;
    if (oldest->store == NULL)
        oldest->store = rn_ngram_store_new(share->heap);
    else
        rn_ngram_store_clear(oldest->store);
    RN_ASSERT(oldest->n_users == 0);
    oldest->tenant = request->tenant;
    oldest->salt = request->cache_salt;
    return oldest->store != NULL ? oldest : NULL;
}

uint32_t rn_draft_share_begin(struct rn_draft_share *share, const struct rn_request *request,
                              struct rn_proposer *proposer)
{
    struct rn_draft_place *place = request->draft_share && proposer != NULL ? find(share, request) : NULL;

    if (place == NULL)
        return 0;
    RN_ASSERT(place->store != NULL);
    place->used = ++share->clock;
    place->n_users++;
    rn_ngram_share(proposer, place->store);
    return (uint32_t)(place - share->places) + 1;
}

/* Where what is stored of the request begins: a little before its answer, or what is left of that behind the head.
 * *answer: its answer's first token that is left. */
static uint32_t first_stored(const struct rn_request *request, uint32_t *answer)
{
    uint32_t head = request->n_shifts > 0 ? rn_request_head(request) : 0;
    uint64_t gone = request->n_dropped;

    *answer = request->n_prompt > gone + head ? request->n_prompt - (uint32_t)gone : head;
    return *answer > head + CONTEXT ? *answer - CONTEXT : head;
}

void rn_draft_share_end(struct rn_draft_share *share, uint32_t place, struct rn_proposer *proposer,
                        const struct rn_request *request)
{
    if (place == 0)
        return;
    RN_ASSERT(place <= RN_DRAFT_SHARES && share->places[place - 1].n_users > 0);
    rn_ngram_share(proposer, NULL);
    share->places[place - 1].n_users--;
    if (request != NULL && !request->suspect) {
        uint32_t answer, first = first_stored(request, &answer);

        if (request->n_tokens > answer)
            rn_ngram_store_add(share->places[place - 1].store, request->tokens + first, request->n_tokens - first);
    }
}

bool rn_draft_share_check(const struct rn_draft_share *share)
{
    for (uint32_t i = 0; i < RN_DRAFT_SHARES; i++) {
        const struct rn_draft_place *place = &share->places[i];

        if (place->used > share->clock || (place->n_users > 0 && (place->store == NULL || place->used == 0)))
            return false;
        for (uint32_t k = 0; k < i; k++)
            if (place->used > 0 && share->places[k].used > 0 && place->tenant == share->places[k].tenant &&
                place->salt == share->places[k].salt)
                return false;
    }
    return true;
}
