/* See redis_enter.h. A step for each state does what can be done without waiting; what it needs then is polled for, as
 * long as this call may. AUTH, SELECT and PING go in one piece: a server that says why it does not want us and closes
 * is then heard, since nothing more is sent to it. */
#include "cache/store/redis_enter.h"

#include <stdio.h>
#include <string.h>

#include <hiredis/hiredis.h>

#define BESIDE_MS 50u /* an engine that runs waits so long for a connection that is made anew: a few trips on a LAN */
#define ALLOWED_MS \
    5000u /* and gives it so long: a step each half second, with the mover's looks for news, on a far way */

/* ---- Steps ---- */

static enum rn_redis_io begin(struct rn_redis_link *link)
{
    uint64_t now;

    link->state = RN_REDIS_DIALS;
    if (!rn_redis_dial_begin(&link->dial, link->url)) {
        rn_redis_link_drop(link, link->dial.why);
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

static enum rn_redis_io dial(struct rn_redis_link *link)
{
    char why[160];
    int fd;
    enum rn_redis_io io = rn_redis_dial_step(&link->dial, rn_now_us(&link->clock), &fd);

    if (io != RN_REDIS_DONE)
        return io == RN_REDIS_LOST ? refuse(link, link->dial.why) : io;
    rn_redis_dial_end(&link->dial);
    rn_redis_wire_open(&link->wire, fd);
    link->state = RN_REDIS_GREETS;
    if (!link->url->tls)
        return RN_REDIS_DONE;
    link->wire.tls = rn_redis_tls_new(link->url->heap, fd, link->url->host, &link->files, why, sizeof why);
    return link->wire.tls != NULL ? RN_REDIS_DONE : refuse(link, why);
}

static enum rn_redis_io greet(struct rn_redis_link *link)
{
    enum rn_redis_io io = link->wire.tls == NULL ? RN_REDIS_DONE : rn_redis_tls_greet(link->wire.tls);

    if (io == RN_REDIS_LOST)
        return refuse(link, rn_redis_tls_why(link->wire.tls));
    if (io != RN_REDIS_DONE)
        return io;
    link->reader = redisReaderCreate();
    if (link->reader == NULL || !write_entry(link))
        return refuse(link, "no memory for a connection");
    link->state = RN_REDIS_ENTERS;
    return RN_REDIS_DONE;
}

static enum rn_redis_io send_entry(struct rn_redis_link *link)
{
    size_t sent = 0;
    enum rn_redis_io io =
        rn_redis_wire_send(&link->wire, link->entry + link->entry_sent, link->entry_bytes - link->entry_sent, &sent);

    link->entry_sent += sent;
    link->bytes_out += sent;
    return io == RN_REDIS_LOST ? refuse(link, link->wire.why) : io;
}

/* What was sent must be answered with a status each. */
static enum rn_redis_io hear_entry(struct rn_redis_link *link)
{
    struct redisReply *reply;
    bool good;

    if (!rn_redis_link_take(link, &reply))
        return RN_REDIS_LOST;
    if (reply == NULL)
        return rn_redis_link_receive(link);
    good = reply->type == REDIS_REPLY_STATUS;
    if (!good)
        rn_redis_link_drop(link, reply->type == REDIS_REPLY_ERROR ? reply->str : "this is no Redis server");
    freeReplyObject(reply);
    link->n_entered += good;
    return good ? RN_REDIS_DONE : RN_REDIS_LOST;
}

static enum rn_redis_io enter(struct rn_redis_link *link)
{
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
    case RN_REDIS_DIALS:
        return dial(link);
    case RN_REDIS_GREETS:
        return greet(link);
    default:
        return enter(link);
    }
}

static const char *too_late(const struct rn_redis_link *link)
{
    if (link->state == RN_REDIS_DIALS)
        return link->dial.why[0] != '\0' ? link->dial.why : "it cannot be reached in time";
    return link->state == RN_REDIS_GREETS ? "TLS: no answer in time (a server without TLS?)" : "no answer in time";
}

/* False: this call may wait no longer. */
static bool wait_for(struct rn_redis_link *link, enum rn_redis_io io)
{
    struct pollfd one = {.fd = link->wire.fd, .events = io == RN_REDIS_READ ? POLLIN : POLLOUT};
    bool dials = link->state == RN_REDIS_DIALS;
    uint64_t now = rn_now_us(&link->clock), until = link->made_by_us;

    if (now >= link->made_by_us) {
        rn_redis_link_drop(link, too_late(link));
        return false;
    }
    if (now >= link->stays_until_us)
        return false;
    until = link->stays_until_us < until ? link->stays_until_us : until;
    if (dials && link->dial.next != NULL && link->dial.next_at_us < until)
        until = link->dial.next_at_us > now ? link->dial.next_at_us : now;
    poll(dials ? link->dial.asked : &one, dials ? link->dial.n : 1, (int)((until - now + 999) / 1000));
    return true;
}

/* Bytes come, and no answer is ever whole. */
static bool is_flooded(const struct rn_redis_link *link)
{
    return link->state == RN_REDIS_ENTERS &&
           rn_now_us(&link->clock) >= link->made_by_us + (uint64_t)link->command_ms * 1000;
}

void rn_redis_enter(struct rn_redis_link *link)
{
    enum rn_redis_io io = RN_REDIS_DONE;

    while (io != RN_REDIS_LOST && link->state != RN_REDIS_UP) {
        io = step(link);
        if ((io == RN_REDIS_READ || io == RN_REDIS_WRITE) && !wait_for(link, io))
            return;
        if (io == RN_REDIS_DONE && is_flooded(link))
            io = refuse(link, "an answer without an end");
    }
}
