/* chunk-mean through the whole engine: the bundled model's text does not depend on batches, company or memory; a
 * sequence that fits the window is what it is without; and 100,000 positions in a pool for 2,240, with the oracle
 * model, whose text is known in closed form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/kv_size.h"
#include "tests/actors/fixture.h"
#include "tests/sim/manual.h"

/* LONG: more positions than fit WINDOW; LONGER: more than fit WINDOW + 1, and the text is another. */
enum { WINDOW = 64, LONG = UNLESS_SLOW(420, 260), LONGER = 420, STREAMS = 4 };

static const char *const prompts[STREAMS] = {"Once upon a time", "One day, a dog", "Lily and Tom were",
                                             "The big red ball"};

static runnel_model_options options_of(uint32_t chunk_mean, uint32_t batch, uint64_t kv_bytes)
{
    runnel_model_options options;

    runnel_model_options_default(&options);
    options.chunk_mean = chunk_mean;
    options.batch_tokens = batch;
    options.kv_bytes = kv_bytes;
    return options;
}

/* The answer to prompts[which] of n tokens, alone. */
static char *answer(const runnel_model_options *options, uint32_t which, int64_t n)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), options);
    struct capture capture = {0};
    runnel_request request = make_request(prompts[which], n, &capture);
    char *text;

    request.ignore_eos = 1;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(capture.n_tokens, n);
    assert_quiet(engine, 0);
    text = capture.text;
    capture.text = NULL;
    capture_clear(&capture);
    runnel_model_free(model);
    runnel_engine_free(engine);
    return text;
}

static void expect_same(const char *text, const char *wanted, const char *what)
{
    if (strcmp(text, wanted) != 0)
        fail_msg("%s: \"%s\", not \"%s\"", what, text, wanted);
}

static void short_sequences_lose_nothing(void **state)
{
    runnel_model_options with = options_of(WINDOW + 1, 0, 0), without = options_of(0, 0, 0);
    char *wanted = answer(&without, 0, 2 * WINDOW),
         *text = answer(&with, 0, 2 * WINDOW); /* of 192 positions and more */

    (void)state;
    expect_same(text, wanted, "a sequence that fits");
    free(text);
    text = answer(&with, 0, LONGER);
    free(wanted);
    wanted = answer(&without, 0, LONGER);
    assert_true(strcmp(text, wanted) != 0); /* or nothing would be tested below */
    free(text);
    free(wanted);
}

/* All prompts at once in memory for less than two of them: they are taken back, and compute again. */
static void run_together(const runnel_model_options *options, char *const *wanted)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), options);
    runnel_engine_stats stats = {.struct_size = sizeof stats};
    struct capture captures[STREAMS] = {0};
    runnel_stream stream;

    for (uint32_t i = 0; i < STREAMS; i++) {
        runnel_request request = make_request(prompts[i], LONG, &captures[i]);

        request.ignore_eos = 1;
        assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    }
    for (uint32_t i = 0; i < STREAMS; i++)
        run_until_end(engine, &captures[i]);
    runnel_engine_get_stats(engine, &stats);
    assert_true(options->kv_bytes == 0 || stats.preemptions > 0);
    for (uint32_t i = 0; i < STREAMS; i++) {
        expect_same(captures[i].text, wanted[i], "beside others");
        capture_clear(&captures[i]);
    }
    assert_quiet(engine, 0);
    runnel_model_free(model);
    runnel_engine_free(engine);
}

/* Bytes that n sequences of LONG positions need, of the model's f16. */
static uint64_t bytes_for(double n)
{
    runnel_model_options options = options_of(WINDOW, 16, 0);
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), &options);
    runnel_model_info info = {.struct_size = sizeof info};

    assert_int_equal(runnel_model_get_info(model, &info), RUNNEL_OK);
    assert_int_equal(info.chunk_mean, WINDOW);
    assert_true(info.kv_bytes_longest < info.kv_bytes_per_token * info.context_tokens);
    assert_true(info.kv_bytes >= info.kv_bytes_longest);
    runnel_model_free(model);
    runnel_engine_free(engine);
    return (uint64_t)(n * (double)info.kv_bytes_longest);
}

static void text_does_not_depend_on_the_schedule(void **state)
{
    runnel_model_options options = options_of(WINDOW, 0, 0);
    char *wanted[STREAMS], *text;

    (void)state;
    for (uint32_t i = 0; i < STREAMS; i++)
        wanted[i] = answer(&options, i, LONG);
    for (uint32_t batch = 8; batch <= 128; batch *= 16) {
        options = options_of(WINDOW, batch, 0);
        text = answer(&options, 1, LONG);
        expect_same(text, wanted[1], "in other batches");
        free(text);
    }
    options = options_of(WINDOW, 0, 0);
    run_together(&options, wanted);
    options = options_of(WINDOW, 16, bytes_for(1.5));
    run_together(&options, wanted);
    for (uint32_t i = 0; i < STREAMS; i++)
        free(wanted[i]);
}

/* The second turn computes the first one's positions again, and comes to what one prompt comes to. */
static void sessions_go_on(void **state)
{
    runnel_model_options options = options_of(WINDOW, 0, 0);
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), &options);
    struct capture first = {0}, second = {0}, whole = {0};
    runnel_request request = make_request(prompts[0], LONG / 2, &first);
    runnel_session session;
    int32_t tokens[LONG];

    (void)state;
    assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
    request.ignore_eos = 1;
    request.session = session;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_quiet(engine, 0);
    memcpy(tokens, first.tokens, LONG / 4 * sizeof tokens[0]); /* some tokens that can be */
    request.prompt = NULL;
    request.prompt_bytes = 0;
    request.tokens = tokens;
    request.n_tokens = LONG / 4;
    request.user = &second;
    request.max_tokens = 60;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(second.last.usage.cached_tokens, 0);
    runnel_session_free(model, session);

    /* The same as one prompt. */
    {
        int32_t all[2 * LONG];
        size_t n = 0;

        assert_int_equal(runnel_tokenize(model, prompts[0], strlen(prompts[0]), RUNNEL_TOKENIZE_BOS, all, LONG, &n),
                         RUNNEL_OK);
        memcpy(all + n, first.tokens, first.n_tokens * sizeof all[0]);
        memcpy(all + n + first.n_tokens, tokens, LONG / 4 * sizeof all[0]);
        request.tokens = all;
        request.n_tokens = n + first.n_tokens + LONG / 4;
        request.session = (runnel_session){0};
        request.user = &whole;
        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    }
    assert_int_equal(second.n_tokens, whole.n_tokens);
    assert_memory_equal(second.tokens, whole.tokens, whole.n_tokens * sizeof whole.tokens[0]);
    capture_clear(&first);
    capture_clear(&second);
    capture_clear(&whole);
    runnel_model_free(model);
    runnel_engine_free(engine);
}

static void bad_options_are_refused(void **state)
{
    runnel_model_options options = options_of(UINT32_MAX, 0, 0);
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model;
    runnel_error error;

    (void)state;
    assert_int_equal(runnel_model_load(engine, quick_model(), &options, &model, &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, "chunk_mean"));
    runnel_engine_free(engine);
}

/* ---- 100,000 positions ---- */

enum { POSITIONS = 100000, ANSWER = 40 };

/* rows 256, window 256: 21 blocks of positions; 100,040 / 64 means are in 49. */
static const struct rn_backend_limits limits = {.max_rows = 256,
                                                .max_seqs = 12,
                                                .max_outs = 12,
                                                .n_blocks = 70,
                                                .block_tokens = 32,
                                                .context_tokens = 131072,
                                                .mean_window = 256};

struct told {
    int32_t tokens[ANSWER];
    uint32_t n;
    runnel_event last;
};

static void tell(void *user, const runnel_event *event)
{
    struct told *told = user;

    if (event->type == RUNNEL_EVENT_TOKEN && event->token >= 0 && told->n < ANSWER)
        told->tokens[told->n++] = event->token;
    if (event->type >= RUNNEL_EVENT_DONE)
        told->last = *event;
}

/* To the end; returns the most blocks that were in use. */
static uint64_t run_oracle(runnel_engine *engine, struct oracle *oracle, const struct told *told)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};
    uint64_t most = 0;

    while (told->last.type < RUNNEL_EVENT_DONE) {
        manual_run(engine);
        if (oracle->first != NULL)
            oracle_complete(oracle, ORACLE_FAULT_NONE);
        runnel_engine_dispatch(engine, 0);
        runnel_engine_get_stats(engine, &stats);
        most = stats.blocks_used > most ? stats.blocks_used : most;
    }
    return most;
}

static void long_streams_fit_small_pools(void **state)
{
    int32_t *prompt = malloc(POSITIONS * 2 * sizeof *prompt);
    struct told told = {.n = 0};
    struct oracle *oracle;
    struct oracle_chain chain;
    runnel_model *model;
    runnel_engine *engine;
    const struct manual_plan plan = {.limits = limits, .n_letters = 3};
    runnel_stream stream;
    runnel_request request;
    runnel_error error;

    (void)state;
    manual_open(&plan, &engine, &model, &oracle);
    oracle_chain_init(&chain, 1);
    for (uint32_t i = 0; i < 2 * POSITIONS; i++)
        prompt[i] = (int32_t)(i * 7 % 250);
    runnel_request_default(&request);
    request.tokens = prompt;
    request.n_tokens = rn_kv_size_positions(&limits); /* one position more than fits */
    request.max_tokens = ANSWER;
    request.ignore_eos = 1;
    request.on_event = tell;
    request.user = &told;
    assert_int_equal(runnel_generate(model, &request, &stream, &error), RUNNEL_CONTEXT);
    request.n_tokens = POSITIONS;
    assert_int_equal(runnel_generate(model, &request, &stream, &error), RUNNEL_OK);
    assert_true(run_oracle(engine, oracle, &told) <= limits.n_blocks);
    assert_int_equal(told.last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(told.last.usage.prompt_tokens, POSITIONS);
    assert_int_equal(told.n, ANSWER);
    for (uint32_t i = 0; i < POSITIONS; i++)
        oracle_chain_push(&chain, prompt[i]);
    for (uint32_t i = 0; i < ANSWER; i++) {
        assert_int_equal(told.tokens[i], oracle_chain_next(&chain, &oracle->alphabet));
        oracle_chain_push(&chain, told.tokens[i]);
    }
    manual_close(engine, oracle);
    free(prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(short_sequences_lose_nothing),
                                       cmocka_unit_test(text_does_not_depend_on_the_schedule),
                                       cmocka_unit_test(sessions_go_on), cmocka_unit_test(bad_options_are_refused),
                                       cmocka_unit_test(long_streams_fit_small_pools)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
