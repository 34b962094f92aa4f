/* The server as a whole: bounds of connections, of all bodies together and of descriptors, its end, at once and by
 * draining, and sockets of each kind. No verdict depends on how long a thing took. */
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

/* ---- Number ---- */

static void test_connections(void **state)
{
    static const struct http_limits limits = {.connections = 2};
    struct http_stats stats;
    struct rig rig;
    int one, two, three;

    (void)state;
    rig_open(&rig, &limits);
    one = rig_open_stream(&rig);
    two = rig_open_stream(&rig);
    three = rig_connect(&rig);
    assert_true(rig_say(&rig, three, GET));
    rig_expect(&rig, three, "HTTP/1.1 503 ");
    close(three);
    http_stream_write(rig.routes.held[0], "piece", 5);
    http_stream_end(rig.routes.held[0]);
    rig_expect(&rig, (shutdown(one, SHUT_WR), one), "piece\r\n0\r\n\r\n");
    close(one);
    do {
        rig_turn_now(&rig);
        http_server_stats(rig.server, &stats);
    } while (stats.connections > 1);
    three = rig_connect(&rig);
    assert_true(rig_say(&rig, three, GET));
    shutdown(three, SHUT_WR);
    rig_expect(&rig, three, "HTTP/1.1 200 ");
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
    rig_expect(&rig, fit, "HTTP/1.1 200 ");
    assert_true(rig_send(&rig, small, bytes, 500));
    shutdown(small, SHUT_WR);
    rig_expect(&rig, small, "HTTP/1.1 200 ");
    for (int i = 0; i < N; i++)
        close(fds[i]);
    close(fit);
    close(small);
    rig_check_clear(&rig);
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
    rig_expect(&rig, one, "HTTP/1.1 200 ");
    close(one);
    one = begin_body(&rig, LONG, bytes, LONG - 1);
    other = begin_body(&rig, LONG, bytes, 2);
    rig_expect(&rig, one, "HTTP/1.1 503 ");
    assert_true(rig_send(&rig, other, bytes, LONG - 2));
    shutdown(other, SHUT_WR);
    rig_expect(&rig, other, "HTTP/1.1 200 ");
    close(one);
    close(other);
    rig_check_clear(&rig);
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
        rig_expect(&rig, fds[i], "hello\n");
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
        fds[i] = rig_open_stream(&rig);
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
    rig_check_clear(&rig);
    assert_int_equal(rig.routes.gone, 0);
    rig_close(&rig);
}

/* Who sends more than is read ahead, takes no answer and shuts its side: the loop sleeps. When it reads at last, each
 * request is answered. */
static void test_sent_early(void **state)
{
    enum { LONG = 8 << 20, N = 1000 };
    static char bytes[LONG];
    struct text answers = {0};
    struct rig rig;
    char head[128];
    unsigned n = 0;
    int fd;

    (void)state;
    memset(bytes, 'a', sizeof bytes);
    rig_open(&rig, NULL);
    fd = rig_connect(&rig);
    snprintf(head, sizeof head, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", LONG);
    assert_true(rig_say(&rig, fd, head) && rig_send(&rig, fd, bytes, LONG));
    rig_turn_until(&rig, &rig.routes.requests, 1);
    for (int i = 0; i < N; i++)
        assert_true(rig_say(&rig, fd, GET));
    shutdown(fd, SHUT_WR);
    assert_true(rig_count_turns(&rig, 1000) < 1000);
    assert_int_equal(rig.routes.requests, 1);
    assert_true(rig_read(&rig, fd, &answers, NULL));
    for (const char *at = answers.bytes; (at = strstr(at, "hello\n")) != NULL; at++)
        n++;
    assert_int_equal(n, N);
    text_fini(&answers);
    close(fd);
    rig_check_clear(&rig);
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
    stream = rig_open_stream(&rig);
    idle = rig_connect(&rig);
    assert_true(rig_say(&rig, idle, GET));
    assert_true(rig_read(&rig, idle, &head, "hello\n"));
    text_fini(&head);
    waits = rig_connect(&rig);
    assert_true(rig_say(&rig, waits, WAIT GET));
    while (rig.routes.n_held < 2)
        rig_turn(&rig);
    http_server_drain(rig.server, count, &drained);
    rig_expect_nothing(&rig, idle);
    close(idle);
    late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_port = htons(rig.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(late, (struct sockaddr *)&address, sizeof address), -1);
    close(late);
    http_stream_end(rig.routes.held[0]);
    http_answer(rig.routes.held[1], 200, "text/plain", "late", 4);
    rig_expect(&rig, stream, "0\r\n\r\n");
    close(stream);
    assert_true(rig_read(&rig, waits, &head, NULL));
    assert_non_null(strstr(head.bytes, "Connection: close\r\n\r\nlate"));
    assert_null(strstr(head.bytes, "hello"));
    assert_int_equal(drained, 0);
    text_fini(&head);
    close(waits);
    rig_turn_until(&rig, &drained, 1);
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
    fds[0] = rig_open_stream(&rig);
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

/* A stream of HTTP/1.0 ends with its connection: one that is cut off must not look as if it were whole. */
static void test_end_of_an_old_stream(void **state)
{
    struct text text = {0};
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, NULL);
    fd = rig_connect(&rig);
    assert_true(rig_say(&rig, fd, "GET /open HTTP/1.0\r\n\r\n"));
    assert_true(rig_read(&rig, fd, &text, "\r\n\r\n"));
    http_server_free(rig.server);
    rig.server = NULL;
    rig_close(&rig);
    assert_int_equal(recv(fd, text.bytes, 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
    text_fini(&text);
    close(fd);
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
    rig_expect(&rig, fd, "hello\n");
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
    rig_check_clear(&rig);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connections),  cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_one_body),     cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_two_thousand), cmocka_unit_test(test_sent_early),
        cmocka_unit_test(test_drain),        cmocka_unit_test(test_drain_of_nothing),
        cmocka_unit_test(test_end),          cmocka_unit_test(test_end_of_an_old_stream),
        cmocka_unit_test(test_end_inside),   cmocka_unit_test(test_unix),
        cmocka_unit_test(test_unix_refused), cmocka_unit_test(test_tcp_refused),
        cmocka_unit_test(test_fd),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
