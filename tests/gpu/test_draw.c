/* Draws on the device against the chain of sampling/: the same token from the same logits, and the same logprobs to the
 * bit, for parameters alone and together, on logits of many kinds, and with masks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "model/draw_mask.h"
#include "rig.h"
#include "sampling/sampler.h"

enum { ROWS = 8 };

enum kind { RANDOM, PEAKED, FLAT, TIED, GAPS, WIDE, KINDS };

/* logits of one row. */
static void fill(struct rig *rig, enum kind kind, float *logits, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        float x = rig_float(rig, 1) + rig_float(rig, 1) + rig_float(rig, 1);

        logits[i] = kind == FLAT                        ? 0.25f
                    : kind == TIED                      ? (float)(int)(4 * x)
                    : kind == GAPS && i % 3 == 0        ? -INFINITY
                    : kind == WIDE                      ? 1e30f * x
                    : kind == PEAKED && i == n / 3 + 1u ? 30
                                                        : 5 * x;
        if (kind == TIED && logits[i] == 0 && i % 2 == 0)
            logits[i] = -0.0f;
    }
    if (kind == GAPS)
        logits[n - 1] = 1;
}

struct table {
    struct rig rig;
    float *logits;
    struct rn_draw_ask *asks;
    struct rn_draw_result *results;
    struct rn_sampler_scratch *scratch;
    uint32_t n_vocab;
    struct rn_draw_mask *masks[ROWS]; /* NULL: the row has none */
};

static void open_table(struct table *t, uint32_t n_vocab)
{
    rig_open(&t->rig);
    t->n_vocab = n_vocab;
    t->logits = rig_device(&t->rig, (size_t)ROWS * n_vocab * sizeof(float));
    t->asks = rig_device(&t->rig, ROWS * sizeof *t->asks);
    t->results = rig_device(&t->rig, ROWS * sizeof *t->results);
    memset(t->masks, 0, sizeof t->masks);
    t->scratch = rn_sampler_scratch_new(&t->rig.heap, n_vocab);
    assert_non_null(t->scratch);
}

static void close_table(struct table *t)
{
    rn_sampler_scratch_free(t->scratch);
    rig_close(&t->rig);
}

/* The first n_rows rows with these parameters, from a position on, on the device and by the chain. */
static void compare(struct table *t, const runnel_sampling *params, uint32_t n_rows, uint64_t position, bool logprob,
                    uint32_t n_top)
{
    struct rn_draw_args args = {rig_at(t->logits), rig_at(t->asks), rig_at(t->results), n_rows, t->n_vocab};
    struct rn_sampler *sampler = rn_sampler_new(&t->rig.heap, params, t->n_vocab, 0);

    assert_non_null(sampler);
    for (uint32_t r = 0; r < n_rows; r++)
        t->asks[r] = (struct rn_draw_ask){.seed = params->seed,
                                          .position = position + r,
                                          .mask = rig_at(t->masks[r]),
                                          .temperature = params->temperature,
                                          .top_p = params->top_p,
                                          .min_p = params->min_p,
                                          .top_k = params->top_k,
                                          .wanted = 1,
                                          .want_logprob = logprob,
                                          .n_top = n_top};
    rig_run(&t->rig, RN_KERNEL_draw, &args);
    for (uint32_t r = 0; r < n_rows; r++) {
        const struct rn_draw_result *got = &t->results[r];
        const struct rn_mask mask = {t->masks[r] == NULL ? NULL : t->masks[r]->words, true};
        struct rn_pick want;
        runnel_status status =
            rn_sampler_pick_masked(sampler, (struct rn_path){NULL, 0}, mask.words == NULL ? NULL : &mask, t->scratch,
                                   t->logits + (size_t)r * t->n_vocab, position + r, logprob, n_top, &want);

        assert_int_equal(got->good, status == RUNNEL_OK);
        if (status != RUNNEL_OK) {
            assert_int_equal(status, RUNNEL_NUMERIC);
            assert_int_equal(got->token, 0);
            continue;
        }
        if (got->token != want.token)
            fail_msg("n %u, row %u, temperature %g, top_k %u, top_p %g, min_p %g: token %d, not %d", t->n_vocab, r,
                     (double)params->temperature, params->top_k, (double)params->top_p, (double)params->min_p,
                     got->token, want.token);
        if (!logprob)
            continue;
        assert_memory_equal(&got->logprob, &want.logprob, sizeof got->logprob);
        assert_int_equal(got->n_top, want.n_top);
        for (uint32_t i = 0; i < want.n_top; i++) {
            assert_int_equal(got->top_tokens[i], want.top[i].token);
            assert_memory_equal(&got->top_logprobs[i], &want.top[i].logprob, sizeof(float));
        }
    }
    rn_sampler_free(sampler);
}

static const runnel_sampling ways[] = {
    {.temperature = 0, .top_p = 1},
    {.temperature = 1, .top_p = 1},
    {.temperature = 0.7f, .top_p = 1, .top_k = 40},
    {.temperature = 0.7f, .top_p = 0.9f},
    {.temperature = 1.3f, .top_p = 1, .min_p = 0.05f},
    {.temperature = 0.8f, .top_p = 0.95f, .top_k = 20, .min_p = 0.02f},
    {.temperature = 2, .top_p = 0.5f, .top_k = 1500},
    {.temperature = 1e-30f, .top_p = 0.999f},
    {.temperature = 50, .top_p = 0.99f, .top_k = 3000, .min_p = 1e-4f},
    {.temperature = 1, .top_p = 1e-6f, .top_k = 1},
};

enum { WAYS = sizeof ways / sizeof ways[0] };

static runnel_sampling way(uint32_t i, uint64_t seed)
{
    runnel_sampling params = ways[i];

    params.repetition_penalty = 1;
    params.seed = seed;
    return params;
}

static void kinds_of(uint32_t n_vocab, uint32_t n_kinds, bool logprob, uint32_t n_top)
{
    struct table t;

    open_table(&t, n_vocab);
    for (uint32_t k = 0; k < n_kinds; k++)
        fill(&t.rig, (enum kind)k, t.logits + (size_t)k * n_vocab, n_vocab);
    for (uint32_t i = 0; i < WAYS; i++) {
        runnel_sampling params = way(i, 1234567890123u + i);

        compare(&t, &params, n_kinds, ((uint64_t)1 << 33) + i, logprob, n_top);
    }
    close_table(&t);
}

static void test_kinds(void **state)
{
    (void)state;
    kinds_of(1, KINDS, true, 5);
    kinds_of(31, KINDS, true, RN_DRAW_TOP);
    kinds_of(1030, KINDS, true, 3);
    kinds_of(5001, KINDS, false, 0);
}

static void test_large(void **state)
{
    (void)state;
    kinds_of(32000, 2, true, 7);
    kinds_of(128256, 1, false, 0);
}

/* A thousand coins on the same logits. */
static void test_coins(void **state)
{
    enum { N = 300 };
    struct table t;

    (void)state;
    open_table(&t, N);
    for (uint32_t r = 0; r < ROWS; r++)
        fill(&t.rig, RANDOM, t.logits + r * N, N);
    for (uint32_t i = 0; i < 150; i++) {
        runnel_sampling params = way(1 + i % 5, (uint64_t)i << 40 | i);

        compare(&t, &params, ROWS, i * ROWS, false, 0);
    }
    close_table(&t);
}

static void test_no_numbers(void **state)
{
    enum { N = 700 };
    struct table t;

    (void)state;
    open_table(&t, N);
    for (uint32_t r = 0; r < 6; r++)
        fill(&t.rig, RANDOM, t.logits + r * N, N);
    t.logits[650] = NAN;
    t.logits[N] = -NAN;
    t.logits[2 * N + 3] = INFINITY;
    for (uint32_t i = 0; i < N; i++)
        t.logits[3 * N + i] = -INFINITY;
    t.logits[4 * N] = -INFINITY;
    t.logits[5 * N + 5] = FLT_MAX;
    for (uint32_t i = 0; i < WAYS; i++) {
        runnel_sampling params = way(i, i);

        compare(&t, &params, 6, 7, true, 2);
    }
    close_table(&t);
}

/* Rows of which nothing is wanted, and rows that are fed. */
static void test_feed(void **state)
{
    enum { N = 40, FED = 300 };
    struct table t;
    struct rn_draw_args draw;
    struct rn_feed_args feed;
    int32_t *drawn;
    uint32_t *tokens;

    (void)state;
    open_table(&t, N);
    drawn = rig_device(&t.rig, FED * sizeof *drawn);
    tokens = rig_device(&t.rig, FED * sizeof *tokens);
    for (uint32_t r = 0; r < ROWS; r++) {
        fill(&t.rig, RANDOM, t.logits + r * N, N);
        t.asks[r] = (struct rn_draw_ask){.top_p = 1, .wanted = r % 2};
    }
    draw = (struct rn_draw_args){rig_at(t.logits), rig_at(t.asks), rig_at(t.results), ROWS, N};
    rig_run(&t.rig, RN_KERNEL_draw, &draw);
    for (uint32_t i = 0; i < FED; i++) {
        drawn[i] = (int32_t)(i % (ROWS + 2)) - 1; /* also one that is not there */
        tokens[i] = i;
    }
    feed = (struct rn_feed_args){rig_at(t.results), rig_at(drawn), rig_at(tokens), FED, ROWS};
    rig_run(&t.rig, RN_KERNEL_feed, &feed);
    for (uint32_t r = 0; r < ROWS; r++)
        assert_int_equal(t.results[r].good, r % 2);
    for (uint32_t i = 0; i < FED; i++)
        assert_int_equal(tokens[i], drawn[i] < 0 || drawn[i] >= ROWS ? i : (uint32_t)t.results[drawn[i]].token);
    close_table(&t);
}

/* ---- Masks ---- */

static uint32_t mask_words(const struct table *t)
{
    return (t->n_vocab + 63) / 64;
}

/* Of a row: every `apart`-th token from `first` on is allowed; apart 0: none is. Bits behind the vocabulary are set. */
static void mask_row(struct table *t, uint32_t r, uint32_t first, uint32_t apart)
{
    uint64_t words[1024] = {0};

    assert_true(mask_words(t) <= 1024);
    for (uint32_t i = first; apart > 0 && i < t->n_vocab; i += apart)
        words[i / 64] |= UINT64_C(1) << i % 64;
    if (t->n_vocab % 64 != 0)
        words[t->n_vocab / 64] |= UINT64_MAX << t->n_vocab % 64;
    t->masks[r] = rig_device(&t->rig, sizeof *t->masks[r] + mask_words(t) * sizeof words[0]);
    rn_draw_mask_clear(t->masks[r]);
    rn_draw_mask_put(t->masks[r], words, mask_words(t));
}

/* Some rows have one: most tokens, few, one, none; the best one is forbidden, or a tie's first. */
static void test_masks(void **state)
{
    static const uint32_t sizes[] = {1, 31, 1030, 5001};

    (void)state;
    for (size_t n = 0; n < sizeof sizes / sizeof sizes[0]; n++) {
        uint32_t n_vocab = sizes[n];
        struct table t;

        open_table(&t, n_vocab);
        for (uint32_t r = 0; r < ROWS; r++)
            fill(&t.rig, (enum kind)(r % KINDS), t.logits + (size_t)r * n_vocab, n_vocab);
        mask_row(&t, 0, 0, 2);
        mask_row(&t, PEAKED, n_vocab / 3 + 2, 1); /* behind the peak */
        mask_row(&t, FLAT, n_vocab - 1, 1);
        mask_row(&t, TIED, 1, 3);
        mask_row(&t, GAPS, 0, 3); /* those that have -infinity, and perhaps the last */
        mask_row(&t, 6, 0, 0);
        for (uint32_t i = 0; i < WAYS; i++) {
            runnel_sampling params = way(i, 99 + i);

            compare(&t, &params, ROWS, 5 + i, i % 2 == 0, 6);
        }
        close_table(&t);
    }
}

/* A mask that is not there: the logits go to the host, and nothing is drawn, beside rows that are. */
static void test_late_mask(void **state)
{
    enum { N = 500 };
    struct table t;
    struct rn_draw_args draw;
    float *late;

    (void)state;
    open_table(&t, N);
    late = rig_device(&t.rig, 3 * N * sizeof *late);
    for (uint32_t r = 0; r < 3; r++) {
        fill(&t.rig, RANDOM, t.logits + r * N, N);
        mask_row(&t, r, 0, 2);
        t.asks[r] =
            (struct rn_draw_ask){.top_p = 1, .wanted = 1, .mask = rig_at(t.masks[r]), .late = rig_at(late + r * N)};
        if (r != 1)
            rn_draw_mask_clear(t.masks[r]);
    }
    draw = (struct rn_draw_args){rig_at(t.logits), rig_at(t.asks), rig_at(t.results), 3, N};
    rig_run(&t.rig, RN_KERNEL_draw, &draw);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(t.results[r].is_late, r != 1);
        assert_int_equal(t.results[r].good, r == 1);
        if (r != 1)
            assert_memory_equal(late + r * N, t.logits + r * N, N * sizeof *late);
    }
    close_table(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),      cmocka_unit_test(test_large), cmocka_unit_test(test_coins),
        cmocka_unit_test(test_no_numbers), cmocka_unit_test(test_feed),  cmocka_unit_test(test_masks),
        cmocka_unit_test(test_late_mask),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
