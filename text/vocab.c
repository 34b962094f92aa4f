/* A vocabulary: making one, and what can be asked of it. See vocab.h. */
#include "text/vocab.h"

#include <string.h>

#include "base/one_line.h"
#include "text/merge.h"
#include "text/vocab_impl.h"

/* The names in tokenizer.ggml.model. */
static const struct {
    const char *name;
    enum rn_vocab_model model;
    rn_encode *encode; /* NULL: by the pre-tokenizer */
} models[] = {
    {"llama", RN_VOCAB_SPM, rn_spm_encode},
    {"gpt2", RN_VOCAB_BPE, NULL},
    {"gemma4", RN_VOCAB_BPE, NULL},
    {"whitespace", RN_VOCAB_BPE, NULL},
    {"hybriddna", RN_VOCAB_BPE, rn_dna_encode},
    {"bert", RN_VOCAB_WORDPIECE, rn_wordpiece_encode},
    {"t5", RN_VOCAB_UNIGRAM, rn_unigram_encode},
    {"rwkv", RN_VOCAB_RWKV, rn_rwkv_encode},
    {"plamo2", RN_VOCAB_PLAMO, rn_plamo_encode},
    {"plamo3", RN_VOCAB_PLAMO, rn_plamo3_encode},
    {"no_vocab", RN_VOCAB_NONE, NULL},
    {"none", RN_VOCAB_NONE, NULL},
    {"test", RN_VOCAB_NONE, NULL}, /* models that llama.cpp makes for its tests: nothing in them is text */
};

static struct rn_vocab *new_empty(struct rn_heap *heap)
{
    struct rn_vocab *vocab = rn_calloc(heap, 1, sizeof *vocab);

    if (vocab == NULL)
        return NULL;
    vocab->heap = heap;
    vocab->bos = -1;
    vocab->eos = -1;
    vocab->sep = -1;
    vocab->unknown = -1;
    vocab->dna_other = -1;
    for (int i = 0; i < RN_FIMS; i++)
        vocab->fim[i] = -1;
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
    rn_charsmap_fini(&vocab->charsmap, heap);
    rn_trie_fini(&vocab->trie, heap);
    rn_special_fini(&vocab->special, heap);
    rn_merge_table_fini(&vocab->merges, heap);
    rn_split_points_fini(&vocab->cuts, heap);
    rn_token_index_fini(&vocab->by_piece, heap);
    rn_token_index_fini(&vocab->by_text, heap);
    rn_free(heap, vocab->whole_scores);
    rn_free(heap, vocab->scores);
    rn_free(heap, vocab->pieces.at);
    rn_free(heap, vocab->pieces.bytes);
    rn_free(heap, vocab->texts.at);
    rn_free(heap, vocab->texts.bytes);
    rn_free(heap, vocab->flags);
    rn_free(heap, vocab->kinds);
    rn_free(heap, vocab);
}

static runnel_status read_vocab(struct rn_heap *heap, const struct rn_gguf *gguf, uint32_t n_vocab_hint,
                                struct rn_vocab **out, runnel_error *error)
{
    const size_t n_models = sizeof models / sizeof models[0];
    struct rn_view name = {"no_vocab", 8};
    runnel_status status = rn_gguf_get_string(gguf, "tokenizer.ggml.model", false, &name, error);
    struct rn_vocab *vocab;
    size_t i;

    if (status != RUNNEL_OK)
        return status;
    for (i = 0; i < n_models; i++) {
        if (name.n == strlen(models[i].name) && memcmp(name.bytes, models[i].name, name.n) == 0)
            break;
    }
    if (i == n_models)
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "the tokenizer \"%s\" is not supported",
                            rn_quoted(name.bytes, name.n).text);
    vocab = new_empty(heap);
    if (vocab == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the vocabulary");
    vocab->model = models[i].model;
    vocab->encode = models[i].encode;
    vocab->n = n_vocab_hint;
    if (vocab->model != RN_VOCAB_NONE) {
        status = rn_vocab_load(vocab, gguf, error);
        if (status == RUNNEL_OK)
            status = rn_vocab_build(vocab, error);
        if (status == RUNNEL_OK)
            rn_vocab_reserve(vocab, gguf);
    }
    if (status != RUNNEL_OK) {
        rn_vocab_free(vocab);
        return status;
    }
    *out = vocab;
    return RUNNEL_OK;
}

/* Names the file in an error that does not yet: an engine reads several. */
static void name_file(const struct rn_gguf *gguf, runnel_status status, runnel_error *error)
{
    const char *path = rn_gguf_path(gguf);
    runnel_error bare;

    if (error == NULL || strncmp(error->message, path, strlen(path)) == 0)
        return;
    bare = *error;
    error->status = RUNNEL_OK;
    rn_error_set(error, status, "%s: %s", path, bare.message);
}

runnel_status rn_vocab_new(struct rn_heap *heap, const struct rn_gguf *gguf, uint32_t n_vocab_hint,
                           struct rn_vocab **out, runnel_error *error)
{
    runnel_status status;

    *out = NULL;
    status = read_vocab(heap, gguf, n_vocab_hint, out, error);
    if (status != RUNNEL_OK)
        name_file(gguf, status, error);
    return status;
}

/* A byte is its own token (rn_vocab_new_bytes). */
static bool encode_bytes(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                         bool after_special, struct rn_tokens *tokens)
{
    size_t i;

    (void)scratch;
    (void)after_special;
    if (!rn_tokens_reserve(tokens, n))
        return false;
    for (i = 0; i < n && rn_tokens_wanted(tokens); i++)
        tokens->ids[tokens->n++] = vocab->byte_token[(unsigned char)text[i]];
    return !tokens->stopped;
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
    vocab->encode = encode_bytes;
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

bool rn_vocab_merges_fit(const struct rn_vocab *vocab)
{
    return !vocab->merges_idle;
}

const struct rn_stray_id *rn_vocab_stray(const struct rn_vocab *vocab, uint32_t index)
{
    return index < vocab->n_strays ? &vocab->strays[index] : NULL;
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

int32_t rn_vocab_fim(const struct rn_vocab *vocab, enum rn_fim which)
{
    return vocab->fim[which];
}

bool rn_vocab_add_bos(const struct rn_vocab *vocab)
{
    return vocab->add_bos;
}

size_t rn_vocab_ends(const struct rn_vocab *vocab, bool between, int32_t ids[3])
{
    size_t n = 0;

    if (vocab->add_sep)
        ids[n++] = vocab->sep;
    if (vocab->add_eos)
        ids[n++] = vocab->eos;
    if (between && vocab->pair_sep)
        ids[n++] = vocab->sep;
    return n;
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
    if (vocab->model == RN_VOCAB_WORDPIECE)
        return true; /* every word has a space in front */
    return (vocab->model == RN_VOCAB_SPM || vocab->model == RN_VOCAB_UNIGRAM) && vocab->space_prefix;
}

int32_t rn_vocab_find(const struct rn_vocab *vocab, const char *text, size_t n)
{
    return n == 0 ? -1 : rn_token_index_find(&vocab->by_text, &vocab->texts, text, n);
}
