/* Texts that a model with recurrent states sees both ways: each step has all of a text, and what a state was before
 * counts for nothing, however the logits of a text are shared out among steps. Judge: llama.cpp's logits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../model/model_edit.h"
#include "fixture.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"
#include "tests/oracle/run_plan.h"

#define MODEL "lfm2-made-ways"
enum { STREAMS = 3 };

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
static void save(const char *path, int fd)
{
    static struct model_edit edit;
    struct writer made = {0}, w = {0};
    struct rn_gguf *gguf;

    made_model_write(MADE_TEXT(MODEL), &made);
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
        request = make_request("", 0, &captures[i]);
        request.prompt = NULL;
        request.prompt_bytes = 0;
        request.tokens = oracle.tokens;
        request.n_tokens = oracle.n_tokens;
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

static void logits_of_whole_texts(void **state)
{
    char path[] = "/tmp/runnel-ways-XXXXXX";
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options;
    runnel_model *model;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    rn_heap_init(&heap, NULL);
    oracle_open(&heap, MADE_LOGITS(MODEL), &oracle);
    save(path, fd);
    runnel_model_options_default(&options);
    options.kv_type = RUNNEL_KV_F32;
    model = load_model(engine, path, &options);
    judge(engine, model, 1);
    judge(engine, model, 1); /* what the first one left behind is no beginning for it */
    judge(engine, model, STREAMS);
    runnel_engine_free(engine);
    unlink(path);
    oracle_close(&heap, &oracle);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(logits_of_whole_texts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
