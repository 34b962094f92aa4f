/* A fixed number of equal cells that are taken and given back by any thread without a lock.
 *
 * A Treiber stack of cell indices; the head carries a 32-bit tag against ABA. Capacity is a bound
 * by design: a pool that is empty means "too much at once", never "allocate". */
#ifndef RN_MAILBOX_POOL_H
#define RN_MAILBOX_POOL_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/alloc.h"

struct rn_pool {
    _Alignas(64) _Atomic(uint64_t) head; /* tag << 32 | index of the top cell, or NONE */
    _Atomic(uint32_t) free_cells;        /* statistics */
    _Alignas(64) char *cells;
    _Atomic(uint32_t) *next;
    uint32_t capacity;
    uint32_t cell_bytes; /* rounded up to 64 */
    struct rn_heap *heap;
};

/* NO_MEMORY: nothing is held. */
runnel_status rn_pool_init(struct rn_pool *pool, struct rn_heap *heap, uint32_t capacity, uint32_t cell_bytes);
void rn_pool_fini(struct rn_pool *pool);

/* A cell with unspecified content aligned to 64, or NULL when all are taken. Lock-free, any thread. */
void *rn_pool_take(struct rn_pool *pool);

/* Only cells of this pool, once each (debug builds check). Lock-free, any thread. */
void rn_pool_give(struct rn_pool *pool, void *cell);

/* The cell's index in [0, capacity), and back. */
uint32_t rn_pool_index(const struct rn_pool *pool, const void *cell);
void *rn_pool_cell(const struct rn_pool *pool, uint32_t index);

/* Cells taken, roughly; exact when nobody takes or gives. */
uint32_t rn_pool_taken(const struct rn_pool *pool);

#endif
