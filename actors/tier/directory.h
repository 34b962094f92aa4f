/* The directory of lower tiers: which tiers have a copy of a block, what is copied there, and all that is asked of the
 * mover. One of the tier actor's three objects; it belongs to that actor.
 *
 *   node of the prefix tree, its handle ──▶ number ──▶ entry of the directory: which tiers have it, and the node
 *
 *   ready, no number          only here: evicted, it is lost
 *   ready, with a number      its copies are made (writing), or some tier has it: evicted, it is cold, and the
 *                             eviction is free
 *   cold                      some tier has it
 *
 * Demotion. Copies are made ahead of need, so that an eviction never waits for one: of the blocks that would be evicted
 * next, into the warm tier, when less than half of the pool is free; and of prefixes that have come a second time, are
 * long, or are wanted, into the tiers that last. One move down is under way at a time, and has at most an eighth of the
 * pool. While anybody computes, copies are paid for (copy_budget.h). A block that is evicted before its turn is
 * computed again. Of a prefix the first blocks are copied first: should there be no time or budget for the rest, they
 * are of use by themselves.
 *
 * Into a tier that lasts goes only what has proved good: a block that a request computed, once that request has left
 * without a failed step. Else a process that is killed before it could take it back would leave it to be trusted.
 *
 * What a tier pushes out that is still here is not copied there again before it was used: else two blocks that have
 * room for one would take turns.
 *
 * News. What others put into a shared tier, or into a folder that this engine reads, become nodes of the prefix tree
 * without a block, like those that were evicted: what was there when the model was loaded (rn_directory_adopt), and
 * what comes later, which the mover hears of (mover.h, LISTEN). A block that is here already, or in another tier, gets
 * one more tier that has it. One that somebody computes just now, or whose parent is not known, is not taken. News take
 * only nodes and numbers that nobody uses.
 *
 * It calls the prefix tree and the blocks (tier_blocks.h), which it borrows, and sends MOVE to the mover. The prefix
 * tree calls rn_directory_evicted and rn_directory_forgotten. Blocks that come up are promotion.h's: their moves are
 * taken and sent here. The files: directory.c the entries and the moves, directory_copies.c demotion, directory_news.c
 * news, directory_flush.c what is sent when, and the answers. */
#ifndef RN_ACTORS_TIER_DIRECTORY_H
#define RN_ACTORS_TIER_DIRECTORY_H

#include "actors/tier/move.h"
#include "actors/tier/copy_budget.h"
#include "actors/tier/cost.h"
#include "actors/tier/tier_blocks.h"
#include "cache/doorkeeper.h"

struct rn_request;

#define RN_DIRECTORY_MAX_WANTED 64u /* prefixes that wait for the tiers that last */
#define RN_DIRECTORY_NONE UINT32_MAX

enum rn_directory_state { RN_DIRECTORY_FREE, RN_DIRECTORY_USED, RN_DIRECTORY_LEAVING };

/* Does nobody compute? A moment between two requests is not idle: so the mover is asked to let some time pass (TIMED),
 * and only if no request has come by then what copies take is taken from nobody. */
enum rn_idle_state { RN_IDLE_NO, RN_IDLE_MAYBE, RN_IDLE_TIMED, RN_IDLE_YES };

struct rn_directory_entry {
    struct rn_prefix_ref node;
    uint32_t generation; /* the upper half of the number */
    uint32_t next;       /* free, or to be forgotten */
    uint8_t state;       /* enum rn_directory_state. LEAVING: the mover is still to be told */
    uint8_t has;         /* bits of the tiers that have it */
    bool writing;        /* a move down has it */
    bool untrusted;      /* leaving, since what it holds may be wrong */
    bool pushed;         /* the warm tier has pushed it out since it was last used */
};

/* A prefix that shall be in the tiers that last. */
struct rn_durable_prefix {
    struct rn_prefix_ref node;
    uint32_t n_copied; /* of its blocks */
    bool asked_for;    /* a host has said so: paid for whatever it costs */
};

struct rn_directory {
    const struct rn_context *context;
    struct rn_tier_blocks *blocks;      /* the prefix cache's */
    uint8_t tiers, writes;              /* bits: those that are there; those that can be written into */
    bool down_out, tend_out;            /* under way */
    bool down_wanted;                   /* that move down is of the first of `wanted` */
    bool more;                          /* the mover has more to do or to tell */
    bool untrusting;                    /* what the tree forgets now is not to be trusted */
    bool closing, closed;               /* closed: nothing is sent any more; what the tree forgets stays in its tiers */
    uint32_t n_ups, n_out;              /* moves up, all moves under way */
    struct rn_directory_entry *entries; /* [n] */
    uint32_t n, n_touched, first_free;
    bool full; /* a number was wanted, and there was none */
    uint32_t first_leaving, last_leaving;
    struct rn_move *moves, *free;  /* [RN_MOVES] */
    struct rn_move *listener;      /* one of them: LISTEN */
    bool listens, stopping_listen; /* the mover has it; is asked for it */
    uint64_t look_at_us;           /* without threads: when the mover is to look for news */
    int32_t *move_tokens;
    struct rn_durable_prefix wanted[RN_DIRECTORY_MAX_WANTED]; /* a ring */
    uint32_t first_wanted, n_wanted, n_asked_for;
    uint8_t refused;             /* bits of the tiers that did not take a block of the first of them */
    struct rn_prefix_ref *chain; /* [blocks of a context]: scratch */
    uint64_t calm;               /* tree.now when there was nothing to copy; UINT64_MAX: there may be something */
    struct rn_tier_cost cost;
    struct rn_copy_budget budget;
    enum rn_idle_state idle;
    uint64_t n_requests;  /* of all models, ever: when that was looked at last */
    bool down_while_idle; /* the move down was sent while nobody computed */
    bool unpaid;          /* there was something to copy, and no budget */
    bool *unproven;       /* [blocks of the pool]: computed by a request that has not left */
    struct rn_doorkeeper door;
    uint64_t taken[RN_TIERS]; /* bytes of the tiers, as told to the metrics */
};

/* Borrows the blocks, which need not be there yet. n 0: there are no lower tiers. NO_MEMORY: nothing is held. */
runnel_status rn_directory_init(struct rn_directory *directory, const struct rn_context *context,
                                struct rn_tier_blocks *blocks, uint32_t n);
/* Behind the tree, whose callbacks are here. */
void rn_directory_fini(struct rn_directory *directory);

/* False: something above does not hold. Linear in entries. */
bool rn_directory_check(const struct rn_directory *directory);

/* Bits of the tiers that the mover has opened, and of those that can be written into. */
void rn_directory_open(struct rn_directory *directory, uint8_t tiers, uint8_t writes);

/* After each batch of messages: sends what there is to be sent. True, once: CLOSE is done, see below. */
bool rn_directory_flush(struct rn_directory *directory);

/* A move has come back. One up: what has come is settled already (promotion.h). */
void rn_directory_moved(struct rn_directory *directory, struct rn_move *move);

/* CLOSE: no request is left. What is wanted is written first. True: it is done; false: a flush will say so, when the
 * last move is back. */
bool rn_directory_close(struct rn_directory *directory);

/* ---- Entries (directory.c) ---- */

/* The tree's callbacks; `user` is the directory. */
uint64_t rn_directory_evicted(void *user, const struct rn_prefix_tree *tree, struct rn_prefix_ref node);
void rn_directory_forgotten(void *user, uint64_t number);

/* What the tree forgets from now on may be wrong, and is to be forgotten by all tiers; or is right again. */
void rn_directory_distrust(struct rn_directory *directory, bool on);

/* Numbers of entries. entry_of: NULL: the number is no longer in use. take_number: for the node; 0: all are in use. */
uint64_t rn_directory_number_of(const struct rn_directory *directory, uint32_t at);
struct rn_directory_entry *rn_directory_entry_of(const struct rn_directory *directory, uint64_t number);
uint64_t rn_directory_take_number(struct rn_directory *directory, struct rn_prefix_ref node);
void rn_directory_free_entry(struct rn_directory *directory, struct rn_directory_entry *entry);

/* Which tiers have what the number stands for; 0: none. */
uint8_t rn_directory_has(const struct rn_directory *directory, uint64_t number);

/* Those tiers have it now. */
void rn_directory_settle(struct rn_directory *directory, uint64_t number, uint8_t has);

/* The prefix that ends in the node was used: it may be copied again. */
void rn_directory_used(struct rn_directory *directory, struct rn_prefix_ref node);

/* A request begins to compute these blocks; it has left, well or not. */
void rn_directory_computing(struct rn_directory *directory, const uint32_t *blocks, uint32_t n);
void rn_directory_proved(struct rn_directory *directory, const uint32_t *blocks, uint32_t n);

/* ---- Moves (directory.c) ---- */

/* A move of that kind, with nothing in it; NULL: those are under way. It must be sent. */
struct rn_move *rn_directory_move(struct rn_directory *directory, enum rn_move_kind kind);
void rn_directory_send(struct rn_directory *directory, struct rn_move *move);

/* Instead of being sent, or since it is back. */
void rn_directory_put_back(struct rn_directory *directory, struct rn_move *move);

/* ---- Demotion (directory_copies.c) ---- */

/* A request has left well; the tree has its first n blocks, of which `last` is the last. Those that have come a second
 * time shall outlive the process; of a prompt that was long to compute, or is pinned, all. */
void rn_directory_left(struct rn_directory *directory, const struct rn_request *request, struct rn_prefix_ref last,
                       uint32_t n);

/* ---- Costs (directory_flush.c) ---- */

/* The next n blocks of numbers[n] stand behind `position`, n_ahead blocks are on their way already: how many of the
 * first ones are worth bringing up. kinds[n]: scratch. */
uint32_t rn_directory_choose(struct rn_directory *directory, const uint64_t *numbers, uint8_t *kinds, uint32_t n,
                             uint32_t position, uint32_t n_ahead);

/* The first n_good blocks of the move have come up; they stand behind `position`. The time of computing them would have
 * been shared with n_others that run. */
void rn_directory_arrived(struct rn_directory *directory, const struct rn_move *move, uint32_t n_good,
                          uint32_t position, uint32_t n_others);

/* n tokens up to that position have been computed in so long; see rn_tier_cost_computed. */
void rn_directory_timed(struct rn_directory *directory, uint32_t position, uint32_t n, uint64_t us, bool waited);

/* ---- News (directory_news.c) ---- */

/* rn_mover_adopt_fn; `user` is the directory. Before the first message. */
uint64_t rn_directory_adopt(void *user, enum rn_tier_kind kind, const struct rn_tier_record *record, uint64_t parent);

/* The model's actors are there, and a tier may have news: the mover shall listen. */
void rn_directory_listen(struct rn_directory *directory);

#endif
