/* See one_line.h. */
#include "base/one_line.h"

#include <string.h>

#include "base/utf8.h"

void rn_one_line(char *out, size_t capacity, const char *in)
{
    static const char hex[] = "0123456789abcdef";
    size_t n = 0, k;

    for (; *in != '\0' && n + 5 < capacity; in += k > 0 ? k : 1) {
        unsigned char byte = (unsigned char)*in;

        k = rn_utf8_check_one(in, strnlen(in, 4));
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
}
