/* Hexadecimal digits.
 * Threads: any; nothing here has state. */
#ifndef RN_BASE_HEX_H
#define RN_BASE_HEX_H

/* The value of a digit, in capitals or not: 0 to 15; -1: it is none. */
static inline int rn_hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

#endif
