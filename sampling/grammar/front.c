/* Front ends by their kinds, and choices: see front.h. */
#include "sampling/grammar/front.h"

#include <stdio.h>
#include <string.h>

#include "sampling/grammar/reader.h"

bool rn_choices_text(struct rn_heap *heap, const char *const *choices, const size_t *bytes, size_t n, char **text,
                     size_t *text_bytes)
{
    size_t size = 0, i;
    char length[32];

    for (i = 0; i < n; i++)
        if (!rn_add_size(size, bytes[i], &size) || !rn_add_size(size, sizeof length, &size))
            return false;
    *text = rn_alloc(heap, size + 1, 1);
    if (*text == NULL)
        return false;
    for (i = 0, *text_bytes = 0; i < n; i++) {
        *text_bytes += (size_t)snprintf(*text + *text_bytes, sizeof length, "%zu\n", bytes[i]);
        if (bytes[i] > 0)
            memcpy(*text + *text_bytes, choices[i], bytes[i]);
        *text_bytes += bytes[i];
    }
    return true;
}

/* One of the texts; each has a line of its length before it. */
static rn_expr read_choices(struct rn_grammar *g, const char *text, size_t n)
{
    struct rn_reader r = {.g = g, .text = text, .n = n};
    uint32_t length;
    rn_expr e;

    while (!rn_reader_done(&r)) {
        if (!rn_reader_number(&r, &length) || !rn_reader_take(&r, "\n") || length > r.n - r.at) {
            rn_reader_fail(&r, RUNNEL_FORMAT, "a choice has a line of its length in bytes before it");
            break;
        }
        rn_reader_push(&r, rn_grammar_bytes(g, text + r.at, length));
        r.at += length;
    }
    if (r.n_parts == 0)
        rn_grammar_fail(g, RUNNEL_FORMAT, "there is nothing to choose from");
    e = rn_reader_alternatives(&r, 0);
    rn_reader_fini(&r);
    return e;
}

uint32_t rn_front_rule(struct rn_grammar *g, enum rn_front kind, const char *text, size_t n)
{
    uint32_t root;

    if (kind == RN_FRONT_GBNF)
        return rn_gbnf(g, text, n);
    if (kind == RN_FRONT_EBNF)
        return rn_ebnf(g, text, n);
    rn_grammar_source(g, text, n);
    root = rn_grammar_rule(g, NULL, 0);
    if (!rn_grammar_failed(g))
        rn_grammar_define(g, root, kind == RN_FRONT_REGEX ? rn_regex(g, text, n, 0, NULL) : read_choices(g, text, n));
    return root;
}

runnel_status rn_front_read(struct rn_heap *heap, enum rn_front kind, const char *text, size_t n,
                            const struct rn_vocab *vocab, const struct rn_grammar_limits *limits,
                            struct rn_grammar **out, runnel_error *error)
{
    struct rn_grammar *g = rn_grammar_new(heap, limits, vocab);
    runnel_status status;

    *out = NULL;
    if (g == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a grammar");
    status = rn_grammar_finish(g, rn_front_rule(g, kind, text, n), error);
    if (status == RUNNEL_OK)
        *out = g;
    else
        rn_grammar_free(g);
    return status;
}
