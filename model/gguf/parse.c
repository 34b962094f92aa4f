/* Header bytes to entries and tensors, with every check within one file: see internal.h.
 *
 *     "GGUF"  u32 version  u64 tensors  u64 entries
 *     entry:  string key  u32 type  value            string: u64 length, bytes    array: u32 type, u64 count, values
 *     tensor: string name  u32 n_dims  u64 dims[n_dims]  u32 type  u64 offset
 *     padding to general.alignment, then the data; a tensor's offset counts from there
 *
 * Everything is read through a cursor that cannot pass the end. A count is believed only as far as
 * the bytes that remain could hold it, and arrays grow as records are really read. Arrays of arrays
 * are refused, so nothing recurses. Sizes are multiplied and added with checks. Time is linear in
 * the header, but for sorting the tensors by offset. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/gguf/internal.h"
#include "model/quant/quant.h"

/* The shortest records: a key or name of one byte, a value of one byte, one dimension. */
#define MIN_ENTRY_BYTES (8 + 1 + 4 + 1)
#define MIN_TENSOR_BYTES (8 + 1 + 4 + 8 + 4 + 8)

/* What a sentence is about. */
enum subject { HEADER, KEY, TENSOR };

struct parse {
    struct rn_gguf *gguf;
    uint64_t at;    /* next byte; at <= have and at <= limit */
    uint64_t limit; /* the file's end, or the longest header allowed */
    enum subject subject;
    uint64_t index;      /* of the key or tensor */
    struct rn_view name; /* n = 0: not read yet, or not fit to show */
    runnel_error *error;
};

/* "FILE: key NAME: sentence". Where more bytes are wanted there is no fault yet: BUSY. */
static runnel_status fail(struct parse *p, runnel_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static runnel_status fail(struct parse *p, runnel_status status, const char *format, ...)
{
    static const char *const names[] = {"header", "key", "tensor"};
    char sentence[RUNNEL_ERROR_BYTES], number[32];
    struct rn_shown path = rn_shown_path(p->gguf->path);
    va_list args;

    if (p->gguf->need > 0)
        return RUNNEL_BUSY;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    if (p->subject == HEADER)
        return rn_error_set(p->error, status, "%s: %s", path.text, sentence);
    snprintf(number, sizeof number, "number %llu", (unsigned long long)p->index);
    return rn_error_set(p->error, status, "%s: %s %s: %s", path.text, names[p->subject],
                        p->name.n > 0 ? rn_shown_name(p->name).text : number, sentence);
}

/* The next n bytes, or NULL: then fail() tells whether the file or only the buffer ends. */
static const char *take(struct parse *p, uint64_t n)
{
    const char *bytes = p->gguf->header + p->at;

    if (n > p->limit - p->at)
        return NULL;
    if (n > p->gguf->have - p->at) {
        p->gguf->need = p->at + n;
        return NULL;
    }
    p->at += n;
    return bytes;
}

static runnel_status ends_in(struct parse *p, const char *what)
{
    if (p->limit < p->gguf->file_bytes)
        return fail(p, RUNNEL_FORMAT, "the header is longer than %llu bytes", (unsigned long long)RN_GGUF_MAX_HEADER);
    return fail(p, RUNNEL_FORMAT, "the file ends in %s", what);
}

static bool read_number(struct parse *p, void *out, size_t bytes)
{
    const char *from = take(p, bytes);

    if (from != NULL)
        memcpy(out, from, bytes);
    return from != NULL;
}

static runnel_status read_string(struct parse *p, uint64_t most, const char *what, struct rn_view *out)
{
    uint64_t n;
    const char *bytes;

    if (!read_number(p, &n, sizeof n))
        return ends_in(p, what);
    if (n > most)
        return fail(p, RUNNEL_FORMAT, "%s claims %llu bytes; at most %llu are allowed", what, (unsigned long long)n,
                    (unsigned long long)most);
    bytes = take(p, n);
    if (bytes == NULL)
        return ends_in(p, what);
    *out = (struct rn_view){bytes, (size_t)n};
    return RUNNEL_OK;
}

/* A key or a tensor's name: shown in sentences from here on. */
static runnel_status read_name(struct parse *p, uint64_t most, const char *what, struct rn_view *out)
{
    runnel_status status;

    p->name.n = 0;
    status = read_string(p, most, what, out);
    if (status != RUNNEL_OK)
        return status;
    if (out->n == 0)
        return fail(p, RUNNEL_FORMAT, "%s is empty", what);
    if (!rn_utf8_name_check(*out))
        return fail(p, RUNNEL_FORMAT, "%s is not UTF-8, or has control characters", what);
    p->name = *out;
    return RUNNEL_OK;
}

void *rn_gguf_grow(struct rn_heap *heap, void *items, uint64_t n, uint64_t *capacity, uint64_t most, size_t size)
{
    uint64_t wanted = *capacity < 32 ? 64 : 2 * *capacity;
    void *grown;

    if (n < *capacity)
        return items;
    if (wanted > most)
        wanted = most;
    grown = rn_realloc(heap, items, wanted, size);
    if (grown != NULL)
        *capacity = wanted;
    return grown;
}

/* Bytes of a value; 0 for strings, arrays and what is not known. */
static uint32_t value_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

    return type < sizeof bytes ? bytes[type] : 0;
}

static runnel_status read_strings(struct parse *p, const struct rn_gguf_entry *entry)
{
    struct rn_view skipped;

    if (entry->count > (p->limit - p->at) / 8)
        return fail(p, RUNNEL_FORMAT, "it claims %llu strings, more than the header can hold",
                    (unsigned long long)entry->count);
    for (uint64_t i = 0; i < entry->count; i++) {
        runnel_status status = read_string(p, RN_GGUF_MAX_HEADER, "its text", &skipped);

        if (status != RUNNEL_OK)
            return status;
    }
    return RUNNEL_OK;
}

static runnel_status read_values(struct parse *p, const struct rn_gguf_entry *entry)
{
    uint32_t size = value_bytes(entry->item);
    const char *bytes;

    if (entry->count > (p->limit - p->at) / size)
        return fail(p, RUNNEL_FORMAT, "it claims %llu values of %u bytes, more than the header can hold",
                    (unsigned long long)entry->count, size);
    bytes = take(p, entry->count * size);
    if (bytes == NULL)
        return ends_in(p, "its value");
    for (uint64_t i = 0; entry->item == RN_GGUF_BOOL && i < entry->count; i++)
        if ((unsigned char)bytes[i] > 1)
            return fail(p, RUNNEL_FORMAT, "a truth value is %u, neither 0 nor 1", (unsigned char)bytes[i]);
    return RUNNEL_OK;
}

/* Type, and of an array the item type and count. */
static runnel_status read_kind(struct parse *p, struct rn_gguf_entry *entry)
{
    if (!read_number(p, &entry->type, 4))
        return ends_in(p, "its type");
    entry->item = entry->type;
    entry->count = 1;
    if (entry->type == RN_GGUF_ARRAY) {
        if (!read_number(p, &entry->item, 4) || !read_number(p, &entry->count, 8))
            return ends_in(p, "its type");
        if (entry->item == RN_GGUF_ARRAY)
            return fail(p, RUNNEL_FORMAT, "it is an array of arrays, which is not allowed");
    }
    if (entry->item > RN_GGUF_F64)
        return fail(p, RUNNEL_FORMAT, "its value type %u is not known", entry->item);
    return RUNNEL_OK;
}

static runnel_status read_entry(struct parse *p, struct rn_gguf_entry *entry)
{
    uint64_t from;
    runnel_status status = read_name(p, RN_GGUF_MAX_KEY, "its name", &entry->key);

    if (status == RUNNEL_OK)
        status = read_kind(p, entry);
    if (status != RUNNEL_OK)
        return status;
    from = p->at;
    status = entry->item == RN_GGUF_STRING ? read_strings(p, entry) : read_values(p, entry);
    entry->data = p->gguf->header + from;
    entry->data_bytes = (size_t)(p->at - from);
    return status;
}

static runnel_status read_entries(struct parse *p, uint64_t count)
{
    struct rn_gguf *g = p->gguf;
    uint64_t duplicate = 0;
    runnel_status status;

    p->subject = KEY;
    for (g->n_entries = 0; g->n_entries < count; g->n_entries++) {
        void *grown = rn_gguf_grow(g->heap, g->entries, g->n_entries, &g->entry_capacity, count, sizeof *g->entries);

        if (grown == NULL)
            return rn_gguf_no_memory(g, p->error);
        g->entries = grown;
        p->index = g->n_entries;
        status = read_entry(p, &g->entries[g->n_entries]);
        if (status != RUNNEL_OK)
            return status;
    }
    status = rn_names_build(&g->entry_names, g->heap, g->entries, sizeof *g->entries, count, &duplicate);
    if (status == RUNNEL_NO_MEMORY)
        return rn_gguf_no_memory(g, p->error);
    if (status == RUNNEL_FORMAT) {
        p->name = g->entries[duplicate].key;
        return fail(p, RUNNEL_FORMAT, "it stands there twice");
    }
    p->subject = HEADER;
    return RUNNEL_OK;
}

static runnel_status find_alignment(struct parse *p)
{
    const struct rn_gguf_entry *entry = rn_gguf_find(p->gguf, "general.alignment");
    uint32_t alignment = 32; /* where the key is absent, says the specification */

    if (entry != NULL) {
        p->subject = KEY;
        p->name = entry->key;
        if (entry->type != RN_GGUF_U32)
            return fail(p, RUNNEL_FORMAT, "its value type is %u; it must be u32", entry->type);
        memcpy(&alignment, entry->data, sizeof alignment);
        if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > RN_GGUF_MAX_ALIGNMENT)
            return fail(p, RUNNEL_FORMAT, "%u is not a power of two from 1 to %d", alignment, RN_GGUF_MAX_ALIGNMENT);
        p->subject = HEADER;
    }
    p->gguf->alignment = alignment;
    return RUNNEL_OK;
}

static runnel_status read_shape(struct parse *p, struct rn_tensor *t)
{
    if (!read_number(p, &t->n_dims, 4))
        return ends_in(p, "its dimensions");
    if (t->n_dims < 1 || t->n_dims > 4)
        return fail(p, RUNNEL_FORMAT, "it has %u dimensions; 1 to 4 are allowed", t->n_dims);
    t->elements = 1;
    for (uint32_t i = 0; i < 4; i++) {
        t->dims[i] = 1;
        if (i < t->n_dims && !read_number(p, &t->dims[i], 8))
            return ends_in(p, "its dimensions");
        if (t->dims[i] == 0)
            return fail(p, RUNNEL_FORMAT, "its dimension %u is zero", i);
        if (__builtin_mul_overflow(t->elements, t->dims[i], &t->elements))
            return fail(p, RUNNEL_FORMAT, "its dimensions multiply to more than 2^64");
    }
    return RUNNEL_OK;
}

static runnel_status read_tensor(struct parse *p, struct rn_tensor *t)
{
    const struct rn_type *type;
    runnel_status status = read_name(p, RN_GGUF_MAX_NAME, "its name", &t->name);

    if (status == RUNNEL_OK)
        status = read_shape(p, t);
    if (status != RUNNEL_OK)
        return status;
    if (!read_number(p, &t->type, 4) || !read_number(p, &t->offset, 8))
        return ends_in(p, "its record");
    type = rn_type(t->type);
    if (type == NULL)
        return fail(p, RUNNEL_UNSUPPORTED, "its type %u is not known, or was removed from the format", t->type);
    if (t->dims[0] % type->elements != 0)
        return fail(p, RUNNEL_FORMAT, "its rows of %llu elements are not whole %s blocks of %u",
                    (unsigned long long)t->dims[0], type->name, type->elements);
    if (__builtin_mul_overflow(t->elements / type->elements, type->bytes, &t->bytes))
        return fail(p, RUNNEL_FORMAT, "its size in bytes exceeds 2^64");
    if (t->offset % p->gguf->alignment != 0)
        return fail(p, RUNNEL_FORMAT, "its offset %llu is not a multiple of the alignment %u",
                    (unsigned long long)t->offset, p->gguf->alignment);
    return RUNNEL_OK;
}

static runnel_status read_tensors(struct parse *p, uint64_t count)
{
    struct rn_gguf *g = p->gguf;

    p->subject = TENSOR;
    for (g->n_tensors = 0; g->n_tensors < count; g->n_tensors++) {
        void *grown = rn_gguf_grow(g->heap, g->tensors, g->n_tensors, &g->tensor_capacity, count, sizeof *g->tensors);
        runnel_status status;

        if (grown == NULL)
            return rn_gguf_no_memory(g, p->error);
        g->tensors = grown;
        p->index = g->n_tensors;
        status = read_tensor(p, &g->tensors[g->n_tensors]);
        if (status != RUNNEL_OK)
            return status;
    }
    return RUNNEL_OK;
}

/* Turns offsets within the data into offsets within the file, once the header's end is known. */
static runnel_status place_tensors(struct parse *p)
{
    struct rn_gguf *g = p->gguf;
    uint64_t start = (p->at + g->alignment - 1) / g->alignment * g->alignment;
    uint64_t room = g->file_bytes > start ? g->file_bytes - start : 0;

    for (uint64_t i = 0; i < g->n_tensors; i++) {
        struct rn_tensor *t = &g->tensors[i];

        p->index = i;
        p->name = t->name;
        if (t->offset > room || t->bytes > room - t->offset)
            return fail(p, RUNNEL_FORMAT, "its %llu bytes at offset %llu reach past the file's end",
                        (unsigned long long)t->bytes, (unsigned long long)t->offset);
        t->offset += start;
        t->part = 0;
        t->data = g->data + t->offset;
    }
    return RUNNEL_OK;
}

/* Moves order[root] down until the heap [0, n) has the larger offsets on top again. */
static void sift(const struct rn_tensor *tensors, uint32_t *order, uint64_t root, uint64_t n)
{
    for (uint64_t child; (child = 2 * root + 1) < n; root = child) {
        uint32_t swap = order[root];

        if (child + 1 < n && tensors[order[child + 1]].offset > tensors[order[child]].offset)
            child++;
        if (tensors[order[child]].offset <= tensors[swap].offset)
            return;
        order[root] = order[child];
        order[child] = swap;
    }
}

/* Heap sort: in place, n log n whatever the file holds; qsort of libc may call malloc. */
static void sort_by_offset(const struct rn_tensor *tensors, uint32_t *order, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    for (uint64_t i = n / 2; i-- > 0;)
        sift(tensors, order, i, n);
    for (uint64_t i = n; i-- > 1;) {
        uint32_t last = order[i];

        order[i] = order[0];
        order[0] = last;
        sift(tensors, order, 0, i);
    }
}

static runnel_status check_overlap(struct parse *p)
{
    struct rn_gguf *g = p->gguf;
    uint32_t *order = rn_alloc(g->heap, g->n_tensors, sizeof *order);
    runnel_status status = RUNNEL_OK;

    if (order == NULL)
        return rn_gguf_no_memory(g, p->error);
    sort_by_offset(g->tensors, order, g->n_tensors);
    for (uint64_t i = 1; i < g->n_tensors && status == RUNNEL_OK; i++) {
        const struct rn_tensor *a = &g->tensors[order[i - 1]], *b = &g->tensors[order[i]];

        p->name = b->name;
        if (a->bytes > b->offset - a->offset)
            status = fail(p, RUNNEL_FORMAT, "its data overlaps that of tensor %s", rn_shown_name(a->name).text);
    }
    rn_free(g->heap, order);
    return status;
}

static runnel_status check_version(struct parse *p)
{
    uint32_t version = p->gguf->version;

    if (version == __builtin_bswap32(2) || version == __builtin_bswap32(3))
        return fail(p, RUNNEL_UNSUPPORTED, "the file is big-endian");
    if (version != 2 && version != 3)
        return fail(p, RUNNEL_UNSUPPORTED, "GGUF version %u is not supported; versions 2 and 3 are", version);
    return RUNNEL_OK;
}

static runnel_status read_start(struct parse *p, uint64_t *n_tensors, uint64_t *n_entries)
{
    const char *magic = take(p, 4);
    runnel_status status;
    uint64_t left;

    if (magic == NULL)
        return ends_in(p, "its first four bytes");
    if (memcmp(magic, "GGUF", 4) != 0)
        return fail(p, RUNNEL_FORMAT, "it is not a GGUF file");
    if (!read_number(p, &p->gguf->version, 4))
        return ends_in(p, "its version");
    status = check_version(p);
    if (status != RUNNEL_OK)
        return status;
    if (!read_number(p, n_tensors, 8) || !read_number(p, n_entries, 8))
        return ends_in(p, "its counts");
    left = p->limit - p->at;
    if (*n_entries > RN_GGUF_MAX_ENTRIES || *n_entries > left / MIN_ENTRY_BYTES)
        return fail(p, RUNNEL_FORMAT, "the header claims %llu keys, more than the file can hold",
                    (unsigned long long)*n_entries);
    if (*n_tensors > RN_GGUF_MAX_TENSORS || *n_tensors > left / MIN_TENSOR_BYTES)
        return fail(p, RUNNEL_FORMAT, "the header claims %llu tensors, more than the file can hold",
                    (unsigned long long)*n_tensors);
    return RUNNEL_OK;
}

runnel_status rn_gguf_parse_header(struct rn_gguf *gguf, runnel_error *error)
{
    struct parse p = {.gguf = gguf, .error = error, .limit = gguf->file_bytes, .subject = HEADER};
    uint64_t n_tensors = 0, n_entries = 0;
    runnel_status status;

    if (p.limit > RN_GGUF_MAX_HEADER)
        p.limit = RN_GGUF_MAX_HEADER;
    gguf->need = 0;
    rn_gguf_drop_directory(gguf);
    status = read_start(&p, &n_tensors, &n_entries);
    if (status == RUNNEL_OK)
        status = read_entries(&p, n_entries);
    if (status == RUNNEL_OK)
        status = find_alignment(&p);
    if (status == RUNNEL_OK)
        status = read_tensors(&p, n_tensors);
    if (status == RUNNEL_OK)
        status = place_tensors(&p);
    if (status == RUNNEL_OK)
        status = check_overlap(&p);
    gguf->header_bytes = p.at;
    return status;
}
