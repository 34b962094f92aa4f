/* Byte strings in pages of one size: a bounded amount of memory in which nothing can be fragmented.
 *
 *   slab 0  [page 0][page 1] ... [page 31]     slab 1  [page 32] ...
 *   string  page 7 -> page 0 -> page 33        next[7] = 0, next[0] = 33; the last one is filled in part
 *
 * Any free page does for any string, so what is lost is the unfilled part of each string's last page. Slabs are taken
 * from the heap when pages run out and given back by fini alone. One owner. */
#ifndef RN_CACHE_STORE_WARM_PAGES_H
#define RN_CACHE_STORE_WARM_PAGES_H

#include "base/alloc.h"

#define RN_WARM_NO_PAGE UINT32_MAX
#define RN_WARM_SLAB_PAGES 32u

struct rn_warm_pages {
    struct rn_heap *heap;
    size_t page_bytes;
    uint32_t max_slabs, n_slabs;
    unsigned char **slabs; /* [max_slabs] */
    uint32_t *next;        /* [max_slabs × RN_WARM_SLAB_PAGES] */
    uint32_t first_free, n_free;
};

/* NO_MEMORY: nothing is held. max_slabs at least 1. */
runnel_status rn_warm_pages_init(struct rn_warm_pages *pages, struct rn_heap *heap, size_t page_bytes,
                                 uint32_t max_slabs);

/* Harmless on a zeroed one. */
void rn_warm_pages_fini(struct rn_warm_pages *pages);

/* Bytes of a slab; bytes of what is taken by init, in all. */
size_t rn_warm_pages_slab(size_t page_bytes);
size_t rn_warm_pages_fixed(uint32_t max_slabs);

/* Pages for a string of n bytes. */
static inline uint32_t rn_warm_pages_for(const struct rn_warm_pages *pages, size_t n)
{
    return (uint32_t)((n + pages->page_bytes - 1) / pages->page_bytes);
}

/* True: at least n pages are free, perhaps after taking slabs. */
bool rn_warm_pages_have(struct rn_warm_pages *pages, uint32_t n);

/* Keeps bytes[n], n > 0; rn_warm_pages_have was true for it. Returns its first page. */
uint32_t rn_warm_pages_write(struct rn_warm_pages *pages, const void *bytes, size_t n);

/* The string of n bytes that begins in the page. */
void rn_warm_pages_read(const struct rn_warm_pages *pages, uint32_t first, void *bytes, size_t n);
void rn_warm_pages_free(struct rn_warm_pages *pages, uint32_t first, size_t n);

/* True: there are as many free pages as are counted. Linear in the pages. */
bool rn_warm_pages_check(const struct rn_warm_pages *pages);

#endif
