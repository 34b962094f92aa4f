/* The reference backend's cache, block by block: layer after layer, keys [position][row] and then values. */
#include <string.h>

#include "base/check.h"
#include "cpu/reference/reference.h"
#include "model/kv.h"

static const struct rn_reference *of(const struct rn_backend *backend)
{
    return (const struct rn_reference *)backend;
}

static size_t position_bytes(const struct rn_reference *ref, uint32_t heads, uint32_t width)
{
    return heads * rn_kv_row_bytes(ref->limits.kv_type, width / heads);
}

const char *rn_reference_layout(const struct rn_backend *backend)
{
    (void)backend;
    return "reference 1";
}

size_t rn_reference_block_bytes(const struct rn_backend *backend)
{
    const struct rn_reference *ref = of(backend);

    return (size_t)rn_plan_kv_bytes(ref->plan, ref->limits.kv_type) * ref->limits.block_tokens;
}

/* The caches in the order of their bytes: keys of layer i / 2, then its values. */
static unsigned char *cache(const struct rn_reference *ref, uint32_t i, uint32_t block, size_t *bytes)
{
    const struct rn_kv_layer *layer = &ref->plan->kv_layers[i / 2];

    *bytes =
        position_bytes(ref, layer->kv_heads, i % 2 == 0 ? layer->k_width : layer->v_width) * ref->limits.block_tokens;
    return (i % 2 == 0 ? ref->k : ref->v)[i / 2] + block * *bytes;
}

void rn_reference_copy_blocks(struct rn_reference *ref, const struct rn_step *step)
{
    size_t bytes;

    for (uint32_t c = 0; c < step->n_copies; c++)
        for (uint32_t i = 0; i < 2 * ref->plan->n_kv_layers; i++) {
            const unsigned char *from = cache(ref, i, step->copies[c].from, &bytes);
            unsigned char *to = cache(ref, i, step->copies[c].to, &bytes);

            memcpy(to, from, bytes);
        }
}

/* Bytes of one position in a block's bytes of the i-th cache. */
static unsigned char *row_at(const struct rn_reference *ref, uint32_t i, const struct rn_step_seq *seq,
                             uint32_t position, size_t *bytes)
{
    unsigned char *block = cache(ref, i, seq->blocks[position / ref->limits.block_tokens], bytes);

    *bytes /= ref->limits.block_tokens;
    return block + position % ref->limits.block_tokens * *bytes;
}

void rn_reference_move_rows(struct rn_reference *ref, const struct rn_step *step)
{
    size_t bytes;

    for (uint32_t m = 0; m < step->n_moves; m++)
        for (uint32_t i = 0; i < 2 * ref->plan->n_kv_layers; i++) {
            const struct rn_step_seq *seq = &step->seqs[step->moves[m].seq];
            const unsigned char *from = row_at(ref, i, seq, step->moves[m].from, &bytes);
            unsigned char *to = row_at(ref, i, seq, step->moves[m].to, &bytes);

            memcpy(to, from, bytes);
        }
}

static unsigned char *state_at(const struct rn_reference *ref, uint32_t slot)
{
    RN_CHECK(slot < ref->limits.n_states);
    return ref->states + slot * ref->plan->state_bytes;
}

size_t rn_reference_state_bytes(const struct rn_backend *backend)
{
    return of(backend)->plan->state_bytes;
}

void rn_reference_copy_states(struct rn_reference *ref, const struct rn_step *step)
{
    for (uint32_t i = 0; i < step->n_state_copies; i++) {
        const struct rn_step_state_copy *copy = &step->state_copies[i];

        if (copy->from == RN_NO_STATE)
            memset(state_at(ref, copy->to), 0, ref->plan->state_bytes);
        else
            memcpy(state_at(ref, copy->to), state_at(ref, copy->from), ref->plan->state_bytes);
    }
}

static void copy_state(const struct rn_reference *ref, const struct rn_host_copy *copy)
{
    if (ref->plan->state_bytes == 0)
        return; /* of a plan without */
    if (copy->to_host)
        memcpy(copy->host, state_at(ref, copy->block), ref->plan->state_bytes);
    else
        memcpy(state_at(ref, copy->block), copy->host, ref->plan->state_bytes);
}

static void read_block(const struct rn_reference *ref, uint32_t block, uint32_t n_positions, void *to)
{
    unsigned char *out = to;
    size_t bytes, kept;

    RN_CHECK(ref->limits.window == 0 && block < ref->limits.n_blocks && n_positions <= ref->limits.block_tokens);
    for (uint32_t i = 0; i < 2 * ref->plan->n_kv_layers; i++, out += bytes) {
        const unsigned char *in = cache(ref, i, block, &bytes);

        memcpy(out, in, bytes);
        kept = bytes / ref->limits.block_tokens * n_positions;
        memset(out + kept, 0, bytes - kept);
    }
}

static void write_block(const struct rn_reference *ref, uint32_t block, const void *from)
{
    const unsigned char *in = from;
    size_t bytes;

    RN_CHECK(ref->limits.window == 0 && block < ref->limits.n_blocks);
    for (uint32_t i = 0; i < 2 * ref->plan->n_kv_layers; i++, in += bytes) {
        unsigned char *to = cache(ref, i, block, &bytes);

        memcpy(to, in, bytes);
    }
}

void rn_reference_copy_async(struct rn_backend *backend, struct rn_host_copies *copies)
{
    const struct rn_reference *ref = of(backend);

    for (uint32_t i = 0; i < copies->n; i++) {
        const struct rn_host_copy *copy = &copies->items[i];

        if (copy->is_state)
            copy_state(ref, copy);
        else if (copy->to_host)
            read_block(ref, copy->block, copy->n_positions, copy->host);
        else
            write_block(ref, copy->block, copy->host);
    }
    copies->status = RUNNEL_OK;
    copies->on_done(copies);
}

void *rn_reference_host_alloc(struct rn_backend *backend, size_t bytes)
{
    return rn_alloc(of(backend)->heap, bytes, 1);
}

void rn_reference_host_free(struct rn_backend *backend, void *memory)
{
    rn_free(of(backend)->heap, memory);
}
