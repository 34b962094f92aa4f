/* The cache of what was made of grammars: what is found again, what goes when room is short, what stays because it is
 * used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "sampling/grammar/cache.h"
#include "sampling/grammar/front.h"
#include "sampling/grammar/matcher.h"
#include "tests/base/refusing.h"
#include "tests/grammar/words.h"

#define BOUND 400000u

struct world {
    struct refusing refusing;
    struct rn_heap heap;
    struct rn_vocab *vocab;
    struct rn_token_trie *trie;
    struct rn_grammar_cache *cache;
};

/* A value: masks, and their automaton. */
static size_t bytes_of(const void *value)
{
    const struct rn_masks *masks = value;

    return rn_masks_bytes(masks) + masks->automaton->bytes;
}

static void free_masks(void *value)
{
    struct rn_masks *masks = value;
    struct rn_automaton *automaton = (struct rn_automaton *)(uintptr_t)masks->automaton;

    rn_masks_free(masks);
    rn_automaton_free(automaton);
}

static const struct rn_grammar_cache_ops ops = {bytes_of, free_masks};

static void world_init(struct world *w)
{
    memset(w, 0, sizeof *w);
    w->heap = refusing_heap(&w->refusing);
    w->vocab = words_vocab(&w->heap, NULL, 0);
    w->trie = rn_token_trie_new(&w->heap, w->vocab);
    w->cache = rn_grammar_cache_new(&w->heap, &ops, BOUND);
}

static void world_fini(struct world *w)
{
    assert_true(rn_grammar_cache_check(w->cache));
    rn_grammar_cache_free(w->cache);
    rn_token_trie_free(w->trie);
    rn_vocab_free(w->vocab);
    assert_int_equal(w->refusing.live, 0);
}

static struct rn_masks *compile(struct world *w, const char *regex)
{
    struct rn_automaton *automaton;
    struct rn_grammar *grammar;
    struct rn_masks *masks;

    assert_int_equal(rn_front_read(&w->heap, RN_FRONT_REGEX, regex, strlen(regex), w->vocab, NULL, &grammar, NULL),
                     RUNNEL_OK);
    assert_int_equal(rn_automaton_new(&w->heap, grammar, &automaton, NULL), RUNNEL_OK);
    rn_grammar_free(grammar);
    masks = rn_masks_new(&w->heap, automaton, w->trie, NULL);
    assert_non_null(masks);
    return masks;
}

static struct rn_grammar_cached *add(struct world *w, const char *regex)
{
    struct rn_grammar_cached *e = rn_grammar_cache_add(w->cache, regex, strlen(regex), compile(w, regex));

    assert_non_null(e);
    return e;
}

static struct rn_grammar_cached *find(struct world *w, const char *regex)
{
    return rn_grammar_cache_find(w->cache, regex, strlen(regex));
}

static void test_found(void **state)
{
    struct rn_grammar_cached *a, *b;
    struct world w;

    (void)state;
    world_init(&w);
    assert_null(find(&w, "3"));
    a = add(&w, "3");
    b = find(&w, "3");
    assert_ptr_equal(a, b);
    assert_int_equal(a->users, 2);
    rn_grammar_cache_release(w.cache, b);
    assert_null(find(&w, "33"));
    assert_null(rn_grammar_cache_find(w.cache, "3\0", 2));
    b = add(&w, "33");
    assert_ptr_not_equal(a, b);
    rn_grammar_cache_release(w.cache, b);
    rn_grammar_cache_release(w.cache, a);
    b = find(&w, "3");
    assert_ptr_equal(a, b);
    rn_grammar_cache_release(w.cache, b);
    world_fini(&w);
}

/* A thousand small grammars, some of them used for a while: never more bytes than the bound and those in use. */
static void test_bound(void **state)
{
    struct rn_grammar_cached *held[8] = {NULL};
    struct rn_matcher *matchers[8] = {NULL};
    uint64_t rng = 5, kept = 0, i;
    struct world w;

    (void)state;
    world_init(&w);
    for (i = 0; i < 1000; i++) {
        uint32_t at = (uint32_t)(rn_splitmix64(&rng) % 8), k;
        size_t used = 0;
        char text[64];

        if (held[at] != NULL) {
            rn_matcher_free(matchers[at]);
            rn_grammar_cache_release(w.cache, held[at]);
        }
        snprintf(text, sizeof text, "a{%u}(b|c)*", (unsigned)(rn_splitmix64(&rng) % 60));
        held[at] = find(&w, text);
        kept += held[at] != NULL;
        if (held[at] == NULL)
            held[at] = add(&w, text);
        assert_int_equal(rn_matcher_new(held[at]->value, 2, &matchers[at], NULL), RUNNEL_OK);
        assert_int_equal(rn_matcher_accept_bytes(matchers[at], "a", 1, NULL),
                         strncmp(text, "a{0}", 4) == 0 ? RUNNEL_INVALID : RUNNEL_OK);
        for (k = 0; k < 8; k++)
            used += held[k] != NULL ? held[k]->bytes : 0;
        assert_true(rn_grammar_cache_bytes(w.cache) <= (used > BOUND ? used : BOUND));
        assert_true(rn_grammar_cache_check(w.cache));
    }
    assert_true(kept > 20 && kept < 900); /* some were found again, and some had gone */
    for (i = 0; i < 8; i++) {
        rn_matcher_free(matchers[i]);
        if (held[i] != NULL)
            rn_grammar_cache_release(w.cache, held[i]);
    }
    assert_true(rn_grammar_cache_bytes(w.cache) <= BOUND);
    world_fini(&w);
}

/* The value is freed where there is no memory for its entry. */
static void test_memory(void **state)
{
    struct rn_masks *masks;
    struct world w;
    int64_t live;

    (void)state;
    world_init(&w);
    live = w.refusing.live;
    masks = compile(&w, "[a-c]{2}\\d*");
    w.refusing.calls = 0;
    w.refusing.refuse_at = 1;
    assert_null(rn_grammar_cache_add(w.cache, "key", 3, masks));
    w.refusing.refuse_at = 0;
    assert_int_equal(w.refusing.live, live);
    assert_null(rn_grammar_cache_find(w.cache, "key", 3));
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
