/* Chains by hand: what DRY finds and what ends it, the order of samplers, penalties of the answer alone, answers of a
 * least length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "reference.h"
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
                rn_sampler_restart(sampler, (const int32_t[]){1, 0}, 2);
            assert_int_equal(rn_sampler_pick(sampler, scratch, logits, 2, false, 0, &pick), RUNNEL_OK);
            assert_int_equal(pick.token, scope == 1 ? 1 : 2);
            rn_sampler_scratch_free(scratch);
            rn_sampler_free(sampler);
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
        cmocka_unit_test(repetitions_by_hand), cmocka_unit_test(breakers_by_hand),
        cmocka_unit_test(the_order_matters),   cmocka_unit_test(penalties_of_the_answer),
        cmocka_unit_test(answers_of_a_length),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
