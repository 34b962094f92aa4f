/* A bounded queue of pointers between many producers and many consumers (ck_ring, MPMC): the
 * scheduler's run queue. */
#ifndef RN_MAILBOX_QUEUE_H
#define RN_MAILBOX_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"

struct rn_queue; /* opaque: ck_ring lives in queue.c */

/* Room for `capacity` pointers. NULL on refusal. */
struct rn_queue *rn_queue_new(struct rn_heap *heap, uint32_t capacity);
void rn_queue_free(struct rn_queue *queue);

/* False when full. Any thread. The pointed-to object is seen by the popper as the pusher left it. */
bool rn_queue_push_mpmc(struct rn_queue *queue, void *item);

/* NULL when empty. Any thread. */
void *rn_queue_pop_mpmc(struct rn_queue *queue);

#endif
