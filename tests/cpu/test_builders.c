/* What architectures are built of, against a forward pass in double that is written here from the formulas alone: layer
 * norm, one matrix for q, k and v and its split, learned positions, biases, plain and gated feed-forward, blocks that
 * differ in heads, widths, rotation and window or are without attention, and attention in both directions. The
 * architectures are made up. On the reference and on every level of the fast path; and law 5, to the bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../model/model_edit.h"
#include "base/rng.h"
#include "model/build/build.h"
#include "tests/cpu/runner.h"

enum { WIDTH = 32, VOCAB = 16, CONTEXT = 640, BLOCKS = 4, BLOCK_TOKENS = 16, POOL = 1 << 17, MOST = 160 };

struct block {
    uint32_t heads, kv_heads, k_dim, v_dim, feed; /* heads 0: without attention */
    double base;                                  /* of the rotation; 0: none */
    uint32_t window;
};

struct made_up {
    struct rn_arch arch;
    bool positions; /* learned ones */
    bool fused;     /* one matrix for q, k, v; each matrix has a bias */
    bool gated;     /* the feed-forward, and attention: rows of attn_q are q and gate of each head in turn */
    double softcap;
    struct block blocks[BLOCKS];
    uint32_t idle_ropes; /* that no block has */
};

static void build(struct rn_build *b);
static runnel_status read_keys(const struct rn_hparams_reader *r);

static const struct made_up plain = {
    .arch = {"plain", RN_ARCH_NO_ROPE | RN_ARCH_LAYER_NORM | RN_ARCH_PLAIN_FFN, read_keys, build,
             .act = RN_ACT_GELU_ERF},
    .positions = true,
    .fused = true,
    .blocks = {{4, 2, 8, 8, 48, 0, 0}, {2, 1, 16, 8, 64, 0, 0}, {4, 4, 8, 8, 48, 0, 5}, {1, 1, 32, 16, 16, 0, 0}}};
static const struct made_up mixed = {
    .arch = {"mixed", RN_ARCH_NEOX | RN_ARCH_GAPS, read_keys, build},
    .gated = true,
    .softcap = 2,
    .blocks = {{4, 2, 8, 8, 48, 10000, 0}, {4, 1, 8, 8, 64, 50, 4}, {2, 2, 16, 16, 32, 0, 0}, {0, 0, 0, 0, 40, 0, 0}}};
static const struct made_up encoder = {
    .arch = {"encoder", RN_ARCH_LAYER_NORM | RN_ARCH_GAPS | RN_ARCH_BIDIRECTIONAL | RN_ARCH_PLAIN_FFN, read_keys, build,
             .act = RN_ACT_GELU_ERF},
    .fused = true,
    .blocks = {{4, 2, 8, 8, 48, 10000, 0}, {4, 4, 8, 8, 48, 50, 6}, {0, 0, 0, 0, 48, 0, 0}, {2, 1, 16, 8, 48, 0, 300}}};

/* ---- The product's side: keys, builder, file ---- */

static const struct made_up *current;

/* A rope for each base but the first, which is what the keys say. */
static runnel_status read_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    runnel_status status = RUNNEL_OK;
    struct rn_rope_hparams other;
    int32_t idle;
    uint32_t i;

    h->softcap = current->softcap;
    for (i = 0; i < BLOCKS && status == RUNNEL_OK; i++) {
        const struct block *block = &current->blocks[i];
        struct rn_layer_hparams *layer = &h->layers[i];

        layer->k_dim = block->k_dim;
        layer->v_dim = block->v_dim;
        layer->window = block->window;
        layer->attention_scale = block->heads == 0 ? 1 : 1 / sqrt(block->k_dim);
        if (block->base == 0) {
            layer->rope = RN_NO_ROPE;
        } else if (block->base != h->ropes[0].base) {
            other = h->ropes[0];
            other.base = block->base;
            status = rn_hparams_add_rope(r, &other, &layer->rope);
        }
    }
    for (i = 0; i < current->idle_ropes && status == RUNNEL_OK; i++)
        status = rn_hparams_add_rope(r, &h->ropes[0], &idle);
    return status;
}

/* Attention whose output is gated by half of what the query's matrix gives. */
static int16_t gated_attention(struct rn_build *b, int16_t x)
{
    const struct rn_layer_hparams *layer = &b->hparams.layers[b->layer];
    int16_t normed = rn_build_norm(b, x, "blk.%d.attn_norm"), both, gate, out;
    struct rn_qkv qkv;

    both = rn_build_linear(b, normed, "blk.%d.attn_q", 2 * layer->heads * layer->k_dim);
    qkv.q = rn_build_split(b, both, layer->heads, 0, layer->k_dim);
    gate = rn_build_split(b, both, layer->heads, layer->k_dim, layer->k_dim);
    rn_build_release(b, both);
    qkv.k = rn_build_linear(b, normed, "blk.%d.attn_k", layer->kv_heads * layer->k_dim);
    qkv.v = rn_build_linear(b, normed, "blk.%d.attn_v", layer->kv_heads * layer->v_dim);
    rn_build_release(b, normed);
    rn_build_rotate(b, &qkv);
    both = rn_build_gate(b, RN_ACT_SILU, gate, rn_build_attend(b, qkv));
    rn_build_last_rows(b, &both, &x);
    out = rn_build_linear(b, both, "blk.%d.attn_output", WIDTH);
    rn_build_release(b, both);
    return rn_build_add(b, out, x);
}

static void build(struct rn_build *b)
{
    int32_t embedding = rn_build_matrix(b, "token_embd.weight", WIDTH, VOCAB, 0, false);
    int16_t x;

    rn_build_ropes(b);
    x = rn_build_embed(b, embedding, 1);
    if (current->positions)
        x = rn_build_positions(b, x);
    for (b->layer = 0; (uint32_t)b->layer < b->n_blocks; b->layer++) {
        x = current->gated && current->blocks[b->layer].heads > 0 ? gated_attention(b, x)
                                                                  : rn_build_attention_part(b, x);
        x = rn_build_ffn_part(b, x);
    }
    b->layer = -1;
    rn_build_head(b, x, embedding);
}

static struct fixture {
    struct rn_heap heap;
    struct model_edit edit;
    struct writer bytes;
    struct rn_gguf *gguf;
    struct rn_plan *plan;
    runnel_status status;
    runnel_error error;
    float pool[POOL];
    uint32_t used;
    int32_t tokens[CONTEXT];
    double want[CONTEXT][VOCAB];
    float got[CONTEXT][VOCAB], again[CONTEXT][VOCAB];
} f;

/* A tensor of numbers that no other has. Those of norms are around one. */
static void add(const char *name, uint32_t cols, uint32_t rows)
{
    float *data = &f.pool[f.used];
    bool is_norm = strstr(name, "norm.weight") != NULL;
    uint64_t random = f.used + 1;
    uint32_t i;

    f.used += cols * rows;
    assert_true(f.used <= POOL);
    for (i = 0; i < cols * rows; i++)
        data[i] = (float)(rn_splitmix64(&random) >> 40) / (1 << 25) - 0.25f + (is_norm ? 1 : 0);
    edit_add_tensor(&f.edit, name, cols, rows, data);
}

static void add_linear(const char *stem, uint32_t block, uint32_t cols, uint32_t rows, bool bias)
{
    char name[64];

    snprintf(name, sizeof name, "blk.%u.%s.weight", block, stem);
    add(name, cols, rows);
    snprintf(name, sizeof name, "blk.%u.%s.bias", block, stem);
    if (bias)
        add(name, rows, 1);
}

static void add_norm(const char *stem, bool bias)
{
    char name[64];

    snprintf(name, sizeof name, "%s.weight", stem);
    add(name, WIDTH, 1);
    snprintf(name, sizeof name, "%s.bias", stem);
    if (bias)
        add(name, WIDTH, 1);
}

static void add_block(const struct made_up *m, uint32_t i)
{
    const struct block *b = &m->blocks[i];
    uint32_t q = b->heads * b->k_dim, k = b->kv_heads * b->k_dim, v = b->kv_heads * b->v_dim;
    bool bias = m->fused;
    char stem[32];

    if (b->heads > 0) {
        snprintf(stem, sizeof stem, "blk.%u.attn_norm", i);
        add_norm(stem, bias);
        if (m->fused) {
            add_linear("attn_qkv", i, WIDTH, q + k + v, bias);
        } else {
            add_linear("attn_q", i, WIDTH, 2 * q, bias);
            add_linear("attn_k", i, WIDTH, k, bias);
            add_linear("attn_v", i, WIDTH, v, bias);
        }
        add_linear("attn_output", i, b->heads * b->v_dim, WIDTH, bias);
    }
    snprintf(stem, sizeof stem, "blk.%u.ffn_norm", i);
    add_norm(stem, bias);
    if (m->gated)
        add_linear("ffn_gate", i, WIDTH, b->feed, bias);
    add_linear("ffn_up", i, WIDTH, b->feed, bias);
    add_linear("ffn_down", i, b->feed, WIDTH, bias);
}

static const char *key(const char *rest)
{
    static char keys[4][96];
    static uint32_t at;

    at = (at + 1) % 4;
    snprintf(keys[at], sizeof keys[at], "%s.%s", current->arch.name, rest);
    return keys[at];
}

static void write_keys(const struct made_up *m)
{
    uint32_t heads[BLOCKS], kv_heads[BLOCKS], feed[BLOCKS], i;

    for (i = 0; i < BLOCKS; i++) {
        heads[i] = m->blocks[i].heads;
        kv_heads[i] = m->blocks[i].kv_heads;
        feed[i] = m->blocks[i].feed;
    }
    edit_text(&f.edit, "general.architecture", m->arch.name);
    edit_u32(&f.edit, key("context_length"), CONTEXT);
    edit_u32(&f.edit, key("embedding_length"), WIDTH);
    edit_u32(&f.edit, key("block_count"), BLOCKS);
    edit_u32s(&f.edit, key("attention.head_count"), heads, BLOCKS);
    edit_u32s(&f.edit, key("attention.head_count_kv"), kv_heads, BLOCKS);
    edit_u32s(&f.edit, key("feed_forward_length"), feed, BLOCKS);
    edit_f32(
        &f.edit,
        key(m->arch.flags & RN_ARCH_LAYER_NORM ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
        1e-5f);
}

static void write_model(const struct made_up *m)
{
    uint32_t i;

    memset(&f, 0, sizeof f);
    rn_heap_init(&f.heap, NULL);
    current = m;
    write_keys(m);
    add("token_embd.weight", WIDTH, VOCAB);
    if (m->positions)
        add("position_embd.weight", WIDTH, CONTEXT);
    for (i = 0; i < BLOCKS; i++)
        add_block(m, i);
    add_norm("output_norm", m->fused);
    add("output.weight", WIDTH, VOCAB);
    for (i = 0; i < CONTEXT; i++)
        f.tokens[i] = (int32_t)(i * i * 7 % 31 % VOCAB);
}

static void make_plan(uint32_t context)
{
    struct rn_build b = {.error = &f.error};
    runnel_error error = {0};

    edit_write(&f.edit, &f.bytes);
    if (rn_gguf_parse(&f.heap, f.bytes.bytes, f.bytes.n, "made up", &f.gguf, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    f.status = rn_plan_make(&b, &f.heap, f.gguf, &current->arch, context, &f.plan);
}

static void unmake(void)
{
    rn_plan_free(f.plan);
    rn_gguf_free(f.gguf);
    w_free(&f.bytes);
    f.plan = NULL;
    f.gguf = NULL;
    assert_int_equal(rn_heap_blocks(&f.heap), 0);
}

static void make(const struct made_up *m)
{
    write_model(m);
    make_plan(0);
    if (f.status != RUNNEL_OK)
        fail_msg("%s", f.error.message);
    assert_true(rn_plan_check(f.plan));
}

/* ---- The formulas, in double ---- */

/* NULL where the file has no such tensor. */
static const float *tensor(const char *name)
{
    uint32_t i;

    for (i = 0; i < f.edit.n_tensors; i++)
        if (strcmp(f.edit.tensors[i].name, name) == 0)
            return f.edit.tensors[i].data;
    return NULL;
}

static const float *part(uint32_t block, const char *stem, const char *what)
{
    char name[64];

    snprintf(name, sizeof name, "blk.%u.%s.%s", block, stem, what);
    return tensor(name);
}

static void norm(bool is_layer, const float *w, const float *bias, const double *a, double *out)
{
    double mean = 0, square = 0;
    uint32_t i;

    for (i = 0; i < WIDTH && is_layer; i++)
        mean += a[i] / WIDTH;
    for (i = 0; i < WIDTH; i++)
        square += (a[i] - mean) * (a[i] - mean) / WIDTH;
    for (i = 0; i < WIDTH; i++)
        out[i] = (a[i] - mean) / sqrt(square + (double)1e-5f) * w[i] + (bias == NULL ? 0 : bias[i]);
}

static void linear(uint32_t block, const char *stem, uint32_t cols, uint32_t rows, const double *a, double *out)
{
    const float *w = part(block, stem, "weight"), *bias = part(block, stem, "bias");
    uint32_t i, j;

    for (j = 0; j < rows; j++) {
        out[j] = bias == NULL ? 0 : bias[j];
        for (i = 0; i < cols; i++)
            out[j] += w[j * cols + i] * a[i];
    }
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* Pairs (i, i + dim / 2) where neox, else (2i, 2i + 1). */
static void turn(double *a, uint32_t heads, uint32_t dim, uint32_t dims, double base, bool neox, uint32_t position)
{
    uint32_t h, i, at, to;
    double angle, x, y;

    for (h = 0; h < heads && base > 0; h++, a += dim)
        for (i = 0; i < dims / 2; i++) {
            angle = position * pow(base, -2.0 * i / dims);
            at = neox ? i : 2 * i;
            to = neox ? i + dims / 2 : 2 * i + 1;
            x = a[at];
            y = a[to];
            a[at] = x * cos(angle) - y * sin(angle);
            a[to] = x * sin(angle) + y * cos(angle);
        }
}

static double q[CONTEXT][MOST], k[CONTEXT][MOST], v[CONTEXT][MOST], gate[CONTEXT][MOST], x[CONTEXT][WIDTH];

static bool sees(const struct made_up *m, const struct block *b, uint32_t p, uint32_t other)
{
    if (m->arch.flags & RN_ARCH_BIDIRECTIONAL)
        return b->window == 0 || (p > other ? p - other : other - p) <= b->window / 2;
    return other <= p && (b->window == 0 || p - other < b->window);
}

static void attend(const struct made_up *m, const struct block *b, uint32_t n, uint32_t p, uint32_t head, double *out)
{
    static double weights[CONTEXT];
    uint32_t kv = head / (b->heads / b->kv_heads), other, i;
    double total = 0, sum;

    for (other = 0; other < n; other++) {
        for (sum = 0, i = 0; i < b->k_dim; i++)
            sum += q[p][head * b->k_dim + i] * k[other][kv * b->k_dim + i];
        sum /= sqrt(b->k_dim);
        if (m->softcap > 0)
            sum = m->softcap * tanh(sum / m->softcap);
        weights[other] = sees(m, b, p, other) ? exp(sum) : 0;
        total += weights[other];
    }
    for (i = 0; i < b->v_dim; i++)
        for (out[i] = 0, other = 0; other < n; other++)
            out[i] += weights[other] / total * v[other][kv * b->v_dim + i];
}

static void project(const struct made_up *m, uint32_t block, uint32_t p)
{
    const struct block *b = &m->blocks[block];
    uint32_t n_q = b->heads * b->k_dim, n_k = b->kv_heads * b->k_dim, n_v = b->kv_heads * b->v_dim, i;
    uint32_t dims = 0; /* of the first block's heads: what the file's keys say */
    double normed[WIDTH], all[2 * MOST];

    for (i = 0; i < BLOCKS && dims == 0; i++)
        dims = m->blocks[i].heads > 0 ? WIDTH / m->blocks[i].heads : 0;
    norm(m->arch.flags & RN_ARCH_LAYER_NORM, part(block, "attn_norm", "weight"), part(block, "attn_norm", "bias"), x[p],
         normed);
    if (m->fused) {
        linear(block, "attn_qkv", WIDTH, n_q + n_k + n_v, normed, all);
        memcpy(q[p], all, n_q * sizeof *all);
        memcpy(k[p], all + n_q, n_k * sizeof *all);
        memcpy(v[p], all + n_q + n_k, n_v * sizeof *all);
    } else {
        linear(block, "attn_q", WIDTH, 2 * n_q, normed, all);
        for (i = 0; i < n_q; i++) {
            q[p][i] = all[i / b->k_dim * 2 * b->k_dim + i % b->k_dim];
            gate[p][i] = all[i / b->k_dim * 2 * b->k_dim + b->k_dim + i % b->k_dim];
        }
        linear(block, "attn_k", WIDTH, n_k, normed, k[p]);
        linear(block, "attn_v", WIDTH, n_v, normed, v[p]);
    }
    turn(q[p], b->heads, b->k_dim, dims, b->base, m->arch.flags & RN_ARCH_NEOX, p);
    turn(k[p], b->kv_heads, b->k_dim, dims, b->base, m->arch.flags & RN_ARCH_NEOX, p);
}

static void attention(const struct made_up *m, uint32_t block, uint32_t n)
{
    const struct block *b = &m->blocks[block];
    double seen[MOST], out[WIDTH];
    uint32_t p, h, i;

    for (p = 0; p < n; p++)
        project(m, block, p);
    for (p = 0; p < n; p++) {
        for (h = 0; h < b->heads; h++)
            attend(m, b, n, p, h, seen + h * b->v_dim);
        for (i = 0; i < b->heads * b->v_dim && m->gated; i++)
            seen[i] *= silu(gate[p][i]);
        linear(block, "attn_output", b->heads * b->v_dim, WIDTH, seen, out);
        for (i = 0; i < WIDTH; i++)
            x[p][i] += out[i];
    }
}

static void feed_forward(const struct made_up *m, uint32_t block, uint32_t p)
{
    uint32_t n = m->blocks[block].feed, i;
    double normed[WIDTH], up[MOST], other[MOST], out[WIDTH];

    norm(m->arch.flags & RN_ARCH_LAYER_NORM, part(block, "ffn_norm", "weight"), part(block, "ffn_norm", "bias"), x[p],
         normed);
    linear(block, "ffn_up", WIDTH, n, normed, up);
    if (m->gated)
        linear(block, "ffn_gate", WIDTH, n, normed, other);
    for (i = 0; i < n; i++)
        up[i] = m->gated ? silu(other[i]) * up[i] : 0.5 * up[i] * (1 + erf(up[i] / sqrt(2)));
    linear(block, "ffn_down", n, WIDTH, up, out);
    for (i = 0; i < WIDTH; i++)
        x[p][i] += out[i];
}

static void forward(const struct made_up *m, uint32_t n)
{
    const float *tokens = tensor("token_embd.weight"), *positions = tensor("position_embd.weight");
    const float *output = tensor("output.weight");
    uint32_t p, i, j, block;
    double normed[WIDTH];

    for (p = 0; p < n; p++)
        for (i = 0; i < WIDTH; i++)
            x[p][i] = tokens[(uint32_t)f.tokens[p] * WIDTH + i] + (positions == NULL ? 0.0 : positions[p * WIDTH + i]);
    for (block = 0; block < BLOCKS; block++) {
        if (m->blocks[block].heads > 0)
            attention(m, block, n);
        for (p = 0; p < n; p++)
            feed_forward(m, block, p);
    }
    for (p = 0; p < n; p++) {
        norm(m->arch.flags & RN_ARCH_LAYER_NORM, tensor("output_norm.weight"), tensor("output_norm.bias"), x[p],
             normed);
        for (j = 0; j < VOCAB; j++)
            for (f.want[p][j] = 0, i = 0; i < WIDTH; i++)
                f.want[p][j] += output[j * WIDTH + i] * normed[i];
    }
}

/* ---- Runs ---- */

static const uint32_t n_levels = 7;

/* The reference, then the levels that this machine has; true: there is one by this number. */
static bool level_of(uint32_t i, const struct rn_level **level)
{
    const struct rn_level *levels[] = {
        NULL, rn_level_c(), rn_level_avx2(), rn_level_avx2_vnni(), rn_level_avx512(), rn_level_amx(), rn_level_neon()};

    *level = levels[i];
    return i == 0 || *level != NULL;
}

static void open_level(struct runner *r, const struct rn_level *level, uint32_t threads)
{
    const struct rn_backend_limits limits = {.max_rows = CONTEXT + 16,
                                             .max_seqs = 2,
                                             .max_outs = CONTEXT + 16,
                                             .n_blocks = 2 * CONTEXT / BLOCK_TOKENS,
                                             .block_tokens = BLOCK_TOKENS,
                                             .context_tokens = CONTEXT,
                                             .kv_type = RUNNEL_KV_F32};

    open_runner(r, &f.heap, f.plan, level, threads, &limits);
}

/* The first n tokens in steps of `chunk` positions; `beside` more rows in each step, a text of another sequence that
 * stands in front. */
static void run_text(struct runner *r, uint32_t n, uint32_t chunk, uint32_t beside, float out[][VOCAB])
{
    static uint32_t blocks[2][CONTEXT / BLOCK_TOKENS];
    static struct rn_step_row rows[CONTEXT + 16];
    static float logits[CONTEXT + 16][VOCAB];
    struct rn_step_seq seqs[2];
    struct rn_step step;
    uint32_t i, at, count;

    for (i = 0; i < CONTEXT / BLOCK_TOKENS; i++) {
        blocks[0][i] = 2 * (i * 7 % (CONTEXT / BLOCK_TOKENS));
        blocks[1][i] = blocks[0][i] + 1;
    }
    for (i = 0; i < 2; i++)
        seqs[i] = (struct rn_step_seq){.blocks = blocks[i], .n_blocks = CONTEXT / BLOCK_TOKENS};
    for (at = 0; at < n; at += count) {
        count = n - at < chunk ? n - at : chunk;
        for (i = 0; i < beside; i++)
            rows[i] = (struct rn_step_row){.token = 3, .position = i, .seq = 1, .out = (int32_t)i};
        for (i = 0; i < count; i++)
            rows[beside + i] = (struct rn_step_row){
                .token = f.tokens[at + i], .position = at + i, .seq = 0, .out = (int32_t)(beside + i)};
        step = (struct rn_step){.n_rows = beside + count,
                                .n_seqs = 2,
                                .n_outs = beside + count,
                                .rows = rows,
                                .seqs = seqs,
                                .logits = logits[0]};
        run_step(r, &step);
        memcpy(out[at], logits[beside], count * sizeof logits[0]);
    }
}

static double distance(uint32_t n)
{
    double error = 0, square = 0, d;
    uint32_t p, j;

    for (p = 0; p < n; p++)
        for (j = 0; j < VOCAB; j++) {
            d = f.got[p][j] - f.want[p][j];
            error += d * d;
            square += f.want[p][j] * f.want[p][j];
        }
    return error / square;
}

/* Near what the formulas say, whoever computes; and the same bits however the work is cut and whatever is beside. */
static void agrees(const struct made_up *m, uint32_t n)
{
    bool whole = (m->arch.flags & RN_ARCH_BIDIRECTIONAL) != 0;
    const struct rn_level *level;
    struct runner r;
    uint32_t i;

    make(m);
    forward(m, n);
    for (i = 0; i < n_levels; i++) {
        if (!level_of(i, &level))
            continue;
        open_level(&r, level, 1);
        run_text(&r, n, n, 0, f.got);
        if (!(distance(n) < 1e-11))
            fail_msg("%s, level %u: %g", m->arch.name, i, distance(n));
        close_runner(&r);
        open_level(&r, level, 2);
        run_text(&r, n, whole ? n : 7, 5, f.again);
        assert_memory_equal(f.got, f.again, n * sizeof f.got[0]);
        close_runner(&r);
    }
    unmake();
}

static void plain_agrees(void **state)
{
    (void)state;
    agrees(&plain, 40);
}

static void mixed_agrees(void **state)
{
    (void)state;
    agrees(&mixed, 40);
}

static void encoder_agrees(void **state)
{
    (void)state;
    agrees(&encoder, 40);
    agrees(&encoder, 600); /* more than one segment of attention */
    agrees(&encoder, 1);
}

/* ---- Plans ---- */

static uint32_t count(enum rn_op_kind kind)
{
    uint32_t i, n = 0;

    for (i = 0; i < f.plan->n_ops; i++)
        n += f.plan->ops[i].kind == kind;
    return n;
}

static struct rn_op *first_of(enum rn_op_kind kind)
{
    uint32_t i;

    for (i = 0; f.plan->ops[i].kind != kind; i++)
        assert_true(i + 1 < f.plan->n_ops);
    return &f.plan->ops[i];
}

static void plans_hold_what_the_blocks_have(void **state)
{
    (void)state;
    make(&plain);
    assert_int_equal(count(RN_OP_EMBED_POSITION), 1);
    assert_int_equal(count(RN_OP_SPLIT), 3 * 4);
    assert_int_equal(count(RN_OP_ROPE), 0);
    assert_int_equal(f.plan->n_ropes, 0);
    assert_int_equal(count(RN_OP_LAYER_NORM), 2 * 4 + 1);
    assert_int_equal(count(RN_OP_RMS_NORM), 0);
    assert_int_equal(count(RN_OP_SELECT), 2);
    assert_int_equal(f.plan->kv_layers[1].k_width, 16);
    assert_int_equal(f.plan->kv_layers[1].v_width, 8);
    assert_false(f.plan->bidirectional);
    unmake();
    make(&mixed);
    assert_int_equal(f.plan->n_kv_layers, 3); /* the last block has none ... */
    assert_int_equal(count(RN_OP_SELECT), 1); /* ... and goes on with the wanted rows alone, of one slot */
    assert_int_equal(count(RN_OP_ROPE), 2 * 2);
    assert_int_equal(f.plan->n_ropes, 2);
    assert_int_equal(count(RN_OP_ATTENTION), 3);
    unmake();
    make(&encoder);
    assert_true(f.plan->bidirectional);
    unmake();
    write_model(&encoder); /* the file may say otherwise */
    edit_bool(&f.edit, "encoder.attention.causal", true);
    make_plan(0);
    assert_int_equal(f.status, RUNNEL_OK);
    assert_false(f.plan->bidirectional);
    assert_false(first_of(RN_OP_ATTENTION)->bidirectional);
    unmake();
}

static void refused(uint32_t context, runnel_status status, const char *named)
{
    make_plan(context);
    if (f.status != status || strstr(f.error.message, named) == NULL)
        fail_msg("expected %s naming '%s', got %s: %s", runnel_status_name(status), named, runnel_status_name(f.status),
                 f.error.message);
    unmake();
}

static void what_does_not_fit_is_named(void **state)
{
    struct made_up more = mixed;
    uint32_t i;

    (void)state;
    write_model(&plain);
    refused(CONTEXT + 1, RUNNEL_UNSUPPORTED, "641 positions");
    write_model(&plain);
    edit_drop_key(&f.edit, "plain.attention.layer_norm_epsilon");
    refused(0, RUNNEL_FORMAT, "plain.attention.layer_norm_epsilon");
    write_model(&plain);
    edit_tensor(&f.edit, "blk.2.attn_qkv.weight")->dims[1]--;
    refused(0, RUNNEL_FORMAT, "blk.2.attn_qkv.weight");
    write_model(&plain);
    edit_drop_tensor(&f.edit, "position_embd.weight");
    refused(0, RUNNEL_FORMAT, "position_embd.weight");
    write_model(&mixed); /* but not where the architecture has no such blocks */
    current = &more;
    more.arch.flags &= ~(unsigned)RN_ARCH_GAPS;
    refused(0, RUNNEL_FORMAT, "mixed.attention.head_count");
    more = mixed;
    for (i = 0; i < 3; i++) /* beside the keys' own, which is 10000 */
        more.blocks[i].base = 100 + i;
    more.idle_ropes = RN_MAX_ROPES - 4;
    write_model(&more);
    make_plan(0);
    assert_int_equal(f.status, RUNNEL_OK);
    assert_int_equal(f.plan->n_ropes, RN_MAX_ROPES);
    unmake();
    more.blocks[3] = (struct block){4, 2, 8, 8, 48, 200, 0};
    write_model(&more);
    refused(0, RUNNEL_UNSUPPORTED, "rotation");
}

/* The plan with one thing of an op changed is none. */
#define CAUGHT(op, change)                       \
    do {                                         \
        struct rn_op saved = *(op);              \
        change;                                  \
        if (rn_plan_check(f.plan))               \
            fail_msg("not caught: %s", #change); \
        *(op) = saved;                           \
    } while (0)

static void breaches_are_caught(void **state)
{
    struct rn_op *split, *position, *attention_op;

    (void)state;
    make(&plain);
    split = first_of(RN_OP_SPLIT);
    CAUGHT(split, split->heads = 0);
    CAUGHT(split, split->heads = 3);
    CAUGHT(split, split->k_dim++);
    CAUGHT(split, split->group = f.plan->slots[split->a].width);
    position = first_of(RN_OP_EMBED_POSITION);
    CAUGHT(position, position->weight = -1);
    CAUGHT(position, position->a = position->out);
    f.plan->context_tokens++;
    CAUGHT(position, (void)position);
    f.plan->context_tokens--;
    attention_op = first_of(RN_OP_ATTENTION);
    CAUGHT(attention_op, attention_op->bidirectional = true);
    assert_true(rn_plan_check(f.plan));
    unmake();
}

/* Attention in both directions needs all of a sequence in one step. */
static void steps_of_encoders_are_whole(void **state)
{
    const struct rn_backend_limits limits = {.max_rows = 8,
                                             .max_seqs = 1,
                                             .max_outs = 8,
                                             .n_blocks = 4,
                                             .block_tokens = BLOCK_TOKENS,
                                             .context_tokens = 32,
                                             .kv_type = RUNNEL_KV_F32};
    static const uint32_t blocks[] = {0, 1};
    struct rn_step_row rows[] = {{0, 0, 0, -1}, {1, 1, 0, -1}};
    struct rn_step_seq seq = {.blocks = blocks, .n_blocks = 2};
    struct rn_step step = {.n_rows = 2, .n_seqs = 1, .rows = rows, .seqs = &seq, .on_done = on_step_done};

    (void)state;
    make(&encoder);
    assert_true(rn_step_check(&step, f.plan, &limits));
    rows[0].position = 1;
    rows[1].position = 2;
    assert_false(rn_step_check(&step, f.plan, &limits));
    unmake();
    make(&plain);
    assert_true(rn_step_check(&step, f.plan, &limits));
    unmake();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_agrees),
        cmocka_unit_test(mixed_agrees),
        cmocka_unit_test(encoder_agrees),
        cmocka_unit_test(plans_hold_what_the_blocks_have),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(breaches_are_caught),
        cmocka_unit_test(steps_of_encoders_are_whole),
    };

    return cmocka_run_group_tests_name("what architectures are built of", tests, NULL, NULL);
}
