/* Statements of templates: tokens to tree. */
#include <string.h>

#include "text/template/ast.h"
#include "text/template/value_text.h"

static struct rn_tpl_node *parse_body(struct rn_tpl_parser *p, const char *const *ends);

/* ---- Targets of assignments ---- */

static bool is_constant_name(const struct rn_str *name)
{
    return rn_str_is(name, "true") || rn_str_is(name, "false") || rn_str_is(name, "none") || rn_str_is(name, "True") ||
           rn_str_is(name, "False") || rn_str_is(name, "None");
}

static void make_target(struct rn_tpl_parser *p, struct rn_tpl_node *node, bool param)
{
    uint32_t i;

    rn_enter(p->arena);
    if (node->kind == RN_TPL_NODE_TUPLE)
        for (i = 0; i < node->n_items; i++)
            make_target(p, node->items[i], param);
    else if (node->kind != RN_TPL_NODE_NAME && node->kind != RN_TPL_NODE_NSREF)
        rn_template_fail(p, node->at, "can not assign to this");
    node->store = true;
    node->param = param;
    rn_leave(p->arena);
}

static struct rn_tpl_node *parse_target(struct rn_tpl_parser *p, bool with_namespace, bool param)
{
    struct rn_tpl_node *target = rn_tpl_parse_tuple(p, true, true, false, with_namespace);

    make_target(p, target, param);
    return target;
}

static struct rn_tpl_node *parse_target_name(struct rn_tpl_parser *p, bool param)
{
    const struct rn_tpl_lexeme *token = rn_tpl_parse_expect(p, RN_TPL_LEX_NAME);
    struct rn_tpl_node *node = rn_tpl_parse_node(p, RN_TPL_NODE_NAME, token->at);

    if (is_constant_name(token->text))
        rn_template_fail(p, token->at, "can not assign to this");
    node->name = token->text;
    node->store = true;
    node->param = param;
    return node;
}

/* ---- Statements ---- */

static struct rn_tpl_node *parse_set(struct rn_tpl_parser *p, uint32_t at)
{
    static const char *const ends[] = {"endset", NULL};
    struct rn_tpl_node *node = rn_tpl_parse_node(p, RN_TPL_NODE_SET, at);

    node->a = parse_target(p, true, false);
    if (rn_tpl_parse_skip(p, RN_TPL_LEX_ASSIGN)) {
        node->b = rn_tpl_parse_tuple(p, false, true, false, false);
        return node;
    }
    node->kind = RN_TPL_NODE_SET_BLOCK;
    node->b = rn_tpl_parse_filters(p, NULL, false);
    node->c = parse_body(p, ends);
    rn_tpl_parse_next(p);
    return node;
}

static struct rn_tpl_node *parse_for(struct rn_tpl_parser *p, uint32_t at)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const end[] = {"endfor", NULL};
    struct rn_tpl_node *node = rn_tpl_parse_node(p, RN_TPL_NODE_FOR, at);
    struct rn_tpl_loop *loop = rn_arena_take(p->arena, 1, sizeof *loop);

    memset(loop, 0, sizeof *loop);
    node->loop = loop;
    loop->target = parse_target(p, false, false);
    if (!rn_tpl_parse_skip_name(p, "in"))
        rn_template_fail(p, rn_tpl_parse_now(p)->at, "expected 'in'");
    loop->iter = rn_tpl_parse_tuple(p, false, false, false, false);
    if (rn_tpl_parse_skip_name(p, "if"))
        loop->test = rn_tpl_parse_expression(p);
    loop->recursive = rn_tpl_parse_skip_name(p, "recursive");
    loop->body = parse_body(p, ends);
    if (rn_str_is(rn_tpl_parse_next(p)->text, "else")) {
        loop->or_else = parse_body(p, end);
        rn_tpl_parse_next(p);
        if (loop->or_else->n_items == 0)
            loop->or_else = NULL;
    }
    return node;
}

static struct rn_tpl_node *parse_if(struct rn_tpl_parser *p, uint32_t at)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const end[] = {"endif", NULL};
    struct rn_tpl_node *node = rn_tpl_parse_node(p, RN_TPL_NODE_IF, at);
    struct rn_tpl_nodes items = {0};
    const struct rn_str *word;

    do {
        rn_tpl_nodes_push(p, &items, rn_tpl_parse_tuple(p, false, false, false, false));
        rn_tpl_nodes_push(p, &items, parse_body(p, ends));
        word = rn_tpl_parse_next(p)->text;
    } while (rn_str_is(word, "elif"));
    if (rn_str_is(word, "else")) {
        rn_tpl_nodes_push(p, &items, parse_body(p, end));
        rn_tpl_parse_next(p);
    }
    node->items = items.items;
    node->n_items = items.n;
    return node;
}

static void check_params(struct rn_tpl_parser *p, const struct rn_tpl_nodes *params)
{
    uint32_t i, k;

    for (i = 0; i < params->n; i++) {
        rn_step(p->arena, i);
        for (k = 0; k < i; k++)
            if (params->items[i]->name == params->items[k]->name)
                rn_template_fail(p, params->items[i]->at, "duplicate argument");
    }
}

static void parse_signature(struct rn_tpl_parser *p, struct rn_tpl_macro *macro)
{
    struct rn_tpl_nodes params = {0}, defaults = {0};

    rn_tpl_parse_expect(p, RN_TPL_LEX_LPAREN);
    while (rn_tpl_parse_now(p)->kind != RN_TPL_LEX_RPAREN) {
        if (params.n > 0)
            rn_tpl_parse_expect(p, RN_TPL_LEX_COMMA);
        rn_tpl_nodes_push(p, &params, parse_target_name(p, true));
        if (rn_tpl_parse_skip(p, RN_TPL_LEX_ASSIGN))
            rn_tpl_nodes_push(p, &defaults, rn_tpl_parse_expression(p));
        else if (defaults.n > 0)
            rn_template_fail(p, rn_tpl_parse_now(p)->at, "non-default argument follows default argument");
    }
    rn_tpl_parse_expect(p, RN_TPL_LEX_RPAREN);
    check_params(p, &params);
    macro->params = params.items;
    macro->n_params = params.n;
    macro->defaults = defaults.items;
    macro->n_defaults = defaults.n;
}

static struct rn_tpl_macro *new_macro(struct rn_tpl_parser *p)
{
    struct rn_tpl_macro *macro = rn_arena_take(p->arena, 1, sizeof *macro);

    memset(macro, 0, sizeof *macro);
    return macro;
}

static struct rn_tpl_node *parse_macro(struct rn_tpl_parser *p, uint32_t at)
{
    static const char *const ends[] = {"endmacro", NULL};
    struct rn_tpl_node *node = rn_tpl_parse_node(p, RN_TPL_NODE_MACRO, at);

    node->macro = new_macro(p);
    node->a = parse_target_name(p, false);
    node->macro->name = node->a->name;
    parse_signature(p, node->macro);
    node->macro->body = parse_body(p, ends);
    rn_tpl_parse_next(p);
    return node;
}

static struct rn_tpl_node *parse_call_block(struct rn_tpl_parser *p, uint32_t at)
{
    static const char *const ends[] = {"endcall", NULL};
    struct rn_tpl_node *node = rn_tpl_parse_node(p, RN_TPL_NODE_CALL_BLOCK, at);

    node->macro = new_macro(p);
    if (rn_tpl_parse_now(p)->kind == RN_TPL_LEX_LPAREN)
        parse_signature(p, node->macro);
    node->a = rn_tpl_parse_expression(p);
    if (node->a->kind != RN_TPL_NODE_CALL)
        rn_template_fail(p, node->a->at, "expected a call");
    node->macro->body = parse_body(p, ends);
    rn_tpl_parse_next(p);
    return node;
}

static struct rn_tpl_node *parse_generation(struct rn_tpl_parser *p, uint32_t at)
{
    static const char *const ends[] = {"endgeneration", NULL};
    struct rn_tpl_node *node = rn_tpl_parse_node(p, RN_TPL_NODE_GENERATION, at);

    node->macro = new_macro(p);
    node->macro->body = parse_body(p, ends);
    rn_tpl_parse_next(p);
    return node;
}

static struct rn_tpl_node *parse_filter_block(struct rn_tpl_parser *p, uint32_t at)
{
    static const char *const ends[] = {"endfilter", NULL};
    struct rn_tpl_node *node = rn_tpl_parse_node(p, RN_TPL_NODE_FILTER_BLOCK, at);

    node->b = rn_tpl_parse_filters(p, NULL, true);
    node->c = parse_body(p, ends);
    rn_tpl_parse_next(p);
    return node;
}

static struct rn_tpl_node *parse_with(struct rn_tpl_parser *p, uint32_t at)
{
    static const char *const ends[] = {"endwith", NULL};
    struct rn_tpl_node *node = rn_tpl_parse_node(p, RN_TPL_NODE_WITH, at);
    struct rn_tpl_nodes items = {0};

    while (rn_tpl_parse_now(p)->kind != RN_TPL_LEX_BLOCK_END) {
        if (items.n > 0)
            rn_tpl_parse_expect(p, RN_TPL_LEX_COMMA);
        rn_tpl_nodes_push(p, &items, parse_target(p, false, true));
        rn_tpl_parse_expect(p, RN_TPL_LEX_ASSIGN);
        rn_tpl_nodes_push(p, &items, rn_tpl_parse_expression(p));
    }
    node->items = items.items;
    node->n_items = items.n;
    node->c = parse_body(p, ends);
    rn_tpl_parse_next(p);
    return node;
}

static struct rn_tpl_node *parse_print(struct rn_tpl_parser *p, uint32_t at)
{
    struct rn_tpl_node *node = rn_tpl_parse_node(p, RN_TPL_NODE_OUTPUT, at);
    struct rn_tpl_nodes items = {0};

    while (rn_tpl_parse_now(p)->kind != RN_TPL_LEX_BLOCK_END) {
        if (items.n > 0)
            rn_tpl_parse_expect(p, RN_TPL_LEX_COMMA);
        rn_tpl_nodes_push(p, &items, rn_tpl_parse_expression(p));
    }
    node->items = items.items;
    node->n_items = items.n;
    return node;
}

static struct rn_tpl_node *parse_break(struct rn_tpl_parser *p, uint32_t at)
{
    return rn_tpl_parse_node(p, RN_TPL_NODE_BREAK, at);
}

static struct rn_tpl_node *parse_continue(struct rn_tpl_parser *p, uint32_t at)
{
    return rn_tpl_parse_node(p, RN_TPL_NODE_CONTINUE, at);
}

static struct rn_tpl_node *parse_statement(struct rn_tpl_parser *p)
{
    static const struct {
        const char *tag;
        struct rn_tpl_node *(*parse)(struct rn_tpl_parser *p, uint32_t at);
    } tags[] = {{"set", parse_set},         {"if", parse_if},
                {"for", parse_for},         {"macro", parse_macro},
                {"break", parse_break},     {"continue", parse_continue},
                {"call", parse_call_block}, {"filter", parse_filter_block},
                {"with", parse_with},       {"generation", parse_generation},
                {"print", parse_print}};
    const struct rn_tpl_lexeme *token = rn_tpl_parse_expect(p, RN_TPL_LEX_NAME);
    struct rn_tpl_node *node;
    size_t i;

    for (i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (!rn_str_is(token->text, tags[i].tag))
            continue;
        if (p->n_tags == sizeof p->tag_at / sizeof p->tag_at[0])
            rn_template_fail(p, token->at, "nested deeper than %u", p->n_tags);
        p->tag_at[p->n_tags++] = token->at;
        node = tags[i].parse(p, token->at);
        p->n_tags--;
        return node;
    }
    rn_template_fail(p, token->at, "unknown tag '%.*s'", (int)(token->text->n < 40 ? token->text->n : 40),
                     token->text->bytes);
}

/* ---- Bodies ---- */

static bool at_end(const struct rn_tpl_parser *p, const char *const *ends)
{
    for (; ends != NULL && *ends != NULL; ends++)
        if (rn_tpl_parse_at_name(p, *ends))
            return true;
    return false;
}

static struct rn_tpl_node *parse_output(struct rn_tpl_parser *p)
{
    struct rn_tpl_node *node = rn_tpl_parse_node(p, RN_TPL_NODE_OUTPUT, rn_tpl_parse_next(p)->at);
    struct rn_tpl_nodes items = {0};

    rn_tpl_nodes_push(p, &items, rn_tpl_parse_tuple(p, false, true, false, false));
    rn_tpl_parse_expect(p, RN_TPL_LEX_VARIABLE_END);
    node->items = items.items;
    node->n_items = items.n;
    return node;
}

/* Nodes up to "{%" and one of the ends, which becomes the current token; ends NULL: up to the end of the file. */
static struct rn_tpl_node *parse_nodes(struct rn_tpl_parser *p, const char *const *ends)
{
    struct rn_tpl_node *body = rn_tpl_parse_node(p, RN_TPL_NODE_BODY, rn_tpl_parse_now(p)->at), *node;
    struct rn_tpl_nodes items = {0};

    for (;;) {
        const struct rn_tpl_lexeme *token = rn_tpl_parse_now(p);

        if (token->kind == RN_TPL_LEX_EOF)
            break;
        if (token->kind == RN_TPL_LEX_DATA) {
            node = rn_tpl_parse_node(p, RN_TPL_NODE_DATA, token->at);
            node->value = rn_string_value(rn_tpl_parse_next(p)->text);
        } else if (token->kind == RN_TPL_LEX_VARIABLE_BEGIN) {
            node = parse_output(p);
        } else {
            rn_tpl_parse_expect(p, RN_TPL_LEX_BLOCK_BEGIN);
            if (at_end(p, ends))
                break;
            node = parse_statement(p);
            rn_tpl_parse_expect(p, RN_TPL_LEX_BLOCK_END);
        }
        rn_tpl_nodes_push(p, &items, node);
    }
    body->items = items.items;
    body->n_items = items.n;
    return body;
}

/* From the end of the opening tag to the name in the closing one. */
static struct rn_tpl_node *parse_body(struct rn_tpl_parser *p, const char *const *ends)
{
    struct rn_tpl_node *body;
    uint32_t line, column;

    rn_enter(p->arena);
    rn_tpl_parse_skip(p, RN_TPL_LEX_COLON);
    rn_tpl_parse_expect(p, RN_TPL_LEX_BLOCK_END);
    body = parse_nodes(p, ends);
    if (rn_tpl_parse_now(p)->kind == RN_TPL_LEX_EOF) {
        rn_template_place(p->source, p->n, p->tag_at[p->n_tags - 1], &line, &column);
        rn_template_fail(p, rn_tpl_parse_now(p)->at, "the template ends before '%s' (begun on line %u)", ends[0], line);
    }
    rn_leave(p->arena);
    return body;
}

struct rn_tpl_node *rn_tpl_parse_template(struct rn_tpl_parser *p)
{
    return parse_nodes(p, NULL);
}
