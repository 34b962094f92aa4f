/* The loop of a batch job:
 *
 *     input ──read──▶ line ──claim──▶ journal          lines in flight: at most as many as streams, and 64 MiB
 *                      │ submit
 *                      ▼
 *                   engine ──events──▶ choices ──all ended──▶ journal ──flush──▶ output
 *
 * A line's row is in the journal before the line is submitted, its answer leaves memory for the journal when the
 * last of its choices ends. What a line is at fault for becomes its error; what the machine fails at (memory, disk,
 * device) stops the job, and --resume computes the line: such a failure is never an answer. */
#include <stdlib.h>
#include <string.h>

#include "batch.h"

enum {
    READ_AT_ONCE = 256,       /* lines, before the engine is looked at again */
    LINE_BYTES = 64 << 20,    /* of all lines in flight */
    ANSWER_BYTES = 128 << 20, /* of all choices of a line, before they are written as JSON */
    LOGPROB_BYTES = 64,       /* what one log-probability costs of that */
    COMMIT_US = 20 * 1000,
    FLUSH_US = 100 * 1000, /* and twenty times what the last one has taken */
    RETRY_MS = 10,         /* where the engine does not say when */
    PRIORITY = -10,        /* whoever waits for an answer goes first */
    NUMBER_BYTES = 16,     /* of an embedding, as a float and as text */
    COALESCE_BYTES = 4096  /* only text counts, and a while at the disk should stop no stream */
};

static const char TOO_LARGE[] = "the answers are larger than 128 MiB together";

static void stop(struct batch *batch, int code)
{
    if (batch->code == APP_OK)
        batch->code = code;
}

/* ---- Events ------------------------------------------------------------------------------ */

static void on_event(void *user, const runnel_event *event)
{
    struct batch_stream *stream = user;
    struct batch_line *line = stream->line;
    size_t at = 0;

    if (line == NULL) /* the job is closing */
        return;
    at = (size_t)(stream - line->streams);
    line->answer_bytes += event->n_embedding * NUMBER_BYTES;
    line->answer_bytes += event->text_bytes + (event->n_top + 1) * (line->request.logprobs ? LOGPROB_BYTES : 0);
    line->too_large |= line->answer_bytes > ANSWER_BYTES;
    if (!line->too_large || event->type >= RUNNEL_EVENT_DONE)
        openai_choice_event(&line->choices[at], event);
    if (event->type >= RUNNEL_EVENT_DONE)
        line->n_ended++;
}

/* ---- Lines that are done ----------------------------------------------------------------- */

static bool is_machine(runnel_status status)
{
    switch (status) {
    case RUNNEL_INVALID:
    case RUNNEL_CONTEXT:
    case RUNNEL_NOT_FOUND:
    case RUNNEL_FORMAT:
    case RUNNEL_UNSUPPORTED:
    case RUNNEL_BUSY: /* its grammar takes more to be read than it may */
    case RUNNEL_NUMERIC:
        return false;
    default:
        return true;
    }
}

/* What the machine failed at, or the host cancelled, is no answer: false, and the job stops. */
static bool judge_choice(struct batch *batch, struct batch_line *line, size_t at)
{
    struct openai_choice *choice = &line->choices[at];

    if (choice->failed) {
        app_error("line %llu: not enough memory for its answer", (unsigned long long)line->number);
    } else if (choice->end == RUNNEL_EVENT_FAILED && is_machine(choice->status)) {
        app_error("line %llu: %s", (unsigned long long)line->number, choice->error);
    } else if (choice->end == RUNNEL_EVENT_CANCELLED && !line->too_large) {
        app_error("line %llu: the engine has cancelled its answer", (unsigned long long)line->number);
    } else {
        if (choice->end == RUNNEL_EVENT_FAILED)
            batch_line_fault(line, at, choice->about, choice->status, choice->error);
        return true;
    }
    stop(batch, APP_FAILURE);
    return false;
}

/* The line of the output, in answer->text, to be freed also behind false, which comes after a message. */
static bool write_answer(const struct batch *batch, struct batch_line *line, struct batch_answer *answer)
{
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    bool good = to != NULL;

    *answer = (struct batch_answer){0};
    if (good) {
        batch_line_write(to, line, batch->model_name, batch->job.created, answer);
        good = ferror(to) == 0;
        good = fclose(to) == 0 && good;
    }
    answer->text = text;
    answer->n = n;
    if (!good)
        app_error("line %llu: not enough memory for its answer", (unsigned long long)line->number);
    return good;
}

uint64_t batch_answer_bytes(const struct batch *batch)
{
    uint64_t sum = batch->job.waiting_bytes;

    for (size_t i = 0; i < BATCH_FILES; i++)
        sum += batch->job.places[i].bytes;
    return sum;
}

/* Whether the job's owner has room for it: an answer without room is none, and the job ends with those before it. */
static bool has_room(const struct batch *batch, const struct batch_answer *answer)
{
    const struct batch_owner *owner = &batch->owner;

    return owner->room == NULL || owner->room(owner->user, batch_answer_bytes(batch) + answer->n);
}

static void count_answer(struct batch *batch, const struct batch_answer *answer)
{
    batch->job.waiting_bytes += answer->n;
    batch->tokens += answer->prompt_tokens - answer->cached_tokens + answer->completion_tokens;
    batch->done_lines++;
    if (batch->owner.pay != NULL)
        batch->owner.pay(batch->owner.user, answer->prompt_tokens + answer->completion_tokens);
}

static bool record(struct batch *batch, struct batch_line *line)
{
    struct batch_answer answer;
    bool written = write_answer(batch, line, &answer), fits = !written || has_room(batch, &answer);
    bool good = written && fits && batch_journal_answer(batch->journal, &answer);

    if (good)
        count_answer(batch, &answer);
    else
        stop(batch, fits ? APP_FAILURE : APP_CANCELLED);
    free((char *)(uintptr_t)answer.text);
    return good;
}

/* True when the line is in the journal. */
static bool finish_line(struct batch *batch, struct batch_line *line)
{
    if (line->too_large)
        batch_line_fault(line, 0, RUNNEL_ABOUT_NONE, RUNNEL_INVALID, TOO_LARGE);
    for (size_t i = 0; i < line->n_ended; i++) /* all that were submitted */
        if (!judge_choice(batch, line, i))
            return false;
    return record(batch, line);
}

static void drop_line(struct batch *batch, size_t at)
{
    batch->line_bytes -= batch->lines[at]->bytes;
    batch_line_free(batch->lines[at]);
    batch->n_lines--;
    memmove(&batch->lines[at], &batch->lines[at + 1], (batch->n_lines - at) * sizeof(batch->lines[0]));
}

/* Answers too large end early; all that is done goes to the journal. */
static void collect(struct batch *batch)
{
    size_t at = 0;

    batch->n_running = 0;
    while (at < batch->n_lines && batch->code == APP_OK) {
        struct batch_line *line = batch->lines[at];

        if (line->too_large && line->fault == BATCH_GOOD) {
            batch_line_fault(line, 0, RUNNEL_ABOUT_NONE, RUNNEL_INVALID, TOO_LARGE);
            for (size_t i = 0; i < line->n_submitted; i++)
                runnel_stream_cancel(batch->app.engine, line->streams[i].id);
        }
        if (!batch_line_done(line)) {
            batch->n_running += line->n_submitted - line->n_ended;
            at++;
        } else if (finish_line(batch, line)) {
            drop_line(batch, at);
        }
    }
}

/* ---- Submitting -------------------------------------------------------------------------- */

static void fill_chat(const struct batch *batch, runnel_chat *chat)
{
    const struct app_options *options = batch->app.options;

    runnel_chat_default(chat);
    chat->template_text = batch->template_text.bytes;
    chat->template_name = options->template_name;
    chat->now_s = batch->job.created > 0 ? batch->job.created : 1; /* a clock would make a resumed job another */
}

static runnel_status send_score(struct batch *batch, struct batch_line *line, size_t at, runnel_error *error)
{
    struct batch_stream *stream = &line->streams[at];
    runnel_score_request score;

    openai_request_score(&line->request, at, &score);
    score.priority = PRIORITY;
    score.cache_salt = score.tenant = batch->tenant;
    score.label = line->label;
    score.adapter = openai_request_adapter(&line->request, app_adapter(batch->app.options));
    score.on_event = on_event;
    score.user = stream;
    return runnel_score(batch->app.model, &score, &stream->id, error);
}

static runnel_status send_choice(struct batch *batch, struct batch_line *line, size_t at, runnel_error *error)
{
    struct batch_stream *stream = &line->streams[at];
    runnel_request request;
    runnel_embed_request embed;
    runnel_chat chat;

    stream->line = line;
    if (line->request.endpoint == OPENAI_EMBEDDINGS) {
        openai_request_embed(&line->request, at, &embed);
        embed.priority = PRIORITY;
        embed.cache_salt = embed.tenant = batch->tenant;
        embed.label = line->label;
        embed.adapter = openai_request_adapter(&line->request, app_adapter(batch->app.options));
        embed.on_event = on_event;
        embed.user = stream;
        return runnel_embed(batch->app.model, &embed, &stream->id, error);
    }
    if ((line->request.endpoint & OPENAI_SCORES) != 0)
        return send_score(batch, line, at, error);
    error->status = openai_infill(&line->request, batch->app.model, error);
    if (error->status != RUNNEL_OK)
        return error->status;
    fill_chat(batch, &chat);
    openai_request_choice(&line->request, at, batch_line_seed(line), &request, &chat);
    request.priority = PRIORITY;
    request.cache_salt = request.tenant = batch->tenant;
    request.label = line->label;
    request.coalesce_bytes = request.want_logprobs ? 0 : COALESCE_BYTES;
    request.adapter = openai_request_adapter(&line->request, app_adapter(batch->app.options));
    app_draft(batch->app.options, &request);
    request.on_event = on_event;
    request.user = stream;
    return runnel_generate(batch->app.model, &request, &stream->id, error);
}

/* Submits the next choice of a line. False: not now. */
static bool submit_choice(struct batch *batch, struct batch_line *line)
{
    size_t at = line->n_submitted;
    runnel_error error = {0};

    if (line->n_open == at) {
        line->n_open++;
        if (!openai_choice_open(&line->choices[at], &line->request, at, batch->app.model)) {
            app_error("not enough memory for line %llu", (unsigned long long)line->number);
            stop(batch, APP_FAILURE);
            return false;
        }
    }
    error.status = send_choice(batch, line, at, &error);
    if (error.status == RUNNEL_OK) {
        line->n_submitted++;
        batch->n_running++;
        return true;
    }
    if (error.status == RUNNEL_BUSY || (error.status == RUNNEL_NO_MEMORY && batch->n_running > 0)) {
        batch->retry_us = batch->now_us + (error.retry_ms > 0 ? error.retry_ms : RETRY_MS) * UINT64_C(1000);
        return false;
    }
    if (!is_machine(error.status)) {
        batch_line_fault(line, at, error.about, error.status, error.message);
        return true;
    }
    stop(batch, app_fail(&error));
    return false;
}

/* Asks the job's owner, once for a line. False: not now. */
static bool let_in(struct batch *batch, struct batch_line *line)
{
    const struct batch_owner *owner = &batch->owner;
    struct openai_error error = {0};
    uint64_t retry_ms = 0;

    if (line->let_in || owner->ask == NULL)
        return true;
    switch (owner->ask(owner->user, &retry_ms, &error)) {
    case BATCH_GO:
        line->let_in = true;
        return true;
    case BATCH_NEVER:
        line->fault = BATCH_BAD_REQUEST;
        line->error = error;
        return true;
    case BATCH_LATER:
        batch->retry_us = batch->now_us + (retry_ms > RETRY_MS ? retry_ms : RETRY_MS) * UINT64_C(1000);
        break;
    }
    return false;
}

static void submit(struct batch *batch)
{
    size_t limit = (size_t)batch->app.options->batch_streams;

    if (batch->now_us < batch->retry_us)
        return;
    for (size_t i = 0; i < batch->n_lines && batch->code == APP_OK; i++) {
        struct batch_line *line = batch->lines[i];

        if (line->fault == BATCH_GOOD && !let_in(batch, line))
            return;
        while (line->fault == BATCH_GOOD && line->n_submitted < line->n_choices) {
            if (batch->n_running >= limit || !submit_choice(batch, line))
                return;
        }
    }
}

/* ---- Reading ----------------------------------------------------------------------------- */

static bool changed(struct batch *batch, uint64_t number)
{
    app_error("%s: line %llu is not the line that the journal knows: the input was changed; --overwrite begins anew",
              batch->input.path, (unsigned long long)number);
    batch->changed = true;
    return false;
}

/* Looks a line up that an earlier run has read. *done: it has its answer. */
static bool check_known(struct batch *batch, const struct batch_raw *raw, bool *done)
{
    enum batch_state state = BATCH_UNKNOWN;
    uint64_t hash = 0;

    *done = false;
    if (batch->job.lines > 0 && raw->number > batch->job.lines)
        return changed(batch, raw->number);
    if (raw->number > batch->job.known)
        return true;
    if (!batch_journal_find(batch->journal, raw->number, &state, &hash))
        return false;
    if (state == BATCH_UNKNOWN || hash != raw->hash)
        return changed(batch, raw->number);
    *done = state != BATCH_CLAIMED;
    return true;
}

static bool add_blank(struct batch *batch, const struct batch_raw *raw)
{
    const struct batch_answer nothing = {.number = raw->number, .hash = raw->hash};

    return batch_journal_answer(batch->journal, &nothing);
}

/* A batch of a server is of one endpoint and one model, whose name says which adapter it has. */
static void check_only(const struct batch *batch, struct batch_line *line)
{
    const char *model = line->request.model;
    char sentence[256];

    if (line->fault != BATCH_GOOD)
        return;
    if (batch->only_url != NULL && strcmp(openai_url(line->request.endpoint), batch->only_url) != 0) {
        snprintf(sentence, sizeof sentence, "url: the batch is one of %s", batch->only_url);
        batch_line_fault(line, 0, RUNNEL_ABOUT_NONE, RUNNEL_INVALID, sentence);
    } else if (batch->only_model != NULL && model != NULL && strcmp(model, batch->only_model) != 0) {
        snprintf(sentence, sizeof sentence, "model: the batch is one of '%.80s'", batch->only_model);
        batch_line_fault(line, 0, RUNNEL_ABOUT_NONE, RUNNEL_INVALID, sentence);
    } else if (batch->only_model != NULL && line->request.adapter != NULL) {
        line->fault = BATCH_BAD_REQUEST;
        openai_refuse(&line->error, "invalid_value", "adapter", "adapter: the batch is one of '%.80s', which says it",
                      batch->only_model);
    } else {
        batch_line_check_adapter(line, batch->app.options);
    }
}

static bool add_line(struct batch *batch, struct batch_line *line)
{
    uint64_t first = 0;

    if (line == NULL) {
        app_error("not enough memory for line %llu", (unsigned long long)batch->input.number);
        return false;
    }
    first = line->number;
    check_only(batch, line);
    batch->lines[batch->n_lines++] = line;
    batch->line_bytes += line->bytes;
    if (!batch_journal_claim(batch->journal, line->number, line->hash))
        return false;
    if (line->custom_id == NULL)
        return true;
    if (!batch_journal_name(batch->journal, line->number, line->custom_id, line->custom_id_bytes, &first))
        return false;
    if (first != line->number)
        batch_line_duplicate(line, first);
    return true;
}

/* Makes a line of what was read, or has its owner do so. */
static bool make_line(struct batch *batch, struct batch_raw *raw)
{
    const struct batch_owner *owner = &batch->owner;

    if (owner->read == NULL || raw->bytes == NULL || raw->n <= owner->loop_bytes)
        return add_line(batch, batch_line_new(raw, batch->input.limit));
    batch->reads = true;
    owner->read(owner->user, raw, batch->input.limit);
    return true;
}

void batch_take_line(struct batch *batch, struct batch_line *line)
{
    batch->reads = false;
    if (batch->code != APP_OK)
        batch_line_free(line);
    else if (!add_line(batch, line))
        stop(batch, APP_FAILURE);
}

static bool read_line(struct batch *batch)
{
    uint64_t limit = (uint64_t)batch->app.options->limit;
    struct batch_raw raw;
    bool done = false, good = true;

    if (limit > 0 && batch->input.number >= limit) { /* the journal is not told of an end: a later run may go on */
        batch->input_ended = true;
        return true;
    }

    switch (batch_input_next(&batch->input, &raw)) {
    case BATCH_END:
        batch->input_ended = true;
        if (batch->input.number < batch->job.known)
            return changed(batch, batch->input.number + 1);
        return batch_journal_end(batch->journal, batch->input.number);
    case BATCH_WAIT:
        return true;
    case BATCH_ERROR:
        return false;
    case BATCH_LINE:
        break;
    }
    good = check_known(batch, &raw, &done);
    if (!good || done || raw.blank) {
        free(raw.bytes);
        raw.bytes = NULL;
    }
    if (!good)
        return false;
    if (done) {
        batch->first_offset = batch->n_lines == 0 && batch->done_lines == 0 ? raw.end : batch->first_offset;
        return true;
    }
    return raw.blank ? add_blank(batch, &raw) : make_line(batch, &raw);
}

/* Choices that run or wait for a stream. */
static size_t n_wanted(const struct batch *batch)
{
    size_t n = 0;

    for (size_t i = 0; i < batch->n_lines; i++) {
        const struct batch_line *line = batch->lines[i];

        n += (line->fault == BATCH_GOOD ? line->n_choices : line->n_submitted) - line->n_ended;
    }
    return n;
}

static bool can_read(const struct batch *batch)
{
    size_t limit = (size_t)batch->app.options->batch_streams;

    return batch->code == APP_OK && !batch->reads && !batch->input_ended && batch->n_lines < limit &&
           n_wanted(batch) < limit && batch->line_bytes < LINE_BYTES;
}

static void fill(struct batch *batch)
{
    for (unsigned i = 0; i < READ_AT_ONCE && can_read(batch); i++) {
        if (!batch_input_ready(&batch->input, batch->n_lines == 0 ? APP_TICK_MS : 0))
            return;
        if (!read_line(batch))
            stop(batch, APP_FAILURE);
    }
}

/* ---- The loop ---------------------------------------------------------------------------- */

static void save(struct batch *batch, bool now)
{
    uint64_t pause = FLUSH_US > 20 * batch->flush_cost_us ? FLUSH_US : 20 * batch->flush_cost_us;
    bool good = true;

    if (now || batch->now_us - batch->flushed_us >= pause) {
        uint64_t begin = batch_clock_us();

        good = batch_output_flush(&batch->output, batch->journal);
        batch->flushed_us = batch->committed_us = batch_clock_us();
        batch->flush_cost_us = batch->flushed_us - begin;
    } else if (batch->now_us - batch->committed_us >= COMMIT_US) {
        good = batch_journal_commit(batch->journal);
        batch->committed_us = batch->now_us;
    }
    if (!good)
        stop(batch, batch->output.gone ? APP_CANCELLED : APP_FAILURE);
}

/* A line could be read at once. */
static bool has_line(const struct batch *batch)
{
    return can_read(batch) && batch_input_ready(&batch->input, 0);
}

/* Milliseconds until something is to be done without an event. */
static int64_t patience(const struct batch *batch)
{
    uint64_t until = batch->now_us + APP_TICK_MS * 1000;

    if (batch->retry_us > batch->now_us && batch->retry_us < until)
        until = batch->retry_us;
    if (batch->committed_us + COMMIT_US < until)
        until =
            batch->committed_us + COMMIT_US > batch->now_us ? batch->committed_us + COMMIT_US : batch->now_us + 1000;
    return (int64_t)((until - batch->now_us + 999) / 1000);
}

size_t batch_live(const struct batch *batch)
{
    size_t n = 0;

    for (size_t i = 0; i < batch->n_lines; i++)
        n += batch->lines[i]->n_submitted - batch->lines[i]->n_ended;
    return n;
}

void batch_cancel(struct batch *batch)
{
    stop(batch, APP_CANCELLED);
    for (size_t i = 0; i < batch->n_lines; i++)
        for (size_t k = 0; k < batch->lines[i]->n_submitted; k++)
            runnel_stream_cancel(batch->app.engine, batch->lines[i]->streams[k].id);
}

void batch_detach(struct batch *batch)
{
    for (size_t i = 0; i < batch->n_lines; i++)
        for (size_t k = 0; k < batch->lines[i]->n_submitted; k++)
            batch->lines[i]->streams[k].line = NULL;
}

bool batch_turn(struct batch *batch)
{
    bool over = false;

    batch->now_us = batch_clock_us();
    fill(batch);
    submit(batch);
    collect(batch);
    over = batch->code != APP_OK || (batch->input_ended && batch->n_lines == 0);
    if (batch->code == APP_OK || (over && batch->code == APP_CANCELLED))
        save(batch, over);
    return !over && batch->code == APP_OK;
}

void batch_run(struct batch *batch)
{
    batch->began_us = batch->now_us = batch->flushed_us = batch->committed_us = batch_clock_us();
    while (batch->code == APP_OK && !(batch->input_ended && batch->n_lines == 0)) {
        fill(batch);
        submit(batch);
        collect(batch); /* also lines that were done as soon as they were read */
        if (batch->code == APP_OK && !has_line(batch) && (batch->n_running > 0 || batch->retry_us > batch->now_us))
            runnel_engine_wait(batch->app.engine, patience(batch));
        runnel_engine_dispatch(batch->app.engine, 0);
        batch->now_us = batch_clock_us();
        collect(batch);
        if (batch->code == APP_OK)
            save(batch, false);
        if (app_interrupted())
            stop(batch, APP_CANCELLED);
        app_streams_show(&batch->app);
        batch_show(batch);
    }
    app_progress_clear();
    if (batch->code == APP_OK || (batch->code == APP_CANCELLED && !batch->output.gone))
        save(batch, true);
}
