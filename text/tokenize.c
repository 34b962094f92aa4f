/* From text to ids and back: see vocab.h.
 *
 *     text --> special tokens written out in it | fragments between --> spm.c or bpe.c --> ids */
#include <string.h>

#include "text/merge.h"
#include "text/vocab_impl.h"

/* Longest text: places in a word are 32-bit. */
#define MAX_TEXT_BYTES INT32_MAX

static bool push(struct rn_tokens *tokens, int32_t id)
{
    if (!rn_tokens_reserve(tokens, 1))
        return false;
    tokens->ids[tokens->n++] = id;
    return true;
}

static bool encode_bytes(const struct rn_vocab *vocab, const char *text, size_t n, struct rn_tokens *tokens)
{
    size_t i;

    if (!rn_tokens_reserve(tokens, n))
        return false;
    for (i = 0; i < n; i++)
        tokens->ids[tokens->n++] = vocab->byte_token[(unsigned char)text[i]];
    return true;
}

static bool encode_fragment(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                            bool after_special, struct rn_tokens *tokens)
{
    if (vocab->model == RN_VOCAB_BPE)
        return rn_bpe_encode(vocab, scratch, text, n, tokens);
    if (vocab->model == RN_VOCAB_SPM)
        return rn_spm_encode(vocab, scratch, text, n, after_special, tokens);
    return encode_bytes(vocab, text, n, tokens);
}

static bool encode(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                   bool all_special, struct rn_tokens *tokens)
{
    bool after_special = true;
    size_t at = 0;

    while (at < n) {
        size_t begin, end;
        int32_t id = rn_special_next(&vocab->special, &vocab->texts, vocab->kinds, text, at, n, all_special, &begin,
                                     &end);

        if (begin > at && !encode_fragment(vocab, scratch, text + at, begin - at, after_special, tokens))
            return false;
        if (id >= 0 && !push(tokens, id))
            return false;
        after_special = true; /* a fragment is followed by a special token, if by anything */
        at = end;
    }
    return true;
}

runnel_status rn_tokenize(const struct rn_vocab *vocab, struct rn_heap *heap, const char *text, size_t n,
                          uint32_t flags, int32_t **tokens, size_t *count, runnel_error *error)
{
    struct rn_tokens out = {heap, NULL, 0, 0};
    struct rn_scratch scratch;
    bool fits;

    *tokens = NULL;
    *count = 0;
    if (vocab->model == RN_VOCAB_NONE)
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "the model has no text vocabulary");
    if (n > MAX_TEXT_BYTES)
        return rn_error_set(error, RUNNEL_INVALID, "the text is longer than %d bytes", MAX_TEXT_BYTES);
    if (!rn_utf8_valid(text, n))
        return rn_error_set(error, RUNNEL_INVALID, "the text is not UTF-8");
    rn_scratch_init(&scratch, heap);
    fits = rn_tokens_reserve(&out, n / 3 + 16);
    if (fits && (flags & RUNNEL_TOKENIZE_BOS) && vocab->add_bos)
        fits = push(&out, vocab->bos);
    fits = fits && encode(vocab, &scratch, text, n, (flags & RUNNEL_TOKENIZE_SPECIAL) != 0, &out);
    if (fits && (flags & RUNNEL_TOKENIZE_BOS) && vocab->add_eos)
        fits = push(&out, vocab->eos);
    rn_scratch_fini(&scratch);
    if (!fits) {
        rn_free(heap, out.ids);
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory to tokenize %zu bytes", n);
    }
    *tokens = out.ids;
    *count = out.n;
    return RUNNEL_OK;
}

size_t rn_tokenize_bound(const struct rn_vocab *vocab, size_t n)
{
    size_t bound;

    /* three more: BOS, EOS and the space in front */
    if (!rn_mul_size(n, vocab->bytes_to_tokens, &bound) || !rn_add_size(bound, 3, &bound))
        return SIZE_MAX;
    return bound;
}

void rn_detokenize(const struct rn_vocab *vocab, const int32_t *tokens, size_t count, bool special, char *text,
                   size_t capacity, size_t *n)
{
    bool strip = rn_vocab_strips_first_space(vocab);
    size_t written = 0;
    size_t i;

    for (i = 0; i < count; i++) {
        struct rn_view piece = rn_vocab_piece(vocab, tokens[i], special);

        if (piece.n > 0 && strip) {
            if (piece.bytes[0] == ' ') {
                piece.bytes++;
                piece.n--;
            }
            strip = false;
        }
        if (written < capacity && piece.n > 0)
            memcpy(text + written, piece.bytes, piece.n < capacity - written ? piece.n : capacity - written);
        written += piece.n;
    }
    *n = written;
}
