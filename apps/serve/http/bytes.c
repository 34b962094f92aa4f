/* See inside.h: bytes that wait. The memory goes when all have been taken. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES 512

size_t http_bytes_count(const struct http_bytes *bytes)
{
    return bytes->end - bytes->begin;
}

char *http_bytes_reserve(struct http_bytes *bytes, size_t n)
{
    size_t count = http_bytes_count(bytes), room = bytes->room == 0 ? FIRST_BYTES : bytes->room;
    char *at;

    if (n <= bytes->room - bytes->end)
        return bytes->at + bytes->end;
    if (bytes->begin > 0 && bytes->begin >= count) { /* what moves is no longer than what went */
        memmove(bytes->at, bytes->at + bytes->begin, count);
        bytes->begin = 0;
        bytes->end = count;
        if (n <= bytes->room - count)
            return bytes->at + count;
    }
    while (room - bytes->end < n)
        room = room > SIZE_MAX / 2 ? SIZE_MAX : room * 2;
    at = realloc(bytes->at, room);
    if (at == NULL)
        return NULL;
    bytes->at = at;
    bytes->room = room;
    return at + bytes->end;
}

bool http_bytes_add(struct http_bytes *bytes, const char *from, size_t n)
{
    char *to;

    if (n == 0)
        return true;
    to = http_bytes_reserve(bytes, n);
    if (to == NULL)
        return false;
    memcpy(to, from, n);
    bytes->end += n;
    return true;
}

void http_bytes_take(struct http_bytes *bytes, size_t n)
{
    bytes->begin += n;
    if (bytes->begin == bytes->end)
        http_bytes_fini(bytes);
}

void http_bytes_fini(struct http_bytes *bytes)
{
    free(bytes->at);
    *bytes = (struct http_bytes){0};
}
