/* What a chat's answer may be when it has tools: reasoning, free or fitting text, calls.
 *
 *     <think> free text </think>   Let me look.   <tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>
 *     `------ reasoning ------'    `- content -'  `------------------------------- calls -------------------------------'
 *
 * The marks are those of the model's own format (text/answer/format.h). Content is free, or has a grammar of its own.
 * It goes on until a call begins; from there on a call is written as the model's template writes it, with the name of
 * one of the tools, and with arguments that the schema of that tool allows. So whatever is allowed here is read back as
 * calls with valid arguments (text/answer/answer.h). Behind the first call there are only more calls, or the end.
 *
 * A mark that is a control token of the vocabulary is that token; any other is its text, in whatever tokens. Free text
 * never spells a mark that opens a call or reasoning. Where there are tools, content with a grammar of its own spells
 * no mark of a call either: in JSON the character that it begins with is an escape; of other texts those with a mark
 * are taken away, which needs a grammar without rules that reach themselves.
 *
 * Arguments are closed: a tool has no parameters but those that its schema lists, unless the schema says so. White
 * space is free where the format has JSON, but not without end. All schemas together take at most RN_SCHEMA_STEPS. A
 * format that has no way to write a name (of a tool, of a required parameter) is refused by UNSUPPORTED. */
#ifndef RN_SAMPLING_GRAMMAR_ANSWER_RULES_H
#define RN_SAMPLING_GRAMMAR_ANSWER_RULES_H

#include "sampling/grammar/schema/schema.h"
#include "text/answer/answer.h"

struct rn_answer_rules {
    const struct rn_answer_format *format;
    enum rn_opened_kind opened; /* by the prompt: rn_answer_opened */
    const char *opened_marker;  /* of CALL [opened_bytes] */
    size_t opened_bytes;
    const char *tools; /* [tools_bytes] a JSON array as rn_answer_new takes it; NULL: none */
    size_t tools_bytes;
    const char *choice; /* "auto"; "none": content alone; "required": calls alone; else the name of the tool. NULL: as
                           auto, and tools that are not strict leave out what cannot be enforced */
    bool single_call;   /* one call at most */
    bool reasoning;     /* free reasoning may come first; else what the prompt has opened is closed at once */
    bool json;          /* the content is JSON, made with rn_grammar_answer_escapes */
    struct rn_schema_options
        schema; /* of the arguments; free_white and closed are set, any_order as the format needs */
};

/* What strings of a content in JSON write as escapes, so that none spells a mark of a call; nothing without tools. */
void rn_grammar_answer_escapes(const struct rn_answer_format *format, bool tools, struct rn_schema_options *options);

/* The expression of such answers. content: of the same grammar; RN_GRAMMAR_NONE: free text. The rules it needs are
 * added. RN_GRAMMAR_NONE: the grammar has the error. INVALID: the choice names no tool, or there are none; UNSUPPORTED:
 * the format has no calls; others as rn_grammar_schema, with the tool's name in front. */
rn_expr rn_grammar_answer(struct rn_grammar *grammar, const struct rn_answer_rules *rules, rn_expr content);

#endif
