/* Vocabularies made in memory: special tokens, BOS and EOS, bytes, bounds; hostile ones, which must
 * give an error or be harmless; refused memory at every place. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "fixture.h"
#include "tests/base/refusing.h"

/* ---- A small byte-level BPE: all 256 bytes, some merges, special tokens -------------------- */

static char letters[256][3];

static const char *const bpe_extra[] = {"he",         "ll",     "hell", "hello", "\xc4\xa0w", "<|im_start|>",
                                        "<|im_end|>", "<tool>", "<|im", "abc",   "ab",        "<unk>"};
static const int32_t bpe_extra_types[] = {1, 1, 1, 1, 1, 3, 3, 4, 4, 4, 4, 2};
static const char *const bpe_merges[] = {"h e", "l l", "he ll", "hell o", "\xc4\xa0 w"};

enum { HE = 256, LL, HELL, HELLO, SPACE_W, IM_START, IM_END, TOOL, IM, ABC, AB, UNK, N_BPE };

/* GPT-2's alphabet, as the definition in its encoder.py has it. */
static void make_letters(void)
{
    int b, next = 256;

    for (b = 0; b < 256; b++) {
        int c = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff) ? b : next++;

        memset(letters[b], 0, 3);
        if (c < 0x80) {
            letters[b][0] = (char)c;
        } else {
            letters[b][0] = (char)(0xc0 | c >> 6);
            letters[b][1] = (char)(0x80 | (c & 0x3f));
        }
    }
}

static void put_bpe(struct maker *maker)
{
    const char *texts[N_BPE];
    int32_t types[N_BPE];
    int i;

    make_letters();
    for (i = 0; i < N_BPE; i++) {
        texts[i] = i < 256 ? letters[i] : bpe_extra[i - 256];
        types[i] = i < 256 ? 1 : bpe_extra_types[i - 256];
    }
    maker_string(maker, KEY "model", "gpt2");
    maker_strings(maker, KEY "tokens", texts, N_BPE);
    maker_array(maker, KEY "token_type", RN_GGUF_I32, types, N_BPE, sizeof types);
    maker_strings(maker, KEY "merges", bpe_merges, COUNT(bpe_merges));
}

static void put_bpe_keys(struct maker *maker)
{
    maker_string(maker, KEY "pre", "gpt-2");
    maker_u32(maker, KEY "bos_token_id", IM_START);
    maker_u32(maker, KEY "eos_token_id", IM_END);
    maker_bool(maker, KEY "add_bos_token", 1);
    maker_bool(maker, KEY "add_eos_token", 1);
}

/* ---- A small SentencePiece vocabulary ----------------------------------------------------- */

static const char *const spm_texts[] = {"<unk>", "<s>",     "</s>", "<0x0A>",   "<0xC3>",    "<0xA9>", BLOCK, "a",
                                        "b",     BLOCK "a", "ab",   BLOCK "ab", BLOCK BLOCK, "<sep>",  "|"};
static const int32_t spm_types[] = {2, 3, 3, 6, 6, 6, 1, 1, 1, 1, 1, 1, 1, 4, 4};
static const float spm_scores[] = {0, 0, 0, 0, 0, 0, -9, -8, -7, -2, -1, -3, -4, 0, 0};

static void put_spm(struct maker *maker)
{
    maker_string(maker, KEY "model", "llama");
    maker_strings(maker, KEY "tokens", spm_texts, COUNT(spm_texts));
    maker_array(maker, KEY "token_type", RN_GGUF_I32, spm_types, COUNT(spm_types), sizeof spm_types);
    maker_array(maker, KEY "scores", RN_GGUF_F32, spm_scores, COUNT(spm_scores), sizeof spm_scores);
}

/* ---- Tests -------------------------------------------------------------------------------- */

static void test_bpe(void **state)
{
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;
    char all[256];
    size_t n, i;
    int32_t id;

    (void)state;
    rn_heap_init(&heap, NULL);
    maker_init(&maker);
    put_bpe(&maker);
    put_bpe_keys(&maker);
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, "", 0, );
    CHECK_IDS(vocab, "", RUNNEL_TOKENIZE_BOS, IM_START, IM_END, );
    CHECK_IDS(vocab, "hello w", RUNNEL_TOKENIZE_BOS, IM_START, HELLO, SPACE_W, IM_END, );
    CHECK_IDS(vocab, "helo", 0, HE, 'l', 'o', );
    CHECK_IDS(vocab, "hellhe", 0, HELL, HE, );
    CHECK_IDS(vocab, "<|im_end|>", RUNNEL_TOKENIZE_SPECIAL, IM_END, );
    CHECK_IDS(vocab, "he<|im_end|>", 0, HE, IM, '_', 'e', 'n', 'd', '|', '>', );
    CHECK_IDS(vocab, "<tool>he<tool>", 0, TOOL, HE, TOOL, );
    CHECK_IDS(vocab, "<unk>", RUNNEL_TOKENIZE_SPECIAL, UNK, );
    CHECK_IDS(vocab, "<unk>", 0, '<', 'u', 'n', 'k', '>', );
    CHECK_IDS(vocab, "<|im_star<|im_start|>", RUNNEL_TOKENIZE_SPECIAL, IM, '_', 's', 't', 'a', 'r', IM_START, );
    CHECK_IDS(vocab, "xabcab", 0, 'x', ABC, AB, );
    assert_true(rn_vocab_is_end(vocab, IM_END));
    assert_false(rn_vocab_is_end(vocab, IM_START));
    assert_false(rn_vocab_is_end(vocab, -1));
    assert_false(rn_vocab_is_end(vocab, N_BPE));
    assert_int_equal(rn_vocab_piece(vocab, -1, true).n, 0);
    assert_int_equal(rn_vocab_piece(vocab, INT32_MAX, true).n, 0);
    assert_int_equal(rn_vocab_longest_piece(vocab), 12);
    assert_int_equal(rn_vocab_find(vocab, "\xc4\xa0w", 3), SPACE_W);
    assert_int_equal(rn_vocab_find(vocab, " w", 2), -1);
    for (i = 0; i < 256; i++) { /* every byte there is */
        id = (int32_t)i;
        rn_detokenize(vocab, &id, 1, false, all, 1, &n);
        assert_int_equal(n, 1);
        assert_int_equal((unsigned char)all[0], i);
    }
    check_round_trip(&heap, vocab, "\0\x01 \xc2\xad\xf4\x8f\xbf\xbf", 9);
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_detokenize_sizes(void **state)
{
    static const int32_t ids[] = {IM_START, HELLO, SPACE_W, IM_END, 9999, -5};
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;
    size_t capacity, n;

    (void)state;
    rn_heap_init(&heap, NULL);
    maker_init(&maker);
    put_bpe(&maker);
    vocab = made(&heap, &maker);
    for (capacity = 0; capacity < 12; capacity++) {
        char *text = malloc(capacity); /* so that a sanitizer sees the end */

        rn_detokenize(vocab, ids, COUNT(ids), false, text, capacity, &n);
        assert_int_equal(n, 7);
        assert_memory_equal(text, "hello w", capacity < 7 ? capacity : 7);
        free(text);
    }
    rn_detokenize(vocab, ids, COUNT(ids), true, NULL, 0, &n);
    assert_int_equal(n, 7 + 12 + 10);
    assert_false(rn_vocab_add_bos(vocab));
    assert_int_equal(rn_vocab_bos(vocab), -1);
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_spm(void **state)
{
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;

    (void)state;
    rn_heap_init(&heap, NULL);
    maker_init(&maker);
    put_spm(&maker);
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, "", RUNNEL_TOKENIZE_BOS, 1, );
    /* "ab" has the best score, then the space joins */
    CHECK_IDS(vocab, "ab", RUNNEL_TOKENIZE_BOS, 1, 11, );
    CHECK_IDS(vocab, "aa", 0, 9, 7, );
    CHECK_IDS(vocab, "  ab", 0, 12, 11, );
    /* bytes where there is no token; unknown where there are no bytes */
    CHECK_IDS(vocab, "\xc3\xa9", 0, 6, 4, 5, );
    CHECK_IDS(vocab, "\xc3\xa8", 0, 6, 0, );
    CHECK_IDS(vocab, "\n", 0, 6, 3, );
    /* a control token, a byte and the unknown token do not come of plain text */
    CHECK_IDS(vocab, "<s>", 0, 6, 0, );
    CHECK_IDS(vocab, "<s>a", RUNNEL_TOKENIZE_SPECIAL, 1, 9, );
    CHECK_IDS(vocab, "a<sep>b", 0, 9, 13, 6, 8, );
    CHECK_IDS(vocab, "|a|a|a", 0, 14, 9, 14, 9, 14, 9, );
    CHECK_IDS(vocab, BLOCK "a", 0, 6, 9, ); /* as two spaces and "a" */
    check_round_trip(&heap, vocab, " a ab\xc3\xa9", 7);
    rn_vocab_free(vocab);

    maker_init(&maker);
    put_spm(&maker);
    maker_bool(&maker, KEY "add_space_prefix", 0);
    maker_bool(&maker, KEY "add_bos_token", 0);
    vocab = made(&heap, &maker);
    assert_false(rn_vocab_strips_first_space(vocab));
    CHECK_IDS(vocab, "ab a", RUNNEL_TOKENIZE_BOS, 10, 9, );
    check_round_trip(&heap, vocab, " a ab", 5);
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Unknown characters without tokens of bytes: what sentencepiece 0.2 gives for a model of these pieces and scores. */
static void test_unknown_runs(void **state)
{
    static const char *const texts[] = {"<unk>", "<s>", "</s>", "a", "b", BLOCK "a", "ab", BLOCK};
    static const int32_t types[] = {2, 3, 3, 1, 1, 1, 1, 1};
    static const float scores[] = {0, 0, 0, -4, -5, -1, -2, -3};
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;
    size_t without_space = COUNT(texts) - 1, n;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (n = COUNT(texts); n >= without_space; n--) {
        maker_init(&maker);
        maker_string(&maker, KEY "model", "llama");
        maker_strings(&maker, KEY "tokens", texts, n);
        maker_array(&maker, KEY "token_type", RN_GGUF_I32, types, n, 4 * n);
        maker_array(&maker, KEY "scores", RN_GGUF_F32, scores, n, 4 * n);
        vocab = made(&heap, &maker);
        CHECK_IDS(vocab, "axybxy", 0, 5, 0, 4, 0, );
        CHECK_IDS(vocab, "axaxax", 0, 5, 0, 3, 0, 3, 0, );
        if (n == COUNT(texts)) {
            CHECK_IDS(vocab, "<unk>x<unk>y", RUNNEL_TOKENIZE_SPECIAL, 0, 7, 0, 0, 7, 0, );
            CHECK_IDS(vocab, "x", 0, 7, 0, );
            CHECK_IDS(vocab, "x x", 0, 7, 0, 7, 0, );
            CHECK_IDS(vocab, "  x", 0, 7, 7, 7, 0, );
            CHECK_IDS(vocab,
                      "\xc3\xa9\xc3\xa8x a\xe2\x98\x83\xe2\x98\x83"
                      "b",
                      0, 7, 0, 5, 0, 4, );
            CHECK_IDS(vocab, "abx yab", 0, 5, 4, 0, 7, 0, 6, );
        } else { /* a space is unknown too: a run goes on over the places where a text is taken apart */
            CHECK_IDS(vocab, "<unk>x<unk>y", RUNNEL_TOKENIZE_SPECIAL, 0, 0, 0,
                      0, ); /* a written one is no part of it */
            CHECK_IDS(vocab, "x", 0, 0, );
            CHECK_IDS(vocab, "x x", 0, 0, );
            CHECK_IDS(vocab, "  x", 0, 0, );
            CHECK_IDS(vocab,
                      "\xc3\xa9\xc3\xa8x a\xe2\x98\x83\xe2\x98\x83"
                      "b",
                      0, 0, 5, 0, 4, );
            CHECK_IDS(vocab, "abx yab", 0, 5, 4, 0, 6, );
        }
        rn_vocab_free(vocab);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Merging by the definition: all pairs looked at, the best score first, the leftmost of equals. */
static size_t merge_plainly(const char *const *texts, const float *scores, size_t n_texts, const char *text,
                            int32_t *ids)
{
    size_t begin[64], n = 0, i;

    for (i = 0; text[i] != '\0'; i++)
        begin[n++] = i;
    begin[n] = i;
    for (;;) {
        size_t best = n, best_token = 0, t;

        for (i = 0; i + 1 < n; i++) {
            for (t = 0; t < n_texts; t++) {
                size_t bytes = begin[i + 2] - begin[i];

                if (strlen(texts[t]) == bytes && memcmp(texts[t], text + begin[i], bytes) == 0 &&
                    (best == n || scores[t] > scores[best_token])) {
                    best = i;
                    best_token = t;
                }
            }
        }
        if (best == n)
            break;
        memmove(begin + best + 1, begin + best + 2, (n - best - 1) * sizeof *begin);
        n--;
    }
    for (i = 0; i < n; i++) {
        size_t t = 0;

        while (strlen(texts[t]) != begin[i + 1] - begin[i] ||
               memcmp(texts[t], text + begin[i], begin[i + 1] - begin[i]) != 0)
            t++;
        ids[i] = (int32_t)t;
    }
    return n;
}

/* Random vocabularies over two letters with many equal scores, against the definition: short and
 * long words, the space inside of tokens too. */
static void test_scores_against_definition(void **state)
{
    struct rn_heap heap;
    uint64_t seed = 5;
    int round, i;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (round = 0; round < 150; round++) {
        char texts[20][8];
        const char *views[20];
        float scores[20];
        size_t n_texts = 2;
        struct maker maker;
        struct rn_vocab *vocab;
        const char *alphabet = round % 2 ? "ab" : "a ";

        for (i = 0; i < 2; i++) {
            texts[i][0] = alphabet[i];
            texts[i][1] = '\0';
        }
        while (n_texts < 20) {
            size_t length = 2 + rn_splitmix64(&seed) % 5, j;

            for (j = 0; j < length; j++)
                texts[n_texts][j] = alphabet[rn_splitmix64(&seed) % 2];
            texts[n_texts][length] = '\0';
            for (j = 0; j < n_texts && strcmp(texts[j], texts[n_texts]) != 0; j++)
                ;
            n_texts += j == n_texts;
        }
        for (i = 0; i < 20; i++) {
            views[i] = texts[i];
            scores[i] = (float)(int)(rn_splitmix64(&seed) % 7) - 3;
        }
        maker_init(&maker);
        maker_string(&maker, KEY "model", "llama");
        maker_strings(&maker, KEY "tokens", views, 20);
        maker_array(&maker, KEY "scores", RN_GGUF_F32, scores, 20, sizeof scores);
        maker_bool(&maker, KEY "add_space_prefix", 0);
        vocab = made(&heap, &maker);
        for (i = 0; i < 60; i++) {
            char text[64];
            int32_t ids[64];
            size_t n = 1 + rn_splitmix64(&seed) % 62, count, want, j;
            int32_t *tokens;

            for (j = 0; j < n; j++)
                text[j] = alphabet[rn_splitmix64(&seed) % 2];
            text[n] = '\0';
            want = merge_plainly(views, scores, 20, text, ids);
            tokens = tokenize(&heap, vocab, text, n, 0, &count);
            assert_int_equal(count, want);
            assert_memory_equal(tokens, ids, count * sizeof *ids);
            rn_free(&heap, tokens);
        }
        rn_vocab_free(vocab);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_invalid_utf8(void **state)
{
    static const char *const bad[] = {"\x80",
                                      "a\xff",
                                      "\xc0\x80",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xc3",
                                      "12345678\xe2\x82",
                                      "\xf0\x8f\xbf\xbf",
                                      "abcdefgh\xf8\x88\x80\x80\x80"};
    struct rn_heap heap;
    struct rn_vocab *vocab;
    size_t i, count;
    int32_t *tokens;

    (void)state;
    rn_heap_init(&heap, NULL);
    vocab = rn_vocab_new_bytes(&heap);
    assert_non_null(vocab);
    for (i = 0; i < COUNT(bad); i++) {
        runnel_error error = {0};

        assert_int_equal(rn_tokenize(vocab, &heap, bad[i], strlen(bad[i]), 0, &tokens, &count, &error), RUNNEL_INVALID);
        assert_null(tokens);
        assert_int_equal(count, 0);
    }
    CHECK_IDS(vocab, "a\xc3\xa9", 7, 'a', 0xc3, 0xa9, );
    CHECK_IDS(vocab, "", RUNNEL_TOKENIZE_BOS, );
    check_round_trip(&heap, vocab, "\xf4\x8f\xbf\xbf\xee\x80\x80", 7);
    assert_int_equal(rn_vocab_find(vocab, "a", 1), 'a');
    assert_int_equal(rn_vocab_longest_piece(vocab), 1);
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void check_no_vocab(const char *name)
{
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;
    runnel_error error = {0};
    int32_t *tokens;
    size_t count;
    struct rn_gguf *gguf;

    rn_heap_init(&heap, NULL);
    maker_init(&maker);
    maker_string(&maker, KEY "model", name);
    memcpy(maker.bytes + 16, &maker.n_entries, 8);
    assert_int_equal(rn_gguf_parse(&heap, maker.bytes, maker.n, "made", &gguf, &error), RUNNEL_OK);
    assert_int_equal(rn_vocab_new(&heap, gguf, 77, &vocab, &error), RUNNEL_OK);
    rn_gguf_free(gguf);
    maker_fini(&maker);
    assert_int_equal(rn_vocab_count(vocab), 77);
    assert_int_equal(rn_vocab_piece(vocab, 5, true).n, 0);
    assert_false(rn_vocab_is_end(vocab, 5));
    assert_int_equal(rn_vocab_find(vocab, "a", 1), -1);
    assert_int_equal(rn_tokenize(vocab, &heap, "a", 1, 0, &tokens, &count, &error), RUNNEL_UNSUPPORTED);
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_no_vocab(void **state)
{
    (void)state;
    check_no_vocab("no_vocab");
    check_no_vocab("none");
    check_no_vocab("test");
}

/* ---- Hostile files ------------------------------------------------------------------------ */

static void expect(struct maker *maker, runnel_status status, const char *word)
{
    struct rn_heap heap;
    struct rn_vocab *vocab;
    runnel_error error;

    rn_heap_init(&heap, NULL);
    assert_int_equal(maker_vocab(maker, &heap, &vocab, &error), status);
    if (status != RUNNEL_OK)
        assert_true(strncmp(error.message, "made: ", 6) == 0 && strstr(error.message + 6, "made: ") == NULL);
    if (word != NULL && strstr(error.message, word) == NULL)
        fail_msg("\"%s\" does not name \"%s\"", error.message, word);
    if (vocab != NULL)
        rn_free(&heap, tokenize(&heap, vocab, "hello <s> ab|a\xc3\xa9", 17, 3, &(size_t){0}));
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
    maker_fini(maker);
}

/* A number that is no token's counts as absent: what the model's files mean when they say nothing stays, and the key is
 * told, once. */
static void test_strays(void **state)
{
    static const char *const keys[] = {KEY "bos_token_id", KEY "padding_token_id", KEY "fim_pre_token_id",
                                       KEY "middle_token_id"};
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (size_t i = 0; i < COUNT(keys); i++) {
        const struct rn_stray_id *stray;

        maker_init(&maker);
        put_spm(&maker);
        maker_u32(&maker, keys[i], COUNT(spm_texts));
        vocab = made(&heap, &maker);
        stray = rn_vocab_stray(vocab, 0);
        assert_non_null(stray);
        assert_string_equal(stray->key, keys[i]);
        assert_int_equal(stray->id, COUNT(spm_texts));
        assert_null(rn_vocab_stray(vocab, 1));
        assert_int_equal(rn_vocab_bos(vocab), 1);
        assert_int_equal(rn_vocab_fim(vocab, RN_FIM_PREFIX), -1);
        rn_vocab_free(vocab);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_refused(void **state)
{
    static const char *const models[] = {"tests", "replit", "\x01odd"};
    static const char *const keys[] = {KEY "bos_token_id", KEY "eos_token_id", KEY "unknown_token_id",
                                       KEY "eot_token_id", KEY "eom_token_id"};
    struct maker maker;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT(models); i++) {
        maker_init(&maker);
        maker_string(&maker, KEY "model", models[i]);
        expect(&maker, RUNNEL_UNSUPPORTED, i < 2 ? models[i] : "\\x01odd");
    }
    maker_init(&maker);
    put_bpe(&maker);
    maker_string(&maker, KEY "pre", "of tomorrow");
    expect(&maker, RUNNEL_UNSUPPORTED, "of tomorrow");
    maker_init(&maker); /* U+0000 is a byte like others, and said */
    maker_string(&maker, KEY "model", "gpt2?");
    maker.bytes[maker.n - 1] = 0;
    expect(&maker, RUNNEL_UNSUPPORTED, "\"gpt2\\x00\"");
    maker_init(&maker);
    put_bpe(&maker);
    maker_string(&maker, KEY "pre", "gpt-2?");
    maker.bytes[maker.n - 1] = 0;
    expect(&maker, RUNNEL_UNSUPPORTED, "\"gpt-2\\x00\"");
    for (i = 0; i < COUNT(keys); i++) {
        maker_init(&maker);
        put_spm(&maker);
        maker_string(&maker, keys[i], "1");
        expect(&maker, RUNNEL_FORMAT, keys[i]);
        maker_init(&maker);
        put_spm(&maker);
        maker_u32(&maker, keys[i], UINT32_MAX); /* none */
        expect(&maker, RUNNEL_OK, NULL);
        maker_init(&maker);
        put_spm(&maker);
        maker_string(&maker, keys[i], "1");
        expect(&maker, RUNNEL_FORMAT, keys[i]);
    }
}

/* One entry of an otherwise good SentencePiece file replaced. */
static void put_spm_but(struct maker *maker, const char *but)
{
    maker_init(maker);
    maker_string(maker, KEY "model", "llama");
    if (strcmp(but, "tokens") != 0)
        maker_strings(maker, KEY "tokens", spm_texts, COUNT(spm_texts));
    if (strcmp(but, "token_type") != 0)
        maker_array(maker, KEY "token_type", RN_GGUF_I32, spm_types, COUNT(spm_types), sizeof spm_types);
    if (strcmp(but, "scores") != 0)
        maker_array(maker, KEY "scores", RN_GGUF_F32, spm_scores, COUNT(spm_scores), sizeof spm_scores);
}

static void test_bad_arrays(void **state)
{
    static const float bad_scores[] = {NAN, INFINITY, -INFINITY};
    struct maker maker;
    float scores[COUNT(spm_scores)];
    int32_t types[COUNT(spm_types)];
    signed char small[64] = {0};
    size_t i;

    (void)state;
    put_spm_but(&maker, "tokens");
    expect(&maker, RUNNEL_FORMAT, "tokens");
    put_spm_but(&maker, "tokens");
    maker_array(&maker, KEY "tokens", RN_GGUF_I8, small, sizeof small, sizeof small);
    expect(&maker, RUNNEL_FORMAT, "tokens");
    put_spm_but(&maker, "tokens");
    maker_strings(&maker, KEY "tokens", NULL, 0);
    expect(&maker, RUNNEL_FORMAT, "tokens");
    for (i = 0; i < COUNT(bad_scores); i++) {
        memcpy(scores, spm_scores, sizeof scores);
        scores[7] = bad_scores[i];
        put_spm_but(&maker, "scores");
        maker_array(&maker, KEY "scores", RN_GGUF_F32, scores, COUNT(scores), sizeof scores);
        expect(&maker, RUNNEL_FORMAT, "scores");
    }
    put_spm_but(&maker, "scores");
    maker_array(&maker, KEY "scores", RN_GGUF_F32, spm_scores, 3, 12);
    expect(&maker, RUNNEL_FORMAT, "scores");
    put_spm_but(&maker, "scores");
    maker_strings(&maker, KEY "scores", spm_texts, COUNT(spm_texts));
    expect(&maker, RUNNEL_FORMAT, "scores");
    put_spm_but(&maker, "scores");
    expect(&maker, RUNNEL_OK, NULL);
    put_spm_but(&maker, "token_type");
    expect(&maker, RUNNEL_OK, NULL);
    put_spm_but(&maker, "token_type");
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, spm_types, 3, 12);
    expect(&maker, RUNNEL_FORMAT, "token_type");
    put_spm_but(&maker, "token_type");
    maker_array(&maker, KEY "token_type", RN_GGUF_F32, spm_types, COUNT(spm_types), sizeof spm_types);
    expect(&maker, RUNNEL_FORMAT, "token_type");
    for (i = 0; i < 3; i++) {
        memcpy(types, spm_types, sizeof types);
        types[7] = (const int32_t[]){-1, 7, 6}[i]; /* the last: "a" is no name of a byte */
        put_spm_but(&maker, "token_type");
        maker_array(&maker, KEY "token_type", RN_GGUF_I32, types, COUNT(types), sizeof types);
        expect(&maker, RUNNEL_FORMAT, "token_type");
    }
}

/* Strange, but nothing that could harm: no error, and texts pass. */
static void test_harmless(void **state)
{
    static const char *const texts[] = {"",       "",    "a",   "a", "h", "e",    "he",          "\xff\xfe",
                                        "<0x41>", "<s>", "<s>", "|", "|", "\xc3", "\xc3\xa9\xc3"};
    static const int32_t types[] = {1, 3, 1, 4, 1, 1, 2, 1, 6, 3, 4, 3, 3, 1, 4};
    static const char *const merges[] = {"h e", "h e", "",    " ",         "  ",  "a",   "x y",
                                         "h x", "x e", "a a", "\xff \xfe", "e h", "h  e"};
    struct maker maker;

    (void)state;
    maker_init(&maker);
    maker_string(&maker, KEY "model", "gpt2");
    maker_strings(&maker, KEY "tokens", texts, COUNT(texts));
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, types, COUNT(types), sizeof types);
    maker_strings(&maker, KEY "merges", merges, COUNT(merges));
    expect(&maker, RUNNEL_OK, NULL);
    maker_init(&maker);
    maker_string(&maker, KEY "model", "llama");
    maker_strings(&maker, KEY "tokens", texts, COUNT(texts));
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, types, COUNT(types), sizeof types);
    expect(&maker, RUNNEL_OK, NULL);
    maker_init(&maker); /* one empty token, and nothing else */
    maker_string(&maker, KEY "model", "llama");
    maker_strings(&maker, KEY "tokens", texts, 1);
    expect(&maker, RUNNEL_OK, NULL);
}

/* A list of which no merge joins two tokens to a third is another vocabulary's, and told apart from one that does and
 * from none: words are then bytes, as llama.cpp has it. */
static void test_merges_of_another(void **state)
{
    static const char *const texts[] = {"h", "e", "l", "he", "hel"};
    static const char *const others[] = {"x y", "h l", "he  l", "xy z", "h el"}, *const one[] = {"x y", "h e"};
    struct rn_heap heap;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (int i = 0; i < 3; i++) {
        struct rn_vocab *vocab;
        struct maker maker;

        maker_init(&maker);
        maker_string(&maker, KEY "model", "gpt2");
        maker_strings(&maker, KEY "tokens", texts, COUNT(texts));
        maker_strings(&maker, KEY "merges", i == 0 ? others : one, i == 0 ? COUNT(others) : i == 1 ? COUNT(one) : 0);
        vocab = made(&heap, &maker);
        assert_int_equal(rn_vocab_merges_fit(vocab), i != 0);
        if (i == 1)
            CHECK_IDS(vocab, "hel", 0, 3, 2, );
        else
            CHECK_IDS(vocab, "hel", 0, 0, 1, 2, );
        rn_vocab_free(vocab);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* A special token that is a part of a character is not found inside one. */
static void test_part_of_character(void **state)
{
    static const char *const texts[] = {"<unk>", "\xc3", "\xa9", "a", "\xa9\xc3"};
    static const int32_t types[] = {2, 4, 4, 1, 3};
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;

    (void)state;
    rn_heap_init(&heap, NULL);
    maker_init(&maker);
    maker_string(&maker, KEY "model", "llama");
    maker_bool(&maker, KEY "add_space_prefix", 0);
    maker_strings(&maker, KEY "tokens", texts, COUNT(texts));
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, types, COUNT(types), sizeof types);
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab,
              "a\xc3\xa9\xc3\xa9"
              "a",
              RUNNEL_TOKENIZE_SPECIAL, 3, 0, 3, );
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_long_token(void **state)
{
    char *text = malloc(70001);
    const char *texts[2] = {"a", text};
    struct maker maker;
    uint64_t huge = (uint64_t)1 << 31;

    (void)state;
    assert_non_null(text);
    memset(text, 'a', 70000);
    text[70000] = '\0';
    maker_init(&maker);
    maker_string(&maker, KEY "model", "llama");
    maker_strings(&maker, KEY "tokens", texts, 2);
    expect(&maker, RUNNEL_FORMAT, "token 1 ");
    text[65535] = '\0';
    maker_init(&maker);
    maker_string(&maker, KEY "model", "llama");
    maker_strings(&maker, KEY "tokens", texts, 2);
    expect(&maker, RUNNEL_OK, NULL);
    maker_init(&maker); /* 2 GiB by its own word */
    maker_string(&maker, KEY "model", "llama");
    maker_array(&maker, KEY "tokens", RN_GGUF_STRING, &huge, 1, 8);
    expect(&maker, RUNNEL_FORMAT, NULL);
    free(text);
}

/* ---- Refused memory ----------------------------------------------------------------------- */

/* Builds and uses the vocabulary with the first `left` allocations granted; true if all went well. */
static bool try_with(uint64_t left, void (*put)(struct maker *))
{
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);
    struct maker maker;
    struct rn_vocab *vocab;
    int32_t *tokens = NULL;
    size_t count = 1;
    char text[3000];
    runnel_status status;

    memset(text, 'h', sizeof text);
    refusing_allow(&refusing, left);
    maker_init(&maker);
    put(&maker);
    status = maker_vocab(&maker, &heap, &vocab, NULL);
    maker_fini(&maker);
    if (status == RUNNEL_OK) {
        status = rn_tokenize(vocab, &heap, text, sizeof text, 3, &tokens, &count, NULL);
        assert_true((status == RUNNEL_OK) == (tokens != NULL));
        assert_true((status == RUNNEL_OK) == (count != 0));
    }
    if (status != RUNNEL_OK)
        assert_int_equal(status, RUNNEL_NO_MEMORY);
    rn_free(&heap, tokens);
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
    return status == RUNNEL_OK;
}

static void test_refused_memory(void **state)
{
    int64_t n;

    (void)state;
    for (n = 0; !try_with(n, put_bpe); n++)
        assert_true(n < 200);
    assert_true(n > 15);
    for (n = 0; !try_with(n, put_spm); n++)
        assert_true(n < 200);
    assert_true(n > 15);
}

static void test_refused_memory_bytes(void **state)
{
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);
    struct rn_vocab *vocab;
    int64_t n;

    (void)state;
    for (n = 0;; n++) {
        refusing_allow(&refusing, n);
        vocab = rn_vocab_new_bytes(&heap);
        if (vocab != NULL)
            break;
        assert_int_equal(rn_heap_blocks(&heap), 0);
    }
    assert_true(n >= 8);
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe),
        cmocka_unit_test(test_detokenize_sizes),
        cmocka_unit_test(test_strays),
        cmocka_unit_test(test_spm),
        cmocka_unit_test(test_unknown_runs),
        cmocka_unit_test(test_scores_against_definition),
        cmocka_unit_test(test_invalid_utf8),
        cmocka_unit_test(test_no_vocab),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bad_arrays),
        cmocka_unit_test(test_harmless),
        cmocka_unit_test(test_merges_of_another),
        cmocka_unit_test(test_part_of_character),
        cmocka_unit_test(test_long_token),
        cmocka_unit_test(test_refused_memory),
        cmocka_unit_test(test_refused_memory_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
