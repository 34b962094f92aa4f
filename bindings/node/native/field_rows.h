/* Rows of the tables of members, and what structs.py makes of the headers. */
#ifndef RN_NODE_FIELD_ROWS_H
#define RN_NODE_FIELD_ROWS_H

#include "fields.h"

#define KIND(member) \
    _Generic((member), uint8_t                \
             : FIELD_U8, uint32_t             \
             : FIELD_U32, int32_t             \
             : FIELD_I32, int64_t             \
             : FIELD_I64, uint64_t            \
             : FIELD_U64, float               \
             : FIELD_FLOAT, double            \
             : FIELD_DOUBLE, const char *     \
             : FIELD_STRING, const void *     \
             : FIELD_BYTES, char *            \
             : FIELD_CHARS, const int32_t *   \
             : FIELD_TOKENS, const char *const * \
             : FIELD_STRINGS, const runnel_logit_bias * \
             : FIELD_BIASES, const runnel_adapter * \
             : FIELD_ADAPTERS, uint32_t *     \
             : FIELD_U32S, uint64_t *         \
             : FIELD_U64S, runnel_session     \
             : FIELD_ID, runnel_stream        \
             : FIELD_ID, const runnel_grammar * \
             : FIELD_GRAMMAR, const runnel_infill_file * \
             : FIELD_FILES, const runnel_architecture_row *const * \
             : FIELD_ARCHITECTURES, runnel_histogram  \
             : FIELD_HISTOGRAM, default       \
             : FIELD_NONE)
#define FIELD(type, member)                                                                                         \
    {                                                                                                               \
#member, (uint32_t)offsetof(type, member), KIND(((type *)0)->member), (uint32_t)sizeof(((type *)0)->member) \
    }

struct field_table {
    const char *type;
    const struct field *fields; /* up to one without a name */
};

struct field_constant {
    const char *name; /* without RUNNEL_ */
    int64_t value;
};

/* Made by structs.py; each ends with a row without a name. */
extern const struct field_table header_tables[];
extern const struct field_constant header_constants[];

#endif
