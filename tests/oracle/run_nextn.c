/* What a file's model and its prediction layers, or a head, give, for nextn_judge.py and eagle3_judge.py to look at.
 *
 *     run_nextn FILE BACKEND [head:HEAD] TOKEN...     BACKEND: reference or fast
 *
 * On standard output, in 32-bit floats: the model's features [n, width] and logits [n, vocab]; then of each prediction
 * layer d, from 0, its features and logits [n - 1 - d]. Row t of layer d has token t + 1 + d and what layer d - 1 gave
 * in its row t. Every pass goes in two steps.
 *
 * With a head: the features are its g and the model's, and the logits the model's; then the head's features and logits
 * [n - 1]; then these again, where rows behind the first GIVEN read the features of the row before, row by row.
 *
 * Errors: a sentence on standard error, exit code 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu/team.h"
#include "model/backend.h"
#include "model/heads/head.h"

enum { MOST = 64, BLOCK = 16, CUT = 5, GIVEN = 6 };

struct pass {
    struct rn_plan *plan;
    float *features; /* [MOST, width] */
    float *logits;   /* [MOST, vocab] */
};

static struct rn_heap heap;

static void ok(runnel_status status, const runnel_error *error)
{
    if (status == RUNNEL_OK)
        return;
    fprintf(stderr, "%s: %s\n", runnel_status_name(status), error->message);
    exit(1);
}

static void on_done(struct rn_step *step)
{
    __atomic_store_n((bool *)step->user, true, __ATOMIC_RELEASE);
}

/* Rows [first, first + n) of a pass; inputs of the plan's width, or NULL. */
static void run_rows(struct rn_backend *backend, const struct pass *pass, const int32_t *tokens, const float *inputs,
                     uint32_t first, uint32_t n)
{
    static const uint32_t blocks[MOST / BLOCK] = {2, 0, 3, 1};
    const struct rn_plan *plan = pass->plan;
    struct rn_step_seq seq = {.blocks = blocks, .n_blocks = MOST / BLOCK};
    struct rn_step_row rows[MOST];
    bool done = false;
    struct rn_step step = {.n_rows = n,
                           .n_seqs = 1,
                           .n_outs = n,
                           .rows = rows,
                           .seqs = &seq,
                           .logits = pass->logits + (size_t)first * plan->n_vocab,
                           .features = pass->features + (size_t)first * plan->features_width,
                           .inputs = inputs == NULL ? NULL : inputs + (size_t)first * plan->inputs_width,
                           .on_done = on_done,
                           .user = &done};

    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct rn_step_row){.token = tokens[first + i], .position = first + i, .out = (int32_t)i};
    backend->ops->submit_async(backend, &step);
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE))
        usleep(50);
    ok(step.status, &(runnel_error){.message = "a step failed"});
}

/* inputs are changed where own: those behind GIVEN become the features of the row before. */
static struct pass run_pass(const char *level, struct rn_plan *plan, const int32_t *tokens, float *inputs, uint32_t n,
                            bool own)
{
    const struct rn_backend_limits limits = {.max_rows = MOST,
                                             .max_seqs = 1,
                                             .max_outs = MOST,
                                             .n_blocks = MOST / BLOCK,
                                             .block_tokens = BLOCK,
                                             .context_tokens = MOST,
                                             .kv_type = RUNNEL_KV_F32};
    struct rn_team *team = rn_team_new(&heap, 2);
    struct rn_backend *backend =
        strcmp(level, "fast") == 0 ? rn_cpu_backend_new(&heap, team) : rn_cpu_reference_new(&heap, team);
    struct pass pass = {.plan = plan,
                        .features = calloc(MOST, plan->features_width * sizeof(float)),
                        .logits = calloc(MOST, plan->n_vocab * sizeof(float))};
    runnel_error error = {0};

    ok(backend->ops->prepare(backend, plan, &limits, NULL, NULL, &error), &error);
    run_rows(backend, &pass, tokens, inputs, 0, n < CUT ? n : CUT);
    if (n > CUT && !own)
        run_rows(backend, &pass, tokens, inputs, CUT, n - CUT);
    for (uint32_t i = CUT; i < n && own; i++) {
        if (i >= GIVEN)
            memcpy(inputs + (size_t)i * plan->inputs_width, pass.features + (size_t)(i - 1) * plan->features_width,
                   plan->inputs_width * sizeof(float));
        run_rows(backend, &pass, tokens, inputs, i, 1);
    }
    backend->ops->free(backend);
    rn_team_free(team);
    fwrite(pass.features, plan->features_width * sizeof(float), n, stdout);
    fwrite(pass.logits, plan->n_vocab * sizeof(float), n, stdout);
    return pass;
}

static void end_pass(struct pass *pass)
{
    rn_plan_free(pass->plan);
    free(pass->features);
    free(pass->logits);
}

static void run_layers(const char *level, const struct rn_gguf *gguf, const int32_t *tokens, uint32_t n)
{
    uint32_t layers;
    struct rn_plan *plan;
    struct pass before, pass;
    runnel_error error = {0};

    ok(rn_head_count_nextn(gguf, &layers, &error), &error);
    ok(rn_plan_new(&heap, gguf, 0, &plan, &error), &error);
    before = run_pass(level, plan, tokens, NULL, n, false);
    for (uint32_t d = 0; d < layers && d + 1 < n; d++) {
        ok(rn_plan_new_nextn(&heap, gguf, 0, d, &plan, &error), &error);
        pass = run_pass(level, plan, tokens + 1 + d, before.features, n - 1 - d, false);
        end_pass(&before);
        before = pass;
    }
    end_pass(&before);
}

static void run_head(const char *level, const struct rn_gguf *gguf, const char *path, const int32_t *tokens, uint32_t n)
{
    struct rn_gguf *head;
    struct rn_plan *plan;
    struct pass model, pass;
    float *g;
    runnel_error error = {0};

    ok(rn_gguf_open(&heap, path, &head, &error), &error);
    ok(rn_plan_new_for_head(&heap, gguf, 0, head, &plan, &error), &error);
    model = run_pass(level, plan, tokens, NULL, n, false);
    g = calloc((size_t)MOST * plan->normed_at, sizeof *g);
    for (uint32_t i = 0; i < n; i++)
        memcpy(g + (size_t)i * plan->normed_at, model.features + (size_t)i * plan->features_width,
               plan->normed_at * sizeof *g);
    end_pass(&model);
    for (int own = 0; own < 2; own++) {
        ok(rn_plan_new_head(&heap, head, gguf, 0, &plan, &error), &error);
        pass = run_pass(level, plan, tokens + 1, g, n - 1, own == 1);
        end_pass(&pass);
    }
    free(g);
    rn_gguf_free(head);
}

int main(int argc, char **argv)
{
    int32_t tokens[MOST];
    int first = argc > 3 && strncmp(argv[3], "head:", 5) == 0 ? 4 : 3;
    uint32_t n = (uint32_t)(argc - first);
    struct rn_gguf *gguf;
    runnel_error error = {0};

    if (argc < first + 2 || n > MOST)
        return 2;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)strtol(argv[(uint32_t)first + i], NULL, 10);
    rn_heap_init(&heap, NULL);
    ok(rn_gguf_open(&heap, argv[1], &gguf, &error), &error);
    if (first == 4)
        run_head(argv[2], gguf, argv[3] + 5, tokens, n);
    else
        run_layers(argv[2], gguf, tokens, n);
    rn_gguf_free(gguf);
    return 0;
}
