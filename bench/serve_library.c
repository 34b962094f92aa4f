/* The same requests to the library in this process, on the same loop: see serve.c. */
#include <runnel.h>
#include <runnel_uv.h>
#include <stdlib.h>
#include <string.h>

#include "serve_load.h"

struct user {
    struct load *load;
    char *prompt;
    uint32_t left;
    uint64_t text_hash;
    bool first;
    double asked_ms, last_ms;
};

static runnel_engine *engine;
static runnel_model *model;
static uint64_t n_asked;

static void ask(struct user *user);

static void user_over(struct load *load)
{
    if (--load->n_live > 0)
        return;
    load->ended_ms = load_now_ms();
    load->cpu_s += load_cpu_s(load->pid);
    load->loop_s += load_loop_s(load->pid);
    runnel_uv_detach(engine);
}

static void take_text(struct user *user, const runnel_event *event)
{
    double now = load_now_ms();

    if (event->text_bytes == 0)
        return;
    user->text_hash = load_hash(user->text_hash, event->text, event->text_bytes);
    user->load->events++;
    if (user->first)
        sample_add(&user->load->first, now - user->asked_ms);
    else
        sample_add(&user->load->gaps, now - user->last_ms);
    user->first = false;
    user->last_ms = now;
}

static void on_event(void *data, const runnel_event *event)
{
    struct user *user = data;

    if (event->type == RUNNEL_EVENT_TOKEN)
        take_text(user, event);
    if (event->type < RUNNEL_EVENT_DONE)
        return;
    if (event->type == RUNNEL_EVENT_FAILED)
        load_die("a stream failed", event->error);
    take_text(user, event);
    load_answered(user->load, event->usage.completion_tokens, user->text_hash, user->asked_ms);
    if (--user->left > 0)
        ask(user);
    else
        user_over(user->load);
}

static runnel_request request_of(const struct load *load, const char *prompt)
{
    runnel_request request;

    runnel_request_default(&request);
    request.prompt = prompt;
    request.prompt_bytes = strlen(prompt);
    request.max_tokens = load->max_tokens;
    request.sampling.temperature = 0;
    request.ignore_eos = 1;
    return request;
}

static void ask(struct user *user)
{
    runnel_request request;
    runnel_error error = {0};
    runnel_stream stream;

    free(user->prompt);
    user->prompt = load_prompt(user->load, n_asked++);
    user->asked_ms = user->last_ms = load_now_ms();
    user->first = true;
    user->text_hash = TEXT_HASH_BEGIN;
    request = request_of(user->load, user->prompt);
    request.on_event = on_event;
    request.user = user;
    if (runnel_generate(model, &request, &stream, &error) != RUNNEL_OK)
        load_die("submit", error.message);
}

static void open_model(const struct load *load)
{
    runnel_engine_options options;
    runnel_model_options model_options;
    runnel_error error = {0};

    runnel_engine_options_default(&options);
    options.compute_threads = load->threads;
    options.max_streams = load->clients < 32 ? 64 : 2 * load->clients; /* one that ends is taken when the next begins */
    runnel_model_options_default(&model_options);
    if (runnel_engine_new(&options, &engine, &error) != RUNNEL_OK ||
        runnel_model_load(engine, load->model, &model_options, &model, &error) != RUNNEL_OK ||
        runnel_model_wait(model, -1, &error) != RUNNEL_OK)
        load_die(load->model, error.message);
}

/* A request that does not count: weights come from the disk, memory from the kernel. */
static void warm_up(const struct load *load)
{
    char *prompt = load_prompt(load, n_asked++);
    runnel_request request = request_of(load, prompt);
    runnel_event event = {.type = RUNNEL_EVENT_TOKEN};
    runnel_error error = {0};
    runnel_stream stream;

    if (runnel_generate(model, &request, &stream, &error) != RUNNEL_OK)
        load_die("submit", error.message);
    while (event.type < RUNNEL_EVENT_DONE)
        if (runnel_stream_next(engine, stream, -1, &event) != RUNNEL_OK)
            load_die("the first request", "it has no end");
    if (event.type != RUNNEL_EVENT_DONE)
        load_die("the first request", event.error);
    free(prompt);
}

void load_run_library(struct load *load)
{
    struct user *users = load_need(calloc(load->clients, sizeof *users));

    open_model(load);
    warm_up(load);
    if (runnel_uv_attach(engine, &load->loop) != RUNNEL_OK)
        load_die("the loop", "the engine could not be attached");
    load->began_ms = load_now_ms();
    load->cpu_s = -load_cpu_s(load->pid);
    load->loop_s = -load_loop_s(load->pid);
    for (uint32_t i = 0; i < load->clients; i++) {
        users[i] = (struct user){.load = load, .left = load->requests};
        ask(&users[i]);
    }
    uv_run(&load->loop, UV_RUN_DEFAULT);
    runnel_engine_free(engine);
    for (uint32_t i = 0; i < load->clients; i++)
        free(users[i].prompt);
    free(users);
}
