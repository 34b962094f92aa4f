/* See parse.h: the target of a request (RFC 9112, section 3.2; RFC 3986, section 3.3). Nothing is repaired: a path
 * that another reader could take for a different one is refused. */
#include "parse.h"

#include <string.h>
#include <strings.h>

#include "apps/utf8.h"

static int hex_of(char byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* "http://host/path": the path, "" where there is none. NULL: no such target. */
static char *behind_host(char *target)
{
    size_t scheme = strncasecmp(target, "http://", 7) == 0 ? 7 : strncasecmp(target, "https://", 8) == 0 ? 8 : 0;
    size_t host = scheme == 0 ? 0 : strcspn(target + scheme, "/?");

    if (host == 0 || strpbrk(target + scheme, "@\\") != NULL)
        return NULL;
    return target + scheme + host;
}

/* slashes: an encoded one is one. */
static const char *decode(char *path, bool slashes)
{
    char *to = path;

    for (const char *from = path; *from != '\0'; from++) {
        int high = *from == '%' ? hex_of(from[1]) : 0, low = *from == '%' && high >= 0 ? hex_of(from[2]) : 0;
        char byte = (char)(high * 16 + low);

        if (high < 0 || low < 0)
            return "the path has a percent sign without two digits";
        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        if ((!slashes && (byte == '/' || byte == '\\')) || (byte >= 0 && byte < ' ') || byte == 127)
            return "the path has an encoded slash or control character";
        *to++ = byte;
        from += 2;
    }
    *to = '\0';
    return NULL;
}

/* Empty segments but the last, "." and "..". */
static bool is_crooked(const char *path)
{
    while (*path == '/') {
        size_t n = strcspn(path + 1, "/");

        if ((n == 0 && path[1] == '/') || (n == 1 && path[1] == '.') || (n == 2 && path[1] == '.' && path[2] == '.'))
            return true;
        path += 1 + n;
    }
    return false;
}

static bool refuse(const char **reason, const char *why)
{
    *reason = why;
    return false;
}

bool http_target_split(char *target, size_t n, bool any, const char *names, const char **path, const char **query,
                       const char **reason)
{
    char *begin = target, *mark;

    target[n] = '\0';
    *query = "";
    *path = "/";
    if (any && strcmp(target, "*") == 0)
        return true;
    if (strchr(target, '#') != NULL)
        return refuse(reason, "the target has a fragment");
    if (*begin != '/')
        begin = behind_host(target);
    if (begin == NULL)
        return refuse(reason, "the target is no path");
    mark = strchr(begin, '?');
    if (mark != NULL) {
        *mark = '\0';
        *query = mark + 1;
    }
    if (*begin == '\0')
        return true;
    if (strchr(begin, '\\') != NULL)
        return refuse(reason, "the path has a backslash");
    *reason = decode(begin, names != NULL && strncmp(begin, names, strlen(names)) == 0);
    if (*reason != NULL)
        return false;
    if (is_crooked(begin))
        return refuse(reason, "the path has an empty segment or dots for one");
    for (const unsigned char *at = (unsigned char *)begin, *end = at + strlen(begin); at < end;) {
        size_t bytes = app_utf8_length(at, (size_t)(end - at));

        if (bytes == 0)
            return refuse(reason, "the path is no UTF-8");
        at += bytes;
    }
    *path = begin;
    return true;
}
