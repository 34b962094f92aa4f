/* Which steps go to the verifier: those in which streams draft, once each, and no others. What is proposed by the way
 * changes no text. A proposer begins anew behind each shift of its context. One thread, logical steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "tests/actors/fixture.h"
#include "tests/sim/manual.h"
#include "tests/sim/told.h"

enum { STREAMS = 4, TOKENS = 120, SALT = 1 };

static struct {
    uint32_t n_step_done, n_verify, n_sampled;
} seen;

static void count(void *user, const struct rn_actor *actor, const struct rn_msg *msg)
{
    (void)user;
    (void)actor;
    seen.n_step_done += msg->head.kind == RN_MSG_STEP_DONE;
    seen.n_verify += msg->head.kind == RN_MSG_VERIFY;
    seen.n_sampled += msg->head.kind == RN_MSG_SAMPLED;
}

/* Of so many streams the first few draft from their own text. */
static void run(uint32_t n, uint32_t n_drafting)
{
    const struct manual_plan plan = {.limits = {.max_rows = 64,
                                                .max_seqs = 16,
                                                .max_outs = 60,
                                                .n_blocks = 400,
                                                .block_tokens = 16,
                                                .context_tokens = 400}};
    const struct oracle_alphabet alphabet = manual_alphabet(2);
    static struct told told[STREAMS];
    struct oracle *oracle;
    runnel_engine *engine;
    runnel_model *model;

    manual_open(&plan, &engine, &model, &oracle);
    engine->runtime.trace = count;
    seen.n_step_done = seen.n_verify = seen.n_sampled = 0;
    for (uint32_t i = 0; i < n; i++) {
        runnel_request request = told_request(&told[i], i, 20 + i, TOKENS);

        request.draft = i < n_drafting ? RUNNEL_DRAFT_NGRAM : RUNNEL_DRAFT_NONE;
        told_submit(&told[i], model, &request);
    }
    for (uint32_t i = 0; i < 10000 && !told_all_ended(told, n); i++) {
        manual_settle(engine);
        if (oracle->first != NULL)
            oracle_complete(oracle, ORACLE_FAULT_NONE);
        assert_true(rn_verifier_check(&model->verifier));
    }
    for (uint32_t i = 0; i < n; i++)
        told_assert_text(&told[i], &alphabet, SALT, 20 + i, TOKENS);
    for (uint32_t i = 0; i < STREAMS; i++)
        assert_int_equal(model->verifier.streams[i].generation, 0); /* nothing is left of those that have ended */
    manual_close(engine, oracle);
}

static void steps_without_drafts_pass_it_by(void **state)
{
    (void)state;
    run(STREAMS, 0);
    assert_true(seen.n_step_done >= TOKENS);
    assert_int_equal(seen.n_verify, 0);
    assert_int_equal(seen.n_sampled, seen.n_step_done);
}

static void steps_with_drafts_visit_it_once(void **state)
{
    (void)state;
    run(1, 1);
    assert_true(seen.n_step_done > 0);
    assert_int_equal(seen.n_verify, seen.n_step_done);
    assert_int_equal(seen.n_sampled, seen.n_step_done);
    run(STREAMS, 1);
    assert_true(seen.n_verify > 0 && seen.n_verify <= seen.n_step_done);
    assert_int_equal(seen.n_sampled, seen.n_step_done);
}

/* ---- Shifts ---- */

static struct {
    runnel_model *model;
    const struct rn_proposer_ops *ops;
    struct rn_proposer_ops counting;
    uint32_t n_shifted, n_alone, n_restarted;
} shifts;

static void restart(struct rn_proposer *proposer)
{
    shifts.n_restarted++;
    shifts.ops->restart(proposer);
}

/* Before the verifier gets it: every other request that has been shifted comes without a slot for drafts. */
static void take_spare(void *user, const struct rn_actor *actor, const struct rn_msg *msg)
{
    struct rn_request *request = msg->request.request;
    struct rn_verifier_stream *stream;

    (void)user;
    if (msg->head.kind != RN_MSG_OFFER || actor != &shifts.model->verifier.actor || !request->shifted)
        return;
    stream = &shifts.model->verifier.streams[request->slot];
    if (stream->generation != request->generation)
        return;
    if (shifts.ops == NULL) {
        shifts.ops = stream->proposer->ops;
        shifts.counting = *shifts.ops;
        shifts.counting.restart = restart;
    }
    stream->proposer->ops = &shifts.counting;
    if (shifts.n_shifted++ % 2 == 0) {
        request->state_spare = RN_NO_STATE;
        shifts.n_alone++;
    }
}

static void shifts_restart_the_proposer(void **state)
{
    const struct manual_plan plan = {.limits = {.max_rows = 64,
                                                .max_seqs = 16,
                                                .max_outs = 60,
                                                .n_blocks = 40,
                                                .n_states = 2000, /* some are left for drafts */
                                                .block_tokens = 16,
                                                .context_tokens = 64}};
    static struct told told;
    struct oracle *oracle;
    runnel_engine *engine;
    runnel_request request;

    (void)state;
    manual_open(&plan, &engine, &shifts.model, &oracle);
    engine->runtime.trace = take_spare;
    request = told_request(&told, 1, 20, 300);
    request.draft = RUNNEL_DRAFT_NGRAM;
    request.context_keep = 4;
    told_submit(&told, shifts.model, &request);
    for (uint32_t i = 0; i < 10000 && !told.ended; i++) {
        manual_settle(engine);
        if (oracle->first != NULL)
            oracle_complete(oracle, ORACLE_FAULT_NONE);
        assert_true(rn_verifier_check(&shifts.model->verifier));
    }
    assert_true(told.ended && told.last.type == RUNNEL_EVENT_DONE && told.n_tokens == 300);
    assert_true(shifts.n_alone > 1 && shifts.n_shifted > shifts.n_alone);
    assert_int_equal(shifts.n_restarted, shifts.n_shifted);
    manual_close(engine, oracle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_without_drafts_pass_it_by),
        cmocka_unit_test(steps_with_drafts_visit_it_once),
        cmocka_unit_test(shifts_restart_the_proposer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
