/* BPE against its definition: random merge lists over bytes of characters of one, two and three bytes, whose tokens
 * may begin and end inside of one, against merging written in the plainest way. What is taken apart, looked up as a
 * whole or merged with a heap must not show. And the places of split_points.h against a look through all tokens. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "fixture.h"
#include "text/split/split_points.h"

#define N_MERGES 40
#define MAX_BYTES 12 /* of a token */
#define MAX_TEXT 160

static const char *const characters[] = {"a",           "b", "\xc3\xa9", "\xc3\xaa", "\xe4\xb8\x80", "\xe4\xb8\x81",
                                         "\xe4\xb9\x80"};

struct token {
    char bytes[MAX_BYTES];
    size_t n;
};

struct model {
    struct token tokens[256 + N_MERGES];
    int32_t types[256 + N_MERGES];
    size_t n_tokens;
    struct {
        int left, right, result;
    } merges[N_MERGES];
    size_t n_merges;
};

/* GPT-2's letter of a byte, as UTF-8; returns its bytes. */
static size_t letter(unsigned char byte, char *out)
{
    uint32_t c = byte, b;

    if (!((byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae)) {
        for (c = 0x100, b = 0; b < byte; b++)
            c += !((b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae);
    }
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

static int find(const struct model *model, const struct token *token)
{
    size_t i;

    for (i = 0; i < model->n_tokens; i++) {
        if (model->tokens[i].n == token->n && memcmp(model->tokens[i].bytes, token->bytes, token->n) == 0)
            return (int)i;
    }
    return -1;
}

/* Tokens that come of merging what a random text has side by side; each pair at most once. */
static void make_model(struct model *model, uint64_t *seed)
{
    size_t i;

    model->n_merges = 0;
    for (model->n_tokens = 0; model->n_tokens < 256; model->n_tokens++) {
        model->tokens[model->n_tokens].bytes[0] = (char)model->n_tokens;
        model->tokens[model->n_tokens].n = 1;
        model->types[model->n_tokens] = 1;
    }
    while (model->n_merges < N_MERGES) {
        char text[64];
        struct token token;
        size_t n = 0, from, left, right;
        int l, r;

        while (n < 40) {
            const char *c = characters[rn_splitmix64(seed) % COUNT(characters)];

            memcpy(text + n, c, strlen(c));
            n += strlen(c);
        }
        from = rn_splitmix64(seed) % 20;
        left = 1 + rn_splitmix64(seed) % (MAX_BYTES / 2);
        right = 1 + rn_splitmix64(seed) % (MAX_BYTES / 2);
        memcpy(token.bytes, text + from, token.n = left);
        l = find(model, &token);
        memcpy(token.bytes, text + from + left, token.n = right);
        r = find(model, &token);
        for (i = 0; i < model->n_merges && (model->merges[i].left != l || model->merges[i].right != r); i++)
            ;
        if (l < 0 || r < 0 || i < model->n_merges)
            continue;
        memcpy(token.bytes, text + from, token.n = left + right);
        model->merges[model->n_merges].left = l;
        model->merges[model->n_merges].right = r;
        model->merges[model->n_merges].result = find(model, &token);
        if (model->merges[model->n_merges].result < 0) {
            /* user-defined ones are found in the text first, but none of these is written there in that way */
            model->types[model->n_tokens] = rn_splitmix64(seed) % 8 == 0 && (token.bytes[0] & 0x80) ? 4 : 1;
            model->merges[model->n_merges].result = (int)model->n_tokens;
            model->tokens[model->n_tokens++] = token;
        }
        model->n_merges++;
    }
}

static struct rn_vocab *make_vocab(struct rn_heap *heap, const struct model *model, const char *pre)
{
    static char strings[256 + N_MERGES][2 * MAX_BYTES + 1], lines[N_MERGES][4 * MAX_BYTES + 2];
    const char *views[256 + N_MERGES], *line_views[N_MERGES];
    struct maker maker;
    size_t i, j;

    for (i = 0; i < model->n_tokens; i++) {
        size_t n = 0;

        for (j = 0; j < model->tokens[i].n; j++)
            n += letter((unsigned char)model->tokens[i].bytes[j], strings[i] + n);
        strings[i][n] = '\0';
        views[i] = strings[i];
    }
    for (i = 0; i < model->n_merges; i++) {
        strcpy(lines[i], strings[model->merges[i].left]);
        strcat(lines[i], " ");
        strcat(lines[i], strings[model->merges[i].right]);
        line_views[i] = lines[i];
    }
    maker_init(&maker);
    maker_string(&maker, KEY "model", "gpt2");
    maker_string(&maker, KEY "pre", pre);
    maker_strings(&maker, KEY "tokens", views, model->n_tokens);
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, model->types, model->n_tokens, 4 * model->n_tokens);
    maker_strings(&maker, KEY "merges", line_views, model->n_merges);
    return made(heap, &maker);
}

/* The first merge of the list that fits anywhere, at its leftmost place, until none fits. */
static size_t merge_plainly(const struct model *model, const char *text, size_t n, int32_t *ids)
{
    size_t i, m;

    for (i = 0; i < n; i++)
        ids[i] = (unsigned char)text[i];
    for (m = 0; m < model->n_merges; m++) {
        for (i = 0; i + 1 < n; i++) {
            if (ids[i] != model->merges[m].left || ids[i + 1] != model->merges[m].right)
                continue;
            ids[i] = model->merges[m].result;
            memmove(ids + i + 1, ids + i + 2, (n - i - 2) * sizeof *ids);
            n--;
            m = SIZE_MAX; /* from the first of the list again */
            break;
        }
    }
    return n;
}

static size_t make_text(uint64_t *seed, char *text, size_t most)
{
    size_t n = 0;

    while (n + 3 <= most) {
        const char *c = characters[rn_splitmix64(seed) % COUNT(characters)];

        memcpy(text + n, c, strlen(c));
        n += strlen(c);
    }
    return n;
}

static void test_against_definition(void **state)
{
    struct rn_heap heap;
    struct model model;
    uint64_t seed = 12;
    int round, i;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (round = 0; round < 300; round++) {
        bool whole = round % 3 == 0; /* words that are tokens are those */
        struct rn_vocab *vocab;

        make_model(&model, &seed);
        vocab = make_vocab(&heap, &model, whole ? "llama-bpe" : "bloom");
        for (i = 0; i < 60; i++) {
            char text[MAX_TEXT];
            int32_t want[MAX_TEXT], *tokens;
            struct token token;
            size_t n = make_text(&seed, text, 3 + rn_splitmix64(&seed) % (i % 2 ? 12 : MAX_TEXT - 3)), count, expected;

            expected = merge_plainly(&model, text, n, want);
            if (whole && n <= MAX_BYTES) {
                memcpy(token.bytes, text, token.n = n);
                if (find(&model, &token) >= 0 && model.types[find(&model, &token)] == 1) {
                    want[0] = find(&model, &token);
                    expected = 1;
                }
            }
            tokens = tokenize(&heap, vocab, text, n, 0, &count);
            assert_int_equal(count, expected);
            assert_memory_equal(tokens, want, count * sizeof *want);
            rn_free(&heap, tokens);
        }
        rn_vocab_free(vocab);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* No token lies across a cut; and where no token of whole characters could, there mostly is one. */
static void test_cuts(void **state)
{
    struct rn_heap heap;
    struct model model;
    struct rn_split_points cuts;
    uint64_t seed = 13;
    int round, n_cuts = 0, n_places = 0;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (round = 0; round < 2000; round++) {
        char text[MAX_TEXT];
        size_t n = make_text(&seed, text, MAX_TEXT), at, i, t;

        make_model(&model, &seed);
        assert_true(rn_split_points_init(&cuts, &heap, N_MERGES));
        for (t = 256; t < model.n_tokens; t++)
            rn_split_points_add(&cuts, (struct rn_view){model.tokens[t].bytes, model.tokens[t].n});
        for (at = rn_split_points_next(&cuts, text, 0, n); at < n; at = rn_split_points_next(&cuts, text, at, n)) {
            n_cuts++;
            assert_true(((unsigned char)text[at] & 0xc0) != 0x80);
            for (t = 256; t < model.n_tokens; t++) {
                for (i = at >= MAX_BYTES ? at - MAX_BYTES : 0; i < at; i++)
                    assert_false(i + model.tokens[t].n > at && i + model.tokens[t].n <= n &&
                                 memcmp(text + i, model.tokens[t].bytes, model.tokens[t].n) == 0);
            }
        }
        for (i = 1; i < n; i++)
            n_places += ((unsigned char)text[i] & 0xc0) != 0x80;
        rn_split_points_fini(&cuts, &heap);
    }
    assert_true(n_cuts > n_places / 20 && n_cuts < n_places);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_definition),
        cmocka_unit_test(test_cuts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
