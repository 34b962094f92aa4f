/* A SIMD level of one's choice, device "cpu:LEVEL": each of the machine's answers as the reference does, two of them
 * beside each other in one engine; a guessing model with threads of its own has its model's; what is known of one
 * before a model is on it; a level that this machine does not have; and keys and values that go from one level to
 * another in a session's file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "cpu/fast.h"
#include "cpu/kernels.h"
#include "runnel_files.h"
#include "tests/actors/fixture.h"

enum { TOKENS = UNLESS_SANITIZED(12, 6) }; /* before the first for which two scores are close: inputs are in bytes */

static const char prompt[] = "Once upon a time, there was a little";

/* "cpu:" and the name of the i-th level, which lives until the next call. NULL: there is none. */
static const char *device_of(uint32_t i)
{
    const struct rn_level *level = rn_level_at(i);
    static char name[32];

    if (level == NULL)
        return NULL;
    snprintf(name, sizeof name, "cpu:%s", level->name);
    return name;
}

static runnel_model *load_on(runnel_engine *engine, const char *device, const char *draft)
{
    runnel_model_options options;

    runnel_model_options_default(&options);
    options.device = device;
    options.draft_path = draft;
    options.draft_threads = draft != NULL;
    return load_model(engine, BUNDLED_MODEL, &options);
}

/* The last word of a backend's layout says whose bits these are. */
static void assert_level(const struct rn_backend *backend, const char *name)
{
    assert_string_equal(((const struct rn_fast *)backend)->level->name, name);
    assert_string_equal(strrchr(backend->ops->layout(backend), ' ') + 1, rn_level_named(name)->bits);
}

static void test_each(void **state)
{
    struct capture want = {0}, got = {0};
    runnel_request request = make_request(prompt, TOKENS, &want);
    runnel_engine *engine = start_engine(NULL);
    runnel_model *reference = load_on(engine, "reference", NULL), *model;

    (void)state;
    assert_int_equal(run_request(engine, reference, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(want.n_tokens, TOKENS);
    for (uint32_t i = 0; device_of(i) != NULL; i++) {
        model = load_on(engine, device_of(i), NULL);
        assert_level(model->parts.backend, rn_level_at(i)->name);
        request = make_request(prompt, TOKENS, &got);
        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
        assert_int_equal(got.n_tokens, TOKENS);
        assert_memory_equal(got.tokens, want.tokens, TOKENS * sizeof *got.tokens);
        capture_clear(&got);
        runnel_model_free(model);
    }
    runnel_model_free(reference);
    capture_clear(&want);
    runnel_engine_free(engine);
}

/* Steps of both go through the same threads in turn. */
static void test_beside(void **state)
{
    struct capture best = {0}, plain = {0};
    runnel_engine *engine = start_engine(NULL);
    runnel_model *models[] = {load_on(engine, NULL, NULL), load_on(engine, "cpu:c", NULL)};
    runnel_request requests[] = {make_request(prompt, TOKENS, &best), make_request(prompt, TOKENS, &plain)};
    runnel_stream stream;

    (void)state;
    assert_level(models[0]->parts.backend, rn_level_best()->name);
    assert_level(models[1]->parts.backend, "c");
    for (int i = 0; i < 2; i++)
        assert_int_equal(runnel_generate(models[i], &requests[i], &stream, NULL), RUNNEL_OK);
    run_until_end(engine, &best);
    run_until_end(engine, &plain);
    assert_int_equal(best.n_tokens, TOKENS);
    assert_int_equal(plain.n_tokens, TOKENS);
    assert_memory_equal(best.tokens, plain.tokens, TOKENS * sizeof *best.tokens);
    capture_clear(&best);
    capture_clear(&plain);
    for (int i = 0; i < 2; i++)
        runnel_model_free(models[i]);
    runnel_engine_free(engine);
}

static void test_drafter(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_on(engine, "cpu:c", BUNDLED_MODEL);

    (void)state;
    assert_true(model->parts.drafter.concurrent);
    assert_ptr_not_equal(model->parts.drafter.device, model->parts.device);
    assert_level(model->parts.drafter.backend, "c");
    runnel_model_free(model);
    runnel_engine_free(engine);
}

static void test_look(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_device_info info;
    char end[64];
    uint32_t i, n;

    (void)state;
    for (n = 0; device_of(n) != NULL; n++)
        continue;
    for (i = 0; i < n; i++) {
        info = (runnel_device_info){.struct_size = sizeof info};
        assert_int_equal(runnel_engine_device(engine, device_of(i), &info, NULL), RUNNEL_OK);
        assert_int_equal(info.n_devices, n);
        assert_int_equal(info.index, i);
        snprintf(end, sizeof end, ", instruction set %s", rn_level_at(i)->name);
        assert_true(strlen(info.name) > strlen(end));
        assert_string_equal(info.name + strlen(info.name) - strlen(end), end);
        assert_memory_equal(info.kernels, rn_level_best()->name, strlen(rn_level_best()->name));
        assert_non_null(strstr(info.kernels, rn_level_at(i)->name));
        assert_string_equal(info.why, "");
    }
    info = (runnel_device_info){.struct_size = sizeof info};
    assert_int_equal(runnel_engine_device(engine, "reference", &info, NULL), RUNNEL_OK);
    assert_int_equal(info.n_devices, 1);
    runnel_engine_free(engine);
}

static void test_none(void **state)
{
    static const char *const names[] = {"cpu:", "cpu:mmx", "cpu:0", "cpu:1", "cpu:C", "cpu:c ", "cpu:cc"};
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options;
    runnel_device_info info;
    runnel_model *model;
    runnel_error error;

    (void)state;
    runnel_model_options_default(&options);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        options.device = names[i];
        assert_int_equal(runnel_model_load(engine, BUNDLED_MODEL, &options, &model, &error), RUNNEL_UNSUPPORTED);
        assert_non_null(strstr(error.message, names[i]));
        assert_non_null(strstr(error.message, "is not there: this machine has the instruction sets "));
        assert_non_null(strstr(error.message, rn_level_best()->name));
        info = (runnel_device_info){.struct_size = sizeof info};
        assert_int_equal(runnel_engine_device(engine, names[i], &info, &error), RUNNEL_UNSUPPORTED);
    }
    await_models(engine, 0);
    runnel_engine_free(engine);
}

/* ---- Keys and values go from one level to another ---- */

static void await_end(runnel_engine *engine, runnel_stream stream, runnel_event *event)
{
    do
        assert_int_equal(runnel_stream_next(engine, stream, -1, event), RUNNEL_OK);
    while (event->type < RUNNEL_EVENT_DONE);
    assert_int_equal(event->type, RUNNEL_EVENT_DONE);
}

/* Turns of a session on this device, written to `to`. */
static void write_session(runnel_engine *engine, const char *device, const char *to)
{
    runnel_model *model = load_on(engine, device, NULL);
    runnel_request request;
    runnel_session_file file;
    runnel_session session;
    runnel_stream stream;
    runnel_event event;

    assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
    for (int turn = 0; turn < 2; turn++) {
        runnel_request_default(&request);
        request.prompt = prompt;
        request.prompt_bytes = strlen(prompt);
        request.max_tokens = 20;
        request.session = session;
        assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
        await_end(engine, stream, &event);
    }
    runnel_session_file_default(&file);
    file.path = to;
    assert_int_equal(runnel_session_export(model, session, &file, &stream, NULL), RUNNEL_OK);
    await_end(engine, stream, &event);
    assert_int_equal(event.usage.cached_tokens + 1, event.usage.prompt_tokens); /* the last token's are not there yet */
    runnel_model_free(model);
}

static size_t read_whole(const char *path, char *to, size_t room)
{
    FILE *file = fopen(path, "rb");
    size_t n;

    assert_non_null(file);
    n = fread(to, 1, room, file);
    fclose(file);
    assert_in_range(n, 1, room - 1);
    return n;
}

/* The same bytes in the files of levels that have the same bits; others take the tokens of them alone. */
static void test_sessions(void **state)
{
    enum { ROOM = 4 << 20 };
    char path[] = "/tmp/rn_levels_XXXXXX", *first = malloc(ROOM), *second = malloc(ROOM);
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0 && first != NULL && second != NULL);
    close(fd);
    for (uint32_t i = 0; device_of(i) != NULL; i++) {
        runnel_engine *engine = start_engine(NULL);
        size_t n;

        write_session(engine, device_of(i), path);
        n = read_whole(path, first, ROOM);
        for (uint32_t k = 0; device_of(k) != NULL; k++) {
            bool same = strcmp(rn_level_at(i)->bits, rn_level_at(k)->bits) == 0;
            runnel_model *model = load_on(engine, device_of(k), NULL);
            runnel_session_file file;
            runnel_session session;
            runnel_stream stream;
            runnel_event event;

            runnel_session_file_default(&file);
            file.path = path;
            assert_int_equal(runnel_session_import(model, &file, &session, &stream, NULL), RUNNEL_OK);
            await_end(engine, stream, &event);
            assert_int_equal(event.usage.cached_tokens, same ? event.usage.prompt_tokens - 1 : 0);
            runnel_model_free(model);
            if (!same)
                continue;
            write_session(engine, device_of(k), path);
            assert_int_equal(read_whole(path, second, ROOM), n);
            assert_memory_equal(first, second, n);
        }
        runnel_engine_free(engine);
    }
    remove(path);
    free(first);
    free(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each), cmocka_unit_test(test_beside), cmocka_unit_test(test_drafter),
        cmocka_unit_test(test_look), cmocka_unit_test(test_none),   cmocka_unit_test(test_sessions),
    };

    return run_cases(tests, NULL, NULL);
}
