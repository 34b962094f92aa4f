/* What a request's parameters do to its text: stops, limits, seeds, logprobs, logits, progress; sessions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/shared.h"
#include "fixture.h"

static runnel_engine *engine;
static runnel_model *model;

static int setup(void **state)
{
    (void)state;
    engine = start_engine(NULL);
    model = load_model(engine, quick_model(), NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_quiet(engine, 0);
    runnel_engine_free(engine);
    return 0;
}

#define PROMPT "Once upon a time"

/* Ids that are none are refused, and nothing is left out. */
static void ids_outside(void **state)
{
    runnel_model_info info = {.struct_size = sizeof info};
    int32_t ids[2] = {0};
    size_t n = 1;

    (void)state;
    assert_int_equal(runnel_model_get_info(model, &info), RUNNEL_OK);
    ids[1] = (int32_t)info.vocab_tokens - 1;
    assert_int_equal(runnel_detokenize(model, ids, 2, 0, NULL, 0, &n), RUNNEL_OK);
    assert_int_equal(runnel_token_text(model, ids[1], 0, NULL, 0, &n), RUNNEL_OK);
    ids[1]++;
    assert_int_equal(runnel_detokenize(model, ids, 2, 0, NULL, 0, &n), RUNNEL_INVALID);
    assert_int_equal(runnel_token_text(model, ids[1], 0, NULL, 0, &n), RUNNEL_INVALID);
    assert_int_equal(runnel_token_text(model, -1, 0, NULL, 0, &n), RUNNEL_INVALID);
    ids[1] = -1;
    assert_int_equal(runnel_detokenize(model, ids, 2, 0, NULL, 0, &n), RUNNEL_INVALID);
    assert_int_equal(n, 0);
}

/* Of a vocabulary whose words have their space in front, the first one's, too, that a text leaves out. */
static void text_of_one_token(void **state)
{
    runnel_model *spaced;
    int32_t ids[8] = {0};
    char path[512], text[64], whole[64];
    size_t count = 0, n = 0, at = 0;

    (void)state;
    if (!shared_find("models/stories260K.gguf", path, sizeof path))
        skip();
    spaced = load_model(engine, path, NULL);
    assert_int_equal(runnel_tokenize(spaced, "a b", 3, 0, ids, 8, &count), RUNNEL_OK);
    assert_int_equal(count, 2);
    for (size_t i = 0; i < count; i++, at += n)
        assert_int_equal(runnel_token_text(spaced, ids[i], 0, text + at, sizeof text - at, &n), RUNNEL_OK);
    assert_int_equal(at, 4);
    assert_memory_equal(text, " a b", 4);
    assert_int_equal(runnel_detokenize(spaced, ids, count, 0, whole, sizeof whole, &n), RUNNEL_OK);
    assert_int_equal(n, 3);
    assert_memory_equal(whole, "a b", 3);
    assert_int_equal(runnel_token_text(spaced, ids[0], 0, text, 1, &n), RUNNEL_OK); /* a part, and its whole size */
    assert_int_equal(n, 2);
    assert_int_equal(runnel_token_text(spaced, 1, 0, NULL, 0, &n), RUNNEL_OK); /* BOS */
    assert_int_equal(n, 0);
    assert_int_equal(runnel_token_text(spaced, 1, 1, text, sizeof text, &n), RUNNEL_OK);
    assert_true(n > 0);
    runnel_model_free(spaced);
    await_models(engine, 1);
}

/* A stop string ends the text before it, wherever tokens cut it, and the token that completed it counts. */
static void stop_strings(void **state)
{
    struct capture whole = {0}, cut = {0};
    runnel_request request = make_request(PROMPT, 60, &whole);
    char stop[16];
    const char *stops[] = {"\xe2\x82\xac never", stop};

    (void)state;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    for (size_t at = 1; at + 12 < whole.text_bytes; at += UNLESS_SLOW(7, 31)) {
        const char *first;
        size_t n_tokens = 0, bytes = 0;

        snprintf(stop, sizeof stop, "%.*s", (int)(1 + at % 9), whole.text + at);
        first = strstr(whole.text, stop);
        request = make_request(PROMPT, 60, &cut);
        request.stops = stops;
        request.n_stops = 2;
        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
        assert_int_equal(cut.last.finish, RUNNEL_FINISH_STOP);
        assert_int_equal(cut.last.stop, 1);
        assert_int_equal(cut.last.stop_token, -1);
        assert_int_equal(cut.last.token, -1); /* the last one has an event, if without text */
        assert_int_equal(cut.text_bytes, first - whole.text);
        assert_memory_equal(cut.text_bytes ? cut.text : "", whole.text, cut.text_bytes);
        /* usage: the fewest tokens whose text holds the stop string */
        while (bytes < (size_t)(first - whole.text) + strlen(stop)) {
            size_t piece = 0;

            assert_int_equal(runnel_detokenize(model, &whole.tokens[n_tokens++], 1, 0, NULL, 0, &piece), RUNNEL_OK);
            bytes += piece;
        }
        assert_int_equal(cut.last.usage.completion_tokens, n_tokens);
        capture_clear(&cut);
    }
    capture_clear(&whole);
}

static void stop_tokens(void **state)
{
    struct capture whole = {0}, cut = {0};
    runnel_request request = make_request(PROMPT, 30, &whole);
    size_t first = 0;

    (void)state;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_true(whole.n_tokens > 12);
    while (whole.tokens[first] != whole.tokens[12])
        first++;
    request = make_request(PROMPT, 30, &cut);
    request.stop_tokens = &whole.tokens[12];
    request.n_stop_tokens = 1;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(cut.last.finish, RUNNEL_FINISH_STOP);
    assert_int_equal(whole.last.stop, -1);
    assert_int_equal(whole.last.stop_token, -1);
    assert_int_equal(cut.last.stop, -1);
    assert_int_equal(cut.last.stop_token, whole.tokens[12]);
    assert_int_equal(cut.last.token, whole.tokens[12]);
    assert_int_equal(whole.last.token, -1);
    assert_int_equal(cut.n_tokens, first);
    assert_int_equal(cut.last.usage.completion_tokens, first + 1);
    capture_clear(&whole);
    capture_clear(&cut);
}

/* The same seed gives the same text, another one (with enough heat) another text. */
static void seeds(void **state)
{
    struct capture a = {0}, b = {0}, c = {0};
    runnel_request request = make_request(PROMPT, 40, &a);

    (void)state;
    request.sampling.temperature = 1.5f;
    request.sampling.seed = 7;
    request.ignore_eos = 1;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    request.user = &b;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    request.user = &c;
    request.sampling.seed = 8;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_memory_equal(a.tokens, b.tokens, a.n_tokens * sizeof(int32_t));
    assert_memory_not_equal(a.tokens, c.tokens, a.n_tokens * sizeof(int32_t));
    capture_clear(&a);
    capture_clear(&b);
    capture_clear(&c);
}

/* The prompt's logits, and the first token's logprobs, judged by each other in double precision. */
struct judged {
    float *last_logits;
    uint32_t n_logits;
    uint64_t next_position;
    float logprob, top[5];
    int32_t token, top_token[5];
};

static void on_judged(struct capture *capture, const runnel_event *event)
{
    struct judged *j = capture->hook_user;

    if (event->type == RUNNEL_EVENT_LOGITS) {
        assert_int_equal(event->position, j->next_position++);
        j->n_logits = event->n_logits;
        j->last_logits = realloc(j->last_logits, event->n_logits * sizeof(float));
        memcpy(j->last_logits, event->logits, event->n_logits * sizeof(float));
    } else if (event->type == RUNNEL_EVENT_TOKEN && capture->n_tokens == 1) {
        j->token = event->token;
        j->logprob = event->logprob;
        assert_int_equal(event->n_top, 5);
        for (int i = 0; i < 5; i++) {
            j->top[i] = event->top[i].logprob;
            j->top_token[i] = event->top[i].token;
        }
    }
}

static void logprobs_and_logits(void **state)
{
    struct judged j = {0};
    struct capture capture = {.hook = on_judged, .hook_user = &j};
    runnel_request request = make_request("The little owl lived in a tall tree near the river and never", 3, &capture);
    double sum = 0, max = -INFINITY;

    (void)state;
    request.ignore_eos = 1;
    request.want_logits = 1;
    request.want_logprobs = 1;
    request.n_top = 5;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(capture.n_logits, capture.last.usage.prompt_tokens);
    assert_true(capture.n_logits > 9); /* more than the window */
    for (uint32_t i = 0; i < j.n_logits; i++)
        max = fmax(max, j.last_logits[i]);
    for (uint32_t i = 0; i < j.n_logits; i++)
        sum += exp(j.last_logits[i] - max);
    for (int i = 0; i < 5; i++) {
        assert_true(fabs(j.top[i] - (j.last_logits[j.top_token[i]] - max - log(sum))) < 1e-5);
        assert_true(i == 0 || j.top[i] <= j.top[i - 1]);
    }
    assert_int_equal(j.token, j.top_token[0]);
    assert_true(j.logprob < 0);
    assert_true(fabs(j.logprob - j.top[0]) < 1e-7);
    free(j.last_logits);
    capture_clear(&capture);
}

static void on_end(struct capture *capture, const runnel_event *event)
{
    struct judged *j = capture->hook_user;

    if (event->type != RUNNEL_EVENT_DONE)
        return;
    assert_int_equal(event->n_top, 5);
    j->token = event->token;
    j->logprob = event->logprob;
    for (int i = 0; i < 5; i++) {
        j->top[i] = event->top[i].logprob;
        j->top_token[i] = event->top[i].token;
    }
}

/* The first place behind a few others whose token the answer has nowhere before. */
static size_t new_token(const struct capture *answer)
{
    for (size_t at = 5; at < answer->n_tokens; at++) {
        size_t before = 0;

        while (before < at && answer->tokens[before] != answer->tokens[at])
            before++;
        if (before == at)
            return at;
    }
    fail();
    return 0;
}

/* What a score of the same tokens says of the token that ended an answer, the terminal event says, too; without
 * logprobs it says nothing. */
static void logprobs_of_the_end(void **state)
{
    struct judged end = {0}, score = {0};
    struct capture whole = {0}, cut = {.hook = on_end, .hook_user = &end}, plain = {0},
                   scored = {.hook = on_judged, .hook_user = &score};
    runnel_request request = make_request(PROMPT, 30, &whole);
    int32_t tokens[64] = {0};
    size_t n = 0, n_prompt = 0, at;
    double sum = 0, max = -INFINITY;

    (void)state;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    at = new_token(&whole);
    request = make_request(PROMPT, 30, &cut);
    request.stop_tokens = &whole.tokens[at];
    request.n_stop_tokens = 1;
    request.sampling.temperature = 0.5f; /* logprobs are of the model's own distribution */
    request.sampling.top_k = 1;
    request.want_logprobs = 1;
    request.n_top = 5;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(end.token, whole.tokens[at]);
    request = make_request(PROMPT, 30, &plain);
    request.stop_tokens = &whole.tokens[at];
    request.n_stop_tokens = 1;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(plain.last.token, whole.tokens[at]);
    assert_int_equal(plain.last.n_top, 0);
    assert_true(plain.last.logprob == 0);

    assert_int_equal(runnel_tokenize(model, PROMPT, strlen(PROMPT), RUNNEL_TOKENIZE_BOS, tokens, 64, &n_prompt),
                     RUNNEL_OK);
    assert_int_equal(cut.n_tokens, at);
    n = n_prompt + cut.n_tokens;
    assert_true(n <= 64);
    memcpy(tokens + n_prompt, cut.tokens, cut.n_tokens * sizeof tokens[0]);
    request = make_request(NULL, 0, &scored);
    request.tokens = tokens;
    request.n_tokens = n;
    request.want_logits = 1;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(score.next_position, n);
    for (uint32_t i = 0; i < score.n_logits; i++)
        max = fmax(max, score.last_logits[i]);
    for (uint32_t i = 0; i < score.n_logits; i++)
        sum += exp(score.last_logits[i] - max);
    assert_true(fabs(end.logprob - (score.last_logits[end.token] - max - log(sum))) < 1e-5);
    for (int i = 0; i < 5; i++)
        assert_true(fabs(end.top[i] - (score.last_logits[end.top_token[i]] - max - log(sum))) < 1e-5);
    assert_int_equal(end.top_token[0], end.token); /* greedy */
    free(score.last_logits);
    capture_clear(&whole);
    capture_clear(&cut);
    capture_clear(&plain);
    capture_clear(&scored);
}

struct progress {
    uint64_t done, cached;
};

static void on_progress(struct capture *capture, const runnel_event *event)
{
    struct progress *progress = capture->hook_user;

    if (event->type == RUNNEL_EVENT_DONE)
        assert_int_equal(event->usage.cached_tokens, progress->cached);
    if (event->type != RUNNEL_EVENT_PROGRESS)
        return;
    assert_true(event->prompt_done > progress->done && event->prompt_done <= event->prompt_total);
    assert_true(event->usage.cached_tokens < event->prompt_done);
    progress->done = event->prompt_done;
    progress->cached = event->usage.cached_tokens;
}

static void progress(void **state)
{
    struct progress progress = {0, 0};
    struct capture capture = {.hook = on_progress, .hook_user = &progress};
    runnel_request request = make_request(NULL, 2, &capture);
    enum { LENGTH = UNLESS_SLOW(700, 520) };
    int32_t tokens[LENGTH];

    (void)state;
    for (int i = 0; i < LENGTH; i++)
        tokens[i] = 300 + i % 500;
    request.tokens = tokens;
    request.n_tokens = LENGTH;
    request.want_progress = 1;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(progress.done, LENGTH);
    assert_int_equal(progress.cached, 0);
    assert_true(capture.n_progress >= 3); /* 256 rows a step */
    capture_clear(&capture);
}

/* Two turns in a session give what one prompt of all their tokens gives, and compute only what is new. */
static void session_turns(void **state)
{
    static const char first[] = "Tom had a red kite.", second[] = " One windy day";
    struct progress progress = {0, 0};
    struct capture a = {0}, b = {.hook = on_progress, .hook_user = &progress}, whole = {0};
    int32_t all[400];
    size_t n_first, n_second;
    runnel_session session;
    runnel_request request = make_request(first, 20, &a);

    (void)state;
    assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
    request.session = session;
    request.ignore_eos = 1;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    request = make_request(second, 20, &b);
    request.session = session;
    request.ignore_eos = 1;
    request.want_progress = 1;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(runnel_tokenize(model, first, strlen(first), RUNNEL_TOKENIZE_BOS, all, 400, &n_first), RUNNEL_OK);
    memcpy(all + n_first, a.tokens, a.n_tokens * sizeof *all);
    assert_int_equal(runnel_tokenize(model, second, strlen(second), 0, all + n_first + a.n_tokens, 100, &n_second),
                     RUNNEL_OK);
    request = make_request(NULL, 20, &whole);
    request.tokens = all;
    request.n_tokens = n_first + a.n_tokens + n_second;
    request.ignore_eos = 1;
    request.cache_salt = 1; /* computes all of it */
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_memory_equal(b.tokens, whole.tokens, 20 * sizeof(int32_t));
    assert_int_equal(b.last.usage.prompt_tokens, whole.last.usage.prompt_tokens);
    assert_int_equal(b.last.usage.cached_tokens, n_first + a.n_tokens - 1);
    assert_int_equal(progress.cached, n_first + a.n_tokens - 1);
    assert_int_equal(whole.last.usage.cached_tokens, 0);
    capture_clear(&a);
    capture_clear(&b);
    capture_clear(&whole);
    assert_int_equal(runnel_session_free(model, session), RUNNEL_OK);
    assert_int_equal(runnel_session_free(model, session), RUNNEL_NOT_FOUND);
}

/* A turn that ended at a stop string leaves exactly the tokens up to it, however far decoding had run. */
static void session_after_stop(void **state)
{
    struct capture probe = {0}, texts[2] = {{0}};

    (void)state;
    {
        runnel_request request = make_request(PROMPT, 40, &probe);

        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    }
    for (int way = 0; way < 2; way++) {
        char stop[8];
        const char *stops[] = {stop};
        struct capture turn = {0};
        runnel_session session;
        runnel_request request = make_request(PROMPT, 40, &turn);

        snprintf(stop, sizeof stop, "%.*s", 5, probe.text + 40);
        assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
        request.session = session;
        request.stops = stops;
        request.n_stops = 1;
        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
        if (way == 1) { /* the same again without the stop string, by as many tokens as it took */
            uint64_t n = turn.last.usage.completion_tokens;

            assert_int_equal(runnel_session_free(model, session), RUNNEL_OK);
            assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
            capture_clear(&turn);
            request = make_request(PROMPT, (int64_t)n, &turn);
            request.session = session;
            assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
        }
        request = make_request(" Then", 25, &texts[way]);
        request.session = session;
        request.ignore_eos = 1;
        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
        assert_int_equal(runnel_session_free(model, session), RUNNEL_OK);
        capture_clear(&turn);
    }
    assert_string_equal(texts[0].text, texts[1].text);
    assert_int_equal(texts[0].last.usage.prompt_tokens, texts[1].last.usage.prompt_tokens);
    capture_clear(&texts[0]);
    capture_clear(&texts[1]);
    capture_clear(&probe);
}

/* Idle sessions give their blocks back under pressure; their next turn computes them again, same text. */
static void sessions_under_pressure(void **state)
{
    runnel_model_options options;
    runnel_model *small;
    runnel_session sessions[3];
    struct capture turns[3] = {{0}}, alone[3] = {{0}};
    runnel_model_info info = {.struct_size = sizeof info};

    (void)state;
    assert_int_equal(runnel_model_get_info(model, &info), RUNNEL_OK);
    runnel_model_options_default(&options);
    options.context_tokens = 128;
    options.kv_bytes = 5 * info.block_tokens * info.kv_bytes_per_token;
    small = load_model(engine, quick_model(), &options);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 3; i++) {
            char text[64];
            runnel_request request;

            capture_clear(&turns[i]);
            snprintf(text, sizeof text, round == 0 ? "Number %d was a fox." : " The end of %d", i);
            request = make_request(text, 30, &turns[i]);
            request.ignore_eos = 1;
            if (round == 0)
                assert_int_equal(runnel_session_new(small, &sessions[i]), RUNNEL_OK);
            request.session = sessions[i];
            assert_int_equal(run_request(engine, small, &request), RUNNEL_EVENT_DONE);
        }
    for (int i = 0; i < 3; i++)
        assert_int_equal(runnel_session_free(small, sessions[i]), RUNNEL_OK);
    for (int i = 0; i < 3; i++) { /* the judge: the same session with nobody beside it */
        char text[64];
        runnel_session session;
        runnel_request request;

        assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
        for (int round = 0; round < 2; round++) {
            capture_clear(&alone[i]);
            snprintf(text, sizeof text, round == 0 ? "Number %d was a fox." : " The end of %d", i);
            request = make_request(text, 30, &alone[i]);
            request.ignore_eos = 1;
            request.session = session;
            assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
        }
        assert_string_equal(turns[i].text, alone[i].text);
        assert_int_equal(runnel_session_free(model, session), RUNNEL_OK);
        capture_clear(&turns[i]);
        capture_clear(&alone[i]);
    }
    runnel_model_free(small);
    await_models(engine, 1);
}

/* A second request on a busy session waits its turn; freeing the session ends the waiting one. */
static void session_queue(void **state)
{
    struct capture a = {0}, b = {0}, c = {0};
    runnel_session session;
    runnel_request request = make_request(PROMPT, 30, &a);

    (void)state;
    assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
    request.session = session;
    assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    request.user = &b;
    assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    run_until_end(engine, &a);
    run_until_end(engine, &b);
    assert_int_equal(b.last.type, RUNNEL_EVENT_DONE);
    assert_true(b.last.usage.cached_tokens > 0);
    request.user = &c;
    request.ignore_eos = 1;
    request.max_tokens = UNLESS_SLOW(400, 100);
    capture_clear(&a);
    assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    request.user = &a;
    assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    assert_int_equal(runnel_session_free(model, session), RUNNEL_OK);
    assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_NOT_FOUND);
    run_until_end(engine, &c);
    run_until_end(engine, &a);
    assert_int_equal(c.last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(a.last.type, RUNNEL_EVENT_FAILED);
    assert_int_equal(a.last.status, RUNNEL_NOT_FOUND);
    assert_non_null(strstr(a.error, "session"));
    capture_clear(&a);
    capture_clear(&b);
    capture_clear(&c);
}

/* A prompt with its session that is too long is an error of the submit. */
static void session_context(void **state)
{
    runnel_model_options options;
    runnel_model *small;
    runnel_session session;
    struct capture a = {0};
    runnel_error error;
    runnel_request request = make_request("The owl saw a star.", 20, &a);
    int32_t tokens[40];

    (void)state;
    for (int i = 0; i < 40; i++)
        tokens[i] = 400;
    runnel_model_options_default(&options);
    options.context_tokens = 64;
    small = load_model(engine, quick_model(), &options);
    assert_int_equal(runnel_session_new(small, &session), RUNNEL_OK);
    request.session = session;
    request.ignore_eos = 1;
    assert_int_equal(run_request(engine, small, &request), RUNNEL_EVENT_DONE);
    request = make_request(NULL, 5, &a);
    request.tokens = tokens;
    request.n_tokens = 40;
    request.session = session;
    assert_int_equal(runnel_generate(small, &request, &(runnel_stream){0}, &error), RUNNEL_CONTEXT);
    assert_non_null(strstr(error.message, "session"));
    capture_clear(&a);
    runnel_model_free(small);
    await_models(engine, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_strings),
        cmocka_unit_test(stop_tokens),
        cmocka_unit_test(seeds),
        cmocka_unit_test(logprobs_and_logits),
        cmocka_unit_test(logprobs_of_the_end),
        cmocka_unit_test(progress),
        cmocka_unit_test(session_turns),
        cmocka_unit_test(ids_outside),
        cmocka_unit_test(text_of_one_token),
        cmocka_unit_test(session_after_stop),
        cmocka_unit_test(sessions_under_pressure),
        cmocka_unit_test(session_queue),
        cmocka_unit_test(session_context),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
