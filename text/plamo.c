/* PLaMo-2's tokenizer ("plamo2" in GGUF): of all ways to cut a text into tokens, the one with the least sum of costs,
 * from the text's end to its begin.
 *
 *     cost[n] = 0;  cost[i] = min over tokens text[i..j) of cost[j] - score
 *
 * Scores are whole numbers, 10,000 times those of the file; of equal sums the longest token stays. A character may
 * also stand alone at the score -10^7, and is then the tokens of its bytes; tokens of a score of -2 * 10^7 and less do
 * not take part. (PLaMo's own program finds the tokens at a place in a table of suffixes; here a trie gives the
 * same ones.) */
#include "text/merge.h"

#include "base/utf8.h"

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
