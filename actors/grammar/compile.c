/* From what a request asks for to an automaton: see compile.h. */
#include "actors/grammar/compile.h"

#include <string.h>

#include "sampling/grammar/answer_rules.h"
#include "sampling/grammar/front.h"

static bool is_json(const struct rn_grammar_text *text)
{
    return text->kind == RUNNEL_GRAMMAR_JSON || text->kind == RUNNEL_GRAMMAR_JSON_OBJECT ||
           text->kind == RUNNEL_GRAMMAR_JSON_SCHEMA;
}

/* What the content may be; NONE: anything. */
static rn_expr content_of(struct rn_grammar *grammar, const struct rn_grammar_text *text)
{
    struct rn_schema_options options = {.free_white = text->free_white,
                                        .any_order = text->any_order,
                                        .closed = text->closed,
                                        .one_of_as_any_of = text->one_of_as_any_of,
                                        .allow_unenforced = text->allow_unenforced};

    if (text->format != NULL)
        rn_grammar_answer_escapes(text->format, text->tools != NULL, &options);
    switch (text->kind) {
    case RUNNEL_GRAMMAR_GBNF:
        return rn_grammar_call(grammar, rn_front_rule(grammar, RN_FRONT_GBNF, text->text, text->text_bytes));
    case RUNNEL_GRAMMAR_REGEX:
        return rn_grammar_call(grammar, rn_front_rule(grammar, RN_FRONT_REGEX, text->text, text->text_bytes));
    case RUNNEL_GRAMMAR_EBNF:
        return rn_grammar_call(grammar, rn_front_rule(grammar, RN_FRONT_EBNF, text->text, text->text_bytes));
    case RUNNEL_GRAMMAR_CHOICES:
        return rn_grammar_call(grammar, rn_front_rule(grammar, RN_FRONT_CHOICES, text->text, text->text_bytes));
    case RUNNEL_GRAMMAR_JSON:
    case RUNNEL_GRAMMAR_JSON_OBJECT:
        return rn_grammar_any_json(grammar, text->kind == RUNNEL_GRAMMAR_JSON_OBJECT, &options);
    case RUNNEL_GRAMMAR_JSON_SCHEMA:
        return rn_grammar_schema(grammar, text->text, text->text_bytes, &options);
    case RUNNEL_GRAMMAR_NONE:
        break;
    }
    return RN_GRAMMAR_NONE;
}

/* Content, and what else an answer of the chat's format has. */
static rn_expr answer_of(struct rn_grammar *grammar, const struct rn_grammar_text *text)
{
    const struct rn_answer_rules rules = {
        .format = text->format,
        .opened = text->opened.kind,
        .opened_marker = text->opened.marker,
        .opened_bytes = text->opened.marker_bytes,
        .tools = text->tools,
        .tools_bytes = text->tools != NULL ? strlen(text->tools) : 0,
        .choice = text->tool_choice,
        .single_call = text->single_call,
        .reasoning = text->free_reasoning,
        .json = is_json(text),
        .schema = {.one_of_as_any_of = text->one_of_as_any_of, .allow_unenforced = text->allow_unenforced}};
    rn_expr content = content_of(grammar, text);

    if (text->format == NULL || rn_grammar_failed(grammar))
        return content;
    return rn_grammar_answer(grammar, &rules, content);
}

static runnel_status read_grammar(struct rn_grammar *grammar, const struct rn_grammar_text *text, runnel_error *error)
{
    rn_expr answer = answer_of(grammar, text);
    uint32_t root;

    if (rn_grammar_failed(grammar))
        return rn_grammar_finish(grammar, 0, error);
    root = rn_grammar_rule(grammar, NULL, 0);
    if (!rn_grammar_failed(grammar))
        rn_grammar_define(grammar, root, answer);
    return rn_grammar_finish(grammar, root, error);
}

runnel_status rn_grammar_compile(struct rn_heap *heap, const struct rn_vocab *vocab, const struct rn_grammar_text *text,
                                 const struct rn_interrupt *stop, struct rn_automaton **out, runnel_error *error)
{
    struct rn_grammar *grammar = rn_grammar_new(heap, NULL, vocab);
    runnel_status status;

    *out = NULL;
    if (grammar == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a grammar");
    grammar->stop = stop;
    status = read_grammar(grammar, text, error);
    if (status == RUNNEL_OK)
        status = rn_automaton_new(heap, grammar, out, error);
    rn_grammar_free(grammar);
    return status == RUNNEL_OK ? RUNNEL_OK : rn_error_set(error, status, "no memory for a grammar"); /* unless set */
}
