/* Statements: what they do to variables and to the text. Loops and macros are in loop.c. */
#include "text/template/run.h"

static struct rn_value load_name(struct rn_run *run, const struct rn_str *name)
{
    const struct rn_dict_entry *entry = rn_dict_find(&run->arena, run->globals, rn_string_value(name));

    return entry == NULL ? rn_tpl_missing() : entry->value;
}

void rn_tpl_enter_frame(struct rn_run *run, const struct rn_tpl_frame *frame)
{
    uint32_t i;

    for (i = 0; i < frame->n_loads; i++) {
        const struct rn_tpl_load *load = &frame->loads[i];

        if (load->kind == RN_TPL_LOAD_RESOLVE)
            run->env->slots[load->slot] = load_name(run, load->name);
        else if (load->kind == RN_TPL_LOAD_ALIAS)
            run->env->slots[load->slot] = *rn_tpl_slot(run->env, load->from);
        else if (load->kind == RN_TPL_LOAD_MISSING)
            run->env->slots[load->slot] = rn_tpl_missing();
    }
    rn_step(&run->arena, frame->n_loads);
}

void rn_tpl_leave_frame(struct rn_run *run, const struct rn_tpl_frame *frame)
{
    uint32_t i;

    for (i = 0; i < frame->n_loads; i++)
        run->env->slots[frame->loads[i].slot] = rn_tpl_missing();
}

struct rn_tpl_env *rn_tpl_env_new(struct rn_run *run, const struct rn_tpl_function *function, struct rn_tpl_env *outer)
{
    struct rn_tpl_env *env =
        rn_arena_take(&run->arena, 1, sizeof *env + (size_t)function->n_slots * sizeof env->slots[0]);
    uint32_t i;

    env->outer = outer;
    for (i = 0; i < function->n_slots; i++)
        env->slots[i] = rn_tpl_missing();
    return env;
}

static void unpack(struct rn_run *run, const struct rn_tpl_node *target, struct rn_value value)
{
    struct rn_tpl_iter *iter = rn_tpl_iter_of(run, value);
    struct rn_value item;
    uint32_t i;

    for (i = 0; i < target->n_items; i++) {
        if (!rn_tpl_iter_next(run, iter, &item))
            rn_tpl_fail(run, "not enough values to unpack (expected %u, got %u)", target->n_items, i);
        rn_tpl_assign(run, target->items[i], item);
    }
    if (rn_tpl_iter_next(run, iter, &item))
        rn_tpl_fail(run, "too many values to unpack (expected %u)", target->n_items);
}

void rn_tpl_assign(struct rn_run *run, const struct rn_tpl_node *target, struct rn_value value)
{
    struct rn_value *slot;

    if (target->kind == RN_TPL_NODE_TUPLE) {
        rn_enter(&run->arena);
        unpack(run, target, value);
        rn_leave(&run->arena);
        return;
    }
    slot = rn_tpl_slot(run->env, target->ref);
    if (target->kind == RN_TPL_NODE_NAME) {
        *slot = value;
        return;
    }
    if (!rn_tpl_is_object(*slot, RN_TPL_OBJECT_NAMESPACE))
        rn_tpl_fail(run, "cannot assign attribute on non-namespace object");
    rn_dict_set(&run->arena, ((struct rn_tpl_namespace_object *)slot->object)->attrs, rn_string_value(target->attr),
                value);
}

/* Runs a body with a text of its own; *flow is how it ended. */
static const struct rn_str *capture(struct rn_run *run, const struct rn_tpl_node *body, enum rn_tpl_flow *flow)
{
    struct rn_sb *out = run->out, sb;

    rn_sb_init(&sb, &run->arena);
    run->out = &sb;
    *flow = rn_tpl_exec(run, body);
    run->out = out;
    return rn_sb_done(&sb);
}

static enum rn_tpl_flow exec_set_block(struct rn_run *run, const struct rn_tpl_node *node)
{
    const struct rn_str *text;
    struct rn_value value;
    enum rn_tpl_flow flow;

    rn_tpl_enter_frame(run, &node->frame);
    text = capture(run, node->c, &flow);
    if (flow == RN_TPL_FLOW_NEXT) { /* a break leaves the rest undone */
        value = node->b == NULL ? rn_string_value(text) : rn_tpl_eval_filter(run, node->b, text);
        rn_tpl_assign(run, node->a, value);
        rn_tpl_leave_frame(run, &node->frame);
    }
    return flow;
}

/* The result of a block goes into the text as it is: Jinja2 makes no string of it. */
static void put_block(struct rn_run *run, struct rn_value value)
{
    rn_sb_str(run->out, rn_tpl_want_string(run, value, "the result of a block"));
}

static enum rn_tpl_flow exec_filter_block(struct rn_run *run, const struct rn_tpl_node *node)
{
    const struct rn_str *text;
    enum rn_tpl_flow flow;

    rn_tpl_enter_frame(run, &node->frame);
    text = capture(run, node->c, &flow);
    if (flow == RN_TPL_FLOW_NEXT) {
        put_block(run, rn_tpl_eval_filter(run, node->b, text));
        rn_tpl_leave_frame(run, &node->frame);
    }
    return flow;
}

static enum rn_tpl_flow exec_with(struct rn_run *run, const struct rn_tpl_node *node)
{
    enum rn_tpl_flow flow;
    uint32_t i;

    rn_tpl_enter_frame(run, &node->frame);
    for (i = 0; i < node->n_items; i += 2)
        rn_tpl_assign(run, node->items[i], rn_tpl_eval(run, node->items[i + 1]));
    flow = rn_tpl_exec(run, node->c);
    if (flow == RN_TPL_FLOW_NEXT)
        rn_tpl_leave_frame(run, &node->frame);
    return flow;
}

static enum rn_tpl_flow exec_if(struct rn_run *run, const struct rn_tpl_node *node)
{
    uint32_t i;

    for (i = 0; i + 1 < node->n_items; i += 2)
        if (rn_tpl_truth(run, rn_tpl_eval(run, node->items[i])))
            return rn_tpl_exec(run, node->items[i + 1]);
    return i < node->n_items ? rn_tpl_exec(run, node->items[i]) : RN_TPL_FLOW_NEXT;
}

static void exec_output(struct rn_run *run, const struct rn_tpl_node *node)
{
    uint32_t i;

    for (i = 0; i < node->n_items; i++) {
        struct rn_value value = rn_tpl_eval(run, node->items[i]);

        run->at = node->items[i]->at;
        rn_tpl_put_value(run, run->out, value);
    }
}

static struct rn_value macro_value(struct rn_run *run, const struct rn_tpl_macro *macro)
{
    struct rn_tpl_macro_object *object = rn_tpl_object_new(run, RN_TPL_OBJECT_MACRO, sizeof *object);

    object->macro = macro;
    object->env = run->env;
    return rn_tpl_object_value(object);
}

/* A call with the block as `caller` among its arguments. */
static void exec_call_block(struct rn_run *run, const struct rn_tpl_node *node)
{
    static const struct rn_str caller = {.bytes = "caller", .n = 6, .chars = 6};
    struct rn_value block = macro_value(run, node->macro), callee = rn_tpl_eval(run, node->a->a);
    struct rn_tpl_call call = rn_tpl_eval_args(run, node->a->args);
    struct rn_tpl_named *named = rn_arena_take(&run->arena, call.n_named + 1, sizeof *named);
    size_t i;

    for (i = 0; i < call.n_named; i++) {
        named[i] = call.named[i];
        if (rn_str_is(named[i].name, "caller"))
            rn_tpl_fail(run, "two values for the special argument caller");
    }
    named[call.n_named++] = (struct rn_tpl_named){&caller, block};
    call.named = named;
    run->at = node->at;
    put_block(run, rn_tpl_call_value(run, callee, &call));
}

static void exec_generation(struct rn_run *run, const struct rn_tpl_node *node)
{
    const struct rn_tpl_call none = {0};

    put_block(run, rn_tpl_call_value(run, macro_value(run, node->macro), &none));
}

static enum rn_tpl_flow exec_body(struct rn_run *run, const struct rn_tpl_node *node)
{
    enum rn_tpl_flow flow = RN_TPL_FLOW_NEXT;
    uint32_t i;

    for (i = 0; i < node->n_items && flow == RN_TPL_FLOW_NEXT; i++)
        flow = rn_tpl_exec(run, node->items[i]);
    return flow;
}

/* The one that may recurse. */
static enum rn_tpl_flow exec_block(struct rn_run *run, const struct rn_tpl_node *node)
{
    switch (node->kind) {
    case RN_TPL_NODE_BODY:
        return exec_body(run, node);
    case RN_TPL_NODE_SET:
        rn_tpl_assign(run, node->a, rn_tpl_eval(run, node->b));
        return RN_TPL_FLOW_NEXT;
    case RN_TPL_NODE_SET_BLOCK:
        return exec_set_block(run, node);
    case RN_TPL_NODE_IF:
        return exec_if(run, node);
    case RN_TPL_NODE_FOR:
        return rn_tpl_exec_loop(run, node);
    case RN_TPL_NODE_MACRO:
        rn_tpl_assign(run, node->a, macro_value(run, node->macro));
        return RN_TPL_FLOW_NEXT;
    case RN_TPL_NODE_CALL_BLOCK:
        exec_call_block(run, node);
        return RN_TPL_FLOW_NEXT;
    case RN_TPL_NODE_GENERATION:
        exec_generation(run, node);
        return RN_TPL_FLOW_NEXT;
    case RN_TPL_NODE_FILTER_BLOCK:
        return exec_filter_block(run, node);
    case RN_TPL_NODE_WITH:
        return exec_with(run, node);
    case RN_TPL_NODE_BREAK:
        return RN_TPL_FLOW_BREAK;
    case RN_TPL_NODE_CONTINUE:
        return RN_TPL_FLOW_CONTINUE;
    default:
        exec_output(run, node);
        return RN_TPL_FLOW_NEXT;
    }
}

enum rn_tpl_flow rn_tpl_exec(struct rn_run *run, const struct rn_tpl_node *node)
{
    enum rn_tpl_flow flow;

    rn_step(&run->arena, 1);
    if (node->kind == RN_TPL_NODE_DATA) {
        rn_sb_str(run->out, node->value.string);
        return RN_TPL_FLOW_NEXT;
    }
    rn_enter(&run->arena);
    run->at = node->at;
    flow = exec_block(run, node);
    rn_leave(&run->arena);
    return flow;
}
