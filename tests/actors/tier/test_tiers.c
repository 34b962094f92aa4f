/* Prefixes that leave the pool and come back out of packed memory, or, where that does not pay, are computed. The
 * oracle model, one thread, steps at the test's will: what is wrong anywhere in the past changes every later token. The
 * same with the bundled model and its threads, against a model without a cache. Files: test_tier_files.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "base/rng.h"
#include "tests/actors/tier/tiered.h"

/* What had to make room comes out of packed memory, in each way of packing; of another salt it does not. */
static void warm(void **state)
{
    static const char *const codecs[] = {NULL, "none", "lz4", "zstd"};

    (void)state;
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        struct tiered_plan tiers = {.warm_bytes = 1 << 20, .codec = codecs[i]};
        int32_t tokens[TIERED_LONG];
        runnel_usage usage;

        tiered_begin(&tiers);
        tiered_prompt(tokens, TIERED_LONG, 1, TIERED_LONG, 0);
        assert_int_equal(tiered_ask(tokens, TIERED_LONG, 0).cached_tokens, 0);
        tiered_crowd_out(10, 5);
        usage = tiered_ask(tokens, TIERED_LONG, 0);
        assert_int_equal(usage.warm_tokens, TIERED_LONG - TIERED_BLOCK);
        assert_int_equal(usage.cached_tokens, TIERED_LONG - TIERED_BLOCK);
        assert_int_equal(usage.cold_tokens, 0);
        usage = tiered_ask(tokens, TIERED_LONG, 0); /* now it is here */
        assert_int_equal(usage.warm_tokens, 0);
        assert_true(usage.cached_tokens >= TIERED_LONG - TIERED_BLOCK);
        tiered_crowd_out(20, 5);
        assert_int_equal(tiered_ask(tokens, TIERED_LONG, 7).cached_tokens, 0);
        assert_int_equal(tiered_metrics().warm_hits, TIERED_LONG - TIERED_BLOCK);
        assert_true(tiered_metrics().warm_bytes > 0 && tiered_metrics().warm_bytes <= 1 << 20);
        assert_int_equal(tiered_metrics().cache_errors, 0);
        tiered_end();
    }
}

/* Two that begin alike, and come when only the warm tier has it: one carries it up, both use it. */
static void two_at_once(void **state)
{
    struct tiered_plan tiers = {.warm_bytes = 1 << 20};
    int32_t tokens[2][TIERED_LONG];
    struct capture captures[2];

    (void)state;
    tiered_begin(&tiers);
    tiered_prompt(tokens[0], TIERED_LONG, 1, 80, 1);
    tiered_prompt(tokens[1], TIERED_LONG, 1, 80, 2);
    tiered_ask(tokens[0], TIERED_LONG, 0);
    tiered_crowd_out(10, 5);
    for (int i = 0; i < 2; i++) {
        runnel_request request = tiered_request(&captures[i], tokens[i], TIERED_LONG, 4);

        assert_int_equal(runnel_generate(tiered.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    }
    tiered_run_out();
    for (int i = 0; i < 2; i++) {
        tiered_assert_right(&captures[i], tokens[i], TIERED_LONG);
        assert_true(captures[i].last.usage.cached_tokens >= 80);
        capture_clear(&captures[i]);
    }
    assert_true(tiered_metrics().warm_hits > 0 && tiered_metrics().warm_hits <= TIERED_LONG);
    tiered_end();
}

/* A disk that hangs: one that waits does so until its time has come, one that does not goes on at once; when the disk
 * goes on, what it brings is not in the way. */
static void impatient(void **state)
{
    struct tiered_plan tiers = {.warm_bytes = 1 << 20};
    int32_t tokens[TIERED_LONG];

    (void)state;
    tiered_prompt(tokens, TIERED_LONG, 1, TIERED_LONG, 0);
    for (int wait = RUNNEL_CACHE_BEST_EFFORT; wait <= RUNNEL_CACHE_DEADLINE; wait++) {
        struct capture capture;
        runnel_request request = tiered_request(&capture, tokens, TIERED_LONG, 4);

        tiered_begin(&tiers);
        tiered_ask(tokens, TIERED_LONG, 0);
        tiered_crowd_out(10, 5);
        request.cache_wait = (runnel_cache_wait)wait;
        request.cache_wait_ms = 50;
        tiered.mover_hangs = true;
        assert_int_equal(runnel_generate(tiered.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        tiered_run_out();
        assert_int_equal(capture.n_terminal, wait == RUNNEL_CACHE_BEST_EFFORT);
        tiered.time_us += 60000;
        rn_runtime_look_at_clock(&tiered.engine->runtime);
        tiered_run_out();
        assert_int_equal(capture.n_terminal, wait != RUNNEL_CACHE_WAIT);
        tiered.mover_hangs = false;
        tiered_run_out();
        tiered_assert_right(&capture, tokens, TIERED_LONG);
        assert_int_equal(capture.last.usage.warm_tokens, wait == RUNNEL_CACHE_WAIT ? TIERED_LONG - TIERED_BLOCK : 0);
        capture_clear(&capture);
        assert_int_equal(tiered.model->tier.cache.blocks.n_used, 0);
        assert_true(tiered_ask(tokens, TIERED_LONG, 0).cached_tokens >= TIERED_LONG - TIERED_BLOCK);
        tiered_end();
    }
}

/* It is fetched while its request waits for others to make room. */
static void prefetch(void **state)
{
    struct tiered_plan tiers = {.warm_bytes = 1 << 20};
    int32_t tokens[3][TIERED_LONG];
    struct capture captures[3];

    (void)state;
    tiered_begin(&tiers);
    for (uint32_t i = 0; i < 3; i++)
        tiered_prompt(tokens[i], TIERED_LONG, i, TIERED_LONG, 0);
    tiered_ask(tokens[2], 50, 0);
    tiered_crowd_out(10, 5);
    for (int i = 0; i < 3; i++) {
        runnel_request request = tiered_request(&captures[i], tokens[i], i < 2 ? TIERED_LONG : 50, 4);

        request.cache_wait = RUNNEL_CACHE_BEST_EFFORT;
        assert_int_equal(runnel_generate(tiered.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        tiered_settle();
    }
    assert_int_equal(tiered_metrics().waiting, 2);
    assert_true(tiered_metrics().warm_bytes_out > 0);
    tiered_run_out();
    for (int i = 0; i < 3; i++) {
        tiered_assert_right(&captures[i], tokens[i], i < 2 ? TIERED_LONG : 50);
        capture_clear(&captures[i]);
    }
    tiered_end();
}

/* Where fetching takes longer than computing nothing is fetched; and when it is faster again, it is found out. */
static void dearer_than_computing(void **state)
{
    struct tiered_plan tiers = {.warm_bytes = 1 << 20};
    int32_t tokens[TIERED_LONG];
    uint64_t skipped;

    (void)state;
    tiered_begin(&tiers);
    tiered_prompt(tokens, TIERED_LONG, 1, TIERED_LONG, 0);
    tiered_ask(tokens, TIERED_LONG, 0);
    tiered_crowd_out(10, 5);
    assert_int_equal(tiered_ask(tokens, TIERED_LONG, 0).warm_tokens, TIERED_LONG - TIERED_BLOCK);
    tiered.block_us = 5000; /* now both times are known */
    for (uint32_t i = 0; i < 5; i++) {
        tiered_crowd_out(100 + 5 * i, 5);
        tiered_ask(tokens, TIERED_LONG, 0);
    }
    skipped = tiered_metrics().cache_skipped;
    assert_true(skipped > 0);
    tiered.block_us = 0;
    for (uint32_t i = 0; i < 40; i++) {
        tiered_crowd_out(300 + 5 * i, 5);
        tiered_ask(tokens, TIERED_LONG, 0);
    }
    assert_int_equal(tiered_ask(tokens, TIERED_LONG, 0).warm_tokens, 0);
    assert_true(tiered_metrics().cache_skipped > skipped);
    tiered_crowd_out(1500, 5);
    assert_int_equal(tiered_ask(tokens, TIERED_LONG, 0).warm_tokens, TIERED_LONG - TIERED_BLOCK);
    tiered_end();
}

/* More than both tiers have room for, in random order: right tokens, nothing held at the end. */
static void storm(void **state)
{
    struct tiered_plan tiers = {.warm_bytes = 1 << 20};
    uint64_t rng = 5;

    (void)state;
    tiered_begin(&tiers);
    for (int round = 0; round < 2000; round++) {
        int32_t tokens[TIERED_LONG];
        uint32_t n = 20 + (uint32_t)(rn_splitmix64(&rng) % 100);

        tiered_prompt(tokens, n, (uint32_t)(rn_splitmix64(&rng) % 200), n, 0);
        tiered_ask(tokens, n, 0);
    }
    assert_true(tiered_metrics().warm_hits > 0 && tiered_metrics().evicted_blocks > 0);
    assert_true(tiered_metrics().warm_bytes <= 1 << 20);
    tiered_end();
}

/* Prompts that are never asked again, one behind another without a pause: what copies take is what the budget has, what
 * could not be paid is counted; and once nobody comes any more the rest is copied for nothing. */
static void never_again(void **state)
{
    enum { PROMPT = 60, N = 400, MOVE = TIERED_BLOCKS / 8 };
    struct tiered_plan tiers = {.warm_bytes = 1 << 20};
    int32_t tokens[2][PROMPT];
    struct capture captures[2];
    uint64_t begin_us, spent_us;
    double budget_us;

    (void)state;
    tiered_begin(&tiers);
    begin_us = tiered.time_us;
    tiered.copy_us = 5000; /* a step takes 1000 */
    for (uint32_t i = 0; i <= N; i++) {
        runnel_request request = tiered_request(&captures[i % 2], tokens[i % 2], PROMPT, 4);

        tiered_prompt(tokens[i % 2], PROMPT, i, PROMPT, 0);
        assert_int_equal(runnel_generate(tiered.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        tiered_settle();
        while (i > 0 && captures[(i - 1) % 2].n_terminal == 0)
            tiered_step(ORACLE_FAULT_NONE);
        if (i > 0) {
            tiered_assert_right(&captures[(i - 1) % 2], tokens[(i - 1) % 2], PROMPT);
            capture_clear(&captures[(i - 1) % 2]);
        }
    }
    spent_us = tiered_metrics().cache_copy_us;
    assert_true((double)spent_us <= RN_COPY_BUDGET_INITIAL_US +
                                        (double)(tiered.time_us - begin_us) / RN_COPY_BUDGET_BUSY_PART +
                                        (double)(MOVE * tiered.copy_us + 100));
    assert_true((double)spent_us >= RN_COPY_BUDGET_INITIAL_US - (double)(MOVE * tiered.copy_us));
    assert_true(tiered_metrics().cache_unpaid > N && tiered_metrics().cache_dropped >= tiered_metrics().cache_unpaid);
    budget_us = tiered.model->tier.directory.budget.us;
    tiered_run_out();
    tiered_assert_right(&captures[N % 2], tokens[N % 2], PROMPT);
    capture_clear(&captures[N % 2]);
    assert_true(tiered_metrics().cache_copy_us >= spent_us + 2 * MOVE * tiered.copy_us);
    assert_true(tiered.model->tier.directory.budget.us >= budget_us - (double)(MOVE * tiered.copy_us + 100));
    tiered.copy_us = 0;
    tiered_end();
}

/* ---- The bundled model, with threads ---- */

#define STEM                                                                                                          \
    "This is a story from a long time ago, told by the fire on winter nights, when the snow lay deep and the wolves " \
    "came down from the hills. There was an old man in the village who knew all the stories, and each night the "     \
    "children asked him for another one. "

static runnel_model *load_with(runnel_engine *of, bool cache, runnel_kv_type kv_type)
{
    runnel_model_options options;
    runnel_model_info info = {.struct_size = sizeof info};

    runnel_model_options_default(&options);
    options.kv_type = kv_type;
    options.context_tokens = 160;
    options.no_prefix_cache = !cache;
    if (cache) {
        runnel_model *whole = load_model(of, quick_model(), &options);

        assert_int_equal(runnel_model_get_info(whole, &info), RUNNEL_OK);
        runnel_model_free(whole);
        options.kv_bytes = 6 * info.block_tokens * info.kv_bytes_per_token;
        options.cache_warm_bytes = 16 << 20;
        options.cache_dir = tiered.folder;
    }
    return load_model(of, quick_model(), &options);
}

static void ask_both(runnel_engine *of, runnel_model *cached, runnel_model *plain, const char *prompt,
                     runnel_usage *usage)
{
    struct capture a = {0}, b = {0};
    runnel_request request = make_request(prompt, test_device() != NULL ? 4 : 12, &a);

    request.ignore_eos = 1;
    assert_int_equal(run_request(of, cached, &request), RUNNEL_EVENT_DONE);
    request.user = &b;
    assert_int_equal(run_request(of, plain, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(a.n_tokens, b.n_tokens);
    assert_memory_equal(a.tokens, b.tokens, a.n_tokens * sizeof *a.tokens);
    *usage = a.last.usage;
    capture_clear(&a);
    capture_clear(&b);
}

/* Each KV format, evicted, restarted: the tokens of a model without a cache. */
static void real_model(void **state)
{
    static const runnel_kv_type types[] = {RUNNEL_KV_F16, RUNNEL_KV_Q8, RUNNEL_KV_FP8, RUNNEL_KV_F32};
    static const char *const prompts[] = {STEM "The owl", "Quite another " STEM, "And one more, other than " STEM,
                                          "Nothing like " STEM};

    (void)state;
    for (size_t t = 0; t < (test_device() != NULL ? 1 : sizeof types / sizeof types[0]); t++)
        for (int life = 0; life < 2; life++) {
            runnel_engine *of = start_engine(NULL);
            runnel_model *cached = load_with(of, true, types[t]), *plain = load_with(of, false, types[t]);
            uint64_t n_lower = 0;

            for (size_t i = 0; i < (test_device() != NULL ? 8u : 12u); i++) {
                runnel_usage usage;

                ask_both(of, cached, plain, prompts[i % 4], &usage);
                n_lower += usage.warm_tokens + usage.cold_tokens;
                if (life == 1 && i == 0)
                    assert_true(usage.cold_tokens >= 32);
            }
            assert_true(n_lower >= 64);
            runnel_engine_free(of);
        }
}

/* The value is wrong for the field: the tier's check sees it. */
#define BROKEN(field, wrong)               \
    do {                                   \
        __typeof__(field) right = (field); \
                                           \
        (field) = (wrong);                 \
        assert_false(rn_tier_check(tier)); \
        (field) = right;                   \
        assert_true(rn_tier_check(tier));  \
    } while (0)

/* What the checks of the tier's objects, and of how they agree, would find. */
static void checks(void **state)
{
    const struct tiered_plan tiers = {.warm_bytes = 1 << 20};
    int32_t tokens[TIERED_LONG];
    struct capture capture;
    struct rn_tier *tier;
    runnel_stream stream;
    runnel_request request;
    uint32_t slot, other;

    (void)state;
    tiered_begin(&tiers);
    tier = &tiered.model->tier;
    tiered_prompt(tokens, TIERED_LONG, 1, TIERED_LONG, 0);
    tiered_ask(tokens, TIERED_LONG, 0);
    tiered_crowd_out(10, 5);
    request = tiered_request(&capture, tokens, TIERED_BLOCK, 4);
    assert_int_equal(runnel_generate(tiered.model, &request, &stream, NULL), RUNNEL_OK);
    tiered_settle();
    slot = (uint32_t)stream.id;
    other = slot == 0 ? 1 : 0;
    assert_int_equal(tier->admission.n_inside, 1);
    assert_true(rn_tier_check(tier));
    BROKEN(tier->admission.n_inside, 0);
    BROKEN(tier->admission.n_wanting, 1);
    BROKEN(tier->admission.n_preempting, 1);
    BROKEN(tier->admission.waiting.n, 1);
    BROKEN(tier->admission.streams[slot].place, 1);
    BROKEN(tier->admission.streams[other].n_wanted, 1);
    BROKEN(tier->cache.blocks.n_used, tier->cache.blocks.n_used + 1);
    BROKEN(tier->cache.blocks.n_lent, tier->cache.blocks.n_used + 1);
    BROKEN(tier->cache.streams[other].has_tail, true);
    BROKEN(tier->cache.streams[other].n_blocks, 1);
    BROKEN(tier->cache.promotions.items[0].stream, &tier->cache.streams[other]);
    BROKEN(tier->cache.streams[other].path.state, RN_PATH_WAITING);
    BROKEN(tier->directory.n_out, tier->directory.n_out + 1);
    BROKEN(tier->directory.writes, 0xff);
    BROKEN(tier->directory.n_asked_for, 1);
    BROKEN(tier->directory.entries[0].state, RN_DIRECTORY_LEAVING);
    tiered_run_out();
    capture_clear(&capture);
    tiered_end();
}

static bool hold_back(void *user, struct oracle *oracle, const struct rn_host_copies *copies)
{
    (void)oracle;
    (void)copies;
    return *(bool *)user;
}

static void end_copies(void)
{
    while (tiered.oracle->first_copies != NULL) {
        oracle_copy(tiered.oracle);
        tiered_settle();
    }
}

/* A device that takes its time to copy blocks: who waits for them does, others go on, and moves that come meanwhile
 * wait for the one at work. */
static void slow_device(void **state)
{
    struct tiered_plan tiers = {.warm_bytes = 1 << 20};
    int32_t tokens[2][TIERED_LONG];
    struct capture captures[2];
    bool hold = false;

    (void)state;
    tiered_begin(&tiers);
    tiered.oracle->copying = hold_back;
    tiered.oracle->user = &hold;
    tiered_prompt(tokens[0], TIERED_LONG, 1, TIERED_LONG, 0);
    tiered_prompt(tokens[1], TIERED_LONG, 0, 0, 99);
    tiered_ask(tokens[0], TIERED_LONG, 0);
    tiered_crowd_out(10, 5);
    hold = true;
    for (int i = 0; i < 2; i++) {
        runnel_request request = tiered_request(&captures[i], tokens[i], TIERED_LONG, 4);

        assert_int_equal(runnel_generate(tiered.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        tiered_settle();
        assert_non_null(tiered.oracle->first_copies);
        assert_null(tiered.oracle->first_copies->next); /* one list at a time */
    }
    tiered_run_out();
    assert_int_equal(captures[0].last.type, 0);
    tiered_assert_right(&captures[1], tokens[1], TIERED_LONG);
    assert_true(tiered.model->mover.n_waiting > 0); /* what the other one pushes out */
    while (tiered.oracle->first_copies != NULL || tiered.oracle->first != NULL) {
        end_copies();
        tiered_run_out();
    }
    assert_int_equal(tiered.model->mover.n_waiting, 0);
    tiered_assert_right(&captures[0], tokens[0], TIERED_LONG);
    assert_int_equal(captures[0].last.usage.warm_tokens, TIERED_LONG - TIERED_BLOCK);
    assert_int_equal(tiered_metrics().cache_errors, 0);
    hold = false;
    capture_clear(&captures[0]);
    capture_clear(&captures[1]);
    tiered_end();
}

/* Blocks that the device does not take are computed; those that it does not give are not kept. */
static void broken_copies(void **state)
{
    struct tiered_plan tiers = {.warm_bytes = 1 << 20};
    int32_t tokens[TIERED_LONG];
    runnel_usage usage;

    (void)state;
    tiered_begin(&tiers);
    tiered_prompt(tokens, TIERED_LONG, 1, TIERED_LONG, 0);
    tiered_ask(tokens, TIERED_LONG, 0);
    tiered_crowd_out(10, 5);
    tiered.oracle->copy_fails = true;
    usage = tiered_ask(tokens, TIERED_LONG, 0);
    assert_int_equal(usage.warm_tokens, 0);
    assert_false(tiered.oracle->copy_fails);
    assert_true(tiered_metrics().cache_errors > 0);
    tiered_crowd_out(20, 5);
    assert_int_equal(tiered_ask(tokens, TIERED_LONG, 0).warm_tokens, TIERED_LONG - TIERED_BLOCK);
    tiered_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm),
        cmocka_unit_test(two_at_once),
        cmocka_unit_test(impatient),
        cmocka_unit_test(prefetch),
        cmocka_unit_test(dearer_than_computing),
        cmocka_unit_test(storm),
        cmocka_unit_test(never_again),
        cmocka_unit_test(checks),
        cmocka_unit_test(slow_device),
        cmocka_unit_test(broken_copies),
        cmocka_unit_test_setup_teardown(real_model, tiered_make_folder, tiered_drop_folder),
    };

    return run_cases(tests, NULL, NULL);
}
