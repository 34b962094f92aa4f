/* Hash tables of a vocabulary: see token_index.h. */
#include "text/token_index.h"

#include <string.h>

/* Multipliers of Steele and Vigna's splitmix64 finaliser. */
#define MIX_A 0xbf58476d1ce4e5b9u
#define MIX_B 0x94d049bb133111ebu

/* Longest probe sequence while filling. At half load honest keys need a few dozen at most. */
#define MAX_PROBES 4096

static uint64_t mix(uint64_t h)
{
    h = (h ^ (h >> 30)) * MIX_A;
    h = (h ^ (h >> 27)) * MIX_B;
    return h ^ (h >> 31);
}

static uint64_t hash_bytes(const char *bytes, size_t n)
{
    uint64_t h = n * MIX_B;
    uint64_t word;

    for (; n >= 8; n -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        h = (h ^ word) * MIX_A;
        h ^= h >> 32;
    }
    word = 0;
    while (n > 0)
        word = word << 8 | (unsigned char)bytes[--n];
    return mix(h ^ word);
}

/* A power of two, at least twice `count`. */
static size_t table_size(uint32_t count)
{
    size_t size = 16;

    while (size / 2 < count)
        size *= 2;
    return size;
}

bool rn_token_index_init(struct rn_token_index *index, struct rn_heap *heap, uint32_t count)
{
    size_t size = table_size(count);

    index->slots = rn_calloc(heap, size, sizeof *index->slots);
    index->mask = size - 1;
    return index->slots != NULL;
}

void rn_token_index_fini(struct rn_token_index *index, struct rn_heap *heap)
{
    rn_free(heap, index->slots);
    index->slots = NULL;
}

/* The slot of bytes[n], or the free one where it belongs. */
static uint64_t *probe(const struct rn_token_index *index, const struct rn_strings *strings, const char *bytes,
                       size_t n, uint64_t hash, uint32_t *probes)
{
    size_t i = (size_t)hash & index->mask;

    for (*probes = 0; index->slots[i] != 0; i = (i + 1) & index->mask, ++*probes) {
        uint64_t slot = index->slots[i];
        struct rn_view other;

        if (slot >> 32 != hash >> 32)
            continue;
        other = rn_string(strings, (uint32_t)slot - 1);
        if (other.n == n && memcmp(other.bytes, bytes, n) == 0)
            break;
    }
    return &index->slots[i];
}

bool rn_token_index_add(struct rn_token_index *index, const struct rn_strings *strings, uint32_t id)
{
    struct rn_view text = rn_string(strings, id);
    uint64_t hash = hash_bytes(text.bytes, text.n);
    uint32_t probes;
    uint64_t *slot = probe(index, strings, text.bytes, text.n, hash, &probes);

    if (*slot == 0)
        *slot = hash >> 32 << 32 | (id + 1u);
    return probes <= MAX_PROBES;
}

int32_t rn_token_index_find(const struct rn_token_index *index, const struct rn_strings *strings, const char *bytes,
                            size_t n)
{
    uint32_t probes;

    if (index->slots == NULL)
        return -1;
    return (int32_t)(uint32_t)*probe(index, strings, bytes, n, hash_bytes(bytes, n), &probes) - 1;
}

bool rn_merge_table_init(struct rn_merge_table *table, struct rn_heap *heap, uint32_t count)
{
    size_t size = table_size(count);
    size_t i;

    table->slots = rn_alloc(heap, size, sizeof *table->slots);
    table->mask = size - 1;
    for (i = 0; table->slots != NULL && i < size; i++)
        table->slots[i].rank = UINT32_MAX;
    return table->slots != NULL;
}

void rn_merge_table_fini(struct rn_merge_table *table, struct rn_heap *heap)
{
    rn_free(heap, table->slots);
    table->slots = NULL;
}

bool rn_merge_table_add(struct rn_merge_table *table, uint32_t left, uint32_t right, uint32_t rank, uint32_t result)
{
    uint64_t pair = (uint64_t)left << 32 | right;
    size_t i = (size_t)mix(pair) & table->mask;
    uint32_t probes = 0;

    while (table->slots[i].rank != UINT32_MAX && table->slots[i].pair != pair) {
        i = (i + 1) & table->mask;
        probes++;
    }
    if (table->slots[i].rank == UINT32_MAX)
        table->slots[i] = (struct rn_merge_slot){pair, rank, result};
    return probes <= MAX_PROBES;
}

const struct rn_merge_slot *rn_merge_table_find(const struct rn_merge_table *table, uint32_t left, uint32_t right)
{
    uint64_t pair = (uint64_t)left << 32 | right;
    size_t i = (size_t)mix(pair) & table->mask;

    while (table->slots[i].rank != UINT32_MAX) {
        if (table->slots[i].pair == pair)
            return &table->slots[i];
        i = (i + 1) & table->mask;
    }
    return NULL;
}
