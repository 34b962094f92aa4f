/* Conversations that are kept: in files, and set aside. See chat.h. */
#include <stdlib.h>
#include <string.h>

#include "chat.h"

int chat_new(struct chat *chat)
{
    const char *system = chat->options.system;
    runnel_error error = {0};

    if (chat->session.id != 0)
        runnel_session_free(chat->app.model, chat->session);
    chat->session.id = 0;
    chat_talk_remove(&chat->talk, 0, chat->talk.n);
    free(chat->pending);
    chat->pending = NULL;
    chat->used = 0;
    if (system != NULL && !chat_talk_add_text(&chat->talk, CHAT_SYSTEM, system, strlen(system)))
        return APP_FAILURE;
    error.status = runnel_session_new(chat->app.model, &chat->session);
    return error.status == RUNNEL_OK ? APP_OK : app_fail(&error);
}

int chat_save(struct chat *chat, const char *path)
{
    bool named = path == chat->options.session_file; /* and looked at when the program began */
    char *messages;
    int code;

    if (!named && !app_file_apart(&chat->options, APP_CHAT, "/save", path))
        return APP_USAGE;
    messages = chat_talk_json(&chat->talk);
    if (messages == NULL) {
        app_error("not enough memory");
        return APP_FAILURE;
    }
    code = app_session_save(&chat->app, chat->session, path, messages, strlen(messages));
    free(messages);
    return code;
}

/* The system message is that of the conversation that came: what /system shows, and /clear leaves. */
static void take_system(struct chat *chat)
{
    bool has = chat->talk.n > 0 && chat->talk.list[0].role == CHAT_SYSTEM;

    free(chat->system);
    chat->system = has ? chat_talk_content(&chat->talk, 0) : NULL;
    chat->options.system = chat->system;
}

/* What the conversation is about, for whoever has forgotten it. */
static void tell_loaded(const struct chat *chat)
{
    size_t turns = chat_talk_turns(&chat->talk), last = chat_talk_turn(&chat->talk, turns > 0 ? turns - 1 : 0);
    char *content = chat_talk_content(&chat->talk, last);
    char *shown = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&shown, &size);

    if (to != NULL && !chat->options.quiet) {
        fprintf(to, "it holds %zu turn%s%s", turns, app_plural(turns),
                chat->talk.n > 0 && chat->talk.list[0].role == CHAT_SYSTEM ? " and a system message" : "");
        if (content != NULL) {
            fputs("; the last one begins: ", to);
            app_escaped(to, content, strlen(content), 50);
        }
        if (chat->talk.n > 0 && chat->talk.list[chat->talk.n - 1].role == CHAT_USER)
            fputs(" (not answered yet: /regen does)", to);
        fclose(to);
        app_error("%s", shown);
        to = NULL;
    }
    if (to != NULL)
        fclose(to);
    free(shown);
    free(content);
}

/* The conversation in the file takes the place of this one; unless it cannot be read. */
int chat_load(struct chat *chat, const char *path)
{
    struct app_text note = {NULL, 0};
    struct chat_talk talk;
    runnel_session session = {0};
    int code = app_session_load(&chat->app, path, &session, &note);

    if (code != APP_OK)
        return code;
    if (!chat_talk_read(&talk, note.bytes, note.size)) {
        app_error("%s: a session, and no conversation of this program", path);
        runnel_session_free(chat->app.model, session);
        free(note.bytes);
        return APP_FAILURE;
    }
    free(note.bytes);
    runnel_session_free(chat->app.model, chat->session);
    chat->session = session;
    chat_talk_fini(&chat->talk);
    chat->talk = talk;
    take_system(chat);
    tell_loaded(chat);
    return APP_OK;
}

/* Sets what there is aside, and goes on with a copy. */
int chat_fork(struct chat *chat, const char *operand)
{
    struct chat_aside *aside = &chat->aside[chat->n_aside];
    runnel_session copy;
    runnel_error error = {0};

    (void)operand;
    if (chat->n_aside == CHAT_MAX_ASIDE) {
        app_error("at most %d copies can be set aside; /back returns to one", CHAT_MAX_ASIDE);
        return APP_FAILURE;
    }
    if (!chat_talk_copy(&aside->talk, &chat->talk))
        return APP_FAILURE;
    error.status = runnel_session_fork(chat->app.model, chat->session, &copy);
    if (error.status != RUNNEL_OK) {
        chat_talk_fini(&aside->talk);
        return app_fail(&error);
    }
    aside->session = chat->session;
    chat->n_aside++;
    chat->session = copy;
    return APP_OK;
}

/* Drops this conversation for the one set aside last. */
int chat_back(struct chat *chat, const char *operand)
{
    struct chat_aside *aside;

    (void)operand;
    if (chat->n_aside == 0) {
        app_error("nothing is set aside; see /fork");
        return APP_FAILURE;
    }
    aside = &chat->aside[--chat->n_aside];
    runnel_session_free(chat->app.model, chat->session);
    chat->session = aside->session;
    chat_talk_fini(&chat->talk);
    chat->talk = aside->talk;
    take_system(chat);
    return APP_OK;
}

void chat_close_sessions(struct chat *chat)
{
    while (chat->n_aside > 0) {
        struct chat_aside *aside = &chat->aside[--chat->n_aside];

        runnel_session_free(chat->app.model, aside->session);
        chat_talk_fini(&aside->talk);
    }
    if (chat->session.id != 0)
        runnel_session_free(chat->app.model, chat->session);
}
