/* A redis-server of the test's own, on a socket in a folder of its own; and servers that are none. A test compiled with
 * REDIS_BY_TLS has its stores come by TLS, to a port beside the socket, with a certificate made for it. */
#ifndef TESTS_CACHE_REDIS_FIXTURE_H
#define TESTS_CACHE_REDIS_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "cache/store/redis_store.h"

struct redis_server {
    char folder[100], socket[140], url[160]; /* url: for stores */
    char ca[140];                            /* who vouches for the server; "": it has no TLS */
    unsigned port;
    pid_t pid;
};

/* What a store needs for server->url. */
struct rn_redis_tls_files redis_files(const struct redis_server *server);

/* False: there is no redis-server on this machine, or none that knows TLS where that is wanted. */
bool redis_is_installed(void);

/* Fails the test if it does not come up. options: further words of its command line, ended by NULL, or NULL. */
void redis_start(struct redis_server *server, const char *const *options);
void redis_stop(struct redis_server *server);  /* killed; its folder stays */
void redis_again(struct redis_server *server); /* a new one in the same place, empty */
void redis_remove(struct redis_server *server);

/* Closes the store, which is whole, or fails the test. NULL is allowed. */
void redis_close(struct rn_redis_store *store);

/* A process that accepts and then acts on the connection, for ever, at server->socket. */
void redis_pretend(struct redis_server *server, void (*act)(int fd));

#endif
