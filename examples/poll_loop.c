/* A stream in a loop of one's own: epoll watches the engine's file descriptor and, beside it, a timer
 * that ticks on while the model thinks. Everything happens on this one thread.
 *
 *     poll_loop [MODEL [PROMPT]] */
#include <runnel.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

struct state {
    runnel_model *model;
    const char *prompt;
    bool ended, good;
    unsigned ticks, tokens;
};

static void fail(struct state *state, const char *why)
{
    fprintf(stderr, "poll_loop: %s\n", why);
    state->ended = true;
}

static void on_event(void *user, const runnel_event *event)
{
    struct state *state = user;

    if (event->type == RUNNEL_EVENT_TOKEN) {
        printf("%.*s", (int)event->text_bytes, event->text);
        fflush(stdout);
        state->tokens++;
    } else if (event->type == RUNNEL_EVENT_FAILED) {
        fail(state, event->error);
    } else if (event->type == RUNNEL_EVENT_DONE || event->type == RUNNEL_EVENT_CANCELLED) {
        state->ended = true;
        state->good = event->type == RUNNEL_EVENT_DONE;
    }
}

/* The model is ready: ask. Submitting inside a callback is allowed, as every call is. */
static void on_load(void *user, const runnel_load_event *event)
{
    struct state *state = user;
    runnel_request request;
    runnel_stream stream;
    runnel_error error = {0};

    if (event->state == RUNNEL_LOAD_PROGRESS)
        return;
    if (event->state != RUNNEL_LOAD_READY) {
        fail(state, event->error != NULL ? event->error->message : "the load was cancelled");
        return;
    }
    runnel_request_default(&request);
    request.prompt = state->prompt;
    request.prompt_bytes = strlen(state->prompt);
    request.max_tokens = 100;
    request.on_event = on_event;
    request.user = state;
    if (runnel_generate(event->model, &request, &stream, &error) != RUNNEL_OK)
        fail(state, error.message);
}

static int watch(int epoll, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static void loop(runnel_engine *engine, int epoll, int timer, struct state *state)
{
    struct epoll_event events[8];
    uint64_t expired = 0;

    while (!state->ended) {
        int n = epoll_wait(epoll, events, 8, -1);

        for (int i = 0; i < n; i++) {
            if (events[i].data.fd != timer)
                runnel_engine_dispatch(engine, 0);
            else if (read(timer, &expired, sizeof expired) == sizeof expired)
                state->ticks += (unsigned)expired;
        }
    }
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "examples/models/runnel-tiny-Q8_0.gguf";
    struct state state = {.prompt = argc > 2 ? argv[2] : "Once upon a time"};
    struct itimerspec every_ms = {{0, 1000000}, {0, 1000000}};
    int epoll = epoll_create1(EPOLL_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    runnel_engine *engine = NULL;
    runnel_model_options options;
    runnel_error error = {0};

    runnel_model_options_default(&options);
    options.on_load = on_load;
    options.load_user = &state;
    if (runnel_engine_new(NULL, &engine, &error) != RUNNEL_OK ||
        runnel_model_load(engine, path, &options, &state.model, &error) != RUNNEL_OK)
        fail(&state, error.message);
    else if (watch(epoll, timer) != 0 || watch(epoll, runnel_engine_fd(engine)) != 0 ||
             timerfd_settime(timer, 0, &every_ms, NULL) != 0)
        fail(&state, "epoll or timerfd failed");
    loop(engine, epoll, timer, &state);
    fprintf(stderr, "\n%u tokens, and %u ticks of a millisecond beside them\n", state.tokens, state.ticks);
    runnel_model_free(state.model);
    runnel_engine_free(engine);
    close(timer);
    close(epoll);
    return state.good ? 0 : 1;
}
