/* Products behind the final norm, dense_2 and dense_3: embeddings of a file that has them against the products, in
 * double precision, of the embeddings that the same file gives without them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../model/model_edit.h"
#include "embed_judge.h"
#include "tests/actors/fixture.h"
#include "model/plan.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"

#define MODEL "lfm2-made-dense"
enum { WIDTH = 64, SECOND = 24, THIRD = 40, N_TOKENS = 5 };

static const int32_t tokens[N_TOKENS] = {5, 9, 33, 12, 61};

static struct fixture {
    struct rn_heap heap;
    struct rn_gguf *gguf;
    struct writer made;
    struct model_edit edit;
    float third[THIRD * (SECOND + 1)]; /* one file has inputs of another width */
    runnel_engine *engine;
} f;

static int setup(void **state)
{
    (void)state;
    rn_heap_init(&f.heap, NULL);
    made_model_write(MADE_TEXT(MODEL), &f.made);
    assert_int_equal(rn_gguf_parse(&f.heap, f.made.bytes, f.made.n, MODEL, &f.gguf, NULL), RUNNEL_OK);
    for (int i = 0; i < THIRD * SECOND; i++)
        f.third[i] = (float)((i * 37 % 101 - 50) / 100.0);
    f.engine = start_engine(NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    runnel_engine_free(f.engine);
    rn_gguf_free(f.gguf);
    w_free(&f.made);
    assert_int_equal(rn_heap_blocks(&f.heap), 0);
    return 0;
}

/* No text comes of its tokens. */
static void begin_file(void)
{
    edit_from(&f.edit, f.gguf);
    edit_text(&f.edit, "tokenizer.ggml.model", "none");
}

/* The model of f.edit, loaded. */
static runnel_model *load_edited(void)
{
    char path[] = "/tmp/runnel-dense-XXXXXX";
    struct writer w = {0};
    runnel_model *model;
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    edit_write(&f.edit, &w);
    assert_int_equal(write(fd, w.bytes, w.n), w.n);
    close(fd);
    w_free(&w);
    model = load_model(f.engine, path, NULL);
    unlink(path);
    return model;
}

static void embed_tokens(runnel_model *model, runnel_pooling pooling, struct vector *v)
{
    runnel_embed_request request = embed_request("", pooling, true, v);
    runnel_stream stream;

    request.text = NULL;
    request.tokens = tokens;
    request.n_tokens = N_TOKENS;
    embed_submit(model, &request, &stream);
    embed_await(f.engine, v);
}

/* out = matrix · a + bias */
static void multiply(double *out, const float *matrix, const float *bias, const double *a, int rows, int cols)
{
    for (int r = 0; r < rows; r++) {
        out[r] = bias == NULL ? 0 : bias[r];
        for (int i = 0; i < cols; i++)
            out[r] += (double)matrix[r * cols + i] * a[i];
    }
}

static void judge(const struct vector *v, const double *want, uint32_t n)
{
    double error = 0, all = 0;

    assert_int_equal(v->n, n);
    for (uint32_t i = 0; i < n; i++) {
        error += (v->values[i] - want[i]) * (v->values[i] - want[i]);
        all += want[i] * want[i];
    }
    assert_true(all > 0 && error / all <= 1e-10);
}

static const float *values(const char *name)
{
    return (const float *)rn_gguf_find_tensor(f.gguf, name)->data;
}

static void embeddings(void **state)
{
    static const runnel_pooling poolings[] = {RUNNEL_POOLING_MEAN, RUNNEL_POOLING_FIRST, RUNNEL_POOLING_LAST};
    static struct vector plain, with, both;
    double in[WIDTH], two[SECOND], three[THIRD];
    runnel_model *model, *second, *third;

    (void)state;
    begin_file();
    second = load_edited();
    edit_add_tensor(&f.edit, "dense_3.weight", SECOND, THIRD, f.third);
    third = load_edited();
    begin_file();
    edit_drop_tensor(&f.edit, "dense_2.weight");
    edit_drop_tensor(&f.edit, "dense_2.bias");
    model = load_edited();
    for (int i = 0; i < 3; i++) {
        embed_tokens(model, poolings[i], &plain);
        embed_tokens(second, poolings[i], &with);
        embed_tokens(third, poolings[i], &both);
        assert_int_equal(plain.n, WIDTH);
        for (int j = 0; j < WIDTH; j++)
            in[j] = plain.values[j];
        multiply(two, values("dense_2.weight"), values("dense_2.bias"), in, SECOND, WIDTH);
        judge(&with, two, SECOND);
        multiply(three, f.third, NULL, two, THIRD, SECOND);
        judge(&both, three, THIRD);
    }
    runnel_model_free(model);
    runnel_model_free(second);
    runnel_model_free(third);
}

static runnel_status status_of_file(runnel_error *error)
{
    struct rn_gguf *gguf = NULL;
    struct rn_plan *plan = NULL;
    struct writer w = {0};
    runnel_status status;

    edit_write(&f.edit, &w);
    assert_int_equal(rn_gguf_parse(&f.heap, w.bytes, w.n, MODEL, &gguf, NULL), RUNNEL_OK);
    status = rn_plan_new(&f.heap, gguf, 0, &plan, error);
    if (status == RUNNEL_OK)
        rn_plan_free(plan);
    rn_gguf_free(gguf);
    w_free(&w);
    return status;
}

/* Other shapes, and products that prediction layers would read in place of the norm. */
static void refused(void **state)
{
    runnel_error error = {0};

    (void)state;
    begin_file();
    edit_add_tensor(&f.edit, "dense_3.weight", SECOND + 1, THIRD, f.third);
    assert_int_equal(status_of_file(&error), RUNNEL_FORMAT);
    assert_non_null(strstr(error.message, "dense_3.weight"));
    memset(&error, 0, sizeof error);
    begin_file();
    edit_u32(&f.edit, "lfm2.nextn_predict_layers", 1);
    assert_int_equal(status_of_file(&error), RUNNEL_UNSUPPORTED);
    if (strstr(error.message, "dense_2.weight") == NULL)
        fail_msg("%s", error.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(embeddings), cmocka_unit_test(refused)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
