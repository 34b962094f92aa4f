/* The fast backend's draws: see model/draw.h. Behind the last phase the workers take wanted rows as they get free. */
#include "cpu/fast.h"

void rn_fast_draws_ready(struct rn_fast *fast, struct rn_step *step)
{
    rn_draw_chain(step, fast->drawn, fast->n_drawn);
    /* relaxed: the submission of the job orders it before the run */
    atomic_store_explicit(&fast->next_draw, 0, memory_order_relaxed);
}

void rn_fast_draw(struct rn_fast *fast, uint32_t worker)
{
    const struct rn_step *step = fast->step;
    uint32_t n_vocab = fast->plan->n_vocab, out;

    if (step->drawer != NULL && worker >= step->drawer->n_scratch)
        return;
    /* relaxed: it only shares out */
    while ((out = atomic_fetch_add_explicit(&fast->next_draw, 1, memory_order_relaxed)) < step->n_outs)
        rn_draw_one(step, out, fast->logits + (size_t)out * n_vocab, n_vocab, worker);
}

void rn_fast_draws_done(struct rn_fast *fast)
{
    if (fast->step->status != RUNNEL_OK)
        rn_draw_stop(fast->step);
    fast->n_drawn = rn_draw_keep(fast->step, fast->drawn);
}
