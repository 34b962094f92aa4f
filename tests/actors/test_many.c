/* Law 5 and law 4 under load: 200 requests with shared and different prompts on three scheduler threads,
 * cancelled and paused at random: each one's text is what it is alone, each ends once, nothing is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "fixture.h"

#define REQUESTS 200
#define KINDS 20

struct kind {
    char prompt[200];
    float temperature;
    uint64_t seed;
    int64_t max_tokens;
    struct capture alone;
};

struct running {
    struct capture capture;
    runnel_stream stream;
    struct kind *kind;
    bool wants_cancel;
    size_t cancel_at;
};

static struct kind kinds[KINDS];
static struct running all[REQUESTS];

static void make_kinds(uint64_t *rng)
{
    static const char *const subjects[] = {"owl", "fox", "beaver", "girl"};

    for (int i = 0; i < KINDS; i++) {
        struct kind *k = &kinds[i];

        /* half of them share a long beginning */
        snprintf(k->prompt, sizeof k->prompt, "%sOnce there was a %s who had %d apples%s",
                 i % 2 ? "This is a story from a long time ago, told by the fire on winter nights. " : "",
                 subjects[rn_splitmix64(rng) % 4], i, i % 3 ? "." : " and a boat. One day");
        k->temperature = i % 2 ? 0.0f : 0.9f;
        k->seed = rn_splitmix64(rng);
        k->max_tokens = test_device() != NULL ? 1 + (int64_t)(rn_splitmix64(rng) % 4)
                                              : 5 + (int64_t)(rn_splitmix64(rng) % UNLESS_SLOW(60, 12));
    }
}

static runnel_request request_of(const struct kind *kind, struct capture *capture)
{
    runnel_request request = make_request(kind->prompt, kind->max_tokens, capture);

    request.sampling.temperature = kind->temperature;
    request.sampling.seed = kind->seed;
    request.sampling.repetition_penalty = kind->seed % 3 == 0 ? 1.2f : 1.0f;
    return request;
}

static void on_event(struct capture *capture, const runnel_event *event)
{
    struct running *r = (struct running *)capture;

    if (event->type == RUNNEL_EVENT_TOKEN && r->wants_cancel && capture->n_tokens == r->cancel_at)
        runnel_stream_cancel(capture->hook_user, r->stream);
}

static void check(const struct running *r)
{
    const struct capture *c = &r->capture, *alone = &r->kind->alone;

    assert_int_equal(c->n_terminal, 1);
    assert_int_equal(c->n_after_terminal, 0);
    assert_int_not_equal(c->last.type, RUNNEL_EVENT_FAILED);
    if (c->last.type == RUNNEL_EVENT_DONE) {
        assert_int_equal(c->n_tokens, alone->n_tokens);
        assert_int_equal(c->text_bytes, alone->text_bytes);
        assert_int_equal(c->last.finish, alone->last.finish);
    } else {
        assert_true(r->wants_cancel);
        assert_true(c->n_tokens <= alone->n_tokens);
    }
    assert_memory_equal(c->tokens, alone->tokens, c->n_tokens * sizeof *c->tokens);
    assert_true(c->text_bytes <= alone->text_bytes && memcmp(c->text ? c->text : "", alone->text, c->text_bytes) == 0);
}

static void pause_some(runnel_engine *engine, uint64_t *rng)
{
    struct running *r = &all[rn_splitmix64(rng) % REQUESTS];

    if (r->capture.n_terminal > 0 || r->stream.id == 0)
        return;
    r->capture.paused = !r->capture.paused;
    if (r->capture.paused)
        assert_int_equal(runnel_stream_pause(engine, r->stream), RUNNEL_OK);
    else
        assert_int_equal(runnel_stream_resume(engine, r->stream), RUNNEL_OK);
}

static size_t n_ended(void)
{
    size_t n = 0;

    for (int i = 0; i < REQUESTS; i++)
        n += all[i].capture.n_terminal > 0;
    return n;
}

static void resume_all(runnel_engine *engine)
{
    for (int i = 0; i < REQUESTS; i++)
        if (all[i].capture.paused) {
            all[i].capture.paused = false;
            runnel_stream_resume(engine, all[i].stream);
        }
}

static void alone(runnel_engine *engine, runnel_model *model)
{
    for (int i = 0; i < KINDS; i++) {
        runnel_request request = request_of(&kinds[i], &kinds[i].alone);

        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    }
}

static void submit_one(runnel_engine *engine, runnel_model *model, struct running *r, uint64_t *rng)
{
    runnel_request request;

    r->kind = &kinds[rn_splitmix64(rng) % KINDS];
    r->wants_cancel = rn_splitmix64(rng) % 4 == 0;
    r->cancel_at = rn_splitmix64(rng) % 8;
    r->capture.hook = on_event;
    r->capture.hook_user = engine;
    request = request_of(r->kind, &r->capture);
    assert_int_equal(runnel_generate(model, &request, &r->stream, NULL), RUNNEL_OK);
    if (r->wants_cancel && r->cancel_at == 0)
        assert_int_equal(runnel_stream_cancel(engine, r->stream), RUNNEL_OK);
}

static void together(runnel_engine *engine, runnel_model *model, uint64_t *rng)
{
    int submitted = 0;

    for (int turn = 0; n_ended() < REQUESTS; turn++) {
        if (submitted < REQUESTS)
            for (uint64_t n = rn_splitmix64(rng) % 8; n > 0 && submitted < REQUESTS; n--)
                submit_one(engine, model, &all[submitted++], rng);
        else if (turn % 64 == 63)
            resume_all(engine);
        else
            pause_some(engine, rng);
        runnel_engine_wait(engine, 1);
        runnel_engine_dispatch(engine, 1 + rn_splitmix64(rng) % 100);
    }
}

static void two_hundred(void **state)
{
    runnel_engine_options options;
    runnel_model_options model_options;
    runnel_engine *engine;
    runnel_model *model;
    uint64_t rng = 20261121;

    (void)state;
    make_kinds(&rng);
    runnel_engine_options_default(&options);
    options.scheduler_threads = 3;
    options.max_streams = 256;
    engine = start_engine(&options);
    runnel_model_options_default(&model_options);
    model_options.context_tokens = 256;
    model_options.batch_tokens = 48;
    model = load_model(engine, quick_model(), &model_options);
    alone(engine, model);
    together(engine, model, &rng);
    for (int i = 0; i < REQUESTS; i++) {
        check(&all[i]);
        assert_int_equal(all[i].capture.n_while_paused, 0);
        capture_clear(&all[i].capture);
    }
    for (int i = 0; i < KINDS; i++)
        capture_clear(&kinds[i].alone);
    assert_quiet(engine, 0);
    runnel_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_hundred)};

    return run_cases(tests, NULL, NULL);
}
