/* Values of templates and of JSON, in an arena.
 *
 *     JSON text --> rn_json_parse --> tree of struct rn_value, all of it in one struct rn_arena
 *
 * The types are Python's, because chat templates expect them: None, bool, int (64 bits), float, str, list,
 * tuple, dict (insertion order). A string is immutable and knows of each byte whether it is data (from the
 * caller's JSON) or trusted (from a template): ranges of data, ascending, disjoint, not touching.
 *
 * An arena gives memory and never takes it back before rn_arena_fini. What cannot be done (a bound, memory,
 * a type error of a template) is raised: rn_raise jumps to the boundary around it, rn_arena_try, so that the code
 * between needs no error paths. rn_json_parse has such a boundary inside: it returns a status.
 *
 * One thread at a time per arena. A finished tree may be read by any number. */
#ifndef RN_TEXT_VALUE_H
#define RN_TEXT_VALUE_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/interrupt.h"
#include "base/status.h"
#include "text/range.h"

#define RN_JSON_DEPTH 200                /* of arrays and objects within each other */
#define RN_JSON_BYTES ((size_t)64 << 20) /* of a text */

/* ---- Arena ---- */

struct rn_arena_block;

struct rn_arena {
    struct rn_heap *heap;
    struct rn_arena_block *blocks;   /* newest first */
    char *at, *end;                  /* free space of the newest */
    size_t used, limit;              /* bytes given out, and how many may be */
    uint64_t steps, steps_limit;     /* see rn_step */
    uint64_t look_at;                /* steps at which `stop` is asked next */
    const struct rn_interrupt *stop; /* NULL: nobody ends the work */
    uint32_t depth, depth_limit;     /* see rn_enter */
    jmp_buf *trap;                   /* where rn_raise goes; rn_arena_try's own, NULL outside of it */
    runnel_status status;            /* what was raised */
    char message[RUNNEL_ERROR_BYTES];
};

/* Takes no memory yet. limit: the most bytes it gives out. Steps are unbounded until steps_limit is set; the
 * depth is bounded by RN_JSON_DEPTH until depth_limit is. */
void rn_arena_init(struct rn_arena *arena, struct rn_heap *heap, size_t limit);
void rn_arena_fini(struct rn_arena *arena);

/* From now on the work ends when `stop` is asked: it is looked at every some thousand steps, the next one included. */
void rn_arena_set_stop(struct rn_arena *arena, const struct rn_interrupt *stop);

/* Bytes aligned to 8, never NULL: raises NO_MEMORY when the heap refuses, INVALID beyond the limit. */
void *rn_arena_take(struct rn_arena *arena, size_t count, size_t size);

/* Like rn_arena_take; copies old_count items over. In place where `old` was the last taken. */
void *rn_arena_grow(struct rn_arena *arena, void *old, size_t old_count, size_t new_count, size_t size);

/* A boundary: calls body(user). False: it raised in `arena`, or in `other` (NULL: none), whose status and message say
 * what. Both arenas' boundary and depth are afterwards what they were before. The caller's variables keep their values:
 * the jump ends inside. */
bool rn_arena_try(struct rn_arena *arena, struct rn_arena *other, void (*body)(void *user), void *user);

/* Leaves the body of rn_arena_try with this status and sentence; outside of one the process ends (RN_CHECK). */
_Noreturn void rn_raise(struct rn_arena *arena, runnel_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Looks at `stop`: raises CANCELLED if it is asked. */
void rn_arena_look(struct rn_arena *arena);

/* Counts n steps of work (nodes evaluated, bytes copied or looked at); raises INVALID beyond the limit. */
static inline void rn_step(struct rn_arena *arena, uint64_t n)
{
    arena->steps += n;
    if (arena->steps > arena->steps_limit)
        rn_raise(arena, RUNNEL_INVALID, "more than %llu steps", (unsigned long long)arena->steps_limit);
    if (arena->steps >= arena->look_at)
        rn_arena_look(arena);
}

/* Around every recursion over what a stranger wrote: raises INVALID beyond the depth limit. */
static inline void rn_enter(struct rn_arena *arena)
{
    if (++arena->depth > arena->depth_limit)
        rn_raise(arena, RUNNEL_INVALID, "nested deeper than %u", arena->depth_limit);
}
static inline void rn_leave(struct rn_arena *arena)
{
    arena->depth--;
}

/* ---- Values ---- */

enum rn_value_kind {
    RN_VALUE_UNDEFINED, /* also what rn_dict_get gives for an absent key */
    RN_VALUE_NONE,
    RN_VALUE_BOOL,
    RN_VALUE_INT,
    RN_VALUE_FLOAT,
    RN_VALUE_STRING,
    RN_VALUE_LIST,
    RN_VALUE_TUPLE,
    RN_VALUE_DICT,
    RN_VALUE_OBJECT, /* of the template interpreter: functions, loops, iterators */
    RN_VALUE_DECIMAL /* of rn_json_parse_exact alone: `string` is a number that no INT is, as "-12.5": no exponent, no
                        zeros in front or behind the fraction */
};

struct rn_object; /* text/template/run.h */

struct rn_value {
    enum rn_value_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double real;
        const struct rn_str *string; /* also of a decimal */
        struct rn_list *list;        /* also of a tuple */
        struct rn_dict *dict;
        struct rn_object *object;
        const struct rn_str *why; /* of UNDEFINED: what to say when it is used; NULL: nothing special */
    };
};

enum rn_origin { RN_ORIGIN_TRUSTED, RN_ORIGIN_DATA, RN_ORIGIN_MIXED };

struct rn_str {
    const char *bytes; /* [n] well-formed UTF-8, not NUL-terminated; never NULL */
    size_t n;
    size_t chars; /* code points; == n if and only if all is ASCII */
    enum rn_origin origin;
    bool markup;                   /* Markup: made by |safe or |escape; adding to it escapes */
    const struct rn_range *ranges; /* [n_ranges] of MIXED: the bytes that are data */
    size_t n_ranges;
};

struct rn_list {
    struct rn_value *items; /* [n] */
    size_t n, cap;
    bool named; /* a tuple (grouper, list) of groupby */
};

struct rn_dict_entry {
    struct rn_value key, value;
    uint64_t hash;
};

struct rn_dict {
    struct rn_dict_entry *entries; /* [n] in the order of first insertion */
    size_t n, cap;
    uint32_t *index; /* [index_cap] entry + 1, or 0; NULL while small */
    size_t index_cap;
    uint64_t seed; /* of the hashes: a stranger shall not choose keys that collide */
};

/* ---- JSON ---- */

/* Parses text[n]: one JSON value of any type, UTF-8. All strings of the result are data, keys too; the last of
 * equal keys wins at the first one's place; an integer beyond 64 bits becomes a float, as does one with a
 * fraction or an exponent. INVALID: not JSON, half of a surrogate pair, a name with a NUL character, a number beyond
 * doubles (the sentence names the place); deeper than RN_JSON_DEPTH, longer than RN_JSON_BYTES, or beyond the arena's
 * limit. NO_MEMORY. *out is written on success. Restores the arena's trap. */
runnel_status rn_json_parse(struct rn_arena *arena, const char *text, size_t n, struct rn_value *out,
                            runnel_error *error);

#define RN_JSON_DIGITS 800 /* of a number that is parsed exactly, before and behind its point */

/* The same, but no number is rounded: one without a fraction that fits 64 bits is an INT, also 2.0 and 1e3, and any
 * other a DECIMAL. INVALID too: a name twice in an object, a number beyond doubles or of more than RN_JSON_DIGITS
 * digits. */
runnel_status rn_json_parse_exact(struct rn_arena *arena, const char *text, size_t n, struct rn_value *out,
                                  runnel_error *error);

/* ---- Reading a tree ---- */

/* The value of the string key key[n]; UNDEFINED if absent or if `dict` is not a DICT. */
struct rn_value rn_dict_get(struct rn_value dict, const char *key, size_t n);

/* Same with a NUL-terminated key. */
struct rn_value rn_dict_at(struct rn_value dict, const char *key);

/* Is it the string text (NUL-terminated)? */
bool rn_value_is(struct rn_value value, const char *text);

/* ---- Making values; all raise ---- */

static inline struct rn_value rn_undefined(void)
{
    return (struct rn_value){.kind = RN_VALUE_UNDEFINED};
}
static inline struct rn_value rn_none(void)
{
    return (struct rn_value){.kind = RN_VALUE_NONE};
}
static inline struct rn_value rn_bool(bool boolean)
{
    return (struct rn_value){.kind = RN_VALUE_BOOL, .boolean = boolean};
}
static inline struct rn_value rn_int(int64_t integer)
{
    return (struct rn_value){.kind = RN_VALUE_INT, .integer = integer};
}
static inline struct rn_value rn_float(double real)
{
    return (struct rn_value){.kind = RN_VALUE_FLOAT, .real = real};
}
static inline struct rn_value rn_string_value(const struct rn_str *string)
{
    return (struct rn_value){.kind = RN_VALUE_STRING, .string = string};
}

/* A string over bytes[n], which must be well-formed and live as long as the arena (borrowed), or a copy. */
const struct rn_str *rn_str_borrow(struct rn_arena *arena, const char *bytes, size_t n, enum rn_origin origin);
const struct rn_str *rn_str_new(struct rn_arena *arena, const char *bytes, size_t n, enum rn_origin origin);

struct rn_list *rn_list_new(struct rn_arena *arena, size_t cap);
void rn_list_push(struct rn_arena *arena, struct rn_list *list, struct rn_value value);
struct rn_value rn_list_value(struct rn_list *list);
struct rn_value rn_tuple_value(struct rn_list *list);

struct rn_dict *rn_dict_new(struct rn_arena *arena);
struct rn_value rn_dict_value(struct rn_dict *dict);

/* Sets dict[key]; keys are equal as in Python (1 == 1.0 == True). INVALID is raised for a list or dict as key. */
void rn_dict_set(struct rn_arena *arena, struct rn_dict *dict, struct rn_value key, struct rn_value value);

/* Equality as Python's ==: numbers by value whatever their type, containers by content. */
bool rn_value_equal(struct rn_arena *arena, struct rn_value a, struct rn_value b);

/* The entry of a key, or NULL; raises as rn_dict_set. */
struct rn_dict_entry *rn_dict_find(struct rn_arena *arena, const struct rn_dict *dict, struct rn_value key);

#endif
