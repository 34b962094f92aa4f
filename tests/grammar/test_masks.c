/* Masks against a judge: random grammars with every kind of expression, random beginnings of texts, and for each token
 * of a vocabulary whether it may come next; rollback, copies, dropping, limits, refused memory, many rules at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/rng.h"
#include "sampling/grammar/front.h"
#include "sampling/grammar/matcher.h"
#include "tests/base/refusing.h"
#include "tests/grammar/oracle.h"
#include "tests/grammar/words.h"
#include "tests/slow.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Words over the letters of the random grammars, pieces of characters, and what a JSON text has. */
static const char *const words[] = {"a",
                                    "b",
                                    "c",
                                    "ab",
                                    "ba",
                                    "aa",
                                    "bb",
                                    "abc",
                                    "aab",
                                    "cab",
                                    "abcabc",
                                    "aaaaaaaa",
                                    "\"",
                                    "\"a",
                                    "a\"",
                                    "\",",
                                    "\":",
                                    "\"}",
                                    "{\"",
                                    "[",
                                    "]",
                                    "[[",
                                    "]]",
                                    "],",
                                    "\xc3\xa9",
                                    "\xc3",
                                    "a\xc3",
                                    "\xa9",
                                    "\xa9"
                                    "b",
                                    "\xe2\x82\xac",
                                    "\xe2\x82",
                                    "\x82\xac",
                                    "\xac\xc3\xa9",
                                    "\xf0\x9f\x98\x80",
                                    "\x9f\x98",
                                    "bc\xe2",
                                    "\\",
                                    "\\\\",
                                    "\n",
                                    "\n\n",
                                    "a b",
                                    "bca",
                                    "ccc",
                                    "cb",
                                    "ac",
                                    "aba",
                                    "bab",
                                    "b\xc3\xa9",
                                    "1",
                                    "12",
                                    "0.5",
                                    "true",
                                    "e",
                                    "{",
                                    "}",
                                    "\": ",
                                    "aaaaaaaaaaaaaaaaaaaaaaaa"};
#define N_TOKENS (WORD_FIRST + COUNT(words))
#define N_WORDS ((N_TOKENS + 63) / 64)

struct world {
    struct rn_heap heap;
    struct rn_vocab *vocab;
    struct rn_token_trie *trie;
};

static void world_init(struct world *w)
{
    rn_heap_init(&w->heap, NULL);
    w->vocab = words_vocab(&w->heap, words, COUNT(words));
    w->trie = rn_token_trie_new(&w->heap, w->vocab);
    assert_non_null(w->trie);
}

static void world_fini(struct world *w)
{
    rn_token_trie_free(w->trie);
    rn_vocab_free(w->vocab);
    assert_int_equal(rn_heap_blocks(&w->heap), 0);
}

/* ---- Random grammars ---- */

static uint32_t upto(uint64_t *rng, uint32_t n)
{
    return (uint32_t)(rn_splitmix64(rng) % n);
}

static rn_expr random_set(struct rn_grammar *g, uint64_t *rng)
{
    static const struct rn_code_points some[] = {{'a', 'a'},   {'b', 'c'},       {'a', 'c'},    {'"', '"'},
                                                 {0xe9, 0xe9}, {0x20ac, 0x20ac}, {0x80, 0x7ff}, {0x1f600, 0x1f600},
                                                 {'0', '9'},   {0x800, 0xffff},  {' ', '~'}};
    struct rn_code_points ranges[3];
    uint32_t n = 1 + upto(rng, 3), i;

    for (i = 0; i < n; i++)
        ranges[i] = some[upto(rng, COUNT(some))];
    return rn_grammar_set(g, ranges, n, upto(rng, 4) == 0);
}

static rn_expr random_leaf(struct rn_grammar *g, uint64_t *rng, uint32_t n_rules)
{
    int32_t ids[2] = {(int32_t)upto(rng, N_TOKENS), (int32_t)(WORD_THINK + upto(rng, 2))};
    const char *word;

    switch (upto(rng, 9)) {
    case 0:
    case 1:
        word = words[upto(rng, COUNT(words))];
        return rn_grammar_bytes(g, word, strlen(word));
    case 2:
    case 3:
        return random_set(g, rng);
    case 4:
        return upto(rng, 3) == 0 ? rn_grammar_tokens(g, ids + upto(rng, 2), 1, false) : random_set(g, rng);
    case 5:
        return upto(rng, 4) == 0 ? rn_grammar_tokens(g, ids, upto(rng, 3), true) : rn_grammar_bytes(g, "a", 1);
    case 6:
        return upto(rng, 3) == 0 ? rn_grammar_empty(g) : rn_grammar_bytes(g, "b", 1);
    default:
        return rn_grammar_call(g, upto(rng, n_rules));
    }
}

static rn_expr random_expression(struct rn_grammar *g, uint64_t *rng, uint32_t depth, uint32_t n_rules)
{
    static const uint32_t repeats[][2] = {
        {0, 1}, {0, RN_GRAMMAR_FOREVER}, {1, RN_GRAMMAR_FOREVER}, {2, 3}, {0, 2}, {2, RN_GRAMMAR_FOREVER}, {3, 3}};
    rn_expr items[3];
    uint32_t kind = upto(rng, 8), n = upto(rng, 12) == 0 ? 0 : 1 + upto(rng, 3), i;

    if (depth == 0 || kind < 2)
        return random_leaf(g, rng, n_rules);
    if (kind < 4) {
        i = upto(rng, COUNT(repeats));
        return rn_grammar_repeat(g, random_expression(g, rng, depth - 1, n_rules), repeats[i][0], repeats[i][1]);
    }
    for (i = 0; i < n; i++)
        items[i] = random_expression(g, rng, depth - 1, n_rules);
    return kind < 6 ? rn_grammar_sequence(g, items, n) : rn_grammar_alternatives(g, items, n);
}

static struct rn_grammar *random_grammar(struct rn_heap *heap, uint64_t seed)
{
    struct rn_grammar *g = rn_grammar_new(heap, NULL, NULL);
    uint64_t rng = seed * 2 + 1;
    uint32_t n_rules = 1 + upto(&rng, 5), i;

    for (i = 0; i < n_rules; i++)
        rn_grammar_rule(g, (char[]){(char)('A' + i)}, 1);
    for (i = 0; i < n_rules; i++)
        rn_grammar_define(g, i, random_expression(g, &rng, 3, n_rules));
    assert_int_equal(rn_grammar_finish(g, 0, NULL), RUNNEL_OK);
    return g;
}

/* ---- Masks ---- */

static bool bit(const uint64_t *mask, int32_t token)
{
    return (mask[token / 64] >> token % 64 & 1) != 0;
}

static bool oracle_allows(struct oracle *o, const struct rn_token_trie *trie, int32_t token)
{
    struct rn_view bytes = rn_token_bytes(trie, token);
    bool allowed = oracle_read(o, token, bytes.bytes, bytes.n, rn_token_is_text(trie, token));

    if (allowed)
        oracle_unread(o);
    return allowed || (rn_token_is_end(trie, token) && oracle_complete(o));
}

/* Each token: the mask, the judge, and whether it is accepted. */
static void check_mask(struct rn_matcher *m, struct oracle *o, const uint64_t *mask, uint64_t seed)
{
    const struct rn_token_trie *trie = m->masks->trie;
    runnel_status status;
    int32_t token;

    for (token = 0; token < (int32_t)N_TOKENS; token++) {
        bool expected = oracle_allows(o, trie, token);

        if (bit(mask, token) != expected)
            fail_msg("grammar %llu, token %d: %d, not %d", (unsigned long long)seed, token, bit(mask, token), expected);
        if (expected || token % 8 == (int32_t)(seed % 8)) {
            runnel_error error = {0};

            status = rn_matcher_accept(m, token, &error);
            if (status != (expected ? RUNNEL_OK : RUNNEL_INVALID))
                fail_msg("grammar %llu, token %d: %s", (unsigned long long)seed, token, error.message);
            if (status == RUNNEL_OK)
                assert_true(rn_matcher_rollback(m, 1));
        }
    }
    assert_int_equal(rn_matcher_can_end(m), oracle_complete(o));
}

/* What is forced is what the mask allows: of the tokens of one byte, that byte alone. */
static void check_forced(struct rn_matcher *m, const uint64_t *mask)
{
    char bytes[4];
    size_t n;
    int32_t byte;

    assert_int_equal(rn_matcher_forced(m, bytes, sizeof bytes, &n, NULL), RUNNEL_OK);
    if (n == 0)
        return;
    assert_false(rn_matcher_can_end(m));
    for (byte = 0; byte < 256; byte++)
        assert_int_equal(bit(mask, WORD_BYTES + byte), (unsigned char)bytes[0] == byte);
}

static uint32_t n_busy; /* ways that ended at a limit */
static uint64_t n_dropped;

/* One step back and again: the mask is the same. */
static void check_rollback(struct rn_matcher *m, int32_t chosen, const uint64_t *mask)
{
    uint64_t again[N_WORDS];

    if (chosen < 0)
        return;
    assert_true(rn_matcher_rollback(m, 1));
    assert_int_equal(rn_matcher_accept(m, chosen, NULL), RUNNEL_OK);
    assert_int_equal(rn_matcher_mask(m, again, NULL), RUNNEL_OK);
    assert_memory_equal(mask, again, sizeof again);
}

/* Ends of a stream's own, some of no meaning; a text token among them. */
static void set_ends(struct rn_matcher *m, uint64_t seed)
{
    const int32_t ends[] = {WORD_DONE, WORD_BYTES + (int32_t)(seed % 128), -1,       WORD_DONE,
                            WORD_END,  WORD_BYTES + (int32_t)(seed % 128), N_TOKENS, INT32_MAX};

    assert_int_equal(rn_matcher_set_ends(m, ends, seed % 3 == 0 ? 0 : COUNT(ends), seed % 2 == 0, NULL), RUNNEL_OK);
}

/* By the mask of one without: ends of its own besides, where the text is complete; the vocabulary's perhaps not. */
static void check_ends(struct rn_matcher *m, struct oracle *o, const uint64_t *plain, uint64_t seed)
{
    bool complete = oracle_complete(o), own = seed % 3 != 0, avoids = seed % 2 == 0, empty, others = false;
    uint64_t mask[N_WORDS], n_not_ends = 0;

    assert_int_equal(rn_matcher_mask(m, mask, NULL), RUNNEL_OK);
    for (int32_t token = 0; token < (int32_t)N_TOKENS; token++) {
        bool is_own = own && (token == WORD_DONE || token == WORD_BYTES + (int32_t)(seed % 128));

        others |= token != WORD_END && bit(mask, token);
        n_not_ends += token != WORD_END && !is_own && bit(mask, token);
        if (token != WORD_END && bit(mask, token) != (bit(plain, token) || (complete && is_own)))
            fail_msg("grammar %llu, token %d: %d beside other ends", (unsigned long long)seed, token, bit(mask, token));
        if (complete && is_own) {
            assert_int_equal(rn_matcher_accept(m, token, NULL), RUNNEL_OK);
            assert_true(rn_matcher_has_ended(m) != bit(plain, token)); /* text goes before */
            assert_true(rn_matcher_rollback(m, 1));
        }
    }
    assert_int_equal(bit(mask, WORD_END), bit(plain, WORD_END) && (!avoids || !others));
    assert_int_equal(rn_matcher_allows_ends_alone(m, mask, &empty), n_not_ends == 0);
    assert_int_equal(empty, !others && !bit(mask, WORD_END));
}

/* A token that is allowed, words and bytes in turn; -1: none was found. */
static int32_t choose(const struct rn_token_trie *trie, const uint64_t *mask, uint64_t *rng)
{
    uint32_t i;

    for (i = 0; i < 400; i++) {
        int32_t token = (int32_t)upto(rng, i < 200 ? N_TOKENS : WORD_FIRST);

        token = i % 2 == 0 ? token : (int32_t)(WORD_FIRST + upto(rng, COUNT(words)));
        if (bit(mask, token) && !rn_token_is_end(trie, token))
            return token;
    }
    return -1;
}

/* A way through the grammar by random tokens. drops: sets are dropped at each step. */
static void check_way(struct rn_masks *masks, struct oracle *o, uint64_t seed, bool drops)
{
    uint64_t mask[N_WORDS], rng = seed;
    struct rn_matcher *m, *other;
    int32_t chosen = -1;
    uint32_t step;

    assert_int_equal(rn_matcher_new(masks, 4, &m, NULL), RUNNEL_OK);
    assert_int_equal(rn_matcher_new(masks, 1, &other, NULL), RUNNEL_OK);
    set_ends(other, seed);
    for (step = 0; step < 6; step++) {
        runnel_error error = {0};
        runnel_status status = rn_matcher_mask(m, mask, &error);
        struct rn_view bytes;

        if (status == RUNNEL_BUSY && error.message[0] != '\0') {
            n_busy++;
            break;
        }
        assert_int_equal(status, RUNNEL_OK);
        check_mask(m, o, mask, seed);
        check_forced(m, mask);
        check_rollback(m, chosen, mask);
        check_ends(other, o, mask, seed);
        chosen = choose(masks->trie, mask, &rng);
        if (chosen < 0)
            break;
        bytes = rn_token_bytes(masks->trie, chosen);
        assert_int_equal(rn_matcher_accept(m, chosen, NULL), RUNNEL_OK);
        assert_int_equal(rn_matcher_accept(other, chosen, NULL), RUNNEL_OK);
        assert_true(oracle_read(o, chosen, bytes.bytes, bytes.n, rn_token_is_text(masks->trie, chosen)));
        rn_masks_check(masks);
        if (drops)
            assert_true(rn_masks_drop(masks));
    }
    rn_matcher_free(m);
    rn_matcher_free(other);
}

static void check_grammar(struct world *w, uint64_t seed, const struct rn_masks_limits *limits)
{
    struct rn_grammar *g = random_grammar(&w->heap, seed);
    struct oracle *o = oracle_new(g);
    struct rn_automaton *a;
    runnel_error error = {0};
    runnel_status status = rn_automaton_new(&w->heap, g, &a, &error);
    struct rn_masks *masks;

    if ((status == RUNNEL_OK) != oracle_possible(o) || (status != RUNNEL_OK && status != RUNNEL_FORMAT))
        fail_msg("grammar %llu: %s", (unsigned long long)seed, error.message);
    if (status == RUNNEL_OK) {
        rn_automaton_check(a);
        masks = rn_masks_new(&w->heap, a, w->trie, limits);
        assert_non_null(masks);
        check_way(masks, o, seed, seed % 7 == 0);
        rn_masks_check(masks);
        n_dropped += masks->stacks.dropped;
        rn_masks_free(masks);
        rn_automaton_free(a);
    }
    oracle_free(o);
    rn_grammar_free(g);
}

static uint64_t seeds_from = 1, seeds_to = UNLESS_SANITIZED(3000, 200);

static void test_random(void **state)
{
    struct world w;

    (void)state;
    world_init(&w);
    for (uint64_t seed = seeds_from; seed <= seeds_to; seed++)
        check_grammar(&w, seed, NULL);
    assert_true(n_busy <= (seeds_to - seeds_from) / 500);
    world_fini(&w);
}

/* ---- A larger vocabulary ---- */

#define LARGER 1500u
#define LARGER_WORDS ((WORD_FIRST + LARGER + 63) / 64)

/* All words of up to five letters a to c, and longer ones of plain characters: subtrees that are allowed as a whole. */
static struct rn_vocab *larger_vocab(struct rn_heap *heap)
{
    static const char *const pieces[] = {"a", "b", "c", "1", " ", "-", "A", "z", "\xc3\xa9", "\xe2\x82\xac"};
    static char texts[LARGER][80];
    const char *list[LARGER];
    uint32_t n = 0, length, code, i;
    uint64_t rng = 11;

    for (length = 1; length <= 5; length++) {
        for (code = 0; code < (uint32_t[]){1, 3, 9, 27, 81, 243}[length]; code++, n++) {
            uint32_t rest = code;

            for (i = 0; i < length; i++, rest /= 3)
                texts[n][i] = (char)('a' + rest % 3);
            texts[n][length] = '\0';
        }
    }
    for (; n < LARGER; n++) {
        length = 1 + upto(&rng, n % 10 == 0 ? 20 : 7);
        for (i = 0, texts[n][0] = '\0'; i < length; i++)
            strcat(texts[n], pieces[upto(&rng, n % 3 == 0 ? 4 : n % 3 == 1 ? 8 : COUNT(pieces))]);
    }
    for (i = 0; i < LARGER; i++)
        list[i] = texts[i];
    return words_vocab(heap, list, LARGER);
}

/* The mask of each place on random ways against accepting each token, which knows no trie. */
static void check_larger(struct world *w, struct rn_grammar *g, uint64_t seed, uint64_t *n_allowed)
{
    uint64_t mask[LARGER_WORDS], rng = seed;
    struct rn_automaton *a;
    struct rn_masks *masks;
    struct rn_matcher *m;
    uint32_t step;
    int32_t token;

    if (rn_automaton_new(&w->heap, g, &a, NULL) != RUNNEL_OK)
        return;
    masks = rn_masks_new(&w->heap, a, w->trie, NULL);
    assert_int_equal(rn_matcher_new(masks, 1, &m, NULL), RUNNEL_OK);
    for (step = 0; step < 4; step++) {
        int32_t chosen = -1;
        uint32_t seen = 0;

        if (rn_matcher_mask(m, mask, NULL) != RUNNEL_OK)
            break;
        for (token = 0; token < (int32_t)w->trie->n_vocab; token++) {
            bool accepted = rn_matcher_accept(m, token, NULL) == RUNNEL_OK;

            if (accepted)
                assert_true(rn_matcher_rollback(m, 1));
            if (bit(mask, token) != accepted)
                fail_msg("grammar %llu, token %d: %d, not %d", (unsigned long long)seed, token, !accepted, accepted);
            *n_allowed += accepted;
            if (accepted && token != WORD_END && upto(&rng, ++seen) == 0)
                chosen = token;
        }
        if (chosen < 0)
            break;
        assert_int_equal(rn_matcher_accept(m, chosen, NULL), RUNNEL_OK);
    }
    rn_matcher_free(m);
    rn_masks_free(masks);
    rn_automaton_free(a);
}

static void test_larger(void **state)
{
    static const char *const texts[] = {
        "root ::= [a-c]*",
        "root ::= [a-z]* \"1\"?",
        "root ::= [a-z0-9]* \" \" [a-zA-Z]*",
        "root ::= [a-z0-9 ]+ \"-\" [^z]*",
        "root ::= .{0,30} \"z\"",
        "root ::= [^\"\\\\]{3,9} [a-c]",
        "root ::= word \" \" word | \"1\" word \"-\"\nword ::= [a-c]+ [1é€]* [a-z]+ (\"A\" [a-c ]* \"A\"){0,3} [^a]* "
        "[ab]+ [c]* "
        "[^b]* [a] [b]*",
        "root ::= text \"-\" text \"é\" text\ntext ::= [^-é]* \"aa\" [^-é]* \"bb\" [^-]{0,4} [a-c]* ([1-9] [a-c]* [ "
        "]){0,2} \"c\"*",
    };
    uint64_t n_allowed = 0, seed;
    struct world w;
    size_t i;

    (void)state;
    rn_heap_init(&w.heap, NULL);
    w.vocab = larger_vocab(&w.heap);
    w.trie = rn_token_trie_new(&w.heap, w.vocab);
    for (i = 0; i < COUNT(texts) * 4; i++) {
        const char *text = texts[i % COUNT(texts)];
        runnel_error error = {0};
        struct rn_grammar *g;

        if (rn_front_read(&w.heap, RN_FRONT_GBNF, text, strlen(text), w.vocab, NULL, &g, &error) != RUNNEL_OK)
            fail_msg("%s: %s", text, error.message);
        check_larger(&w, g, i, &n_allowed);
        rn_grammar_free(g);
    }
    assert_true(n_allowed > 10000);
    for (seed = 1; seed <= 400; seed++) {
        struct rn_grammar *g = random_grammar(&w.heap, seed);

        check_larger(&w, g, seed, &n_allowed);
        rn_grammar_free(g);
    }
    world_fini(&w);
}

/* With little room: sets are dropped again and again, masks are as before. */
static void test_drop(void **state)
{
    const struct rn_masks_limits limits = {.stack_bytes = 20000, .mask_bytes = 2000, .depth = 100, .steps = 5000000};
    struct world w;

    (void)state;
    world_init(&w);
    n_busy = 0;
    n_dropped = 0;
    for (uint64_t seed = 1; seed <= 600; seed++)
        if (seed % 7 != 0)
            check_grammar(&w, seed, &limits);
    assert_true(n_dropped > 20 && n_busy < 20);
    world_fini(&w);
}

/* ---- Memory ---- */

/* list ::= "[" (list ("," list)*)? "]" | "a"+ <think>, with a text that is not "aa" */
static struct rn_grammar *list_grammar(struct rn_heap *heap)
{
    struct rn_grammar *g = rn_grammar_new(heap, NULL, NULL);
    uint32_t list = rn_grammar_rule(g, "list", 4);
    rn_expr call = rn_grammar_call(g, list), a, more, items[3];

    items[0] = rn_grammar_bytes(g, ",", 1);
    items[1] = call;
    more = rn_grammar_repeat(g, rn_grammar_sequence(g, items, 2), 0, RN_GRAMMAR_FOREVER);
    items[0] = call;
    items[1] = more;
    more = rn_grammar_repeat(g, rn_grammar_sequence(g, items, 2), 0, 1);
    items[0] = rn_grammar_bytes(g, "[", 1);
    items[1] = more;
    items[2] = rn_grammar_bytes(g, "]", 1);
    more = rn_grammar_sequence(g, items, 3);
    a = rn_grammar_repeat(g, rn_grammar_bytes(g, "a", 1), 1, RN_GRAMMAR_FOREVER);
    items[0] = rn_grammar_without(g, a, rn_grammar_bytes(g, "aa", 2));
    items[1] = rn_grammar_tokens(g, (const int32_t[]){WORD_THINK}, 1, false);
    items[1] = rn_grammar_sequence(g, items, 2);
    items[0] = more;
    rn_grammar_define(g, list, rn_grammar_alternatives(g, items, 2));
    assert_int_equal(rn_grammar_finish(g, list, NULL), RUNNEL_OK);
    return g;
}

/* Everything once; the first error. */
static runnel_status use(struct rn_heap *heap, const struct rn_grammar *g, const struct rn_vocab *vocab)
{
    static const char *const text[] = {"[", "a", "a", "a", NULL, ",", "["};
    struct rn_token_trie *trie = rn_token_trie_new(heap, vocab);
    struct rn_automaton *a = NULL;
    struct rn_masks *masks = NULL;
    struct rn_matcher *m = NULL;
    uint64_t mask[N_WORDS];
    runnel_status status = trie != NULL ? rn_automaton_new(heap, g, &a, NULL) : RUNNEL_NO_MEMORY;
    uint32_t i;

    if (status == RUNNEL_OK && (masks = rn_masks_new(heap, a, trie, NULL)) == NULL)
        status = RUNNEL_NO_MEMORY;
    if (status == RUNNEL_OK)
        status = rn_matcher_new(masks, 3, &m, NULL);
    for (i = 0; i < COUNT(text) && status == RUNNEL_OK; i++) {
        uint32_t place = m->place;

        status = rn_matcher_mask(m, mask, NULL);
        if (status != RUNNEL_OK)
            break;
        assert_int_equal(bit(mask, WORD_THINK), i == 2 || i == 4); /* behind a and aaa, not behind aa */
        status =
            text[i] != NULL ? rn_matcher_accept_bytes(m, text[i], 1, NULL) : rn_matcher_accept(m, WORD_THINK, NULL);
        assert_true(status == RUNNEL_OK || m->place == place);
    }
    rn_matcher_free(m);
    rn_masks_free(masks);
    rn_automaton_free(a);
    rn_token_trie_free(trie);
    return status;
}

static void test_memory(void **state)
{
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);
    struct rn_grammar *g;
    struct world w;
    uint64_t n, calls;

    (void)state;
    world_init(&w);
    g = list_grammar(&w.heap);
    assert_int_equal(use(&heap, g, w.vocab), RUNNEL_OK);
    calls = refusing.calls;
    for (n = 1; n <= calls; n++) {
        runnel_status status;

        refusing.calls = 0;
        refusing.refuse_at = n;
        status = use(&heap, g, w.vocab);
        assert_int_equal(refusing.live, 0);
        assert_true(status == RUNNEL_NO_MEMORY || (status == RUNNEL_OK && n > calls / 2)); /* masks need not be kept */
    }
    rn_grammar_free(g);
    world_fini(&w);
}

/* Along an answer that was seen before, nothing is allocated. */
static void test_no_allocation(void **state)
{
    static const char text[] = "[[a\1,[[a\1],a\1]]]";
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);
    uint64_t mask[N_WORDS], calls = 0;
    struct rn_automaton *a;
    struct rn_masks *masks;
    struct rn_matcher *m;
    struct rn_grammar *g;
    struct world w;
    uint32_t round, i;

    (void)state;
    world_init(&w);
    g = list_grammar(&w.heap);
    assert_int_equal(rn_automaton_new(&heap, g, &a, NULL), RUNNEL_OK);
    masks = rn_masks_new(&heap, a, w.trie, NULL);
    assert_int_equal(rn_matcher_new(masks, 8, &m, NULL), RUNNEL_OK);
    for (round = 0; round < 2; round++) {
        calls = refusing.calls;
        for (i = 0; text[i] != '\0'; i++) {
            assert_int_equal(rn_matcher_mask(m, mask, NULL), RUNNEL_OK);
            assert_int_equal(rn_matcher_accept(m, text[i] == '\1' ? WORD_THINK : WORD_BYTES + text[i], NULL),
                             RUNNEL_OK);
        }
        assert_true(rn_matcher_can_end(m));
        assert_int_equal(rn_matcher_accept(m, WORD_END, NULL), RUNNEL_OK);
        assert_true(rn_matcher_has_ended(m));
        assert_int_equal(rn_matcher_mask(m, mask, NULL), RUNNEL_OK);
        for (i = 0; i < N_WORDS; i++)
            assert_int_equal(mask[i], 0);
        assert_int_equal(rn_matcher_accept(m, WORD_BYTES + 'a', NULL), RUNNEL_INVALID);
        assert_true(rn_matcher_rollback(m, 1) && rn_matcher_can_end(m));
        assert_false(rn_matcher_rollback(m, 9));
        assert_int_equal(rn_matcher_reset(m, NULL), RUNNEL_OK);
    }
    assert_int_equal(refusing.calls, calls);
    rn_matcher_free(m);
    rn_masks_free(masks);
    rn_automaton_free(a);
    rn_grammar_free(g);
    world_fini(&w);
    assert_int_equal(refusing.live, 0);
}

/* ---- Many rules at once ---- */

/* root ::= r0 | r1 | ...; ri ::= "x" (ri | "q") "y": each x leaves all rules open. */
static struct rn_grammar *open_grammar(struct rn_heap *heap, uint32_t n_rules)
{
    struct rn_grammar *g = rn_grammar_new(heap, NULL, NULL);
    rn_expr *calls = malloc(n_rules * sizeof *calls);
    uint32_t root = rn_grammar_rule(g, "root", 4);

    for (uint32_t i = 0; i < n_rules; i++) {
        uint32_t rule = rn_grammar_rule(g, NULL, 0);
        rn_expr middle[2] = {calls[i] = rn_grammar_call(g, rule), rn_grammar_bytes(g, "q", 1)};
        rn_expr items[3] = {rn_grammar_bytes(g, "x", 1), rn_grammar_alternatives(g, middle, 2),
                            rn_grammar_bytes(g, "y", 1)};

        rn_grammar_define(g, rule, rn_grammar_sequence(g, items, 3));
    }
    rn_grammar_define(g, root, rn_grammar_alternatives(g, calls, n_rules));
    free(calls);
    assert_int_equal(rn_grammar_finish(g, root, NULL), RUNNEL_OK);
    return g;
}

/* Allowed tokens of one byte each; of those with more there are none. */
static void check_allowed(struct rn_matcher *m, const char *bytes)
{
    uint64_t mask[N_WORDS], expected[N_WORDS] = {0};

    for (; *bytes != '\0'; bytes++)
        expected[(WORD_BYTES + *bytes) / 64] |= UINT64_C(1) << (WORD_BYTES + *bytes) % 64;
    assert_int_equal(rn_matcher_mask(m, mask, NULL), RUNNEL_OK);
    assert_memory_equal(mask, expected, sizeof mask);
}

static void check_open(struct world *w, const struct rn_automaton *a)
{
    static const char *const steps[][2] = {{"x", "xq"}, {"x", "xq"}, {"q", "y"}, {"y", "y"}};
    struct rn_masks *masks = rn_masks_new(&w->heap, a, w->trie, NULL);
    struct rn_matcher *m;

    assert_int_equal(rn_matcher_new(masks, 0, &m, NULL), RUNNEL_OK);
    for (uint32_t i = 0; i < COUNT(steps); i++) {
        assert_int_equal(rn_matcher_accept(m, WORD_BYTES + steps[i][0][0], NULL), RUNNEL_OK);
        check_allowed(m, steps[i][1]);
    }
    rn_masks_check(masks);
    rn_matcher_free(m);
    rn_masks_free(masks);
}

/* The processor's time for sets of twice so many entries: the least of some. */
static clock_t time_of(uint32_t n_rules)
{
    struct rn_automaton *a;
    struct rn_grammar *g;
    struct world w;
    clock_t begin, least = 0;

    world_init(&w);
    g = open_grammar(&w.heap, n_rules);
    assert_int_equal(rn_automaton_new(&w.heap, g, &a, NULL), RUNNEL_OK);
    for (uint32_t i = 0; i < 5; i++) {
        begin = clock();
        check_open(&w, a);
        least = i == 0 || clock() - begin < least ? clock() - begin : least;
    }
    rn_automaton_free(a);
    rn_grammar_free(g);
    world_fini(&w);
    return least;
}

/* Sixteen times as many entries take some twenty times as long. What takes the square of their number takes 256 times
 * as long. */
static void test_open_rules(void **state)
{
    clock_t few = time_of(2000), many = time_of(32000);

    (void)state;
    if (many > 60 * few)
        fail_msg("%ld and %ld of %ld a second", (long)few, (long)many, (long)CLOCKS_PER_SEC);
}

/* test_grammar_masks [FROM TO]: random grammars of these seeds */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random), cmocka_unit_test(test_larger),        cmocka_unit_test(test_drop),
        cmocka_unit_test(test_memory), cmocka_unit_test(test_no_allocation), cmocka_unit_test(test_open_rules),
    };

    if (argc == 3) {
        seeds_from = strtoull(argv[1], NULL, 10);
        seeds_to = strtoull(argv[2], NULL, 10);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
