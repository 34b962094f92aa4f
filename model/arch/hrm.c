/* HRM-Text: two stacks of blocks, of which one comes more often than the other (hierarchical reasoning model, arXiv
 * 2506.21734). With the embedding as x, and z from a vector of the file:
 *
 *     h_cycles times:   l_cycles times:   z = low(x + z)
 *                                         x = high(x + z)
 *
 * Blocks [0, n) of the file are low, the n behind them high; each ends with a norm. Key block_count counts each coming
 * of a block, since each has a cache of its own. Norms have no weights. */
#include "model/arch/families.h"
#include "model/build/build.h"

static uint32_t value_of(const struct rn_hparams_reader *r, const char *rest, runnel_status *status)
{
    uint32_t value = 1;

    if (*status == RUNNEL_OK)
        *status = rn_hparams_u32(r, rest, true, 1, RN_MAX_LAYERS, &value);
    return value;
}

runnel_status rn_arch_hrm_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    runnel_status status = RUNNEL_OK;

    h->stack.blocks = value_of(r, "hrm.layers_per_stack", &status);
    h->stack.high = value_of(r, "hrm.h_cycles", &status);
    h->stack.low = value_of(r, "hrm.l_cycles", &status);
    if (status == RUNNEL_OK &&
        (uint64_t)h->stack.blocks * h->stack.high * (h->stack.low + 1) != h->n_layers - h->n_nextn)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "block_count",
                                "is not hrm.layers_per_stack * hrm.h_cycles * (hrm.l_cycles + 1)");
    if (status == RUNNEL_OK)
        status = rn_hparams_f64(r, "embedding_scale", 0, 1e9, &h->embedding_scale);
    if (h->embedding_scale == 0)
        h->embedding_scale = 1;
    return status;
}

/* x through the blocks of a stack, without the norm behind it. Releases x. */
static int16_t stack(struct rn_build *b, int16_t x, uint32_t from)
{
    for (uint32_t i = 0; i < b->hparams.stack.blocks && b->status == RUNNEL_OK; i++) {
        b->layer = (int32_t)(from + i);
        x = rn_build_block(b, x);
    }
    b->layer = -1;
    b->again = true;
    return x;
}

/* Releases x. */
static int16_t norm_of(struct rn_build *b, int16_t x)
{
    int16_t out = rn_build_norm(b, x, "output_norm");

    rn_build_release(b, x);
    return out;
}

/* z of one more cycle; the first begins with the file's. Keeps x, releases z. */
static int16_t low(struct rn_build *b, int16_t x, int16_t z)
{
    int16_t in = rn_build_copy(b, x);

    in = z < 0 ? rn_build_plus(b, in, "hrm.z_l_init", b->hparams.embedding) : rn_build_add(b, in, z);
    return norm_of(b, stack(b, in, 0));
}

/* Releases x. */
static int16_t cycles(struct rn_build *b, int16_t x)
{
    const struct rn_stack_hparams h = b->hparams.stack;
    int16_t z = -1;
    uint32_t i, j;

    b->last = -1;
    for (i = 0; i < h.high && b->status == RUNNEL_OK; i++) {
        for (j = 0; j < h.low && b->status == RUNNEL_OK; j++)
            z = low(b, x, z);
        if (i + 1 == h.high) {
            b->last = (int32_t)(2 * h.blocks) - 1;
            return stack(b, rn_build_add(b, x, z), h.blocks);
        }
        x = norm_of(b, stack(b, rn_build_add(b, x, rn_build_copy(b, z)), h.blocks));
    }
    return x;
}

void rn_arch_hrm_text(struct rn_build *b)
{
    int32_t embedding = rn_build_matrix(b, "token_embd.weight", b->hparams.embedding, b->plan->n_vocab, 0, false);

    if (b->exit > 0 || b->n_taps > 0)
        rn_build_fail(b, RUNNEL_UNSUPPORTED,
                      "key %s.hrm.layers_per_stack says that blocks come several times: none can be looked behind",
                      b->hparams.architecture);
    rn_build_ropes(b);
    rn_build_head(b, cycles(b, rn_build_embed(b, embedding, (float)b->hparams.embedding_scale)), embedding);
}
