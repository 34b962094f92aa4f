/* runnel logits: the logits of every position of a text, for comparison with other programs.
 *
 *   u32 n_tokens | u32 n_vocab | i32 tokens[n_tokens] | f32 logits[n_tokens][n_vocab]
 *
 * all little endian. Row i holds the logits of the token that follows position i. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

struct sink {
    FILE *file;
    uint64_t rows;
    uint32_t n_vocab;
    bool disordered;
};

static void put_u32(FILE *file, uint32_t value)
{
    unsigned char bytes[4] = {(unsigned char)value, (unsigned char)(value >> 8), (unsigned char)(value >> 16),
                              (unsigned char)(value >> 24)};

    fwrite(bytes, 1, sizeof bytes, file);
}

static bool on_event(void *user, const runnel_event *event)
{
    struct sink *sink = user;
    uint32_t bits = 0;

    if (event->type != RUNNEL_EVENT_LOGITS)
        return true;
    if (event->position != sink->rows || event->n_logits != sink->n_vocab) {
        sink->disordered = true;
        return false;
    }
    for (uint32_t i = 0; i < event->n_logits; i++) {
        memcpy(&bits, &event->logits[i], sizeof bits);
        put_u32(sink->file, bits);
    }
    sink->rows++;
    return !ferror(sink->file);
}

static int compute(struct app *app, const struct app_ids *ids, FILE *file)
{
    struct sink sink = {.file = file, .n_vocab = app->info.vocab_tokens};
    struct app_outcome outcome;
    runnel_request request;
    int code = APP_OK;

    put_u32(file, (uint32_t)ids->count);
    put_u32(file, sink.n_vocab);
    for (size_t i = 0; i < ids->count; i++)
        put_u32(file, (uint32_t)ids->ids[i]);
    runnel_request_default(&request);
    request.tokens = ids->ids;
    request.n_tokens = ids->count;
    request.max_tokens = 0;
    request.want_logits = 1;
    request.adapter = app_adapter(app->options);
    code = app_stream(app, &request, on_event, &sink, &outcome);
    if (sink.disordered || (code == APP_OK && sink.rows != ids->count && !ferror(file))) {
        app_error("the engine gave %llu rows of logits in order, %zu were due", (unsigned long long)sink.rows,
                  ids->count);
        return APP_FAILURE;
    }
    if (code == APP_OK)
        app_figures(app->options, &outcome);
    return code;
}

static bool is_regular(FILE *file)
{
    struct stat stat;

    return fstat(fileno(file), &stat) == 0 && S_ISREG(stat.st_mode);
}

/* Leaves no half file behind. */
static int write_file(struct app *app, const struct app_ids *ids, const char *path)
{
    FILE *file = fopen(path, "wbe");
    bool regular = false, good = false;
    int code = APP_OK;

    if (file == NULL) {
        app_error("%s: %s", path, strerror(errno));
        return APP_FAILURE;
    }
    regular = is_regular(file);
    code = compute(app, ids, file);
    errno = 0;
    good = !ferror(file);
    if (fclose(file) != 0 || !good) {
        app_error("%s: %s", path, errno != 0 ? strerror(errno) : "it could not be written");
        code = APP_FAILURE;
    }
    if (code != APP_OK && regular)
        unlink(path);
    return code;
}

static int write_output(struct app *app, const struct app_ids *ids, const char *path)
{
    int code = APP_OK;

    if (strcmp(path, "-") != 0)
        return write_file(app, ids, path);
    code = compute(app, ids, stdout);
    return app_worse(code, app_output_code());
}

int app_logits(const struct app_options *options)
{
    struct app app = {0};
    struct app_ids ids = {0};
    uint32_t flags = RUNNEL_TOKENIZE_BOS | (options->special ? RUNNEL_TOKENIZE_SPECIAL : 0);
    int code = APP_OK;

    if ((options->prompt == NULL) == (options->tokens == NULL)) {
        app_error("give either a text with -p or ids with --tokens");
        return APP_USAGE;
    }
    if (options->out == NULL) {
        app_error("--output is missing: where the logits go");
        return APP_USAGE;
    }
    code = app_open(&app, options, false);
    if (code == APP_OK && options->prompt != NULL)
        code = app_tokenize(&app, options->prompt, strlen(options->prompt), flags, &ids);
    for (size_t i = 0; i < options->n_tokens && code == APP_OK; i++)
        code = app_ids_push(&ids, options->tokens[i]) ? APP_OK : APP_FAILURE;
    if (code == APP_OK)
        code = write_output(&app, &ids, options->out);
    app_ids_fini(&ids);
    app_close(&app);
    return code;
}
