/* Chats: see chat.h. */
#include "actors/prompt/chat.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/sized.h"
#include "base/status.h"
#include "text/answer/format.h"
#include "text/value.h"

/* ---- The context: JSON text, put together ---- */

struct text {
    struct rn_heap *heap;
    char *bytes;
    size_t n, room;
    bool refused;
};

static void put(struct text *text, const char *bytes, size_t n)
{
    if (text->refused)
        return;
    if (text->room - text->n < n) {
        size_t room = 2 * text->room > text->n + n + 256 ? 2 * text->room : text->n + n + 256;
        char *more = rn_realloc(text->heap, text->bytes, room, 1);

        if (more == NULL) {
            text->refused = true;
            return;
        }
        text->bytes = more;
        text->room = room;
    }
    RN_CHECK(n <= text->room - text->n);
    memcpy(text->bytes + text->n, bytes, n);
    text->n += n;
}

static void put_plain(struct text *text, const char *plain)
{
    put(text, plain, strlen(plain));
}

/* A JSON string: quotes, backslashes and control characters are escaped. */
static void put_string(struct text *text, const char *string)
{
    static const char digits[] = "0123456789abcdef";
    const char *from = string, *at;

    put(text, "\"", 1);
    for (at = string; *at != '\0'; at++) {
        unsigned char c = (unsigned char)*at;
        char escape[6] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};

        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        put(text, from, (size_t)(at - from));
        put(text, escape, sizeof escape);
        from = at + 1;
    }
    put(text, from, (size_t)(at - from));
    put(text, "\"", 1);
}

/* What stands between the brackets of a JSON object, with a comma in front; its own text is known to be one. */
static void put_members(struct text *text, const char *object)
{
    const char *begin = strchr(object, '{') + 1, *end = strrchr(object, '}');

    RN_CHECK(end != NULL); /* it was parsed */
    begin += strspn(begin, " \t\r\n");
    if (begin >= end)
        return;
    put(text, ",", 1);
    put(text, begin, (size_t)(end - begin));
}

/* Has the message what templates take in different forms? See struct rn_template_forms. */
static bool is_special(struct rn_value message)
{
    if (message.kind != RN_VALUE_DICT)
        return true;
    for (size_t i = 0; i < message.dict->n; i++)
        if (message.dict->entries[i].value.kind == RN_VALUE_NONE)
            return true;
    if (rn_value_is(rn_dict_at(message, "role"), "assistant") && rn_value_is(rn_dict_at(message, "content"), ""))
        return true;
    return rn_dict_at(message, "content").kind != RN_VALUE_STRING ||
           rn_value_is(rn_dict_at(message, "role"), "developer") ||
           rn_dict_at(message, "tool_calls").kind != RN_VALUE_UNDEFINED ||
           rn_dict_at(message, "reasoning_content").kind != RN_VALUE_UNDEFINED;
}

/* *special is set where one of a list of messages is; NULL: an object is wanted instead of a list. */
static runnel_status check_json(struct rn_heap *heap, const char *json, const char *what, bool *special,
                                runnel_error *error)
{
    bool array = special != NULL;
    struct rn_arena arena;
    struct rn_value value;
    runnel_error inner = {0};
    runnel_status status;

    rn_arena_init(&arena, heap, SIZE_MAX);
    status = rn_json_parse(&arena, json, strlen(json), &value, &inner);
    if (status == RUNNEL_NO_MEMORY)
        rn_error_set(error, status, "no memory for %s", what);
    else if (status != RUNNEL_OK)
        rn_error_set(error, status = RUNNEL_INVALID, "%s: %s", what, inner.message);
    else if (value.kind != (array ? RN_VALUE_LIST : RN_VALUE_DICT))
        status = rn_error_set(error, RUNNEL_INVALID, "%s: not a JSON %s", what, array ? "array" : "object");
    else if (special != NULL)
        for (size_t i = 0; i < value.list->n; i++)
            *special |= is_special(value.list->items[i]);
    rn_arena_fini(&arena);
    return status;
}

static runnel_status put_message(struct text *text, const runnel_message *message, size_t i, bool *special,
                                 runnel_error *error)
{
    char what[64];
    runnel_status status = RUNNEL_OK;

    if (message->role == NULL || !rn_utf8_valid(message->role, strlen(message->role)))
        return rn_error_set(error, RUNNEL_INVALID, "messages[%zu].role: not UTF-8 text", i);
    if (message->content != NULL && !rn_utf8_valid(message->content, strlen(message->content)))
        return rn_error_set(error, RUNNEL_INVALID, "messages[%zu].content: not UTF-8", i);
    put_plain(text, i > 0 ? ",{\"role\":" : "{\"role\":");
    put_string(text, message->role);
    put_plain(text, ",\"content\":");
    if (message->content != NULL)
        put_string(text, message->content);
    else
        put_plain(text, "null");
    *special |= message->content == NULL || message->more != NULL || strcmp(message->role, "developer") == 0 ||
                (message->content[0] == '\0' && strcmp(message->role, "assistant") == 0);
    if (message->more != NULL) {
        snprintf(what, sizeof what, "messages[%zu].more", i);
        status = check_json(text->heap, message->more, what, NULL, error);
        if (status == RUNNEL_OK)
            put_members(text, message->more);
    }
    put_plain(text, "}");
    return status;
}

static runnel_status put_messages(struct text *text, const runnel_chat *given, bool *special, runnel_error *error)
{
    runnel_status status = RUNNEL_OK;

    put_plain(text, "\"messages\":");
    if (given->messages_json != NULL) {
        if (given->messages != NULL || given->n_messages > 0)
            return rn_error_set(error, RUNNEL_INVALID, "chat: messages and messages_json are both given");
        status = check_json(text->heap, given->messages_json, "messages_json", special, error);
        put_plain(text, given->messages_json);
        return status;
    }
    if (given->n_messages > 0 && given->messages == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "chat: messages is NULL but n_messages is %zu", given->n_messages);
    put_plain(text, "[");
    for (size_t i = 0; i < given->n_messages && status == RUNNEL_OK; i++)
        status = put_message(text, &given->messages[i], i, special, error);
    put_plain(text, "]");
    return status;
}

static runnel_status put_tools(struct text *text, const char *json, struct rn_chat *chat, runnel_error *error)
{
    runnel_error inner = {0};
    runnel_status status = rn_answer_tools_read(&chat->tools, chat->heap, json, strlen(json), &inner);

    put_plain(text, ",\"tools\":");
    put_plain(text, json);
    return status == RUNNEL_OK ? status : rn_error_set(error, status, "tools: %s", inner.message);
}

static runnel_status put_context(struct text *text, const runnel_chat *given, struct rn_chat *chat, runnel_error *error)
{
    runnel_status status;

    put_plain(text, "{");
    status = put_messages(text, given, &chat->special, error);
    put_plain(text, given->no_generation_prompt || given->continue_final ? ",\"add_generation_prompt\":false"
                                                                         : ",\"add_generation_prompt\":true");
    if (status == RUNNEL_OK && given->tools != NULL)
        status = put_tools(text, given->tools, chat, error);
    if (status == RUNNEL_OK && given->variables != NULL) {
        status = check_json(text->heap, given->variables, "variables", NULL, error);
        if (status == RUNNEL_OK)
            put_members(text, given->variables);
    }
    put_plain(text, "}");
    if (status == RUNNEL_OK && text->refused)
        status = rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the chat");
    return status;
}

/* ---- A chat ---- */

static runnel_status choose_template(struct rn_chat *chat, const struct rn_chat_templates *templates,
                                     const runnel_chat *given, runnel_error *error)
{
    const struct rn_chat_template *found = NULL;
    size_t n;

    if (given->template_text != NULL) {
        n = strlen(given->template_text);
        chat->format = rn_answer_format_of(given->template_text, n);
        return rn_template_parse(chat->heap, given->template_text, n, &chat->own, error);
    }
    found = rn_chat_template_find(templates, given->template_name, given->tools != NULL);
    if (found == NULL)
        return rn_error_set(error, RUNNEL_NOT_FOUND, "the model has no chat template%s%.64s",
                            given->template_name != NULL ? " " : "",
                            given->template_name != NULL ? given->template_name : "");
    if (found->parsed == NULL)
        return rn_error_set(error, found->error.status, "the model's chat template: %s", found->error.message);
    chat->tmpl = found->parsed;
    chat->forms = found->traits.forms;
    chat->format = found->format;
    return RUNNEL_OK;
}

static runnel_status fill(struct rn_chat *chat, const struct rn_chat_templates *templates, const runnel_chat *given,
                          runnel_error *error)
{
    struct text text = {.heap = chat->heap};
    runnel_status status = choose_template(chat, templates, given, error);

    if (status != RUNNEL_OK)
        return status;
    if (chat->own != NULL)
        chat->tmpl = chat->own;
    status = put_context(&text, given, chat, error);
    chat->context = text.bytes;
    chat->context_bytes = text.n;
    RN_ASSERT(status != RUNNEL_OK || (chat->tmpl != NULL && chat->context != NULL));
    chat->goes_on = given->continue_final != 0;
    chat->now_s = given->now_s != 0 ? given->now_s : (int64_t)time(NULL);
    return status;
}

void runnel_chat_init(runnel_chat *chat, size_t struct_size)
{
    const runnel_chat own = {0};

    rn_sized_write(chat, struct_size, &own, sizeof own);
}

void(runnel_chat_default)(runnel_chat *chat)
{
    runnel_chat_init(chat, RN_FIRST_SIZE(runnel_chat, reserved));
}

runnel_status rn_chat_new(struct rn_heap *heap, const struct rn_chat_templates *templates, const runnel_chat *given,
                          struct rn_chat **out, runnel_error *error)
{
    runnel_chat read;
    struct rn_chat *chat;
    runnel_status status;

    runnel_chat_default(&read);
    if (!rn_sized_read(&read, sizeof read, given))
        return rn_error_set(error, RUNNEL_INVALID, "chat: struct_size is not of this library; use runnel_chat_default");
    if (!rn_all_zero(read.reserved, sizeof read.reserved))
        return rn_error_set(error, RUNNEL_INVALID, "chat: reserved is not zero");
    chat = rn_calloc(heap, 1, sizeof *chat);
    if (chat == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the chat");
    chat->heap = heap;
    status = fill(chat, templates, &read, error);
    if (status != RUNNEL_OK) {
        rn_chat_free(chat);
        return status;
    }
    *out = chat;
    return RUNNEL_OK;
}

void rn_chat_free(struct rn_chat *chat)
{
    if (chat == NULL)
        return;
    rn_template_free(chat->own);
    rn_free(chat->heap, chat->context);
    rn_answer_tools_fini(&chat->tools);
    rn_free(chat->heap, chat);
}

static struct rn_view text_of(const struct rn_vocab *vocab, int32_t token)
{
    return token < 0 ? (struct rn_view){"", 0} : rn_vocab_piece(vocab, token, true);
}

/* ---- A message that goes on ---- */

/* The last message; none: undefined. */
static struct rn_value final_message(struct rn_value context)
{
    struct rn_value messages = rn_dict_at(context, "messages");

    return messages.kind == RN_VALUE_LIST && messages.list->n > 0 ? messages.list->items[messages.list->n - 1]
                                                                  : (struct rn_value){.kind = RN_VALUE_UNDEFINED};
}

/* Has it calls? They stand behind its text. */
static bool has_calls(struct rn_value message)
{
    struct rn_value calls = rn_dict_at(message, "tool_calls");

    return calls.kind == RN_VALUE_LIST && calls.list->n > 0;
}

/* Its text; of parts the last one's. None: n is 0. */
static struct rn_view text_in(struct rn_value message)
{
    struct rn_value content = rn_dict_at(message, "content");

    if (content.kind == RN_VALUE_LIST && content.list->n > 0)
        content = rn_dict_at(content.list->items[content.list->n - 1], "text");
    return content.kind == RN_VALUE_STRING ? (struct rn_view){content.string->bytes, content.string->n}
                                           : (struct rn_view){"", 0};
}

static bool is_white(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Where the last message's content begins: at the end of what came from the host, of several such places the last;
 * white space may follow. n: nowhere. One look at each range, so that no content makes this long. */
static size_t find_final(const struct rn_rendered *rendered, const char *content, size_t n)
{
    for (size_t i = rendered->n_data; i-- > 0;) {
        size_t begin = rendered->data[i].begin, end = rendered->data[i].end;

        while (end > begin && is_white(rendered->text[end - 1]))
            end--;
        if (end - begin >= n && memcmp(rendered->text + end - n, content, n) == 0)
            return end - n;
    }
    return rendered->n;
}

static void cut_behind(struct rn_rendered *rendered, size_t end)
{
    rendered->n = end;
    while (rendered->n_data > 0 && rendered->data[rendered->n_data - 1].begin >= end)
        rendered->n_data--;
    if (rendered->n_data > 0 && rendered->data[rendered->n_data - 1].end > end)
        rendered->data[rendered->n_data - 1].end = end;
}

/* White space at its end stays where the template has left it there. */
static runnel_status end_with(struct rn_rendered *rendered, struct rn_view content, runnel_error *error)
{
    size_t white = 0, end;

    while (content.n > 0 && is_white(content.bytes[0]))
        content.bytes++, content.n--;
    for (; content.n > 0 && is_white(content.bytes[content.n - 1]); content.n--)
        white++;
    if (content.n == 0)
        return rn_error_set(error, RUNNEL_INVALID, "chat: the last message has no text that could go on");
    rendered->content = find_final(rendered, content.bytes, content.n);
    end = rendered->content + content.n;
    if (rendered->content == rendered->n)
        return rn_error_set(error, RUNNEL_INVALID,
                            "chat: the template does not write the last message as it is, so that it cannot go on");
    if (rendered->n - end >= white && memcmp(rendered->text + end, content.bytes + content.n, white) == 0)
        end += white;
    cut_behind(rendered, end);
    return RUNNEL_OK;
}

static runnel_status go_on(const struct rn_chat *chat, struct rn_heap *heap, struct rn_rendered *rendered,
                           runnel_error *error)
{
    struct rn_arena arena;
    struct rn_value context, message;
    runnel_status status;

    rn_arena_init(&arena, heap, SIZE_MAX);
    status = rn_json_parse(&arena, chat->context, chat->context_bytes, &context, error);
    if (status == RUNNEL_OK) {
        message = final_message(context);
        status = has_calls(message)
                     ? rn_error_set(error, RUNNEL_INVALID,
                                    "chat: the last message ends with calls of tools: it has no text that could go on")
                     : end_with(rendered, text_in(message), error);
    }
    rn_arena_fini(&arena);
    if (status != RUNNEL_OK)
        rn_rendered_free(rendered, heap);
    return status;
}

/* ---- The prompt ---- */

runnel_status rn_chat_render(const struct rn_chat *chat, const struct rn_vocab *vocab, struct rn_heap *heap,
                             const struct rn_interrupt *stop, struct rn_rendered *rendered, runnel_error *error)
{
    const struct rn_template_string strings[] = {{"bos_token", text_of(vocab, rn_vocab_bos(vocab))},
                                                 {"eos_token", text_of(vocab, rn_vocab_eos(vocab))}};
    struct rn_template_context context = {.json = chat->context,
                                          .json_bytes = chat->context_bytes,
                                          .strings = strings,
                                          .n_strings = sizeof strings / sizeof strings[0],
                                          .now_s = chat->now_s,
                                          .stop = stop};
    struct rn_template_forms forms = chat->forms;
    runnel_status status = RUNNEL_OK;

    RN_ASSERT(chat->own == NULL || chat->own == chat->tmpl);
    if (chat->special && chat->own != NULL)
        status = rn_template_probe_forms(chat->own, heap, &forms);
    if (status != RUNNEL_OK)
        return rn_error_set(error, status, "no memory for the chat");
    context.forms = chat->special ? &forms : NULL;
    status = rn_template_render(chat->tmpl, heap, &context, NULL, rendered, error);
    if (status != RUNNEL_OK)
        return status;
    return chat->goes_on ? go_on(chat, heap, rendered, error) : RUNNEL_OK;
}

runnel_status rn_chat_tokenize(const struct rn_rendered *rendered, const struct rn_vocab *vocab, struct rn_heap *heap,
                               const struct rn_interrupt *stop, int32_t **tokens, size_t *count, runnel_error *error)
{
    const struct rn_tokenize_text text = {rendered->text, rendered->n, 0, true, rendered->data, rendered->n_data};
    runnel_status status = rn_tokenize_until(vocab, heap, &text, stop, tokens, count, error);
    int32_t bos = rn_vocab_bos(vocab), *with_bos;

    if (status != RUNNEL_OK || !rn_vocab_add_bos(vocab) || bos < 0 || (*count > 0 && (*tokens)[0] == bos))
        return status;
    with_bos = rn_realloc(heap, *tokens, *count + 1, sizeof **tokens);
    if (with_bos == NULL) {
        rn_free(heap, *tokens);
        *tokens = NULL;
        *count = 0;
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the prompt");
    }
    memmove(with_bos + 1, with_bos, *count * sizeof *with_bos);
    with_bos[0] = bos;
    *tokens = with_bos;
    ++*count;
    RN_ASSERT(*count == 1 || with_bos[1] != bos);
    return RUNNEL_OK;
}
