/* See race.h. */
#include "tests/sampling/race.h"

#include <stddef.h>

enum { STREAMS = 64, DRAFTS = 8 };

struct runner {
    struct rn_speculation speculation;
    uint32_t bad; /* steps with drafts, up to race.wrong of them */
};

double race_coin(uint64_t *random)
{
    return (double)(rn_splitmix64(random) >> 11) * 0x1p-53;
}

double race_time(const struct race *race, uint32_t n_rows)
{
    return race->base + race->slope * n_rows;
}

/* One stream's part of a step that has *n_rows so far; how many tokens it adds. */
static uint32_t advance(struct race *race, struct runner *runner, uint32_t *n_rows, uint64_t *random)
{
    struct rn_speculation *s = &runner->speculation;
    float shares[DRAFTS];
    struct rn_shape shape;
    uint32_t right = 0;
    bool second, taken;

    for (uint32_t i = 0; i < DRAFTS; i++)
        shares[i] = race->told;
    shape =
        rn_speculation_shape(s, race->cost, *n_rows, race->n_streams, DRAFTS, DRAFTS, race->told > 0 ? shares : NULL);
    if (race->reserve != NULL)
        rn_speculation_use_reserve(s, race->reserve);
    while (right < shape.n_chain && runner->bad >= race->wrong && race_coin(random) < race->acceptance)
        right++;
    runner->bad += shape.n_chain > 0;
    second = right < shape.n_chain && race->told > 0 && race_coin(random) < race->second;
    taken = second && (shape.branches >> right & 1) != 0;
    rn_speculation_note(s, shape.n_chain, right);
    if (race->told > 0)
        rn_speculation_note_branches(s, shape.n_branches, taken);
    for (uint32_t k = 0; race->told > 0 && k < shape.n_chain && k <= right; k++)
        rn_speculation_note_runner_up(s, race->told, k == right && second);
    *n_rows += shape.n_chain + shape.n_branches;
    race->branched += shape.n_branches;
    return 1 + right + taken;
}

double race_run(struct race *race, uint64_t seed)
{
    struct rn_step_cost empty = {.us = {0}}, *given = race->cost;
    struct runner runners[STREAMS] = {0};
    double time = 0, tokens = 0, longer = race->first > 0 ? race->first : 1;
    uint64_t random = seed;

    race->cost = given != NULL ? given : &empty;
    for (uint32_t i = 0; i < race->n_streams; i++) {
        rn_speculation_init(&runners[i].speculation);
        rn_speculation_grant(&runners[i].speculation, race->n_tokens);
    }
    while (tokens < race->n_streams * race->n_tokens) {
        uint32_t n_rows = race->n_streams;
        double took;

        for (uint32_t i = 0; i < race->n_streams; i++)
            tokens += advance(race, &runners[i], &n_rows, &random);
        took = race_time(race, n_rows);
        time += took;
        took *= longer * (1 + race->swing * (2 * race_coin(&random) - 1));
        rn_step_cost_record(race->cost, n_rows, (uint64_t)took);
        longer = 1;
    }
    race->cost = given;
    return tokens / time * race_time(race, race->n_streams) / race->n_streams;
}
