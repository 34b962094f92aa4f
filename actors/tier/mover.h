/* The mover: the actor that carries KV blocks between the backend and the lower tiers. It has a thread of its own, so
 * that a disk that is slow or hangs holds nobody up; in an engine without threads it runs like any other.
 *
 *                     MOVE: DOWN, UP, FORGET, TEND, LISTEN, RECALL
 *   tier actor ───────────────────────────────────────▶ mover ── warm store
 *       (decides)  ◀─────────────────────────────────────         cold store
 *                     MOVED: what came of it, who is gone
 *
 * A move is an object of RN_MOVE_BLOCKS blocks at most that goes there and comes back; there are RN_MOVES of them, all
 * made when the model is. Moves are done in the order in which they come: while the backend copies the blocks of one
 * (COPIED tells of its end), those that come wait.
 *
 * The tier knows a block by a number of its directory (see tier/directory.h); the mover has a place of the same index,
 * with the handles under which the lower tiers have the block. Numbers are never used twice, so a move that comes for
 * one that has changed hands finds another number there and does nothing. What a tier has lost is told with the next
 * answer, as much as it holds; `more` says that there is more to be told or done, and is answered with a TEND.
 *
 * What others write into a tier is news. One move, LISTEN, stays with the mover, which looks for news from time to
 * time: after other moves, and when there are none. What it finds goes to the tier with that move, which comes back at
 * once with the numbers. Looking takes at most 1/50 of a processor and 1/5 of the mover's time, however much there is,
 * and is done every RN_NEWS_US when there is nothing. A look may find that the writer of a folder has gone, and take
 * its place: then the tier is told that it can be written into. RECALL brings the LISTEN back, before the end.
 *
 * Any failure is a miss: blocks that did not arrive are computed. The first error of each tier is told to the log. */
#ifndef RN_ACTORS_TIER_MOVER_H
#define RN_ACTORS_TIER_MOVER_H

#include "actors/tier/move.h"
#include "actors/runtime/runtime.h"
#include "cache/block_codec.h"
#include "cache/store/tier.h"
#include "model/backend.h"

struct rn_context;

/* Of the block with the number `tier_directory` (0: none yet): each tier's own handle (0: not there)
 * and its parent's. */
struct rn_mover_place {
    uint64_t tier_directory;
    struct {
        uint64_t handle, parent;
    } at[RN_TIERS];
    uint32_t next_lost; /* list of those to be told of */
    bool lost;
};

/* From a tier's handle to the place: open addressing. */
struct rn_mover_find {
    struct rn_mover_slot {
        uint64_t handle; /* 0: free */
        uint32_t place;
    } * slots;
    uint32_t bits, n;
};

struct rn_mover {
    struct rn_actor actor;          /* first */
    struct rn_dedicated *dedicated; /* NULL: no tier is there, or a manual engine */
    const struct rn_context *context;
    struct rn_mover_tier {
        struct rn_mover *mover;
        struct rn_tier_store *store; /* NULL: this tier is not there */
    } tiers[RN_TIERS];
    bool told[RN_TIERS]; /* an error of it is in the log */
    struct rn_block_codec codec;
    size_t block_bytes, payload_bytes;
    unsigned char *blocks;         /* [RN_MOVE_BLOCKS][block_bytes], from the backend: one of each item of a move */
    void *payload;                 /* [payload_bytes]: the most that packing makes */
    struct rn_mover_place *places; /* [n_places] */
    uint32_t n_places;
    struct rn_mover_find find[RN_TIERS];
    uint32_t first_lost;
    struct rn_msg *at_work; /* the move whose blocks are being copied; NULL: none */
    struct rn_msg *copied;  /* brings the end of that */
    struct rn_host_copies copying;
    struct rn_host_copy copies[RN_MOVE_BLOCKS];
    uint64_t copy_us;                 /* when that began; then how long it took */
    struct rn_msg *waiting[RN_MOVES]; /* moves that came meanwhile, oldest first */
    uint32_t n_waiting;
    struct rn_move *listener; /* LISTEN, while it stays here; NULL */
    uint64_t listen_at_us;    /* not before */
    unsigned first_listed;    /* the tier that is asked first next time */
    struct {
        uint64_t handle, parent;
    } heard[RN_MOVE_BLOCKS]; /* of the items of the LISTEN: the tiers' own */
};

/* A record that a tier had when it was opened: the tier actor gives it a number, perhaps one that it has given already
 * for another tier (0: it does not take it). `parent`: that of the block before, 0: it is the first. */
typedef uint64_t rn_mover_adopt_fn(void *user, enum rn_tier_kind kind, const struct rn_tier_record *record,
                                   uint64_t parent);

/* How many numbers the tier directory should have for the model's options; 0: no lower tier is asked for, or there can
 * be none (recurrent states, blocks that are dropped or that the backend cannot give out, no prefix cache): the log is
 * told why. */
uint32_t rn_mover_places_for(const struct rn_context *context);

/* Opens the tiers that the model's options ask for, if n_places is not 0. A cold tier that cannot be opened is told to
 * the log and left out. INVALID: an option is out of range. NO_MEMORY. On failure nothing is held. On a thread that may
 * block; before the actor gets its first message. */
runnel_status rn_mover_init(struct rn_mover *mover, const struct rn_context *context, uint32_t n_places,
                            rn_mover_adopt_fn *adopt, void *user, runnel_error *error);

/* The actor is gone, or was never sent anything. */
void rn_mover_fini(struct rn_mover *mover);

/* Bits of the tiers that are there, and of those that can be written into. */
uint8_t rn_mover_tiers(const struct rn_mover *mover);
uint8_t rn_mover_writes(const struct rn_mover *mover);

/* True: some tier may have news, so a LISTEN is wanted. */
bool rn_mover_listens(const struct rn_mover *mover);

/* A place is found under each handle that it has, and under no other; those that have lost something are listed once.
 * On the mover's thread, or where nothing runs. */
bool rn_mover_check(const struct rn_mover *mover);

/* ---- Between mover.c, mover_news.c and mover_open.c ---- */

#define RN_MOVER_NO_PLACE UINT32_MAX

/* The place of the number, which begins to be in use; whatever had it before has gone. */
struct rn_mover_place *rn_mover_take_place(struct rn_mover *mover, uint64_t tier_directory);
void rn_mover_set_at(struct rn_mover *mover, struct rn_mover_place *place, unsigned kind, uint64_t handle,
                     uint64_t parent);

/* The tier will be told what the place has. */
void rn_mover_will_tell(struct rn_mover *mover, struct rn_mover_place *place);

/* The tier is there from now on, and what it loses is told of. */
void rn_mover_watch(struct rn_mover *mover, enum rn_tier_kind kind, struct rn_tier_store *store);

/* Sends the move to the tier, with what is to be told besides, in that message. */
void rn_mover_answer(struct rn_mover *mover, struct rn_move *move, struct rn_msg *msg);

/* A LISTEN has come: what it says is taken in, and it stays. RECALL: it goes. */
void rn_mover_take_listener(struct rn_mover *mover, struct rn_move *move);
void rn_mover_give_listener(struct rn_mover *mover);

/* Looks for news if it is time. */
void rn_mover_listen(struct rn_mover *mover);

/* rn_dedicated_idle_fn of a mover that listens. */
int64_t rn_mover_idle(struct rn_actor *self);

void rn_mover_actor_init(struct rn_mover *mover, const struct rn_context *context);

/* UINT32_MAX: no place has it. */
uint32_t rn_mover_find_place(const struct rn_mover_find *find, uint64_t handle);

/* Not there yet. */
void rn_mover_find_add(struct rn_mover_find *find, uint64_t handle, uint32_t place);

/* Harmless when it is not there. */
void rn_mover_find_remove(struct rn_mover_find *find, uint64_t handle);

#endif
