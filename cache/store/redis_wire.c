/* See redis_wire.h. */
#include "cache/store/redis_wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void rn_redis_wire_open(struct rn_redis_wire *wire, int fd)
{
    *wire = (struct rn_redis_wire){.fd = fd};
}

void rn_redis_wire_close(struct rn_redis_wire *wire)
{
    rn_redis_tls_free(wire->tls);
    if (wire->fd >= 0)
        close(wire->fd);
    wire->tls = NULL;
    wire->fd = -1;
}

static enum rn_redis_io lose(struct rn_redis_wire *wire, const char *why)
{
    snprintf(wire->why, sizeof wire->why, "%s", why);
    return RN_REDIS_LOST;
}

/* What TLS says is said here. */
static enum rn_redis_io say(struct rn_redis_wire *wire, enum rn_redis_io io)
{
    return io == RN_REDIS_LOST ? lose(wire, rn_redis_tls_why(wire->tls)) : io;
}

enum rn_redis_io rn_redis_wire_send(struct rn_redis_wire *wire, const char *bytes, size_t n, size_t *sent)
{
    ssize_t result;

    if (wire->tls != NULL)
        return say(wire, rn_redis_tls_send(wire->tls, bytes, n, sent));
    do
        result = send(wire->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (result < 0 && errno == EINTR);
    if (result < 0)
        return errno == EAGAIN ? RN_REDIS_WRITE : lose(wire, strerror(errno));
    *sent = (size_t)result;
    return RN_REDIS_DONE;
}

enum rn_redis_io rn_redis_wire_receive(struct rn_redis_wire *wire, char *bytes, size_t n, size_t *got)
{
    ssize_t result;

    if (wire->tls != NULL)
        return say(wire, rn_redis_tls_receive(wire->tls, bytes, n, got));
    do
        result = recv(wire->fd, bytes, n, MSG_DONTWAIT);
    while (result < 0 && errno == EINTR);
    if (result < 0)
        return errno == EAGAIN ? RN_REDIS_READ : lose(wire, strerror(errno));
    if (result == 0)
        return lose(wire, "the server has closed the connection");
    *got = (size_t)result;
    return RN_REDIS_DONE;
}
