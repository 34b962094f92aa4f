/* Readers that pause beside a small KV: who gives blocks back, and how often a stream computes again what it had. One
 * thread, the oracle model, and a clock that goes on by what a step costs: every count is of logical time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "actors/decode/keep_time.h"
#include "base/rng.h"
#include "tests/sim/manual.h"

#define STREAMS 300
#define PROMPT 40
#define ANSWER 80
#define SCORED 100  /* the prompts whose logits are wanted */
#define STEP_US 200 /* of a step ... */
#define ROW_US 100  /* ... and of each of its rows */
#define BLOCKS 128  /* for eight or nine of the streams */

static runnel_engine *engine;
static runnel_model *model;
static struct oracle *oracle;
static uint64_t now, rng;

struct reader {
    uint32_t n_logits;
    runnel_stream stream;
    uint64_t resume_us; /* 0: it is not paused */
    uint64_t pause_us;
    uint32_t in_pause; /* of 100 tokens, behind so many it pauses */
    uint32_t n_tokens;
    int32_t tokens[ANSWER];
    runnel_event_type end; /* 0: none yet */
};

static struct reader readers[STREAMS];
static uint32_t n_ended;

/* What a run came to. */
struct result {
    uint64_t us, rows, again, preemptions;
};

static uint64_t clock_now(void *user)
{
    (void)user;
    return now;
}

static uint32_t pick(uint32_t n)
{
    return (uint32_t)((rn_splitmix64(&rng) >> 32) * n >> 32);
}

static void on_event(void *user, const runnel_event *event)
{
    struct reader *reader = user;

    if (event->type == RUNNEL_EVENT_TOKEN) {
        assert_true(reader->n_tokens < ANSWER);
        reader->tokens[reader->n_tokens++] = event->token;
        if (reader->resume_us == 0 && pick(100) < reader->in_pause) {
            assert_int_equal(runnel_stream_pause(engine, reader->stream), RUNNEL_OK);
            reader->resume_us = now + 1 + pick((uint32_t)(2 * reader->pause_us));
        }
    }
    if (event->type == RUNNEL_EVENT_LOGITS)
        assert_int_equal(event->position, reader->n_logits++);
    if (event->type >= RUNNEL_EVENT_DONE) {
        reader->end = event->type;
        n_ended++;
    }
}

static void open_engine(uint32_t n_blocks)
{
    const struct rn_clock clock = {.now_us = clock_now};
    runnel_engine_options options;
    const struct manual_plan plan = {
        .limits = {.max_rows = 64,
                   .max_seqs = 32,
                   .max_outs = 32,
                   .n_blocks = n_blocks,
                   .block_tokens = 8,
                   .context_tokens = 128},
        .n_letters = 26,
        .options = &options,
        .clock = &clock,
    };

    runnel_engine_options_default(&options);
    options.max_streams = STREAMS;
    now = 1;
    manual_open(&plan, &engine, &model, &oracle);
}

static void submit_text(uint32_t i, uint32_t n_prompt, runnel_request *request)
{
    int32_t prompt[SCORED];

    for (uint32_t j = 0; j < n_prompt; j++)
        prompt[j] = (int32_t)((i * 31 + j * 7 + i / 200 + 1) % 250);
    request->tokens = prompt;
    request->n_tokens = n_prompt;
    request->on_event = on_event;
    request->user = &readers[i];
    assert_int_equal(runnel_generate(model, request, &readers[i].stream, NULL), RUNNEL_OK);
}

static void submit(uint32_t i, uint64_t pause_us, uint32_t in_pause)
{
    runnel_request request;

    readers[i] = (struct reader){.pause_us = pause_us, .in_pause = in_pause};
    runnel_request_default(&request);
    request.max_tokens = ANSWER;
    request.ignore_eos = 1;
    submit_text(i, PROMPT, &request);
}

/* The next moment at which a reader reads on; UINT64_MAX: none pauses. */
static uint64_t next_resume(void)
{
    uint64_t at = UINT64_MAX;

    for (uint32_t i = 0; i < STREAMS; i++)
        if (readers[i].resume_us != 0 && readers[i].resume_us < at)
            at = readers[i].resume_us;
    return at;
}

static void resume_due(void)
{
    for (uint32_t i = 0; i < STREAMS; i++)
        if (readers[i].resume_us != 0 && readers[i].resume_us <= now) {
            readers[i].resume_us = 0;
            if (readers[i].end == 0)
                assert_int_equal(runnel_stream_resume(engine, readers[i].stream), RUNNEL_OK);
        }
}

static void settle(void)
{
    resume_due();
    rn_runtime_look_at_clock(&engine->runtime);
    manual_settle(engine);
}

/* A step, or where none is in flight the time until something happens. */
static bool go_on(struct result *result)
{
    uint64_t at, alarm;

    settle();
    if (oracle->first != NULL) {
        result->rows += oracle->first->n_rows;
        now += STEP_US + ROW_US * oracle->first->n_rows;
        oracle_complete(oracle, ORACLE_FAULT_NONE);
        return true;
    }
    if (n_ended == STREAMS)
        return false;
    at = next_resume();
    alarm = atomic_load(&engine->runtime.alarm.at_us);
    at = alarm < at ? alarm : at;
    assert_true(at != UINT64_MAX); /* nobody pauses, nothing is due, and nothing moves */
    now = at > now ? at : now;
    return true;
}

/* All streams at once; each ends with its whole answer. */
static struct result run(uint32_t n_blocks, uint64_t pause_us, uint32_t in_pause)
{
    struct result result = {0};
    runnel_engine_stats stats = {.struct_size = sizeof stats};
    uint64_t begin, useful = 0;

    rng = 1;
    n_ended = 0;
    open_engine(n_blocks);
    for (uint32_t i = 0; i < STREAMS; i++)
        submit(i, pause_us, in_pause);
    begin = now;
    while (go_on(&result))
        ;
    result.us = now - begin;
    for (uint32_t i = 0; i < STREAMS; i++) {
        assert_int_equal(readers[i].end, RUNNEL_EVENT_DONE);
        assert_int_equal(readers[i].n_tokens, ANSWER);
        useful += PROMPT + ANSWER - 1;
    }
    runnel_engine_get_stats(engine, &stats);
    result.preemptions = stats.preemptions;
    result.again = result.rows - useful;
    manual_check(model, oracle);
    manual_close(engine, oracle);
    return result;
}

/* The mean of what a stream waits for its reader is about this, where 30 of 100 tokens are followed by a pause. */
#define MANY 30

static void print(const char *what, const struct result *r)
{
    printf("%-36s %6.2f s, %llu preemptions, computed again: %.2f of the work\n", what, (double)r->us * 1e-6,
           (unsigned long long)r->preemptions, (double)r->again / (double)(r->rows - r->again));
}

/* Readers that are back before all of the KV could be computed again keep what they have: less than half of the work
 * is done twice, and it takes less than twice as long as with readers that never pause. */
static void short_pauses_keep_their_blocks(void **state)
{
    static const uint64_t pauses[] = {1000, 3000, 10000};
    struct result none = run(BLOCKS, 1, 0);

    (void)state;
    print("no pauses", &none);
    for (uint32_t i = 0; i < sizeof pauses / sizeof pauses[0]; i++) {
        struct result r = run(BLOCKS, pauses[i], MANY);
        char what[64];

        snprintf(what, sizeof what, "pauses of %llu us on average", (unsigned long long)pauses[i]);
        print(what, &r);
        assert_true(2 * r.again < r.rows - r.again);
        assert_true(r.us < 2 * none.us);
    }
}

/* Readers that take much longer give their blocks up: so many streams take less than a tenth of the time that they
 * would take if each kept its blocks until it has ended. */
static void long_pauses_give_them_up(void **state)
{
    struct result r = run(BLOCKS, 1000000, MANY);
    uint64_t held_us = (uint64_t)STREAMS * ANSWER * MANY / 100 * 1000000 / (BLOCKS / 15);

    (void)state;
    print("pauses of a second", &r);
    assert_true(10 * r.us < held_us);
}

/* Streams that are paused for ever hold others up for no longer than it takes to compute all of the KV. */
static void for_ever(void **state)
{
    const uint32_t n_stuck = 20;
    struct result result = {0};
    uint64_t begin;

    (void)state;
    rng = 1;
    n_ended = STREAMS - 1; /* of which one is waited for */
    open_engine(BLOCKS);
    for (uint32_t i = 0; i < n_stuck; i++) {
        submit(i, 1, 0);
        assert_int_equal(runnel_stream_pause(engine, readers[i].stream), RUNNEL_OK);
    }
    for (uint32_t i = n_stuck; i < STREAMS; i++)
        readers[i] = (struct reader){.end = RUNNEL_EVENT_DONE};
    do
        settle();
    while (oracle->first != NULL && go_on(&result));
    begin = now;
    submit(STREAMS - 1, 1, 0);
    while (go_on(&result))
        ;
    assert_int_equal(readers[STREAMS - 1].end, RUNNEL_EVENT_DONE);
    assert_true(now - begin < (uint64_t)BLOCKS * 8 * (STEP_US + ROW_US) + ANSWER * (STEP_US + PROMPT * ROW_US));
    for (uint32_t i = 0; i < n_stuck; i++) {
        assert_int_equal(readers[i].end, 0);
        assert_int_equal(runnel_stream_resume(engine, readers[i].stream), RUNNEL_OK);
    }
    n_ended = STREAMS - n_stuck;
    while (go_on(&result))
        ;
    manual_check(model, oracle);
    manual_close(engine, oracle);
}

/* Whoever wants the logits of a prompt gets a few at a time: one who reads them at once is not behind, and keeps its
 * blocks though others wait for them. */
static void prompts_with_logits_are_computed_once(void **state)
{
    const uint32_t n_scored = 12;
    struct result result = {0};
    runnel_engine_stats stats = {.struct_size = sizeof stats};

    (void)state;
    rng = 1;
    n_ended = STREAMS - n_scored;
    open_engine(2 * SCORED / 8 + 2);
    for (uint32_t i = 0; i < STREAMS; i++) {
        runnel_request request;

        readers[i] = (struct reader){.end = i < n_scored ? 0 : RUNNEL_EVENT_DONE};
        runnel_request_default(&request);
        request.max_tokens = 0;
        request.want_logits = 1;
        if (i < n_scored)
            submit_text(i, SCORED, &request);
    }
    while (go_on(&result))
        ;
    for (uint32_t i = 0; i < n_scored; i++) {
        assert_int_equal(readers[i].end, RUNNEL_EVENT_DONE);
        assert_int_equal(readers[i].n_logits, SCORED);
    }
    runnel_engine_get_stats(engine, &stats);
    result.us = now - 1;
    result.preemptions = stats.preemptions;
    result.again = result.rows - n_scored * SCORED;
    print("prompts whose logits are wanted", &result);
    assert_true(2 * result.again < n_scored * SCORED);
    manual_check(model, oracle);
    manual_close(engine, oracle);
}

/* ---- keep_time.h ---- */

#define PLACES 1000 /* computing all of them takes 100 ms */
#define LONGEST 100000

static struct rn_keep_time measured(void)
{
    struct rn_keep_time keep = {0};

    for (uint32_t i = 0; i < 50; i++)
        rn_keep_time_note(&keep, 10, 10, 1000);
    return keep;
}

static uint64_t after(uint64_t stall_us, uint32_t n)
{
    struct rn_keep_time keep = measured();

    for (uint32_t i = 0; i < n; i++)
        rn_keep_time_stalled(&keep, stall_us, PLACES);
    return rn_keep_time_of(&keep, PLACES);
}

/* Nothing is known; readers that are all alike; and never longer than all takes to compute. */
static void keep_time_follows_the_readers(void **state)
{
    struct rn_keep_time keep = {0};

    (void)state;
    assert_int_equal(rn_keep_time_of(&keep, PLACES), 0);
    rn_keep_time_stalled(&keep, 5000, PLACES);
    assert_int_equal(keep.n_stalls, 0);
    keep = measured();
    assert_in_range(rn_keep_time_of(&keep, PLACES), LONGEST / 8 - 10, LONGEST / 8 + 10);
    for (uint64_t us = 1000; us < LONGEST; us += 7000)
        assert_in_range(after(us, 40), us - 10, LONGEST + 10);
    assert_int_equal(after(LONGEST + 1000, 40), 0);
    assert_int_equal(after(100 * LONGEST, 40), 0);
}

/* Whoever pauses how: what was kept and computed again never costs much more than with the best of the choices. */
static void keep_time_costs_little_more_than_the_best(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        struct rn_keep_time keep = measured();
        double own = 0, best = 1e30, fixed[RN_KEEP_CHOICES] = {0};
        uint64_t many, few;

        rng = seed;
        many = 1 + pick(2 * LONGEST);
        few = 1 + pick(20 * LONGEST);
        for (uint32_t i = 0; i < 2000; i++) {
            uint64_t us = 1 + pick((uint32_t)(pick(100) < seed % 100 ? few : many)), kept;

            kept = rn_keep_time_of(&keep, PLACES);
            own += us <= kept ? (double)us : (double)kept + LONGEST;
            for (uint32_t k = 0; k < RN_KEEP_CHOICES; k++) {
                double longest = k + 1 < RN_KEEP_CHOICES ? (double)(LONGEST >> k) : 0;

                fixed[k] += (double)us <= longest ? (double)us : longest + LONGEST;
            }
            rn_keep_time_stalled(&keep, us, PLACES);
        }
        for (uint32_t k = 0; k < RN_KEEP_CHOICES; k++)
            best = fixed[k] < best ? fixed[k] : best;
        assert_true(own < 1.25 * best);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_pauses_keep_their_blocks),
        cmocka_unit_test(long_pauses_give_them_up),
        cmocka_unit_test(for_ever),
        cmocka_unit_test(prompts_with_logits_are_computed_once),
        cmocka_unit_test(keep_time_follows_the_readers),
        cmocka_unit_test(keep_time_costs_little_more_than_the_best),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
