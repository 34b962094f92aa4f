/* Marked values that have marked members of their own, or items:
 *
 *     <city>Paris</city>                          "city":"Paris"
 *     <deep><a>1</a><b><c>x</c></b></deep>        "deep":{"a":1,"b":{"c":"x"}}
 *     <list><item>1</item><item>2</item></list>   "list":[1,2]
 *
 * (Each tag has the format's own token in front.) What opens first decides: a list where the key is that of items, and
 * the schema does not say that it is an object; else an object. */
#include <string.h>

#include "text/answer/impl.h"

void rn_answer_nest_begin(struct rn_answer *a)
{
    a->nest.depth = a->nest.key_bytes = 0;
    a->nest.levels[0].schema = rn_undefined();
    a->nest.levels[0].n = 0;
    a->nest.levels[0].list = false;
}

/* The function's parameters: known when the call is certain. */
static struct rn_value root_of(const struct rn_answer *a)
{
    return rn_dict_at(a->function, "parameters");
}

uint32_t rn_answer_nest_types(const struct rn_answer *a)
{
    return rn_answer_tools_types_of(root_of(a), a->nest.levels[a->nest.depth].schema, NULL);
}

static void put(struct rn_answer *a, const char *text)
{
    rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, text, strlen(text));
}

bool rn_answer_nest_member(struct rn_answer *a)
{
    struct rn_nest *nest = &a->nest;
    const char *item = a->rows.calls->params->item;
    uint32_t types = rn_answer_nest_types(a);
    struct rn_value parent = nest->depth == 0 ? root_of(a) : nest->levels[nest->depth].schema, schema;
    bool is_item = rn_field_is(&a->key, item), first = nest->levels[nest->depth].n == 0, list;

    if (a->key.bytes == 0 || a->key.text[0] == '/' || nest->depth + 1 == RN_ANSWER_LEVELS ||
        nest->key_bytes + a->key.bytes > RN_ANSWER_KEYS)
        return false;
    if (first)
        nest->levels[nest->depth].list =
            nest->depth > 0 && is_item &&
            (types == 0 || (types & RN_SCHEMA_ARRAY) != 0 || (types & RN_SCHEMA_OBJECT) == 0);
    list = nest->levels[nest->depth].list;
    if (list && !is_item)
        return false;
    put(a, !first ? "," : list ? "[" : "{");
    if (!list) {
        rn_answer_put_string(a, a->key.text, a->key.bytes);
        put(a, ":");
    }
    schema = list ? rn_answer_tools_item(root_of(a), parent, NULL)
                  : rn_answer_tools_member(root_of(a), parent, a->key.text, a->key.bytes, NULL);
    nest->levels[nest->depth++].n++;
    nest->levels[nest->depth].schema = schema;
    nest->levels[nest->depth].n = 0;
    nest->levels[nest->depth].list = false;
    nest->levels[nest->depth].key_at = nest->key_bytes;
    memcpy(nest->keys + nest->key_bytes, a->key.text, a->key.bytes);
    nest->key_bytes += a->key.bytes;
    return true;
}

enum rn_answer_match rn_answer_nest_closes(const struct rn_answer *a, uint32_t at, uint32_t *bytes)
{
    const struct rn_nest *nest = &a->nest;
    const char *key = nest->keys + nest->levels[nest->depth].key_at;
    uint32_t n = nest->key_bytes - nest->levels[nest->depth].key_at, left;
    enum rn_answer_match match = rn_answer_match(a, at, a->rows.calls->params->close, bytes);

    if (match != RN_MATCH_FULL)
        return match;
    left = a->len - at - *bytes;
    if (memcmp(a->window + at + *bytes, key, left < n ? left : n) != 0)
        return RN_MATCH_NONE;
    if (left <= n)
        return RN_MATCH_PARTIAL;
    *bytes += n + 1;
    return a->window[at + *bytes - 1] == '>' ? RN_MATCH_FULL : RN_MATCH_NONE;
}

enum rn_answer_step rn_answer_nest_value(struct rn_answer *a)
{
    uint32_t types = rn_answer_nest_types(a), at = a->cur, bytes, open_bytes;
    bool text = types == 0 || (types & RN_SCHEMA_STRING) != 0; /* white space may be the value */
    enum rn_answer_match open, close;

    while (at < a->len && rn_answer_space(a->window[at]) && at - a->cur < RN_ANSWER_SPACES)
        at++;
    close = rn_answer_nest_closes(a, text ? a->cur : at, &bytes);
    open = rn_answer_match(a, at, a->rows.calls->params->open, &open_bytes);
    if (close == RN_MATCH_FULL && !text && (types & (RN_SCHEMA_OBJECT | RN_SCHEMA_ARRAY)) != 0) {
        put(a, (types & RN_SCHEMA_OBJECT) != 0 ? "{}" : "[]");
        a->cur = at + bytes;
        rn_answer_take(a);
        rn_answer_nest_ends(a, false);
        return RN_STEP_ON;
    }
    if (close == RN_MATCH_FULL)
        return RN_STEP_FAIL;
    if (open == RN_MATCH_PARTIAL || close == RN_MATCH_PARTIAL || (open == RN_MATCH_FULL && at + open_bytes == a->len))
        return RN_STEP_WAIT;
    if (open == RN_MATCH_NONE || a->window[at + open_bytes] == '/')
        return RN_STEP_FAIL;
    a->mode = RN_MODE_PARAMS;
    return RN_STEP_ON;
}

void rn_answer_nest_ends(struct rn_answer *a, bool closed)
{
    struct rn_nest *nest = &a->nest;

    RN_ASSERT(nest->depth > 0);
    if (closed)
        put(a, nest->levels[nest->depth].list ? "]" : "}");
    nest->key_bytes = nest->levels[nest->depth--].key_at;
    a->mode = RN_MODE_PARAMS;
}
