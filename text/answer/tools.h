/* What the tools of a request say about an answer: which names there are, and of which types their arguments. */
#ifndef RN_TEXT_ANSWER_TOOLS_H
#define RN_TEXT_ANSWER_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "text/value.h"

/* Types that a schema allows, as a set. 0: it does not say. */
enum rn_schema_type {
    RN_SCHEMA_STRING = 1,
    RN_SCHEMA_NUMBER = 2, /* integers too */
    RN_SCHEMA_BOOLEAN = 4,
    RN_SCHEMA_NULL = 8,
    RN_SCHEMA_OBJECT = 16,
    RN_SCHEMA_ARRAY = 32
};

struct rn_answer_tools {
    struct rn_arena arena;
    struct rn_value list; /* of tools; UNDEFINED: none */
};

/* json [n]: an array of tools, each {"type": "function", "function": {"name", "parameters"}} or the inner object alone.
 * INVALID: no JSON, or no array; NO_MEMORY. There are no tools then, as in one that is all zero. */
runnel_status rn_answer_tools_read(struct rn_answer_tools *tools, struct rn_heap *heap, const char *json, size_t n,
                                   runnel_error *error);
void rn_answer_tools_fini(struct rn_answer_tools *tools);

/* Are there any? */
bool rn_answer_tools_any(const struct rn_answer_tools *tools);

/* The function of this name; UNDEFINED if there is none. */
struct rn_value rn_answer_tools_find(const struct rn_answer_tools *tools, const char *name, size_t n);

/* Has it "strict": true? Then its calls fit its schema also where nobody asks for that. */
bool rn_answer_tools_is_strict(struct rn_value function);

/* Is one of them strict? */
bool rn_answer_tools_any_strict(const struct rn_answer_tools *tools);

/* The following look at a bounded number of schemas: so many are added to *steps, if it is not NULL. */

/* The types (enum rn_schema_type) that argument key[n] of a function from rn_answer_tools_find may have. */
uint32_t rn_answer_tools_types(struct rn_value function, const char *key, size_t n, uint64_t *steps);

/* What a schema within `root`, a function's parameters, says of its member key[n], or of its items; UNDEFINED: nothing.
 * And the types that a schema allows. */
struct rn_value rn_answer_tools_member(struct rn_value root, struct rn_value schema, const char *key, size_t n,
                                       uint64_t *steps);
struct rn_value rn_answer_tools_item(struct rn_value root, struct rn_value schema, uint64_t *steps);
uint32_t rn_answer_tools_types_of(struct rn_value root, struct rn_value schema, uint64_t *steps);

#endif
