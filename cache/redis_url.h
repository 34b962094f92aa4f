/* Where a Redis server is, and how it is entered:
 *
 *   redis://[[user]:password@]host[:port][/database][?ttl=SECONDS]      an IPv6 host in brackets; port 6379
 *   unix:/path/of/a/socket[?ttl=SECONDS]                                or unix:///path
 *
 * %XX stands for a byte in user, password and path. ttl: how long the server keeps what is put there. Pure functions:
 * any thread. */
#ifndef RN_CACHE_REDIS_URL_H
#define RN_CACHE_REDIS_URL_H

#include "base/alloc.h"
#include "base/status.h"

struct rn_redis_url {
    struct rn_heap *heap;
    char *text;               /* what the others point into */
    const char *host, *path;  /* one of them; the other is NULL */
    const char *user, *password; /* NULL: none */
    uint32_t port, database;
    uint64_t ttl_s;           /* 0: for ever */
};

/* INVALID names what is wrong, without the password. UNSUPPORTED: rediss://, which is TLS. NO_MEMORY. Nothing is held
 * then. */
runnel_status rn_redis_url_parse(struct rn_redis_url *url, struct rn_heap *heap, const char *text, runnel_error *error);
void rn_redis_url_fini(struct rn_redis_url *url);

/* "host:port" or the path, for messages. [n] */
void rn_redis_url_show(const struct rn_redis_url *url, char *text, size_t n);

#endif
