/* The default allocator, the header in front of each block, and the counters: see alloc.h.
 *
 * Picture of a block:   | padding | header 16 bytes | user bytes ... |
 *                       ^ what the hook returned    ^ what the caller gets
 *
 * The header remembers the user bytes and the distance back to the hook's pointer. */
#include "base/alloc.h"

#include <string.h>

#include "base/check.h"

#ifdef RN_WITH_JEMALLOC
#include <jemalloc/jemalloc.h>
#else
#include <stdlib.h>
#endif

struct header {
    uint64_t bytes;    /* user bytes */
    uint32_t distance; /* from the hook's pointer to the user's */
    uint32_t alignment;
};
static_assert(sizeof(struct header) == 16, "the header keeps 16-byte alignment");

static void *default_alloc(void *user, size_t bytes, size_t alignment)
{
    void *ptr = NULL;

    (void)user;
    return posix_memalign(&ptr, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes) == 0 ? ptr : NULL;
}

static void default_free(void *user, void *ptr, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(ptr);
}

void rn_heap_init(struct rn_heap *heap, const runnel_allocator *hook)
{
    heap->bytes_in_use = 0;
    heap->blocks_in_use = 0;
    if (hook != NULL && hook->alloc != NULL)
        heap->hook = *hook;
    else
        heap->hook = (runnel_allocator){default_alloc, default_free, NULL};
}

/* Both counters are relaxed: each is exact once the threads that changed it have been joined. */
static void count(struct rn_heap *heap, int64_t bytes, int64_t blocks)
{
    __atomic_fetch_add(&heap->bytes_in_use, bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&heap->blocks_in_use, blocks, __ATOMIC_RELAXED);
}

size_t rn_heap_bytes(const struct rn_heap *heap)
{
    return (size_t)__atomic_load_n(&heap->bytes_in_use, __ATOMIC_RELAXED);
}

size_t rn_heap_blocks(const struct rn_heap *heap)
{
    return (size_t)__atomic_load_n(&heap->blocks_in_use, __ATOMIC_RELAXED);
}

void *rn_alloc_aligned(struct rn_heap *heap, size_t bytes, size_t alignment)
{
    size_t distance = alignment < sizeof(struct header) ? sizeof(struct header) : alignment;
    size_t total;
    char *raw;
    struct header *h;

    RN_CHECK((alignment & (alignment - 1)) == 0 && alignment <= (1u << 21));
    if (!rn_add_size(bytes, distance, &total))
        return NULL;
    raw = heap->hook.alloc(heap->hook.user, total, distance);
    if (raw == NULL)
        return NULL;
    h = (struct header *)(raw + distance) - 1;
    *h = (struct header){bytes, (uint32_t)distance, (uint32_t)alignment};
    count(heap, (int64_t)bytes, 1);
    return raw + distance;
}

void *rn_alloc(struct rn_heap *heap, size_t n, size_t size)
{
    size_t bytes;

    return rn_mul_size(n, size, &bytes) ? rn_alloc_aligned(heap, bytes, 16) : NULL;
}

void *rn_calloc(struct rn_heap *heap, size_t n, size_t size)
{
    void *ptr = rn_alloc(heap, n, size);

    if (ptr != NULL)
        memset(ptr, 0, n * size);
    return ptr;
}

void rn_free(struct rn_heap *heap, void *ptr)
{
    struct header h;

    if (ptr == NULL)
        return;
    h = ((struct header *)ptr)[-1];
    count(heap, -(int64_t)h.bytes, -1);
    heap->hook.free(heap->hook.user, (char *)ptr - h.distance, (size_t)h.bytes + h.distance);
}

void *rn_realloc(struct rn_heap *heap, void *ptr, size_t n, size_t size)
{
    void *fresh = rn_alloc(heap, n, size);
    size_t old;

    if (fresh == NULL || ptr == NULL)
        return fresh;
    old = (size_t)((struct header *)ptr)[-1].bytes;
    memcpy(fresh, ptr, old < n * size ? old : n * size);
    rn_free(heap, ptr);
    return fresh;
}

char *rn_strndup(struct rn_heap *heap, const char *bytes, size_t n)
{
    char *copy = n == SIZE_MAX ? NULL : rn_alloc(heap, n + 1, 1);

    if (copy != NULL) {
        if (n > 0)
            memcpy(copy, bytes, n);
        copy[n] = '\0';
    }
    return copy;
}
