/* The wish that a step end early, because nobody wants what it computes any more (rn_step.stop).
 *
 * Set by the step's submitter while the step is in flight, or before; looked at by the threads of the backend, as often
 * as they like, between two ops or inside one. Once set it stays set until the step is back.
 *
 * Apart from backend.h, which CUDA's compiler reads: it knows no atomics. */
#ifndef RN_MODEL_STOP_H
#define RN_MODEL_STOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct rn_stop {
    _Atomic bool wanted;
};

/* The submitter: before it submits the step. */
static inline void rn_stop_clear(struct rn_stop *stop)
{
    atomic_store_explicit(&stop->wanted, false, memory_order_relaxed); /* the submit orders it before the step */
}

/* The submitter: any time until on_done. */
static inline void rn_stop_set(struct rn_stop *stop)
{
    /* partner: rn_stop_is_set. relaxed: nothing is handed over with it, and what a stopped step leaves is not used */
    atomic_store_explicit(&stop->wanted, true, memory_order_relaxed);
}

/* The backend. stop NULL: no. Where one thread has seen it set, so does each one that has met it at a barrier since. */
static inline bool rn_stop_is_set(struct rn_stop *stop)
{
    return stop != NULL && atomic_load_explicit(&stop->wanted, memory_order_relaxed); /* partner: rn_stop_set */
}

#endif
