/* make_ranker MODEL.gguf FILE.gguf KIND: a reranker out of a model of architecture llama, for programs that want one.
 * The weights of its head are made up: its scores mean nothing, but they are the same in every program.
 *
 *     template    Qwen3's form: two tokens' logits, a template for query and text, labels
 *     bare        one score, two products, no template, no labels
 *
 * Both are of architecture qwen3, of which llama.cpp knows the head; `bare` has a product (cls) that it does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../model/model_edit.h"
#include "base/alloc.h"
#include "model/gguf/gguf.h"

enum { MOST = 4096, HIDDEN = 24 };

static void *owned[16]; /* [n_owned]: what the edited model borrows until it is written */
static size_t n_owned;
static struct rn_gguf *gguf;
static struct model_edit edit;

static void *keep(size_t bytes)
{
    void *at = calloc(1, bytes);

    if (at == NULL || n_owned == sizeof owned / sizeof owned[0]) {
        fprintf(stderr, "make_ranker: no memory\n");
        exit(1);
    }
    owned[n_owned++] = at;
    return at;
}

static uint32_t number(const char *key)
{
    uint64_t value = 0;

    if (rn_gguf_get_u64(gguf, key, true, 1, MOST, &value, NULL) != RUNNEL_OK) {
        fprintf(stderr, "make_ranker: the model has no %s\n", key);
        exit(1);
    }
    return (uint32_t)value;
}

/* Values in [-size, size), from a small generator of Park and Miller (1988). */
static float *values(size_t n, uint32_t seed, float size)
{
    float *at = keep(n * sizeof *at);
    uint64_t state = seed;

    for (size_t i = 0; i < n; i++) {
        state = state * 48271 % 2147483647;
        at[i] = size * (float)((double)state / 1073741824.0 - 1);
    }
    return at;
}

/* Norms of the heads that change nothing. */
static void add_norms(uint32_t head)
{
    float *ones = keep(head * sizeof *ones);

    for (uint32_t i = 0; i < head; i++)
        ones[i] = 1;
    for (uint32_t i = 0; i < number("llama.block_count"); i++) {
        char name[64];

        snprintf(name, sizeof name, "blk.%u.attn_q_norm.weight", i);
        edit_add_tensor(&edit, name, head, 1, ones);
        edit.tensors[edit.n_tensors - 1].n_dims = 1;
        snprintf(name, sizeof name, "blk.%u.attn_k_norm.weight", i);
        edit_add_tensor(&edit, name, head, 1, ones);
        edit.tensors[edit.n_tensors - 1].n_dims = 1;
    }
}

/* A text of any length. */
static void add_text(const char *name, const char *text)
{
    struct edit_key *key = &edit.keys[edit.n_keys++];
    uint64_t n = strlen(text);
    char *data = keep(sizeof n + n);

    memcpy(data, &n, sizeof n);
    memcpy(data + sizeof n, text, n);
    snprintf(key->name, sizeof key->name, "%s", name);
    key->type = key->item = RN_GGUF_STRING;
    key->count = 1;
    key->data = data;
    key->bytes = sizeof n + n;
}

static void add_labels(void)
{
    static const char both[] = "\3\0\0\0\0\0\0\0yes\2\0\0\0\0\0\0\0no";
    struct edit_key *key = &edit.keys[edit.n_keys++];

    snprintf(key->name, sizeof key->name, "qwen3.classifier.output_labels");
    key->type = RN_GGUF_ARRAY;
    key->item = RN_GGUF_STRING;
    key->count = 2;
    key->data = both;
    key->bytes = sizeof both - 1;
}

static int save(const char *path)
{
    FILE *file = fopen(path, "wb");
    struct writer w = {0};
    bool written;

    edit_write(&edit, &w);
    written = file != NULL && fwrite(w.bytes, 1, w.n, file) == w.n;
    w_free(&w);
    return file != NULL && fclose(file) == 0 && written ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct rn_heap heap;
    uint32_t width, head;
    int code;
    bool bare = argc == 4 && strcmp(argv[3], "bare") == 0;

    rn_heap_init(&heap, NULL);
    if (argc != 4 || rn_gguf_open(&heap, argv[1], &gguf, NULL) != RUNNEL_OK) {
        fprintf(stderr, "usage: make_ranker MODEL.gguf FILE.gguf template|bare\n");
        return 2;
    }
    width = number("llama.embedding_length");
    head = width / number("llama.attention.head_count");
    edit_from(&edit, gguf);
    edit_rename(&edit, "qwen3");
    edit_u32(&edit, "qwen3.attention.key_length", head);
    edit_u32(&edit, "qwen3.attention.value_length", head);
    edit_u32(&edit, "qwen3.pooling_type", 4);
    add_norms(head);
    if (bare) {
        edit_add_tensor(&edit, "cls.weight", width, HIDDEN, values((size_t)width * HIDDEN, 3, 0.3f));
        edit_add_tensor(&edit, "cls.output.weight", HIDDEN, 1, values(HIDDEN, 4, 1));
    } else {
        edit_add_tensor(&edit, "cls.output.weight", width, 2, values((size_t)width * 2, 5, 0.2f));
        add_text("tokenizer.chat_template.rerank",
                 "Does the story answer the question?\nQuestion: {query}\nStory: {document}\nYes or no: ");
        add_labels();
    }
    code = save(argv[2]);
    rn_gguf_free(gguf);
    while (n_owned > 0)
        free(owned[--n_owned]);
    return code;
}
