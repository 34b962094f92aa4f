/* Arguments as marked parameters, turned into one JSON object:
 *
 *     <parameter=city>            PARAMS: "<parameter="   KEY: "city" ">"
 *     Paris                       VALUE: of which type? then one of VALUE_TEXT, VALUE_LITERAL, VALUE_HELD
 *     </parameter>                the close marker
 *     </function>                 PARAMS: the end
 *
 * A value carries no type. Where the schema allows strings alone, it streams as one; where it allows none and the
 * value begins as an object or a list, it streams as that; else it is held until it is whole and then judged: as the
 * schema allows, or without a schema by what it looks like. What can not be held to its end is a string. */
#include <string.h>

#include "text/answer/impl.h"

#define CDATA "<![CDATA["
#define CDATA_END "]]>"

void rn_answer_begin_params(struct rn_answer *a)
{
    a->mode = RN_MODE_PARAMS;
    a->n_params = 0;
    rn_answer_nest_begin(a);
}

/* Behind a value's end. */
static void value_ends(struct rn_answer *a)
{
    if (a->rows.calls->params->item != NULL)
        rn_answer_nest_ends(a, false);
    else
        a->mode = RN_MODE_PARAMS;
}

enum rn_answer_step rn_answer_on_params(struct rn_answer *a)
{
    const struct rn_param_syntax *params = a->rows.calls->params;
    enum rn_answer_match open, end;
    uint32_t bytes;
    bool within;

    while (a->cur < a->len && rn_answer_space(a->window[a->cur]))
        a->cur++;
    if (a->committed)
        rn_answer_take(a);
    else if (a->cur - a->base > RN_ANSWER_HOLD)
        return RN_STEP_FAIL;
    if (a->cur == a->len)
        return RN_STEP_WAIT;
    within = a->nest.depth > 0;
    end = within ? rn_answer_nest_closes(a, a->cur, &bytes) : rn_answer_match(a, a->cur, params->end, &bytes);
    open = end == RN_MATCH_FULL ? RN_MATCH_NONE : rn_answer_match(a, a->cur, params->open, &bytes);
    if (open == RN_MATCH_NONE && end == RN_MATCH_NONE)
        return RN_STEP_FAIL;
    if (end == RN_MATCH_PARTIAL || (open != RN_MATCH_FULL && end != RN_MATCH_FULL))
        return RN_STEP_WAIT;
    a->cur += bytes;
    if (!a->committed && !rn_answer_commit(a))
        return RN_STEP_FAIL;
    rn_answer_take(a);
    if (end == RN_MATCH_FULL && within) {
        rn_answer_nest_ends(a, true);
        return RN_STEP_ON;
    }
    if (open == RN_MATCH_FULL) {
        a->mode = RN_MODE_KEY;
        a->key.bytes = 0;
        return RN_STEP_ON;
    }
    rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, a->n_params == 0 ? "{}" : "}", a->n_params == 0 ? 2 : 1);
    rn_answer_call_ends(a);
    return RN_STEP_ON;
}

enum rn_answer_step rn_answer_on_key(struct rn_answer *a)
{
    const struct rn_param_syntax *params = a->rows.calls->params;
    bool partial = false;
    uint32_t bytes = 0;
    size_t i;
    char c;

    if (a->cur == a->len)
        return RN_STEP_WAIT;
    c = a->window[a->cur];
    if (c != params->openers[0].pattern[0]) {
        if ((unsigned char)c < ' ' || c == '<' || !rn_field_add(&a->key, &c, 1))
            return RN_STEP_FAIL;
        a->cur++;
        return RN_STEP_ON;
    }
    for (i = 0; i < 3 && params->openers[i].pattern != NULL; i++) {
        enum rn_answer_match match = rn_answer_match(a, a->cur, params->openers[i].pattern, &bytes);

        partial = partial || match == RN_MATCH_PARTIAL;
        if (match != RN_MATCH_FULL)
            continue;
        a->cur += bytes;
        rn_answer_take(a);
        a->rule = (uint8_t)params->openers[i].rule;
        a->mode = RN_MODE_VALUE;
        a->in_cdata = false;
        a->line_passed = false;
        a->n_params++;
        if (params->item != NULL)
            return rn_answer_nest_member(a) ? RN_STEP_ON : RN_STEP_FAIL;
        rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, a->n_params == 1 ? "{" : ",", 1);
        rn_answer_put_string(a, a->key.text, a->key.bytes);
        rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, ":", 1);
        return RN_STEP_ON;
    }
    return partial ? RN_STEP_WAIT : RN_STEP_FAIL;
}

/* Does the marker behind a value stand at `at`? */
static enum rn_answer_match closes(const struct rn_answer *a, uint32_t at, uint32_t *bytes)
{
    const struct rn_param_syntax *params = a->rows.calls->params;
    enum rn_answer_match match;
    uint32_t extra = 0, i;

    if (params->lines && at < a->len && a->window[at] == '\n')
        extra = 1;
    for (i = 0; a->in_cdata && i < sizeof CDATA_END - 1; i++, extra++) {
        if (at + extra == a->len)
            return RN_MATCH_PARTIAL;
        if (a->window[at + extra] != CDATA_END[i])
            return RN_MATCH_NONE;
    }
    match = params->item != NULL ? rn_answer_nest_closes(a, at + extra, bytes)
                                 : rn_answer_match(a, at + extra, params->close, bytes);
    *bytes += extra;
    return match;
}

static void begin_text(struct rn_answer *a)
{
    rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, "\"", 1);
    a->mode = RN_MODE_VALUE_TEXT;
}

static bool opens_container(char c)
{
    return c == '{' || c == '[';
}

/* Python's values are understood where they can not be text. */
static enum rn_literal_dialect dialect_of(const struct rn_answer *a)
{
    bool text = a->types == 0 || (a->types & RN_SCHEMA_STRING);

    if (a->rule == RN_VALUE_JSON)
        return RN_LITERAL_JSON;
    return text && !a->rows.calls->params->python ? RN_LITERAL_JSON : RN_LITERAL_PYTHON;
}

/* What stands before a value and is not part of it. WAIT until that is known. */
static enum rn_answer_step value_prefix(struct rn_answer *a)
{
    const struct rn_param_syntax *params = a->rows.calls->params;
    enum rn_answer_match match;
    uint32_t bytes;

    if (a->cur == a->len)
        return RN_STEP_WAIT;
    if (params->lines && !a->line_passed && a->window[a->cur] == '\n' && closes(a, a->cur, &bytes) == RN_MATCH_NONE) {
        a->line_passed = true;
        a->cur++;
        rn_answer_take(a);
        return a->cur == a->len ? RN_STEP_WAIT : RN_STEP_ON;
    }
    if (params->lines && !a->line_passed && a->window[a->cur] == '\n' && closes(a, a->cur, &bytes) == RN_MATCH_PARTIAL)
        return RN_STEP_WAIT;
    match = params->cdata ? rn_answer_match(a, a->cur, CDATA, &bytes) : RN_MATCH_NONE;
    if (match == RN_MATCH_PARTIAL)
        return RN_STEP_WAIT;
    if (match == RN_MATCH_FULL) {
        a->cur += bytes;
        rn_answer_take(a);
        a->in_cdata = true;
    }
    return RN_STEP_ON;
}

enum rn_answer_step rn_answer_on_value(struct rn_answer *a)
{
    bool nests = a->rows.calls->params->item != NULL;
    enum rn_answer_step step;
    uint32_t at;

    if (value_prefix(a) == RN_STEP_WAIT)
        return RN_STEP_WAIT;
    step = nests ? rn_answer_nest_value(a) : RN_STEP_FAIL;
    if (step != RN_STEP_FAIL)
        return step;
    a->types = RN_SCHEMA_STRING;
    if (a->rule == RN_VALUE_JSON)
        a->types = ~(uint32_t)RN_SCHEMA_STRING;
    else if (a->rule == RN_VALUE_BY_SCHEMA && !a->in_cdata)
        a->types =
            nests ? rn_answer_nest_types(a) : rn_answer_tools_types(a->function, a->key.text, a->key.bytes, NULL);
    if (a->types == RN_SCHEMA_STRING) {
        begin_text(a);
        return RN_STEP_ON;
    }
    for (at = a->cur; at < a->len && rn_answer_space(a->window[at]) && at - a->cur < RN_ANSWER_SPACES;)
        at++;
    if (at == a->len)
        return RN_STEP_WAIT;
    a->scan = 0;
    a->mode = RN_MODE_VALUE_HELD;
    if (a->types == 0 || (a->types & RN_SCHEMA_STRING) || !opens_container(a->window[at]))
        return RN_STEP_ON;
    rn_literal_init(&a->literal, dialect_of(a), NULL);
    a->mode = RN_MODE_VALUE_LITERAL;
    return RN_STEP_ON;
}

enum rn_answer_step rn_answer_on_value_text(struct rn_answer *a)
{
    uint32_t bytes;

    for (; a->cur < a->len; a->cur++) {
        enum rn_answer_match match = closes(a, a->cur, &bytes);

        if (match == RN_MATCH_PARTIAL)
            break;
        if (match == RN_MATCH_FULL) {
            rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, "\"", 1);
            a->cur += bytes;
            rn_answer_take(a);
            value_ends(a);
            return RN_STEP_ON;
        }
        rn_answer_put_escaped(a, a->window[a->cur]);
    }
    rn_answer_take(a);
    return RN_STEP_WAIT;
}

enum rn_answer_step rn_answer_on_value_literal(struct rn_answer *a)
{
    enum rn_literal_result result = RN_LITERAL_MORE;

    while (a->cur < a->len && result == RN_LITERAL_MORE) {
        result = rn_answer_literal(a, a->window[a->cur]);
        if (result != RN_LITERAL_BAD)
            a->cur++;
    }
    rn_answer_take(a);
    if (result == RN_LITERAL_MORE)
        return RN_STEP_WAIT;
    a->mode = RN_MODE_VALUE_CLOSE;
    return result == RN_LITERAL_DONE ? RN_STEP_ON : RN_STEP_FAIL;
}

enum rn_answer_step rn_answer_on_value_close(struct rn_answer *a)
{
    enum rn_answer_match match;
    uint32_t bytes;

    while (a->cur < a->len && rn_answer_space(a->window[a->cur]))
        a->cur++;
    rn_answer_take(a);
    match = closes(a, a->cur, &bytes);
    if (match != RN_MATCH_FULL)
        return match == RN_MATCH_PARTIAL ? RN_STEP_WAIT : RN_STEP_FAIL;
    a->cur += bytes;
    rn_answer_take(a);
    value_ends(a);
    return RN_STEP_ON;
}

/* The type that a value of JSON or Python has, by its first byte. */
static uint32_t type_of(char c)
{
    switch (c) {
    case '{':
        return RN_SCHEMA_OBJECT;
    case '[':
    case '(':
        return RN_SCHEMA_ARRAY;
    case 't':
    case 'f':
    case 'T':
    case 'F':
        return RN_SCHEMA_BOOLEAN;
    case 'n':
    case 'N':
        return RN_SCHEMA_NULL;
    case '"':
    case '\'':
        return RN_SCHEMA_STRING;
    default:
        return RN_SCHEMA_NUMBER;
    }
}

/* Is the whole value text[n] something else than a string? */
static bool is_literal(const struct rn_answer *a, const char *text, uint32_t n)
{
    bool any = a->types == 0, strings = a->types & RN_SCHEMA_STRING;
    uint32_t type;

    while (n > 0 && rn_answer_space(*text)) {
        text++;
        n--;
    }
    if (n == 0)
        return false;
    type = type_of(*text);
    if (type == RN_SCHEMA_STRING && (any || strings))
        return false;
    return (any || !strings || (a->types & type)) && rn_literal_is(dialect_of(a), text, n);
}

static void put_value(struct rn_answer *a, uint32_t n)
{
    const char *text = a->window + a->cur;
    char out[RN_LITERAL_STEP_BYTES];
    uint32_t i;

    if (!is_literal(a, text, n)) {
        rn_answer_put_string(a, text, n);
        return;
    }
    rn_literal_init(&a->literal, dialect_of(a), NULL);
    for (i = 0; i < n; i++)
        if (rn_answer_literal(a, text[i]) != RN_LITERAL_MORE)
            return;
    rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, out, rn_literal_flush(&a->literal, out));
}

/* Too long to be held to its end: what it looks like so far decides. */
static enum rn_answer_step value_too_long(struct rn_answer *a)
{
    if (!(a->types & RN_SCHEMA_STRING) && opens_container(a->window[a->cur])) {
        rn_literal_init(&a->literal, dialect_of(a), NULL);
        a->mode = RN_MODE_VALUE_LITERAL;
    } else {
        begin_text(a);
    }
    return RN_STEP_ON;
}

enum rn_answer_step rn_answer_on_value_held(struct rn_answer *a)
{
    uint32_t bytes;

    for (; a->cur + a->scan < a->len; a->scan++) {
        enum rn_answer_match match = closes(a, a->cur + a->scan, &bytes);

        if (match == RN_MATCH_PARTIAL)
            return RN_STEP_WAIT;
        if (match == RN_MATCH_FULL) {
            put_value(a, a->scan);
            a->cur += a->scan + bytes;
            rn_answer_take(a);
            value_ends(a);
            return RN_STEP_ON;
        }
        if (a->scan == RN_ANSWER_VALUE_HOLD)
            return value_too_long(a);
    }
    return RN_STEP_WAIT;
}

void rn_answer_cut_value(struct rn_answer *a)
{
    char out[RN_LITERAL_STEP_BYTES];
    bool text = a->mode == RN_MODE_VALUE_TEXT || a->mode == RN_MODE_VALUE_HELD;
    size_t n = 0;

    if (a->mode == RN_MODE_VALUE_HELD)
        rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, "\"", 1);
    for (; text && a->cur < a->len; a->cur++)
        rn_answer_put_escaped(a, a->window[a->cur]);
    if (a->mode == RN_MODE_LITERAL)
        n = rn_literal_flush(&a->literal, out);
    rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, out, n);
    rn_answer_take(a);
}
