/* Requests that nobody wants any more while they wait for the tokenizer or the grammar actor, or are with them: what
 * waits is not begun, what has begun is given up, and each ends as its host has asked. One thread. The clock is the
 * test's: who works long looks at it for the request's deadline, and so the test acts in the midst of the work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"
#include "tests/sim/manual.h"

#define MANY 6
#define LONG_MS 1000000000u

/* A template that renders until its steps are used up, and a regular expression that compiles until its are: both fail,
 * with INVALID, unless they are given up. */
#define SLOW_TEMPLATE \
    "{% for i in range(100000) %}{% for j in range(100000) %}{% set x = i * j %}{% endfor %}{% endfor %}a"
#define SLOW_REGEX "(a|b)*a(a|b){200}x{%d}"

/* So many looks at the clock make up a whole template: one for each 65,536 of its 10^8 steps. */
#define WHOLE_LOOKS (100000000 / 65536)

/* ---- The clock ---- */

static struct {
    uint64_t now_us;
    uint32_t n_looks, act_at; /* act_at 0: never */
    void (*act)(void);
} test_clock;

static uint64_t test_now(void *user)
{
    (void)user;
    if (++test_clock.n_looks == test_clock.act_at)
        test_clock.act();
    return test_clock.now_us;
}

/* In the midst of what is done next. */
static void act_soon(void (*act)(void))
{
    test_clock.act = act;
    test_clock.act_at = test_clock.n_looks + 40;
}

static int setup(void **state)
{
    const struct rn_clock clock = {.now_us = test_now};
    const struct manual_plan plan = {
        .limits =
            {.max_rows = 16, .max_seqs = 4, .max_outs = 8, .n_blocks = 32, .block_tokens = 16, .context_tokens = 128},
        .clock = &clock,
        .submitted = manual_complete_at_once,
    };

    (void)state;
    memset(&test_clock, 0, sizeof test_clock);
    manual_begin(&plan);
    return 0;
}

/* ---- Requests ---- */

static struct capture captures[MANY];
static runnel_stream streams[MANY];

/* What one waits for. TEXT: the template is quick, and what it writes is long. */
enum work { TEMPLATE, TEXT, REGEX, WORKS };

static runnel_stream submit(enum work work, int number, uint32_t deadline_ms, struct capture *capture)
{
    static char text[4 << 20];
    const runnel_message message = {.role = "user", .content = text};
    runnel_request request = make_request("a", 3, capture);
    runnel_grammar grammar;
    runnel_stream stream;
    runnel_chat chat;
    char regex[64];

    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = "abba "[i % 5];
    runnel_chat_default(&chat);
    chat.messages = &message;
    chat.n_messages = 1;
    chat.template_text = work == TEXT ? "{{ messages[0].content }}" : SLOW_TEMPLATE;
    runnel_grammar_default(&grammar);
    grammar.kind = RUNNEL_GRAMMAR_REGEX;
    grammar.text = regex;
    grammar.text_bytes = (size_t)snprintf(regex, sizeof regex, SLOW_REGEX, 1 + number); /* each is another one */
    if (work == REGEX) {
        request.grammar = &grammar;
    } else {
        request.prompt = NULL;
        request.prompt_bytes = 0;
        request.chat = &chat;
    }
    request.deadline_ms = deadline_ms;
    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
    return stream;
}

static void submit_all(enum work work, uint32_t deadline_ms)
{
    memset(captures, 0, sizeof captures);
    for (int i = 0; i < MANY; i++)
        streams[i] = submit(work, i, deadline_ms, &captures[i]);
}

static void assert_ended(runnel_event_type type, runnel_status status)
{
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(captures[i].n_terminal, 1);
        assert_int_equal(captures[i].last.type, type);
        assert_int_equal(captures[i].last.status, status);
        capture_clear(&captures[i]);
    }
}

static void cancel_all(void)
{
    for (int i = 0; i < MANY; i++)
        runnel_stream_cancel(manual.engine, streams[i]);
}

static void let_time_pass(void)
{
    test_clock.now_us += (uint64_t)LONG_MS * 1000;
}

static void free_model(void)
{
    runnel_model_free(manual.model);
}

/* ---- Cases ---- */

/* Ended before anything of them was done: no look at the clock is one of a template or a grammar at work. */
static void those_that_wait(void **state)
{
    (void)state;
    for (int work = 0; work < WORKS; work++) {
        submit_all(work, 0);
        cancel_all();
        manual_settle(manual.engine);
        assert_ended(RUNNEL_EVENT_CANCELLED, RUNNEL_OK);
        submit_all(work, LONG_MS);
        let_time_pass();
        manual_settle(manual.engine);
        assert_ended(RUNNEL_EVENT_FAILED, RUNNEL_TIMEOUT);
    }
    assert_true(test_clock.n_looks < WHOLE_LOOKS / 4);
    assert_int_equal(manual.model->grammar.n_compiled, 0);
}

/* The first is at work when all are cancelled, or their time has passed: it ends in its midst, and the others are not
 * begun. */
static void those_at_work(void **state)
{
    (void)state;
    for (int work = 0; work < WORKS; work++) {
        submit_all(work, LONG_MS);
        act_soon(cancel_all);
        manual_settle(manual.engine);
        assert_ended(RUNNEL_EVENT_CANCELLED, RUNNEL_OK);
        submit_all(work, LONG_MS);
        act_soon(let_time_pass);
        manual_settle(manual.engine);
        assert_ended(RUNNEL_EVENT_FAILED, RUNNEL_TIMEOUT);
        assert_true(test_clock.n_looks > test_clock.act_at);
    }
    assert_true(test_clock.n_looks < WHOLE_LOOKS);
    assert_int_equal(manual.model->grammar.n_compiled, 0);
}

/* Those of others go on. */
static void one_of_many(void **state)
{
    struct capture other = {0};
    runnel_request request = make_request("a", 3, &other);
    runnel_stream stream;

    (void)state;
    submit_all(TEMPLATE, LONG_MS);
    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
    act_soon(cancel_all);
    manual_settle(manual.engine);
    assert_ended(RUNNEL_EVENT_CANCELLED, RUNNEL_OK);
    assert_int_equal(other.last.type, RUNNEL_EVENT_DONE);
    capture_clear(&other);
}

/* The turns of a session keep their order where one of them is given up. */
static void a_turn_of_a_session(void **state)
{
    struct capture turns[3] = {{0}};
    runnel_session session;
    runnel_stream last;

    (void)state;
    assert_int_equal(runnel_session_new(manual.model, &session), RUNNEL_OK);
    for (int i = 0; i < 3; i++) {
        runnel_request request = make_request("abab", 3, &turns[i]);
        const runnel_message message = {.role = "user", .content = "a"};
        runnel_chat chat;

        runnel_chat_default(&chat);
        chat.messages = &message;
        chat.n_messages = 1;
        chat.template_text = SLOW_TEMPLATE;
        if (i == 1) {
            request.prompt = NULL;
            request.prompt_bytes = 0;
            request.chat = &chat;
        }
        request.session = session;
        assert_int_equal(runnel_generate(manual.model, &request, &last, NULL), RUNNEL_OK);
        if (i == 1)
            assert_int_equal(runnel_stream_cancel(manual.engine, last), RUNNEL_OK);
    }
    manual_settle(manual.engine);
    assert_int_equal(turns[0].last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(turns[1].last.type, RUNNEL_EVENT_CANCELLED);
    assert_int_equal(turns[2].last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(turns[2].last.usage.prompt_tokens, 4 + 3 + 4); /* of the first turn and its own */
    for (int i = 0; i < 3; i++)
        capture_clear(&turns[i]);
}

static void the_model_goes(void **state)
{
    (void)state;
    for (int at_work = 0; at_work < 2; at_work++)
        for (int work = 0; work < WORKS; work++) {
            submit_all(work, LONG_MS);
            if (at_work)
                act_soon(free_model);
            else
                free_model();
            manual_settle(manual.engine);
            assert_ended(RUNNEL_EVENT_CANCELLED, RUNNEL_OK);
            manual_end(NULL);
            setup(NULL);
        }
}

static void the_engine_goes(void **state)
{
    (void)state;
    for (int work = 0; work < WORKS; work++) {
        submit_all(work, LONG_MS);
        manual_end(NULL);
        assert_ended(RUNNEL_EVENT_CANCELLED, RUNNEL_OK);
        assert_true(test_clock.n_looks < WHOLE_LOOKS / 4);
        setup(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(those_that_wait, setup, manual_end),
        cmocka_unit_test_setup_teardown(those_at_work, setup, manual_end),
        cmocka_unit_test_setup_teardown(one_of_many, setup, manual_end),
        cmocka_unit_test_setup_teardown(a_turn_of_a_session, setup, manual_end),
        cmocka_unit_test_setup_teardown(the_model_goes, setup, manual_end),
        cmocka_unit_test_setup_teardown(the_engine_goes, setup, manual_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
