/* The reference backend as a backend: its queue, its limits, refused memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "../model/model_edit.h"
#include "cpu/team.h"
#include "model/backend.h"
#include "tests/base/refusing.h"

enum { STEPS = 200, VOCAB = 16 };

struct fixture {
    struct rn_heap heap;
    struct writer bytes;
    struct rn_gguf *gguf;
    struct rn_plan *plan;
    struct rn_backend_limits limits;
};

static int setup(void **state)
{
    static struct fixture f;
    static struct model_edit edit;
    runnel_error error = {0};

    memset(&f, 0, sizeof f);
    rn_heap_init(&f.heap, NULL);
    edit_tiny(&edit, 4, true);
    edit_write(&edit, &f.bytes);
    if (rn_gguf_parse(&f.heap, f.bytes.bytes, f.bytes.n, "tiny.gguf", &f.gguf, &error) != RUNNEL_OK ||
        rn_plan_new(&f.heap, f.gguf, 0, &f.plan, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    f.limits = (struct rn_backend_limits){.max_rows = 8,
                                          .max_seqs = 2,
                                          .max_outs = 8,
                                          .n_blocks = 8,
                                          .block_tokens = 16,
                                          .context_tokens = 64,
                                          .kv_type = RUNNEL_KV_F16};
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    rn_plan_free(f->plan);
    rn_gguf_free(f->gguf);
    w_free(&f->bytes);
    assert_int_equal(rn_heap_blocks(&f->heap), 0);
    return 0;
}

/* ---- The queue ---- */

struct ordered {
    struct rn_step step;
    struct rn_step_row row;
    struct rn_step_seq seq;
    float logits[VOCAB];
    uint32_t came; /* as the so-many-th, from 1 */
};

static _Atomic uint32_t arrivals; /* release by on_done, acquire by the waiting test: the steps' results are seen */

static void on_done(struct rn_step *step)
{
    struct ordered *o = step->user;

    o->came = atomic_load_explicit(&arrivals, memory_order_relaxed) + 1;
    atomic_fetch_add_explicit(&arrivals, 1, memory_order_release);
}

static void prepare_step(struct ordered *o, uint32_t position, const uint32_t *blocks)
{
    memset(o, 0, sizeof *o);
    o->row = (struct rn_step_row){.token = (int32_t)(position * 5 % VOCAB), .position = position};
    o->seq = (struct rn_step_seq){.blocks = blocks, .n_blocks = 4};
    o->step = (struct rn_step){.n_rows = 1,
                               .n_seqs = 1,
                               .n_outs = 1,
                               .rows = &o->row,
                               .seqs = &o->seq,
                               .logits = o->logits,
                               .status = RUNNEL_DEVICE,
                               .on_done = on_done,
                               .user = o};
}

static void await(uint32_t n)
{
    while (atomic_load_explicit(&arrivals, memory_order_acquire) < n)
        sched_yield();
}

/* Steps that are all in flight at once run in order: each needs the cache of the one before it, so that
 * their logits are those of steps that were waited for one by one. */
static void steps_in_flight_run_in_order(void **state)
{
    static const uint32_t one[] = {3, 0, 6, 5}, two[] = {1, 7, 2, 4};
    static struct ordered waited[64], queued[64];
    struct fixture *f = *state;
    struct rn_team *team = rn_team_new(&f->heap, 3);
    struct rn_backend *backend = rn_cpu_reference_new(&f->heap, team);
    runnel_error error = {0};
    uint32_t i, round;

    assert_int_equal(backend->ops->prepare(backend, f->plan, &f->limits, NULL, NULL, &error), RUNNEL_OK);
    atomic_store(&arrivals, 0);
    for (i = 0; i < 64; i++) {
        prepare_step(&waited[i], i, one);
        assert_true(rn_step_check(&waited[i].step, f->plan, &f->limits));
        backend->ops->submit_async(backend, &waited[i].step);
        await(i + 1);
    }
    for (round = 0; round < 20; round++) {
        atomic_store(&arrivals, 0);
        for (i = 0; i < 64; i++) {
            prepare_step(&queued[i], i, two);
            backend->ops->submit_async(backend, &queued[i].step);
        }
        await(64);
        for (i = 0; i < 64; i++) {
            assert_int_equal(queued[i].step.status, RUNNEL_OK);
            assert_int_equal(queued[i].came, i + 1);
            assert_memory_equal(queued[i].logits, waited[i].logits, sizeof waited[i].logits);
        }
    }
    backend->ops->free(backend);
    rn_team_free(team);
}

/* ---- Free from on_done ---- */

struct last {
    struct ordered ordered; /* first */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
};

static void wake(struct rn_step *step)
{
    struct last *last = step->user;

    pthread_mutex_lock(&last->lock);
    last->done = true;
    pthread_cond_signal(&last->changed);
    pthread_mutex_unlock(&last->lock);
}

/* Whoever gets on_done of the last step may free the backend at once, again and again. */
static void freed_right_after_the_last_step(void **state)
{
    static const uint32_t blocks[] = {0, 1, 2, 3};
    struct fixture *f = *state;
    struct rn_team *team = rn_team_new(&f->heap, 2);
    struct rn_backend *backend;
    struct last last = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    uint32_t i;

    for (i = 0; i < STEPS; i++) {
        backend = rn_cpu_reference_new(&f->heap, team);
        assert_int_equal(backend->ops->prepare(backend, f->plan, &f->limits, NULL, NULL, NULL), RUNNEL_OK);
        prepare_step(&last.ordered, 0, blocks);
        last.done = false;
        last.ordered.step.user = &last;
        last.ordered.step.on_done = wake;
        backend->ops->submit_async(backend, &last.ordered.step);
        pthread_mutex_lock(&last.lock);
        while (!last.done)
            pthread_cond_wait(&last.changed, &last.lock);
        pthread_mutex_unlock(&last.lock);
        backend->ops->free(backend);
    }
    rn_team_free(team);
}

/* ---- prepare ---- */

static void refused_memory_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    struct rn_team *team = rn_team_new(&f->heap, 1);
    struct rn_backend *backend;
    struct rn_heap heap;
    uint64_t n;

    for (n = 1;; n++) {
        struct refusing refusing = {.refuse_at = n, .for_good = n % 2 == 0};
        runnel_error error = {0};
        runnel_status status = RUNNEL_NO_MEMORY;

        heap = refusing_heap(&refusing);
        backend = rn_cpu_reference_new(&heap, team);
        if (backend != NULL) {
            status = backend->ops->prepare(backend, f->plan, &f->limits, NULL, NULL, &error);
            assert_int_equal(error.status, status);
            backend->ops->free(backend);
        }
        assert_int_equal(rn_heap_blocks(&heap), 0);
        if (refusing.calls < n) {
            assert_int_equal(status, RUNNEL_OK);
            break;
        }
        assert_int_equal(status, RUNNEL_NO_MEMORY);
    }
    assert_true(n > 10);
    rn_team_free(team);
}

static bool cancel_at(void *user, float fraction)
{
    const float *limit = user;

    return fraction < *limit;
}

static void progress_can_cancel(void **state)
{
    struct fixture *f = *state;
    struct rn_team *team = rn_team_new(&f->heap, 1);
    struct rn_backend *backend = rn_cpu_reference_new(&f->heap, team);
    float limit = 0;
    size_t before = rn_heap_blocks(&f->heap);
    runnel_error error = {0};

    assert_int_equal(backend->ops->prepare(backend, f->plan, &f->limits, cancel_at, &limit, &error), RUNNEL_CANCELLED);
    limit = 1;
    assert_int_equal(backend->ops->prepare(backend, f->plan, &f->limits, cancel_at, &limit, NULL), RUNNEL_CANCELLED);
    assert_int_equal(rn_heap_blocks(&f->heap), before);
    limit = 2;
    assert_int_equal(backend->ops->prepare(backend, f->plan, &f->limits, cancel_at, &limit, NULL), RUNNEL_OK);
    backend->ops->free(backend);
    rn_team_free(team);
}

static void limits_are_checked(void **state)
{
    struct fixture *f = *state;
    struct rn_team *team = rn_team_new(&f->heap, 1);
    struct rn_backend *backend = rn_cpu_reference_new(&f->heap, team);
    struct rn_backend_limits limits[6];
    size_t i;

    for (i = 0; i < 6; i++)
        limits[i] = f->limits;
    limits[0].max_rows = 0;
    limits[1].max_seqs = 0;
    limits[2].max_outs = 0;
    limits[3].n_blocks = 0;
    limits[4].block_tokens = 24;
    limits[5].context_tokens = 0;
    for (i = 0; i < 6; i++)
        assert_int_equal(backend->ops->prepare(backend, f->plan, &limits[i], NULL, NULL, NULL), RUNNEL_INVALID);
    limits[0] = f->limits;
    limits[0].n_blocks = UINT32_MAX; /* 2^32 blocks of 16 positions: no such memory, and no overflow on the way */
    limits[0].block_tokens = 1u << 31;
    assert_int_equal(backend->ops->prepare(backend, f->plan, &limits[0], NULL, NULL, NULL), RUNNEL_NO_MEMORY);
    backend->ops->free(backend);
    rn_team_free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(steps_in_flight_run_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(freed_right_after_the_last_step, setup, teardown),
        cmocka_unit_test_setup_teardown(refused_memory_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(progress_can_cancel, setup, teardown),
        cmocka_unit_test_setup_teardown(limits_are_checked, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
