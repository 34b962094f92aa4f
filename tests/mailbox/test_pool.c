/* The pool: every cell once, never two owners, and the books close. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "mailbox/pool.h"
#include "tests/base/refusing.h"
#include "tests/mailbox/threads.h"
#include "tests/support/child.h"

static void test_take_all_give_all(void **state)
{
    enum { CELLS = 37 };
    struct rn_heap heap;
    struct rn_pool pool;
    unsigned char *cell[CELLS];

    (void)state;
    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_pool_init(&pool, &heap, CELLS, 65), RUNNEL_OK);
    assert_int_equal(pool.cell_bytes, 128);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < CELLS; i++) {
            assert_int_equal(rn_pool_taken(&pool), i);
            cell[i] = (unsigned char *)rn_pool_take(&pool);
            assert_non_null(cell[i]);
            assert_int_equal((uintptr_t)cell[i] % 64, 0);
            assert_ptr_equal(rn_pool_cell(&pool, rn_pool_index(&pool, cell[i])), cell[i]);
            memset(cell[i], i, 128);
        }
        assert_null(rn_pool_take(&pool));
        for (int i = 0; i < CELLS; i++)
            for (int byte = 0; byte < 128; byte++)
                assert_int_equal(cell[i][byte], i); /* no two overlap */
        for (int i = 0; i < CELLS; i++)
            rn_pool_give(&pool, cell[(i * 5 + round) % CELLS]);
        assert_int_equal(rn_pool_taken(&pool), 0);
    }
    rn_pool_fini(&pool);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_refusal_holds_nothing(void **state)
{
    (void)state;
    for (uint32_t calls = 0; calls < 3; calls++) {
        struct refusing refusing = {0};
        struct rn_heap heap = refusing_heap(&refusing);
        struct rn_pool pool;

        refusing_allow(&refusing, calls);
        assert_int_equal(rn_pool_init(&pool, &heap, 8, 8), calls == 2 ? RUNNEL_OK : RUNNEL_NO_MEMORY);
        if (calls == 2)
            rn_pool_fini(&pool);
        assert_int_equal(rn_heap_blocks(&heap), 0);
    }
}

static void test_too_large(void **state)
{
    struct rn_heap heap;
    struct rn_pool pool;

    (void)state;
    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_pool_init(&pool, &heap, UINT32_MAX, 1), RUNNEL_NO_MEMORY);
    assert_int_equal(rn_pool_init(&pool, &heap, 1, UINT32_MAX), RUNNEL_NO_MEMORY);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_no_cells(void **state)
{
    struct rn_heap heap;
    struct rn_pool pool;

    (void)state;
    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_pool_init(&pool, &heap, 0, 64), RUNNEL_OK);
    assert_null(rn_pool_take(&pool));
    rn_pool_fini(&pool);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* A test that must die runs in a child; only debug builds promise the check. */
static void test_double_give_is_caught(void **state)
{
#ifdef NDEBUG
    (void)state;
    skip();
#else
    pid_t child = child_fork();
    int status;

    (void)state;
    if (child == 0) {
        struct rn_heap heap;
        struct rn_pool pool;
        void *cell;

        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO);
        rn_heap_init(&heap, NULL);
        if (rn_pool_init(&pool, &heap, 4, 64) != RUNNEL_OK)
            _exit(1);
        cell = rn_pool_take(&pool);
        rn_pool_give(&pool, cell);
        rn_pool_give(&pool, cell);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#endif
}

struct shared {
    struct rn_pool pool;
    uint64_t rounds;
    _Atomic(uint64_t) next_id, stolen, dry;
};

/* Takes up to three cells, signs each without atomics, and finds its signature before giving. */
static void *churn(void *user)
{
    struct shared *shared = (struct shared *)user;
    uint64_t id = bump(&shared->next_id) + 1, rng = id;

    for (uint64_t round = 0; round < shared->rounds; round++) {
        uint64_t *held[3], n = rn_splitmix64(&rng) % 3 + 1;

        for (uint64_t i = 0; i < n; i++) {
            held[i] = (uint64_t *)rn_pool_take(&shared->pool);
            if (held[i] == NULL)
                bump(&shared->dry);
            else
                held[i][0] = held[i][7] = id << 32 | round;
        }
        if (round % 64 == 0)
            sched_yield();
        for (uint64_t i = 0; i < n; i++) {
            if (held[i] == NULL)
                continue;
            if (held[i][0] != (id << 32 | round) || held[i][7] != (id << 32 | round))
                bump(&shared->stolen);
            rn_pool_give(&shared->pool, held[i]);
        }
    }
    return NULL;
}

static void stress(uint32_t cells)
{
    struct shared shared = {.rounds = 60000 / TEST_SLOWDOWN};
    struct crew crew = {.n = 0};
    struct rn_heap heap;
    void *cell[16];

    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_pool_init(&shared.pool, &heap, cells, 64), RUNNEL_OK);
    for (int i = 0; i < 4; i++)
        crew_start(&crew, churn, &shared);
    crew_join(&crew);
    assert_int_equal(peek(&shared.stolen), 0);
    assert_int_equal(rn_pool_taken(&shared.pool), 0);
    for (uint32_t i = 0; i < cells; i++) {
        cell[i] = rn_pool_take(&shared.pool);
        assert_non_null(cell[i]); /* none was lost, */
        for (uint32_t j = 0; j < i; j++)
            assert_ptr_not_equal(cell[i], cell[j]); /* none is there twice */
    }
    assert_null(rn_pool_take(&shared.pool));
    for (uint32_t i = 0; i < cells; i++)
        rn_pool_give(&shared.pool, cell[i]);
    rn_pool_fini(&shared.pool);
}

static void test_stress(void **state)
{
    (void)state;
    stress(2);
    stress(3);
    stress(13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take_all_give_all),
        cmocka_unit_test(test_refusal_holds_nothing),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_no_cells),
        cmocka_unit_test(test_double_give_is_caught),
        cmocka_unit_test(test_stress),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
