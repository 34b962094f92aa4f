/* Tokens that the host draws (runnel_samplers.choose), of real models on real threads. Judges: the same request without
 * the host's sampler where that changes nothing; the greedy answer where it takes the best; what the callback itself
 * was shown. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/actors/fixture.h"

static const char prompt[] = "Once upon a time there was a little dog who";

/* What a host does when it is asked. */
struct host {
    runnel_samplers samplers;
    int64_t answer; /* returned at the turn'th question ... */
    uint32_t turn;  /* ... from 1 */
    bool best;      /* before: takes the best; else draws */
    uint32_t n_asked;
    runnel_stream stream;
    int32_t sequence[600];
    size_t n_sequence;
    size_t place; /* of the best */
};

static int64_t choose(void *user, runnel_candidates *candidates)
{
    struct host *host = user;

    host->stream.id = candidates->stream;
    assert_true(candidates->n > 0 && candidates->n_sequence <= 600);
    assert_int_equal(candidates->position, candidates->n_sequence);
    memcpy(host->sequence, candidates->sequence, candidates->n_sequence * sizeof host->sequence[0]);
    host->n_sequence = candidates->n_sequence;
    host->place = 0;
    for (size_t i = 1; i < candidates->n; i++)
        host->place = candidates->logits[i] > candidates->logits[host->place] ? i : host->place;
    if (++host->n_asked == host->turn) {
        if (host->answer == -100) /* no number */
            candidates->logits[0] = NAN;
        return host->answer == -100 ? RUNNEL_CHOOSE_DRAW : host->answer;
    }
    return host->best ? (int64_t)host->place : RUNNEL_CHOOSE_DRAW;
}

/* All models write so many tokens. */
static runnel_request asking(struct host *host, int64_t max_tokens, struct capture *capture)
{
    runnel_request request = make_request(prompt, max_tokens, capture);

    memset(host, 0, sizeof *host);
    runnel_samplers_default(&host->samplers);
    host->samplers.choose = choose;
    host->samplers.choose_user = host;
    host->samplers.logprobs_after = 1; /* with it the same chain without a host is drawn from a list, too */
    request.sampling.samplers = &host->samplers;
    request.sampling.temperature = 0.9f;
    request.sampling.top_p = 0.95f;
    request.sampling.repetition_penalty = 1.1f;
    request.sampling.seed = 11;
    request.ignore_eos = 1;
    return request;
}

static void assert_same(const struct capture *a, const struct capture *b)
{
    assert_int_equal(a->last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(b->last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(a->last.finish, b->last.finish);
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens);
    assert_int_equal(a->text_bytes, b->text_bytes);
    assert_memory_equal(a->text, b->text, a->text_bytes);
}

/* The answer without a host's sampler. */
static void answer_without(runnel_engine *engine, runnel_model *model, runnel_request request, struct capture *capture)
{
    runnel_samplers samplers = *request.sampling.samplers;

    memset(capture, 0, sizeof *capture);
    samplers.choose = NULL;
    request.sampling.samplers = &samplers;
    request.user = capture;
    request.on_event = capture_event;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
}

/* ---- Ways to be asked ---- */

static void who_changes_nothing_says_the_same(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    struct capture asked = {0}, without;
    struct host host;
    runnel_request request = asking(&host, 40, &asked);

    (void)state;
    request.ignore_eos = 0;
    request.want_logprobs = 1;
    request.n_top = 3;
    request.draft = RUNNEL_DRAFT_NGRAM; /* drafts nothing */
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    answer_without(engine, model, request, &without);
    assert_same(&asked, &without);
    assert_int_equal(host.n_asked, asked.n_tokens + (asked.last.finish == RUNNEL_FINISH_STOP));
    assert_int_equal(asked.last.usage.drafted_tokens, 0);
    assert_int_equal(host.n_sequence, asked.last.usage.prompt_tokens + host.n_asked - 1);
    assert_memory_equal(host.sequence + asked.last.usage.prompt_tokens, asked.tokens,
                        (host.n_asked - 1) * sizeof asked.tokens[0]);
    capture_clear(&asked);
    capture_clear(&without);
    runnel_engine_free(engine);
}

static void who_takes_the_best_is_greedy(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    struct capture asked = {0}, greedy = {0};
    struct host host;
    runnel_request request = asking(&host, 40, &asked), plain = make_request(prompt, 40, &greedy);

    (void)state;
    host.best = true;
    plain.ignore_eos = 1;
    request.sampling.repetition_penalty = 1;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(run_request(engine, model, &plain), RUNNEL_EVENT_DONE);
    assert_same(&asked, &greedy);
    capture_clear(&asked);
    capture_clear(&greedy);
    runnel_engine_free(engine);
}

/* Read with runnel_stream_next, taken in arrays, called on a thread of the engine. */
static void pull(runnel_engine *engine, runnel_stream stream, struct capture *capture)
{
    runnel_event event = {0};

    while (event.type < RUNNEL_EVENT_DONE) {
        assert_int_equal(runnel_stream_next(engine, stream, -1, &event), RUNNEL_OK);
        capture_event(capture, &event);
    }
}

static void take(runnel_engine *engine, struct capture *capture)
{
    const runnel_event *events[8];

    while (capture->n_terminal == 0) {
        size_t n = runnel_engine_take(engine, events, 8);

        for (size_t i = 0; i < n; i++)
            capture_event(capture, events[i]);
        if (n == 0)
            runnel_engine_wait(engine, 100);
    }
}

static void each_way_of_delivery_asks(void **state)
{
    struct capture without = {0};

    (void)state;
    for (int way = 0; way < 3; way++) {
        struct capture asked = {0};
        struct host host;
        runnel_request request = asking(&host, 25, &asked);
        runnel_engine_options options;
        runnel_engine *engine;
        runnel_model *model;
        runnel_stream stream;

        runnel_engine_options_default(&options);
        options.delivery = way == 1 ? RUNNEL_DELIVER_TAKE : way == 2 ? RUNNEL_DELIVER_THREAD : RUNNEL_DELIVER_HOST;
        engine = start_engine(&options);
        model = load_model(engine, quick_model(), NULL);
        if (way < 2)
            request.on_event = NULL;
        assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
        if (way == 0)
            pull(engine, stream, &asked);
        else if (way == 1)
            take(engine, &asked);
        else
            assert_int_equal(runnel_engine_drain(engine, 60000), RUNNEL_OK);
        runnel_engine_free(engine);
        if (way == 0) {
            engine = start_engine(NULL);
            answer_without(engine, load_model(engine, quick_model(), NULL), asking(&host, 25, &without), &without);
            runnel_engine_free(engine);
        }
        assert_same(&asked, &without);
        capture_clear(&asked);
    }
    capture_clear(&without);
}

static void masks_come_first(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    runnel_grammar grammar;

    (void)state;
    runnel_grammar_default(&grammar);
    grammar.kind = RUNNEL_GRAMMAR_REGEX;
    grammar.text = "(19|20)[0-9]{2}-[0-9]{2}";
    grammar.text_bytes = strlen(grammar.text);
    for (int best = 0; best < 2; best++) {
        struct capture asked = {0}, without = {0};
        struct host host;
        runnel_request request = asking(&host, 40, &asked);

        host.best = best;
        request.grammar = &grammar;
        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
        assert_int_equal(asked.last.finish, RUNNEL_FINISH_STOP);
        assert_int_equal(asked.text_bytes, 7);
        assert_true(asked.text[4] == '-' && (asked.text[0] == '1' || asked.text[0] == '2'));
        if (best == 0) {
            answer_without(engine, model, request, &without);
            assert_same(&asked, &without);
        }
        capture_clear(&asked);
        capture_clear(&without);
    }
    runnel_engine_free(engine);
}

/* ---- Later ---- */

/* A host that takes its time holds up its own stream, and no other. */
static void who_answers_later_holds_up_nobody_else(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    struct capture asked = {0}, without, other = {0};
    struct host host;
    runnel_request request = asking(&host, 20, &asked), plain = make_request(prompt, 60, &other);
    runnel_stream stream;

    (void)state;
    host.answer = RUNNEL_CHOOSE_LATER;
    host.turn = 5;
    host.best = true;
    plain.ignore_eos = 1;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    while (host.n_asked < host.turn)
        runnel_engine_dispatch(engine, 0);
    assert_int_equal(run_request(engine, model, &plain), RUNNEL_EVENT_DONE); /* while it is awaited */
    assert_int_equal(other.last.usage.completion_tokens, 60);
    assert_int_equal(host.n_asked, 5);
    assert_int_equal(asked.n_tokens, 4);
    assert_int_equal(runnel_stream_choose(engine, stream, host.place), RUNNEL_OK);
    assert_int_equal(runnel_stream_choose(engine, stream, host.place), RUNNEL_STATE); /* once */
    run_until_end(engine, &asked);
    assert_int_equal(runnel_stream_choose(engine, stream, host.place), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_stream_choose(NULL, stream, 0), RUNNEL_INVALID);
    request = asking(&host, 20, &asked);
    host.best = true;
    memset(&without, 0, sizeof without);
    request.user = &without;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_same(&asked, &without);
    capture_clear(&asked);
    capture_clear(&without);
    capture_clear(&other);
    runnel_engine_free(engine);
}

/* Threads that draw for all streams of a host, and answer in their own time. */
#define N_LATER 6

struct later {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t some;
    runnel_engine *engine;
    runnel_candidates *queue[N_LATER];
    size_t n;
    bool over;
};

static int64_t hand_over(void *user, runnel_candidates *candidates)
{
    struct later *later = user;

    pthread_mutex_lock(&later->lock);
    assert_true(later->n < N_LATER); /* one question of each stream */
    later->queue[later->n++] = candidates;
    pthread_cond_signal(&later->some);
    pthread_mutex_unlock(&later->lock);
    return RUNNEL_CHOOSE_LATER;
}

static void *answer_all(void *user)
{
    struct later *later = user;

    pthread_mutex_lock(&later->lock);
    for (;;) {
        const runnel_candidates *candidates;
        runnel_stream stream;
        int64_t place;

        while (later->n == 0 && !later->over)
            pthread_cond_wait(&later->some, &later->lock);
        if (later->n == 0)
            break;
        candidates = later->queue[--later->n]; /* the newest first */
        pthread_mutex_unlock(&later->lock);
        stream.id = candidates->stream;
        place = runnel_candidates_draw(candidates);
        assert_true(place >= 0);
        assert_int_equal(runnel_stream_choose(later->engine, stream, (size_t)place), RUNNEL_OK);
        pthread_mutex_lock(&later->lock);
    }
    pthread_mutex_unlock(&later->lock);
    return NULL;
}

static void other_threads_may_answer(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    struct later later = {.lock = PTHREAD_MUTEX_INITIALIZER, .some = PTHREAD_COND_INITIALIZER, .engine = engine};
    struct capture asked[N_LATER] = {{0}}, without;
    struct host hosts[N_LATER];
    runnel_request requests[N_LATER];
    runnel_stream stream;

    (void)state;
    assert_int_equal(pthread_create(&later.thread, NULL, answer_all, &later), 0);
    for (size_t i = 0; i < N_LATER; i++) {
        requests[i] = asking(&hosts[i], 20, &asked[i]);
        requests[i].sampling.seed = i;
        hosts[i].samplers.choose = hand_over;
        hosts[i].samplers.choose_user = &later;
        assert_int_equal(runnel_generate(model, &requests[i], &stream, NULL), RUNNEL_OK);
    }
    for (size_t i = 0; i < N_LATER; i++)
        run_until_end(engine, &asked[i]);
    pthread_mutex_lock(&later.lock);
    later.over = true;
    pthread_cond_signal(&later.some);
    pthread_mutex_unlock(&later.lock);
    pthread_join(later.thread, NULL);
    for (size_t i = 0; i < N_LATER; i++) {
        answer_without(engine, model, requests[i], &without);
        assert_same(&asked[i], &without);
        capture_clear(&asked[i]);
        capture_clear(&without);
    }
    runnel_engine_free(engine);
}

/* ---- Ends ---- */

static void what_cannot_be_drawn_fails_its_stream(void **state)
{
    static const struct {
        int64_t answer;
        const char *sentence;
    } cases[] = {{1 << 20, "does not exist"},   {-3, "does not exist"},         {INT64_MIN, "does not exist"},
                 {INT64_MAX, "does not exist"}, {UINT32_MAX, "does not exist"}, {-100, "nothing to draw"}};
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct capture asked = {0};
        struct host host;
        runnel_request request = asking(&host, 20, &asked);

        host.answer = cases[i].answer;
        host.turn = 4;
        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_FAILED);
        assert_int_equal(asked.last.status, RUNNEL_INVALID);
        assert_non_null(strstr(asked.error, cases[i].sentence));
        assert_int_equal(asked.n_tokens, 3); /* what was drawn before is there */
        capture_clear(&asked);
    }
    assert_quiet(engine, 0);
    runnel_engine_free(engine);
}

static void whom_nobody_answers_can_be_ended(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);

    (void)state;
    for (int late = 0; late < 2; late++) {
        struct capture asked = {0};
        struct host host;
        runnel_request request = asking(&host, 20, &asked);
        runnel_stream stream;

        host.answer = RUNNEL_CHOOSE_LATER;
        host.turn = 3;
        request.deadline_ms = late ? 300 : 0;
        assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
        while (host.n_asked < host.turn && asked.n_terminal == 0)
            runnel_engine_dispatch(engine, 0);
        if (!late)
            assert_int_equal(runnel_stream_cancel(engine, stream), RUNNEL_OK);
        run_until_end(engine, &asked);
        assert_int_equal(asked.last.type, late ? RUNNEL_EVENT_FAILED : RUNNEL_EVENT_CANCELLED);
        assert_int_equal(asked.last.status, late ? RUNNEL_TIMEOUT : RUNNEL_OK);
        capture_clear(&asked);
    }
    assert_quiet(engine, 0);
    runnel_engine_free(engine);
}

static int64_t cancel(void *user, runnel_candidates *candidates)
{
    runnel_stream stream = {candidates->stream};

    assert_int_equal(runnel_stream_cancel(*(runnel_engine **)user, stream), RUNNEL_OK);
    return RUNNEL_CHOOSE_DRAW;
}

static int64_t free_engine(void *user, runnel_candidates *candidates)
{
    (void)candidates;
    runnel_engine_free(*(runnel_engine **)user);
    return RUNNEL_CHOOSE_DRAW;
}

static int64_t take_long(void *user, runnel_candidates *candidates)
{
    (void)candidates;
    atomic_store((atomic_bool *)user, true);
    usleep(50000);
    return RUNNEL_CHOOSE_DRAW;
}

static void ends_inside_of_it(void **state)
{
    struct capture capture = {0};
    struct host host;
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    runnel_request request = asking(&host, 20, &capture);

    (void)state;
    host.samplers.choose = cancel;
    host.samplers.choose_user = &engine;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_CANCELLED);
    capture_clear(&capture);
    host.samplers.choose = free_engine;
    run_request(engine, model, &request);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_CANCELLED);
    capture_clear(&capture);
}

/* On another thread, while the callback runs; and with a question that nobody will answer. */
static void the_engine_is_freed_meanwhile(void **state)
{
    (void)state;
    for (int later = 0; later < 2; later++) {
        struct capture capture = {0};
        struct host host;
        runnel_request request = asking(&host, 20, &capture);
        runnel_engine_options options;
        runnel_engine *engine;
        runnel_stream stream;
        atomic_bool inside = false;

        runnel_engine_options_default(&options);
        options.delivery = later ? RUNNEL_DELIVER_HOST : RUNNEL_DELIVER_THREAD;
        engine = start_engine(&options);
        host.answer = RUNNEL_CHOOSE_LATER;
        host.turn = 1;
        if (!later) {
            host.samplers.choose = take_long;
            host.samplers.choose_user = &inside;
        }
        assert_int_equal(runnel_generate(load_model(engine, quick_model(), NULL), &request, &stream, NULL), RUNNEL_OK);
        while (later ? host.n_asked == 0 : !atomic_load(&inside)) {
            runnel_engine_dispatch(engine, 0);
            usleep(100);
        }
        runnel_engine_free(engine);
        assert_int_equal(capture.n_terminal, 1);
        assert_int_equal(capture.last.type, RUNNEL_EVENT_CANCELLED);
        capture_clear(&capture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_changes_nothing_says_the_same),
        cmocka_unit_test(who_takes_the_best_is_greedy),
        cmocka_unit_test(each_way_of_delivery_asks),
        cmocka_unit_test(masks_come_first),
        cmocka_unit_test(who_answers_later_holds_up_nobody_else),
        cmocka_unit_test(other_threads_may_answer),
        cmocka_unit_test(what_cannot_be_drawn_fails_its_stream),
        cmocka_unit_test(whom_nobody_answers_can_be_ended),
        cmocka_unit_test(ends_inside_of_it),
        cmocka_unit_test(the_engine_is_freed_meanwhile),
    };

    return run_cases(tests, NULL, NULL);
}
