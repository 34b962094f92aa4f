/* An allocator over libc that counts, and refuses when it is told to. From any threads. */
#ifndef RN_TESTS_BASE_REFUSING_H
#define RN_TESTS_BASE_REFUSING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"

struct refusing {
    _Atomic(uint64_t) calls; /* to allocate, since refusing_allow or since the test set it to 0 */
    uint64_t refuse_at;      /* this call is refused, from 1; 0: none */
    bool for_good;           /* and those after it */
    _Atomic(uint64_t) refused;
    _Atomic(int64_t) live;                     /* pieces that were not given back */
    _Atomic(void *) newest;                    /* piece */
    void (*before)(uint64_t call, void *user); /* each allocation; NULL: nothing */
    void *user;
};

static inline void *refusing_alloc(void *user, size_t bytes, size_t alignment)
{
    struct refusing *r = (struct refusing *)user;
    uint64_t call = atomic_fetch_add(&r->calls, 1) + 1;
    void *ptr = NULL;

    if (r->before != NULL)
        r->before(call, r->user);
    if (r->refuse_at != 0 && (call == r->refuse_at || (r->for_good && call > r->refuse_at))) {
        atomic_fetch_add(&r->refused, 1);
        return NULL;
    }
    if (posix_memalign(&ptr, alignment < sizeof ptr ? sizeof ptr : alignment, bytes) != 0)
        return NULL;
    atomic_fetch_add(&r->live, 1);
    atomic_store(&r->newest, ptr);
    return ptr;
}

static inline void refusing_free(void *user, void *ptr, size_t bytes)
{
    (void)bytes;
    atomic_fetch_sub(&((struct refusing *)user)->live, 1);
    free(ptr);
}

static inline runnel_allocator refusing_hook(struct refusing *r)
{
    return (runnel_allocator){refusing_alloc, refusing_free, r};
}

static inline struct rn_heap refusing_heap(struct refusing *r)
{
    runnel_allocator hook = refusing_hook(r);
    struct rn_heap heap;

    rn_heap_init(&heap, &hook);
    return heap;
}

/* From now on n calls succeed, and no more. */
static inline void refusing_allow(struct refusing *r, uint64_t n)
{
    r->calls = 0;
    r->refuse_at = n + 1;
    r->for_good = true;
}

#endif
