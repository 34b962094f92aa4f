/* See rig.h. */
#include "rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

void rig_open(struct rig *rig, const struct http_limits *limits)
{
    struct http_handlers handlers = routes_handlers(&rig->routes);

    memset(rig, 0, sizeof *rig);
    assert_int_equal(uv_loop_init(&rig->loop), 0);
    rig->server = http_server_new(&rig->loop, limits, &handlers);
    assert_non_null(rig->server);
    assert_int_equal(http_listen_tcp(rig->server, "127.0.0.1", 0, &rig->port), 0);
    assert_int_not_equal(rig->port, 0);
}

void rig_close(struct rig *rig)
{
    http_server_free(rig->server);
    uv_run(&rig->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&rig->loop), 0);
}

void rig_turn(struct rig *rig)
{
    uv_run(&rig->loop, UV_RUN_ONCE);
}

void rig_turn_now(struct rig *rig)
{
    uv_run(&rig->loop, UV_RUN_NOWAIT);
}

int rig_connect(struct rig *rig)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(rig->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

int rig_connect_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0 && strlen(path) < sizeof address.sun_path);
    strcpy(address.sun_path, path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

bool rig_send(struct rig *rig, int fd, const char *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t sent = send(fd, bytes + at, n - at, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent < 0 && errno != EAGAIN)
            return false;
        at += sent > 0 ? (size_t)sent : 0;
        rig_turn_now(rig);
    }
    return true;
}

bool rig_say(struct rig *rig, int fd, const char *text)
{
    return rig_send(rig, fd, text, strlen(text));
}

static bool ends_with(const struct text *text, const char *end)
{
    size_t n = strlen(end);

    return text->n >= n && memcmp(text->bytes + text->n - n, end, n) == 0;
}

bool rig_read(struct rig *rig, int fd, struct text *text, const char *end)
{
    char bytes[65536];

    while (end == NULL || !ends_with(text, end)) {
        ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);

        if (n == 0)
            return end == NULL;
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n > 0)
            text_add(text, bytes, (size_t)n);
        rig_turn_now(rig);
    }
    return true;
}

static void drop_dates(struct text *text)
{
    char *at = text->bytes;

    while (at != NULL && (at = strstr(at, "Date: ")) != NULL) {
        char *end = strstr(at, "\r\n");

        assert_non_null(end);
        memmove(at, end + 2, text->n - (size_t)(end + 2 - text->bytes) + 1);
        text->n -= (size_t)(end + 2 - at);
    }
}

struct text rig_talk(struct rig *rig, const char *bytes, size_t n, size_t piece)
{
    struct text answers = {0};
    int fd = rig_connect(rig);

    for (size_t at = 0; at < n; at += piece)
        if (!rig_send(rig, fd, bytes + at, n - at < piece ? n - at : piece))
            break;
    shutdown(fd, SHUT_WR);
    assert_true(rig_read(rig, fd, &answers, NULL));
    close(fd);
    drop_dates(&answers);
    return answers;
}

void rig_statuses(const struct text *answers, char statuses[8192])
{
    char *to = statuses;

    *to = '\0';
    for (const char *at = answers->bytes; at != NULL && (at = strstr(at, "HTTP/1.1 ")) != NULL; at += 12) {
        if (strncmp(at + 9, "100", 3) == 0)
            continue;
        assert_true(to - statuses < 8000);
        to += sprintf(to, "%.3s ", at + 9);
    }
}

void text_add(struct text *text, const char *bytes, size_t n)
{
    if (text->n + n + 1 > text->room) {
        text->room = 2 * (text->n + n + 1);
        text->bytes = realloc(text->bytes, text->room);
    }
    assert_non_null(text->bytes);
    memcpy(text->bytes + text->n, bytes, n);
    text->n += n;
    text->bytes[text->n] = '\0';
}

void text_fini(struct text *text)
{
    free(text->bytes);
    *text = (struct text){0};
}

static void on_while(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

unsigned rig_count_turns(struct rig *rig, unsigned most)
{
    unsigned turns = 0;
    bool over = false;
    uv_timer_t timer;

    uv_timer_init(&rig->loop, &timer);
    timer.data = &over;
    uv_timer_start(&timer, on_while, 50, 0);
    for (; !over && turns < most; turns++)
        rig_turn(rig);
    uv_close((uv_handle_t *)&timer, NULL);
    rig_turn_now(rig);
    return turns;
}

void rig_reset(int fd)
{
    struct linger none = {.l_onoff = 1};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close(fd);
}

void rig_check_clear(struct rig *rig)
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

void rig_turn_until(struct rig *rig, const unsigned *count, unsigned wanted)
{
    while (*count < wanted)
        rig_turn(rig);
    assert_int_equal(*count, wanted);
}

void rig_expect(struct rig *rig, int fd, const char *part)
{
    struct text answer = {0};

    assert_true(rig_read(rig, fd, &answer, NULL));
    if (answer.bytes == NULL || strstr(answer.bytes, part) == NULL)
        fail_msg("%s: %s", part, answer.bytes);
    text_fini(&answer);
}

void rig_expect_nothing(struct rig *rig, int fd)
{
    struct text answer = {0};

    assert_true(rig_read(rig, fd, &answer, NULL));
    assert_int_equal(answer.n, 0);
}
int rig_open_stream(struct rig *rig)
{
    struct text head = {0};
    int fd = rig_connect(rig);

    assert_true(rig_say(rig, fd, OPEN));
    assert_true(rig_read(rig, fd, &head, "\r\n\r\n"));
    text_fini(&head);
    return fd;
}
