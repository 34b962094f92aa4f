/* The emulated driver's inside: driver.c has its life, its device, its memory and its modules, streams.c its streams,
 * events and graphs.
 *
 * What a stream is given while it captures goes to a graph instead, and into the queue with each launch of it.
 *
 *   any thread ──command──▶ stream: first ─▶ ... ─▶ last ──▶ its thread: copy, fill, launch, record, call back
 *
 * All is under one lock but what a command does. The lock's condition is broadcast at every change that somebody may
 * wait for: a new command, an empty queue, a recorded event. A range of the device's memory that is not within one
 * piece is a lost context, as on a device. New memory is full of 0xff, which is NaN as a number: whoever reads what
 * nobody wrote gets that. What is still there when the driver is closed is freed with it; of what has not run by then
 * only callbacks are called, with an error. */
#ifndef RN_GPU_EMULATED_DRIVER_H
#define RN_GPU_EMULATED_DRIVER_H

#include <pthread.h>

#include "gpu/emulated/emulation.h"

enum rn_gpu_command_kind { RN_GPU_COPY, RN_GPU_FILL, RN_GPU_LAUNCH, RN_GPU_CALL_BACK, RN_GPU_RECORD, RN_GPU_WAIT };

struct rn_gpu_command {
    struct rn_gpu_command *next;
    enum rn_gpu_command_kind kind;
    void *to;
    const void *from;
    size_t bytes;
    unsigned char value;
    const void *kernel;
    unsigned grid[3], block[3], shared_bytes;
    rn_gpu_callback callback;
    void *user;
    struct rn_gpu_event *event;
    uint64_t records;          /* of the event, that a WAIT waits for */
    unsigned char arguments[]; /* of a launch */
};

struct rn_gpu_commands {
    struct rn_gpu_command *first, **last;
};

struct rn_gpu_piece { /* of memory, the device's or the host's; they ascend */
    struct rn_gpu_piece *next;
    void *at;
    size_t bytes;
    bool is_host;
};

struct rn_gpu_event {
    struct rn_gpu_event *next;
    uint64_t recorded, done; /* how often */
};

struct rn_gpu_function {
    struct rn_gpu_function *next;
    const void *kernel;
    size_t argument_bytes;
    int shared_most;
};

struct rn_gpu_graph {
    struct rn_gpu_graph *next;
    struct rn_gpu_commands commands;
};

struct rn_gpu_exec {
    struct rn_gpu_graph graph; /* first */
};

struct rn_gpu_stream {
    struct rn_gpu_stream *next;
    struct rn_gpu_emulated *driver;
    pthread_t thread;
    void *emulator;
    struct rn_gpu_commands commands;
    struct rn_gpu_graph *capture; /* NULL: it does not */
    bool busy, ends;
};

struct rn_gpu_emulated {
    struct rn_gpu_driver base; /* first */
    struct rn_heap *heap;
    const struct rn_gpu_emulation *emulation;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t memory_bytes, taken_bytes;
    int lost;                            /* by what; 0: it is not */
    char fault[RN_EMULATED_FAULT_BYTES]; /* of a launch: a sentence; "": none */
    struct rn_gpu_piece *pieces;
    struct rn_gpu_stream *streams;
    struct rn_gpu_event *events;
    struct rn_gpu_function *functions;
    struct rn_gpu_graph *graphs; /* execs, too */
};

/* Every function of the table. */
#define RN_GPU_CALL(name, symbol, parameters, arguments) int rn_gpu_emulated_##name RN_GPU_WITH_DRIVER parameters;
#include "gpu/driver.def"

/* Unlinks `item` from a list of structs that begin with their `next`. False: it is not there. */
bool rn_gpu_emulated_unlink(void *list, void *item);

static inline struct rn_gpu_emulated *rn_gpu_emulated_of(struct rn_gpu_driver *driver)
{
    return (struct rn_gpu_emulated *)driver;
}

/* A number that the host calls the device's address. */
static inline void *rn_gpu_emulated_address(uint64_t at)
{
    return (void *)(uintptr_t)at;
}

#endif
