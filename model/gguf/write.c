/* Writing GGUF files: see write.h. */
#include "model/gguf/write.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/new_file.h"

enum { ALIGNMENT = 32, PIECE = 4096 /* values converted at once */ };

void rn_gguf_writer_init(struct rn_gguf_writer *w, struct rn_heap *heap)
{
    *w = (struct rn_gguf_writer){.heap = heap};
}

void rn_gguf_writer_fini(struct rn_gguf_writer *w)
{
    rn_free(w->heap, w->entries.bytes);
    rn_free(w->heap, w->directory.bytes);
    rn_free(w->heap, w->tensors);
    rn_gguf_writer_init(w, w->heap);
}

static void put(struct rn_gguf_writer *w, struct rn_gguf_bytes *to, const void *bytes, size_t n)
{
    unsigned char *bigger;

    if (w->status != RUNNEL_OK || n == 0)
        return;
    if (n > to->room - to->n) {
        bigger = rn_realloc(w->heap, to->bytes, 2 * to->room + n, 1);
        if (bigger == NULL) {
            w->status = RUNNEL_NO_MEMORY;
            return;
        }
        to->bytes = bigger;
        to->room = 2 * to->room + n;
    }
    memcpy(to->bytes + to->n, bytes, n);
    to->n += n;
}

static void put_number(struct rn_gguf_writer *w, struct rn_gguf_bytes *to, uint64_t v, unsigned n)
{
    unsigned char bytes[8];

    rn_bytes_put(bytes, v, n);
    put(w, to, bytes, n);
}

static void put_text(struct rn_gguf_writer *w, struct rn_gguf_bytes *to, const char *text)
{
    put_number(w, to, strlen(text), 8);
    put(w, to, text, strlen(text));
}

static void put_key(struct rn_gguf_writer *w, const char *key, enum rn_gguf_type type)
{
    put_text(w, &w->entries, key);
    put_number(w, &w->entries, type, 4);
    w->n_entries++;
}

void rn_gguf_put_u32(struct rn_gguf_writer *w, const char *key, uint32_t value)
{
    put_key(w, key, RN_GGUF_U32);
    put_number(w, &w->entries, value, 4);
}

void rn_gguf_put_u64(struct rn_gguf_writer *w, const char *key, uint64_t value)
{
    put_key(w, key, RN_GGUF_U64);
    put_number(w, &w->entries, value, 8);
}

void rn_gguf_put_f32(struct rn_gguf_writer *w, const char *key, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    put_key(w, key, RN_GGUF_F32);
    put_number(w, &w->entries, bits, 4);
}

void rn_gguf_put_string(struct rn_gguf_writer *w, const char *key, const char *text)
{
    put_key(w, key, RN_GGUF_STRING);
    put_text(w, &w->entries, text);
}

void rn_gguf_put_u32s(struct rn_gguf_writer *w, const char *key, const uint32_t *values, uint32_t n)
{
    put_key(w, key, RN_GGUF_ARRAY);
    put_number(w, &w->entries, RN_GGUF_U32, 4);
    put_number(w, &w->entries, n, 8);
    for (uint32_t i = 0; i < n; i++)
        put_number(w, &w->entries, values[i], 4);
}

static uint64_t padded(uint64_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void rn_gguf_put_tensor(struct rn_gguf_writer *w, const char *name, enum rn_type_id type, uint32_t n_dims,
                        const uint64_t *dims, const float *values)
{
    struct rn_gguf_pending *bigger, tensor = {values, type, 1};

    RN_CHECK((type == RN_F32 || type == RN_F16) && n_dims >= 1 && n_dims <= 4);
    if (w->status != RUNNEL_OK)
        return;
    bigger = rn_realloc(w->heap, w->tensors, w->n_tensors + 1, sizeof *bigger);
    if (bigger == NULL) {
        w->status = RUNNEL_NO_MEMORY;
        return;
    }
    w->tensors = bigger;
    put_text(w, &w->directory, name);
    put_number(w, &w->directory, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++) {
        put_number(w, &w->directory, dims[i], 8);
        tensor.elements *= dims[i];
    }
    put_number(w, &w->directory, type, 4);
    put_number(w, &w->directory, w->data_bytes, 8);
    w->tensors[w->n_tensors++] = tensor;
    w->data_bytes += padded(tensor.elements * rn_type(type)->bytes);
}

/* From where the file is `at` bytes long to the next multiple of the alignment. */
static runnel_status write_padding(const struct rn_new_file *file, uint64_t at, runnel_error *error)
{
    static const unsigned char zeros[ALIGNMENT];

    return rn_new_file_write(file, zeros, (size_t)(padded(at) - at), error);
}

/* values[n] as the file has them; their bytes. */
static size_t convert(enum rn_type_id type, const float *values, size_t n, unsigned char *bytes)
{
    unsigned width = (unsigned)rn_type(type)->bytes;
    uint32_t bits;

    for (size_t i = 0; i < n; i++) {
        if (type == RN_F16)
            bits = rn_f32_to_f16(values[i]);
        else
            memcpy(&bits, &values[i], sizeof bits);
        rn_bytes_put(bytes + i * width, bits, width);
    }
    return n * width;
}

static runnel_status write_tensor(const struct rn_new_file *file, const struct rn_gguf_pending *tensor,
                                  runnel_error *error)
{
    unsigned char piece[PIECE * 4];
    uint64_t bytes = 0;
    runnel_status status = RUNNEL_OK;

    for (uint64_t i = 0; i < tensor->elements && status == RUNNEL_OK; i += PIECE) {
        size_t n = tensor->elements - i < PIECE ? (size_t)(tensor->elements - i) : PIECE;

        n = convert(tensor->type, tensor->values + i, n, piece);
        bytes += n;
        status = rn_new_file_write(file, piece, n, error);
    }
    return status == RUNNEL_OK ? write_padding(file, bytes, error) : status;
}

static runnel_status write_file(const struct rn_new_file *file, const struct rn_gguf_writer *w,
                                const struct rn_gguf_bytes *head, runnel_error *error)
{
    const struct rn_gguf_bytes *parts[] = {head, &w->entries, &w->directory};
    uint64_t bytes = 0;
    runnel_status status = RUNNEL_OK;

    for (int i = 0; i < 3 && status == RUNNEL_OK; i++) {
        status = rn_new_file_write(file, parts[i]->bytes, parts[i]->n, error);
        bytes += parts[i]->n;
    }
    if (status == RUNNEL_OK)
        status = write_padding(file, bytes, error);
    for (uint64_t i = 0; i < w->n_tensors && status == RUNNEL_OK; i++)
        status = write_tensor(file, &w->tensors[i], error);
    return status;
}

runnel_status rn_gguf_writer_save(struct rn_gguf_writer *w, const char *path, runnel_error *error)
{
    struct rn_gguf_bytes head = {0};
    struct rn_new_file file;
    runnel_status status;

    put(w, &head, "GGUF", 4);
    put_number(w, &head, 3, 4);
    put_number(w, &head, w->n_tensors, 8);
    put_number(w, &head, w->n_entries, 8);
    if (w->status != RUNNEL_OK)
        status = rn_error_set(error, w->status, "%s: no memory to write it", path);
    else
        status = rn_new_file_open(&file, w->heap, path, RN_NEW_FILE_ONE, error);
    if (status == RUNNEL_OK) {
        status = write_file(&file, w, &head, error);
        if (status == RUNNEL_OK)
            status = rn_new_file_finish(&file, error);
        rn_new_file_fini(&file);
    }
    rn_free(w->heap, head.bytes);
    return status;
}
