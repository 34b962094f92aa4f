/* Answers of chats as rules: see answer_rules.h.
 *
 *     answer      reasoning? body
 *     body        content            with "none"
 *                 content calls?     with "auto", where content is free
 *                 content | calls    with "auto", where it has a grammar
 *                 calls              else
 *
 * Free text is all texts in which none of some marks occurs: those that a reader would take for the beginning of a call
 * or of reasoning. Where a format's marks are everyday text, a reader takes them for a call only if a tool's name
 * follows; so does this. Calls without any mark (bare JSON) are told by their first byte. */
#include "sampling/grammar/answer_rules.h"

#include <string.h>

#include "sampling/grammar/answer_parts.h"

#define MARKS_MOST 16u

static rn_expr pair(struct rn_grammar *g, rn_expr a, rn_expr b)
{
    return rn_grammar_sequence(g, (rn_expr[]){a, b}, 2);
}

static rn_expr either(struct rn_grammar *g, rn_expr a, rn_expr b)
{
    return rn_grammar_alternatives(g, (rn_expr[]){a, b}, 2);
}

static rn_expr mark(struct rn_grammar *g, const char *text)
{
    return rn_call_literal(g, text, strlen(text));
}

static rn_expr any_text(struct rn_grammar *g)
{
    static const struct rn_code_points all[] = {{0, 0x10ffff}};

    return rn_grammar_repeat(g, rn_grammar_set(g, all, 1, false), 0, RN_GRAMMAR_FOREVER);
}

/* The texts of `from` (RN_GRAMMAR_NONE: all) in which none of marks[n] occurs. */
static rn_expr text_without(struct rn_grammar *g, rn_expr from, const rn_expr *marks, size_t n)
{
    rn_expr any = any_text(g);

    if (from == RN_GRAMMAR_NONE)
        from = any;
    if (n == 0)
        return from;
    return rn_grammar_without(g, from,
                              rn_grammar_sequence(g, (rn_expr[]){any, rn_grammar_alternatives(g, marks, n), any}, 3));
}

/* ---- Tools ---- */

static bool add_tool(struct rn_answer_maker *a, struct rn_value tool)
{
    struct rn_value function = rn_dict_at(tool, "function"), name;

    if (function.kind != RN_VALUE_DICT)
        function = tool;
    name = rn_dict_at(function, "name");
    if (name.kind != RN_VALUE_STRING) {
        rn_answer_fail(a, RUNNEL_INVALID, "tool %zu has no name", a->n_tools);
        return false;
    }
    if (a->n_tools == RN_CALL_TOOLS_MOST) {
        rn_answer_fail(a, RUNNEL_INVALID, "more than %u tools", RN_CALL_TOOLS_MOST);
        return false;
    }
    for (size_t i = 0; i < a->n_tools; i++)
        if (a->tools[i].name->n == name.string->n &&
            memcmp(a->tools[i].name->bytes, name.string->bytes, name.string->n) == 0) {
            rn_answer_fail(a, RUNNEL_INVALID, "two tools are named \"%s\"",
                           rn_grammar_quote(name.string->bytes, name.string->n).text);
            return false;
        }
    a->tools[a->n_tools] = (struct rn_answer_tool){.function = function, .name = name.string};
    memset(a->tools[a->n_tools++].rules, 0xff, sizeof a->tools[0].rules);
    return true;
}

/* The tool that is named comes first, and is the only one that may be called. */
static bool choose(struct rn_answer_maker *a, const char *choice)
{
    struct rn_answer_tool first = a->tools[0];
    size_t n = strlen(choice), i;

    for (i = 0; i < a->n_tools; i++)
        if (a->tools[i].name->n == n && memcmp(a->tools[i].name->bytes, choice, n) == 0)
            break;
    if (i == a->n_tools) {
        rn_answer_fail(a, RUNNEL_INVALID, "the tool choice \"%s\" names none of the tools",
                       rn_grammar_quote(choice, n).text);
        return false;
    }
    a->tools[0] = a->tools[i];
    a->tools[i] = first;
    a->n_chosen = 1;
    return true;
}

static bool is(const struct rn_answer_maker *a, const char *choice)
{
    return strcmp(a->rules->choice == NULL ? "auto" : a->rules->choice, choice) == 0;
}

static bool read_tools(struct rn_answer_maker *a)
{
    const struct rn_answer_rules *rules = a->rules;

    if (rules->tools_bytes > a->g->limits.source_bytes) {
        rn_answer_fail(a, RUNNEL_INVALID, "tools of %zu bytes; at most %zu", rules->tools_bytes,
                       a->g->limits.source_bytes);
        return false;
    }
    if (rules->tools != NULL &&
        rn_answer_tools_read(&a->read, a->g->heap, rules->tools, rules->tools_bytes, NULL) == RUNNEL_NO_MEMORY) {
        rn_answer_fail(a, RUNNEL_NO_MEMORY, "no memory for tools");
        return false;
    }
    for (size_t i = 0; rn_answer_tools_any(&a->read) && i < a->read.list.list->n; i++)
        if (!add_tool(a, a->read.list.list->items[i]))
            return false;
    a->n_chosen = a->n_tools;
    if (is(a, "auto") || is(a, "none"))
        return true;
    if (a->n_tools == 0) {
        rn_answer_fail(a, RUNNEL_INVALID, "the tool choice asks for a call, and there are no tools");
        return false;
    }
    return is(a, "required") || choose(a, rules->choice);
}

/* ---- Free text ---- */

/* The names of all tools, one of them. */
static rn_expr names(const struct rn_answer_maker *a)
{
    rn_expr parts[RN_CALL_TOOLS_MOST];

    for (size_t i = 0; i < a->n_tools; i++)
        parts[i] = rn_grammar_bytes(a->g, a->tools[i].name->bytes, a->tools[i].name->n);
    return rn_grammar_alternatives(a->g, parts, a->n_tools);
}

/* What a reader takes for the beginning of a call: the pattern's literal text; where that is everyday text, as much as
 * there is before the call itself. All in bytes: control tokens are no text. */
static rn_expr call_mark(const struct rn_answer_maker *a, const char *pattern)
{
    static const struct rn_code_points white[] = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}},
                                       opens[] = {{'[', '['}, {'{', '{'}};
    bool known = (a->rows.calls->flags & RN_CALL_KNOWN) != 0;
    rn_expr space = rn_grammar_repeat(a->g, rn_grammar_set(a->g, white, 3, false), 0, RN_GRAMMAR_FOREVER), part;
    size_t n = rn_pattern_head(pattern);
    rn_expr e = rn_grammar_bytes(a->g, pattern, n);

    for (pattern += n; known && *pattern != '\0'; pattern += n > 0 ? n : 1) {
        n = rn_pattern_head(pattern);
        if (n > 0)
            part = rn_grammar_bytes(a->g, pattern, n);
        else if (*pattern == RN_F_SPACE[0])
            part = space;
        else if (*pattern == RN_F_NAME[0])
            part = names(a);
        else if (*pattern == RN_F_CALL[0])
            part = pair(a->g, space, rn_grammar_set(a->g, opens, 2, false));
        else
            break;
        e = pair(a->g, e, part);
    }
    return e;
}

/* Texts that begin as a call without a mark does, and may yet be none: none of the tools is named in them. */
static rn_expr bare_text(const struct rn_answer_maker *a, rn_expr text)
{
    static const struct rn_code_points white[] = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}},
                                       opens[] = {{'[', '['}, {'{', '{'}};
    struct rn_grammar *g = a->g;
    rn_expr space = rn_grammar_repeat(g, rn_grammar_set(g, white, 3, false), 0, RN_GRAMMAR_FOREVER);
    rn_expr begins = rn_grammar_sequence(g, (rn_expr[]){space, rn_grammar_set(g, opens, 2, false), any_text(g)}, 3);
    rn_expr named = either(g, names(a), rn_call_text(g, "\\u"));

    return rn_grammar_without(
        g, text, rn_grammar_both(g, begins, rn_grammar_sequence(g, (rn_expr[]){any_text(g), named, any_text(g)}, 3)));
}

/* The marks that open calls; *bare: some have none. Returns how many. */
static size_t call_marks(const struct rn_answer_maker *a, rn_expr *marks, bool *bare)
{
    const struct rn_call_row *calls = a->rows.calls;
    size_t n = 0;

    *bare = false;
    for (size_t i = 0; i < 4 && calls->open[i] != NULL && a->n_tools > 0; i++) {
        if (rn_pattern_head(calls->open[i]) == 0)
            *bare = true;
        else
            marks[n++] = call_mark(a, calls->open[i]);
    }
    return n;
}

/* Content that is free: no mark of a call or of reasoning is in it. */
static rn_expr free_text(const struct rn_answer_maker *a)
{
    rn_expr marks[MARKS_MOST], text;
    bool bare;
    size_t n = call_marks(a, marks, &bare), i;

    for (i = 0; i < 2 && a->rows.reasoning->open[i] != NULL; i++)
        marks[n++] = rn_call_text(a->g, a->rows.reasoning->open[i]);
    text = text_without(a->g, RN_GRAMMAR_NONE, marks, n);
    return bare ? bare_text(a, text) : text;
}

/* Content with a grammar of its own. JSON has none of the marks but what begins as JSON itself: a whole object or list
 * that names a tool is a call there. */
static rn_expr content_text(const struct rn_answer_maker *a, rn_expr content)
{
    rn_expr marks[MARKS_MOST];
    bool bare;
    size_t n = a->rules->json ? 0 : call_marks(a, marks, &bare);

    return text_without(a->g, content, marks, n);
}

void rn_grammar_answer_escapes(const struct rn_answer_format *format, bool tools, struct rn_schema_options *options)
{
    const struct rn_call_row *calls = rn_answer_format_rows(format).calls;

    if (!tools)
        return;
    options->escape_angle |= calls->headers != RN_HEADERS_NONE;
    for (size_t i = 0; i < 4 && calls->open[i] != NULL; i++) {
        bool mark = rn_pattern_head(calls->open[i]) > 1; /* a list of calls without a mark begins as JSON does */

        options->escape_angle |= mark && calls->open[i][0] == '<';
        options->escape_bracket |= mark && calls->open[i][0] == '[';
    }
}

/* ---- Content and reasoning ---- */

/* Up to two of the marks that some models write around content. */
static rn_expr wrappers(const struct rn_answer_maker *a)
{
    const char *const *texts = a->rows.reasoning->wrappers;
    rn_expr marks[4];
    size_t n = 0, i;

    for (i = 0; i < 4 && texts[i] != NULL; i++)
        if (!rn_call_ends(a->g, texts[i], strlen(texts[i])))
            marks[n++] = mark(a->g, texts[i]);
    if (n == 0)
        return rn_grammar_empty(a->g);
    return rn_grammar_repeat(a->g, rn_grammar_alternatives(a->g, marks, n), 0, 2);
}

static rn_expr around(const struct rn_answer_maker *a, rn_expr content)
{
    rn_expr some = wrappers(a);

    return rn_grammar_sequence(a->g, (rn_expr[]){some, content, some}, 3);
}

/* Free text up to what closes reasoning, and that. What else ends it for a reader is not in it. */
static rn_expr thoughts(const struct rn_answer_maker *a)
{
    const struct rn_reasoning_row *row = a->rows.reasoning;
    rn_expr marks[MARKS_MOST];
    bool bare;
    size_t n = (a->rows.calls->flags & RN_CALL_THINKING) != 0 ? call_marks(a, marks, &bare) : 0;

    marks[n++] = rn_call_text(a->g, row->close);
    if (row->response_ends)
        marks[n++] = rn_call_text(a->g, row->wrappers[0]);
    return pair(a->g, text_without(a->g, RN_GRAMMAR_NONE, marks, n), mark(a->g, row->close));
}

/* What may come before the body; RN_GRAMMAR_NONE: nothing. *always: it does come. */
static rn_expr reasoning(const struct rn_answer_maker *a, bool *always)
{
    const struct rn_reasoning_row *row = a->rows.reasoning;
    struct rn_grammar *g = a->g;
    rn_expr e;

    *always = a->rules->opened == RN_OPENED_REASONING;
    if (row->close == NULL || rn_call_ends(g, row->close, strlen(row->close)))
        return RN_GRAMMAR_NONE;
    if (*always)
        return a->rules->reasoning ? thoughts(a) : pair(g, rn_call_pattern(g, RN_F_SPACE), mark(g, row->close));
    if (a->rules->opened != RN_OPENED_NOTHING || !a->rules->reasoning)
        return RN_GRAMMAR_NONE;
    e = mark(g, row->close); /* templates of models that need not think write it alone */
    for (int i = 0; i < 2 && row->open[i] != NULL; i++)
        e = either(g, e, pair(g, mark(g, row->open[i]), thoughts(a)));
    return pair(g, rn_call_pattern(g, RN_F_SPACE), e); /* some templates begin answers with a newline */
}

/* ---- The answer ---- */

/* Calls without content before them. */
static rn_expr calls_alone(const struct rn_answer_maker *a, rn_expr calls)
{
    return rn_grammar_sequence(a->g, (rn_expr[]){wrappers(a), rn_call_pattern(a->g, RN_F_SPACE), calls}, 3);
}

/* Content with its own grammar begins at once, or behind the newlines that follow reasoning. */
static rn_expr behind_reasoning(const struct rn_answer_maker *a, rn_expr body, rn_expr apart)
{
    rn_expr lines = rn_grammar_repeat(a->g, rn_call_text(a->g, "\n"), 0, 4), before;
    bool always;

    before = reasoning(a, &always);
    if (before == RN_GRAMMAR_NONE)
        return apart == RN_GRAMMAR_NONE ? body : either(a->g, body, apart);
    before = pair(a->g, before, apart == RN_GRAMMAR_NONE ? body : either(a->g, body, pair(a->g, lines, apart)));
    if (always)
        return before;
    return either(a->g, before, apart == RN_GRAMMAR_NONE ? body : either(a->g, body, apart));
}

/* ">>>all\n": content follows; the prompt may have written the angles. */
static rn_expr as_message(const struct rn_answer_maker *a, rn_expr content, bool opened)
{
    if ((a->rows.calls->flags & RN_CALL_MESSAGES) == 0)
        return content;
    if (opened)
        return pair(a->g, rn_call_text(a->g, "all\n"), content);
    return pair(a->g, rn_call_optional(a->g, rn_call_text(a->g, ">>>all\n")), content);
}

static rn_expr plain_answer(struct rn_answer_maker *a, rn_expr content)
{
    bool opened = a->rules->opened == RN_OPENED_CALL, messages = (a->rows.calls->flags & RN_CALL_MESSAGES) != 0;
    bool is_free = content == RN_GRAMMAR_NONE, writes = a->rows.calls->written[0].call != NULL && a->n_chosen > 0;
    bool may_talk = is(a, "auto") || is(a, "none"), may_call = !is(a, "none") && (writes || !may_talk);
    rn_expr calls, nothing = rn_grammar_alternatives(a->g, NULL, 0);

    content = as_message(a, around(a, is_free ? free_text(a) : content_text(a, content)), opened);
    if (opened && !messages)
        return rn_call_blocks(a, true);
    if (!may_call)
        return is_free || opened ? behind_reasoning(a, content, RN_GRAMMAR_NONE)
                                 : behind_reasoning(a, nothing, content);
    calls = rn_call_blocks(a, opened);
    if (!may_talk)
        return opened ? calls : behind_reasoning(a, calls_alone(a, calls), RN_GRAMMAR_NONE);
    if (opened)
        return either(a->g, calls,
                      is_free ? pair(a->g, content, rn_call_optional(a->g, rn_call_blocks(a, false))) : content);
    if (is_free)
        return behind_reasoning(a, pair(a->g, content, rn_call_optional(a->g, calls)), RN_GRAMMAR_NONE);
    return behind_reasoning(a, calls_alone(a, calls), content);
}

/* ---- Answers that are a row of messages ---- */

/* Text of a message, or what there is of `from`: no marks are in it. */
static rn_expr message_text(const struct rn_answer_maker *a, rn_expr from)
{
    const char *const *ends = a->rows.turn->ends;
    rn_expr marks[MARKS_MOST];
    bool bare;
    size_t n = call_marks(a, marks, &bare);

    marks[n++] = rn_call_text(a->g, "<|start|>");
    if (a->rows.calls->headers == RN_HEADERS_CHANNELS)
        marks[n++] = rn_call_text(a->g, "<|channel|>");
    for (int i = 0; i < 3 && ends[i] != NULL; i++)
        marks[n++] = rn_call_text(a->g, ends[i]);
    return text_without(a->g, from, marks, n);
}

/* What ends a message that another follows; RN_GRAMMAR_NONE: here it ends the answer. */
static rn_expr another_follows(const struct rn_answer_maker *a)
{
    const char *end = a->rows.turn->ends[0];

    if (rn_call_ends(a->g, end, strlen(end)))
        return RN_GRAMMAR_NONE;
    return pair(a->g, mark(a->g, end), mark(a->g, "<|start|>assistant"));
}

/* The head of a message of this channel, or to this recipient. */
static rn_expr head(const struct rn_answer_maker *a, const char *what)
{
    bool channels = a->rows.calls->headers == RN_HEADERS_CHANNELS;
    rn_expr before = channels ? mark(a->g, "<|channel|>") : rn_call_text(a->g, " to=");

    return rn_grammar_sequence(a->g, (rn_expr[]){before, rn_call_text(a->g, what), mark(a->g, "<|message|>")}, 3);
}

/* The name of the tool stands before the channel or behind it. */
static rn_expr channel_call(struct rn_answer_maker *a, struct rn_answer_tool *tool)
{
    struct rn_grammar *g = a->g;
    rn_expr to = pair(g, rn_call_text(g, " to=functions."), rn_grammar_bytes(g, tool->name->bytes, tool->name->n));
    rn_expr channel = pair(g, mark(g, "<|channel|>"), rn_call_text(g, "commentary"));
    rn_expr kind = pair(g, rn_call_text(g, " "), pair(g, mark(g, "<|constrain|>"), rn_call_text(g, "json")));
    rn_expr begin = either(g, pair(g, to, channel), pair(g, channel, to));

    kind = rn_call_optional(g, either(g, rn_call_text(g, " json"), kind));
    return rn_grammar_sequence(
        g, (rn_expr[]){begin, kind, mark(g, "<|message|>"), rn_call_arguments(a, tool, RN_ARGUMENTS_JSON)}, 4);
}

static rn_expr channel_calls(struct rn_answer_maker *a)
{
    rn_expr parts[RN_CALL_TOOLS_MOST];

    for (size_t i = 0; i < a->n_chosen; i++) {
        const struct rn_str *name = a->tools[i].name;

        for (size_t k = 0; k < name->n; k++)
            if (!rn_answer_name_byte(name->bytes[k]) || name->n > 200)
                rn_answer_fail(a, RUNNEL_UNSUPPORTED, "the name of the tool \"%s\" cannot be written in the format",
                               rn_grammar_quote(name->bytes, name->n).text);
        parts[i] = channel_call(a, &a->tools[i]);
    }
    return rn_grammar_alternatives(a->g, parts, a->n_chosen);
}

/* The message that content is in. */
static rn_expr final_message(const struct rn_answer_maker *a, rn_expr content)
{
    struct rn_grammar *g = a->g;
    rn_expr kind = pair(g, rn_call_text(g, " "), pair(g, mark(g, "<|constrain|>"), rn_call_text(g, "json")));

    if (a->rows.calls->headers == RN_HEADERS_RECIPIENTS)
        return pair(g, head(a, "user"), content);
    return rn_grammar_sequence(g,
                               (rn_expr[]){mark(g, "<|channel|>"), rn_call_text(g, "final"), rn_call_optional(g, kind),
                                           mark(g, "<|message|>"), content},
                               5);
}

static rn_expr messages_answer(struct rn_answer_maker *a, rn_expr content)
{
    struct rn_grammar *g = a->g;
    bool channels = a->rows.calls->headers == RN_HEADERS_CHANNELS, both = is(a, "auto") && a->n_chosen > 0;
    rn_expr body, calls, next = another_follows(a), said;

    if (content == RN_GRAMMAR_NONE || (a->n_tools > 0 && !a->rules->json))
        content = message_text(a, content);
    if (a->rules->opened == RN_OPENED_CONTENT)
        return content;
    if (is(a, "none") || (is(a, "auto") && !both)) {
        body = final_message(a, content);
    } else {
        body = calls = channels ? channel_calls(a) : rn_call_blocks(a, false);
        if (both && next != RN_GRAMMAR_NONE) { /* what is said before a call */
            said = rn_grammar_sequence(
                g, (rn_expr[]){head(a, channels ? "commentary" : "user"), message_text(a, RN_GRAMMAR_NONE), next}, 3);
            calls = pair(g, rn_call_optional(g, said), calls);
        }
        if (both)
            body = either(g, final_message(a, content), calls);
    }
    if (next == RN_GRAMMAR_NONE || !a->rules->reasoning)
        return body;
    said = rn_grammar_sequence(
        g, (rn_expr[]){head(a, channels ? "analysis" : "self"), message_text(a, RN_GRAMMAR_NONE), next}, 3);
    return pair(g, rn_grammar_repeat(g, said, 0, RN_GRAMMAR_FOREVER), body);
}

rn_expr rn_grammar_answer(struct rn_grammar *g, const struct rn_answer_rules *rules, rn_expr content)
{
    struct rn_answer_maker *a;
    rn_expr e = RN_GRAMMAR_NONE;

    if (rn_grammar_failed(g))
        return RN_GRAMMAR_NONE;
    a = rn_calloc(g->heap, 1, sizeof *a);
    if (a == NULL) {
        rn_grammar_fail(g, RUNNEL_NO_MEMORY, "no memory for an answer's grammar");
        return RN_GRAMMAR_NONE;
    }
    a->g = g;
    a->rules = rules;
    a->steps = RN_SCHEMA_STEPS;
    a->rows = rn_answer_format_rows(rules->format);
    if (read_tools(a))
        e = a->rows.calls->headers != RN_HEADERS_NONE ? messages_answer(a, content) : plain_answer(a, content);
    rn_answer_tools_fini(&a->read);
    rn_free(g->heap, a);
    return rn_grammar_failed(g) ? RN_GRAMMAR_NONE : e;
}
