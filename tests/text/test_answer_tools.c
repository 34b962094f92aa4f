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

/* Schemas whose parts refer to each other in more ways than anyone could count: what they say is looked for in a
 * bounded number of steps. One that did not end would run into the test's limit. */
static void test_hostile_schemas(void **state)
{
    static const char *const keywords[] = {"allOf", "anyOf", "oneOf"};
    static const char answer[] = "<function=f>\n<parameter=z>\n94110\n</parameter>\n</function>";
    size_t size = 100000, at, i, k;
    char *tools = malloc(size);
    struct rn_heap heap;
    struct parts parts;

    (void)state;
    assert_non_null(tools);
    rn_heap_init(&heap, NULL);
    for (i = 0; i < 6; i++) {
        struct reading reading = {
            .format = rn_answer_format_of(CODER, strlen(CODER)), .heap = &heap, .prompt = "", .tools = tools};

        at = (size_t)snprintf(tools, size,
                              "[{\"name\":\"f\",\"parameters\":{%s\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"%s\":[",
                              i < 3 ? "" : "\"properties\":{\"z\":{\"$ref\":\"#/$defs/a\"}},", keywords[i % 3]);
        for (k = 0; k < 1000; k++)
            at += (size_t)snprintf(tools + at, size - at, "%s{\"$ref\":\"#/$defs/a\"}", k == 0 ? "" : ",");
        at += (size_t)snprintf(tools + at, size - at, "]}}}}]");
        assert_true(at < size);
        reading.tools_bytes = at;
        parts_read(&reading, answer, sizeof answer - 1, CUT_WHOLE, 0, &parts);
        assert_int_equal(parts_ends(&parts), 1);
        parts_fini(&parts);
    }
    free(tools);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_schemas), cmocka_unit_test(test_hostile_schemas)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
