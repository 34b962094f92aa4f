/* Renders the cases that come in: one line of JSON each, {"template": "...", "context": "JSON text", "now": seconds};
 * answers each with a line, {"text": "..."} or {"error": "..."}. For template_diff.py, which asks Jinja2 too. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/template/template.h"

static json_t *answer(struct rn_heap *heap, json_t *request)
{
    json_t *template = json_object_get(request, "template"), *json = json_object_get(request, "context"), *reply;
    struct rn_template_context context = {.json = json_string_value(json),
                                          .json_bytes = json_string_length(json),
                                          .now_s = json_integer_value(json_object_get(request, "now"))};
    runnel_error error = {0};
    struct rn_template *tmpl;
    struct rn_rendered rendered;

    if (rn_template_parse(heap, json_string_value(template), json_string_length(template), &tmpl, &error) != RUNNEL_OK)
        return json_pack("{s:s,s:i}", "error", error.message, "status", error.status);
    if (rn_template_render(tmpl, heap, &context, NULL, &rendered, &error) == RUNNEL_OK) {
        reply = json_object();
        json_object_set_new(reply, "text", json_stringn(rendered.text, rendered.n));
        rn_rendered_free(&rendered, heap);
    } else {
        reply = json_pack("{s:s,s:i}", "error", error.message, "status", error.status);
    }
    rn_template_free(tmpl);
    return reply;
}

int main(void)
{
    char *line = NULL, *text;
    size_t room = 0;
    struct rn_heap heap;

    rn_heap_init(&heap, NULL);
    while (getline(&line, &room, stdin) > 0) {
        json_t *request = json_loads(line, JSON_ALLOW_NUL, NULL), *reply;

        RN_CHECK(request != NULL);
        reply = answer(&heap, request);
        RN_CHECK(reply != NULL);
        text = json_dumps(reply, JSON_COMPACT);
        RN_CHECK(text != NULL);
        puts(text);
        fflush(stdout);
        free(text);
        json_decref(reply);
        json_decref(request);
    }
    free(line);
    RN_CHECK(rn_heap_blocks(&heap) == 0);
    return 0;
}
