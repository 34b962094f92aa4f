/* What a field of a body may be. The tables that read bodies tell it, openai_fields.h makes use of it. */
#ifndef RUNNEL_APP_OPENAI_SHAPE_H
#define RUNNEL_APP_OPENAI_SHAPE_H

#include <stdbool.h>

enum openai_shape {
    OPENAI_ANY,
    OPENAI_STRING,
    OPENAI_BOOLEAN,
    OPENAI_WHOLE, /* in [least, most], unless these are equal */
    OPENAI_REAL,  /* likewise */
    OPENAI_ARRAY,
    OPENAI_OBJECT,
    OPENAI_STRINGS,     /* one, or an array of them */
    OPENAI_PROMPTS,     /* a text, texts, token ids, or arrays of these */
    OPENAI_TEXT_OR_SET, /* a string or an object */
    OPENAI_TEXT_OR_ROW, /* a string or an array */
    OPENAI_MESSAGES,    /* objects with a role */
    OPENAI_LORAS,       /* objects with an id and a scale */
    OPENAI_FALSE,
    OPENAI_TRUE,
    OPENAI_EMPTY, /* an array or object without members: known, and not supported */
    OPENAI_NULL   /* known, and not supported */
};

struct openai_field {
    const char *name;
    enum openai_shape shape;
    bool needed; /* else it may be absent, or null */
    double least, most;
};

typedef void openai_field_fn(void *user, const struct openai_field *field);

#endif
