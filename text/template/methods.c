/* The methods of list, tuple, dict and the objects of templates. Those that change a list or dict are known only to
 * be refused, as Jinja2's immutable sandbox does. */
#include "text/template/run.h"

typedef const struct rn_tpl_call *args_t;

/* ---- Sequences ---- */

static struct rn_value sequence_index(struct rn_run *run, struct rn_value self, args_t call)
{
    int64_t n = (int64_t)self.list->n, at[2] = {0, n}, i;

    for (i = 0; i < 2; i++) {
        if (rn_tpl_is_missing(call->args[1 + i]))
            continue;
        at[i] = rn_tpl_want_int(run, call->args[1 + i], "slice index");
        if (at[i] < 0)
            at[i] = at[i] + n < 0 ? 0 : at[i] + n;
    }
    for (i = at[0]; i < at[1] && i < n; i++)
        if (rn_value_equal(&run->arena, self.list->items[i], call->args[0]))
            return rn_int(i);
    rn_tpl_fail(run, "the value is not in the list");
}

static struct rn_value sequence_count(struct rn_run *run, struct rn_value self, args_t call)
{
    int64_t count = 0;
    size_t i;

    for (i = 0; i < self.list->n; i++)
        count += rn_value_equal(&run->arena, self.list->items[i], call->args[0]);
    return rn_int(count);
}

static struct rn_value list_copy(struct rn_run *run, struct rn_value self, args_t call)
{
    (void)call;
    return rn_list_value(rn_tpl_list_of(run, self));
}

static struct rn_value range_index(struct rn_run *run, struct rn_value self, args_t call)
{
    return sequence_index(run, rn_list_value(rn_tpl_list_of(run, self)), call);
}

static struct rn_value range_count(struct rn_run *run, struct rn_value self, args_t call)
{
    return sequence_count(run, rn_list_value(rn_tpl_list_of(run, self)), call);
}

static struct rn_value refused(struct rn_run *run, struct rn_value self, args_t call)
{
    (void)self;
    (void)call;
    rn_tpl_fail(run, "the method would change the value");
}

/* ---- Dicts ---- */

static struct rn_value view(struct rn_run *run, struct rn_value self, enum rn_tpl_view_kind kind)
{
    struct rn_tpl_view_object *object = rn_tpl_object_new(run, RN_TPL_OBJECT_VIEW, sizeof *object);

    object->kind = kind;
    object->dict = self.dict;
    return rn_tpl_object_value(object);
}

static struct rn_value dict_keys(struct rn_run *run, struct rn_value self, args_t call)
{
    (void)call;
    return view(run, self, RN_TPL_VIEW_KEYS);
}

static struct rn_value dict_values(struct rn_run *run, struct rn_value self, args_t call)
{
    (void)call;
    return view(run, self, RN_TPL_VIEW_VALUES);
}

static struct rn_value dict_items(struct rn_run *run, struct rn_value self, args_t call)
{
    (void)call;
    return view(run, self, RN_TPL_VIEW_ITEMS);
}

static struct rn_value dict_get(struct rn_run *run, struct rn_value self, args_t call)
{
    const struct rn_dict_entry *entry = rn_dict_find(&run->arena, self.dict, call->args[0]);

    if (entry != NULL)
        return entry->value;
    return rn_tpl_is_missing(call->args[1]) ? rn_none() : call->args[1];
}

static struct rn_value dict_copy(struct rn_run *run, struct rn_value self, args_t call)
{
    struct rn_dict *copy = rn_dict_new(&run->arena);
    size_t i;

    (void)call;
    for (i = 0; i < self.dict->n; i++)
        rn_dict_set(&run->arena, copy, self.dict->entries[i].key, self.dict->entries[i].value);
    return rn_dict_value(copy);
}

/* ---- Cyclers ---- */

static struct rn_value cycler_next(struct rn_run *run, struct rn_value self, args_t call)
{
    struct rn_tpl_cycler_object *cycler = (struct rn_tpl_cycler_object *)self.object;
    struct rn_value value = cycler->items->items[cycler->at];

    (void)run;
    (void)call;
    cycler->at = (cycler->at + 1) % cycler->items->n;
    return value;
}

static struct rn_value cycler_reset(struct rn_run *run, struct rn_value self, args_t call)
{
    (void)run;
    (void)call;
    ((struct rn_tpl_cycler_object *)self.object)->at = 0;
    return rn_none();
}

static struct rn_value float_is_integer(struct rn_run *run, struct rn_value self, args_t call)
{
    (void)run;
    (void)call;
    return rn_bool(self.real - self.real == 0 && self.real == __builtin_trunc(self.real));
}

static struct rn_value int_bit_length(struct rn_run *run, struct rn_value self, args_t call)
{
    int64_t value = self.kind == RN_VALUE_BOOL ? self.boolean : self.integer;
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;

    (void)run;
    (void)call;
    return rn_int(size == 0 ? 0 : 64 - __builtin_clzll(size));
}

static const struct rn_tpl_builtin list_methods[] = {
    {"index", "/value start? stop?", sequence_index, 0},
    {"count", "/value", sequence_count, 0},
    {"copy", "", list_copy, 0},
    {"append", "*", refused, RN_TPL_UNSAFE},
    {"clear", "*", refused, RN_TPL_UNSAFE},
    {"extend", "*", refused, RN_TPL_UNSAFE},
    {"insert", "*", refused, RN_TPL_UNSAFE},
    {"pop", "*", refused, RN_TPL_UNSAFE},
    {"remove", "*", refused, RN_TPL_UNSAFE},
    {"reverse", "*", refused, RN_TPL_UNSAFE},
    {"sort", "*", refused, RN_TPL_UNSAFE},
};
static const struct rn_tpl_builtin dict_methods[] = {
    {"get", "/key default?", dict_get, 0},
    {"items", "", dict_items, 0},
    {"keys", "", dict_keys, 0},
    {"values", "", dict_values, 0},
    {"copy", "", dict_copy, 0},
    {"clear", "*", refused, RN_TPL_UNSAFE},
    {"pop", "*", refused, RN_TPL_UNSAFE},
    {"popitem", "*", refused, RN_TPL_UNSAFE},
    {"setdefault", "*", refused, RN_TPL_UNSAFE},
    {"update", "*", refused, RN_TPL_UNSAFE},
};
static const struct rn_tpl_builtin cycler_methods[] = {{"next", "", cycler_next, 0}, {"reset", "", cycler_reset, 0}};
static const struct rn_tpl_builtin range_methods[] = {{"index", "/value", range_index, 0},
                                                      {"count", "/value", range_count, 0}};
static const struct rn_tpl_builtin float_methods[] = {{"is_integer", "", float_is_integer, 0}};
static const struct rn_tpl_builtin int_methods[] = {{"bit_length", "", int_bit_length, 0}};

#define FIND(table) rn_tpl_builtin_find(table, sizeof table / sizeof table[0], name)

const struct rn_tpl_builtin *rn_tpl_method(struct rn_value of, const struct rn_str *name)
{
    switch (of.kind) {
    case RN_VALUE_STRING:
        return rn_tpl_str_method(name);
    case RN_VALUE_LIST:
        return FIND(list_methods);
    case RN_VALUE_TUPLE: /* index and count alone */
        return rn_tpl_builtin_find(list_methods, 2, name);
    case RN_VALUE_DICT:
        return FIND(dict_methods);
    case RN_VALUE_FLOAT:
        return FIND(float_methods);
    case RN_VALUE_INT:
    case RN_VALUE_BOOL:
        return FIND(int_methods);
    case RN_VALUE_OBJECT:
        if (of.object->kind == RN_TPL_OBJECT_CYCLER)
            return FIND(cycler_methods);
        return of.object->kind == RN_TPL_OBJECT_RANGE ? FIND(range_methods) : NULL;
    default:
        return NULL;
    }
}
