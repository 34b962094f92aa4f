/* A host's signals: no thread of the library takes one, but for those that it raises by a fault of its own. And a
 * host's floating-point environment: no thread of the library has it. */
#define _GNU_SOURCE /* feenableexcept */
#include <ctype.h>
#include <dirent.h>
#include <fenv.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fixture.h"
#include "runnel_files.h"
#include "tests/actors/scratch.h"

#define MOST 64

static pid_t own[MOST]; /* threads that are there without the library: the host's, a sanitizer's */
static int n_own;

static int list(pid_t *threads)
{
    DIR *folder = opendir("/proc/self/task");
    int n = 0;

    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (isdigit((unsigned char)entry->d_name[0]) && n < MOST)
            threads[n++] = atoi(entry->d_name);
    closedir(folder);
    return n;
}

static bool is_own(pid_t thread)
{
    for (int i = 0; i < n_own; i++)
        if (own[i] == thread)
            return true;
    return false;
}

/* Bit n - 1: signal n. 0: the thread has gone meanwhile. */
static unsigned long long blocked_by(pid_t thread)
{
    unsigned long long bits = 0;
    char path[64], line[256];
    FILE *file;

    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)thread);
    file = fopen(path, "r");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "SigBlk: %llx", &bits) == 1)
            break;
    fclose(file);
    return bits;
}

/* Until it has begun to run, the C library has all blocked. */
static unsigned long long blocked_when_begun(pid_t thread)
{
    const struct timespec millisecond = {0, 1000000};
    unsigned long long bits = blocked_by(thread);

    for (int i = 0; i < 60000 && (bits >> (SIGILL - 1) & 1) != 0; i++) {
        nanosleep(&millisecond, NULL);
        bits = blocked_by(thread);
    }
    return bits;
}

/* Each thread of the library, of which there are n. */
static void assert_blocked(int n)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    pid_t threads[MOST];
    int n_threads = list(threads), n_library = 0;
    sigset_t mine;

    for (int i = 0; i < n_threads; i++) {
        unsigned long long bits;

        if (is_own(threads[i]))
            continue;
        bits = blocked_when_begun(threads[i]);
        n_library++;
        for (int s = 1; s <= SIGRTMAX; s++) {
            bool fault = false, kept = s == SIGKILL || s == SIGSTOP || (s >= 32 && s < SIGRTMIN); /* nobody can */

            for (size_t k = 0; k < sizeof faults / sizeof faults[0]; k++)
                fault |= faults[k] == s;
            if (!kept && (bits >> (s - 1) & 1) == fault)
                fail_msg("thread %d: signal %d is %s", (int)threads[i], s, fault ? "blocked" : "not blocked");
        }
    }
    assert_int_equal(n_library, n);
    pthread_sigmask(SIG_SETMASK, NULL, &mine); /* the host's are as they were */
    for (int s = 1; s <= SIGRTMAX; s++)
        assert_int_equal(sigismember(&mine, s) == 1, s == SIGUSR2);
}

static void on_trace(void *user, const runnel_trace_event *event)
{
    (void)user;
    (void)event;
}

static void *nothing(void *arg)
{
    return arg;
}

/* With the first thread a sanitizer's own may begin. */
static void list_own(void)
{
    pthread_t first;

    assert_int_equal(pthread_create(&first, NULL, nothing, NULL), 0);
    pthread_join(first, NULL);
    n_own = list(own);
}

/* Two schedulers, the worker, the delivery, the tracer, a team of two; a mover and who compiles grammars; a
 * training. */
static void signals_are_the_hosts(void **state)
{
    static char corpus[40000];
    runnel_training_progress now = {.struct_size = sizeof now};
    runnel_engine_options options;
    runnel_model_options model_options;
    runnel_eagle_options eagle;
    runnel_engine *engine;
    runnel_training *training;
    struct scratch scratch;
    char head[128];
    sigset_t usr2;
    int n = 2 + 1 + 1 + 1 + 2;

    (void)state;
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &usr2, NULL);
    list_own();
    runnel_engine_options_default(&options);
    options.scheduler_threads = 2;
    options.compute_threads = 2;
    options.delivery = RUNNEL_DELIVER_THREAD;
    options.on_trace = on_trace;
    assert_int_equal(runnel_engine_new(&options, &engine, NULL), RUNNEL_OK);
    assert_blocked(n);
    runnel_model_options_default(&model_options);
    model_options.cache_warm_bytes = 1 << 20;
    load_model(engine, quick_model(), &model_options);
    assert_blocked(n + 2);
    for (size_t i = 0; i < sizeof corpus - 1; i++)
        corpus[i] = "a fox ran by the sea and "[i % 25];
    runnel_eagle_options_default(&eagle);
    eagle.steps = 100000;
    eagle.text_tokens = 40;
    eagle.texts = 1;
    scratch_open(&scratch);
    snprintf(head, sizeof head, "%s/head.gguf", scratch.directory);
    assert_int_equal(
        runnel_eagle_train(engine, quick_model(), corpus, sizeof corpus - 1, head, &eagle, &training, NULL), RUNNEL_OK);
    while (now.step == 0 && now.state == RUNNEL_TRAINING_RUNNING)
        runnel_training_wait(training, 50, &now, NULL);
    assert_int_equal(now.state, RUNNEL_TRAINING_RUNNING);
    assert_blocked(n + 3);
    runnel_training_cancel(training);
    runnel_training_free(training);
    runnel_engine_free(engine);
    scratch_close(&scratch);
}

/* Draws with temperature, for tokens and logprobs of all that computes, of a host that rounds so and traps that. */
static void draw(int rounding, int traps, struct capture *capture, size_t *n_prompt)
{
    static char prompt[40000];
    runnel_engine *engine;
    runnel_model *model;
    runnel_request request = make_request("Once upon a time there was", 30, capture);
    runnel_embed_request embed;
    runnel_stream stream;
    runnel_event event;
    fenv_t own_floats;

    memset(prompt, 'a', sizeof prompt - 1);
    request.sampling.temperature = 0.9f;
    request.sampling.top_p = 0.9f;
    request.sampling.seed = 7;
    request.want_logprobs = 1;
    request.n_top = 3;
    assert_int_equal(fegetenv(&own_floats), 0);
    fesetround(rounding);
    feenableexcept(traps);
    traps = fegetexcept(); /* what the processor can trap of them */
    engine = start_engine(NULL);
    model = load_model(engine, quick_model(), NULL);
    assert_int_equal(runnel_tokenize(model, prompt, sizeof prompt - 1, 0, NULL, 0, n_prompt), RUNNEL_OK);
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    runnel_embed_request_default(&embed);
    embed.text = "hello";
    embed.text_bytes = 5;
    assert_int_equal(runnel_embed(model, &embed, &stream, NULL), RUNNEL_OK);
    do
        assert_int_equal(runnel_stream_next(engine, stream, -1, &event), RUNNEL_OK);
    while (event.type < RUNNEL_EVENT_DONE);
    assert_int_equal(event.type, RUNNEL_EVENT_DONE);
    assert_int_equal(fegetround(), rounding); /* the host's is as it was */
    assert_int_equal(fegetexcept(), traps);
    runnel_engine_free(engine);
    fesetenv(&own_floats);
}

/* A sum that a template writes: another one in another rounding. */
static void render_sum(runnel_model *model, char *text, size_t room)
{
    static const char sum[] = "{{ 0.1 + 0.2 }} {{ 0.1 * 3 }} {{ 1 / 3 }}";
    runnel_message message = {.role = "user", .content = "a"};
    runnel_chat chat;
    int32_t tokens[64];
    size_t n = 0, n_text = 0;

    runnel_chat_default(&chat);
    chat.template_text = sum;
    chat.messages = &message;
    chat.n_messages = 1;
    memset(text, 0, room);
    assert_int_equal(runnel_render_template(sum, strlen(sum), "{}", 2, 1, text, room, &n, NULL), RUNNEL_OK);
    text[n++] = '|';
    assert_int_equal(runnel_apply_template(model, &chat, text + n, room - n, &n_text, NULL), RUNNEL_OK);
    n += n_text;
    text[n++] = '|';
    assert_int_equal(runnel_tokenize_chat(model, &chat, tokens, 64, &n_text, NULL), RUNNEL_OK);
    assert_in_range(n_text, 1, 64);
    assert_int_equal(runnel_detokenize(model, tokens, n_text, 1, text + n, room - n - 1, &n_text), RUNNEL_OK);
}

static void texts_are_the_engines(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    char usual[256], other[256];

    (void)state;
    render_sum(model, usual, sizeof usual);
    assert_memory_equal(usual, "0.30000000000000004 0.30000000000000004 0.3333333333333333|", 59); /* Python's */
    fesetround(FE_UPWARD);
    render_sum(model, other, sizeof other);
    assert_int_equal(fegetround(), FE_UPWARD);
    fesetround(FE_TONEAREST);
    assert_string_equal(other, usual);
    runnel_engine_free(engine);
}

static void floats_are_the_hosts(void **state)
{
    static const int roundings[] = {FE_UPWARD, FE_TOWARDZERO, FE_TONEAREST};
    struct capture usual = {0};
    size_t n, n_usual;

    (void)state;
    draw(FE_TONEAREST, 0, &usual, &n_usual);
    for (size_t i = 0; i < sizeof roundings / sizeof roundings[0]; i++) {
        struct capture capture = {0};

        draw(roundings[i], roundings[i] == FE_TONEAREST ? FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW : 0, &capture, &n);
        assert_int_equal(n, n_usual);
        assert_string_equal(capture.text, usual.text);
        capture_clear(&capture);
    }
    capture_clear(&usual);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(signals_are_the_hosts), cmocka_unit_test(floats_are_the_hosts),
                                       cmocka_unit_test(texts_are_the_engines)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
