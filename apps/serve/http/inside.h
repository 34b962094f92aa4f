/* What the files of HTTP share: server, connection, exchange.
 *
 * A connection watches its socket by a uv_poll_t and sends and receives itself: so a peer that leaves is seen in every
 * state, also where nothing is read, no signal is raised (SIGPIPE), and what is not sent yet lies in one place.
 *
 *     readable ──▶ bytes (of TLS: opened) ──▶ request ──▶ handlers ──▶ out ──┐
 *                    └▶ ahead: sent early, waits           (TLS: sealed) ◀──┘
 *                                                              │
 *     prepare and check of the loop ──▶ turn of each connection that has something to do: ahead, send, end
 *
 * Nothing that a handler calls calls a handler, sends, or frees a connection: it marks the connection, and its turn
 * does it. So what was written in one turn of the loop leaves together.
 *
 * Idle connections have no buffers: bytes are received into one of the server, and each buffer goes when it is empty.
 * */
#ifndef RUNNEL_SERVE_HTTP_INSIDE_H
#define RUNNEL_SERVE_HTTP_INSIDE_H

#include "http.h"
#include "parse.h"
#include "tls.h"

/* ---- Bytes that wait (bytes.c) ---- */

struct http_bytes {
    char *at; /* owned; NULL where there are none */
    size_t begin, end, room;
};

size_t http_bytes_count(const struct http_bytes *bytes);
bool http_bytes_add(struct http_bytes *bytes, const char *from, size_t n); /* false: no memory */
char *http_bytes_reserve(struct http_bytes *bytes, size_t n); /* room for n behind the end; NULL: no memory */
void http_bytes_take(struct http_bytes *bytes, size_t n);     /* the first n go */
void http_bytes_fini(struct http_bytes *bytes);

/* ---- Deadlines (deadline.c) ----
 *
 * One timer for all. All that wait for one reason wait equally long, so each reason has a queue in which the first is
 * the next to be due. For more (HTTP_FOR_MORE) all wait until the same times. */

enum http_reason {
    HTTP_FOR_HEAD,
    HTTP_FOR_BODY,
    HTTP_FOR_REQUEST, /* nothing is going on */
    HTTP_FOR_PEER,    /* everything has been said: the peer may close */
    HTTP_FOR_READER,
    HTTP_FOR_MORE, /* what a stream gathers */
    HTTP_REASONS
};

struct http_deadline {
    struct http_deadline *next, *previous; /* NULL, NULL: not set */
    uint64_t at;
    struct http_connection *connection;
};

void http_deadline_set(struct http_server *server, struct http_deadline *deadline, enum http_reason reason);
void http_deadline_clear(struct http_deadline *deadline);

/* ---- The three ---- */

enum http_state {
    HTTP_IDLE,
    HTTP_READING_HEAD,
    HTTP_READING_BODY,
    HTTP_ANSWERING, /* the request is whole, or its body is not wanted any more */
    HTTP_ENDING,    /* nothing more is read for use; closes when all has been sent */
    HTTP_LINGERING, /* our side is shut; waits for the peer's end, so that it can read what was sent */
    HTTP_CLOSED
};

struct http_exchange {
    struct http_connection *connection;
    struct http_request request;
    void *user;
    uint64_t sent;            /* bytes of the answer's body */
    uint64_t held;            /* bytes of the request's body that count in the server's */
    int status;               /* of the answer; 0: none */
    struct http_bytes fields; /* of the answer, as lines */
    uint8_t n_fields;
    bool announced;       /* the handlers know it */
    bool begun;           /* its answer */
    bool chunked, silent; /* silent: the body of the answer is not sent */
    bool over;            /* answered or gone: it can be read until the loop goes on */
    bool gathers;         /* what is written may wait while `gathering` of the connection is set */
    struct http_exchange *next_over;
};

struct http_connection {
    uv_poll_t poll; /* first */
    struct http_server *server;
    struct http_connection *next, *previous, *next_marked;
    struct http_deadline reading, taking, gathering; /* gathering: set by what a stream has sent */
    struct http_exchange *exchange;
    struct http_tls *tls;
    struct http_bytes ahead, out;
    struct http_bytes taken;  /* behind out: an answer that was not copied, and what was written behind it */
    struct http_bytes sealed; /* of these two, for the wire; TLS only */
    uint64_t body_since;      /* when it began to come; of a connection that lingers: when that began */
    int fd;
    uint8_t state, watched;
    bool marked, counted, tcp;
    bool lost;    /* the peer is gone, or is to be treated so */
    bool half;    /* the peer has shut its writing side */
    bool asked;   /* whether it is still there: see http_input_end */
    bool deaf;    /* nothing can be learned by watching */
    bool keep;    /* another request may follow */
    bool slow;    /* on_slow was called, on_taken not */
    bool blocked; /* the socket takes no more */
    bool reset;   /* the end must not look like a proper one */
    bool buried;  /* its handle has closed */
    char peer[60];
};

struct http_listener {
    uv_poll_t poll; /* first */
    struct http_server *server;
    struct http_listener *next;
    struct http_tls_files *tls;
    int fd;
    bool tcp, unlinks;
    uint64_t device, inode;
    char *path; /* unix; owned */
};

#define HTTP_BUFFER_BYTES 65536 /* what one read takes */

struct http_server {
    uv_loop_t *loop;
    struct http_limits limits;
    struct http_bounds bounds;
    struct http_handlers handlers;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t idle; /* active while turns were put off, so that the loop does not sleep */
    uv_timer_t timer;
    uint64_t timer_at;                         /* when it is due; 0: not active */
    uint64_t accept_at;                        /* listeners sleep until then; 0: they do not */
    struct http_deadline queues[HTTP_REASONS]; /* rings */
    struct http_listener *listeners;
    struct http_connection *connections, *marked, *last_marked;
    struct http_exchange *over; /* freed when no handler runs */
    struct http_tls_files *tls;
    struct http_stats stats;
    size_t n_refused, handles;
    uint64_t held; /* bytes of bodies: those of exchanges, and those that were taken */
    uint64_t date_second;
    bool draining, freed;
    void (*on_drained)(void *user);
    void *drained_user;
    char date[32];
    char buffer[HTTP_BUFFER_BYTES], opened[HTTP_BUFFER_BYTES];
};

/* server.c: a handle has closed; the server goes with the last one. */
void http_server_release(struct http_server *server);
/* After a connection has gone: whether it was the last. */
void http_server_drained(struct http_server *server);
void http_server_sleep(struct http_server *server);    /* accepts nothing for a moment */
void http_listeners_close(struct http_server *server); /* listen.c */
void http_server_wake(struct http_server *server);
void http_server_due(struct http_server *server, uint64_t at); /* the timer fires then or before */

/* connection.c. Takes the socket; refused: gets 503. NULL: no memory, the socket is closed. */
struct http_connection *http_connection_new(struct http_listener *listener, int fd, const char *peer, bool refused);
void http_connection_mark(struct http_connection *connection); /* it gets a turn */
void http_connection_turn(struct http_connection *connection);
void http_connection_due(struct http_connection *connection, enum http_reason reason);
void http_connection_close(struct http_connection *connection); /* at once; tells the handlers */

/* Between two requests: nothing of the next one has come but empty lines. */
bool http_connection_is_idle(const struct http_connection *connection);

/* Closed in every sense: its memory goes, unless it is marked still; then with the turn. */
void http_connection_bury(struct http_connection *connection);

#define HTTP_AHEAD_BYTES 16384 /* sent early: with more than that, nothing is read */

/* input.c: receives; goes on with what was sent early; the peer has shut its side, or seems to. */
void http_input_receive(struct http_connection *connection);
void http_input_ahead(struct http_connection *connection);
void http_input_end(struct http_connection *connection);

/* bodies.c. fit: some of the connection's body has come; makes room for it by refusing others, or it. False: it
 * was refused itself. forget: the exchange's body counts no more. */
bool http_bodies_fit(struct http_connection *connection);
void http_bodies_forget(struct http_exchange *exchange);

/* exchange.c. An exchange of the connection of which nothing was read; NULL: no memory. */
struct http_exchange *http_exchange_new(struct http_connection *connection);

/* answer.c. refuse: ends the exchange with a status of ours, and the connection behind it. gone:
 * the exchange, if there is one, is told to the handlers that know it, and freed. */
void http_answer_refuse(struct http_connection *connection, int status, const char *reason);
void http_answer_continue(struct http_connection *connection);
void http_answer_gone(struct http_connection *connection);

/* Frees the exchanges that are over. Not inside a handler. */
void http_answer_clean(struct http_server *server);

/* output.c: how many bytes wait; sends what the socket takes. */
size_t http_output_waits(const struct http_connection *connection);
void http_output_send(struct http_connection *connection);

#endif
