/* Plans: what is built from a good file, and what is said about a bad one.
 *
 * Bad files are made by changing one thing of a good one: a tiny random model (dense, with experts),
 * and where ../shared exists the llama and mistral3 files of oracles/arch too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/plan.h"
#include "model_edit.h"
#include "runnel_files.h"
#include "tests/support/shared.h"
#include "tests/base/refusing.h"

struct made {
    struct rn_heap heap;
    struct writer bytes;
    struct rn_gguf *gguf;
    struct rn_plan *plan; /* NULL where it failed */
    runnel_error error;
    runnel_status status;
};

static void make_at(struct made *made, const struct model_edit *edit, uint32_t context, const char *path)
{
    runnel_error error = {0};

    memset(made, 0, sizeof *made);
    rn_heap_init(&made->heap, NULL);
    edit_write(edit, &made->bytes);
    if (rn_gguf_parse(&made->heap, made->bytes.bytes, made->bytes.n, path, &made->gguf, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    made->status = rn_plan_new(&made->heap, made->gguf, context, &made->plan, &made->error);
    assert_int_equal(made->error.status, made->status);
    if (made->status == RUNNEL_OK)
        assert_true(rn_plan_check(made->plan));
    else
        assert_null(made->plan);
}

static void make(struct made *made, const struct model_edit *edit, uint32_t context)
{
    make_at(made, edit, context, "test.gguf");
}

static void unmake(struct made *made)
{
    rn_plan_free(made->plan);
    rn_gguf_free(made->gguf);
    w_free(&made->bytes);
    assert_int_equal(rn_heap_blocks(&made->heap), 0);
}

/* The plan must fail like this, with `part` in the sentence, however long the file's path is. */
static void refused(const struct model_edit *edit, uint32_t context, runnel_status status, const char *part)
{
    char path[400];

    for (int deep = 0; deep < 2; deep++) {
        struct made made;

        memset(path, 'p', sizeof path);
        memcpy(path + (deep ? sizeof path - 11 : 0), "/test.gguf", 11);
        make_at(&made, edit, context, path);
        if (made.status != status || strstr(made.error.message, part) == NULL)
            fail_msg("expected %s naming '%s', got %s: %s", runnel_status_name(status), part,
                     runnel_status_name(made.status), made.error.message);
        assert_non_null(strstr(made.error.message, "/test.gguf: "));
        unmake(&made);
    }
}

static void accepted(const struct model_edit *edit, uint32_t context)
{
    struct made made;

    make(&made, edit, context);
    if (made.status != RUNNEL_OK)
        fail_msg("%s: %s", runnel_status_name(made.status), made.error.message);
    unmake(&made);
}

/* The good files, one at a time: false when there are no more. `path` tells a test which it is. */
static bool base(size_t i, struct model_edit *edit, struct rn_heap *heap, struct rn_gguf **gguf, const char **name)
{
    static const char *const files[] = {"llama-dense", "llama-moe", "mistral3-dense"};
    runnel_error error = {0};
    char file[64], path[512];

    *gguf = NULL;
    rn_heap_init(heap, NULL);
    *name = i == 0 ? "tiny" : "tiny with experts";
    if (i < 2) {
        edit_tiny(edit, i == 0 ? 0 : 4, false);
        return true;
    }
    if (i - 2 >= sizeof files / sizeof files[0])
        return false;
    *name = files[i - 2];
    snprintf(file, sizeof file, "oracles/arch/%s.gguf", *name);
    if (!shared_find(file, path, sizeof path))
        return false;
    if (rn_gguf_open(heap, path, gguf, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    edit_from(edit, *gguf);
    return true;
}

/* ---- Good files ---- */

static void counts(const struct rn_plan *plan, uint32_t of[RN_OP_KINDS])
{
    uint32_t i;

    memset(of, 0, RN_OP_KINDS * sizeof *of);
    for (i = 0; i < plan->n_ops; i++)
        of[plan->ops[i].kind]++;
}

static void a_plan_has_the_right_ops(void **state)
{
    struct model_edit edit;
    struct made made;
    uint32_t of[RN_OP_KINDS], i, last = 0;

    (void)state;
    edit_tiny(&edit, 0, false);
    make(&made, &edit, 0);
    assert_int_equal(made.status, RUNNEL_OK);
    counts(made.plan, of);
    assert_int_equal(of[RN_OP_EMBED], 1);
    assert_int_equal(of[RN_OP_RMS_NORM], 2 * 2 + 1);
    assert_int_equal(of[RN_OP_MATMUL], 2 * 7 + 1);
    assert_int_equal(of[RN_OP_ROPE], 2 * 2);
    assert_int_equal(of[RN_OP_KV_STORE], 2);
    assert_int_equal(of[RN_OP_ATTENTION], 2);
    assert_int_equal(of[RN_OP_GATE], 2);
    assert_int_equal(of[RN_OP_ADD], 2 * 2);
    assert_int_equal(of[RN_OP_SELECT], 2);
    for (i = 0; i < made.plan->n_ops; i++)
        last = made.plan->ops[i].kind == RN_OP_ATTENTION ? i : last;
    assert_int_equal(made.plan->ops[last + 1].kind, RN_OP_SELECT); /* all behind it runs on wanted rows alone */
    assert_int_equal(made.plan->ops[last + 1].a, made.plan->ops[last].out);
    assert_int_equal(of[RN_OP_TAP], 1); /* of the final norm */
    assert_int_equal(made.plan->features_width, made.plan->embedding);
    for (i = last + 1; i < made.plan->n_ops; i++) {
        if (made.plan->ops[i].kind == RN_OP_TAP) {
            assert_int_equal(made.plan->ops[i - 1].kind, RN_OP_RMS_NORM);
            assert_int_equal(made.plan->ops[i].a, made.plan->ops[i - 1].out);
            continue;
        }
        assert_true(made.plan->slots[made.plan->ops[i].out].selected);
        assert_int_equal(made.plan->slots[made.plan->ops[i].out].logits, i + 1 == made.plan->n_ops);
    }
    assert_int_equal(made.plan->context_tokens, 64);
    assert_int_equal(rn_plan_kv_bytes(made.plan, RUNNEL_KV_F16), 2 * (16 + 16) * 2);
    assert_int_equal(rn_plan_kv_bytes(made.plan, RUNNEL_KV_F32), 2 * (16 + 16) * 4);
    assert_int_equal(made.plan->parameters, 16 * 32 * 2 + 32 + 2 * (2 * 32 + 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48));
    assert_int_equal(made.plan->weight_bytes, made.plan->parameters * 4);
    unmake(&made);
}

static void experts_have_the_right_ops(void **state)
{
    struct model_edit edit;
    struct made made;
    uint32_t of[RN_OP_KINDS];

    (void)state;
    edit_tiny(&edit, 4, true);
    make(&made, &edit, 0);
    assert_int_equal(made.status, RUNNEL_OK);
    counts(made.plan, of);
    assert_int_equal(of[RN_OP_ROUTE], 2);
    assert_int_equal(of[RN_OP_EXPERT_MATMUL], 6);
    assert_int_equal(of[RN_OP_EXPERT_SUM], 2);
    assert_int_equal(of[RN_OP_MATMUL], 2 * 5 + 1);
    unmake(&made);
}

static void tied_output_is_one_weight(void **state)
{
    struct model_edit edit;
    struct made made;
    const struct rn_op *head;

    (void)state;
    edit_tiny(&edit, 0, true);
    make(&made, &edit, 0);
    assert_int_equal(made.status, RUNNEL_OK);
    head = &made.plan->ops[made.plan->n_ops - 1];
    assert_int_equal(head->weight, made.plan->ops[0].weight);
    assert_int_equal(made.plan->n_weights, edit.n_tensors);
    assert_int_equal(made.plan->parameters, 16 * 32 + 32 + 2 * (2 * 32 + 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48));
    unmake(&made);
}

/* As many slots for one block as for two; and none is left out by a long model. */
static void slots_do_not_grow_with_depth(void **state)
{
    struct model_edit edit, deep;
    struct made made;
    uint32_t n_slots, i, n;
    char name[64];

    (void)state;
    edit_tiny(&edit, 0, true);
    make(&made, &edit, 0);
    n_slots = made.plan->n_slots;
    unmake(&made);
    deep = edit;
    edit_u32(&deep, "llama.block_count", 12);
    for (i = 2; i < 12; i++) {
        for (n = 0; n < edit.n_tensors; n++) {
            if (strncmp(edit.tensors[n].name, "blk.0.", 6) != 0)
                continue;
            deep.tensors[deep.n_tensors] = edit.tensors[n];
            snprintf(name, sizeof name, "blk.%u.%s", i, edit.tensors[n].name + 6);
            memcpy(deep.tensors[deep.n_tensors++].name, name, sizeof name);
        }
    }
    make(&made, &deep, 0);
    assert_int_equal(made.status, RUNNEL_OK);
    assert_int_equal(made.plan->n_kv_layers, 12);
    assert_int_equal(made.plan->n_slots, n_slots);
    unmake(&made);
}

static void contexts(void **state)
{
    struct model_edit edit;
    struct made made;

    (void)state;
    edit_tiny(&edit, 0, false);
    make(&made, &edit, 1000); /* more than trained is allowed */
    assert_int_equal(made.plan->context_tokens, 1000);
    assert_int_equal(made.plan->trained_tokens, 64);
    unmake(&made);
    edit_u32(&edit, "llama.context_length", 131072);
    make(&made, &edit, 0);
    assert_int_equal(made.plan->context_tokens, 8192);
    unmake(&made);
    refused(&edit, (1u << 28) + 1, RUNNEL_INVALID, "context");
}

/* Heads, cache heads and feed-forward widths that differ from block to block. */
static void arrays_for_blocks(void **state)
{
    const uint32_t kv[] = {2, 4}, none[] = {2}, zero[] = {2, 0}, odd[] = {2, 3};
    const float *data;
    struct model_edit edit;
    struct made made;

    (void)state;
    edit_tiny(&edit, 0, false);
    data = edit.tensors[0].data;
    edit_u32s(&edit, "llama.attention.head_count_kv", kv, 2);
    refused(&edit, 0, RUNNEL_FORMAT, "blk.1.attn_k.weight");
    edit_drop_tensor(&edit, "blk.1.attn_k.weight");
    edit_drop_tensor(&edit, "blk.1.attn_v.weight");
    edit_add_tensor(&edit, "blk.1.attn_k.weight", 32, 32, data);
    edit_add_tensor(&edit, "blk.1.attn_v.weight", 32, 32, data);
    make(&made, &edit, 0);
    assert_int_equal(made.status, RUNNEL_OK);
    assert_int_equal(made.plan->kv_layers[0].k_width, 16);
    assert_int_equal(made.plan->kv_layers[1].k_width, 32);
    unmake(&made);
    edit_u32s(&edit, "llama.attention.head_count_kv", none, 1);
    refused(&edit, 0, RUNNEL_FORMAT, "llama.attention.head_count_kv");
    edit_u32s(&edit, "llama.attention.head_count_kv", zero, 2);
    refused(&edit, 0, RUNNEL_FORMAT, "llama.attention.head_count_kv");
    edit_u32s(&edit, "llama.attention.head_count_kv", odd, 2);
    refused(&edit, 0, RUNNEL_FORMAT, "llama.attention.head_count_kv");
}

/* ---- Bad tensors ---- */

/* May the file do without it? Then the plan is another one, but a plan. */
static bool optional(const char *name)
{
    return strstr(name, ".bias") != NULL || strcmp(name, "rope_freqs.weight") == 0 ||
           strcmp(name, "output.weight") == 0;
}

static void a_missing_tensor_is_named(void **state)
{
    struct model_edit good, bad;
    struct rn_heap heap;
    struct rn_gguf *gguf;
    const char *file;
    size_t b;
    uint32_t i;

    (void)state;
    for (b = 0; base(b, &good, &heap, &gguf, &file); b++) {
        accepted(&good, 0);
        for (i = 0; i < good.n_tensors; i++) {
            bad = good;
            edit_drop_tensor(&bad, good.tensors[i].name);
            if (optional(good.tensors[i].name))
                accepted(&bad, 0);
            else
                refused(&bad, 0, RUNNEL_FORMAT, good.tensors[i].name);
        }
        rn_gguf_free(gguf);
    }
    assert_true(b >= 2);
}

/* Each dimension in turn one more, or another dimension behind them. A vocabulary of another size shows
 * first where it meets the count of tokens or the other matrix of its size. */
static void a_misshaped_tensor_is_named(void **state)
{
    struct model_edit good, bad;
    struct rn_heap heap;
    struct rn_gguf *gguf;
    const char *file, *name;
    uint32_t i, d;
    size_t b;

    (void)state;
    for (b = 0; base(b, &good, &heap, &gguf, &file); b++) {
        for (i = 0; i < good.n_tensors; i++) {
            for (d = 0; d <= good.tensors[i].n_dims && d < 4; d++) {
                bad = good;
                name = good.tensors[i].name;
                if (d < bad.tensors[i].n_dims) {
                    bad.tensors[i].dims[d]++;
                } else {
                    bad.tensors[i].dims[d] = 2;
                    bad.tensors[i].n_dims++;
                }
                if (strcmp(name, "token_embd.weight") == 0 && d == 1)
                    refused(&bad, 0, RUNNEL_FORMAT, b < 2 ? "output.weight" : "vocab_size");
                else
                    refused(&bad, 0, RUNNEL_FORMAT, name);
            }
        }
        rn_gguf_free(gguf);
    }
}

static void a_tensor_of_a_wrong_type_is_named(void **state)
{
    static const uint32_t types[] = {RN_I32, RN_F64, RN_Q8_K, RN_Q8_1};
    struct model_edit good, bad;
    uint32_t i;
    size_t t;

    (void)state;
    edit_tiny(&good, 4, false);
    for (i = 0; i < good.n_tensors; i++) {
        for (t = 0; t < sizeof types / sizeof types[0]; t++) {
            bad = good;
            bad.tensors[i].type = types[t];
            if (bad.tensors[i].dims[0] % rn_type(types[t])->elements == 0)
                refused(&bad, 0, RUNNEL_UNSUPPORTED, good.tensors[i].name);
        }
    }
}

/* [48, 32, 4] experts in blocks of 256: whole blocks in the tensor, but not in a row. Whether the reader or
 * the plan says so, it is said by name. */
static void a_row_of_broken_blocks_is_refused(void **state)
{
    struct model_edit edit;
    struct rn_heap heap;
    struct writer w = {0};
    struct rn_gguf *gguf;
    struct rn_plan *plan = NULL;
    runnel_error error = {0};
    runnel_status status;

    (void)state;
    edit_tiny(&edit, 4, false);
    edit_tensor(&edit, "blk.1.ffn_down_exps.weight")->type = RN_Q4_K;
    rn_heap_init(&heap, NULL);
    edit_write(&edit, &w);
    status = rn_gguf_parse(&heap, w.bytes, w.n, "test.gguf", &gguf, &error);
    if (status == RUNNEL_OK) {
        status = rn_plan_new(&heap, gguf, 0, &plan, &error);
        rn_gguf_free(gguf);
    }
    assert_int_not_equal(status, RUNNEL_OK);
    assert_null(plan);
    assert_non_null(strstr(error.message, "blk.1.ffn_down_exps.weight"));
    w_free(&w);
}

static void an_unknown_tensor_is_named(void **state)
{
    struct model_edit edit;

    (void)state;
    edit_tiny(&edit, 0, false);
    edit_add_tensor(&edit, "blk.1.attn_q_norm.weight", 8, 1, edit.tensors[0].data);
    refused(&edit, 0, RUNNEL_UNSUPPORTED, "blk.1.attn_q_norm.weight");
    edit_tiny(&edit, 0, false);
    edit_add_tensor(&edit, "rope_other.weight", 4, 1, edit.tensors[0].data);
    refused(&edit, 0, RUNNEL_UNSUPPORTED, "rope_other.weight");
}

static void divisors_must_be_positive(void **state)
{
    static const float bad[4] = {1, 2, 0, 1}, nan[4] = {1, 2, 1, NAN}, good[4] = {1, 1, 2, 8};
    struct model_edit edit;
    struct made made;

    (void)state;
    edit_tiny(&edit, 0, false);
    edit_add_tensor(&edit, "rope_freqs.weight", 4, 1, good);
    make(&made, &edit, 0);
    assert_int_equal(made.status, RUNNEL_OK);
    assert_true(fabs(made.plan->ropes[0].inv_freq[3] - 0.001 / 8) < 1e-15);
    unmake(&made);
    edit_tensor(&edit, "rope_freqs.weight")->data = bad;
    refused(&edit, 0, RUNNEL_FORMAT, "rope_freqs.weight");
    edit_tensor(&edit, "rope_freqs.weight")->data = nan;
    refused(&edit, 0, RUNNEL_FORMAT, "rope_freqs.weight");
}

static void longrope_takes_its_tables(void **state)
{
    static const float near[4] = {1, 1, 2, 2}, far[4] = {1, 2, 4, 8};
    struct model_edit edit;
    struct made made;

    (void)state;
    edit_tiny(&edit, 0, false);
    edit_text(&edit, "llama.rope.scaling.type", "longrope");
    edit_u32(&edit, "llama.rope.scaling.original_context_length", 32);
    edit_f32(&edit, "llama.rope.scaling.attn_factor", 1.5f);
    edit_add_tensor(&edit, "rope_factors_short.weight", 4, 1, near);
    refused(&edit, 0, RUNNEL_FORMAT, "rope_factors_long.weight");
    edit_add_tensor(&edit, "rope_factors_long.weight", 4, 1, far);
    make(&made, &edit, 0); /* 64 positions */
    assert_int_equal(made.status, RUNNEL_OK);
    assert_true(fabs(made.plan->ropes[0].inv_freq[3] - 0.001 / 8) < 1e-15);
    assert_true(made.plan->ropes[0].magnitude == 1.5);
    unmake(&made);
    make(&made, &edit, 32);
    assert_int_equal(made.status, RUNNEL_OK);
    assert_true(fabs(made.plan->ropes[0].inv_freq[3] - 0.001 / 2) < 1e-15);
    unmake(&made);
}

/* ---- Bad keys ---- */

static void required_keys_are_named(void **state)
{
    static const char *const keys[] = {"llama.context_length",       "llama.embedding_length",
                                       "llama.block_count",          "llama.feed_forward_length",
                                       "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon",
                                       "llama.expert_used_count",    "general.architecture"};
    struct model_edit edit;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        edit_tiny(&edit, 4, false);
        edit_drop_key(&edit, keys[i]);
        refused(&edit, 0, RUNNEL_FORMAT, keys[i]);
    }
}

static void integers_out_of_range_are_named(void **state)
{
    static const struct {
        const char *key;
        uint32_t value;
        runnel_status status;
        const char *part; /* NULL: the key */
    } cases[] = {
        {"llama.context_length", 0, RUNNEL_FORMAT, NULL},
        {"llama.context_length", UINT32_MAX, RUNNEL_FORMAT, NULL},
        {"llama.embedding_length", 0, RUNNEL_FORMAT, NULL},
        {"llama.embedding_length", UINT32_MAX, RUNNEL_FORMAT, NULL},
        {"llama.embedding_length", 64, RUNNEL_FORMAT, "token_embd.weight"},
        {"llama.block_count", 0, RUNNEL_FORMAT, NULL},
        {"llama.block_count", 4097, RUNNEL_FORMAT, NULL},
        {"llama.block_count", UINT32_MAX, RUNNEL_FORMAT, NULL},
        {"llama.block_count", 4096, RUNNEL_FORMAT, "blk.2.attn_norm.weight"},
        {"llama.block_count", 1, RUNNEL_UNSUPPORTED, "blk.1."},
        {"llama.feed_forward_length", 0, RUNNEL_FORMAT, NULL},
        {"llama.feed_forward_length", UINT32_MAX, RUNNEL_FORMAT, NULL},
        {"llama.feed_forward_length", 1 << 24, RUNNEL_FORMAT, NULL}, /* times two experts */
        {"llama.feed_forward_length", 49, RUNNEL_FORMAT, "blk.0.ffn_"},
        {"llama.attention.head_count", 0, RUNNEL_FORMAT, NULL},
        {"llama.attention.head_count", UINT32_MAX, RUNNEL_FORMAT, NULL},
        {"llama.attention.head_count", 5, RUNNEL_FORMAT, NULL}, /* 2 cache heads do not divide it */
        {"llama.attention.head_count", 6, RUNNEL_FORMAT, NULL}, /* it does not divide 32 */
        {"llama.attention.head_count_kv", 0, RUNNEL_FORMAT, NULL},
        {"llama.attention.head_count_kv", 3, RUNNEL_FORMAT, NULL},
        {"llama.attention.head_count_kv", 8, RUNNEL_FORMAT, NULL},
        {"llama.attention.head_count_kv", 4, RUNNEL_FORMAT, "blk.0.attn_k.weight"},
        {"llama.attention.key_length", 0, RUNNEL_FORMAT, NULL},
        {"llama.attention.key_length", UINT32_MAX, RUNNEL_FORMAT, NULL},
        {"llama.attention.key_length", 16, RUNNEL_FORMAT, "blk.0.attn_q.weight"},
        {"llama.attention.key_length", 4, RUNNEL_FORMAT, "llama.rope.dimension_count"},
        {"llama.attention.value_length", 16, RUNNEL_FORMAT, "blk.0.attn_v.weight"},
        {"llama.rope.dimension_count", 0, RUNNEL_FORMAT, NULL},
        {"llama.rope.dimension_count", 7, RUNNEL_FORMAT, NULL},
        {"llama.rope.dimension_count", 10, RUNNEL_FORMAT, NULL},
        {"llama.rope.dimension_count", UINT32_MAX, RUNNEL_FORMAT, NULL},
        {"llama.rope.scaling.original_context_length", 0, RUNNEL_FORMAT, NULL},
        {"llama.expert_count", UINT32_MAX, RUNNEL_FORMAT, NULL},
        {"llama.expert_count", 5, RUNNEL_FORMAT, "blk.0.ffn_gate_inp.weight"},
        {"llama.expert_count", 0, RUNNEL_FORMAT, "blk.0.ffn_gate.weight"},
        {"llama.expert_used_count", 0, RUNNEL_FORMAT, NULL},
        {"llama.expert_used_count", 5, RUNNEL_FORMAT, NULL},
        {"llama.expert_group_count", 2, RUNNEL_FORMAT, "llama.expert_group_used_count"},
        {"llama.expert_group_count", 3, RUNNEL_FORMAT, NULL},
        {"llama.expert_group_count", 4, RUNNEL_FORMAT, NULL},
        {"llama.vocab_size", 17, RUNNEL_FORMAT, NULL},
        /* Of another kind. */
        {"llama.rope.freq_base", 10000, RUNNEL_FORMAT, NULL},
        {"llama.rope.scaling.type", 1, RUNNEL_FORMAT, NULL},
        {"llama.attention.causal", 1, RUNNEL_FORMAT, NULL},
        {"general.architecture", 1, RUNNEL_FORMAT, NULL},
    };
    struct model_edit edit;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        edit_tiny(&edit, 4, false);
        edit_u32(&edit, cases[i].key, cases[i].value);
        refused(&edit, 0, cases[i].status, cases[i].part == NULL ? cases[i].key : cases[i].part);
    }
}

static void floats_out_of_range_are_named(void **state)
{
    static const struct {
        const char *key;
        float value;
    } cases[] = {
        {"llama.attention.layer_norm_rms_epsilon", -1e-5f},
        {"llama.attention.layer_norm_rms_epsilon", 2},
        {"llama.attention.layer_norm_rms_epsilon", NAN},
        {"llama.attention.scale", -1},
        {"llama.attention.scale", INFINITY},
        {"llama.rope.freq_base", 0},
        {"llama.rope.freq_base", -10000},
        {"llama.rope.freq_base", INFINITY},
        {"llama.rope.freq_base", NAN},
        {"llama.rope.freq_base", 1}, /* not above 1: YaRN */
        {"llama.rope.scaling.factor", -2},
        {"llama.rope.scaling.factor", 1e-12f},
        {"llama.rope.scaling.attn_factor", 0},
        {"llama.rope.scaling.yarn_ext_factor", 2},
        {"llama.rope.scaling.yarn_beta_fast", 0},
        {"llama.rope.scaling.yarn_beta_slow", NAN},
        {"llama.rope.scaling.yarn_log_multiplier", -1},
        {"llama.block_count", 2},
        {"llama.rope.scaling.type", 1},
    };
    struct model_edit edit;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        edit_tiny(&edit, 0, false);
        edit_text(&edit, "llama.rope.scaling.type", "yarn");
        edit_f32(&edit, cases[i].key, cases[i].value);
        refused(&edit, 0, RUNNEL_FORMAT, cases[i].key);
    }
    edit_tiny(&edit, 0, false);
    edit_text(&edit, "llama.rope.scaling.type", "llama3");
    edit_f32(&edit, "llama.rope.scaling.low_freq_factor", 4);
    refused(&edit, 0, RUNNEL_FORMAT, "llama.rope.scaling.high_freq_factor");
}

/* As edit_text, with U+0000 for each '?'. */
static void edit_zeros(struct model_edit *edit, const char *key, const char *text)
{
    edit_text(edit, key, text);
    for (uint32_t i = 0; i < edit->n_keys; i++)
        for (size_t at = 8; strcmp(edit->keys[i].name, key) == 0 && at < edit->keys[i].bytes; at++)
            if (edit->keys[i].own[at] == '?')
                edit->keys[i].own[at] = 0;
}

static void what_is_not_known_is_unsupported(void **state)
{
    struct model_edit edit;

    (void)state;
    edit_tiny(&edit, 0, false);
    edit_zeros(&edit, "general.architecture", "llama?");
    refused(&edit, 0, RUNNEL_UNSUPPORTED, "'llama\\x00'"); /* not "'llama' is not supported" */
    edit_tiny(&edit, 0, false);
    edit_zeros(&edit, "llama.rope.scaling.type", "none?a");
    refused(&edit, 0, RUNNEL_UNSUPPORTED, "'none\\x00a'");
    edit_tiny(&edit, 0, false);
    edit_text(&edit, "general.architecture", "llama-2\n");
    refused(&edit, 0, RUNNEL_UNSUPPORTED, "llama-2\\x0a"); /* escaped: a name is not to be trusted on a terminal */
    edit_tiny(&edit, 0, false);
    edit_text(&edit, "llama.rope.scaling.type", "dynamic");
    refused(&edit, 0, RUNNEL_UNSUPPORTED, "llama.rope.scaling.type");
    edit_tiny(&edit, 0, false);
    edit_bool(&edit, "llama.attention.causal", false); /* a decoder that makes embeddings ... */
    accepted(&edit, 0);
    edit_rename(&edit, "gpt-oss"); /* ... but not where blocks have windows */
    edit_u32(&edit, "gpt-oss.attention.sliding_window", 8);
    refused(&edit, 0, RUNNEL_UNSUPPORTED, "gpt-oss.attention.causal");
}

static void scalings_reach_the_table(void **state)
{
    struct model_edit edit;
    struct made made;

    (void)state;
    edit_tiny(&edit, 0, false);
    edit_f32(&edit, "llama.rope.scale_linear", 4); /* the older name */
    make(&made, &edit, 0);
    assert_true(made.plan->ropes[0].inv_freq[0] == 0.25);
    unmake(&made);
    edit_f32(&edit, "llama.rope.scaling.factor", 2);
    make(&made, &edit, 0);
    assert_true(made.plan->ropes[0].inv_freq[0] == 0.5);
    unmake(&made);
    edit_text(&edit, "llama.rope.scaling.type", "none");
    make(&made, &edit, 0);
    assert_true(made.plan->ropes[0].inv_freq[0] == 1);
    unmake(&made);
    edit_text(&edit, "llama.rope.scaling.type", "yarn");
    make(&made, &edit, 0);
    assert_true(fabs(made.plan->ropes[0].magnitude - (1 + 0.1 * log(2))) < 1e-12);
    unmake(&made);
    edit_f32(&edit, "llama.attention.scale", 0.125f);
    make(&made, &edit, 0);
    assert_true(made.plan->ops[8].kind == RN_OP_ATTENTION && made.plan->ops[8].scale == 0.125f);
    unmake(&made);
}

static uint32_t ops_of_kind(const struct model_edit *edit, uint32_t context, enum rn_op_kind kind)
{
    struct made made;
    uint32_t i, n = 0;

    make(&made, edit, context);
    assert_int_equal(made.status, RUNNEL_OK);
    for (i = 0; i < made.plan->n_ops; i++)
        n += made.plan->ops[i].kind == kind;
    unmake(&made);
    return n;
}

/* mistral3's temperature is 1 up to the original context: there it costs no op. */
static void temperature_within_the_original_context(void **state)
{
    struct model_edit edit;
    uint32_t i;
    char name[96];

    (void)state;
    edit_tiny(&edit, 0, false);
    edit_text(&edit, "general.architecture", "mistral3");
    for (i = 0; i < edit.n_keys; i++) {
        if (strncmp(edit.keys[i].name, "llama.", 6) == 0) {
            snprintf(name, sizeof name, "mistral3.%s", edit.keys[i].name + 6);
            memcpy(edit.keys[i].name, name, sizeof name);
        }
    }
    accepted(&edit, 1000);
    edit_f32(&edit, "mistral3.attention.temperature_scale", 0.1f);
    edit_u32(&edit, "mistral3.rope.scaling.original_context_length", 48);
    assert_int_equal(ops_of_kind(&edit, 48, RN_OP_TEMPER), 0);
    assert_int_equal(ops_of_kind(&edit, 49, RN_OP_TEMPER), ops_of_kind(&edit, 49, RN_OP_ATTENTION));
}

/* ---- Memory ---- */

static void refused_memory_leaves_nothing(void **state)
{
    struct model_edit edit;
    struct rn_heap heap, plan_heap;
    struct rn_gguf *gguf, *file;
    struct writer w;
    const char *name;
    struct rn_plan *plan;
    uint64_t n;
    size_t b;

    (void)state;
    for (b = 0; base(b, &edit, &heap, &file, &name); b++) {
        w = (struct writer){0};
        edit_write(&edit, &w);
        assert_int_equal(rn_gguf_parse(&heap, w.bytes, w.n, "test.gguf", &gguf, NULL), RUNNEL_OK);
        for (n = 1;; n++) {
            struct refusing refusing = {.refuse_at = n, .for_good = n % 2 == 0};
            runnel_error error = {0};
            runnel_status status;

            plan = NULL;
            plan_heap = refusing_heap(&refusing);
            status = rn_plan_new(&plan_heap, gguf, 0, &plan, &error);
            if (status == RUNNEL_OK)
                rn_plan_free(plan);
            assert_int_equal(rn_heap_blocks(&plan_heap), 0);
            if (refusing.calls < n) {
                assert_int_equal(status, RUNNEL_OK);
                break;
            }
            assert_int_equal(status, RUNNEL_NO_MEMORY);
            assert_int_equal(error.status, RUNNEL_NO_MEMORY);
        }
        assert_true(n > 8);
        rn_gguf_free(gguf);
        rn_gguf_free(file);
        w_free(&w);
        assert_int_equal(rn_heap_blocks(&heap), 0);
    }
}

static void kv_bytes_of_a_file(void **state)
{
    char directory[] = "/tmp/runnel-plan-XXXXXX", path[64];
    struct model_edit edit;
    struct writer w = {0};
    runnel_file *file;
    runnel_error error = {0};
    uint64_t bytes = 0;
    int i;

    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/a.gguf", directory);
    edit_tiny(&edit, 0, false);
    edit_write(&edit, &w);
    w_save(&w, directory, "a.gguf");
    assert_int_equal(runnel_file_open(path, &file, &error), RUNNEL_OK);
    assert_int_equal(runnel_file_kv_bytes_per_token(file, RUNNEL_KV_F16, &bytes, &error), RUNNEL_OK);
    assert_int_equal(bytes, 128);
    assert_int_equal(runnel_file_kv_bytes_per_token(file, RUNNEL_KV_F32, &bytes, NULL), RUNNEL_OK);
    assert_int_equal(bytes, 256);
    for (i = 0; i < 4; i++) { /* eight rows of eight numbers; a group has a scale of two bytes */
        static const uint64_t row_bytes[] = {8, 2 + 8, 2 + 4, 2 + 2 + 1};

        assert_int_equal(runnel_file_kv_bytes_per_token(file, (runnel_kv_type)(RUNNEL_KV_FP8 + i), &bytes, NULL),
                         RUNNEL_OK);
        assert_int_equal(bytes, 8 * row_bytes[i]);
    }
    assert_int_equal(runnel_file_kv_bytes_per_token(file, (runnel_kv_type)9, &bytes, NULL), RUNNEL_INVALID);
    runnel_file_close(file);
    w_free(&w);
    edit_text(&edit, "general.architecture", "clip");
    edit_write(&edit, &w);
    w_save(&w, directory, "a.gguf");
    assert_int_equal(runnel_file_open(path, &file, &error), RUNNEL_OK);
    assert_int_equal(runnel_file_kv_bytes_per_token(file, RUNNEL_KV_F16, &bytes, &error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(error.message, "clip"));
    runnel_file_close(file);
    w_free(&w);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(directory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_has_the_right_ops),
        cmocka_unit_test(experts_have_the_right_ops),
        cmocka_unit_test(tied_output_is_one_weight),
        cmocka_unit_test(slots_do_not_grow_with_depth),
        cmocka_unit_test(contexts),
        cmocka_unit_test(arrays_for_blocks),
        cmocka_unit_test(a_missing_tensor_is_named),
        cmocka_unit_test(a_misshaped_tensor_is_named),
        cmocka_unit_test(a_tensor_of_a_wrong_type_is_named),
        cmocka_unit_test(a_row_of_broken_blocks_is_refused),
        cmocka_unit_test(an_unknown_tensor_is_named),
        cmocka_unit_test(divisors_must_be_positive),
        cmocka_unit_test(longrope_takes_its_tables),
        cmocka_unit_test(required_keys_are_named),
        cmocka_unit_test(integers_out_of_range_are_named),
        cmocka_unit_test(floats_out_of_range_are_named),
        cmocka_unit_test(what_is_not_known_is_unsupported),
        cmocka_unit_test(scalings_reach_the_table),
        cmocka_unit_test(temperature_within_the_original_context),
        cmocka_unit_test(refused_memory_leaves_nothing),
        cmocka_unit_test(kv_bytes_of_a_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
