/* Bytes to and from a server, in the plain or by TLS; nothing here waits, and no SIGPIPE is raised.
 *
 * One owner, any thread. */
#ifndef RN_CACHE_STORE_REDIS_WIRE_H
#define RN_CACHE_STORE_REDIS_WIRE_H

#include "cache/store/redis_tls.h"

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
