/* Trees of candidates on the CUDA device, emulated (model/backend.h): random trees behind random texts, of several
 * sequences in one step, each branch of which must give the bits that it gives as a text of its own; and those are near
 * the reference's. Then a branch is taken: its rows are moved to their positions by the next step, which must give what
 * it gives without a tree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/gpu/rigs/device_runner.h"
#include "tests/gpu/rigs/open_emulated.h"
#include "tests/model/model_edit.h"
#include "tests/support/nmse.h"

enum { VOCAB = 16, SEQS = 2, TREE = 9, DEPTH = 5, ROWS = 80, CONTEXT = 384, BLOCK = 16, TABLE = CONTEXT / BLOCK };
enum { MEMORY = 64 << 20 };

static struct rn_heap heap;
static struct rn_device *device;
static struct model_edit edit;
static struct writer bytes;
static struct model model;

/* A text, a tree behind it whose first row is its root, and a branch that is taken. */
struct text {
    uint32_t n, n_tree, n_branch;
    int32_t tokens[CONTEXT], candidates[TREE], parents[TREE];
    uint32_t depth[TREE], branch[DEPTH + 1];
    float logits[TREE][VOCAB];
};

static uint32_t pick(uint64_t *seed, uint32_t n)
{
    return (uint32_t)(rn_splitmix64(seed) % n);
}

static void invent(struct text *text, uint32_t n, uint64_t seed)
{
    uint32_t leaf;

    memset(text, 0, sizeof *text);
    text->n = n;
    for (uint32_t i = 0; i < n; i++)
        text->tokens[i] = (int32_t)pick(&seed, VOCAB);
    text->n_tree = TREE / 2 + pick(&seed, TREE / 2 + 1);
    for (uint32_t i = 0; i < text->n_tree; i++) {
        text->candidates[i] = (int32_t)pick(&seed, VOCAB);
        text->parents[i] = i == 0 ? -1 : (int32_t)pick(&seed, i);
        while (i > 0 && text->depth[text->parents[i]] == DEPTH)
            text->parents[i] = text->parents[text->parents[i]];
        text->depth[i] = i == 0 ? 0 : text->depth[text->parents[i]] + 1;
    }
    leaf = text->n_tree - 1;
    text->n_branch = text->depth[leaf] + 1;
    for (int32_t at = (int32_t)leaf; at >= 0; at = text->parents[at])
        text->branch[text->depth[at]] = (uint32_t)at;
}

/* The branch up to candidate c behind the text; how many tokens that makes. */
static uint32_t with_branch(struct text *text, uint32_t c)
{
    for (int32_t at = (int32_t)c; at >= 0; at = text->parents[at])
        text->tokens[text->n + text->depth[at]] = text->candidates[at];
    return text->n + text->depth[c] + 1;
}

/* Table `which` of the SEQS of trees and the SEQS of texts of their own. */
static struct rn_step_seq table(uint32_t which)
{
    static uint32_t blocks[2 * SEQS][TABLE];

    for (uint32_t i = 0; i < TABLE; i++)
        blocks[which][i] = (i * 2 * SEQS + which) * 5 % (2 * SEQS * TABLE);
    return (struct rn_step_seq){.blocks = blocks[which], .n_blocks = TABLE};
}

/* Positions [from, to) as a text of its own; the last one's logits to out. */
static void run_text(struct runner *r, uint32_t which, const int32_t *tokens, uint32_t from, uint32_t to, float *out)
{
    struct rn_step_row rows[ROWS];
    struct rn_step_seq seq = table(which);

    for (uint32_t at = from, n; at < to; at += n) {
        struct rn_step step = {.n_seqs = 1, .n_outs = 1, .rows = rows, .seqs = &seq, .logits = out};

        n = to - at < ROWS ? to - at : ROWS;
        step.n_rows = n;
        for (uint32_t i = 0; i < n; i++)
            rows[i] = (struct rn_step_row){tokens[at + i], at + i, 0, i + 1 == n ? 0 : -1};
        run_step(r, &step);
    }
}

/* All trees in one step; before them so many rows of a plain text of its own sequence, which make it a large step. */
static void run_trees(struct runner *r, struct text *texts, uint32_t n_before)
{
    struct rn_step_row rows[ROWS + SEQS * TREE];
    struct rn_step_seq seqs[SEQS + 1];
    int32_t parents[ROWS + SEQS * TREE];
    float logits[SEQS * TREE * VOCAB], *out = logits;
    struct rn_step step = {
        .n_seqs = n_before > 0 ? SEQS + 1 : SEQS, .rows = rows, .seqs = seqs, .parents = parents, .logits = logits};

    seqs[SEQS] = table(2 * SEQS - 1);
    for (; step.n_rows < n_before; step.n_rows++) {
        parents[step.n_rows] = (int32_t)step.n_rows - 1;
        rows[step.n_rows] = (struct rn_step_row){3, step.n_rows, SEQS, -1};
    }
    for (uint32_t s = 0; s < SEQS; s++) {
        uint32_t first = step.n_rows;

        seqs[s] = table(s);
        for (uint32_t i = 0; i < texts[s].n_tree; i++, step.n_rows++) {
            parents[step.n_rows] = i == 0 ? -1 : (int32_t)first + texts[s].parents[i];
            rows[step.n_rows] =
                (struct rn_step_row){texts[s].candidates[i], texts[s].n + texts[s].depth[i], s, (int32_t)step.n_outs++};
        }
    }
    run_step(r, &step);
    for (uint32_t s = 0; s < SEQS; out += texts[s].n_tree * VOCAB, s++)
        memcpy(texts[s].logits, out, texts[s].n_tree * sizeof texts[s].logits[0]);
}

/* A token behind each taken branch, whose rows are moved before. */
static void go_on(struct runner *r, const struct text *texts, int32_t token, float *logits)
{
    struct rn_step_row rows[SEQS];
    struct rn_step_seq seqs[SEQS];
    struct rn_step_move moves[SEQS * DEPTH];
    struct rn_step step = {
        .n_rows = SEQS, .n_seqs = SEQS, .n_outs = SEQS, .rows = rows, .seqs = seqs, .moves = moves, .logits = logits};

    for (uint32_t s = 0; s < SEQS; s++) {
        seqs[s] = table(s);
        rows[s] = (struct rn_step_row){token, texts[s].n + texts[s].n_branch, s, (int32_t)s};
        for (uint32_t k = 1; k < texts[s].n_branch; k++)
            if (texts[s].branch[k] != k)
                moves[step.n_moves++] = (struct rn_step_move){s, texts[s].n + texts[s].branch[k], texts[s].n + k};
    }
    run_step(r, &step);
}

/* ---- Their comparison ---- */

static void open_cuda(struct runner *r, const struct rn_backend_limits *limits)
{
    assert_true(rn_device_can(device->caps, RN_CAN_TREES));
    open_on_device(r, &heap, device, model.plan->architecture, model.plan, limits);
}

static void check_branches(struct runner *cuda, struct runner *reference, struct text *text, uint32_t s, double limit)
{
    float out[VOCAB];

    for (uint32_t c = 0; c < text->n_tree; c++) {
        uint32_t n = with_branch(text, c);

        run_text(cuda, SEQS + s, text->tokens, text->n, n, out);
        assert_memory_equal(out, text->logits[c], sizeof out);
        run_text(reference, SEQS + s, text->tokens, text->n, n, out);
        assert_true(nmse(text->logits[c], out, VOCAB) <= limit);
    }
}

static void check(runnel_kv_type type, uint32_t longest, uint32_t n_before, uint64_t seed, double limit)
{
    static struct text texts[SEQS];
    const struct rn_backend_limits limits = {.max_rows = ROWS + SEQS * TREE,
                                             .max_seqs = SEQS + 1,
                                             .max_outs = SEQS * TREE,
                                             .n_blocks = 2 * SEQS * TABLE,
                                             .block_tokens = BLOCK,
                                             .context_tokens = CONTEXT,
                                             .kv_type = type,
                                             .tree_depth = DEPTH};
    float out[VOCAB], taken[SEQS * VOCAB];
    struct runner cuda, reference;

    open_cuda(&cuda, &limits);
    open_runner(&reference, &heap, model.plan, NULL, 1, &limits);
    for (uint32_t s = 0; s < SEQS; s++) {
        invent(&texts[s], 1 + pick(&seed, longest), rn_splitmix64(&seed));
        run_text(&cuda, s, texts[s].tokens, 0, texts[s].n, out);
    }
    run_trees(&cuda, texts, n_before);
    for (uint32_t s = 0; s < SEQS; s++) {
        run_text(&cuda, SEQS + s, texts[s].tokens, 0, texts[s].n, out);
        run_text(&reference, SEQS + s, texts[s].tokens, 0, texts[s].n, out);
        check_branches(&cuda, &reference, &texts[s], s, limit);
    }
    go_on(&cuda, texts, 11, taken);
    for (uint32_t s = 0; s < SEQS; s++) {
        uint32_t n = with_branch(&texts[s], texts[s].n_tree - 1);

        texts[s].tokens[n] = 11;
        run_text(&cuda, SEQS + s, texts[s].tokens, texts[s].n, n + 1, out);
        assert_memory_equal(out, taken + s * VOCAB, sizeof out);
    }
    close_runner(&reference);
    close_on_device(&cuda);
}

static void short_texts(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++)
        check(i % 2 == 0 ? RUNNEL_KV_F32 : RUNNEL_KV_F16, 60, 0, i, 1e-6);
    check(RUNNEL_KV_Q8, 40, 0, 6, 1e-2);
}

/* A tree on both sides of the end of a chunk of attention. */
static void long_texts(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t seed = 20 + i;

        check(RUNNEL_KV_F32, CONTEXT - TREE - 2, 0, rn_splitmix64(&seed), 1e-6);
    }
}

/* Steps of more rows than attention splits. */
static void beside_a_prompt(void **state)
{
    (void)state;
    check(RUNNEL_KV_F32, 50, ROWS, 30, 1e-6);
    check(RUNNEL_KV_F16, 50, ROWS - 3, 31, 1e-6);
}

/* A window that begins inside of the tree, and before it. */
static void windows(void **state)
{
    (void)state;
    for (uint32_t window = 3; window <= 24; window += 21) {
        for (uint32_t i = 0; i < model.plan->n_ops; i++)
            if (model.plan->ops[i].kind == RN_OP_ATTENTION)
                model.plan->ops[i].window = window;
        check(RUNNEL_KV_F32, 60, 0, 40 + window, 1e-6);
    }
    for (uint32_t i = 0; i < model.plan->n_ops; i++)
        model.plan->ops[i].window = 0;
}

static int setup(void **state)
{
    runnel_error error = {0};

    (void)state;
    rn_heap_init(&heap, NULL);
    device = open_emulated(&heap, MEMORY);
    edit_tiny(&edit, 0, false);
    edit_u32(&edit, "llama.context_length", CONTEXT);
    edit_write(&edit, &bytes);
    if (rn_gguf_parse(&heap, bytes.bytes, bytes.n, "tiny.gguf", &model.gguf, &error) != RUNNEL_OK ||
        rn_plan_new(&heap, model.gguf, CONTEXT, &model.plan, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close_model(&model);
    w_free(&bytes);
    device->kind->close(device);
    assert_int_equal(rn_heap_blocks(&heap), 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(short_texts), cmocka_unit_test(long_texts),
                                       cmocka_unit_test(beside_a_prompt), cmocka_unit_test(windows)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
