/* References of schemas: see uri.h.
 *
 *     scheme:...         is itself
 *     //host/...         takes the base's scheme
 *     /path              takes the base's scheme and host
 *     path               replaces what stands behind the base's last slash
 *     nothing            is the base */
#include "sampling/grammar/schema/uri.h"

#include <string.h>

#include "base/hex.h"
#include "base/utf8.h"

/* Bytes of "scheme:" in front; 0: none. */
static size_t scheme_bytes(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool letter = (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z');
        bool other = (text[i] >= '0' && text[i] <= '9') || text[i] == '+' || text[i] == '-' || text[i] == '.';

        if (text[i] == ':')
            return i > 0 ? i + 1 : 0;
        if (!letter && !(other && i > 0))
            return 0;
    }
    return 0;
}

/* Bytes of "scheme://host" in front. */
static size_t host_bytes(const char *text, size_t n)
{
    size_t at = scheme_bytes(text, n);

    if (at + 2 > n || memcmp(text + at, "//", 2) != 0)
        return at;
    for (at += 2; at < n && text[at] != '/' && text[at] != '?'; at++)
        ;
    return at;
}

/* Removes "." and ".." from the path behind `host`, in place; returns the bytes that are left. */
static size_t remove_dots(char *text, size_t host, size_t n)
{
    size_t in = host, out = host;

    while (in < n) {
        size_t end = in + 1;

        while (end < n && text[end] != '/')
            end++;
        if (end - in == 2 && memcmp(text + in, "/.", 2) == 0) {
            out += end == n;
        } else if (end - in == 3 && memcmp(text + in, "/..", 3) == 0) {
            while (out > host && text[--out] != '/')
                ;
            out += end == n;
        } else {
            memmove(text + out, text + in, end - in);
            out += end - in;
        }
        in = end;
    }
    return out;
}

static const struct rn_str *decode(struct rn_arena *arena, const char *text, size_t n)
{
    char *out = rn_arena_take(arena, n + 1, 1);
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        bool coded = text[i] == '%' && i + 2 < n && rn_hex_value(text[i + 1]) >= 0 && rn_hex_value(text[i + 2]) >= 0;

        out[at++] = coded ? (char)(rn_hex_value(text[i + 1]) * 16 + rn_hex_value(text[i + 2])) : text[i];
        i += coded ? 2 : 0;
    }
    if (!rn_utf8_valid(out, at))
        return rn_str_borrow(arena, text, n, RN_ORIGIN_DATA);
    return rn_str_borrow(arena, out, at, RN_ORIGIN_DATA);
}

const struct rn_str *rn_uri_resolve(struct rn_arena *arena, const struct rn_str *base, const struct rn_str *reference,
                                    const struct rn_str **fragment)
{
    const char *hash = memchr(reference->bytes, '#', reference->n), *ref = reference->bytes;
    size_t n = hash != NULL ? (size_t)(hash - ref) : reference->n, keep, host;
    char *out = rn_arena_take(arena, base->n + n + 2, 1);

    *fragment =
        hash == NULL ? rn_str_borrow(arena, "", 0, RN_ORIGIN_DATA) : decode(arena, hash + 1, reference->n - n - 1);
    if (n == 0)
        return base;
    if (scheme_bytes(ref, n) > 0)
        keep = 0;
    else if (n >= 2 && memcmp(ref, "//", 2) == 0)
        keep = scheme_bytes(base->bytes, base->n);
    else if (ref[0] == '/')
        keep = host_bytes(base->bytes, base->n);
    else
        for (keep = base->n; keep > host_bytes(base->bytes, base->n) && base->bytes[keep - 1] != '/'; keep--)
            ;
    memcpy(out, base->bytes, keep);
    host = keep > 0 ? host_bytes(base->bytes, base->n) : host_bytes(ref, n);
    if (keep > 0 && keep == host && ref[0] != '/')
        out[keep++] = '/';
    memcpy(out + keep, ref, n);
    return rn_str_borrow(arena, out, remove_dots(out, host, keep + n), RN_ORIGIN_DATA);
}
