/* Names of a template to places: Jinja2's scoping, done once after parsing.
 *
 * A frame's symbols are found by a walk over the frame's own statements that does not go into inner frames.
 * A name that is read and known nowhere around is resolved from the context when the frame is entered; one that
 * is set is a variable of this frame, which begins as the outer one of that name, if there is one, and else as
 * missing; one set in some branches of an if only begins as what is outside. Then the frame's nodes are bound,
 * which opens the inner frames. (The rules: jinja2's idtracking and compiler; theirs is the last word.)
 *
 * Two frames of one function on one level share the slots of equal names, as they share a Python variable there. */
#include <string.h>

#include "text/template/ast.h"
#include "text/template/value_text.h"

struct rn_tpl_slot_name {
    struct rn_tpl_slot_name *next;
    const struct rn_str *name;
    uint32_t level, slot;
};

/* What a frame knows of one name. */
struct symbol {
    struct symbol *next;
    const struct rn_str *name;
    enum rn_tpl_load_kind load;
    bool stored;
    struct rn_tpl_function *from_function; /* ALIAS */
    uint32_t from_level;
};

struct symbols {
    struct symbols *parent;
    struct rn_tpl_function *function;
    uint32_t level;
    struct symbol *first, **last;
};

struct scope {
    struct rn_tpl_parser *p;
    struct symbols *symbols;
    bool soft;    /* within an if: an unknown filter is an error only when it is called */
    bool in_loop; /* break is allowed */
};

static void visit(struct rn_tpl_parser *p, struct symbols *s, const struct rn_tpl_node *node);
static void bind(struct scope *scope, struct rn_tpl_node *node);

/* ---- Symbols ---- */

static struct symbols *new_symbols(struct rn_tpl_parser *p, struct symbols *parent, struct rn_tpl_function *function)
{
    struct symbols *s = rn_arena_take(&p->scratch, 1, sizeof *s);

    *s = (struct symbols){.parent = parent, .function = function, .level = parent == NULL ? 0 : parent->level + 1};
    s->last = &s->first;
    return s;
}

static struct symbol *own_symbol(struct rn_tpl_parser *p, const struct symbols *s, const struct rn_str *name)
{
    struct symbol *symbol;

    for (symbol = s->first; symbol != NULL; symbol = symbol->next) {
        rn_step(p->arena, 1);
        if (symbol->name == name)
            return symbol;
    }
    return NULL;
}

/* The frame that knows the name, from s outwards; NULL: none. */
static const struct symbols *owner(struct rn_tpl_parser *p, const struct symbols *s, const struct rn_str *name)
{
    while (s != NULL && own_symbol(p, s, name) == NULL)
        s = s->parent;
    return s;
}

static struct symbol *define(struct rn_tpl_parser *p, struct symbols *s, const struct rn_str *name,
                             enum rn_tpl_load_kind load)
{
    struct symbol *symbol = own_symbol(p, s, name);

    if (symbol == NULL) {
        symbol = rn_arena_take(&p->scratch, 1, sizeof *symbol);
        *symbol = (struct symbol){.name = name};
        *s->last = symbol;
        s->last = &symbol->next;
    }
    symbol->load = load;
    return symbol;
}

static void declare_parameter(struct rn_tpl_parser *p, struct symbols *s, const struct rn_str *name)
{
    define(p, s, name, RN_TPL_LOAD_PARAMETER)->stored = true;
}

static void load(struct rn_tpl_parser *p, struct symbols *s, const struct rn_str *name)
{
    if (owner(p, s, name) == NULL)
        define(p, s, name, RN_TPL_LOAD_RESOLVE);
}

/* The name begins as the outer one, if there is one. */
static bool alias(struct rn_tpl_parser *p, struct symbols *s, struct symbol *symbol)
{
    const struct symbols *outer = owner(p, s->parent, symbol->name);

    if (outer == NULL)
        return false;
    symbol->load = RN_TPL_LOAD_ALIAS;
    symbol->from_function = outer->function;
    symbol->from_level = outer->level;
    return true;
}

static void store(struct rn_tpl_parser *p, struct symbols *s, const struct rn_str *name)
{
    struct symbol *symbol = own_symbol(p, s, name);

    if (symbol == NULL) {
        symbol = define(p, s, name, RN_TPL_LOAD_MISSING);
        alias(p, s, symbol);
    }
    symbol->stored = true;
}

static struct symbols *copy_symbols(struct rn_tpl_parser *p, const struct symbols *s)
{
    struct symbols *copy = rn_arena_take(&p->scratch, 1, sizeof *copy);
    const struct symbol *from;

    *copy = *s;
    copy->first = NULL;
    copy->last = &copy->first;
    for (from = s->first; from != NULL; from = from->next) {
        struct symbol *to = rn_arena_take(&p->scratch, 1, sizeof *to);

        *to = *from;
        to->next = NULL;
        *copy->last = to;
        copy->last = &to->next;
        rn_step(p->arena, 1);
    }
    return copy;
}

/* What the branches of an if did to the names, taken over into s. */
static void merge_branches(struct rn_tpl_parser *p, struct symbols *s, struct symbols *const *branches, size_t n)
{
    struct symbols *before = copy_symbols(p, s);
    const struct symbol *from;
    struct symbol *symbol;
    size_t i;

    for (i = 0; i < n; i++)
        for (from = branches[i]->first; from != NULL; from = from->next) {
            bool stored;

            symbol = own_symbol(p, s, from->name);
            stored = from->stored || (symbol != NULL && symbol->stored);
            symbol = define(p, s, from->name, from->load);
            symbol->from_function = from->from_function;
            symbol->from_level = from->from_level;
            symbol->stored = stored;
        }
    for (symbol = s->first; symbol != NULL; symbol = symbol->next) {
        const struct symbol *was = own_symbol(p, before, symbol->name);

        if (symbol->stored && (was == NULL || !was->stored) && !alias(p, s, symbol))
            symbol->load = RN_TPL_LOAD_RESOLVE;
    }
}

/* ---- The walk over a frame's own statements ---- */

static void visit_args(struct rn_tpl_parser *p, struct symbols *s, const struct rn_tpl_args *args)
{
    uint32_t i;

    for (i = 0; i < args->n; i++)
        visit(p, s, args->items[i]);
    for (i = 0; i < args->n_keywords; i++)
        visit(p, s, args->keywords[i].value);
    visit(p, s, args->star);
    visit(p, s, args->star_star);
}

static void visit_target(struct rn_tpl_parser *p, struct symbols *s, const struct rn_tpl_node *target, bool param)
{
    uint32_t i;

    if (target->kind == RN_TPL_NODE_TUPLE)
        for (i = 0; i < target->n_items; i++)
            visit_target(p, s, target->items[i], param);
    else if (target->kind == RN_TPL_NODE_NSREF)
        load(p, s, target->name);
    else if (param)
        declare_parameter(p, s, target->name);
    else
        store(p, s, target->name);
}

static void visit_if(struct rn_tpl_parser *p, struct symbols *s, const struct rn_tpl_node *node)
{
    struct symbols *branches[3], *part[3];
    uint32_t i;

    visit(p, s, node->items[0]);
    for (i = 0; i < 3; i++)
        branches[i] = copy_symbols(p, s);
    visit(p, branches[0], node->items[1]);
    for (i = 2; i + 1 < node->n_items; i += 2) {
        visit(p, branches[1], node->items[i]);
        part[0] = copy_symbols(p, branches[1]);
        part[1] = copy_symbols(p, branches[1]);
        visit(p, part[0], node->items[i + 1]);
        merge_branches(p, branches[1], part, 2);
    }
    if (i < node->n_items)
        visit(p, branches[2], node->items[i]);
    merge_branches(p, s, branches, 3);
}

static void visit_statement(struct rn_tpl_parser *p, struct symbols *s, const struct rn_tpl_node *node)
{
    uint32_t i;

    switch (node->kind) {
    case RN_TPL_NODE_IF:
        visit_if(p, s, node);
        break;
    case RN_TPL_NODE_SET:
        visit(p, s, node->b);
        visit_target(p, s, node->a, false);
        break;
    case RN_TPL_NODE_SET_BLOCK:
    case RN_TPL_NODE_MACRO:
        visit_target(p, s, node->a, false);
        break;
    case RN_TPL_NODE_FOR:
        visit(p, s, node->loop->iter);
        break;
    case RN_TPL_NODE_CALL_BLOCK:
        visit(p, s, node->a);
        break;
    case RN_TPL_NODE_FILTER_BLOCK:
        visit(p, s, node->b);
        break;
    case RN_TPL_NODE_WITH:
        for (i = 1; i < node->n_items; i += 2)
            visit(p, s, node->items[i]);
        break;
    default:
        break;
    }
}

static void visit(struct rn_tpl_parser *p, struct symbols *s, const struct rn_tpl_node *node)
{
    uint32_t i;

    if (node == NULL)
        return;
    rn_step(p->arena, 1);
    rn_enter(p->arena);
    if (node->kind == RN_TPL_NODE_NAME) {
        load(p, s, node->name);
    } else if (node->kind > RN_TPL_NODE_OUTPUT && node->kind != RN_TPL_NODE_BODY) {
        visit_statement(p, s, node);
    } else if (node->kind != RN_TPL_NODE_CONST && node->kind != RN_TPL_NODE_DATA) {
        visit(p, s, node->a);
        visit(p, s, node->b);
        visit(p, s, node->c);
        for (i = 0; i < node->n_items; i++)
            visit(p, s, node->items[i]);
        if (node->kind == RN_TPL_NODE_CALL || node->kind == RN_TPL_NODE_FILTER || node->kind == RN_TPL_NODE_TEST)
            visit_args(p, s, node->args);
    }
    rn_leave(p->arena);
}

/* ---- Which special names does a body use? ---- */

#define USES_CALLER 1u
#define USES_KWARGS 2u
#define USES_VARARGS 4u
#define USES_LOOP 8u

/* `open`: the special names that no assignment has been met for so far, in the order of the text; `found`: those of
 * them that were read. `loop_set`: is loop assigned to anywhere? */
struct uses {
    struct rn_tpl_parser *p;
    uint32_t open, found;
    bool loop_set;
};

static void find_uses(struct uses *u, const struct rn_tpl_node *node);

static void name_used(struct uses *u, const struct rn_tpl_node *node)
{
    const struct rn_tpl_parser *p = u->p;
    uint32_t bit = node->name == p->n_caller    ? USES_CALLER
                   : node->name == p->n_kwargs  ? USES_KWARGS
                   : node->name == p->n_varargs ? USES_VARARGS
                   : node->name == p->n_loop    ? USES_LOOP
                                                : 0;

    if (node->store) {
        u->loop_set = u->loop_set || (bit == USES_LOOP && !node->param);
        u->open &= ~bit;
    } else {
        u->found |= bit & u->open;
    }
}

static void args_used(struct uses *u, const struct rn_tpl_args *args)
{
    uint32_t i;

    for (i = 0; i < args->n; i++)
        find_uses(u, args->items[i]);
    for (i = 0; i < args->n_keywords; i++)
        find_uses(u, args->keywords[i].value);
    find_uses(u, args->star);
    find_uses(u, args->star_star);
}

static void macro_used(struct uses *u, const struct rn_tpl_macro *macro)
{
    uint32_t i;

    for (i = 0; i < macro->n_params; i++)
        find_uses(u, macro->params[i]);
    for (i = 0; i < macro->n_defaults; i++)
        find_uses(u, macro->defaults[i]);
    find_uses(u, macro->body);
}

static void loop_used(struct uses *u, const struct rn_tpl_loop *loop)
{
    find_uses(u, loop->target);
    find_uses(u, loop->iter);
    find_uses(u, loop->body);
    find_uses(u, loop->or_else);
    find_uses(u, loop->test);
}

/* With's fields in Jinja2's order: the targets, then the values. */
static void with_used(struct uses *u, const struct rn_tpl_node *node)
{
    uint32_t i, k;

    for (k = 0; k < 2; k++)
        for (i = k; i < node->n_items; i += 2)
            find_uses(u, node->items[i]);
    find_uses(u, node->c);
}

static void find_uses(struct uses *u, const struct rn_tpl_node *node)
{
    uint32_t i;

    if (node == NULL)
        return;
    rn_step(u->p->arena, 1);
    rn_enter(u->p->arena);
    if (node->kind == RN_TPL_NODE_NAME) {
        name_used(u, node);
    } else if (node->kind == RN_TPL_NODE_FOR) {
        loop_used(u, node->loop);
    } else if (node->kind == RN_TPL_NODE_WITH) {
        with_used(u, node);
    } else if (node->kind != RN_TPL_NODE_CONST && node->kind != RN_TPL_NODE_DATA) {
        if (node->kind != RN_TPL_NODE_MACRO)
            find_uses(u, node->a);
        find_uses(u, node->kind == RN_TPL_NODE_FILTER_BLOCK ? node->c : node->b);
        find_uses(u, node->kind == RN_TPL_NODE_FILTER_BLOCK ? node->b : node->c);
        for (i = 0; i < node->n_items; i++)
            find_uses(u, node->items[i]);
        if (node->kind == RN_TPL_NODE_MACRO || node->kind == RN_TPL_NODE_CALL_BLOCK ||
            node->kind == RN_TPL_NODE_GENERATION)
            macro_used(u, node->macro);
        if (node->kind == RN_TPL_NODE_CALL || node->kind == RN_TPL_NODE_FILTER || node->kind == RN_TPL_NODE_TEST)
            args_used(u, node->args);
    }
    rn_leave(u->p->arena);
}

/* ---- Slots and references ---- */

static uint32_t slot_of(struct rn_tpl_parser *p, struct rn_tpl_function *function, uint32_t level,
                        const struct rn_str *name)
{
    struct rn_tpl_slot_name *slot;

    for (slot = function->slots; slot != NULL; slot = slot->next) {
        rn_step(p->arena, 1);
        if (slot->name == name && slot->level == level)
            return slot->slot;
    }
    slot = rn_arena_take(&p->scratch, 1, sizeof *slot);
    *slot = (struct rn_tpl_slot_name){function->slots, name, level, function->n_slots++};
    function->slots = slot;
    return slot->slot;
}

static uint32_t hops(const struct rn_tpl_function *from, const struct rn_tpl_function *to)
{
    uint32_t n = 0;

    for (; from != to; from = from->outer)
        n++;
    return n;
}

static struct rn_tpl_ref ref_of(struct scope *scope, const struct rn_tpl_node *node)
{
    const struct symbols *s = owner(scope->p, scope->symbols, node->name);

    if (s == NULL) /* as in Jinja2, the arguments of a set block's filter see only names that are used elsewhere */
        rn_template_fail(scope->p, node->at, "a name that is not known here");
    return (struct rn_tpl_ref){hops(scope->symbols->function, s->function),
                               slot_of(scope->p, s->function, s->level, node->name)};
}

static struct rn_tpl_frame make_frame(struct rn_tpl_parser *p, const struct symbols *s)
{
    struct rn_tpl_frame frame = {0};
    const struct symbol *symbol;
    uint32_t n = 0;

    for (symbol = s->first; symbol != NULL; symbol = symbol->next)
        n++;
    frame.loads = rn_arena_take(p->arena, n, sizeof *frame.loads);
    for (symbol = s->first; symbol != NULL; symbol = symbol->next) {
        struct rn_tpl_load *l = &frame.loads[frame.n_loads++];

        *l = (struct rn_tpl_load){symbol->load, slot_of(p, s->function, s->level, symbol->name), symbol->name, {0, 0}};
        if (symbol->load == RN_TPL_LOAD_ALIAS)
            l->from = (struct rn_tpl_ref){hops(s->function, symbol->from_function),
                                          slot_of(p, symbol->from_function, symbol->from_level, symbol->name)};
    }
    return frame;
}

static struct rn_tpl_function *new_function(struct rn_tpl_parser *p, struct rn_tpl_function *outer)
{
    struct rn_tpl_function *function = rn_arena_take(p->arena, 1, sizeof *function);

    *function = (struct rn_tpl_function){.outer = outer};
    return function;
}

static struct scope inner_scope(const struct scope *scope, struct symbols *symbols, bool in_loop)
{
    return (struct scope){scope->p, symbols, false, in_loop};
}

/* ---- Binding ---- */

static void bind_args(struct scope *scope, struct rn_tpl_args *args)
{
    uint32_t i;

    for (i = 0; i < args->n; i++)
        bind(scope, args->items[i]);
    for (i = 0; i < args->n_keywords; i++)
        bind(scope, args->keywords[i].value);
    bind(scope, args->star);
    bind(scope, args->star_star);
}

static uint32_t special_parameter(struct rn_tpl_parser *p, struct symbols *s, const struct rn_str *name)
{
    declare_parameter(p, s, name);
    return slot_of(p, s->function, s->level, name);
}

static void visit_macro(struct rn_tpl_parser *p, struct symbols *s, const struct rn_tpl_macro *macro)
{
    uint32_t i;

    for (i = 0; i < macro->n_params; i++)
        declare_parameter(p, s, macro->params[i]->name);
    for (i = 0; i < macro->n_defaults; i++)
        visit(p, s, macro->defaults[i]);
    visit(p, s, macro->body);
}

/* Does a parameter have that name? Its position, or -1. */
static int64_t find_param(const struct rn_tpl_macro *macro, const struct rn_str *name)
{
    uint32_t i;

    for (i = 0; i < macro->n_params; i++)
        if (macro->params[i]->name == name)
            return i;
    return -1;
}

static void special_names(struct rn_tpl_parser *p, struct symbols *s, struct rn_tpl_macro *macro, uint32_t at)
{
    struct uses uses = {.p = p, .open = USES_CALLER | USES_KWARGS | USES_VARARGS};
    int64_t caller = find_param(macro, p->n_caller);

    find_uses(&uses, macro->body);
    macro->explicit_caller = caller >= 0;
    if (uses.found & USES_CALLER) {
        macro->caller = true;
        if (caller >= 0 && caller < (int64_t)macro->n_params - macro->n_defaults)
            rn_template_fail(p, at, "the special argument caller must have a default");
        if (caller < 0)
            macro->caller_slot = special_parameter(p, s, p->n_caller);
    }
    macro->kwargs = (uses.found & USES_KWARGS) != 0 && find_param(macro, p->n_kwargs) < 0;
    macro->varargs = (uses.found & USES_VARARGS) != 0 && find_param(macro, p->n_varargs) < 0;
    if (macro->kwargs)
        macro->kwargs_slot = special_parameter(p, s, p->n_kwargs);
    if (macro->varargs)
        macro->varargs_slot = special_parameter(p, s, p->n_varargs);
}

static void bind_macro(struct scope *scope, struct rn_tpl_macro *macro, uint32_t at)
{
    struct rn_tpl_parser *p = scope->p;
    struct symbols *s;
    struct scope inner;
    uint32_t i;

    macro->function = new_function(p, scope->symbols->function);
    s = new_symbols(p, scope->symbols, macro->function);
    inner = inner_scope(scope, s, false);
    visit_macro(p, s, macro);
    special_names(p, s, macro, at);
    visit_macro(p, s, macro);
    for (i = 0; i < macro->n_params; i++)
        macro->params[i]->ref = ref_of(&inner, macro->params[i]);
    for (i = 0; i < macro->n_defaults; i++)
        bind(&inner, macro->defaults[i]);
    bind(&inner, macro->body);
    macro->frame = make_frame(p, s);
}

static struct rn_tpl_node *copy_target(struct rn_tpl_parser *p, const struct rn_tpl_node *target)
{
    struct rn_tpl_node *copy = rn_tpl_parse_node(p, target->kind, target->at);
    struct rn_tpl_nodes items = {0};
    uint32_t i;

    *copy = *target;
    if (target->kind == RN_TPL_NODE_TUPLE) {
        for (i = 0; i < target->n_items; i++)
            rn_tpl_nodes_push(p, &items, copy_target(p, target->items[i]));
        copy->items = items.items;
    }
    return copy;
}

static void bind_test(struct scope *scope, struct rn_tpl_loop *loop)
{
    struct rn_tpl_parser *p = scope->p;
    struct symbols *s;
    struct scope inner;

    loop->test_function = new_function(p, scope->symbols->function);
    s = new_symbols(p, scope->symbols, loop->test_function);
    inner = inner_scope(scope, s, false);
    visit_target(p, s, loop->target, true);
    visit(p, s, loop->test);
    loop->test_target = copy_target(p, loop->target);
    bind(&inner, loop->test_target);
    bind(&inner, loop->test);
    loop->test_frame = make_frame(p, s);
}

static void bind_loop(struct scope *scope, struct rn_tpl_node *node)
{
    struct rn_tpl_parser *p = scope->p;
    struct rn_tpl_loop *loop = node->loop;
    struct rn_tpl_function *function = scope->symbols->function;
    struct uses uses = {.p = p, .open = USES_LOOP}, all = {.p = p};
    struct symbols *s, *other;
    struct scope inner;

    find_uses(&uses, loop->body);
    find_uses(&all, node);
    if (all.loop_set)
        rn_template_fail(p, node->at, "can not assign to the special variable loop");
    loop->extended = loop->recursive || (uses.found & USES_LOOP) != 0;
    if (loop->recursive)
        function = loop->function = new_function(p, function);
    s = new_symbols(p, scope->symbols, function);
    if (loop->extended)
        loop->loop_slot = special_parameter(p, s, p->n_loop);
    visit_target(p, s, loop->target, true);
    visit(p, s, loop->body);
    if (loop->test != NULL)
        bind_test(scope, loop);
    bind(scope, loop->iter);
    inner = inner_scope(scope, s, true);
    bind(&inner, loop->target);
    bind(&inner, loop->body);
    loop->frame = make_frame(p, s);
    if (loop->or_else == NULL)
        return;
    other = new_symbols(p, scope->symbols, function);
    visit(p, other, loop->or_else);
    inner = inner_scope(scope, other, scope->in_loop && !loop->recursive);
    bind(&inner, loop->or_else);
    loop->else_frame = make_frame(p, other);
}

static void bind_set_block(struct scope *scope, struct rn_tpl_node *node)
{
    struct symbols *s = new_symbols(scope->p, scope->symbols, scope->symbols->function);
    struct scope inner = inner_scope(scope, s, scope->in_loop);

    visit(scope->p, s, node->c);
    bind(&inner, node->c);
    bind(&inner, node->b);
    bind(scope, node->a);
    node->frame = make_frame(scope->p, s);
}

static void bind_filter_block(struct scope *scope, struct rn_tpl_node *node)
{
    struct symbols *s = new_symbols(scope->p, scope->symbols, scope->symbols->function);
    struct scope inner = inner_scope(scope, s, scope->in_loop);

    visit(scope->p, s, node->c);
    visit(scope->p, s, node->b);
    bind(&inner, node->c);
    bind(&inner, node->b);
    node->frame = make_frame(scope->p, s);
}

static void bind_with(struct scope *scope, struct rn_tpl_node *node)
{
    struct symbols *s = new_symbols(scope->p, scope->symbols, scope->symbols->function);
    struct scope inner = inner_scope(scope, s, scope->in_loop);
    uint32_t i;

    for (i = 0; i < node->n_items; i += 2)
        visit_target(scope->p, s, node->items[i], true);
    visit(scope->p, s, node->c);
    for (i = 0; i < node->n_items; i += 2) {
        bind(&inner, node->items[i]);
        bind(scope, node->items[i + 1]);
    }
    bind(&inner, node->c);
    node->frame = make_frame(scope->p, s);
}

static void bind_children(struct scope *scope, struct rn_tpl_node *node)
{
    struct scope soft = *scope;
    uint32_t i;

    soft.soft = scope->soft || node->kind == RN_TPL_NODE_IF || node->kind == RN_TPL_NODE_COND;
    bind(&soft, node->a);
    bind(&soft, node->b);
    bind(&soft, node->c);
    for (i = 0; i < node->n_items; i++)
        bind(&soft, node->items[i]);
}

static void bind_callee(struct scope *scope, struct rn_tpl_node *node)
{
    if (node->callee == NULL && !scope->soft)
        rn_template_fail(scope->p, node->at, "no %s named '%.*s'", node->kind == RN_TPL_NODE_TEST ? "test" : "filter",
                         (int)(node->name->n < 40 ? node->name->n : 40), node->name->bytes);
    bind(scope, node->a);
    bind_args(scope, node->args);
}

static void bind_node(struct scope *scope, struct rn_tpl_node *node)
{
    switch (node->kind) {
    case RN_TPL_NODE_CONST:
    case RN_TPL_NODE_DATA:
        break;
    case RN_TPL_NODE_NAME:
    case RN_TPL_NODE_NSREF:
        node->ref = ref_of(scope, node);
        break;
    case RN_TPL_NODE_CALL:
        bind(scope, node->a);
        bind_args(scope, node->args);
        break;
    case RN_TPL_NODE_FILTER:
    case RN_TPL_NODE_TEST:
        bind_callee(scope, node);
        break;
    case RN_TPL_NODE_FOR:
        bind_loop(scope, node);
        break;
    case RN_TPL_NODE_MACRO:
    case RN_TPL_NODE_CALL_BLOCK:
    case RN_TPL_NODE_GENERATION:
        bind_macro(scope, node->macro, node->at);
        bind(scope, node->a);
        break;
    case RN_TPL_NODE_SET_BLOCK:
        bind_set_block(scope, node);
        break;
    case RN_TPL_NODE_FILTER_BLOCK:
        bind_filter_block(scope, node);
        break;
    case RN_TPL_NODE_WITH:
        bind_with(scope, node);
        break;
    case RN_TPL_NODE_BREAK:
    case RN_TPL_NODE_CONTINUE:
        if (!scope->in_loop)
            rn_template_fail(scope->p, node->at, "break or continue outside of a loop");
        break;
    default:
        bind_children(scope, node);
    }
}

static void bind(struct scope *scope, struct rn_tpl_node *node)
{
    if (node == NULL)
        return;
    rn_step(scope->p->arena, 1);
    rn_enter(scope->p->arena);
    scope->p->at = node->at;
    bind_node(scope, node);
    rn_leave(scope->p->arena);
}

void rn_template_bind(struct rn_tpl_parser *p, struct rn_tpl_node *root, struct rn_tpl_function *function,
                      struct rn_tpl_frame *frame)
{
    struct symbols *s = new_symbols(p, NULL, function);
    struct scope scope = {p, s, false, false};

    visit(p, s, root);
    bind(&scope, root);
    *frame = make_frame(p, s);
}
