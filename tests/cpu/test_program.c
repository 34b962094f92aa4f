/* Programs: the phases keep the order of the plan wherever one op needs what another wrote, and none is too many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/program.h"
#include "tests/model/model_edit.h"

struct made {
    struct rn_heap heap;
    struct writer bytes;
    struct rn_gguf *gguf;
    struct rn_plan *plan;
    struct rn_program program;
};

static void make(struct made *m, uint32_t experts)
{
    struct model_edit edit;
    runnel_error error = {0};

    *m = (struct made){.plan = NULL};
    rn_heap_init(&m->heap, NULL);
    edit_tiny(&edit, experts, false);
    edit_write(&edit, &m->bytes);
    assert_int_equal(rn_gguf_parse(&m->heap, m->bytes.bytes, m->bytes.n, "test.gguf", &m->gguf, &error), RUNNEL_OK);
    assert_int_equal(rn_plan_new(&m->heap, m->gguf, 0, &m->plan, &error), RUNNEL_OK);
    assert_int_equal(rn_program_init(&m->program, &m->heap, m->plan, rn_level_c()), RUNNEL_OK);
    assert_true(rn_program_check(&m->program, m->plan));
}

static void unmake(struct made *m)
{
    rn_program_fini(&m->program);
    rn_plan_free(m->plan);
    rn_gguf_free(m->gguf);
    w_free(&m->bytes);
    assert_int_equal(rn_heap_blocks(&m->heap), 0);
}

static const struct rn_instruction *instruction_of(const struct made *m, const struct rn_op *op)
{
    uint32_t i;

    for (i = 0; i < m->program.n; i++)
        if (m->program.list[i].op == op)
            return &m->program.list[i];
    fail_msg("op %u is not in the program", (uint32_t)(op - m->plan->ops));
    return NULL;
}

/* One behind the other: in a later phase, or in the same one, later, and row by row. */
static bool is_behind(const struct rn_instruction *first, const struct rn_instruction *second)
{
    return first->phase < second->phase ||
           (first->phase == second->phase && first < second && first->by_rows && second->by_rows);
}

static bool reads(const struct rn_op *op, int16_t slot)
{
    return slot >= 0 && (op->a == slot || op->b == slot);
}

static bool writes(const struct rn_op *op, int16_t slot)
{
    return slot >= 0 && (op->out == slot || op->out2 == slot);
}

/* Written from the fields alone, without the table that the program is made by. */
static bool must_follow(const struct rn_op *first, const struct rn_op *second)
{
    return reads(second, first->out) || reads(second, first->out2) || writes(second, first->out) ||
           writes(second, first->out2) || writes(second, first->a) || writes(second, first->b) ||
           (first->kind == RN_OP_KV_STORE && second->kind == RN_OP_ATTENTION && first->layer == second->layer);
}

static void order_is_kept(uint32_t experts)
{
    const struct rn_op *ops;
    struct made m;
    uint32_t i, j;

    make(&m, experts);
    ops = m.plan->ops;
    for (i = 0; i < m.plan->n_ops; i++)
        for (j = 0; j < i; j++)
            if (must_follow(&ops[j], &ops[i]) && !is_behind(instruction_of(&m, &ops[j]), instruction_of(&m, &ops[i])))
                fail_msg("op %u, which needs op %u, is not behind it", i, j);
    unmake(&m);
}

static void order_is_kept_in_a_dense_plan(void **state)
{
    (void)state;
    order_is_kept(0);
}

static void order_is_kept_with_experts(void **state)
{
    (void)state;
    order_is_kept(4);
}

/* Every two phases in a row are two for a reason: made one, they are caught. */
static void no_phase_is_too_many(void **state)
{
    struct made m;
    uint32_t phase, saved;

    (void)state;
    make(&m, 4);
    for (phase = 1; phase < m.program.n_phases; phase++) {
        saved = m.program.starts[phase];
        m.program.starts[phase] = m.program.starts[phase - 1]; /* an empty one, and all in this one */
        if (rn_program_check(&m.program, m.plan))
            fail_msg("phases %u and %u could be one", phase - 1, phase);
        m.program.starts[phase] = saved;
    }
    unmake(&m);
}

/* A block of a dense model: norm and its quantising; q, k, v; rotation and cache; attention; ... */
static void projections_of_one_input_share_a_phase(void **state)
{
    const struct rn_op *ops;
    struct made m;

    (void)state;
    make(&m, 0);
    ops = m.plan->ops;
    assert_int_equal(ops[2].kind, RN_OP_MATMUL);
    assert_int_equal(ops[4].kind, RN_OP_MATMUL);
    assert_int_equal(instruction_of(&m, &ops[2])->phase, instruction_of(&m, &ops[3])->phase);
    assert_int_equal(instruction_of(&m, &ops[2])->phase, instruction_of(&m, &ops[4])->phase);
    unmake(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_kept_in_a_dense_plan),
        cmocka_unit_test(order_is_kept_with_experts),
        cmocka_unit_test(no_phase_is_too_many),
        cmocka_unit_test(projections_of_one_input_share_a_phase),
    };

    return cmocka_run_group_tests_name("programs", tests, NULL, NULL);
}
