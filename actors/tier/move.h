/* Moves: what the tier actor asks of the mover, and its answer. See mover.h for who sends what. */
#ifndef RN_ACTORS_TIER_MOVE_H
#define RN_ACTORS_TIER_MOVE_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/store/tier.h"

#define RN_MOVES 7u        /* one down, one that forgets or tends, one that listens, the others up */
#define RN_MOVE_BLOCKS 8u  /* of one move: some milliseconds of packing, or one read each */
#define RN_MOVE_TOLD 64u   /* numbers of the tier directory in one move */
#define RN_NEWS_US 500000u /* between two looks for news where there is none */

enum rn_move_kind { RN_MOVE_DOWN, RN_MOVE_UP, RN_MOVE_FORGET, RN_MOVE_TEND, RN_MOVE_LISTEN, RN_MOVE_STOP_LISTENING };

#define RN_MOVE_NO_BLOCK UINT32_MAX
#define RN_MOVE_NO_ITEM UINT32_MAX

/* LISTEN: to the tier, a record that another has put into the tier `from`, behind the block `parent` or the item
 * `behind`; back, its number in `tier_directory` (0: it is not taken), and in `idle` whether the tier counts on it
 * already. */
struct rn_move_item {
    uint64_t tier_directory, parent; /* numbers; parent 0: it is the first of its prefix, or the one before has none */
    uint32_t behind;                 /* news: item of the same move; RN_MOVE_NO_ITEM: `parent` says what is before it */
    uint32_t block;                  /* down: to be read, NO_BLOCK: a lower tier has it. Up: to be written */
    bool first;                      /* the first block of its prefix */
    bool idle;                       /* the tier's: nobody else held the block when it was lent */
    uint8_t to;                      /* down: bits of the tiers that shall have it */
    uint8_t has;                     /* answer: bits of the tiers that have it */
    uint8_t from; /* answer to up: enum rn_tier_kind; RN_TIERS: it did not arrive, nor those behind it */
    struct rn_prefix_salt salt;
    int32_t *tokens; /* [block_tokens], the move's own memory */
};

struct rn_move {
    struct rn_move *next; /* the tier's free ones */
    enum rn_move_kind kind;
    uint32_t n, tag;   /* job: the tier's, what the move is part of */
    uint32_t pause_us; /* TEND: the mover lets so much time pass first, if it has a thread of its own */
    struct rn_move_item items[RN_MOVE_BLOCKS];
    /* FORGET: numbers, and whether what they stand for is not to be trusted (1) or only to make room (0). Answer: of
     * those that tiers have lost since the last one, and the bits that are left. */
    uint32_t n_told;
    uint64_t told[RN_MOVE_TOLD];
    uint8_t left[RN_MOVE_TOLD];
    /* Answer. */
    bool more;
    uint8_t writes;           /* bits of the tiers into which can be written */
    uint64_t us[RN_TIERS];    /* up: time that the blocks of each took */
    uint64_t spent_us;        /* processor time of all of it; while the mover is at it, when it began */
    uint64_t bytes[RN_TIERS]; /* packed bytes moved, to or from it */
    uint64_t takes[RN_TIERS]; /* bytes that the tier takes now */
    uint32_t n_errors;        /* blocks that could not be put or did not arrive */
    uint8_t refused;          /* bits of the tiers into which one could not be put */
    uint8_t no_room;          /* LISTEN: bits of the tiers that can hardly keep more in mind */
};

#endif
