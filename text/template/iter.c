/* Iteration: over containers, and generators, which are lazy as Python's are: nothing of map, select and the like
 * happens before the first item is asked for. */
#include <string.h>

#include "text/template/run.h"

void *rn_tpl_object_new(struct rn_run *run, enum rn_tpl_object_kind kind, size_t bytes)
{
    struct rn_object *object = rn_arena_take(&run->arena, 1, bytes);

    memset(object, 0, bytes);
    object->kind = kind;
    return object;
}

struct rn_value rn_tpl_object_value(void *object)
{
    return (struct rn_value){.kind = RN_VALUE_OBJECT, .object = object};
}

bool rn_tpl_is_object(struct rn_value value, enum rn_tpl_object_kind kind)
{
    return value.kind == RN_VALUE_OBJECT && value.object->kind == kind;
}

struct rn_tpl_iter *rn_tpl_iter_new(struct rn_run *run, enum rn_tpl_iter_kind kind)
{
    struct rn_tpl_iter *iter = rn_tpl_object_new(run, RN_TPL_OBJECT_ITER, sizeof *iter);

    iter->kind = kind;
    return iter;
}

static struct rn_tpl_iter *object_iter(struct rn_run *run, struct rn_value value)
{
    struct rn_tpl_iter *iter;

    switch (value.object->kind) {
    case RN_TPL_OBJECT_ITER:
        return (struct rn_tpl_iter *)value.object;
    case RN_TPL_OBJECT_RANGE:
        iter = rn_tpl_iter_new(run, RN_TPL_ITER_RANGE);
        iter->range = (const struct rn_tpl_range_object *)value.object;
        return iter;
    case RN_TPL_OBJECT_VIEW:
        iter = rn_tpl_iter_new(run, RN_TPL_ITER_VIEW);
        iter->view = (const struct rn_tpl_view_object *)value.object;
        return iter;
    case RN_TPL_OBJECT_LOOP:
        iter = rn_tpl_iter_new(run, RN_TPL_ITER_LOOP);
        iter->around = (struct rn_tpl_loop_object *)value.object;
        return iter;
    default:
        return NULL;
    }
}

struct rn_tpl_iter *rn_tpl_iter_try(struct rn_run *run, struct rn_value value)
{
    struct rn_tpl_iter *iter;

    switch (value.kind) {
    case RN_VALUE_UNDEFINED:
        return rn_tpl_iter_new(run, RN_TPL_ITER_EMPTY);
    case RN_VALUE_STRING:
        iter = rn_tpl_iter_new(run, RN_TPL_ITER_STRING);
        iter->string = value.string;
        return iter;
    case RN_VALUE_LIST:
    case RN_VALUE_TUPLE:
        iter = rn_tpl_iter_new(run, RN_TPL_ITER_LIST);
        iter->list = value.list;
        return iter;
    case RN_VALUE_DICT:
        iter = rn_tpl_iter_new(run, RN_TPL_ITER_DICT);
        iter->dict = value.dict;
        return iter;
    case RN_VALUE_OBJECT:
        return object_iter(run, value);
    default:
        return NULL;
    }
}

struct rn_tpl_iter *rn_tpl_iter_of(struct rn_run *run, struct rn_value value)
{
    struct rn_tpl_iter *iter = rn_tpl_iter_try(run, value);

    if (iter == NULL)
        rn_tpl_fail(run, "'%s' object is not iterable", rn_tpl_type_name(value));
    return iter;
}

static struct rn_value view_item(struct rn_run *run, const struct rn_tpl_view_object *view, size_t at)
{
    const struct rn_dict_entry *entry = &view->dict->entries[at];
    struct rn_list *pair;

    if (view->kind != RN_TPL_VIEW_ITEMS)
        return view->kind == RN_TPL_VIEW_KEYS ? entry->key : entry->value;
    pair = rn_list_new(&run->arena, 2);
    rn_list_push(&run->arena, pair, entry->key);
    rn_list_push(&run->arena, pair, entry->value);
    return rn_tuple_value(pair);
}

static bool next_of_loop(struct rn_run *run, struct rn_tpl_iter *iter, struct rn_value *out)
{
    struct rn_list *pair;
    struct rn_value item;

    if (!rn_tpl_loop_next(run, iter->around, &item))
        return false;
    pair = rn_list_new(&run->arena, 2);
    rn_list_push(&run->arena, pair, item);
    rn_list_push(&run->arena, pair, rn_tpl_object_value(iter->around));
    *out = rn_tuple_value(pair);
    return true;
}

static bool next_char(struct rn_run *run, struct rn_tpl_iter *iter, struct rn_value *out)
{
    size_t n;

    if (iter->at == iter->string->n)
        return false;
    n = rn_utf8_length((unsigned char)iter->string->bytes[iter->at]);
    *out = rn_string_value(
        rn_str_marked(&run->arena, rn_str_slice(&run->arena, iter->string, iter->at, iter->at + n), false));
    iter->at += n;
    return true;
}

/* A target's value as the loop filter hands it on: tuples are made anew. */
static struct rn_value target_value(struct rn_run *run, const struct rn_tpl_node *target)
{
    struct rn_list *items;
    uint32_t i;

    if (target->kind != RN_TPL_NODE_TUPLE)
        return *rn_tpl_slot(run->env, target->ref);
    items = rn_list_new(&run->arena, target->n_items);
    for (i = 0; i < target->n_items; i++)
        rn_list_push(&run->arena, items, target_value(run, target->items[i]));
    return rn_tuple_value(items);
}

static bool next_tested(struct rn_run *run, struct rn_tpl_iter *iter, struct rn_value *out)
{
    struct rn_tpl_env *env = run->env;
    struct rn_value item;
    bool passed = false;

    run->env = iter->env;
    if (!iter->started)
        rn_tpl_enter_frame(run, &iter->loop->test_frame);
    iter->started = true;
    while (!passed && rn_tpl_iter_next(run, iter->inner, &item)) {
        rn_tpl_assign(run, iter->loop->test_target, item);
        passed = rn_tpl_truth(run, rn_tpl_eval(run, iter->loop->test));
        if (passed)
            *out = target_value(run, iter->loop->test_target);
    }
    run->env = env;
    return passed;
}

static struct rn_value by_path(struct rn_run *run, const struct rn_tpl_iter *iter, struct rn_value item)
{
    return rn_tpl_follow_path(run, iter->path, item, iter->or_else);
}

/* map's and select's arguments are looked at when the first item is asked for, and only if there may be one. */
static void start_generator(struct rn_run *run, struct rn_tpl_iter *iter)
{
    iter->started = true;
    if (iter->kind == RN_TPL_ITER_LAZY) {
        iter->list = iter->make(run, iter->source, &iter->call);
        return;
    }
    if (!rn_tpl_truth(run, iter->source)) {
        iter->inner = rn_tpl_iter_new(run, RN_TPL_ITER_EMPTY);
        return;
    }
    if (iter->kind == RN_TPL_ITER_MAP)
        rn_tpl_prepare_map(run, iter);
    else
        rn_tpl_prepare_select(run, iter);
    iter->inner = rn_tpl_iter_of(run, iter->source);
}

static bool next_mapped(struct rn_run *run, struct rn_tpl_iter *iter, struct rn_value *out)
{
    struct rn_value item;

    if (!rn_tpl_iter_next(run, iter->inner, &item))
        return false;
    *out =
        iter->builtin != NULL ? rn_tpl_builtin_call(run, iter->builtin, item, &iter->call) : by_path(run, iter, item);
    return true;
}

static bool next_selected(struct rn_run *run, struct rn_tpl_iter *iter, struct rn_value *out)
{
    struct rn_value item, tested;

    while (rn_tpl_iter_next(run, iter->inner, &item)) {
        tested = iter->by_attribute ? by_path(run, iter, item) : item;
        if (iter->builtin != NULL)
            tested = rn_tpl_builtin_call(run, iter->builtin, tested, &iter->call);
        if (rn_tpl_truth(run, tested) == iter->negate)
            continue;
        *out = item;
        return true;
    }
    return false;
}

static bool next_item(struct rn_run *run, struct rn_tpl_iter *iter, struct rn_value *out)
{
    switch (iter->kind) {
    case RN_TPL_ITER_LIST:
    case RN_TPL_ITER_LAZY:
        if (iter->at >= iter->list->n)
            return false;
        *out = iter->list->items[iter->at++];
        return true;
    case RN_TPL_ITER_REVERSED:
        if (iter->at >= iter->list->n)
            return false;
        *out = iter->list->items[iter->list->n - ++iter->at];
        return true;
    case RN_TPL_ITER_STRING:
        return next_char(run, iter, out);
    case RN_TPL_ITER_DICT:
        if (iter->at >= iter->dict->n)
            return false;
        *out = iter->dict->entries[iter->at++].key;
        return true;
    case RN_TPL_ITER_RANGE:
        if ((int64_t)iter->at >= iter->range->n)
            return false;
        *out = rn_int(iter->range->start + (int64_t)iter->at++ * iter->range->step);
        return true;
    case RN_TPL_ITER_VIEW:
        if (iter->at >= iter->view->dict->n)
            return false;
        *out = view_item(run, iter->view, iter->at++);
        return true;
    case RN_TPL_ITER_LOOP:
        return next_of_loop(run, iter, out);
    case RN_TPL_ITER_LOOP_TEST:
        return next_tested(run, iter, out);
    case RN_TPL_ITER_MAP:
        return next_mapped(run, iter, out);
    case RN_TPL_ITER_SELECT:
        return next_selected(run, iter, out);
    default:
        return false;
    }
}

bool rn_tpl_iter_next(struct rn_run *run, struct rn_tpl_iter *iter, struct rn_value *out)
{
    bool more;

    rn_step(&run->arena, 1);
    if (iter->kind < RN_TPL_ITER_LOOP_TEST)
        return next_item(run, iter, out);
    rn_enter(&run->arena);
    if (!iter->started && iter->kind != RN_TPL_ITER_LOOP_TEST)
        start_generator(run, iter);
    more = next_item(run, iter, out);
    rn_leave(&run->arena);
    return more;
}

struct rn_list *rn_tpl_list_of(struct rn_run *run, struct rn_value value)
{
    int64_t length = rn_tpl_length(run, value);
    struct rn_list *list = rn_list_new(&run->arena, length > 0 ? (size_t)length : 0);
    struct rn_tpl_iter *iter = rn_tpl_iter_of(run, value);
    struct rn_value item;

    while (rn_tpl_iter_next(run, iter, &item))
        rn_list_push(&run->arena, list, item);
    return list;
}

static int64_t object_length(struct rn_run *run, struct rn_value value)
{
    switch (value.object->kind) {
    case RN_TPL_OBJECT_RANGE:
        return ((struct rn_tpl_range_object *)value.object)->n;
    case RN_TPL_OBJECT_VIEW:
        return (int64_t)((struct rn_tpl_view_object *)value.object)->dict->n;
    case RN_TPL_OBJECT_LOOP:
        return rn_tpl_loop_length(run, (struct rn_tpl_loop_object *)value.object);
    default:
        return -1;
    }
}

int64_t rn_tpl_length(struct rn_run *run, struct rn_value value)
{
    switch (value.kind) {
    case RN_VALUE_UNDEFINED:
        return 0;
    case RN_VALUE_STRING:
        return (int64_t)value.string->chars;
    case RN_VALUE_LIST:
    case RN_VALUE_TUPLE:
        return (int64_t)value.list->n;
    case RN_VALUE_DICT:
        return (int64_t)value.dict->n;
    case RN_VALUE_OBJECT:
        return object_length(run, value);
    default:
        return -1;
    }
}
