/* Loading: its events, its ends, its errors; many models. A gate in the allocator holds the loader's thread still, so
 * that what happens "during a load" does. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fixture.h"
#include "tests/actors/scratch.h"
#include "tests/base/whole_file.h"
#include "tests/model/model_edit.h"
#include "tests/support/shared.h"

#define PROMPT "Once upon a time"
#define MOST_MODELS 64

/* ---- The gate: allocations of threads other than the test's wait while it is shut ---- */

struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    pthread_t owner;
    bool shut;
    size_t at_least; /* smaller ones pass */
    size_t n_waiting;
};

static void *gated_alloc(void *user, size_t bytes, size_t alignment)
{
    struct gate *gate = user;
    void *ptr = NULL;

    pthread_mutex_lock(&gate->mutex);
    while (gate->shut && bytes >= gate->at_least && !pthread_equal(gate->owner, pthread_self())) {
        gate->n_waiting++;
        pthread_cond_broadcast(&gate->opened);
        pthread_cond_wait(&gate->opened, &gate->mutex);
        gate->n_waiting--;
    }
    pthread_mutex_unlock(&gate->mutex);
    return posix_memalign(&ptr, alignment < sizeof ptr ? sizeof ptr : alignment, bytes) == 0 ? ptr : NULL;
}

static void gated_free(void *user, void *ptr, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(ptr);
}

static void set_gate(struct gate *gate, bool shut)
{
    pthread_mutex_lock(&gate->mutex);
    gate->shut = shut;
    pthread_cond_broadcast(&gate->opened);
    pthread_mutex_unlock(&gate->mutex);
}

/* Until a thread has come to the gate. */
static void await_waiting(struct gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    while (gate->n_waiting == 0)
        pthread_cond_wait(&gate->opened, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

/* The loader stops where the backend takes its memory: after the file was opened and progress was told. */
static void shut_for_large(struct gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    gate->shut = true;
    gate->at_least = 1u << 20;
    pthread_mutex_unlock(&gate->mutex);
}

static void *open_later(void *user)
{
    const struct timespec while_ = {0, 30000000};

    nanosleep(&while_, NULL);
    set_gate(user, false);
    return NULL;
}

static runnel_engine *gated_engine(struct gate *gate)
{
    runnel_engine_options options;

    *gate = (struct gate){PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, pthread_self(), false, 0, 0};
    runnel_engine_options_default(&options);
    options.allocator = (runnel_allocator){gated_alloc, gated_free, gate};
    return start_engine(&options);
}

/* ---- What a load says ---- */

struct news {
    runnel_model *model;
    size_t n_progress, n_terminal, n_after;
    float fraction;
    bool monotone;
    runnel_load_state last;
    runnel_error error;
    void (*hook)(const struct news *, const runnel_load_event *);
};

static void on_load(void *user, const runnel_load_event *event)
{
    struct news *news = user;

    news->monotone = (news->n_progress + news->n_terminal == 0 || news->monotone) &&
                     event->fraction >= news->fraction && event->fraction <= 1.0f;
    news->fraction = event->fraction;
    news->n_after += news->n_terminal > 0;
    news->n_progress += event->state == RUNNEL_LOAD_PROGRESS;
    news->n_terminal += event->state != RUNNEL_LOAD_PROGRESS;
    news->last = event->state;
    assert_int_equal(event->error != NULL, event->state == RUNNEL_LOAD_FAILED);
    if (event->error != NULL)
        news->error = *event->error;
    if (news->model != NULL)
        assert_ptr_equal(event->model, news->model);
    if (news->hook != NULL)
        news->hook(news, event);
}

static runnel_model_options told_to(struct news *news)
{
    runnel_model_options options;

    runnel_model_options_default(&options);
    options.on_load = on_load;
    options.load_user = news;
    return options;
}

static void run_until_progress(runnel_engine *engine, const struct news *news)
{
    for (int i = 0; i < 600 && news->n_progress == 0; i++) {
        runnel_engine_wait(engine, 100);
        runnel_engine_dispatch(engine, 0);
    }
    assert_true(news->n_progress > 0);
    assert_int_equal(news->n_terminal, 0);
}

static void run_until_told(runnel_engine *engine, const struct news *news)
{
    for (int i = 0; i < 600 && news->n_terminal == 0; i++) {
        runnel_engine_wait(engine, 100);
        runnel_engine_dispatch(engine, 0);
    }
    assert_int_equal(news->n_terminal, 1);
}

static runnel_model *begin(runnel_engine *engine, const char *path, const runnel_model_options *options)
{
    runnel_model *model = NULL;
    runnel_error error;

    if (runnel_model_load(engine, path, options, &model, &error) != RUNNEL_OK)
        fail_msg("%s: %s", path, error.message);
    return model;
}

static void progress(void **state)
{
    struct gate gate;
    runnel_engine *engine = gated_engine(&gate);
    struct news news = {0};
    runnel_model_options options = told_to(&news);
    struct capture capture = {0};
    runnel_request request = make_request("Once", 3, &capture);
    runnel_model *model;

    (void)state;
    shut_for_large(&gate);
    news.model = model = begin(engine, BUNDLED_MODEL, &options);
    run_until_progress(engine, &news);
    assert_true(news.fraction > 0.0f && news.fraction < 1.0f);
    set_gate(&gate, false);
    run_until_told(engine, &news);
    assert_int_equal(news.last, RUNNEL_LOAD_READY);
    assert_true(news.monotone && news.fraction == 1.0f);
    runnel_model_cancel_load(model); /* too late: no effect */
    assert_int_equal(runnel_model_wait(model, 0, NULL), RUNNEL_OK);
    assert_int_equal(runnel_session_new(model, &request.session), RUNNEL_OK);
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    runnel_model_free(model);
    await_models(engine, 0);
    assert_int_equal(news.n_after, 0);
    capture_clear(&capture);
    runnel_engine_free(engine);
}

/* ---- Cancelling ---- */

static void cancelled(void **state)
{
    struct gate gate;
    runnel_engine *engine = gated_engine(&gate);

    (void)state;
    for (int way = 0; way < 3; way++) { /* cancel; free; both */
        struct news news = {0};
        runnel_model_options options = told_to(&news);
        runnel_error error;
        runnel_model *model;

        set_gate(&gate, true);
        news.model = model = begin(engine, BUNDLED_MODEL, &options);
        await_waiting(&gate); /* it has begun */
        assert_int_equal(runnel_model_wait(model, 0, &error), RUNNEL_TIMEOUT);
        assert_int_equal(runnel_model_wait(model, 20, &error), RUNNEL_TIMEOUT);
        if (way != 1)
            runnel_model_cancel_load(model);
        if (way != 0)
            runnel_model_free(model);
        runnel_engine_dispatch(engine, 0);
        assert_int_equal(news.n_terminal, 0);
        set_gate(&gate, false);
        if (way == 0) {
            assert_int_equal(runnel_model_wait(model, INT64_MAX, &error), RUNNEL_CANCELLED);
            assert_int_equal(error.status, RUNNEL_CANCELLED);
        }
        run_until_told(engine, &news);
        assert_int_equal(news.last, RUNNEL_LOAD_CANCELLED);
        if (way == 0)
            runnel_model_free(model);
        await_models(engine, 0);
        assert_int_equal(news.n_after, 0);
    }
    runnel_engine_free(engine);
}

/* A load that waits behind another ends when it is cancelled, not when that one does; freed, it is gone behind it. */
static void cancelled_in_the_queue(void **state)
{
    struct gate gate;
    runnel_engine *engine = gated_engine(&gate);
    struct news first = {0}, second = {0};
    runnel_model_options options = told_to(&first), queued = told_to(&second);
    runnel_error error;

    (void)state;
    set_gate(&gate, true);
    first.model = begin(engine, BUNDLED_MODEL, &options);
    await_waiting(&gate);
    second.model = begin(engine, BUNDLED_MODEL, &queued);
    assert_int_equal(runnel_model_wait(second.model, 0, NULL), RUNNEL_TIMEOUT);
    runnel_model_cancel_load(second.model);
    assert_int_equal(runnel_model_wait(second.model, 0, &error), RUNNEL_CANCELLED);
    runnel_model_cancel_load(second.model); /* again: no effect */
    run_until_told(engine, &second);
    assert_int_equal(second.last, RUNNEL_LOAD_CANCELLED);
    assert_int_equal(second.n_progress, 0);
    runnel_model_free(second.model);
    assert_int_equal(runnel_model_wait(first.model, 0, NULL), RUNNEL_TIMEOUT);
    set_gate(&gate, false);
    assert_int_equal(runnel_model_wait(first.model, -1, NULL), RUNNEL_OK);
    await_models(engine, 1);
    runnel_model_free(first.model);
    await_models(engine, 0);
    assert_int_equal(second.n_after, 0);
    runnel_engine_free(engine);
}

/* Likewise one that is freed there. */
static void freed_in_the_queue(void **state)
{
    struct gate gate;
    runnel_engine *engine = gated_engine(&gate);
    struct news first = {0}, second = {0};
    runnel_model_options options = told_to(&first), queued = told_to(&second);

    (void)state;
    set_gate(&gate, true);
    first.model = begin(engine, BUNDLED_MODEL, &options);
    await_waiting(&gate);
    second.model = begin(engine, BUNDLED_MODEL, &queued);
    runnel_model_free(second.model);
    run_until_told(engine, &second);
    assert_int_equal(second.last, RUNNEL_LOAD_CANCELLED);
    assert_int_equal(second.n_progress, 0);
    assert_int_equal(runnel_model_wait(first.model, 0, NULL), RUNNEL_TIMEOUT);
    set_gate(&gate, false);
    assert_int_equal(runnel_model_wait(first.model, -1, NULL), RUNNEL_OK);
    await_models(engine, 1);
    runnel_model_free(first.model);
    await_models(engine, 0);
    assert_int_equal(second.n_after, 0);
    runnel_engine_free(engine);
}

/* The path is relative, and the process goes elsewhere before the loader comes to open the file. */
static void path_as_it_was(void **state)
{
    struct gate gate;
    runnel_engine *engine = gated_engine(&gate);
    int home = open(".", O_RDONLY | O_DIRECTORY);
    runnel_model *model, *behind;
    runnel_error error;

    (void)state;
    assert_true(home >= 0 && BUNDLED_MODEL[0] != '/');
    set_gate(&gate, true);
    model = begin(engine, BUNDLED_MODEL, NULL);
    behind = begin(engine, BUNDLED_MODEL, NULL);
    assert_int_equal(chdir("/tmp"), 0);
    set_gate(&gate, false);
    if (runnel_model_wait(model, -1, &error) != RUNNEL_OK || runnel_model_wait(behind, -1, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    assert_int_equal(fchdir(home), 0);
    close(home);
    runnel_model_free(model);
    runnel_model_free(behind);
    await_models(engine, 0);
    runnel_engine_free(engine);
}

/* Cancelled by its own progress event: the rest of the load is not done. */
static void cancel_from_progress(const struct news *news, const runnel_load_event *event)
{
    if (event->state == RUNNEL_LOAD_PROGRESS)
        runnel_model_cancel_load(event->model);
    else
        assert_true(event->fraction < 1.0f && news->monotone);
}

static void cancelled_in_callback(void **state)
{
    struct gate gate;
    runnel_engine *engine = gated_engine(&gate);
    struct news news = {.hook = cancel_from_progress};
    runnel_model_options options = told_to(&news);
    runnel_model *model;

    (void)state;
    shut_for_large(&gate);
    model = begin(engine, BUNDLED_MODEL, &options);
    run_until_progress(engine, &news);
    set_gate(&gate, false);
    run_until_told(engine, &news);
    assert_int_equal(news.last, RUNNEL_LOAD_CANCELLED);
    runnel_model_free(model);
    await_models(engine, 0);
    runnel_engine_free(engine);
}

/* The engine goes while one load runs and others wait for the loader: each is told once. */
static void engine_freed(void **state)
{
    struct gate gate;
    runnel_engine *engine = gated_engine(&gate);
    struct news news[5] = {{0}};
    pthread_t opener;

    (void)state;
    set_gate(&gate, true);
    for (int i = 0; i < 5; i++) {
        runnel_model_options options = told_to(&news[i]);

        news[i].model = begin(engine, BUNDLED_MODEL, &options);
    }
    runnel_model_free(news[1].model);
    assert_int_equal(pthread_create(&opener, NULL, open_later, &gate), 0);
    runnel_engine_free(engine);
    pthread_join(opener, NULL);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(news[i].n_terminal, 1);
        assert_int_equal(news[i].last, RUNNEL_LOAD_CANCELLED);
    }
}

/* ---- Failing ---- */

/* The load fails, in event and wait alike, and the sentence has `name` in it. */
static runnel_status fails(runnel_engine *engine, const char *path, runnel_model_options options, const char *name)
{
    struct news news = {0};
    runnel_error error;
    runnel_status status;
    size_t count;

    options.on_load = on_load;
    options.load_user = &news;
    news.model = begin(engine, path, &options);
    status = runnel_model_wait(news.model, -1, &error);
    assert_int_not_equal(status, RUNNEL_OK);
    run_until_told(engine, &news);
    assert_int_equal(news.last, RUNNEL_LOAD_FAILED);
    assert_int_equal(news.error.status, status);
    assert_string_equal(news.error.message, error.message);
    if (strstr(error.message, name) == NULL)
        fail_msg("\"%s\" does not name %s", error.message, name);
    assert_int_equal(runnel_tokenize(news.model, "a", 1, 0, NULL, 0, &count), RUNNEL_STATE);
    runnel_model_free(news.model);
    await_models(engine, 0);
    assert_int_equal(news.n_after, 0);
    return status;
}

static void bad_files(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options;
    struct scratch scratch;
    size_t n;
    char *bytes = read_whole_new(BUNDLED_MODEL, &n);

    (void)state;
    runnel_model_options_default(&options);
    scratch_open(&scratch);
    fails(engine, scratch_save(&scratch, "half.gguf", bytes, n / 2), options, "half.gguf");
    fails(engine, scratch_save(&scratch, "head.gguf", bytes, 100), options, "head.gguf");
    fails(engine, scratch_save(&scratch, "short.gguf", bytes, n - 1), options, "short.gguf");
    fails(engine, scratch_save(&scratch, "empty.gguf", bytes, 0), options, "empty.gguf");
    fails(engine, scratch_save(&scratch, "text.gguf", "once upon a time there was", 26), options, "text.gguf");
    fails(engine, "examples/models", options, "examples/models");
    options.kv_bytes = 1;
    assert_int_equal(fails(engine, BUNDLED_MODEL, options, "runnel-tiny-Q8_0.gguf"), RUNNEL_INVALID);
    options.kv_bytes = 0;
    options.vocab_only = 1;
    fails(engine, scratch_save(&scratch, "vocab.gguf", bytes, 200), options, "vocab.gguf");
    free(bytes);
    scratch_close(&scratch);
    runnel_engine_free(engine);
}

static void unknown_architecture(void **state)
{
    static struct model_edit edit;
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options;
    struct scratch scratch;
    struct rn_heap heap;
    struct rn_gguf *gguf;
    struct writer writer = {0};

    (void)state;
    runnel_model_options_default(&options);
    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_gguf_open(&heap, BUNDLED_MODEL, &gguf, NULL), RUNNEL_OK);
    edit_from(&edit, gguf);
    edit_text(&edit, "general.architecture", "nonesuch");
    edit_write(&edit, &writer);
    rn_gguf_free(gguf);
    scratch_open(&scratch);
    assert_int_equal(fails(engine, scratch_save(&scratch, "odd.gguf", writer.bytes, writer.n), options, "odd.gguf"),
                     RUNNEL_UNSUPPORTED);
    w_free(&writer);
    scratch_close(&scratch);
    runnel_engine_free(engine);
}

static void count_merges(void *user, runnel_log_level level, const char *line)
{
    unsigned *n = user;

    *n += level == RUNNEL_LOG_WARNING && strstr(line, "other.gguf: no merge of the vocabulary joins") != NULL;
}

/* A list of merges that is another vocabulary's: the model loads, with a warning. */
static void merges_of_another(void **state)
{
    static struct model_edit edit;
    static const char merges[] = "\5\0\0\0\0\0\0\0zq qz";
    runnel_engine_options options;
    runnel_engine *engine;
    struct scratch scratch;
    struct rn_heap heap;
    struct rn_gguf *gguf;
    struct writer writer = {0};
    unsigned n = 0;

    (void)state;
    runnel_engine_options_default(&options);
    options.on_log = count_merges;
    options.log_user = &n;
    options.log_level = RUNNEL_LOG_WARNING;
    engine = start_engine(&options);
    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_gguf_open(&heap, BUNDLED_MODEL, &gguf, NULL), RUNNEL_OK);
    edit_from(&edit, gguf);
    for (uint32_t i = 0; i < edit.n_keys; i++)
        if (strcmp(edit.keys[i].name, "tokenizer.ggml.merges") == 0) {
            edit.keys[i].count = 1;
            edit.keys[i].data = merges;
            edit.keys[i].bytes = sizeof merges - 1;
        }
    edit_write(&edit, &writer);
    rn_gguf_free(gguf);
    scratch_open(&scratch);
    runnel_model_free(load_model(engine, BUNDLED_MODEL, NULL));
    assert_int_equal(n, 0);
    runnel_model_free(load_model(engine, scratch_save(&scratch, "other.gguf", writer.bytes, writer.n), NULL));
    assert_int_equal(n, 1);
    w_free(&writer);
    scratch_close(&scratch);
    runnel_engine_free(engine);
}

/* Every architecture there is loads, or is refused by name. */
static void all_architectures(void **state)
{
    runnel_engine *engine;
    char root[300], path[600];
    DIR *directory;
    size_t n_refused = 0, n_loaded = 0;

    (void)state;
    if (!shared_find("oracles/arch", root, sizeof root))
        skip();
    engine = start_engine(NULL);
    directory = opendir(root);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        runnel_model *model;
        runnel_error error;
        runnel_status status;

        if (strstr(entry->d_name, ".gguf") == NULL)
            continue;
        snprintf(path, sizeof path, "%s/%s", root, entry->d_name);
        model = begin(engine, path, NULL);
        status = runnel_model_wait(model, -1, &error);
        if (status != RUNNEL_OK) {
            assert_int_equal(status, RUNNEL_UNSUPPORTED);
            if (strstr(error.message, entry->d_name) == NULL)
                fail_msg("\"%s\" does not name %s", error.message, entry->d_name);
        }
        n_refused += status != RUNNEL_OK;
        n_loaded += status == RUNNEL_OK;
        runnel_model_free(model);
    }
    closedir(directory);
    assert_true(n_loaded >= 1 && n_loaded + n_refused >= 60);
    await_models(engine, 0);
    runnel_engine_free(engine);
}

/* What the call itself refuses: nothing is loaded, nothing is told. */
static void refused(runnel_engine *engine, const char *path, const runnel_model_options *options, runnel_status status,
                    const char *word)
{
    runnel_model *model = NULL;
    runnel_error error;

    assert_int_equal(runnel_model_load(engine, path, options, &model, &error), status);
    assert_int_equal(error.status, status);
    assert_null(model);
    if (strstr(error.message, word) == NULL)
        fail_msg("\"%s\" does not say %s", error.message, word);
}

static void bad_options(void **state)
{
    static const char *const no_devices[] = {
        "abacus", "", ":0", "cp", "cpus", "cuda:", "reference:x", "reference:0x", "reference:99999999999"};
    runnel_engine *engine = start_engine(NULL);
    struct news news = {0};
    runnel_model_options good = told_to(&news), bad = good;
    char far[1000];

    (void)state;
    refused(engine, "no/such.gguf", &good, RUNNEL_IO, "no/such.gguf");
    for (size_t i = 0; i + 11 < sizeof far; i++)
        far[i] = "/far"[i % 4];
    strcpy(far + sizeof far - 11, "/lost.gguf");
    refused(engine, far, &good, RUNNEL_IO, "/lost.gguf: cannot be opened: No such file or directory");
    bad.draft_path = far;
    refused(engine, BUNDLED_MODEL, &bad, RUNNEL_IO, "/lost.gguf: cannot be opened: No such file or directory");
    bad = good;
    refused(engine, NULL, &good, RUNNEL_INVALID, "path");
    for (size_t i = 0; i < sizeof no_devices / sizeof no_devices[0]; i++) {
        bad.device = no_devices[i];
        refused(engine, BUNDLED_MODEL, &bad, RUNNEL_UNSUPPORTED, no_devices[i]);
        refused(engine, BUNDLED_MODEL, &bad, RUNNEL_UNSUPPORTED, "use \"auto\", \"cpu\", \"cuda\" or \"reference\"");
    }
    bad.device = "reference:1";
    refused(engine, BUNDLED_MODEL, &bad, RUNNEL_UNSUPPORTED, "\"reference:1\" is not there");
    bad = good;
    bad.struct_size = 0;
    refused(engine, BUNDLED_MODEL, &bad, RUNNEL_INVALID, "struct_size");
    bad.struct_size = sizeof bad + 1;
    refused(engine, BUNDLED_MODEL, &bad, RUNNEL_INVALID, "struct_size");
    bad = good;
    bad.cache_dir = "";
    refused(engine, BUNDLED_MODEL, &bad, RUNNEL_INVALID, "cache_dir is empty");
    bad = good;
    bad.weights_dir = "";
    refused(engine, BUNDLED_MODEL, &bad, RUNNEL_INVALID, "weights_dir is empty");
    bad = good;
    bad.kv_type = (runnel_kv_type)9;
    refused(engine, BUNDLED_MODEL, &bad, RUNNEL_INVALID, "kv_type");
    bad = good;
    bad.batch_tokens = 1;
    refused(engine, BUNDLED_MODEL, &bad, RUNNEL_INVALID, "batch_tokens");
    bad.batch_tokens = 1u << 30;
    refused(engine, BUNDLED_MODEL, &bad, RUNNEL_INVALID, "batch_tokens");
    runnel_engine_wait(engine, 5);
    assert_int_equal(runnel_engine_dispatch(engine, 0), 0);
    await_models(engine, 0);
    runnel_engine_free(engine);
}

/* ---- Not ready, and vocabulary only ---- */

static void not_ready(void **state)
{
    struct gate gate;
    runnel_engine *engine = gated_engine(&gate);
    runnel_model *model;
    runnel_model_info info = {.struct_size = sizeof info};
    struct capture capture = {0};
    runnel_request request = make_request(PROMPT, 3, &capture);
    runnel_session session;
    size_t count;

    (void)state;
    set_gate(&gate, true);
    model = begin(engine, BUNDLED_MODEL, NULL);
    assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_STATE);
    assert_int_equal(runnel_session_new(model, &session), RUNNEL_STATE);
    assert_int_equal(runnel_tokenize(model, "a", 1, 0, NULL, 0, &count), RUNNEL_STATE);
    assert_int_equal(runnel_model_get_info(model, &info), RUNNEL_STATE);
    set_gate(&gate, false);
    assert_int_equal(runnel_model_wait(model, -1, NULL), RUNNEL_OK);
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    capture_clear(&capture);
    runnel_engine_free(engine);
}

static void vocab_only(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options;
    runnel_model *model, *whole;
    runnel_model_info info = {.struct_size = sizeof info};
    runnel_request request = make_request(PROMPT, 3, NULL);
    runnel_session session;
    runnel_error error;
    int32_t a[64], b[64];
    size_t n, n_whole;

    (void)state;
    runnel_model_options_default(&options);
    options.vocab_only = 1;
    model = load_model(engine, BUNDLED_MODEL, &options);
    whole = load_model(engine, BUNDLED_MODEL, NULL);
    assert_int_equal(runnel_tokenize(model, PROMPT, strlen(PROMPT), 0, a, 64, &n), RUNNEL_OK);
    assert_int_equal(runnel_tokenize(whole, PROMPT, strlen(PROMPT), 0, b, 64, &n_whole), RUNNEL_OK);
    assert_int_equal(n, n_whole);
    assert_memory_equal(a, b, n * sizeof a[0]);
    assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, &error), RUNNEL_STATE);
    assert_int_equal(runnel_session_new(model, &session), RUNNEL_STATE);
    assert_int_equal(runnel_model_get_info(model, &info), RUNNEL_OK);
    assert_int_equal(info.kv_bytes, 0);
    runnel_model_free(model);
    await_models(engine, 1);
    runnel_engine_free(engine);
}

/* ---- Many ---- */

static void too_many(void **state)
{
    struct gate gate;
    runnel_engine *engine = gated_engine(&gate);
    runnel_model *models[MOST_MODELS], *extra = NULL;
    runnel_error error;

    (void)state;
    set_gate(&gate, true);
    for (int i = 0; i < MOST_MODELS; i++)
        models[i] = begin(engine, BUNDLED_MODEL, NULL);
    assert_int_equal(runnel_model_load(engine, BUNDLED_MODEL, NULL, &extra, &error), RUNNEL_BUSY);
    assert_null(extra);
    for (int i = 0; i < MOST_MODELS; i++)
        runnel_model_free(models[i]);
    set_gate(&gate, false);
    await_models(engine, 0);
    extra = load_model(engine, BUNDLED_MODEL, NULL);
    runnel_model_free(extra);
    await_models(engine, 0);
    runnel_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress),
        cmocka_unit_test(cancelled),
        cmocka_unit_test(cancelled_in_callback),
        cmocka_unit_test(engine_freed),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(unknown_architecture),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(merges_of_another),
        cmocka_unit_test(all_architectures),
        cmocka_unit_test(not_ready),
        cmocka_unit_test(vocab_only),
        cmocka_unit_test(too_many),
        cmocka_unit_test(cancelled_in_the_queue),
        cmocka_unit_test(freed_in_the_queue),
        cmocka_unit_test(path_as_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
