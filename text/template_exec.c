/* Statements: what they do to variables and to the text. Loops and macros are in template_loop.c. */
#include "text/template_run.h"

static struct rn_value load_name(struct rn_run *run, const struct rn_str *name)
{
    const struct rn_dict_entry *entry = rn_dict_find(&run->arena, run->globals, rn_string_value(name));

    return entry == NULL ? rn_missing() : entry->value;
}

void rn_enter_frame(struct rn_run *run, const struct rn_frame *frame)
{
    uint32_t i;

    for (i = 0; i < frame->n_loads; i++) {
        const struct rn_load *load = &frame->loads[i];

        if (load->kind == RN_LOAD_RESOLVE)
            run->env->slots[load->slot] = load_name(run, load->name);
        else if (load->kind == RN_LOAD_ALIAS)
            run->env->slots[load->slot] = *rn_slot(run->env, load->from);
        else if (load->kind == RN_LOAD_MISSING)
            run->env->slots[load->slot] = rn_missing();
    }
    rn_step(&run->arena, frame->n_loads);
}

void rn_leave_frame(struct rn_run *run, const struct rn_frame *frame)
{
    uint32_t i;

    for (i = 0; i < frame->n_loads; i++)
        run->env->slots[frame->loads[i].slot] = rn_missing();
}

struct rn_env *rn_env_new(struct rn_run *run, const struct rn_function *function, struct rn_env *outer)
{
    struct rn_env *env = rn_arena_take(&run->arena, 1, sizeof *env + (size_t)function->n_slots * sizeof env->slots[0]);
    uint32_t i;

    env->outer = outer;
    for (i = 0; i < function->n_slots; i++)
        env->slots[i] = rn_missing();
    return env;
}

static void unpack(struct rn_run *run, const struct rn_node *target, struct rn_value value)
{
    struct rn_iter *iter = rn_iter_of(run, value);
    struct rn_value item;
    uint32_t i;

    for (i = 0; i < target->n_items; i++) {
        if (!rn_iter_next(run, iter, &item))
            rn_fail(run, "not enough values to unpack (expected %u, got %u)", target->n_items, i);
        rn_assign(run, target->items[i], item);
    }
    if (rn_iter_next(run, iter, &item))
        rn_fail(run, "too many values to unpack (expected %u)", target->n_items);
}

void rn_assign(struct rn_run *run, const struct rn_node *target, struct rn_value value)
{
    struct rn_value *slot;

    if (target->kind == RN_NODE_TUPLE) {
        rn_enter(&run->arena);
        unpack(run, target, value);
        rn_leave(&run->arena);
        return;
    }
    slot = rn_slot(run->env, target->ref);
    if (target->kind == RN_NODE_NAME) {
        *slot = value;
        return;
    }
    if (!rn_is_object(*slot, RN_OBJECT_NAMESPACE))
        rn_fail(run, "cannot assign attribute on non-namespace object");
    rn_dict_set(&run->arena, ((struct rn_namespace_object *)slot->object)->attrs, rn_string_value(target->attr), value);
}

/* Runs a body with a text of its own; *flow is how it ended. */
static const struct rn_str *capture(struct rn_run *run, const struct rn_node *body, enum rn_flow *flow)
{
    struct rn_sb *out = run->out, sb;

    rn_sb_init(&sb, &run->arena);
    run->out = &sb;
    *flow = rn_exec(run, body);
    run->out = out;
    return rn_sb_done(&sb);
}

static enum rn_flow exec_set_block(struct rn_run *run, const struct rn_node *node)
{
    const struct rn_str *text;
    struct rn_value value;
    enum rn_flow flow;

    rn_enter_frame(run, &node->frame);
    text = capture(run, node->c, &flow);
    if (flow == RN_FLOW_NEXT) { /* a break leaves the rest undone */
        value = node->b == NULL ? rn_string_value(text) : rn_eval_filter(run, node->b, text);
        rn_assign(run, node->a, value);
        rn_leave_frame(run, &node->frame);
    }
    return flow;
}

/* The result of a block goes into the text as it is: Jinja2 makes no string of it. */
static void put_block(struct rn_run *run, struct rn_value value)
{
    rn_sb_str(run->out, rn_want_string(run, value, "the result of a block"));
}

static enum rn_flow exec_filter_block(struct rn_run *run, const struct rn_node *node)
{
    const struct rn_str *text;
    enum rn_flow flow;

    rn_enter_frame(run, &node->frame);
    text = capture(run, node->c, &flow);
    if (flow == RN_FLOW_NEXT) {
        put_block(run, rn_eval_filter(run, node->b, text));
        rn_leave_frame(run, &node->frame);
    }
    return flow;
}

static enum rn_flow exec_with(struct rn_run *run, const struct rn_node *node)
{
    enum rn_flow flow;
    uint32_t i;

    rn_enter_frame(run, &node->frame);
    for (i = 0; i < node->n_items; i += 2)
        rn_assign(run, node->items[i], rn_eval(run, node->items[i + 1]));
    flow = rn_exec(run, node->c);
    if (flow == RN_FLOW_NEXT)
        rn_leave_frame(run, &node->frame);
    return flow;
}

static enum rn_flow exec_if(struct rn_run *run, const struct rn_node *node)
{
    uint32_t i;

    for (i = 0; i + 1 < node->n_items; i += 2)
        if (rn_truth(run, rn_eval(run, node->items[i])))
            return rn_exec(run, node->items[i + 1]);
    return i < node->n_items ? rn_exec(run, node->items[i]) : RN_FLOW_NEXT;
}

static void exec_output(struct rn_run *run, const struct rn_node *node)
{
    uint32_t i;

    for (i = 0; i < node->n_items; i++) {
        struct rn_value value = rn_eval(run, node->items[i]);

        run->at = node->items[i]->at;
        rn_put_value(run, run->out, value);
    }
}

static struct rn_value macro_value(struct rn_run *run, const struct rn_macro *macro)
{
    struct rn_macro_object *object = rn_object_new(run, RN_OBJECT_MACRO, sizeof *object);

    object->macro = macro;
    object->env = run->env;
    return rn_object_value(object);
}

/* A call with the block as `caller` among its arguments. */
static void exec_call_block(struct rn_run *run, const struct rn_node *node)
{
    static const struct rn_str caller = {.bytes = "caller", .n = 6, .chars = 6};
    struct rn_value block = macro_value(run, node->macro), callee = rn_eval(run, node->a->a);
    struct rn_call call = rn_eval_args(run, node->a->args);
    struct rn_named *named = rn_arena_take(&run->arena, call.n_named + 1, sizeof *named);
    size_t i;

    for (i = 0; i < call.n_named; i++) {
        named[i] = call.named[i];
        if (rn_str_is(named[i].name, "caller"))
            rn_fail(run, "two values for the special argument caller");
    }
    named[call.n_named++] = (struct rn_named){&caller, block};
    call.named = named;
    run->at = node->at;
    put_block(run, rn_call_value(run, callee, &call));
}

static void exec_generation(struct rn_run *run, const struct rn_node *node)
{
    const struct rn_call none = {0};

    put_block(run, rn_call_value(run, macro_value(run, node->macro), &none));
}

static enum rn_flow exec_body(struct rn_run *run, const struct rn_node *node)
{
    enum rn_flow flow = RN_FLOW_NEXT;
    uint32_t i;

    for (i = 0; i < node->n_items && flow == RN_FLOW_NEXT; i++)
        flow = rn_exec(run, node->items[i]);
    return flow;
}

/* The one that may recurse. */
static enum rn_flow exec_block(struct rn_run *run, const struct rn_node *node)
{
    switch (node->kind) {
    case RN_NODE_BODY:
        return exec_body(run, node);
    case RN_NODE_SET:
        rn_assign(run, node->a, rn_eval(run, node->b));
        return RN_FLOW_NEXT;
    case RN_NODE_SET_BLOCK:
        return exec_set_block(run, node);
    case RN_NODE_IF:
        return exec_if(run, node);
    case RN_NODE_FOR:
        return rn_exec_loop(run, node);
    case RN_NODE_MACRO:
        rn_assign(run, node->a, macro_value(run, node->macro));
        return RN_FLOW_NEXT;
    case RN_NODE_CALL_BLOCK:
        exec_call_block(run, node);
        return RN_FLOW_NEXT;
    case RN_NODE_GENERATION:
        exec_generation(run, node);
        return RN_FLOW_NEXT;
    case RN_NODE_FILTER_BLOCK:
        return exec_filter_block(run, node);
    case RN_NODE_WITH:
        return exec_with(run, node);
    case RN_NODE_BREAK:
        return RN_FLOW_BREAK;
    case RN_NODE_CONTINUE:
        return RN_FLOW_CONTINUE;
    default:
        exec_output(run, node);
        return RN_FLOW_NEXT;
    }
}

enum rn_flow rn_exec(struct rn_run *run, const struct rn_node *node)
{
    enum rn_flow flow;

    rn_step(&run->arena, 1);
    if (node->kind == RN_NODE_DATA) {
        rn_sb_str(run->out, node->value.string);
        return RN_FLOW_NEXT;
    }
    rn_enter(&run->arena);
    run->at = node->at;
    flow = exec_block(run, node);
    rn_leave(&run->arena);
    return flow;
}
