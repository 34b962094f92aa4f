/* See redis_link.h. Coming up is redis_enter.c's. */
#include "cache/store/redis_link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include "base/check.h"
#include "cache/store/redis_enter.h"

#define LONGEST_WAIT_US 60000000u
#define PIECE_BYTES 16384u

void rn_redis_link_init(struct rn_redis_link *link, const struct rn_redis_url *url,
                        const struct rn_redis_tls_files *files, struct rn_clock clock, uint32_t connect_ms,
                        uint32_t command_ms, uint32_t retry_ms)
{
    *link = (struct rn_redis_link){.url = url,
                                   .files = *files,
                                   .clock = clock,
                                   .connect_ms = connect_ms,
                                   .command_ms = command_ms,
                                   .retry_ms = retry_ms,
                                   .wait_us = (uint64_t)retry_ms * 1000,
                                   .wire = {.fd = -1}};
}

/* Whatever there is of a connection goes. */
static void clear(struct rn_redis_link *link)
{
    rn_redis_dial_end(&link->dial);
    rn_redis_wire_close(&link->wire);
    if (link->reader != NULL)
        redisReaderFree(link->reader);
    rn_free(link->url->heap, link->entry);
    link->reader = NULL;
    link->entry = NULL;
    link->state = RN_REDIS_DOWN;
}

void rn_redis_link_fini(struct rn_redis_link *link)
{
    if (link->url != NULL)
        clear(link);
}

void rn_redis_link_complain(struct rn_redis_link *link, const char *why)
{
    const char *password = link->url->password;
    char where[128];

    if (link->has_error)
        return;
    link->has_error = true;
    if (password != NULL && strstr(why, password) != NULL)
        why = "an error with the password in it"; /* servers repeat commands that they do not know */
    rn_redis_url_show(link->url, where, sizeof where);
    rn_error_set(&link->error, RUNNEL_IO, "the shared cache at %s: %s", where, why);
}

void rn_redis_link_drop(struct rn_redis_link *link, const char *why)
{
    if (link->state == RN_REDIS_DOWN)
        return;
    rn_redis_link_complain(link, why);
    link->losses += link->state == RN_REDIS_UP;
    clear(link);
    link->was_tried = true;
    link->next_try_us = rn_now_us(&link->clock) + link->wait_us;
    link->wait_us = 2 * link->wait_us < LONGEST_WAIT_US ? 2 * link->wait_us : LONGEST_WAIT_US;
}

bool rn_redis_link_would(const struct rn_redis_link *link)
{
    return link->state != RN_REDIS_DOWN || rn_now_us(&link->clock) >= link->next_try_us;
}

/* ---- Bytes ---- */

/* True: there is something to do before the deadline. */
static bool wait_for(struct rn_redis_link *link, enum rn_redis_io io)
{
    struct pollfd wait = {.fd = link->wire.fd, .events = io == RN_REDIS_READ ? POLLIN : POLLOUT};

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
        size_t sent = 0;
        enum rn_redis_io io = rn_redis_wire_send(&link->wire, bytes, n, &sent);

        if (io == RN_REDIS_LOST) {
            rn_redis_link_drop(link, link->wire.why);
            return false;
        }
        if (io != RN_REDIS_DONE && !wait_for(link, io))
            return false;
        bytes += sent;
        n -= sent;
        link->bytes_out += sent;
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
    if (link->state != RN_REDIS_UP)
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

/* A TLS server closes a connection on which a plain word comes first. */
static const char *why_lost(struct rn_redis_link *link)
{
    size_t n = strlen(link->wire.why);

    if (link->state == RN_REDIS_ENTERS && !link->url->tls && link->url->path == NULL && link->n_entered == 0)
        snprintf(link->wire.why + n, sizeof link->wire.why - n, " (perhaps it wants TLS: rediss://)");
    return link->wire.why;
}

enum rn_redis_io rn_redis_link_receive(struct rn_redis_link *link)
{
    char piece[PIECE_BYTES];
    size_t got = 0;
    enum rn_redis_io io = rn_redis_wire_receive(&link->wire, piece, sizeof piece, &got);

    if (io == RN_REDIS_LOST) {
        rn_redis_link_drop(link, why_lost(link));
    } else if (io == RN_REDIS_DONE) {
        link->bytes_in += got;
        if (redisReaderFeed(link->reader, piece, got) == REDIS_OK)
            return io;
        rn_redis_link_drop(link, link->reader->errstr);
        return RN_REDIS_LOST;
    }
    return io;
}

bool rn_redis_link_take(struct rn_redis_link *link, struct redisReply **reply)
{
    void *taken = NULL;

    *reply = NULL;
    if (redisReaderGetReply(link->reader, &taken) != REDIS_OK) {
        rn_redis_link_drop(link, link->reader->errstr);
        return false;
    }
    *reply = taken;
    return true;
}

/* What is there is taken, however late it is; only then the time counts. */
struct redisReply *rn_redis_link_answer(struct rn_redis_link *link)
{
    struct redisReply *reply = NULL;

    while (link->state == RN_REDIS_UP) {
        enum rn_redis_io io;

        if (!rn_redis_link_take(link, &reply) || reply != NULL)
            return reply;
        io = rn_redis_link_receive(link);
        if (io == RN_REDIS_LOST || (io != RN_REDIS_DONE && !wait_for(link, io)))
            return NULL;
        if (io == RN_REDIS_DONE && rn_now_us(&link->clock) >= link->deadline_us + (uint64_t)link->command_ms * 1000)
            rn_redis_link_drop(link, "an answer without an end");
    }
    return NULL;
}

bool rn_redis_link_begin(struct rn_redis_link *link)
{
    if (link->state != RN_REDIS_UP && rn_redis_link_would(link))
        rn_redis_enter(link);
    link->deadline_us = rn_now_us(&link->clock) + (uint64_t)link->command_ms * 1000;
    return link->state == RN_REDIS_UP;
}
