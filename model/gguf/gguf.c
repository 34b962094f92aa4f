/* Life, accessors and typed reading of a GGUF directory: see gguf.h and internal.h. */
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "model/gguf/internal.h"

static_assert(offsetof(struct rn_gguf_entry, key) == 0 && offsetof(struct rn_tensor, name) == 0,
              "rn_names finds the name at the start of an item");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are read as they stand in the file");

struct rn_gguf *rn_gguf_new(struct rn_heap *heap, const char *path)
{
    struct rn_gguf *gguf = rn_calloc(heap, 1, sizeof *gguf);

    if (gguf == NULL)
        return NULL;
    gguf->heap = heap;
    gguf->path = rn_strndup(heap, path, strlen(path));
    if (gguf->path == NULL) {
        rn_free(heap, gguf);
        return NULL;
    }
    gguf->shown = rn_shown_path(path);
    return gguf;
}

void rn_gguf_drop_directory(struct rn_gguf *gguf)
{
    rn_names_free(&gguf->entry_names, gguf->heap);
    rn_names_free(&gguf->tensor_names, gguf->heap);
    rn_free(gguf->heap, gguf->entries);
    rn_free(gguf->heap, gguf->tensors);
    gguf->entries = NULL;
    gguf->tensors = NULL;
    gguf->n_entries = gguf->entry_capacity = 0;
    gguf->n_tensors = gguf->tensor_capacity = 0;
}

void rn_gguf_free(struct rn_gguf *gguf)
{
    struct rn_heap *heap;

    if (gguf == NULL)
        return;
    heap = gguf->heap;
    for (uint64_t i = 0; i < gguf->n_others; i++)
        rn_gguf_free(gguf->others[i]);
    rn_free(heap, gguf->others);
    rn_gguf_drop_directory(gguf);
    rn_free(heap, gguf->header_copy);
    if (gguf->map != NULL)
        munmap(gguf->map, (size_t)gguf->file_bytes);
    rn_free(heap, gguf->path);
    rn_free(heap, gguf);
}

static void release(const struct rn_gguf *gguf, uintptr_t begin, uintptr_t end)
{
    uintptr_t map = (uintptr_t)gguf->map, page = (uintptr_t)sysconf(_SC_PAGESIZE);

    if (gguf->map == NULL || begin < map || end > map + gguf->file_bytes)
        return;
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
    if (begin < end) /* a file's map: nothing is lost */
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

void rn_gguf_release(const struct rn_gguf *gguf, const void *bytes, size_t n)
{
    uintptr_t begin = (uintptr_t)bytes;

    release(gguf, begin, begin + n);
    for (uint64_t i = 0; i < gguf->n_others; i++)
        release(gguf->others[i], begin, begin + n);
}

runnel_status rn_gguf_no_memory(const struct rn_gguf *gguf, runnel_error *error)
{
    return rn_error_set(error, RUNNEL_NO_MEMORY, "%s: the allocator refused memory for the directory",
                        rn_shown_path(gguf->path).text);
}

runnel_status rn_gguf_index_tensors(struct rn_gguf *gguf, runnel_error *error)
{
    uint64_t duplicate = 0;
    runnel_status status = rn_names_build(&gguf->tensor_names, gguf->heap, gguf->tensors, sizeof *gguf->tensors,
                                          gguf->n_tensors, &duplicate);

    if (status == RUNNEL_NO_MEMORY)
        return rn_gguf_no_memory(gguf, error);
    if (status == RUNNEL_FORMAT)
        return rn_error_set(error, RUNNEL_FORMAT, "%s: tensor %s: it stands there twice",
                            rn_shown_path(gguf->path).text, rn_shown_name(gguf->tensors[duplicate].name).text);
    return RUNNEL_OK;
}

static runnel_status parse_whole(struct rn_gguf *gguf, runnel_error *error)
{
    uint64_t count = 1;
    runnel_status status = rn_gguf_parse_header(gguf, error);

    RN_ASSERT(status != RUNNEL_BUSY);
    if (status == RUNNEL_OK)
        status = rn_gguf_get_u64(gguf, "split.count", false, 0, RN_GGUF_MAX_PARTS, &count, error);
    if (status == RUNNEL_OK && count > 1)
        status = rn_error_set(error, RUNNEL_UNSUPPORTED, "%s: key split.count: a split file cannot be read from memory",
                              rn_shown_path(gguf->path).text);
    return status == RUNNEL_OK ? rn_gguf_index_tensors(gguf, error) : status;
}

runnel_status rn_gguf_parse(struct rn_heap *heap, const void *bytes, size_t n, const char *name, struct rn_gguf **out,
                            runnel_error *error)
{
    struct rn_gguf *gguf = rn_gguf_new(heap, name);
    runnel_status status;

    *out = NULL;
    if (gguf == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "%s: the allocator refused memory", rn_shown_path(name).text);
    gguf->header = gguf->data = n > 0 ? bytes : "";
    gguf->have = gguf->file_bytes = n;
    status = parse_whole(gguf, error);
    if (status != RUNNEL_OK) {
        rn_gguf_free(gguf);
        return status;
    }
    *out = gguf;
    return RUNNEL_OK;
}

const char *rn_gguf_path(const struct rn_gguf *gguf)
{
    return gguf->shown.text;
}

uint32_t rn_gguf_version(const struct rn_gguf *gguf)
{
    return gguf->version;
}

uint32_t rn_gguf_alignment(const struct rn_gguf *gguf)
{
    return gguf->alignment;
}

uint32_t rn_gguf_parts(const struct rn_gguf *gguf)
{
    return (uint32_t)gguf->n_others + 1;
}

uint64_t rn_gguf_file_bytes(const struct rn_gguf *gguf)
{
    uint64_t bytes = gguf->file_bytes;

    for (uint64_t i = 0; i < gguf->n_others; i++)
        bytes += gguf->others[i]->file_bytes;
    return bytes;
}

uint64_t rn_gguf_modified_ns(const struct rn_gguf *gguf)
{
    uint64_t latest = gguf->modified_ns;

    for (uint64_t i = 0; i < gguf->n_others; i++)
        if (gguf->others[i]->modified_ns > latest)
            latest = gguf->others[i]->modified_ns;
    return latest;
}

void rn_gguf_set_rows(struct rn_gguf *gguf, const struct rn_arch_rows *rows)
{
    gguf->rows = rows;
}

const struct rn_arch_rows *rn_gguf_rows(const struct rn_gguf *gguf)
{
    return gguf->rows;
}

uint64_t rn_gguf_n_entries(const struct rn_gguf *gguf)
{
    return gguf->n_entries;
}

const struct rn_gguf_entry *rn_gguf_entry(const struct rn_gguf *gguf, uint64_t index)
{
    RN_CHECK(index < gguf->n_entries);
    return &gguf->entries[index];
}

const struct rn_gguf_entry *rn_gguf_find(const struct rn_gguf *gguf, const char *key)
{
    return rn_names_find(&gguf->entry_names, (struct rn_view){key, strlen(key)});
}

uint64_t rn_gguf_n_tensors(const struct rn_gguf *gguf)
{
    return gguf->n_tensors;
}

const struct rn_tensor *rn_gguf_tensor(const struct rn_gguf *gguf, uint64_t index)
{
    RN_CHECK(index < gguf->n_tensors);
    return &gguf->tensors[index];
}

const struct rn_tensor *rn_gguf_find_tensor(const struct rn_gguf *gguf, const char *name)
{
    return rn_names_find(&gguf->tensor_names, (struct rn_view){name, strlen(name)});
}

static bool is_signed(uint32_t type)
{
    return type == RN_GGUF_I8 || type == RN_GGUF_I16 || type == RN_GGUF_I32 || type == RN_GGUF_I64;
}

static bool is_integer(uint32_t type)
{
    return type <= RN_GGUF_I32 || type == RN_GGUF_U64 || type == RN_GGUF_I64;
}

static bool is_float(uint32_t type)
{
    return type == RN_GGUF_F32 || type == RN_GGUF_F64;
}

/* Whether a value of `type` may be read as one of `wanted`: see rn_gguf_get_array. */
static bool is_kind(uint32_t type, uint32_t wanted)
{
    return type == wanted || (is_integer(type) && is_integer(wanted)) || (is_float(type) && is_float(wanted));
}

static const char *kind_name(uint32_t wanted)
{
    return is_integer(wanted)       ? "an integer"
           : is_float(wanted)       ? "a float"
           : wanted == RN_GGUF_BOOL ? "a truth value"
                                    : "a string";
}

static runnel_status bad_key(const struct rn_gguf *gguf, const char *key, const char *sentence, runnel_error *error)
{
    return rn_error_set(error, RUNNEL_FORMAT, "%s: key %s: %s", rn_shown_path(gguf->path).text,
                        rn_shown_name((struct rn_view){key, strlen(key)}).text, sentence);
}

/* The scalar entry of a key, of the kind wanted. *entry is NULL when absent and not required. */
static runnel_status scalar(const struct rn_gguf *gguf, const char *key, bool required, uint32_t wanted,
                            const struct rn_gguf_entry **entry, runnel_error *error)
{
    *entry = rn_gguf_find(gguf, key);
    if (*entry == NULL)
        return required ? bad_key(gguf, key, "it is missing", error) : RUNNEL_OK;
    if (is_kind((*entry)->type, wanted))
        return RUNNEL_OK;
    return rn_error_set(error, RUNNEL_FORMAT, "%s: key %s: its value type is %u, not %s",
                        rn_shown_path(gguf->path).text, rn_shown_name((*entry)->key).text, (*entry)->type,
                        kind_name(wanted));
}

runnel_status rn_gguf_get_u64(const struct rn_gguf *gguf, const char *key, bool required, uint64_t min, uint64_t max,
                              uint64_t *value, runnel_error *error)
{
    const struct rn_gguf_entry *entry;
    runnel_status status = scalar(gguf, key, required, RN_GGUF_U64, &entry, error);
    int64_t got;

    if (status != RUNNEL_OK || entry == NULL)
        return status;
    got = rn_gguf_item_i64(entry, 0);
    if (is_signed(entry->type) && got < 0)
        return rn_error_set(error, RUNNEL_FORMAT, "%s: key %s: %lld is negative", rn_shown_path(gguf->path).text,
                            rn_shown_name(entry->key).text, (long long)got);
    if ((uint64_t)got < min || (uint64_t)got > max)
        return rn_error_set(error, RUNNEL_FORMAT, "%s: key %s: %llu is outside of %llu to %llu",
                            rn_shown_path(gguf->path).text, rn_shown_name(entry->key).text, (unsigned long long)got,
                            (unsigned long long)min, (unsigned long long)max);
    *value = (uint64_t)got;
    return RUNNEL_OK;
}

runnel_status rn_gguf_get_f64(const struct rn_gguf *gguf, const char *key, bool required, double min, double max,
                              double *value, runnel_error *error)
{
    const struct rn_gguf_entry *entry;
    runnel_status status = scalar(gguf, key, required, RN_GGUF_F64, &entry, error);
    double got;

    if (status != RUNNEL_OK || entry == NULL)
        return status;
    got = rn_gguf_item_f64(entry, 0);
    if (!isfinite(got) || got < min || got > max)
        return rn_error_set(error, RUNNEL_FORMAT, "%s: key %s: %g is outside of %g to %g",
                            rn_shown_path(gguf->path).text, rn_shown_name(entry->key).text, got, min, max);
    *value = got;
    return RUNNEL_OK;
}

runnel_status rn_gguf_get_bool(const struct rn_gguf *gguf, const char *key, bool required, bool *value,
                               runnel_error *error)
{
    const struct rn_gguf_entry *entry;
    runnel_status status = scalar(gguf, key, required, RN_GGUF_BOOL, &entry, error);

    if (status == RUNNEL_OK && entry != NULL)
        *value = entry->data[0] != 0;
    return status;
}

runnel_status rn_gguf_get_string(const struct rn_gguf *gguf, const char *key, bool required, struct rn_view *value,
                                 runnel_error *error)
{
    const struct rn_gguf_entry *entry;
    runnel_status status = scalar(gguf, key, required, RN_GGUF_STRING, &entry, error);

    if (status == RUNNEL_OK && entry != NULL) {
        const char *cursor = entry->data;

        *value = rn_gguf_item_string(&cursor);
    }
    return status;
}

runnel_status rn_gguf_get_array(const struct rn_gguf *gguf, const char *key, bool required, uint32_t item,
                                const struct rn_gguf_entry **entry, runnel_error *error)
{
    const struct rn_gguf_entry *found = rn_gguf_find(gguf, key);

    *entry = NULL;
    if (found == NULL)
        return required ? bad_key(gguf, key, "it is missing", error) : RUNNEL_OK;
    if (found->type != RN_GGUF_ARRAY)
        return bad_key(gguf, key, "it is not an array", error);
    if (!is_kind(found->item, item))
        return rn_error_set(error, RUNNEL_FORMAT, "%s: key %s: its items have type %u; each must be %s",
                            rn_shown_path(gguf->path).text, rn_shown_name(found->key).text, found->item,
                            kind_name(item));
    *entry = found;
    return RUNNEL_OK;
}

#define ITEM(tag, ctype)                                      \
    case tag: {                                               \
        ctype v;                                              \
                                                              \
        memcpy(&v, entry->data + index * sizeof v, sizeof v); \
        return v;                                             \
    }

int64_t rn_gguf_item_i64(const struct rn_gguf_entry *entry, uint64_t index)
{
    RN_CHECK(index < entry->count);
    switch (entry->item) {
        ITEM(RN_GGUF_U8, uint8_t)
        ITEM(RN_GGUF_BOOL, uint8_t)
        ITEM(RN_GGUF_I8, int8_t)
        ITEM(RN_GGUF_U16, uint16_t)
        ITEM(RN_GGUF_I16, int16_t)
        ITEM(RN_GGUF_U32, uint32_t)
        ITEM(RN_GGUF_I32, int32_t)
        ITEM(RN_GGUF_U64, int64_t)
        ITEM(RN_GGUF_I64, int64_t)
    default:
        RN_ASSERT(!"an entry of integers");
        return 0;
    }
}

double rn_gguf_item_f64(const struct rn_gguf_entry *entry, uint64_t index)
{
    RN_CHECK(index < entry->count);
    switch (entry->item) {
        ITEM(RN_GGUF_F32, float)
        ITEM(RN_GGUF_F64, double)
    default:
        RN_ASSERT(!"an entry of floats");
        return 0.0;
    }
}

struct rn_view rn_gguf_item_string(const char **cursor)
{
    uint64_t n;
    struct rn_view view;

    memcpy(&n, *cursor, sizeof n);
    view = (struct rn_view){*cursor + sizeof n, (size_t)n};
    *cursor = view.bytes + n;
    return view;
}
