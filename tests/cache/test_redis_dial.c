/* Of several addresses the first that takes a connection is taken, whatever the others do: refuse, say nothing, be of a
 * kind that this machine has not. Time is the test's own. */
#define _GNU_SOURCE /* usleep */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "cache/store/redis_wire.h"

#define MOST 12

static struct sockaddr_in where[MOST];
static struct addrinfo list[MOST];
static unsigned n_listed;

/* A port of this machine on which somebody listens, or nobody. */
static int listen_at(struct sockaddr_in *at, int backlog)
{
    socklen_t n = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(fd, (const struct sockaddr *)at, sizeof *at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)at, &n), 0);
    if (backlog >= 0)
        assert_int_equal(listen(fd, backlog), 0);
    return fd;
}

static void add(const struct sockaddr_in *at)
{
    where[n_listed] = *at;
    list[n_listed] = (struct addrinfo){.ai_family = AF_INET,
                                       .ai_socktype = SOCK_STREAM,
                                       .ai_addrlen = sizeof *at,
                                       .ai_addr = (struct sockaddr *)&where[n_listed]};
    if (n_listed > 0)
        list[n_listed - 1].ai_next = &list[n_listed];
    n_listed++;
}

static int set_up(void **state)
{
    (void)state;
    n_listed = 0;
    memset(list, 0, sizeof list);
    return 0;
}

/* Whether fd leads to the port. */
static bool leads_to(int fd, const struct sockaddr_in *at)
{
    struct sockaddr_in other;
    socklen_t n = sizeof other;

    return getpeername(fd, (struct sockaddr *)&other, &n) == 0 && other.sin_port == at->sin_port;
}

/* Goes on until it has ended; what each look at the clock shows is 1 ms more. */
static enum rn_redis_io dial_all(struct rn_redis_connect *connecting, uint64_t *now, int *fd)
{
    enum rn_redis_io io;

    while ((io = rn_redis_connect_step(connecting, *now, fd)) == RN_REDIS_WRITE) {
        usleep(100);
        *now += 1000;
        assert_true(*now < 60000000);
    }
    return io;
}

/* Connections that nobody takes fill a queue: then no answer comes at all. */
static int fill(const struct sockaddr_in *at, int *fds)
{
    int n = 0;

    for (; n < 8; n++) {
        fds[n] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(fds[n], (const struct sockaddr *)at, sizeof *at);
    }
    usleep(20000);
    return n;
}

static void test_refused_first(void **state)
{
    struct sockaddr_in dead, alive;
    int closed = listen_at(&dead, -1), server = listen_at(&alive, 8), fd = -1;
    struct rn_redis_connect connecting;
    uint64_t now = 0;

    (void)state;
    for (int i = 0; i < 6; i++)
        add(&dead);
    add(&alive);
    rn_redis_connect_begin_with(&connecting, list);
    assert_int_equal(dial_all(&connecting, &now, &fd), RN_REDIS_DONE);
    assert_true(leads_to(fd, &alive));
    assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    rn_redis_connect_end(&connecting);
    close(fd);
    close(closed);
    close(server);
}

static void test_silent_first(void **state)
{
    struct sockaddr_in silent, alive;
    int queue = listen_at(&silent, 0), server = listen_at(&alive, 8), fd = -1, fds[8], n = fill(&silent, fds);
    struct rn_redis_connect connecting;
    uint64_t now = 0;

    (void)state;
    add(&silent);
    add(&alive);
    rn_redis_connect_begin_with(&connecting, list);
    assert_int_equal(rn_redis_connect_step(&connecting, 0, &fd), RN_REDIS_WRITE);
    assert_int_equal(rn_redis_connect_step(&connecting, 49999, &fd), RN_REDIS_WRITE);
    assert_non_null(connecting.next); /* it has not been asked before its time */
    now = 50000;
    assert_int_equal(dial_all(&connecting, &now, &fd), RN_REDIS_DONE);
    assert_true(leads_to(fd, &alive));
    rn_redis_connect_end(&connecting);
    close(fd);
    while (n > 0)
        close(fds[--n]);
    close(queue);
    close(server);
}

static void test_none(void **state)
{
    struct sockaddr_in dead;
    int closed = listen_at(&dead, -1), fd = -1;
    struct rn_redis_connect connecting;
    uint64_t now = 0;

    (void)state;
    rn_redis_connect_begin_with(&connecting, NULL);
    assert_int_equal(rn_redis_connect_step(&connecting, 0, &fd), RN_REDIS_LOST);
    rn_redis_connect_end(&connecting);
    for (int i = 0; i < MOST; i++) /* more than are asked */
        add(&dead);
    list[0].ai_family = where[0].sin_family = AF_UNSPEC; /* of no kind */
    rn_redis_connect_begin_with(&connecting, list);
    assert_int_equal(dial_all(&connecting, &now, &fd), RN_REDIS_LOST);
    assert_int_equal(connecting.n_tried, RN_REDIS_MAX_CONNECTING);
    assert_non_null(strstr(connecting.why, "refused"));
    rn_redis_connect_end(&connecting);
    close(closed);
}

static void test_names(void **state)
{
    char label[80] = ""; /* longer than 63, so that no server is asked */
    struct rn_redis_url url = {.host = label, .port = 6379};
    struct rn_redis_connect connecting;
    int fd = -1;

    (void)state;
    memset(label, 'x', sizeof label - 1);
    assert_false(rn_redis_connect_begin(&connecting, &url));
    assert_non_null(strstr(connecting.why, "name"));
    rn_redis_connect_end(&connecting);
    url = (struct rn_redis_url){.path = "/nonexistent/socket"};
    assert_true(rn_redis_connect_begin(&connecting, &url));
    assert_int_equal(rn_redis_connect_step(&connecting, 0, &fd), RN_REDIS_LOST);
    assert_non_null(strstr(connecting.why, "No such file"));
    rn_redis_connect_end(&connecting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_refused_first, set_up),
        cmocka_unit_test_setup(test_silent_first, set_up),
        cmocka_unit_test_setup(test_none, set_up),
        cmocka_unit_test_setup(test_names, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
