/* TLS of a build without OpenSSL: there is none. */
#include "cache/store/redis_tls.h"

#include "base/check.h"

runnel_status rn_redis_tls_check(const struct rn_redis_tls_files *files, runnel_error *error)
{
    (void)files;
    return rn_error_set(error, RUNNEL_UNSUPPORTED,
                        "a shared cache at rediss:// needs TLS: this build was made without "
                        "OpenSSL");
}

/* No store has passed the check, so nothing below is ever called. */
struct rn_redis_tls *rn_redis_tls_new(struct rn_heap *heap, int fd, const char *host,
                                      const struct rn_redis_tls_files *files, char *why, size_t why_bytes)
{
    (void)heap;
    (void)fd;
    (void)files;
    (void)why;
    (void)why_bytes;
    RN_CHECK(host == NULL);
    return NULL;
}

void rn_redis_tls_free(struct rn_redis_tls *tls)
{
    RN_CHECK(tls == NULL);
}

enum rn_redis_io rn_redis_tls_handshake(struct rn_redis_tls *tls)
{
    RN_CHECK(tls == NULL);
    return RN_REDIS_LOST;
}

enum rn_redis_io rn_redis_tls_send(struct rn_redis_tls *tls, const char *bytes, size_t n, size_t *sent)
{
    (void)bytes;
    (void)n;
    (void)sent;
    RN_CHECK(tls == NULL);
    return RN_REDIS_LOST;
}

enum rn_redis_io rn_redis_tls_receive(struct rn_redis_tls *tls, char *bytes, size_t n, size_t *got)
{
    (void)bytes;
    (void)n;
    (void)got;
    RN_CHECK(tls == NULL);
    return RN_REDIS_LOST;
}

const char *rn_redis_tls_why(const struct rn_redis_tls *tls)
{
    RN_CHECK(tls == NULL);
    return "";
}
