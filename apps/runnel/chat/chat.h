/* What the files of `runnel chat` share: the conversation, the line editor and the commands. Main thread. Every text
 * that tells what is wrong says what is possible. */
#ifndef RUNNEL_APP_CHAT_H
#define RUNNEL_APP_CHAT_H

#include "apps/runnel/common.h"

enum { CHAT_MAX_ASIDE = 16 /* copies set aside */ };

/* A text that grows, as a stream to print to. */
struct chat_buffer {
    FILE *to;
    char *bytes; /* valid after fflush(to) */
    size_t n;
};

bool chat_buffer_open(struct chat_buffer *buffer);
void chat_buffer_close(struct chat_buffer *buffer);

/* ---- The messages: talk.c ----------------------------------------------------------- */

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_OTHER };

struct chat_message {
    enum chat_role role;
    char *json; /* owned; an object in OpenAI's form, byte for byte as it came */
};

struct chat_talk {
    struct chat_message *list; /* owned; [n] of [room] */
    size_t n, room;
};

/* Appends; takes `json`, also where it returns false: memory is short (or json is NULL). */
bool chat_talk_add(struct chat_talk *talk, enum chat_role role, char *json);

/* Appends a message of a role with a text. False, after a message: no memory, or the text is not UTF-8. */
bool chat_talk_add_text(struct chat_talk *talk, enum chat_role role, const char *text, size_t n);
void chat_talk_remove(struct chat_talk *talk, size_t from, size_t to); /* [from, to) */
void chat_talk_fini(struct chat_talk *talk);
bool chat_talk_copy(struct chat_talk *to, const struct chat_talk *from);

/* The array in JSON, owned by the caller; NULL when memory is short. */
char *chat_talk_json(const struct chat_talk *talk);

/* Reads such an array. False: it is none (*talk is empty then). */
bool chat_talk_read(struct chat_talk *talk, const char *json, size_t n);

/* Turns begin with a message of the user: their number, and where turn i (from 0) begins; n where there is none. */
size_t chat_talk_turns(const struct chat_talk *talk);
size_t chat_talk_turn(const struct chat_talk *talk, size_t i);

/* The content of message i where it is a string, owned by the caller; else NULL. */
char *chat_talk_content(const struct chat_talk *talk, size_t i);

/* ---- The whole --------------------------------------------------------------------------- */

struct chat_call {
    struct chat_buffer name, id, arguments;
    bool complete;
};

/* What an answer has come to. */
struct chat_answer {
    struct chat_buffer content, reasoning;
    struct chat_call **calls; /* [n_calls] of [room]; each stays where it is, as its buffers must */
    size_t n_calls, room;
    enum { SHOWS_NOTHING, SHOWS_TEXT, SHOWS_REASONING, SHOWS_CALL } shows;
};

/* A conversation that waits for /back. */
struct chat_aside {
    runnel_session session;
    struct chat_talk talk;
};

struct chat_input; /* input.c */

struct chat {
    struct app app;
    struct app_options options; /* a copy: /set and /system change it */
    char *system;               /* owned; what /system set */
    runnel_session session;
    struct chat_talk talk;
    struct chat_aside aside[CHAT_MAX_ASIDE];
    unsigned n_aside;
    struct app_text tools, template_text;
    bool plain;                         /* the model has no template: User:, Assistant: */
    runnel_template_info template_info; /* of the one that is used */
    uint32_t recommended;               /* RUNNEL_RECOMMENDED_ values that come from the file */
    struct chat_answer answer;
    uint64_t again;   /* /regen: added to the seed */
    uint64_t used;    /* tokens of the conversation after the last answer */
    char *pending;    /* owned; texts of /read for the next message, or NULL */
    size_t n_pending; /* bytes of it */
    bool unfinished;  /* the input has ended inside a message, or could not be read */
    struct chat_input *input;
};

/* The columns of the terminal on standard error; text broken at blanks so that it fits, all lines but the first behind
 * `indent` blanks; `at` columns of the first are taken. */
size_t chat_columns(void);
void chat_wrap(FILE *to, size_t indent, size_t at, const char *text);

/* ---- Input: input.c, history.c ------------------------------------------------- */

/* False after a message. On a terminal with a line editor and its history, else plain lines. */
bool chat_input_open(struct chat *chat);
void chat_input_close(struct chat *chat);
bool chat_on_terminal(const struct chat *chat);

/* The next line without its newline, valid until the next call; NULL at the end. A paste may have brought several. */
const char *chat_read_line(struct chat *chat, const char *prompt, size_t *n);

/* The next turn likewise: several lines where it is a paste, where a line ends with a backslash, and from three quotes
 * to three quotes; NULL with a message where the input ends in between. *command: it is one line that begins with a
 * slash. */
const char *chat_read_turn(struct chat *chat, size_t *n, bool *command);

/* Puts a line into the history. */
void chat_remember(struct chat *chat, const char *line);

/* The file of the lines of earlier runs, NUL-terminated into path[capacity]: $XDG_STATE_HOME/runnel/chat_history, or
 * below ~/.local/state. False: there is none, for HOME is not set. folders: makes those of the path, for its owner
 * alone. */
bool chat_history_path(char *path, size_t capacity);
void chat_history_folders(char *path);

/* Leaves the last `most` lines in the file, which is replaced as a whole; several programs at once lose nothing. What
 * is no such file is left alone. */
void chat_history_trim(const char *path, size_t most);

/* Appends a line to that file (mode 0600, one write). Failures are told once, by the return value. */
bool chat_history_append(const char *path, const char *line);

/* ---- Answers: answer.c -------------------------------------------------------------- */

/* A message of the user, the answer, and so on while the answer calls tools. A turn that failed leaves no trace; but
 * one that does not fit in the context stays, to be answered by chat_answer. Exit codes. */
int chat_turn(struct chat *chat, const char *text, size_t n);

/* Answers the last message. */
int chat_answer(struct chat *chat);
void chat_answer_close(struct chat_answer *answer);

/* The conversation as a request has it; *stops: at least RUNNEL_MAX_STOPS + 1. messages: what chat_talk_json gave. */
void chat_describe(const struct chat *chat, const char *messages, runnel_chat *c);

/* Tokens that the conversation takes, and with `answer` the beginning of an answer. */
size_t chat_tokens(const struct chat *chat, const struct chat_talk *talk, bool answer);

/* ---- Commands: command.c, set.c, text.c, keep.c ----------------------- */

/* A line that begins with a slash. Returns false to leave; *code is set where it failed. */
bool chat_command(struct chat *chat, const char *line, size_t n, int *code);

/* With --context-keep: forgets the oldest turns until half of the context is free, but for the last turn. False: there
 * is nothing to forget, or it is not wanted. */
bool chat_make_room(struct chat *chat);

/* Each gets what follows its name, or NULL; an exit code. */
int chat_set(struct chat *chat, const char *operand);
bool chat_check_keep(const struct chat *chat, const char *name, int64_t value); /* of --context-keep, after a message */
int chat_show(struct chat *chat, const char *operand);
int chat_show_tokens(struct chat *chat, const char *operand);
int chat_edit(struct chat *chat, const char *operand);
int chat_read(struct chat *chat, const char *operand);
int chat_save(struct chat *chat, const char *operand);
int chat_load(struct chat *chat, const char *operand);
int chat_fork(struct chat *chat, const char *operand);
int chat_back(struct chat *chat, const char *operand);

/* Takes the file's recommended sampling, and the program's own where it has none, for what was not given. */
void chat_choose_sampling(struct chat *chat);

/* "temperature 0.7, top-p 0.95 (the file recommends none)". */
void chat_print_sampling(const struct chat *chat, char *text, size_t capacity);

/* A new, empty conversation with the system message. */
int chat_new(struct chat *chat);
void chat_close_sessions(struct chat *chat);

/* A line on stderr where the template leaves a system message out. */
void chat_warn_system(const struct chat *chat);

#endif
