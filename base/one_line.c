/* See one_line.h. */
#include "base/one_line.h"

#include <stdio.h>
#include <string.h>

#include "base/plain_locale.h"
#include "base/utf8.h"

/* What write_bytes leaves free at most: room for "\xNN" and the end. */
enum { MARGIN = 5 };

static bool write_bytes(char *out, size_t capacity, const char *in, size_t n_in)
{
    static const char hex[] = "0123456789abcdef";
    const char *end = in + n_in;
    size_t n = 0, k;

    for (; in < end && n + MARGIN<capacity; in += k> 0 ? k : 1) {
        unsigned char byte = (unsigned char)*in;

        k = rn_utf8_check_one(in, (size_t)(end - in));
        if (k > 1 || (k == 1 && byte >= 0x20 && byte != 0x7f)) {
            memcpy(out + n, in, k);
            n += k;
        } else {
            out[n++] = '\\';
            out[n++] = 'x';
            out[n++] = hex[byte >> 4];
            out[n++] = hex[byte & 15];
        }
    }
    out[n] = '\0';
    return in == end;
}

bool rn_one_line(char *out, size_t capacity, const char *in)
{
    return write_bytes(out, capacity, in, strlen(in));
}

struct rn_quoted rn_quoted(const char *bytes, size_t n)
{
    struct rn_quoted quoted;

    write_bytes(quoted.text, sizeof quoted.text, bytes, n < RN_QUOTED_MOST ? n : RN_QUOTED_MOST);
    return quoted;
}

/* The end of a name, behind "...": as much of it as out[capacity] holds. */
static void write_end(char *out, size_t capacity, const char *name)
{
    enum { MOST_FOLLOWING = 3 }; /* bytes behind a character's first one */
    char raw[RN_LINE_BYTES];
    size_t n = strlen(name), skip = n > capacity ? n - capacity : 0;

    do {
        skip++;
        for (int i = 0; i < MOST_FOLLOWING && ((unsigned char)name[skip] & 0xc0) == 0x80; i++)
            skip++;
        snprintf(raw, sizeof raw, "...%s", name + skip);
    } while (!rn_one_line(out, capacity, raw) && skip < n);
}

/* A sentence that begins with "%s: ". The name gives way to what is said of it, but for this much. */
static void write_shortened(char *out, size_t capacity, const char *format, va_list args)
{
    enum { LEAST = 48 };
    const char *name = va_arg(args, const char *);
    char said[RN_LINE_BYTES];
    size_t n;

    name = name != NULL ? name : "(null)"; /* as printf has it */
    vsnprintf(said, sizeof said, format + 2, args);
    rn_one_line(out, capacity - LEAST, said);
    n = capacity - strlen(out) - MARGIN;
    if (!rn_one_line(out, n, name))
        write_end(out, n, name);
    n = strlen(out);
    rn_one_line(out + n, capacity - n, said);
}

void rn_one_line_vprint(char *out, size_t capacity, const char *format, va_list args)
{
    const locale_t host = rn_plain_locale();
    char raw[RN_LINE_BYTES];
    va_list again;
    int n;

    va_copy(again, args);
    n = vsnprintf(raw, sizeof raw, format, args);
    if ((!rn_one_line(out, capacity, raw) || n >= (int)sizeof raw) && strncmp(format, "%s: ", 4) == 0)
        write_shortened(out, capacity, format, again);
    va_end(again);
    uselocale(host);
}
