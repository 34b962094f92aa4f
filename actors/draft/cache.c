/* Pasts of drafting streams: see draft/cache.h. */
#include "actors/draft/cache.h"

#include <string.h>

#include "actors/context.h"
#include "actors/draft/branch.h"
#include "actors/draft/features.h"
#include "actors/draft/wishes.h"
#include "base/check.h"
#include "base/min.h"

#define AGAIN 0.25f   /* of what may be spent on a past, on what was missed at rest: there may be many of those */
#define TAIL 32u      /* tokens that are read where all are too dear: a pass of guesses may make up for so many ... */
#define LEAST_TAIL 8u /* ... and where they are dear too no fewer than this, hardly worse: docs/RATIONALE.md */

/* ---- Streams that have ended ---- */

static void forget(struct rn_draft_actor *draft, struct rn_draft_cache *past)
{
    struct rn_heap *heap = draft->context->heap;

    RN_ASSERT(past->n_tokens > 0 && past->used <= draft->clock);
    rn_block_pool_unref(&draft->pool, past->blocks, past->n_blocks);
    rn_free(heap, past->tokens);
    rn_free(heap, past->blocks);
    *past = (struct rn_draft_cache){0};
}

/* The one of use longest ago; NULL: there is none. */
static struct rn_draft_cache *oldest(struct rn_draft_actor *draft)
{
    struct rn_draft_cache *found = NULL;

    for (uint32_t i = 0; i < RN_DRAFT_CACHES; i++)
        if (draft->pasts[i].n_tokens > 0 && (found == NULL || draft->pasts[i].used < found->used))
            found = &draft->pasts[i];
    return found;
}

bool rn_draft_cache_make_room(struct rn_draft_actor *draft)
{
    struct rn_draft_cache *past;

    while (draft->pool.n_free == 0 && (past = oldest(draft)) != NULL)
        forget(draft, past);
    return draft->pool.n_free > 0;
}

bool rn_draft_cache_check(const struct rn_draft_actor *draft)
{
    for (uint32_t i = 0; i < RN_DRAFT_CACHES; i++) {
        const struct rn_draft_cache *past = &draft->pasts[i];

        if (past->n_tokens == 0)
            continue;
        if (past->n_tokens != past->n_blocks * draft->drafter->limits.block_tokens || past->used > draft->clock)
            return false;
        for (uint32_t k = 0; k < past->n_blocks; k++)
            if (rn_block_pool_references(&draft->pool, past->blocks[k]) == 0)
                return false;
    }
    return true;
}

void rn_draft_cache_fini(struct rn_draft_actor *draft)
{
    for (uint32_t i = 0; i < RN_DRAFT_CACHES; i++)
        if (draft->pasts[i].n_tokens > 0)
            forget(draft, &draft->pasts[i]);
}

/* The place of a turn before, all of which the draft stream has too, or of one that says more already; else a free
 * one. */
static struct rn_draft_cache *place_for(struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream,
                                        uint32_t n)
{
    struct rn_draft_cache *place = NULL;

    for (uint32_t i = 0; i < RN_DRAFT_CACHES; i++) {
        struct rn_draft_cache *past = &draft->pasts[i];

        if (past->n_tokens == 0)
            place = place == NULL ? past : place;
        else if (past->salt == draft_stream->salt && past->base == draft_stream->base &&
                 memcmp(past->tokens, draft_stream->tokens,
                        rn_min_u32(n, past->n_tokens) * sizeof draft_stream->tokens[0]) == 0)
            return past;
    }
    return place != NULL ? place : oldest(draft);
}

/* Tokens whose rows nobody writes again, in whole blocks: the last known one's may be computed once more, and a pass in
 * flight writes its own. */
static uint32_t whole(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream)
{
    uint32_t per_block = draft->drafter->limits.block_tokens,
             n = rn_min_u32(draft_stream->layers[0].n_done, draft_stream->n_known);

    n = n > 0 && n == draft_stream->n_known ? n - 1 : n;
    n = draft_stream->in_pass ? rn_min_u32(n, draft_stream->from) : n;
    return n / per_block * per_block;
}

void rn_draft_cache_keep(struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream)
{
    struct rn_heap *heap = draft->context->heap;
    uint32_t n = whole(draft, draft_stream), n_blocks = n / draft->drafter->limits.block_tokens;
    struct rn_draft_cache *place,
        past = {.salt = draft_stream->salt, .base = draft_stream->base, .n_tokens = n, .n_blocks = n_blocks};

    if (draft->drafter->kind != RN_DRAFTER_TOKENS || n == 0)
        return;
    RN_ASSERT(!rn_draft_in_pass(draft_stream) && n <= draft_stream->n_known);
    place = place_for(draft, draft_stream, n);
    if (place->n_tokens >= n && place->salt == draft_stream->salt && place->base == draft_stream->base &&
        memcmp(place->tokens, draft_stream->tokens, n * sizeof draft_stream->tokens[0]) == 0) {
        place->used = ++draft->clock;
        return;
    }
    past.tokens = rn_alloc(heap, n, sizeof past.tokens[0]);
    past.blocks = rn_alloc(heap, n_blocks, sizeof past.blocks[0]);
    if (past.tokens == NULL || past.blocks == NULL) {
        rn_free(heap, past.tokens);
        rn_free(heap, past.blocks);
        return;
    }
    if (place->n_tokens > 0)
        forget(draft, place);
    RN_ASSERT(n_blocks <= draft_stream->n_blocks && place->n_tokens == 0);
    memcpy(past.tokens, draft_stream->tokens, n * sizeof past.tokens[0]);
    memcpy(past.blocks, draft_stream->blocks, n_blocks * sizeof past.blocks[0]);
    rn_block_pool_ref(&draft->pool, past.blocks, n_blocks);
    past.used = ++draft->clock;
    *place = past;
}

/* ---- Streams that begin ---- */

/* What somebody has: n tokens from base on, in whole blocks. */
struct offer {
    uint32_t base, n;
    const int32_t *tokens;
    const uint32_t *blocks;
    uint64_t *used; /* NULL: a draft stream's */
};

/* How much of it is the draft stream's own text, up to where it has still a token to compute. */
static uint32_t common(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream,
                       const struct offer *offer)
{
    uint32_t per_block = draft->drafter->limits.block_tokens, n = 0, most;

    if (offer->base < draft_stream->base || offer->base - draft_stream->base + 1 >= draft_stream->n_known)
        return 0;
    most = rn_min_u32(offer->n, draft_stream->n_known - 1 - (offer->base - draft_stream->base));
    while (n < most && offer->tokens[n] == draft_stream->tokens[offer->base - draft_stream->base + n])
        n++;
    return n / per_block * per_block;
}

/* Looks at one more offer: the best is the one that leaves least to read, of those the one that knows most. */
static void look_at(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream, struct offer offer,
                    struct offer *best)
{
    uint32_t n = common(draft, draft_stream, &offer), end = offer.base + n, best_end = best->base + best->n;

    if (n == 0 || end < best_end || (end == best_end && offer.base >= best->base))
        return;
    *best = offer;
    best->n = n;
}

static struct offer best_offer(struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream)
{
    struct offer best = {0};

    for (uint32_t i = 0; i < RN_DRAFT_CACHES; i++) {
        struct rn_draft_cache *past = &draft->pasts[i];

        if (past->n_tokens > 0 && past->salt == draft_stream->salt)
            look_at(draft, draft_stream,
                    (struct offer){past->base, past->n_tokens, past->tokens, past->blocks, &past->used}, &best);
    }
    for (uint32_t i = 0; i < draft->n_draft_streams; i++) {
        const struct rn_draft_stream *other = &draft->draft_streams[i];

        if (other != draft_stream && other->generation != 0 && other->state != RN_DRAFTS_OFF &&
            other->salt == draft_stream->salt)
            look_at(draft, draft_stream,
                    (struct offer){other->base, whole(draft, other), other->tokens, other->blocks, NULL}, &best);
    }
    return best;
}

/* Its positions begin with what is token x now, and nothing of it is computed. */
static void begin_at(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream, uint32_t x)
{
    RN_ASSERT(x <= draft_stream->n_known && !rn_draft_in_pass(draft_stream));
    rn_branch_drop(draft, draft_stream);
    rn_block_pool_unref(&draft->pool, draft_stream->blocks, draft_stream->n_blocks);
    draft_stream->n_blocks = 0;
    memmove(draft_stream->tokens, draft_stream->tokens + x,
            (draft_stream->n_known - x) * sizeof draft_stream->tokens[0]);
    draft_stream->base += x;
    draft_stream->n_known -= x;
    draft_stream->n_tokens = draft_stream->n_known;
    draft_stream->changed = true;
    rn_draft_stream_reset(draft_stream);
    RN_ASSERT(draft_stream->branch.at == 0 && draft_stream->branch.n_blocks == 0);
}

static void take_over(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream)
{
    struct offer offer = best_offer(draft, draft_stream);

    if (offer.n == 0)
        return;
    begin_at(draft, draft_stream, offer.base - draft_stream->base);
    draft_stream->n_blocks = offer.n / draft->drafter->limits.block_tokens;
    RN_ASSERT(draft_stream->base == offer.base && offer.n < draft_stream->n_known); /* one token is left to compute */
    draft_stream->layers[0].n_done = offer.n;
    memcpy(draft_stream->blocks, offer.blocks, draft_stream->n_blocks * sizeof draft_stream->blocks[0]);
    rn_block_pool_ref(&draft->pool, draft_stream->blocks, draft_stream->n_blocks);
    if (offer.used != NULL)
        *offer.used = ++draft->clock;
}

/* ---- How much is read ---- */

/* What was missed at rest is read in a pass for that alone, at each try; the past of a stream that begins once. */
static float price_us(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream, uint32_t n_rows)
{
    return (draft_stream->caught_up ? (float)draft->guess_us : 0.0f) + draft->row_us * (float)n_rows;
}

void rn_draft_cache_note(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream)
{
    draft_stream->read_us += price_us(draft, draft_stream, draft_stream->n_past);
    RN_ASSERT(draft_stream->read_us >= 0 && draft_stream->n_past > 0);
    draft_stream->n_past = 0;
    draft_stream->changed = true;
}

static uint32_t tail(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream)
{
    float n = draft->row_us > 0 ? draft_stream->may_read_us / draft->row_us : (float)TAIL;

    return n > (float)TAIL ? TAIL : n < (float)LEAST_TAIL ? LEAST_TAIL : (uint32_t)n;
}

void rn_draft_cache_settle(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream)
{
    uint32_t n;

    if (draft->drafter->kind != RN_DRAFTER_TOKENS || draft_stream->more || draft_stream->n_known <= TAIL)
        return;
    if (!draft_stream->looked)
        take_over(draft, draft_stream);
    draft_stream->looked = true;
    n = rn_draft_stream_pending(draft_stream, 0);
    if (n > RN_DRAFT_MAX_LAG &&
        price_us(draft, draft_stream, n) > (draft_stream->caught_up ? AGAIN : 1.0f) * draft_stream->may_read_us)
        begin_at(draft, draft_stream, draft_stream->n_known - tail(draft, draft_stream));
    rn_draft_look_at(draft_stream);
    draft_stream->caught_up |= draft_stream->state == RN_DRAFTS_READY;
}
