/* How often a draft model draws what the model draws: behind each place of answers to beginnings of held-out text the
 * drafter, loaded as a model of its own, draws one token with the coin of that place.
 *
 *   bench_agreement MODEL DRAFT TEXT [--temperature T] [--seeds N] [--engine MOST]
 *
 * Of each line of TEXT with at least 20 words the first 6, 18 and 40 words are prompts, of each answer the first 60
 * tokens count. Places and those where both draw the same, in all and for each length of prompt.
 *
 * With --engine the engine drafts with DRAFT, at most MOST guesses in a pass: how many were verified, how many of them
 * were held against the model's token (those before them being right), and how many were right; runners-up apart. How
 * many guesses it makes depends on what they cost on the machine, not how often they are right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runnel.h"

enum { LENGTHS = 3, TOKENS = 60 };
static const size_t lengths[LENGTHS] = {6, 18, 40};

struct sum {
    unsigned long long answers, places, same; /* with --engine, places: guesses that were compared */
    unsigned long long drafted;               /* with --engine alone */
};

/* The bytes of the line's first n words; 0: it has fewer. */
static size_t words(const char *line, size_t n)
{
    const char *at = line;

    for (size_t i = 0; i < n; i++)
        if ((at = strchr(at + (i > 0), ' ')) == NULL)
            return 0;
    return (size_t)(at - line);
}

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_agreement: %s: %s\n", what, why);
    exit(1);
}

/* draft: NULL, or what guesses for it. */
static runnel_model *load(runnel_engine *engine, const char *path, const char *draft)
{
    runnel_model *model;
    runnel_model_options options;
    runnel_error error = {0};

    runnel_model_options_default(&options);
    options.draft_path = draft;
    if (runnel_model_load(engine, path, &options, &model, &error) != RUNNEL_OK ||
        runnel_model_wait(model, -1, &error) != RUNNEL_OK)
        fail(path, error.message);
    return model;
}

struct draw {
    runnel_engine *engine;
    float temperature;
    uint64_t seed;
    uint32_t draft_max; /* 0: nobody guesses */
};

/* Up to n tokens behind tokens[at], into them. Returns how many. */
static size_t draw(const struct draw *how, runnel_model *model, const int32_t *tokens, size_t at, int32_t *out,
                   size_t n)
{
    runnel_request request;
    runnel_stream stream;
    runnel_event event = {0};
    runnel_error error = {0};
    size_t n_out = 0;

    runnel_request_default(&request);
    request.tokens = tokens;
    request.n_tokens = at;
    request.max_tokens = (int64_t)n;
    request.ignore_eos = 1;
    request.sampling.temperature = how->temperature;
    request.sampling.seed = how->seed;
    request.draft = how->draft_max > 0 ? RUNNEL_DRAFT_MODEL : RUNNEL_DRAFT_NONE;
    request.draft_max = how->draft_max;
    if (runnel_generate(model, &request, &stream, &error) != RUNNEL_OK)
        fail("generate", error.message);
    while (event.type < RUNNEL_EVENT_DONE) {
        if (runnel_stream_next(how->engine, stream, -1, &event) != RUNNEL_OK)
            fail("stream", "ended");
        if (event.type == RUNNEL_EVENT_TOKEN && event.token >= 0 && n_out < n)
            out[n_out++] = event.token;
    }
    return n_out;
}

static runnel_metrics metrics_of(runnel_engine *engine)
{
    runnel_metrics metrics = {.struct_size = sizeof metrics};

    if (runnel_engine_metrics(engine, &metrics) != RUNNEL_OK)
        fail("metrics", "none");
    return metrics;
}

static void add_drafts(struct sum *sum, const runnel_metrics *before, const runnel_metrics *after)
{
    sum->drafted += after->drafted - before->drafted;
    sum->places += after->compared - before->compared;
    sum->same += (after->accepted - after->branched_right) - (before->accepted - before->branched_right);
}

/* drafter: NULL where the engine drafts. */
static void ask(const struct draw *how, runnel_model *model, runnel_model *drafter, const char *prompt, size_t bytes,
                struct sum *sum)
{
    int32_t tokens[4096 + TOKENS], guess;
    runnel_metrics before = metrics_of(how->engine), after;
    size_t n = 0, n_drawn;

    if (runnel_tokenize(model, prompt, bytes, RUNNEL_TOKENIZE_BOS, tokens, 4096, &n) != RUNNEL_OK || n == 0)
        fail("tokenize", "not text");
    n_drawn = draw(how, model, tokens, n, tokens + n, TOKENS);
    sum->answers++;
    after = metrics_of(how->engine);
    if (drafter == NULL) {
        add_drafts(sum, &before, &after);
        return;
    }
    for (size_t i = 0; i < n_drawn; i++)
        if (draw(how, drafter, tokens, n + i, &guess, 1) == 1) {
            sum->places++;
            sum->same += guess == tokens[n + i];
        }
}

static void print(const char *name, const struct sum *sum)
{
    printf("%-6s %8llu %8llu %8llu %8llu   %.4f\n", name, sum->answers, sum->drafted, sum->places, sum->same,
           sum->places > 0 ? (double)sum->same / (double)sum->places : 0.0);
}

int main(int argc, char **argv)
{
    struct draw how = {.temperature = 0.8f};
    runnel_model *model, *drafter;
    struct sum sums[LENGTHS] = {{0}}, all = {0};
    uint64_t n_seeds = 1;
    char line[4096];
    FILE *text = argc > 3 ? fopen(argv[3], "r") : NULL;

    for (int i = 4; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--temperature") == 0)
            how.temperature = strtof(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--engine") == 0)
            how.draft_max = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else
            n_seeds = strtoull(argv[i + 1], NULL, 10);
    if (text == NULL || argc % 2 != 0)
        fail("usage", "MODEL DRAFT TEXT [--temperature T] [--seeds N] [--engine MOST]");
    if (runnel_engine_new(NULL, &how.engine, NULL) != RUNNEL_OK)
        fail("engine", "no memory");
    model = load(how.engine, argv[1], how.draft_max > 0 ? argv[2] : NULL);
    drafter = how.draft_max > 0 ? NULL : load(how.engine, argv[2], NULL);
    while (fgets(line, sizeof line, text) != NULL)
        for (size_t l = 0; l < LENGTHS && words(line, 20) > 0; l++)
            for (uint64_t seed = 0; words(line, lengths[l]) > 0 && seed < n_seeds; seed++, how.seed++)
                ask(&how, model, drafter, line, words(line, lengths[l]), &sums[l]);
    printf("%-6s %8s %8s %8s %8s   %s\n", "words", "answers", "drafted", how.draft_max > 0 ? "compared" : "places",
           "same", "share");
    for (size_t l = 0; l < LENGTHS; l++) {
        char name[16];

        snprintf(name, sizeof name, "%zu", lengths[l]);
        print(name, &sums[l]);
        all.answers += sums[l].answers;
        all.drafted += sums[l].drafted;
        all.places += sums[l].places;
        all.same += sums[l].same;
    }
    print("all", &all);
    fclose(text);
    runnel_engine_free(how.engine);
    return 0;
}
