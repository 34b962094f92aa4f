/* The inside of answer_rules.h: what its two files share. Errors wait in the grammar. */
#ifndef RN_SAMPLING_GRAMMAR_ANSWER_PARTS_H
#define RN_SAMPLING_GRAMMAR_ANSWER_PARTS_H

#include "sampling/grammar/answer_rules.h"
#include "text/answer/tools.h"

#define RN_CALL_TOOLS_MOST 128u

struct rn_answer_tool {
    struct rn_value function; /* {"name", "parameters"} */
    const struct rn_str *name;
    uint32_t rules[4]; /* its arguments in each form (enum rn_arguments_kind); UINT32_MAX: not yet */
};

struct rn_answer_maker {
    struct rn_grammar *g;
    const struct rn_answer_rules *rules;
    struct rn_answer_rows rows;
    struct rn_answer_tools read;
    struct rn_answer_tool tools[RN_CALL_TOOLS_MOST];
    uint64_t steps;           /* left for all schemas together */
    size_t n_tools, n_chosen; /* the first n_chosen of tools may be called */
};

/* ---- call_rules.c ---- */

/* A pattern without names. SPACE: up to 8 bytes of white space. */
rn_expr rn_call_pattern(struct rn_grammar *g, const char *pattern);

/* As rn_grammar_fail: what is wrong is the tools, or the choice among them. */
#define rn_answer_fail(a, status, ...)                \
    do {                                              \
        bool first_ = !rn_grammar_failed((a)->g);     \
                                                      \
        rn_grammar_fail((a)->g, status, __VA_ARGS__); \
        if (first_)                                   \
            (a)->g->error.about = RUNNEL_ABOUT_TOOLS; \
    } while (0)

/* Text[n] of the format: control tokens of the vocabulary where it has them, bytes elsewhere. */
rn_expr rn_call_literal(struct rn_grammar *g, const char *text, size_t n);

/* Does this text hold a control token that ends an answer? Then it cannot be written. */
bool rn_call_ends(const struct rn_grammar *g, const char *text, size_t n);

/* The arguments of a tool as a JSON object. */
rn_expr rn_call_arguments(struct rn_answer_maker *a, struct rn_answer_tool *tool, enum rn_arguments_kind kind);

/* One call or several in the format's way; opened: the prompt has written the marker that they begin with. */
rn_expr rn_call_blocks(struct rn_answer_maker *a, bool opened);

rn_expr rn_call_optional(struct rn_grammar *g, rn_expr e);
rn_expr rn_call_text(struct rn_grammar *g, const char *text); /* bytes, whatever tokens there are */

#endif
