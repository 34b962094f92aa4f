/* Sets of code points: see code_points.h. */
#include "sampling/grammar/code_points.h"

#include "base/utf8.h"

#define SURROGATE_FIRST 0xd800u
#define SURROGATE_LAST 0xdfffu

static bool before(struct rn_code_points a, struct rn_code_points b)
{
    return a.first != b.first ? a.first < b.first : a.last < b.last;
}

static void sift_down(struct rn_code_points *ranges, size_t at, size_t n)
{
    for (;;) {
        struct rn_code_points range = ranges[at];
        size_t child = 2 * at + 1;

        if (child >= n)
            return;
        if (child + 1 < n && before(ranges[child], ranges[child + 1]))
            child++;
        if (!before(range, ranges[child]))
            return;
        ranges[at] = ranges[child];
        ranges[child] = range;
        at = child;
    }
}

/* Heapsort: no memory, and no input is slow. */
static void sort(struct rn_code_points *ranges, size_t n)
{
    size_t i;

    for (i = n / 2; i-- > 0;)
        sift_down(ranges, i, n);
    for (i = n; i-- > 1;) {
        struct rn_code_points last = ranges[i];

        ranges[i] = ranges[0];
        ranges[0] = last;
        sift_down(ranges, 0, i);
    }
}

static size_t join(struct rn_code_points *ranges, size_t n)
{
    size_t i, joined = 0;

    for (i = 1; i < n; i++) {
        if (ranges[i].first > ranges[joined].last && ranges[i].first - ranges[joined].last > 1)
            ranges[++joined] = ranges[i];
        else if (ranges[i].last > ranges[joined].last)
            ranges[joined].last = ranges[i].last;
    }
    return n == 0 ? 0 : joined + 1;
}

/* Joined ranges; at most one of them has surrogates in its middle. */
static size_t drop_surrogates(struct rn_code_points *ranges, size_t n)
{
    size_t i, kept = 0;

    for (i = 0; i < n; i++) {
        struct rn_code_points range = ranges[i];

        if (range.first >= SURROGATE_FIRST && range.first <= SURROGATE_LAST)
            range.first = SURROGATE_LAST + 1;
        if (range.last >= SURROGATE_FIRST && range.last <= SURROGATE_LAST)
            range.last = SURROGATE_FIRST - 1;
        if (range.first <= range.last)
            ranges[kept++] = range;
    }
    for (i = 0; i < kept; i++) {
        size_t k;

        if (ranges[i].first > SURROGATE_FIRST || ranges[i].last < SURROGATE_LAST)
            continue;
        for (k = kept++; k > i + 1; k--)
            ranges[k] = ranges[k - 1];
        ranges[i + 1] = (struct rn_code_points){SURROGATE_LAST + 1, ranges[i].last};
        ranges[i].last = SURROGATE_FIRST - 1;
        break;
    }
    return kept;
}

size_t rn_code_points_normalise(struct rn_code_points *ranges, size_t n)
{
    size_t i;

    for (i = 1; i < n && !before(ranges[i], ranges[i - 1]); i++)
        ;
    if (i < n)
        sort(ranges, n);
    return drop_surrogates(ranges, join(ranges, n));
}

size_t rn_code_points_negate(const struct rn_code_points *ranges, size_t n, struct rn_code_points *out)
{
    uint32_t next = 0;
    size_t count = 0, i;

    for (i = 0; i < n; i++) {
        if (ranges[i].first > next)
            out[count++] = (struct rn_code_points){next, ranges[i].first - 1};
        next = ranges[i].last + 1;
    }
    if (next <= RN_CODE_POINT_MOST)
        out[count++] = (struct rn_code_points){next, RN_CODE_POINT_MOST};
    return drop_surrogates(out, count);
}

bool rn_code_points_have(const struct rn_code_points *ranges, size_t n, uint32_t code_point)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (ranges[middle].last < code_point)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && ranges[low].first <= code_point;
}

/* The last code point from `first` on, at most `last`, up to which the bytes can be said each by itself: the upper bits
 * are the same, and below them it runs from the first to the last of all. */
static uint32_t part_end(uint32_t first, uint32_t last)
{
    static const uint32_t lengths[] = {0x7f, 0x7ff, 0xffff, RN_CODE_POINT_MOST};
    uint32_t i, shift;

    for (i = 0; first > lengths[i]; i++)
        ;
    if (last > lengths[i])
        last = lengths[i];
    if (last < 0x80)
        return last;
    for (shift = 6; shift <= 18; shift += 6) {
        uint32_t low = (1u << shift) - 1;

        if (first >> shift == last >> shift)
            break; /* they differ in the bits below alone */
        if ((first & low) != 0)
            return first | low;
        if ((last & low) != low)
            last = (last & ~low) - 1;
    }
    return last;
}

void rn_utf8_run_take(struct rn_code_points *range, struct rn_utf8_run *run)
{
    uint32_t end = part_end(range->first, range->last);
    char low[4], high[4];
    uint32_t i;

    run->n = rn_utf8_encode(range->first, low);
    rn_utf8_encode(end, high);
    for (i = 0; i < run->n; i++) {
        run->low[i] = (uint8_t)low[i];
        run->high[i] = (uint8_t)high[i];
    }
    range->first = end + 1;
}
