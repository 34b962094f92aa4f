/* Which positions are chosen by their scores, equal ones too: see chosen.h.
 *
 * The first n positions make a heap, with the worst of them on top. Each later position that is better than the top
 * takes its place: the hole goes down to a leaf, by the worse of two children, by the right one of equals, and the
 * new position up from there, below the first that is not better (Floyd's way: Knuth, vol. 3, 5.2.3, exercise 18). So
 * what is kept of equal scores hangs on the order in which positions come. It is the order of std::partial_sort in
 * GCC's library, and thereby that of llama.cpp on a CPU; with few heads, which often all look away, most scores are
 * equal. */
#include "cpu/chosen.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/check.h"

static bool is_better(const struct rn_scores *scores, int32_t a, int32_t b)
{
    double x = scores->f32 != NULL ? scores->f32[a] : scores->f64[a];
    double y = scores->f32 != NULL ? scores->f32[b] : scores->f64[b];

    return isnan(y) ? !isnan(x) : x > y;
}

/* The position goes to the hole `at` of the heap [n], or below. */
static void put(const struct rn_scores *scores, int32_t *heap, uint32_t n, uint32_t at, int32_t position)
{
    uint32_t top = at, child;

    for (child = 2 * at + 2; child <= n; child = 2 * at + 2) {
        if (child == n || is_better(scores, heap[child], heap[child - 1]))
            child--;
        heap[at] = heap[child];
        at = child;
    }
    for (; at > top && is_better(scores, heap[(at - 1) / 2], position); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = position;
}

static int ascending(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

void rn_chosen_largest(const struct rn_scores *scores, uint32_t count, uint32_t n, int32_t *out)
{
    uint32_t i;

    RN_ASSERT(n > 0 && count >= n);
    for (i = 0; i < n; i++)
        out[i] = (int32_t)i;
    for (i = n / 2; i-- > 0;)
        put(scores, out, n, i, out[i]);
    for (i = n; i < count; i++)
        if (is_better(scores, (int32_t)i, out[0]))
            put(scores, out, n, 0, (int32_t)i);
    qsort(out, n, sizeof *out, ascending);
}

void rn_chosen_positions(int32_t *out, uint32_t used, uint32_t most, uint32_t per, uint32_t rest, uint32_t n)
{
    const int32_t *chosen = out + used - most;
    uint32_t k = 0, p;

    for (uint32_t b = 0; b < most; b++) {
        const uint32_t from = (uint32_t)chosen[b] * per;

        for (p = from; p < from + per && p < n; p++)
            out[k++] = (int32_t)p;
    }
    for (p = rest; p < n; p++)
        out[k++] = (int32_t)p;
    while (k < used)
        out[k++] = -1;
}
