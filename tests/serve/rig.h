/* A server and its clients on one thread: the loop turns while a client waits. Nothing here looks at a clock; what
 * never happens hangs, and the runner of the tests ends that. */
#ifndef RUNNEL_TESTS_SERVE_RIG_H
#define RUNNEL_TESTS_SERVE_RIG_H

#include "routes.h"

/* Requests to routes.h. */
#define GET "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"
#define WAIT "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"
#define OPEN "GET /open HTTP/1.1\r\nHost: a\r\n\r\n"
#define BODY "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"

struct rig {
    uv_loop_t loop;
    struct http_server *server;
    struct routes routes;
    uint16_t port;
};

struct text {
    char *bytes; /* owned; NUL-terminated */
    size_t n, room;
};

/* limits: NULL for the usual ones. Listens on a free port of 127.0.0.1. */
void rig_open(struct rig *rig, const struct http_limits *limits);

/* Frees the server and runs the loop until it has nothing to do. */
void rig_close(struct rig *rig);

/* One turn of the loop; it waits for an event or a timer. A turn now: it does not. */
void rig_turn(struct rig *rig);
void rig_turn_now(struct rig *rig);

int rig_connect(struct rig *rig); /* the client's end; does not block */
int rig_connect_unix(const char *path);

/* All of bytes, the loop turning. False: the peer takes no more. */
bool rig_send(struct rig *rig, int fd, const char *bytes, size_t n);
bool rig_say(struct rig *rig, int fd, const char *text);

/* Reads until the text ends with `end`; NULL: until the peer's end. Appends. False: reset, or ended before. */
bool rig_read(struct rig *rig, int fd, struct text *text, const char *end);

/* A connection of its own: sends bytes, `piece` at a time with turns of the loop between, shuts its side and reads to
 * the end. The answers without their dates. */
struct text rig_talk(struct rig *rig, const char *bytes, size_t n, size_t piece);

/* The statuses in answers, each with a blank behind it, but for 100: "200 404 ". */
void rig_statuses(const struct text *answers, char statuses[8192]);

void text_add(struct text *text, const char *bytes, size_t n);
void text_fini(struct text *text);

/* Turns of the loop in a short while, up to `most`: fewer where it sleeps. */
unsigned rig_count_turns(struct rig *rig, unsigned most);

/* Closes with a reset instead of a proper end. */
void rig_reset(int fd);

/* Of a route that streams: a connection whose head has been answered. */
int rig_open_stream(struct rig *rig);

/* Turns of the loop until the handlers' count is `wanted`. */
void rig_turn_until(struct rig *rig, const unsigned *count, unsigned wanted);

/* Reads to the peer's end: the answer has this part; there is none. */
void rig_expect(struct rig *rig, int fd, const char *part);
void rig_expect_nothing(struct rig *rig, int fd);

/* That everything is over: the server has no connection, and answers. */
void rig_check_clear(struct rig *rig);

#endif
