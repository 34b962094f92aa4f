/* The trainer of an EAGLE head: weights, their moments, and the schedule.
 *
 * One step of learning over a batch of texts:
 *     gradients = mean over the texts (eagle.h), scaled down to a norm of at most `clip`
 *     m = b1 m + (1 - b1) g      v = b2 v + (1 - b2) g²      b1 = 0.9, b2 = 0.95
 *     w -= rate * (m' / (sqrt(v') + 1e-8) + weight_decay * w)   m', v' corrected for their start at 0; decay on
 *                                                               matrices alone (AdamW: arXiv 1711.05101)
 *     rate: linear to its peak over warm_steps, then half a cosine down to a tenth of it at the last step
 *
 * What a step does is a function of the state and its texts; rn_trainer_place says which text belongs to which step
 * by seed and number alone. So training that was stopped and resumed from its file ends in the same bits as training
 * that never stopped, on the same machine.
 *
 * Threads: single-owner data, on the caller's thread. */
#ifndef RN_TRAIN_TRAINER_H
#define RN_TRAIN_TRAINER_H

#include "train/eagle.h"

struct rn_trainer_options {
    uint32_t steps, warm_steps; /* steps >= 1 */
    uint32_t unroll;
    float decay; /* of the steps' weights in the loss; 0 < decay <= 1 */
    float rate, weight_decay, clip;
    uint64_t seed;
};

/* Whose head this is: compared when training is resumed and when a head is used. */
struct rn_trainer_origin {
    unsigned char target[16];           /* fingerprint of the target's file */
    unsigned char corpus[16];           /* of what is learned from; zeros: not known */
    uint32_t tapped[RN_EAGLE_MAX_TAPS]; /* blocks; [shape.taps] of them */
};

struct rn_trainer {
    struct rn_heap *heap;
    struct rn_eagle_shape shape;
    struct rn_eagle_span spans[RN_EAGLE_TENSORS];
    struct rn_trainer_options options;
    struct rn_trainer_origin origin;
    size_t n;                                                        /* floats */
    float *weights, *m, *v;                                          /* [n], one block from weights on */
    float *gradients;                                                /* [n] */
    uint32_t step;                                                   /* steps done */
    double loss[RN_EAGLE_MAX_UNROLL], accepted[RN_EAGLE_MAX_UNROLL]; /* of the last step: means over the rows */
};

/* Begins with starting weights. INVALID: shape or options out of range; NO_MEMORY. */
runnel_status rn_trainer_init(struct rn_trainer *trainer, struct rn_heap *heap, const struct rn_eagle_shape *shape,
                              const struct rn_trainer_options *options, const struct rn_trainer_origin *origin);
void rn_trainer_fini(struct rn_trainer *trainer);

/* One step: begin, add each text of the batch (`texts` in all), end. False from end: the gradients were not finite, and
 * the weights are as before. */
void rn_trainer_begin(struct rn_trainer *trainer, struct rn_eagle_score *score);
void rn_trainer_add(struct rn_trainer *trainer, struct rn_eagle *eagle, const struct rn_eagle_text *text,
                    uint32_t texts, struct rn_eagle_score *score);
bool rn_trainer_end(struct rn_trainer *trainer, const struct rn_eagle_score *score);

/* True: sizes, options and steps are what can be, and the arrays lie one behind the other. Between two calls. */
bool rn_trainer_check(const struct rn_trainer *trainer);

/* The rate of the step after `step` steps. */
float rn_trainer_rate(const struct rn_trainer_options *options, uint32_t step);

/* In [0, places): where the text number `text` of step `step` begins. */
uint64_t rn_trainer_place(uint64_t seed, uint32_t step, uint32_t text, uint64_t places);

/* The whole state, in a file that replaces what is at `path` at once (base/new_file.h). Blocks on the disk. IO names the
 * file, also one that is there and no regular file; BUSY: another writes it; NO_MEMORY. */
runnel_status rn_trainer_save(const struct rn_trainer *trainer, const char *path, runnel_error *error);

/* Into a trainer just initialised with the same shape, options and origin. STATE: it is of another training, and what
 * differs is named; FORMAT: not such a file, or damaged; IO. The trainer is untouched unless OK. */
runnel_status rn_trainer_load(struct rn_trainer *trainer, const char *path, runnel_error *error);

#endif
