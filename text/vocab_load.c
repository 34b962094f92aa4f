/* A vocabulary's arrays and keys from GGUF metadata (tokenizer.ggml.*), checked one by one. */
#include <math.h>
#include <string.h>

#include "text/vocab_impl.h"

#define KEY "tokenizer.ggml."

/* A view for "%.*s", cut to what an error sentence can hold. */
#define SHOWN(view) (int)((view).n < 60 ? (view).n : 60), (view).bytes

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
    static const char digits[] = "0123456789ABCDEFabcdef";
    int32_t byte = 0;
    int i;

    if (name.n != 6 || memcmp(name.bytes, "<0x", 3) != 0 || name.bytes[5] != '>')
        return -1;
    for (i = 3; i < 5; i++) {
        const char *digit = memchr(digits, name.bytes[i], sizeof digits - 1);

        if (digit == NULL)
            return -1;
        byte = byte * 16 + (int32_t)(digit - digits < 16 ? digit - digits : digit - digits - 6);
    }
    return byte;
}

/* Byte tokens stand for bytes where the vocabulary is SentencePiece's. */
static runnel_status load_byte_token(struct rn_vocab *vocab, uint32_t id, runnel_error *error)
{
    int32_t byte = byte_of_name(rn_string(&vocab->texts, id));

    if (byte < 0)
        return rn_error_set(error, RUNNEL_FORMAT, KEY "token_type: token %u is a byte but not named <0xNN>", id);
    if (vocab->model == RN_VOCAB_SPM && vocab->byte_token[byte] < 0)
        vocab->byte_token[byte] = (int32_t)id;
    return RUNNEL_OK;
}

static runnel_status load_kinds(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    const struct rn_gguf_entry *entry;
    runnel_status status = rn_gguf_get_array(gguf, KEY "token_type", false, RN_GGUF_I32, &entry, error);
    uint32_t i;

    if (status == RUNNEL_OK && entry != NULL && entry->count != vocab->n)
        status = rn_error_set(error, RUNNEL_FORMAT, KEY "token_type: %llu types for %u tokens",
                              (unsigned long long)entry->count, vocab->n);
    for (i = 0; i < vocab->n && status == RUNNEL_OK; i++) {
        int64_t kind = entry != NULL ? rn_gguf_item_i64(entry, i) : RN_TOKEN_NORMAL;

        if (entry == NULL && vocab->model == RN_VOCAB_SPM && byte_of_name(rn_string(&vocab->texts, i)) >= 0)
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
 * the vocabulary can say comes of them. False: the table is degenerate. */
static bool add_merge(struct rn_vocab *vocab, struct rn_view line, uint32_t rank)
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
    return rn_merge_table_add(&vocab->merges, (uint32_t)left, (uint32_t)right, rank, (uint32_t)result);
}

static runnel_status load_merges(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    const struct rn_gguf_entry *entry;
    runnel_status status = rn_gguf_get_array(gguf, KEY "merges", true, RN_GGUF_STRING, &entry, error);
    const char *cursor;
    uint32_t i;

    if (status != RUNNEL_OK)
        return status;
    if (entry->count > RN_VOCAB_MAX_TOKENS)
        return rn_error_set(error, RUNNEL_FORMAT, KEY "merges: %llu merges", (unsigned long long)entry->count);
    if (!rn_merge_table_init(&vocab->merges, vocab->heap, (uint32_t)entry->count))
        return no_memory(error);
    cursor = entry->data;
    for (i = 0; i < entry->count; i++) {
        if (!add_merge(vocab, rn_gguf_item_string(&cursor), i))
            return rn_error_set(error, RUNNEL_FORMAT, KEY "merges: the pairs crowd one place of a hash table");
    }
    return RUNNEL_OK;
}

static runnel_status load_pre(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    struct rn_view name = {"default", 7};
    runnel_status status = rn_gguf_get_string(gguf, KEY "pre", false, &name, error);

    if (status != RUNNEL_OK)
        return status;
    vocab->pre = rn_pre_find(name.bytes, name.n);
    if (vocab->pre == NULL)
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "the pre-tokenizer \"%.*s\" is not known", SHOWN(name));
    vocab->add_bos = vocab->pre->add_bos;
    return RUNNEL_OK;
}

/* A special id. Absent: as it was. -1, or 2^32-1 as some converters write it: none. */
static runnel_status load_id(const struct rn_vocab *vocab, const struct rn_gguf *gguf, const char *key, int32_t *id,
                             runnel_error *error)
{
    const struct rn_gguf_entry *entry = rn_gguf_find(gguf, key);
    runnel_status status;
    uint64_t value;

    if (entry == NULL)
        return RUNNEL_OK;
    if (entry->type == RN_GGUF_I32 || entry->type == RN_GGUF_U32) {
        int64_t number = rn_gguf_item_i64(entry, 0);

        if (number == -1 || number == UINT32_MAX) {
            *id = -1;
            return RUNNEL_OK;
        }
    }
    status = rn_gguf_get_u64(gguf, key, true, 0, vocab->n - 1, &value, error);
    if (status == RUNNEL_OK)
        *id = (int32_t)value;
    return status;
}

static runnel_status load_specials(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    int32_t eot = -1, eom = -1;
    int32_t ends[3];
    runnel_status status;
    int i;

    if (vocab->model == RN_VOCAB_SPM) { /* SentencePiece's own order of special tokens */
        vocab->unknown = 0;
        vocab->bos = vocab->n > 1 ? 1 : -1;
        vocab->eos = vocab->n > 2 ? 2 : -1;
    }
    if ((status = load_id(vocab, gguf, KEY "bos_token_id", &vocab->bos, error)) != RUNNEL_OK ||
        (status = load_id(vocab, gguf, KEY "eos_token_id", &vocab->eos, error)) != RUNNEL_OK ||
        (status = load_id(vocab, gguf, KEY "unknown_token_id", &vocab->unknown, error)) != RUNNEL_OK ||
        (status = load_id(vocab, gguf, KEY "eot_token_id", &eot, error)) != RUNNEL_OK ||
        (status = load_id(vocab, gguf, KEY "eom_token_id", &eom, error)) != RUNNEL_OK ||
        (status = rn_gguf_get_bool(gguf, KEY "add_bos_token", false, &vocab->add_bos, error)) != RUNNEL_OK ||
        (status = rn_gguf_get_bool(gguf, KEY "add_eos_token", false, &vocab->add_eos, error)) != RUNNEL_OK)
        return status;
    vocab->add_bos = vocab->add_bos && vocab->bos >= 0;
    vocab->add_eos = vocab->add_eos && vocab->eos >= 0;
    ends[0] = vocab->eos;
    ends[1] = eot;
    ends[2] = eom;
    for (i = 0; i < 3; i++) {
        if (ends[i] >= 0)
            vocab->flags[ends[i]] |= RN_TOKEN_ENDS;
    }
    return RUNNEL_OK;
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

/* The names by which known chat formats end a turn. */
static const char *const end_names[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>",
    "<eos>", "<turn|>", "<｜end▁of▁sentence｜>", "[e~["
};

static int32_t find(const struct rn_vocab *vocab, const char *name)
{
    return rn_vocab_find(vocab, name, strlen(name));
}

/* Tokens of those names end an answer and are control tokens, whatever type the file gave them:
 * otherwise they would be shown, and a user's text could end a turn. */
static void mark_ends(struct rn_vocab *vocab)
{
    int32_t end = find(vocab, "<|end|>");
    size_t i;

    for (i = 0; i < sizeof end_names / sizeof end_names[0]; i++) {
        int32_t id = find(vocab, end_names[i]);

        if (id < 0)
            continue;
        vocab->kinds[id] = RN_TOKEN_CONTROL;
        vocab->flags[id] |= RN_TOKEN_ENDS;
    }
    /* Formats with channels: <|end|> ends a message of the turn, not the turn. */
    if (end >= 0 && end != vocab->eos && (find(vocab, "<|call|>") >= 0 || find(vocab, "<|calls|>") >= 0) &&
        (find(vocab, "<|return|>") >= 0 || find(vocab, "<|flush|>") >= 0))
        vocab->flags[end] &= (uint8_t)~RN_TOKEN_ENDS;
}

runnel_status rn_vocab_load(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    runnel_status status;

    vocab->add_bos = vocab->model == RN_VOCAB_SPM;
    vocab->space_prefix = vocab->model == RN_VOCAB_SPM;
    if ((status = load_tokens(vocab, gguf, error)) != RUNNEL_OK ||
        (status = load_kinds(vocab, gguf, error)) != RUNNEL_OK || (status = index_texts(vocab, error)) != RUNNEL_OK)
        return status;
    if (vocab->model == RN_VOCAB_BPE && (status = load_pre(vocab, gguf, error)) != RUNNEL_OK)
        return status;
    if ((status = load_specials(vocab, gguf, error)) != RUNNEL_OK)
        return status;
    mark_ends(vocab);
    if (vocab->model == RN_VOCAB_BPE)
        return load_merges(vocab, gguf, error);
    status = load_scores(vocab, gguf, error);
    if (status == RUNNEL_OK)
        status = rn_gguf_get_bool(gguf, KEY "add_space_prefix", false, &vocab->space_prefix, error);
    return status;
}
