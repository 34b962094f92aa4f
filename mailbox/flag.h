/* Small shared words: the few facts that threads outside the actors (host threads, the loader) share
 * with them. Each is one word with one meaning; none guards other data but where its comment says so. */
#ifndef RN_MAILBOX_FLAG_H
#define RN_MAILBOX_FLAG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* An edge: raised by producers when there is something to see, lowered by the consumer before it
 * looks. Exactly the raise that finds it low returns true and has to wake the consumer. */
struct rn_edge {
    _Atomic(uint32_t) up;
};

/* seq_cst, partner rn_edge_lower: what was published before the raise is seen by a consumer that
 * lowers after it; a raise that comes after a lower finds 0 and wakes again. */
static inline bool rn_edge_raise(struct rn_edge *edge)
{
    return atomic_exchange(&edge->up, 1) == 0;
}

/* seq_cst, partner rn_edge_raise: must come before the consumer looks for work. An exchange, not a
 * store: the acquire half sees what the raiser published. */
static inline void rn_edge_lower(struct rn_edge *edge)
{
    atomic_exchange(&edge->up, 0);
}

/* Lowers it; true if it was up. Partner and order as of rn_edge_lower. */
static inline bool rn_edge_take(struct rn_edge *edge)
{
    return atomic_exchange(&edge->up, 0) != 0;
}

/* A word that is published once with what it stands for: release on set, acquire on get. */
struct rn_word {
    _Atomic(uint32_t) value;
};

static inline void rn_word_set(struct rn_word *word, uint32_t value)
{
    atomic_store_explicit(&word->value, value, memory_order_release); /* partner: rn_word_get */
}

static inline uint32_t rn_word_get(const struct rn_word *word)
{
    /* partner: rn_word_set */
    return atomic_load_explicit(&((struct rn_word *)(uintptr_t)word)->value, memory_order_acquire);
}

/* Replaces `from` by `to`; true when this call did it. */
static inline bool rn_word_replace(struct rn_word *word, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong(&word->value, &from, to); /* partner: rn_word_get, rn_word_set */
}

/* Who holds something: 0, or a thread's number. Acquire on taking, release on giving up. */
struct rn_holder {
    _Atomic(uint64_t) thread;
};

static inline bool rn_holder_take(struct rn_holder *holder, uint64_t thread)
{
    uint64_t none = 0;

    return atomic_compare_exchange_strong(&holder->thread, &none, thread); /* partner: rn_holder_give */
}

static inline void rn_holder_give(struct rn_holder *holder)
{
    atomic_store_explicit(&holder->thread, 0, memory_order_release); /* partner: rn_holder_take */
}

/* True only on the thread that holds it. Relaxed: a thread sees its own store. */
static inline bool rn_holder_is(const struct rn_holder *holder, uint64_t thread)
{
    return atomic_load_explicit(&((struct rn_holder *)(uintptr_t)holder)->thread, memory_order_relaxed) == thread;
}

/* Statistics: relaxed, orders nothing; exact once the threads that change it are quiet. */
struct rn_counter {
    _Atomic(int64_t) value;
};

static inline void rn_counter_add(struct rn_counter *counter, int64_t n)
{
    atomic_fetch_add_explicit(&counter->value, n, memory_order_relaxed);
}

/* Adds one unless there are `limit`; two that meet at the limit may both be refused. */
static inline bool rn_counter_take(struct rn_counter *counter, int64_t limit)
{
    if (atomic_fetch_add_explicit(&counter->value, 1, memory_order_relaxed) < limit)
        return true;
    rn_counter_add(counter, -1);
    return false;
}

/* Adds n unless that makes a counter that is not 0 more than `limit`; n alone is always taken. */
static inline bool rn_counter_reserve(struct rn_counter *counter, int64_t n, uint64_t limit)
{
    int64_t before = atomic_fetch_add_explicit(&counter->value, n, memory_order_relaxed);

    if (before <= 0 || (uint64_t)(before + n) <= limit)
        return true;
    rn_counter_add(counter, -n);
    return false;
}

static inline int64_t rn_counter_get(const struct rn_counter *counter)
{
    return atomic_load_explicit(&((struct rn_counter *)(uintptr_t)counter)->value, memory_order_relaxed);
}

#endif
