/* Errors about a body in OpenAI's form, told with the names of fields that its client wrote: see serve.h. */
#include <stdlib.h>
#include <string.h>

#include "serve.h"

static bool is_given(const json_t *value)
{
    return value != NULL && !json_is_null(value);
}

/* Whether the body has the field "options.seed". Of elements ("tools[].name") it is enough that there may be some. */
static bool has_field(const json_t *body, const char *path)
{
    size_t n = strcspn(path, ".[");
    char name[64];

    snprintf(name, sizeof name, "%.*s", (int)n, path);
    body = json_object_get(body, name);
    return path[n] == '.' ? has_field(body, path + n + 1) : is_given(body);
}

uint32_t serve_names_used(const struct serve_dialect *dialect, const json_t *body)
{
    const struct serve_field_name *names = dialect->names;
    uint32_t used = 0;

    for (size_t i = 0; names != NULL && names[i].theirs != NULL; i++)
        if (has_field(body, names[i].theirs) && !(dialect->passes && has_field(body, names[i].ours)))
            used |= UINT32_C(1) << i;
    return used;
}

/* How many bytes of the text the name takes, with any number in its "[]", which becomes *index; 0: the text begins
 * with another one. */
static size_t match(const char *text, const char *name, int *index)
{
    const char *at = text;

    for (; *name != '\0'; name++) {
        size_t n = strspn(at, "0123456789");

        if (name[0] == ']' && n > 0 && n < 8) {
            *index = atoi(at);
            at += n;
        }
        if (*at != *name)
            return 0;
        at++;
    }
    return strchr(".[: ", *at) != NULL ? (size_t)(at - text) : 0; /* the zero byte is one of these */
}

/* The name in place of the text's first n bytes; what has no room is cut off, whole characters of it. */
static void put_name(char *text, size_t room, size_t n, const char *name)
{
    size_t n_name = strlen(name), n_rest = strlen(text + n);

    if (n_name + n_rest >= room)
        for (n_rest = room - 1 - n_name; n_rest > 0 && ((unsigned char)text[n + n_rest] & 0xc0) == 0x80; n_rest--)
            continue;
    memmove(text + n_name, text + n, n_rest);
    memcpy(text, name, n_name);
    text[n_name + n_rest] = '\0';
}

void serve_name_field(const struct serve_dialect *dialect, uint32_t used, struct openai_error *error)
{
    for (size_t i = 0; used >> i != 0; i++) {
        const struct serve_field_name *pair = &dialect->names[i];
        const char *bracket = strchr(pair->theirs, ']');
        char name[64];
        int index = 0;
        size_t n = (used >> i & 1) != 0 ? match(error->param, pair->ours, &index) : 0;

        if (n == 0)
            continue;
        if (bracket == NULL)
            snprintf(name, sizeof name, "%s", pair->theirs);
        else
            snprintf(name, sizeof name, "%.*s%d%s", (int)(bracket - pair->theirs), pair->theirs, index, bracket);
        put_name(error->param, sizeof error->param, n, name);
        n = match(error->message, pair->ours, &index);
        if (n > 0)
            put_name(error->message, sizeof error->message, n, name);
        return;
    }
}
