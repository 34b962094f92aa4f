/* See redis_fixture.h. */
#define _GNU_SOURCE /* usleep, kill */
#include "tests/cache/redis_fixture.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/cache/cold_fixture.h"
#include "tests/support/child.h"
#include "tests/support/patience.h"

#define MOST_OPTIONS 8
#ifdef REDIS_BY_TLS
#define BY_TLS true
#else
#define BY_TLS false
#endif

bool redis_is_installed(void)
{
    if (BY_TLS && system("redis-server --port 0 --tls-port x 2>&1 | grep -q 'into an integer' && openssl version "
                         ">/dev/null") != 0)
        return false;
    return access("/usr/bin/redis-server", X_OK) == 0 || access("/usr/local/bin/redis-server", X_OK) == 0;
}

struct rn_redis_tls_files redis_files(const struct redis_server *server)
{
    return (struct rn_redis_tls_files){.ca = server->ca[0] != '\0' ? server->ca : NULL};
}

static void exec_server(const struct redis_server *server, const char *const *options)
{
    const char *words[32 + MOST_OPTIONS] = {
        "redis-server", "--unixsocket", server->socket, "--port",      "0", "--save", "",
        "--appendonly", "no",           "--dir",        server->folder};
    char port[16], key[140];
    const char *const tls[] = {"--tls-port",
                               port,
                               "--bind",
                               "127.0.0.1",
                               "--tls-cert-file",
                               server->ca,
                               "--tls-key-file",
                               key,
                               "--tls-ca-cert-file",
                               server->ca,
                               "--tls-auth-clients",
                               "no"};
    int n = 11, null = open("/dev/null", O_WRONLY);

    if (server->ca[0] != '\0') {
        snprintf(port, sizeof port, "%u", server->port);
        snprintf(key, sizeof key, "%s/key", server->folder);
        for (size_t i = 0; i < sizeof tls / sizeof *tls; i++)
            words[n++] = tls[i];
    }
    for (; options != NULL && *options != NULL; options++)
        words[n++] = *options;
    words[n] = NULL;
    dup2(null, 1);
    dup2(null, 2);
    execvp("redis-server", (char *const *)(uintptr_t)words);
    _exit(127);
}

static bool answers(const struct redis_server *server)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    bool good;

    snprintf(at.sun_path, sizeof at.sun_path, "%.100s", server->socket);
    good = connect(fd, (const struct sockaddr *)&at, sizeof at) == 0;
    close(fd);
    return good;
}

/* False: it has ended, since somebody else has its port. The socket comes behind the port. */
static bool comes_up(struct redis_server *server)
{
    struct patience patience = {0};

    while (patience_left(&patience)) {
        if (answers(server))
            return true;
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid)
            return false;
    }
    fail_msg("the server at %s does not come up", server->socket);
    return false;
}

static void choose_port(struct redis_server *server)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    close(fd);
    server->port = ntohs(at.sin_port);
    snprintf(server->url, sizeof server->url, "rediss://127.0.0.1:%u", server->port);
}

/* A certificate that vouches for itself. */
static void certify(struct redis_server *server)
{
    char command[600];

    snprintf(server->ca, sizeof server->ca, "%s/cert", server->folder);
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test -addext "
             "subjectAltName=IP:127.0.0.1 -keyout %s/key -out %s 2>/dev/null",
             server->folder, server->ca);
    assert_int_equal(system(command), 0);
    choose_port(server);
}

static void launch(struct redis_server *server, const char *const *options, bool same_port)
{
    for (int tries = 0; tries < 50; tries++) {
        if (tries > 0 && server->ca[0] != '\0' && !same_port)
            choose_port(server);
        server->pid = child_fork();
        if (server->pid == 0)
            exec_server(server, options);
        if (comes_up(server))
            return;
    }
    fail_msg("the server at %s does not stay up", server->socket);
}

static void name(struct redis_server *server)
{
    *server = (struct redis_server){.pid = 0};
    cold_folder_make(server->folder, sizeof server->folder);
    snprintf(server->socket, sizeof server->socket, "%s/socket", server->folder);
    snprintf(server->url, sizeof server->url, "unix:%s", server->socket);
}

void redis_start(struct redis_server *server, const char *const *options)
{
    name(server);
    if (BY_TLS)
        certify(server);
    launch(server, options, false);
}

void redis_stop(struct redis_server *server)
{
    int status;

    if (server->pid > 0) {
        kill(server->pid, SIGKILL);
        assert_int_equal(waitpid(server->pid, &status, 0), server->pid);
    }
    server->pid = 0;
}

void redis_again(struct redis_server *server)
{
    redis_stop(server);
    unlink(server->socket);
    launch(server, NULL, true);
}

void redis_remove(struct redis_server *server)
{
    redis_stop(server);
    cold_folder_remove(server->folder);
}

void redis_pretend(struct redis_server *server, void (*act)(int fd))
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    name(server);
    snprintf(at.sun_path, sizeof at.sun_path, "%.100s", server->socket);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 8), 0);
    server->pid = child_fork();
    if (server->pid == 0) {
        signal(SIGPIPE, SIG_IGN);
        for (;;) {
            int one = accept(fd, NULL, NULL);

            if (one >= 0)
                act(one);
            close(one);
        }
    }
    close(fd);
}

void redis_close(struct rn_redis_store *store)
{
    if (store != NULL)
        assert_true(rn_redis_store_check(store));
    rn_redis_store_close(store);
}
