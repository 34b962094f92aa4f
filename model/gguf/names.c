/* The index of names, and names made fit for an error sentence: see internal.h.
 *
 * The hash folds 8 bytes at a time: h = fold((h ^ word) * secret), where fold is the exclusive or
 * of the halves of the 128-bit product. Expected probes per look-up: under 2 at half load. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "model/gguf/internal.h"

static uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash(const uint64_t keys[2], struct rn_view name)
{
    uint64_t h = keys[0] ^ name.n, word;
    size_t at = 0;

    for (; name.n - at >= 8; at += 8) {
        memcpy(&word, name.bytes + at, 8);
        h = fold(h ^ word, keys[1]);
    }
    word = 0;
    if (at < name.n)
        memcpy(&word, name.bytes + at, name.n - at);
    h = fold(h ^ word, keys[1]);
    return fold(h, keys[1]);
}

static bool equal(struct rn_view a, struct rn_view b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.bytes, b.bytes, a.n) == 0);
}

static struct rn_view name_of(const struct rn_names *names, uint32_t index)
{
    struct rn_view name;

    memcpy(&name, names->items + index * names->stride, sizeof name);
    return name;
}

/* The slot that holds `name`, or the empty one where it belongs. */
static uint32_t *slot_of(const struct rn_names *names, struct rn_view name)
{
    uint64_t at = hash(names->keys, name) & names->mask;

    while (names->slots[at] != 0 && !equal(name_of(names, names->slots[at] - 1), name))
        at = (at + 1) & names->mask;
    return &names->slots[at];
}

/* Where the kernel has no random numbers yet, an address has to do. Fuzzing wants each run alike. */
static void choose_keys(struct rn_names *names)
{
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    names->keys[0] = 1;
#else
    if (getrandom(names->keys, sizeof names->keys, GRND_NONBLOCK) != (ssize_t)sizeof names->keys) {
        names->keys[0] = (uint64_t)(uintptr_t)names->slots;
        names->keys[1] = (uint64_t)(uintptr_t)names * 0x9e3779b97f4a7c15u;
    }
#endif
    names->keys[1] |= 1;
}

runnel_status rn_names_build(struct rn_names *names, struct rn_heap *heap, const void *items, size_t stride, uint64_t n,
                             uint64_t *duplicate)
{
    uint64_t size = 4;

    while (size < 2 * n)
        size *= 2;
    names->items = items;
    names->stride = stride;
    names->mask = size - 1;
    names->slots = rn_calloc(heap, size, sizeof *names->slots);
    if (names->slots == NULL)
        return RUNNEL_NO_MEMORY;
    choose_keys(names);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t *slot = slot_of(names, name_of(names, (uint32_t)i));

        if (*slot != 0) {
            *duplicate = i;
            return RUNNEL_FORMAT;
        }
        *slot = (uint32_t)i + 1;
    }
    return RUNNEL_OK;
}

void rn_names_free(struct rn_names *names, struct rn_heap *heap)
{
    rn_free(heap, names->slots);
    memset(names, 0, sizeof *names);
}

const void *rn_names_find(const struct rn_names *names, struct rn_view name)
{
    uint32_t index;

    if (names->slots == NULL)
        return NULL;
    index = *slot_of(names, name);
    return index == 0 ? NULL : names->items + (index - 1) * names->stride;
}

struct rn_shown rn_shown_name(struct rn_view name)
{
    enum { MOST = 48 };
    struct rn_shown shown;
    size_t n = name.n < MOST ? name.n : MOST;

    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name.bytes[i];

        shown.text[i] = c >= 0x20 && c < 0x7f ? (char)c : '?';
    }
    snprintf(shown.text + n, sizeof shown.text - n, "%s", n < name.n ? "..." : "");
    return shown;
}

struct rn_shown rn_shown_path(const char *path)
{
    enum { MOST = 72 };
    struct rn_shown shown;
    size_t n = strlen(path), skip = n > MOST ? n - MOST : 0;

    while ((path[skip] & 0xc0) == 0x80 && skip > 0) /* not in the middle of a UTF-8 character */
        skip++;
    snprintf(shown.text, sizeof shown.text, "%s%s", skip > 0 ? "..." : "", path + skip);
    return shown;
}

/* Bytes of the well-formed sequence at p[0..n), 0 where there is none. The bounds of the second byte
 * exclude overlong forms, surrogates and code points past U+10FFFF (Unicode standard, table 3-7). */
static size_t sequence(const unsigned char *p, size_t n)
{
    unsigned char low = 0x80, high = 0xbf;
    size_t length = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;

    if (length == 0 || length > n)
        return 0;
    if (p[0] == 0xe0)
        low = 0xa0;
    else if (p[0] == 0xed)
        high = 0x9f;
    else if (p[0] == 0xf0)
        low = 0x90;
    else if (p[0] == 0xf4)
        high = 0x8f;
    if (length > 1 && (p[1] < low || p[1] > high))
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

bool rn_utf8_name_check(struct rn_view name)
{
    const unsigned char *p = (const unsigned char *)name.bytes;
    size_t length;

    for (size_t at = 0; at < name.n; at += length) {
        length = sequence(p + at, name.n - at);
        if (length == 0 || p[at] < 0x20 || p[at] == 0x7f)
            return false;
    }
    return true;
}
