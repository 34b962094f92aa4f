/* Well-formedness of UTF-8 after RFC 3629: no overlong forms, no surrogates, nothing beyond U+10FFFF. */
#include "base/utf8.h"

#include <string.h>

uint32_t rn_utf8_check_one(const char *text, size_t n)
{
    const unsigned char *t = (const unsigned char *)text;
    uint32_t length = rn_utf8_length(t[0]);
    uint32_t i;

    if (length <= 1)
        return length;
    if (length > n || !rn_utf8_second(t[0], t[1]))
        return 0;
    for (i = 2; i < length; i++) {
        if ((t[i] & 0xc0) != 0x80)
            return 0;
    }
    return length;
}

bool rn_utf8_valid(const char *text, size_t n)
{
    size_t at = 0;

    while (at < n) {
        uint32_t length;

        if (n - at >= 8) { /* eight ASCII bytes at once */
            uint64_t word;

            memcpy(&word, text + at, sizeof word);
            if ((word & 0x8080808080808080u) == 0) {
                at += 8;
                continue;
            }
        }
        length = rn_utf8_check_one(text + at, n - at);
        if (length == 0)
            return false;
        at += length;
    }
    return true;
}
