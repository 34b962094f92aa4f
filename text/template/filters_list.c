/* Filters over sequences. Those that are generators in Jinja2 are lazy here too. */
#include <string.h>

#include "text/template/filters.h"

/* ---- Ends and lengths ---- */

RN_TPL_FILTER(length)
{
    int64_t length = rn_tpl_length(run, self);

    (void)call;
    if (length < 0)
        rn_tpl_fail(run, "object of type '%s' has no len()", rn_tpl_type_name(self));
    return rn_int(length);
}

RN_TPL_FILTER(list)
{
    (void)call;
    return rn_list_value(rn_tpl_list_of(run, self));
}

RN_TPL_FILTER(first)
{
    struct rn_value item;

    (void)call;
    return rn_tpl_iter_next(run, rn_tpl_iter_of(run, self), &item) ? item : rn_undefined();
}

static bool is_reversible(struct rn_value value)
{
    if (value.kind == RN_VALUE_OBJECT)
        return value.object->kind == RN_TPL_OBJECT_RANGE || value.object->kind == RN_TPL_OBJECT_VIEW;
    return value.kind == RN_VALUE_UNDEFINED || value.kind >= RN_VALUE_STRING;
}

RN_TPL_FILTER(last)
{
    struct rn_list *list;

    (void)call;
    if (!is_reversible(self))
        rn_tpl_fail(run, "'%s' object is not reversible", rn_tpl_type_name(self));
    if (rn_tpl_is_string(self) || self.kind == RN_VALUE_LIST || self.kind == RN_VALUE_TUPLE)
        return rn_tpl_length(run, self) == 0 ? rn_undefined() : rn_tpl_get_item(run, self, rn_int(-1));
    list = rn_tpl_list_of(run, self);
    return list->n == 0 ? rn_undefined() : list->items[list->n - 1];
}

RN_TPL_FILTER(reverse)
{
    struct rn_value part[3] = {rn_none(), rn_none(), rn_int(-1)};
    struct rn_tpl_iter *iter;

    (void)call;
    if (rn_tpl_is_string(self))
        return rn_tpl_get_slice(run, self, part);
    if (!is_reversible(self))
        return rn_tpl_get_slice(run, rn_list_value(rn_tpl_list_of(run, self)), part);
    iter = rn_tpl_iter_new(run, RN_TPL_ITER_REVERSED);
    iter->list = self.kind == RN_VALUE_LIST || self.kind == RN_VALUE_TUPLE ? self.list : rn_tpl_list_of(run, self);
    return rn_tpl_object_value(iter);
}

/* ---- Generators ---- */

static struct rn_value lazy(struct rn_run *run, struct rn_value self, const struct rn_tpl_call *call,
                            struct rn_list *(*make)(struct rn_run *run, struct rn_value source,
                                                    const struct rn_tpl_call *call))
{
    struct rn_tpl_iter *iter = rn_tpl_iter_new(run, RN_TPL_ITER_LAZY);

    iter->source = self;
    iter->call = *call;
    iter->make = make;
    return rn_tpl_object_value(iter);
}

static struct rn_list *make_items(struct rn_run *run, struct rn_value source, const struct rn_tpl_call *call)
{
    const struct rn_tpl_call none = {0};
    struct rn_value view;

    (void)call;
    if (source.kind == RN_VALUE_UNDEFINED)
        return rn_list_new(&run->arena, 0);
    if (source.kind != RN_VALUE_DICT)
        rn_tpl_fail(run, "Can only get item pairs from a mapping.");
    view = rn_tpl_get_attribute(run, source, rn_str_of(&run->arena, "items"), NULL);
    return rn_tpl_list_of(run, rn_tpl_call_value(run, view, &none));
}

RN_TPL_FILTER(items)
{
    return lazy(run, self, call, make_items);
}

static struct rn_list *make_batches(struct rn_run *run, struct rn_value source, const struct rn_tpl_call *call)
{
    struct rn_list *batches = rn_list_new(&run->arena, 4), *batch = rn_list_new(&run->arena, 4);
    struct rn_tpl_iter *iter = rn_tpl_iter_of(run, source);
    struct rn_value count = call->args[0], fill = call->args[1], item;

    while (rn_tpl_iter_next(run, iter, &item)) {
        if (rn_value_equal(&run->arena, rn_int((int64_t)batch->n), count)) {
            rn_list_push(&run->arena, batches, rn_list_value(batch));
            batch = rn_list_new(&run->arena, 4);
        }
        rn_list_push(&run->arena, batch, item);
    }
    if (batch->n == 0)
        return batches;
    if (!rn_tpl_is_missing(fill) && fill.kind != RN_VALUE_NONE &&
        rn_tpl_compare(run, RN_TPL_OP_LT, rn_int((int64_t)batch->n), count)) {
        int64_t n = rn_tpl_want_int(run, count, "linecount");

        rn_step(&run->arena, (uint64_t)n);
        while ((int64_t)batch->n < n)
            rn_list_push(&run->arena, batch, fill);
    }
    rn_list_push(&run->arena, batches, rn_list_value(batch));
    return batches;
}

RN_TPL_FILTER(batch)
{
    return lazy(run, self, call, make_batches);
}

static struct rn_list *make_slices(struct rn_run *run, struct rn_value source, const struct rn_tpl_call *call)
{
    struct rn_list *all = rn_tpl_list_of(run, source), *slices = rn_list_new(&run->arena, 4);
    int64_t n = rn_tpl_want_int(run, call->args[0], "slices"), each, extra, i;
    bool fill = !rn_tpl_is_missing(call->args[1]) && call->args[1].kind != RN_VALUE_NONE;
    size_t at = 0, k;

    if (n == 0)
        rn_tpl_fail(run, "division by zero");
    each = n > 0 ? (int64_t)all->n / n : 0;
    extra = n > 0 ? (int64_t)all->n % n : 0;
    for (i = 0; i < n; i++) {
        struct rn_list *slice = rn_list_new(&run->arena, (size_t)each + 1);

        rn_step(&run->arena, (uint64_t)each + 1);
        for (k = 0; k < (size_t)(each + (i < extra)); k++)
            rn_list_push(&run->arena, slice, all->items[at++]);
        if (fill && i >= extra)
            rn_list_push(&run->arena, slice, call->args[1]);
        rn_list_push(&run->arena, slices, rn_list_value(slice));
    }
    return slices;
}

RN_TPL_FILTER(slice)
{
    return lazy(run, self, call, make_slices);
}

/* ---- map, select, reject ---- */

static struct rn_value take_named(const struct rn_tpl_call *call, const char *name, size_t *taken)
{
    size_t i;

    for (i = 0; i < call->n_named; i++)
        if (rn_str_is(call->named[i].name, name)) {
            ++*taken;
            return call->named[i].value;
        }
    return rn_tpl_missing();
}

/* The call without its first `n` arguments. */
static struct rn_tpl_call rest_of(const struct rn_tpl_call *call, size_t n)
{
    struct rn_tpl_call rest = *call;

    rest.args += n;
    rest.n -= n;
    return rest;
}

/* What no table has is told when there is an item for it. */
static struct rn_value call_unknown(struct rn_run *run, struct rn_value self, const struct rn_tpl_call *call)
{
    (void)self;
    (void)call;
    rn_tpl_fail(run, "no filter or test of that name");
}

static const struct rn_tpl_builtin unknown = {"unknown", "*", call_unknown, 0};

void rn_tpl_prepare_map(struct rn_run *run, struct rn_tpl_iter *iter)
{
    struct rn_value name;
    size_t taken = 0;

    iter->or_else = rn_none();
    if (iter->call.n == 0) {
        struct rn_value attribute = take_named(&iter->call, "attribute", &taken);

        if (taken == 0)
            rn_tpl_fail(run, "map requires a filter argument");
        iter->or_else = take_named(&iter->call, "default", &taken);
        if (taken < iter->call.n_named)
            rn_tpl_fail(run, "map: unexpected keyword argument");
        iter->path = rn_tpl_attribute_path(run, attribute);
        return;
    }
    name = iter->call.args[0];
    iter->builtin = rn_tpl_is_string(name) ? rn_tpl_filter_find(name.string) : NULL;
    if (iter->builtin == NULL)
        iter->builtin = &unknown;
    iter->call = rest_of(&iter->call, 1);
}

void rn_tpl_prepare_select(struct rn_run *run, struct rn_tpl_iter *iter)
{
    size_t skip = iter->by_attribute;

    iter->or_else = rn_none();
    if (iter->by_attribute) {
        if (iter->call.n == 0)
            rn_tpl_fail(run, "missing parameter for attribute name");
        iter->path = rn_tpl_attribute_path(run, iter->call.args[0]);
    }
    if (iter->call.n <= skip)
        return;
    iter->builtin = rn_tpl_is_string(iter->call.args[skip]) ? rn_tpl_test_find(iter->call.args[skip].string) : NULL;
    if (iter->builtin == NULL)
        iter->builtin = &unknown;
    iter->call = rest_of(&iter->call, skip + 1);
}

static struct rn_value generator(struct rn_run *run, enum rn_tpl_iter_kind kind, struct rn_value self,
                                 const struct rn_tpl_call *call, bool by_attribute, bool negate)
{
    struct rn_tpl_iter *iter = rn_tpl_iter_new(run, kind);

    iter->source = self;
    iter->call = *call;
    iter->by_attribute = by_attribute;
    iter->negate = negate;
    return rn_tpl_object_value(iter);
}

RN_TPL_FILTER(map)
{
    return generator(run, RN_TPL_ITER_MAP, self, call, false, false);
}

RN_TPL_FILTER(select)
{
    return generator(run, RN_TPL_ITER_SELECT, self, call, false, false);
}

RN_TPL_FILTER(reject)
{
    return generator(run, RN_TPL_ITER_SELECT, self, call, false, true);
}

RN_TPL_FILTER(selectattr)
{
    return generator(run, RN_TPL_ITER_SELECT, self, call, true, false);
}

RN_TPL_FILTER(rejectattr)
{
    return generator(run, RN_TPL_ITER_SELECT, self, call, true, true);
}

/* ---- Order ---- */

static bool flag(struct rn_run *run, struct rn_value value)
{
    return !rn_tpl_is_missing(value) && rn_tpl_truth(run, value);
}

/* sorted()'s argument: an integer or a bool. */
static bool reverse(struct rn_run *run, struct rn_value value)
{
    return !rn_tpl_is_missing(value) && rn_tpl_want_int(run, value, "reverse") != 0;
}

static struct rn_value fold(struct rn_run *run, struct rn_value key, bool case_sensitive)
{
    if (case_sensitive || !rn_tpl_is_string(key))
        return key;
    return rn_string_value(rn_str_case(&run->arena, key.string, RN_CASE_LOWER));
}

/* Paths of "a,b.x". */
static struct rn_list **attribute_paths(struct rn_run *run, struct rn_value attribute, size_t *n)
{
    const struct rn_str *comma = rn_str_of(&run->arena, ",");
    struct rn_value by = rn_string_value(comma);
    struct rn_list *names = rn_list_new(&run->arena, 1), **paths;
    size_t i;

    if (rn_tpl_is_string(attribute))
        names = rn_tpl_call_str_method(run, attribute, "split", &by, 1).list;
    else
        rn_list_push(&run->arena, names, attribute);
    paths = rn_arena_take(&run->arena, names->n, sizeof(struct rn_list *));
    for (i = 0; i < names->n; i++)
        paths[i] = rn_tpl_attribute_path(run, names->items[i]);
    *n = names->n;
    return paths;
}

RN_TPL_FILTER(sort)
{
    bool case_sensitive = flag(run, call->args[1]);
    struct rn_list *list = rn_tpl_list_of(run, self), *key, **paths;
    struct rn_value *keys = rn_arena_take(&run->arena, list->n, sizeof *keys);
    size_t n, i, k;

    paths = attribute_paths(run, call->args[2], &n);
    for (i = 0; i < list->n; i++) {
        key = rn_list_new(&run->arena, n);
        for (k = 0; k < n; k++)
            rn_list_push(&run->arena, key,
                         fold(run, rn_tpl_follow_path(run, paths[k], list->items[i], rn_none()), case_sensitive));
        keys[i] = rn_list_value(key);
    }
    rn_tpl_sort(run, keys, list->items, list->n, reverse(run, call->args[0]));
    return rn_list_value(list);
}

RN_TPL_FILTER(dictsort)
{
    bool case_sensitive = flag(run, call->args[0]);
    bool by_value = !rn_tpl_is_missing(call->args[1]) && rn_value_is(call->args[1], "value");
    struct rn_list *list;
    struct rn_value *keys;
    size_t i;

    if (!rn_tpl_is_missing(call->args[1]) && !by_value && !rn_value_is(call->args[1], "key"))
        rn_tpl_fail(run, "You can only sort by either \"key\" or \"value\"");
    if (self.kind == RN_VALUE_UNDEFINED)
        rn_tpl_fail_undefined(run, self);
    list = make_items(run, self, call);
    keys = rn_arena_take(&run->arena, list->n, sizeof *keys);
    for (i = 0; i < list->n; i++)
        keys[i] = fold(run, list->items[i].list->items[by_value], case_sensitive);
    rn_tpl_sort(run, keys, list->items, list->n, reverse(run, call->args[2]));
    return rn_list_value(list);
}

static struct rn_value extreme(struct rn_run *run, struct rn_value self, const struct rn_tpl_call *call,
                               enum rn_tpl_op op)
{
    struct rn_list *path = rn_tpl_attribute_path(run, call->args[1]);
    bool case_sensitive = flag(run, call->args[0]);
    struct rn_tpl_iter *iter = rn_tpl_iter_of(run, self);
    struct rn_value best, best_key, item, key;

    if (!rn_tpl_iter_next(run, iter, &best))
        return rn_undefined();
    best_key = fold(run, rn_tpl_follow_path(run, path, best, rn_none()), case_sensitive);
    while (rn_tpl_iter_next(run, iter, &item)) {
        key = fold(run, rn_tpl_follow_path(run, path, item, rn_none()), case_sensitive);
        if (!rn_tpl_compare(run, op, key, best_key))
            continue;
        best = item;
        best_key = key;
    }
    return best;
}

RN_TPL_FILTER(min)
{
    return extreme(run, self, call, RN_TPL_OP_LT);
}

RN_TPL_FILTER(max)
{
    return extreme(run, self, call, RN_TPL_OP_GT);
}

static struct rn_list *make_unique(struct rn_run *run, struct rn_value source, const struct rn_tpl_call *call)
{
    struct rn_list *path = rn_tpl_attribute_path(run, call->args[1]), *list = rn_list_new(&run->arena, 4);
    bool case_sensitive = flag(run, call->args[0]);
    struct rn_dict *seen = rn_dict_new(&run->arena);
    struct rn_tpl_iter *iter = rn_tpl_iter_of(run, source);
    struct rn_value item;

    while (rn_tpl_iter_next(run, iter, &item)) {
        struct rn_value key = fold(run, rn_tpl_follow_path(run, path, item, rn_none()), case_sensitive);

        if (rn_dict_find(&run->arena, seen, key) != NULL)
            continue;
        rn_dict_set(&run->arena, seen, key, rn_none());
        rn_list_push(&run->arena, list, item);
    }
    return list;
}

RN_TPL_FILTER(unique)
{
    return lazy(run, self, call, make_unique);
}

static struct rn_value group_of(struct rn_run *run, struct rn_value grouper, struct rn_list *members)
{
    struct rn_list *pair = rn_list_new(&run->arena, 2);

    rn_list_push(&run->arena, pair, grouper);
    rn_list_push(&run->arena, pair, rn_list_value(members));
    pair->named = true;
    return rn_tuple_value(pair);
}

RN_TPL_FILTER(groupby)
{
    struct rn_list *path = rn_tpl_attribute_path(run, call->args[0]), *list = rn_tpl_list_of(run, self);
    bool case_sensitive = flag(run, call->args[2]);
    struct rn_list *groups = rn_list_new(&run->arena, 4), *members = NULL;
    struct rn_value *keys = rn_arena_take(&run->arena, list->n, sizeof *keys), grouper;
    size_t i;

    for (i = 0; i < list->n; i++)
        keys[i] = fold(run, rn_tpl_follow_path(run, path, list->items[i], call->args[1]), case_sensitive);
    rn_tpl_sort(run, keys, list->items, list->n, false);
    for (i = 0; i < list->n; i++) {
        if (i == 0 || !rn_value_equal(&run->arena, keys[i - 1], keys[i])) {
            members = rn_list_new(&run->arena, 4);
            grouper = case_sensitive ? keys[i] : rn_tpl_follow_path(run, path, list->items[i], call->args[1]);
            rn_list_push(&run->arena, groups, group_of(run, grouper, members));
        }
        rn_list_push(&run->arena, members, list->items[i]);
    }
    return rn_list_value(groups);
}

RN_TPL_FILTER(sum)
{
    struct rn_list *path = rn_tpl_attribute_path(run, call->args[0]);
    struct rn_value total = rn_tpl_is_missing(call->args[1]) ? rn_int(0) : call->args[1], item;
    struct rn_tpl_iter *iter;

    if (rn_tpl_is_string(total))
        rn_tpl_fail(run, "sum() can't sum strings");
    iter = rn_tpl_iter_of(run, self);
    while (rn_tpl_iter_next(run, iter, &item))
        total = rn_tpl_binary(run, RN_TPL_OP_ADD, total, rn_tpl_follow_path(run, path, item, rn_none()));
    return total;
}
