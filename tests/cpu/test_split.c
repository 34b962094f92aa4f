/* A model split between two devices (model/cut.h, model/split.h): both are the CPU here, so the split model must give
 * the bits of the whole one, for every architecture, behind every block at which its plan can be cut. Then what else a
 * backend does: blocks and states in the host's memory, layers with windows, trees; and what is refused. Draws, rings
 * of steps and stops are in test_draw.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/cut.h"
#include "model/kv_size.h"
#include "model/split.h"
#include "tests/base/refusing.h"
#include "tests/cpu/made_text.h"
#include "tests/cpu/split_runner.h"
#include "tests/support/shared.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"
#include "tests/slow.h"

#define WITH_KV "gemma3-made"    /* blocks of attention, with windows */
#define WITH_STATES "mamba-made" /* of recurrent states */
#define MIXED "plamo2-made"      /* of both */

enum { THREADS = 2, CUT = 4, EVERY = UNLESS_SANITIZED(1, 12) }; /* models that are looked at: each runs the same code */

static struct rn_heap heap;
static uint32_t n_wrong, n_cut, n_whole; /* complaints; cuts that were tried; models of several blocks without one */

/* Models whose blocks come again behind the last one. */
static const char *const uncut[] = {"hrm_text-made", "nanbeige-made-loops", "nanbeige-made-loops-bare"};

static void complain(const char *name, const char *what, uint32_t n)
{
    print_message("%s: cut behind %u blocks: %s\n", name, n, what);
    n_wrong++;
}

static bool must_be_whole(const char *name)
{
    for (size_t i = 0; i < sizeof uncut / sizeof uncut[0]; i++)
        if (strcmp(name, uncut[i]) == 0)
            return true;
    return false;
}

/* What both parts have together is what the whole plan has. */
static void check_sizes(const char *name, const struct rn_plan *plan, uint32_t n, const struct split_runner *s)
{
    const struct rn_plan *front = s->parts[0], *back = s->parts[1];

    if (front->n_kv_layers + back->n_kv_layers != plan->n_kv_layers ||
        rn_plan_kv_bytes(front, RUNNEL_KV_Q8) + rn_plan_kv_bytes(back, RUNNEL_KV_Q8) !=
            rn_plan_kv_bytes(plan, RUNNEL_KV_Q8))
        complain(name, "the parts' caches are not the whole one's", n);
    if (front->state_bytes + back->state_bytes != plan->state_bytes)
        complain(name, "the parts' states are not the whole one's", n);
    if (front->weight_bytes >= plan->weight_bytes || back->weight_bytes >= plan->weight_bytes)
        complain(name, "the parts' weights are not a part of the whole one's", n);
}

static void check_cut(const char *name, const struct rn_plan *plan, uint32_t n, const struct made_result *want)
{
    uint32_t n_rows = made_rows(name);
    struct rn_backend_limits limits = made_limits(plan, n_rows);
    struct made_result got = made_result_new(&heap, plan, n_rows);
    struct split_runner s;

    open_split(&s, &heap, plan, n, THREADS, &limits);
    check_sizes(name, plan, n, &s);
    made_text_run(&s.runner, n_rows, n_rows, &got);
    if (!made_result_same(&got, want, plan, n_rows))
        complain(name, "other bits than the whole model's", n);
    if (!plan->bidirectional) {
        made_text_run(&s.runner, n_rows, CUT, &got);
        if (!made_result_same(&got, want, plan, n_rows))
            complain(name, "other bits in several steps", n);
    }
    close_split(&s);
    made_result_free(&heap, &got);
    n_cut++;
}

/* Frees the file. */
static void run_model(const char *name, struct rn_gguf *gguf)
{
    uint32_t n_rows = made_rows(name), before = n_cut;
    struct rn_backend_limits limits;
    struct made_result want;
    runnel_error error = {0};
    struct rn_plan *plan;
    struct runner r;

    if (rn_plan_new(&heap, gguf, 0, &plan, &error) != RUNNEL_OK)
        fail_msg("%s: %s", name, error.message);
    limits = made_limits(plan, n_rows);
    want = made_result_new(&heap, plan, n_rows);
    open_runner(&r, &heap, plan, rn_level_best(), THREADS, &limits);
    made_text_run(&r, n_rows, n_rows, &want);
    close_runner(&r);
    for (uint32_t n = 1; n < plan->n_layers; n++)
        if (rn_plan_can_cut(plan, n))
            check_cut(name, plan, n, &want);
    if (plan->n_layers > 1 && (before == n_cut) != must_be_whole(name))
        complain(name, before == n_cut ? "none is possible" : "one is possible", 0);
    n_whole += plan->n_layers > 1 && before == n_cut;
    made_result_free(&heap, &want);
    rn_plan_free(plan);
    rn_gguf_free(gguf);
}

static void made(void **state)
{
#define MADE(name, context) name,
    static const char *const names[] = {MADE_MODELS(MADE) FORMULA_MODELS(MADE)};
#undef MADE
    runnel_error error = {0};
    struct rn_gguf *gguf;
    char path[256];

    (void)state;
    n_wrong = n_cut = n_whole = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i += EVERY) {
        struct writer w = {0};

        snprintf(path, sizeof path, MADE_TEXT("%s"), names[i]);
        made_model_write(path, &w);
        if (rn_gguf_parse(&heap, w.bytes, w.n, path, &gguf, &error) != RUNNEL_OK)
            fail_msg("%s: %s", path, error.message);
        run_model(names[i], gguf);
        w_free(&w);
    }
    print_message("%u cuts, %u models without one\n", n_cut, n_whole);
    assert_int_equal(n_wrong, 0);
    assert_true(n_cut > sizeof names / sizeof names[0] / EVERY / 2);
}

static void shared_ones(void **state)
{
#define ARCH(name, context) name,
    static const char *const names[] = {ARCH_MODELS(ARCH)};
#undef ARCH
    char file[128], path[1024];
    runnel_error error = {0};
    struct rn_gguf *gguf;

    (void)state;
    n_wrong = n_cut = n_whole = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i += EVERY) {
        snprintf(file, sizeof file, "oracles/arch/%s.gguf", names[i]);
        if (!shared_find(file, path, sizeof path))
            skip();
        if (rn_gguf_open(&heap, path, &gguf, &error) != RUNNEL_OK)
            fail_msg("%s", error.message);
        run_model(names[i], gguf);
    }
    print_message("%u cuts, %u models without one\n", n_cut, n_whole);
    assert_int_equal(n_wrong, 0);
    assert_true(n_cut > sizeof names / sizeof names[0] / EVERY / 2);
}

/* ---- A tiny model that is in the repository ---- */

static struct rn_gguf *open_made(const char *name, struct writer *w, struct rn_plan **plan)
{
    runnel_error error = {0};
    struct rn_gguf *gguf;
    char path[256];

    snprintf(path, sizeof path, MADE_TEXT("%s"), name);
    memset(w, 0, sizeof *w);
    made_model_write(path, w);
    if (rn_gguf_parse(&heap, w->bytes, w->n, path, &gguf, &error) != RUNNEL_OK ||
        rn_plan_new(&heap, gguf, 0, plan, &error) != RUNNEL_OK)
        fail_msg("%s: %s", path, error.message);
    return gguf;
}

static void on_copied(struct rn_host_copies *copies)
{
    sem_post(copies->user);
}

static void copy(struct runner *r, struct rn_host_copy *items, uint32_t n)
{
    struct rn_host_copies copies = {.n = n, .items = items, .on_done = on_copied, .user = &r->done};

    r->backend->ops->copy_async(r->backend, &copies);
    sem_wait(&r->done);
    assert_int_equal(copies.status, RUNNEL_OK);
}

/* The last rows of a text, behind what blocks and a state brought from the host's memory say of those before. */
static void run_rest(struct runner *r, uint32_t from, uint32_t n_rows, const uint32_t *block, const uint32_t *slot,
                     float *logits)
{
    struct rn_step_seq seq = {.blocks = block, .n_blocks = 1};
    struct rn_step_row rows[32];
    struct rn_step step = {.rows = rows, .seqs = &seq, .n_seqs = 1, .logits = logits};

    if (r->limits.n_states > 0)
        step.states = slot;
    for (uint32_t i = from; i < n_rows; i++, step.n_outs++)
        rows[step.n_rows++] =
            (struct rn_step_row){(int32_t)(i * 37 + 11) % (int32_t)r->plan->n_vocab, i, 0, (int32_t)step.n_outs};
    run_step(r, &step);
}

/* Runs the first FROM rows, takes block and state to the host, and goes on with them in another block and slot. */
static void check_host(const char *name)
{
    enum { FROM = 5, ROWS = 9, BLOCK = 3, SLOT = 0 };
    static const uint32_t block = BLOCK, slot = SLOT;
    struct writer w;
    struct rn_plan *plan;
    struct rn_gguf *gguf = open_made(name, &w, &plan);
    struct rn_backend_limits limits = made_limits(plan, ROWS);
    struct made_result want = made_result_new(&heap, plan, ROWS), got = made_result_new(&heap, plan, ROWS);
    struct split_runner s;
    struct rn_backend *b;
    struct rn_host_copy items[2];
    size_t bytes;
    void *host;

    open_split(&s, &heap, plan, 1, THREADS, &limits);
    b = s.runner.backend;
    made_text_run(&s.runner, ROWS, ROWS, &want);
    made_text_run(&s.runner, FROM, FROM, &got);
    bytes = b->ops->block_bytes(b) + b->ops->state_bytes(b);
    assert_true(bytes > 0 && b->ops->state_bytes(b) == plan->state_bytes);
    host = b->ops->host_alloc(b, bytes);
    assert_non_null(host);
    items[0] = (struct rn_host_copy){.block = 2, .n_positions = FROM, .to_host = true, .host = host};
    items[1] = (struct rn_host_copy){
        .block = 1, .to_host = true, .host = (char *)host + b->ops->block_bytes(b), .is_state = true};
    copy(&s.runner, items, plan->state_bytes > 0 ? 2 : 1);
    items[0].block = BLOCK;
    items[1].block = SLOT;
    items[0].to_host = items[1].to_host = false;
    copy(&s.runner, items, plan->state_bytes > 0 ? 2 : 1);
    run_rest(&s.runner, FROM, ROWS, &block, &slot, got.logits);
    assert_memory_equal(got.logits, want.logits + (size_t)FROM * plan->n_vocab,
                        (size_t)(ROWS - FROM) * plan->n_vocab * sizeof(float));
    b->ops->host_free(b, host);
    close_split(&s);
    made_result_free(&heap, &want);
    made_result_free(&heap, &got);
    rn_plan_free(plan);
    rn_gguf_free(gguf);
    w_free(&w);
}

static void host_copies(void **state)
{
    (void)state;
    check_host(WITH_KV);
    check_host(WITH_STATES);
    check_host(MIXED);
}

/* ---- Windows and trees: the whole model runs the same steps ---- */

/* Runs both, and compares their logits. */
static void run_both(struct runner *whole, struct runner *split, struct rn_step *step)
{
    size_t bytes = (size_t)step->n_outs * whole->plan->n_vocab * sizeof(float);
    float *want = rn_alloc(&heap, bytes, 1), *got = rn_alloc(&heap, bytes, 1);

    assert_true(want != NULL && got != NULL && step->n_outs > 0);
    step->logits = want;
    run_step(whole, step);
    step->logits = got;
    run_step(split, step);
    assert_memory_equal(got, want, bytes);
    rn_free(&heap, want);
    rn_free(&heap, got);
}

/* Layers with windows lie in blocks of their own, of which a row sees the last ones. */
static void windows(void **state)
{
    enum { ROWS = 40, STEP = 8, BLOCK = 4, TABLE = ROWS / BLOCK };
    uint32_t blocks[TABLE], own[TABLE], n_cuts = 0;
    struct rn_step_seq seq = {.blocks = blocks, .n_blocks = TABLE, .windows = own, .n_windows = TABLE};
    struct rn_step_row rows[STEP];
    struct writer w;
    struct rn_plan *plan;
    struct rn_gguf *gguf = open_made(WITH_KV, &w, &plan);
    struct rn_backend_limits limits = made_limits(plan, STEP);
    struct split_runner s;
    struct runner r;

    (void)state;
    limits.block_tokens = BLOCK;
    limits.n_blocks = limits.n_windows = TABLE;
    limits.window = rn_plan_window(plan);
    assert_true(limits.window > 0 && rn_kv_size_first_window(&limits, ROWS - 1) > 0);
    for (uint32_t n = 1; n < plan->n_layers; n++, n_cuts++) {
        open_runner(&r, &heap, plan, rn_level_best(), THREADS, &limits);
        open_split(&s, &heap, plan, n, THREADS, &limits);
        for (uint32_t at = 0; at < ROWS; at += STEP) {
            struct rn_step step = {.rows = rows, .seqs = &seq, .n_seqs = 1, .n_rows = STEP, .n_outs = STEP};

            for (uint32_t i = 0; i < TABLE; i++) {
                blocks[i] = (i * 3 + 1) % TABLE;
                own[i] = i < rn_kv_size_first_window(&limits, at) ? RN_NO_BLOCK : (i * 7 + 2) % TABLE;
            }
            for (uint32_t i = 0; i < STEP; i++)
                rows[i] =
                    (struct rn_step_row){(int32_t)((at + i) * 37 + 11) % (int32_t)plan->n_vocab, at + i, 0, (int32_t)i};
            run_both(&r, &s.runner, &step);
        }
        close_split(&s);
        close_runner(&r);
    }
    assert_true(n_cuts > 1);
    rn_plan_free(plan);
    rn_gguf_free(gguf);
    w_free(&w);
}

/* A tree of candidates behind a text; then its second branch is true, and moves to its positions. */
static void trees(void **state)
{
    enum { TEXT = 5, TREE = 5 };
    static const int32_t parents[TREE] = {-1, 0, 1, 0, 3};
    static const uint32_t blocks[2] = {2, 0};
    struct rn_step_seq seq = {.blocks = blocks, .n_blocks = 2};
    struct rn_step_move moves[] = {{0, TEXT + 3, TEXT + 1}, {0, TEXT + 4, TEXT + 2}};
    struct rn_step_row rows[TREE];
    struct rn_step step = {.rows = rows, .seqs = &seq, .n_seqs = 1, .n_rows = TEXT, .n_outs = TEXT};
    struct writer w;
    struct rn_plan *plan;
    struct rn_gguf *gguf = open_made(WITH_KV, &w, &plan);
    struct rn_backend_limits limits = made_limits(plan, 8);
    struct split_runner s;
    struct runner r;

    (void)state;
    limits.tree_depth = 4;
    open_runner(&r, &heap, plan, rn_level_best(), THREADS, &limits);
    open_split(&s, &heap, plan, 1, THREADS, &limits);
    for (uint32_t i = 0; i < TEXT; i++)
        rows[i] = (struct rn_step_row){(int32_t)i + 3, i, 0, (int32_t)i};
    run_both(&r, &s.runner, &step);
    for (uint32_t i = 0; i < TREE; i++)
        rows[i] = (struct rn_step_row){(int32_t)i + 20, TEXT, 0, (int32_t)i};
    for (uint32_t i = 1; i < TREE; i++)
        rows[i].position = rows[parents[i]].position + 1;
    step.parents = parents;
    step.n_rows = step.n_outs = TREE;
    run_both(&r, &s.runner, &step);
    rows[0] = (struct rn_step_row){9, TEXT + 3, 0, 0};
    step.parents = NULL;
    step.n_rows = step.n_outs = 1;
    step.moves = moves;
    step.n_moves = 2;
    run_both(&r, &s.runner, &step);
    close_split(&s);
    close_runner(&r);
    rn_plan_free(plan);
    rn_gguf_free(gguf);
    w_free(&w);
}

/* A block's bytes are the two devices', and the name of its layout tells where the model is cut. */
static void layouts(void **state)
{
    struct writer w;
    struct rn_plan *plan;
    struct rn_gguf *gguf = open_made(WITH_KV, &w, &plan);
    struct rn_backend_limits limits = made_limits(plan, 9);
    struct split_runner s;
    struct runner r;
    size_t bytes;

    (void)state;
    open_runner(&r, &heap, plan, rn_level_best(), THREADS, &limits);
    open_split(&s, &heap, plan, 1, THREADS, &limits);
    bytes = r.backend->ops->block_bytes(r.backend);
    assert_int_equal(s.runner.backend->ops->block_bytes(s.runner.backend), bytes);
    assert_string_not_equal(s.runner.backend->ops->layout(s.runner.backend), r.backend->ops->layout(r.backend));
    assert_non_null(strstr(s.runner.backend->ops->layout(s.runner.backend), "1 layers"));
    close_split(&s);
    close_runner(&r);
    rn_plan_free(plan);
    rn_gguf_free(gguf);
    w_free(&w);
}

/* ---- Refusals ---- */

static void nowhere(void **state)
{
    struct writer w;
    struct rn_plan *plan, *parts[2] = {NULL, NULL};
    struct rn_gguf *gguf = open_made(WITH_KV, &w, &plan);
    uint32_t n[] = {0, plan->n_layers, plan->n_layers + 1, UINT32_MAX};
    runnel_error error = {0};

    (void)state;
    for (size_t i = 0; i < sizeof n / sizeof n[0]; i++) {
        assert_false(rn_plan_can_cut(plan, n[i]));
        assert_int_equal(rn_plan_cut(&heap, plan, n[i], &parts[0], &parts[1], &error), RUNNEL_UNSUPPORTED);
        assert_true(parts[0] == NULL && parts[1] == NULL);
        assert_non_null(strstr(error.message, "cannot be cut"));
        rn_error_clear(&error);
    }
    rn_plan_free(plan);
    rn_gguf_free(gguf);
    w_free(&w);
}

/* Each allocation of a cut and of a load is refused in turn: a status, and nothing is left. */
static void no_memory(void **state)
{
    const struct rn_device_options options = {.n_threads = 1};
    struct rn_device *device = rn_cpu_kind.open(&heap, &options, NULL);
    struct writer w;
    struct rn_plan *plan;
    struct rn_gguf *gguf = open_made(MIXED, &w, &plan);
    struct rn_backend_limits limits = made_limits(plan, 9);
    runnel_status status = RUNNEL_NO_MEMORY;
    struct refusing refusing = {0};
    const runnel_allocator allocator = {refusing_alloc, refusing_free, &refusing};
    struct rn_heap scarce;
    uint32_t n = 0;

    (void)state;
    assert_non_null(device);
    rn_heap_init(&scarce, &allocator);
    for (refusing.refuse_at = 1; status == RUNNEL_NO_MEMORY; refusing.refuse_at++, n++) {
        struct rn_plan *parts[2] = {NULL, NULL};
        struct rn_backend *backend = NULL;

        refusing.calls = 0;
        status = rn_plan_cut(&scarce, plan, 1, &parts[0], &parts[1], NULL);
        if (status == RUNNEL_OK)
            backend = rn_split_new(&scarce, &(struct rn_split_part){device, parts[0]},
                                   &(struct rn_split_part){device, parts[1]});
        if (status == RUNNEL_OK)
            status =
                backend == NULL ? RUNNEL_NO_MEMORY : backend->ops->prepare(backend, plan, &limits, NULL, NULL, NULL);
        if (backend != NULL)
            backend->ops->free(backend);
        rn_plan_free(parts[0]);
        rn_plan_free(parts[1]);
        assert_int_equal(rn_heap_blocks(&scarce), 0);
    }
    assert_int_equal(status, RUNNEL_OK);
    assert_true(n > 40);
    device->kind->close(device);
    rn_plan_free(plan);
    rn_gguf_free(gguf);
    w_free(&w);
}

static int setup(void **state)
{
    (void)state;
    rn_heap_init(&heap, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_int_equal(rn_heap_blocks(&heap), 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(made),    cmocka_unit_test(shared_ones),
                                       cmocka_unit_test(windows), cmocka_unit_test(trees),
                                       cmocka_unit_test(layouts), cmocka_unit_test(host_copies),
                                       cmocka_unit_test(nowhere), cmocka_unit_test(no_memory)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
