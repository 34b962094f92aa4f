/* The run queue: see queue.h for the contract.
 *
 * ck_ring with many producers and many consumers. Slots are published in the order in which they
 * were claimed, so a push waits for the pushes that claimed before it. ck_ring spins there; with
 * more pushers than cores that ends in a convoy, in which every thread burns its time slice waiting
 * for one that is not running (measured: one push per slice, for good). So a push is made in its
 * two halves, reserve and commit, and the wait between them is ours and yields the core.
 *
 * Nothing is allocated and no slot is lost. ck_ring keeps one slot free, so there is one more than
 * promised at least. */
#include "mailbox/queue.h"

#include <ck_ring.h>
#include <sched.h>

#include "base/check.h"
#include "mailbox/tsan.h"

#define LINE 64
#define CAPACITY_MAX (1u << 30)
#define PAUSES_PER_YIELD 64 /* about 1 µs: a commit that is under way on another core takes less */

struct rn_queue {
    ck_ring_t ring;
    /* constant */
    _Alignas(LINE) ck_ring_buffer_t *slots;
    struct rn_heap *heap;
};

struct rn_queue *rn_queue_new(struct rn_heap *heap, uint32_t capacity)
{
    struct rn_queue *queue;
    uint32_t slots = 4;

    if (capacity > CAPACITY_MAX)
        return NULL;
    while (slots < capacity + 1)
        slots *= 2;
    queue = rn_alloc_aligned(heap, sizeof *queue, LINE);
    if (queue == NULL)
        return NULL;
    queue->heap = heap;
    queue->slots = rn_calloc(heap, slots, sizeof *queue->slots);
    if (queue->slots == NULL) {
        rn_free(heap, queue);
        return NULL;
    }
    ck_ring_init(&queue->ring, slots);
    return queue;
}

void rn_queue_free(struct rn_queue *queue)
{
    if (queue == NULL)
        return;
    rn_free(queue->heap, queue->slots);
    rn_free(queue->heap, queue);
}

/* Waits until all slots claimed before `ticket` are published. Relaxed: commit looks again. */
static void await_turn(const struct rn_queue *queue, unsigned int ticket)
{
    for (unsigned int tries = 1; ck_pr_load_uint(&queue->ring.p_tail) != ticket; tries++) {
        if (tries % PAUSES_PER_YIELD == 0)
            sched_yield();
        else
            ck_pr_stall();
    }
}

/* The store fence inside the commit is the release half; partner: ck_ring's load fence in the pop.
 * The full release fence in front also orders the pusher's reads of the item before the popper's
 * writes, which a store fence alone does not promise; free on x86-64. */
bool rn_queue_push_mpmc(struct rn_queue *queue, void *item)
{
    ck_ring_buffer_t *slot;
    unsigned int ticket;

    RN_ASSERT(item != NULL);
    slot = (ck_ring_buffer_t *)ck_ring_enqueue_reserve_mpmc(&queue->ring, queue->slots, &ticket);
    if (slot == NULL)
        return false;
    ck_pr_fence_release();
    RN_TSAN_RELEASE(item);
    ck_pr_store_ptr(&slot->value, item);
    await_turn(queue, ticket);
    ck_ring_enqueue_commit_mpmc(&queue->ring, ticket);
    return true;
}

/* The acquire fence completes ck_ring's load fence: what the popper writes stays behind the pop. */
void *rn_queue_pop_mpmc(struct rn_queue *queue)
{
    void *item = NULL;

    if (!ck_ring_dequeue_mpmc(&queue->ring, queue->slots, &item))
        return NULL;
    ck_pr_fence_acquire();
    RN_TSAN_ACQUIRE(item);
    return item;
}
