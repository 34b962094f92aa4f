/* The cache of compiled grammars: see cache.h. */
#include "sampling/grammar/cache.h"

#include <string.h>

#include "base/check.h"

#define CHAINS 256u

struct rn_grammar_cache {
    struct rn_heap *heap;
    size_t most_bytes, bytes;
    struct rn_compiled *newest, *oldest; /* by when they were taken or released last */
    struct rn_compiled *chains[CHAINS];  /* by hash */
};

static uint64_t hash_of(uint32_t kind, const char *text, size_t n, const struct rn_token_trie *trie)
{
    uint64_t hash = trie->fingerprint[0] ^ kind, word;
    size_t i;

    for (i = 0; i < n; i += 8) {
        word = 0;
        memcpy(&word, text + i, n - i < 8 ? n - i : 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash ^ n;
}

/* ---- The list and the chains ---- */

static void unlink_entry(struct rn_grammar_cache *cache, struct rn_compiled *e)
{
    if (e->newer != NULL)
        e->newer->older = e->older;
    else
        cache->newest = e->older;
    if (e->older != NULL)
        e->older->newer = e->newer;
    else
        cache->oldest = e->newer;
    e->newer = e->older = NULL;
}

static void link_newest(struct rn_grammar_cache *cache, struct rn_compiled *e)
{
    e->newer = NULL;
    e->older = cache->newest;
    if (cache->newest != NULL)
        cache->newest->newer = e;
    else
        cache->oldest = e;
    cache->newest = e;
}

static void drop(struct rn_grammar_cache *cache, struct rn_compiled *e)
{
    struct rn_compiled **link = &cache->chains[e->hash % CHAINS];

    RN_CHECK(e->users == 0);
    while (*link != e)
        link = &(*link)->next;
    *link = e->next;
    unlink_entry(cache, e);
    cache->bytes -= e->bytes;
    rn_masks_free(e->masks);
    rn_automaton_free(e->automaton);
    rn_free(cache->heap, e);
}

/* Counts the entry again: its masks grow while they are used. */
static void count(struct rn_grammar_cache *cache, struct rn_compiled *e)
{
    size_t bytes = sizeof *e + e->text_bytes + e->automaton->bytes + rn_masks_bytes(e->masks);

    cache->bytes += bytes - e->bytes;
    e->bytes = bytes;
}

/* From the one that was used longest ago. */
static void make_room(struct rn_grammar_cache *cache)
{
    struct rn_compiled *e = cache->oldest, *newer;

    for (; e != NULL && cache->bytes > cache->most_bytes; e = newer) {
        newer = e->newer;
        if (e->users == 0)
            drop(cache, e);
    }
}

/* ---- Entries ---- */

struct rn_compiled *rn_grammar_cache_find(struct rn_grammar_cache *cache, uint32_t kind, const char *text, size_t n,
                                          const struct rn_token_trie *trie)
{
    uint64_t hash = hash_of(kind, text, n, trie);
    struct rn_compiled *e = cache->chains[hash % CHAINS];

    for (; e != NULL; e = e->next) {
        if (e->hash != hash || e->kind != kind || e->text_bytes != n || (n > 0 && memcmp(e->text, text, n) != 0) ||
            memcmp(e->trie->fingerprint, trie->fingerprint, sizeof trie->fingerprint) != 0)
            continue;
        e->users++;
        unlink_entry(cache, e);
        link_newest(cache, e);
        return e;
    }
    return NULL;
}

runnel_status rn_grammar_cache_add(struct rn_grammar_cache *cache, uint32_t kind, const char *text, size_t n,
                                   struct rn_grammar *grammar, const struct rn_token_trie *trie,
                                   const struct rn_masks_limits *limits, struct rn_compiled **out, runnel_error *error)
{
    struct rn_compiled *e = rn_calloc(cache->heap, 1, sizeof *e + n);
    runnel_status status;

    *out = NULL;
    status = e == NULL ? RUNNEL_NO_MEMORY : rn_automaton_new(cache->heap, grammar, &e->automaton, error);
    rn_grammar_free(grammar);
    if (status == RUNNEL_OK) {
        e->masks = rn_masks_new(cache->heap, e->automaton, trie, limits);
        status = e->masks == NULL ? RUNNEL_NO_MEMORY : RUNNEL_OK;
    }
    if (status != RUNNEL_OK) {
        if (e != NULL)
            rn_automaton_free(e->automaton);
        rn_free(cache->heap, e);
        return rn_error_set(error, status, "no memory for a grammar"); /* unless it was set */
    }
    e->kind = kind;
    e->trie = trie;
    e->users = 1;
    e->text_bytes = n;
    if (n > 0)
        memcpy(e->text, text, n);
    e->hash = hash_of(kind, text, n, trie);
    e->next = cache->chains[e->hash % CHAINS];
    cache->chains[e->hash % CHAINS] = e;
    link_newest(cache, e);
    count(cache, e);
    make_room(cache);
    *out = e;
    return RUNNEL_OK;
}

runnel_status rn_grammar_cache_get(struct rn_grammar_cache *cache, enum rn_front kind, const char *text, size_t n,
                                   const struct rn_vocab *vocab, const struct rn_token_trie *trie,
                                   struct rn_compiled **out, runnel_error *error)
{
    struct rn_grammar *grammar;
    runnel_status status;

    *out = rn_grammar_cache_find(cache, kind, text, n, trie);
    if (*out != NULL)
        return RUNNEL_OK;
    status = rn_front_read(cache->heap, kind, text, n, vocab, NULL, &grammar, error);
    return status != RUNNEL_OK ? status : rn_grammar_cache_add(cache, kind, text, n, grammar, trie, NULL, out, error);
}

void rn_grammar_cache_release(struct rn_grammar_cache *cache, struct rn_compiled *e)
{
    RN_CHECK(e->users > 0);
    e->users--;
    unlink_entry(cache, e);
    link_newest(cache, e);
    count(cache, e);
    make_room(cache);
}

void rn_grammar_cache_forget(struct rn_grammar_cache *cache, const struct rn_token_trie *trie)
{
    struct rn_compiled *e = cache->oldest, *newer;

    for (; e != NULL; e = newer) {
        newer = e->newer;
        if (e->trie == trie)
            drop(cache, e);
    }
}

size_t rn_grammar_cache_bytes(const struct rn_grammar_cache *cache)
{
    return cache->bytes;
}

/* ---- From the beginning to the end ---- */

struct rn_grammar_cache *rn_grammar_cache_new(struct rn_heap *heap, size_t most_bytes)
{
    struct rn_grammar_cache *cache = rn_calloc(heap, 1, sizeof *cache);

    if (cache == NULL)
        return NULL;
    cache->heap = heap;
    cache->most_bytes = most_bytes;
    return cache;
}

void rn_grammar_cache_free(struct rn_grammar_cache *cache)
{
    if (cache == NULL)
        return;
    while (cache->oldest != NULL)
        drop(cache, cache->oldest);
    rn_free(cache->heap, cache);
}

void rn_grammar_cache_check(const struct rn_grammar_cache *cache)
{
    const struct rn_compiled *e;
    size_t bytes = 0, n = 0;
    uint32_t i;

    for (e = cache->newest; e != NULL; e = e->older, n++) {
        bytes += e->bytes;
        RN_CHECK((e->older == NULL ? cache->oldest : e->older->newer) == e);
        rn_masks_check(e->masks);
    }
    for (i = 0; i < CHAINS; i++)
        for (e = cache->chains[i]; e != NULL; e = e->next, n--)
            RN_CHECK(e->hash % CHAINS == i);
    RN_CHECK(bytes == cache->bytes && n == 0);
}
