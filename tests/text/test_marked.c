/* Control tokens in texts of which parts are data: found only where none of their bytes is data. And the white space
 * that some special tokens take along. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "fixture.h"
#include "text/template/template.h"
#include "text/template_keys.h"

enum { A, B, C, OPEN_, CLOSE_, LONG_, USER_, N_TEXTS };

static const char *const texts[N_TEXTS] = {"a", "b", "c", "<<", ">>", "<<a", "{u}"};
static const int32_t types[N_TEXTS] = {1, 1, 1, 3, 3, 3, 4};

/* Characters as tokens, no prefix, no byte tokens: what is none of the above is left out. */
static struct rn_vocab *make_vocab(struct rn_heap *heap, const char *name)
{
    struct maker maker;

    maker_init(&maker);
    maker_string(&maker, "general.name", name);
    maker_string(&maker, KEY "model", "llama");
    maker_strings(&maker, KEY "tokens", texts, N_TEXTS);
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, types, N_TEXTS, sizeof types);
    maker_bool(&maker, KEY "add_space_prefix", 0);
    maker_u32(&maker, KEY "unknown_token_id", UINT32_MAX);
    maker_u32(&maker, KEY "bos_token_id", OPEN_);
    maker_bool(&maker, KEY "add_bos_token", 1);
    return made(heap, &maker);
}

static void check(struct rn_heap *heap, const struct rn_vocab *vocab, const char *text, uint32_t flags,
                  const struct rn_range *data, size_t n_data, const int32_t *expected)
{
    int32_t *tokens;
    size_t count, i;
    runnel_error error = {0};

    assert_int_equal(rn_tokenize_marked(vocab, heap, text, strlen(text), flags, data, n_data, &tokens, &count, &error),
                     RUNNEL_OK);
    assert_true(count <= rn_tokenize_bound(vocab, strlen(text)));
    for (i = 0; i < count; i++) {
        if (tokens[i] != expected[i])
            fail_msg("\"%s\": token %zu is %d, not %d", text, i, tokens[i], expected[i]);
    }
    assert_int_equal(expected[count], -2);
    rn_free(heap, tokens);
}

#define RANGES(...) (const struct rn_range[]){__VA_ARGS__}, COUNT(((const struct rn_range[]){__VA_ARGS__}))
#define IDS(...)        \
    (const int32_t[])   \
    {                   \
        __VA_ARGS__ - 2 \
    }

static void test_ranges(void **state)
{
    struct rn_heap heap;
    struct rn_vocab *vocab;

    (void)state;
    rn_heap_init(&heap, NULL);
    vocab = make_vocab(&heap, "made");
    /* no data: as rn_tokenize with SPECIAL */
    check(&heap, vocab, "<<b>>", 0, NULL, 0, IDS(OPEN_, B, CLOSE_, ));
    check(&heap, vocab, "b<<", RUNNEL_TOKENIZE_BOS, NULL, 0, IDS(OPEN_, B, OPEN_, ));
    /* inside, and all of it */
    check(&heap, vocab, "a<<b>>c", 0, RANGES({0, 7}), IDS(A, B, C, ));
    check(&heap, vocab, "a<<b>>c", 0, RANGES({1, 3}), IDS(A, B, CLOSE_, C, ));
    /* straddling either end, by one byte */
    check(&heap, vocab, "a<<b>>c", 0, RANGES({0, 2}), IDS(A, B, CLOSE_, C, ));
    check(&heap, vocab, "a<<b>>c", 0, RANGES({2, 4}), IDS(A, B, CLOSE_, C, ));
    check(&heap, vocab, "a<<b>>c", 0, RANGES({3, 5}), IDS(A, OPEN_, B, C, ));
    check(&heap, vocab, "a<<b>>c", 0, RANGES({5, 7}), IDS(A, OPEN_, B, C, ));
    /* adjacent on both sides */
    check(&heap, vocab, "a<<b>>c", 0, RANGES({0, 1}, {3, 4}, {6, 7}), IDS(A, OPEN_, B, CLOSE_, C, ));
    /* the longest may be forbidden where a shorter one is not */
    check(&heap, vocab, "<<ab", 0, NULL, 0, IDS(LONG_, B, ));
    check(&heap, vocab, "<<ab", 0, RANGES({2, 4}), IDS(OPEN_, A, B, ));
    check(&heap, vocab, "<<ab", 0, RANGES({3, 4}), IDS(LONG_, B, ));
    /* user-defined tokens are text */
    check(&heap, vocab, "a{u}<<", 0, RANGES({0, 6}), IDS(A, USER_, ));
    check(&heap, vocab, "a{u}<<", 0, RANGES({2, 3}), IDS(A, USER_, OPEN_, ));
    /* empty ranges hold no byte, ranges behind the end either */
    check(&heap, vocab, "<<b", 0, RANGES({0, 0}, {1, 1}, {2, 2}, {9, 12}), IDS(OPEN_, B, ));
    check(&heap, vocab, "", 0, RANGES({0, 4}), IDS());
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* By the definition: at each place the longest token that is allowed there. */
static size_t find_plainly(const char *text, size_t n, const bool *data, int32_t *ids)
{
    size_t at = 0, count = 0;

    while (at < n) {
        int best = -1;
        size_t length = 1, i;
        int t;

        for (t = 0; t < N_TEXTS; t++) {
            bool clean = true;

            if (strlen(texts[t]) > n - at || memcmp(texts[t], text + at, strlen(texts[t])) != 0)
                continue;
            for (i = 0; i < strlen(texts[t]); i++)
                clean = clean && !data[at + i];
            if (types[t] == 3 && !clean)
                continue;
            if (best >= 0 && strlen(texts[t]) <= length)
                continue;
            best = t;
            length = strlen(texts[t]);
        }
        if (best >= 0)
            ids[count++] = best;
        at += length;
    }
    return count;
}

static void test_against_definition(void **state)
{
    struct rn_heap heap;
    struct rn_vocab *vocab;
    uint64_t seed = 3;
    int round;

    (void)state;
    rn_heap_init(&heap, NULL);
    vocab = make_vocab(&heap, "made");
    for (round = 0; round < 20000; round++) {
        char text[40];
        bool data[40] = {false};
        struct rn_range ranges[8];
        int32_t ids[40], *tokens;
        size_t n = rn_splitmix64(&seed) % 40, n_ranges = 0, at = 0, count, i;

        for (i = 0; i < n; i++)
            text[i] = "<<<>>ab{u}"[rn_splitmix64(&seed) % 10];
        while (n_ranges < 8 && at < n) {
            ranges[n_ranges].begin = at + rn_splitmix64(&seed) % 6;
            ranges[n_ranges].end = ranges[n_ranges].begin + rn_splitmix64(&seed) % 5;
            at = ranges[n_ranges].end;
            for (i = ranges[n_ranges].begin; i < at && i < n; i++)
                data[i] = true;
            n_ranges++;
        }
        assert_int_equal(rn_tokenize_marked(vocab, &heap, text, n, 0, ranges, n_ranges, &tokens, &count, NULL),
                         RUNNEL_OK);
        assert_int_equal(count, find_plainly(text, n, data, ids));
        assert_memory_equal(tokens, ids, count * sizeof *ids);
        rn_free(&heap, tokens);
    }
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* A model called Phi-3 has special tokens that take the white space behind them along. */
static void test_strip(void **state)
{
    struct rn_heap heap;
    struct rn_vocab *vocab;

    (void)state;
    rn_heap_init(&heap, NULL);
    vocab = make_vocab(&heap, "My Phi-3 model");
    CHECK_IDS(vocab, "<< \n\xe3\x80\x80 a", RUNNEL_TOKENIZE_SPECIAL, OPEN_, A, );
    CHECK_IDS(vocab, "{u}  b", 0, USER_, B, );
    CHECK_IDS(vocab, "<<  ", RUNNEL_TOKENIZE_SPECIAL, OPEN_, );
    CHECK_IDS(vocab, "a  <<>>b", RUNNEL_TOKENIZE_SPECIAL, A, OPEN_, CLOSE_, B, );
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Jina's <mask> takes along what stands before it. */
static void test_strip_left(void **state)
{
    static const char *const jina[] = {"a", " ", "<mask>"};
    static const int32_t jina_types[] = {1, 1, 3};
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;

    (void)state;
    rn_heap_init(&heap, NULL);
    maker_init(&maker);
    maker_string(&maker, "general.architecture", "nomic-bert-moe");
    maker_string(&maker, KEY "model", "rwkv");
    maker_strings(&maker, KEY "tokens", jina, 3);
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, jina_types, 3, sizeof jina_types);
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, "a \n <mask> a", RUNNEL_TOKENIZE_SPECIAL, 0, 2, 1, 0, );
    CHECK_IDS(vocab, "  <mask>", RUNNEL_TOKENIZE_SPECIAL, 2, );
    CHECK_IDS(vocab, "a a", 0, 0, 1, 0, );
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_errors(void **state)
{
    struct rn_heap heap;
    struct rn_vocab *vocab;
    runnel_error error = {0};
    int32_t *tokens = NULL;
    size_t count = 1;

    (void)state;
    rn_heap_init(&heap, NULL);
    vocab = make_vocab(&heap, "made");
    assert_int_equal(rn_tokenize_marked(vocab, &heap, "a\xff", 2, 0, NULL, 0, &tokens, &count, &error), RUNNEL_INVALID);
    assert_null(tokens);
    assert_int_equal(count, 0);
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Tokens that the file calls user-defined, or ordinary, and names as its end, its padding and the like: control. A
 * padding that is a word stays one. */
static void test_named(void **state)
{
    static const char *const words[] = {"a", "b", "</s>", "<|xx|>", "!", "{u}", "<think>", "[FIM]"};
    static const int32_t kinds[] = {1, 1, 4, 1, 1, 4, 4, 4};
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;

    (void)state;
    rn_heap_init(&heap, NULL);
    maker_init(&maker);
    maker_string(&maker, KEY "model", "llama");
    maker_strings(&maker, KEY "tokens", words, COUNT(words));
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, kinds, COUNT(words), sizeof kinds);
    maker_bool(&maker, KEY "add_space_prefix", 0);
    maker_bool(&maker, KEY "add_bos_token", 0);
    maker_u32(&maker, KEY "unknown_token_id", UINT32_MAX);
    maker_u32(&maker, KEY "bos_token_id", 3);
    maker_u32(&maker, KEY "eos_token_id", 2);
    maker_u32(&maker, KEY "padding_token_id", 4);
    maker_u32(&maker, KEY "fim_pre_token_id", 7);
    maker_string(&maker, "tokenizer.chat_template", "{{ 'a<think>' }}{# b #}");
    vocab = made(&heap, &maker);
    assert_int_equal(rn_vocab_kind(vocab, 2), RN_TOKEN_CONTROL);
    assert_int_equal(rn_vocab_kind(vocab, 3), RN_TOKEN_CONTROL);
    assert_int_equal(rn_vocab_kind(vocab, 4), RN_TOKEN_NORMAL);
    assert_int_equal(rn_vocab_kind(vocab, 7), RN_TOKEN_CONTROL);
    assert_true(rn_vocab_is_end(vocab, 2));
    assert_int_equal(rn_vocab_fim(vocab, RN_FIM_PREFIX), 7);
    assert_int_equal(rn_vocab_fim(vocab, RN_FIM_SUFFIX), -1);
    CHECK_IDS(vocab, "a</s>b[FIM]<|xx|>", 0, 0, 1, ); /* what is no token of its own is left out */
    CHECK_IDS(vocab, "a</s>b[FIM]", RUNNEL_TOKENIZE_SPECIAL, 0, 2, 1, 7, );
    /* what the template writes: from the template alone; the other user-defined one from anywhere */
    check(&heap, vocab, "a<think>{u}", 0, NULL, 0, IDS(0, 6, 5, ));
    check(&heap, vocab, "a<think>{u}", 0, RANGES({1, 11}), IDS(0, 5, ));
    check(&heap, vocab, "<think><think>b", 0, RANGES({7, 15}), IDS(6, 1, ));
    CHECK_IDS(vocab, "<think>b", 0, 6, 1, ); /* a text of no chat */
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_bytes(&heap), 0);
}

/* Tokens around a gap that are found by their names, and what ends an answer by its name: control tokens, though the
 * file says that they are user-defined or ordinary. */
static void test_by_name(void **state)
{
    static const struct {
        const char *name;
        enum rn_fim fim; /* RN_FIMS: none */
        bool ends;
    } cases[] = {{"<|fim_prefix|>", RN_FIM_PREFIX, false},
                 {"<|prefix|>", RN_FIM_PREFIX, false},
                 {"<|plamo:fim_prefix|>", RN_FIM_PREFIX, false},
                 {"<|fim_suffix|>", RN_FIM_SUFFIX, false},
                 {"<|suffix|>", RN_FIM_SUFFIX, false},
                 {"<|plamo:fim_suffix|>", RN_FIM_SUFFIX, false},
                 {"<|middle|>", RN_FIM_MIDDLE, false},
                 {"<|plamo:fim_middle|>", RN_FIM_MIDDLE, false},
                 {"<PAD>", RN_FIM_PAD, true},
                 {"[PAD]", RN_FIM_PAD, true},
                 {"<REPO>", RN_FIM_REPOSITORY, true},
                 {"<|file_sep|>", RN_FIM_FILE, true},
                 {"<|plamo:file_separator|>", RN_FIM_FILE, true},
                 {"<|ifm|im_end|>", RN_FIMS, true}};
    struct rn_heap heap;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (size_t i = 0; i < 2 * COUNT(cases); i++) {
        const char *const words[] = {"a", cases[i / 2].name};
        const int32_t kinds[] = {RN_TOKEN_NORMAL, i % 2 == 0 ? RN_TOKEN_USER : RN_TOKEN_NORMAL};
        struct maker maker;
        struct rn_vocab *vocab;
        int32_t *tokens;
        size_t count;
        char text[64];

        maker_init(&maker);
        maker_string(&maker, KEY "model", "llama");
        maker_strings(&maker, KEY "tokens", words, COUNT(words));
        maker_array(&maker, KEY "token_type", RN_GGUF_I32, kinds, COUNT(words), sizeof kinds);
        maker_bool(&maker, KEY "add_space_prefix", 0);
        maker_u32(&maker, KEY "unknown_token_id", UINT32_MAX);
        maker_u32(&maker, KEY "bos_token_id", UINT32_MAX);
        maker_u32(&maker, KEY "eos_token_id", UINT32_MAX);
        vocab = made(&heap, &maker);
        if (rn_vocab_kind(vocab, 1) != RN_TOKEN_CONTROL || rn_vocab_is_end(vocab, 1) != cases[i / 2].ends)
            fail_msg("%s: of type %d", cases[i / 2].name, (int)rn_vocab_kind(vocab, 1));
        for (int f = 0; f < RN_FIMS; f++)
            assert_int_equal(rn_vocab_fim(vocab, (enum rn_fim)f), cases[i / 2].fim == (enum rn_fim)f ? 1 : -1);
        snprintf(text, sizeof text, "a%sa", cases[i / 2].name);
        tokens = tokenize(&heap, vocab, text, strlen(text), 0, &count);
        for (size_t k = 0; k < count; k++)
            assert_int_equal(tokens[k], 0); /* its letters "a"; others are none */
        rn_free(&heap, tokens);
        rn_vocab_free(vocab);
    }
    assert_int_equal(rn_heap_bytes(&heap), 0);
}

/* A token of more than 256 bytes is none that is searched for, and a template that is too long to be one reserves
 * none. */
static void test_long(void **state)
{
    enum { LONGEST = 256 };
    char found[LONGEST + 1], passed[LONGEST + 2], *source = malloc(RN_TEMPLATE_BYTES + 2);
    const char *const words[] = {"a", "b", found, passed, "{u}"};
    static const int32_t kinds[] = {1, 1, 4, 4, 4};
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;
    size_t count;
    int32_t *tokens;

    (void)state;
    assert_non_null(source);
    memset(found, 'a', LONGEST);
    memset(passed, 'b', LONGEST + 1);
    memset(source, ' ', RN_TEMPLATE_BYTES + 1);
    memcpy(source, "{u}", 3);
    found[LONGEST] = passed[LONGEST + 1] = source[RN_TEMPLATE_BYTES + 1] = '\0';
    rn_heap_init(&heap, NULL);
    maker_init(&maker);
    maker_string(&maker, KEY "model", "llama");
    maker_strings(&maker, KEY "tokens", words, COUNT(words));
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, kinds, COUNT(words), sizeof kinds);
    maker_bool(&maker, KEY "add_space_prefix", 0);
    maker_u32(&maker, KEY "unknown_token_id", UINT32_MAX);
    maker_u32(&maker, KEY "bos_token_id", UINT32_MAX);
    maker_bool(&maker, KEY "add_bos_token", 0);
    maker_string(&maker, "tokenizer.chat_template", source);
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, found, 0, 2, );
    tokens = tokenize(&heap, vocab, passed, LONGEST + 1, 0, &count);
    assert_int_equal(count, LONGEST + 1);
    assert_int_equal(tokens[0], 1);
    rn_free(&heap, tokens);
    check(&heap, vocab, "a{u}", 0, RANGES({1, 4}), IDS(0, 4, ));
    rn_vocab_free(vocab);
    free(source);
    assert_int_equal(rn_heap_bytes(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges), cmocka_unit_test(test_named),      cmocka_unit_test(test_against_definition),
        cmocka_unit_test(test_strip),  cmocka_unit_test(test_strip_left), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_long),   cmocka_unit_test(test_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
