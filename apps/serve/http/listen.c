/* See http.h: sockets that listen, and what they accept. */
#include "inside.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096
#define ACCEPTS 64          /* in one turn, so that connections get theirs */
#define REFUSED 64          /* connections beyond the limit that wait for their 503 to be read */
#define UNSENT_BYTES 131072 /* of an answer, in the kernel: what waits shall wait here, where it is counted */

static int fail(int fd, int error)
{
    if (fd >= 0)
        close(fd);
    return uv_translate_sys_error(error);
}

/* ---- Accepting ---- */

static void name_peer(const struct sockaddr_storage *address, char peer[60])
{
    char host[INET6_ADDRSTRLEN] = "";

    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;

        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(peer, 60, "%s:%u", host, ntohs(v4->sin_port));
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(peer, 60, "[%s]:%u", host, ntohs(v6->sin6_port));
    } else {
        snprintf(peer, 60, "unix");
    }
}

/* What the kernel does not have is not missed. */
static void set_up(const struct http_server *server, int fd)
{
    int yes = 1, unsent = UNSENT_BYTES;
    unsigned int patience = server->limits.reader_ms; /* a machine that went away without a word */

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &yes, sizeof yes); /* urgent bytes are bytes */
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof patience);
}

static void take(struct http_listener *listener, int fd, const char *peer)
{
    struct http_server *server = listener->server;
    bool full = server->stats.connections >= server->limits.connections;

    if (full)
        server->stats.refused++;
    else
        server->stats.accepted++;
    if (listener->tcp)
        set_up(server, fd);
    if (full && (listener->tls != NULL || server->n_refused >= REFUSED))
        close(fd);
    else
        http_connection_new(listener, fd, peer, full);
}

static bool is_taken_up(const struct http_server *server)
{
    return server->limits.taken != 0 && server->stats.connections + server->n_refused >= server->limits.taken;
}

static void on_listening(uv_poll_t *poll, int status, int events)
{
    struct http_listener *listener = (struct http_listener *)poll;

    (void)events;
    if (status == 0 && is_taken_up(listener->server))
        status = UV_EMFILE;
    for (int i = 0; status == 0 && i < ACCEPTS; i++) {
        struct sockaddr_storage address = {0};
        socklen_t n = sizeof address;
        char peer[60];
        int fd = accept4(listener->fd, (struct sockaddr *)&address, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED || errno == EPROTO || errno == EPERM))
            continue;
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        status = fd < 0 ? uv_translate_sys_error(errno) : 0;
        if (status != 0)
            break;
        name_peer(&address, peer);
        take(listener, fd, peer);
        if (is_taken_up(listener->server)) /* whether anybody waits, the next turn tells */
            return;
    }
    if (status == 0)
        return;
    if (listener->server->handlers.on_short != NULL)
        listener->server->handlers.on_short(listener->server->handlers.user, status);
    http_server_sleep(listener->server); /* no descriptors, mostly: who comes waits in the kernel's queue */
}

void http_server_wake(struct http_server *server)
{
    server->accept_at = 0;
    uv_unref((uv_handle_t *)&server->timer);
    for (struct http_listener *listener = server->listeners; listener != NULL; listener = listener->next)
        uv_poll_start(&listener->poll, UV_READABLE, on_listening);
}

/* ---- Listeners ---- */

static void on_closed(uv_handle_t *handle)
{
    struct http_listener *listener = (struct http_listener *)handle;
    struct http_server *server = listener->server;

    http_tls_files_unref(listener->tls);
    free(listener->path);
    free(listener);
    http_server_release(server);
}

static void unlink_own(const struct http_listener *listener)
{
    struct stat now;

    if (listener->unlinks && lstat(listener->path, &now) == 0 && now.st_dev == listener->device &&
        now.st_ino == listener->inode)
        unlink(listener->path);
}

void http_listeners_close(struct http_server *server)
{
    while (server->listeners != NULL) {
        struct http_listener *listener = server->listeners;

        server->listeners = listener->next;
        unlink_own(listener);
        uv_close((uv_handle_t *)&listener->poll, on_closed);
        close(listener->fd);
    }
}

/* Takes fd, which listens, and path, on the heap, whatever becomes of it. */
static int listen_on(struct http_server *server, int fd, bool tcp, char *path)
{
    struct http_listener *listener = calloc(1, sizeof *listener);
    struct stat now;
    int error;

    if (listener == NULL) {
        free(path);
        return fail(fd, ENOMEM);
    }
    *listener = (struct http_listener){.server = server, .fd = fd, .tcp = tcp, .path = path};
    error = uv_poll_init(server->loop, &listener->poll, fd);
    if (error != 0) {
        free(path);
        free(listener);
        close(fd);
        return error;
    }
    if (path != NULL && lstat(path, &now) == 0) {
        listener->unlinks = true;
        listener->device = now.st_dev;
        listener->inode = now.st_ino;
    }
    listener->tls = http_tls_files_ref(server->tls);
    listener->next = server->listeners;
    server->listeners = listener;
    server->handles++;
    if (server->accept_at == 0)
        uv_poll_start(&listener->poll, UV_READABLE, on_listening);
    return 0;
}

static int listen_at(struct http_server *server, const struct addrinfo *info, uint16_t *port)
{
    struct sockaddr_storage address;
    socklen_t n = info->ai_addrlen;
    int yes = 1, fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return fail(fd, errno);
    memcpy(&address, info->ai_addr, n);
    if (info->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)&address)->sin6_port = htons(*port);
    else
        ((struct sockaddr_in *)&address)->sin_port = htons(*port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&address, n) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &n) != 0)
        return fail(fd, errno);
    *port = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                                : ((struct sockaddr_in *)&address)->sin_port);
    return listen_on(server, fd, true, NULL);
}

/* A name may have several addresses (localhost: of both kinds); one that this machine does not have is left out. */
int http_listen_tcp(struct http_server *server, const char *host, uint16_t port, uint16_t *bound)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    uv_getaddrinfo_t query;
    int error = uv_getaddrinfo(server->loop, &query, NULL, host, NULL, &hints), left_out = UV_EADDRNOTAVAIL;
    bool any = false;

    if (error != 0)
        return error;
    for (const struct addrinfo *info = query.addrinfo; info != NULL && error == 0; info = info->ai_next) {
        if (info->ai_family != AF_INET && info->ai_family != AF_INET6)
            continue;
        error = listen_at(server, info, &port);
        any = any || error == 0;
        if (error == UV_EADDRNOTAVAIL || error == UV_EAFNOSUPPORT) {
            left_out = error;
            error = 0;
        }
    }
    uv_freeaddrinfo(query.addrinfo);
    if (bound != NULL)
        *bound = port;
    return error != 0 ? error : any ? 0 : left_out;
}

/* Whether the path may be bound: nothing is there, or a socket that nobody serves, which goes. */
static int clear_path(const char *path, const struct sockaddr_un *address)
{
    struct stat there;
    int fd, refused;

    if (lstat(path, &there) != 0)
        return errno == ENOENT ? 0 : uv_translate_sys_error(errno);
    if (!S_ISSOCK(there.st_mode))
        return UV_EEXIST;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return fail(fd, errno);
    refused = connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 && errno == ECONNREFUSED;
    close(fd);
    if (!refused)
        return UV_EADDRINUSE;
    return unlink(path) == 0 ? 0 : uv_translate_sys_error(errno);
}

int http_listen_unix(struct http_server *server, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char *copy;
    int fd, error;

    if (strlen(path) >= sizeof address.sun_path || path[0] == '\0')
        return UV_ENAMETOOLONG;
    memcpy(address.sun_path, path, strlen(path));
    error = clear_path(path, &address);
    if (error != 0)
        return error;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(fd, errno);
    /* before it has a name: then it never has another mode */
    if (fchmod(fd, 0600) != 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0)
        return fail(fd, errno);
    copy = strdup(path);
    if (copy == NULL || chmod(path, 0600) != 0 || listen(fd, BACKLOG) != 0) {
        error = copy == NULL ? ENOMEM : errno;
        unlink(path);
        free(copy);
        return fail(fd, error);
    }
    return listen_on(server, fd, false, copy);
}

int http_listen_fd(struct http_server *server, int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t n = sizeof address, listens_bytes = sizeof(int);
    int listens = 0, flags;

    if (getsockname(fd, (struct sockaddr *)&address, &n) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_bytes) != 0)
        return uv_translate_sys_error(errno);
    if (!listens || (address.ss_family != AF_INET && address.ss_family != AF_INET6 && address.ss_family != AF_UNIX))
        return UV_EINVAL;
    flags = fcntl(fd, F_GETFD);
    if (flags < 0 || fcntl(fd, F_SETFD, flags | FD_CLOEXEC) != 0)
        return uv_translate_sys_error(errno);
    return listen_on(server, fd, address.ss_family != AF_UNIX, NULL);
}

bool http_use_tls(struct http_server *server, const char *certificate, const char *key, char sentence[256])
{
    struct http_tls_files *files = http_tls_files_new(certificate, key, sentence);

    if (files == NULL)
        return false;
    http_tls_files_unref(server->tls);
    server->tls = files;
    return true;
}
