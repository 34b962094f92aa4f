/* runnel batch --check: judges the lines of an input and computes none. What can be judged without the model's weights
 * is: the form of each line, custom_ids that come twice, token ids, the template, whether prompts fit the context, and
 * grammars, which are compiled. */
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "grammars.h"

struct check {
    struct app_options options; /* the program's, without what only a job needs */
    struct app app;
    struct app_text template_text;
    struct batch_input input;
    struct batch_journal *ids; /* in memory: which line had a custom_id first */
    struct batch_grammars *grammars;
    struct batch_counts counts;
    uint64_t context;   /* tokens of a prompt and its answer */
    uint64_t embedding; /* numbers of a vector; 0: not known */
    bool has_scores;    /* there is a head that ranks or classifies */
};

static bool no_memory(void)
{
    app_error("not enough memory");
    return false;
}

/* ---- One line ---------------------------------------------------------------------------- */

static runnel_status count_text(const struct check *check, const char *text, size_t n, size_t *count,
                                runnel_error *error)
{
    runnel_status status = runnel_tokenize(check->app.model, text, n, RUNNEL_TOKENIZE_BOS, NULL, 0, count);

    if (status != RUNNEL_OK)
        snprintf(error->message, sizeof error->message, "%s", app_tokenize_fault(status, n));
    return status;
}

static runnel_status check_ids(const struct check *check, const int32_t *tokens, size_t n, runnel_error *error)
{
    for (size_t i = 0; i < n; i++) {
        if ((uint32_t)tokens[i] < check->app.info.vocab_tokens)
            continue;
        snprintf(error->message, sizeof error->message, "tokens[%zu] = %d is not in the vocabulary of %u", i, tokens[i],
                 check->app.info.vocab_tokens);
        return RUNNEL_INVALID;
    }
    return RUNNEL_OK;
}

/* Half the context is left to go on with. */
static runnel_status check_keep(const struct check *check, const runnel_request *one, runnel_error *error)
{
    uint64_t half = check->context / 2;

    if (one->context_keep > 0 && (uint64_t)one->context_keep > half) {
        snprintf(error->message, sizeof error->message, "context_keep = %lld is not -1 or 0..%llu, half the context",
                 (long long)one->context_keep, (unsigned long long)half);
        return RUNNEL_INVALID;
    }
    return RUNNEL_OK;
}

/* As the library says it of a submit. */
static runnel_status refuse_empty(runnel_error *error)
{
    error->about = RUNNEL_ABOUT_PROMPT;
    snprintf(error->message, sizeof error->message, "the text is empty");
    return RUNNEL_INVALID;
}

/* answers: one place at least is the answer's. */
static runnel_status check_room(const struct check *check, size_t count, bool answers, runnel_error *error)
{
    uint64_t room = check->context - (answers && check->context > 0);

    if (count == 0)
        return refuse_empty(error);
    if (count > room) {
        snprintf(error->message, sizeof error->message, "the prompt has %zu tokens, %llu fit", count,
                 (unsigned long long)room);
        return RUNNEL_CONTEXT;
    }
    return RUNNEL_OK;
}

/* In the order in which a job finds out: a text's length at submit, a chat's behind its grammar. */
static runnel_status check_grammar(const struct check *check, const runnel_request *one, size_t count,
                                   runnel_error *error)
{
    bool answers = one->max_tokens != 0;
    runnel_status room = one->chat == NULL ? check_room(check, count, answers, error) : RUNNEL_OK;

    if (room == RUNNEL_OK)
        room = batch_grammars_check(check->grammars, check->app.model, one, error);
    return room == RUNNEL_OK ? check_room(check, count, answers, error) : room;
}

static runnel_status check_generate(const struct check *check, const struct openai_request *request, size_t at,
                                    size_t *count, runnel_error *error)
{
    runnel_request one;
    runnel_chat chat;
    runnel_status status = RUNNEL_OK;

    runnel_chat_default(&chat);
    chat.template_text = check->template_text.bytes;
    chat.template_name = check->options.template_name;
    chat.now_s = 1;
    openai_request_choice(request, at, 0, &one, &chat);
    *count = one.n_tokens;
    if (one.chat == NULL && one.tokens == NULL && one.prompt_bytes == 0)
        return refuse_empty(error);
    status = runnel_sampling_check(check->app.model, &one, error);
    if (status == RUNNEL_OK)
        status = check_keep(check, &one, error);
    if (status != RUNNEL_OK)
        return status;
    if (one.chat != NULL)
        status = runnel_tokenize_chat(check->app.model, one.chat, NULL, 0, count, error);
    else
        status = one.tokens != NULL ? check_ids(check, one.tokens, one.n_tokens, error)
                                    : count_text(check, one.prompt, one.prompt_bytes, count, error);
    return status == RUNNEL_OK ? check_grammar(check, &one, *count, error) : status;
}

static runnel_status check_embed(const struct check *check, const struct openai_request *request, size_t at,
                                 size_t *count, runnel_error *error)
{
    runnel_embed_request one;
    runnel_status status;

    openai_request_embed(request, at, &one);
    *count = one.n_tokens;
    if (one.tokens == NULL && one.text_bytes == 0)
        return refuse_empty(error);
    if (check->embedding > 0 && one.dimensions > check->embedding) {
        snprintf(error->message, sizeof error->message, "dimensions = %u is more than the model's %llu", one.dimensions,
                 (unsigned long long)check->embedding);
        return RUNNEL_INVALID;
    }
    status = one.tokens != NULL ? check_ids(check, one.tokens, one.n_tokens, error)
                                : count_text(check, one.text, one.text_bytes, count, error);
    return status == RUNNEL_OK ? check_room(check, *count, false, error) : status;
}

/* The query counts with each of its documents; what a template says beside them is known where the weights are. */
static runnel_status check_score(const struct check *check, const struct openai_request *request, size_t at,
                                 size_t *count, runnel_error *error)
{
    runnel_score_request one;
    runnel_status status;
    size_t query = 0;

    openai_request_score(request, at, &one);
    *count = one.n_tokens;
    if (one.tokens == NULL && one.text_bytes == 0)
        return refuse_empty(error);
    if (!check->has_scores) {
        snprintf(error->message, sizeof error->message,
                 "the model has no head that ranks or classifies (tensors cls and cls.output)");
        return RUNNEL_UNSUPPORTED;
    }
    status = one.tokens != NULL ? check_ids(check, one.tokens, one.n_tokens, error)
                                : count_text(check, one.text, one.text_bytes, count, error);
    if (status == RUNNEL_OK && one.query_bytes > 0)
        status = count_text(check, one.query, one.query_bytes, &query, error);
    *count += query;
    return status == RUNNEL_OK ? check_room(check, *count, false, error) : status;
}

/* Each prompt of the line; its answers to one prompt differ in nothing that is judged. False: no memory. */
static bool check_prompts(struct check *check, struct batch_line *line)
{
    const struct openai_request *request = &line->request;
    runnel_error gap = {0};

    gap.status = openai_infill(&line->request, check->app.model, &gap);
    if (gap.status == RUNNEL_NO_MEMORY)
        return no_memory();
    if (gap.status != RUNNEL_OK)
        batch_line_fault(line, 0, gap.about, gap.status, gap.message);
    for (size_t at = 0; at < line->n_choices && line->fault == BATCH_GOOD; at += openai_request_tries(request)) {
        runnel_error error = {0};
        size_t count = 0;
        runnel_status status =
            (request->endpoint & OPENAI_SCORES) != 0 ? check_score(check, request, at, &count, &error)
            : request->endpoint == OPENAI_EMBEDDINGS ? check_embed(check, request, at, &count, &error)
                                                     : check_generate(check, request, at, &count, &error);

        if (status == RUNNEL_NO_MEMORY)
            return no_memory();
        if (status != RUNNEL_OK)
            batch_line_fault(line, at, error.about, status, error.message);
        check->counts.prompt_tokens += count;
    }
    return true;
}

static void name_line(const struct check *check, const struct batch_line *line)
{
    printf("%s:%llu: ", check->input.path, (unsigned long long)line->number);
    if (line->custom_id != NULL) {
        app_json_string(stdout, line->custom_id, line->custom_id_bytes);
        fputs(": ", stdout);
    }
    app_escaped(stdout, line->error.message, strlen(line->error.message), 0);
    if (line->error.code != NULL)
        printf(" (%s)", line->error.code);
    putchar('\n');
}

static bool check_line(struct check *check, struct batch_raw *raw)
{
    struct batch_line *line = batch_line_new(raw, check->input.limit);
    uint64_t first = raw->number;
    bool good = line != NULL || no_memory();

    if (good && line->custom_id != NULL)
        good = batch_journal_name(check->ids, line->number, line->custom_id, line->custom_id_bytes, &first);
    if (good && first != raw->number)
        batch_line_duplicate(line, first);
    if (good)
        batch_line_check_adapter(line, &check->options);
    if (good && line->fault == BATCH_GOOD)
        good = check_prompts(check, line);
    if (good && line->fault != BATCH_GOOD)
        name_line(check, line);
    check->counts.lines += good;
    check->counts.bad += good && line->fault != BATCH_GOOD;
    check->counts.good += good && line->fault == BATCH_GOOD;
    batch_line_free(line);
    return good;
}

/* ---- All lines --------------------------------------------------------------------------- */

static int check_lines(struct check *check)
{
    uint64_t limit = (uint64_t)check->options.limit;
    enum batch_read read = BATCH_LINE;
    struct batch_raw raw;

    while ((limit == 0 || check->input.number < limit) && read != BATCH_END && read != BATCH_ERROR) {
        read = batch_input_next(&check->input, &raw);
        if (read == BATCH_WAIT)
            batch_input_ready(&check->input, APP_TICK_MS);
        else if (read == BATCH_LINE && !raw.blank && !check_line(check, &raw))
            return APP_FAILURE;
        if (app_interrupted() || !app_flush())
            return APP_CANCELLED;
    }
    return read == BATCH_ERROR ? APP_FAILURE : APP_OK;
}

/* As the library knows it. */
static bool has_scores(const runnel_file *file)
{
    static const char *const names[] = {"cls.weight", "cls.output.weight"};
    runnel_tensor tensor = {.struct_size = sizeof tensor};

    for (uint64_t i = 0; runnel_file_tensor(file, i, &tensor) == RUNNEL_OK; i++)
        for (size_t k = 0; k < 2; k++)
            if (strlen(names[k]) == tensor.name_bytes && memcmp(names[k], tensor.name, tensor.name_bytes) == 0)
                return true;
    return false;
}

/* What the file says of itself, as far as lines are judged by it. */
static int read_file(struct check *check)
{
    struct app_memory memory;
    runnel_file *file = NULL;
    runnel_error error = {0};
    char *architecture = NULL, *width = NULL;
    size_t n = 0;

    error.status = runnel_file_open(check->options.operands[0], &file, &error);
    if (error.status != RUNNEL_OK)
        return app_fail(&error);
    app_file_memory(file, &check->options, &memory);
    check->context = memory.context;
    check->has_scores = has_scores(file);
    architecture = app_file_text(file, "general.architecture", "", &n);
    width = app_file_text(file, architecture != NULL ? architecture : "", ".embedding_length", &n);
    check->embedding = width != NULL ? strtoull(width, NULL, 10) : 0;
    free(width);
    free(architecture);
    runnel_file_close(file);
    return APP_OK;
}

static int prepare(struct check *check)
{
    struct batch_job job = {0};
    bool fresh = false;
    int code = read_file(check);

    if (code != APP_OK)
        return code;
    if (check->options.template_file != NULL && !app_read_file(check->options.template_file, &check->template_text))
        return APP_FAILURE;
    code = app_open(&check->app, &check->options, true);
    if (code != APP_OK)
        return code;
    check->grammars = batch_grammars_new();
    if (check->grammars == NULL) {
        no_memory();
        return APP_FAILURE;
    }
    return batch_input_open(&check->input, check->options.operands[1], check->options.max_line_bytes) &&
                   batch_journal_open(&check->ids, BATCH_JOURNAL_NOWHERE, BATCH_FRESH, &fresh) &&
                   batch_journal_create(check->ids, NULL, 0, &job)
               ? APP_OK
               : APP_FAILURE;
}

static void close_check(struct check *check)
{
    app_close(&check->app);
    batch_journal_close(check->ids);
    batch_grammars_free(check->grammars);
    batch_input_close(&check->input);
    free(check->template_text.bytes);
}

/* What only a job has. */
static const char *without_effect(const struct app_options *options)
{
    return options->resume                 ? "--resume"
           : options->overwrite            ? "--overwrite"
           : options->unordered            ? "--unordered"
           : options->journal != NULL      ? "--journal"
           : options->errors_file != NULL  ? "--errors"
           : options->summary_file != NULL ? "--summary"
                                           : NULL;
}

int batch_check(const struct app_options *options)
{
    static struct check check; /* large, as in main.c */
    int code = APP_OK;

    if (without_effect(options) != NULL) {
        app_error("--check writes no file: %s would have no effect", without_effect(options));
        return APP_USAGE;
    }
    check = (struct check){.options = *options, .input = {.fd = -1}};
    check.options.draft = "none";
    check.options.cache_dir = check.options.cache_shared = NULL;
    check.app.options = &check.options; /* closed also where it was not opened */
    code = prepare(&check);
    if (code == APP_OK)
        code = check_lines(&check);
    if (code == APP_OK && !options->quiet)
        fprintf(stderr, "lines: %llu, %llu ok, %llu error%s; prompts of %llu tokens\n",
                (unsigned long long)check.counts.lines, (unsigned long long)check.counts.good,
                (unsigned long long)check.counts.bad, app_plural(check.counts.bad),
                (unsigned long long)check.counts.prompt_tokens);
    if (code == APP_OK)
        code = batch_judge(options, "any", &check.counts);
    close_check(&check);
    return app_worse(code, app_output_code());
}
