/* The block pool against a model that is too simple to be wrong: an array of counts and a list that
 * is searched from end to end. Random operations; the pool's own check after every one. */
#include <string.h>

#include "base/rng.h"
#include "cache/block_pool.h"
#include "tests/base/aborts.h"
#include "tests/base/refusing.h"

#define BLOCKS 97

struct naive {
    uint32_t count[BLOCKS];
    uint32_t free[BLOCKS]; /* [n_free], the last one is the next to be taken */
    uint32_t n_free;
};

static void naive_init(struct naive *m)
{
    memset(m, 0, sizeof *m);
    for (uint32_t i = BLOCKS; i-- > 0;)
        m->free[m->n_free++] = i;
}

static void assert_same(const struct rn_block_pool *pool, const struct naive *m)
{
    assert_true(rn_block_pool_check(pool));
    assert_int_equal(pool->n_free, m->n_free);
    assert_memory_equal(pool->references, m->count, sizeof m->count);
}

static void random_take(struct rn_block_pool *pool, struct naive *m, uint64_t *rng)
{
    uint32_t n = (uint32_t)(rn_splitmix64(rng) % 12), got[12];
    bool fits = n <= m->n_free;

    memset(got, 0xff, sizeof got);
    assert_int_equal(rn_block_pool_take(pool, n, got), fits);
    for (uint32_t i = 0; i < 12; i++) {
        if (!fits || i >= n) {
            assert_int_equal(got[i], UINT32_MAX); /* all or none, and not one more */
        } else {
            assert_int_equal(got[i], m->free[--m->n_free]);
            m->count[got[i]] = 1;
        }
    }
}

/* Up to 8 used blocks, repetitions allowed as long as each can be released that often. */
static uint32_t choose_used(const struct naive *m, uint64_t *rng, uint32_t *out)
{
    uint32_t n = 0, spent[BLOCKS] = {0};

    for (int i = 0; i < 8; i++) {
        uint32_t block = (uint32_t)(rn_splitmix64(rng) % BLOCKS);

        if (m->count[block] > spent[block]) {
            spent[block]++;
            out[n++] = block;
        }
    }
    return n;
}

static void random_operations(void **state)
{
    struct rn_heap heap;
    struct rn_block_pool pool;
    struct naive m;
    uint32_t refused = 0;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t rng = seed;

        assert_int_equal(rn_block_pool_init(&pool, &heap, BLOCKS), RUNNEL_OK);
        naive_init(&m);
        assert_same(&pool, &m);
        for (int step = 0; step < 2000; step++) {
            uint32_t chosen[8], n = choose_used(&m, &rng, chosen);
            uint64_t what = rn_splitmix64(&rng) % 8;

            if (what < 3) {
                refused += m.n_free < 11;
                random_take(&pool, &m, &rng);
            } else if (what == 3) {
                rn_block_pool_ref(&pool, chosen, n);
                for (uint32_t i = 0; i < n; i++)
                    m.count[chosen[i]]++;
            } else {
                rn_block_pool_unref(&pool, chosen, n);
                for (uint32_t i = 0; i < n; i++)
                    if (--m.count[chosen[i]] == 0)
                        m.free[m.n_free++] = chosen[i];
            }
            assert_same(&pool, &m);
        }
        rn_block_pool_fini(&pool);
        assert_int_equal(rn_heap_blocks(&heap), 0);
    }
    assert_true(refused > 100); /* the full pool was really reached */
}

static void order_is_last_in_first_out(void **state)
{
    struct rn_heap heap;
    struct rn_block_pool pool;
    uint32_t blocks[4];

    (void)state;
    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_block_pool_init(&pool, &heap, 4), RUNNEL_OK);
    assert_true(rn_block_pool_take(&pool, 4, blocks));
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(blocks[i], i);
    assert_false(rn_block_pool_take(&pool, 1, blocks));
    assert_true(rn_block_pool_take(&pool, 0, blocks));
    rn_block_pool_unref(&pool, (uint32_t[]){2, 0}, 2);
    assert_true(rn_block_pool_take(&pool, 2, blocks));
    assert_int_equal(blocks[0], 0);
    assert_int_equal(blocks[1], 2);
    rn_block_pool_fini(&pool);
    rn_block_pool_fini(&pool); /* harmless */
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void refusals_and_ranges(void **state)
{
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);
    struct rn_block_pool pool;

    (void)state;
    for (uint32_t allowed = 0; allowed < 2; allowed++) {
        refusing_allow(&refusing, allowed);
        assert_int_equal(rn_block_pool_init(&pool, &heap, 8), RUNNEL_NO_MEMORY);
        assert_int_equal(rn_heap_blocks(&heap), 0);
        rn_block_pool_fini(&pool);
    }
    refusing_allow(&refusing, 2);
    assert_int_equal(rn_block_pool_init(&pool, &heap, 8), RUNNEL_OK);
    assert_true(rn_block_pool_check(&pool));
    rn_block_pool_fini(&pool);
    refusing_allow(&refusing, 100);
    assert_int_equal(rn_block_pool_init(&pool, &heap, 0), RUNNEL_INVALID);
    assert_int_equal(rn_block_pool_init(&pool, &heap, (1u << 31) + 1), RUNNEL_INVALID);
    assert_int_equal(refusing.calls, 0);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* The check is of use only if it sees each way in which the two tables can disagree. */
static void check_sees_planted_breaches(void **state)
{
    struct rn_heap heap;
    struct rn_block_pool pool;
    uint32_t blocks[3];

    (void)state;
    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_block_pool_init(&pool, &heap, 9), RUNNEL_OK);
    assert_true(rn_block_pool_take(&pool, 3, blocks));
    assert_true(rn_block_pool_check(&pool));

    pool.references[blocks[1]] = 0; /* lost: neither used nor free */
    assert_false(rn_block_pool_check(&pool));
    pool.references[blocks[1]] = 1;
    pool.references[pool.free_stack[0]] = 1; /* both */
    assert_false(rn_block_pool_check(&pool));
    pool.references[pool.free_stack[0]] = 0;
    pool.free_stack[0]++; /* out of range */
    assert_false(rn_block_pool_check(&pool));
    pool.free_stack[0] = pool.free_stack[1]; /* twice */
    assert_false(rn_block_pool_check(&pool));
    pool.free_stack[0] = 8;
    pool.n_free = 10;
    assert_false(rn_block_pool_check(&pool));
    pool.n_free = 6;
    assert_true(rn_block_pool_check(&pool));
    rn_block_pool_fini(&pool);
}

struct breach {
    void (*operation)(struct rn_block_pool *pool, const uint32_t *blocks, uint32_t n);
    uint32_t block;
};

/* On a block of a pool of 4, of which 0 and 1 are used. */
static void commit(const void *user)
{
    const struct breach *breach = user;
    struct rn_heap heap;
    struct rn_block_pool pool;
    uint32_t blocks[2];

    rn_heap_init(&heap, NULL);
    if (rn_block_pool_init(&pool, &heap, 4) != RUNNEL_OK || !rn_block_pool_take(&pool, 2, blocks))
        _exit(ABORTS_NOT_BEGUN);
    breach->operation(&pool, &breach->block, 1);
}

static void breaches_end_the_process(void **state)
{
    (void)state;
    assert_false(aborts(commit, &(struct breach){rn_block_pool_ref, 1}));
    assert_false(aborts(commit, &(struct breach){rn_block_pool_unref, 1}));
    assert_true(aborts(commit, &(struct breach){rn_block_pool_ref, 2}));
    assert_true(aborts(commit, &(struct breach){rn_block_pool_unref, 2}));
    assert_true(aborts(commit, &(struct breach){rn_block_pool_ref, 4}));
    assert_true(aborts(commit, &(struct breach){rn_block_pool_unref, UINT32_MAX}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations),        cmocka_unit_test(order_is_last_in_first_out),
        cmocka_unit_test(refusals_and_ranges),      cmocka_unit_test(check_sees_planted_breaches),
        cmocka_unit_test(breaches_end_the_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
