/* Writes GGUF bytes, right or wrong, for tests. */
#ifndef RN_TESTS_MODEL_GGUF_WRITER_H
#define RN_TESTS_MODEL_GGUF_WRITER_H

#include "model/gguf/gguf.h"

/* Grows as it is written to; zero-initialised it is empty. */
struct writer {
    char *bytes;
    size_t n, capacity;
};

void w_free(struct writer *w);
void w_raw(struct writer *w, const void *bytes, size_t n);
void w_zeros(struct writer *w, size_t n);
void w_align(struct writer *w, size_t alignment);
void w_u8(struct writer *w, uint8_t v);
void w_u16(struct writer *w, uint16_t v);
void w_u32(struct writer *w, uint32_t v);
void w_u64(struct writer *w, uint64_t v);
void w_f32(struct writer *w, float v);
void w_f64(struct writer *w, double v);
void w_string(struct writer *w, const char *text);
void w_header(struct writer *w, uint32_t version, uint64_t n_tensors, uint64_t n_entries);
void w_key(struct writer *w, const char *key, uint32_t type); /* the value follows */
void w_key_u32(struct writer *w, const char *key, uint32_t v);
void w_key_string(struct writer *w, const char *key, const char *text);
void w_key_array(struct writer *w, const char *key, uint32_t item, uint64_t count); /* the items follow */
void w_tensor(struct writer *w, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
              uint64_t offset);

/* Writes w to directory/name. */
void w_save(const struct writer *w, const char *directory, const char *name);

#endif
