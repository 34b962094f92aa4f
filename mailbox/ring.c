/* The ring of cells: see ring.h for the contract.
 *
 * ck_ring counts and orders; the cells lie beside it, cell i belonging to slot i. The producer
 * writes into the cell of the slot it would fill next, the consumer reads the cell of the slot it
 * would empty next, and the pointer that ck_ring itself carries is never looked at.
 *
 *     read                     write              positions run freely and wrap at 2^32;
 *       v                        v                slot = position & mask
 *     [ 5 ][ 6 ][ 7 ][ 8 ][ 9 ][   ][   ][   ]
 *
 * Each side remembers how far it may go before it has to look at the other side's index again
 * (`room`, `ready`): in a stream the two cache lines travel once per many cells.
 *
 * Invariant: write - read ≤ capacity. ck_ring holds one entry less than its slots, so it has twice
 * as many slots as cells are promised. */
#include "mailbox/ring.h"

#include <ck_ring.h>

#include "base/check.h"
#include "mailbox/tsan.h"

#define LINE 64
#define CAPACITY_MIN 4u
#define CAPACITY_MAX (1u << 30)

struct rn_ring {
    ck_ring_t ring;
    /* producer's line */
    _Alignas(LINE) uint32_t write; /* position of the next cell to publish */
    uint32_t room;                 /* cells that can surely be published */
    /* consumer's line */
    _Alignas(LINE) uint32_t read; /* position of the next cell to release */
    uint32_t ready;               /* cells that are surely published */
    /* constant */
    _Alignas(LINE) uint32_t capacity;
    uint32_t cell_bytes;
    char *cells;             /* [capacity] */
    ck_ring_buffer_t *slots; /* [2 × capacity] */
    struct rn_heap *heap;
};

static uint32_t round_up(uint32_t capacity)
{
    uint32_t rounded = CAPACITY_MIN;

    while (rounded < capacity)
        rounded *= 2;
    return rounded;
}

struct rn_ring *rn_ring_new(struct rn_heap *heap, uint32_t capacity, uint32_t cell_bytes)
{
    struct rn_ring *ring;

    if (capacity > CAPACITY_MAX)
        return NULL;
    ring = rn_alloc_aligned(heap, sizeof *ring, LINE);
    if (ring == NULL)
        return NULL;
    *ring = (struct rn_ring){.capacity = round_up(capacity), .cell_bytes = (cell_bytes + 15u) & ~15u, .heap = heap};
    ring->cells = rn_alloc(heap, ring->capacity, ring->cell_bytes); /* read only once published: not cleared */
    ring->slots = rn_calloc(heap, ring->capacity, 2 * sizeof *ring->slots);
    if (ring->cells == NULL || ring->slots == NULL) {
        rn_ring_free(ring);
        return NULL;
    }
    ck_ring_init(&ring->ring, 2 * ring->capacity);
    return ring;
}

void rn_ring_free(struct rn_ring *ring)
{
    struct rn_heap *heap;

    if (ring == NULL)
        return;
    heap = ring->heap;
    rn_free(heap, ring->cells);
    rn_free(heap, ring->slots);
    rn_free(heap, ring);
}

static void *cell_at(const struct rn_ring *ring, uint32_t position)
{
    return ring->cells + (size_t)(position & (ring->capacity - 1)) * ring->cell_bytes;
}

/* The control dependency on the consumer's index orders our writes into the cell behind its last
 * reads; it told us so with the fence in rn_ring_release_spsc. */
void *rn_ring_reserve_spsc(struct rn_ring *ring)
{
    if (ring->room == 0) {
        ring->room = ring->capacity - ck_ring_size(&ring->ring);
        if (ring->room == 0)
            return NULL;
        RN_TSAN_ACQUIRE(&ring->read);
    }
    return cell_at(ring, ring->write);
}

/* The fence inside the commit is the release half; partner: the fence in rn_ring_peek_spsc. The commit is
 * the last touch: the consumer of the last cell may free the ring. */
void rn_ring_publish_spsc(struct rn_ring *ring)
{
    RN_ASSERT(ring->room > 0);
    ring->write++;
    ring->room--;
    RN_TSAN_RELEASE(&ring->write);
    ck_ring_enqueue_commit_spsc(&ring->ring);
}

/* Acquire fence; partner: the fence in rn_ring_publish_spsc. Weaker: the cell is read before it is
 * known to be written. */
void *rn_ring_peek_spsc(struct rn_ring *ring)
{
    if (ring->ready == 0) {
        ring->ready = ck_ring_size(&ring->ring);
        if (ring->ready == 0)
            return NULL;
        ck_pr_fence_acquire();
        RN_TSAN_ACQUIRE(&ring->write);
    }
    return cell_at(ring, ring->read);
}

void rn_ring_prefetch(const struct rn_ring *ring, int step)
{
    const char *cell;

    if (step == 0) {
        __builtin_prefetch(&ring->ring.p_tail);
        __builtin_prefetch(&ring->ring.c_head, 1);
        __builtin_prefetch(&ring->read, 1);
        __builtin_prefetch(&ring->capacity);
        return;
    }
    cell = cell_at(ring, ring->read);
    __builtin_prefetch(cell);
    __builtin_prefetch(cell + LINE);
}

/* Release fence: ck_ring 0.7 orders only stores here, but the producer must not overwrite what is
 * still being read. Partner: the index load in rn_ring_reserve_spsc. Free on x86-64. */
void rn_ring_release_spsc(struct rn_ring *ring)
{
    void *unused;
    bool taken;

    RN_ASSERT(ring->ready > 0);
    ck_pr_fence_release();
    RN_TSAN_RELEASE(&ring->read);
    taken = ck_ring_dequeue_spsc(&ring->ring, ring->slots, &unused);
    RN_ASSERT(taken);
    (void)taken;
    ring->read++;
    ring->ready--;
}

uint32_t rn_ring_count(const struct rn_ring *ring)
{
    return ck_ring_size(&ring->ring);
}
