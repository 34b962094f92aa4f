/* Calls as Python writes them.
 *
 *     [f(a=1, b='x'), g()]    -->  f {"a":1,"b":"x"}, g {}
 *     f.call(a=1)             -->  f {"a":1}
 *
 * A call is certain when a key with its '=' or the closing parenthesis is there. */
#include <string.h>

#include "text/answer/impl.h"

/* ---- Python ---- */

enum python_state { BEGIN, NAME, ARGUMENT, KEY, EQUALS, VALUE, NEXT, BETWEEN, MORE, N_PYTHON_STATES };

static bool identifier(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static enum rn_answer_step eat(struct rn_answer *a, enum python_state next)
{
    a->cur++;
    a->python = (uint8_t)next;
    return RN_STEP_ON;
}

static void begin_call(struct rn_answer *a)
{
    a->name.bytes = a->id.bytes = 0;
    a->n_params = 0;
}

void rn_answer_begin_python(struct rn_answer *a)
{
    a->mode = RN_MODE_PYTHON;
    a->python = BEGIN;
    a->list = false;
    begin_call(a);
}

static enum rn_answer_step on_begin(struct rn_answer *a, char c)
{
    if (c == '[' && !a->list) {
        a->list = true;
        return eat(a, BEGIN);
    }
    if (!identifier(c))
        return RN_STEP_FAIL;
    a->python = NAME;
    return RN_STEP_ON;
}

static enum rn_answer_step on_name(struct rn_answer *a, char c)
{
    static const char call[] = ".call";
    uint32_t n = a->name.bytes, suffix = sizeof call - 1;

    if (identifier(c) || c == '.' || c == '-') {
        a->cur++;
        return rn_field_add(&a->name, &c, 1) ? RN_STEP_ON : RN_STEP_FAIL;
    }
    if (c != '(')
        return RN_STEP_FAIL;
    if (n > suffix && memcmp(a->name.text + n - suffix, call, suffix) == 0)
        a->name.bytes -= suffix;
    return eat(a, ARGUMENT);
}

static enum rn_answer_step call_ends(struct rn_answer *a)
{
    bool list = a->list;

    if (!a->committed && !rn_answer_commit(a))
        return RN_STEP_FAIL;
    rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, a->n_params == 0 ? "{}" : "}", a->n_params == 0 ? 2 : 1);
    a->cur++;
    rn_answer_call_ends(a);
    a->mode = RN_MODE_PYTHON;
    a->pattern_index = -1;
    a->python = list ? BETWEEN : MORE;
    return RN_STEP_ON;
}

static enum rn_answer_step on_argument(struct rn_answer *a, char c)
{
    if (c == ')')
        return call_ends(a);
    if (!identifier(c))
        return RN_STEP_FAIL;
    a->key.bytes = 0;
    a->python = KEY;
    return RN_STEP_ON;
}

static enum rn_answer_step on_key(struct rn_answer *a, char c)
{
    if (!identifier(c)) {
        a->python = EQUALS;
        return RN_STEP_ON;
    }
    if (!rn_field_add(&a->key, &c, 1))
        return RN_STEP_FAIL;
    return eat(a, KEY);
}

static enum rn_answer_step on_equals(struct rn_answer *a, char c)
{
    if (c != '=' || (!a->committed && !rn_answer_commit(a)))
        return RN_STEP_FAIL;
    rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, a->n_params++ == 0 ? "{" : ",", 1);
    rn_answer_put_string(a, a->key.text, a->key.bytes);
    rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, ":", 1);
    rn_literal_init(&a->literal, RN_LITERAL_PYTHON, NULL);
    return eat(a, VALUE);
}

static enum rn_answer_step on_value(struct rn_answer *a, char c)
{
    enum rn_literal_result result = rn_answer_literal(a, c);

    if (result == RN_LITERAL_BAD)
        return RN_STEP_FAIL;
    if (result != RN_LITERAL_MORE)
        a->python = NEXT;
    if (result != RN_LITERAL_DONE_BEFORE)
        a->cur++;
    return RN_STEP_ON;
}

static enum rn_answer_step on_next(struct rn_answer *a, char c)
{
    if (c == ')')
        return call_ends(a);
    return c == ',' ? eat(a, ARGUMENT) : RN_STEP_FAIL;
}

static enum rn_answer_step python_ends(struct rn_answer *a)
{
    rn_answer_take(a);
    a->mode = RN_MODE_TEXT;
    return RN_STEP_ON;
}

/* Behind a call of a list. */
static enum rn_answer_step on_between(struct rn_answer *a, char c)
{
    if (c == ',') {
        begin_call(a);
        return eat(a, BEGIN);
    }
    if (c != ']')
        return RN_STEP_FAIL;
    a->cur++;
    return python_ends(a);
}

/* Behind a call that stands alone: perhaps another follows. */
static enum rn_answer_step on_more(struct rn_answer *a, char c)
{
    if (!identifier(c)) {
        a->cur = a->base;
        a->mode = RN_MODE_TEXT;
        return RN_STEP_ON;
    }
    begin_call(a);
    a->python = NAME;
    return RN_STEP_ON;
}

static enum rn_answer_step (*const handlers[N_PYTHON_STATES])(struct rn_answer *, char) = {
    [BEGIN] = on_begin, [NAME] = on_name, [ARGUMENT] = on_argument, [KEY] = on_key,   [EQUALS] = on_equals,
    [VALUE] = on_value, [NEXT] = on_next, [BETWEEN] = on_between,   [MORE] = on_more,
};

enum rn_answer_step rn_answer_on_python(struct rn_answer *a)
{
    bool within = a->python == NAME || a->python == KEY || a->python == VALUE;
    enum rn_answer_step step = RN_STEP_ON;

    if (a->cur == a->len)
        return RN_STEP_WAIT;
    if (!within && rn_answer_space(a->window[a->cur]))
        a->cur++;
    else
        step = handlers[a->python](a, a->window[a->cur]);
    if (a->committed && step == RN_STEP_ON)
        rn_answer_take(a);
    else if (a->cur - a->base > RN_ANSWER_HOLD)
        step = RN_STEP_FAIL;
    return step;
}
