/* See log_lines.h. */
#include "log_lines.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve.h"

/* A pipe takes PIPE_BUF bytes whole once it is writable: so a write of no more does not block, and lines of several
 * threads do not mix. */
enum { WAITING_BYTES = 1 << 20, WRITE_BYTES = 4096, LOOK_MS = 250, LAST_LOOKS = 4 };

/* Whole lines as far as they fit; of a line that does not, its beginning. */
static size_t next_piece(const char *from, size_t n)
{
    size_t end = 0, next = 0;

    if (n <= WRITE_BYTES)
        return n;
    while (next <= WRITE_BYTES) {
        const char *feed = memchr(from + next, '\n', n - next);

        end = next;
        next = feed != NULL ? (size_t)(feed - from) + 1 : n + 1;
    }
    return end > 0 ? end : WRITE_BYTES;
}

/* False: it takes nothing now. What cannot be written at all is lost. */
static bool write_piece(struct serve_log *log)
{
    struct pollfd one = {.fd = STDERR_FILENO, .events = POLLOUT};
    int ready = poll(&one, 1, LOOK_MS);
    ssize_t n = 0;

    if (ready <= 0)
        return ready < 0 && errno == EINTR;
    n = write(STDERR_FILENO, log->going + log->at, next_piece(log->going + log->at, log->n_going - log->at));
    if (n >= 0)
        log->at += (size_t)n;
    else if (errno != EINTR && errno != EAGAIN)
        log->at = log->n_going;
    return true;
}

static void run(uv_work_t *work)
{
    struct serve *serve = work->data;

    while (serve->log.at < serve->log.n_going && !serve->log.stuck)
        serve->log.stuck = !write_piece(&serve->log);
}

static void begin(struct serve *serve);

static void after(uv_work_t *work, int status)
{
    struct serve *serve = work->data;
    struct serve_log *log = &serve->log;
    uint64_t n_lost = log->n_lost;

    log->writes = false;
    log->n_stuck = log->stuck ? log->n_stuck + 1 : 0;
    if (status != 0 || (log->closing && log->n_stuck >= LAST_LOOKS)) {
        log->at = log->n_going;
        log->n_waiting = 0;
    }
    if (!log->stuck && n_lost > 0) {
        log->n_lost = 0;
        serve_complain(serve, "%llu lines of this log are lost: nobody took them", (unsigned long long)n_lost);
    }
    begin(serve);
}

/* Goes on with what is left of the last lines, or with those that came meanwhile. */
static void begin(struct serve *serve)
{
    struct serve_log *log = &serve->log;

    if (log->writes)
        return;
    if (log->at == log->n_going) {
        free(log->going);
        log->going = log->waiting;
        log->n_going = log->n_waiting;
        log->at = 0;
        log->waiting = NULL;
        log->n_waiting = log->room = 0;
    }
    if (log->n_going == 0)
        return;
    log->stuck = false;
    log->work.data = serve;
    log->writes = uv_queue_work(&serve->loop, &log->work, run, after) == 0;
}

/* Room for so many more bytes. */
static bool reserve(struct serve_log *log, size_t n)
{
    size_t room = log->room == 0 ? WRITE_BYTES : log->room;
    char *grown = NULL;

    while (room - log->n_waiting < n)
        room *= 2;
    if (room == log->room)
        return true;
    grown = realloc(log->waiting, room);
    if (grown == NULL)
        return false;
    log->waiting = grown;
    log->room = room;
    return true;
}

void serve_log_put(struct serve *serve, const char *line, size_t n)
{
    struct serve_log *log = &serve->log;

    if ((log->n_waiting > 0 && log->n_waiting + n > WAITING_BYTES) || !reserve(log, n)) {
        log->n_lost++;
        return;
    }
    memcpy(log->waiting + log->n_waiting, line, n);
    log->n_waiting += n;
    begin(serve);
}

void serve_log_close(struct serve *serve)
{
    struct serve_log *log = &serve->log;

    log->closing = true;
    begin(serve);
    while (log->writes)
        uv_run(&serve->loop, UV_RUN_ONCE);
    free(log->going);
    free(log->waiting);
    *log = (struct serve_log){.closing = true};
}
