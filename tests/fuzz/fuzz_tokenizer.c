/* Any bytes as a vocabulary and a text. The input is a GGUF file up to its last "TEXT" mark and the
 * text behind it: what loads as a vocabulary must tokenize the text, within the bound, to ids that
 * exist and decode, and a stream must cut the decoded bytes into UTF-8 whatever the pieces. Seeds:
 * small vocabularies of each kind, written here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/check.h"
#include "model/gguf/gguf.h"
#include "text/piece_stream.h"
#include "text/template/template.h"
#include "text/vocab.h"

#define MARK "TEXT"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* Streams the pieces of the ids and, in one piece, their bytes: the same must come out. */
static void stream(const struct rn_vocab *vocab, const int32_t *ids, size_t count, const char *bytes, size_t n)
{
    static const char *const stops[] = {"aab", "a", "\n\n"};
    static const uint32_t stop_bytes[] = {3, 1, 2};
    bool strip = rn_vocab_strips_first_space(vocab);
    char *by_piece = malloc(3 * n + 1024), *at_once = malloc(3 * n + 1024);
    size_t n_by_piece = 0, n_at_once, i;
    struct rn_piece_stream s;
    char held[RN_PIECE_HELD_BYTES(3)];

    RN_CHECK(by_piece != NULL && at_once != NULL);
    rn_piece_stream_init(&s, stops, stop_bytes, 3, held, strip);
    for (i = 0; i < count; i++) {
        struct rn_view piece = rn_vocab_piece(vocab, ids[i], false);

        RN_CHECK(piece.n <= rn_vocab_longest_piece(vocab));
        n_by_piece += rn_piece_stream_feed(&s, piece.bytes, piece.n, by_piece + n_by_piece);
    }
    n_by_piece += rn_piece_stream_end(&s, by_piece + n_by_piece);
    RN_CHECK(rn_utf8_valid(by_piece, n_by_piece));
    rn_piece_stream_init(&s, stops, stop_bytes, 3, held, false); /* detokenizing has taken the space away */
    n_at_once = rn_piece_stream_feed(&s, bytes, n, at_once);
    n_at_once += rn_piece_stream_end(&s, at_once + n_at_once);
    RN_CHECK(n_at_once == n_by_piece && memcmp(at_once, by_piece, n_at_once) == 0);
    free(by_piece);
    free(at_once);
}

/* With every byte data there is no control token, as without asking for any; with none, there are all. */
static void use_marked(struct rn_heap *heap, const struct rn_vocab *vocab, const char *text, size_t n)
{
    const struct rn_range all = {0, n}, half = {n / 3, n / 2};
    int32_t *ids, *plain;
    size_t count, n_plain;

    if (rn_tokenize_marked(vocab, heap, text, n, 0, &all, 1, &ids, &count, NULL) != RUNNEL_OK)
        return;
    RN_CHECK(rn_tokenize(vocab, heap, text, n, 0, &plain, &n_plain, NULL) == RUNNEL_OK);
    RN_CHECK(count == n_plain && memcmp(ids, plain, count * sizeof *ids) == 0);
    rn_free(heap, ids);
    rn_free(heap, plain);
    RN_CHECK(rn_tokenize_marked(vocab, heap, text, n, RUNNEL_TOKENIZE_BOS, &half, 1, &ids, &count, NULL) == RUNNEL_OK);
    RN_CHECK(count <= rn_tokenize_bound(vocab, n));
    rn_free(heap, ids);
}

static void use(struct rn_heap *heap, const struct rn_vocab *vocab, const char *text, size_t n, uint32_t flags)
{
    int32_t *ids;
    size_t count, bytes, i;
    runnel_status status = rn_tokenize(vocab, heap, text, n, flags, &ids, &count, NULL);
    char *decoded;

    RN_CHECK(status == RUNNEL_OK || status == RUNNEL_INVALID || status == RUNNEL_UNSUPPORTED);
    RN_CHECK((status != RUNNEL_INVALID) == rn_utf8_valid(text, n) || status == RUNNEL_UNSUPPORTED);
    if (status != RUNNEL_OK)
        return;
    RN_CHECK(count <= rn_tokenize_bound(vocab, n));
    for (i = 0; i < count; i++)
        RN_CHECK(ids[i] >= 0 && (uint32_t)ids[i] < rn_vocab_count(vocab));
    rn_detokenize(vocab, ids, count, false, NULL, 0, &bytes);
    decoded = malloc(bytes + 1);
    RN_CHECK(decoded != NULL);
    rn_detokenize(vocab, ids, count, false, decoded, bytes, &i);
    RN_CHECK(i == bytes);
    stream(vocab, ids, count, decoded, bytes);
    free(decoded);
    rn_free(heap, ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rn_heap heap;
    struct rn_gguf *gguf;
    struct rn_vocab *vocab;
    size_t split = size;
    const char *text;
    size_t n;

    while (split >= 4 && memcmp(data + split - 4, MARK, 4) != 0)
        split--;
    if (split < 4)
        return 0;
    text = (const char *)data + split;
    n = size - split;
    rn_heap_init(&heap, NULL);
    if (rn_gguf_parse(&heap, data, split - 4, "fuzz", &gguf, NULL) == RUNNEL_OK) {
        if (rn_vocab_new(&heap, gguf, 100, &vocab, NULL) == RUNNEL_OK) {
            use(&heap, vocab, text, n, 0);
            use(&heap, vocab, text, n, RUNNEL_TOKENIZE_SPECIAL | RUNNEL_TOKENIZE_BOS);
            use_marked(&heap, vocab, text, n);
            rn_vocab_free(vocab);
        }
        rn_gguf_free(gguf);
    }
    RN_CHECK(rn_heap_blocks(&heap) == 0);
    return 0;
}

/* ---- Seeds -------------------------------------------------------------------------------- */

struct seed {
    FILE *file;
    uint64_t entries;
};

static void put(struct seed *seed, const void *bytes, size_t n)
{
    fwrite(bytes, 1, n, seed->file);
}

static void put_u32(struct seed *seed, uint32_t value)
{
    put(seed, &value, sizeof value);
}

static void put_u64(struct seed *seed, uint64_t value)
{
    put(seed, &value, sizeof value);
}

static void put_text(struct seed *seed, const char *text)
{
    put_u64(seed, strlen(text));
    put(seed, text, strlen(text));
}

static void put_key(struct seed *seed, const char *key, uint32_t type)
{
    put_text(seed, key);
    put_u32(seed, type);
    seed->entries++;
}

static void put_strings(struct seed *seed, const char *key, const char *const *values, uint64_t n)
{
    uint64_t i;

    put_key(seed, key, RN_GGUF_ARRAY);
    put_u32(seed, RN_GGUF_STRING);
    put_u64(seed, n);
    for (i = 0; i < n; i++)
        put_text(seed, values[i]);
}

static void put_numbers(struct seed *seed, const char *key, uint32_t item, const void *values, uint64_t n)
{
    put_key(seed, key, RN_GGUF_ARRAY);
    put_u32(seed, item);
    put_u64(seed, n);
    put(seed, values, 4 * n);
}

static void put_bytes(struct seed *seed, const char *key, const char *bytes, uint64_t n)
{
    put_key(seed, key, RN_GGUF_ARRAY);
    put_u32(seed, RN_GGUF_U8);
    put_u64(seed, n);
    put(seed, bytes, n);
}

static void put_id(struct seed *seed, const char *key, uint32_t id)
{
    put_key(seed, key, RN_GGUF_U32);
    put_u32(seed, id);
}

static void seed_begin(struct seed *seed, const char *folder, const char *name)
{
    char path[1024];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    seed->file = fopen(path, "wb");
    seed->entries = 0;
    RN_CHECK(seed->file != NULL);
    put(seed, "GGUF", 4);
    put_u32(seed, 3);
    put_u64(seed, 0);
    put_u64(seed, 0);
}

static void seed_end(struct seed *seed, const char *text)
{
    put(seed, MARK, 4);
    put(seed, text, strlen(text));
    fseek(seed->file, 16, SEEK_SET);
    put_u64(seed, seed->entries);
    fclose(seed->file);
}

static void write_bpe(const char *folder, const char *pre)
{
    static const char *const tokens[] = {
        "h", "e", "l", "o", "\xc4\xa0",   "\xc4\x8a", "he",       "ll",       "hell", "hello", "\xc4\xa0h",
        "1", "2", "'", "s", "<|im_end|>", "<tool>",   "\xc3\x83", "\xc2\xa9", ".",    "a",     "b"};
    static const int32_t types[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 4, 1, 1, 1, 1, 1};
    static const char *const merges[] = {"h e", "l l", "he ll", "hell o", "\xc4\xa0 h"};
    struct seed seed;

    seed_begin(&seed, folder, pre);
    put_key(&seed, "tokenizer.ggml.model", RN_GGUF_STRING);
    put_text(&seed, "gpt2");
    put_key(&seed, "tokenizer.ggml.pre", RN_GGUF_STRING);
    put_text(&seed, pre);
    put_strings(&seed, "tokenizer.ggml.tokens", tokens, 22);
    put_numbers(&seed, "tokenizer.ggml.token_type", RN_GGUF_I32, types, 22);
    put_strings(&seed, "tokenizer.ggml.merges", merges, 5);
    put_id(&seed, "tokenizer.ggml.eos_token_id", 15);
    seed_end(&seed, "hello hello\n\n 12 's aab<|im_end|><tool> \xc3\xa9. \r\n  h");
}

static void write_spm(const char *folder)
{
    static const char *const tokens[] = {"<unk>",
                                         "<s>",
                                         "</s>",
                                         "<0x0A>",
                                         "<0xC3>",
                                         "<0xA9>",
                                         "\xe2\x96\x81",
                                         "a",
                                         "b",
                                         "\xe2\x96\x81"
                                         "a",
                                         "ab",
                                         "\xe2\x96\x81"
                                         "ab",
                                         "<sep>",
                                         "|"};
    static const int32_t types[] = {2, 3, 3, 6, 6, 6, 1, 1, 1, 1, 1, 1, 4, 4};
    static const float scores[] = {0, 0, 0, 0, 0, 0, -9, -8, -7, -2, -1, -3, 0, 0};
    struct seed seed;

    seed_begin(&seed, folder, "spm");
    put_key(&seed, "tokenizer.ggml.model", RN_GGUF_STRING);
    put_text(&seed, "llama");
    put_strings(&seed, "tokenizer.ggml.tokens", tokens, 14);
    put_numbers(&seed, "tokenizer.ggml.token_type", RN_GGUF_I32, types, 14);
    put_numbers(&seed, "tokenizer.ggml.scores", RN_GGUF_F32, scores, 14);
    put_id(&seed, "tokenizer.ggml.bos_token_id", 1);
    seed_end(&seed, "ab  ab|a<sep><s>\xc3\xa9\n aab");
}

#define BLOCK "\xe2\x96\x81"

/* One vocabulary that serves every model that is not BPE by bytes. */
static void write_model(const char *folder, const char *model, const char *pre, const char *name)
{
    static const char *const tokens[] = {"<unk>",  "<s>",      "</s>",   "<0x0A>",   "<0xC3>",
                                         "<0xA9>", BLOCK,      "a",      "b",        BLOCK "a",
                                         "ab",     BLOCK "ab", "<mask>", "\\x0a\\t", "\xc3\xa9",
                                         "\n\n",   "<dna>",    "</dna>", "<oov>",    "ACGTAA\xee\x80\x80"};
    static const int32_t types[] = {2, 3, 3, 6, 6, 6, 1, 1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1, 1, 1};
    static const float scores[] = {0, 0, 0, 0, 0, 0, -9, -8, -7, -2, -1, -3, 0, -4, -5, -6, -1, -1, -1, -1};
    static const char *const merges[] = {"a b", BLOCK " a", BLOCK " ab"};
    /* a map with one key: "b" becomes "ab"; the root's children lie at 256 ^ label, the key's leaf at 512 */
    static uint32_t units[1 + 1024];
    char map[sizeof units + 3];
    struct seed seed;

    units[0] = sizeof units - sizeof units[0];
    units[1] = 256u << 10;
    units[1 + (256 ^ 'b')] = (256u ^ 'b' ^ 512u) << 10 | 1u << 8 | 'b';
    units[1 + 512] = 1u << 31;
    memcpy(map, units, sizeof units);
    memcpy(map + sizeof units, "ab", 3);
    seed_begin(&seed, folder, model);
    put_key(&seed, "tokenizer.ggml.model", RN_GGUF_STRING);
    put_text(&seed, model);
    put_key(&seed, "tokenizer.ggml.pre", RN_GGUF_STRING);
    put_text(&seed, pre);
    put_key(&seed, "general.name", RN_GGUF_STRING);
    put_text(&seed, name);
    put_strings(&seed, "tokenizer.ggml.tokens", tokens, 20);
    put_numbers(&seed, "tokenizer.ggml.token_type", RN_GGUF_I32, types, 20);
    put_numbers(&seed, "tokenizer.ggml.scores", RN_GGUF_F32, scores, 20);
    put_strings(&seed, "tokenizer.ggml.merges", merges, 3);
    put_bytes(&seed, "tokenizer.ggml.precompiled_charsmap", map, sizeof map);
    put_id(&seed, "tokenizer.ggml.bos_token_id", 1);
    put_id(&seed, "tokenizer.ggml.unknown_token_id", 0);
    seed_end(&seed, "ab  \xc3\x89"
                    "aB<s>  <mask>\xc3\xa9\n\n\xe4\xb8\x80 \xea\xb0\x80 <dna>acgT</dna>b");
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const pres[] = {
        "default",  "gpt-2",      "llama-bpe",   "qwen2",    "starcoder", "falcon", "deepseek-llm", "deepseek-coder",
        "jais-2",   "exaone-moe", "deepseek-v3", "spark2_5", "afmoe",     "youtu",  "tekken",       "gpt-4o",
        "tiny_aya", "kimi-k2",    "superbpe",    "viking",   "chameleon", "laguna", "k2-horizon"};
    static const char *const models[][3] = {{"t5", "default", "x"},
                                            {"bert", "default", "modern-bert"},
                                            {"rwkv", "default", "phi-3"},
                                            {"plamo3", "default", "x"},
                                            {"plamo2", "jina-v2-code", "x"},
                                            {"gemma4", "default", "x"},
                                            {"whitespace", "whitespace", "phi3"},
                                            {"hybriddna", "default", "x"},
                                            {"llama", "default", "phi-3"}};
    const char *folder = getenv("RUNNEL_FUZZ_SEEDS");
    size_t i;

    (void)argc;
    (void)argv;
    if (folder == NULL)
        return 0;
    for (i = 0; i < sizeof pres / sizeof pres[0]; i++)
        write_bpe(folder, pres[i]);
    for (i = 0; i < sizeof models / sizeof models[0]; i++)
        write_model(folder, models[i][0], models[i][1], models[i][2]);
    write_spm(folder);
    return 0;
}
