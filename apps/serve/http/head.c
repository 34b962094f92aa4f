/* See parse.h: the head by the grammar of RFC 9112 (sections 3, 5 and 6) and of RFC 9110 (5.6.2, 5.5). */
#include "parse.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool http_is_token(unsigned char byte)
{
    if ((byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z'))
        return true;
    return byte != 0 && strchr("!#$%&'*+-.^_`|~", byte) != NULL;
}

bool http_is_text(unsigned char byte)
{
    return byte == '\t' || (byte >= ' ' && byte != 127);
}

/* ---- Request line ---- */

static bool check_version(struct http_request *request, const char *version, const char *end)
{
    static const char name[] = "HTTP/";
    size_t n = sizeof name - 1;

    if ((size_t)(end - version) != n + 3 || memcmp(version, name, n) != 0 || version[n] < '0' || version[n] > '9' ||
        version[n + 1] != '.' || version[n + 2] < '0' || version[n + 2] > '9')
        return http_refuse(request, 400, "the request line does not end in a version of HTTP");
    if (version[n] != '1' || version[n + 2] > '1')
        return http_refuse(request, 505, "only versions 1.1 and 1.0 are spoken here");
    request->one_zero = version[n + 2] == '0';
    return true;
}

/* line..end without its line end. */
static bool check_request_line(struct http_request *request, char *line, const char *end)
{
    char *at = line;

    while (at < end && http_is_token((unsigned char)*at))
        at++;
    request->method_bytes = (size_t)(at - line);
    if (at == line || at == end || *at != ' ')
        return http_refuse(request, 400, "the request line does not begin with a method");
    request->target = ++at;
    while (at<end && * at> ' ' && *at < 127)
        at++;
    request->target_bytes = (size_t)(at - request->target);
    if (at == request->target || at == end || *at != ' ')
        return http_refuse(request, 400, "the request line has no proper target");
    if (!check_version(request, at + 1, end))
        return false;
    if (request->method_bytes == 7 && memcmp(line, "CONNECT", 7) == 0)
        return http_refuse(request, 501, "this is no proxy");
    return true;
}

/* ---- Fields ---- */

static bool check_field(struct http_request *request, char *line, const char *end)
{
    struct http_field *field = &request->fields[request->n_fields];
    char *at = line;

    if (*line == ' ' || *line == '\t')
        return http_refuse(request, 400, "a header field is folded");
    while (at < end && http_is_token((unsigned char)*at))
        at++;
    if (at == line || at == end || *at != ':')
        return http_refuse(request, 400, "a header field does not begin with a name and a colon");
    field->name = line;
    field->name_bytes = (uint32_t)(at - line);
    for (at++; at < end && (*at == ' ' || *at == '\t'); at++)
        ;
    field->value = at;
    for (; at < end; at++)
        if (!http_is_text((unsigned char)*at))
            return http_refuse(request, 400, "a header field has a control character in it");
    while (at > field->value && (at[-1] == ' ' || at[-1] == '\t'))
        at--;
    field->value_bytes = (uint32_t)(at - field->value);
    request->n_fields++;
    return true;
}

static bool check_lines(struct http_request *request)
{
    char *at = request->head;
    const char *end = at + request->head_bytes - 2; /* the empty line */

    if (request->lines > 1) {
        request->fields = malloc((request->lines - 1) * sizeof *request->fields);
        if (request->fields == NULL)
            return http_refuse(request, 503, "no memory for the header fields");
    }
    for (bool first = true; at < end; first = false) {
        char *feed = memchr(at, '\n', (size_t)(end - at));

        if (first ? !check_request_line(request, at, feed - 1) : !check_field(request, at, feed - 1))
            return false;
        at = feed + 1;
    }
    return true;
}

/* ---- What the fields say of the body ---- */

static bool is_field(const struct http_field *field, const char *name)
{
    return field->name_bytes == strlen(name) && strncasecmp(field->name, name, field->name_bytes) == 0;
}

/* The only field of this name; NULL: there is none. False: there are several. */
static bool find_only(const struct http_request *request, const char *name, const struct http_field **found)
{
    *found = NULL;
    for (size_t i = 0; i < request->n_fields; i++) {
        if (!is_field(&request->fields[i], name))
            continue;
        if (*found != NULL)
            return false;
        *found = &request->fields[i];
    }
    return true;
}

static bool check_host(struct http_request *request)
{
    const struct http_field *host;

    if (!find_only(request, "host", &host) || (host == NULL && !request->one_zero))
        return http_refuse(request, 400, "a request names its host once");
    for (size_t i = 0; host != NULL && i < host->value_bytes; i++) {
        unsigned char byte = (unsigned char)host->value[i];

        if (byte <= ' ' || byte >= 127 || strchr("\"/?#@\\<>^`{|}", byte) != NULL)
            return http_refuse(request, 400, "the host is none");
    }
    return true;
}

static bool take_length(struct http_request *request, const struct http_field *field)
{
    bool digits = field->value_bytes > 0;

    for (size_t i = 0; digits && i < field->value_bytes; i++)
        digits = field->value[i] >= '0' && field->value[i] <= '9';
    if (!digits)
        return http_refuse(request, 400, "the content length is no number");
    for (size_t i = 0; i < field->value_bytes; i++) {
        if (request->length >= UINT64_C(1000000000000000000))
            return http_refuse(request, 413, "the body is too long");
        request->length = request->length * 10 + (uint64_t)(field->value[i] - '0');
    }
    if (request->length > request->bounds->body_bytes)
        return http_refuse(request, 413, "the body is too long");
    return true;
}

static bool check_body(struct http_request *request)
{
    const struct http_field *length, *coding;

    if (!find_only(request, "content-length", &length))
        return http_refuse(request, 400, "two content lengths");
    if (!find_only(request, "transfer-encoding", &coding))
        return http_refuse(request, 400, "two transfer encodings");
    if (coding != NULL && (length != NULL || request->one_zero))
        return http_refuse(request, 400, length != NULL ? "a content length beside chunks" : "chunks in HTTP/1.0");
    if (coding != NULL && (coding->value_bytes != 7 || strncasecmp(coding->value, "chunked", 7) != 0))
        return http_refuse(request, 501, "the only transfer encoding is chunked");
    request->chunked = coding != NULL;
    return length == NULL || take_length(request, length);
}

static bool check_expectation(struct http_request *request)
{
    const struct http_field *expect;

    if (!find_only(request, "expect", &expect))
        return http_refuse(request, 417, "two expectations");
    if (expect == NULL || request->one_zero)
        return true;
    if (expect->value_bytes != 12 || strncasecmp(expect->value, "100-continue", 12) != 0)
        return http_refuse(request, 417, "the only expectation is 100-continue");
    request->expects = true;
    return true;
}

/* ---- Texts ---- */

/* The values of all fields with the name of field i, behind each other; the others lose their names. A line has four
 * bytes beside name and value, so that what is joined is no longer than the head. */
static char *join(struct http_request *request, size_t i, char *to)
{
    struct http_field *field = &request->fields[i];
    char *begin = to;

    for (size_t j = i; j < request->n_fields; j++) {
        struct http_field *other = &request->fields[j];

        if (strcasecmp(other->name, field->name) != 0)
            continue;
        if (j > i)
            to = stpcpy(to, ", ");
        to = stpcpy(to, other->value);
        if (j > i)
            other->name[0] = '\0';
    }
    field->value = begin;
    return to + 1;
}

static bool join_fields(struct http_request *request)
{
    char *to = NULL;

    for (size_t i = 0; i < request->n_fields; i++) {
        bool more = false;

        for (size_t j = i + 1; j < request->n_fields && !more && request->fields[i].name[0] != '\0'; j++)
            more = strcasecmp(request->fields[i].name, request->fields[j].name) == 0;
        if (!more)
            continue;
        if (to == NULL)
            to = request->joined = malloc(request->head_bytes);
        if (to == NULL)
            return http_refuse(request, 503, "no memory for the header fields");
        to = join(request, i, to);
    }
    return true;
}

bool http_head_check(struct http_request *request)
{
    int status = 0;
    const char *reason = NULL;

    if (!check_lines(request))
        return false;
    if (check_host(request) && check_body(request) && check_expectation(request))
        return true;
    status = request->status; /* all that is asked is known: the refusal may tell of it */
    reason = request->reason;
    http_head_finish(request);
    return http_refuse(request, status, reason);
}

bool http_head_finish(struct http_request *request)
{
    const char *reason;
    bool any;

    request->head[request->method_bytes] = '\0';
    request->method = request->head;
    any = strcmp(request->method, "OPTIONS") == 0;
    if (!http_target_split(request->target, request->target_bytes, any, request->bounds->names, &request->path,
                           &request->query, &reason))
        return http_refuse(request, 400, reason);
    for (size_t i = 0; i < request->n_fields; i++) {
        request->fields[i].name[request->fields[i].name_bytes] = '\0';
        request->fields[i].value[request->fields[i].value_bytes] = '\0';
    }
    request->finished = true;
    return join_fields(request);
}
