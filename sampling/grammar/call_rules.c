/* Calls in a model's own format, as rules: see answer_parts.h.
 *
 * A format has up to four ways of writing (struct rn_call_writing). Each is a sequence of patterns; a pattern is walked
 * field by field, for each tool that may be called. */
#include <string.h>

#include "base/check.h"
#include "sampling/grammar/answer_parts.h"
#include "text/answer/literal.h"

#define SPACES_MOST 8u
#define ID_MOST 40u
#define NAME_MOST 255u
#define NO_RULE UINT32_MAX

rn_expr rn_call_text(struct rn_grammar *g, const char *text)
{
    return rn_grammar_bytes(g, text, strlen(text));
}

rn_expr rn_call_optional(struct rn_grammar *g, rn_expr e)
{
    return rn_grammar_repeat(g, e, 0, 1);
}

/* ---- Text of the format ---- */

/* The control token that text[n] begins with, the longest; -1: none. *bytes gets its length. */
static int32_t control_token(const struct rn_grammar *g, const char *text, size_t n, size_t *bytes)
{
    int32_t token;
    size_t k;

    if (g->vocab == NULL || n == 0)
        return -1;
    for (k = n < NAME_MOST ? n : NAME_MOST; k > 1; k--) {
        if (((unsigned char)text[k - 1] & 0x80) == 0 && strchr(">][", text[k - 1]) == NULL)
            continue; /* names of control tokens end so */
        token = rn_vocab_find(g->vocab, text, k);
        if (token < 0 || rn_vocab_kind(g->vocab, token) != RN_TOKEN_CONTROL)
            continue;
        *bytes = k;
        return token;
    }
    return -1;
}

bool rn_call_ends(const struct rn_grammar *g, const char *text, size_t n)
{
    size_t at, bytes;

    for (at = 0; at < n; at++) {
        int32_t token = control_token(g, text + at, n - at, &bytes);

        if (token >= 0 && rn_vocab_is_end(g->vocab, token))
            return true;
    }
    return false;
}

rn_expr rn_call_literal(struct rn_grammar *g, const char *text, size_t n)
{
    rn_expr e = rn_grammar_empty(g);
    size_t at = 0, begin, bytes = 0;

    while (at < n) {
        int32_t token = -1;

        for (begin = at; at < n && (token = control_token(g, text + at, n - at, &bytes)) < 0;)
            at++;
        e = rn_grammar_sequence(g, (rn_expr[]){e, rn_grammar_bytes(g, text + begin, at - begin)}, 2);
        if (token < 0)
            break;
        e = rn_grammar_sequence(g, (rn_expr[]){e, rn_grammar_tokens(g, &token, 1, false)}, 2);
        at += bytes;
    }
    return e;
}

static rn_expr white(struct rn_grammar *g, uint32_t most)
{
    static const struct rn_code_points space[] = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}};

    return rn_grammar_repeat(g, rn_grammar_set(g, space, 3, false), 0, most);
}

static rn_expr word(struct rn_grammar *g, uint32_t most)
{
    static const struct rn_code_points letters[] = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}, {'-', '-'}};

    return rn_grammar_repeat(g, rn_grammar_set(g, letters, 5, false), 1, most);
}

rn_expr rn_call_pattern(struct rn_grammar *g, const char *pattern)
{
    rn_expr e = rn_grammar_empty(g), part;
    size_t n;

    for (; pattern != NULL && *pattern != '\0'; pattern += n > 0 ? n : 1) {
        n = rn_pattern_head(pattern);
        if (n > 0)
            part = rn_call_literal(g, pattern, n);
        else
            part = *pattern == RN_F_SPACE[0] ? white(g, SPACES_MOST) : word(g, ID_MOST);
        e = rn_grammar_sequence(g, (rn_expr[]){e, part}, 2);
    }
    return e;
}

/* ---- Arguments ---- */

struct types_of {
    const struct rn_answer_tool *tool;
};

static rn_expr form_pattern(void *user, struct rn_grammar *g, const char *text)
{
    (void)user;
    return rn_call_pattern(g, text);
}

static uint32_t form_types(void *user, const char *key, size_t n, uint64_t *steps)
{
    const struct types_of *of = user;

    return rn_answer_tools_types(of->tool->function, key, n, steps);
}

/* A tool without parameters takes an empty object. */
static rn_expr no_arguments(struct rn_grammar *g, enum rn_arguments_kind kind)
{
    if (kind != RN_ARGUMENTS_JSON)
        return rn_grammar_empty(g);
    return rn_grammar_sequence(g, (rn_expr[]){rn_call_text(g, "{"), white(g, SPACES_MOST), rn_call_text(g, "}")}, 3);
}

/* Puts the tool's name in front of the error. */
static void name_error(struct rn_answer_maker *a, const struct rn_answer_tool *tool)
{
    runnel_error error = a->g->error;

    a->g->error.status = RUNNEL_OK;
    rn_answer_fail(a, error.status, "the tool \"%s\": %s", rn_grammar_quote(tool->name->bytes, tool->name->n).text,
                   error.message);
}

rn_expr rn_call_arguments(struct rn_answer_maker *a, struct rn_answer_tool *tool, enum rn_arguments_kind kind)
{
    struct rn_value schema = rn_dict_at(tool->function, "parameters");
    struct types_of of = {tool};
    struct rn_arguments_form form = {
        kind, a->rows.calls->params, a->rows.calls->mark, tool->name, form_pattern, form_types, &of, &a->steps};
    struct rn_schema_options options = a->rules->schema;
    rn_expr e;

    if (rn_grammar_failed(a->g))
        return RN_GRAMMAR_NONE;
    if (tool->rules[kind] == NO_RULE) {
        options.closed = true;
        options.free_white = options.short_white = kind != RN_ARGUMENTS_MARKED;
        options.any_order = kind == RN_ARGUMENTS_MARKED; /* its template sorts names */
        options.allow_unenforced |= a->rules->choice == NULL && !rn_answer_tools_is_strict(tool->function);
        if (schema.kind == RN_VALUE_UNDEFINED || schema.kind == RN_VALUE_NONE)
            e = no_arguments(a->g, kind);
        else
            e = rn_grammar_arguments(a->g, schema, &options, &form);
        if (rn_grammar_failed(a->g)) {
            name_error(a, tool);
            return RN_GRAMMAR_NONE;
        }
        tool->rules[kind] = rn_grammar_rule(a->g, NULL, 0);
        rn_grammar_define(a->g, tool->rules[kind], e);
    }
    return rn_grammar_call(a->g, tool->rules[kind]);
}

/* ---- Names ---- */

/* As it stands, where the format allows that. */
static rn_expr bare_name(struct rn_answer_maker *a, const struct rn_answer_tool *tool)
{
    const struct rn_str *name = tool->name;
    bool fits = name->n > 0 && name->n <= NAME_MOST;

    for (size_t i = 0; i < name->n && fits; i++)
        fits = rn_answer_name_byte(name->bytes[i]);
    if (!fits)
        rn_answer_fail(a, RUNNEL_UNSUPPORTED, "the name of the tool \"%s\" cannot be written in the model's format",
                       rn_grammar_quote(name->bytes, name->n).text);
    return rn_grammar_bytes(a->g, name->bytes, name->n);
}

static rn_expr python_name(struct rn_answer_maker *a, const struct rn_answer_tool *tool)
{
    const struct rn_str *name = tool->name;
    bool fits = !(name->n >= 5 && memcmp(name->bytes + name->n - 5, ".call", 5) == 0);

    for (size_t i = 0; i < name->n && fits; i++) {
        char c = name->bytes[i], low = (char)(c | 0x20);

        fits = (low >= 'a' && low <= 'z') || (c >= '0' && c <= '9') || (unsigned char)c >= 0x80 ||
               (c != '\0' && strchr(i > 0 ? "_.-" : "_", c) != NULL);
    }
    if (!fits)
        rn_answer_fail(a, RUNNEL_UNSUPPORTED, "the name of the tool \"%s\" cannot be written as Python",
                       rn_grammar_quote(name->bytes, name->n).text);
    return bare_name(a, tool);
}

static rn_expr json_name(struct rn_answer_maker *a, const struct rn_answer_tool *tool)
{
    char text[6 * NAME_MOST + 2];
    size_t n = 0, i;

    if (tool->name->n == 0 || tool->name->n > NAME_MOST) {
        rn_answer_fail(a, RUNNEL_UNSUPPORTED, "the name of a tool has 1 to %u bytes", NAME_MOST);
        return RN_GRAMMAR_NONE;
    }
    text[n++] = '"';
    for (i = 0; i < tool->name->n; i++)
        n += rn_json_escape((unsigned char)tool->name->bytes[i], text + n);
    text[n++] = '"';
    return rn_grammar_bytes(a->g, text, n);
}

/* ---- A call as a JSON object ---- */

static rn_expr any_of(struct rn_grammar *g, const char *const *texts, size_t n)
{
    rn_expr parts[4];

    for (size_t i = 0; i < n; i++)
        parts[i] = rn_call_text(g, texts[i]);
    return rn_grammar_alternatives(g, parts, n);
}

/* "key": */
static rn_expr json_key(struct rn_grammar *g, const char *const *names, size_t n)
{
    rn_expr space = rn_grammar_short_white(g);

    return rn_grammar_sequence(g, (rn_expr[]){any_of(g, names, n), space, rn_call_text(g, ":"), space}, 4);
}

/* {"name": .., "arguments": ..}, with a type in front and an id at either end as some models write them. */
static rn_expr json_call(struct rn_answer_maker *a, struct rn_answer_tool *tool)
{
    static const char *const names[] = {"\"name\"", "\"tool_name\""}, *const types[] = {"\"type\""};
    static const char *const arguments[] = {"\"arguments\"", "\"parameters\"", "\"args\""};
    static const char *const ids[] = {"\"id\"", "\"tool_call_id\"", "\"call_id\""};
    struct rn_grammar *g = a->g;
    rn_expr space = rn_grammar_short_white(g), quote = rn_call_text(g, "\"");
    rn_expr comma = rn_grammar_sequence(g, (rn_expr[]){space, rn_call_text(g, ","), space}, 3);
    rn_expr type =
        rn_grammar_sequence(g, (rn_expr[]){json_key(g, types, 1), rn_call_text(g, "\"function\""), comma}, 3);
    rn_expr id = rn_grammar_sequence(g, (rn_expr[]){json_key(g, ids, 3), quote, word(g, ID_MOST), quote}, 4);
    rn_expr first = rn_call_optional(g, rn_grammar_sequence(g, (rn_expr[]){id, comma}, 2));
    rn_expr last = rn_call_optional(g, rn_grammar_sequence(g, (rn_expr[]){comma, id}, 2));

    return rn_grammar_sequence(g,
                               (rn_expr[]){rn_call_text(g, "{"), space, rn_call_optional(g, type), first,
                                           json_key(g, names, 2), json_name(a, tool), comma, json_key(g, arguments, 3),
                                           rn_call_arguments(a, tool, RN_ARGUMENTS_JSON), last, space,
                                           rn_call_text(g, "}")},
                               12);
}

static rn_expr keyed_call(struct rn_answer_maker *a, struct rn_answer_tool *tool)
{
    rn_expr space = rn_grammar_short_white(a->g);

    return rn_grammar_sequence(
        a->g,
        (rn_expr[]){rn_call_text(a->g, "{"), space, json_name(a, tool), space, rn_call_text(a->g, ":"), space,
                    rn_call_arguments(a, tool, RN_ARGUMENTS_JSON), space, rn_call_text(a->g, "}")},
        9);
}

/* ---- A call by its pattern ---- */

static rn_expr index_of(struct rn_answer_maker *a, const struct rn_answer_tool *tool)
{
    static const struct rn_code_points digits[] = {{'0', '9'}};
    rn_expr number = rn_grammar_repeat(a->g, rn_grammar_set(a->g, digits, 1, false), 1, 3);

    return rn_grammar_sequence(
        a->g, (rn_expr[]){rn_call_text(a->g, "functions."), bare_name(a, tool), rn_call_text(a->g, ":"), number}, 4);
}

static rn_expr parameters(struct rn_answer_maker *a, struct rn_answer_tool *tool)
{
    rn_expr space = white(a->g, SPACES_MOST);

    return rn_grammar_sequence(a->g,
                               (rn_expr[]){space, rn_call_arguments(a, tool, RN_ARGUMENTS_PARAMS), space,
                                           rn_call_pattern(a->g, a->rows.calls->params->end)},
                               4);
}

static rn_expr python_call(struct rn_answer_maker *a, struct rn_answer_tool *tool)
{
    return rn_grammar_sequence(a->g,
                               (rn_expr[]){python_name(a, tool), rn_call_text(a->g, "("),
                                           rn_call_arguments(a, tool, RN_ARGUMENTS_PYTHON), rn_call_text(a->g, ")")},
                               4);
}

static rn_expr field(struct rn_answer_maker *a, struct rn_answer_tool *tool, char which)
{
    switch (which) {
    case 0x01: /* RN_F_NAME */
        return bare_name(a, tool);
    case 0x03: /* RN_F_INDEX */
        return index_of(a, tool);
    case 0x05: /* RN_F_CALL */
        return json_call(a, tool);
    case 0x06: /* RN_F_KEYED */
        return keyed_call(a, tool);
    case 0x07: /* RN_F_OBJECT */
        return rn_call_arguments(a, tool, RN_ARGUMENTS_JSON);
    case 0x08: /* RN_F_PARAMS */
        return parameters(a, tool);
    case 0x0b: /* RN_F_PYTHON */
        return python_call(a, tool);
    default: /* RN_F_GEMMA */
        return rn_grammar_sequence(
            a->g, (rn_expr[]){rn_call_arguments(a, tool, RN_ARGUMENTS_MARKED), rn_call_text(a->g, "}")}, 2);
    }
}

static rn_expr one_call(struct rn_answer_maker *a, struct rn_answer_tool *tool, const char *pattern)
{
    static const char of_tools[] =
        RN_F_NAME RN_F_INDEX RN_F_CALL RN_F_KEYED RN_F_OBJECT RN_F_PARAMS RN_F_PYTHON RN_F_GEMMA;
    rn_expr e = rn_grammar_empty(a->g), part;
    char head[256];
    size_t n;

    for (; *pattern != '\0' && !rn_grammar_failed(a->g); pattern += n) {
        n = strcspn(pattern, of_tools);
        if (n == 0) {
            part = field(a, tool, *pattern);
            n = 1;
        } else {
            RN_CHECK(n < sizeof head);
            memcpy(head, pattern, n);
            head[n] = '\0';
            part = rn_call_pattern(a->g, head);
        }
        e = rn_grammar_sequence(a->g, (rn_expr[]){e, part}, 2);
    }
    return e;
}

/* A call of any of the tools that may be called. */
static rn_expr any_call(struct rn_answer_maker *a, const char *pattern)
{
    rn_expr parts[RN_CALL_TOOLS_MOST];

    for (size_t i = 0; i < a->n_chosen; i++)
        parts[i] = one_call(a, &a->tools[i], pattern);
    return rn_grammar_alternatives(a->g, parts, a->n_chosen);
}

/* ---- Blocks of calls ---- */

static bool writable(const struct rn_grammar *g, const struct rn_call_writing *w)
{
    const char *const parts[] = {w->begin, w->call, w->between, w->end};

    for (int i = 0; i < 4; i++)
        if (parts[i] != NULL && rn_call_ends(g, parts[i], strlen(parts[i])))
            return false;
    return true;
}

/* begin call (between call)* end, where the first `skip` bytes are there already. */
static rn_expr block(struct rn_answer_maker *a, const struct rn_call_writing *w, size_t skip)
{
    struct rn_grammar *g = a->g;
    bool in_begin = w->begin != NULL;
    rn_expr call = any_call(a, w->call), first = call, more;
    rn_expr begin = rn_call_pattern(g, in_begin ? w->begin + skip : NULL);

    if (skip > 0 && !in_begin)
        first = any_call(a, w->call + skip);
    more = rn_grammar_sequence(g, (rn_expr[]){rn_call_pattern(g, w->between), call}, 2);
    more = rn_grammar_repeat(g, more, 0, a->rules->single_call ? 0 : RN_GRAMMAR_FOREVER);
    return rn_grammar_sequence(g, (rn_expr[]){begin, first, more, rn_call_pattern(g, w->end)}, 4);
}

/* Does a way of writing begin with what the prompt has written? */
static bool begins_with(const struct rn_call_writing *w, const char *text, size_t n)
{
    const char *begin = w->begin != NULL ? w->begin : w->call;

    return strlen(begin) >= n && memcmp(begin, text, n) == 0;
}

rn_expr rn_call_blocks(struct rn_answer_maker *a, bool opened)
{
    const struct rn_call_writing *w = a->rows.calls->written;
    rn_expr parts[4];
    size_t n = 0;

    for (int i = 0; i < 4 && w[i].call != NULL; i++)
        if (writable(a->g, &w[i]) && (!opened || begins_with(&w[i], a->rules->opened_marker, a->rules->opened_bytes)))
            parts[n++] = block(a, &w[i], opened ? a->rules->opened_bytes : 0);
    if (n == 0)
        rn_answer_fail(a, RUNNEL_UNSUPPORTED, "the model's chat template shows no way to call tools");
    return rn_grammar_alternatives(a->g, parts, n);
}
