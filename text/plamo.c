/* PLaMo-2's tokenizer ("plamo2" in GGUF): of all ways to cut a text into tokens, the one with the least sum of costs,
 * from the text's end to its begin.
 *
 *     cost[n] = 0;  cost[i] = min over tokens text[i..j) of cost[j] - score
 *
 * Scores are whole numbers, 10,000 times those of the file; of equal sums the longest token stays. A character may
 * also stand alone at the score -10^7, and is then the tokens of its bytes; tokens of a score of -2 * 10^7 and less do
 * not take part. (PLaMo's own program finds the tokens at a place in a table of suffixes; here a trie gives the
 * same ones.)
 *
 * PLaMo-3's ("plamo3") does that to segments of the text, each by itself. A text is cut before and behind
 *
 *     <|plamo:NAME|>   a NAME of at most 64 characters, none of them white space
 *     a run            of four and more times the same character, no newline, or of two and more spaces
 *     U+EE00           which is left out
 */
#include "text/merge.h"

#include <string.h>

#include "base/utf8.h"
#include "text/unicode.h"

#define UNKNOWN_SCORE -10000000
#define INVALID_SCORE -20000000

struct cell {
    int64_t cost;   /* of the best way from here to the end */
    uint32_t bytes; /* of its first token */
    int32_t token;  /* -1: a character as bytes */
};

/* The best first step from text + at. */
static void find_best(const struct rn_vocab *vocab, const char *text, size_t at, size_t n, struct cell *cells)
{
    uint32_t length = rn_utf8_length((unsigned char)text[at]);
    struct cell best = {INT64_MAX, length, -1};
    uint32_t node = 0;
    size_t i;

    for (i = at; i < n && (node = rn_trie_step(&vocab->trie, node, (unsigned char)text[i])) != 0; i++) {
        int32_t id = rn_trie_value(&vocab->trie, node);
        int64_t score = id >= 0 ? vocab->whole_scores[id] : INVALID_SCORE;

        if (score > INVALID_SCORE && cells[i + 1].cost - score <= best.cost)
            best = (struct cell){cells[i + 1].cost - score, (uint32_t)(i + 1 - at), id};
    }
    if (cells[at + length].cost - UNKNOWN_SCORE < best.cost)
        best = (struct cell){cells[at + length].cost - UNKNOWN_SCORE, length, -1};
    cells[at] = best;
}

static bool push_character(const struct rn_vocab *vocab, const char *text, uint32_t length, struct rn_tokens *tokens)
{
    size_t before = tokens->n;
    uint32_t i;

    if (!rn_tokens_reserve(tokens, length))
        return false;
    for (i = 0; i < length; i++) {
        if (vocab->byte_token[(unsigned char)text[i]] < 0)
            break;
        tokens->ids[tokens->n++] = vocab->byte_token[(unsigned char)text[i]];
    }
    if (i < length) {
        tokens->n = before;
        if (vocab->unknown >= 0)
            tokens->ids[tokens->n++] = vocab->unknown;
    }
    return true;
}

bool rn_plamo_encode(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                     bool after_special, struct rn_tokens *tokens)
{
    struct cell *cells;
    size_t at;

    (void)after_special;
    if (!rn_scratch_cells(scratch, n + 1, sizeof *cells))
        return false;
    cells = scratch->cells;
    cells[n].cost = 0;
    for (at = n; at-- > 0;) {
        if (!rn_tokens_wanted(tokens))
            return false;
        if (((unsigned char)text[at] & 0xc0) != 0x80)
            find_best(vocab, text, at, n, cells);
    }
    for (at = 0; at < n; at += cells[at].bytes) {
        if (cells[at].token < 0 && !push_character(vocab, text + at, cells[at].bytes, tokens))
            return false;
        if (cells[at].token >= 0) {
            if (!rn_tokens_reserve(tokens, 1))
                return false;
            tokens->ids[tokens->n++] = cells[at].token;
        }
    }
    return true;
}

/* ---- PLaMo-3 ------------------------------------------------------------------------------ */

#define MOST_NAME 64
#define BOUNDARY 0xee00

/* The end of the <|plamo:NAME|> at text + at; 0: there is none. */
static size_t name_end(const char *text, size_t at, size_t n)
{
    static const char before[] = "<|plamo:";
    size_t i = at + sizeof before - 1;
    uint32_t length;

    if (n - at < sizeof before - 1 || memcmp(text + at, before, sizeof before - 1) != 0)
        return 0;
    for (int k = 0; k < MOST_NAME && i < n && text[i] != '|'; k++, i += length) {
        uint32_t c = rn_utf8_decode(text + i, &length);

        if ((c >= 0x1c && c <= 0x1f) || (rn_char_class(c) & RN_CHAR_SPACE))
            return 0;
    }
    return n - i >= 2 && text[i] == '|' && text[i + 1] == '>' ? i + 2 : 0;
}

/* A text and the name in it that was found last. */
struct segments {
    const char *text;
    size_t n, begin, end; /* of the name; SIZE_MAX: there are no more */
};

static void find_name(struct segments *s, size_t from)
{
    const char *found;

    while (from < s->n && (found = memchr(s->text + from, '<', s->n - from)) != NULL) {
        s->begin = (size_t)(found - s->text);
        s->end = name_end(s->text, s->begin, s->n);
        if (s->end > 0)
            return;
        from = s->begin + 1;
    }
    s->begin = s->end = SIZE_MAX;
}

/* Does a name begin or end there? Places ascend, but for those of the last run. */
static bool is_cut(struct segments *s, size_t at)
{
    while (s->end < at)
        find_name(s, s->end);
    return at == s->begin || at == s->end;
}

/* The end of the run that begins at `at`, and how many characters it has. */
static size_t run_end(struct segments *s, size_t at, size_t *count)
{
    uint32_t length, other;
    uint32_t c = rn_utf8_decode(s->text + at, &length);
    size_t end = at + length;

    for (*count = 1; end < s->n && !is_cut(s, end) && rn_utf8_decode(s->text + end, &other) == c; ++*count)
        end += length;
    return end;
}

/* The end of the segment that begins at `at`; `at`: there is a U+EE00. */
static size_t segment_end(struct segments *s, size_t at)
{
    size_t end = at, stop, count;
    uint32_t length;

    while (end < s->n) {
        uint32_t c = rn_utf8_decode(s->text + end, &length);

        if (c == BOUNDARY || (end > at && is_cut(s, end)))
            return end;
        stop = run_end(s, end, &count);
        if ((c != '\n' && count >= 4) || (c == ' ' && count >= 2))
            return end > at ? end : stop;
        end = stop;
    }
    return end;
}

bool rn_plamo3_encode(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                      bool after_special, struct rn_tokens *tokens)
{
    struct segments s = {.text = text, .n = n};
    size_t at = 0, end;

    find_name(&s, 0);
    for (; at < n; at = end) {
        end = segment_end(&s, at);
        if (end > at && !rn_plamo_encode(vocab, scratch, text + at, end - at, after_special, tokens))
            return false;
        if (end == at)
            end += rn_utf8_length((unsigned char)text[at]);
    }
    return true;
}
