/* Loading a drafter beside its model: see drafter.h. Runs on the worker's thread. */
#include "actors/drafter.h"

#include <string.h>
#include <unistd.h>

#include "actors/engine.h"
#include "base/status.h"

#define HEAD_ARCHITECTURE "runnel-eagle"
#define PASSES 4u /* until its time is known */
#define ROWS 128u /* of a pass: a prompt is read as fast as the device can, and nothing is held up long */

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
            return rn_error_set(error, RUNNEL_INVALID, "%s: token %u is \"%.*s\" and the model's \"%.*s\"", path, i,
                                (int)(b.n < 40 ? b.n : 40), b.n > 0 ? b.bytes : "", (int)(a.n < 40 ? a.n : 40),
                                a.n > 0 ? a.bytes : "");
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

/* As many positions as the model has, or as its memory holds. */
static runnel_status choose_limits(struct runnel_model *model, const char *path, runnel_error *error)
{
    const struct rn_backend_limits *target = &model->parts.limits;
    struct rn_drafter *drafter = &model->parts.drafter;
    uint64_t block_bytes = rn_plan_kv_bytes(drafter->plan, target->kv_type) * target->block_tokens;
    uint64_t machine_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t bytes = model->options.draft_kv_bytes > 0 ? model->options.draft_kv_bytes : machine_bytes / 8;
    uint64_t n = bytes / block_bytes;

    if (n == 0)
        return rn_error_set(error, RUNNEL_INVALID, "draft_kv_bytes %llu hold no block of %llu bytes of %s",
                            (unsigned long long)bytes, (unsigned long long)block_bytes, path);
    drafter->limits = *target;
    drafter->limits.n_blocks = n < target->n_blocks ? (uint32_t)n : target->n_blocks;
    drafter->limits.max_seqs = drafter->limits.max_outs = target->max_outs;
    drafter->limits.max_rows = 2 * target->max_outs > ROWS ? 2 * target->max_outs : ROWS;
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

    if (model->options.draft_threads > 0) {
        drafter->concurrent = true;
        drafter->team = rn_engine_new_team(engine, model->options.draft_threads);
    }
    if (drafter->team != NULL || !drafter->concurrent)
        drafter->backend = rn_engine_new_backend_on(engine, drafter->concurrent ? drafter->team : engine->team,
                                                    model->device);
    if (drafter->backend == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the backend of %s", path);
    return drafter->backend->ops->prepare(drafter->backend, drafter->plan, &drafter->limits, on_progress, model, error);
}

static void on_pass_done(struct rn_step *pass)
{
    struct rn_wake *done = pass->user;

    rn_wake_notify(done);
}

/* What a guess takes: the fastest of a few passes of one row. The first brings the weights into memory. */
static runnel_status measure(struct runnel_model *model, float *logits, runnel_error *error)
{
    struct rn_drafter *drafter = &model->parts.drafter;
    const struct rn_clock *clock = &model->engine->clock;
    uint32_t block = 0;
    struct rn_step_row row = {.out = 0};
    struct rn_step_seq seq = {.blocks = &block, .n_blocks = 1};
    struct rn_wake done;
    struct rn_step pass = {.n_rows = 1, .n_seqs = 1, .n_outs = 1, .rows = &row, .seqs = &seq, .logits = logits,
                           .on_done = on_pass_done, .user = &done};

    rn_wake_init(&done);
    for (uint32_t i = 0; i < PASSES; i++) {
        uint32_t ticket = rn_wake_ticket(&done);
        uint64_t begin_us = rn_now_us(clock), us;

        drafter->backend->ops->submit_async(drafter->backend, &pass);
        rn_wake_wait(&done, ticket, -1, 0);
        us = rn_now_us(clock) - begin_us;
        if (pass.status != RUNNEL_OK)
            return rn_error_set(error, pass.status, "%s: a pass failed", model->draft_path);
        if (i == 1 || (i > 1 && us < drafter->pass_us))
            drafter->pass_us = us > 0 && us < UINT32_MAX ? (uint32_t)us : 1;
    }
    return RUNNEL_OK;
}

runnel_status rn_drafter_load(struct runnel_model *model, const char *path, runnel_error *error)
{
    struct rn_drafter *drafter = &model->parts.drafter;
    struct rn_heap *heap = &model->engine->heap;
    struct rn_view architecture;
    float *logits;
    runnel_status status = rn_gguf_open(heap, path, &drafter->gguf, error);

    if (status == RUNNEL_OK)
        status = rn_gguf_get_string(drafter->gguf, "general.architecture", true, &architecture, error);
    if (status != RUNNEL_OK)
        return status;
    if (architecture.n == strlen(HEAD_ARCHITECTURE) &&
        memcmp(architecture.bytes, HEAD_ARCHITECTURE, architecture.n) == 0)
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "%s: heads cannot draft yet", path);
    drafter->kind = RN_DRAFTER_TOKENS;
    status = rn_plan_new(heap, drafter->gguf, model->parts.limits.context_tokens, &drafter->plan, error);
    if (status == RUNNEL_OK)
        status = check_vocab(model, path, error);
    if (status == RUNNEL_OK)
        status = choose_limits(model, path, error);
    if (status == RUNNEL_OK)
        status = prepare(model, path, error);
    if (status != RUNNEL_OK)
        return status;
    logits = rn_alloc(heap, drafter->plan->n_vocab, sizeof *logits);
    status = logits != NULL ? measure(model, logits, error)
                            : rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the drafter %s", path);
    rn_free(heap, logits);
    return status;
}

void rn_drafter_fini(struct rn_drafter *drafter)
{
    if (drafter->backend != NULL)
        drafter->backend->ops->free(drafter->backend);
    rn_engine_free_team(drafter->team);
    if (drafter->plan != NULL)
        rn_plan_free(drafter->plan);
    if (drafter->gguf != NULL)
        rn_gguf_free(drafter->gguf);
    *drafter = (struct rn_drafter){0};
}
