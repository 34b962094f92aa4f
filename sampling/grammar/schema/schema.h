/* A JSON Schema as a grammar: the texts that are JSON values which the schema allows.
 *
 *     schema text --rn_json_parse--> schemas, with their places and names     read.c
 *                 --> goals: sets of schemas that hold, or do not hold, at once schema.c
 *                 --> of each goal: cases, conjunctions of plain constraints    solve.c, keywords.c
 *                 --> expressions: strings, numbers, arrays, objects, values    strings.c, numbers.c, ...
 *
 * Each goal is a rule, so recursion is recursion of rules. A keyword is enforced exactly, or the schema is refused with
 * a sentence that names the keyword and its place (a JSON pointer), unless the caller allows that it is not enforced:
 * then the grammar has more texts than the schema.
 *
 * Drafts 2020-12 and 2019-09, and what older ones and OpenAPI write in their place: items as a list, additionalItems,
 * definitions, dependencies. docs/GRAMMARS.md lists the keywords.
 *
 * One value has many spellings in JSON; the grammar has these:
 *
 *   white space   none (compact), or any where JSON allows it
 *   objects       properties in the schema's order, others behind them; or in any order
 *   strings       without constraints all spellings, with every escape. With a length, a pattern, a format, or beside
 *                 names that are listed: each character in its plain form; a quote, a backslash and control characters
 *                 by their short escape, else by \u00xx with small letters. The same for values of enum and const
 *   numbers       without constraints all spellings. With constraints, and in enum and const: no exponent. Integers
 *                 have no fraction, and zero no sign where there are constraints
 *   names         a name that the schema lists occurs once. Other names may be repeated, as JSON allows
 *
 * Hostile schemas end by limits: bytes of the source, depth of JSON (200), steps, and those of the grammar. */
#ifndef RN_SAMPLING_GRAMMAR_SCHEMA_SCHEMA_H
#define RN_SAMPLING_GRAMMAR_SCHEMA_SCHEMA_H

#include "sampling/grammar/grammar.h"
#include "text/answer/format.h"
#include "text/value.h"

#define RN_SCHEMA_COUNT_MOST 4096u       /* characters, items or properties that are counted */
#define RN_SCHEMA_LENGTH_MOST (1u << 20) /* characters of a string without pattern and format */
#define RN_SCHEMA_ANY_ORDER_MOST 6u      /* properties that may stand in any order: each set of them is a rule */
#define RN_SCHEMA_STEPS 4000000u         /* some 0.3 s */
#define RN_SCHEMA_BYTES (48u << 20)      /* of memory while it is made */

struct rn_schema_options {
    bool free_white;  /* white space where JSON allows it; else none */
    bool short_white; /* with it: a space, or up to two ends of lines and 20 spaces or tabs: a model cannot get lost */
    bool any_order;   /* properties in any order, in objects that list at most RN_SCHEMA_ANY_ORDER_MOST */
    bool closed;      /* objects have no properties but those that the schema lists, where it does not say */
    bool one_of_as_any_of;             /* oneOf, where more than one branch may hold, is taken as anyOf */
    bool allow_unenforced;             /* what cannot be enforced is left out, and so is its negation */
    bool escape_angle, escape_bracket; /* strings spell '<' or '[' as an escape: marks begin with it */
};

/* The expression for text[n], a schema. RN_GRAMMAR_NONE: the grammar has the error. FORMAT: not JSON, or not a schema;
 * UNSUPPORTED: what cannot be enforced; INVALID: a limit; NO_MEMORY. The rules that it needs are added. May be called
 * several times on one grammar; names of rules are not used. */
rn_expr rn_grammar_schema(struct rn_grammar *grammar, const char *text, size_t n,
                          const struct rn_schema_options *options);

/* How the arguments of a call are written: as a JSON object, with its braces; or, without braces, its members as
 * marked parameters, as Python's keywords, or with bare names and with strings between marks (text/answer/literal.h).
 * Members that the schema does not list have no place but in JSON. */
enum rn_arguments_kind { RN_ARGUMENTS_JSON, RN_ARGUMENTS_PARAMS, RN_ARGUMENTS_PYTHON, RN_ARGUMENTS_MARKED };

struct rn_arguments_form {
    enum rn_arguments_kind kind;
    const struct rn_param_syntax *params; /* PARAMS */
    const char *mark;                     /* MARKED: around strings */
    const struct rn_str *tool;            /* its name, for sentences */
    /* A pattern of the format (text/answer/format.h) without names, as its model writes it. */
    rn_expr (*pattern)(void *user, struct rn_grammar *grammar, const char *text);
    /* The types of an argument as the reader of the answer sees them (text/answer/tools.h); adds to *steps. */
    uint32_t (*types)(void *user, const char *key, size_t n, uint64_t *steps);
    void *user;
    uint64_t *steps; /* that may be taken, of RN_SCHEMA_STEPS; what is used is taken off */
};

/* The same for the arguments of a call: of the values that the schema allows, the objects. The schema is borrowed while
 * it is read. UNSUPPORTED: a required name that cannot be written in this form, too. */
rn_expr rn_grammar_arguments(struct rn_grammar *grammar, struct rn_value schema,
                             const struct rn_schema_options *options, const struct rn_arguments_form *form);

/* White space as short_white has it. */
rn_expr rn_grammar_short_white(struct rn_grammar *grammar);

/* Any JSON value, or any object: of the options, white space and escapes. */
rn_expr rn_grammar_any_json(struct rn_grammar *grammar, bool object, const struct rn_schema_options *options);

#endif
