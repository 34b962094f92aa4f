/* Answers with tools that cannot be: each is refused by a sentence that says why. And that refused memory leaves
 * nothing. What can be is judged by call_random.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sampling/grammar/answer_rules.h"
#include "sampling/grammar/automaton.h"
#include "sampling/grammar/front.h"
#include "tests/base/refusing.h"
#include "tests/grammar/schema_judge.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define HERMES "<tool_call>"
#define CODER "<function=<parameter="
#define KIMI "<|tool_call_begin|><|tool_call_argument_begin|>"
#define PYTHON "<function_calls>"
#define TOOL(name, parameters) \
    "[{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":" parameters "}}]"
#define DIGITS "{\"type\":\"string\",\"pattern\":\"^[0-9]{5}$\"}"
#define ZIP(zip) "{\"properties\":{\"zip\":" zip "},\"required\":[\"zip\"],\"$defs\":{\"zip\":" DIGITS "}}"
#define CITY "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}"

static runnel_status make(struct rn_heap *heap, const char *template, const char *tools, const char *choice,
                          runnel_error *error)
{
    struct rn_answer_rules rules = {.format = rn_answer_format_of(template, strlen(template)),
                                    .tools = tools,
                                    .tools_bytes = tools == NULL ? 0 : strlen(tools),
                                    .choice = choice,
                                    .reasoning = true};
    struct rn_grammar *g = rn_grammar_new(heap, NULL, NULL);
    struct rn_automaton *automaton = NULL;
    runnel_status status;
    uint32_t root;
    rn_expr e;

    if (g == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory");
    root = rn_grammar_rule(g, "root", 4);
    e = rn_grammar_answer(g, &rules, RN_GRAMMAR_NONE);
    if (!rn_grammar_failed(g))
        rn_grammar_define(g, root, e);
    status = rn_grammar_finish(g, root, error);
    if (status == RUNNEL_OK)
        status = rn_automaton_new(heap, g, &automaton, error);
    rn_automaton_free(automaton);
    rn_grammar_free(g);
    return status;
}

static const struct {
    const char *template, *tools, *choice, *sentence; /* sentence NULL: allowed */
    runnel_status status;
} cases[] = {
    {HERMES, TOOL("f", CITY), "f", NULL, RUNNEL_OK},
    {HERMES, TOOL("f", CITY), NULL, NULL, RUNNEL_OK},
    {HERMES, NULL, "auto", NULL, RUNNEL_OK},
    {HERMES, "not JSON", "none", NULL, RUNNEL_OK},
    {HERMES, TOOL("f", CITY), "g", "the tool choice \"g\" names none of the tools", RUNNEL_INVALID},
    {HERMES, NULL, "required", "the tool choice asks for a call, and there are no tools", RUNNEL_INVALID},
    {HERMES, "[]", "f", "the tool choice asks for a call, and there are no tools", RUNNEL_INVALID},
    {HERMES, "[{\"name\":7}]", "auto", "tool 0 has no name", RUNNEL_INVALID},
    {HERMES, "[{\"name\":\"a\"},{\"name\":\"a\"}]", "auto", "two tools are named \"a\"", RUNNEL_INVALID},
    {"no marks", TOOL("f", CITY), "required", "the model's chat template shows no way to call tools",
     RUNNEL_UNSUPPORTED},
    {"no marks", TOOL("f", CITY), "auto", NULL, RUNNEL_OK},
    {HERMES, TOOL("f", "{\"type\":7}"), "auto", "the tool \"f\": the schema at \"#\": \"type\" must be", RUNNEL_FORMAT},
    {HERMES, TOOL("f", "[]"), "auto", "the tool \"f\": ", RUNNEL_FORMAT},
    {HERMES, TOOL("f", "{\"properties\":{\"a\":{\"format\":\"regex\"}}}"), "auto",
     "the tool \"f\": \"format\" at "
     "\"#/properties/a\"",
     RUNNEL_UNSUPPORTED},
    {HERMES, TOOL("f", "{\"type\":\"string\"}"), "f", "the grammar matches no text", RUNNEL_FORMAT},
    {HERMES, TOOL("a b", CITY), "a b", NULL, RUNNEL_OK},
    {KIMI, TOOL("a b", CITY), "auto", "the name of the tool \"a b\" cannot be written", RUNNEL_UNSUPPORTED},
    {PYTHON, TOOL("a:b", CITY), "auto", "the name of the tool \"a:b\" cannot be written as Python", RUNNEL_UNSUPPORTED},
    {CODER, TOOL("f", "{\"properties\":{\"a>b\":{}},\"required\":[\"a>b\"]}"), "auto",
     "the tool \"f\": the name \"a>b\" that is required at \"#\" cannot be written", RUNNEL_UNSUPPORTED},
    {CODER, TOOL("f", "{\"properties\":{\"a>b\":{}}}"), "auto", NULL, RUNNEL_OK},
    {CODER, TOOL("f", "{\"properties\":{\"x\":{},\"a\":{\"enum\":[\"</parameter>\"]}},\"required\":[\"x\",\"a\"]}"),
     "f",
     "the grammar matches no text: the tool \"f\": no value of \"a\", which is required at \"#\", can be written in a "
     "call's "
     "format",
     RUNNEL_FORMAT},
    {CODER, TOOL("f", "{\"properties\":{\"a\":{\"enum\":[\"</parameter>\"]}}}"), "f", NULL, RUNNEL_OK},
    {CODER, TOOL("f", ZIP("{\"allOf\":[{\"$ref\":\"#/$defs/zip\"}],\"description\":\"x\"}")), "required", NULL,
     RUNNEL_OK},
    {CODER, TOOL("f", ZIP("{\"anyOf\":[{\"$ref\":\"#/$defs/zip\"},{\"type\":\"null\"}]}")), "required", NULL,
     RUNNEL_OK},
    {CODER, TOOL("f", "{\"patternProperties\":{\"^z$\":" DIGITS "},\"required\":[\"z\"]}"), "required", NULL,
     RUNNEL_OK},
    {CODER, TOOL("f", "{\"additionalProperties\":" DIGITS ",\"required\":[\"z\"]}"), "required", NULL, RUNNEL_OK},
    {CODER, TOOL("f", "{\"$ref\":\"#/$defs/p\",\"$defs\":{\"p\":" ZIP(DIGITS) "}}"), "required", NULL, RUNNEL_OK},
    {CODER, TOOL("f", "{\"const\":{\"a\":1}}"), "auto", "the values of arguments as a whole cannot be listed",
     RUNNEL_UNSUPPORTED},
    {HERMES, TOOL("f", "{\"const\":{\"a\":1}}"), "f", NULL, RUNNEL_OK},
};

static void test_refused(void **state)
{
    struct rn_heap heap;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (size_t i = 0; i < COUNT(cases); i++) {
        runnel_error error = {0};
        runnel_status status = make(&heap, cases[i].template, cases[i].tools, cases[i].choice, &error);

        if (status != cases[i].status || (status != RUNNEL_OK && strstr(error.message, cases[i].sentence) == NULL))
            fail_msg("case %zu: %d, %s", i, (int)status, error.message);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* ---- Content beside tools ---- */

#define MISTRAL "[TOOL_CALLS]"
#define HARMONY "<|channel|><|message|><|start|>"

/* What the content may be: JSON by a schema, or of a notation. */
static rn_expr content_of(struct rn_grammar *g, const struct rn_answer_rules *rules, const char *text)
{
    struct rn_schema_options options = {0};

    rn_grammar_answer_escapes(rules->format, rules->tools != NULL, &options);
    if (rules->json)
        return rn_grammar_schema(g, text, strlen(text), &options);
    return rn_grammar_call(g, rn_front_rule(g, text[0] == 'r' ? RN_FRONT_GBNF : RN_FRONT_REGEX, text, strlen(text)));
}

static const struct {
    const char *template;
    bool tools, json;
    const char *content, *text;
    bool allowed;
} contents[] = {
    {HERMES, true, true, "{\"type\":\"string\"}", "\"a b > c\"", true},
    {HERMES, true, true, "{\"type\":\"string\"}", "\"<tool_call>\"", false},
    {HERMES, true, true, "{\"type\":\"string\"}", "\"a <tool_call>{}\"", false},
    {HERMES, true, true, "{\"type\":\"string\"}", "\"\\u003ctool_call>\"", true},
    {HERMES, true, true, "{\"type\":\"string\",\"maxLength\":20}", "\"<tool_call>\"", false},
    {HERMES, true, true, "{\"type\":\"string\",\"maxLength\":20}", "\"\\u003ctool_call>\"", true},
    {HERMES, true, true, "{\"enum\":[\"<tool_call>\",5]}", "\"<tool_call>\"", false},
    {HERMES, true, true, "{\"enum\":[\"<tool_call>\",5]}", "\"\\u003ctool_call>\"", true},
    {HERMES, true, true, "{\"properties\":{\"<tool_call>\":{\"type\":\"null\"}}}", "{\"<tool_call>\":null}", false},
    {HERMES, true, true, "{\"pattern\":\"^<[a-z_]+>$\",\"type\":\"string\"}", "\"<tool_call>\"", false},
    {HERMES, true, true, "{\"pattern\":\"^<[a-z_]+>$\",\"type\":\"string\"}", "\"\\u003ctool_call>\"", true},
    {HERMES, true, true, "{}", "{\"a\":[\"<tool_call>\"]}", false},
    {HERMES, true, true, "{}", "{\"a\":[\"<\"]}", false},
    {HERMES, false, true, "{}", "{\"a\":[\"<tool_call>\"]}", true},
    {HERMES, false, true, "{\"type\":\"string\",\"maxLength\":20}", "\"<tool_call>\"", true},
    {MISTRAL, true, true, "{}", "[\"[TOOL_CALLS]\"]", false},
    {MISTRAL, true, true, "{}", "[\"\\u005bTOOL_CALLS]<\",[1]]", true},
    {MISTRAL, false, true, "{}", "[\"[TOOL_CALLS]\"]", true},
    {HERMES, true, false, "[^x]*", "a < b", true},
    {HERMES, true, false, "[^x]*", "a <tool_call> b", false},
    {HERMES, false, false, "[^x]*", "a <tool_call> b", true},
    {HERMES, true, false, "root ::= (\"<\" [a-z_]+ \">\")+", "<tool><call>", true},
    {HERMES, true, false, "root ::= (\"<\" [a-z_]+ \">\")+", "<tool><tool_call>", false},
    {HARMONY, true, false, "[^x]*", "<|channel|>final<|message|>a < b", true},
    {HARMONY, true, false, "[^x]*", "<|channel|>final<|message|>a <|end|> b", false},
    {HARMONY, false, false, "[^x]*", "<|channel|>final<|message|>a <|end|> b", true},
    {HARMONY, true, true, "{}", "<|channel|>final<|message|>{\"a\":\"<|end|>\"}", false},
    {HARMONY, true, true, "{}", "<|channel|>final<|message|>{\"a\":\"\\u003c|end|>\"}", true},
    {MISTRAL, true, false, "root ::= [^x]*", "[TOOL_CALLS", true},
    {MISTRAL, true, false, "root ::= [^x]*", "[TOOL_CALLS]", false},
};

static struct rn_grammar *grammar_of(struct rn_heap *heap, const char *template, bool tools, bool json,
                                     const char *content)
{
    static const char tool[] = TOOL("f", CITY);
    struct rn_answer_rules rules = {.format = rn_answer_format_of(template, strlen(template)),
                                    .tools = tools ? tool : NULL,
                                    .tools_bytes = tools ? strlen(tool) : 0,
                                    .choice = "none",
                                    .json = json};
    struct rn_grammar *g = rn_grammar_new(heap, NULL, NULL);
    uint32_t root = rn_grammar_rule(g, "the answer", 10);
    rn_expr e = content_of(g, &rules, content);

    rn_grammar_define(g, root, rn_grammar_answer(g, &rules, e));
    assert_int_equal(rn_grammar_finish(g, root, NULL), RUNNEL_OK);
    return g;
}

/* No text of a content beside tools has a mark in it; without tools it may. */
static void test_contents(void **state)
{
    struct rn_heap heap;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (size_t i = 0; i < COUNT(contents); i++) {
        struct judge judge = {.heap = &heap,
                              .grammar = grammar_of(&heap, contents[i].template, contents[i].tools, contents[i].json,
                                                    contents[i].content)};

        assert_int_equal(rn_automaton_new(&heap, judge.grammar, &judge.automaton, NULL), RUNNEL_OK);
        judge.has_stacks = rn_stacks_init(&judge.stacks, &heap, judge.automaton, (size_t)1 << 24, 1000);
        if (judge_accepts(&judge, contents[i].text, strlen(contents[i].text)) != contents[i].allowed)
            fail_msg("case %zu: %s", i, contents[i].text);
        judge_fini(&judge);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Texts of rules that reach themselves cannot be told from those with a mark. */
static void test_recursive_content(void **state)
{
    static const char sums[] = "root ::= \"a\" | \"(\" root \")\"";
    struct rn_automaton *automaton = NULL;
    struct rn_heap heap;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (int tools = 0; tools < 2; tools++) {
        struct rn_grammar *g = grammar_of(&heap, HERMES, tools != 0, false, sums);
        runnel_error error = {0};

        assert_int_equal(rn_automaton_new(&heap, g, &automaton, &error), tools ? RUNNEL_UNSUPPORTED : RUNNEL_OK);
        assert_true(tools == 0 || strstr(error.message, "the rule \"root\" stands where texts are compared") != NULL);
        rn_automaton_free(automaton);
        rn_grammar_free(g);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Many tools, each of which takes long: they have one bound. And tools that are too large. */
static void test_hostile(void **state)
{
    static const char tool[] = "%s{\"name\":\"t%d\",\"parameters\":{\"properties\":{\"n\":{\"type\":\"integer\","
                               "\"multipleOf\":997,\"minimum\":-999999,\"maximum\":999999}}}}";
    size_t room = 3u << 20, n = 0;
    char *text = malloc(room);
    runnel_error error = {0};
    struct rn_heap heap;

    (void)state;
    rn_heap_init(&heap, NULL);
    assert_non_null(text);
    for (int i = 0; i < 128; i++)
        n += (size_t)snprintf(text + n, room - n, tool, i == 0 ? "[" : ",", i);
    strcpy(text + n, "]");
    assert_int_equal(make(&heap, HERMES, text, "required", &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, "more than"));
    memset(text, ' ', room - 1);
    text[room - 1] = '\0';
    assert_int_equal(make(&heap, HERMES, text, "auto", &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, "tools of 3145727 bytes"));
    free(text);
}

/* Each allocation in turn is refused. */
static void test_memory(void **state)
{
    static const char *const templates[] = {HERMES, CODER, PYTHON,
                                            "<|tool_call>call:", "<|channel|><|message|><|start|>"};
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);

    (void)state;
    for (size_t i = 0; i < COUNT(templates); i++) {
        runnel_status status = RUNNEL_NO_MEMORY;

        for (uint64_t n = 1; status == RUNNEL_NO_MEMORY; n++) {
            runnel_error error = {0};

            refusing.calls = 0;
            refusing.refuse_at = n;
            status = make(&heap, templates[i], TOOL("f", CITY), "required", &error);
            assert_true(status == RUNNEL_NO_MEMORY || status == RUNNEL_OK);
            assert_int_equal(refusing.live, 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused), cmocka_unit_test(test_hostile),
                                       cmocka_unit_test(test_contents), cmocka_unit_test(test_recursive_content),
                                       cmocka_unit_test(test_memory)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
