/* How a link comes up: see redis_link.h. For the link's own two files. */
#ifndef RN_CACHE_STORE_REDIS_ENTER_H
#define RN_CACHE_STORE_REDIS_ENTER_H

#include "cache/store/redis_link.h"

/* Begins to connect, or goes on with it, and waits for that as long as may be. Afterwards the link is up, down with its
 * error told, or still on its way. */
void rn_redis_enter(struct rn_redis_link *link);

/* Takes what the server has sent, some kilobytes at most, for the reader. LOST: the link is down. */
enum rn_redis_io rn_redis_link_receive(struct rn_redis_link *link);

/* *reply: the next answer that is whole; NULL: more bytes are needed. False: the link is down. */
bool rn_redis_link_take(struct rn_redis_link *link, struct redisReply **reply);

#endif
