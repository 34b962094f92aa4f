#include "answer_samples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

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
