/* The gate: see gate.h. */
#include "mailbox/gate.h"

#include <stddef.h>

#include "base/check.h"

/* Who leaves notifies before it is counted out, since the gate may be gone behind that. So the owner can be awake a few
 * instructions too early, and looks again after this time. */
#define LOOK_AGAIN_US 200

void rn_gate_init(struct rn_gate *gate)
{
    atomic_init(&gate->inside, 0);
    atomic_init(&gate->closed, 0);
    rn_wake_init(&gate->wake);
}

/* seq_cst, partner rn_gate_close and rn_gate_await_empty: either the caller sees that it is closed, or the owner sees
 * that somebody is inside. */
bool rn_gate_enter(struct rn_gate *gate)
{
    atomic_fetch_add(&gate->inside, 1);
    if (atomic_load(&gate->closed) == 0)
        return true;
    rn_gate_leave(gate);
    return false;
}

void rn_gate_leave(struct rn_gate *gate)
{
    RN_ASSERT(atomic_load(&gate->inside) > 0);
    if (rn_gate_is_closed(gate))
        rn_wake_notify(&gate->wake);
    atomic_fetch_sub(&gate->inside, 1); /* seq_cst: what was done inside comes before; partner: rn_gate_await_empty */
}

bool rn_gate_is_closed(const struct rn_gate *gate)
{
    return atomic_load(&((struct rn_gate *)(uintptr_t)gate)->closed) != 0; /* partner: rn_gate_close */
}

void rn_gate_close(struct rn_gate *gate)
{
    atomic_store(&gate->closed, 1); /* partner: rn_gate_enter, rn_gate_is_closed */
}

bool rn_gate_is_empty(const struct rn_gate *gate)
{
    return atomic_load(&((struct rn_gate *)(uintptr_t)gate)->inside) == 0; /* partner: rn_gate_enter, rn_gate_leave */
}

void rn_gate_await_empty(struct rn_gate *gate)
{
    for (;;) {
        uint32_t ticket = rn_wake_ticket(&gate->wake);

        if (rn_gate_is_empty(gate))
            return;
        rn_wake_wait(&gate->wake, ticket, LOOK_AGAIN_US, 0);
    }
}
