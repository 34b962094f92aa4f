/* Training of EAGLE heads: who runs the model, the trainer (train/) and the files.
 *
 * A training has a thread of its own: it takes minutes, and the worker's loads must not wait for it. The thread has
 * the lowest priority that asking for needs no right; the target's passes go to the compute team as steps of at most
 * STEP_ROWS rows, each submitted when the one before is done, so that a stream's step waits for one such step at most.
 *
 *   text at a place given by (seed, step) → target: features, distributions → trainer → next text
 *
 * Features are computed when they are needed, never kept: those of a corpus would be larger than the model. The
 * target's backend is the training's own, its weights the file's map, which the system shares with a loaded model.
 *
 * An engine that is freed ends its trainings first; what is left of one is its handle, with an end to tell.
 *
 * Threads: `state`, `step`, `loss`, `accepted`, `cancel` are words between the host and the thread; all else is the
 * thread's from its start until `state` says that it has ended, and then the host's. */
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "actors/draft/eagle_files.h"
#include "actors/engine.h"
#include "base/check.h"
#include "base/path.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread.h"
#include "cache/store/fingerprint.h"
#include "runnel_files.h"
#include "train/head_file.h"

enum { STEP_ROWS = 32, BLOCK_TOKENS = 16, SAVE_STEPS = 50, LEAST_TEXT = 16, MOST_TEXT = 4096 };
/* Of the corpus at a time: some 30 ms of tokenizing, after which a cancel is seen. */
enum { PART_BYTES = 256 << 10 };

static_assert(LEAST_TEXT <= MOST_TEXT && LEAST_TEXT > 1, "a text has a token to guess");
static_assert(sizeof(float) == sizeof(uint32_t), "loss and acceptance are words");

struct runnel_training {
    struct runnel_engine *engine; /* lives until `ending` is up and whoever raised it has left the engine's gate */
    struct rn_heap heap;          /* with the engine's allocator: what the handle is from */
    pid_t process;                /* that began it: of its children none has the thread */
    uint32_t place;               /* in the engine's list */
    struct rn_edge ending;        /* raised by the one who ends it: the host's free or the engine's */
    struct rn_word holders;       /* of the handle: 2, the host and the engine's list; the last one frees it */
    char *model, *head, *state_file, *corpus;
    size_t corpus_bytes;
    runnel_eagle_options options;
    pthread_t thread;
    struct rn_word state, cancel, step, loss, accepted; /* loss and accepted: bits of floats */
    struct rn_wake wake;                                /* notified at each step and at the end */
    runnel_error error;

    /* The target. */
    struct rn_gguf *gguf;
    struct rn_plan *plan;
    struct rn_vocab *vocab;
    struct rn_backend *backend;
    struct rn_backend_limits limits;
    uint32_t *blocks;
    float *output; /* [vocab, width] */
    const struct rn_weight *embedding;
    int32_t *tokens; /* of the corpus; room for room_tokens */
    size_t n_tokens, room_tokens;

    /* One text. */
    struct rn_step_row rows[STEP_ROWS];
    struct rn_step pass;
    struct rn_word pass_done;
    struct rn_wake pass_wake;
    uint32_t text_tokens;
    float *embeddings, *features, *wanted;

    struct rn_trainer trainer;
    struct rn_eagle *eagle;
};

void runnel_eagle_options_init(runnel_eagle_options *options, size_t struct_size)
{
    const runnel_eagle_options own = {.steps = 600, .text_tokens = 128, .texts = 4, .unroll = 4, .rate = 1e-3f};

    rn_sized_write(options, struct_size, &own, sizeof own);
}

void(runnel_eagle_options_default)(runnel_eagle_options *options)
{
    runnel_eagle_options_init(options, RN_FIRST_SIZE(runnel_eagle_options, reserved));
}

static runnel_status read_options(const runnel_eagle_options *given, runnel_eagle_options *o, runnel_error *error)
{
    runnel_eagle_options_default(o);
    if (given == NULL)
        return RUNNEL_OK;
    if (!rn_sized_read(o, sizeof *o, given))
        return rn_error_set(error, RUNNEL_INVALID, "eagle options: struct_size %zu is not of this library",
                            given->struct_size);
    if (!rn_all_zero(o->reserved, sizeof o->reserved))
        return rn_error_set(error, RUNNEL_INVALID, "eagle options: reserved is not zero");
    o->steps = o->steps == 0 ? 600 : o->steps;
    o->text_tokens = o->text_tokens == 0 ? 128 : o->text_tokens;
    o->texts = o->texts == 0 ? 4 : o->texts;
    o->unroll = o->unroll == 0 ? 4 : o->unroll;
    o->rate = o->rate == 0 ? 1e-3f : o->rate;
    if (o->text_tokens < LEAST_TEXT || o->text_tokens > MOST_TEXT)
        return rn_error_set(error, RUNNEL_INVALID, "eagle options: text_tokens is not in %d..%d", LEAST_TEXT,
                            MOST_TEXT);
    if (o->unroll > RN_EAGLE_MAX_UNROLL || o->n_layers > RN_EAGLE_MAX_TAPS || o->steps > 1u << 24 || o->texts > 1024)
        return rn_error_set(error, RUNNEL_INVALID,
                            "eagle options: more than %d drafts, %d layers, 2^24 steps or 1024 texts",
                            RN_EAGLE_MAX_UNROLL, RN_EAGLE_MAX_TAPS);
    if (!(o->rate > 0 && o->rate <= 1))
        return rn_error_set(error, RUNNEL_INVALID, "eagle options: rate is not above 0 and at most 1");
    if (o->resume && o->state == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "eagle options: resume needs a state");
    RN_ASSERT(o->steps > 0 && o->texts > 0 && o->unroll > 0);
    return RUNNEL_OK;
}

/* ---- The target ---- */

static runnel_status no_memory(struct runnel_training *t)
{
    return rn_error_set(&t->error, RUNNEL_NO_MEMORY, "no memory to train a head for %s", t->model);
}

/* Which blocks: those asked for, or the third, the middle one and the last, from which the model itself draws its token
 * (EAGLE-3 takes the third from the end). Of five blocks the first instead of the third; of fewer the last alone. */
static void choose_layers(struct runnel_training *t, uint32_t n)
{
    const uint32_t usual[3] = {n > 5 ? 2 : 0, n / 2, n - 1}, left_out = n >= 5 ? 0 : 2;
    runnel_eagle_options *o = &t->options;

    RN_ASSERT(n > 0 && o->n_layers <= RN_EAGLE_MAX_TAPS);
    if (o->n_layers > 0)
        return;
    o->n_layers = 3 - left_out;
    memcpy(o->layers, usual + left_out, o->n_layers * sizeof usual[0]);
    RN_ASSERT(o->n_layers == 1 || (o->layers[0] < o->layers[1] && o->layers[1] < o->layers[2]));
}

/* Where the part of the corpus ends that begins at `from`: behind a line, or a character if there is no line. */
static size_t part_end(const struct runnel_training *t, size_t from)
{
    size_t most = from + PART_BYTES, to;

    if (t->corpus_bytes - from <= PART_BYTES)
        return t->corpus_bytes;
    for (to = most; to > from; to--)
        if (t->corpus[to - 1] == '\n')
            return to;
    for (to = most; to > most - 3 && ((unsigned char)t->corpus[to] & 0xc0) == 0x80;)
        to--;
    return to;
}

/* Room for so many tokens more and one: never for none. */
static bool reserve_tokens(struct runnel_training *t, size_t more)
{
    size_t room = 2 * (t->n_tokens + more) + 1;
    int32_t *tokens;

    if (more < t->room_tokens - t->n_tokens)
        return true;
    tokens = rn_realloc(&t->engine->heap, t->tokens, room, sizeof *tokens);
    if (tokens == NULL)
        return false;
    t->tokens = tokens;
    t->room_tokens = room;
    return true;
}

static runnel_status tokenize_part(struct runnel_training *t, size_t from, size_t to)
{
    struct rn_heap *heap = &t->engine->heap;
    int32_t *part = NULL;
    size_t n;
    runnel_status status = rn_tokenize(t->vocab, heap, t->corpus + from, to - from, 0, &part, &n, &t->error);

    if (status != RUNNEL_OK)
        return status;
    if (reserve_tokens(t, n)) {
        memcpy(t->tokens + t->n_tokens, part, n * sizeof *part);
        t->n_tokens += n;
    } else {
        status = no_memory(t);
    }
    rn_free(heap, part);
    RN_ASSERT(t->n_tokens <= t->room_tokens);
    return status;
}

static runnel_status tokenize_corpus(struct runnel_training *t)
{
    runnel_status status = RUNNEL_OK;
    size_t to;

    for (size_t from = 0; from < t->corpus_bytes && status == RUNNEL_OK; from = to) {
        to = part_end(t, from);
        RN_CHECK(to > from && to <= t->corpus_bytes);
        status = rn_word_get(&t->cancel) != 0 ? RUNNEL_CANCELLED : tokenize_part(t, from, to);
    }
    if (status == RUNNEL_OK && t->n_tokens < LEAST_TEXT)
        return rn_error_set(&t->error, RUNNEL_INVALID, "the corpus has %zu tokens; %d are the least", t->n_tokens,
                            LEAST_TEXT);
    return status;
}

static runnel_status open_target(struct runnel_training *t)
{
    struct rn_heap *heap = &t->engine->heap;
    runnel_status status = rn_gguf_open(heap, t->model, &t->gguf, &t->error);

    if (status == RUNNEL_OK)
        rn_gguf_set_rows(t->gguf, &t->engine->architectures);
    if (status == RUNNEL_OK)
        status = rn_plan_new(heap, t->gguf, t->options.text_tokens, &t->plan, &t->error);
    if (status != RUNNEL_OK)
        return status;
    choose_layers(t, t->plan->n_layers);
    rn_plan_free(t->plan);
    t->plan = NULL;
    status = rn_plan_new_tapped(heap, t->gguf, t->options.text_tokens, t->options.layers, t->options.n_layers, &t->plan,
                                &t->error);
    if (status == RUNNEL_OK)
        status = rn_vocab_new(heap, t->gguf, t->plan->n_vocab, &t->vocab, &t->error);
    if (status == RUNNEL_OK)
        status = tokenize_corpus(t);
    t->text_tokens = t->n_tokens < t->options.text_tokens ? (uint32_t)t->n_tokens : t->options.text_tokens;
    return status;
}

static bool on_progress(void *user, float fraction)
{
    struct runnel_training *t = user;

    (void)fraction;
    return rn_word_get(&t->cancel) == 0;
}

static runnel_status prepare_target(struct runnel_training *t)
{
    struct rn_device *device = t->engine->devices[0];
    struct rn_heap *heap = &t->engine->heap;
    uint32_t n = (t->options.text_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    size_t tokens = t->text_tokens;

    t->limits = (struct rn_backend_limits){.max_rows = STEP_ROWS,
                                           .max_seqs = 1,
                                           .max_outs = STEP_ROWS,
                                           .n_blocks = n,
                                           .block_tokens = BLOCK_TOKENS,
                                           .context_tokens = t->options.text_tokens,
                                           .kv_type = RUNNEL_KV_F32};
    t->blocks = rn_alloc(heap, n, sizeof *t->blocks);
    t->embeddings = rn_alloc(heap, tokens * t->plan->embedding, sizeof(float));
    t->features = rn_alloc(heap, tokens * t->plan->features_width, sizeof(float));
    t->wanted = rn_alloc(heap, tokens * t->plan->n_vocab, sizeof(float));
    t->backend = device->kind->new_backend(device, heap);
    if (t->blocks == NULL || t->embeddings == NULL || t->features == NULL || t->wanted == NULL || t->backend == NULL)
        return no_memory(t);
    RN_CHECK(t->text_tokens <= n * BLOCK_TOKENS);
    for (uint32_t i = 0; i < n; i++)
        t->blocks[i] = i;
    return t->backend->ops->prepare(t->backend, t->plan, &t->limits, on_progress, t, &t->error);
}

static void on_pass_done(struct rn_step *pass)
{
    struct runnel_training *t = pass->user;

    rn_word_set(&t->pass_done, 1);
    rn_wake_notify(&t->pass_wake);
}

static runnel_status run_pass(struct runnel_training *t, struct rn_step_seq *seq, const int32_t *tokens, uint32_t first,
                              uint32_t n)
{
    RN_CHECK(n > 0 && n <= STEP_ROWS && first + n <= t->text_tokens);
    for (uint32_t i = 0; i < n; i++)
        t->rows[i] = (struct rn_step_row){.token = tokens[first + i], .position = first + i, .out = (int32_t)i};
    t->pass = (struct rn_step){.n_rows = n,
                               .n_seqs = 1,
                               .n_outs = n,
                               .rows = t->rows,
                               .seqs = seq,
                               .logits = t->wanted + (size_t)first * t->plan->n_vocab,
                               .features = t->features + (size_t)first * t->plan->features_width,
                               .on_done = on_pass_done,
                               .user = t};
    rn_word_set(&t->pass_done, 0);
    t->backend->ops->submit_async(t->backend, &t->pass);
    for (;;) {
        uint32_t ticket = rn_wake_ticket(&t->pass_wake);

        if (rn_word_get(&t->pass_done) != 0)
            return t->pass.status == RUNNEL_OK ? RUNNEL_OK
                                               : rn_error_set(&t->error, t->pass.status, "%s: a pass failed", t->model);
        rn_wake_wait(&t->pass_wake, ticket, -1, 0);
    }
}

static void to_distribution(float *x, uint32_t n)
{
    float most = x[0];
    double sum = 0;

    for (uint32_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] = expf(x[i] - most);
    for (uint32_t i = 0; i < n; i++)
        x[i] = (float)(x[i] / sum);
}

/* What the target makes of the text: its features, and its distributions in `wanted`. */
static runnel_status read_text(struct runnel_training *t, const int32_t *tokens)
{
    struct rn_step_seq seq = {.blocks = t->blocks, .n_blocks = (t->text_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS};
    const struct rn_weight *w = t->embedding;
    runnel_status status = RUNNEL_OK;

    RN_CHECK(w->cols == t->plan->embedding);
    for (uint32_t i = 0; i < t->text_tokens && status == RUNNEL_OK; i += STEP_ROWS)
        status = rn_word_get(&t->cancel) != 0
                     ? RUNNEL_CANCELLED
                     : run_pass(t, &seq, tokens, i, t->text_tokens - i < STEP_ROWS ? t->text_tokens - i : STEP_ROWS);
    for (uint32_t i = 0; i < t->text_tokens && status == RUNNEL_OK; i++) {
        RN_CHECK(tokens[i] >= 0 && (uint32_t)tokens[i] < w->rows);
        to_distribution(t->wanted + (size_t)i * t->plan->n_vocab, t->plan->n_vocab);
        w->type->decode((const char *)w->tensor->data + (size_t)tokens[i] * w->row_bytes,
                        t->embeddings + (size_t)i * w->cols, w->cols);
    }
    return status;
}

/* ---- The head ---- */

/* A layer of the target's own shape. */
static void fill_shape(const struct rn_plan *plan, struct rn_eagle_shape *shape)
{
    *shape = (struct rn_eagle_shape){.width = plan->embedding,
                                     .vocab = plan->n_vocab,
                                     .taps = plan->features_width / plan->embedding,
                                     .eps = 1e-5f,
                                     .rope_base = 10000.0f,
                                     .feed_forward = 4 * plan->embedding};
    for (uint32_t i = 0; i < plan->n_ops; i++) {
        const struct rn_op *op = &plan->ops[i];

        if (op->kind == RN_OP_RMS_NORM && op->eps > 0)
            shape->eps = (float)op->eps;
        if (op->kind == RN_OP_ATTENTION) {
            shape->heads = op->heads;
            shape->kv_heads = op->kv_heads;
            shape->head_dim = op->k_dim;
        }
        if (op->kind == RN_OP_GATE && plan->slots[op->a].width == plan->slots[op->b].width &&
            plan->slots[op->a].width < shape->feed_forward)
            shape->feed_forward = plan->slots[op->a].width;
    }
}

static const struct rn_op *op_into(const struct rn_plan *plan, int16_t slot, enum rn_op_kind kind)
{
    for (uint32_t i = plan->n_ops; i-- > 0;)
        if (plan->ops[i].kind == kind && plan->ops[i].out == slot)
            return &plan->ops[i];
    return NULL;
}

static bool decode_weight(struct runnel_training *t, const struct rn_weight *w, float **out)
{
    *out = rn_alloc(&t->engine->heap, (size_t)w->rows * w->cols, sizeof(float));
    if (*out != NULL)
        w->type->decode(w->tensor->data, *out, (size_t)w->rows * w->cols);
    return *out != NULL;
}

/* The output matrix; the embedding; and the final norm as the head's own to begin with. */
static runnel_status take_weights(struct runnel_training *t)
{
    const struct rn_plan *plan = t->plan;
    const struct rn_op *last = plan->logits_slot < 0 ? NULL : op_into(plan, plan->logits_slot, RN_OP_MATMUL);
    const struct rn_op *norm = last != NULL ? op_into(plan, last->a, RN_OP_RMS_NORM) : NULL;
    const struct rn_weight *w;

    if (plan->bidirectional || plan->ops[0].kind != RN_OP_EMBED || last == NULL || norm == NULL || norm->weight < 0)
        return rn_error_set(&t->error, RUNNEL_UNSUPPORTED, "%s: heads for %s models cannot be trained yet", t->model,
                            plan->architecture);
    t->embedding = &plan->weights[plan->ops[0].weight];
    w = &plan->weights[norm->weight];
    RN_CHECK(w->cols == t->trainer.spans[RN_EAGLE_OUT_NORM].rows * t->trainer.spans[RN_EAGLE_OUT_NORM].cols);
    w->type->decode(w->tensor->data, t->trainer.weights + t->trainer.spans[RN_EAGLE_OUT_NORM].offset, w->cols);
    return decode_weight(t, &plan->weights[last->weight], &t->output) ? RUNNEL_OK : no_memory(t);
}

static struct rn_view whole_corpus(const void *user, uint32_t index)
{
    const struct runnel_training *t = user;

    (void)index;
    return (struct rn_view){t->corpus, t->corpus_bytes};
}

static runnel_status begin_trainer(struct runnel_training *t)
{
    const runnel_eagle_options *o = &t->options;
    struct rn_trainer_options options = {o->steps, o->steps / 20 + 1, o->unroll, 0.8f, o->rate, 0.01f, 1.0f, o->seed};
    struct rn_fingerprint target = rn_fingerprint_model(t->gguf), corpus = rn_fingerprint_list(1, whole_corpus, t);
    struct rn_trainer_origin origin = {{0}, {0}, {0}};
    struct rn_eagle_shape shape;
    runnel_status status;

    memcpy(origin.target, target.bytes, sizeof origin.target);
    memcpy(origin.corpus, corpus.bytes, sizeof origin.corpus);
    memcpy(origin.tapped, o->layers, o->n_layers * sizeof *o->layers);
    fill_shape(t->plan, &shape);
    status = rn_trainer_init(&t->trainer, &t->engine->heap, &shape, &options, &origin);
    if (status == RUNNEL_INVALID)
        return rn_error_set(&t->error, RUNNEL_UNSUPPORTED, "%s: a head cannot have a layer of its shape", t->model);
    if (status == RUNNEL_OK)
        status = take_weights(t);
    if (status == RUNNEL_OK)
        status =
            rn_eagle_new(&t->engine->heap, &shape, t->text_tokens, o->unroll, rn_engine_gemm(), t->output, &t->eagle);
    if (status == RUNNEL_NO_MEMORY)
        return no_memory(t);
    if (status == RUNNEL_OK && o->resume && access(t->state_file, F_OK) == 0)
        status = rn_trainer_load(&t->trainer, t->state_file, &t->error);
    return status;
}

/* ---- The thread ---- */

static void set_float(struct rn_word *word, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    rn_word_set(word, bits);
}

static void tell(struct runnel_training *t)
{
    rn_word_set(&t->step, t->trainer.step);
    set_float(&t->loss, (float)t->trainer.loss[0]);
    set_float(&t->accepted, (float)t->trainer.accepted[0]);
    rn_wake_notify(&t->wake);
}

static runnel_status learn_step(struct runnel_training *t)
{
    const runnel_eagle_options *o = &t->options;
    struct rn_eagle_text text = {t->text_tokens, t->embeddings, t->features, t->wanted};
    struct rn_eagle_score score;

    rn_trainer_begin(&t->trainer, &score);
    for (uint32_t i = 0; i < o->texts; i++) {
        uint64_t place = rn_trainer_place(o->seed, t->trainer.step, i, t->n_tokens - t->text_tokens + 1);
        runnel_status status = read_text(t, t->tokens + place);

        RN_ASSERT(place + t->text_tokens <= t->n_tokens);
        if (status != RUNNEL_OK)
            return status;
        rn_trainer_add(&t->trainer, t->eagle, &text, o->texts, &score);
    }
    if (!rn_trainer_end(&t->trainer, &score))
        return rn_error_set(&t->error, RUNNEL_FORMAT, "step %u: the gradients are not numbers; a lower rate may help",
                            t->trainer.step + 1);
    return RUNNEL_OK;
}

static runnel_status keep_state(struct runnel_training *t)
{
    return t->state_file != NULL ? rn_trainer_save(&t->trainer, t->state_file, &t->error) : RUNNEL_OK;
}

static runnel_status train(struct runnel_training *t)
{
    runnel_status status = open_target(t);

    if (status == RUNNEL_OK)
        status = prepare_target(t);
    if (status == RUNNEL_OK)
        status = begin_trainer(t);
    if (status != RUNNEL_OK)
        return status;
    RN_ASSERT(t->text_tokens >= LEAST_TEXT && t->text_tokens <= t->options.text_tokens);
    tell(t);
    while (t->trainer.step < t->options.steps && status == RUNNEL_OK) {
        status = learn_step(t);
        if (status == RUNNEL_OK && t->trainer.step % SAVE_STEPS == 0)
            status = keep_state(t);
        tell(t);
    }
    if (status == RUNNEL_OK || status == RUNNEL_CANCELLED) {
        runnel_status kept = keep_state(t);

        status = kept != RUNNEL_OK ? kept : status;
    }
    return status == RUNNEL_OK ? rn_head_save(&t->trainer, t->text_tokens, true, t->head, &t->error) : status;
}

/* What the thread made. */
static void clear(struct runnel_training *t)
{
    struct rn_heap *heap = &t->engine->heap;

    rn_eagle_free(t->eagle);
    if (t->trainer.heap != NULL)
        rn_trainer_fini(&t->trainer);
    if (t->backend != NULL)
        t->backend->ops->free(t->backend);
    rn_plan_free(t->plan);
    rn_vocab_free(t->vocab);
    if (t->gguf != NULL)
        rn_gguf_free(t->gguf);
    rn_free(heap, t->tokens);
    rn_free(heap, t->blocks);
    rn_free(heap, t->embeddings);
    rn_free(heap, t->features);
    rn_free(heap, t->wanted);
    rn_free(heap, t->output);
}

static void *training_main(void *arg)
{
    struct runnel_training *t = arg;
    runnel_status status;

    (void)rn_thread_lower(RN_MOST_NICE); /* refused: it is only less polite */
    status = train(t);
    clear(t);
    if (status != RUNNEL_OK && status != RUNNEL_CANCELLED)
        rn_error_set(&t->error, status, "%s: %s", t->model, runnel_status_text(status));
    rn_word_set(&t->state, status == RUNNEL_OK          ? RUNNEL_TRAINING_DONE
                           : status == RUNNEL_CANCELLED ? RUNNEL_TRAINING_CANCELLED
                                                        : RUNNEL_TRAINING_FAILED);
    rn_wake_notify(&t->wake);
    return NULL;
}

/* ---- The host's side ---- */

/* False: the engine has as many as it can. */
static bool enter_list(struct runnel_training *t)
{
    for (t->place = 0; t->place < RN_MAX_TRAININGS; t->place++) {
        struct runnel_training *none = NULL;

        /* Release: who finds it there finds it whole; partner: the exchange in rn_trainings_end. */
        if (atomic_compare_exchange_strong_explicit(&t->engine->trainings.at[t->place], &none, t, memory_order_release,
                                                    memory_order_relaxed))
            return true;
    }
    return false;
}

/* Gives back all but the handle itself; its thread has ended, or has never been. The engine is not touched behind this.
 * True if it was still in the engine's list, whose hold on the handle is the caller's now. */
static bool leave_engine(struct runnel_training *t)
{
    struct rn_heap *heap = &t->engine->heap;
    struct runnel_training *listed = t;
    bool was_listed;

    rn_free(heap, t->model);
    rn_free(heap, t->head);
    rn_free(heap, t->state_file);
    rn_free(heap, t->corpus);
    t->model = t->head = t->state_file = t->corpus = NULL;
    /* Relaxed: what takes the place reads nothing of this one; partner: the exchange in rn_trainings_end. */
    was_listed = atomic_compare_exchange_strong_explicit(&t->engine->trainings.at[t->place], &listed, NULL,
                                                         memory_order_relaxed, memory_order_relaxed);
    rn_gate_leave(&t->engine->trainings.gate);
    return was_listed;
}

/* By the one who raised `ending`. As leave_engine. */
static bool end(struct runnel_training *t)
{
    rn_word_set(&t->cancel, 1);
    pthread_join(t->thread, NULL);
    RN_ASSERT(rn_word_get(&t->state) != RUNNEL_TRAINING_RUNNING);
    return leave_engine(t);
}

static void free_handle(struct runnel_training *t)
{
    struct rn_heap heap = t->heap;

    RN_ASSERT(t->model == NULL && t->corpus == NULL); /* what was the engine's has gone */
    rn_free(&heap, t);
}

/* Of one of the two holders. */
static void let_go(struct runnel_training *t)
{
    if (!rn_word_replace(&t->holders, 2, 1))
        free_handle(t);
}

/* All are told before one is waited for: each ends with the step that it is in. One that the host frees meanwhile is
 * ended there; the gate is empty when it has let go of the engine. */
void rn_trainings_end(struct runnel_engine *engine)
{
    struct runnel_training *taken[RN_MAX_TRAININGS];

    for (uint32_t i = 0; i < RN_MAX_TRAININGS; i++) {
        /* seq_cst: in front of the raise below, so that a host whose free finds `ending` up leaves this hold alone;
         * partners: enter_list, leave_engine. */
        taken[i] = atomic_exchange(&engine->trainings.at[i], NULL);
        runnel_training_cancel(taken[i]);
    }
    for (uint32_t i = 0; i < RN_MAX_TRAININGS; i++) {
        if (taken[i] == NULL)
            continue;
        if (rn_edge_raise(&taken[i]->ending))
            end(taken[i]);
        let_go(taken[i]);
    }
    rn_gate_close(&engine->trainings.gate);
    rn_gate_await_empty(&engine->trainings.gate);
}

static char *copied(struct runnel_engine *engine, const char *text, size_t n, bool *ok)
{
    char *copy = text != NULL ? rn_strndup(&engine->heap, text, n) : NULL;

    *ok = *ok && (text == NULL || copy != NULL);
    return copy;
}

static struct runnel_training *new_handle(struct runnel_engine *engine)
{
    struct runnel_training *t;
    struct rn_heap heap;

    rn_heap_init(&heap, &engine->heap.hook);
    t = rn_alloc_aligned(&heap, sizeof *t, alignof(struct runnel_training));
    if (t == NULL)
        return NULL;
    memset(t, 0, sizeof *t);
    t->engine = engine;
    t->heap = heap;
    t->process = engine->process;
    rn_word_set(&t->holders, 2);
    return t;
}

/* Of a path, NULL of NULL: the thread opens it later. */
static char *absolute(struct runnel_engine *engine, const char *path, bool *ok)
{
    char *kept = path != NULL ? rn_path_absolute(&engine->heap, path) : NULL;

    *ok = *ok && (path == NULL || kept != NULL);
    return kept;
}

/* What the training reads once the caller has gone on; false: no memory. */
static bool keep_texts(struct runnel_training *t, const char *model, const char *corpus, const char *head)
{
    bool ok = true;

    t->model = absolute(t->engine, model, &ok);
    t->head = absolute(t->engine, head, &ok);
    t->state_file = absolute(t->engine, t->options.state, &ok);
    t->corpus = copied(t->engine, corpus, t->corpus_bytes, &ok);
    return ok;
}

/* In the engine's list, and then with a thread. The engine ends trainings behind calls that hold it, so that it finds
 * none between the two. */
static runnel_status begin(struct runnel_training *t, const char *model, const char *corpus, const char *head,
                           runnel_error *error)
{
    bool inside = rn_gate_enter(&t->engine->trainings.gate);

    RN_CHECK(inside);
    if (!enter_list(t)) {
        rn_gate_leave(&t->engine->trainings.gate);
        return rn_error_set(error, RUNNEL_BUSY, "the engine has %u trainings, as many as it can", RN_MAX_TRAININGS);
    }
    rn_wake_init(&t->wake);
    rn_wake_init(&t->pass_wake);
    if (keep_texts(t, model, corpus, head) && rn_thread_start(&t->thread, training_main, t))
        return RUNNEL_OK;
    leave_engine(t);
    return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory or thread for a training");
}

static runnel_status begin_training(struct runnel_engine *engine, const char *model, const char *corpus,
                                    size_t corpus_bytes, const char *head, const runnel_eagle_options *options,
                                    runnel_training **out, runnel_error *error)
{
    struct runnel_training *t;
    runnel_status status = rn_eagle_files_check(&engine->heap, model, head, options->state, error);

    if (status != RUNNEL_OK)
        return status;
    if (engine->devices[0] == NULL)
        return rn_error_set(error, RUNNEL_CLOSED, "the engine has no compute threads");
    t = new_handle(engine);
    if (t == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a training");
    t->options = *options;
    t->corpus_bytes = corpus_bytes;
    status = begin(t, model, corpus, head, error);
    if (status == RUNNEL_OK)
        *out = t;
    else
        free_handle(t);
    return status;
}

runnel_status runnel_eagle_train(runnel_engine *engine, const char *model, const char *corpus, size_t corpus_bytes,
                                 const char *head, const runnel_eagle_options *given, runnel_training **out,
                                 runnel_error *error)
{
    runnel_eagle_options options;
    runnel_status status;

    rn_error_clear(error);
    if (read_options(given, &options, error) != RUNNEL_OK)
        return RUNNEL_INVALID;
    if (engine == NULL || model == NULL || corpus == NULL || head == NULL || out == NULL)
        return rn_error_set(error, RUNNEL_INVALID,
                            "a training needs an engine, a model, a corpus, a path for the head and a handle");
    if (rn_engine_check_process(engine, error) != RUNNEL_OK)
        return RUNNEL_STATE;
    if (!rn_engine_hold(engine))
        return rn_error_set(error, RUNNEL_CLOSED, "the engine is being freed");
    status = begin_training(engine, model, corpus, corpus_bytes, head, &options, out, error);
    rn_engine_let_go(engine, true);
    return status;
}

static float get_float(const struct rn_word *word)
{
    uint32_t bits = rn_word_get(word);
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

runnel_status runnel_training_wait(runnel_training *t, int64_t timeout_ms, runnel_training_progress *progress,
                                   runnel_error *error)
{
    runnel_training_progress now = {0};
    uint32_t ticket;

    rn_error_clear(error);
    if (t == NULL || progress == NULL || !rn_sized_known(progress->struct_size, sizeof now))
        return rn_error_set(error, RUNNEL_INVALID, "training progress: a NULL, or struct_size is not of this library");
    if (getpid() != t->process)
        return rn_error_set(error, RUNNEL_STATE, "the training is another process's, from which this one was forked");
    ticket = rn_wake_ticket(&t->wake);
    if (rn_word_get(&t->state) == RUNNEL_TRAINING_RUNNING)
        rn_wake_wait(&t->wake, ticket, rn_us_left(timeout_ms, 0), 0);
    now.state = (runnel_training_state)rn_word_get(&t->state);
    now.step = rn_word_get(&t->step);
    now.steps = t->options.steps;
    now.loss = get_float(&t->loss);
    now.accepted = get_float(&t->accepted);
    rn_sized_write(progress, progress->struct_size, &now, sizeof now);
    return now.state == RUNNEL_TRAINING_FAILED ? rn_error_set(error, t->error.status, "%s", t->error.message)
                                               : RUNNEL_OK;
}

void runnel_training_cancel(runnel_training *t)
{
    if (t == NULL)
        return;
    rn_word_set(&t->cancel, 1);
}

void runnel_training_free(runnel_training *t)
{
    if (t == NULL || getpid() != t->process)
        return;
    if (rn_edge_raise(&t->ending) && end(t))
        let_go(t); /* the list's hold */
    let_go(t);
}
