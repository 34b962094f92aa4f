/* See edges.h. */
#include "tests/sim/edges.h"

#include <stdio.h>

static const char *check(struct rn_actor *actor, enum rn_role role, const struct rn_bounds *bounds)
{
    static char sentence[160];
    uint32_t counts[RN_MSG_KINDS] = {0}, n = 0;

    for (struct rn_message *m = actor->mailbox.tail; m != NULL; m = atomic_load(&m->next))
        if (m != &actor->mailbox.stub) {
            counts[m->kind]++;
            n++;
        }
    if (n == 0)
        return NULL;
    for (uint32_t i = 0; i < RN_MSG_KINDS; i++) {
        enum rn_message_kind kind = (enum rn_message_kind)i;
        const struct rn_message_row *row = rn_message_row(kind);
        uint32_t most;

        if (counts[i] == 0)
            continue;
        most = (row->receivers >> role & 1) != 0 ? rn_bounds_edge(bounds, kind) : 0;
        if (counts[i] > most) {
            snprintf(sentence, sizeof sentence, "%u messages %s are in the mailbox of the %s, not %u at most",
                     counts[i], row->name, rn_role_name(role), most);
            return sentence;
        }
    }
    return NULL;
}

const char *edges_check_router(struct runnel_engine *engine)
{
    struct rn_bounds bounds = engine->context.bounds;

    bounds.per_model = bounds.models;
    return check(&engine->router.actor, RN_ROLE_ROUTER, &bounds);
}

const char *edges_check_model(struct runnel_model *model)
{
    struct rn_context *context = &model->context;
    struct rn_actor *const actors[RN_ROLES_END] = {
        [RN_ROLE_TOKENIZER] = context->tokenizer,
        [RN_ROLE_TIER] = context->tier,
        [RN_ROLE_MOVER] = context->mover,
        [RN_ROLE_PREFILL] = context->prefill,
        [RN_ROLE_VERIFIER] = context->verifier,
        [RN_ROLE_DECODE] = context->decode,
        [RN_ROLE_DRAFT] = context->draft,
        [RN_ROLE_SAMPLER] = context->sampler,
        [RN_ROLE_DETOKENIZER] = context->detokenizer,
    };

    for (enum rn_role role = RN_ROLE_TOKENIZER; role < RN_ROLES_END; role++) {
        const char *wrong = actors[role] != NULL ? check(actors[role], role, &context->bounds) : NULL;

        if (wrong != NULL)
            return wrong;
    }
    return NULL;
}
