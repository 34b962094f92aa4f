/* The plan of an architecture that nobody knows: oracles of known ones under another name give the same logits where
 * what is assumed is right, and files that a standard decoder's plan does not cover are refused by what they have more.
 * */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../model/model_edit.h"
#include "model/arch/table.h"
#include "tests/oracle/run_plan.h"
#include "tests/support/nmse.h"

static const char *const backends[] = {"reference", "fast"};

/* Oracles of which everything but the rotation's pairs stands in the file. */
static const struct {
    const char *model;
    bool neighbours; /* what the file then has to say in its key */
    const char *words;
} standard[] = {
    {"llama-dense", true, "rotation of neighbours, SiLU gate, RMS norms"},
    {"llama-moe", true, "rotation of neighbours, SiLU gate, RMS norms, experts"},
    {"internlm2-dense", true, "RMS norms"},
    {"chatglm-dense", true, "SiLU gate"},
    {"exaone-dense", false, "rotation of halves"},
    {"gpt2-dense", false, "no rotation, GELU, layer norms"},
    {"olmo2-dense", false, "RMS norms, norms of queries and keys before the rotation"},
    {"phi2-dense", false, "rotation of halves, GELU, layer norms"},
    {"qwen2-dense", false, "rotation of halves, SiLU gate, RMS norms"},
    {"qwen3-dense", false, "rotation of halves, SiLU gate, RMS norms, norms of queries and keys before the rotation"},
    {"qwen3moe-moe", false,
     "rotation of halves, SiLU gate, RMS norms, norms of queries and keys before the rotation, experts"},
    {"qwen3vl-dense", false, "rotation of halves, SiLU gate, RMS norms, norms of queries and keys before the rotation"},
    {"seed_oss-dense", false, "rotation of halves, SiLU gate, RMS norms"},
    {"starcoder2-dense", false, "rotation of halves, GELU, layer norms"},
    {"falcon-dense", false, "rotation of halves, GELU, layer norms"},
    {"gptneox-dense", false, "rotation of halves, GELU, layer norms"},
};

static struct fixture {
    struct rn_heap heap;
    struct rn_gguf *gguf;
    struct model_edit edit;
    struct run run;
    runnel_error error;
    char assumed[RN_ARCH_ASSUMED_BYTES]; /* of the last plan */
} f;

static void open_model(const char *model)
{
    char path[128];

    snprintf(path, sizeof path, "oracles/arch/%s.gguf", model);
    rn_heap_init(&f.heap, NULL);
    assert_int_equal(rn_gguf_open(&f.heap, shared_path(path), &f.gguf, NULL), RUNNEL_OK);
    edit_from(&f.edit, f.gguf);
}

/* olmo2 has none, though its oracle's file has. */
static void drop_biases(void)
{
    uint32_t i = 0;

    while (i < f.edit.n_tensors) {
        const char *name = f.edit.tensors[i].name;

        if (strstr(name, "attn_q.bias") != NULL || strstr(name, "attn_k.bias") != NULL ||
            strstr(name, "attn_v.bias") != NULL)
            edit_drop_tensor(&f.edit, name);
        else
            i++;
    }
}

/* The oracles' files have keys of all architectures, with numbers that theirs do not read. */
static void rename_model(bool keep_windows)
{
    static const char *const others[] = {"attention.max_alibi_bias", "attention.clamp_kqv", "expert_gating_func",
                                         "expert_weights_scale"};
    static const char *const windows[] = {"attention.sliding_window", "attention.sliding_window_pattern"};
    char key[96];
    size_t i;

    edit_rename(&f.edit, "unheard-of");
    for (i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(key, sizeof key, "unheard-of.%s", others[i]);
        edit_drop_key(&f.edit, key);
    }
    for (i = 0; i < 2 && !keep_windows; i++) {
        snprintf(key, sizeof key, "unheard-of.%s", windows[i]);
        edit_drop_key(&f.edit, key);
    }
}

static void close_model(void)
{
    rn_gguf_free(f.gguf);
    assert_int_equal(rn_heap_blocks(&f.heap), 0);
}

static void save_edit(char path[32])
{
    struct writer w = {0};
    int fd;

    strcpy(path, "/tmp/rn_standard_XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    edit_write(&f.edit, &w);
    assert_int_equal(write(fd, w.bytes, w.n), (ssize_t)w.n);
    close(fd);
    w_free(&w);
}

/* Logits of the edited file against those of the oracle. */
static double error_of(const char *model, const char *backend, const char *words)
{
    const struct run_options options = {.backend = backend, .kv_type = RUNNEL_KV_F32};
    struct oracle oracle;
    char path[32], logits[128];
    double error;
    float *ours;

    save_edit(path);
    snprintf(logits, sizeof logits, "oracles/arch/%s.logits", model);
    run_open(&f.run, path, &options);
    unlink(path);
    assert_string_equal(f.run.plan->architecture, "unheard-of");
    assert_non_null(strstr(f.run.plan->assumed, "'unheard-of'"));
    if (strstr(f.run.plan->assumed, words) == NULL)
        fail_msg("%s: \"%s\" does not say %s", model, f.run.plan->assumed, words);
    oracle_open(&f.run.heap, shared_path(logits), &oracle);
    ours = rn_alloc(&f.run.heap, (size_t)oracle.n_tokens * oracle.n_vocab, sizeof *ours);
    run_tokens(&f.run, 0, oracle.tokens, oracle.n_tokens, oracle.n_tokens, ours);
    error = nmse(ours, oracle.logits, (size_t)oracle.n_tokens * oracle.n_vocab);
    rn_free(&f.run.heap, ours);
    oracle_close(&f.run.heap, &oracle);
    run_close(&f.run);
    return error;
}

static void logits_of_unknown_names_agree(void **state)
{
    size_t i, k, failed = 0;

    (void)state;
    for (i = 0; i < sizeof standard / sizeof standard[0]; i++) {
        open_model(standard[i].model);
        rename_model(strcmp(standard[i].model, "olmo2-dense") == 0);
        if (strcmp(standard[i].model, "olmo2-dense") == 0)
            drop_biases();
        if (standard[i].neighbours)
            edit_text(&f.edit, "unheard-of.tensor_data_layout", "Meta AI original pth");
        for (k = 0; k < 2; k++) {
            double error = error_of(standard[i].model, backends[k], standard[i].words);

            print_message("%-9s %-20s nmse %.3g\n", backends[k], standard[i].model, error);
            failed += !(error <= 1e-6);
        }
        close_model();
    }
    assert_int_equal(failed, 0);
}

/* The status of a plan for what f.edit says. */
static runnel_status plan_status(void)
{
    struct rn_gguf *gguf = NULL;
    struct rn_plan *plan = NULL;
    struct writer w = {0};
    runnel_status status;

    memset(&f.error, 0, sizeof f.error);
    edit_write(&f.edit, &w);
    status = rn_gguf_parse(&f.heap, w.bytes, w.n, "edited.gguf", &gguf, &f.error);
    if (status == RUNNEL_OK)
        status = rn_plan_new(&f.heap, gguf, 0, &plan, &f.error);
    snprintf(f.assumed, sizeof f.assumed, "%s", plan != NULL ? plan->assumed : "");
    rn_plan_free(plan);
    rn_gguf_free(gguf);
    w_free(&w);
    return status;
}

static void accepted(void)
{
    if (plan_status() != RUNNEL_OK)
        fail_msg("%s", f.error.message);
}

static void refused(const char *what)
{
    assert_int_equal(plan_status(), RUNNEL_UNSUPPORTED);
    if (strstr(f.error.message, what) == NULL)
        fail_msg("\"%s\" does not name %s", f.error.message, what);
    edit_from(&f.edit, f.gguf);
    rename_model(false);
}

/* A rotation that no key speaks of, and no norms where there are none. */
static void guesses_are_said(void **state)
{
    static const char unsaid[] = "rotation of halves, SiLU gate, RMS norms; no key or tensor tells of positions";

    (void)state;
    open_model("qwen2-dense");
    rename_model(false);
    edit_u32(&f.edit, "unheard-of.rope.dimension_count", 16);
    accepted();
    assert_null(strstr(f.assumed, "tells of positions"));
    assert_null(strstr(f.assumed, "norms of queries"));
    edit_drop_key(&f.edit, "unheard-of.rope.freq_base");
    edit_drop_key(&f.edit, "unheard-of.rope.dimension_count");
    accepted();
    if (strstr(f.assumed, unsaid) == NULL)
        fail_msg("%s", f.assumed);
    close_model();
}

static void what_is_more_is_named(void **state)
{
    static const float zeros[128];

    (void)state;
    open_model("qwen3-dense");
    rename_model(false);
    accepted();
    edit_u32(&f.edit, "unheard-of.altup.num_inputs", 4);
    refused("unheard-of.altup.num_inputs");
    edit_f32(&f.edit, "unheard-of.logit_scale", 0.5f);
    refused("unheard-of.logit_scale");
    edit_u32(&f.edit, "unheard-of.attention.sliding_window", 16);
    refused("unheard-of.attention.sliding_window");
    edit_bool(&f.edit, "unheard-of.attention.causal", false);
    accepted();
    edit_u32(&f.edit, "unheard-of.attention.sliding_window", 16);
    edit_u32(&f.edit, "unheard-of.attention.sliding_window_pattern", 2);
    refused("unheard-of.attention.causal");
    edit_add_tensor(&f.edit, "blk.0.attn_gate.weight", 128, 1, zeros);
    refused("blk.0.attn_gate.weight");
    edit_add_tensor(&f.edit, "blk.1.attn_post_norm.weight", 128, 1, zeros);
    refused("blk.1.attn_post_norm.weight");
    edit_u32(&f.edit, "unheard-of.attention.sliding_window", 1 << 20); /* longer than the context: none */
    accepted();
    edit_u32(&f.edit, "unheard-of.attention.sliding_window", 16);
    edit_u32(&f.edit, "unheard-of.attention.sliding_window_pattern", 2);
    accepted();
    close_model();
}

/* Other kinds of models, under names that nobody knows, are not supported. */
static void others_are_refused(void **state)
{
    static const char *const models[] = {"mamba-dense",   "mamba2-dense",    "rwkv7-dense",
                                         "deepseek2-moe", "falcon-h1-dense", "qwen3next-moe"};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof models / sizeof models[0]; i++) {
        open_model(models[i]);
        rename_model(false);
        assert_int_equal(plan_status(), RUNNEL_UNSUPPORTED);
        print_message("%s: %s\n", models[i], f.error.message);
        assert_true(strstr(f.error.message, "key ") != NULL || strstr(f.error.message, "tensor ") != NULL);
        close_model();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(logits_of_unknown_names_agree),
                                       cmocka_unit_test(guesses_are_said), cmocka_unit_test(what_is_more_is_named),
                                       cmocka_unit_test(others_are_refused)};

    shared_or_skip();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
