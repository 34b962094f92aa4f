/* JSON around the arguments of a call, read byte by byte:
 *
 *     {"name": "f", "id": "1", "arguments": {..}}     keys in any order; "function": {..} may hold them
 *     {"f": {..}}                                     keyed
 *     [ .. , .. ]                                     a list of either
 *
 * Before the name is known nothing is certain, and all is held. Arguments that come before their name are held with
 * it and given out behind it; arguments in a string (JSON within JSON) are decoded. */
#include <string.h>

#include "text/answer/impl.h"

enum wrap_state {
    BEGIN,
    KEY_OR_END,
    KEY,
    KEY_TEXT,
    COLON,
    VALUE,
    STRING,         /* the name or the id */
    ARGUMENTS_TEXT, /* arguments in a string */
    PASSED,         /* a value that means nothing here */
    NEXT,
    ARGUED, /* the arguments were read by the literal mode */
    BETWEEN,
    N_WRAP_STATES
};

enum wrap_key { KEY_OTHER, KEY_NAME, KEY_FUNCTION, KEY_ARGUMENTS, KEY_ID };

static enum rn_answer_step eat(struct rn_answer *a, enum wrap_state next)
{
    a->cur++;
    a->wrap.state = (uint8_t)next;
    return RN_STEP_ON;
}

static void begin_element(struct rn_answer *a)
{
    struct rn_wrap *w = &a->wrap;

    a->name.bytes = a->id.bytes = 0;
    w->nested = w->held = w->argued = w->id_sent = false;
    w->state = BEGIN;
}

void rn_answer_begin_wrap(struct rn_answer *a, bool keyed)
{
    memset(&a->wrap, 0, sizeof a->wrap);
    a->wrap.keyed = keyed;
    a->mode = RN_MODE_WRAP;
    begin_element(a);
}

/* Commits, if that was not done. */
static bool certain(struct rn_answer *a)
{
    struct rn_wrap *w = &a->wrap;

    if (a->committed)
        return true;
    if (a->name.bytes == 0 || !rn_answer_commit(a))
        return false;
    w->id_sent = a->id.bytes > 0;
    return true;
}

static enum rn_answer_step on_begin(struct rn_answer *a, char c)
{
    if (c == '[' && !a->wrap.list) {
        a->wrap.list = true;
        return eat(a, BEGIN);
    }
    return c == '{' ? eat(a, KEY_OR_END) : RN_STEP_FAIL;
}

/* The call's object has ended: its end is given out. */
static enum rn_answer_step element_ends(struct rn_answer *a)
{
    struct rn_wrap *w = &a->wrap;
    const char *held = a->window + a->base + w->held_at;

    if (!certain(a))
        return RN_STEP_FAIL;
    if (w->held)
        rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, held, w->held_bytes);
    else if (!w->argued)
        rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, "{}", 2);
    if (!w->id_sent)
        rn_answer_put(a, RN_PART_TOOL_ID, a->id.text, a->id.bytes);
    a->cur++;
    rn_answer_call_ends(a);
    if (!w->list)
        return RN_STEP_ON;
    a->mode = RN_MODE_WRAP;
    a->pattern_index = -1;
    w->state = BETWEEN;
    return RN_STEP_ON;
}

static enum rn_answer_step object_ends(struct rn_answer *a)
{
    if (!a->wrap.nested)
        return element_ends(a);
    a->wrap.nested = false;
    return eat(a, NEXT);
}

static enum rn_answer_step on_key(struct rn_answer *a, char c)
{
    if (c == '}' && a->wrap.state == KEY_OR_END)
        return object_ends(a);
    if (c != '"' || (a->wrap.keyed && a->name.bytes > 0))
        return RN_STEP_FAIL;
    a->text.bytes = 0;
    memset(&a->wrap.unescape, 0, sizeof a->wrap.unescape);
    return eat(a, KEY_TEXT);
}

static uint8_t key_of(const struct rn_field *text)
{
    static const struct {
        const char *text;
        enum wrap_key key;
    } keys[] = {{"name", KEY_NAME},
                {"tool_name", KEY_NAME},
                {"function", KEY_FUNCTION},
                {"arguments", KEY_ARGUMENTS},
                {"parameters", KEY_ARGUMENTS},
                {"args", KEY_ARGUMENTS},
                {"id", KEY_ID},
                {"tool_call_id", KEY_ID},
                {"call_id", KEY_ID}};
    size_t i;

    for (i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (rn_field_is(text, keys[i].text))
            return (uint8_t)keys[i].key;
    return KEY_OTHER;
}

/* A byte of a string that is collected; *ended at its closing quote. */
static enum rn_answer_step collect(struct rn_answer *a, char c, bool *ended)
{
    struct rn_unescape *u = &a->wrap.unescape;
    char out[4];
    uint32_t n;

    *ended = c == '"' && rn_unescape_rests(u);
    if (*ended)
        return RN_STEP_ON;
    if (!rn_unescape_step(u, c, out, &n) || !rn_field_add(&a->text, out, n))
        return RN_STEP_FAIL;
    a->cur++;
    return RN_STEP_ON;
}

static enum rn_answer_step on_key_text(struct rn_answer *a, char c)
{
    bool ended;

    if (collect(a, c, &ended) == RN_STEP_FAIL)
        return RN_STEP_FAIL;
    if (!ended)
        return RN_STEP_ON;
    a->wrap.key = key_of(&a->text);
    if (a->wrap.keyed) {
        a->name = a->text;
        a->wrap.key = KEY_ARGUMENTS;
    }
    return eat(a, COLON);
}

static enum rn_answer_step on_colon(struct rn_answer *a, char c)
{
    return c == ':' ? eat(a, VALUE) : RN_STEP_FAIL;
}

static enum rn_answer_step pass(struct rn_answer *a)
{
    rn_literal_init(&a->literal, RN_LITERAL_JSON, NULL);
    a->wrap.state = PASSED;
    return RN_STEP_ON;
}

static enum rn_answer_step on_arguments(struct rn_answer *a, char c)
{
    struct rn_wrap *w = &a->wrap;

    if (w->argued || w->held)
        return RN_STEP_FAIL;
    if (c == 'n' && !w->keyed)
        return pass(a);
    if (a->name.bytes == 0 && c == '{') {
        w->held = true;
        w->held_at = a->cur - a->base;
        return pass(a);
    }
    if ((c != '{' && c != '"') || !certain(a))
        return RN_STEP_FAIL;
    w->argued = true;
    rn_literal_init(&a->literal, RN_LITERAL_JSON, NULL);
    if (c == '"') {
        memset(&w->unescape, 0, sizeof w->unescape);
        return eat(a, ARGUMENTS_TEXT);
    }
    w->state = ARGUED;
    a->mode = RN_MODE_LITERAL;
    a->resume = RN_MODE_WRAP;
    return RN_STEP_ON;
}

static enum rn_answer_step on_value(struct rn_answer *a, char c)
{
    struct rn_wrap *w = &a->wrap;

    if (w->key == KEY_ARGUMENTS)
        return on_arguments(a, c);
    if (w->key == KEY_FUNCTION && c == '{' && !w->nested) {
        w->nested = true;
        return eat(a, KEY_OR_END);
    }
    if (w->key == KEY_FUNCTION)
        w->key = KEY_NAME;
    if (w->key == KEY_NAME && c != '"' && a->name.bytes == 0)
        return RN_STEP_FAIL;
    if (c != '"' || w->key == KEY_OTHER || (w->key == KEY_NAME ? a->name.bytes : a->id.bytes) > 0)
        return pass(a);
    a->text.bytes = 0;
    memset(&w->unescape, 0, sizeof w->unescape);
    return eat(a, STRING);
}

static enum rn_answer_step on_string(struct rn_answer *a, char c)
{
    bool ended;

    if (collect(a, c, &ended) == RN_STEP_FAIL)
        return RN_STEP_FAIL;
    if (!ended)
        return RN_STEP_ON;
    if (a->wrap.key == KEY_NAME && a->text.bytes == 0)
        return RN_STEP_FAIL;
    if (a->wrap.key == KEY_NAME)
        a->name = a->text;
    else
        a->id = a->text;
    return eat(a, NEXT);
}

/* The value that is passed over; arguments that are held are measured by the way. */
static enum rn_answer_step on_passed(struct rn_answer *a, char c)
{
    char out[RN_LITERAL_STEP_BYTES];
    size_t n;
    enum rn_literal_result result = rn_literal_step(&a->literal, (unsigned char)c, out, &n);

    if (result == RN_LITERAL_BAD)
        return RN_STEP_FAIL;
    if (result != RN_LITERAL_DONE_BEFORE)
        a->cur++;
    if (result == RN_LITERAL_MORE)
        return RN_STEP_ON;
    if (a->wrap.key == KEY_ARGUMENTS && a->wrap.held)
        a->wrap.held_bytes = a->cur - a->base - a->wrap.held_at;
    a->wrap.state = NEXT;
    return RN_STEP_ON;
}

/* Arguments within a string: decoded, and checked as what they then are. */
static enum rn_answer_step on_arguments_text(struct rn_answer *a, char c)
{
    enum rn_literal_result result;
    char out[4];
    uint32_t n, i;

    if (c == '"' && rn_unescape_rests(&a->wrap.unescape)) {
        if (a->literal.started && !rn_literal_whole(&a->literal))
            return RN_STEP_FAIL;
        a->wrap.argued = a->literal.started; /* an empty text is as none, or null */
        return eat(a, NEXT);
    }
    if (!rn_unescape_step(&a->wrap.unescape, c, out, &n))
        return RN_STEP_FAIL;
    for (i = 0; i < n; i++) {
        if (!a->literal.started && out[i] != '{' && !rn_answer_space(out[i]))
            return RN_STEP_FAIL;
        if (rn_literal_whole(&a->literal) && rn_answer_space(out[i]))
            continue;
        result = rn_answer_literal(a, out[i]);
        if (result != RN_LITERAL_MORE && result != RN_LITERAL_DONE)
            return RN_STEP_FAIL;
    }
    a->cur++;
    return RN_STEP_ON;
}

static enum rn_answer_step on_next(struct rn_answer *a, char c)
{
    if (c == '}')
        return object_ends(a);
    return c == ',' ? eat(a, KEY) : RN_STEP_FAIL;
}

static enum rn_answer_step on_between(struct rn_answer *a, char c)
{
    if (c == ',') {
        begin_element(a);
        a->cur++;
        return RN_STEP_ON;
    }
    if (c != ']')
        return RN_STEP_FAIL;
    a->cur++;
    rn_answer_take(a);
    a->mode = RN_MODE_TEXT;
    return RN_STEP_ON;
}

static enum rn_answer_step (*const handlers[N_WRAP_STATES])(struct rn_answer *, char) = {
    [BEGIN] = on_begin,   [KEY_OR_END] = on_key, [KEY] = on_key,       [KEY_TEXT] = on_key_text,
    [COLON] = on_colon,   [VALUE] = on_value,    [STRING] = on_string, [ARGUMENTS_TEXT] = on_arguments_text,
    [PASSED] = on_passed, [NEXT] = on_next,      [ARGUED] = on_next,   [BETWEEN] = on_between,
};

enum rn_answer_step rn_answer_on_wrap(struct rn_answer *a)
{
    uint8_t state = a->wrap.state;
    bool within = state == KEY_TEXT || state == STRING || state == ARGUMENTS_TEXT || state == PASSED;
    enum rn_answer_step step = RN_STEP_ON;

    if (a->cur == a->len)
        return RN_STEP_WAIT;
    if (!within && rn_answer_space(a->window[a->cur]))
        a->cur++;
    else
        step = handlers[state](a, a->window[a->cur]);
    if (a->committed && step == RN_STEP_ON)
        rn_answer_take(a);
    else if (a->cur - a->base > RN_ANSWER_HOLD)
        step = RN_STEP_FAIL;
    return step;
}
