/* Any bytes as an answer. Input: a byte that chooses the template (so the format), one for the tools and the prompt,
 * one for the cuts, and the answer, before it perhaps a prompt and a NUL; bytes that are no UTF-8 are replaced.
 * Whatever it is: the parts do not depend on the cuts and stay within the bounds (answer_parts.c); a call that has an
 * end has arguments that jansson reads as an object; calls are numbered in order, each name comes first and each end
 * last; the content is a subsequence of the answer. Seeds: an answer of each format, alone and behind a prompt that
 * holds most of it. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "tests/text/answer_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define BAR "\xef\xbd\x9c"
#define GAP "\xe2\x96\x81"
#define TOOL_BEGIN "<" BAR "tool" GAP "call" GAP "begin" BAR ">"

#define TOOLS                                                                                                   \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{" \
    "\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"o\":{\"type\":\"object\"},"                     \
    "\"u\":{\"type\":[\"string\",\"null\",\"array\"]}}}}},{\"name\":\"g\"}]"

/* What tells the format, the prompt's end, and an answer. */
static const struct {
    const char *source, *prompt, *answer;
} formats[] = {
    {"", "A:", " plain"},
    {"<think></think><tool_call><|im_end|>", "<think>\n",
     "hm\n</think>\n\nSure.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": "
     "\"\\u00e9\"}}\n</tool_call><|im_end|>"},
    {"<|channel|><|message|><|start|>", "<|start|>assistant",
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f "
     "<|constrain|>json<|message|>{\"n\":1}<|call|>"},
    {"<|channel><|tool_call>call:<turn|>", "<|turn>model\n",
     "<|channel>thought\nhm<channel|><|tool_call>call:f{s:<|\"|>a<|\"|>,o:{a:[1,None]}}<tool_call|>"},
    {"'" BAR "DSML" BAR "' invoke <think>", "",
     "<" BAR "DSML" BAR "tool_calls>\n<" BAR "DSML" BAR "invoke name=\"f\">\n<" BAR "DSML" BAR
     "parameter name=\"n\" string=\"false\">1</" BAR "DSML" BAR "parameter></" BAR "DSML" BAR "invoke>"},
    {TOOL_BEGIN, "", TOOL_BEGIN "function<" BAR "tool" GAP "sep" BAR ">f\n```json\n{}\n```"},
    {"<|tool_call_begin|><|tool_call_argument_begin|>", "",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"},
    {"<|tool_call:begin|><|think|><|content|>", "",
     "<|think|>a<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>x<|tool_call:name|>f<|tool_call:args|>{}"},
    {"<arg_key>", "", "<tool_call>f<arg_key>s</arg_key><arg_value>a</arg_value></tool_call>"},
    {"<minimax:tool_call>", "", "<minimax:tool_call><invoke name=\"f\"><parameter name=\"z\">[1]</parameter></invoke>"},
    {"<function=<parameter=", "",
     "<tool_call>\n<function=f>\n<parameter=u>\nnull\n</parameter>\n<parameter=o>\n{'a': "
     "(1,)}\n</parameter>\n</function>"},
    {"<function name=<param name=", "", "<function name=\"f\"><param name=\"s\"><![CDATA[a]]></param></function>"},
    {">>>all", ">>>", "all\nHi>>>f\n{}"},
    {"<|tools_prefix|>", "", "<|tools_prefix|>[{\"f\": {\"a\": 1}}]<|tools_suffix|>"},
    {"<|START_ACTION|><|START_THINKING|>", "",
     "<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
     "\"parameters\": {}}]"},
    {"[TOOL_CALLS][THINK]", "",
     "[THINK]a[/THINK][TOOL_CALLS]f[CALL_ID]abc[ARGS]{}[TOOL_CALLS][{\"name\": \"g\", \"id\": \"x\"}]"},
    {"<|tool_list_start|>", "", "<|tool_call_start|>[f(s='a\\x41', n=1), g(a={'b': None})]<|tool_call_end|>"},
    {"List of tools: [", "", "[f(s=\"a\")]"},
    {"<|python_tag|>", "", "{\"name\": \"f\", \"parameters\": {}}; <|python_tag|>g.call(a=1)"},
    {"'<|open|>' '<|close|>'", "<|open|>think<|sep|>",
     "a<|close|>think<|sep|><|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"s\" "
     "type=\"string\"<|sep|>b<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"},
    {"<use_mcp_tool><server_name>", "",
     "<use_mcp_tool><server_name>x</server_name><tool_name>f</tool_name><arguments>{}</arguments></use_mcp_tool>"},
    {"<tool_calls>[[BEGIN FINAL RESPONSE]", "Here are my reasoning steps:\n",
     "a\n[BEGIN FINAL RESPONSE]\nb\n<tool_calls>[{\"arguments\": {\"a\": 1}, \"name\": \"f\"}]</tool_calls>"},
};

#define N_FORMATS (sizeof formats / sizeof formats[0])

/* Whole characters only: that is what a detokenizer gives. */
static void make_utf8(char *text, size_t n)
{
    size_t at, bytes;

    for (at = 0; at < n; at += bytes) {
        bytes = rn_utf8_check_one(text + at, n - at);
        if (bytes == 0) {
            text[at] = '?';
            bytes = 1;
        }
    }
}

/* The arguments of a call that has an end. Numbers may be too great for jansson, and a key may hold a NUL, which it
 * does not read: both are valid JSON. */
static void check_arguments(const struct parts *parts, uint32_t call)
{
    size_t n;
    char *text = parts_text(parts, RN_PART_TOOL_ARGUMENTS, call, &n);
    json_error_t error;
    json_t *object = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);

    if (object == NULL)
        RN_CHECK(json_error_code(&error) == json_error_numeric_overflow ||
                 json_error_code(&error) == json_error_null_byte_in_key);
    else
        RN_CHECK(json_is_object(object));
    json_decref(object);
    free(text);
}

static void check_order(const struct parts *parts)
{
    uint32_t next = 0, kind;
    bool open = false;
    size_t i;

    for (i = 0; i < parts->n; i++) {
        kind = parts->parts[i].kind;
        if (kind == RN_PART_TOOL_NAME)
            RN_CHECK(parts->parts[i].call == next++);
        if (kind >= RN_PART_TOOL_NAME)
            RN_CHECK(parts->parts[i].call + 1 == next && (kind == RN_PART_TOOL_NAME || open));
        open = kind >= RN_PART_TOOL_NAME && kind != RN_PART_TOOL_END;
        if (kind == RN_PART_TOOL_END)
            check_arguments(parts, parts->parts[i].call);
    }
}

static void check_content(const struct parts *parts, const char *text, size_t n)
{
    size_t bytes, i, at = 0;
    char *content = parts_text(parts, RN_PART_CONTENT, 0, &bytes);

    for (i = 0; i < bytes; i++) {
        while (at < n && text[at] != content[i])
            at++;
        RN_CHECK(at++ < n);
    }
    free(content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rn_heap heap;
    struct reading reading = {.heap = &heap};
    struct parts whole, cut;
    const char *source, *nul;
    char *bytes, *text;
    size_t n;

    if (size < 3)
        return 0;
    source = formats[data[0] % N_FORMATS].source;
    n = size - 3;
    text = bytes = malloc(n + 1);
    RN_CHECK(bytes != NULL);
    memcpy(bytes, data + 3, n);
    make_utf8(bytes, n);
    reading.prompt = (data[1] & 1) ? formats[data[0] % N_FORMATS].prompt : "";
    reading.prompt_bytes = strlen(reading.prompt);
    nul = (data[1] & 8) ? memchr(bytes, '\0', n) : NULL;
    if (nul != NULL) {
        reading.prompt = bytes;
        reading.prompt_bytes = (size_t)(nul - bytes);
        text += reading.prompt_bytes + 1;
        n -= reading.prompt_bytes + 1;
    }
    rn_heap_init(&heap, NULL);
    reading.format = rn_answer_format_of(source, strlen(source));
    reading.tools = (data[1] & 2) ? NULL : TOOLS;
    reading.tools_bytes = (data[1] & 2) ? 0 : strlen(TOOLS);
    reading.finished = data[1] & 4;
    parts_read(&reading, text, n, CUT_WHOLE, 0, &whole);
    check_order(&whole);
    check_content(&whole, text, n);
    parts_read(&reading, text, n, n < 512 ? CUT_BYTES : CUT_RANDOM, data[2], &cut);
    RN_CHECK(parts_equal(&whole, &cut));
    parts_fini(&cut);
    parts_read(&reading, text, n, CUT_RANDOM, data[2], &cut);
    RN_CHECK(parts_equal(&whole, &cut));
    parts_fini(&cut);
    parts_fini(&whole);
    free(bytes);
    RN_CHECK(rn_heap_blocks(&heap) == 0);
    return 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *folder = getenv("RUNNEL_FUZZ_SEEDS");
    char path[1024];
    size_t i;

    (void)argc;
    (void)argv;
    for (i = 0; folder != NULL && i < 2 * N_FORMATS; i++) {
        const char *prompt = formats[i / 2].prompt, *answer = formats[i / 2].answer;
        size_t n = strlen(answer);
        FILE *file;

        snprintf(path, sizeof path, "%s/format%zu%s", folder, i / 2, i % 2 ? "prompt" : "");
        file = fopen(path, "wb");
        RN_CHECK(file != NULL);
        fputc((int)(i / 2), file);
        fputc(i % 2 ? 8 : prompt[0] != '\0', file);
        fputc(0, file);
        if (i % 2)
            fprintf(file, "%s%.*s%c", prompt, (int)(n > 8 ? n - 8 : n), answer, '\0'); /* 8: of "<|call|>" */
        fputs(answer, file);
        fclose(file);
    }
    return 0;
}
