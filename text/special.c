/* Finding tokens that are written out in a text: see special.h. */
#include "text/special.h"

#include <string.h>

#include "base/utf8.h"
#include "text/range.h"
#include "text/token_kind.h"
#include "text/trie.h"

/* A text that is not whole UTF-8 is left out: found inside a character, it would leave the rest of
 * that character to the tokenizer. So is a very long one: a search may look at that many bytes for each of its text. */
static bool is_special(struct rn_view text, uint8_t kind)
{
    if (kind != RN_TOKEN_CONTROL && kind != RN_TOKEN_UNKNOWN && kind != RN_TOKEN_USER)
        return false;
    return text.n > 0 && text.n <= RN_SPECIAL_BYTES && rn_utf8_valid(text.bytes, text.n);
}

/* Of equal texts one stays: the first that is user-defined, else the first. */
static void drop_equal(struct rn_special_matcher *matcher, const struct rn_strings *texts, const uint8_t *kinds)
{
    uint32_t kept = 0;
    uint32_t i;

    for (i = 0; i < matcher->n; i++) {
        struct rn_view text = rn_string(texts, matcher->ids[i]);
        struct rn_view last = kept > 0 ? rn_string(texts, matcher->ids[kept - 1]) : (struct rn_view){NULL, 0};

        if (text.n != last.n || memcmp(text.bytes, last.bytes, text.n) != 0)
            matcher->ids[kept++] = matcher->ids[i];
        else if (kinds[matcher->ids[i]] == RN_TOKEN_USER && kinds[matcher->ids[kept - 1]] != RN_TOKEN_USER)
            matcher->ids[kept - 1] = matcher->ids[i];
    }
    matcher->n = kept;
}

static void index_first_bytes(struct rn_special_matcher *matcher, const struct rn_strings *texts, const uint8_t *kinds)
{
    uint32_t i, b;

    memset(matcher->first, 0, sizeof matcher->first);
    memset(matcher->starts, 0, sizeof matcher->starts);
    matcher->shortest_bytes = UINT32_MAX;
    for (i = 0; i < matcher->n; i++) {
        struct rn_view text = rn_string(texts, matcher->ids[i]);
        unsigned char byte = (unsigned char)text.bytes[0];

        matcher->first[byte + 1]++;
        matcher->starts[byte] |= kinds[matcher->ids[i]] == RN_TOKEN_USER ? 3 : 2;
        if (text.n < matcher->shortest_bytes)
            matcher->shortest_bytes = (uint32_t)text.n;
    }
    for (b = 0; b < 256; b++)
        matcher->first[b + 1] += matcher->first[b];
}

bool rn_special_init(struct rn_special_matcher *matcher, struct rn_heap *heap, const struct rn_strings *texts,
                     const uint8_t *kinds, uint32_t n_tokens)
{
    uint32_t count = 0;
    uint32_t i;

    for (i = 0; i < n_tokens; i++)
        count += is_special(rn_string(texts, i), kinds[i]);
    matcher->n = 0;
    matcher->ids = rn_alloc(heap, count, sizeof *matcher->ids);
    matcher->reserved = rn_calloc(heap, count, sizeof *matcher->reserved);
    if (matcher->ids == NULL || matcher->reserved == NULL)
        return false;
    for (i = 0; i < n_tokens; i++) {
        if (is_special(rn_string(texts, i), kinds[i]))
            matcher->ids[matcher->n++] = i;
    }
    rn_sort_ids(matcher->ids, matcher->n, texts);
    drop_equal(matcher, texts, kinds);
    index_first_bytes(matcher, texts, kinds);
    return true;
}

void rn_special_fini(struct rn_special_matcher *matcher, struct rn_heap *heap)
{
    rn_free(heap, matcher->ids);
    rn_free(heap, matcher->reserved);
    matcher->ids = NULL;
    matcher->reserved = NULL;
}

/* First of ids[low..high), which share their first `depth` bytes and are longer, whose byte at
 * `depth` is at least `byte`. */
static uint32_t lower_bound(const struct rn_special_matcher *matcher, const struct rn_strings *texts, uint32_t low,
                            uint32_t high, size_t depth, unsigned byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if ((unsigned char)rn_string(texts, matcher->ids[middle]).bytes[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Where ids has this token. */
static uint32_t place_of(const struct rn_special_matcher *matcher, const struct rn_strings *texts, uint32_t id)
{
    struct rn_view text = rn_string(texts, id);
    uint32_t low = matcher->first[(unsigned char)text.bytes[0]], high = matcher->n;

    while (matcher->ids[low] != id) {
        uint32_t middle = low + (high - low) / 2;
        struct rn_view other = rn_string(texts, matcher->ids[middle]);
        int order = memcmp(other.bytes, text.bytes, other.n < text.n ? other.n : text.n);

        if (order < 0 || (order == 0 && other.n <= text.n))
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The longest token at text + at: user-defined, or of any kind and within the first `control` bytes. Or -1. */
static int32_t match_at(const struct rn_special_search *search, size_t at, size_t control)
{
    const struct rn_special_matcher *matcher = search->matcher;
    const char *text = search->text + at;
    unsigned char byte = (unsigned char)text[0];
    uint32_t low = matcher->first[byte], high = matcher->first[byte + 1];
    int32_t best = -1;
    size_t depth;

    for (depth = 1; low < high; depth++) { /* those of ids[low..high) begin with text[0..depth) */
        uint32_t id = matcher->ids[low];

        if (rn_string(search->texts, id).n == depth) {
            if (depth <= control || (search->kinds[id] == RN_TOKEN_USER && !(search->all && matcher->reserved[low])))
                best = (int32_t)id;
            low++;
        }
        if (depth == search->n - at)
            break;
        byte = (unsigned char)text[depth];
        low = lower_bound(matcher, search->texts, low, high, depth, byte);
        high = lower_bound(matcher, search->texts, low, high, depth, byte + 1u);
    }
    return best;
}

void rn_special_reserve(struct rn_special_matcher *matcher, const struct rn_strings *texts, const uint8_t *kinds,
                        const char *text, size_t n)
{
    struct rn_special_search search = {.matcher = matcher, .texts = texts, .kinds = kinds, .text = text, .n = n};
    size_t begin = 0, end = 0;
    int32_t id;

    while ((id = rn_special_next(&search, end, &begin, &end)) >= 0)
        matcher->reserved[place_of(matcher, texts, (uint32_t)id)] = true;
}

/* Bytes from text + at in which a control token may lie: up to the next range of data. */
static size_t free_bytes(struct rn_special_search *search, size_t at)
{
    const struct rn_range *range;

    if (!search->all)
        return 0;
    for (; search->next < search->n_data; search->next++) {
        range = &search->data[search->next];
        if (range->begin < range->end && range->end > at)
            return range->begin > at ? range->begin - at : 0;
    }
    return search->n - at;
}

int32_t rn_special_next(struct rn_special_search *search, size_t at, size_t *begin, size_t *end)
{
    const struct rn_special_matcher *matcher = search->matcher;
    uint8_t bit = search->all ? 2 : 1;

    for (; matcher->n > 0 && at < search->n; at++) {
        int32_t id;

        if (!(matcher->starts[(unsigned char)search->text[at]] & bit))
            continue;
        id = match_at(search, at, free_bytes(search, at));
        if (id >= 0) {
            *begin = at;
            *end = at + rn_string(search->texts, (uint32_t)id).n;
            return id;
        }
    }
    *begin = search->n;
    *end = search->n;
    return -1;
}
