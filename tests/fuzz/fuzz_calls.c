/* Any bytes as the tools of a chat: an end within the bounds, a sentence with an error, and nothing left in memory. The
 * first byte chooses the format, the second what is asked for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sampling/grammar/answer_rules.h"
#include "sampling/grammar/automaton.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static const struct rn_grammar_limits limits = {.source_bytes = 16384,
                                                .rules = 2000,
                                                .nodes = 50000,
                                                .depth = 128,
                                                .states = 20000,
                                                .bytes = 8 << 20,
                                                .steps = 1000000};

/* Marks by which a format is known, one for each way in which arguments are written, and some of calls. */
static const char *const formats[] = {
    "<tool_call><think>",
    "<function=<parameter=",
    "<function name=<param name=",
    "<function_calls>",
    "<|tool_call>call:<|channel>",
    "<|channel|><|message|><|start|>",
    "<|open|><|close|>",
    "[TOOL_CALLS][THINK]",
    "<|python_tag|>",
    "List of tools: [",
    ">>>all",
    "<|tools_prefix|>",
    "<|tool_call_begin|><|tool_call_argument_begin|>",
    "Action:```json tool_name",
    "no marks",
};
static const char *const choices[] = {"auto", "none", "required", "f"};

static const char *const seeds[] = {
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"s\":{"
    "\"type\":"
    "\"string\"},\"n\":{\"type\":[\"integer\",\"null\"]},\"e\":{\"enum\":[\"a\",1]},\"l\":{\"items\":{\"$ref\":\"#/"
    "$defs/a\"}}},"
    "\"required\":[\"s\"],\"$defs\":{\"a\":{\"pattern\":\"^[a-c]<$\",\"maxLength\":3}}}}},{\"name\":\"g\"}]",
    "[{\"name\":\"f\",\"parameters\":{\"anyOf\":[{\"required\":[\"a\"]},{\"properties\":{\"b>c\":{\"const\":{\"x\":[]}}"
    "}}]}}]",
};

/* Each seed in each format. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *folder = getenv("RUNNEL_FUZZ_SEEDS");
    size_t n = sizeof formats / sizeof formats[0], i;
    char path[1024];

    (void)argc;
    (void)argv;
    for (i = 0; folder != NULL && i < 2 * n; i++) {
        FILE *file;

        snprintf(path, sizeof path, "%s/tools%zu", folder, i);
        file = fopen(path, "wb");
        RN_CHECK(file != NULL);
        fputc((int)(i % n), file);
        fputc(2 + (int)(i % 7), file);
        fputs(seeds[i / n], file);
        fclose(file);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rn_answer_rules rules = {.choice = "auto"};
    struct rn_automaton *automaton = NULL;
    runnel_error error = {0};
    struct rn_grammar *g;
    struct rn_heap heap;
    const char *template;
    uint32_t root;
    rn_expr e;

    if (size < 2)
        return 0;
    template = formats[data[0] % (sizeof formats / sizeof formats[0])];
    rules.format = rn_answer_format_of(template, strlen(template));
    rules.choice = choices[data[1] & 3];
    rules.single_call = data[1] >> 2 & 1;
    rules.reasoning = data[1] >> 3 & 1;
    rules.schema.allow_unenforced = data[1] >> 4 & 1;
    rules.opened = data[1] >> 5 & 1 ? RN_OPENED_REASONING : RN_OPENED_NOTHING;
    rules.tools = (const char *)data + 2;
    rules.tools_bytes = size - 2;
    rn_heap_init(&heap, NULL);
    g = rn_grammar_new(&heap, &limits, NULL);
    RN_CHECK(g != NULL);
    root = rn_grammar_rule(g, "root", 4);
    e = rn_grammar_answer(g, &rules, RN_GRAMMAR_NONE);
    RN_CHECK((e == RN_GRAMMAR_NONE) == rn_grammar_failed(g));
    if (e != RN_GRAMMAR_NONE)
        rn_grammar_define(g, root, e);
    if (rn_grammar_finish(g, root, &error) == RUNNEL_OK)
        rn_automaton_new(&heap, g, &automaton, &error);
    RN_CHECK(automaton != NULL || error.message[0] != '\0');
    rn_automaton_free(automaton);
    rn_grammar_free(g);
    RN_CHECK(rn_heap_blocks(&heap) == 0);
    return 0;
}
