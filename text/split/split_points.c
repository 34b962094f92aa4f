/* Where a word can be taken apart before it is merged: see split_points.h. */
#include "text/split/split_points.h"

#include <string.h>

#include "base/utf8.h"

#define LEAST_LOG 12
#define MOST_LOG 20 /* 128 KiB: vocabularies of 250,000 tokens have about 35,000 pairs */

/* In the place of a character's bytes: any, and a pair of bytes. No character has these bytes. */
#define ANY UINT32_MAX
#define BYTES (UINT32_MAX - 1)

bool rn_split_points_init(struct rn_split_points *cuts, struct rn_heap *heap, uint32_t tokens)
{
    uint32_t log = LEAST_LOG;

    while (log < MOST_LOG && (1u << log) / 16 < tokens)
        log++;
    cuts->shift = 64 - log;
    cuts->parts = false;
    cuts->bits = rn_calloc(heap, (size_t)1 << log >> 6, sizeof *cuts->bits);
    return cuts->bits != NULL;
}

void rn_split_points_fini(struct rn_split_points *cuts, struct rn_heap *heap)
{
    rn_free(heap, cuts->bits);
    cuts->bits = NULL;
}

/* Place of a pair in the filter. The multiplier is 2^64 over the golden ratio (Knuth 6.4). */
static inline uint64_t slot(const struct rn_split_points *cuts, uint32_t left, uint32_t right)
{
    uint64_t h = (uint64_t)left * 0x9e3779b97f4a7c15u ^ right;

    h ^= h >> 32;
    return h * 0x9e3779b97f4a7c15u >> cuts->shift;
}

static inline bool has(const struct rn_split_points *cuts, uint32_t left, uint32_t right)
{
    uint64_t i = slot(cuts, left, right);

    return (cuts->bits[i >> 6] >> (i & 63) & 1) != 0;
}

static void add(struct rn_split_points *cuts, uint32_t left, uint32_t right)
{
    uint64_t i = slot(cuts, left, right);

    cuts->bits[i >> 6] |= (uint64_t)1 << (i & 63);
}

static bool continues(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* The bytes of a character, which are no more than four, as a number. */
static inline uint32_t packed(const char *bytes, size_t n)
{
    uint32_t character = 0;
    size_t i;

    for (i = 0; i < n; i++)
        character = character << 8 | (unsigned char)bytes[i];
    return character;
}

void rn_split_points_add(struct rn_split_points *cuts, struct rn_view piece)
{
    size_t left = 0, at, right;

    for (at = 1; at < piece.n; at++) {
        uint32_t length = rn_utf8_length((unsigned char)piece.bytes[left]);
        bool left_whole, right_whole;

        if (continues(piece.bytes[at]))
            continue;
        for (right = at + 1; right < piece.n && continues(piece.bytes[right]);)
            right++;
        left_whole = at - left == length;
        length = rn_utf8_length((unsigned char)piece.bytes[at]);
        right_whole = right - at == length;
        cuts->parts = cuts->parts || !left_whole || !right_whole;
        if (left_whole || right_whole)
            add(cuts, left_whole ? packed(piece.bytes + left, at - left) : ANY,
                right_whole ? packed(piece.bytes + at, right - at) : ANY);
        else
            add(cuts, BYTES, packed((const char[2]){piece.bytes[at - 1], piece.bytes[at]}, 2));
        left = at;
    }
}

size_t rn_split_points_next(const struct rn_split_points *cuts, const char *text, size_t at, size_t n)
{
    uint32_t length = rn_utf8_length((unsigned char)text[at]);
    uint32_t left = packed(text + at, length);

    for (at += length; at < n; at += length) {
        uint32_t right;

        length = rn_utf8_length((unsigned char)text[at]);
        right = packed(text + at, length);
        if (!has(cuts, left, right) &&
            (!cuts->parts || (!has(cuts, ANY, right) && !has(cuts, left, ANY) &&
                              !has(cuts, BYTES, packed((const char[2]){text[at - 1], text[at]}, 2)))))
            return at;
        left = right;
    }
    return n;
}
