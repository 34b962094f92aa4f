/* A model file as a list of keys and tensors that a test changes and writes again. */
#ifndef RN_TESTS_MODEL_MODEL_EDIT_H
#define RN_TESTS_MODEL_MODEL_EDIT_H

#include "gguf_writer.h"

struct edit_key {
    char name[96];
    uint32_t type, item;
    uint64_t count;
    const void *data; /* as in the file; borrowed, or `own` where NULL */
    size_t bytes;
    unsigned char own[64];
};

struct edit_tensor {
    char name[64];
    uint32_t n_dims, type;
    uint64_t dims[4];
    const void *data; /* borrowed */
    size_t bytes;     /* of data; what the shape needs more is written as zeros */
};

struct model_edit {
    struct edit_key keys[96];
    uint32_t n_keys;
    struct edit_tensor tensors[1600];
    uint32_t n_tensors;
};

/* A copy of what the file says; the tensors' data stay borrowed from it. */
void edit_from(struct model_edit *edit, const struct rn_gguf *gguf);

/* A random llama model without a vocabulary: 2 blocks, width 32, 4 heads over 2, 16 tokens, context 64;
 * experts: 4, 2 of them used, or 0. Tied output where `tied`. */
void edit_tiny(struct model_edit *edit, uint32_t experts, bool tied);

/* Sets or adds; strings and arrays of at most 8 (u32) fit. */
void edit_u32(struct model_edit *edit, const char *key, uint32_t value);
void edit_f32(struct model_edit *edit, const char *key, float value);
void edit_bool(struct model_edit *edit, const char *key, bool value);
void edit_text(struct model_edit *edit, const char *key, const char *text);
void edit_u32s(struct model_edit *edit, const char *key, const uint32_t *values, uint32_t n);
void edit_i32s(struct model_edit *edit, const char *key, const int32_t *values, uint32_t n);
/* The same model of another architecture: its name, and what keys begin with. */
void edit_rename(struct model_edit *edit, const char *architecture);
void edit_drop_key(struct model_edit *edit, const char *key); /* absent is fine */

struct edit_tensor *edit_tensor(struct model_edit *edit, const char *name); /* fails the test when absent */
void edit_add_tensor(struct model_edit *edit, const char *name, uint64_t cols, uint64_t rows, const float *data);
void edit_drop_tensor(struct model_edit *edit, const char *name);

/* The file's bytes. w is empty before; w_free after. */
void edit_write(const struct model_edit *edit, struct writer *w);

#endif
