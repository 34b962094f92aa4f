/* Places in a grammar: see matcher.h. */
#include "sampling/grammar/matcher.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* ---- Trouble ---- */

static runnel_status tell(const struct rn_masks *m, runnel_error *error)
{
    switch (m->stacks.trouble) {
    case RN_STACKS_FULL:
        return rn_error_set(error, RUNNEL_BUSY, "the grammar needs more than %zu bytes for the ways to read this text",
                            m->limits.stack_bytes);
    case RN_STACKS_SLOW:
        return rn_error_set(error, RUNNEL_BUSY, "the grammar has too many ways to read this text: more than %llu steps",
                            (unsigned long long)m->limits.steps);
    case RN_STACKS_DEEP:
        return rn_error_set(error, RUNNEL_BUSY, "the grammar calls rules in rules deeper than %u", m->limits.depth);
    default:
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a grammar's state");
    }
}

/* Before each thing that is tried. */
static void begin(struct rn_masks *m)
{
    m->stacks.trouble = RN_STACKS_FINE;
    m->stacks.steps = m->limits.steps;
}

/* After it: is it to be tried again, now that there is room? */
static bool try_again(struct rn_masks *m, bool *first)
{
    if (m->stacks.trouble != RN_STACKS_FULL || !*first)
        return false;
    *first = false;
    if (!rn_masks_drop(m)) {
        m->stacks.trouble = RN_STACKS_MEMORY;
        return false;
    }
    return true;
}

/* ---- Places ---- */

static uint32_t at(const struct rn_matcher *matcher, uint32_t back)
{
    return (matcher->newest + matcher->most_past - back) % matcher->most_past;
}

static void go_to(struct rn_matcher *matcher, uint32_t place)
{
    if (matcher->most_past > 0) {
        matcher->newest = (matcher->newest + 1) % matcher->most_past;
        matcher->past[matcher->newest] = matcher->place;
        matcher->n_past += matcher->n_past < matcher->most_past;
    }
    matcher->place = place;
}

runnel_status rn_matcher_reset(struct rn_matcher *matcher, runnel_error *error)
{
    struct rn_masks *m = matcher->masks;
    bool first = true;
    uint32_t start;

    matcher->n_past = matcher->newest = 0;
    matcher->place = m->start;
    if (m->start != RN_STACKS_UNKNOWN)
        return RUNNEL_OK;
    matcher->place = RN_MATCHER_ENDED;
    do {
        begin(m);
        start = rn_stacks_start(&m->stacks);
    } while (try_again(m, &first));
    if (m->stacks.trouble != RN_STACKS_FINE)
        return tell(m, error);
    m->start = matcher->place = start;
    return RUNNEL_OK;
}

runnel_status rn_matcher_new(struct rn_masks *masks, uint32_t rollback, struct rn_matcher **out, runnel_error *error)
{
    struct rn_matcher *matcher = rn_calloc(masks->heap, 1, sizeof *matcher);
    runnel_status status;

    *out = NULL;
    if (matcher == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a grammar's state");
    matcher->masks = masks;
    matcher->most_past = rollback;
    matcher->past = rn_calloc(masks->heap, rollback, sizeof *matcher->past);
    matcher->place = RN_MATCHER_ENDED;
    matcher->next = masks->matchers;
    if (masks->matchers != NULL)
        masks->matchers->previous = matcher;
    masks->matchers = matcher;
    status = matcher->past != NULL ? rn_matcher_reset(matcher, error)
                                   : rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a grammar's state");
    if (status == RUNNEL_OK)
        *out = matcher;
    else
        rn_matcher_free(matcher);
    return status;
}

void rn_matcher_free(struct rn_matcher *matcher)
{
    struct rn_heap *heap = matcher != NULL ? matcher->masks->heap : NULL;

    if (matcher == NULL)
        return;
    if (matcher->previous != NULL)
        matcher->previous->next = matcher->next;
    else
        matcher->masks->matchers = matcher->next;
    if (matcher->next != NULL)
        matcher->next->previous = matcher->previous;
    rn_free(heap, matcher->past);
    rn_free(heap, matcher->ends);
    rn_free(heap, matcher);
}

bool rn_matcher_rollback(struct rn_matcher *matcher, uint32_t n)
{
    if (n > matcher->n_past)
        return false;
    if (n == 0)
        return true;
    matcher->place = matcher->past[at(matcher, n - 1)];
    matcher->newest = at(matcher, n);
    matcher->n_past -= n;
    return true;
}

bool rn_matcher_can_end(const struct rn_matcher *matcher)
{
    return matcher->place != RN_MATCHER_ENDED && matcher->masks->stacks.sets[matcher->place].bottom;
}

bool rn_matcher_must_end(const struct rn_matcher *matcher)
{
    return rn_matcher_can_end(matcher) && matcher->masks->stacks.sets[matcher->place].n == 0;
}

bool rn_matcher_has_ended(const struct rn_matcher *matcher)
{
    return matcher->place == RN_MATCHER_ENDED;
}

static bool is_set(uint32_t place)
{
    return place < RN_MATCHER_ENDED;
}

void rn_matcher_keep(struct rn_matcher *matcher)
{
    uint32_t i;

    if (is_set(matcher->place))
        rn_stacks_keep(&matcher->masks->stacks, matcher->place);
    for (i = 0; i < matcher->n_past; i++)
        if (is_set(matcher->past[at(matcher, i)]))
            rn_stacks_keep(&matcher->masks->stacks, matcher->past[at(matcher, i)]);
}

void rn_matcher_move(struct rn_matcher *matcher)
{
    uint32_t i;

    if (is_set(matcher->place))
        matcher->place = rn_stacks_moved(&matcher->masks->stacks, matcher->place);
    for (i = 0; i < matcher->n_past; i++)
        if (is_set(matcher->past[at(matcher, i)]))
            matcher->past[at(matcher, i)] = rn_stacks_moved(&matcher->masks->stacks, matcher->past[at(matcher, i)]);
}

/* ---- Ends ---- */

static int by_number(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

runnel_status rn_matcher_set_ends(struct rn_matcher *matcher, const int32_t *tokens, uint32_t n, bool avoids,
                                  runnel_error *error)
{
    const struct rn_token_trie *trie = matcher->masks->trie;
    int32_t *ends = n > 0 ? rn_alloc(matcher->masks->heap, n, sizeof *ends) : NULL;
    uint32_t kept = 0;

    if (n > 0 && ends == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a grammar's state");
    for (uint32_t i = 0; i < n; i++)
        ends[i] = tokens[i];
    if (n > 1)
        qsort(ends, n, sizeof *ends, by_number);
    for (uint32_t i = 0; i < n; i++)
        if (ends[i] >= 0 && (uint32_t)ends[i] < trie->n_vocab && !rn_token_is_end(trie, ends[i]) &&
            (kept == 0 || ends[kept - 1] != ends[i]))
            ends[kept++] = ends[i];
    rn_free(matcher->masks->heap, matcher->ends);
    matcher->ends = ends;
    matcher->n_ends = kept;
    matcher->avoids_ends = avoids;
    return RUNNEL_OK;
}

static bool is_end(const struct rn_matcher *matcher, int32_t token)
{
    return rn_token_is_end(matcher->masks->trie, token) ||
           (matcher->n_ends > 0 && bsearch(&token, matcher->ends, matcher->n_ends, sizeof token, by_number) != NULL);
}

static bool is_allowed(const uint64_t *mask, int32_t token)
{
    return (mask[token / 64] >> token % 64 & 1) != 0;
}

static void allow_all(uint64_t *mask, const int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        mask[tokens[i] / 64] |= (uint64_t)1 << tokens[i] % 64;
}

static bool is_empty(const struct rn_token_trie *trie, const uint64_t *mask)
{
    for (uint32_t i = 0; i < trie->words; i++)
        if (mask[i] != 0)
            return false;
    return true;
}

/* Where the text is complete. */
static void allow_ends(const struct rn_matcher *matcher, uint64_t *mask)
{
    const struct rn_token_trie *trie = matcher->masks->trie;

    allow_all(mask, matcher->ends, matcher->n_ends);
    if (!matcher->avoids_ends || is_empty(trie, mask))
        allow_all(mask, trie->ends, trie->n_ends);
}

bool rn_matcher_allows_ends_alone(const struct rn_matcher *matcher, const uint64_t *mask, bool *empty)
{
    const struct rn_token_trie *trie = matcher->masks->trie;
    uint32_t n_ends = 0, n = 0;

    for (uint32_t i = 0; i < trie->n_ends; i++)
        n_ends += is_allowed(mask, trie->ends[i]);
    for (uint32_t i = 0; i < matcher->n_ends; i++)
        n_ends += is_allowed(mask, matcher->ends[i]);
    for (uint32_t i = 0; i < trie->words && n <= n_ends; i++)
        n += (uint32_t)__builtin_popcountll(mask[i]);
    *empty = n == 0;
    return n == n_ends;
}

/* ---- Tokens ---- */

static uint32_t read_bytes(struct rn_masks *m, uint32_t place, const char *bytes, size_t n)
{
    size_t i;

    for (i = 0; i < n && place != RN_STACKS_DEAD && m->stacks.trouble == RN_STACKS_FINE; i++)
        place = rn_stacks_read(&m->stacks, place, (uint8_t)bytes[i]);
    return place;
}

/* As its text, and as itself where the grammar names it. */
static uint32_t read_token(struct rn_masks *m, uint32_t place, int32_t token)
{
    bool text = rn_token_is_text(m->trie, token);
    uint32_t as_token = rn_stacks_read_token(&m->stacks, place, token, text), as_text = RN_STACKS_DEAD;

    if (text) {
        struct rn_view bytes = rn_token_bytes(m->trie, token);

        as_text = read_bytes(m, place, bytes.bytes, bytes.n);
    }
    return rn_stacks_join(&m->stacks, as_token, as_text);
}

static runnel_status go_on(struct rn_matcher *matcher, uint32_t next, runnel_error *error)
{
    if (matcher->masks->stacks.trouble != RN_STACKS_FINE)
        return tell(matcher->masks, error);
    if (next == RN_STACKS_DEAD)
        return rn_error_set(error, RUNNEL_INVALID, "the grammar does not allow this here");
    go_to(matcher, next);
    return RUNNEL_OK;
}

runnel_status rn_matcher_accept(struct rn_matcher *matcher, int32_t token, runnel_error *error)
{
    struct rn_masks *m = matcher->masks;
    uint32_t next = RN_STACKS_DEAD;
    bool first = true;

    begin(m);
    if (matcher->place == RN_MATCHER_ENDED || token < 0 || (uint32_t)token >= m->trie->n_vocab)
        return go_on(matcher, RN_STACKS_DEAD, error);
    do {
        begin(m);
        next = read_token(m, matcher->place, token);
    } while (try_again(m, &first));
    if (next == RN_STACKS_DEAD && m->stacks.trouble == RN_STACKS_FINE && rn_matcher_can_end(matcher) &&
        is_end(matcher, token))
        next = RN_MATCHER_ENDED;
    return go_on(matcher, next, error);
}

runnel_status rn_matcher_accept_bytes(struct rn_matcher *matcher, const char *bytes, size_t n, runnel_error *error)
{
    struct rn_masks *m = matcher->masks;
    uint32_t next = RN_STACKS_DEAD;
    bool first = true;

    begin(m);
    if (matcher->place == RN_MATCHER_ENDED)
        return go_on(matcher, RN_STACKS_DEAD, error);
    do {
        begin(m);
        next = read_bytes(m, matcher->place, bytes, n);
    } while (try_again(m, &first));
    return go_on(matcher, next, error);
}

runnel_status rn_matcher_mask(struct rn_matcher *matcher, uint64_t *mask, runnel_error *error)
{
    struct rn_masks *m = matcher->masks;
    bool first = true, done;

    if (matcher->place == RN_MATCHER_ENDED) {
        memset(mask, 0, m->trie->words * sizeof *mask);
        return RUNNEL_OK;
    }
    do {
        begin(m);
        done = rn_masks_of(m, matcher->place, mask);
    } while (!done && try_again(m, &first));
    if (!done)
        return tell(m, error);
    if (rn_matcher_can_end(matcher))
        allow_ends(matcher, mask);
    return RUNNEL_OK;
}

/* ---- Where there is no choice ---- */

/* The one byte that all stacks of a place read; -1: there are several, none, a token, or the end. */
static int only_byte(const struct rn_masks *m, uint32_t place)
{
    const struct rn_automaton *a = m->automaton;
    const struct rn_stack_set *set = &m->stacks.sets[place];
    int byte = -1;
    uint32_t i, k;

    if (set->bottom)
        return -1;
    for (i = 0; i < set->n; i++) {
        const struct rn_automaton_state *state = &a->states[m->stacks.entries[set->at + i].state];

        if (state[0].token < state[1].token)
            return -1;
        for (k = state[0].edge; k < state[1].edge; k++) {
            if (a->edges[k].low != a->edges[k].high || (byte >= 0 && byte != a->edges[k].low))
                return -1;
            byte = a->edges[k].low;
        }
    }
    return byte;
}

int32_t rn_matcher_only_token(const struct rn_matcher *matcher)
{
    const struct rn_masks *m = matcher->masks;
    const struct rn_automaton *a = m->automaton;
    const struct rn_stack_set *stacks = is_set(matcher->place) ? &m->stacks.sets[matcher->place] : NULL;
    int32_t token = -1;

    if (stacks == NULL || stacks->bottom)
        return -1;
    for (uint32_t i = 0; i < stacks->n; i++) {
        const struct rn_automaton_state *state = &a->states[m->stacks.entries[stacks->at + i].state];

        if (state[0].edge < state[1].edge)
            return -1;
        for (uint32_t k = state[0].token; k < state[1].token; k++) {
            const struct rn_automaton_set *set = &a->sets[a->tokens[k].set];

            if (set->but || set->n != 1 || (token >= 0 && a->ids[set->at] != token))
                return -1;
            token = a->ids[set->at];
        }
    }
    return token;
}

runnel_status rn_matcher_forced(struct rn_matcher *matcher, char *bytes, size_t room, size_t *n, runnel_error *error)
{
    struct rn_masks *m = matcher->masks;
    bool first = true;
    uint32_t place;
    int byte;

    *n = 0;
    if (matcher->place == RN_MATCHER_ENDED)
        return RUNNEL_OK;
    do {
        begin(m);
        place = matcher->place;
        for (*n = 0; *n < room && m->stacks.trouble == RN_STACKS_FINE && (byte = only_byte(m, place)) >= 0; ++*n) {
            bytes[*n] = (char)byte;
            place = rn_stacks_read(&m->stacks, place, (uint8_t)byte);
        }
    } while (try_again(m, &first));
    if (m->stacks.trouble == RN_STACKS_FINE)
        return RUNNEL_OK;
    *n = 0;
    return tell(m, error);
}
