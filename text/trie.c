/* Building tries level by level from sorted strings: see trie.h. */
#include "text/trie.h"

#include <string.h>

/* A node while building: the strings ids[low..high) pass through it. */
struct span {
    uint32_t low, high;
};

static bool before(const struct rn_strings *strings, uint32_t a, uint32_t b)
{
    struct rn_view x = rn_string(strings, a), y = rn_string(strings, b);
    int order = memcmp(x.bytes, y.bytes, x.n < y.n ? x.n : y.n);

    if (order != 0)
        return order < 0;
    return x.n != y.n ? x.n < y.n : a < b;
}

static void sift_down(uint32_t *ids, uint32_t at, uint32_t n, const struct rn_strings *strings)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        uint32_t id = ids[at];

        if (child >= n)
            return;
        if (child + 1 < n && before(strings, ids[child], ids[child + 1]))
            child++;
        if (!before(strings, id, ids[child]))
            return;
        ids[at] = ids[child];
        ids[child] = id;
        at = child;
    }
}

void rn_sort_ids(uint32_t *ids, uint32_t n, const struct rn_strings *strings)
{
    uint32_t i;

    for (i = n / 2; i-- > 0;)
        sift_down(ids, i, n, strings);
    for (i = n; i-- > 1;) {
        uint32_t last = ids[i];

        ids[i] = ids[0];
        ids[0] = last;
        sift_down(ids, 0, i, strings);
    }
}

/* Nodes of the trie: the root, and one for each byte by which a string differs from the one before it. */
static uint64_t count_nodes(const struct rn_strings *strings, const uint32_t *ids, uint32_t n)
{
    struct rn_view last = {NULL, 0};
    uint64_t nodes = 1;
    uint32_t i;

    for (i = 0; i < n; i++) {
        struct rn_view text = rn_string(strings, ids[i]);
        size_t shared = 0;

        while (shared < last.n && shared < text.n && last.bytes[shared] == text.bytes[shared])
            shared++;
        nodes += text.n - shared;
        last = text;
    }
    return nodes;
}

/* Appends the children of `node`, whose strings share `depth` bytes; returns the number of nodes then. */
static uint32_t add_children(struct rn_trie *trie, const struct rn_strings *strings, const uint32_t *ids,
                             struct span *spans, uint32_t node, size_t depth, uint32_t count)
{
    uint32_t i = spans[node].low, high = spans[node].high;

    trie->nodes[node] = (struct rn_trie_node){count - 1, -1};
    for (; i < high && rn_string(strings, ids[i]).n == depth; i++) {
        if (trie->nodes[node].value < 0)
            trie->nodes[node].value = (int32_t)ids[i];
    }
    while (i < high) {
        uint8_t byte = (uint8_t)rn_string(strings, ids[i]).bytes[depth];

        trie->labels[count - 1] = byte;
        spans[count].low = i;
        while (i < high && (uint8_t)rn_string(strings, ids[i]).bytes[depth] == byte)
            i++;
        spans[count++].high = i;
    }
    return count;
}

static void build(struct rn_trie *trie, const struct rn_strings *strings, const uint32_t *ids, uint32_t n,
                  struct span *spans, uint32_t nodes)
{
    uint32_t count = 1, node = 0, level_end = 1;
    size_t depth = 0;
    uint32_t i;

    spans[0] = (struct span){0, n};
    for (; node < nodes; node++) {
        if (node == level_end) {
            depth++;
            level_end = count;
        }
        count = add_children(trie, strings, ids, spans, node, depth, count);
    }
    trie->nodes[nodes] = (struct rn_trie_node){nodes - 1, -1};
    memset(trie->root, 0, 256 * sizeof *trie->root);
    for (i = trie->nodes[0].first; i < trie->nodes[1].first; i++)
        trie->root[trie->labels[i]] = i + 1;
}

bool rn_trie_init(struct rn_trie *trie, struct rn_heap *heap, const struct rn_strings *strings, uint32_t *ids,
                  uint32_t n)
{
    struct span *spans;
    uint64_t nodes;
    bool fits;

    rn_sort_ids(ids, n, strings);
    nodes = count_nodes(strings, ids, n);
    if (nodes >= UINT32_MAX)
        return false;
    trie->nodes = rn_alloc(heap, (size_t)nodes + 1, sizeof *trie->nodes);
    trie->labels = rn_alloc(heap, (size_t)nodes, 1);
    trie->root = rn_alloc(heap, 256, sizeof *trie->root);
    spans = rn_alloc(heap, (size_t)nodes, sizeof *spans);
    fits = trie->nodes != NULL && trie->labels != NULL && trie->root != NULL && spans != NULL;
    if (fits)
        build(trie, strings, ids, n, spans, (uint32_t)nodes);
    rn_free(heap, spans);
    return fits;
}

void rn_trie_fini(struct rn_trie *trie, struct rn_heap *heap)
{
    rn_free(heap, trie->nodes);
    rn_free(heap, trie->labels);
    rn_free(heap, trie->root);
    memset(trie, 0, sizeof *trie);
}
