/* Whole steps of a model: see main.c. */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/bench.h"
#include "model/op_info.h"

enum { BLOCK = 32, CONTEXT = 4096, ROWS = 512, SEQS = 64, N_BLOCKS = 4096, REPEATS = 9, AGAIN = 20 };

struct steps {
    struct gpu_bench *b;
    struct rn_gpu_backend *backend;
    const struct rn_plan *plan;
    uint32_t blocks[SEQS][CONTEXT / BLOCK];
    struct rn_step_seq seqs[SEQS];
    struct rn_step_row rows[ROWS];
    float *logits;
    struct rn_step step;
    sem_t done;
    struct rn_gpu_shape shape; /* of the step */
    uint32_t item;             /* that is timed */
};

static void fail(const runnel_error *error)
{
    fprintf(stderr, "bench_gpu: %s\n", error->message);
    exit(1);
}

static void on_step_done(struct rn_step *step)
{
    sem_post(&((struct steps *)step->user)->done);
}

/* A step of n sequences of one row each, or of one with n rows, behind so many positions. */
static void make_step(struct steps *s, uint32_t n_seqs, uint32_t n_rows, uint32_t depth)
{
    uint32_t per = (depth + n_rows + BLOCK - 1) / BLOCK;

    s->step = (struct rn_step){
        .rows = s->rows, .seqs = s->seqs, .n_seqs = n_seqs, .logits = s->logits, .on_done = on_step_done, .user = s};
    for (uint32_t q = 0; q < n_seqs; q++) {
        for (uint32_t i = 0; i < per; i++)
            s->blocks[q][i] = (q * per + i) * 2477 % N_BLOCKS;
        s->seqs[q] = (struct rn_step_seq){.blocks = s->blocks[q], .n_blocks = per};
        for (uint32_t i = 0; i < n_rows; i++)
            s->rows[s->step.n_rows++] = (struct rn_step_row){(int32_t)(gpu_random(s->b) % s->plan->n_vocab), depth + i,
                                                             q, i + 1 == n_rows ? (int32_t)s->step.n_outs++ : -1};
    }
    s->shape = (struct rn_gpu_shape){.n_rows = s->step.n_rows,
                                     .n_outs = s->step.n_outs,
                                     .n_seqs = n_seqs,
                                     .longest = rn_gpu_longest(s->backend, depth + n_rows),
                                     .n_selected = s->step.n_outs};
}

/* The median of steps, from submit to on_done. */
static double time_step(struct steps *s)
{
    double took[REPEATS], t;
    int i, j;

    for (i = -3; i < REPEATS; i++) {
        double begin = gpu_seconds();

        s->backend->base.ops->submit_async(&s->backend->base, &s->step);
        sem_wait(&s->done);
        t = gpu_seconds() - begin;
        if (s->step.status != RUNNEL_OK) {
            fprintf(stderr, "bench_gpu: a step failed\n");
            exit(1);
        }
        for (j = i; j > 0 && took[j - 1] > t; j--)
            took[j] = took[j - 1];
        if (i >= 0)
            took[j] = t;
    }
    return took[REPEATS / 2];
}

static void launch_all(void *user, uint32_t i)
{
    struct steps *s = user;

    (void)i;
    gpu_good(s->b, "step", rn_gpu_program_run(s->backend, &s->shape));
}

static void launch_op(void *user, uint32_t i)
{
    struct steps *s = user;

    (void)i;
    gpu_good(s->b, "op", rn_gpu_program_item(s->backend, s->item, &s->shape));
}

/* The launches before the second layer's attention and behind the last one's, each again and again: its weights come
 * from the cache, where they fit. */
static void show_ops(struct steps *s)
{
    uint32_t n = s->backend->n_items, second = 0, last = 0;
    const struct rn_op *op;

    for (uint32_t i = 0; i < n; i++) {
        op = &s->plan->ops[s->backend->items[i].first];
        if (op->kind != RN_OP_ATTENTION)
            continue;
        second = op->layer == 1 ? i : second;
        last = i;
    }
    for (s->item = 0; s->item < n; s->item++) {
        const struct rn_gpu_item *item = &s->backend->items[s->item];

        if (s->item >= second && s->item < last)
            continue;
        op = &s->plan->ops[item->first];
        printf("  ");
        for (uint32_t i = 0; i < item->n; i++)
            printf("%s%s", i == 0 ? "" : "+", rn_op_name(op[i].kind));
        printf(" %.1f", gpu_time(s->b, s->backend->stream, launch_op, s, AGAIN) * 1e6);
    }
    printf(" us\n");
}

static void show_step(struct steps *s, uint32_t n_seqs, uint32_t n_rows, uint32_t depth, uint64_t weight_bytes)
{
    double whole, ops;
    uint64_t kv = rn_plan_kv_bytes(s->plan, s->backend->limits.kv_type) * n_seqs * (depth + n_rows);

    make_step(s, n_seqs, n_rows, depth);
    whole = time_step(s);
    ops = gpu_time(s->b, s->backend->stream, launch_all, s, 4);
    printf(
        "%u x %u rows behind %u: a step %.0f us, its ops %.0f us; %.0f GB/s, %.0f %% of the copy line; %.0f rows/s\n",
        n_seqs, n_rows, depth, whole * 1e6, ops * 1e6, (double)(weight_bytes + kv) / ops * 1e-9,
        100 * (double)(weight_bytes + kv) / ops / s->b->copy_bytes_per_s, s->step.n_rows / whole);
    if (depth <= 1000 && (s->step.n_rows == 1 || s->step.n_rows == SEQS || n_rows == ROWS))
        show_ops(s);
    fflush(stdout);
}

/* Bytes of the weights that a step reads whole: all but the table of embeddings. */
static uint64_t read_bytes(const struct rn_plan *plan)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind == RN_OP_MATMUL)
            bytes += plan->weights[plan->ops[i].weight].row_bytes * plan->weights[plan->ops[i].weight].rows;
    return bytes;
}

void bench_model(struct gpu_bench *b, const char *path)
{
    static struct steps s;
    const struct rn_backend_limits limits = {.max_rows = ROWS,
                                             .max_seqs = SEQS,
                                             .max_outs = SEQS,
                                             .n_blocks = N_BLOCKS,
                                             .block_tokens = BLOCK,
                                             .context_tokens = CONTEXT,
                                             .kv_type = RUNNEL_KV_F16};
    struct rn_gguf *gguf = NULL;
    struct rn_plan *plan = NULL;
    runnel_error error = {0};
    double begin = gpu_seconds();

    memset(&s, 0, sizeof s);
    s.b = b;
    sem_init(&s.done, 0, 0);
    if (rn_gguf_open(&b->heap, path, &gguf, &error) != RUNNEL_OK ||
        rn_plan_new(&b->heap, gguf, CONTEXT, &plan, &error) != RUNNEL_OK)
        fail(&error);
    s.plan = plan;
    s.backend = (struct rn_gpu_backend *)b->device->base.kind->new_backend(&b->device->base, &b->heap);
    s.logits = malloc((size_t)SEQS * plan->n_vocab * sizeof(float));
    if (s.backend == NULL || s.logits == NULL ||
        s.backend->base.ops->prepare(&s.backend->base, plan, &limits, NULL, NULL, &error) != RUNNEL_OK)
        fail(&error);
    printf("%s: loaded in %.1f s, %.2f GB of weights a step\n", path, gpu_seconds() - begin,
           (double)read_bytes(plan) * 1e-9);
    show_step(&s, 1, 1, 100, read_bytes(plan));
    show_step(&s, 1, 1, 1000, read_bytes(plan));
    show_step(&s, 1, 1, 4000, read_bytes(plan));
    for (uint32_t n = 2; n <= SEQS; n *= 2)
        show_step(&s, n, 1, 1000, read_bytes(plan));
    show_step(&s, 1, 128, 0, read_bytes(plan));
    show_step(&s, 1, ROWS, 0, read_bytes(plan));
    show_step(&s, 1, ROWS, 3500, read_bytes(plan));
    s.backend->base.ops->free(&s.backend->base);
    rn_plan_free(plan);
    rn_gguf_free(gguf);
    free(s.logits);
    sem_destroy(&s.done);
}
