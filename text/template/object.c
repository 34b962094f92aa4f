/* Attributes, items and slices, with the rules of Jinja2's immutable sandbox: x.a is the attribute a, else the item
 * "a", else undefined; what begins and ends with "__", and methods that change a list or dict, are undefined in
 * a way that says why when they are used. */
#include <string.h>

#include "text/template/run.h"

struct rn_value rn_tpl_bind_method(struct rn_run *run, const struct rn_tpl_builtin *builtin, struct rn_value self)
{
    struct rn_tpl_function_object *method = rn_tpl_object_new(run, RN_TPL_OBJECT_METHOD, sizeof *method);

    method->builtin = builtin;
    method->self = self;
    return rn_tpl_object_value(method);
}

static struct rn_value unsafe(struct rn_run *run, struct rn_value of, const struct rn_str *name)
{
    struct rn_value value = rn_undefined();
    struct rn_sb sb;

    rn_sb_init(&sb, &run->arena);
    rn_sb_text(&sb, "access to attribute '");
    rn_sb_str(&sb, name);
    rn_sb_text(&sb, "' of '");
    rn_sb_text(&sb, rn_tpl_type_name(of));
    rn_sb_text(&sb, "' object is unsafe");
    value.why = rn_sb_done(&sb);
    return value;
}

static bool is_dunder(const struct rn_str *name)
{
    return name->n > 4 && memcmp(name->bytes, "__", 2) == 0 && memcmp(name->bytes + name->n - 2, "__", 2) == 0;
}

static bool namespace_attribute(struct rn_run *run, const struct rn_tpl_namespace_object *namespace,
                                const struct rn_str *name, struct rn_value *out)
{
    const struct rn_dict_entry *entry = rn_dict_find(&run->arena, namespace->attrs, rn_string_value(name));

    if (entry != NULL)
        *out = entry->value;
    return entry != NULL;
}

static bool cycler_attribute(struct rn_run *run, struct rn_tpl_cycler_object *cycler, const struct rn_str *name,
                             struct rn_value *out)
{
    if (rn_str_is(name, "current"))
        *out = cycler->items->items[cycler->at];
    else if (rn_str_is(name, "items"))
        *out = rn_tuple_value(cycler->items);
    else if (rn_str_is(name, "pos"))
        *out = rn_int((int64_t)cycler->at);
    else {
        const struct rn_tpl_builtin *method = rn_tpl_method(rn_tpl_object_value(cycler), name);

        if (method == NULL)
            return false;
        *out = rn_tpl_bind_method(run, method, rn_tpl_object_value(cycler));
    }
    return true;
}

static bool macro_attribute(struct rn_run *run, const struct rn_tpl_macro *macro, const struct rn_str *name,
                            struct rn_value *out)
{
    uint32_t i;

    if (rn_str_is(name, "name")) {
        *out = macro->name == NULL ? rn_none() : rn_string_value(macro->name);
    } else if (rn_str_is(name, "arguments")) {
        struct rn_list *names = rn_list_new(&run->arena, macro->n_params);

        for (i = 0; i < macro->n_params; i++)
            rn_list_push(&run->arena, names, rn_string_value(macro->params[i]->name));
        *out = rn_tuple_value(names);
    } else if (rn_str_is(name, "catch_kwargs")) {
        *out = rn_bool(macro->kwargs);
    } else if (rn_str_is(name, "catch_varargs")) {
        *out = rn_bool(macro->varargs);
    } else if (rn_str_is(name, "caller")) {
        *out = rn_bool(macro->caller);
    } else {
        return false;
    }
    return true;
}

static bool joiner_attribute(const struct rn_tpl_joiner_object *joiner, const struct rn_str *name, struct rn_value *out)
{
    if (rn_str_is(name, "sep"))
        *out = joiner->separator;
    else if (rn_str_is(name, "used"))
        *out = rn_bool(joiner->used);
    else
        return false;
    return true;
}

static bool range_attribute(const struct rn_tpl_range_object *range, const struct rn_str *name, struct rn_value *out)
{
    if (rn_str_is(name, "start"))
        *out = rn_int(range->start);
    else if (rn_str_is(name, "stop"))
        *out = rn_int(range->stop);
    else if (rn_str_is(name, "step"))
        *out = rn_int(range->step);
    else
        return false;
    return true;
}

static bool number_attribute(struct rn_value of, const struct rn_str *name, struct rn_value *out)
{
    bool real = of.kind == RN_VALUE_FLOAT;

    if (rn_str_is(name, "real") || (!real && rn_str_is(name, "numerator")))
        *out = real ? of : rn_int(of.kind == RN_VALUE_BOOL ? of.boolean : of.integer);
    else if (rn_str_is(name, "imag"))
        *out = real ? rn_float(0) : rn_int(0);
    else if (!real && rn_str_is(name, "denominator"))
        *out = rn_int(1);
    else
        return false;
    return true;
}

static bool object_attribute(struct rn_run *run, struct rn_value of, const struct rn_str *name, struct rn_value *out)
{
    switch (of.object->kind) {
    case RN_TPL_OBJECT_NAMESPACE:
        return namespace_attribute(run, (struct rn_tpl_namespace_object *)of.object, name, out);
    case RN_TPL_OBJECT_LOOP:
        return rn_tpl_loop_attribute(run, (struct rn_tpl_loop_object *)of.object, name, out);
    case RN_TPL_OBJECT_CYCLER:
        return cycler_attribute(run, (struct rn_tpl_cycler_object *)of.object, name, out);
    case RN_TPL_OBJECT_JOINER:
        return joiner_attribute((struct rn_tpl_joiner_object *)of.object, name, out);
    case RN_TPL_OBJECT_RANGE:
        return range_attribute((struct rn_tpl_range_object *)of.object, name, out);
    case RN_TPL_OBJECT_MACRO:
        return macro_attribute(run, ((struct rn_tpl_macro_object *)of.object)->macro, name, out);
    default:
        return false;
    }
}

bool rn_tpl_own_attribute(struct rn_run *run, struct rn_value of, const struct rn_str *name, struct rn_value *out)
{
    const struct rn_tpl_builtin *method;

    if (of.kind == RN_VALUE_UNDEFINED && !is_dunder(name))
        rn_tpl_fail_undefined(run, of);
    if (is_dunder(name)) {
        *out = unsafe(run, of, name);
        return !rn_tpl_is_object(of, RN_TPL_OBJECT_NAMESPACE);
    }
    if (of.kind == RN_VALUE_OBJECT && object_attribute(run, of, name, out))
        return true;
    if ((of.kind == RN_VALUE_INT || of.kind == RN_VALUE_BOOL || of.kind == RN_VALUE_FLOAT) &&
        number_attribute(of, name, out))
        return true;
    if (of.kind == RN_VALUE_TUPLE && of.list->named && (rn_str_is(name, "grouper") || rn_str_is(name, "list"))) {
        *out = of.list->items[rn_str_is(name, "list")];
        return true;
    }
    method = rn_tpl_method(of, name);
    if (method == NULL)
        return false;
    *out = (method->flags & RN_TPL_UNSAFE) ? unsafe(run, of, name) : rn_tpl_bind_method(run, method, of);
    return true;
}

struct rn_value rn_tpl_get_attribute(struct rn_run *run, struct rn_value of, const struct rn_str *name,
                                     const struct rn_str *why)
{
    struct rn_value value = rn_undefined();
    const struct rn_dict_entry *entry;

    if (rn_tpl_own_attribute(run, of, name, &value))
        return value;
    if (of.kind == RN_VALUE_DICT) {
        entry = rn_dict_find(&run->arena, of.dict, rn_string_value(name));
        if (entry != NULL)
            return entry->value;
    }
    value.why = why;
    return value;
}

/* ---- Items ---- */

static bool is_index(struct rn_value value)
{
    return value.kind == RN_VALUE_INT || value.kind == RN_VALUE_BOOL;
}

/* The item at an index of a sequence; false: there is none. */
static bool sequence_item(struct rn_run *run, struct rn_value of, int64_t index, struct rn_value *out)
{
    int64_t n = rn_tpl_length(run, of);
    size_t at;

    if (index < 0)
        index += n;
    if (index < 0 || index >= n)
        return false;
    if (of.kind == RN_VALUE_STRING) {
        at = rn_str_offset(&run->arena, of.string, (size_t)index);
        n = rn_utf8_length((unsigned char)of.string->bytes[at]);
        *out = rn_string_value(
            rn_str_marked(&run->arena, rn_str_slice(&run->arena, of.string, at, at + (size_t)n), of.string->markup));
    } else if (of.kind == RN_VALUE_OBJECT) {
        const struct rn_tpl_range_object *range = (struct rn_tpl_range_object *)of.object;

        *out = rn_int(range->start + index * range->step);
    } else {
        *out = of.list->items[index];
    }
    return true;
}

static bool is_sequence(struct rn_value of)
{
    return of.kind == RN_VALUE_STRING || of.kind == RN_VALUE_LIST || of.kind == RN_VALUE_TUPLE ||
           rn_tpl_is_object(of, RN_TPL_OBJECT_RANGE);
}

/* Can it be a key? A tuple can if all of its items can. */
static bool is_hashable(struct rn_value value)
{
    size_t i;

    if (value.kind == RN_VALUE_LIST || value.kind == RN_VALUE_DICT)
        return false;
    if (value.kind == RN_VALUE_TUPLE)
        for (i = 0; i < value.list->n; i++)
            if (value.list->items[i].kind == RN_VALUE_TUPLE || !is_hashable(value.list->items[i]))
                return false;
    return true;
}

struct rn_value rn_tpl_get_item(struct rn_run *run, struct rn_value of, struct rn_value key)
{
    struct rn_value value = rn_undefined();

    if (of.kind == RN_VALUE_UNDEFINED)
        rn_tpl_fail_undefined(run, of);
    if (of.kind == RN_VALUE_DICT && is_hashable(key)) {
        const struct rn_dict_entry *entry = rn_dict_find(&run->arena, of.dict, key);

        if (entry != NULL)
            return entry->value;
    }
    if (is_index(key) && is_sequence(of) &&
        sequence_item(run, of, key.kind == RN_VALUE_BOOL ? key.boolean : key.integer, &value))
        return value;
    if (rn_tpl_is_string(key) && rn_tpl_own_attribute(run, of, key.string, &value))
        return value;
    if (rn_tpl_is_string(key)) {
        struct rn_sb sb;

        rn_sb_init(&sb, &run->arena);
        rn_sb_text(&sb, "item '");
        rn_sb_str(&sb, key.string->n <= 60 ? key.string : rn_str_slice(&run->arena, key.string, 0, 0));
        rn_sb_text(&sb, "' is undefined");
        value = rn_undefined();
        value.why = rn_sb_done(&sb);
    }
    return value;
}

/* ---- Slices ---- */

/* A bound of a slice within [low, high], counted from the end if negative. */
static int64_t clamp(int64_t at, int64_t n, int64_t low, int64_t high)
{
    if (at < 0)
        at += n;
    return at < low ? low : at > high ? high : at;
}

/* Where a slice of n items begins and ends, its step and the number of its items. */
static void resolve(struct rn_run *run, const struct rn_value part[3], int64_t n, int64_t bound[2], int64_t *step,
                    int64_t *count)
{
    int64_t low, high;
    int i;

    for (i = 0; i < 3; i++)
        if (part[i].kind != RN_VALUE_NONE && !is_index(part[i]))
            rn_tpl_fail(run, "slice indices must be integers or None");
    *step = part[2].kind == RN_VALUE_NONE ? 1 : rn_tpl_want_int(run, part[2], "slice step");
    if (*step == 0)
        rn_tpl_fail(run, "slice step cannot be zero");
    low = *step < 0 ? -1 : 0;
    high = *step < 0 ? n - 1 : n;
    bound[0] = *step < 0 ? high : low;
    bound[1] = *step < 0 ? low : high;
    for (i = 0; i < 2; i++)
        if (part[i].kind != RN_VALUE_NONE)
            bound[i] = clamp(rn_tpl_want_int(run, part[i], "slice index"), n, low, high);
    if (*step > 0)
        *count = bound[1] > bound[0] ? (bound[1] - bound[0] - 1) / *step + 1 : 0;
    else
        *count = bound[0] > bound[1] ? (int64_t)(((uint64_t)(bound[0] - bound[1]) - 1) / (0 - (uint64_t)*step)) + 1 : 0;
}

static struct rn_value slice_range(struct rn_run *run, const struct rn_tpl_range_object *range, const int64_t bound[2],
                                   int64_t step, int64_t count)
{
    struct rn_tpl_range_object *slice = rn_tpl_object_new(run, RN_TPL_OBJECT_RANGE, sizeof *slice);

    slice->start = (int64_t)((uint64_t)range->start + (uint64_t)bound[0] * (uint64_t)range->step);
    slice->stop = (int64_t)((uint64_t)range->start + (uint64_t)bound[1] * (uint64_t)range->step);
    slice->step = (int64_t)((uint64_t)range->step * (uint64_t)step);
    slice->n = count;
    return rn_tpl_object_value(slice);
}

static struct rn_value slice_string(struct rn_run *run, const struct rn_str *s, int64_t start, int64_t step,
                                    int64_t count)
{
    const struct rn_str *part;
    struct rn_sb sb;
    size_t *offsets, at = 0, i;

    if (step == 1) {
        size_t from = rn_str_offset(&run->arena, s, (size_t)start), to;

        to = s->chars == s->n ? from + (size_t)count : rn_str_offset(&run->arena, s, (size_t)(start + count));
        part = rn_str_slice(&run->arena, s, from, to);
        return rn_string_value(rn_str_marked(&run->arena, part, s->markup));
    }
    rn_sb_init(&sb, &run->arena);
    offsets = rn_arena_take(&run->arena, s->chars + 1, sizeof *offsets);
    for (i = 0; i < s->chars; i++) {
        offsets[i] = at;
        at += rn_utf8_length((unsigned char)s->bytes[at]);
    }
    offsets[i] = at;
    rn_step(&run->arena, s->chars);
    for (; count > 0; count--, start += count > 0 ? step : 0)
        rn_sb_slice(&sb, s, offsets[start], offsets[start + 1]);
    return rn_string_value(rn_str_marked(&run->arena, rn_sb_done(&sb), s->markup));
}

struct rn_value rn_tpl_get_slice(struct rn_run *run, struct rn_value of, const struct rn_value part[3])
{
    int64_t bound[2], step, count, i;
    struct rn_list *list;

    if (of.kind == RN_VALUE_UNDEFINED)
        rn_tpl_fail_undefined(run, of);
    if (!is_sequence(of))
        rn_tpl_fail(run, "'%s' object can not be sliced", rn_tpl_type_name(of));
    resolve(run, part, rn_tpl_length(run, of), bound, &step, &count);
    if (of.kind == RN_VALUE_STRING)
        return slice_string(run, of.string, bound[0], step, count);
    if (of.kind == RN_VALUE_OBJECT)
        return slice_range(run, (struct rn_tpl_range_object *)of.object, bound, step, count);
    list = rn_list_new(&run->arena, (size_t)count);
    rn_step(&run->arena, (uint64_t)count);
    for (i = 0; i < count; i++)
        rn_list_push(&run->arena, list, of.list->items[bound[0] + i * step]);
    return of.kind == RN_VALUE_LIST ? rn_list_value(list) : rn_tuple_value(list);
}

/* ---- Attribute arguments of filters ---- */

static struct rn_value path_part(struct rn_run *run, const struct rn_str *part)
{
    int64_t number;
    size_t i;

    for (i = 0; i < part->n && part->bytes[i] >= '0' && part->bytes[i] <= '9'; i++)
        ;
    if (part->n == 0 || i < part->n)
        return rn_string_value(part);
    number = 0;
    for (i = 0; i < part->n; i++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, part->bytes[i] - '0', &number))
            rn_tpl_fail(run, "an integer beyond 64 bits");
    return rn_int(number);
}

struct rn_list *rn_tpl_attribute_path(struct rn_run *run, struct rn_value attribute)
{
    struct rn_list *path = rn_list_new(&run->arena, 2);
    struct rn_str dot = {.bytes = ".", .n = 1, .chars = 1};
    const struct rn_str *s = attribute.string;
    size_t at = 0, end;

    if (attribute.kind == RN_VALUE_NONE || rn_tpl_is_missing(attribute))
        return path;
    if (!rn_tpl_is_string(attribute)) {
        rn_list_push(&run->arena, path, attribute);
        return path;
    }
    do {
        end = rn_str_find(&run->arena, s, at, s->n, &dot);
        if (end == RN_NOWHERE)
            end = s->n;
        rn_list_push(&run->arena, path, path_part(run, rn_str_slice(&run->arena, s, at, end)));
        at = end + 1;
    } while (at <= s->n);
    return path;
}

struct rn_value rn_tpl_follow_path(struct rn_run *run, const struct rn_list *path, struct rn_value item,
                                   struct rn_value or_else)
{
    size_t i;

    for (i = 0; i < path->n; i++) {
        item = rn_tpl_get_item(run, item, path->items[i]);
        if (item.kind == RN_VALUE_UNDEFINED && or_else.kind != RN_VALUE_NONE && !rn_tpl_is_missing(or_else))
            item = or_else;
    }
    return item;
}
