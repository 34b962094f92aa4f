/* Texts that a model sees both ways: each step has all of a text, and what a recurrent state was before counts for
 * nothing, however the logits of a text are shared out among steps; an embedding is that of the text as a whole, and no
 * text begins with what another one has left. Judge: llama.cpp's logits and embeddings. Encoders give the
 * latter alone. */
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
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"
#include "tests/oracle/run_plan.h"
#include "tests/support/nmse.h"

#define STATES "lfm2-made-ways"
#define ATTENTION "dream-made"
#define ENCODER "bert-made"
#define WINDOWS "modern-bert-made"
enum { STREAMS = 3, LONGEST = 96 };

static struct rn_heap heap;
static struct oracle oracle;

struct judged {
    float *logits; /* [n_tokens, n_vocab] */
    uint32_t n;
};

static void on_event(struct capture *capture, const runnel_event *event)
{
    struct judged *j = capture->hook_user;

    if (event->type != RUNNEL_EVENT_LOGITS)
        return;
    assert_int_equal(event->n_logits, oracle.n_vocab);
    assert_true(j->n < oracle.n_tokens);
    memcpy(j->logits + (size_t)j->n++ * oracle.n_vocab, event->logits, oracle.n_vocab * sizeof(float));
}

/* Without a tokenizer: tokens go in, no text comes out. */
static void save(const char *name, const char *path, int fd)
{
    static struct model_edit edit;
    struct writer made = {0}, w = {0};
    struct rn_gguf *gguf;

    made_model_write(name, &made);
    assert_int_equal(rn_gguf_parse(&heap, made.bytes, made.n, path, &gguf, NULL), RUNNEL_OK);
    edit_from(&edit, gguf);
    edit_text(&edit, "tokenizer.ggml.model", "none");
    edit_write(&edit, &w);
    assert_int_equal(write(fd, w.bytes, w.n), w.n);
    close(fd);
    rn_gguf_free(gguf);
    w_free(&made);
    w_free(&w);
}

static runnel_request tokens_request(uint32_t n_tokens, int64_t max_tokens, struct capture *capture)
{
    runnel_request request = make_request("", max_tokens, capture);

    request.prompt = NULL;
    request.prompt_bytes = 0;
    request.tokens = oracle.tokens;
    request.n_tokens = n_tokens;
    return request;
}

/* `n` streams with the same text at once. */
static void judge(runnel_engine *engine, runnel_model *model, uint32_t n)
{
    const size_t all = (size_t)oracle.n_tokens * oracle.n_vocab;
    struct judged judged[STREAMS];
    struct capture captures[STREAMS];
    runnel_request request;
    runnel_stream stream;
    runnel_error error = {0};

    for (uint32_t i = 0; i < n; i++) {
        judged[i] = (struct judged){.logits = calloc(all, sizeof(float))};
        captures[i] = (struct capture){.hook = on_event, .hook_user = &judged[i]};
        request = tokens_request(oracle.n_tokens, 0, &captures[i]);
        request.want_logits = 1;
        if (runnel_generate(model, &request, &stream, &error) != RUNNEL_OK)
            fail_msg("%s", error.message);
    }
    for (uint32_t i = 0; i < n; i++) {
        run_until_end(engine, &captures[i]);
        assert_int_equal(captures[i].last.type, RUNNEL_EVENT_DONE);
        assert_int_equal(judged[i].n, oracle.n_tokens);
        assert_true(nmse(judged[i].logits, oracle.logits, all) <= 1e-6);
        free(judged[i].logits);
        capture_clear(&captures[i]);
    }
}

/* An engine with the made model of these files; the oracle has its tokens and logits. */
static runnel_engine *begin(const char *text, const char *logits, uint32_t batch, runnel_model **model)
{
    char path[] = "/tmp/runnel-ways-XXXXXX";
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options;
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    rn_heap_init(&heap, NULL);
    oracle_open(&heap, logits, &oracle);
    save(text, path, fd);
    runnel_model_options_default(&options);
    options.kv_type = RUNNEL_KV_F32;
    options.batch_tokens = batch;
    *model = load_model(engine, path, &options);
    unlink(path);
    return engine;
}

static void end(runnel_engine *engine)
{
    runnel_engine_free(engine);
    oracle_close(&heap, &oracle);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void logits_of_whole_texts(void **state)
{
    runnel_model *model;
    runnel_engine *engine = begin(MADE_TEXT(STATES), MADE_LOGITS(STATES), 0, &model);

    (void)state;
    judge(engine, model, 1);
    judge(engine, model, 1); /* what the first one left behind is no beginning for it */
    judge(engine, model, STREAMS);
    end(engine);
}

/* ---- Embeddings ---- */

static const char *const poolings[] = {
    [RUNNEL_POOLING_MEAN] = "mean", [RUNNEL_POOLING_FIRST] = "first", [RUNNEL_POOLING_LAST] = "last"};

/* The other program's: values[EMBED_MOST]. */
static uint32_t read_embedding(const char *name, const char *pooling, float *values)
{
    FILE *file = fopen("tests/actors/embed/embeddings_both_ways.txt", "r");
    char line[1 << 14], of[64], pooled[16];
    uint32_t n = 0;

    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        int at = 0, skip = 0;

        if (line[0] == '#' || sscanf(line, "%63s %15s %u%n", of, pooled, &n, &at) != 3 || strcmp(of, name) != 0 ||
            strcmp(pooled, pooling) != 0)
            continue;
        assert_true(n <= EMBED_MOST);
        for (uint32_t i = 0; i < n; i++, at += skip)
            assert_int_equal(sscanf(line + at, "%f%n", &values[i], &skip), 1);
        fclose(file);
        return n;
    }
    fail_msg("no embedding of %s, %s", name, pooling);
    return 0;
}

static runnel_embed_request request_of(const int32_t *tokens, uint32_t n, runnel_pooling pooling, struct vector *v)
{
    runnel_embed_request request = embed_request("", pooling, true, v);

    request.text = NULL;
    request.text_bytes = 0;
    request.tokens = tokens;
    request.n_tokens = n;
    return request;
}

/* Of the oracle's tokens three times in a row, which are several blocks, without the last ones. */
static void embed_tokens(runnel_model *model, runnel_pooling pooling, uint32_t left_out, struct vector *v,
                         runnel_stream *stream)
{
    int32_t tokens[LONGEST];
    runnel_embed_request request = request_of(tokens, 3 * oracle.n_tokens - left_out, pooling, v);

    assert_true(3 * oracle.n_tokens <= LONGEST);
    for (uint32_t i = 0; i < 3 * oracle.n_tokens; i++)
        tokens[i] = oracle.tokens[i % oracle.n_tokens];
    embed_submit(model, &request, stream);
}

/* Each pooling twice at once, behind texts that begin alike and end otherwise. */
static void judge_embeddings(runnel_engine *engine, runnel_model *model, const char *name)
{
    static struct vector got[3], shorter;
    static float want[EMBED_MOST];
    runnel_stream stream;
    uint32_t n;

    for (runnel_pooling pooling = RUNNEL_POOLING_MEAN; pooling <= RUNNEL_POOLING_LAST; pooling++) {
        embed_tokens(model, pooling, 3, &shorter, &stream);
        embed_await(engine, &shorter);
        for (uint32_t i = 0; i < 3; i++)
            embed_tokens(model, pooling, i == 1 ? 5 : 0, &got[i], &stream);
        n = read_embedding(name, poolings[pooling], want);
        for (uint32_t i = 0; i < 3; i++) {
            embed_await(engine, &got[i]);
            assert_int_equal(got[i].n, n);
            if (i != 1)
                assert_true(nmse(got[i].values, want, n) <= 1e-6);
        }
        assert_true(nmse(shorter.values, want, n) > 1e-4); /* what is left out counts everywhere */
        assert_true(nmse(got[1].values, want, n) > 1e-4);
    }
}

static void embeddings_of_whole_texts(void **state)
{
    runnel_model *model;
    runnel_engine *engine = begin(MADE_TEXT(STATES), MADE_LOGITS(STATES), 0, &model);

    (void)state;
    judge_embeddings(engine, model, STATES);
    end(engine);
    engine = begin(MADE_TEXT(ATTENTION), MADE_LOGITS(ATTENTION), 0, &model);
    judge_embeddings(engine, model, ATTENTION);
    judge(engine, model, STREAMS);
    end(engine);
    engine = begin(MADE_TEXT(ENCODER), MADE_LOGITS(ENCODER), 0, &model);
    judge_embeddings(engine, model, ENCODER);
    end(engine);
    engine = begin(MADE_TEXT(WINDOWS), MADE_LOGITS(WINDOWS), 0, &model);
    judge_embeddings(engine, model, WINDOWS);
    end(engine);
}

/* Tokens and logits are refused, whether a model sees both ways or not. */
static void encoders_give_no_logits(void **state)
{
    static const char *const names[][2] = {
        {MADE_TEXT(ENCODER), MADE_LOGITS(ENCODER)},
        {MADE_TEXT("llama-embed-made-causal"), MADE_LOGITS("llama-embed-made-causal")}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        runnel_model *model;
        runnel_engine *engine = begin(names[i][0], names[i][1], 0, &model);
        struct capture capture = {0};
        struct vector v;
        runnel_error error = {0};
        runnel_stream stream;

        for (int wanted = 0; wanted < 2; wanted++) {
            runnel_request request = tokens_request(4, wanted ? 0 : 5, &capture);

            request.want_logits = wanted;
            assert_int_equal(runnel_generate(model, &request, &stream, &error), RUNNEL_UNSUPPORTED);
            assert_non_null(strstr(error.message, "gives embeddings, and no logits"));
        }
        embed_tokens(model, RUNNEL_POOLING_LAST, 0, &v, &stream);
        embed_await(engine, &v);
        capture_clear(&capture);
        end(engine);
    }
}

/* One token after the other is refused, and so is a text that is longer than a step. */
static void what_is_refused(void **state)
{
    runnel_model *model;
    runnel_engine *engine = begin(MADE_TEXT(ATTENTION), MADE_LOGITS(ATTENTION), 16, &model);
    struct capture capture = {0};
    runnel_request request = tokens_request(4, 5, &capture);
    runnel_embed_request embed;
    struct vector v;
    runnel_error error = {0};
    runnel_stream stream;

    (void)state;
    assert_int_equal(runnel_generate(model, &request, &stream, &error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(error.message, "attends in both directions"));
    embed = request_of(oracle.tokens, 17, RUNNEL_POOLING_MEAN, &v);
    assert_int_equal(runnel_embed(model, &embed, &stream, &error), RUNNEL_CONTEXT);
    assert_non_null(strstr(error.message, "16"));
    embed.n_tokens = 16;
    embed_submit(model, &embed, &stream);
    embed_await(engine, &v);
    capture_clear(&capture);
    end(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(logits_of_whole_texts),
                                       cmocka_unit_test(embeddings_of_whole_texts),
                                       cmocka_unit_test(encoders_give_no_logits), cmocka_unit_test(what_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
