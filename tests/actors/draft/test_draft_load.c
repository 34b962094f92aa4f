/* What a load measures for who drafts: steps of each number of rows up to eight, and of more twice as many each
 * time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "tests/actors/fixture.h"
#include "tests/oracle/made_model.h"

static runnel_model *load(runnel_engine *engine, const char *draft, uint32_t measure_ms)
{
    runnel_model_options options;

    runnel_model_options_default(&options);
    options.context_tokens = 256;
    options.draft_path = draft;
    options.draft_measure_ms = measure_ms;
    return load_model(engine, BUNDLED_MODEL, &options);
}

/* Given the time, no price of up to eight rows is a guess. */
static void each_small_step_is_measured(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load(engine, "exit:1", 600000);
    const struct rn_step_cost *cost = &model->parts.cost;

    (void)state;
    for (uint32_t n_rows = 1; n_rows <= 8; n_rows++)
        assert_true(cost->n[n_rows - 1] > 0 && cost->us[n_rows - 1] > 0);
    assert_true(rn_step_cost_reach(cost) > 32);
    runnel_engine_free(engine);
}

/* Without a drafter a load measures nothing; and how short a time it may take changes no text. */
static void no_text_depends_on_it(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    struct capture plain = {0}, fast = {0};
    runnel_request request = make_request("Once upon a time", 24, &plain);
    runnel_model *model = load(engine, NULL, 0);

    (void)state;
    assert_int_equal(model->parts.cost.n_notes, 0);
    run_request(engine, model, &request);
    runnel_model_free(model);
    model = load(engine, "exit:1", 1);
    request.user = &fast;
    request.draft = RUNNEL_DRAFT_MODEL;
    run_request(engine, model, &request);
    assert_int_equal(plain.text_bytes, fast.text_bytes);
    assert_memory_equal(plain.text, fast.text, plain.text_bytes);
    capture_clear(&plain);
    capture_clear(&fast);
    runnel_engine_free(engine);
}

/* ---- Blocks that cannot guess ---- */

/* A model of two blocks, of which the first has no attention. */
static const char model_text[] = "key general.architecture str deci\n"
                                 "key deci.vocab_size u32 64\n"
                                 "key deci.context_length u32 256\n"
                                 "key deci.embedding_length u32 64\n"
                                 "key deci.block_count u32 2\n"
                                 "key deci.feed_forward_length u32[] 128 64\n"
                                 "key deci.attention.head_count u32[] 0 4\n"
                                 "key deci.attention.head_count_kv u32[] 0 2\n"
                                 "key deci.attention.key_length u32 16\n"
                                 "key deci.attention.value_length u32 16\n"
                                 "key deci.attention.layer_norm_rms_epsilon f32 9.99999975e-06\n"
                                 "key deci.rope.dimension_count u32 16\n"
                                 "key deci.rope.freq_base f32 500000\n"
                                 "vocabulary 64\n"
                                 "tensor token_embd.weight 64 64 = 0 1\n"
                                 "tensor output_norm.weight 64\n"
                                 "tensor output.weight 64 64\n"
                                 "blocks 0 1\n"
                                 "tensor blk.%d.ffn_norm.weight 64\n"
                                 "tensor blk.%d.ffn_gate.weight 64 128\n"
                                 "tensor blk.%d.ffn_down.weight 128 64\n"
                                 "tensor blk.%d.ffn_up.weight 64 128\n"
                                 "blocks 1 2\n"
                                 "tensor blk.%d.attn_norm.weight 64\n"
                                 "tensor blk.%d.attn_q.weight 64 64\n"
                                 "tensor blk.%d.attn_k.weight 64 32\n"
                                 "tensor blk.%d.attn_v.weight 64 32\n"
                                 "tensor blk.%d.attn_output.weight 64 64\n"
                                 "tensor blk.%d.ffn_norm.weight 64\n"
                                 "tensor blk.%d.ffn_gate.weight 64 64\n"
                                 "tensor blk.%d.ffn_down.weight 64 64\n"
                                 "tensor blk.%d.ffn_up.weight 64 64\n";

static void write_file(char *path, const void *bytes, size_t n)
{
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    close(fd);
}

/* The model of a text: a file, to be unlinked. */
static void make_file(const char *text, char *path)
{
    struct writer w = {0};

    made_model_write(text, &w);
    write_file(path, w.bytes, w.n);
    w_free(&w);
}

static void blocks_without_attention_do_not_guess(void **state)
{
    char text[] = "/tmp/rn_draft_load_XXXXXX", path[] = "/tmp/rn_draft_load_XXXXXX";
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options;
    runnel_model *model;
    runnel_error error;

    (void)state;
    write_file(text, model_text, strlen(model_text));
    make_file(text, path);
    runnel_model_options_default(&options);
    runnel_model_free(load_model(engine, path, &options));
    options.draft_path = "exit:1";
    assert_int_equal(runnel_model_load(engine, path, &options, &model, &error), RUNNEL_OK);
    assert_int_equal(runnel_model_wait(model, -1, &error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(error.message, "have no attention"));
    runnel_engine_free(engine);
    unlink(text);
    unlink(path);
}

/* ---- Models that generate nothing ---- */

/* An encoder without logits, and a decoder that sees both ways: no drafter, and nothing to measure. */
static void models_that_generate_nothing_have_no_drafter(void **state)
{
    static const struct {
        const char *text, *words;
    } models[] = {{"tests/oracle/made/bert-made.txt", "gives embeddings, not logits"},
                  {"tests/oracle/made/llada-made.txt", "attends in both directions"}};
    static const char *const drafters[] = {"exit:1", "mtp", BUNDLED_MODEL};
    runnel_engine *engine = start_engine(NULL);

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char path[] = "/tmp/rn_draft_load_XXXXXX";
        runnel_model_options options;
        runnel_model *model;
        runnel_error error;

        make_file(models[i].text, path);
        runnel_model_options_default(&options);
        options.draft_measure_ms = 1000;
        model = load_model(engine, path, &options);
        assert_int_equal(model->parts.cost.n_notes, 0);
        runnel_model_free(model);
        for (size_t d = 0; d < sizeof drafters / sizeof drafters[0]; d++) {
            options.draft_path = drafters[d];
            assert_int_equal(runnel_model_load(engine, path, &options, &model, &error), RUNNEL_OK);
            assert_int_equal(runnel_model_wait(model, -1, &error), RUNNEL_UNSUPPORTED);
            if (strstr(error.message, models[i].words) == NULL || strstr(error.message, drafters[d]) == NULL)
                fail_msg("%s", error.message);
            runnel_model_free(model);
        }
        unlink(path);
    }
    runnel_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_small_step_is_measured),
        cmocka_unit_test(no_text_depends_on_it),
        cmocka_unit_test(blocks_without_attention_do_not_guess),
        cmocka_unit_test(models_that_generate_nothing_have_no_drafter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
