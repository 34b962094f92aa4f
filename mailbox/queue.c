/* The run queue: see queue.h for the contract.
 *
 * ck_ring with many producers and many consumers. A push that has claimed its slot waits for the
 * pushes that claimed slots before it, so a thread that is preempted between the two holds the
 * others up (they spin); nothing is allocated and no slot is lost. ck_ring keeps one slot free, so
 * there is one more than promised at least. */
#include "mailbox/queue.h"

#include <ck_ring.h>

#include "base/check.h"
#include "mailbox/tsan.h"

#define LINE 64
#define CAPACITY_MAX (1u << 30)

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

/* The store fence inside ck_ring is the release half; partner: its load fence in the pop. The full
 * release fence in front also orders the pusher's reads of the item before the popper's writes,
 * which a store fence alone does not promise; free on x86-64. */
bool rn_queue_push_mpmc(struct rn_queue *queue, void *item)
{
    RN_ASSERT(item != NULL);
    ck_pr_fence_release();
    RN_TSAN_RELEASE(item);
    return ck_ring_enqueue_mpmc(&queue->ring, queue->slots, item);
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
