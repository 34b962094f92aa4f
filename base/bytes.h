/* Numbers as they stand in files, whatever the machine: little end first.
 * Threads: any; nothing here has state. */
#ifndef RN_BASE_BYTES_H
#define RN_BASE_BYTES_H

#include <stdint.h>

/* The lowest `bytes` bytes of the value, at most 8, to at[bytes]. */
static inline void rn_bytes_put(unsigned char *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

/* The number at[bytes], at most 8. */
static inline uint64_t rn_bytes_get(const unsigned char *at, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

#endif
