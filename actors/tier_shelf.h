/* The shelf: what the tier actor knows of the blocks that lower tiers have, and what it lets the mover do. For the
 * tier alone (tier_*.c).
 *
 *   node of the prefix tree, its handle ──▶ number ──▶ place of the shelf: which tiers have it, and the node
 *
 *   ready, no number          only here: evicted, it is lost
 *   ready, with a number      its copies are made (writing), or some tier has it: evicted, it is cold, and the
 *                             eviction is free
 *   cold                      some tier has it
 *
 * Copies are made ahead of need, so that an eviction never waits for one: of the blocks that would be evicted next,
 * into the warm tier, when less than half of the pool is free; and of prefixes that have come a second time, are long,
 * or are wanted, into the tiers that last. One move down is under way at a time, and has at most an eighth of the pool.
 * While anybody computes, copies are paid for (tier_purse.h). A block that is evicted before its turn is computed
 * again. Of a prefix the first blocks are copied first: should there be no time or no money for the rest, they are of
 * use by themselves.
 *
 * Into a tier that lasts goes only what has proved good: a block that a request computed, once that request has left
 * without a failed step. Else a process that is killed before it could take it back would leave it to be trusted.
 *
 * What a tier pushes out that is still here is not copied there again before it was used: else two blocks that have
 * room for one would take turns. */
#ifndef RN_ACTORS_TIER_SHELF_H
#define RN_ACTORS_TIER_SHELF_H

#include "actors/move.h"
#include "actors/tier_cost.h"
#include "actors/tier_purse.h"
#include "cache/doorkeeper.h"
#include "cache/prefix_tree.h"

struct rn_actor;
struct rn_msg;
struct rn_tier;
struct rn_request;
struct rn_passage;

#define RN_SHELF_WANTED 64u /* prefixes that wait for the tiers that last */
#define RN_PROMOTIONS 4u    /* prefixes that come up at once */

enum rn_shelf_state { RN_SHELF_FREE, RN_SHELF_USED, RN_SHELF_LEAVING };

/* Is anybody computing? A moment between two requests is no rest: so the mover is asked to let some time pass, and only
 * if none has come by then what copies take is taken from nobody. */
enum rn_shelf_rest { RN_SHELF_BUSY, RN_SHELF_QUIET, RN_SHELF_WATCHED, RN_SHELF_AT_REST };

struct rn_shelf_place {
    struct rn_prefix_ref node;
    uint32_t generation; /* the upper half of the number */
    uint32_t next;       /* free, or to be forgotten */
    uint8_t state;       /* enum rn_shelf_state. LEAVING: the mover is still to be told */
    uint8_t has;         /* bits of the tiers that have it */
    bool writing;        /* a move down has it */
    bool distrusted;     /* leaving, since what it holds may be wrong */
    bool pushed;         /* the warm tier has pushed it out since it was last used */
};

/* A prefix that shall be in the tiers that last. */
struct rn_wanted {
    struct rn_prefix_ref node;
    uint32_t n_copied; /* of its blocks */
    bool asked_for;    /* a host has said so: paid for whatever it costs */
};

/* A prefix on its way up; see tier_promote.h. */
struct rn_promotion {
    struct rn_prefix_path path; /* its owner is the promotion */
    struct rn_passage *passage; /* of the request that it is for; NULL: of none any more */
    bool busy, failed;
    uint32_t n_before;          /* blocks of the prefix that were here */
    uint32_t n, n_sent, n_back; /* blocks to come, asked for, answered */
    int32_t *tokens;            /* [(n_before + n) × block_tokens] */
    uint32_t *blocks;           /* [n_before + n]: those to come are taken from the pool */
    uint64_t *numbers;          /* [n] */
    struct rn_prefix_salt salt;
    uint64_t began_us;
};

struct rn_shelf {
    uint8_t tiers, writes;         /* bits: those that are there; those that can be written into */
    bool down_out, tend_out;       /* under way */
    bool down_wanted;              /* that move down is of the first of `wanted` */
    bool more;                     /* the mover has more to do or to tell */
    bool distrusting;              /* what the tree forgets now is not to be trusted */
    bool closed;                   /* nothing is sent any more; what the tree forgets stays in its tiers */
    struct rn_msg *closing;        /* the CLOSE that waits for the last answer */
    uint32_t n_lent;               /* blocks that could be had if the mover had them not: to read, or to fill */
    uint32_t n_ups, n_out;         /* moves up, all moves under way */
    struct rn_shelf_place *places; /* [n] */
    uint32_t n, n_touched, first_free;
    bool full; /* a number was wanted, and there was none */
    uint32_t first_leaving, last_leaving;
    struct rn_move *moves, *free; /* [RN_MOVES] */
    struct rn_move *listener;     /* one of them: LISTEN */
    bool listens, recalled;       /* the mover has it; is asked for it */
    uint64_t look_at_us;          /* without threads: when the mover is to look for news */
    int32_t *move_tokens;
    struct rn_wanted wanted[RN_SHELF_WANTED]; /* a ring */
    uint32_t first_wanted, n_wanted, n_asked_for;
    uint8_t refused;             /* bits of the tiers that did not take a block of the first of them */
    struct rn_prefix_ref *chain; /* [blocks of a context]: scratch */
    uint64_t calm;               /* tree.now when there was nothing to copy; UINT64_MAX: there may be something */
    struct rn_promotion promotions[RN_PROMOTIONS];
    struct rn_tier_cost cost;
    struct rn_tier_purse purse;
    enum rn_shelf_rest rest;
    uint64_t n_requests; /* of all models, ever: when that was looked at last */
    bool down_at_rest;   /* the move down was sent AT_REST */
    bool unpaid;         /* there was something to copy, and no money */
    bool *unproven;      /* [blocks of the pool]: computed by a request that has not left */
    struct rn_doorkeeper door;
    uint64_t taken[RN_TIERS]; /* bytes of the tiers, as told to the metrics */
};

/* NO_MEMORY: nothing is held. n_places 0: there are no lower tiers. Before the tree. */
runnel_status rn_tier_shelf_init(struct rn_tier *tier, uint32_t n_places);
/* Behind the tree. */
void rn_tier_shelf_fini(struct rn_tier *tier);

/* Bits of the tiers that the mover has opened, and of those that can be written into. */
void rn_tier_shelf_open(struct rn_tier *tier, uint8_t tiers, uint8_t writes);

/* The tree's callbacks. */
uint64_t rn_tier_evicted(void *user, const struct rn_prefix_tree *tree, struct rn_prefix_ref node);
void rn_tier_forgotten(void *user, uint64_t number);

/* Numbers of places. place_of: NULL: the number is no longer in use. take_number: for the node; 0: all are in use. */
uint64_t rn_shelf_number_of(const struct rn_shelf *shelf, uint32_t at);
struct rn_shelf_place *rn_shelf_place_of(const struct rn_shelf *shelf, uint64_t number);
uint64_t rn_shelf_take_number(struct rn_shelf *shelf, struct rn_prefix_ref node);
void rn_shelf_free_place(struct rn_shelf *shelf, struct rn_shelf_place *place);

/* Which tiers have what the number stands for; 0: none. */
uint8_t rn_tier_shelf_has(const struct rn_tier *tier, uint64_t number);

/* Those tiers have it now. */
void rn_tier_shelf_settle(struct rn_tier *tier, uint64_t number, uint8_t has);

/* The prefix that ends in the node was used: it may be copied again. */
void rn_tier_shelf_used(struct rn_tier *tier, struct rn_prefix_ref node);

/* The prefix that ends in the node shall be in the tiers that last; asked_for: the request said so. */
void rn_tier_shelf_want(struct rn_tier *tier, struct rn_prefix_ref node, bool asked_for);

/* A request begins to compute these blocks; it has left, well or not. */
void rn_tier_shelf_computing(struct rn_tier *tier, const uint32_t *blocks, uint32_t n);
void rn_tier_shelf_proved(struct rn_tier *tier, const uint32_t *blocks, uint32_t n);

/* A move of that kind, with nothing in it; NULL: those are under way. It must be sent. */
struct rn_move *rn_tier_shelf_move(struct rn_tier *tier, enum rn_move_kind kind);
void rn_tier_shelf_send(struct rn_tier *tier, struct rn_move *move);

/* After each batch of messages: sends what there is to be sent. */
void rn_tier_shelf_flush(struct rn_actor *self);

void rn_tier_on_moved(struct rn_actor *self, struct rn_msg *msg);

/* CLOSE: no request is left. What is wanted is written first; the message is answered when the last move is back. */
void rn_tier_shelf_close(struct rn_tier *tier, struct rn_msg *msg);

#endif
