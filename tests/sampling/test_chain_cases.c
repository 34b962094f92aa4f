/* Chains by hand: what DRY finds and what ends it, the order of samplers, penalties of the answer alone, extreme
 * values, answers of a least length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/rng.h"
#include "reference.h"
#include "sampling/dry.h"
#include "sampling/sampler.h"
#include "text/vocab.h"

static float logits[256];

static int32_t greedy_with(const runnel_samplers *s, const runnel_sampling *p, const int32_t *past, uint32_t n_past,
                           uint32_t n)
{
    struct rn_heap heap;
    struct rn_sampler *sampler;
    struct rn_sampler_scratch *scratch;
    runnel_sampling params = *p;
    struct rn_pick pick;

    params.samplers = s;
    assert_int_equal(rn_sampling_check(&params, n, NULL), RUNNEL_OK);
    rn_heap_init(&heap, NULL);
    sampler = rn_sampler_new(&heap, &params, n, 64);
    scratch = rn_sampler_scratch_new(&heap, n);
    for (uint32_t i = 0; i < n_past; i++)
        rn_sampler_accept(sampler, past[i]);
    assert_int_equal(rn_sampler_pick(sampler, scratch, logits, n_past, false, 0, &pick), RUNNEL_OK);
    rn_sampler_scratch_free(scratch);
    rn_sampler_free(sampler);
    assert_int_equal(rn_heap_blocks(&heap), 0);
    return pick.token;
}

/* Logits 4, 3, 0 ...: token 0 is drawn unless it falls by more than 1. */
static void repetitions_by_hand(void **state)
{
    static const struct {
        int32_t past[12];
        uint32_t n;
        float multiplier;
        uint32_t allowed, window;
        int32_t right;
    } cases[] = {
        {{5, 6, 0, 7, 5, 6}, 6, 1.1f, 2, 0, 1},        /* "5 6" again: 1.1 × 1.75^0 */
        {{5, 6, 0, 7, 5, 6}, 6, 0.9f, 2, 0, 0},        /* 0.9 is not enough */
        {{5, 6, 0, 7, 5, 6}, 6, 9, 3, 0, 0},           /* shorter than what is allowed */
        {{4, 5, 6, 0, 7, 4, 5, 6}, 8, 0.6f, 2, 0, 1},  /* one longer: 0.6 × 1.75 = 1.05 */
        {{4, 5, 6, 0, 7, 4, 5, 6}, 8, 0.55f, 2, 0, 0}, /* 0.96 */
        {{4, 5, 6, 0, 7, 4, 5, 6}, 8, 9, 2, 6, 0},     /* the window begins behind "4 5": "6" alone ... */
        {{4, 5, 6, 0, 7, 4, 5, 6}, 8, 9, 1, 6, 1},     /* ... is a repetition of one */
        {{4, 5, 6, 0, 7, 4, 5, 6}, 8, 9, 1, 4, 0},     /* and behind "6": none */
        {{0, 0, 0, 0}, 4, 0.6f, 2, 0, 1},              /* it overlaps itself: 3 tokens, 0.6 × 1.75 */
        {{0, 0, 0}, 3, 1.1f, 2, 0, 1},                 /* 2 tokens */
        {{0, 0}, 2, 9, 2, 0, 0},                       /* 1 */
        {{6, 0, 5, 6, 0, 3, 5, 6}, 8, 0.9f, 1, 0, 1},  /* the longest of the two counts, once: 0.9 × 1.75 */
        {{6, 0, 5, 6, 0, 3, 5, 6}, 8, 0.56f, 1, 0, 0}, /* 0.98 */
        {{0}, 1, 9, 1, 0, 0},
        {{0}, 0, 9, 1, 0, 0},
    };
    runnel_sampling p = reference_plain();
    runnel_samplers s;

    (void)state;
    p.temperature = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(logits, (const float[]){4, 3, 0, 0, 0, 0, 0, 0}, 8 * sizeof(float));
        runnel_samplers_default(&s);
        s.dry_multiplier = cases[i].multiplier;
        s.dry_allowed_length = cases[i].allowed;
        s.dry_tokens = cases[i].window;
        assert_int_equal(greedy_with(&s, &p, cases[i].past, cases[i].n, 8), cases[i].right);
    }
}

/* A breaker ends what can be repeated: with bytes as tokens, "a:b" has none behind ":". */
static void breakers_by_hand(void **state)
{
    static const struct {
        const char *text;
        const char *breaker;
        char right; /* 'x' is the likeliest, 'y' comes next */
    } cases[] = {
        {"abx-ab", "-", 'y'},                                 /* "ab" twice, and the breaker is not in it */
        {"a-bx a-b", "-", 'x'},                               /* "b" alone is left of "-b" */
        {"a-bx a-b", "?", 'y'},    {"a-=bx a-=b", "-=", 'x'}, /* a breaker of two tokens */
        {"a-=bx a-=b", "=-", 'y'}, {"a-=bx a-=b", "-=b", 'x'}, {"bx b", "b", 'x'}, /* it ends with one */
    };
    runnel_sampling p = reference_plain();

    (void)state;
    p.temperature = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rn_heap heap;
        struct rn_vocab *vocab;
        struct rn_sampler *sampler;
        struct rn_sampler_scratch *scratch;
        struct rn_pick pick;
        runnel_samplers s;

        rn_heap_init(&heap, NULL);
        vocab = rn_vocab_new_bytes(&heap);
        memset(logits, 0, 256 * sizeof logits[0]);
        logits['x'] = 4;
        logits['y'] = 3;
        runnel_samplers_default(&s);
        s.dry_multiplier = 2;
        s.dry_breakers = &cases[i].breaker;
        s.n_dry_breakers = 1;
        p.samplers = &s;
        sampler = rn_sampler_new(&heap, &p, 256, 64);
        rn_sampler_use_vocab(sampler, vocab);
        scratch = rn_sampler_scratch_new(&heap, 256);
        for (const char *c = cases[i].text; *c != '\0'; c++)
            rn_sampler_accept(sampler, (unsigned char)*c);
        assert_int_equal(rn_sampler_pick(sampler, scratch, logits, 0, false, 0, &pick), RUNNEL_OK);
        assert_int_equal(pick.token, cases[i].right);
        rn_sampler_scratch_free(scratch);
        rn_sampler_free(sampler);
        rn_vocab_free(vocab);
        assert_int_equal(rn_heap_blocks(&heap), 0);
    }
}

/* The lengths at each place, compared anew from there back. */
static void lengths_anew(const struct rn_dry *dry, const int32_t *all, int64_t n, uint32_t least, int32_t *lengths)
{
    int64_t first = n > dry->window ? n - dry->window : 0;

    for (int64_t at = first; at < n - 1; at++) {
        int32_t length = 0;

        while (length < (int32_t)RN_DRY_LONGEST && at - length >= first && all[at - length] == all[n - 1 - length] &&
               all[at - length] != '-')
            length++;
        if (length > 0 && length >= (int32_t)least && length > lengths[all[at + 1]])
            lengths[all[at + 1]] = length;
    }
}

/* Of random texts of few letters, of one letter, and of such as repeat themselves; breakers, paths and full windows
 * among them. */
static void lengths_as_compared_anew(void **state)
{
    enum { TEXT = 600, PATH = 6 };
    const char *breaker = "-";
    uint64_t random = 11;
    uint32_t n_found = 0, n_longest = 0;

    (void)state;
    for (uint32_t round = 0; round < 400; round++) {
        uint32_t n = 1 + (uint32_t)(rn_splitmix64(&random) % TEXT), letters = 1 + round % 4, period = 1 + round % 150;
        uint32_t least = round % 3;
        int32_t all[TEXT + PATH], touched[256], lengths[256] = {0}, right[256];
        struct rn_heap heap;
        struct rn_vocab *vocab;
        struct rn_dry dry;
        runnel_samplers s;

        rn_heap_init(&heap, NULL);
        vocab = rn_vocab_new_bytes(&heap);
        runnel_samplers_default(&s);
        s.dry_breakers = &breaker;
        s.n_dry_breakers = 1;
        s.dry_tokens = round % 5 == 0 ? 0 : 1 + (uint32_t)(rn_splitmix64(&random) % TEXT);
        assert_true(rn_dry_init(&dry, &heap, &s, TEXT));
        dry.vocab = vocab;
        for (uint32_t i = 0; i < n + PATH; i++) {
            all[i] = 'a' + (int32_t)(rn_splitmix64(&random) % letters);
            if (round % 2 == 0 && i >= period && rn_splitmix64(&random) % 200 > 0)
                all[i] = all[i - period];
            else if (round % 8 == 7 && rn_splitmix64(&random) % 30 == 0)
                all[i] = '-';
        }
        for (uint32_t i = 0; i < n; i++)
            rn_dry_add(&dry, all[i]);
        for (uint32_t n_path = 0; n_path <= PATH; n_path++) {
            uint32_t n_touched = rn_dry_lengths(&dry, all + n, n_path, least, lengths, touched);

            memset(right, 0, sizeof right);
            lengths_anew(&dry, all, n + n_path, least, right);
            assert_memory_equal(lengths, right, sizeof right);
            for (uint32_t i = 0; i < n_touched; i++) {
                assert_int_not_equal(lengths[touched[i]], 0); /* each once */
                n_found++;
                n_longest += lengths[touched[i]] == (int32_t)RN_DRY_LONGEST;
                lengths[touched[i]] = 0;
            }
            memset(right, 0, sizeof right);
            assert_memory_equal(lengths, right, sizeof right);
        }
        rn_dry_fini(&dry, &heap);
        rn_vocab_free(vocab);
        assert_int_equal(rn_heap_blocks(&heap), 0);
    }
    assert_true(n_found > 2000 && n_longest > 200);
}

/* Which of the first 32 tokens 500 draws reach. */
static uint32_t reached(const runnel_samplers *s, const runnel_sampling *p, uint32_t n)
{
    struct rn_heap heap;
    struct rn_sampler *sampler;
    struct rn_sampler_scratch *scratch;
    runnel_sampling params = *p;
    uint32_t set = 0;

    params.samplers = s;
    rn_heap_init(&heap, NULL);
    sampler = rn_sampler_new(&heap, &params, n, 8);
    scratch = rn_sampler_scratch_new(&heap, n);
    for (uint64_t position = 0; position < 500; position++) {
        struct rn_pick pick;

        assert_int_equal(rn_sampler_pick(sampler, scratch, logits, position, false, 0, &pick), RUNNEL_OK);
        set |= 1u << pick.token;
    }
    rn_sampler_scratch_free(scratch);
    rn_sampler_free(sampler);
    return set;
}

/* The same samplers in another order keep others. */
static void the_order_matters(void **state)
{
    const float values[] = {2, 1.5f, 1, 0.5f, 0, -3};
    static const struct {
        const char *order;
        uint32_t set;
    } cases[] = {
        /* at temperature 4 the six are 0.24 0.21 0.19 0.17 0.15 0.07, at 1 they are 0.43 0.26 0.16 0.10 0.06 0.00 */
        {"temperature,top_p", 0x1f},
        {"top_p,temperature", 0x07},
        /* xtc drops the best two of the three above 0.15; behind top-k 2 both are above it */
        {"xtc,top_k", 0x0c},
        {"top_k,xtc", 0x02},
        {"min_p,top_p", 0x03},
        {"top_p", 0x07},
        {"", 0x3f},
    };
    runnel_sampling p = reference_plain();
    runnel_samplers s;

    (void)state;
    memcpy(logits, values, sizeof values);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        runnel_samplers_default(&s);
        s.order = cases[i].order;
        s.xtc_probability = strstr(cases[i].order, "xtc") != NULL;
        s.xtc_threshold = 0.15f;
        p.temperature = strstr(cases[i].order, "temp") != NULL ? 4 : 1;
        p.top_p = 0.8f;
        p.top_k = 2;
        p.min_p = 0.5f;
        assert_int_equal(reached(&s, &p, 6), cases[i].set);
    }
    runnel_samplers_default(&s); /* not named, but on: mirostat and adaptive_p are last */
    s.order = "";
    s.mirostat = 2;
    s.mirostat_tau = 0.9f;
    assert_int_equal(reached(&s, &p, 6), 0x01); /* 0.43 is 1.2 bits, below 1.8; 0.26 is 1.93 */
    s.mirostat_tau = 1;
    assert_int_equal(reached(&s, &p, 6), 0x03);
}

/* The answer alone is counted, also when the text is told anew. */
static void penalties_of_the_answer(void **state)
{
    runnel_sampling p = reference_plain();
    runnel_samplers s;

    (void)state;
    p.temperature = 0;
    p.presence_penalty = 2;
    p.samplers = &s;
    for (int scope = 0; scope < 2; scope++)
        for (int again = 0; again < 2; again++) {
            struct rn_heap heap;
            struct rn_sampler *sampler;
            struct rn_sampler_scratch *scratch;
            struct rn_pick pick;

            memcpy(logits, (const float[]){4, 3.5f, 3, 2.5f}, 4 * sizeof(float));
            runnel_samplers_default(&s);
            s.penalty_scope = (uint32_t)scope;
            rn_heap_init(&heap, NULL);
            sampler = rn_sampler_new(&heap, &p, 4, 16);
            scratch = rn_sampler_scratch_new(&heap, 4);
            rn_sampler_accept(sampler, 1);
            rn_sampler_begin_answer(sampler);
            rn_sampler_accept(sampler, 0);
            if (again)
                rn_sampler_restart(sampler, (const int32_t[]){1, 0}, 1, 2);
            assert_int_equal(rn_sampler_pick(sampler, scratch, logits, 2, false, 0, &pick), RUNNEL_OK);
            assert_int_equal(pick.token, scope == 1 ? 1 : 2);
            rn_sampler_scratch_free(scratch);
            rn_sampler_free(sampler);
        }
}

/* A head, and behind it what is left of an answer that was longer: of the head nothing counts. */
static void penalties_behind_a_head(void **state)
{
    runnel_sampling p = reference_plain();
    runnel_samplers s;
    struct rn_heap heap;
    struct rn_sampler *sampler;
    struct rn_sampler_scratch *scratch;
    struct rn_pick pick;

    (void)state;
    p.temperature = 0;
    p.presence_penalty = 2;
    p.samplers = &s;
    memcpy(logits, (const float[]){4, 3.5f, 3, 2.5f}, 4 * sizeof(float));
    runnel_samplers_default(&s);
    s.penalty_scope = RUNNEL_PENALTY_ANSWER;
    rn_heap_init(&heap, NULL);
    sampler = rn_sampler_new(&heap, &p, 4, 16);
    scratch = rn_sampler_scratch_new(&heap, 4);
    rn_sampler_accept(sampler, 1);
    rn_sampler_begin_answer(sampler);
    for (uint32_t i = 0; i < 5; i++)
        rn_sampler_accept(sampler, 0);
    rn_sampler_restart(sampler, (const int32_t[]){1, 1, 0, 0}, 2, 4);
    assert_int_equal(rn_sampler_pick(sampler, scratch, logits, 6, false, 0, &pick), RUNNEL_OK);
    assert_int_equal(pick.token, 1);
    rn_sampler_restart(sampler, (const int32_t[]){1, 0}, 2, 2); /* nothing is left of it */
    assert_int_equal(rn_sampler_pick(sampler, scratch, logits, 6, false, 0, &pick), RUNNEL_OK);
    assert_int_equal(pick.token, 0);
    rn_sampler_scratch_free(scratch);
    rn_sampler_free(sampler);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* A temperature near nothing, and behind it penalties that make large values larger: they stay finite, and a token is
 * drawn. */
static void extremes_are_drawn(void **state)
{
    enum { N = 101, EXPONENTS = 5, SIZES = 200 };
    static const float exponents[EXPONENTS] = {300, 400, 500, 600, 700};
    runnel_sampling p = reference_plain();
    runnel_samplers s;
    float size = 1;

    (void)state;
    runnel_samplers_default(&s);
    s.order = "temperature,penalties";
    s.temperature_range = 1;
    p.samplers = &s;
    p.temperature = 1;
    p.repetition_penalty = 1e-30f;
    for (uint32_t k = 0; k < EXPONENTS * SIZES; k++) {
        struct rn_heap heap;
        struct rn_sampler *sampler;
        struct rn_sampler_scratch *scratch;
        struct rn_pick pick;

        size *= k % EXPONENTS == 0 ? 1.02f : 1;
        s.temperature_exponent = exponents[k % EXPONENTS];
        assert_int_equal(rn_sampling_check(&p, N, NULL), RUNNEL_OK);
        rn_heap_init(&heap, NULL);
        sampler = rn_sampler_new(&heap, &p, N, 2 * N);
        scratch = rn_sampler_scratch_new(&heap, N);
        for (uint32_t i = 0; i < N; i++) {
            logits[i] = size * ((float)(i * 37 % 101) / 10 - 3);
            rn_sampler_accept(sampler, (int32_t)i);
        }
        assert_int_equal(rn_sampler_pick(sampler, scratch, logits, N, false, 0, &pick), RUNNEL_OK);
        assert_true(pick.token >= 0 && logits[pick.token] > 0);
        rn_sampler_scratch_free(scratch);
        rn_sampler_free(sampler);
        assert_int_equal(rn_heap_blocks(&heap), 0);
    }
}

/* Ends are barred until the answer has its tokens, drafts counted; some for ever. */
static void answers_of_a_length(void **state)
{
    runnel_sampling p = reference_plain();
    struct rn_heap heap;
    struct rn_sampler *sampler;
    struct rn_sampler_scratch *scratch;
    struct rn_pick pick;

    (void)state;
    p.temperature = 0;
    memcpy(logits, (const float[]){4, 3, 2, 1}, 4 * sizeof(float));
    rn_heap_init(&heap, NULL);
    sampler = rn_sampler_new(&heap, &p, 4, 16);
    scratch = rn_sampler_scratch_new(&heap, 4);
    assert_true(rn_sampler_keep_from_ending(sampler, (const int32_t[]){0, 1}, 1, 2, 2));
    assert_true(rn_sampler_reads_past(sampler));
    for (uint32_t i = 0; i < 5; i++)
        rn_sampler_accept(sampler, 3);
    rn_sampler_begin_answer(sampler);
    for (uint32_t i = 0; i < 4; i++) {
        const int32_t path[] = {3, 3};

        assert_int_equal(rn_sampler_pick(sampler, scratch, logits, i, false, 0, &pick), RUNNEL_OK);
        assert_int_equal(pick.token, i < 2 ? 2 : 1);
        assert_int_equal(
            rn_sampler_pick_behind(sampler, (struct rn_path){path, 2}, scratch, logits, i + 2, false, 0, &pick),
            RUNNEL_OK);
        assert_int_equal(pick.token, 1);
        rn_sampler_accept(sampler, 3);
    }
    rn_sampler_scratch_free(scratch);
    rn_sampler_free(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repetitions_by_hand),     cmocka_unit_test(breakers_by_hand),
        cmocka_unit_test(the_order_matters),       cmocka_unit_test(penalties_of_the_answer),
        cmocka_unit_test(answers_of_a_length),     cmocka_unit_test(lengths_as_compared_anew),
        cmocka_unit_test(penalties_behind_a_head), cmocka_unit_test(extremes_are_drawn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
