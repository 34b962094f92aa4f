/* LoRA adapters (Hu et al. 2021, arXiv 2106.09685): what a finetune adds to some products of a model, as two thin
 * matrices each, for those rows of a step whose sequence has the adapter.
 *
 *     y = W x + (alpha / rank) * scale * B (A x)
 *
 *     files ──rn_adapters_load──▶ stacks: for each matrix W that any of them changes, A and B of all of them,
 *                                 A with its factor (alpha / rank) * scale
 *     plan, stacks ──rn_plan_adapt──▶ the plan with ops for what they add
 *
 * In a plan an adapter is an expert that the row's sequence has chosen (rn_step_seq.adapter): number 0 has zeros, 1 is
 * the first adapter. So rows of many adapters go through one step, each reads its own adapter's matrices alone, and
 * what a row gets does not depend on what others have (law 5). Steps without any adapter pass over these ops
 * (rn_op.adapted).
 *
 * Files: GGUF with general.type "adapter" and adapter.type "lora", as llama.cpp's converter writes them:
 *
 *     general.architecture   the model's
 *     adapter.lora.alpha     absent or 0: alpha / rank is 1
 *     NAME.lora_a            [columns of the matrix NAME, rank]
 *     NAME.lora_b            [rank, rows of NAME]
 *
 * Threads: immutable once loaded; any thread may read. */
#ifndef RN_MODEL_ADAPTER_H
#define RN_MODEL_ADAPTER_H

#include "base/log.h"
#include "model/plan.h"

enum { RN_MAX_ADAPTERS = 64, RN_ADAPTER_NAME_BYTES = 64, RN_MAX_RANK = 8192 };

struct rn_adapters; /* opaque */

/* One to be loaded. */
struct rn_adapter_source {
    const char *name; /* another for each, not empty, shorter than RN_ADAPTER_NAME_BYTES */
    const char *path;
    float scale; /* finite */
};

/* Who waits for a load. */
struct rn_adapter_watch {
    const struct rn_log *log;    /* NULL: none */
    bool (*goes_on)(void *user); /* asked before each file and before each matrix of each adapter is copied: false ends
                                    the load. On the loading thread */
    void *user;
};

/* Loads n files, 1 to RN_MAX_ADAPTERS, for the whole model's plan, whose gguf must outlive the result; the plan need
 * not. Every matrix that they change is one that the plan multiplies rows by. Pairs whose matrix nothing depends on
 * (keys of a block that takes another's) are passed over, with a line for the log. watch NULL: nobody waits. Blocks on
 * the disk.
 * IO; FORMAT: a file is damaged, or its tensors have not the shapes that the model's ask for; UNSUPPORTED: it is no
 * LoRA adapter, or one for another architecture, or changes what cannot be adapted; NO_MEMORY; CANCELLED: the load was
 * ended. *error names the adapter's file and the tensor or key; of CANCELLED it stays as it was. */
runnel_status rn_adapters_load(struct rn_heap *heap, const struct rn_plan *plan,
                               const struct rn_adapter_source *sources, uint32_t n,
                               const struct rn_adapter_watch *watch, struct rn_adapters **out, runnel_error *error);
void rn_adapters_free(struct rn_adapters *adapters); /* NULL is allowed. No plan with their ops is left */

uint32_t rn_adapters_count(const struct rn_adapters *adapters); /* of NULL 0 */
/* Of number 1 to count: its file, the scale it was loaded with. */
const struct rn_gguf *rn_adapter_gguf(const struct rn_adapters *adapters, uint32_t number);
float rn_adapter_scale(const struct rn_adapters *adapters, uint32_t number);
/* Its number; 0: none has that name. adapters NULL: there are none. */
uint32_t rn_adapters_find(const struct rn_adapters *adapters, const char *name);
uint64_t rn_adapters_bytes(const struct rn_adapters *adapters); /* of all stacks; of NULL 0 */

/* Puts the ops in. Of a part of a model (cut.h): those for its products. The adapters must outlive the plan. On a
 * refusal (NO_MEMORY; UNSUPPORTED: the plan needs too many slots) the plan is as it was. */
runnel_status rn_plan_adapt(struct rn_plan *plan, const struct rn_adapters *adapters, runnel_error *error);

/* Whether `tensor`, of the plan's file, can be adapted. OK: the plan multiplies rows by it, and reads it as nothing
 * else (*is_read true), or it is a matrix on which nothing that the plan computes depends. UNSUPPORTED: *error names
 * `path`, the adapter's file. */
runnel_status rn_plan_can_adapt(const struct rn_plan *plan, const struct rn_tensor *tensor, const char *path,
                                bool *is_read, runnel_error *error);

/* For rn_plan_adapt: for the matrix `tensor` the stacks of A times its factor, [n + 1][rank, columns], and of B, [n +
 * 1][rows, rank]. False: none of them changes it. */
struct rn_adapter_stacks {
    const struct rn_tensor *a, *b;
    uint32_t rank; /* the largest of them; the others have zeros behind their own */
};
bool rn_adapters_of(const struct rn_adapters *adapters, const struct rn_tensor *tensor,
                    struct rn_adapter_stacks *stacks);

#endif
