/* Answers of `runnel chat`: submitted, shown, and put into the conversation. See chat.h. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chat.h"

static const char PLAIN[] = "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\\n\\n' }}"
                            "{% elif m.role == 'assistant' %}{{ 'Assistant: ' + m.content + '\\n' }}"
                            "{% else %}{{ 'User: ' + m.content + '\\n' }}{% endif %}{% endfor %}"
                            "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}";
static const char PLAIN_STOP[] = "\nUser:";

static void drop_last_call(struct chat_answer *answer)
{
    struct chat_call *call = answer->calls[--answer->n_calls];

    chat_buffer_close(&call->name);
    chat_buffer_close(&call->id);
    chat_buffer_close(&call->arguments);
    free(call);
}

void chat_answer_close(struct chat_answer *answer)
{
    chat_buffer_close(&answer->content);
    chat_buffer_close(&answer->reasoning);
    while (answer->n_calls > 0)
        drop_last_call(answer);
    free(answer->calls);
    *answer = (struct chat_answer){0};
}

/* Room for one call more. False: no memory. */
static bool make_room(struct chat_answer *answer)
{
    size_t room = answer->n_calls < answer->room ? answer->room : 2 * answer->room + 8;
    struct chat_call **grown = room > answer->room ? realloc(answer->calls, room * sizeof *grown) : answer->calls;

    if (grown == NULL)
        return false;
    answer->calls = grown;
    answer->room = room;
    return true;
}

/* False: no memory. */
static bool call_open(struct chat_answer *answer)
{
    struct chat_call *call = make_room(answer) ? calloc(1, sizeof *call) : NULL;

    if (call == NULL)
        return false;
    answer->calls[answer->n_calls++] = call;
    return chat_buffer_open(&call->name) && chat_buffer_open(&call->id) && chat_buffer_open(&call->arguments);
}

/* The id of a call: the model's own, or its number. */
static void put_call_id(FILE *to, struct chat_call *call, size_t number)
{
    fflush(call->id.to);
    if (call->id.n > 0)
        app_json_string(to, call->id.bytes, call->id.n);
    else
        fprintf(to, "\"call_%zu\"", number);
}

static void add_calls(FILE *to, struct chat_answer *answer)
{
    fputs(",\"tool_calls\":[", to);
    for (size_t i = 0; i < answer->n_calls; i++) {
        struct chat_call *call = answer->calls[i];

        fflush(call->name.to);
        fflush(call->arguments.to);
        fprintf(to, "%s{\"type\":\"function\",\"id\":", i > 0 ? "," : "");
        put_call_id(to, call, i);
        fputs(",\"function\":{\"name\":", to);
        app_json_string(to, call->name.bytes, call->name.n);
        fprintf(to, ",\"arguments\":%s}}", call->arguments.n > 0 ? call->arguments.bytes : "{}");
    }
    fputc(']', to);
}

/* A call that was cut off is no call. */
static void drop_incomplete(struct chat_answer *answer)
{
    while (answer->n_calls > 0 && !answer->calls[answer->n_calls - 1]->complete)
        drop_last_call(answer);
}

static bool add_answer(struct chat *chat)
{
    struct chat_answer *answer = &chat->answer;
    char *json = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&json, &size);

    if (to == NULL)
        return chat_talk_add(&chat->talk, CHAT_ASSISTANT, NULL);
    fflush(answer->content.to);
    fflush(answer->reasoning.to);
    fputs("{\"role\":\"assistant\",\"content\":", to);
    /* A plain template puts a space behind "Assistant:", as the model did. */
    if (chat->plain && answer->content.n > 0 && answer->content.bytes[0] == ' ')
        app_json_string(to, answer->content.bytes + 1, answer->content.n - 1);
    else
        app_json_string(to, answer->content.bytes, answer->content.n);
    if (answer->reasoning.n > 0) {
        fputs(",\"reasoning_content\":", to);
        app_json_string(to, answer->reasoning.bytes, answer->reasoning.n);
    }
    drop_incomplete(answer);
    if (answer->n_calls > 0)
        add_calls(to, answer);
    fputc('}', to);
    fclose(to);
    return chat_talk_add(&chat->talk, CHAT_ASSISTANT, json);
}

/* "result of NAME> " */
static void name_call(char *prompt, size_t capacity, const struct chat_call *call)
{
    FILE *to = fmemopen(prompt, capacity, "w");

    if (to == NULL)
        return;
    fputs("result of ", to);
    app_escaped(to, call->name.bytes, call->name.n, 60);
    fputs("> ", to);
    fclose(to);
}

/* Asks for the results of the calls; false at the end of the input. */
static bool read_results(struct chat *chat)
{
    struct chat_answer *answer = &chat->answer;
    char prompt[512];

    for (size_t i = 0; i < answer->n_calls; i++) {
        struct chat_call *call = answer->calls[i];
        const char *line = NULL;
        size_t n = 0, size = 0;
        char *json = NULL;
        FILE *to;

        name_call(prompt, sizeof prompt, call);
        app_signals_disarm();
        line = chat_read_line(chat, prompt, &n);
        app_signals_arm();
        to = line != NULL ? open_memstream(&json, &size) : NULL;
        if (to == NULL)
            return false;
        fputs("{\"role\":\"tool\",\"tool_call_id\":", to);
        put_call_id(to, call, i);
        fputs(",\"name\":", to);
        app_json_string(to, call->name.bytes, call->name.n);
        fputs(",\"content\":", to);
        app_json_string(to, line, n);
        fputc('}', to);
        fclose(to);
        if (!chat_talk_add(&chat->talk, CHAT_OTHER, json))
            return false;
    }
    return true;
}

/* ---- An answer --------------------------------------------------------------------------- */

static bool put(struct chat_buffer *buffer, const runnel_event *event)
{
    return fwrite(event->text, 1, event->text_bytes, buffer->to) == event->text_bytes;
}

static bool collect(struct chat_answer *answer, const runnel_event *event)
{
    struct chat_call *call = answer->n_calls > 0 ? answer->calls[answer->n_calls - 1] : NULL;

    switch (event->type) {
    case RUNNEL_EVENT_TOKEN:
        return put(&answer->content, event);
    case RUNNEL_EVENT_REASONING:
        return put(&answer->reasoning, event);
    case RUNNEL_EVENT_TOOL_CALL:
        return call_open(answer) && put(&answer->calls[answer->n_calls - 1]->name, event);
    case RUNNEL_EVENT_TOOL_ID:
        return put(&call->id, event);
    case RUNNEL_EVENT_TOOL_ARGUMENTS:
        return put(&call->arguments, event);
    case RUNNEL_EVENT_TOOL_END:
        call->complete = true;
        return true;
    default:
        return true;
    }
}

/* Text goes to standard output; what the model thinks to standard error, if that is a terminal; calls to standard
 * output. */
static void show(struct chat *chat, const runnel_event *event)
{
    struct chat_answer *answer = &chat->answer;
    bool thinks_aloud = isatty(STDERR_FILENO) && !chat->app.options->quiet;

    if (answer->shows == SHOWS_REASONING && event->type != RUNNEL_EVENT_REASONING && event->text_bytes > 0) {
        fputs(app_colours(STDERR_FILENO) ? "\033[0m\n" : "\n", stderr);
        answer->shows = SHOWS_NOTHING;
    }
    if (event->type == RUNNEL_EVENT_TOKEN) {
        app_put_text(stdout, event->text, event->text_bytes);
        answer->shows = event->text_bytes > 0 ? SHOWS_TEXT : answer->shows;
    } else if (event->type == RUNNEL_EVENT_REASONING && thinks_aloud) {
        if (answer->shows != SHOWS_REASONING)
            fputs(app_colours(STDERR_FILENO) ? "\033[2m" : "", stderr);
        app_put_text(stderr, event->text, event->text_bytes);
        answer->shows = SHOWS_REASONING;
    } else if (event->type == RUNNEL_EVENT_TOOL_CALL) {
        fputs(answer->shows == SHOWS_TEXT ? "\n" : "", stdout);
        app_put_text(stdout, event->text, event->text_bytes);
        fputc(' ', stdout);
        answer->shows = SHOWS_CALL;
    } else if (event->type == RUNNEL_EVENT_TOOL_ARGUMENTS) {
        app_put_text(stdout, event->text, event->text_bytes);
    } else if (event->type == RUNNEL_EVENT_TOOL_END) {
        answer->shows = SHOWS_TEXT;
    }
}

static bool on_event(void *user, const runnel_event *event)
{
    struct chat *chat = user;

    if (chat->app.options->json)
        app_json_event(event, false);
    else
        show(chat, event);
    if (collect(&chat->answer, event))
        return true;
    app_error("not enough memory for the answer");
    return false;
}

/* ---- The prompt -------------------------------------------------------------------------- */

void chat_describe(const struct chat *chat, const char *messages, runnel_chat *c)
{
    runnel_chat_default(c);
    c->messages_json = messages;
    c->tools = chat->tools.bytes;
    c->variables = chat->options.variables;
    c->template_name = chat->options.template_name;
    c->template_text = chat->plain ? PLAIN : chat->template_text.bytes;
}

size_t chat_tokens(const struct chat *chat, const struct chat_talk *talk, bool answer)
{
    char *messages = talk->n > 0 ? chat_talk_json(talk) : NULL;
    runnel_chat c;
    runnel_status status;
    size_t n = 0;

    if (messages == NULL)
        return 0;
    chat_describe(chat, messages, &c);
    c.no_generation_prompt = !answer;
    status = runnel_tokenize_chat(chat->app.model, &c, NULL, 0, &n, NULL);
    free(messages);
    return status == RUNNEL_OK ? n : answer ? 0 : (size_t)chat->used; /* some templates want a last message to answer */
}

/* The next answer needs room for a token at least. *before: a place among the messages, where it is when some in front
 * of it have gone. */
static bool fits(struct chat *chat, size_t *before)
{
    size_t tokens = chat_tokens(chat, &chat->talk, true), room = chat->app.info.context_tokens - 1;
    size_t messages = chat->talk.n;
    uint32_t trained = chat->app.info.trained_tokens;
    char longer[64] = "";

    if (tokens > room && chat_make_room(chat)) {
        *before -= messages - chat->talk.n;
        tokens = chat_tokens(chat, &chat->talk, true);
    }
    if (tokens <= room)
        return true;
    if (trained > chat->app.info.context_tokens)
        snprintf(longer, sizeof longer, " (the model was trained for %u)", trained);
    app_error(
        "the prompt has %zu tokens, %zu fit. Nothing is lost: /drop forgets the oldest turns, /clear all of them, "
        "and --ctx N gives a longer context%s; /regen then answers your message",
        tokens, room, longer);
    return false;
}

/* An answer that ended because there was no more room. */
static void explain_cut(const struct chat *chat, const struct app_outcome *outcome)
{
    if (chat->options.quiet)
        return;
    if (outcome->usage.shifts > 0 && !chat_on_terminal(chat)) /* there the figures say so */
        app_error("the context was full %llu time%s: the answer went on without %llu older token%s",
                  (unsigned long long)outcome->usage.shifts, app_plural(outcome->usage.shifts),
                  (unsigned long long)outcome->usage.shifted_tokens, app_plural(outcome->usage.shifted_tokens));
    if (outcome->finish != RUNNEL_FINISH_LENGTH || chat->used < chat->app.info.context_tokens ||
        chat->options.context_keep >= 0)
        return;
    app_error("the context of %u tokens is full: the answer is cut off. /drop forgets the oldest turns, /clear all of "
              "them, and --ctx N gives a longer context; /regen then answers once more",
              chat->app.info.context_tokens);
}

/* What an answer keeps of the prompt when it goes on behind a full context: the system message at least, where that
 * leaves half of it free. */
static int64_t kept_tokens(const struct chat *chat)
{
    struct chat_talk head = chat->talk;
    int64_t keep = chat->options.context_keep, most = chat->app.info.context_tokens / 2;
    int64_t system = 0;

    head.n = chat->talk.n > 0 && chat->talk.list[0].role == CHAT_SYSTEM;
    if (keep >= 0 && keep < most && head.n > 0 && chat_tokens(chat, &head, true) > 0)
        system = (int64_t)chat_tokens(chat, &head, false);
    return keep >= system ? keep : system < most ? system : most;
}

/* Submits the conversation as it is, with our own stop beside the user's. */
static int submit(struct chat *chat, struct app_outcome *outcome)
{
    const struct app_options *options = &chat->options;
    const char *stops[RUNNEL_MAX_STOPS + 1];
    char *messages = chat_talk_json(&chat->talk);
    runnel_request request;
    runnel_chat c;
    int code = APP_FAILURE;

    if (messages == NULL || !chat_buffer_open(&chat->answer.content) || !chat_buffer_open(&chat->answer.reasoning)) {
        app_error("not enough memory");
        free(messages);
        return APP_FAILURE;
    }
    memcpy(stops, options->stops, sizeof options->stops);
    stops[options->n_stops] = PLAIN_STOP;
    chat_describe(chat, messages, &c);
    app_request(options, &request);
    request.chat = &c;
    request.raw_answer = options->raw;
    c.tool_choice = options->tool_choice;
    c.single_call = options->single_call;
    if (request.context_keep < 0)
        request.session = chat->session;
    else /* what is known of the conversation is cached; a session cannot lose a part of its text */
        request.context_keep = kept_tokens(chat);
    request.sampling.seed += chat->again;
    request.stops = stops;
    request.n_stops = options->n_stops + chat->plain;
    code = app_stream(&chat->app, &request, on_event, chat, outcome);
    free(messages);
    return code;
}

static int end_answer(struct chat *chat, const struct app_outcome *outcome, int code)
{
    if (chat->answer.shows == SHOWS_REASONING && app_colours(STDERR_FILENO))
        fputs("\033[0m", stderr);
    if (!chat->options.json && (outcome->type != RUNNEL_EVENT_FAILED || chat->answer.shows != SHOWS_NOTHING))
        fputc('\n', stdout);
    app_flush();
    if (outcome->type == RUNNEL_EVENT_FAILED)
        return code;
    chat->used = outcome->usage.prompt_tokens + outcome->usage.completion_tokens;
    if (chat_on_terminal(chat))
        app_figures(&chat->options, outcome);
    explain_cut(chat, outcome);
    return code;
}

/* Answers; a turn that failed is taken back to its first `before` messages. */
static int answer_from(struct chat *chat, size_t before)
{
    bool again = true;
    int code = APP_OK;

    while (again) {
        struct app_outcome outcome = {0};

        if (!fits(chat, &before))
            return APP_FAILURE;
        code = submit(chat, &outcome);
        if (outcome.type == 0 || outcome.type == RUNNEL_EVENT_FAILED) {
            if (outcome.type != 0)
                end_answer(chat, &outcome, code);
            chat_answer_close(&chat->answer);
            chat_talk_remove(&chat->talk, before, chat->talk.n);
            return outcome.type == 0 ? code : APP_FAILURE;
        }
        code = end_answer(chat, &outcome, code);
        again = add_answer(chat) && chat->answer.n_calls > 0 && code == APP_OK && read_results(chat);
        chat_answer_close(&chat->answer);
    }
    return code;
}

int chat_answer(struct chat *chat)
{
    return answer_from(chat, chat->talk.n);
}

int chat_turn(struct chat *chat, const char *text, size_t n)
{
    char *whole = NULL;
    size_t before;
    bool good;

    if (chat->talk.n > 0 && chat->talk.list[chat->talk.n - 1].role == CHAT_USER) /* one that was never answered */
        chat_talk_remove(&chat->talk, chat->talk.n - 1, chat->talk.n);
    before = chat->talk.n;
    if (chat->pending != NULL) {
        n += chat->n_pending;
        whole = malloc(n + 1);
        if (whole != NULL)
            memcpy(mempcpy(whole, chat->pending, chat->n_pending), text, n - chat->n_pending);
        text = whole;
        free(chat->pending);
        chat->pending = NULL;
    }
    chat->again = 0;
    good = text != NULL ? chat_talk_add_text(&chat->talk, CHAT_USER, text, n)
                        : chat_talk_add(&chat->talk, CHAT_USER, NULL);
    free(whole);
    return good ? answer_from(chat, before) : APP_FAILURE;
}
