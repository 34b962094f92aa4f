/* Templates before they are rendered: tokens, syntax tree, scopes.
 *
 *     source --lex--> tokens --parse--> tree --bind--> tree whose names are places (function, slot)
 *
 * Scoping is Jinja2's, which follows from how it compiles to Python: each for body, macro, with, set block
 * and filter block is a *frame*; some frames (template, macro, recursive loop, loop filter) are *functions*,
 * whose variables live in one struct rn_tpl_env per call. A frame that is entered loads its names: from the
 * context, from the frame around, or as missing (struct rn_tpl_load). What is set inside is not seen outside.
 *
 * All memory is the template's arena's; tokens are in one that is dropped after parsing. Immutable after bind. */
#ifndef RN_TEXT_TEMPLATE_AST_H
#define RN_TEXT_TEMPLATE_AST_H

#include "base/alloc.h"
#include "base/status.h"
#include "text/value.h"

/* ---- Tokens ---- */

enum rn_tpl_lex_kind {
    RN_TPL_LEX_EOF,
    RN_TPL_LEX_DATA,
    RN_TPL_LEX_VARIABLE_BEGIN,
    RN_TPL_LEX_VARIABLE_END,
    RN_TPL_LEX_BLOCK_BEGIN,
    RN_TPL_LEX_BLOCK_END,
    RN_TPL_LEX_NAME,
    RN_TPL_LEX_STRING,
    RN_TPL_LEX_INTEGER,
    RN_TPL_LEX_FLOAT,
    RN_TPL_LEX_ADD,
    RN_TPL_LEX_SUB,
    RN_TPL_LEX_MUL,
    RN_TPL_LEX_DIV,
    RN_TPL_LEX_FLOORDIV,
    RN_TPL_LEX_MOD,
    RN_TPL_LEX_POW,
    RN_TPL_LEX_TILDE,
    RN_TPL_LEX_LBRACKET,
    RN_TPL_LEX_RBRACKET,
    RN_TPL_LEX_LPAREN,
    RN_TPL_LEX_RPAREN,
    RN_TPL_LEX_LBRACE,
    RN_TPL_LEX_RBRACE,
    RN_TPL_LEX_EQ,
    RN_TPL_LEX_NE,
    RN_TPL_LEX_GT,
    RN_TPL_LEX_GE,
    RN_TPL_LEX_LT,
    RN_TPL_LEX_LE,
    RN_TPL_LEX_ASSIGN,
    RN_TPL_LEX_DOT,
    RN_TPL_LEX_COLON,
    RN_TPL_LEX_PIPE,
    RN_TPL_LEX_COMMA,
    RN_TPL_LEX_SEMICOLON
};

struct rn_tpl_lexeme {
    enum rn_tpl_lex_kind kind;
    uint32_t at; /* byte of the source */
    union {
        const struct rn_str *text; /* DATA, NAME (interned: equal names are equal pointers), STRING */
        int64_t integer;
        double real;
    };
};

struct rn_tpl_parser {
    struct rn_arena *arena;  /* of the template */
    struct rn_arena scratch; /* of tokens */
    const char *source;      /* [n], newlines are "\n" */
    size_t n;
    struct rn_tpl_lexeme *tokens; /* the last is EOF */
    size_t n_tokens, cap_tokens;
    size_t now;            /* the current token */
    uint32_t at;           /* of what is being read: where an error is */
    struct rn_dict *names; /* interned */
    const struct rn_str *n_caller, *n_kwargs, *n_varargs, *n_loop;
    uint32_t tag_at[RN_JSON_DEPTH]; /* open tags, for the sentence at the end of the file */
    uint32_t n_tags;
};

/* Fills p->tokens. Raises FORMAT. */
void rn_template_lex(struct rn_tpl_parser *p);

/* The interned string. */
const struct rn_str *rn_template_intern(struct rn_tpl_parser *p, const char *bytes, size_t n);

/* ---- Tree ---- */

enum rn_tpl_node_kind {
    /* expressions */
    RN_TPL_NODE_CONST,     /* value */
    RN_TPL_NODE_NAME,      /* name, ref */
    RN_TPL_NODE_NSREF,     /* name.attr as a target: name, attr, ref */
    RN_TPL_NODE_TUPLE,     /* items */
    RN_TPL_NODE_LIST,      /* items */
    RN_TPL_NODE_DICT,      /* items: key, value, key, value ... */
    RN_TPL_NODE_GETATTR,   /* a . name */
    RN_TPL_NODE_GETITEM,   /* a [ b ] */
    RN_TPL_NODE_SLICE,     /* a [ items[0] : items[1] : items[2] ]; absent ones NULL */
    RN_TPL_NODE_SLICE_ARG, /* the same between commas: no sequence takes it */
    RN_TPL_NODE_CALL,      /* a ( args ) */
    RN_TPL_NODE_FILTER,    /* a | name ( args ); a NULL: the text of the block */
    RN_TPL_NODE_TEST,      /* a is name ( args ) */
    RN_TPL_NODE_NOT,       /* not a */
    RN_TPL_NODE_NEG,
    RN_TPL_NODE_POS,
    RN_TPL_NODE_CHAIN,   /* items joined from the left by ops of one precedence */
    RN_TPL_NODE_AND,     /* items */
    RN_TPL_NODE_OR,      /* items */
    RN_TPL_NODE_CONCAT,  /* items ~ */
    RN_TPL_NODE_COMPARE, /* items compared by ops */
    RN_TPL_NODE_COND,    /* a if b else c; c may be NULL */
    /* statements */
    RN_TPL_NODE_DATA,         /* value: text of the template */
    RN_TPL_NODE_OUTPUT,       /* {{ items }} */
    RN_TPL_NODE_SET,          /* target a = b */
    RN_TPL_NODE_SET_BLOCK,    /* target a = body, through filter b (may be NULL) */
    RN_TPL_NODE_IF,           /* items: condition, body, condition, body ..., body of else; bodies are BODY */
    RN_TPL_NODE_FOR,          /* loop */
    RN_TPL_NODE_MACRO,        /* macro; ref is where it is stored */
    RN_TPL_NODE_CALL_BLOCK,   /* a: CALL; macro is the caller */
    RN_TPL_NODE_GENERATION,   /* macro */
    RN_TPL_NODE_FILTER_BLOCK, /* b: FILTER with a NULL at its left end; body c */
    RN_TPL_NODE_WITH,         /* items: target, value, target, value ...; body c */
    RN_TPL_NODE_BODY,         /* items */
    RN_TPL_NODE_BREAK,
    RN_TPL_NODE_CONTINUE
};

/* Where a variable lives: `hops` functions out of the current one, in that slot. */
struct rn_tpl_ref {
    uint32_t hops, slot;
};

enum rn_tpl_load_kind { RN_TPL_LOAD_PARAMETER, RN_TPL_LOAD_RESOLVE, RN_TPL_LOAD_ALIAS, RN_TPL_LOAD_MISSING };

/* What entering a frame does to one of its names. */
struct rn_tpl_load {
    enum rn_tpl_load_kind kind;
    uint32_t slot;
    const struct rn_str *name; /* RESOLVE: in the context */
    struct rn_tpl_ref from;    /* ALIAS */
};

struct rn_tpl_frame {
    struct rn_tpl_load *loads; /* [n_loads] */
    uint32_t n_loads;
};

struct rn_tpl_function {
    struct rn_tpl_function *outer;
    uint32_t n_slots;
    struct rn_tpl_slot_name *slots; /* while binding */
};

struct rn_tpl_keyword {
    const struct rn_str *name;
    struct rn_tpl_node *value;
};

struct rn_tpl_args {
    struct rn_tpl_node **items;           /* [n] */
    struct rn_tpl_keyword *keywords;      /* [n_keywords] */
    struct rn_tpl_node *star, *star_star; /* *x, **x or NULL */
    uint32_t n, n_keywords;
};

struct rn_tpl_macro {
    const struct rn_str *name;     /* NULL: of a call block */
    struct rn_tpl_node **params;   /* [n_params] NAME */
    struct rn_tpl_node **defaults; /* [n_defaults], of the last parameters */
    uint32_t n_params, n_defaults;
    struct rn_tpl_node *body;
    struct rn_tpl_function *function;
    struct rn_tpl_frame frame;
    bool caller, kwargs, varargs; /* does the body use these names? */
    bool explicit_caller;         /* caller is a parameter */
    uint32_t caller_slot, kwargs_slot, varargs_slot;
};

struct rn_tpl_loop {
    struct rn_tpl_node *target, *iter, *test, *body, *or_else; /* test, or_else may be NULL */
    bool recursive, extended;                                  /* extended: the body sees `loop` */
    struct rn_tpl_function *function;                          /* of a recursive loop */
    struct rn_tpl_function *test_function;                     /* of a test */
    struct rn_tpl_frame frame, test_frame, else_frame;
    struct rn_tpl_node *test_target; /* the target once more, bound within the test's function */
    uint32_t loop_slot;
};

enum rn_tpl_op {
    RN_TPL_OP_ADD,
    RN_TPL_OP_SUB,
    RN_TPL_OP_MUL,
    RN_TPL_OP_DIV,
    RN_TPL_OP_FLOORDIV,
    RN_TPL_OP_MOD,
    RN_TPL_OP_POW,
    RN_TPL_OP_EQ,
    RN_TPL_OP_NE,
    RN_TPL_OP_GT,
    RN_TPL_OP_GE,
    RN_TPL_OP_LT,
    RN_TPL_OP_LE,
    RN_TPL_OP_IN,
    RN_TPL_OP_NOT_IN
};

struct rn_tpl_node {
    enum rn_tpl_node_kind kind;
    uint32_t at; /* byte of the source */
    struct rn_tpl_node *a, *b, *c;
    struct rn_tpl_node **items; /* [n_items] */
    uint8_t *ops;               /* [n_items - 1] enum rn_tpl_op, between the items */
    uint32_t n_items;
    bool store; /* NAME, TUPLE: is assigned to */
    bool param; /* NAME: of a macro or a with */
    const struct rn_str *name, *attr;
    const struct rn_str *why; /* NAME, GETATTR: what to say if the value is undefined and is used */
    struct rn_tpl_ref ref;
    union {
        struct rn_value value;
        struct rn_tpl_args *args;
        struct rn_tpl_macro *macro;
        struct rn_tpl_loop *loop;
        struct rn_tpl_frame frame; /* WITH, SET_BLOCK, FILTER_BLOCK */
    };
    const void *callee; /* FILTER, TEST: what is called; NULL: unknown */
};

/* ---- Parsing ---- */

_Noreturn void rn_template_fail(struct rn_tpl_parser *p, uint32_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Line and column, from 1, of a byte of the source; columns are characters. */
void rn_template_place(const char *source, size_t n, uint32_t at, uint32_t *line, uint32_t *column);

/* parse.c */
struct rn_tpl_node *rn_tpl_parse_template(struct rn_tpl_parser *p);

/* expr.c */
struct rn_tpl_node *rn_tpl_parse_node(struct rn_tpl_parser *p, enum rn_tpl_node_kind kind, uint32_t at);
struct rn_tpl_node *rn_tpl_parse_expression(struct rn_tpl_parser *p);
struct rn_tpl_node *rn_tpl_parse_or(struct rn_tpl_parser *p); /* no "x if y" at its top */
struct rn_tpl_node *rn_tpl_parse_filters(struct rn_tpl_parser *p, struct rn_tpl_node *of, bool inline_start);

/* Expressions with commas between them are a tuple. `simple`: names and literals only. */
struct rn_tpl_node *rn_tpl_parse_tuple(struct rn_tpl_parser *p, bool simple, bool conditional, bool in_parens,
                                       bool with_namespace);

/* The stream of tokens. */
const struct rn_tpl_lexeme *rn_tpl_parse_now(const struct rn_tpl_parser *p);
const struct rn_tpl_lexeme *rn_tpl_parse_next(struct rn_tpl_parser *p); /* returns the current one and goes on */
bool rn_tpl_parse_at_name(const struct rn_tpl_parser *p, const char *name);
bool rn_tpl_parse_skip(struct rn_tpl_parser *p, enum rn_tpl_lex_kind kind);
bool rn_tpl_parse_skip_name(struct rn_tpl_parser *p, const char *name);
const struct rn_tpl_lexeme *rn_tpl_parse_expect(struct rn_tpl_parser *p, enum rn_tpl_lex_kind kind);

/* A growing array of nodes, in the template's arena. */
struct rn_tpl_nodes {
    struct rn_tpl_node **items;
    uint32_t n, cap;
};
void rn_tpl_nodes_push(struct rn_tpl_parser *p, struct rn_tpl_nodes *nodes, struct rn_tpl_node *node);

/* bind.c: gives every name its place; the template's own function and frame. */
void rn_template_bind(struct rn_tpl_parser *p, struct rn_tpl_node *root, struct rn_tpl_function *function,
                      struct rn_tpl_frame *frame);

/* The filter or test of that name, or NULL (filters.c, tests.c). */
const struct rn_tpl_builtin *rn_tpl_filter_find(const struct rn_str *name);
const struct rn_tpl_builtin *rn_tpl_test_find(const struct rn_str *name);

struct rn_template {
    struct rn_arena arena;
    const char *source; /* [n], newlines are "\n" */
    size_t n;
    struct rn_tpl_node *root;
    struct rn_tpl_function function;
    struct rn_tpl_frame frame;
};

#endif
