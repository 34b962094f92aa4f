/* Keys that the oracles' files leave at 1 or absent, judged by other files that must give the same: a scale in a key,
 * or in the tensors that it stands for. Powers of two, so that the bits are the same. And the same tensors with other
 * keys, which the reference judges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../model/model_edit.h"
#include "tests/oracle/run_plan.h"
#include "tests/support/nmse.h"

enum { TOKENS = 24, VOCAB = 128, POOL = 1 << 18 };

static const char *const backends[] = {"reference", "fast"};

static struct fixture {
    struct rn_heap heap;
    struct rn_gguf *gguf;
    struct model_edit edit;
    float pool[POOL];
    uint32_t used;
    float want[TOKENS * VOCAB], got[TOKENS * VOCAB];
} f;

static void open_model(const char *name)
{
    char path[128];

    snprintf(path, sizeof path, "oracles/arch/%s.gguf", name);
    rn_heap_init(&f.heap, NULL);
    assert_int_equal(rn_gguf_open(&f.heap, shared_path(path), &f.gguf, NULL), RUNNEL_OK);
    edit_from(&f.edit, f.gguf);
    f.used = 0;
}

static void close_model(void)
{
    rn_gguf_free(f.gguf);
    assert_int_equal(rn_heap_blocks(&f.heap), 0);
}

/* The logits of what f.edit says. */
static void run_from(const char *backend, int32_t from, float *logits)
{
    const struct run_options options = {.backend = backend, .kv_type = RUNNEL_KV_F32};
    char path[] = "/tmp/rn_keys_XXXXXX";
    int32_t tokens[TOKENS];
    struct writer w = {0};
    struct run run;
    int fd = mkstemp(path), i;

    assert_true(fd >= 0);
    edit_write(&f.edit, &w);
    assert_int_equal(write(fd, w.bytes, w.n), (ssize_t)w.n);
    close(fd);
    w_free(&w);
    for (i = 0; i < TOKENS; i++)
        tokens[i] = ((i + from) * 37 + 11) % VOCAB;
    run_open(&run, path, &options);
    assert_int_equal(run.plan->n_vocab, VOCAB);
    run_tokens(&run, 0, tokens, TOKENS, TOKENS, logits);
    run_close(&run);
    unlink(path);
}

static void run_edited(const char *backend, float *logits)
{
    run_from(backend, 0, logits);
}

/* Tensors whose names hold `part` times `scale`. */
static void scale_tensors(const char *part, float scale)
{
    uint32_t t, n = 0;
    size_t i, values;

    for (t = 0; t < f.edit.n_tensors; t++) {
        struct edit_tensor *tensor = &f.edit.tensors[t];

        if (strstr(tensor->name, part) == NULL)
            continue;
        values = tensor->bytes / sizeof(float);
        assert_true(f.used + values <= POOL);
        for (i = 0; i < values; i++)
            f.pool[f.used + i] = ((const float *)tensor->data)[i] * scale;
        tensor->data = &f.pool[f.used];
        f.used += (uint32_t)values;
        n++;
    }
    assert_true(n > 0);
}

/* The same bits of the model with the key, and with the tensors that it stands for; other ones than without both. */
static void expect_same(const char *model, const char *key, float value, const char *const *parts, float scale)
{
    float plain[TOKENS * VOCAB];
    size_t k, i;

    for (k = 0; k < 2; k++) {
        open_model(model);
        run_edited(backends[k], plain);
        edit_f32(&f.edit, key, value);
        run_edited(backends[k], f.got);
        edit_from(&f.edit, f.gguf);
        for (i = 0; parts[i] != NULL; i++)
            scale_tensors(parts[i], scale);
        run_edited(backends[k], f.want);
        if (memcmp(f.got, f.want, sizeof f.got) != 0)
            fail_msg("%s, %s: nmse %g", backends[k], key, nmse(f.got, f.want, TOKENS * VOCAB));
        assert_true(memcmp(f.got, plain, sizeof plain) != 0);
        close_model();
    }
}

static void scales(void **state)
{
    static const char *const embedding[] = {"token_embd", NULL};
    static const char *const halves[] = {"attn_output", "ffn_down", NULL};

    (void)state;
    expect_same("granite-dense", "granite.embedding_scale", 4, embedding, 4);
    expect_same("granite-dense", "granite.residual_scale", 0.5f, halves, 0.5f);
}

static void logit_scales(void **state)
{
    static const struct {
        const char *model, *key;
        float value, factor;
    } cases[] = {{"granite-dense", "granite.logit_scale", 4, 0.25f},
                 {"command-r-dense", "command-r.logit_scale", 0.25f, 0.25f},
                 {"cohere2-dense", "cohere2.logit_scale", 2, 2}};
    size_t c, k, i;

    (void)state;
    for (c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (k = 0; k < 2; k++) {
            open_model(cases[c].model);
            run_edited(backends[k], f.want);
            edit_f32(&f.edit, cases[c].key, cases[c].value);
            run_edited(backends[k], f.got);
            for (i = 0; i < TOKENS * VOCAB; i++)
                assert_true(f.got[i] == f.want[i] * cases[c].factor);
            close_model();
        }
}

/* Logits behind a cap are those before it, through its formula. */
static void caps(void **state)
{
    size_t k, i;

    (void)state;
    for (k = 0; k < 2; k++) {
        open_model("gemma3-dense");
        run_edited(backends[k], f.want);
        edit_f32(&f.edit, "gemma3.final_logit_softcapping", 2);
        run_edited(backends[k], f.got);
        for (i = 0; i < TOKENS * VOCAB; i++)
            f.want[i] = 2 * tanhf(f.want[i] / 2);
        assert_true(nmse(f.got, f.want, TOKENS * VOCAB) <= 1e-10);
        close_model();
    }
}

/* Where all blocks see their chunk alone, a chunk's logits are those of a sequence that begins with it: rotation counts
 * distances. */
static void chunks(void **state)
{
    enum { CHUNK = 5, AT = 2 * CHUNK };
    double error;
    size_t k;

    (void)state;
    for (k = 0; k < 2; k++) {
        open_model("llama4-moe");
        edit_u32(&f.edit, "llama4.attention.sliding_window_pattern", 0);
        run_edited(backends[k], f.got);
        run_from(backends[k], AT, f.want);
        assert_true(nmse(f.got + AT * VOCAB, f.want, CHUNK * VOCAB) > 1e-3);
        edit_u32(&f.edit, "llama4.attention.chunk_size", CHUNK);
        run_edited(backends[k], f.got);
        error = nmse(f.got + AT * VOCAB, f.want, CHUNK * VOCAB);
        if (!(error <= 1e-10))
            fail_msg("%s: nmse %g", backends[k], error);
        close_model();
    }
}

/* Logits with a cache of the format, in steps of a few positions, by a backend. */
static void run_cached(const char *name, const char *backend, runnel_kv_type type, uint32_t chunk, float *logits)
{
    const struct run_options options = {.backend = backend, .kv_type = type, .block_tokens = 32};
    int32_t tokens[TOKENS];
    char path[128];
    struct run run;

    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (7 * i + 3) % VOCAB;
    snprintf(path, sizeof path, "oracles/arch/%s.gguf", name);
    run_open(&run, shared_path(path), &options);
    run_tokens(&run, 0, tokens, TOKENS, chunk, logits);
    run_close(&run);
}

/* A latent's cache in all formats: the fast backend's numbers are the reference's, and those of f32 but for what the
 * format rounds; steps do not show in the bits. A code may fall on either side where the backends differ in the last
 * bit. */
static void latents_have_all_formats(void **state)
{
    static const char *const models[] = {"deepseek2-moe", "minicpm3-dense"};
    static const struct {
        runnel_kv_type type;
        double off; /* from f32 */
    } formats[] = {{RUNNEL_KV_F32, 0},   {RUNNEL_KV_F16, 1e-4}, {RUNNEL_KV_BF16, 1e-2}, {RUNNEL_KV_FP8, 0.1},
                   {RUNNEL_KV_Q8, 1e-3}, {RUNNEL_KV_Q4, 0.1},   {RUNNEL_KV_Q3, 0.3}};
    static float exact[TOKENS * VOCAB];
    double off;

    (void)state;
    for (size_t m = 0; m < 2; m++) {
        run_cached(models[m], "reference", RUNNEL_KV_F32, TOKENS, exact);
        for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
            run_cached(models[m], "reference", formats[i].type, TOKENS, f.want);
            off = nmse(f.want, exact, TOKENS * VOCAB);
            if (!(off <= formats[i].off) || (i > 0 && off < 1e-12)) /* 0 would mean that nothing was rounded */
                fail_msg("%s, KV type %d: %g from f32", models[m], (int)formats[i].type, off);
            run_cached(models[m], "fast", formats[i].type, TOKENS, f.got);
            off = nmse(f.got, f.want, TOKENS * VOCAB);
            if (!(off <= 1e-6 + formats[i].off / 10))
                fail_msg("%s, KV type %d: %g between backends", models[m], (int)formats[i].type, off);
            run_cached(models[m], "fast", formats[i].type, 5, f.want);
            assert_memory_equal(f.want, f.got, sizeof f.want);
        }
    }
}

/* ---- Same tensors, other keys ---- */

enum kind { END, U32, F32, BOOL, TEXT, PAIR /* a number for each of two blocks */, FOUR /* sections */ };

struct change {
    const char *rest; /* of the key, behind the architecture's name */
    enum kind kind;
    double value;
    const char *text; /* of a TEXT; else four numbers, a digit each */
};

/* Each row changes the logits of its model. */
static const struct {
    const char *model;
    struct change changes[4];
} variants[] = {
    {"qwen2-dense", {{"rope.freq_base", F32, 500, NULL}}},
    {"qwen2-dense", {{"rope.dimension_count", U32, 8, NULL}}},
    {"qwen2-dense", {{"rope.scaling.factor", F32, 3, NULL}}},
    {"qwen2-dense", {{"rope.scaling.type", TEXT, 0, "longrope"}, {"rope.scaling.factor", F32, 2, NULL}}},
    {"qwen2-dense",
     {{"rope.scaling.type", TEXT, 0, "yarn"},
      {"rope.scaling.factor", F32, 4, NULL},
      {"rope.scaling.original_context_length", U32, 32, NULL}}},
    {"qwen2-dense",
     {{"rope.scaling.type", TEXT, 0, "yarn"},
      {"rope.scaling.factor", F32, 4, NULL},
      {"rope.scaling.yarn_beta_fast", F32, 2, NULL}}},
    {"qwen2-dense",
     {{"rope.scaling.type", TEXT, 0, "yarn"},
      {"rope.scaling.factor", F32, 4, NULL},
      {"rope.scaling.attn_factor", F32, 0.5, NULL}}},
    {"qwen2-dense",
     {{"rope.scaling.type", TEXT, 0, "llama3"},
      {"rope.scaling.factor", F32, 8, NULL},
      {"rope.scaling.original_context_length", U32, 32, NULL}}},
    {"qwen2-dense", {{"attention.scale", F32, 0.5, NULL}}},
    {"qwen2-dense", {{"attention.causal", BOOL, 0, NULL}}},
    {"qwen2-dense", {{"attention.layer_norm_rms_epsilon", F32, 0.1, NULL}}},
    {"gemma2-dense", {{"attention.sliding_window", U32, 3, NULL}}},
    {"gemma2-dense", {{"attention.sliding_window", U32, 3, NULL}, {"rope.freq_base_swa", F32, 700, NULL}}},
    {"gemma2-dense", {{"attention.sliding_window_pattern", PAIR, 0, "01"}}},
    {"gemma2-dense", {{"attn_logit_softcapping", F32, 1, NULL}}},
    {"gemma2-dense", {{"final_logit_softcapping", F32, 1, NULL}}},
    {"gpt-oss-moe", {{"attention.sliding_window", U32, 4, NULL}}},
    {"gpt-oss-moe", {{"rope.freq_base_swa", F32, 700, NULL}}},
    {"cohere2-dense", {{"attention.sliding_window", U32, 5, NULL}, {"attention.sliding_window_pattern", U32, 1, NULL}}},
    {"cohere2-dense", {{"attention.sliding_window", U32, 5, NULL}, {"attention.sliding_window_pattern", U32, 0, NULL}}},
    {"mistral3-dense",
     {{"attention.temperature_scale", F32, 0.5, NULL}, {"attention.temperature_length", U32, 4, NULL}}},
    {"mpt-dense", {{"attention.max_alibi_bias", F32, 2, NULL}}},
    {"mpt-dense", {{"attention.clamp_kqv", F32, 0.02, NULL}}},
    {"gptneox-dense", {{"use_parallel_residual", BOOL, 1, NULL}}},
    {"qwen2vl-dense", {{"rope.dimension_sections", FOUR, 0, "2112"}}},
    {"qwen3vl-dense", {{"rope.dimension_sections", FOUR, 0, "2112"}}},
    {"qwen35-dense", {{"rope.dimension_sections", FOUR, 0, "2112"}}},
    {"glm4moe-moe", {{"rope.dimension_sections", FOUR, 0, "2112"}}},
    {"glm4moe-moe", {{"expert_used_count", U32, 1, NULL}}},
    {"glm4moe-moe", {{"expert_gating_func", U32, 1, NULL}}},
    {"glm4moe-moe", {{"expert_weights_scale", F32, 2.5, NULL}}},
    {"glm4moe-moe", {{"expert_weights_norm", BOOL, 1, NULL}}},
    {"deepseek2-moe", {{"expert_used_count", PAIR, 0, "01"}}},
    {"minimax-m2-moe", {{"expert_gating_func", U32, 4, NULL}}},
    {"granite-dense", {{"residual_scale", F32, 0.3, NULL}, {"embedding_scale", F32, 3, NULL}}},
    {"granite-dense", {{"rope.scaling.finetuned", BOOL, 0, NULL}}},
};

static void apply(const char *model, const struct change *change)
{
    char key[96];
    uint32_t numbers[4], i;

    snprintf(key, sizeof key, "%.*s.%s", (int)(strrchr(model, '-') - model), model, change->rest);
    for (i = 0; i < 4; i++)
        numbers[i] = change->kind >= PAIR ? (uint32_t)(change->text[change->kind == PAIR ? i % 2 : i] - '0') : 0;
    switch (change->kind) {
    case U32:
        edit_u32(&f.edit, key, (uint32_t)change->value);
        return;
    case F32:
        edit_f32(&f.edit, key, (float)change->value);
        return;
    case BOOL:
        edit_bool(&f.edit, key, change->value != 0);
        return;
    case TEXT:
        edit_text(&f.edit, key, change->text);
        return;
    default:
        edit_u32s(&f.edit, key, numbers, change->kind == PAIR ? 2 : 4);
    }
}

/* What a key does, both backends do, and it does something. */
static void variants_agree(void **state)
{
    static float plain[TOKENS * VOCAB];
    size_t i, c, failed = 0;
    double error, effect;

    (void)state;
    for (i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        open_model(variants[i].model);
        run_edited("reference", plain);
        for (c = 0; c < 4 && variants[i].changes[c].kind != END; c++)
            apply(variants[i].model, &variants[i].changes[c]);
        run_edited("reference", f.want);
        run_edited("fast", f.got);
        close_model();
        error = nmse(f.got, f.want, TOKENS * VOCAB);
        effect = nmse(f.want, plain, TOKENS * VOCAB);
        if (error <= 1e-6 && effect > 1e-6)
            continue;
        print_message("%s, variant %zu: nmse %.3g, effect %.3g\n", variants[i].model, i, error, effect);
        failed++;
    }
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(latents_have_all_formats),
                                       cmocka_unit_test(scales),
                                       cmocka_unit_test(logit_scales),
                                       cmocka_unit_test(caps),
                                       cmocka_unit_test(chunks),
                                       cmocka_unit_test(variants_agree)};

    shared_or_skip();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
