/* runnel perplexity: how well a model foretells a text.
 *
 * The text's tokens are cut into windows that do not overlap, each as long as the context allows,
 * with BOS in front where the model wants it. Every position but a window's first is scored:
 *
 *   nll_i = log(sum_v exp(logit_iv)) - logit_i,t(i+1)     perplexity = exp(mean nll)
 *
 * and its error bar is the standard error of the mean, carried through the exponential. Logits are
 * floats, sums doubles. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

struct score {
    const int32_t *ids; /* of the window */
    size_t n;
    double sum, squares;
    uint64_t count;
};

static double nll(const float *logits, uint32_t n, int32_t token)
{
    double top = -INFINITY, sum = 0;

    for (uint32_t v = 0; v < n; v++)
        top = fmax(top, (double)logits[v]);
    for (uint32_t v = 0; v < n; v++)
        sum += exp((double)logits[v] - top);
    return log(sum) + top - (double)logits[token];
}

static bool on_event(void *user, const runnel_event *event)
{
    struct score *score = user;
    double value = 0;

    if (event->type != RUNNEL_EVENT_LOGITS || event->position + 1 >= score->n)
        return true;
    value = nll(event->logits, event->n_logits, score->ids[event->position + 1]);
    score->sum += value;
    score->squares += value * value;
    score->count++;
    return true;
}

static int score_window(struct app *app, struct score *score)
{
    runnel_request request;
    struct app_outcome outcome;

    runnel_request_default(&request);
    request.tokens = score->ids;
    request.n_tokens = score->n;
    request.max_tokens = 1; /* nobody looks at it; but a model whose logits have seen what comes next refuses */
    request.want_logits = 1;
    request.adapter = app_adapter(app->options);
    return app_stream(app, &request, on_event, score, &outcome);
}

/* `window` has room for context_tokens ids; the context less one is the longest prompt. */
static int score_text(struct app *app, const struct app_ids *ids, int32_t *window, struct score *score)
{
    size_t front = app->info.add_bos && app->info.bos >= 0;
    size_t room = (size_t)app->info.context_tokens - 1 - front;
    int code = APP_OK;

    if (front > 0)
        window[0] = app->info.bos;
    score->ids = window;
    for (size_t at = 0; at < ids->count && code == APP_OK; at += room) {
        size_t n = ids->count - at < room ? ids->count - at : room;

        memcpy(window + front, ids->ids + at, n * sizeof *window);
        score->n = front + n;
        app_progress(app->options, "scoring", (double)at / (double)ids->count, "");
        if (score->n > 1)
            code = score_window(app, score);
    }
    app_progress_clear();
    return code;
}

static int print_score(const struct app_options *options, const struct score *score)
{
    double n = (double)score->count;
    double mean = score->sum / n;
    double variance = n > 1 ? fmax(0, score->squares - score->sum * mean) / (n - 1) : 0;
    double error = sqrt(variance / n);
    double perplexity = exp(mean);

    if (options->json) {
        printf("{\"tokens\":%llu,\"nll\":", (unsigned long long)score->count);
        app_json_number(stdout, mean);
        fputs(",\"nll_error\":", stdout);
        app_json_number(stdout, error);
        fputs(",\"perplexity\":", stdout);
        app_json_number(stdout, perplexity);
        fputs(",\"perplexity_error\":", stdout);
        app_json_number(stdout, perplexity * error);
        fputs("}\n", stdout);
    } else {
        printf("tokens      %llu\nmean NLL    %.6f ± %.6f\nperplexity  %.5f ± %.5f\n", (unsigned long long)score->count,
               mean, error, perplexity, perplexity * error);
    }
    return app_output_code();
}

static int measure(struct app *app, const struct app_text *text)
{
    uint32_t flags = app->options->special ? RUNNEL_TOKENIZE_SPECIAL : 0;
    struct app_ids ids = {0};
    struct score score = {0};
    int32_t *window = NULL;
    int code = app_tokenize(app, text->bytes, text->size, flags, &ids);

    if (code == APP_OK && (ids.count < 2 || app->info.context_tokens < 4)) {
        app_error("nothing to score: %zu tokens of text, a context of %u", ids.count,
                  (unsigned)app->info.context_tokens);
        code = APP_FAILURE;
    }
    if (code == APP_OK) {
        window = calloc(app->info.context_tokens, sizeof *window);
        code = window != NULL ? score_text(app, &ids, window, &score) : APP_FAILURE;
    }
    if (code == APP_OK)
        code = print_score(app->options, &score);
    free(window);
    app_ids_fini(&ids);
    return code;
}

int app_perplexity(const struct app_options *options)
{
    struct app app = {0};
    struct app_text text = {0};
    int code = APP_OK;

    if (!app_read_file(options->operands[1], &text))
        return APP_FAILURE;
    code = app_open(&app, options, false);
    if (code == APP_OK)
        code = measure(&app, &text);
    app_close(&app);
    free(text.bytes);
    return code;
}
