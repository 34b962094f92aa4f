/* HEAD.gguf: see head_file.h. */
#include "train/head_file.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "model/gguf/write.h"
#include "model/heads/head.h"

#define ARCH RN_HEAD_ARCH

static_assert(RN_EAGLE_MAX_TAPS == (int)RN_HEAD_TAPS, "what is written is what is read");

static void to_hex(const unsigned char bytes[16], char text[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

static void put_facts(struct rn_gguf_writer *w, const struct rn_trainer *t, uint32_t context_tokens)
{
    const struct rn_eagle_shape *s = &t->shape;
    char print[33];

    to_hex(t->origin.target, print);
    rn_gguf_put_string(w, "general.architecture", ARCH);
    rn_gguf_put_u32(w, ARCH ".vocab_size", s->vocab);
    rn_gguf_put_u32(w, ARCH ".embedding_length", s->width);
    rn_gguf_put_u32(w, ARCH ".block_count", 1);
    rn_gguf_put_u32(w, ARCH ".context_length", context_tokens);
    rn_gguf_put_u32(w, ARCH ".feed_forward_length", s->feed_forward);
    rn_gguf_put_u32(w, ARCH ".attention.head_count", s->heads);
    rn_gguf_put_u32(w, ARCH ".attention.head_count_kv", s->kv_heads);
    rn_gguf_put_u32(w, ARCH ".attention.key_length", s->head_dim);
    rn_gguf_put_u32(w, ARCH ".attention.value_length", s->head_dim);
    rn_gguf_put_f32(w, ARCH ".attention.layer_norm_rms_epsilon", s->eps);
    rn_gguf_put_f32(w, ARCH ".rope.freq_base", s->rope_base);
    rn_gguf_put_u32(w, ARCH ".rope.dimension_count", s->head_dim);
    rn_gguf_put_u32s(w, ARCH ".target_layers", t->origin.tapped, s->taps);
    rn_gguf_put_string(w, ARCH ".target_print", print);
    rn_gguf_put_u32(w, ARCH ".training.steps", t->step);
    rn_gguf_put_u32(w, ARCH ".training.unroll", t->options.unroll);
    rn_gguf_put_u64(w, ARCH ".training.seed", t->options.seed);
    rn_gguf_put_f32(w, ARCH ".training.loss", (float)t->loss[0]);
    rn_gguf_put_f32(w, ARCH ".training.accepted", (float)t->accepted[0]);
}

runnel_status rn_head_save(const struct rn_trainer *t, uint32_t context_tokens, bool f16, const char *path,
                           runnel_error *error)
{
    struct rn_gguf_writer w;
    runnel_status status;

    RN_ASSERT(rn_trainer_check(t));
    rn_gguf_writer_init(&w, t->heap);
    put_facts(&w, t, context_tokens);
    for (int i = 0; i < RN_EAGLE_TENSORS; i++) {
        const struct rn_eagle_span *span = &t->spans[i];
        const uint64_t dims[2] = {span->cols, span->rows};

        if (span->rows > 0)
            rn_gguf_put_tensor(&w, span->name, f16 && span->rows > 1 ? RN_F16 : RN_F32, span->rows > 1 ? 2 : 1, dims,
                               t->weights + span->offset);
    }
    status = rn_gguf_writer_save(&w, path, error);
    rn_gguf_writer_fini(&w);
    return status;
}

/* ---- Reading ---- */

static runnel_status get_u32(const struct rn_gguf *gguf, const char *key, uint32_t *out, runnel_error *error)
{
    uint64_t value = 0;
    runnel_status status = rn_gguf_get_u64(gguf, key, true, 1, 1u << 26, &value, error);

    *out = (uint32_t)value;
    return status;
}

static runnel_status get_f32(const struct rn_gguf *gguf, const char *key, double least, float *out, runnel_error *error)
{
    double value = 0;
    runnel_status status = rn_gguf_get_f64(gguf, key, true, least, 1e12, &value, error);

    *out = (float)value;
    return status;
}

static runnel_status read_shape(struct rn_head *head, const struct rn_gguf *gguf, runnel_error *error)
{
    struct rn_eagle_shape *s = &head->shape;
    const struct {
        const char *key;
        uint32_t *out;
    } numbers[] = {{ARCH ".vocab_size", &s->vocab},
                   {ARCH ".embedding_length", &s->width},
                   {ARCH ".context_length", &head->context_tokens},
                   {ARCH ".feed_forward_length", &s->feed_forward},
                   {ARCH ".attention.head_count", &s->heads},
                   {ARCH ".attention.head_count_kv", &s->kv_heads},
                   {ARCH ".attention.key_length", &s->head_dim}};
    runnel_status status = RUNNEL_OK;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && status == RUNNEL_OK; i++)
        status = get_u32(gguf, numbers[i].key, numbers[i].out, error);
    if (status == RUNNEL_OK)
        status = get_f32(gguf, ARCH ".attention.layer_norm_rms_epsilon", 1e-30, &s->eps, error);
    if (status == RUNNEL_OK)
        status = get_f32(gguf, ARCH ".rope.freq_base", 1.001, &s->rope_base, error);
    return status;
}

static runnel_status read_origin(struct rn_head *head, const struct rn_gguf *gguf, runnel_error *error)
{
    struct rn_head_facts facts;
    runnel_status status = rn_head_read(gguf, &facts, error);

    if (status == RUNNEL_OK && facts.is_eagle3)
        status =
            rn_error_set(error, RUNNEL_UNSUPPORTED, "%s: an EAGLE-3 head, not one of runnel's own", rn_gguf_path(gguf));
    if (status != RUNNEL_OK)
        return status;
    memcpy(head->target, facts.target, sizeof head->target);
    memcpy(head->tapped, facts.taps, sizeof head->tapped);
    head->shape.taps = facts.n_taps;
    return RUNNEL_OK;
}

static runnel_status read_tensor(struct rn_head *head, const struct rn_gguf *gguf, const struct rn_eagle_span *span,
                                 runnel_error *error)
{
    const struct rn_tensor *tensor = rn_gguf_find_tensor(gguf, span->name);
    size_t n = (size_t)span->rows * span->cols;

    if (n == 0)
        return RUNNEL_OK;
    if (tensor == NULL)
        return rn_error_set(error, RUNNEL_FORMAT, "tensor %s is missing", span->name);
    if (tensor->elements != n || tensor->dims[0] != span->cols || (tensor->type != RN_F32 && tensor->type != RN_F16))
        return rn_error_set(error, RUNNEL_FORMAT, "tensor %s is not [%u, %u] of type F32 or F16", span->name,
                            span->rows, span->cols);
    rn_type(tensor->type)->decode(tensor->data, head->weights + span->offset, n);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(head->weights[span->offset + i]))
            return rn_error_set(error, RUNNEL_FORMAT, "tensor %s holds a value that is not a number", span->name);
    return RUNNEL_OK;
}

static runnel_status read_head(struct rn_head *head, const struct rn_gguf *gguf, runnel_error *error)
{
    runnel_status status = read_origin(head, gguf, error);
    size_t n;

    if (status == RUNNEL_OK)
        status = read_shape(head, gguf, error);
    if (status != RUNNEL_OK)
        return status;
    n = rn_eagle_layout(&head->shape, head->spans);
    if (n == 0)
        return rn_error_set(error, RUNNEL_FORMAT, "%s: its shape is out of range", rn_gguf_path(gguf));
    if (n * 2 > rn_gguf_file_bytes(gguf)) /* before memory is asked for by what the file only claims */
        return rn_error_set(error, RUNNEL_FORMAT, "%s: too short for its shape", rn_gguf_path(gguf));
    head->weights = rn_alloc(head->heap, n, sizeof *head->weights);
    if (head->weights == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "%s: no memory for the head", rn_gguf_path(gguf));
    for (int i = 0; i < RN_EAGLE_TENSORS && status == RUNNEL_OK; i++)
        status = read_tensor(head, gguf, &head->spans[i], error);
    return status;
}

runnel_status rn_head_open(struct rn_head *head, struct rn_heap *heap, const char *path, runnel_error *error)
{
    struct rn_gguf *gguf = NULL;
    runnel_status status = rn_gguf_open(heap, path, &gguf, error);

    *head = (struct rn_head){.heap = heap};
    if (status != RUNNEL_OK)
        return status;
    status = read_head(head, gguf, error);
    rn_gguf_free(gguf);
    if (status != RUNNEL_OK)
        rn_head_fini(head);
    return status;
}

void rn_head_fini(struct rn_head *head)
{
    struct rn_heap *heap = head->heap;

    if (heap == NULL)
        return;
    rn_free(heap, head->weights);
    *head = (struct rn_head){0};
}
