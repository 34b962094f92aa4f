/* A set of byte strings in which all that a text begins with are found in one walk.
 *
 *     node     0        1    2        3   4        nodes level by level; the children of a node are
 *     label        a       b     a       b          neighbours, in the order of their bytes, so that
 *     first    0   2 ...                            edge i leads to node i + 1
 *
 * Nine bytes for each node. Built once, then only read: any thread may walk. */
#ifndef RN_TEXT_TRIE_H
#define RN_TEXT_TRIE_H

#include "text/token_index.h"

struct rn_trie_node {
    uint32_t first; /* edge */
    int32_t value;  /* id of the string that ends here; -1: none */
};

struct rn_trie {
    struct rn_trie_node *nodes; /* [nodes + 1] */
    uint8_t *labels;            /* [nodes - 1] byte of each edge */
    uint32_t *root;             /* [256] children of node 0; 0: none */
};

/* Of strings ids[n], n >= 0, none empty; sorts ids. Of equal strings the lowest id stays. False: refused, or
 * 2^32 nodes and more. */
bool rn_trie_init(struct rn_trie *trie, struct rn_heap *heap, const struct rn_strings *strings, uint32_t *ids,
                  uint32_t n);
void rn_trie_fini(struct rn_trie *trie, struct rn_heap *heap);

/* The child of `node` by `byte`; 0: none. The walk begins at node 0. */
static inline uint32_t rn_trie_step(const struct rn_trie *trie, uint32_t node, unsigned char byte)
{
    uint32_t low, high;

    if (node == 0)
        return trie->root[byte];
    low = trie->nodes[node].first;
    high = trie->nodes[node + 1].first;
    while (high - low > 8) {
        uint32_t middle = low + (high - low) / 2;

        if (trie->labels[middle] <= byte)
            low = middle;
        else
            high = middle;
    }
    for (; low < high; low++) {
        if (trie->labels[low] == byte)
            return low + 1;
    }
    return 0;
}

/* The id of the string that ends at the node; -1: none. */
static inline int32_t rn_trie_value(const struct rn_trie *trie, uint32_t node)
{
    return trie->nodes[node].value;
}

/* Order by bytes, a prefix first, equal strings by id; heapsort: n log n on any input and no memory. */
void rn_sort_ids(uint32_t *ids, uint32_t n, const struct rn_strings *strings);

#endif
