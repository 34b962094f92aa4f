/* Unigram vocabularies made in memory: the best way to cut against a search through all of them, what becomes of
 * spaces, the character map, unknown characters and bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "fixture.h"
#include "text/charsmap.h"

static const char *const texts[] = {"<pad>", "</s>", "<unk>", BLOCK,      "a",         "b",  BLOCK "a",
                                    "ab",    "c",    "ba",    BLOCK "ab", BLOCK BLOCK, "{u}"};
static const int32_t types[] = {3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4};
static const float scores[] = {0, 0, 0, -3, -4, -5, -4.5f, -6, -7, -5.5f, -9, -8, 0};

enum { PAD_, EOS_, UNK_, SPACE_, A_, B_, SPACE_A, AB_, C_, BA_, SPACE_AB, SPACES_, USER_ };

static void put(struct maker *maker)
{
    maker_init(maker);
    maker_string(maker, KEY "model", "t5");
    maker_strings(maker, KEY "tokens", texts, COUNT(texts));
    maker_array(maker, KEY "token_type", RN_GGUF_I32, types, COUNT(types), sizeof types);
    maker_array(maker, KEY "scores", RN_GGUF_F32, scores, COUNT(scores), sizeof scores);
}

static void test_spaces(void **state)
{
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;

    (void)state;
    rn_heap_init(&heap, NULL);
    put(&maker);
    vocab = made(&heap, &maker);
    assert_true(rn_vocab_strips_first_space(vocab));
    assert_false(rn_vocab_add_bos(vocab));
    CHECK_IDS(vocab, "", 0, );
    CHECK_IDS(vocab, "", RUNNEL_TOKENIZE_BOS, EOS_, );
    CHECK_IDS(vocab, "a", RUNNEL_TOKENIZE_BOS, SPACE_A, EOS_, );
    CHECK_IDS(vocab, "   ", 0, );
    CHECK_IDS(vocab, "  a   b  ", 0, SPACE_A, SPACE_, B_, );
    CHECK_IDS(vocab, "a" BLOCK "a", 0, SPACE_A, SPACE_A, ); /* U+2581 is a space to the model */
    CHECK_IDS(vocab, "a</s>a", 0, SPACE_A, UNK_, A_, );     /* no control token comes of plain text */
    CHECK_IDS(vocab, "a</s>a", RUNNEL_TOKENIZE_SPECIAL, SPACE_A, EOS_, SPACE_A, );
    CHECK_IDS(vocab, "a{u}b", 0, SPACE_A, USER_, SPACE_, B_, );
    rn_vocab_free(vocab);

    put(&maker);
    maker_bool(&maker, KEY "remove_extra_whitespaces", 0);
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, "a", 0, SPACE_A, );
    CHECK_IDS(vocab, " ", 0, SPACE_, SPACE_, ); /* -6 against -8 */
    CHECK_IDS(vocab, "a  b", 0, SPACE_A, SPACE_, SPACE_, B_, );
    check_round_trip(&heap, vocab, "  a b ab  ", 10);
    rn_vocab_free(vocab);

    put(&maker);
    maker_bool(&maker, KEY "add_space_prefix", 0);
    vocab = made(&heap, &maker);
    assert_false(rn_vocab_strips_first_space(vocab));
    CHECK_IDS(vocab, " a  a ", 0, A_, SPACE_A, );
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_unknown(void **state)
{
    static const char *const more[] = {"<unk>", "a", "<0x78>", "<0xC3>", "<0xA9>"};
    static const int32_t more_types[] = {2, 1, 6, 6, 6};
    const char *with_bytes[258];
    char names[256][7];
    int32_t with_bytes_types[258];
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;
    int i;

    (void)state;
    rn_heap_init(&heap, NULL);
    put(&maker);
    vocab = made(&heap, &maker);
    /* a run of unknown characters is one token, over spaces that are none too; not over known ones */
    CHECK_IDS(vocab, "axyz", 0, SPACE_A, UNK_, );
    CHECK_IDS(vocab,
              "ax\xc3\xa9"
              "ay",
              0, SPACE_A, UNK_, A_, UNK_, );
    CHECK_IDS(vocab, "x x", 0, SPACE_, UNK_, SPACE_, UNK_, );
    rn_vocab_free(vocab);

    maker_init(&maker); /* only some bytes: not used */
    maker_string(&maker, KEY "model", "t5");
    maker_strings(&maker, KEY "tokens", more, COUNT(more));
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, more_types, COUNT(more_types), sizeof more_types);
    maker_u32(&maker, KEY "unknown_token_id", 0);
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, "x x", 0, 0, ); /* "▁" is unknown as well: one run */
    rn_vocab_free(vocab);

    for (i = 0; i < 256; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", (unsigned)i);
        with_bytes[i] = names[i];
        with_bytes_types[i] = 6;
    }
    with_bytes[256] = "a";
    with_bytes[257] = BLOCK;
    with_bytes_types[256] = with_bytes_types[257] = 1;
    maker_init(&maker);
    maker_string(&maker, KEY "model", "t5");
    maker_strings(&maker, KEY "tokens", with_bytes, 258);
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, with_bytes_types, 258, sizeof with_bytes_types);
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, "ax\xc3\xa9", 0, 257, 256, 'x', 0xc3, 0xa9, );
    check_round_trip(&heap, vocab, "a \xf0\x9f\x98\x80 a", 8);
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* The best sum over all ways to cut text[n], by trying each; scores are multiples of 1/8, so that sums are exact. */
static double best_plainly(const char *const *pieces, const float *piece_scores, size_t n_pieces, double unknown,
                           const char *text, size_t n)
{
    double best = -1e30;
    bool alone = false;
    size_t t;

    if (n == 0)
        return 0;
    for (t = 0; t < n_pieces; t++) {
        size_t length = strlen(pieces[t]);

        if (length > n || memcmp(pieces[t], text, length) != 0)
            continue;
        alone = alone || length == 1;
        best = fmax(best,
                    piece_scores[t] + best_plainly(pieces, piece_scores, n_pieces, unknown, text + length, n - length));
    }
    if (!alone)
        best = fmax(best, unknown + best_plainly(pieces, piece_scores, n_pieces, unknown, text + 1, n - 1));
    return best;
}

#define N_PIECES 13

/* All bytes as tokens, so that a character that is cut as unknown can be told from the others; then the pieces. */
static struct rn_vocab *random_vocab(struct rn_heap *heap, uint64_t *seed, const char *alphabet,
                                     char pieces[N_PIECES][8], float *piece_scores)
{
    static char names[256][7];
    const char *strings[256 + N_PIECES];
    int32_t all_types[256 + N_PIECES];
    float all_scores[256 + N_PIECES] = {0};
    struct maker maker;
    int i;

    for (i = 0; i < 256; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", (unsigned)i);
        strings[i] = names[i];
        all_types[i] = 6;
    }
    for (i = 0; i < N_PIECES; i++) {
        size_t length = 1 + rn_splitmix64(seed) % 4, j;

        for (j = 0; j < length; j++)
            pieces[i][j] = alphabet[rn_splitmix64(seed) % 2];
        pieces[i][length] = '\0';
        strings[256 + i] = pieces[i];
        all_types[256 + i] = 1;
        piece_scores[i] = -(float)(rn_splitmix64(seed) % 64) / 8;
        all_scores[256 + i] = piece_scores[i];
    }
    maker_init(&maker);
    maker_string(&maker, KEY "model", "t5");
    maker_strings(&maker, KEY "tokens", strings, COUNT(strings));
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, all_types, COUNT(all_types), sizeof all_types);
    maker_array(&maker, KEY "scores", RN_GGUF_F32, all_scores, COUNT(all_scores), sizeof all_scores);
    maker_bool(&maker, KEY "add_space_prefix", 0);
    maker_bool(&maker, KEY "remove_extra_whitespaces", 0);
    return made(heap, &maker);
}

/* Of equal pieces the first one's score counts: the others get it too. */
static void same_scores(char pieces[N_PIECES][8], float *piece_scores, double *least)
{
    int i, j;

    *least = 1e9;
    for (i = 0; i < N_PIECES; i++) {
        *least = fmin(*least, piece_scores[i]);
        for (j = 0; j < i; j++) {
            if (strcmp(pieces[i], pieces[j]) == 0)
                break;
        }
        piece_scores[i] = piece_scores[j];
    }
}

static void test_against_search(void **state)
{
    struct rn_heap heap;
    uint64_t seed = 8;
    int round, i;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (round = 0; round < 120; round++) {
        const char *alphabet = round % 2 ? "abx" : "a x"; /* "x" is no token */
        char pieces[N_PIECES][8];
        const char *views[N_PIECES];
        float piece_scores[N_PIECES];
        double least;
        struct rn_vocab *vocab = random_vocab(&heap, &seed, alphabet, pieces, piece_scores);

        same_scores(pieces, piece_scores, &least);
        for (i = 0; i < N_PIECES; i++)
            views[i] = pieces[i];
        for (i = 0; i < 60; i++) {
            char text[16];
            size_t n = 1 + rn_splitmix64(&seed) % 10, count, j;
            double sum = 0;
            int32_t *tokens;

            for (j = 0; j < n; j++)
                text[j] = alphabet[rn_splitmix64(&seed) % 8 == 0 ? 2 : rn_splitmix64(&seed) % 2];
            check_round_trip(&heap, vocab, text, n);
            tokens = tokenize(&heap, vocab, text, n, 0, &count);
            for (j = 0; j < count; j++)
                sum += tokens[j] < 256 ? least - 10 : piece_scores[tokens[j] - 256];
            assert_true(fabs(sum - best_plainly(views, piece_scores, N_PIECES, least - 10, text, n)) < 1e-9);
            rn_free(&heap, tokens);
        }
        rn_vocab_free(vocab);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Of equal sums the way whose last token begins first: what sentencepiece 0.2 and Hugging Face's tokenizers 0.23 give
 * for a model of these pieces and scores, whose sums are exact. */
static void test_ties(void **state)
{
    static const char *const pieces[] = {"<unk>", "<s>", "</s>", "a", "b", "ab", "aa", "aab", BLOCK, BLOCK "a", "ba"};
    static const int32_t piece_types[] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1};
    static const float piece_scores[] = {0, 0, 0, -1, -1, -1.5f, -1.5f, -2, -2, -3, -1.5f};
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;

    (void)state;
    rn_heap_init(&heap, NULL);
    maker_init(&maker);
    maker_string(&maker, KEY "model", "t5");
    maker_strings(&maker, KEY "tokens", pieces, COUNT(pieces));
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, piece_types, COUNT(pieces), sizeof piece_types);
    maker_array(&maker, KEY "scores", RN_GGUF_F32, piece_scores, COUNT(pieces), sizeof piece_scores);
    maker_u32(&maker, KEY "unknown_token_id", 0);
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, "aba", 0, 9, 10, ); /* -4.5, as " ", "ab", "a" */
    CHECK_IDS(vocab, "aaa", 0, 9, 6, );  /* -4.5, as " ", "aa", "a" */
    CHECK_IDS(vocab, "aaab", 0, 9, 7, ); /* -5, as " ", "aa", "ab" and " ", "a", "aab" */
    CHECK_IDS(vocab, "a a", 0, 9, 9, );  /* -6, as " ", "a", ... */
    CHECK_IDS(vocab, "baba", 0, 8, 10, 10, );
    CHECK_IDS(vocab, "abaa", 0, 8, 5, 6, );
    CHECK_IDS(vocab, "aaaa", 0, 8, 6, 6, );
    CHECK_IDS(vocab, "aabaab", 0, 8, 7, 7, );
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* ---- The character map -------------------------------------------------------------------- */

struct replacement {
    const char *key, *by;
};

struct blob {
    uint32_t units[4096];
    bool used[4096];
    char strings[256];
    size_t n_strings;
    char bytes[4 + sizeof(uint32_t) * 4096 + 256];
};

/* Is there room for the children of a node, of labels[n], around `base`? */
static bool fits(const struct blob *blob, uint32_t base, const uint8_t *labels, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++) {
        if (blob->used[base ^ labels[i]])
            return false;
    }
    return true;
}

/* The node at `at` of the keys from..to, sorted, that share `depth` bytes. */
static void place(struct blob *blob, const struct replacement *keys, size_t from, size_t to, size_t depth, uint32_t at)
{
    uint8_t labels[256] = {0};
    size_t n = 0, i, j;
    uint32_t base = 256;

    for (i = from; i < to; i++) {
        uint8_t label = (uint8_t)keys[i].key[depth]; /* 0: the key ends here */

        if (n == 0 || labels[n - 1] != label)
            labels[n++] = label;
    }
    while (!fits(blob, base, labels, n))
        base++;
    blob->units[at] |= (at ^ base) << 10 | (labels[0] == 0 ? 1u << 8 : 0);
    for (i = 0; i < n; i++)
        blob->used[base ^ labels[i]] = true;
    for (i = from; i < to; i = j) {
        uint8_t label = (uint8_t)keys[i].key[depth];

        for (j = i; j < to && (uint8_t)keys[j].key[depth] == label; j++)
            ;
        if (label == 0) {
            blob->units[base] = 1u << 31 | (uint32_t)blob->n_strings;
            strcpy(blob->strings + blob->n_strings, keys[i].by);
            blob->n_strings += strlen(keys[i].by) + 1;
        } else {
            blob->units[base ^ label] = label;
            place(blob, keys, i, j, depth + 1, base ^ label);
        }
    }
}

/* A map in the file's form; keys sorted by bytes. Returns its size. */
static size_t make_map(struct blob *blob, const struct replacement *keys, size_t n)
{
    uint32_t size = sizeof blob->units;

    memset(blob, 0, sizeof *blob);
    blob->used[0] = true;
    place(blob, keys, 0, n, 0, 0);
    memcpy(blob->bytes, &size, 4);
    memcpy(blob->bytes + 4, blob->units, sizeof blob->units);
    memcpy(blob->bytes + 4 + sizeof blob->units, blob->strings, blob->n_strings);
    return 4 + sizeof blob->units + blob->n_strings;
}

static const struct replacement keys[] = {
    {"\t", " "},              /* a space */
    {"b\xcc\x81", "c"},       /* two characters become one */
    {"q", ""},                /* nothing */
    {"\xe3\x80\x80", "  "},   /* two spaces */
    {"\xef\xac\x81", "ab b"}, /* one becomes several, a space among them */
    {"\xef\xbc", "b"},        /* a part of a character: never */
    {"\xef\xbc\xa1", "a"},    /* U+FF21 */
};

static void test_map(void **state)
{
    static struct blob blob;
    struct rn_heap heap;
    struct rn_charsmap map;
    struct rn_view by;
    struct maker maker;
    struct rn_vocab *vocab;
    size_t n = make_map(&blob, keys, COUNT(keys)), i;

    (void)state;
    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_charsmap_init(&map, &heap, blob.bytes, n, NULL), RUNNEL_OK);
    assert_int_equal(map.longest, 4);
    for (i = 0; i < COUNT(keys); i++) {
        size_t length = strlen(keys[i].key);

        if (strcmp(keys[i].key, "\xef\xbc") == 0)
            continue;
        assert_int_equal(rn_charsmap_match(&map, keys[i].key, length, &by), length);
        assert_int_equal(by.n, strlen(keys[i].by));
        assert_memory_equal(by.bytes, keys[i].by, by.n);
    }
    assert_int_equal(rn_charsmap_match(&map, "b", 1, &by), 0);
    assert_int_equal(rn_charsmap_match(&map, "\xef\xbc\xa2", 3, &by), 0);
    rn_charsmap_fini(&map, &heap);

    put(&maker);
    maker_array(&maker, KEY "precompiled_charsmap", RN_GGUF_U8, blob.bytes, n, n);
    vocab = made(&heap, &maker);
    CHECK_IDS(vocab, "\xef\xbc\xa1", 0, SPACE_A, );
    CHECK_IDS(vocab, "\tqa\t \xe3\x80\x80\tb\xcc\x81q", 0, SPACE_A, SPACE_, C_, );
    CHECK_IDS(vocab, "qqq", 0, ); /* nothing is left, and no space in front of it: SentencePiece trims it off */
    CHECK_IDS(vocab, "\xef\xac\x81", 0, SPACE_AB, SPACE_, B_, );
    CHECK_IDS(vocab, "\xef\xbc\xa2", 0, SPACE_, UNK_, );
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Any bytes as a map: an error, or places that are looked up within it. */
static void test_hostile_maps(void **state)
{
    static struct blob blob;
    struct rn_heap heap;
    struct rn_charsmap map;
    struct rn_view by;
    uint64_t seed = 2;
    size_t n = make_map(&blob, keys, COUNT(keys)), cut;
    int round, good = 0;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (cut = 0; cut < n; cut += cut < 16 || cut + 16 > n ? 1 : 997) { /* too short: never read behind */
        char *copy = malloc(cut + 1);

        assert_non_null(copy);
        memcpy(copy, blob.bytes, cut);
        if (rn_charsmap_init(&map, &heap, copy, cut, NULL) == RUNNEL_OK)
            rn_charsmap_match(&map, "\xef\xac\x81", 3, &by);
        rn_charsmap_fini(&map, &heap);
        free(copy);
    }
    for (round = 0; round < 3000; round++) {
        static struct blob hurt;
        char text[64];
        size_t length, at = 0, times = 1 + rn_splitmix64(&seed) % 40;

        hurt = blob;
        while (times-- > 0) /* in the part of the units that is in use */
            hurt.bytes[rn_splitmix64(&seed) % 8 == 0 ? n - 1 - rn_splitmix64(&seed) % 40
                                                     : rn_splitmix64(&seed) % 3000] = (char)rn_splitmix64(&seed);
        if (rn_charsmap_init(&map, &heap, hurt.bytes, n, NULL) == RUNNEL_OK) {
            length = random_text(&seed, text, sizeof text);
            good++;
            while (at < length) {
                size_t matched = rn_charsmap_match(&map, text + at, length - at, &by);

                assert_true(matched <= length - at);
                assert_true(matched == 0 || rn_utf8_valid(by.bytes, by.n));
                at += matched > 0 ? matched : 1;
            }
        }
        rn_charsmap_fini(&map, &heap);
    }
    assert_true(good > 100);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_bad_maps(void **state)
{
    static const char no_end[] = "\4\0\0\0"
                                 "\0\0\0\0"
                                 "ab";
    static const char beyond[] = "\xf0\0\0\0"
                                 "\0\0\0\0"
                                 "ab";
    static const char odd[] = "\5\0\0\0"
                              "\0\0\0\0"
                              "ab";
    static const char not_utf8[] = "\4\0\0\0"
                                   "\0\0\0\0"
                                   "\xff";
    static const char good[] = "\4\0\0\0"
                               "\0\0\0\0"
                               "ab";
    struct rn_heap heap;
    struct maker maker;
    struct rn_vocab *vocab;
    runnel_error error;
    const struct {
        const char *bytes;
        size_t n;
        runnel_status status;
    } cases[] = {{no_end, sizeof no_end - 1, RUNNEL_FORMAT},
                 {beyond, sizeof beyond, RUNNEL_FORMAT},
                 {odd, sizeof odd, RUNNEL_FORMAT},
                 {not_utf8, sizeof not_utf8, RUNNEL_FORMAT},
                 {good, 3, RUNNEL_FORMAT},
                 {good, 0, RUNNEL_OK},
                 {good, sizeof good, RUNNEL_OK}};
    size_t i;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (i = 0; i < COUNT(cases); i++) {
        put(&maker);
        maker_array(&maker, KEY "precompiled_charsmap", RN_GGUF_I8, cases[i].bytes, cases[i].n, cases[i].n);
        assert_int_equal(maker_vocab(&maker, &heap, &vocab, &error), cases[i].status);
        assert_true(cases[i].status == RUNNEL_OK || strstr(error.message, "precompiled_charsmap") != NULL);
        rn_vocab_free(vocab);
        maker_fini(&maker);
    }
    put(&maker);
    maker_u32(&maker, KEY "precompiled_charsmap", 7);
    assert_int_equal(maker_vocab(&maker, &heap, &vocab, &error), RUNNEL_FORMAT);
    maker_fini(&maker);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spaces),   cmocka_unit_test(test_unknown), cmocka_unit_test(test_against_search),
        cmocka_unit_test(test_ties),     cmocka_unit_test(test_map),     cmocka_unit_test(test_hostile_maps),
        cmocka_unit_test(test_bad_maps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
