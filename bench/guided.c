/* What a grammar costs a decoding stream: tokens per second of answers that a JSON Schema guides, against the same
 * requests without, in turn, with 1 and 16 streams. The schema is an array whose end is far away, so that both write as
 * many tokens. Only decoding counts: from a stream's first token to its end.
 *
 *   bench_guided MODEL [--streams N[,N...]] [--tokens N] [--rounds N] [--threads N] */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runnel.h"

#define MOST_STREAMS 64
#define MOST_ROUNDS 101

static const char schema[] =
    "{\"type\": \"array\", \"minItems\": 2000, \"items\": {\"type\": \"object\", \"properties\": {\"name\": {\"type\": "
    "\"string\", \"maxLength\": 20}, \"kind\": {\"enum\": [\"small\", \"large\", \"neither\"]}, \"n\": {\"type\": "
    "\"integer\", \"minimum\": 0, \"maximum\": 99999}, \"tags\": {\"type\": \"array\", \"items\": {\"type\": "
    "\"string\", \"pattern\": \"^[a-z]{1,8}$\"}, \"minItems\": 1, \"maxItems\": 4}}, \"required\": [\"name\", "
    "\"kind\", \"n\", \"tags\"], \"additionalProperties\": false}}";

struct arguments {
    const char *model;
    uint32_t streams[8], n_streams, tokens, rounds, threads;
};

struct ends {
    uint32_t n;
    double tokens_per_us; /* summed over streams */
};

static void on_event(void *user, const runnel_event *event)
{
    struct ends *ends = user;

    if (event->type < RUNNEL_EVENT_DONE)
        return;
    ends->n++;
    if (event->type != RUNNEL_EVENT_DONE || event->usage.completion_tokens < 2) {
        fprintf(stderr, "bench_guided: an answer ended with '%s' after %llu tokens\n", event->error,
                (unsigned long long)event->usage.completion_tokens);
        exit(1);
    }
    ends->tokens_per_us +=
        (double)(event->usage.completion_tokens - 1) / (double)(event->timings.end_us - event->timings.first_token_us);
}

/* Tokens per second of all streams together. */
static double run(runnel_engine *engine, runnel_model *model, const struct arguments *arguments, uint32_t n_streams,
                  const runnel_grammar *grammar)
{
    struct ends ends = {0};
    runnel_request request;
    runnel_error error;
    runnel_stream stream;

    runnel_request_default(&request);
    request.prompt = "A list of things, each with its name, its kind and a number:";
    request.prompt_bytes = strlen(request.prompt);
    request.max_tokens = arguments->tokens;
    request.sampling.temperature = 0.8f;
    request.ignore_eos = 1;
    request.on_event = on_event;
    request.user = &ends;
    request.grammar = grammar;
    for (uint32_t i = 0; i < n_streams; i++) {
        request.sampling.seed = i;
        if (runnel_generate(model, &request, &stream, &error) != RUNNEL_OK) {
            fprintf(stderr, "bench_guided: %s\n", error.message);
            exit(1);
        }
    }
    while (ends.n < n_streams)
        runnel_engine_dispatch(engine, 1000);
    return ends.tokens_per_us * 1e6;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(const double *values, uint32_t n)
{
    double sorted[MOST_ROUNDS];

    memcpy(sorted, values, n * sizeof sorted[0]);
    qsort(sorted, n, sizeof sorted[0], ascending);
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static void measure(runnel_engine *engine, runnel_model *model, const struct arguments *arguments, uint32_t n_streams)
{
    double plain[MOST_ROUNDS], guided[MOST_ROUNDS], share[MOST_ROUNDS];
    runnel_grammar grammar;

    runnel_grammar_default(&grammar);
    grammar.kind = RUNNEL_GRAMMAR_JSON_SCHEMA;
    grammar.text = schema;
    grammar.text_bytes = sizeof schema - 1;
    run(engine, model, arguments, n_streams, &grammar); /* what masks find out once */
    for (uint32_t i = 0; i < arguments->rounds; i++) {
        bool first = i % 2 == 0;

        if (first)
            plain[i] = run(engine, model, arguments, n_streams, NULL);
        guided[i] = run(engine, model, arguments, n_streams, &grammar);
        if (!first)
            plain[i] = run(engine, model, arguments, n_streams, NULL);
        share[i] = guided[i] / plain[i];
    }
    printf("%7u %13.1f %13.1f %12.4f %12.4f\n", n_streams, median(plain, arguments->rounds),
           median(guided, arguments->rounds), median(share, arguments->rounds),
           median(guided, arguments->rounds) / median(plain, arguments->rounds));
    fflush(stdout);
}

static bool read_arguments(int argc, char **argv, struct arguments *arguments)
{
    *arguments = (struct arguments){.streams = {1, 16}, .n_streams = 2, .tokens = 48, .rounds = 7};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";

        if (argv[i][0] != '-') {
            arguments->model = argv[i];
            continue;
        }
        i++;
        if (strcmp(argv[i - 1], "--tokens") == 0) {
            arguments->tokens = (uint32_t)atoi(value);
        } else if (strcmp(argv[i - 1], "--rounds") == 0) {
            arguments->rounds = (uint32_t)atoi(value);
        } else if (strcmp(argv[i - 1], "--threads") == 0) {
            arguments->threads = (uint32_t)atoi(value);
        } else if (strcmp(argv[i - 1], "--streams") == 0) {
            for (arguments->n_streams = 0; arguments->n_streams < 8 && *value != '\0'; arguments->n_streams++) {
                arguments->streams[arguments->n_streams] = (uint32_t)strtoul(value, (char **)&value, 10);
                value += *value == ',';
            }
        } else {
            return false;
        }
    }
    for (uint32_t i = 0; i < arguments->n_streams; i++)
        if (arguments->streams[i] == 0 || arguments->streams[i] > MOST_STREAMS)
            return false;
    return arguments->model != NULL && arguments->tokens >= 2 && arguments->rounds > 0 &&
           arguments->rounds <= MOST_ROUNDS;
}

int main(int argc, char **argv)
{
    struct arguments arguments;
    runnel_engine_options options;
    runnel_model_options model_options;
    runnel_engine *engine;
    runnel_model *model;
    runnel_error error = {0};

    if (!read_arguments(argc, argv, &arguments)) {
        fprintf(stderr, "usage: bench_guided MODEL [--streams N[,N...]] [--tokens N] [--rounds N] [--threads N]\n");
        return 2;
    }
    runnel_engine_options_default(&options);
    options.compute_threads = arguments.threads;
    runnel_model_options_default(&model_options);
    model_options.context_tokens = 512;
    if (runnel_engine_new(&options, &engine, &error) != RUNNEL_OK ||
        runnel_model_load(engine, arguments.model, &model_options, &model, &error) != RUNNEL_OK ||
        runnel_model_wait(model, -1, &error) != RUNNEL_OK) {
        fprintf(stderr, "bench_guided: %s\n", error.message);
        return 1;
    }
    printf("%s, %u tokens, %u rounds\nstreams  plain tok/s guided tok/s  median ratio  of medians\n", arguments.model,
           arguments.tokens, arguments.rounds);
    for (uint32_t i = 0; i < arguments.n_streams; i++)
        measure(engine, model, &arguments, arguments.streams[i]);
    runnel_engine_free(engine);
    return 0;
}
