/* Any bytes as what a connection sends: the requests in them are the same whatever the pieces in which they come. The
 * first byte says how they are cut; what is refused is refused with the same status. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/http/parse.h"
#include "base/check.h"
#include "pieces.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static const struct http_bounds bounds = {.head_bytes = 1024, .fields = 12, .body_bytes = 2048};

/* A sum over all that a handler could see. */
static uint64_t add(uint64_t sum, const char *bytes, size_t n)
{
    for (size_t i = 0; i <= n; i++) /* the NUL too: it is there, and keeps two texts apart */
        sum = (sum ^ (uint8_t)bytes[i]) * UINT64_C(1099511628211);
    RN_CHECK(bytes[n] == '\0');
    return sum;
}

static void check_path(const char *path)
{
    RN_CHECK(path[0] == '/' && strstr(path, "//") == NULL && strstr(path, "/../") == NULL &&
             strstr(path, "/./") == NULL);
    RN_CHECK(strchr(path, '\n') == NULL && strchr(path, '\r') == NULL && strchr(path, '\\') == NULL);
}

static uint64_t add_request(uint64_t sum, const struct http_request *request)
{
    check_path(request->path);
    RN_CHECK(request->body_bytes <= bounds.body_bytes && request->n_fields <= bounds.fields);
    sum = add(sum, request->method, strlen(request->method));
    sum = add(sum, request->path, strlen(request->path));
    sum = add(sum, request->query, strlen(request->query));
    for (size_t i = 0; i < request->n_fields; i++) {
        const char *name = request->fields[i].name, *value = request->fields[i].value;

        RN_CHECK(strpbrk(name, " \t\r\n:") == NULL && strpbrk(value, "\r\n") == NULL);
        sum = add(add(sum, name, strlen(name)), value, strlen(value));
    }
    if (request->body != NULL)
        sum = add(sum, request->body, request->body_bytes);
    return sum * 2 + request->keep;
}

/* One request after the other, until one is refused or the bytes are all taken. */
static uint64_t read_all(const char *bytes, size_t size, unsigned cut)
{
    uint64_t sum = UINT64_C(14695981039346656037);
    size_t at = 0;
    bool ends = false;

    while (at < size && !ends) {
        enum http_step step = HTTP_STEP_MORE;
        struct http_request request;

        http_request_init(&request, &bounds);
        while (step != HTTP_STEP_WHOLE && step != HTTP_STEP_REFUSED && !ends) {
            size_t n = piece_at(at, size, cut), used;
            char *piece = malloc(n + (n == 0)); /* of its own, so that reading beyond it is seen */

            RN_CHECK(piece != NULL);
            memcpy(piece, bytes + at, n);
            step = http_request_feed(&request, piece, n, &used);
            free(piece);
            RN_CHECK(used <= n && (step != HTTP_STEP_MORE || used == n));
            at += used;
            ends = at == size && step == HTTP_STEP_MORE;
        }
        if (step == HTTP_STEP_WHOLE)
            sum = add_request(sum, &request);
        if (step == HTTP_STEP_REFUSED) {
            RN_CHECK(request.status >= 400 && request.status <= 505 && request.reason != NULL);
            sum = sum * 1024 + (uint64_t)request.status;
            ends = true;
        }
        http_request_fini(&request);
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t whole;

    if (size < 1)
        return 0;
    whole = read_all((const char *)data + 1, size - 1, 0);
    RN_CHECK(read_all((const char *)data + 1, size - 1, 1) == whole);
    RN_CHECK(read_all((const char *)data + 1, size - 1, 2u + data[0]) == whole);
    return 0;
}

/* ---- Seeds ---- */

#define POST "POST /v1/x?q=%41 HTTP/1.1\r\nHost: a.b:80\r\n"

static const char *const seeds[] = {
    "\1GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /%61/%c3%a9 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "\2" POST "Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhelloHEAD http://x/y HTTP/1.1\r\nHost:\r\n\r\n",
    "\3" POST
    "Transfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nhello\r\nA\r\n0123456789\r\n0\r\nT: v\r\n\r\nGET / HTTP/1.1\r\n",
    "\4" POST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "\5" POST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "\6\r\nOPTIONS * HTTP/1.1\r\nHost: a\r\nX: 1\r\nx: 2\r\n X: 3\r\n\r\n",
    "\7GET /a/../b HTTP/1.1\nHost: a\n\n",
    "\10" POST "Connection: Upgrade, close\r\nUpgrade: h2c\r\nTE: trailers\r\n\r\n",
};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    write_seeds(seeds, sizeof seeds / sizeof seeds[0]);
    return 0;
}
