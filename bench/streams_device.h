/* A device for bench/streams.c that takes its time and computes nothing, as a GPU does seen from the host: a step takes
 *
 *   step_ns + row_ns * rows       from the moment it is submitted, or the step before it is done
 *
 * on a thread that sleeps meanwhile. Each wanted row's token follows from its position alone; steps with draws get it
 * without a drawer, and without logits if they want none. The oracle of tests/sim
 * checks the contract on the submitter's thread and sums over the past, which would be measured as the engine's. */
#ifndef RN_BENCH_STREAMS_DEVICE_H
#define RN_BENCH_STREAMS_DEVICE_H

#include <stdatomic.h>

#include "mailbox/flag.h"
#include "mailbox/wake.h"
#include "model/backend.h"

#define DEVICE_VOCAB 256
#define DEVICE_RING 2 /* steps in flight */

struct device {
    struct rn_backend backend; /* first */
    _Atomic(uint64_t) step_ns; /* may be changed at any time: relaxed would do, a step may still take the old one */
    uint64_t row_ns;
    struct rn_word stopping;
    struct rn_wake wake;
    struct device_slot {
        struct rn_word full;
        struct rn_step *step;
        uint64_t submitted_ns;
    } ring[DEVICE_RING];
    uint64_t n_submitted; /* the submitter's: which slot is the next */
    unsigned long thread;
    int32_t *hot; /* [max_outs]: the logit that is not 0 in its row; -1: the row was not cleared yet */
    uint32_t max_outs;
    /* The device's thread's; read when it is at rest. */
    uint64_t n_run;   /* which slot is the next */
    uint64_t done_ns; /* of the last step; 0: it has just been reset */
    uint64_t idle_ns, busy_ns, n_steps;
};

/* NULL: no memory or no thread. From the C library's heap. Freed with device_free, after the engine. */
struct device *device_new(const struct rn_backend_limits *limits);
void device_free(struct device *device);

/* Counts from zero; the time until the next step is not idle. */
void device_reset(struct device *device);

uint64_t monotonic_ns(void);

/* Processor time of a thread. */
uint64_t thread_cpu_ns(unsigned long thread);

#endif
