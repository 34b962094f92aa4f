/* A true redis-server that hangs, is back, is lost with all it had: nothing that it still has is forgotten, and each
 * answer is right (rig.h judges each by the closed form). */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "tests/cache/redis_fixture.h"
#include "tests/tiers/rig.h"
#include "tests/support/patience.h"

enum { PROMPT = 100, FULL = (PROMPT - 1) / RIG_BLOCK * RIG_BLOCK };

static uint32_t n_others; /* families that came once */

static uint64_t ask(struct rig *rig, uint32_t family)
{
    struct rig_ask ask = {.chain = 8 * family, .n_prompt = PROMPT, .wait = RUNNEL_CACHE_WAIT};

    return rig_ask(rig, ask).shared_tokens;
}

/* Whatever is here goes, but for what the server has of it. */
static void crowd_out(struct rig *rig)
{
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(ask(rig, 1000 + n_others++), 0);
}

static uint64_t bytes_put(struct rig *rig)
{
    static runnel_metrics now;

    now.struct_size = sizeof now;
    assert_int_equal(runnel_engine_metrics(rig->engine, &now), RUNNEL_OK);
    return now.shared_bytes_in;
}

/* Until family 0 comes from the server: that is tried again after a second or two. */
static bool comes_back(struct rig *rig)
{
    const struct timespec pause = {0, 200000000};
    struct patience patience = {0};

    while (patience_left(&patience)) {
        crowd_out(rig);
        if (ask(rig, 0) == FULL)
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

static void test_outage(void **state)
{
    struct redis_server server;
    struct rig_plan plan = {.places = 4096};
    uint64_t n_put;
    struct rig rig;

    (void)state;
    redis_start(&server, NULL);
    plan.shared = server.url;
    rig_open(&rig, &plan);
    ask(&rig, 0);
    ask(&rig, 0);
    assert_true(comes_back(&rig)); /* at once, unless the machine stands still */
    n_put = bytes_put(&rig);
    assert_true(n_put > 0);
    crowd_out(&rig);
    kill(server.pid, SIGSTOP); /* it takes connections and does not answer */
    assert_int_equal(ask(&rig, 0), 0);
    crowd_out(&rig);
    assert_int_equal(ask(&rig, 0), 0);
    kill(server.pid, SIGCONT);
    assert_true(comes_back(&rig));
    assert_int_equal(rig.n_warnings, 1);      /* told once */
    assert_int_equal(bytes_put(&rig), n_put); /* it was known all the time: nothing was put again */
    redis_stop(&server);                      /* with all that it had */
    crowd_out(&rig);
    assert_int_equal(ask(&rig, 0), 0);
    redis_again(&server);
    assert_true(comes_back(&rig)); /* computed, and put there anew */
    assert_true(bytes_put(&rig) > n_put);
    rig_close(&rig);
    redis_stop(&server);
    redis_remove(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_outage)};

    if (!redis_is_installed()) {
        puts("skipped: there is no redis-server");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
