/* A gate: how many threads are inside calls that block, so that who frees what they wait on can wait for them.
 *
 *   caller  if (!rn_gate_enter(g)) return CLOSED;  ... blocks, looks at rn_gate_is_closed ...  rn_gate_leave(g);
 *   owner   rn_gate_close(g);  wakes whatever they sleep on;  rn_gate_await_empty(g);  frees
 *
 * A call that begins once the owner has gone on to free is the host's mistake: nothing can guard against that. */
#ifndef RN_MAILBOX_GATE_H
#define RN_MAILBOX_GATE_H

#include <stdbool.h>

#include "mailbox/flag.h"
#include "mailbox/wake.h"

struct rn_gate {
    _Atomic(uint32_t) inside;
    _Atomic(uint32_t) closed;
    struct rn_wake wake;
};

void rn_gate_init(struct rn_gate *gate);

/* False: it is closed, and the caller is not inside. Any thread. */
bool rn_gate_enter(struct rn_gate *gate);

/* The last touch of the gate, and of what it guards, by this call. */
void rn_gate_leave(struct rn_gate *gate);

bool rn_gate_is_closed(const struct rn_gate *gate);

/* Nobody enters from now on. */
void rn_gate_close(struct rn_gate *gate);

/* Of a closed gate: whoever was inside has left. False for a moment, too, where somebody is turned away. */
bool rn_gate_is_empty(const struct rn_gate *gate);

/* Blocks until nobody is inside. Of a closed gate; not from inside. */
void rn_gate_await_empty(struct rn_gate *gate);

#endif
