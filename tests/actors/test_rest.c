/* An answer says for how many passes its drafter rested, and why: over the oracle model, whose steps and drafts take
 * what a case gives them, on one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "tests/actors/fixture.h"
#include "tests/sim/liar.h"
#include "tests/sim/manual.h"
#include "tests/sim/told.h"

enum { SALT = 79, STEP_US = 1000, PROMPT = 40, ANSWER = 200 };

static const struct oracle_alphabet alphabet = {5, {'a', 'b', 'c', 'd', 'e'}};

struct drafting {
    bool model;             /* a drafter that takes turns with the model; else guesses from the text */
    uint32_t right_percent; /* of guesses */
    uint32_t row_us;        /* n rows take so often n * n, beside STEP_US for the step */
    uint32_t pass_us;       /* of the drafter */
    uint32_t blocks;        /* of the drafter's, 16 positions each */
    uint32_t fails_at;      /* this pass of the drafter; 0: none */
};

static struct drafting drafting;
static runnel_engine *engine;
static runnel_model *model;
static struct oracle *target, *drafter;
static struct liar_plan liar;
static uint64_t now_us, n_passes;

static uint64_t clock_now(void *user)
{
    (void)user;
    return now_us;
}

static uint64_t takes_us(uint32_t n_rows)
{
    return STEP_US + (uint64_t)drafting.row_us * n_rows * n_rows;
}

static void start(const struct drafting *how)
{
    struct rn_backend_limits limits = {
        .max_rows = 128, .max_seqs = 16, .max_outs = 120, .n_blocks = 400, .block_tokens = 16, .context_tokens = 1400};
    struct rn_model_parts parts = {
        .limits = limits, .n_vocab = ORACLE_VOCAB, .new_proposer = liar_new, .proposer_user = &liar};
    struct rn_clock clock = {.now_us = clock_now};
    runnel_engine_options options;

    drafting = *how;
    now_us = 1;
    n_passes = 0;
    liar = (struct liar_plan){.alphabet = alphabet, .salt = SALT, .percent = how->right_percent, .seed = 1};
    runnel_engine_options_default(&options);
    options.max_streams = 2;
    engine = manual_engine(&options, &clock);
    target = oracle_new(&limits, &alphabet, SALT);
    drafter = NULL;
    parts.backend = &target->backend;
    if (how->model) {
        limits.n_blocks = how->blocks;
        limits.max_seqs = limits.max_outs = 2;
        drafter = oracle_new(&limits, &alphabet, SALT);
        drafter->wrong_percent = 100 - how->right_percent;
        parts.drafter = (struct rn_drafter){.kind = RN_DRAFTER_TOKENS,
                                            .n_layers = 1,
                                            .backend = &drafter->backend,
                                            .limits = limits,
                                            .pass_us = how->pass_us};
    }
    for (uint32_t i = 0; i < 700; i++) { /* what a size takes moves the others a little, until all have settled */
        uint32_t n = 1u << i % 7;

        rn_step_cost_record(&parts.cost, n, takes_us(n));
    }
    model = manual_model(engine, &parts, NULL);
}

/* The drafter's pass, or else the model's step, and all that follows. */
static bool step(void)
{
    manual_run(engine);
    if (drafter != NULL && drafter->first != NULL) {
        now_us += drafting.pass_us;
        oracle_complete(drafter, ++n_passes == drafting.fails_at ? ORACLE_FAULT_DEVICE : ORACLE_FAULT_NONE);
    } else if (target->first != NULL) {
        now_us += takes_us(target->first->n_rows);
        oracle_complete(target, ORACLE_FAULT_NONE);
    } else {
        return false;
    }
    manual_run(engine);
    runnel_engine_dispatch(engine, 0);
    manual_run(engine);
    return true;
}

static runnel_usage usage_of(const struct drafting *how)
{
    static struct told told;
    runnel_request request;

    start(how);
    request = told_request(&told, 1, PROMPT, ANSWER);
    request.draft = how->model ? RUNNEL_DRAFT_MODEL : RUNNEL_DRAFT_NGRAM;
    told_submit(&told, model, &request);
    for (uint32_t i = 0; i < 10000 && !told.ended; i++)
        step();
    assert_true(told.ended);
    told_assert_text(&told, &alphabet, SALT, PROMPT, ANSWER);
    while (step())
        ;
    runnel_engine_free(engine);
    manual_oracle_free(target);
    if (drafter != NULL)
        manual_oracle_free(drafter);
    return told.last.usage;
}

static void right_guesses_that_cost_nothing(void **state)
{
    runnel_usage text = usage_of(&(struct drafting){.right_percent = 100});
    runnel_usage guessed =
        usage_of(&(struct drafting){.model = true, .right_percent = 100, .pass_us = STEP_US / 20, .blocks = 100});

    (void)state;
    assert_true(text.accepted_tokens > ANSWER / 2 && guessed.accepted_tokens > ANSWER / 2);
    assert_int_equal(text.rest, RUNNEL_REST_NONE);
    assert_int_equal(text.rested_passes, 0);
    assert_int_equal(guessed.rest, RUNNEL_REST_NONE);
    assert_int_equal(guessed.rested_passes, 0);
}

static void wrong_guesses(void **state)
{
    runnel_usage text = usage_of(&(struct drafting){.right_percent = 0, .row_us = STEP_US / 20});
    runnel_usage guessed = usage_of(
        &(struct drafting){.model = true, .right_percent = 0, .row_us = STEP_US / 20, .pass_us = 1, .blocks = 100});

    (void)state;
    assert_int_equal(text.rest, RUNNEL_REST_WRONG);
    assert_true(text.rested_passes > ANSWER / 2 && text.rested_passes < ANSWER);
    assert_int_equal(guessed.rest, RUNNEL_REST_WRONG);
    assert_true(guessed.rested_passes > ANSWER / 2 && guessed.rested_passes < ANSWER);
}

/* However right guesses are, their rows take longer than the steps that they save. */
static void dear_rows(void **state)
{
    (void)state;
    for (uint32_t percent = 0; percent <= 100; percent += 100) {
        runnel_usage usage = usage_of(&(struct drafting){.right_percent = percent, .row_us = 2 * STEP_US});

        assert_int_equal(usage.rest, RUNNEL_REST_DEAR);
        assert_true(usage.rested_passes > ANSWER / 2);
    }
}

static void a_slow_drafter(void **state)
{
    runnel_usage usage =
        usage_of(&(struct drafting){.model = true, .right_percent = 100, .pass_us = 5 * STEP_US, .blocks = 100});

    (void)state;
    assert_int_equal(usage.rest, RUNNEL_REST_SLOW);
    assert_true(usage.rested_passes > ANSWER / 2);
}

static void no_room(void **state)
{
    runnel_usage usage =
        usage_of(&(struct drafting){.model = true, .right_percent = 100, .pass_us = STEP_US / 20, .blocks = 2});

    (void)state;
    assert_int_equal(usage.rest, RUNNEL_REST_MEMORY);
    assert_int_equal(usage.drafted_tokens, 0);
    assert_true(usage.rested_passes > ANSWER / 2);
}

static void a_broken_drafter(void **state)
{
    runnel_usage usage = usage_of(&(struct drafting){
        .model = true, .right_percent = 100, .pass_us = STEP_US / 20, .blocks = 100, .fails_at = 20});

    (void)state;
    assert_int_equal(usage.rest, RUNNEL_REST_BROKEN);
    assert_true(usage.drafted_tokens > 0 && usage.rested_passes > ANSWER / 4);
    assert_true(usage.rested_passes + usage.accepted_tokens < ANSWER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_guesses_that_cost_nothing),
        cmocka_unit_test(wrong_guesses),
        cmocka_unit_test(dear_rows),
        cmocka_unit_test(a_slow_drafter),
        cmocka_unit_test(no_room),
        cmocka_unit_test(a_broken_drafter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
