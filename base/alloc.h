/* Memory: the one door to the heap.
 *
 * Every byte the library takes passes a `struct rn_heap`: the host's allocator (a hook of two
 * functions, public in runnel.h) or the default one, plus an exact count of the bytes in use, so
 * that a test can refuse the n-th allocation and ask at the end whether anything is left.
 * malloc and free appear in alloc.c alone.
 *
 * Threads: all functions may be called from any thread on one heap. */
#ifndef RN_BASE_ALLOC_H
#define RN_BASE_ALLOC_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runnel.h"

struct rn_heap {
    runnel_allocator hook;
    int64_t bytes_in_use; /* relaxed counters: statistics, they order nothing */
    int64_t blocks_in_use;
};

/* `hook` NULL: the default allocator (jemalloc where the build has it, else libc). */
void rn_heap_init(struct rn_heap *heap, const runnel_allocator *hook);

/* Bytes asked for and not yet freed. */
size_t rn_heap_bytes(const struct rn_heap *heap);
size_t rn_heap_blocks(const struct rn_heap *heap);

/* count × size bytes, aligned to 16; NULL on refusal or when the product overflows. A product of
 * zero yields a valid pointer. rn_calloc zeroes. */
void *rn_alloc(struct rn_heap *heap, size_t count, size_t size);
void *rn_calloc(struct rn_heap *heap, size_t count, size_t size);

/* Like rn_alloc with an alignment (a power of two, at most 2 MiB); freed with rn_free. */
void *rn_alloc_aligned(struct rn_heap *heap, size_t bytes, size_t alignment);

/* Grows or shrinks to count × size; on refusal returns NULL and the old block stays valid. Only
 * for blocks from rn_alloc and rn_calloc. ptr NULL allocates. */
void *rn_realloc(struct rn_heap *heap, void *ptr, size_t count, size_t size);

/* NULL is allowed. */
void rn_free(struct rn_heap *heap, void *ptr);

/* A copy of bytes[0..n) with a NUL behind it; NULL on refusal. */
char *rn_strndup(struct rn_heap *heap, const char *bytes, size_t n);

/* a × b and a + b; false on overflow (then *out is untouched). */
static inline bool rn_mul_size(size_t a, size_t b, size_t *out)
{
    size_t result;

    if (__builtin_mul_overflow(a, b, &result))
        return false;
    *out = result;
    return true;
}
static inline bool rn_add_size(size_t a, size_t b, size_t *out)
{
    size_t result;

    if (__builtin_add_overflow(a, b, &result))
        return false;
    *out = result;
    return true;
}

#endif
