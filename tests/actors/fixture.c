#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "runnel_observe.h"
#include "tests/support/shared.h"
#include "tests/support/patience.h"

#define SMALL_MODEL "models/runnel-tiny-draft-Q8_0.gguf"

void capture_event(void *user, const runnel_event *event)
{
    struct capture *c = user;

    c->n_events++;
    if (c->n_terminal > 0)
        c->n_after_terminal++;
    if (c->paused && event->type < RUNNEL_EVENT_DONE)
        c->n_while_paused++;
    c->n_progress += event->type == RUNNEL_EVENT_PROGRESS;
    c->n_logits += event->type == RUNNEL_EVENT_LOGITS;
    if (event->type == RUNNEL_EVENT_TOKEN) {
        c->text = realloc(c->text, c->text_bytes + event->text_bytes + 1);
        memcpy(c->text + c->text_bytes, event->text, event->text_bytes);
        c->text_bytes += event->text_bytes;
        c->text[c->text_bytes] = '\0';
        if (event->token >= 0) {
            c->tokens = realloc(c->tokens, (c->n_tokens + 1) * sizeof *c->tokens);
            c->tokens[c->n_tokens++] = event->token;
        }
    }
    if (event->type >= RUNNEL_EVENT_DONE) {
        c->n_terminal++;
        c->last = *event;
        strncpy(c->error, event->error, sizeof c->error - 1);
    }
    if (c->hook != NULL)
        c->hook(c, event);
}

const char *test_device(void)
{
    return getenv("RUNNEL_TEST_DEVICE");
}

/* $RUNNEL_TEST_DEVICE_LAYERS. */
static uint32_t test_device_layers(void)
{
    const char *layers = getenv("RUNNEL_TEST_DEVICE_LAYERS");

    return layers == NULL ? 0 : (uint32_t)strtoul(layers, NULL, 10);
}

/* $RUNNEL_TEST_DEVICE_EXPERTS. */
static uint64_t test_device_experts(void)
{
    const char *bytes = getenv("RUNNEL_TEST_DEVICE_EXPERTS");

    return bytes == NULL ? 0 : strtoull(bytes, NULL, 10);
}

uint64_t shared_kv_bytes(void)
{
    return test_device() != NULL ? 16 << 20 : 0;
}

void use_test_device(runnel_engine_options *options)
{
    if (options->device_library == NULL)
        options->device_library = getenv("RUNNEL_TEST_LIBRARY");
}

const char *quick_model(void)
{
    static char path[300];
    const char *named = getenv("RUNNEL_TEST_MODEL");

    if (named != NULL)
        return named;
    return UNLESS_EMULATED(false, true) && shared_is_there() && shared_find(SMALL_MODEL, path, sizeof path)
               ? path
               : BUNDLED_MODEL;
}

void capture_clear(struct capture *capture)
{
    free(capture->text);
    free(capture->tokens);
    memset(capture, 0, sizeof *capture);
}

runnel_engine *start_engine(const runnel_engine_options *options)
{
    runnel_engine_options ours;
    runnel_engine *engine = NULL;
    runnel_error error = {0};

    if (options == NULL)
        runnel_engine_options_default(&ours);
    else
        ours = *options;
    use_test_device(&ours);
    if (runnel_engine_new(&ours, &engine, &error) != RUNNEL_OK)
        fail_msg("engine: %s", error.message);
    return engine;
}

runnel_model *load_model(runnel_engine *engine, const char *path, const runnel_model_options *options)
{
    runnel_model_options ours;
    runnel_model *model = NULL;
    runnel_error error = {0};

    if (options == NULL)
        runnel_model_options_default(&ours);
    else
        ours = *options;
    if (ours.device == NULL) {
        ours.device = test_device();
        ours.device_layers = test_device_layers();
        ours.device_expert_bytes = test_device_experts();
    }
    if (runnel_model_load(engine, path, &ours, &model, &error) != RUNNEL_OK ||
        runnel_model_wait(model, -1, &error) != RUNNEL_OK)
        fail_msg("%s: %s", path, error.message);
    return model;
}

runnel_request make_request(const char *prompt, int64_t max_tokens, struct capture *capture)
{
    runnel_request request;

    runnel_request_default(&request);
    request.prompt = prompt;
    request.prompt_bytes = prompt != NULL ? strlen(prompt) : 0;
    request.max_tokens = max_tokens;
    request.on_event = capture != NULL ? capture_event : NULL;
    request.user = capture;
    return request;
}

void run_until_end(runnel_engine *engine, struct capture *capture)
{
    const time_t began = patience_now();

    while (capture->n_terminal == 0) {
        runnel_engine_wait(engine, 100);
        runnel_engine_dispatch(engine, 0);
        if (patience_now() - began > PATIENCE_S)
            fail_msg("no terminal event after ten minutes; %zu events", capture->n_events);
    }
}

runnel_event_type run_request(runnel_engine *engine, runnel_model *model, const runnel_request *request)
{
    runnel_stream stream;
    runnel_error error = {0};

    if (runnel_generate(model, request, &stream, &error) != RUNNEL_OK)
        fail_msg("generate: %s", error.message);
    run_until_end(engine, request->user);
    return ((struct capture *)request->user)->last.type;
}

void assert_quiet(runnel_engine *engine, uint64_t blocks_kept)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};
    struct patience patience = {0};

    do {
        runnel_engine_dispatch(engine, 0);
        runnel_engine_get_stats(engine, &stats);
        if (stats.streams == 0 && stats.messages == 0 && stats.blocks_used == blocks_kept)
            return;
    } while (patience_left(&patience));
    fail_msg("left: %llu streams, %llu messages, %llu blocks (expected %llu)", (unsigned long long)stats.streams,
             (unsigned long long)stats.messages, (unsigned long long)stats.blocks_used,
             (unsigned long long)blocks_kept);
}

void await_models(runnel_engine *engine, uint64_t n)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};
    struct patience patience = {0};

    do {
        runnel_engine_dispatch(engine, 0);
        runnel_engine_get_stats(engine, &stats);
        if (stats.models == n)
            return;
    } while (patience_left(&patience));
    fail_msg("%llu models instead of %llu", (unsigned long long)stats.models, (unsigned long long)n);
}

/* The case of this name, of n; NULL: none has it. */
static const struct CMUnitTest *find_case(const struct CMUnitTest *tests, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(tests[i].name, name) == 0)
            return &tests[i];
    return NULL;
}

/* With $RUNNEL_TEST_MAY_SKIP: a test's device is not there, and it is said why. */
static bool is_without_device(void)
{
    runnel_device_info info = {.struct_size = sizeof info};
    runnel_engine *engine;

    if (getenv("RUNNEL_TEST_MAY_SKIP") == NULL || test_device() == NULL)
        return false;
    engine = start_engine(NULL);
    assert_int_equal(runnel_engine_device(engine, test_device(), &info, NULL), RUNNEL_OK);
    runnel_engine_free(engine);
    if (info.why[0] != '\0')
        printf("skipped: %s\n", info.why);
    return info.why[0] != '\0';
}

int run_cases_of(const struct CMUnitTest *tests, size_t n, int (*setup)(void **state), int (*teardown)(void **state))
{
    const char *names = getenv("RUNNEL_TEST_CASES");
    struct CMUnitTest chosen[32];
    char text[512], *rest, *name;
    size_t n_chosen = 0;

    if ((test_device() != NULL && !shared_find(SMALL_MODEL, text, sizeof text)) || is_without_device())
        return 77; /* what ctest calls skipped */
    if (names == NULL)
        return _cmocka_run_group_tests("tests", tests, n, setup, teardown);
    snprintf(text, sizeof text, "%s", names);
    for (name = strtok_r(text, " ", &rest); name != NULL; name = strtok_r(NULL, " ", &rest)) {
        const struct CMUnitTest *found = find_case(tests, n, name);

        if (found == NULL || n_chosen == sizeof chosen / sizeof chosen[0]) {
            fprintf(stderr, "there is no case %s, or there are too many\n", name);
            return 1;
        }
        chosen[n_chosen++] = *found;
    }
    return _cmocka_run_group_tests("chosen tests", chosen, n_chosen, setup, teardown);
}
