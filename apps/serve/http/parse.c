/* See parse.h: the order of things, and the body. */
#include "parse.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEAD_FIRST_BYTES 512
#define BODY_FIRST_BYTES 4096
#define WHOLE_FROM 16  /* with a 16th of a body there is room for all of it: then it moves no more */
#define BLANK_BYTES 16 /* of empty lines in front of a request, as some clients send one behind a body */

bool http_refuse(struct http_request *request, int status, const char *reason)
{
    request->status = status;
    request->reason = reason;
    return false;
}

/* ---- llhttp's reading ---- */

static int read_head(llhttp_t *reader)
{
    struct http_request *request = reader->data;

    reader->upgrade = 0; /* another protocol is offered, never taken */
    request->read_head = true;
    request->keep = llhttp_should_keep_alive(reader) != 0;
    return 0;
}

static bool grow_body(struct http_request *request, size_t n)
{
    size_t room = request->body_room == 0 ? BODY_FIRST_BYTES : request->body_room;
    char *body;

    if (n < request->body_room)
        return true;
    while (room <= n)
        room *= 2;
    if (!request->chunked && (room > request->length + 1 || n > request->length / WHOLE_FROM))
        room = (size_t)request->length + 1;
    body = realloc(request->body, room);
    if (body == NULL)
        return false;
    request->body = body;
    request->body_room = room;
    return true;
}

static int read_body(llhttp_t *reader, const char *bytes, size_t n)
{
    struct http_request *request = reader->data;

    if (n > request->bounds->body_bytes - request->body_bytes)
        return http_refuse(request, 413, "the body is too long") - 1;
    if (!grow_body(request, request->body_bytes + n))
        return http_refuse(request, 503, "no memory for the body") - 1;
    memcpy(request->body + request->body_bytes, bytes, n);
    request->body_bytes += n;
    request->body[request->body_bytes] = '\0';
    return 0;
}

static int read_whole(llhttp_t *reader)
{
    struct http_request *request = reader->data;

    request->read_whole = true;
    return 0;
}

static const llhttp_settings_t settings = {
    .on_headers_complete = read_head,
    .on_body = read_body,
    .on_message_complete = read_whole,
};

/* False: it has refused, or we have. */
static bool read_on(struct http_request *request, const char *bytes, size_t n)
{
    llhttp_errno_t error = llhttp_execute(&request->reader, bytes, n);

    if (error == HPE_OK)
        return true;
    if (request->status != 0)
        return false;
    if (error == HPE_INVALID_METHOD)
        return http_refuse(request, 501, "the method is not known");
    return http_refuse(request, 400, "this is no proper HTTP");
}

/* ---- The head ---- */

void http_request_init(struct http_request *request, const struct http_bounds *bounds)
{
    memset(request, 0, sizeof *request);
    request->bounds = bounds;
    request->query = "";
    llhttp_init(&request->reader, HTTP_REQUEST, &settings);
    request->reader.data = request;
}

void http_request_fini(struct http_request *request)
{
    free(request->head);
    free(request->fields);
    free(request->joined);
    free(request->body);
}

static bool keep_head(struct http_request *request, const char *bytes, size_t n)
{
    size_t room = request->head_room == 0 ? HEAD_FIRST_BYTES : request->head_room;
    char *head;

    while (room < request->head_bytes + n)
        room *= 2;
    if (room != request->head_room) {
        head = realloc(request->head, room);
        if (head == NULL)
            return http_refuse(request, 503, "no memory for the head");
        request->head = head;
        request->head_room = room;
    }
    memcpy(request->head + request->head_bytes, bytes, n);
    request->head_bytes += n;
    return true;
}

static bool refuse_length(struct http_request *request)
{
    if (request->lines == 0)
        return http_refuse(request, 414, "the request line is too long");
    return http_refuse(request, 431, "the header fields are too long");
}

/* A line has come to its line feed. *end: it was the empty one behind the fields. */
static bool end_line(struct http_request *request, bool *end)
{
    size_t bytes = request->head_bytes - request->line;

    if (bytes < 2 || request->head[request->head_bytes - 2] != '\r')
        return http_refuse(request, 400, "a line feed without a carriage return");
    *end = bytes == 2 && request->lines > 0;
    if (bytes > 2) {
        request->lines++;
        if (request->lines > request->bounds->fields + 1)
            return http_refuse(request, 431, "too many header fields");
    } else if (request->lines == 0) {
        request->blank_bytes += bytes;
        request->head_bytes = 0;
        if (request->blank_bytes > BLANK_BYTES)
            return http_refuse(request, 400, "empty lines instead of a request");
    }
    request->line = request->head_bytes;
    return true;
}

/* Both readers have seen the head: they agree, or it is refused. */
static bool begin_body(struct http_request *request)
{
    const llhttp_t *reader = &request->reader;

    if (!http_head_check(request) || !read_on(request, request->head, request->head_bytes))
        return false;
    if (!request->read_head || ((reader->flags & F_CHUNKED) != 0) != request->chunked ||
        (!request->chunked && !request->read_whole && reader->content_length != request->length) ||
        request->read_whole != (!request->chunked && request->length == 0))
        return http_refuse(request, 400, "the length of the body can be read in two ways");
    if (!http_head_finish(request))
        return false;
    request->left = request->length;
    request->place = request->chunked ? HTTP_CHUNK_FIRST : request->length > 0 ? HTTP_IN_LENGTH : HTTP_AT_END;
    return true;
}

static enum http_step feed_head(struct http_request *request, const char *bytes, size_t n, size_t *used)
{
    bool end = false;

    while (*used < n && !end) {
        size_t room = request->bounds->head_bytes - request->blank_bytes - request->head_bytes;
        size_t take = n - *used < room ? n - *used : room;
        const char *feed = memchr(bytes + *used, '\n', take);

        if (feed != NULL)
            take = (size_t)(feed - bytes) - *used + 1;
        if (!keep_head(request, bytes + *used, take))
            return HTTP_STEP_REFUSED;
        *used += take;
        if (feed == NULL && *used < n)
            return refuse_length(request), HTTP_STEP_REFUSED;
        if (feed != NULL && !end_line(request, &end))
            return HTTP_STEP_REFUSED;
    }
    if (!end)
        return HTTP_STEP_MORE;
    return begin_body(request) ? HTTP_STEP_HEAD : HTTP_STEP_REFUSED;
}

/* ---- The body ---- */

/* The bytes in front of what was refused here: llhttp may refuse one of them, which comes first then, as it would in
 * smaller pieces. */
static bool refuse_behind(struct http_request *request, const char *bytes, size_t n)
{
    int status = request->status;
    const char *reason = request->reason;

    request->status = 0;
    return read_on(request, bytes, n) && http_refuse(request, status, reason);
}

static enum http_step feed_body(struct http_request *request, const char *bytes, size_t n, size_t *used)
{
    if (request->place == HTTP_AT_END)
        return HTTP_STEP_WHOLE;
    if (request->place == HTTP_IN_LENGTH) {
        *used = n < request->left ? n : (size_t)request->left;
        request->left -= *used;
        if (request->left == 0)
            request->place = HTTP_AT_END;
    } else if (!http_chunks_take(request, bytes, n, used)) {
        return refuse_behind(request, bytes, *used), HTTP_STEP_REFUSED;
    }
    if (!read_on(request, bytes, *used))
        return HTTP_STEP_REFUSED;
    if (request->read_whole != (request->place == HTTP_AT_END) ||
        (request->read_whole && request->body_bytes != request->length))
        return http_refuse(request, 400, "the end of the body can be read in two ways"), HTTP_STEP_REFUSED;
    return request->place == HTTP_AT_END ? HTTP_STEP_WHOLE : HTTP_STEP_MORE;
}

enum http_step http_request_feed(struct http_request *request, const char *bytes, size_t n, size_t *used)
{
    *used = 0;
    if (request->status != 0)
        return HTTP_STEP_REFUSED;
    if (request->place != HTTP_IN_HEAD)
        return feed_body(request, bytes, n, used);
    return feed_head(request, bytes, n, used);
}

const char *http_request_field(const struct http_request *request, const char *name)
{
    for (size_t i = 0; request->finished && i < request->n_fields; i++)
        if (strcasecmp(request->fields[i].name, name) == 0)
            return request->fields[i].value;
    return NULL;
}
