/* How connections end and what they may cost: peers that leave in each state, that shut one side, that do not read,
 * that send nothing; bounds of number and time; draining; sockets of each kind. Times are made short by limits, and no
 * verdict depends on how long a thing took. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"

#define GET "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"
#define WAIT "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"
#define OPEN "GET /open HTTP/1.1\r\nHost: a\r\n\r\n"
#define BODY "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"

/* That everything of it is over: the server has no connection, and answers. */
static void check_clear(struct rig *rig)
{
    struct http_stats stats;
    struct text answer;

    do {
        rig_turn_now(rig);
        http_server_stats(rig->server, &stats);
    } while (stats.connections > 0);
    answer = rig_talk(rig, GET, sizeof GET - 1, sizeof GET - 1);
    assert_non_null(strstr(answer.bytes, "hello\n"));
    text_fini(&answer);
}

static void turn_until(struct rig *rig, const unsigned *count, unsigned wanted)
{
    while (*count < wanted)
        rig_turn(rig);
    assert_int_equal(*count, wanted);
}

static void expect(struct rig *rig, int fd, const char *part)
{
    struct text answer = {0};

    assert_true(rig_read(rig, fd, &answer, NULL));
    if (answer.bytes == NULL || strstr(answer.bytes, part) == NULL)
        fail_msg("%s: %s", part, answer.bytes);
    text_fini(&answer);
}

static void expect_nothing(struct rig *rig, int fd)
{
    struct text answer = {0};

    assert_true(rig_read(rig, fd, &answer, NULL));
    assert_int_equal(answer.n, 0);
}

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
    turn_until(rig, &rig->routes.heads, heads + 1);
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
    check_clear(rig);
    assert_int_equal(routes->gone, gone);

    fd = come(rig, path); /* half a body */
    say_heard(rig, fd, BODY "hello");
    leave(fd, how);
    turn_until(rig, &routes->gone, gone + 1);

    fd = come(rig, path); /* all said, nothing answered */
    say_heard(rig, fd, WAIT);
    leave(fd, how);
    turn_until(rig, &routes->gone, gone + 2);

    fd = come(rig, path); /* more said than is answered */
    say_heard(rig, fd, WAIT WAIT WAIT);
    leave(fd, how);
    turn_until(rig, &routes->gone, gone + 3);

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
    check_clear(rig);
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
    turn_until(&rig, &rig.routes.gone, 1);
    check_clear(&rig);
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
    expect(rig, fd, "\r\n\r\nlate");
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
    check_clear(&rig);
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
    expect(&rig, fd, "401 Unauthorized");
    close(fd);
    text_fini(&much);
    assert_int_equal(rig.routes.requests, 0);
    assert_int_equal(rig.routes.gone, 0);
    check_clear(&rig);
    rig_close(&rig);
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

static int open_stream(struct rig *rig)
{
    struct text head = {0};
    int fd = rig_connect(rig);

    assert_true(rig_say(rig, fd, OPEN));
    assert_true(rig_read(rig, fd, &head, "\r\n\r\n"));
    text_fini(&head);
    return fd;
}

static void test_slow_reader(void **state)
{
    static const struct http_limits limits = {.waiting_bytes = 100000};
    struct text rest = {0};
    struct rig rig;
    int fd, deaf;

    (void)state;
    rig_open(&rig, &limits);
    fd = open_stream(&rig);
    flood(&rig, 0, &rig.routes.slow);
    assert_int_equal(rig.routes.taken, 0);
    http_stream_write(rig.routes.held[0], "last", 4);
    assert_true(rig_read(&rig, fd, &rest, "4\r\nlast\r\n"));
    turn_until(&rig, &rig.routes.taken, 1);
    assert_int_equal(rig.routes.slow, 1);
    flood(&rig, 0, &rig.routes.slow); /* once more */
    assert_true(rig_read(&rig, fd, &rest, "x\r\n"));

    deaf = open_stream(&rig); /* never reads, and is written to all the same */
    flood(&rig, 1, &rig.routes.slow);
    flood(&rig, 1, &rig.routes.gone);
    assert_null(rig.routes.held[1]);
    assert_non_null(rig.routes.held[0]);
    http_stream_end(rig.routes.held[0]);
    assert_true(rig_read(&rig, fd, &rest, "\r\n0\r\n\r\n"));
    text_fini(&rest);
    close(fd);
    close(deaf);
    check_clear(&rig);
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
    fd = open_stream(&rig);
    memset(piece, 'x', sizeof piece);
    while (http_stream_write(rig.routes.held[0], piece, sizeof piece) < 400000 && ++calls < 100000)
        ;
    assert_true(calls < 100000);
    http_stream_write(rig.routes.held[0], piece, sizeof piece);
    assert_int_equal(rig.routes.gone, 0); /* not inside a call */
    turn_until(&rig, &rig.routes.gone, 1);
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

static void test_times(void **state)
{
    static const struct http_limits limits = {
        .head_ms = 30, .body_ms = 30, .idle_ms = 30, .reader_ms = 30, .waiting_bytes = 100000};
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, &limits);
    fd = rig_connect(&rig); /* nothing */
    expect_nothing(&rig, fd);
    close(fd);
    fd = rig_connect(&rig); /* half a head */
    assert_true(rig_say(&rig, fd, "GET /hello HT"));
    expect(&rig, fd, "HTTP/1.1 408 ");
    close(fd);
    assert_int_equal(rig.routes.gone, 0);
    fd = rig_connect(&rig); /* half a body */
    assert_true(rig_say(&rig, fd, BODY "hello"));
    expect(&rig, fd, "HTTP/1.1 408 ");
    close(fd);
    assert_int_equal(rig.routes.gone, 1);
    fd = rig_connect(&rig); /* nothing more */
    assert_true(rig_say(&rig, fd, GET));
    expect(&rig, fd, "hello\n");
    close(fd);
    fd = open_stream(&rig); /* does not read */
    flood(&rig, 0, &rig.routes.slow);
    turn_until(&rig, &rig.routes.gone, 2);
    close(fd);
    check_clear(&rig);
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

/* ---- Number ---- */

static void test_connections(void **state)
{
    static const struct http_limits limits = {.connections = 2};
    struct http_stats stats;
    struct rig rig;
    int one, two, three;

    (void)state;
    rig_open(&rig, &limits);
    one = open_stream(&rig);
    two = open_stream(&rig);
    three = rig_connect(&rig);
    assert_true(rig_say(&rig, three, GET));
    expect(&rig, three, "HTTP/1.1 503 ");
    close(three);
    http_stream_write(rig.routes.held[0], "piece", 5);
    http_stream_end(rig.routes.held[0]);
    expect(&rig, (shutdown(one, SHUT_WR), one), "piece\r\n0\r\n\r\n");
    close(one);
    do {
        rig_turn_now(&rig);
        http_server_stats(rig.server, &stats);
    } while (stats.connections > 1);
    three = rig_connect(&rig);
    assert_true(rig_say(&rig, three, GET));
    shutdown(three, SHUT_WR);
    expect(&rig, three, "HTTP/1.1 200 ");
    close(three);
    close(two);
    http_server_stats(rig.server, &stats);
    assert_int_equal(stats.accepted, 3);
    assert_int_equal(stats.refused, 1);
    assert_int_equal(stats.requests, 3);
    assert_true(stats.bytes_in >= 3 * (sizeof GET - 1) && stats.bytes_out > 0);
    rig_close(&rig);
}

/* Sends the head and `n` bytes of a body of `length` bytes; what the server does not take is left. */
static int begin_body(struct rig *rig, size_t length, const char *bytes, size_t n)
{
    int fd = rig_connect(rig);
    char head[128];

    snprintf(head, sizeof head, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", length);
    assert_true(rig_say(rig, fd, head));
    rig_send(rig, fd, bytes, n);
    return fd;
}

/* All bodies together have a bound. Those that are larger than the others make room; one that is smaller always
 * fits. */
static void test_bodies(void **state)
{
    enum { LONG = 1 << 20, N = 12 };
    static const struct http_limits limits = {.body_bytes = LONG, .held_bytes = 4 * LONG};
    static char bytes[LONG];
    struct http_stats stats;
    struct rig rig;
    int fds[N], small, fit;

    (void)state;
    memset(bytes, 'a', sizeof bytes);
    rig_open(&rig, &limits);
    small = begin_body(&rig, 1000, bytes, 500);
    for (int i = 0; i < N; i++) {
        fds[i] = begin_body(&rig, LONG, bytes, LONG - 1);
        http_server_stats(rig.server, &stats);
        assert_true(stats.held <= 4 * LONG);
    }
    do {
        rig_turn_now(&rig);
        http_server_stats(rig.server, &stats);
        assert_true(stats.held <= 4 * LONG);
    } while (rig.routes.gone < N - 4);
    assert_true(rig.routes.gone < N && stats.held > 2 * LONG);
    fit = begin_body(&rig, LONG / 4, bytes, LONG / 4);
    shutdown(fit, SHUT_WR);
    expect(&rig, fit, "HTTP/1.1 200 ");
    assert_true(rig_send(&rig, small, bytes, 500));
    shutdown(small, SHUT_WR);
    expect(&rig, small, "HTTP/1.1 200 ");
    for (int i = 0; i < N; i++)
        close(fds[i]);
    close(fit);
    close(small);
    check_clear(&rig);
    http_server_stats(rig.server, &stats);
    assert_int_equal(stats.held, 0);
    rig_close(&rig);
}

/* A body that has the server to itself fits, whatever the bound; the answer tells who was refused. */
static void test_one_body(void **state)
{
    enum { LONG = 1 << 18 };
    static const struct http_limits limits = {.body_bytes = LONG, .held_bytes = 1};
    static char bytes[LONG];
    struct rig rig;
    int one, other;

    (void)state;
    rig_open(&rig, &limits);
    one = begin_body(&rig, LONG, bytes, LONG);
    shutdown(one, SHUT_WR);
    expect(&rig, one, "HTTP/1.1 200 ");
    close(one);
    one = begin_body(&rig, LONG, bytes, LONG - 1);
    other = begin_body(&rig, LONG, bytes, 2);
    expect(&rig, one, "HTTP/1.1 503 ");
    assert_true(rig_send(&rig, other, bytes, LONG - 2));
    shutdown(other, SHUT_WR);
    expect(&rig, other, "HTTP/1.1 200 ");
    close(one);
    close(other);
    check_clear(&rig);
    rig_close(&rig);
}

/* No descriptors left: who comes waits, the loop sleeps, and all are served when there are some again. */
static void test_no_descriptors(void **state)
{
    struct rlimit usual, few;
    struct rig rig;
    int fds[20], lowest;

    (void)state;
    rig_open(&rig, NULL);
    rig_turn_now(&rig);
    for (int i = 0; i < 20; i++) {
        fds[i] = rig_connect(&rig);
        assert_int_equal(send(fds[i], GET, sizeof GET - 1, 0), sizeof GET - 1);
        shutdown(fds[i], SHUT_WR);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    lowest = dup(0);
    close(lowest);
    few = usual;
    few.rlim_cur = (rlim_t)lowest;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_true(rig_count_turns(&rig, 1000) < 1000);
    assert_int_equal(rig.routes.requests, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
    for (int i = 0; i < 20; i++) {
        expect(&rig, fds[i], "hello\n");
        close(fds[i]);
    }
    rig_close(&rig);
}

static size_t heap_bytes(void)
{
    return mallinfo2().uordblks;
}

static void test_two_thousand(void **state)
{
    enum { MANY = 2000 };
    static int fds[MANY];
    struct rlimit limit;
    struct rig rig;
    size_t before;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 2 * MANY + 100)
        skip();
    rig_open(&rig, NULL);
    before = heap_bytes();
    for (int i = 0; i < MANY; i++)
        fds[i] = open_stream(&rig);
    if (before > 0) { /* not where a sanitizer has a heap of its own */
        print_message("%zu bytes of heap for a connection with a quiet stream\n", (heap_bytes() - before) / MANY);
        assert_true((heap_bytes() - before) / MANY < 2500);
    }
    for (int i = 0; i < MANY; i++)
        http_stream_write(rig.routes.held[i], "piece", 5);
    for (int i = 0; i < MANY; i++)
        http_stream_end(rig.routes.held[i]);
    for (int i = 0; i < MANY; i++) {
        struct text piece = {0};

        assert_true(rig_read(&rig, fds[i], &piece, "5\r\npiece\r\n0\r\n\r\n"));
        text_fini(&piece);
    }
    if (before > 0) {
        print_message("%zu bytes of heap for a connection that is idle\n", (heap_bytes() - before) / MANY);
        assert_true((heap_bytes() - before) / MANY < 1000);
    }
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
    check_clear(&rig);
    assert_int_equal(rig.routes.gone, 0);
    rig_close(&rig);
}

/* ---- Ends of the server ---- */

static void count(void *user)
{
    ++*(unsigned *)user;
}

static void test_drain(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    unsigned drained = 0;
    struct text head = {0};
    struct rig rig;
    int idle, waits, stream, late;

    (void)state;
    rig_open(&rig, NULL);
    stream = open_stream(&rig);
    idle = rig_connect(&rig);
    assert_true(rig_say(&rig, idle, GET));
    assert_true(rig_read(&rig, idle, &head, "hello\n"));
    text_fini(&head);
    waits = rig_connect(&rig);
    assert_true(rig_say(&rig, waits, WAIT GET));
    while (rig.routes.n_held < 2)
        rig_turn(&rig);
    http_server_drain(rig.server, count, &drained);
    expect_nothing(&rig, idle);
    close(idle);
    late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_port = htons(rig.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(late, (struct sockaddr *)&address, sizeof address), -1);
    close(late);
    http_stream_end(rig.routes.held[0]);
    http_answer(rig.routes.held[1], 200, "text/plain", "late", 4);
    expect(&rig, stream, "0\r\n\r\n");
    close(stream);
    assert_true(rig_read(&rig, waits, &head, NULL));
    assert_non_null(strstr(head.bytes, "Connection: close\r\n\r\nlate"));
    assert_null(strstr(head.bytes, "hello"));
    assert_int_equal(drained, 0);
    text_fini(&head);
    close(waits);
    turn_until(&rig, &drained, 1);
    rig_close(&rig);
    assert_int_equal(drained, 1);
}

static void test_drain_of_nothing(void **state)
{
    unsigned drained = 0;
    struct rig rig;

    (void)state;
    rig_open(&rig, NULL);
    http_server_drain(rig.server, count, &drained);
    assert_int_equal(drained, 1);
    rig_close(&rig);
    assert_int_equal(drained, 1);
}

static void test_end(void **state)
{
    struct rig rig;
    int fds[5];

    (void)state;
    rig_open(&rig, NULL);
    fds[0] = open_stream(&rig);
    fds[1] = rig_connect(&rig);
    assert_true(rig_say(&rig, fds[1], WAIT));
    fds[2] = rig_connect(&rig);
    assert_true(rig_say(&rig, fds[2], BODY));
    fds[3] = rig_connect(&rig);
    assert_true(rig_say(&rig, fds[3], "GET"));
    fds[4] = rig_connect(&rig);
    rig_turn_now(&rig);
    http_server_free(rig.server);
    assert_int_equal(rig.routes.gone, 3);
    rig.server = NULL;
    rig_close(&rig);
    for (int i = 0; i < 5; i++)
        close(fds[i]);
}

static void free_server(void *user, struct http_exchange *exchange)
{
    struct rig *rig = user;

    (void)exchange;
    http_server_free(rig->server);
    rig->server = NULL;
}

static void count_gone(void *user, struct http_exchange *exchange)
{
    struct rig *rig = user;

    (void)exchange;
    rig->routes.gone++;
}

/* A handler may end it all, in each of them. */
static void test_end_inside(void **state)
{
    (void)state;
    for (int where = 0; where < 2; where++) {
        struct http_handlers handlers = {.on_request = free_server, .on_gone = count_gone};
        struct rig rig = {0};
        int fd;

        handlers.user = &rig;
        if (where == 1)
            handlers.on_head = free_server;
        assert_int_equal(uv_loop_init(&rig.loop), 0);
        rig.server = http_server_new(&rig.loop, NULL, &handlers);
        assert_int_equal(http_listen_tcp(rig.server, "127.0.0.1", 0, &rig.port), 0);
        fd = rig_connect(&rig);
        assert_int_equal(send(fd, GET GET GET, 3 * sizeof GET - 3, 0), 3 * sizeof GET - 3);
        uv_run(&rig.loop, UV_RUN_DEFAULT);
        assert_null(rig.server);
        assert_int_equal(rig.routes.gone, 1);
        assert_int_equal(uv_loop_close(&rig.loop), 0);
        close(fd);
    }
}

/* ---- Sockets ---- */

static void test_unix(void **state)
{
    struct http_handlers handlers = {0};
    struct http_server *other;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[64], elsewhere[80];
    struct stat mode;
    struct rig rig;
    int fd;

    (void)state;
    snprintf(path, sizeof path, "/tmp/runnel-http-%d", (int)getpid());
    snprintf(elsewhere, sizeof elsewhere, "%s-moved", path);
    rig_open(&rig, NULL);
    other = http_server_new(&rig.loop, NULL, &handlers);
    strcpy(address.sun_path, path);
    fd = socket(AF_UNIX, SOCK_STREAM, 0); /* of one that was killed */
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
    assert_int_equal(http_listen_unix(rig.server, path), 0);
    assert_int_equal(lstat(path, &mode), 0);
    assert_int_equal(mode.st_mode, S_IFSOCK | 0600);
    assert_int_equal(http_listen_unix(other, path), UV_EADDRINUSE);
    fd = rig_connect_unix(path);
    assert_true(rig_say(&rig, fd, GET));
    shutdown(fd, SHUT_WR);
    expect(&rig, fd, "hello\n");
    close(fd);
    assert_int_equal(rename(path, elsewhere), 0);
    assert_int_equal(http_listen_unix(other, path), 0); /* its own now: the first must not remove it */
    http_server_free(rig.server);
    rig.server = NULL;
    assert_int_equal(lstat(path, &mode), 0);
    http_server_free(other);
    assert_int_equal(lstat(path, &mode), -1);
    rig_close(&rig);
    unlink(elsewhere);
}

static void test_unix_refused(void **state)
{
    char path[64], text[4];
    struct rig rig;
    int fd;

    (void)state;
    snprintf(path, sizeof path, "/tmp/runnel-http-%d", (int)getpid());
    rig_open(&rig, NULL);
    fd = open(path, O_CREAT | O_RDWR | O_EXCL, 0600);
    assert_int_equal(write(fd, "mine", 4), 4);
    assert_int_equal(http_listen_unix(rig.server, path), UV_EEXIST);
    assert_int_equal(pread(fd, text, 4, 0), 4);
    assert_int_equal(access(path, F_OK), 0);
    close(fd);
    unlink(path);
    assert_int_equal(http_listen_unix(rig.server, "/no such folder/socket"), UV_ENOENT);
    assert_int_equal(http_listen_unix(rig.server, ""), UV_ENAMETOOLONG);
    assert_int_equal(http_listen_unix(rig.server, path), 0);
    rig_close(&rig);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_tcp_refused(void **state)
{
    struct rig rig;
    uint16_t port = 0;

    (void)state;
    rig_open(&rig, NULL);
    assert_int_equal(http_listen_tcp(rig.server, "127.0.0.1", rig.port, &port), UV_EADDRINUSE);
    assert_true(http_listen_tcp(rig.server, "no.such.host.invalid", 0, &port) < 0);
    assert_true(http_listen_tcp(rig.server, "203.0.113.1", 0, &port) < 0); /* not of this machine */
    assert_int_equal(http_listen_tcp(rig.server, "localhost", 0, &port), 0);
    assert_int_not_equal(port, 0);
    rig_close(&rig);
}

/* A socket that another has opened; one that does not listen. */
static void test_fd(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t n = sizeof address;
    struct rig rig;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    (void)state;
    rig_open(&rig, NULL);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, n), 0);
    assert_int_equal(http_listen_fd(rig.server, fd), UV_EINVAL);
    assert_int_equal(http_listen_fd(rig.server, -1), UV_EBADF);
    assert_int_equal(http_listen_fd(rig.server, STDIN_FILENO) < 0, true);
    assert_int_equal(listen(fd, 5), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &n), 0);
    assert_int_equal(http_listen_fd(rig.server, fd), 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    rig.port = ntohs(address.sin_port);
    check_clear(&rig);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_leaving_behind_much),
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_early_answer),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_much_at_once),
        cmocka_unit_test(test_great_answer),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_trickle),
        cmocka_unit_test(test_connections),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_one_body),
        cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_two_thousand),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_of_nothing),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_end_inside),
        cmocka_unit_test(test_unix),
        cmocka_unit_test(test_unix_refused),
        cmocka_unit_test(test_tcp_refused),
        cmocka_unit_test(test_fd),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
