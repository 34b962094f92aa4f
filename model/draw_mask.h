/* Which tokens may be drawn from a wanted row, for a device that draws by itself: made by a thread of the submitter's
 * while the step runs, and looked at by the device when it draws the row.
 *
 *   submitter      clear ─▶ submit                    put ───▶ (too late: draws from rn_draw.late_logits itself)
 *   device                   └─ ops of the step ─▶ is it there? ─▶ draws from what it allows, or gives the logits
 *
 * It lies in the device's memory of the host (rn_backend_ops.mask_of). Apart from draw.h, as stop.h is from backend.h:
 * what CUDA's compiler reads knows no atomics. */
#ifndef RN_MODEL_DRAW_MASK_H
#define RN_MODEL_DRAW_MASK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct rn_draw_mask {
    _Atomic uint32_t is_there; /* 1, or 0; stored by the submitter's thread, read by the device */
    uint32_t may_end;          /* 1: what is barred may come (rn_draw_changes) */
    uint32_t unused[2];
    uint64_t words[]; /* [(n_vocab + 63) / 64]: bit t of them is token t */
};

/* The submitter: before it submits the step. */
static inline void rn_draw_mask_clear(struct rn_draw_mask *mask)
{
    atomic_store_explicit(&mask->is_there, 0, memory_order_relaxed); /* the submit orders it before the step */
}

/* One thread of the submitter's: until it has the step back. */
static inline void rn_draw_mask_put(struct rn_draw_mask *mask, const uint64_t *words, uint32_t n_words, bool may_end)
{
    mask->may_end = may_end;
    memcpy(mask->words, words, n_words * sizeof *words);
    /* partner: the device's read with acquire (gpu/kernels/draw.cu). Weaker: it draws from half a mask */
    atomic_store_explicit(&mask->is_there, 1, memory_order_release);
}

/* A device whose threads are the host's. */
static inline bool rn_draw_mask_is_there(const struct rn_draw_mask *mask)
{
    return atomic_load_explicit(&mask->is_there, memory_order_acquire) != 0; /* partner: rn_draw_mask_put */
}

#endif
