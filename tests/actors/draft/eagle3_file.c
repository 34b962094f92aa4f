/* Files of EAGLE-3 heads: see eagle3_file.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eagle3_file.h"
#include "model/quant/quant.h"
#include "tests/actors/fixture.h"
#include "tests/model/model_edit.h"

enum {
    PERIOD = EAGLE3_PERIOD,
    STRIDE = 5,   /* from class to class: prime to PERIOD */
    VOCAB = 2048, /* of the bundled model */
    WIDE = 48,    /* of the head of the round */
    BLOCKS = 6,   /* of the bundled model */
    WIDTH = 256
};

struct file {
    struct rn_heap heap;
    struct rn_gguf *bundled;
    struct model_edit edit;
    float *memory[64]; /* of tensors */
    uint32_t n;
};

/* The bundled model's keys, without its own. */
static struct file *begin(const char *architecture)
{
    struct file *f = calloc(1, sizeof *f);

    assert_non_null(f);
    rn_heap_init(&f->heap, NULL);
    assert_int_equal(rn_gguf_open(&f->heap, BUNDLED_MODEL, &f->bundled, NULL), RUNNEL_OK);
    edit_from(&f->edit, f->bundled);
    f->edit.n_tensors = 0;
    for (uint32_t i = f->edit.n_keys; i-- > 0;)
        if (strncmp(f->edit.keys[i].name, "llama.", 6) == 0)
            edit_drop_key(&f->edit, f->edit.keys[i].name);
    edit_text(&f->edit, "general.architecture", architecture);
    return f;
}

static void end(struct file *f, const char *path)
{
    struct writer bytes = {0};

    edit_write(&f->edit, &bytes);
    w_save(&bytes, "/tmp", path + strlen("/tmp/"));
    w_free(&bytes);
    for (uint32_t i = 0; i < f->n; i++)
        free(f->memory[i]);
    rn_gguf_free(f->bundled);
    free(f);
}

/* A tensor of zeros, to be filled. */
static float *add(struct file *f, const char *name, uint32_t cols, uint32_t rows)
{
    float *data = calloc((size_t)cols * rows, sizeof *data);

    assert_true(data != NULL && f->n < sizeof f->memory / sizeof f->memory[0]);
    f->memory[f->n++] = data;
    edit_add_tensor(&f->edit, name, cols, rows, data);
    return data;
}

static void add_ones(struct file *f, const char *name, uint32_t n)
{
    float *data = add(f, name, n, 1);

    for (uint32_t i = 0; i < n; i++)
        data[i] = 1;
}

static void add_tokens(struct file *f, const int64_t *ids, uint32_t n)
{
    struct edit_tensor *tensor = &f->edit.tensors[f->edit.n_tensors++];

    *tensor = (struct edit_tensor){
        .name = "d2t", .n_dims = 1, .type = RN_I64, .dims = {n, 1, 1, 1}, .data = ids, .bytes = n * sizeof *ids};
}

struct shape {
    uint32_t width, heads, kv_heads, ff;
};

/* Keys of every decoder. */
static void set_keys(struct file *f, const char *architecture, uint32_t blocks, struct shape s)
{
    char key[96];
    const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {{"block_count", blocks},
                   {"context_length", 1024},
                   {"embedding_length", s.width},
                   {"feed_forward_length", s.ff},
                   {"attention.head_count", s.heads},
                   {"attention.head_count_kv", s.kv_heads},
                   {"rope.dimension_count", s.width / s.heads},
                   {"vocab_size", VOCAB}};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, numbers[i].name);
        edit_u32(&f->edit, key, numbers[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", architecture);
    edit_f32(&f->edit, key, 1e-5f);
}

/* A block without norms that gives what it gets: all its products are zeros. in: what queries, keys and values read. */
static void add_block(struct file *f, uint32_t number, struct shape s, uint32_t in)
{
    const uint32_t head = s.width / s.heads;
    const struct {
        const char *name;
        uint32_t cols, rows;
    } all[] = {{"attn_q", in, s.width},           {"attn_k", in, head * s.kv_heads}, {"attn_v", in, head * s.kv_heads},
               {"attn_output", s.width, s.width}, {"ffn_gate", s.width, s.ff},       {"ffn_up", s.width, s.ff},
               {"ffn_down", s.ff, s.width}};
    char name[64];

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", number, all[i].name);
        add(f, name, all[i].cols, all[i].rows);
    }
}

static float *data_of(struct file *f, const char *name)
{
    return (float *)(uintptr_t)edit_tensor(&f->edit, name)->data;
}

/* ---- A round ----
 *
 * Each token has a class, which is all that its embedding says. Behind a token of class j comes the token number j of
 * the round, whose class is j + STRIDE. */

static int64_t round_token(uint32_t j)
{
    return 300 + 7 * (int64_t)j;
}

static uint32_t class_of(uint32_t token)
{
    for (uint32_t j = 0; j < PERIOD; j++)
        if (round_token(j) == (int64_t)token)
            return (j + STRIDE) % PERIOD;
    return token % PERIOD;
}

void eagle3_write_round(const char *path)
{
    const struct shape s = {PERIOD, 4, 2, 16};
    struct file *f = begin("llama");
    float *embedding, *output;
    char name[64];

    set_keys(f, "llama", 2, s);
    embedding = add(f, "token_embd.weight", PERIOD, VOCAB);
    output = add(f, "output.weight", PERIOD, VOCAB);
    for (uint32_t v = 0; v < VOCAB; v++)
        embedding[v * PERIOD + class_of(v)] = 1;
    for (uint32_t j = 0; j < PERIOD; j++)
        output[round_token(j) * PERIOD + j] = 8;
    add_ones(f, "output_norm.weight", PERIOD);
    for (uint32_t i = 0; i < 2; i++) {
        add_block(f, i, s, PERIOD);
        snprintf(name, sizeof name, "blk.%u.attn_norm.weight", i);
        add_ones(f, name, PERIOD);
        snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", i);
        add_ones(f, name, PERIOD);
    }
    end(f, path);
}

/* What the fusion gives is the class of the last token but one; the feed-forward makes it that of the last one, or,
 * where the head errs, of every fourth class that of another. */
static void fill_head(struct file *f, bool errs)
{
    const float scale = 6.9282f; /* of a norm: the root of WIDE */
    float *fc = data_of(f, "fc.weight"), *gate = data_of(f, "blk.0.ffn_gate.weight");
    float *up = data_of(f, "blk.0.ffn_up.weight"), *down = data_of(f, "blk.0.ffn_down.weight");
    float *output = data_of(f, "output.weight");

    for (uint32_t j = 0; j < PERIOD; j++) {
        uint32_t next = (j + STRIDE + (errs && j % 4 == 1)) % PERIOD;

        fc[j * 2 * PERIOD + PERIOD + j] = 1 / 5.6569f; /* likewise, of both streams: the root of PERIOD */
        gate[j * WIDE + j] = 4;
        up[j * WIDE + j] = 1;
        down[next * WIDE + j] += 1 / (4 * scale * scale);
        down[j * WIDE + j] -= 1 / (4 * scale * scale);
        output[(PERIOD - 1 - j) * WIDE + j] = 8;
    }
}

void eagle3_write_round_head(const char *path, bool errs)
{
    static int64_t ids[PERIOD];
    const struct shape s = {WIDE, 6, 3, WIDE};
    struct file *f = begin("eagle3");

    for (uint32_t j = 0; j < PERIOD; j++)
        ids[PERIOD - 1 - j] = round_token(j);
    set_keys(f, "eagle3", 1, s);
    edit_u32s(&f->edit, "eagle3.target_layers", (const uint32_t[]){1, 2}, 2);
    edit_u32(&f->edit, "eagle3.target_hidden_size", PERIOD);
    edit_bool(&f->edit, "eagle3.norm_before_fc", true);
    add(f, "fc.weight", 2 * PERIOD, WIDE);
    add_ones(f, "enc.output_norm.weight", 2 * PERIOD);
    add(f, "token_embd.weight", WIDE, VOCAB);
    add(f, "output.weight", WIDE, PERIOD);
    add_block(f, 0, s, 2 * WIDE);
    add_ones(f, "output_norm.weight", WIDE);
    add_ones(f, "blk.0.attn_norm.weight", WIDE);
    add_ones(f, "blk.0.attn_norm_2.weight", WIDE);
    add_ones(f, "blk.0.ffn_norm.weight", WIDE);
    add_tokens(f, ids, PERIOD);
    fill_head(f, errs);
    end(f, path);
}

/* ---- A block once more ---- */

/* The bundled model's tensor, of which each row gets `behind` columns in front: a tenth of the row's own. */
static void add_again(struct file *f, const char *from, const char *as, uint32_t behind)
{
    const struct rn_tensor *tensor = rn_gguf_find_tensor(f->bundled, from);
    uint32_t cols = (uint32_t)tensor->dims[0], rows = (uint32_t)tensor->dims[1];
    float *out = add(f, as, cols + behind, rows);

    for (uint32_t r = 0; r < rows; r++) {
        float *row = out + (size_t)r * (cols + behind);

        rn_type(tensor->type)
            ->decode((const char *)tensor->data + r * rn_type_bytes(rn_type(tensor->type), cols), row + behind, cols);
        for (uint32_t i = 0; i < behind; i++)
            row[i] = 0.1f * row[behind + i];
    }
}

/* Rows of the output for tokens but every fourth. */
static void add_some(struct file *f)
{
    static int64_t ids[VOCAB];
    const struct rn_tensor *tensor = rn_gguf_find_tensor(f->bundled, "token_embd.weight");
    size_t row = rn_type_bytes(rn_type(tensor->type), WIDTH);
    uint32_t n = 0;
    float *output;

    for (uint32_t v = 0; v < VOCAB; v++)
        if (v % 4 != 3)
            ids[n++] = v;
    output = add(f, "output.weight", WIDTH, n);
    for (uint32_t i = 0; i < n; i++)
        rn_type(tensor->type)
            ->decode((const char *)tensor->data + (size_t)ids[i] * row, output + (size_t)i * WIDTH, WIDTH);
    add_tokens(f, ids, n);
}

void eagle3_write_again(const char *path, bool some)
{
    static const char *const names[] = {"attn_norm", "attn_q",   "attn_k", "attn_v",  "attn_output",
                                        "ffn_norm",  "ffn_gate", "ffn_up", "ffn_down"};
    struct file *f = begin("eagle3");
    char from[64], as[64];
    float *fc;

    set_keys(f, "eagle3", 1, (struct shape){WIDTH, 8, 4, 768});
    edit_u32s(&f->edit, "eagle3.target_layers", (const uint32_t[]){2, 4, BLOCKS}, 3);
    edit_u32(&f->edit, "eagle3.target_hidden_size", WIDTH);
    edit_bool(&f->edit, "eagle3.norm_before_residual", some);
    fc = add(f, "fc.weight", 3 * WIDTH, WIDTH);
    for (uint32_t i = 0; i < WIDTH; i++)
        fc[i * 3 * WIDTH + 2 * WIDTH + i] = 1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(from, sizeof from, "blk.%d.%s.weight", BLOCKS - 1, names[i]);
        snprintf(as, sizeof as, "blk.0.%s.weight", names[i]);
        add_again(f, from, as, i >= 1 && i <= 3 ? WIDTH : 0);
    }
    add_again(f, "blk.5.attn_norm.weight", "blk.0.attn_norm_2.weight", 0);
    add_again(f, "output_norm.weight", "output_norm.weight", 0);
    if (some)
        add_some(f);
    end(f, path);
}
