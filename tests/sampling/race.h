/* The policy of drafts (sampling/speculate.h) at work without a model: a step takes a time that is known, a draft is
 * right with a known chance, and tokens per time are compared with those of plain decoding. The verdict counts what
 * steps take on average; the policy sees each of them with an error. */
#ifndef RN_TESTS_SAMPLING_RACE_H
#define RN_TESTS_SAMPLING_RACE_H

#include <stdint.h>

#include "base/rng.h"
#include "sampling/speculate.h"

struct race {
    double base, slope; /* time of a step: base + slope * rows ... */
    double swing;       /* ... measured with an error of up to so much of it, to either side */
    double acceptance;
    uint32_t n_streams;        /* up to 64, all at once */
    uint32_t n_tokens;         /* for each of them, on average */
    double first;              /* not 0: the first step of all is measured so many times longer */
    uint32_t wrong;            /* of each stream the drafts of the first so many steps with some */
    float told;                /* 0: no runners-up; else what the proposer tells of each ... */
    double second;             /* ... and how often it is right where the draft is wrong */
    struct rn_step_cost *cost; /* NULL: one that begins empty, which is the worst that can be: an engine's is filled by
                                  all of its requests */
    float *reserve;            /* of rn_speculation_use_reserve; NULL: nobody shares */
    double branched;           /* out: runners-up, added up */
};

/* Uniform in [0, 1). */
double race_coin(uint64_t *random);

/* What a step of that many rows takes. */
double race_time(const struct race *race, uint32_t n_rows);

/* Tokens per time over those without drafts. */
double race_run(struct race *race, uint64_t seed);

#endif
