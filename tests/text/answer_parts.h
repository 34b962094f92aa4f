/* For tests: an answer read in cuts, its parts joined. */
#ifndef RN_TESTS_ANSWER_PARTS_H
#define RN_TESTS_ANSWER_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "text/answer/answer.h"
#include "text/answer/format.h"

enum cut { CUT_WHOLE, CUT_BYTES, CUT_RANDOM };

struct reading {
    const struct rn_answer_format *format;
    struct rn_heap *heap;
    const char *prompt, *tools; /* tools NULL: none */
    size_t prompt_bytes, tools_bytes;
    bool finished;
};

/* The parts of a whole answer; neighbours of one kind and call are joined. */
struct parts {
    struct rn_part *parts; /* [n] */
    size_t *at;            /* [n] where the text of each begins */
    char *text;
    size_t n, bytes, cap, text_cap;
};

/* One with the tools of the JSON array; NULL, or what is none: without. NULL: no memory, and nothing is left. */
struct rn_answer *answer_with(struct rn_heap *heap, const struct rn_answer_format *format, const char *tools,
                              size_t tools_bytes);

/* Reads text[n] in cuts; checks on the way that what is written stays within the bounds and that nothing is
 * allocated. Aborts by RN_CHECK. */
void parts_read(const struct reading *reading, const char *text, size_t n, enum cut cut, uint64_t seed,
                struct parts *parts);
void parts_fini(struct parts *parts);
bool parts_equal(const struct parts *a, const struct parts *b);

/* Is the last call without an end? */
bool parts_open(const struct parts *parts);

/* The text of all parts of a kind (and, for calls, of that call), joined, NUL-terminated; to be freed. */
char *parts_text(const struct parts *parts, uint32_t kind, uint32_t call, size_t *bytes);

/* How many calls begin, and how many end. */
uint32_t parts_calls(const struct parts *parts);
uint32_t parts_ends(const struct parts *parts);

#endif
