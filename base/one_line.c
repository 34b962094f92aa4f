/* See one_line.h. */
#include "base/one_line.h"

/* Of text[0..n), which was cut there, what is left without the beginning of a character of UTF-8 at its end. */
static size_t whole_characters(const char *text, size_t n)
{
    size_t tail = 0, needed;
    unsigned char lead;

    while (tail < 3 && tail < n && ((unsigned char)text[n - 1 - tail] & 0xc0) == 0x80)
        tail++;
    if (tail == n)
        return n;
    lead = (unsigned char)text[n - 1 - tail];
    needed = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    return needed > tail + 1 ? n - 1 - tail : n;
}

void rn_one_line(char *out, size_t capacity, const char *in)
{
    static const char hex[] = "0123456789abcdef";
    size_t n = 0;

    for (; *in != '\0' && n + 5 < capacity; in++) {
        unsigned char c = (unsigned char)*in;

        if (c >= 0x20 && c != 0x7f) {
            out[n++] = (char)c;
        } else {
            out[n++] = '\\';
            out[n++] = 'x';
            out[n++] = hex[c >> 4];
            out[n++] = hex[c & 15];
        }
    }
    out[*in != '\0' ? whole_characters(out, n) : n] = '\0';
}
