/* runnel score: how well texts answer a query, or what they are. A line for each text, its scores parted by blanks;
 * with --json one object in the form of /v1/rerank or /v1/classify. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "apps/openai/openai_answer.h"
#include "common.h"

struct scorer {
    struct app app;
    struct app_text file;
    struct openai_request request; /* its texts are borrowed: of the command line, and of the file */
    struct openai_choice *choices; /* [n_prompts], of which n_open are open */
    size_t n_open;
    char why[RUNNEL_ERROR_BYTES + 32]; /* a text has failed */
};

/* ---- Texts ------------------------------------------------------------------------------- */

static bool add_text(struct scorer *s, const char *text, size_t n)
{
    struct openai_request *r = &s->request;
    struct openai_prompt *grown = realloc(r->prompts, (r->n_prompts + 1) * sizeof *grown);

    if (grown == NULL) {
        app_error("not enough memory for the texts");
        return false;
    }
    r->prompts = grown;
    grown[r->n_prompts++] = (struct openai_prompt){.text = (char *)(uintptr_t)text, .text_bytes = n};
    return true;
}

/* The lines of the file that are not empty. */
static bool add_lines(struct scorer *s)
{
    const char *at = s->file.bytes, *end = s->file.bytes + s->file.size;
    bool good = true;

    while (at < end && good) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop != NULL ? stop : end) - at);

        if (n > 0 && at[n - 1] == '\r')
            n--;
        good = n == 0 || add_text(s, at, n);
        at = stop != NULL ? stop + 1 : end;
    }
    return good;
}

static bool add_texts(struct scorer *s)
{
    const struct app_options *options = s->app.options;

    for (int i = 1; i < options->n_operands; i++)
        if (!add_text(s, options->operands[i], strlen(options->operands[i])))
            return false;
    return add_lines(s);
}

/* ---- Scores ------------------------------------------------------------------------------ */

static runnel_score_form form_of(const struct app_options *options, runnel_score_form usual)
{
    static const char *const names[] = {"model", "logits", "probabilities"};

    for (int i = 0; options->score_form != NULL && i < 3; i++)
        if (strcmp(options->score_form, names[i]) == 0) /* the table has checked it */
            return (runnel_score_form)i;
    return usual;
}

static int fail(struct scorer *s, size_t number, const char *error)
{
    snprintf(s->why, sizeof s->why, "text %zu: %s", number, error);
    app_error("%s", s->why);
    return APP_FAILURE;
}

/* Until the stream has ended. A signal, or a reader of standard output that has gone, cancels it. */
static int follow(struct scorer *s, runnel_stream stream, struct openai_choice *choice, size_t number)
{
    while (choice->end == 0) {
        runnel_event event = {.type = RUNNEL_EVENT_TOKEN};
        runnel_status status = runnel_stream_next(s->app.engine, stream, APP_TICK_MS, &event);

        if (app_interrupted())
            runnel_stream_cancel(s->app.engine, stream);
        if (status == RUNNEL_OK)
            openai_choice_event(choice, &event);
    }
    if (choice->end == RUNNEL_EVENT_DONE && !choice->failed)
        return APP_OK;
    if (choice->end == RUNNEL_EVENT_CANCELLED)
        return APP_CANCELLED;
    return fail(s, number, choice->failed ? "not enough memory" : choice->error);
}

static void print_line(const struct openai_choice *choice)
{
    for (size_t i = 0; i < choice->n_embedding; i++) /* nine digits are the float itself */
        printf("%s%.9g", i > 0 ? " " : "", (double)choice->embedding[i]);
    putchar('\n');
}

static int score(struct scorer *s, size_t i)
{
    const struct app_options *options = s->app.options;
    struct openai_choice *choice = &s->choices[i];
    runnel_score_request request;
    runnel_stream stream;
    runnel_error error = {0};
    int code = APP_OK;

    if (app_interrupted())
        return APP_CANCELLED;
    s->n_open++;
    if (!openai_choice_open(choice, &s->request, i, s->app.model))
        return fail(s, i + 1, "not enough memory");
    openai_request_score(&s->request, i, &request);
    request.form = form_of(options, request.form);
    request.parse_special = options->special;
    request.adapter = app_adapter(options);
    if (runnel_score(s->app.model, &request, &stream, &error) != RUNNEL_OK)
        return fail(s, i + 1, error.message);
    code = follow(s, stream, choice, i + 1);
    if (code != APP_OK || options->json)
        return code;
    print_line(choice);
    return app_flush() ? APP_OK : APP_CANCELLED;
}

/* All scores, or an object that cannot be taken for them. */
static void print_json(const struct scorer *s, int code)
{
    struct openai_head head = {.created = (int64_t)time(NULL), .model = s->app.options->operands[0]};
    const char *why = s->why[0] != '\0' ? s->why : "cancelled";

    snprintf(head.id, sizeof head.id, "%s", s->request.query != NULL ? "rerank" : "classify");
    if (code == APP_OK) {
        openai_answer_write(stdout, &s->request, s->choices, s->request.n_prompts, &head);
    } else {
        fputs("{\"error\":{\"message\":", stdout);
        app_json_string(stdout, why, strlen(why));
        fputs("}}", stdout);
    }
    putchar('\n');
}

static int score_all(struct scorer *s)
{
    int code = APP_OK;

    s->choices = calloc(s->request.n_prompts + 1, sizeof *s->choices);
    if (s->choices == NULL) {
        app_error("not enough memory for the texts");
        return APP_FAILURE;
    }
    for (size_t i = 0; i < s->request.n_prompts && code == APP_OK; i++)
        code = score(s, i);
    if (s->app.options->json)
        print_json(s, code);
    return code;
}

int app_score(const struct app_options *options)
{
    struct scorer s = {.request = {.endpoint = options->query != NULL ? OPENAI_RERANK : OPENAI_CLASSIFY, .n = 1}};
    int code = APP_OK;

    if (options->n_operands < 2 && options->file == NULL) {
        app_error("give texts behind the model, or a file of lines with -f");
        return APP_USAGE;
    }
    if (options->file != NULL && !app_read_file(options->file, &s.file))
        return APP_FAILURE;
    s.request.query = (char *)(uintptr_t)options->query;
    s.request.query_bytes = options->query != NULL ? strlen(options->query) : 0;
    code = app_open(&s.app, options, false);
    if (code == APP_OK)
        code = add_texts(&s) ? score_all(&s) : APP_FAILURE;
    code = app_worse(code, app_output_code());
    for (size_t i = 0; i < s.n_open; i++)
        openai_choice_close(&s.choices[i]);
    app_close(&s.app);
    free(s.choices);
    free(s.request.prompts);
    free(s.file.bytes);
    return code;
}
