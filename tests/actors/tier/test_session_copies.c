/* Sessions' files on a device that takes its time to copy blocks: the oracle model with lists of copies that end when
 * the test lets them, and the bundled model with a device that copies on a thread of its own. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "actors/tier/session_job.h"
#include "tests/actors/fixture.h"
#include "runnel_files.h"
#include "tests/base/whole_file.h"
#include "tests/sim/manual.h"

#define BLOCK 8
#define N_BLOCKS 29 /* of the session's: three pieces and a half */
#define N_TEXT (BLOCK * (N_BLOCKS - 1) + 3)
#define N_LISTS ((N_BLOCKS + RN_JOB_BLOCKS - 1) / RN_JOB_BLOCKS)
#define MAX_TOKENS (BLOCK * (N_BLOCKS + 3))
#define FILE_BYTES (16 << 10)

static char folder[] = "/tmp/runnel-copies-XXXXXX";
static char path[64], other_path[64];
static char text[N_TEXT + 1];
static bool held; /* copies wait for the test */

static bool hold(void *user, struct oracle *of, const struct rn_host_copies *copies)
{
    (void)user;
    (void)of;
    assert_in_range(copies->n, 1, RN_JOB_BLOCKS);
    return held;
}

static int setup(void **state)
{
    runnel_engine_options options;
    runnel_model_options model_options;
    const struct manual_plan plan = {
        .limits = {.max_rows = 64,
                   .max_seqs = 4,
                   .max_outs = 8,
                   .n_blocks = 4 * (N_BLOCKS + 3),
                   .block_tokens = BLOCK,
                   .context_tokens = MAX_TOKENS},
        .n_letters = 4,
        .options = &options,
        .model = &model_options,
        .submitted = manual_complete_at_once,
    };

    (void)state;
    runnel_engine_options_default(&options);
    options.max_streams = 4;
    options.max_sessions = 4;
    runnel_model_options_default(&model_options);
    model_options.no_prefix_cache = 1; /* blocks that are held are sessions' */
    manual_begin(&plan);
    manual.oracle->copying = hold;
    held = false;
    for (int i = 0; i < N_TEXT; i++)
        text[i] = (char)('a' + (i * i + i / 7) % 26);
    strcpy(folder + sizeof folder - 7, "XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/session", folder);
    snprintf(other_path, sizeof other_path, "%s/other", folder);
    return 0;
}

static int teardown(void **state)
{
    manual_end(state);
    unlink(path);
    unlink(other_path);
    assert_int_equal(rmdir(folder), 0); /* nothing temporary is left */
    return 0;
}

static void settle(void)
{
    manual_settle(manual.engine);
    manual_check(manual.model, manual.oracle);
}

/* A turn of the session, to its end, while copies may be under way; what it read from the cache. */
static uint64_t say(runnel_session session, const char *past, const char *prompt)
{
    struct capture capture = {0};
    runnel_request request = make_request(prompt, 2, &capture);
    struct oracle_chain chain;
    uint64_t cached;

    request.session = session;
    assert_int_equal(runnel_generate(manual.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    settle();
    assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
    oracle_chain_init(&chain, manual.oracle->salt);
    for (const char *c = past; *c != '\0'; c++)
        oracle_chain_push(&chain, *c);
    for (const char *c = prompt; *c != '\0'; c++)
        oracle_chain_push(&chain, *c);
    for (size_t i = 0; i < capture.n_tokens; i++) {
        assert_int_equal(capture.tokens[i], oracle_chain_next(&chain, &manual.oracle->alphabet));
        oracle_chain_push(&chain, capture.tokens[i]);
    }
    cached = capture.last.usage.cached_tokens;
    capture_clear(&capture);
    return cached;
}

/* A session whose blocks are N_BLOCKS; what it holds is written to `past`. */
static runnel_session talked(char past[MAX_TOKENS])
{
    struct capture capture = {0};
    runnel_request request = make_request(text, 2, &capture);
    runnel_session session;

    assert_int_equal(runnel_session_new(manual.model, &session), RUNNEL_OK);
    request.session = session;
    assert_int_equal(runnel_generate(manual.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    settle();
    assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
    strcpy(past, text);
    for (size_t i = 0; i < capture.n_tokens; i++)
        past[N_TEXT + i] = (char)capture.tokens[i];
    past[N_TEXT + capture.n_tokens] = '\0';
    assert_int_equal(manual.model->context.sessions[(uint32_t)session.id].n_blocks, N_BLOCKS);
    capture_clear(&capture);
    return session;
}

/* Begins a job, as far as it comes without copies. */
static runnel_stream begin(bool exports, runnel_session *session, const char *to, struct capture *capture)
{
    runnel_session_file file;
    runnel_stream stream;

    memset(capture, 0, sizeof *capture);
    runnel_session_file_default(&file);
    file.path = to;
    file.on_event = capture_event;
    file.user = capture;
    assert_int_equal(exports ? runnel_session_export(manual.model, *session, &file, &stream, NULL)
                             : runnel_session_import(manual.model, &file, session, &stream, NULL),
                     RUNNEL_OK);
    settle();
    return stream;
}

static void end_copies(void)
{
    assert_non_null(manual.oracle->first_copies);
    assert_null(manual.oracle->first_copies->next); /* one list of a model's jobs at a time */
    oracle_copy(manual.oracle);
    settle();
}

static void end_all_copies(uint32_t lists)
{
    for (; lists > 0; lists--)
        end_copies();
    assert_null(manual.oracle->first_copies);
}

static void assert_blocks_used(uint32_t n)
{
    const struct rn_block_pool *pool = &manual.model->tier.cache.blocks.pool;

    assert_int_equal(pool->n_blocks - pool->n_free, n);
}

/* Others run while the device copies, and the session goes on; the file is the one that is written at once, and what
 * comes out of it is the session. */
static void slow(void **state)
{
    static unsigned char files[2][FILE_BYTES];
    char past[MAX_TOKENS];
    runnel_session session = talked(past), read;
    struct capture capture;
    size_t n;

    (void)state;
    begin(true, &session, path, &capture);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
    n = read_whole(path, files[0], sizeof files[0]);
    held = true;
    begin(true, &session, other_path, &capture);
    for (uint32_t i = 0; i < N_LISTS; i++) {
        assert_int_equal(capture.n_events, 0);
        assert_int_not_equal(access(other_path, F_OK), 0);
        assert_int_equal(say((runnel_session){0}, "", "ab"), 0);
        if (i == 1)
            assert_int_equal(say(session, past, "cd"), strlen(past) - 1);
        end_copies();
    }
    assert_null(manual.oracle->first_copies);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(capture.last.usage.cached_tokens, strlen(past) - 1);
    assert_int_equal(read_whole(other_path, files[1], sizeof files[1]), n);
    assert_memory_equal(files[0], files[1], n);
    begin(false, &read, other_path, &capture);
    for (uint32_t i = 0; i < N_LISTS; i++) {
        assert_int_equal(capture.n_events, 0);
        assert_int_equal(say((runnel_session){0}, "", "ba"), 0);
        end_copies();
    }
    assert_null(manual.oracle->first_copies);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(say(read, past, "xy"), strlen(past) - 1);
}

/* Something happens while each list of an export, then of an import, is under way: the job ends when the device has let
 * the blocks go; there is no file and no session, and nothing is kept. */
static void spoil_each_list(void (*spoil)(runnel_stream stream, struct capture *capture, bool exports),
                            runnel_event_type end)
{
    char past[MAX_TOKENS];
    runnel_session session = talked(past), read;
    struct capture capture;

    begin(true, &session, path, &capture);
    held = true;
    for (int exports = 0; exports < 2; exports++)
        for (uint32_t i = 0; i < N_LISTS; i++) {
            runnel_stream stream = begin(exports, exports ? &session : &read, exports ? other_path : path, &capture);

            for (uint32_t k = 0; k < i; k++)
                end_copies();
            spoil(stream, &capture, exports);
            end_copies();
            assert_null(manual.oracle->first_copies);
            assert_int_equal(capture.last.type, end);
            assert_int_not_equal(access(other_path, F_OK), 0);
            assert_blocks_used(N_BLOCKS);
            if (end == RUNNEL_EVENT_FAILED)
                assert_int_equal(capture.last.status, RUNNEL_DEVICE);
            if (!exports)
                assert_int_equal(runnel_session_free(manual.model, read), RUNNEL_NOT_FOUND);
        }
    assert_int_equal(say(session, past, "xy"), strlen(past) - 1);
}

static void let_fail(runnel_stream stream, struct capture *capture, bool exports)
{
    (void)stream;
    (void)capture;
    (void)exports;
    manual.oracle->copy_fails = true;
}

static void failing(void **state)
{
    (void)state;
    spoil_each_list(let_fail, RUNNEL_EVENT_FAILED);
}

/* Not before the device is done. */
static void cancel(runnel_stream stream, struct capture *capture, bool exports)
{
    assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
    settle();
    assert_int_equal(capture->n_events, 0);
    assert_blocks_used(exports ? N_BLOCKS : 2 * N_BLOCKS);
}

static void cancelled(void **state)
{
    (void)state;
    spoil_each_list(cancel, RUNNEL_EVENT_CANCELLED);
}

/* One after the other, in their order; one that is cancelled meanwhile copies nothing. */
static void several(void **state)
{
    static unsigned char files[2][FILE_BYTES];
    char past[MAX_TOKENS];
    runnel_session session = talked(past), read;
    struct capture captures[3];
    runnel_stream stream;
    size_t n;

    (void)state;
    begin(true, &session, path, &captures[0]);
    n = read_whole(path, files[0], sizeof files[0]);
    held = true;
    begin(true, &session, other_path, &captures[0]);
    stream = begin(true, &session, path, &captures[1]);
    begin(false, &read, path, &captures[2]); /* as the first export has left it */
    assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
    settle();
    end_all_copies(2 * N_LISTS);
    assert_int_equal(captures[0].last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(captures[1].last.type, RUNNEL_EVENT_CANCELLED);
    assert_int_equal(captures[2].last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(read_whole(other_path, files[1], sizeof files[1]), n);
    assert_memory_equal(files[0], files[1], n);
    assert_int_equal(say(read, past, "xy"), strlen(past) - 1);
}

/* The file fails beside a list that is under way: a disk that is full, a block that is damaged. */
static void bad_file(void **state)
{
    static unsigned char bytes[FILE_BYTES];
    char past[MAX_TOKENS];
    runnel_session session = talked(past), read;
    struct rlimit limit, all;
    struct capture capture;
    size_t n;

    (void)state;
    begin(true, &session, path, &capture);
    n = read_whole(path, bytes, sizeof bytes);
    held = true;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    limit = (struct rlimit){2 * n / 3, all.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    begin(true, &session, other_path, &capture);
    end_all_copies(3); /* the second piece does not fit; the third one is being copied then */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_FAILED);
    assert_int_equal(capture.last.status, RUNNEL_IO);
    assert_blocks_used(N_BLOCKS);
    bytes[n - (N_BLOCKS - RN_JOB_BLOCKS) * (BLOCK * 8 + 16)] ^= 1; /* the first block of the second piece */
    write_whole(path, bytes, n);
    begin(false, &read, path, &capture);
    assert_int_equal(capture.n_events, 0); /* the device has the first piece */
    assert_blocks_used(2 * N_BLOCKS);
    end_all_copies(1);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_FAILED);
    assert_int_equal(capture.last.status, RUNNEL_FORMAT);
    assert_blocks_used(N_BLOCKS);
    assert_int_equal(say(session, past, "xy"), strlen(past) - 1);
}

/* ---- A device that copies on a thread of its own ---- */

#define TALKS 3

static struct {
    struct rn_backend *backend;
    const struct rn_backend_ops *ops; /* the backend's own */
    struct rn_backend_ops slow;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rn_host_copies *first;
    bool ending;
} device = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void copy_later(struct rn_backend *backend, struct rn_host_copies *copies)
{
    (void)backend;
    pthread_mutex_lock(&device.lock);
    copies->next = device.first;
    device.first = copies;
    pthread_cond_signal(&device.changed);
    pthread_mutex_unlock(&device.lock);
}

static void *device_main(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&device.lock);
    while (!device.ending || device.first != NULL) {
        struct rn_host_copies *copies = device.first;

        if (copies == NULL) {
            pthread_cond_wait(&device.changed, &device.lock);
            continue;
        }
        device.first = copies->next;
        pthread_mutex_unlock(&device.lock);
        device.ops->copy_async(device.backend, copies);
        pthread_mutex_lock(&device.lock);
    }
    pthread_mutex_unlock(&device.lock);
    return NULL;
}

static void begin_device(struct rn_backend *backend)
{
    device.backend = backend;
    device.ops = backend->ops;
    device.slow = *backend->ops;
    device.slow.copy_async = copy_later;
    device.ending = false;
    backend->ops = &device.slow;
    assert_int_equal(pthread_create(&device.thread, NULL, device_main, NULL), 0);
}

static void end_device(void)
{
    pthread_mutex_lock(&device.lock);
    device.ending = true;
    pthread_cond_signal(&device.changed);
    pthread_mutex_unlock(&device.lock);
    pthread_join(device.thread, NULL);
}

static void turn(runnel_engine *threads, runnel_model *tiny, runnel_session session, const char *prompt,
                 struct capture *capture)
{
    runnel_request request = make_request(prompt, 6, capture);

    memset(capture, 0, sizeof *capture);
    request.session = session;
    request.ignore_eos = 1;
    assert_int_equal(run_request(threads, tiny, &request), RUNNEL_EVENT_DONE);
}

/* Sessions of a real model go to their files and back, all at once, and go on as they would have. */
static void other_thread(void **state)
{
    static const char *const tales[TALKS] = {"Once upon a time", "The old fox said", "In the deep wood"};
    char paths[TALKS][80], tale[600] = "";
    struct capture files[TALKS], here, there;
    runnel_session sessions[TALKS], read[TALKS];
    runnel_engine *threads = start_engine(NULL);
    runnel_model *tiny = load_model(threads, quick_model(), NULL);

    (void)state;
    begin_device(tiny->context.backend);
    for (int i = 0; i < TALKS; i++) {
        while (strlen(tale) + strlen(tales[i]) + 2 < sizeof tale)
            strcat(strcat(tale, tales[i]), " ");
        assert_int_equal(runnel_session_new(tiny, &sessions[i]), RUNNEL_OK);
        turn(threads, tiny, sessions[i], tale, &here);
        capture_clear(&here);
        snprintf(paths[i], sizeof paths[i], "%s/%d", folder, i);
        tale[0] = '\0';
    }
    for (int exports = 1; exports >= 0; exports--) {
        for (int i = 0; i < TALKS; i++) {
            runnel_session_file file;

            memset(&files[i], 0, sizeof files[i]);
            runnel_session_file_default(&file);
            file.path = paths[i];
            file.on_event = capture_event;
            file.user = &files[i];
            assert_int_equal(exports ? runnel_session_export(tiny, sessions[i], &file, &(runnel_stream){0}, NULL)
                                     : runnel_session_import(tiny, &file, &read[i], &(runnel_stream){0}, NULL),
                             RUNNEL_OK);
        }
        for (int i = 0; i < TALKS; i++) {
            run_until_end(threads, &files[i]);
            assert_int_equal(files[i].last.type, RUNNEL_EVENT_DONE);
        }
    }
    for (int i = 0; i < TALKS; i++) {
        turn(threads, tiny, sessions[i], " Then", &here);
        turn(threads, tiny, read[i], " Then", &there);
        assert_int_equal(there.last.usage.cached_tokens, here.last.usage.cached_tokens);
        assert_string_equal(there.text, here.text);
        capture_clear(&here);
        capture_clear(&there);
        unlink(paths[i]);
    }
    end_device();
    tiny->context.backend->ops = device.ops;
    runnel_engine_free(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(slow, setup, teardown),
        cmocka_unit_test_setup_teardown(failing, setup, teardown),
        cmocka_unit_test_setup_teardown(cancelled, setup, teardown),
        cmocka_unit_test_setup_teardown(several, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_file, setup, teardown),
        cmocka_unit_test_setup_teardown(other_thread, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
