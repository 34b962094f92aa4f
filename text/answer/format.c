/* The tables of formats, and how a template tells its row: see format.h.
 *
 * What a template writes for past answers is what its model writes: so a row is told by the markers in the
 * source. Rows are asked in order; those with more special markers come first. No marker here is long: a
 * stream's hold-back is bounded by them (impl.h). */
#define _GNU_SOURCE /* memmem */
#include "text/answer/format.h"

#include <string.h>

#define NAME RN_F_NAME
#define ID RN_F_ID
#define INDEX RN_F_INDEX
#define SPACE RN_F_SPACE
#define CALL RN_F_CALL
#define KEYED RN_F_KEYED
#define OBJECT RN_F_OBJECT
#define PARAMS RN_F_PARAMS
#define PYTHON RN_F_PYTHON
#define GEMMA RN_F_GEMMA
#define ANY RN_F_ANY

/* "｜" and "▁" of DeepSeek's and Tencent's tokens. */
#define BAR "\xef\xbd\x9c"
#define GAP "\xe2\x96\x81"
#define DS(words) "<" BAR words BAR ">"
#define DSML BAR "DSML" BAR
#define GCML BAR "GCML" BAR

/* A tag of Kimi K3, and the end of one. */
#define TAG(words) "<|open|>" words "<|sep|>"
#define END_TAG(word) "<|close|>" word "<|sep|>"

/* ---- Reasoning ---- */

static const struct rn_reasoning_row reasonings[] = {
    {.name = "channel-thought",
     .tells = {"<|channel>"},
     .open = {"<|channel>thought"},
     .close = "<channel|>",
     .anywhere = true},
    {.name = "solar",
     .tells = {"<|think|>", "<|content|>"},
     .open = {"<|think|>"},
     .close = "<|end|>",
     .wrappers = {"<|begin|>assistant", "<|content|>"},
     .anywhere = true},
    {.name = "open-close",
     .tells = {"<|open|>", "<|close|>"},
     .open = {TAG("think")},
     .close = END_TAG("think"),
     .wrappers = {TAG("response"), END_TAG("response")},
     .anywhere = true,
     .response_ends = true},
    {.name = "brackets", .tells = {"[THINK]"}, .open = {"[THINK]"}, .close = "[/THINK]", .anywhere = true},
    {.name = "seed",
     .tells = {"<seed:think>"},
     .open = {"<seed:think>", "<seed:think><seed:cot_budget_reflect>"},
     .close = "</seed:think>"},
    {.name = "think-opensource",
     .tells = {"<think{}>", "':opensource'"},
     .open = {"<think:opensource>"},
     .close = "</think:opensource>"},
    {.name = "longcat", .tells = {"<longcat_think>"}, .open = {"<longcat_think>"}, .close = "</longcat_think>"},
    {.name = "inner",
     .tells = {"<|inner_prefix|>"},
     .open = {"<|inner_prefix|>"},
     .close = "<|inner_suffix|>",
     .anywhere = true},
    {.name = "cohere",
     .tells = {"<|START_THINKING|>"},
     .open = {"<|START_THINKING|>"},
     .close = "<|END_THINKING|>",
     .wrappers = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"},
     .anywhere = true},
    {.name = "cohere-response",
     .tells = {"<|START_RESPONSE|>"},
     .wrappers = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"}},
    {.name = "final-response",
     .tells = {"[BEGIN FINAL RESPONSE]"},
     .open = {"Here are my reasoning steps:", "<thinking>"},
     .close = "[BEGIN FINAL RESPONSE]",
     .wrappers = {"[END FINAL RESPONSE]"},
     .trim = true},
    {.name = "thought-process",
     .tells = {"Here is my thought process:"},
     .open = {"Here is my thought process:"},
     .close = "Here is my response:",
     .trim = true},
    {.name = "begin-of-thought",
     .tells = {"<|begin_of_thought|>"},
     .open = {"<|begin_of_thought|>"},
     .close = "<|end_of_thought|>",
     .wrappers = {"<|begin_of_solution|>", "<|end_of_solution|>"},
     .anywhere = true,
     .trim = true},
    {.name = "thought-start",
     .tells = {"<|thought_start|>"},
     .open = {"<|thought_start|>"},
     .close = "<|thought_end|>",
     .anywhere = true},
    {.name = "mm-think", .tells = {"<mm:think>"}, .open = {"<mm:think>"}, .close = "</mm:think>"},
    {.name = "triangles",
     .tells = {"\xe2\x97\x81think\xe2\x96\xb7"},
     .open = {"\xe2\x97\x81think\xe2\x96\xb7"},
     .close = "\xe2\x97\x81/think\xe2\x96\xb7"},
    {.name = "think", .tells = {"<think>", "<minimax:tool_call>"}, .open = {"<think>"}, .close = "</think>"},
    {.name = "think-response",
     .tells = {"<think>", "<response>"},
     .open = {"<think>"},
     .close = "</think>",
     .wrappers = {"<response>", "</response>"},
     .trim = true},
    {.name = "think-answer",
     .tells = {"</think>", "<answer>"},
     .open = {"<think>"},
     .close = "</think>",
     .wrappers = {"<answer>", "</answer>"},
     .trim = true},
    {.name = "think", .tells = {"<think>"}, .open = {"<think>"}, .close = "</think>"},
    {.name = "think", .tells = {"</think>"}, .open = {"<think>"}, .close = "</think>"},
    {.name = "think", .tells = {"<think{}>"}, .open = {"<think>"}, .close = "</think>"},
    {.name = "thought", .tells = {"</thought>"}, .open = {"<thought>"}, .close = "</thought>"},
    {.name = "thinking", .tells = {"</thinking>"}, .open = {"<thinking>"}, .close = "</thinking>"},
    {.name = "reasoning", .tells = {"</reasoning>"}, .open = {"<reasoning>"}, .close = "</reasoning>"},
    {.name = "plain"},
};

/* ---- Parameters ---- */

#define FUNCTION_EQUALS                                                                                           \
    .open = "<parameter=", .openers = {{">", RN_VALUE_BY_SCHEMA}}, .close = "</parameter>", .end = "</function>", \
    .python = true
static const struct rn_param_syntax function_equals = {FUNCTION_EQUALS, .lines = true};
static const struct rn_param_syntax seed_function = {FUNCTION_EQUALS};
static const struct rn_param_syntax invoke_name = {.open = "<parameter name=\"",
                                                   .openers = {{"\">", RN_VALUE_BY_SCHEMA}},
                                                   .close = "</parameter>",
                                                   .end = "</invoke>"};
static const struct rn_param_syntax atem = {.open = "<atem:parameter name=\"",
                                            .openers = {{"\">", RN_VALUE_BY_SCHEMA}},
                                            .close = "</atem:parameter>",
                                            .end = "</atem:invoke>"};
/* The token in front of each tag of MiniMax M3. */
#define MM "]<]minimax[>["
static const struct rn_param_syntax nested = {
    .open = MM "<", .openers = {{">", RN_VALUE_BY_SCHEMA}}, .close = MM "</", .end = MM "</invoke>", .item = "item"};
#define MARKUP(ml)                                              \
    {                                                           \
        .open = "<" ml "parameter name=\"",                     \
        .openers = {{"\" string=\"true\">", RN_VALUE_TEXT},     \
                    {"\" string=\"false\">", RN_VALUE_JSON},    \
                    {"\">", RN_VALUE_BY_SCHEMA}},               \
        .close = "</" ml "parameter>", .end = "</" ml "invoke>" \
    }
static const struct rn_param_syntax dsml = MARKUP(DSML);
static const struct rn_param_syntax gcml = MARKUP(GCML);
static const struct rn_param_syntax open_close = {.open = "<|open|>argument key=\"",
                                                  .openers = {{"\" type=\"string\"<|sep|>", RN_VALUE_TEXT},
                                                              {"\" type=\"" ANY "\"<|sep|>", RN_VALUE_JSON},
                                                              {"\"<|sep|>", RN_VALUE_BY_SCHEMA}},
                                                  .close = END_TAG("argument"),
                                                  .end = END_TAG("call")};
static const struct rn_param_syntax arg_key = {.open = "<arg_key>",
                                               .openers = {{"</arg_key>" SPACE "<arg_value>", RN_VALUE_BY_SCHEMA}},
                                               .close = "</arg_value>",
                                               .end = "</tool_call>"};
static const struct rn_param_syntax arg_key_opensource = {
    .open = "<arg_key:opensource>",
    .openers = {{"</arg_key:opensource>" SPACE "<arg_value:opensource>", RN_VALUE_BY_SCHEMA}},
    .close = "</arg_value:opensource>",
    .end = "</tool_call:opensource>"};
static const struct rn_param_syntax longcat = {
    .open = "<longcat_arg_key>",
    .openers = {{"</longcat_arg_key>" SPACE "<longcat_arg_value>", RN_VALUE_BY_SCHEMA}},
    .close = "</longcat_arg_value>",
    .end = "</longcat_tool_call>"};
static const struct rn_param_syntax param_name = {.open = "<param name=\"",
                                                  .openers = {{"\">", RN_VALUE_BY_SCHEMA}},
                                                  .close = "</param>",
                                                  .end = "</function>",
                                                  .cdata = true,
                                                  .python = true};

/* ---- Calls ---- */

static const struct rn_call_row calls[] = {
    {.name = "harmony", .tells = {{"<|channel|>", "<|message|>", "<|start|>"}}, .headers = RN_HEADERS_CHANNELS},
    {.name = "atem",
     .tells = {{"<atem:function_calls>", "<atem:invoke name="}},
     .open = {"<atem:function_calls>" SPACE "<atem:invoke name=\"" NAME "\">" PARAMS,
              "<atem:invoke name=\"" NAME "\">" PARAMS},
     .closers = {"</atem:function_calls>"},
     .params = &atem,
     .headers = RN_HEADERS_RECIPIENTS,
     .written = {{.call = " to=" NAME "<|message|><atem:function_calls>" SPACE "<atem:invoke name=\"" NAME
                          "\">" PARAMS SPACE "</atem:function_calls>",
                  .between = "<|eom|><|start|>assistant"}}},
    {.name = "gemma-call",
     .tells = {{"<|tool_call>call:"}},
     .open = {"<|tool_call>call:" NAME "{" GEMMA},
     .closers = {"<tool_call|>"},
     .mark = "<|\"|>",
     .written = {{.call = "<|tool_call>call:" NAME "{" GEMMA "<tool_call|>"}}},
    {.name = "function-gemma",
     .tells = {{"<start_function_call>"}},
     .open = {"<start_function_call>call:" NAME "{" GEMMA},
     .closers = {"<end_function_call>"},
     .mark = "<escape>",
     .written = {{.call = "<start_function_call>call:" NAME "{" GEMMA "<end_function_call>"}}},
    {.name = "dsml",
     .tells = {{DSML, "invoke"}},
     .open = {"<" DSML "tool_calls>" SPACE "<" DSML "invoke name=\"" NAME "\">" PARAMS,
              "<" DSML "function_calls>" SPACE "<" DSML "invoke name=\"" NAME "\">" PARAMS,
              "<" DSML "invoke name=\"" NAME "\">" PARAMS},
     .closers = {"</" DSML "tool_calls>", "</" DSML "function_calls>"},
     .params = &dsml,
     .flags = RN_CALL_THINKING,
     .written = {{"<" DSML "tool_calls>" SPACE, "<" DSML "invoke name=\"" NAME "\">" PARAMS, SPACE,
                  SPACE "</" DSML "tool_calls>"},
                 {"<" DSML "function_calls>" SPACE, "<" DSML "invoke name=\"" NAME "\">" PARAMS, SPACE,
                  SPACE "</" DSML "function_calls>"}}},
    {.name = "gcml",
     .tells = {{GCML, "invoke"}},
     .open = {"<" GCML "tool_calls>" SPACE "<" GCML "invoke name=\"" NAME "\">" PARAMS,
              "<" GCML "invoke name=\"" NAME "\">" PARAMS},
     .closers = {"</" GCML "tool_calls>"},
     .params = &gcml,
     .written = {{"<" GCML "tool_calls>" SPACE, "<" GCML "invoke name=\"" NAME "\">" PARAMS, SPACE,
                  SPACE "</" GCML "tool_calls>"}}},
    {.name = "open-close",
     .tells = {{"<|open|>", "<|close|>"}},
     .open = {TAG("tools") SPACE "<|open|>call tool=\"" NAME "\"" ANY "<|sep|>" TAG("json type=\"object\"")
                  SPACE OBJECT,
              TAG("tools") SPACE "<|open|>call tool=\"" NAME "\"" ANY "<|sep|>" PARAMS,
              "<|open|>call tool=\"" NAME "\"" ANY "<|sep|>" TAG("json type=\"object\"") SPACE OBJECT,
              "<|open|>call tool=\"" NAME "\"" ANY "<|sep|>" PARAMS},
     .closers = {END_TAG("json"), END_TAG("call"), END_TAG("tools")},
     .params = &open_close,
     .flags = RN_CALL_THINKING,
     .written = {{TAG("tools"), "<|open|>call tool=\"" NAME "\" index=\"" ID "\"<|sep|>" PARAMS, NULL,
                  END_TAG("tools")}}},
    {.name = "deepseek",
     .tells = {{"tool" GAP "call" GAP "begin"}},
     .open = {DS("tool" GAP "calls" GAP "begin") SPACE DS("tool" GAP "call" GAP "begin") "function" DS("tool" GAP "sep")
                  NAME SPACE "```json" SPACE OBJECT,
              DS("tool" GAP "calls" GAP "begin") SPACE DS("tool" GAP "call" GAP "begin") NAME DS("tool" GAP "sep")
                  SPACE OBJECT,
              DS("tool" GAP "call" GAP "begin") "function" DS("tool" GAP "sep") NAME SPACE "```json" SPACE OBJECT,
              DS("tool" GAP "call" GAP "begin") NAME DS("tool" GAP "sep") SPACE OBJECT},
     .closers = {"```", DS("tool" GAP "call" GAP "end"), DS("tool" GAP "calls" GAP "end")},
     .written = {{DS("tool" GAP "calls" GAP "begin"),
                  DS("tool" GAP "call" GAP "begin") "function" DS("tool" GAP "sep") NAME
                  "\n```json\n" OBJECT "\n```" DS("tool" GAP "call" GAP "end"),
                  SPACE, DS("tool" GAP "calls" GAP "end")},
                 {DS("tool" GAP "calls" GAP "begin"),
                  DS("tool" GAP "call" GAP "begin") NAME DS("tool" GAP "sep") OBJECT DS("tool" GAP "call" GAP "end"),
                  NULL, DS("tool" GAP "calls" GAP "end")}}},
    {.name = "kimi",
     .tells = {{"<|tool_call_begin|>", "<|tool_call_argument_begin|>"}},
     .open = {"<|tool_calls_section_begin|>" SPACE "<|tool_call_begin|>" SPACE INDEX SPACE
              "<|tool_call_argument_begin|>" SPACE OBJECT,
              "<|tool_call_begin|>" SPACE INDEX SPACE "<|tool_call_argument_begin|>" SPACE OBJECT},
     .closers = {"<|tool_call_end|>", "<|tool_calls_section_end|>"},
     .flags = RN_CALL_THINKING,
     .written = {{"<|tool_calls_section_begin|>",
                  "<|tool_call_begin|>" INDEX "<|tool_call_argument_begin|>" OBJECT "<|tool_call_end|>", NULL,
                  "<|tool_calls_section_end|>"}}},
    {.name = "solar",
     .tells = {{"<|tool_call:begin|>"}},
     .open = {"<|tool_calls|>" SPACE "<|tool_call:begin|>" ID "<|tool_call:name|>" NAME
              "<|tool_call:args|>" SPACE OBJECT,
              "<|tool_call:begin|>" ID "<|tool_call:name|>" NAME "<|tool_call:args|>" SPACE OBJECT},
     .closers = {"<|tool_call:end|>", "<|calls|>"},
     .written = {{"<|tool_calls|>",
                  "<|tool_call:begin|>" ID "<|tool_call:name|>" NAME "<|tool_call:args|>" OBJECT "<|tool_call:end|>",
                  NULL, NULL}}},
    {.name = "arg-key-opensource",
     .tells = {{"<arg_key{}>", "':opensource'"}},
     .open = {"<tool_calls:opensource>" SPACE "<tool_call:opensource>" NAME "<tool_sep:opensource>" SPACE PARAMS,
              "<tool_call:opensource>" NAME "<tool_sep:opensource>" SPACE PARAMS},
     .closers = {"</tool_calls:opensource>"},
     .params = &arg_key_opensource,
     .written = {{"<tool_calls:opensource>" SPACE, "<tool_call:opensource>" NAME "<tool_sep:opensource>" PARAMS, SPACE,
                  SPACE "</tool_calls:opensource>"}}},
    {.name = "longcat",
     .tells = {{"<longcat_tool_call>"}},
     .open = {"<longcat_tool_call>" SPACE NAME SPACE PARAMS},
     .params = &longcat,
     .written = {{.call = "<longcat_tool_call>" NAME PARAMS, .between = SPACE}}},
    {.name = "arg-key",
     .tells = {{"<arg_key>"}, {"<arg_key{}>"}},
     .open = {"<tool_calls>" SPACE "<tool_call>" SPACE NAME "<tool_sep>" SPACE PARAMS,
              "<tool_call>" SPACE NAME SPACE PARAMS, "<tool_call>" SPACE NAME "<tool_sep>" SPACE PARAMS},
     .closers = {"</tool_calls>"},
     .params = &arg_key,
     .flags = RN_CALL_THINKING,
     .written = {{.call = "<tool_call>" NAME PARAMS, .between = SPACE},
                 {"<tool_calls>" SPACE, "<tool_call>" NAME "<tool_sep>" PARAMS, SPACE, SPACE "</tool_calls>"}}},
    {.name = "minimax",
     .tells = {{"<minimax:tool_call>"}},
     .open = {"<minimax:tool_call>" SPACE "<invoke name=\"" NAME "\">" PARAMS, "<invoke name=\"" NAME "\">" PARAMS},
     .closers = {"</minimax:tool_call>"},
     .params = &invoke_name,
     .written = {{"<minimax:tool_call>" SPACE, "<invoke name=\"" NAME "\">" PARAMS, SPACE,
                  SPACE "</minimax:tool_call>"}}},
    {.name = "nested",
     .tells = {{MM, "<invoke name="}},
     .open = {MM "<tool_call>" SPACE MM "<invoke name=\"" NAME "\">" PARAMS, MM "<invoke name=\"" NAME "\">" PARAMS},
     .closers = {MM "</tool_call>"},
     .params = &nested,
     .written = {{MM "<tool_call>" SPACE, MM "<invoke name=\"" NAME "\">" PARAMS, SPACE, SPACE MM "</tool_call>"}}},
    {.name = "invoke",
     .tells = {{"<invoke name=", "<parameter name="}},
     .open = {"<function_calls>" SPACE "<invoke name=\"" NAME "\">" PARAMS, "<invoke name=\"" NAME "\">" PARAMS},
     .closers = {"</function_calls>"},
     .params = &invoke_name,
     .written = {{"<function_calls>" SPACE, "<invoke name=\"" NAME "\">" PARAMS, SPACE, SPACE "</function_calls>"}}},
    {.name = "seed",
     .tells = {{"<seed:tool_call>"}},
     .open = {"<seed:tool_call>" SPACE "<function=" NAME ">" PARAMS, "<function=" NAME ">" PARAMS},
     .closers = {"</seed:tool_call>"},
     .params = &seed_function,
     .written = {{.call = "<seed:tool_call>" SPACE "<function=" NAME ">" PARAMS SPACE "</seed:tool_call>",
                  .between = SPACE}}},
    {.name = "function-parameter",
     .tells = {{"<function=", "<parameter="}},
     .open = {"<tool_call>" SPACE "<function=" NAME ">" PARAMS, "<function=" NAME ">" PARAMS},
     .closers = {"</tool_call>"},
     .params = &function_equals,
     .flags = RN_CALL_THINKING,
     .written = {{.call = "<tool_call>" SPACE "<function=" NAME ">" PARAMS SPACE "</tool_call>", .between = SPACE}}},
    {.name = "mcp",
     .tells = {{"<use_mcp_tool>", "<server_name>"}},
     .open = {"<use_mcp_tool>" SPACE "<server_name>" ANY "</server_name>" SPACE "<tool_name>" NAME "</tool_name>" SPACE
              "<arguments>" SPACE OBJECT,
              "<server_name>" ANY "</server_name>" SPACE "<tool_name>" NAME "</tool_name>" SPACE
              "<arguments>" SPACE OBJECT,
              "<tool_call>" SPACE CALL},
     .closers = {"</arguments>", "</use_mcp_tool>", "</tool_call>"},
     .written = {{.call = "<use_mcp_tool>" SPACE "<server_name>" ID "</server_name>" SPACE "<tool_name>" NAME
                          "</tool_name>" SPACE "<arguments>" SPACE OBJECT SPACE "</arguments>" SPACE "</use_mcp_tool>",
                  .between = SPACE}}},
    {.name = "function-param",
     .tells = {{"<function name=", "<param name="}},
     .open = {"<function name=\"" NAME "\">" PARAMS},
     .params = &param_name,
     .written = {{.call = "<function name=\"" NAME "\">" PARAMS, .between = SPACE}}},
    {.name = "function-messages",
     .tells = {{">>>all"}, {">>>${recipient}"}},
     .open = {">>>" NAME "\n" SPACE OBJECT},
     .flags = RN_CALL_KNOWN | RN_CALL_MESSAGES,
     .written = {{.call = ">>>" NAME "\n" OBJECT}}},
    {.name = "function-equals",
     .tells = {{"<function=", "</function>"}},
     .open = {"<function=" NAME ">" SPACE OBJECT},
     .closers = {"</function>"},
     .written = {{.call = "<function=" NAME ">" OBJECT "</function>", .between = SPACE}}},
    {.name = "keyed-list",
     .tells = {{"<|tools_prefix|>"}},
     .open = {"<|tools_prefix|>" SPACE KEYED},
     .closers = {"<|tools_suffix|>"},
     .written = {{"<|tools_prefix|>[" SPACE, KEYED, SPACE "," SPACE, SPACE "]<|tools_suffix|>"}}},
    {.name = "function-call-token",
     .tells = {{"<|function_call|>"}},
     .open = {"<|function_call|>" SPACE CALL},
     .written = {{.call = "<|function_call|>" SPACE CALL}}},
    {.name = "function-call-role",
     .tells = {{"function call", "role_sep"}},
     .open = {"<|message_sep|>\n\nfunction call<|role_sep|>\n" SPACE CALL, "function call<|role_sep|>\n" SPACE CALL},
     .written = {{.call = "<|message_sep|>\n\nfunction call<|role_sep|>\n" CALL},
                 {.call = "function call<|role_sep|>\n" CALL}}},
    {.name = "start-action",
     .tells = {{"<|START_ACTION|>"}},
     .open = {"<|START_ACTION|>" SPACE CALL},
     .closers = {"<|END_ACTION|>"},
     .written = {{"<|START_ACTION|>[" SPACE, CALL, SPACE "," SPACE, SPACE "]<|END_ACTION|>"}}},
    {.name = "action-json",
     .tells = {{"Action:", "```json", "tool_name"}},
     .open = {"Action:" SPACE "```json" SPACE CALL},
     .closers = {"```"},
     .flags = RN_CALL_KNOWN,
     .written = {{"Action:" SPACE "```json" SPACE "[" SPACE, CALL, SPACE "," SPACE, SPACE "]" SPACE "```"}}},
    {.name = "toolcall-list",
     .tells = {{"<TOOLCALL>"}},
     .open = {"<TOOLCALL>" SPACE CALL},
     .closers = {"</TOOLCALL>"},
     .written = {{"<TOOLCALL>[" SPACE, CALL, SPACE "," SPACE, SPACE "]</TOOLCALL>"}}},
    {.name = "bracket-tokens",
     .tells = {{"[TOOL_CALLS]"}},
     .open = {"[TOOL_CALLS]" NAME "[CALL_ID]" ID "[ARGS]" SPACE OBJECT, "[TOOL_CALLS]" NAME "[ARGS]" SPACE OBJECT,
              "[TOOL_CALLS]" SPACE CALL, "[TOOL_CALLS]" NAME SPACE OBJECT},
     .written = {{"[TOOL_CALLS]" SPACE "[" SPACE, CALL, SPACE "," SPACE, SPACE "]"},
                 {.call = "[TOOL_CALLS]" NAME "[CALL_ID]" ID "[ARGS]" OBJECT},
                 {.call = "[TOOL_CALLS]" NAME "[ARGS]" OBJECT},
                 {.call = "[TOOL_CALLS]" NAME OBJECT}}},
    {.name = "functools",
     .tells = {{"functools["}},
     .open = {"functools" CALL},
     .flags = RN_CALL_KNOWN,
     .written = {{"functools[" SPACE, CALL, SPACE "," SPACE, SPACE "]"}}},
    {.name = "python-in-tokens",
     .tells = {{"<|tool_call_start|>"}, {"<|tool_list_start|>"}},
     .open = {"<|tool_call_start|>" SPACE CALL, "<|tool_call_start|>" SPACE PYTHON,
              "<|tool_call_start|>" SPACE "```python" SPACE PYTHON},
     .closers = {"```", "<|tool_call_end|>"},
     .written = {{"<|tool_call_start|>[", PYTHON, "," SPACE, "]<|tool_call_end|>"}}},
    {.name = "python-list",
     .tells = {{"List of tools: ["}, {"<|python_start|>"}},
     .open = {"<|tool_call_start|>" SPACE PYTHON, "<|python_start|>" SPACE PYTHON, PYTHON},
     .closers = {"<|tool_call_end|>", "<|python_end|>"},
     .flags = RN_CALL_KNOWN,
     .written = {{"[", PYTHON, "," SPACE, "]"},
                 {"<|python_start|>[", PYTHON, "," SPACE, "]<|python_end|>"},
                 {"<|tool_call_start|>[", PYTHON, "," SPACE, "]<|tool_call_end|>"}}},
    {.name = "json-behind-token",
     .tells = {{"<|tool_call|>"}, {"<|start_of_role|>", "available_tools"}},
     .open = {"<|tool_call|>" SPACE CALL, "<tool_call>" SPACE CALL},
     .closers = {"<|/tool_call|>", "</|tool_call|>", "</tool_call>"},
     .written = {{"<|tool_call|>" SPACE "[" SPACE, CALL, SPACE "," SPACE, SPACE "]"},
                 {"<|tool_call|>" SPACE "[" SPACE, CALL, SPACE "," SPACE, SPACE "]<|/tool_call|>"},
                 {.call = "<tool_call>" SPACE CALL SPACE "</tool_call>", .between = SPACE}}},
    {.name = "action-plugin",
     .tells = {{"<|action_start|>"}},
     .open = {"<|action_start|><|plugin|>" SPACE CALL},
     .closers = {"<|action_end|>"},
     .written = {{.call = "<|action_start|><|plugin|>" SPACE CALL SPACE "<|action_end|>"}}},
    {.name = "tool-calls-lines",
     .tells = {{"<tool_calls>\\n{\"name\": ", "</tool_calls>"}},
     .open = {"<tool_calls>" SPACE CALL},
     .closers = {"</tool_calls>"},
     .flags = RN_CALL_LINES,
     .written = {{"<tool_calls>" SPACE, CALL, "\n", SPACE "</tool_calls>"}}},
    {.name = "tool-calls-list",
     .tells = {{"<tool_calls>["}, {"<tool_calls>", "</tool_calls>"}},
     .open = {"<tool_calls>" SPACE CALL, "<tool_call>" SPACE CALL,
              "<tool_calls>" SPACE "<tool_call>" NAME SPACE "```json" SPACE OBJECT,
              "<tool_call>" NAME SPACE "```json" SPACE OBJECT},
     .closers = {"```", "</tool_call>", "</tool_calls>"},
     .written = {{"<tool_calls>" SPACE "[" SPACE, CALL, SPACE "," SPACE, SPACE "]" SPACE "</tool_calls>"},
                 {"<tool_calls>" SPACE, "<tool_call>" NAME "\n```json\n" OBJECT "\n```\n</tool_call>", SPACE,
                  SPACE "</tool_calls>"}}},
    {.name = "json-in-tags",
     .tells = {{"<tool_call>"}},
     .open = {"<tool_call>" SPACE CALL, "<tool_call>" SPACE NAME SPACE "```json" SPACE OBJECT},
     .closers = {"```", "</tool_call>"},
     .written = {{.call = "<tool_call>" SPACE CALL SPACE "</tool_call>", .between = SPACE}}},
    {.name = "python-in-tags",
     .tells = {{"<function_calls>"}},
     .open = {"<function_calls>" SPACE PYTHON},
     .closers = {"</function_calls>"},
     .written = {{"<function_calls>" SPACE, PYTHON, "\n", SPACE "</function_calls>"}}},
    {.name = "bare-json",
     .tells = {{"<|python_tag|>"}, {"{\"name\": ", "\"parameters\": "}},
     .open = {"<|python_tag|>" SPACE CALL, "<|python_tag|>" SPACE PYTHON, CALL},
     .closers = {";"},
     .flags = RN_CALL_KNOWN,
     .written = {{.call = CALL, .between = ";" SPACE}, {.call = "<|python_tag|>" CALL, .between = ";" SPACE}}},
    {.name = "plain"},
};

/* ---- Ends of turns ---- */

/* "</s>" is none: it ends what HTML strikes through, too, and as the token that ends a turn it has no text. */
static const struct rn_turn_row turns[] = {
    {.tells = {"<|channel|>", "<|message|>"}, .ends = {"<|end|>", "<|return|>", "<|call|>"}},
    {.tells = {"<|eom|>", "<|message|>"}, .ends = {"<|eom|>", "<|eot|>"}},
    {.tells = {"<|open|>", "<|close|>"}, .ends = {END_TAG("message"), "<|end_of_msg|>"}},
    {.tells = {"<|im_end|>"}, .ends = {"<|im_end|>"}},
    {.tells = {"<|eot_id|>"}, .ends = {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}},
    {.tells = {DS("end" GAP "of" GAP "sentence")}, .ends = {DS("end" GAP "of" GAP "sentence")}},
    {.tells = {"<|END_OF_TURN_TOKEN|>"}, .ends = {"<|END_OF_TURN_TOKEN|>"}},
    {.tells = {"<turn|>"}, .ends = {"<turn|>", "<|tool_response>"}},
    {.tells = {"<end_of_turn>"}, .ends = {"<end_of_turn>", "<start_function_response>"}},
    {.tells = {"[e~["}, .ends = {"[e~["}},
    {.tells = {"<|role_end|>"}, .ends = {"<|role_end|>"}},
    {.tells = {"<end_of_sentence>"}, .ends = {"<end_of_sentence>"}},
    {.tells = {"<SPECIAL_12>"}, .ends = {"<SPECIAL_12>"}, .newlines = 1},
    {.tells = {"message_sep"}, .ends = {"<|message_sep|>"}},
    {.tells = {"</assistant>"}, .ends = {"</assistant>"}, .newlines = 1},
    {.tells = {"<|hy_eos"}, .ends = {"<|hy_eos|>"}},
    {.tells = {"<" BAR "hy_eos{}" BAR ">", "':opensource'"}, .ends = {"<" BAR "hy_eos:opensource" BAR ">"}},
    {.tells = {"<" BAR "hy_eos{}" BAR ">"}, .ends = {"<" BAR "hy_eos" BAR ">"}},
    {.tells = {"<|observation|>"}, .ends = {"<|observation|>", "<|user|>", "<|endoftext|>"}},
    {.tells = {"<|end_of_text|>"}, .ends = {"<|end_of_text|>"}},
    {.tells = {"<|assistant_end|>"}, .ends = {"<|assistant_end|>"}},
    {.tells = {"<|begin|>assistant"}, .ends = {"<|end|>", "<|calls|>"}},
    {.tells = {"'\\n<|end|>"}, .ends = {"<|end|>"}, .newlines = 1},
    {.tells = {"<|end|>"}, .ends = {"<|end|>", "<|endoftext|>"}},
    {.tells = {"<sep>", "assistant:"}, .ends = {"<sep>"}, .newlines = 2},
    {.tells = {"[INST]"}, .ends = {NULL}},
    {.tells = {"<seed:eos>"}, .ends = {"<seed:eos>"}},
    {.tells = {"<|endoftext|>"}, .ends = {"<|endoftext|>"}},
    {.ends = {NULL}},
};

/* ---- A format ---- */

#define N_REASONINGS (sizeof reasonings / sizeof reasonings[0])
#define N_CALLS (sizeof calls / sizeof calls[0])
#define N_TURNS (sizeof turns / sizeof turns[0])

/* A format is a place in this grid, nothing else: its coordinates are the rows. */
struct rn_answer_format {
    char place;
};

static const struct rn_answer_format grid[N_REASONINGS][N_CALLS][N_TURNS];

struct rn_answer_rows rn_answer_format_rows(const struct rn_answer_format *format)
{
    size_t at = (size_t)(format - &grid[0][0][0]);

    return (struct rn_answer_rows){&reasonings[at / (N_CALLS * N_TURNS)], &calls[at / N_TURNS % N_CALLS],
                                   &turns[at % N_TURNS]};
}

static bool holds(const char *source, size_t n, const char *tell)
{
    return memmem(source, n, tell, strlen(tell)) != NULL;
}

/* Are all of tells[n_tells] (up to a NULL) in the source? No tells: yes. */
static bool told(const char *source, size_t n, const char *const *tells, size_t n_tells)
{
    size_t i;

    for (i = 0; i < n_tells && tells[i] != NULL; i++)
        if (!holds(source, n, tells[i]))
            return false;
    return true;
}

static bool call_told(const struct rn_call_row *row, const char *source, size_t n)
{
    if (told(source, n, row->tells[0], 3))
        return true;
    return row->tells[1][0] != NULL && told(source, n, row->tells[1], 3);
}

const struct rn_answer_format *rn_answer_format_of(const char *source, size_t n)
{
    size_t reasoning = 0, call = 0, turn = 0;

    while (!told(source, n, reasonings[reasoning].tells, 2))
        reasoning++;
    while (!call_told(&calls[call], source, n))
        call++;
    while (!told(source, n, turns[turn].tells, 2))
        turn++;
    return &grid[reasoning][call][turn];
}

const char *rn_answer_format_name(const struct rn_answer_format *format)
{
    struct rn_answer_rows rows = rn_answer_format_rows(format);

    return strcmp(rows.calls->name, "plain") != 0 ? rows.calls->name : rows.reasoning->name;
}

bool rn_answer_format_reasons(const struct rn_answer_format *format)
{
    struct rn_answer_rows rows = rn_answer_format_rows(format);

    return rows.calls->headers != RN_HEADERS_NONE || rows.reasoning->close != NULL;
}

size_t rn_pattern_head(const char *pattern)
{
    size_t n = 0;

    while (pattern[n] != '\0' && !rn_is_field(pattern[n]))
        n++;
    return n;
}
