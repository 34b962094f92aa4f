/* The messages of a conversation: see chat.h. They are kept as text, so that the numbers in a call's arguments stay as
 * the model wrote them, and the session's tokens with them. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "apps/utf8.h"
#include "chat.h"

bool chat_buffer_open(struct chat_buffer *buffer)
{
    buffer->to = open_memstream(&buffer->bytes, &buffer->n);
    return buffer->to != NULL;
}

void chat_buffer_close(struct chat_buffer *buffer)
{
    if (buffer->to != NULL)
        fclose(buffer->to);
    free(buffer->bytes);
    *buffer = (struct chat_buffer){0};
}

bool chat_talk_add(struct chat_talk *talk, enum chat_role role, char *json)
{
    if (json != NULL && talk->n == talk->room) {
        size_t room = 2 * talk->room + 8;
        struct chat_message *more = realloc(talk->list, room * sizeof *more);

        if (more != NULL) {
            talk->list = more;
            talk->room = room;
        }
    }
    if (json == NULL || talk->n == talk->room) {
        free(json);
        app_error("not enough memory");
        return false;
    }
    talk->list[talk->n++] = (struct chat_message){role, json};
    return true;
}

static bool is_utf8(const char *text, size_t n)
{
    for (size_t length; n > 0; text += length, n -= length)
        if ((length = app_utf8_length((const unsigned char *)text, n)) == 0)
            return false;
    return true;
}

bool chat_talk_add_text(struct chat_talk *talk, enum chat_role role, const char *text, size_t n)
{
    static const char *const names[] = {[CHAT_SYSTEM] = "system", [CHAT_USER] = "user", [CHAT_ASSISTANT] = "assistant"};
    char *json = NULL;
    size_t size = 0;
    FILE *to;

    if (!is_utf8(text, n)) {
        app_error("the %s message is not UTF-8, and is left out", names[role]);
        return false;
    }
    to = open_memstream(&json, &size);
    if (to != NULL) {
        fprintf(to, "{\"role\":\"%s\",\"content\":", names[role]);
        app_json_string(to, text, n);
        fputc('}', to);
        fclose(to);
    }
    return chat_talk_add(talk, role, json);
}

void chat_talk_remove(struct chat_talk *talk, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        free(talk->list[i].json);
    if (talk->n > to)
        memmove(&talk->list[from], &talk->list[to], (talk->n - to) * sizeof *talk->list);
    talk->n -= to - from;
}

void chat_talk_fini(struct chat_talk *talk)
{
    chat_talk_remove(talk, 0, talk->n);
    free(talk->list);
    *talk = (struct chat_talk){0};
}

bool chat_talk_copy(struct chat_talk *to, const struct chat_talk *from)
{
    *to = (struct chat_talk){0};
    for (size_t i = 0; i < from->n; i++) {
        if (!chat_talk_add(to, from->list[i].role, strdup(from->list[i].json))) {
            chat_talk_fini(to);
            return false;
        }
    }
    return true;
}

char *chat_talk_json(const struct chat_talk *talk)
{
    char *json = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&json, &size);

    if (to == NULL)
        return NULL;
    fputc('[', to);
    for (size_t i = 0; i < talk->n; i++)
        fprintf(to, "%s%s", i > 0 ? "," : "", talk->list[i].json);
    fputc(']', to);
    return fclose(to) == 0 ? json : NULL;
}

/* ---- Reading ----------------------------------------------------------------------------- */

static enum chat_role role_of(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));

    return role == NULL                     ? CHAT_OTHER
           : strcmp(role, "system") == 0    ? CHAT_SYSTEM
           : strcmp(role, "user") == 0      ? CHAT_USER
           : strcmp(role, "assistant") == 0 ? CHAT_ASSISTANT
                                            : CHAT_OTHER;
}

/* Behind the value that begins at `at`, in text that is known to be JSON: at the comma or bracket after it. */
static const char *behind_value(const char *at)
{
    size_t depth = 0;

    for (; depth > 0 || (*at != ',' && *at != ']'); at++) {
        if (*at == '"')
            for (at++; *at != '"'; at++)
                at += *at == '\\';
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
    }
    return at;
}

bool chat_talk_read(struct chat_talk *talk, const char *json, size_t n)
{
    json_t *all = json_loadb(json, n, JSON_ALLOW_NUL, NULL);
    const char *at = json_is_array(all) ? memchr(json, '[', n) : NULL;
    bool good = at != NULL;

    *talk = (struct chat_talk){0};
    for (size_t i = 0; good && i < json_array_size(all); i++) {
        const char *end;

        at += 1 + strspn(at + 1, " \t\r\n");
        end = behind_value(at);
        good = json_is_object(json_array_get(all, i)) &&
               chat_talk_add(talk, role_of(json_array_get(all, i)), strndup(at, (size_t)(end - at)));
        at = end;
    }
    json_decref(all);
    if (!good)
        chat_talk_fini(talk);
    return good;
}

size_t chat_talk_turns(const struct chat_talk *talk)
{
    size_t turns = 0;

    for (size_t i = 0; i < talk->n; i++)
        turns += talk->list[i].role == CHAT_USER;
    return turns;
}

size_t chat_talk_turn(const struct chat_talk *talk, size_t turn)
{
    for (size_t i = 0; i < talk->n; i++)
        if (talk->list[i].role == CHAT_USER && turn-- == 0)
            return i;
    return talk->n;
}

char *chat_talk_content(const struct chat_talk *talk, size_t i)
{
    json_t *message = i < talk->n ? json_loads(talk->list[i].json, JSON_ALLOW_NUL, NULL) : NULL;
    const char *content = json_string_value(json_object_get(message, "content"));
    char *copy = content != NULL ? strdup(content) : NULL;

    json_decref(message);
    return copy;
}
