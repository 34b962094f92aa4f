/* Expressions: tree to value. */
#include <string.h>

#include "base/check.h"
#include "text/template/run.h"

const struct rn_str rn_tpl_missing_mark = {.bytes = ""};

struct rn_value *rn_tpl_slot(struct rn_tpl_env *env, struct rn_tpl_ref ref)
{
    while (ref.hops-- > 0)
        env = env->outer;
    return &env->slots[ref.slot];
}

static struct rn_value eval_name(struct rn_run *run, const struct rn_tpl_node *node)
{
    struct rn_value value = *rn_tpl_slot(run->env, node->ref);

    if (rn_tpl_is_missing(value))
        value.why = node->why;
    return value;
}

static struct rn_list *eval_items(struct rn_run *run, const struct rn_tpl_node *node)
{
    struct rn_list *list = rn_list_new(&run->arena, node->n_items);
    uint32_t i;

    for (i = 0; i < node->n_items; i++)
        rn_list_push(&run->arena, list, rn_tpl_eval(run, node->items[i]));
    return list;
}

static struct rn_value eval_dict(struct rn_run *run, const struct rn_tpl_node *node)
{
    struct rn_dict *dict = rn_dict_new(&run->arena);
    uint32_t i;

    for (i = 0; i < node->n_items; i += 2) {
        struct rn_value key = rn_tpl_eval(run, node->items[i]), value = rn_tpl_eval(run, node->items[i + 1]);

        run->at = node->items[i]->at;
        rn_dict_set(&run->arena, dict, key, value);
    }
    return rn_dict_value(dict);
}

static struct rn_value eval_slice(struct rn_run *run, const struct rn_tpl_node *node)
{
    struct rn_value of = rn_tpl_eval(run, node->a), part[3];
    int i;

    for (i = 0; i < 3; i++)
        part[i] = node->items[i] == NULL ? rn_none() : rn_tpl_eval(run, node->items[i]);
    run->at = node->at;
    return rn_tpl_get_slice(run, of, part);
}

static struct rn_value eval_item(struct rn_run *run, const struct rn_tpl_node *node)
{
    struct rn_value of = rn_tpl_eval(run, node->a), key = rn_tpl_eval(run, node->b);

    run->at = node->at;
    return rn_tpl_get_item(run, of, key);
}

static struct rn_value eval_chain(struct rn_run *run, const struct rn_tpl_node *node)
{
    struct rn_value value = rn_tpl_eval(run, node->items[0]);
    uint32_t i;

    for (i = 1; i < node->n_items; i++) {
        struct rn_value right = rn_tpl_eval(run, node->items[i]);

        run->at = node->items[i]->at;
        value = rn_tpl_binary(run, (enum rn_tpl_op)node->ops[i - 1], value, right);
    }
    return value;
}

static struct rn_value eval_logic(struct rn_run *run, const struct rn_tpl_node *node)
{
    struct rn_value value = rn_tpl_eval(run, node->items[0]);
    uint32_t i;

    for (i = 1; i < node->n_items && rn_tpl_truth(run, value) == (node->kind == RN_TPL_NODE_AND); i++)
        value = rn_tpl_eval(run, node->items[i]);
    return value;
}

static struct rn_value eval_concat(struct rn_run *run, const struct rn_tpl_node *node)
{
    struct rn_value parts[16], *values = parts;
    struct rn_sb sb;
    uint32_t i;

    if (node->n_items > 16)
        values = rn_arena_take(&run->arena, node->n_items, sizeof *values);
    for (i = 0; i < node->n_items; i++)
        values[i] = rn_tpl_eval(run, node->items[i]);
    rn_sb_init(&sb, &run->arena);
    for (i = 0; i < node->n_items; i++)
        rn_tpl_put_value(run, &sb, values[i]);
    return rn_string_value(rn_sb_done(&sb));
}

static bool compare_one(struct rn_run *run, enum rn_tpl_op op, struct rn_value a, struct rn_value b)
{
    if (op == RN_TPL_OP_IN || op == RN_TPL_OP_NOT_IN)
        return rn_tpl_contains(run, b, a) == (op == RN_TPL_OP_IN);
    return rn_tpl_compare(run, op, a, b);
}

static struct rn_value eval_compare(struct rn_run *run, const struct rn_tpl_node *node)
{
    struct rn_value left = rn_tpl_eval(run, node->items[0]);
    uint32_t i;

    for (i = 1; i < node->n_items; i++) {
        struct rn_value right = rn_tpl_eval(run, node->items[i]);

        run->at = node->items[i]->at;
        if (!compare_one(run, (enum rn_tpl_op)node->ops[i - 1], left, right))
            return rn_bool(false);
        left = right;
    }
    return rn_bool(true);
}

static struct rn_value eval_cond(struct rn_run *run, const struct rn_tpl_node *node)
{
    if (rn_tpl_truth(run, rn_tpl_eval(run, node->b)))
        return rn_tpl_eval(run, node->a);
    return node->c == NULL ? rn_undefined() : rn_tpl_eval(run, node->c);
}

/* ---- Calls ---- */

/* More arguments, of *x. */
static void spread(struct rn_run *run, struct rn_tpl_call *call, const struct rn_tpl_node *star)
{
    struct rn_list *more = rn_tpl_list_of(run, rn_tpl_eval(run, star));
    struct rn_value *args = rn_arena_take(&run->arena, call->n + more->n, sizeof *args);

    if (call->n > 0)
        memcpy(args, call->args, call->n * sizeof *args);
    if (more->n > 0)
        memcpy(args + call->n, more->items, more->n * sizeof *args);
    call->args = args;
    call->n += more->n;
}

/* More keyword arguments, of **x. */
static void spread_named(struct rn_run *run, struct rn_tpl_call *call, const struct rn_tpl_node *star)
{
    struct rn_value value = rn_tpl_eval(run, star);
    struct rn_tpl_named *named;
    size_t i, k;

    if (value.kind != RN_VALUE_DICT)
        rn_tpl_fail(run, "argument after ** must be a mapping, not %s", rn_tpl_type_name(value));
    named = rn_arena_take(&run->arena, call->n_named + value.dict->n, sizeof *named);
    if (call->n_named > 0)
        memcpy(named, call->named, call->n_named * sizeof *named);
    for (i = 0; i < value.dict->n; i++) {
        const struct rn_dict_entry *entry = &value.dict->entries[i];

        if (!rn_tpl_is_string(entry->key))
            rn_tpl_fail(run, "keywords must be strings");
        for (k = 0; k < call->n_named; k++)
            if (rn_str_equal(call->named[k].name, entry->key.string))
                rn_tpl_fail(run, "multiple values for a keyword argument");
        named[call->n_named + i] = (struct rn_tpl_named){entry->key.string, entry->value};
    }
    call->named = named;
    call->n_named += value.dict->n;
}

struct rn_tpl_call rn_tpl_eval_args(struct rn_run *run, const struct rn_tpl_args *args)
{
    struct rn_tpl_call call = {0};
    uint32_t i;

    if (args->n > 0)
        call.args = rn_arena_take(&run->arena, args->n, sizeof *call.args);
    for (i = 0; i < args->n; i++)
        call.args[call.n++] = rn_tpl_eval(run, args->items[i]);
    if (args->n_keywords > 0)
        call.named = rn_arena_take(&run->arena, args->n_keywords, sizeof *call.named);
    for (i = 0; i < args->n_keywords; i++)
        call.named[call.n_named++] =
            (struct rn_tpl_named){args->keywords[i].name, rn_tpl_eval(run, args->keywords[i].value)};
    if (args->star != NULL)
        spread(run, &call, args->star);
    if (args->star_star != NULL)
        spread_named(run, &call, args->star_star);
    return call;
}

/* Is params[0..n) the name? */
static bool param_is(const char *param, size_t n, const struct rn_str *name)
{
    return name->n == n && memcmp(param, name->bytes, n) == 0;
}

/* The value for one parameter: by place or by name. */
static struct rn_value take_param(struct rn_run *run, const struct rn_tpl_builtin *builtin,
                                  const struct rn_tpl_call *call, const char *param, size_t bytes, size_t i,
                                  size_t *named_used)
{
    bool optional = param[bytes - 1] == '?', by_name = builtin->params[0] != '/';
    size_t k;

    bytes -= optional;
    for (k = 0; by_name && k < call->n_named; k++) {
        if (!param_is(param, bytes, call->named[k].name))
            continue;
        if (i < call->n)
            rn_tpl_fail(run, "%s() got multiple values for argument '%.*s'", builtin->name, (int)bytes, param);
        ++*named_used;
        return call->named[k].value;
    }
    if (i < call->n)
        return call->args[i];
    if (!optional)
        rn_tpl_fail(run, "%s() misses argument '%.*s'", builtin->name, (int)bytes, param);
    return rn_tpl_missing();
}

/* Arguments in the order of the builtin's parameters. */
static struct rn_tpl_call bind_call(struct rn_run *run, const struct rn_tpl_builtin *builtin,
                                    const struct rn_tpl_call *call)
{
    struct rn_value *args = rn_arena_take(&run->arena, 8, sizeof *args);
    const char *param = builtin->params + (builtin->params[0] == '/');
    size_t n = 0, named_used = 0, k;

    for (; *param != '\0'; n++) {
        size_t bytes = strcspn(param, " ");

        RN_ASSERT(n < 8);
        args[n] = take_param(run, builtin, call, param, bytes, n, &named_used);
        param += bytes;
        param += strspn(param, " ");
    }
    for (k = n; k < 8; k++)
        args[k] = rn_tpl_missing();
    if (call->n > n)
        rn_tpl_fail(run, "%s() takes %zu arguments, not %zu", builtin->name, n, call->n);
    if (named_used < call->n_named)
        rn_tpl_fail(run, "%s() got an unexpected keyword argument", builtin->name);
    return (struct rn_tpl_call){.args = args, .n = n};
}

/* A string, or strings in a list or tuple, with the mark of the string that a method was called on. */
static struct rn_value keep_markup(struct rn_run *run, struct rn_value value, bool markup)
{
    size_t i;

    if (rn_tpl_is_string(value))
        return rn_string_value(rn_str_marked(&run->arena, value.string, markup));
    for (i = 0; markup && i < value.list->n; i++)
        value.list->items[i] = keep_markup(run, value.list->items[i], true);
    return value;
}

struct rn_value rn_tpl_builtin_call(struct rn_run *run, const struct rn_tpl_builtin *builtin, struct rn_value self,
                                    const struct rn_tpl_call *call)
{
    struct rn_value result;
    struct rn_tpl_call bound;

    rn_step(&run->arena, 1);
    if (strcmp(builtin->params, "*") == 0) {
        result = builtin->call(run, self, call);
    } else {
        bound = bind_call(run, builtin, call);
        result = builtin->call(run, self, &bound);
    }
    if (builtin->flags & RN_TPL_MARKUP_KEEP)
        result = keep_markup(run, result, self.string->markup);
    return result;
}

const struct rn_tpl_builtin *rn_tpl_builtin_find(const struct rn_tpl_builtin *table, size_t n,
                                                 const struct rn_str *name)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (rn_str_is(name, table[i].name))
            return &table[i];
    return NULL;
}

struct rn_value rn_tpl_call_value(struct rn_run *run, struct rn_value callee, const struct rn_tpl_call *call)
{
    struct rn_object *object = callee.kind == RN_VALUE_OBJECT ? callee.object : NULL;

    if (callee.kind == RN_VALUE_UNDEFINED)
        rn_tpl_fail_undefined(run, callee);
    if (object != NULL && object->kind == RN_TPL_OBJECT_MACRO)
        return rn_tpl_call_macro(run, (struct rn_tpl_macro_object *)object, call);
    if (object != NULL && (object->kind == RN_TPL_OBJECT_FUNCTION || object->kind == RN_TPL_OBJECT_METHOD)) {
        struct rn_tpl_function_object *function = (struct rn_tpl_function_object *)object;

        return rn_tpl_builtin_call(run, function->builtin, function->self, call);
    }
    if (object != NULL && object->kind == RN_TPL_OBJECT_LOOP) {
        static const struct rn_tpl_builtin loop = {"loop", "iterable", NULL, 0};
        struct rn_tpl_call bound = bind_call(run, &loop, call);

        return rn_tpl_call_loop(run, (struct rn_tpl_loop_object *)object, bound.args[0]);
    }
    if (object != NULL && object->kind == RN_TPL_OBJECT_JOINER) {
        struct rn_tpl_joiner_object *joiner = (struct rn_tpl_joiner_object *)object;

        if (call->n + call->n_named > 0)
            rn_tpl_fail(run, "a joiner takes no arguments");
        if (joiner->used)
            return joiner->separator;
        joiner->used = true;
        return rn_string_value(rn_str_of(&run->arena, ""));
    }
    rn_tpl_fail(run, "'%s' object is not callable", rn_tpl_type_name(callee));
}

static struct rn_value eval_call(struct rn_run *run, const struct rn_tpl_node *node)
{
    struct rn_value callee = rn_tpl_eval(run, node->a);
    struct rn_tpl_call call = rn_tpl_eval_args(run, node->args);

    run->at = node->at;
    return rn_tpl_call_value(run, callee, &call);
}

struct rn_value rn_tpl_eval_filter(struct rn_run *run, const struct rn_tpl_node *node, const struct rn_str *block)
{
    struct rn_value value;
    struct rn_tpl_call call;

    rn_enter(&run->arena);
    value = node->a == NULL                       ? rn_string_value(block)
            : node->a->kind == RN_TPL_NODE_FILTER ? rn_tpl_eval_filter(run, node->a, block)
                                                  : rn_tpl_eval(run, node->a);
    call = rn_tpl_eval_args(run, node->args);
    run->at = node->at;
    if (node->callee == NULL)
        rn_tpl_fail(run, "no filter named '%.*s'", (int)(node->name->n < 40 ? node->name->n : 40), node->name->bytes);
    value = rn_tpl_builtin_call(run, node->callee, value, &call);
    rn_leave(&run->arena);
    return value;
}

static struct rn_value eval_test(struct rn_run *run, const struct rn_tpl_node *node)
{
    struct rn_value value = rn_tpl_eval(run, node->a);
    struct rn_tpl_call call = rn_tpl_eval_args(run, node->args);

    run->at = node->at;
    if (node->callee == NULL)
        rn_tpl_fail(run, "no test named '%.*s'", (int)(node->name->n < 40 ? node->name->n : 40), node->name->bytes);
    return rn_tpl_builtin_call(run, node->callee, value, &call);
}

static struct rn_value eval_unary(struct rn_run *run, const struct rn_tpl_node *node)
{
    struct rn_value value = rn_tpl_eval(run, node->a);

    run->at = node->at;
    if (node->kind == RN_TPL_NODE_NOT)
        return rn_bool(!rn_tpl_truth(run, value));
    return rn_tpl_negate(run, value, node->kind == RN_TPL_NODE_NEG);
}

static struct rn_value eval_attribute(struct rn_run *run, const struct rn_tpl_node *node)
{
    struct rn_value of = rn_tpl_eval(run, node->a);

    run->at = node->at;
    return rn_tpl_get_attribute(run, of, node->name, node->why);
}

static struct rn_value eval_node(struct rn_run *run, const struct rn_tpl_node *node)
{
    switch (node->kind) {
    case RN_TPL_NODE_CONST:
        return node->value;
    case RN_TPL_NODE_NAME:
        return eval_name(run, node);
    case RN_TPL_NODE_TUPLE:
        return rn_tuple_value(eval_items(run, node));
    case RN_TPL_NODE_LIST:
        return rn_list_value(eval_items(run, node));
    case RN_TPL_NODE_DICT:
        return eval_dict(run, node);
    case RN_TPL_NODE_GETATTR:
        return eval_attribute(run, node);
    case RN_TPL_NODE_GETITEM:
        return eval_item(run, node);
    case RN_TPL_NODE_SLICE:
        return eval_slice(run, node);
    case RN_TPL_NODE_CALL:
        return eval_call(run, node);
    case RN_TPL_NODE_FILTER:
        return rn_tpl_eval_filter(run, node, NULL);
    case RN_TPL_NODE_TEST:
        return eval_test(run, node);
    case RN_TPL_NODE_NOT:
    case RN_TPL_NODE_NEG:
    case RN_TPL_NODE_POS:
        return eval_unary(run, node);
    case RN_TPL_NODE_CHAIN:
        return eval_chain(run, node);
    case RN_TPL_NODE_AND:
    case RN_TPL_NODE_OR:
        return eval_logic(run, node);
    case RN_TPL_NODE_CONCAT:
        return eval_concat(run, node);
    case RN_TPL_NODE_COMPARE:
        return eval_compare(run, node);
    case RN_TPL_NODE_COND:
        return eval_cond(run, node);
    default:
        rn_tpl_fail(run, "slices can not be combined");
    }
}

struct rn_value rn_tpl_eval(struct rn_run *run, const struct rn_tpl_node *node)
{
    struct rn_value value;

    if (node->kind == RN_TPL_NODE_CONST) /* the commonest, and without a bound to watch */
        return node->value;
    rn_step(&run->arena, 1);
    rn_enter(&run->arena);
    run->at = node->at;
    value = eval_node(run, node);
    rn_leave(&run->arena);
    return value;
}
