/* See answer.h. */
#include "answer.h"

#include <stdlib.h>
#include <string.h>

#include "addon.h"
#include "fields.h"

static bool append(struct answer_bytes *to, const void *data, size_t n)
{
    if (to->capacity - to->n < n) {
        size_t capacity = to->capacity > 0 ? to->capacity : 256;
        char *grown;

        while (capacity - to->n < n)
            capacity *= 2;
        grown = realloc(to->data, capacity);
        if (grown == NULL)
            return false;
        to->data = grown;
        to->capacity = capacity;
    }
    if (n > 0)
        memcpy(to->data + to->n, data, n);
    to->n += n;
    return true;
}

void answer_free(struct node_answer *answer)
{
    free(answer->text.data);
    free(answer->reasoning.data);
    free(answer->tokens.data);
    *answer = (struct node_answer){0};
}

void answer_add(struct node_answer *answer, const runnel_event *event)
{
    bool ok = true;

    if (event->type == RUNNEL_EVENT_REASONING)
        ok = append(&answer->reasoning, event->text, event->text_bytes);
    else if (event->type == RUNNEL_EVENT_TOKEN)
        ok = append(&answer->text, event->text, event->text_bytes) &&
             (event->token < 0 || append(&answer->tokens, &event->token, sizeof event->token));
    answer->lost |= !ok;
}

static napi_value string(napi_env env, const struct answer_bytes *bytes)
{
    return addon_string(env, bytes->n > 0 ? bytes->data : "", bytes->n);
}

void answer_write(napi_env env, napi_value object, const struct node_answer *answer)
{
    addon_set(env, object, "text", string(env, &answer->text));
    addon_set(env, object, "reasoning", string(env, &answer->reasoning));
    addon_set(
        env, object, "tokens",
        fields_token_array(env, (const int32_t *)(void *)answer->tokens.data, answer->tokens.n / sizeof(int32_t)));
}
