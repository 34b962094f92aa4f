#include "gguf_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/whole_file.h"

void w_free(struct writer *w)
{
    free(w->bytes);
    *w = (struct writer){0};
}

static char *extend(struct writer *w, size_t n)
{
    if (w->n + n > w->capacity) {
        w->capacity = 2 * (w->n + n);
        w->bytes = realloc(w->bytes, w->capacity);
        assert_non_null(w->bytes);
    }
    w->n += n;
    return w->bytes + w->n - n;
}

void w_raw(struct writer *w, const void *bytes, size_t n)
{
    if (n > 0)
        memcpy(extend(w, n), bytes, n);
}

void w_zeros(struct writer *w, size_t n)
{
    if (n > 0)
        memset(extend(w, n), 0, n);
}

void w_align(struct writer *w, size_t alignment)
{
    w_zeros(w, (alignment - w->n % alignment) % alignment);
}

#define WRITE(name, type)                   \
    void w_##name(struct writer *w, type v) \
    {                                       \
        w_raw(w, &v, sizeof v);             \
    }
WRITE(u8, uint8_t)
WRITE(u16, uint16_t)
WRITE(u32, uint32_t)
WRITE(u64, uint64_t)
WRITE(f32, float)
WRITE(f64, double)

void w_string(struct writer *w, const char *text)
{
    w_u64(w, strlen(text));
    w_raw(w, text, strlen(text));
}

void w_header(struct writer *w, uint32_t version, uint64_t n_tensors, uint64_t n_entries)
{
    w_raw(w, "GGUF", 4);
    w_u32(w, version);
    w_u64(w, n_tensors);
    w_u64(w, n_entries);
}

void w_key(struct writer *w, const char *key, uint32_t type)
{
    w_string(w, key);
    w_u32(w, type);
}

void w_key_u32(struct writer *w, const char *key, uint32_t v)
{
    w_key(w, key, RN_GGUF_U32);
    w_u32(w, v);
}

void w_key_string(struct writer *w, const char *key, const char *text)
{
    w_key(w, key, RN_GGUF_STRING);
    w_string(w, text);
}

void w_key_array(struct writer *w, const char *key, uint32_t item, uint64_t count)
{
    w_key(w, key, RN_GGUF_ARRAY);
    w_u32(w, item);
    w_u64(w, count);
}

void w_tensor(struct writer *w, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset)
{
    w_string(w, name);
    w_u32(w, n_dims);
    w_raw(w, dims, n_dims * sizeof *dims);
    w_u32(w, type);
    w_u64(w, offset);
}

void w_save(const struct writer *w, const char *directory, const char *name)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    write_whole(path, w->bytes, w->n);
}
