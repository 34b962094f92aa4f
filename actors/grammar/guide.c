/* Guides: see guide.h. */
#include "actors/grammar/guide.h"

#include "base/check.h"

static uint32_t words_of(uint32_t n_vocab, uint32_t n_tokens)
{
    uint32_t most = n_tokens > n_vocab ? n_tokens : n_vocab;

    return most / 64 + (most % 64 != 0);
}

size_t rn_guide_row_bytes(uint32_t n_vocab, uint32_t n_tokens, bool keeps_logits)
{
    return sizeof(struct rn_guide_row) + words_of(n_vocab, n_tokens) * sizeof(uint64_t) +
           (keeps_logits ? n_vocab * sizeof(float) : 0);
}

struct rn_guide *rn_guide_new(struct rn_heap *heap, struct rn_compiled *compiled, uint32_t n_vocab, bool keeps_logits)
{
    struct rn_guide *guide = rn_calloc(heap, 1, sizeof *guide);

    if (guide == NULL)
        return NULL;
    guide->heap = heap;
    guide->compiled = rn_compiled_ref(compiled);
    guide->n_vocab = n_vocab;
    guide->words = words_of(n_vocab, compiled->trie->n_vocab);
    guide->keeps_logits = keeps_logits;
    guide->row_bytes = rn_guide_row_bytes(n_vocab, compiled->trie->n_vocab, keeps_logits);
    return guide;
}

void rn_guide_free(struct rn_guide *guide)
{
    if (guide == NULL)
        return;
    RN_ASSERT(!guide->begun); /* its end has come by the sampler */
    rn_guide_drop_rows(guide);
    rn_compiled_unref(guide->compiled);
    rn_free(guide->heap, guide);
}

bool rn_guide_take_rows(struct rn_guide *guide, uint32_t n_rows)
{
    RN_CHECK(guide->n_rows == 0 && n_rows > 0);
    guide->rows = rn_calloc(guide->heap, n_rows, sizeof *guide->rows);
    guide->masks = rn_calloc(guide->heap, (size_t)n_rows * guide->words, sizeof *guide->masks);
    if (guide->keeps_logits)
        guide->logits = rn_alloc(guide->heap, (size_t)n_rows * guide->n_vocab, sizeof *guide->logits);
    if (guide->rows == NULL || guide->masks == NULL || (guide->keeps_logits && guide->logits == NULL)) {
        rn_guide_drop_rows(guide);
        return false;
    }
    guide->n_rows = n_rows;
    return true;
}

void rn_guide_drop_rows(struct rn_guide *guide)
{
    rn_free(guide->heap, guide->rows);
    rn_free(guide->heap, guide->masks);
    rn_free(guide->heap, guide->logits);
    guide->rows = NULL;
    guide->masks = NULL;
    guide->logits = NULL;
    guide->n_rows = 0;
}

void rn_guide_begin_row(struct rn_guide *guide, uint32_t row)
{
    RN_CHECK(row < guide->n_rows);
    rn_word_set(&guide->rows[row].state, RN_GUIDE_WAITS);
    guide->rows[row].kept = false;
    guide->rows[row].error.status = RUNNEL_OK;
}
