/* Files of adapters that are refused, each by a sentence that names the file and what is wrong, with nothing left of
 * it; loads that are cancelled; and what the plan becomes with good ones. That adapters compute what they should,
 * tests/oracle/test_adapters.c shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/adapter.h"
#include "model/op_info.h"
#include "model_edit.h"

/* The model: llama, 2 blocks, width 32, 4 heads over 2, 16 tokens. */
enum { WIDTH = 32, MOST = 6 };

static struct model_edit edit;
static struct writer model_bytes;
static struct rn_heap heap;
static struct rn_gguf *model;
static struct rn_plan *plain; /* of it, without adapters */
static char folder[] = "/tmp/rn_adapter_XXXXXX", path[64], good_path[64];

/* ---- Files ---- */

struct tensor {
    const char *name;
    uint64_t cols, rows;
    uint32_t type;
};

struct file {
    const char *kind, *adapter, *architecture; /* NULL: there is no such key */
    const char *more;                          /* a further key, an array of one number */
    struct tensor tensors[MOST];
    uint32_t cut; /* bytes that are missing at its end */
};

#define GOOD .kind = "adapter", .adapter = "lora", .architecture = "llama"
#define Q "blk.0.attn_q.weight"

static void write_file(const struct file *file, const char *name)
{
    const char *const keys[][2] = {
        {"general.type", file->kind}, {"adapter.type", file->adapter}, {"general.architecture", file->architecture}};
    uint64_t n_keys = file->more != NULL, n_tensors = 0, at = 0;
    struct writer w = {0};

    for (size_t i = 0; i < 3; i++)
        n_keys += keys[i][1] != NULL;
    while (n_tensors < MOST && file->tensors[n_tensors].name != NULL)
        n_tensors++;
    w_header(&w, 3, n_tensors, n_keys);
    for (size_t i = 0; i < 3; i++)
        if (keys[i][1] != NULL)
            w_key_string(&w, keys[i][0], keys[i][1]);
    if (file->more != NULL) {
        w_key_array(&w, file->more, RN_GGUF_U32, 1);
        w_u32(&w, 1);
    }
    for (uint64_t i = 0; i < n_tensors; i++) {
        const struct tensor *tensor = &file->tensors[i];
        const uint64_t dims[] = {tensor->cols, tensor->rows};

        w_tensor(&w, tensor->name, 2, dims, tensor->type, at);
        at += (tensor->cols * tensor->rows * rn_type(tensor->type)->bytes / rn_type(tensor->type)->elements + 31) / 32 *
              32;
    }
    w_align(&w, 32);
    for (uint64_t i = 0; i < at; i += 4)
        w_f32(&w, 0.25f);
    w.n -= file->cut;
    w_save(&w, folder, name);
    w_free(&w);
}

static const struct file good = {GOOD, .tensors = {{Q ".lora_a", WIDTH, 3, RN_Q8_0},
                                                   {Q ".lora_b", 3, WIDTH, RN_F16},
                                                   {"blk.0.attn_k.weight.lora_a", WIDTH, 1, RN_F16},
                                                   {"blk.0.attn_k.weight.lora_b", 1, WIDTH / 2, RN_F16},
                                                   {"blk.1.ffn_up.weight.lora_a", WIDTH, 2, RN_F32},
                                                   {"blk.1.ffn_up.weight.lora_b", 2, 48, RN_F32}}};

/* Behind a good one. */
static runnel_status load(const struct file *file, struct rn_adapters **adapters, runnel_error *error)
{
    const struct rn_adapter_source sources[] = {{"good", good_path, 1}, {"name", path, 1}};

    write_file(&good, "good.gguf");
    write_file(file, "adapter.gguf");
    *error = (runnel_error){0};
    return rn_adapters_load(&heap, plain, sources, 2, NULL, adapters, error);
}

/* ---- What is refused ---- */

static const struct {
    struct file file;
    runnel_status status;
    const char *says;
} bad[] = {
    {{.adapter = "lora", .architecture = "llama"}, RUNNEL_FORMAT, "general.type"},
    {{.kind = "model", .adapter = "lora", .architecture = "llama"},
     RUNNEL_UNSUPPORTED,
     "key general.type is 'model', not 'adapter'"},
    {{.kind = "adapter", .adapter = "control", .architecture = "llama"},
     RUNNEL_UNSUPPORTED,
     "key adapter.type is 'control'"},
    {{.kind = "adapter", .adapter = "lora", .architecture = "gemma"},
     RUNNEL_UNSUPPORTED,
     "key general.architecture is 'gemma', not 'llama'"},
    {{GOOD, .more = "adapter.alora.invocation_tokens"}, RUNNEL_UNSUPPORTED, "adapter.alora.invocation_tokens"},
    {{GOOD}, RUNNEL_FORMAT, "without tensors"},
    {{GOOD, .tensors = {{Q ".lora_a", WIDTH, 4, RN_F32}}}, RUNNEL_FORMAT, Q ".lora_b is missing"},
    {{GOOD, .tensors = {{Q ".lora_b", 4, WIDTH, RN_F32}}}, RUNNEL_FORMAT, Q ".lora_a is missing"},
    {{GOOD, .tensors = {{Q, WIDTH, WIDTH, RN_F32}}}, RUNNEL_UNSUPPORTED, "not one of a pair"},
    {{GOOD, .tensors = {{"blk.0.attn_norm.weight", WIDTH, 1, RN_F32}}}, RUNNEL_UNSUPPORTED, "not one of a pair"},
    {{GOOD, .tensors = {{".lora_a", WIDTH, 1, RN_F32}}}, RUNNEL_UNSUPPORTED, "not one of a pair"},
    {{GOOD, .tensors = {{"blk.9.attn_q.weight.lora_a", WIDTH, 4, RN_F32}}},
     RUNNEL_FORMAT,
     "no tensor blk.9.attn_q.weight"},
    {{GOOD, .tensors = {{Q ".lora_a", WIDTH + 1, 4, RN_F32}, {Q ".lora_b", 4, WIDTH, RN_F32}}},
     RUNNEL_FORMAT,
     "do not fit"},
    {{GOOD, .tensors = {{Q ".lora_a", WIDTH, 4, RN_F32}, {Q ".lora_b", 4, WIDTH - 1, RN_F32}}},
     RUNNEL_FORMAT,
     "do not fit"},
    {{GOOD, .tensors = {{Q ".lora_a", WIDTH, 4, RN_F32}, {Q ".lora_b", 5, WIDTH, RN_F32}}},
     RUNNEL_FORMAT,
     "do not fit"},
    {{GOOD, .tensors = {{Q ".lora_a", WIDTH, 4, RN_I32}, {Q ".lora_b", 4, WIDTH, RN_F32}}},
     RUNNEL_UNSUPPORTED,
     "not of numbers"},
    {{GOOD, .tensors = {{Q ".lora_a", WIDTH, RN_MAX_RANK + 1, RN_F32}, {Q ".lora_b", RN_MAX_RANK + 1, WIDTH, RN_F32}}},
     RUNNEL_UNSUPPORTED,
     "a rank of 8193"},
    {{GOOD, .tensors = {{Q ".lora_a", WIDTH, 4, RN_F32}, {Q ".lora_b", 4, WIDTH, RN_F32}}, .cut = 4}, RUNNEL_FORMAT, Q},
    /* read by the plan, but not as the matrix of a product */
    {{GOOD, .tensors = {{"token_embd.weight.lora_a", WIDTH, 2, RN_F32}, {"token_embd.weight.lora_b", 2, 16, RN_F32}}},
     RUNNEL_UNSUPPORTED,
     "tensor token_embd.weight are not supported: architecture llama reads it as EMBED"},
    {{GOOD, .tensors = {{"blk.1.attn_norm.weight.lora_a", WIDTH, 2, RN_F32},
                        {"blk.1.attn_norm.weight.lora_b", 2, 1, RN_F32}}},
     RUNNEL_UNSUPPORTED,
     "tensor blk.1.attn_norm.weight are not supported: architecture llama reads it as RMS_NORM"},
};

static void what_is_wrong_is_named(void **state)
{
    struct rn_adapters *adapters;
    runnel_error error;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t before = rn_heap_blocks(&heap);
        runnel_status status = load(&bad[i].file, &adapters, &error);

        if (status != bad[i].status || strstr(error.message, bad[i].says) == NULL ||
            strncmp(error.message, path, strlen(path)) != 0)
            fail_msg("case %zu: %s: %s", i, runnel_status_name(status), error.message);
        assert_int_equal(rn_heap_blocks(&heap), before);
    }
    unlink(path);
    error = (runnel_error){0};
    assert_int_equal(
        rn_adapters_load(&heap, plain, &(struct rn_adapter_source){"name", path, 1}, 1, NULL, &adapters, &error),
        RUNNEL_IO);
}

/* ---- Loads that are cancelled ---- */

struct patience {
    uint32_t asked, most;
};

static bool still(void *user)
{
    struct patience *patience = user;

    return patience->asked++ < patience->most;
}

/* Wherever it is ended, nothing is left of it. It can be ended in front of each file, and of each matrix of each. */
static void a_load_can_be_ended(void **state)
{
    enum { FILES = 2, MATRICES = 3 };
    const struct rn_adapter_source sources[FILES] = {{"a", good_path, 1}, {"b", good_path, 2}};
    struct patience patience = {.most = 0};
    const struct rn_adapter_watch watch = {NULL, still, &patience};
    uint64_t before = rn_heap_blocks(&heap);
    struct rn_adapters *adapters;
    runnel_error error = {0};
    runnel_status status;

    (void)state;
    write_file(&good, "good.gguf");
    for (;; patience.most++) {
        patience.asked = 0;
        status = rn_adapters_load(&heap, plain, sources, FILES, &watch, &adapters, &error);
        if (status == RUNNEL_OK)
            break;
        assert_int_equal(status, RUNNEL_CANCELLED);
        assert_int_equal(patience.asked, patience.most + 1); /* and it is not asked again */
        assert_int_equal(rn_heap_blocks(&heap), before);
    }
    assert_true(patience.most >= FILES + FILES * MATRICES);
    rn_adapters_free(adapters);
}

/* ---- What is taken ---- */

static uint32_t count(const struct rn_plan *plan, enum rn_op_kind kind, bool adapted)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < plan->n_ops; i++)
        n += plan->ops[i].kind == kind && plan->ops[i].adapted == adapted;
    return n;
}

/* Products of one input stay beside each other, and what is behind SELECT gets numbers of its own. */
static void a_plan_gets_ops(void **state)
{
    struct rn_adapter_source sources[] = {{"a", good_path, 1}, {"b", good_path, 2}};
    struct rn_adapter_stacks stacks;
    struct rn_adapters *adapters;
    struct rn_plan *plan;
    runnel_error error = {0};
    uint32_t i;

    (void)state;
    write_file(&good, "good.gguf");
    assert_int_equal(rn_plan_new(&heap, model, 0, &plan, NULL), RUNNEL_OK);
    if (rn_adapters_load(&heap, plan, sources, 2, NULL, &adapters, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    assert_int_equal(rn_adapters_find(adapters, "b"), 2);
    assert_int_equal(rn_adapters_find(adapters, "c"), 0);
    assert_int_equal(rn_adapters_find(adapters, "a"), 1);
    assert_int_equal(rn_plan_adapt(plan, adapters, &error), RUNNEL_OK);
    assert_true(rn_plan_check(plan));
    assert_int_equal(plan->n_ops, plain->n_ops + 3 * 3 + 2);
    assert_int_equal(count(plan, RN_OP_ADAPTER, true), 1);
    assert_int_equal(count(plan, RN_OP_SELECT_IDS, true), 1);
    assert_int_equal(count(plan, RN_OP_EXPERT_MATMUL, true), 6);
    assert_int_equal(count(plan, RN_OP_ADAPT, true), 3);
    for (i = 0; plan->ops[i].kind != RN_OP_MATMUL; i++)
        ;
    assert_int_equal(plan->ops[i + 1].kind, RN_OP_MATMUL); /* q, k, v */
    assert_int_equal(plan->ops[i + 2].kind, RN_OP_MATMUL);
    assert_true(rn_adapters_of(adapters, rn_gguf_find_tensor(model, Q), &stacks));
    assert_int_equal(stacks.a->type, RN_F32);
    assert_int_equal(stacks.b->type, RN_F16);
    assert_int_equal(stacks.a->dims[2], 3);
    assert_true(rn_adapters_of(adapters, rn_gguf_find_tensor(model, "blk.0.attn_k.weight"), &stacks));
    assert_int_equal(stacks.a->dims[1], 1);
    assert_false(rn_adapters_of(adapters, rn_gguf_find_tensor(model, "blk.0.attn_v.weight"), &stacks));
    rn_plan_free(plan);
    rn_adapters_free(adapters);
}

static int setup(void **state)
{
    (void)state;
    rn_heap_init(&heap, NULL);
    edit_tiny(&edit, 0, true);
    edit_write(&edit, &model_bytes);
    return mkdtemp(folder) == NULL || snprintf(path, sizeof path, "%s/adapter.gguf", folder) < 0 ||
           snprintf(good_path, sizeof good_path, "%s/good.gguf", folder) < 0 ||
           rn_gguf_parse(&heap, model_bytes.bytes, model_bytes.n, "model", &model, NULL) != RUNNEL_OK ||
           rn_plan_new(&heap, model, 0, &plain, NULL) != RUNNEL_OK;
}

static int teardown(void **state)
{
    (void)state;
    rn_plan_free(plain);
    rn_gguf_free(model);
    w_free(&model_bytes);
    unlink(path);
    unlink(good_path);
    rmdir(folder);
    return rn_heap_blocks(&heap) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_wrong_is_named), cmocka_unit_test(a_load_can_be_ended),
                                       cmocka_unit_test(a_plan_gets_ops)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
