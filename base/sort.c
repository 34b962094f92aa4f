/* See sort.h. */
#include "base/sort.h"

#include <string.h>

#include "base/check.h"

/* items [n × size] is a heap, largest first, but for the item at `at`: it sinks. */
static void sink(unsigned char *items, size_t n, size_t size, size_t at, int (*compare)(const void *, const void *))
{
    unsigned char item[RN_SORT_MOST_BYTES];

    memcpy(item, items + at * size, size);
    for (;;) {
        size_t child = 2 * at + 1;

        if (child + 1 < n && compare(items + child * size, items + (child + 1) * size) < 0)
            child++;
        if (child >= n || compare(item, items + child * size) >= 0)
            break;
        memcpy(items + at * size, items + child * size, size);
        at = child;
    }
    memcpy(items + at * size, item, size);
}

void rn_sort_in_place(void *items, size_t n, size_t size, int (*compare)(const void *, const void *))
{
    unsigned char *at = items, last[RN_SORT_MOST_BYTES];

    RN_CHECK(size > 0 && size <= RN_SORT_MOST_BYTES);
    for (size_t i = n / 2; i-- > 0;)
        sink(at, n, size, i, compare);
    for (size_t i = n; i > 1; i--) {
        memcpy(last, at + (i - 1) * size, size);
        memcpy(at + (i - 1) * size, at, size);
        memcpy(at, last, size);
        sink(at, i - 1, size, 0, compare);
    }
}
