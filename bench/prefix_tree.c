/* What the prefix tree costs: a tree that is full (100,000 nodes) of prompts of 4,000 tokens, blocks of 16, 32 and 64.
 *
 *   known     match of a prompt that is there in full, one of all in turn at random: its nodes have left the caches
 *   again     match of the prompt that was matched just before
 *   unknown   match of a prompt of which nothing is there: ns per prompt
 *   evict     as many blocks as a prompt has
 *   enter     claims a new prompt's blocks
 *   publish   makes them ready, all in one call
 *   leave     leave and unref
 *   ceiling   rn_hit_ceiling_add of a prompt
 *
 * Nanoseconds per block: the median and the 99th percentile of all rounds.
 *
 *   bench_prefix_tree [--rounds N] [--nodes N] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/rng.h"
#include "cache/hit_ceiling.h"
#include "cache/prefix_tree.h"

#define PROMPT_TOKENS 4000u
#define ROUNDS_MOST 100000

enum phase { KNOWN, AGAIN, UNKNOWN, EVICT, ENTER, PUBLISH, LEAVE, CEILING, PHASES };
static const char *const phase_names[] = {"known", "again", "unknown", "evict", "enter", "publish", "leave", "ceiling"};

static struct rn_heap heap;
static struct rn_block_pool pool;
static struct rn_prefix_tree tree;
static struct rn_hit_ceiling ceiling;
static const struct rn_prefix_salt salt = {{1, 1}};
static double samples[PHASES][ROUNDS_MOST];
static uint64_t rng = 1;

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

/* Prompts are told from one another by their first token. */
static void make_prompt(int32_t *tokens, uint32_t which)
{
    uint64_t state = which;

    for (uint32_t i = 0; i < PROMPT_TOKENS; i++)
        tokens[i] = (int32_t)(rn_splitmix64(&state) % 150000);
    tokens[0] = (int32_t)which;
}

/* A prompt comes, is computed and leaves its blocks in the tree; round < 0: not measured. */
static void insert(const int32_t *tokens, uint32_t n_blocks, long round)
{
    static uint32_t blocks[PROMPT_TOKENS];
    struct rn_prefix_path path = {.owner = NULL};
    struct rn_prefix_woken woken = {NULL, NULL};
    struct rn_prefix_match found;
    double at[5];

    at[0] = now_ns();
    if (pool.n_free < n_blocks)
        rn_prefix_tree_evict(&tree, n_blocks - pool.n_free);
    at[1] = now_ns();
    RN_CHECK(rn_block_pool_take(&pool, n_blocks, blocks));
    rn_prefix_tree_match(&tree, salt, tokens, PROMPT_TOKENS, NULL, &found);
    at[2] = now_ns();
    rn_prefix_tree_enter(&tree, &path, salt, tokens, PROMPT_TOKENS, &found);
    at[3] = now_ns();
    RN_CHECK(path.n_claims == n_blocks);
    rn_prefix_tree_publish(&tree, &path, tokens, blocks, n_blocks, NULL, &woken);
    at[4] = now_ns();
    RN_CHECK(path.n_ready == n_blocks);
    rn_prefix_tree_leave(&tree, &path, &woken);
    rn_prefix_tree_unref(&tree, blocks, n_blocks);
    if (round < 0)
        return;
    samples[EVICT][round] = (at[1] - at[0]) / n_blocks;
    samples[UNKNOWN][round] = at[2] - at[1];
    samples[ENTER][round] = (at[3] - at[2]) / n_blocks;
    samples[PUBLISH][round] = (at[4] - at[3]) / n_blocks;
    samples[LEAVE][round] = (now_ns() - at[4]) / n_blocks;
}

static void look_up(const int32_t *tokens, uint32_t n_blocks, enum phase phase, long round)
{
    static uint32_t blocks[PROMPT_TOKENS];
    struct rn_prefix_match found;
    double start = now_ns();

    rn_prefix_tree_match(&tree, salt, tokens, PROMPT_TOKENS, blocks, &found);
    samples[phase][round] = (now_ns() - start) / n_blocks;
    RN_CHECK(found.n_ready == n_blocks);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure(uint32_t block_tokens, uint32_t n_nodes, long rounds)
{
    struct rn_prefix_options options = {.block_tokens = block_tokens, .max_nodes = n_nodes + 1, .seed = 1};
    uint32_t n_blocks = PROMPT_TOKENS / block_tokens, n_prompts = n_nodes / n_blocks, first = 0;
    int32_t *tokens = rn_alloc(&heap, PROMPT_TOKENS, sizeof *tokens);

    RN_CHECK(tokens != NULL && rn_block_pool_init(&pool, &heap, n_prompts * n_blocks) == RUNNEL_OK &&
             rn_prefix_tree_init(&tree, &heap, &pool, &options) == RUNNEL_OK);
    rn_hit_ceiling_init(&ceiling);
    for (uint32_t i = 0; i < n_prompts; i++) {
        make_prompt(tokens, i);
        insert(tokens, n_blocks, -1);
    }
    for (long round = 0; round < rounds; round++) { /* those that are there: [first, first + n_prompts) */
        make_prompt(tokens, first + (uint32_t)(rn_splitmix64(&rng) % n_prompts));
        look_up(tokens, n_blocks, KNOWN, round);
        look_up(tokens, n_blocks, AGAIN, round);
    }
    for (uint32_t i = 0; i < n_prompts; i++) { /* the order in which they will be evicted */
        make_prompt(tokens, first + i);
        look_up(tokens, n_blocks, AGAIN, rounds);
    }
    for (long round = 0; round < rounds; round++, first++) {
        double start;

        make_prompt(tokens, first + n_prompts);
        insert(tokens, n_blocks, round);
        start = now_ns();
        rn_hit_ceiling_add(&ceiling, salt, tokens, PROMPT_TOKENS, block_tokens);
        samples[CEILING][round] = (now_ns() - start) / n_blocks;
    }
    RN_CHECK(rn_prefix_tree_stats(&tree).ready == n_prompts * n_blocks);
    printf("blocks of %u tokens, %u nodes\n", block_tokens, n_prompts * n_blocks);
    for (int phase = 0; phase < PHASES; phase++) {
        qsort(samples[phase], (size_t)rounds, sizeof **samples, compare);
        printf("  %-8s %8.1f %8.1f%s\n", phase_names[phase], samples[phase][rounds / 2],
               samples[phase][rounds * 99 / 100], phase == UNKNOWN ? "  (a prompt)" : "");
    }
    rn_prefix_tree_fini(&tree);
    rn_block_pool_fini(&pool);
    rn_free(&heap, tokens);
}

int main(int argc, char **argv)
{
    long rounds = 2000, nodes = 100000;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--rounds") == 0)
            rounds = atol(argv[i + 1]);
        else if (strcmp(argv[i], "--nodes") == 0)
            nodes = atol(argv[i + 1]);
    }
    if (rounds < 1 || rounds >= ROUNDS_MOST || nodes < (long)PROMPT_TOKENS || nodes > 10000000) {
        fprintf(stderr, "usage: bench_prefix_tree [--rounds 1..%d] [--nodes %u..10000000]\n", ROUNDS_MOST - 1,
                PROMPT_TOKENS);
        return 2;
    }
    rn_heap_init(&heap, NULL);
    for (uint32_t block_tokens = 16; block_tokens <= 64; block_tokens *= 2)
        measure(block_tokens, (uint32_t)nodes, rounds);
    return 0;
}
