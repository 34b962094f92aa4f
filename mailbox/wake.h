/* An event count to sleep on (ck_ec): spin for a short while, then park in the kernel.
 *
 *   for (;;) {
 *       uint32_t ticket = rn_wake_ticket(w);
 *       if (there is work) break;
 *       rn_wake_wait(w, ticket, timeout);      // returns at once if a notify came after the ticket
 *   }
 *
 * No wake is lost between the ticket and the wait. */
#ifndef RN_MAILBOX_WAKE_H
#define RN_MAILBOX_WAKE_H

#include <stdbool.h>
#include <stdint.h>

struct rn_wake {
    _Alignas(64) uint32_t count[16]; /* ck_ec32 in wake.c; its size is asserted there */
};

void rn_wake_init(struct rn_wake *wake);

/* The current count; any thread. */
uint32_t rn_wake_ticket(const struct rn_wake *wake);

/* Returns true when the count differs from the ticket; false when timeout_us (negative: none) has
 * passed first. Spins spin_us first (0: parks at once). Any thread. */
bool rn_wake_wait(struct rn_wake *wake, uint32_t ticket, int64_t timeout_us, uint32_t spin_us);

/* Advances the count and wakes all sleepers; costs no system call when there is none. What was
 * written before is seen by those woken. Any thread. */
void rn_wake_notify(struct rn_wake *wake);

#endif
