/* Picks against the judge in reference.c for random vocabularies and parameters, and against values
 * that can be read off: ties, ends of ranges, logits that are not numbers, refused memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "reference.h"
#include "sampling/levels/loops.h"
#include "sampling/order.h"
#include "sampling/sampler.h"
#include "tests/base/refusing.h"

#define TEXT 200

static struct reference judge;
static float logits[REFERENCE_VOCAB];

static double uniform(uint64_t *rng)
{
    return (double)(rn_splitmix64(rng) >> 11) * 0x1p-53;
}

static void set_logits(uint32_t n, const float *values)
{
    memcpy(logits, values, n * sizeof *values);
}

/* Shapes of logits as models and attackers make them. */
static void fill(uint32_t n, uint64_t *rng)
{
    uint64_t shape = rn_splitmix64(rng) % 6;

    for (uint32_t i = 0; i < n; i++) {
        double u = uniform(rng), v = uniform(rng);
        double normal = sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);

        switch (shape) {
        case 0:
            logits[i] = (float)(normal * 3);
            break;
        case 1:
            logits[i] = (float)(floor(normal * 4) / 4);
            break; /* many ties, both zeros */
        case 2:
            logits[i] = u < 0.7 ? -INFINITY : (float)(normal * 8);
            break; /* masked */
        case 3:
            logits[i] = (float)(normal * 1e-3);
            break; /* flat */
        case 4:
            logits[i] = (float)(normal * 60 - 100);
            break; /* peaked, weights underflow */
        default:
            logits[i] = i % 2 ? 0.0f : -0.0f;
            break; /* all the same */
        }
    }
    if (shape == 2)
        logits[rn_splitmix64(rng) % n] = 1.5f;
}

static runnel_sampling random_params(uint32_t n, uint64_t *rng, runnel_logit_bias *biases)
{
    static const float temperatures[] = {0, 0, 1e-3f, 0.3f, 0.7f, 1, 1, 1.5f, 40, 1e30f};
    runnel_sampling p = reference_plain();
    uint64_t r = rn_splitmix64(rng);

    p.temperature = temperatures[r % 10];
    p.seed = rn_splitmix64(rng);
    if (r & 1u << 8)
        p.top_k = r & 1u << 9 ? (uint32_t)(1 + uniform(rng) * 50) : (uint32_t)(uniform(rng) * 1.2 * n);
    if (r & 1u << 10)
        p.top_p = (float)(1 - 0.999 * uniform(rng));
    if (r & 1u << 11)
        p.min_p = (float)pow(uniform(rng), 3);
    if (r & 1u << 12)
        p.repetition_penalty = (float)(0.5 + 1.5 * uniform(rng));
    if (r & 1u << 13)
        p.frequency_penalty = (float)(4 * uniform(rng) - 2);
    if (r & 1u << 14)
        p.presence_penalty = (float)(4 * uniform(rng) - 2);
    if (r & 1u << 15)
        p.penalty_tokens = (uint32_t)(1 + uniform(rng) * TEXT);
    p.biases = biases;
    p.n_biases = r & 1u << 16 ? (r >> 17) % (n < 8 ? n + 1 : 9) : 0; /* no more than tokens */
    for (size_t i = 0; i < p.n_biases; i++)
        biases[i] = (runnel_logit_bias){(int32_t)(rn_splitmix64(rng) % n),
                                        i == 8 ? -INFINITY : (float)(20 * uniform(rng) - 10)};
    return p;
}

static void assert_logprobs(const struct rn_pick *pick, uint32_t n_top)
{
    uint32_t expected = n_top < judge.n_top ? n_top : judge.n_top;

    assert_true(fabsl((long double)pick->logprob - judge.logprob[pick->token]) <=
                1e-6L * (1 + fabsl(judge.logprob[pick->token])));
    assert_int_equal(pick->n_top, expected);
    for (uint32_t i = 0; i < expected; i++) {
        long double right = judge.logprob[judge.top[i]];

        assert_int_equal(pick->top[i].token, judge.top[i]);
        assert_true(fabsl((long double)pick->top[i].logprob - right) <= 1e-6L * (1 + fabsl(right)));
    }
}

/* One random sequence: 4 picks with tokens accepted in between. Returns how many were too close to call. */
static uint32_t random_sequence(uint32_t n, uint64_t seed, struct rn_sampler_scratch *scratch, struct rn_heap *heap)
{
    runnel_logit_bias biases[9], scribbled[9];
    int32_t history[TEXT];
    uint32_t n_history = 0, close = 0;
    uint64_t rng = seed;
    runnel_sampling p = random_params(n, &rng, biases);
    struct rn_sampler *s;

    assert_int_equal(rn_sampling_check(&p, n, NULL), RUNNEL_OK);
    memcpy(scribbled, biases, sizeof biases);
    s = rn_sampler_new(heap, &p, n, TEXT);
    assert_non_null(s);
    memset(biases, 0x55, sizeof biases); /* the sampler has its own copy */
    p.biases = scribbled;
    for (uint32_t round = 0; round < 4; round++) {
        struct rn_pick pick;
        long double margin = 1;
        uint32_t n_top = (uint32_t)(rn_splitmix64(&rng) % (RUNNEL_MAX_TOP_LOGPROBS + 1));
        uint64_t position = rn_splitmix64(&rng);
        runnel_status status;
        int32_t right;

        fill(n, &rng);
        reference_run(&judge, &p, logits, n, history, n_history);
        status = rn_sampler_pick(s, scratch, logits, position, true, n_top, &pick);
        assert_int_equal(status, judge.numeric ? RUNNEL_NUMERIC : RUNNEL_OK);
        if (status == RUNNEL_OK) {
            right = reference_draw(&judge, p.seed, position, &margin);
            if (margin < 1e-11L)
                close++;
            else
                assert_int_equal(pick.token, right);
            assert_logprobs(&pick, n_top);
        }
        for (uint32_t i = 0; i < 50; i++) {
            history[n_history] = (int32_t)(rn_splitmix64(&rng) % (i % 2 ? n : n < 5 ? n : 5));
            rn_sampler_accept(s, history[n_history++]);
        }
    }
    rn_sampler_free(s);
    return close;
}

static void random_against_judge(void **state)
{
    static const uint32_t sizes[] = {1, 2, 3, 5, 17, 100, 1000, 3000};
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);
    uint32_t close = 0;

    (void)state;
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct rn_sampler_scratch *scratch = rn_sampler_scratch_new(&heap, sizes[i]);

        assert_non_null(scratch);
        for (uint64_t seed = 0; seed < (sizes[i] > 500 ? 60 : 400); seed++)
            close += random_sequence(sizes[i], seed * 1000 + i, scratch, &heap);
        rn_sampler_scratch_free(scratch);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
    assert_true(close < 10);
}

/* The lazy order against qsort: all the way down, and the few best. */
static void order_is_that_of_a_full_sort(void **state)
{
    static uint64_t keys[2 * REFERENCE_VOCAB];
    static float maxima[REFERENCE_VOCAB / RN_BLOCK + 1];
    runnel_sampling p = reference_plain();
    uint64_t rng = 7;

    (void)state;
    for (int round = 0; round < 30; round++) {
        static const double temperatures[] = {0.01, 1, 20};
        uint32_t n = round < 20 ? 500 : 20000;
        struct rn_order order;
        int32_t token;

        fill(n, &rng);
        reference_run(&judge, &p, logits, n, NULL, 0);
        for (int few = 0; few < 4; few++) {
            uint32_t most = few == 0 ? n : few == 1 ? n / 64 : (uint32_t)few, right = most < judge.n ? most : judge.n;

            for (uint32_t b = 0; b < (n + RN_BLOCK - 1) / RN_BLOCK; b++) {
                maxima[b] = -INFINITY;
                for (uint32_t i = b * RN_BLOCK; i < n && i < (b + 1) * RN_BLOCK; i++)
                    maxima[b] = logits[i] > maxima[b] ? logits[i] : maxima[b];
            }
            rn_order_begin(&order, logits, round % 2 ? maxima : NULL, n, logits[judge.token[0]],
                           temperatures[round % 3], most, keys);
            for (uint32_t i = 0; i < right; i++) {
                assert_true(rn_order_next(&order, &token));
                assert_int_equal(token, judge.token[i]);
            }
            assert_false(rn_order_next(&order, &token));
            assert_false(rn_order_next(&order, &token));
        }
    }
}

/* Logits that lie exactly where one band ends and the next begins appear once. */
static void bands_do_not_overlap(void **state)
{
    uint64_t keys[12];
    struct rn_order order;
    int32_t token;

    (void)state;
    set_logits(6, (const float[]){-24, -8, 0, -24, -8, -9});
    for (int round = 0; round < 3; round++) {
        const int32_t right[] = {2, 1, 4, 5, 0, 3};

        rn_order_begin(&order, logits, NULL, 6, 0, round == 0 ? 1 : round == 1 ? 3 : 0.25, 6, keys);
        for (int i = 0; i < 6; i++) {
            assert_true(rn_order_next(&order, &token));
            assert_int_equal(token, right[i]);
        }
        assert_false(rn_order_next(&order, &token));
    }
}

/* One pick with these parameters; position 0 unless a test needs other noise. */
static runnel_status pick_at(const runnel_sampling *p, uint32_t n, uint64_t position, struct rn_pick *pick)
{
    struct rn_heap heap;
    struct rn_sampler *s;
    struct rn_sampler_scratch *scratch;
    runnel_status status;

    rn_heap_init(&heap, NULL);
    s = rn_sampler_new(&heap, p, n, 8);
    scratch = rn_sampler_scratch_new(&heap, n);
    assert_non_null(s);
    assert_non_null(scratch);
    status = rn_sampler_pick(s, scratch, logits, position, false, 0, pick);
    assert_true(pick->logprob == 0 && pick->n_top == 0);
    rn_sampler_scratch_free(scratch);
    rn_sampler_free(s);
    assert_int_equal(rn_heap_blocks(&heap), 0);
    return status;
}

/* Which of the first 32 tokens 400 draws reach. */
static uint32_t reached(const runnel_sampling *p, uint32_t n)
{
    uint32_t set = 0;

    for (uint64_t position = 0; position < 400; position++) {
        struct rn_pick pick;

        assert_int_equal(pick_at(p, n, position, &pick), RUNNEL_OK);
        assert_in_range(pick.token, 0, 31);
        set |= 1u << pick.token;
    }
    return set;
}

static void greedy_ties(void **state)
{
    runnel_sampling p = reference_plain();
    struct rn_pick pick;

    (void)state;
    p.temperature = 0;
    set_logits(5, (const float[]){1, 3, 3, 2, 3});
    assert_int_equal(pick_at(&p, 5, 0, &pick), RUNNEL_OK);
    assert_int_equal(pick.token, 1);
    set_logits(4, (const float[]){-1, -0.0f, 0.0f, -0.0f});
    assert_int_equal(pick_at(&p, 4, 0, &pick), RUNNEL_OK);
    assert_int_equal(pick.token, 1);
    set_logits(3, (const float[]){-INFINITY, -FLT_MAX, -FLT_MAX});
    assert_int_equal(pick_at(&p, 3, 0, &pick), RUNNEL_OK);
    assert_int_equal(pick.token, 1);
    for (uint32_t i = 0; i < 5000; i++)
        logits[i] = i == 700 || i == 3000 ? -0.0f : i == 4000 ? 0.0f : -1;
    assert_int_equal(pick_at(&p, 5000, 0, &pick), RUNNEL_OK);
    assert_int_equal(pick.token, 700);
    p.temperature = FLT_TRUE_MIN; /* as cold as it gets: the same but for the coin among ties */
    set_logits(3, (const float[]){-FLT_MAX, FLT_MAX, 0});
    assert_int_equal(pick_at(&p, 3, 0, &pick), RUNNEL_OK);
    assert_int_equal(pick.token, 1);
}

static void filters_at_their_ends(void **state)
{
    const float four[] = {1, 1, 1, 1}, steps[] = {0, 3, 2, 1};
    runnel_sampling p = reference_plain();

    (void)state;
    set_logits(4, four);
    assert_int_equal(reached(&p, 4), 0xf);
    p.top_k = 4;
    assert_int_equal(reached(&p, 4), 0xf);
    p.top_k = UINT32_MAX;
    assert_int_equal(reached(&p, 4), 0xf);
    p.top_k = 3;
    assert_int_equal(reached(&p, 4), 0x7); /* ties: the lower ids stay */
    p.top_k = 1;
    assert_int_equal(reached(&p, 4), 0x1);
    p.top_k = 0;
    p.top_p = 0.5f; /* two quarters are exactly half */
    assert_int_equal(reached(&p, 4), 0x3);
    p.top_p = nextafterf(0.5f, 1);
    assert_int_equal(reached(&p, 4), 0x7);
    p.top_p = FLT_TRUE_MIN;
    assert_int_equal(reached(&p, 4), 0x1);
    p.top_k = 2;
    p.top_p = 0.5f; /* of what top-k has left */
    assert_int_equal(reached(&p, 4), 0x1);
    p = reference_plain();
    p.min_p = 1;
    assert_int_equal(reached(&p, 4), 0xf);
    p.top_k = 3; /* equal weights pass min_p 1 on this path too */
    assert_int_equal(reached(&p, 4), 0x7);
    p.top_k = 0;
    set_logits(4, steps);
    assert_int_equal(reached(&p, 4), 0x2);
    p.min_p = (float)exp(-1.0) * 0.999f;
    assert_int_equal(reached(&p, 4), 0x6);
    p.min_p = (float)exp(-1.0) * 1.001f;
    assert_int_equal(reached(&p, 4), 0x2);
    p.temperature = 2; /* the filter comes after the temperature */
    assert_int_equal(reached(&p, 4), 0x6);
}

static void biases_forbid_and_force(void **state)
{
    const runnel_logit_bias biases[] = {{0, -INFINITY}, {2, 1}, {2, 1.5f}, {3, FLT_MAX}, {3, FLT_MAX}, {3, -FLT_MAX}};
    runnel_sampling p = reference_plain();
    struct rn_pick pick;

    (void)state;
    set_logits(4, (const float[]){9, 3, 1, 0});
    p.biases = biases;
    p.n_biases = 1;
    assert_int_equal(reached(&p, 4) & 1, 0);
    p.temperature = 0;
    assert_int_equal(pick_at(&p, 4, 0, &pick), RUNNEL_OK);
    assert_int_equal(pick.token, 1);
    p.n_biases = 2;
    assert_int_equal(pick_at(&p, 4, 0, &pick), RUNNEL_OK);
    assert_int_equal(pick.token, 1);
    p.n_biases = 3; /* two biases on one token add up: 1 + 2.5 > 3 */
    assert_int_equal(pick_at(&p, 4, 0, &pick), RUNNEL_OK);
    assert_int_equal(pick.token, 2);
    p.n_biases = 5; /* past the largest float: no infinity comes of it */
    assert_int_equal(pick_at(&p, 4, 0, &pick), RUNNEL_OK);
    assert_int_equal(pick.token, 3);
    p.n_biases = 6;
    assert_int_equal(pick_at(&p, 4, 0, &pick), RUNNEL_OK);
    assert_int_equal(pick.token, 2);
}

/* Penalties from their definitions: repetition divides what is positive and multiplies what is negative. */
static void penalties_by_hand(void **state)
{
    const struct {
        float repetition, frequency, presence;
        uint32_t window;
        int32_t right;
    } cases[] = {
        {1, 0, 0, 0, 0},     /* 4.0 3.5 3.0 -1 */
        {1.2f, 0, 0, 0, 1},  /* 3.33 3.5 */
        {1, 0.2f, 0, 0, 1},  /* 4 - 3 × 0.2 = 3.4 */
        {1, 0, 0.6f, 0, 1},  /* 4 - 0.6 = 3.4 */
        {1, 0.2f, 0, 2, 0},  /* two of the three are out of the window: 4 - 0.2 */
        {1, 0, 0.6f, 1, 0},  /* all are out */
        {1, -0.5f, 0, 0, 0}, /* a reward */
        {FLT_MAX, 0, 0, 0, 1},
    };
    const float values[] = {4, 3.5f, 3, -1};
    const int32_t history[] = {0, 0, 0, 3};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rn_heap heap;
        runnel_sampling p = reference_plain();
        struct rn_sampler *s;
        struct rn_sampler_scratch *scratch;
        struct rn_pick pick;

        p.temperature = 0;
        p.repetition_penalty = cases[i].repetition;
        p.frequency_penalty = cases[i].frequency;
        p.presence_penalty = cases[i].presence;
        p.penalty_tokens = cases[i].window;
        set_logits(4, values);
        rn_heap_init(&heap, NULL);
        s = rn_sampler_new(&heap, &p, 4, 4);
        scratch = rn_sampler_scratch_new(&heap, 4);
        for (uint32_t t = 0; t < 4; t++)
            rn_sampler_accept(s, history[t]);
        assert_int_equal(rn_sampler_pick(s, scratch, logits, 0, true, 2, &pick), RUNNEL_OK);
        assert_int_equal(pick.token, cases[i].right);
        assert_int_equal(pick.top[0].token, 0); /* logprobs are of the raw logits */
        assert_memory_equal(logits, values, sizeof values);
        rn_sampler_scratch_free(scratch);
        rn_sampler_free(s);
    }
}

/* Rows behind paths of drafts, drawn from the last to the first: to the bit what is drawn when the state is told of
 * each token in turn. */
static void a_path_is_as_good_as_the_past(void **state)
{
    static const struct {
        float temperature, repetition, frequency, presence;
        uint32_t window;
    } cases[] = {
        {1, 1, 0, 0, 0},
        {0, 1.3f, 0, 0, 0},
        {0.8f, 1.1f, 0.4f, -0.2f, 0},
        {0.8f, 1.1f, 0.4f, 0.3f, 1},
        {1.2f, 1, 0.7f, 0.5f, 5},
        {1.2f, 0.8f, -0.7f, 0.5f, 11},
        {0, 1.5f, 0.2f, 0, 20},
    };
    const runnel_logit_bias biases[] = {{3, 1.5f}, {7, -INFINITY}};
    uint64_t rng = 5;

    (void)state;
    for (uint32_t round = 0; round < 40 * sizeof cases / sizeof cases[0]; round++) {
        uint32_t c = round % (sizeof cases / sizeof cases[0]), n = 12, n_past = (uint32_t)(rn_splitmix64(&rng) % 16);
        struct rn_pick told[RN_PATH_MOST + 1], drawn;
        int32_t path[RN_PATH_MOST];
        runnel_sampling p = reference_plain();
        struct rn_sampler_scratch *scratch;
        struct rn_sampler *before, *after;
        struct rn_heap heap;

        p.temperature = cases[c].temperature;
        p.repetition_penalty = cases[c].repetition;
        p.frequency_penalty = cases[c].frequency;
        p.presence_penalty = cases[c].presence;
        p.penalty_tokens = cases[c].window;
        p.seed = round;
        p.biases = biases;
        p.n_biases = round % 2 ? 2 : 0;
        rn_heap_init(&heap, NULL);
        before = rn_sampler_new(&heap, &p, n, 64);
        after = rn_sampler_new(&heap, &p, n, 64);
        scratch = rn_sampler_scratch_new(&heap, n);
        for (uint32_t i = 0; i < n_past; i++) {
            int32_t token = (int32_t)(rn_splitmix64(&rng) % n);

            rn_sampler_accept(before, token);
            rn_sampler_accept(after, token);
        }
        fill(n, &rng);
        for (uint32_t i = 0; i < RN_PATH_MOST; i++) {
            path[i] = (int32_t)(rn_splitmix64(&rng) % n);
            assert_int_equal(rn_sampler_pick(after, scratch, logits, i, true, 3, &told[i]), RUNNEL_OK);
            rn_sampler_accept(after, path[i]);
        }
        assert_int_equal(rn_sampler_pick(after, scratch, logits, RN_PATH_MOST, true, 3, &told[RN_PATH_MOST]),
                         RUNNEL_OK);
        for (uint32_t i = RN_PATH_MOST + 1; i-- > 0;) {
            assert_int_equal(
                rn_sampler_pick_behind(before, (struct rn_path){path, i}, scratch, logits, i, true, 3, &drawn),
                RUNNEL_OK);
            assert_int_equal(drawn.token, told[i].token);
            assert_memory_equal(&drawn.logprob, &told[i].logprob, sizeof drawn.logprob);
        }
        rn_sampler_scratch_free(scratch);
        rn_sampler_free(before);
        rn_sampler_free(after);
        assert_int_equal(rn_heap_blocks(&heap), 0);
    }
}

/* A draw has the same bits by plain C and by every SIMD level that this machine has. */
static void levels_are_equal(void **state)
{
    static const char *const names[] = {"c", "avx2", "avx512"};
    static const uint32_t sizes[] = {1, 127, 128, 129, 1000, 33333};
    uint64_t rng = 11;

    (void)state;
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t n = sizes[round % 6];
        runnel_logit_bias biases[9];
        runnel_sampling p = random_params(n, &rng, biases);
        struct rn_pick right, pick;
        struct rn_heap heap;
        struct rn_sampler *s;
        struct rn_sampler_scratch *scratch;

        rn_heap_init(&heap, NULL);
        s = rn_sampler_new(&heap, &p, n, 8);
        scratch = rn_sampler_scratch_new(&heap, n);
        fill(n, &rng);
        for (uint32_t level = 0; level < 3; level++) {
            const struct rn_loops *loops = rn_loops_named(names[level]);
            runnel_status status;

            if (loops == NULL)
                continue;
            assert_string_equal(loops->name, names[level]);
            rn_sampler_scratch_use(scratch, loops);
            status = rn_sampler_pick(s, scratch, logits, round, true, 5, &pick);
            if (level == 0)
                right = pick;
            assert_true(status == RUNNEL_OK || pick.token == -1);
            assert_int_equal(pick.token, right.token);
            assert_memory_equal(&pick.logprob, &right.logprob, sizeof pick.logprob);
            assert_memory_equal(pick.top, right.top, pick.n_top * sizeof pick.top[0]);
        }
        rn_sampler_scratch_free(scratch);
        rn_sampler_free(s);
    }
}

static void not_numbers(void **state)
{
    const runnel_logit_bias forbid[] = {{0, -INFINITY}, {1, -INFINITY}, {2, -INFINITY}, {3, -INFINITY}};
    runnel_sampling p = reference_plain();
    struct rn_pick pick;

    (void)state;
    for (int greedy = 0; greedy < 2; greedy++) {
        p.temperature = greedy ? 0 : 1;
        for (uint32_t bad = 0; bad < 33; bad++) {
            const float poison[] = {NAN, -NAN, INFINITY};

            for (int kind = 0; kind < 3; kind++) {
                for (uint32_t i = 0; i < 33; i++)
                    logits[i] = (float)i - 16;
                logits[bad] = poison[kind];
                assert_int_equal(pick_at(&p, 33, 0, &pick), RUNNEL_NUMERIC);
                assert_int_equal(pick.token, -1);
            }
            for (uint32_t i = 0; i < 33; i++)
                logits[i] = -INFINITY;
            assert_int_equal(pick_at(&p, 33, 0, &pick), RUNNEL_NUMERIC);
            logits[bad] = -FLT_MAX; /* one finite logit is enough */
            assert_int_equal(pick_at(&p, 33, bad, &pick), RUNNEL_OK);
            assert_int_equal(pick.token, bad);
        }
        set_logits(4, (const float[]){1, 2, 3, 4});
        p.biases = forbid;
        p.n_biases = 4;
        assert_int_equal(pick_at(&p, 4, 0, &pick), RUNNEL_NUMERIC);
        p.n_biases = 3;
        assert_int_equal(pick_at(&p, 4, 0, &pick), RUNNEL_OK);
        assert_int_equal(pick.token, 3);
        p.n_biases = 0;
    }
}

static void logprobs_in_closed_form(void **state)
{
    struct rn_heap heap;
    runnel_sampling p = reference_plain();
    struct rn_sampler *s;
    struct rn_sampler_scratch *scratch;
    struct rn_pick pick;

    (void)state;
    set_logits(4, (const float[]){0, -INFINITY, 700, 700});
    p.temperature = 0;
    rn_heap_init(&heap, NULL);
    s = rn_sampler_new(&heap, &p, 4, 4);
    scratch = rn_sampler_scratch_new(&heap, 9); /* a scratch may serve smaller vocabularies */
    assert_int_equal(rn_sampler_pick(s, scratch, logits, 0, true, RUNNEL_MAX_TOP_LOGPROBS, &pick), RUNNEL_OK);
    assert_int_equal(pick.token, 2);
    assert_true(pick.logprob == (float)-log(2.0));
    assert_int_equal(pick.n_top, 3); /* a token of logit -inf is not among the best */
    assert_int_equal(pick.top[0].token, 2);
    assert_int_equal(pick.top[1].token, 3);
    assert_int_equal(pick.top[2].token, 0);
    assert_true(pick.top[1].logprob == pick.logprob);
    assert_true(fabs((double)pick.top[2].logprob + 700 + log(2.0)) < 1e-4);
    rn_sampler_scratch_free(scratch);
    rn_sampler_free(s);
}

/* Same state, same position: same token, from another sampler, in another order, with a dirty scratch. */
static void picks_do_not_depend_on_the_schedule(void **state)
{
    enum { N = 300, PICKS = 64 };
    struct rn_heap heap;
    runnel_sampling p = reference_plain();
    struct rn_sampler *a, *b;
    struct rn_sampler_scratch *scratch[2];
    struct rn_pick pick[PICKS], again;
    uint64_t rng = 99;

    (void)state;
    rn_heap_init(&heap, NULL);
    p.top_p = 0.95f;
    p.seed = 5;
    a = rn_sampler_new(&heap, &p, N, 8);
    b = rn_sampler_new(&heap, &p, N, 8000);
    scratch[0] = rn_sampler_scratch_new(&heap, N);
    scratch[1] = rn_sampler_scratch_new(&heap, 2 * N);
    for (uint32_t i = 0; i < N; i++)
        logits[i] = (float)(6 * uniform(&rng));
    for (uint64_t i = 0; i < PICKS; i++)
        assert_int_equal(rn_sampler_pick(a, scratch[i % 2], logits, i, true, 3, &pick[i]), RUNNEL_OK);
    for (uint64_t i = PICKS; i-- > 0;) {
        assert_int_equal(rn_sampler_pick(b, scratch[i % 2], logits, i, true, 3, &again), RUNNEL_OK);
        assert_int_equal(again.token, pick[i].token);
        assert_true(again.logprob == pick[i].logprob);
        assert_memory_equal(again.top, pick[i].top, 3 * sizeof again.top[0]);
    }
    for (int i = 0; i < 2; i++)
        rn_sampler_scratch_free(scratch[i]);
    rn_sampler_free(a);
    rn_sampler_free(b);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static runnel_sampling everything(runnel_logit_bias *bias)
{
    runnel_sampling p = reference_plain();

    *bias = (runnel_logit_bias){1, 2};
    p.top_k = 40;
    p.top_p = 0.9f;
    p.min_p = 0.01f;
    p.frequency_penalty = 0.5f;
    p.penalty_tokens = 3;
    p.biases = bias;
    p.n_biases = 1;
    return p;
}

static void refused_memory(void **state)
{
    runnel_logit_bias bias;
    runnel_sampling p = everything(&bias), plain = reference_plain();
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);
    uint64_t allowed = 0;

    (void)state;
    for (;; allowed++) {
        struct rn_sampler *s;
        struct rn_sampler_scratch *scratch;

        refusing_allow(&refusing, allowed);
        s = rn_sampler_new(&heap, &p, 100, 50);
        scratch = s == NULL ? NULL : rn_sampler_scratch_new(&heap, 100);
        rn_sampler_free(s);
        rn_sampler_scratch_free(scratch);
        assert_int_equal(rn_heap_blocks(&heap), 0);
        if (scratch != NULL)
            break;
    }
    assert_in_range(allowed, 6, 20);
    refusing_allow(&refusing, 1); /* without biases and penalties there is nothing but the sampler */
    rn_sampler_free(rn_sampler_new(&heap, &plain, 100, 50));
    assert_int_equal(refusing.calls, 1);
}

static void token_path_allocates_nothing(void **state)
{
    runnel_logit_bias bias;
    runnel_sampling p = everything(&bias);
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);
    struct rn_sampler *s;
    struct rn_sampler_scratch *scratch;
    struct rn_pick pick;
    uint64_t rng = 1;
    uint64_t calls;

    (void)state;
    s = rn_sampler_new(&heap, &p, 1000, 50);
    scratch = rn_sampler_scratch_new(&heap, 1000);
    calls = refusing.calls;
    assert_true(calls > 0);
    for (uint32_t i = 0; i < 50; i++) {
        fill(1000, &rng);
        assert_int_equal(rn_sampler_pick(s, scratch, logits, i, true, 20, &pick), RUNNEL_OK);
        rn_sampler_accept(s, pick.token);
    }
    assert_int_equal(refusing.calls, calls);
    rn_sampler_free(s);
    rn_sampler_scratch_free(scratch);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_against_judge),
        cmocka_unit_test(order_is_that_of_a_full_sort),
        cmocka_unit_test(bands_do_not_overlap),
        cmocka_unit_test(greedy_ties),
        cmocka_unit_test(filters_at_their_ends),
        cmocka_unit_test(biases_forbid_and_force),
        cmocka_unit_test(penalties_by_hand),
        cmocka_unit_test(levels_are_equal),
        cmocka_unit_test(not_numbers),
        cmocka_unit_test(logprobs_in_closed_form),
        cmocka_unit_test(picks_do_not_depend_on_the_schedule),
        cmocka_unit_test(refused_memory),
        cmocka_unit_test(token_path_allocates_nothing),
        cmocka_unit_test(a_path_is_as_good_as_the_past),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
