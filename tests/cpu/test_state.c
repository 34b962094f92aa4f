/* Recurrent states beside the blocks: zeroed, copied, moved, and out to the host's memory and in again. No op of a plan
 * reads one yet: of the CPU's two backends the bytes are looked at, of the oracle model what its rows find in them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cpu/runner.h"
#include "tests/sim/oracle_backend.h"

enum { BLOCK = 8, CONTEXT = 32, SLOTS = 5, BYTES = 100 };

static struct rn_heap heap;

static void on_copied(struct rn_host_copies *copies)
{
    *(bool *)copies->user = true;
}

/* A copy that is done when the call returns, as those of the CPU and of the oracle are. */
static void copy_state(struct rn_backend *backend, uint32_t slot, bool to_host, void *bytes)
{
    struct rn_host_copy copy = {.block = slot, .to_host = to_host, .host = bytes, .is_state = true};
    bool done = false;
    struct rn_host_copies copies = {
        .n = 1, .items = &copy, .status = RUNNEL_STATUS_MAX_, .on_done = on_copied, .user = &done};

    backend->ops->copy_async(backend, &copies);
    assert_true(done);
    assert_int_equal(copies.status, RUNNEL_OK);
}

/* ---- The CPU ---- */

static void assert_state(struct rn_backend *backend, uint32_t slot, const unsigned char *want)
{
    unsigned char bytes[BYTES + 1];

    memset(bytes, 0xaa, sizeof bytes);
    copy_state(backend, slot, true, bytes);
    assert_memory_equal(bytes, want, BYTES);
    assert_int_equal(bytes[BYTES], 0xaa);
}

/* A plan that has states wants slots for them. */
static void check_slots(struct model *model, const char *name)
{
    const struct rn_backend_limits limits = {
        .max_rows = 4, .max_seqs = 2, .max_outs = 4, .n_blocks = 4, .block_tokens = BLOCK, .context_tokens = CONTEXT};
    const struct rn_level *level = strcmp(name, "reference") == 0 ? NULL : rn_level_named(name);
    struct rn_team *team = rn_team_new(&heap, 1);
    struct rn_backend *backend =
        level == NULL ? rn_cpu_reference_new(&heap, team) : rn_cpu_backend_new_level(&heap, team, level);
    runnel_error error = {0};

    assert_int_equal(backend->ops->prepare(backend, model->plan, &limits, NULL, NULL, &error), RUNNEL_INVALID);
    backend->ops->free(backend);
    rn_team_free(team);
}

static void check_bytes(struct model *model, const char *name)
{
    const struct rn_backend_limits limits = {.max_rows = 4,
                                             .max_seqs = 2,
                                             .max_outs = 4,
                                             .n_blocks = 4,
                                             .block_tokens = BLOCK,
                                             .context_tokens = CONTEXT,
                                             .n_states = SLOTS};
    static const unsigned char zeros[BYTES];
    unsigned char states[SLOTS][BYTES];
    const uint32_t block = 2, state = 4;
    struct rn_step_state_copy copies[] = {{0, 1}, {RN_NO_STATE, 2}, {0, 3}};
    struct rn_step_seq seq = {.blocks = &block, .n_blocks = 1};
    struct rn_step_row row = {1, 0, 0, 0};
    float *logits = rn_alloc(&heap, model->plan->n_vocab, sizeof *logits);
    struct rn_step step = {.n_rows = 1,
                           .n_seqs = 1,
                           .n_outs = 1,
                           .rows = &row,
                           .seqs = &seq,
                           .logits = logits,
                           .states = &state,
                           .state_copies = copies,
                           .n_state_copies = 3};
    struct runner r;

    open_runner(&r, &heap, model->plan, strcmp(name, "reference") == 0 ? NULL : rn_level_named(name), 2, &limits);
    assert_true(rn_device_can(r.backend->caps, RN_CAN_STATE));
    assert_int_equal(r.backend->ops->state_bytes(r.backend), BYTES);
    for (uint32_t s = 0; s < SLOTS; s++) {
        for (uint32_t i = 0; i < BYTES; i++)
            states[s][i] = (unsigned char)(s * 31 + i + 1);
        copy_state(r.backend, s, false, states[s]);
    }
    run_step(&r, &step);
    assert_state(r.backend, 0, states[0]);
    assert_state(r.backend, 1, states[0]);
    assert_state(r.backend, 2, zeros);
    assert_state(r.backend, 3, states[0]);
    assert_state(r.backend, 4, states[4]);
    close_runner(&r);
    rn_free(&heap, logits);
}

static void test_bytes(void **state)
{
    static const char *const names[] = {"c", "avx2", "reference"};
    struct model model = open_model(&heap, "oracles/arch/llama-dense.gguf", CONTEXT);

    (void)state;
    model.plan->state_bytes = BYTES;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], "reference") == 0 || rn_level_named(names[i]) != NULL) {
            check_bytes(&model, names[i]);
            check_slots(&model, names[i]);
        }
    close_model(&model);
}

/* ---- The oracle ---- */

static void on_done(struct rn_step *step)
{
    *(bool *)step->user = true;
}

static struct oracle *new_oracle(void)
{
    const struct rn_backend_limits limits = {.max_rows = 8,
                                             .max_seqs = 2,
                                             .max_outs = 2,
                                             .n_blocks = 4,
                                             .block_tokens = BLOCK,
                                             .context_tokens = CONTEXT,
                                             .n_states = SLOTS};
    const struct oracle_alphabet alphabet = {.n = 3, .bytes = "abc"};
    struct oracle *oracle = oracle_new(&limits, &alphabet, 11);

    assert_non_null(oracle);
    return oracle;
}

/* Positions [at, at + n) of a sequence in this block, whose state is in the slot. */
static void run_rows(struct oracle *oracle, uint32_t block, uint32_t slot, uint32_t at, uint32_t n,
                     struct rn_step_state_copy *copies, uint32_t n_copies)
{
    struct rn_step_row rows[8];
    struct rn_step_seq seq = {.blocks = &block, .n_blocks = 1};
    bool done = false;
    struct rn_step step = {.n_rows = n,
                           .n_seqs = 1,
                           .rows = rows,
                           .seqs = &seq,
                           .states = &slot,
                           .state_copies = copies,
                           .n_state_copies = n_copies,
                           .on_done = on_done,
                           .user = &done};

    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct rn_step_row){(int32_t)(at + i + 1), at + i, 0, -1};
    oracle->backend.ops->submit_async(&oracle->backend, &step);
    oracle_complete(oracle, ORACLE_FAULT_NONE);
    assert_true(done);
}

static void test_oracle(void **state)
{
    struct rn_step_state_copy fresh = {RN_NO_STATE, 0}, kept = {0, 1}, back = {1, 3};
    struct oracle *oracle = new_oracle();
    uint64_t bytes;

    (void)state;
    assert_int_equal(oracle->backend.ops->state_bytes(&oracle->backend), sizeof bytes);
    run_rows(oracle, 0, 0, 0, 3, &fresh, 1);
    run_rows(oracle, 0, 0, 3, 2, &kept, 1); /* slot 1: behind three tokens */
    run_rows(oracle, 0, 0, 5, 1, NULL, 0);
    run_rows(oracle, 0, 3, 3, 2, &back, 1); /* back to there, in another slot */
    copy_state(&oracle->backend, 3, true, &bytes);
    copy_state(&oracle->backend, 4, false, &bytes);
    run_rows(oracle, 0, 4, 5, 1, NULL, 0); /* it has come by way of the host */
    assert_null(oracle->breach);
    oracle_free(oracle);
}

static void expect_breach(uint32_t slot, uint32_t at, struct rn_step_state_copy *copies, uint32_t n_copies)
{
    struct rn_step_state_copy fresh = {RN_NO_STATE, 0};
    struct oracle *oracle = new_oracle();

    run_rows(oracle, 0, 0, 0, 3, &fresh, 1);
    run_rows(oracle, 0, 0, 3, 2, NULL, 0);
    assert_null(oracle->breach);
    run_rows(oracle, 0, slot, at, 1, copies, n_copies);
    assert_non_null(oracle->breach);
    oracle_free(oracle);
}

static void test_breaches(void **state)
{
    struct rn_step_state_copy fresh = {RN_NO_STATE, 0}, far = {SLOTS, 1}, twice[] = {{0, 1}, {2, 1}},
                              chain[] = {{0, 1}, {1, 2}};

    (void)state;
    expect_breach(1, 5, NULL, 0); /* nobody's */
    expect_breach(0, 4, NULL, 0); /* already behind it */
    expect_breach(0, 0, NULL, 0); /* not zeroed */
    expect_breach(0, 5, &fresh, 1);
    expect_breach(SLOTS, 5, NULL, 0);
    expect_breach(0, 5, &far, 1);
    expect_breach(0, 5, twice, 2);
    expect_breach(0, 5, chain, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_oracle),
        cmocka_unit_test(test_breaches),
    };
    int failed;

    if (!has_models())
        return 77;
    rn_heap_init(&heap, NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed != 0 || rn_heap_blocks(&heap) != 0;
}
