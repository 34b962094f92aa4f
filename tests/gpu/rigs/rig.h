/* What the tests of kernels share: memory of a device, emulated or real (real_device.h), launches on it, and the CPU's
 * reference as the judge.
 * What cannot be done fails the test that asked for it. One thread. */
#ifndef RN_TESTS_GPU_RIGS_RIG_H
#define RN_TESTS_GPU_RIGS_RIG_H

#include "cpu/reference/reference.h"
#include "gpu/kernels/emulate/emulator.h"
#include "gpu/module.h"

enum { RIG_ARRAYS = 128, RIG_SLOTS = 4, RIG_WEIGHTS = 2 };

struct rig {
    struct rn_heap heap;
    const struct rn_gpu_module *real; /* NULL: emulated */
    struct rn_emulator *emulator;
    struct rn_emulated_range ranges[RIG_ARRAYS]; /* ascending */
    uint32_t n_ranges;
    void *arrays[RIG_ARRAYS]; /* of both kinds of memory: freed by rig_close */
    uint32_t n_arrays;
    uint64_t state; /* of rig_random */
};

void rig_open(struct rig *rig);
void rig_close(struct rig *rig);

/* Memory of the device, aligned to 256, of exactly so many bytes and all of them 0xff; and the host's, zeroed. */
void *rig_device(struct rig *rig, size_t bytes);
void *rig_host(struct rig *rig, size_t bytes);

static inline rn_address rig_at(const void *memory)
{
    return (rn_address)(uintptr_t)memory;
}

static inline void *rig_host_at(rn_address at)
{
    return (void *)(uintptr_t)at;
}

/* Uniform in 0 .. n - 1; and a float in [-scale, scale]. */
uint32_t rig_random(struct rig *rig, uint32_t n);
float rig_float(struct rig *rig, float scale);
float *rig_floats(struct rig *rig, size_t n, float scale); /* on the device */

/* Launches a kernel with its own form; it must run without a fault. */
void rig_run(struct rig *rig, enum rn_kernel kernel, const void *args);

/* Random blocks of a format, with scales that make numbers of about 1: [rows, cols] as in a file, on the device. */
unsigned char *rig_weights(struct rig *rig, uint32_t type_id, uint32_t rows, uint32_t cols);
/* Likewise in the device's order, by the kernel. */
void *rig_tiled(struct rig *rig, uint32_t type_id, const void *blocks, uint32_t rows, uint32_t cols);

/* The product by matmul_few. */
void rig_few(struct rig *rig, const struct rn_typed_kernels *kernels, const struct rn_matmul_args *args);

/* The reference: slots 0 (a), 1 (b), 2 (out), 3 (out2 or ids) of the widths given, up to two weights. */
struct judge {
    struct rn_reference ref;
    struct rn_plan plan;
    struct rn_slot slots[RIG_SLOTS];
    void *memory[RIG_SLOTS];
    struct rn_weight weights[RIG_WEIGHTS];
    struct rn_tensor tensors[RIG_WEIGHTS];
    struct rn_rope rope;
    struct rn_kv_layer layer;
    unsigned char *k[1], *v[1];
    struct rn_step step;
};
void judge_open(struct rig *rig, struct judge *judge, uint32_t n_rows, const uint32_t widths[RIG_SLOTS]);
void judge_weight(struct judge *judge, uint32_t index, uint32_t type_id, uint32_t cols, uint32_t rows, uint32_t experts,
                  const void *data);
/* Slots 0 (and 1) to slot 2 of the op that `op` says; what it says of slots is set here. */
const float *judge_run(struct judge *judge, struct rn_op op, bool with_b);

/* The squared error of got, over the squares of want; and that it is at most `limit`. */
double rig_nmse(const float *got, const float *want, size_t n);
void rig_expect(const char *what, const float *got, const float *want, size_t n, double limit);

#endif
