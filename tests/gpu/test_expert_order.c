/* In which order experts come to the device and go (gpu/experts.h), on the emulated device, whose streams are held so
 * that each order is the only one there is: a step that has been submitted reads what its table says, whatever is fetched
 * meanwhile. A driver that leaves out one link of that order gives other logits, each of three; and whatever call fails,
 * a step fails with it or has the right logits, and nothing is left. */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/expert_policy.h"
#include "gpu/experts.h"
#include "gpu/ops.h"
#include "model/expert_use.h"
#include "tests/gpu/rigs/faulty_driver.h"
#include "tests/gpu/rigs/open_emulated.h"
#include "tests/oracle/made_model.h"
#include "tests/slow.h"

enum { MEMORY = 64 << 20, CONTEXT = 64, BLOCK = 16, MOST_COUNTS = 256, SCORE = 1000 };

#define MODEL "tests/oracle/made/arctic-made.txt"

static struct rn_heap heap;
static struct writer file;
static struct rn_gguf *gguf;
static struct rn_plan *plan;
static struct rn_expert_use *use;
static float *want; /* logits of the step */

/* ---- A step ---- */

struct row {
    struct rn_step step;
    struct rn_step_row row;
    struct rn_step_seq seq;
    uint32_t blocks[CONTEXT / BLOCK];
    float *logits;
    sem_t done;
};

static void on_done(struct rn_step *step)
{
    sem_post(&((struct row *)step->user)->done);
}

/* The first row of a text. */
static void submit(struct rn_gpu_backend *backend, struct row *r)
{
    *r = (struct row){
        .row = {.token = 3, .out = 0}, .blocks = {0, 1, 2, 3}, .logits = rn_calloc(&heap, plan->n_vocab, 4)};
    assert_non_null(r->logits);
    r->seq = (struct rn_step_seq){.blocks = r->blocks, .n_blocks = CONTEXT / BLOCK};
    r->step = (struct rn_step){.rows = &r->row,
                               .n_rows = 1,
                               .seqs = &r->seq,
                               .n_seqs = 1,
                               .n_outs = 1,
                               .logits = r->logits,
                               .on_done = on_done,
                               .user = r};
    sem_init(&r->done, 0, 0);
    backend->base.ops->submit_async(&backend->base, &r->step);
}

/* True: the step has the right logits. */
static bool end(struct row *r)
{
    bool is_right;

    while (sem_wait(&r->done) != 0) {
    }
    sem_destroy(&r->done);
    is_right = r->step.status == RUNNEL_OK && memcmp(r->logits, want, plan->n_vocab * sizeof *want) == 0;
    rn_free(&heap, r->logits);
    return is_right;
}

static bool run(struct rn_gpu_backend *backend)
{
    struct row r;

    submit(backend, &r);
    return end(&r);
}

/* ---- A backend with one place for the experts of a layer ---- */

static void reset_use(void)
{
    memset((void *)use, 0, sizeof *use + MOST_COUNTS * sizeof use->counts[0]);
    use->n_blocks = plan->n_layers;
    for (uint32_t i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].counted)
            use->n_experts = plan->ops[i].experts;
    assert_true(use->n_blocks * use->n_experts <= MOST_COUNTS);
}

static uint64_t one_place(struct rn_device *device)
{
    struct rn_expert_room all;

    device->kind->expert_room(plan, UINT64_MAX, &all);
    return all.device_bytes / use->n_experts;
}

static struct rn_gpu_backend *new_backend(struct rn_device *device, uint64_t bytes, runnel_error *error)
{
    const struct rn_backend_limits limits = {.max_rows = 4,
                                             .max_seqs = 1,
                                             .max_outs = 1,
                                             .n_blocks = CONTEXT / BLOCK,
                                             .block_tokens = BLOCK,
                                             .context_tokens = CONTEXT,
                                             .kv_type = RUNNEL_KV_F32,
                                             .expert_use = use,
                                             .expert_bytes = bytes};
    struct rn_backend *backend = device->kind->new_backend(device, &heap);

    assert_non_null(backend);
    if (backend->ops->prepare(backend, plan, &limits, NULL, NULL, error) == RUNNEL_OK)
        return (struct rn_gpu_backend *)(void *)backend;
    backend->ops->free(backend);
    return NULL;
}

/* This expert of the first group has the place: it was used most when the model was here before. */
static struct rn_gpu_backend *backend_with(struct rn_device *device, uint32_t expert)
{
    runnel_error error = {0};
    struct rn_gpu_backend *backend;

    reset_use();
    for (uint32_t b = 0; b < use->n_blocks; b++)
        rn_expert_use_add(use, b, expert, 100);
    backend = new_backend(device, one_place(device), &error);
    if (backend == NULL)
        fail_msg("%s", error.message);
    assert_true(backend->experts->place_of[expert] >= 0);
    return backend;
}

/* The next step begins to fetch this expert of the first group, and nothing else. */
static void want_expert(struct rn_gpu_backend *backend, uint32_t expert)
{
    memset(backend->experts->scores, 0, backend->experts->n_experts * sizeof *backend->experts->scores);
    backend->experts->scores[expert] = SCORE;
}

/* ---- A driver that leaves something out ---- */

enum planted { NOTHING, NO_WAIT, EARLY_CALLBACK, OLD_TABLE };

static enum planted planted;
static struct rn_gpu_stream *fetches;
static uint64_t tables[RN_GPU_EXPERT_PARTS];
static int (*real_wait)(struct rn_gpu_driver *, struct rn_gpu_stream *, struct rn_gpu_event *, unsigned);
static int (*real_callback)(struct rn_gpu_driver *, struct rn_gpu_stream *, rn_gpu_callback, void *, unsigned);
static int (*real_copy)(struct rn_gpu_driver *, uint64_t, const void *, size_t, struct rn_gpu_stream *);

static int wait_or_not(struct rn_gpu_driver *driver, struct rn_gpu_stream *stream, struct rn_gpu_event *event,
                       unsigned flags)
{
    return planted == NO_WAIT && stream == fetches ? RN_GPU_OK : real_wait(driver, stream, event, flags);
}

static int call_back_now(struct rn_gpu_driver *driver, struct rn_gpu_stream *stream, rn_gpu_callback callback,
                         void *user, unsigned flags)
{
    if (planted != EARLY_CALLBACK || stream != fetches)
        return real_callback(driver, stream, callback, user, flags);
    callback(stream, RN_GPU_OK, user);
    return RN_GPU_OK;
}

static int copy_or_not(struct rn_gpu_driver *driver, uint64_t to, const void *from, size_t bytes,
                       struct rn_gpu_stream *stream)
{
    for (uint32_t p = 0; p < RN_GPU_EXPERT_PARTS; p++)
        if (planted == OLD_TABLE && to == tables[p])
            return RN_GPU_OK;
    return real_copy(driver, to, from, bytes, stream);
}

static void plant(struct rn_gpu_backend *backend, enum planted what)
{
    const struct rn_gpu_expert_group *group = &backend->experts->groups[0];

    planted = what;
    fetches = backend->experts->stream;
    for (uint32_t p = 0; p < group->n_parts; p++)
        tables[p] = rn_gpu_matrices(backend, (int32_t)group->parts[p].weight);
}

static struct rn_device *open_device(void)
{
    struct rn_device *device = open_emulated(&heap, MEMORY);
    struct rn_gpu_driver *driver = ((struct rn_gpu_device *)device)->driver;

    real_wait = driver->stream_wait;
    real_callback = driver->stream_callback;
    real_copy = driver->copy_in;
    driver->stream_wait = wait_or_not;
    driver->stream_callback = call_back_now;
    driver->copy_in = copy_or_not;
    return device;
}

/* ---- The orders ---- */

static void hold(struct rn_gpu_stream *stream, int result, void *user)
{
    (void)stream;
    (void)result;
    while (sem_wait(user) != 0) {
    }
}

/* What is submitted from now on waits for the gate. */
static void hold_stream(struct rn_gpu_backend *backend, struct rn_gpu_stream *stream, sem_t *gate)
{
    struct rn_gpu_driver *driver = backend->device->driver;

    sem_init(gate, 0, 0);
    assert_int_equal(real_callback(driver, stream, hold, gate, 0), RN_GPU_OK);
}

static void finish_fetches(struct rn_gpu_backend *backend)
{
    assert_int_equal(backend->device->driver->stream_finish(backend->device->driver, backend->experts->stream),
                     RN_GPU_OK);
}

/* An expert that a step reads goes while that step waits to run. The right bits, of both steps. */
static bool goes_late(struct rn_gpu_backend *backend, uint32_t other)
{
    struct row before, now;
    bool is_right;
    sem_t gate;

    hold_stream(backend, backend->stream, &gate);
    submit(backend, &before);
    want_expert(backend, other);
    submit(backend, &now);
    assert_int_equal(backend->experts->place_of[other], RN_EXPERT_COMING);
    if (planted == NO_WAIT)
        finish_fetches(backend);
    sem_post(&gate);
    is_right = end(&before);
    is_right = end(&now) && is_right;
    finish_fetches(backend);
    is_right = run(backend) && is_right;
    assert_true(backend->experts->place_of[other] >= 0);
    sem_destroy(&gate);
    return is_right;
}

/* An expert that steps read comes while they run, in place of another one. */
static bool comes_late(struct rn_gpu_backend *backend, uint32_t used)
{
    bool is_right;
    sem_t gate;

    hold_stream(backend, backend->experts->stream, &gate);
    want_expert(backend, used);
    is_right = run(backend);
    assert_int_equal(backend->experts->place_of[used], RN_EXPERT_COMING);
    is_right = run(backend) && is_right;
    sem_post(&gate);
    finish_fetches(backend);
    is_right = run(backend) && is_right;
    assert_true(backend->experts->place_of[used] >= 0);
    sem_destroy(&gate);
    return is_right;
}

/* An expert that steps read has gone. */
static bool has_gone(struct rn_gpu_backend *backend, uint32_t other)
{
    want_expert(backend, other);
    run(backend); /* beside the copy, with an old table */
    finish_fetches(backend);
    return run(backend);
}

static void find_experts(struct rn_device *device, uint32_t *used, uint32_t *other);

/* What is planted is found, and only that. */
static void orders(void **state)
{
    static const struct {
        enum planted planted;
        bool had_used; /* before, the one that the step reads has the place */
        bool (*run)(struct rn_gpu_backend *backend, uint32_t expert);
    } cases[] = {{NO_WAIT, true, goes_late}, {EARLY_CALLBACK, false, comes_late}, {OLD_TABLE, true, has_gone}};
    struct rn_device *device = open_device();
    uint32_t used, other;

    (void)state;
    find_experts(device, &used, &other);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int is_planted = 0; is_planted < 2; is_planted++) {
            struct rn_gpu_backend *backend = backend_with(device, cases[i].had_used ? used : other);

            plant(backend, is_planted ? cases[i].planted : NOTHING);
            if (cases[i].run(backend, cases[i].had_used ? other : used) == (is_planted != 0))
                fail_msg("order %zu, planted: %d", i, is_planted);
            planted = NOTHING;
            backend->base.ops->free(&backend->base);
        }
    device->kind->close(device);
}

/* Of the first layer, an expert that the step uses, and one that it does not use; and the right logits. */
static void find_experts(struct rn_device *device, uint32_t *used, uint32_t *other)
{
    runnel_error error = {0};
    struct rn_gpu_backend *backend;
    struct row r;

    reset_use();
    backend = new_backend(device, 0, &error);
    if (backend == NULL)
        fail_msg("%s", error.message);
    submit(backend, &r);
    while (sem_wait(&r.done) != 0) {
    }
    memcpy(want, r.logits, plan->n_vocab * sizeof *want);
    rn_free(&heap, r.logits);
    sem_destroy(&r.done);
    backend->base.ops->free(&backend->base);
    *used = *other = use->n_experts;
    for (uint32_t e = 0; e < use->n_experts; e++)
        *(rn_expert_use_get(use, 0, e) > 0 ? used : other) = e;
    assert_true(*used < use->n_experts && *other < use->n_experts);
}

/* ---- Calls that fail ---- */

/* Loads, runs steps in which experts come and go, and frees. How many calls it has made of each function is told. */
static void live(struct rn_gpu_fault *fault, uint64_t calls[RN_GPU_CALLS])
{
    struct rn_gpu_module module = emulated_module(&heap, MEMORY);
    uint64_t at = fault->at;
    runnel_error error = {0};
    struct rn_gpu_backend *backend;
    struct rn_device *device;
    uint32_t n_failed = 0;

    fault->at = 0;
    module.driver = rn_gpu_driver_faulty(&heap, module.driver, fault);
    assert_non_null(module.driver);
    device = rn_gpu_device_open(&heap, &module, 0, &error);
    assert_non_null(device);
    memcpy(calls, fault->calls, sizeof fault->calls);
    fault->at = at == 0 ? 0 : calls[fault->of] + at;
    backend = new_backend(device, one_place(device), &error);
    if (backend == NULL && (strstr(error.message, "cuda: ") == NULL ||
                            error.status != (fault->result == RN_GPU_OUT_OF_MEMORY ? RUNNEL_NO_MEMORY : RUNNEL_DEVICE)))
        fail_msg("status %d: %s", (int)error.status, error.message);
    for (uint32_t i = 0; i < 6 && backend != NULL; i++) {
        want_expert(backend, i % 4);
        n_failed += !run(backend);
    }
    /* a stream whose capture cannot be ended runs nothing more */
    if (n_failed > 1 - (at == 0) && !fault->is_lost && fault->of != RN_GPU_CALL_capture_end)
        fail_msg("function %d, call %llu, %d: %u steps have failed", (int)fault->of, (unsigned long long)at,
                 (int)fault->for_good, n_failed);
    if (backend != NULL)
        backend->base.ops->free(&backend->base);
    for (int of = 0; of < RN_GPU_CALLS; of++)
        calls[of] = fault->calls[of] - calls[of];
    device->kind->close(device);
    assert_int_equal(fault->owed, 0);
}

static void failing_calls(void **state)
{
    enum { MOST = UNLESS_SANITIZED(5, 2) };
    static const int results[] = {RN_GPU_OUT_OF_MEMORY, RN_GPU_NOT_FOUND};
    struct rn_gpu_fault fault = {.at = 0};
    uint64_t good[RN_GPU_CALLS], calls[RN_GPU_CALLS], blocks = rn_heap_blocks(&heap);
    uint32_t n = 0;

    (void)state;
    reset_use();
    live(&fault, good);
    assert_true(good[RN_GPU_CALL_stream_wait] >= 3 && rn_expert_use_read(&use->fetched_bytes) > 0);
    for (enum rn_gpu_called of = RN_GPU_ANY_CALL + 1; of < RN_GPU_CALLS; of++)
        for (uint64_t i = 0; i < MOST && i < good[of]; i++, n++) {
            uint64_t at = 1 + (good[of] <= MOST ? i : i * (good[of] - 1) / (MOST - 1));

            fault = (struct rn_gpu_fault){.of = of, .at = at, .for_good = i % 2 == 1, .result = results[i / 2 % 2]};
            if (fault.for_good)
                fault.result = RN_GPU_BAD_ADDRESS;
            live(&fault, calls);
            assert_int_equal(rn_heap_blocks(&heap), blocks);
        }
    print_message("%u calls failed\n", n);
}

static int setup(void **state)
{
    size_t counts = MOST_COUNTS * sizeof use->counts[0];
    runnel_error error = {0};

    (void)state;
    rn_heap_init(&heap, NULL);
    made_model_write(MODEL, &file);
    if (rn_gguf_parse(&heap, file.bytes, file.n, MODEL, &gguf, &error) != RUNNEL_OK ||
        rn_plan_new(&heap, gguf, 0, &plan, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    use = rn_calloc(&heap, 1, sizeof *use + counts);
    want = rn_calloc(&heap, plan->n_vocab, sizeof *want);
    assert_true(use != NULL && want != NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rn_free(&heap, (void *)use);
    rn_free(&heap, want);
    rn_plan_free(plan);
    rn_gguf_free(gguf);
    w_free(&file);
    assert_int_equal(rn_heap_blocks(&heap), 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(orders), cmocka_unit_test(failing_calls)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
