/* A sampler of the host's own, on the host's own libuv loop: for each token of an answer the host is asked which of the
 * candidates it is to be. This one thinks for a while in the thread pool and then takes the longest of the likely
 * words; a second stream beside it is drawn by the library, and is not held up.
 *
 *     host_sampler MODEL.gguf [PROMPT]
 *
 *     runnel ──▶ on_choose ──LATER──▶ uv_queue_work ──▶ think (a thread of the pool) ──▶ on_thought ──▶ runnel_stream_choose
 *
 * One question is open at a time, so what a thought needs stands beside the stream. */
#include <runnel.h>
#include <runnel_uv.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

struct app {
    runnel_engine *engine;
    runnel_model *model;
    uv_loop_t *loop;
    uv_work_t work;
    runnel_candidates *question; /* valid until it is answered, or the stream has ended */
    size_t place;
    bool thinking, ended; /* a thought about a stream that has ended is dropped */
    unsigned n_running, n_questions;
    unsigned long n_other; /* tokens of the stream beside it, when the first one had ended */
    char text[4096];
    size_t text_bytes;
};

/* In the thread pool. The candidates are those that top-k has left; of those with at least a tenth of the best one's
 * probability the longest is taken. */
static void think(uv_work_t *work)
{
    struct app *app = work->data;
    const runnel_candidates *question = app->question;
    float best = question->logits[0];
    size_t longest = 0;

    for (size_t i = 0; i < question->n; i++)
        best = question->logits[i] > best ? question->logits[i] : best;
    for (size_t i = 0; i < question->n; i++) {
        char piece[64];
        size_t n = 0;

        if (question->logits[i] < best - 2.3f ||
            runnel_token_text(app->model, question->tokens[i], 0, piece, sizeof piece, &n) != RUNNEL_OK)
            continue;
        if (n > longest) {
            longest = n;
            app->place = i;
        }
    }
    if (longest == 0) /* an end of text, say: as the library would draw */
        app->place = (size_t)runnel_candidates_draw(question);
}

static void on_thought(uv_work_t *work, int status)
{
    struct app *app = work->data;
    runnel_stream stream = {app->question->stream};

    (void)status;
    app->thinking = false;
    if (!app->ended)
        runnel_stream_choose(app->engine, stream, app->place);
}

static int64_t on_choose(void *user, runnel_candidates *candidates)
{
    struct app *app = user;

    app->question = candidates;
    app->work.data = app;
    app->thinking = true;
    app->n_questions++;
    return uv_queue_work(app->loop, &app->work, think, on_thought) == 0 ? RUNNEL_CHOOSE_LATER : RUNNEL_CHOOSE_DRAW;
}

static void on_event(void *user, const runnel_event *event)
{
    struct app *app = user;

    if (event->type == RUNNEL_EVENT_TOKEN && app->text_bytes + event->text_bytes < sizeof app->text) {
        memcpy(app->text + app->text_bytes, event->text, event->text_bytes);
        app->text_bytes += event->text_bytes;
    } else if (event->type >= RUNNEL_EVENT_DONE) {
        app->ended = true;
        app->n_running--;
        printf("%s\n", event->type == RUNNEL_EVENT_FAILED ? event->error : app->text);
    }
}

static void on_other(void *user, const runnel_event *event)
{
    struct app *app = user;

    app->n_other += event->type == RUNNEL_EVENT_TOKEN && !app->ended;
    app->n_running -= event->type >= RUNNEL_EVENT_DONE;
}

static bool begin(struct app *app, const char *prompt)
{
    runnel_samplers samplers;
    runnel_request request;
    runnel_stream stream;
    runnel_error error = {0};

    runnel_samplers_default(&samplers);
    samplers.order = "top_k,host"; /* the temperature is 0, and does not act: it is not named */
    samplers.choose = on_choose;
    samplers.choose_user = app;
    runnel_request_default(&request);
    request.prompt = prompt;
    request.prompt_bytes = strlen(prompt);
    request.max_tokens = 40;
    request.sampling.top_k = 40;
    request.sampling.samplers = &samplers;
    request.on_event = on_event;
    request.user = app;
    if (runnel_generate(app->model, &request, &stream, &error) != RUNNEL_OK)
        return fprintf(stderr, "host_sampler: %s\n", error.message) < 0;
    request.sampling.samplers = NULL;
    request.on_event = on_other;
    request.ignore_eos = 1;
    if (runnel_generate(app->model, &request, &stream, &error) != RUNNEL_OK)
        return fprintf(stderr, "host_sampler: %s\n", error.message) < 0;
    app->n_running = 2;
    return true;
}

int main(int argc, char **argv)
{
    static struct app app;
    runnel_error error = {0};
    bool good;

    if (argc < 2) {
        fprintf(stderr, "usage: host_sampler MODEL.gguf [PROMPT]\n");
        return 2;
    }
    app.loop = uv_default_loop();
    good = runnel_engine_new(NULL, &app.engine, &error) == RUNNEL_OK &&
           runnel_model_load(app.engine, argv[1], NULL, &app.model, &error) == RUNNEL_OK &&
           runnel_model_wait(app.model, -1, &error) == RUNNEL_OK && runnel_uv_attach(app.engine, app.loop) == RUNNEL_OK;
    if (!good)
        fprintf(stderr, "host_sampler: %s\n", error.message);
    good = good && begin(&app, argc > 2 ? argv[2] : "Once upon a time");
    while (good && app.n_running > 0)
        uv_run(app.loop, UV_RUN_ONCE);
    if (good)
        printf("(%u tokens were the host's choice; %lu of the stream beside it came meanwhile)\n", app.n_questions,
               app.n_other);
    while (app.thinking) /* it reads the candidates */
        uv_run(app.loop, UV_RUN_ONCE);
    runnel_engine_free(app.engine);
    while (uv_run(app.loop, UV_RUN_DEFAULT) != 0) /* what attaching has left on the loop */
        continue;
    uv_loop_close(app.loop);
    return good && app.n_questions > 0 ? 0 : 1;
}
