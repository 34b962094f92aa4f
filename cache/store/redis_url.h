/* Where a Redis server is, and how it is entered:
 *
 *   redis://[[user]:password@]host[:port][/database][?QUERY]      an IPv6 host in brackets; port 6379
 *   rediss://...                                                  the same by TLS
 *   unix:/path/of/a/socket[?QUERY]                                or unix:///path, unix://[user]:password@/path
 *
 *   QUERY   ttl=SECONDS and db=NUMBER, with & between them
 *
 * %XX stands for a byte in user, password, host and path. ttl: how long the server keeps what is put there. Pure
 * functions: any thread. */
#ifndef RN_CACHE_STORE_REDIS_URL_H
#define RN_CACHE_STORE_REDIS_URL_H

#include <stdbool.h>

#include "base/alloc.h"
#include "base/status.h"

struct rn_redis_url {
    struct rn_heap *heap;
    char *text;                  /* what the others point into */
    const char *host, *path;     /* one of them; the other is NULL */
    const char *user, *password; /* NULL: none */
    uint32_t port, database;
    uint64_t ttl_s;         /* 0: for ever */
    bool tls, has_database; /* has_database: by the query */
};

/* INVALID names what is wrong, without a word of the address; NO_MEMORY. Nothing is held then. */
runnel_status rn_redis_url_parse(struct rn_redis_url *url, struct rn_heap *heap, const char *text, runnel_error *error);
void rn_redis_url_fini(struct rn_redis_url *url);

/* "host:port" or the path, for messages. [n] */
void rn_redis_url_show(const struct rn_redis_url *url, char *text, size_t n);

#endif
