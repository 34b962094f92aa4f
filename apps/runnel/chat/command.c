/* Commands of `runnel chat`: the table that reads them and the help that it prints. See chat.h. */
#include <stdlib.h>
#include <string.h>

#include "chat.h"

static int help(struct chat *chat, const char *operand);

static int clear(struct chat *chat, const char *operand)
{
    (void)operand;
    return chat_new(chat);
}

static int regen(struct chat *chat, const char *operand)
{
    size_t turns = chat_talk_turns(&chat->talk), last = chat_talk_turn(&chat->talk, turns > 0 ? turns - 1 : 0);

    (void)operand;
    if (turns == 0) {
        app_error("there is no message to answer yet");
        return APP_FAILURE;
    }
    if (last + 1 < chat->talk.n) { /* there was an answer: the next one by other coins */
        chat->again++;
        if (chat->options.temperature == 0 && !chat->options.quiet)
            app_error("the temperature is 0, so the same answer comes; /set temperature 0.7 makes others possible");
    }
    chat_talk_remove(&chat->talk, last + 1, chat->talk.n);
    return chat_answer(chat);
}

static int set_system(struct chat *chat, const char *text)
{
    bool has = chat->talk.n > 0 && chat->talk.list[0].role == CHAT_SYSTEM;
    struct chat_talk talk = {0};
    char *kept = text != NULL ? strdup(text) : NULL;

    if (kept == NULL) {
        fprintf(stderr, "%s\n", chat->options.system != NULL ? chat->options.system : "there is no system message");
        return APP_OK;
    }
    if (strcmp(kept, "\"\"") != 0 && !chat_talk_add_text(&talk, CHAT_SYSTEM, kept, strlen(kept))) {
        free(kept);
        return APP_FAILURE;
    }
    for (size_t i = has; i < chat->talk.n; i++)
        if (!chat_talk_add(&talk, chat->talk.list[i].role, strdup(chat->talk.list[i].json))) {
            chat_talk_fini(&talk);
            free(kept);
            return APP_FAILURE;
        }
    chat_talk_fini(&chat->talk);
    chat->talk = talk;
    free(chat->system);
    chat->system = kept;
    chat->options.system = strcmp(kept, "\"\"") != 0 ? kept : NULL;
    chat_warn_system(chat);
    return APP_OK;
}

/* How many of the oldest turns go so that half of the context is free; all but the last at most. */
static size_t turns_for_half(const struct chat *chat, size_t turns)
{
    struct chat_talk rest;
    size_t drop = 0, tokens;

    do {
        drop++;
        if (!chat_talk_copy(&rest, &chat->talk))
            return drop;
        chat_talk_remove(&rest, chat_talk_turn(&rest, 0), chat_talk_turn(&rest, drop));
        tokens = chat_tokens(chat, &rest, false);
        chat_talk_fini(&rest);
    } while (drop + 1 < turns && tokens > chat->app.info.context_tokens / 2);
    return drop;
}

/* Forgets the n oldest turns; 0: as many as free half of the context. */
static void forget(struct chat *chat, size_t n, const char *why)
{
    size_t turns = chat_talk_turns(&chat->talk);

    if (n == 0)
        n = turns_for_half(chat, turns);
    chat_talk_remove(&chat->talk, chat_talk_turn(&chat->talk, 0), chat_talk_turn(&chat->talk, n));
    chat->used = 0;
    if (!chat->options.quiet)
        fprintf(stderr, "%sforgot %zu of %zu turns; %zu of %u tokens are used\n", why, n, turns,
                chat_tokens(chat, &chat->talk, false), chat->app.info.context_tokens);
}

bool chat_make_room(struct chat *chat)
{
    if (chat->options.context_keep < 0 || chat_talk_turns(&chat->talk) < 2)
        return false;
    forget(chat, 0, "the context is full: ");
    return true;
}

static int drop(struct chat *chat, const char *operand)
{
    size_t turns = chat_talk_turns(&chat->talk), n = 0;
    char *end = NULL;

    if (operand != NULL) {
        n = strtoul(operand, &end, 10);
        if (*end != '\0' || operand[0] < '0' || operand[0] > '9' || n == 0) {
            app_error("/drop '%.40s' is not allowed: it takes a number of turns, from 1 on, or nothing", operand);
            return APP_USAGE;
        }
    }
    if (turns < 2 || n >= turns) {
        app_error("there %s %zu turn%s, and the last one stays; /clear forgets all", turns == 1 ? "is" : "are", turns,
                  app_plural(turns));
        return APP_FAILURE;
    }
    forget(chat, n, "");
    return APP_OK;
}

static int leave(struct chat *chat, const char *operand)
{
    (void)chat;
    (void)operand;
    return APP_OK;
}

/* ---- The table --------------------------------------------------------------------------- */

enum takes { NOTHING, PERHAPS, SOMETHING };

static const struct command {
    const char *group; /* the heading in front of it, or NULL */
    const char *name, *operand;
    enum takes takes;
    int (*run)(struct chat *chat, const char *operand);
    const char *help;
} commands[] = {
    {"The conversation", "/clear", NULL, NOTHING, clear, "forget it; the system message stays"},
    {NULL, "/regen", NULL, NOTHING, regen, "answer the last message once more"},
    {NULL, "/edit", NULL, NOTHING, chat_edit, "change your last message in $EDITOR, and have that answered instead"},
    {NULL, "/system", "TEXT", PERHAPS, set_system, "another system message; \"\": none; without TEXT: show it"},
    {NULL, "/drop", "N", PERHAPS, drop, "forget the N oldest turns; without N: until half of the context is free"},
    {NULL, "/fork", NULL, NOTHING, chat_fork, "set it aside and go on with a copy"},
    {NULL, "/back", NULL, NOTHING, chat_back, "drop it for the one set aside last"},
    {"Files", "/read", "FILE", SOMETHING, chat_read, "put a text file in front of your next message"},
    {NULL, "/save", "FILE", SOMETHING, chat_save, "keep the conversation in a file"},
    {NULL, "/load", "FILE", SOMETHING, chat_load, "go on with the one in a file"},
    {"The model", "/set", "NAME VALUE", PERHAPS, chat_set, "change a parameter; without NAME: list them"},
    {NULL, "/show", NULL, NOTHING, chat_show, "model, template, parameters, session, context"},
    {NULL, "/tokens", NULL, NOTHING, chat_show_tokens, "how much of the context is used and free"},
    {"Else", "/help", NULL, NOTHING, help, "this text"},
    {NULL, "/exit", NULL, NOTHING, leave, "leave; so do /quit, /bye and Ctrl-D"},
    {NULL, "/quit", NULL, NOTHING, leave, NULL},
    {NULL, "/bye", NULL, NOTHING, leave, NULL},
};

static const struct {
    const char *key, *help;
} keys[] = {
    {"Ctrl-C", "stop the answer; at the prompt: drop the line"},
    {"\"\"\"", "begins and ends a message of several lines"},
    {"\\", "at the end of a line: the message goes on in the next one"},
    {"a paste", "is one message, whatever lines it has; Enter sends it"},
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0], NAME_WIDTH = 16, NARROW = 60 };

/* A name and what it is for: beside each other where there is room, else below each other. */
static void help_line(const char *name, const char *operand, const char *text)
{
    int width = fprintf(stderr, "  %s%s%s", name, operand != NULL ? " " : "", operand != NULL ? operand : "");

    if (chat_columns() < NARROW) {
        fputs("\n      ", stderr);
        chat_wrap(stderr, 6, 6, text);
        return;
    }
    fprintf(stderr, "%*s", width < NAME_WIDTH + 3 ? NAME_WIDTH + 3 - width : 1, "");
    chat_wrap(stderr, NAME_WIDTH + 3, NAME_WIDTH + 3, text);
}

static int help(struct chat *chat, const char *operand)
{
    (void)chat;
    (void)operand;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (commands[i].group != NULL)
            fprintf(stderr, "%s%s:\n", i > 0 ? "\n" : "", commands[i].group);
        if (commands[i].help != NULL)
            help_line(commands[i].name, commands[i].operand, commands[i].help);
    }
    fputs("\nKeys:\n", stderr);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        help_line(keys[i].key, NULL, keys[i].help);
    return APP_OK;
}

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static void complain_unknown(const char *name)
{
    const char *names[N_COMMANDS], *near;

    for (size_t i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i].name;
    near = app_nearest(name, names, N_COMMANDS);
    if (near != NULL)
        app_error("'%.80s' is not a command; did you mean %s? See /help", name, near);
    else
        app_error("'%.80s' is not a command; see /help", name);
}

/* Whether a command may have that behind it. False after a message. */
static bool takes(const struct command *command, const char *rest)
{
    bool missing = command->takes == SOMETHING && *rest == '\0', extra = command->takes == NOTHING && *rest != '\0';

    if (missing)
        app_error("%s needs a file: %s %s", command->name, command->name, command->operand);
    if (extra)
        app_error("%s takes nothing behind it; see /help", command->name);
    return !missing && !extra;
}

/* Runs the command `name` with what stands behind it, or "". */
static bool run(struct chat *chat, const char *name, const char *rest, int *code)
{
    const struct command *command = find(name);
    int got;

    if (command == NULL)
        complain_unknown(name);
    if (command == NULL || !takes(command, rest)) {
        *code = APP_USAGE;
        return true;
    }
    got = command->run(chat, *rest != '\0' ? rest : NULL);
    if (got != APP_OK && got != APP_CANCELLED)
        *code = got;
    return command->run != leave && (got == APP_OK || command->run != clear);
}

bool chat_command(struct chat *chat, const char *line, size_t n, int *code)
{
    char *copy = strndup(line, n), *rest;
    bool stay;

    if (copy == NULL) {
        app_error("not enough memory");
        *code = APP_FAILURE;
        return true;
    }
    while (n > 0 && copy[n - 1] == ' ')
        copy[--n] = '\0';
    rest = copy + strcspn(copy, " ");
    if (*rest != '\0')
        *rest++ = '\0';
    rest += strspn(rest, " ");
    stay = run(chat, copy, rest, code);
    free(copy);
    return stay;
}
