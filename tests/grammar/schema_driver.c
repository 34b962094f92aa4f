/* Texts of schemas, for schema_random.py: each line of the input is a schema; the answer is one line with "refused" and
 * the sentence, or some lines with a text of its grammar each; then an empty line. Texts are chosen byte by byte, or
 * with a model's file token by token: random logits, the mask of the vocabulary, and a sampler of random parameters.
 *
 *     schema_driver SEED TEXTS [MODEL.gguf] < schemas
 *
 * Or which texts the grammars have: behind each schema stand lines with a text each and an empty line; the answer is a
 * line with "refused" and the sentence, or with 1 or 0 for each text.
 *
 *     schema_driver judge < schemas and texts */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "sampling/grammar/matcher.h"
#include "sampling/sampler.h"
#include "tests/grammar/schema_judge.h"
#include "tests/text/fixture.h"

#define LINE_BYTES 65536u
#define TEXT_BYTES 400u
#define LONG_TEXT 60u /* from here on it looks for an end */
#define TOKENS_MOST 300u

static uint64_t rng;

static double share(void)
{
    return (double)(rn_splitmix64(&rng) >> 11) / (double)(UINT64_C(1) << 53);
}

/* ---- Byte by byte ---- */

/* Which of the bytes that may come next; -1: the end. */
static int choose(struct judge *judge, uint32_t set, uint32_t length)
{
    uint8_t bytes[256], ends[8];
    uint32_t n = 0, n_ends = 0, byte;

    for (byte = 0; byte < 256; byte++) {
        if (rn_stacks_read(&judge->stacks, set, (uint8_t)byte) == RN_STACKS_DEAD)
            continue;
        bytes[n++] = (uint8_t)byte;
        if (byte != 0 && strchr("\"]},:", (int)byte) != NULL)
            ends[n_ends++] = (uint8_t)byte;
    }
    if (judge->stacks.sets[set].bottom && (n == 0 || length > LONG_TEXT || rn_splitmix64(&rng) % 4 == 0))
        return -1;
    if (n_ends > 0 && (length > LONG_TEXT || rn_splitmix64(&rng) % 3 == 0))
        return ends[n_ends - 1 - (length > LONG_TEXT ? 0 : rn_splitmix64(&rng) % n_ends)];
    return bytes[rn_splitmix64(&rng) % n];
}

static void one_text(struct judge *judge)
{
    char text[TEXT_BYTES];
    uint32_t set, n = 0;

    judge->stacks.steps = 100000000;
    for (set = rn_stacks_start(&judge->stacks); n < TEXT_BYTES; n++) {
        int byte = choose(judge, set, n);

        if (byte < 0) {
            printf("%.*s\n", (int)n, text);
            return;
        }
        text[n] = (char)byte;
        set = rn_stacks_read(&judge->stacks, set, (uint8_t)byte);
    }
}

/* ---- Token by token ---- */

struct speaker {
    struct rn_heap *heap;
    struct rn_vocab *vocab;
    struct rn_token_trie *trie;
    struct rn_sampler_scratch *scratch;
    uint32_t n_vocab;
    float *logits, *endings; /* [n_vocab] endings: how much a token closes */
    uint64_t *mask;
};

static void speaker_init(struct speaker *s, struct rn_heap *heap, const char *path)
{
    *s = (struct speaker){.heap = heap, .vocab = vocab_of_file(heap, path)};
    s->trie = rn_token_trie_new(heap, s->vocab);
    s->n_vocab = rn_vocab_count(s->vocab);
    s->scratch = rn_sampler_scratch_new(heap, s->n_vocab);
    s->logits = calloc(s->n_vocab, sizeof *s->logits);
    s->endings = calloc(s->n_vocab, sizeof *s->endings);
    s->mask = calloc(s->trie->words, sizeof *s->mask);
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        struct rn_view bytes = rn_token_bytes(s->trie, (int32_t)i);

        for (size_t k = 0; k < bytes.n; k++)
            s->endings[i] += bytes.bytes[k] == '}' || bytes.bytes[k] == ']' ? 2.0f : bytes.bytes[k] == '"' ? 1.0f : 0;
        s->endings[i] = rn_token_is_end(s->trie, (int32_t)i) ? 3 : s->endings[i] - 0.01f * (float)bytes.n;
    }
}

static void speaker_fini(struct speaker *s)
{
    free(s->mask);
    free(s->endings);
    free(s->logits);
    rn_sampler_scratch_free(s->scratch);
    rn_token_trie_free(s->trie);
    rn_vocab_free(s->vocab);
}

static bool now_and_then(void)
{
    return rn_splitmix64(&rng) % 4 == 0;
}

/* Each parameter off, or anywhere in its range. */
static void random_sampling(runnel_sampling *p, runnel_samplers *more)
{
    *p = (runnel_sampling){.top_p = 1, .repetition_penalty = 1, .seed = rn_splitmix64(&rng), .samplers = more};
    runnel_samplers_default(more);
    p->temperature = now_and_then() ? 0 : (float)(share() * 3);
    p->top_k = now_and_then() ? 1 + (uint32_t)(share() * 60) : 0;
    p->top_p = now_and_then() ? 0.05f + (float)(share() * 0.95) : 1;
    p->min_p = now_and_then() ? (float)(share() * 0.5) : 0;
    p->repetition_penalty = now_and_then() ? 0.5f + (float)share() * 1.5f : 1;
    p->frequency_penalty = now_and_then() ? (float)(share() * 2 - 0.5) : 0;
    p->presence_penalty = now_and_then() ? (float)(share() * 2 - 0.5) : 0;
    more->dry_multiplier = now_and_then() ? (float)share() : 0;
    more->top_n_sigma = now_and_then() ? (float)(share() * 3) : 0;
    more->typical_p = now_and_then() ? 0.1f + (float)(share() * 0.9) : 1;
    more->xtc_probability = now_and_then() ? (float)share() : 0;
    more->temperature_range = now_and_then() ? (float)(share() * p->temperature) : 0;
    more->min_tokens = now_and_then() ? (uint32_t)(share() * 20) : 0;
    if (now_and_then())
        more->mirostat = 1 + (uint32_t)(rn_splitmix64(&rng) % 2);
    else if (now_and_then())
        more->adaptive_target = (float)(share() * 0.9);
}

/* The longer the text, the more it closes. */
static void random_logits(struct speaker *s, uint32_t length)
{
    float closing = length > LONG_TEXT ? 8 : (float)(rn_splitmix64(&rng) % 3), spread = 1 + (float)share() * 3;

    for (uint32_t i = 0; i < s->n_vocab; i++)
        s->logits[i] = spread * (float)(share() + share() - 1) + closing * s->endings[i];
}

static bool wrong(const char *what, const char *sentence)
{
    fprintf(stderr, "schema_driver: %s: %s\n", what, sentence);
    return false;
}

/* Draws until the text ends. False: something that must not be. */
static bool speak(struct speaker *s, struct rn_matcher *m, struct rn_sampler *sampler)
{
    char text[TEXT_BYTES * 4];
    size_t n = 0;
    uint32_t length;

    for (length = 0; length < TOKENS_MOST; length++) {
        struct rn_mask mask = {.words = s->mask};
        struct rn_pick pick = {.token = -1};
        struct rn_view piece;
        bool empty;

        if (rn_matcher_mask(m, s->mask, NULL) != RUNNEL_OK)
            return wrong("mask", "a limit");
        mask.may_end = rn_matcher_allows_ends_alone(m, s->mask, &empty);
        if (empty)
            return wrong("mask", "empty");
        random_logits(s, length);
        if (rn_sampler_pick_masked(sampler, (struct rn_path){0}, &mask, s->scratch, s->logits, length, false, 0,
                                   &pick) != RUNNEL_OK ||
            rn_matcher_accept(m, pick.token, NULL) != RUNNEL_OK)
            return wrong("pick", "refused");
        if (rn_matcher_has_ended(m)) {
            printf("%.*s\n", (int)n, text);
            return true;
        }
        rn_sampler_take(sampler, &pick);
        piece = rn_vocab_piece(s->vocab, pick.token, false);
        if (piece.n + n > sizeof text)
            return true;
        memcpy(text + n, piece.bytes, piece.n);
        n += piece.n;
    }
    return true; /* cut off: nothing is said of it */
}

static bool one_spoken(struct speaker *s, struct judge *judge)
{
    runnel_sampling params;
    runnel_samplers more;
    runnel_error error = {0};
    struct rn_masks *masks = rn_masks_new(s->heap, judge->automaton, s->trie, NULL);
    struct rn_matcher *m;
    struct rn_sampler *sampler;
    bool good;

    random_sampling(&params, &more);
    if (rn_sampling_check(&params, s->n_vocab, &error) != RUNNEL_OK)
        return wrong("sampling", error.message);
    if (rn_matcher_new(masks, 0, &m, &error) != RUNNEL_OK)
        return wrong("matcher", error.message);
    sampler = rn_sampler_new(s->heap, &params, s->n_vocab, 2 * TOKENS_MOST);
    rn_sampler_use_vocab(sampler, s->vocab);
    if (!rn_sampler_keep_from_ending(sampler, s->trie->ends, 0, s->trie->n_ends, more.min_tokens))
        return wrong("sampler", "no memory");
    rn_sampler_begin_answer(sampler);
    good = speak(s, m, sampler);
    rn_sampler_free(sampler);
    rn_matcher_free(m);
    rn_masks_free(masks);
    return good;
}

/* ---- All ---- */

static bool one_schema(struct speaker *speaker, struct rn_heap *heap, const char *line, int texts)
{
    runnel_error error = {0};
    struct judge judge;
    runnel_status status = judge_init(&judge, heap, line, strlen(line), NULL, &error);
    bool good = true;

    if (status != RUNNEL_OK)
        printf("refused %s\n", error.message);
    for (int i = 0; good && status == RUNNEL_OK && judge.automaton != NULL && i < texts; i++) {
        if (speaker != NULL)
            good = one_spoken(speaker, &judge);
        else
            one_text(&judge);
    }
    judge_fini(&judge);
    printf("\n");
    return good;
}

/* A line without its end; false: an empty one, or none. */
static bool read_line(char *line)
{
    if (fgets(line, LINE_BYTES, stdin) == NULL)
        return false;
    line[strcspn(line, "\n")] = '\0';
    return *line != '\0';
}

static void judge_texts(struct rn_heap *heap, char *line)
{
    while (read_line(line)) {
        runnel_error error = {0};
        struct judge judge;
        runnel_status status = judge_init(&judge, heap, line, strlen(line), NULL, &error);

        if (status != RUNNEL_OK)
            printf("refused %s", error.message);
        while (read_line(line))
            if (status == RUNNEL_OK)
                putchar(judge_accepts(&judge, line, strlen(line)) ? '1' : '0');
        judge_fini(&judge);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    char *line = malloc(LINE_BYTES);
    struct speaker speaker;
    struct rn_heap heap;
    bool good = true;

    rn_heap_init(&heap, NULL);
    if (argc == 2 && strcmp(argv[1], "judge") == 0) {
        judge_texts(&heap, line);
        free(line);
        return rn_heap_blocks(&heap) != 0;
    }
    rng = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    if (argc > 3)
        speaker_init(&speaker, &heap, argv[3]);
    while (good && fgets(line, LINE_BYTES, stdin) != NULL) {
        good = one_schema(argc > 3 ? &speaker : NULL, &heap, line, argc > 2 ? atoi(argv[2]) : 4);
        if (!good)
            fprintf(stderr, "%s", line);
    }
    if (argc > 3)
        speaker_fini(&speaker);
    free(line);
    return !good || rn_heap_blocks(&heap) != 0;
}
