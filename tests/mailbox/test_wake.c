/* The event count: time limits, many sleepers, the wrap of the count, and a long game of ping-pong
 * in which one forgotten wake ends the game. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "mailbox/wake.h"
#include "tests/mailbox/threads.h"

static uint64_t now_us(void)
{
    struct rn_clock clock = rn_clock_machine();

    return rn_now_us(&clock);
}

static void test_returns_at_once(void **state)
{
    struct rn_wake wake;
    uint32_t ticket;

    (void)state;
    rn_wake_init(&wake);
    ticket = rn_wake_ticket(&wake);
    assert_int_equal(ticket, 0);
    rn_wake_notify(&wake);
    assert_int_not_equal(rn_wake_ticket(&wake), ticket);
    assert_true(rn_wake_wait(&wake, ticket, -1, 0)); /* would hang */
    assert_true(rn_wake_wait(&wake, ticket, 0, 0));
    assert_true(rn_wake_wait(&wake, ticket, -1, 1000));
}

/* Waits in vain; how much later than asked for it returns. */
static int64_t late_us(int64_t limit_us, uint32_t spin_us)
{
    struct rn_wake wake;
    uint64_t start;
    int64_t passed;

    rn_wake_init(&wake);
    start = now_us();
    assert_false(rn_wake_wait(&wake, 0, limit_us, spin_us));
    passed = (int64_t)(now_us() - start);
    assert_true(passed >= limit_us);
    return passed - limit_us;
}

/* Not too early, and not a whole slice of ck_ec's backoff too late; once in ten, since the machine may stand still. */
static void test_time_limit(void **state)
{
    static const int64_t limit_us[] = {0, 1, 3000, 50000, 50000};
    static const uint32_t spin_us[] = {0, 0, 0, 100, 1000000};

    (void)state;
    for (int i = 0; i < 5; i++) {
        int tries = 10;

        while (late_us(limit_us[i], spin_us[i]) >= 900000)
            assert_true(--tries > 0);
    }
}

struct room {
    struct rn_wake wake;
    uint64_t news; /* plain: ordered by the wake alone */
    _Atomic(uint64_t) asleep, awake, wrong;
};

static void *sleep_once(void *user)
{
    struct room *room = (struct room *)user;
    uint64_t which = bump(&room->asleep);

    if (!rn_wake_wait(&room->wake, 0, MAX_WAIT_US, which % 2 ? 50 : 0) || room->news != 42)
        bump(&room->wrong);
    bump(&room->awake);
    return NULL;
}

static void test_one_notify_wakes_all(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        struct room room = {.news = 0};
        struct crew crew = {.n = 0};

        rn_wake_init(&room.wake);
        for (int i = 0; i < 6; i++)
            crew_start(&crew, sleep_once, &room);
        while (peek(&room.asleep) < (uint64_t)(round % 7)) /* some before, some after */
            sched_yield();
        room.news = 42;
        rn_wake_notify(&room.wake);
        crew_join(&crew);
        assert_int_equal(peek(&room.awake), 6);
        assert_int_equal(peek(&room.wrong), 0);
    }
}

struct game {
    struct rn_wake wake[2];
    uint64_t ball; /* plain: belongs to the player whose turn it is */
    uint64_t rounds;
    uint32_t start, spin_us;
    _Atomic(uint64_t) next_player, forgotten;
};

/* Player 0 serves. A player waits for its own count to move, hits the ball, moves the other's. */
static void *play(void *user)
{
    struct game *game = (struct game *)user;
    uint64_t me = bump(&game->next_player);
    uint32_t ticket = game->start;

    for (uint64_t round = 0; round < game->rounds && peek(&game->forgotten) == 0; round++) {
        if (!(me == 0 && round == 0)) {
            if (!rn_wake_wait(&game->wake[me], ticket, MAX_WAIT_US, game->spin_us)) {
                bump(&game->forgotten);
                return NULL;
            }
            ticket = (ticket + 1) & 0x7fffffffu;
        }
        game->ball++;
        rn_wake_notify(&game->wake[1 - me]);
    }
    return NULL;
}

static void ping_pong(uint32_t start, uint32_t spin_us, uint64_t rounds)
{
    struct game game = {.rounds = rounds, .start = start, .spin_us = spin_us};
    struct crew crew = {.n = 0};

    for (int i = 0; i < 2; i++) {
        rn_wake_init(&game.wake[i]);
        game.wake[i].count[0] = start; /* the counter is the first word (ck_ec32) */
    }
    crew_start(&crew, play, &game);
    crew_start(&crew, play, &game);
    crew_join(&crew);
    assert_int_equal(peek(&game.forgotten), 0);
    assert_int_equal(game.ball, 2 * rounds);
}

static void test_no_wake_is_lost(void **state)
{
    (void)state;
    ping_pong(0, 0, 20000 / TEST_SLOWDOWN);
    ping_pong(0, 1, 20000 / TEST_SLOWDOWN);
    ping_pong(0, 30, 20000 / TEST_SLOWDOWN);
}

/* 31 bits of count: the top bit says "somebody sleeps" and must not be taken for a number. */
static void test_count_wraps(void **state)
{
    (void)state;
    ping_pong(0x7fffff00u, 0, 2000);
    ping_pong(0x7fffff00u, 20, 2000);
}

/* Several notifiers, one sleeper that counts what it owes: tickets may merge wakes, never lose one. */
struct crowd {
    struct rn_wake wake;
    _Atomic(uint64_t) work, notifiers;
};

static void *bring_work(void *user)
{
    struct crowd *crowd = (struct crowd *)user;

    for (int i = 0; i < 20000 / TEST_SLOWDOWN; i++) {
        bump(&crowd->work);
        rn_wake_notify(&crowd->wake);
        if (i % 100 == 0)
            sched_yield();
    }
    return NULL;
}

static void test_many_notifiers(void **state)
{
    const uint64_t all = 3 * (20000 / TEST_SLOWDOWN);
    struct crowd crowd = {.work = 0};
    struct crew crew = {.n = 0};
    uint64_t done = 0;
    bool forgotten = false;

    (void)state;
    rn_wake_init(&crowd.wake);
    for (int i = 0; i < 3; i++)
        crew_start(&crew, bring_work, &crowd);
    while (done < all && !forgotten) {
        uint32_t ticket = rn_wake_ticket(&crowd.wake);
        uint64_t work = peek(&crowd.work);

        if (work == done)
            forgotten = !rn_wake_wait(&crowd.wake, ticket, MAX_WAIT_US, 0);
        done = work;
    }
    crew_join(&crew);
    assert_false(forgotten);
    assert_int_equal(done, all);
    assert_int_equal(rn_wake_ticket(&crowd.wake), all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_returns_at_once),      cmocka_unit_test(test_time_limit),
        cmocka_unit_test(test_one_notify_wakes_all), cmocka_unit_test(test_no_wake_is_lost),
        cmocka_unit_test(test_count_wraps),          cmocka_unit_test(test_many_notifiers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
