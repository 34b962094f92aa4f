/* Calls as Python writes them, and the headers of harmony messages.
 *
 *     [f(a=1, b='x'), g()]    -->  f {"a":1,"b":"x"}, g {}
 *     f.call(a=1)             -->  f {"a":1}
 *
 *     <|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{..}
 *     `------- header ------'      ^ text or arguments, until the end of the message
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

/* ---- Harmony ---- */

#define HEADER_CHANNEL '\x01' /* stands for "<|channel|>" in the header that is collected */
#define HEADER_START '\x02'
#define HEADER_CONSTRAIN '\x03'

void rn_answer_begin_header(struct rn_answer *a)
{
    a->mode = RN_MODE_HEADER;
    a->text.bytes = 0;
}

/* The word behind `mark` in the header, to the field; empty if there is none. */
static void header_word(const struct rn_answer *a, const char *mark, size_t n, struct rn_field *word)
{
    uint32_t at;

    word->bytes = 0;
    for (at = 0; at + n <= a->text.bytes; at++)
        if (memcmp(a->text.text + at, mark, n) == 0)
            break;
    for (at += (uint32_t)n; at < a->text.bytes && (unsigned char)a->text.text[at] > ' '; at++)
        rn_field_add(word, a->text.text + at, 1);
}

/* Before its channel a header is "assistant", and perhaps " to=..": else it is none. */
static bool header_plausible(const struct rn_answer *a)
{
    static const char role[] = "\002assistant to=";
    uint32_t n = a->text.bytes < sizeof role - 1 ? a->text.bytes : (uint32_t)sizeof role - 1, i;

    if (a->text.bytes == 0 || a->text.text[0] == HEADER_CHANNEL)
        return true;
    for (i = 0; i < n; i++)
        if (a->text.text[i] != role[i])
            return i >= 10 && (unsigned char)a->text.text[i] < ' '; /* a marker, behind "assistant" */
    return true;
}

/* A marker within a header: each stands there once. */
static bool add_mark(struct rn_answer *a, char mark)
{
    return memchr(a->text.text, mark, a->text.bytes) == NULL && rn_field_add(&a->text, &mark, 1) && header_plausible(a);
}

/* The header is whole: what kind of message follows? */
static enum rn_answer_step header_ends(struct rn_answer *a)
{
    static const char functions[] = "functions.";
    struct rn_field channel;
    uint32_t prefix = sizeof functions - 1;
    bool call;

    header_word(a, "\001", 1, &channel);
    header_word(a, "to=", 3, &a->id);
    if (a->id.bytes > prefix && memcmp(a->id.text, functions, prefix) == 0) {
        memmove(a->id.text, a->id.text + prefix, a->id.bytes - prefix);
        a->id.bytes -= prefix;
        call = true;
    } else {
        call = rn_answer_tools_find(&a->tools, a->id.text, a->id.bytes).kind != RN_VALUE_UNDEFINED;
    }
    a->kind = RN_PART_CONTENT;
    if (call && a->has_tools) {
        struct rn_field name = a->id;

        rn_answer_open(a, RN_F_SPACE RN_F_OBJECT, -1);
        a->name = name;
        return RN_STEP_ON;
    }
    if (rn_field_is(&channel, "analysis"))
        a->kind = RN_PART_REASONING;
    rn_answer_take(a);
    a->mode = RN_MODE_TEXT;
    a->skip = RN_SKIP_NONE;
    a->start = false;
    a->after_call = false;
    return RN_STEP_ON;
}

enum rn_answer_step rn_answer_on_header(struct rn_answer *a)
{
    static const struct {
        const char *text;
        char stands_for;
    } marks[] = {{"<|message|>", 0},
                 {"<|channel|>", HEADER_CHANNEL},
                 {"<|constrain|>", HEADER_CONSTRAIN},
                 {"<|start|>", HEADER_START}};
    bool partial = false;
    uint32_t bytes;
    size_t i;
    char c;

    if (a->cur == a->len)
        return RN_STEP_WAIT;
    c = a->window[a->cur];
    if (c != '<') {
        a->cur++;
        return (rn_answer_name_byte(c) || c == ' ' || c == '=') && rn_field_add(&a->text, &c, 1) && header_plausible(a)
                   ? RN_STEP_ON
                   : RN_STEP_FAIL;
    }
    for (i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        enum rn_answer_match match = rn_answer_match(a, a->cur, marks[i].text, &bytes);

        partial = partial || match == RN_MATCH_PARTIAL;
        if (match != RN_MATCH_FULL)
            continue;
        a->cur += bytes;
        if (marks[i].stands_for == 0)
            return header_ends(a);
        return add_mark(a, marks[i].stands_for) ? RN_STEP_ON : RN_STEP_FAIL;
    }
    return partial ? RN_STEP_WAIT : RN_STEP_FAIL;
}
