/* The tests of "x is ...". */
#include <string.h>

#include "text/template/run.h"

#define RN_TEST(name) \
    static struct rn_value test_##name(struct rn_run *run, struct rn_value self, const struct rn_tpl_call *call)

#define SIMPLE_TEST(name, expression) \
    RN_TEST(name)                     \
    {                                 \
        (void)run;                    \
        (void)call;                   \
        return rn_bool(expression);   \
    }

static bool is_kind(struct rn_value value, enum rn_value_kind kind)
{
    return value.kind == kind;
}

static bool is_number(struct rn_value value)
{
    return value.kind == RN_VALUE_INT || value.kind == RN_VALUE_FLOAT || value.kind == RN_VALUE_BOOL;
}

static bool is_sequence(struct rn_value value)
{
    if (value.kind == RN_VALUE_OBJECT)
        return value.object->kind == RN_TPL_OBJECT_RANGE;
    return value.kind == RN_VALUE_UNDEFINED || value.kind >= RN_VALUE_STRING;
}

static bool is_iterable(struct rn_run *run, struct rn_value value)
{
    return rn_tpl_iter_try(run, value) != NULL;
}

static bool is_callable(struct rn_value value)
{
    if (value.kind == RN_VALUE_OBJECT)
        return value.object->kind == RN_TPL_OBJECT_MACRO || value.object->kind == RN_TPL_OBJECT_FUNCTION ||
               value.object->kind == RN_TPL_OBJECT_METHOD || value.object->kind == RN_TPL_OBJECT_JOINER ||
               value.object->kind == RN_TPL_OBJECT_LOOP;
    return value.kind == RN_VALUE_UNDEFINED; /* has __call__, which raises */
}

SIMPLE_TEST(defined, !is_kind(self, RN_VALUE_UNDEFINED))
SIMPLE_TEST(undefined, is_kind(self, RN_VALUE_UNDEFINED))
SIMPLE_TEST(none, is_kind(self, RN_VALUE_NONE))
SIMPLE_TEST(boolean, is_kind(self, RN_VALUE_BOOL))
SIMPLE_TEST(is_true, is_kind(self, RN_VALUE_BOOL) && self.boolean)
SIMPLE_TEST(is_false, is_kind(self, RN_VALUE_BOOL) && !self.boolean)
SIMPLE_TEST(integer, is_kind(self, RN_VALUE_INT))
SIMPLE_TEST(float, is_kind(self, RN_VALUE_FLOAT))
SIMPLE_TEST(number, is_number(self))
SIMPLE_TEST(string, is_kind(self, RN_VALUE_STRING))
SIMPLE_TEST(mapping, is_kind(self, RN_VALUE_DICT))
SIMPLE_TEST(sequence, is_sequence(self))
SIMPLE_TEST(iterable, is_iterable(run, self))
SIMPLE_TEST(callable, is_callable(self))
SIMPLE_TEST(escaped, is_kind(self, RN_VALUE_STRING) && self.string->markup)
SIMPLE_TEST(in, rn_tpl_contains(run, call->args[0], self))
SIMPLE_TEST(eq, rn_tpl_compare(run, RN_TPL_OP_EQ, self, call->args[0]))
SIMPLE_TEST(ne, rn_tpl_compare(run, RN_TPL_OP_NE, self, call->args[0]))
SIMPLE_TEST(gt, rn_tpl_compare(run, RN_TPL_OP_GT, self, call->args[0]))
SIMPLE_TEST(ge, rn_tpl_compare(run, RN_TPL_OP_GE, self, call->args[0]))
SIMPLE_TEST(lt, rn_tpl_compare(run, RN_TPL_OP_LT, self, call->args[0]))
SIMPLE_TEST(le, rn_tpl_compare(run, RN_TPL_OP_LE, self, call->args[0]))

/* The remainder by `by` is `rest`. */
static struct rn_value remainder_is(struct rn_run *run, struct rn_value self, struct rn_value by, int64_t rest)
{
    return rn_bool(rn_value_equal(&run->arena, rn_tpl_binary(run, RN_TPL_OP_MOD, self, by), rn_int(rest)));
}

RN_TEST(odd)
{
    (void)call;
    return remainder_is(run, self, rn_int(2), 1);
}

RN_TEST(even)
{
    (void)call;
    return remainder_is(run, self, rn_int(2), 0);
}

RN_TEST(divisibleby)
{
    return remainder_is(run, self, call->args[0], 0);
}

static struct rn_value string_is(struct rn_run *run, struct rn_value self, const char *method)
{
    const struct rn_str name = {.bytes = method, .n = strlen(method)};
    const struct rn_tpl_call none = {0};

    return rn_tpl_builtin_call(run, rn_tpl_str_method(&name), rn_string_value(rn_tpl_str_value(run, self)), &none);
}

RN_TEST(lower)
{
    (void)call;
    return string_is(run, self, "islower");
}

RN_TEST(upper)
{
    (void)call;
    return string_is(run, self, "isupper");
}

/* Identity. Of numbers and strings it is the equality of same types: what Python makes of it is an accident. */
RN_TEST(sameas)
{
    struct rn_value other = call->args[0];

    if (self.kind != other.kind)
        return rn_bool(false);
    if (self.kind == RN_VALUE_LIST || self.kind == RN_VALUE_TUPLE)
        return rn_bool(self.list == other.list);
    if (self.kind == RN_VALUE_DICT)
        return rn_bool(self.dict == other.dict);
    return rn_bool(rn_value_equal(&run->arena, self, other));
}

/* As a member of a dict would be looked up: what has no hash is an error. */
static void check_name(struct rn_run *run, struct rn_value value)
{
    rn_dict_find(&run->arena, run->globals, value);
}

RN_TEST(filter)
{
    (void)call;
    check_name(run, self);
    return rn_bool(rn_tpl_is_string(self) && rn_tpl_filter_find(self.string) != NULL);
}

RN_TEST(test)
{
    (void)call;
    check_name(run, self);
    return rn_bool(rn_tpl_is_string(self) && rn_tpl_test_find(self.string) != NULL);
}

static const struct rn_tpl_builtin tests[] = {
    {"defined", "", test_defined, 0},
    {"string", "", test_string, 0},
    {"none", "", test_none, 0},
    {"mapping", "", test_mapping, 0},
    {"iterable", "", test_iterable, 0},
    {"sequence", "", test_sequence, 0},
    {"undefined", "", test_undefined, 0},
    {"true", "", test_is_true, 0},
    {"false", "", test_is_false, 0},
    {"boolean", "", test_boolean, 0},
    {"integer", "", test_integer, 0},
    {"float", "", test_float, 0},
    {"number", "", test_number, 0},
    {"odd", "", test_odd, 0},
    {"even", "", test_even, 0},
    {"divisibleby", "num", test_divisibleby, 0},
    {"lower", "", test_lower, 0},
    {"upper", "", test_upper, 0},
    {"callable", "", test_callable, 0},
    {"sameas", "other", test_sameas, 0},
    {"escaped", "", test_escaped, 0},
    {"filter", "", test_filter, 0},
    {"test", "", test_test, 0},
    {"in", "seq", test_in, 0},
    {"==", "/b", test_eq, 0},
    {"eq", "/b", test_eq, 0},
    {"equalto", "/b", test_eq, 0},
    {"!=", "/b", test_ne, 0},
    {"ne", "/b", test_ne, 0},
    {">", "/b", test_gt, 0},
    {"gt", "/b", test_gt, 0},
    {"greaterthan", "/b", test_gt, 0},
    {">=", "/b", test_ge, 0},
    {"ge", "/b", test_ge, 0},
    {"<", "/b", test_lt, 0},
    {"lt", "/b", test_lt, 0},
    {"lessthan", "/b", test_lt, 0},
    {"<=", "/b", test_le, 0},
    {"le", "/b", test_le, 0},
};

const struct rn_tpl_builtin *rn_tpl_test_find(const struct rn_str *name)
{
    return rn_tpl_builtin_find(tests, sizeof tests / sizeof tests[0], name);
}
