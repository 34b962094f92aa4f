/* See bounds.h. */
#include "actors/bounds.h"

#include "actors/draft/drafter.h"
#include "actors/lists.h"
#include "actors/tier/move.h"
#include "base/check.h"

#define LESSER(a, b) ((a) < (b) ? (a) : (b))

/* The names that the rows use. */
enum {
#define X(role, name) role = 1 << RN_ROLE_##role,
    RN_ROLES(X)
#undef X
        MODEL_ACTORS = TOKENIZER | GRAMMAR | TIER | MOVER | PREFILL | VERIFIER | DECODE | DRAFT | SAMPLER | DETOKENIZER
};

static const struct rn_message_row rows[RN_MSG_KINDS] = {
#define X(kind, payload, from, to, bound, meaning) {#kind, #payload, #bound, meaning, from, to},
    RN_MESSAGES(X)
#undef X
};

enum object {
#define X(payload, count) OBJECT_##payload,
    RN_OBJECTS(X)
#undef X
        OBJECTS,
    /* Payloads without a row there: each message has its own. */
    OBJECT_stream = OBJECTS,
    OBJECT_choice = OBJECTS,
    OBJECT_ended = OBJECTS,
    OBJECT_grant = OBJECTS,
    OBJECT_shortage = OBJECTS,
    OBJECT_wake = OBJECTS,
    OBJECT_lanes = OBJECTS,
    OBJECT_outs = OBJECTS,
    OBJECT_none = OBJECTS
};

static const uint8_t object_of[RN_MSG_KINDS] = {
#define X(kind, payload, from, to, bound, meaning) OBJECT_##payload,
    RN_MESSAGES(X)
#undef X
};

const struct rn_message_row *rn_message_row(enum rn_message_kind kind)
{
    RN_CHECK(kind < RN_MSG_KINDS);
    return &rows[kind];
}

const char *rn_role_name(enum rn_role role)
{
    static const char *const names[RN_ROLES_END] = {
#define X(role, name) name,
        RN_ROLES(X)
#undef X
    };

    RN_CHECK(role < RN_ROLES_END);
    return names[role];
}

uint32_t rn_bounds_edge(const struct rn_bounds *bounds, enum rn_message_kind kind)
{
    const uint32_t S = bounds->streams, N = bounds->sessions, M = bounds->models, P = bounds->per_model;
    const uint32_t at_once[RN_MSG_KINDS] = {
#define X(message, payload, from, to, bound, meaning) [RN_MSG_##message] = (bound),
        RN_MESSAGES(X)
#undef X
    };

    RN_ASSERT(bounds->per_model <= bounds->models);
    RN_CHECK(kind < RN_MSG_KINDS);
    return at_once[kind];
}

int32_t rn_bounds_credits(const struct rn_bounds *bounds, enum rn_role role)
{
    uint64_t sum = 0;

    for (uint32_t kind = 0; kind < RN_MSG_KINDS; kind++)
        if ((rows[kind].receivers >> role & 1) != 0)
            sum += rn_bounds_edge(bounds, (enum rn_message_kind)kind);
    RN_CHECK(sum > 0 && sum <= 1u << 30); /* what a mailbox takes */
    return (int32_t)sum;
}

uint32_t rn_bounds_pool(const struct rn_bounds *bounds)
{
    const uint32_t S = bounds->streams, N = bounds->sessions, P = bounds->per_model;
    const uint64_t objects[OBJECTS] = {
#define X(payload, count) [OBJECT_##payload] = (count),
        RN_OBJECTS(X)
#undef X
    };
    const uint64_t in_all[RN_MSG_KINDS] = {
#define X(kind, count) [RN_MSG_##kind] = (count),
        RN_IN_ALL(X)
#undef X
    };
    uint64_t sum = 0;

    for (uint32_t object = 0; object < OBJECTS; object++)
        sum += objects[object];
    for (uint32_t kind = 0; kind < RN_MSG_KINDS; kind++)
        if (in_all[kind] != 0)
            sum += in_all[kind];
        else if (object_of[kind] == OBJECTS)
            sum += (uint64_t)rn_bounds_edge(bounds, (enum rn_message_kind)kind) *
                   (uint32_t)__builtin_popcount(rows[kind].receivers);
    RN_CHECK(sum <= 1u << 30);
    return (uint32_t)sum;
}
