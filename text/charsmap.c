/* SentencePiece's precompiled character map: see charsmap.h. */
#include "text/charsmap.h"

#include <string.h>

#include "base/utf8.h"

static size_t longest_string(const char *strings, size_t n)
{
    size_t longest = 0, at = 0;

    while (at < n) {
        size_t length = strlen(strings + at);

        longest = length > longest ? length : longest;
        at += length + 1;
    }
    return longest;
}

runnel_status rn_charsmap_init(struct rn_charsmap *map, struct rn_heap *heap, const char *blob, size_t n,
                               runnel_error *error)
{
    uint32_t bytes;

    memset(map, 0, sizeof *map);
    if (n == 0)
        return RUNNEL_OK;
    if (n < sizeof bytes)
        return rn_error_set(error, RUNNEL_FORMAT, "tokenizer.ggml.precompiled_charsmap: %zu bytes", n);
    memcpy(&bytes, blob, sizeof bytes);
    if (bytes % 4 != 0 || bytes == 0 || bytes >= n - sizeof bytes || blob[n - 1] != '\0')
        return rn_error_set(error, RUNNEL_FORMAT,
                            "tokenizer.ggml.precompiled_charsmap: a trie of %u bytes and strings in %zu", bytes, n);
    map->n_strings = n - sizeof bytes - bytes;
    map->units = rn_alloc(heap, bytes, 1);
    map->strings = rn_alloc(heap, map->n_strings, 1);
    if (map->units == NULL || map->strings == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the character map");
    memcpy(map->units, blob + sizeof bytes, bytes);
    memcpy(map->strings, blob + sizeof bytes + bytes, map->n_strings);
    if (!rn_utf8_valid(map->strings, map->n_strings))
        return rn_error_set(error, RUNNEL_FORMAT, "tokenizer.ggml.precompiled_charsmap: strings that are not UTF-8");
    map->n_units = bytes / 4;
    map->longest = longest_string(map->strings, map->n_strings);
    return RUNNEL_OK;
}

void rn_charsmap_fini(struct rn_charsmap *map, struct rn_heap *heap)
{
    rn_free(heap, map->units);
    rn_free(heap, map->strings);
    memset(map, 0, sizeof *map);
}

static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

/* The replacement that the leaf at `at` names; false: there is none. */
static bool leaf(const struct rn_charsmap *map, uint32_t at, struct rn_view *by)
{
    uint32_t place;

    if (at >= map->n_units)
        return false;
    place = map->units[at] & 0x7fffffffu;
    if (place >= map->n_strings || ((unsigned char)map->strings[place] & 0xc0) == 0x80)
        return false;
    by->bytes = map->strings + place;
    by->n = strlen(by->bytes);
    return true;
}

size_t rn_charsmap_match(const struct rn_charsmap *map, const char *text, size_t n, struct rn_view *by)
{
    size_t most = n < RN_CHARSMAP_MAX_KEY ? n : RN_CHARSMAP_MAX_KEY;
    size_t longest = 0, i;
    uint32_t at;

    if (map->n_units == 0)
        return 0;
    at = offset_of(map->units[0]);
    for (i = 0; i < most; i++) {
        uint8_t byte = (uint8_t)text[i];
        uint32_t unit;

        at ^= byte;
        if (byte == 0 || at >= map->n_units)
            break;
        unit = map->units[at];
        if ((unit & 0x800000ffu) != byte)
            break;
        at ^= offset_of(unit);
        if ((unit >> 8 & 1) == 0 || (i + 1 < n && ((unsigned char)text[i + 1] & 0xc0) == 0x80))
            continue; /* no key ends here, or a part of a character does */
        if (leaf(map, at, by))
            longest = i + 1;
    }
    return longest;
}
