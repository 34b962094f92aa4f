/* See redis_link.h. While it comes up, a step for each state does what can be done without waiting; what it needs then
 * is polled for, as long as this call may. AUTH, SELECT and PING go in one piece: a server that says why it does not
 * want us and closes is then heard, since nothing more is sent to it. */
#define _GNU_SOURCE /* memmem */
#include "cache/store/redis_link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include "base/check.h"

#define LONGEST_WAIT_US 60000000u
#define PIECE_BYTES 16384u
#define TOO_LONG "an answer longer than any that was asked for"
#define PASSWORD_PIECE 8u /* so much of a password is not told */
#define BESIDE_MS 50u     /* an engine that runs waits so long for a connection made anew: a few trips on a LAN */
#define ALLOWED_MS 5000u  /* and gives it so long: a step each half second, with the looks for news, on a far way */

#define ELEMENT_BYTES 4u /* the shortest: "*0\r\n" */

#if HIREDIS_MAJOR < 1
typedef int array_count;
#else
typedef size_t array_count;
#endif

/* hiredis takes memory for as many elements as a server says that an array has, before they come. */
struct rn_redis_arrays {
    redisReplyObjectFunctions functions;  /* the reader's */
    const redisReplyObjectFunctions *own; /* hiredis' */
    size_t most;
    bool refused;
};

static void *create_array(const redisReadTask *task, array_count n)
{
    struct rn_redis_arrays *arrays = task->privdata;

    arrays->refused |= (size_t)n > arrays->most;
    return arrays->refused ? NULL : arrays->own->createArray(task, n);
}

static bool make_reader(struct rn_redis_link *link)
{
    link->arrays = rn_alloc(link->url->heap, 1, sizeof *link->arrays);
    link->reader = link->arrays == NULL ? NULL : redisReaderCreate();
    if (link->reader == NULL)
        return false;
    *link->arrays = (struct rn_redis_arrays){
        .functions = *link->reader->fn, .own = link->reader->fn, .most = link->most_bytes / ELEMENT_BYTES};
    link->arrays->functions.createArray = create_array;
    link->reader->fn = &link->arrays->functions;
    link->reader->privdata = link->arrays;
    return true;
}

void rn_redis_link_init(struct rn_redis_link *link, const struct rn_redis_url *url,
                        const struct rn_redis_tls_files *files, struct rn_clock clock, uint32_t connect_ms,
                        uint32_t command_ms, uint32_t retry_ms, size_t most_bytes)
{
    *link = (struct rn_redis_link){.url = url,
                                   .files = *files,
                                   .clock = clock,
                                   .connect_ms = connect_ms,
                                   .command_ms = command_ms,
                                   .retry_ms = retry_ms,
                                   .wait_us = (uint64_t)retry_ms * 1000,
                                   .most_bytes = most_bytes,
                                   .wire = {.fd = -1}};
}

/* Whatever there is of a connection goes. */
static void clear(struct rn_redis_link *link)
{
    rn_redis_connect_end(&link->connecting);
    rn_redis_wire_close(&link->wire);
    if (link->reader != NULL)
        redisReaderFree(link->reader);
    rn_free(link->url->heap, link->arrays);
    rn_free(link->url->heap, link->entry);
    link->reader = NULL;
    link->arrays = NULL;
    link->entry = NULL;
    link->state = RN_REDIS_DOWN;
}

void rn_redis_link_fini(struct rn_redis_link *link)
{
    if (link->url != NULL)
        clear(link);
}

/* Servers repeat commands that they do not know, and cut what is long. */
static bool tells_password(const char *why, const char *password)
{
    size_t n = strlen(password), piece = n < PASSWORD_PIECE ? n : PASSWORD_PIECE, length = strlen(why);

    RN_ASSERT(n > 0);
    for (size_t at = 0; at + piece <= n; at++)
        if (memmem(why, length, password + at, piece) != NULL)
            return true;
    return false;
}

void rn_redis_link_complain(struct rn_redis_link *link, const char *why)
{
    const char *password = link->url->password;
    char where[128];

    if (link->has_error)
        return;
    link->has_error = true;
    if (password != NULL && tells_password(why, password))
        why = "an error with the password in it";
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
    RN_ASSERT(rn_redis_link_check(link));
}

bool rn_redis_link_would(const struct rn_redis_link *link)
{
    return link->state != RN_REDIS_DOWN || rn_now_us(&link->clock) >= link->next_try_us;
}

bool rn_redis_link_check(const struct rn_redis_link *link)
{
    bool connected = link->state > RN_REDIS_CONNECTING, reads = link->state > RN_REDIS_HANDSHAKE;

    return (link->wire.fd >= 0) == connected && (link->reader != NULL) == reads &&
           (connected || link->wire.tls == NULL) && (link->entry != NULL) == (link->state == RN_REDIS_ENTERS) &&
           (link->entry == NULL || (link->entry_sent <= link->entry_bytes && link->n_entered <= link->n_entries)) &&
           link->connecting.n <= RN_REDIS_MAX_CONNECTING &&
           (link->state == RN_REDIS_CONNECTING || link->connecting.n == 0) && link->losses <= link->connections;
}

/* ---- Bytes ---- */

/* True: there is something to do before the deadline. */
static bool wait_for(struct rn_redis_link *link, enum rn_redis_io io)
{
    struct pollfd wait = {.fd = link->wire.fd, .events = io == RN_REDIS_READ ? POLLIN : POLLOUT};

    RN_ASSERT(wait.fd >= 0 && (io == RN_REDIS_READ || io == RN_REDIS_WRITE));
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
        RN_CHECK(sent <= n && (io != RN_REDIS_DONE || sent > 0));
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

/* Takes what the server has sent, some kilobytes at most, for the reader. LOST: the link is down. */
static enum rn_redis_io receive(struct rn_redis_link *link)
{
    char piece[PIECE_BYTES];
    size_t got = 0;
    enum rn_redis_io io = rn_redis_wire_receive(&link->wire, piece, sizeof piece, &got);

    if (io == RN_REDIS_LOST) {
        rn_redis_link_drop(link, why_lost(link));
    } else if (io == RN_REDIS_DONE) {
        RN_CHECK(got > 0 && got <= sizeof piece);
        link->bytes_in += got;
        link->unfinished += got;
        if (link->unfinished > link->most_bytes) {
            rn_redis_link_drop(link, TOO_LONG);
            return RN_REDIS_LOST;
        }
        if (redisReaderFeed(link->reader, piece, got) == REDIS_OK)
            return io;
        rn_redis_link_drop(link, link->reader->errstr);
        return RN_REDIS_LOST;
    }
    return io;
}

/* *reply: the next answer that is whole; NULL: more bytes are needed. False: the link is down. */
static bool take(struct rn_redis_link *link, struct redisReply **reply)
{
    void *taken = NULL;

    *reply = NULL;
    if (redisReaderGetReply(link->reader, &taken) != REDIS_OK) {
        rn_redis_link_drop(link, link->arrays->refused ? TOO_LONG : link->reader->errstr);
        return false;
    }
    *reply = taken;
    if (taken != NULL)
        link->unfinished = link->reader->len - link->reader->pos;
    return true;
}

/* What is there is taken, however late it is; only then the time counts. */
struct redisReply *rn_redis_link_answer(struct rn_redis_link *link)
{
    struct redisReply *reply = NULL;

    while (link->state == RN_REDIS_UP) {
        enum rn_redis_io io;

        if (!take(link, &reply) || reply != NULL)
            return reply;
        io = receive(link);
        if (io == RN_REDIS_LOST || (io != RN_REDIS_DONE && !wait_for(link, io)))
            return NULL;
        if (io == RN_REDIS_DONE && rn_now_us(&link->clock) >= link->deadline_us + (uint64_t)link->command_ms * 1000)
            rn_redis_link_drop(link, "an answer without an end");
    }
    return NULL;
}

/* ---- Coming up, step by step ---- */

static enum rn_redis_io begin(struct rn_redis_link *link)
{
    uint64_t now;

    RN_ASSERT(rn_redis_link_check(link));
    link->state = RN_REDIS_CONNECTING;
    if (!rn_redis_connect_begin(&link->connecting, link->url)) {
        rn_redis_link_drop(link, link->connecting.why);
        return RN_REDIS_LOST;
    }
    now = rn_now_us(&link->clock); /* a name may have taken its time */
    link->made_by_us = now + ((uint64_t)link->connect_ms + link->command_ms) * 1000;
    link->stays_until_us = link->made_by_us;
    if (link->was_tried) {
        link->stays_until_us = now + BESIDE_MS * 1000;
        link->made_by_us = now + ALLOWED_MS * 1000;
    }
    return RN_REDIS_DONE;
}

/* Appends a command to the entry. */
static bool add(struct rn_redis_link *link, unsigned n, const char *const *words)
{
    const char *list[3];
    size_t bytes[3];
    char *command = NULL, *entry;
    int length;

    RN_CHECK(n > 0 && n <= 3);
    for (unsigned i = 0; i < n; i++) {
        list[i] = words[i];
        bytes[i] = strlen(words[i]);
    }
    length = redisFormatCommandArgv(&command, (int)n, list, bytes);
    if (length < 0)
        return false;
    entry = rn_realloc(link->url->heap, link->entry, link->entry_bytes + (size_t)length, 1);
    if (entry != NULL) {
        memcpy(entry + link->entry_bytes, command, (size_t)length);
        link->entry = entry;
        link->entry_bytes += (size_t)length;
        link->n_entries++;
    }
    redisFreeCommand(command);
    return entry != NULL;
}

static bool write_entry(struct rn_redis_link *link)
{
    const struct rn_redis_url *url = link->url;
    char database[16];

    RN_ASSERT(link->entry == NULL);
    link->entry_bytes = link->entry_sent = 0;
    link->n_entered = link->n_entries = 0;
    snprintf(database, sizeof database, "%u", (unsigned)url->database);
    if (url->password != NULL && url->user != NULL &&
        !add(link, 3, (const char *const[]){"AUTH", url->user, url->password}))
        return false;
    if (url->password != NULL && url->user == NULL && !add(link, 2, (const char *const[]){"AUTH", url->password}))
        return false;
    if (url->database != 0 && !add(link, 2, (const char *const[]){"SELECT", database}))
        return false;
    return add(link, 1, (const char *const[]){"PING"});
}

static enum rn_redis_io refuse(struct rn_redis_link *link, const char *why)
{
    rn_redis_link_drop(link, why);
    return RN_REDIS_LOST;
}

static enum rn_redis_io connecting(struct rn_redis_link *link)
{
    char why[160];
    int fd;
    enum rn_redis_io io = rn_redis_connect_step(&link->connecting, rn_now_us(&link->clock), &fd);

    if (io != RN_REDIS_DONE)
        return io == RN_REDIS_LOST ? refuse(link, link->connecting.why) : io;
    RN_ASSERT(fd >= 0 && link->wire.fd < 0 && link->wire.tls == NULL);
    rn_redis_connect_end(&link->connecting);
    rn_redis_wire_open(&link->wire, fd);
    link->state = RN_REDIS_HANDSHAKE;
    if (!link->url->tls)
        return RN_REDIS_DONE;
    link->wire.tls = rn_redis_tls_new(link->url->heap, fd, link->url->host, &link->files, why, sizeof why);
    return link->wire.tls != NULL ? RN_REDIS_DONE : refuse(link, why);
}

static enum rn_redis_io handshake(struct rn_redis_link *link)
{
    enum rn_redis_io io = link->wire.tls == NULL ? RN_REDIS_DONE : rn_redis_tls_handshake(link->wire.tls);

    if (io == RN_REDIS_LOST)
        return refuse(link, rn_redis_tls_why(link->wire.tls));
    if (io != RN_REDIS_DONE)
        return io;
    RN_ASSERT(link->reader == NULL && link->wire.fd >= 0);
    link->unfinished = 0;
    if (!make_reader(link) || !write_entry(link))
        return refuse(link, "no memory for a connection");
    link->state = RN_REDIS_ENTERS;
    return RN_REDIS_DONE;
}

static enum rn_redis_io send_entry(struct rn_redis_link *link)
{
    size_t sent = 0;
    enum rn_redis_io io =
        rn_redis_wire_send(&link->wire, link->entry + link->entry_sent, link->entry_bytes - link->entry_sent, &sent);

    RN_ASSERT(sent <= link->entry_bytes - link->entry_sent);
    link->entry_sent += sent;
    link->bytes_out += sent;
    return io == RN_REDIS_LOST ? refuse(link, link->wire.why) : io;
}

/* What was sent must be answered with a status each. */
static enum rn_redis_io hear_entry(struct rn_redis_link *link)
{
    struct redisReply *reply;
    bool good;

    if (!take(link, &reply))
        return RN_REDIS_LOST;
    if (reply == NULL)
        return receive(link);
    good = reply->type == REDIS_REPLY_STATUS;
    if (!good)
        rn_redis_link_drop(link, reply->type == REDIS_REPLY_ERROR ? reply->str : "this is no Redis server");
    freeReplyObject(reply);
    link->n_entered += good;
    return good ? RN_REDIS_DONE : RN_REDIS_LOST;
}

static enum rn_redis_io enter(struct rn_redis_link *link)
{
    RN_ASSERT(rn_redis_link_check(link) && link->state == RN_REDIS_ENTERS);
    if (link->entry_sent < link->entry_bytes)
        return send_entry(link);
    if (link->n_entered < link->n_entries)
        return hear_entry(link);
    rn_free(link->url->heap, link->entry);
    link->entry = NULL;
    link->state = RN_REDIS_UP;
    link->was_tried = true;
    link->wait_us = (uint64_t)link->retry_ms * 1000;
    link->connections++;
    return RN_REDIS_DONE;
}

/* ---- All of them ---- */

static enum rn_redis_io step(struct rn_redis_link *link)
{
    switch (link->state) {
    case RN_REDIS_DOWN:
        return begin(link);
    case RN_REDIS_CONNECTING:
        return connecting(link);
    case RN_REDIS_HANDSHAKE:
        return handshake(link);
    default:
        return enter(link);
    }
}

static const char *too_late(const struct rn_redis_link *link)
{
    if (link->state == RN_REDIS_CONNECTING)
        return link->connecting.why[0] != '\0' ? link->connecting.why : "it cannot be reached in time";
    return link->state == RN_REDIS_HANDSHAKE ? "TLS: no answer in time (a server without TLS?)" : "no answer in time";
}

/* False: this call may wait no longer. */
static bool wait_to_enter(struct rn_redis_link *link, enum rn_redis_io io)
{
    struct pollfd one = {.fd = link->wire.fd, .events = io == RN_REDIS_READ ? POLLIN : POLLOUT};
    bool dials = link->state == RN_REDIS_CONNECTING;
    uint64_t now = rn_now_us(&link->clock), until = link->made_by_us;

    if (now >= link->made_by_us) {
        rn_redis_link_drop(link, too_late(link));
        return false;
    }
    if (now >= link->stays_until_us)
        return false;
    until = link->stays_until_us < until ? link->stays_until_us : until;
    if (dials && link->connecting.next != NULL && link->connecting.next_at_us < until)
        until = link->connecting.next_at_us > now ? link->connecting.next_at_us : now;
    poll(dials ? link->connecting.asked : &one, dials ? link->connecting.n : 1, (int)((until - now + 999) / 1000));
    return true;
}

/* Bytes come, and no answer is ever whole. */
static bool is_flooded(const struct rn_redis_link *link)
{
    return link->state == RN_REDIS_ENTERS &&
           rn_now_us(&link->clock) >= link->made_by_us + (uint64_t)link->command_ms * 1000;
}

/* Begins to connect, or goes on with it, and waits for that as long as may be. Afterwards the link is up, down with its
 * error told, or still on its way. */
static void come_up(struct rn_redis_link *link)
{
    enum rn_redis_io io = RN_REDIS_DONE;

    while (io != RN_REDIS_LOST && link->state != RN_REDIS_UP) {
        io = step(link);
        if ((io == RN_REDIS_READ || io == RN_REDIS_WRITE) && !wait_to_enter(link, io))
            return;
        if (io == RN_REDIS_DONE && is_flooded(link))
            io = refuse(link, "an answer without an end");
    }
}

bool rn_redis_link_begin(struct rn_redis_link *link)
{
    if (link->state != RN_REDIS_UP && rn_redis_link_would(link))
        come_up(link);
    RN_ASSERT(rn_redis_link_check(link));
    link->deadline_us = rn_now_us(&link->clock) + (uint64_t)link->command_ms * 1000;
    return link->state == RN_REDIS_UP;
}
