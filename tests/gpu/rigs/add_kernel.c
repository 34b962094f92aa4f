/* See add_kernel.h. */
#include "tests/gpu/rigs/add_kernel.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char add_name[] = "add";

struct adder {
    struct rn_heap *heap;
};

static void *open_add(struct rn_heap *heap)
{
    struct adder *adder = rn_alloc(heap, 1, sizeof *adder);

    if (adder != NULL)
        adder->heap = heap;
    return adder;
}

static void close_add(void *emulator)
{
    rn_free(((struct adder *)emulator)->heap, emulator);
}

static const void *find_add(const char *name, size_t *argument_bytes)
{
    *argument_bytes = sizeof(struct add_arguments);
    return strcmp(name, add_name) == 0 ? add_name : NULL;
}

/* The n floats are in one range. */
static bool is_there(const struct add_arguments *a, const struct rn_emulated_range *ranges, size_t n_ranges)
{
    for (size_t i = 0; i < n_ranges; i++)
        if (a->values >= ranges[i].at && a->values + a->n * sizeof(float) <= ranges[i].at + ranges[i].bytes)
            return true;
    return false;
}

static bool launch_add(void *emulator, const void *kernel, const unsigned grid[3], const unsigned block[3],
                       unsigned shared_bytes, const void *arguments, const struct rn_emulated_range *ranges,
                       size_t n_ranges, char fault[RN_EMULATED_FAULT_BYTES])
{
    const struct add_arguments *a = arguments;
    float *values = (float *)(uintptr_t)a->values;

    (void)emulator;
    (void)shared_bytes;
    if (kernel != add_name || isnan(a->number) || !is_there(a, ranges, n_ranges)) {
        snprintf(fault, RN_EMULATED_FAULT_BYTES, "add: beyond its memory");
        return false;
    }
    for (uint32_t i = 0; i < a->n && i < grid[0] * block[0]; i++)
        values[i] += a->number;
    return true;
}

const struct rn_gpu_emulation add_emulation = {open_add, close_add, find_add, launch_add};
