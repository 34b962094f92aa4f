/* Token counts in a sliding window: see counts.h.
 *
 * Linear probing; removal shifts back the slots behind the hole (Knuth, TAOCP 3, algorithm 6.4 R),
 * so that there are no tombstones and a table that has slid for a million tokens is as quick as a new one. */
#include "sampling/counts.h"

#include <string.h>

#include "base/check.h"
#include "base/min.h"

static uint32_t home(const struct rn_counts *counts, int32_t token)
{
    return (uint32_t)token * 0x9E3779B1u >> 7 & counts->mask; /* 2^32 / golden ratio: Knuth, 6.4 */
}

bool rn_counts_init(struct rn_counts *counts, struct rn_heap *heap, uint32_t n_vocab, uint32_t max_tokens,
                    uint32_t window)
{
    uint64_t capacity = 8;
    bool slides = window > 0 && window < max_tokens;

    *counts = (struct rn_counts){.window = slides ? window : 0};
    counts->limit = rn_min_u32(n_vocab, slides ? window : max_tokens);
    while (capacity < 2 * (uint64_t)counts->limit)
        capacity *= 2;
    if (capacity > (uint64_t)UINT32_MAX + 1)
        return false;
    counts->mask = (uint32_t)(capacity - 1);
    counts->entries = rn_alloc(heap, counts->limit, sizeof *counts->entries);
    counts->slots = rn_calloc(heap, capacity, sizeof *counts->slots);
    counts->ring = slides ? rn_alloc(heap, window, sizeof *counts->ring) : NULL;
    if (counts->entries != NULL && counts->slots != NULL && (counts->ring != NULL || !slides))
        return true;
    rn_counts_fini(counts, heap);
    return false;
}

void rn_counts_fini(struct rn_counts *counts, struct rn_heap *heap)
{
    rn_free(heap, counts->ring);
    rn_free(heap, counts->slots);
    rn_free(heap, counts->entries);
    memset(counts, 0, sizeof *counts);
}

void rn_counts_clear(struct rn_counts *counts)
{
    memset(counts->slots, 0, ((size_t)counts->mask + 1) * sizeof *counts->slots);
    counts->n_entries = 0;
    counts->n_tokens = 0;
}

/* The slot of `token`, or the empty one where it belongs. */
static uint32_t find(const struct rn_counts *counts, int32_t token)
{
    uint32_t slot = home(counts, token);

    while (counts->slots[slot] != 0 && counts->entries[counts->slots[slot] - 1].token != token)
        slot = (slot + 1) & counts->mask;
    return slot;
}

/* Empties a slot and closes the gap: whoever stands behind it and may stand in it moves up. */
static void close_slot(struct rn_counts *counts, uint32_t hole)
{
    uint32_t slot = hole;

    for (;;) {
        slot = (slot + 1) & counts->mask;
        if (counts->slots[slot] == 0)
            break;
        if (((slot - home(counts, counts->entries[counts->slots[slot] - 1].token)) & counts->mask) >=
            ((slot - hole) & counts->mask)) {
            counts->slots[hole] = counts->slots[slot];
            hole = slot;
        }
    }
    counts->slots[hole] = 0;
}

static void forget(struct rn_counts *counts, int32_t token)
{
    uint32_t slot = find(counts, token), entry, last;

    RN_CHECK(counts->slots[slot] != 0);
    entry = counts->slots[slot] - 1;
    if (--counts->entries[entry].count > 0)
        return;
    close_slot(counts, slot);
    last = counts->n_entries - 1;
    if (entry != last) {
        counts->slots[find(counts, counts->entries[last].token)] = entry + 1;
        counts->entries[entry] = counts->entries[last];
    }
    counts->n_entries = last;
}

void rn_counts_add(struct rn_counts *counts, int32_t token)
{
    uint32_t slot;

    if (counts->window > 0) {
        int32_t *place = &counts->ring[counts->n_tokens % counts->window];

        if (counts->n_tokens >= counts->window)
            forget(counts, *place);
        *place = token;
    }
    slot = find(counts, token);
    if (counts->slots[slot] == 0) {
        RN_CHECK(counts->n_entries < counts->limit);
        counts->entries[counts->n_entries++] = (struct rn_count){token, 0};
        counts->slots[slot] = counts->n_entries;
    }
    counts->entries[counts->slots[slot] - 1].count++;
    counts->n_tokens++;
}

uint32_t rn_counts_of(const struct rn_counts *counts, int32_t token)
{
    uint32_t slot = find(counts, token);

    return counts->slots[slot] == 0 ? 0 : counts->entries[counts->slots[slot] - 1].count;
}

/* The place of `token` among the changes; it begins with the count that it has. */
static struct rn_count *change_of(const struct rn_counts *counts, int32_t token, struct rn_count *changes, uint32_t *n)
{
    for (uint32_t i = 0; i < *n; i++)
        if (changes[i].token == token)
            return &changes[i];
    changes[*n] = (struct rn_count){token, rn_counts_of(counts, token)};
    return &changes[(*n)++];
}

uint32_t rn_counts_behind(const struct rn_counts *counts, const int32_t *path, uint32_t n_path,
                          struct rn_count *changes)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_path; i++)
        change_of(counts, path[i], changes, &n)->count++;
    for (uint32_t i = 0; counts->window > 0 && i < n_path; i++) { /* token i of the path lets this one go */
        uint64_t at = counts->n_tokens + i;

        if (at < counts->window)
            continue;
        at -= counts->window;
        change_of(counts, at < counts->n_tokens ? counts->ring[at % counts->window] : path[at - counts->n_tokens],
                  changes, &n)
            ->count--;
    }
    return n;
}

bool rn_counts_check(const struct rn_counts *counts)
{
    uint64_t expected = counts->n_tokens, sum = 0, used = 0;

    if (counts->window > 0 && expected > counts->window)
        expected = counts->window;
    for (uint64_t i = 0; i <= counts->mask; i++)
        used += counts->slots[i] != 0;
    for (uint32_t i = 0; i < counts->n_entries; i++) {
        if (counts->entries[i].count == 0 || counts->slots[find(counts, counts->entries[i].token)] != i + 1)
            return false;
        sum += counts->entries[i].count;
    }
    return sum == expected && used == counts->n_entries && counts->n_entries <= counts->limit;
}
