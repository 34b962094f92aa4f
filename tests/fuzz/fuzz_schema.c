/* Any bytes as a JSON Schema: an end within the bounds, a sentence with an error, and nothing left in memory. What it
 * becomes reads the bytes as a text. The first byte has the options. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sampling/grammar/schema/schema.h"
#include "sampling/grammar/stacks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct rn_grammar_limits limits = {.source_bytes = 16384,
                                                .rules = 2000,
                                                .nodes = 50000,
                                                .depth = 128,
                                                .states = 20000,
                                                .bytes = 8 << 20,
                                                .steps = 1000000};

static void read_text(struct rn_heap *heap, const struct rn_automaton *automaton, const uint8_t *text, size_t n)
{
    struct rn_stacks stacks;
    uint32_t set;

    RN_CHECK(rn_stacks_init(&stacks, heap, automaton, 1 << 20, 100));
    stacks.steps = 100000;
    set = rn_stacks_start(&stacks);
    for (size_t i = 0; i < n && i < 64 && set != RN_STACKS_DEAD; i++)
        set = rn_stacks_read(&stacks, set, text[i]);
    rn_stacks_check(&stacks);
    rn_stacks_fini(&stacks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rn_schema_options options = {0};
    struct rn_automaton *automaton = NULL;
    runnel_error error = {0};
    struct rn_grammar *g;
    struct rn_heap heap;
    uint32_t root;
    rn_expr e;

    if (size == 0)
        return 0;
    options = (struct rn_schema_options){.free_white = data[0] & 1,
                                         .short_white = data[0] >> 5 & 1,
                                         .any_order = data[0] >> 1 & 1,
                                         .closed = data[0] >> 2 & 1,
                                         .one_of_as_any_of = data[0] >> 3 & 1,
                                         .allow_unenforced = data[0] >> 4 & 1};
    rn_heap_init(&heap, NULL);
    g = rn_grammar_new(&heap, &limits, NULL);
    RN_CHECK(g != NULL);
    root = rn_grammar_rule(g, "root", 4);
    e = rn_grammar_schema(g, (const char *)data + 1, size - 1, &options);
    if (e != RN_GRAMMAR_NONE)
        rn_grammar_define(g, root, e);
    if (rn_grammar_finish(g, root, &error) != RUNNEL_OK)
        RN_CHECK(error.message[0] != '\0');
    else if (rn_automaton_new(&heap, g, &automaton, &error) == RUNNEL_OK)
        read_text(&heap, automaton, data + 1, size - 1);
    rn_automaton_free(automaton);
    rn_grammar_free(g);
    RN_CHECK(rn_heap_blocks(&heap) == 0);
    return 0;
}
