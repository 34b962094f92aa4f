/* Expressions of templates: tokens to tree, by recursive descent.
 *
 *     cond: or [if or [else cond]]...   or: and...   and: not...   not: "not" not | compare
 *     compare: sum (==|!=|<|<=|>|>=|in|not in) sum ...   sum: concat (+|-) ...   concat: product ~ ...
 *     product: pow (*|/|//|%) ...   pow: unary ** ...   unary: (-|+) unary | primary   then postfix, filters, tests
 *
 * Chains of one precedence are one node with many items, so that a long sum is not deep. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/template/ast.h"
#include "text/template/value_text.h"

static struct rn_tpl_node *parse_unary(struct rn_tpl_parser *p, bool with_filter);
static struct rn_tpl_node *parse_primary(struct rn_tpl_parser *p, bool with_namespace);

/* ---- Stream ---- */

const struct rn_tpl_lexeme *rn_tpl_parse_now(const struct rn_tpl_parser *p)
{
    return &p->tokens[p->now];
}

static const struct rn_tpl_lexeme *look_ahead(const struct rn_tpl_parser *p)
{
    return &p->tokens[p->now + (p->tokens[p->now].kind != RN_TPL_LEX_EOF)];
}

const struct rn_tpl_lexeme *rn_tpl_parse_next(struct rn_tpl_parser *p)
{
    const struct rn_tpl_lexeme *token = rn_tpl_parse_now(p);

    if (token->kind != RN_TPL_LEX_EOF)
        p->now++;
    p->at = rn_tpl_parse_now(p)->at;
    rn_step(p->arena, 1);
    return token;
}

static bool is_name(const struct rn_tpl_lexeme *token, const char *name)
{
    return token->kind == RN_TPL_LEX_NAME && rn_str_is(token->text, name);
}

bool rn_tpl_parse_at_name(const struct rn_tpl_parser *p, const char *name)
{
    return is_name(rn_tpl_parse_now(p), name);
}

bool rn_tpl_parse_skip(struct rn_tpl_parser *p, enum rn_tpl_lex_kind kind)
{
    if (rn_tpl_parse_now(p)->kind != kind)
        return false;
    rn_tpl_parse_next(p);
    return true;
}

bool rn_tpl_parse_skip_name(struct rn_tpl_parser *p, const char *name)
{
    if (!rn_tpl_parse_at_name(p, name))
        return false;
    rn_tpl_parse_next(p);
    return true;
}

static const char *describe(enum rn_tpl_lex_kind kind)
{
    static const char *const names[] = {"end of template",
                                        "text",
                                        "'{{'",
                                        "'}}'",
                                        "'{%'",
                                        "'%}'",
                                        "a name",
                                        "a string",
                                        "an integer",
                                        "a float",
                                        "'+'",
                                        "'-'",
                                        "'*'",
                                        "'/'",
                                        "'//'",
                                        "'%'",
                                        "'**'",
                                        "'~'",
                                        "'['",
                                        "']'",
                                        "'('",
                                        "')'",
                                        "'{'",
                                        "'}'",
                                        "'=='",
                                        "'!='",
                                        "'>'",
                                        "'>='",
                                        "'<'",
                                        "'<='",
                                        "'='",
                                        "'.'",
                                        "':'",
                                        "'|'",
                                        "','",
                                        "';'"};

    return names[kind];
}

const struct rn_tpl_lexeme *rn_tpl_parse_expect(struct rn_tpl_parser *p, enum rn_tpl_lex_kind kind)
{
    const struct rn_tpl_lexeme *token = rn_tpl_parse_now(p);

    if (token->kind != kind)
        rn_template_fail(p, token->at, "expected %s, got %s", describe(kind), describe(token->kind));
    return rn_tpl_parse_next(p);
}

void rn_tpl_nodes_push(struct rn_tpl_parser *p, struct rn_tpl_nodes *nodes, struct rn_tpl_node *node)
{
    if (nodes->n == nodes->cap) {
        uint32_t cap = nodes->cap == 0 ? 4 : 2 * nodes->cap;

        nodes->items = rn_arena_grow(p->arena, nodes->items, nodes->n, cap, sizeof(struct rn_tpl_node *));
        nodes->cap = cap;
    }
    nodes->items[nodes->n++] = node;
}

struct rn_tpl_node *rn_tpl_parse_node(struct rn_tpl_parser *p, enum rn_tpl_node_kind kind, uint32_t at)
{
    struct rn_tpl_node *node = rn_arena_take(p->arena, 1, sizeof *node);

    memset(node, 0, sizeof *node);
    node->kind = kind;
    node->at = at;
    return node;
}

static struct rn_tpl_node *constant(struct rn_tpl_parser *p, uint32_t at, struct rn_value value)
{
    struct rn_tpl_node *node = rn_tpl_parse_node(p, RN_TPL_NODE_CONST, at);

    node->value = value;
    return node;
}

static struct rn_tpl_node *with_items(struct rn_tpl_parser *p, enum rn_tpl_node_kind kind, uint32_t at,
                                      const struct rn_tpl_nodes *nodes)
{
    struct rn_tpl_node *node = rn_tpl_parse_node(p, kind, at);

    node->items = nodes->items;
    node->n_items = nodes->n;
    return node;
}

/* "'NAME' is undefined": what using an undefined value of that name says. */
static const struct rn_str *undefined_sentence(struct rn_tpl_parser *p, const struct rn_str *name, bool attribute)
{
    struct rn_sb sb;

    rn_sb_init(&sb, p->arena);
    rn_sb_text(&sb, attribute ? "attribute '" : "'");
    rn_sb_str(&sb, name);
    rn_sb_text(&sb, "' is undefined");
    return rn_sb_done(&sb);
}

static struct rn_tpl_node *name_node(struct rn_tpl_parser *p, const struct rn_tpl_lexeme *token)
{
    struct rn_tpl_node *node = rn_tpl_parse_node(p, RN_TPL_NODE_NAME, token->at);

    node->name = token->text;
    node->why = undefined_sentence(p, token->text, false);
    return node;
}

/* ---- Operators ---- */

struct rn_tpl_node *rn_tpl_parse_expression(struct rn_tpl_parser *p)
{
    uint32_t at = rn_tpl_parse_now(p)->at;
    struct rn_tpl_node *expr, *node;

    rn_enter(p->arena);
    expr = rn_tpl_parse_or(p);
    while (rn_tpl_parse_skip_name(p, "if")) {
        node = rn_tpl_parse_node(p, RN_TPL_NODE_COND, at);
        node->a = expr;
        node->b = rn_tpl_parse_or(p);
        if (rn_tpl_parse_skip_name(p, "else"))
            node->c = rn_tpl_parse_expression(p);
        expr = node;
    }
    rn_leave(p->arena);
    return expr;
}

/* Which operator of a chain the current token is; -1: none. */
static int sum_op(const struct rn_tpl_lexeme *token)
{
    return token->kind == RN_TPL_LEX_ADD ? RN_TPL_OP_ADD : token->kind == RN_TPL_LEX_SUB ? RN_TPL_OP_SUB : -1;
}

static int product_op(const struct rn_tpl_lexeme *token)
{
    switch (token->kind) {
    case RN_TPL_LEX_MUL:
        return RN_TPL_OP_MUL;
    case RN_TPL_LEX_DIV:
        return RN_TPL_OP_DIV;
    case RN_TPL_LEX_FLOORDIV:
        return RN_TPL_OP_FLOORDIV;
    case RN_TPL_LEX_MOD:
        return RN_TPL_OP_MOD;
    default:
        return -1;
    }
}

static int pow_op(const struct rn_tpl_lexeme *token)
{
    return token->kind == RN_TPL_LEX_POW ? RN_TPL_OP_POW : -1;
}

static int compare_op(const struct rn_tpl_lexeme *token)
{
    if (token->kind >= RN_TPL_LEX_EQ && token->kind <= RN_TPL_LEX_LE)
        return RN_TPL_OP_EQ + (int)(token->kind - RN_TPL_LEX_EQ);
    return is_name(token, "in") ? RN_TPL_OP_IN : -1;
}

static struct rn_tpl_node *parse_chain(struct rn_tpl_parser *p, enum rn_tpl_node_kind kind,
                                       int (*op_of)(const struct rn_tpl_lexeme *token),
                                       struct rn_tpl_node *(*parse)(struct rn_tpl_parser *p))
{
    struct rn_tpl_nodes items = {0};
    uint32_t at = rn_tpl_parse_now(p)->at;
    uint8_t *ops = NULL;
    size_t cap = 0;
    struct rn_tpl_node *node = parse(p);
    int op;

    for (;;) {
        op = op_of(rn_tpl_parse_now(p));
        if (op < 0 && kind == RN_TPL_NODE_COMPARE && rn_tpl_parse_at_name(p, "not") && is_name(look_ahead(p), "in")) {
            rn_tpl_parse_next(p);
            op = RN_TPL_OP_NOT_IN;
        }
        if (op < 0)
            break;
        if (items.n == 0)
            rn_tpl_nodes_push(p, &items, node);
        if (items.n > cap) {
            ops = rn_arena_grow(p->arena, ops, cap, 2 * cap + 8, 1);
            cap = 2 * cap + 8;
        }
        ops[items.n - 1] = (uint8_t)op;
        rn_tpl_parse_next(p);
        rn_tpl_nodes_push(p, &items, parse(p));
    }
    if (items.n == 0)
        return node;
    node = with_items(p, kind, at, &items);
    node->ops = ops;
    return node;
}

static struct rn_tpl_node *parse_unary_filtered(struct rn_tpl_parser *p)
{
    return parse_unary(p, true);
}

static struct rn_tpl_node *parse_pow(struct rn_tpl_parser *p)
{
    return parse_chain(p, RN_TPL_NODE_CHAIN, pow_op, parse_unary_filtered);
}

static struct rn_tpl_node *parse_product(struct rn_tpl_parser *p)
{
    return parse_chain(p, RN_TPL_NODE_CHAIN, product_op, parse_pow);
}

/* Items joined by a token or a name; one alone is itself. */
static struct rn_tpl_node *parse_joined(struct rn_tpl_parser *p, enum rn_tpl_node_kind kind, const char *word,
                                        struct rn_tpl_node *(*parse)(struct rn_tpl_parser *p))
{
    uint32_t at = rn_tpl_parse_now(p)->at;
    struct rn_tpl_nodes items = {0};
    struct rn_tpl_node *first = parse(p);

    while (word == NULL ? rn_tpl_parse_skip(p, RN_TPL_LEX_TILDE) : rn_tpl_parse_skip_name(p, word)) {
        if (items.n == 0)
            rn_tpl_nodes_push(p, &items, first);
        rn_tpl_nodes_push(p, &items, parse(p));
    }
    return items.n == 0 ? first : with_items(p, kind, at, &items);
}

static struct rn_tpl_node *parse_concat(struct rn_tpl_parser *p)
{
    return parse_joined(p, RN_TPL_NODE_CONCAT, NULL, parse_product);
}

static struct rn_tpl_node *parse_sum(struct rn_tpl_parser *p)
{
    return parse_chain(p, RN_TPL_NODE_CHAIN, sum_op, parse_concat);
}

static struct rn_tpl_node *parse_not(struct rn_tpl_parser *p)
{
    struct rn_tpl_node *node;

    if (!rn_tpl_parse_at_name(p, "not"))
        return parse_chain(p, RN_TPL_NODE_COMPARE, compare_op, parse_sum);
    rn_enter(p->arena);
    node = rn_tpl_parse_node(p, RN_TPL_NODE_NOT, rn_tpl_parse_next(p)->at);
    node->a = parse_not(p);
    rn_leave(p->arena);
    return node;
}

static struct rn_tpl_node *parse_and(struct rn_tpl_parser *p)
{
    return parse_joined(p, RN_TPL_NODE_AND, "and", parse_not);
}

struct rn_tpl_node *rn_tpl_parse_or(struct rn_tpl_parser *p)
{
    struct rn_tpl_node *node;

    rn_enter(p->arena);
    node = parse_joined(p, RN_TPL_NODE_OR, "or", parse_and);
    rn_leave(p->arena);
    return node;
}

/* ---- Calls ---- */

static void bad_call(struct rn_tpl_parser *p, uint32_t at, bool bad)
{
    if (bad)
        rn_template_fail(p, at, "invalid syntax for function call expression");
}

static void parse_keyword(struct rn_tpl_parser *p, struct rn_tpl_args *args, size_t *cap)
{
    const struct rn_tpl_lexeme *name = rn_tpl_parse_next(p);
    uint32_t i;

    if (args->n_keywords == *cap) {
        args->keywords = rn_arena_grow(p->arena, args->keywords, *cap, 2 * *cap + 4, sizeof *args->keywords);
        *cap = 2 * *cap + 4;
    }
    rn_step(p->arena, args->n_keywords);
    for (i = 0; i < args->n_keywords; i++)
        if (args->keywords[i].name == name->text)
            rn_template_fail(p, name->at, "keyword argument repeated");
    rn_tpl_parse_next(p);
    args->keywords[args->n_keywords++] = (struct rn_tpl_keyword){name->text, rn_tpl_parse_expression(p)};
}

static void parse_argument(struct rn_tpl_parser *p, struct rn_tpl_args *args, struct rn_tpl_nodes *items, size_t *cap,
                           uint32_t at)
{
    if (rn_tpl_parse_skip(p, RN_TPL_LEX_MUL)) {
        bad_call(p, at, args->star != NULL || args->star_star != NULL);
        args->star = rn_tpl_parse_expression(p);
    } else if (rn_tpl_parse_skip(p, RN_TPL_LEX_POW)) {
        bad_call(p, at, args->star_star != NULL);
        args->star_star = rn_tpl_parse_expression(p);
    } else if (rn_tpl_parse_now(p)->kind == RN_TPL_LEX_NAME && look_ahead(p)->kind == RN_TPL_LEX_ASSIGN) {
        bad_call(p, at, args->star_star != NULL);
        parse_keyword(p, args, cap);
    } else {
        bad_call(p, at, args->star != NULL || args->star_star != NULL || args->n_keywords > 0);
        rn_tpl_nodes_push(p, items, rn_tpl_parse_expression(p));
    }
}

static struct rn_tpl_args *parse_args(struct rn_tpl_parser *p)
{
    struct rn_tpl_args *args = rn_arena_take(p->arena, 1, sizeof *args);
    uint32_t at = rn_tpl_parse_expect(p, RN_TPL_LEX_LPAREN)->at;
    struct rn_tpl_nodes items = {0};
    bool comma = false;
    size_t cap = 0;

    memset(args, 0, sizeof *args);
    while (rn_tpl_parse_now(p)->kind != RN_TPL_LEX_RPAREN) {
        if (comma) {
            rn_tpl_parse_expect(p, RN_TPL_LEX_COMMA);
            if (rn_tpl_parse_now(p)->kind == RN_TPL_LEX_RPAREN)
                break;
        }
        parse_argument(p, args, &items, &cap, at);
        comma = true;
    }
    rn_tpl_parse_expect(p, RN_TPL_LEX_RPAREN);
    args->items = items.items;
    args->n = items.n;
    return args;
}

static struct rn_tpl_args *no_args(struct rn_tpl_parser *p)
{
    struct rn_tpl_args *args = rn_arena_take(p->arena, 1, sizeof *args);

    memset(args, 0, sizeof *args);
    return args;
}

static struct rn_tpl_node *parse_call(struct rn_tpl_parser *p, struct rn_tpl_node *of)
{
    struct rn_tpl_node *node = rn_tpl_parse_node(p, RN_TPL_NODE_CALL, rn_tpl_parse_now(p)->at);

    node->a = of;
    node->args = parse_args(p);
    return node;
}

/* A name with dots: "a.b". */
static const struct rn_str *parse_dotted(struct rn_tpl_parser *p)
{
    const struct rn_str *name = rn_tpl_parse_expect(p, RN_TPL_LEX_NAME)->text;

    while (rn_tpl_parse_skip(p, RN_TPL_LEX_DOT)) {
        name = rn_str_concat(p->arena, name, rn_str_of(p->arena, "."));
        name = rn_str_concat(p->arena, name, rn_tpl_parse_expect(p, RN_TPL_LEX_NAME)->text);
    }
    return name;
}

struct rn_tpl_node *rn_tpl_parse_filters(struct rn_tpl_parser *p, struct rn_tpl_node *of, bool inline_start)
{
    struct rn_tpl_node *node;

    while (inline_start || rn_tpl_parse_skip(p, RN_TPL_LEX_PIPE)) {
        node = rn_tpl_parse_node(p, RN_TPL_NODE_FILTER, rn_tpl_parse_now(p)->at);
        node->a = of;
        node->name = parse_dotted(p);
        node->args = rn_tpl_parse_now(p)->kind == RN_TPL_LEX_LPAREN ? parse_args(p) : no_args(p);
        node->callee = rn_tpl_filter_find(node->name);
        of = node;
        inline_start = false;
    }
    return of;
}

/* ---- Postfix ---- */

static struct rn_tpl_node *parse_slice_part(struct rn_tpl_parser *p)
{
    enum rn_tpl_lex_kind kind = rn_tpl_parse_now(p)->kind;

    if (kind == RN_TPL_LEX_COLON || kind == RN_TPL_LEX_RBRACKET || kind == RN_TPL_LEX_COMMA)
        return NULL;
    return rn_tpl_parse_expression(p);
}

/* An expression, or a slice with its parts in items. */
static struct rn_tpl_node *parse_subscribed(struct rn_tpl_parser *p)
{
    uint32_t at = rn_tpl_parse_now(p)->at;
    struct rn_tpl_nodes parts = {0};
    struct rn_tpl_node *first = NULL;

    if (rn_tpl_parse_now(p)->kind != RN_TPL_LEX_COLON) {
        first = rn_tpl_parse_expression(p);
        if (rn_tpl_parse_now(p)->kind != RN_TPL_LEX_COLON)
            return first;
    }
    rn_tpl_parse_next(p);
    rn_tpl_nodes_push(p, &parts, first);
    rn_tpl_nodes_push(p, &parts, parse_slice_part(p));
    rn_tpl_nodes_push(p, &parts, rn_tpl_parse_skip(p, RN_TPL_LEX_COLON) ? parse_slice_part(p) : NULL);
    return with_items(p, RN_TPL_NODE_SLICE_ARG, at, &parts);
}

static struct rn_tpl_node *parse_brackets(struct rn_tpl_parser *p, struct rn_tpl_node *of, uint32_t at)
{
    struct rn_tpl_nodes parts = {0};
    struct rn_tpl_node *node;

    while (rn_tpl_parse_now(p)->kind != RN_TPL_LEX_RBRACKET) {
        if (parts.n > 0)
            rn_tpl_parse_expect(p, RN_TPL_LEX_COMMA);
        rn_tpl_nodes_push(p, &parts, parse_subscribed(p));
    }
    rn_tpl_parse_expect(p, RN_TPL_LEX_RBRACKET);
    if (parts.n == 1 && parts.items[0]->kind == RN_TPL_NODE_SLICE_ARG) {
        node = parts.items[0];
        node->kind = RN_TPL_NODE_SLICE;
        node->at = at;
        node->a = of;
        return node;
    }
    node = rn_tpl_parse_node(p, RN_TPL_NODE_GETITEM, at);
    node->a = of;
    node->b = parts.n == 1 ? parts.items[0] : with_items(p, RN_TPL_NODE_TUPLE, at, &parts);
    return node;
}

static struct rn_tpl_node *parse_subscript(struct rn_tpl_parser *p, struct rn_tpl_node *of)
{
    const struct rn_tpl_lexeme *token = rn_tpl_parse_next(p);
    struct rn_tpl_node *node;

    if (token->kind == RN_TPL_LEX_LBRACKET)
        return parse_brackets(p, of, token->at);
    if (rn_tpl_parse_now(p)->kind == RN_TPL_LEX_INTEGER) {
        node = rn_tpl_parse_node(p, RN_TPL_NODE_GETITEM, token->at);
        node->a = of;
        node->b = constant(p, rn_tpl_parse_now(p)->at, rn_int(rn_tpl_parse_now(p)->integer));
        rn_tpl_parse_next(p);
        return node;
    }
    node = rn_tpl_parse_node(p, RN_TPL_NODE_GETATTR, token->at);
    node->a = of;
    node->name = rn_tpl_parse_expect(p, RN_TPL_LEX_NAME)->text;
    node->why = undefined_sentence(p, node->name, true);
    return node;
}

static struct rn_tpl_node *parse_postfix(struct rn_tpl_parser *p, struct rn_tpl_node *node)
{
    for (;;) {
        switch (rn_tpl_parse_now(p)->kind) {
        case RN_TPL_LEX_DOT:
        case RN_TPL_LEX_LBRACKET:
            node = parse_subscript(p, node);
            break;
        case RN_TPL_LEX_LPAREN:
            node = parse_call(p, node);
            break;
        default:
            return node;
        }
    }
}

/* The one argument of a test that needs no parentheses, if there is one. */
static struct rn_tpl_node *parse_bare_argument(struct rn_tpl_parser *p)
{
    switch (rn_tpl_parse_now(p)->kind) {
    case RN_TPL_LEX_NAME:
        if (rn_tpl_parse_at_name(p, "else") || rn_tpl_parse_at_name(p, "or") || rn_tpl_parse_at_name(p, "and"))
            return NULL;
        if (rn_tpl_parse_at_name(p, "is"))
            rn_template_fail(p, rn_tpl_parse_now(p)->at, "tests with is can not be chained");
        break;
    case RN_TPL_LEX_STRING:
    case RN_TPL_LEX_INTEGER:
    case RN_TPL_LEX_FLOAT:
    case RN_TPL_LEX_LBRACKET:
    case RN_TPL_LEX_LBRACE:
        break;
    default:
        return NULL;
    }
    return parse_postfix(p, parse_primary(p, false));
}

static struct rn_tpl_node *parse_test(struct rn_tpl_parser *p, struct rn_tpl_node *of)
{
    uint32_t at = rn_tpl_parse_next(p)->at;
    bool negated = rn_tpl_parse_skip_name(p, "not");
    struct rn_tpl_node *node = rn_tpl_parse_node(p, RN_TPL_NODE_TEST, at), *negation;
    struct rn_tpl_nodes one = {0};

    node->a = of;
    node->name = parse_dotted(p);
    node->callee = rn_tpl_test_find(node->name);
    if (rn_tpl_parse_now(p)->kind == RN_TPL_LEX_LPAREN) {
        node->args = parse_args(p);
    } else {
        struct rn_tpl_node *argument = parse_bare_argument(p);

        node->args = no_args(p);
        if (argument != NULL) {
            rn_tpl_nodes_push(p, &one, argument);
            node->args->items = one.items;
            node->args->n = 1;
        }
    }
    if (!negated)
        return node;
    negation = rn_tpl_parse_node(p, RN_TPL_NODE_NOT, at);
    negation->a = node;
    return negation;
}

static struct rn_tpl_node *parse_filtered(struct rn_tpl_parser *p, struct rn_tpl_node *node)
{
    for (;;) {
        if (rn_tpl_parse_now(p)->kind == RN_TPL_LEX_PIPE)
            node = rn_tpl_parse_filters(p, node, false);
        else if (rn_tpl_parse_at_name(p, "is"))
            node = parse_test(p, node);
        else if (rn_tpl_parse_now(p)->kind == RN_TPL_LEX_LPAREN)
            node = parse_call(p, node);
        else
            return node;
    }
}

static struct rn_tpl_node *parse_unary(struct rn_tpl_parser *p, bool with_filter)
{
    const struct rn_tpl_lexeme *token = rn_tpl_parse_now(p);
    struct rn_tpl_node *node;

    if (token->kind == RN_TPL_LEX_SUB || token->kind == RN_TPL_LEX_ADD) {
        rn_tpl_parse_next(p);
        rn_enter(p->arena);
        node = rn_tpl_parse_node(p, token->kind == RN_TPL_LEX_SUB ? RN_TPL_NODE_NEG : RN_TPL_NODE_POS, token->at);
        node->a = parse_unary(p, false);
        rn_leave(p->arena);
    } else {
        node = parse_primary(p, false);
    }
    node = parse_postfix(p, node);
    return with_filter ? parse_filtered(p, node) : node;
}

/* ---- Primaries ---- */

static struct rn_tpl_node *parse_list(struct rn_tpl_parser *p)
{
    uint32_t at = rn_tpl_parse_next(p)->at;
    struct rn_tpl_nodes items = {0};

    while (rn_tpl_parse_now(p)->kind != RN_TPL_LEX_RBRACKET) {
        if (items.n > 0)
            rn_tpl_parse_expect(p, RN_TPL_LEX_COMMA);
        if (rn_tpl_parse_now(p)->kind == RN_TPL_LEX_RBRACKET)
            break;
        rn_tpl_nodes_push(p, &items, rn_tpl_parse_expression(p));
    }
    rn_tpl_parse_expect(p, RN_TPL_LEX_RBRACKET);
    return with_items(p, RN_TPL_NODE_LIST, at, &items);
}

static struct rn_tpl_node *parse_dict(struct rn_tpl_parser *p)
{
    uint32_t at = rn_tpl_parse_next(p)->at;
    struct rn_tpl_nodes items = {0};

    while (rn_tpl_parse_now(p)->kind != RN_TPL_LEX_RBRACE) {
        if (items.n > 0)
            rn_tpl_parse_expect(p, RN_TPL_LEX_COMMA);
        if (rn_tpl_parse_now(p)->kind == RN_TPL_LEX_RBRACE)
            break;
        rn_tpl_nodes_push(p, &items, rn_tpl_parse_expression(p));
        rn_tpl_parse_expect(p, RN_TPL_LEX_COLON);
        rn_tpl_nodes_push(p, &items, rn_tpl_parse_expression(p));
    }
    rn_tpl_parse_expect(p, RN_TPL_LEX_RBRACE);
    return with_items(p, RN_TPL_NODE_DICT, at, &items);
}

static struct rn_tpl_node *parse_name(struct rn_tpl_parser *p, bool with_namespace)
{
    const struct rn_tpl_lexeme *token = rn_tpl_parse_next(p);
    const struct rn_str *name = token->text;
    struct rn_tpl_node *node;

    if (rn_str_is(name, "true") || rn_str_is(name, "True"))
        return constant(p, token->at, rn_bool(true));
    if (rn_str_is(name, "false") || rn_str_is(name, "False"))
        return constant(p, token->at, rn_bool(false));
    if (rn_str_is(name, "none") || rn_str_is(name, "None"))
        return constant(p, token->at, rn_none());
    node = name_node(p, token);
    if (with_namespace && rn_tpl_parse_now(p)->kind == RN_TPL_LEX_DOT) {
        rn_tpl_parse_next(p);
        node->kind = RN_TPL_NODE_NSREF;
        node->attr = rn_tpl_parse_expect(p, RN_TPL_LEX_NAME)->text;
    }
    return node;
}

static struct rn_tpl_node *parse_strings(struct rn_tpl_parser *p)
{
    uint32_t at = rn_tpl_parse_now(p)->at;
    const struct rn_str *text = rn_tpl_parse_next(p)->text;

    while (rn_tpl_parse_now(p)->kind == RN_TPL_LEX_STRING)
        text = rn_str_concat(p->arena, text, rn_tpl_parse_next(p)->text);
    return constant(p, at, rn_string_value(text));
}

static struct rn_tpl_node *parse_primary(struct rn_tpl_parser *p, bool with_namespace)
{
    const struct rn_tpl_lexeme *token = rn_tpl_parse_now(p);
    struct rn_tpl_node *node;

    switch (token->kind) {
    case RN_TPL_LEX_NAME:
        return parse_name(p, with_namespace);
    case RN_TPL_LEX_STRING:
        return parse_strings(p);
    case RN_TPL_LEX_INTEGER:
        return constant(p, rn_tpl_parse_next(p)->at, rn_int(token->integer));
    case RN_TPL_LEX_FLOAT:
        return constant(p, rn_tpl_parse_next(p)->at, rn_float(token->real));
    case RN_TPL_LEX_LPAREN:
        rn_tpl_parse_next(p);
        node = rn_tpl_parse_tuple(p, false, true, true, false);
        rn_tpl_parse_expect(p, RN_TPL_LEX_RPAREN);
        return node;
    case RN_TPL_LEX_LBRACKET:
        return parse_list(p);
    case RN_TPL_LEX_LBRACE:
        return parse_dict(p);
    default:
        rn_template_fail(p, token->at, "unexpected %s", describe(token->kind));
    }
}

static bool at_tuple_end(const struct rn_tpl_parser *p)
{
    enum rn_tpl_lex_kind kind = rn_tpl_parse_now(p)->kind;

    return kind == RN_TPL_LEX_VARIABLE_END || kind == RN_TPL_LEX_BLOCK_END || kind == RN_TPL_LEX_RPAREN;
}

struct rn_tpl_node *rn_tpl_parse_tuple(struct rn_tpl_parser *p, bool simple, bool conditional, bool in_parens,
                                       bool with_namespace)
{
    uint32_t at = rn_tpl_parse_now(p)->at;
    struct rn_tpl_nodes items = {0};
    bool comma = false;

    rn_enter(p->arena);
    for (;;) {
        if (items.n > 0)
            rn_tpl_parse_expect(p, RN_TPL_LEX_COMMA);
        if (at_tuple_end(p))
            break;
        rn_tpl_nodes_push(p, &items,
                          simple        ? parse_primary(p, with_namespace)
                          : conditional ? rn_tpl_parse_expression(p)
                                        : rn_tpl_parse_or(p));
        if (rn_tpl_parse_now(p)->kind != RN_TPL_LEX_COMMA)
            break;
        comma = true;
    }
    rn_leave(p->arena);
    if (!comma && items.n == 1)
        return items.items[0];
    if (!comma && !in_parens)
        rn_template_fail(p, rn_tpl_parse_now(p)->at, "expected an expression, got %s",
                         describe(rn_tpl_parse_now(p)->kind));
    return with_items(p, RN_TPL_NODE_TUPLE, at, &items);
}
