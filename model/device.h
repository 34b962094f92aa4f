/* What a device is before it has a model: what it can do, what memory it has, and how a backend comes to be on it.
 *
 *   kind ("cpu") ──open──▶ device (its threads or its context) ──new_backend──▶ backend of one model (backend.h)
 *
 * The engine has a list of the kinds that the build knows; nobody else names one. All backends of a device share what
 * it has opened, and must be freed before it is closed. */
#ifndef RN_MODEL_DEVICE_H
#define RN_MODEL_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/status.h"

struct rn_backend;
struct rn_backend_limits;
struct rn_log;
struct rn_plan;

/* What steps of a backend may ask for. A limit that is not among a device's bits is refused by prepare. */
enum rn_device_can {
    RN_CAN_TREES = 1 << 0,       /* rn_backend_limits.tree_depth, and with it moves */
    RN_CAN_MEANS = 1 << 1,       /* rn_backend_limits.mean_window */
    RN_CAN_FEATURES = 1 << 2,    /* rn_step.features, of plans that have TAPs */
    RN_CAN_INPUTS = 1 << 3,      /* rn_step.inputs, of plans that have INPUT */
    RN_CAN_DRAW = 1 << 4,        /* rn_step.draws and rn_step.drawn (draw.h) */
    RN_CAN_DRAW_ITSELF = 1 << 5, /* and that without a drawer */
    RN_CAN_STATE = 1 << 6,       /* rn_backend_limits.n_states */
    RN_CAN_WINDOWS = 1 << 7,     /* rn_backend_limits.window */
};

struct rn_device_caps {
    uint32_t can;          /* bits of enum rn_device_can */
    uint32_t kv_types;     /* bit 1 << type for each runnel_kv_type that it keeps */
    uint32_t max_rows;     /* of a step: rn_backend_limits.max_rows is at most this */
    uint32_t max_outs;     /* rows of a step whose logits are wanted, likewise */
    uint32_t good_rows;    /* what suits it where nobody says more: rows of a step, ... */
    uint32_t good_outs;    /* ... sequences that decode in one step, ... */
    uint32_t block_tokens; /* ... positions of a KV block ... */
    uint32_t good_ring;    /* ... and steps in flight: of `ring`, so many as it takes to keep the device busy */
    uint32_t ring;         /* steps that may be in flight at once; each is computed behind those before it */
    uint32_t draw_threads; /* the host's threads that may call a step's drawer at once; 0: it is not called */
};

struct rn_device_memory {
    uint64_t total_bytes, free_bytes; /* free: about, and now */
    bool shared;                      /* it is the host's own: all else on the machine lives there, too */
};

struct rn_device {
    const struct rn_device_kind *kind;
    const struct rn_device_caps *caps; /* as long as the device is open */
    uint32_t index;                    /* which of its kind: rn_device_options.index */
};

struct rn_device_options {
    uint32_t index;           /* below count() */
    const char *library;      /* the file of kernels of a device that has its own in one; NULL: by its usual name */
    uint32_t n_threads;       /* of a device that computes on the host's; 0: as many as suit the machine */
    uint32_t nice;            /* what is added to their nice values; 0: they are scheduled like the thread that opens */
    const struct rn_log *log; /* where it says what it goes on without; lives as long as the device; NULL: nowhere */
    struct rn_device *beside; /* an open device whose threads it may share, which must outlive it; NULL: its own. Of
                                 look: the engine's first device, where it has one */
};

/* Where the routed experts of a plan lie, with rn_backend_limits.expert_bytes. */
struct rn_expert_room {
    uint64_t host_bytes;   /* of all of them, in the host's memory */
    uint64_t device_bytes; /* of places for some of them in the device's */
    uint32_t n, n_places;  /* experts of all layers, and such places */
};

struct rn_device_kind {
    const char *name; /* what a host asks for */

    /* Which of them, below count(), `part` of "name:part" is. UNSUPPORTED, and the error says what there is. NULL: it
     * is the number itself. */
    runnel_status (*find)(const char *part, uint32_t *index, runnel_error *error);

    /* How many of it the machine has. 0: none, and the error says why. `library` as in the options. On a thread of the
     * host's, which must not be held up. NULL: that takes long, and open says that there is none. */
    uint32_t (*count)(struct rn_heap *heap, const char *library, runnel_error *error);

    /* NULL, and the error says why: NO_MEMORY, memory or threads are refused; UNSUPPORTED; DEVICE. May take long. */
    struct rn_device *(*open)(struct rn_heap *heap, const struct rn_device_options *options, runnel_error *error);

    /* No backend is on it. */
    void (*close)(struct rn_device *device);

    /* All that is asked of it fails, and no backend is on it any more: it is to be closed, and can be opened anew. On
     * the thread that makes backends. NULL: that does not happen. */
    bool (*is_lost)(const struct rn_device *device);

    /* NULL on refusal of memory. */
    struct rn_backend *(*new_backend)(struct rn_device *device, struct rn_heap *heap);

    void (*memory)(const struct rn_device *device, struct rn_device_memory *memory);

    /* Of that memory, what the weights of a plan take, with rn_backend_limits.expert_bytes. NULL: as much as in the
     * file. */
    uint64_t (*weight_bytes)(const struct rn_device *device, const struct rn_plan *plan, uint64_t expert_bytes);

    /* Of that memory, what a backend takes for steps of a plan, and for the while in which it is prepared, at most: all
     * but weights, KV blocks and recurrent states. Of the limits n_blocks, n_windows and n_states may be 0. NULL:
     * nothing that counts, as in a memory that is the host's. */
    uint64_t (*step_bytes)(const struct rn_device *device, const struct rn_plan *plan,
                           const struct rn_backend_limits *limits);

    /* How so many bytes for experts are used; of a plan without experts all is 0. NULL: they lie with their layers. */
    void (*expert_room)(const struct rn_plan *plan, uint64_t expert_bytes, struct rn_expert_room *room);

    /* What the log says of it, at most size bytes with the end. */
    void (*describe)(const struct rn_device *device, char *text, size_t size);

    /* All of *info but its struct_size, which is zeros before: see runnel_engine_device. May take long. */
    void (*look)(struct rn_heap *heap, const struct rn_device_options *options, runnel_device_info *info);

    /* All of *machine but its struct_size; blocks. See runnel_engine_measure. NO_MEMORY; CLOSED: is_unwanted, which is
     * asked before each of many short passes, has said so. is_unwanted NULL: it never is. measure NULL: it cannot. */
    runnel_status (*measure)(struct rn_device *device, struct rn_heap *heap, bool (*is_unwanted)(void *user),
                             void *user, runnel_machine *machine, runnel_error *error);
};

static inline bool rn_device_can(const struct rn_device_caps *caps, uint32_t bits)
{
    return (caps->can & bits) == bits;
}

static inline bool rn_device_has_kv(const struct rn_device_caps *caps, runnel_kv_type type)
{
    return (unsigned)type < 32 && (caps->kv_types >> type & 1u) != 0;
}

/* What the plan's weights take of the device's memory; expert_bytes as in the limits of its backend. */
uint64_t rn_device_weight_bytes(const struct rn_device *device, const struct rn_plan *plan, uint64_t expert_bytes);

/* What steps of the plan take of it, with these limits. */
uint64_t rn_device_step_bytes(const struct rn_device *device, const struct rn_plan *plan,
                              const struct rn_backend_limits *limits);

/* Of a memory that is the device's own and that weights leave so much of: what KV blocks should not take, a tenth of
 * it; or step_bytes and a fiftieth, if that is more: a driver rounds pieces up, and keeps graphs. */
uint64_t rn_device_reserve(uint64_t left_bytes, uint64_t step_bytes);

/* The most bytes that KV blocks should take where the host does not say: a quarter of a memory that everything on the
 * machine shares; of a device's own, what weights of so many bytes leave free, without the reserve for steps. */
uint64_t rn_device_kv_bytes(const struct rn_device_memory *memory, uint64_t weight_bytes, uint64_t step_bytes);

/* How many KV blocks of block_bytes each: room for `contexts` sequences of context_blocks each, but no more than
 * kv_bytes hold (of a memory that is not shared, always as many as that), and at least one sequence's. Below 2^31 + 1.
 */
uint64_t rn_device_blocks(const struct rn_device_memory *memory, uint64_t weight_bytes, uint64_t step_bytes,
                          uint64_t block_bytes, uint64_t context_blocks, uint32_t contexts);

#endif
