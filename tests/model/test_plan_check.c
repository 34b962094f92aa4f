/* The checker of plans: every breach that is planted in a good plan is caught. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "model/op_info.h"
#include "model_edit.h"

/* Plants a breach by `statement`, expects it to be caught, and takes it back. */
#define CAUGHT(plan, place, statement)                                           \
    do {                                                                         \
        __typeof__(place) saved = (place);                                       \
        statement;                                                               \
        if (rn_plan_check(plan))                                                 \
            fail_msg("line %d, op %u: not caught: %s", __LINE__, i, #statement); \
        (place) = saved;                                                         \
    } while (0)

static void slot_breaches(struct rn_plan *plan, uint32_t i)
{
    struct rn_op *op = &plan->ops[i];
    int16_t *const places[] = {&op->out, &op->out2, &op->a, &op->b};
    size_t p;

    for (p = 0; p < 4; p++) {
        if (*places[p] < 0) { /* what an op does not have is not set */
            if (op->kind != RN_OP_CONCAT)
                CAUGHT(plan, *places[p], *places[p] = 0);
            continue;
        }
        CAUGHT(plan, *places[p], *places[p] = -1);
        CAUGHT(plan, *places[p], *places[p] = -2);
        CAUGHT(plan, *places[p], *places[p] = (int16_t)plan->n_slots);
        CAUGHT(plan, plan->slots[*places[p]].width, plan->slots[*places[p]].width++);
        CAUGHT(plan, plan->slots[*places[p]].width, plan->slots[*places[p]].width = 0);
        CAUGHT(plan, plan->slots[*places[p]].is_i32, plan->slots[*places[p]].is_i32 ^= 1);
    }
    if (op->out >= 0 && op->a >= 0 && op->kind != RN_OP_ROPE)
        CAUGHT(plan, op->out, op->out = op->a);
}

static void op_breaches(struct rn_plan *plan, uint32_t i)
{
    struct rn_op *op = &plan->ops[i];

    CAUGHT(plan, op->kind, op->kind = RN_OP_KINDS);
    if (rn_op_info(op->kind)->weight == RN_WEIGHT_NONE) {
        CAUGHT(plan, op->weight, op->weight = 0);
        CAUGHT(plan, op->bias, op->bias = 0);
    }
    if (op->weight >= 0) {
        CAUGHT(plan, op->weight, op->weight = (int32_t)plan->n_weights);
        CAUGHT(plan, op->weight, op->weight = -2);
        CAUGHT(plan, plan->weights[op->weight].cols, plan->weights[op->weight].cols++);
        CAUGHT(plan, plan->weights[op->weight].experts, plan->weights[op->weight].experts++);
        CAUGHT(plan, plan->weights[op->weight].row_bytes, plan->weights[op->weight].row_bytes++);
        CAUGHT(plan, plan->weights[op->weight].type, plan->weights[op->weight].type = rn_type(RN_F16));
        CAUGHT(plan, op->bias, op->bias = (int32_t)plan->n_weights);
    }
    if (op->kind == RN_OP_RMS_NORM) {
        CAUGHT(plan, op->eps, op->eps = NAN);
        CAUGHT(plan, op->group, op->group = 5);
    }
    if (op->kind == RN_OP_ROPE) {
        CAUGHT(plan, op->rope, op->rope = plan->n_ropes);
        CAUGHT(plan, op->heads, op->heads = 0);
        CAUGHT(plan, op->k_dim, op->k_dim /= 2);
    }
    if (op->kind == RN_OP_ATTENTION) {
        CAUGHT(plan, op->layer, op->layer = (int32_t)plan->n_kv_layers);
        CAUGHT(plan, op->layer, op->layer = -1);
        CAUGHT(plan, op->heads, op->heads++);
        CAUGHT(plan, op->kv_heads, op->kv_heads = 0);
        CAUGHT(plan, op->kv_heads, op->kv_heads = 3);
        CAUGHT(plan, plan->kv_layers[op->layer].kv_heads, plan->kv_layers[op->layer].kv_heads++);
        CAUGHT(plan, op->v_dim, op->v_dim++);
        CAUGHT(plan, op->scale, op->scale = NAN);
        CAUGHT(plan, op->softcap, op->softcap = -1);
    }
    if (op->kind == RN_OP_KV_STORE) {
        CAUGHT(plan, op->layer, op->layer++);
        CAUGHT(plan, plan->kv_layers[op->layer].k_width, plan->kv_layers[op->layer].k_width++);
    }
    if (op->kind == RN_OP_ROUTE || op->kind == RN_OP_EXPERT_MATMUL || op->kind == RN_OP_EXPERT_SUM)
        CAUGHT(plan, op->used, op->used++);
    if (op->kind == RN_OP_ROUTE || op->kind == RN_OP_EXPERT_MATMUL) {
        CAUGHT(plan, op->used, op->used = 0);
        CAUGHT(plan, op->experts, op->experts--);
    }
    if (op->kind == RN_OP_ROUTE) {
        CAUGHT(plan, op->groups, op->groups = op->experts);
        CAUGHT(plan, op->eps, op->eps = -1);
        CAUGHT(plan, op->gating, op->gating = RN_GATING_ROOT_SOFTPLUS + 1);
    }
    if (op->kind == RN_OP_TAP) {
        CAUGHT(plan, op->out, op->out = op->a);
        CAUGHT(plan, op->group, op->group++);
        CAUGHT(plan, plan->features_width, plan->features_width--);
        CAUGHT(plan, plan->slots[op->a].logits, plan->slots[op->a].logits = true);
    }
    if (op->kind == RN_OP_EXPERT_MATMUL)
        CAUGHT(plan, op->per_expert_input, op->per_expert_input ^= 1);
}

static void plan_breaches(struct rn_plan *plan)
{
    const uint32_t i = 0; /* for the message */

    CAUGHT(plan, plan->logits_slot, plan->logits_slot = -1);
    CAUGHT(plan, plan->logits_slot, plan->logits_slot = plan->ops[0].out);
    CAUGHT(plan, plan->n_vocab, plan->n_vocab++);
    CAUGHT(plan, plan->context_tokens, plan->context_tokens = 0);
    CAUGHT(plan, plan->n_ops, plan->n_ops--);
    CAUGHT(plan, plan->n_ops, plan->n_ops = 0);
    CAUGHT(plan, plan->n_kv_layers, plan->n_kv_layers--);
    CAUGHT(plan, plan->slots[plan->logits_slot].selected, plan->slots[plan->logits_slot].selected = false);
    CAUGHT(plan, plan->slots[plan->logits_slot].logits, plan->slots[plan->logits_slot].logits = false);
    CAUGHT(plan, plan->slots[plan->ops[0].out].logits, plan->slots[plan->ops[0].out].logits = true);
    CAUGHT(plan, plan->ropes[0].dims, plan->ropes[0].dims++);
    CAUGHT(plan, plan->ropes[0].dims, plan->ropes[0].dims = 0);
    CAUGHT(plan, plan->ropes[0].inv_freq[1], plan->ropes[0].inv_freq[1] = INFINITY);
    CAUGHT(plan, plan->ropes[0].magnitude, plan->ropes[0].magnitude = NAN);
    CAUGHT(plan, plan->ops[0], plan->ops[0] = plan->ops[1]); /* nothing has been written yet */
    CAUGHT(plan, plan->weights[0].tensor, plan->weights[0].tensor = plan->weights[1].tensor);
}

/* A file whose builder did not look is refused with these words. */
static void a_flaw_has_words(struct rn_plan *plan)
{
    struct rn_weight *weight;
    char text[128] = "none";
    uint32_t i = 0;

    assert_false(rn_plan_flaw(plan, text, sizeof text));
    assert_string_equal(text, "");
    while (plan->ops[i].kind != RN_OP_MATMUL)
        i++;
    weight = &plan->weights[plan->ops[i].weight];
    plan->ops[i].out = plan->ops[i].a;
    assert_true(rn_plan_flaw(plan, text, sizeof text));
    assert_non_null(strstr(text, "MATMUL with tensor blk.0.attn_q.weight"));
    assert_true(rn_plan_flaw(plan, text, 9));
    assert_int_equal(strlen(text), 8);
    weight->rows++;
    assert_true(rn_plan_flaw(plan, text, sizeof text));
    assert_string_equal(text, "its sizes");
    weight->rows--;
}

static void breaches_are_caught(uint32_t experts)
{
    struct model_edit edit;
    struct rn_heap heap;
    struct writer w = {0};
    struct rn_gguf *gguf;
    struct rn_plan *plan;
    uint32_t i;

    rn_heap_init(&heap, NULL);
    edit_tiny(&edit, experts, false);
    edit_write(&edit, &w);
    assert_int_equal(rn_gguf_parse(&heap, w.bytes, w.n, "test.gguf", &gguf, NULL), RUNNEL_OK);
    assert_int_equal(rn_plan_new(&heap, gguf, 0, &plan, NULL), RUNNEL_OK);
    assert_true(rn_plan_check(plan));
    for (i = 0; i < plan->n_ops; i++) {
        slot_breaches(plan, i);
        op_breaches(plan, i);
    }
    plan_breaches(plan);
    assert_true(rn_plan_check(plan)); /* all taken back */
    a_flaw_has_words(plan);
    rn_plan_free(plan);
    rn_gguf_free(gguf);
    w_free(&w);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void of_a_dense_plan(void **state)
{
    (void)state;
    breaches_are_caught(0);
}

static void of_a_plan_with_experts(void **state)
{
    (void)state;
    breaches_are_caught(4);
}

/* ---- The table ---- */

static void every_op_has_a_row(void **state)
{
    const struct rn_op_info *info;
    int i, j;

    (void)state;
    for (i = 0; i < RN_OP_KINDS; i++) {
        info = rn_op_info((enum rn_op_kind)i);
        assert_non_null(info);
        assert_string_equal(info->name, rn_op_name((enum rn_op_kind)i));
        for (j = 0; j < i; j++)
            assert_string_not_equal(info->name, rn_op_name((enum rn_op_kind)j));
        assert_true(info->out != RN_OPERAND_NONE || info->a != RN_OPERAND_NONE);
    }
    assert_string_equal(rn_op_name(RN_OP_EXPERT_SUM), "EXPERT_SUM");
    assert_null(rn_op_info(RN_OP_KINDS));
    assert_string_equal(rn_op_name(RN_OP_KINDS), "?");
}

static void what_an_op_touches(void **state)
{
    const struct rn_plan plan = {.n_slots = 10};
    struct rn_op op = {.kind = RN_OP_ROUTE, .out = 1, .out2 = 2, .a = 3, .b = -1, .layer = 5};
    struct rn_op_touched t = rn_op_touched(&plan, &op);

    (void)state;
    assert_true(t.n_reads == 1 && t.reads[0] == 3);
    assert_true(t.n_writes == 2 && t.writes[0] == 1 && t.writes[1] == 2);
    op = (struct rn_op){.kind = RN_OP_KV_STORE, .out = -1, .out2 = -1, .a = 3, .b = 4, .layer = 5};
    t = rn_op_touched(&plan, &op);
    assert_true(t.n_reads == 2 && t.reads[0] == 3 && t.reads[1] == 4);
    assert_true(t.n_writes == 1 && t.writes[0] == 15);
    op = (struct rn_op){.kind = RN_OP_ATTENTION, .out = 1, .out2 = -1, .a = 3, .b = -1, .layer = 5};
    t = rn_op_touched(&plan, &op);
    assert_true(t.n_reads == 2 && t.reads[0] == 3 && t.reads[1] == 15);
    assert_true(t.n_writes == 1 && t.writes[0] == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_a_dense_plan), cmocka_unit_test(of_a_plan_with_experts),
                                       cmocka_unit_test(every_op_has_a_row), cmocka_unit_test(what_an_op_touches)};

    return cmocka_run_group_tests_name("breaches are caught", tests, NULL, NULL);
}
