/* Between the files of the CUDA backend: see backend.h. */
#ifndef RN_GPU_STEPS_H
#define RN_GPU_STEPS_H

#include "gpu/backend.h"
#include "gpu/kernels/draw_args.h"

#define RN_GPU_NOWHERE UINT64_MAX

/* backend.c: NULL on refusal of memory. */
struct rn_backend *rn_gpu_backend_new(struct rn_heap *heap, struct rn_gpu_device *device);

/* backend.c: rn_device_kind.step_bytes. */
uint64_t rn_gpu_step_bytes(struct rn_gpu_device *device, const struct rn_plan *plan,
                           const struct rn_backend_limits *limits);

/* backend.c: one launch on the backend's stream. `args` are those of the kernel. */
int rn_gpu_launch(struct rn_gpu_backend *backend, enum rn_kernel kernel, const void *args);

/* steps.c: the contract's (model/backend.h). */
void rn_gpu_submit_async(struct rn_backend *base, struct rn_step *step);

/* steps.c: the log gets the driver's words of the backend's first failure: "a step failed: ...". Not by a callback. */
void rn_gpu_tell_failure(struct rn_gpu_backend *backend, const char *what, int result);

/* steps.c: likewise of a step or a copy of blocks that has failed on the device, if one has; and by a callback, that it
 * has, if result is a failure. */
void rn_gpu_tell_noted(struct rn_gpu_backend *backend);
void rn_gpu_note_failure(_Atomic int *noted, int result);

/* steps.c: until so many steps have ended and nobody is in the backend for them any more. Waits for a callback that is
 * called or will be. */
void rn_gpu_steps_wait(struct rn_gpu_backend *backend, uint64_t n);

/* steps.c: with so many biases at most as a block looks through (RN_DRAW_BIASES). */
bool rn_gpu_can_draw(const struct rn_backend *backend, const runnel_sampling *sampling);

/* steps.c: the contract's. */
struct rn_draw_mask *rn_gpu_mask_of(struct rn_backend *backend, uint32_t out);

/* steps.c: the arguments of a step's draw. */
struct rn_draw_args rn_gpu_draw_args(const struct rn_gpu_backend *backend, uint32_t n_rows);

/* steps.c: the graphs that it has made. */
void rn_gpu_graphs_free(struct rn_gpu_backend *backend);

/* weights.c: how many bytes the weights of a plan take at most, of any plan, and with limits.expert_bytes the places of
 * experts; how many more are taken on the device while they are brought there; and where each lies, in bytes from the
 * first, and how many bytes that makes. send: brings them there and waits for it. *wanted false: the load was
 * cancelled. */
uint64_t rn_gpu_weights_bytes(const struct rn_plan *plan, uint64_t expert_bytes);
uint64_t rn_gpu_staging_bytes(const struct rn_plan *plan, uint64_t expert_bytes);
uint64_t rn_gpu_weights_place(struct rn_gpu_backend *backend, const struct rn_plan *plan);
int rn_gpu_weights_send(struct rn_gpu_backend *backend, rn_progress_fn progress, void *user, bool *wanted);

/* ops_cache.c: KV types that the kernels have, as bits. */
uint32_t rn_gpu_kv_types(void);

/* program.c: the kernels can compute the plan with a cache of this type. UNSUPPORTED names an op and its tensor, or its
 * heads and the type. */
runnel_status rn_gpu_plan_check(const struct rn_plan *plan, runnel_kv_type kv_type, runnel_error *error);

/* program.c: dynamic shared memory of every launch of a step is allowed. Before the first step. */
int rn_gpu_program_allow(struct rn_gpu_backend *backend);

/* ops_products.c: with limits.expert_use, bytes of what the counted ops of a step choose; and what they have chosen,
 * once the step of this shape is done. */
uint64_t rn_gpu_ids_bytes(const struct rn_gpu_backend *backend);
void rn_gpu_ids_count(struct rn_gpu_backend *backend, const struct rn_gpu_shape *shape);

/* blocks.c: the layer has blocks of its own kind, rn_step_seq.windows. */
bool rn_gpu_is_windowed(const struct rn_gpu_backend *backend, uint32_t layer);

/* ops_cache.c: memory between the launches of an attention that is split over positions. */
uint64_t rn_gpu_workspace_bytes(const struct rn_gpu_backend *backend);

/* ops_cache.c: the queries of an op, rotated as the cache's rows are (model/kv.h); 0 where these are not. */
uint64_t rn_gpu_rotated_bytes(const struct rn_gpu_backend *backend);

/* ops_products.c: memory between the launches of a product with many rows: of `split` and of `partial`. */
void rn_gpu_products_bytes(const struct rn_gpu_backend *backend, uint64_t *split, uint64_t *partial);

/* ops_products.c: likewise of products of experts with groups of pairs. */
void rn_gpu_expert_bytes(const struct rn_gpu_backend *backend, uint64_t *order, uint64_t *slots, uint64_t *split);

/* measure.c: blocks of matmul_stream on this device; 0: there is not enough shared memory for it. measure: sets
 * stream_blocks for each type of which the plan multiplies at least so many bytes. Behind the weights, before the first
 * step. */
uint32_t rn_gpu_stream_blocks(const struct rn_gpu_backend *backend);
int rn_gpu_products_measure(struct rn_gpu_backend *backend, uint64_t least_bytes);

/* inputs.c: as many positions, rounded up to what a step's shape has: whole chunks of attention, a power of two of them
 * or the whole context. */
uint32_t rn_gpu_longest(const struct rn_gpu_backend *backend, uint32_t positions);

/* features.c: bytes of so many rows' features. put: the numbers of a step's wanted rows, `wanted` behind those of the
 * logits; completes the shape. send: features to the pinned memory, behind the ops; give: from there to the step. */
uint64_t rn_gpu_features_bytes(const struct rn_gpu_backend *backend, uint32_t n_rows);
void rn_gpu_features_put(struct rn_gpu_backend *backend, const struct rn_step *step, struct rn_gpu_shape *shape,
                         uint32_t *wanted, uint32_t *rows, uint32_t *selected);
int rn_gpu_features_send(struct rn_gpu_backend *backend, const struct rn_gpu_shape *shape);
void rn_gpu_features_give(const struct rn_gpu_backend *backend, const struct rn_step *step,
                          const struct rn_gpu_shape *shape);

/* program.c: launches all ops of a step of this shape. */
int rn_gpu_program_run(struct rn_gpu_backend *backend, const struct rn_gpu_shape *shape);

/* program.c: finds what is launched together, into items and n_items; and where angles lie in the slots' piece, from
 * `at` on: the end. Before all that launches. bytes: of one rotation's angles, if it has any there. */
void rn_gpu_program_place(struct rn_gpu_backend *backend);
uint64_t rn_gpu_angles_bytes(const struct rn_gpu_backend *backend, uint32_t rope);
uint64_t rn_gpu_angles_place(struct rn_gpu_backend *backend, uint64_t at);

/* program.c: launches the item of this index alone. For measuring. */
int rn_gpu_program_item(struct rn_gpu_backend *backend, uint32_t index, const struct rn_gpu_shape *shape);

/* inputs.c: where each thing that a step brings lies in the inputs, and how many bytes all of it has at most. */
uint64_t rn_gpu_inputs_place(struct rn_gpu_backend *backend);

/* inputs.c: writes what the step brings to the pinned memory, and sends it; tells the shape. */
int rn_gpu_inputs_send(struct rn_gpu_backend *backend, const struct rn_step *step, struct rn_gpu_shape *shape);

/* blocks.c: where layers lie in a block. */
void rn_gpu_blocks_place(struct rn_gpu_backend *backend, const struct rn_plan *plan);

/* blocks.c: the copies of a step. */
int rn_gpu_blocks_copy(struct rn_gpu_backend *backend, const struct rn_step *step);

/* blocks.c: likewise of recurrent states, with what inputs.c has sent. */
int rn_gpu_states_copy(struct rn_gpu_backend *backend, const struct rn_step *step);

/* blocks.c: what a step moves, behind its copies; and the `parts` of the inputs. */
int rn_gpu_moves(struct rn_gpu_backend *backend, const struct rn_step *step);
void rn_gpu_parts_put(const struct rn_gpu_backend *backend, uint32_t *parts);

/* blocks.c: the contract's (model/backend.h). */
size_t rn_gpu_block_bytes(const struct rn_backend *backend);
const char *rn_gpu_layout(const struct rn_backend *backend);
size_t rn_gpu_state_bytes(const struct rn_backend *backend);
void rn_gpu_copy_async(struct rn_backend *backend, struct rn_host_copies *copies);
void *rn_gpu_host_alloc(struct rn_backend *backend, size_t bytes);
void rn_gpu_host_free(struct rn_backend *backend, void *memory);

/* experts_place.c: rn_device_kind.expert_room. Of experts see experts.h. */
void rn_gpu_expert_room(const struct rn_plan *plan, uint64_t expert_bytes, struct rn_expert_room *room);

/* experts_place.c: the weight is one of experts; `routed`: of those that a router chooses, not of adapters. */
bool rn_gpu_is_expert(const struct rn_plan *plan, uint32_t weight, bool routed);

/* experts_place.c: backend->experts for limits.expert_bytes: on the heap alone; NULL where these are 0. False: no memory.
 * take: the device's and the host's memory, streams; free: all. */
bool rn_gpu_experts_new(struct rn_gpu_backend *backend);
int rn_gpu_experts_take(struct rn_gpu_backend *backend);
void rn_gpu_experts_free(struct rn_gpu_backend *backend);

/* experts_place.c: where the matrix of an expert of this weight is to be brought: in the host's memory, and on the device,
 * 0: not there. False: the weight is not apart. For weights.c, which makes both. */
struct rn_gpu_expert_home {
    unsigned char *host;
    uint64_t device;
};
bool rn_gpu_expert_home(const struct rn_gpu_backend *backend, uint32_t weight, uint32_t expert,
                        struct rn_gpu_expert_home *home);

/* experts.c: before a step's ops: what has come, what is to come, and the tables. */
int rn_gpu_experts_step(struct rn_gpu_backend *backend);

/* experts.c: an op of a step that has ended has chosen these ids, n of them. Before the step is given back. */
void rn_gpu_experts_count(struct rn_gpu_backend *backend, const struct rn_op *op, const int32_t *ids, uint32_t n);

/* experts.c: all tables as they are now, for the first step. */
int rn_gpu_experts_tables(struct rn_gpu_backend *backend);

#endif
