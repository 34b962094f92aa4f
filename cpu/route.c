/* One row of op ROUTE: see route.h, and ops.def for the formula. */
#include "cpu/route.h"

#include <math.h>

/* The n best of all, best first; of equals the lower id first. What cannot be compared stays where it comes. */
static void choose(const float *scores, uint32_t all, uint32_t n, int32_t *ids)
{
    uint32_t e, j, found = 0;

    for (e = 0; e < all; e++) {
        if (found == n && !(scores[e] > scores[ids[n - 1]]))
            continue;
        j = found < n ? found++ : n - 1;
        for (; j > 0 && scores[e] > scores[ids[j - 1]]; j--)
            ids[j] = ids[j - 1];
        ids[j] = (int32_t)e;
    }
}

/* Scores of experts that are in none of the best groups become -INFINITY. */
static void keep_best_groups(const struct rn_op *op, float *scores)
{
    uint32_t size = op->experts / op->groups, g, e;
    float of_groups[RN_MAX_ROUTE_GROUPS];
    int32_t two[2], best[RN_MAX_ROUTE_GROUPS];
    bool kept[RN_MAX_ROUTE_GROUPS] = {false};

    for (g = 0; g < op->groups; g++) {
        choose(scores + (size_t)g * size, size, 2, two);
        of_groups[g] = scores[g * size + (uint32_t)two[0]] + scores[g * size + (uint32_t)two[1]];
    }
    choose(of_groups, op->groups, op->best, best);
    for (g = 0; g < op->best; g++)
        kept[best[g]] = true;
    for (g = 0; g < op->groups; g++)
        for (e = g * size; e < (g + 1) * size && !kept[g]; e++)
            scores[e] = -INFINITY;
}

/* most, sum: of a softmax. */
static double gate(enum rn_gating gating, double x, double most, double sum)
{
    if (gating == RN_GATING_SIGMOID)
        return 1 / (1 + exp(-x));
    if (gating == RN_GATING_ROOT_SOFTPLUS)
        return sqrt(fmax(x, 0) + log1p(exp(-fabs(x))));
    return exp(x - most) / sum;
}

/* Of all experts. */
static void softmax_sum(const float *logits, uint32_t n, double *most, double *sum)
{
    uint32_t e;

    *most = (double)logits[0];
    for (e = 1; e < n; e++)
        *most = (double)logits[e] > *most ? (double)logits[e] : *most;
    for (*sum = 0, e = 0; e < n; e++)
        *sum += exp((double)logits[e] - *most);
}

/* Of those that are chosen. */
static void chosen_sum(const float *logits, const int32_t *ids, uint32_t n, double *most, double *sum)
{
    uint32_t j;

    *most = (double)logits[ids[0]];
    for (j = 1; j < n; j++)
        *most = (double)logits[ids[j]] > *most ? (double)logits[ids[j]] : *most;
    for (*sum = 0, j = 0; j < n; j++)
        *sum += exp((double)logits[ids[j]] - *most);
}

void rn_route_weigh(const struct rn_op *op, const float *logits, const int32_t *ids, float *weights)
{
    double most = 0, sum = 1, all = 0, part;
    uint32_t j;

    if (op->gating == RN_GATING_SOFTMAX)
        softmax_sum(logits, op->experts, &most, &sum);
    if (op->gating == RN_GATING_CHOSEN)
        chosen_sum(logits, ids, op->used, &most, &sum);
    for (j = 0; j < op->used; j++) {
        weights[j] = (float)gate(op->gating, (double)logits[ids[j]], most, sum);
        all += (double)weights[j];
    }
    part = (op->normalise ? 1 / fmax(all, op->eps) : 1) * (double)op->scale;
    for (j = 0; j < op->used && part != 1; j++)
        weights[j] = (float)((double)weights[j] * part);
}

void rn_route_row(const struct rn_op *op, const float *logits, const float *more, int32_t *ids, float *weights)
{
    float scores[RN_MAX_ROUTED];
    double most = 0, sum = 1;
    bool by_logits = more == NULL && op->groups <= 1; /* every gating grows with the logit */
    uint32_t e, j;

    if (op->gating == RN_GATING_SOFTMAX && !by_logits)
        softmax_sum(logits, op->experts, &most, &sum);
    for (e = 0; e < op->experts && !by_logits; e++)
        scores[e] =
            (op->gating == RN_GATING_CHOSEN ? logits[e] : (float)gate(op->gating, (double)logits[e], most, sum)) +
            (more != NULL ? more[e] : 0);
    if (op->groups > 1)
        keep_best_groups(op, scores);
    choose(by_logits ? logits : scores, op->experts, op->used, ids);
    for (j = 0; j < op->used && op->per > 1; j++)
        ids[j] /= (int32_t)op->per;
    rn_route_weigh(op, logits, ids, weights);
}
