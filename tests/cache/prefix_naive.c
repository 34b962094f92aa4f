/* The naive prefix tree: see prefix_naive.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tests/cache/prefix_naive.h"

struct entry *naive_find(struct world *w, uint32_t salt, const int32_t *tokens, uint32_t depth)
{
    for (uint32_t i = 0; i < w->max_nodes; i++) {
        struct entry *e = &w->entries[i];

        if (e->state != RN_PREFIX_FREE && e->salt == salt && e->depth == depth &&
            memcmp(e->tokens, tokens, depth * B * sizeof *tokens) == 0)
            return e;
    }
    return NULL;
}

static struct entry *parent_of(struct world *w, const struct entry *e)
{
    return e->depth == 0 ? NULL : naive_find(w, e->salt, e->tokens, e->depth - 1);
}

bool naive_is_child(const struct entry *e, const struct entry *parent)
{
    return e->state != RN_PREFIX_FREE && e->salt == parent->salt && e->depth == parent->depth + 1 &&
           memcmp(e->tokens, parent->tokens, parent->depth * B * sizeof *e->tokens) == 0;
}

uint32_t naive_children(struct world *w, const struct entry *parent, bool only_warm)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->max_nodes; i++)
        n += naive_is_child(&w->entries[i], parent) && (!only_warm || rn_prefix_is_warm(w->entries[i].state));
    return n;
}

void naive_touch(struct world *w, struct entry *e)
{
    uint64_t rank = e == NULL ? 0 : w->inflation + 4 + (uint64_t)e->hits * (e->handle != 0 ? w->reload : 4);

    for (; e != NULL && e->depth > 0; e = parent_of(w, e)) {
        e->last_use = w->now;
        e->rank = e->rank > rank ? e->rank : rank;
    }
}

void naive_forget(struct world *w, struct entry *e)
{
    if (e->depth > 0 && e->handle != 0) {
        assert_true(w->n_expected < FORGOTTEN_MOST);
        w->expected[w->n_expected++] = e->handle;
    }
    for (uint32_t i = 0; i < SEQUENCES; i++)
        if (w->sequences[i].at == e)
            w->sequences[i].at = NULL;
    for (uint32_t i = 0; i < w->n_pins; i++)
        if (w->pins[i].entry == e)
            w->pins[i].entry = NULL;
    memset(e, 0, sizeof *e);
}

void naive_tidy(struct world *w, struct entry *e)
{
    while (e != NULL && naive_children(w, e, false) == 0 &&
           ((e->depth == 0 && e->holds == 0) || (e->state == RN_PREFIX_COLD && e->handle == 0))) {
        struct entry *parent = parent_of(w, e);

        naive_forget(w, e);
        e = parent;
    }
}

static struct entry *new_entry(struct world *w)
{
    struct entry *oldest = NULL, *parent;

    for (uint32_t i = 0; i < w->max_nodes; i++)
        if (w->entries[i].state == RN_PREFIX_FREE)
            return &w->entries[i];
    for (uint32_t i = 0; i < w->max_nodes; i++) {
        struct entry *e = &w->entries[i];

        if (e->state == RN_PREFIX_COLD && (oldest == NULL || e->cooled < oldest->cooled))
            oldest = e;
    }
    w->n_recycled += oldest != NULL;
    if (oldest == NULL)
        return NULL;
    parent = parent_of(w, oldest);
    naive_forget(w, oldest);
    naive_tidy(w, parent);
    return oldest;
}

struct entry *naive_add(struct world *w, uint32_t salt, const int32_t *tokens, uint32_t depth)
{
    struct entry *e = new_entry(w);

    if (e == NULL)
        return NULL;
    *e = (struct entry){.state = depth == 0 ? RN_PREFIX_ROOT : RN_PREFIX_PENDING, .salt = salt, .depth = depth};
    e->block = RN_PREFIX_NO_BLOCK;
    e->claimer = -1;
    e->joined = ++w->order;
    memcpy(e->tokens, tokens, depth * B * sizeof *tokens);
    return e;
}

static bool may_be_evicted(struct world *w, const struct entry *e)
{
    return e->state == RN_PREFIX_READY && e->pins == 0 && e->holds == 0 && naive_children(w, e, true) == 0 &&
           w->pool.references[e->block] == 1;
}

struct entry *naive_victim(struct world *w)
{
    struct entry *oldest = NULL;

    for (uint32_t i = 0; i < w->max_nodes; i++) {
        struct entry *e = &w->entries[i];

        if (may_be_evicted(w, e) &&
            (oldest == NULL || e->rank < oldest->rank || (e->rank == oldest->rank && e->last_use < oldest->last_use)))
            oldest = e;
    }
    return oldest;
}

void naive_cool(struct world *w, struct entry *e)
{
    e->state = RN_PREFIX_COLD;
    e->block = RN_PREFIX_NO_BLOCK;
    e->cooled = e->joined = ++w->order;
    naive_tidy(w, e);
}

void naive_wake(struct world *w, const struct entry *e)
{
    for (;;) {
        struct sequence *first = NULL;

        for (uint32_t i = 0; i < SEQUENCES; i++) {
            struct sequence *s = &w->sequences[i];

            if (s->waits_for == e && (first == NULL || s->since < first->since))
                first = s;
        }
        if (first == NULL)
            return;
        first->waits_for = NULL;
        w->woken[w->n_woken++] = first;
    }
}
