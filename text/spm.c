/* SentencePiece's BPE as GGUF's "llama" tokenizer means it: characters merge where the two together
 * are a token, the highest score first (Kudo, Richardson 2018, and llama.cpp's reading of it).
 *
 * Stored tokens write a space as U+2581; here pieces and text hold real spaces, and a U+2581 in the
 * text counts as one. Nothing merges across the beginning of a run of spaces unless a token has a space
 * behind that very character, and the text is taken apart there.
 *
 * What is no token falls into its bytes' tokens. A file without these gives one unknown token for a run of unknown
 * characters, as the library sentencepiece does. */
#include "text/merge.h"

#include <string.h>

#define BLOCK "\xe2\x96\x81" /* U+2581 */

/* The floats in ascending order as integers in descending order, never RN_NO_RANK. */
static uint32_t rank_of_score(float score)
{
    uint32_t bits;

    score += 0.0f; /* -0 to +0 */
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
}

void rn_spm_rank(const struct rn_vocab *vocab, const char *word, struct rn_symbol *symbols, uint32_t left)
{
    struct rn_symbol *a = &symbols[left];
    size_t bytes = (size_t)a->bytes + symbols[a->next].bytes;
    int32_t id;

    if (bytes > vocab->longest_normal)
        return;
    id = rn_token_index_find(&vocab->by_piece, &vocab->pieces, word + a->begin, bytes);
    if (id >= 0) {
        a->rank = rank_of_score(vocab->scores[id]);
        a->result = (uint32_t)id;
    }
}

size_t rn_spaces_for_blocks(const char *text, size_t n, char *out)
{
    size_t written = 0;
    size_t at = 0;

    if (n <= 3 && (n < 3 || memcmp(text, BLOCK, 3) != 0)) {
        memcpy(out, text, n);
        return n;
    }
    while (at < n) {
        const char *mark = memchr(text + at, BLOCK[0], n - at);
        size_t plain = mark == NULL ? n - at : (size_t)(mark - text) - at;

        memcpy(out + written, text + at, plain);
        written += plain;
        at += plain;
        if (at == n)
            break;
        if (n - at >= 3 && memcmp(text + at, BLOCK, 3) == 0) {
            out[written++] = ' ';
            at += 3;
        } else {
            out[written++] = text[at++];
        }
    }
    return written;
}

size_t rn_part_end(const struct rn_vocab *vocab, const char *text, size_t at, size_t n)
{
    for (;;) {
        const char *space;
        size_t before;

        while (at < n && text[at] == ' ')
            at++;
        space = at < n ? memchr(text + at, ' ', n - at) : NULL;
        if (space == NULL)
            return n;
        at = (size_t)(space - text);
        if (!vocab->inner_space)
            return at;
        for (before = at - 1; ((unsigned char)text[before] & 0xc0) == 0x80;)
            before--;
        if (vocab->cuts.bits != NULL && rn_split_points_next(&vocab->cuts, text, before, at + 1) == at)
            return at;
    }
}

bool rn_spm_encode(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                   bool after_special, struct rn_tokens *tokens)
{
    size_t prefix = vocab->space_prefix && after_special;
    size_t at = 0;

    if (!rn_scratch_text(scratch, n + prefix))
        return false;
    if (prefix)
        scratch->text[0] = ' ';
    scratch->first = tokens->n;
    n = prefix + rn_spaces_for_blocks(text, n, scratch->text + prefix);
    while (at < n) {
        size_t end = rn_part_end(vocab, scratch->text, at, n);

        if (!rn_merge_word(vocab, scratch, scratch->text + at, end - at, tokens))
            return false;
        at = end;
    }
    return true;
}
