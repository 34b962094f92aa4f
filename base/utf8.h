/* UTF-8, one code point at a time, and whether a text is well-formed. */
#ifndef RN_BASE_UTF8_H
#define RN_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character that begins with this byte, 2..4; 1 for ASCII, 0 where no character does. */
static inline uint32_t rn_utf8_length(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* May `byte` be the second byte after `lead`? Narrower than 80..BF where that would be overlong, a
 * surrogate or beyond U+10FFFF (Unicode 15, table 3-7). */
static inline bool rn_utf8_second(unsigned char lead, unsigned char byte)
{
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;

    return byte >= low && byte <= high;
}

/* The code point at text, which must be well-formed; *n gets its bytes. */
static inline uint32_t rn_utf8_decode(const char *text, uint32_t *n)
{
    const unsigned char *t = (const unsigned char *)text;

    if (t[0] < 0x80) {
        *n = 1;
        return t[0];
    }
    if (t[0] < 0xe0) {
        *n = 2;
        return (t[0] & 0x1fu) << 6 | (t[1] & 0x3fu);
    }
    if (t[0] < 0xf0) {
        *n = 3;
        return (t[0] & 0xfu) << 12 | (t[1] & 0x3fu) << 6 | (t[2] & 0x3fu);
    }
    *n = 4;
    return (t[0] & 7u) << 18 | (t[1] & 0x3fu) << 12 | (t[2] & 0x3fu) << 6 | (t[3] & 0x3fu);
}

/* Writes a code point of at most U+10FFFF to out[4]; returns its bytes. */
static inline uint32_t rn_utf8_encode(uint32_t c, char *out)
{
    uint32_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    uint32_t i;

    if (n == 1) {
        out[0] = (char)c;
        return 1;
    }
    for (i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00 >> n & 0xff) | c);
    return n;
}

/* Bytes of the first character of text[n], n > 0, if it is well-formed; else 0. */
uint32_t rn_utf8_check_one(const char *text, size_t n);

/* True when text[n] is well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms). */
bool rn_utf8_valid(const char *text, size_t n);

#endif
