/* Reading which processors are near to which memory: see nodes.h. Threads: any. */
#define _GNU_SOURCE
#include "cpu/nodes.h"

#include <assert.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cpu/cores.h"

static_assert(RN_MOST_PROCESSORS % CPU_SETSIZE == 0, "whole masks");

enum { LIST_BYTES = 8192 };

/* All that this process may use, as one node. */
static void one_node(struct rn_nodes *nodes)
{
    bool allowed[RN_MOST_PROCESSORS];
    uint32_t i;

    *nodes = (struct rn_nodes){.n = 1, .processors = {rn_cores_allowed(allowed)}};
    for (i = 0; i < RN_MOST_PROCESSORS; i++)
        nodes->of[i] = allowed[i] ? 0 : RN_NO_NODE;
}

/* Of those of `usable`, the processors of the list become those of the next node. Returns how many they are. */
static uint32_t add_node(struct rn_nodes *nodes, const struct rn_nodes *usable, const char *list)
{
    unsigned long first, last;
    uint32_t n = 0;

    while ((list = rn_cores_range(list, &first, &last)) != NULL)
        for (; first <= last && first < RN_MOST_PROCESSORS; first++)
            if (usable->of[first] != RN_NO_NODE && nodes->of[first] == RN_NO_NODE) {
                nodes->of[first] = (uint8_t)nodes->n;
                n++;
            }
    if (n > 0)
        nodes->processors[nodes->n++] = n;
    return n;
}

/* Returns how many processors are on a node. */
static uint32_t read_nodes(struct rn_nodes *nodes, const struct rn_nodes *usable, const char *root)
{
    char path[512], online[LIST_BYTES], list[LIST_BYTES];
    const char *at = online;
    unsigned long first, last;
    uint32_t n = 0;

    snprintf(path, sizeof path, "%s/node/online", root);
    if (!rn_cores_read(path, online, sizeof online))
        return 0;
    while ((at = rn_cores_range(at, &first, &last)) != NULL)
        for (; first <= last && first < RN_MOST_PROCESSORS && nodes->n < RN_MOST_NODES; first++) {
            snprintf(path, sizeof path, "%s/node/node%lu/cpulist", root, first);
            n += rn_cores_read(path, list, sizeof list) ? add_node(nodes, usable, list) : 0;
        }
    return n;
}

void rn_nodes_read(struct rn_nodes *nodes, const char *root)
{
    struct rn_nodes usable;

    one_node(&usable);
    *nodes = (struct rn_nodes){0};
    memset(nodes->of, RN_NO_NODE, sizeof nodes->of);
    if (read_nodes(nodes, &usable, root) != usable.processors[0])
        *nodes = usable;
}

uint32_t rn_nodes_first(const struct rn_nodes *nodes, uint32_t node, uint32_t n_workers)
{
    uint64_t before = 0, all = 0;
    uint32_t i;

    for (i = 0; i < nodes->n; i++) {
        before += i < node ? nodes->processors[i] : 0;
        all += nodes->processors[i];
    }
    return (uint32_t)((n_workers * before + all / 2) / all);
}

void rn_nodes_stay(const struct rn_nodes *nodes, uint32_t node)
{
    cpu_set_t mask[RN_MOST_PROCESSORS / CPU_SETSIZE];
    uint32_t i;

    if (nodes->n == 1)
        return;
    memset(mask, 0, sizeof mask);
    for (i = 0; i < RN_MOST_PROCESSORS; i++)
        if (nodes->of[i] == node)
            CPU_SET_S(i, sizeof mask, mask);
    (void)sched_setaffinity(0, sizeof mask, mask);
}
