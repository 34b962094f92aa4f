/* The line to a server: a TCP connection to the first address of several that takes it, or one to a socket of this
 * machine (connection attempt); then bytes to and from it, in the plain or by TLS (wire). Nothing here waits, and no
 * SIGPIPE is raised.
 *
 *   0 ms    the first address is asked
 *   50 ms   not yet there: the second, too; the others likewise, at once where one refuses
 *           whichever is there first is taken, the others are closed          (the idea is RFC 8305's)
 *
 * One owner, any thread. Only rn_redis_connect_begin may block: where a name has to be looked up, for as long as the
 * resolver takes. */
#ifndef RN_CACHE_STORE_REDIS_WIRE_H
#define RN_CACHE_STORE_REDIS_WIRE_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "cache/store/redis_tls.h"
#include "cache/store/redis_url.h"

#define RN_REDIS_MAX_CONNECTING 8u /* addresses; names have one or two, seldom more */

struct addrinfo;

struct rn_redis_connect {
    struct addrinfo *found;      /* of the resolver; NULL: none */
    const struct addrinfo *next; /* to be asked; NULL: all have been */
    struct sockaddr_un local;
    struct pollfd asked[RN_REDIS_MAX_CONNECTING]; /* [n] */
    unsigned n, n_tried;
    uint64_t next_at_us;
    char why[160]; /* the last failure; "": none */
};

/* Looks the name up. False: why. To be ended in either case. */
bool rn_redis_connect_begin(struct rn_redis_connect *connecting, const struct rn_redis_url *url);

/* The same with addresses that are known; borrowed until the end. */
void rn_redis_connect_begin_with(struct rn_redis_connect *connecting, const struct addrinfo *addresses);

/* Goes on without waiting. DONE: *fd is connected, does not block, and is the caller's. WRITE: wait until one of
 * `asked` can be written or, if `next` is not NULL, next_at_us has come. LOST: why. */
enum rn_redis_io rn_redis_connect_step(struct rn_redis_connect *connecting, uint64_t now_us, int *fd);

/* Closes what is open. */
void rn_redis_connect_end(struct rn_redis_connect *connecting);

/* ---- Bytes ---- */

struct rn_redis_wire {
    int fd;                   /* -1: none */
    struct rn_redis_tls *tls; /* NULL: in the plain */
    char why[160];
};

/* Takes over the connected socket fd. */
void rn_redis_wire_open(struct rn_redis_wire *wire, int fd);
void rn_redis_wire_close(struct rn_redis_wire *wire);

/* DONE: *sent of n bytes, 1 at least. LOST, here and below: `why`. */
enum rn_redis_io rn_redis_wire_send(struct rn_redis_wire *wire, const char *bytes, size_t n, size_t *sent);

/* DONE: *got bytes, at most n, 1 at least; to be called until it says READ before anybody waits for more. */
enum rn_redis_io rn_redis_wire_receive(struct rn_redis_wire *wire, char *bytes, size_t n, size_t *got);

#endif
