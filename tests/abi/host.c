/* A host as it was written for one version of the headers: it is compiled against those of tests/abi/v1 and runs with
 * today's shared library. Behind everything that the library fills lies a canary.
 *
 *     host MODEL
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runnel.h"
#include "runnel_files.h"

#define CANARY 0xa5
#define CANARY_BYTES 256

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: %s is not so\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)
#define GOOD(call) CHECK((call) == RUNNEL_OK)

/* A thing with a canary behind it. */
#define GUARDED(type, name)                 \
    struct {                                \
        type it;                            \
        unsigned char canary[CANARY_BYTES]; \
    } name;                                 \
    memset(&name, CANARY, sizeof name)
#define UNHARMED(name) CHECK(unharmed(name.canary))

static int unharmed(const unsigned char *canary)
{
    for (int i = 0; i < CANARY_BYTES; i++)
        if (canary[i] != CANARY)
            return 0;
    return 1;
}

/* Both ways to get defaults: the macro, and the function of that name, which bindings may call. */
#define DEFAULTS(type)                                                \
    do {                                                              \
        GUARDED(runnel_##type, by_macro);                             \
        GUARDED(runnel_##type, by_function);                          \
        runnel_##type##_default(&by_macro.it);                        \
        (runnel_##type##_default)(&by_function.it);                   \
        UNHARMED(by_macro);                                           \
        UNHARMED(by_function);                                        \
        CHECK(by_macro.it.struct_size == sizeof(runnel_##type));      \
        CHECK(memcmp(&by_macro, &by_function, sizeof by_macro) == 0); \
    } while (0)

static void defaults(void)
{
    runnel_request request;

    DEFAULTS(engine_options);
    DEFAULTS(model_options);
    DEFAULTS(chat);
    DEFAULTS(request);
    DEFAULTS(embed_request);
    DEFAULTS(session_file);
    DEFAULTS(eagle_options);
    DEFAULTS(cache_purge_options);
    runnel_request_default(&request);
    CHECK(request.max_tokens == -1 && request.sampling.top_p == 1 && request.sampling.repetition_penalty == 1);
    CHECK(request.sampling.temperature == 0 && request.sampling.seed == 0 && request.cache_wait == RUNNEL_CACHE_WAIT);
    CHECK(request.on_event == NULL && request.priority == 0 && request.draft == RUNNEL_DRAFT_NONE);
}

static void results(runnel_engine *engine, runnel_model *model, const char *path)
{
    GUARDED(runnel_engine_stats, stats);
    GUARDED(runnel_metrics, metrics);
    GUARDED(runnel_model_info, info);
    GUARDED(runnel_file_info, file_info);
    GUARDED(runnel_metadata, metadata);
    GUARDED(runnel_tensor, tensor);
    runnel_file *file = NULL;
    size_t bytes = 0;

    stats.it.struct_size = sizeof stats.it;
    metrics.it.struct_size = sizeof metrics.it;
    info.it.struct_size = sizeof info.it;
    file_info.it.struct_size = sizeof file_info.it;
    metadata.it.struct_size = sizeof metadata.it;
    tensor.it.struct_size = sizeof tensor.it;
    GOOD(runnel_engine_get_stats(engine, &stats.it));
    GOOD(runnel_engine_metrics(engine, &metrics.it));
    GOOD(runnel_model_get_info(model, &info.it));
    GOOD(runnel_engine_prometheus(engine, NULL, 0, &bytes));
    GOOD(runnel_file_open(path, &file, NULL));
    GOOD(runnel_file_get_info(file, &file_info.it));
    GOOD(runnel_file_metadata(file, 0, &metadata.it));
    GOOD(runnel_file_tensor(file, 0, &tensor.it));
    UNHARMED(stats);
    UNHARMED(metrics);
    UNHARMED(info);
    UNHARMED(file_info);
    UNHARMED(metadata);
    UNHARMED(tensor);
    CHECK(stats.it.tokens == metrics.it.tokens && stats.it.tokens > 0 && metrics.it.request_s.count > 0);
    CHECK(info.it.vocab_tokens > 0 && info.it.kv_bytes > 0 && bytes > 1000);
    CHECK(file_info.it.n_tensors > 0 && metadata.it.key_bytes > 0 && tensor.it.dims[0] > 0 && tensor.it.bytes > 0);
    runnel_file_close(file);
}

struct heard {
    char text[4096];
    size_t n;
    runnel_event last;
    int ended;
};

static void hear(struct heard *heard, const runnel_event *event)
{
    if (event->type == RUNNEL_EVENT_TOKEN && heard->n + event->text_bytes < sizeof heard->text) {
        memcpy(heard->text + heard->n, event->text, event->text_bytes);
        heard->n += event->text_bytes;
    }
    if (event->type >= RUNNEL_EVENT_DONE) {
        heard->last = *event;
        heard->ended = 1;
    }
}

static void on_event(void *user, const runnel_event *event)
{
    CHECK(event->user == user);
    hear(user, event);
}

static runnel_request request_of(const char *prompt)
{
    runnel_request request;

    runnel_request_default(&request);
    request.prompt = prompt;
    request.prompt_bytes = strlen(prompt);
    request.max_tokens = 12;
    request.ignore_eos = 1;
    request.label = "host of the first version";
    return request;
}

static void by_callback(runnel_engine *engine, runnel_model *model, struct heard *heard)
{
    runnel_request request = request_of("Once upon a time");
    runnel_stream_info info = {.struct_size = sizeof info};
    runnel_stream stream;
    uint64_t cursor = 0;

    request.on_event = on_event;
    request.user = heard;
    GOOD(runnel_generate(model, &request, &stream, NULL));
    GOOD(runnel_engine_streams(engine, &cursor, &info));
    CHECK(info.stream.id == stream.id && strcmp(info.label, request.label) == 0);
    while (!heard->ended) {
        runnel_engine_wait(engine, 100);
        runnel_engine_dispatch(engine, 0);
    }
}

static void by_next(runnel_engine *engine, runnel_model *model, struct heard *heard, int by_function)
{
    runnel_request request = request_of("Once upon a time");
    runnel_stream stream;

    GOOD(runnel_generate(model, &request, &stream, NULL));
    while (!heard->ended) {
        GUARDED(runnel_event, event);
        if (by_function)
            GOOD((runnel_stream_next)(engine, stream, -1, &event.it));
        else
            GOOD(runnel_stream_next(engine, stream, -1, &event.it));
        UNHARMED(event);
        hear(heard, &event.it);
    }
}

static void by_take(runnel_engine *engine, runnel_model *model, struct heard *heard)
{
    runnel_request request = request_of("Once upon a time");
    const runnel_event *events[8];
    runnel_stream stream;

    request.on_event = on_event; /* does not run: the events are taken */
    GOOD(runnel_generate(model, &request, &stream, NULL));
    while (!heard->ended) {
        size_t n;

        runnel_engine_wait(engine, 100);
        n = runnel_engine_take(engine, events, 8);
        for (size_t i = 0; i < n; i++) {
            CHECK(events[i]->stream.id == stream.id);
            hear(heard, events[i]);
        }
    }
}

static void same(const struct heard *a, const struct heard *b)
{
    CHECK(a->n > 0 && a->n == b->n && memcmp(a->text, b->text, a->n) == 0);
    CHECK(a->last.type == RUNNEL_EVENT_DONE && b->last.type == RUNNEL_EVENT_DONE);
    CHECK(a->last.finish == RUNNEL_FINISH_LENGTH && a->last.usage.completion_tokens == 12);
    CHECK(b->last.usage.completion_tokens == 12 && b->last.timings.end_us > 0);
}

static void errors(runnel_model *model)
{
    GUARDED(runnel_error, error);
    runnel_request request = request_of("x");
    runnel_stream stream;

    request.sampling.top_p = NAN;
    CHECK(runnel_generate(model, &request, &stream, &error.it) == RUNNEL_INVALID);
    UNHARMED(error);
    CHECK(error.it.status == RUNNEL_INVALID && strstr(error.it.message, "top_p") != NULL);
}

int main(int argc, char **argv)
{
    static struct heard heard[4];
    runnel_engine_options options;
    runnel_model_options model_options;
    runnel_engine *engine = NULL;
    runnel_model *model = NULL;

    CHECK(argc == 2);
    defaults();
    runnel_engine_options_default(&options);
    options.max_streams = 8;
    GOOD(runnel_engine_new(&options, &engine, NULL));
    runnel_model_options_default(&model_options);
    model_options.context_tokens = 256;
    GOOD(runnel_model_load(engine, argv[1], &model_options, &model, NULL));
    GOOD(runnel_model_wait(model, -1, NULL));
    by_callback(engine, model, &heard[0]);
    by_next(engine, model, &heard[1], 0);
    by_next(engine, model, &heard[2], 1);
    by_take(engine, model, &heard[3]);
    for (int i = 1; i < 4; i++)
        same(&heard[0], &heard[i]);
    errors(model);
    results(engine, model, argv[1]);
    runnel_engine_free(engine);
    printf("a host of version %d.%d runs with %s\n", RUNNEL_VERSION_MAJOR, RUNNEL_VERSION_MINOR, runnel_version());
    return 0;
}
