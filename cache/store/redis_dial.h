/* A TCP connection to the first address of several that takes it, or one to a socket of this machine; nothing here
 * waits.
 *
 *   0 ms    the first address is asked
 *   50 ms   not yet there: the second, too; the others likewise, at once where one refuses
 *           whichever is there first is taken, the others are closed          (the idea is RFC 8305's)
 *
 * One owner, any thread. Only begin may block: where a name has to be looked up, for as long as the resolver takes. */
#ifndef RN_CACHE_STORE_REDIS_DIAL_H
#define RN_CACHE_STORE_REDIS_DIAL_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "cache/store/redis_io.h"
#include "cache/store/redis_url.h"

#define RN_REDIS_MOST_DIALED 8u /* addresses; names have one or two, seldom more */

struct addrinfo;

struct rn_redis_dial {
    struct addrinfo *found;      /* of the resolver; NULL: none */
    const struct addrinfo *next; /* to be asked; NULL: all have been */
    struct sockaddr_un local;
    struct pollfd asked[RN_REDIS_MOST_DIALED]; /* [n] */
    unsigned n, n_tried;
    uint64_t next_at_us;
    char why[160]; /* the last failure; "": none */
};

/* Looks the name up. False: why. To be ended in either case. */
bool rn_redis_dial_begin(struct rn_redis_dial *dial, const struct rn_redis_url *url);

/* The same with addresses that are known; borrowed until the end. */
void rn_redis_dial_begin_with(struct rn_redis_dial *dial, const struct addrinfo *addresses);

/* Goes on without waiting. DONE: *fd is connected, does not block, and is the caller's. WRITE: wait until one of `asked`
 * can be written or, if `next` is not NULL, next_at_us has come. LOST: why. */
enum rn_redis_io rn_redis_dial_step(struct rn_redis_dial *dial, uint64_t now_us, int *fd);

/* Closes what is open. */
void rn_redis_dial_end(struct rn_redis_dial *dial);

#endif
