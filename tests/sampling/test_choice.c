/* Draws that the host makes. Judges: the same chain without `host` where the host changes nothing; the same chain with
 * logit biases where it changes logits; log-softmax in long double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "reference.h"
#include "sampling/choice.h"
#include "tests/base/refusing.h"

#define VOCAB 3000u
#define ROUNDS 200u

static float logits[VOCAB];

static int64_t nobody(void *user, runnel_candidates *candidates)
{
    (void)user;
    (void)candidates;
    fail();
    return 0;
}

static void fill(uint64_t *rng)
{
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = (float)((double)(rn_splitmix64(rng) >> 11) * 0x1p-53 * 14 - 7);
}

struct both {
    runnel_samplers with, without;
    runnel_sampling p, q;
    struct rn_sampler *asking, *plain;
    struct rn_choice *choice;
    struct rn_sampler_scratch *scratch;
    struct rn_heap heap;
};

static void begin(struct both *both, const char *order, const char *order_without)
{
    memset(both, 0, sizeof *both);
    rn_heap_init(&both->heap, NULL);
    runnel_samplers_default(&both->with);
    both->with.xtc_probability = 0.5f;
    both->with.top_n_sigma = 4;
    both->with.typical_p = 0.98f;
    both->with.temperature_range = 0.3f;
    both->p = reference_plain();
    both->p.temperature = 0.8f;
    both->p.top_k = 200;
    both->p.top_p = 0.9f;
    both->p.min_p = 0.001f;
    both->p.repetition_penalty = 1.2f;
    both->without = both->with;
    both->q = both->p;
    both->with.choose = nobody;
    both->with.order = order;
    both->without.order = order_without;
    both->without.logprobs_after = 1; /* drawn from a list, too */
    both->p.samplers = &both->with;
    both->q.samplers = &both->without;
}

static void make(struct both *both, bool want_logprobs)
{
    assert_int_equal(rn_sampling_check(&both->p, VOCAB, NULL), RUNNEL_OK);
    both->asking = rn_sampler_new(&both->heap, &both->p, VOCAB, 100);
    both->plain = rn_sampler_new(&both->heap, &both->q, VOCAB, 100);
    both->scratch = rn_sampler_scratch_new(&both->heap, VOCAB);
    both->choice = rn_choice_new(&both->heap, both->asking, 100, want_logprobs);
    assert_true(both->asking != NULL && both->plain != NULL && both->scratch != NULL && both->choice != NULL);
    rn_sampler_lend_choice(both->asking, both->choice);
    assert_true(rn_sampler_asks_host(both->asking) && !rn_sampler_can_draft(both->asking));
    assert_true(!rn_sampler_asks_host(both->plain) && rn_sampler_can_draft(both->plain));
    for (int32_t i = 0; i < 20; i++) {
        rn_sampler_accept(both->asking, i * 7);
        rn_sampler_accept(both->plain, i * 7);
    }
}

static void end(struct both *both)
{
    rn_choice_free(both->choice);
    rn_sampler_free(both->asking);
    rn_sampler_free(both->plain);
    rn_sampler_scratch_free(both->scratch);
    assert_int_equal(rn_heap_blocks(&both->heap), 0);
}

static void what_is_not_changed_is_drawn_as_without(void **state)
{
    static const char *const orders[][2] = {
        {NULL, NULL},
        {"host", ""},
        {"penalties,top_k,top_p,temperature,host", "penalties,top_k,top_p,temperature"},
        {"top_k,host,top_p,temperature,xtc", "top_k,top_p,temperature,xtc"},
        {"host,temperature,typical_p,min_p", "temperature,typical_p,min_p"},
        {"top_n_sigma,host,top_k,temperature", "top_n_sigma,top_k,temperature"},
        {"penalties,temperature", "penalties,temperature"}, /* not named: behind all others */
    };
    uint64_t rng = 1;
    uint32_t fewest = UINT32_MAX, most = 0;

    (void)state;
    for (size_t o = 0; o < sizeof orders / sizeof orders[0]; o++) {
        struct both both;

        begin(&both, orders[o][0], orders[o][1]);
        make(&both, false);
        for (uint64_t round = 0; round < ROUNDS; round++) {
            struct rn_pick asked = {0}, plain = {0}, taken = {0};
            const runnel_candidates *shown;
            uint32_t place;

            fill(&rng);
            assert_int_equal(rn_sampler_pick(both.asking, both.scratch, logits, round, false, 0, &asked), RUNNEL_OK);
            assert_int_equal(rn_sampler_pick(both.plain, both.scratch, logits, round, false, 0, &plain), RUNNEL_OK);
            assert_int_equal(asked.token, -1);
            shown = rn_choice_ask(both.choice, 17);
            assert_true(shown->stream == 17 && shown->position == round && shown->struct_size == sizeof *shown);
            for (size_t i = 1; i < shown->n; i++)
                assert_true(shown->tokens[i - 1] < shown->tokens[i]);
            place = (uint32_t)runnel_candidates_draw(shown);
            assert_int_equal(place, rn_choice_draw(both.choice)); /* as often as one likes */
            assert_true(rn_choice_take(both.choice, place, &taken));
            assert_int_equal(taken.token, plain.token);
            fewest = shown->n < fewest ? (uint32_t)shown->n : fewest;
            most = shown->n > most ? (uint32_t)shown->n : most;
        }
        end(&both);
    }
    assert_true(fewest <= 200 && most == VOCAB);
}

/* The host adds what a bias would, and drops what a bias of -infinity forbids. */
static void changed_logits_are_as_biases(void **state)
{
    runnel_logit_bias biases[60];
    uint64_t rng = 2;

    (void)state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct rn_pick asked, plain, taken;
        struct both both;
        uint32_t place;

        begin(&both, "host,top_k,top_p,temperature", "top_k,top_p,temperature");
        fill(&rng);
        for (uint32_t i = 0; i < 60; i++) {
            biases[i] = (runnel_logit_bias){(int32_t)(i * 49), (float)(rn_splitmix64(&rng) % 1000) * 0.01f - 2};
            if (rn_splitmix64(&rng) % 3 == 0)
                biases[i].bias = -INFINITY;
        }
        both.q.biases = biases;
        both.q.n_biases = 60;
        make(&both, false);
        assert_int_equal(rn_sampler_pick(both.asking, both.scratch, logits, round, false, 0, &asked), RUNNEL_OK);
        assert_int_equal(rn_sampler_pick(both.plain, both.scratch, logits, round, false, 0, &plain), RUNNEL_OK);
        for (uint32_t i = 0; i < 60; i++) /* all tokens are candidates */
            rn_choice_ask(both.choice, 1)->logits[biases[i].token] =
                (float)((double)logits[biases[i].token] + (double)biases[i].bias);
        place = rn_choice_draw(both.choice);
        assert_true(rn_choice_take(both.choice, place, &taken));
        assert_int_equal(taken.token, plain.token);
        end(&both);
    }
}

static long double log_sum(const float *of, uint32_t n)
{
    long double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += expl((long double)of[i]);
    return logl(sum);
}

static void each_candidate_has_its_logprob(void **state)
{
    uint64_t rng = 3;

    (void)state;
    for (uint32_t after = 0; after < 2; after++) {
        struct rn_pick pick, taken;
        runnel_candidates *shown;
        struct both both;
        long double norm;

        begin(&both, "top_k,host,temperature", "");
        both.with.logprobs_after = after;
        make(&both, true);
        fill(&rng);
        assert_int_equal(rn_sampler_pick(both.asking, both.scratch, logits, 5, true, 6, &pick), RUNNEL_OK);
        shown = rn_choice_ask(both.choice, 1);
        assert_int_equal(shown->n, 200);
        norm = after != 0 ? log_sum(shown->logits, 200) : log_sum(logits, VOCAB);
        for (uint32_t i = 0; i < 200; i++) {
            assert_true(rn_choice_take(both.choice, i, &taken));
            assert_int_equal(taken.token, shown->tokens[i]);
            assert_true(fabsl((long double)taken.logprob - ((long double)logits[taken.token] - norm)) < 1e-5L);
        }
        assert_int_equal(taken.n_top, 6);
        for (uint32_t t = 0; t < 6; t++) {
            uint32_t n_better = 0;

            for (uint32_t i = 0; i < VOCAB; i++)
                n_better += logits[i] > logits[taken.top[t].token];
            assert_int_equal(n_better, t);
            assert_true(fabsl((long double)taken.top[t].logprob - ((long double)logits[taken.top[t].token] - norm)) <
                        1e-5L);
        }
        end(&both);
    }
}

static void what_cannot_be_drawn_is_told(void **state)
{
    static const float bad[] = {NAN, INFINITY};
    uint64_t rng = 4;
    struct rn_pick pick;
    struct both both;
    runnel_candidates *shown;

    (void)state;
    begin(&both, "top_k,host", "");
    make(&both, false);
    fill(&rng);
    assert_int_equal(rn_sampler_pick(both.asking, both.scratch, logits, 5, false, 0, &pick), RUNNEL_OK);
    shown = rn_choice_ask(both.choice, 1);
    assert_false(rn_choice_take(both.choice, 200, &pick));
    assert_false(rn_choice_take(both.choice, RN_CHOICE_NO_PLACE, &pick));
    assert_false(rn_choice_take(both.choice, RN_CHOICE_NOTHING, &pick));
    for (size_t i = 0; i < 2; i++) {
        float kept = shown->logits[3];

        shown->logits[3] = bad[i];
        assert_int_equal(rn_choice_draw(both.choice), RN_CHOICE_NOTHING);
        assert_int_equal(runnel_candidates_draw(shown), -1);
        shown->logits[3] = kept;
    }
    for (size_t i = 0; i < 200; i++)
        shown->logits[i] = -INFINITY;
    assert_int_equal(runnel_candidates_draw(shown), -1);
    shown->logits[77] = -1e30f; /* the only one that is left */
    assert_int_equal(runnel_candidates_draw(shown), 77);
    assert_int_equal(runnel_candidates_draw(NULL), -1);
    end(&both);
}

/* Appended, or anew where the oldest part has gone. */
static void the_sequence_is_told(void **state)
{
    int32_t tokens[100];
    struct both both;

    (void)state;
    begin(&both, "host", "");
    make(&both, false);
    for (int32_t i = 0; i < 100; i++)
        tokens[i] = i;
    for (uint32_t n = 1; n <= 100; n += 9) {
        rn_choice_tell(both.choice, tokens, n, 0);
        assert_int_equal(both.choice->n_sequence, n);
        assert_memory_equal(both.choice->sequence, tokens, n * sizeof tokens[0]);
    }
    rn_choice_tell(both.choice, tokens + 40, 60, 40);
    assert_int_equal(both.choice->n_sequence, 60);
    assert_memory_equal(both.choice->sequence, tokens + 40, 60 * sizeof tokens[0]);
    end(&both);
}

static void refused(struct both *both, const char *sentence)
{
    runnel_error error = {0};

    assert_int_equal(rn_sampling_check(&both->p, VOCAB, &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, sentence));
    assert_int_equal(rn_heap_blocks(&both->heap), 0);
}

static void what_does_not_go_together_is_refused(void **state)
{
    struct both both;

    (void)state;
    begin(&both, "mirostat", "");
    both.with.mirostat = 2;
    refused(&both, "mirostat");
    begin(&both, "top_k", "");
    both.with.adaptive_target = 0.5f;
    refused(&both, "adaptive_p");
    begin(&both, "host,penalties", "");
    refused(&both, "stand in front of host");
    begin(&both, "top_k,host,dry", "");
    both.with.dry_multiplier = 1;
    refused(&both, "stand in front of host");
    begin(&both, NULL, "");
    both.p.temperature = 0;
    refused(&both, "temperature 0");
    begin(&both, "host,host", "");
    refused(&both, "stands twice");
    begin(&both, "host,temperature", ""); /* behind the host 0 keeps the best */
    both.p.temperature = 0;
    make(&both, false);
    end(&both);
}

static void memory_may_be_refused(void **state)
{
    struct refusing refusing = {0};
    const runnel_allocator allocator = {refusing_alloc, refusing_free, &refusing};
    struct rn_choice *choice = NULL;
    struct rn_heap heap;
    struct both both;

    (void)state;
    begin(&both, "host,top_p", "");
    make(&both, true);
    rn_heap_init(&heap, &allocator);
    while (choice == NULL) {
        assert_int_equal(refusing.live, 0);
        refusing.calls = 0;
        refusing.refuse_at++;
        choice = rn_choice_new(&heap, both.asking, 100, true);
    }
    assert_int_equal(refusing.refused, 10); /* each piece */
    rn_choice_free(choice);
    assert_int_equal(refusing.live, 0);
    end(&both);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_changed_is_drawn_as_without),
        cmocka_unit_test(changed_logits_are_as_biases),
        cmocka_unit_test(each_candidate_has_its_logprob),
        cmocka_unit_test(what_cannot_be_drawn_is_told),
        cmocka_unit_test(the_sequence_is_told),
        cmocka_unit_test(what_does_not_go_together_is_refused),
        cmocka_unit_test(memory_may_be_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
