/* Loading a drafter beside its model: see drafter_load.h. Runs on the worker's thread. */
#include "actors/draft/drafter_load.h"

#include <stdlib.h>
#include <string.h>

#include "actors/engine.h"
#include "actors/load/model_split.h"
#include "base/check.h"
#include "base/one_line.h"
#include "base/status.h"
#include "cache/store/fingerprint.h"
#include "model/heads/head.h"

#define EXIT "exit:"
#define PASSES 4u           /* until its time is known */
#define READS 3u            /* likewise of reading a past */
#define MOST_ROWS 64u       /* of a step that is measured: as many as decode together */
#define MEASURE_US 1000000u /* of a load, by default */
#define ROWS 128u           /* of a pass: a prompt is read as fast as the device can, and nothing is held up long */

/* Same tokens: same bytes, same kinds. Ids mean the same to both, so guesses need no translation. */
static runnel_status compare_vocabs(const struct rn_vocab *ours, const struct rn_vocab *other, const char *path,
                                    runnel_error *error)
{
    uint32_t n = rn_vocab_count(ours);

    if (rn_vocab_count(other) != n)
        return rn_error_set(error, RUNNEL_INVALID, "%s: has %u tokens and the model %u; a drafter needs the same ones",
                            path, rn_vocab_count(other), n);
    for (uint32_t i = 0; i < n; i++) {
        struct rn_view a = rn_vocab_piece(ours, (int32_t)i, true), b = rn_vocab_piece(other, (int32_t)i, true);

        if (a.n != b.n || (a.n > 0 && memcmp(a.bytes, b.bytes, a.n) != 0))
            return rn_error_set(error, RUNNEL_INVALID, "%s: token %u is \"%s\" and the model's \"%s\"", path, i,
                                rn_quoted(b.bytes, b.n).text, rn_quoted(a.bytes, a.n).text);
        if (rn_vocab_kind(ours, (int32_t)i) != rn_vocab_kind(other, (int32_t)i))
            return rn_error_set(error, RUNNEL_INVALID, "%s: token %u is of type %d and the model's of type %d", path, i,
                                (int)rn_vocab_kind(other, (int32_t)i), (int)rn_vocab_kind(ours, (int32_t)i));
    }
    return RUNNEL_OK;
}

static runnel_status check_vocab(struct runnel_model *model, const char *path, runnel_error *error)
{
    struct rn_drafter *drafter = &model->parts.drafter;
    struct rn_vocab *vocab = NULL;
    runnel_status status = rn_vocab_new(&model->engine->heap, drafter->gguf, drafter->plan->n_vocab, &vocab, error);

    if (status == RUNNEL_OK)
        status = compare_vocabs(model->parts.vocab, vocab, path, error);
    if (status == RUNNEL_OK && drafter->plan->n_vocab != model->parts.n_vocab)
        status = rn_error_set(error, RUNNEL_INVALID, "%s: gives %u logits and the model %u", path,
                              drafter->plan->n_vocab, model->parts.n_vocab);
    rn_vocab_free(vocab);
    return status;
}

/* For its KV where the host does not say: half of what a model's would have, or, of a device's own memory, of the third
 * that weights of both leave it (the model has the other two: model_limits.c) what its steps do not take. */
static uint64_t usual_kv_bytes(const struct runnel_model *model)
{
    const struct rn_device *device = model->parts.device;
    const struct rn_drafter *drafter = &model->parts.drafter;
    uint64_t own = drafter->plan->weight_bytes, both = own + rn_model_device_plan(&model->parts)->weight_bytes;
    struct rn_device_memory memory;

    device->kind->memory(device, &memory);
    if (memory.shared)
        return rn_device_kv_bytes(&memory, both, 0) / 2;
    memory.free_bytes = own + (memory.free_bytes > both ? (memory.free_bytes - both) / 3 : 0);
    return rn_device_kv_bytes(&memory, own,
                              drafter->n_layers * rn_device_step_bytes(device, drafter->plan, &drafter->limits));
}

/* As many positions as the model has, or as its memory holds. */
static runnel_status choose_limits(struct runnel_model *model, const char *path, runnel_error *error)
{
    const struct rn_backend_limits *target = &model->parts.limits;
    struct rn_drafter *drafter = &model->parts.drafter;
    uint64_t block_bytes = rn_plan_kv_bytes(drafter->plan, target->kv_type) * target->block_tokens * drafter->n_layers;
    uint64_t bytes = model->options.draft_kv_bytes, n;

    if (drafter->plan->state_bytes > 0) /* what it has guessed cannot be taken back */
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "%s: a model with a recurrent state guesses for no other", path);
    if (block_bytes == 0)
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "%s: the blocks that would guess have no attention", path);
    RN_ASSERT(drafter->n_layers > 0 && drafter->n_layers <= RN_DRAFT_LAYERS);
    drafter->limits = *target;
    drafter->limits.tree_depth = 0; /* its own guesses are a chain */
    drafter->limits.max_changes = 0;
    drafter->limits.n_states = 0;
    if (drafter->gguf == NULL ||
        drafter->kind != RN_DRAFTER_TOKENS) /* it has weights of the model's file, of which one copy is enough */
        drafter->limits.weight_order = RUNNEL_WEIGHTS_FILE;
    drafter->limits.max_seqs = drafter->limits.max_outs = target->max_outs;
    drafter->limits.max_rows = 2 * target->max_outs > ROWS ? 2 * target->max_outs : ROWS;
    n = (bytes == 0 ? usual_kv_bytes(model) : bytes) / block_bytes;
    if (n == 0 && bytes == 0)
        return rn_error_set(
            error, RUNNEL_NO_MEMORY,
            "%s: its steps leave no memory of device \"%s\" to its KV blocks; kv_bytes and draft_kv_bytes "
            "say how much the model's and these get",
            path, model->parts.device->kind->name);
    if (n == 0)
        return rn_error_set(error, RUNNEL_INVALID, "draft_kv_bytes %llu hold no block of %llu bytes of %s",
                            (unsigned long long)bytes, (unsigned long long)block_bytes, path);
    drafter->limits.n_blocks = n < target->n_blocks ? (uint32_t)n : target->n_blocks;
    RN_ASSERT(drafter->limits.n_blocks > 0 && drafter->limits.max_seqs > 0);
    return RUNNEL_OK;
}

/* The model's own loading tells of progress; this only looks whether it is still wanted. */
static bool on_progress(void *user, float fraction)
{
    const struct runnel_model *model = user;

    (void)fraction;
    return rn_word_get(&model->cancel) == 0;
}

static runnel_status prepare(struct runnel_model *model, const char *path, runnel_error *error)
{
    struct rn_drafter *drafter = &model->parts.drafter;
    struct runnel_engine *engine = model->engine;
    struct rn_device_memory memory;
    struct rn_device *device;

    if (model->options.draft_threads > 0 && drafter->kind == RN_DRAFTER_TOKENS) {
        drafter->concurrent = true;
        model->parts.device->kind->memory(model->parts.device, &memory);
        drafter->device =
            rn_engine_open_device(engine, memory.shared ? model->parts.device : NULL, model->options.draft_threads);
    }
    device = drafter->concurrent ? drafter->device : model->parts.device;
    if (device != NULL)
        drafter->backend = device->kind->new_backend(device, &engine->heap);
    if (drafter->backend == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the backend of %s", path);
    return drafter->backend->ops->prepare(drafter->backend, drafter->plan, &drafter->limits, on_progress, model, error);
}

/* The layers behind the first. */
static runnel_status prepare_deeper(struct runnel_model *model, const char *path, runnel_error *error)
{
    struct rn_drafter *drafter = &model->parts.drafter;
    runnel_status status = RUNNEL_OK;

    for (uint32_t l = 1; l < drafter->n_layers && status == RUNNEL_OK; l++) {
        struct rn_drafter_layer *layer = &drafter->deeper[l - 1];

        layer->backend = model->parts.device->kind->new_backend(model->parts.device, &model->engine->heap);
        if (layer->backend == NULL)
            return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the backend of %s", path);
        status = layer->backend->ops->prepare(layer->backend, layer->plan, &drafter->limits, on_progress, model, error);
    }
    return status;
}

static void on_pass_done(struct rn_step *pass)
{
    struct rn_wake *done = pass->user;

    rn_wake_notify(done);
}

/* Steps of rows of one sequence. */
struct trial {
    struct rn_backend *backend;
    const struct rn_clock *clock;
    struct rn_step_row rows[MOST_ROWS];
    uint32_t blocks[MOST_ROWS];
    struct rn_step_seq seq;
    struct rn_step step;
    struct rn_wake done;
    float *logits;
    float *inputs; /* [1, n_features]: zeros, for one row */
    uint32_t state;
    struct rn_step_state_copy begin; /* zeros to there */
    bool has_state;                  /* the plan that is timed */
};

static void free_trial(struct runnel_model *model, struct trial *trial)
{
    rn_free(&model->engine->heap, trial->logits);
    rn_free(&model->engine->heap, trial->inputs);
    rn_free(&model->engine->heap, trial);
}

static struct trial *new_trial(struct runnel_model *model, struct rn_backend *backend, bool has_state)
{
    struct rn_heap *heap = &model->engine->heap;
    struct trial *trial = rn_alloc_aligned(heap, sizeof *trial, alignof(struct trial));

    if (trial == NULL)
        return NULL;
    memset(trial, 0, sizeof *trial);
    trial->backend = backend;
    trial->has_state = has_state;
    trial->begin.from = RN_NO_STATE;
    trial->clock = &model->engine->clock;
    trial->logits = rn_alloc(heap, (size_t)MOST_ROWS * model->parts.n_vocab, sizeof(float));
    trial->inputs = rn_calloc(heap, model->parts.drafter.n_features + 1, sizeof(float));
    rn_wake_init(&trial->done);
    for (uint32_t i = 0; i < MOST_ROWS; i++) {
        trial->rows[i] = (struct rn_step_row){.position = i};
        trial->blocks[i] = i;
    }
    if (trial->logits != NULL && trial->inputs != NULL)
        return trial;
    free_trial(model, trial);
    return NULL;
}

/* What a step of n rows takes, the last n_outs of them with logits, in microseconds; 0: it has failed. */
static uint64_t time_step(struct trial *trial, uint32_t n, uint32_t n_outs, uint32_t block_tokens)
{
    uint32_t ticket = rn_wake_ticket(&trial->done);
    uint64_t begin_us = rn_now_us(trial->clock), us;

    RN_CHECK(n > 0 && n <= MOST_ROWS && n_outs <= n);
    for (uint32_t i = 0; i < n; i++)
        trial->rows[i].out = (int32_t)(i + n_outs) - (int32_t)n < 0 ? -1 : (int32_t)(i + n_outs - n);
    trial->seq = (struct rn_step_seq){.blocks = trial->blocks, .n_blocks = (n + block_tokens - 1) / block_tokens};
    trial->step = (struct rn_step){.n_rows = n,
                                   .n_seqs = 1,
                                   .n_outs = n_outs,
                                   .rows = trial->rows,
                                   .seqs = &trial->seq,
                                   .logits = trial->logits,
                                   .inputs = trial->inputs,
                                   .n_state_copies = trial->has_state,
                                   .state_copies = trial->has_state ? &trial->begin : NULL,
                                   .states = trial->has_state ? &trial->state : NULL,
                                   .on_done = on_pass_done,
                                   .user = &trial->done};
    trial->backend->ops->submit_async(trial->backend, &trial->step);
    while (!rn_wake_wait(&trial->done, ticket, -1, 0))
        ;
    us = rn_now_us(trial->clock) - begin_us;
    RN_ASSERT(us <= INT64_MAX); /* the clock does not go back */
    return trial->step.status != RUNNEL_OK ? 0 : us > 0 ? us : 1;
}

/* What a row of a past takes: the fastest of a few passes with one guess, since that is how a past is read. Of a head
 * nobody asks. False: a pass has failed. */
static bool measure_reading(struct rn_drafter *drafter, struct trial *trial)
{
    const struct rn_backend_limits *limits = &drafter->limits;
    uint64_t most = (uint64_t)limits->n_blocks * limits->block_tokens, us;
    uint32_t n = most < MOST_ROWS ? (uint32_t)most : MOST_ROWS;

    n = n < limits->context_tokens ? n : limits->context_tokens;
    for (uint32_t i = 0; i < READS && drafter->kind == RN_DRAFTER_TOKENS && n > 1; i++) {
        float row_us;

        us = time_step(trial, n, 1, limits->block_tokens);
        if (us == 0)
            return false;
        row_us = us > drafter->pass_us ? (float)(us - drafter->pass_us) / (float)(n - 1) : 0;
        drafter->row_us = i == 0 || row_us < drafter->row_us ? row_us : drafter->row_us;
    }
    return true;
}

/* What a guess takes: the fastest of a few passes of one row. The first brings the weights into memory. */
static runnel_status measure(struct runnel_model *model, runnel_error *error)
{
    struct rn_drafter *drafter = &model->parts.drafter;
    struct trial *trial = new_trial(model, drafter->backend, false);
    runnel_status status = RUNNEL_OK;

    if (trial == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory to measure %s", model->draft_path);
    for (uint32_t i = 0; i < PASSES && status == RUNNEL_OK; i++) {
        uint64_t us = time_step(trial, 1, 1, drafter->limits.block_tokens);

        if (us == 0)
            status = rn_error_set(error, RUNNEL_DEVICE, "%s: a pass failed", model->draft_path);
        else if (i == 1 || (i > 1 && us < drafter->pass_us))
            drafter->pass_us = us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
    }
    RN_ASSERT(status != RUNNEL_OK || drafter->pass_us > 0);
    if (status == RUNNEL_OK && !measure_reading(drafter, trial))
        status = rn_error_set(error, RUNNEL_DEVICE, "%s: a pass failed", model->draft_path);
    free_trial(model, trial);
    return status;
}

/* Rows of the steps that are measured: what larger ones take first, then each of those in which a few streams draft,
 * since the time does not rise in a line (kernels take rows by fours). Those twice: one that was held up would count
 * for long. */
static const uint8_t measured[] = {1, 2, 4, 8, 16, 32, 64, 5, 3, 6, 7, 1, 2, 3, 4, 5, 6, 7, 8};

/* One step of n rows, if it can be expected to fit into what is left of the time. False: it has failed. */
static bool measure_rows(struct runnel_model *model, struct trial *trial, uint32_t n, uint64_t *left_us)
{
    uint64_t expected = (uint64_t)rn_step_cost_of(&model->parts.cost, n), us;

    if (expected >= *left_us)
        return true;
    us = time_step(trial, n, n, model->parts.limits.block_tokens);
    *left_us -= us < *left_us ? us : *left_us;
    if (us > 0)
        rn_step_cost_record(&model->parts.cost, n, us);
    return us > 0;
}

/* One token after the other. */
static bool generates(const struct rn_plan *plan)
{
    return plan->logits_slot >= 0 && !plan->bidirectional;
}

runnel_status rn_drafter_check_model(const struct runnel_model *model, runnel_error *error)
{
    const struct rn_plan *plan = model->parts.plan;

    if (model->draft_path == NULL || generates(plan))
        return RUNNEL_OK;
    return rn_error_set(error, RUNNEL_UNSUPPORTED,
                        "%s: a model of architecture %s %s: it generates no tokens that draft_path %s could guess",
                        model->path, plan->architecture,
                        plan->logits_slot < 0 ? "gives embeddings, not logits" : "attends in both directions",
                        model->draft_path);
}

bool rn_drafter_measures(const struct runnel_model *model)
{
    const struct rn_model_parts *parts = &model->parts;

    return model->draft_path != NULL ||
           (model->options.draft_measure_ms > 0 && parts->limits.window == 0 && generates(parts->plan));
}

runnel_status rn_drafter_measure_model(struct runnel_model *model, runnel_error *error)
{
    const struct rn_backend_limits *limits = &model->parts.limits;
    uint32_t most =
        limits->n_blocks < MOST_ROWS / limits->block_tokens ? limits->n_blocks * limits->block_tokens : MOST_ROWS;
    struct trial *trial = new_trial(model, model->parts.backend, limits->n_states > 0);
    uint64_t left_us =
        model->options.draft_measure_ms > 0 ? 1000 * (uint64_t)model->options.draft_measure_ms : MEASURE_US;
    bool good;

    if (trial == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory to measure %s", model->path);
    most = most < limits->max_outs ? most : limits->max_outs;
    most = most < limits->context_tokens ? most : limits->context_tokens;
    good = time_step(trial, 1, 1, limits->block_tokens) > 0; /* brings the weights into memory */
    for (uint32_t i = 0; good && i < sizeof measured / sizeof measured[0]; i++)
        good = measured[i] > most || measure_rows(model, trial, measured[i], &left_us);
    free_trial(model, trial);
    return good ? RUNNEL_OK : rn_error_set(error, RUNNEL_DEVICE, "%s: a step failed", model->path);
}

/* ---- What draft_path names ---- */

static bool is_mtp(const char *path)
{
    return strcmp(path, "mtp") == 0;
}

static bool is_exit(const char *path)
{
    return strncmp(path, EXIT, strlen(EXIT)) == 0;
}

bool rn_drafter_is_inside(const char *path)
{
    return is_mtp(path) || is_exit(path);
}

static runnel_status plan_exit(struct runnel_model *model, const char *path, runnel_error *error)
{
    struct rn_model_parts *parts = &model->parts;
    const char *digits = path + strlen(EXIT);
    char *end;
    unsigned long n = strtoul(digits, &end, 10);

    if (*digits < '0' || *digits > '9' || *end != '\0' || n == 0 || n >= parts->plan->n_layers)
        return rn_error_set(error, RUNNEL_INVALID, "draft_path %s: %s has %u blocks; an exit is behind 1 to %u of them",
                            path, model->path, parts->plan->n_layers, parts->plan->n_layers - 1);
    return rn_plan_new_exit(&model->engine->heap, parts->gguf, parts->limits.context_tokens, (uint32_t)n,
                            &parts->drafter.plan, error);
}

static runnel_status plan_nextn(struct runnel_model *model, runnel_error *error)
{
    struct rn_model_parts *parts = &model->parts;
    struct rn_drafter *drafter = &parts->drafter;
    struct rn_heap *heap = &model->engine->heap;
    uint32_t context = parts->limits.context_tokens, n = 0;
    runnel_status status = rn_head_count_nextn(parts->gguf, &n, error);

    if (status == RUNNEL_OK)
        status = rn_plan_new_nextn(heap, parts->gguf, context, 0, &drafter->plan, error);
    for (uint32_t l = 1; l < n && l < RN_DRAFT_LAYERS && status == RUNNEL_OK; l++) {
        status = rn_plan_new_nextn(heap, parts->gguf, context, l, &drafter->deeper[l - 1].plan, error);
        drafter->n_layers = l + 1;
    }
    RN_ASSERT(drafter->n_layers > 0 && drafter->n_layers <= RN_DRAFT_LAYERS);
    return status;
}

static runnel_status plan_drafter(struct runnel_model *model, const char *path, runnel_error *error)
{
    struct rn_model_parts *parts = &model->parts;
    struct rn_drafter *drafter = &parts->drafter;
    struct rn_heap *heap = &model->engine->heap;
    uint32_t context = parts->limits.context_tokens;
    runnel_status status;

    if (is_exit(path))
        return plan_exit(model, path, error);
    if (is_mtp(path))
        return plan_nextn(model, error);
    if (drafter->kind == RN_DRAFTER_FEATURES)
        return rn_plan_new_head(heap, drafter->gguf, parts->gguf, context, &drafter->plan, error);
    status = rn_plan_new(heap, drafter->gguf, context, &drafter->plan, error);
    if (status != RUNNEL_OK)
        return status;
    rn_model_log_assumed(model, path, drafter->plan);
    if (drafter->plan->bidirectional)
        return rn_error_set(error, RUNNEL_UNSUPPORTED,
                            "%s: a model of architecture %s attends in both directions: it does not guess one token "
                            "after the other",
                            path, drafter->plan->architecture);
    return check_vocab(model, path, error);
}

runnel_status rn_drafter_load(struct runnel_model *model, const char *path, runnel_error *error)
{
    runnel_status status = plan_drafter(model, path, error);

    RN_ASSERT(model->parts.drafter.backend == NULL && model->parts.drafter.limits.n_blocks == 0);
    if (status == RUNNEL_OK)
        status = choose_limits(model, path, error);
    if (status == RUNNEL_OK)
        status = prepare(model, path, error);
    if (status == RUNNEL_OK)
        status = prepare_deeper(model, path, error);
    return status == RUNNEL_OK ? measure(model, error) : status;
}

static runnel_status check_head(const struct runnel_model *model, const char *path, runnel_error *error)
{
    struct rn_fingerprint print = rn_fingerprint_model(model->parts.gguf);
    struct rn_head_facts facts;
    runnel_status status = rn_head_read(model->parts.drafter.gguf, &facts, error);

    if (status == RUNNEL_OK && !facts.is_eagle3 && memcmp(facts.target, print.bytes, sizeof facts.target) != 0)
        return rn_error_set(error, RUNNEL_INVALID,
                            "%s: a head for another model file than %s (its fingerprint differs)", path, model->path);
    return status;
}

runnel_status rn_drafter_plan_model(struct runnel_model *model, const char *path, runnel_error *error)
{
    struct rn_model_parts *parts = &model->parts;
    struct rn_drafter *drafter = &parts->drafter;
    struct rn_heap *heap = &model->engine->heap;
    uint32_t context = model->options.context_tokens;
    runnel_status status = RUNNEL_OK;

    RN_ASSERT(drafter->kind == RN_DRAFTER_NONE && drafter->gguf == NULL && parts->plan == NULL);
    drafter->kind = is_mtp(path) ? RN_DRAFTER_FEATURES : RN_DRAFTER_TOKENS;
    drafter->n_layers = 1;
    if (!rn_drafter_is_inside(path)) {
        status = rn_gguf_open(heap, path, &drafter->gguf, error);
        if (status == RUNNEL_OK)
            rn_gguf_set_rows(drafter->gguf, &model->engine->architectures);
        if (status == RUNNEL_OK && rn_head_is(drafter->gguf)) {
            drafter->kind = RN_DRAFTER_FEATURES;
            status = check_head(model, path, error);
        }
    }
    if (status != RUNNEL_OK)
        return status;
    if (drafter->kind == RN_DRAFTER_TOKENS)
        return rn_plan_new(heap, parts->gguf, context, &parts->plan, error);
    status = is_mtp(path) ? rn_plan_new(heap, parts->gguf, context, &parts->plan, error)
                          : rn_plan_new_for_head(heap, parts->gguf, context, drafter->gguf, &parts->plan, error);
    if (status == RUNNEL_OK)
        drafter->n_features = parts->plan->normed_at > 0 ? parts->plan->normed_at : parts->plan->embedding;
    return status;
}

void rn_drafter_fini(struct rn_drafter *drafter)
{
    if (drafter->backend != NULL)
        drafter->backend->ops->free(drafter->backend);
    for (uint32_t l = 0; l + 1 < RN_DRAFT_LAYERS; l++) {
        if (drafter->deeper[l].backend != NULL)
            drafter->deeper[l].backend->ops->free(drafter->deeper[l].backend);
        rn_plan_free(drafter->deeper[l].plan);
    }
    rn_engine_close_device(drafter->device);
    if (drafter->plan != NULL)
        rn_plan_free(drafter->plan);
    if (drafter->gguf != NULL)
        rn_gguf_free(drafter->gguf);
    *drafter = (struct rn_drafter){0};
}
