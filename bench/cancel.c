/* How long it takes to get rid of a stream: from the call of runnel_stream_cancel to its terminal event, in each state
 * that a stream may be in, and how long runnel_engine_free takes in the middle of prompts.
 *
 *   bench_cancel MODEL.gguf [--trials N] [--threads N] [--prompt TOKENS] [--state NAME[,NAME...]] [--csv]
 *                [--draft DRAFTER [--draft-threads N]]
 *
 *   queued     12 prompts at once: one that waits for its turn
 *   prefill    a prompt alone
 *   beside     one of two prompts
 *   reading    a prompt beside an answer that is read
 *   decode     an answer alone
 *   many       one of 16 answers
 *   answer     an answer beside a prompt
 *   paused     a paused answer; and `paused-prefill`, a paused prompt
 *   free       runnel_engine_free with four prompts and an answer
 *   answering  runnel_engine_free with an answer alone, behind a long prompt
 *
 * Each trial waits for a random time first. The model's arithmetic runs on real threads: the figures are the machine's.
 * One host thread, which waits for events as a server does. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runnel.h"

#define STREAMS 16
#define TRIALS_MOST 1000

static struct {
    const char *path, *states, *draft;
    uint32_t trials, threads, prompt, draft_threads;
    bool csv;
} arguments = {NULL, NULL, NULL, 40, 0, 1024, 0, false};

static runnel_engine *engine;
static runnel_model *model;
static uint32_t n_vocab, n_live;

struct user {
    runnel_stream stream;
    uint32_t n_tokens, n_progress;
    bool live;
    double ended_ms;
};

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_cancel: %s: %s\n", what, why);
    exit(1);
}

/* ---- The host ---- */

static void on_event(void *data, const runnel_event *event)
{
    struct user *user = data;

    user->n_tokens += event->type == RUNNEL_EVENT_TOKEN;
    user->n_progress += event->type == RUNNEL_EVENT_PROGRESS;
    if (event->type == RUNNEL_EVENT_FAILED)
        die("a stream failed", event->error);
    if (event->type < RUNNEL_EVENT_DONE)
        return;
    user->live = false;
    user->ended_ms = now_ms();
    n_live--;
}

static void open_model(void)
{
    runnel_model_info info = {.struct_size = sizeof info};
    runnel_engine_options engine_options;
    runnel_model_options options;
    runnel_error error = {0};

    runnel_engine_options_default(&engine_options);
    engine_options.max_streams = 2 * STREAMS;
    engine_options.compute_threads = arguments.threads;
    if (runnel_engine_new(&engine_options, &engine, &error) != RUNNEL_OK)
        die("engine", error.message);
    runnel_model_options_default(&options);
    options.context_tokens = arguments.prompt + 512;
    options.no_prefix_cache = 1;
    options.draft_path = arguments.draft;
    options.draft_threads = arguments.draft_threads;
    if (runnel_model_load(engine, arguments.path, &options, &model, &error) != RUNNEL_OK ||
        runnel_model_wait(model, -1, &error) != RUNNEL_OK || runnel_model_get_info(model, &info) != RUNNEL_OK)
        die(arguments.path, error.message);
    n_vocab = info.vocab_tokens;
}

static void submit(struct user *user, uint32_t n_prompt)
{
    static int32_t prompt[1 << 16];
    runnel_request request;
    runnel_error error = {0};

    for (uint32_t i = 0; i < n_prompt; i++)
        prompt[i] = 300 + rand() % (int32_t)(n_vocab - 300);
    *user = (struct user){.live = true};
    runnel_request_default(&request);
    request.tokens = prompt;
    request.n_tokens = n_prompt;
    request.max_tokens = 400;
    request.ignore_eos = 1;
    request.want_progress = 1;
    request.draft = arguments.draft != NULL ? RUNNEL_DRAFT_MODEL : RUNNEL_DRAFT_NONE;
    request.on_event = on_event;
    request.user = user;
    if (runnel_generate(model, &request, &user->stream, &error) != RUNNEL_OK)
        die("submit", error.message);
    n_live++;
}

static void run_for(double ms)
{
    double end = now_ms() + ms;

    for (double left = ms; left > 0; left = end - now_ms()) {
        runnel_engine_wait(engine, left < 1 ? 1 : (int64_t)left);
        runnel_engine_dispatch(engine, 0);
    }
}

/* Until it has had n tokens. */
static void await_tokens(const struct user *user, uint32_t n)
{
    while (user->live && user->n_tokens < n) {
        runnel_engine_wait(engine, 1000);
        runnel_engine_dispatch(engine, 0);
    }
}

static double cancel(struct user *user)
{
    double begin = now_ms();

    runnel_stream_cancel(engine, user->stream);
    while (user->live) {
        runnel_engine_wait(engine, 1000);
        runnel_engine_dispatch(engine, 0);
    }
    return user->ended_ms - begin;
}

static void end_all(struct user *users, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (users[i].live)
            runnel_stream_cancel(engine, users[i].stream);
    while (n_live > 0) {
        runnel_engine_wait(engine, 1000);
        runnel_engine_dispatch(engine, 0);
    }
}

/* ---- States ---- */

static struct user users[STREAMS];
static double step_ms; /* of a full step of a prompt, roughly: so far a trial goes into it */

static double somewhen(void)
{
    return step_ms * 1.5 * rand() / RAND_MAX;
}

static double in_queue(void)
{
    for (uint32_t i = 0; i < 12; i++)
        submit(&users[i], arguments.prompt);
    run_for(somewhen());
    return cancel(&users[11]);
}

static double in_prefill(void)
{
    submit(&users[0], arguments.prompt);
    run_for(somewhen());
    return cancel(&users[0]);
}

static double beside_a_prompt(void)
{
    submit(&users[0], arguments.prompt);
    submit(&users[1], arguments.prompt);
    run_for(somewhen());
    return cancel(&users[rand() % 2]);
}

static double beside_an_answer(void)
{
    submit(&users[1], 8);
    await_tokens(&users[1], 8);
    submit(&users[0], arguments.prompt);
    run_for(somewhen());
    return cancel(&users[0]);
}

static double in_decode(void)
{
    submit(&users[0], 8);
    await_tokens(&users[0], 1);
    run_for(100.0 * rand() / RAND_MAX);
    return cancel(&users[0]);
}

static double in_many(void)
{
    for (uint32_t i = 0; i < STREAMS; i++)
        submit(&users[i], 8);
    for (uint32_t i = 0; i < STREAMS; i++)
        await_tokens(&users[i], 1);
    run_for(300.0 * rand() / RAND_MAX);
    return cancel(&users[rand() % STREAMS]);
}

static double answer_beside(void)
{
    submit(&users[0], 8);
    await_tokens(&users[0], 8);
    submit(&users[1], arguments.prompt);
    run_for(somewhen());
    return cancel(&users[0]);
}

static double in_pause(void)
{
    submit(&users[0], 8);
    await_tokens(&users[0], 1);
    runnel_stream_pause(engine, users[0].stream);
    run_for(200.0 * rand() / RAND_MAX);
    return cancel(&users[0]);
}

static double in_paused_prefill(void)
{
    submit(&users[0], arguments.prompt);
    runnel_stream_pause(engine, users[0].stream);
    run_for(somewhen());
    return cancel(&users[0]);
}

static double in_free(void)
{
    double begin;

    submit(&users[4], 8);
    await_tokens(&users[4], 1);
    for (uint32_t i = 0; i < 4; i++)
        submit(&users[i], arguments.prompt);
    run_for(somewhen());
    begin = now_ms();
    runnel_engine_free(engine);
    begin = now_ms() - begin;
    open_model();
    return begin;
}

static double free_while_answering(void)
{
    double begin;

    submit(&users[0], arguments.prompt);
    await_tokens(&users[0], 1);
    run_for(300.0 * rand() / RAND_MAX);
    begin = now_ms();
    runnel_engine_free(engine);
    begin = now_ms() - begin;
    open_model();
    return begin;
}

static const struct state {
    const char *name, *what;
    double (*run)(void);
    uint32_t share; /* of the trials: an engine is long to open */
} states[] = {
    {"queued", "waits for its turn", in_queue, 1},
    {"prefill", "a prompt alone", in_prefill, 1},
    {"beside", "one of two prompts", beside_a_prompt, 1},
    {"reading", "a prompt beside an answer", beside_an_answer, 1},
    {"decode", "an answer alone", in_decode, 1},
    {"many", "one of 16 answers", in_many, 1},
    {"answer", "an answer beside a prompt", answer_beside, 1},
    {"paused", "a paused answer", in_pause, 1},
    {"paused-prefill", "a paused prompt", in_paused_prefill, 1},
    {"free", "runnel_engine_free, 4 prompts", in_free, 4},
    {"answering", "runnel_engine_free, an answer", free_while_answering, 4},
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double quantile(const double *sorted, uint32_t n, double p)
{
    return sorted[(uint32_t)ceil(p * n) - 1];
}

static void measure(const struct state *state)
{
    uint32_t n = arguments.trials / state->share > 0 ? arguments.trials / state->share : 1;
    double ms[TRIALS_MOST];

    for (uint32_t i = 0; i < n; i++) {
        memset(users, 0, sizeof users);
        ms[i] = state->run();
        end_all(users, state->run == in_free || state->run == free_while_answering ? 0 : STREAMS);
    }
    qsort(ms, n, sizeof ms[0], ascending);
    printf(arguments.csv ? "%s,%s,%u,%.1f,%.1f,%.1f\n"
                         : "%-14s %-30s %4u trials  p50 %7.1f  p99 %7.1f  worst %7.1f ms\n",
           state->name, state->what, n, quantile(ms, n, 0.5), quantile(ms, n, 0.99), ms[n - 1]);
    fflush(stdout);
}

static bool is_named(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = list; at != NULL; at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    return list == NULL;
}

/* A prompt of 256 positions is one full step. */
static void measure_step(void)
{
    double begin = now_ms();

    submit(&users[0], 256);
    await_tokens(&users[0], 1);
    step_ms = now_ms() - begin;
    end_all(users, 1);
    if (!arguments.csv)
        printf("%s: a prompt of 256 positions takes %.0f ms\n", arguments.path, step_ms);
}

static bool parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--csv") == 0)
            arguments.csv = true;
        else if (argv[i][0] != '-' && arguments.path == NULL)
            arguments.path = argv[i];
        else if (i + 1 == argc)
            return false;
        else if (strcmp(argv[i], "--trials") == 0)
            arguments.trials = (uint32_t)atoi(argv[++i]);
        else if (strcmp(argv[i], "--threads") == 0)
            arguments.threads = (uint32_t)atoi(argv[++i]);
        else if (strcmp(argv[i], "--prompt") == 0)
            arguments.prompt = (uint32_t)atoi(argv[++i]);
        else if (strcmp(argv[i], "--draft") == 0)
            arguments.draft = argv[++i];
        else if (strcmp(argv[i], "--draft-threads") == 0)
            arguments.draft_threads = (uint32_t)atoi(argv[++i]);
        else if (strcmp(argv[i], "--state") == 0)
            arguments.states = argv[++i];
        else
            return false;
    }
    return arguments.path != NULL && arguments.trials > 0 && arguments.trials <= TRIALS_MOST && arguments.prompt > 0 &&
           arguments.prompt <= 1 << 16;
}

int main(int argc, char **argv)
{
    if (!parse(argc, argv)) {
        fprintf(stderr, "bench_cancel MODEL.gguf [--trials N] [--threads N] [--prompt TOKENS] [--state NAME,...] "
                        "[--csv] [--draft DRAFTER [--draft-threads N]]\n");
        return 2;
    }
    srand(1);
    open_model();
    measure_step();
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        if (is_named(arguments.states, states[i].name))
            measure(&states[i]);
    runnel_engine_free(engine);
    return 0;
}
