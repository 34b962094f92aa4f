/* The run queue: capacity, order, the wrap of the indices, no loss, and the closed circulation that
 * Concurrency Kit tests its own queues with: with one item more than threads, each of which puts
 * back what it took, "empty" is always a lie. The source is included to set the indices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "mailbox/queue.c"
#include "base/rng.h"
#include "tests/mailbox/threads.h"

static struct rn_queue *queue_at(struct rn_heap *heap, uint32_t capacity, uint32_t position)
{
    struct rn_queue *queue;

    rn_heap_init(heap, NULL);
    queue = rn_queue_new(heap, capacity);
    assert_non_null(queue);
    queue->ring.c_head = queue->ring.p_head = queue->ring.p_tail = position;
    return queue;
}

static void test_order_and_wrap(void **state)
{
    static const uint32_t starts[] = {0, UINT32_MAX - 3, UINT32_MAX - 100, INT32_MAX - 50u};
    char items[64];

    (void)state;
    for (uint64_t s = 0; s < 4; s++) {
        struct rn_heap heap;
        struct rn_queue *queue = queue_at(&heap, 20, starts[s]);
        uint64_t rng = s, pushed = 0, popped = 0;

        for (int step = 0; step < 3000; step++) {
            if (rn_splitmix64(&rng) % 2 == 0) {
                bool fits = rn_queue_push_mpmc(queue, &items[pushed % 64]);

                assert_true(fits || pushed - popped >= 20); /* never refused below the promise */
                assert_true(pushed - popped <= 31);
                pushed += fits;
            } else {
                void *item = rn_queue_pop_mpmc(queue);

                assert_ptr_equal(item, pushed == popped ? NULL : (void *)&items[popped % 64]);
                popped += item != NULL;
            }
        }
        assert_true(popped > 1000);
        rn_queue_free(queue);
        assert_int_equal(rn_heap_blocks(&heap), 0);
    }
}

static void test_bounds(void **state)
{
    struct rn_heap heap;

    (void)state;
    rn_heap_init(&heap, NULL);
    assert_null(rn_queue_new(&heap, UINT32_MAX));
    for (uint32_t capacity = 0; capacity < 40; capacity++) {
        struct rn_queue *queue = rn_queue_new(&heap, capacity);
        char item;

        for (uint32_t i = 0; i < capacity; i++)
            assert_true(rn_queue_push_mpmc(queue, &item));
        rn_queue_free(queue);
    }
    rn_queue_free(NULL);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* ---- Many threads ------------------------------------------------------------------------ */

struct item {
    uint64_t producer, number, check;
};

#define SIDES 3 /* producers, and consumers */
#define EACH (60000 / TEST_SLOWDOWN)

struct traffic {
    struct rn_queue *queue;
    struct item items[SIDES][EACH];
    _Atomic(uint64_t) next_producer, received, damaged, out_of_order;
    _Atomic(uint8_t) seen[SIDES][EACH];
};

static void *push_all(void *user)
{
    struct traffic *traffic = (struct traffic *)user;
    uint64_t id = bump(&traffic->next_producer);

    for (uint64_t n = 0; n < EACH; n++) {
        struct item *item = &traffic->items[id][n];

        *item = (struct item){id, n, id * EACH + n}; /* the race detector's bait */
        while (!rn_queue_push_mpmc(traffic->queue, item))
            sched_yield();
    }
    return NULL;
}

/* Each consumer sees each producer's items in rising order; together they see each item once. */
static void *pop_some(void *user)
{
    struct traffic *traffic = (struct traffic *)user;
    int64_t last[SIDES] = {-1, -1, -1};

    while (peek(&traffic->received) < SIDES * EACH) {
        struct item *item = (struct item *)rn_queue_pop_mpmc(traffic->queue);

        if (item == NULL) {
            sched_yield();
            continue;
        }
        bump(&traffic->received);
        if (item->check != item->producer * EACH + item->number ||
            atomic_fetch_add_explicit(&traffic->seen[item->producer][item->number], 1, memory_order_relaxed) != 0)
            bump(&traffic->damaged);
        if ((int64_t)item->number <= last[item->producer])
            bump(&traffic->out_of_order);
        last[item->producer] = (int64_t)item->number;
        item->check = 0; /* ours now */
    }
    return NULL;
}

static void test_no_loss(void **state)
{
    static struct traffic traffic;
    struct crew crew = {.n = 0};
    struct rn_heap heap;

    (void)state;
    traffic.queue = queue_at(&heap, 60, UINT32_MAX - 1000);
    for (int i = 0; i < SIDES; i++) {
        crew_start(&crew, push_all, &traffic);
        crew_start(&crew, pop_some, &traffic);
    }
    crew_join(&crew);
    assert_int_equal(peek(&traffic.received), SIDES * EACH);
    assert_int_equal(peek(&traffic.damaged), 0);
    assert_int_equal(peek(&traffic.out_of_order), 0);
    for (int i = 0; i < SIDES; i++)
        for (int n = 0; n < EACH; n++)
            assert_int_equal(traffic.seen[i][n], 1);
    assert_null(rn_queue_pop_mpmc(traffic.queue));
    rn_queue_free(traffic.queue);
}

#define CIRCLERS 4

struct circle {
    struct rn_queue *queue;
    uint64_t turns[CIRCLERS + 1]; /* one per item, owned by who holds the item */
    _Atomic(uint64_t) empty, full;
};

static void *circulate(void *user)
{
    struct circle *circle = (struct circle *)user;

    for (int n = 0; n < 40000 / TEST_SLOWDOWN; n++) {
        uint64_t *item = (uint64_t *)rn_queue_pop_mpmc(circle->queue);

        if (item == NULL) {
            bump(&circle->empty);
            continue;
        }
        ++*item;
        if (!rn_queue_push_mpmc(circle->queue, item))
            bump(&circle->full);
    }
    return NULL;
}

static void test_closed_circulation(void **state)
{
    struct circle circle = {.queue = NULL};
    struct crew crew = {.n = 0};
    struct rn_heap heap;
    uint64_t turns = 0;

    (void)state;
    circle.queue = queue_at(&heap, CIRCLERS + 1, 0);
    for (int i = 0; i <= CIRCLERS; i++)
        assert_true(rn_queue_push_mpmc(circle.queue, &circle.turns[i]));
    for (int i = 0; i < CIRCLERS; i++)
        crew_start(&crew, circulate, &circle);
    crew_join(&crew);
    assert_int_equal(peek(&circle.empty), 0);
    assert_int_equal(peek(&circle.full), 0); /* room for all: the scheduler relies on it */
    for (int i = 0; i <= CIRCLERS; i++) {
        assert_non_null(rn_queue_pop_mpmc(circle.queue));
        turns += circle.turns[i];
    }
    assert_int_equal(turns, CIRCLERS * (40000 / TEST_SLOWDOWN));
    rn_queue_free(circle.queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_wrap),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_no_loss),
        cmocka_unit_test(test_closed_circulation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
