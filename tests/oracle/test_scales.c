/* Numbers beside weights, "<stem>.scale", as files in NVFP4 have them: a model with them gives the logits of the same
 * model without, whose weights are multiplied by them. The scales are powers of two, so that these weights are exact;
 * the model of each architecture without scales is judged by other programs' logits (test_arch.c).
 *
 * The stems are those beside which a GGUF file can have scales. "<stem>.input_scale" stands beside each, too, and says
 * nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../model/model_edit.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"
#include "tests/oracle/run_plan.h"
#include "tests/support/nmse.h"

enum { TOKENS = 12, MAX_SCALES = 1024, MAX_EXPERTS = 64 };

static const char *const names[] = {
#define NAME(name, context) "oracles/arch/" name ".gguf",
#define MADE(name, context) MADE_TEXT(name),
    ARCH_MODELS(NAME) ROUNDED_MODELS(NAME) MADE_MODELS(MADE)
#undef MADE
#undef NAME
};

static const char *const stems[] = {
    "attn_q",         "attn_k", "attn_v",        "attn_output",   "attn_qkv",    "attn_gate",      "ffn_gate",
    "ffn_down",       "ffn_up", "ffn_gate_exps", "ffn_down_exps", "ffn_up_exps", "ffn_gate_shexp", "ffn_up_shexp",
    "ffn_down_shexp", "ssm_in", "ssm_out",       "ssm_alpha",     "ssm_beta",    "output",
};

static struct fixture {
    struct rn_heap heap;
    struct rn_gguf *gguf;
    struct model_edit plain, scaled, multiplied;
    struct writer made;
    float scales[MAX_SCALES][MAX_EXPERTS];
    float *values[MAX_SCALES]; /* of multiplied weights */
    uint32_t n;                /* of both */
} f;

/* ---- The two files ---- */

static void load(const char *name)
{
    f.n = 0;
    rn_heap_init(&f.heap, NULL);
    if (strncmp(name, "tests/", 6) == 0) {
        made_model_write(name, &f.made);
        assert_int_equal(rn_gguf_parse(&f.heap, f.made.bytes, f.made.n, name, &f.gguf, NULL), RUNNEL_OK);
    } else {
        assert_int_equal(rn_gguf_open(&f.heap, shared_path(name), &f.gguf, NULL), RUNNEL_OK);
    }
    edit_from(&f.plain, f.gguf);
    f.scaled = f.multiplied = f.plain;
}

static void unload(void)
{
    for (uint32_t i = 0; i < f.n; i++)
        rn_free(&f.heap, f.values[i]);
    rn_gguf_free(f.gguf);
    w_free(&f.made);
    assert_int_equal(rn_heap_blocks(&f.heap), 0);
}

static bool has(const struct model_edit *edit, const char *name)
{
    for (uint32_t i = 0; i < edit->n_tensors; i++)
        if (strcmp(edit->tensors[i].name, name) == 0)
            return true;
    return false;
}

/* What stands before ".weight" in the tensor's name, to `stem`; false where that is of no stem above. */
static bool stem_of(const struct edit_tensor *tensor, char stem[64])
{
    const char *name = tensor->name, *dot = strchr(name, '.');
    size_t i, n;

    if (strncmp(name, "blk.", 4) == 0 && (dot = strchr(dot + 1, '.')) != NULL)
        name = dot + 1;
    for (i = 0; i < sizeof stems / sizeof stems[0]; i++) {
        n = strlen(stems[i]);
        if (strncmp(name, stems[i], n) != 0 || strcmp(name + n, ".weight") != 0)
            continue;
        snprintf(stem, 64, "%.*s", (int)(name + n - tensor->name), tensor->name);
        return true;
    }
    return false;
}

/* Where it has a scale already there is none to add; beside biases of experts scales are refused. */
static bool can_have_scale(const struct edit_tensor *tensor, char stem[64])
{
    char name[80];

    if (!stem_of(tensor, stem))
        return false;
    snprintf(name, sizeof name, "%s.bias", stem);
    if (tensor->n_dims > 2 && has(&f.plain, name))
        return false;
    snprintf(name, sizeof name, "%s.scale", stem);
    return !has(&f.plain, name);
}

/* Its experts' weights, each times a power of two that hangs on their place, and these beside them. */
static void scale_one(uint32_t t, const char *stem)
{
    struct edit_tensor *tensor = &f.multiplied.tensors[t];
    const uint64_t experts = tensor->n_dims > 2 ? tensor->dims[2] : 1, each = tensor->bytes / sizeof(float) / experts;
    float *values = rn_alloc(&f.heap, each * experts, sizeof *values);
    char name[80];

    assert_non_null(values);
    assert_int_equal(tensor->type, 0);
    assert_true(f.n < MAX_SCALES && experts <= MAX_EXPERTS);
    f.values[f.n] = values;
    for (uint64_t e = 0; e < experts; e++) {
        f.scales[f.n][e] = (f.n * 5 + e * 3) % 7 < 4 ? 2 : 0.5f;
        for (uint64_t i = 0; i < each; i++)
            values[e * each + i] = ((const float *)tensor->data)[e * each + i] * f.scales[f.n][e];
    }
    tensor->data = values;
    snprintf(name, sizeof name, "%s.scale", stem);
    edit_add_tensor(&f.scaled, name, experts, 1, f.scales[f.n]);
    snprintf(name, sizeof name, "%s.input_scale", stem);
    edit_add_tensor(&f.scaled, name, experts, 1, f.scales[f.n]);
    f.n++;
}

/* ---- Logits ---- */

static float *logits_of(const char *name, const char *backend, const struct model_edit *edit, size_t *n)
{
    struct run_options options = {.backend = backend, .kv_type = RUNNEL_KV_F32};
    struct writer w = {0};
    struct run run;
    int32_t tokens[TOKENS];
    float *logits;

    edit_write(edit, &w);
    options.bytes = w.bytes;
    options.n_bytes = w.n;
    run_open(&run, name, &options);
    for (uint32_t t = 0; t < TOKENS; t++)
        tokens[t] = (int32_t)((t * 37 + 11) % run.plan->n_vocab);
    *n = (size_t)TOKENS * run.width;
    logits = calloc(*n, sizeof *logits);
    assert_non_null(logits);
    run_tokens(&run, 0, tokens, TOKENS, TOKENS, logits);
    run_close(&run);
    w_free(&w);
    return logits;
}

/* How far the scaled model's logits are from those of the multiplied one. */
static double error_of(const char *name, const char *backend)
{
    float *got, *want, *plain;
    double error;
    size_t n;

    got = logits_of(name, backend, &f.scaled, &n);
    want = logits_of(name, backend, &f.multiplied, &n);
    plain = logits_of(name, backend, &f.plain, &n);
    error = nmse(got, want, n);
    if (!(nmse(got, plain, n) > 1e-6))
        fail_msg("%s: the scales change nothing", name);
    free(got);
    free(want);
    free(plain);
    return error;
}

static void check_all(const char *backend)
{
    size_t failed = 0, n = 0;
    char stem[64];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        double error;

        load(names[i]);
        for (uint32_t t = 0; t < f.plain.n_tensors; t++)
            if (can_have_scale(&f.plain.tensors[t], stem))
                scale_one(t, stem);
        if (f.n > 0) {
            error = error_of(names[i], backend);
            n++;
            if (!(error <= 1e-9)) {
                print_message("%s, %s: nmse %.3g\n", backend, names[i], error);
                failed++;
            }
        }
        unload();
    }
    assert_int_equal(failed, 0);
    assert_int_equal(n, sizeof names / sizeof names[0]);
}

static void scales_are_of_weights(void **state)
{
    (void)state;
    check_all("fast");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scales_are_of_weights)};

    shared_or_skip();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
