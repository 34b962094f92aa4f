/* http_host [--head MS] [--unix PATH] [--fd N] [--tls CERTIFICATE KEY] [PORT]: a process that serves routes.h, for
 * clients of other makers and for wrk. Prints the port of 127.0.0.1 when it listens; SIGTERM drains and ends it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "routes.h"

static struct http_server *server;
static uv_signal_t stop;

static void on_drained(void *user)
{
    (void)user;
    http_server_free(server);
    uv_close((uv_handle_t *)&stop, NULL);
}

static void on_stop(uv_signal_t *handle, int number)
{
    (void)handle;
    (void)number;
    http_server_drain(server, on_drained, NULL);
}

static int listen_to(int count, char **arguments)
{
    char sentence[256];
    int error = 0;

    for (int i = 1; i < count && error == 0; i++) {
        if (strcmp(arguments[i], "--unix") == 0 && i + 1 < count) {
            error = http_listen_unix(server, arguments[++i]);
        } else if (strcmp(arguments[i], "--fd") == 0 && i + 1 < count) {
            error = http_listen_fd(server, atoi(arguments[++i]));
        } else if (strcmp(arguments[i], "--tls") == 0 && i + 2 < count) {
            if (!http_use_tls(server, arguments[i + 1], arguments[i + 2], sentence)) {
                fprintf(stderr, "%s\n", sentence);
                return 1;
            }
            i += 2;
        } else {
            uint16_t port;

            error = http_listen_tcp(server, "127.0.0.1", (uint16_t)atoi(arguments[i]), &port);
            printf("%u\n", port);
        }
    }
    if (error != 0)
        fprintf(stderr, "%s\n", uv_strerror(error));
    return error != 0;
}

int main(int count, char **arguments)
{
    static struct routes routes;
    struct http_handlers handlers = routes_handlers(&routes);
    struct http_limits limits = {0};
    uv_loop_t loop;

    if (count > 2 && strcmp(arguments[1], "--head") == 0) {
        limits.head_ms = (uint32_t)atoi(arguments[2]);
        count -= 2;
        arguments += 2;
    }
    if (uv_loop_init(&loop) != 0 || (server = http_server_new(&loop, &limits, &handlers)) == NULL)
        return 1;
    if (listen_to(count, arguments) != 0)
        return 1;
    fflush(stdout);
    uv_signal_init(&loop, &stop);
    uv_signal_start(&stop, on_stop, SIGTERM);
    uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0 ? 0 : 1;
}
