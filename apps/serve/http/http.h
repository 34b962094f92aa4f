/* HTTP/1.1 for one libuv loop: sockets, connections, requests, answers. Knows nothing of models.
 *
 *     listen ──▶ connection ──▶ exchange: on_head? ──body──▶ on_request ──▶ http_answer
 *                                   │                                  └──▶ http_stream_begin, _write..., _end
 *                                   └── on_gone: the peer has left before the end
 *
 * An exchange is a request and its answer. It belongs to the server; a handler may use it from on_head on until it has
 * been answered whole (http_answer or http_stream_end has returned) or on_gone has returned. The handler that has
 * answered it, or has called what did, may go on reading the request until it returns; a second answer does nothing and
 * http_user is NULL then. Requests of a connection
 * come one after the other: the next one (also where it was sent early) is read when the one before has been answered.
 *
 * Bounded: bytes of a head, header fields, bytes of a body and of all bodies together, bytes of answers that wait for a
 * slow reader, connections, and the time that a head, a body, an idle connection and a reader that does not read may
 * take. What is beyond a bound or no proper HTTP gets a status where one can still be sent (400, 408, 413, 414, 417,
 * 431, 501, 503, 505), and the connection ends. A request that two readers could take for different ones (RFC 9112,
 * section 6: two lengths, a length beside chunks, folded fields, bare line ends, an unknown coding) is refused, never
 * repaired.
 *
 * Threads: everything on the loop's thread. Names that begin with http_ are this room's. */
#ifndef RUNNEL_SERVE_HTTP_H
#define RUNNEL_SERVE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct http_server;
struct http_exchange;

struct http_limits {
    size_t head_bytes;    /* request line and header fields together; 0: 32 KiB */
    size_t fields;        /* header fields; 0: 100 */
    size_t body_bytes;    /* 0: 32 MiB */
    size_t waiting_bytes; /* of an answer that its reader has not taken: above it on_slow is called; 0: 1 MiB */
    size_t connections;   /* more are answered 503 and closed; 0: 4096 */
    size_t taken;         /* connections at once: who comes beyond it waits in the kernel's queue; 0: no bound */
    uint64_t held_bytes;  /* of all bodies together, at least body_bytes; more are answered 503; 0: 1 GiB */
    uint32_t head_ms;     /* from a connection's first byte of a request to the end of its head; 0: 10,000 */
    uint32_t body_ms;     /* without any byte of the body, and of one that is not wanted in all; 0: 30,000 */
    uint32_t idle_ms;     /* between two requests; 0: 75,000 */
    uint32_t reader_ms;   /* without taking any byte of an answer that waits; 0: 60,000 */
    uint32_t gather_ms;   /* what a stream gathers leaves so often; 0: nothing is gathered */
    const char *names;    /* "/v1/models/": in what is behind it an encoded slash is a slash; NULL: nowhere. Borrowed */
};

/* What the server calls. A handler may answer inside any of these but on_gone. */
struct http_handlers {
    /* The head is there, the body is not. Answer here (401, 404, 405, ...) and the body is not read: the connection
     * closes behind the answer where there is one. NULL: every head is welcome. */
    void (*on_head)(void *user, struct http_exchange *exchange);

    /* All of the request is there. */
    void (*on_request)(void *user, struct http_exchange *exchange);

    /* The peer has left, or broken a bound, before the answer was complete: the exchange is gone when this returns.
     * Only after on_head or on_request was called, and not for exchanges that were answered whole. Also at
     * http_server_free. */
    void (*on_gone)(void *user, struct http_exchange *exchange);

    /* More than waiting_bytes wait for the reader; on_taken: less than a quarter of that again. The answer of one who
     * does not stop writing grows; the server cuts it off at 4 x waiting_bytes (on_gone). NULL: not told. */
    void (*on_slow)(void *user, struct http_exchange *exchange);
    void (*on_taken)(void *user, struct http_exchange *exchange);

    /* The exchange is over, answered or gone: the last call for it, once for each of which on_head or on_request was
     * called. It comes inside the call that ends the answer, or behind on_gone; it may read http_status, http_sent and
     * http_user, and nothing else may be done with the exchange. NULL: not told. */
    void (*on_end)(void *user, struct http_exchange *exchange);

    /* A connection that came was not taken, by this error of libuv's (UV_EMFILE: the process has no descriptors left,
     * or none for connections: limits.taken): it waits in the kernel's queue. Each time; several times a second while
     * it lasts. NULL: not told. */
    void (*on_short)(void *user, int error);

    /* The body of a refusal by the server itself (400, 408, 413, 414, 417, 431, 501, 503, 505), valid until the next
     * call; path: of the request, as far as a path was read, "" else. NULL: the reason as a line of text. It may read
     * the exchange (http_method and http_path are NULL, and fields absent, where they were not read) and add fields to
     * the answer. on_gone follows where on_head was called, and http_status is not 0 then. */
    const char *(*refusal)(void *user, struct http_exchange *exchange, const char *path, int status, const char *reason,
                           const char **type, size_t *n);
    void *user;
};

/* limits and handlers are copied. NULL: no memory. */
struct http_server *http_server_new(uv_loop_t *loop, const struct http_limits *limits,
                                    const struct http_handlers *handlers);

/* Listen; several are allowed. 0, or a negative error of libuv. tcp: host is an address or a name, port 0: any free
 * one; *bound is the port. unix: a socket that is there and that nobody serves is replaced; access is for the user
 * alone (0600) and it is removed when the server ends. fd: a socket that listens already (socket activation), TCP or
 * unix. tls: certificate chain and key in PEM (files) for the listeners that are opened from then on; false: *sentence
 * says why (also: built without OpenSSL). */
int http_listen_tcp(struct http_server *server, const char *host, uint16_t port, uint16_t *bound);
int http_listen_unix(struct http_server *server, const char *path);
int http_listen_fd(struct http_server *server, int fd);
bool http_use_tls(struct http_server *server, const char *certificate, const char *key, char sentence[256]);

/* Takes no new connections, closes idle ones, says "Connection: close" in further answers. on_drained (NULL: nobody)
 * is called once when no connection is left, perhaps before this returns. */
void http_server_drain(struct http_server *server, void (*on_drained)(void *user), void *user);

/* What waits for an answer that has not begun is refused, 503 with this reason: sent as the loop goes on. */
void http_server_refuse(struct http_server *server, const char *reason);

/* Closes every connection, with on_gone for what was not answered. Its handles close on the loop: the memory goes when
 * the last one has, so run the loop until it has nothing to do. NULL is allowed. */
void http_server_free(struct http_server *server);

struct http_stats {
    uint64_t connections, accepted, refused, requests, bytes_in, bytes_out, writes;
    uint64_t held;   /* bytes of bodies, now */
    uint64_t unsent; /* bytes of answers that wait for their readers, now */
};
void http_server_stats(const struct http_server *server, struct http_stats *stats);

/* The most that stats.held may be: limits.held_bytes, or what stands for it. */
uint64_t http_held_bytes(const struct http_server *server);

/* ---- The request: valid until it is answered ---- */

const char *http_method(const struct http_exchange *exchange); /* "GET" */

/* The path without its query, decoded (%41), "" never: always begins with "/"; empty, "." and ".." segments, a NUL, or
 * an encoded slash where limits.names does not allow it make a request 400. The target's host, if any, says nothing. */
const char *http_path(const struct http_exchange *exchange);
const char *http_query(const struct http_exchange *exchange); /* as sent, without "?"; "" */

/* The value of a header field, its name in any case; NULL: absent. Of several with one name, joined by ", ". */
const char *http_field(const struct http_exchange *exchange, const char *name);

const char *http_body(const struct http_exchange *exchange, size_t *n); /* NUL behind it; in on_head: none */

/* The same bytes, which are the caller's from now on (free); the exchange has none any more. NULL: there were none.
 * They count as held until http_body_done says that these n bytes are freed. */
char *http_take_body(struct http_exchange *exchange, size_t *n);
void http_body_done(struct http_server *server, size_t n);

const char *http_peer(const struct http_exchange *exchange); /* "127.0.0.1:5000", "unix" */

/* Of the answer so far: its status, 0 where none has begun; the bytes of its body. */
int http_status(const struct http_exchange *exchange);
uint64_t http_sent(const struct http_exchange *exchange);

/* The handler's own pointer. */
void http_set_user(struct http_exchange *exchange, void *user);
void *http_user(const struct http_exchange *exchange);

/* ---- The answer ---- */

/* A header field of the answer, before it begins: both are copied. Bytes below 32 and 127 become spaces. False: no
 * memory or too many (32). */
bool http_add_field(struct http_exchange *exchange, const char *name, const char *value);

/* All of it: type NULL: no content type; of HEAD requests the body is not sent. The bytes are copied. The exchange is
 * gone afterwards. */
void http_answer(struct http_exchange *exchange, int status, const char *type, const char *bytes, size_t n);

/* The same of bytes from malloc, which are the server's from now on. */
void http_answer_take(struct http_exchange *exchange, int status, const char *type, char *bytes, size_t n);

/* One by one (chunked; of HTTP/1.0 until the connection closes). write returns the bytes that wait for the reader now.
 * What is written in one turn of the loop leaves in one write where possible. end: the exchange is gone afterwards. */
void http_stream_begin(struct http_exchange *exchange, int status, const char *type);

/* Whether what is written from now on may wait for more: until the next multiple of gather_ms behind what the stream
 * sent last, until something is written that does not gather, or until the answer ends. */
void http_stream_gather(struct http_exchange *exchange, bool gathers);
size_t http_stream_write(struct http_exchange *exchange, const char *bytes, size_t n);
void http_stream_end(struct http_exchange *exchange);

#endif
