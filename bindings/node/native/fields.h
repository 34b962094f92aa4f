/* Between objects of JavaScript and the library's structs, by tables of their members: snake_case there is camelCase
 * here. The tables come from runnel_fields.h and, for structs that have none there, from the headers (structs.py), so
 * that a new member is known here by itself. */
#ifndef RN_NODE_FIELDS_H
#define RN_NODE_FIELDS_H

#include <node_api.h>
#include <runnel.h>
#include <stdbool.h>
#include <stddef.h>

enum field_kind {
    FIELD_NONE = 0, /* not carried: callbacks, pointers that C alone sets */
    FIELD_U8,
    FIELD_U32,
    FIELD_I32,
    FIELD_I64,
    FIELD_U64,
    FIELD_FLOAT,
    FIELD_DOUBLE,
    FIELD_STRING, /* NUL-terminated, or with a count beside it: NAME_bytes */
    FIELD_BYTES,  /* const void *, with NAME_bytes */
    FIELD_CHARS,  /* an array of char in the struct */
    FIELD_TOKENS, /* const int32_t *, with n_NAME */
    FIELD_STRINGS,
    FIELD_BIASES,
    FIELD_ADAPTERS, /* of runnel_model_options */
    FIELD_U32S,     /* an array in the struct */
    FIELD_U64S,
    FIELD_ID, /* of a session or stream: a BigInt */
    FIELD_GRAMMAR,
    FIELD_FILES, /* of runnel_infill */
    FIELD_ARCHITECTURES,
    FIELD_HISTOGRAM
};

struct field {
    const char *name;
    uint32_t offset;
    enum field_kind kind;
    uint32_t bytes;
};

/* Memory that lives as long as a call: copies of strings and arrays. */
struct arena {
    struct arena_block *first;
};

void *arena_alloc(struct arena *arena, size_t bytes);
void arena_free(struct arena *arena);

/* A struct that the members of an object may go to. */
struct target {
    const struct field *fields;
    void *base;
    bool touched; /* set when a member of it was given */
};

extern const struct field *const fields_request, *const fields_sampling, *const fields_samplers, *const fields_chat;

/* The table of a struct by the name of its type; NULL: there is none. */
const struct field *fields_of(const char *type);

/* Each own property of the object goes to the first target that has its name; undefined and null are left out. False:
 * an error was thrown, which names the property. Anything but an object is an error, but for undefined. */
bool fields_read(napi_env env, struct arena *arena, napi_value object, struct target *targets, size_t n);

/* The object that shows the struct; NULL: the environment ends. */
napi_value fields_write(napi_env env, const struct field *fields, const void *base);

/* [bytes] of a string, a Buffer or another view of bytes, NUL-terminated. False: an error was thrown. */
bool fields_text(napi_env env, struct arena *arena, const char *name, napi_value value, const char **text,
                 size_t *bytes);

/* A string that C reads up to its NUL. */
bool fields_path(napi_env env, struct arena *arena, napi_value value, const char **path);

/* Rows from an array of objects. */
bool fields_architectures(napi_env env, struct arena *arena, const char *name, napi_value value,
                          const runnel_architecture_row *const **rows, size_t *n);

/* An Int32Array of a copy. */
napi_value fields_token_array(napi_env env, const int32_t *tokens, size_t n);

/* An id from a number; ids from an Int32Array or an array of numbers. */
bool fields_token(napi_env env, const char *name, napi_value value, int32_t *token);
bool fields_tokens(napi_env env, struct arena *arena, const char *name, napi_value value, const int32_t **tokens,
                   size_t *n);

#endif
