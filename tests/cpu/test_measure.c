/* The limits of the machine: plausible figures, the same twice, levels against each other, what is refused, and
 * steps that go on meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "base/clock.h"
#include "cpu/cores.h"
#include "cpu/kernels.h"
#include "cpu/levels/peak.h"
#include "cpu/team.h"

static runnel_engine *engine;

static int start(void **state)
{
    (void)state;
    return runnel_engine_new(NULL, &engine, NULL) == RUNNEL_OK ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    runnel_engine_free(engine);
    return 0;
}

static runnel_machine measure(void)
{
    runnel_machine machine = {.struct_size = sizeof machine};
    runnel_error error;

    assert_int_equal(runnel_engine_measure(engine, &machine, &error), RUNNEL_OK);
    assert_int_equal(error.status, RUNNEL_OK);
    return machine;
}

static void test_plausible(void **state)
{
    runnel_machine a = measure(), b = measure();
    runnel_engine_stats stats = {.struct_size = sizeof stats};

    (void)state;
    assert_int_equal(a.struct_size, sizeof a);
    assert_int_equal(a.compute_threads, rn_cores_usable());
    assert_true(a.memory_nodes >= 1 && a.memory_nodes == b.memory_nodes);
    assert_string_equal(a.level, rn_level_best()->name);
    assert_true(strlen(a.cpu) > 0 && strlen(a.cpu) < sizeof a.cpu);
    assert_true(a.memory_bytes > 1u << 28 && a.memory_bytes == b.memory_bytes);
    /* From a slow small board, busy with other things, to the largest server. */
    assert_true(a.read_bytes_per_s > 1e7 && a.read_bytes_per_s < 1e13);
    assert_true(a.read_median_bytes_per_s <= a.read_bytes_per_s);
    assert_true(a.integer_ops_per_s > 1e7 && a.integer_ops_per_s < 1e16);
    assert_true(a.float_ops_per_s > 1e6 && a.float_ops_per_s < 1e16);
    runnel_engine_get_stats(engine, &stats);
    assert_true(stats.heap_bytes < 64u << 20); /* what was read has been given back */
}

static void test_short_struct(void **state)
{
    runnel_machine machine;

    (void)state;
    memset(&machine, 0x55, sizeof machine);
    machine.struct_size = offsetof(runnel_machine, memory_bytes);
    assert_int_equal(runnel_engine_measure(engine, &machine, NULL), RUNNEL_OK);
    assert_int_equal(machine.struct_size, offsetof(runnel_machine, memory_bytes));
    assert_string_equal(machine.level, rn_level_best()->name);
    assert_int_equal(machine.memory_bytes, 0x5555555555555555u); /* behind what the caller knows */
}

static void test_refused(void **state)
{
    runnel_machine machine = {.struct_size = sizeof machine};
    runnel_engine *manual;
    runnel_error error;

    (void)state;
    assert_int_equal(runnel_engine_measure(NULL, &machine, &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, "NULL"));
    assert_int_equal(runnel_engine_measure(engine, NULL, NULL), RUNNEL_INVALID);
    machine.struct_size = 0;
    assert_int_equal(runnel_engine_measure(engine, &machine, &error), RUNNEL_INVALID);
    machine.struct_size = sizeof machine + 1;
    assert_int_equal(runnel_engine_measure(engine, &machine, &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, "struct_size"));
    machine.struct_size = sizeof machine;
    assert_true(rn_counter_take(&engine->measuring, 1));
    assert_int_equal(runnel_engine_measure(engine, &machine, &error), RUNNEL_STATE);
    rn_counter_add(&engine->measuring, -1);
    assert_int_equal(rn_engine_new(NULL, NULL, true, &manual, NULL), RUNNEL_OK);
    assert_int_equal(runnel_engine_measure(manual, &machine, &error), RUNNEL_STATE);
    runnel_engine_free(manual);
}

static void *refuse_large(void *user, size_t bytes, size_t alignment)
{
    (void)user;
    return bytes >= 1u << 20 ? NULL : aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void free_any(void *user, void *ptr, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(ptr);
}

static void test_no_memory(void **state)
{
    const runnel_allocator hook = {refuse_large, free_any, NULL};
    runnel_machine machine = {.struct_size = sizeof machine};
    struct rn_heap heap;
    struct rn_team *team;
    runnel_error error = {0};

    (void)state;
    rn_heap_init(&heap, &hook);
    team = rn_team_new(&heap, 1);
    assert_non_null(team);
    assert_int_equal(rn_cpu_measure(&rn_peak_c, &heap, team, NULL, NULL, &machine, &error), RUNNEL_NO_MEMORY);
    rn_team_free(team);
    assert_int_equal(rn_heap_bytes(&heap), 0);
}

/* Operations per second of one loop here, at least 10 ms of it. */
static double speed(uint64_t (*loop)(uint64_t), double ops)
{
    const struct rn_clock clock = rn_clock_machine();
    volatile uint64_t sink = 0;
    uint64_t rounds = 1000, begin_us, took_us;

    for (;; rounds *= 2) {
        begin_us = rn_now_us(&clock);
        sink = loop(rounds);
        took_us = rn_now_us(&clock) - begin_us;
        if (took_us >= 10000)
            break;
    }
    (void)sink;
    return (double)rounds * ops * 1e6 / (double)took_us;
}

/* Multiplications each of which waits for the one before: three or four cycles on every processor. */
static uint64_t chain(uint64_t rounds)
{
    uint64_t product = 1;

    for (uint64_t i = 0; i < rounds; i++) {
        product *= 0x9e3779b97f4a7c15u;
        __asm__ volatile("" : "+r"(product));
    }
    return product;
}

/* Loops that the compiler had folded would be too fast by orders of magnitude, beside a chain that it cannot fold: the
 * tiles do some 2,000 integer operations a cycle, two products of 512-bit vectors 256 and, of floats, 64. */
static void test_loops_of_every_level(void **state)
{
    static const char *const names[] = {"c", "avx2", "avx2-vnni", "avx512", "avx512-amx", "neon"};
    char *memory = aligned_alloc(64, 1 << 20);
    double links = speed(chain, 1);
    size_t i;

    (void)state;
    assert_non_null(memory);
    memset(memory, 1, 1 << 20);
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        const struct rn_peak *peak = rn_peak(names[i]);
        double integer, real;

        if (rn_level_named(names[i]) == NULL)
            continue;
        integer = speed(peak->integer, peak->integer_ops);
        real = speed(peak->real, peak->real_ops);
        assert_true(integer > links / 100 && integer < links * 1e5);
        assert_true(real > links / 100 && real < links * 2e3);
        /* Every 64-bit word is 0x0101..., 2^17 of them; the sum wraps as it may. */
        assert_int_equal(peak->read(memory, 1 << 20), 0x0101010101010101u << 17);
        assert_int_equal(peak->read(memory + RN_PEAK_BYTES, RN_PEAK_BYTES), 0x0101010101010101u * (RN_PEAK_BYTES / 8));
        assert_int_equal(peak->read_plain(memory, 1 << 20), 0x0101010101010101u << 17);
        assert_int_equal(peak->read_plain(memory + RN_PEAK_BYTES, RN_PEAK_BYTES),
                         0x0101010101010101u * (RN_PEAK_BYTES / 8));
    }
    free(memory);
    assert_ptr_equal(rn_peak("no such level"), &rn_peak_c);
}

/* What a team of one thread has been asked to read: bytes, and of those the ones right behind the bytes before. */
static struct asked_for {
    uint64_t bytes, in_order;
    const char *next;
} with_ahead, plain;

static uint64_t note(struct asked_for *asked, const void *memory, size_t bytes)
{
    asked->bytes += bytes;
    asked->in_order += memory == (const void *)asked->next ? bytes : 0;
    asked->next = (const char *)memory + bytes;
    return bytes;
}

static uint64_t note_ahead(const void *memory, size_t bytes)
{
    return note(&with_ahead, memory, bytes);
}

static uint64_t note_plain(const void *memory, size_t bytes)
{
    return note(&plain, memory, bytes);
}

/* As many patterns with requests ahead as without, one in three linear, and each of all the memory, five times. */
static void test_patterns(void **state)
{
    const struct rn_peak peak = {note_ahead, note_plain, rn_peak_c.integer, rn_peak_c.real, 1, 1};
    runnel_machine machine = {.struct_size = sizeof machine};
    struct rn_heap heap;
    struct rn_team *team;

    (void)state;
    rn_heap_init(&heap, NULL);
    team = rn_team_new(&heap, 1);
    assert_non_null(team);
    assert_int_equal(rn_cpu_measure(&peak, &heap, team, NULL, NULL, &machine, NULL), RUNNEL_OK);
    rn_team_free(team);
    assert_true(plain.bytes >= 15 * (UINT64_C(32) << 20) && plain.bytes % 15 == 0);
    assert_int_equal(plain.bytes, with_ahead.bytes);
    /* Of a linear pass all but its first visit; patterns of several places have none. */
    assert_int_equal(plain.in_order, plain.bytes / 3 - UINT64_C(5) * 65536);
    assert_int_equal(with_ahead.in_order, plain.in_order);
}

struct asked {
    bool ended;
    runnel_event_type type;
};

static void on_event(void *user, const runnel_event *event)
{
    struct asked *asked = user;

    if (event->type >= RUNNEL_EVENT_DONE)
        *asked = (struct asked){true, event->type};
}

/* A stream that runs on meanwhile ends as it should. */
static void test_amid_a_stream(void **state)
{
    struct asked asked = {0};
    runnel_model *model = NULL;
    runnel_request request;
    runnel_stream stream;

    (void)state;
    assert_int_equal(runnel_model_load(engine, "examples/models/runnel-tiny-Q8_0.gguf", NULL, &model, NULL), RUNNEL_OK);
    assert_int_equal(runnel_model_wait(model, -1, NULL), RUNNEL_OK);
    runnel_request_default(&request);
    request.prompt = "Once";
    request.prompt_bytes = 4;
    request.max_tokens = 20;
    request.ignore_eos = 1;
    request.on_event = on_event;
    request.user = &asked;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    measure();
    while (!asked.ended) {
        runnel_engine_wait(engine, 100);
        runnel_engine_dispatch(engine, 0);
    }
    assert_int_equal(asked.type, RUNNEL_EVENT_DONE);
    runnel_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plausible),
        cmocka_unit_test(test_short_struct),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_loops_of_every_level),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_amid_a_stream),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
