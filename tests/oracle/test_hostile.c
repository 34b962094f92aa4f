/* Files of some architectures with what only they can have wrong, and of all with a tensor too many. What can be wrong
 * with each key and tensor of each architecture is in test_changed.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "../model/model_edit.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"
#include "tests/oracle/run_plan.h"

/* Files of ../shared, texts of the tree. */
static const char *const names[] = {
#define NAME(name, context) "oracles/arch/" name ".gguf",
#define MADE(name, context) MADE_TEXT(name),
    ARCH_MODELS(NAME) MADE_MODELS(MADE)
#undef MADE
#undef NAME
};

static struct fixture {
    struct rn_heap heap;
    struct rn_gguf *gguf;
    struct model_edit edit;
    runnel_error error;
    struct writer made; /* bytes of a model that is made */
} f;

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
    if (status == RUNNEL_OK) {
        status = rn_plan_new(&f.heap, gguf, 0, &plan, &f.error);
        if (status == RUNNEL_OK)
            assert_true(rn_plan_check(plan));
        rn_plan_free(plan);
        rn_gguf_free(gguf);
    }
    w_free(&w);
    return status;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), e = strlen(end);

    return n >= e && strcmp(text + n - e, end) == 0;
}

static void open_model(const char *name)
{
    rn_heap_init(&f.heap, NULL);
    if (ends_with(name, ".txt")) {
        made_model_write(name, &f.made);
        assert_int_equal(rn_gguf_parse(&f.heap, f.made.bytes, f.made.n, name, &f.gguf, &f.error), RUNNEL_OK);
    } else {
        assert_int_equal(rn_gguf_open(&f.heap, shared_path(name), &f.gguf, &f.error), RUNNEL_OK);
    }
    edit_from(&f.edit, f.gguf);
    assert_int_equal(plan_status(), RUNNEL_OK);
}

static void close_model(void)
{
    rn_gguf_free(f.gguf);
    w_free(&f.made);
    assert_int_equal(rn_heap_blocks(&f.heap), 0);
}

/* What no row reads is refused by name. */
static void strangers_are_named(void **state)
{
    static const float zeros[64];
    size_t m;

    (void)state;
    for (m = 0; m < sizeof names / sizeof names[0]; m++) {
        open_model(names[m]);
        edit_add_tensor(&f.edit, "blk.0.stranger.weight", 64, 1, zeros);
        assert_int_equal(plan_status(), RUNNEL_UNSUPPORTED);
        assert_non_null(strstr(f.error.message, "blk.0.stranger.weight"));
        edit_from(&f.edit, f.gguf);
        close_model();
    }
}

/* How a row without experts weighs them nobody has said: they are refused, by the tensor that chooses them, and
 * whatever else the file has of a feed-forward. */
static void experts_are_not_guessed(void **state)
{
    static const float zeros[64 * 4];
    static const char *const without[] = {MADE_TEXT("refact-made"), MADE_TEXT("xverse-made"), MADE_TEXT("gpt2-made"),
                                          MADE_TEXT("gptj-made"),   MADE_TEXT("talkie-made"), MADE_TEXT("deci-made")};
    size_t m;

    (void)state;
    for (m = 0; m < sizeof without / sizeof without[0]; m++) {
        open_model(without[m]);
        edit_add_tensor(&f.edit, "blk.1.ffn_gate_inp.weight", 64, 4, zeros);
        assert_int_equal(plan_status(), RUNNEL_UNSUPPORTED);
        assert_non_null(strstr(f.error.message, "tensor blk.1.ffn_gate_inp.weight chooses experts"));
        edit_drop_tensor(&f.edit, "blk.1.ffn_down.weight");
        assert_int_equal(plan_status(), RUNNEL_UNSUPPORTED);
        assert_non_null(strstr(f.error.message, "tensor blk.1.ffn_gate_inp.weight chooses experts"));
        edit_from(&f.edit, f.gguf);
        close_model();
    }
}

/* An indexer's numbers one by one out of range, and each of its tensors missing. */
static void indexers_are_looked_at(void **state)
{
    static const struct {
        const char *key;
        uint32_t value;
    } wrong[] = {{"glm-dsa.attention.indexer.top_k", 0},           {"glm-dsa.attention.indexer.head_count", 0},
                 {"glm-dsa.attention.indexer.head_count", 100000}, {"glm-dsa.attention.indexer.key_length", 0},
                 {"glm-dsa.attention.indexer.key_length", 8}, /* of which 16 would rotate */
                 {"glm-dsa.attention.indexer.key_length", 32}};
    static const char *const tensors[] = {"blk.2.indexer.k_norm.weight", "blk.2.indexer.k_norm.bias",
                                          "blk.2.indexer.proj.weight", "blk.2.indexer.attn_k.weight",
                                          "blk.2.indexer.attn_q_b.weight"};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        open_model(MADE_TEXT("glm-dsa-made-chosen"));
        edit_u32(&f.edit, wrong[i].key, wrong[i].value);
        assert_int_equal(plan_status(), RUNNEL_FORMAT);
        assert_non_null(strstr(f.error.message, "indexer."));
        close_model();
    }
    for (i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        open_model(MADE_TEXT("glm-dsa-made-chosen"));
        edit_drop_tensor(&f.edit, tensors[i]);
        assert_int_equal(plan_status(), RUNNEL_FORMAT);
        assert_non_null(strstr(f.error.message, tensors[i]));
        close_model();
    }
}

static void expect_refusal(runnel_status status, const char *words)
{
    assert_int_equal(plan_status(), status);
    if (strstr(f.error.message, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", f.error.message, words);
    edit_from(&f.edit, f.gguf);
}

/* What DeepSeek-V4's files say of blocks of positions, of their output and of experts. */
static void far_sight_is_looked_at(void **state)
{
    static const struct {
        const char *key;
        uint32_t value;
        const char *why;
    } wrong[] = {{"sliding_window", 0, "sliding_window"},
                 {"output_group_count", 3, "output_group_count does not divide"},
                 {"head_count_kv", 2, "head_count_kv is not 1"},
                 {"value_length", 32, "value_length is not"},
                 {"indexer.top_k", 0, "indexer.top_k"},
                 {"indexer.key_length", 8, "key_length is less than what rotates"}};
    static const uint32_t ratios[] = {0, 4, 64, 4};
    struct edit_tensor *table;
    int32_t ids[3 * 64] = {0};
    char key[96];
    size_t i;

    (void)state;
    open_model(MADE_TEXT("deepseek4-made"));
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(key, sizeof key, "deepseek4.attention.%s", wrong[i].key);
        edit_u32(&f.edit, key, wrong[i].value);
        expect_refusal(RUNNEL_FORMAT, wrong[i].why);
    }
    edit_u32s(&f.edit, "deepseek4.attention.compress_ratios", ratios, 4);
    expect_refusal(RUNNEL_UNSUPPORTED, "compress_ratios is neither 0, 4 nor 128");
    edit_u32s(&f.edit, "deepseek4.attention.compress_ratios", ratios, 2);
    expect_refusal(RUNNEL_FORMAT, "compress_ratios has fewer elements");
    edit_u32(&f.edit, "deepseek4.expert_gating_func", 2);
    expect_refusal(RUNNEL_UNSUPPORTED, "expert_gating_func is not 4");
    edit_u32(&f.edit, "deepseek4.hash_layer_count", 2); /* the second block has no table */
    expect_refusal(RUNNEL_FORMAT, "blk.1.ffn_gate_tid2eid.weight is missing");
    table = edit_tensor(&f.edit, "blk.0.ffn_gate_tid2eid.weight");
    ids[77] = 8;
    table->data = ids;
    expect_refusal(RUNNEL_FORMAT, "blk.0.ffn_gate_tid2eid.weight names expert 8 of 8");
    edit_tensor(&f.edit, "blk.0.ffn_gate_tid2eid.weight")->type = RN_F32;
    expect_refusal(RUNNEL_UNSUPPORTED, "blk.0.ffn_gate_tid2eid.weight: type F32");
    edit_tensor(&f.edit, "blk.1.hc_ffn_scale.weight")->dims[0] = 2;
    expect_refusal(RUNNEL_FORMAT, "blk.1.hc_ffn_scale.weight is missing or not 3 numbers");
    close_model();
}

/* Positions that are chosen in whole blocks, and several residual streams: numbers that no file has, and tensors that
 * are missing. */
static void blocks_and_streams_are_looked_at(void **state)
{
    static const struct {
        const char *rest;
        uint32_t value;
        runnel_status status;
    } wrong[] = {{"attention.indexer.kpool", 1, RUNNEL_FORMAT},
                 {"attention.indexer.kpool", 3, RUNNEL_FORMAT}, /* of 8 that are chosen */
                 {"attention.indexer.kpool", 65, RUNNEL_FORMAT},
                 {"attention.indexer.top_k", 10, RUNNEL_FORMAT},
                 {"rope.dimension_count", 16, RUNNEL_UNSUPPORTED},
                 {"hyper_connection.count", 0, RUNNEL_FORMAT},
                 {"hyper_connection.sinkhorn_iterations", 1001, RUNNEL_FORMAT}};
    static const char *const tensors[] = {"blk.1.indexer_compressor_gate.weight", "blk.1.indexer_compressor_ape.weight",
                                          "blk.0.hc_attn_fn.weight", "blk.0.hc_attn_base.weight",
                                          "blk.2.hc_ffn_scale.weight"};
    char key[96];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        open_model(MADE_TEXT("glm5-next-made"));
        snprintf(key, sizeof key, "glm5-next.%s", wrong[i].rest);
        edit_u32(&f.edit, key, wrong[i].value);
        assert_int_equal(plan_status(), wrong[i].status);
        if (strcmp(wrong[i].rest, "attention.indexer.top_k") != 0)
            assert_non_null(strstr(f.error.message, key));
        close_model();
    }
    open_model(MADE_TEXT("glm5-next-made"));
    edit_bool(&f.edit, "glm5-next.attention.indexer.kpool_select_tail", false);
    assert_int_equal(plan_status(), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(f.error.message, "kpool_select_tail"));
    close_model();
    for (i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        open_model(MADE_TEXT("glm5-next-made"));
        edit_drop_tensor(&f.edit, tensors[i]);
        assert_int_equal(plan_status(), RUNNEL_FORMAT);
        assert_non_null(strstr(f.error.message, tensors[i]));
        close_model();
    }
}

/* Means of chunks and chosen positions do not go together. The indexer's keys are a layer of the cache. */
static void choices_are_of_positions(void **state)
{
    const struct rn_device_caps caps = {.kv_types = UINT32_MAX, .max_rows = 1, .max_outs = 1, .can = RN_CAN_MEANS};
    struct rn_backend_limits limits = {.max_rows = 1, .max_outs = 1, .kv_type = RUNNEL_KV_F16, .mean_window = 64};
    struct rn_plan *plan;

    (void)state;
    open_model(MADE_TEXT("glm-dsa-made-chosen"));
    assert_int_equal(rn_plan_new(&f.heap, f.gguf, 0, &plan, &f.error), RUNNEL_OK);
    assert_int_equal(rn_plan_kv_bytes(plan, RUNNEL_KV_F16), (5 * (32 + 16) + 2 * 64) * 2);
    assert_int_equal(rn_limits_check(&limits, plan, &caps, &f.error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(f.error.message, "means of chunks"));
    limits.mean_window = 0;
    assert_int_equal(rn_limits_check(&limits, plan, &caps, &f.error), RUNNEL_OK);
    rn_plan_free(plan);
    close_model();
}

/* The cache of a latent: 32 + 16 numbers a position and block. Those 32 that are values rotate by spans of 16. */
static void latents_are_all_that_is_kept(void **state)
{
    const struct rn_device_caps caps = {.kv_types = UINT32_MAX, .max_rows = 1, .max_outs = 1};
    struct rn_backend_limits limits = {.max_rows = 1, .max_outs = 1, .kv_type = RUNNEL_KV_Q4};
    struct rn_plan *plan;
    uint32_t i;

    (void)state;
    open_model("tests/oracle/made/deepseek2-made-lite.txt");
    assert_int_equal(rn_plan_new(&f.heap, f.gguf, 0, &plan, &f.error), RUNNEL_OK);
    assert_int_equal(rn_plan_kv_bytes(plan, RUNNEL_KV_F16), 3 * (32 + 16) * 2);
    assert_int_equal(rn_limits_check(&limits, plan, &caps, &f.error), RUNNEL_OK);
    for (i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind == RN_OP_ATTENTION)
            plan->ops[i].v_dim = 24;
    assert_int_equal(rn_limits_check(&limits, plan, &caps, &f.error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(f.error.message, "q4"));
    limits.kv_type = RUNNEL_KV_Q8;
    assert_int_equal(rn_limits_check(&limits, plan, &caps, &f.error), RUNNEL_OK);
    rn_plan_free(plan);
    close_model();
}

/* Blocks that come several times have caches of their own each time: none of them is the last of a part. */
static void loops_have_no_exit(void **state)
{
    struct rn_plan *plan = NULL;

    (void)state;
    open_model(MADE_TEXT("nanbeige-made-loops"));
    assert_int_equal(rn_plan_new_exit(&f.heap, f.gguf, 0, 1, &plan, &f.error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(f.error.message, "key nanbeige.num_loops"));
    close_model();
}

/* What an encoder's blocks give is no use to a head that guesses logits. */
static void encoders_have_no_drafts(void **state)
{
    const uint32_t block = 1;
    struct rn_plan *plan = NULL;

    (void)state;
    open_model(MADE_TEXT("eurobert-made"));
    assert_int_equal(rn_plan_new_tapped(&f.heap, f.gguf, 0, &block, 1, &plan, &f.error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(f.error.message, "architecture eurobert gives embeddings"));
    close_model();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(strangers_are_named),
                                       cmocka_unit_test(experts_are_not_guessed),
                                       cmocka_unit_test(loops_have_no_exit),
                                       cmocka_unit_test(indexers_are_looked_at),
                                       cmocka_unit_test(far_sight_is_looked_at),
                                       cmocka_unit_test(choices_are_of_positions),
                                       cmocka_unit_test(latents_are_all_that_is_kept),
                                       cmocka_unit_test(encoders_have_no_drafts),
                                       cmocka_unit_test(blocks_and_streams_are_looked_at)};

    shared_or_skip();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
