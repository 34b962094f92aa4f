/* TLS to a Redis server, by OpenSSL (1.1.1 or later) itself: hiredis' own is not in all distributions (Debian 12 has
 * hiredis 0.14 without it) and compares no names.
 *
 *   - The server's certificate must lead to a certificate authority of the system (OpenSSL's default places, which
 *     $SSL_CERT_FILE and $SSL_CERT_DIR replace), or of the file `ca` and then to no other; and it must be for the host
 *     of the address, a name or an IP address. There is no way around either.
 *   - The name is sent to the server (SNI). TLS 1.2 at least. `cert` and `key` say who we are, where the server asks.
 *   - The files are PEM, and read anew for each connection, so that certificates can be renewed while an engine runs.
 *
 * OpenSSL initialises itself, once in a process and for whoever uses it, and takes its memory past the heap's hook,
 * some 100 KB for a connection. One owner, any thread; nothing here waits, prints, asks for a passphrase or raises
 * SIGPIPE. In a build without OpenSSL check says so, and there is no more to call. */
#ifndef RN_CACHE_STORE_REDIS_TLS_H
#define RN_CACHE_STORE_REDIS_TLS_H

#include <stddef.h>

#include "base/alloc.h"
#include "base/status.h"

/* How an attempt that never blocks has ended. */
enum rn_redis_io {
    RN_REDIS_DONE,  /* it, or a part of it that is told */
    RN_REDIS_READ,  /* nothing; again when the other side has written */
    RN_REDIS_WRITE, /* nothing; again when the line takes bytes */
    RN_REDIS_LOST   /* the connection is of no use any more */
};

struct rn_redis_tls;

/* Paths; NULL: none. key NULL: the key is in `cert`. */
struct rn_redis_tls_files {
    const char *ca, *cert, *key;
};

/* UNSUPPORTED: a build without TLS. INVALID: a file cannot be read, or does not fit the others. */
runnel_status rn_redis_tls_check(const struct rn_redis_tls_files *files, runnel_error *error);

/* For the connected socket fd, which is borrowed and does not block. NULL: why, a sentence for people. */
struct rn_redis_tls *rn_redis_tls_new(struct rn_heap *heap, int fd, const char *host,
                                      const struct rn_redis_tls_files *files, char *why, size_t why_bytes);

/* NULL is allowed. The socket stays open. */
void rn_redis_tls_free(struct rn_redis_tls *tls);

/* DONE: the server is who it should be, and bytes can go. LOST, here and below: rn_redis_tls_why says why. */
enum rn_redis_io rn_redis_tls_handshake(struct rn_redis_tls *tls);

/* DONE: *sent of n bytes, 1 at least. Else the same bytes are to be sent again. */
enum rn_redis_io rn_redis_tls_send(struct rn_redis_tls *tls, const char *bytes, size_t n, size_t *sent);

/* DONE: *got bytes, at most n, 1 at least. There may be more that no poll tells of: to be called until it says READ. */
enum rn_redis_io rn_redis_tls_receive(struct rn_redis_tls *tls, char *bytes, size_t n, size_t *got);

const char *rn_redis_tls_why(const struct rn_redis_tls *tls);

#endif
