/* Arguments of calls in other forms than JSON: see schema.h for which, parts.h for how.
 *
 *     PARAMS   <parameter=city>\nParis\n</parameter>     a string is its bare text, up to what closes it
 *     PYTHON   city="Paris"
 *     MARKED   city:<|"|>Paris<|"|>
 *
 * A parameter that is marked carries no type. Whoever reads the answer tells it by the schema's types, and where these
 * leave a choice, by its looks (text/answer/params.c). So a string that may be something else as well is written
 * only where it does not look like a number, a word of JSON or Python, a list or an object. */
#include <string.h>

#include "sampling/grammar/schema/parts.h"
#include "text/answer/tools.h"

#define CDATA "<![CDATA["
#define CDATA_END "]]>"
#define MARKED_BREAKS "{}[](),:\"'" /* bytes that end a bare name */

static rn_expr any_text(struct rn_grammar *g)
{
    static const struct rn_code_points all[] = {{0, 0x10ffff}};

    return rn_grammar_repeat(g, rn_grammar_set(g, all, 1, false), 0, RN_GRAMMAR_FOREVER);
}

rn_expr rn_schema_lacking(struct rn_grammar *g, rn_expr from, rn_expr what)
{
    rn_expr any = any_text(g);

    return rn_grammar_without(g, from == RN_GRAMMAR_NONE ? any : from,
                              rn_grammar_sequence(g, (rn_expr[]){any, what, any}, 3));
}

rn_expr rn_schema_form_pattern(struct rn_schema_maker *m, const char *text)
{
    return m->form->pattern(m->form->user, m->g, text);
}

static rn_expr name_text(struct rn_schema_maker *m, const struct rn_str *name)
{
    return rn_grammar_bytes(m->g, name->bytes, name->n);
}

/* ---- Names ---- */

static bool is_identifier(const struct rn_str *name)
{
    for (size_t i = 0; i < name->n; i++) {
        char c = name->bytes[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
              (unsigned char)c >= 0x80))
            return false;
    }
    return name->n > 0 && name->n <= 255 && !(name->bytes[0] >= '0' && name->bytes[0] <= '9');
}

/* May it stand between what opens a parameter and what follows its name? */
static bool is_parameter(const struct rn_param_syntax *params, const struct rn_str *name)
{
    char end = params->openers[0].pattern[0];

    for (size_t i = 0; i < name->n; i++)
        if ((unsigned char)name->bytes[i] < ' ' || name->bytes[i] == '<' || name->bytes[i] == end)
            return false;
    return name->n > 0 && name->n <= 255;
}

static bool is_bare(const char *mark, const struct rn_str *name)
{
    for (size_t i = 0; i < name->n; i++) {
        unsigned char c = (unsigned char)name->bytes[i];

        if (c <= ' ' || c == 0x7f || strchr(MARKED_BREAKS, c) != NULL)
            return false;
    }
    return name->n > 0 && name->bytes[0] != mark[0];
}

rn_expr rn_schema_key(struct rn_schema_maker *m, const struct rn_str *name)
{
    if (m->mark != RN_GRAMMAR_NONE && is_bare(m->form->mark, name))
        return name_text(m, name);
    return rn_schema_spelled(m, name->bytes, name->n, true);
}

/* ---- Values of parameters ---- */

struct value {
    rn_expr text;   /* strings, bare */
    rn_expr others; /* all else, as JSON */
};

/* Only those of the listed values that are no strings. */
static const struct rn_list *without_strings(struct rn_schema_maker *m, const struct rn_list *values)
{
    struct rn_list *kept = rn_list_new(m->arena, values->n);

    for (size_t i = 0; i < values->n; i++)
        if (values->items[i].kind != RN_VALUE_STRING)
            rn_list_push(m->arena, kept, values->items[i]);
    return kept;
}

static rn_expr or_else(struct rn_schema_maker *m, rn_expr e, rn_expr other)
{
    return e == RN_GRAMMAR_NONE ? other : rn_grammar_alternatives(m->g, (rn_expr[]){e, other}, 2);
}

/* The goal's strings as they are, without quotes; RN_GRAMMAR_NONE: there are none. */
static rn_expr bare_strings(struct rn_schema_maker *m, struct rn_literals literals)
{
    struct rn_case_list *at;
    rn_expr e = RN_GRAMMAR_NONE;

    m->raw = true;
    for (at = rn_schema_solve(m, literals); at != NULL; at = at->next)
        if ((at->the.kinds & RN_KIND_STRING) != 0)
            e = or_else(m, e, rn_schema_content(m, &at->the, literals));
    m->raw = false;
    rn_schema_look(m);
    return e;
}

/* The goal's values: strings apart from all else; RN_GRAMMAR_NONE: there are none. */
static struct value split(struct rn_schema_maker *m, const struct rn_literal_list *goal)
{
    struct rn_literals literals = rn_literals_of(m, goal);
    struct value v = {bare_strings(m, literals), RN_GRAMMAR_NONE};
    struct rn_case_list *at;

    for (at = rn_schema_solve(m, literals); at != NULL; at = at->next) {
        struct rn_case the = at->the;

        the.kinds &= ~(uint32_t)RN_KIND_STRING;
        if (the.has_values)
            the.values = without_strings(m, the.values);
        m->python = m->form->params->python;
        if (the.has_values ? the.values->n > 0 : the.kinds != 0)
            v.others = or_else(m, v.others, rn_schema_case(m, literals, &the));
        m->python = false;
        rn_schema_look(m);
    }
    return v;
}

/* Texts that a reader takes for a value of JSON or Python that is no string. types: those that it allows, 0: all. */
static rn_expr looks_like_value(struct rn_grammar *g, uint32_t types)
{
    static const struct {
        const char *text;
        uint32_t type;
    } words[] = {{"true", RN_SCHEMA_BOOLEAN}, {"false", RN_SCHEMA_BOOLEAN}, {"null", RN_SCHEMA_NULL},
                 {"True", RN_SCHEMA_BOOLEAN}, {"False", RN_SCHEMA_BOOLEAN}, {"None", RN_SCHEMA_NULL}};
    static const struct rn_code_points white[] = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}}, digit[] = {{'0', '9'}};
    static const struct rn_code_points number[] = {{'0', '9'}, {'.', '.'}, {'e', 'e'},
                                                   {'E', 'E'}, {'+', '+'}, {'-', '-'}};
    static const struct rn_code_points brace[] = {{'{', '{'}}, bracket[] = {{'[', '['}, {'(', '('}};
    rn_expr space = rn_grammar_repeat(g, rn_grammar_set(g, white, 3, false), 0, RN_GRAMMAR_FOREVER), parts[9];
    size_t n = 0;

    types = types == 0 ? ~0u : types;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if ((types & words[i].type) != 0)
            parts[n++] = rn_grammar_bytes(g, words[i].text, strlen(words[i].text));
    if ((types & RN_SCHEMA_NUMBER) != 0)
        parts[n++] = rn_grammar_sequence(
            g,
            (rn_expr[]){rn_grammar_repeat(g, rn_grammar_bytes(g, "-", 1), 0, 1), rn_grammar_set(g, digit, 1, false),
                        rn_grammar_repeat(g, rn_grammar_set(g, number, 6, false), 0, RN_GRAMMAR_FOREVER)},
            3);
    if ((types & RN_SCHEMA_OBJECT) != 0)
        parts[n++] = rn_grammar_sequence(g, (rn_expr[]){rn_grammar_set(g, brace, 1, false), any_text(g)}, 2);
    if ((types & RN_SCHEMA_ARRAY) != 0)
        parts[n++] = rn_grammar_sequence(g, (rn_expr[]){rn_grammar_set(g, bracket, 2, false), any_text(g)}, 2);
    return rn_grammar_sequence(g, (rn_expr[]){space, rn_grammar_alternatives(g, parts, n), space}, 3);
}

/* Bare text between its marks: what closes it is not in it, nor what a reader takes for another value of the types. */
static rn_expr bare_text(struct rn_schema_maker *m, rn_expr text, uint32_t types)
{
    const struct rn_param_syntax *params = m->form->params;
    rn_expr close = rn_schema_literal_text(m, params->item != NULL ? params->open : params->close),
            end = rn_schema_literal_text(m, CDATA_END), bare, whole;

    if (params->cdata)
        close = or_else(m, close, rn_schema_literal_text(m, CDATA));
    bare = rn_schema_lacking(m->g, text, close);
    if (types != RN_SCHEMA_STRING)
        bare = rn_grammar_without(m->g, bare, looks_like_value(m->g, types));
    if (!params->cdata)
        return bare;
    whole = rn_schema_lacking(m->g, text, end); /* never anything but text */
    return or_else(m, bare, rn_grammar_sequence(m->g, (rn_expr[]){rn_schema_literal_text(m, CDATA), whole, end}, 3));
}

static rn_expr opened_by(struct rn_schema_maker *m, int opener, rn_expr value)
{
    const struct rn_param_syntax *params = m->form->params;
    rn_expr line = params->lines ? rn_schema_literal_text(m, "\n") : rn_grammar_empty(m->g);

    return rn_grammar_sequence(
        m->g, (rn_expr[]){rn_schema_form_pattern(m, params->openers[opener].pattern), line, value, line}, 4);
}

/* The opener with this rule; -1: there is none. */
static int find_opener(const struct rn_param_syntax *params, enum rn_value_rule rule)
{
    for (int i = 0; i < 3 && params->openers[i].pattern != NULL; i++)
        if (params->openers[i].rule == rule)
            return i;
    return -1;
}

rn_expr rn_schema_parameter(struct rn_schema_maker *m, const struct rn_literal_list *goal, uint32_t types)
{
    const struct rn_param_syntax *params = m->form->params;
    int text = find_opener(params, RN_VALUE_TEXT), json = find_opener(params, RN_VALUE_JSON);
    struct value v = split(m, goal);
    rn_expr e = RN_GRAMMAR_NONE;

    if (text < 0 || json < 0)
        text = json = find_opener(params, RN_VALUE_BY_SCHEMA);
    if (v.text != RN_GRAMMAR_NONE && (text != json || types == 0 || (types & RN_SCHEMA_STRING) != 0))
        e = opened_by(m, text, bare_text(m, v.text, text == json ? types : RN_SCHEMA_STRING));
    if (v.others != RN_GRAMMAR_NONE && (text != json || types != RN_SCHEMA_STRING))
        e = or_else(m, e, opened_by(m, json, v.others));
    return e;
}

/* The types of a parameter as a reader sees them. */
static uint32_t seen_types(struct rn_schema_maker *m, const struct rn_str *name)
{
    uint64_t steps = 0;
    uint32_t types = m->form->types(m->form->user, name->bytes, name->n, &steps);

    rn_step(m->arena, RN_SCHEMA_SEEN_STEPS * steps);
    return types;
}

static rn_expr parameter(struct rn_schema_maker *m, const struct rn_str *name, const struct rn_literal_list *goal)
{
    const struct rn_param_syntax *params = m->form->params;
    bool tags = params->item != NULL;
    struct rn_value seen;
    uint32_t types = tags ? rn_schema_seen_member(m, name, &seen) : seen_types(m, name);
    rn_expr e = tags ? rn_schema_tags(m, goal, seen) : RN_GRAMMAR_NONE;

    if (e != RN_GRAMMAR_NONE)
        e = opened_by(m, 0, e);
    else
        e = rn_schema_parameter(m, goal, types);
    if (e == RN_GRAMMAR_NONE)
        return RN_GRAMMAR_NONE;
    e = rn_grammar_sequence(m->g,
                            (rn_expr[]){rn_schema_form_pattern(m, params->open), name_text(m, name), e,
                                        rn_schema_form_pattern(m, params->close)},
                            4);
    return tags ? rn_grammar_sequence(m->g, (rn_expr[]){e, name_text(m, name), rn_schema_literal_text(m, ">")}, 3) : e;
}

/* A value that is judged when it is whole ends at the first mark that closes it, even within a JSON string. */
static bool name_ambiguous(struct rn_schema_maker *m, struct rn_value name)
{
    uint32_t types = name.kind == RN_VALUE_STRING ? seen_types(m, name.string) : RN_SCHEMA_STRING;

    return types == 0 || ((types & RN_SCHEMA_STRING) != 0 && types != RN_SCHEMA_STRING);
}

static bool names_ambiguous(struct rn_schema_maker *m, const struct rn_schema *schema);

/* target NULL: the reference is not enforced. */
static bool target_ambiguous(struct rn_schema_maker *m, const struct rn_schema *target)
{
    return target != NULL && names_ambiguous(m, target);
}

/* Is one of the names that this schema, or another of the same value, lists or requires? */
static bool names_ambiguous(struct rn_schema_maker *m, const struct rn_schema *schema)
{
    static const char *const parts[] = {"allOf", "anyOf", "oneOf", "then", "else"};
    struct rn_value dict = rn_schema_dict(schema), value = rn_undefined();
    bool found = false;

    if (schema->dict == NULL)
        return false;
    rn_enter(m->arena);
    rn_step(m->arena, 1);
    value = rn_dict_at(dict, "properties");
    for (size_t i = 0; value.kind == RN_VALUE_DICT && i < value.dict->n && !found; i++)
        found = name_ambiguous(m, value.dict->entries[i].key);
    value = rn_dict_at(dict, "required");
    for (size_t i = 0; value.kind == RN_VALUE_LIST && i < value.list->n && !found; i++)
        found = name_ambiguous(m, value.list->items[i]);
    value = rn_dict_at(dict, "$ref");
    if (!found && value.kind != RN_VALUE_UNDEFINED)
        found = target_ambiguous(m, rn_schema_target(m, schema, "$ref", value));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && !found; i++) {
        value = rn_dict_at(dict, parts[i]);
        for (size_t k = 0; value.kind == RN_VALUE_LIST && k < value.list->n && !found; k++)
            found = names_ambiguous(m, rn_schema_of(m, value.list->items[k], schema, parts[i]));
        if (value.kind == RN_VALUE_DICT)
            found = names_ambiguous(m, rn_schema_of(m, value, schema, parts[i]));
    }
    rn_leave(m->arena);
    return found;
}

bool rn_schema_ambiguous(struct rn_schema_maker *m, const struct rn_schema *root)
{
    if (m->form->kind != RN_ARGUMENTS_PARAMS)
        return false;
    return m->form->params->item != NULL || names_ambiguous(m, root);
}

/* ---- Members ---- */

/* The goal's strings that need no escape between single quotes, in such; RN_GRAMMAR_NONE: there are none. */
static rn_expr single_quoted(struct rn_schema_maker *m, const struct rn_literal_list *goal)
{
    rn_expr text = bare_strings(m, rn_literals_of(m, goal)), quote = rn_schema_literal_text(m, "'");

    if (text == RN_GRAMMAR_NONE)
        return text;
    text = rn_schema_lacking(m->g, text, or_else(m, quote, rn_schema_literal_text(m, "\\")));
    return rn_grammar_sequence(m->g, (rn_expr[]){quote, text, quote}, 3);
}

rn_expr rn_schema_member(struct rn_schema_maker *m, const struct rn_str *name, const struct rn_literal_list *goal)
{
    const char *colon = m->form->kind == RN_ARGUMENTS_PYTHON ? "=" : ":";
    rn_expr key, value;

    if (m->form->kind == RN_ARGUMENTS_PARAMS)
        return is_parameter(m->form->params, name) ? parameter(m, name, goal) : RN_GRAMMAR_NONE;
    if (m->form->kind == RN_ARGUMENTS_PYTHON && !is_identifier(name))
        return RN_GRAMMAR_NONE;
    key = m->form->kind == RN_ARGUMENTS_PYTHON ? name_text(m, name) : rn_schema_key(m, name);
    value = rn_schema_goal(m, goal);
    if (m->form->kind == RN_ARGUMENTS_PYTHON)
        value = or_else(m, single_quoted(m, goal), value);
    return rn_grammar_sequence(m->g, (rn_expr[]){key, rn_schema_literal_text(m, colon), value}, 3);
}

rn_expr rn_schema_between(struct rn_schema_maker *m)
{
    if (m->form->kind == RN_ARGUMENTS_PARAMS)
        return rn_schema_form_pattern(m, RN_F_SPACE);
    if (m->form->kind == RN_ARGUMENTS_PYTHON)
        return rn_grammar_sequence(
            m->g, (rn_expr[]){rn_schema_literal_text(m, ","), rn_schema_optional(m, rn_schema_literal_text(m, " "))},
            2);
    return rn_schema_literal_text(m, ",");
}
