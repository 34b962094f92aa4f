/* The oracle model: a backend without arithmetic, whose right answer is known in closed form.
 *
 *   KV[-1] = salt,  KV[i] = mix(KV[i-1], token[i], i)         kept where the step's block table says
 *   S[i]   = KV[0] + ... + KV[i]                              what attention is here: all of the past
 *   logits[i] = one-hot at alphabet[mix(S[i]) mod alphabet size]
 *
 * With a mean window (model/chunk.h) the "mean" of a chunk is the sum of its KV, and S[i] is summed over what row i
 * sees: sinks, means and positions. The answer stays the same, and a block that is given away too early, or a mean that
 * is not stored, changes it.
 *
 * A lost, stale, swapped or foreign position anywhere in the past changes every later token. The hot
 * logit stands so far above the rest that temperature and penalties cannot change the choice. A small
 * alphabet makes texts in which stop strings and broken UTF-8 are frequent.
 *
 * With state slots (limits.n_states) a sequence's recurrent state is its KV[i] once more, which every row compares with
 * what the blocks say of the position before: zeros before the first one.
 *
 * With blocks of layers with windows (limits.window) these keep KV[i] once more, and every row compares what it sees of
 * them with what the other blocks have.
 *
 * Its features are what a row has come to: KV[i], S[i] and i. A head's oracle reads those of the position before beside
 * a row's token, so that it goes on exactly as the model does; and it knows what it stored for the row before: that the
 * input goes on from there is looked at with each row. One feature of another row, and the two differ.
 *
 * Draws of a step are made in an order of its own, by the step's drawer or, with oracle_draw_itself, from the
 * parameters and the coin's name alone. Steps are kept until the simulation completes them: oracle_complete
 * runs the oldest one then, so that a block table or block that was let go too early is read late. Single thread. */
#ifndef RN_TESTS_SIM_ORACLE_BACKEND_H
#define RN_TESTS_SIM_ORACLE_BACKEND_H

#include "model/backend.h"
#include "sampling/sampler.h"

#define ORACLE_VOCAB 256
#define ORACLE_HOT 1.0e6f
#define ORACLE_RING 3     /* steps in flight at once */
#define ORACLE_FEATURES 9 /* floats: KV and sum in four parts of 16 bits each, the position */

struct oracle;
struct oracle_device;

struct oracle_alphabet {
    uint32_t n; /* 1..256 */
    uint8_t bytes[256];
};

/* The closed form: the state after a sequence of tokens. */
struct oracle_chain {
    uint64_t kv, sum;
    uint32_t position; /* of the next token */
};

void oracle_chain_init(struct oracle_chain *chain, uint64_t salt);
void oracle_chain_push(struct oracle_chain *chain, int32_t token);

/* The token that follows what was pushed. */
int32_t oracle_chain_next(const struct oracle_chain *chain, const struct oracle_alphabet *alphabet);

/* A state as features, and back: it stands behind `position` tokens. */
void oracle_chain_write(const struct oracle_chain *chain, float features[ORACLE_FEATURES]);
struct oracle_chain oracle_chain_read(const float features[ORACLE_FEATURES]);

/* What an oracle with wrong_percent and second_percent holds likeliest behind the state, and second (without
 * second_percent: any other). */
void oracle_foretell(const struct oracle *oracle, uint64_t sum, int32_t *token, int32_t *second);

/* STOPPED: the oracle's own, of a step that was stopped (model/stop.h). */
enum oracle_fault { ORACLE_FAULT_NONE, ORACLE_FAULT_DEVICE, ORACLE_FAULT_NAN, ORACLE_FAULT_STOPPED };

struct oracle {
    struct rn_backend backend; /* first */
    struct rn_device_caps caps;
    struct rn_backend_limits limits;
    struct oracle_alphabet alphabet;
    uint64_t salt;
    uint32_t wrong_percent;       /* of the texts it has seen it foretells another token: a drafter of the oracle */
    uint32_t second_percent;      /* not 0: it also has a second likeliest token, the right one in so many of those */
    uint32_t deaf_percent;        /* of the steps that are stopped it computes so many as if they were not */
    bool is_head;                 /* its rows have features of the position before as inputs */
    uint64_t *kv;                 /* [n_blocks * block_tokens] */
    uint64_t *states;             /* [n_states] */
    uint64_t *windows;            /* [n_windows * block_tokens] */
    struct rn_step *first, *last; /* in flight, oldest first */
    uint64_t due_us;              /* the oldest may be completed from then on; the simulation's */
    void (*submitted)(void *user, struct oracle *oracle); /* told of each step; may complete it at once */
    void *user;
    struct rn_host_copies *first_copies, *last_copies; /* under way, oldest first */
    bool (*copying)(void *user, struct oracle *oracle,
                    const struct rn_host_copies *copies); /* asked of each list: it is
                                                       kept until oracle_copy; false, or NULL: it is done at once */
    uint64_t copy_due_us;                                 /* as due_us, of the oldest list */
    bool copy_fails;                                      /* the next list fails */
    uint64_t n_steps, n_copies, n_drawn_steps, n_host_copies, n_stopped;
    uint32_t n_flying;                  /* steps in flight: at most ORACLE_RING */
    uint32_t most_flying;               /* that there ever were */
    struct rn_heap heap;                /* for draws of its own, as is ... */
    struct rn_sampler_scratch *scratch; /* ... this; NULL: a step's drawer draws */
    uint64_t n_own_draws;
    struct rn_drawn *drawn;       /* [max_outs]: what the last step has drawn ... */
    uint32_t n_drawn;             /* ... and for how many rows */
    float *logits;                /* [max_outs, ORACLE_VOCAB]: of steps without a place for them */
    char layout[32];              /* names the salt: the KV of another oracle is another's */
    struct oracle_device *device; /* that computes steps in its place (oracle_device.h); NULL: none */
    bool freed;                   /* by the model; the memory stays until oracle_free */
    const char *breach;           /* the first breach of the contract by a step; NULL: none */
};

/* alphabet is copied. NULL: no memory. From the C library's heap: it is not the engine's. */
struct oracle *oracle_new(const struct rn_backend_limits *limits, const struct oracle_alphabet *alphabet,
                          uint64_t salt);
void oracle_free(struct oracle *oracle);

/* From now on it is a device that draws by itself. False: no memory. */
bool oracle_draw_itself(struct oracle *oracle);

/* From now on this device, which becomes the oracle's, computes its steps, keeps its blocks and draws. Behind
 * oracle_draw_itself; without means, windows, states, trees and features. */
void oracle_attach(struct oracle *oracle, struct oracle_device *device);

/* Runs the oldest step and hands it back; where it was stopped, its KV rows become rubbish instead. DEVICE: fails it,
 * likewise; NAN: the logits of its last wanted row are not numbers. */
void oracle_complete(struct oracle *oracle, enum oracle_fault fault);

/* Copies the oldest list that is under way, and hands it back. */
void oracle_copy(struct oracle *oracle);

/* Overwrites the block's KV: what is free must not be read. */
void oracle_poison_block(struct oracle *oracle, uint32_t block);

/* The same of a block of layers with windows. */
void oracle_poison_window(struct oracle *oracle, uint32_t block);

/* The same of a state in a slot that is free. */
void oracle_poison_state(struct oracle *oracle, uint32_t slot);

#endif
