/* The header that every message starts with.
 *
 * A message is a cell of an rn_pool; its payload follows the header (actors/protocol.h lays it
 * out). It belongs to exactly one place at a time: to the code that took it from the pool, then,
 * once a send succeeded, to the mailbox, then to the receiver, which gives it back to its pool or
 * sends it on (law 2). */
#ifndef RN_MAILBOX_MESSAGE_H
#define RN_MAILBOX_MESSAGE_H

#include <stdatomic.h>
#include <stdint.h>

struct rn_pool;

struct rn_message {
    _Atomic(struct rn_message *) next; /* the mailbox's link; see mailbox.c for its partners */
    uint32_t kind;                     /* one of actors/protocol.h */
    uint32_t sender;                   /* actor id of the sender, for the trace */
};

#endif
