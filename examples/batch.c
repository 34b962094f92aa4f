/* Many prompts at once: one per line from a file or standard input, answers in the order of the input,
 * one per line, with newlines and backslashes written as \n and \\.
 *
 *     batch MODEL [FILE [STREAMS [MAX_TOKENS]]]
 *
 * At most STREAMS requests (default 16) are with the engine at a time; it computes them together. An
 * answer is printed as soon as all before it are, so that memory is needed only for those that overtook. */
#include <errno.h>
#include <runnel.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
    struct batch *batch;
    char *prompt, *answer; /* owned */
    size_t answer_bytes, capacity;
    bool ended, truncated;
};

struct batch {
    struct job *jobs;
    size_t n, submitted, printed, running, limit, failed;
    int64_t max_tokens;
};

static bool append(struct job *job, const char *text, size_t n)
{
    size_t capacity = 2 * (job->answer_bytes + n) + 64;
    char *grown = NULL;

    if (job->answer_bytes + n > job->capacity) {
        grown = realloc(job->answer, capacity);
        if (grown == NULL)
            return false;
        job->answer = grown;
        job->capacity = capacity;
    }
    if (n > 0)
        memcpy(job->answer + job->answer_bytes, text, n);
    job->answer_bytes += n;
    return true;
}

static void end(struct job *job, const char *error)
{
    job->ended = true;
    if (error == NULL)
        return;
    job->batch->failed++;
    fprintf(stderr, "batch: line %zu: %s\n", (size_t)(job - job->batch->jobs) + 1, error);
}

static void handle(const runnel_event *event)
{
    struct job *job = event->user;

    if (event->type == RUNNEL_EVENT_TOKEN && !job->truncated)
        job->truncated = !append(job, event->text, event->text_bytes);
    if (event->type < RUNNEL_EVENT_DONE)
        return;
    job->batch->running--;
    end(job, event->type == RUNNEL_EVENT_FAILED ? event->error : job->truncated ? "not enough memory" : NULL);
}

/* Submits until `limit` are running or the engine says that it is enough. A request that is refused for
 * good takes its place in the output as an empty line. */
static void submit(struct batch *batch, runnel_model *model)
{
    runnel_request request;
    runnel_stream stream;
    runnel_error error = {0};
    runnel_status status = RUNNEL_OK;

    while (batch->running < batch->limit && batch->submitted < batch->n) {
        struct job *job = &batch->jobs[batch->submitted++];

        runnel_request_default(&request);
        request.prompt = job->prompt;
        request.prompt_bytes = strlen(job->prompt);
        request.max_tokens = batch->max_tokens;
        request.user = job;
        status = runnel_generate(model, &request, &stream, &error);
        if (status == RUNNEL_BUSY && batch->running > 0) {
            batch->submitted--;
            return;
        }
        if (status == RUNNEL_OK)
            batch->running++;
        else
            end(job, error.message);
    }
}

static void print_ended(struct batch *batch)
{
    while (batch->printed < batch->n && batch->jobs[batch->printed].ended) {
        struct job *job = &batch->jobs[batch->printed++];

        for (size_t i = 0; i < job->answer_bytes; i++) {
            if (job->answer[i] == '\n')
                fputs("\\n", stdout);
            else if (job->answer[i] == '\\')
                fputs("\\\\", stdout);
            else
                fputc(job->answer[i], stdout);
        }
        fputc('\n', stdout);
        free(job->answer);
        job->answer = NULL;
    }
    fflush(stdout);
}

static bool read_jobs(struct batch *batch, FILE *file)
{
    char *line = NULL;
    size_t capacity = 0, room = 0;
    ssize_t n = 0;

    while ((n = getline(&line, &capacity, file)) >= 0) {
        if (n > 0 && line[n - 1] == '\n')
            line[n - 1] = '\0';
        if (batch->n == room) {
            struct job *grown = NULL;

            room = 2 * room + 16;
            grown = realloc(batch->jobs, room * sizeof *grown);
            if (grown == NULL)
                break;
            batch->jobs = grown;
        }
        batch->jobs[batch->n++] = (struct job){.batch = batch, .prompt = line};
        line = NULL;
        capacity = 0;
    }
    free(line);
    return !ferror(file) && feof(file);
}

/* Waits for events and handles them, as many as have come. */
static void take(runnel_engine *engine)
{
    const runnel_event *events[RUNNEL_MAX_TAKE];
    size_t n = 0;

    runnel_engine_wait(engine, -1);
    n = runnel_engine_take(engine, events, RUNNEL_MAX_TAKE);
    for (size_t i = 0; i < n; i++)
        handle(events[i]);
}

static int work(struct batch *batch, const char *path)
{
    runnel_engine_options options;
    runnel_engine *engine = NULL;
    runnel_model *model = NULL;
    runnel_error error = {0};
    int code = 1;

    runnel_engine_options_default(&options);
    options.delivery = RUNNEL_DELIVER_TAKE; /* no callbacks */
    if (runnel_engine_new(&options, &engine, &error) != RUNNEL_OK ||
        runnel_model_load(engine, path, NULL, &model, &error) != RUNNEL_OK ||
        runnel_model_wait(model, -1, &error) != RUNNEL_OK) {
        fprintf(stderr, "batch: %s\n", error.message);
    } else {
        while (batch->printed < batch->n) {
            submit(batch, model);
            if (batch->running > 0)
                take(engine);
            print_ended(batch);
        }
        code = batch->failed > 0;
    }
    runnel_model_free(model);
    runnel_engine_free(engine);
    return code;
}

int main(int argc, char **argv)
{
    bool from_stdin = argc < 3 || strcmp(argv[2], "-") == 0;
    struct batch batch = {.limit = argc > 3 ? strtoul(argv[3], NULL, 10) : 16,
                          .max_tokens = argc > 4 ? strtol(argv[4], NULL, 10) : 100};
    FILE *file = NULL;
    int code = 1;

    if (argc < 2 || batch.limit == 0) {
        fprintf(stderr, "usage: batch MODEL [FILE [STREAMS [MAX_TOKENS]]]\n");
        return 2;
    }
    file = from_stdin ? stdin : fopen(argv[2], "r");
    if (file == NULL || !read_jobs(&batch, file))
        fprintf(stderr, "batch: %s: %s\n", from_stdin ? "standard input" : argv[2], strerror(errno));
    else
        code = work(&batch, argv[1]);
    if (file != NULL && !from_stdin)
        fclose(file);
    for (size_t i = 0; i < batch.n; i++) {
        free(batch.jobs[i].prompt);
        free(batch.jobs[i].answer);
    }
    free(batch.jobs);
    return code;
}
