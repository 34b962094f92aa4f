/* A file with prediction layers: see nextn_file.h. */
#include "nextn_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/heads/head.h"
#include "model/quant/quant.h"
#include "taught.h"
#include "tests/model/model_edit.h"

static void decode(const struct rn_gguf *gguf, const char *name, float *out)
{
    const struct rn_tensor *tensor = rn_gguf_find_tensor(gguf, name);

    assert_non_null(tensor);
    rn_type(tensor->type)->decode(tensor->data, out, tensor->elements);
}

/* hnorm of a layer that reads norm(x) where the head has read x: its own weights over those of the norm in between,
 * with their mean square put back. */
static float *undo(const struct rn_gguf *head, const struct rn_gguf *gguf, const char *name, uint32_t width)
{
    float *hnorm = calloc(width, sizeof *hnorm), *between = calloc(width, sizeof *between);
    double square = 0;

    decode(head, "blk.0.nextn.hnorm.weight", hnorm);
    decode(gguf, name, between);
    for (uint32_t i = 0; i < width; i++)
        square += (double)between[i] * between[i] / width;
    for (uint32_t i = 0; i < width; i++)
        hnorm[i] *= (float)(sqrt(square) / between[i]);
    free(between);
    return hnorm;
}

static void add_copy(struct model_edit *edit, const struct model_edit *from, const char *name, const char *as)
{
    struct edit_tensor *tensor = &edit->tensors[edit->n_tensors++];

    assert_true(edit->n_tensors <= sizeof edit->tensors / sizeof edit->tensors[0]);
    *tensor = *edit_tensor((struct model_edit *)from, name);
    snprintf(tensor->name, sizeof tensor->name, "%s", as);
}

/* The head as layer d of n behind the model's blocks. */
static void add_layer(struct model_edit *edit, struct model_edit *head, uint32_t d, float *hnorm, uint32_t width)
{
    static const char *const names[] = {"nextn.enorm", "nextn.eh_proj", "attn_norm", "attn_q", "attn_k",  "attn_v",
                                        "attn_output", "ffn_norm",      "ffn_gate",  "ffn_up", "ffn_down"};
    char from[64], as[64];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(from, sizeof from, "blk.0.%s.weight", names[i]);
        snprintf(as, sizeof as, "blk.%u.%s.weight", 6 + d, names[i]);
        add_copy(edit, head, from, as);
    }
    snprintf(as, sizeof as, "blk.%u.nextn.shared_head_norm.weight", 6 + d);
    add_copy(edit, head, "output_norm.weight", as);
    snprintf(as, sizeof as, "blk.%u.nextn.hnorm.weight", 6 + d);
    edit_add_tensor(edit, as, width, 1, hnorm);
}

void nextn_file_write(uint32_t layers, const char *path)
{
    static struct model_edit edit, of_head;
    struct rn_heap heap;
    struct rn_gguf *gguf = NULL, *head = NULL;
    struct writer bytes = {0};
    float *first, *deeper;
    uint32_t width;

    rn_heap_init(&heap, NULL);
    memset(&edit, 0, sizeof edit);
    memset(&of_head, 0, sizeof of_head);
    assert_int_equal(rn_gguf_open(&heap, taught.target, &gguf, NULL), RUNNEL_OK);
    assert_int_equal(rn_gguf_open(&heap, taught.head_path, &head, NULL), RUNNEL_OK);
    edit_from(&edit, gguf);
    edit_from(&of_head, head);
    edit_u32(&edit, "llama.block_count", 6 + layers);
    edit_u32(&edit, "llama.nextn_predict_layers", layers);
    width = (uint32_t)edit_tensor(&edit, "output_norm.weight")->dims[0];
    first = undo(head, gguf, "output_norm.weight", width);
    deeper = undo(head, head, "output_norm.weight", width);
    for (uint32_t d = 0; d < layers; d++)
        add_layer(&edit, &of_head, d, d == 0 ? first : deeper, width);
    edit_write(&edit, &bytes);
    w_save(&bytes, "/tmp", path + strlen("/tmp/"));
    w_free(&bytes);
    free(first);
    free(deeper);
    rn_gguf_free(gguf);
    rn_gguf_free(head);
}
