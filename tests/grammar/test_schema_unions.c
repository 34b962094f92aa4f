/* JSON Schema as grammars: unions of objects that refer to one another, as those of syntax trees and of tagged classes
 * do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/grammar/schema_judge.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static struct rn_heap heap;

struct expected {
    const char *text;
    bool accepted;
};

static void check(const char *schema, const struct expected *texts, size_t n)
{
    runnel_error error = {0};
    struct judge judge;

    if (judge_init(&judge, &heap, schema, strlen(schema), NULL, &error) != RUNNEL_OK)
        fail_msg("%.200s: %s", schema, error.message);
    for (size_t i = 0; i < n; i++)
        if (judge_accepts(&judge, texts[i].text, strlen(texts[i].text)) != texts[i].accepted)
            fail_msg("%.200s: %s %s", schema, texts[i].text, texts[i].accepted ? "is refused" : "is accepted");
    judge_fini(&judge);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* ---- Trees ---- */

#define TYPES 100u
#define NODE "{\"$ref\":\"#/$defs/node\"}"
#define DESCRIBED "{\"$ref\":\"#/$defs/node\",\"description\":\"on the left\"}"
#define WRAPPED "{\"allOf\":[{\"$ref\":\"#/$defs/node\"}]}"

/* Null, or an object of one of TYPES types with one to three nodes. What is referred to is made once, not once for each
 * reference. */
static void check_tree(const char *choice)
{
    static const struct expected trees[] = {
        {"null", true},
        {"{\"type\":\"t99\",\"a\":{\"type\":\"t7\",\"a\":null,\"c\":{\"type\":\"t8\",\"a\":null}},\"b\":null}", true},
        {"{\"type\":\"t100\",\"a\":null}", false},
        {"{\"type\":\"t1\",\"a\":true}", false},
        {"{\"type\":\"t1\",\"a\":null,\"b\":{\"type\":\"t1\"}}", false},
        {"{\"type\":\"t1\",\"a\":null,\"c\":[]}", false},
    };
    static char schema[65536];
    int n = snprintf(schema, sizeof schema,
                     "{\"$ref\":\"#/$defs/node\",\"$defs\":{\"node\":{\"%s\":[{\"type\":\"null\"}", choice);

    for (unsigned i = 0; i < TYPES; i++)
        n += snprintf(schema + n, sizeof schema - (size_t)n,
                      ",{\"type\":\"object\",\"properties\":{\"type\":{\"const\":\"t%u\"},\"a\":" NODE
                      ",\"b\":" DESCRIBED ",\"c\":" WRAPPED
                      "},\"required\":[\"type\",\"a\"],\"additionalProperties\":false}",
                      i);
    snprintf(schema + n, sizeof schema - (size_t)n, "]}}}");
    check(schema, trees, COUNT(trees));
}

static void test_any_of(void **state)
{
    (void)state;
    check_tree("anyOf");
}

/* To tell two types apart their nodes are not compared for ever. */
static void test_one_of(void **state)
{
    (void)state;
    check_tree("oneOf");
}

/* ---- Comparisons within comparisons ---- */

#define OBJECT(properties, required) \
    "{\"type\":\"object\",\"properties\":{" properties "},\"required\":[" required "],\"additionalProperties\":false}"
#define BOTH_HOLD "{\"oneOf\":[{\"const\":1},{\"type\":\"integer\"}]}"
#define ONE_BUT_NOT OBJECT("\"y\":{\"enum\":[1],\"not\":{\"$ref\":\"#/$defs/both\"}}", "\"y\"")
#define INNER "{\"oneOf\":[" ONE_BUT_NOT "," ONE_BUT_NOT ",{\"type\":\"null\"}]}"

/* 1 is in two branches of `both`, so it is not in `both`, so it is in two branches of `inner`, so not in that. */
static void test_nested(void **state)
{
    static const struct expected texts[] = {
        {"{\"x\":null}", true}, {"{\"x\":null,\"z\":1}", true}, {"{\"x\":{\"y\":1}}", false}, {"{\"x\":1}", false}};

    (void)state;
    check("{\"oneOf\":[" OBJECT("\"x\":{\"$ref\":\"#/$defs/inner\"}", "\"x\"") "," OBJECT(
              "\"x\":{\"$ref\":\"#/$defs/inner\"},\"z\":{\"type\":\"integer\"}",
              "\"z\",\"x\"") "],\"$defs\":{\"both\":" BOTH_HOLD ",\"inner\":" INNER "}}",
          texts, COUNT(texts));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_of),
        cmocka_unit_test(test_one_of),
        cmocka_unit_test(test_nested),
    };

    rn_heap_init(&heap, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
