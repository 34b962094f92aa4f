/* SentencePiece's Unigram model ("t5" in GGUF): of all ways to cut a text into tokens, the one whose scores have the
 * greatest sum (Kudo 2018), by Viterbi's algorithm over the bytes of the text, forward, one walk of the trie of
 * tokens from each character:
 *
 *     best[0] = 0;  best[j] = max over tokens text[i..j) of best[i] + score
 *
 * Of equal sums the one found first stays. A character that is no token by itself may also be unknown, at the score of
 * the worst token less 10. Before that the text is normalised: characters are replaced by the character map, runs
 * of spaces become one and those at the ends go (where the model says so), a space is put in front. As everywhere
 * here, real spaces stand for U+2581.
 *
 * Where no token has a space after something else, the text is taken apart at spaces and each part is cut alone:
 * sums stay small and the table of a part stays in the cache. */
#include "text/merge.h"

#include <float.h>
#include <string.h>

#include "base/utf8.h"

struct cell {
    double score;   /* of the best way to here */
    uint32_t bytes; /* of its last token */
    int32_t token;  /* -1: an unknown character */
};

/* ---- Normalising -------------------------------------------------------------------------- */

struct writer {
    struct rn_scratch *scratch;
    size_t n;
};

/* Appends bytes, with a space for each U+2581. False: refused. */
static bool put(struct writer *writer, const char *bytes, size_t n)
{
    if (!rn_scratch_grow_text(writer->scratch, writer->n, n))
        return false;
    if (n == 1) {
        writer->scratch->text[writer->n++] = bytes[0];
        return true;
    }
    writer->n += rn_spaces_for_blocks(bytes, n, writer->scratch->text + writer->n);
    return true;
}

/* The first character of text[n] or what the map has for what begins there; returns the bytes that it stands for. */
static size_t normal_prefix(const struct rn_vocab *vocab, const char *text, size_t n, struct rn_view *out)
{
    size_t bytes = rn_charsmap_match(&vocab->charsmap, text, n, out);
    uint32_t length;

    if (bytes > 0)
        return bytes;
    rn_utf8_decode(text, &length);
    *out = (struct rn_view){text, length};
    return length;
}

/* text[n] as the model sees it, into scratch->text. False: refused. */
static bool normalise(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                      size_t *written)
{
    struct writer writer = {scratch, 0};
    bool after_space = vocab->squeeze_spaces;
    struct rn_view part;
    size_t at = 0;

    *written = 0;
    while (vocab->squeeze_spaces && at < n) {
        size_t bytes = normal_prefix(vocab, text + at, n - at, &part);

        if (part.n != 1 || part.bytes[0] != ' ')
            break;
        at += bytes;
    }
    if (at < n && vocab->space_prefix && !put(&writer, " ", 1))
        return false;
    while (at < n) {
        at += normal_prefix(vocab, text + at, n - at, &part);
        for (; after_space && part.n > 0 && part.bytes[0] == ' '; part.n--)
            part.bytes++;
        if (part.n == 0)
            continue;
        if (!put(&writer, part.bytes, part.n))
            return false;
        after_space = vocab->squeeze_spaces && part.bytes[part.n - 1] == ' ';
    }
    while (vocab->squeeze_spaces && writer.n > 0 && scratch->text[writer.n - 1] == ' ')
        writer.n--;
    *written = writer.n;
    return true;
}

/* ---- Cutting ------------------------------------------------------------------------------ */

static void offer(struct cell *cell, double score, uint32_t bytes, int32_t token)
{
    if (score > cell->score)
        *cell = (struct cell){score, bytes, token};
}

/* All tokens that begin at text + at. */
static void extend(const struct rn_vocab *vocab, const char *text, size_t at, size_t n, struct cell *cells)
{
    uint32_t length = rn_utf8_length((unsigned char)text[at]);
    double score = cells[at].score;
    bool alone = false;
    uint32_t node = 0;
    size_t i;

    for (i = at; i < n && (node = rn_trie_step(&vocab->trie, node, (unsigned char)text[i])) != 0; i++) {
        int32_t id = rn_trie_value(&vocab->trie, node);

        if (id < 0)
            continue;
        alone = alone || i + 1 - at == length;
        offer(&cells[i + 1], score + (vocab->kinds[id] == RN_TOKEN_USER ? 0.0 : (double)vocab->scores[id]),
              (uint32_t)(i + 1 - at), id);
    }
    if (!alone)
        offer(&cells[at + length], score + vocab->unknown_score, length, -1);
}

/* Appends the tokens of the best way to cells[n], and of unknown characters their bytes, or one unknown token for a
 * run of them. The way is known from its end: it is counted, then written backwards. */
static bool take_best(const struct rn_vocab *vocab, const struct cell *cells, const char *text, size_t n,
                      struct rn_tokens *tokens)
{
    size_t first = tokens->n, at, i;

    if (!rn_tokens_reserve(tokens, n))
        return false;
    for (at = n; at > 0; at -= cells[at].bytes) {
        if (cells[at].token >= 0) {
            tokens->ids[tokens->n++] = cells[at].token;
            continue;
        }
        for (i = at; i > at - cells[at].bytes && vocab->all_bytes; i--)
            tokens->ids[tokens->n++] = vocab->byte_token[(unsigned char)text[i - 1]];
        if (!vocab->all_bytes && vocab->unknown >= 0 &&
            (tokens->n == first || tokens->ids[tokens->n - 1] != vocab->unknown))
            tokens->ids[tokens->n++] = vocab->unknown;
    }
    for (i = 0; i < (tokens->n - first) / 2; i++) {
        int32_t id = tokens->ids[first + i];

        tokens->ids[first + i] = tokens->ids[tokens->n - 1 - i];
        tokens->ids[tokens->n - 1 - i] = id;
    }
    return true;
}

/* The token that text[n] is by itself, if it is known that no other way is better; or -1. Most words are one. */
static int32_t whole(const struct rn_vocab *vocab, const char *text, size_t n)
{
    uint32_t node = 0;
    int32_t id;
    size_t i;

    for (i = 0; i < n; i++) {
        node = rn_trie_step(&vocab->trie, node, (unsigned char)text[i]);
        if (node == 0)
            return -1;
    }
    id = rn_trie_value(&vocab->trie, node);
    return id >= 0 && (vocab->flags[id] & RN_TOKEN_WHOLE) ? id : -1;
}

bool rn_unigram_cut(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                    struct rn_tokens *tokens)
{
    size_t before = tokens->n, at, i;
    struct cell *cells;
    int32_t id = whole(vocab, text, n);

    if (id >= 0) {
        if (!rn_tokens_reserve(tokens, 1))
            return false;
        tokens->ids[tokens->n++] = id;
        return true;
    }
    if (!rn_scratch_cells(scratch, n + 1, sizeof *cells))
        return false;
    cells = scratch->cells;
    for (i = 0; i <= n; i++)
        cells[i] = (struct cell){-DBL_MAX, 0, -1};
    cells[0].score = 0;
    for (at = 0; at < n && rn_tokens_wanted(tokens); at += rn_utf8_length((unsigned char)text[at]))
        extend(vocab, text, at, n, cells);
    if (!take_best(vocab, cells, text, n, tokens))
        return false;
    if (before > scratch->first && tokens->n > before && !vocab->all_bytes && vocab->unknown >= 0 &&
        tokens->ids[before] == vocab->unknown && tokens->ids[before - 1] == vocab->unknown) {
        memmove(tokens->ids + before, tokens->ids + before + 1, (tokens->n - before - 1) * sizeof *tokens->ids);
        tokens->n--; /* a run of unknown characters went on over the cut */
    }
    return true;
}

bool rn_unigram_encode(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                       bool after_special, struct rn_tokens *tokens)
{
    size_t at = 0;

    (void)after_special; /* a fragment always begins a text or follows a special token */
    if (!normalise(vocab, scratch, text, n, &n))
        return false;
    scratch->first = tokens->n;
    while (at < n) {
        size_t end = rn_part_end(vocab, scratch->text, at, n);

        if (!rn_unigram_cut(vocab, scratch, scratch->text + at, end - at, tokens))
            return false;
        at = end;
    }
    return true;
}
