/* The bytes of one request, in pieces of any size, become its head and its body. No sockets.
 *
 * Two readers see every byte: the checks here, which follow the grammar of RFC 9112 to the letter, and llhttp. Where a
 * request ends is decided here; what llhttp takes for something else (another length, another end) is refused. So a
 * request has one reading whatever the version of llhttp, and whatever a proxy in front made of it.
 *
 *     bytes ──▶ lines of the head ──(whole head)──▶ fields, target, llhttp ──▶ HTTP_STEP_HEAD
 *           └─▶ length or chunks ──▶ llhttp ──▶ body ──▶ HTTP_STEP_WHOLE
 *
 * The head is kept as it came, in one piece; names, values and the path end with a NUL that is written into it. */
#ifndef RUNNEL_SERVE_HTTP_PARSE_H
#define RUNNEL_SERVE_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <llhttp.h>

struct http_bounds {
    size_t head_bytes, fields, body_bytes;
    const char *names; /* see http_limits */
};

struct http_field {
    char *name, *value;
    uint32_t name_bytes, value_bytes;
};

enum http_step {
    HTTP_STEP_MORE,   /* all bytes were taken; more are needed */
    HTTP_STEP_HEAD,   /* the head is whole; the bytes behind it were not taken */
    HTTP_STEP_WHOLE,  /* the request is whole; the bytes behind it were not taken */
    HTTP_STEP_REFUSED /* see status and reason */
};

/* Where the next byte belongs to. */
enum http_place {
    HTTP_IN_HEAD,
    HTTP_IN_LENGTH,     /* of a body with a length */
    HTTP_CHUNK_FIRST,   /* first digit of a size */
    HTTP_CHUNK_SIZE,    /* digit, ";" or the line's end */
    HTTP_CHUNK_EXTRA,   /* behind ";": ignored, up to the line's end */
    HTTP_CHUNK_LINE,    /* the line feed of a size */
    HTTP_CHUNK_DATA,    /* bytes of the body */
    HTTP_CHUNK_RETURN,  /* carriage return behind data */
    HTTP_CHUNK_FEED,    /* line feed behind data */
    HTTP_TRAILER_FIRST, /* first byte of a trailer field, or the end */
    HTTP_TRAILER_NAME,
    HTTP_TRAILER_VALUE,
    HTTP_TRAILER_FEED,
    HTTP_LAST_FEED, /* the last byte of a request with chunks */
    HTTP_AT_END
};

struct http_request {
    const struct http_bounds *bounds; /* borrowed */
    llhttp_t reader;

    char *head; /* owned */
    size_t head_bytes, head_room, line, blank_bytes, lines;
    struct http_field *fields; /* owned */
    size_t n_fields;
    char *joined; /* owned; values of fields that came more than once */

    char *target;
    size_t method_bytes, target_bytes;
    const char *method, *path, *query;
    char *body; /* owned; NULL: none */
    size_t body_bytes, body_room;

    enum http_place place;
    uint64_t left;   /* bytes of the body or of the chunk that are to come */
    uint64_t length; /* that was announced, by chunks so far */
    size_t framing;  /* bytes of chunk lines and trailers */
    bool chunked, one_zero, keep, expects;
    bool read_head, read_whole; /* what llhttp says */
    bool finished;              /* the head is: its fields can be read */

    int status; /* of a refusal */
    const char *reason;
};

void http_request_init(struct http_request *request, const struct http_bounds *bounds);
void http_request_fini(struct http_request *request);

/* *used: how many of the bytes were taken. After HTTP_STEP_HEAD comes the body, with the next call (n may be 0); after
 * HTTP_STEP_WHOLE and HTTP_STEP_REFUSED nothing. */
enum http_step http_request_feed(struct http_request *request, const char *bytes, size_t n, size_t *used);

/* The value of a field, its name in any case; NULL: absent. */
const char *http_request_field(const struct http_request *request, const char *name);

/* head.c: the whole head, of which the lines end in line feeds. check finds request line, fields and lengths and
 * writes nothing into it; finish writes the NULs and the path. False: refused; check has called finish then, if all
 * lines were good. */
bool http_head_check(struct http_request *request);
bool http_head_finish(struct http_request *request);

/* chunks.c: takes bytes up to the end of the body, at most n; false: refused. The data is left to llhttp. */
bool http_chunks_take(struct http_request *request, const char *bytes, size_t n, size_t *used);

/* Sets status and reason; returns false. */
bool http_refuse(struct http_request *request, int status, const char *reason);

/* Bytes of a field's name and of its value, a method's name too. */
bool http_is_token(unsigned char byte);
bool http_is_text(unsigned char byte);

/* target.c: splits target[0..n), which has n + 1 bytes of room, in place. any: "*" is allowed, and is "/". names:
 * see http_limits. False: *reason says why it is refused. */
bool http_target_split(char *target, size_t n, bool any, const char *names, const char **path, const char **query,
                       const char **reason);

#endif
