/* All the ways in which a text can be read so far, followed at once.
 *
 * A way is a stack: a state of the automaton on top, and below it the states behind the calls that led there. Many
 * stacks are kept as one set, which is shared like a tree of paths:
 *
 *     set = { state → set below it, state → set below it, ... }, and perhaps the bottom
 *
 * Each state stands in a set once; two stacks with the same top have one entry, with the union of what lies below. So
 * the number of stacks may be exponential, and the number of sets is not. Equal sets have the same number: sets are
 * made once, never change, and one that lies below another has the lower number.
 *
 * The bottom is what lies below the first rule. A set that has it has read a whole text.
 *
 * A configuration is a set that is closed: calls have been followed, ends have been left, and of the states those are
 * kept that read bytes or tokens. For each configuration there is a row with the configuration behind each class of
 * bytes, filled in when it is first asked for: what is read twice is looked up the second time.
 *
 * All of it lies in arrays that grow up to a bound. When it is reached, functions return RN_STACKS_DEAD and `trouble`
 * is set; the owner tells what is still in use (rn_stacks_keep), the rest is dropped, sets get new numbers.
 *
 * Single owner. */
#ifndef RN_SAMPLING_GRAMMAR_STACKS_H
#define RN_SAMPLING_GRAMMAR_STACKS_H

#include "sampling/grammar/automaton.h"

#define RN_STACKS_DEAD 0u   /* the set without stacks: nothing can be read */
#define RN_STACKS_BOTTOM 1u /* the set of the bottom alone */
#define RN_STACKS_UNKNOWN UINT32_MAX

enum rn_stacks_trouble {
    RN_STACKS_FINE,
    RN_STACKS_FULL,   /* the bound of bytes */
    RN_STACKS_MEMORY, /* the allocator refused */
    RN_STACKS_SLOW,   /* `steps` are used up */
    RN_STACKS_DEEP    /* a stack would be deeper than most_depth */
};

struct rn_stack_entry {
    uint32_t state, below;
};

struct rn_stack_set {
    uint32_t at, n; /* entries[at..at + n), states ascending */
    uint32_t hash;
    uint32_t depth;  /* of the deepest stack */
    uint32_t closed; /* RN_STACKS_UNKNOWN: not yet closed */
    uint32_t row;    /* RN_STACKS_UNKNOWN: none yet */
    bool bottom;
    uint8_t loops; /* masks.c's: kinds of bytes that lead back to the set itself, and RN_STACKS_LOOPS_KNOWN */
};

#define RN_STACKS_LOOPS_KNOWN 0x80u
#define RN_STACKS_JOINS 2048u

struct rn_stack_join {
    uint32_t a, b, both; /* a < b; 0, 0: none */
};

struct rn_stacks {
    struct rn_heap *heap;
    const struct rn_automaton *a;
    size_t most_bytes, bytes;
    uint32_t most_depth;
    uint64_t steps; /* left; the owner fills it up */
    enum rn_stacks_trouble trouble;
    struct rn_stack_set *sets;
    struct rn_stack_entry *entries;
    uint32_t *rows;  /* [n_rows × classes] */
    uint32_t *slots; /* set + 1; 0: free */
    uint32_t n_sets, n_entries, n_rows, n_slots;
    uint32_t room_sets, room_entries, room_rows;
    struct rn_stack_entry *scratch; /* entries of sets that are being made */
    uint32_t n_scratch, room_scratch;
    struct closing *closing;   /* [states] of the set that is being closed */
    uint32_t *touched, *queue; /* queue: a ring */
    uint32_t n_touched, n_queue, next_queued;
    struct rn_stack_join *joins; /* [RN_STACKS_JOINS] unions made before */
    uint32_t *moved;             /* while sets are dropped: their new numbers */
    uint64_t dropped;            /* how often sets were dropped */
};

/* most_bytes: of sets and rows. most_depth: of calls in calls. False: memory was refused. */
bool rn_stacks_init(struct rn_stacks *stacks, struct rn_heap *heap, const struct rn_automaton *automaton,
                    size_t most_bytes, uint32_t most_depth);
void rn_stacks_fini(struct rn_stacks *stacks);

/* Before anything is read. */
uint32_t rn_stacks_start(struct rn_stacks *stacks);

/* The set of one stack: a state above the bottom, not closed. What it reads first, it reads itself. */
uint32_t rn_stacks_single(struct rn_stacks *stacks, uint32_t state);

/* The set of one entry, the same way. */
uint32_t rn_stacks_entry(struct rn_stacks *stacks, uint32_t state, uint32_t below);

/* The configuration of a set that lies below another: when its states are gone on from. */
uint32_t rn_stacks_close(struct rn_stacks *stacks, uint32_t set);

/* The configuration behind one byte of a class, computed. */
uint32_t rn_stacks_read_class(struct rn_stacks *stacks, uint32_t set, uint32_t class);

/* The configuration behind a token that is read as a token. text: it is a text token. */
uint32_t rn_stacks_read_token(struct rn_stacks *stacks, uint32_t set, int32_t token, bool text);

/* The set of the stacks in both. */
uint32_t rn_stacks_join(struct rn_stacks *stacks, uint32_t a, uint32_t b);

/* The configuration behind one byte. */
static inline uint32_t rn_stacks_read(struct rn_stacks *stacks, uint32_t set, uint8_t byte)
{
    const struct rn_automaton *a = stacks->a;
    uint32_t row = stacks->sets[set].row, class = a->class_of[byte], next;

    if (row != RN_STACKS_UNKNOWN) {
        next = stacks->rows[(size_t)row * a->n_classes + class];
        if (next != RN_STACKS_UNKNOWN)
            return next;
    }
    return rn_stacks_read_class(stacks, set, class);
}

/* Drops all sets but those that are kept and what lies below them: keep each that is in use, drop, and read its new
 * number. All rows are dropped. False: memory was refused; then nothing is changed. */
bool rn_stacks_begin_drop(struct rn_stacks *stacks);
void rn_stacks_keep(struct rn_stacks *stacks, uint32_t set);
void rn_stacks_drop(struct rn_stacks *stacks);
uint32_t rn_stacks_moved(const struct rn_stacks *stacks, uint32_t set);
void rn_stacks_end_drop(struct rn_stacks *stacks);

void rn_stacks_check(const struct rn_stacks *stacks);

#endif
