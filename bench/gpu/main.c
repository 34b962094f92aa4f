/* The speed of the CUDA device: how close kernels and steps come to the memory's.
 *
 *     bench_gpu [--library FILE] copy | products | experts | attention | MODEL.gguf ...
 *
 * copy       bytes read plus written by a large copy on the device, the best of some: the line that all else is held
 *            against
 * products   MATMUL of each format, for 1 to 512 rows, in shapes of llama-3.2-1b and llama-3-8b; few rows also by
 *            matmul_stream
 * experts    EXPERT_MATMUL of 8 of 128 experts for 1 to 512 rows, pair by pair and by groups of pairs
 * attention  one layer of llama-3-8b behind so many positions
 * a model    whole steps, and the share of each op in them
 *
 * Times are medians. Many launches are played as one graph, over weights that the second-level cache does not hold. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/gpu/bench.h"

enum { PLAYS = 7, FILL = 32 << 20 };

double gpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void gpu_good(const struct gpu_bench *b, const char *what, int result)
{
    char text[128];

    if (result == RN_GPU_OK)
        return;
    rn_gpu_error_text(b->driver, result, text, sizeof text);
    fprintf(stderr, "bench_gpu: %s: %s\n", what, text);
    exit(1);
}

uint32_t gpu_random(struct gpu_bench *b)
{
    b->state = b->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(b->state >> 32);
}

uint64_t gpu_take(struct gpu_bench *b, uint64_t bytes, bool floats)
{
    static uint32_t words[FILL / 4];
    uint64_t memory, piece;

    /* floats: sign, an exponent of 2^-1 or 2^0, and a random mantissa. Other bytes: no f16 or bf16 is infinite */
    for (uint32_t i = 0; i < FILL / 4; i++)
        words[i] = floats ? (gpu_random(b) & 0x80ffffffu) | 0x3f000000u : gpu_random(b) & 0xbfffbfffu;
    gpu_good(b, "memory", b->driver->memory_new(b->driver, &memory, bytes));
    for (uint64_t at = 0; at < bytes; at += piece) {
        piece = bytes - at < FILL ? bytes - at : FILL;
        gpu_good(b, "fill", b->driver->copy_in(b->driver, memory + at, words, piece, b->stream));
        gpu_good(b, "fill", b->driver->stream_finish(b->driver, b->stream));
    }
    return memory;
}

void gpu_release(struct gpu_bench *b, uint64_t memory)
{
    gpu_good(b, "memory", b->driver->memory_free(b->driver, memory));
}

void gpu_launch_one(struct gpu_bench *b, enum rn_kernel kernel, const void *args)
{
    const struct rn_kernel_info *info = rn_kernel_info(kernel);
    struct rn_launch launch = info->launch(args);
    unsigned char copy[RN_GPU_ARGUMENT_BYTES];
    void *arguments[] = {copy};

    memcpy(copy, args, info->args_bytes);
    if (launch.shared_bytes > 48 << 10)
        gpu_good(b, info->name,
                 b->driver->function_set(b->driver, b->device->kernels[kernel], RN_GPU_FUNCTION_SHARED,
                                         (int)launch.shared_bytes));
    gpu_good(b, info->name,
             b->driver->launch(b->driver, b->device->kernels[kernel], launch.grid[0], launch.grid[1], launch.grid[2],
                               launch.threads, 1, 1, launch.shared_bytes, b->stream, arguments, NULL));
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

double gpu_time(struct gpu_bench *b, struct rn_gpu_stream *stream, gpu_launch launch, void *user, uint32_t n)
{
    struct rn_gpu_driver *driver = b->driver;
    struct rn_gpu_graph *graph;
    struct rn_gpu_exec *exec;
    double took[PLAYS];

    launch(user, 0); /* what is loaded late is loaded now */
    gpu_good(b, "capture", driver->capture_begin(driver, stream, RN_GPU_CAPTURE_RELAXED));
    for (uint32_t i = 0; i < n; i++)
        launch(user, i);
    gpu_good(b, "capture", driver->capture_end(driver, stream, &graph));
    gpu_good(b, "graph", driver->graph_ready(driver, &exec, graph, 0));
    for (int i = -2; i < PLAYS; i++) {
        double begin = gpu_seconds();

        gpu_good(b, "graph", driver->graph_launch(driver, exec, stream));
        gpu_good(b, "graph", driver->stream_finish(driver, stream));
        if (i >= 0)
            took[i] = gpu_seconds() - begin;
    }
    gpu_good(b, "graph", driver->exec_free(driver, exec));
    gpu_good(b, "graph", driver->graph_free(driver, graph));
    qsort(took, PLAYS, sizeof took[0], by_size);
    return took[PLAYS / 2] / n;
}

static void open_device(struct gpu_bench *b, const char *library)
{
    runnel_error error = {0};
    struct rn_device *device;
    char text[200];

    rn_heap_init(&b->heap, NULL);
    if (rn_gpu_module_open(&b->heap, library, &b->module, &error) != RUNNEL_OK ||
        (device = rn_gpu_device_open(&b->heap, &b->module, 0, &error)) == NULL) {
        fprintf(stderr, "bench_gpu: %s\n", error.message);
        exit(1);
    }
    b->device = (struct rn_gpu_device *)device;
    b->driver = b->module.driver;
    gpu_good(b, "context", b->driver->context_set(b->driver, b->device->context));
    gpu_good(b, "stream", b->driver->stream_new(b->driver, &b->stream, RN_GPU_STREAM_APART));
    device->kind->describe(device, text, sizeof text);
    printf("%s\n", text);
}

int main(int n, char **words)
{
    static struct gpu_bench b;
    int at = 1;

    if (n > 2 && strcmp(words[1], "--library") == 0)
        at = 3;
    open_device(&b, at == 3 ? words[2] : NULL);
    for (bench_copy(&b); at < n; at++) {
        if (strcmp(words[at], "products") == 0)
            bench_products(&b);
        else if (strcmp(words[at], "experts") == 0)
            bench_experts(&b);
        else if (strcmp(words[at], "attention") == 0)
            bench_attention(&b);
        else if (strcmp(words[at], "copy") != 0)
            bench_model(&b, words[at]);
        fflush(stdout);
    }
    b.driver->stream_free(b.driver, b.stream);
    b.device->base.kind->close(&b.device->base);
    return 0;
}
