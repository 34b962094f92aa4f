/* The ring: capacity, order, the wrap of the indices at 2^32, and one thread against another.
 * The source is included, so that the indices can be set just below the wrap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "mailbox/ring.c"
#include "base/rng.h"
#include "tests/mailbox/threads.h"

#define CELL_BYTES 200

static struct rn_ring *ring_at(struct rn_heap *heap, uint32_t capacity, uint32_t position)
{
    struct rn_ring *ring;

    rn_heap_init(heap, NULL);
    ring = rn_ring_new(heap, capacity, CELL_BYTES);
    assert_non_null(ring);
    ring->ring.c_head = ring->ring.p_head = ring->ring.p_tail = position;
    ring->read = ring->write = position;
    return ring;
}

static void test_capacity(void **state)
{
    static const uint32_t asked[] = {0, 1, 4, 5, 8, 100}, got[] = {4, 4, 4, 8, 8, 128};

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct rn_heap heap;
        struct rn_ring *ring = ring_at(&heap, asked[i], 0);
        uint32_t n = 0;

        assert_null(rn_ring_peek_spsc(ring));
        for (; rn_ring_reserve_spsc(ring) != NULL; n++) {
            assert_ptr_equal(rn_ring_reserve_spsc(ring), rn_ring_reserve_spsc(ring)); /* the same until published */
            rn_ring_publish_spsc(ring);
        }
        assert_int_equal(n, got[i]);
        assert_int_equal(rn_ring_count(ring), n);
        rn_ring_free(ring);
        assert_int_equal(rn_heap_blocks(&heap), 0);
    }
}

/* Random bursts of both sides against a count; the content tells the order. Starts run over 2^32,
 * and over 2^31 for those who would compare indices as signed. */
static void test_order_and_wrap(void **state)
{
    static const uint32_t starts[] = {0, UINT32_MAX - 3, UINT32_MAX - 100, INT32_MAX - 50u};

    (void)state;
    for (uint64_t s = 0; s < 4; s++) {
        struct rn_heap heap;
        struct rn_ring *ring = ring_at(&heap, 16, starts[s]);
        uint64_t rng = s, published = 0, released = 0;

        for (int step = 0; step < 3000; step++) {
            uint64_t draw = rn_splitmix64(&rng);
            uint64_t *cell;

            if (draw % 2 == 0) {
                cell = (uint64_t *)rn_ring_reserve_spsc(ring);
                assert_int_equal(cell == NULL, published - released == 16);
                if (cell != NULL) {
                    cell[0] = published++;
                    rn_ring_publish_spsc(ring);
                }
            } else {
                cell = (uint64_t *)rn_ring_peek_spsc(ring);
                assert_int_equal(cell == NULL, published == released);
                if (cell != NULL) {
                    assert_ptr_equal(cell, rn_ring_peek_spsc(ring)); /* the same until released */
                    assert_int_equal(cell[0], released++);
                    rn_ring_release_spsc(ring);
                }
            }
            assert_int_equal(rn_ring_count(ring), published - released);
        }
        assert_true(published > 1000);
        rn_ring_free(ring);
    }
}

static void *refuse_after(void *user, size_t bytes, size_t alignment)
{
    int *left = (int *)user;

    if ((*left)-- <= 0)
        return NULL;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void give_back(void *user, void *ptr, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(ptr);
}

static void test_refusal(void **state)
{
    (void)state;
    for (int calls = 0; calls <= 3; calls++) {
        int left = calls;
        runnel_allocator hook = {refuse_after, give_back, &left};
        struct rn_heap heap;
        struct rn_ring *ring;

        rn_heap_init(&heap, &hook);
        ring = rn_ring_new(&heap, 8, 8);
        assert_int_equal(ring != NULL, calls == 3);
        rn_ring_free(ring);
        assert_int_equal(rn_heap_blocks(&heap), 0);
        assert_null(rn_ring_new(&heap, UINT32_MAX, 8));
    }
}

struct stream {
    struct rn_ring *ring;
    uint64_t cells;
    uint64_t damaged;
};

static void *produce(void *user)
{
    struct stream *stream = (struct stream *)user;

    for (uint64_t n = 0; n < stream->cells; n++) {
        unsigned char *cell;

        while ((cell = (unsigned char *)rn_ring_reserve_spsc(stream->ring)) == NULL)
            sched_yield();
        memset(cell, (int)(n * 31 % 251), CELL_BYTES);
        rn_ring_publish_spsc(stream->ring);
    }
    return NULL;
}

static void *consume(void *user)
{
    struct stream *stream = (struct stream *)user;

    for (uint64_t n = 0; n < stream->cells; n++) {
        unsigned char *cell;

        while ((cell = (unsigned char *)rn_ring_peek_spsc(stream->ring)) == NULL)
            sched_yield();
        for (int i = 0; i < CELL_BYTES; i++)
            stream->damaged += cell[i] != n * 31 % 251;
        memset(cell, 0xff, CELL_BYTES); /* ours until released */
        rn_ring_release_spsc(stream->ring);
    }
    return NULL;
}

static void test_stress(void **state)
{
    static const uint32_t capacities[] = {4, 64};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct rn_heap heap;
        struct stream stream = {.ring = ring_at(&heap, capacities[i], UINT32_MAX - 1000),
                                .cells = 200000 / TEST_SLOWDOWN};
        struct crew crew = {.n = 0};

        crew_start(&crew, produce, &stream);
        crew_start(&crew, consume, &stream);
        crew_join(&crew);
        assert_int_equal(stream.damaged, 0);
        assert_int_equal(rn_ring_count(stream.ring), 0);
        rn_ring_free(stream.ring);
    }
}

static void *consume_and_free(void *user)
{
    consume(user);
    rn_ring_free(((struct stream *)user)->ring);
    return NULL;
}

/* The consumer of the last cell may free the ring: publishing it is the producer's last touch. A breach is
 * certain to show under ThreadSanitizer, and likely under AddressSanitizer. */
static void test_freed_behind_the_last_cell(void **state)
{
    (void)state;
    for (int round = 0; round < 400 / TEST_SLOWDOWN; round++) {
        struct rn_heap heap;
        struct stream stream = {.ring = ring_at(&heap, 8, 0), .cells = 6};
        struct crew crew = {.n = 0};

        crew_start(&crew, produce, &stream);
        crew_start(&crew, consume_and_free, &stream);
        crew_join(&crew);
        assert_int_equal(stream.damaged, 0);
        assert_int_equal(rn_heap_blocks(&heap), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_order_and_wrap),
        cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_stress),
        cmocka_unit_test(test_freed_behind_the_last_cell),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
