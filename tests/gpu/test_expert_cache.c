/* Experts apart from their layers (gpu/experts.h) on the emulated device: a row's bits are those of the whole device,
 * whatever of them has a place there, while they come and go; each planted fault of the order in which they do is found;
 * whatever call of the driver fails, nothing is left. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/expert_use.h"
#include "tests/slow.h"
#include "tests/cpu/made_text.h"
#include "tests/gpu/rigs/expert_pokes.h"
#include "tests/gpu/rigs/device_runner.h"
#include "tests/gpu/rigs/open_emulated.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"

enum { MEMORY = 64 << 20, ROUNDS = 4, CUT = 5, MOST_EXPERTS = 64, MOST_LAYERS = 8 };

/* A made model, and where its experts' use is counted. */
struct made {
    struct writer file;
    struct rn_gguf *gguf;
    struct rn_plan *plan;
    struct rn_expert_use *use;
    uint32_t n_rows;
};

static struct rn_heap heap;

static void open_made(struct made *made, const char *name)
{
    size_t counts = sizeof made->use->counts[0] * MOST_LAYERS * MOST_EXPERTS;
    runnel_error error = {0};
    char path[256];

    *made = (struct made){.n_rows = made_rows(name)};
    snprintf(path, sizeof path, MADE_TEXT("%s"), name);
    made_model_write(path, &made->file);
    if (rn_gguf_parse(&heap, made->file.bytes, made->file.n, path, &made->gguf, &error) != RUNNEL_OK ||
        rn_plan_new(&heap, made->gguf, 0, &made->plan, &error) != RUNNEL_OK)
        fail_msg("%s: %s", path, error.message);
    assert_true(made->plan->n_layers <= MOST_LAYERS);
    made->use = rn_calloc(&heap, 1, sizeof *made->use + counts);
    assert_non_null(made->use);
}

/* As many experts as are counted. */
static void reset_use(struct made *made)
{
    memset((void *)made->use, 0, sizeof *made->use + sizeof made->use->counts[0] * MOST_LAYERS * MOST_EXPERTS);
    made->use->n_blocks = made->plan->n_layers;
    for (uint32_t i = 0; i < made->plan->n_ops; i++)
        if (made->plan->ops[i].counted)
            made->use->n_experts = made->plan->ops[i].experts;
    assert_true(made->use->n_experts <= MOST_EXPERTS);
}

static void close_made(struct made *made)
{
    rn_free(&heap, (void *)made->use);
    rn_plan_free(made->plan);
    rn_gguf_free(made->gguf);
    w_free(&made->file);
}

static runnel_status prepare(struct runner *r, struct made *made, struct rn_device *device, uint64_t bytes,
                             runnel_error *error)
{
    struct rn_backend_limits limits = made_limits(made->plan, made->n_rows);

    limits.expert_bytes = bytes;
    limits.expert_use = made->use;
    return prepare_on_device(r, &heap, device, made->plan, &limits, error);
}

static void open_cache(struct runner *r, struct made *made, struct rn_device *device, uint64_t bytes)
{
    runnel_error error = {0};

    reset_use(made);
    if (prepare(r, made, device, bytes, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
}

/* ---- The same bits ---- */

static uint64_t sum_of(const struct rn_expert_use *use)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < use->n_blocks * use->n_experts; i++)
        sum += rn_expert_use_get(use, i / use->n_experts, i % use->n_experts);
    return sum;
}

/* With a cache of so many bytes. Which choices were hits is told; all together were as many as were counted. */
static void check_cache(const char *name, struct made *made, struct rn_device *device, uint64_t bytes,
                        const struct made_result *want)
{
    struct made_result got = made_result_new(&heap, made->plan, made->n_rows);
    struct rn_expert_room room;
    uint32_t random = 7;
    uint64_t hits, misses, fetched;
    struct runner r;

    device->kind->expert_room(made->plan, bytes, &room);
    assert_true(room.n > 0 && room.n_places <= room.n && room.device_bytes <= bytes);
    open_cache(&r, made, device, bytes);
    assert_int_equal(pokes_experts(r.backend), room.n);
    assert_int_equal(pokes_places(r.backend), room.n_places);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        made_text_run(&r, made->n_rows, i % 2 == 0 ? made->n_rows : CUT, &got);
        if (!made_result_same(&got, want, made->plan, made->n_rows))
            fail_msg("%s: round %u with %llu bytes: other bits", name, i, (unsigned long long)bytes);
        pokes_shake(r.backend, &random);
    }
    hits = rn_expert_use_read(&made->use->hits);
    misses = rn_expert_use_read(&made->use->misses);
    fetched = rn_expert_use_read(&made->use->fetched_bytes);
    assert_int_equal(hits + misses, sum_of(made->use));
    assert_true((hits == 0) == (room.n_places == 0) && (misses == 0) == (room.n_places == room.n));
    assert_true((fetched > 0) == (room.n_places > 0 && room.n_places < room.n));
    close_on_device(&r);
    made_result_free(&heap, &got);
}

static void check_model(const char *name, struct rn_device *device)
{
    struct rn_expert_room all;
    struct made_result want;
    struct made made;
    struct runner r;

    open_made(&made, name);
    want = made_result_new(&heap, made.plan, made.n_rows);
    open_cache(&r, &made, device, 0);
    assert_int_equal(pokes_experts(r.backend), 0);
    made_text_run(&r, made.n_rows, made.n_rows, &want);
    close_on_device(&r);
    device->kind->expert_room(made.plan, UINT64_MAX, &all);
    assert_int_equal(all.n_places, all.n);
    check_cache(name, &made, device, 1, &want);
    check_cache(name, &made, device, all.device_bytes / 3, &want);
    check_cache(name, &made, device, all.device_bytes, &want);
    /* the device has so much less to hold */
    assert_int_equal(rn_device_weight_bytes(device, made.plan, 1) + all.device_bytes,
                     rn_device_weight_bytes(device, made.plan, UINT64_MAX));
    assert_true(rn_device_weight_bytes(device, made.plan, 1) + all.host_bytes <=
                rn_device_weight_bytes(device, made.plan, 0));
    made_result_free(&heap, &want);
    close_made(&made);
}

static void the_same_bits(void **state)
{
    static const char *const names[] = {"bailingmoe2-made", "gpt-oss-made-yarn", "grovemoe-made",
                                        "nemotron_h_moe-made-latent"}; /* groups, biases, two kinds, plain */
    struct rn_device *device = open_emulated(&heap, MEMORY);

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_model(names[i], device);
    device->kind->close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_bits)};
    int failed;

    rn_heap_init(&heap, NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed != 0 || rn_heap_blocks(&heap) != 0;
}
