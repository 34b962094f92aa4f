#include "model_edit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "model/quant/quant.h"

static void copy_name(char *out, size_t capacity, struct rn_view name)
{
    assert_true(name.n < capacity);
    memcpy(out, name.bytes, name.n);
    out[name.n] = '\0';
}

void edit_from(struct model_edit *edit, const struct rn_gguf *gguf)
{
    uint32_t i;

    memset(edit, 0, sizeof *edit);
    edit->n_keys = (uint32_t)rn_gguf_n_entries(gguf);
    edit->n_tensors = (uint32_t)rn_gguf_n_tensors(gguf);
    assert_true(edit->n_keys + 8 < sizeof edit->keys / sizeof edit->keys[0]);
    assert_true(edit->n_tensors + 8 < sizeof edit->tensors / sizeof edit->tensors[0]);
    for (i = 0; i < edit->n_keys; i++) {
        const struct rn_gguf_entry *entry = rn_gguf_entry(gguf, i);
        struct edit_key *key = &edit->keys[i];

        copy_name(key->name, sizeof key->name, entry->key);
        *key = (struct edit_key){.type = entry->type,
                                 .item = entry->item,
                                 .count = entry->count,
                                 .data = entry->data,
                                 .bytes = entry->data_bytes};
        copy_name(key->name, sizeof key->name, entry->key);
    }
    for (i = 0; i < edit->n_tensors; i++) {
        const struct rn_tensor *from = rn_gguf_tensor(gguf, i);
        struct edit_tensor *tensor = &edit->tensors[i];

        *tensor = (struct edit_tensor){
            .n_dims = from->n_dims, .type = from->type, .data = from->data, .bytes = (size_t)from->bytes};
        memcpy(tensor->dims, from->dims, sizeof tensor->dims);
        copy_name(tensor->name, sizeof tensor->name, from->name);
    }
}

static struct edit_key *key_of(struct model_edit *edit, const char *name)
{
    uint32_t i;

    for (i = 0; i < edit->n_keys; i++)
        if (strcmp(edit->keys[i].name, name) == 0)
            return &edit->keys[i];
    assert_true(edit->n_keys < sizeof edit->keys / sizeof edit->keys[0]);
    snprintf(edit->keys[edit->n_keys].name, sizeof edit->keys[0].name, "%s", name);
    return &edit->keys[edit->n_keys++];
}

static void set(struct model_edit *edit, const char *name, uint32_t type, uint32_t item, uint64_t count,
                const void *bytes, size_t n)
{
    struct edit_key *key = key_of(edit, name);

    assert_true(n <= sizeof key->own);
    key->type = type;
    key->item = item;
    key->count = count;
    key->data = NULL;
    key->bytes = n;
    if (n > 0)
        memcpy(key->own, bytes, n);
}

void edit_u32(struct model_edit *edit, const char *key, uint32_t value)
{
    set(edit, key, RN_GGUF_U32, RN_GGUF_U32, 1, &value, sizeof value);
}

void edit_f32(struct model_edit *edit, const char *key, float value)
{
    set(edit, key, RN_GGUF_F32, RN_GGUF_F32, 1, &value, sizeof value);
}

void edit_bool(struct model_edit *edit, const char *key, bool value)
{
    unsigned char byte = value;

    set(edit, key, RN_GGUF_BOOL, RN_GGUF_BOOL, 1, &byte, 1);
}

void edit_text(struct model_edit *edit, const char *key, const char *text)
{
    unsigned char bytes[64];
    uint64_t n = strlen(text);

    assert_true(n + 8 <= sizeof bytes);
    memcpy(bytes, &n, 8);
    memcpy(bytes + 8, text, n);
    set(edit, key, RN_GGUF_STRING, RN_GGUF_STRING, 1, bytes, n + 8);
}

void edit_rename(struct model_edit *edit, const char *architecture)
{
    const struct edit_key *key = key_of(edit, "general.architecture");
    const unsigned char *bytes = key->data != NULL ? key->data : key->own;
    char before[80] = {0}, name[sizeof key->name];
    uint64_t n;
    uint32_t i;

    memcpy(&n, bytes, sizeof n);
    assert_true(key->type == RN_GGUF_STRING && n + 2 < sizeof before);
    memcpy(before, bytes + 8, n);
    before[n++] = '.';
    for (i = 0; i < edit->n_keys; i++)
        if (strncmp(edit->keys[i].name, before, n) == 0) {
            assert_true(strlen(architecture) + strlen(edit->keys[i].name) < sizeof name);
            snprintf(name, sizeof name, "%.30s.%s", architecture, edit->keys[i].name + n);
            strcpy(edit->keys[i].name, name);
        }
    edit_text(edit, "general.architecture", architecture);
}

void edit_u32s(struct model_edit *edit, const char *key, const uint32_t *values, uint32_t n)
{
    set(edit, key, RN_GGUF_ARRAY, RN_GGUF_U32, n, values, n * sizeof *values);
}

void edit_i32s(struct model_edit *edit, const char *key, const int32_t *values, uint32_t n)
{
    set(edit, key, RN_GGUF_ARRAY, RN_GGUF_I32, n, values, n * sizeof *values);
}

void edit_drop_key(struct model_edit *edit, const char *key)
{
    struct edit_key *found = key_of(edit, key);

    *found = edit->keys[--edit->n_keys];
}

struct edit_tensor *edit_tensor(struct model_edit *edit, const char *name)
{
    uint32_t i;

    for (i = 0; i < edit->n_tensors; i++)
        if (strcmp(edit->tensors[i].name, name) == 0)
            return &edit->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

void edit_add_tensor(struct model_edit *edit, const char *name, uint64_t cols, uint64_t rows, const float *data)
{
    struct edit_tensor *tensor = &edit->tensors[edit->n_tensors++];

    assert_true(edit->n_tensors <= sizeof edit->tensors / sizeof edit->tensors[0]);
    *tensor = (struct edit_tensor){.n_dims = rows == 1 ? 1 : 2,
                                   .type = RN_F32,
                                   .dims = {cols, rows, 1, 1},
                                   .data = data,
                                   .bytes = (size_t)(cols * rows) * sizeof *data};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
}

void edit_drop_tensor(struct model_edit *edit, const char *name)
{
    struct edit_tensor *found = edit_tensor(edit, name);

    memmove(found, found + 1, (size_t)(edit->tensors + --edit->n_tensors - found) * sizeof *found);
}

/* ---- The tiny model ---- */

enum { WIDTH = 32, HEADS = 4, KV_HEADS = 2, VOCAB = 16, FEED = 48, BLOCKS = 2 };

/* Uniform in (-0.25, 0.25), the same in every run. */
static const float *noise(void)
{
    static float pool[WIDTH * FEED * 4];
    uint32_t i, x = 1;

    for (i = 0; i < sizeof pool / sizeof pool[0]; i++) {
        x = x * 1664525u + 1013904223u; /* Numerical Recipes */
        pool[i] = ((float)(x >> 8) / (1 << 24) - 0.5f) / 2;
    }
    return pool;
}

static void add_experts(struct model_edit *edit, const char *name, uint64_t cols, uint64_t rows, uint32_t experts)
{
    struct edit_tensor *tensor;

    edit_add_tensor(edit, name, cols, rows, noise());
    tensor = edit_tensor(edit, name);
    tensor->n_dims = 3;
    tensor->dims[2] = experts;
    tensor->bytes *= experts;
}

static void add_block(struct model_edit *edit, uint32_t block, uint32_t experts)
{
    const struct {
        const char *name;
        uint32_t cols, rows, experts;
    } tensors[] = {
        {"attn_norm", WIDTH, 1, 0},      {"attn_q", WIDTH, WIDTH, 0},      {"attn_k", WIDTH, WIDTH / 2, 0},
        {"attn_v", WIDTH, WIDTH / 2, 0}, {"attn_output", WIDTH, WIDTH, 0}, {"ffn_norm", WIDTH, 1, 0},
        {"ffn_gate", WIDTH, FEED, 1},    {"ffn_up", WIDTH, FEED, 1},       {"ffn_down", FEED, WIDTH, 1},
    };
    char name[64];
    size_t i;

    for (i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        snprintf(name, sizeof name, "blk.%u.%s%s.weight", block, tensors[i].name,
                 tensors[i].experts && experts ? "_exps" : "");
        if (tensors[i].experts && experts)
            add_experts(edit, name, tensors[i].cols, tensors[i].rows, experts);
        else
            edit_add_tensor(edit, name, tensors[i].cols, tensors[i].rows, noise());
    }
    if (experts) {
        snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", block);
        edit_add_tensor(edit, name, WIDTH, experts, noise());
    }
}

void edit_tiny(struct model_edit *edit, uint32_t experts, bool tied)
{
    uint32_t i;

    memset(edit, 0, sizeof *edit);
    edit_text(edit, "general.architecture", "llama");
    edit_u32(edit, "llama.context_length", 64);
    edit_u32(edit, "llama.embedding_length", WIDTH);
    edit_u32(edit, "llama.block_count", BLOCKS);
    edit_u32(edit, "llama.feed_forward_length", FEED);
    edit_u32(edit, "llama.attention.head_count", HEADS);
    edit_u32(edit, "llama.attention.head_count_kv", KV_HEADS);
    edit_u32(edit, "llama.rope.dimension_count", WIDTH / HEADS);
    edit_f32(edit, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (experts) {
        edit_u32(edit, "llama.expert_count", experts);
        edit_u32(edit, "llama.expert_used_count", 2);
    }
    edit_add_tensor(edit, "token_embd.weight", WIDTH, VOCAB, noise());
    edit_add_tensor(edit, "output_norm.weight", WIDTH, 1, noise());
    if (!tied)
        edit_add_tensor(edit, "output.weight", WIDTH, VOCAB, noise());
    for (i = 0; i < BLOCKS; i++)
        add_block(edit, i, experts);
}

/* ---- Writing ---- */

static void write_key(const struct edit_key *key, struct writer *w)
{
    w_string(w, key->name);
    w_u32(w, key->type);
    if (key->type == RN_GGUF_ARRAY) {
        w_u32(w, key->item);
        w_u64(w, key->count);
    }
    w_raw(w, key->data == NULL ? key->own : key->data, key->bytes);
}

static size_t tensor_bytes(const struct edit_tensor *tensor)
{
    size_t i, n = 1;

    for (i = 0; i < tensor->n_dims; i++)
        n *= (size_t)tensor->dims[i];
    return rn_type_bytes(rn_type(tensor->type), n);
}

void edit_write(const struct model_edit *edit, struct writer *w)
{
    size_t offset = 0, bytes, given;
    uint32_t i;

    w_header(w, 3, edit->n_tensors, edit->n_keys);
    for (i = 0; i < edit->n_keys; i++)
        write_key(&edit->keys[i], w);
    for (i = 0; i < edit->n_tensors; i++) {
        w_tensor(w, edit->tensors[i].name, edit->tensors[i].n_dims, edit->tensors[i].dims, edit->tensors[i].type,
                 offset);
        offset += (tensor_bytes(&edit->tensors[i]) + 31) / 32 * 32;
    }
    w_align(w, 32);
    for (i = 0; i < edit->n_tensors; i++) {
        bytes = tensor_bytes(&edit->tensors[i]);
        given = bytes < edit->tensors[i].bytes ? bytes : edit->tensors[i].bytes;
        w_raw(w, edit->tensors[i].data, given);
        w_zeros(w, bytes - given);
        w_align(w, 32);
    }
}
