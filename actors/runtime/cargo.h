/* What a message carries belongs to nobody between its send and its handler. Under AddressSanitizer who touches it then
 * is reported, above all the sender that goes on with what it has given away: on another thread that would be a race
 * that is seldom seen. Else nothing happens. */
#ifndef RN_ACTORS_RUNTIME_CARGO_H
#define RN_ACTORS_RUNTIME_CARGO_H

#include "actors/protocol.h"
#include "base/poison.h"

#ifdef RN_WITH_ASAN
/* By the sender, before the message moves; by the receiver, before it is handled. */
void rn_cargo_seal(const struct rn_msg *msg);
void rn_cargo_unseal(const struct rn_msg *msg);
#else
static inline void rn_cargo_seal(const struct rn_msg *msg)
{
    (void)msg;
}

static inline void rn_cargo_unseal(const struct rn_msg *msg)
{
    (void)msg;
}
#endif

#endif
