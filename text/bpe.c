/* Byte-level BPE: a text is cut into words by the pre-tokenizer, a word into its bytes, and bytes
 * merge in the order of the merge list (Sennrich, Haddow, Birch 2016; the bytes are GPT-2's idea). */
#include "text/merge.h"

void rn_bpe_rank(const struct rn_vocab *vocab, struct rn_symbol *symbols, uint32_t left)
{
    struct rn_symbol *a = &symbols[left];
    const struct rn_symbol *b = &symbols[a->next];
    const struct rn_merge_slot *slot;

    if (a->id < 0 || b->id < 0)
        return;
    slot = rn_merge_table_find(&vocab->merges, (uint32_t)a->id, (uint32_t)b->id);
    if (slot != NULL) {
        a->rank = slot->rank;
        a->result = slot->result;
    }
}

bool rn_bpe_encode(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                   struct rn_tokens *tokens)
{
    struct rn_split split;
    size_t begin, end;

    rn_split_init(&split, vocab->pre, text, n);
    while (rn_split_next(&split, &begin, &end)) {
        if (!rn_merge_word(vocab, scratch, text + begin, end - begin, tokens))
            return false;
    }
    return true;
}
