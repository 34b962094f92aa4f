/* What one draw costs, by the size of the vocabulary, the shape of its logits and the parameters; one thread.
 *
 *   peaked   a model's: most logits near 0 (normal, deviation 2.5), some tens far above
 *   normal   deviation 3, as a model has that is not sure
 *   flat     deviation 0.001: every token counts
 *
 * Microseconds a draw: the median of the rounds, each at another position.
 *
 *   bench_sampling [--rounds N] [--level c|avx2|avx512] [--only CASE] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/rng.h"
#include "sampling/levels/loops.h"
#include "sampling/sampler.h"

#define ROUNDS_MOST 10000u

enum shape { PEAKED, NORMAL, FLAT, SHAPES };
static const char *const shape_names[] = {"peaked", "normal", "flat"};

static const struct {
    const char *name;
    float temperature, top_p, min_p;
    uint32_t top_k;
    bool logprobs;
} cases[] = {
    {"greedy", 0, 1, 0, 0, false},
    {"greedy, logprobs", 0, 1, 0, 0, true},
    {"temperature", 0.8f, 1, 0, 0, false},
    {"top-k 40", 0.8f, 1, 0, 40, false},
    {"min-p 0.05", 0.8f, 1, 0.05f, 0, false},
    {"top-p 0.95", 0.8f, 0.95f, 0, 0, false},
};

static double uniform(uint64_t *rng)
{
    return (double)(rn_splitmix64(rng) >> 11) * 0x1p-53;
}

static void fill(float *logits, uint32_t n, enum shape shape)
{
    uint64_t rng = 1;

    for (uint32_t i = 0; i < n; i++) {
        double normal = sqrt(-2 * log(1 - uniform(&rng))) * cos(6.283185307179586 * uniform(&rng));

        logits[i] = (float)(shape == FLAT ? normal * 1e-3 : shape == NORMAL ? 3 * normal : 2.5 * normal);
    }
    for (uint32_t i = 0; shape == PEAKED && i < 40; i++)
        logits[rn_splitmix64(&rng) % n] = (float)(18 + 8 * uniform(&rng));
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static const struct rn_loops *loops;

static double draw(const runnel_sampling *params, bool logprobs, const float *logits, uint32_t n, uint32_t rounds)
{
    static double us[ROUNDS_MOST];
    struct rn_heap heap;
    struct rn_sampler *sampler;
    struct rn_sampler_scratch *scratch;

    rn_heap_init(&heap, NULL);
    sampler = rn_sampler_new(&heap, params, n, 16);
    scratch = rn_sampler_scratch_new(&heap, n);
    RN_CHECK(sampler != NULL && scratch != NULL);
    rn_sampler_scratch_use(scratch, loops);
    for (uint32_t i = 0; i < rounds; i++) {
        struct timespec begin, end;
        struct rn_pick pick;

        clock_gettime(CLOCK_MONOTONIC, &begin);
        RN_CHECK(rn_sampler_pick(sampler, scratch, logits, i, logprobs, logprobs ? 5 : 0, &pick) == RUNNEL_OK);
        clock_gettime(CLOCK_MONOTONIC, &end);
        us[i] = (double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) * 1e-3;
    }
    rn_sampler_scratch_free(scratch);
    rn_sampler_free(sampler);
    qsort(us, rounds, sizeof us[0], ascending);
    return us[rounds / 2];
}

int main(int argc, char **argv)
{
    static const uint32_t sizes[] = {32000, 128000, 262144};
    const char *only = "";
    uint32_t rounds = 201;
    float *logits = malloc(262144 * sizeof *logits);

    loops = rn_loops_named(NULL);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--rounds") == 0)
            rounds = (uint32_t)atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--only") == 0)
            only = argv[i + 1];
        else
            loops = strcmp(argv[i], "--level") == 0 ? rn_loops_named(argv[i + 1]) : NULL;
    }
    if (logits == NULL || loops == NULL || rounds == 0 || rounds > ROUNDS_MOST || argc % 2 == 0) {
        fprintf(stderr, "usage: bench_sampling [--rounds 1..%u] [--level c|avx2|avx512] [--only CASE]\n", ROUNDS_MOST);
        return 2;
    }
    printf("%-18s", "us a draw");
    for (uint32_t v = 0; v < 3; v++)
        for (uint32_t shape = 0; shape < SHAPES; shape++)
            printf(" %6u %-6s", sizes[v], shape_names[shape]);
    printf("\n");
    for (uint32_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        runnel_sampling params = {.temperature = cases[c].temperature,
                                  .top_p = cases[c].top_p,
                                  .min_p = cases[c].min_p,
                                  .top_k = cases[c].top_k,
                                  .repetition_penalty = 1};

        if (strncmp(cases[c].name, only, strlen(only)) != 0)
            continue;
        printf("%-18s", cases[c].name);
        for (uint32_t v = 0; v < 3; v++)
            for (uint32_t shape = 0; shape < SHAPES; shape++) {
                fill(logits, sizes[v], shape);
                printf(" %13.1f", draw(&params, cases[c].logprobs, logits, sizes[v], rounds));
                fflush(stdout);
            }
        printf("\n");
    }
    free(logits);
    return 0;
}
