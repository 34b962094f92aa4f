/* runnel run with --n or --best-of: several answers to one prompt, with the seeds that follow each other. They run at
 * once, and the prompt is computed once: who comes to a block of it that another computes waits for that block.
 *
 * As text they come one behind the other, parted by lines of ---: the first one that is not complete while it is
 * computed, those behind it when they are its turn. With --best-of all have to be complete, and the best come first.
 * As JSON all events come as they are made, each with the number of its answer. */
#include <math.h>
#include <stdlib.h>

#include "common.h"

struct answer {
    struct answers *all;
    FILE *to; /* what was not shown yet; it writes to the two behind it */
    char *bytes;
    size_t n;
    double logprob; /* of its tokens, added up */
    uint64_t n_tokens;
    runnel_stream stream;
    struct app_outcome outcome; /* type 0: not ended */
    runnel_error error;
    bool shown;
};

struct answers {
    const struct app_options *options;
    struct answer *answers; /* [n], owned */
    size_t n, n_shown;      /* n_shown: with the one that is shown while it is computed */
    size_t n_submitted, n_ended;
    bool best; /* they are shown by their worth */
    bool cancelled;
};

static size_t index_of(const struct answer *answer)
{
    return (size_t)(answer - answer->all->answers);
}

static void pour(struct answer *answer)
{
    fflush(answer->to);
    if (answer->n > 0)
        app_put_text(stdout, answer->bytes, answer->n);
}

/* The line between two answers; behind the last one on a terminal only, as with one answer. */
static void part_from_next(const struct answers *all, size_t n_shown)
{
    size_t n = (size_t)all->options->n_answers;

    if (n_shown < n)
        fputs("\n---\n", stdout);
}

/* Goes on to the next answers whose turn it is. */
static void show(struct answers *all)
{
    while (all->n_shown < all->n && all->answers[all->n_shown].outcome.type != 0) {
        part_from_next(all, ++all->n_shown);
        if (all->n_shown < all->n)
            pour(&all->answers[all->n_shown]);
    }
}

static void take_text(struct answer *answer, const runnel_event *event)
{
    struct answers *all = answer->all;
    bool now = !all->best && index_of(answer) == all->n_shown;

    if (now)
        app_put_text(stdout, event->text, event->text_bytes);
    else
        fwrite(event->text, 1, event->text_bytes, answer->to);
    if (event->token >= 0) {
        answer->logprob += (double)event->logprob;
        answer->n_tokens++;
    }
}

static void on_event(void *user, const runnel_event *event)
{
    struct answer *answer = user;
    struct answers *all = answer->all;
    bool json = all->options->json;

    if (json)
        app_json_event_of(event, all->options->logprobs >= 0, (int64_t)index_of(answer));
    if (event->type == RUNNEL_EVENT_TOKEN && (!json || all->best))
        take_text(answer, event);
    if (event->type < RUNNEL_EVENT_DONE)
        return;
    answer->outcome = (struct app_outcome){event->type, event->finish, event->usage, event->timings};
    answer->error.status = event->type == RUNNEL_EVENT_CANCELLED ? RUNNEL_CANCELLED : event->status;
    answer->error.about = event->about;
    if (event->type == RUNNEL_EVENT_FAILED)
        snprintf(answer->error.message, sizeof answer->error.message, "%s", event->error);
    all->n_ended++;
    if (!json && !all->best)
        show(all);
}

/* ---- Running ----------------------------------------------------------------------------- */

/* As many as the engine takes now. An exit code. */
static int submit(struct app *app, struct answers *all, const runnel_request *request)
{
    while (all->n_submitted < all->n && !all->cancelled) {
        struct answer *answer = &all->answers[all->n_submitted];
        runnel_request own = *request;
        runnel_error error = {0};

        own.sampling.seed += all->n_submitted;
        own.want_logprobs |= all->best;
        own.want_progress = 0; /* others wait for blocks of those only that no reader can stop */
        own.on_event = on_event;
        own.user = answer;
        error.status = runnel_generate(app->model, &own, &answer->stream, &error);
        if (error.status == RUNNEL_BUSY && all->n_submitted > all->n_ended)
            break;
        if (error.status != RUNNEL_OK)
            return app_fail_request(all->options, &error);
        all->n_submitted++;
    }
    return APP_OK;
}

static void cancel(struct app *app, struct answers *all)
{
    if (all->cancelled)
        return;
    all->cancelled = true;
    for (size_t i = 0; i < all->n_submitted; i++)
        if (all->answers[i].outcome.type == 0)
            runnel_stream_cancel(app->engine, all->answers[i].stream);
}

/* Until all that were submitted have ended. An exit code. */
static int run(struct app *app, struct answers *all, const runnel_request *request)
{
    int code = APP_OK;

    do {
        if (code == APP_OK)
            code = submit(app, all, request);
        if (code != APP_OK)
            cancel(app, all);
        runnel_engine_wait(app->engine, APP_TICK_MS);
        runnel_engine_dispatch(app->engine, 0);
        app_streams_show(app);
        if (!app_flush() || app_interrupted())
            cancel(app, all);
    } while (all->n_ended < all->n_submitted || (all->n_submitted < all->n && !all->cancelled));
    for (size_t i = 0; i < all->n_submitted; i++)
        if (all->answers[i].error.status != RUNNEL_OK && code == APP_OK)
            code = app_fail_request(all->options, &all->answers[i].error);
    return code;
}

/* ---- The best ---------------------------------------------------------------------------- */

/* The mean log-probability of its tokens; an empty answer is the worst. */
static double mean_of(const struct answer *answer)
{
    return answer->n_tokens > 0 ? answer->logprob / (double)answer->n_tokens : -INFINITY;
}

static struct answer *take_best(struct answers *all)
{
    struct answer *best = NULL;

    for (size_t i = 0; i < all->n; i++)
        if (!all->answers[i].shown && (best == NULL || mean_of(&all->answers[i]) > mean_of(best)))
            best = &all->answers[i];
    best->shown = true;
    return best;
}

static void show_best(struct answers *all)
{
    size_t n = (size_t)all->options->n_answers;

    fputs(all->options->json ? "{\"type\":\"best\",\"answers\":[" : "", stdout);
    for (size_t i = 0; i < n; i++) {
        struct answer *best = take_best(all);

        if (all->options->json) {
            printf("%s%zu", i > 0 ? "," : "", index_of(best));
        } else {
            pour(best);
            part_from_next(all, i + 1);
        }
    }
    fputs(all->options->json ? "]}\n" : "", stdout);
}

/* ---- All --------------------------------------------------------------------------------- */

/* All together, as if it had been one long answer. */
static void add_up(const struct answers *all, struct app_outcome *sum)
{
    *sum = all->answers[0].outcome;
    for (size_t i = 1; i < all->n; i++) {
        const struct app_outcome *one = &all->answers[i].outcome;

        sum->usage.prompt_tokens += one->usage.prompt_tokens;
        sum->usage.cached_tokens += one->usage.cached_tokens;
        sum->usage.completion_tokens += one->usage.completion_tokens;
        sum->usage.drafted_tokens += one->usage.drafted_tokens;
        sum->usage.accepted_tokens += one->usage.accepted_tokens;
        if (one->timings.end_us > sum->timings.end_us)
            sum->timings.end_us = one->timings.end_us;
    }
}

static bool open_answers(struct answers *all)
{
    all->answers = calloc(all->n, sizeof *all->answers);
    for (size_t i = 0; all->answers != NULL && i < all->n; i++) {
        struct answer *answer = &all->answers[i];

        answer->all = all;
        answer->to = open_memstream(&answer->bytes, &answer->n);
        if (answer->to == NULL)
            return false;
    }
    return all->answers != NULL;
}

static void close_answers(struct answers *all)
{
    for (size_t i = 0; all->answers != NULL && i < all->n; i++) {
        if (all->answers[i].to != NULL)
            fclose(all->answers[i].to);
        free(all->answers[i].bytes);
    }
    free(all->answers);
}

int app_answers(struct app *app, const runnel_request *request, struct app_outcome *outcome)
{
    const struct app_options *options = app->options;
    struct answers all = {.options = options, .best = options->best_of > 0};
    int code;

    *outcome = (struct app_outcome){0};
    all.n = (size_t)(all.best ? options->best_of : options->n_answers);
    if (!open_answers(&all)) {
        app_error("not enough memory for %zu answers", all.n);
        code = APP_FAILURE;
    } else {
        code = run(app, &all, request);
        if (all.n_ended == all.n) {
            if (all.best && code == APP_OK)
                show_best(&all);
            add_up(&all, outcome);
        }
    }
    close_answers(&all);
    return code;
}
