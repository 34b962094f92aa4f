/* Values: arena, strings, lists, dicts. See value.h. */
#include "text/value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

/* ---- Arena ---- */

#define STEPS_PER_LOOK 65536 /* less than a millisecond */
#define BLOCK_FIRST ((size_t)16 << 10)
#define BLOCK_MOST ((size_t)1 << 20)

struct rn_arena_block {
    struct rn_arena_block *next;
    size_t bytes;
};

void rn_arena_init(struct rn_arena *arena, struct rn_heap *heap, size_t limit)
{
    *arena = (struct rn_arena){
        .heap = heap, .limit = limit, .steps_limit = UINT64_MAX, .look_at = UINT64_MAX, .depth_limit = RN_JSON_DEPTH};
}

void rn_arena_set_stop(struct rn_arena *arena, const struct rn_interrupt *stop)
{
    arena->stop = stop;
    arena->look_at = stop != NULL ? arena->steps : UINT64_MAX;
}

void rn_arena_look(struct rn_arena *arena)
{
    if (rn_interrupted(arena->stop))
        rn_raise(arena, RUNNEL_CANCELLED, "the work was ended");
    arena->look_at = arena->stop != NULL ? arena->steps + STEPS_PER_LOOK : UINT64_MAX;
}

void rn_arena_fini(struct rn_arena *arena)
{
    while (arena->blocks != NULL) {
        struct rn_arena_block *block = arena->blocks;

        arena->blocks = block->next;
        rn_free(arena->heap, block);
    }
    arena->at = arena->end = NULL;
}

_Noreturn void rn_raise(struct rn_arena *arena, runnel_status status, const char *format, ...)
{
    va_list args;

    RN_CHECK(arena->trap != NULL);
    arena->status = status;
    va_start(args, format);
    vsnprintf(arena->message, sizeof arena->message, format, args);
    va_end(args);
    longjmp(*arena->trap, 1);
}

/* Apart from its caller, whose variables must not be changed between setjmp and longjmp. */
static bool try_body(struct rn_arena *arena, struct rn_arena *other, void (*body)(void *user), void *user)
{
    jmp_buf here;

    arena->trap = &here;
    if (other != NULL)
        other->trap = &here;
    if (setjmp(here) != 0)
        return false;
    body(user);
    return true;
}

bool rn_arena_try(struct rn_arena *arena, struct rn_arena *other, void (*body)(void *user), void *user)
{
    jmp_buf *trap = arena->trap, *other_trap = other != NULL ? other->trap : NULL;
    uint32_t depth = arena->depth, other_depth = other != NULL ? other->depth : 0;
    bool fine = try_body(arena, other, body, user);

    arena->trap = trap;
    arena->depth = depth;
    if (other != NULL) {
        other->trap = other_trap;
        other->depth = other_depth;
    }
    return fine;
}

static void add_block(struct rn_arena *arena, size_t least)
{
    size_t bytes = arena->blocks == NULL ? BLOCK_FIRST : 2 * arena->blocks->bytes;
    struct rn_arena_block *block;

    if (bytes > BLOCK_MOST)
        bytes = BLOCK_MOST;
    if (bytes < least + sizeof *block)
        bytes = least + sizeof *block;
    block = rn_alloc(arena->heap, 1, bytes);
    if (block == NULL)
        rn_raise(arena, RUNNEL_NO_MEMORY, "no memory for %zu bytes of values", bytes);
    block->next = arena->blocks;
    block->bytes = bytes;
    arena->blocks = block;
    arena->at = (char *)(block + 1);
    arena->end = (char *)block + bytes;
}

void *rn_arena_take(struct rn_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    void *taken;

    if (!rn_mul_size(count, size, &bytes) || bytes > arena->limit - arena->used || bytes > SIZE_MAX / 4)
        rn_raise(arena, RUNNEL_INVALID, "more than %zu bytes of values", arena->limit);
    bytes = (bytes + 7) & ~(size_t)7;
    if (arena->at == NULL || bytes > (size_t)(arena->end - arena->at))
        add_block(arena, bytes);
    taken = arena->at;
    arena->at += bytes;
    arena->used = bytes > arena->limit - arena->used ? arena->limit : arena->used + bytes;
    return taken;
}

void *rn_arena_grow(struct rn_arena *arena, void *old, size_t old_count, size_t new_count, size_t size)
{
    size_t old_bytes = (old_count * size + 7) & ~(size_t)7, more;
    void *taken;

    if (old != NULL && (char *)old + old_bytes == arena->at && rn_mul_size(new_count, size, &more) &&
        more > old_bytes && more - old_bytes <= (size_t)(arena->end - arena->at)) {
        rn_arena_take(arena, 1, more - old_bytes);
        return old;
    }
    taken = rn_arena_take(arena, new_count, size);
    if (old_count > 0)
        memcpy(taken, old, old_count * size);
    rn_step(arena, old_count * size / 16);
    return taken;
}

/* ---- Strings ---- */

static size_t count_chars(const char *bytes, size_t n)
{
    size_t chars = 0, i;

    for (i = 0; i < n; i++)
        chars += ((unsigned char)bytes[i] & 0xc0) != 0x80;
    return chars;
}

const struct rn_str *rn_str_borrow(struct rn_arena *arena, const char *bytes, size_t n, enum rn_origin origin)
{
    struct rn_str *string = rn_arena_take(arena, 1, sizeof *string);

    RN_ASSERT(origin != RN_ORIGIN_MIXED);
    *string = (struct rn_str){.bytes = n > 0 ? bytes : "",
                              .n = n,
                              .chars = count_chars(bytes, n),
                              .origin = n == 0 ? RN_ORIGIN_TRUSTED : origin};
    return string;
}

const struct rn_str *rn_str_new(struct rn_arena *arena, const char *bytes, size_t n, enum rn_origin origin)
{
    char *copy = rn_arena_take(arena, n, 1);

    rn_step(arena, n);
    if (n > 0)
        memcpy(copy, bytes, n);
    return rn_str_borrow(arena, copy, n, origin);
}

/* ---- Lists ---- */

struct rn_list *rn_list_new(struct rn_arena *arena, size_t cap)
{
    struct rn_list *list = rn_arena_take(arena, 1, sizeof *list);

    *list = (struct rn_list){.items = cap > 0 ? rn_arena_take(arena, cap, sizeof *list->items) : NULL, .cap = cap};
    return list;
}

void rn_list_push(struct rn_arena *arena, struct rn_list *list, struct rn_value value)
{
    if (list->n == list->cap) {
        size_t cap = list->cap < 4 ? 4 : 2 * list->cap;

        list->items = rn_arena_grow(arena, list->items, list->n, cap, sizeof *list->items);
        list->cap = cap;
    }
    list->items[list->n++] = value;
}

struct rn_value rn_list_value(struct rn_list *list)
{
    return (struct rn_value){.kind = RN_VALUE_LIST, .list = list};
}

struct rn_value rn_tuple_value(struct rn_list *list)
{
    return (struct rn_value){.kind = RN_VALUE_TUPLE, .list = list};
}

/* ---- Equality and hashes ---- */

#define MIX 0x9e3779b97f4a7c15ull /* 2^64 / golden ratio */
#define DICT_SMALL 8              /* up to here a search is as fast as a hash */

static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)(a ^ MIX) * (b ^ 0xd6e8feb86659fd93ull);

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_bytes(const char *bytes, size_t n, uint64_t seed)
{
    uint64_t hash = mix(seed, n), word;

    for (; n >= sizeof word; bytes += sizeof word, n -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = mix(hash, word);
    }
    word = 0;
    memcpy(&word, bytes, n);
    return mix(hash, word);
}

static bool is_number(struct rn_value value)
{
    return value.kind == RN_VALUE_BOOL || value.kind == RN_VALUE_INT || value.kind == RN_VALUE_FLOAT;
}

static int64_t integer_of(struct rn_value value)
{
    return value.kind == RN_VALUE_BOOL ? value.boolean : value.integer;
}

/* Is a float exactly this integer? */
static bool float_is_int(double real, int64_t integer)
{
    return real >= -0x1p63 && real < 0x1p63 && real == trunc(real) && (int64_t)real == integer;
}

static uint64_t hash_value(struct rn_arena *arena, struct rn_value value, uint64_t seed)
{
    uint64_t hash = seed;
    size_t i;

    switch (value.kind) {
    case RN_VALUE_STRING:
        rn_step(arena, value.string->n);
        return hash_bytes(value.string->bytes, value.string->n, seed);
    case RN_VALUE_FLOAT:
        if (value.real >= -0x1p63 && value.real < 0x1p63 && value.real == trunc(value.real))
            return mix(seed, (uint64_t)(int64_t)value.real);
        memcpy(&hash, &value.real, sizeof hash);
        return mix(seed, hash);
    case RN_VALUE_BOOL:
    case RN_VALUE_INT:
        return mix(seed, (uint64_t)integer_of(value));
    case RN_VALUE_TUPLE:
        rn_enter(arena);
        rn_step(arena, 1 + value.list->n);
        for (i = 0; i < value.list->n; i++)
            hash = mix(hash, hash_value(arena, value.list->items[i], seed));
        rn_leave(arena);
        return hash;
    case RN_VALUE_LIST:
        rn_raise(arena, RUNNEL_INVALID, "unhashable type: 'list'");
    case RN_VALUE_DICT:
        rn_raise(arena, RUNNEL_INVALID, "unhashable type: 'dict'");
    case RN_VALUE_OBJECT:
        return mix(seed, (uint64_t)(uintptr_t)value.object);
    default:
        return mix(seed, value.kind);
    }
}

static bool numbers_equal(struct rn_value a, struct rn_value b)
{
    if (a.kind == RN_VALUE_FLOAT)
        return b.kind == RN_VALUE_FLOAT ? a.real == b.real : float_is_int(a.real, integer_of(b));
    return b.kind == RN_VALUE_FLOAT ? float_is_int(b.real, integer_of(a)) : integer_of(a) == integer_of(b);
}

static bool lists_equal(struct rn_arena *arena, const struct rn_list *a, const struct rn_list *b)
{
    size_t i;

    if (a->n != b->n)
        return false;
    for (i = 0; i < a->n; i++)
        if (!rn_value_equal(arena, a->items[i], b->items[i]))
            return false;
    return true;
}

static bool dicts_equal(struct rn_arena *arena, const struct rn_dict *a, const struct rn_dict *b)
{
    size_t i;

    if (a->n != b->n)
        return false;
    for (i = 0; i < a->n; i++) {
        const struct rn_dict_entry *other = rn_dict_find(arena, b, a->entries[i].key);

        if (other == NULL || !rn_value_equal(arena, a->entries[i].value, other->value))
            return false;
    }
    return true;
}

bool rn_value_equal(struct rn_arena *arena, struct rn_value a, struct rn_value b)
{
    bool equal;

    rn_step(arena, 1);
    if (is_number(a) && is_number(b))
        return numbers_equal(a, b);
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case RN_VALUE_STRING:
        if (a.string->n != b.string->n)
            return false;
        rn_step(arena, a.string->n / 16);
        return memcmp(a.string->bytes, b.string->bytes, a.string->n) == 0;
    case RN_VALUE_LIST:
    case RN_VALUE_TUPLE:
        rn_enter(arena);
        equal = a.list == b.list || lists_equal(arena, a.list, b.list);
        rn_leave(arena);
        return equal;
    case RN_VALUE_DICT:
        rn_enter(arena);
        equal = a.dict == b.dict || dicts_equal(arena, a.dict, b.dict);
        rn_leave(arena);
        return equal;
    case RN_VALUE_OBJECT:
        return a.object == b.object;
    default:
        return true;
    }
}

/* ---- Dicts ---- */

struct rn_dict *rn_dict_new(struct rn_arena *arena)
{
    struct rn_dict *dict = rn_arena_take(arena, 1, sizeof *dict);

    *dict = (struct rn_dict){.seed = mix((uint64_t)(uintptr_t)dict, (uint64_t)(uintptr_t)arena)};
    return dict;
}

struct rn_value rn_dict_value(struct rn_dict *dict)
{
    return (struct rn_value){.kind = RN_VALUE_DICT, .dict = dict};
}

static bool key_equal(struct rn_arena *arena, const struct rn_dict_entry *entry, struct rn_value key, uint64_t hash)
{
    return entry->hash == hash && rn_value_equal(arena, entry->key, key);
}

/* The index's slot of a key: that of its entry, or a free one. */
static uint32_t *probe(struct rn_arena *arena, const struct rn_dict *dict, struct rn_value key, uint64_t hash)
{
    size_t at = hash & (dict->index_cap - 1);

    while (dict->index[at] != 0 && !key_equal(arena, &dict->entries[dict->index[at] - 1], key, hash)) {
        rn_step(arena, 1);
        at = (at + 1) & (dict->index_cap - 1);
    }
    return &dict->index[at];
}

static struct rn_dict_entry *find(struct rn_arena *arena, const struct rn_dict *dict, struct rn_value key,
                                  uint64_t hash)
{
    size_t i;

    if (dict->index != NULL) {
        i = *probe(arena, dict, key, hash);
        return i == 0 ? NULL : &dict->entries[i - 1];
    }
    for (i = 0; i < dict->n; i++)
        if (key_equal(arena, &dict->entries[i], key, hash))
            return &dict->entries[i];
    return NULL;
}

struct rn_dict_entry *rn_dict_find(struct rn_arena *arena, const struct rn_dict *dict, struct rn_value key)
{
    return find(arena, dict, key, hash_value(arena, key, dict->seed));
}

static void index_entry(struct rn_dict *dict, size_t i)
{
    size_t at = dict->entries[i].hash & (dict->index_cap - 1);

    while (dict->index[at] != 0)
        at = (at + 1) & (dict->index_cap - 1);
    dict->index[at] = (uint32_t)i + 1;
}

static void grow(struct rn_arena *arena, struct rn_dict *dict)
{
    size_t cap = dict->cap < 4 ? 4 : 2 * dict->cap, i;

    if (cap > UINT32_MAX / 4)
        rn_raise(arena, RUNNEL_INVALID, "a dict of more than %zu members", dict->n);
    dict->entries = rn_arena_grow(arena, dict->entries, dict->n, cap, sizeof *dict->entries);
    dict->cap = cap;
    if (cap <= DICT_SMALL)
        return;
    dict->index_cap = 2 * cap;
    dict->index = rn_arena_take(arena, dict->index_cap, sizeof *dict->index);
    memset(dict->index, 0, dict->index_cap * sizeof *dict->index);
    for (i = 0; i < dict->n; i++)
        index_entry(dict, i);
    rn_step(arena, dict->n);
}

void rn_dict_set(struct rn_arena *arena, struct rn_dict *dict, struct rn_value key, struct rn_value value)
{
    uint64_t hash = hash_value(arena, key, dict->seed);
    struct rn_dict_entry *entry = find(arena, dict, key, hash);

    if (entry != NULL) {
        entry->value = value;
        return;
    }
    if (dict->n == dict->cap)
        grow(arena, dict);
    dict->entries[dict->n] = (struct rn_dict_entry){key, value, hash};
    if (dict->index != NULL)
        index_entry(dict, dict->n);
    dict->n++;
}

struct rn_value rn_dict_get(struct rn_value dict, const char *key, size_t n)
{
    const struct rn_dict *d = dict.dict;
    struct rn_str string = {.bytes = key, .n = n};
    struct rn_arena none = {.steps_limit = UINT64_MAX}; /* equality of strings raises nothing */
    const struct rn_dict_entry *entry;

    if (dict.kind != RN_VALUE_DICT)
        return rn_undefined();
    entry = find(&none, d, rn_string_value(&string), hash_bytes(key, n, d->seed));
    return entry == NULL ? rn_undefined() : entry->value;
}

struct rn_value rn_dict_at(struct rn_value dict, const char *key)
{
    return rn_dict_get(dict, key, strlen(key));
}

bool rn_value_is(struct rn_value value, const char *text)
{
    size_t n = strlen(text);

    return value.kind == RN_VALUE_STRING && value.string->n == n && memcmp(value.string->bytes, text, n) == 0;
}
