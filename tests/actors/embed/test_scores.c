/* Scores of rerankers and classifiers: another program's numbers of the same file, and the head in double precision
 * over the embeddings that the same file gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <math.h>

#include "../../model/model_edit.h"
#include "embed_judge.h"
#include "tests/actors/fixture.h"
#include "model/plan.h"
#include "model/build/scores.h"
#include "runnel_scores.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"

#define MODEL "qwen3-made-rank"
enum { WIDTH = 64, HIDDEN = 24, N_TOKENS = 5, ANY = 3 };

static const int32_t tokens[N_TOKENS] = {5, 9, 33, 12, 61};

static struct fixture {
    struct rn_heap heap;
    struct rn_gguf *gguf;
    struct writer made;
    struct model_edit edit;
    float hidden[HIDDEN * WIDTH], bias[HIDDEN], out[ANY * HIDDEN];
    float wide[(RN_MAX_SCORES + 1) * WIDTH];
    runnel_engine *engine;
} f;

static int setup(void **state)
{
    (void)state;
    rn_heap_init(&f.heap, NULL);
    made_model_write(MADE_TEXT(MODEL), &f.made);
    assert_int_equal(rn_gguf_parse(&f.heap, f.made.bytes, f.made.n, MODEL, &f.gguf, NULL), RUNNEL_OK);
    for (int i = 0; i < HIDDEN * WIDTH; i++)
        f.hidden[i] = (float)((i * 37 % 101 - 50) / 200.0);
    for (int i = 0; i < HIDDEN; i++)
        f.bias[i] = (float)((i * 11 % 7 - 3) / 10.0);
    for (int i = 0; i < ANY * HIDDEN; i++)
        f.out[i] = (float)((i * 29 % 31 - 15) / 10.0);
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

/* The model of f.edit, loaded whole or for its tokens alone. */
static runnel_model *load_part(bool vocab_only)
{
    char path[] = "/tmp/runnel-scores-XXXXXX";
    runnel_model_options options;
    struct writer w = {0};
    runnel_model *model;
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    edit_write(&f.edit, &w);
    assert_int_equal(write(fd, w.bytes, w.n), w.n);
    close(fd);
    w_free(&w);
    runnel_model_options_default(&options);
    options.kv_type = RUNNEL_KV_F32;
    options.vocab_only = vocab_only;
    model = load_model(f.engine, path, &options);
    unlink(path);
    return model;
}

static runnel_model *load_edited(void)
{
    return load_part(false);
}

static runnel_score_request score_request(runnel_score_form form, struct vector *v)
{
    runnel_embed_request like = embed_request("", RUNNEL_POOLING_LAST, true, v);
    runnel_score_request request;

    runnel_score_request_default(&request);
    request.tokens = tokens;
    request.n_tokens = N_TOKENS;
    request.form = form;
    request.on_event = like.on_event;
    request.user = v;
    return request;
}

static void score(runnel_model *model, runnel_score_form form, struct vector *v)
{
    runnel_score_request request = score_request(form, v);
    runnel_error error = {0};
    runnel_stream stream;

    if (runnel_score(model, &request, &stream, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    embed_await(f.engine, v);
}

static void normed(runnel_model *model, struct vector *v)
{
    runnel_embed_request request = embed_request("", RUNNEL_POOLING_LAST, true, v);
    runnel_stream stream;

    request.text = NULL;
    request.tokens = tokens;
    request.n_tokens = N_TOKENS;
    embed_submit(model, &request, &stream);
    embed_await(f.engine, v);
    assert_int_equal(v->n, WIDTH);
}

static void near(double got, double want, double limit)
{
    if (!(fabs(got - want) <= limit))
        fail_msg("%.9g, not %.9g", got, want);
}

/* llama.cpp of August 2026, pooling "rank", in F32 on one thread: the file as it is, these tokens. */
static void against_another_program(void **state)
{
    static const double expected[] = {0.172384232, 0.827615738};
    runnel_scores_info info = {.struct_size = sizeof info};
    runnel_model *model;
    struct vector v;
    const char *label;
    size_t n;

    (void)state;
    begin_file();
    model = load_edited();
    score(model, RUNNEL_SCORES_OF_MODEL, &v);
    assert_int_equal(v.n, 2);
    for (int i = 0; i < 2; i++)
        near((double)v.values[i], expected[i], 1e-5);
    assert_int_equal(runnel_model_scores(model, &info), RUNNEL_OK);
    assert_int_equal(info.n_scores, 2);
    assert_int_equal(info.n_labels, 2);
    assert_int_equal(info.of_tokens, 1);
    assert_int_equal(info.has_template, 0);
    assert_int_equal(runnel_model_label(model, 0, &label, &n), RUNNEL_OK);
    assert_true(n == 3 && memcmp(label, "yes", n) == 0);
    assert_int_equal(runnel_model_label(model, 1, &label, &n), RUNNEL_OK);
    assert_true(n == 2 && memcmp(label, "no", n) == 0);
    assert_int_equal(runnel_model_label(model, 2, &label, &n), RUNNEL_NOT_FOUND);
    runnel_model_free(model);
}

/* Encoders with heads over the first position: llama.cpp's numbers, as above, GELU by its formula
 * (tests/oracle/exact/README.md). */
static void of_encoders(void **state)
{
    static const struct {
        const char *name;
        double score;
    } models[] = {{MADE_TEXT("bert-made-rank"), 0.813194394}, {MADE_TEXT("modern-bert-made-rank"), 1.70881367}};

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct rn_gguf *gguf;
        struct writer made = {0};
        runnel_model *model;
        struct vector v;

        made_model_write(models[i].name, &made);
        assert_int_equal(rn_gguf_parse(&f.heap, made.bytes, made.n, models[i].name, &gguf, NULL), RUNNEL_OK);
        edit_from(&f.edit, gguf);
        edit_text(&f.edit, "tokenizer.ggml.model", "none");
        model = load_edited();
        for (int form = RUNNEL_SCORES_OF_MODEL; form <= RUNNEL_SCORES_LOGITS; form++) {
            score(model, (runnel_score_form)form, &v);
            assert_int_equal(v.n, 1);
            near((double)v.values[0], models[i].score, 1e-5);
        }
        runnel_model_free(model);
        rn_gguf_free(gguf);
        w_free(&made);
    }
}

/* Of the mean of all positions, which files of ModernBERT mean that say nothing, no head is known here. */
static void heads_over_the_mean(void **state)
{
    struct writer made = {0}, w = {0};
    struct rn_gguf *gguf;
    struct rn_plan *plan = NULL;
    runnel_error error = {0};

    (void)state;
    made_model_write(MADE_TEXT("modern-bert-made-rank"), &made);
    assert_int_equal(rn_gguf_parse(&f.heap, made.bytes, made.n, MODEL, &gguf, NULL), RUNNEL_OK);
    edit_from(&f.edit, gguf);
    edit_drop_key(&f.edit, "modern-bert.classifier.pooling_type");
    edit_write(&f.edit, &w);
    rn_gguf_free(gguf);
    assert_int_equal(rn_gguf_parse(&f.heap, w.bytes, w.n, MODEL, &gguf, NULL), RUNNEL_OK);
    assert_int_equal(rn_plan_new(&f.heap, gguf, 0, &plan, &error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(error.message, "classifier.pooling_type is 1"));
    rn_gguf_free(gguf);
    w_free(&made);
    w_free(&w);
}

/* out = matrix · a (+ bias) */
static void multiply(double *out, const float *matrix, const float *bias, const double *a, int rows, int cols)
{
    for (int r = 0; r < rows; r++) {
        out[r] = bias == NULL ? 0 : bias[r];
        for (int i = 0; i < cols; i++)
            out[r] += (double)matrix[r * cols + i] * a[i];
    }
}

/* The logits, their softmax, and the file's own form of these. */
static void judge_forms(runnel_model *model, const double *logits, int n, bool of_tokens)
{
    double all = n == 1 ? 1 : 0, chance;
    struct vector v;

    for (int i = 0; i < n; i++)
        all += exp(logits[i]);
    score(model, RUNNEL_SCORES_LOGITS, &v);
    assert_int_equal(v.n, n);
    for (int i = 0; i < n; i++)
        near((double)v.values[i], logits[i], 1e-4);
    score(model, RUNNEL_SCORES_PROBABILITIES, &v);
    assert_int_equal(v.n, n);
    for (int i = 0; i < n; i++)
        near((double)v.values[i], exp(logits[i]) / all, 1e-5);
    score(model, RUNNEL_SCORES_OF_MODEL, &v);
    for (int i = 0; i < n; i++) {
        chance = exp(logits[i]) / all;
        near((double)v.values[i], of_tokens ? chance : logits[i], 1e-4);
    }
}

static void as_doubles(const struct vector *v, double *to)
{
    for (uint32_t i = 0; i < v->n; i++)
        to[i] = (double)v->values[i];
}

/* One product or both, with biases, one score and several, of an architecture whose scores are of tokens and of one
 * whose are not. */
static void forms(void **state)
{
    double in[WIDTH], middle[HIDDEN], out[ANY];
    const float *one = (const float *)rn_gguf_find_tensor(f.gguf, "cls.output.weight")->data;
    runnel_model *model;
    struct vector v;

    (void)state;
    begin_file();
    model = load_edited();
    normed(model, &v);
    as_doubles(&v, in);
    multiply(out, one, NULL, in, 2, WIDTH);
    judge_forms(model, out, 2, true);
    runnel_model_free(model);
    for (int n = 1; n <= ANY; n += ANY - 1) {
        begin_file();
        edit_drop_tensor(&f.edit, "cls.output.weight");
        edit_drop_key(&f.edit, "qwen3.classifier.output_labels");
        edit_drop_tensor(&f.edit, "output.weight"); /* tied then */
        edit_add_tensor(&f.edit, "cls.weight", WIDTH, HIDDEN, f.hidden);
        edit_add_tensor(&f.edit, "cls.bias", HIDDEN, 1, f.bias);
        f.edit.tensors[f.edit.n_tensors - 1].n_dims = 1;
        edit_add_tensor(&f.edit, "cls.output.weight", HIDDEN, (uint64_t)n, f.out);
        if (n > 1) /* whose heads of queries and keys have norms too, and whose rotation is the same */
            edit_rename(&f.edit, "qwen3moe");
        model = load_edited();
        normed(model, &v);
        as_doubles(&v, in);
        multiply(middle, f.hidden, f.bias, in, HIDDEN, WIDTH);
        for (int i = 0; i < HIDDEN; i++)
            middle[i] = tanh(middle[i]);
        multiply(out, f.out, NULL, middle, n, HIDDEN);
        judge_forms(model, out, n, n == 1);
        runnel_model_free(model);
    }
}

/* Scores and embeddings of one model at once, each as alone, to the bit; the second time prefixes are cached. */
static void beside_others(void **state)
{
    static struct vector alone, row, v[8];
    runnel_error error = {0};
    runnel_stream stream;
    runnel_model *model;

    (void)state;
    begin_file();
    model = load_edited();
    score(model, RUNNEL_SCORES_LOGITS, &alone);
    normed(model, &row);
    for (int i = 0; i < 8; i++) {
        runnel_score_request scored = score_request(RUNNEL_SCORES_LOGITS, &v[i]);
        runnel_embed_request pooled = embed_request("", RUNNEL_POOLING_LAST, true, &v[i]);

        pooled.text = NULL;
        pooled.tokens = tokens;
        pooled.n_tokens = N_TOKENS;
        assert_int_equal(i % 2 == 0 ? runnel_score(model, &scored, &stream, &error)
                                    : runnel_embed(model, &pooled, &stream, &error),
                         RUNNEL_OK);
    }
    for (int i = 0; i < 8; i++) {
        const struct vector *want = i % 2 == 0 ? &alone : &row;

        embed_await(f.engine, &v[i]);
        assert_int_equal(v[i].n, want->n);
        assert_memory_equal(v[i].values, want->values, want->n * sizeof(float));
    }
    runnel_model_free(model);
}

static runnel_status status_of_file(runnel_error *error)
{
    struct rn_gguf *gguf = NULL;
    struct rn_plan *plan = NULL;
    struct writer w = {0};
    runnel_status status;

    memset(error, 0, sizeof *error);
    edit_write(&f.edit, &w);
    assert_int_equal(rn_gguf_parse(&f.heap, w.bytes, w.n, MODEL, &gguf, NULL), RUNNEL_OK);
    status = rn_plan_new(&f.heap, gguf, 0, &plan, error);
    if (status == RUNNEL_OK)
        rn_plan_free(plan);
    rn_gguf_free(gguf);
    w_free(&w);
    return status;
}

static void refused_with(runnel_status status, const char *words)
{
    runnel_error error;

    assert_int_equal(status_of_file(&error), status);
    if (strstr(error.message, words) == NULL)
        fail_msg("%s", error.message);
}

static void hostile_files(void **state)
{
    (void)state;
    begin_file();
    edit_u32(&f.edit, "qwen3.classifier.output_labels", 2);
    refused_with(RUNNEL_FORMAT, "output_labels");
    begin_file();
    edit_drop_tensor(&f.edit, "cls.output.weight");
    edit_add_tensor(&f.edit, "cls.output.weight", WIDTH, 3, f.wide);
    refused_with(RUNNEL_FORMAT, "has 2 labels, the head 3 scores");
    edit_drop_tensor(&f.edit, "cls.output.weight");
    edit_add_tensor(&f.edit, "cls.output.weight", WIDTH - 1, 2, f.wide);
    refused_with(RUNNEL_FORMAT, "cls.output.weight");
    edit_drop_tensor(&f.edit, "cls.output.weight");
    edit_add_tensor(&f.edit, "cls.output.weight", WIDTH, RN_MAX_SCORES + 1, f.wide);
    refused_with(RUNNEL_UNSUPPORTED, "at most 4096 scores");
    begin_file();
    edit_u32(&f.edit, "qwen3.classifier.pooling_type", 1);
    refused_with(RUNNEL_UNSUPPORTED, "classifier.pooling_type is 1");
    begin_file();
    edit_add_tensor(&f.edit, "cls.norm.weight", WIDTH, 1, f.wide);
    refused_with(RUNNEL_UNSUPPORTED, "cls.norm.weight");
}

static void refused_request(runnel_model *model, const runnel_score_request *request, runnel_status status,
                            const char *words)
{
    runnel_error error = {0};
    runnel_stream stream;

    assert_int_equal(runnel_score(model, request, &stream, &error), status);
    if (strstr(error.message, words) == NULL)
        fail_msg("%s", error.message);
}

static void hostile_requests(void **state)
{
    struct vector v;
    runnel_score_request request = score_request(RUNNEL_SCORES_LOGITS, &v), changed = request;
    runnel_scores_info info = {.struct_size = sizeof info};
    runnel_model *model, *plain;

    (void)state;
    begin_file();
    model = load_edited();
    edit_drop_tensor(&f.edit, "cls.output.weight");
    plain = load_edited();
    refused_request(plain, &request, RUNNEL_UNSUPPORTED, "no head");
    assert_int_equal(runnel_model_scores(plain, &info), RUNNEL_UNSUPPORTED);
    changed.struct_size = 7;
    refused_request(model, &changed, RUNNEL_INVALID, "struct_size");
    changed = request;
    changed.form = (runnel_score_form)3;
    refused_request(model, &changed, RUNNEL_INVALID, "form = 3");
    changed = request;
    changed.reserved[9] = 1;
    refused_request(model, &changed, RUNNEL_INVALID, "reserved");
    changed = request;
    changed.query = "q";
    changed.query_bytes = 1;
    refused_request(model, &changed, RUNNEL_INVALID, "not with tokens");
    changed.tokens = NULL;
    changed.n_tokens = 0;
    refused_request(model, &changed, RUNNEL_INVALID, "the text is empty");
    changed.text = "\xff";
    changed.text_bytes = 1;
    refused_request(model, &changed, RUNNEL_INVALID, "UTF-8");
    changed.parse_special = 1;
    refused_request(model, &changed, RUNNEL_INVALID, "parse_special");
    changed = request;
    changed.query_bytes = 2;
    refused_request(model, &changed, RUNNEL_INVALID, "query is NULL");
    changed = request;
    changed.text_bytes = 3;
    refused_request(model, &changed, RUNNEL_INVALID, "text is NULL but text_bytes is 3");
    runnel_model_free(model);
    runnel_model_free(plain);
}

/* A reranker without its weights is not told to have no head. */
static void without_weights(void **state)
{
    struct vector v;
    runnel_score_request request = score_request(RUNNEL_SCORES_LOGITS, &v);
    runnel_scores_info info = {.struct_size = sizeof info};
    runnel_model *model;
    const char *label;
    size_t n;

    (void)state;
    begin_file();
    model = load_part(true);
    assert_int_equal(runnel_model_scores(model, &info), RUNNEL_STATE);
    assert_int_equal(runnel_model_label(model, 0, &label, &n), RUNNEL_STATE);
    refused_request(model, &request, RUNNEL_STATE, "not loaded for generation");
    runnel_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_another_program), cmocka_unit_test(of_encoders),
                                       cmocka_unit_test(heads_over_the_mean),     cmocka_unit_test(forms),
                                       cmocka_unit_test(beside_others),           cmocka_unit_test(hostile_files),
                                       cmocka_unit_test(hostile_requests),        cmocka_unit_test(without_weights)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
