/* Ops with a recurrent state, of plans without any attention: against their formulas in double, and law 5 to the bit:
 * however sequences are cut into steps, whoever stands beside them, and wherever their states lie. On the reference and
 * on every level of the fast path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "../model/model_edit.h"
#include "base/rng.h"
#include "model/build/build.h"
#include "tests/cpu/runner.h"

enum { WIDTH = 200, VOCAB = 16, CONTEXT = 64, TOKENS = 40, SEQS = 3, POOL = 1 << 18 };
enum { FIRST_TAPS = 4, SECOND_TAPS = 3, THIRD_TAPS = 3, SPAN = 2 };

static const char *const levels[] = {"reference", "c", "avx2", "avx512", "neon"};

static struct fixture {
    struct rn_heap heap;
    struct model_edit edit;
    struct writer bytes;
    struct rn_gguf *gguf;
    struct rn_plan *plan;
    float pool[POOL];
    uint32_t used;
    int32_t tokens[SEQS][TOKENS];
    double want[TOKENS][VOCAB];
    float once[SEQS][TOKENS][VOCAB], got[SEQS][TOKENS][VOCAB];
} f;

static const float *add(const char *name, uint32_t cols, uint32_t rows)
{
    float *data = &f.pool[f.used];
    uint64_t random = f.used + 1;
    uint32_t i;

    f.used += cols * rows;
    assert_true(f.used <= POOL);
    for (i = 0; i < cols * rows; i++)
        data[i] = (float)(rn_splitmix64(&random) >> 40) / (1 << 23) - 1;
    edit_add_tensor(&f.edit, name, cols, rows, data);
    return data;
}

/* ---- Convolutions ---- */

static void build_convolutions(struct rn_build *b)
{
    int32_t embedding = rn_build_matrix(b, "token_embd.weight", WIDTH, VOCAB, 0, false);
    int16_t x = rn_build_embed(b, embedding, 1), y = rn_build_conv(b, x, "first", FIRST_TAPS, true);

    rn_build_release(b, x);
    x = rn_build_conv(b, y, "second", SECOND_TAPS, false);
    rn_build_release(b, y);
    y = rn_build_wide_conv(b, x, "third", THIRD_TAPS, SPAN);
    rn_build_release(b, x);
    rn_build_head(b, y, embedding);
}

static const struct rn_arch convolutions = {.name = "plain", .flags = RN_ARCH_NO_ROPE, .build = build_convolutions};

/* out of a, [TOKENS][WIDTH] */
static void convolve(double *out, const double *a, const float *weights, const float *bias, int taps, int span,
                     bool silu)
{
    double sum;
    int r, c, i;

    for (r = 0; r < TOKENS; r++)
        for (c = 0; c < WIDTH; c++) {
            sum = bias == NULL ? 0 : bias[c];
            for (i = 0; i < taps; i++)
                if (r >= (taps - 1 - i) * span)
                    sum += (double)weights[c * taps + i] * a[(r - (taps - 1 - i) * span) * WIDTH + c];
            out[r * WIDTH + c] = silu ? sum / (1 + exp(-sum)) : sum;
        }
}

/* Logits of the first sequence: the embedding again, of the norm of x. */
static void judge_head(const double *x, const float *embedding, const float *norm)
{
    double square, sum;
    int r, c, t;

    for (r = 0; r < TOKENS; r++) {
        square = 0;
        for (c = 0; c < WIDTH; c++)
            square += x[r * WIDTH + c] * x[r * WIDTH + c];
        for (t = 0; t < VOCAB; t++) {
            sum = 0;
            for (c = 0; c < WIDTH; c++)
                sum += x[r * WIDTH + c] / sqrt(square / WIDTH + 1e-5) * norm[c] * embedding[t * WIDTH + c];
            f.want[r][t] = sum;
        }
    }
}

static void make_convolutions(void)
{
    static double x[TOKENS * WIDTH], y[TOKENS * WIDTH];
    const float *embedding = add("token_embd.weight", WIDTH, VOCAB), *norm = add("output_norm.weight", WIDTH, 1);
    const float *first = add("first.weight", FIRST_TAPS, WIDTH), *bias = add("first.bias", WIDTH, 1);
    const float *second = add("second.weight", SECOND_TAPS, WIDTH), *third = add("third.weight", THIRD_TAPS, WIDTH);

    for (int i = 0; i < TOKENS * WIDTH; i++)
        x[i] = embedding[f.tokens[0][i / WIDTH] * WIDTH + i % WIDTH];
    convolve(y, x, first, bias, FIRST_TAPS, 1, true);
    convolve(x, y, second, NULL, SECOND_TAPS, 1, false);
    convolve(y, x, third, NULL, THIRD_TAPS, SPAN, true);
    judge_head(y, embedding, norm);
}

/* ---- A file and its plan ---- */

static void open_plan(const struct rn_arch *arch, void (*make)(void))
{
    uint64_t random = 9;
    runnel_error error = {0};
    struct rn_build b = {.error = &error};

    memset(&f, 0, sizeof f);
    rn_heap_init(&f.heap, NULL);
    for (int i = 0; i < SEQS * TOKENS; i++)
        f.tokens[i / TOKENS][i % TOKENS] = (int32_t)(rn_splitmix64(&random) % VOCAB);
    edit_text(&f.edit, "general.architecture", "plain");
    edit_u32(&f.edit, "plain.block_count", 1);
    edit_u32(&f.edit, "plain.context_length", CONTEXT);
    edit_u32(&f.edit, "plain.embedding_length", WIDTH);
    edit_u32(&f.edit, "plain.attention.head_count", 1);
    edit_f32(&f.edit, "plain.attention.layer_norm_rms_epsilon", 1e-5f);
    make();
    edit_write(&f.edit, &f.bytes);
    assert_int_equal(rn_gguf_parse(&f.heap, f.bytes.bytes, f.bytes.n, "test.gguf", &f.gguf, NULL), RUNNEL_OK);
    if (rn_plan_make(&b, &f.heap, f.gguf, arch, 0, &f.plan) != RUNNEL_OK)
        fail_msg("%s", error.message);
    assert_true(rn_plan_check(f.plan));
}

static void close_plan(void)
{
    rn_plan_free(f.plan);
    rn_gguf_free(f.gguf);
    w_free(&f.bytes);
    assert_int_equal(rn_heap_blocks(&f.heap), 0);
}

/* ---- Steps ---- */

/* One step of n[s] rows of each sequence s from at[s] on; where that is 0 its state begins as zeros. */
static void step_on(struct runner *r, const uint32_t at[SEQS], const uint32_t n[SEQS], const uint32_t slots[SEQS])
{
    static const uint32_t blocks[SEQS] = {2, 0, 1};
    struct rn_step_row rows[SEQS * TOKENS];
    struct rn_step_seq seqs[SEQS];
    struct rn_step_state_copy copies[SEQS];
    uint32_t states[SEQS], i, s;
    float logits[SEQS * TOKENS * VOCAB];
    struct rn_step step = {.rows = rows, .seqs = seqs, .logits = logits, .states = states, .state_copies = copies};

    for (s = 0; s < SEQS; s++) {
        if (n[s] == 0)
            continue;
        for (i = 0; i < n[s]; i++, step.n_rows++)
            rows[step.n_rows] =
                (struct rn_step_row){f.tokens[s][at[s] + i], at[s] + i, step.n_seqs, (int32_t)step.n_rows};
        if (at[s] == 0)
            copies[step.n_state_copies++] = (struct rn_step_state_copy){RN_NO_STATE, slots[s]};
        seqs[step.n_seqs] = (struct rn_step_seq){.blocks = &blocks[s], .n_blocks = 1};
        states[step.n_seqs++] = slots[s];
    }
    step.n_outs = step.n_rows;
    run_step(r, &step);
    for (s = 0, i = 0; s < SEQS; i += n[s], s++)
        memcpy(f.got[s][at[s]], logits + (size_t)i * VOCAB, n[s] * VOCAB * sizeof *logits);
}

/* All tokens of all sequences; sequence s in steps of chunk + s rows, the last ones alone. */
static void run_all(struct runner *r, uint32_t chunk, const uint32_t slots[SEQS])
{
    uint32_t at[SEQS] = {0}, n[SEQS], left = 1, s;

    memset(f.got, 0xff, sizeof f.got);
    while (left > 0) {
        for (left = 0, s = 0; s < SEQS; s++) {
            n[s] = TOKENS - at[s] < chunk + s ? TOKENS - at[s] : chunk + s;
            left += n[s];
        }
        if (left > 0)
            step_on(r, at, n, slots);
        for (s = 0; s < SEQS; s++)
            at[s] += n[s];
    }
}

static void judge_level(const char *name, uint32_t threads)
{
    static const uint32_t slots[][SEQS] = {{0, 1, 2}, {4, 0, 3}};
    const struct rn_level *level = strcmp(name, "reference") == 0 ? NULL : rn_level_named(name);
    const struct rn_backend_limits limits = {.max_rows = SEQS * TOKENS,
                                             .max_seqs = SEQS,
                                             .max_outs = SEQS * TOKENS,
                                             .n_blocks = SEQS,
                                             .block_tokens = CONTEXT,
                                             .context_tokens = CONTEXT,
                                             .n_states = 5};
    double error = 0, power = 0, d;
    struct runner r;
    uint32_t chunk;
    int i, t;

    open_runner(&r, &f.heap, f.plan, level, threads, &limits);
    run_all(&r, TOKENS, slots[0]);
    memcpy(f.once, f.got, sizeof f.once);
    for (i = 0; i < TOKENS; i++)
        for (t = 0; t < VOCAB; t++) {
            d = f.once[0][i][t] - f.want[i][t];
            error += d * d;
            power += f.want[i][t] * f.want[i][t];
        }
    if (!(error < power * 1e-11))
        fail_msg("%s: squared error %g of %g", name, error, power);
    for (chunk = 1; chunk <= 9; chunk++) {
        run_all(&r, chunk, slots[chunk % 2]);
        if (memcmp(f.got, f.once, sizeof f.once) != 0)
            fail_msg("%s: steps of %u rows give other bits", name, chunk);
    }
    close_runner(&r);
}

static void judge(const struct rn_arch *arch, void (*make)(void))
{
    open_plan(arch, make);
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (i == 0 || rn_level_named(levels[i]) != NULL)
            judge_level(levels[i], 1 + (uint32_t)i % 3);
    close_plan();
}

static void test_convolutions(void **state)
{
    (void)state;
    judge(&convolutions, make_convolutions);
}

/* ---- Ops whose inputs are products of the embedding: out of them, another product back to its width ---- */

enum { HEADS = 4, KV_HEADS = 2, K_DIM = 12, V_DIM = 20, CHANNELS = 60, MOST = 512 };

/* act(matrix · x / 64), [n]. Keeps x. */
static int16_t build_input(struct rn_build *b, int16_t x, const char *name, uint32_t n, enum rn_activation act)
{
    int16_t out = rn_build_linear(b, x, name, n);

    rn_build_scale(b, out, 1 / 64.0);
    return rn_build_activate(b, act, out);
}

static int16_t build_begin(struct rn_build *b, int32_t *embedding)
{
    *embedding = rn_build_matrix(b, "token_embd.weight", WIDTH, VOCAB, 0, false);
    return rn_build_embed(b, *embedding, 1);
}

static void build_end(struct rn_build *b, int16_t x, int16_t y, int32_t embedding)
{
    rn_build_release(b, x);
    x = rn_build_linear(b, y, "up", WIDTH);
    rn_build_release(b, y);
    rn_build_head(b, x, embedding);
}

/* What the two functions above compute, of sequence 0. */
static struct {
    const float *embedding, *norm, *up;
    double x[TOKENS][WIDTH], a[TOKENS][MOST], b[TOKENS][MOST], y[TOKENS][MOST];
} g;

static double sigmoid(double v)
{
    return 1 / (1 + exp(-v));
}

static double softplus(double v)
{
    return log1p(exp(v));
}

static double same(double v)
{
    return v;
}

/* rows[r][at + i] = act(matrix[i] · x[r] / 64) for i < n */
static void make_input(double rows[TOKENS][MOST], uint32_t at, const char *name, uint32_t n, double (*act)(double))
{
    const float *matrix = add(name, WIDTH, n);

    for (int r = 0; r < TOKENS; r++)
        for (uint32_t i = 0; i < n; i++) {
            double sum = 0;

            for (int c = 0; c < WIDTH; c++)
                sum += (double)matrix[i * WIDTH + c] * g.x[r][c];
            rows[r][at + i] = act(sum / 64);
        }
}

static void make_begin(uint32_t n_out)
{
    memset(&g, 0, sizeof g);
    g.embedding = add("token_embd.weight", WIDTH, VOCAB);
    g.norm = add("output_norm.weight", WIDTH, 1);
    g.up = add("up.weight", n_out, WIDTH);
    for (int r = 0; r < TOKENS; r++)
        for (int c = 0; c < WIDTH; c++)
            g.x[r][c] = g.embedding[f.tokens[0][r] * WIDTH + c];
}

static void make_end(uint32_t n_out)
{
    static double x[TOKENS * WIDTH];

    for (int r = 0; r < TOKENS; r++)
        for (int c = 0; c < WIDTH; c++) {
            x[r * WIDTH + c] = 0;
            for (uint32_t i = 0; i < n_out; i++)
                x[r * WIDTH + c] += (double)g.up[c * n_out + i] * g.y[r][i];
        }
    judge_head(x, g.embedding, g.norm);
}

/* ---- SHIFT ---- */

static void build_shift(struct rn_build *b)
{
    int32_t embedding;
    int16_t x = build_begin(b, &embedding), in = build_input(b, x, "in", CHANNELS, RN_ACT_NONE), y;

    y = rn_build_add(b, rn_build_shift(b, in), in);
    build_end(b, x, y, embedding);
}

static void make_shift(void)
{
    make_begin(CHANNELS);
    make_input(g.a, 0, "in.weight", CHANNELS, same);
    for (int r = 0; r < TOKENS; r++)
        for (int i = 0; i < CHANNELS; i++)
            g.y[r][i] = g.a[r][i] + (r == 0 ? 0 : g.a[r - 1][i]);
    make_end(CHANNELS);
}

/* ---- Linear attention ---- */

/* State [K_DIM][V_DIM] of each head; the parts of a row of inputs. */
static double states[CHANNELS][K_DIM][V_DIM];

static struct rn_op heads_op(const struct rn_build *b, enum rn_op_kind kind)
{
    struct rn_op op = rn_build_empty(b, kind);

    op.heads = HEADS;
    op.k_dim = K_DIM;
    op.v_dim = V_DIM;
    op.scale = 0.25f;
    return op;
}

static void build_wkv6(struct rn_build *b)
{
    int32_t embedding;
    int16_t x = build_begin(b, &embedding), a, w;
    struct rn_op op = heads_op(b, RN_OP_WKV6);

    op.scale = 1;
    op.weight = rn_build_values(b, "first.weight", HEADS * K_DIM, 1, false);
    a = build_input(b, x, "in", HEADS * (2 * K_DIM + V_DIM), RN_ACT_NONE);
    w = build_input(b, x, "decay", HEADS * K_DIM, RN_ACT_SIGMOID);
    build_end(b, x, rn_build_linear_attention(b, &op, a, w), embedding);
}

static void make_wkv6(void)
{
    const float *first;

    make_begin(HEADS * V_DIM);
    first = add("first.weight", HEADS * K_DIM, 1);
    make_input(g.a, 0, "in.weight", HEADS * (2 * K_DIM + V_DIM), same);
    make_input(g.b, 0, "decay.weight", HEADS * K_DIM, sigmoid);
    memset(states, 0, sizeof states);
    for (int r = 0; r < TOKENS; r++)
        for (int h = 0; h < HEADS; h++) {
            const double *q = g.a[r] + h * K_DIM, *k = q + HEADS * K_DIM, *w = g.b[r] + h * K_DIM;
            const double *v = g.a[r] + 2 * HEADS * K_DIM + h * V_DIM;

            for (int j = 0; j < V_DIM; j++)
                for (int i = 0; i < K_DIM; i++) {
                    g.y[r][h * V_DIM + j] += q[i] * (states[h][i][j] + first[h * K_DIM + i] * k[i] * v[j]);
                    states[h][i][j] = w[i] * states[h][i][j] + k[i] * v[j];
                }
        }
    make_end(HEADS * V_DIM);
}

static void build_wkv7(struct rn_build *b)
{
    int32_t embedding;
    int16_t x = build_begin(b, &embedding), a, w;
    struct rn_op op = heads_op(b, RN_OP_WKV7);

    a = build_input(b, x, "in", HEADS * (2 * K_DIM + V_DIM), RN_ACT_NONE);
    w = build_input(b, x, "decay", HEADS * K_DIM, RN_ACT_SIGMOID);
    if (rn_build_has(b, "swap.weight"))
        w = rn_build_join(b, w, build_input(b, x, "swap", 2 * HEADS * K_DIM, RN_ACT_NONE));
    build_end(b, x, rn_build_linear_attention(b, &op, a, w), embedding);
}

/* With swapping: e is what x finds in the state, and y e stands in its place. */
static void compute_wkv7(bool swaps)
{
    memset(states, 0, sizeof states);
    for (int r = 0; r < TOKENS; r++)
        for (int h = 0; h < HEADS; h++) {
            const double *q = g.a[r] + h * K_DIM, *k = q + HEADS * K_DIM, *w = g.b[r] + h * K_DIM;
            const double *v = g.a[r] + 2 * HEADS * K_DIM + h * V_DIM;

            for (int j = 0; j < V_DIM; j++) {
                double e = 0;

                for (int i = 0; swaps && i < K_DIM; i++)
                    e += w[HEADS * K_DIM + i] * states[h][i][j];
                for (int i = 0; i < K_DIM; i++) {
                    states[h][i][j] = w[i] * states[h][i][j] + k[i] * v[j];
                    if (swaps)
                        states[h][i][j] += w[2 * HEADS * K_DIM + i] * e;
                    g.y[r][h * V_DIM + j] += 0.25 * q[i] * states[h][i][j];
                }
            }
        }
}

static void make_wkv7_inputs(bool swaps)
{
    make_begin(HEADS * V_DIM);
    make_input(g.a, 0, "in.weight", HEADS * (2 * K_DIM + V_DIM), same);
    make_input(g.b, 0, "decay.weight", HEADS * K_DIM, sigmoid);
    if (swaps)
        make_input(g.b, HEADS * K_DIM, "swap.weight", 2 * HEADS * K_DIM, same);
    compute_wkv7(swaps);
    make_end(HEADS * V_DIM);
}

static void make_wkv7(void)
{
    make_wkv7_inputs(true);
}

static void make_gated_linear(void)
{
    make_wkv7_inputs(false);
}

/* ---- The gated delta rule ---- */

static struct {
    uint32_t group;
    bool tiled;
} delta;

static void build_delta(struct rn_build *b)
{
    int32_t embedding;
    int16_t x = build_begin(b, &embedding), a, v, gates;
    struct rn_op op = heads_op(b, RN_OP_GATED_DELTA);

    op.kv_heads = KV_HEADS;
    op.group = delta.group;
    op.tiled = delta.tiled;
    a = build_input(b, x, "in", 2 * KV_HEADS * K_DIM, RN_ACT_NONE);
    v = build_input(b, x, "values", HEADS * V_DIM, RN_ACT_NONE);
    gates = build_input(b, x, "gates", HEADS * (delta.group + 1), RN_ACT_SIGMOID);
    build_end(b, x, rn_build_linear_attention(b, &op, a, rn_build_join(b, v, gates)), embedding);
}

static void compute_delta_head(int r, int h)
{
    int from = delta.tiled ? h % KV_HEADS : h / (HEADS / KV_HEADS);
    const double *q = g.a[r] + from * K_DIM, *k = q + KV_HEADS * K_DIM, *v = g.b[r] + h * V_DIM;
    const double *w = g.b[r] + HEADS * V_DIM + h * delta.group;
    double beta = g.b[r][HEADS * (V_DIM + delta.group) + h], found, d;

    for (int j = 0; j < V_DIM; j++) {
        found = 0;
        for (int i = 0; i < K_DIM; i++) {
            states[h][i][j] *= w[delta.group == 1 ? 0 : i];
            found += k[i] * states[h][i][j];
        }
        d = beta * (v[j] - found);
        for (int i = 0; i < K_DIM; i++) {
            states[h][i][j] += k[i] * d;
            g.y[r][h * V_DIM + j] += 0.25 * q[i] * states[h][i][j];
        }
    }
}

static void make_delta(void)
{
    make_begin(HEADS * V_DIM);
    make_input(g.a, 0, "in.weight", 2 * KV_HEADS * K_DIM, same);
    make_input(g.b, 0, "values.weight", HEADS * V_DIM, same);
    make_input(g.b, HEADS * V_DIM, "gates.weight", HEADS * (delta.group + 1), sigmoid);
    memset(states, 0, sizeof states);
    for (int r = 0; r < TOKENS; r++)
        for (int h = 0; h < HEADS; h++)
            compute_delta_head(r, h);
    make_end(HEADS * V_DIM);
}

/* ---- Selective scans: decays of a head, or of each of a channel's numbers ---- */

static struct scan {
    uint32_t heads, groups, v_dim, cols;
    bool has_d;
} scan;

static void build_scan(struct rn_build *b)
{
    uint32_t wide = scan.heads * scan.v_dim;
    int32_t embedding;
    int16_t x = build_begin(b, &embedding);
    struct rn_op op = rn_build_empty(b, RN_OP_SCAN);

    op.heads = scan.heads;
    op.v_dim = scan.v_dim;
    op.kv_heads = scan.groups;
    op.k_dim = K_DIM;
    op.weight = rn_build_values(b, "a.weight", scan.cols, scan.heads, false);
    if (scan.has_d)
        op.bias = rn_build_vector(b, "d.weight", scan.heads, false);
    op.a = build_input(b, x, "in", wide + 2 * scan.groups * K_DIM, RN_ACT_NONE);
    op.b = build_input(b, x, "dt", scan.heads, RN_ACT_SOFTPLUS);
    op.layer = rn_build_state(b, (uint64_t)wide * K_DIM);
    op.out = rn_build_slot(b, wide, false);
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
    rn_build_release(b, op.b);
    build_end(b, x, op.out, embedding);
}

static void compute_scan_head(int r, uint32_t h, const float *decays, const float *d)
{
    const double *x = g.a[r] + h * scan.v_dim, *all_b = g.a[r] + scan.heads * scan.v_dim;
    const double *in = all_b + h * scan.groups / scan.heads * K_DIM, *out = in + scan.groups * K_DIM;
    double dt = g.b[r][h], *y = g.y[r] + h * scan.v_dim;

    for (uint32_t i = 0; i < scan.v_dim; i++) {
        y[i] = d == NULL ? 0 : d[h] * x[i];
        for (int n = 0; n < K_DIM; n++) {
            double decay = exp(dt * decays[h * scan.cols + (scan.cols == 1 ? 0 : n)]);

            states[h][n][i] = decay * states[h][n][i] + dt * x[i] * in[n];
            y[i] += states[h][n][i] * out[n];
        }
    }
}

static void make_scan(void)
{
    uint32_t wide = scan.heads * scan.v_dim;
    const float *decays, *d = NULL;

    make_begin(wide);
    decays = add("a.weight", scan.cols, scan.heads);
    for (uint32_t i = 0; i < scan.cols * scan.heads; i++)
        f.pool[decays - f.pool + i] = -0.05f - fabsf(decays[i]);
    if (scan.has_d)
        d = add("d.weight", scan.heads, 1);
    make_input(g.a, 0, "in.weight", wide + 2 * scan.groups * K_DIM, same);
    make_input(g.b, 0, "dt.weight", scan.heads, softplus);
    memset(states, 0, sizeof states);
    for (int r = 0; r < TOKENS; r++)
        for (uint32_t h = 0; h < scan.heads; h++)
            compute_scan_head(r, h, decays, d);
    make_end(wide);
}

static void judge_op(void (*build)(struct rn_build *b), void (*make)(void))
{
    const struct rn_arch arch = {.name = "plain", .flags = RN_ARCH_NO_ROPE, .build = build};

    judge(&arch, make);
}

static void test_shift(void **state)
{
    (void)state;
    judge_op(build_shift, make_shift);
}

static void test_linear_attention(void **state)
{
    (void)state;
    judge_op(build_wkv6, make_wkv6);
    judge_op(build_wkv7, make_wkv7);
    judge_op(build_wkv7, make_gated_linear);
}

static void test_gated_delta(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        delta.group = i % 2 == 0 ? 1 : K_DIM;
        delta.tiled = i / 2 == 1;
        judge_op(build_delta, make_delta);
    }
}

static void test_scans(void **state)
{
    static const struct scan kinds[] = {
        {HEADS, KV_HEADS, V_DIM, 1, true}, {CHANNELS, 1, 1, K_DIM, true}, {HEADS, 1, V_DIM, 1, true}};

    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        scan = kinds[i];
        judge_op(build_scan, make_scan);
    }
}

/* ---- The checker of plans ---- */

#define CAUGHT(place, change)                \
    do {                                     \
        __typeof__(place) kept = (place);    \
        change;                              \
        assert_false(rn_plan_check(f.plan)); \
        (place) = kept;                      \
    } while (0)

static void test_breaches(void **state)
{
    struct rn_op *op;

    (void)state;
    open_plan(&convolutions, make_convolutions);
    op = &f.plan->ops[1];
    assert_int_equal(op->kind, RN_OP_CONV);
    assert_int_equal(f.plan->n_state_layers, 3);
    CAUGHT(op->layer, op->layer = 1);
    CAUGHT(op->span, op->span = 2);
    CAUGHT(op->layer, op->layer = -1);
    CAUGHT(f.plan->n_state_layers, f.plan->n_state_layers--);
    CAUGHT(f.plan->state_layers[0].n, f.plan->state_layers[0].n--);
    CAUGHT(f.plan->state_layers[1].at, f.plan->state_layers[1].at = 0);
    CAUGHT(f.plan->state_layers[1].at, f.plan->state_layers[1].at++);
    CAUGHT(f.plan->state_bytes, f.plan->state_bytes -= sizeof(float) * RN_STATE_UNIT);
    CAUGHT(op->weight, op->weight = f.plan->ops[2].weight);
    CAUGHT(op->bias, op->bias = op->weight);
    CAUGHT(op->weight, op->weight = -1);
    assert_true(rn_plan_check(f.plan));
    close_plan();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolutions), cmocka_unit_test(test_shift), cmocka_unit_test(test_linear_attention),
        cmocka_unit_test(test_gated_delta),  cmocka_unit_test(test_scans), cmocka_unit_test(test_breaches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
