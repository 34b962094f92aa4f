/* Plans of heads, of prediction layers and of early exits (model/heads/head.h, plan.h) on both backends: their logits
 * and states against the head's formula as tests/train writes it in double precision, drafted tokens too; the target's
 * fused features against the product of the raw ones; the target's own logits, to the bit, as without a head. And
 * targets that give embeddings or scores besides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../model/model_edit.h"
#include "../train/double_head.h"
#include "base/rng.h"
#include "cpu/team.h"
#include "model/backend.h"
#include "model/heads/head.h"
#include "tests/support/shared.h"
#include "train/head_file.h"

enum { WIDTH = 32, VOCAB = 16, N = 12, UNROLL = 4, BLOCK = 4, BLOCKS = 8 };

static const struct rn_eagle_shape shape = {WIDTH, VOCAB, 2, 4, 2, 8, 24, 1e-5f, 10000.0f};
static const int32_t tokens[N] = {3, 7, 1, 15, 0, 9, 9, 4, 12, 2, 7, 5};
static const uint32_t taps[2] = {0, 1}, blocks[BLOCKS] = {5, 0, 3, 7, 1, 2, 6, 4};

struct model {
    struct model_edit edit;
    struct writer bytes;
    struct rn_gguf *gguf;
};

struct fixture {
    struct rn_heap heap;
    struct model target;
    struct rn_gguf *head;
    struct rn_trainer trainer;
    struct rn_team *team;
    char path[64];
    float embeddings[VOCAB][WIDTH], output[VOCAB * WIDTH];
    float of_tokens[N][WIDTH]; /* embeddings */
    float raw[N][2 * WIDTH];   /* streams behind both blocks */
    double weights[40000];     /* the head's, as they stand in the file */
};

static struct fixture f;

static void ok(runnel_status status, const runnel_error *error)
{
    if (status != RUNNEL_OK)
        fail_msg("%s: %s", runnel_status_name(status), error->message);
}

static void open_model(struct model *model)
{
    runnel_error error = {0};

    edit_write(&model->edit, &model->bytes);
    ok(rn_gguf_parse(&f.heap, model->bytes.bytes, model->bytes.n, "tiny.gguf", &model->gguf, &error), &error);
}

static void close_model(struct model *model)
{
    rn_gguf_free(model->gguf);
    w_free(&model->bytes);
}

/* ---- Running plans ---- */

struct run {
    struct rn_plan *plan;
    struct rn_backend *backend;
    struct rn_backend_limits limits;
    bool done, early; /* early: rn_step.early_features, and logits of the last row alone */
    float logits[N * VOCAB], features[N * 2 * WIDTH];
};

static struct run *begin(const char *level, struct rn_plan *plan)
{
    struct run *run = calloc(1, sizeof *run);
    runnel_error error = {0};

    assert_non_null(run);
    assert_true(rn_plan_check(plan));
    run->plan = plan;
    run->limits = (struct rn_backend_limits){.max_rows = N,
                                             .max_seqs = 1,
                                             .max_outs = N,
                                             .n_blocks = BLOCKS,
                                             .block_tokens = BLOCK,
                                             .context_tokens = plan->context_tokens,
                                             .kv_type = RUNNEL_KV_F32};
    run->backend =
        strcmp(level, "fast") == 0 ? rn_cpu_backend_new(&f.heap, f.team) : rn_cpu_reference_new(&f.heap, f.team);
    ok(run->backend->ops->prepare(run->backend, plan, &run->limits, NULL, NULL, &error), &error);
    return run;
}

static void end(struct run *run)
{
    run->backend->ops->free(run->backend);
    rn_plan_free(run->plan);
    free(run);
}

static void on_done(struct rn_step *step)
{
    __atomic_store_n((bool *)step->user, true, __ATOMIC_RELEASE);
}

/* Positions [first, first + n): logits and features of all. */
static void step(struct run *run, const int32_t *text, uint32_t first, uint32_t n, const float *inputs)
{
    struct rn_step_row rows[N];
    struct rn_step_seq seq = {.blocks = blocks, .n_blocks = BLOCKS};
    struct rn_step s = {.n_rows = n,
                        .n_seqs = 1,
                        .n_outs = n,
                        .rows = rows,
                        .seqs = &seq,
                        .logits = run->logits,
                        .features = run->plan->features_width > 0 ? run->features : NULL,
                        .inputs = inputs,
                        .early_features = run->early,
                        .on_done = on_done,
                        .user = &run->done};

    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct rn_step_row){.token = text[i], .position = first + i, .out = run->early ? -1 : (int32_t)i};
    if (run->early)
        s.n_outs = 1, rows[n - 1].out = 0;
    assert_true(rn_step_check(&s, run->plan, &run->limits));
    assert_true(inputs == NULL || rn_device_can(run->backend->caps, RN_CAN_INPUTS));
    assert_true(s.features == NULL || rn_device_can(run->backend->caps, RN_CAN_FEATURES));
    __atomic_store_n(&run->done, false, __ATOMIC_RELEASE);
    run->backend->ops->submit_async(run->backend, &s);
    while (!__atomic_load_n(&run->done, __ATOMIC_ACQUIRE))
        usleep(50);
    assert_int_equal(s.status, RUNNEL_OK);
}

static void close_to(const float *got, const double *want, size_t n)
{
    double error = 0, power = 0;

    for (size_t i = 0; i < n; i++) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        power += want[i] * want[i];
    }
    if (!(error <= 1e-10 * power))
        fail_msg("NMSE %g", error / power);
}

/* ---- The fixture ---- */

static void make_head(void)
{
    struct rn_trainer_options options = {60, 5, 2, 0.8f, 0.01f, 0.01f, 1.0f, 7};
    struct rn_trainer_origin origin = {{1, 0xab, 0xff}, {2}, {taps[0], taps[1]}};
    runnel_error error = {0};

    ok(rn_trainer_init(&f.trainer, &f.heap, &shape, &options, &origin), &error);
    for (size_t i = 0; i < f.trainer.n; i++) /* no norm of ones, and an output that says something */
        f.trainer.weights[i] += (float)(0.4 * rn_coin(11, i) - 0.2);
    snprintf(f.path, sizeof f.path, "/tmp/runnel-heads-%d.gguf", (int)getpid());
    ok(rn_head_save(&f.trainer, 64, false, f.path, &error), &error);
    ok(rn_gguf_open(&f.heap, f.path, &f.head, &error), &error);
    assert_true(f.trainer.n <= sizeof f.weights / sizeof f.weights[0]);
    for (size_t i = 0; i < f.trainer.n; i++)
        f.weights[i] = f.trainer.weights[i];
}

static void decode(const struct rn_gguf *gguf, const char *name, float *out)
{
    const struct rn_tensor *tensor = rn_gguf_find_tensor(gguf, name);

    assert_non_null(tensor);
    rn_type(tensor->type)->decode(tensor->data, out, tensor->elements);
}

static int setup(void **state)
{
    struct rn_plan *plan;
    struct run *run;
    runnel_error error = {0};

    (void)state;
    rn_heap_init(&f.heap, NULL);
    f.team = rn_team_new(&f.heap, 2);
    edit_tiny(&f.target.edit, 0, false);
    open_model(&f.target);
    make_head();
    decode(f.target.gguf, "token_embd.weight", f.embeddings[0]);
    decode(f.target.gguf, "output.weight", f.output);
    for (uint32_t i = 0; i < N; i++)
        memcpy(f.of_tokens[i], f.embeddings[tokens[i]], sizeof f.of_tokens[i]);
    ok(rn_plan_new_tapped(&f.heap, f.target.gguf, 0, taps, 2, &plan, &error), &error);
    run = begin("reference", plan);
    step(run, tokens, 0, N, NULL);
    memcpy(f.raw, run->features, sizeof f.raw);
    end(run);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rn_trainer_fini(&f.trainer);
    rn_gguf_free(f.head);
    close_model(&f.target);
    rn_team_free(f.team);
    unlink(f.path);
    assert_int_equal(rn_heap_blocks(&f.heap), 0);
    return 0;
}

/* ---- The target ---- */

static void fused(uint32_t t, double *g)
{
    const double *fc = f.weights + f.trainer.spans[RN_EAGLE_FUSE].offset;

    for (uint32_t i = 0; i < WIDTH; i++) {
        g[i] = 0;
        for (uint32_t j = 0; j < 2 * WIDTH; j++)
            g[i] += fc[i * 2 * WIDTH + j] * f.raw[t][j];
    }
}

/* A step that wants early features alone: the same ones, the same logits of the only row that has some, and nothing
 * behind for the others. */
static void check_early(struct run *run, struct run *plain)
{
    float fused_features[N - 5][WIDTH];

    for (uint32_t i = 0; i < N - 5; i++)
        memcpy(fused_features[i], run->features + (size_t)i * 2 * WIDTH, sizeof fused_features[i]);
    memset(run->features, 0, sizeof run->features);
    run->early = true;
    step(run, tokens + 5, 5, N - 5, NULL);
    assert_memory_equal(run->logits, plain->logits + (N - 6) * VOCAB, VOCAB * sizeof(float));
    for (uint32_t i = 0; i < N - 5; i++) {
        const float *features = run->features + (size_t)i * 2 * WIDTH;

        assert_memory_equal(features, fused_features[i], sizeof fused_features[i]);
        for (uint32_t j = WIDTH; j < 2 * WIDTH && i < N - 6; j++)
            assert_true(features[j] == 0);
    }
}

static void check_target(const char *level)
{
    struct rn_plan *plan, *plain;
    struct run *run, *other;
    runnel_error error = {0};
    double g[WIDTH];

    ok(rn_plan_new_for_head(&f.heap, f.target.gguf, 0, f.head, &plan, &error), &error);
    ok(rn_plan_new(&f.heap, f.target.gguf, 0, &plain, &error), &error);
    assert_true(plan->features_width == 2 * WIDTH && plan->normed_at == WIDTH);
    run = begin(level, plan);
    other = begin(level, plain);
    step(run, tokens, 0, 5, NULL);
    step(other, tokens, 0, 5, NULL);
    assert_memory_equal(run->logits, other->logits, 5 * VOCAB * sizeof(float));
    step(run, tokens + 5, 5, N - 5, NULL);
    step(other, tokens + 5, 5, N - 5, NULL);
    for (uint32_t t = 5; t < N; t++) {
        const float *features = run->features + (size_t)(t - 5) * 2 * WIDTH;

        fused(t, g);
        close_to(features, g, WIDTH);
        assert_memory_equal(features + WIDTH, other->features + (size_t)(t - 5) * WIDTH, WIDTH * sizeof(float));
    }
    check_early(run, other);
    end(run);
    end(other);
}

static void test_target(void **state)
{
    (void)state;
    check_target("reference");
    check_target("fast");
}

/* ---- Heads and prediction layers ---- */

static void rms_norm(const double *x, const double *weight, double *out)
{
    double square = 0;

    for (uint32_t i = 0; i < WIDTH; i++)
        square += x[i] * x[i] / WIDTH;
    for (uint32_t i = 0; i < WIDTH; i++)
        out[i] = x[i] / sqrt(square + 1e-5) * weight[i];
}

/* As a head is served: row t with the target's state, then, but for a prediction layer (norm: the weights of its last
 * one), drafts from its own. first: [N, WIDTH]. */
static void check_drafts(struct run *run, const struct rn_eagle_shape *s, const double *weights,
                         const struct rn_eagle_text *text, const float *output, const float *first, const double *norm)
{
    const uint32_t unroll = norm == NULL ? UNROLL : 1;
    double logits[VOCAB], h[WIDTH];
    float own[WIDTH];

    for (uint32_t t = 0; t + 1 < N; t++) {
        step(run, tokens + t + 1, t, 1, first + (size_t)t * WIDTH);
        for (uint32_t j = 0; j < unroll && t + j + 1 < N; j++) {
            if (j > 0) {
                memcpy(own, run->features, sizeof own);
                step(run, tokens + t + j + 1, t + j, 1, own);
            }
            double_head_row(s, weights, text, output, j, t + j, logits, h);
            if (norm != NULL)
                rms_norm(h, norm, h);
            close_to(run->logits, logits, VOCAB);
            close_to(run->features, h, WIDTH);
        }
    }
}

static void check_head(const char *level)
{
    const struct rn_eagle_text text = {N, f.of_tokens[0], f.raw[0], NULL};
    struct rn_plan *plan;
    struct run *run;
    runnel_error error = {0};
    double g[WIDTH];
    float inputs[N][WIDTH];

    ok(rn_plan_new_head(&f.heap, f.head, f.target.gguf, 0, &plan, &error), &error);
    assert_true(plan->inputs_width == WIDTH && plan->features_width == WIDTH && plan->n_vocab == VOCAB &&
                plan->n_kv_layers == 1);
    for (uint32_t t = 0; t < N; t++) {
        fused(t, g);
        for (uint32_t i = 0; i < WIDTH; i++)
            inputs[t][i] = (float)g[i];
    }
    run = begin(level, plan);
    check_drafts(run, &shape, f.weights, &text, f.output, inputs[0], NULL);
    step(run, tokens + 1, 0, N - 1, inputs[0]); /* all rows at once: the same */
    for (uint32_t t = 0; t + 1 < N; t++) {
        double logits[VOCAB], h[WIDTH];

        double_head_row(&shape, f.weights, &text, f.output, 0, t, logits, h);
        close_to(run->logits + t * VOCAB, logits, VOCAB);
    }
    end(run);
}

static void test_head(void **state)
{
    (void)state;
    check_head("reference");
    check_head("fast");
}

/* The head's own layer, as if it stood behind the model's two blocks. */
static void add_nextn(struct model *model, bool own_norm)
{
    static const struct {
        enum rn_eagle_tensor tensor;
        const char *name;
    } names[] = {{RN_EAGLE_EMBED_NORM, "nextn.enorm"},
                 {RN_EAGLE_FEATURE_NORM, "nextn.hnorm"},
                 {RN_EAGLE_JOIN, "nextn.eh_proj"},
                 {RN_EAGLE_ATTN_NORM, "attn_norm"},
                 {RN_EAGLE_Q, "attn_q"},
                 {RN_EAGLE_K, "attn_k"},
                 {RN_EAGLE_V, "attn_v"},
                 {RN_EAGLE_O, "attn_output"},
                 {RN_EAGLE_FFN_NORM, "ffn_norm"},
                 {RN_EAGLE_GATE, "ffn_gate"},
                 {RN_EAGLE_UP, "ffn_up"},
                 {RN_EAGLE_DOWN, "ffn_down"},
                 {RN_EAGLE_OUT_NORM, "nextn.shared_head_norm"}};
    char name[64];

    edit_tiny(&model->edit, 0, false);
    edit_u32(&model->edit, "llama.block_count", 3);
    edit_u32(&model->edit, "llama.nextn_predict_layers", 1);
    edit_u32s(&model->edit, "llama.feed_forward_length", (const uint32_t[]){48, 48, 24}, 3);
    for (size_t i = 0; i < sizeof names / sizeof names[0] - !own_norm; i++) {
        const struct rn_eagle_span *span = &f.trainer.spans[names[i].tensor];

        snprintf(name, sizeof name, "blk.2.%s.weight", names[i].name);
        edit_add_tensor(&model->edit, name, span->cols, span->rows, f.trainer.weights + span->offset);
    }
    open_model(model);
}

static void check_nextn(const char *level, bool own_norm)
{
    static struct model model;
    struct rn_eagle_shape one = shape;
    struct rn_eagle_span spans[RN_EAGLE_TENSORS];
    struct rn_plan *plan, *served;
    struct run *run;
    runnel_error error = {0};
    static double weights[40000];
    double wide[WIDTH], wide_norm[WIDTH];
    float last[N][WIDTH], norm[WIDTH];
    const struct rn_eagle_text text = {N, f.of_tokens[0], last[0], NULL};

    memset(&model, 0, sizeof model);
    add_nextn(&model, own_norm);
    one.taps = 1;
    assert_true(rn_eagle_layout(&one, spans) > 0);
    for (int t = RN_EAGLE_EMBED_NORM; t < RN_EAGLE_TENSORS; t++)
        memcpy(weights + spans[t].offset, f.weights + f.trainer.spans[t].offset,
               (size_t)spans[t].rows * spans[t].cols * sizeof(double));
    decode(model.gguf, "output_norm.weight", norm);
    for (uint32_t i = 0; i < WIDTH && !own_norm; i++)
        weights[spans[RN_EAGLE_OUT_NORM].offset + i] = norm[i];
    for (uint32_t i = 0; i < WIDTH; i++)
        wide_norm[i] = norm[i];
    for (uint32_t t = 0; t < N; t++) {
        for (uint32_t i = 0; i < WIDTH; i++)
            wide[i] = f.raw[t][WIDTH + i];
        rms_norm(wide, wide_norm, wide);
        for (uint32_t i = 0; i < WIDTH; i++)
            last[t][i] = (float)wide[i];
    }
    ok(rn_plan_new_nextn(&f.heap, model.gguf, 0, 0, &plan, &error), &error);
    run = begin(level, plan);
    check_drafts(run, &one, weights, &text, f.output, last[0], weights + spans[RN_EAGLE_OUT_NORM].offset);
    end(run);
    ok(rn_plan_new(&f.heap, model.gguf, 0, &served, &error), &error);
    assert_true(served->normed_at == 0 && served->features_width == WIDTH);
    run = begin(level, served);
    step(run, tokens, 0, N, NULL);
    for (uint32_t t = 0; t < N; t++) {
        for (uint32_t i = 0; i < WIDTH; i++)
            wide[i] = last[t][i];
        close_to(run->features + (size_t)t * WIDTH, wide, WIDTH);
    }
    end(run);
    assert_int_equal(rn_plan_new_nextn(&f.heap, model.gguf, 0, 1, &plan, &error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(error.message, "has 1 prediction layers"));
    close_model(&model);
}

static void test_nextn(void **state)
{
    (void)state;
    check_nextn("reference", true);
    check_nextn("fast", true);
    check_nextn("fast", false);
}

/* A model with a prediction layer is the model without; a tensor that belongs to neither is refused still. */
static void test_nextn_target(void **state)
{
    static struct model model;
    struct rn_plan *with, *without;
    struct run *a, *b;
    runnel_error error = {0};

    (void)state;
    add_nextn(&model, true);
    ok(rn_plan_new(&f.heap, model.gguf, 0, &with, &error), &error);
    ok(rn_plan_new(&f.heap, f.target.gguf, 0, &without, &error), &error);
    assert_true(with->n_nextn == 1 && with->n_layers == 2 && with->weight_bytes == without->weight_bytes);
    a = begin("fast", with);
    b = begin("fast", without);
    step(a, tokens, 0, N, NULL);
    step(b, tokens, 0, N, NULL);
    assert_memory_equal(a->logits, b->logits, sizeof a->logits);
    end(a);
    end(b);
    close_model(&model);
    edit_add_tensor(&model.edit, "blk.1.nextn.enorm.weight", WIDTH, 1, f.of_tokens[0]);
    open_model(&model);
    assert_int_equal(rn_plan_new(&f.heap, model.gguf, 0, &with, &error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(error.message, "blk.1.nextn.enorm.weight"));
    close_model(&model);
}

/* What a file may say that is wrong: the layer is refused with the status and the words, the model alone is not, but
 * where model_too. */
static void refuse_nextn(struct model *model, runnel_status status, const char *says, bool model_too)
{
    struct rn_plan *plan = NULL;
    runnel_error error = {0};
    runnel_status got;

    close_model(model);
    open_model(model);
    got = rn_plan_new_nextn(&f.heap, model->gguf, 0, 0, &plan, &error);
    if (got != status || strstr(error.message, says) == NULL)
        fail_msg("%s: %s %s", says, runnel_status_name(got), error.message);
    got = rn_plan_new(&f.heap, model->gguf, 0, &plan, &error);
    if (model_too)
        assert_int_equal(got, status);
    else
        ok(got, &error), rn_plan_free(plan);
    close_model(model);
    memset(model, 0, sizeof *model);
    add_nextn(model, true);
}

static void test_nextn_refused(void **state)
{
    static struct model model;

    (void)state;
    memset(&model, 0, sizeof model);
    add_nextn(&model, true);
    edit_drop_tensor(&model.edit, "blk.2.nextn.hnorm.weight");
    refuse_nextn(&model, RUNNEL_FORMAT, "tensor blk.2.nextn.hnorm.weight is missing", false);
    edit_tensor(&model.edit, "blk.2.nextn.eh_proj.weight")->dims[0] = WIDTH;
    refuse_nextn(&model, RUNNEL_FORMAT, "tensor blk.2.nextn.eh_proj.weight is [32, 32, 1, 1], not [64, 32, 1, 1]",
                 false);
    edit_tensor(&model.edit, "blk.2.nextn.enorm.weight")->type = RN_I32;
    refuse_nextn(&model, RUNNEL_UNSUPPORTED, "tensor blk.2.nextn.enorm.weight: type I32", false);
    edit_add_tensor(&model.edit, "blk.2.nextn.embed_tokens.weight", WIDTH, VOCAB - 1, f.embeddings[0]);
    refuse_nextn(&model, RUNNEL_FORMAT, "tensor blk.2.nextn.embed_tokens.weight is [32, 15, 1, 1]", false);
    edit_add_tensor(&model.edit, "blk.2.nextn.shared_head_head.weight", WIDTH, VOCAB + 1, f.embeddings[0]);
    refuse_nextn(&model, RUNNEL_FORMAT, "tensor blk.2.nextn.shared_head_head.weight is [32, 17, 1, 1]", false);
    edit_add_tensor(&model.edit, "blk.2.attn_q_norm.weight", 8, 1, f.embeddings[0]);
    refuse_nextn(&model, RUNNEL_UNSUPPORTED, "tensor blk.2.attn_q_norm.weight is not part of", false);
    edit_add_tensor(&model.edit, "blk.3.attn_q.weight", WIDTH, WIDTH, f.embeddings[0]);
    refuse_nextn(&model, RUNNEL_UNSUPPORTED, "tensor blk.3.attn_q.weight is not part of", true);
    edit_u32(&model.edit, "llama.nextn_predict_layers", 3);
    refuse_nextn(&model, RUNNEL_FORMAT, "llama.nextn_predict_layers", true);
    edit_text(&model.edit, "llama.nextn_predict_layers", "one");
    refuse_nextn(&model, RUNNEL_FORMAT, "llama.nextn_predict_layers", true);
    edit_u32(&model.edit, "llama.nextn_predict_layers", 0);
    refuse_nextn(&model, RUNNEL_UNSUPPORTED, "has 0 prediction layers", true);
    close_model(&model);
}

/* ---- Early exit ---- */

static void test_exit(void **state)
{
    static struct model shorter;
    struct rn_plan *exit_plan, *plain;
    struct run *a, *b;
    runnel_error error = {0};

    (void)state;
    edit_tiny(&shorter.edit, 0, false);
    edit_u32(&shorter.edit, "llama.block_count", 1);
    for (uint32_t i = shorter.edit.n_tensors; i-- > 0;)
        if (strncmp(shorter.edit.tensors[i].name, "blk.1.", 6) == 0)
            edit_drop_tensor(&shorter.edit, shorter.edit.tensors[i].name);
    open_model(&shorter);
    ok(rn_plan_new_exit(&f.heap, f.target.gguf, 0, 1, &exit_plan, &error), &error);
    ok(rn_plan_new(&f.heap, shorter.gguf, 0, &plain, &error), &error);
    assert_true(exit_plan->n_layers == 1 && exit_plan->n_kv_layers == 1);
    a = begin("fast", exit_plan);
    b = begin("fast", plain);
    step(a, tokens, 0, N, NULL);
    step(b, tokens, 0, N, NULL);
    assert_memory_equal(a->logits, b->logits, sizeof a->logits);
    end(a);
    end(b);
    assert_int_equal(rn_plan_new_exit(&f.heap, f.target.gguf, 0, 0, &plain, &error), RUNNEL_INVALID);
    assert_int_equal(rn_plan_new_exit(&f.heap, f.target.gguf, 0, 2, &plain, &error), RUNNEL_INVALID);
    close_model(&shorter);
}

/* ---- What does not belong together ---- */

static void refused(const char *key, uint32_t value, runnel_status status, const char *says)
{
    static struct model model;
    struct rn_plan *plan = NULL;
    runnel_error error = {0};

    edit_tiny(&model.edit, 0, false);
    edit_u32(&model.edit, key, value);
    for (uint32_t i = 0; i < model.edit.n_tensors && strcmp(key, "llama.embedding_length") == 0; i++)
        if (model.edit.tensors[i].dims[0] == WIDTH)
            model.edit.tensors[i].dims[0] = value;
    open_model(&model);
    if (rn_plan_new_head(&f.heap, f.head, model.gguf, 0, &plan, &error) != status)
        fail_msg("%s", error.message);
    assert_non_null(strstr(error.message, says));
    close_model(&model);
}

static void test_refused(void **state)
{
    static struct model model;
    struct rn_plan *plan = NULL;
    runnel_error error = {0};

    (void)state;
    refused("llama.embedding_length", 64, RUNNEL_FORMAT, "token_embd.weight");
    memset(&model, 0, sizeof model);
    edit_tiny(&model.edit, 0, false);
    edit_u32(&model.edit, "llama.block_count", 1);
    for (uint32_t i = model.edit.n_tensors; i-- > 0;)
        if (strncmp(model.edit.tensors[i].name, "blk.1.", 6) == 0)
            edit_drop_tensor(&model.edit, model.edit.tensors[i].name);
    open_model(&model);
    assert_int_equal(rn_plan_new_for_head(&f.heap, model.gguf, 0, f.head, &plan, &error), RUNNEL_INVALID);
    rn_error_clear(&error);
    assert_int_equal(rn_plan_new_head(&f.heap, model.gguf, f.target.gguf, 0, &plan, &error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(error.message, "not an EAGLE head"));
    rn_error_clear(&error);
    assert_int_equal(rn_plan_new_nextn(&f.heap, model.gguf, 0, 0, &plan, &error), RUNNEL_UNSUPPORTED);
    close_model(&model);
}

/* ---- Files that give embeddings or scores, too ---- */

/* For a training the model's logits and streams are read, and nothing else: the file's other outputs are no fault, and
 * the plan is the one of a file without them. */
static void check_tapped(const struct rn_gguf *gguf, const struct rn_gguf *without)
{
    struct rn_plan *whole, *plan, *same;
    runnel_error error = {0};

    ok(rn_plan_new(&f.heap, gguf, 0, &whole, &error), &error);
    ok(rn_plan_new_tapped(&f.heap, gguf, 0, taps, 2, &plan, &error), &error);
    assert_int_equal(plan->features_width, 2 * plan->embedding);
    assert_true(plan->n_scores == 0 && plan->n_weights < whole->n_weights);
    if (without != NULL) {
        ok(rn_plan_new_tapped(&f.heap, without, 0, taps, 2, &same, &error), &error);
        assert_true(plan->n_ops == same->n_ops && plan->n_weights == same->n_weights);
        rn_plan_free(same);
    }
    rn_plan_free(plan);
    rn_plan_free(whole);
}

static void test_other_outputs(void **state)
{
    static struct model model;
    struct rn_gguf *dense;
    runnel_error error = {0};
    char path[1024];

    (void)state;
    memset(&model, 0, sizeof model);
    edit_tiny(&model.edit, 0, false);
    edit_add_tensor(&model.edit, "cls.weight", WIDTH, WIDTH, f.of_tokens[0]);
    edit_tensor(&model.edit, "cls.weight")->bytes = sizeof f.of_tokens; /* the rest is zeros */
    edit_add_tensor(&model.edit, "cls.output.weight", WIDTH, 2, f.of_tokens[0]);
    edit_add_tensor(&model.edit, "cls.output.bias", 2, 1, f.of_tokens[0]);
    open_model(&model);
    check_tapped(model.gguf, f.target.gguf);
    close_model(&model);
    if (!shared_find("oracles/arch/lfm2-dense.gguf", path, sizeof path))
        return;
    ok(rn_gguf_open(&f.heap, path, &dense, &error), &error);
    assert_non_null(rn_gguf_find_tensor(dense, "dense_2.weight"));
    check_tapped(dense, NULL);
    rn_gguf_free(dense);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_target),        cmocka_unit_test(test_head),
                                       cmocka_unit_test(test_nextn),         cmocka_unit_test(test_nextn_target),
                                       cmocka_unit_test(test_nextn_refused), cmocka_unit_test(test_exit),
                                       cmocka_unit_test(test_refused),       cmocka_unit_test(test_other_outputs)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
