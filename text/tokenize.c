/* From text to ids and back: see vocab.h.
 *
 *     text --> special tokens written out in it | fragments between --> the model's own file --> ids */
#include <string.h>

#include "base/utf8.h"
#include "text/merge.h"
#include "text/range.h"
#include "text/unicode.h"
#include "text/vocab.h"
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

static bool is_space(const char *text, size_t at)
{
    uint32_t n;

    return (rn_char_class(rn_utf8_decode(text + at, &n)) & RN_CHAR_SPACE) != 0;
}

/* The white space of text[from..to) that the special token behind it takes along is left out. */
static size_t strip_left(const struct rn_vocab *vocab, int32_t id, const char *text, size_t from, size_t to)
{
    while (id >= 0 && (vocab->flags[id] & RN_TOKEN_LSTRIP) && to > from) {
        size_t at = to;

        do
            at--;
        while (((unsigned char)text[at] & 0xc0) == 0x80);
        if (!is_space(text, at))
            break;
        to = at;
    }
    return to;
}

static size_t strip_right(const struct rn_vocab *vocab, int32_t id, const char *text, size_t from, size_t to)
{
    while (id >= 0 && (vocab->flags[id] & RN_TOKEN_RSTRIP) && from < to && is_space(text, from))
        from += rn_utf8_length((unsigned char)text[from]);
    return from;
}

static bool encode(const struct rn_vocab *vocab, struct rn_scratch *scratch, struct rn_special_search *search,
                   struct rn_tokens *tokens)
{
    size_t n = search->n;
    size_t at = 0;

    while (at < n) {
        size_t begin, end;
        int32_t id = rn_special_next(search, at, &begin, &end);

        begin = strip_left(vocab, id, search->text, at, begin);
        /* a fragment stands at the begin or behind a special token */
        if (begin > at && !vocab->encode(vocab, scratch, search->text + at, begin - at, true, tokens))
            return false;
        if (id >= 0 && !push(tokens, id))
            return false;
        at = strip_right(vocab, id, search->text, end, n);
    }
    return true;
}

/* What stands in front and behind, and the text. */
static bool encode_all(const struct rn_vocab *vocab, struct rn_special_search *search, bool add,
                       struct rn_tokens *tokens)
{
    struct rn_scratch scratch;
    bool fits = rn_tokens_reserve(tokens, search->n / 3 + 16);

    rn_scratch_init(&scratch, tokens->heap);
    if (fits && add && vocab->add_bos)
        fits = push(tokens, vocab->bos);
    fits = fits && encode(vocab, &scratch, search, tokens);
    if (fits && add && vocab->add_sep)
        fits = push(tokens, vocab->sep);
    if (fits && add && vocab->add_eos)
        fits = push(tokens, vocab->eos);
    rn_scratch_fini(&scratch);
    return fits;
}

static runnel_status tokenize(const struct rn_vocab *vocab, struct rn_heap *heap, struct rn_special_search *search,
                              bool add, const struct rn_interrupt *stop, int32_t **tokens, size_t *count,
                              runnel_error *error)
{
    struct rn_tokens out = {.heap = heap, .stop = stop};

    *tokens = NULL;
    *count = 0;
    if (vocab->model == RN_VOCAB_NONE)
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "the model has no text vocabulary");
    if (search->n > MAX_TEXT_BYTES)
        return rn_error_set(error, RUNNEL_INVALID, "the text is longer than %d bytes", MAX_TEXT_BYTES);
    if (!rn_utf8_valid(search->text, search->n))
        return rn_error_set(error, RUNNEL_INVALID, "the text is not UTF-8");
    if (!encode_all(vocab, search, add, &out)) {
        rn_free(heap, out.ids);
        if (out.stopped)
            return rn_error_set(error, RUNNEL_CANCELLED, "tokenizing was ended");
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory to tokenize %zu bytes", search->n);
    }
    *tokens = out.ids;
    *count = out.n;
    return RUNNEL_OK;
}

runnel_status rn_tokenize_until(const struct rn_vocab *vocab, struct rn_heap *heap, const struct rn_tokenize_text *text,
                                const struct rn_interrupt *stop, int32_t **tokens, size_t *count, runnel_error *error)
{
    struct rn_special_search search = {.matcher = &vocab->special,
                                       .texts = &vocab->texts,
                                       .kinds = vocab->kinds,
                                       .text = text->text,
                                       .n = text->n,
                                       .all = text->marked || (text->flags & RUNNEL_TOKENIZE_SPECIAL) != 0,
                                       .data = text->marked ? text->data : NULL,
                                       .n_data = text->marked ? text->n_data : 0};

    return tokenize(vocab, heap, &search, (text->flags & RUNNEL_TOKENIZE_BOS) != 0, stop, tokens, count, error);
}

runnel_status rn_tokenize(const struct rn_vocab *vocab, struct rn_heap *heap, const char *text, size_t n,
                          uint32_t flags, int32_t **tokens, size_t *count, runnel_error *error)
{
    const struct rn_tokenize_text plain = {.text = text, .n = n, .flags = flags};

    return rn_tokenize_until(vocab, heap, &plain, NULL, tokens, count, error);
}

runnel_status rn_tokenize_marked(const struct rn_vocab *vocab, struct rn_heap *heap, const char *text, size_t n,
                                 uint32_t flags, const struct rn_range *data, size_t n_data, int32_t **tokens,
                                 size_t *count, runnel_error *error)
{
    const struct rn_tokenize_text marked = {text, n, flags, true, data, n_data};

    return rn_tokenize_until(vocab, heap, &marked, NULL, tokens, count, error);
}

size_t rn_tokenize_bound(const struct rn_vocab *vocab, size_t n)
{
    size_t bound;

    /* four more: BOS, SEP, EOS and the space in front */
    if (!rn_mul_size(n, vocab->bytes_to_tokens, &bound) || !rn_add_size(bound, 4, &bound))
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
