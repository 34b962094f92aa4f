/* The end of engines, models and streams, seen from the host: what its callbacks may still do while an engine is
 * being freed, ends that wait behind a pause, events that come late, slots that change hands. */
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "fixture.h"
#include "runnel_files.h"
#include "tests/actors/scratch.h"
#include "tests/support/child.h"

#define PROMPT "Once upon a time"

static uint64_t n_models(runnel_engine *engine)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};

    runnel_engine_get_stats(engine, &stats);
    return stats.models;
}

static void sleep_ms(long ms)
{
    const struct timespec time = {0, ms * 1000000};

    nanosleep(&time, NULL);
}

/* While an engine is being freed its models stay valid for the callbacks: each function answers CLOSED. */
struct closing {
    runnel_engine *engine;
    runnel_model *model;
    runnel_session session;
    unsigned n_checked;
};

static void use_while_closing(struct capture *capture, const runnel_event *event)
{
    struct closing *closing = capture->hook_user;
    runnel_request request = make_request(PROMPT, 3, capture);
    runnel_model_info info = {.struct_size = sizeof info};
    runnel_model *extra = NULL;
    runnel_session session;
    size_t n;
    int32_t token = 5;

    if (event->type < RUNNEL_EVENT_DONE)
        return;
    sleep_ms(20); /* time for the actors to free the model's parts, were they free to */
    assert_int_equal(runnel_model_load(closing->engine, BUNDLED_MODEL, NULL, &extra, NULL), RUNNEL_CLOSED);
    assert_null(extra);
    assert_int_equal(runnel_generate(closing->model, &request, &(runnel_stream){0}, NULL), RUNNEL_CLOSED);
    assert_int_equal(runnel_tokenize(closing->model, "a", 1, 0, NULL, 0, &n), RUNNEL_CLOSED);
    assert_int_equal(runnel_detokenize(closing->model, &token, 1, 0, NULL, 0, &n), RUNNEL_CLOSED);
    assert_int_equal(runnel_token_text(closing->model, token, 0, NULL, 0, &n), RUNNEL_CLOSED);
    assert_int_equal(runnel_model_get_info(closing->model, &info), RUNNEL_CLOSED);
    assert_int_equal(runnel_session_new(closing->model, &session), RUNNEL_CLOSED);
    runnel_session_free(closing->model, closing->session);
    runnel_model_cancel_load(closing->model);
    runnel_engine_free(closing->engine); /* it is being freed already */
    closing->n_checked++;
}

static void model_in_closing_callbacks(void **state)
{
    struct closing closing = {.engine = start_engine(NULL)};
    struct capture captures[4] = {{0}};

    (void)state;
    closing.model = load_model(closing.engine, BUNDLED_MODEL, NULL);
    assert_int_equal(runnel_session_new(closing.model, &closing.session), RUNNEL_OK);
    for (int i = 0; i < 4; i++) {
        runnel_request request = make_request(PROMPT, 2000, &captures[i]);

        captures[i].hook = use_while_closing;
        captures[i].hook_user = &closing;
        request.ignore_eos = 1;
        assert_int_equal(runnel_generate(closing.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    }
    runnel_engine_wait(closing.engine, 100);
    runnel_engine_free(closing.engine);
    assert_int_equal(closing.n_checked, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(captures[i].n_terminal, 1);
        capture_clear(&captures[i]);
    }
}

/* The host gives its model back inside such a callback. */
static void free_model_once(struct capture *capture, const runnel_event *event)
{
    struct closing *closing = capture->hook_user;

    if (event->type >= RUNNEL_EVENT_DONE && closing->n_checked++ == 0) {
        sleep_ms(20);
        runnel_model_free(closing->model);
    }
}

static void model_freed_in_closing_callback(void **state)
{
    struct closing closing = {.engine = start_engine(NULL)};
    struct capture capture = {.hook = free_model_once, .hook_user = &closing};
    runnel_request request = make_request(PROMPT, 2000, &capture);

    (void)state;
    closing.model = load_model(closing.engine, BUNDLED_MODEL, NULL);
    request.ignore_eos = 1;
    assert_int_equal(runnel_generate(closing.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    runnel_engine_free(closing.engine);
    assert_int_equal(capture.n_terminal, 1);
    assert_int_equal(closing.n_checked, 1);
    capture_clear(&capture);
}

/* A paused stream whose end is already in its ring gets one when its model or engine goes: nobody resumes it. Its
 * tokens were dropped, so it was cancelled. */
static void end_behind_a_pause(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        runnel_engine *engine = start_engine(NULL);
        runnel_model *model = load_model(engine, BUNDLED_MODEL, NULL);
        struct capture capture = {0};
        runnel_request request = make_request(PROMPT, 4, &capture);
        runnel_engine_stats stats = {.struct_size = sizeof stats};
        runnel_stream stream;

        request.ignore_eos = 1;
        assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
        assert_int_equal(runnel_stream_pause(engine, stream), RUNNEL_OK);
        for (int i = 0; i < 120000 && (stats.tokens < 4 || stats.messages > 0 || stats.blocks_used > 0); i++) {
            sleep_ms(1);
            runnel_engine_dispatch(engine, 0);
            runnel_engine_get_stats(engine, &stats);
        }
        assert_int_equal(capture.n_events, 0);
        if (way == 0) {
            runnel_model_free(model);
            run_until_end(engine, &capture);
        }
        runnel_engine_free(engine);
        assert_int_equal(capture.n_terminal, 1);
        assert_int_equal(capture.last.type, RUNNEL_EVENT_CANCELLED);
        assert_int_equal(capture.last.finish, RUNNEL_FINISH_NONE);
        capture_clear(&capture);
    }
}

/* The loader may raise its last news after the dispatcher has seen the end. Here the READY callback does it in the
 * loader's place and gives the model back: the model must live until that node has come out of the mailbox. */
static void raise_late(void *user, const runnel_load_event *event)
{
    if (event->state == RUNNEL_LOAD_PROGRESS)
        return;
    (*(int *)user)++;
    rn_host_raise(&event->model->engine->host, &event->model->load_edge, &event->model->load_node);
    runnel_model_free(event->model);
}

static void late_load_news(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options;
    runnel_model *model;
    int n_ends = 0;

    (void)state;
    runnel_model_options_default(&options);
    options.on_load = raise_late;
    options.load_user = &n_ends;
    assert_int_equal(runnel_model_load(engine, BUNDLED_MODEL, &options, &model, NULL), RUNNEL_OK);
    assert_int_equal(runnel_model_wait(model, -1, NULL), RUNNEL_OK);
    for (int i = 0; i < 12000 && n_ends == 0; i++) {
        runnel_engine_wait(engine, 10);
        runnel_engine_dispatch(engine, 1);
    }
    sleep_ms(100);
    assert_int_equal(n_models(engine), 1); /* freed, but for what the mailbox points to */
    await_models(engine, 0);
    assert_int_equal(n_ends, 1);
    runnel_engine_free(engine);
}

/* Readers of pulled streams in as many slots as there are streams: a slot that has just been given back is read by
 * another thread at once, and must not look as if somebody were still inside. */
struct reader {
    runnel_engine *engine;
    runnel_model *model;
    unsigned n_wrong;
};

static void *read_streams(void *user)
{
    struct reader *reader = user;

    for (int i = 0; i < UNLESS_SLOW(150, 40); i++) {
        runnel_request request = make_request(PROMPT, 1, NULL);
        runnel_stream stream;
        runnel_event event = {.type = RUNNEL_EVENT_TOKEN};

        while (runnel_generate(reader->model, &request, &stream, NULL) == RUNNEL_BUSY)
            sched_yield();
        while (event.type < RUNNEL_EVENT_DONE)
            if (runnel_stream_next(reader->engine, stream, INT64_MAX, &event) != RUNNEL_OK) {
                reader->n_wrong++;
                return NULL;
            }
    }
    return NULL;
}

static void slots_change_hands(void **state)
{
    runnel_engine_options options;
    struct reader reader = {.n_wrong = 0};
    pthread_t threads[4];

    (void)state;
    runnel_engine_options_default(&options);
    options.max_streams = 2;
    reader.engine = start_engine(&options);
    reader.model = load_model(reader.engine, BUNDLED_MODEL, NULL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_streams, &reader), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(reader.n_wrong, 0);
    assert_quiet(reader.engine, 0);
    runnel_engine_free(reader.engine);
}

/* Where there is one slot the next request has it inside the callback that ends the last one, whose sentence and best
 * tokens are still there behind that. A cancel there comes too late. */
struct chain {
    runnel_engine *engine;
    runnel_model *model;
    unsigned n_left, n_failed;
};

static void submit_next(struct capture *capture, const runnel_event *event)
{
    struct chain *chain = capture->hook_user;
    runnel_request request = make_request(PROMPT, 1, capture);
    runnel_stream stream;

    if (event->type < RUNNEL_EVENT_DONE)
        return;
    assert_int_equal(capture->n_terminal, 1);
    chain->n_failed += event->type == RUNNEL_EVENT_FAILED;
    assert_int_equal(runnel_stream_cancel(chain->engine, event->stream), RUNNEL_NOT_FOUND);
    if (chain->n_left-- == 0)
        return;
    capture->n_terminal = 0;
    request.deadline_ms = chain->n_left == 1; /* it fails */
    request.max_tokens = chain->n_left == 1 ? -1 : 1;
    assert_int_equal(runnel_generate(chain->model, &request, &stream, NULL), RUNNEL_OK);
    assert_int_not_equal(stream.id, event->stream.id);
    assert_string_equal(event->error, capture->error);
}

static void the_next_inside_an_end(void **state)
{
    runnel_engine_options options;
    struct capture capture = {.hook = submit_next};
    struct chain chain = {.n_left = 3};
    runnel_request request = make_request(PROMPT, 1, &capture);

    (void)state;
    runnel_engine_options_default(&options);
    options.max_streams = 1;
    chain.engine = start_engine(&options);
    chain.model = load_model(chain.engine, BUNDLED_MODEL, NULL);
    capture.hook_user = &chain;
    assert_int_equal(runnel_generate(chain.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    run_until_end(chain.engine, &capture);
    assert_int_equal(chain.n_left, UINT_MAX);
    assert_int_equal(chain.n_failed, 1);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
    assert_quiet(chain.engine, 0);
    runnel_engine_free(chain.engine);
    capture_clear(&capture);
}

/* The sentence of a pulled failure is the reader's, whoever has the slot next. */
static void pulled_failure(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, BUNDLED_MODEL, NULL);
    runnel_request request = make_request(PROMPT, 400, NULL);
    runnel_stream streams[2];
    runnel_session session;
    runnel_event event;

    (void)state;
    assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
    request.session = session;
    request.ignore_eos = 1;
    for (int i = 0; i < 2; i++)
        assert_int_equal(runnel_generate(model, &request, &streams[i], NULL), RUNNEL_OK);
    assert_int_equal(runnel_stream_next(engine, streams[0], -1, &event), RUNNEL_OK); /* it runs: it has the session */
    assert_int_equal(runnel_session_free(model, session), RUNNEL_OK);
    assert_int_equal(runnel_stream_cancel(engine, streams[0]), RUNNEL_OK); /* the second one's turn does not come */
    assert_int_equal(runnel_stream_next(engine, streams[1], -1, &event), RUNNEL_OK);
    assert_int_equal(event.type, RUNNEL_EVENT_FAILED);
    assert_int_equal(event.status, RUNNEL_NOT_FOUND);
    request.session.id = 0;
    assert_int_equal(runnel_generate(model, &request, &streams[1], NULL), RUNNEL_OK); /* in the same slot */
    assert_non_null(strstr(event.error, "session"));
    runnel_engine_free(engine);
}

/* Many threads that load and free at once: the limit holds, nothing is lost. */
static void *load_models(void *user)
{
    struct reader *reader = user;

    for (int i = 0; i < UNLESS_SLOW(60, 15); i++) {
        runnel_model_options options;
        runnel_model *model;
        runnel_status status;

        runnel_model_options_default(&options);
        options.vocab_only = 1;
        status = runnel_model_load(reader->engine, BUNDLED_MODEL, &options, &model, NULL);
        if (status == RUNNEL_OK)
            runnel_model_free(model);
        else if (status != RUNNEL_BUSY)
            reader->n_wrong++;
    }
    return NULL;
}

static void loads_from_many_threads(void **state)
{
    struct reader reader = {.engine = start_engine(NULL)};
    pthread_t threads[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, load_models, &reader), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(reader.n_wrong, 0);
    await_models(reader.engine, 0);
    runnel_engine_free(reader.engine);
}

/* In a child of fork() the engine has no threads: what would wait for them says so at once, what would take the
 * parent's events takes none, and freeing returns. */
static bool is_refused(runnel_status status, const runnel_error *error)
{
    return status == RUNNEL_STATE && strstr(error->message, "forked") != NULL;
}

/* The number of the first check that fails; 0: none. */
static int use_in_child(runnel_engine *engine, runnel_model *model, runnel_stream pulled, runnel_training *training,
                        struct capture *capture)
{
    runnel_request request = make_request(PROMPT, 5, capture);
    runnel_embed_request embed;
    runnel_session session;
    runnel_stream stream;
    runnel_event event;
    runnel_error error;
    const runnel_event *taken;
    runnel_machine machine = {.struct_size = sizeof machine};
    runnel_training_progress progress = {.struct_size = sizeof progress};
    size_t n_events = capture->n_events;

    runnel_embed_request_default(&embed);
    embed.text = "text";
    embed.text_bytes = 4;
    if (!is_refused(runnel_generate(model, &request, &stream, &error), &error) ||
        !is_refused(runnel_embed(model, &embed, &stream, &error), &error))
        return 1;
    if (!is_refused(runnel_model_load(engine, quick_model(), NULL, &model, &error), &error) ||
        !is_refused(runnel_model_wait(model, -1, &error), &error))
        return 2;
    if (!is_refused(runnel_engine_measure(engine, &machine, &error), &error))
        return 3;
    if (runnel_session_new(model, &session) != RUNNEL_STATE)
        return 4;
    if (runnel_stream_next(engine, pulled, -1, &event) != RUNNEL_STATE ||
        runnel_engine_wait(engine, -1) != RUNNEL_STATE || runnel_engine_drain(engine, -1) != RUNNEL_STATE)
        return 5;
    if (runnel_engine_dispatch(engine, 0) != 0 || runnel_engine_take(engine, &taken, 1) != 0 ||
        capture->n_events != n_events)
        return 6;
    if (!is_refused(runnel_training_wait(training, -1, &progress, &error), &error))
        return 7;
    runnel_training_free(training);
    runnel_model_free(model);
    runnel_engine_free(engine);
    return 0;
}

/* One that goes on until it is freed. */
static runnel_training *train_on(runnel_engine *engine, const struct scratch *scratch)
{
    static const char text[] = "Once upon a time there was a little owl that lived in an old tree, far from the town. ";
    char corpus[20 * (sizeof text - 1)];
    runnel_eagle_options options;
    runnel_training *training;
    char head[128];

    snprintf(head, sizeof head, "%s/head.gguf", scratch->directory);
    for (size_t i = 0; i < sizeof corpus; i += sizeof text - 1)
        memcpy(corpus + i, text, sizeof text - 1);
    runnel_eagle_options_default(&options);
    options.steps = 1000000;
    options.text_tokens = 16;
    options.texts = options.unroll = 1;
    assert_int_equal(runnel_eagle_train(engine, BUNDLED_MODEL, corpus, sizeof corpus, head, &options, &training, NULL),
                     RUNNEL_OK);
    return training;
}

static void used_in_a_child(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    struct capture called = {0}, unused = {0};
    runnel_request request = make_request(PROMPT, 20, &called);
    runnel_training *training;
    struct scratch scratch;
    runnel_event event = {0};
    runnel_stream pulled;
    int said = -1;
    pid_t child;

    (void)state;
    scratch_open(&scratch);
    training = train_on(engine, &scratch);
    assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    request.on_event = NULL;
    assert_int_equal(runnel_generate(model, &request, &pulled, NULL), RUNNEL_OK);
    assert_int_equal(runnel_engine_wait(engine, -1), RUNNEL_OK); /* events wait, and are the parent's */
    child = child_fork();
    if (child == 0)
        _exit(use_in_child(engine, model, pulled, training, &unused));
    assert_int_equal(waitpid(child, &said, 0), child);
    assert_true(WIFEXITED(said));
    assert_int_equal(WEXITSTATUS(said), 0);
    assert_int_equal(runnel_engine_wait(engine, 0), RUNNEL_OK);
    run_until_end(engine, &called);
    while (event.type < RUNNEL_EVENT_DONE)
        assert_int_equal(runnel_stream_next(engine, pulled, -1, &event), RUNNEL_OK);
    assert_int_equal(called.last.type, RUNNEL_EVENT_DONE);
    runnel_training_free(training);
    runnel_engine_free(engine);
    scratch_close(&scratch);
    capture_clear(&called);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_in_closing_callbacks),
        cmocka_unit_test(model_freed_in_closing_callback),
        cmocka_unit_test(end_behind_a_pause),
        cmocka_unit_test(late_load_news),
        cmocka_unit_test(slots_change_hands),
        cmocka_unit_test(pulled_failure),
        cmocka_unit_test(the_next_inside_an_end),
        cmocka_unit_test(loads_from_many_threads),
        cmocka_unit_test(used_in_a_child),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
