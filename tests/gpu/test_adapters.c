/* Adapters on the CUDA device, emulated: logits of sequences with two adapters and with none against the reference
 * backend's (which tests/oracle/test_adapters.c judges), and law 5: the same bits alone, beside the others, and row by
 * row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/adapter.h"
#include "tests/gpu/rigs/device_runner.h"
#include "tests/gpu/rigs/open_emulated.h"
#include "tests/gpu/rigs/watch_launches.h"
#include "tests/oracle/made_model.h"
#include "tests/support/nmse.h"

enum { N = 18, CONTEXT = 32, BLOCK = 16, SEQS = 3, MAX_ROWS = SEQS * N, MEMORY = 64 << 20 };

static struct rn_heap heap;
static struct rn_device *device;
static char folder[] = "/tmp/rn_gpu_adapters_XXXXXX";

/* Sequences [first, first + n) with the adapters of their numbers, positions [from, to) of each. */
static void run(struct runner *r, uint32_t first, uint32_t n, uint32_t from, uint32_t to, float *logits)
{
    static const uint32_t blocks[SEQS][CONTEXT / BLOCK] = {{3, 0}, {1, 2}, {5, 4}};
    struct rn_step_seq seqs[SEQS];
    struct rn_step_row rows[MAX_ROWS];
    struct rn_step step = {.rows = rows, .seqs = seqs, .n_seqs = n, .logits = logits};

    for (uint32_t s = 0; s < n; s++) {
        seqs[s] = (struct rn_step_seq){.blocks = blocks[first + s], .n_blocks = 2, .adapter = first + s};
        for (uint32_t i = from; i < to; i++, step.n_rows++)
            rows[step.n_rows] =
                (struct rn_step_row){(int32_t)((i * 37 + 11) % r->plan->n_vocab), i, s, (int32_t)step.n_outs++};
    }
    run_step(r, &step);
}

static struct rn_backend_limits limits_of(void)
{
    return (struct rn_backend_limits){.max_rows = MAX_ROWS,
                                      .max_seqs = SEQS,
                                      .max_outs = MAX_ROWS,
                                      .n_blocks = SEQS * CONTEXT / BLOCK,
                                      .block_tokens = BLOCK,
                                      .context_tokens = CONTEXT,
                                      .kv_type = RUNNEL_KV_F32};
}

static void compare(const struct rn_plan *plan)
{
    const size_t one = (size_t)N * plan->n_vocab;
    float *want = rn_calloc(&heap, SEQS * one, sizeof *want), *got = rn_calloc(&heap, SEQS * one, sizeof *got);
    float *again = rn_calloc(&heap, SEQS * one, sizeof *again);
    const struct rn_backend_limits limits = limits_of();
    struct runner cuda, reference;

    assert_true(want != NULL && got != NULL && again != NULL);
    open_on_device(&cuda, &heap, device, plan->architecture, plan, &limits);
    open_runner(&reference, &heap, plan, NULL, 1, &limits);
    run(&reference, 0, SEQS, 0, N, want);
    close_runner(&reference);
    run(&cuda, 0, SEQS, 0, N, got);
    for (uint32_t s = 0; s < SEQS; s++) {
        double error = nmse(got + s * one, want + s * one, one);

        print_message("%s, adapter %u: NMSE %.2g\n", plan->architecture, s, error);
        assert_true(error <= 1e-6);
        run(&cuda, s, 1, 0, N, again + s * one);
        for (uint32_t i = 0; i < N; i++)
            run(&cuda, s, 1, i, i + 1, again + s * one + (size_t)i * plan->n_vocab);
    }
    assert_memory_equal(again, got, SEQS * one * sizeof *got);
    assert_true(nmse(got, got + one, one) > 1e-3 && nmse(got + one, got + 2 * one, one) > 1e-3);
    close_on_device(&cuda);
    rn_free(&heap, want);
    rn_free(&heap, got);
    rn_free(&heap, again);
}

/* Launches of a row of the sequence without an adapter, and its logits. */
static unsigned run_plain(const struct rn_plan *plan, float *logits)
{
    const struct rn_backend_limits limits = limits_of();
    struct runner r;
    unsigned n;

    open_on_device(&r, &heap, device, plan->architecture, plan, &limits);
    run(&r, 0, 1, 0, N - 1, logits);
    watch_launches(device);
    run(&r, 0, 1, N - 1, N, logits);
    n = n_launches();
    close_on_device(&r);
    return n;
}

static void check_model(const char *text, const char *adapter_text)
{
    struct rn_adapter_source sources[] = {{"one", NULL, 1}, {"two", NULL, -0.4f}};
    struct writer model = {0}, adapter = {0};
    struct rn_adapters *adapters;
    struct rn_gguf *gguf;
    struct rn_plan *plan;
    unsigned n_launched;
    char path[64];
    float *plain;

    made_model_write(text, &model);
    made_model_write(adapter_text, &adapter);
    w_save(&adapter, folder, "adapter.gguf");
    snprintf(path, sizeof path, "%s/adapter.gguf", folder);
    sources[0].path = sources[1].path = path;
    assert_int_equal(rn_gguf_parse(&heap, model.bytes, model.n, text, &gguf, NULL), RUNNEL_OK);
    assert_int_equal(rn_plan_new(&heap, gguf, CONTEXT, &plan, NULL), RUNNEL_OK);
    assert_int_equal(rn_adapters_load(&heap, plan, sources, 2, NULL, &adapters, NULL), RUNNEL_OK);
    plain = rn_calloc(&heap, 2 * N * plan->n_vocab, sizeof *plain);
    assert_non_null(plain);
    n_launched = run_plain(plan, plain);
    assert_int_equal(rn_plan_adapt(plan, adapters, NULL), RUNNEL_OK);
    /* to a step without adapters the plan is what it was */
    assert_int_equal(run_plain(plan, plain + N * plan->n_vocab), n_launched);
    assert_memory_equal(plain, plain + N * plan->n_vocab, plan->n_vocab * sizeof *plain);
    rn_free(&heap, plain);
    compare(plan);
    rn_plan_free(plan);
    rn_adapters_free(adapters);
    rn_gguf_free(gguf);
    unlink(path);
    w_free(&model);
    w_free(&adapter);
}

#define CHECK(name) check_model("tests/oracle/made/" name ".txt", "tests/oracle/adapters/" name ".txt")

static void adapters_on_the_device(void **state)
{
    (void)state;
    CHECK("llama-made-none");
    CHECK("llama-made-moe");
    CHECK("gpt2-made");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(adapters_on_the_device)};
    int failed;

    rn_heap_init(&heap, NULL);
    assert_non_null(mkdtemp(folder));
    device = open_emulated(&heap, MEMORY);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    device->kind->close(device);
    rmdir(folder);
    return failed != 0 || rn_heap_blocks(&heap) != 0;
}
