/* What Python's operators do with values: truth, arithmetic, order, membership. Integers have 64 bits here: what
 * goes beyond is an error, where Python would go on. */
#define _GNU_SOURCE /* memmem */
#include <math.h>
#include <string.h>

#include "text/template/run.h"

_Noreturn void rn_tpl_fail_undefined(struct rn_run *run, struct rn_value value)
{
    if (value.why == NULL || value.why->n == 0)
        rn_tpl_fail(run, "the value is undefined");
    rn_tpl_fail(run, "%.*s", (int)(value.why->n < 150 ? value.why->n : 150), value.why->bytes);
}

const char *rn_tpl_type_name(struct rn_value value)
{
    static const char *const names[] = {"Undefined", "NoneType", "bool",  "int",  "float",
                                        "str",       "list",     "tuple", "dict", "object"};
    static const char *const objects[] = {"Macro",  "function", "method", "Namespace", "LoopContext",
                                          "Joiner", "Cycler",   "range",  "dict view", "generator"};

    return value.kind == RN_VALUE_OBJECT ? objects[value.object->kind] : names[value.kind];
}

bool rn_tpl_truth(struct rn_run *run, struct rn_value value)
{
    int64_t length;

    switch (value.kind) {
    case RN_VALUE_UNDEFINED:
    case RN_VALUE_NONE:
        return false;
    case RN_VALUE_BOOL:
        return value.boolean;
    case RN_VALUE_INT:
        return value.integer != 0;
    case RN_VALUE_FLOAT:
        return value.real != 0;
    default:
        length = rn_tpl_length(run, value);
        return length != 0; /* what has no length is true */
    }
}

int64_t rn_tpl_want_int(struct rn_run *run, struct rn_value value, const char *what)
{
    if (value.kind == RN_VALUE_UNDEFINED)
        rn_tpl_fail_undefined(run, value);
    if (value.kind != RN_VALUE_INT && value.kind != RN_VALUE_BOOL)
        rn_tpl_fail(run, "%s must be an integer, not %s", what, rn_tpl_type_name(value));
    return value.kind == RN_VALUE_BOOL ? value.boolean : value.integer;
}

const struct rn_str *rn_tpl_want_string(struct rn_run *run, struct rn_value value, const char *what)
{
    if (!rn_tpl_is_string(value))
        rn_tpl_fail(run, "%s must be a string, not %s", what, rn_tpl_type_name(value));
    return value.string;
}

static bool is_int(struct rn_value value)
{
    return value.kind == RN_VALUE_INT || value.kind == RN_VALUE_BOOL;
}

static bool is_number(struct rn_value value)
{
    return is_int(value) || value.kind == RN_VALUE_FLOAT;
}

static int64_t integer_of(struct rn_value value)
{
    return value.kind == RN_VALUE_BOOL ? value.boolean : value.integer;
}

static double real_of(struct rn_value value)
{
    return value.kind == RN_VALUE_FLOAT ? value.real : (double)integer_of(value);
}

static bool is_list(struct rn_value value)
{
    return value.kind == RN_VALUE_LIST || value.kind == RN_VALUE_TUPLE;
}

_Noreturn static void bad_operands(struct rn_run *run, const char *op, struct rn_value a, struct rn_value b)
{
    if (a.kind == RN_VALUE_UNDEFINED)
        rn_tpl_fail_undefined(run, a);
    if (b.kind == RN_VALUE_UNDEFINED)
        rn_tpl_fail_undefined(run, b);
    rn_tpl_fail(run, "unsupported operand types for %s: '%s' and '%s'", op, rn_tpl_type_name(a), rn_tpl_type_name(b));
}

/* `value` by its address: the call that computes it is an argument too. */
static struct rn_value checked(struct rn_run *run, bool overflow, const int64_t *value)
{
    if (overflow)
        rn_tpl_fail(run, "an integer beyond 64 bits");
    return rn_int(*value);
}

/* ---- Integers and floats ---- */

static int64_t floor_div(struct rn_run *run, int64_t a, int64_t b, int64_t *rest)
{
    int64_t quotient;

    if (b == 0)
        rn_tpl_fail(run, "division by zero");
    if (b == -1) {
        *rest = 0;
        return checked(run, __builtin_sub_overflow((int64_t)0, a, &quotient), &quotient).integer;
    }
    quotient = a / b;
    *rest = a % b;
    if (*rest != 0 && (*rest < 0) != (b < 0)) {
        quotient--;
        *rest += b;
    }
    return quotient;
}

static struct rn_value int_power(struct rn_run *run, int64_t base, int64_t exponent)
{
    int64_t result = 1;
    bool overflow = false;

    if (exponent < 0) {
        if (base == 0)
            rn_tpl_fail(run, "zero to a negative power");
        return rn_float(pow((double)base, (double)exponent));
    }
    while (exponent > 0) {
        if (exponent & 1)
            overflow = overflow || __builtin_mul_overflow(result, base, &result);
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
            overflow = true;
            break;
        }
    }
    return checked(run, overflow, &result);
}

static struct rn_value int_binary(struct rn_run *run, enum rn_tpl_op op, int64_t a, int64_t b)
{
    int64_t result, rest;

    switch (op) {
    case RN_TPL_OP_ADD:
        return checked(run, __builtin_add_overflow(a, b, &result), &result);
    case RN_TPL_OP_SUB:
        return checked(run, __builtin_sub_overflow(a, b, &result), &result);
    case RN_TPL_OP_MUL:
        return checked(run, __builtin_mul_overflow(a, b, &result), &result);
    case RN_TPL_OP_DIV:
        if (b == 0)
            rn_tpl_fail(run, "division by zero");
        return rn_float((double)((long double)a / (long double)b));
    case RN_TPL_OP_FLOORDIV:
        return rn_int(floor_div(run, a, b, &rest));
    case RN_TPL_OP_MOD:
        if (b == -1)
            return rn_int(0);
        floor_div(run, a, b, &rest);
        return rn_int(rest);
    default:
        return int_power(run, a, b);
    }
}

/* Python's divmod of floats. */
static double float_divmod(double a, double b, double *rest)
{
    double mod = fmod(a, b), div = (a - mod) / b, floored;

    if (mod != 0) {
        if ((b < 0) != (mod < 0)) {
            mod += b;
            div -= 1;
        }
    } else {
        mod = copysign(0.0, b);
    }
    *rest = mod;
    if (div == 0)
        return copysign(0.0, a / b);
    floored = floor(div);
    return div - floored > 0.5 ? floored + 1 : floored;
}

static struct rn_value float_power(struct rn_run *run, double a, double b)
{
    double result;

    if (a == 0 && b < 0)
        rn_tpl_fail(run, "zero to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
        rn_tpl_fail(run, "a complex number");
    result = pow(a, b);
    if (isinf(result) && isfinite(a) && isfinite(b))
        rn_tpl_fail(run, "numerical result out of range");
    return rn_float(result);
}

static struct rn_value float_binary(struct rn_run *run, enum rn_tpl_op op, double a, double b)
{
    double rest;

    if (b == 0 && (op == RN_TPL_OP_DIV || op == RN_TPL_OP_FLOORDIV || op == RN_TPL_OP_MOD))
        rn_tpl_fail(run, "float division by zero");
    switch (op) {
    case RN_TPL_OP_ADD:
        return rn_float(a + b);
    case RN_TPL_OP_SUB:
        return rn_float(a - b);
    case RN_TPL_OP_MUL:
        return rn_float(a * b);
    case RN_TPL_OP_DIV:
        return rn_float(a / b);
    case RN_TPL_OP_FLOORDIV:
        return rn_float(float_divmod(a, b, &rest));
    case RN_TPL_OP_MOD:
        float_divmod(a, b, &rest);
        return rn_float(rest);
    default:
        return float_power(run, a, b);
    }
}

struct rn_value rn_tpl_negate(struct rn_run *run, struct rn_value a, bool minus)
{
    int64_t result;

    if (a.kind == RN_VALUE_FLOAT)
        return rn_float(minus ? -a.real : a.real);
    if (a.kind == RN_VALUE_UNDEFINED)
        rn_tpl_fail_undefined(run, a);
    if (!is_int(a))
        rn_tpl_fail(run, "bad operand type for unary %c: '%s'", minus ? '-' : '+', rn_tpl_type_name(a));
    if (!minus)
        return rn_int(integer_of(a));
    return checked(run, __builtin_sub_overflow((int64_t)0, integer_of(a), &result), &result);
}

/* ---- Sequences ---- */

static struct rn_value concat_strings(struct rn_run *run, struct rn_value a, struct rn_value b)
{
    bool markup = a.string->markup || b.string->markup;
    const struct rn_str *left = markup ? rn_tpl_escape(run, a) : a.string,
                        *right = markup ? rn_tpl_escape(run, b) : b.string;

    return rn_string_value(rn_str_marked(&run->arena, rn_str_concat(&run->arena, left, right), markup));
}

static struct rn_value concat_lists(struct rn_run *run, struct rn_value a, struct rn_value b)
{
    size_t n;
    struct rn_list *list;

    if (!rn_add_size(a.list->n, b.list->n, &n))
        rn_tpl_fail(run, "a list too long");
    rn_step(&run->arena, n);
    list = rn_list_new(&run->arena, n);
    if (a.list->n > 0)
        memcpy(list->items, a.list->items, a.list->n * sizeof *list->items);
    if (b.list->n > 0)
        memcpy(list->items + a.list->n, b.list->items, b.list->n * sizeof *list->items);
    list->n = n;
    return a.kind == RN_VALUE_LIST ? rn_list_value(list) : rn_tuple_value(list);
}

static struct rn_value repeat(struct rn_run *run, struct rn_value of, int64_t times)
{
    uint64_t n = times > 0 ? (uint64_t)times : 0, total;
    struct rn_list *list;
    struct rn_sb sb;
    size_t i;

    if (__builtin_mul_overflow(n, (uint64_t)(of.kind == RN_VALUE_STRING ? of.string->n : of.list->n), &total))
        rn_tpl_fail(run, "a repetition too long");
    rn_step(&run->arena, total); /* before the memory is asked for */
    if (of.kind == RN_VALUE_STRING) {
        rn_sb_init(&sb, &run->arena);
        rn_sb_repeat(&sb, of.string, n);
        return rn_string_value(rn_str_marked(&run->arena, rn_sb_done(&sb), of.string->markup));
    }
    list = rn_list_new(&run->arena, total);
    for (i = 0; i < total; i++)
        list->items[i] = of.list->items[i % of.list->n];
    list->n = total;
    return of.kind == RN_VALUE_LIST ? rn_list_value(list) : rn_tuple_value(list);
}

static bool is_repeatable(struct rn_value value)
{
    return rn_tpl_is_string(value) || is_list(value);
}

struct rn_value rn_tpl_binary(struct rn_run *run, enum rn_tpl_op op, struct rn_value a, struct rn_value b)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};

    if (is_int(a) && is_int(b))
        return int_binary(run, op, integer_of(a), integer_of(b));
    if (is_number(a) && is_number(b))
        return float_binary(run, op, real_of(a), real_of(b));
    if (op == RN_TPL_OP_MOD && rn_tpl_is_string(a))
        return rn_string_value(rn_tpl_format_percent(run, a.string, b));
    if (op == RN_TPL_OP_ADD && rn_tpl_is_string(a) && rn_tpl_is_string(b))
        return concat_strings(run, a, b);
    if (op == RN_TPL_OP_ADD && is_list(a) && a.kind == b.kind)
        return concat_lists(run, a, b);
    if (op == RN_TPL_OP_MUL && is_repeatable(a) && is_int(b))
        return repeat(run, a, integer_of(b));
    if (op == RN_TPL_OP_MUL && is_int(a) && is_repeatable(b))
        return repeat(run, b, integer_of(a));
    bad_operands(run, names[op], a, b);
}

/* ---- Order ---- */

/* An order of an integer and a float that loses nothing: -1, 0, 1; 2 if the float is no number. */
static int order_mixed(int64_t a, double b)
{
    double whole;

    if (isnan(b))
        return 2;
    if (b >= 0x1p63)
        return -1;
    if (b < -0x1p63)
        return 1;
    whole = trunc(b);
    if (a != (int64_t)whole)
        return a < (int64_t)whole ? -1 : 1;
    return (b < whole) - (b > whole);
}

static int order_numbers(struct rn_value a, struct rn_value b)
{
    int order;

    if (is_int(a) && is_int(b))
        return (integer_of(a) > integer_of(b)) - (integer_of(a) < integer_of(b));
    if (is_int(a))
        return order_mixed(integer_of(a), real_of(b));
    if (is_int(b)) {
        order = order_mixed(integer_of(b), real_of(a));
        return order == 2 ? 2 : -order;
    }
    if (isnan(a.real) || isnan(b.real))
        return 2;
    return (a.real > b.real) - (a.real < b.real);
}

static bool accepts(enum rn_tpl_op op, int order)
{
    if (order == 2)
        return false;
    return op == RN_TPL_OP_LT   ? order < 0
           : op == RN_TPL_OP_LE ? order <= 0
           : op == RN_TPL_OP_GT ? order > 0
                                : order >= 0;
}

static bool compare_lists(struct rn_run *run, enum rn_tpl_op op, const struct rn_list *a, const struct rn_list *b)
{
    size_t i, n = a->n < b->n ? a->n : b->n;
    bool result;

    for (i = 0; i < n && rn_value_equal(&run->arena, a->items[i], b->items[i]); i++)
        ;
    if (i == n)
        return accepts(op, (a->n > b->n) - (a->n < b->n));
    rn_enter(&run->arena);
    result = rn_tpl_compare(run, op, a->items[i], b->items[i]);
    rn_leave(&run->arena);
    return result;
}

bool rn_tpl_compare(struct rn_run *run, enum rn_tpl_op op, struct rn_value a, struct rn_value b)
{
    static const char *const names[] = {[RN_TPL_OP_EQ] = "==", [RN_TPL_OP_NE] = "!=", [RN_TPL_OP_GT] = ">",
                                        [RN_TPL_OP_GE] = ">=", [RN_TPL_OP_LT] = "<",  [RN_TPL_OP_LE] = "<="};

    if (op == RN_TPL_OP_EQ || op == RN_TPL_OP_NE)
        return rn_value_equal(&run->arena, a, b) == (op == RN_TPL_OP_EQ);
    rn_step(&run->arena, 1);
    if (is_number(a) && is_number(b))
        return accepts(op, order_numbers(a, b));
    if (rn_tpl_is_string(a) && rn_tpl_is_string(b)) {
        rn_step(&run->arena, (a.string->n < b.string->n ? a.string->n : b.string->n) / 16);
        return accepts(op, rn_str_compare(a.string, b.string));
    }
    if (is_list(a) && a.kind == b.kind)
        return compare_lists(run, op, a.list, b.list);
    bad_operands(run, names[op], a, b);
}

/* Merge sort. `pair` is room for n of each. */
static void merge(struct rn_run *run, struct rn_value *keys, struct rn_value *items, size_t half, size_t n,
                  struct rn_value *room, bool reverse)
{
    size_t left = 0, right = half, out = 0;

    memcpy(room, keys, n * sizeof *keys);
    memcpy(room + n, items, n * sizeof *items);
    while (out < n) {
        bool take_right =
            left == half || (right < n && rn_tpl_compare(run, RN_TPL_OP_LT, reverse ? room[left] : room[right],
                                                         reverse ? room[right] : room[left]));
        size_t from = take_right ? right++ : left++;

        keys[out] = room[from];
        items[out++] = room[n + from];
    }
}

static void sort_range(struct rn_run *run, struct rn_value *keys, struct rn_value *items, size_t n,
                       struct rn_value *room, bool reverse)
{
    size_t half = n / 2;

    if (n < 2)
        return;
    sort_range(run, keys, items, half, room, reverse);
    sort_range(run, keys + half, items + half, n - half, room, reverse);
    rn_step(&run->arena, 2 * n);
    merge(run, keys, items, half, n, room, reverse);
}

void rn_tpl_sort(struct rn_run *run, struct rn_value *keys, struct rn_value *items, size_t n, bool reverse)
{
    struct rn_value *room = rn_arena_take(&run->arena, 2 * n, sizeof *room);

    sort_range(run, keys, items, n, room, reverse);
}

/* ---- Membership ---- */

static bool in_string(struct rn_run *run, const struct rn_str *s, struct rn_value item)
{
    if (!rn_tpl_is_string(item))
        rn_tpl_fail(run, "'in <string>' requires string as left operand, not %s", rn_tpl_type_name(item));
    return rn_str_find(&run->arena, s, 0, s->n, item.string) != RN_NOWHERE;
}

static bool in_items(struct rn_run *run, struct rn_value container, struct rn_value item)
{
    struct rn_tpl_iter *iter = rn_tpl_iter_of(run, container);
    struct rn_value other;

    while (rn_tpl_iter_next(run, iter, &other))
        if (rn_value_equal(&run->arena, other, item))
            return true;
    return false;
}

bool rn_tpl_contains(struct rn_run *run, struct rn_value container, struct rn_value item)
{
    if (rn_tpl_is_string(container))
        return in_string(run, container.string, item);
    if (container.kind == RN_VALUE_DICT)
        return rn_dict_find(&run->arena, container.dict, item) != NULL;
    if (rn_tpl_is_object(container, RN_TPL_OBJECT_VIEW) &&
        ((struct rn_tpl_view_object *)container.object)->kind == RN_TPL_VIEW_KEYS)
        return rn_dict_find(&run->arena, ((struct rn_tpl_view_object *)container.object)->dict, item) != NULL;
    return in_items(run, container, item);
}
