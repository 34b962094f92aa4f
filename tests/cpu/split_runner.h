/* A runner whose backend is split between two CPU devices, each with threads of its own (model/split.h). What cannot be
 * done fails the test that asked for it. */
#ifndef RN_TESTS_CPU_SPLIT_RUNNER_H
#define RN_TESTS_CPU_SPLIT_RUNNER_H

#include "tests/cpu/runner.h"

struct split_runner {
    struct runner runner; /* first; without a team */
    struct rn_device *front, *back;
    struct rn_plan *parts[2];
};

/* The plan's first n blocks in front; it can be cut there. The plan is borrowed until close_split. */
void open_split(struct split_runner *s, struct rn_heap *heap, const struct rn_plan *plan, uint32_t n, uint32_t threads,
                const struct rn_backend_limits *limits);
void close_split(struct split_runner *s);

#endif
