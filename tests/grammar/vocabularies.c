/* Vocabularies of each tokenizer: see vocabularies.h. */
#include "tests/grammar/vocabularies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/text/fixture.h"

/* What tokens stand for: names and values of the grammars, words with spaces in front, pieces of characters. */
static const char *const words[] = {
    "a",     "b",    "ab",     " a",       " ab",      "  ",       " ",        "{\"",       "\":",
    "\",\"", "\"}",  "[",      "],",       "null",     "naïve",    "na",       "ïve",       "größe",
    "tags",  "code", "\":[\"", "päivä",    "日本",     "日",       "本",       "да",        "ё",
    " да",   "нет",  "ко",     "12",       "-5",       "999",      "é",        "éé",        "- ",
    "- a",   "\n",   "\n- ",   "\"\n",     "ß",        " süß",     "über",     "ちょっと",  "カナ",
    "αβγ",   "ωx",   ", ",     "! ",       "😀",        "🦉",     "\xf0\x9f", "\x98\x80",  "\xc3",
    "a\xc3", "\xa9", "\xa9\"", "\xe6\x97", "\xd0\xb4", "\xb4\xd0", "Hello",    " world",    "_",
    "x y z", "...",  "\\",     "\\\"",     "\\n",      "ABC",      "a b",      "the quick", " the",
};

enum { UNKNOWN, END, CONTROL, USER, BYTES, FIRST = BYTES + 256, N_TOKENS = FIRST + COUNT(words) };

const char *const made_vocabularies[N_MADE_VOCABULARIES] = {"llama",  "t5",   "rwkv",     "gemma4",
                                                            "plamo2", "gpt2", "hybriddna"};

struct texts {
    char bytes[N_TOKENS][64];
    int32_t types[N_TOKENS];
    float scores[N_TOKENS];
};

static void put_code(char *out, uint32_t code)
{
    size_t n = strlen(out);

    if (code >= 0x80)
        out[n++] = (char)(0xc0 | code >> 6);
    out[n++] = (char)(code < 0x80 ? code : 0x80 | (code & 63));
    out[n] = '\0';
}

/* GPT-2's letters for bytes: printable ones of Latin 1 are themselves, others follow from U+0100 on. */
static void as_letters(const char *word, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t byte = (unsigned char)word[i], others = 0;
        bool itself = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);

        for (uint32_t b = 0; b < byte; b++)
            others += !((b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad));
        put_code(out, itself ? byte : 0x100 + others);
    }
}

static void as_literal(const char *word, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)word[i];

        out += sprintf(out, byte < 0x20 || byte >= 0x7f || byte == '\\' ? "\\x%02x" : "%c", byte);
    }
}

static void as_blocks(const char *word, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        out += sprintf(out, word[i] == ' ' ? BLOCK : "%c", word[i]);
}

/* How a tokenizer writes a text token. */
static void write_word(const char *tokenizer, const char *word, size_t n, bool byte, char *out)
{
    if (strcmp(tokenizer, "gpt2") == 0 || strcmp(tokenizer, "hybriddna") == 0)
        as_letters(word, n, out);
    else if (strcmp(tokenizer, "rwkv") == 0)
        as_literal(word, n, out);
    else if (byte)
        sprintf(out, "<0x%02X>", (unsigned char)word[0]);
    else if (strcmp(tokenizer, "plamo2") == 0)
        memcpy(out, word, n);
    else
        as_blocks(word, n, out);
}

static void fill(struct texts *t, const char *tokenizer)
{
    bool bytes_are_normal =
        strcmp(tokenizer, "rwkv") == 0 || strcmp(tokenizer, "gpt2") == 0 || strcmp(tokenizer, "hybriddna") == 0;

    strcpy(t->bytes[UNKNOWN], "<unk>");
    strcpy(t->bytes[END], "</s>");
    strcpy(t->bytes[CONTROL], "<mark>");
    strcpy(t->bytes[USER], "[user defined]");
    t->types[UNKNOWN] = RN_TOKEN_UNKNOWN;
    t->types[END] = t->types[CONTROL] = RN_TOKEN_CONTROL;
    t->types[USER] = RN_TOKEN_USER;
    for (uint32_t i = 0; i < 256; i++) {
        write_word(tokenizer, &(char){(char)i}, 1, true, t->bytes[BYTES + i]);
        t->types[BYTES + i] = bytes_are_normal ? RN_TOKEN_NORMAL : RN_TOKEN_BYTE;
        t->scores[BYTES + i] = -20;
    }
    for (uint32_t i = 0; i < COUNT(words); i++) {
        write_word(tokenizer, words[i], strlen(words[i]), false, t->bytes[FIRST + i]);
        t->types[FIRST + i] = RN_TOKEN_NORMAL;
        t->scores[FIRST + i] = -1 - (float)i / 8;
    }
}

static void check(const struct rn_vocab *vocab, const char *tokenizer)
{
    for (uint32_t i = 0; i < 256 + COUNT(words); i++) {
        char byte = (char)i;
        const char *word = i < 256 ? &byte : words[i - 256];
        size_t n = i < 256 ? 1 : strlen(word);
        struct rn_view piece = rn_vocab_piece(vocab, (int32_t)(BYTES + i), false);

        if (piece.n != n || memcmp(piece.bytes, word, n) != 0)
            fail_msg("%s: token %u is '%.*s', not '%.*s'", tokenizer, BYTES + i, (int)piece.n, piece.bytes, (int)n,
                     word);
    }
}

struct rn_vocab *made_vocabulary(struct rn_heap *heap, const char *tokenizer)
{
    struct texts *t = calloc(1, sizeof *t);
    const char *texts[N_TOKENS];
    struct maker maker;
    struct rn_vocab *vocab;

    fill(t, tokenizer);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        texts[i] = t->bytes[i];
    maker_init(&maker);
    maker_string(&maker, KEY "model", tokenizer);
    maker_strings(&maker, KEY "tokens", texts, N_TOKENS);
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, t->types, N_TOKENS, sizeof t->types);
    maker_array(&maker, KEY "scores", RN_GGUF_F32, t->scores, N_TOKENS, sizeof t->scores);
    maker_strings(&maker, KEY "merges", (const char *[]){"a b"}, 1);
    if (strcmp(tokenizer, "hybriddna") == 0 || strcmp(tokenizer, "gpt2") == 0)
        maker_string(&maker, KEY "pre", "qwen2");
    maker_u32(&maker, KEY "eos_token_id", END);
    maker_u32(&maker, KEY "unknown_token_id", UNKNOWN);
    vocab = made(heap, &maker);
    check(vocab, tokenizer);
    free(t);
    return vocab;
}
