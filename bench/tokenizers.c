/* How fast texts become tokens, and whether that stays linear where a text is made to hurt.
 *
 *     bench_tokenizers VOCABULARY.gguf [TEXT_FILE...]
 *
 * For each file: megabytes per second of one thread, the best of several runs of processor time. Then texts that
 * repeat one thing: seconds for n and for 2n bytes, and their ratio, which n log n keeps below 2.5. Some are made from
 * the vocabulary: its longest token without its last character, and the longest special one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "text/vocab.h"

#define RUNS 5
#define HOSTILE_BYTES 1000000

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of the best run; *count gets the tokens. */
static double measure(struct rn_heap *heap, const struct rn_vocab *vocab, const char *text, size_t n, int runs,
                      size_t *count)
{
    double best = 1e9;

    while (runs-- > 0) {
        runnel_error error = {0};
        int32_t *tokens;
        double from = now(), took;

        if (rn_tokenize(vocab, heap, text, n, 0, &tokens, count, &error) != RUNNEL_OK) {
            fprintf(stderr, "%s\n", error.message);
            exit(1);
        }
        took = now() - from;
        rn_free(heap, tokens);
        best = took < best ? took : best;
    }
    return best;
}

static char *read_file(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    char *bytes;
    long size;

    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0) {
        perror(path);
        exit(1);
    }
    rewind(file);
    bytes = malloc((size_t)size + 1);
    if (bytes == NULL || fread(bytes, 1, (size_t)size, file) != (size_t)size) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    fclose(file);
    *n = (size_t)size;
    return bytes;
}

static void measure_file(struct rn_heap *heap, const struct rn_vocab *vocab, const char *path)
{
    size_t n, count;
    char *text = read_file(path, &n);
    double seconds = measure(heap, vocab, text, n, RUNS, &count);

    printf("%-40s %8.2f MB  %8.2f MB/s  %6.2f bytes per token\n", path, (double)n / 1e6, (double)n / seconds / 1e6,
           (double)n / (double)(count > 0 ? count : 1));
    free(text);
}

static void measure_hostile(struct rn_heap *heap, const struct rn_vocab *vocab, const char *name, const char *unit,
                            size_t bytes, size_t total)
{
    size_t times = total / bytes, i, count;
    char *text = malloc(2 * times * bytes + 1);
    double one, two;

    if (text == NULL)
        exit(1);
    for (i = 0; i < 2 * times; i++)
        memcpy(text + i * bytes, unit, bytes);
    one = measure(heap, vocab, text, times * bytes, RUNS, &count);
    two = measure(heap, vocab, text, 2 * times * bytes, RUNS, &count);
    printf("%-28s %8zu bytes  %9.5f s, twice that %9.5f s  ratio %5.2f  %7.2f MB/s\n", name, times * bytes, one, two,
           two / one, 2e-6 * (double)(times * bytes) / two);
    free(text);
}

/* The longest token that is UTF-8 (a special one: of its names), cut by its last character. */
static size_t longest(const struct rn_vocab *vocab, bool special, char *out, size_t capacity)
{
    size_t best = 0;
    uint32_t i;

    for (i = 0; i < rn_vocab_count(vocab); i++) {
        struct rn_view piece = rn_vocab_piece(vocab, (int32_t)i, true);
        bool is_special =
            rn_vocab_kind(vocab, (int32_t)i) == RN_TOKEN_CONTROL || rn_vocab_kind(vocab, (int32_t)i) == RN_TOKEN_USER;

        if (is_special != special || piece.n <= best || piece.n > capacity || !rn_utf8_valid(piece.bytes, piece.n))
            continue;
        best = piece.n;
        memcpy(out, piece.bytes, best);
    }
    while (best > 0 && ((unsigned char)out[--best] & 0xc0) == 0x80)
        ;
    return best;
}

static void measure_all_hostile(struct rn_heap *heap, const struct rn_vocab *vocab)
{
    static const struct {
        const char *name, *unit;
        size_t total;
    } texts[] = {
        {"a a a (one letter)", "a", HOSTILE_BYTES},
        {"underscores", "_", 50000},
        {"one Chinese line", "\xe6\x88\x91\xe4\xbb\xac\xe5\x9c\xa8\xe7\xba\xbf", 120000},
        {"spaces", " ", HOSTILE_BYTES},
        {"newlines", "\n", HOSTILE_BYTES},
        {"space and newline", " \n", HOSTILE_BYTES},
        {"digits", "1", HOSTILE_BYTES},
        {"capitals", "A", HOSTILE_BYTES},
        {"apostrophes", "'", HOSTILE_BYTES},
        {"combining marks", "\xcc\x81", HOSTILE_BYTES},
        {"emoji", "\xf0\x9f\x91\xa9\xe2\x80\x8d", HOSTILE_BYTES},
        {"Hangul", "\xea\xb0\x80", HOSTILE_BYTES},
        {"words", " the of and to in", HOSTILE_BYTES},
        {"letters and digits", "a1", HOSTILE_BYTES},
        {"less-than signs", "<", HOSTILE_BYTES},
        {"<|im_star", "<|im_star", HOSTILE_BYTES},
    };
    char unit[4096];
    size_t i, n;

    for (i = 0; i < sizeof texts / sizeof texts[0]; i++)
        measure_hostile(heap, vocab, texts[i].name, texts[i].unit, strlen(texts[i].unit), texts[i].total);
    if ((n = longest(vocab, false, unit, sizeof unit)) > 0)
        measure_hostile(heap, vocab, "most of the longest token", unit, n, HOSTILE_BYTES);
    if ((n = longest(vocab, true, unit, sizeof unit)) > 0)
        measure_hostile(heap, vocab, "most of the longest special", unit, n, HOSTILE_BYTES);
}

int main(int argc, char **argv)
{
    struct rn_heap heap;
    struct rn_gguf *gguf;
    struct rn_vocab *vocab;
    runnel_error error = {0};
    double from;
    int i;

    if (argc < 2) {
        fprintf(stderr, "usage: %s VOCABULARY.gguf [TEXT_FILE...]\n", argv[0]);
        return 2;
    }
    rn_heap_init(&heap, NULL);
    from = now();
    if (rn_gguf_open(&heap, argv[1], &gguf, &error) != RUNNEL_OK ||
        rn_vocab_new(&heap, gguf, 0, &vocab, &error) != RUNNEL_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    rn_gguf_free(gguf);
    printf("%s: %u tokens, loaded in %.3f s, %.1f MB\n", argv[1], rn_vocab_count(vocab), now() - from,
           (double)rn_heap_bytes(&heap) / 1e6);
    for (i = 2; i < argc; i++)
        measure_file(&heap, vocab, argv[i]);
    measure_all_hostile(&heap, vocab);
    rn_vocab_free(vocab);
    return 0;
}
