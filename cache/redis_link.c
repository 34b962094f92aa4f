/* See redis_link.h. */
#include "cache/redis_link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <hiredis/hiredis.h>

#include "base/check.h"

#define LONGEST_WAIT_US 60000000u
#define PIECE_BYTES 16384u

void rn_redis_link_init(struct rn_redis_link *link, const struct rn_redis_url *url, struct rn_clock clock,
                        uint32_t connect_ms, uint32_t command_ms, uint32_t retry_ms)
{
    *link = (struct rn_redis_link){.url = url, .clock = clock, .connect_ms = connect_ms, .command_ms = command_ms,
                                   .retry_ms = retry_ms, .wait_us = (uint64_t)retry_ms * 1000};
}

void rn_redis_link_fini(struct rn_redis_link *link)
{
    if (link->context != NULL)
        redisFree(link->context);
    link->context = NULL;
}

void rn_redis_link_complain(struct rn_redis_link *link, const char *why)
{
    char where[128];

    if (link->has_error)
        return;
    link->has_error = true;
    rn_redis_url_show(link->url, where, sizeof where);
    rn_error_set(&link->error, RUNNEL_IO, "the shared cache at %s: %s", where, why);
}

/* Not to be tried before some time has passed. */
static void stay_away(struct rn_redis_link *link)
{
    link->next_try_us = rn_now_us(&link->clock) + link->wait_us;
    link->wait_us = 2 * link->wait_us < LONGEST_WAIT_US ? 2 * link->wait_us : LONGEST_WAIT_US;
}

void rn_redis_link_drop(struct rn_redis_link *link, const char *why)
{
    if (link->context == NULL)
        return;
    rn_redis_link_complain(link, why);
    redisFree(link->context);
    link->context = NULL;
    link->losses++;
    stay_away(link);
}

bool rn_redis_link_would(const struct rn_redis_link *link)
{
    return link->context != NULL || rn_now_us(&link->clock) >= link->next_try_us;
}

/* ---- Bytes ---- */

/* True: the socket is ready for it before the deadline. */
static bool wait_for(struct rn_redis_link *link, short events)
{
    struct pollfd wait = {.fd = link->context->fd, .events = events};

    for (;;) {
        uint64_t now = rn_now_us(&link->clock);
        int ready;

        if (now >= link->deadline_us) {
            rn_redis_link_drop(link, "no answer in time");
            return false;
        }
        ready = poll(&wait, 1, (int)((link->deadline_us - now + 999) / 1000));
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR) {
            rn_redis_link_drop(link, strerror(errno));
            return false;
        }
    }
}

static bool send_all(struct rn_redis_link *link, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent;

        if (!wait_for(link, POLLOUT))
            return false;
        sent = send(link->context->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (sent < 0) {
            rn_redis_link_drop(link, strerror(errno));
            return false;
        }
        bytes += sent;
        n -= (size_t)sent;
        link->bytes_out += (uint64_t)sent;
    }
    return true;
}

bool rn_redis_link_send(struct rn_redis_link *link, unsigned n, const char *const *arguments, const size_t *bytes)
{
    const char *list[RN_REDIS_MOST_ARGUMENTS];
    char *command = NULL;
    bool sent;
    int length;

    RN_CHECK(n <= RN_REDIS_MOST_ARGUMENTS);
    if (link->context == NULL)
        return false;
    memcpy(list, arguments, n * sizeof *list);
    length = redisFormatCommandArgv(&command, (int)n, list, bytes);
    if (length < 0) {
        rn_redis_link_drop(link, "no memory for a command");
        return false;
    }
    sent = send_all(link, command, (size_t)length);
    redisFreeCommand(command);
    return sent;
}

/* Some more bytes for the reader of answers. */
static bool receive(struct rn_redis_link *link)
{
    char piece[PIECE_BYTES];
    ssize_t got;

    if (!wait_for(link, POLLIN))
        return false;
    got = recv(link->context->fd, piece, sizeof piece, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got <= 0) {
        rn_redis_link_drop(link, got == 0 ? "the server has closed the connection" : strerror(errno));
        return false;
    }
    link->bytes_in += (uint64_t)got;
    if (redisReaderFeed(link->context->reader, piece, (size_t)got) == REDIS_OK)
        return true;
    rn_redis_link_drop(link, link->context->reader->errstr);
    return false;
}

struct redisReply *rn_redis_link_answer(struct rn_redis_link *link)
{
    while (link->context != NULL) {
        void *reply = NULL;

        if (redisReaderGetReply(link->context->reader, &reply) != REDIS_OK) {
            rn_redis_link_drop(link, link->context->reader->errstr);
            return NULL;
        }
        if (reply != NULL)
            return reply;
        if (!receive(link))
            return NULL;
    }
    return NULL;
}

/* ---- Connecting ---- */

/* A command that must be answered with a status. */
static bool enter_with(struct rn_redis_link *link, unsigned n, const char *const *arguments)
{
    size_t bytes[RN_REDIS_MOST_ARGUMENTS];
    struct redisReply *reply;
    bool good;

    for (unsigned i = 0; i < n; i++)
        bytes[i] = strlen(arguments[i]);
    if (!rn_redis_link_send(link, n, arguments, bytes))
        return false;
    reply = rn_redis_link_answer(link);
    if (reply == NULL)
        return false;
    good = reply->type == REDIS_REPLY_STATUS;
    if (!good)
        rn_redis_link_drop(link, reply->type == REDIS_REPLY_ERROR ? reply->str : "this is no Redis server");
    freeReplyObject(reply);
    return good;
}

static bool enter(struct rn_redis_link *link)
{
    const struct rn_redis_url *url = link->url;
    char database[16];

    if (url->password != NULL && url->user != NULL &&
        !enter_with(link, 3, (const char *const[]){"AUTH", url->user, url->password}))
        return false;
    if (url->password != NULL && url->user == NULL &&
        !enter_with(link, 2, (const char *const[]){"AUTH", url->password}))
        return false;
    snprintf(database, sizeof database, "%u", (unsigned)url->database);
    if (url->database != 0 && !enter_with(link, 2, (const char *const[]){"SELECT", database}))
        return false;
    return enter_with(link, 1, (const char *const[]){"PING"});
}

static struct timeval milliseconds(uint32_t ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
}

static void connect_to(struct rn_redis_link *link)
{
    const struct rn_redis_url *url = link->url;
    struct redisContext *context = url->path != NULL
                                       ? redisConnectUnixWithTimeout(url->path, milliseconds(link->connect_ms))
                                       : redisConnectWithTimeout(url->host, (int)url->port,
                                                                 milliseconds(link->connect_ms));

    if (context == NULL || context->err != 0) {
        rn_redis_link_complain(link, context == NULL ? "no memory for a connection" : context->errstr);
        if (context != NULL)
            redisFree(context);
        stay_away(link);
        return;
    }
    link->context = context;
    link->connections++;
    link->deadline_us = rn_now_us(&link->clock) + (uint64_t)link->command_ms * 1000;
    if (enter(link))
        link->wait_us = (uint64_t)link->retry_ms * 1000;
}

bool rn_redis_link_begin(struct rn_redis_link *link)
{
    if (link->context == NULL && rn_redis_link_would(link))
        connect_to(link);
    link->deadline_us = rn_now_us(&link->clock) + (uint64_t)link->command_ms * 1000;
    return link->context != NULL;
}
