/* See redis_wire.h. */
#include "cache/store/redis_wire.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"

#define BETWEEN_US 50000u /* two addresses: several times the way across a continent, a fraction of connect_ms */

static_assert(sizeof((struct sockaddr_un *)0)->sun_path >= 108, "an address lets paths of 107 bytes pass");

/* ---- Dialing ---- */

void rn_redis_connect_begin_with(struct rn_redis_connect *connecting, const struct addrinfo *addresses)
{
    *connecting = (struct rn_redis_connect){.next = addresses};
}

static bool find(struct rn_redis_connect *connecting, const char *host, uint32_t port)
{
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char service[8];
    int wrong;

    snprintf(service, sizeof service, "%u", (unsigned)port);
    wrong = getaddrinfo(host, service, &wanted, &found);
    rn_redis_connect_begin_with(connecting, found);
    connecting->found = found;
    if (wrong != 0)
        snprintf(connecting->why, sizeof connecting->why, "the name is not found: %s", gai_strerror(wrong));
    return wrong == 0;
}

bool rn_redis_connect_begin(struct rn_redis_connect *connecting, const struct rn_redis_url *url)
{
    if (url->path == NULL)
        return find(connecting, url->host, url->port);
    rn_redis_connect_begin_with(connecting, NULL);
    RN_ASSERT(strlen(url->path) < sizeof connecting->local.sun_path);
    connecting->local.sun_family = AF_UNIX;
    strncpy(connecting->local.sun_path, url->path, sizeof connecting->local.sun_path - 1);
    return true;
}

static void note(struct rn_redis_connect *connecting, int error)
{
    snprintf(connecting->why, sizeof connecting->why, "%s", strerror(error));
}

/* True: *fd is connected. Else it may be among those asked. */
static bool ask(struct rn_redis_connect *connecting, const struct sockaddr *address, socklen_t n, int *fd)
{
    int one = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    connecting->n_tried++;
    if (one < 0) {
        note(connecting, errno);
        return false;
    }
    if (connect(one, address, n) == 0) {
        *fd = one;
        return true;
    }
    if (errno == EINPROGRESS) {
        RN_CHECK(connecting->n < RN_REDIS_MAX_CONNECTING);
        connecting->asked[connecting->n++] = (struct pollfd){.fd = one, .events = POLLOUT};
        return false;
    }
    note(connecting, errno);
    close(one);
    return false;
}

static void leave_out(struct rn_redis_connect *connecting, unsigned i)
{
    RN_CHECK(i < connecting->n);
    memmove(&connecting->asked[i], &connecting->asked[i + 1], (connecting->n - i - 1) * sizeof connecting->asked[0]);
    connecting->n--;
}

/* True: *fd is that of one that has answered yes. */
static bool hear(struct rn_redis_connect *connecting, int *fd, bool *refused)
{
    if (connecting->n == 0 || poll(connecting->asked, connecting->n, 0) <= 0)
        return false;
    for (unsigned i = 0; i < connecting->n;) {
        socklen_t n = sizeof(int);
        int error = 0, one = connecting->asked[i].fd;

        if (connecting->asked[i].revents == 0) {
            i++;
            continue;
        }
        if (getsockopt(one, SOL_SOCKET, SO_ERROR, &error, &n) != 0)
            error = errno;
        leave_out(connecting, i);
        if (error == 0) {
            *fd = one;
            return true;
        }
        note(connecting, error);
        close(one);
        *refused = true;
    }
    return false;
}

static bool call_next(struct rn_redis_connect *connecting, uint64_t now_us, int *fd)
{
    const struct addrinfo *address = connecting->next;

    RN_ASSERT(connecting->n <= connecting->n_tried && connecting->n_tried < RN_REDIS_MAX_CONNECTING);
    connecting->next = connecting->n_tried + 1 < RN_REDIS_MAX_CONNECTING ? address->ai_next : NULL;
    connecting->next_at_us = now_us + BETWEEN_US;
    return ask(connecting, address->ai_addr, address->ai_addrlen, fd);
}

static bool is_there(struct rn_redis_connect *connecting, uint64_t now_us, int *fd)
{
    bool refused = false;

    if (connecting->local.sun_family == AF_UNIX)
        return ask(connecting, (const struct sockaddr *)&connecting->local, sizeof connecting->local, fd);
    if (hear(connecting, fd, &refused))
        return true;
    while (connecting->next != NULL && (connecting->n == 0 || refused || now_us >= connecting->next_at_us)) {
        refused = false;
        if (call_next(connecting, now_us, fd))
            return true;
    }
    return false;
}

enum rn_redis_io rn_redis_connect_step(struct rn_redis_connect *connecting, uint64_t now_us, int *fd)
{
    int yes = 1;

    if (!is_there(connecting, now_us, fd))
        return connecting->n > 0 ? RN_REDIS_WRITE : RN_REDIS_LOST;
    if (connecting->local.sun_family !=
        AF_UNIX) /* commands are small, and each is waited for; without it they are slower */
        setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return RN_REDIS_DONE;
}

void rn_redis_connect_end(struct rn_redis_connect *connecting)
{
    for (unsigned i = 0; i < connecting->n; i++)
        close(connecting->asked[i].fd);
    if (connecting->found != NULL)
        freeaddrinfo(connecting->found);
    *connecting = (struct rn_redis_connect){.n = 0};
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
