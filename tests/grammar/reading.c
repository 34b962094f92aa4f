/* Reading texts: see reading.h. */
#include "tests/grammar/reading.h"

#include <string.h>

#include "tests/grammar/words.h"
#include "tests/text/fixture.h"

void reading_init(struct reading *r)
{
    memset(r, 0, sizeof *r);
    rn_heap_init(&r->heap, NULL);
    r->vocab = words_vocab(&r->heap, NULL, 0);
    r->trie = rn_token_trie_new(&r->heap, r->vocab);
}

void reading_fini(struct reading *r)
{
    rn_token_trie_free(r->trie);
    rn_vocab_free(r->vocab);
    assert_int_equal(rn_heap_blocks(&r->heap), 0);
}

runnel_status reading_open_grammar(struct reading *r, struct rn_grammar *grammar)
{
    runnel_status status = rn_automaton_new(&r->heap, grammar, &r->automaton, &r->error);

    rn_grammar_free(grammar);
    if (status != RUNNEL_OK)
        return status;
    rn_automaton_check(r->automaton);
    r->masks = rn_masks_new(&r->heap, r->automaton, r->trie, NULL);
    assert_non_null(r->masks);
    status = rn_matcher_new(r->masks, 0, &r->matcher, &r->error);
    if (status != RUNNEL_OK)
        reading_close(r);
    return status;
}

runnel_status reading_open(struct reading *r, enum rn_front kind, const char *text, size_t n)
{
    struct rn_grammar *grammar;
    runnel_status status;

    memset(&r->error, 0, sizeof r->error);
    status = rn_front_read(&r->heap, kind, text, n, r->vocab, NULL, &grammar, &r->error);
    return status == RUNNEL_OK ? reading_open_grammar(r, grammar) : status;
}

void reading_close(struct reading *r)
{
    rn_matcher_free(r->matcher);
    rn_masks_free(r->masks);
    rn_automaton_free(r->automaton);
    r->matcher = NULL;
    r->masks = NULL;
    r->automaton = NULL;
}

bool reading_begins(struct reading *r, const char *bytes, size_t n)
{
    assert_int_equal(rn_matcher_reset(r->matcher, NULL), RUNNEL_OK);
    return rn_matcher_accept_bytes(r->matcher, bytes, n, NULL) == RUNNEL_OK;
}

bool reading_whole(struct reading *r, const char *bytes, size_t n)
{
    return reading_begins(r, bytes, n) && rn_matcher_can_end(r->matcher);
}
