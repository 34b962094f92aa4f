/* See races.h. */
#include "gpu/kernels/emulate/races.h"

#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

enum {
    PAGE_LOG = 12,
    PAGE = 1 << PAGE_LOG,
    WORD = 4,
    PAGES = 1 << 14, /* 64 MiB of memory are known at once; when there are more, all is forgotten */
    PLACES = 2 * PAGES,
    NEAR = 256 /* pages that are found at once */
};

/* Numbers of blocks; in a launch the number before its first block's is "several". 0: nobody. */
#define ATOMIC UINT32_C(0x80000000)
#define LAST_NUMBER UINT32_C(0x7ffffff0)

struct cell {
    uint32_t write, read; /* write: with ATOMIC where all writes were */
};

struct page {
    uint64_t number; /* address / PAGE + 1; 0: free */
    struct cell *cells;
    bool is_fine; /* a cell for each byte */
};

struct rn_races {
    struct rn_heap *heap;
    struct cell *cells; /* [PAGES][PAGE], mapped: pages that are not touched cost nothing */
    struct page pages[PLACES];
    struct page *near[NEAR];
    uint32_t n_pages;
    uint32_t several, block; /* of the launch that runs */
    bool is_single;          /* it has one block */
};

static const size_t cells_bytes = (size_t)PAGES * PAGE * sizeof(struct cell);

struct rn_races *rn_races_new(struct rn_heap *heap)
{
    struct rn_races *races = rn_calloc(heap, 1, sizeof *races);

    if (races == NULL)
        return NULL;
    races->heap = heap;
    races->cells = mmap(NULL, cells_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (races->cells == MAP_FAILED) {
        rn_free(heap, races);
        return NULL;
    }
    return races;
}

void rn_races_free(struct rn_races *races)
{
    if (races == NULL)
        return;
    munmap(races->cells, cells_bytes);
    rn_free(races->heap, races);
}

/* Memory of zeros again. */
static void forget(struct rn_races *races)
{
    RN_CHECK(madvise(races->cells, (size_t)races->n_pages * PAGE * sizeof(struct cell), MADV_DONTNEED) == 0);
    memset(races->pages, 0, sizeof races->pages);
    memset(races->near, 0, sizeof races->near);
    races->n_pages = 0;
}

void rn_races_launch(struct rn_races *races, uint64_t n_blocks)
{
    races->is_single = n_blocks == 1;
    if (races->is_single)
        return;
    if (n_blocks >= LAST_NUMBER - races->block) { /* a launch of 2^31 blocks would not end within a year */
        forget(races);
        races->block = 0;
    }
    races->several = ++races->block;
}

void rn_races_block(struct rn_races *races)
{
    if (!races->is_single)
        races->block++;
}

static struct page *page_of(struct rn_races *races, uint64_t at)
{
    uint64_t number = (at >> PAGE_LOG) + 1, place;
    struct page *page = races->near[number % NEAR];

    if (page != NULL && page->number == number)
        return page;
    if (races->n_pages == PAGES)
        forget(races);
    for (place = number * UINT64_C(0x9e3779b97f4a7c15) >> 40; races->pages[place % PLACES].number != 0; place++)
        if (races->pages[place % PLACES].number == number)
            break;
    page = &races->pages[place % PLACES];
    if (page->number == 0)
        *page = (struct page){number, races->cells + (size_t)races->n_pages++ * PAGE, false};
    races->near[number % NEAR] = page;
    return page;
}

/* A cell for each byte from now on. */
static void refine(struct page *page)
{
    for (uint32_t i = PAGE / WORD; i-- > 0;)
        for (uint32_t k = WORD; k-- > 0;)
            page->cells[i * WORD + k] = page->cells[i];
    page->is_fine = true;
}

static enum rn_race touch_cell(const struct rn_races *races, struct cell *cell, enum rn_emulated_touch touch)
{
    uint32_t writer = cell->write & ~ATOMIC, block = races->block;
    bool others_wrote = writer >= races->several && writer != block;
    bool others_read = cell->read >= races->several && cell->read != block;

    if (others_wrote && (touch != RN_EMULATED_ATOMIC || (cell->write & ATOMIC) == 0))
        return RN_RACE_WRITTEN;
    if (touch == RN_EMULATED_READ) {
        cell->read = others_read ? races->several : block;
        return RN_RACE_NONE;
    }
    if (others_read)
        return RN_RACE_READ;
    if (touch == RN_EMULATED_WRITE)
        cell->write = block;
    else if (others_wrote)
        cell->write = races->several | ATOMIC;
    else if (cell->write != block) /* what it has written otherwise stays that */
        cell->write = block | ATOMIC;
    return RN_RACE_NONE;
}

/* An access within a page. */
static enum rn_race touch_page(struct rn_races *races, uint64_t at, size_t bytes, enum rn_emulated_touch touch)
{
    enum rn_race race = RN_RACE_NONE;
    struct page *page = page_of(races, at);
    uint64_t first, last;

    if (!page->is_fine && (at % WORD != 0 || bytes % WORD != 0))
        refine(page);
    first = page->is_fine ? at % PAGE : at % PAGE / WORD;
    last = page->is_fine ? first + bytes : first + bytes / WORD;
    for (; first < last && race == RN_RACE_NONE; first++)
        race = touch_cell(races, &page->cells[first], touch);
    return race;
}

/* A structure may begin in one page and end in the next. */
enum rn_race rn_races_touch(struct rn_races *races, uint64_t at, size_t bytes, enum rn_emulated_touch touch)
{
    enum rn_race race = RN_RACE_NONE;
    size_t n;

    RN_CHECK(bytes > 0 && bytes <= PAGE);
    for (; bytes > 0 && race == RN_RACE_NONE && !races->is_single; at += n, bytes -= n) {
        n = PAGE - at % PAGE < bytes ? PAGE - at % PAGE : bytes;
        race = touch_page(races, at, n, touch);
    }
    return race;
}
