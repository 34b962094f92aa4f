/* What is derived from a vocabulary's arrays once they are loaded: raw bytes of each token, which
 * words are tokens by themselves, and the bounds. */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "text/merge.h"
#include "text/vocab.h"
#include "text/vocab_impl.h"

/* GPT-2's alphabet: each byte as a printable character. The printable ones of Latin-1 stand for
 * themselves, the other 68 are U+0100 and up in order. */
static bool byte_is_printable(uint32_t b)
{
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
}

/* letters[256]: the code point of each byte. */
static void byte_alphabet(uint32_t letters[256])
{
    uint32_t others = 0x100;
    uint32_t b;

    for (b = 0; b < 256; b++)
        letters[b] = byte_is_printable(b) ? b : others++;
}

/* The bytes that text[n] spells in the alphabet, to out[n]; SIZE_MAX if it is not written in it. */
static size_t spell_bytes(const uint16_t byte_of[0x200], const char *text, size_t n, char *out)
{
    size_t written = 0;
    size_t at = 0;

    while (at < n) {
        uint32_t length = rn_utf8_check_one(text + at, n - at);
        uint32_t c = length > 0 ? rn_utf8_decode(text + at, &length) : 0x200;

        if (c >= 0x200 || byte_of[c] > 0xff)
            return SIZE_MAX;
        out[written++] = (char)byte_of[c];
        at += length;
    }
    return written;
}

static size_t copy(struct rn_view text, char *out)
{
    if (text.n > 0)
        memcpy(out, text.bytes, text.n);
    return text.n;
}

static void invert_alphabet(uint16_t byte_of[0x200])
{
    uint32_t letters[256];
    uint32_t i;

    byte_alphabet(letters);
    memset(byte_of, 0xff, 0x200 * sizeof *byte_of);
    for (i = 0; i < 256; i++)
        byte_of[letters[i]] = (uint16_t)i;
}

#define DNA_MARK "\xee\x80\x80" /* U+E000 */
#define DNA_MARK_BYTES 3

/* A piece of DNA, which has a mark at its end (dna.c). */
static bool is_dna(const struct rn_vocab *vocab, uint32_t id)
{
    struct rn_view text = rn_string(&vocab->texts, id);

    return vocab->dna_other >= 0 && id > (uint32_t)vocab->dna_other && text.n > DNA_MARK_BYTES &&
           memcmp(text.bytes + text.n - DNA_MARK_BYTES, DNA_MARK, DNA_MARK_BYTES) == 0;
}

/* Raw bytes of a token to `out`, never more than its text has. */
static size_t make_piece(const struct rn_vocab *vocab, uint32_t id, const uint16_t byte_of[0x200], char *out)
{
    struct rn_view text = rn_string(&vocab->texts, id);
    size_t n;

    if (vocab->kinds[id] == RN_TOKEN_BYTE) { /* "<0xNN>", checked when it was loaded */
        unsigned high = (unsigned char)text.bytes[3], low = (unsigned char)text.bytes[4];

        out[0] = (char)((high % 32 + (high >= 'A' ? 9 : -16)) * 16 + (low % 32 + (low >= 'A' ? 9 : -16)));
        return 1;
    }
    if (vocab->kinds[id] != RN_TOKEN_NORMAL)
        return copy(text, out);
    if (vocab->blocks)
        return rn_spaces_for_blocks(text.bytes, text.n, out);
    if (vocab->model == RN_VOCAB_RWKV)
        return rn_rwkv_unescape(text, out);
    if (vocab->model != RN_VOCAB_BPE || vocab->by_characters)
        return copy(text, out);
    if (is_dna(vocab, id))
        text.n -= DNA_MARK_BYTES;
    n = spell_bytes(byte_of, text.bytes, text.n, out);
    return n == SIZE_MAX ? copy(text, out) : n;
}

static bool make_pieces(struct rn_vocab *vocab)
{
    uint16_t byte_of[0x200];
    uint64_t at = 0;
    uint32_t i;

    invert_alphabet(byte_of);
    vocab->pieces.at = rn_alloc(vocab->heap, (size_t)vocab->n + 1, sizeof *vocab->pieces.at);
    vocab->pieces.bytes = rn_alloc(vocab->heap, (size_t)vocab->texts.at[vocab->n], 1);
    if (vocab->pieces.at == NULL || vocab->pieces.bytes == NULL)
        return false;
    for (i = 0; i < vocab->n; i++) {
        size_t n = make_piece(vocab, i, byte_of, vocab->pieces.bytes + at);

        vocab->pieces.at[i] = at;
        at += n;
        if (n > vocab->longest_piece)
            vocab->longest_piece = (uint32_t)n;
    }
    vocab->pieces.at[vocab->n] = at;
    return true;
}

/* BPE begins with the token of each byte. */
static void find_byte_tokens(struct rn_vocab *vocab)
{
    uint32_t letters[256];
    uint32_t b;

    byte_alphabet(letters);
    for (b = 0; b < 256; b++) {
        char text[2] = {(char)letters[b], 0};
        size_t n = 1;
        int32_t id;

        if (letters[b] >= 0x80) {
            text[0] = (char)(0xc0 | letters[b] >> 6);
            text[1] = (char)(0x80 | (letters[b] & 0x3f));
            n = 2;
        }
        id = rn_vocab_find(vocab, text, n);
        if (id >= 0 && (vocab->kinds[id] == RN_TOKEN_NORMAL || vocab->kinds[id] == RN_TOKEN_USER))
            vocab->byte_token[b] = id;
    }
}

/* BPE by characters falls back to tokens called <0xNN>, of type byte or normal. */
static void find_named_bytes(struct rn_vocab *vocab)
{
    static const char digits[] = "0123456789ABCDEF";
    uint32_t b;

    for (b = 0; b < 256; b++) {
        const char name[6] = {'<', '0', 'x', digits[b >> 4], digits[b & 15], '>'};
        int32_t id = rn_vocab_find(vocab, name, sizeof name);

        if (vocab->byte_token[b] < 0 && id >= 0 && vocab->kinds[id] == RN_TOKEN_NORMAL)
            vocab->byte_token[b] = id;
    }
}

static bool has_inner_space(struct rn_view piece)
{
    size_t i;

    for (i = 1; i < piece.n; i++) {
        if (piece.bytes[i] == ' ' && piece.bytes[i - 1] != ' ')
            return true;
    }
    return false;
}

static runnel_status index_pieces(struct rn_vocab *vocab, runnel_error *error)
{
    uint32_t i;

    if (!rn_token_index_init(&vocab->by_piece, vocab->heap, vocab->n) ||
        !rn_split_points_init(&vocab->cuts, vocab->heap, vocab->n))
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the vocabulary");
    for (i = 0; i < vocab->n; i++) {
        struct rn_view piece = rn_string(&vocab->pieces, i);

        if (vocab->kinds[i] != RN_TOKEN_NORMAL || piece.n == 0 || is_dna(vocab, i))
            continue;
        if (!rn_token_index_add(&vocab->by_piece, &vocab->pieces, i))
            return rn_error_set(error, RUNNEL_FORMAT,
                                "tokenizer.ggml.tokens: the texts crowd one place of a hash table");
        if (piece.n > vocab->longest_normal)
            vocab->longest_normal = (uint32_t)piece.n;
        vocab->inner_space = vocab->inner_space || has_inner_space(piece);
        rn_split_points_add(&vocab->cuts, piece);
    }
    return RUNNEL_OK;
}

/* Tokens that merging can make, though they are not looked up as pieces: user-defined ones, whose piece is their text
 * as it stands, and DNA. Their places count too (split_points.h). */
static bool add_other_cuts(struct rn_vocab *vocab)
{
    char *bytes = rn_alloc(vocab->heap, RN_TOKEN_MAX_BYTES, 1);
    uint16_t byte_of[0x200];
    uint32_t i;

    invert_alphabet(byte_of);
    for (i = 0; i < vocab->n && bytes != NULL; i++) {
        struct rn_view text = rn_string(&vocab->texts, i);
        size_t n;

        if (vocab->kinds[i] != RN_TOKEN_USER && !is_dna(vocab, i))
            continue;
        if (vocab->by_characters)
            n = vocab->blocks ? rn_spaces_for_blocks(text.bytes, text.n, bytes) : copy(text, bytes);
        else
            n = spell_bytes(byte_of, text.bytes, text.n, bytes);
        if (n != SIZE_MAX)
            rn_split_points_add(&vocab->cuts, (struct rn_view){bytes, n});
    }
    rn_free(vocab->heap, bytes);
    return bytes != NULL;
}

/* Longest piece that is tried as a whole word; longer ones go the long way. */
#define WHOLE_MAX_BYTES 256

/* Marks the tokens that merging (or Unigram's search) makes of their pieces, and those whose piece, as a word,
 * becomes just them. */
static bool mark_whole(struct rn_vocab *vocab)
{
    struct rn_scratch scratch;
    struct rn_tokens tokens = {.heap = vocab->heap};
    bool always = vocab->pre != NULL && (vocab->pre->flags & RN_PRE_WHOLE_WORDS);
    bool unigram = vocab->model == RN_VOCAB_UNIGRAM;
    bool fits = true;
    uint32_t i;

    rn_scratch_init(&scratch, vocab->heap);
    for (i = 0; i < vocab->n && fits; i++) {
        struct rn_view piece = rn_string(&vocab->pieces, i);

        if (vocab->kinds[i] != RN_TOKEN_NORMAL || piece.n == 0 || piece.n > WHOLE_MAX_BYTES)
            continue;
        if (unigram && piece.bytes[0] != ' ')
            continue; /* most texts are taken apart at spaces */
        if ((vocab->by_characters || unigram) && !rn_utf8_valid(piece.bytes, piece.n))
            continue;
        tokens.n = 0;
        fits = unigram ? rn_unigram_cut(vocab, &scratch, piece.bytes, piece.n, &tokens)
                       : rn_merge_symbols(vocab, &scratch, piece.bytes, piece.n, &tokens);
        if (fits && tokens.n == 1 && tokens.ids[0] == (int32_t)i)
            vocab->flags[i] |= RN_TOKEN_MERGED | RN_TOKEN_WHOLE;
        if (always)
            vocab->flags[i] |= RN_TOKEN_WHOLE;
    }
    rn_scratch_fini(&scratch);
    rn_free(vocab->heap, tokens.ids);
    return fits;
}

/* A byte costs one token at most; a special token of one byte brings the space in front of the next
 * fragment along; a character map makes more bytes of fewer; U+023A and U+023E have three bytes for two in lower case,
 * which counts where a character can become its bytes. */
static void find_bounds(struct rn_vocab *vocab)
{
    vocab->bytes_to_tokens = vocab->charsmap.longest > 1 ? vocab->charsmap.longest : 1;
    vocab->bytes_to_tokens += vocab->lower_case && vocab->by_characters;
    vocab->bytes_to_tokens += vocab->space_prefix && vocab->special.shortest_bytes == 1;
    if (vocab->longest_piece == 0)
        vocab->longest_piece = 1;
}

/* The tokens that text can become, in a trie. For models that go from character to character, those that are whole
 * characters. */
static runnel_status build_trie(struct rn_vocab *vocab, runnel_error *error)
{
    uint32_t *ids = rn_alloc(vocab->heap, vocab->n, sizeof *ids);
    uint32_t count = 0, i;
    bool fits = ids != NULL;

    for (i = 0; i < vocab->n && fits; i++) {
        struct rn_view piece = rn_string(&vocab->pieces, i);

        if ((vocab->kinds[i] != RN_TOKEN_NORMAL && vocab->kinds[i] != RN_TOKEN_USER) || piece.n == 0)
            continue;
        if (vocab->model != RN_VOCAB_RWKV && !rn_utf8_valid(piece.bytes, piece.n))
            continue;
        vocab->inner_space = vocab->inner_space || has_inner_space(piece);
        ids[count++] = i;
    }
    fits = fits && rn_trie_init(&vocab->trie, vocab->heap, &vocab->pieces, ids, count);
    rn_free(vocab->heap, ids);
    return fits ? RUNNEL_OK : rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the vocabulary");
}

/* Unigram: an unknown character costs more than the worst token. */
static void find_unknown_score(struct rn_vocab *vocab)
{
    double least = 0;
    bool any = false;
    uint32_t i;

    for (i = 0; i < vocab->n; i++) {
        if (vocab->kinds[i] != RN_TOKEN_NORMAL || (any && vocab->scores[i] >= least))
            continue;
        least = vocab->scores[i];
        any = true;
    }
    vocab->unknown_score = least - 10; /* SentencePiece's penalty */
}

/* PLaMo: whole numbers, 10^4 times the scores; PLaMo's own bound for one that is none below. */
static bool make_whole_scores(struct rn_vocab *vocab)
{
    uint32_t i;

    vocab->whole_scores = rn_alloc(vocab->heap, vocab->n, sizeof *vocab->whole_scores);
    if (vocab->whole_scores == NULL)
        return false;
    for (i = 0; i < vocab->n; i++) {
        double score = round(vocab->scores[i] * 1e4);

        vocab->whole_scores[i] = (int32_t)(score < -2e7 ? -2e7 : score > 1e9 ? 1e9 : score);
    }
    return true;
}

static bool has_all_bytes(const struct rn_vocab *vocab)
{
    int i;

    for (i = 0; i < 256; i++) {
        if (vocab->byte_token[i] < 0)
            return false;
    }
    return true;
}

/* The tables of one model or the other. */
static runnel_status build_model(struct rn_vocab *vocab, runnel_error *error)
{
    runnel_status status;

    vocab->all_bytes = has_all_bytes(vocab);
    if (vocab->model == RN_VOCAB_UNIGRAM)
        find_unknown_score(vocab);
    if (vocab->model == RN_VOCAB_PLAMO && !make_whole_scores(vocab))
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the vocabulary");
    if (vocab->model != RN_VOCAB_BPE && vocab->model != RN_VOCAB_SPM)
        status = build_trie(vocab, error);
    else
        status = index_pieces(vocab, error);
    if (status != RUNNEL_OK || (vocab->model != RN_VOCAB_UNIGRAM && vocab->cuts.bits == NULL))
        return status;
    if ((vocab->cuts.bits != NULL && !add_other_cuts(vocab)) || !mark_whole(vocab))
        status = rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the vocabulary");
    return status;
}

runnel_status rn_vocab_build(struct rn_vocab *vocab, runnel_error *error)
{
    runnel_status status;

    if (vocab->model == RN_VOCAB_BPE && !vocab->by_characters)
        find_byte_tokens(vocab);
    else if (vocab->model == RN_VOCAB_BPE)
        find_named_bytes(vocab);
    if (!make_pieces(vocab))
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the vocabulary");
    status = build_model(vocab, error);
    if (status != RUNNEL_OK)
        return status;
    if (!rn_special_init(&vocab->special, vocab->heap, &vocab->texts, vocab->kinds, vocab->n))
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the vocabulary");
    find_bounds(vocab);
    return RUNNEL_OK;
}
