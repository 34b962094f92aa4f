/* Reads answers for tests in other languages. Standard input: a line of JSON per answer,
 *
 *     {"template": "..", "prompt": "..", "tools": "[..]" or null, "answer": "..", "finished": true, "seed": 1}
 *
 * Standard output: a line for each, {"format": "..", "parts": [[kind, call, "text"], ..]}, neighbours of a kind joined.
 * The answer is read whole, byte by byte, and in random cuts: the parts must be the same each time, or the line is
 * {"error": ".."}. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer_parts.h"
#include "base/check.h"

static json_t *to_json(const struct parts *parts)
{
    json_t *list = json_array();
    size_t i;

    for (i = 0; i < parts->n; i++)
        json_array_append_new(list, json_pack("[iis%]", (int)parts->parts[i].kind, (int)parts->parts[i].call,
                                              parts->text + parts->at[i], (size_t)parts->parts[i].bytes));
    return list;
}

static json_t *read_answer(const json_t *line)
{
    json_t *source = json_object_get(line, "template"), *prompt = json_object_get(line, "prompt");
    json_t *tools = json_object_get(line, "tools"), *answer = json_object_get(line, "answer");
    struct rn_heap heap;
    struct reading reading = {
        .format = rn_answer_format_of(json_string_value(source), json_string_length(source)),
        .heap = &heap,
        .prompt = json_string_value(prompt),
        .prompt_bytes = json_string_length(prompt),
        .tools = json_string_value(tools),
        .tools_bytes = json_string_length(tools),
        .finished = json_is_true(json_object_get(line, "finished")),
    };
    uint64_t seed = (uint64_t)json_integer_value(json_object_get(line, "seed"));
    const char *text = json_string_value(answer);
    size_t n = json_string_length(answer);
    struct parts whole, cut;
    bool same = true;
    json_t *result;
    int i;

    rn_heap_init(&heap, NULL);
    parts_read(&reading, text, n, CUT_WHOLE, 0, &whole);
    for (i = 0; i < 4 && same; i++) {
        parts_read(&reading, text, n, i == 0 ? CUT_BYTES : CUT_RANDOM, seed + (uint64_t)i, &cut);
        same = parts_equal(&whole, &cut);
        parts_fini(&cut);
    }
    result = same ? json_pack("{sssoso}", "format", rn_answer_format_name(reading.format), "parts", to_json(&whole),
                              "open", json_boolean(parts_open(&whole)))
                  : json_pack("{ss}", "error", "the parts depend on the cuts");
    parts_fini(&whole);
    RN_CHECK(rn_heap_blocks(&heap) == 0);
    return result;
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    json_error_t error;

    while (getline(&line, &cap, stdin) > 0) {
        json_t *input = json_loads(line, JSON_ALLOW_NUL, &error), *output;
        char *text;

        RN_CHECK(input != NULL);
        output = read_answer(input);
        text = json_dumps(output, JSON_COMPACT);
        RN_CHECK(text != NULL);
        puts(text);
        fflush(stdout);
        free(text);
        json_decref(output);
        json_decref(input);
    }
    free(line);
    return 0;
}
