/* The use of experts, counted by both backends, against what ROUTE gives: the reference keeps its ids until the next
 * step, since a model with one block of experts has one ROUTE. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "cpu/reference/reference.h"
#include "model/expert_use.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"
#include "tests/oracle/run_plan.h"

#define MODEL "bailingmoe2-made" /* two blocks, the last with 16 experts, of which 4 are used */
enum { BLOCKS = 2, BLOCK = 1, EXPERTS = 16, CHUNK = 5 };

static const struct rn_op *route_of(const struct rn_plan *plan)
{
    const struct rn_op *found = NULL;

    for (uint32_t i = 0; i < plan->n_ops; i++) {
        if (plan->ops[i].kind != RN_OP_ROUTE || plan->ops[i].experts == 1)
            continue;
        assert_null(found);
        found = &plan->ops[i];
    }
    assert_non_null(found);
    return found;
}

/* What the last step of the reference has chosen is added to counts. */
static void add_routed(const struct run *run, const struct rn_op *op, uint32_t rows, uint64_t counts[EXPERTS])
{
    const struct rn_reference *reference = (const struct rn_reference *)run->backend;
    const int32_t *ids = reference->slots[op->out];

    for (uint32_t i = 0; i < rows * op->used; i++)
        counts[ids[i]]++;
}

/* Steps of CHUNK positions, of which the last one's logits alone are wanted in every second step. */
static void run_all(const char *backend, struct rn_expert_use *use, uint64_t counts[EXPERTS])
{
    struct run_options options = {.backend = backend, .expert_use = use};
    struct run_piece piece = {0};
    struct oracle oracle;
    struct writer made = {0};
    struct run run;

    made_model_write(MADE_TEXT(MODEL), &made);
    options.bytes = made.bytes;
    options.n_bytes = made.n;
    run_open(&run, MODEL, &options);
    oracle_open(&run.heap, MADE_LOGITS(MODEL), &oracle);
    for (piece.first = 0; piece.first + CHUNK <= oracle.n_tokens; piece.first += CHUNK) {
        piece.n = CHUNK;
        piece.tokens = oracle.tokens + piece.first;
        piece.last_only = !piece.last_only;
        run_step(&run, &piece, 1);
        if (counts != NULL)
            add_routed(&run, route_of(run.plan), piece.last_only ? 1 : CHUNK, counts);
    }
    oracle_close(&run.heap, &oracle);
    run_close(&run);
    w_free(&made);
}

static void counts_are_what_was_routed(void **state)
{
    static const char *const backends[] = {"reference", "fast"};
    uint64_t expected[EXPERTS] = {0}, all = 0, used = 0;
    struct rn_expert_use *use;
    struct rn_heap heap;
    size_t i;

    (void)state;
    rn_heap_init(&heap, NULL);
    run_all("reference", NULL, expected);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        all += expected[e];
        used += expected[e] > 0;
    }
    assert_int_equal(all, 4 * (1 + CHUNK + 1 + CHUNK));
    assert_true(used > 4); /* else the test says little */
    for (i = 0; i < 2; i++) {
        use = rn_calloc(&heap, 1, sizeof *use + BLOCKS * EXPERTS * sizeof use->counts[0]);
        assert_non_null(use);
        use->n_blocks = BLOCKS;
        use->n_experts = EXPERTS;
        run_all(backends[i], use, NULL);
        for (uint32_t e = 0; e < EXPERTS; e++) {
            assert_int_equal(rn_expert_use_get(use, BLOCK, e), expected[e]);
            assert_int_equal(rn_expert_use_get(use, 1 - BLOCK, e), 0);
        }
        rn_free(&heap, use);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts_are_what_was_routed)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
