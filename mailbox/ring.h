/* A ring of equal cells written in place by one producer and read in place by one consumer, on
 * ck_ring: the token ring between an actor and the host.
 *
 *   producer:  cell = rn_ring_reserve_spsc(r);  fill it;  rn_ring_publish_spsc(r);
 *   consumer:  cell = rn_ring_peek_spsc(r);     use it;   rn_ring_release_spsc(r);
 *
 * A cell stays valid for the consumer until it releases it. Publishing is the producer's last touch: the
 * consumer may free the ring once it has the last cell. */
#ifndef RN_MAILBOX_RING_H
#define RN_MAILBOX_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"

struct rn_ring; /* opaque: ck_ring lives in ring.c */

/* Room for `capacity` published cells (rounded up to a power of two, at least 4) of cell_bytes, each
 * aligned to 16. NULL on refusal. */
struct rn_ring *rn_ring_new(struct rn_heap *heap, uint32_t capacity, uint32_t cell_bytes);
void rn_ring_free(struct rn_ring *ring);

/* Producer. The next cell to fill, or NULL when the ring is full. Same cell until published. */
void *rn_ring_reserve_spsc(struct rn_ring *ring);
void rn_ring_publish_spsc(struct rn_ring *ring);

/* Consumer. The oldest cell, or NULL when the ring is empty. Same cell until released. */
void *rn_ring_peek_spsc(struct rn_ring *ring);
void rn_ring_release_spsc(struct rn_ring *ring);

/* Consumer. Step 0 asks for the memory of the ring itself, step 1 for that of the oldest cell. */
void rn_ring_prefetch(const struct rn_ring *ring, int step);

/* Consumer or producer, a moment's value. */
uint32_t rn_ring_count(const struct rn_ring *ring);

#endif
