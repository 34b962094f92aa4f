/* Writing GGUF files, version 3, little-endian: metadata and tensors of F32 or F16.
 *
 *     struct rn_gguf_writer w;
 *     rn_gguf_writer_init(&w, heap);
 *     rn_gguf_put_string(&w, "general.architecture", "llama");
 *     rn_gguf_put_tensor(&w, "output_norm.weight", RN_F32, 1, dims, values);
 *     status = rn_gguf_writer_save(&w, path, error);
 *     rn_gguf_writer_fini(&w);
 *
 * The first failure is kept: from then on puts do nothing, and save returns it. Format: the GGUF specification of the
 * ggml project; tensor data begin at multiples of 32 bytes.
 *
 * Threads: one owner. save blocks on the disk. */
#ifndef RN_MODEL_GGUF_WRITE_H
#define RN_MODEL_GGUF_WRITE_H

#include "model/gguf/gguf.h"
#include "model/quant/quant.h"

struct rn_gguf_bytes {
    unsigned char *bytes;
    size_t n, room;
};

struct rn_gguf_pending {
    const float *values; /* borrowed until save */
    uint32_t type;
    uint64_t elements;
};

struct rn_gguf_writer {
    struct rn_heap *heap;
    struct rn_gguf_bytes entries, directory;
    struct rn_gguf_pending *tensors;
    uint64_t n_entries, n_tensors, data_bytes;
    runnel_status status;
};

void rn_gguf_writer_init(struct rn_gguf_writer *writer, struct rn_heap *heap);
void rn_gguf_writer_fini(struct rn_gguf_writer *writer);

void rn_gguf_put_u32(struct rn_gguf_writer *writer, const char *key, uint32_t value);
void rn_gguf_put_u64(struct rn_gguf_writer *writer, const char *key, uint64_t value);
void rn_gguf_put_f32(struct rn_gguf_writer *writer, const char *key, float value);
void rn_gguf_put_string(struct rn_gguf_writer *writer, const char *key, const char *text);
void rn_gguf_put_u32s(struct rn_gguf_writer *writer, const char *key, const uint32_t *values, uint32_t n);

/* dims: fastest first, n_dims in 1..4, none 0. type RN_F32 or RN_F16 (rounded to nearest even). Keys and names are
 * the caller's to keep apart; values stay borrowed until save. */
void rn_gguf_put_tensor(struct rn_gguf_writer *writer, const char *name, enum rn_type_id type, uint32_t n_dims,
                        const uint64_t *dims, const float *values);

/* The file replaces what is at `path` at once (base/new_file.h). IO names the file, also one that is there and no regular
 * file; BUSY: another writes it; NO_MEMORY. */
runnel_status rn_gguf_writer_save(struct rn_gguf_writer *writer, const char *path, runnel_error *error);

#endif
