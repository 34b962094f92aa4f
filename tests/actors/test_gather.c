/* runnel_engine_options.gather_us: the first event after quiet wakes the host at once, and then wakes are gather_us
 * apart. The notifier is judged on a clock that the test moves; engines by the time between a look and the next wake,
 * of which a slow machine only makes more. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "actors/host/notifier.h"
#include "tests/actors/fixture.h"

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
/* clang-format on */

/* Longer than any test runs: where the notifier waits for it, its descriptor is not readable in our time. */
#define HOUR_US 3600000000u
#define GATHER_US 20000
#define STREAMS 4
#define TOKENS 40

/* ---- The notifier ------------------------------------------------------------------------- */

static uint64_t now_us; /* of the test's clock */

static uint64_t test_now_us(void *user)
{
    (void)user;
    return now_us;
}

static const struct rn_clock test_clock = {.now_us = test_now_us};

static bool readable(const struct rn_notifier *notifier, int timeout_ms)
{
    struct pollfd poller = {.fd = notifier->fd, .events = POLLIN};

    return poll(&poller, 1, timeout_ms) == 1;
}

/* Readable without anything else happening; it hangs, and the test with it, where it is not. */
static void assert_wakes(const struct rn_notifier *notifier)
{
    assert_true(readable(notifier, -1));
}

static void assert_sleeps(const struct rn_notifier *notifier)
{
    assert_false(readable(notifier, 20));
}

static void begin(struct rn_notifier *notifier, uint32_t gather_us)
{
    now_us = 5;
    assert_true(rn_notifier_init(notifier, gather_us, &test_clock));
    assert_sleeps(notifier);
}

static void at_once_without(void **state)
{
    struct rn_notifier notifier;

    (void)state;
    begin(&notifier, 0);
    for (int i = 0; i < 3; i++) {
        rn_notifier_raise(&notifier);
        assert_wakes(&notifier);
        rn_notifier_clear(&notifier);
        assert_sleeps(&notifier);
    }
    rn_notifier_fini(&notifier);
    assert_int_equal(notifier.fd, -1);
}

static void first_after_quiet(void **state)
{
    struct rn_notifier notifier;

    (void)state;
    begin(&notifier, HOUR_US);
    for (int i = 0; i < 3; i++) {
        rn_notifier_raise(&notifier);
        assert_wakes(&notifier);
        assert_wakes(&notifier); /* until it is cleared */
        rn_notifier_clear(&notifier);
        assert_sleeps(&notifier);
        now_us += HOUR_US;
        assert_sleeps(&notifier); /* nothing waits */
    }
    rn_notifier_fini(&notifier);
}

/* One event each minute: of two hours' events, three wakes. The time of the timer is the machine's, so what would wake
 * in an hour is looked at again by a raise when the clock says that it is due. */
static void wakes_are_apart(void **state)
{
    struct rn_notifier notifier;
    int n_wakes = 0;

    (void)state;
    begin(&notifier, HOUR_US);
    for (int minute = 0; minute <= 120; minute++, now_us += HOUR_US / 60) {
        rn_notifier_raise(&notifier);
        if (minute % 60 != 0) {
            assert_false(readable(&notifier, 0));
            continue;
        }
        assert_wakes(&notifier);
        rn_notifier_clear(&notifier);
        n_wakes++;
    }
    assert_int_equal(n_wakes, 3);
    rn_notifier_fini(&notifier);
}

/* What is held up comes by itself: no other event is needed. */
static void comes_by_itself(void **state)
{
    struct rn_notifier notifier;

    (void)state;
    begin(&notifier, 1000);
    for (int i = 0; i < 5; i++) { /* the clock stands still: each is as long as it can be */
        rn_notifier_clear(&notifier);
        assert_sleeps(&notifier);
        rn_notifier_raise(&notifier);
        assert_wakes(&notifier);
    }
    rn_notifier_fini(&notifier);
}

static void what_is_left_behind(void **state)
{
    struct rn_notifier notifier;

    (void)state;
    begin(&notifier, HOUR_US);
    rn_notifier_clear(&notifier);
    rn_notifier_raise(&notifier);
    assert_sleeps(&notifier);
    rn_notifier_raise_now(&notifier);
    assert_wakes(&notifier);
    rn_notifier_fini(&notifier);
}

/* A look at what waits takes the wake for it back. */
static void looked_at_before(void **state)
{
    struct rn_notifier notifier;

    (void)state;
    begin(&notifier, 1000);
    rn_notifier_clear(&notifier);
    rn_notifier_raise(&notifier); /* in a millisecond */
    rn_notifier_clear(&notifier);
    assert_sleeps(&notifier);
    rn_notifier_fini(&notifier);
}

/* A clock that has gone back, as one thread may see another's: never later than gather_us. */
static void never_later(void **state)
{
    struct rn_notifier notifier;

    (void)state;
    begin(&notifier, 1000);
    now_us = HOUR_US;
    rn_notifier_clear(&notifier);
    now_us = 5;
    rn_notifier_raise(&notifier);
    assert_wakes(&notifier);
    rn_notifier_fini(&notifier);
}

/* ---- Engines ------------------------------------------------------------------------------ */

static runnel_engine *gathering(uint32_t gather_us, runnel_delivery delivery)
{
    runnel_engine_options options;

    runnel_engine_options_default(&options);
    options.gather_us = gather_us;
    options.delivery = delivery;
    return start_engine(&options);
}

/* Looks once for what waits. */
static void look(runnel_engine *engine, runnel_delivery delivery)
{
    const runnel_event *events[RUNNEL_MAX_TAKE];
    size_t n;

    if (delivery == RUNNEL_DELIVER_HOST) {
        runnel_engine_dispatch(engine, 0);
        return;
    }
    while ((n = runnel_engine_take(engine, events, RUNNEL_MAX_TAKE)) > 0)
        for (size_t i = 0; i < n; i++)
            capture_event(events[i]->user, events[i]);
}

static bool all_ended(const struct capture *captures)
{
    for (int i = 0; i < STREAMS; i++)
        if (captures[i].n_terminal == 0)
            return false;
    return true;
}

static void submit_all(runnel_engine *engine, runnel_model *model, struct capture *captures, bool callbacks)
{
    for (int i = 0; i < STREAMS; i++) {
        runnel_request request = make_request("Once upon a time", TOKENS, &captures[i]);
        runnel_stream stream;

        request.ignore_eos = 1;
        if (!callbacks)
            request.on_event = NULL;
        assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    }
    (void)engine;
}

static void assert_same(struct capture *captures, struct capture *alone)
{
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(captures[i].n_terminal, 1);
        assert_int_equal(captures[i].last.type, RUNNEL_EVENT_DONE);
        assert_int_equal(captures[i].n_tokens, alone->n_tokens);
        assert_memory_equal(captures[i].tokens, alone->tokens, alone->n_tokens * sizeof alone->tokens[0]);
        capture_clear(&captures[i]);
    }
}

/* A host that looks when it is woken, and then for all that waits. */
static void looks_are_apart(runnel_delivery delivery)
{
    const struct rn_clock machine = rn_clock_machine();
    runnel_engine *plain = start_engine(NULL), *engine = gathering(GATHER_US, delivery);
    struct capture captures[STREAMS] = {0}, alone = {0};
    runnel_model *model = load_model(engine, quick_model(), NULL);
    runnel_request request = make_request("Once upon a time", TOKENS, &alone);
    uint64_t looked_us = 0;

    request.ignore_eos = 1;
    run_request(plain, load_model(plain, quick_model(), NULL), &request);
    submit_all(engine, model, captures, delivery == RUNNEL_DELIVER_HOST);
    while (!all_ended(captures)) {
        assert_int_equal(runnel_engine_wait(engine, -1), RUNNEL_OK);
        if (delivery == RUNNEL_DELIVER_HOST) /* a take begins anew for the rest */
            assert_true(looked_us == 0 || rn_now_us(&machine) - looked_us >= GATHER_US - 1);
        looked_us = rn_now_us(&machine);
        look(engine, delivery);
    }
    assert_same(captures, &alone);
    capture_clear(&alone);
    assert_quiet(engine, 0);
    runnel_engine_free(engine);
    runnel_engine_free(plain);
}

static void dispatched(void **state)
{
    (void)state;
    looks_are_apart(RUNNEL_DELIVER_HOST);
}

static void taken(void **state)
{
    (void)state;
    looks_are_apart(RUNNEL_DELIVER_TAKE);
}

/* A limited dispatch and a take leave events behind: nothing is raised for those any more, and still they come. */
static void left_behind(void **state)
{
    runnel_engine *engine = gathering(100000, RUNNEL_DELIVER_HOST);
    struct capture captures[STREAMS] = {0};

    (void)state;
    submit_all(engine, load_model(engine, quick_model(), NULL), captures, true);
    while (!all_ended(captures)) {
        const runnel_event *events[1];

        assert_int_equal(runnel_engine_wait(engine, -1), RUNNEL_OK);
        assert_in_range(runnel_engine_dispatch(engine, 1), 0, 1);
        if (runnel_engine_take(engine, events, 1) == 1)
            capture_event(events[0]->user, events[0]);
    }
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(captures[i].n_tokens, TOKENS);
        capture_clear(&captures[i]);
    }
    runnel_engine_free(engine);
}

static void delivered(void **state)
{
    runnel_engine *engine = gathering(GATHER_US, RUNNEL_DELIVER_THREAD);
    struct capture captures[STREAMS] = {0};

    (void)state;
    submit_all(engine, load_model(engine, quick_model(), NULL), captures, true);
    assert_int_equal(runnel_engine_drain(engine, -1), RUNNEL_OK);
    runnel_engine_free(engine);
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(captures[i].n_tokens, TOKENS);
        capture_clear(&captures[i]);
    }
}

static void limits(void **state)
{
    runnel_engine_options options;
    runnel_engine *engine;
    runnel_error error;

    (void)state;
    runnel_engine_options_default(&options);
    assert_int_equal(options.gather_us, 0);
    options.gather_us = RN_GATHER_US_MAX + 1;
    assert_int_equal(runnel_engine_new(&options, &engine, &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, "gather_us"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_once_without),  cmocka_unit_test(first_after_quiet),   cmocka_unit_test(wakes_are_apart),
        cmocka_unit_test(comes_by_itself),  cmocka_unit_test(what_is_left_behind), cmocka_unit_test(never_later),
        cmocka_unit_test(looked_at_before), cmocka_unit_test(dispatched),          cmocka_unit_test(taken),
        cmocka_unit_test(left_behind),      cmocka_unit_test(delivered),           cmocka_unit_test(limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
