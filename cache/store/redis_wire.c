/* See redis_wire.h. */
#include "cache/store/redis_wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BETWEEN_US 50000u /* two addresses: several times the way across a continent, a fraction of connect_ms */

/* ---- Dialing ---- */

void rn_redis_dial_begin_with(struct rn_redis_dial *dial, const struct addrinfo *addresses)
{
    *dial = (struct rn_redis_dial){.next = addresses};
}

static bool find(struct rn_redis_dial *dial, const char *host, uint32_t port)
{
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char service[8];
    int wrong;

    snprintf(service, sizeof service, "%u", (unsigned)port);
    wrong = getaddrinfo(host, service, &wanted, &found);
    rn_redis_dial_begin_with(dial, found);
    dial->found = found;
    if (wrong != 0)
        snprintf(dial->why, sizeof dial->why, "the name is not found: %s", gai_strerror(wrong));
    return wrong == 0;
}

bool rn_redis_dial_begin(struct rn_redis_dial *dial, const struct rn_redis_url *url)
{
    if (url->path == NULL)
        return find(dial, url->host, url->port);
    rn_redis_dial_begin_with(dial, NULL);
    dial->local.sun_family = AF_UNIX;
    strncpy(dial->local.sun_path, url->path, sizeof dial->local.sun_path - 1);
    return true;
}

static void note(struct rn_redis_dial *dial, int error)
{
    snprintf(dial->why, sizeof dial->why, "%s", strerror(error));
}

/* True: *fd is connected. Else it may be among those asked. */
static bool ask(struct rn_redis_dial *dial, const struct sockaddr *address, socklen_t n, int *fd)
{
    int one = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    dial->n_tried++;
    if (one < 0) {
        note(dial, errno);
        return false;
    }
    if (connect(one, address, n) == 0) {
        *fd = one;
        return true;
    }
    if (errno == EINPROGRESS) {
        dial->asked[dial->n++] = (struct pollfd){.fd = one, .events = POLLOUT};
        return false;
    }
    note(dial, errno);
    close(one);
    return false;
}

static void leave_out(struct rn_redis_dial *dial, unsigned i)
{
    memmove(&dial->asked[i], &dial->asked[i + 1], (dial->n - i - 1) * sizeof dial->asked[0]);
    dial->n--;
}

/* True: *fd is that of one that has answered yes. */
static bool hear(struct rn_redis_dial *dial, int *fd, bool *refused)
{
    if (dial->n == 0 || poll(dial->asked, dial->n, 0) <= 0)
        return false;
    for (unsigned i = 0; i < dial->n;) {
        socklen_t n = sizeof(int);
        int error = 0, one = dial->asked[i].fd;

        if (dial->asked[i].revents == 0) {
            i++;
            continue;
        }
        if (getsockopt(one, SOL_SOCKET, SO_ERROR, &error, &n) != 0)
            error = errno;
        leave_out(dial, i);
        if (error == 0) {
            *fd = one;
            return true;
        }
        note(dial, error);
        close(one);
        *refused = true;
    }
    return false;
}

static bool call_next(struct rn_redis_dial *dial, uint64_t now_us, int *fd)
{
    const struct addrinfo *address = dial->next;

    dial->next = dial->n_tried + 1 < RN_REDIS_MOST_DIALED ? address->ai_next : NULL;
    dial->next_at_us = now_us + BETWEEN_US;
    return ask(dial, address->ai_addr, address->ai_addrlen, fd);
}

static bool is_there(struct rn_redis_dial *dial, uint64_t now_us, int *fd)
{
    bool refused = false;

    if (dial->local.sun_family == AF_UNIX)
        return ask(dial, (const struct sockaddr *)&dial->local, sizeof dial->local, fd);
    if (hear(dial, fd, &refused))
        return true;
    while (dial->next != NULL && (dial->n == 0 || refused || now_us >= dial->next_at_us)) {
        refused = false;
        if (call_next(dial, now_us, fd))
            return true;
    }
    return false;
}

enum rn_redis_io rn_redis_dial_step(struct rn_redis_dial *dial, uint64_t now_us, int *fd)
{
    int yes = 1;

    if (!is_there(dial, now_us, fd))
        return dial->n > 0 ? RN_REDIS_WRITE : RN_REDIS_LOST;
    if (dial->local.sun_family != AF_UNIX) /* commands are small, and each is waited for; without it they are slower */
        setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return RN_REDIS_DONE;
}

void rn_redis_dial_end(struct rn_redis_dial *dial)
{
    for (unsigned i = 0; i < dial->n; i++)
        close(dial->asked[i].fd);
    if (dial->found != NULL)
        freeaddrinfo(dial->found);
    *dial = (struct rn_redis_dial){.n = 0};
}

/* ---- Bytes ---- */

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
