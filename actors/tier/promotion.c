/* Promotions: see promotion.h. */
#include "actors/tier/promotion.h"

#include <string.h>

#include "actors/context.h"
#include "actors/telemetry/telemetry.h"
#include "base/check.h"

void rn_promotions_init(struct rn_promotions *promotions, struct rn_tier_blocks *blocks, struct rn_directory *directory)
{
    *promotions = (struct rn_promotions){.context = blocks->context, .blocks = blocks, .directory = directory};
}

static uint32_t block_tokens(const struct rn_promotions *promotions)
{
    return promotions->context->limits->block_tokens;
}

bool rn_promotions_has(const struct rn_promotions *promotions, const struct rn_prefix_path *path)
{
    for (uint32_t i = 0; i < RN_PROMOTIONS; i++)
        if (path == &promotions->items[i].path)
            return true;
    return false;
}

/* ---- Begin ---- */

static struct rn_promotion *free_promotion(struct rn_promotions *promotions)
{
    for (uint32_t i = 0; i < RN_PROMOTIONS; i++)
        if (!promotions->items[i].busy)
            return &promotions->items[i];
    return NULL;
}

uint32_t rn_promotions_on_the_way(const struct rn_promotions *promotions)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < RN_PROMOTIONS; i++)
        if (promotions->items[i].busy)
            n += promotions->items[i].n - promotions->items[i].n_back;
    return n;
}

bool rn_promotions_can_begin(const struct rn_promotions *promotions, const struct rn_cached_stream *stream,
                             const struct rn_prefix_match *found)
{
    return promotions->directory->tiers != 0 && !promotions->directory->closing && found->n_cold > 0 &&
           !stream->promoted;
}

static void free_memory(struct rn_promotions *promotions, struct rn_promotion *p)
{
    struct rn_heap *heap = promotions->context->heap;

    rn_free(heap, p->tokens);
    rn_free(heap, p->blocks);
    rn_free(heap, p->numbers);
    memset(p, 0, sizeof *p);
}

static bool take_memory(struct rn_promotions *promotions, struct rn_promotion *p, uint32_t n_before, uint32_t n)
{
    struct rn_heap *heap = promotions->context->heap;

    p->tokens = rn_alloc(heap, (size_t)(n_before + n) * block_tokens(promotions), sizeof p->tokens[0]);
    p->blocks = rn_alloc(heap, n_before + n, sizeof p->blocks[0]);
    p->numbers = rn_alloc(heap, n, sizeof p->numbers[0]);
    if (p->tokens != NULL && p->blocks != NULL && p->numbers != NULL)
        return true;
    free_memory(promotions, p);
    return false;
}

/* The numbers of the cold blocks, in order; of the first n those that make sense to bring up, how many. */
static uint32_t choose(struct rn_promotions *promotions, struct rn_promotion *p, const struct rn_prefix_match *found,
                       uint32_t n)
{
    struct rn_prefix_ref node = found->cold;
    struct rn_prefix_view view;
    uint8_t *scratch = (uint8_t *)p->blocks; /* not in use yet */

    for (uint32_t i = found->n_cold; i-- > 0; node = view.parent) {
        RN_CHECK(rn_prefix_tree_look(&promotions->blocks->tree, node, &view));
        if (i < n)
            p->numbers[i] = view.handle;
    }
    return rn_directory_choose(promotions->directory, p->numbers, scratch, n, found->n_ready * block_tokens(promotions),
                               rn_promotions_on_the_way(promotions));
}

static void take_blocks(struct rn_promotions *promotions, struct rn_promotion *p, const uint32_t *ready)
{
    RN_ASSERT(p->n > 0 && p->n <= promotions->blocks->pool.n_free);
    memcpy(p->blocks, ready, p->n_before * sizeof p->blocks[0]);
    rn_tier_blocks_take(promotions->blocks, p->n, p->blocks + p->n_before);
    promotions->blocks->n_lent += p->n;
}

void rn_promotions_begin(struct rn_promotions *promotions, struct rn_cached_stream *stream, struct rn_prefix_salt salt,
                         const int32_t *tokens, const struct rn_prefix_match *found, const uint32_t *ready)
{
    struct rn_promotion *p = free_promotion(promotions);
    uint32_t n_free = promotions->blocks->pool.n_free;
    uint32_t n = found->n_cold < n_free ? found->n_cold : n_free, n_tokens;

    RN_ASSERT(!stream->promoted && stream->promotion == NULL);
    if (p == NULL || n == 0 || !take_memory(promotions, p, found->n_ready, n))
        return;
    stream->promoted = true;
    p->n = choose(promotions, p, found, n);
    if (p->n == 0) {
        rn_telemetry_skipped(promotions->context, found->n_cold);
        free_memory(promotions, p);
        return;
    }
    n_tokens = (found->n_ready + p->n) * block_tokens(promotions);
    p->busy = true;
    p->n_before = found->n_ready;
    p->salt = salt;
    p->stream = stream;
    memcpy(p->tokens, tokens, n_tokens * sizeof p->tokens[0]);
    take_blocks(promotions, p, ready);
    stream->promotion = p;
    rn_prefix_tree_enter(&promotions->blocks->tree, &p->path, p->salt, p->tokens, n_tokens, found);
    RN_ASSERT(p->path.n_ready == p->n_before && p->path.n_claims <= p->n);
    rn_promotions_send(promotions);
}

/* ---- Under way ---- */

static void fill(struct rn_promotions *promotions, struct rn_promotion *p, struct rn_move *move)
{
    uint32_t per_block = block_tokens(promotions);

    RN_ASSERT(p->busy && p->n_sent < p->n && move->n == 0);
    move->tag = (uint32_t)(p - promotions->items);
    while (move->n < RN_MOVE_BLOCKS && p->n_sent < p->n) {
        struct rn_move_item *item = &move->items[move->n++];
        uint32_t nth = p->n_before + p->n_sent;

        item->tier_directory = p->numbers[p->n_sent++];
        item->block = p->blocks[nth];
        item->salt = p->salt;
        memcpy(item->tokens, p->tokens + (size_t)nth * per_block, per_block * sizeof *item->tokens);
    }
}

void rn_promotions_send(struct rn_promotions *promotions)
{
    for (uint32_t i = 0; i < RN_PROMOTIONS; i++) {
        struct rn_promotion *p = &promotions->items[i];
        struct rn_move *move;

        while (p->busy && !p->failed && p->n_sent < p->n &&
               (move = rn_directory_move(promotions->directory, RN_MOVE_UP)) != NULL) {
            fill(promotions, p, move);
            rn_directory_send(promotions->directory, move);
        }
    }
}

static void give_back(struct rn_promotions *promotions, const uint32_t *blocks, uint32_t n)
{
    RN_ASSERT(promotions->blocks->n_lent >= n);
    rn_tier_blocks_unref(promotions->blocks, blocks, n);
    promotions->blocks->n_lent -= n;
}

/* Nothing of it is with the mover any more. */
static void end(struct rn_promotions *promotions, struct rn_promotion *p)
{
    struct rn_prefix_woken woken = {NULL, NULL};
    uint32_t n_unsent = p->n - p->n_sent;

    RN_ASSERT(p->n_back == p->n_sent && (p->failed || n_unsent == 0));
    rn_prefix_tree_leave(&promotions->blocks->tree, &p->path, &woken);
    rn_tier_blocks_tell(promotions->blocks, &woken);
    if (n_unsent > 0)
        give_back(promotions, p->blocks + p->n_before + p->n_sent, n_unsent);
    if (p->stream != NULL)
        p->stream->promotion = NULL;
    free_memory(promotions, p);
}

/* What has come is the tree's; a duplicate block that was computed meanwhile stays, and the block goes back to the
 * pool. */
static void publish(struct rn_promotions *promotions, struct rn_promotion *p, const struct rn_move *move,
                    uint32_t n_good)
{
    struct rn_prefix_woken woken = {NULL, NULL};

    rn_prefix_tree_publish(&promotions->blocks->tree, &p->path, p->tokens, p->blocks, p->n_before + p->n_back + n_good,
                           NULL, &woken);
    rn_tier_blocks_tell(promotions->blocks, &woken);
    for (uint32_t i = 0; i < n_good; i++) {
        if (p->stream != NULL)
            p->stream->n_from[move->items[i].from]++;
    }
}

void rn_promotions_arrived(struct rn_promotions *promotions, const struct rn_move *move, uint32_t n_others)
{
    struct rn_promotion *p = &promotions->items[move->tag];
    uint32_t n_good = 0, blocks[RN_MOVE_BLOCKS];

    RN_CHECK(move->tag < RN_PROMOTIONS && p->busy);
    RN_ASSERT(move->kind == RN_MOVE_UP && p->n_back + move->n <= p->n_sent);
    while (n_good < move->n && move->items[n_good].from != RN_TIERS)
        n_good++;
    rn_directory_arrived(promotions->directory, move, n_good, (p->n_before + p->n_back) * block_tokens(promotions),
                         n_others);
    if (!p->failed)
        publish(promotions, p, move, n_good);
    p->failed |= n_good < move->n;
    p->n_back += move->n;
    for (uint32_t i = 0; i < move->n; i++)
        blocks[i] = move->items[i].block;
    give_back(promotions, blocks, move->n);
    for (uint32_t i = 0; i < move->n; i++)
        rn_directory_settle(promotions->directory, move->items[i].tier_directory, move->items[i].has);
    if (p->n_back == p->n || (p->failed && p->n_back == p->n_sent))
        end(promotions, p);
}

void rn_promotions_let_go(struct rn_cached_stream *stream)
{
    RN_ASSERT(stream->promotion == NULL || (stream->promotion->busy && stream->promotion->stream == stream));
    if (stream->promotion != NULL)
        stream->promotion->stream = NULL;
    stream->promotion = NULL;
    stream->promoted = false;
    memset(stream->n_from, 0, sizeof stream->n_from);
}

bool rn_promotions_check(const struct rn_promotions *promotions)
{
    for (uint32_t i = 0; i < RN_PROMOTIONS; i++) {
        const struct rn_promotion *p = &promotions->items[i];

        if (!p->busy) {
            if (p->path.state != RN_PATH_OUT || p->tokens != NULL || p->stream != NULL)
                return false;
        } else if (p->path.state != RN_PATH_ENTERED || p->n_back > p->n_sent || p->n_sent > p->n || p->n_back == p->n ||
                   (p->stream != NULL && p->stream->promotion != p)) {
            return false;
        }
    }
    return true;
}
