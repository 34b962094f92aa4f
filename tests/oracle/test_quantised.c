/* Every oracle's model with quantised matrices: the fast path against the reference on the same file, and chunks
 * against one pass to the bit.
 *
 * Those in which all rows are multiples of 256 are also judged by the reference on a file that holds the numbers that
 * the quantised ones stand for, in F32.
 *
 * Q8_0, and Q4_K where rows are multiples of 256, else Q4_0. What no product reads stays as it is. The fast path rounds
 * what goes into such products to 8 bits for each 32 numbers: half a step of 1/127 of the largest for Q8_0, 2e-5 of the
 * variance of normal numbers, in each product; for others half a step that is a power of two, one to two times as
 * large, 4e-5 on average. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../model/model_edit.h"
#include "model/op_info.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"
#include "tests/oracle/run_plan.h"
#include "tests/support/nmse.h"

#define ARCH(name, context) {"oracles/arch/" name ".gguf", context, false, false},
#define MADE(name, context) {"tests/oracle/made/" name ".txt", context, true, false},
#define WIDE(name, context) {"tests/oracle/made/" name ".txt", context, true, true},

static const struct {
    const char *path;
    uint32_t context_tokens;
    bool made, wide;
} models[] = {ARCH_MODELS(ARCH) MADE_MODELS(MADE) WIDE_MODELS(WIDE)};

enum { N_MODELS = sizeof models / sizeof models[0], TOKENS = 20 };

#define MAGNIFIES \
    "gemma3n-made-shared" /* roundings, a thousand times: tests/oracle/exact/README.md. Only that it runs */
#define LIMIT_8 1e-3      /* for each block, of Q8_0 */
#define LIMIT_4 3e-3      /* of the others */
#define FLIPS 30          /* times as much where a rounded input can choose another expert */

/* ---- Formats ---- */

static void put_half(unsigned char *at, float value)
{
    uint16_t half = rn_f32_to_f16(value);

    at[0] = (unsigned char)half;
    at[1] = (unsigned char)(half >> 8);
}

static float largest(const float *x, int n)
{
    float most = 0;

    for (int i = 0; i < n; i++)
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    return most;
}

static void encode_q8_0(const float *x, unsigned char *out)
{
    float d = fabsf(largest(x, 32)) / 127;

    put_half(out, d);
    for (int i = 0; i < 32; i++)
        out[2 + i] = (unsigned char)(signed char)(d > 0 ? lrintf(x[i] / d) : 0);
}

static void encode_q4_0(const float *x, unsigned char *out)
{
    float d = largest(x, 32) / -8;
    long q;

    put_half(out, d);
    memset(out + 2, 0, 16);
    for (int i = 0; i < 32; i++) {
        q = d != 0 ? lrintf(x[i] / d) + 8 : 8;
        q = q < 0 ? 0 : q > 15 ? 15 : q;
        out[2 + i % 16] |= (unsigned char)(q << (i / 16 * 4));
    }
}

/* With one scale and one minimum for all 256: 63 of their small ones each, all bits of which are set. */
static void encode_q4_k(const float *x, unsigned char *out)
{
    float least = 0, most = 0, step;

    for (int i = 0; i < 256; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    step = (most - least) / 15;
    put_half(out, step / 63);
    put_half(out + 2, -least / 63);
    memset(out + 4, 0xff, 12);
    memset(out + 16, 0, 128);
    for (int i = 0; i < 256; i++) {
        long q = step > 0 ? lrintf((x[i] - least) / step) : 0;

        out[16 + i / 64 * 32 + i % 32] |= (unsigned char)(q << (i % 64 / 32 * 4));
    }
}

static const struct format {
    const char *name;
    uint32_t type, numbers, bytes;
    void (*encode)(const float *x, unsigned char *out);
} q8_0 = {"Q8_0", RN_Q8_0, 32, 34, encode_q8_0}, q4_0 = {"Q4_0", RN_Q4_0, 32, 18, encode_q4_0},
  q4_k = {"Q4_K", RN_Q4_K, 256, 144, encode_q4_k};

/* ---- One model ---- */

static struct case_ {
    struct rn_heap heap;
    struct model_edit edit;
    struct writer before, after;
    struct rn_gguf *gguf;
    unsigned char *data[800];
    uint32_t n_data;
} c;

static bool is_matrix(enum rn_op_weight kind)
{
    return kind == RN_WEIGHT_MATRIX || kind == RN_WEIGHT_EXPERTS || kind == RN_WEIGHT_TABLE ||
           kind == RN_WEIGHT_HEADS || kind == RN_WEIGHT_HEAD_ROWS;
}

/* Whether every op that reads the tensor takes it as a matrix. */
static bool is_read_as_matrix(const struct rn_plan *plan, const char *name)
{
    bool matrix = false;

    for (uint32_t i = 0; i < plan->n_ops; i++) {
        const struct rn_op *op = &plan->ops[i];
        struct rn_view view;

        for (int k = 0; k < 2; k++) {
            int32_t weight = k == 0 ? op->weight : op->bias;

            if (weight < 0)
                continue;
            view = plan->weights[weight].tensor->name;
            if (view.n != strlen(name) || memcmp(view.bytes, name, view.n) != 0)
                continue;
            if (k == 1 || !is_matrix(rn_op_info(op->kind)->weight))
                return false;
            matrix = true;
        }
    }
    return matrix;
}

static void quantise(struct edit_tensor *tensor, const struct format *format)
{
    uint64_t n = 1;
    const float *x = tensor->data;

    for (uint32_t i = 0; i < tensor->n_dims; i++)
        n *= tensor->dims[i];
    c.data[c.n_data] = rn_alloc(&c.heap, n / format->numbers * format->bytes, 1);
    assert_non_null(c.data[c.n_data]);
    for (uint64_t i = 0; i < n / format->numbers; i++)
        format->encode(x + i * format->numbers, c.data[c.n_data] + i * format->bytes);
    tensor->type = format->type;
    tensor->data = c.data[c.n_data++];
    tensor->bytes = n / format->numbers * format->bytes;
}

/* The numbers that a quantised tensor stands for. */
static void widen(struct edit_tensor *tensor)
{
    const struct rn_type *type = rn_type(tensor->type);
    uint64_t n = tensor->bytes / type->bytes * type->elements;
    float *values = rn_alloc(&c.heap, n, sizeof *values);

    assert_non_null(values);
    type->decode(tensor->data, values, n);
    c.data[c.n_data++] = (unsigned char *)values;
    tensor->type = RN_F32;
    tensor->data = values;
    tensor->bytes = n * sizeof *values;
}

static uint32_t quantise_all(const struct rn_plan *plan, bool four_bits)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c.edit.n_tensors; i++) {
        struct edit_tensor *tensor = &c.edit.tensors[i];

        if (tensor->type != 0 || tensor->dims[0] % 32 != 0 || !is_read_as_matrix(plan, tensor->name))
            continue;
        quantise(tensor, !four_bits ? &q8_0 : tensor->dims[0] % 256 == 0 ? &q4_k : &q4_0);
        n++;
    }
    return n;
}

static void load_before(size_t i)
{
    if (models[i].made)
        made_model_write(models[i].path, &c.before);
    rn_heap_init(&c.heap, NULL);
    assert_int_equal(models[i].made ? rn_gguf_parse(&c.heap, c.before.bytes, c.before.n, models[i].path, &c.gguf, NULL)
                                    : rn_gguf_open(&c.heap, shared_path(models[i].path), &c.gguf, NULL),
                     RUNNEL_OK);
    edit_from(&c.edit, c.gguf);
}

static void unload(void)
{
    while (c.n_data > 0)
        rn_free(&c.heap, c.data[--c.n_data]);
    rn_gguf_free(c.gguf);
    w_free(&c.before);
    w_free(&c.after);
    assert_int_equal(rn_heap_blocks(&c.heap), 0);
    c.before = c.after = (struct writer){0};
}

static float *logits_of(struct run *run, size_t i, const char *backend, const int32_t *tokens, uint32_t n,
                        uint32_t chunk)
{
    const struct run_options options = {.backend = backend,
                                        .kv_type = RUNNEL_KV_F32,
                                        .context_tokens = models[i].context_tokens,
                                        .bytes = c.after.bytes,
                                        .n_bytes = c.after.n};
    float *logits;

    run_open(run, models[i].path, &options);
    logits = calloc((size_t)n * run->width, sizeof *logits);
    assert_non_null(logits);
    run_tokens(run, 0, tokens, n, chunk, logits);
    return logits;
}

static bool has_experts(const struct rn_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind == RN_OP_ROUTE)
            return true;
    return false;
}

/* got against the reference on the numbers in F32, and that against itself on the quantised ones. */
static double error_of_numbers(size_t i, const int32_t *tokens, const float *got, const float *want, size_t n)
{
    struct run run;
    double error;
    float *exact;

    for (uint32_t t = 0; t < c.edit.n_tensors; t++)
        if (c.edit.tensors[t].type != RN_F32)
            widen(&c.edit.tensors[t]);
    w_free(&c.after);
    c.after = (struct writer){0};
    edit_write(&c.edit, &c.after);
    exact = logits_of(&run, i, "reference", tokens, TOKENS, TOKENS);
    run_close(&run);
    assert_true(nmse(want, exact, n) <= 1e-10);
    error = nmse(got, exact, n);
    free(exact);
    return error;
}

/* The error; below 0: nothing in it can be quantised. */
static double check_model(size_t i, bool four_bits, double *limit)
{
    struct run run;
    struct rn_plan *plan;
    int32_t tokens[TOKENS];
    float *want, *got, *pieces;
    uint32_t n_vocab, n_quantised;
    size_t values;
    double error;
    bool whole;

    load_before(i);
    assert_int_equal(rn_plan_new(&c.heap, c.gguf, 0, &plan, NULL), RUNNEL_OK);
    n_vocab = plan->n_vocab;
    whole = plan->bidirectional; /* its rows come in one step */
    n_quantised = quantise_all(plan, four_bits);
    *limit = (four_bits ? LIMIT_4 : LIMIT_8) * plan->n_layers * (has_experts(plan) ? FLIPS : 1);
    rn_plan_free(plan);
    if (n_quantised == 0) { /* rows of fewer than 32 numbers */
        unload();
        return -1;
    }
    edit_write(&c.edit, &c.after);
    for (uint32_t t = 0; t < TOKENS; t++)
        tokens[t] = (int32_t)((t * 37 + 11) % n_vocab);
    want = logits_of(&run, i, "reference", tokens, TOKENS, TOKENS);
    run_close(&run);
    got = logits_of(&run, i, "fast", tokens, TOKENS, TOKENS);
    values = (size_t)TOKENS * run.width;
    run_close(&run);
    error = nmse(got, want, values);
    pieces = logits_of(&run, i, "fast", tokens, TOKENS, whole ? TOKENS : 7);
    run_close(&run);
    if (memcmp(got, pieces, values * sizeof *got) != 0)
        fail_msg("%s: chunks differ", models[i].path);
    if (models[i].wide)
        error = fmax(error, error_of_numbers(i, tokens, got, want, values));
    free(want);
    free(got);
    free(pieces);
    unload();
    return error;
}

static void check_all(bool four_bits)
{
    size_t failed = 0, n = 0;

    for (size_t i = 0; i < N_MODELS; i++) {
        double limit, error = check_model(i, four_bits, &limit);

        if (error < 0 || strstr(models[i].path, MAGNIFIES) != NULL)
            continue;
        n++;
        print_message("%s %-48s nmse %.3g of %.3g\n", four_bits ? "4 bits" : "8 bits", models[i].path, error, limit);
        failed += !(error <= limit);
    }
    assert_int_equal(failed, 0);
    assert_true(n > N_MODELS * 3 / 4);
}

static void eight_bits(void **state)
{
    (void)state;
    check_all(false);
}

static void four_bits(void **state)
{
    (void)state;
    check_all(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(eight_bits), cmocka_unit_test(four_bits)};

    shared_or_skip();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
