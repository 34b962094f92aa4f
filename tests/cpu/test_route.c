/* The fast routing against its formula, worked out here the slow way: each expert's rank is how many are better. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "cpu/route.h"

enum { MOST = 128, CASES = 4000 };

struct judged {
    double gates[MOST], scores[MOST];
    bool out[MOST]; /* in a group that does not count */
};

static uint32_t below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(rn_splitmix64(state) % n);
}

static double unit(uint64_t *state)
{
    return (double)(rn_splitmix64(state) >> 11) * 0x1p-53;
}

static bool better(const double *scores, uint32_t a, uint32_t b)
{
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
}

static double of_formula(enum rn_gating gating, const float *logits, uint32_t n, uint32_t e)
{
    double sum = 0;
    uint32_t i;

    for (i = 0; i < n; i++)
        sum += exp((double)logits[i]);
    return gating == RN_GATING_SIGMOID         ? 1 / (1 + exp(-(double)logits[e]))
           : gating == RN_GATING_ROOT_SOFTPLUS ? sqrt(log1p(exp((double)logits[e])))
           : gating == RN_GATING_CHOSEN        ? (double)logits[e]
                                               : exp((double)logits[e]) / sum;
}

static void leave_groups(const struct rn_op *op, struct judged *j)
{
    uint32_t size = op->experts / op->groups, g, i, k, rank;
    double of_group[MOST] = {0};

    for (g = 0; g < op->groups; g++)
        for (i = g * size; i < (g + 1) * size; i++) {
            for (rank = 0, k = g * size; k < (g + 1) * size; k++)
                rank += better(j->scores, k, i);
            of_group[g] += rank < 2 ? j->scores[i] : 0;
        }
    for (g = 0; g < op->groups; g++) {
        for (rank = 0, k = 0; k < op->groups; k++)
            rank += better(of_group, k, g);
        for (i = g * size; i < (g + 1) * size; i++)
            j->out[i] = rank >= op->best;
    }
}

static void judge(const struct rn_op *op, const float *logits, const float *more, const int32_t *ids,
                  const float *weights)
{
    double sum = 0, expected;
    struct judged j = {0};
    uint32_t e, k, rank;

    for (e = 0; e < op->experts; e++) {
        j.gates[e] = of_formula(op->gating, logits, op->experts, e);
        j.scores[e] = j.gates[e] + (more != NULL ? (double)more[e] : 0);
    }
    if (op->groups > 1)
        leave_groups(op, &j);
    for (e = 0; e < op->experts; e++) {
        for (rank = 0, k = 0; k < op->experts; k++)
            rank += !j.out[k] && better(j.scores, k, e);
        if (!j.out[e] && rank < op->used)
            assert_int_equal(ids[rank], e);
    }
    for (k = 0; k < op->used; k++)
        sum += op->gating == RN_GATING_CHOSEN ? exp(j.gates[ids[k]]) : j.gates[ids[k]];
    for (k = 0; k < op->used; k++) {
        expected = op->gating == RN_GATING_CHOSEN ? exp(j.gates[ids[k]]) / sum
                   : op->normalise                ? j.gates[ids[k]] / fmax(sum, op->eps)
                                                  : j.gates[ids[k]];
        assert_true(fabs((double)weights[k] - expected * (double)op->scale) <=
                    1e-6 * fabs(expected * (double)op->scale));
    }
}

static void the_best_by_every_gating(void **state)
{
    static const uint32_t counts[] = {1, 3, 8, 60, 128}, groups[] = {0, 0, 4, 6, 8};
    float logits[MOST], more[MOST], weights[MOST];
    uint64_t rng = 17;
    int32_t ids[MOST];
    uint32_t i, e, shape;

    (void)state;
    for (i = 0; i < CASES; i++) {
        struct rn_op op = {.kind = RN_OP_ROUTE, .eps = 0x1p-14, .scale = i % 3 == 0 ? 2.5F : 1};

        shape = below(&rng, 5);
        op.experts = counts[shape];
        op.gating = (enum rn_gating)(i % 4);
        op.normalise = op.gating != RN_GATING_CHOSEN && i % 8 < 4;
        if (groups[shape] > 0 && i % 5 < 3) {
            op.groups = groups[shape];
            op.best = 1 + below(&rng, op.groups);
        }
        op.used = 1 + below(&rng, op.groups > 0 ? op.best * (op.experts / op.groups) : op.experts);
        for (e = 0; e < op.experts; e++) {
            logits[e] = (float)(unit(&rng) * 12 - (i % 7 == 0 ? 30 : 6));
            more[e] = (float)unit(&rng);
        }
        rn_route_row(&op, logits, i % 2 == 0 ? NULL : more, ids, weights);
        judge(&op, logits, i % 2 == 0 ? NULL : more, ids, weights);
    }
}

/* Ids are different and in range whatever the numbers are. */
static void numbers_that_cannot_be_compared(void **state)
{
    static const float strange[] = {NAN, INFINITY, -INFINITY, 0, 1e38F};
    struct rn_op op = {.kind = RN_OP_ROUTE, .experts = 16, .used = 5, .scale = 1};
    float logits[16], weights[16];
    uint64_t rng = 18;
    int32_t ids[16];
    uint32_t i, j, seen;

    (void)state;
    for (i = 0; i < 2000; i++) {
        op.gating = (enum rn_gating)(i % 4);
        op.groups = i % 3 == 0 ? 4 : 0;
        op.best = 2;
        for (j = 0; j < 16; j++)
            logits[j] = strange[below(&rng, 5)];
        rn_route_row(&op, logits, i % 2 == 0 ? NULL : logits, ids, weights);
        for (seen = 0, j = 0; j < op.used; j++) {
            assert_in_range(ids[j], 0, 15);
            assert_int_equal(seen >> ids[j] & 1, 0);
            seen |= 1U << ids[j];
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_best_by_every_gating),
                                       cmocka_unit_test(numbers_that_cannot_be_compared)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
