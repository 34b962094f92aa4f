/* Special tokens of a vocabulary from GGUF metadata: their ids, which are added, which end an answer, and which take
 * white space along. See vocab_impl.h. */
#include <string.h>

#include "base/check.h"
#include "text/template_keys.h"
#include "text/vocab.h"
#include "text/vocab_impl.h"

#define KEY "tokenizer.ggml."

/* Keeps the key for a warning, once. */
static void note_stray(struct rn_vocab *vocab, const char *key, uint64_t id)
{
    for (uint32_t i = 0; i < vocab->n_strays; i++)
        if (strcmp(vocab->strays[i].key, key) == 0)
            return;
    RN_CHECK(vocab->n_strays < RN_MOST_STRAYS);
    vocab->strays[vocab->n_strays++] = (struct rn_stray_id){key, id};
}

/* A special id. Absent, or no token's: as it was. -1, or 2^32-1 as some converters write it: none. */
static runnel_status load_id(struct rn_vocab *vocab, const struct rn_gguf *gguf, const char *key, int32_t *id,
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
    status = rn_gguf_get_u64(gguf, key, true, 0, UINT64_MAX, &value, error);
    if (status != RUNNEL_OK)
        return status;
    if (value < vocab->n)
        *id = (int32_t)value;
    else
        note_stray(vocab, key, value);
    return RUNNEL_OK;
}

/* What a model's files mean when they say nothing; ids beyond the vocabulary are none. */
static const struct {
    enum rn_vocab_model model;
    int32_t unknown, bos, eos, sep;
    bool add_bos, add_eos, add_sep;
} defaults[] = {
    {RN_VOCAB_SPM, 0, 1, 2, -1, true, false, false},
    {RN_VOCAB_WORDPIECE, 100, 101, -1, 102, true, false, true},
    {RN_VOCAB_UNIGRAM, 2, -1, 1, -1, false, true, false},
    {RN_VOCAB_PLAMO, 0, 1, 2, -1, false, false, false},
};

static int32_t in_range(const struct rn_vocab *vocab, int32_t id)
{
    return id >= 0 && (uint32_t)id < vocab->n ? id : -1;
}

static void set_defaults(struct rn_vocab *vocab)
{
    size_t i;

    for (i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        if (defaults[i].model != vocab->model)
            continue;
        vocab->unknown = in_range(vocab, defaults[i].unknown);
        vocab->bos = in_range(vocab, defaults[i].bos);
        vocab->eos = in_range(vocab, defaults[i].eos);
        vocab->sep = in_range(vocab, defaults[i].sep);
        vocab->add_bos = defaults[i].add_bos;
        vocab->add_eos = defaults[i].add_eos;
        vocab->add_sep = defaults[i].add_sep;
    }
}

/* "seperator" is how the key is spelt. WordPiece adds one at the end of a text; others, as XLM-RoBERTa, between two. */
static runnel_status load_ids(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    int32_t eot = -1, eom = -1;
    int32_t ends[3];
    runnel_status status;
    int i;

    if ((vocab->model == RN_VOCAB_WORDPIECE &&
         (status = load_id(vocab, gguf, KEY "cls_token_id", &vocab->bos, error)) != RUNNEL_OK) ||
        (status = load_id(vocab, gguf, KEY "bos_token_id", &vocab->bos, error)) != RUNNEL_OK ||
        (status = load_id(vocab, gguf, KEY "eos_token_id", &vocab->eos, error)) != RUNNEL_OK ||
        (status = load_id(vocab, gguf, KEY "seperator_token_id", &vocab->sep, error)) != RUNNEL_OK ||
        (status = load_id(vocab, gguf, KEY "unknown_token_id", &vocab->unknown, error)) != RUNNEL_OK ||
        (status = load_id(vocab, gguf, KEY "eot_token_id", &eot, error)) != RUNNEL_OK ||
        (status = load_id(vocab, gguf, KEY "eom_token_id", &eom, error)) != RUNNEL_OK ||
        (status = rn_gguf_get_bool(gguf, KEY "add_bos_token", false, &vocab->add_bos, error)) != RUNNEL_OK ||
        (status = rn_gguf_get_bool(gguf, KEY "add_eos_token", false, &vocab->add_eos, error)) != RUNNEL_OK ||
        (status = rn_gguf_get_bool(gguf, KEY "add_sep_token", false, &vocab->add_sep, error)) != RUNNEL_OK)
        return status;
    if (vocab->pre != NULL && (vocab->pre->flags & RN_PRE_MUST_ADD_BOS))
        vocab->add_bos = true;
    vocab->add_bos = vocab->add_bos && vocab->bos >= 0;
    vocab->add_eos = vocab->add_eos && vocab->eos >= 0;
    vocab->pair_sep = vocab->add_sep && vocab->sep >= 0 && vocab->model != RN_VOCAB_WORDPIECE;
    vocab->add_sep = vocab->add_sep && vocab->sep >= 0 && vocab->model == RN_VOCAB_WORDPIECE;
    ends[0] = vocab->eos;
    ends[1] = eot;
    ends[2] = eom;
    for (i = 0; i < 3; i++) {
        if (ends[i] >= 0)
            vocab->flags[ends[i]] |= RN_TOKEN_ENDS;
    }
    return RUNNEL_OK;
}

/* The names by which known chat formats end a turn. */
static const char *const end_names[] = {"<|eot_id|>",
                                        "<|im_end|>",
                                        "<|end|>",
                                        "<|return|>",
                                        "<|call|>",
                                        "<|flush|>",
                                        "<|calls|>",
                                        "<end_of_turn>",
                                        "<|endoftext|>",
                                        "<|eom_id|>",
                                        "<EOT>",
                                        "_<EOT>",
                                        "[EOT]",
                                        "[EOS]",
                                        "<|end_of_text|>",
                                        "<end_of_utterance>",
                                        "<eos>",
                                        "<turn|>",
                                        "<|tool_response>",
                                        "<｜end▁of▁sentence｜>",
                                        "[e~[",
                                        "<|ifm|im_end|>"};

static int32_t find(const struct rn_vocab *vocab, const char *name)
{
    return rn_vocab_find(vocab, name, strlen(name));
}

/* Tokens of those names end an answer and are control tokens, whatever type the file gave them:
 * otherwise they would be shown, and a user's text could end a turn. */
static void mark_ends(struct rn_vocab *vocab)
{
    int32_t end = find(vocab, "<|end|>");
    int32_t sentence = find(vocab, "</s>");
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
    /* "</s>" ends where it is a control token, but for Gemma 4 and PLaMo, which have others. */
    if (sentence >= 0 && vocab->kinds[sentence] == RN_TOKEN_CONTROL && find(vocab, "<|tool_response>") < 0 &&
        find(vocab, "<|plamo:eos|>") < 0)
        vocab->flags[sentence] |= RN_TOKEN_ENDS;
}

/* The keys by which a file names tokens that are no text. */
static const char *const named_keys[] = {KEY "bos_token_id",     KEY "eos_token_id",     KEY "eot_token_id",
                                         KEY "eom_token_id",     KEY "cls_token_id",     KEY "seperator_token_id",
                                         KEY "padding_token_id", KEY "mask_token_id",    KEY "fim_pre_token_id",
                                         KEY "fim_suf_token_id", KEY "fim_mid_token_id", KEY "fim_pad_token_id",
                                         KEY "fim_rep_token_id", KEY "fim_sep_token_id", KEY "prefix_token_id",
                                         KEY "suffix_token_id",  KEY "middle_token_id"};

/* "<...>" or "[...]". */
static bool is_bracketed(struct rn_view text)
{
    return text.n > 2 && ((text.bytes[0] == '<' && text.bytes[text.n - 1] == '>') ||
                          (text.bytes[0] == '[' && text.bytes[text.n - 1] == ']'));
}

/* A token that the file names for a purpose is a control token, whatever type it has there: otherwise a user who writes
 * it ends a turn, or begins another. Where its type says that it is ordinary text, its looks decide: files exist whose
 * padding is "!". */
static runnel_status mark_named(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    for (size_t i = 0; i < sizeof named_keys / sizeof named_keys[0]; i++) {
        int32_t id = -1;
        runnel_status status = load_id(vocab, gguf, named_keys[i], &id, error);

        if (status != RUNNEL_OK)
            return status;
        if (id >= 0 && (vocab->kinds[id] == RN_TOKEN_USER ||
                        (vocab->kinds[id] == RN_TOKEN_NORMAL && is_bracketed(rn_string(&vocab->texts, (uint32_t)id)))))
            vocab->kinds[id] = RN_TOKEN_CONTROL;
    }
    return RUNNEL_OK;
}

/* Does the string of that key contain one of the words [n]? In lower case. */
static bool contains(const struct rn_gguf *gguf, const char *key, const char *const *words, size_t n)
{
    struct rn_view value = {"", 0};
    char lower[128];
    size_t i;

    if (rn_gguf_get_string(gguf, key, false, &value, NULL) != RUNNEL_OK)
        return false;
    value.n = value.n < sizeof lower ? value.n : sizeof lower - 1;
    for (i = 0; i < value.n; i++)
        lower[i] = (char)(value.bytes[i] >= 'A' && value.bytes[i] <= 'Z' ? value.bytes[i] | 0x20 : value.bytes[i]);
    lower[value.n] = '\0';
    for (i = 0; i < n; i++) {
        if (strstr(lower, words[i]) != NULL)
            return true;
    }
    return false;
}

static void set_flag(struct rn_vocab *vocab, const char *name, uint8_t flag, bool on)
{
    int32_t id = find(vocab, name);

    if (id >= 0)
        vocab->flags[id] = (uint8_t)(on ? vocab->flags[id] | flag : vocab->flags[id] & ~flag);
}

/* Which special tokens take white space along is not in the file: it is known by the model's name. */
static void mark_strips(struct rn_vocab *vocab, const struct rn_gguf *gguf)
{
    static const char *const jina[] = {"jina-v2-de", "jina-v2-es", "jina-v2-code"};
    static const char *const bert[] = {"nomic-bert-moe", "jina-bert-v3"};
    static const char *const phi[] = {"phi-3", "phi3"};
    static const char *const modern[] = {"modern-bert"};
    uint32_t i;

    if (contains(gguf, KEY "pre", jina, 3) || contains(gguf, "general.architecture", bert, 2)) {
        set_flag(vocab, "<mask>", RN_TOKEN_LSTRIP, true);
    } else if (contains(gguf, "general.name", phi, 2)) {
        for (i = 0; i < vocab->n; i++) {
            if (vocab->kinds[i] == RN_TOKEN_CONTROL || vocab->kinds[i] == RN_TOKEN_USER ||
                vocab->kinds[i] == RN_TOKEN_UNKNOWN)
                vocab->flags[i] |= RN_TOKEN_RSTRIP;
        }
        set_flag(vocab, "</s>", RN_TOKEN_RSTRIP, true);
        set_flag(vocab, "<unk>", RN_TOKEN_RSTRIP, false);
        set_flag(vocab, "<s>", RN_TOKEN_RSTRIP, false);
        set_flag(vocab, "<|endoftext|>", RN_TOKEN_RSTRIP, false);
    } else if (contains(gguf, "general.name", modern, 1)) {
        set_flag(vocab, "[MASK]", RN_TOKEN_LSTRIP, true);
    }
}

/* The tokens around and for stretches of DNA; they work where they are ordinary tokens, since nothing of a user's text
 * becomes a control token. */
static void find_dna(struct rn_vocab *vocab)
{
    vocab->dna_open = find(vocab, "<dna>");
    vocab->dna_close = find(vocab, "</dna>");
    if (vocab->dna_open >= 0 && vocab->kinds[vocab->dna_open] == RN_TOKEN_NORMAL && vocab->dna_close >= 0 &&
        vocab->kinds[vocab->dna_close] == RN_TOKEN_NORMAL)
        vocab->dna_other = find(vocab, "<oov>");
}

/* Tokens around a gap: by keys of today and of yesterday, or by the names that models have for them. */
#define FIM_NAMES 9
static const struct {
    const char *keys[2], *names[FIM_NAMES];
} fim_words[RN_FIMS] = {
    [RN_FIM_PREFIX] = {{KEY "fim_pre_token_id", KEY "prefix_token_id"},
                       {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
                        "<|code_prefix|>", "<|prefix|>", "<|plamo:fim_prefix|>"}},
    [RN_FIM_SUFFIX] = {{KEY "fim_suf_token_id", KEY "suffix_token_id"},
                       {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
                        "<|code_suffix|>", "<|suffix|>", "<|plamo:fim_suffix|>"}},
    [RN_FIM_MIDDLE] = {{KEY "fim_mid_token_id", KEY "middle_token_id"},
                       {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
                        "<|code_middle|>", "<|middle|>", "<|plamo:fim_middle|>"}},
    [RN_FIM_PAD] = {{KEY "fim_pad_token_id"}, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    [RN_FIM_REPOSITORY] = {{KEY "fim_rep_token_id"},
                           {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    [RN_FIM_FILE] = {{KEY "fim_sep_token_id"}, {"<|file_sep|>", "<|plamo:file_separator|>"}},
};

/* By its names. A token of such a name is a control token, whatever type the file gave it: no text of a host's becomes
 * one (infill.h), and no answer shows it. */
static int32_t find_fim(struct rn_vocab *vocab, const char *const names[FIM_NAMES])
{
    int32_t id = -1;

    for (int k = 0; k < FIM_NAMES && id < 0 && names[k] != NULL; k++)
        id = find(vocab, names[k]);
    if (id >= 0)
        vocab->kinds[id] = RN_TOKEN_CONTROL;
    return id;
}

/* What comes behind a gap, be it padding or another file, ends an answer. */
static runnel_status load_fim(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    for (int i = 0; i < RN_FIMS; i++) {
        int32_t *id = &vocab->fim[i];

        for (int k = 0; k < 2 && *id < 0 && fim_words[i].keys[k] != NULL; k++) {
            runnel_status status = load_id(vocab, gguf, fim_words[i].keys[k], id, error);

            if (status != RUNNEL_OK)
                return status;
        }
        if (*id < 0)
            *id = find_fim(vocab, fim_words[i].names);
        if (*id >= 0 && i >= RN_FIM_PAD)
            vocab->flags[*id] |= RN_TOKEN_ENDS;
    }
    return RUNNEL_OK;
}

runnel_status rn_vocab_load_specials(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error)
{
    static const char *const dna[] = {"hybriddna"};
    runnel_status status;

    set_defaults(vocab);
    status = load_ids(vocab, gguf, error);
    if (status == RUNNEL_OK)
        status = mark_named(vocab, gguf, error);
    if (status == RUNNEL_OK)
        status = load_fim(vocab, gguf, error);
    if (status != RUNNEL_OK)
        return status;
    mark_ends(vocab);
    mark_strips(vocab, gguf);
    if (contains(gguf, KEY "model", dna, 1))
        find_dna(vocab);
    return RUNNEL_OK;
}

void rn_vocab_reserve(struct rn_vocab *vocab, const struct rn_gguf *gguf)
{
    struct rn_view name, source;

    for (uint64_t i = 0; i < rn_gguf_n_entries(gguf); i++)
        if (rn_template_key(rn_gguf_entry(gguf, i), &name, &source) && source.n <= RN_TEMPLATE_BYTES)
            rn_special_reserve(&vocab->special, &vocab->texts, vocab->kinds, source.bytes, source.n);
}
