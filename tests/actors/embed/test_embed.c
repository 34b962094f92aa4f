/* Embeddings: against another program's on real models; against their closed form, with a backend whose features are
 * known; the same bits in any company; what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "embed_judge.h"
#include "tests/actors/fixture.h"
#include "tests/support/shared.h"
#include "tests/sim/manual.h"

/* ---- Against another program ---- */

/* The lines of one model, on that device. */
static void judge(const char *name, const char *path, const char *device, double limit)
{
    runnel_model_options options;
    runnel_engine *engine = start_engine(NULL);

    runnel_model_options_default(&options);
    options.device = device;
    options.kv_type = RUNNEL_KV_F32;
    options.context_tokens = 128;
    embed_judge(engine, load_model(engine, path, &options), name, device, limit);
    runnel_engine_free(engine);
}

/* The other program rounds its inputs to 8 bits before each product, as the fast path does, and the reference does not:
 * on Q8_0 the bounds are what that rounding costs. */
static void as_another_program(void **state)
{
    static char path[300];

    (void)state;
    judge("runnel-tiny-Q8_0", BUNDLED_MODEL, "cpu", 1e-4);
    judge("runnel-tiny-Q8_0", BUNDLED_MODEL, "reference", 1e-4);
    if (!shared_find("models/runnel-tiny-F16.gguf", path, sizeof path))
        skip();
    judge("runnel-tiny-F16", path, "cpu", 1e-6);
    judge("runnel-tiny-F16", path, "reference", 1e-6);
}

/* ---- In any company ---- */

static void bits_do_not_change(void **state)
{
    static const uint32_t batches[] = {256, 8, 24};
    static struct vector alone[3], beside[3];
    struct capture others[4] = {{0}};
    runnel_stream stream;

    (void)state;
    for (int b = 0; b < 3; b++) {
        runnel_model_options options;
        runnel_engine *engine = start_engine(NULL);
        runnel_model *model;

        runnel_model_options_default(&options);
        options.batch_tokens = batches[b];
        model = load_model(engine, quick_model(), &options);
        for (int t = 0; t < 3 && b == 0; t++)
            embed(engine, model, embed_texts[t], (runnel_pooling)(1 + t), false, &alone[t]);
        for (int i = 0; i < 4; i++) {
            runnel_request request = make_request(embed_texts[i % 2], 30, &others[i]);

            assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
        }
        for (int t = 0; t < 3; t++) {
            runnel_embed_request request = embed_request(embed_texts[t], (runnel_pooling)(1 + t), false, &beside[t]);

            embed_submit(model, &request, &stream);
        }
        for (int t = 0; t < 3; t++) {
            embed_await(engine, &beside[t]);
            assert_int_equal(beside[t].n, alone[t].n);
            assert_memory_equal(beside[t].values, alone[t].values, alone[t].n * sizeof(float));
        }
        for (int i = 0; i < 4; i++) {
            run_until_end(engine, &others[i]);
            capture_clear(&others[i]);
        }
        assert_quiet(engine, 0);
        runnel_engine_free(engine);
    }
}

/* ---- The closed form ---- */

/* Features of a row: its position + 1, its token, and 3 if it is the first. Token 200 has none that are numbers. */
enum { WIDTH = 3, N_VOCAB = 256, BAD = 200 };

static void submit_async(struct rn_backend *backend, struct rn_step *step)
{
    (void)backend;
    assert_int_equal(step->n_outs, 0); /* nobody wants logits */
    for (uint32_t i = 0; i < step->n_features; i++) {
        const struct rn_step_row *row = &step->rows[step->feature_rows[i]];
        float *f = step->features + (size_t)i * WIDTH;

        f[0] = (float)(row->position + 1);
        f[1] = row->token == BAD ? NAN : (float)row->token;
        f[2] = row->position == 0 ? 3 : 0;
    }
    step->status = RUNNEL_OK;
    step->on_done(step);
}

static void free_backend(struct rn_backend *backend)
{
    (void)backend;
}

static runnel_engine *engine_of_known(runnel_model **model, uint32_t n_features)
{
    static const struct rn_backend_ops ops = {.name = "known", .submit_async = submit_async, .free = free_backend};
    static const struct rn_device_caps caps = {.can = RN_CAN_FEATURES, .max_rows = 7, .max_outs = 2, .ring = 1};
    static struct rn_backend backend = {&ops, &caps};
    static const struct rn_backend_limits limits = {
        .max_rows = 7, .max_seqs = 4, .max_outs = 2, .n_blocks = 16, .block_tokens = 8, .context_tokens = 100};
    struct rn_model_parts parts = {.limits = limits,
                                   .n_vocab = N_VOCAB,
                                   .n_features = n_features,
                                   .row_features = n_features,
                                   .backend = &backend};
    runnel_engine *engine = manual_engine(NULL, NULL);

    *model = manual_model(engine, &parts, NULL);
    return engine;
}

/* n tokens 1, 2, 3 ... */
static void embed_known(runnel_engine *engine, runnel_model *model, uint32_t n, int32_t bad_at, runnel_pooling pooling,
                        bool raw, uint32_t dimensions, struct vector *v)
{
    runnel_embed_request request = embed_request("", pooling, raw, v);
    runnel_stream stream;
    int32_t tokens[100];

    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)i == bad_at ? BAD : (int32_t)i + 1;
    request.text = NULL;
    request.tokens = tokens;
    request.n_tokens = n;
    request.dimensions = dimensions;
    embed_submit(model, &request, &stream);
    manual_settle(engine);
    assert_int_equal(v->n_ended, 1);
}

static void pooled_in_closed_form(void **state)
{
    runnel_model *model;
    runnel_engine *engine = engine_of_known(&model, WIDTH);
    static struct vector v;

    (void)state;
    for (uint32_t n = 1; n <= 60; n++) {
        double mean = (n + 1) / 2.0, third = 3.0 / n, length;

        embed_known(engine, model, n, -1, RUNNEL_POOLING_DEFAULT, true, 0, &v);
        assert_int_equal(v.last.type, RUNNEL_EVENT_DONE);
        assert_int_equal(v.last.usage.prompt_tokens, n);
        assert_int_equal(v.last.usage.cached_tokens, 0);
        assert_true(v.n == 3 && v.n_embeddings == 1 && v.values[0] == (float)mean && v.values[1] == (float)mean &&
                    fabs(v.values[2] - third) < 1e-7);
        length = sqrt(2 * mean * mean + third * third);
        embed_known(engine, model, n, -1, RUNNEL_POOLING_MEAN, false, 0, &v);
        assert_true(fabs(v.values[0] - mean / length) < 1e-7 && fabs(v.values[2] - third / length) < 1e-7);
        embed_known(engine, model, n, -1, RUNNEL_POOLING_MEAN, false, 2, &v);
        assert_true(v.n == 2 && fabs(v.values[0] - sqrt(0.5)) < 1e-7);
        embed_known(engine, model, n, -1, RUNNEL_POOLING_FIRST, true, 0, &v);
        assert_true(v.values[0] == 1 && v.values[1] == 1 && v.values[2] == 3);
        embed_known(engine, model, n, -1, RUNNEL_POOLING_LAST, true, 0, &v);
        assert_true(v.values[0] == (float)n && v.values[1] == (float)n && v.values[2] == (n == 1 ? 3 : 0));
        assert_int_equal(v.last.usage.cached_tokens, n - 1); /* the last one was of all but one */
    }
    runnel_engine_free(engine);
}

static void not_numbers(void **state)
{
    runnel_model *model;
    runnel_engine *engine = engine_of_known(&model, WIDTH);
    static struct vector v;

    (void)state;
    embed_known(engine, model, 20, 3, RUNNEL_POOLING_MEAN, false, 0, &v);
    assert_int_equal(v.last.type, RUNNEL_EVENT_FAILED);
    assert_int_equal(v.last.status, RUNNEL_NUMERIC);
    assert_int_equal(v.n_embeddings, 0);
    embed_known(engine, model, 20, -1, RUNNEL_POOLING_MEAN, false, 0, &v); /* nothing is left of it */
    assert_int_equal(v.last.type, RUNNEL_EVENT_DONE);
    runnel_engine_free(engine);
}

/* ---- What is refused ---- */

static void refuse(runnel_model *model, const runnel_embed_request *request, runnel_status status, const char *part)
{
    runnel_stream stream = {0};
    runnel_error error;

    assert_int_equal(runnel_embed(model, request, &stream, &error), status);
    if (strstr(error.message, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.message, part);
    assert_int_equal(stream.id, 0);
}

static void bad_input(void **state)
{
    static struct vector v;
    static const int32_t beyond[] = {N_VOCAB};
    int32_t many[101] = {0};
    runnel_model *model, *none;
    runnel_engine *engine = engine_of_known(&model, WIDTH), *other = engine_of_known(&none, 0);
    runnel_embed_request good = embed_request("text", RUNNEL_POOLING_MEAN, false, &v), request = good;

    (void)state;
    request.text_bytes = 0;
    refuse(model, &request, RUNNEL_INVALID, "the text is empty");
    request.text = NULL;
    request.tokens = many;
    refuse(model, &request, RUNNEL_INVALID, "the text is empty, and so are the tokens");
    request = good;
    request.text = NULL; /* named as the request has it, and not as the prompt that is made of it */
    refuse(model, &request, RUNNEL_INVALID, "text is NULL but text_bytes is 4");
    request = good;
    request.text = "\xff\xfe";
    request.text_bytes = 2;
    refuse(model, &request, RUNNEL_INVALID, "the text is not UTF-8");
    request = good;
    request.pooling = (runnel_pooling)4;
    refuse(model, &request, RUNNEL_INVALID, "pooling");
    request = good;
    request.dimensions = WIDTH + 1;
    refuse(model, &request, RUNNEL_INVALID, "dimensions");
    request = good;
    request.tokens = beyond;
    request.n_tokens = 1;
    refuse(model, &request, RUNNEL_INVALID, "of text and tokens more than one");
    request.text = NULL;
    request.text_bytes = 0;
    refuse(model, &request, RUNNEL_INVALID, "vocabulary");
    request.tokens = many;
    request.n_tokens = 101;
    refuse(model, &request, RUNNEL_CONTEXT, "101");
    request = good;
    request.struct_size = 0;
    refuse(model, &request, RUNNEL_INVALID, "struct_size");
    refuse(none, &good, RUNNEL_UNSUPPORTED, "no embeddings");
    runnel_engine_free(engine);
    runnel_engine_free(other);
}

static void cancelled(void **state)
{
    static struct vector v;
    runnel_model *model;
    runnel_engine *engine = engine_of_known(&model, WIDTH);
    runnel_embed_request request = embed_request("a text", RUNNEL_POOLING_MEAN, false, &v);
    runnel_stream stream;

    (void)state;
    embed_submit(model, &request, &stream);
    assert_int_equal(runnel_stream_cancel(engine, stream), RUNNEL_OK);
    manual_settle(engine);
    assert_int_equal(v.n_ended, 1);
    assert_int_equal(v.last.type, RUNNEL_EVENT_CANCELLED);
    assert_int_equal(v.n_embeddings, 0);
    runnel_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_another_program),
        cmocka_unit_test(bits_do_not_change),
        cmocka_unit_test(pooled_in_closed_form),
        cmocka_unit_test(not_numbers),
        cmocka_unit_test(bad_input),
        cmocka_unit_test(cancelled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
