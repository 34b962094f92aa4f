/* The worker: one thread for work that blocks on the disk or takes long (loading a model, freeing
 * one, sessions' files), so that no actor ever does. Jobs run in order. */
#ifndef RN_ACTORS_RUNTIME_WORKER_H
#define RN_ACTORS_RUNTIME_WORKER_H

#include <stdbool.h>

#include "base/status.h"
#include "mailbox/flag.h"
#include "mailbox/queue.h"
#include "mailbox/wake.h"

struct rn_work {
    void (*run)(struct rn_work *work); /* may free the memory that `work` lies in */
};

struct rn_worker {
    struct rn_queue *queue;
    struct rn_wake wake;
    struct rn_word stopping;
    unsigned long thread; /* pthread_t */
    bool manual;          /* no thread: jobs run inside post */
    uint32_t capacity;
    struct rn_counter n_waiting; /* jobs that were posted and have not begun */
};

/* At most `capacity` jobs wait at once. */
runnel_status rn_worker_init(struct rn_worker *worker, struct rn_heap *heap, uint32_t capacity, bool manual);

/* Ends the thread after the jobs already posted. */
void rn_worker_fini(struct rn_worker *worker);

/* Any thread. The work stays the poster's memory, untouched until it has run. */
void rn_worker_post(struct rn_worker *worker, struct rn_work *work);

/* No more jobs wait than may, in manual mode none. Where no thread posts. */
bool rn_worker_check(const struct rn_worker *worker);

#endif
