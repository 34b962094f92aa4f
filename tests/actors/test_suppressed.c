/* Tokens that a file suppresses (tokenizer.ggml.suppress_tokens) are never given. Judge: the same weights without the
 * key, asked with biases that forbid the same tokens, and logprobs of what these leave. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "fixture.h"
#include "scratch.h"
#include "tests/model/model_edit.h"

#define PROMPT "Once upon a time"

enum { TOKENS = 16, TOP = 4, MOST = 3 };

static runnel_engine *engine;
static runnel_model *plain, *suppressed;
static struct scratch scratch;
static int32_t ids[MOST]; /* what the plain model says first, what it says next, and the neighbour of that */
static runnel_logit_bias biases[MOST];

struct noted {
    struct capture capture;
    float logprobs[TOKENS];
    runnel_logprob tops[TOKENS][TOP];
    size_t n;
};

static void note(struct capture *capture, const runnel_event *event)
{
    struct noted *noted = capture->hook_user;

    if (event->type != RUNNEL_EVENT_TOKEN || event->token < 0 || noted->n == TOKENS)
        return;
    noted->logprobs[noted->n] = event->logprob;
    for (uint32_t i = 0; i < event->n_top && i < TOP; i++)
        noted->tops[noted->n][i] = event->top[i];
    noted->n++;
}

static runnel_request ask(struct noted *noted, int64_t n)
{
    runnel_request request = make_request(PROMPT, n, &noted->capture);

    memset(noted, 0, sizeof *noted);
    noted->capture.hook = note;
    noted->capture.hook_user = noted;
    request.ignore_eos = 1;
    return request;
}

static void forbid(runnel_request *request)
{
    request->sampling.biases = biases;
    request->sampling.n_biases = MOST;
}

/* ---- The two models ---- */

static const char *save(const char *from)
{
    const int32_t listed[] = {ids[1], -7, 1 << 30, ids[0], ids[2], ids[0]}; /* some are no tokens of the model */
    static struct model_edit edit;
    struct rn_gguf *gguf;
    struct rn_heap heap;
    struct writer w = {0};
    const char *path;

    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_gguf_open(&heap, from, &gguf, NULL), RUNNEL_OK);
    edit_from(&edit, gguf);
    edit_i32s(&edit, "tokenizer.ggml.suppress_tokens", listed, sizeof listed / sizeof listed[0]);
    edit_write(&edit, &w);
    path = scratch_save(&scratch, "suppressed.gguf", w.bytes, w.n);
    w_free(&w);
    rn_gguf_free(gguf);
    assert_int_equal(rn_heap_blocks(&heap), 0);
    return path;
}

static int setup(void **state)
{
    runnel_model_options options;
    struct noted noted;
    runnel_request request = ask(&noted, 2);

    (void)state;
    scratch_open(&scratch);
    engine = start_engine(NULL);
    runnel_model_options_default(&options);
    options.kv_bytes = shared_kv_bytes();
    plain = load_model(engine, quick_model(), &options);
    assert_int_equal(run_request(engine, plain, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(noted.n, 2);
    ids[0] = noted.capture.tokens[0];
    ids[1] = noted.capture.tokens[1];
    ids[2] = ids[1] + 1;
    for (int i = 0; i < MOST; i++)
        biases[i] = (runnel_logit_bias){ids[i], -INFINITY};
    capture_clear(&noted.capture);
    suppressed = load_model(engine, save(quick_model()), &options);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_quiet(engine, 0);
    runnel_engine_free(engine);
    scratch_close(&scratch);
    return 0;
}

/* ---- Cases ---- */

static bool is_listed(int32_t token)
{
    for (int i = 0; i < MOST; i++)
        if (token == ids[i])
            return true;
    return false;
}

static void assert_same(const struct noted *got, const struct noted *want)
{
    assert_true(got->n > 0);
    assert_int_equal(got->n, want->n);
    for (size_t i = 0; i < got->n; i++) {
        if (got->capture.tokens[i] != want->capture.tokens[i] || is_listed(got->capture.tokens[i]))
            fail_msg("token %zu is %d, and with biases %d", i, (int)got->capture.tokens[i],
                     (int)want->capture.tokens[i]);
        if (fabsf(got->logprobs[i] - want->logprobs[i]) > 1e-4f)
            fail_msg("token %zu: logprob %g, and with biases %g", i, (double)got->logprobs[i],
                     (double)want->logprobs[i]);
        for (int k = 0; k < TOP; k++) {
            assert_int_equal(got->tops[i][k].token, want->tops[i][k].token);
            assert_true(fabsf(got->tops[i][k].logprob - want->tops[i][k].logprob) < 1e-4f);
        }
    }
}

/* Logprobs are those of all that may be given: of the judge, what biases leave at temperature 1. */
static void greedy_and_drawn(void **state)
{
    for (int drawn = 0; drawn < 2; drawn++) {
        struct noted got, want;
        runnel_request request = ask(&got, UNLESS_EMULATED(TOKENS, 4));
        runnel_samplers after;

        (void)state;
        request.sampling.temperature = drawn ? 1 : 0;
        request.sampling.seed = 7;
        request.want_logprobs = drawn != 0;
        request.n_top = drawn ? TOP : 0;
        assert_int_equal(run_request(engine, suppressed, &request), RUNNEL_EVENT_DONE);
        request = ask(&want, UNLESS_EMULATED(TOKENS, 4));
        request.sampling.temperature = drawn ? 1 : 0;
        request.sampling.seed = 7;
        request.want_logprobs = drawn != 0;
        request.n_top = drawn ? TOP : 0;
        forbid(&request);
        runnel_samplers_default(&after);
        after.logprobs_after = drawn != 0;
        request.sampling.samplers = &after;
        assert_int_equal(run_request(engine, plain, &request), RUNNEL_EVENT_DONE);
        assert_same(&got, &want);
        capture_clear(&got.capture);
        capture_clear(&want.capture);
    }
}

/* Guesses, and what a grammar allows. */
static void drafted_and_guided(void **state)
{
    for (int guided = 0; guided < 2; guided++) {
        struct noted got, want;
        runnel_request request = ask(&got, TOKENS);
        runnel_grammar grammar;

        (void)state;
        runnel_grammar_default(&grammar);
        grammar.kind = RUNNEL_GRAMMAR_REGEX;
        grammar.text = "[a-z A-Z.,]{200}";
        grammar.text_bytes = strlen(grammar.text);
        request.draft = RUNNEL_DRAFT_NGRAM;
        request.grammar = guided ? &grammar : NULL;
        assert_int_equal(run_request(engine, suppressed, &request), RUNNEL_EVENT_DONE);
        request = ask(&want, TOKENS);
        request.grammar = guided ? &grammar : NULL;
        forbid(&request);
        assert_int_equal(run_request(engine, plain, &request), RUNNEL_EVENT_DONE);
        assert_same(&got, &want);
        capture_clear(&got.capture);
        capture_clear(&want.capture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_and_drawn),
        cmocka_unit_test(drafted_and_guided),
    };

    return run_cases(tests, setup, teardown);
}
