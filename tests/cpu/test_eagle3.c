/* Files of EAGLE-3 heads that say something wrong: each key and each tensor in turn, and what only such files can have.
 * What right ones give: tests/oracle/eagle3_judge.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../model/model_edit.h"
#include "model/heads/head.h"
#include "model/quant/quant.h"
#include "train/head_file.h"

enum { WIDTH = 32, VOCAB = 16, FEED = 24, SOME = 10 };

static float noise[4096];
static int64_t ids[SOME] = {3, 15, 0, 7, 4, 9, 11, 2, 12, 5};

static struct fixture {
    struct rn_heap heap;
    struct model_edit target_edit, edit;
    struct writer target_bytes;
    struct rn_gguf *target;
    runnel_error error;
} f;

/* Everything that such a file can have. */
static void good_head(void)
{
    struct model_edit *e = &f.edit;

    memset(e, 0, sizeof *e);
    edit_text(e, "general.architecture", "eagle3");
    edit_u32(e, "eagle3.block_count", 1);
    edit_u32(e, "eagle3.context_length", 64);
    edit_u32(e, "eagle3.embedding_length", WIDTH);
    edit_u32(e, "eagle3.feed_forward_length", FEED);
    edit_u32(e, "eagle3.attention.head_count", 4);
    edit_u32(e, "eagle3.attention.head_count_kv", 2);
    edit_u32(e, "eagle3.attention.key_length", 8);
    edit_u32(e, "eagle3.attention.value_length", 8);
    edit_f32(e, "eagle3.attention.layer_norm_rms_epsilon", 1e-5f);
    edit_u32(e, "eagle3.rope.dimension_count", 8);
    edit_f32(e, "eagle3.rope.freq_base", 10000);
    edit_u32(e, "eagle3.vocab_size", VOCAB);
    edit_u32s(e, "eagle3.target_layers", (const uint32_t[]){1, 2}, 2);
    edit_u32(e, "eagle3.target_hidden_size", WIDTH);
    edit_bool(e, "eagle3.norm_before_fc", true);
    edit_bool(e, "eagle3.norm_before_residual", true);
    edit_add_tensor(e, "fc.weight", 2 * WIDTH, WIDTH, noise);
    edit_add_tensor(e, "enc.output_norm.weight", 2 * WIDTH, 1, noise);
    edit_add_tensor(e, "token_embd.weight", WIDTH, VOCAB, noise);
    edit_add_tensor(e, "output.weight", WIDTH, SOME, noise);
    edit_add_tensor(e, "output_norm.weight", WIDTH, 1, noise);
    edit_add_tensor(e, "rope_freqs.weight", 4, 1, noise);
    edit_add_tensor(e, "blk.0.attn_norm.weight", WIDTH, 1, noise);
    edit_add_tensor(e, "blk.0.attn_norm_2.weight", WIDTH, 1, noise);
    edit_add_tensor(e, "blk.0.attn_q.weight", 2 * WIDTH, WIDTH, noise);
    edit_add_tensor(e, "blk.0.attn_k.weight", 2 * WIDTH, 16, noise);
    edit_add_tensor(e, "blk.0.attn_v.weight", 2 * WIDTH, 16, noise);
    edit_add_tensor(e, "blk.0.attn_output.weight", WIDTH, WIDTH, noise);
    edit_add_tensor(e, "blk.0.ffn_norm.weight", WIDTH, 1, noise);
    edit_add_tensor(e, "blk.0.ffn_gate.weight", WIDTH, FEED, noise);
    edit_add_tensor(e, "blk.0.ffn_up.weight", WIDTH, FEED, noise);
    edit_add_tensor(e, "blk.0.ffn_down.weight", FEED, WIDTH, noise);
    edit_add_tensor(e, "d2t", SOME, 1, noise);
    *edit_tensor(e, "d2t") = (struct edit_tensor){
        .name = "d2t", .n_dims = 1, .type = RN_I64, .dims = {SOME, 1, 1, 1}, .data = ids, .bytes = sizeof ids};
}

/* Both plans, as a drafter is loaded. */
static runnel_status plans(void)
{
    struct writer bytes = {0};
    struct rn_gguf *gguf = NULL;
    struct rn_plan *served = NULL, *head = NULL;
    runnel_status status;

    f.error = (runnel_error){0};
    edit_write(&f.edit, &bytes);
    status = rn_gguf_parse(&f.heap, bytes.bytes, bytes.n, "head.gguf", &gguf, &f.error);
    if (status == RUNNEL_OK)
        status = rn_plan_new_for_head(&f.heap, f.target, 0, gguf, &served, &f.error);
    if (status == RUNNEL_OK) {
        assert_true(rn_plan_check(served) && served->features_width == served->normed_at + WIDTH);
        status = rn_plan_new_head(&f.heap, gguf, f.target, 0, &head, &f.error);
    }
    if (status == RUNNEL_OK)
        assert_true(rn_plan_check(head) && head->inputs_width == served->normed_at &&
                    head->features_width == head->inputs_width && head->n_vocab == VOCAB);
    if (served != NULL)
        rn_plan_free(served);
    if (head != NULL)
        rn_plan_free(head);
    if (gguf != NULL)
        rn_gguf_free(gguf);
    w_free(&bytes);
    return status;
}

/* What f.edit says is refused, with these words; then it is good again. */
static void refused(runnel_status status, const char *says)
{
    runnel_status got = plans();

    if (got != status || strstr(f.error.message, says) == NULL)
        fail_msg("%s: %s %s", says, runnel_status_name(got), f.error.message);
    good_head();
}

static void accepted(void)
{
    if (plans() != RUNNEL_OK)
        fail_msg("%s", f.error.message);
    good_head();
}

static int setup(void **state)
{
    (void)state;
    rn_heap_init(&f.heap, NULL);
    for (uint32_t i = 0; i < sizeof noise / sizeof noise[0]; i++)
        noise[i] = (float)(1 + i * 7919 % 1000) / 1000;
    edit_tiny(&f.target_edit, 0, false);
    edit_write(&f.target_edit, &f.target_bytes);
    good_head();
    return rn_gguf_parse(&f.heap, f.target_bytes.bytes, f.target_bytes.n, "tiny.gguf", &f.target, &f.error) !=
           RUNNEL_OK;
}

static int teardown(void **state)
{
    (void)state;
    rn_gguf_free(f.target);
    w_free(&f.target_bytes);
    assert_int_equal(rn_heap_blocks(&f.heap), 0);
    return 0;
}

/* ---- Forms ---- */

static void all_forms_are_taken(void **state)
{
    (void)state;
    accepted();
    edit_drop_tensor(&f.edit, "token_embd.weight");
    edit_drop_tensor(&f.edit, "rope_freqs.weight");
    accepted();
    edit_drop_tensor(&f.edit, "output.weight");
    edit_drop_tensor(&f.edit, "d2t");
    accepted();
    edit_drop_tensor(&f.edit, "enc.output_norm.weight");
    edit_drop_key(&f.edit, "eagle3.norm_before_fc");
    edit_drop_key(&f.edit, "eagle3.norm_before_residual");
    edit_drop_key(&f.edit, "eagle3.target_layers");
    edit_u32s(&f.edit, "eagle3.extract_layers", (const uint32_t[]){1, 2}, 2);
    accepted();
}

/* ---- What is wrong ---- */

static void keys_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    edit_u32(&f.edit, "eagle3.block_count", 2);
    refused(RUNNEL_FORMAT, "key eagle3.block_count");
    edit_u32(&f.edit, "eagle3.target_hidden_size", WIDTH + 1);
    refused(RUNNEL_INVALID, "head.gguf: key eagle3.target_hidden_size is 33, and the model's embedding_length 32");
    edit_u32s(&f.edit, "eagle3.target_layers", (const uint32_t[]){1, 3}, 2);
    refused(RUNNEL_INVALID, "key eagle3.target_layers has 3, and the model 2 blocks");
    edit_u32s(&f.edit, "eagle3.target_layers", (const uint32_t[]){0, 2}, 2);
    refused(RUNNEL_UNSUPPORTED, "key eagle3.target_layers has 0");
    edit_u32s(&f.edit, "eagle3.target_layers", (const uint32_t[]){2, 1}, 2);
    refused(RUNNEL_FORMAT, "key eagle3.target_layers is not ascending");
    edit_u32s(&f.edit, "eagle3.target_layers", (const uint32_t[]){1, 1}, 2);
    refused(RUNNEL_FORMAT, "key eagle3.target_layers is not ascending");
    edit_u32s(&f.edit, "eagle3.target_layers", NULL, 0);
    refused(RUNNEL_FORMAT, "key eagle3.target_layers has not 1 to 8 numbers");
    edit_u32(&f.edit, "eagle3.target_layers", 1);
    refused(RUNNEL_FORMAT, "key eagle3.target_layers: it is not an array");
    edit_u32(&f.edit, "eagle3.norm_before_fc", 1);
    refused(RUNNEL_FORMAT, "key eagle3.norm_before_fc");
    edit_text(&f.edit, "eagle3.norm_before_residual", "yes");
    refused(RUNNEL_FORMAT, "key eagle3.norm_before_residual");
    edit_u32(&f.edit, "eagle3.vocab_size", VOCAB + 1);
    refused(RUNNEL_FORMAT, "key eagle3.vocab_size");
    edit_u32(&f.edit, "eagle3.embedding_length", WIDTH + 8);
    refused(RUNNEL_FORMAT, "tensor fc.weight is [64, 32, 1, 1], not [64, 40, 1, 1]");
    edit_u32(&f.edit, "eagle3.embedding_length", WIDTH + 8);
    edit_drop_tensor(&f.edit, "token_embd.weight");
    refused(RUNNEL_INVALID, "key eagle3.embedding_length is 40, and the model's token_embd.weight");
}

/* Of tokens as text: ordinary ones must be the model's. */
static void set_tokens(struct model_edit *edit, struct writer *bytes, uint32_t n, const char *last)
{
    struct edit_key *key;

    edit_u32(edit, "tokenizer.ggml.tokens", 0);
    key = &edit->keys[edit->n_keys - 1];
    assert_string_equal(key->name, "tokenizer.ggml.tokens");
    for (uint32_t i = 0; i < n; i++)
        w_string(bytes, i + 1 == n ? last : "a");
    *key = (struct edit_key){.name = "tokenizer.ggml.tokens",
                             .type = RN_GGUF_ARRAY,
                             .item = RN_GGUF_STRING,
                             .count = n,
                             .data = bytes->bytes,
                             .bytes = bytes->n};
}

static void another_vocabulary_is_refused(void **state)
{
    static struct model_edit edit;
    struct writer target = {0}, of_target = {0}, one = {0}, other = {0}, more = {0};
    struct rn_gguf *plain = f.target;

    (void)state;
    edit_tiny(&edit, 0, false);
    set_tokens(&edit, &of_target, VOCAB, "b");
    edit_write(&edit, &target);
    assert_int_equal(rn_gguf_parse(&f.heap, target.bytes, target.n, "tiny.gguf", &f.target, NULL), RUNNEL_OK);
    set_tokens(&f.edit, &one, VOCAB, "b");
    accepted();
    set_tokens(&f.edit, &other, VOCAB, "c");
    refused(RUNNEL_INVALID, "key tokenizer.ggml.tokens: token 15 is \"c\" and the model's \"b\"");
    set_tokens(&f.edit, &more, VOCAB + 1, "b");
    refused(RUNNEL_INVALID, "key tokenizer.ggml.tokens has 17 tokens and the model's 16");
    rn_gguf_free(f.target);
    f.target = plain;
    w_free(&target);
    w_free(&of_target);
    w_free(&one);
    w_free(&other);
    w_free(&more);
}

static void tensors_that_do_not_fit_are_refused(void **state)
{
    static int64_t wrong[SOME];

    (void)state;
    for (int way = 0; way < 4; way++) {
        static const int64_t last[] = {VOCAB, -1, INT64_MIN, 3};

        memcpy(wrong, ids, sizeof ids);
        wrong[SOME - 1] = last[way];
        edit_tensor(&f.edit, "d2t")->data = wrong;
        refused(RUNNEL_FORMAT, way == 3 ? "tensor d2t says 3 twice" : "tensor d2t: number 9 is ");
    }
    edit_tensor(&f.edit, "d2t")->type = RN_I32;
    refused(RUNNEL_FORMAT, "tensor d2t is not 10 tokens, out of at most 16777216, of type I64");
    edit_tensor(&f.edit, "d2t")->dims[0] = SOME - 1;
    refused(RUNNEL_FORMAT, "tensor output.weight is [32, 10, 1, 1], not [32, 9, 1, 1]");
    edit_tensor(&f.edit, "d2t")->dims[0] = VOCAB + 1;
    refused(RUNNEL_FORMAT, "tensor d2t has 17 tokens, and the model 16");
    edit_drop_tensor(&f.edit, "d2t");
    refused(RUNNEL_FORMAT, "tensor output.weight is [32, 10, 1, 1], not [32, 16, 1, 1]");
    edit_drop_tensor(&f.edit, "output.weight");
    refused(RUNNEL_FORMAT, "tensor output.weight is missing");
    edit_tensor(&f.edit, "token_embd.weight")->dims[1] = VOCAB - 1;
    refused(RUNNEL_FORMAT, "tensor token_embd.weight is [32, 15, 1, 1], not [32, 16, 1, 1]");
    edit_bool(&f.edit, "eagle3.norm_before_fc", false);
    refused(RUNNEL_UNSUPPORTED, "tensor enc.output_norm.weight is not part of architecture eagle3");
    edit_add_tensor(&f.edit, "blk.0.attn_q_norm.weight", 8, 1, noise);
    refused(RUNNEL_UNSUPPORTED, "tensor blk.0.attn_q_norm.weight is not part of architecture eagle3");
    edit_add_tensor(&f.edit, "blk.1.attn_norm.weight", WIDTH, 1, noise);
    refused(RUNNEL_UNSUPPORTED, "tensor blk.1.attn_norm.weight is not part of architecture eagle3");
    edit_add_tensor(&f.edit, "blk.0.ffn_gate_inp.weight", WIDTH, 4, noise);
    refused(RUNNEL_UNSUPPORTED, "tensor blk.0.ffn_gate_inp.weight");
}

/* In turn: absent, zero, large, of another kind. It is refused by its name, or a tensor's whose shape it says, or the
 * file says the same without it. */
static void each_key_in_turn(void **state)
{
    const uint32_t n = f.edit.n_keys;

    (void)state;
    for (uint32_t i = 1; i < n; i++) { /* behind general.architecture */
        char name[96];

        snprintf(name, sizeof name, "%s", f.edit.keys[i].name);
        for (int way = 0; way < 5; way++) {
            if (way == 0)
                edit_drop_key(&f.edit, name);
            else if (way == 1)
                edit_u32(&f.edit, name, 0);
            else if (way == 2)
                edit_u32(&f.edit, name, UINT32_MAX);
            else if (way == 3)
                edit_text(&f.edit, name, "7");
            else
                edit_f32(&f.edit, name, -1);
            if (plans() == RUNNEL_OK
                    ? way == 3
                    : strstr(f.error.message, name) == NULL && strstr(f.error.message, "tensor ") == NULL)
                fail_msg("%s, way %d: %s", name, way, f.error.message);
            good_head();
        }
    }
}

/* In turn: absent, longer, of more rows, of a type that is no weight's. */
static void each_tensor_in_turn(void **state)
{
    const uint32_t n = f.edit.n_tensors;

    (void)state;
    for (uint32_t i = 0; i < n; i++) {
        char name[64];

        snprintf(name, sizeof name, "%s", f.edit.tensors[i].name);
        for (int way = 0; way < 4; way++) {
            bool may_lack = strcmp(name, "token_embd.weight") == 0 || strcmp(name, "rope_freqs.weight") == 0;
            struct edit_tensor *tensor = edit_tensor(&f.edit, name);
            const char *also = strcmp(name, "d2t") == 0 ? "output.weight" : name; /* whose rows d2t counts */

            if (way == 0)
                edit_drop_tensor(&f.edit, name);
            else if (way == 1)
                tensor->dims[0]++;
            else if (way == 2)
                tensor->dims[1]++, tensor->n_dims = 2;
            else
                tensor->type = RN_I32;
            if (plans() == RUNNEL_OK ? way > 0 || !may_lack
                                     : strstr(f.error.message, name) == NULL && strstr(f.error.message, also) == NULL)
                fail_msg("%s, way %d: %s", name, way, f.error.message);
            good_head();
        }
    }
}

/* Trainers go on with runnel's own heads. */
static void it_is_none_to_train(void **state)
{
    char folder[] = "/tmp/runnel-eagle3-XXXXXX", path[64];
    struct writer bytes = {0};
    struct rn_head head;

    (void)state;
    edit_write(&f.edit, &bytes);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/head.gguf", folder);
    w_save(&bytes, folder, "head.gguf");
    w_free(&bytes);
    f.error = (runnel_error){0};
    assert_int_equal(rn_head_open(&head, &f.heap, path, &f.error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(f.error.message, "an EAGLE-3 head"));
    remove(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forms_are_taken),
        cmocka_unit_test(keys_that_do_not_fit_are_refused),
        cmocka_unit_test(another_vocabulary_is_refused),
        cmocka_unit_test(tensors_that_do_not_fit_are_refused),
        cmocka_unit_test(each_key_in_turn),
        cmocka_unit_test(each_tensor_in_turn),
        cmocka_unit_test(it_is_none_to_train),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
