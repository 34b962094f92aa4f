/* Answers written by hand: each format's call, what turns out to be none, answers cut off anywhere, and pieces of all
 * formats in random order. The parts are written as one line, "R hm|C Sure.|N f|I id|A {}|E". */
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

/* One of each row of calls, told by what its template writes. */
static const struct {
    const char *name, *source;
} rows[] = {
    {"harmony", HARMONY},
    {"atem", "<|start|><|message|><|eom|><|eot|><atem:function_calls><atem:invoke name=\"x\">"},
    {"gemma-call", GEMMA},
    {"function-gemma", "<start_function_call>call:"},
    {"dsml", "'\xef\xbd\x9c"
             "DSML\xef\xbd\x9c' invoke"},
    {"gcml", "\xef\xbd\x9cGCML\xef\xbd\x9c invoke"},
    {"open-close", "'<|open|>' '<|close|>'"},
    {"mcp", "<use_mcp_tool><server_name>"},
    {"deepseek", "<\xef\xbd\x9ctool\xe2\x96\x81"
                 "call\xe2\x96\x81"
                 "begin\xef\xbd\x9c>"},
    {"kimi", "<|tool_call_begin|><|tool_call_argument_begin|>"},
    {"solar", "<|tool_call:begin|>"},
    {"arg-key-opensource", "':opensource' '<arg_key{}>'"},
    {"longcat", "<longcat_tool_call>"},
    {"arg-key", GLM},
    {"minimax", "<minimax:tool_call><invoke name="},
    {"nested", MM "<tool_call>" MM "<invoke name=\"x\"><mm:think>[e~["},
    {"invoke", "<invoke name=\"x\"><parameter name=\"y\">"},
    {"seed", "<seed:tool_call><function=x><parameter=y>"},
    {"function-parameter", CODER},
    {"function-param", "<function name=\"x\"><param name=\"y\">"},
    {"function-messages", FUNCTIONARY},
    {"function-equals", "<function=x>{}</function>"},
    {"keyed-list", "<|tools_prefix|>"},
    {"function-call-token", "<|function_call|>"},
    {"function-call-role", "'function call' role_sep message_sep"},
    {"start-action", "Action: <|START_ACTION|>"},
    {"action-json", "Action: ```json tool_name"},
    {"toolcall-list", "<TOOLCALL>["},
    {"bracket-tokens", MISTRAL},
    {"functools", "functools["},
    {"python-in-tokens", LFM2},
    {"python-list", "List of tools: ["},
    {"json-behind-token", "<|start_of_role|>available_tools"},
    {"action-plugin", "<|action_start|>"},
    {"tool-calls-lines", "<tool_calls>\\n{\"name\": x}</tool_calls><end_of_sentence>"},
    {"tool-calls-list", "<tool_calls>["},
    {"json-in-tags", HERMES},
    {"python-in-tags", "<function_calls>"},
    {"bare-json", LLAMA},
    {"think", THINK},
    {"cohere-response", "<|START_RESPONSE|>"},
    {"plain", "{{ messages }}"},
};

static void expect(const char *source, const char *text, const char *expected)
{
    expect_of(source, "", TOOLS, true, text, expected);
}

static const char *row(const char *name)
{
    size_t i;

    for (i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].source;
    fail_msg("no row %s", name);
    return NULL;
}

static void test_rows(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(rn_answer_format_name(rn_answer_format_of(rows[i].source, strlen(rows[i].source))),
                            rows[i].name);
    assert_string_equal(rn_answer_format_name(rn_answer_format_of("", 0)), "plain");
}

static void test_plain(void **state)
{
    (void)state;
    expect("x", " <think>a</think> <tool_call>{\"name\": \"f\"}\n\n",
           "C  <think>a</think> <tool_call>{\"name\": \"f\"}\n\n");
    expect("x", "", "");
    expect_of("x", "User: hi\nA:", NULL, true, " Sure.  ", "C Sure.  ");
    expect_of("x", "User: hi\nA:", NULL, true, "  Sure.", "C  Sure.");
}

static void test_reasoning(void **state)
{
    (void)state;
    expect(THINK, "<think>\nhm\n</think>\n\nSure.", "R hm|C Sure.");
    expect(THINK, "\n<think> a\n b </think> Sure.\n", "R a\n b|C  Sure.\n");
    expect(THINK, "<think>\n\n</think>\n\nSure.", "C Sure.");
    expect(THINK, "</think>Sure.", "C Sure.");
    expect(THINK, "Use <think> and </think>.", "C Use <think> and </think>.");
    expect(THINK, "<think>a <think> b", "R a <think> b");
    expect("<|START_RESPONSE|><|END_RESPONSE|>", "<|START_RESPONSE|>c <|END_RESPONSE|>", "C c ");
    expect_of(THINK, "<|a|><think>\n", NULL, true, "hm</think>Sure.", "R hm|C Sure.");
    expect_of(THINK, "<|a|><think>", NULL, true, "<think>\nhm</think>Sure.", "R hm|C Sure.");
    expect_of(THINK, "<think>\n\n</think>\n\n", NULL, true, "\nSure.", "C Sure.");
    expect_of(THINK, "say <think> to me", NULL, true, "Sure.</think>", "C Sure.</think>");
    expect_of(THINK, "<think>", NULL, false, "hm</thi", "R hm</thi");
    expect("[THINK]", "a [THINK]b[/THINK]c", "C a|R b|C c");
    expect("<seed:think>", "<seed:think>b</seed:think>c", "R b|C c");
    expect("<|inner_prefix|>", "<|inner_prefix|>b<|inner_suffix|>c", "R b|C c");
    expect("[BEGIN FINAL RESPONSE]",
           "Here are my reasoning steps:\nb\n[BEGIN FINAL RESPONSE]\nc\n[END FINAL RESPONSE]\n", "R b|C c");
    expect("<think></think><response></response>", "<think>b</think><response>c</response>", "R b|C c");
    expect("</think><answer>", "<think>\nb\n</think>\n<answer>\nc\n</answer>", "R b|C c");
    expect("<|START_THINKING|>", "<|START_THINKING|>b<|END_THINKING|><|START_RESPONSE|>c <|END_RESPONSE|>", "R b|C c ");
    expect("<|think|><|content|><|begin|>assistant", "<|think|>b<|end|><|begin|>assistant<|content|>c<|end|>",
           "R b|C c");
}

/* A call to one of the tools ends reasoning that was left open, in the formats whose models do that. */
static void test_unclosed_reasoning(void **state)
{
    static const char k3_think[] = "<|open|>think<|sep|>";
    const char *k3 = row("open-close");
#define DS(tag)    \
    "\xef\xbd\x9c" \
    "DSML\xef\xbd\x9c" tag
#define CALL "<tool_call>\n<function=f>\n<parameter=s>\n1\n</parameter>\n</function>\n</tool_call>"
    (void)state;
    expect_of(CODER, "<think>\n", TOOLS, true, "I look.\n" CALL, "R I look.|N f|A {\"s\":\"1\"}|E");
    expect_of(CODER, "<think>\n", TOOLS, true, CALL "\n" CALL, "N f|A {\"s\":\"1\"}|E|N f|A {\"s\":\"1\"}|E");
    expect_of(CODER, "<think>\n", TOOLS, true, CALL "\n</think>\n\nSure.", "N f|A {\"s\":\"1\"}|E|C Sure.");
    expect_of(CODER, "<think>\n", TOOLS, true, "a " CALL " b\n</think>\n\nc", "R a|N f|A {\"s\":\"1\"}|E|C b\n\n\nc");
    expect_of(CODER, "<think>\n", TOOLS, true, "a " CALL " b " CALL " c</think>d <tool_call></think>",
              "R a|N f|A {\"s\":\"1\"}|E|C b|N f|A {\"s\":\"1\"}|E|C cd <tool_call></think>");
    expect_of(CODER, "<think>\n", TOOLS, true, "a " CALL "<think>b</think>c</think>",
              "R a|N f|A {\"s\":\"1\"}|E|R b|C c</think>");
    expect_of(CODER, "<think>\n\n</think>\n\n", TOOLS, true, CALL " a</think>", "N f|A {\"s\":\"1\"}|E|C a</think>");
    expect_of(CODER, "<think>\n", TOOLS, true, "a <tool_call>\n<function=other>\n</function> b</think>c",
              "R a <tool_call>\n<function=other>\n</function> b|C c");
    expect_of(CODER, "<think>\n", TOOLS, true, "a <tool_call> and <function=f> b</think>" CALL,
              "R a <tool_call> and <function=f> b|N f|A {\"s\":\"1\"}|E");
    expect_of(CODER, "<think>\n", NULL, true, CALL "</think>c", "R " CALL "|C c");
    expect_of(CODER, "<think>\n", TOOLS, false, "a\n<tool_call>\n<function=f>\n<param",
              "R a\n<tool_call>\n<function=f>\n<param");
    expect_of(CODER, "<think>\n", TOOLS, false, "a <function=f><parameter=s>b</parameter>c",
              "R a|N f|A {\"s\":\"b\"|C c");
    expect_of(GLM, "<think>", TOOLS, true,
              "a\n<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n</tool_call>", "R a|N f|A {\"n\":1}|E");
    expect_of(THINK "'\xef\xbd\x9c"
                    "DSML\xef\xbd\x9c' invoke",
              "<think>", TOOLS, true,
              "a\n\n<" DS("tool_calls>\n<") DS("invoke name=\"g\">\n</") DS("invoke>\n</") DS("tool_calls>"),
              "R a|N g|A {}|E");
    expect_of(THINK "<|tool_call_begin|><|tool_call_argument_begin|>", "", TOOLS, true,
              "<think>a<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"n\": 1}<|tool_call_end|>",
              "R a|N f|I functions.f:0|A {\"n\": 1}|E");
    expect_of(k3, k3_think, TOOLS, true, "a<|open|>response<|sep|>b<|close|>response<|sep|>", "R a|C b");
    expect_of(k3, k3_think, TOOLS, true, "a<|close|>response<|sep|>b", "R a<|close|>response<|sep|>b");
    expect_of(k3, k3_think, TOOLS, true,
              "<|open|>tools<|sep|><|open|>call tool=\"g\" index=\"1\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
              "N g|A {}|E");
    /* Elsewhere a call that is only thought of is none. */
    expect_of(HERMES, "<think>\n", TOOLS, true,
              "a <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> b</think>c",
              "R a <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> b|C c");
    expect_of(MISTRAL, "[THINK]", TOOLS, true, "a [TOOL_CALLS]f[ARGS]{} b[/THINK]c", "R a [TOOL_CALLS]f[ARGS]{} b|C c");
#undef CALL
#undef DS
}

static void test_json_in_tags(void **state)
{
    (void)state;
    expect(HERMES,
           "Sure.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"</tool_call>\"}}\n</tool_call><|im_end|>",
           "C Sure.|N f|A {\"s\": \"</tool_call>\"}|E");
    expect(HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>",
           "N f|A {}|E|N g|A {}|E");
    expect(
        HERMES,
        "<tool_call>[{\"arguments\": {\"n\": [1, {}]}, \"name\": \"f\"}, {\"id\": 7, \"name\":\"g\", \"x\": [\"y\"]}]",
        "N f|A {\"n\": [1, {}]}|E|N g|A {}|E");
    expect(HERMES,
           "<tool_call>{\"id\":\"7\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"s\\\": "
           "\\\"\\\\n\\\"}\"}}</tool_call>x",
           "N f|I 7|A {\"s\": \"\\n\"}|E|C x");
    expect(HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":\"\",\"id\":\"1\"}</tool_call>", "N f|A {}|I 1|E");
    expect(HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":\" \\n\"}</tool_call>", "N f|A {}|E");
    expect(HERMES, "<tool_call>{\"name\":\"\\u0066\\ud83e\\udd89\",\"arguments\":null}</tool_call>",
           "N f\xf0\x9f\xa6\x89|A {}|E");
    expect_of(HERMES, "", NULL, true, "<tool_call>{\"name\":\"f\"}</tool_call>",
              "C <tool_call>{\"name\":\"f\"}</tool_call>");
    expect_of(HERMES, "", "no JSON", true, "<tool_call>{\"name\":\"f\"}", "C <tool_call>{\"name\":\"f\"}");
    expect_of(HERMES, "<tool_call>\n", TOOLS, true, "{\"name\":\"f\"}</tool_call>", "N f|A {}|E");
}

/* What turns out to be no call is content, byte for byte; what breaks within one ends it without an end. */
static void test_no_call(void **state)
{
    static const char *const contents[] = {"<tool_call>",
                                           "a <tool_call> b",
                                           "<tool_call>{}",
                                           "<tool_call>\n{\"name\": 1}",
                                           "<tool_call>{\"name\": \"f\"",
                                           "<tool_call>{\"arguments\": {}}</tool_call>",
                                           "<tool_call>{\"name\": \"f\", \"arguments\": 7}",
                                           "<tool_call>{\"name\": \"\", \"arguments\": {}}",
                                           "<tool_cal",
                                           "<tool_call>[]</tool_call>",
                                           "<<tool_call>>",
                                           "  <tool_call>\n\n x",
                                           "<tool_call>{\"x\": {\"y\": \"z"};
    char expected[200];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof contents / sizeof contents[0]; i++) {
        snprintf(expected, sizeof expected, "C %s", contents[i]);
        expect(HERMES, contents[i], expected);
    }
    expect(HERMES, "<tool_call>x<tool_call>{\"name\":\"f\"}</tool_call>", "C <tool_call>x|N f|A {}|E");
    expect(HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\" 1}}</tool_call>",
           "N f|A {\"a\" |C 1}}</tool_call>");
    expect(HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":tru}", "N f|A {\"a\":tru|C }");
    expect(FUNCTIONARY, ">>> unknown\n{}", "C >>> unknown\n{}");
    expect(FUNCTIONARY, "a >>>f\n(1)", "C a >>>f\n(1)");
    expect(LLAMA, "{\"name\": \"other\", \"parameters\": {}}", "C {\"name\": \"other\", \"parameters\": {}}");
    expect(LLAMA, "a {\"name\": \"f\", \"parameters\": {}}", "C a {\"name\": \"f\", \"parameters\": {}}");
    expect("List of tools: [", "[1, 2] and [f(x)]", "C [1, 2] and [f(x)]");
}

static void test_json_kinds(void **state)
{
    (void)state;
    expect(LLAMA, "{\"name\": \"f\", \"parameters\": {\"n\": 1}}; {\"name\": \"g\", \"parameters\": {}}<|eom_id|>",
           "N f|A {\"n\": 1}|E|N g|A {}|E");
    expect(LLAMA, "<|python_tag|>f.call(s=\"x\", n=1)", "N f|A {\"s\":\"x\",\"n\":1}|E");
    expect(row("function-equals"), "a<function=f>{\"n\": 1}</function>\n<function=g>{}</function>",
           "C a|N f|A {\"n\": 1}|E|N g|A {}|E");
    expect(FUNCTIONARY, ">>>all\nHi >>>f\n{\"n\":1}>>>g\n{}", "C Hi|N f|A {\"n\":1}|E|N g|A {}|E");
    expect_of(FUNCTIONARY, "\n\n>>>", TOOLS, true, "all\nHi", "C Hi");
    expect_of(FUNCTIONARY, "\n\n>>>", TOOLS, true, "f\n{}", "N f|A {}|E");
    expect_of(FUNCTIONARY, "\n\n>>>", NULL, true, "all\nHi", "C Hi");
    expect(MISTRAL, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"n\": 1}, \"id\": \"abc\"}]",
           "N f|A {\"n\": 1}|I abc|E");
    expect(MISTRAL, "Hi[TOOL_CALLS]f[CALL_ID]abc[ARGS]{\"n\": 1}[TOOL_CALLS]g[ARGS]{}",
           "C Hi|N f|I abc|A {\"n\": 1}|E|N g|A {}|E");
    expect(row("start-action"),
           "<|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {}}\n]<|END_ACTION|>",
           "N f|I 0|A {}|E");
    expect(row("action-json"), "Action:\n```json\n[\n{\n\"tool_name\": \"f\",\n\"parameters\": {}\n}\n]```",
           "N f|A {}|E");
    expect(row("keyed-list"), "<|tools_prefix|>[{\"f\": {\"n\": 1}}, {\"g\": {}}]<|tools_suffix|>",
           "N f|A {\"n\": 1}|E|N g|A {}|E");
    expect(row("json-behind-token"), "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]", "N f|A {}|E");
    expect(row("function-call-role"),
           "Hi<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"f\", \"arguments\": {}}<|message_sep|>\n\n",
           "C Hi|N f|A {}|E");
    expect(row("kimi"),
           "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
           "<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
           "N f|I functions.f:0|A {}|E|N g|I functions.g:1|A {}|E");
    expect(row("action-plugin"),
           "<|action_start|><|plugin|>\n{\"name\": \"f\", \"parameters\": {\"n\": 1}}<|action_end|>",
           "N f|A {\"n\": 1}|E");
    expect(row("tool-calls-list"), "<tool_calls>\n<tool_call>f\n```json\n{\"n\":1}\n```\n</tool_call>\n</tool_calls>",
           "N f|A {\"n\":1}|E");
    expect(row("tool-calls-lines"),
           "<tool_calls>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n{\"name\": \"g\", \"arguments\": {}}\n"
           "</tool_calls><end_of_sentence>\n",
           "N f|A {\"n\": 1}|E|N g|A {}|E");
    expect(
        row("tool-calls-lines"),
        "<tool_calls>{\"name\": \"f\", \"arguments\": {}}\n{\"x\": 1}</tool_calls>{\"name\": \"g\", \"arguments\": {}}",
        "N f|A {}|E|C {\"x\": 1}</tool_calls>{\"name\": \"g\", \"arguments\": {}}");
    expect(row("functools"), " functools[{\"name\": \"f\", \"arguments\": {}}]", "N f|A {}|E");
}

/* A fence of code behind a call is text, but for the one that the call itself has opened. */
static void test_fences(void **state)
{
    static const char fenced[] = "<tool_call>f\n```json\n{\"n\":1}\n```\n</tool_call>\n```c\nx\n```";
    static const char plain[] = "<tool_call>{\"name\":\"f\"}</tool_call>\n```c\nx\n```";
    const char *lists = row("tool-calls-list"), *action = row("action-json");

    (void)state;
    expect(HERMES, plain, "N f|A {}|E|C ```c\nx\n```");
    expect(HERMES, fenced, "N f|A {\"n\":1}|E|C ```c\nx\n```");
    expect(lists, plain, "N f|A {}|E|C ```c\nx\n```");
    expect(lists, fenced, "N f|A {\"n\":1}|E|C ```c\nx\n```");
    expect(LFM2, "<|tool_call_start|>[f()]<|tool_call_end|>```c\nx\n```", "N f|A {}|E|C ```c\nx\n```");
    expect(LFM2, "<|tool_call_start|>```python\n[f(), g()]\n```<|tool_call_end|>``", "N f|A {}|E|N g|A {}|E|C ``");
    expect(action, "Action: ```json\n[{\"tool_name\": \"f\", \"parameters\": {}}]\n```\n```c\nx\n```",
           "N f|A {}|E|C ```c\nx\n```");
    expect(action, "Action: ```json\n[{\"tool_name\": \"f\", \"parameters\": {}}]\n``", "N f|A {}|E");
}

/* What HTML strikes through ends as turns of some models do. */
static void test_struck_through(void **state)
{
    static const char *const sources[] = {MISTRAL, "[INST]", "{{ messages }}</s>"};

    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        expect(sources[i], "Use <s>old</s>  new, ok.", "C Use <s>old</s>  new, ok.");
        expect(sources[i], "Use <s>old</s>", "C Use <s>old</s>");
    }
    expect(MISTRAL, "[THINK]In HTML, <s>x</s> strikes text.[/THINK]Use <s>.",
           "R In HTML, <s>x</s> strikes text.|C Use <s>.");
}

static void test_parameters(void **state)
{
    (void)state;
    expect(
        CODER,
        "Hi\n\n<tool_call>\n<function=f>\n<parameter=s>\n<a>\n\n\"b\"\n</parameter>\n<parameter=n>\n3\n</parameter>\n"
        "<parameter=b>\nTrue\n</parameter>\n<parameter=o>\n{'a': None}\n</parameter>\n</function>\n</tool_call>\n",
        "C Hi|N f|A {\"s\":\"<a>\\n\\n\\\"b\\\"\",\"n\":3,\"b\":true,\"o\":{\"a\":null}}|E");
    expect(
        CODER,
        "<function=f><parameter=s>12</parameter><parameter=u>null</parameter><parameter=u>nul</parameter></function>",
        "N f|A {\"s\":\"12\",\"u\":null,\"u\":\"nul\"}|E");
    expect(
        CODER,
        "<function=f><parameter=n>three</parameter><parameter=y>[1]</parameter><parameter=e>b</parameter></function>",
        "N f|A {\"n\":\"three\",\"y\":[1],\"e\":\"b\"}|E");
    expect(CODER,
           "<function=h><parameter=a>[1, {\"b\": 2}]</parameter><parameter=b>-1.5e3</parameter><parameter=c>x, "
           "y</parameter>"
           "<parameter=d>\"q\"</parameter><parameter=e>\n\n</parameter></function>",
           "N h|A {\"a\":[1,{\"b\":2}],\"b\":-1.5e3,\"c\":\"x, y\",\"d\":\"\\\"q\\\"\",\"e\":\"\"}|E");
    expect(CODER, "<tool_call><function=f></function></tool_call><tool_call>{", "N f|A {}|E|C <tool_call>{");
    expect(CODER, "<function=f><parameter=s>a</para", "N f|A {\"s\":\"a</para");
    expect(CODER, "<function=f> text", "N f|C text");
    expect(GLM,
           "<tool_call>f<arg_key>s</arg_key><arg_value>a\nb</arg_value>\n<arg_key>n</arg_key>\n<arg_value>1</"
           "arg_value></tool_call>",
           "N f|A {\"s\":\"a\\nb\",\"n\":1}|E");
    expect(GLM, "<tool_call>f\n</tool_call><tool_call>no call", "N f|A {}|E|C <tool_call>no call");
    expect(row("minimax"),
           "\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">{}</parameter>\n</invoke>\n"
           "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
           "N f|A {\"s\":\"{}\"}|E|N g|A {}|E");
    expect(row("function-param"),
           "<function name=\"f\"><param name=\"s\"><![CDATA[a]]</param>\n]]></param><param "
           "name=\"x\">[True]</param></function>",
           "N f|A {\"s\":\"a]]</param>\\n\",\"x\":[true]}|E");
    expect(row("seed"), "<function=f><parameter=s>\na\n</parameter><parameter=n>\n3\n</parameter></function>",
           "N f|A {\"s\":\"\\na\\n\",\"n\":3}|E");
    expect(row("seed"), "<seed:tool_call>\n<function=f>\n<parameter=s>x</parameter>\n</function>\n</seed:tool_call>",
           "N f|A {\"s\":\"x\"}|E");
}

/* MiniMax M3: each tag behind a token of its own, values within values. */
static void test_nested(void **state)
{
#define CALL(arguments) MM "<tool_call>\n" MM "<invoke name=\"f\">" arguments MM "</invoke>\n" MM "</tool_call>[e~["
    (void)state;
    expect(row("nested"), "<mm:think>hm</mm:think>Sure." CALL(MM "<s>1 </s>" MM "</s>" MM "<n>2" MM "</n>"),
           "R hm|C Sure.|N f|A {\"s\":\"1 </s>\",\"n\":2}|E");
    expect(row("nested"), "</mm:think>" CALL(""), "N f|A {}|E");
    expect(row("nested"),
           CALL(MM "<o>" MM "<a>1" MM "</a>" MM "<b>\n" MM "<c>x" MM "</c>" MM "</b>" MM "<d>" MM "</d>" MM "</o>"),
           "N f|A {\"o\":{\"a\":1,\"b\":{\"c\":\"x\"},\"d\":\"\"}}|E");
    expect(row("nested"),
           CALL(MM "<y>" MM "<item>1" MM "</item>\n" MM "<item>" MM "<item>true" MM "</item>" MM "</item>" MM "</y>"),
           "N f|A {\"y\":[1,[true]]}|E");
    expect(row("nested"), CALL(MM "<o>" MM "<item>1" MM "</item>" MM "</o>" MM "<e>a" MM "</e>"),
           "N f|A {\"o\":{\"item\":1},\"e\":\"a\"}|E");
    expect(row("nested"), CALL(MM "<o>" MM "</o>" MM "<u>" MM "</u>"), "N f|A {\"o\":{},\"u\":\"\"}|E");
    expect(row("nested"), CALL(MM "<o>{\"a\": [1]}" MM "</o>"), "N f|A {\"o\":{\"a\":[1]}}|E");
    expect(row("nested"), MM "<invoke name=\"f\">" MM "<o>" MM "<a>1" MM "</o>", "N f|A {\"o\":{\"a\":\"1" MM "</o>");
    expect(row("nested"), MM "<invoke name=\"f\">" MM "<y>" MM "<item>1" MM "</item>" MM "<x>", "N f|A {\"y\":[1");
#undef CALL
}

static void test_recipients(void **state)
{
    static const char prompt[] = "<|start|>user<|message|>Hi<|eot|><|start|>assistant";
    const char *atem = row("atem");

    (void)state;
    expect_of(atem, prompt, TOOLS, true,
              " to=self<|message|> hm\n<|eom|><|start|>assistant to=user<|message|>Sure. \n<|eot|>",
              "R  hm\n|C Sure. \n");
    expect_of(atem, prompt, TOOLS, true, "<|message|>Sure.<|eot|>", "C Sure.");
    expect_of(
        atem, prompt, TOOLS, true,
        " to=user<|message|>I look.<|eom|><|start|>assistant to=f<|message|><atem:function_calls>\n<atem:invoke "
        "name=\"f\">\n<atem:parameter name=\"s\">a\n</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|>"
        "<|start|>assistant to=g<|message|><atem:function_calls>\n<atem:invoke name=\"g\">\n</atem:invoke>\n"
        "</atem:function_calls><|eot|>",
        "C I look.|N f|A {\"s\":\"a\\n\"}|E|N g|A {}|E");
    expect_of(atem, prompt, TOOLS, true,
              " to=user<|message|>So: <atem:invoke name=\"f\">\n</atem:invoke><|eom|><|start|>assistant to=f<|message|>"
              "<atem:invoke name=\"f\">\n</atem:invoke><|eom|>",
              "C So: <atem:invoke name=\"f\">\n</atem:invoke>|N f|A {}|E");
    expect_of(atem, "<|start|>assistant to=self<|message|>", TOOLS, false, "hm<|e", "R hm<|e");
    expect_of(atem, prompt, TOOLS, true, " to=self<|message|>hm<|eom|><|start|>user<|message|>x",
              "R hm|C <|start|>user<|message|>x");
    expect_of(atem, prompt, NULL, true, " to=f<|message|>\nx", "C x");
}

static void test_python(void **state)
{
    (void)state;
    expect(
        LFM2,
        "<|tool_call_start|>[f(s='it\\'s \"x\"', n=-1, o={'a': (1, None,), 2: True}), g()]<|tool_call_end|>Checking.",
        "N f|A {\"s\":\"it's \\\"x\\\"\",\"n\":-1,\"o\":{\"a\":[1,null],\"2\":true}}|E|N g|A {}|E|C Checking.");
    expect(LFM2, "<|tool_call_start|>[f(s=\"\\x41\\u00e9\\U0001f989\\101\\q\\\n.\")]",
           "N f|A {\"s\":\"\\u0041\\u00e9\\ud83e\\udd89\\u0041\\\\q.\"}|E");
    expect(LFM2, "<|tool_call_start|>[f(\"x\")]", "C <|tool_call_start|>[f(\"x\")]");
    expect(LFM2, "<|tool_call_start|>[f(n=1), g(x)]", "N f|A {\"n\":1}|E|C , g(x)]");
    expect("List of tools: [", "[f(n=1), g()]", "N f|A {\"n\":1}|E|N g|A {}|E");
    expect(row("python-in-tags"), "<function_calls>\nf(n=1)\ng(a=[])\n</function_calls>",
           "N f|A {\"n\":1}|E|N g|A {\"a\":[]}|E");
    expect(LFM2, "<|tool_call_start|>[f(n=1.5, b=", "N f|A {\"n\":1.5,\"b\":");
}

/* Kimi K3, DeepSeek's cousin, MCP. */
static void test_markup(void **state)
{
    (void)state;
    expect(row("open-close"),
           "<|open|>think<|sep|>hm<|close|>think<|sep|><|open|>response<|sep|>Sure.<|close|>response<|sep|><|open|>"
           "tools<|sep|>"
           "<|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"s\" "
           "type=\"string\"<|sep|>1<|close|>argument<|sep|>"
           "<|open|>argument key=\"x\" type=\"number\"<|sep|>1<|close|>argument<|sep|><|close|>call<|sep|>"
           "<|open|>call tool=\"g\" index=\"2\"<|sep|><|open|>json type=\"object\"<|sep|>{\"a\": 1}<|close|>json<|sep|>"
           "<|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>",
           "R hm|C Sure.|N f|A {\"s\":\"1\",\"x\":1}|E|N g|A {\"a\": 1}|E");
    expect(row("mcp"),
           "Hi\n<use_mcp_tool>\n<server_name>a b-c</server_name>\n<tool_name>f</tool_name>\n<arguments>\n{\"n\": 1}\n"
           "</arguments>\n</use_mcp_tool>",
           "C Hi|N f|A {\"n\": 1}|E");
    expect(
        row("gcml"),
        "<\xef\xbd\x9cGCML\xef\xbd\x9ctool_calls>\n<\xef\xbd\x9cGCML\xef\xbd\x9cinvoke name=\"f\">\n"
        "<\xef\xbd\x9cGCML\xef\xbd\x9cparameter name=\"n\" string=\"true\">1</\xef\xbd\x9cGCML\xef\xbd\x9cparameter>\n"
        "</\xef\xbd\x9cGCML\xef\xbd\x9cinvoke>\n</\xef\xbd\x9cGCML\xef\xbd\x9ctool_calls>",
        "N f|A {\"n\":\"1\"}|E");
    expect(row("json-behind-token"), "<|tool_call|>{\"name\": \"f\", \"arguments\": {}}<|/tool_call|>", "N f|A {}|E");
    expect(LFM2, "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {}, \"id\": \"7\"}]<|tool_call_end|>Hi",
           "N f|A {}|I 7|E|C Hi");
    expect(LFM2, "<|tool_call_start|>[f(s='it's \"x\"', u=\"a\")]", "N f|A {\"s\":\"it's \\\"x\\\"\",\"u\":\"a\"}|E");
    expect(CODER, "<function=f><parameter=o>\"x\"</parameter></function>", "N f|A {\"o\":\"x\"}|E");
    expect_of("<seed:think>", "<seed:think><seed:cot_budget_reflect>", NULL, true, "a</seed:think>b", "R a|C b");
}

static void test_gemma(void **state)
{
    (void)state;
    expect(GEMMA,
           "<|channel>thought\nhm\n<channel|><|tool_call>call:f{s:<|\"|>a\"{<|x<|\"|>,o:{a:[1,None,true],b:{}},n:3}<"
           "tool_call|><turn|>",
           "R hm|N f|A {\"s\":\"a\\\"{<|x\",\"o\":{\"a\":[1,null,true],\"b\":{}},\"n\":3}|E");
    expect(GEMMA, "<|tool_call>call:f{}<tool_call|><|tool_call>call:g{s:<|\"|><|\"|>}<tool_call|>ok",
           "N f|A {}|E|N g|A {\"s\":\"\"}|E|C ok");
    expect(GEMMA, "<|tool_call>call:f{s:<|\"|>a<|", "N f|A {\"s\":\"a<|");
    expect(row("function-gemma"), "<start_function_call>call:f{s:<escape>x<escape>}<end_function_call>",
           "N f|A {\"s\":\"x\"}|E");
}

static void test_harmony(void **state)
{
    static const char prompt[] = "<|start|>user<|message|>Hi<|end|><|start|>assistant";

    (void)state;
    expect_of(
        HARMONY, prompt, TOOLS, true,
        "<|channel|>analysis<|message|> hm \n<|end|><|start|>assistant<|channel|>final<|message|>Sure. <|return|>",
        "R  hm \n|C Sure. ");
    expect_of(HARMONY, prompt, TOOLS, true,
              "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
              "<|constrain|>json<|message|>{\"n\": 1}<|call|>",
              "C I look.|N f|A {\"n\": 1}|E");
    expect_of(HARMONY, prompt, TOOLS, true, " to=functions.g<|channel|>commentary json<|message|>{}<|call|>",
              "N g|A {}|E");
    expect_of(HARMONY, prompt, NULL, true, " to=functions.g<|channel|>commentary json<|message|>{}<|call|>", "R {}");
    expect_of(
        HARMONY, prompt, TOOLS, true,
        "<|channel|>commentary to=python code<|message|>1 + 1<|call|><|start|>assistant<|channel|>final<|message|>2",
        "R 1 + 1|C 2");
    expect_of(HARMONY, prompt, TOOLS, true, " to=browser.search<|channel|>commentary<|message|>{}<|call|>", "R {}");
    expect_of(HARMONY, prompt, TOOLS, true, "<|channel|>commentary to=user<|message|>Hi<|end|>", "C Hi");
    expect_of(HARMONY, prompt, TOOLS, true, " to=all<|channel|>final<|message|>Hi<|return|>", "C Hi");
    expect_of(HARMONY, prompt, TOOLS, true, "Hello, plain.", "C Hello, plain.");
    expect_of(HARMONY, "", TOOLS, true, "<|channel|>final<|message|>a<|channel|b<|start|>x",
              "C a<|channel|b<|start|>x");
    expect_of(HARMONY, "<|start|>assistant<|channel|>analysis<|message|>", TOOLS, false, "hm<|e", "R hm<|e");
    expect_of(HARMONY, prompt, TOOLS, true, "<|channel|>commentary to=functions.f<|message|>text<|call|>",
              "C <|channel|>commentary to=functions.f<|message|>text");
}

/* A prompt whose last message holds a call, as text that goes on may: nothing of it is given out, and what follows is
 * text. */
static void test_calls_in_prompts(void **state)
{
#define NAME16 "abcdefghijklmnop"
    static const char channels[] =
        "<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>commentary to=functions."
        "f <|constrain|>json<|message|>{\"a\": \"B\"}";
    static const char long_name[] = "<|start|>assistant to=functions." NAME16 NAME16 NAME16 NAME16 NAME16 NAME16
                                    "<|channel|>commentary json<|message|>{\"a\": 1";
    static const char recipients[] =
        "<|start|>assistant to=f<|message|><atem:function_calls>\n<atem:invoke name=\"" NAME16 NAME16 NAME16
        "\">\n<atem:parameter name=\"n\">1</atem:parameter>";
    static const char header[] = "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>";
#undef NAME16

    (void)state;
    expect_of(HARMONY, channels, TOOLS, true, " so<|call|>", "C  so");
    expect_of(HARMONY, long_name, TOOLS, true, "}<|call|>", "C }");
    expect_of(HARMONY, header, TOOLS, true, "{\"n\": 1}<|call|>", "N f|A {\"n\": 1}|E");
    expect_of(row("atem"), recipients, TOOLS, true, "so<|eom|>", "C so");
}

/* What is certain comes at once; what was held comes when it is decided. */
static void test_early(void **state)
{
    static const struct {
        const char *fed, *expected;
    } steps[] = {{"Su", "C Su"},
                 {"re.\n", "C re."},
                 {"<tool_", ""},
                 {"call>{\"name\": \"f\", ", ""},
                 {"\"arguments\": {\"n", "N f|A {\"n"},
                 {"\": 1", "A \": 1"},
                 {"}}", "A }|E"},
                 {"</tool_call>", ""}};
    struct rn_heap heap;
    struct rn_answer *answer;
    char text[8192];
    struct rn_part list[256];
    size_t i, bytes;

    (void)state;
    rn_heap_init(&heap, NULL);
    answer = answer_with(&heap, rn_answer_format_of(HERMES, strlen(HERMES)), TOOLS, strlen(TOOLS));
    assert_non_null(answer);
    for (i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct parts parts = {.parts = list, .text = text};
        size_t at[256], j, sum = 0;
        char *line;

        assert_true(rn_answer_text_bound(answer, strlen(steps[i].fed)) <= sizeof text);
        parts.n = rn_answer_feed(answer, steps[i].fed, strlen(steps[i].fed), list, text, &bytes);
        parts.bytes = bytes;
        parts.at = at;
        for (j = 0; j < parts.n; j++) {
            at[j] = sum;
            sum += list[j].bytes;
        }
        put_line(&line, &parts);
        assert_string_equal(line, steps[i].expected);
        free(line);
    }
    assert_int_equal(rn_answer_end(answer, true, list, text, &bytes), 0);
    rn_answer_free(answer);
    rn_answer_free(NULL);
}

/* An answer cut off anywhere: the call has no end, and what was content stays. */
static void test_cut_off(void **state)
{
    static const char text[] =
        "<think>hm</think>Sure.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a\\\"b\"}}\n</tool_call>";
    struct rn_heap heap;
    struct reading reading = {.format = rn_answer_format_of(HERMES, strlen(HERMES)),
                              .heap = &heap,
                              .prompt = "",
                              .tools = TOOLS,
                              .tools_bytes = strlen(TOOLS)};
    size_t n, whole = strlen(text), end = (size_t)(strstr(text, "}}") - text) + 2, bytes;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (n = 0; n <= whole; n++) {
        struct parts parts;
        char *content;

        parts_read(&reading, text, n, CUT_RANDOM, n, &parts);
        assert_int_equal(parts_ends(&parts), n >= end);
        content = parts_text(&parts, RN_PART_CONTENT, 0, &bytes);
        if (parts_calls(&parts) > 0)
            assert_string_equal(content, "Sure.");
        else
            assert_true(n < 17 ? bytes == 0 || n < 7 : bytes == n - 17 && memcmp(content, text + 17, bytes) == 0);
        free(content);
        parts_fini(&parts);
    }
}

static void test_wants(void **state)
{
    struct rn_heap heap;
    struct rn_answer *answer;

    (void)state;
    rn_heap_init(&heap, NULL);
    answer = answer_with(&heap, rn_answer_format_of(HERMES, strlen(HERMES)), TOOLS, strlen(TOOLS));
    assert_non_null(answer);
    assert_true(rn_answer_wants(answer, "<think>", 7));
    assert_true(rn_answer_wants(answer, "</tool_call>", 12));
    assert_true(rn_answer_wants(answer, "<|im_end|>", 10));
    assert_false(rn_answer_wants(answer, "<|endoftext|>", 13));
    assert_false(rn_answer_wants(answer, "<pad>", 5));
    assert_false(rn_answer_wants(answer, "", 0));
    rn_answer_free(answer);
    answer = answer_with(&heap, rn_answer_format_of(HERMES, strlen(HERMES)), NULL, 0);
    assert_non_null(answer);
    assert_true(rn_answer_wants(answer, "</think>", 8));
    assert_false(rn_answer_wants(answer, "<tool_call>", 11));
    rn_answer_free(answer);
    answer = answer_with(&heap, rn_answer_format_of(HARMONY, strlen(HARMONY)), NULL, 0);
    assert_non_null(answer);
    assert_true(rn_answer_wants(answer, "<|constrain|>", 13));
    assert_true(rn_answer_wants(answer, "<|call|>", 8));
    rn_answer_free(answer);
    answer = answer_with(&heap, rn_answer_format_of(GEMMA, strlen(GEMMA)), TOOLS, strlen(TOOLS));
    assert_non_null(answer);
    assert_true(rn_answer_wants(answer, "<|\"|>", 5));
    rn_answer_free(answer);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Pieces of all formats in random order: the parts do not depend on the cuts, and calls that end are whole. */
static void test_pieces(void **state)
{
    static const char *const pieces[] = {"<tool_call>",
                                         "</tool_call>",
                                         "{\"name\": \"f\", \"arguments\": ",
                                         "{}",
                                         "{\"a\": 1}",
                                         "}",
                                         "]",
                                         "[",
                                         ", ",
                                         "\n",
                                         " ",
                                         "x",
                                         "<function=f>",
                                         "<parameter=s>",
                                         "<parameter=n>",
                                         "</parameter>",
                                         "</function>",
                                         "<arg_key>",
                                         "s",
                                         "</arg_key>",
                                         "<arg_value>",
                                         "</arg_value>",
                                         "f",
                                         "f(",
                                         "n=1",
                                         ")",
                                         "s='a'",
                                         "<|tool_call_start|>",
                                         "<|tool_call_end|>",
                                         "<think>",
                                         "</think>",
                                         "<|channel|>",
                                         "analysis",
                                         "<|message|>",
                                         "<|end|>",
                                         "<|start|>",
                                         "assistant",
                                         " to=functions.f",
                                         ">>>",
                                         "all",
                                         "f\n",
                                         "[TOOL_CALLS]",
                                         "[ARGS]",
                                         "[CALL_ID]",
                                         "<|tool_call>call:",
                                         "{",
                                         "s:<|\"|>",
                                         "<|\"|>",
                                         "<tool_call|>",
                                         "\"",
                                         "\\",
                                         "'",
                                         "12",
                                         "null",
                                         "<invoke name=\"f\">",
                                         "<parameter name=\"s\">",
                                         "</invoke>",
                                         "<|tools_prefix|>",
                                         "[{\"f\": {\"n\": 1}}]",
                                         "\xc3\xa9",
                                         "<|START_ACTION|>",
                                         "<|END_ACTION|>",
                                         "<|im_end|>",
                                         "\xef\xbd\x9c",
                                         "functools",
                                         "<|tool_call|>",
                                         "<function_calls>",
                                         "<TOOLCALL>",
                                         "\"id\": \"7\", ",
                                         "\"name\": \"g\"",
                                         "<![CDATA[",
                                         "]]>",
                                         "<param name=\"s\">",
                                         "</param>",
                                         "<function name=\"f\">",
                                         "{\"arguments\": {}, ",
                                         "```json",
                                         "```",
                                         "Action:",
                                         "<|python_tag|>",
                                         ";"};
    struct rn_heap heap;
    uint64_t random = 1;
    char text[2048];
    size_t i, n;
    int round, j;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (round = 0; round < 200; round++) {
        for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            struct reading reading = {.format = rn_answer_format_of(rows[i].source, strlen(rows[i].source)),
                                      .heap = &heap,
                                      .prompt = round % 4 == 0 ? "<|start|>assistant" : "",
                                      .tools = TOOLS,
                                      .prompt_bytes = round % 4 == 0 ? 18 : 0,
                                      .tools_bytes = strlen(TOOLS)};
            struct parts whole, cut;

            for (n = 0, j = 0; j < 24; j++) {
                const char *piece;

                random = random * 6364136223846793005u + 1442695040888963407u;
                piece = pieces[(random >> 33) % (sizeof pieces / sizeof pieces[0])];
                memcpy(text + n, piece, strlen(piece));
                n += strlen(piece);
            }
            parts_read(&reading, text, n, CUT_WHOLE, 0, &whole);
            parts_check_ends(&whole);
            parts_read(&reading, text, n, round % 2 ? CUT_BYTES : CUT_RANDOM, random, &cut);
            assert_true(parts_equal(&whole, &cut));
            parts_fini(&cut);
            parts_fini(&whole);
        }
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_json_in_tags),
        cmocka_unit_test(test_no_call),
        cmocka_unit_test(test_json_kinds),
        cmocka_unit_test(test_unclosed_reasoning),
        cmocka_unit_test(test_fences),
        cmocka_unit_test(test_struck_through),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_python),
        cmocka_unit_test(test_markup),
        cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_harmony),
        cmocka_unit_test(test_recipients),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_calls_in_prompts),
        cmocka_unit_test(test_early),
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_wants),
        cmocka_unit_test(test_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
