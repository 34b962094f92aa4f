/* The fast backend's cache, block by block: copies within it, and blocks in the host's memory.
 *
 *   bytes of a block:  layer 0: keys | values || layer 1: keys | values || ...
 *   keys:              [kv head][unit of a row][position]        values: [kv head][position][unit of a row]
 *
 * as they lie in the cache (fast.h). Nothing here looks at a number: what is copied is the same bits. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "cpu/fast.h"
#include "model/kv.h"

enum { LINE = 64 };

static const struct rn_fast *of(const struct rn_backend *backend)
{
    return (const struct rn_fast *)backend;
}

void rn_fast_describe(struct rn_fast *fast)
{
    snprintf(fast->layout, sizeof fast->layout, "cpu 5 %s", fast->level->bits);
}

const char *rn_fast_layout(const struct rn_backend *backend)
{
    return of(backend)->layout;
}

size_t rn_fast_block_bytes(const struct rn_backend *backend)
{
    const struct rn_fast *fast = of(backend);
    size_t bytes = 0;

    for (uint32_t i = 0; i < fast->plan->n_kv_layers; i++)
        bytes += fast->layers[i].key_block + fast->layers[i].value_block;
    return bytes;
}

/* ---- Copies of a step ---- */

static void copy_layer(const struct rn_fast_layer *layer, const struct rn_step_copy *copy)
{
    memcpy(layer->keys + copy->to * layer->key_block, layer->keys + copy->from * layer->key_block, layer->key_block);
    memcpy(layer->values + copy->to * layer->value_block, layer->values + copy->from * layer->value_block,
           layer->value_block);
}

void rn_fast_copy_blocks(struct rn_fast *fast, uint32_t worker, uint32_t n_workers)
{
    uint32_t n_layers = fast->plan->n_kv_layers, n = fast->step->n_copies * n_layers;

    for (uint32_t i = worker; i < n; i += n_workers)
        copy_layer(&fast->layers[i % n_layers], &fast->step->copies[i / n_layers]);
}

/* ---- Recurrent states ---- */

static uint8_t *state_at(const struct rn_fast *fast, uint32_t slot)
{
    RN_CHECK(slot < fast->limits.n_states);
    return fast->states + slot * fast->state_stride;
}

size_t rn_fast_state_bytes(const struct rn_backend *backend)
{
    return of(backend)->plan->state_bytes;
}

void rn_fast_copy_states(struct rn_fast *fast, uint32_t worker, uint32_t n_workers)
{
    size_t bytes = fast->plan->state_bytes;

    for (uint32_t i = worker; i < fast->step->n_state_copies; i += n_workers) {
        const struct rn_step_state_copy *copy = &fast->step->state_copies[i];

        if (copy->from == RN_NO_STATE)
            memset(state_at(fast, copy->to), 0, bytes);
        else
            memcpy(state_at(fast, copy->to), state_at(fast, copy->from), bytes);
    }
}

static void copy_state(const struct rn_fast *fast, const struct rn_host_copy *copy)
{
    if (fast->plan->state_bytes == 0)
        return; /* of a plan without */
    if (copy->to_host)
        memcpy(copy->host, state_at(fast, copy->block), fast->plan->state_bytes);
    else
        memcpy(state_at(fast, copy->block), copy->host, fast->plan->state_bytes);
}

/* ---- The host's memory ---- */

/* Keys lie in rows of block_tokens units, one per position: in each those from n_positions on become zeros. */
static void clear_positions(uint8_t *keys, const struct rn_fast *fast, const struct rn_fast_layer *layer,
                            uint32_t n_positions)
{
    size_t unit = rn_kv_unit_bytes(fast->limits.kv_type), row = fast->limits.block_tokens * unit;

    for (size_t at = 0; at < layer->key_block; at += row)
        memset(keys + at + n_positions * unit, 0, row - n_positions * unit);
}

/* The same of values, where a head's positions lie behind one another. */
static void clear_tails(uint8_t *values, const struct rn_fast *fast, const struct rn_fast_layer *layer,
                        uint32_t n_positions)
{
    size_t kept = (size_t)n_positions * rn_kv_row_bytes(fast->limits.kv_type, layer->v_dim);

    for (uint32_t head = 0; head < layer->kv_heads; head++)
        memset(values + head * layer->value_head + kept, 0, layer->value_head - kept);
}

static void read_block(const struct rn_fast *fast, uint32_t block, uint32_t n_positions, void *bytes)
{
    uint8_t *to = bytes;

    RN_CHECK(fast->limits.window == 0 && block < fast->limits.n_blocks && n_positions <= fast->limits.block_tokens);
    for (uint32_t i = 0; i < fast->plan->n_kv_layers; i++) {
        const struct rn_fast_layer *layer = &fast->layers[i];

        memcpy(to, layer->keys + block * layer->key_block, layer->key_block);
        clear_positions(to, fast, layer, n_positions);
        to += layer->key_block;
        memcpy(to, layer->values + block * layer->value_block, layer->value_block);
        clear_tails(to, fast, layer, n_positions);
        to += layer->value_block;
    }
}

/* A prefix that comes up is larger than the caches, and those who compute want them. */
static void put(const struct rn_fast *fast, uint8_t *to, const uint8_t *from, size_t n)
{
    if (fast->level->stream != NULL)
        fast->level->stream(to, from, n);
    else
        memcpy(to, from, n);
}

static void write_block(const struct rn_fast *fast, uint32_t block, const void *bytes)
{
    const uint8_t *from = bytes;

    RN_CHECK(fast->limits.window == 0 && block < fast->limits.n_blocks);
    for (uint32_t i = 0; i < fast->plan->n_kv_layers; i++) {
        const struct rn_fast_layer *layer = &fast->layers[i];

        put(fast, layer->keys + block * layer->key_block, from, layer->key_block);
        from += layer->key_block;
        put(fast, layer->values + block * layer->value_block, from, layer->value_block);
        from += layer->value_block;
    }
}

/* The cache is the host's memory: whoever asks copies. */
void rn_fast_copy_async(struct rn_backend *backend, struct rn_host_copies *copies)
{
    const struct rn_fast *fast = of(backend);

    for (uint32_t i = 0; i < copies->n; i++) {
        const struct rn_host_copy *copy = &copies->items[i];

        if (copy->is_state)
            copy_state(fast, copy);
        else if (copy->to_host)
            read_block(fast, copy->block, copy->n_positions, copy->host);
        else
            write_block(fast, copy->block, copy->host);
    }
    copies->status = RUNNEL_OK;
    copies->on_done(copies);
}

void *rn_fast_host_alloc(struct rn_backend *backend, size_t bytes)
{
    return rn_alloc_aligned(of(backend)->heap, bytes == 0 ? LINE : bytes, LINE);
}

void rn_fast_host_free(struct rn_backend *backend, void *memory)
{
    rn_free(of(backend)->heap, memory);
}
