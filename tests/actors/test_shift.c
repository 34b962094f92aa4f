/* Answers that go on when the context is full (context_keep). Two judges: a host that does the same by hand, with a
 * request of its own for each stretch, on the bundled model, to the token; and the oracle model's closed form over what
 * is kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"
#include "tests/sim/manual.h"

#define PROMPT_MOST 128
#define TEXT_MOST 1024

/* What the model sees, and what was told of it. */
struct text {
    int32_t seen[TEXT_MOST];
    uint32_t n_seen, n_prompt, longest, keep;
    int32_t told[TEXT_MOST];
    uint32_t n_told, n_shifts, n_dropped;
};

static void begin(struct text *text, const int32_t *prompt, uint32_t n, uint32_t longest, uint32_t keep)
{
    *text = (struct text){.n_seen = n, .n_prompt = n, .longest = longest, .keep = keep};
    memcpy(text->seen, prompt, n * sizeof prompt[0]);
}

/* One more token, and what becomes of a context that is full, if the answer goes on. */
static void push(struct text *text, int32_t token, uint32_t max_tokens)
{
    uint32_t head = text->keep < text->n_prompt ? text->keep : text->n_prompt, tail = (text->longest - head) / 2;

    text->told[text->n_told++] = text->seen[text->n_seen++] = token;
    if (text->n_seen < text->longest || text->n_told == max_tokens)
        return;
    memmove(text->seen + head, text->seen + text->n_seen - tail, tail * sizeof text->seen[0]);
    text->n_shifts++;
    text->n_dropped += text->n_seen - head - tail;
    text->n_seen = head + tail;
}

static void assert_is(struct capture *capture, const struct text *text)
{
    assert_int_equal(capture->n_terminal, 1);
    assert_int_equal(capture->last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(capture->last.finish, RUNNEL_FINISH_LENGTH);
    assert_int_equal(capture->n_tokens, text->n_told);
    assert_memory_equal(capture->tokens, text->told, text->n_told * sizeof text->told[0]);
    assert_int_equal(capture->last.usage.prompt_tokens, text->n_prompt);
    assert_int_equal(capture->last.usage.completion_tokens, text->n_told);
    assert_int_equal(capture->last.usage.shifts, text->n_shifts);
    assert_int_equal(capture->last.usage.shifted_tokens, text->n_dropped);
    capture_clear(capture);
}

/* ---- By hand ---- */

#define CONTEXT 96

static runnel_request ask_for(struct capture *capture, const int32_t *tokens, uint32_t n, int64_t max_tokens,
                              const runnel_sampling *sampling)
{
    runnel_request request = make_request(NULL, max_tokens, capture);

    *capture = (struct capture){0};
    request.prompt = NULL;
    request.prompt_bytes = 0;
    request.tokens = tokens;
    request.n_tokens = n;
    request.ignore_eos = 1;
    if (sampling != NULL)
        request.sampling = *sampling;
    return request;
}

/* Requests without the field, each behind what the one before has left. */
static void by_hand(runnel_engine *engine, runnel_model *model, struct text *text, uint32_t max_tokens,
                    const runnel_sampling *sampling)
{
    while (text->n_told < max_tokens) {
        uint32_t left = max_tokens - text->n_told, room = text->longest - text->n_seen;
        int32_t prompt[TEXT_MOST];
        struct capture capture;
        runnel_request request;

        memcpy(prompt, text->seen, text->n_seen * sizeof prompt[0]);
        request = ask_for(&capture, prompt, text->n_seen, left < room ? left : room, sampling);
        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
        for (size_t i = 0; i < capture.n_tokens; i++)
            push(text, capture.tokens[i], max_tokens);
        capture_clear(&capture);
    }
}

static uint32_t tokens_of(runnel_model *model, const char *words, int32_t *tokens)
{
    size_t n;

    assert_int_equal(runnel_tokenize(model, words, strlen(words), RUNNEL_TOKENIZE_BOS, tokens, PROMPT_MOST, &n),
                     RUNNEL_OK);
    assert_true(n <= PROMPT_MOST);
    return (uint32_t)n;
}

/* Greedy with and without penalties, alone and beside others, with drafts and without: what a host gets by hand. */
static void same_as_by_hand(void **state)
{
    static const uint32_t keeps[] = {0, 1, 7, 48}, lengths[] = {40, 82, 83, 84, 300};
    runnel_model_options options;
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model, *plain;
    int32_t prompt[PROMPT_MOST];
    bool some = test_device() != NULL;
    uint32_t n;

    (void)state;
    runnel_model_options_default(&options);
    options.context_tokens = CONTEXT;
    options.kv_bytes = shared_kv_bytes();
    plain = load_model(engine, quick_model(), &options);
    options.batch_tokens = 24;
    model = load_model(engine, quick_model(), &options);
    n = tokens_of(model, "Once upon a time there was an old man who had a boat", prompt);
    for (size_t k = some ? 2 : 0; k < (some ? 3 : sizeof keeps / sizeof keeps[0]); k++)
        for (size_t l = some ? 3 : 0; l < (some ? 4 : sizeof lengths / sizeof lengths[0]); l++) {
            const runnel_sampling penalties = {.top_p = 1,
                                               .repetition_penalty = 1.3f,
                                               .frequency_penalty = 0.2f,
                                               .penalty_tokens = l % 2 == 0 ? 0 : 20};
            const runnel_sampling *sampling = l % 2 == k % 2 ? &penalties : NULL;
            struct capture captures[2];
            runnel_request requests[2];
            runnel_stream stream;
            struct text text;

            begin(&text, prompt, n, CONTEXT, keeps[k]);
            by_hand(engine, plain, &text, lengths[l], sampling);
            for (int i = 0; i < 2; i++) { /* two at once: one drafts */
                requests[i] = ask_for(&captures[i], prompt, n, lengths[l], sampling);
                requests[i].context_keep = keeps[k];
                requests[i].draft = i == 1 ? RUNNEL_DRAFT_NGRAM : RUNNEL_DRAFT_NONE;
                assert_int_equal(runnel_generate(model, &requests[i], &stream, NULL), RUNNEL_OK);
            }
            for (int i = 0; i < 2; i++) {
                run_until_end(engine, &captures[i]);
                assert_is(&captures[i], &text);
            }
            assert_true((text.n_shifts > 1) == (lengths[l] == 300));
        }
    assert_quiet(engine, 0);
    runnel_engine_free(engine);
}

/* A drawn text depends on the request alone, and its coins are not thrown again behind a shift. */
static void drawn(void **state)
{
    const runnel_sampling sampling = {.top_p = 1, .repetition_penalty = 1, .temperature = 1.5f, .seed = 5};
    runnel_model_options options;
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model;
    int32_t prompt[PROMPT_MOST];
    struct capture alone, captures[3];
    uint32_t n, n_same = 0;

    (void)state;
    runnel_model_options_default(&options);
    options.context_tokens = CONTEXT;
    options.batch_tokens = 40;
    model = load_model(engine, quick_model(), &options);
    n = tokens_of(model, "The owl", prompt);
    for (int i = -1; i < 3; i++) {
        struct capture *capture = i < 0 ? &alone : &captures[i];
        runnel_request request = ask_for(capture, prompt, n, 250, &sampling);
        runnel_stream stream;

        request.context_keep = 2;
        request.draft = i == 1 ? RUNNEL_DRAFT_NGRAM : RUNNEL_DRAFT_NONE;
        assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
        if (i < 0)
            run_until_end(engine, capture);
    }
    for (int i = 0; i < 3; i++) {
        run_until_end(engine, &captures[i]);
        assert_int_equal(captures[i].n_tokens, 250);
        assert_memory_equal(captures[i].tokens, alone.tokens, 250 * sizeof alone.tokens[0]);
        assert_int_equal(captures[i].last.usage.shifts, alone.last.usage.shifts);
        capture_clear(&captures[i]);
    }
    assert_true(alone.last.usage.shifts >= 3);
    /* With one coin for each place in the context the same noise would fall on the same places, 47 tokens on. */
    for (uint32_t i = 150; i + 47 < 250; i++)
        n_same += alone.tokens[i] == alone.tokens[i + 47];
    assert_true(n_same < 25);
    capture_clear(&alone);
    runnel_engine_free(engine);
}

/* ---- The oracle ---- */

#define LONGEST 40

static int setup(void **state)
{
    const struct manual_plan plan = {
        .limits = {.max_rows = 16,
                   .max_seqs = 4,
                   .max_outs = 8,
                   .n_blocks = 14,
                   .block_tokens = 8,
                   .context_tokens = LONGEST},
        .n_letters = 4,
    };

    (void)state;
    manual_begin(&plan);
    return 0;
}

/* The answer that follows from what is seen. */
static void foretell(struct text *text, uint32_t max_tokens)
{
    while (text->n_told < max_tokens) {
        struct oracle_chain chain;

        oracle_chain_init(&chain, manual.oracle->salt);
        for (uint32_t i = 0; i < text->n_seen; i++)
            oracle_chain_push(&chain, text->seen[i]);
        push(text, oracle_chain_next(&chain, &manual.oracle->alphabet), max_tokens);
    }
}

static const int32_t prompt_tokens[40] = {7,   3,   250, 9,   14,  77,  78,  79,  80,  81,  82,  83, 84, 85,
                                          86,  87,  88,  89,  90,  91,  92,  93,  94,  95,  96,  97, 98, 99,
                                          100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111};

static runnel_stream submit(struct capture *capture, uint32_t first, uint32_t n, int64_t max_tokens, int64_t keep)
{
    runnel_request request = ask_for(capture, prompt_tokens + first, n, max_tokens, NULL);
    runnel_stream stream;

    request.context_keep = keep;
    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
    manual_settle_whole();
    return stream;
}

/* Three at once in room for two and a half: they take blocks from one another, and shift. Long prompts lose a part of
 * themselves. */
static void closed_form(void **state)
{
    static const uint32_t lengths[] = {9, 31, 37};

    (void)state;
    for (uint32_t way = 0; way < 15; way++) {
        uint32_t n = lengths[way / 5], keep = 5 * (way % 5);
        struct capture captures[3];
        struct text text;

        for (uint32_t i = 0; i < 3; i++)
            submit(&captures[i], i, n, 150 + i, keep);
        manual_run_out();
        for (uint32_t i = 0; i < 3; i++) {
            begin(&text, prompt_tokens + i, n, LONGEST, keep);
            foretell(&text, 150 + i);
            assert_true(text.n_shifts > 4);
            assert_is(&captures[i], &text);
        }
    }
    assert_quiet(manual.engine, 0);
}

struct noted {
    uint32_t n, shifts[TEXT_MOST];
};

static void note(struct capture *capture, const runnel_event *event)
{
    struct noted *noted = capture->hook_user;

    if (event->type == RUNNEL_EVENT_TOKEN && event->token >= 0) {
        assert_int_equal(event->usage.completion_tokens, 0); /* the rest is the end's */
        noted->shifts[noted->n++] = (uint32_t)event->usage.shifts;
    }
}

/* A host learns of it while the answer comes: with the token behind it. */
static void told_with_the_token(void **state)
{
    struct noted noted = {0};
    struct capture capture;
    struct text text;
    runnel_request request = ask_for(&capture, prompt_tokens, 9, 100, NULL);
    runnel_stream stream;

    (void)state;
    request.context_keep = 4;
    capture.hook = note;
    capture.hook_user = &noted;
    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
    manual_run_out();
    assert_int_equal(noted.n, 100);
    begin(&text, prompt_tokens, 9, LONGEST, 4);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t before = text.n_shifts;

        push(&text, capture.tokens[i], 100);
        assert_int_equal(noted.shifts[i], before);
    }
    assert_int_equal(capture.last.usage.shifts, text.n_shifts);
    capture_clear(&capture);
}

/* Ended at any point, by the host or a stop string: what was told is the beginning of the whole answer, and the counts
 * are its own. */
static void ended_anywhere(void **state)
{
    struct text text;

    (void)state;
    begin(&text, prompt_tokens, 9, LONGEST, 3);
    foretell(&text, 120);
    for (uint32_t at = 20; at < 110; at += 3) {
        struct capture capture;
        runnel_stream stream = submit(&capture, 0, 9, 120, 3);

        for (uint32_t i = 0; i < at && manual.oracle->first != NULL; i++) {
            oracle_complete(manual.oracle, ORACLE_FAULT_NONE);
            manual_settle_whole();
        }
        assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
        manual_run_out();
        assert_int_equal(capture.n_terminal, 1);
        assert_int_equal(capture.last.type, RUNNEL_EVENT_CANCELLED);
        assert_int_equal(capture.last.usage.completion_tokens, capture.n_tokens);
        assert_memory_equal(capture.tokens, text.told, capture.n_tokens * sizeof text.told[0]);
        capture_clear(&capture);
    }
    for (uint32_t n = 0; n < 60; n++) {
        char stop[8] = {0};
        const char *const stops[] = {stop};
        struct capture capture;
        runnel_request request = ask_for(&capture, prompt_tokens, 9, 120, NULL);
        runnel_stream stream;
        uint32_t end = 0;

        for (uint32_t i = 0; i < 7; i++) /* tokens are letters */
            stop[i] = (char)text.told[n + 20 + i];
        while (memcmp(&text.told[end], &text.told[n + 20], 7 * sizeof text.told[0]) != 0)
            end++;
        request.context_keep = 3;
        request.stops = stops;
        request.n_stops = 1;
        assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
        manual_run_out();
        assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
        assert_int_equal(capture.last.finish, RUNNEL_FINISH_STOP);
        assert_int_equal(capture.last.usage.completion_tokens, end + 7);
        assert_int_equal(capture.text_bytes, end);
        capture_clear(&capture);
    }
    assert_quiet(manual.engine, 0);
}

static void refused(void **state)
{
    struct capture capture;
    runnel_request request = ask_for(&capture, prompt_tokens, 9, 5, NULL);
    runnel_stream stream;
    runnel_error error;
    struct text text;

    (void)state;
    assert_int_equal(request.context_keep, -1);
    request.context_keep = LONGEST / 2 + 1;
    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_INVALID);
    request.context_keep = -2;
    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_INVALID);
    request.context_keep = 0;
    assert_int_equal(runnel_session_new(manual.model, &request.session), RUNNEL_OK);
    assert_int_equal(runnel_generate(manual.model, &request, &stream, &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, "does not go with a session"));
    assert_non_null(strstr(error.message, "leave out its oldest turns"));
    assert_int_equal(runnel_session_free(manual.model, request.session), RUNNEL_OK);
    submit(&capture, 0, 9, -1, -1); /* off, as ever: the context is full */
    manual_run_out();
    begin(&text, prompt_tokens, 9, LONGEST, 0);
    foretell(&text, LONGEST - 9);
    assert_is(&capture, &text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_by_hand),
        cmocka_unit_test(drawn),
        cmocka_unit_test_setup_teardown(closed_form, setup, manual_end),
        cmocka_unit_test_setup_teardown(told_with_the_token, setup, manual_end),
        cmocka_unit_test_setup_teardown(ended_anywhere, setup, manual_end),
        cmocka_unit_test_setup_teardown(refused, setup, manual_end),
    };

    return run_cases(tests, NULL, NULL);
}
