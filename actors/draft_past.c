/* Pasts of drafting streams: see draft_past.h. */
#include "actors/draft_past.h"

#include <string.h>

#include "actors/context.h"
#include "actors/draft_actor.h"

#define AGAIN 0.25f   /* of what may be spent on a past, on what was missed at rest: there may be many of those */
#define TAIL 32u      /* tokens that are read where all are too dear: a pass of guesses may make up for so many ... */
#define LEAST_TAIL 8u /* ... and where they are dear too no fewer than this, hardly worse: docs/RATIONALE.md */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- Streams that have ended ---- */

static void forget(struct rn_draft_actor *draft, struct rn_draft_past *past)
{
    struct rn_heap *heap = draft->context->heap;

    rn_block_pool_unref(&draft->pool, past->blocks, past->n_blocks);
    rn_free(heap, past->tokens);
    rn_free(heap, past->blocks);
    *past = (struct rn_draft_past){0};
}

/* The one of use longest ago; NULL: there is none. */
static struct rn_draft_past *oldest(struct rn_draft_actor *draft)
{
    struct rn_draft_past *found = NULL;

    for (uint32_t i = 0; i < RN_DRAFT_PASTS; i++)
        if (draft->pasts[i].n_tokens > 0 && (found == NULL || draft->pasts[i].used < found->used))
            found = &draft->pasts[i];
    return found;
}

bool rn_past_make_room(struct rn_draft_actor *draft)
{
    struct rn_draft_past *past;

    while (draft->pool.n_free == 0 && (past = oldest(draft)) != NULL)
        forget(draft, past);
    return draft->pool.n_free > 0;
}

void rn_past_fini(struct rn_draft_actor *draft)
{
    for (uint32_t i = 0; i < RN_DRAFT_PASTS; i++)
        if (draft->pasts[i].n_tokens > 0)
            forget(draft, &draft->pasts[i]);
}

/* The place of a turn before, all of which the seat has too, or of one that says more already; else a free one. */
static struct rn_draft_past *place_for(struct rn_draft_actor *draft, const struct rn_seat *seat, uint32_t n)
{
    struct rn_draft_past *place = NULL;

    for (uint32_t i = 0; i < RN_DRAFT_PASTS; i++) {
        struct rn_draft_past *past = &draft->pasts[i];

        if (past->n_tokens == 0)
            place = place == NULL ? past : place;
        else if (past->salt == seat->salt && past->base == seat->base &&
                 memcmp(past->tokens, seat->tokens, least(n, past->n_tokens) * sizeof seat->tokens[0]) == 0)
            return past;
    }
    return place != NULL ? place : oldest(draft);
}

/* Tokens whose rows nobody writes again, in whole blocks: the last known one's may be computed once more, and a pass in
 * flight writes its own. */
static uint32_t whole(const struct rn_draft_actor *draft, const struct rn_seat *seat)
{
    uint32_t per_block = draft->drafter->limits.block_tokens, n = least(seat->layers[0].n_done, seat->n_known);

    n = n > 0 && n == seat->n_known ? n - 1 : n;
    n = seat->in_pass ? least(n, seat->from) : n;
    return n / per_block * per_block;
}

void rn_past_keep(struct rn_draft_actor *draft, const struct rn_seat *seat)
{
    struct rn_heap *heap = draft->context->heap;
    uint32_t n = whole(draft, seat), n_blocks = n / draft->drafter->limits.block_tokens;
    struct rn_draft_past *place, past = {.salt = seat->salt, .base = seat->base, .n_tokens = n, .n_blocks = n_blocks};

    if (draft->drafter->kind != RN_DRAFTER_TOKENS || n == 0)
        return;
    place = place_for(draft, seat, n);
    if (place->n_tokens >= n && place->salt == seat->salt && place->base == seat->base &&
        memcmp(place->tokens, seat->tokens, n * sizeof seat->tokens[0]) == 0) {
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
    memcpy(past.tokens, seat->tokens, n * sizeof past.tokens[0]);
    memcpy(past.blocks, seat->blocks, n_blocks * sizeof past.blocks[0]);
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
    uint64_t *used; /* NULL: a seat's */
};

/* How much of it is the seat's own text, up to where it has still a token to compute. */
static uint32_t common(const struct rn_draft_actor *draft, const struct rn_seat *seat, const struct offer *offer)
{
    uint32_t per_block = draft->drafter->limits.block_tokens, n = 0, most;

    if (offer->base < seat->base || offer->base - seat->base + 1 >= seat->n_known)
        return 0;
    most = least(offer->n, seat->n_known - 1 - (offer->base - seat->base));
    while (n < most && offer->tokens[n] == seat->tokens[offer->base - seat->base + n])
        n++;
    return n / per_block * per_block;
}

/* Looks at one more offer: the best is the one that leaves least to read, of those the one that knows most. */
static void look_at(const struct rn_draft_actor *draft, const struct rn_seat *seat, struct offer offer,
                    struct offer *best)
{
    uint32_t n = common(draft, seat, &offer), end = offer.base + n, best_end = best->base + best->n;

    if (n == 0 || end < best_end || (end == best_end && offer.base >= best->base))
        return;
    *best = offer;
    best->n = n;
}

static struct offer best_offer(struct rn_draft_actor *draft, const struct rn_seat *seat)
{
    struct offer best = {0};

    for (uint32_t i = 0; i < RN_DRAFT_PASTS; i++) {
        struct rn_draft_past *past = &draft->pasts[i];

        if (past->n_tokens > 0 && past->salt == seat->salt)
            look_at(draft, seat, (struct offer){past->base, past->n_tokens, past->tokens, past->blocks, &past->used},
                    &best);
    }
    for (uint32_t i = 0; i < draft->n_seats; i++) {
        const struct rn_seat *other = &draft->seats[i];

        if (other != seat && other->generation != 0 && other->state != RN_DRAFTS_OFF && other->salt == seat->salt)
            look_at(draft, seat, (struct offer){other->base, whole(draft, other), other->tokens, other->blocks, NULL},
                    &best);
    }
    return best;
}

/* Its positions begin with what is token x now, and nothing of it is computed. */
static void begin_at(struct rn_draft_actor *draft, struct rn_seat *seat, uint32_t x)
{
    rn_branch_drop(draft, seat);
    rn_block_pool_unref(&draft->pool, seat->blocks, seat->n_blocks);
    seat->n_blocks = 0;
    memmove(seat->tokens, seat->tokens + x, (seat->n_known - x) * sizeof seat->tokens[0]);
    seat->base += x;
    seat->n_known -= x;
    seat->n_tokens = seat->n_known;
    seat->changed = true;
    rn_seat_reset(seat);
}

static void take_over(struct rn_draft_actor *draft, struct rn_seat *seat)
{
    struct offer offer = best_offer(draft, seat);

    if (offer.n == 0)
        return;
    begin_at(draft, seat, offer.base - seat->base);
    seat->n_blocks = offer.n / draft->drafter->limits.block_tokens;
    seat->layers[0].n_done = offer.n;
    memcpy(seat->blocks, offer.blocks, seat->n_blocks * sizeof seat->blocks[0]);
    rn_block_pool_ref(&draft->pool, seat->blocks, seat->n_blocks);
    if (offer.used != NULL)
        *offer.used = ++draft->clock;
}

/* ---- How much is read ---- */

/* What was missed at rest is read in a pass for that alone, at each try; the past of a stream that begins once. */
static float price_us(const struct rn_draft_actor *draft, const struct rn_seat *seat, uint32_t n_rows)
{
    return (seat->caught_up ? (float)draft->guess_us : 0.0f) + draft->row_us * (float)n_rows;
}

void rn_past_note(const struct rn_draft_actor *draft, struct rn_seat *seat)
{
    seat->read_us += price_us(draft, seat, seat->n_past);
    seat->n_past = 0;
    seat->changed = true;
}

static uint32_t tail(const struct rn_draft_actor *draft, const struct rn_seat *seat)
{
    float n = draft->row_us > 0 ? seat->may_read_us / draft->row_us : (float)TAIL;

    return n > (float)TAIL ? TAIL : n < (float)LEAST_TAIL ? LEAST_TAIL : (uint32_t)n;
}

void rn_past_settle(struct rn_draft_actor *draft, struct rn_seat *seat)
{
    uint32_t n;

    if (draft->drafter->kind != RN_DRAFTER_TOKENS || seat->more || seat->n_known <= TAIL)
        return;
    if (!seat->looked)
        take_over(draft, seat);
    seat->looked = true;
    n = rn_seat_pending(seat, 0);
    if (n > RN_DRAFT_LAG && price_us(draft, seat, n) > (seat->caught_up ? AGAIN : 1.0f) * seat->may_read_us)
        begin_at(draft, seat, seat->n_known - tail(draft, seat));
    rn_draft_look_at(seat);
    seat->caught_up |= seat->state == RN_DRAFTS_READY;
}
