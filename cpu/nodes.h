/* Memory nodes: the parts of a large machine's memory, each near to some of its processors.
 *
 * A team spreads its workers over the nodes whose processors it may use, as many to each as it has processors, and
 * keeps each worker on its node, though on no core of it. Whoever first writes to a page decides on which node it lies,
 * so what a worker reads again and again is written by a worker of the same node:
 *
 *     nodes              0                1               processors 0-3 and 4-7, six workers
 *     workers            0  1  2          3  4  5         [rn_nodes_first(0), rn_nodes_first(1)) ...
 *     rows of a matrix   [ 0 | 1 | 2 ]    [ 3 | 4 | 5 ]   equal shares in the workers' order, so that a node has one
 *                                                         stretch of them
 *
 * Who has done its share helps the others of its node, then those of the other nodes (rn_nodes_share). */
#ifndef RN_CPU_NODES_H
#define RN_CPU_NODES_H

#include <stdint.h>

#include "cpu/cores.h"

enum { RN_MOST_NODES = 64, RN_NO_NODE = 255 };

struct rn_nodes {
    uint32_t n;                         /* at least 1; those that have processors this process may use */
    uint32_t processors[RN_MOST_NODES]; /* how many of these each has */
    uint8_t of[RN_MOST_PROCESSORS];     /* the node of each; RN_NO_NODE: it may not be used */
};

/* The machine's own files about its devices. */
#define RN_NODES_ROOT "/sys/devices/system"

/* Reads ROOT/node/online and ROOT/node/nodeN/cpulist. One node where these cannot be read, or do not name every
 * processor that may be used. */
void rn_nodes_read(struct rn_nodes *nodes, const char *root);

/* The first worker of the node; of node `n` the number of workers. A node that is small beside the others may have
 * none.
 */
uint32_t rn_nodes_first(const struct rn_nodes *nodes, uint32_t node, uint32_t n_workers);

/* Whose share a worker takes its next piece from after `turn` others: its own, then those of its node, which are the
 * workers [first, end), then the rest. */
static inline uint32_t rn_nodes_share(uint32_t worker, uint32_t first, uint32_t end, uint32_t n_workers, uint32_t turn)
{
    uint32_t near = end - first;

    return turn < near ? first + (worker - first + turn) % near : (end + turn - near) % n_workers;
}

/* The calling thread stays on the node from now on. Where the kernel refuses it goes where it likes, which costs
 * nothing but time. Nothing to do on a machine of one node. */
void rn_nodes_stay(const struct rn_nodes *nodes, uint32_t node);

#endif
