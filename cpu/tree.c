/* Trees of candidates on the fast path (model/backend.h): where their rows store, what they see, what is moved.
 *
 * A row whose ancestors lie at the places of their positions is an ordinary row. For any other, and for one head of
 * keys, what it sees from the block of its sequence's first row on is brought together in a few blocks that no sequence
 * has, behind the cache's own and of each worker's own:
 *
 *     the sequence's   | b0 | b1 | ... | x x x r a b c d |        r: first row; a, b, c, d candidates
 *     this row's       | b0 | b1 | ... | x x x r c d     |        x: positions before, copied; c, d: its ancestors, itself
 *                                       └ a worker's block
 *
 * and the ordinary attention walks that table. So a row of a tree goes through the operations that it goes through when
 * its branch is all there is: the same tiles, the same order, the same bits (law 5). A copied block's bytes are few
 * beside those that attention reads: one block of one head.
 *
 * Nothing here looks at a number, so that every KV format is served. */
#include <string.h>

#include "base/check.h"
#include "cpu/fast.h"
#include "model/kv.h"

uint32_t rn_fast_tree_blocks(const struct rn_backend_limits *limits)
{
    return limits->tree_depth == 0 ? 0 : limits->tree_depth / limits->block_tokens + 2;
}

void rn_fast_tree_ready(struct rn_fast *fast)
{
    const struct rn_step *step = fast->step;
    struct rn_fast_place *at = fast->places;
    uint32_t r, first = 0;

    for (r = 0; step->parents != NULL && r < step->n_rows; r++) {
        if (r == 0 || step->rows[r].seq != step->rows[r - 1].seq)
            first = r;
        at[r] = (struct rn_fast_place){step->rows[first].position + (r - first), first,
                                       r == first || (step->parents[r] == (int32_t)r - 1 && at[r - 1].in_line)};
    }
}

/* ---- Rows of the cache ---- */

/* One head of one position, from a block to a block. */
struct spot {
    size_t block;
    uint32_t in_block;
};

static void copy_row(const struct rn_fast *fast, const struct rn_fast_layer *layer, uint32_t head, struct spot from,
                     struct spot to)
{
    uint32_t unit = rn_kv_unit_bytes(fast->limits.kv_type);
    size_t row = (size_t)fast->limits.block_tokens * unit, at;
    size_t value = rn_kv_row_bytes(fast->limits.kv_type, layer->v_dim);
    uint8_t *keys = layer->keys + head * layer->key_head, *values = layer->values + head * layer->value_head;

    for (at = 0; at < layer->key_head; at += row)
        memcpy(keys + to.block * layer->key_block + at + (size_t)to.in_block * unit,
               keys + from.block * layer->key_block + at + (size_t)from.in_block * unit, unit);
    memcpy(values + to.block * layer->value_block + to.in_block * value,
           values + from.block * layer->value_block + from.in_block * value, value);
}

static struct spot spot_of(const struct rn_fast *fast, const uint32_t *blocks, uint32_t position)
{
    return (struct spot){blocks[position >> fast->block_shift], position & (fast->limits.block_tokens - 1)};
}

void rn_fast_move_rows(struct rn_fast *fast, uint32_t worker, uint32_t n_workers)
{
    const struct rn_step *step = fast->step;
    uint32_t i, head, m;

    for (i = worker; i < fast->plan->n_kv_layers; i += n_workers)
        for (head = 0; head < fast->layers[i].kv_heads; head++)
            for (m = 0; m < step->n_moves; m++) {
                const uint32_t *blocks = step->seqs[step->moves[m].seq].blocks;

                copy_row(fast, &fast->layers[i], head, spot_of(fast, blocks, step->moves[m].from),
                         spot_of(fast, blocks, step->moves[m].to));
            }
}

/* ---- What a row sees ---- */

/* Positions of the block before the sequence's first row. */
static void copy_front(const struct rn_fast_layer *layer, uint32_t head, size_t from, size_t to)
{
    memcpy(layer->keys + to * layer->key_block + head * layer->key_head,
           layer->keys + from * layer->key_block + head * layer->key_head, layer->key_head);
    memcpy(layer->values + to * layer->value_block + head * layer->value_head,
           layer->values + from * layer->value_block + head * layer->value_head, layer->value_head);
}

void rn_fast_tree_see(const struct rn_fast *fast, uint32_t worker, uint32_t layer, uint32_t head, uint32_t row,
                      struct rn_attend *t)
{
    const struct rn_step *step = fast->step;
    const struct rn_fast_layer *cache = &fast->layers[layer];
    uint32_t root = step->rows[fast->places[row].first].position, first = root >> fast->block_shift;
    uint32_t own = fast->limits.n_blocks + worker * fast->tree_blocks, *blocks = fast->scratch[worker].blocks, i, r;
    const uint32_t *theirs = t->blocks;

    if (t->to != UINT32_MAX && t->from + t->segment <= root)
        return; /* a segment before all that differs */
    memcpy(blocks, theirs, first * sizeof *blocks);
    for (i = first; i <= step->rows[row].position >> fast->block_shift; i++)
        blocks[i] = own + (i - first);
    RN_ASSERT(i - first <= fast->tree_blocks);
    if (root % fast->limits.block_tokens > 0)
        copy_front(cache, head, theirs[first], own);
    for (r = row;; r = (uint32_t)step->parents[r]) {
        copy_row(fast, cache, head, spot_of(fast, theirs, fast->places[r].place),
                 spot_of(fast, blocks, step->rows[r].position));
        if (r == fast->places[row].first)
            break;
    }
    t->blocks = blocks;
}
