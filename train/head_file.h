/* HEAD.gguf: an EAGLE head as a file.
 *
 *     general.architecture            "runnel-eagle"
 *     runnel-eagle.vocab_size, .embedding_length, .block_count (1), .context_length, .feed_forward_length,
 *         .attention.head_count, .head_count_kv, .key_length, .value_length, .layer_norm_rms_epsilon,
 *         .rope.freq_base, .rope.dimension_count     as in every GGUF model
 *     runnel-eagle.target_layers      [taps] u32: blocks whose residual streams are read, numbered from 0, ascending
 *     runnel-eagle.target_print       32 hex digits: the fingerprint of the target's file (cache/store/fingerprint.h)
 *     runnel-eagle.training.steps, .unroll, .seed, .loss, .accepted     what it was made with, and what came of it
 *
 * Tensors: those of enum rn_eagle_tensor by the names in its spans, matrices F16 or F32, norms F32. The names inside
 * the layer are llama's; those of the join are the names under which GGUF files hold DeepSeek-V3's prediction layer
 * (nextn.*), and fc is what published EAGLE-3 files call the fusion. The embedding and the output matrix are the
 * target's and not in the file. An architecture of its own, because the join's shape is not EAGLE-3's published one: a
 * program that knows that one must not take this for it.
 *
 * Threads: single-owner data. Both functions block on the disk. */
#ifndef RN_TRAIN_HEAD_FILE_H
#define RN_TRAIN_HEAD_FILE_H

#include "train/trainer.h"

struct rn_head {
    struct rn_heap *heap;
    struct rn_eagle_shape shape;
    struct rn_eagle_span spans[RN_EAGLE_TENSORS];
    unsigned char target[16];
    uint32_t tapped[RN_EAGLE_MAX_TAPS];
    uint32_t context_tokens; /* longest text it was trained on */
    float *weights;          /* [layout] */
};

/* Replaces `path` at once. context_tokens: the longest text of the training. IO, NO_MEMORY. */
runnel_status rn_head_save(const struct rn_trainer *trainer, uint32_t context_tokens, bool f16, const char *path,
                           runnel_error *error);

/* FORMAT names the key or tensor that is missing or misshaped; UNSUPPORTED: a file of another architecture; IO,
 * NO_MEMORY. On failure *head is empty. */
runnel_status rn_head_open(struct rn_head *head, struct rn_heap *heap, const char *path, runnel_error *error);
void rn_head_fini(struct rn_head *head);

#endif
