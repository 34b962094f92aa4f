/* Chains against the judge in chain_reference.c: random chains with their memory over several tokens, paths of
 * drafts, SIMD levels, and what is refused. test_chain_cases.c has cases by hand, test_draws.c the statistics. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "chain_reference.h"
#include "reference.h"
#include "runnel_fields.h"
#include "sampling/levels/loops.h"
#include "sampling/sampler.h"
#include "sampling/select.h"
#include "tests/base/refusing.h"
#include "text/vocab.h"

static struct chain_reference judge;
static float logits[CHAIN_VOCAB];

static double uniform(uint64_t *rng)
{
    return (double)(rn_splitmix64(rng) >> 11) * 0x1p-53;
}

static void fill(uint32_t n, double spread, uint64_t *rng)
{
    for (uint32_t i = 0; i < n; i++) {
        double u = uniform(rng), v = uniform(rng);

        logits[i] = (float)(sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v) * spread);
    }
}

/* ---- Random chains ---- */

#define NAME(name, needs, text) #name,
static const char *const names[] = {RUNNEL_SAMPLER_NAMES(NAME)};
#define N_NAMES (sizeof names / sizeof names[0])

/* Some of the names in a random order; the last two are not drawn by it. */
static void random_order(char *order, uint64_t *rng)
{
    uint32_t left[N_NAMES - 2], n = N_NAMES - 2;

    order[0] = '\0';
    for (uint32_t i = 0; i < n; i++)
        left[i] = i;
    while (n > 0) {
        uint32_t i = (uint32_t)(rn_splitmix64(rng) % n);

        if (rn_splitmix64(rng) % 8 != 0) {
            strcat(order, order[0] != '\0' ? "," : "");
            strcat(order, names[left[i]]);
        }
        left[i] = left[--n];
    }
}

/* Each sampler is on now and then. */
static void random_samplers(runnel_sampling *p, runnel_samplers *s, uint64_t *rng)
{
    uint64_t r = rn_splitmix64(rng);

    *p = reference_plain();
    runnel_samplers_default(s);
    s->n_dry_breakers = 0;
    p->samplers = s;
    p->seed = rn_splitmix64(rng);
    p->temperature = r % 5 == 0 ? 0 : (float)(0.3 + 1.5 * uniform(rng));
    p->top_k = r & 1 << 4 ? (uint32_t)(1 + 60 * uniform(rng)) : 0;
    p->top_p = r & 1 << 5 ? (float)(0.3 + 0.69 * uniform(rng)) : 1;
    p->min_p = r & 1 << 6 ? (float)(0.2 * uniform(rng)) : 0;
    p->repetition_penalty = r & 1 << 7 ? (float)(0.7 + uniform(rng)) : 1;
    p->frequency_penalty = r & 1 << 8 ? (float)(uniform(rng) - 0.3) : 0;
    p->penalty_tokens = r & 1 << 9 ? (uint32_t)(1 + 30 * uniform(rng)) : 0;
    s->dry_multiplier = r & 1 << 10 ? (float)uniform(rng) * 2 : 0;
    s->dry_tokens = r & 1 << 11 ? (uint32_t)(1 + 40 * uniform(rng)) : 0;
    s->dry_allowed_length = 1 + r % 3;
    s->top_n_sigma = r & 1 << 12 ? (float)(0.3 + 2 * uniform(rng)) : 0;
    s->typical_p = r & 1 << 13 ? (float)(0.2 + 0.79 * uniform(rng)) : 1;
    s->xtc_probability = r & 1 << 14 ? 0.5f : 0;
    s->xtc_threshold = (float)(0.15 * uniform(rng));
    s->temperature_range = r & 1 << 15 ? (float)uniform(rng) : 0;
    s->temperature_exponent = (float)(2 * uniform(rng));
    s->mirostat = (r >> 16) % 3 * (r >> 18 & 1);
    s->mirostat_tau = (float)(0.5 + 4 * uniform(rng));
    s->adaptive_target = s->mirostat == 0 && r & 1 << 19 ? (float)uniform(rng) : -1;
    s->adaptive_decay = (float)(0.99 * uniform(rng));
}

static void assert_logprobs(const struct rn_pick *pick)
{
    for (uint32_t i = 0; i < judge.n; i++)
        for (uint32_t t = 0; judge.token[i] == pick->token && t < 1; t++)
            assert_true(fabsl((long double)pick->logprob - logl(judge.p[i])) < 1e-5L * (1 + fabsl(logl(judge.p[i]))));
    for (uint32_t t = 0; t < pick->n_top; t++) {
        uint32_t at = 0;

        while (judge.token[at] != pick->top[t].token)
            assert_true(++at < judge.n);
        assert_true(judge.p[at] == 0 || fabsl((long double)pick->top[t].logprob - logl(judge.p[at])) <
                                            1e-5L * (1 + fabsl(logl(judge.p[at]))));
        assert_true(t == 0 || pick->top[t - 1].logprob >= pick->top[t].logprob);
    }
    assert_int_equal(pick->n_top, judge.n < 4 ? judge.n : 4);
}

/* A text of 40 tokens. Returns how many draws could be judged: after one that is too close to call the two may go on
 * differently, so there the judge goes the sampler's way, and stops where a filter was too close. */
static uint32_t random_text(uint32_t n, uint64_t seed, struct rn_sampler_scratch *scratch, struct rn_heap *heap)
{
    char order[256], whole[300];
    int32_t history[80];
    uint32_t n_history = 0, n_judged = 0;
    uint64_t rng = seed;
    runnel_sampling p;
    runnel_samplers s;
    struct rn_sampler *sampler;
    bool after = seed % 2 == 0;

    random_samplers(&p, &s, &rng);
    random_order(order, &rng);
    s.order = order;
    s.logprobs_after = after;
    snprintf(whole, sizeof whole, "%s,%s", order, s.mirostat > 0 ? "mirostat" : "adaptive_p");
    assert_int_equal(rn_sampling_check(&p, n, NULL), RUNNEL_OK);
    sampler = rn_sampler_new(heap, &p, n, 80);
    assert_non_null(sampler);
    judge.begun = 0;
    for (; n_history < 40; n_history++) {
        history[n_history] = (int32_t)(rn_splitmix64(&rng) % (n < 6 ? n : 6));
        rn_sampler_accept(sampler, history[n_history]);
    }
    rn_sampler_begin_answer(sampler);
    while (n_history < 80) {
        struct rn_pick pick;
        long double margin;
        int32_t right;

        fill(n, 0.5 + 3 * uniform(&rng), &rng);
        chain_reference_run(&judge, whole, &p, logits, n, history, n_history, n_history);
        right = chain_reference_draw(&judge, p.seed, n_history, &margin);
        assert_int_equal(rn_sampler_pick(sampler, scratch, logits, n_history, true, 4, &pick), RUNNEL_OK);
        if (judge.doubt < 1e-5L || margin < 1e-6L)
            break;
        assert_int_equal(pick.token, right);
        if (after)
            assert_logprobs(&pick);
        n_judged++;
        chain_reference_take(&judge, &p, right);
        rn_sampler_take(sampler, &pick);
        history[n_history++] = pick.token;
    }
    rn_sampler_free(sampler);
    return n_judged;
}

static void random_chains_against_the_judge(void **state)
{
    static const uint32_t sizes[] = {1, 2, 7, 130, 900};
    struct rn_heap heap;
    uint32_t n_judged = 0;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct rn_sampler_scratch *scratch = rn_sampler_scratch_new(&heap, sizes[i]);

        assert_non_null(scratch);
        for (uint64_t seed = 0; seed < (sizes[i] > 500 ? 60 : 400); seed++)
            n_judged += random_text(sizes[i], seed * 10 + i, scratch, &heap);
        rn_sampler_scratch_free(scratch);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
    if (n_judged < 20000)
        fail_msg("%u draws were judged", n_judged);
}

/* ---- Paths, levels, selection ---- */

static void a_path_is_as_good_as_the_past(void **state)
{
    struct rn_heap heap;
    struct rn_sampler_scratch *scratch;

    (void)state;
    rn_heap_init(&heap, NULL);
    scratch = rn_sampler_scratch_new(&heap, 300);
    for (uint64_t seed = 0; seed < 150; seed++) {
        uint64_t rng = seed;
        runnel_sampling p;
        runnel_samplers s;
        struct rn_sampler *before, *told;
        struct rn_pick right[RN_PATH_MOST + 1], pick;
        int32_t path[RN_PATH_MOST];

        random_samplers(&p, &s, &rng);
        s.mirostat = 0;
        s.adaptive_target = -1;
        s.logprobs_after = seed % 2;
        fill(300, 2, &rng);
        before = rn_sampler_new(&heap, &p, 300, 64);
        told = rn_sampler_new(&heap, &p, 300, 64);
        for (uint32_t i = 0; i < seed % 48; i++) {
            int32_t token = (int32_t)(rn_splitmix64(&rng) % 4);

            rn_sampler_accept(before, token);
            rn_sampler_accept(told, token);
        }
        for (uint32_t i = 0; i <= RN_PATH_MOST; i++) {
            assert_int_equal(rn_sampler_pick(told, scratch, logits, i, true, 3, &right[i]), RUNNEL_OK);
            if (i < RN_PATH_MOST)
                rn_sampler_accept(told, path[i] = (int32_t)(rn_splitmix64(&rng) % 4));
        }
        for (uint32_t i = RN_PATH_MOST + 1; i-- > 0;) {
            struct rn_path in_front = {path, i};

            assert_int_equal(rn_sampler_pick_behind(before, in_front, scratch, logits, i, true, 3, &pick), RUNNEL_OK);
            assert_int_equal(pick.token, right[i].token);
            assert_memory_equal(&pick.logprob, &right[i].logprob, sizeof pick.logprob);
        }
        rn_sampler_free(before);
        rn_sampler_free(told);
    }
    rn_sampler_scratch_free(scratch);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void levels_are_equal(void **state)
{
    static const char *const levels[] = {"c", "avx2", "avx512"};
    struct rn_heap heap;
    struct rn_sampler_scratch *scratch;

    (void)state;
    rn_heap_init(&heap, NULL);
    scratch = rn_sampler_scratch_new(&heap, CHAIN_VOCAB);
    for (uint64_t seed = 0; seed < 300; seed++) {
        uint64_t rng = seed;
        runnel_sampling p;
        runnel_samplers s;
        struct rn_sampler *sampler;
        struct rn_pick right, pick;
        uint32_t n = seed % 3 == 0 ? CHAIN_VOCAB : 333;

        random_samplers(&p, &s, &rng);
        s.logprobs_after = seed % 2;
        fill(n, 0.01 + 2 * uniform(&rng), &rng);
        sampler = rn_sampler_new(&heap, &p, n, 16);
        for (uint32_t level = 0; level < 3; level++) {
            if (rn_loops_named(levels[level]) == NULL)
                continue;
            rn_sampler_scratch_use(scratch, rn_loops_named(levels[level]));
            assert_int_equal(rn_sampler_pick(sampler, scratch, logits, seed, true, 5, &pick), RUNNEL_OK);
            if (level == 0)
                right = pick;
            assert_int_equal(pick.token, right.token);
            assert_memory_equal(&pick.logprob, &right.logprob, sizeof pick.logprob);
            if (!rn_sampler_can_draft(sampler))
                assert_memory_equal(&pick.state, &right.state, sizeof pick.state);
        }
        rn_sampler_free(sampler);
    }
    rn_sampler_scratch_free(scratch);
}

static int descending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x > y ? -1 : x < y;
}

static void selection_is_that_of_a_sort(void **state)
{
    static uint64_t keys[5000], sorted[5000], weights[5000], given[5000];
    uint64_t rng = 8;

    (void)state;
    for (uint32_t round = 0; round < 600; round++) {
        uint32_t n = 1 + (uint32_t)(rn_splitmix64(&rng) % (round % 2 ? 5000 : 9)), kept = 0, equal = 0;
        uint64_t all = 0, enough, sum = 0, spread = round % 5 == 0 ? 3 : round % 5 == 1 ? UINT64_MAX : 1u << 20;
        bool weigh = round % 3 != 0;
        struct rn_cut_at cut;

        for (uint32_t i = 0; i < n; i++) {
            keys[i] = sorted[i] = rn_splitmix64(&rng) % spread + (round % 7 == 0 ? UINT64_MAX - spread : 0);
            weights[i] = given[i] = weigh ? rn_splitmix64(&rng) % 100 : 1;
            all += weights[i];
        }
        if (all == 0)
            continue;
        enough = 1 + rn_splitmix64(&rng) % all;
        memcpy(sorted, keys, n * sizeof keys[0]);
        qsort(sorted, n, sizeof sorted[0], descending);
        { /* from the best down, equal ones in their order */
            uint32_t at = 0;

            while (sum < enough) {
                uint64_t key = sorted[at];

                equal = 0;
                for (uint32_t i = 0; i < n && sum < enough; i++)
                    if (keys[i] == key) {
                        sum += given[i];
                        equal++;
                    }
                kept = at;
                while (at < n && sorted[at] == key)
                    at++;
            }
        }
        {
            uint64_t right = sorted[kept];

            cut = rn_select(keys, weigh ? weights : NULL, n, enough);
            assert_true(cut.key == right);
            assert_int_equal(cut.n_equal, equal);
        }
    }
    assert_true(rn_key_of(-0.0) == rn_key_of(0.0) && rn_key_of(-1) < rn_key_of(-0.5) &&
                rn_key_of(-1e-300) < rn_key_of(0) && rn_key_of(0) < rn_key_of(1e-300) && rn_key_of(2) < rn_key_of(3));
}

/* ---- What is refused ---- */

static void refused(const runnel_sampling *p, const char *what)
{
    runnel_error error = {0};

    assert_int_equal(rn_sampling_check(p, 10, &error), RUNNEL_INVALID);
    if (strstr(error.message, what) == NULL)
        fail_msg("'%s' does not name %s", error.message, what);
}

static void hostile_values(void **state)
{
    static const struct {
        const char *order, *what;
    } orders[] = {
        {"top_k,top_k", "top_k stands twice"},
        {"temp,temperature", "temperature stands twice"},
        {"top_q", "no sampler 'top_q'"},
        {"top_k,", "ends with a comma"},
        {",", "no sampler ''"},
        {"mirostat,top_k", "top_k cannot follow"},
        {"adaptive_p;temp", "cannot follow"},
        {"a_name_that_is_far_too_long_for_a_sampler_of_any_kind", "no sampler 'a_name"},
        {"top_k top_p", "no sampler"},
    };
    const char *long_text = "12345678901234567890123456789012345678901234567890123456789012345", *empty = "",
               *null = NULL;
    runnel_sampling p = reference_plain();
    static const char *const strange[] = {"topk_", "top__k", "to_pk", "xt-c", "top-", "-top_k", "typical-_p"};
    runnel_samplers s;

    (void)state;
    p.samplers = &s;
#define BAD(value, member)       \
    runnel_samplers_default(&s); \
    s.member = value;            \
    refused(&p, "sampling.samplers." #member);
#define BAD_float(member, least, most) \
    BAD(NAN, member)                   \
    BAD(INFINITY, member)              \
    BAD(-INFINITY, member) BAD((float)(least)-0.5f, member) BAD((float)(most)*1.01f + 0.01f, member)
#define BAD_uint32_t(member, least, most)                         \
    if ((most) < 4294967295.0) {                                  \
        BAD(UINT32_MAX, member) BAD((uint32_t)(most) + 1, member) \
    }
#define BAD_MEMBER(type, member, sampler, value, least, most, option, json, help) BAD_##type(member, least, most)
    RUNNEL_SAMPLERS_NUMBERS(BAD_MEMBER)
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        runnel_samplers_default(&s);
        s.order = orders[i].order;
        refused(&p, orders[i].what);
    }
    runnel_samplers_default(&s);
    s.mirostat = 1;
    s.adaptive_target = 0.5f;
    refused(&p, "mirostat and adaptive_p");
    for (int i = 0; i < 3; i++) {
        runnel_samplers_default(&s);
        s.dry_breakers = i == 0 ? &long_text : i == 1 ? &empty : &null;
        s.n_dry_breakers = 1;
        refused(&p, "dry_breakers[0]");
    }
    runnel_samplers_default(&s);
    s.dry_breakers = NULL;
    refused(&p, "dry_breakers is NULL");
    s.n_dry_breakers = RUNNEL_MAX_BREAKERS + 1;
    refused(&p, "at most 32");
    runnel_samplers_default(&s);
    s.struct_size = 7;
    refused(&p, "struct_size");
    runnel_samplers_default(&s);
    s.reserved[1] = 1;
    refused(&p, "reserved");
    runnel_samplers_default(&s);
    s.order = "temp;top-k;typ_p;top_n_sigma;penalties;dry;xtc;min-p;top_p;adaptive-p";
    assert_int_equal(rn_sampling_check(&p, 10, NULL), RUNNEL_OK);
    s.order = "temp;topk;typ;topnsigma;penalties;dry;xtc;minp;nucleus;adaptivep";
    assert_int_equal(rn_sampling_check(&p, 10, NULL), RUNNEL_OK);
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        s.order = strange[i];
        refused(&p, "there is no sampler");
    }
    s.order = "top_k;topk";
    refused(&p, "stands twice");
    s.order = NULL;
    s.dry_tokens = s.min_tokens = UINT32_MAX;
    s.dry_multiplier = 1;
    assert_int_equal(rn_sampling_check(&p, 10, NULL), RUNNEL_OK);
}

/* Parameters at their ends, and logits at theirs: a token, or NUMERIC, and never anything else. */
static void extremes(void **state)
{
    struct rn_heap heap;
    struct rn_sampler_scratch *scratch;
    uint64_t rng = 3;

    (void)state;
    rn_heap_init(&heap, NULL);
    scratch = rn_sampler_scratch_new(&heap, 200);
    for (uint32_t round = 0; round < 3000; round++) {
        static const float most[] = {3e38f, 1e-40f, 1, 1e20f};
        runnel_sampling p;
        runnel_samplers s;
        struct rn_sampler *sampler;
        struct rn_pick pick;

        random_samplers(&p, &s, &rng);
        if (round % 2)
            p.temperature = round % 4 == 1 ? 1e-45f : 1e38f;
#define END(type, member, sampler, value, least, most, option, json, help) \
    if (rn_splitmix64(&rng) % 4 == 0)                                      \
        s.member = (type)(rn_splitmix64(&rng) % 2 ? (most) : (least));
        RUNNEL_SAMPLERS_NUMBERS(END)
        if (s.mirostat > 0)
            s.adaptive_target = -1;
        fill(200, 1, &rng);
        for (uint32_t i = 0; i < 200; i++)
            logits[i] = rn_splitmix64(&rng) % 5 == 0 ? -INFINITY : fmaxf(fminf(logits[i], 1), -1) * most[round % 4];
        logits[7] = 0;
        assert_int_equal(rn_sampling_check(&p, 200, NULL), RUNNEL_OK);
        sampler = rn_sampler_new(&heap, &p, 200, 32);
        for (uint32_t i = 0; i < 30; i++) {
            rn_sampler_accept(sampler, (int32_t)(rn_splitmix64(&rng) % 3));
            if (i == 20)
                rn_sampler_begin_answer(sampler);
        }
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(rn_sampler_pick(sampler, scratch, logits, i, true, 3, &pick), RUNNEL_OK);
            assert_in_range(pick.token, 0, 199);
            assert_true(logits[pick.token] > -INFINITY && !isnan(pick.logprob));
            rn_sampler_take(sampler, &pick);
        }
        rn_sampler_free(sampler);
    }
    rn_sampler_scratch_free(scratch);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void refused_memory(void **state)
{
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);
    runnel_sampling p = reference_plain();
    runnel_samplers s;
    bool good = false;

    (void)state;
    runnel_samplers_default(&s);
    s.dry_multiplier = 1;
    p.samplers = &s;
    p.presence_penalty = 1;
    p.penalty_tokens = 4;
    for (uint64_t allowed = 0; !good; allowed++) {
        struct rn_sampler *sampler;

        refusing_allow(&refusing, allowed);
        sampler = rn_sampler_new(&heap, &p, 100, 50);
        good = sampler != NULL && rn_sampler_keep_from_ending(sampler, (const int32_t[]){1}, 0, 1, 5);
        assert_true(allowed < 20);
        rn_sampler_free(sampler);
        assert_int_equal(rn_heap_blocks(&heap), 0);
    }
}

/* Log-probabilities are of differences: however great the logits are, of two equal ones each has 1/2. */
static void great_logits(void **state)
{
    static const float greatest[] = {1, 1e9f, 1e30f, -1e30f, 3e38f};
    struct rn_heap heap;
    struct rn_sampler_scratch *scratch;
    runnel_sampling p = reference_plain();
    runnel_samplers s;

    (void)state;
    rn_heap_init(&heap, NULL);
    scratch = rn_sampler_scratch_new(&heap, 3);
    runnel_samplers_default(&s);
    p.samplers = &s;
    for (uint32_t i = 0; i < 2 * sizeof greatest / sizeof greatest[0]; i++) {
        float great = greatest[i / 2], least = great - fabsf(great) / 2;
        struct rn_sampler *sampler;
        struct rn_pick pick;

        s.logprobs_after = i % 2;
        sampler = rn_sampler_new(&heap, &p, 3, 8);
        memcpy(logits, (const float[]){great, least, great}, 3 * sizeof logits[0]);
        assert_int_equal(rn_sampler_pick(sampler, scratch, logits, i, true, 3, &pick), RUNNEL_OK);
        if (great == 1) {
            assert_true(fabs((double)pick.top[0].logprob + log(2 + exp(-0.5))) < 1e-6);
        } else {
            assert_true(fabs((double)pick.top[0].logprob + log(2)) < 1e-6);
            assert_true(fabs((double)pick.logprob + log(2)) < 1e-6);
        }
        assert_true(pick.top[0].token == 0 && pick.top[1].token == 2 && pick.top[2].token == 1);
        assert_true(pick.top[1].logprob == pick.top[0].logprob);
        rn_sampler_free(sampler);
    }
    rn_sampler_scratch_free(scratch);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_chains_against_the_judge),
        cmocka_unit_test(a_path_is_as_good_as_the_past),
        cmocka_unit_test(levels_are_equal),
        cmocka_unit_test(selection_is_that_of_a_sort),
        cmocka_unit_test(hostile_values),
        cmocka_unit_test(extremes),
        cmocka_unit_test(great_logits),
        cmocka_unit_test(refused_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
