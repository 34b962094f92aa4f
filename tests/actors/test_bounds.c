/* The bounds of protocol.h against the worst schedule: one thread, and an actor that is not let run while the host
 * does its worst. A bound that is too small ends the program (RN_CHECK in rn_actor_send). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"
#include "tests/sim/edges.h"
#include "tests/sim/manual.h"

#define PROMPT "Once upon a time"
#define LONG_PROMPT \
    "Once upon a time there was a river, and a mill stood by it." /* longer than a prompt without a lane */
#define CHURN 300

static uint64_t clock_us;

static uint64_t clock_now(void *user)
{
    (void)user;
    return clock_us;
}

static int setup(void **state)
{
    runnel_engine_options options;
    const struct manual_plan plan = {
        .limits =
            {.max_rows = 16, .max_seqs = 10, .max_outs = 8, .n_blocks = 16, .block_tokens = 16, .context_tokens = 64},
        .options = &options,
        .submitted = manual_complete_at_once,
    };

    (void)state;
    runnel_engine_options_default(&options);
    options.max_streams = 2;
    options.max_sessions = 1;
    manual_begin(&plan);
    return 0;
}

static void check_edges(void)
{
    const char *wrong = edges_check_router(manual.engine);

    if (wrong == NULL)
        wrong = edges_check_model(manual.model);
    if (wrong != NULL)
        fail_msg("%s", wrong);
}

/* Runs every actor that can run but those of these names; NULL: none. */
static void run_but_both(const char *name, const char *other)
{
    for (bool ran = true; ran;) {
        ran = false;
        for (uint32_t i = 0; i < rn_runtime_runnable(&manual.engine->runtime); i++)
            if ((name == NULL || strcmp(manual.engine->runtime.runnable[i]->class->name, name) != 0) &&
                (other == NULL || strcmp(manual.engine->runtime.runnable[i]->class->name, other) != 0)) {
                rn_runtime_step(&manual.engine->runtime, i, RN_ACTOR_BATCH);
                check_edges();
                ran = true;
                break;
            }
    }
}

static void run_but(const char *name)
{
    run_but_both(name, NULL);
}

static void run_all(void)
{
    for (int i = 0; i < 100; i++) {
        run_but(NULL);
        runnel_engine_dispatch(manual.engine, 0);
    }
}

/* Submits and cancels at once, again and again, while one actor stands still. */
static void churn(const char *still)
{
    struct capture captures[2] = {{0}};
    bool open[2] = {false, false};

    for (int i = 0; i < CHURN; i++) {
        int which = i % 2;
        runnel_request request = make_request(PROMPT, 8, &captures[which]);
        runnel_stream stream;

        if (open[which] && captures[which].n_terminal == 0)
            continue; /* it needs the actor that stands still */
        capture_clear(&captures[which]);
        open[which] = true;
        assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
        if (i > CHURN / 2 && i % 3 == 0)
            run_but(still); /* so that it is not cancelled on its way, but where it lies */
        assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
        run_but(still);
        runnel_engine_dispatch(manual.engine, 0);
    }
    run_all();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(captures[i].n_terminal, 1);
        capture_clear(&captures[i]);
    }
    assert_quiet(manual.engine, 0);
}

static void cancel_churn(void **state)
{
    static const char *const names[] = {"router", "tokenizer", "tier", "prefill", "decode", "sampler", "detokenizer"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        churn(names[i]);
}

/* A cancel that comes to the tier before its request is acted on as soon as that comes: decode never sees it. */
static void cancel_overtakes(void **state)
{
    struct capture capture = {0};
    runnel_request request = make_request(PROMPT, 8, &capture);
    runnel_engine_stats before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
    runnel_stream stream;

    (void)state;
    runnel_engine_get_stats(manual.engine, &before);
    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
    run_but("tokenizer");
    assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
    run_but("tokenizer");
    run_all();
    runnel_engine_get_stats(manual.engine, &after);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_CANCELLED);
    assert_int_equal(after.steps, before.steps);
    capture_clear(&capture);
    assert_quiet(manual.engine, 0);
}

/* A deadline of the stream passes and it is cancelled, while its request waits for a lane: who comes second finds
 * nothing there, and must not go further, for decode stands still and would take it in without end. */
static void second_wishes(void **state)
{
    enum { LANES = 8, STREAMS = 12, ROUNDS = 40 };
    const struct rn_clock clock = {.now_us = clock_now};
    struct capture long_ones[LANES] = {{0}}, other = {0};
    runnel_engine_options options;
    const struct manual_plan plan = {
        .limits =
            {.max_rows = 16, .max_seqs = 16, .max_outs = 8, .n_blocks = 64, .block_tokens = 16, .context_tokens = 64},
        .options = &options,
        .clock = &clock,
        .submitted = manual_complete_at_once,
    };
    const struct manual first = manual;
    runnel_stream stream;

    runnel_engine_options_default(&options);
    options.max_streams = STREAMS;
    manual_begin(&plan);
    for (int i = 0; i < LANES; i++) {
        runnel_request request = make_request(LONG_PROMPT, 2, &long_ones[i]);

        request.cache_salt = (uint64_t)i + 1; /* nobody waits for another's prefix */
        assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
    }
    run_but("decode");
    for (int i = 0; i < ROUNDS; i++) {
        runnel_request request = make_request(LONG_PROMPT, 2, &other);

        request.deadline_ms = 1;
        assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
        run_but("decode");
        assert_int_equal(manual.model->prefill.waiting.n, 1);
        assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
        clock_us += 2000;
        rn_runtime_look_at_clock(&manual.engine->runtime);
        run_but_both("decode", "prefill");
        run_but("decode");
        runnel_engine_dispatch(manual.engine, 0);
        assert_int_equal(other.n_terminal, 1);
        capture_clear(&other);
    }
    run_all();
    for (int i = 0; i < LANES; i++) {
        assert_int_equal(long_ones[i].last.type, RUNNEL_EVENT_DONE);
        capture_clear(&long_ones[i]);
    }
    manual_end(state);
    manual = first;
}

/* One message of the router's, and the time that has come: true where it had one. */
static bool run_router(void)
{
    struct rn_runtime *runtime = &manual.engine->runtime;

    for (uint32_t i = 0; i < rn_runtime_runnable(runtime); i++)
        if (strcmp(runtime->runnable[i]->class->name, "router") == 0) {
            rn_runtime_step(runtime, i, 1);
            rn_runtime_look_at_clock(runtime);
            check_edges();
            return true;
        }
    return false;
}

/* Deadlines that have passed before the router comes to their requests, each earlier than the one before: each sets the
 * alarm anew, and it is due at once. One TICK is under way nevertheless, all of them pass, and so does one that was set
 * meanwhile. */
static void one_tick(void **state)
{
    enum { STREAMS = 40 };
    const struct rn_clock clock = {.now_us = clock_now};
    struct capture captures[STREAMS] = {{0}}, later = {0};
    runnel_engine_options options;
    const struct manual_plan plan = {
        .limits =
            {.max_rows = 16, .max_seqs = 16, .max_outs = 8, .n_blocks = 64, .block_tokens = 16, .context_tokens = 64},
        .options = &options,
        .clock = &clock,
        .submitted = manual_complete_at_once,
    };
    const struct manual first = manual;
    runnel_request request = make_request(PROMPT, 8, &later);
    runnel_stream stream;

    runnel_engine_options_default(&options);
    options.max_streams = STREAMS + 1;
    manual_begin(&plan);
    for (uint32_t i = 0; i < STREAMS; i++) {
        runnel_request own = make_request(PROMPT, 8, &captures[i]);

        own.deadline_ms = STREAMS - i;
        assert_int_equal(runnel_generate(manual.model, &own, &stream, NULL), RUNNEL_OK);
    }
    request.deadline_ms = 1000;
    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
    clock_us += 100000;
    while (run_router())
        ;
    run_but("decode");
    clock_us += 1000000;
    rn_runtime_look_at_clock(&manual.engine->runtime);
    run_but("decode");
    run_all();
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(captures[i].last.type, RUNNEL_EVENT_FAILED);
        assert_non_null(strstr(captures[i].error, "the deadline of"));
        capture_clear(&captures[i]);
    }
    assert_int_equal(later.last.type, RUNNEL_EVENT_FAILED);
    assert_non_null(strstr(later.error, "the deadline of 1000 ms"));
    capture_clear(&later);
    manual_end(state);
    manual = first;
}

/* What an actor may send and be sent is what the rows say: a bound for each edge, and the sum for the mailbox. */
static void credits_are_sums(void **state)
{
    const struct rn_bounds one = {1, 1, 1, 1}, larger = {1000, 1000, 64, 64};

    (void)state;
    for (enum rn_role role = RN_ROLE_ROUTER; role < RN_ROLES_END; role++) {
        uint32_t sum = 0;

        for (enum rn_message_kind kind = 0; kind < RN_MSG_KINDS; kind++)
            if ((rn_message_row(kind)->receivers >> role & 1) != 0)
                sum += rn_bounds_edge(&one, kind);
        assert_int_equal(rn_bounds_credits(&one, role), sum);
        assert_true(rn_bounds_credits(&larger, role) >= rn_bounds_credits(&one, role));
    }
    /* Each handler has an edge, and each edge a handler. */
    for (enum rn_message_kind kind = 0; kind < RN_MSG_KINDS; kind++) {
        const struct rn_context *c = &manual.model->context;
        const struct rn_actor *const actors[] = {&manual.engine->router.actor,
                                                 c->tokenizer,
                                                 c->grammar,
                                                 c->tier,
                                                 c->mover,
                                                 c->prefill,
                                                 c->verifier,
                                                 c->decode,
                                                 c->draft,
                                                 c->sampler,
                                                 c->detokenizer};

        for (uint32_t i = 0; i < sizeof actors / sizeof actors[0]; i++)
            assert_int_equal(actors[i]->class->handlers[kind] != NULL,
                             rn_message_row(kind)->receivers >> (RN_ROLE_ROUTER + i) & 1);
    }
}

/* Sessions made and freed without pause while the tier stands still. */
static void session_churn(void **state)
{
    (void)state;
    for (int i = 0; i < CHURN; i++) {
        runnel_session session;
        runnel_status status = runnel_session_new(manual.model, &session);

        if (status == RUNNEL_OK)
            assert_int_equal(runnel_session_free(manual.model, session), RUNNEL_OK);
        else
            assert_int_equal(status, RUNNEL_BUSY);
        run_but(i % 7 == 6 ? NULL : "tier");
    }
    run_all();
    assert_quiet(manual.engine, 0);
}

/* Limits are given back before the host can know: while no actor runs behind that. A session that is being freed does
 * not count, as long as there are places. */
static void given_back(void **state)
{
    struct capture capture = {0};
    runnel_request request = make_request(PROMPT, 3, &capture);
    runnel_engine_stats stats = {.struct_size = sizeof stats};
    runnel_session session, more;

    (void)state;
    assert_int_equal(runnel_generate(manual.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    while (capture.n_terminal == 0) {
        run_but("detokenizer");
        run_but("tier");
        runnel_engine_dispatch(manual.engine, 0);
    }
    runnel_engine_get_stats(manual.engine, &stats);
    assert_int_equal(stats.queued_bytes, 0);
    assert_int_equal(stats.queued_tokens, 0);
    for (int i = 0; i < 1 + RN_SESSIONS_LEAVING; i++) {
        assert_int_equal(runnel_session_new(manual.model, &session), RUNNEL_OK);
        assert_int_equal(runnel_session_new(manual.model, &more), RUNNEL_BUSY);
        assert_int_equal(runnel_session_free(manual.model, session), RUNNEL_OK);
        assert_int_equal(runnel_session_free(manual.model, session), RUNNEL_NOT_FOUND);
    }
    runnel_engine_get_stats(manual.engine, &stats);
    assert_int_equal(stats.sessions, 0);
    assert_int_equal(runnel_session_new(manual.model, &session), RUNNEL_BUSY);
    run_all();
    assert_int_equal(runnel_session_new(manual.model, &session), RUNNEL_OK);
    assert_int_equal(runnel_session_free(manual.model, session), RUNNEL_OK);
    run_all();
    assert_quiet(manual.engine, 0);
    capture_clear(&capture);
}

/* ---- Two models, and one stream at once ---- */

struct pair {
    runnel_engine *engine;
    runnel_model *models[2];
    struct oracle *oracles[2];
    const struct rn_actor *still[2]; /* actors that are not let run; NULL: none */
};

static bool stands_still(const struct pair *pair, const struct rn_actor *actor)
{
    return actor == pair->still[0] || actor == pair->still[1];
}

/* All that can be done while those stand still; `steps`: steps of the models, too. */
static void run_pair(struct pair *pair, bool steps)
{
    for (bool ran = true; ran;) {
        struct rn_runtime *runtime = &pair->engine->runtime;
        const char *wrong = NULL;

        ran = false;
        for (uint32_t i = 0; i < rn_runtime_runnable(runtime) && !ran; i++)
            if (!stands_still(pair, runtime->runnable[i])) {
                rn_runtime_step(runtime, i, RN_ACTOR_BATCH);
                ran = true;
            }
        for (int m = 0; m < 2 && wrong == NULL; m++)
            wrong = edges_check_model(pair->models[m]);
        if (wrong == NULL)
            wrong = edges_check_router(pair->engine);
        if (wrong != NULL)
            fail_msg("%s", wrong);
        assert_true(rn_router_check(&pair->engine->router));
        for (int m = 0; m < 2 && !ran && steps; m++)
            if (pair->oracles[m]->first != NULL) {
                oracle_complete(pair->oracles[m], ORACLE_FAULT_NONE);
                ran = true;
            }
        if (!ran)
            ran = runnel_engine_dispatch(pair->engine, 0) > 0;
    }
}

static void open_pair(struct pair *pair)
{
    const struct rn_backend_limits limits = {
        .max_rows = 16, .max_seqs = 10, .max_outs = 8, .n_blocks = 16, .block_tokens = 16, .context_tokens = 64};
    const struct oracle_alphabet alphabet = manual_alphabet(2);
    runnel_engine_options options;

    runnel_engine_options_default(&options);
    options.max_streams = 1;
    *pair = (struct pair){.engine = manual_engine(&options, NULL)};
    for (uint64_t m = 0; m < 2; m++) {
        struct rn_model_parts parts = {.limits = limits, .n_vocab = ORACLE_VOCAB};

        pair->oracles[m] = oracle_new(&limits, &alphabet, m);
        parts.backend = &pair->oracles[m]->backend;
        pair->models[m] = manual_model(pair->engine, &parts, NULL);
    }
    run_pair(pair, false);
}

static void generate(struct pair *pair, int model, struct capture *capture)
{
    runnel_request request = make_request(PROMPT, 3, capture);

    memset(capture, 0, sizeof *capture);
    assert_int_equal(runnel_generate(pair->models[model], &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
}

/* The slot's streams end one after the other, each at a tier that then stands still, and their ENDED come to a router
 * that does. What waits for an older stream's end goes on behind it. */
static void ends_of_two_models(void **state)
{
    struct capture captures[3];
    struct pair pair;
    int n = 0;

    (void)state;
    open_pair(&pair);
    for (; n < 2; n++) {
        generate(&pair, n, &captures[n]);
        run_pair(&pair, false); /* its prompt's step is in flight, if it has come so far */
        pair.still[n] = pair.models[n]->context.tier;
        run_pair(&pair, true);
        if (captures[n].n_terminal == 0)
            break;
    }
    if (n == 2) {
        generate(&pair, 0, &captures[n]);
        run_pair(&pair, false);
    }
    pair.still[0] = &pair.engine->router.actor;
    pair.still[1] = NULL;
    run_pair(&pair, true);
    pair.still[0] = NULL;
    run_pair(&pair, true);
    for (int i = 0; i <= n; i++) {
        assert_int_equal(captures[i].last.type, RUNNEL_EVENT_DONE);
        assert_int_equal(captures[i].n_tokens, 3);
        capture_clear(&captures[i]);
    }
    assert_quiet(pair.engine, 0);
    runnel_engine_free(pair.engine);
    for (int m = 0; m < 2; m++)
        manual_oracle_free(pair.oracles[m]);
}

/* A stream that waits at the router for the end of the slot's last one is cancelled there, or its model freed. */
static void held_at_the_router(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        struct capture captures[2];
        runnel_request request = make_request(PROMPT, 3, &captures[1]);
        runnel_stream stream;
        struct pair pair;

        open_pair(&pair);
        generate(&pair, 0, &captures[0]);
        run_pair(&pair, false);
        pair.still[0] = pair.models[0]->context.tier;
        run_pair(&pair, true);
        assert_int_equal(captures[0].n_terminal, 1);
        memset(&captures[1], 0, sizeof captures[1]);
        assert_int_equal(runnel_generate(pair.models[1], &request, &stream, NULL), RUNNEL_OK);
        run_pair(&pair, true);
        assert_int_equal(pair.oracles[1]->n_steps, 0);
        if (way == 0)
            assert_int_equal(runnel_stream_cancel(pair.engine, stream), RUNNEL_OK);
        else
            runnel_model_free(pair.models[1]);
        run_pair(&pair, false);
        pair.still[0] = NULL;
        manual_settle(pair.engine);
        assert_int_equal(captures[1].last.type, RUNNEL_EVENT_CANCELLED);
        assert_int_equal(pair.oracles[1]->n_steps, 0);
        capture_clear(&captures[0]);
        capture_clear(&captures[1]);
        runnel_engine_free(pair.engine);
        for (int m = 0; m < 2; m++)
            manual_oracle_free(pair.oracles[m]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(credits_are_sums),   cmocka_unit_test(cancel_churn),  cmocka_unit_test(cancel_overtakes),
        cmocka_unit_test(session_churn),      cmocka_unit_test(second_wishes), cmocka_unit_test(ends_of_two_models),
        cmocka_unit_test(held_at_the_router), cmocka_unit_test(given_back),    cmocka_unit_test(one_tick),
    };

    return cmocka_run_group_tests(tests, setup, manual_end);
}
