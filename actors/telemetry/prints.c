/* A model's fingerprints: see prints.h. */
#include "actors/telemetry/prints.h"

#include "actors/context.h"

static struct rn_view piece(const void *user, uint32_t index)
{
    return rn_vocab_piece(user, (int32_t)index, true);
}

const struct rn_session_fingerprints *rn_session_fingerprints_of(const struct rn_context *context)
{
    struct rn_session_fingerprints *prints = context->prints;

    if (!prints->known) {
        prints->model = rn_fingerprint_model(context->gguf);
        prints->vocab = rn_fingerprint_list(rn_vocab_count(context->vocab), piece, context->vocab);
        prints->kv = rn_fingerprint_kv(context->plan, context->backend, context->limits);
        prints->known = true;
    }
    return prints;
}
