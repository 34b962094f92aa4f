/* See redis_fixture.h. */
#define _GNU_SOURCE /* usleep, kill */
#include "tests/cache/redis_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/cache/cold_fixture.h"

#define MOST_OPTIONS 8

bool redis_is_installed(void)
{
    return access("/usr/bin/redis-server", X_OK) == 0 || access("/usr/local/bin/redis-server", X_OK) == 0;
}

static void exec_server(const struct redis_server *server, const char *const *options)
{
    const char *words[16 + MOST_OPTIONS] = {"redis-server", "--unixsocket", server->socket, "--port", "0", "--save", "",
                                            "--appendonly", "no", "--dir", server->folder};
    int n = 11, null = open("/dev/null", O_WRONLY);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
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

static void wait_for(const struct redis_server *server)
{
    for (int i = 0; i < 2000; i++) {
        if (answers(server))
            return;
        usleep(5000);
    }
    fail_msg("the server at %s does not come up", server->socket);
}

static void launch(struct redis_server *server, const char *const *options)
{
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (server->pid == 0)
        exec_server(server, options);
    wait_for(server);
}

static void name(struct redis_server *server)
{
    cold_folder_make(server->folder, sizeof server->folder);
    snprintf(server->socket, sizeof server->socket, "%s/socket", server->folder);
    snprintf(server->url, sizeof server->url, "unix:%s", server->socket);
}

void redis_start(struct redis_server *server, const char *const *options)
{
    name(server);
    launch(server, options);
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
    launch(server, NULL);
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
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (server->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
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
