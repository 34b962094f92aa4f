/* The runner-up of a guess against its definition, by a full sort and sums over all tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>

#include "base/rng.h"
#include "sampling/sampler.h"

#define VOCAB 40u

static struct rn_heap heap;
static float logits[VOCAB];
static int32_t order[VOCAB];

static int by_logit(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return logits[x] != logits[y] ? (logits[x] < logits[y] ? 1 : -1) : x - y;
}

static void new_logits(uint64_t *random)
{
    for (uint32_t i = 0; i < VOCAB; i++) {
        logits[i] = (float)(rn_splitmix64(random) % 900) / 100;
        order[i] = (int32_t)i;
    }
    qsort(order, VOCAB, sizeof order[0], by_logit);
}

static struct rn_second second_of(const runnel_sampling *params, struct rn_sampler_scratch *scratch, uint64_t position,
                                  int32_t *picked)
{
    struct rn_second second;
    struct rn_pick alone, pick;

    assert_int_equal(rn_sampler_pick_plain(params, VOCAB, scratch, logits, position, &alone, NULL), RUNNEL_OK);
    assert_int_equal(rn_sampler_pick_plain(params, VOCAB, scratch, logits, position, &pick, &second), RUNNEL_OK);
    assert_int_equal(alone.token, pick.token); /* who asks for the runner-up gets the same guess */
    *picked = pick.token;
    return second;
}

static void greedy_is_the_second_best(void **state)
{
    struct rn_sampler_scratch *scratch = *state;
    runnel_request request;
    uint64_t random = 1;

    runnel_request_default(&request);
    for (uint32_t round = 0; round < 200; round++) {
        struct rn_second second;
        double sum = 0;
        int32_t picked;

        new_logits(&random);
        second = second_of(&request.sampling, scratch, round, &picked);
        for (uint32_t i = 0; i < VOCAB; i++)
            sum += exp((double)logits[i] - (double)logits[order[0]]);
        assert_int_equal(picked, order[0]);
        assert_int_equal(second.token, order[1]);
        assert_true(fabs((double)second.share - exp((double)logits[order[1]] - (double)logits[order[0]]) / sum) < 1e-5);
    }
}

/* The place of the coin in the order, over the n tokens that are kept: whose interval it is, and how far its ends. */
static void sampled_is_the_neighbour(void **state)
{
    static const uint32_t kept[] = {0, 7};
    struct rn_sampler_scratch *scratch = *state;
    uint32_t n_up = 0, n_down = 0;
    uint64_t random = 2;

    for (uint32_t round = 0; round < 400; round++) {
        uint32_t n = kept[round % 2] == 0 ? VOCAB : kept[round % 2], at = 0;
        double weights[VOCAB + 1] = {0}, sum = 0, target, from = 0, left, right;
        runnel_request request;
        struct rn_second second;
        int32_t picked;

        runnel_request_default(&request);
        request.sampling.temperature = 1.5f;
        request.sampling.top_k = kept[round % 2];
        request.sampling.seed = 9;
        new_logits(&random);
        second = second_of(&request.sampling, scratch, round, &picked);
        for (uint32_t i = 0; i < n; i++)
            sum += weights[i] = exp(((double)logits[order[i]] - (double)logits[order[0]]) / 1.5);
        target = rn_coin(9, round) * sum;
        while (at + 1 < n && from + weights[at] <= target)
            from += weights[at++];
        assert_int_equal(picked, order[at]);
        left = at > 0 ? target - from : INFINITY;
        right = at + 1 < n ? from + weights[at] - target : INFINITY;
        if (fabs(left - right) < 1e-9)
            continue;
        assert_int_equal(second.token, order[left < right ? at - 1 : at + 1]);
        sum = weights[left < right ? at - 1 : at + 1];
        assert_true(fabs((double)second.share - sum / (sum + (left < right ? left : right)) / 2) < 1e-5);
        n_up += left >= right;
        n_down += left < right;
    }
    assert_true(n_up > 50 && n_down > 50);
}

static void one_token_has_none(void **state)
{
    struct rn_sampler_scratch *scratch = *state;
    runnel_request request;
    int32_t picked;

    runnel_request_default(&request);
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = i == 3 ? 1 : -INFINITY;
    assert_int_equal(second_of(&request.sampling, scratch, 1, &picked).token, -1);
    request.sampling.temperature = 1;
    assert_int_equal(second_of(&request.sampling, scratch, 1, &picked).token, -1);
    request.sampling.top_k = 1;
    logits[4] = 1;
    assert_int_equal(second_of(&request.sampling, scratch, 1, &picked).token, -1);
}

static int setup(void **state)
{
    rn_heap_init(&heap, NULL);
    *state = rn_sampler_scratch_new(&heap, VOCAB);
    return *state == NULL;
}

static int teardown(void **state)
{
    rn_sampler_scratch_free(*state);
    return rn_heap_bytes(&heap) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_is_the_second_best),
        cmocka_unit_test(sampled_is_the_neighbour),
        cmocka_unit_test(one_token_has_none),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
