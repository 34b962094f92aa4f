/* A text hangs neither on what is loaded beside its model, nor on the parts of its file, nor on options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"
#include "tests/actors/scratch.h"
#include "tests/model/model_edit.h"
#include "tests/support/shared.h"

#define PROMPT "Once upon a time"
#define TOKENS 24

/* The answer of a model by itself. */
static void answer_alone(const char *path, const runnel_model_options *options, struct capture *capture)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, path, options);
    runnel_request request = make_request(PROMPT, TOKENS, capture);

    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_true(capture->n_tokens > 3);
    runnel_engine_free(engine);
}

static void same(const struct capture *a, const struct capture *b)
{
    assert_int_equal(a->last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, a->n_tokens * sizeof a->tokens[0]);
    assert_string_equal(a->text, b->text);
}

/* Two models of one engine, and two engines, at once: each stream has its own model's text. */
static void side_by_side(void **state)
{
    runnel_engine *engines[2] = {start_engine(NULL), start_engine(NULL)};
    runnel_model *models[4];
    struct capture alone[2] = {{0}}, together[8] = {{0}};
    char other[300];
    const char *paths[2] = {BUNDLED_MODEL, other};

    (void)state;
    if (!shared_find("models/stories260K.gguf", other, sizeof other))
        skip();
    for (int i = 0; i < 2; i++)
        answer_alone(paths[i], NULL, &alone[i]);
    assert_string_not_equal(alone[0].text, alone[1].text);
    for (int i = 0; i < 4; i++)
        models[i] = load_model(engines[i / 2], paths[i % 2], NULL);
    for (int i = 0; i < 8; i++) {
        runnel_request request = make_request(PROMPT, TOKENS, &together[i]);

        assert_int_equal(runnel_generate(models[i % 4], &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    }
    for (int i = 0; i < 8; i++) {
        run_until_end(engines[i % 4 / 2], &together[i]);
        same(&together[i], &alone[i % 2]);
        capture_clear(&together[i]);
    }
    for (int i = 0; i < 2; i++) {
        capture_clear(&alone[i]);
        assert_quiet(engines[i], 0);
        runnel_engine_free(engines[i]);
    }
}

/* ---- The same content in another shape, and options ---- */

static void save_part(struct scratch *scratch, const struct model_edit *whole, uint32_t first, uint32_t n,
                      uint32_t number)
{
    static struct model_edit part;
    struct writer writer = {0};
    char name[64];

    part = *whole;
    if (number > 0)
        part.n_keys = 0;
    memcpy(part.tensors, whole->tensors + first, n * sizeof part.tensors[0]);
    part.n_tensors = n;
    edit_u32(&part, "split.no", number);
    edit_u32(&part, "split.count", 2);
    edit_u32(&part, "split.tensors.count", whole->n_tensors);
    edit_write(&part, &writer);
    snprintf(name, sizeof name, "m-%05u-of-00002.gguf", number + 1);
    w_save(&writer, scratch->directory, name);
    w_free(&writer);
}

static void split_file(void **state)
{
    static struct model_edit edit;
    struct capture whole = {0}, split = {0};
    struct scratch scratch;
    struct rn_heap heap;
    struct rn_gguf *gguf;

    (void)state;
    rn_heap_init(&heap, NULL);
    scratch_open(&scratch);
    assert_int_equal(rn_gguf_open(&heap, BUNDLED_MODEL, &gguf, NULL), RUNNEL_OK);
    edit_from(&edit, gguf);
    save_part(&scratch, &edit, 0, edit.n_tensors / 2, 0);
    save_part(&scratch, &edit, edit.n_tensors / 2, edit.n_tensors - edit.n_tensors / 2, 1);
    rn_gguf_free(gguf);
    snprintf(scratch.path, sizeof scratch.path, "%s/m-00001-of-00002.gguf", scratch.directory);
    answer_alone(BUNDLED_MODEL, NULL, &whole);
    answer_alone(scratch.path, NULL, &split);
    same(&split, &whole);
    scratch_close(&scratch);
    capture_clear(&whole);
    capture_clear(&split);
}

static void variations(void **state)
{
    static const struct {
        uint32_t context, batch;
        runnel_kv_type kv_type;
        bool same_text;
    } cases[] = {
        {0, 8, RUNNEL_KV_F16, true},    {64, 0, RUNNEL_KV_F16, true},     {64, 8, RUNNEL_KV_F16, true},
        {512, 97, RUNNEL_KV_F16, true}, {128, 512, RUNNEL_KV_F32, false}, {128, 16, RUNNEL_KV_BF16, false},
    };
    struct capture usual = {0};

    (void)state;
    answer_alone(BUNDLED_MODEL, NULL, &usual);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct capture other = {0};
        runnel_model_options options;

        runnel_model_options_default(&options);
        options.context_tokens = cases[i].context;
        options.batch_tokens = cases[i].batch;
        options.kv_type = cases[i].kv_type;
        answer_alone(BUNDLED_MODEL, &options, &other);
        if (cases[i].same_text)
            same(&other, &usual);
        capture_clear(&other);
    }
    capture_clear(&usual);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(side_by_side),
        cmocka_unit_test(split_file),
        cmocka_unit_test(variations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
