/* What the fields of bodies may be: one description, from which bodies are judged and documents made.
 *
 * A request in OpenAI's form is read by tables (openai_request.c and its kin); openai_fields_each goes through them. A
 * dialect that translates its own bodies has a list, which ends with a field without a name. */
#ifndef RUNNEL_APP_OPENAI_FIELDS_H
#define RUNNEL_APP_OPENAI_FIELDS_H

#include "openai_request.h"

/* Each field that a server understands in bodies of this endpoint; none twice. */
void openai_fields_each(enum openai_endpoint endpoint, openai_field_fn *fn, void *user);

/* A body against a dialect's list. False: *error names the field that is missing or of another type. */
bool openai_fields_check(const struct openai_field *fields, const json_t *body, struct openai_error *error);

/* As a JSON Schema; a new reference, NULL: no memory. */
json_t *openai_field_schema(const struct openai_field *field);

#endif
