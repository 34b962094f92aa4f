/* How often a head's drafts are right, by how many it has drafted in a row: over a text, in windows of 128 tokens, each
 * draft behind the text's own tokens. Right: the model's likeliest token there. And of those that are wrong, how often
 * the head's second choice is right.
 *
 *     bench_heads MODEL HEAD TEXT
 *     bench_heads --print MODEL     the fingerprint that a head for this file carries
 *
 * Model and head in single precision on the CPU; the head by the trainer's own pass (train/eagle.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/store/fingerprint.h"
#include "cpu/team.h"
#include "model/backend.h"
#include "text/vocab.h"
#include "train/head_file.h"

enum { WINDOW = 128, DEPTHS = 4, BLOCK = 32 };

static struct rn_heap heap;

static void ok(runnel_status status, const runnel_error *error)
{
    if (status == RUNNEL_OK)
        return;
    fprintf(stderr, "bench_heads: %s\n", error->message);
    exit(1);
}

static void *take(size_t n, size_t size)
{
    void *memory = rn_calloc(&heap, n, size);

    if (memory == NULL) {
        fprintf(stderr, "bench_heads: no memory\n");
        exit(1);
    }
    return memory;
}

static char *read_text(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    char *text = take(1 << 22, 1);

    if (file == NULL) {
        fprintf(stderr, "bench_heads: %s cannot be opened\n", path);
        exit(1);
    }
    *n = fread(text, 1, 1 << 22, file);
    fclose(file);
    return text;
}

static void on_done(struct rn_step *step)
{
    __atomic_store_n((bool *)step->user, true, __ATOMIC_RELEASE);
}

/* Features and logits of a window. */
static void run_window(struct rn_backend *backend, const int32_t *tokens, float *logits, float *features)
{
    static const uint32_t blocks[WINDOW / BLOCK] = {0, 1, 2, 3};
    struct rn_step_seq seq = {.blocks = blocks, .n_blocks = WINDOW / BLOCK};
    struct rn_step_row rows[WINDOW];
    bool done = false;
    struct rn_step step = {.n_rows = WINDOW,
                           .n_seqs = 1,
                           .n_outs = WINDOW,
                           .rows = rows,
                           .seqs = &seq,
                           .logits = logits,
                           .features = features,
                           .on_done = on_done,
                           .user = &done};

    for (uint32_t i = 0; i < WINDOW; i++)
        rows[i] = (struct rn_step_row){.token = tokens[i], .position = i, .out = (int32_t)i};
    backend->ops->submit_async(backend, &step);
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE))
        usleep(50);
}

static float *matrix(const struct rn_gguf *gguf, const char *name, const char *instead)
{
    const struct rn_tensor *tensor = rn_gguf_find_tensor(gguf, name);
    float *values;

    tensor = tensor != NULL ? tensor : rn_gguf_find_tensor(gguf, instead);
    values = take(tensor->elements, sizeof *values);
    rn_type(tensor->type)->decode(tensor->data, values, tensor->elements);
    return values;
}

static int tell_print(const char *path)
{
    struct rn_gguf *gguf;
    runnel_error error = {0};
    struct rn_fingerprint print;

    ok(rn_gguf_open(&heap, path, &gguf, &error), &error);
    print = rn_fingerprint_model(gguf);
    for (uint32_t i = 0; i < sizeof print.bytes; i++)
        printf("%02x", print.bytes[i]);
    printf("\n");
    rn_gguf_free(gguf);
    return 0;
}

int main(int argc, char **argv)
{
    const struct rn_backend_limits limits = {.max_rows = WINDOW,
                                             .max_seqs = 1,
                                             .max_outs = WINDOW,
                                             .n_blocks = WINDOW / BLOCK,
                                             .block_tokens = BLOCK,
                                             .context_tokens = WINDOW,
                                             .kv_type = RUNNEL_KV_F32};
    struct rn_eagle_score score = {0};
    runnel_error error = {0};
    size_t n_bytes, n;
    char *text;
    /* What lives as long as the program. */
    static struct rn_backend *backend;
    static struct rn_eagle *eagle;
    static struct rn_vocab *vocab;
    static struct rn_gguf *gguf;
    static struct rn_plan *plan;
    static struct rn_head head;
    static float *logits, *features, *embeddings, *embedding, *output;
    static int32_t *tokens;

    rn_heap_init(&heap, NULL);
    if (argc == 3 && strcmp(argv[1], "--print") == 0)
        return tell_print(argv[2]);
    if (argc != 4) {
        fprintf(stderr, "usage: bench_heads MODEL HEAD TEXT | --print MODEL\n");
        return 2;
    }
    ok(rn_gguf_open(&heap, argv[1], &gguf, &error), &error);
    ok(rn_head_open(&head, &heap, argv[2], &error), &error);
    ok(rn_plan_new_tapped(&heap, gguf, WINDOW, head.tapped, head.shape.taps, &plan, &error), &error);
    ok(rn_vocab_new(&heap, gguf, plan->n_vocab, &vocab, &error), &error);
    text = read_text(argv[3], &n_bytes);
    ok(rn_tokenize(vocab, &heap, text, n_bytes, 0, &tokens, &n, &error), &error);
    rn_free(&heap, text);
    backend = rn_cpu_backend_new(&heap, rn_team_new(&heap, 2));
    ok(backend->ops->prepare(backend, plan, &limits, NULL, NULL, &error), &error);
    embedding = matrix(gguf, "token_embd.weight", "token_embd.weight");
    output = matrix(gguf, "output.weight", "token_embd.weight");
    ok(rn_eagle_new(&heap, &head.shape, WINDOW, DEPTHS, rn_cpu_gemm(), output, &eagle), &error);
    logits = take((size_t)WINDOW * plan->n_vocab, sizeof *logits);
    features = take((size_t)WINDOW * plan->features_width, sizeof *features);
    embeddings = take((size_t)WINDOW * plan->embedding, sizeof *embeddings);
    for (size_t at = 0; at + WINDOW <= n; at += WINDOW) {
        const struct rn_eagle_text window = {WINDOW, embeddings, features, logits}; /* of logits only hits count */

        run_window(backend, tokens + at, logits, features);
        for (uint32_t i = 0; i < WINDOW; i++)
            memcpy(embeddings + (size_t)i * plan->embedding, embedding + (size_t)tokens[at + i] * plan->embedding,
                   plan->embedding * sizeof *embeddings);
        rn_eagle_pass(eagle, head.weights, &window, 1, 1, NULL, &score);
    }
    for (uint32_t j = 0; j < DEPTHS; j++)
        printf("draft %u: %.3f right of %.0f; of the others its runner-up in %.3f\n", j + 1,
               score.hits[j] / score.rows[j], score.rows[j],
               score.seconds[j] / (score.rows[j] > score.hits[j] ? score.rows[j] - score.hits[j] : 1));
    return 0;
}
