/* A connection to a Redis server that may be away, hang or talk nonsense: commands out, answers in, each within a time;
 * whatever goes wrong gives the connection up, and it is made again after a while.
 *
 *   DOWN ──begin, when its time has come──▶ DIALS ──▶ GREETS ──▶ ENTERS ──▶ UP
 *     ▲                                  (connects)   (TLS)   AUTH, SELECT, PING
 *     └── whatever goes wrong; not again before 1 s, 2 s, 4 s ... 60 s have passed
 *
 * The first time begin waits until it is up, or has failed. Later it waits for 50 ms and then goes on with its caller's
 * work, as if the server were away; each begin takes it a step further, for five seconds at most. So a server that
 * hangs in a handshake costs a running engine 50 ms once for each attempt. hiredis knows the protocol; sockets, times
 * and TLS are ours (docs/RATIONALE.md).
 *
 * One owner, any thread; calls block for as long as they are told. */
#ifndef RN_CACHE_STORE_REDIS_LINK_H
#define RN_CACHE_STORE_REDIS_LINK_H

#include <stdbool.h>

#include "base/clock.h"
#include "cache/store/redis_wire.h"

struct redisReader;
struct redisReply;

#define RN_REDIS_MOST_ARGUMENTS 8u

enum rn_redis_state { RN_REDIS_DOWN, RN_REDIS_CONNECTING, RN_REDIS_HANDSHAKE, RN_REDIS_ENTERS, RN_REDIS_UP };

struct rn_redis_link {
    const struct rn_redis_url *url;
    struct rn_redis_tls_files files;
    struct rn_clock clock;
    uint32_t connect_ms, command_ms, retry_ms;
    enum rn_redis_state state;
    struct rn_redis_connect connecting; /* DIALS */
    struct rn_redis_wire wire;          /* from GREETS on */
    struct redisReader *reader;         /* from ENTERS on: puts answers together */
    struct rn_redis_arrays *arrays;     /* with the reader: how many elements it may take memory for */
    char *entry;                        /* ENTERS: the commands [entry_bytes], of which entry_sent are gone */
    size_t entry_bytes, entry_sent;
    size_t most_bytes, unfinished; /* of an answer; bytes that have come of one that is not whole */
    unsigned n_entered, n_entries; /* answers to them that have come, of how many */
    bool was_tried;                /* an attempt has ended, well or not */
    uint64_t next_try_us, wait_us;
    uint64_t made_by_us;                               /* the attempt has failed if it is not up by then */
    uint64_t stays_until_us;                           /* how long begin waits for it */
    uint64_t deadline_us;                              /* of the answers that are waited for */
    uint64_t connections, losses, bytes_in, bytes_out; /* connections: that were up */
    bool has_error, error_reported;
    runnel_error error; /* the first */
};

/* url, and what files names, are borrowed. connect_ms + command_ms: for the first connection; command_ms: for an
 * answer; most_bytes: of one, some kilobytes more than the longest that is good. */
void rn_redis_link_init(struct rn_redis_link *link, const struct rn_redis_url *url,
                        const struct rn_redis_tls_files *files, struct rn_clock clock, uint32_t connect_ms,
                        uint32_t command_ms, uint32_t retry_ms, size_t most_bytes);
void rn_redis_link_fini(struct rn_redis_link *link);

/* True: up, perhaps by a new connection, and command_ms from now on for what follows. */
bool rn_redis_link_begin(struct rn_redis_link *link);

static inline bool rn_redis_link_is_up(const struct rn_redis_link *link)
{
    return link->state == RN_REDIS_UP;
}

/* True: it has what its state says, and no more. Between two calls. For tests. */
bool rn_redis_link_check(const struct rn_redis_link *link);

/* True: begin would not refuse for want of time to have passed. */
bool rn_redis_link_would(const struct rn_redis_link *link);

/* A command of n arguments. False: the link is down. */
bool rn_redis_link_send(struct rn_redis_link *link, unsigned n, const char *const *arguments, const size_t *bytes);

/* The answer to the oldest command without one: freeReplyObject's. NULL: the link is down. */
struct redisReply *rn_redis_link_answer(struct rn_redis_link *link);

/* The other side is not to be trusted any more. */
void rn_redis_link_drop(struct rn_redis_link *link, const char *why);

/* Keeps the first error for the store. What has the password in it, or eight bytes of it in a row, is not repeated. */
void rn_redis_link_complain(struct rn_redis_link *link, const char *why);

#endif
