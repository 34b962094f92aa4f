/* A connection to a Redis server that may be away, hang or talk nonsense: commands out, answers in, each within a time;
 * whatever goes wrong gives the connection up, and it is made again after a while. hiredis makes the connection and knows
 * the protocol; bytes are moved here, so that a time is kept whatever the other side does and no SIGPIPE is raised.
 *
 * One owner, any thread; calls block for as long as they are told. */
#ifndef RN_CACHE_REDIS_LINK_H
#define RN_CACHE_REDIS_LINK_H

#include <stdbool.h>

#include "base/clock.h"
#include "cache/redis_url.h"

struct redisContext;
struct redisReply;

#define RN_REDIS_MOST_ARGUMENTS 8u

struct rn_redis_link {
    const struct rn_redis_url *url;
    struct rn_clock clock;
    uint32_t connect_ms, command_ms, retry_ms;
    struct redisContext *context; /* NULL: down */
    uint64_t next_try_us, wait_us;
    uint64_t deadline_us;         /* of the answers that are waited for */
    uint64_t connections, losses, bytes_in, bytes_out;
    bool has_error, told_error;
    runnel_error error;           /* the first */
};

void rn_redis_link_init(struct rn_redis_link *link, const struct rn_redis_url *url, struct rn_clock clock,
                        uint32_t connect_ms, uint32_t command_ms, uint32_t retry_ms);
void rn_redis_link_fini(struct rn_redis_link *link);

/* True: up, perhaps by a new connection, and command_ms from now on for what follows. */
bool rn_redis_link_begin(struct rn_redis_link *link);

/* True: begin would not refuse for want of time to have passed. */
bool rn_redis_link_would(const struct rn_redis_link *link);

/* A command of n arguments. False: the link is down. */
bool rn_redis_link_send(struct rn_redis_link *link, unsigned n, const char *const *arguments, const size_t *bytes);

/* The answer to the oldest command without one: freeReplyObject's. NULL: the link is down. */
struct redisReply *rn_redis_link_answer(struct rn_redis_link *link);

/* The other side is not to be trusted any more. */
void rn_redis_link_drop(struct rn_redis_link *link, const char *why);

/* Keeps the first error for the store. */
void rn_redis_link_complain(struct rn_redis_link *link, const char *why);

#endif
