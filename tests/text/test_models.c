/* WordPiece, RWKV, PLaMo-2, BPE by characters and HybriDNA, with vocabularies made in memory: against their
 * definitions, written here in the plainest way, and by examples. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "fixture.h"
#include "tests/base/refusing.h"

/* ---- WordPiece ---------------------------------------------------------------------------- */

static const char *const bert[] = {"[PAD]",
                                   "[UNK]",
                                   "[CLS]",
                                   "[SEP]",
                                   BLOCK "un",
                                   "aff",
                                   "able",
                                   BLOCK "a",
                                   "a",
                                   BLOCK "!",
                                   BLOCK "e",
                                   "e",
                                   BLOCK "i",
                                   BLOCK "\xe4\xb8\x80",
                                   BLOCK "\xe1\x84\x80",
                                   "\xe1\x85\xa1",
                                   BLOCK "E",
                                   BLOCK "\xc3\xa9",
                                   "\xcc\x87",
                                   BLOCK};
static const int32_t bert_types[] = {3, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

enum {
    PAD,
    UNK,
    CLS,
    SEP,
    UN,
    AFF,
    ABLE,
    _A,
    A,
    BANG,
    _E,
    E,
    _I,
    YI,
    _KIYEOK,
    JAMO_A,
    _CAPITAL_E,
    _E_ACUTE,
    DOT,
    PHANTOM
};

static void put_bert(struct maker *maker)
{
    maker_init(maker);
    maker_string(maker, KEY "model", "bert");
    maker_strings(maker, KEY "tokens", bert, COUNT(bert));
    maker_array(maker, KEY "token_type", RN_GGUF_I32, bert_types, COUNT(bert_types), sizeof bert_types);
    maker_u32(maker, KEY "cls_token_id", CLS);
    maker_u32(maker, KEY "seperator_token_id", SEP);
    maker_u32(maker, KEY "unknown_token_id", UNK);
}

static void test_wordpiece(void **state)
{
    char word[102];
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;
    int32_t *tokens;
    size_t count;

    (void)state;
    rn_heap_init(&heap, NULL);
    put_bert(&maker);
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, "", RUNNEL_TOKENIZE_BOS, CLS, SEP, );
    CHECK_IDS(vocab, "unaffable!", RUNNEL_TOKENIZE_BOS, CLS, UN, AFF, ABLE, BANG, SEP, );
    CHECK_IDS(vocab, "  UNaffable\t\n!! ", 0, UN, AFF, ABLE, BANG, BANG, );
    CHECK_IDS(vocab, "unaffible a", 0, UNK, _A, ); /* a word without tokens is one unknown token */
    CHECK_IDS(vocab,
              "\xc3\xa9\xc3\x89"
              "e\xcc\x81",
              0, _E, E, E, );              /* accents go, composed or not, and capitals */
    CHECK_IDS(vocab, "\xc4\xb0", 0, _I, ); /* U+0130: the dot is an accent */
    CHECK_IDS(vocab,
              "a\xe4\xb8\x80"
              "a",
              0, _A, YI, _A, );                             /* a CJK character is a word */
    CHECK_IDS(vocab, "\xea\xb0\x80", 0, _KIYEOK, JAMO_A, ); /* Hangul falls into its letters */
    CHECK_IDS(vocab,
              "a\x01\x0b\xef\xbf\xbd\xc2\xad"
              "a",
              0, _A, A, ); /* controls are not there at all */
    CHECK_IDS(vocab, "[SEP]", 0, UNK, UNK, UNK, );
    CHECK_IDS(vocab, "a[SEP]a", RUNNEL_TOKENIZE_SPECIAL, _A, SEP, _A, );
    CHECK_IDS(vocab, "\xcc\x81", 0, ); /* an accent alone */
    memset(word, 'a', sizeof word);
    tokens = tokenize(&heap, vocab, word, 100, 0, &count);
    assert_int_equal(count, 100);
    rn_free(&heap, tokens);
    tokens = tokenize(&heap, vocab, word, 101, 0, &count); /* too long a word */
    assert_int_equal(count, 1);
    assert_int_equal(tokens[0], UNK);
    rn_free(&heap, tokens);
    assert_true(rn_vocab_strips_first_space(vocab));
    rn_vocab_free(vocab);

    put_bert(&maker); /* cased */
    maker_bool(&maker, KEY "normalizer.lowercase", 0);
    maker_bool(&maker, KEY "add_bos_token", 0);
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, "E\xc3\xa9", RUNNEL_TOKENIZE_BOS, UNK, SEP, );
    CHECK_IDS(vocab, "E \xc3\xa9", 0, _CAPITAL_E, _E_ACUTE, );
    rn_vocab_free(vocab);

    put_bert(&maker); /* lower case, with accents */
    maker_bool(&maker, KEY "normalizer.strip_accents", 0);
    maker_bool(&maker, KEY "add_sep_token", 0);
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, "\xc3\x89 E", RUNNEL_TOKENIZE_BOS, CLS, _E_ACUTE, _E, );
    CHECK_IDS(vocab, "\xc4\xb0", 0, _I, DOT, ); /* U+0130 becomes two characters */
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Longest pieces from the left, over two letters. */
static void test_wordpiece_against_definition(void **state)
{
    struct rn_heap heap;
    uint64_t seed = 4;
    int round, i;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (round = 0; round < 200; round++) {
        char strings[16][12];
        const char *views[16];
        struct maker maker;
        struct rn_vocab *vocab;

        for (i = 0; i < 16; i++) { /* the first eight begin words */
            size_t length = 1 + rn_splitmix64(&seed) % 4, j, from = i < 8 ? 3 : 0;

            memcpy(strings[i], BLOCK, from);
            for (j = 0; j < length; j++)
                strings[i][from + j] = "ab"[rn_splitmix64(&seed) % 2];
            strings[i][from + length] = '\0';
            views[i] = strings[i];
        }
        maker_init(&maker);
        maker_string(&maker, KEY "model", "bert");
        maker_strings(&maker, KEY "tokens", views, 16);
        maker_u32(&maker, KEY "unknown_token_id", 0);
        vocab = made(&heap, &maker);
        for (i = 0; i < 50; i++) {
            char text[16] = BLOCK;
            int32_t want[16], *tokens;
            size_t n = 3 + 1 + rn_splitmix64(&seed) % 9, at = 0, count = 0, got, j;

            for (j = 3; j < n; j++)
                text[j] = "ab"[rn_splitmix64(&seed) % 2];
            while (at < n) {
                size_t best = 0;
                int t;

                for (t = 0; t < 16; t++) {
                    size_t length = strlen(views[t]);

                    if (length > best && length <= n - at && memcmp(text + at, views[t], length) == 0) {
                        best = length;
                        want[count] = t;
                    }
                }
                if (best == 0)
                    break;
                count++;
                at += best;
            }
            if (at < n) {
                want[0] = 0;
                count = 1;
            }
            tokens = tokenize(&heap, vocab, text + 3, n - 3, 0, &got);
            assert_int_equal(got, count);
            assert_memory_equal(tokens, want, count * sizeof *want);
            rn_free(&heap, tokens);
        }
        rn_vocab_free(vocab);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* ---- RWKV --------------------------------------------------------------------------------- */

static void test_rwkv(void **state)
{
    static const char *const texts[] = {"<s>", "a",    "ab", "abc", "\\n",    "\\xe4\\xb8", "\\x80",
                                        "\\'", "\\\\", "b",  "\\t", "\\r\\n", "<s>a",       "\\xC3"};
    static const int32_t types[] = {3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;
    int round;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (round = 0; round < 2; round++) {
        maker_init(&maker);
        maker_string(&maker, KEY "model", "rwkv");
        maker_strings(&maker, KEY "tokens", texts, COUNT(texts));
        maker_array(&maker, KEY "token_type", RN_GGUF_I32, types, COUNT(types), sizeof types);
        if (round == 1)
            maker_u32(&maker, KEY "unknown_token_id", 1);
        vocab = made(&heap, &maker);
        CHECK_IDS(vocab, "abcabab", RUNNEL_TOKENIZE_BOS, 3, 2, 2, );
        CHECK_IDS(vocab, "\n'\\\t\r\n", 0, 4, 7, 8, 10, 11, );
        CHECK_IDS(vocab, "\xe4\xb8\x80", 0, 5, 6, ); /* tokens that are parts of a character */
        CHECK_IDS(vocab, "<s>a", 0, 12, );           /* a token that only looks like a control token */
        CHECK_IDS(vocab, "<s>a", RUNNEL_TOKENIZE_SPECIAL, 0, 1, );
        if (round == 0)
            CHECK_IDS(vocab, "ax\xc3\xa9", 0, 1, 13, ); /* nothing for what begins no token */
        else
            CHECK_IDS(vocab, "bx\xc3\xa9", 0, 9, 1, 13, 1, );
        check_round_trip(&heap, vocab, "abc\r\n\xe4\xb8\x80", 8);
        rn_vocab_free(vocab);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* ---- PLaMo-2 ------------------------------------------------------------------------------ */

#define N_PLAMO 12

/* The least cost of text[n], by trying everything. Scores in units of 10^-4. */
static int64_t cost_plainly(const char strings[N_PLAMO][8], const int *scores, const char *text, size_t n)
{
    int64_t best;
    int t;

    if (n == 0)
        return 0;
    best = 10000000 + cost_plainly(strings, scores, text + 1, n - 1);
    for (t = 0; t < N_PLAMO; t++) {
        size_t length = strlen(strings[t]);

        if (length <= n && memcmp(strings[t], text, length) == 0) {
            int64_t cost = cost_plainly(strings, scores, text + length, n - length) - scores[t];

            best = cost < best ? cost : best;
        }
    }
    return best;
}

static void test_plamo_against_search(void **state)
{
    static char names[256][7];
    const char *views[4 + 256 + N_PLAMO] = {"<|plamo:unk|>", "<|plamo:bos|>", "<|plamo:eos|>", "<|plamo:pad|>"};
    int32_t types[4 + 256 + N_PLAMO] = {2, 3, 3, 3};
    float scores[4 + 256 + N_PLAMO] = {0};
    struct rn_heap heap;
    uint64_t seed = 6;
    int round, i;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (i = 0; i < 256; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", (unsigned)i);
        views[4 + i] = names[i];
        types[4 + i] = 6;
    }
    for (round = 0; round < 100; round++) {
        char strings[N_PLAMO][8];
        int whole[N_PLAMO];
        struct maker maker;
        struct rn_vocab *vocab;

        for (i = 0; i < N_PLAMO; i++) {
            size_t length = 1 + rn_splitmix64(&seed) % 4, j;

            do {
                for (j = 0; j < length; j++)
                    strings[i][j] = "ab"[rn_splitmix64(&seed) % 2];
                strings[i][length] = '\0';
                for (j = 0; j < (size_t)i && strcmp(strings[j], strings[i]) != 0; j++)
                    ;
                length += length < 7;
            } while (j < (size_t)i);
            views[4 + 256 + i] = strings[i];
            types[4 + 256 + i] = 1;
            whole[i] = -1250 * (int)(rn_splitmix64(&seed) % 200); /* exact as floats */
            scores[4 + 256 + i] = (float)whole[i] / 10000;
        }
        maker_init(&maker);
        maker_string(&maker, KEY "model", "plamo2");
        maker_strings(&maker, KEY "tokens", views, COUNT(views));
        maker_array(&maker, KEY "token_type", RN_GGUF_I32, types, COUNT(types), sizeof types);
        maker_array(&maker, KEY "scores", RN_GGUF_F32, scores, COUNT(scores), sizeof scores);
        vocab = made(&heap, &maker);
        for (i = 0; i < 40; i++) {
            char text[12];
            size_t n = 1 + rn_splitmix64(&seed) % 10, count, j;
            int32_t *tokens;
            int64_t cost = 0;

            for (j = 0; j < n; j++)
                text[j] = "abababx"[rn_splitmix64(&seed) % 7];
            check_round_trip(&heap, vocab, text, n);
            tokens = tokenize(&heap, vocab, text, n, 0, &count);
            for (j = 0; j < count; j++)
                cost += tokens[j] < 260 ? 10000000 : -whole[tokens[j] - 260];
            assert_int_equal(cost, cost_plainly(strings, whole, text, n));
            rn_free(&heap, tokens);
        }
        CHECK_IDS(vocab, "<|plamo:eos|>\xef\xbb\xbf", RUNNEL_TOKENIZE_SPECIAL, 2, 4 + 0xef, 4 + 0xbb, 4 + 0xbf, );
        rn_vocab_free(vocab);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Of equal sums the longest token first; a token too bad to be used; bytes that have no token. */
static void test_plamo(void **state)
{
    static const char *const texts[] = {"<unk>", "a", "aa", "b", "ab", "c"};
    static const int32_t types[] = {2, 1, 1, 1, 1, 1};
    static const float scores[] = {0, -1, -2, -1, -3, -2000};
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;

    (void)state;
    rn_heap_init(&heap, NULL);
    maker_init(&maker);
    maker_string(&maker, KEY "model", "plamo2");
    maker_strings(&maker, KEY "tokens", texts, COUNT(texts));
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, types, COUNT(types), sizeof types);
    maker_array(&maker, KEY "scores", RN_GGUF_F32, scores, COUNT(scores), sizeof scores);
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, "aa", 0, 2, );
    CHECK_IDS(vocab, "aaa", 0, 2, 1, );
    CHECK_IDS(vocab, "ab", 0, 1, 3, );
    CHECK_IDS(vocab, "aca\xc3\xa9", 0, 1, 0, 1, 0, );
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* PLaMo-3's segments, each cut by itself: by the scores alone "ca", "aca" and "  a" would be taken. */
static void test_plamo3(void **state)
{
    static const char *const texts[] = {"a",  "c",    "ca", "aca",  " ",    "  ", "  a", "\n",
                                        "aa", "aaaa", "c<", "|>ca", "\n\n", "<",  "|",   ">"};
    static const float scores[] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    static const char name[] = "c<|plamo:a|>ca", spaced[] = "c<|plamo: |>ca";
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;

    (void)state;
    rn_heap_init(&heap, NULL);
    maker_init(&maker);
    maker_string(&maker, KEY "model", "plamo3");
    maker_strings(&maker, KEY "tokens", texts, COUNT(texts));
    maker_array(&maker, KEY "scores", RN_GGUF_F32, scores, COUNT(scores), sizeof scores);
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, "aca", 0, 3, );
    CHECK_IDS(vocab, "caaa", 0, 2, 8, );       /* a run of three is none */
    CHECK_IDS(vocab, "caaaaca", 0, 1, 9, 2, ); /* one of four is */
    CHECK_IDS(vocab, "c a", 0, 1, 4, 0, );     /* one space */
    CHECK_IDS(vocab, "c  aca", 0, 1, 5, 3, );  /* two are a segment */
    CHECK_IDS(vocab, "\n\n\n\n", 0, 12, 12, ); /* newlines never */
    CHECK_IDS(vocab,
              "c\xee\xb8\x80"
              "a\xee\xb8\x80\xee\xb8\x80",
              0, 1, 0, ); /* U+EE00 is left out */
    /* letters that are no tokens are the unknown one, 0 */
    CHECK_IDS(vocab, name, 0, 1, 13, 14, 0, 0, 0, 0, 0, 0, 0, 14, 15, 2, );
    CHECK_IDS(vocab, spaced, 0, 10, 14, 0, 0, 0, 0, 0, 0, 4, 11, );
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* ---- BPE by characters -------------------------------------------------------------------- */

static const char *const gemma[] = {"<pad>",     "<eos>",  "<bos>",  "<unk>",  BLOCK,     "a",
                                    "b",         "\n",     "\n\n",   "ab",     BLOCK "a", "\xc3\xa9",
                                    BLOCK BLOCK, "<0xE2>", "<0x82>", "<0xAC>", "<t>",     "\n\n\n"};
static const int32_t gemma_types[] = {3, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 6, 6, 6, 4, 1};
static const char *const gemma_merges[] = {"a b", BLOCK " a", BLOCK " " BLOCK};

static void put_gemma(struct maker *maker, const char *model, const char *pre)
{
    maker_init(maker);
    maker_string(maker, KEY "model", model);
    if (pre != NULL)
        maker_string(maker, KEY "pre", pre);
    maker_strings(maker, KEY "tokens", gemma, COUNT(gemma));
    maker_array(maker, KEY "token_type", RN_GGUF_I32, gemma_types, COUNT(gemma_types), sizeof gemma_types);
    maker_strings(maker, KEY "merges", gemma_merges, COUNT(gemma_merges));
    maker_u32(maker, KEY "bos_token_id", 2);
    maker_u32(maker, KEY "eos_token_id", 1);
    maker_u32(maker, KEY "unknown_token_id", 3);
}

static void test_gemma(void **state)
{
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;

    (void)state;
    rn_heap_init(&heap, NULL);
    put_gemma(&maker, "gemma4", NULL);
    maker_bool(&maker, KEY "add_bos_token", 0); /* is added all the same */
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, "ab a", RUNNEL_TOKENIZE_BOS, 2, 9, 10, );
    CHECK_IDS(vocab, " ab", 0, 4, 9, ); /* "a b" ranks before a space and "a" */
    CHECK_IDS(vocab, "  a" BLOCK "a", 0, 4, 10, 10, );
    CHECK_IDS(vocab, "\n\n\na\n\n", 0, 17, 5, 8, ); /* runs of newlines, without a merge */
    CHECK_IDS(vocab, "\n\n\n\n", 0, 7, 7, 7, 7, );
    CHECK_IDS(vocab, "\xc3\xa9\xe2\x82\xac", 0, 11, 13, 14, 15, ); /* a character without a token: its bytes */
    CHECK_IDS(vocab, "a<t>b", 0, 5, 16, 6, );
    CHECK_IDS(vocab, "<eos>", RUNNEL_TOKENIZE_SPECIAL, 1, );
    CHECK_IDS(vocab, "z", 0, 3, ); /* neither */
    assert_false(rn_vocab_strips_first_space(vocab));
    check_round_trip(&heap, vocab, "  ab a\n\n\nb\xe2\x82\xac ", 14);
    rn_vocab_free(vocab);

    put_gemma(&maker, "gpt2", "sarvam-moe"); /* newlines merge like all else, and here do not */
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, " a\n\n", RUNNEL_TOKENIZE_BOS, 10, 7, 7, );
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_whitespace(void **state)
{
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;

    (void)state;
    rn_heap_init(&heap, NULL);
    put_gemma(&maker, "whitespace", "whitespace");
    maker_bool(&maker, KEY "normalizer.lowercase", 1);
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, " AB \n\xe3\x80\x80 a\xc3\x89 ", 0, 9, 5, 11, );
    rn_vocab_free(vocab);
    for (int said = 0; said < 2; said++) {
        put_gemma(&maker, "whitespace", "whitespace");
        if (said)
            maker_bool(&maker, KEY "normalizer.lowercase", 0);
        vocab = made(&heap, &maker);
        CHECK_IDS(vocab, "a B ab", 0, 5, 3, 9, );
        rn_vocab_free(vocab);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* A character of two bytes that has three in lower case, each of them a token. */
static void test_bound_of_lower_case(void **state)
{
    static const char *const texts[] = {"<0xE2>", "<0xB1>", "<0xA5>", "x"};
    static const int32_t types[] = {6, 6, 6, 1};
    static const char *const merges[] = {"x x"};
    enum { N = 100 };
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;
    char text[2 * N];
    size_t count;

    (void)state;
    for (int i = 0; i < N; i++)
        memcpy(text + (size_t)2 * i, "\xc8\xba", 2); /* U+023A; U+2C65 in lower case */
    rn_heap_init(&heap, NULL);
    maker_init(&maker);
    maker_string(&maker, KEY "model", "whitespace");
    maker_string(&maker, KEY "pre", "whitespace");
    maker_strings(&maker, KEY "tokens", texts, COUNT(texts));
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, types, COUNT(types), sizeof types);
    maker_strings(&maker, KEY "merges", merges, COUNT(merges));
    maker_bool(&maker, KEY "normalizer.lowercase", 1);
    vocab = made(&heap, &maker);
    rn_free(&heap, tokenize(&heap, vocab, text, sizeof text, 0, &count));
    assert_int_equal(count, 3 * N);
    assert_true(rn_tokenize_bound(vocab, sizeof text) >= count);
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* ---- HybriDNA ----------------------------------------------------------------------------- */

static const char *const dna[] = {
    "a", "C", "CC", "<dna>", "</dna>", "<oov>", "CCCCCC\xee\x80\x80", "ACGTAA\xee\x80\x80", "<", "\xc4\xa0"};
static const int32_t dna_types[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
static const char *const dna_merges[] = {"C C"};

static void test_dna(void **state)
{
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;
    struct rn_view piece;

    (void)state;
    rn_heap_init(&heap, NULL);
    maker_init(&maker);
    maker_string(&maker, KEY "model", "hybriddna");
    maker_string(&maker, KEY "pre", "qwen2");
    maker_strings(&maker, KEY "tokens", dna, COUNT(dna));
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, dna_types, COUNT(dna_types), sizeof dna_types);
    maker_strings(&maker, KEY "merges", dna_merges, COUNT(dna_merges));
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, "CCCCCC a", 0, 2, 2, 2, 9, 0, ); /* plain text */
    CHECK_IDS(vocab, "a<dna>ccCCccACGT</dna>CC", 0, 0, 3, 6, 7, 4, 2, );
    CHECK_IDS(vocab, "<dna>NNNNNNN", 0, 3, 5, 5, );
    CHECK_IDS(vocab, "<dna></dna><dna>", 0, 3, 4, 3, );
    piece = rn_vocab_piece(vocab, 6, false);
    assert_int_equal(piece.n, 6);
    assert_memory_equal(piece.bytes, "CCCCCC", 6);
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* ---- Refused memory, of every model ------------------------------------------------------- */

static bool try_with(uint64_t left, const char *model)
{
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);
    struct maker maker;
    struct rn_vocab *vocab;
    int32_t *tokens = NULL;
    size_t count;
    char text[3000];
    runnel_status status;

    memset(text, 'a', sizeof text);
    refusing_allow(&refusing, left);
    put_gemma(&maker, model, strcmp(model, "whitespace") == 0 ? model : NULL);
    maker_array(&maker, KEY "precompiled_charsmap", RN_GGUF_U8, "\4\0\0\0\0\0\0\0x", 10, 10);
    status = maker_vocab(&maker, &heap, &vocab, NULL);
    maker_fini(&maker);
    if (status == RUNNEL_OK)
        status = rn_tokenize(vocab, &heap, text, sizeof text, 3, &tokens, &count, NULL);
    assert_true((status == RUNNEL_OK) == (tokens != NULL));
    if (status != RUNNEL_OK)
        assert_int_equal(status, RUNNEL_NO_MEMORY);
    rn_free(&heap, tokens);
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
    return status == RUNNEL_OK;
}

static void test_refused_memory(void **state)
{
    static const char *const models[] = {"gemma4", "whitespace", "bert", "t5", "rwkv", "plamo2", "plamo3"};
    size_t i;
    int64_t n;

    (void)state;
    for (i = 0; i < COUNT(models); i++) {
        for (n = 0; !try_with(n, models[i]); n++)
            assert_true(n < 200);
        assert_true(n > 10);
    }
}

/* ---- Interrupted ---- */

struct asked {
    uint32_t n, end_at; /* 0: never */
};

static bool ask(const void *user)
{
    struct asked *asked = (struct asked *)user;

    asked->n++;
    return asked->end_at > 0 && asked->n >= asked->end_at;
}

/* A long text is asked about often, whatever it consists of, and ends when it is told to, with nothing held. */
static void test_interrupted(void **state)
{
    static const char *const models[] = {"gemma4", "whitespace", "bert", "t5", "rwkv", "plamo2", "plamo3"};
    static const char *const repeated[] = {"a", "ab a "};
    enum { BYTES = 200000 };
    char *text = malloc(BYTES);
    struct rn_heap heap;

    (void)state;
    assert_non_null(text);
    rn_heap_init(&heap, NULL);
    for (size_t i = 0; i < COUNT(models) * COUNT(repeated); i++) {
        const char *model = models[i / COUNT(repeated)], *part = repeated[i % COUNT(repeated)];
        const struct rn_tokenize_text given = {.text = text, .n = BYTES};
        int32_t *tokens, *plain;
        size_t count, n_plain;
        struct rn_vocab *vocab;
        struct maker maker;

        for (size_t k = 0; k < BYTES; k++)
            text[k] = part[k % strlen(part)];
        if (strcmp(model, "bert") == 0 && strlen(part) == 1)
            continue; /* one word, which is too long for a token: no work */
        put_gemma(&maker, model, strcmp(model, "whitespace") == 0 ? model : NULL);
        vocab = made(&heap, &maker);
        plain = tokenize(&heap, vocab, text, BYTES, 0, &n_plain);
        for (uint32_t end_at = 0; end_at < 4; end_at++) {
            struct asked asked = {.end_at = end_at};
            const struct rn_interrupt interrupt = {ask, &asked};
            runnel_status status = rn_tokenize_until(vocab, &heap, &given, &interrupt, &tokens, &count, NULL);

            if (asked.n < 4 && end_at == 0)
                fail_msg("%s: asked %u times in %d bytes of \"%s\"", model, asked.n, BYTES, part);
            assert_int_equal(status, end_at == 0 ? RUNNEL_OK : RUNNEL_CANCELLED);
            if (end_at == 0) {
                assert_int_equal(count, n_plain);
                assert_memory_equal(tokens, plain, count * sizeof *tokens);
            } else {
                assert_int_equal(asked.n, end_at);
                assert_null(tokens);
            }
            rn_free(&heap, tokens);
        }
        rn_free(&heap, plain);
        rn_vocab_free(vocab);
        assert_int_equal(rn_heap_blocks(&heap), 0);
    }
    free(text);
}

/* Of two texts that are one prompt: BERT's pairs, those of XLM-RoBERTa, whose files ask for a separator, and of T5. */
static void test_ends(void **state)
{
    static const char *const pieces[] = {"<unk>", "<s>", "</s>",
                                         "\xe2\x96\x81"
                                         "a"};
    static const float scores[] = {0, 0, 0, -1};
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;
    int32_t ids[3] = {-1, -1, -1};

    (void)state;
    rn_heap_init(&heap, NULL);
    put_bert(&maker);
    vocab = made(&heap, &maker);
    for (int between = 0; between < 2; between++) {
        assert_int_equal(rn_vocab_ends(vocab, between, ids), 1);
        assert_int_equal(ids[0], SEP);
    }
    rn_vocab_free(vocab);
    for (int asks = 0; asks < 2; asks++) {
        maker_init(&maker);
        maker_string(&maker, KEY "model", "t5");
        maker_strings(&maker, KEY "tokens", pieces, COUNT(pieces));
        maker_array(&maker, KEY "scores", RN_GGUF_F32, scores, COUNT(scores), sizeof scores);
        maker_u32(&maker, KEY "unknown_token_id", 0);
        maker_u32(&maker, KEY "bos_token_id", 1);
        maker_u32(&maker, KEY "eos_token_id", 2);
        maker_u32(&maker, KEY "seperator_token_id", 2);
        maker_bool(&maker, KEY "add_sep_token", asks);
        vocab = made(&heap, &maker);
        assert_int_equal(rn_vocab_ends(vocab, false, ids), 1);
        assert_int_equal(rn_vocab_ends(vocab, true, ids), 1 + asks);
        assert_true(ids[0] == 2 && ids[asks] == 2);
        rn_vocab_free(vocab);
    }
    for (size_t i = 0; i < 8; i++) { /* by the pre-tokenizer's name, unless the file says otherwise */
        static const char *const pres[] = {"roberta-bpe", "jina-v1-en", "jina-v2-code", "gpt-2"};

        maker_init(&maker);
        maker_string(&maker, KEY "model", "gpt2");
        maker_string(&maker, KEY "pre", pres[i / 2]);
        maker_strings(&maker, KEY "tokens", pieces, COUNT(pieces));
        maker_strings(&maker, KEY "merges", NULL, 0);
        maker_u32(&maker, KEY "bos_token_id", 1);
        maker_u32(&maker, KEY "eos_token_id", 2);
        maker_u32(&maker, KEY "seperator_token_id", 2);
        maker_bool(&maker, KEY "add_eos_token", 1);
        if (i % 2 == 1)
            maker_bool(&maker, KEY "add_sep_token", 0);
        vocab = made(&heap, &maker);
        assert_int_equal(rn_vocab_ends(vocab, false, ids), 1);
        assert_int_equal(rn_vocab_ends(vocab, true, ids), i / 2 < 3 && i % 2 == 0 ? 2 : 1);
        rn_vocab_free(vocab);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wordpiece),      cmocka_unit_test(test_wordpiece_against_definition),
        cmocka_unit_test(test_rwkv),           cmocka_unit_test(test_plamo_against_search),
        cmocka_unit_test(test_plamo),          cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_whitespace),     cmocka_unit_test(test_bound_of_lower_case),
        cmocka_unit_test(test_plamo3),         cmocka_unit_test(test_dna),
        cmocka_unit_test(test_refused_memory), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_interrupted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
