/* Conversations in files: the engine's session, and the messages as its note. See common.h. */
#include <stdlib.h>
#include <string.h>

#include "apps/runnel/common.h"

/* Waits for the end; a signal cancels. An exit code. */
static int await(struct app *app, runnel_stream stream, runnel_event *end)
{
    runnel_error error = {0};
    bool cancelled = false;

    do {
        error.status = runnel_stream_next(app->engine, stream, APP_TICK_MS, end);
        if (app_interrupted() && !cancelled) {
            runnel_stream_cancel(app->engine, stream);
            cancelled = true;
        }
    } while (error.status == RUNNEL_TIMEOUT);
    if (error.status == RUNNEL_OK && end->type != RUNNEL_EVENT_DONE) {
        error.status = end->type == RUNNEL_EVENT_CANCELLED ? RUNNEL_CANCELLED : end->status;
        snprintf(error.message, sizeof error.message, "%s", end->error);
    }
    return error.status == RUNNEL_OK ? APP_OK : app_fail(&error);
}

static void say(const struct app *app, const char *what, const char *path, const runnel_event *end)
{
    if (!app->options->quiet)
        app_error("%s %s: %llu token%s, %llu of them computed", what, path,
                  (unsigned long long)end->usage.prompt_tokens, app_plural(end->usage.prompt_tokens),
                  (unsigned long long)end->usage.cached_tokens);
}

int app_session_save(struct app *app, runnel_session session, const char *path, const char *note, size_t n)
{
    runnel_session_file file;
    runnel_stream stream = {0};
    runnel_error error = {0};
    runnel_event end;
    int code;

    runnel_session_file_default(&file);
    file.path = path;
    file.note = note;
    file.note_bytes = n;
    error.status = runnel_session_export(app->model, session, &file, &stream, &error);
    if (error.status != RUNNEL_OK)
        return app_fail(&error);
    code = await(app, stream, &end);
    if (code == APP_OK)
        say(app, "saved", path, &end);
    return code;
}

static int read_note(const char *path, struct app_text *note)
{
    runnel_error error = {0};
    size_t n = 0;

    error.status = runnel_session_read_note(path, NULL, 0, &n, &error);
    if (error.status != RUNNEL_OK)
        return app_fail(&error);
    note->size = n;
    note->bytes = malloc(n + 1);
    if (note->bytes == NULL) {
        app_error("not enough memory");
        return APP_FAILURE;
    }
    note->bytes[n] = '\0';
    error.status = runnel_session_read_note(path, note->bytes, note->size, &n, &error);
    if (error.status == RUNNEL_OK && n == note->size)
        return APP_OK;
    free(note->bytes);
    note->bytes = NULL;
    if (error.status != RUNNEL_OK)
        return app_fail(&error);
    app_error("%s has changed while it was read", path);
    return APP_FAILURE;
}

int app_session_load(struct app *app, const char *path, runnel_session *session, struct app_text *note)
{
    runnel_session_file file;
    runnel_stream stream = {0};
    runnel_error error = {0};
    runnel_event end;
    int code = read_note(path, note);

    if (code != APP_OK)
        return code;
    runnel_session_file_default(&file);
    file.path = path;
    error.status = runnel_session_import(app->model, &file, session, &stream, &error);
    code = error.status == RUNNEL_OK ? await(app, stream, &end) : app_fail(&error);
    if (code == APP_OK) {
        say(app, "loaded", path, &end);
        return APP_OK;
    }
    free(note->bytes);
    note->bytes = NULL;
    return code;
}
