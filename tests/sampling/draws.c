/* See draws.h. */
#include "draws.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "chain_reference.h"
#include "sampling/sampler.h"

const struct draws_chain draws_chains[] = {
    {"temperature", {.temperature = 1}, {.mirostat = 0}},
    {"temperature", {.temperature = 0.6f}, {.mirostat = 0}},
    {"temperature", {.temperature = 2.5f}, {.mirostat = 0}},
    {"top_k", {.top_k = 3}, {.mirostat = 0}},
    {"top_p", {.top_p = 0.8f}, {.mirostat = 0}},
    {"min_p", {.min_p = 0.15f}, {.mirostat = 0}},
    {"penalties", {.frequency_penalty = 0.4f, .presence_penalty = 0.3f}, {.mirostat = 0}},
    {"penalties", {.repetition_penalty = 1.3f}, {.mirostat = 0}},
    {"dry", {.top_k = 0}, {.dry_multiplier = 0.4f, .dry_base = 1.5f, .dry_allowed_length = 1}},
    {"top_n_sigma", {.top_k = 0}, {.top_n_sigma = 1.5f}},
    {"typical_p", {.top_k = 0}, {.typical_p = 0.7f}},
    {"xtc", {.top_k = 0}, {.xtc_probability = 0.5f, .xtc_threshold = 0.08f}},
    {"temperature", {.temperature = 0.8f}, {.temperature_range = 0.5f, .temperature_exponent = 1.5f}},
    {"mirostat", {.top_k = 0}, {.mirostat = 1, .mirostat_tau = 2, .mirostat_eta = 0.1f}},
    {"mirostat", {.top_k = 0}, {.mirostat = 2, .mirostat_tau = 2.2f, .mirostat_eta = 0.1f}},
    {"adaptive_p", {.top_k = 0}, {.adaptive_target = 0.1f, .adaptive_decay = 0.9f}},
    {"temperature,top_k,top_p,min_p",
     {.top_k = 20, .top_p = 0.95f, .min_p = 0.05f, .temperature = 0.8f},
     {.mirostat = 0}},
    {"top_k,top_p,min_p,temperature",
     {.top_k = 20, .top_p = 0.95f, .min_p = 0.05f, .temperature = 0.8f},
     {.mirostat = 0}},
    {"penalties,dry,top_n_sigma,top_k,typical_p,top_p,min_p,xtc,temperature",
     {.top_k = 30, .top_p = 0.97f, .min_p = 0.02f, .temperature = 1.2f, .repetition_penalty = 1.1f},
     {.dry_multiplier = 0.3f, .top_n_sigma = 3, .typical_p = 0.95f, .xtc_probability = 0.3f, .xtc_threshold = 0.1f}},
    {"penalties,temperature,top_p",
     {.top_p = 0.9f, .temperature = 0.7f, .repetition_penalty = 1.1f, .frequency_penalty = 0.2f},
     {.mirostat = 0}},
    {"min_p,adaptive_p", {.min_p = 0.05f}, {.adaptive_target = 0.2f, .adaptive_decay = 0.5f}},
    {"temperature,mirostat", {.temperature = 1.3f}, {.mirostat = 2, .mirostat_tau = 3}},
};
const uint32_t draws_n_chains = sizeof draws_chains / sizeof draws_chains[0];

uint64_t draws_seeds(int argc, char **argv)
{
    return argc > 1 ? strtoull(argv[1], NULL, 10) : 250;
}

void draws_take_chain(uint32_t i, runnel_sampling *p, runnel_samplers *s)
{
    runnel_samplers plain;

    runnel_samplers_default(&plain);
    *s = draws_chains[i].s;
    s->struct_size = sizeof *s;
    s->order = draws_chains[i].order;
    s->dry_base = s->dry_base > 0 ? s->dry_base : plain.dry_base;
    s->dry_allowed_length = s->dry_allowed_length > 0 ? s->dry_allowed_length : plain.dry_allowed_length;
    s->dry_tokens = 3;
    s->typical_p = s->typical_p > 0 ? s->typical_p : 1;
    s->adaptive_target = s->adaptive_target > 0 ? s->adaptive_target : -1;
    *p = draws_chains[i].p;
    p->temperature = p->temperature > 0 ? p->temperature : 1;
    p->top_p = p->top_p > 0 ? p->top_p : 1;
    p->repetition_penalty = p->repetition_penalty > 0 ? p->repetition_penalty : 1;
    p->penalty_tokens = 3;
    p->samplers = s;
    assert_int_equal(rn_sampling_check(p, DRAWS_VOCAB, NULL), RUNNEL_OK);
}

double draws_normal(uint64_t *rng)
{
    double u = (double)(rn_splitmix64(rng) >> 11) * 0x1p-53, v = (double)(rn_splitmix64(rng) >> 11) * 0x1p-53;

    return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
}

void draws_expect(const char *order, const runnel_sampling *p, const float *logits, uint32_t n, const int32_t *past,
                  long double *expected)
{
    static struct chain_reference judge;
    runnel_samplers s = *p->samplers;
    runnel_sampling with = *p;

    with.samplers = &s;
    memset(expected, 0, n * sizeof *expected);
    for (int on = 0; on < 2; on++) {
        long double q = (long double)p->samplers->xtc_probability;

        s.xtc_probability = (float)on;
        judge.begun = 0;
        chain_reference_run(&judge, order, &with, logits, n, past, 3, 0);
        for (uint32_t i = 0; i < judge.n; i++)
            expected[judge.token[i]] += judge.p[i] * (on ? q : 1 - q);
    }
}

double draws_distance(const uint32_t *seen, const long double *p, uint32_t n, double *freedom)
{
    double sum = 0, rest = 0, rest_seen = 0, draws = 0, cells = 0;

    for (uint32_t i = 0; i < n; i++)
        draws += seen[i];
    for (uint32_t i = 0; i < n; i++) {
        double expected = (double)p[i] * draws;

        if (expected < 5) {
            rest += expected;
            rest_seen += seen[i];
            sum += expected == 0 && seen[i] > 0 ? INFINITY : 0;
            continue;
        }
        sum += (seen[i] - expected) * (seen[i] - expected) / expected;
        cells++;
    }
    if (rest >= 5) {
        sum += (rest_seen - rest) * (rest_seen - rest) / rest;
        cells++;
    }
    *freedom += cells > 1 ? cells - 1 : 0;
    return sum;
}

double draws_over_threshold(double sum, double k)
{
    return k == 0 ? 0 : sum / (k * pow(1 - 2 / (9 * k) + 4.753 * sqrt(2 / (9 * k)), 3));
}

void draws_check(const char *order, double right, double wrong)
{
    if (right >= 1)
        fail_msg("%s: %g times the threshold", order, right);
    if (wrong < 1)
        fail_msg("%s: other logits are not seen, %g", order, wrong);
}
