/* Byte-level BPE: a text is cut into words by the pre-tokenizer, a word into its bytes, and bytes
 * merge in the order of the merge list (Sennrich, Haddow, Birch 2016; the bytes are GPT-2's idea).
 *
 * Some vocabularies have characters in the place of bytes (Gemma 4, Sarvam, Jina's Chinese one): a
 * character that is no token is the tokens of its bytes, <0xNN>, and U+2581 stands for a space. */
#include "text/merge.h"

#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/unicode.h"

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
                   bool after_special, struct rn_tokens *tokens)
{
    struct rn_split split;
    size_t begin, end;

    (void)after_special;
    rn_split_init(&split, vocab->pre, text, n);
    while (rn_split_next(&split, &begin, &end)) {
        if (!rn_merge_word(vocab, scratch, text + begin, end - begin, tokens))
            return false;
    }
    return true;
}

/* A run of newlines that is a token by itself. */
static int32_t newline_token(const struct rn_vocab *vocab, const char *word, size_t n)
{
    if (!(vocab->pre->flags & RN_PRE_NEWLINES) || word[0] != '\n' || n > vocab->longest_normal)
        return -1;
    return rn_token_index_find(&vocab->by_piece, &vocab->pieces, word, n);
}

/* A word of the pre-tokenizer, which may be a line: it is taken apart at spaces as in spm.c. */
static bool encode_word(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *word, size_t n,
                        struct rn_tokens *tokens)
{
    int32_t id = newline_token(vocab, word, n);
    size_t at = 0;

    if (id >= 0) {
        if (!rn_tokens_reserve(tokens, 1))
            return false;
        tokens->ids[tokens->n++] = id;
        return true;
    }
    while (at < n) {
        size_t end = rn_part_end(vocab, word, at, n);

        if (!rn_merge_word(vocab, scratch, word + at, end - at, tokens))
            return false;
        at = end;
    }
    return true;
}

/* Writes text[n] to scratch->text in lower case if that is asked for; sets *written. False: refused. */
static bool lower(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n, size_t *written)
{
    size_t at = 0;
    uint32_t length;

    for (*written = 0; at < n; at += length) {
        uint32_t c = rn_utf8_decode(text + at, &length);

        if (!rn_scratch_grow_text(scratch, *written, 4))
            return false;
        c = vocab->lower_case ? (uint32_t)utf8proc_tolower((utf8proc_int32_t)c) : c;
        *written += rn_utf8_encode(c, scratch->text + *written);
    }
    return true;
}

bool rn_bpe_text_encode(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                        bool after_special, struct rn_tokens *tokens)
{
    struct rn_split split;
    size_t begin, end;

    (void)after_special;
    if (vocab->blocks) {
        if (!rn_scratch_text(scratch, n))
            return false;
        n = rn_spaces_for_blocks(text, n, scratch->text);
    } else if (!lower(vocab, scratch, text, n, &n)) {
        return false;
    }
    text = scratch->text;
    rn_split_init(&split, vocab->pre, text, n);
    while (rn_split_next(&split, &begin, &end)) {
        uint32_t length;

        if (vocab->drop_spaces && (rn_char_class(rn_utf8_decode(text + begin, &length)) & RN_CHAR_SPACE))
            continue;
        if (!encode_word(vocab, scratch, text + begin, end - begin, tokens))
            return false;
    }
    return true;
}
