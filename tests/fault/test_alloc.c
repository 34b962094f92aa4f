/* Memory that is refused: the whole life of an engine is run again and again, and each time the allocator refuses
 * another allocation, that one alone or it and all later ones. Whatever is refused, the call or the event that
 * needed it says NO_MEMORY, every accepted stream and load ends exactly once, and not a block is left.
 * And: between the first and the last token of an answer nothing is allocated at all (law 7). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runnel_files.h"
#include "tests/actors/fixture.h"
#include "tests/base/refusing.h"
#include "tests/support/shared.h"

#define MOST_CALLS 20000

static char model_path[300];

static runnel_engine_options small_engine(struct refusing *hook)
{
    runnel_engine_options options;

    runnel_engine_options_default(&options);
    options.scheduler_threads = 1;
    options.compute_threads = 1;
    options.max_streams = 3;
    options.max_sessions = 3;
    options.allocator = refusing_hook(hook);
    return options;
}

static runnel_model_options small_model(void)
{
    runnel_model_options options;

    runnel_model_options_default(&options);
    options.context_tokens = 160;
    options.batch_tokens = 16;
    return options;
}

/* Everything that takes memory for itself: stops, stop tokens, logprobs, biases, penalties. */
static runnel_request rich_request(const char *prompt, int64_t max_tokens, struct capture *capture)
{
    static const char *const stops[] = {"\xe2\x82\xac never", "Zebra crossing"};
    static const int32_t stop_tokens[] = {2, 3};
    static const runnel_logit_bias biases[] = {{7, -1.5f}, {9, 0.5f}};
    runnel_request request = make_request(prompt, max_tokens, capture);

    request.stops = stops;
    request.n_stops = 2;
    request.stop_tokens = stop_tokens;
    request.n_stop_tokens = 2;
    request.want_logprobs = 1;
    request.n_top = 3;
    request.want_progress = 1;
    request.ignore_eos = 1;
    request.sampling.temperature = 0.8f;
    request.sampling.top_k = 40;
    request.sampling.repetition_penalty = 1.2f;
    request.sampling.frequency_penalty = 0.1f;
    request.sampling.seed = 4;
    request.sampling.biases = biases;
    request.sampling.n_biases = 2;
    return request;
}

/* ---- The life of an engine ---- */

enum { REQUESTS = 6 };

struct life {
    struct refusing hook;
    runnel_engine *engine;
    runnel_model *model;
    unsigned n_loads, n_load_ends;
    bool accepted[REQUESTS];
    struct capture captures[REQUESTS];
};

static void allowed(runnel_status status)
{
    if (status != RUNNEL_OK && status != RUNNEL_NO_MEMORY)
        fail_msg("%s instead of NO_MEMORY", runnel_status_name(status));
}

static void on_load(void *user, const runnel_load_event *event)
{
    struct life *life = user;

    life->n_load_ends += event->state != RUNNEL_LOAD_PROGRESS;
    if (event->state == RUNNEL_LOAD_FAILED)
        assert_int_equal(event->error->status, RUNNEL_NO_MEMORY);
}

static bool submit(struct life *life, int i, const runnel_request *request, runnel_stream *stream)
{
    runnel_error error;
    runnel_status status = runnel_generate(life->model, request, stream, &error);

    allowed(status);
    assert_int_equal(error.status, status);
    assert_true(status == RUNNEL_OK || error.message[0] != '\0');
    life->accepted[i] = status == RUNNEL_OK;
    return life->accepted[i];
}

static void note(struct life *life, int i, runnel_status status, const runnel_error *error)
{
    allowed(status);
    assert_int_equal(error->status, status);
    life->accepted[i] = status == RUNNEL_OK;
    if (status == RUNNEL_OK)
        run_until_end(life->engine, &life->captures[i]);
}

/* A copy of the session and a turn of it; the session to a file and back. */
static void use_session(struct life *life, runnel_session session)
{
    runnel_session copy = {0}, read = {0};
    runnel_session_file file;
    runnel_request request;
    runnel_stream stream;
    runnel_error error;
    char path[64];

    snprintf(path, sizeof path, "/tmp/runnel-fault-%d", (int)getpid());
    runnel_session_file_default(&file);
    file.path = path;
    file.on_event = capture_event;
    file.user = &life->captures[4];
    allowed(runnel_session_fork(life->model, session, &copy));
    if (copy.id != 0) {
        request = rich_request(" But", 3, &life->captures[3]);
        request.session = copy;
        if (submit(life, 3, &request, &stream))
            run_until_end(life->engine, &life->captures[3]);
    }
    note(life, 4, runnel_session_export(life->model, session, &file, &stream, &error), &error);
    file.user = &life->captures[5];
    if (life->captures[4].last.type == RUNNEL_EVENT_DONE)
        note(life, 5, runnel_session_import(life->model, &file, &read, &stream, &error), &error);
    if (copy.id != 0)
        assert_int_equal(runnel_session_free(life->model, copy), RUNNEL_OK);
    if (life->captures[5].last.type == RUNNEL_EVENT_DONE)
        assert_int_equal(runnel_session_free(life->model, read), RUNNEL_OK);
    unlink(path);
}

static void use_model(struct life *life)
{
    runnel_session session = {0};
    runnel_request request;
    runnel_stream stream;
    size_t count;

    allowed(runnel_tokenize(life->model, "The owl", 7, 0, NULL, 0, &count));
    allowed(runnel_session_new(life->model, &session));
    request = rich_request("Once upon a time there was", 5, &life->captures[0]);
    request.session = session;
    submit(life, 0, &request, &stream);
    request = rich_request("The owl saw", 100, &life->captures[1]);
    if (submit(life, 1, &request, &stream))
        assert_int_equal(runnel_stream_cancel(life->engine, stream), RUNNEL_OK);
    for (int i = 0; i < 2; i++)
        if (life->accepted[i])
            run_until_end(life->engine, &life->captures[i]);
    if (session.id != 0)
        use_session(life, session);
    request = rich_request(" and then", 3, &life->captures[2]); /* the second turn: is still on its way at the end */
    request.session = session;
    submit(life, 2, &request, &stream);
    if (session.id != 0)
        assert_int_equal(runnel_session_free(life->model, session), RUNNEL_OK);
}

static void load(struct life *life)
{
    runnel_model_options options = small_model();
    runnel_error error;
    runnel_status status;

    options.on_load = on_load;
    options.load_user = life;
    status = runnel_model_load(life->engine, model_path, &options, &life->model, &error);
    allowed(status);
    if (status != RUNNEL_OK)
        return;
    life->n_loads++;
    status = runnel_model_wait(life->model, -1, &error);
    allowed(status);
    assert_int_equal(error.status, status);
    if (status == RUNNEL_OK)
        use_model(life);
    runnel_model_free(life->model);
}

/* Where allocation `refuse_at` is refused. True: it was reached. */
static bool refused_at(uint64_t refuse_at, bool for_good)
{
    struct life life = {.hook = {.refuse_at = refuse_at, .for_good = for_good}};
    runnel_engine_options options = small_engine(&life.hook);
    runnel_error error;
    runnel_status status = runnel_engine_new(&options, &life.engine, &error);

    allowed(status);
    if (status == RUNNEL_OK) {
        load(&life);
        runnel_engine_free(life.engine);
    }
    assert_int_equal(life.n_load_ends, life.n_loads);
    for (int i = 0; i < REQUESTS; i++) {
        assert_int_equal(life.captures[i].n_terminal, life.accepted[i]);
        assert_int_equal(life.captures[i].n_after_terminal, 0);
        if (life.captures[i].n_terminal > 0 && life.captures[i].last.type == RUNNEL_EVENT_FAILED) {
            assert_int_equal(life.captures[i].last.status, RUNNEL_NO_MEMORY);
            assert_true(life.captures[i].error[0] != '\0');
        }
        capture_clear(&life.captures[i]);
    }
    if (life.hook.live != 0)
        fail_msg("allocation %llu refused%s: %lld blocks are left", (unsigned long long)refuse_at,
                 for_good ? " and all later ones" : "", (long long)life.hook.live);
    return life.hook.refused > 0;
}

static void every_one(bool for_good)
{
    uint64_t n = 1;

    assert_false(refused_at(0, false)); /* all goes well where nothing is refused */
    while (refused_at(n, for_good)) {
        n++;
        assert_true(n < MOST_CALLS);
    }
    printf("%llu allocations in the life of an engine\n", (unsigned long long)(n - 1));
    assert_true(n > 60);
}

static void each_alone(void **state)
{
    (void)state;
    every_one(false);
}

static void each_and_all_later(void **state)
{
    (void)state;
    every_one(true);
}

/* ---- The token path ---- */

struct path {
    struct refusing hook;
    uint64_t at_first, at_last;
};

static void on_token(struct capture *capture, const runnel_event *event)
{
    struct path *path = capture->hook_user;

    if (event->type == RUNNEL_EVENT_TOKEN && event->token >= 0) {
        path->at_last = path->hook.calls;
        if (capture->n_tokens == 1)
            path->at_first = path->at_last;
    }
}

static void token_path(void **state)
{
    struct path path = {.at_first = 0};
    runnel_engine_options options = small_engine(&path.hook);
    runnel_model_options model_options = small_model();
    runnel_engine *engine = start_engine(&options);
    runnel_model *model = load_model(engine, model_path, &model_options);
    runnel_session session;

    (void)state;
    assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
    for (int way = 0; way < 2; way++) { /* plain; with everything */
        struct capture capture = {.hook = on_token, .hook_user = &path};
        runnel_request request = way == 0 ? make_request("Once upon a time", 120, &capture)
                                          : rich_request("Once upon a time", 120, &capture);

        request.ignore_eos = 1;
        request.n_stop_tokens = 0;
        request.session = way == 0 ? (runnel_session){0} : session;
        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
        assert_int_equal(capture.n_tokens, 120);
        assert_int_equal(path.at_first, path.at_last);
        capture_clear(&capture);
    }
    runnel_engine_free(engine);
    assert_int_equal(path.hook.live, 0);
}

static int setup(void **state)
{
    (void)state;
    if (!shared_is_there() || !shared_find("models/stories260K.gguf", model_path, sizeof model_path))
        snprintf(model_path, sizeof model_path, "%s", BUNDLED_MODEL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_alone),
        cmocka_unit_test(each_and_all_later),
        cmocka_unit_test(token_path),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
