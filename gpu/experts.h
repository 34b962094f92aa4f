/* Routed experts apart from the other weights: all lie in pinned memory of the host, in the kernels' order, and those
 * that are used most in places on the device, too.
 *
 *   table of a weight, on the device: [experts] of addresses ─┬─▶ the host's memory, which a kernel reads over the bus
 *                                                             └─▶ a place on the device
 *
 * So a step never waits for an expert, and a row's bits do not depend on where one lies. A group is the experts of one
 * layer; a place holds one expert of its group, all of its matrices. Each group has as many places as the others, or
 * one more.
 *
 *   submit(n)    the table says for step n that expert b is in the host's memory
 *                stream ──event: steps before n are done──▶ fetches: the host's copy of a ──▶ b's place ──▶ callback
 *   submit(m)    the callback has come: the table says for step m that expert a is in that place
 *
 * Tables change in the stream of steps, by copies in front of a step's ops; so a graph of a step reads what is true for
 * it. Which experts come and go is decided by expert_policy.h from the ids that the steps' rows have chosen.
 *
 * Threads: all by the submitter, but rn_gpu_experts_count by who ends a step, and the callback by the driver's. */
#ifndef RN_GPU_EXPERTS_H
#define RN_GPU_EXPERTS_H

#include <stdatomic.h>

#include "gpu/backend.h"

enum {
    RN_GPU_EXPERT_PARTS = 3, /* matrices of an expert, at most: gate, up and down */
    RN_GPU_FETCHES = 4,      /* experts on their way at once */
    RN_GPU_LOOKED_AT = 8     /* groups whose scores are looked at before a step */
};

struct rn_gpu_expert_part {
    uint32_t weight;     /* of the plan; the first of its tensor */
    uint64_t bytes;      /* of an expert's matrix */
    uint64_t place_at;   /* in a place */
    unsigned char *host; /* pinned: [experts] of bytes */
};

struct rn_gpu_expert_group {
    uint32_t layer, experts, n_parts;
    struct rn_gpu_expert_part parts[RN_GPU_EXPERT_PARTS];
    uint64_t place_bytes;
    uint64_t places_at;          /* in the device's piece */
    uint32_t first, first_place; /* of the group's experts among all, and of its places */
    uint32_t n_places;
    bool counts;  /* an op of it is rn_op.counted */
    bool changed; /* the device has older tables */
    uint64_t age; /* see rn_expert_scores_add */
};

/* An expert on its way. */
struct rn_gpu_fetch {
    bool is_there;                 /* it is one */
    bool begins;                   /* with the step that is being submitted */
    uint32_t group, expert, place; /* the latter two among all */
    _Atomic int ended; /* 1: good, 2: not. Released by the callback as its last touch to who looks, and acquires it.
                          Weaker: the place would be read before it is written */
};

struct rn_gpu_experts {
    uint32_t n_groups, n_experts, n_places;
    struct rn_gpu_expert_group *groups; /* [n_groups], in the order of the plan */
    int32_t *place_of;                  /* [n_experts]: among all places, or what expert_policy.h has for none */
    int32_t *expert_of;                 /* [n_places]: among all experts; NOWHERE: it is empty; COMING: being filled */
    uint32_t *scores;                   /* [n_experts] */
    uint32_t *seen, *fresh;             /* [n_experts]: of uses, those that scores have; [n_experts] of a group */
    _Atomic uint32_t *uses;             /* [n_experts]: by who ends a step, relaxed; the submitter may see them late */
    unsigned char *is_here[RN_GPU_RING + 1]; /* [n_experts]: for each step in flight, and now */
    uint64_t *addresses;                     /* pinned, for each step in flight: all tables, [n_addresses] */
    uint64_t n_addresses;
    uint64_t places;              /* on the device; 0: not taken */
    uint64_t place_bytes;         /* of all */
    struct rn_gpu_stream *stream; /* of fetches */
    struct rn_gpu_event *before;  /* the steps before the one that is submitted */
    struct rn_gpu_fetch fetches[RN_GPU_FETCHES];
    uint32_t next_group; /* to be looked at */
};

/* Where the matrix of an expert lies that is in this place, among all. */
static inline uint64_t rn_gpu_expert_place(const struct rn_gpu_experts *experts,
                                           const struct rn_gpu_expert_group *group,
                                           const struct rn_gpu_expert_part *part, uint32_t place)
{
    return experts->places + group->places_at + (place - group->first_place) * group->place_bytes + part->place_at;
}

#endif
