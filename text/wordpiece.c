/* WordPiece ("bert" in GGUF): BERT's basic tokenizer cuts a text into words, and each word into the longest tokens
 * from its left (Devlin et al. 2018; the details are those of Hugging Face's BertNormalizer and WordPiece, which the
 * models were made with).
 *
 *     text --> controls out, CJK characters apart --> accents off, lower case --> words and signs --> longest tokens
 *
 * GGUF stores a token that begins a word with U+2581 in front, and one that continues it without BERT's "##"; here
 * U+2581 is a space, so that a word is its characters behind a space. A word that has no tokens, or more than a
 * hundred characters, is the unknown token. */
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/merge.h"
#include "text/unicode.h"

/* Hugging Face's max_input_chars_per_word. */
#define MAX_CHARACTERS 100
/* Code points of the longest canonical decomposition of one: 4. */
#define MAX_PARTS 8

struct word {
    const struct rn_vocab *vocab;
    struct rn_tokens *tokens;
    char bytes[1 + 4 * (MAX_CHARACTERS + 1)]; /* a space, then characters */
    uint32_t n;
    uint32_t characters; /* more than MAX_CHARACTERS: too long */
};

/* Bytes of the longest token from bytes[at..n): its id, or -1; *end where it ends. From 0 it must be longer than
 * the space. */
static int32_t longest_token(const struct word *word, uint32_t at, uint32_t *end)
{
    const struct rn_trie *trie = &word->vocab->trie;
    int32_t best = -1;
    uint32_t node = 0, i;

    for (i = at; i < word->n && (node = rn_trie_step(trie, node, (unsigned char)word->bytes[i])) != 0; i++) {
        if (rn_trie_value(trie, node) >= 0 && i > 0) {
            best = rn_trie_value(trie, node);
            *end = i + 1;
        }
    }
    return best;
}

/* Ends the word, if there is one. False: memory was refused. */
static bool flush(struct word *word)
{
    struct rn_tokens *tokens = word->tokens;
    size_t first = tokens->n;
    uint32_t at = 0;
    int32_t id = 0;

    if (word->characters == 0)
        return true;
    if (!rn_tokens_reserve(tokens, word->characters))
        return false;
    while (id >= 0 && at < word->n) {
        id = word->characters > MAX_CHARACTERS ? -1 : longest_token(word, at, &at);
        if (id >= 0)
            tokens->ids[tokens->n++] = id;
    }
    if (id < 0) {
        tokens->n = first;
        if (word->vocab->unknown >= 0)
            tokens->ids[tokens->n++] = word->vocab->unknown;
    }
    word->n = 1;
    word->characters = 0;
    return true;
}

static void append(struct word *word, uint32_t c)
{
    if (word->characters >= MAX_CHARACTERS) {
        word->characters = MAX_CHARACTERS + 1;
        return;
    }
    word->n += (uint32_t)rn_utf8_encode(c, word->bytes + word->n);
    word->characters++;
}

/* The CJK blocks that BERT takes for words of one character. (The third extension's begin is Hugging Face's.) */
static bool is_cjk(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
           (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

/* A character after accents and case: white space ends a word, a sign is one by itself. */
static bool take(struct word *word, uint32_t c)
{
    uint16_t class = rn_char_class(c);

    if (class & (RN_CHAR_LETTER | RN_CHAR_NUMBER)) {
        append(word, c);
        return true;
    }
    if (class & RN_CHAR_SPACE)
        return flush(word);
    if ((class & RN_CHAR_PUNCT) || (c < 0x80 && (class & RN_CHAR_SYMBOL))) {
        if (!flush(word))
            return false;
        append(word, c);
        return flush(word);
    }
    append(word, c);
    return true;
}

static bool take_lower(struct word *word, uint32_t c)
{
    if (!word->vocab->lower_case)
        return take(word, c);
    if (c == 0x130) /* the one character whose lower case is two */
        return take(word, 'i') && take(word, 0x307);
    return take(word, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

/* A character beyond ASCII. */
static bool take_far(struct word *word, uint32_t c)
{
    utf8proc_int32_t parts[MAX_PARTS];
    utf8proc_ssize_t n, i;
    int boundary = 0;

    if (!word->vocab->strip_accents)
        return take_lower(word, c);
    n = utf8proc_decompose_char((utf8proc_int32_t)c, parts, MAX_PARTS, UTF8PROC_DECOMPOSE, &boundary);
    if (n < 1 || n > MAX_PARTS)
        return take_lower(word, c);
    for (i = 0; i < n; i++) {
        if (rn_char_class((uint32_t)parts[i]) == RN_CHAR_MN)
            continue;
        if (!take_lower(word, (uint32_t)parts[i]))
            return false;
    }
    return true;
}

/* One character of the text as it stands. */
static bool take_raw(struct word *word, uint32_t c)
{
    bool fits = true;

    if (c < 0x80) {
        if ((rn_char_class(c) & RN_CHAR_CONTROL) || c == 0xb || c == 0xc) /* two are white space by Unicode alone */
            return true;
        return take(word, word->vocab->lower_case && c - 'A' < 26 ? c | 0x20 : c);
    }
    if (c >= 0x4e00 && c <= 0x9fff) { /* CJK that nothing changes */
        fits = flush(word);
        append(word, c);
        return fits && flush(word);
    }
    if (c == 0x85 || c == 0xfffd || (rn_char_class(c) & RN_CHAR_CONTROL))
        return true;
    if (is_cjk(c))
        fits = flush(word);
    fits = fits && take_far(word, c);
    if (is_cjk(c))
        fits = fits && flush(word);
    return fits;
}

bool rn_wordpiece_encode(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                         bool after_special, struct rn_tokens *tokens)
{
    struct word word = {.vocab = vocab, .tokens = tokens, .bytes = " ", .n = 1};
    size_t at = 0;

    (void)scratch;
    (void)after_special;
    while (at < n) {
        uint32_t length;
        uint32_t c = rn_utf8_decode(text + at, &length);

        if (!take_raw(&word, c))
            return false;
        at += length;
    }
    return flush(&word);
}
