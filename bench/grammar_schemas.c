/* Grammars of JSON Schemas over a collection of schemas with instances, as MaskBench has (bench/maskbench.py makes the
 * file and runs other engines over it):
 *
 *     bench_grammar_schemas CASES VOCABULARY.gguf [--list] [--any-order]
 *
 *     S name           a schema: its name, and on the next line its text
 *     T 1 17 4 260     an instance of it, valid (1) or not (0), as tokens
 *
 *     ready     from the text to an automaton with empty tables, microseconds of processor time; the refused apart
 *     mask      microseconds for each token of all instances: the mask and accepting the token, with tables that are
 *               empty at the beginning of each schema
 *     verdicts  an instance is accepted when each of its tokens is in the mask and the text may end behind the last
 *
 * --list prints what is refused, what takes more than SLOW_US to make ready, and instances with the wrong verdict.
 * --any-order: members of objects may stand in any order. White space is free; what one_of_as_any_of allows is not
 * used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "sampling/grammar/matcher.h"
#include "sampling/grammar/schema/schema.h"

#define MOST_TIMES (1u << 23)
#define SLOW_US 10000

struct times {
    float *us; /* [MOST_TIMES] */
    uint32_t n;
};

struct bench {
    struct rn_heap heap;
    struct rn_vocab *vocab;
    struct rn_token_trie *trie;
    uint64_t *mask;
    struct times masks, ready, refused;
    struct rn_automaton *automaton; /* of the schema; NULL: refused */
    struct rn_masks *tables;
    struct rn_matcher *matcher;
    uint32_t verdicts[2][2]; /* [valid][accepted] */
    uint32_t untold[2];      /* instances of refused schemas */
    uint32_t stopped;        /* by a limit of the masks */
    bool list, any_order;
    char name[256];
};

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void add(struct times *times, double us)
{
    if (times->n < MOST_TIMES)
        times->us[times->n++] = (float)us;
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return x < y ? -1 : x > y;
}

static void report(const char *name, struct times *times)
{
    static const double shares[] = {0.5, 0.75, 0.9, 0.95, 0.99, 0.999};
    double sum = 0;

    if (times->n == 0)
        return;
    qsort(times->us, times->n, sizeof *times->us, ascending);
    for (uint32_t i = 0; i < times->n; i++)
        sum += (double)times->us[i];
    printf("%-10s %9u %9.1f", name, times->n, sum / times->n);
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++)
        printf(" %9.1f", (double)times->us[(uint32_t)(shares[i] * (times->n - 1))]);
    printf(" %9.1f\n", (double)times->us[times->n - 1]);
}

static runnel_status read_schema(struct bench *b, const char *text, size_t n, runnel_error *error)
{
    const struct rn_schema_options options = {.free_white = true, .any_order = b->any_order};
    struct rn_grammar *grammar = rn_grammar_new(&b->heap, NULL, b->vocab);
    runnel_status status;
    uint32_t root;

    RN_CHECK(grammar != NULL);
    root = rn_grammar_rule(grammar, NULL, 0);
    rn_grammar_define(grammar, root, rn_grammar_schema(grammar, text, n, &options));
    status = rn_grammar_finish(grammar, root, error);
    if (status == RUNNEL_OK)
        status = rn_automaton_new(&b->heap, grammar, &b->automaton, error);
    rn_grammar_free(grammar);
    return status;
}

static void end_schema(struct bench *b)
{
    rn_matcher_free(b->matcher);
    rn_masks_free(b->tables);
    rn_automaton_free(b->automaton);
    b->matcher = NULL;
    b->tables = NULL;
    b->automaton = NULL;
}

static void schema(struct bench *b, const char *text, size_t n)
{
    double began, us;
    runnel_error error = {0};
    runnel_status status;

    end_schema(b);
    began = now_us();
    status = read_schema(b, text, n, &error);
    if (status == RUNNEL_OK) {
        b->tables = rn_masks_new(&b->heap, b->automaton, b->trie, NULL);
        RN_CHECK(b->tables != NULL);
        status = rn_matcher_new(b->tables, 1, &b->matcher, &error);
    }
    us = now_us() - began;
    add(status == RUNNEL_OK ? &b->ready : &b->refused, us);
    if (b->list && status == RUNNEL_OK && us > SLOW_US)
        printf("ready after %.0f us, %u states: %s\n", us, b->automaton->n_states, b->name);
    if (status != RUNNEL_OK) {
        end_schema(b);
        if (b->list)
            printf("refused %s: %s\n", b->name, error.message);
    }
}

/* One token more; false: it is not allowed, or a limit was reached. */
static bool step(struct bench *b, int32_t token, bool *stopped)
{
    double began = now_us();
    bool there = false;
    runnel_status status = rn_matcher_mask(b->matcher, b->mask, NULL);

    if (status == RUNNEL_OK) {
        there = (b->mask[token / 64] >> token % 64 & 1) != 0;
        status = rn_matcher_accept(b->matcher, token, NULL);
        add(&b->masks, now_us() - began);
        RN_CHECK(status == RUNNEL_BUSY || there == (status == RUNNEL_OK));
    }
    *stopped = status == RUNNEL_BUSY;
    return status == RUNNEL_OK && there;
}

static void instance(struct bench *b, char *line)
{
    bool valid = strtol(line, &line, 10) != 0, accepted = true, stopped = false;
    uint32_t n = 0;
    char *end;

    if (b->matcher == NULL) {
        b->untold[valid]++;
        return;
    }
    RN_CHECK(rn_matcher_reset(b->matcher, NULL) == RUNNEL_OK);
    for (;;) {
        long token = strtol(line, &end, 10);

        if (end == line)
            break;
        RN_CHECK(token >= 0 && (uint32_t)token < b->trie->n_vocab);
        line = end;
        accepted = step(b, (int32_t)token, &stopped);
        if (!accepted)
            break;
        n++;
    }
    accepted = accepted && rn_matcher_can_end(b->matcher);
    b->stopped += stopped;
    b->verdicts[valid][accepted]++;
    if (b->list && accepted != valid)
        printf("%s behind %u tokens: %s\n",
               stopped ? "stopped"
               : valid ? "rejected though valid"
                       : "accepted though invalid",
               n, b->name);
}

static void read_cases(struct bench *b, FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;

    while ((n = getline(&line, &room, file)) > 0) {
        line[--n] = '\0';
        if (line[0] == 'S') {
            snprintf(b->name, sizeof b->name, "%s", line + 2);
            n = getline(&line, &room, file);
            RN_CHECK(n > 0);
            schema(b, line, (size_t)n - 1);
        } else {
            instance(b, line + 1);
        }
    }
    free(line);
    end_schema(b);
}

static void init(struct bench *b, const char *path)
{
    runnel_error error = {0};
    struct rn_gguf *gguf;

    rn_heap_init(&b->heap, NULL);
    if (rn_gguf_open(&b->heap, path, &gguf, &error) != RUNNEL_OK ||
        rn_vocab_new(&b->heap, gguf, 0, &b->vocab, &error) != RUNNEL_OK) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    rn_gguf_free(gguf);
    b->trie = rn_token_trie_new(&b->heap, b->vocab);
    RN_CHECK(b->trie != NULL);
    b->mask = malloc(b->trie->words * sizeof *b->mask);
    b->masks.us = malloc(MOST_TIMES * sizeof *b->masks.us);
    b->ready.us = malloc(MOST_TIMES * sizeof *b->ready.us);
    b->refused.us = malloc(MOST_TIMES * sizeof *b->refused.us);
    RN_CHECK(b->mask != NULL && b->masks.us != NULL && b->ready.us != NULL && b->refused.us != NULL);
}

int main(int argc, char **argv)
{
    struct bench b = {.list = false};
    FILE *file = argc > 2 ? fopen(argv[1], "r") : NULL;

    for (int i = 3; i < argc; i++) {
        b.list |= strcmp(argv[i], "--list") == 0;
        b.any_order |= strcmp(argv[i], "--any-order") == 0;
    }
    if (file == NULL) {
        fprintf(stderr, "bench_grammar_schemas CASES VOCABULARY.gguf [--list] [--any-order]\n");
        return 1;
    }
    init(&b, argv[2]);
    read_cases(&b, file);
    fclose(file);
    printf("%-10s %9s %9s %9s %9s %9s %9s %9s %9s %9s\n", "us", "n", "mean", "p50", "p75", "p90", "p95", "p99", "p99.9",
           "longest");
    report("ready", &b.ready);
    report("refused", &b.refused);
    report("mask", &b.masks);
    printf("valid: %u accepted, %u rejected, %u of refused schemas\n", b.verdicts[1][1], b.verdicts[1][0], b.untold[1]);
    printf("invalid: %u rejected, %u accepted, %u of refused schemas\n", b.verdicts[0][0], b.verdicts[0][1],
           b.untold[0]);
    printf("%u instances stopped by a limit\n", b.stopped);
    free(b.mask);
    free(b.masks.us);
    free(b.ready.us);
    free(b.refused.us);
    rn_token_trie_free(b.trie);
    rn_vocab_free(b.vocab);
    return 0;
}
