/* Loops and macros. */
#include <string.h>

#include "text/template/run.h"

/* ---- The loop variable ---- */

static struct rn_tpl_loop_object *new_loop(struct rn_run *run, struct rn_value iterable, struct rn_tpl_iter *iter)
{
    struct rn_tpl_loop_object *loop = rn_tpl_object_new(run, RN_TPL_OBJECT_LOOP, sizeof *loop);

    loop->iterable = iterable;
    loop->iter = iter;
    loop->index0 = -1;
    loop->length = -1;
    loop->before = loop->current = loop->after = loop->changed = rn_tpl_missing();
    return loop;
}

static bool peek(struct rn_run *run, struct rn_tpl_loop_object *loop)
{
    if (!loop->peeked) {
        loop->at_end = !rn_tpl_iter_next(run, loop->iter, &loop->after);
        loop->peeked = !loop->at_end;
    }
    return loop->peeked;
}

bool rn_tpl_loop_next(struct rn_run *run, struct rn_tpl_loop_object *loop, struct rn_value *out)
{
    if (!peek(run, loop))
        return false;
    loop->peeked = false;
    loop->index0++;
    loop->before = loop->current;
    loop->current = *out = loop->after;
    return true;
}

int64_t rn_tpl_loop_length(struct rn_run *run, struct rn_tpl_loop_object *loop)
{
    if (loop->length >= 0)
        return loop->length;
    loop->length = rn_tpl_length(run, loop->iterable);
    if (loop->length < 0) { /* a generator: what is left of it is read to be counted */
        struct rn_list *rest = rn_list_new(&run->arena, 4);
        struct rn_value item;

        while (rn_tpl_iter_next(run, loop->iter, &item))
            rn_list_push(&run->arena, rest, item);
        loop->iter = rn_tpl_iter_of(run, rn_list_value(rest));
        loop->length = (int64_t)rest->n + loop->index0 + 1 + loop->peeked;
    }
    return loop->length;
}

static struct rn_value call_cycle(struct rn_run *run, struct rn_value self, const struct rn_tpl_call *call)
{
    const struct rn_tpl_loop_object *loop = (struct rn_tpl_loop_object *)self.object;

    if (call->n_named > 0 || call->n == 0)
        rn_tpl_fail(run, "no items for cycling given");
    return call->args[(uint64_t)loop->index0 % call->n];
}

static struct rn_value call_changed(struct rn_run *run, struct rn_value self, const struct rn_tpl_call *call)
{
    struct rn_tpl_loop_object *loop = (struct rn_tpl_loop_object *)self.object;
    struct rn_list *values = rn_list_new(&run->arena, call->n);
    struct rn_value now = rn_tuple_value(values);
    size_t i;

    if (call->n_named > 0)
        rn_tpl_fail(run, "changed() takes no keyword arguments");
    for (i = 0; i < call->n; i++)
        rn_list_push(&run->arena, values, call->args[i]);
    if (!rn_tpl_is_missing(loop->changed) && rn_value_equal(&run->arena, loop->changed, now))
        return rn_bool(false);
    loop->changed = now;
    return rn_bool(true);
}

static bool loop_item(struct rn_run *run, struct rn_tpl_loop_object *loop, const struct rn_str *name,
                      struct rn_value *out)
{
    if (rn_str_is(name, "first"))
        *out = rn_bool(loop->index0 == 0);
    else if (rn_str_is(name, "last"))
        *out = rn_bool(!peek(run, loop));
    else if (rn_str_is(name, "previtem"))
        *out = loop->index0 == 0 ? rn_undefined() : loop->before;
    else if (rn_str_is(name, "nextitem"))
        *out = peek(run, loop) ? loop->after : rn_undefined();
    else
        return false;
    return true;
}

bool rn_tpl_loop_attribute(struct rn_run *run, struct rn_tpl_loop_object *loop, const struct rn_str *name,
                           struct rn_value *out)
{
    static const struct rn_tpl_builtin methods[] = {{"cycle", "*", call_cycle, 0}, {"changed", "*", call_changed, 0}};
    const struct rn_tpl_builtin *method = rn_tpl_builtin_find(methods, 2, name);

    if (method != NULL)
        *out = rn_tpl_bind_method(run, method, rn_tpl_object_value(loop));
    else if (rn_str_is(name, "index"))
        *out = rn_int(loop->index0 + 1);
    else if (rn_str_is(name, "index0"))
        *out = rn_int(loop->index0);
    else if (rn_str_is(name, "revindex"))
        *out = rn_int(rn_tpl_loop_length(run, loop) - loop->index0);
    else if (rn_str_is(name, "revindex0"))
        *out = rn_int(rn_tpl_loop_length(run, loop) - loop->index0 - 1);
    else if (rn_str_is(name, "length"))
        *out = rn_int(rn_tpl_loop_length(run, loop));
    else if (rn_str_is(name, "depth"))
        *out = rn_int(loop->depth0 + 1);
    else if (rn_str_is(name, "depth0"))
        *out = rn_int(loop->depth0);
    else
        return loop_item(run, loop, name, out);
    return true;
}

/* ---- for ---- */

static struct rn_tpl_iter *test_iter(struct rn_run *run, const struct rn_tpl_loop *loop, struct rn_value iterable)
{
    struct rn_tpl_iter *iter = rn_tpl_iter_new(run, RN_TPL_ITER_LOOP_TEST);

    iter->loop = loop;
    iter->inner = rn_tpl_iter_of(run, iterable);
    iter->env = rn_tpl_env_new(run, loop->test_function, run->env);
    return iter;
}

/* All passes of a loop, in the current environment, whose slots hold the loop's variables. */
static enum rn_tpl_flow run_passes(struct rn_run *run, const struct rn_tpl_loop *loop, struct rn_tpl_iter *iter,
                                   struct rn_tpl_loop_object *object)
{
    enum rn_tpl_flow flow = RN_TPL_FLOW_NEXT;
    struct rn_value item;
    bool completed = false; /* a pass came to its end: by break and continue, else is not kept off */

    while (object != NULL ? rn_tpl_loop_next(run, object, &item) : rn_tpl_iter_next(run, iter, &item)) {
        rn_tpl_assign(run, loop->target, item);
        if (object != NULL)
            run->env->slots[loop->loop_slot] = rn_tpl_object_value(object);
        rn_tpl_enter_frame(run, &loop->frame);
        flow = rn_tpl_exec(run, loop->body);
        completed = completed || flow == RN_TPL_FLOW_NEXT;
        if (flow == RN_TPL_FLOW_BREAK)
            break;
    }
    rn_tpl_leave_frame(run, &loop->frame);
    if (loop->or_else == NULL || completed)
        return RN_TPL_FLOW_NEXT;
    rn_tpl_enter_frame(run, &loop->else_frame);
    flow = rn_tpl_exec(run, loop->or_else);
    if (flow == RN_TPL_FLOW_NEXT)
        rn_tpl_leave_frame(run, &loop->else_frame);
    return flow;
}

static struct rn_value run_recursive(struct rn_run *run, const struct rn_tpl_loop *loop, struct rn_tpl_env *outer,
                                     struct rn_value iterable, int64_t depth0)
{
    struct rn_tpl_env *env = run->env;
    struct rn_sb *out = run->out, sb;
    struct rn_tpl_loop_object *object;
    struct rn_tpl_iter *iter;

    rn_enter(&run->arena);
    run->env = outer;
    iter = loop->test != NULL ? test_iter(run, loop, iterable) : rn_tpl_iter_of(run, iterable);
    object = new_loop(run, loop->test != NULL ? rn_tpl_object_value(iter) : iterable, iter);
    object->recursive = loop;
    object->env = outer;
    object->depth0 = depth0;
    run->env = rn_tpl_env_new(run, loop->function, outer);
    rn_sb_init(&sb, &run->arena);
    run->out = &sb;
    run_passes(run, loop, iter, object);
    run->out = out;
    run->env = env;
    rn_leave(&run->arena);
    return rn_string_value(rn_sb_done(&sb));
}

struct rn_value rn_tpl_call_loop(struct rn_run *run, struct rn_tpl_loop_object *loop, struct rn_value iterable)
{
    if (loop->recursive == NULL)
        rn_tpl_fail(run, "the loop must have the 'recursive' marker to be called recursively");
    return run_recursive(run, loop->recursive, loop->env, iterable, loop->depth0 + 1);
}

enum rn_tpl_flow rn_tpl_exec_loop(struct rn_run *run, const struct rn_tpl_node *node)
{
    const struct rn_tpl_loop *loop = node->loop;
    struct rn_value iterable = rn_tpl_eval(run, loop->iter);
    struct rn_tpl_loop_object *object = NULL;
    struct rn_tpl_iter *iter;

    run->at = loop->iter->at;
    if (loop->recursive) {
        rn_tpl_put_value(run, run->out, run_recursive(run, loop, run->env, iterable, 0));
        return RN_TPL_FLOW_NEXT;
    }
    iter = loop->test != NULL ? test_iter(run, loop, iterable) : rn_tpl_iter_of(run, iterable);
    if (loop->extended)
        object = new_loop(run, loop->test != NULL ? rn_tpl_object_value(iter) : iterable, iter);
    return run_passes(run, loop, iter, object);
}

/* ---- Macros ---- */

/* The named argument of that name, marked as taken; missing: none. */
static struct rn_value take_named(const struct rn_tpl_call *call, bool *taken, const struct rn_str *name)
{
    size_t i;

    for (i = 0; i < call->n_named; i++)
        if (!taken[i] && rn_str_equal(call->named[i].name, name)) {
            taken[i] = true;
            return call->named[i].value;
        }
    return rn_tpl_missing();
}

/* What is left of the arguments, for the special names. */
static void special_arguments(struct rn_run *run, const struct rn_tpl_macro *macro, struct rn_tpl_env *env,
                              const struct rn_tpl_call *call, bool *taken, bool found_caller)
{
    static const struct rn_str caller_name = {.bytes = "caller", .n = 6, .chars = 6};
    struct rn_dict *rest = rn_dict_new(&run->arena);
    struct rn_list *more;
    struct rn_value caller;
    size_t i;

    if (macro->caller && !found_caller) {
        caller = take_named(call, taken, &caller_name);
        if (rn_tpl_is_missing(caller) || caller.kind == RN_VALUE_NONE)
            caller = rn_undefined();
        env->slots[macro->caller_slot] = caller;
    }
    for (i = 0; i < call->n_named; i++) {
        if (!taken[i] && !macro->kwargs)
            rn_tpl_fail(run, "the macro takes no keyword argument '%.*s'",
                        (int)(call->named[i].name->n < 40 ? call->named[i].name->n : 40), call->named[i].name->bytes);
        if (!taken[i])
            rn_dict_set(&run->arena, rest, rn_string_value(call->named[i].name), call->named[i].value);
    }
    if (macro->kwargs)
        env->slots[macro->kwargs_slot] = rn_dict_value(rest);
    if (call->n > macro->n_params && !macro->varargs)
        rn_tpl_fail(run, "the macro takes not more than %u argument(s)", macro->n_params);
    if (!macro->varargs)
        return;
    more = rn_list_new(&run->arena, 0);
    for (i = macro->n_params; i < call->n; i++)
        rn_list_push(&run->arena, more, call->args[i]);
    env->slots[macro->varargs_slot] = rn_tuple_value(more);
}

static void pass_arguments(struct rn_run *run, const struct rn_tpl_macro *macro, struct rn_tpl_env *env,
                           const struct rn_tpl_call *call)
{
    bool *taken = rn_arena_take(&run->arena, call->n_named, sizeof *taken);
    bool found_caller = call->n >= macro->n_params && macro->explicit_caller;
    uint32_t i;

    memset(taken, 0, call->n_named * sizeof *taken);
    for (i = 0; i < macro->n_params; i++) {
        const struct rn_tpl_node *param = macro->params[i];

        if (i < call->n) {
            env->slots[param->ref.slot] = call->args[i];
            continue;
        }
        env->slots[param->ref.slot] = take_named(call, taken, param->name);
        found_caller = found_caller || rn_str_is(param->name, "caller");
    }
    special_arguments(run, macro, env, call, taken, found_caller);
}

/* Parameters that were not given: their defaults, evaluated within the macro. */
static void fill_defaults(struct rn_run *run, const struct rn_tpl_macro *macro)
{
    uint32_t i;

    for (i = 0; i < macro->n_params; i++) {
        struct rn_value *slot = &run->env->slots[macro->params[i]->ref.slot];

        if (!rn_tpl_is_missing(*slot))
            continue;
        if (i + macro->n_defaults < macro->n_params)
            *slot = rn_undefined();
        else
            *slot = rn_tpl_eval(run, macro->defaults[i + macro->n_defaults - macro->n_params]);
    }
}

struct rn_value rn_tpl_call_macro(struct rn_run *run, struct rn_tpl_macro_object *object,
                                  const struct rn_tpl_call *call)
{
    const struct rn_tpl_macro *macro = object->macro;
    struct rn_tpl_env *env = run->env, *inner = rn_tpl_env_new(run, macro->function, object->env);
    struct rn_sb *out = run->out, sb;

    rn_enter(&run->arena);
    pass_arguments(run, macro, inner, call);
    run->env = inner;
    rn_sb_init(&sb, &run->arena);
    run->out = &sb;
    rn_tpl_enter_frame(run, &macro->frame);
    fill_defaults(run, macro);
    rn_tpl_exec(run, macro->body);
    run->out = out;
    run->env = env;
    rn_leave(&run->arena);
    return rn_string_value(rn_sb_done(&sb));
}
