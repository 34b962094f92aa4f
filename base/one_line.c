/* See one_line.h. */
#include "base/one_line.h"

#include <string.h>

/* Length of the character of UTF-8 at `text`, which ends with a NUL; 0: there is none (RFC 3629). */
static size_t character_bytes(const unsigned char *text)
{
    unsigned char c = text[0];
    size_t n = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;

    for (size_t i = 1; i < n; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if ((c == 0xe0 && text[1] < 0xa0) || (c == 0xed && text[1] > 0x9f) || (c == 0xf0 && text[1] < 0x90) ||
        (c == 0xf4 && text[1] > 0x8f))
        return 0;
    return n;
}

void rn_one_line(char *out, size_t capacity, const char *in)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *at = (const unsigned char *)in;
    size_t n = 0, k;

    for (; *at != '\0' && n + 5 < capacity; at += k > 0 ? k : 1) {
        k = character_bytes(at);
        if (k > 1 || (k == 1 && *at >= 0x20 && *at != 0x7f)) {
            memcpy(out + n, at, k);
            n += k;
        } else {
            out[n++] = '\\';
            out[n++] = 'x';
            out[n++] = hex[*at >> 4];
            out[n++] = hex[*at & 15];
        }
    }
    out[n] = '\0';
}
