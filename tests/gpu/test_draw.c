/* Draws on the device against the chain of sampling/: the same token from the same logits, and the same logprobs to the
 * bit, for parameters alone and together, on logits of many kinds, with masks, biases, penalties and ends that may not
 * come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "gpu/kernels/draw_args.h"
#include "model/draw_mask.h"
#include "tests/gpu/rigs/rig.h"
#include "sampling/changes.h"
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

static struct rn_draw_args draw_args(const struct table *t, uint32_t n_rows)
{
    return (struct rn_draw_args){.logits = rig_at(t->logits),
                                 .asks = rig_at(t->asks),
                                 .results = rig_at(t->results),
                                 .n_rows = n_rows,
                                 .n_vocab = t->n_vocab};
}

/* What the device has drawn for a row is what the chain draws with this sampler. */
static void expect(const struct table *t, uint32_t r, const struct rn_sampler *sampler, const struct rn_mask *mask,
                   uint64_t position, bool logprob, uint32_t n_top)
{
    const struct rn_draw_result *got = &t->results[r];
    const runnel_sampling *params = rn_sampler_params(sampler);
    struct rn_pick want;
    runnel_status status = rn_sampler_pick_masked(sampler, (struct rn_path){NULL, 0}, mask, t->scratch,
                                                  t->logits + (size_t)r * t->n_vocab, position, logprob, n_top, &want);

    assert_int_equal(got->good, status == RUNNEL_OK);
    if (status != RUNNEL_OK) {
        assert_int_equal(status, RUNNEL_NUMERIC);
        assert_int_equal(got->token, 0);
        return;
    }
    if (got->token != want.token)
        fail_msg("n %u, row %u, temperature %g, top_k %u, top_p %g, min_p %g: token %d, not %d", t->n_vocab, r,
                 (double)params->temperature, params->top_k, (double)params->top_p, (double)params->min_p, got->token,
                 want.token);
    if (!logprob)
        return;
    assert_memory_equal(&got->logprob, &want.logprob, sizeof got->logprob);
    assert_int_equal(got->n_top, want.n_top);
    for (uint32_t i = 0; i < want.n_top; i++) {
        assert_int_equal(got->top_tokens[i], want.top[i].token);
        assert_memory_equal(&got->top_logprobs[i], &want.top[i].logprob, sizeof(float));
    }
}

/* The first n_rows rows with these parameters, from a position on, on the device and by the chain. */
static void compare(struct table *t, const runnel_sampling *params, uint32_t n_rows, uint64_t position, bool logprob,
                    uint32_t n_top)
{
    struct rn_draw_args args = draw_args(t, n_rows);
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
                                          .n_top = n_top,
                                          .own = RN_DRAW_NONE};
    rig_run(&t->rig, RN_KERNEL_draw, &args);
    for (uint32_t r = 0; r < n_rows; r++) {
        const struct rn_mask mask = {t->masks[r] == NULL ? NULL : t->masks[r]->words, true};

        expect(t, r, sampler, mask.words == NULL ? NULL : &mask, position + r, logprob, n_top);
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
    kinds_of(1030, KINDS, true, RN_DRAW_TOP);
    kinds_of(5001, KINDS, false, 0);
}

static void test_large(void **state)
{
    (void)state;
    kinds_of(32000, 2, true, 7);
    kinds_of(128256, 1, false, 0);
}

/* Hundreds of coins on the same logits. */
static void test_coins(void **state)
{
    enum { N = 300 };
    struct table t;

    (void)state;
    open_table(&t, N);
    for (uint32_t r = 0; r < ROWS; r++)
        fill(&t.rig, RANDOM, t.logits + r * N, N);
    for (uint32_t i = 0; i < 80; i++) {
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
        t.asks[r] = (struct rn_draw_ask){.top_p = 1, .wanted = r % 2, .own = RN_DRAW_NONE};
    }
    draw = draw_args(&t, ROWS);
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
    rn_draw_mask_put(t->masks[r], words, mask_words(t), true);
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
        t.asks[r] = (struct rn_draw_ask){
            .top_p = 1, .wanted = 1, .mask = rig_at(t.masks[r]), .late = rig_at(late + r * N), .own = RN_DRAW_NONE};
        if (r != 1)
            rn_draw_mask_clear(t.masks[r]);
    }
    draw = draw_args(&t, 3);
    rig_run(&t.rig, RN_KERNEL_draw, &draw);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(t.results[r].is_late, r != 1);
        assert_int_equal(t.results[r].good, r == 1);
        if (r != 1)
            assert_memory_equal(late + r * N, t.logits + r * N, N * sizeof *late);
    }
    close_table(&t);
}

/* ---- Biases, penalties, what is barred ---- */

enum { TOLD = 40, BIASES = 12, CHANGES = ROWS * 160 };

/* What a row is drawn with: the device is told of it by rn_changes_take, and the chain's sampler of every token. */
struct history {
    runnel_sampling params;
    runnel_samplers samplers;
    runnel_logit_bias biases[BIASES];
    int32_t told[TOLD], behind[RN_PATH_MOST], ends[3];
    uint32_t n_prompt, n_told, n_behind, n_never, n_ends;
    uint64_t until;
    bool waits, may_end;
};

static int32_t any_token(struct rig *rig, uint32_t n_vocab)
{
    uint32_t few = n_vocab < 9 ? n_vocab : 9; /* so that some come often */

    return (int32_t)rig_random(rig, rig_random(rig, 2) == 0 ? few : n_vocab);
}

static float any_bias(struct rig *rig)
{
    static const float hard[] = {-INFINITY, FLT_MAX, -FLT_MAX, 0, -0.0f};
    uint64_t r = rn_splitmix64(&rig->state);

    return r % 3 == 0 ? hard[r / 3 % 5] : rig_float(rig, 4);
}

static void any_history(struct rig *rig, uint32_t n_vocab, uint32_t i, struct history *h)
{
    static const float repetitions[] = {1, 1.3f, 0.7f, 1e-40f, FLT_MAX}, counts[] = {0, 1.5f, -0.7f, FLT_MAX, -1e30f};
    uint64_t r = rn_splitmix64(&rig->state), n = r % 7 == 0 ? 5 : 3; /* mostly of those that people use */

    *h = (struct history){.params = way(i % WAYS, r), .waits = r % 2 == 0, .may_end = r % 3 == 0};
    runnel_samplers_default(&h->samplers);
    h->samplers.penalty_scope = r % 5 == 0 ? RUNNEL_PENALTY_ANSWER : h->samplers.penalty_scope;
    h->params.repetition_penalty = repetitions[r / 8 % n];
    h->params.frequency_penalty = counts[r / 64 % n];
    h->params.presence_penalty = counts[r / 512 % n];
    h->params.penalty_tokens = r / 4096 % 3 == 0 ? 0 : 1 + (uint32_t)(r / 4096 % TOLD);
    h->params.n_biases = r / 32768 % (BIASES + 1);
    for (uint32_t b = 0; b < BIASES; b++)
        h->biases[b] = (runnel_logit_bias){any_token(rig, n_vocab), any_bias(rig)};
    h->n_told = (uint32_t)(r >> 20) % (TOLD + 1);
    h->n_prompt = (uint32_t)(r >> 30) % (h->n_told + 1);
    h->n_behind = h->waits ? 1 : (uint32_t)(r >> 40) % 5;
    h->n_ends = (uint32_t)(r >> 50) % 4;
    h->n_never = h->n_ends / 2;
    h->until = h->n_told - h->n_prompt + (r >> 54) % 4;
    for (uint32_t t = 0; t < TOLD; t++)
        h->told[t] = any_token(rig, n_vocab);
    for (uint32_t t = 0; t < h->n_behind; t++)
        h->behind[t] = any_token(rig, n_vocab);
    for (uint32_t t = 0; t < 3; t++)
        h->ends[t] = any_token(rig, n_vocab);
}

/* Told of the first tokens, and with `whole` of those behind, too. */
static struct rn_sampler *told(struct rn_heap *heap, struct history *h, uint32_t n_vocab, bool whole)
{
    struct rn_sampler *sampler;

    h->params.samplers = &h->samplers;
    h->params.biases = h->biases;
    sampler = rn_sampler_new(heap, &h->params, n_vocab, TOLD + RN_PATH_MOST);
    assert_non_null(sampler);
    assert_true(rn_sampler_keep_from_ending(sampler, h->ends, h->n_never, h->n_ends, h->until));
    for (uint32_t i = 0; i < h->n_told + (whole ? h->n_behind : 0); i++) {
        if (i == h->n_prompt)
            rn_sampler_begin_answer(sampler);
        rn_sampler_accept(sampler, i < h->n_told ? h->told[i] : h->behind[i - h->n_told]);
    }
    if (h->n_told + (whole ? h->n_behind : 0) <= h->n_prompt)
        rn_sampler_begin_answer(sampler);
    return sampler;
}

static uint32_t put_changes(const runnel_sampling *p, const struct rn_draw_changes *changes, struct rn_draw_change *to)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->n_biases; i++) {
        to[n].token = p->biases[i].token;
        memcpy(&to[n++].word, &p->biases[i].bias, sizeof to->word);
    }
    for (uint32_t i = 0; i < changes->n_counts; i++)
        to[n++] = (struct rn_draw_change){changes->counts[i].token, changes->counts[i].count};
    for (uint32_t i = 0; i < changes->n_barred; i++)
        to[n++] = (struct rn_draw_change){.token = changes->barred[i]};
    return n;
}

/* The ask of a row that is number r of the step's rows. How many changes it has. */
static uint32_t ask_row(struct table *t, uint32_t r, struct history *h, struct rn_draw_change *to, uint32_t at)
{
    struct rn_sampler *sampler = told(&t->rig.heap, h, t->n_vocab, false);
    struct rn_path path = {h->behind, h->waits ? 0 : h->n_behind};
    struct rn_draw_count counts[TOLD + RN_PATH_MOST];
    const runnel_sampling *p = rn_sampler_params(sampler);
    struct rn_draw_changes changes;
    uint32_t n;

    assert_true(rn_changes_are_all(sampler));
    rn_changes_take(sampler, path, h->waits, counts, &changes);
    n = put_changes(p, &changes, to + at);
    assert_true(n <= rn_changes_most(sampler, path.n));
    t->asks[r] = (struct rn_draw_ask){.seed = p->seed,
                                      .position = r,
                                      .mask = rig_at(t->masks[r]),
                                      .temperature = p->temperature,
                                      .top_p = p->top_p,
                                      .min_p = p->min_p,
                                      .top_k = p->top_k,
                                      .wanted = 1,
                                      .want_logprob = 1,
                                      .n_top = 4,
                                      .changes_at = at,
                                      .n_biases = (uint32_t)p->n_biases,
                                      .n_counts = changes.n_counts,
                                      .n_barred = changes.n_barred,
                                      .repetition = p->repetition_penalty,
                                      .frequency = p->frequency_penalty,
                                      .presence = p->presence_penalty,
                                      .own = changes.counts_own ? r : RN_DRAW_NONE};
    rn_sampler_free(sampler);
    return n;
}

/* Rows with histories of their own, half of them with masks; and the logits are what they were. */
static void changed_rows(uint32_t n_vocab, uint32_t rounds)
{
    size_t bytes = (size_t)ROWS * n_vocab * sizeof(float);
    struct history *histories;
    struct rn_draw_change *list;
    struct rn_draw_args args;
    struct table t;
    uint32_t *tokens;
    float *saved, *before;

    open_table(&t, n_vocab);
    list = rig_device(&t.rig, CHANGES * sizeof *list);
    saved = rig_device(&t.rig, (CHANGES + ROWS) * sizeof *saved);
    tokens = rig_device(&t.rig, ROWS * sizeof *tokens);
    before = rn_alloc(&t.rig.heap, bytes, 1);
    histories = rn_calloc(&t.rig.heap, ROWS, sizeof *histories);
    assert_true(before != NULL && histories != NULL);
    for (uint32_t r = 0; r < ROWS; r++)
        fill(&t.rig, (enum kind)(r % KINDS), t.logits + (size_t)r * n_vocab, n_vocab);
    for (uint32_t r = 0; r < ROWS; r += 2)
        mask_row(&t, r, 0, 2);
    memcpy(before, t.logits, bytes);
    args = draw_args(&t, ROWS);
    args.changes = rig_at(list);
    args.saved = rig_at(saved);
    args.tokens = rig_at(tokens);
    args.n_changes = CHANGES;
    args.n_tokens = ROWS;
    for (uint32_t i = 0; i < rounds; i++) {
        for (uint32_t r = 0, n = 0; r < ROWS; r++) {
            any_history(&t.rig, n_vocab, i + r, &histories[r]);
            tokens[r] = (uint32_t)histories[r].behind[0];
            n += ask_row(&t, r, &histories[r], list, n);
            assert_true(n <= CHANGES);
            if (t.masks[r] != NULL)
                t.masks[r]->may_end = histories[r].may_end;
        }
        rig_run(&t.rig, RN_KERNEL_draw, &args);
        assert_memory_equal(t.logits, before, bytes);
        for (uint32_t r = 0; r < ROWS; r++) {
            struct rn_sampler *sampler = told(&t.rig.heap, &histories[r], n_vocab, true);
            const struct rn_mask mask = {t.masks[r] == NULL ? NULL : t.masks[r]->words, histories[r].may_end};

            expect(&t, r, sampler, mask.words == NULL ? NULL : &mask, r, true, 4);
            rn_sampler_free(sampler);
        }
    }
    rn_free(&t.rig.heap, histories);
    rn_free(&t.rig.heap, before);
    close_table(&t);
}

static void test_changes(void **state)
{
    (void)state;
    changed_rows(1, 3);
    changed_rows(11, 40);
    changed_rows(700, 8);
    changed_rows(5001, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),      cmocka_unit_test(test_large),   cmocka_unit_test(test_coins),
        cmocka_unit_test(test_no_numbers), cmocka_unit_test(test_feed),    cmocka_unit_test(test_masks),
        cmocka_unit_test(test_late_mask),  cmocka_unit_test(test_changes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
