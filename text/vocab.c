/* A vocabulary: making one, and what can be asked of it. See vocab.h. */
#include "text/vocab.h"

#include <string.h>

#include "text/vocab_impl.h"

static struct rn_vocab *new_empty(struct rn_heap *heap)
{
    struct rn_vocab *vocab = rn_calloc(heap, 1, sizeof *vocab);

    if (vocab == NULL)
        return NULL;
    vocab->heap = heap;
    vocab->bos = -1;
    vocab->eos = -1;
    vocab->unknown = -1;
    vocab->longest_piece = 1;
    vocab->bytes_to_tokens = 1;
    memset(vocab->byte_token, 0xff, sizeof vocab->byte_token);
    return vocab;
}

void rn_vocab_free(struct rn_vocab *vocab)
{
    struct rn_heap *heap;

    if (vocab == NULL)
        return;
    heap = vocab->heap;
    rn_special_fini(&vocab->special, heap);
    rn_merge_table_fini(&vocab->merges, heap);
    rn_token_index_fini(&vocab->by_piece, heap);
    rn_token_index_fini(&vocab->by_text, heap);
    rn_free(heap, vocab->scores);
    rn_free(heap, vocab->pieces.at);
    rn_free(heap, vocab->pieces.bytes);
    rn_free(heap, vocab->texts.at);
    rn_free(heap, vocab->texts.bytes);
    rn_free(heap, vocab->flags);
    rn_free(heap, vocab->kinds);
    rn_free(heap, vocab);
}

static bool is(struct rn_view name, const char *other)
{
    return name.n == strlen(other) && memcmp(name.bytes, other, name.n) == 0;
}

runnel_status rn_vocab_new(struct rn_heap *heap, const struct rn_gguf *gguf, uint32_t n_vocab_hint,
                           struct rn_vocab **out, runnel_error *error)
{
    struct rn_view model = {"no_vocab", 8};
    runnel_status status = rn_gguf_get_string(gguf, "tokenizer.ggml.model", false, &model, error);
    struct rn_vocab *vocab;

    *out = NULL;
    if (status != RUNNEL_OK)
        return status;
    if (!is(model, "llama") && !is(model, "gpt2") && !is(model, "no_vocab") && !is(model, "none"))
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "the tokenizer \"%.*s\" is not supported",
                            (int)(model.n < 60 ? model.n : 60), model.bytes);
    vocab = new_empty(heap);
    if (vocab == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the vocabulary");
    if (is(model, "no_vocab") || is(model, "none")) {
        vocab->model = RN_VOCAB_NONE;
        vocab->n = n_vocab_hint;
        *out = vocab;
        return RUNNEL_OK;
    }
    vocab->model = is(model, "llama") ? RN_VOCAB_SPM : RN_VOCAB_BPE;
    status = rn_vocab_load(vocab, gguf, error);
    if (status == RUNNEL_OK)
        status = rn_vocab_build(vocab, error);
    if (status != RUNNEL_OK) {
        rn_vocab_free(vocab);
        return status;
    }
    *out = vocab;
    return RUNNEL_OK;
}

/* The 256 bytes in order. */
static bool make_bytes(struct rn_heap *heap, struct rn_strings *strings)
{
    uint32_t i;

    strings->bytes = rn_alloc(heap, 256, 1);
    strings->at = rn_alloc(heap, 257, sizeof *strings->at);
    if (strings->bytes == NULL || strings->at == NULL)
        return false;
    for (i = 0; i < 256; i++) {
        strings->bytes[i] = (char)i;
        strings->at[i] = i;
    }
    strings->at[256] = 256;
    return true;
}

struct rn_vocab *rn_vocab_new_bytes(struct rn_heap *heap)
{
    struct rn_vocab *vocab = new_empty(heap);
    uint32_t i;

    if (vocab == NULL)
        return NULL;
    vocab->model = RN_VOCAB_BYTES;
    vocab->n = 256;
    vocab->kinds = rn_alloc(heap, 256, 1);
    vocab->flags = rn_calloc(heap, 256, 1);
    if (vocab->kinds == NULL || vocab->flags == NULL || !make_bytes(heap, &vocab->texts) ||
        !make_bytes(heap, &vocab->pieces) || !rn_token_index_init(&vocab->by_text, heap, 256))
        goto fail;
    memset(vocab->kinds, RN_TOKEN_NORMAL, 256);
    for (i = 0; i < 256; i++) {
        vocab->byte_token[i] = (int32_t)i;
        rn_token_index_add(&vocab->by_text, &vocab->texts, i);
    }
    return vocab;
fail:
    rn_vocab_free(vocab);
    return NULL;
}

uint32_t rn_vocab_count(const struct rn_vocab *vocab)
{
    return vocab->n;
}

int32_t rn_vocab_bos(const struct rn_vocab *vocab)
{
    return vocab->bos;
}

int32_t rn_vocab_eos(const struct rn_vocab *vocab)
{
    return vocab->eos;
}

bool rn_vocab_add_bos(const struct rn_vocab *vocab)
{
    return vocab->add_bos;
}

bool rn_vocab_add_eos(const struct rn_vocab *vocab)
{
    return vocab->add_eos;
}

static bool has_text(const struct rn_vocab *vocab, int32_t token)
{
    return token >= 0 && (uint32_t)token < vocab->n && vocab->kinds != NULL;
}

enum rn_token_kind rn_vocab_kind(const struct rn_vocab *vocab, int32_t token)
{
    return has_text(vocab, token) ? (enum rn_token_kind)vocab->kinds[token] : RN_TOKEN_UNUSED;
}

bool rn_vocab_is_end(const struct rn_vocab *vocab, int32_t token)
{
    return has_text(vocab, token) && (vocab->flags[token] & RN_TOKEN_ENDS);
}

struct rn_view rn_vocab_piece(const struct rn_vocab *vocab, int32_t token, bool special)
{
    enum rn_token_kind kind = rn_vocab_kind(vocab, token);

    if (!has_text(vocab, token))
        return (struct rn_view){"", 0};
    if (!special && (kind == RN_TOKEN_CONTROL || kind == RN_TOKEN_UNKNOWN || kind == RN_TOKEN_UNUSED))
        return (struct rn_view){"", 0};
    return rn_string(&vocab->pieces, (uint32_t)token);
}

uint32_t rn_vocab_longest_piece(const struct rn_vocab *vocab)
{
    return vocab->longest_piece;
}

bool rn_vocab_strips_first_space(const struct rn_vocab *vocab)
{
    return vocab->model == RN_VOCAB_SPM && vocab->space_prefix;
}

int32_t rn_vocab_find(const struct rn_vocab *vocab, const char *text, size_t n)
{
    return n == 0 ? -1 : rn_token_index_find(&vocab->by_text, &vocab->texts, text, n);
}
