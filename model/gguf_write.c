/* Writing GGUF files: see gguf_write.h. */
#include "model/gguf_write.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file_target.h"

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

/* The low n bytes of v, lowest first. */
static void put_number(struct rn_gguf_writer *w, struct rn_gguf_bytes *to, uint64_t v, size_t n)
{
    unsigned char bytes[8];

    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(v >> 8 * i);
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

static bool write_bytes(FILE *file, const void *bytes, size_t n)
{
    return n == 0 || fwrite(bytes, 1, n, file) == n;
}

/* From where the file is `at` bytes long to the next multiple of the alignment. */
static bool write_padding(FILE *file, uint64_t at)
{
    static const unsigned char zeros[ALIGNMENT];

    return write_bytes(file, zeros, (size_t)(padded(at) - at));
}

static bool write_tensor(FILE *file, const struct rn_gguf_pending *tensor)
{
    unsigned char piece[PIECE * 4];
    size_t width = rn_type(tensor->type)->bytes, n;

    for (uint64_t i = 0; i < tensor->elements; i += n) {
        n = tensor->elements - i < PIECE ? (size_t)(tensor->elements - i) : PIECE;
        for (size_t k = 0; k < n; k++) {
            uint32_t bits = 0;

            if (tensor->type == RN_F16)
                bits = rn_f32_to_f16(tensor->values[i + k]);
            else
                memcpy(&bits, &tensor->values[i + k], sizeof bits);
            for (size_t byte = 0; byte < width; byte++)
                piece[k * width + byte] = (unsigned char)(bits >> 8 * byte);
        }
        if (!write_bytes(file, piece, n * width))
            return false;
    }
    return write_padding(file, tensor->elements * width);
}

static bool write_file(FILE *file, const struct rn_gguf_writer *w, const struct rn_gguf_bytes *head)
{
    bool written = write_bytes(file, head->bytes, head->n) && write_bytes(file, w->entries.bytes, w->entries.n) &&
                   write_bytes(file, w->directory.bytes, w->directory.n) &&
                   write_padding(file, (uint64_t)head->n + w->entries.n + w->directory.n);

    for (uint64_t i = 0; written && i < w->n_tensors; i++)
        written = write_tensor(file, &w->tensors[i]);
    return written && fflush(file) == 0 && fsync(fileno(file)) == 0;
}

/* To a regular file, or to where nothing is. */
static runnel_status save(const struct rn_gguf_writer *w, const struct rn_gguf_bytes *head, const char *path,
                          runnel_error *error)
{
    char temporary[4096];
    FILE *file;
    bool written;
    int reason;

    if (snprintf(temporary, sizeof temporary, "%s.new", path) >= (int)sizeof temporary)
        return rn_error_set(error, RUNNEL_INVALID, "the path is longer than %zu bytes", sizeof temporary - 5);
    file = fopen(temporary, "wb");
    if (file == NULL)
        return rn_error_set(error, RUNNEL_IO, "%s: cannot be written: %s", temporary, strerror(errno));
    errno = 0;
    written = write_file(file, w, head);
    reason = errno;
    if (fclose(file) != 0 || !written || rename(temporary, path) != 0) {
        reason = written ? errno : reason;
        remove(temporary);
        return rn_error_set(error, RUNNEL_IO, "%s: cannot be written: %s", path, strerror(reason));
    }
    return RUNNEL_OK;
}

runnel_status rn_gguf_writer_save(struct rn_gguf_writer *w, const char *path, runnel_error *error)
{
    struct rn_gguf_bytes head = {0};
    char *target = NULL;
    runnel_status status;

    put(w, &head, "GGUF", 4);
    put_number(w, &head, 3, 4);
    put_number(w, &head, w->n_tensors, 8);
    put_number(w, &head, w->n_entries, 8);
    if (w->status != RUNNEL_OK)
        status = rn_error_set(error, w->status, "%s: no memory to write it", path);
    else
        status = rn_file_target(w->heap, path, &target, error);
    if (status == RUNNEL_OK)
        status = save(w, &head, target, error);
    rn_free(w->heap, target);
    rn_free(w->heap, head.bytes);
    return status;
}
