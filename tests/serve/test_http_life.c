/* How connections end, and what they may cost: peers that leave in each state, that shut one side, that do not read,
 * that send nothing. Times are made short by limits, and no verdict depends on how long a thing took. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"

/* ---- Peers that leave ---- */

enum leaving { BY_CLOSE, BY_RESET, LEAVINGS };

static void leave(int fd, enum leaving how)
{
    if (how == BY_RESET)
        rig_reset(fd);
    else
        close(fd);
}

/* Says it and waits until the server has heard: a reset takes back what was not read yet. */
static void say_heard(struct rig *rig, int fd, const char *text)
{
    unsigned heads = rig->routes.heads;

    assert_true(rig_say(rig, fd, text));
    rig_turn_until(rig, &rig->routes.heads, heads + 1);
}

static int come(struct rig *rig, const char *path)
{
    return path != NULL ? rig_connect_unix(path) : rig_connect(rig);
}

static void check_leaving(struct rig *rig, const char *path, enum leaving how)
{
    struct routes *routes = &rig->routes;
    unsigned gone = routes->gone;
    struct text head = {0};
    int fd;

    leave(come(rig, path), how); /* nothing said */
    fd = come(rig, path);        /* half a head */
    assert_true(rig_say(rig, fd, "GET /hello HT"));
    leave(fd, how);
    rig_check_clear(rig);
    assert_int_equal(routes->gone, gone);

    fd = come(rig, path); /* half a body */
    say_heard(rig, fd, BODY "hello");
    leave(fd, how);
    rig_turn_until(rig, &routes->gone, gone + 1);

    fd = come(rig, path); /* all said, nothing answered */
    say_heard(rig, fd, WAIT);
    leave(fd, how);
    rig_turn_until(rig, &routes->gone, gone + 2);

    fd = come(rig, path); /* more said than is answered */
    say_heard(rig, fd, WAIT WAIT WAIT);
    leave(fd, how);
    rig_turn_until(rig, &routes->gone, gone + 3);

    fd = come(rig, path); /* a stream */
    assert_true(rig_say(rig, fd, OPEN));
    assert_true(rig_read(rig, fd, &head, "\r\n\r\n"));
    text_fini(&head);
    leave(fd, how);
    while (routes->held[routes->n_held - 1] != NULL) {
        http_stream_write(routes->held[routes->n_held - 1], "piece", 5);
        rig_turn_now(rig);
    }
    assert_int_equal(routes->gone, gone + 4);
    rig_check_clear(rig);
    assert_int_equal(routes->gone, gone + 4);
}

static void test_leaving(void **state)
{
    char path[64];
    struct rig rig;

    (void)state;
    snprintf(path, sizeof path, "/tmp/runnel-http-%d", (int)getpid());
    rig_open(&rig, NULL);
    assert_int_equal(http_listen_unix(rig.server, path), 0);
    for (int how = 0; how < LEAVINGS; how++) {
        check_leaving(&rig, NULL, how);
        check_leaving(&rig, path, how);
    }
    rig_close(&rig);
}

/* Who sends far more than is read before the answer, and leaves. */
static void test_leaving_behind_much(void **state)
{
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, NULL);
    fd = rig_connect(&rig);
    for (int i = 0; i < 1000; i++)
        assert_true(rig_say(&rig, fd, WAIT));
    assert_true(rig_count_turns(&rig, 1000) < 1000);
    close(fd);
    rig_turn_until(&rig, &rig.routes.gone, 1);
    rig_check_clear(&rig);
    assert_int_equal(rig.routes.gone, 1);
    rig_close(&rig);
}

/* Only the writing side is shut: the answer comes, however long it takes, and the loop sleeps until then. */
static void check_half(struct rig *rig, int fd, const char *request)
{
    struct routes *routes = &rig->routes;
    unsigned gone = routes->gone;
    size_t n = routes->n_held;

    assert_true(rig_say(rig, fd, request));
    shutdown(fd, SHUT_WR);
    while (routes->n_held == n)
        rig_turn(rig);
    assert_true(rig_count_turns(rig, 1000) < 1000);
    assert_int_equal(routes->gone, gone);
    http_answer(routes->held[n], 200, "text/plain", "late", 4);
    rig_expect(rig, fd, "\r\n\r\nlate");
    close(fd);
}

static void test_half(void **state)
{
    char path[64];
    struct rig rig;

    (void)state;
    snprintf(path, sizeof path, "/tmp/runnel-http-%d", (int)getpid());
    rig_open(&rig, NULL);
    assert_int_equal(http_listen_unix(rig.server, path), 0);
    check_half(&rig, rig_connect(&rig), WAIT);
    check_half(&rig, rig_connect(&rig), "GET /wait HTTP/1.0\r\n\r\n");
    check_half(&rig, rig_connect_unix(path), WAIT);
    rig_check_clear(&rig);
    rig_close(&rig);
}

/* An answer that overtakes the body: the body is not wanted any more. */
static void test_early_answer(void **state)
{
    struct rig rig;
    struct text much = {0};
    int fd;

    (void)state;
    rig_open(&rig, NULL);
    fd = rig_connect(&rig);
    assert_true(rig_say(&rig, fd, "POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n"));
    for (int i = 0; i < 1000; i++)
        text_add(&much, "0123456789abcdef", 16);
    for (int i = 0; i < 200 && rig_send(&rig, fd, much.bytes, much.n); i++)
        ;
    rig_expect(&rig, fd, "401 Unauthorized");
    close(fd);
    text_fini(&much);
    assert_int_equal(rig.routes.requests, 0);
    assert_int_equal(rig.routes.gone, 0);
    rig_check_clear(&rig);
    rig_close(&rig);
}

/* Sends as long as the server takes it. In ms, at which time that ended; *gap: the longest time between two sends. */
static uint64_t trickle(struct rig *rig, int fd, uint64_t *gap)
{
    uint64_t begun = uv_hrtime(), last = begun;

    *gap = 0;
    while (send(fd, "a", 1, MSG_NOSIGNAL) == 1 || errno == EAGAIN) {
        uint64_t now = uv_hrtime();

        *gap = now - last > *gap ? now - last : *gap;
        last = now;
        rig_turn_now(rig);
        uv_sleep(5);
    }
    *gap /= 1000000;
    return (uv_hrtime() - begun) / 1000000;
}

/* One who is refused while it sends, and reads at the end alone, can go on sending for a while, but not for ever. */
static void test_refused_sender(void **state)
{
    static const struct http_limits limits = {.body_ms = 1500};
    uint64_t gap = 0, ms = 0;

    (void)state;
    do {
        struct rig rig;
        int fd;

        rig_open(&rig, &limits);
        fd = rig_connect(&rig);
        assert_true(rig_say(&rig, fd, "POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n"));
        ms = trickle(&rig, fd, &gap);
        rig_check_clear(&rig);
        close(fd);
        rig_close(&rig);
    } while (gap > 500); /* that much silence ends it */
    assert_true(ms >= 1500);
}

/* ---- Readers ---- */

/* Writes until `count` of the handlers moves. */
static void flood(struct rig *rig, size_t stream, const unsigned *count)
{
    static char piece[10000];
    unsigned before = *count;

    memset(piece, 'x', sizeof piece);
    while (*count == before) {
        http_stream_write(rig->routes.held[stream], piece, sizeof piece);
        rig_turn_now(rig);
    }
}

static void test_slow_reader(void **state)
{
    static const struct http_limits limits = {.waiting_bytes = 100000};
    struct text rest = {0};
    struct rig rig;
    int fd, deaf;

    (void)state;
    rig_open(&rig, &limits);
    fd = rig_open_stream(&rig);
    flood(&rig, 0, &rig.routes.slow);
    assert_int_equal(rig.routes.taken, 0);
    http_stream_write(rig.routes.held[0], "last", 4);
    assert_true(rig_read(&rig, fd, &rest, "4\r\nlast\r\n"));
    rig_turn_until(&rig, &rig.routes.taken, 1);
    assert_int_equal(rig.routes.slow, 1);
    flood(&rig, 0, &rig.routes.slow); /* once more */
    assert_true(rig_read(&rig, fd, &rest, "x\r\n"));

    deaf = rig_open_stream(&rig); /* never reads, and is written to all the same */
    flood(&rig, 1, &rig.routes.slow);
    flood(&rig, 1, &rig.routes.gone);
    assert_null(rig.routes.held[1]);
    assert_non_null(rig.routes.held[0]);
    http_stream_end(rig.routes.held[0]);
    assert_true(rig_read(&rig, fd, &rest, "\r\n0\r\n\r\n"));
    text_fini(&rest);
    close(fd);
    close(deaf);
    rig_check_clear(&rig);
    assert_int_equal(rig.routes.gone, 1);
    rig_close(&rig);
}

/* All in one turn of the loop, to a reader that would take it. */
static void test_much_at_once(void **state)
{
    static const struct http_limits limits = {.waiting_bytes = 100000};
    static char piece[50000];
    struct rig rig;
    int fd, calls = 0;

    (void)state;
    rig_open(&rig, &limits);
    fd = rig_open_stream(&rig);
    memset(piece, 'x', sizeof piece);
    while (http_stream_write(rig.routes.held[0], piece, sizeof piece) < 400000 && ++calls < 100000)
        ;
    assert_true(calls < 100000);
    http_stream_write(rig.routes.held[0], piece, sizeof piece);
    assert_int_equal(rig.routes.gone, 0); /* not inside a call */
    rig_turn_until(&rig, &rig.routes.gone, 1);
    close(fd);
    rig_close(&rig);
}

/* An answer is sent whole, whatever its size; pipelined requests behind it wait until it is read. */
static void test_great_answer(void **state)
{
    static const struct http_limits limits = {.waiting_bytes = 1000};
    struct text great = {0}, got = {0};
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, &limits);
    for (int i = 0; i < 2000000; i++)
        text_add(&great, "0123456789abcdef" + i % 7, 9);
    fd = rig_connect(&rig);
    assert_true(rig_say(&rig, fd, WAIT GET));
    while (rig.routes.n_held == 0)
        rig_turn(&rig);
    http_answer(rig.routes.held[0], 200, NULL, great.bytes, great.n);
    for (int i = 0; i < 100; i++)
        rig_turn_now(&rig);
    assert_int_equal(rig.routes.requests, 1);
    assert_true(rig_read(&rig, fd, &got, "hello\n"));
    assert_memory_equal(strstr(got.bytes, "\r\n\r\n") + 4, great.bytes, great.n);
    close(fd);
    text_fini(&great);
    text_fini(&got);
    rig_close(&rig);
}

/* ---- Time ---- */

static void count(void *user)
{
    ++*(unsigned *)user;
}

/* To the peer's end, and closes. */
static void expect_one_answer(struct rig *rig, int fd)
{
    struct text answers = {0};
    char statuses[8192];

    assert_true(rig_read(rig, fd, &answers, NULL));
    rig_statuses(&answers, statuses);
    assert_string_equal(statuses, "200 ");
    text_fini(&answers);
    close(fd);
}

static void test_times(void **state)
{
    static const struct http_limits limits = {
        .head_ms = 30, .body_ms = 30, .idle_ms = 30, .reader_ms = 30, .waiting_bytes = 100000};
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, &limits);
    fd = rig_connect(&rig); /* nothing */
    rig_expect_nothing(&rig, fd);
    close(fd);
    fd = rig_connect(&rig); /* half a head */
    assert_true(rig_say(&rig, fd, "GET /hello HT"));
    rig_expect(&rig, fd, "HTTP/1.1 408 ");
    close(fd);
    assert_int_equal(rig.routes.gone, 0);
    fd = rig_connect(&rig); /* half a body */
    assert_true(rig_say(&rig, fd, BODY "hello"));
    rig_expect(&rig, fd, "HTTP/1.1 408 ");
    close(fd);
    assert_int_equal(rig.routes.gone, 1);
    fd = rig_connect(&rig); /* nothing more */
    assert_true(rig_say(&rig, fd, GET));
    rig_expect(&rig, fd, "hello\n");
    close(fd);
    fd = rig_connect(&rig); /* nothing more but the empty line that some clients send behind a body */
    assert_true(rig_say(&rig, fd, GET "\r\n"));
    expect_one_answer(&rig, fd);
    fd = rig_open_stream(&rig); /* does not read */
    flood(&rig, 0, &rig.routes.slow);
    rig_turn_until(&rig, &rig.routes.gone, 2);
    close(fd);
    rig_check_clear(&rig);
    rig_close(&rig);
}

/* An empty line is no request: neither where its client leaves, nor where the server goes down. */
static void test_empty_line(void **state)
{
    unsigned drained = 0, heads = 0;
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, NULL);
    fd = rig_connect(&rig);
    assert_true(rig_say(&rig, fd, GET "\r\n"));
    shutdown(fd, SHUT_WR);
    expect_one_answer(&rig, fd);
    heads = rig.routes.heads;
    fd = rig_connect(&rig);
    assert_true(rig_say(&rig, fd, "\r\n" GET "\r\n"));
    rig_turn_until(&rig, &rig.routes.heads, heads + 1);
    http_server_drain(rig.server, count, &drained);
    expect_one_answer(&rig, fd);
    rig_turn_until(&rig, &drained, 1);
    rig_close(&rig);
}

/* Byte after byte, each in time, and yet for ever: the head has one time for all, the body a least speed. */
static void check_trickle(struct rig *rig, const char *begin)
{
    struct text answer = {0};
    int fd = rig_connect(rig);
    char bytes[1024];
    ssize_t n;

    assert_true(rig_say(rig, fd, begin));
    do {
        send(fd, "a", 1, MSG_NOSIGNAL);
        rig_turn_now(rig);
        uv_sleep(5);
        n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n > 0)
            text_add(&answer, bytes, (size_t)n);
    } while (n < 0 && errno == EAGAIN);
    assert_non_null(strstr(answer.bytes, "HTTP/1.1 408 "));
    text_fini(&answer);
    close(fd);
}

static void test_trickle(void **state)
{
    static const struct http_limits limits = {.head_ms = 100, .body_ms = 100};
    struct rig rig;

    (void)state;
    rig_open(&rig, &limits);
    check_trickle(&rig, "GET /");
    check_trickle(&rig, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    assert_int_equal(rig.routes.gone, 1);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaving),      cmocka_unit_test(test_leaving_behind_much),
        cmocka_unit_test(test_half),         cmocka_unit_test(test_early_answer),
        cmocka_unit_test(test_slow_reader),  cmocka_unit_test(test_much_at_once),
        cmocka_unit_test(test_great_answer), cmocka_unit_test(test_times),
        cmocka_unit_test(test_trickle),      cmocka_unit_test(test_refused_sender),
        cmocka_unit_test(test_empty_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
