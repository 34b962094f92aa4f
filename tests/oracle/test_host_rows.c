/* Rows of a host with features that no row of the table has together: the plan has what was asked for, or a sentence
 * says what does not go together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../model/model_edit.h"
#include "model/arch/table.h"
#include "model/build/build.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"

static struct fixture {
    struct rn_heap heap;
    struct writer made, file;
    struct rn_gguf *of, *gguf;
    struct rn_arch_rows rows;
    struct model_edit edit;
    struct rn_plan *plan;
    runnel_error error;
} f;

/* The model of the text, of architecture "foo". */
static void open_made(const char *text)
{
    memset(&f, 0, sizeof f);
    rn_heap_init(&f.heap, NULL);
    made_model_write(text, &f.made);
    assert_int_equal(rn_gguf_parse(&f.heap, f.made.bytes, f.made.n, text, &f.of, NULL), RUNNEL_OK);
    edit_from(&f.edit, f.of);
    edit_rename(&f.edit, "foo");
}

/* What f.edit says by a row for "foo": f.plan, or NULL and f.error. */
static void make_plan(const char *like, const char *with, const char *without)
{
    runnel_architecture_row row;
    const runnel_architecture_row *rows[] = {&row};

    runnel_architecture_row_default(&row);
    row.name = "foo";
    row.like = like;
    row.with = with;
    row.without = without;
    assert_int_equal(rn_arch_rows_init(&f.rows, &f.heap, rows, 1, NULL), RUNNEL_OK);
    edit_write(&f.edit, &f.file);
    assert_int_equal(rn_gguf_parse(&f.heap, f.file.bytes, f.file.n, "foo.gguf", &f.gguf, NULL), RUNNEL_OK);
    rn_gguf_set_rows(f.gguf, &f.rows);
    memset(&f.error, 0, sizeof f.error);
    (void)rn_plan_new(&f.heap, f.gguf, 0, &f.plan, &f.error);
    assert_true((f.plan != NULL) == (f.error.status == RUNNEL_OK));
}

static void free_plan(void)
{
    rn_plan_free(f.plan);
    f.plan = NULL;
    rn_gguf_free(f.gguf);
    rn_arch_rows_fini(&f.rows, &f.heap);
    w_free(&f.file);
}

static void close_made(void)
{
    rn_gguf_free(f.of);
    w_free(&f.made);
    assert_int_equal(rn_heap_blocks(&f.heap), 0);
}

/* Ops of this kind; without_weight: of them those without one. */
static uint32_t count(enum rn_op_kind kind, bool without_weight)
{
    uint32_t n = 0;

    if (f.plan == NULL)
        fail_msg("%s", f.error.message);
    for (uint32_t i = 0; i < f.plan->n_ops; i++)
        n += f.plan->ops[i].kind == kind && (!without_weight || f.plan->ops[i].weight < 0);
    return n;
}

/* Six blocks, of which the last two have the keys and values of others: these come normed and cut. */
static void keys_of_other_blocks_stay(void **state)
{
    uint32_t before;

    (void)state;
    open_made(MADE_TEXT("gemma4-made"));
    edit_f32(&f.edit, "foo.attention.clamp_kqv", 2);
    make_plan("gemma4", NULL, NULL);
    before = count(RN_OP_RMS_NORM, true);
    assert_int_equal(count(RN_OP_CLAMP, false), 0);
    free_plan();
    make_plan("gemma4", "unit-heads", NULL);
    assert_int_equal(count(RN_OP_RMS_NORM, true), before + 6 + 4);
    free_plan();
    make_plan("gemma4", "clamp", NULL);
    assert_int_equal(count(RN_OP_CLAMP, false), 6 + 2 * 4);
    free_plan();
    close_made();
}

/* Blocks without attention are the same side by side as one after the other. */
static void gaps_stand_in_parallel_blocks(void **state)
{
    static const uint32_t none[5] = {0}, heads[5] = {4, 0, 4, 4, 4}, kv[5] = {2, 0, 2, 2, 2};
    static const char *const attention[] = {"attn_q", "attn_k", "attn_v", "attn_output", "attn_norm"};
    enum rn_op_kind kinds[512];
    char name[64];
    uint32_t n;

    (void)state;
    open_made(MADE_TEXT("smallthinker-made"));
    edit_u32s(&f.edit, "foo.attention.head_count", heads, 5);
    edit_u32s(&f.edit, "foo.attention.head_count_kv", kv, 5);
    for (size_t i = 0; i < sizeof attention / sizeof attention[0]; i++) {
        snprintf(name, sizeof name, "blk.1.%s.weight", attention[i]);
        edit_drop_tensor(&f.edit, name);
    }
    make_plan("qwen3moe", "parallel gaps", "head-norm");
    assert_int_equal(count(RN_OP_ATTENTION, false), 4);
    assert_int_equal(count(RN_OP_EXPERT_SUM, false), 5);
    free_plan();
    for (uint32_t block = 0; block < 5; block++)
        for (size_t i = 0; i < sizeof attention / sizeof attention[0]; i++) {
            snprintf(name, sizeof name, "blk.%u.%s.weight", block, attention[i]);
            if (block != 1)
                edit_drop_tensor(&f.edit, name);
        }
    edit_u32s(&f.edit, "foo.attention.head_count", none, 5);
    edit_u32s(&f.edit, "foo.attention.head_count_kv", none, 5);
    make_plan("qwen3moe", "gaps", "head-norm");
    n = f.plan != NULL ? f.plan->n_ops : 0;
    assert_in_range(n, 1, sizeof kinds / sizeof kinds[0]);
    for (uint32_t i = 0; i < n; i++)
        kinds[i] = f.plan->ops[i].kind;
    free_plan();
    make_plan("qwen3moe", "parallel gaps", "head-norm");
    assert_int_equal(count(RN_OP_ATTENTION, false), 0);
    assert_int_equal(f.plan->n_ops, n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(f.plan->ops[i].kind, kinds[i]);
    free_plan();
    close_made();
}

/* A row whose own block has attention everywhere, whatever is normed and rotated. */
static void gaps_are_named_where_none_can_be(void **state)
{
    static const uint32_t heads[5] = {4, 0, 4, 4, 4}, kv[5] = {2, 0, 2, 2, 2};
    static const char *const with[] = {"gaps", "gaps head-norm late-norm", "gaps own-norm"};

    (void)state;
    for (size_t i = 0; i < sizeof with / sizeof with[0]; i++) {
        open_made(MADE_TEXT("smallthinker-made"));
        edit_u32s(&f.edit, "foo.attention.head_count", heads, 5);
        edit_u32s(&f.edit, "foo.attention.head_count_kv", kv, 5);
        if (i > 0) {
            static const float ones[64];

            edit_add_tensor(&f.edit, "blk.0.attn_q_norm.weight", 16, i > 1 ? 4 : 1, ones);
            edit_add_tensor(&f.edit, "blk.0.attn_k_norm.weight", 16, i > 1 ? 2 : 1, ones);
        }
        make_plan("smallthinker", with[i], NULL);
        assert_int_equal(f.error.status, RUNNEL_FORMAT);
        if (strstr(f.error.message, "key foo.attention.head_count is 0 for block 1") == NULL)
            fail_msg("%s: %s", with[i], f.error.message);
        free_plan();
        close_made();
    }
}

/* What is not there fails the build, and no memory is touched. */
static void builds_fail_by_what_is_not_there(void **state)
{
    struct rn_plan plan = {.architecture = "foo"};
    runnel_error error = {0};
    struct rn_build b = {.plan = &plan, .error = &error, .layer = 3};

    (void)state;
    open_made(MADE_TEXT("smallthinker-made"));
    plan.gguf = f.of;
    assert_int_equal(rn_build_width(&b, -1), 1);
    assert_int_equal(b.status, RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(error.message, "architecture foo asks for a value that block 3 does not have"));
    b.status = RUNNEL_OK;
    rn_build_release(&b, -1);
    assert_int_equal(b.status, RUNNEL_UNSUPPORTED);
    b.status = RUNNEL_OK;
    rn_build_rope(&b, 0, 0, 0);
    assert_int_equal(b.status, RUNNEL_FORMAT);
    close_made();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_other_blocks_stay),
        cmocka_unit_test(gaps_stand_in_parallel_blocks),
        cmocka_unit_test(gaps_are_named_where_none_can_be),
        cmocka_unit_test(builds_fail_by_what_is_not_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
