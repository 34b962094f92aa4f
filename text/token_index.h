/* Hash tables of a vocabulary: strings to ids, and pairs of ids to merges.
 *
 * Open addressing with linear probing, at most half full. Filled once, then only read. A table
 * whose keys crowd one place (a file made to do that) is refused instead of becoming slow. */
#ifndef RN_TEXT_TOKEN_INDEX_H
#define RN_TEXT_TOKEN_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "model/gguf/gguf.h"

/* n strings in one block: string i is bytes[at[i]..at[i + 1]). */
struct rn_strings {
    char *bytes;
    uint64_t *at; /* [n + 1] */
};

static inline struct rn_view rn_string(const struct rn_strings *strings, uint32_t i)
{
    return (struct rn_view){strings->bytes + strings->at[i], (size_t)(strings->at[i + 1] - strings->at[i])};
}

struct rn_token_index {
    uint64_t *slots; /* upper half of the hash << 32 | id + 1; 0: free */
    size_t mask;
};

/* Room for `count` strings; false: refused. */
bool rn_token_index_init(struct rn_token_index *index, struct rn_heap *heap, uint32_t count);
void rn_token_index_fini(struct rn_token_index *index, struct rn_heap *heap);

/* Adds string `id`; of equal strings the first added stays. False: the table is degenerate. */
bool rn_token_index_add(struct rn_token_index *index, const struct rn_strings *strings, uint32_t id);

/* The id of bytes[n], or -1. */
int32_t rn_token_index_find(const struct rn_token_index *index, const struct rn_strings *strings, const char *bytes,
                            size_t n);

struct rn_merge_slot {
    uint64_t pair; /* left id << 32 | right id */
    uint32_t rank; /* UINT32_MAX: free */
    uint32_t result;
};

struct rn_merge_table {
    struct rn_merge_slot *slots;
    size_t mask;
};

bool rn_merge_table_init(struct rn_merge_table *table, struct rn_heap *heap, uint32_t count);
void rn_merge_table_fini(struct rn_merge_table *table, struct rn_heap *heap);

/* Of equal pairs the first added stays. False: the table is degenerate. */
bool rn_merge_table_add(struct rn_merge_table *table, uint32_t left, uint32_t right, uint32_t rank, uint32_t result);

/* NULL: these two do not merge. */
const struct rn_merge_slot *rn_merge_table_find(const struct rn_merge_table *table, uint32_t left, uint32_t right);

#endif
