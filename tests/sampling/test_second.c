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
#include "reference.h"
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

static struct rn_runner_up second_of(const runnel_sampling *params, struct rn_sampler_scratch *scratch,
                                     uint64_t position, int32_t *picked)
{
    struct rn_runner_up second;
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
        struct rn_runner_up second;
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

/* The ranks of the best two scores among the n best tokens; the gap between them. */
static double best_two(uint32_t n, double temperature, uint64_t seed, uint64_t position, uint32_t rank[2])
{
    double score[2] = {-INFINITY, -INFINITY};

    rank[0] = rank[1] = 0;

    for (uint32_t i = 0; i < n; i++) {
        double here = (double)logits[order[i]] / temperature + (double)reference_noise(seed, position, order[i]);

        if (here > score[0]) {
            score[1] = score[0];
            rank[1] = rank[0];
            score[0] = here;
            rank[0] = i;
        } else if (here > score[1]) {
            score[1] = here;
            rank[1] = i;
        }
    }
    return score[0] - score[1];
}

static void sampled_is_the_next_score(void **state)
{
    static const uint32_t kept[] = {0, 7};
    struct rn_sampler_scratch *scratch = *state;
    uint32_t n_first = 0, n_next = 0;
    uint64_t random = 2;

    for (uint32_t round = 0; round < 400; round++) {
        uint32_t n = kept[round % 2] == 0 ? VOCAB : kept[round % 2], rank[2];
        runnel_request request;
        struct rn_runner_up second;
        int32_t picked;
        double gap;

        runnel_request_default(&request);
        request.sampling.temperature = 1.5f;
        request.sampling.top_k = kept[round % 2];
        request.sampling.seed = 9;
        new_logits(&random);
        second = second_of(&request.sampling, scratch, round, &picked);
        gap = best_two(n, 1.5, 9, round, rank);
        assert_int_equal(picked, order[rank[0]]);
        assert_int_equal(second.token, order[rank[1]]);
        assert_true(fabs((double)second.share - 1 / (1 + exp(4 * gap))) < 1e-5);
        n_first += rank[0] > 0;
        n_next += rank[0] == 0;
    }
    assert_true(n_first > 50 && n_next > 50);
}

/* Somebody whose logits differ a little draws with the same noise: runners-up are its pick about as often as they were
 * told to be, of those that were told to be likely and of all, whether one token is by far the likeliest or many are
 * alike. */
static void shares_come_true(void **state)
{
    struct rn_sampler_scratch *scratch = *state;
    uint64_t random = 3;

    for (uint32_t way = 0; way < 6; way++) {
        double temperature = 0.5 + 0.5 * (way / 2), noise = (way % 2 == 0 ? 0.2 : 0.4) * temperature;
        double told = 0, told_likely = 0, right = 0, right_likely = 0;

        for (uint32_t round = 0; round < 20000; round++) {
            runnel_request request;
            struct rn_runner_up second;
            uint32_t rank[2];
            int32_t picked;
            bool is;

            runnel_request_default(&request);
            request.sampling.temperature = (float)temperature;
            request.sampling.seed = 4;
            new_logits(&random);
            for (uint32_t i = 0; round % 2 == 0 && i < VOCAB; i++)
                logits[i] = i < 4 ? 6 + logits[i] / 10 : logits[i] / 4;
            second = second_of(&request.sampling, scratch, round, &picked);
            for (uint32_t i = 0; i < VOCAB; i++) { /* three uniform numbers: nearly a Gaussian one */
                for (uint32_t k = 0; k < 3; k++)
                    logits[i] += (float)(noise * 2 * ((double)(rn_splitmix64(&random) >> 11) * 0x1p-53 - 0.5));
                order[i] = (int32_t)i;
            }
            qsort(order, VOCAB, sizeof order[0], by_logit);
            best_two(VOCAB, temperature, 4, round, rank);
            is = second.token == order[rank[0]];
            told += (double)second.share;
            right += is;
            told_likely += second.share > 0.2f ? (double)second.share : 0;
            right_likely += second.share > 0.2f && is;
        }
        print_message("temperature %g, noise %g: %.0f told, %.0f right; likely ones %.0f, %.0f\n", temperature, noise,
                      told, right, told_likely, right_likely);
        assert_true(told > 1000 && told_likely > 200);
        assert_true(right > 0.5 * told && right < 2 * told);
        assert_true(right_likely > 0.5 * told_likely && right_likely < 2 * told_likely);
    }
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
        cmocka_unit_test(sampled_is_the_next_score),
        cmocka_unit_test(shares_come_true),
        cmocka_unit_test(one_token_has_none),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
