/* Where the time of a step goes: whole steps of the fast CPU backend on a model file, without actors,
 * tokenizers or sampling.
 *
 *     cpu_step MODEL.gguf [threads [level [file | tiles]]]
 *     cpu_step --chunks ...    a prompt of 512 positions in chunks of 8, 16, ... 256 rows
 *     cpu_step --rows ...      only steps of 1, 2, ... 17, 24, 32 rows: what a draft costs
 *
 * file, tiles: the order of the weights; else the one that turns out faster.
 *
 * The read line is the bandwidth of the fastest of several ways to read memory, on the same team: as `runnel bench` has
 * it (cpu/team_measure.c). The decode lines are steps of one row with so many positions behind it (the cache is filled
 * with small numbers); `of read` compares the bytes of weights and cache that such a step needs with the read line. The
 * tables give the share of each kind of phase in a step, seen from worker 0, and in brackets what of it a worker spends
 * at the barrier behind the phase, on average. */
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "cpu/fast.h"
#include "cpu/levels/peak.h"
#include "model/op_info.h"

enum { BLOCK = 32, CONTEXT = 8448, ROWS = 256, REPEATS = 7, MOST_OUTS = 32, KINDS = RN_OP_KINDS + 1 };

struct bench {
    struct rn_heap heap;
    struct rn_team *team;
    struct rn_fast *fast;
    const struct rn_plan *plan;
    uint32_t blocks[CONTEXT / BLOCK];
    struct rn_step_row rows[ROWS];
    struct rn_step_seq seq;
    struct rn_step step;
    sem_t done;
};

/* A job of this program on the team. */
struct task {
    struct rn_job job; /* first */
    struct bench *bench;
    uint64_t ns[KINDS];
    _Atomic uint64_t waited[KINDS]; /* at the barriers, all workers together */
};

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void on_job_done(struct rn_job *job)
{
    sem_post(&((struct task *)job)->bench->done);
}

static void on_step_done(struct rn_step *step)
{
    sem_post(&((struct bench *)step->user)->done);
}

static uint32_t kind_of(const struct rn_instruction *in)
{
    return in->op == NULL ? RN_OP_KINDS : (uint32_t)in->op->kind;
}

/* A step, phase by phase; worker 0 keeps the time. */
static void run_phases(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    struct task *t = (struct task *)job;
    struct rn_fast *fast = t->bench->fast;
    uint64_t begin = now_ns(), arrived, end;
    uint32_t phase, kind;

    rn_fast_begin(fast, worker, n_workers);
    for (phase = 0; phase < fast->program.n_phases; phase++) {
        rn_fast_phase(fast, worker, n_workers, phase);
        arrived = now_ns();
        rn_team_barrier(fast->team, worker);
        end = now_ns();
        kind = kind_of(&fast->program.list[fast->program.starts[phase + 1] - 1]);
        atomic_fetch_add_explicit(&t->waited[kind], end - arrived, memory_order_relaxed);
        if (worker == 0)
            t->ns[kind] += end - begin;
        begin = end;
    }
}

static uint64_t run_task(struct bench *b, struct task *t, void (*run)(struct rn_job *, uint32_t, uint32_t))
{
    uint64_t begin = now_ns();

    t->bench = b;
    t->job.run = run;
    t->job.done = on_job_done;
    rn_team_submit(b->team, &t->job);
    sem_wait(&b->done);
    return now_ns() - begin;
}

/* The step of `n` rows behind `context` positions, logits of the last wanted. */
static void make_step(struct bench *b, uint32_t context, uint32_t n)
{
    uint32_t i;

    for (i = 0; i < n; i++)
        b->rows[i] =
            (struct rn_step_row){(int32_t)((context + i) * 7 % b->plan->n_vocab), context + i, 0, i + 1 == n ? 0 : -1};
    b->step.n_rows = n;
    b->step.n_seqs = b->step.n_outs = 1;
}

static uint64_t run_step(struct bench *b)
{
    uint64_t begin = now_ns();

    b->fast->base.ops->submit_async(&b->fast->base, &b->step);
    sem_wait(&b->done);
    return now_ns() - begin;
}

/* The median of REPEATS steps. */
static double median_step(struct bench *b, uint32_t context, uint32_t n)
{
    uint64_t took[REPEATS], t;
    int i, j;

    make_step(b, context, n);
    for (i = 0; i < REPEATS; i++) {
        t = run_step(b);
        for (j = i; j > 0 && took[j - 1] > t; j--)
            took[j] = took[j - 1];
        took[j] = t;
    }
    return (double)took[REPEATS / 2] * 1e-9;
}

/* Bytes that a step of one row must read: every matrix but the table of embeddings (unless it is the
 * output's too), and the cache. */
static double bytes_of_step(const struct bench *b, uint32_t context)
{
    double bytes = (double)context * (double)rn_plan_kv_bytes(b->plan, b->fast->limits.kv_type);
    uint32_t i;

    for (i = 0; i < b->plan->n_ops; i++)
        if (b->plan->ops[i].kind == RN_OP_MATMUL)
            bytes += (double)b->plan->weights[b->plan->ops[i].weight].tensor->bytes;
        else if (b->plan->ops[i].kind == RN_OP_EXPERT_MATMUL)
            bytes += (double)b->plan->weights[b->plan->ops[i].weight].tensor->bytes /
                     b->plan->weights[b->plan->ops[i].weight].experts * b->plan->ops[i].used;
    return bytes;
}

static void phases(struct bench *b, uint32_t context, uint32_t n)
{
    struct task t = {.bench = b};
    uint64_t sum = 0;
    uint32_t i;

    make_step(b, context, n);
    rn_fast_ready(b->fast, &b->step);
    run_task(b, &t, run_phases);
    for (i = 0; i < KINDS; i++)
        sum += t.ns[i];
    printf("  phases that end in, of %.2f ms:", (double)sum * 1e-6);
    for (i = 0; i < KINDS; i++)
        if (t.ns[i] > 0)
            printf("  %s %.2f%% (waiting %.2f%%)", i < RN_OP_KINDS ? rn_op_name((enum rn_op_kind)i) : "QUANTISE",
                   100.0 * (double)t.ns[i] / (double)sum,
                   100.0 * (double)atomic_load(&t.waited[i]) / rn_team_threads(b->team) / (double)sum);
    printf("\n");
}

/* Halves below 2^-7 in size: finite, and no two positions alike. */
static void fill_cache(struct bench *b)
{
    uint64_t seed = 1, i, n;
    uint32_t l;

    for (l = 0; l < b->plan->n_kv_layers; l++) {
        const struct rn_fast_layer *layer = &b->fast->layers[l];

        n = b->fast->limits.n_blocks;
        for (i = 0; i < n * layer->key_block / 8; i++)
            ((uint64_t *)layer->keys)[i] = rn_splitmix64(&seed) & 0x9fff9fff9fff9fffu;
        for (i = 0; i < n * layer->value_block / 8; i++)
            ((uint64_t *)layer->values)[i] = rn_splitmix64(&seed) & 0x9fff9fff9fff9fffu;
    }
}

static void measure(struct bench *b)
{
    static const uint32_t contexts[] = {16, 128, 1024, 4096, 8192};
    runnel_machine machine = {.struct_size = sizeof machine};
    runnel_error error = {0};
    double read, seconds;
    uint32_t i;

    if (rn_cpu_measure(rn_peak(b->fast->level->name), &b->heap, b->team, NULL, NULL, &machine, &error) != RUNNEL_OK) {
        fprintf(stderr, "%s\n", error.message);
        return;
    }
    read = machine.read_bytes_per_s * 1e-9;
    printf("read %.1f GB/s\n", read);
    for (i = 0; i < sizeof contexts / sizeof *contexts; i++) {
        seconds = median_step(b, contexts[i], 1);
        printf("decode at %5u: %7.2f ms  %6.1f tokens/s  %5.1f GB/s  %5.1f%% of read\n", contexts[i], seconds * 1e3,
               1 / seconds, bytes_of_step(b, contexts[i]) / seconds * 1e-9,
               100 * bytes_of_step(b, contexts[i]) / seconds * 1e-9 / read);
        phases(b, contexts[i], 1);
    }
    for (i = 0; i < sizeof contexts / sizeof *contexts; i += 2) {
        seconds = median_step(b, contexts[i] - 16, ROWS);
        printf("prefill of %d at %5u: %8.2f ms  %6.1f tokens/s\n", ROWS, contexts[i] - 16, seconds * 1e3,
               ROWS / seconds);
        phases(b, contexts[i] - 16, ROWS);
    }
}

/* What rows of one sequence cost besides the first: the room in which speculation plays. All rows want logits. Rounds
 * go over all sizes, so that another program's load meets them alike; the median of the rounds is shown. */
static void measure_rows(struct bench *b)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 24, 32};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    uint64_t took[SIZES][REPEATS], t;
    uint32_t i, k;
    int r, j;

    for (r = 0; r < REPEATS; r++)
        for (i = 0; i < SIZES; i++) {
            make_step(b, 256, sizes[i]);
            for (k = 0; k < sizes[i]; k++)
                b->rows[k].out = (int32_t)k;
            b->step.n_outs = sizes[i];
            t = run_step(b);
            for (j = r; j > 0 && took[i][j - 1] > t; j--)
                took[i][j] = took[i][j - 1];
            took[i][j] = t;
        }
    for (i = 0; i < SIZES; i++)
        printf("%2u rows: %7.2f ms  %5.2f times one  %5.2f of one for each\n", sizes[i],
               (double)took[i][REPEATS / 2] * 1e-6, (double)took[i][REPEATS / 2] / (double)took[0][REPEATS / 2],
               (double)took[i][REPEATS / 2] / (double)took[0][REPEATS / 2] / sizes[i]);
    for (i = 0; i < SIZES; i = 2 * i + 1) /* of 1, 2, 4, 8, 16 rows */
        phases(b, 256, sizes[i]);
}

/* What is left of a prompt behind a prefix that is there already, and a step of decode in the same place. */
static void measure_rest(struct bench *b)
{
    static const uint32_t contexts[] = {0, 1024, 4000, 8000}, sizes[] = {1, 8, 32, 128};
    double seconds, alone[sizeof sizes / sizeof *sizes];
    size_t i, k;

    for (k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (i = 0; i < sizeof contexts / sizeof *contexts; i++) {
            seconds = median_step(b, contexts[i], sizes[k]);
            if (i == 0)
                alone[k] = seconds;
            printf("%3u rows behind %5u: %8.2f ms  %5.2f times alone\n", sizes[k], contexts[i], seconds * 1e3,
                   seconds / alone[k]);
        }
}

/* A prompt's positions per second by the rows of its steps. Rounds go over all sizes, as above. */
static void measure_chunks(struct bench *b)
{
    static const uint32_t sizes[] = {8, 16, 24, 32, 48, 64, 96, 128, 192, 256};
    enum { SIZES = sizeof sizes / sizeof *sizes, PROMPT = 512, ROUNDS = 5 };
    uint64_t took[SIZES][ROUNDS], t;
    uint32_t i, at, n;
    int r, j;

    for (r = 0; r < ROUNDS; r++)
        for (i = 0; i < SIZES; i++) {
            for (t = at = 0; at < PROMPT; at += n) {
                n = PROMPT - at < sizes[i] ? PROMPT - at : sizes[i];
                make_step(b, at, n);
                t += run_step(b);
            }
            for (j = r; j > 0 && took[i][j - 1] > t; j--)
                took[i][j] = took[i][j - 1];
            took[i][j] = t;
        }
    for (i = 0; i < SIZES; i++)
        printf("chunks of %3u: %6.1f tokens/s (%.1f to %.1f), a step %7.1f ms, %5.3f of the largest\n", sizes[i],
               PROMPT * 1e9 / (double)took[i][ROUNDS / 2], PROMPT * 1e9 / (double)took[i][ROUNDS - 1],
               PROMPT * 1e9 / (double)took[i][0], (double)took[i][ROUNDS / 2] * 1e-6 * sizes[i] / PROMPT,
               (double)took[SIZES - 1][ROUNDS / 2] / (double)took[i][ROUNDS / 2]);
}

static bool open_bench(struct bench *b, const char *path, uint32_t threads, const struct rn_level *level,
                       runnel_weight_order order)
{
    struct rn_backend_limits limits = {.max_rows = ROWS,
                                       .max_seqs = 1,
                                       .max_outs = MOST_OUTS,
                                       .n_blocks = CONTEXT / BLOCK,
                                       .block_tokens = BLOCK,
                                       .context_tokens = CONTEXT,
                                       .kv_type = RUNNEL_KV_F16,
                                       .weight_order = order};
    runnel_error error = {0};
    struct rn_gguf *gguf;
    struct rn_plan *plan;
    uint64_t begin = now_ns();
    uint32_t i;

    if (rn_gguf_open(&b->heap, path, &gguf, &error) != RUNNEL_OK ||
        rn_plan_new(&b->heap, gguf, CONTEXT, &plan, &error) != RUNNEL_OK)
        goto fail;
    b->plan = plan;
    b->team = rn_team_new(&b->heap, threads);
    b->fast = b->team == NULL ? NULL : (struct rn_fast *)rn_cpu_backend_new_level(&b->heap, b->team, level);
    if (b->fast == NULL)
        goto fail;
    if (b->fast->base.ops->prepare(&b->fast->base, plan, &limits, NULL, NULL, &error) != RUNNEL_OK)
        goto fail;
    printf("%s: %s, %u threads, %.0f MB of weights, %.0f of them in tiles, ready in %.2f s\n", path, level->name,
           rn_team_threads(b->team), (double)plan->weight_bytes * 1e-6,
           (double)b->fast->base.ops->tiled_bytes(&b->fast->base) * 1e-6, (double)(now_ns() - begin) * 1e-9);
    for (i = 0; i < CONTEXT / BLOCK; i++)
        b->blocks[i] = i * 5 % (CONTEXT / BLOCK);
    b->seq = (struct rn_step_seq){.blocks = b->blocks, .n_blocks = CONTEXT / BLOCK};
    b->step = (struct rn_step){.rows = b->rows, .seqs = &b->seq, .on_done = on_step_done, .user = b};
    b->step.logits = rn_alloc(&b->heap, (size_t)plan->n_vocab * MOST_OUTS, sizeof(float));
    sem_init(&b->done, 0, 0);
    return b->step.logits != NULL;
fail:
    fprintf(stderr, "cpu_step: %s\n", error.message);
    return false;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    bool rows = argc > 1 && strcmp(argv[1], "--rows") == 0, rest = argc > 1 && strcmp(argv[1], "--rest") == 0;
    bool chunks = argc > 1 && strcmp(argv[1], "--chunks") == 0;
    const struct rn_level *level;
    runnel_weight_order order;

    argc -= rows || rest || chunks;
    argv += rows || rest || chunks;
    level = argc > 3 ? rn_level_named(argv[3]) : rn_level_best();
    order = argc <= 4                       ? RUNNEL_WEIGHTS_MEASURED
            : strcmp(argv[4], "tiles") == 0 ? RUNNEL_WEIGHTS_TILES
                                            : RUNNEL_WEIGHTS_FILE;
    if (argc < 2 || level == NULL) {
        fprintf(stderr, "cpu_step [--rows | --rest | --chunks] MODEL.gguf [threads [level [file | tiles]]]\n");
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    rn_heap_init(&bench.heap, NULL);
    if (!open_bench(&bench, argv[1], argc > 2 ? (uint32_t)atoi(argv[2]) : 0, level, order))
        return 1;
    fill_cache(&bench);
    if (chunks)
        measure_chunks(&bench);
    else if (rows)
        measure_rows(&bench);
    else if (rest)
        measure_rest(&bench);
    else
        measure(&bench);
    return 0;
}
