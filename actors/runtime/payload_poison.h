/* What a message carries belongs to nobody between its send and its handler. Under AddressSanitizer who touches it then
 * is reported, above all the sender that goes on with what it has given away: on another thread that would be a race
 * that is seldom seen. Else nothing happens. */
#ifndef RN_ACTORS_RUNTIME_PAYLOAD_POISON_H
#define RN_ACTORS_RUNTIME_PAYLOAD_POISON_H

#include "actors/protocol.h"
#include "base/poison.h"

/* By the sender, before the message moves; by the receiver, before it is handled. bytes [RN_MSG_KINDS]: of the object
 * that a kind's one pointer leads to, 0: none; NULL: of no kind. */
#ifdef RN_WITH_ASAN
void rn_payload_poison(const uint32_t *bytes, const struct rn_msg *msg);
void rn_payload_unpoison(const uint32_t *bytes, const struct rn_msg *msg);
#else
static inline void rn_payload_poison(const uint32_t *bytes, const struct rn_msg *msg)
{
    (void)bytes;
    (void)msg;
}

static inline void rn_payload_unpoison(const uint32_t *bytes, const struct rn_msg *msg)
{
    (void)bytes;
    (void)msg;
}
#endif

#endif
