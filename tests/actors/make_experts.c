/* Writes a model with experts, of a dense llama's file: each block's feed-forward is cut into four experts, of which two
 * are used, chosen by a made-up matrix. What it says is no text, but it has a tokenizer. For tests of what experts have
 * to do with.
 *
 *   make_experts FROM TO      FROM: a path, or one in the folder of shared data; 77: it is not there */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/model/model_edit.h"
#include "tests/support/shared.h"

enum { EXPERTS = 4, USED = 2 };

static struct edit_tensor *tensor_of(struct model_edit *edit, uint32_t block, const char *name)
{
    char text[64];

    snprintf(text, sizeof text, "blk.%u.%s.weight", block, name);
    return edit_tensor(edit, text);
}

/* A quarter of the rows, or of the columns, is each expert's. */
static void cut(struct edit_tensor *tensor, uint32_t block, const char *name, uint32_t dimension)
{
    snprintf(tensor->name, sizeof tensor->name, "blk.%u.%s_exps.weight", block, name);
    assert_int_equal(tensor->dims[dimension] % EXPERTS, 0);
    tensor->dims[dimension] /= EXPERTS;
    tensor->dims[2] = EXPERTS;
    tensor->n_dims = 3;
}

static void cut_columns(struct edit_tensor *tensor, uint32_t block, const char *name)
{
    size_t rows = tensor->dims[1], part = tensor->bytes / rows / EXPERTS; /* whole blocks of the format */
    unsigned char *data = malloc(tensor->bytes);

    assert_non_null(data);
    for (size_t e = 0; e < EXPERTS; e++)
        for (size_t r = 0; r < rows; r++)
            memcpy(data + (e * rows + r) * part, (const char *)tensor->data + (r * EXPERTS + e) * part, part);
    tensor->data = data; /* until the file is written */
    cut(tensor, block, name, 0);
}

static void add_router(struct model_edit *edit, uint32_t block, uint32_t embedding, uint32_t *random)
{
    float *data = malloc(EXPERTS * embedding * sizeof *data);
    char name[64];

    assert_non_null(data);
    for (uint32_t i = 0; i < EXPERTS * embedding; i++) {
        *random = *random * 1664525 + 1013904223;
        data[i] = (float)(int32_t)*random * 0x1p-33f;
    }
    snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", block);
    edit_add_tensor(edit, name, embedding, EXPERTS, data);
}

static void make(const struct rn_gguf *gguf, struct writer *w)
{
    struct model_edit *edit = calloc(1, sizeof *edit);
    uint32_t random = 1, n_blocks = 0, hidden = 0;

    assert_non_null(edit);
    edit_from(edit, gguf);
    for (uint32_t i = 0; i < edit->n_tensors; i++)
        n_blocks += strstr(edit->tensors[i].name, ".ffn_gate.weight") != NULL;
    for (uint32_t i = 0; i < n_blocks; i++) {
        hidden = (uint32_t)tensor_of(edit, i, "ffn_gate")->dims[1];
        cut(tensor_of(edit, i, "ffn_gate"), i, "ffn_gate", 1);
        cut(tensor_of(edit, i, "ffn_up"), i, "ffn_up", 1);
        cut_columns(tensor_of(edit, i, "ffn_down"), i, "ffn_down");
        add_router(edit, i, (uint32_t)edit_tensor(edit, "output_norm.weight")->dims[0], &random);
    }
    edit_u32(edit, "llama.feed_forward_length", hidden / EXPERTS);
    edit_u32(edit, "llama.expert_count", EXPERTS);
    edit_u32(edit, "llama.expert_used_count", USED);
    edit_write(edit, w);
    for (uint32_t i = 0; i < n_blocks; i++) {
        free((void *)(uintptr_t)tensor_of(edit, i, "ffn_down_exps")->data);
        free((void *)(uintptr_t)tensor_of(edit, i, "ffn_gate_inp")->data);
    }
    free(edit);
}

int main(int argc, char **argv)
{
    struct writer w = {0};
    struct rn_gguf *gguf;
    runnel_error error = {0};
    struct rn_heap heap;
    char from[1024];
    FILE *file;

    if (argc != 3)
        return 2;
    snprintf(from, sizeof from, "%s", argv[1]);
    if (access(from, R_OK) != 0 && !shared_find(argv[1], from, sizeof from))
        return 77;
    rn_heap_init(&heap, NULL);
    if (rn_gguf_open(&heap, from, &gguf, &error) != RUNNEL_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    make(gguf, &w);
    file = fopen(argv[2], "wb");
    if (file == NULL || fwrite(w.bytes, 1, w.n, file) != w.n || fclose(file) != 0) {
        fprintf(stderr, "%s cannot be written\n", argv[2]);
        return 1;
    }
    w_free(&w);
    rn_gguf_free(gguf);
    return 0;
}
