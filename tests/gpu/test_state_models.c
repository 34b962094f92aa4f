/* Plans with recurrent states on the CUDA device, emulated: logits against the reference backend's, and law 5: the same
 * bits however a sequence is cut into steps, whoever stands beside it, wherever its state lies, behind a copy of it
 * within the device and one by way of the host. One plan has every op with a state; the others are models'. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "model/build/build.h"
#include "tests/gpu/rigs/device_runner.h"
#include "tests/gpu/rigs/open_emulated.h"
#include "tests/model/model_edit.h"
#include "tests/support/shared.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"
#include "tests/support/nmse.h"

enum { N = 13, HALF = 6, CONTEXT = 32, BLOCK = 16, SEQS = 2, MAX_ROWS = 24, SLOTS = 5, MEMORY = 64 << 20 };

static struct rn_heap heap;
static struct rn_device *device;

/* ---- Runs ---- */

struct text {
    struct runner *r;
    float *logits; /* [N, n_vocab] */
};

/* Positions [from, to) of a text whose state is in a slot, beside so many rows of another sequence, whose state is in
 * `other`; before them a state is copied. */
struct span {
    uint32_t from, to, slot, company, other;
    const struct rn_step_state_copy *copy;
};

static int32_t token_at(const struct text *t, uint32_t i)
{
    return (int32_t)((i * 37 + 11) % t->r->plan->n_vocab);
}

static void run_span(const struct text *t, const struct span *span)
{
    static const uint32_t blocks[SEQS][CONTEXT / BLOCK] = {{3, 0}, {1, 2}};
    struct rn_step_seq seqs[SEQS] = {{.blocks = blocks[0], .n_blocks = 2}, {.blocks = blocks[1], .n_blocks = 2}};
    uint32_t states[SEQS] = {span->slot, span->other};
    struct rn_step_state_copy copies[SEQS];
    struct rn_step_row rows[MAX_ROWS];
    struct rn_step step = {.rows = rows,
                           .seqs = seqs,
                           .n_seqs = span->company > 0 ? 2 : 1,
                           .states = states,
                           .state_copies = copies,
                           .logits = t->logits + (size_t)span->from * t->r->plan->n_vocab};

    if (span->copy != NULL)
        copies[step.n_state_copies++] = *span->copy;
    if (span->company > 0)
        copies[step.n_state_copies++] = (struct rn_step_state_copy){RN_NO_STATE, span->other};
    for (uint32_t i = 0; i < span->company; i++)
        rows[step.n_rows++] = (struct rn_step_row){token_at(t, 3 * i + 1), i, 1, -1};
    for (uint32_t i = span->from; i < span->to; i++)
        rows[step.n_rows++] = (struct rn_step_row){token_at(t, i), i, 0, (int32_t)step.n_outs++};
    run_step(t->r, &step);
}

/* The whole text in steps of `chunk` rows. */
static void run_text(const struct text *t, uint32_t chunk, uint32_t slot, uint32_t company, uint32_t other)
{
    const struct rn_step_state_copy fresh = {RN_NO_STATE, slot};

    for (uint32_t at = 0; at < N; at += chunk) {
        const struct span span = {at, N - at < chunk ? N : at + chunk, slot, company, other, at == 0 ? &fresh : NULL};

        run_span(t, &span);
    }
}

static void on_copied(struct rn_host_copies *copies)
{
    sem_post(copies->user);
}

static void copy_state(struct runner *r, uint32_t slot, bool to_host, void *bytes)
{
    struct rn_host_copy copy = {.block = slot, .to_host = to_host, .host = bytes, .is_state = true};
    struct rn_host_copies copies = {.n = 1, .items = &copy, .on_done = on_copied, .user = &r->done};

    r->backend->ops->copy_async(r->backend, &copies);
    sem_wait(&r->done);
    assert_int_equal(copies.status, RUNNEL_OK);
}

/* The second half from a copy of the state behind the first, and from one that has been in the host's memory. */
static void run_forks(const struct text *t, const float *want)
{
    const struct rn_step_state_copy fresh = {RN_NO_STATE, 1}, kept = {1, 2};
    const struct span begin = {0, HALF, 1, 0, 0, &fresh}, on = {HALF, N, 1, 0, 0, &kept};
    const struct span from_copy = {HALF, N, 2, 3, 0, NULL}, from_host = {HALF, N, 4, 0, 0, NULL};
    size_t bytes = t->r->backend->ops->state_bytes(t->r->backend), n = (size_t)N * t->r->plan->n_vocab;
    unsigned char *state = t->r->backend->ops->host_alloc(t->r->backend, bytes);

    assert_int_equal(bytes, t->r->plan->state_bytes);
    assert_non_null(state);
    run_span(t, &begin);
    run_span(t, &on);
    assert_memory_equal(t->logits, want, n * sizeof(float));
    copy_state(t->r, 2, true, state);
    memset(t->logits + (size_t)HALF * t->r->plan->n_vocab, 0, (N - HALF) * t->r->plan->n_vocab * sizeof(float));
    run_span(t, &from_copy);
    assert_memory_equal(t->logits, want, n * sizeof(float));
    copy_state(t->r, 4, false, state);
    memset(t->logits + (size_t)HALF * t->r->plan->n_vocab, 0, (N - HALF) * t->r->plan->n_vocab * sizeof(float));
    run_span(t, &from_host);
    assert_memory_equal(t->logits, want, n * sizeof(float));
    t->r->backend->ops->host_free(t->r->backend, state);
}

/* ---- Backends ---- */

static struct rn_backend_limits limits_of(const struct rn_plan *plan)
{
    return (struct rn_backend_limits){.max_rows = MAX_ROWS,
                                      .max_seqs = SEQS,
                                      .max_outs = MAX_ROWS,
                                      .n_blocks = SEQS * CONTEXT / BLOCK,
                                      .block_tokens = BLOCK,
                                      .context_tokens = plan->context_tokens < CONTEXT ? plan->context_tokens : CONTEXT,
                                      .kv_type = RUNNEL_KV_F32,
                                      .n_states = SLOTS};
}

static void open_cuda(struct runner *r, const struct rn_plan *plan, const char *name)
{
    const struct rn_backend_limits limits = limits_of(plan);

    open_on_device(r, &heap, device, name, plan, &limits);
}

static float *new_logits(const struct rn_plan *plan)
{
    float *logits = rn_calloc(&heap, (size_t)N * plan->n_vocab, sizeof(float));

    assert_non_null(logits);
    return logits;
}

static void check_ways(struct runner *cuda, const float *first)
{
    static const struct {
        uint32_t chunk, slot, company, other;
    } ways[] = {{1, 3, 0, 0}, {5, 0, 4, 1}, {9, 4, 1, 2}};
    size_t n = (size_t)N * cuda->plan->n_vocab;
    struct text text = {cuda, new_logits(cuda->plan)};

    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        memset(text.logits, 0, n * sizeof(float));
        run_text(&text, ways[i].chunk, ways[i].slot, ways[i].company, ways[i].other);
        assert_memory_equal(text.logits, first, n * sizeof(float));
    }
    run_forks(&text, first);
    rn_free(&heap, text.logits);
}

static void check_plan(const char *name, const struct rn_plan *plan, double limit)
{
    size_t n = (size_t)N * plan->n_vocab;
    struct runner cuda, reference;
    struct text text, want;
    double error;

    assert_true(plan->state_bytes > 0);
    open_cuda(&cuda, plan, name);
    text = (struct text){&cuda, new_logits(plan)};
    want = (struct text){&reference, new_logits(plan)};
    open_runner(&reference, &heap, plan, NULL, 1, &cuda.limits);
    run_text(&want, N, 0, 0, 0);
    close_runner(&reference);
    run_text(&text, N, 2, 0, 0);
    error = nmse(text.logits, want.logits, n);
    print_message("%s: NMSE %.2g\n", name, error);
    if (!(error <= limit))
        fail_msg("%s: NMSE %.3g, above %.3g", name, error, limit);
    check_ways(&cuda, text.logits);
    close_on_device(&cuda);
    rn_free(&heap, text.logits);
    rn_free(&heap, want.logits);
}

/* ---- A plan with every op ---- */

enum { WIDTH = 64, VOCAB = 24, HEADS = 2, K_DIM = 12, V_DIM = 16, CHANNELS = 40, BLOCK_OF = 3, POOL = 1 << 18 };

static struct {
    struct model_edit edit;
    struct writer bytes;
    float pool[POOL];
    uint32_t used;
} made;

static void add(const char *name, uint32_t cols, uint32_t rows, float middle, float reach)
{
    float *data = &made.pool[made.used];
    uint64_t random = made.used + 1;

    made.used += cols * rows;
    assert_true(made.used <= POOL);
    for (uint32_t i = 0; i < cols * rows; i++)
        data[i] = middle + reach * ((float)(rn_splitmix64(&random) >> 40) / (1 << 23) - 1);
    edit_add_tensor(&made.edit, name, cols, rows, data);
}

static const float usual = 0.2f; /* of a product's weights: values keep about their size */

static void add_tensors(void)
{
    add("token_embd.weight", WIDTH, VOCAB, 0, 1);
    add("output_norm.weight", WIDTH, 1, 1, 0.2f);
    add("norm.weight", WIDTH, 1, 1, 0.2f);
    add("conv.weight", 4, WIDTH, 0, 0.5f);
    add("conv.bias", WIDTH, 1, 0, 0.2f);
    add("6.a.weight", WIDTH, HEADS * (2 * K_DIM + V_DIM), 0, usual);
    add("6.b.weight", WIDTH, HEADS * K_DIM, 0, usual);
    add("6.first.weight", HEADS * K_DIM, 1, 0, 1);
    add("6.out.weight", HEADS * V_DIM, WIDTH, 0, usual);
    add("7.a.weight", WIDTH, HEADS * (2 * K_DIM + V_DIM), 0, usual);
    add("7.b.weight", WIDTH, 3 * HEADS * K_DIM, 0, usual);
    add("7.out.weight", HEADS * V_DIM, WIDTH, 0, usual);
    add("g.a.weight", WIDTH, HEADS * (2 * K_DIM + V_DIM), 0, usual);
    add("g.b.weight", WIDTH, HEADS * K_DIM, 0, usual);
    add("g.out.weight", HEADS * V_DIM, WIDTH, 0, usual);
    add("d.a.weight", WIDTH, 2 * K_DIM, 0, usual / 4);
    add("d.b.weight", WIDTH, HEADS * (V_DIM + K_DIM + 1), 0, usual);
    add("d.out.weight", HEADS * V_DIM, WIDTH, 0, usual);
    add("s.a.weight", WIDTH, HEADS * V_DIM + 2 * K_DIM, 0, usual);
    add("s.b.weight", WIDTH, HEADS, 0, usual);
    add("s.decay.weight", 1, HEADS, -1, 0.5f);
    add("s.skip.weight", HEADS, 1, 0, 1);
    add("s.out.weight", HEADS * V_DIM, WIDTH, 0, usual);
    add("c.a.weight", WIDTH, CHANNELS + 2 * K_DIM, 0, usual);
    add("c.b.weight", WIDTH, CHANNELS, 0, usual);
    add("c.decay.weight", K_DIM, CHANNELS, -1, 0.5f);
    add("c.skip.weight", CHANNELS, 1, 0, 1);
    add("c.out.weight", CHANNELS, WIDTH, 0, usual);
    add("places.weight", WIDTH, BLOCK_OF, 0, 1);
}

/* x + out · op(a · n, act(b · n) * factor), where n is the norm of x, of tensors whose names begin with `stem`. */
static int16_t build_part(struct rn_build *b, int16_t x, const char *stem, struct rn_op op, uint32_t a_width,
                          uint32_t b_width, enum rn_activation act, double factor)
{
    int16_t normed = rn_build_rms_norm(b, x, "norm.weight"), out;
    uint32_t width = op.heads * op.v_dim;
    char name[64];

    snprintf(name, sizeof name, "%s.a", stem);
    op.a = rn_build_linear(b, normed, name, a_width);
    snprintf(name, sizeof name, "%s.b", stem);
    op.b = rn_build_activate(b, act, rn_build_linear(b, normed, name, b_width));
    rn_build_scale(b, op.b, factor);
    op.layer = rn_build_state(b, (uint64_t)width * op.k_dim);
    op.out = rn_build_slot(b, width, false);
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
    rn_build_release(b, op.b);
    rn_build_release(b, normed);
    snprintf(name, sizeof name, "%s.out", stem);
    out = rn_build_linear(b, op.out, name, WIDTH);
    rn_build_release(b, op.out);
    return rn_build_add(b, x, out);
}

static struct rn_op op_of(const struct rn_build *b, enum rn_op_kind kind, uint32_t heads, uint32_t v_dim)
{
    struct rn_op op = rn_build_empty(b, kind);

    op.heads = heads;
    op.k_dim = K_DIM;
    op.v_dim = v_dim;
    op.scale = 0.5f;
    return op;
}

static int16_t build_linear(struct rn_build *b, int16_t x)
{
    struct rn_op op = op_of(b, RN_OP_WKV6, HEADS, V_DIM);
    uint32_t keys = HEADS * K_DIM, a_width = 2 * keys + HEADS * V_DIM;

    op.scale = 1;
    op.weight = rn_build_values(b, "6.first.weight", keys, 1, false);
    x = build_part(b, x, "6", op, a_width, keys, RN_ACT_SIGMOID, 1);
    op = op_of(b, RN_OP_WKV7, HEADS, V_DIM);
    x = build_part(b, x, "7", op, a_width, 3 * keys, RN_ACT_SIGMOID, 0.25);
    x = build_part(b, x, "g", op, a_width, keys, RN_ACT_SIGMOID, 1);
    op.kind = RN_OP_GATED_DELTA;
    op.kv_heads = 1;
    op.group = K_DIM;
    return build_part(b, x, "d", op, 2 * K_DIM, HEADS * (V_DIM + K_DIM + 1), RN_ACT_SIGMOID, 1);
}

static int16_t build_scans(struct rn_build *b, int16_t x)
{
    struct rn_op op = op_of(b, RN_OP_SCAN, HEADS, V_DIM);

    op.kv_heads = 1;
    op.weight = rn_build_values(b, "s.decay.weight", 1, HEADS, false);
    op.bias = rn_build_vector(b, "s.skip.weight", HEADS, false);
    x = build_part(b, x, "s", op, HEADS * V_DIM + 2 * K_DIM, HEADS, RN_ACT_SOFTPLUS, 1);
    op.heads = CHANNELS;
    op.v_dim = 1;
    op.weight = rn_build_values(b, "c.decay.weight", K_DIM, CHANNELS, false);
    op.bias = rn_build_vector(b, "c.skip.weight", CHANNELS, false);
    return build_part(b, x, "c", op, CHANNELS + 2 * K_DIM, CHANNELS, RN_ACT_SOFTPLUS, 1);
}

/* x + a row for every so many positions. */
static int16_t build_compressed(struct rn_build *b, int16_t x)
{
    struct rn_op op = rn_build_empty(b, RN_OP_COMPRESS);

    op.a = op.b = x;
    op.per = BLOCK_OF;
    op.k_dim = WIDTH;
    op.weight = rn_build_matrix(b, "places.weight", WIDTH, BLOCK_OF, 0, false);
    op.layer = rn_build_state(b, 2 * (uint64_t)BLOCK_OF * WIDTH);
    op.out = rn_build_slot(b, WIDTH, false);
    rn_build_op(b, &op);
    return rn_build_add(b, x, op.out);
}

static void build_all(struct rn_build *b)
{
    int32_t embedding = rn_build_matrix(b, "token_embd.weight", WIDTH, VOCAB, 0, false);
    int16_t x = rn_build_embed(b, embedding, 1), y = rn_build_conv(b, x, "conv", 4, true);

    x = rn_build_add(b, x, y);
    x = rn_build_add(b, rn_build_shift(b, x), x);
    x = build_compressed(b, build_scans(b, build_linear(b, x)));
    rn_build_head(b, x, embedding);
}

static void every_op(void **state)
{
    const struct rn_arch arch = {.name = "plain", .flags = RN_ARCH_NO_ROPE, .build = build_all};
    runnel_error error = {0};
    struct rn_build b = {.error = &error};
    struct rn_gguf *gguf;
    struct rn_plan *plan;

    (void)state;
    edit_text(&made.edit, "general.architecture", "plain");
    edit_u32(&made.edit, "plain.block_count", 1);
    edit_u32(&made.edit, "plain.context_length", CONTEXT);
    edit_u32(&made.edit, "plain.embedding_length", WIDTH);
    edit_u32(&made.edit, "plain.attention.head_count", 1);
    edit_f32(&made.edit, "plain.attention.layer_norm_rms_epsilon", 1e-5f);
    add_tensors();
    edit_write(&made.edit, &made.bytes);
    assert_int_equal(rn_gguf_parse(&heap, made.bytes.bytes, made.bytes.n, "test.gguf", &gguf, NULL), RUNNEL_OK);
    if (rn_plan_make(&b, &heap, gguf, &arch, 0, &plan) != RUNNEL_OK)
        fail_msg("%s", error.message);
    check_plan("every op", plan, 1e-7);
    rn_plan_free(plan);
    rn_gguf_free(gguf);
    w_free(&made.bytes);
}

/* ---- Models ---- */

#define LIMIT 1e-7 /* activations have 16 bits */

static void check_file(const char *name, struct rn_gguf *gguf)
{
    runnel_error error = {0};
    struct rn_plan *plan;

    if (rn_plan_new(&heap, gguf, CONTEXT, &plan, &error) != RUNNEL_OK)
        fail_msg("%s: %s", name, error.message);
    check_plan(name, plan, LIMIT);
    rn_plan_free(plan);
    rn_gguf_free(gguf);
}

static void made_models(void **state)
{
    static const char *const names[] = {"lfm2-made-dense", "rwkv6qwen2-made", "rwkv7-made", "plamo2-made",
                                        "glm5-next-made"};
    runnel_error error = {0};
    struct rn_gguf *gguf;
    char path[256];

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct writer w = {0};

        snprintf(path, sizeof path, MADE_TEXT("%s"), names[i]);
        made_model_write(path, &w);
        if (rn_gguf_parse(&heap, w.bytes, w.n, path, &gguf, &error) != RUNNEL_OK)
            fail_msg("%s: %s", path, error.message);
        check_file(names[i], gguf);
        w_free(&w);
    }
}

static void shared_models(void **state)
{
    static const char *const names[] = {"mamba-dense", "mamba2-dense", "falcon-h1-dense", "qwen35-dense"};
    char file[128], path[1024];
    runnel_error error = {0};
    struct rn_gguf *gguf;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(file, sizeof file, "oracles/arch/%s.gguf", names[i]);
        if (!shared_find(file, path, sizeof path))
            skip();
        if (rn_gguf_open(&heap, path, &gguf, &error) != RUNNEL_OK)
            fail_msg("%s", error.message);
        check_file(names[i], gguf);
    }
}

/* A plan with states wants slots for them. */
static void no_slots(void **state)
{
    runnel_error error = {0};
    struct writer w = {0};
    struct rn_backend_limits limits;
    struct rn_backend *backend;
    struct rn_gguf *gguf;
    struct rn_plan *plan;

    (void)state;
    made_model_write(MADE_TEXT("lfm2-made-dense"), &w);
    assert_int_equal(rn_gguf_parse(&heap, w.bytes, w.n, "made.gguf", &gguf, &error), RUNNEL_OK);
    assert_int_equal(rn_plan_new(&heap, gguf, CONTEXT, &plan, &error), RUNNEL_OK);
    limits = limits_of(plan);
    limits.n_states = 0;
    backend = device->kind->new_backend(device, &heap);
    assert_int_equal(backend->ops->prepare(backend, plan, &limits, NULL, NULL, &error), RUNNEL_INVALID);
    backend->ops->free(backend);
    rn_plan_free(plan);
    rn_gguf_free(gguf);
    w_free(&w);
}

static int setup(void **state)
{
    (void)state;
    rn_heap_init(&heap, NULL);
    device = open_emulated(&heap, MEMORY);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    device->kind->close(device);
    assert_int_equal(rn_heap_blocks(&heap), 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_op), cmocka_unit_test(made_models),
                                       cmocka_unit_test(shared_models), cmocka_unit_test(no_slots)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
