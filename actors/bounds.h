/* How many messages there can be, computed from the rows of protocol.h: in the mailbox of an actor, which gives its
 * credits, and in all, which gives the size of the runtime's pool. docs/MESSAGES.md is printed from the same rows. */
#ifndef RN_ACTORS_BOUNDS_H
#define RN_ACTORS_BOUNDS_H

#include <stdbool.h>
#include <stdint.h>

#include "actors/protocol.h"

/* What the expressions of the rows are over. */
struct rn_bounds {
    uint32_t streams, sessions, models; /* S, N, M */
    uint32_t per_model;                 /* P: 1 for a model's actor; `models` for the router and the pool */
};

/* A row of RN_MESSAGES. Senders and receivers: bit 1 << enum rn_role. */
struct rn_message_row {
    const char *name, *payload, *bound, *meaning;
    uint32_t senders, receivers;
};
const struct rn_message_row *rn_message_row(enum rn_message_kind kind);

/* "router". */
const char *rn_role_name(enum rn_role role);

/* Messages of the kind in the mailbox of one of its receivers, at most. */
uint32_t rn_bounds_edge(const struct rn_bounds *bounds, enum rn_message_kind kind);

/* The sum over all kinds that the actor receives: its mailbox's credits. */
int32_t rn_bounds_credits(const struct rn_bounds *bounds, enum rn_role role);

/* Messages that can exist at once: for each kind its bound at each receiver, but of those that carry an object no more
 * than there are objects, and of those that go from one receiver to the next what RN_IN_ALL says. */
uint32_t rn_bounds_pool(const struct rn_bounds *bounds);

#endif
