/* Building, cutting and searching strings with origins. See value_text.h. */
#define _GNU_SOURCE /* memmem */
#include "text/template/value_text.h"

#include <string.h>

#include "base/check.h"

/* ---- Builder ---- */

void rn_sb_init(struct rn_sb *sb, struct rn_arena *arena)
{
    *sb = (struct rn_sb){.arena = arena, .limit = SIZE_MAX};
}

void rn_sb_init_heap(struct rn_sb *sb, struct rn_arena *arena, size_t limit)
{
    *sb = (struct rn_sb){.arena = arena, .on_heap = true, .limit = limit};
}

void rn_sb_fini(struct rn_sb *sb)
{
    if (!sb->on_heap)
        return;
    rn_free(sb->arena->heap, sb->bytes);
    rn_free(sb->arena->heap, sb->ranges);
    sb->bytes = NULL;
    sb->ranges = NULL;
}

static void *grow(struct rn_sb *sb, void *old, size_t old_count, size_t new_count, size_t size)
{
    void *grown;

    if (!sb->on_heap)
        return rn_arena_grow(sb->arena, old, old_count, new_count, size);
    grown = rn_realloc(sb->arena->heap, old, new_count, size);
    if (grown == NULL)
        rn_raise(sb->arena, RUNNEL_NO_MEMORY, "no memory for the text");
    return grown;
}

static char *room(struct rn_sb *sb, size_t n)
{
    char *at;

    if (n > sb->limit - sb->n)
        rn_raise(sb->arena, RUNNEL_INVALID, "more than %zu bytes of output", sb->limit);
    rn_step(sb->arena, n);
    if (n > sb->cap - sb->n) {
        size_t cap = sb->cap < 32 ? 64 : 2 * sb->cap;

        if (cap - sb->n < n)
            cap = sb->n + n;
        sb->bytes = grow(sb, sb->bytes, sb->n, cap, 1);
        sb->cap = cap;
    }
    at = sb->bytes + sb->n;
    sb->n += n;
    return at;
}

static void mark_data(struct rn_sb *sb, size_t begin, size_t end)
{
    if (begin == end)
        return;
    if (sb->n_ranges > 0 && sb->ranges[sb->n_ranges - 1].end == begin) {
        sb->ranges[sb->n_ranges - 1].end = end;
        return;
    }
    if (sb->n_ranges == sb->cap_ranges) {
        size_t cap = sb->cap_ranges < 4 ? 4 : 2 * sb->cap_ranges;

        sb->ranges = grow(sb, sb->ranges, sb->n_ranges, cap, sizeof *sb->ranges);
        sb->cap_ranges = cap;
    }
    sb->ranges[sb->n_ranges++] = (struct rn_range){begin, end};
}

void rn_sb_bytes(struct rn_sb *sb, const char *bytes, size_t n, enum rn_origin origin)
{
    size_t begin = sb->n;

    RN_ASSERT(origin != RN_ORIGIN_MIXED);
    if (n == 0)
        return;
    memcpy(room(sb, n), bytes, n);
    if (origin == RN_ORIGIN_DATA)
        mark_data(sb, begin, sb->n);
}

void rn_sb_text(struct rn_sb *sb, const char *text)
{
    rn_sb_bytes(sb, text, strlen(text), RN_ORIGIN_TRUSTED);
}

void rn_sb_char(struct rn_sb *sb, uint32_t c, enum rn_origin origin)
{
    char bytes[4];
    size_t n;

    if (c < 0x80) {
        bytes[0] = (char)c;
        n = 1;
    } else if (c < 0x800) {
        bytes[0] = (char)(0xc0 | c >> 6);
        bytes[1] = (char)(0x80 | (c & 0x3f));
        n = 2;
    } else if (c < 0x10000) {
        bytes[0] = (char)(0xe0 | c >> 12);
        bytes[1] = (char)(0x80 | (c >> 6 & 0x3f));
        bytes[2] = (char)(0x80 | (c & 0x3f));
        n = 3;
    } else {
        bytes[0] = (char)(0xf0 | c >> 18);
        bytes[1] = (char)(0x80 | (c >> 12 & 0x3f));
        bytes[2] = (char)(0x80 | (c >> 6 & 0x3f));
        bytes[3] = (char)(0x80 | (c & 0x3f));
        n = 4;
    }
    rn_sb_bytes(sb, bytes, n, origin);
}

/* The first range of s that ends behind `at`. */
static size_t first_range(const struct rn_str *s, size_t at)
{
    size_t low = 0, high = s->n_ranges;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (s->ranges[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void rn_sb_slice(struct rn_sb *sb, const struct rn_str *s, size_t from, size_t to)
{
    size_t base = sb->n, i;

    if (from >= to)
        return;
    memcpy(room(sb, to - from), s->bytes + from, to - from);
    if (s->origin == RN_ORIGIN_DATA)
        mark_data(sb, base, sb->n);
    if (s->origin != RN_ORIGIN_MIXED)
        return;
    for (i = first_range(s, from); i < s->n_ranges && s->ranges[i].begin < to; i++) {
        size_t begin = s->ranges[i].begin > from ? s->ranges[i].begin : from;
        size_t end = s->ranges[i].end < to ? s->ranges[i].end : to;

        mark_data(sb, base + begin - from, base + end - from);
    }
}

void rn_sb_str(struct rn_sb *sb, const struct rn_str *s)
{
    rn_sb_slice(sb, s, 0, s->n);
}

void rn_sb_repeat(struct rn_sb *sb, const struct rn_str *s, size_t times)
{
    size_t total, i, base = sb->n;
    char *at;

    if (s->n == 0 || times == 0)
        return;
    if (!rn_mul_size(s->n, times, &total))
        total = SIZE_MAX / 2;
    if (s->origin == RN_ORIGIN_MIXED) {
        for (i = 0; i < times; i++)
            rn_sb_str(sb, s);
        return;
    }
    at = room(sb, total);
    for (i = 0; i < times; i++)
        memcpy(at + i * s->n, s->bytes, s->n);
    if (s->origin == RN_ORIGIN_DATA)
        mark_data(sb, base, sb->n);
}

const struct rn_str *rn_sb_done(struct rn_sb *sb)
{
    struct rn_str *s;

    RN_ASSERT(!sb->on_heap);
    if (sb->n_ranges == 0)
        return rn_str_borrow(sb->arena, sb->bytes, sb->n, RN_ORIGIN_TRUSTED);
    s = (struct rn_str *)(uintptr_t)rn_str_borrow(sb->arena, sb->bytes, sb->n, RN_ORIGIN_DATA);
    if (sb->ranges[0].begin != 0 || sb->ranges[0].end != sb->n) {
        s->origin = RN_ORIGIN_MIXED;
        s->ranges = sb->ranges;
        s->n_ranges = sb->n_ranges;
    }
    return s;
}

/* ---- Strings ---- */

const struct rn_str *rn_str_of(struct rn_arena *arena, const char *text)
{
    return rn_str_borrow(arena, text, strlen(text), RN_ORIGIN_TRUSTED);
}

static void slice_ranges(struct rn_arena *arena, struct rn_str *part, const struct rn_str *s, size_t from, size_t to)
{
    size_t first = first_range(s, from), last = first, i;
    struct rn_range *ranges;

    while (last < s->n_ranges && s->ranges[last].begin < to)
        last++;
    part->origin = RN_ORIGIN_TRUSTED;
    if (first == last)
        return;
    part->origin = RN_ORIGIN_DATA;
    if (s->ranges[first].begin <= from && s->ranges[first].end >= to)
        return;
    part->origin = RN_ORIGIN_MIXED;
    ranges = rn_arena_take(arena, last - first, sizeof *ranges);
    for (i = first; i < last; i++) {
        ranges[i - first].begin = s->ranges[i].begin > from ? s->ranges[i].begin - from : 0;
        ranges[i - first].end = (s->ranges[i].end < to ? s->ranges[i].end : to) - from;
    }
    part->ranges = ranges;
    part->n_ranges = last - first;
}

const struct rn_str *rn_str_slice(struct rn_arena *arena, const struct rn_str *s, size_t from, size_t to)
{
    struct rn_str *part;

    if (from == 0 && to >= s->n)
        return s;
    if (from >= to)
        return rn_str_borrow(arena, "", 0, RN_ORIGIN_TRUSTED);
    part = rn_arena_take(arena, 1, sizeof *part);
    *part = (struct rn_str){.bytes = s->bytes + from, .n = to - from, .origin = s->origin};
    part->chars = rn_str_chars(arena, s, from, to);
    if (s->origin == RN_ORIGIN_MIXED)
        slice_ranges(arena, part, s, from, to);
    return part;
}

const struct rn_str *rn_str_concat(struct rn_arena *arena, const struct rn_str *a, const struct rn_str *b)
{
    struct rn_sb sb;

    if (a->n == 0)
        return b;
    if (b->n == 0)
        return a;
    rn_sb_init(&sb, arena);
    sb.bytes = rn_arena_take(arena, a->n + b->n, 1);
    sb.cap = a->n + b->n;
    rn_sb_str(&sb, a);
    rn_sb_str(&sb, b);
    return rn_sb_done(&sb);
}

const struct rn_str *rn_str_smear(struct rn_arena *arena, const struct rn_str *s)
{
    return rn_str_any_data(s) ? rn_str_borrow(arena, s->bytes, s->n, RN_ORIGIN_DATA) : s;
}

const struct rn_str *rn_str_marked(struct rn_arena *arena, const struct rn_str *s, bool markup)
{
    struct rn_str *copy;

    if (s->markup == markup)
        return s;
    copy = rn_arena_take(arena, 1, sizeof *copy);
    *copy = *s;
    copy->markup = markup;
    return copy;
}

enum rn_origin rn_str_origin_at(const struct rn_str *s, size_t at)
{
    size_t i;

    if (s->origin != RN_ORIGIN_MIXED)
        return s->origin;
    i = first_range(s, at);
    return i < s->n_ranges && s->ranges[i].begin <= at ? RN_ORIGIN_DATA : RN_ORIGIN_TRUSTED;
}

bool rn_str_any_data(const struct rn_str *s)
{
    return s->origin != RN_ORIGIN_TRUSTED;
}

bool rn_str_equal(const struct rn_str *a, const struct rn_str *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->bytes, b->bytes, a->n) == 0);
}

bool rn_str_is(const struct rn_str *s, const char *text)
{
    return s->n == strlen(text) && memcmp(s->bytes, text, s->n) == 0;
}

int rn_str_compare(const struct rn_str *a, const struct rn_str *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    int order = n == 0 ? 0 : memcmp(a->bytes, b->bytes, n); /* UTF-8 sorts as its code points do */

    return order != 0 ? (order > 0) - (order < 0) : (a->n > b->n) - (a->n < b->n);
}

size_t rn_str_offset(struct rn_arena *arena, const struct rn_str *s, size_t chars)
{
    size_t at = 0;

    if (s->chars == s->n || chars >= s->chars)
        return chars >= s->chars ? s->n : chars;
    rn_step(arena, chars);
    while (chars-- > 0)
        at += rn_utf8_length((unsigned char)s->bytes[at]);
    return at;
}

size_t rn_str_chars(struct rn_arena *arena, const struct rn_str *s, size_t from, size_t to)
{
    size_t chars = 0, i;

    if (s->chars == s->n)
        return to - from;
    rn_step(arena, to - from);
    for (i = from; i < to; i++)
        chars += ((unsigned char)s->bytes[i] & 0xc0) != 0x80;
    return chars;
}

size_t rn_str_find(struct rn_arena *arena, const struct rn_str *s, size_t from, size_t to, const struct rn_str *needle)
{
    const char *found;

    if (from > to || needle->n > to - from)
        return RN_NOWHERE;
    if (needle->n == 0)
        return from;
    found = memmem(s->bytes + from, to - from, needle->bytes, needle->n); /* linear in both: two-way search */
    rn_step(arena, (found == NULL ? to - from : (size_t)(found - s->bytes) - from) + needle->n);
    return found == NULL ? RN_NOWHERE : (size_t)(found - s->bytes);
}

size_t rn_str_rfind(struct rn_arena *arena, const struct rn_str *s, size_t from, size_t to, const struct rn_str *needle)
{
    size_t at;

    if (from > to || needle->n > to - from)
        return RN_NOWHERE;
    for (at = to - needle->n + 1; at-- > from;) {
        rn_step(arena, 1);
        if (needle->n == 0)
            return at;
        if (s->bytes[at] != needle->bytes[0])
            continue;
        rn_step(arena, needle->n);
        if (memcmp(s->bytes + at, needle->bytes, needle->n) == 0)
            return at;
    }
    return RN_NOWHERE;
}

static bool in_set(struct rn_arena *arena, const struct rn_str *set, const char *bytes, uint32_t n)
{
    struct rn_str one = {.bytes = bytes, .n = n};
    uint32_t length;

    if (set == NULL)
        return rn_char_is_space(rn_utf8_decode(bytes, &length));
    return rn_str_find(arena, set, 0, set->n, &one) != RN_NOWHERE;
}

const struct rn_str *rn_str_strip(struct rn_arena *arena, const struct rn_str *s, const struct rn_str *set, bool left,
                                  bool right)
{
    size_t from = 0, to = s->n, at;
    uint32_t n;

    while (left && from < to) {
        n = rn_utf8_length((unsigned char)s->bytes[from]);
        if (!in_set(arena, set, s->bytes + from, n))
            break;
        from += n;
    }
    while (right && from < to) {
        for (at = to - 1; ((unsigned char)s->bytes[at] & 0xc0) == 0x80;)
            at--;
        if (!in_set(arena, set, s->bytes + at, (uint32_t)(to - at)))
            break;
        to = at;
    }
    rn_step(arena, s->n - (to - from));
    return rn_str_slice(arena, s, from, to);
}

/* Replacing nothing: `with` before every character and at the end. */
static const struct rn_str *interleave(struct rn_arena *arena, const struct rn_str *s, const struct rn_str *with,
                                       size_t most)
{
    size_t at = 0, n;
    struct rn_sb sb;

    rn_sb_init(&sb, arena);
    for (; most > 0; most--) {
        rn_sb_str(&sb, with);
        if (at == s->n)
            break;
        n = rn_utf8_length((unsigned char)s->bytes[at]);
        rn_sb_slice(&sb, s, at, at + n);
        at += n;
    }
    rn_sb_slice(&sb, s, at, s->n);
    return rn_sb_done(&sb);
}

const struct rn_str *rn_str_replace(struct rn_arena *arena, const struct rn_str *s, const struct rn_str *old,
                                    const struct rn_str *with, size_t most)
{
    size_t at = 0, found;
    struct rn_sb sb;

    if (most == 0)
        return s;
    if (old->n == 0)
        return interleave(arena, s, with, most);
    found = rn_str_find(arena, s, 0, s->n, old);
    if (found == RN_NOWHERE)
        return s;
    rn_sb_init(&sb, arena);
    for (; found != RN_NOWHERE && most > 0; most--) {
        rn_sb_slice(&sb, s, at, found);
        rn_sb_str(&sb, with);
        at = found + old->n;
        found = rn_str_find(arena, s, at, s->n, old);
    }
    rn_sb_slice(&sb, s, at, s->n);
    return rn_sb_done(&sb);
}

static bool ends_line(uint32_t c)
{
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

size_t rn_str_line_end(const struct rn_str *s, size_t from, size_t *next)
{
    size_t at = from;
    uint32_t n, c;

    while (at < s->n) {
        c = rn_utf8_decode(s->bytes + at, &n);
        if (ends_line(c)) {
            *next = at + n + (c == '\r' && at + 1 < s->n && s->bytes[at + 1] == '\n');
            return at;
        }
        at += n;
    }
    *next = s->n;
    return at;
}
