/* See parse.h: the sizes of chunks and the trailer, byte by byte (RFC 9112, section 7.1). Stricter than it must
 * be: no blanks around a size. Extensions and trailers are ignored, and bounded: all bytes that are not body together
 * may be as long as a head, and 16 for each byte of the body. */
#include "parse.h"

#define FRAMING_PER_BYTE 16

static int digit_of(unsigned char byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static bool go(struct http_request *request, enum http_place place)
{
    request->place = place;
    return true;
}

static bool wrong(struct http_request *request)
{
    return http_refuse(request, 400, "the chunks are no proper ones");
}

static bool take_digit(struct http_request *request, int digit)
{
    request->left = request->left * 16 + (uint64_t)digit;
    if (request->left > request->bounds->body_bytes - request->length)
        return http_refuse(request, 413, "the body is too long");
    return go(request, HTTP_CHUNK_SIZE);
}

static bool take_size(struct http_request *request, unsigned char byte)
{
    int digit = digit_of(byte);

    if (digit >= 0)
        return take_digit(request, digit);
    if (request->place == HTTP_CHUNK_SIZE && byte == ';')
        return go(request, HTTP_CHUNK_EXTRA);
    if (request->place == HTTP_CHUNK_SIZE && byte == '\r')
        return go(request, HTTP_CHUNK_LINE);
    return wrong(request);
}

static bool take_trailer(struct http_request *request, unsigned char byte)
{
    if (request->place == HTTP_TRAILER_FIRST && byte == '\r')
        return go(request, HTTP_LAST_FEED);
    if (request->place == HTTP_TRAILER_NAME && byte == ':')
        return go(request, HTTP_TRAILER_VALUE);
    return http_is_token(byte) ? go(request, HTTP_TRAILER_NAME) : wrong(request);
}

/* Text up to a carriage return. */
static bool take_text(struct http_request *request, unsigned char byte, enum http_place behind)
{
    if (byte == '\r')
        return go(request, behind);
    return http_is_text(byte) || wrong(request);
}

static bool take_feed(struct http_request *request, unsigned char byte, enum http_place behind)
{
    return byte == '\n' ? go(request, behind) : wrong(request);
}

static bool take_line(struct http_request *request, unsigned char byte)
{
    request->length += request->left;
    return take_feed(request, byte, request->left == 0 ? HTTP_TRAILER_FIRST : HTTP_CHUNK_DATA);
}

static bool take_byte(struct http_request *request, unsigned char byte)
{
    request->framing++;
    if (request->framing > request->bounds->head_bytes + FRAMING_PER_BYTE * request->length)
        return http_refuse(request, 400, "the chunks are mostly something else than body");
    switch (request->place) {
    case HTTP_CHUNK_FIRST:
    case HTTP_CHUNK_SIZE:
        return take_size(request, byte);
    case HTTP_CHUNK_EXTRA:
        return take_text(request, byte, HTTP_CHUNK_LINE);
    case HTTP_CHUNK_LINE:
        return take_line(request, byte);
    case HTTP_CHUNK_RETURN:
        return byte == '\r' ? go(request, HTTP_CHUNK_FEED) : wrong(request);
    case HTTP_CHUNK_FEED:
        return take_feed(request, byte, HTTP_CHUNK_FIRST);
    case HTTP_TRAILER_FIRST:
    case HTTP_TRAILER_NAME:
        return take_trailer(request, byte);
    case HTTP_TRAILER_VALUE:
        return take_text(request, byte, HTTP_TRAILER_FEED);
    case HTTP_TRAILER_FEED:
        return take_feed(request, byte, HTTP_TRAILER_FIRST);
    case HTTP_LAST_FEED:
        return take_feed(request, byte, HTTP_AT_END);
    default:
        return wrong(request);
    }
}

bool http_chunks_take(struct http_request *request, const char *bytes, size_t n, size_t *used)
{
    while (*used < n && request->place != HTTP_AT_END) {
        if (request->place == HTTP_CHUNK_DATA) {
            size_t take = n - *used < request->left ? n - *used : (size_t)request->left;

            *used += take;
            request->left -= take;
            if (request->left == 0)
                request->place = HTTP_CHUNK_RETURN;
            continue;
        }
        if (!take_byte(request, (unsigned char)bytes[*used]))
            return false;
        (*used)++;
    }
    return true;
}
