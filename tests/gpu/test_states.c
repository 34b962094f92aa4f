/* The kernels of ops with a recurrent state against the reference, over several sequences and steps; and law 5: the
 * same bits however sequences are cut into steps, whoever stands beside them, and wherever their states lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/gpu/rigs/rig.h"

enum { SEQS = 3, POSITIONS = 20, ROWS = SEQS * POSITIONS, SLOTS = 5 };

/* So many rows of a sequence from a position on, and which steps they are in; sequences stand in a step in this
 * order. */
struct piece {
    uint32_t step, seq, from, n;
};

/* What a kernel gets, and where it differs from the reference's op. */
struct subject {
    const char *name;
    struct rn_op op;
    uint32_t a_width, b_width, out_width; /* b_width 0: no b */
    uint32_t taps;                        /* of CONV; SHIFT: 2 */
    uint32_t weight_rows, weight_cols;    /* 0: none */
    bool with_bias;
    uint32_t n;          /* floats of the state */
    enum rn_linear kind; /* of the others */
    enum rn_kernel kernel;
};

static struct stand {
    struct rig rig;
    const struct subject *subject;
    float *a, *b, *weight, *bias; /* a, b: of all positions of all sequences */
    float *step_a, *step_b, *step_out;
    float *states;
    uint32_t stride; /* floats */
    uint32_t *seqs, *positions, *slots, *firsts, *counts;
} s;

/* ---- The device ---- */

static uint32_t pieces_of_step(const struct piece *pieces, uint32_t n)
{
    uint32_t i = 1;

    while (i < n && pieces[i].step == pieces[0].step)
        i++;
    return i;
}

/* Inputs of a step to where the kernel finds them; how many rows it has. Sequences without rows have none. */
static uint32_t gather_step(const struct piece *pieces, uint32_t n)
{
    const struct subject *u = s.subject;
    uint32_t rows = 0, i, r;

    memset(s.counts, 0, SEQS * sizeof *s.counts);
    for (i = 0; i < n; i++) {
        s.firsts[pieces[i].seq] = rows;
        s.counts[pieces[i].seq] = pieces[i].n;
        for (r = 0; r < pieces[i].n; r++, rows++) {
            size_t from = (size_t)pieces[i].seq * POSITIONS + pieces[i].from + r;

            s.seqs[rows] = pieces[i].seq;
            s.positions[rows] = pieces[i].from + r;
            memcpy(s.step_a + (size_t)rows * u->a_width, s.a + from * u->a_width, u->a_width * sizeof(float));
            memcpy(s.step_b + (size_t)rows * u->b_width, s.b + from * u->b_width, u->b_width * sizeof(float));
        }
    }
    return rows;
}

static void launch(uint32_t n_rows)
{
    const struct subject *u = s.subject;
    const struct rn_op *op = &u->op;
    struct rn_states_args states = {
        rig_at(s.states), rig_at(s.slots), rig_at(s.firsts), rig_at(s.counts), s.stride * 4, u->n, SEQS, n_rows};
    rn_address weight = u->weight_cols > 0 ? rig_at(s.weight) : 0, bias = u->with_bias ? rig_at(s.bias) : 0;

    if (u->taps > 0) {
        struct rn_conv_args conv = {.states = states,
                                    .a = rig_at(s.step_a),
                                    .weight = weight,
                                    .bias = bias,
                                    .out = rig_at(s.step_out),
                                    .seqs = rig_at(s.seqs),
                                    .width = u->a_width,
                                    .taps = u->taps,
                                    .span = op->span > 1 ? op->span : 1,
                                    .ahead = op->ahead,
                                    .activated = op->activated,
                                    .act = op->act};

        rig_run(&s.rig, u->kernel, &conv);
    } else if (u->op.kind == RN_OP_COMPRESS) {
        struct rn_compress_args compress = {states,
                                            rig_at(s.step_a),
                                            rig_at(s.step_b),
                                            weight,
                                            rig_at(s.step_out),
                                            rig_at(s.seqs),
                                            rig_at(s.positions),
                                            op->k_dim,
                                            u->a_width / op->k_dim,
                                            op->per};

        rig_run(&s.rig, u->kernel, &compress);
    } else {
        struct rn_linear_args linear = {states,
                                        rig_at(s.step_a),
                                        rig_at(s.step_b),
                                        weight,
                                        bias,
                                        rig_at(s.step_out),
                                        u->a_width,
                                        u->b_width,
                                        u->kind,
                                        op->heads,
                                        op->kv_heads == 0 ? op->heads : op->kv_heads,
                                        op->k_dim,
                                        op->v_dim,
                                        op->group,
                                        op->tiled,
                                        op->scale == 0 ? 1 : op->scale};

        rig_run(&s.rig, u->kernel, &linear);
    }
}

/* All pieces, step by step, from states of zeros on; out [SEQS * POSITIONS, out_width] of what they have. */
static void run_device(const struct piece *pieces, uint32_t n, const uint32_t slots[SEQS], float *out)
{
    uint32_t width = s.subject->out_width, m, i, rows;

    memset(s.states, 0xff, (size_t)SLOTS * s.stride * sizeof(float));
    memcpy(s.slots, slots, SEQS * sizeof *slots);
    for (i = 0; i < SEQS; i++)
        memset(s.states + (size_t)slots[i] * s.stride, 0, s.stride * sizeof(float));
    for (; n > 0; n -= m, pieces += m) {
        m = pieces_of_step(pieces, n);
        rows = gather_step(pieces, m);
        launch(rows);
        for (rows = 0, i = 0; i < m; rows += pieces[i].n, i++)
            memcpy(out + ((size_t)pieces[i].seq * POSITIONS + pieces[i].from) * width,
                   s.step_out + (size_t)rows * width, (size_t)pieces[i].n * width * sizeof *out);
    }
}

/* ---- The judge ---- */

/* All positions of all sequences in one step. States as the reference has them. */
static void run_judge(struct judge *judge, float *states)
{
    static const uint32_t slots[SEQS] = {0, 1, 2};
    const struct subject *u = s.subject;
    struct rn_state_layer *layer = rig_host(&s.rig, sizeof *layer);
    struct rn_op op = u->op;

    judge_open(&s.rig, judge, ROWS, (uint32_t[]){u->a_width, u->b_width, u->out_width, u->weight_cols + ROWS});
    judge_weight(judge, 0, RN_F32, u->weight_cols, u->weight_rows, 1, s.weight);
    judge_weight(judge, 1, RN_F32, u->taps > 0 ? u->a_width : op.heads, 1, 1, s.bias);
    op.weight = u->weight_cols > 0 ? 0 : -1;
    op.bias = u->with_bias ? 1 : -1;
    layer->n = u->n;
    judge->plan.n_state_layers = 1;
    judge->plan.state_layers = layer;
    judge->plan.state_bytes = u->n * sizeof(float);
    judge->ref.states = (unsigned char *)states;
    judge->step.n_seqs = SEQS;
    judge->step.states = slots;
    for (uint32_t r = 0; r < ROWS; r++)
        judge->step.rows[r] = (struct rn_step_row){0, r % POSITIONS, r / POSITIONS, -1};
    memcpy(judge->memory[0], s.a, (size_t)ROWS * u->a_width * sizeof(float));
    memcpy(judge->memory[1], s.b, (size_t)ROWS * u->b_width * sizeof(float));
    judge_run(judge, op, u->b_width > 0);
}

/* The device's state of a sequence, in the reference's order. */
static void reorder(uint32_t slot, float *state)
{
    const struct subject *u = s.subject;
    const float *from = s.states + (size_t)slot * s.stride;
    uint32_t k_dim = u->op.k_dim, v_dim = u->op.v_dim, i;

    if (u->op.kind != RN_OP_SCAN) {
        memcpy(state, from, u->n * sizeof *state);
        return;
    }
    for (i = 0; i < u->n; i++) { /* [heads][v_dim][k_dim] */
        uint32_t head = i / (v_dim * k_dim), v = i / k_dim % v_dim, k = i % k_dim;

        state[i] = u->kind == RN_LINEAR_CHANNELS ? from[(size_t)k * u->op.heads + head]
                                                 : from[((size_t)head * k_dim + k) * v_dim + v];
    }
}

/* ---- Their comparison ---- */

static const struct piece whole[] = {{0, 0, 0, POSITIONS}, {0, 1, 0, POSITIONS}, {0, 2, 0, POSITIONS}};

/* Sequences out of order, one of them missing, one row, many rows. */
static const struct piece mixed[] = {{0, 1, 0, 1},  {0, 0, 0, 11}, {0, 2, 0, 3},  {1, 2, 3, 9},  {1, 0, 11, 2},
                                     {2, 0, 13, 7}, {2, 1, 1, 8},  {2, 2, 12, 1}, {3, 1, 9, 11}, {4, 2, 13, 7}};

/* Values of about the size that models have: decays below 1, what is erased no more than what is there. */
static void fill(const struct subject *u)
{
    uint32_t keys = u->op.heads * u->op.k_dim, values = u->op.heads * u->op.v_dim, i, c;

    s.a = rig_floats(&s.rig, (size_t)ROWS * u->a_width, u->taps > 0 ? 1 : 0.5f);
    s.b = rig_floats(&s.rig, (size_t)ROWS * u->b_width + 1, 1);
    for (i = 0; u->taps == 0 && i < ROWS * u->b_width; i++) {
        c = i % u->b_width;
        if (u->kind == RN_LINEAR_DELTA ? c >= values : c < keys || u->op.kind == RN_OP_SCAN)
            s.b[i] = 0.6f + 0.4f * s.b[i];
        else if (u->kind != RN_LINEAR_DELTA)
            s.b[i] *= 0.2f;
    }
    s.weight = rig_floats(&s.rig, (size_t)u->weight_rows * u->weight_cols + 1, 1);
    for (i = 0; u->op.kind == RN_OP_SCAN && i < u->weight_rows * u->weight_cols; i++)
        s.weight[i] = -1.1f + s.weight[i];
    s.bias = rig_floats(&s.rig, u->taps > 0 ? u->a_width : u->op.heads, 1);
}

static void open_stand(const struct subject *u)
{
    memset(&s, 0, sizeof s);
    rig_open(&s.rig);
    s.subject = u;
    fill(u);
    s.step_a = rig_device(&s.rig, (size_t)ROWS * u->a_width * sizeof(float));
    s.step_b = rig_device(&s.rig, ((size_t)ROWS * u->b_width + 1) * sizeof(float));
    s.step_out = rig_device(&s.rig, (size_t)ROWS * u->out_width * sizeof(float));
    s.stride = (u->n + 63) / 64 * 64;
    s.states = rig_device(&s.rig, (size_t)SLOTS * s.stride * sizeof(float));
    s.seqs = rig_device(&s.rig, ROWS * sizeof *s.seqs);
    s.positions = rig_device(&s.rig, ROWS * sizeof *s.positions);
    s.slots = rig_device(&s.rig, SEQS * sizeof *s.slots);
    s.firsts = rig_device(&s.rig, SEQS * sizeof *s.firsts);
    s.counts = rig_device(&s.rig, SEQS * sizeof *s.counts);
}

static void check(const struct subject *u)
{
    static const uint32_t slots[][SEQS] = {{0, 1, 2}, {4, 0, 3}, {2, 4, 1}};
    size_t n = (size_t)ROWS * u->out_width;
    float *first, *got, *states, *want_states;
    struct piece alone[ROWS];
    struct judge judge;

    open_stand(u);
    first = rig_host(&s.rig, n * sizeof *first);
    got = rig_host(&s.rig, n * sizeof *got);
    states = rig_host(&s.rig, SEQS * u->n * sizeof *states);
    want_states = rig_host(&s.rig, SEQS * u->n * sizeof *want_states);
    run_judge(&judge, want_states);
    run_device(whole, SEQS, slots[0], first);
    for (uint32_t i = 0; i < SEQS; i++)
        reorder(slots[0][i], states + (size_t)i * u->n);
    rig_expect(u->name, first, judge.memory[2], n, 1e-11);
    rig_expect(u->name, states, want_states, SEQS * u->n, 1e-11);
    run_device(mixed, sizeof mixed / sizeof mixed[0], slots[1], got);
    assert_memory_equal(got, first, n * sizeof *first);
    for (uint32_t i = 0; i < SEQS; i++) {
        reorder(slots[1][i], want_states);
        assert_memory_equal(want_states, states + (size_t)i * u->n, u->n * sizeof *states);
    }
    for (uint32_t i = 0; i < ROWS; i++)
        alone[i] = (struct piece){i, i % SEQS, i / SEQS, 1};
    run_device(alone, ROWS, slots[2], got);
    assert_memory_equal(got, first, n * sizeof *first);
    rig_close(&s.rig);
}

/* ---- Subjects ---- */

static void convolutions(void **state)
{
    static const uint32_t shapes[][3] = {{2, 5, 0},   {4, 300, 1}, {9, 33, 0}, /* taps, width, span */
                                         {64, 20, 0}, {4, 270, 3}, {2, 40, 5}};

    (void)state;
    for (uint32_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        uint32_t taps = shapes[i][0], width = shapes[i][1], span = shapes[i][2];
        const struct subject conv = {
            .name = "conv",
            .op = {.kind = RN_OP_CONV, .act = RN_ACT_SILU, .activated = i % 2 == 1, .span = span},
            .a_width = width,
            .out_width = width,
            .taps = taps,
            .weight_rows = width,
            .weight_cols = taps,
            .with_bias = i > 1,
            .n = (taps - 1) * (span > 1 ? span : 1) * width,
            .kernel = RN_KERNEL_conv};

        check(&conv);
    }
}

static void shifts(void **state)
{
    const struct subject shift = {.name = "shift",
                                  .op = {.kind = RN_OP_SHIFT},
                                  .a_width = 270,
                                  .out_width = 270,
                                  .taps = 2,
                                  .n = 270,
                                  .kernel = RN_KERNEL_shift};

    (void)state;
    check(&shift);
}

static void rows_of_blocks(void **state)
{
    static const uint32_t shapes[][3] = {
        {4, 2, 20}, {4, 1, 70}, {1, 1, 3}, {3, 2, 64}, {16, 1, 5}}; /* per, parts, k_dim */

    (void)state;
    for (uint32_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        uint32_t per = shapes[i][0], parts = shapes[i][1], k_dim = shapes[i][2];
        const struct subject compress = {.name = "compress",
                                         .op = {.kind = RN_OP_COMPRESS, .per = per, .k_dim = k_dim},
                                         .a_width = parts * k_dim,
                                         .b_width = parts * k_dim,
                                         .out_width = k_dim,
                                         .weight_rows = per,
                                         .weight_cols = parts * k_dim,
                                         .n = 2 * parts * per * parts * k_dim,
                                         .kernel = RN_KERNEL_compress};

        check(&compress);
    }
}

/* k_dim, v_dim: each kernel, full and not, columns of several blocks and of a part of one. */
static const struct {
    uint32_t k_dim, v_dim;
    enum rn_kernel kernel;
} sizes[] = {{64, 64, RN_KERNEL_linear_64}, {12, 20, RN_KERNEL_linear_64},   {128, 33, RN_KERNEL_linear_128},
             {70, 8, RN_KERNEL_linear_128}, {150, 35, RN_KERNEL_linear_any}, {5, 3, RN_KERNEL_linear_any}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static struct subject linear_subject(enum rn_op_kind kind, enum rn_linear linear, uint32_t size, uint32_t heads)
{
    return (struct subject){
        .op = {.kind = kind, .heads = heads, .k_dim = sizes[size].k_dim, .v_dim = sizes[size].v_dim},
        .out_width = heads * sizes[size].v_dim,
        .n = heads * sizes[size].k_dim * sizes[size].v_dim,
        .kind = linear,
        .kernel = sizes[size].kernel};
}

static void wkv(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3 * SIZES; i++) {
        enum rn_linear kind = (enum rn_linear)(i % 3);
        uint32_t heads = 2;
        struct subject u = linear_subject(kind == RN_LINEAR_WKV6 ? RN_OP_WKV6 : RN_OP_WKV7, kind, i / 3, heads);
        uint32_t keys = heads * u.op.k_dim;

        u.name = kind == RN_LINEAR_WKV6 ? "wkv6" : kind == RN_LINEAR_WKV7 ? "wkv7" : "gated";
        u.a_width = 2 * keys + u.out_width;
        u.b_width = kind == RN_LINEAR_WKV7 ? 3 * keys : keys;
        u.weight_rows = kind == RN_LINEAR_WKV6;
        u.weight_cols = kind == RN_LINEAR_WKV6 ? keys : 0;
        u.op.scale = kind == RN_LINEAR_WKV6 ? 0 : 0.7f;
        check(&u);
    }
}

static void gated_delta(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SIZES; i++) {
        struct subject u = linear_subject(RN_OP_GATED_DELTA, RN_LINEAR_DELTA, i, 4);

        u.name = "gated_delta";
        u.op.kv_heads = i % 3 == 0 ? 4 : 2;
        u.op.tiled = i % 2 == 1;
        u.op.group = i % 4 < 2 ? 1 : u.op.k_dim;
        u.op.scale = 0.3f;
        u.a_width = 2 * u.op.kv_heads * u.op.k_dim;
        u.b_width = u.op.heads * (u.op.v_dim + u.op.group + 1);
        check(&u);
    }
}

static void scans(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SIZES; i++) {
        struct subject u = linear_subject(RN_OP_SCAN, RN_LINEAR_SCAN, i, 4);

        u.name = "scan";
        u.op.kv_heads = i % 2 == 0 ? 2 : 1;
        u.a_width = u.out_width + 2 * u.op.kv_heads * u.op.k_dim;
        u.b_width = u.op.heads;
        u.weight_rows = u.op.heads;
        u.weight_cols = 1;
        u.with_bias = i % 3 != 0;
        check(&u);
    }
}

static void scans_of_channels(void **state)
{
    static const struct {
        uint32_t k_dim, heads;
        enum rn_kernel kernel;
    } shapes[] = {{16, 70, RN_KERNEL_channels_16}, {7, 32, RN_KERNEL_channels_16}, {37, 40, RN_KERNEL_channels_any}};

    (void)state;
    for (uint32_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        uint32_t heads = shapes[i].heads, k_dim = shapes[i].k_dim;
        const struct subject u = {.name = "scan of channels",
                                  .op = {.kind = RN_OP_SCAN, .heads = heads, .kv_heads = 1, .k_dim = k_dim, .v_dim = 1},
                                  .a_width = heads + 2 * k_dim,
                                  .b_width = heads,
                                  .out_width = heads,
                                  .weight_rows = heads,
                                  .weight_cols = k_dim,
                                  .with_bias = i != 1,
                                  .n = heads * k_dim,
                                  .kind = RN_LINEAR_CHANNELS,
                                  .kernel = shapes[i].kernel};

        check(&u);
    }
}

/* ---- Copies ---- */

static void copies(void **state)
{
    enum { STRIDE = 20 * 1024 + 256, N = 4 };
    static const uint32_t pairs[][2] = {{0, 1}, {RN_NO_STATE, 2}, {0, 4}};
    unsigned char *states, *want;
    uint32_t *list;

    (void)state;
    memset(&s, 0, sizeof s);
    rig_open(&s.rig);
    states = rig_device(&s.rig, SLOTS * STRIDE);
    want = rig_host(&s.rig, SLOTS * STRIDE);
    list = rig_device(&s.rig, sizeof pairs);
    memcpy(list, pairs, sizeof pairs);
    for (uint32_t i = 0; i < SLOTS * STRIDE; i++)
        states[i] = want[i] = (unsigned char)rig_random(&s.rig, 256);
    memcpy(want + STRIDE, want, STRIDE);
    memset(want + 2 * STRIDE, 0, STRIDE);
    memcpy(want + 4 * STRIDE, want, STRIDE);
    rig_run(&s.rig, RN_KERNEL_copy_states,
            &(struct rn_copy_states_args){rig_at(states), rig_at(list), STRIDE, 3, SLOTS});
    assert_memory_equal(states, want, SLOTS * STRIDE);
    rig_close(&s.rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions),
        cmocka_unit_test(rows_of_blocks),
        cmocka_unit_test(shifts),
        cmocka_unit_test(wkv),
        cmocka_unit_test(gated_delta),
        cmocka_unit_test(scans),
        cmocka_unit_test(scans_of_channels),
        cmocka_unit_test(copies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
