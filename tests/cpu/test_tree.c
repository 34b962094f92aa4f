/* Trees of candidates (model/backend.h): random trees behind random texts, of several sequences in one step, against
 * each of their branches as a text of its own. On the reference and on every level of the fast path to the bit; and the
 * fast path against the reference's plain texts. Then a branch is taken: its rows are moved to their positions in the
 * next step, which must give what it gives without a tree. All of it with a model that looks at everything, and with
 * one that looks at chosen positions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../model/model_edit.h"
#include "../oracle/made_model.h"
#include "base/rng.h"
#include "cpu/team.h"
#include "cpu/kernels.h"
#include "model/backend.h"
#include "tests/cpu/amx_emulator.h"
#include "tests/slow.h"
#include "tests/support/nmse.h"

enum { VOCAB = 16, SEQS = 3, TREE = 14, DEPTH = 6, ROWS = 64, CONTEXT = 1536, CHUNK = 48 };

struct fixture {
    struct rn_heap heap;
    struct model_edit edit;
    struct writer bytes;
    struct rn_gguf *gguf;
    struct rn_plan *plan;
};

static struct fixture f;

struct run {
    struct rn_team *team;
    struct rn_backend *backend;
    struct rn_backend_limits limits;
    uint32_t *blocks; /* [2 * SEQS][per_seq]: of the trees' sequences, and of plain ones */
    uint32_t per_seq;
    bool done;
    float logits[ROWS * VOCAB];
};

/* A sequence: its text, a tree behind it, and a branch that is taken. */
struct text {
    uint32_t n; /* computed before the tree */
    int32_t tokens[CONTEXT];
    uint32_t n_tree;
    int32_t parents[TREE], candidates[TREE]; /* parents within the tree; the first one is its root */
    uint32_t depth[TREE];
    float logits[TREE][VOCAB];
    uint32_t path[DEPTH + 1], n_path;
};

static uint32_t pick(uint64_t *state, uint32_t n)
{
    return (uint32_t)(rn_splitmix64(state) % n);
}

static void begin(struct run *run, const char *level, uint32_t threads, uint32_t block_tokens, runnel_kv_type type)
{
    runnel_error error = {0};
    uint64_t seed = block_tokens;

    memset(run, 0, sizeof *run);
    run->per_seq = CONTEXT / block_tokens + 1;
    run->limits = (struct rn_backend_limits){.max_rows = ROWS,
                                             .max_seqs = SEQS,
                                             .max_outs = ROWS,
                                             .n_blocks = 2 * SEQS * run->per_seq,
                                             .block_tokens = block_tokens,
                                             .context_tokens = CONTEXT,
                                             .kv_type = type,
                                             .tree_depth = DEPTH};
    run->team = rn_team_new(&f.heap, threads);
    run->backend = strcmp(level, "reference") == 0
                       ? rn_cpu_reference_new(&f.heap, run->team)
                       : rn_cpu_backend_new_level(&f.heap, run->team, rn_level_named(level));
    if (run->backend->ops->prepare(run->backend, f.plan, &run->limits, NULL, NULL, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    run->blocks = calloc(run->limits.n_blocks, sizeof *run->blocks);
    assert_non_null(run->blocks);
    for (uint32_t i = 0; i < run->limits.n_blocks; i++)
        run->blocks[i] = i;
    for (uint32_t i = run->limits.n_blocks - 1; i > 0; i--) {
        uint32_t k = pick(&seed, i + 1), swap = run->blocks[i];

        run->blocks[i] = run->blocks[k];
        run->blocks[k] = swap;
    }
}

static void end(struct run *run)
{
    run->backend->ops->free(run->backend);
    rn_team_free(run->team);
    free(run->blocks);
}

static void on_done(struct rn_step *step)
{
    __atomic_store_n((bool *)step->user, true, __ATOMIC_RELEASE);
}

static void submit(struct run *run, struct rn_step *step)
{
    step->logits = run->logits;
    step->on_done = on_done;
    step->user = &run->done;
    assert_true(rn_step_check(step, f.plan, &run->limits));
    __atomic_store_n(&run->done, false, __ATOMIC_RELEASE);
    run->backend->ops->submit_async(run->backend, step);
    while (!__atomic_load_n(&run->done, __ATOMIC_ACQUIRE))
        usleep(20);
    assert_int_equal(step->status, RUNNEL_OK);
}

static struct rn_step_seq table(const struct run *run, uint32_t which)
{
    return (struct rn_step_seq){.blocks = run->blocks + (size_t)which * run->per_seq, .n_blocks = run->per_seq};
}

/* Positions [first, n) of a plain text in table `which`; the last one's logits to out. */
static void plain(struct run *run, uint32_t which, const int32_t *tokens, uint32_t first, uint32_t n, float *out)
{
    struct rn_step_row rows[CHUNK];
    struct rn_step_seq seq = table(run, which);

    for (uint32_t at = first; at < n; at += CHUNK) {
        struct rn_step step = {.n_seqs = 1, .rows = rows, .seqs = &seq};

        for (; step.n_rows < CHUNK && at + step.n_rows < n; step.n_rows++)
            rows[step.n_rows] = (struct rn_step_row){tokens[at + step.n_rows], at + step.n_rows, 0, -1};
        rows[step.n_rows - 1].out = 0;
        step.n_outs = 1;
        submit(run, &step);
    }
    memcpy(out, run->logits, VOCAB * sizeof *out);
}

/* ---- Trees ---- */

static void invent(struct text *text, uint32_t n, uint64_t seed)
{
    memset(text, 0, sizeof *text);
    text->n = n;
    for (uint32_t i = 0; i < n; i++)
        text->tokens[i] = (int32_t)pick(&seed, VOCAB);
    text->n_tree = 1 + pick(&seed, TREE);
    for (uint32_t i = 0; i < text->n_tree; i++) {
        text->candidates[i] = (int32_t)pick(&seed, VOCAB);
        text->parents[i] = i == 0 ? -1 : (int32_t)pick(&seed, i);
        while (i > 0 && text->depth[text->parents[i]] == DEPTH)
            text->parents[i] = text->parents[text->parents[i]];
        text->depth[i] = i == 0 ? 0 : text->depth[text->parents[i]] + 1;
    }
    for (int32_t at = (int32_t)pick(&seed, text->n_tree); at >= 0; at = text->parents[at])
        text->n_path++;
    for (uint32_t i = text->n_tree, left = 0; i-- > 0;) /* the last leaf's branch */
        if (left == 0 && text->depth[i] + 1 == text->n_path) {
            for (int32_t at = (int32_t)i; at >= 0; at = text->parents[at])
                text->path[text->depth[at]] = (uint32_t)at;
            left = 1;
        }
}

/* The tokens up to candidate c, into text->tokens behind the others; returns how many there are then. */
static uint32_t with_branch(struct text *text, uint32_t c)
{
    for (int32_t at = (int32_t)c; at >= 0; at = text->parents[at])
        text->tokens[text->n + text->depth[at]] = text->candidates[at];
    return text->n + text->depth[c] + 1;
}

/* The trees of all texts, in one step, each at its text's end; the tokens before them are computed. */
static void run_trees(struct run *run, struct text *texts, uint32_t n)
{
    struct rn_step_row rows[ROWS];
    struct rn_step_seq seqs[SEQS];
    int32_t parents[ROWS];
    struct rn_step step = {.n_seqs = n, .rows = rows, .seqs = seqs, .parents = parents};
    float *out = run->logits;

    for (uint32_t s = 0; s < n; s++) {
        uint32_t first = step.n_rows;

        seqs[s] = table(run, s);
        for (uint32_t i = 0; i < texts[s].n_tree; i++, step.n_rows++) {
            parents[step.n_rows] = i == 0 ? -1 : (int32_t)first + texts[s].parents[i];
            rows[step.n_rows] =
                (struct rn_step_row){texts[s].candidates[i], texts[s].n + texts[s].depth[i], s, (int32_t)step.n_outs++};
        }
    }
    submit(run, &step);
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t i = 0; i < texts[s].n_tree; i++, out += VOCAB)
            memcpy(texts[s].logits[i], out, sizeof texts[s].logits[i]);
}

/* The next token behind each taken branch, in one step that moves the branches first. */
static void go_on(struct run *run, struct text *texts, uint32_t n, int32_t next)
{
    struct rn_step_row rows[SEQS];
    struct rn_step_seq seqs[SEQS];
    struct rn_step_move moves[SEQS * DEPTH];
    struct rn_step step = {.n_rows = n, .n_seqs = n, .n_outs = n, .rows = rows, .seqs = seqs, .moves = moves};

    for (uint32_t s = 0; s < n; s++) {
        seqs[s] = table(run, s);
        rows[s] = (struct rn_step_row){next, texts[s].n + texts[s].n_path, s, (int32_t)s};
        for (uint32_t k = 1; k < texts[s].n_path; k++)
            if (texts[s].path[k] != k)
                moves[step.n_moves++] = (struct rn_step_move){s, texts[s].n + texts[s].path[k], texts[s].n + k};
    }
    submit(run, &step);
}

/* Each branch against the same tokens as a plain text; judge: NULL, or another backend for the same, up to rounding. */
static void check_branches(struct run *run, struct run *judge, struct text *text, uint32_t s)
{
    float out[VOCAB];

    for (uint32_t c = 0; c < text->n_tree; c++) {
        uint32_t n = with_branch(text, c);

        plain(run, SEQS + s, text->tokens, text->n, n, out);
        assert_memory_equal(out, text->logits[c], sizeof out);
        if (judge == NULL)
            continue;
        plain(judge, SEQS + s, text->tokens, text->n, n, out);
        assert_true(nmse(text->logits[c], out, VOCAB) <= 1e-6);
    }
}

static void check(const char *level, uint32_t threads, uint32_t block_tokens, runnel_kv_type type, uint32_t longest,
                  bool judged, uint64_t seed)
{
    static struct text texts[SEQS];
    struct run run, judge;
    float out[VOCAB], taken[SEQS][VOCAB];
    uint32_t n_seqs = 1 + pick(&seed, SEQS);

    begin(&run, level, threads, block_tokens, type);
    if (judged)
        begin(&judge, "reference", 1, block_tokens, type);
    for (uint32_t s = 0; s < n_seqs; s++) {
        invent(&texts[s], 1 + pick(&seed, longest), rn_splitmix64(&seed));
        plain(&run, s, texts[s].tokens, 0, texts[s].n, out);
        plain(&run, SEQS + s, texts[s].tokens, 0, texts[s].n, out);
        if (judged)
            plain(&judge, SEQS + s, texts[s].tokens, 0, texts[s].n, out);
    }
    run_trees(&run, texts, n_seqs);
    for (uint32_t s = 0; s < n_seqs; s++)
        check_branches(&run, judged ? &judge : NULL, &texts[s], s);
    go_on(&run, texts, n_seqs, 11);
    memcpy(taken, run.logits, n_seqs * sizeof taken[0]);
    for (uint32_t s = 0; s < n_seqs; s++) {
        uint32_t n = with_branch(&texts[s], texts[s].path[texts[s].n_path - 1]);

        texts[s].tokens[n] = 11;
        plain(&run, SEQS + s, texts[s].tokens, texts[s].n, n + 1, out);
        assert_memory_equal(out, taken[s], sizeof out);
    }
    end(&run);
    if (judged)
        end(&judge);
}

static const runnel_kv_type types[] = {RUNNEL_KV_F32, RUNNEL_KV_F16, RUNNEL_KV_BF16, RUNNEL_KV_FP8,
                                       RUNNEL_KV_Q8,  RUNNEL_KV_Q4,  RUNNEL_KV_Q3};

static void test_reference(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 14; i++)
        check("reference", 1, i % 2 == 0 ? 4 : 32, types[i % 7], 60, false, i);
}

static void test_levels(void **state)
{
    static const char *const levels[] = {"c", "avx2", "avx512", "avx512-amx", "neon"};

    (void)state;
    for (uint32_t l = 0; l < 5; l++)
        for (uint32_t i = 0; i < 28 && rn_level_named(levels[l]) != NULL; i += UNLESS_SANITIZED(1, 5))
            check(levels[l], 1 + i % 3, 2u << i % 6, types[i % 7], 120, false, 100 + i);
}

static void test_judged(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 10; i++)
        check(rn_level_best()->name, 2, 16, i % 2 == 0 ? RUNNEL_KV_F32 : RUNNEL_KV_F16, 90, true, 200 + i);
}

/* Contexts of several segments, which are cut between the threads. */
static void test_long(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i += UNLESS_SANITIZED(1, 3))
        check(rn_level_best()->name, 4, i % 2 == 0 ? 16 : 64, types[i % 7], CONTEXT - TREE - 2, false, 300 + i);
}

/* Layers that see the last 24 positions: a window that begins before the tree, or inside of it. */
static void test_window(void **state)
{
    (void)state;
    for (uint32_t w = 3; w <= 24; w += 21) {
        for (uint32_t i = 0; i < f.plan->n_ops; i++)
            f.plan->ops[i].window = f.plan->ops[i].kind == RN_OP_ATTENTION ? w : 0;
        for (uint32_t i = 0; i < 8; i++)
            check(i % 4 == 0 ? "reference" : rn_level_best()->name, 2, 8u << i % 3, types[i % 7], 100, false, 400 + i);
    }
    for (uint32_t i = 0; i < f.plan->n_ops; i++)
        f.plan->ops[i].window = 0;
}

static void open_made(void)
{
    runnel_error error = {0};

    if (rn_gguf_parse(&f.heap, f.bytes.bytes, f.bytes.n, "tiny.gguf", &f.gguf, &error) != RUNNEL_OK ||
        rn_plan_new(&f.heap, f.gguf, CONTEXT, &f.plan, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
}

static int setup(void **state)
{
    (void)state;
    rn_heap_init(&f.heap, NULL);
    edit_tiny(&f.edit, 0, false);
    edit_u32(&f.edit, "llama.context_length", CONTEXT);
    edit_write(&f.edit, &f.bytes);
    open_made();
    return 0;
}

static int setup_chosen(void **state)
{
    (void)state;
    rn_heap_init(&f.heap, NULL);
    f.bytes = (struct writer){0};
    made_model_write("tests/cpu/chosen.txt", &f.bytes);
    open_made();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rn_plan_free(f.plan);
    rn_gguf_free(f.gguf);
    w_free(&f.bytes);
    assert_int_equal(rn_heap_blocks(&f.heap), 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference), cmocka_unit_test(test_levels),
                                       cmocka_unit_test(test_judged), cmocka_unit_test(test_long),
                                       cmocka_unit_test(test_window)};
    const struct CMUnitTest chosen[] = {cmocka_unit_test(test_reference), cmocka_unit_test(test_levels),
                                        cmocka_unit_test(test_judged), cmocka_unit_test(test_long)};

    emulate_amx_for_products();
    return cmocka_run_group_tests(tests, setup, teardown) + cmocka_run_group_tests(chosen, setup_chosen, teardown);
}
