/* Structs of the public interface that carry their size: filled and read by the size that the caller was compiled with.
 *
 *     of an older header    | struct_size | known to both ... |
 *     of this library       | struct_size | known to both ... | newer members |
 *
 * No public struct has padding (tests/headers), and its size is a multiple of a size_t's, its first member: a size that
 * is none is no header's, and would cut a pointer in two. */
#ifndef RN_BASE_SIZED_H
#define RN_BASE_SIZED_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* The size of a struct whose last member was `last` in the first version of the header: what the functions write that
 * are not told a size, since only programs made for that version call them. */
#define RN_FIRST_SIZE(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

/* True where a caller's struct_size can be of this library's header or of an older one. */
static inline bool rn_sized_known(size_t struct_size, size_t own_size)
{
    return struct_size >= sizeof(size_t) && struct_size <= own_size && struct_size % sizeof(size_t) == 0;
}

/* Copies `own` (own_size bytes, struct_size first) over the caller's struct: at most struct_size bytes, with
 * struct_size as its first member. What a newer header has besides becomes zero. */
static inline void rn_sized_write(void *to, size_t struct_size, const void *own, size_t own_size)
{
    size_t n = struct_size < own_size ? struct_size : own_size;

    if (to == NULL || struct_size < sizeof(size_t))
        return;
    memcpy(to, own, n);
    memset((char *)to + n, 0, struct_size - n);
    memcpy(to, &struct_size, sizeof struct_size);
}

/* Copies the caller's struct over `own`, which has the defaults. False, and nothing is copied: NULL, or a struct_size
 * that is not known. */
static inline bool rn_sized_read(void *own, size_t own_size, const void *from)
{
    size_t struct_size = 0;

    if (from == NULL)
        return false;
    memcpy(&struct_size, from, sizeof struct_size);
    if (!rn_sized_known(struct_size, own_size))
        return false;
    memcpy(own, from, struct_size);
    return true;
}

/* True when all n bytes are zero: members that are reserved. */
static inline bool rn_all_zero(const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((const unsigned char *)bytes)[i] != 0)
            return false;
    return true;
}

#endif
