/* What the schemas of tools say of arguments in markup, which carry no type (text/answer/tools.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer_samples.h"
#include "text/answer/tools.h"

#define MM "]<]minimax[>["

/* The arguments of the one call in the answer. */
static void expect(const char *source, const char *tools, const char *answer, const char *arguments)
{
    struct rn_heap heap;
    struct reading reading = {.format = rn_answer_format_of(source, strlen(source)),
                              .heap = &heap,
                              .prompt = "",
                              .tools = tools,
                              .tools_bytes = strlen(tools),
                              .finished = true};
    struct parts parts;
    char *text;
    size_t n;

    rn_heap_init(&heap, NULL);
    parts_read(&reading, answer, strlen(answer), CUT_WHOLE, 0, &parts);
    assert_int_equal(parts_ends(&parts), 1);
    text = parts_text(&parts, RN_PART_TOOL_ARGUMENTS, 0, &n);
    if (strcmp(text, arguments) != 0)
        fail_msg("%s\n  gave     %s\n  expected %s", tools, text, arguments);
    free(text);
    parts_fini(&parts);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* What a schema says of an argument, however it says it: z is given as 94110. */
static void test_schemas(void **state)
{
#define S "{\"type\":\"string\"}"
#define PROPERTY(z, more) "{\"type\":\"object\",\"properties\":{\"z\":" z "}" more "}"
    static const struct {
        const char *parameters;
        bool text;
    } cases[] = {
        {PROPERTY(S, ""), true},
        {PROPERTY("{\"type\":\"integer\"}", ""), false},
        {PROPERTY("{}", ""), false},
        {PROPERTY("{\"allOf\":[" S "]}", ""), true},
        {PROPERTY("{\"allOf\":[{\"$ref\":\"#/$defs/Zip\"}],\"description\":\"x\"}", ",\"$defs\":{\"Zip\":" S "}"),
         true},
        {PROPERTY("{\"allOf\":[{},{\"type\":[\"string\",\"number\"]},{\"anyOf\":[" S ",{\"type\":\"null\"}]}]}", ""),
         true},
        {PROPERTY("{\"allOf\":[{\"type\":[\"string\",\"number\"]}]}", ""), false},
        {PROPERTY("{\"anyOf\":[{\"allOf\":[" S "]},{\"type\":\"null\"}]}", ""), true},
        {PROPERTY("{\"anyOf\":[" S ",{\"pattern\":\"x\"}]}", ""), false},
        {PROPERTY("{\"allOf\":[{\"enum\":[\"94110\",\"2\"]}],\"default\":\"2\"}", ""), true},
        {PROPERTY("{\"type\":\"string\",\"enum\":[1,94110]}", ""), true},
        {PROPERTY("{\"$ref\":\"#/$defs/Zip%20Code\"}", ",\"$defs\":{\"Zip Code\":" S "}"), true},
        {PROPERTY("{\"$ref\":\"#/$defs/a~1b~0c\"}", ",\"$defs\":{\"a/b~c\":" S "}"), true},
        {PROPERTY("{\"$ref\":\"#/prefixItems/1\"}", ",\"prefixItems\":[{}," S "]"), true},
        {PROPERTY("{\"$ref\":\"#/prefixItems/2\"}", ",\"prefixItems\":[{}," S "]"), false},
        {PROPERTY("{\"$ref\":\"#zip\"}", ",\"$defs\":{\"a\":{},\"b\":{\"$anchor\":\"zip\",\"type\":\"string\"}}"),
         true},
        {PROPERTY("{\"$ref\":\"#zip\"}", ",\"definitions\":{\"b\":{\"$id\":\"#zip\",\"type\":\"string\"}}"), true},
        {PROPERTY("{\"$ref\":\"#zip\"}", ",\"definitions\":{\"b\":{\"id\":\"#zip\",\"type\":\"string\"}}"), true},
        {PROPERTY("{\"$ref\":\"http://x/#/$defs/a\"}", ",\"$defs\":{\"a\":" S "}"), false},
        {PROPERTY("{\"$ref\":\"#/properties/z\"}", ""), false},
        {"{\"$ref\":\"#/$defs/P\",\"$defs\":{\"P\":" PROPERTY(S, "") "}}", true},
        {"{\"allOf\":[{\"required\":[\"z\"]}," PROPERTY(S, "") "]}", true},
        {"{\"allOf\":[" PROPERTY("{}", "") "," PROPERTY(S, "") "]}", true},
        {"{\"anyOf\":[" PROPERTY(S, "") ",{\"properties\":{\"y\":{}}}]}", true},
        {"{\"anyOf\":[" PROPERTY(S, "") "," PROPERTY("{\"type\":\"number\"}", "") "]}", false},
        {"{\"additionalProperties\":" S "}", true},
        {"{\"properties\":{\"y\":{}},\"additionalProperties\":" S "}", true},
        {PROPERTY("{\"type\":\"number\"}", ",\"additionalProperties\":" S), false},
        {"{\"allOf\":[" PROPERTY("{\"type\":\"number\"}", "") "],\"additionalProperties\":" S "}", false},
        {"{\"patternProperties\":{\"^z\":" S "},\"additionalProperties\":false}", true},
        {"{\"patternProperties\":{\"^z\":" S ",\"^y\":{\"type\":\"number\"}}}", false},
    };
    static const char nested[] =
        "[{\"name\":\"f\",\"parameters\":{\"allOf\":[" PROPERTY("{\"allOf\":[" S "]}", "") "]}}]";

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *expected = cases[i].text ? "{\"z\":\"94110\"}" : "{\"z\":94110}";
        char tools[1024];

        snprintf(tools, sizeof tools, "[{\"name\":\"f\",\"parameters\":%s}]", cases[i].parameters);
        expect(CODER, tools, "<function=f>\n<parameter=z>\n94110\n</parameter>\n</function>", expected);
        expect(GLM, tools, "<tool_call>f<arg_key>z</arg_key><arg_value>94110</arg_value></tool_call>", expected);
    }
    expect(MM "<tool_call>" MM "<invoke name=\"x\">", nested,
           MM "<invoke name=\"f\">" MM "<z>94110" MM "</z>" MM "</invoke>", "{\"z\":\"94110\"}");
#undef PROPERTY
#undef S
}

/* The look-ups in dictionaries that the library makes: the linker leads them here. */
static size_t n_look_ups;

struct rn_value __real_rn_dict_get(struct rn_value dict, const char *key, size_t n);
struct rn_value __real_rn_dict_at(struct rn_value dict, const char *key);
struct rn_value __wrap_rn_dict_get(struct rn_value dict, const char *key, size_t n);
struct rn_value __wrap_rn_dict_at(struct rn_value dict, const char *key);

struct rn_value __wrap_rn_dict_get(struct rn_value dict, const char *key, size_t n)
{
    n_look_ups++;
    return __real_rn_dict_get(dict, key, n);
}

struct rn_value __wrap_rn_dict_at(struct rn_value dict, const char *key)
{
    n_look_ups++;
    return __real_rn_dict_at(dict, key);
}

/* The parameters of f, read from {"name": "f", "parameters": ..}. */
static struct rn_value read_tool(struct rn_answer_tools *tools, struct rn_heap *heap, const char *json)
{
    struct rn_value function;

    rn_heap_init(heap, NULL);
    assert_int_equal(rn_answer_tools_read(tools, heap, json, strlen(json), NULL), RUNNEL_OK);
    function = rn_answer_tools_find(tools, "f", 1);
    assert_int_equal(function.kind, RN_VALUE_DICT);
    return function;
}

#define LOOKED_AT_MOST 1000 /* schemas, for one question: docs/ANSWERS.md */
#define LOOK_UPS_EACH 16    /* a schema has eight keywords that are asked for; then it may be a member of each kind */

/* Asks about z, for one schema of it, and of its items; all in a bounded number of look-ups. */
static void ask_hostile(const char *json)
{
    struct rn_answer_tools tools;
    struct rn_heap heap;
    struct rn_value function = read_tool(&tools, &heap, json), root = rn_dict_at(function, "parameters");

    for (int i = 0; i < 4; i++) {
        uint64_t steps = 0;
        uint32_t types = 0;

        n_look_ups = 0;
        if (i == 0)
            types = rn_answer_tools_types(function, "z", 1, &steps);
        else if (i == 1)
            types = rn_answer_tools_types_of(root, root, &steps);
        else if (i == 2)
            rn_answer_tools_member(root, root, "y", 1, &steps);
        else
            rn_answer_tools_item(root, root, &steps);
        assert_int_equal(types, 0);
        assert_true(steps <= LOOKED_AT_MOST);
        assert_true(n_look_ups <= LOOK_UPS_EACH * (steps + 1));
    }
    rn_answer_tools_fini(&tools);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Schemas whose parts refer to each other in more ways than anyone could count: what they say is looked for in a
 * bounded number of steps, and each step is a bounded number of look-ups. */
static void test_hostile_schemas(void **state)
{
    static const char *const keywords[] = {"allOf", "anyOf", "oneOf"};
    static const char *const begins[] = {"", "\"properties\":{\"z\":{\"$ref\":\"#/$defs/a\"}},",
                                         "\"properties\":{\"z\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"}]}},"};
    size_t size = 200000, at, i, k;
    char *tools = malloc(size);

    (void)state;
    assert_non_null(tools);
    for (i = 0; i < 18; i++) {
        at = (size_t)snprintf(tools, size,
                              "[{\"name\":\"f\",\"parameters\":{%s\"%s\":[{\"$ref\":\"#/$defs/a\"}],"
                              "\"$defs\":{\"a\":{\"%s\":[",
                              begins[i % 3], keywords[i / 6], keywords[i / 3 % 3]);
        for (k = 0; k < 5000; k++)
            at += (size_t)snprintf(tools + at, size - at, "%s%s", k == 0 ? "" : ",",
                                   i % 2 == 0 ? "{\"$ref\":\"#/$defs/a\"}" : "{}");
        at += (size_t)snprintf(tools + at, size - at, "]}}}}]");
        assert_true(at < size);
        ask_hostile(tools);
    }
    free(tools);
}

/* {"enum": n strings and the number 5} within `form`. */
static uint32_t types_of_enum(const char *form, size_t n)
{
    size_t size = 400000, at = 0, i;
    char *text = malloc(size), *json = malloc(size);
    struct rn_answer_tools tools;
    struct rn_heap heap;
    uint32_t types;

    assert_true(text != NULL && json != NULL);
    for (i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, size - at, "\"s%zu\",", i);
    snprintf(text + at, size - at, "5");
    snprintf(json, size, form, text);
    types = rn_answer_tools_types(read_tool(&tools, &heap, json), "z", 1, NULL);
    rn_answer_tools_fini(&tools);
    free(text);
    free(json);
    return types;
}

/* An enum says the types of all its values, or nothing where they are too many: never those of its first. */
static void test_long_enums(void **state)
{
#define Z(schema) "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"z\":" schema "}}}]"
    static const char alone[] = Z("{\"enum\":[%s]}"),
                      beside[] = Z("{\"allOf\":[{\"enum\":[%s]},{\"type\":\"string\"}]}"),
                      one[] = Z("{\"anyOf\":[{\"enum\":[%s]},{\"type\":\"null\"}]}");

    (void)state;
    assert_int_equal(types_of_enum(alone, 1), RN_SCHEMA_STRING | RN_SCHEMA_NUMBER);
    assert_int_equal(types_of_enum(alone, 1100), RN_SCHEMA_STRING | RN_SCHEMA_NUMBER);
    assert_int_equal(types_of_enum(one, 1100), RN_SCHEMA_STRING | RN_SCHEMA_NUMBER | RN_SCHEMA_NULL);
    assert_int_equal(types_of_enum(beside, 1100), RN_SCHEMA_STRING);
    assert_int_equal(types_of_enum(alone, 40000), 0);
    assert_int_equal(types_of_enum(one, 40000), 0);
#undef Z
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_schemas), cmocka_unit_test(test_hostile_schemas),
                                       cmocka_unit_test(test_long_enums)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
