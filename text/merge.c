/* Merging the symbols of one word: see merge.h. */
#include "text/merge.h"

#include <string.h>

#include "base/check.h"
#include "base/utf8.h"

/* Up to so many symbols every rank is looked at for each merge; measured, a heap wins only later. */
#define SHORT_WORD 24

/* What is no longer is not taken apart: merging it costs less than looking for a place. */
#define UNCUT_BYTES 6

void rn_scratch_init(struct rn_scratch *scratch, struct rn_heap *heap)
{
    memset(scratch, 0, sizeof *scratch);
    scratch->heap = heap;
}

void rn_scratch_fini(struct rn_scratch *scratch)
{
    rn_free(scratch->heap, scratch->symbols);
    rn_free(scratch->heap, scratch->queue);
    rn_free(scratch->heap, scratch->text);
    rn_free(scratch->heap, scratch->cells);
}

/* Replaces *block by one of at least `want` items; its contents are not kept. */
static bool renew(struct rn_heap *heap, void **block, size_t *room, size_t want, size_t size)
{
    size_t bigger = *room * 2 > want ? *room * 2 : want;

    if (want <= *room)
        return true;
    rn_free(heap, *block);
    *room = 0;
    *block = rn_alloc(heap, bigger, size);
    if (*block == NULL)
        return false;
    *room = bigger;
    return true;
}

bool rn_scratch_text(struct rn_scratch *scratch, size_t bytes)
{
    return renew(scratch->heap, (void **)&scratch->text, &scratch->text_bytes, bytes, 1);
}

bool rn_scratch_grow_text(struct rn_scratch *scratch, size_t n, size_t more)
{
    size_t room = 2 * (n + more) + 64;
    char *text;

    if (more <= scratch->text_bytes - n)
        return true;
    if (more > INT32_MAX || n + more > INT32_MAX)
        return false;
    text = rn_realloc(scratch->heap, scratch->text, room, 1);
    if (text == NULL)
        return false;
    scratch->text = text;
    scratch->text_bytes = room;
    return true;
}

bool rn_scratch_cells(struct rn_scratch *scratch, size_t count, size_t size)
{
    size_t bytes;

    return rn_mul_size(count, size, &bytes) && renew(scratch->heap, &scratch->cells, &scratch->cell_bytes, bytes, 1);
}

bool rn_tokens_reserve(struct rn_tokens *tokens, size_t more)
{
    size_t room = tokens->room + tokens->room / 2 + 16;
    int32_t *ids;

    if (!rn_tokens_wanted(tokens))
        return false;
    if (tokens->room - tokens->n >= more)
        return true;
    if (room - tokens->n < more)
        room = tokens->n + more;
    ids = rn_realloc(tokens->heap, tokens->ids, room, sizeof *ids);
    if (ids == NULL)
        return false;
    tokens->ids = ids;
    tokens->room = room;
    return true;
}

/* The unknown token; SentencePiece's once for a run of unknown characters of a fragment. */
static void push_unknown(const struct rn_vocab *vocab, const struct rn_scratch *scratch, struct rn_tokens *tokens)
{
    bool runs = vocab->model == RN_VOCAB_SPM;

    if (vocab->unknown < 0 || !vocab->by_characters)
        return;
    if (!runs || tokens->n == scratch->first || tokens->ids[tokens->n - 1] != vocab->unknown)
        tokens->ids[tokens->n++] = vocab->unknown;
}

/* What one symbol that is no token costs: its bytes' tokens, or the unknown token, or nothing. Byte-level BPE has no
 * unknown token of its own, and what files name as one may be a control token: a byte without a token is left out. */
static void push_bytes(const struct rn_vocab *vocab, const struct rn_scratch *scratch, const char *bytes, uint32_t n,
                       struct rn_tokens *tokens)
{
    size_t before = tokens->n;
    uint32_t i;

    for (i = 0; i < n; i++) {
        int32_t id = vocab->byte_token[(unsigned char)bytes[i]];

        if (id < 0)
            break;
        tokens->ids[tokens->n++] = id;
    }
    if (i == n)
        return;
    tokens->n = before;
    push_unknown(vocab, scratch, tokens);
}

static inline void rank_pair(const struct rn_vocab *vocab, const char *word, struct rn_symbol *symbols, uint32_t left)
{
    symbols[left].rank = RN_NO_RANK;
    if (symbols[left].next == RN_NO_SYMBOL)
        return;
    if (vocab->scores == NULL)
        rn_bpe_rank(vocab, symbols, left);
    else
        rn_spm_rank(vocab, word, symbols, left);
}

/* Cuts the word into symbols, links and ranks them; returns how many. */
static uint32_t make_symbols(const struct rn_vocab *vocab, const char *word, size_t n, struct rn_symbol *symbols)
{
    bool bytes = !vocab->by_characters;
    uint32_t count = 0;
    uint32_t at = 0;
    uint32_t i;

    while (at < n) {
        struct rn_symbol *symbol = &symbols[count];

        symbol->begin = at;
        symbol->bytes = bytes ? 1 : rn_utf8_length((unsigned char)word[at]);
        symbol->id = bytes ? vocab->byte_token[(unsigned char)word[at]]
                           : rn_token_index_find(&vocab->by_piece, &vocab->pieces, word + at, symbol->bytes);
        RN_CHECK(symbol->bytes > 0);
        symbol->prev = count - 1; /* RN_NO_SYMBOL for the first */
        symbol->next = count + 1;
        at += symbol->bytes;
        count++;
    }
    RN_CHECK(at == n); /* a word begins and ends with a character */
    symbols[count - 1].next = RN_NO_SYMBOL;
    for (i = 0; i < count; i++)
        rank_pair(vocab, word, symbols, i);
    return count;
}

/* Merges symbols[left] with the next one and ranks the two new pairs. */
static void merge_next(const struct rn_vocab *vocab, const char *word, struct rn_symbol *symbols, uint32_t left)
{
    struct rn_symbol *a = &symbols[left];
    struct rn_symbol *b = &symbols[a->next];

    a->id = (int32_t)a->result;
    a->bytes += b->bytes;
    a->next = b->next;
    b->bytes = 0;
    b->rank = RN_NO_RANK;
    if (a->next != RN_NO_SYMBOL)
        symbols[a->next].prev = left;
    rank_pair(vocab, word, symbols, left);
    if (a->prev != RN_NO_SYMBOL)
        rank_pair(vocab, word, symbols, a->prev);
}

static void merge_short(const struct rn_vocab *vocab, const char *word, struct rn_symbol *symbols)
{
    for (;;) {
        uint32_t best = 0;
        uint32_t i;

        for (i = symbols[0].next; i != RN_NO_SYMBOL; i = symbols[i].next) {
            if (symbols[i].rank < symbols[best].rank)
                best = i;
        }
        if (symbols[best].rank == RN_NO_RANK)
            return;
        merge_next(vocab, word, symbols, best);
    }
}

/* A heap with four children to a node: half the levels of two, and the four lie in one line of the cache. */
static void queue_push(uint64_t *queue, size_t *n, uint64_t entry)
{
    size_t i = (*n)++;

    while (i > 0 && queue[(i - 1) / 4] > entry) {
        queue[i] = queue[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    queue[i] = entry;
}

static uint64_t queue_pop(uint64_t *queue, size_t *n)
{
    uint64_t top = queue[0];
    uint64_t last = queue[--*n];
    size_t i = 0;

    for (;;) {
        size_t child = 4 * i + 1, best = child, k;

        if (child >= *n)
            break;
        for (k = child + 1; k < child + 4 && k < *n; k++)
            best = queue[k] < queue[best] ? k : best;
        if (queue[best] >= last)
            break;
        queue[i] = queue[best];
        i = best;
    }
    queue[i] = last;
    return top;
}

static void queue_rank(const struct rn_symbol *symbols, uint32_t i, uint64_t *queue, size_t *n)
{
    if (symbols[i].rank != RN_NO_RANK)
        queue_push(queue, n, (uint64_t)symbols[i].rank << 32 | i);
}

/* queue[2 * count]: one entry per symbol at first, and one more at most for each merge. */
static void merge_long(const struct rn_vocab *vocab, const char *word, struct rn_symbol *symbols, uint32_t count,
                       uint64_t *queue, struct rn_tokens *tokens)
{
    size_t n = 0;
    uint32_t i;

    for (i = 0; i < count; i++)
        queue_rank(symbols, i, queue, &n);
    while (n > 0 && rn_tokens_wanted(tokens)) {
        uint64_t entry = queue_pop(queue, &n);

        i = (uint32_t)entry;
        if (symbols[i].rank != (uint32_t)(entry >> 32))
            continue;
        merge_next(vocab, word, symbols, i);
        queue_rank(symbols, i, queue, &n);
        if (symbols[i].prev != RN_NO_SYMBOL)
            queue_rank(symbols, symbols[i].prev, queue, &n);
    }
}

/* The token of exactly these bytes that has the flag, or -1. */
static int32_t find_token(const struct rn_vocab *vocab, const char *word, size_t n, uint8_t flag)
{
    int32_t id;

    if (n > vocab->longest_normal)
        return -1;
    id = rn_token_index_find(&vocab->by_piece, &vocab->pieces, word, n);
    return id >= 0 && (vocab->flags[id] & flag) ? id : -1;
}

bool rn_merge_symbols(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *word, size_t n,
                      struct rn_tokens *tokens)
{
    struct rn_symbol *symbols;
    uint32_t count, i;

    if (!rn_tokens_reserve(tokens, n) ||
        !renew(scratch->heap, (void **)&scratch->symbols, &scratch->n_symbols, n, sizeof *scratch->symbols))
        return false;
    symbols = scratch->symbols;
    count = make_symbols(vocab, word, n, symbols);
    if (count <= SHORT_WORD) {
        merge_short(vocab, word, symbols);
    } else {
        if (!renew(scratch->heap, (void **)&scratch->queue, &scratch->n_queue, 2 * (size_t)count,
                   sizeof *scratch->queue))
            return false;
        merge_long(vocab, word, symbols, count, scratch->queue, tokens);
    }
    for (i = 0; i != RN_NO_SYMBOL && rn_tokens_wanted(tokens); i = symbols[i].next) {
        if (symbols[i].id >= 0)
            tokens->ids[tokens->n++] = symbols[i].id;
        else
            push_bytes(vocab, scratch, word + symbols[i].begin, symbols[i].bytes, tokens);
    }
    return !tokens->stopped;
}

bool rn_merge_word(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *word, size_t n,
                   struct rn_tokens *tokens)
{
    int32_t id = find_token(vocab, word, n, RN_TOKEN_WHOLE); /* most words are one token */
    size_t at = 0;

    while (id < 0 && at < n) {
        size_t end = n - at > UNCUT_BYTES ? rn_split_points_next(&vocab->cuts, word, at, n) : n;
        int32_t part = end - at < n ? find_token(vocab, word + at, end - at, RN_TOKEN_MERGED) : -1;

        if (part < 0 && !rn_merge_symbols(vocab, scratch, word + at, end - at, tokens))
            return false;
        if (part >= 0) {
            if (!rn_tokens_reserve(tokens, 1))
                return false;
            tokens->ids[tokens->n++] = part;
        }
        at = end;
    }
    if (id >= 0) {
        if (!rn_tokens_reserve(tokens, 1))
            return false;
        tokens->ids[tokens->n++] = id;
    }
    return true;
}
