/* A host of apps/serve/http/http.h for tests: a few paths, and a count of what the server has called.
 *
 *     /hello   "hello\n"                       /echo    the body, with its type
 *     /early   401 in on_head                  /wait    is held: the test answers
 *     /stream  "one\n" "two\n" "three\n"       /open    a stream that the test writes to
 *     /field   the value of the field that the query names, or 404 */
#ifndef RUNNEL_TESTS_SERVE_ROUTES_H
#define RUNNEL_TESTS_SERVE_ROUTES_H

#include "apps/serve/http/http.h"

#define ROUTES_HELD 4096

struct routes {
    unsigned heads, requests, gone, slow, taken;
    struct http_exchange *held[ROUTES_HELD]; /* of /wait and /open; those that are gone leave NULL */
    size_t n_held;
    char last[512]; /* "POST /path?query n" of the last request, n: bytes of its body */
};

struct http_handlers routes_handlers(struct routes *routes);

#endif
