/* A model's fingerprints: see prints.h. */
#include "actors/prints.h"

#include "actors/context.h"

static struct rn_view piece(const void *user, uint32_t index)
{
    return rn_vocab_piece(user, (int32_t)index, true);
}

const struct rn_session_prints *rn_session_prints_of(const struct rn_context *context)
{
    struct rn_session_prints *prints = context->prints;

    if (!prints->known) {
        prints->model = rn_print_model(context->gguf);
        prints->vocab = rn_print_list(rn_vocab_count(context->vocab), piece, context->vocab);
        prints->kv = rn_print_kv(context->plan, context->backend, context->limits);
        prints->known = true;
    }
    return prints;
}
