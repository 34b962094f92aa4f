/* What the tests of text/ share: see fixture.h. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/support/shared.h"

static void put(struct maker *maker, const void *bytes, size_t n)
{
    if (maker->n + n > maker->room) {
        maker->room = 2 * (maker->n + n);
        maker->bytes = realloc(maker->bytes, maker->room);
        assert_non_null(maker->bytes);
    }
    if (n > 0)
        memcpy(maker->bytes + maker->n, bytes, n);
    maker->n += n;
}

static void put_u32(struct maker *maker, uint32_t value)
{
    put(maker, &value, sizeof value);
}

static void put_text(struct maker *maker, const char *text)
{
    uint64_t n = strlen(text);

    put(maker, &n, sizeof n);
    put(maker, text, n);
}

static void put_key(struct maker *maker, const char *key, uint32_t type)
{
    put_text(maker, key);
    put_u32(maker, type);
    maker->n_entries++;
}

void maker_init(struct maker *maker)
{
    uint64_t zero = 0;

    memset(maker, 0, sizeof *maker);
    put(maker, "GGUF", 4);
    put_u32(maker, 3);
    put(maker, &zero, 8);
    put(maker, &zero, 8);
}

void maker_fini(struct maker *maker)
{
    free(maker->bytes);
}

void maker_string(struct maker *maker, const char *key, const char *value)
{
    put_key(maker, key, RN_GGUF_STRING);
    put_text(maker, value);
}

void maker_bool(struct maker *maker, const char *key, int value)
{
    unsigned char byte = value != 0;

    put_key(maker, key, RN_GGUF_BOOL);
    put(maker, &byte, 1);
}

void maker_u32(struct maker *maker, const char *key, uint32_t value)
{
    put_key(maker, key, RN_GGUF_U32);
    put_u32(maker, value);
}

void maker_array(struct maker *maker, const char *key, uint32_t item, const void *values, uint64_t n, size_t bytes)
{
    put_key(maker, key, RN_GGUF_ARRAY);
    put_u32(maker, item);
    put(maker, &n, sizeof n);
    put(maker, values, bytes);
}

void maker_strings(struct maker *maker, const char *key, const char *const *values, size_t n)
{
    size_t i;

    maker_array(maker, key, RN_GGUF_STRING, NULL, n, 0);
    for (i = 0; i < n; i++)
        put_text(maker, values[i]);
}

runnel_status maker_vocab(struct maker *maker, struct rn_heap *heap, struct rn_vocab **vocab, runnel_error *error)
{
    struct rn_gguf *gguf;
    runnel_status status;
    runnel_error local = {0};

    *vocab = NULL;
    if (error == NULL)
        error = &local;
    memset(error, 0, sizeof *error);
    memcpy(maker->bytes + 16, &maker->n_entries, 8);
    status = rn_gguf_parse(heap, maker->bytes, maker->n, "made", &gguf, error);
    if (status != RUNNEL_OK)
        return status;
    status = rn_vocab_new(heap, gguf, 0, vocab, error);
    assert_int_equal(status, error->status);
    assert_true((status == RUNNEL_OK) == (*vocab != NULL));
    rn_gguf_free(gguf);
    return status;
}

struct rn_vocab *made(struct rn_heap *heap, struct maker *maker)
{
    struct rn_vocab *vocab;
    runnel_error error;

    if (maker_vocab(maker, heap, &vocab, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    maker_fini(maker);
    return vocab;
}

const char *shared_path(const char *name)
{
    static char path[1024];

    return shared_find(name, path, sizeof path) ? path : NULL;
}

struct rn_vocab *vocab_of_file(struct rn_heap *heap, const char *path)
{
    struct rn_gguf *gguf;
    struct rn_vocab *vocab = NULL;
    runnel_error error = {0};

    if (rn_gguf_open(heap, path, &gguf, &error) != RUNNEL_OK ||
        rn_vocab_new(heap, gguf, 0, &vocab, &error) != RUNNEL_OK)
        fail_msg("%s: %s", path, error.message);
    rn_gguf_free(gguf);
    return vocab;
}

int32_t *tokenize(struct rn_heap *heap, const struct rn_vocab *vocab, const char *text, size_t n, uint32_t flags,
                  size_t *count)
{
    runnel_error error = {0};
    int32_t *tokens;
    size_t i;

    if (rn_tokenize(vocab, heap, text, n, flags, &tokens, count, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    assert_non_null(tokens);
    assert_true(*count <= rn_tokenize_bound(vocab, n));
    for (i = 0; i < *count; i++)
        assert_in_range(tokens[i], 0, rn_vocab_count(vocab) - 1);
    return tokens;
}

void check_ids(struct rn_heap *heap, const struct rn_vocab *vocab, const char *text, size_t n, uint32_t flags,
               const int32_t *expected)
{
    size_t count, i;
    int32_t *tokens = tokenize(heap, vocab, text, n, flags, &count);

    for (i = 0; i < count; i++) {
        if (tokens[i] != expected[i])
            fail_msg("\"%s\": token %zu is %d, not %d", text, i, tokens[i], expected[i]);
    }
    if (expected[count] != -2)
        fail_msg("\"%s\": %zu tokens, and %d is missing", text, count, expected[count]);
    rn_free(heap, tokens);
}

void check_round_trip(struct rn_heap *heap, const struct rn_vocab *vocab, const char *text, size_t n)
{
    size_t count, back;
    int32_t *tokens = tokenize(heap, vocab, text, n, 0, &count);
    char *decoded = malloc(n + 1);

    assert_non_null(decoded);
    rn_detokenize(vocab, tokens, count, false, decoded, n + 1, &back);
    assert_int_equal(back, n);
    if (n > 0)
        assert_memory_equal(decoded, text, n);
    free(decoded);
    rn_free(heap, tokens);
}

static size_t put_character(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

static uint32_t random_character(uint64_t *state)
{
    static const uint32_t spaces[] = {' ',  ' ', ' ',  ' ',  '\n',   '\n',   '\r',
                                      '\t', 0xb, 0x85, 0xa0, 0x2003, 0x2028, 0x3000};
    static const uint32_t bases[] = {0xc0,   0x370,  0x400,   0x590,   0x600,   0x900,   0x0e00, 0x1780, 0x1e00,
                                     0x2000, 0x2100, 0x2150,  0x2c00,  0x3000,  0x4e00,  0xa640, 0xac00, 0xd780,
                                     0xfb00, 0xff00, 0x10400, 0x118a0, 0x1e900, 0x1f600, 0x20000};
    uint64_t r = rn_splitmix64(state);
    uint32_t pick = (uint32_t)(r >> 8) & 0xffffff;

    switch (r % 10) {
    case 0:
    case 1:
    case 2:
        return 'a' + pick % 26;
    case 3:
        return '0' + pick % 10;
    case 4:
        return 0x20 + pick % 0x5f;
    case 5:
    case 6:
        return spaces[pick % (sizeof spaces / sizeof spaces[0])];
    case 7:
        return "'''sStTmMdDrReEvVlL.,!?$+<=>^~|`_-"[pick % 34];
    case 8:
        return bases[pick % (sizeof bases / sizeof bases[0])] + (pick >> 8) % 0x60;
    default:
        pick %= 0x110000 - 0x800;
        return pick < 0xd800 ? pick : pick + 0x800;
    }
}

size_t random_text(uint64_t *state, char *text, size_t most)
{
    size_t n = 0;
    size_t want = rn_splitmix64(state) % (most + 1);

    while (n + 4 <= want) {
        uint32_t c = random_character(state);
        uint32_t times = rn_splitmix64(state) % 8 == 0 ? 1 + (uint32_t)(rn_splitmix64(state) % 6) : 1;

        while (times-- > 0 && n + 4 <= want)
            n += put_character(c, text + n);
    }
    return n;
}
