/* What the parts of bench_gpu share: a device, and the time of launches on it. Every failure ends the program. */
#ifndef RN_BENCH_GPU_BENCH_H
#define RN_BENCH_GPU_BENCH_H

#include "gpu/steps.h"

struct gpu_bench {
    struct rn_heap heap;
    struct rn_gpu_module module;
    struct rn_gpu_device *device;
    struct rn_gpu_driver *driver;
    struct rn_gpu_stream *stream; /* of what is timed without a backend */
    double copy_bytes_per_s;      /* read plus written, of a large copy on the device */
    uint64_t state;               /* of gpu_random */
};

double gpu_seconds(void);
void gpu_good(const struct gpu_bench *b, const char *what, int result);

uint32_t gpu_random(struct gpu_bench *b);

/* Memory of the device, filled with random bytes; `floats`: with f32 of about 1. Freed by gpu_release. */
uint64_t gpu_take(struct gpu_bench *b, uint64_t bytes, bool floats);
void gpu_release(struct gpu_bench *b, uint64_t memory);

/* Launches the i-th of a series of launches on the stream. */
typedef void (*gpu_launch)(void *user, uint32_t i);

/* Seconds of a launch: `n` of them as one graph, the median of several plays. */
double gpu_time(struct gpu_bench *b, struct rn_gpu_stream *stream, gpu_launch launch, void *user, uint32_t n);

/* One launch with the kernel's own form. */
void gpu_launch_one(struct gpu_bench *b, enum rn_kernel kernel, const void *args);

/* The parts. */
void bench_copy(struct gpu_bench *b);
void bench_products(struct gpu_bench *b);
void bench_experts(struct gpu_bench *b);
void bench_attention(struct gpu_bench *b);
void bench_model(struct gpu_bench *b, const char *path);

#endif
