/* Streams that gather (http_limits.gather_ms): what waits, what does not, and that the bytes are the same. Where nothing
 * is to leave by time, the time is weeks. */
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

static const struct http_limits weeks = {.gather_ms = UINT32_MAX, .waiting_bytes = 100000};

static uint64_t writes(struct rig *rig)
{
    struct http_stats stats;

    http_server_stats(rig->server, &stats);
    return stats.writes;
}

/* A stream of which the head was sent and read. */
static struct http_exchange *open_stream(struct rig *rig, int *fd)
{
    size_t n = rig->routes.n_held;

    *fd = rig_open_stream(rig);
    assert_int_equal(rig->routes.n_held, n + 1);
    return rig->routes.held[n];
}

static void say(struct http_exchange *exchange, bool gathers, const char *text)
{
    http_stream_gather(exchange, gathers);
    http_stream_write(exchange, text, strlen(text));
}

static void expect_silence(struct rig *rig, int fd)
{
    uint64_t before = writes(rig);
    char byte;

    for (int i = 0; i < 20; i++)
        rig_turn_now(rig);
    assert_int_equal(writes(rig), before);
    assert_true(recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
}

static void expect_write(struct rig *rig, int fd, const char *bytes)
{
    uint64_t before = writes(rig);
    struct text got = {0};

    assert_true(rig_read(rig, fd, &got, bytes));
    assert_string_equal(got.bytes, bytes);
    assert_int_equal(writes(rig), before + 1);
    text_fini(&got);
}

static void expect_end(struct rig *rig, int fd, const char *end)
{
    struct text got = {0};

    assert_true(rig_read(rig, fd, &got, end));
    text_fini(&got);
}

static void test_waits(void **state)
{
    struct http_exchange *exchange;
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, &weeks);
    exchange = open_stream(&rig, &fd);
    say(exchange, false, "first");
    expect_write(&rig, fd, "5\r\nfirst\r\n");
    say(exchange, true, "b");
    expect_silence(&rig, fd);
    say(exchange, true, "cc");
    expect_silence(&rig, fd);
    say(exchange, false, "now"); /* takes along what waits */
    expect_write(&rig, fd, "1\r\nb\r\n2\r\ncc\r\n3\r\nnow\r\n");
    say(exchange, true, "e");
    expect_silence(&rig, fd);
    http_stream_end(exchange);
    expect_write(&rig, fd, "1\r\ne\r\n0\r\n\r\n");
    assert_true(rig_say(&rig, fd, "GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    expect_end(&rig, fd, "hello\n");
    close(fd);
    rig_close(&rig);
}

/* One stream waits, and another of the same server does not because of it. */
static void test_by_itself(void **state)
{
    struct http_exchange *one, *two;
    struct rig rig;
    int fd_one, fd_two;

    (void)state;
    rig_open(&rig, &weeks);
    one = open_stream(&rig, &fd_one);
    two = open_stream(&rig, &fd_two);
    say(one, true, "held");
    say(two, false, "told");
    expect_write(&rig, fd_two, "4\r\ntold\r\n");
    expect_silence(&rig, fd_one);
    http_stream_end(one);
    expect_end(&rig, fd_one, "4\r\nheld\r\n0\r\n\r\n");
    close(fd_one);
    close(fd_two);
    rig_close(&rig);
}

/* The time alone. */
static void test_leaves(void **state)
{
    static const struct http_limits limits = {.gather_ms = 20};
    struct http_exchange *exchange;
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, &limits);
    exchange = open_stream(&rig, &fd);
    for (int i = 0; i < 5; i++) {
        say(exchange, true, "x");
        expect_write(&rig, fd, "1\r\nx\r\n");
    }
    http_stream_end(exchange);
    close(fd);
    rig_close(&rig);
}

/* Without a time nothing waits. */
static void test_none(void **state)
{
    struct http_exchange *exchange;
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, NULL);
    exchange = open_stream(&rig, &fd);
    for (int i = 0; i < 5; i++) {
        say(exchange, true, "x");
        expect_write(&rig, fd, "1\r\nx\r\n");
    }
    http_stream_end(exchange);
    close(fd);
    rig_close(&rig);
}

/* What waits is bounded as ever: beyond waiting_bytes it leaves. */
static void test_much(void **state)
{
    static char piece[10000];
    struct http_exchange *exchange;
    struct text got = {0};
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, &weeks);
    exchange = open_stream(&rig, &fd);
    memset(piece, 'x', sizeof piece);
    http_stream_gather(exchange, true);
    for (int i = 0; i < 8; i++)
        http_stream_write(exchange, piece, sizeof piece);
    expect_silence(&rig, fd);
    for (int i = 0; i < 8; i++)
        http_stream_write(exchange, piece, sizeof piece);
    assert_true(rig_read(&rig, fd, &got, "x\r\n"));
    assert_true(got.n > 100000);
    assert_int_equal(rig.routes.gone, 0);
    text_fini(&got);
    close(fd);
    rig_close(&rig);
}

/* A client that leaves while something waits for it. */
static void test_gone(void **state)
{
    struct http_exchange *exchange;
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, &weeks);
    exchange = open_stream(&rig, &fd);
    say(exchange, true, "never read");
    rig_reset(fd);
    while (rig.routes.gone == 0)
        rig_turn(&rig);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits), cmocka_unit_test(test_by_itself), cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_none),  cmocka_unit_test(test_much),      cmocka_unit_test(test_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
