/* Sessions copied, written to files and read again, with the bundled model. The judge of each later turn is one
 * request whose prompt is all that came before, token for token, on a model without a cache: computed from nothing, it
 * must say the same. cached_tokens says that the KV was used, and was not computed again. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/actors/fixture.h"
#include "runnel_files.h"
#include "tests/support/shared.h"
#include "tests/support/child.h"

#define HISTORY 512
#define FIRST "Once upon a time there was a small bear who lived by a river and liked to sing. One day"
#define ANSWER (test_device() != NULL ? 4u : 12u)

static char folder[] = "/tmp/runnel-session-XXXXXX";
static char file_path[64];

/* A conversation as the test knows it. */
struct talk {
    runnel_session session;
    int32_t tokens[HISTORY];
    size_t n;
};

static runnel_engine *engine;
static runnel_model *model, *plain;

static runnel_model *load(runnel_engine *e, bool cache, uint32_t context, runnel_kv_type kv_type, uint64_t kv_bytes)
{
    runnel_model_options options;

    runnel_model_options_default(&options);
    options.no_prefix_cache = !cache;
    options.context_tokens = context;
    options.kv_type = kv_type;
    options.kv_bytes = kv_bytes;
    options.batch_tokens = 24; /* chunks that end inside blocks */
    return load_model(e, quick_model(), &options);
}

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(file_path, sizeof file_path, "%s/session", folder);
    engine = start_engine(NULL);
    model = load(engine, false, 512, RUNNEL_KV_F16, 0);
    plain = load(engine, false, 512, RUNNEL_KV_F16, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    runnel_engine_free(engine);
    unlink(file_path);
    assert_int_equal(rmdir(folder), 0); /* nothing temporary is left */
    return 0;
}

/* ---- Turns ---- */

static size_t tokenize(const char *text, bool first, int32_t *tokens)
{
    size_t n = 0;

    assert_int_equal(runnel_tokenize(model, text, strlen(text), first ? RUNNEL_TOKENIZE_BOS : 0, tokens, HISTORY, &n),
                     RUNNEL_OK);
    return n;
}

static runnel_request make_turn(const int32_t *tokens, size_t n, float temperature, struct capture *capture)
{
    runnel_request request = make_request(NULL, ANSWER, capture);

    request.tokens = tokens;
    request.n_tokens = n;
    request.ignore_eos = 1;
    request.sampling.temperature = temperature;
    request.sampling.seed = 7;
    request.sampling.repetition_penalty = 1.1f;
    return request;
}

/* The same from nothing. */
static void assert_as_from_nothing(const struct talk *talk, float temperature, const struct capture *got)
{
    struct capture capture = {0};
    runnel_request request = make_turn(talk->tokens, talk->n, temperature, &capture);

    assert_int_equal(run_request(engine, plain, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(capture.last.usage.cached_tokens, 0);
    assert_int_equal(capture.last.usage.prompt_tokens, got->last.usage.prompt_tokens);
    assert_int_equal(capture.n_tokens, ANSWER);
    assert_int_equal(got->n_tokens, ANSWER);
    assert_memory_equal(capture.tokens, got->tokens, ANSWER * sizeof(int32_t));
    assert_string_equal(capture.text, got->text);
    capture_clear(&capture);
}

static void add_answer(struct talk *talk, const struct capture *capture)
{
    memcpy(talk->tokens + talk->n, capture->tokens, capture->n_tokens * sizeof *capture->tokens);
    talk->n += capture->n_tokens;
}

/* A turn of the session, judged; the cached tokens. */
static uint64_t turn(runnel_engine *e, runnel_model *m, struct talk *talk, const char *text, float temperature)
{
    struct capture capture = {0};
    int32_t tokens[HISTORY];
    size_t n = tokenize(text, talk->n == 0, tokens);
    runnel_request request = make_turn(tokens, n, temperature, &capture);
    uint64_t cached;

    request.session = talk->session;
    memcpy(talk->tokens + talk->n, tokens, n * sizeof *tokens);
    talk->n += n;
    assert_int_equal(run_request(e, m, &request), RUNNEL_EVENT_DONE);
    assert_as_from_nothing(talk, temperature, &capture);
    add_answer(talk, &capture);
    cached = capture.last.usage.cached_tokens;
    capture_clear(&capture);
    return cached;
}

static void begin(struct talk *talk)
{
    *talk = (struct talk){.n = 0};
    assert_int_equal(runnel_session_new(model, &talk->session), RUNNEL_OK);
    assert_int_equal(turn(engine, model, talk, FIRST, 0), 0);
}

/* ---- Forks ---- */

/* Both go on from what there was, each its own way, whichever writes first; and again from there. */
static void forks(void **state)
{
    struct talk talk, copy, third;
    size_t n;

    (void)state;
    begin(&talk);
    n = talk.n;
    copy = talk;
    assert_int_equal(runnel_session_fork(model, talk.session, &copy.session), RUNNEL_OK);
    assert_int_not_equal(copy.session.id, talk.session.id);
    assert_int_equal(turn(engine, model, &copy, " Then the bear", 0), n - 1); /* the last token was never computed */
    assert_int_equal(turn(engine, model, &talk, " But a fox", 0.9f), n - 1);
    third = talk;
    n = talk.n;
    assert_int_equal(runnel_session_fork(model, talk.session, &third.session), RUNNEL_OK);
    assert_int_equal(turn(engine, model, &talk, " came and said", 0), n - 1);
    assert_int_equal(runnel_session_free(model, talk.session), RUNNEL_OK);
    assert_int_equal(turn(engine, model, &third, " ran into the wood", 0.5f), n - 1);
    n = copy.n;
    assert_int_equal(turn(engine, model, &copy, " was happy", 0), n - 1);
    assert_int_equal(runnel_session_free(model, copy.session), RUNNEL_OK);
    assert_int_equal(runnel_session_free(model, third.session), RUNNEL_OK);
    assert_quiet(engine, 0);
}

/* Everything submitted at one moment: a turn, a fork, a turn of each, the end of the first. */
static void forks_of_running(void **state)
{
    static const char *const texts[] = {FIRST, " He said", " She said"};
    struct talk talk = {.n = 0}, copy;
    struct capture captures[3] = {{0}};
    int32_t tokens[3][HISTORY];
    size_t n[3];

    (void)state;
    assert_int_equal(runnel_session_new(model, &talk.session), RUNNEL_OK);
    for (int i = 0; i < 3; i++) {
        runnel_request request;

        n[i] = tokenize(texts[i], i == 0, tokens[i]);
        request = make_turn(tokens[i], n[i], 0, &captures[i]);
        request.session = i < 2 ? talk.session : copy.session;
        assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        if (i == 0)
            assert_int_equal(runnel_session_fork(model, talk.session, &copy.session), RUNNEL_OK);
    }
    for (int i = 0; i < 3; i++) {
        run_until_end(engine, &captures[i]);
        assert_int_equal(captures[i].last.type, RUNNEL_EVENT_DONE);
    }
    memcpy(talk.tokens, tokens[0], n[0] * sizeof(int32_t));
    talk.n = n[0];
    assert_as_from_nothing(&talk, 0, &captures[0]);
    add_answer(&talk, &captures[0]);
    for (int i = 1; i < 3; i++) {
        struct talk now = talk;

        memcpy(now.tokens + now.n, tokens[i], n[i] * sizeof(int32_t));
        now.n += n[i];
        assert_int_equal(captures[i].last.usage.cached_tokens, talk.n - 1);
        assert_as_from_nothing(&now, 0, &captures[i]);
    }
    assert_int_equal(runnel_session_free(model, talk.session), RUNNEL_OK);
    assert_int_equal(runnel_session_free(model, copy.session), RUNNEL_OK);
    for (int i = 0; i < 3; i++)
        capture_clear(&captures[i]);
    assert_quiet(engine, 0);
}

static runnel_session_file make_file(struct capture *capture)
{
    runnel_session_file file;

    runnel_session_file_default(&file);
    file.path = file_path;
    file.on_event = capture_event;
    file.user = capture;
    return file;
}

static void fork_limits(void **state)
{
    struct capture capture = {0};
    runnel_request request = make_request("Once", 3, &capture);
    runnel_session_file file = make_file(NULL);
    runnel_stream stream;
    runnel_error error;
    runnel_engine_options options;
    runnel_engine *few;
    runnel_model *m;
    runnel_session sessions[3], other;

    (void)state;
    runnel_engine_options_default(&options);
    options.max_sessions = 3;
    options.max_streams = 1;
    few = start_engine(&options);
    m = load_model(few, quick_model(), NULL);
    assert_int_equal(runnel_session_new(m, &sessions[0]), RUNNEL_OK);
    for (int i = 1; i < 3; i++) /* a copy of a copy, and none has run yet */
        assert_int_equal(runnel_session_fork(m, sessions[i - 1], &sessions[i]), RUNNEL_OK);
    assert_int_equal(runnel_session_fork(m, sessions[0], &other), RUNNEL_BUSY);
    assert_int_equal(runnel_session_import(m, &file, &other, &stream, &error), RUNNEL_BUSY);
    assert_non_null(strstr(error.message, "max_sessions"));
    assert_int_equal(error.retry_ms, 0);
    assert_int_equal(runnel_generate(m, &request, &stream, NULL), RUNNEL_OK); /* the one stream; it is not read yet */
    assert_int_equal(runnel_session_export(m, sessions[0], &file, &(runnel_stream){0}, &error), RUNNEL_BUSY);
    assert_true(error.retry_ms > 0);
    assert_int_equal(runnel_stream_cancel(few, stream), RUNNEL_OK);
    run_until_end(few, &capture);
    capture_clear(&capture);
    assert_int_equal(runnel_session_free(m, sessions[0]), RUNNEL_OK);
    assert_int_equal(runnel_session_fork(m, sessions[0], &other), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_session_fork(m, (runnel_session){0}, &other), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_session_fork(model, sessions[1], &other), RUNNEL_NOT_FOUND);
    assert_quiet(few, 0);
    assert_int_equal(runnel_session_fork(m, sessions[2], &other), RUNNEL_OK);
    runnel_engine_free(few);
}

/* ---- Files ---- */

static runnel_usage export_to(runnel_engine *e, runnel_model *m, runnel_session session)
{
    struct capture capture = {0};
    runnel_session_file file = make_file(&capture);

    file.note = "a note\0of mine";
    file.note_bytes = 14;
    assert_int_equal(runnel_session_export(m, session, &file, &(runnel_stream){0}, NULL), RUNNEL_OK);
    run_until_end(e, &capture);
    if (capture.last.type != RUNNEL_EVENT_DONE)
        fail_msg("%s", capture.error);
    assert_int_equal(capture.n_events, 1);
    return capture.last.usage;
}

static runnel_event import_from(runnel_engine *e, runnel_model *m, runnel_session *session, char *error)
{
    struct capture capture = {0};
    runnel_session_file file = make_file(&capture);

    assert_int_equal(runnel_session_import(m, &file, session, &(runnel_stream){0}, NULL), RUNNEL_OK);
    run_until_end(e, &capture);
    assert_int_equal(capture.n_events, 1);
    if (error != NULL)
        strcpy(error, capture.error);
    return capture.last;
}

static void assert_imported(const runnel_event *end, const struct talk *talk, size_t cached)
{
    assert_int_equal(end->type, RUNNEL_EVENT_DONE);
    assert_int_equal(end->usage.prompt_tokens, talk->n);
    assert_int_equal(end->usage.cached_tokens, cached);
}

/* A relative path is one of the directory in which the export was asked for, wherever the process is when it comes to
 * be written: here it waits behind a turn whose reader is paused. */
static void path_as_it_was(void **state)
{
    struct capture turn_capture = {0}, capture = {0};
    runnel_request request = make_request("Once", 40, &turn_capture); /* more than a paused reader is sent */
    runnel_session_file file = make_file(&capture);
    int home = open(".", O_RDONLY | O_DIRECTORY);
    runnel_stream stream;
    struct stat is;

    (void)state;
    assert_true(home >= 0);
    assert_int_equal(runnel_session_new(model, &request.session), RUNNEL_OK);
    request.ignore_eos = 1;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    assert_int_equal(runnel_stream_pause(engine, stream), RUNNEL_OK);
    assert_int_equal(chdir(folder), 0);
    file.path = strrchr(file_path, '/') + 1;
    assert_int_equal(runnel_session_export(model, request.session, &file, &(runnel_stream){0}, NULL), RUNNEL_OK);
    assert_int_equal(fchdir(home), 0);
    close(home);
    assert_int_equal(runnel_stream_resume(engine, stream), RUNNEL_OK);
    run_until_end(engine, &turn_capture);
    run_until_end(engine, &capture);
    unlink(file.path); /* what a breach leaves */
    if (capture.last.type != RUNNEL_EVENT_DONE)
        fail_msg("%s", capture.error);
    assert_int_equal(stat(file_path, &is), 0);
    assert_int_equal(unlink(file_path), 0);
    assert_int_equal(runnel_session_free(model, request.session), RUNNEL_OK);
    capture_clear(&turn_capture);
    capture_clear(&capture);
}

/* The session goes on where it was, here and in another engine, as if nothing had happened. */
static void there_and_back(void **state)
{
    static const float temperatures[] = {0, 0.8f};

    (void)state;
    for (int i = 0; i < (test_device() != NULL ? 1 : 2); i++) {
        runnel_engine *other = start_engine(NULL);
        runnel_model *there = load(other, i == 0, 300, RUNNEL_KV_F16, 0); /* another context, with a prefix cache */
        struct talk talk, here, far;
        runnel_usage usage;
        runnel_event end;
        struct stat is;
        size_t n;

        begin(&talk);
        turn(engine, model, &talk, " The river said", temperatures[i]);
        n = talk.n;
        usage = export_to(engine, model, talk.session);
        assert_int_equal(usage.prompt_tokens, n);
        assert_int_equal(usage.cached_tokens, n - 1);
        assert_int_equal(stat(file_path, &is), 0);
        assert_int_equal(is.st_mode & 0777, 0600);
        here = far = talk;
        end = import_from(engine, model, &here.session, NULL);
        assert_imported(&end, &talk, n - 1);
        assert_int_equal(turn(engine, model, &talk, " Well,", temperatures[i]), n - 1);
        assert_int_equal(turn(engine, model, &here, " Well,", temperatures[i]), n - 1);
        assert_memory_equal(talk.tokens, here.tokens, talk.n * sizeof(int32_t));
        assert_int_equal(runnel_session_free(model, talk.session), RUNNEL_OK);
        assert_int_equal(runnel_session_free(model, here.session), RUNNEL_OK);
        end = import_from(other, there, &far.session, NULL);
        assert_imported(&end, &far, n - 1);
        assert_int_equal(turn(other, there, &far, " Well,", temperatures[i]), n - 1);
        assert_memory_equal(here.tokens, far.tokens, here.n * sizeof(int32_t));
        assert_int_equal(turn(other, there, &far, " and then", temperatures[i]), here.n - 1);
        assert_quiet(engine, 0);
        runnel_engine_free(other);
    }
}

/* The export takes what there is when the turns before it have ended, and the turns behind it do not wait for the
 * disk. */
static void between_turns(void **state)
{
    struct capture captures[2] = {{0}}, done = {0}, gone = {0};
    runnel_session_file file = make_file(&done);
    struct talk talk = {.n = 0}, read;
    int32_t tokens[2][HISTORY];
    size_t n[2] = {tokenize(FIRST, true, tokens[0]), tokenize(" So", false, tokens[1])};
    runnel_stream stream;
    runnel_event end;

    (void)state;
    assert_int_equal(runnel_session_new(model, &talk.session), RUNNEL_OK);
    for (int i = 0; i < 2; i++) {
        runnel_request request = make_turn(tokens[i], n[i], 0, &captures[i]);

        request.session = talk.session;
        assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        if (i == 0)
            assert_int_equal(runnel_session_export(model, talk.session, &file, &(runnel_stream){0}, NULL), RUNNEL_OK);
    }
    file.user = &gone; /* one that is cancelled while it waits for its turn */
    assert_int_equal(runnel_session_export(model, talk.session, &file, &stream, NULL), RUNNEL_OK);
    assert_int_equal(runnel_stream_cancel(engine, stream), RUNNEL_OK);
    assert_int_equal(runnel_session_free(model, talk.session), RUNNEL_OK);
    run_until_end(engine, &done);
    run_until_end(engine, &captures[1]);
    run_until_end(engine, &gone);
    assert_int_equal(done.last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(gone.last.type, RUNNEL_EVENT_CANCELLED);
    memcpy(talk.tokens, tokens[0], n[0] * sizeof(int32_t));
    talk.n = n[0];
    add_answer(&talk, &captures[0]);
    assert_int_equal(done.last.usage.prompt_tokens, talk.n);
    read = talk;
    end = import_from(engine, model, &read.session, NULL);
    assert_imported(&end, &talk, talk.n - 1);
    assert_int_equal(turn(engine, model, &read, " So", 0), talk.n - 1);
    assert_int_equal(runnel_session_free(model, read.session), RUNNEL_OK);
    for (int i = 0; i < 2; i++)
        capture_clear(&captures[i]);
    assert_quiet(engine, 0);
}

/* KV of another format stays in the file, and is computed. */
static void without_kv(void **state)
{
    runnel_engine *other = start_engine(NULL);
    runnel_model *wide;
    runnel_request request;
    struct talk talk, read;
    struct capture a = {0}, b = {0};
    runnel_event end;

    (void)state;
    begin(&talk);
    turn(engine, model, &talk, " The river said", 0);
    export_to(engine, model, talk.session);
    wide = load(other, true, 512, RUNNEL_KV_F32, 0);
    read = talk;
    end = import_from(other, wide, &read.session, NULL);
    assert_imported(&end, &talk, 0);
    request = make_turn(talk.tokens, 1, 0, &a); /* the session and a token, and both by themselves: as with this KV */
    request.session = read.session;
    assert_int_equal(run_request(other, wide, &request), RUNNEL_EVENT_DONE);
    talk.tokens[talk.n] = talk.tokens[0];
    request = make_turn(talk.tokens, talk.n + 1, 0, &b);
    request.cache_salt = 1;
    assert_int_equal(run_request(other, wide, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(a.last.usage.prompt_tokens, b.last.usage.prompt_tokens);
    assert_string_equal(a.text, b.text);
    capture_clear(&a);
    capture_clear(&b);
    runnel_engine_free(other);
    assert_int_equal(runnel_session_free(model, talk.session), RUNNEL_OK);
    assert_quiet(engine, 0);
}

/* Of two blocks one belongs to an answer that nobody reads: the other takes what it can. */
static void little_room(void **state)
{
    runnel_model_info info = {.struct_size = sizeof info};
    runnel_engine_stats stats = {.struct_size = sizeof stats};
    runnel_engine *other = start_engine(NULL);
    runnel_request request;
    runnel_stream unread;
    runnel_model *small;
    struct talk talk;
    runnel_event end;

    (void)state;
    assert_int_equal(runnel_model_get_info(model, &info), RUNNEL_OK);
    begin(&talk);
    turn(engine, model, &talk, " The", 0);
    assert_true(talk.n > info.block_tokens && talk.n + 1 + ANSWER <= 2 * info.block_tokens);
    export_to(engine, model, talk.session);
    assert_int_equal(runnel_session_free(model, talk.session), RUNNEL_OK);
    small = load(other, false, 128, RUNNEL_KV_F16, 2 * info.block_tokens * info.kv_bytes_per_token);
    request = make_turn(talk.tokens, 1, 0, NULL);
    request.max_tokens = info.block_tokens - 1;
    request.on_event = NULL;
    assert_int_equal(runnel_generate(small, &request, &unread, NULL), RUNNEL_OK);
    while (stats.blocks_used == 0)
        runnel_engine_get_stats(other, &stats);
    end = import_from(other, small, &talk.session, NULL);
    assert_imported(&end, &talk, info.block_tokens);
    assert_int_equal(runnel_stream_cancel(other, unread), RUNNEL_OK);
    assert_int_equal(turn(other, small, &talk, " A", 0), info.block_tokens);
    runnel_engine_free(other);
    assert_quiet(engine, 0);
}

/* What came out of a file is its session's alone: who asks the same computes it. */
static void not_shared(void **state)
{
    runnel_engine *other = start_engine(NULL);
    runnel_model *there = load(other, true, 512, RUNNEL_KV_F16, 0);
    struct capture capture = {0};
    struct talk talk;
    runnel_request request;
    runnel_event end;

    (void)state;
    begin(&talk);
    turn(engine, model, &talk, " The river said", 0);
    export_to(engine, model, talk.session);
    assert_int_equal(runnel_session_free(model, talk.session), RUNNEL_OK);
    end = import_from(other, there, &talk.session, NULL);
    assert_imported(&end, &talk, talk.n - 1);
    turn(other, there, &talk, " Well,", 0);
    request = make_turn(talk.tokens, talk.n, 0, &capture);
    assert_int_equal(run_request(other, there, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(capture.last.usage.cached_tokens, 0);
    capture_clear(&capture);
    runnel_engine_free(other);
}

/* ---- Errors ---- */

static void expect_failure(runnel_engine *e, runnel_model *m, runnel_status status, const char *part)
{
    char error[RUNNEL_ERROR_BYTES];
    runnel_session session;
    runnel_event end = import_from(e, m, &session, error);

    assert_int_equal(end.type, RUNNEL_EVENT_FAILED);
    assert_int_equal(end.status, status);
    if (strstr(error, part) == NULL)
        fail_msg("\"%s\" does not say %s", error, part);
    assert_int_equal(runnel_session_free(m, session), RUNNEL_NOT_FOUND);
}

static void write_at(long at, const char *byte)
{
    FILE *f = fopen(file_path, "r+b");

    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(byte, 1, 1, f), 1);
    assert_int_equal(fclose(f), 0);
}

static void refused(void **state)
{
    struct capture capture = {0};
    runnel_session_file file = make_file(&capture);
    runnel_model_options options;
    runnel_model *tight;
    runnel_stream stream;
    runnel_session session;
    struct talk talk;

    (void)state;
    begin(&talk);
    unlink(file_path);
    expect_failure(engine, model, RUNNEL_IO, file_path);
    file.path = folder;
    assert_int_equal(runnel_session_import(model, &file, &session, &stream, NULL), RUNNEL_OK);
    run_until_end(engine, &capture);
    assert_int_equal(capture.last.status, RUNNEL_FORMAT);
    capture_clear(&capture);
    file.path = "/tmp/runnel-no-such-folder/session";
    assert_int_equal(runnel_session_export(model, talk.session, &file, &stream, NULL), RUNNEL_OK);
    run_until_end(engine, &capture);
    assert_int_equal(capture.last.status, RUNNEL_IO);
    capture_clear(&capture);
    export_to(engine, model, talk.session);
    runnel_model_options_default(&options);
    options.context_tokens = 16;
    tight = load_model(engine, quick_model(), &options);
    expect_failure(engine, tight, RUNNEL_CONTEXT, "16 fit");
    runnel_model_free(tight);
    await_models(engine, 2);
    write_at(8, "\x02");
    expect_failure(engine, model, RUNNEL_UNSUPPORTED, "version 2");
    write_at(8, "\x01");
    write_at(140, "\x7f");
    expect_failure(engine, model, RUNNEL_FORMAT, "tokens");
    file.path = NULL;
    assert_int_equal(runnel_session_export(model, talk.session, &file, &stream, NULL), RUNNEL_INVALID);
    assert_int_equal(runnel_session_import(model, &file, &session, &stream, NULL), RUNNEL_INVALID);
    file.path = file_path;
    assert_int_equal(runnel_session_export(model, (runnel_session){0}, &file, &stream, NULL), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_session_free(model, talk.session), RUNNEL_OK);
    assert_quiet(engine, 0);
}

static void another_model(void **state)
{
    runnel_model *other;
    struct talk talk;
    char path[300];

    (void)state;
    if (!shared_find("models/runnel-tiny-F16.gguf", path, sizeof path))
        skip();
    begin(&talk);
    export_to(engine, model, talk.session);
    other = load_model(engine, path, NULL);
    expect_failure(engine, other, RUNNEL_UNSUPPORTED, "another model");
    runnel_model_free(other);
    await_models(engine, 2);
    assert_int_equal(runnel_session_free(model, talk.session), RUNNEL_OK);
    assert_quiet(engine, 0);
}

/* A turn that was submitted while its session was still to be read gets to know that it will not be. */
static void turns_of_a_failed_import(void **state)
{
    struct capture capture = {0}, waits = {0};
    runnel_session_file file = make_file(&capture);
    runnel_request request = make_request("Hello", 4, &waits);
    runnel_stream stream;

    (void)state;
    unlink(file_path);
    assert_int_equal(runnel_session_import(model, &file, &request.session, &stream, NULL), RUNNEL_OK);
    if (runnel_generate(model, &request, &stream, NULL) == RUNNEL_OK) { /* else it has failed already */
        run_until_end(engine, &waits);
        assert_int_equal(waits.last.status, RUNNEL_NOT_FOUND);
        assert_string_equal(waits.error, "the session has been freed, or its import has failed");
    }
    run_until_end(engine, &capture);
    assert_int_equal(capture.last.status, RUNNEL_IO);
    assert_quiet(engine, 0);
}

/* A whole conversation that is too long leaves the session as it was. */
static void too_long_a_chat(void **state)
{
    enum { PIECES = 1000 };
    static char text[PIECES * 6 + 1];
    runnel_message message = {"user", text, NULL};
    struct capture capture = {0};
    runnel_request request = make_request(NULL, ANSWER, &capture);
    runnel_chat chat;
    struct talk talk;
    size_t n;

    (void)state;
    for (uint32_t i = 0; i < PIECES; i++)
        memcpy(text + 6 * i, " river", 7);
    runnel_chat_default(&chat);
    chat.messages = &message;
    chat.n_messages = 1;
    chat.template_text = "{% for m in messages %}{{ m.content }}{% endfor %}";
    begin(&talk);
    n = talk.n;
    request.chat = &chat;
    request.session = talk.session;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_FAILED);
    assert_int_equal(capture.last.status, RUNNEL_CONTEXT);
    capture_clear(&capture);
    assert_int_equal(turn(engine, model, &talk, " Then the bear", 0), n - 1);
    assert_int_equal(runnel_session_free(model, talk.session), RUNNEL_OK);
    assert_quiet(engine, 0);
}

/* ---- Ways to receive, the note, and sudden ends ---- */

static void pulled_and_noted(void **state)
{
    runnel_session_file file = make_file(NULL);
    char note[32] = "";
    struct talk talk;
    runnel_stream stream;
    runnel_event event;
    size_t n = 0;

    (void)state;
    begin(&talk);
    file.on_event = NULL;
    file.note = "{\"x\": 1}";
    file.note_bytes = 8;
    assert_int_equal(runnel_session_export(model, talk.session, &file, &stream, NULL), RUNNEL_OK);
    assert_int_equal(runnel_stream_next(engine, stream, -1, &event), RUNNEL_OK);
    assert_int_equal(event.type, RUNNEL_EVENT_DONE);
    assert_int_equal(runnel_session_read_note(file_path, NULL, 0, &n, NULL), RUNNEL_OK);
    assert_int_equal(n, 8);
    assert_int_equal(runnel_session_read_note(file_path, note, sizeof note, &n, NULL), RUNNEL_OK);
    assert_memory_equal(note, file.note, 8);
    write_at(128 + 4 * (long)talk.n + 3, "?");
    assert_int_equal(runnel_session_read_note(file_path, note, sizeof note, &n, NULL), RUNNEL_FORMAT);
    assert_int_equal(runnel_session_free(model, talk.session), RUNNEL_OK);
    assert_quiet(engine, 0);
}

/* Cancelled at once, or on the way: each ends once, as CANCELLED or as if it had not been. */
static void cancelled(void **state)
{
    struct talk talk;

    (void)state;
    begin(&talk);
    export_to(engine, model, talk.session);
    for (int i = 0; i < 60; i++) {
        struct capture capture = {0};
        runnel_session_file file = make_file(&capture);
        const struct timespec wait = {0, i / 2 * 20000};
        runnel_session session;
        runnel_stream stream;

        if (i % 2 == 0)
            assert_int_equal(runnel_session_import(model, &file, &session, &stream, NULL), RUNNEL_OK);
        else
            assert_int_equal(runnel_session_export(model, talk.session, &file, &stream, NULL), RUNNEL_OK);
        nanosleep(&wait, NULL);
        runnel_stream_cancel(engine, stream);
        run_until_end(engine, &capture);
        assert_int_equal(capture.n_terminal, 1);
        if (i % 2 == 0)
            assert_int_equal(runnel_session_free(model, session),
                             capture.last.type == RUNNEL_EVENT_DONE ? RUNNEL_OK : RUNNEL_NOT_FOUND);
        assert_true(capture.last.type == RUNNEL_EVENT_DONE || capture.last.type == RUNNEL_EVENT_CANCELLED);
    }
    assert_int_equal(runnel_session_free(model, talk.session), RUNNEL_OK);
    assert_quiet(engine, 0);
}

/* A process that writes the same file over and over; killed at any moment it leaves a good one. */
_Noreturn static void child(void)
{
    runnel_engine *e = start_engine(NULL);
    runnel_model *m = load_model(e, quick_model(), NULL);
    struct capture capture = {0};
    runnel_request request = make_request(FIRST, 40, &capture);

    assert_int_equal(runnel_session_new(m, &request.session), RUNNEL_OK);
    run_request(e, m, &request);
    for (;;)
        export_to(e, m, request.session);
}

static void clean_folder(void)
{
    char command[96];

    snprintf(command, sizeof command, "rm -f %s/session.*", folder); /* what the killed one was writing */
    assert_int_equal(system(command), 0);
}

static void killed(void **state)
{
    (void)state;
    unlink(file_path);
    for (int i = 0; i < UNLESS_SLOW(8, 0); i++) {
        const struct timespec wait = {0, 3000000 + i * 1700000};
        runnel_session session;
        runnel_event end;
        pid_t pid = child_fork();

        if (pid == 0)
            child();
        while (access(file_path, R_OK) != 0) {
            child_runs(pid);
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
        nanosleep(&wait, NULL);
        child_kill(pid);
        end = import_from(engine, model, &session, NULL);
        assert_int_equal(end.type, RUNNEL_EVENT_DONE);
        assert_int_equal(runnel_session_free(model, session), RUNNEL_OK);
        unlink(file_path);
        clean_folder();
    }
    assert_quiet(engine, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forks),         cmocka_unit_test(forks_of_running),
        cmocka_unit_test(fork_limits),   cmocka_unit_test(there_and_back),
        cmocka_unit_test(between_turns), cmocka_unit_test(path_as_it_was),
        cmocka_unit_test(without_kv),    cmocka_unit_test(little_room),
        cmocka_unit_test(not_shared),    cmocka_unit_test(refused),
        cmocka_unit_test(another_model), cmocka_unit_test(turns_of_a_failed_import),
        cmocka_unit_test(cancelled),     cmocka_unit_test(pulled_and_noted),
        cmocka_unit_test(killed),        cmocka_unit_test(too_long_a_chat),
    };

    return run_cases(tests, setup, teardown);
}
