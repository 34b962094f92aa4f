/* Looking into a file: see runnel.h and file.h.
 *
 * Strings of an array lie behind each other and have to be walked. So that showing a whole
 * vocabulary by index is not quadratic, the place of every 64th string is noted at opening.
 * Immutable after opening: any thread may read. */
#include "model/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain_locale.h"
#include "base/sized.h"
#include "base/status.h"
#include "model/quant/quant.h"

static runnel_status mark_strings(struct runnel_file *file, uint64_t index)
{
    const struct rn_gguf_entry *entry = rn_gguf_entry(file->gguf, index);
    const char *cursor = entry->data, **marks;

    if (entry->item != RN_GGUF_STRING || entry->count <= RN_FILE_STRIDE)
        return RUNNEL_OK;
    marks = rn_alloc(&file->heap, entry->count / RN_FILE_STRIDE + 1, sizeof *marks);
    if (marks == NULL)
        return RUNNEL_NO_MEMORY;
    for (uint64_t i = 0; i < entry->count; i++) {
        if (i % RN_FILE_STRIDE == 0)
            marks[i / RN_FILE_STRIDE] = cursor;
        rn_gguf_item_string(&cursor);
    }
    file->marks[index] = marks;
    return RUNNEL_OK;
}

static runnel_status mark_all(struct runnel_file *file)
{
    uint64_t n = rn_gguf_n_entries(file->gguf);
    runnel_status status = RUNNEL_OK;

    file->marks = rn_calloc(&file->heap, n, sizeof *file->marks);
    if (file->marks == NULL)
        return RUNNEL_NO_MEMORY;
    for (uint64_t i = 0; i < n && status == RUNNEL_OK; i++)
        status = mark_strings(file, i);
    return status;
}

runnel_status runnel_file_open(const char *path, runnel_file **out, runnel_error *error)
{
    struct rn_heap heap;
    struct runnel_file *file;
    runnel_status status;

    rn_error_clear(error);
    if (path == NULL || out == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "%s is NULL", path == NULL ? "path" : "file");
    rn_heap_init(&heap, NULL);
    file = rn_calloc(&heap, 1, sizeof *file);
    if (file == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "%s: the allocator refused memory", path);
    file->heap = heap;
    status = rn_gguf_open(&file->heap, path, &file->gguf, error);
    if (status == RUNNEL_OK) {
        status = mark_all(file);
        if (status != RUNNEL_OK)
            rn_error_set(error, status, "%s: the allocator refused memory", path);
    }
    if (status != RUNNEL_OK) {
        runnel_file_close(file);
        return status;
    }
    *out = file;
    return RUNNEL_OK;
}

void runnel_file_close(runnel_file *file)
{
    struct rn_heap heap;

    if (file == NULL)
        return;
    for (uint64_t i = 0; file->marks != NULL && i < rn_gguf_n_entries(file->gguf); i++)
        rn_free(&file->heap, file->marks[i]);
    rn_free(&file->heap, file->marks);
    rn_gguf_free(file->gguf);
    rn_arch_rows_fini(&file->architectures, &file->heap);
    heap = file->heap;
    rn_free(&heap, file);
}

static void collect_info(const struct rn_gguf *gguf, runnel_file_info *info)
{
    runnel_file_info got = {
        .version = rn_gguf_version(gguf),
        .parts = rn_gguf_parts(gguf),
        .alignment = rn_gguf_alignment(gguf),
        .n_metadata = rn_gguf_n_entries(gguf),
        .n_tensors = rn_gguf_n_tensors(gguf),
        .file_bytes = rn_gguf_file_bytes(gguf),
    };

    for (uint64_t i = 0; i < got.n_tensors; i++) {
        got.parameters += rn_gguf_tensor(gguf, i)->elements;
        got.weight_bytes += rn_gguf_tensor(gguf, i)->bytes;
    }
    *info = got;
}

runnel_status runnel_file_get_info(const runnel_file *file, runnel_file_info *info)
{
    runnel_file_info now;

    if (file == NULL || info == NULL || !rn_sized_known(info->struct_size, sizeof now))
        return RUNNEL_INVALID;
    collect_info(file->gguf, &now);
    rn_sized_write(info, info->struct_size, &now, sizeof now);
    return RUNNEL_OK;
}

/* "u32", "array of f32": both lists are in the order of enum rn_gguf_type. */
static const char *type_name(const struct rn_gguf_entry *entry)
{
    static const char *const scalars[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                          "bool", "string", "array", "u64", "i64", "f64"};
    static const char *const arrays[] = {"array of u8",     "array of i8",    "array of u16", "array of i16",
                                         "array of u32",    "array of i32",   "array of f32", "array of bool",
                                         "array of string", "array of array", "array of u64", "array of i64",
                                         "array of f64"};

    return entry->type == RN_GGUF_ARRAY ? arrays[entry->item] : scalars[entry->type];
}

runnel_status runnel_file_metadata(const runnel_file *file, uint64_t index, runnel_metadata *metadata)
{
    const struct rn_gguf_entry *entry;
    runnel_metadata now;

    if (file == NULL || metadata == NULL || !rn_sized_known(metadata->struct_size, sizeof now))
        return RUNNEL_INVALID;
    if (index >= rn_gguf_n_entries(file->gguf))
        return RUNNEL_NOT_FOUND;
    entry = rn_gguf_entry(file->gguf, index);
    now = (runnel_metadata){
        .key = entry->key.bytes, .key_bytes = entry->key.n, .type = type_name(entry), .count = entry->count};
    rn_sized_write(metadata, metadata->struct_size, &now, sizeof now);
    return RUNNEL_OK;
}

static struct rn_view string_element(const struct runnel_file *file, uint64_t index, uint64_t element)
{
    const char *cursor = rn_gguf_entry(file->gguf, index)->data;
    uint64_t at = 0;
    struct rn_view view;

    if (file->marks[index] != NULL) {
        at = element / RN_FILE_STRIDE * RN_FILE_STRIDE;
        cursor = file->marks[index][element / RN_FILE_STRIDE];
    }
    do {
        view = rn_gguf_item_string(&cursor);
    } while (at++ < element);
    return view;
}

/* The fewest digits that read back as the same number; whole numbers without an exponent. */
static int float_text(double value, bool single, char *text, size_t capacity)
{
    int most = single ? 9 : 17, n = 0;

    if (fabs(value) < 1e15 && value == floor(value))
        return snprintf(text, capacity, "%.0f", value);
    for (int digits = 1; digits <= most; digits++) {
        n = snprintf(text, capacity, "%.*g", digits, value);
        if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value)
            break;
    }
    return n;
}

static size_t number_text(const struct rn_gguf_entry *entry, uint64_t element, char *text, size_t capacity)
{
    locale_t host;
    int n;

    switch (entry->item) {
    case RN_GGUF_F32:
    case RN_GGUF_F64:
        host = rn_plain_locale();
        n = float_text(rn_gguf_item_f64(entry, element), entry->item == RN_GGUF_F32, text, capacity);
        uselocale(host);
        break;
    case RN_GGUF_BOOL:
        n = snprintf(text, capacity, "%s", rn_gguf_item_i64(entry, element) != 0 ? "true" : "false");
        break;
    case RN_GGUF_U64:
        n = snprintf(text, capacity, "%llu", (unsigned long long)rn_gguf_item_i64(entry, element));
        break;
    default:
        n = snprintf(text, capacity, "%lld", (long long)rn_gguf_item_i64(entry, element));
        break;
    }
    return (size_t)n;
}

runnel_status runnel_file_metadata_text(const runnel_file *file, uint64_t index, uint64_t element, char *text,
                                        size_t capacity, size_t *text_bytes)
{
    char number[64];
    struct rn_view view;
    const struct rn_gguf_entry *entry;

    if (file == NULL || text_bytes == NULL || (text == NULL && capacity > 0))
        return RUNNEL_INVALID;
    if (index >= rn_gguf_n_entries(file->gguf) || element >= rn_gguf_entry(file->gguf, index)->count)
        return RUNNEL_NOT_FOUND;
    entry = rn_gguf_entry(file->gguf, index);
    if (entry->item == RN_GGUF_STRING)
        view = string_element(file, index, element);
    else
        view = (struct rn_view){number, number_text(entry, element, number, sizeof number)};
    *text_bytes = view.n;
    if (capacity > 0)
        memcpy(text, view.bytes, view.n < capacity ? view.n : capacity);
    return RUNNEL_OK;
}

runnel_status runnel_file_tensor(const runnel_file *file, uint64_t index, runnel_tensor *tensor)
{
    const struct rn_tensor *t;
    runnel_tensor now;

    if (file == NULL || tensor == NULL || !rn_sized_known(tensor->struct_size, sizeof now))
        return RUNNEL_INVALID;
    if (index >= rn_gguf_n_tensors(file->gguf))
        return RUNNEL_NOT_FOUND;
    t = rn_gguf_tensor(file->gguf, index);
    now = (runnel_tensor){
        .name = t->name.bytes,
        .name_bytes = t->name.n,
        .type = rn_type(t->type)->name,
        .n_dims = t->n_dims,
        .bytes = t->bytes,
        .part = t->part,
        .offset = t->offset,
    };
    memcpy(now.dims, t->dims, sizeof now.dims);
    rn_sized_write(tensor, tensor->struct_size, &now, sizeof now);
    return RUNNEL_OK;
}
