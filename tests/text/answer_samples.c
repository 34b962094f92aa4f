#include "answer_samples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

void parts_check_ends(const struct parts *parts)
{
    size_t i, n;

    for (i = 0; i < parts->n; i++) {
        json_error_t error;
        json_t *object;
        char *text;

        if (parts->parts[i].kind != RN_PART_TOOL_END)
            continue;
        text = parts_text(parts, RN_PART_TOOL_ARGUMENTS, parts->parts[i].call, &n);
        object = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
        if (!json_is_object(object))
            fail_msg("not an object: %s", text);
        json_decref(object);
        free(text);
    }
}

void put_line(char **line, const struct parts *parts)
{
    static const char letters[] = "CRNIAE";
    size_t i, cap = 3 * parts->n + parts->bytes + 1, at = 0;

    *line = malloc(cap);
    assert_non_null(*line);
    (*line)[0] = '\0';
    for (i = 0; i < parts->n; i++) {
        if (i > 0)
            (*line)[at++] = '|';
        (*line)[at++] = letters[parts->parts[i].kind];
        if (parts->parts[i].bytes > 0)
            (*line)[at++] = ' ';
        memcpy(*line + at, parts->text + parts->at[i], parts->parts[i].bytes);
        at += parts->parts[i].bytes;
    }
    (*line)[at] = '\0';
}

void expect_of(const char *source, const char *prompt, const char *tools, bool finished, const char *text,
               const char *expected)
{
    struct rn_heap heap;
    struct reading reading = {.format = rn_answer_format_of(source, strlen(source)),
                              .heap = &heap,
                              .prompt = prompt,
                              .tools = tools,
                              .prompt_bytes = strlen(prompt),
                              .tools_bytes = tools == NULL ? 0 : strlen(tools),
                              .finished = finished};
    int i;

    rn_heap_init(&heap, NULL);
    for (i = 0; i < 6; i++) {
        struct parts parts;
        char *line;

        parts_read(&reading, text, strlen(text),
                   i == 0   ? CUT_WHOLE
                   : i == 1 ? CUT_BYTES
                            : CUT_RANDOM,
                   (uint64_t)i, &parts);
        put_line(&line, &parts);
        if (strcmp(line, expected) != 0)
            fail_msg("%s\n  gave     %s\n  expected %s", text, line, expected);
        parts_check_ends(&parts);
        free(line);
        parts_fini(&parts);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}
