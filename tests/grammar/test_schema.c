/* JSON Schema as grammars, beside the official suite: texts that one schema allows or not, the bounds of numbers
 * against a loop over all of a range, sentences for what is refused, hostile schemas, and that refused memory leaves
 * nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/base/refusing.h"
#include "tests/grammar/schema_judge.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const struct rn_schema_options compact, white = {.free_white = true}, closed = {.closed = true},
                                               loose = {.allow_unenforced = true}, any_of = {.one_of_as_any_of = true},
                                               any_order = {.any_order = true};

/* ---- Texts ---- */

/* Properties are in the order in which a schema names them, also through choices. */
#define NAMED(name) "{\"properties\":{\"" name "\":{}}}"
#define ORDER                                                                                                   \
    "{\"type\":\"object\",\"anyOf\":[" NAMED("a") "],\"allOf\":[" NAMED("b") ",{\"oneOf\":[{\"allOf\":[" NAMED( \
        "c") ",{\"anyOf\":[" NAMED("d") "]}]}]},{\"anyOf\":[" NAMED("e") "]}],\"properties\":{\"f\":{}}}"

/* Negations that ask for a property whose name is known: another schema says which names there can be. */
#define ONLY(names) "{\"type\":\"object\",\"properties\":{" names "},\"additionalProperties\":false}"
#define EITHER "{\"oneOf\":[" ONLY("\"a\":{},\"b\":{}") "," ONLY("\"b\":{},\"c\":{}") "]}"
#define BUT(negated) "{\"allOf\":[" ONLY("\"a\":{},\"bb\":{}") ",{\"not\":{" negated "}}]}"
#define UINT64 "{\"type\":\"integer\",\"minimum\":18446744073709551000,\"maximum\":18446744073709551615}"
#define STRINGS "\"additionalProperties\":{\"type\":\"string\"}"
#define A_ALONE "\"properties\":{\"a\":true},\"additionalProperties\":false"
#define A_STRINGS "\"patternProperties\":{\"^a\":{\"type\":\"string\"}}"
#define SHORT_NAMES "\"propertyNames\":{\"maxLength\":1}"
#define UNIQUE(bounds) "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"integer\"," bounds "}}"
#define LOOKING_AHEAD "\"patternProperties\":{\"^(?=a)\":{\"type\":\"integer\"}}"
#define TWO_ANCHORS(schema)                                                                           \
    "{\"allOf\":[" schema "],\"$defs\":{\"a\":{\"$dynamicAnchor\":\"x\",\"type\":\"string\"},\"b\":{" \
    "\"$dynamicAnchor\":\"x\",\"type\":\"null\"}}}"
#define ONE_OF_TWO "{\"enum\":[{\"a\":1},{\"b\":1}],\"not\":{" A_ALONE "}}"

static const struct {
    const struct rn_schema_options *options;
    const char *schema, *text;
    bool accepted;
} texts[] = {
    {&compact, "true", "{\"a\":[1,null,\"\\ud83d\\ude00\\u0041\"],\"b\":1e5}", true},
    {&compact, "true", "\"\\ud83d\"", false},
    {&compact, "true", "\"\\ude00\"", false},
    {&compact, "true", "{ }", false},
    {&white, "true", " 1", false},
    {&white, "true", "{ \"a\" :\n[ 1 , 2 ]\t, \"b\" : {  } }", true},
    {&white, "{\"const\":{\"a\":[1]}}", "{ \"a\" : [ 1 ] }", true},
    {&compact, "{\"type\":\"string\",\"maxLength\":2}", "\"\\n\\\"\"", true},
    {&compact, "{\"type\":\"string\",\"maxLength\":2}", "\"\xf0\x9f\x98\x80\xf0\x9f\x98\x80\"", true},
    {&compact, "{\"type\":\"string\",\"maxLength\":2}", "\"\\u0041\"", false},
    {&compact, "{\"type\":\"string\",\"maxLength\":2}", "\"\\u0001\\u001f\"", true},
    {&compact, "{\"type\":\"string\",\"maxLength\":2}", "\"abc\"", false},
    {&compact, "{\"type\":\"string\",\"pattern\":\"^[^a]\\\"$\"}", "\"\\\\\\\"\"", true},
    {&compact, "{\"type\":\"string\",\"pattern\":\"b\",\"minLength\":3}", "\"ab\"", false},
    {&compact, "{\"type\":\"string\",\"pattern\":\"b\",\"minLength\":3}", "\"abc\"", true},
    {&compact, "{\"enum\":[\"a\\n\\u0001\xc3\xa9\",1.50,1e2]}", "\"a\\n\\u0001\xc3\xa9\"", true},
    {&compact, "{\"enum\":[\"a\",1.50,1e2]}", "1.5", true},
    {&compact, "{\"enum\":[\"a\",1.50,1e2]}", "100", true},
    {&compact, "{\"const\":18446744073709551615}", "18446744073709551615", true},
    {&compact, "{\"const\":18446744073709551615}", "18446744073709552000", false},
    {&compact, "{\"const\":9007199254740993.0}", "9007199254740993", true},
    {&compact, "{\"const\":9007199254740993.0}", "9007199254740992", false},
    {&compact, "{\"enum\":[12345678901234567890123,1e-400]}", "12345678901234567890123", true},
    {&compact, "{\"enum\":[12345678901234567890123,1e-400]}", "0", false},
    {&compact, UINT64, "18446744073709551615", true},
    {&compact, UINT64, "18446744073709551616", false},
    {&compact, UINT64, "18446744073709551000", true},
    {&compact, UINT64, "18446744073709550999", false},
    {&compact, "{\"type\":\"number\",\"exclusiveMinimum\":0.30000000000000000001,\"maximum\":0.30000000000000000003}",
     "0.30000000000000000002", true},
    {&compact, "{\"type\":\"number\",\"exclusiveMinimum\":0.30000000000000000001,\"maximum\":0.30000000000000000003}",
     "0.3", false},
    {&compact, "{\"type\":\"string\",\"maxLength\":2.0}", "\"abc\"", false},
    {&compact, "{\"type\":\"array\",\"items\":{\"enum\":[1,1.0,1e0,2]},\"uniqueItems\":true}", "[1,2]", true},
    {&compact, "{\"properties\":{\"a\":{},\"b\":{}}}", "{\"a\":1,\"b\":2,\"c\":3}", true},
    {&compact, "{\"properties\":{\"a\":{},\"b\":{}}}", "{\"b\":2,\"a\":1}", false},
    {&compact, "{\"properties\":{\"a\":{},\"b\":{}}}", "{\"a\":2,\"a\":1}", false},
    {&compact, "{\"properties\":{\"a\":{}}}", "{\"a\":2,\"\\u0061\":1}", false},
    {&any_order, "{\"properties\":{\"a\":{},\"b\":{}},\"required\":[\"a\"]}", "{\"b\":2,\"c\":0,\"a\":1}", true},
    {&any_order, "{\"properties\":{\"a\":{},\"b\":{}},\"required\":[\"a\"]}", "{\"b\":2}", false},
    {&any_order, "{\"properties\":{\"a\":{},\"b\":{}},\"required\":[\"a\"]}", "{\"b\":2,\"a\":1,\"b\":2}", false},
    {&closed, "{\"properties\":{\"a\":{}}}", "{\"a\":1,\"b\":2}", false},
    {&closed, "{\"properties\":{\"a\":{}},\"additionalProperties\":true}", "{\"a\":1,\"b\":2}", true},
    {&loose, "{\"type\":\"array\",\"uniqueItems\":true}", "[1,1]", true},
    {&loose, "{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "\"b\"", true},
    /* What is not enforced is not known to hold or not to hold. */
    {&loose, "{\"type\":\"string\",\"not\":{\"$ref\":\"http://x/y\"}}", "\"a\"", true},
    {&loose, "{\"type\":\"string\",\"$ref\":\"http://x/y\"}", "1", false},
    {&loose, "{\"enum\":[\"a\",1],\"not\":{\"$ref\":\"http://x/y\"}}", "\"a\"", true},
    {&loose, "{\"enum\":[\"a\",\"b\",1],\"not\":{\"pattern\":\"^(?=a)\"}}", "\"b\"", true},
    {&loose, "{\"enum\":[\"a\",\"b\",1],\"not\":{\"pattern\":\"^(?=a)\"}}", "1", false},
    {&loose, "{\"enum\":[\"a\",\"bb\"],\"not\":{\"pattern\":\"^(?=a)\",\"maxLength\":1}}", "\"bb\"", true},
    {&loose, "{\"enum\":[\"a\",1],\"not\":{\"format\":\"iri\"}}", "\"a\"", true},
    {&loose, "{\"enum\":[[1],[]],\"not\":{\"contains\":{\"$ref\":\"http://x/y\"}}}", "[1]", true},
    {&loose, "{\"enum\":[[1],[]],\"contains\":{\"$ref\":\"http://x/y\"}}", "[]", false},
    {&loose, "{\"enum\":[{\"b\":1}],\"not\":{" LOOKING_AHEAD "}}", "{\"b\":1}", true},
    {&loose, "{\"properties\":{\"b\":{\"type\":\"string\"}}," LOOKING_AHEAD "}", "{\"b\":\"x\"}", true},
    {&loose, BUT(LOOKING_AHEAD), "{\"a\":1}", true},
    {&loose, TWO_ANCHORS("{\"$dynamicRef\":\"#x\"}"), "1", true},
    {&loose, TWO_ANCHORS("{\"$dynamicRef\":\"#x\"}"), "null", true},
    {&loose, TWO_ANCHORS("{\"not\":{\"$dynamicRef\":\"#x\"}}"), "\"a\"", true},
    {&loose, TWO_ANCHORS("{\"not\":{\"$dynamicRef\":\"#x\"}}"), "null", true},
    {&any_of, "{\"oneOf\":[{\"minimum\":1},{\"maximum\":2}]}", "1", true},
    {&compact, "{\"oneOf\":[{\"minimum\":1},{\"maximum\":2}],\"type\":\"integer\"}", "1", false},
    {&compact, "{\"oneOf\":[{\"minimum\":1},{\"maximum\":2}],\"type\":\"integer\"}", "3", true},
    {&compact, "{\"type\":\"object\",\"maxProperties\":2}", "{\"a\":1,\"b\":2}", true},
    {&compact, "{\"type\":\"object\",\"maxProperties\":2}", "{\"a\":1,\"b\":2,\"c\":3}", false},
    {&compact, "{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"uniqueItems\":true}", "[2,1]", true},
    {&compact, "{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"uniqueItems\":true}", "[2,2]", false},
    {&compact, UNIQUE("\"minimum\":1,\"maximum\":10"), "[1,10,9,8,7,6,5,4,3,2]", true},
    {&compact, UNIQUE("\"minimum\":1,\"maximum\":10"), "[1,10,9,8,7,6,5,4,3,1]", false},
    {&compact, UNIQUE("\"minimum\":9007199254740992,\"maximum\":9007199254740993"),
     "[9007199254740993,9007199254740992]", true},
    {&compact, UNIQUE("\"minimum\":7,\"maximum\":6"), "[]", true},
    {&compact, UNIQUE("\"minimum\":7,\"maximum\":6"), "[6]", false},
    {&compact, "{\"type\":\"string\",\"format\":\"color\"}", "\"any text\"", true},
    {&compact, "{\"not\":{\"format\":\"color\"}}", "7", false},
    {&compact, EITHER, "{\"a\":1}", true},
    {&compact, EITHER, "{\"a\":1,\"b\":2}", true},
    {&compact, EITHER, "{\"b\":1,\"c\":2}", true},
    {&compact, EITHER, "{\"c\":1}", true},
    {&compact, EITHER, "{\"b\":1}", false},
    {&compact, EITHER, "{}", false},
    {&compact, EITHER, "{\"a\":1,\"c\":2}", false},
    {&compact, BUT(STRINGS), "{\"a\":1}", true},
    {&compact, BUT(STRINGS), "{\"a\":\"x\",\"bb\":2}", true},
    {&compact, BUT(STRINGS), "{\"a\":\"x\",\"bb\":\"y\"}", false},
    {&compact, BUT(STRINGS), "{}", false},
    {&compact, BUT(A_ALONE), "{\"a\":1}", false},
    {&compact, BUT(A_ALONE), "{\"a\":1,\"bb\":2}", true},
    {&compact, BUT(A_STRINGS), "{\"a\":1,\"bb\":2}", true},
    {&compact, BUT(A_STRINGS), "{\"a\":\"x\",\"bb\":2}", false},
    {&compact, BUT(A_STRINGS), "{\"bb\":2}", false},
    {&compact, BUT(SHORT_NAMES), "{\"bb\":2}", true},
    {&compact, BUT(SHORT_NAMES), "{\"a\":1,\"bb\":2}", true},
    {&compact, BUT(SHORT_NAMES), "{\"a\":1}", false},
    {&compact, ONE_OF_TWO, "{\"b\":1}", true},
    {&compact, ONE_OF_TWO, "{\"a\":1}", false},
    {&compact, ORDER, "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"z\":0}", true},
    {&compact, ORDER, "{\"b\":2,\"a\":1}", false},
    {&compact, ORDER, "{\"c\":3,\"b\":2}", false},
    {&compact, ORDER, "{\"d\":4,\"c\":3}", false},
    {&compact, ORDER, "{\"e\":5,\"d\":4}", false},
    {&compact, ORDER, "{\"f\":6,\"e\":5}", false},
    {&compact, "{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/t\"}}}}",
     "[[],[[]]]", true},
    {&compact, "{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/t\"}}}}",
     "[1]", false},
    /* OpenAPI's nullable, what draft 4 has in the place of exclusive bounds, and drafts 6 and 7 in that of anchors. */
    {&compact, "{\"type\":\"string\",\"maxLength\":3,\"nullable\":true}", "null", true},
    {&compact, "{\"type\":\"string\",\"maxLength\":3,\"nullable\":true}", "\"abc\"", true},
    {&compact, "{\"type\":\"string\",\"maxLength\":3,\"nullable\":true}", "\"abcd\"", false},
    {&compact, "{\"type\":\"string\",\"maxLength\":3,\"nullable\":true}", "1", false},
    {&compact, "{\"type\":\"string\",\"nullable\":false}", "null", false},
    {&compact, "{\"$ref\":\"#/$defs/a\",\"nullable\":true,\"$defs\":{\"a\":{\"type\":\"string\"}}}", "null", false},
    {&compact, "{\"enum\":[\"a\"],\"nullable\":true}", "null", true},
    {&compact, "{\"enum\":[\"a\"],\"nullable\":true}", "\"a\"", true},
    {&compact, "{\"type\":\"string\",\"enum\":[\"a\"],\"nullable\":true}", "null", true},
    {&compact, "{\"type\":\"string\",\"enum\":[\"a\"],\"nullable\":true}", "\"b\"", false},
    {&compact, "{\"not\":{\"type\":\"string\",\"maxLength\":3,\"nullable\":true}}", "null", false},
    {&compact, "{\"not\":{\"type\":\"string\",\"maxLength\":3,\"nullable\":true}}", "\"abcd\"", true},
    {&compact, "{\"not\":{\"enum\":[\"a\"],\"nullable\":true}}", "null", false},
    {&compact, "{\"not\":{\"enum\":[\"a\"],\"nullable\":true}}", "\"b\"", true},
    {&compact, "{\"type\":\"integer\",\"minimum\":0,\"exclusiveMinimum\":true,\"maximum\":9,\"exclusiveMaximum\":true}",
     "0", false},
    {&compact, "{\"type\":\"integer\",\"minimum\":0,\"exclusiveMinimum\":true,\"maximum\":9,\"exclusiveMaximum\":true}",
     "9", false},
    {&compact, "{\"type\":\"integer\",\"minimum\":0,\"exclusiveMinimum\":true,\"maximum\":9,\"exclusiveMaximum\":true}",
     "1", true},
    {&compact,
     "{\"type\":\"integer\",\"minimum\":0,\"exclusiveMinimum\":false,\"maximum\":9,\"exclusiveMaximum\":false}", "0",
     true},
    {&compact,
     "{\"type\":\"integer\",\"minimum\":0,\"exclusiveMinimum\":false,\"maximum\":9,\"exclusiveMaximum\":false}", "9",
     true},
    {&compact,
     "{\"type\":\"integer\",\"minimum\":0,\"exclusiveMinimum\":false,\"maximum\":9,\"exclusiveMaximum\":false}", "1",
     true},
    {&compact, "{\"type\":\"integer\",\"not\":{\"minimum\":0,\"exclusiveMinimum\":true}}", "0", true},
    {&compact, "{\"type\":\"integer\",\"not\":{\"minimum\":0,\"exclusiveMinimum\":true}}", "1", false},
    {&compact, "{\"type\":\"integer\",\"exclusiveMaximum\":true}", "7", true},
    {&compact, "{\"not\":{\"exclusiveMaximum\":true}}", "7", false},
    {&compact, "{\"$ref\":\"#foo\",\"definitions\":{\"q\":{\"$id\":\"#foo\",\"type\":\"null\"}}}", "null", true},
    {&compact, "{\"$ref\":\"#foo\",\"definitions\":{\"q\":{\"$id\":\"#foo\",\"type\":\"null\"}}}", "1", false},
    {&compact, "{\"$ref\":\"#foo\",\"definitions\":{\"q\":{\"id\":\"#foo\",\"type\":\"null\"}}}", "null", true},
    {&compact, "{\"$ref\":\"#foo\",\"definitions\":{\"q\":{\"id\":\"#foo\",\"type\":\"null\"}}}", "1", false},
    {&compact, "{\"type\":\"any\",\"divisibleBy\":3}", "6", true},
    {&compact, "{\"type\":\"any\",\"divisibleBy\":3}", "5", false},
    {&compact, "{\"type\":\"any\",\"divisibleBy\":3}", "\"5\"", true},
};

static struct rn_heap heap;

static void test_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        const char *schema = texts[i].schema, *text = texts[i].text;
        runnel_error error = {0};
        struct judge judge;

        if (judge_init(&judge, &heap, schema, strlen(schema), texts[i].options, &error) != RUNNEL_OK)
            fail_msg("%s: %s", schema, error.message);
        if (judge_accepts(&judge, text, strlen(text)) != texts[i].accepted ||
            judge_accepts_slowly(&judge, text, strlen(text)) != texts[i].accepted)
            fail_msg("%s: %s: expected %d", schema, text, texts[i].accepted);
        judge_fini(&judge);
    }
}

/* Any JSON, and any object. */
static void test_any_json(void **state)
{
    (void)state;
    for (int object = 0; object < 2; object++) {
        struct judge judge = {.heap = &heap, .grammar = rn_grammar_new(&heap, NULL, NULL)};
        uint32_t root = rn_grammar_rule(judge.grammar, "root", 4);

        rn_grammar_define(judge.grammar, root, rn_grammar_any_json(judge.grammar, object != 0, &white));
        assert_int_equal(rn_grammar_finish(judge.grammar, root, NULL), RUNNEL_OK);
        assert_int_equal(rn_automaton_new(&heap, judge.grammar, &judge.automaton, NULL), RUNNEL_OK);
        judge.has_stacks = rn_stacks_init(&judge.stacks, &heap, judge.automaton, (size_t)1 << 24, 1000);
        assert_true(judge_accepts(&judge, "{\"a\": [1, -2.5e3, {}]}", 22));
        assert_int_equal(judge_accepts(&judge, "[true]", 6), !object);
        assert_false(judge_accepts(&judge, "{\"a\": 01}", 9));
        judge_fini(&judge);
    }
}

/* Lengths that are counted by blocks: at their ends, and where blocks end. */
static void test_long_strings(void **state)
{
    static const uint32_t ranges[][2] = {{0, 1023}, {0, 1024}, {0, 5119}, {0, 5121}, {7, 65535}, {4096, 9000}};
    static const int32_t beside[] = {-1, 0, 1};
    char *text = malloc(70000 * 2);

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < COUNT(ranges); i++) {
        uint32_t least = ranges[i][0], most = ranges[i][1];
        uint32_t ends[] = {least + 1, least + 512, least + 1024, 4096, most};
        runnel_error error = {0};
        struct judge judge;
        char schema[100];

        snprintf(schema, sizeof schema, "{\"type\":\"string\",\"minLength\":%u,\"maxLength\":%u}", least, most);
        if (judge_init(&judge, &heap, schema, strlen(schema), NULL, &error) != RUNNEL_OK)
            fail_msg("%s: %s", schema, error.message);
        for (size_t k = 0; k < COUNT(ends) * COUNT(beside); k++) {
            uint32_t length = ends[k / 3] + (uint32_t)beside[k % 3], n = 0;

            text[n++] = '"';
            for (uint32_t at = 0; at < length; at++) { /* two bytes each */
                text[n++] = at % 3 == 0 ? '\\' : '\xc3';
                text[n++] = at % 3 == 0 ? 'n' : '\xa9';
            }
            text[n++] = '"';
            if (judge_accepts(&judge, text, n) != (length >= least && length <= most))
                fail_msg("%s: %u characters", schema, length);
        }
        judge_fini(&judge);
    }
    free(text);
}

/* ---- Numbers ---- */

/* All hundredths from -30 to 30, written with up to three digits behind the point. */
static void check_range(uint64_t *rng)
{
    int low = (int)(rn_splitmix64(rng) % 5000) - 2500, high = low + (int)(rn_splitmix64(rng) % 2000);
    int unit = (int)(rn_splitmix64(rng) % 60) * (rn_splitmix64(rng) % 2 == 0), value;
    bool low_open = rn_splitmix64(rng) % 2 == 0, high_open = rn_splitmix64(rng) % 2 == 0;
    bool integer = rn_splitmix64(rng) % 3 == 0, has_low = rn_splitmix64(rng) % 4 != 0,
         has_high = rn_splitmix64(rng) % 4 != 0;
    char schema[300], part[80], text[40];
    runnel_error error = {0};
    struct judge judge;

    snprintf(schema, sizeof schema, "{\"type\":\"%s\"", integer ? "integer" : "number");
    if (has_low)
        snprintf(part, sizeof part, ",\"%s\":%.2f", low_open ? "exclusiveMinimum" : "minimum", low / 100.0),
            strcat(schema, part);
    if (has_high)
        snprintf(part, sizeof part, ",\"%s\":%.2f", high_open ? "exclusiveMaximum" : "maximum", high / 100.0),
            strcat(schema, part);
    if (unit > 0)
        snprintf(part, sizeof part, ",\"multipleOf\":%.2f", unit / 100.0), strcat(schema, part);
    strcat(schema, "}");
    if (judge_init(&judge, &heap, schema, strlen(schema), NULL, &error) != RUNNEL_OK)
        fail_msg("%s: %s", schema, error.message);
    for (value = -3000; value <= 3000; value++) {
        bool expected = (!has_low || (low_open ? value > low : value >= low)) &&
                        (!has_high || (high_open ? value < high : value <= high)) && (unit == 0 || value % unit == 0);
        int digits = value % 100 == 0 ? 0 : value % 10 == 0 ? 1 : 2;

        snprintf(text, sizeof text, "%.*f", digits, value / 100.0);
        expected = expected && (!integer || digits == 0);
        if (judge_accepts(&judge, text, strlen(text)) != expected)
            fail_msg("%s: %s: expected %d", schema, text, expected);
        snprintf(text, sizeof text, "%.3f", value / 100.0); /* zeros behind it are the same number */
        if (value > 0 && unit == 0 && judge_accepts(&judge, text, strlen(text)) != (expected && !integer))
            fail_msg("%s: %s: expected %d", schema, text, expected);
    }
    judge_fini(&judge);
}

static void test_numbers(void **state)
{
    uint64_t rng = 5;

    (void)state;
    for (int i = 0; i < 150; i++)
        check_range(&rng);
}

/* Integers of many digits: the ends of ranges and what lies beside them. */
static void test_long_integers(void **state)
{
    uint64_t rng = 11;

    (void)state;
    for (int i = 0; i < 200; i++) {
        int64_t a = (int64_t)rn_splitmix64(&rng) >> (rn_splitmix64(&rng) % 62);
        int64_t b = (int64_t)rn_splitmix64(&rng) >> (rn_splitmix64(&rng) % 62);
        int64_t low = a < b ? a : b, high = a < b ? b : a;
        char schema[200], text[40];
        runnel_error error = {0};
        struct judge judge;

        snprintf(schema, sizeof schema, "{\"type\":\"integer\",\"minimum\":%lld,\"maximum\":%lld}", (long long)low,
                 (long long)high);
        assert_int_equal(judge_init(&judge, &heap, schema, strlen(schema), NULL, &error), RUNNEL_OK);
        for (int k = 0; k < 60; k++) {
            int64_t value = k < 5 ? low - 2 + k : k < 10 ? high - 7 + k : (int64_t)rn_splitmix64(&rng) >> (k % 62);

            if ((k < 5 && low < INT64_MIN + 2) || (k >= 5 && k < 10 && high > INT64_MAX - 2))
                continue;
            snprintf(text, sizeof text, "%lld", (long long)value);
            if (judge_accepts(&judge, text, strlen(text)) != (low <= value && value <= high))
                fail_msg("%s: %s", schema, text);
        }
        judge_fini(&judge);
    }
}

/* All pairs of integers from -9 to 9 as unique items between random bounds, in tenths; more than ten values are refused. */
static void check_unique(uint64_t *rng)
{
    int low = (int)(rn_splitmix64(rng) % 160) - 80, high = low + (int)(rn_splitmix64(rng) % 130) - 10;
    int unit = 1 + (int)(rn_splitmix64(rng) % 3), n = 0;
    bool low_open = rn_splitmix64(rng) % 2 == 0, high_open = rn_splitmix64(rng) % 2 == 0, fits[19], expected;
    char schema[300], text[40];
    runnel_error error = {0};
    struct judge judge;
    runnel_status status;

    snprintf(schema, sizeof schema, UNIQUE("\"%s\":%.1f,\"%s\":%.1f,\"multipleOf\":%d"),
             low_open ? "exclusiveMinimum" : "minimum", low / 10.0, high_open ? "exclusiveMaximum" : "maximum",
             high / 10.0, unit);
    for (int a = -9; a <= 9; a++) {
        fits[a + 9] =
            (low_open ? 10 * a > low : 10 * a >= low) && (high_open ? 10 * a < high : 10 * a <= high) && a % unit == 0;
        n += fits[a + 9];
    }
    if (high > 90)
        return; /* some are not among these */
    status = judge_init(&judge, &heap, schema, strlen(schema), NULL, &error);
    if (status != (n > 10 ? RUNNEL_UNSUPPORTED : RUNNEL_OK))
        fail_msg("%s: %s", schema, error.message);
    for (int a = -9; a <= 9 && status == RUNNEL_OK; a++) {
        for (int b = -9; b <= 9; b++) {
            snprintf(text, sizeof text, "[%d,%d]", a, b);
            expected = fits[a + 9] && fits[b + 9] && a != b;
            if (judge_accepts(&judge, text, strlen(text)) != expected)
                fail_msg("%s: %s: expected %d", schema, text, expected);
        }
    }
    judge_fini(&judge);
}

static void test_unique_integers(void **state)
{
    uint64_t rng = 3;

    (void)state;
    for (int i = 0; i < 200; i++)
        check_unique(&rng);
}

/* ---- Leap seconds ---- */

/* Where it is 23:59 in UTC, by offsets of whole and half hours; any offset there is at other seconds. */
static void check_minute(struct judge *judge, int local, int offset)
{
    int away = abs(offset), second;
    bool leaps = (local - offset + 2 * 1440) % 1440 == 1439 && away % 30 == 0;
    char text[40];

    for (second = 59; second <= 61; second++) {
        int n = snprintf(text, sizeof text, "\"%02d:%02d:%d%s%c%02d:%02d\"", local / 60, local % 60, second,
                         away % 2 == 0 ? "" : ".25", offset < 0 ? '-' : '+', away / 60, away % 60);

        if (judge_accepts(judge, text, (size_t)n) != (second == 59 || (second == 60 && leaps)))
            fail_msg("%s: leaps %d", text, leaps);
    }
}

static void test_leap_seconds(void **state)
{
    static const char schema[] = "{\"type\":\"string\",\"format\":\"time\"}";
    static const int minutes[] = {0, 1, 14, 15, 28, 29, 30, 44, 45, 58, 59};
    struct judge judge;

    (void)state;
    assert_int_equal(judge_init(&judge, &heap, schema, strlen(schema), NULL, NULL), RUNNEL_OK);
    for (int hour = 0; hour < 24; hour++)
        for (size_t i = 0; i < sizeof minutes / sizeof minutes[0]; i++)
            for (int offset = -1439; offset < 1440; offset += offset % 15 == 0 ? 1 : 14 - (offset + 1440) % 15 + 1)
                check_minute(&judge, hour * 60 + minutes[i], offset);
    assert_true(judge_accepts(&judge, "\"23:59:60.5z\"", 13) && !judge_accepts(&judge, "\"23:58:60Z\"", 11));
    judge_fini(&judge);
}

/* ---- Refusals ---- */

static const struct {
    const char *schema;
    runnel_status status;
    const char *sentence;
} refused[] = {
    {"{", RUNNEL_FORMAT, "the schema: JSON line 1"},
    {"{\"type\":\"string\",\"type\":\"string\"}", RUNNEL_FORMAT, "the schema: JSON line 1"},
    {"7", RUNNEL_FORMAT, "must be a schema"},
    {"{\"properties\":{\"a\":7}}", RUNNEL_FORMAT, "\"#\": \"properties\" must be a schema"},
    {"{\"type\":\"text\"}", RUNNEL_FORMAT, "\"type\" must be a type of JSON"},
    {"{\"properties\":{\"a/b\":{\"minLength\":-1}}}", RUNNEL_FORMAT, "\"#/properties/a~1b\": \"minLength\""},
    {"{\"items\":{\"pattern\":\"(?=a)b\"}}", RUNNEL_UNSUPPORTED, "\"pattern\" at \"#/items\" cannot be enforced"},
    {"{\"type\":\"array\",\"uniqueItems\":true}", RUNNEL_UNSUPPORTED, "\"uniqueItems\" at \"#\" cannot be enforced"},
    {UNIQUE("\"minimum\":0,\"maximum\":10"), RUNNEL_UNSUPPORTED, "\"uniqueItems\" at \"#\" cannot be enforced"},
    {UNIQUE("\"minimum\":0,\"maximum\":1000,\"multipleOf\":500"), RUNNEL_UNSUPPORTED,
     "\"uniqueItems\" at \"#\" cannot be"},
    {UNIQUE("\"minimum\":0"), RUNNEL_UNSUPPORTED, "\"uniqueItems\" at \"#\" cannot be enforced"},
    {UNIQUE("\"minimum\":1e30,\"maximum\":2e30"), RUNNEL_UNSUPPORTED, "\"uniqueItems\" at \"#\" cannot be enforced"},
    {UNIQUE("\"minimum\":-1e15,\"maximum\":1e15"), RUNNEL_UNSUPPORTED, "\"uniqueItems\" at \"#\" cannot be enforced"},
    {"{\"format\":\"iri\"}", RUNNEL_UNSUPPORTED, "\"format\" at \"#\" cannot be enforced"},
    {"{\"$ref\":\"http://x.test/y\"}", RUNNEL_UNSUPPORTED,
     "\"$ref\" at \"#\" cannot be enforced: it refers to another"},
    {"{\"$ref\":\"#/$defs/a\"}", RUNNEL_FORMAT, "there is no schema at this reference: \"#/$defs/a\""},
    {"{\"$ref\":\"#\"}", RUNNEL_FORMAT, "refers to itself without reading anything"},
    {"{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"allOf\":[{\"$ref\":\"#/$defs/"
     "a\"}]}},\"properties\":{\"v\":{\"$ref\":"
     "\"#/$defs/a\"}}}",
     RUNNEL_FORMAT, "refers to itself without reading anything"},
    {"{\"items\":{\"$id\":\"http://x/\",\"not\":{\"$ref\":\"#\"}}}", RUNNEL_FORMAT,
     "refers to itself without reading anything"},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/a\"}],\"$defs\":{\"a\":{\"not\":{\"$ref\":\"#\"}}}}",
     RUNNEL_FORMAT, "refers to itself without reading anything"},
    {"{\"not\":{\"propertyNames\":{\"maxLength\":2}}}", RUNNEL_UNSUPPORTED, "\"propertyNames\" at \"#/not\""},
    {"{\"not\":{" A_ALONE "}}", RUNNEL_UNSUPPORTED,
     "\"additionalProperties\" at \"#/not\" cannot be enforced: it is negated here"},
    {"{\"oneOf\":[{\"propertyNames\":{\"maxLength\":2}},{\"type\":\"object\"}]}", RUNNEL_UNSUPPORTED,
     "its branches are not provably apart"},
    {"{\"minProperties\":3}", RUNNEL_UNSUPPORTED, "\"minProperties\" at \"#\" cannot be enforced"},
    {"{\"type\":\"string\",\"maxLength\":1000000000}", RUNNEL_UNSUPPORTED,
     "\"maxLength\" at \"#\" cannot be enforced: it is 1000000000; at most 1048576"},
    {"{\"type\":\"string\",\"maxLength\":5000,\"pattern\":\"^a\"}", RUNNEL_UNSUPPORTED, "it is 5000; at most 4096"},
    {"{\"type\":\"array\",\"minItems\":1000000}", RUNNEL_UNSUPPORTED,
     "\"minItems\" at \"#\" cannot be enforced: it is 1000000"},
    {"{\"items\":{\"type\":\"string\",\"minLength\":5000}}", RUNNEL_UNSUPPORTED, "\"minLength\" at \"#/items\""},
    {"{\"items\":{\"$ref\":\"#/$defs/a\"},\"$defs\":{\"a\":{\"type\":\"object\",\"maxProperties\":5000}}}",
     RUNNEL_UNSUPPORTED, "\"maxProperties\" at \"#/$defs/a\""},
    {"{\"properties\":{\"n\":{\"allOf\":[{\"multipleOf\":2},{\"multipleOf\":3},{\"multipleOf\":5},{\"multipleOf\":7}]}}"
     "}",
     RUNNEL_UNSUPPORTED, "\"multipleOf\" at \"#/properties/n/allOf/"},
    {"{\"properties\":{\"n\":{\"type\":\"integer\",\"multipleOf\":99991}}}", RUNNEL_UNSUPPORTED,
     "the number at \"#/properties/n\""},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(refused); i++) {
        runnel_error error = {0};
        struct judge judge;
        runnel_status status = judge_init(&judge, &heap, refused[i].schema, strlen(refused[i].schema), NULL, &error);

        bool placed =
            i < 2 || strstr(error.message, "\"#") != NULL; /* as a JSON pointer; the first two are not parsed */

        if (status != refused[i].status || strstr(error.message, refused[i].sentence) == NULL || !placed)
            fail_msg("%s: %d, %s", refused[i].schema, status, error.message);
        judge_fini(&judge);
    }
}

/* ---- Hostile schemas ---- */

struct text {
    char bytes[1 << 20];
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    t->n += (size_t)vsnprintf(t->bytes + t->n, sizeof t->bytes - t->n, format, args);
    va_end(args);
    assert_true(t->n < sizeof t->bytes);
}

/* n schemas, each of two of the next in a keyword. */
static void put_doubling(struct text *t, const char *keyword, uint32_t n)
{
    put(t, "{\"$ref\":\"#/$defs/0\",\"$defs\":{");
    for (uint32_t i = 0; i < n; i++)
        put(t,
            "\"%u\":{\"%s\":[{\"required\":[\"a%u\"],\"$ref\":\"#/$defs/%u\"},{\"required\":[\"b%u\"],\"$ref\":\"#/"
            "$defs/%u\"}]},",
            i, keyword, i, i + 1, i, i + 1);
    put(t, "\"%u\":{\"type\":\"object\"}}}", n);
}

/* Counts at their ends, and what is looked at more often than it is long. */
static void put_uncounted(struct text *t, int which)
{
    uint32_t i;

    switch (which) {
    case 8: /* the largest counts, negated: one more of each */
        put(t, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{\"a\":{}},"
               "\"not\":{\"maxProperties\":4294967295}}");
        break;
    case 9:
        put(t,
            "{\"type\":\"array\",\"not\":{\"contains\":{\"const\":1},\"minContains\":0,\"maxContains\":4294967295}}");
        break;
    case 10: /* the first of many anchors, which is looked at often */
        put(t, "{\"$defs\":{");
        for (i = 0; i < 5000; i++)
            put(t, "\"a%u\":{\"$dynamicAnchor\":\"x%u\"},", i, i);
        put(t, "\"z\":{}},\"anyOf\":[true");
        for (i = 0; i < 5000; i++)
            put(t, ",{\"$dynamicRef\":\"#x4999\"}");
        put(t, "]}");
        break;
    case 11: /* values that are alike up to their last item, each with each */
        put(t, "{\"allOf\":[");
        for (i = 0; i < 600; i++) {
            put(t, "%s[", i == 0 ? "{\"enum\":[" : i == 300 ? "]},{\"enum\":[" : ",");
            for (uint32_t k = 0; k < 300; k++)
                put(t, "0,");
            put(t, "%u]", i);
        }
        put(t, "]}]}");
        break;
    default: /* many names */
        put(t, "{\"type\":\"object\",\"required\":[\"a\"");
        for (i = 0; i < 90000; i++)
            put(t, ",\"%u\"", i);
        put(t, "]}");
    }
}

static void put_hostile(struct text *t, int which)
{
    uint32_t i;

    t->n = 0;
    switch (which) {
    case 0:
        put_doubling(t, "anyOf", 40);
        break;
    case 1:
        put_doubling(t, "oneOf", 30);
        break;
    case 2: /* every case of one with every case of the others */
        put(t, "{\"allOf\":[");
        for (i = 0; i < 30; i++)
            put(t, "%s{\"anyOf\":[{\"required\":[\"a%u\"]},{\"required\":[\"b%u\"]}]}", i > 0 ? "," : "", i, i);
        put(t, "]}");
        break;
    case 3:
        for (i = 0; i < 5000; i++)
            put(t, "{\"items\":");
        break;
    case 4: /* a long way of references */
        put(t, "{\"$ref\":\"#/$defs/0\",\"$defs\":{");
        for (i = 0; i < 5000; i++)
            put(t, "\"%u\":{\"$ref\":\"#/$defs/%u\"},", i, i + 1);
        put(t, "\"5000\":{\"type\":\"null\"}}}");
        break;
    case 5: /* three schemas at once, in all ways: not more than it seems */
        put(t, "{\"$defs\":{");
        for (i = 0; i < 20; i++)
            put(t, "\"%u\":{\"items\":{\"$ref\":\"#/$defs/%u\"},\"prefixItems\":[{\"$ref\":\"#/$defs/%u\"}]},", i,
                (i + 1) % 20, (i * 7 + 3) % 20);
        put(t, "\"x\":{}},\"allOf\":[{\"$ref\":\"#/$defs/0\"},{\"$ref\":\"#/$defs/1\"},{\"$ref\":\"#/$defs/5\"}]}");
        break;
    case 6:
        put(t, "{\"allOf\":[");
        for (i = 0; i < 300; i++)
            put(t, "%s{\"not\":{\"const\":%u.5}},{\"pattern\":\"a{%u}\"}", i > 0 ? "," : "", i, i);
        put(t, "]}");
        break;
    case 7:
        put(t, "{\"type\":\"object\",\"properties\":{");
        for (i = 0; i < 30; i++)
            put(t,
                "%s\"p%u\":{\"type\":\"array\",\"minItems\":4000,\"items\":{\"type\":\"string\",\"maxLength\":4000}}",
                i > 0 ? "," : "", i);
        put(t, "}}");
        break;
    default:
        put_uncounted(t, which);
    }
}

/* Each but one is refused with a sentence, by steps that are counted and memory that is bounded. What looks at more
 * than it counts takes minutes of processor time, else none takes a second. */
static void test_hostile(void **state)
{
    struct text *t = malloc(sizeof *t);

    (void)state;
    for (int which = 0; which < 13; which++) {
        bool counted = which == 10 || which == 11; /* and by nothing else */
        clock_t begin = clock();
        runnel_error error = {0};
        struct judge judge;
        runnel_status status;

        put_hostile(t, which);
        status = judge_init(&judge, &heap, t->bytes, t->n, NULL, &error);
        if ((status == RUNNEL_OK) != (which == 5) || status == RUNNEL_NO_MEMORY)
            fail_msg("%d: status %d, %s", which, status, error.message);
        if (counted && strstr(error.message, " steps") == NULL)
            fail_msg("%d: %s", which, error.message);
        if (clock() - begin > 25 * CLOCKS_PER_SEC)
            fail_msg("%d: too long", which);
        judge_fini(&judge);
    }
    free(t);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* A huge enum is no more than large. */
static void test_huge_enum(void **state)
{
    struct text *t = calloc(1, sizeof *t);
    runnel_error error = {0};
    struct judge judge;

    (void)state;
    put(t, "{\"type\":\"string\",\"enum\":[");
    for (uint32_t i = 0; i < 10000; i++)
        put(t, "%s\"value %u\"", i > 0 ? "," : "", i * 7919);
    put(t, "]}");
    if (judge_init(&judge, &heap, t->bytes, t->n, NULL, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    assert_true(judge_accepts(&judge, "\"value 7919\"", 12));
    assert_false(judge_accepts(&judge, "\"value 7918\"", 12));
    judge_fini(&judge);
    free(t);
}

/* So is an object of which many names are required. */
static void test_many_required(void **state)
{
    struct text *t = calloc(1, sizeof *t);
    runnel_error error = {0};
    struct judge judge;

    (void)state;
    put(t, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{\"a\":{}");
    for (uint32_t i = 0; i < 5000; i++)
        put(t, ",\"%u\":{\"type\":\"null\"}", i);
    put(t, "},\"required\":[\"0\"");
    for (uint32_t i = 0; i < 5000; i++)
        put(t, ",\"%u\"", i);
    put(t, "]}");
    if (judge_init(&judge, &heap, t->bytes, t->n, NULL, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    t->n = 0;
    for (uint32_t i = 0; i < 5000; i++)
        put(t, "%s\"%u\":null", i == 0 ? "{" : ",", i);
    put(t, "}");
    assert_true(judge_accepts(&judge, t->bytes, t->n));
    assert_false(judge_accepts(&judge, "{\"0\":null}", 10));
    judge_fini(&judge);
    free(t);
}

/* ---- Memory ---- */

static const char large[] =
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":3,\"multipleOf\":7},"
    "\"b\":{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"1\"},\"c\":{\"type\":\"array\",\"contains\":{"
    "\"const\":1},"
    "\"items\":{\"$ref\":\"#\"}}},\"patternProperties\":{\"^x\":{\"enum\":[1,\"a\"]}},\"required\":[\"b\"],"
    "\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"c\"]}],\"maxProperties\":4}";

static void test_refused_memory(void **state)
{
    struct refusing refusing = {0};
    struct rn_heap own = refusing_heap(&refusing);
    runnel_status status = RUNNEL_NO_MEMORY;

    (void)state;
    for (uint64_t n = 0; status != RUNNEL_OK; n++) {
        runnel_error error = {0};
        struct judge judge;

        refusing_allow(&refusing, n);
        status = judge_init(&judge, &own, large, sizeof large - 1, NULL, &error);
        if (status != RUNNEL_OK && status != RUNNEL_NO_MEMORY)
            fail_msg("%llu: %d, %s", (unsigned long long)n, status, error.message);
        judge_fini(&judge);
        assert_int_equal(refusing.live, 0);
        n += n > 200 ? n / 16 : 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),     cmocka_unit_test(test_long_strings),   cmocka_unit_test(test_any_json),
        cmocka_unit_test(test_numbers),   cmocka_unit_test(test_long_integers),  cmocka_unit_test(test_unique_integers),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_hostile),        cmocka_unit_test(test_leap_seconds),
        cmocka_unit_test(test_huge_enum), cmocka_unit_test(test_refused_memory), cmocka_unit_test(test_many_required),
    };

    rn_heap_init(&heap, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
