/* See adapter_file.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "adapter_file.h"
#include "base/rng.h"
#include "model/quant/quant.h"
#include "tests/base/whole_file.h"

/* One of `names`; where that is NULL, a matrix of a block, as llama's files name them. */
static bool is_adapted(const struct rn_tensor *tensor, const char *const *names, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (strlen(names[i]) == tensor->name.n && memcmp(names[i], tensor->name.bytes, tensor->name.n) == 0)
            return true;
    return names == NULL && tensor->n_dims == 2 && tensor->dims[0] > 1 && tensor->dims[1] > 1 && tensor->name.n > 11 &&
           memcmp(tensor->name.bytes, "blk.", 4) == 0 &&
           memcmp(tensor->name.bytes + tensor->name.n - 7, ".weight", 7) == 0;
}

static void write_values(struct writer *w, uint64_t n, double reach, uint64_t *seed)
{
    for (uint64_t i = 0; i < n; i++)
        w_f32(w, (float)(reach * ((double)(rn_splitmix64(seed) >> 40) * 0x1p-23 - 1)));
    w_align(w, 32);
}

static void write_pair(struct writer *w, struct writer *data, const struct rn_tensor *tensor, uint32_t rank,
                       uint64_t *seed)
{
    const uint64_t a_dims[] = {tensor->dims[0], rank}, b_dims[] = {rank, tensor->dims[1]};
    char name[128];

    snprintf(name, sizeof name, "%.*s.lora_a", (int)tensor->name.n, tensor->name.bytes);
    w_tensor(w, name, 2, a_dims, RN_F32, data->n);
    write_values(data, tensor->dims[0] * rank, 1 / sqrt((double)tensor->dims[0]), seed);
    snprintf(name, sizeof name, "%.*s.lora_b", (int)tensor->name.n, tensor->name.bytes);
    w_tensor(w, name, 2, b_dims, RN_F32, data->n);
    write_values(data, tensor->dims[1] * rank, 0.3 / sqrt((double)rank), seed);
}

void adapter_file_head(struct writer *w, const char *architecture, uint64_t n_tensors, float alpha)
{
    w_header(w, 3, n_tensors, alpha != 0 ? 4 : 3);
    w_key_string(w, "general.type", "adapter");
    w_key_string(w, "adapter.type", "lora");
    w_key_string(w, "general.architecture", architecture);
    if (alpha != 0) {
        w_key(w, "adapter.lora.alpha", RN_GGUF_F32);
        w_f32(w, alpha);
    }
}

void adapter_file_write(const char *path, const char *model, uint64_t seed, uint32_t rank)
{
    adapter_file_write_of(path, model, NULL, 0, seed, rank);
}

void adapter_file_write_of(const char *path, const char *model, const char *const *names, uint32_t n_names,
                           uint64_t seed, uint32_t rank)
{
    struct writer w = {0}, data = {0};
    struct rn_view architecture;
    struct rn_gguf *gguf;
    struct rn_heap heap;
    char text[64];
    uint64_t n = 0;

    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_gguf_open(&heap, model, &gguf, NULL), RUNNEL_OK);
    for (uint64_t i = 0; i < rn_gguf_n_tensors(gguf); i++)
        n += 2 * is_adapted(rn_gguf_tensor(gguf, i), names, n_names);
    assert_true(names == NULL ? n > 0 : n == 2 * (uint64_t)n_names);
    assert_int_equal(rn_gguf_get_string(gguf, "general.architecture", true, &architecture, NULL), RUNNEL_OK);
    snprintf(text, sizeof text, "%.*s", (int)architecture.n, architecture.bytes);
    adapter_file_head(&w, text, n, 2.0f * (float)rank);
    for (uint64_t i = 0; i < rn_gguf_n_tensors(gguf); i++)
        if (is_adapted(rn_gguf_tensor(gguf, i), names, n_names))
            write_pair(&w, &data, rn_gguf_tensor(gguf, i), rank, &seed);
    w_align(&w, 32);
    w_raw(&w, data.bytes, data.n);
    write_whole(path, w.bytes, w.n);
    w_free(&w);
    w_free(&data);
    rn_gguf_free(gguf);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}
