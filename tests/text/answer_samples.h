/* For tests of answers: tools, what the templates of common formats write, and judges of parts. */
#ifndef RN_TESTS_ANSWER_SAMPLES_H
#define RN_TESTS_ANSWER_SAMPLES_H

#include "answer_parts.h"

#define TOOLS                                                                                                   \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{" \
    "\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},"                    \
    "\"o\":{\"type\":\"object\"},\"u\":{\"type\":[\"string\",\"null\"]},"                                       \
    "\"e\":{\"enum\":[\"a\",\"b\"]},\"y\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"array\"}]}}}}},"        \
    "{\"name\":\"g\",\"parameters\":{}}]"

#define THINK "<think></think>"
#define HERMES THINK "<tool_call>\n{\"name\": <function-name>}<|im_end|>"
#define HARMONY "<|start|>assistant<|channel|>final<|message|><|end|>"
#define CODER THINK "<tool_call>\n<function=x>\n<parameter=y>\n<|im_end|>"
#define GLM THINK "<arg_key>k</arg_key><|observation|>"
#define LLAMA "{\"name\": \"x\", \"parameters\": {}}<|eot_id|><|python_tag|>"
#define MISTRAL "[TOOL_CALLS][THINK][INST]"
#define LFM2 "<|tool_list_start|><|im_end|>"
#define FUNCTIONARY ">>>all<|eot_id|>"
#define GEMMA "<|tool_call>call:x<|channel>thought<turn|>"

/* Fails the test unless each call that has an end has arguments that jansson reads as one object. */
void parts_check_ends(const struct parts *parts);

/* The parts as one line, "R hm|C Sure.|N f|I id|A {}|E"; to be freed. */
void put_line(char **line, const struct parts *parts);

/* Reads the text whole, byte by byte and in random cuts; fails the test unless all give this line. */
void expect_of(const char *source, const char *prompt, const char *tools, bool finished, const char *text,
               const char *expected);

#endif
