/* See warm_pages.h. */
#include "cache/store/warm_pages.h"

#include <string.h>

#include "base/check.h"

runnel_status rn_warm_pages_init(struct rn_warm_pages *pages, struct rn_heap *heap, size_t page_bytes,
                                 uint32_t max_slabs)
{
    *pages = (struct rn_warm_pages){
        .heap = heap, .page_bytes = page_bytes, .max_slabs = max_slabs, .first_free = RN_WARM_NO_PAGE};
    pages->slabs = rn_alloc(heap, max_slabs, sizeof *pages->slabs);
    pages->next = rn_alloc(heap, max_slabs, RN_WARM_SLAB_PAGES * sizeof *pages->next);
    if (pages->slabs != NULL && pages->next != NULL)
        return RUNNEL_OK;
    rn_warm_pages_fini(pages);
    return RUNNEL_NO_MEMORY;
}

void rn_warm_pages_fini(struct rn_warm_pages *pages)
{
    for (uint32_t i = 0; i < pages->n_slabs; i++)
        rn_free(pages->heap, pages->slabs[i]);
    if (pages->heap != NULL) {
        rn_free(pages->heap, pages->slabs);
        rn_free(pages->heap, pages->next);
    }
    *pages = (struct rn_warm_pages){.heap = NULL};
}

size_t rn_warm_pages_slab(size_t page_bytes)
{
    return RN_WARM_SLAB_PAGES * page_bytes;
}

size_t rn_warm_pages_fixed(uint32_t max_slabs)
{
    return max_slabs * (sizeof(unsigned char *) + RN_WARM_SLAB_PAGES * sizeof(uint32_t));
}

static unsigned char *page_at(const struct rn_warm_pages *pages, uint32_t page)
{
    RN_CHECK(page / RN_WARM_SLAB_PAGES < pages->n_slabs);
    return pages->slabs[page / RN_WARM_SLAB_PAGES] + page % RN_WARM_SLAB_PAGES * pages->page_bytes;
}

static void give(struct rn_warm_pages *pages, uint32_t page)
{
    RN_CHECK(page / RN_WARM_SLAB_PAGES < pages->n_slabs);
    RN_ASSERT(pages->n_free < pages->n_slabs * RN_WARM_SLAB_PAGES);
    pages->next[page] = pages->first_free;
    pages->first_free = page;
    pages->n_free++;
}

bool rn_warm_pages_have(struct rn_warm_pages *pages, uint32_t n)
{
    while (pages->n_free < n && pages->n_slabs < pages->max_slabs) {
        uint32_t first = pages->n_slabs * RN_WARM_SLAB_PAGES;
        unsigned char *slab = rn_alloc(pages->heap, RN_WARM_SLAB_PAGES, pages->page_bytes);

        if (slab == NULL)
            return false;
        pages->slabs[pages->n_slabs++] = slab;
        for (uint32_t i = RN_WARM_SLAB_PAGES; i-- > 0;)
            give(pages, first + i);
        RN_ASSERT(pages->n_slabs <= pages->max_slabs && pages->first_free == first);
    }
    return pages->n_free >= n;
}

uint32_t rn_warm_pages_write(struct rn_warm_pages *pages, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    uint32_t first = pages->first_free, page = first, n_left = pages->n_free - rn_warm_pages_for(pages, n);

    RN_CHECK(n > 0 && pages->n_free >= rn_warm_pages_for(pages, n));
    for (;;) {
        size_t piece = n < pages->page_bytes ? n : pages->page_bytes;

        memcpy(page_at(pages, page), at, piece);
        pages->n_free--;
        at += piece;
        n -= piece;
        pages->first_free = pages->next[page];
        if (n == 0)
            break;
        page = pages->next[page];
    }
    RN_ASSERT(pages->n_free == n_left);
    pages->next[page] = RN_WARM_NO_PAGE;
    return first;
}

void rn_warm_pages_read(const struct rn_warm_pages *pages, uint32_t first, void *bytes, size_t n)
{
    unsigned char *at = bytes;
    uint32_t page = first;

    for (; n > 0; page = pages->next[page]) {
        size_t piece = n < pages->page_bytes ? n : pages->page_bytes;

        memcpy(at, page_at(pages, page), piece);
        at += piece;
        n -= piece;
    }
    RN_ASSERT(page == RN_WARM_NO_PAGE);
}

void rn_warm_pages_free(struct rn_warm_pages *pages, uint32_t first, size_t n)
{
    uint32_t left = rn_warm_pages_for(pages, n), page = first;

    for (; left > 0; left--) {
        uint32_t next = pages->next[page];

        give(pages, page);
        page = next;
    }
    RN_ASSERT(page == RN_WARM_NO_PAGE); /* the string had as many pages as it has bytes */
}

bool rn_warm_pages_check(const struct rn_warm_pages *pages)
{
    uint32_t n_pages = pages->n_slabs * RN_WARM_SLAB_PAGES, n_free = 0;

    for (uint32_t page = pages->first_free; page != RN_WARM_NO_PAGE; page = pages->next[page])
        if (page >= n_pages || ++n_free > pages->n_free)
            return false;
    return n_free == pages->n_free && pages->n_slabs <= pages->max_slabs;
}
