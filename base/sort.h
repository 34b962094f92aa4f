/* A sort in place that allocates nothing (qsort may, past the heap's hook): heap sort, n log n whatever the order.
 * Threads: any. */
#ifndef RN_BASE_SORT_H
#define RN_BASE_SORT_H

#include <stddef.h>

/* items [n × size], size at most RN_SORT_MOST_BYTES, ascending by compare (as that of qsort). */
#define RN_SORT_MOST_BYTES 32u
void rn_sort_in_place(void *items, size_t n, size_t size, int (*compare)(const void *a, const void *b));

#endif
