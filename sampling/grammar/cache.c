/* The cache of what was made of grammars: see cache.h. */
#include "sampling/grammar/cache.h"

#include <string.h>

#include "base/check.h"

#define CHAINS 256u

struct rn_grammar_cache {
    struct rn_heap *heap;
    const struct rn_grammar_cache_ops *ops;
    size_t most_bytes, bytes;
    struct rn_grammar_cached *newest, *oldest; /* by when they were added or released last */
    struct rn_grammar_cached *chains[CHAINS];  /* by hash */
};

static uint64_t hash_of(const char *key, size_t n)
{
    uint64_t hash = n, word;
    size_t i;

    for (i = 0; i < n; i += 8) {
        word = 0;
        memcpy(&word, key + i, n - i < 8 ? n - i : 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

/* ---- The list and the chains ---- */

static void unlink_entry(struct rn_grammar_cache *cache, struct rn_grammar_cached *e)
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

static void link_newest(struct rn_grammar_cache *cache, struct rn_grammar_cached *e)
{
    e->newer = NULL;
    e->older = cache->newest;
    if (cache->newest != NULL)
        cache->newest->newer = e;
    else
        cache->oldest = e;
    cache->newest = e;
}

static void drop(struct rn_grammar_cache *cache, struct rn_grammar_cached *e)
{
    struct rn_grammar_cached **link = &cache->chains[e->hash % CHAINS];

    RN_CHECK(e->users == 0);
    while (*link != e)
        link = &(*link)->next;
    *link = e->next;
    unlink_entry(cache, e);
    cache->bytes -= e->bytes;
    cache->ops->free(e->value);
    rn_free(cache->heap, e);
}

/* Counts the entry again: its value may have grown while it was used. */
static void count(struct rn_grammar_cache *cache, struct rn_grammar_cached *e)
{
    size_t bytes = sizeof *e + e->key_bytes + cache->ops->bytes(e->value);

    cache->bytes += bytes - e->bytes;
    e->bytes = bytes;
}

/* From the one that was used longest ago. */
static void make_room(struct rn_grammar_cache *cache)
{
    struct rn_grammar_cached *e = cache->oldest, *newer;

    for (; e != NULL && cache->bytes > cache->most_bytes; e = newer) {
        newer = e->newer;
        if (e->users == 0)
            drop(cache, e);
    }
}

/* ---- Entries ---- */

struct rn_grammar_cached *rn_grammar_cache_find(struct rn_grammar_cache *cache, const void *key, size_t n)
{
    uint64_t hash = hash_of(key, n);
    struct rn_grammar_cached *e = cache->chains[hash % CHAINS];

    for (; e != NULL; e = e->next) {
        if (e->hash != hash || e->key_bytes != n || (n > 0 && memcmp(e->key, key, n) != 0))
            continue;
        e->users++;
        unlink_entry(cache, e);
        link_newest(cache, e);
        return e;
    }
    return NULL;
}

struct rn_grammar_cached *rn_grammar_cache_add(struct rn_grammar_cache *cache, const void *key, size_t n, void *value)
{
    struct rn_grammar_cached *e = rn_calloc(cache->heap, 1, sizeof *e + n);

    if (e == NULL) {
        cache->ops->free(value);
        return NULL;
    }
    e->value = value;
    e->users = 1;
    e->key_bytes = n;
    if (n > 0)
        memcpy(e->key, key, n);
    e->hash = hash_of(key, n);
    e->next = cache->chains[e->hash % CHAINS];
    cache->chains[e->hash % CHAINS] = e;
    link_newest(cache, e);
    count(cache, e);
    make_room(cache);
    return e;
}

void rn_grammar_cache_release(struct rn_grammar_cache *cache, struct rn_grammar_cached *e)
{
    RN_CHECK(e->users > 0);
    e->users--;
    unlink_entry(cache, e);
    link_newest(cache, e);
    count(cache, e);
    make_room(cache);
}

size_t rn_grammar_cache_bytes(const struct rn_grammar_cache *cache)
{
    return cache->bytes;
}

/* ---- From the beginning to the end ---- */

struct rn_grammar_cache *rn_grammar_cache_new(struct rn_heap *heap, const struct rn_grammar_cache_ops *ops,
                                              size_t most_bytes)
{
    struct rn_grammar_cache *cache = rn_calloc(heap, 1, sizeof *cache);

    if (cache == NULL)
        return NULL;
    cache->heap = heap;
    cache->ops = ops;
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

bool rn_grammar_cache_check(const struct rn_grammar_cache *cache)
{
    const struct rn_grammar_cached *e;
    size_t bytes = 0, n = 0;
    uint32_t i;

    for (e = cache->newest; e != NULL; e = e->older, n++) {
        bytes += e->bytes;
        if ((e->older == NULL ? cache->oldest : e->older->newer) != e)
            return false;
    }
    for (i = 0; i < CHAINS; i++)
        for (e = cache->chains[i]; e != NULL; e = e->next, n--)
            if (e->hash % CHAINS != i)
                return false;
    return bytes == cache->bytes && n == 0;
}
