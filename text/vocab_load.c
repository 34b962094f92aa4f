/* A vocabulary's arrays and keys from GGUF metadata (tokenizer.ggml.*), checked one by one. */
#include <math.h>
#include <string.h>

#include "base/hex.h"
#include "base/one_line.h"
#include "text/merge.h"
#include "text/vocab_impl.h"

#define KEY "tokenizer.ggml."

#define SHOWN(view) rn_quoted((view).bytes, (view).n).text

static bool is(struct rn_view name, const char *other)
{
    return name.n == strlen(other) && memcmp(name.bytes, other, name.n) == 0;
}

static runnel_status no_memory(runnel_error *error)
{
    return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the vocabulary");
}

/* Copies the strings of `entry`, whose type is known, into *strings. */
static runnel_status copy_strings(struct rn_vocab *vocab, const struct rn_gguf_entry *entry, struct rn_strings *strings,
                                  runnel_error *error)
{
    const char *cursor = entry->data;
    uint64_t at = 0;
    uint32_t i;

    strings->at = rn_alloc(vocab->heap, (size_t)vocab->n + 1, sizeof *strings->at);
    strings->bytes = rn_alloc(vocab->heap, entry->data_bytes, 1); /* their lengths in it make it ample */
    if (strings->at == NULL || strings->bytes == NULL)
        return no_memory(error);
    for (i = 0; i < vocab->n; i++) {
        struct rn_view text = rn_gguf_item_string(&cursor);

        if (text.n > RN_TOKEN_MAX_BYTES)
            return rn_error_set(error, RUNNEL_FORMAT, KEY "tokens: token %u is longer than %d bytes", i,
                                RN_TOKEN_MAX_BYTES);
        strings->at[i] = at;
        if (text.n > 0)
            memcpy(strings->bytes + at, text.bytes, text.n);
        at += text.n;
    }
    strings->at[vocab->n] = at;
    return RUNNEL_OK;
}

static runnel_status load_tokens(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    const struct rn_gguf_entry *entry;
    runnel_status status = rn_gguf_get_array(gguf, KEY "tokens", true, RN_GGUF_STRING, &entry, error);

    if (status != RUNNEL_OK)
        return status;
    if (entry->count == 0 || entry->count > RN_VOCAB_MAX_TOKENS)
        return rn_error_set(error, RUNNEL_FORMAT, KEY "tokens: %llu tokens", (unsigned long long)entry->count);
    vocab->n = (uint32_t)entry->count;
    vocab->kinds = rn_calloc(vocab->heap, vocab->n, 1);
    vocab->flags = rn_calloc(vocab->heap, vocab->n, 1);
    if (vocab->kinds == NULL || vocab->flags == NULL)
        return no_memory(error);
    return copy_strings(vocab, entry, &vocab->texts, error);
}

/* "<0xNN>": its byte, else -1. */
static int32_t byte_of_name(struct rn_view name)
{
    int high, low;

    if (name.n != 6 || memcmp(name.bytes, "<0x", 3) != 0 || name.bytes[5] != '>')
        return -1;
    high = rn_hex_value(name.bytes[3]);
    low = rn_hex_value(name.bytes[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Byte tokens stand for bytes where words are characters; elsewhere every byte has a letter of its own. */
static runnel_status load_byte_token(struct rn_vocab *vocab, uint32_t id, runnel_error *error)
{
    int32_t byte = byte_of_name(rn_string(&vocab->texts, id));

    if (byte < 0)
        return rn_error_set(error, RUNNEL_FORMAT, KEY "token_type: token %u is a byte but not named <0xNN>", id);
    if ((vocab->model != RN_VOCAB_BPE || vocab->by_characters) && vocab->byte_token[byte] < 0)
        vocab->byte_token[byte] = (int32_t)id;
    return RUNNEL_OK;
}

static runnel_status load_kinds(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    const struct rn_gguf_entry *entry;
    runnel_status status = rn_gguf_get_array(gguf, KEY "token_type", false, RN_GGUF_I32, &entry, error);
    bool by_name = vocab->model == RN_VOCAB_SPM || vocab->model == RN_VOCAB_UNIGRAM || vocab->model == RN_VOCAB_PLAMO;
    uint32_t i;

    if (status == RUNNEL_OK && entry != NULL && entry->count != vocab->n)
        status = rn_error_set(error, RUNNEL_FORMAT, KEY "token_type: %llu types for %u tokens",
                              (unsigned long long)entry->count, vocab->n);
    for (i = 0; i < vocab->n && status == RUNNEL_OK; i++) {
        int64_t kind = entry != NULL ? rn_gguf_item_i64(entry, i) : RN_TOKEN_NORMAL;

        if (entry == NULL && by_name && byte_of_name(rn_string(&vocab->texts, i)) >= 0)
            kind = RN_TOKEN_BYTE;
        if (kind < 0 || kind > RN_TOKEN_BYTE)
            return rn_error_set(error, RUNNEL_FORMAT, KEY "token_type: token %u has type %lld", i, (long long)kind);
        vocab->kinds[i] = kind == 0 ? RN_TOKEN_NORMAL : (uint8_t)kind;
        if (kind == RN_TOKEN_BYTE)
            status = load_byte_token(vocab, i, error);
    }
    return status;
}

/* Floats, or integers, as some files have. Absent: all equal. */
static runnel_status load_scores(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    const struct rn_gguf_entry *entry = rn_gguf_find(gguf, KEY "scores");
    bool integers = entry != NULL && entry->type == RN_GGUF_ARRAY && entry->item == RN_GGUF_I32;
    uint32_t item = integers ? RN_GGUF_I32 : RN_GGUF_F32;
    runnel_status status = rn_gguf_get_array(gguf, KEY "scores", false, item, &entry, error);
    uint32_t i;

    if (status != RUNNEL_OK)
        return status;
    vocab->scores = rn_calloc(vocab->heap, vocab->n, sizeof *vocab->scores);
    if (vocab->scores == NULL)
        return no_memory(error);
    if (entry == NULL)
        return RUNNEL_OK;
    if (entry->count != vocab->n)
        return rn_error_set(error, RUNNEL_FORMAT, KEY "scores: %llu scores for %u tokens",
                            (unsigned long long)entry->count, vocab->n);
    for (i = 0; i < vocab->n; i++) {
        vocab->scores[i] = integers ? (float)rn_gguf_item_i64(entry, i) : (float)rn_gguf_item_f64(entry, i);
        if (!isfinite(vocab->scores[i]))
            return rn_error_set(error, RUNNEL_FORMAT, KEY "scores: token %u has a score that is not finite", i);
    }
    return RUNNEL_OK;
}

/* The token that `text` names and that merging may give or take, or -1. */
static int32_t merge_part(const struct rn_vocab *vocab, const char *text, size_t n)
{
    int32_t id = rn_token_index_find(&vocab->by_text, &vocab->texts, text, n);

    return id >= 0 && (vocab->kinds[id] == RN_TOKEN_NORMAL || vocab->kinds[id] == RN_TOKEN_USER) ? id : -1;
}

/* One line of the merge list, "left right". Lines that name no tokens are passed over: nothing that
 * the vocabulary can say comes of them; others are counted. False: the table is degenerate. */
static bool add_merge(struct rn_vocab *vocab, struct rn_view line, uint32_t rank, uint32_t *n_good)
{
    char joined[RN_TOKEN_MAX_BYTES];
    const char *space = line.n > 1 ? memchr(line.bytes + 1, ' ', line.n - 1) : NULL;
    int32_t left, right, result;
    size_t n_left;

    if (space == NULL || line.n - 1 > sizeof joined)
        return true;
    n_left = (size_t)(space - line.bytes);
    memcpy(joined, line.bytes, n_left);
    memcpy(joined + n_left, space + 1, line.n - n_left - 1);
    left = merge_part(vocab, joined, n_left);
    right = merge_part(vocab, joined + n_left, line.n - n_left - 1);
    result = merge_part(vocab, joined, line.n - 1);
    if (left < 0 || right < 0 || result < 0)
        return true;
    ++*n_good;
    return rn_merge_table_add(&vocab->merges, (uint32_t)left, (uint32_t)right, rank, (uint32_t)result);
}

static runnel_status load_merges(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    const struct rn_gguf_entry *entry;
    bool needed = vocab->pre != rn_pre_find("kimi-k2", 7); /* whose files may come without */
    runnel_status status = rn_gguf_get_array(gguf, KEY "merges", needed, RN_GGUF_STRING, &entry, error);
    uint32_t i, n_good = 0;
    const char *cursor;

    if (status != RUNNEL_OK)
        return status;
    if (entry == NULL)
        return rn_merge_table_init(&vocab->merges, vocab->heap, 0) ? RUNNEL_OK : no_memory(error);
    if (entry->count > RN_VOCAB_MAX_TOKENS)
        return rn_error_set(error, RUNNEL_FORMAT, KEY "merges: %llu merges", (unsigned long long)entry->count);
    if (!rn_merge_table_init(&vocab->merges, vocab->heap, (uint32_t)entry->count))
        return no_memory(error);
    cursor = entry->data;
    for (i = 0; i < entry->count; i++) {
        if (!add_merge(vocab, rn_gguf_item_string(&cursor), i, &n_good))
            return rn_error_set(error, RUNNEL_FORMAT, KEY "merges: the pairs crowd one place of a hash table");
    }
    vocab->merges_idle = entry->count > 0 && n_good == 0;
    return RUNNEL_OK;
}

/* The pre-tokenizer, and with it how BPE's texts are written. `model` is the name in the file. */
static runnel_status load_pre(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    struct rn_view name = {"default", 7}, model = {"", 0};
    runnel_status status = rn_gguf_get_string(gguf, KEY "pre", false, &name, error);

    if (status == RUNNEL_OK)
        status = rn_gguf_get_string(gguf, KEY "model", true, &model, error);
    if (status != RUNNEL_OK)
        return status;
    if (is(model, "gemma4"))
        name = model;
    vocab->pre = rn_pre_find(name.bytes, name.n);
    if (vocab->pre == NULL)
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "the pre-tokenizer \"%s\" is not known", SHOWN(name));
    vocab->add_bos = (vocab->pre->flags & RN_PRE_ADD_BOS) != 0;
    vocab->add_sep = (vocab->pre->flags & RN_PRE_ADD_SEP) != 0;
    vocab->blocks = (vocab->pre->flags & RN_PRE_BLOCKS) != 0;
    vocab->by_characters = (vocab->pre->flags & RN_PRE_TEXT) != 0;
    if (vocab->encode == NULL)
        vocab->encode = vocab->by_characters ? rn_bpe_text_encode : rn_bpe_encode;
    else if (vocab->by_characters)
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "the pre-tokenizer \"%s\" does not go with \"%s\"", SHOWN(name),
                            SHOWN(model));
    if (!is(model, "whitespace"))
        return RUNNEL_OK;
    vocab->drop_spaces = true;
    vocab->lower_case = !is(name, "whitespace"); /* as llama.cpp has it */
    return rn_gguf_get_bool(gguf, KEY "normalizer.lowercase", false, &vocab->lower_case, error);
}

/* Non-empty texts to ids. */
static runnel_status index_texts(struct rn_vocab *vocab, runnel_error *error)
{
    uint32_t i;

    if (!rn_token_index_init(&vocab->by_text, vocab->heap, vocab->n))
        return no_memory(error);
    for (i = 0; i < vocab->n; i++) {
        if (rn_string(&vocab->texts, i).n > 0 && !rn_token_index_add(&vocab->by_text, &vocab->texts, i))
            return rn_error_set(error, RUNNEL_FORMAT, KEY "tokens: the texts crowd one place of a hash table");
    }
    return RUNNEL_OK;
}

/* SentencePiece's character map and what becomes of spaces. */
static runnel_status load_normaliser(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    const struct rn_gguf_entry *entry = rn_gguf_find(gguf, KEY "precompiled_charsmap");
    runnel_status status;

    vocab->space_prefix = true;
    vocab->squeeze_spaces = true;
    if ((status = rn_gguf_get_bool(gguf, KEY "add_space_prefix", false, &vocab->space_prefix, error)) != RUNNEL_OK ||
        (status = rn_gguf_get_bool(gguf, KEY "remove_extra_whitespaces", false, &vocab->squeeze_spaces, error)) !=
            RUNNEL_OK)
        return status;
    if (entry == NULL)
        return RUNNEL_OK;
    if (entry->type != RN_GGUF_ARRAY || (entry->item != RN_GGUF_U8 && entry->item != RN_GGUF_I8))
        return rn_error_set(error, RUNNEL_FORMAT, KEY "precompiled_charsmap is not an array of bytes");
    return rn_charsmap_init(&vocab->charsmap, vocab->heap, entry->data, (size_t)entry->count, error);
}

/* BERT's normaliser: accents go with capitals unless the file says otherwise. */
static runnel_status load_bert(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    runnel_status status;

    vocab->lower_case = true;
    status = rn_gguf_get_bool(gguf, KEY "normalizer.lowercase", false, &vocab->lower_case, error);
    vocab->strip_accents = vocab->lower_case;
    if (status != RUNNEL_OK)
        return status;
    return rn_gguf_get_bool(gguf, KEY "normalizer.strip_accents", false, &vocab->strip_accents, error);
}

/* What a model needs beyond tokens, kinds and special ids. */
static runnel_status load_model(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    runnel_status status;

    switch (vocab->model) {
    case RN_VOCAB_BPE:
        return load_merges(vocab, gguf, error);
    case RN_VOCAB_WORDPIECE:
        return load_bert(vocab, gguf, error);
    case RN_VOCAB_SPM:
        status = load_scores(vocab, gguf, error);
        return status != RUNNEL_OK ? status
                                   : rn_gguf_get_bool(gguf, KEY "add_space_prefix", false, &vocab->space_prefix, error);
    case RN_VOCAB_UNIGRAM:
        status = load_scores(vocab, gguf, error);
        return status != RUNNEL_OK ? status : load_normaliser(vocab, gguf, error);
    case RN_VOCAB_PLAMO:
        return load_scores(vocab, gguf, error);
    default:
        return RUNNEL_OK;
    }
}

runnel_status rn_vocab_load(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    runnel_status status;

    vocab->space_prefix = vocab->model == RN_VOCAB_SPM;
    vocab->by_characters = vocab->model == RN_VOCAB_SPM;
    vocab->blocks =
        vocab->model == RN_VOCAB_SPM || vocab->model == RN_VOCAB_UNIGRAM || vocab->model == RN_VOCAB_WORDPIECE;
    if ((status = load_tokens(vocab, gguf, error)) != RUNNEL_OK)
        return status;
    if (vocab->model == RN_VOCAB_BPE && (status = load_pre(vocab, gguf, error)) != RUNNEL_OK)
        return status;
    if ((status = load_kinds(vocab, gguf, error)) != RUNNEL_OK || (status = index_texts(vocab, error)) != RUNNEL_OK ||
        (status = rn_vocab_load_specials(vocab, gguf, error)) != RUNNEL_OK)
        return status;
    return load_model(vocab, gguf, error);
}
