/* The cache of compiled grammars: what is found again, what goes when room is short, what stays because it is used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "sampling/grammar/cache.h"
#include "sampling/grammar/matcher.h"
#include "tests/base/refusing.h"
#include "tests/grammar/words.h"

#define BOUND 400000u

struct world {
    struct refusing refusing;
    struct rn_heap heap;
    struct rn_vocab *vocab, *other_vocab;
    struct rn_token_trie *trie, *same_trie, *other_trie;
    struct rn_grammar_cache *cache;
};

static void world_init(struct world *w)
{
    static const char *const words[] = {"word"};

    memset(w, 0, sizeof *w);
    w->heap = refusing_heap(&w->refusing);
    w->vocab = words_vocab(&w->heap, NULL, 0);
    w->other_vocab = words_vocab(&w->heap, words, 1);
    w->trie = rn_token_trie_new(&w->heap, w->vocab);
    w->same_trie = rn_token_trie_new(&w->heap, w->vocab);
    w->other_trie = rn_token_trie_new(&w->heap, w->other_vocab);
    w->cache = rn_grammar_cache_new(&w->heap, BOUND);
}

static void world_fini(struct world *w)
{
    rn_grammar_cache_check(w->cache);
    rn_grammar_cache_free(w->cache);
    rn_token_trie_free(w->trie);
    rn_token_trie_free(w->same_trie);
    rn_token_trie_free(w->other_trie);
    rn_vocab_free(w->vocab);
    rn_vocab_free(w->other_vocab);
    assert_int_equal(w->refusing.live, 0);
}

static struct rn_compiled *get(struct world *w, enum rn_front kind, const char *text, const struct rn_token_trie *trie)
{
    struct rn_compiled *e;

    assert_int_equal(rn_grammar_cache_get(w->cache, kind, text, strlen(text), w->vocab, trie, &e, NULL), RUNNEL_OK);
    return e;
}

static void test_found(void **state)
{
    runnel_error error = {0};
    struct rn_compiled *a, *b;
    struct world w;

    (void)state;
    world_init(&w);
    a = get(&w, RN_FRONT_REGEX, "3", w.trie);
    b = get(&w, RN_FRONT_REGEX, "3", w.same_trie);
    assert_ptr_equal(a, b);
    assert_int_equal(a->users, 2);
    rn_grammar_cache_release(w.cache, b);
    b = get(&w, RN_FRONT_REGEX, "3", w.other_trie);
    assert_ptr_not_equal(a, b);
    rn_grammar_cache_release(w.cache, b);
    b = get(&w, RN_FRONT_CHOICES, "0\n", w.trie);
    assert_ptr_not_equal(a, b);
    rn_grammar_cache_release(w.cache, b);
    b = get(&w, RN_FRONT_REGEX, "33", w.trie);
    assert_ptr_not_equal(a, b);
    rn_grammar_cache_release(w.cache, b);
    rn_grammar_cache_release(w.cache, a);
    b = get(&w, RN_FRONT_REGEX, "3", w.trie);
    assert_ptr_equal(a, b);
    rn_grammar_cache_release(w.cache, b);
    assert_int_equal(rn_grammar_cache_get(w.cache, RN_FRONT_REGEX, "(", 1, w.vocab, w.trie, &b, &error), RUNNEL_FORMAT);
    assert_string_equal(error.message, "line 1, column 2: a group has no \")\" behind it");
    rn_grammar_cache_forget(w.cache, w.trie);
    assert_null(rn_grammar_cache_find(w.cache, RN_FRONT_REGEX, "3", 1, w.trie));
    b = rn_grammar_cache_find(w.cache, RN_FRONT_REGEX, "3", 1, w.other_trie);
    assert_non_null(b);
    rn_grammar_cache_release(w.cache, b);
    world_fini(&w);
}

/* A thousand small grammars, some of them used for a while: never more bytes than the bound and those in use. */
static void test_bound(void **state)
{
    struct rn_compiled *held[8] = {NULL};
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
        held[at] = rn_grammar_cache_find(w.cache, RN_FRONT_REGEX, text, strlen(text), w.trie);
        kept += held[at] != NULL;
        if (held[at] == NULL)
            held[at] = get(&w, RN_FRONT_REGEX, text, w.trie);
        assert_int_equal(rn_matcher_new(held[at]->masks, 2, &matchers[at], NULL), RUNNEL_OK);
        assert_int_equal(rn_matcher_accept_bytes(matchers[at], "a", 1, NULL),
                         strncmp(text, "a{0}", 4) == 0 ? RUNNEL_INVALID : RUNNEL_OK);
        for (k = 0; k < 8; k++)
            used += held[k] != NULL ? held[k]->bytes : 0;
        assert_true(rn_grammar_cache_bytes(w.cache) <= (used > BOUND ? used : BOUND));
        rn_grammar_cache_check(w.cache);
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

static void test_memory(void **state)
{
    struct rn_compiled *e;
    uint64_t calls, n;
    struct world w;

    (void)state;
    world_init(&w);
    w.refusing.calls = 0;
    rn_grammar_cache_release(w.cache, get(&w, RN_FRONT_REGEX, "[a-c]{2}\\d*", w.trie));
    calls = w.refusing.calls;
    rn_grammar_cache_forget(w.cache, w.trie);
    for (n = 1; n <= calls; n++) {
        int64_t live = w.refusing.live;
        runnel_error error = {0};

        w.refusing.calls = 0;
        w.refusing.refuse_at = n;
        assert_int_equal(rn_grammar_cache_get(w.cache, RN_FRONT_REGEX, "[a-c]{2}\\d*", 11, w.vocab, w.trie, &e, &error),
                         RUNNEL_NO_MEMORY);
        assert_true(e == NULL && error.message[0] != '\0');
        assert_int_equal(w.refusing.live, live);
    }
    w.refusing.refuse_at = 0;
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
