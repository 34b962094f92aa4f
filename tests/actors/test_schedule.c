/* Who goes when, with one thread, a clock of its own and the oracle model: priorities, deadlines, limits, drain, and
 * memory that is taken back. Texts are judged by the simulation (tests/sim); here it is the order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sim/manual.h"

#define STREAMS 12
#define TOKENS 64

static runnel_engine *engine;
static runnel_model *model;
static struct oracle *oracle;
static uint64_t now;
static uint32_t n_ends;

/* What a stream was told. */
struct told {
    runnel_stream stream;
    uint32_t n_tokens, n_logits;
    int32_t tokens[TOKENS];
    bool ended;
    uint32_t end_order; /* 1: the first of all that ended */
    runnel_event last;
};

static uint64_t clock_now(void *user)
{
    (void)user;
    return ++now;
}

static void on_event(void *user, const runnel_event *event)
{
    struct told *told = user;

    if (event->type == RUNNEL_EVENT_TOKEN && event->token >= 0)
        told->tokens[told->n_tokens++ % TOKENS] = event->token;
    told->n_logits += event->type == RUNNEL_EVENT_LOGITS;
    if (event->type < RUNNEL_EVENT_DONE)
        return;
    told->ended = true;
    told->end_order = ++n_ends;
    told->last = *event;
    told->last.text = NULL;
}

static void start_with(uint32_t n_blocks, uint64_t max_queued_tokens, uint64_t max_queued_bytes)
{
    const struct rn_clock clock = {.now_us = clock_now};
    runnel_engine_options options;
    const struct manual_plan plan = {
        .limits = {.max_rows = 16,
                   .max_seqs = 12,
                   .max_outs = 12,
                   .n_blocks = n_blocks,
                   .block_tokens = 4,
                   .context_tokens = 64},
        .options = &options,
        .clock = &clock,
    };

    runnel_engine_options_default(&options);
    options.max_streams = STREAMS;
    options.max_queued_tokens = max_queued_tokens;
    options.max_queued_bytes = max_queued_bytes;
    manual_open(&plan, &engine, &model, &oracle);
    n_ends = 0;
}

static void start(uint64_t max_queued_tokens, uint64_t max_queued_bytes)
{
    start_with(16, max_queued_tokens, max_queued_bytes);
}

static void stop(void)
{
    manual_close(engine, oracle);
}

/* Runs what can run without a step's end or a reader. */
static void settle(void)
{
    rn_runtime_look_at_clock(&engine->runtime);
    manual_run(engine);
}

/* One step, if one is in flight, and all that follows. */
static void step(void)
{
    settle();
    if (oracle->first != NULL)
        oracle_complete(oracle, ORACLE_FAULT_NONE);
    settle();
    runnel_engine_dispatch(engine, 0);
    settle();
}

static void run_all(void)
{
    for (uint32_t i = 0; i < 2000; i++)
        step();
}

static runnel_request request_of(struct told *told, uint32_t n_prompt, int64_t max_tokens, uint32_t first)
{
    static int32_t prompts[8][TOKENS];
    static uint32_t next;
    int32_t *prompt = prompts[next++ % 8];
    runnel_request request;

    for (uint32_t i = 0; i < n_prompt; i++)
        prompt[i] = (int32_t)((first + i * 7) % 250);
    *told = (struct told){.n_tokens = 0};
    runnel_request_default(&request);
    request.tokens = prompt;
    request.n_tokens = n_prompt;
    request.max_tokens = max_tokens;
    request.ignore_eos = 1;
    request.on_event = on_event;
    request.user = told;
    return request;
}

static void submit(struct told *told, const runnel_request *request)
{
    assert_int_equal(runnel_generate(model, request, &told->stream, NULL), RUNNEL_OK);
}

static runnel_engine_stats stats_now(void)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};

    runnel_engine_get_stats(engine, &stats);
    return stats;
}

/* Memory for one at a time: the one of higher priority that came last ends first, though another runs already; and
 * that one's tokens are those it has alone. */
static void higher_priority_takes_memory(void **state)
{
    struct told low, high, alone;
    runnel_request request;

    (void)state;
    start(0, 0);
    request = request_of(&low, 30, 30, 3);
    submit(&low, &request);
    for (uint32_t i = 0; i < 12; i++)
        step();
    assert_true(low.n_tokens > 0 && !low.ended);
    request = request_of(&high, 40, 20, 100);
    request.priority = 1;
    submit(&high, &request);
    run_all();
    assert_int_equal(high.last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(low.last.type, RUNNEL_EVENT_DONE);
    assert_true(high.end_order < low.end_order);
    assert_true(stats_now().preemptions > 0);
    request = request_of(&alone, 30, 30, 3);
    request.cache_salt = 9;
    submit(&alone, &request);
    run_all();
    assert_int_equal(alone.n_tokens, 30);
    assert_int_equal(low.n_tokens, 30);
    assert_memory_equal(alone.tokens, low.tokens, 30 * sizeof low.tokens[0]);
    assert_int_equal(low.last.usage.prompt_tokens, 30);
    stop();
}

/* Likewise where one of a still higher priority stands in front of it, which is held for its session's sake, and one of
 * the same as the one that runs waits for memory behind it. */
static void held_one_hides_no_other(void **state)
{
    struct told low, turn, held, waits, high;
    runnel_session session;
    runnel_request request;

    (void)state;
    start(0, 0);
    assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
    request = request_of(&low, 20, 40, 3);
    submit(&low, &request);
    for (uint32_t i = 0; i < 2; i++) {
        request = request_of(i == 0 ? &turn : &held, 2, i == 0 ? 30 : 2, 50 * (i + 1));
        request.priority = 5;
        request.session = session;
        submit(i == 0 ? &turn : &held, &request);
        for (uint32_t k = 0; k < 3; k++)
            step();
    }
    request = request_of(&waits, 40, 5, 200);
    submit(&waits, &request);
    step();
    assert_int_equal(model->tier.admission.waiting.n, 2);
    request = request_of(&high, 30, 5, 150);
    request.priority = 3;
    submit(&high, &request);
    run_all();
    assert_int_equal(turn.end_order + held.end_order + high.end_order + low.end_order + waits.end_order, 15);
    assert_true(high.end_order < turn.end_order);
    assert_true(held.end_order < low.end_order && low.end_order < waits.end_order);
    assert_int_equal(runnel_session_free(model, session), RUNNEL_OK);
    stop();
}

/* Of two equals that do not fit together the older goes on, and the younger one is taken back and ends too. */
static void older_goes_on(void **state)
{
    struct told older, younger;
    runnel_request request;

    (void)state;
    start(0, 0);
    request = request_of(&older, 10, 50, 3);
    submit(&older, &request);
    request = request_of(&younger, 10, 50, 100);
    submit(&younger, &request);
    run_all();
    assert_int_equal(older.last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(younger.last.type, RUNNEL_EVENT_DONE);
    assert_true(older.end_order < younger.end_order);
    assert_int_equal(older.n_tokens, 50);
    assert_int_equal(younger.n_tokens, 50);
    assert_true(stats_now().preemptions > 0);
    stop();
}

/* One whose reader has stopped gives its memory to one that needs it, and goes on when it is read again. */
static void paused_one_makes_room(void **state)
{
    struct told paused, other;
    runnel_request request;

    (void)state;
    start(0, 0);
    request = request_of(&paused, 20, 44, 3);
    submit(&paused, &request);
    step();
    assert_int_equal(runnel_stream_pause(engine, paused.stream), RUNNEL_OK);
    for (uint32_t i = 0; i < 100; i++)
        step();
    request = request_of(&other, 40, 20, 100); /* younger, and of no higher priority */
    submit(&other, &request);
    run_all();
    assert_int_equal(other.last.type, RUNNEL_EVENT_DONE);
    assert_false(paused.ended);
    assert_int_equal(runnel_stream_resume(engine, paused.stream), RUNNEL_OK);
    run_all();
    assert_int_equal(paused.last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(paused.n_tokens, 44);
    stop();
}

static void step_whole(uint32_t n_steps)
{
    for (uint32_t i = 0; i < n_steps; i++) {
        step();
        assert_true(rn_decode_check(&model->decode) && rn_prefill_check(&model->prefill));
    }
}

/* Too long for a prompt without a lane, and with more logits than a reader may be behind. */
static runnel_request long_prompt(struct told *told, uint32_t first, int32_t priority, bool logits)
{
    runnel_request request = request_of(told, 40, 5, first);

    request.priority = priority;
    request.want_logits = logits;
    return request;
}

/* So many prompts whose readers have stopped: there is a lane for another one and for the next, and once they are read
 * they go on to what they have alone. */
static void prompts_make_way(uint32_t n, int32_t priority)
{
    struct told stalled[RN_PREFILL_LANES], others[2], alone;
    runnel_request request;

    start_with(200, 0, 0);
    for (uint32_t i = 0; i < n; i++) {
        request = long_prompt(&stalled[i], 20 * i, priority, true);
        submit(&stalled[i], &request);
        assert_int_equal(runnel_stream_pause(engine, stalled[i].stream), RUNNEL_OK);
    }
    step_whole(100);
    assert_int_equal(model->decode.prompts.n, n);
    for (uint32_t i = 0; i < 2; i++) {
        request = long_prompt(&others[i], 201 + 3 * i, priority, false);
        submit(&others[i], &request);
    }
    now += 1000000;
    step_whole(100);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(others[i].last.type, RUNNEL_EVENT_DONE);
    for (uint32_t i = 0; i < n; i++) {
        assert_false(stalled[i].ended);
        assert_int_equal(runnel_stream_resume(engine, stalled[i].stream), RUNNEL_OK);
    }
    step_whole(1000);
    assert_int_equal(model->prefill.free_lanes, RN_PREFILL_LANES);
    for (uint32_t i = 0; i < n; i++) {
        request = long_prompt(&alone, 20 * i, priority, true);
        request.cache_salt = 9;
        submit(&alone, &request);
        step_whole(100);
        assert_int_equal(stalled[i].last.type, RUNNEL_EVENT_DONE);
        assert_int_equal(stalled[i].n_logits, alone.n_logits);
        assert_int_equal(stalled[i].n_tokens, 5);
        assert_memory_equal(stalled[i].tokens, alone.tokens, 5 * sizeof alone.tokens[0]);
    }
    stop();
}

static void stalled_prompts_make_way(void **state)
{
    (void)state;
    prompts_make_way(RN_PREFILL_LANES - 1, 0);
    prompts_make_way(RN_PREFILL_LANES, 0);
    prompts_make_way(RN_BACKGROUND_LANES, -1);
}

/* A prompt keeps its lane while another may have one, and for a moment: its reader mostly reads on by then. */
static void stalled_prompts_keep_lanes(void **state)
{
    struct told stalled[RN_PREFILL_LANES];
    runnel_request request;

    (void)state;
    start_with(200, 0, 0);
    for (uint32_t i = 0; i < RN_PREFILL_LANES; i++) {
        request = long_prompt(&stalled[i], 20 * i, 0, true);
        submit(&stalled[i], &request);
        assert_int_equal(runnel_stream_pause(engine, stalled[i].stream), RUNNEL_OK);
    }
    step_whole(100);
    assert_int_equal(model->decode.prompts.n, RN_PREFILL_LANES);
    assert_int_equal(stats_now().preemptions, 0);
    for (uint32_t i = 0; i < 3; i++) {
        now += 1000000;
        step_whole(10);
        assert_int_equal(model->decode.prompts.n, RN_PREFILL_LANES - 1);
        assert_int_equal(stats_now().preemptions, 1);
    }
    for (uint32_t i = 0; i < RN_PREFILL_LANES; i++)
        assert_int_equal(runnel_stream_cancel(engine, stalled[i].stream), RUNNEL_OK);
    step_whole(10);
    for (uint32_t i = 0; i < RN_PREFILL_LANES; i++)
        assert_int_equal(stalled[i].last.type, RUNNEL_EVENT_CANCELLED);
    stop();
}

/* Background prompts leave lanes: one that is not of the background computes in the next step. */
static void background_leaves_lanes(void **state)
{
    struct told background[RN_PREFILL_LANES], front;
    runnel_request request;

    (void)state;
    start(0, 0);
    for (uint32_t i = 0; i < RN_PREFILL_LANES; i++) {
        request = request_of(&background[i], 3, 1, 20 * i);
        request.priority = -10;
        submit(&background[i], &request);
    }
    settle(); /* a step with the first of them is in flight */
    assert_int_equal(model->decode.prompts.n, RN_BACKGROUND_LANES);
    request = request_of(&front, 3, 1, 200);
    submit(&front, &request);
    settle();
    assert_int_equal(model->decode.prompts.n, RN_BACKGROUND_LANES + 1);
    run_all();
    for (uint32_t i = 0; i < RN_PREFILL_LANES; i++)
        assert_int_equal(background[i].last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(front.last.type, RUNNEL_EVENT_DONE);
    stop();
}

/* Prompts of few rows need no lane: more of them than there are lanes are with decode at once, and through with the
 * step behind the one that the first began. */
static void short_prompts_need_no_lane(void **state)
{
    struct told all[STREAMS];
    runnel_request request;

    (void)state;
    start(0, 0);
    for (uint32_t i = 0; i < STREAMS; i++) {
        request = request_of(&all[i], 1, 1, 3 * i);
        submit(&all[i], &request);
    }
    settle();
    assert_int_equal(model->decode.prompts.n, STREAMS);
    assert_int_equal(model->prefill.free_lanes, RN_PREFILL_LANES);
    assert_int_equal(model->prefill.n_short, STREAMS);
    step();
    step();
    for (uint32_t i = 0; i < STREAMS; i++)
        assert_int_equal(all[i].last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(model->prefill.n_short, 0);
    stop();
}

/* A deadline ends one that waits without a step, and one that runs within a step; not one that made it. */
static void deadlines(void **state)
{
    struct told runs, waits, makes_it;
    runnel_request request;
    uint64_t steps;

    (void)state;
    start(0, 0);
    request = request_of(&makes_it, 4, 2, 50);
    request.deadline_ms = 1000;
    submit(&makes_it, &request);
    run_all();
    assert_int_equal(makes_it.last.type, RUNNEL_EVENT_DONE);

    request = request_of(&runs, 20, 40, 3);
    request.deadline_ms = 50;
    submit(&runs, &request);
    step();
    step();
    settle();
    request = request_of(&waits, 40, 20, 100); /* no room for both */
    request.deadline_ms = 10;
    submit(&waits, &request);
    settle();
    assert_int_equal(model->tier.admission.waiting.n, 1);
    steps = oracle->n_steps;
    now += 20000;
    settle();
    runnel_engine_dispatch(engine, 0);
    assert_int_equal(waits.last.type, RUNNEL_EVENT_FAILED);
    assert_int_equal(waits.last.status, RUNNEL_TIMEOUT);
    assert_int_equal(oracle->n_steps, steps);
    assert_false(runs.ended);
    now += 40000;
    step();
    assert_int_equal(runs.last.status, RUNNEL_TIMEOUT);
    assert_true(runs.last.timings.end_us >= 50000);
    run_all();
    assert_int_equal(stats_now().blocks_used, 0);
    stop();
}

/* Deadlines of streams that ended long ago do not fill the router's heap. */
static void many_deadlines(void **state)
{
    (void)state;
    start(0, 0);
    for (uint32_t i = 0; i < 20 * STREAMS; i++) {
        struct told told;
        runnel_request request = request_of(&told, 2, 1, i);

        request.deadline_ms = 1000000 - i;
        submit(&told, &request);
        for (uint32_t turn = 0; turn < 8 && !told.ended; turn++)
            step();
        assert_int_equal(told.last.type, RUNNEL_EVENT_DONE);
    }
    now += 2000000000ull;
    run_all();
    assert_int_equal(stats_now().messages, 0);
    stop();
}

static void limits_refuse(void **state)
{
    struct told told[4];
    runnel_request request;
    runnel_stream stream;
    runnel_error error;

    (void)state;
    start(50, 0);
    for (uint32_t i = 0; i < 2; i++) { /* the first is taken whatever its size, and by its turn it waits no longer */
        request = request_of(&told[i], 25, 1, 30 * i);
        submit(&told[i], &request);
    }
    request = request_of(&told[2], 25, 1, 90);
    assert_int_equal(runnel_generate(model, &request, &stream, &error), RUNNEL_BUSY);
    assert_int_equal(error.status, RUNNEL_BUSY);
    assert_true(error.retry_ms > 0);
    assert_int_equal(stats_now().queued_tokens, 50);
    run_all();
    assert_int_equal(stats_now().queued_tokens, 0);
    assert_int_equal(stats_now().queued_bytes, 0);
    submit(&told[2], &request);
    run_all();
    assert_int_equal(told[2].last.type, RUNNEL_EVENT_DONE);
    stop();

    start(0, 1000);
    request = request_of(&told[0], 60, 1, 30);
    submit(&told[0], &request);
    assert_int_equal(runnel_generate(model, &request, &stream, &error), RUNNEL_BUSY);
    run_all();
    stop();
}

/* Stop strings and biases are the request's, too. */
static void limits_count_all(void **state)
{
    static char text[RUNNEL_MAX_STOP_BYTES + 1];
    static const runnel_logit_bias biases[100];
    const char *stops[3] = {text, text, text};
    struct told told[2];
    runnel_request request;
    uint64_t plain;

    (void)state;
    memset(text, 'a', sizeof text - 1);
    start(0, 0);
    request = request_of(&told[0], 5, 1, 30);
    submit(&told[0], &request);
    plain = stats_now().queued_bytes;
    request = request_of(&told[1], 5, 1, 30);
    request.stops = stops;
    request.n_stops = 3;
    request.sampling.biases = biases;
    request.sampling.n_biases = 100;
    submit(&told[1], &request);
    assert_true(stats_now().queued_bytes >= 2 * plain + 3 * RUNNEL_MAX_STOP_BYTES + sizeof biases);
    run_all();
    assert_int_equal(stats_now().queued_bytes, 0);
    stop();
}

/* The hint is the time between ends. */
static void retry_hint(void **state)
{
    struct told told[STREAMS], more;
    runnel_request request;
    runnel_error error;

    (void)state;
    start(0, 0);
    for (uint32_t i = 0; i < 30; i++) {
        request = request_of(&told[0], 2, 1, i);
        submit(&told[0], &request);
        now += 7000;
        while (!told[0].ended)
            step();
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        request = request_of(&told[i], 2, 1, i);
        submit(&told[i], &request);
    }
    request = request_of(&more, 2, 1, 77);
    assert_int_equal(runnel_generate(model, &request, &more.stream, &error), RUNNEL_BUSY);
    assert_in_range(error.retry_ms, 7, 9);
    run_all();
    stop();
}

static void drain(void **state)
{
    struct told told;
    runnel_request request;
    runnel_error error;

    (void)state;
    start(0, 0);
    request = request_of(&told, 4, 8, 5);
    submit(&told, &request);
    assert_int_equal(runnel_engine_drain(engine, 0), RUNNEL_TIMEOUT);
    assert_int_equal(runnel_generate(model, &request, &told.stream, &error), RUNNEL_CLOSED);
    assert_false(told.ended);
    run_all();
    assert_int_equal(told.last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(told.n_tokens, 8);
    assert_int_equal(runnel_engine_drain(engine, -1), RUNNEL_OK);
    stop();
}

/* A row takes 10 ms in a step of sixteen. */
static void run_slowly(void)
{
    while (oracle->first != NULL) {
        now += 160000;
        step();
    }
}

/* A prompt that is alone and takes long waits a moment; who comes meanwhile ends that, or its time, or its end. */
static void who_is_alone_waits_for_others(void **state)
{
    struct told told[6];
    runnel_request request = request_of(&told[0], 40, 1, 1);

    (void)state;
    start(0, 0);
    submit(&told[0], &request); /* what a row takes is not known: at once */
    settle();
    run_slowly();
    request = request_of(&told[1], 20, 1, 2);
    submit(&told[1], &request);
    now += 2000;
    settle();
    assert_null(oracle->first);
    request = request_of(&told[2], 20, 1, 3);
    submit(&told[2], &request);
    settle();
    assert_non_null(oracle->first);
    run_slowly();
    now += RN_PROMPT_BUDGET_PATIENCE_US; /* the WAKE that was asked for */
    settle();
    request = request_of(&told[3], 20, 1, 4);
    submit(&told[3], &request); /* nobody comes */
    settle();
    assert_null(oracle->first);
    now += RN_PROMPT_BUDGET_PATIENCE_US;
    settle();
    assert_non_null(oracle->first);
    run_slowly();
    request = request_of(&told[4], 8, 1, 5);
    submit(&told[4], &request); /* a shared step could take it whole */
    settle();
    assert_non_null(oracle->first);
    run_slowly();
    request = request_of(&told[5], 20, 1, 6);
    submit(&told[5], &request);
    settle();
    assert_null(oracle->first);
    assert_int_equal(runnel_stream_cancel(engine, told[5].stream), RUNNEL_OK);
    settle();
    runnel_engine_dispatch(engine, 0);
    assert_int_equal(told[5].last.type, RUNNEL_EVENT_CANCELLED);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(told[i].last.type, RUNNEL_EVENT_DONE);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_alone_waits_for_others),
        cmocka_unit_test(higher_priority_takes_memory),
        cmocka_unit_test(held_one_hides_no_other),
        cmocka_unit_test(older_goes_on),
        cmocka_unit_test(paused_one_makes_room),
        cmocka_unit_test(stalled_prompts_make_way),
        cmocka_unit_test(stalled_prompts_keep_lanes),
        cmocka_unit_test(background_leaves_lanes),
        cmocka_unit_test(short_prompts_need_no_lane),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(many_deadlines),
        cmocka_unit_test(limits_refuse),
        cmocka_unit_test(limits_count_all),
        cmocka_unit_test(retry_hint),
        cmocka_unit_test(drain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
