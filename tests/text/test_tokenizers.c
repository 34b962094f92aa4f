/* Tokenizing against other programs: the vocabularies of oracles/tokenizers with llama.cpp's ids,
 * the greedy text of stories260K and the held-out text of runnel-tiny. Skipped without ../shared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "fixture.h"
#include "tests/base/whole_file.h"

#define PART "\n__ggml_vocab_test__\n"

#define N_VOCABULARIES 7

static const struct {
    const char *name;
    const char *lossy; /* bytes for which it has no token; NULL: loses more than that */
} vocabularies[N_VOCABULARIES] = {
    {"llama-spm", ""},     {"phi-3", ""},
    {"gpt-2", ""},         {"falcon", "\x03\x04\x05\x0b\x11\x13\x14\x15\x16\x17\x19\x1c\x1d\x1e\xf2"},
    {"starcoder", "\xf1"}, {"deepseek-llm", ""},
    {"bert-bge", NULL},
};

static struct rn_vocab *oracle_vocab(struct rn_heap *heap, const char *name)
{
    char path[256];

    snprintf(path, sizeof path, "oracles/tokenizers/ggml-vocab-%s.gguf", name);
    return vocab_of_file(heap, shared_path(path));
}

static char *oracle_text(const char *name, const char *ending)
{
    char path[256];
    size_t n;

    snprintf(path, sizeof path, "oracles/tokenizers/ggml-vocab-%s.gguf.%s", name, ending);
    return read_whole_new(shared_path(path), &n);
}

/* One text against one line of ids; returns the start of the next line. */
static char *check_line(struct rn_heap *heap, const struct rn_vocab *vocab, const char *name, const char *text,
                        size_t n, char *ids)
{
    size_t count, i;
    int32_t *tokens = tokenize(heap, vocab, text, n, 0, &count);
    char *end = ids + strcspn(ids, "\n");

    for (i = 0; i < count; i++) {
        char *after;
        long id = strtol(ids, &after, 10);

        if (after == ids || after > end || id != tokens[i])
            fail_msg("%s: \"%.*s\": token %zu is %d", name, (int)n, text, i, tokens[i]);
        ids = after;
    }
    assert_int_equal(strspn(ids, " "), end - ids);
    rn_free(heap, tokens);
    return *end == '\n' ? end + 1 : end;
}

static void test_oracles(void **state)
{
    struct rn_heap heap;
    size_t v;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (v = 0; v < N_VOCABULARIES; v++) {
        struct rn_vocab *vocab = oracle_vocab(&heap, vocabularies[v].name);
        char *inputs = oracle_text(vocabularies[v].name, "inp");
        char *outputs = oracle_text(vocabularies[v].name, "out");
        char *text = inputs, *ids = outputs;
        int lines = 0;

        while (*text != '\0') {
            char *part = strstr(text, PART);

            assert_non_null(part);
            ids = check_line(&heap, vocab, vocabularies[v].name, text, (size_t)(part - text), ids);
            text = part + strlen(PART);
            lines++;
        }
        assert_int_equal(lines, 46);
        assert_int_equal(*ids, '\0');
        free(inputs);
        free(outputs);
        rn_vocab_free(vocab);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Texts and their ids by other readings of the same rules: BOS, special tokens, what ends a text. */
static void test_special(void **state)
{
    struct rn_heap heap;
    struct rn_vocab *vocab;
    size_t count;
    int32_t *tokens;

    (void)state;
    rn_heap_init(&heap, NULL);
    vocab = oracle_vocab(&heap, "phi-3");
    tokens = tokenize(&heap, vocab, "<|user|>Hello<|end|>", 20, RUNNEL_TOKENIZE_SPECIAL | RUNNEL_TOKENIZE_BOS, &count);
    assert_int_equal(count, 4);
    assert_int_equal(tokens[0], 1);
    assert_int_equal(tokens[1], 32010);
    assert_int_equal(tokens[2], 15043);
    assert_int_equal(tokens[3], 32007);
    rn_free(&heap, tokens);
    tokens = tokenize(&heap, vocab, "<|user|>Hello<|end|>", 20, 0, &count);
    assert_true(count > 4);
    while (count-- > 0)
        assert_int_equal(rn_vocab_kind(vocab, tokens[count]), RN_TOKEN_NORMAL);
    rn_free(&heap, tokens);
    assert_true(rn_vocab_is_end(vocab, 32007));
    assert_true(rn_vocab_is_end(vocab, 32000));
    assert_false(rn_vocab_is_end(vocab, 32010));
    assert_int_equal(rn_vocab_find(vocab, "<|assistant|>", 13), 32001);
    assert_int_equal(rn_vocab_find(vocab, "<|assistant|", 12), -1);
    assert_int_equal(rn_vocab_piece(vocab, 32001, false).n, 0);
    assert_int_equal(rn_vocab_piece(vocab, 32001, true).n, 13);
    assert_true(rn_vocab_strips_first_space(vocab));
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Random texts come back whole, from every vocabulary. U+2581 means a space to SentencePiece, and
 * user-defined tokens put one behind them, so its texts are without them. */
static void test_round_trips(void **state)
{
    char text[400];
    struct rn_heap heap;
    size_t v;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (v = 0; v < N_VOCABULARIES; v++) {
        struct rn_vocab *vocab = oracle_vocab(&heap, vocabularies[v].name);
        uint64_t seed = v;
        int i;

        for (i = 0; i < 1500 && vocabularies[v].lossy != NULL; i++) {
            size_t n = random_text(&seed, text, sizeof text - 1);

            text[n] = '\0';
            if ((v >= 2 || strstr(text, "\xe2\x96\x81") == NULL) && strpbrk(text, vocabularies[v].lossy) == NULL)
                check_round_trip(&heap, vocab, text, n);
        }
        rn_vocab_free(vocab);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void check_file_round_trip(const char *model, const char *text_file)
{
    struct rn_heap heap;
    struct rn_vocab *vocab;
    size_t n;
    char *text;

    rn_heap_init(&heap, NULL);
    vocab = vocab_of_file(&heap, shared_path(model));
    text = read_whole_new(shared_path(text_file), &n);
    check_round_trip(&heap, vocab, text, n);
    free(text);
    rn_vocab_free(vocab);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_models(void **state)
{
    (void)state;
    check_file_round_trip("models/stories260K.gguf", "oracles/stories260K.greedy.txt");
    check_file_round_trip("models/runnel-tiny-Q8_0.gguf", "oracles/runnel-tiny.heldout.txt");
}

static double seconds_of(struct rn_heap *heap, const struct rn_vocab *vocab, const char *text, size_t n)
{
    struct timespec from, to;
    size_t count;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    rn_free(heap, tokenize(heap, vocab, text, n, 0, &count));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

/* Sixteen times the text takes 16 to 25 times as long at n log n, and 256 times at n squared: the bound lies
 * far from both. Processor time, and the smallest of at least three runs of each: where a machine slows down for a
 * while there are more, until both have had a good moment. At n squared no moment is good enough. */
static void check_time(struct rn_heap *heap, const struct rn_vocab *vocab, const char *what, const char *unit, size_t n)
{
    size_t bytes = strlen(unit);
    char *text = malloc(n * bytes);
    double part = 1e9, whole = 1e9;
    size_t i;

    assert_non_null(text);
    for (i = 0; i < n; i++)
        memcpy(text + i * bytes, unit, bytes);
    for (i = 0; i < 3 || (i < 50 && whole >= 64 * part + 0.005); i++) {
        double t = seconds_of(heap, vocab, text, n / 16 * bytes);

        part = t < part ? t : part;
        t = seconds_of(heap, vocab, text, n * bytes);
        whole = t < whole ? t : whole;
    }
    print_message("%-14s %8zu x \"%s\": %.4f s, a sixteenth of it %.5f s\n", what, n, unit[0] > ' ' ? unit : " ", whole,
                  part);
    assert_true(whole < 64 * part + 0.005);
    free(text);
}

/* A vocabulary of powers of "a" up to 2^9 letters, for the models that walk from every place. */
static struct rn_vocab *powers(struct rn_heap *heap, const char *model)
{
    static char strings[10][513];
    const char *views[10];
    float scores[10];
    struct maker maker;
    int i;

    for (i = 0; i < 10; i++) {
        memset(strings[i], 'a', (size_t)1 << i);
        views[i] = strings[i];
        scores[i] = -1 - (float)i;
    }
    maker_init(&maker);
    maker_string(&maker, KEY "model", model);
    maker_strings(&maker, KEY "tokens", views, 10);
    maker_array(&maker, KEY "scores", RN_GGUF_F32, scores, 10, sizeof scores);
    maker_u32(&maker, KEY "unknown_token_id", 0);
    return made(heap, &maker);
}

static void test_linear_time_of_models(void **state)
{
    static const char *const models[] = {"llama", "t5", "bert", "rwkv", "plamo2"};
    struct rn_heap heap;
    size_t m;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (m = 0; m < COUNT(models); m++) {
        struct rn_vocab *vocab = powers(&heap, models[m]);

        check_time(&heap, vocab, models[m], "a", 50000);
        check_time(&heap, vocab, models[m], "_", 50000);
        check_time(&heap, vocab, models[m], " ", 100000);
        check_time(&heap, vocab, models[m], "a ", 50000);
        rn_vocab_free(vocab);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_linear_time(void **state)
{
    static const char *const some[] = {"llama-spm", "gpt-2", "falcon", "deepseek-llm", "bert-bge"};
    struct rn_heap heap;
    size_t v;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (v = 0; v < sizeof some / sizeof some[0]; v++) {
        struct rn_vocab *vocab = oracle_vocab(&heap, some[v]);

        check_time(&heap, vocab, some[v], "a", 100000);
        check_time(&heap, vocab, some[v], "_", 50000);
        check_time(&heap, vocab, some[v], "\xe6\x88\x91", 40000);
        check_time(&heap, vocab, some[v], " ", 200000);
        check_time(&heap, vocab, some[v], " a", 40000);
        check_time(&heap, vocab, some[v], "\n \n", 40000);
        check_time(&heap, vocab, some[v], "12", 40000);
        rn_vocab_free(vocab);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracles),     cmocka_unit_test(test_special),
        cmocka_unit_test(test_round_trips), cmocka_unit_test(test_models),
        cmocka_unit_test(test_linear_time), cmocka_unit_test(test_linear_time_of_models),
    };

    if (shared_path("oracles/tokenizers/ggml-vocab-gpt-2.gguf") == NULL)
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
