/* Characters of UTF-8, for the program and the server: the library's own (base/utf8.h) is no part of its interface. */
#ifndef RN_APPS_UTF8_H
#define RN_APPS_UTF8_H

#include <stddef.h>

/* Bytes of a character that begins with this one; 0: none does (RFC 3629). */
static inline size_t app_utf8_of(unsigned char first)
{
    return first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
}

/* Bytes of the character at text[0..n), n > 0; 0: there is none (overlong ones and surrogates are none). */
static inline size_t app_utf8_length(const unsigned char *text, size_t n)
{
    unsigned char first = text[0];
    size_t length = app_utf8_of(first);

    if (length > n)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if ((first == 0xe0 && text[1] < 0xa0) || (first == 0xed && text[1] > 0x9f) || (first == 0xf0 && text[1] < 0x90) ||
        (first == 0xf4 && text[1] > 0x8f))
        return 0;
    return length;
}

#endif
