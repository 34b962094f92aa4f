/* For tests: JSON texts as jansson reads them. */
#ifndef RN_TESTS_JSON_JUDGE_H
#define RN_TESTS_JSON_JUDGE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/alloc.h"

/* Is text[n] refused, or read as the same values in the same order? exact: by rn_json_parse_exact, of which only
 * whether it is refused. False, and why on standard error: no. *right: jansson reads it. */
bool json_agrees(struct rn_heap *heap, const char *text, size_t n, bool exact, bool *right);

#endif
