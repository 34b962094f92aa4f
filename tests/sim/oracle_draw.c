/* What the oracle draws with where it draws by itself: see oracle_draw.h. */
#include "tests/sim/oracle_draw.h"

bool oracle_can_draw(const struct rn_draw *draw, uint64_t *n_changes)
{
    const struct rn_draw_changes *changes = &draw->changes;
    const runnel_sampling *p = draw->sampling;
    bool counted[ORACLE_VOCAB] = {false};

    if (!draw->wanted)
        return true;
    for (uint32_t i = 0; i < changes->n_counts; i++) {
        int32_t token = changes->counts[i].token;

        if (token < 0 || token >= ORACLE_VOCAB || counted[token] || changes->counts[i].count == 0)
            return false;
        counted[token] = true;
    }
    for (uint32_t i = 0; i < changes->n_barred; i++)
        if (changes->barred[i] < 0 || changes->barred[i] >= ORACLE_VOCAB)
            return false;
    *n_changes += (p == NULL ? 0 : p->n_biases) + changes->n_counts + changes->n_barred;
    return p != NULL && draw->want_top <= RUNNEL_MAX_TOP_LOGPROBS;
}

/* The token that counts once more. */
static int32_t own_token(const struct rn_step *step, uint32_t out)
{
    uint32_t r = 0;

    while (step->rows[r].out != (int32_t)out)
        r++;
    return step->rows[r].token;
}

struct rn_sampler *oracle_sampler(struct oracle *oracle, const struct rn_step *step, uint32_t out)
{
    const struct rn_draw_changes *changes = &step->draws[out].changes;
    runnel_sampling params = *step->draws[out].sampling;
    struct rn_sampler *sampler;

    params.seed = step->draws[out].seed;
    params.penalty_tokens = 0;
    sampler = rn_sampler_new(&oracle->heap, &params, ORACLE_VOCAB, ORACLE_VOCAB);
    if (sampler == NULL)
        return NULL;
    rn_sampler_begin_answer(sampler);
    for (uint32_t i = 0; i < changes->n_counts; i++)
        for (uint32_t k = 0; k < changes->counts[i].count; k++)
            rn_sampler_accept(sampler, changes->counts[i].token);
    if (changes->counts_own)
        rn_sampler_accept(sampler, own_token(step, out));
    if (rn_sampler_keep_from_ending(sampler, changes->barred, changes->n_barred, changes->n_barred, 0))
        return sampler;
    rn_sampler_free(sampler);
    return NULL;
}
