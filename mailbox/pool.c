/* The pool: see pool.h for the contract, orders.h for what each memory order is for.
 *
 *     head = tag | 3        next:  [0]    [1]    [2]    [3]
 *                                  NONE   TAKEN   0      2        3 → 2 → 0, cell 1 is taken
 *
 * The tag changes with every exchange of the head, so one that read `next` of a cell which was
 * taken and given back meanwhile fails (ABA). It would have to be overtaken by exactly a multiple
 * of 2^32 operations to be fooled.
 *
 * Under AddressSanitizer a cell that is in the pool is poisoned: a late write is reported. */
#include "mailbox/pool.h"

#include <assert.h>
#include <stdbool.h>

#include "base/check.h"
#include "base/poison.h"
#include "mailbox/orders.h"

#define NONE 0xffffffffu  /* the end of the stack */
#define TAKEN 0xfffffffeu /* in `next` of a cell that is out */
#define LINE 64u

static uint32_t top_of(uint64_t head)
{
    return (uint32_t)head;
}

/* The head that follows `head`, with another top. */
static uint64_t next_head(uint64_t head, uint32_t top)
{
    return ((head >> 32) + 1) << 32 | top;
}

runnel_status rn_pool_init(struct rn_pool *pool, struct rn_heap *heap, uint32_t capacity, uint32_t cell_bytes)
{
    size_t rounded = ((size_t)cell_bytes + LINE - 1) & ~(size_t)(LINE - 1);
    size_t bytes;

    if (capacity > INT32_MAX || rounded > UINT32_MAX || !rn_mul_size(capacity, rounded, &bytes))
        return RUNNEL_NO_MEMORY;
    pool->cells = rn_alloc_aligned(heap, bytes, LINE);
    pool->next = rn_alloc(heap, capacity, sizeof *pool->next);
    if (pool->cells == NULL || pool->next == NULL) {
        rn_free(heap, pool->cells);
        rn_free(heap, (void *)pool->next);
        return RUNNEL_NO_MEMORY;
    }
    pool->heap = heap;
    pool->capacity = capacity;
    pool->cell_bytes = (uint32_t)rounded;
    for (uint32_t i = 0; i < capacity; i++)
        atomic_init(&pool->next[i], i + 1 < capacity ? i + 1 : NONE);
    atomic_init(&pool->head, capacity > 0 ? 0 : NONE);
    atomic_init(&pool->free_cells, capacity);
    RN_POISON(pool->cells, bytes);
    return RUNNEL_OK;
}

void rn_pool_fini(struct rn_pool *pool)
{
    RN_UNPOISON(pool->cells, (size_t)pool->capacity * pool->cell_bytes);
    rn_free(pool->heap, pool->cells);
    rn_free(pool->heap, (void *)pool->next);
    pool->cells = NULL;
    pool->next = NULL;
    pool->capacity = 0;
}

void *rn_pool_take(struct rn_pool *pool)
{
    uint64_t head = atomic_load_explicit(&pool->head, RN_ORDER_TAKE);
    uint32_t index, next;
    void *cell;

    do {
        index = top_of(head);
        if (index == NONE)
            return NULL;
        /* Relaxed: ordered by the load of the head; a value of another life fails with its tag. */
        next = atomic_load_explicit(&pool->next[index], memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&pool->head, &head, next_head(head, next), RN_ORDER_TAKE,
                                                    RN_ORDER_TAKE));
    atomic_store_explicit(&pool->next[index], TAKEN, memory_order_relaxed); /* the cell is ours */
    atomic_fetch_sub_explicit(&pool->free_cells, 1, memory_order_relaxed);  /* statistics */
    cell = rn_pool_cell(pool, index);
    RN_UNPOISON(cell, pool->cell_bytes);
    return cell;
}

void rn_pool_give(struct rn_pool *pool, void *cell)
{
    uint32_t index = rn_pool_index(pool, cell);
    uint64_t head = atomic_load_explicit(&pool->head, memory_order_relaxed); /* a guess for the exchange */

    /* Relaxed: written by ourselves or by the owner before us. */
    RN_ASSERT(atomic_load_explicit(&pool->next[index], memory_order_relaxed) == TAKEN);
    RN_POISON(cell, pool->cell_bytes);
    do {
        /* Relaxed: published by the exchange. */
        atomic_store_explicit(&pool->next[index], top_of(head), memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&pool->head, &head, next_head(head, index), RN_ORDER_GIVE,
                                                    memory_order_relaxed));
    atomic_fetch_add_explicit(&pool->free_cells, 1, memory_order_relaxed); /* statistics */
}

uint32_t rn_pool_index(const struct rn_pool *pool, const void *cell)
{
    size_t offset = (size_t)((const char *)cell - pool->cells);

    RN_ASSERT(offset % pool->cell_bytes == 0 && offset / pool->cell_bytes < pool->capacity);
    return (uint32_t)(offset / pool->cell_bytes);
}

void *rn_pool_cell(const struct rn_pool *pool, uint32_t index)
{
    RN_ASSERT(index < pool->capacity);
    return pool->cells + (size_t)index * pool->cell_bytes;
}

uint32_t rn_pool_taken(const struct rn_pool *pool)
{
    /* Signed: a cell may be given back by one thread before another has counted its taking. */
    int64_t free_cells = (int32_t)atomic_load_explicit(&pool->free_cells, memory_order_relaxed);
    int64_t taken = (int64_t)pool->capacity - free_cells;

    return (uint32_t)(taken < 0 ? 0 : taken > pool->capacity ? pool->capacity : taken);
}
