/* Several steps in flight (actors/decode/step_ring.h): what a request gets is what it gets with one step at a time,
 * also where rows that were computed ahead are thrown away; and who needs the host between two steps has it. With the
 * oracle model by hand, and with the bundled one on the CPU's threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"
#include "tests/sim/liar.h"
#include "tests/sim/manual.h"

#define KINDS 12
#define TOKENS 40
#define DISTINCT 60u

/* ---- The oracle model ---- */

struct ring {
    runnel_engine *engine;
    runnel_model *model;
    struct oracle *oracle;
    struct liar_plan liar; /* n-grams are its */
};

/* A step takes a millisecond, whatever the machine does meanwhile: the policies of drafts and of steps go by time. */
static uint64_t now_us;

static uint64_t clock_now(void *user)
{
    (void)user;
    return now_us;
}

/* max_changes: not 0 where the device has penalties and biases. */
static void open_ring(struct ring *ring, uint32_t size, bool itself, uint32_t max_changes)
{
    struct rn_model_parts parts = {.limits = {.max_rows = 16,
                                              .max_seqs = 12,
                                              .max_outs = 12,
                                              .n_blocks = 200,
                                              .block_tokens = 4,
                                              .context_tokens = 128,
                                              .max_changes = max_changes,
                                              .draws = true},
                                   .n_vocab = ORACLE_VOCAB};
    const struct oracle_alphabet alphabet = manual_alphabet(6);
    const struct rn_clock clock = {.now_us = clock_now};

    ring->liar = (struct liar_plan){.alphabet = alphabet, .salt = 1, .percent = 70, .seed = 1};
    parts.new_proposer = liar_new;
    parts.proposer_user = &ring->liar;
    ring->engine = manual_engine(NULL, &clock);
    ring->oracle = oracle_new(&parts.limits, &alphabet, 1);
    assert_non_null(ring->oracle);
    ring->oracle->caps.good_ring = size;
    ring->oracle->second_percent = 100; /* a token that is nearly as good: penalties and biases tell */
    if (itself)
        assert_true(oracle_draw_itself(ring->oracle));
    parts.backend = &ring->oracle->backend;
    ring->model = manual_model(ring->engine, &parts, NULL);
}

/* The oldest step ends, and all that follows. */
static void step(struct ring *ring)
{
    manual_settle(ring->engine);
    now_us += 1000;
    if (ring->oracle->first != NULL)
        oracle_complete(ring->oracle, ORACLE_FAULT_NONE);
    manual_settle(ring->engine);
    assert_true(rn_decode_check(&ring->model->decode));
    manual_check(ring->model, ring->oracle);
}

static runnel_stream submit(struct ring *ring, const runnel_request *request)
{
    runnel_stream stream;

    assert_int_equal(runnel_generate(ring->model, request, &stream, NULL), RUNNEL_OK);
    return stream;
}

/* Prompts of different lengths; half of the answers end with a token of their own, which some draw soon. */
static runnel_request kind(uint32_t i, bool penalised, struct capture *capture)
{
    static const runnel_logit_bias biases[] = {{'a', 0.5f}, {'c', -1}, {'a', 0.25f}};
    static const char text[] = "abacadabacaeabacadabacafabacadabacaeabacadab";
    static int32_t stops[] = {'a', 'b', 'c', 'd', 'e', 'f'};
    runnel_request request = make_request(text, 3 + 2 * i, capture);

    request.prompt_bytes = 1 + i * 3;
    request.stop_tokens = &stops[i % 6];
    request.n_stop_tokens = i % 2;
    request.sampling.temperature = i % 3 ? 0.7f : 0;
    request.sampling.seed = i;
    request.want_progress = i % 4 == 0;
    if (penalised && i % 3 == 1) {
        request.sampling.repetition_penalty = i == 7 ? 1.05f : 1;
        request.sampling.presence_penalty = 0.7f;
        request.sampling.frequency_penalty = 0.4f;
        request.sampling.penalty_tokens = i % 2 ? 6 : 0;
        request.sampling.biases = biases;
        request.sampling.n_biases = i % 4;
        request.draft = i == 10 ? RUNNEL_DRAFT_NGRAM : RUNNEL_DRAFT_NONE;
    }
    request.ignore_eos = penalised && i % 4 == 2;
    return request;
}

static void run_kinds(struct ring *ring, bool penalised, runnel_session session, struct capture captures[KINDS])
{
    uint32_t n_ended = 0;

    for (uint32_t i = 0; i < KINDS; i++) {
        runnel_request request = kind(i, penalised, &captures[i]);

        if (i == 5)
            request.session = session;
        submit(ring, &request);
        for (uint32_t k = 0; k < i % 3; k++)
            step(ring);
    }
    for (uint32_t i = 0; i < 500 && n_ended < KINDS; i++) {
        step(ring);
        n_ended = 0;
        for (uint32_t k = 0; k < KINDS; k++)
            n_ended += captures[k].n_terminal;
    }
    assert_int_equal(n_ended, KINDS);
}

static void expect_same(const struct capture *a, const struct capture *b)
{
    assert_int_equal(a->n_terminal, 1);
    assert_int_equal(b->n_terminal, 1);
    assert_int_equal(a->last.type, b->last.type);
    assert_int_equal(a->last.finish, b->last.finish);
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, a->n_tokens * sizeof a->tokens[0]);
    assert_int_equal(a->last.usage.prompt_tokens, b->last.usage.prompt_tokens);
    assert_int_equal(a->last.usage.completion_tokens, b->last.usage.completion_tokens);
}

static void close_ring(struct ring *ring)
{
    manual_close(ring->engine, ring->oracle);
}

/* All kinds, and behind them the next turn of a session whose last answer was stopped by its token: it goes on from as
 * many computed positions as with one step at a time. */
static void run_ring(uint32_t size, bool itself, bool penalised, struct capture captures[KINDS + 1],
                     uint32_t *most_flying, uint64_t *n_steps)
{
    runnel_session session;
    runnel_request request;
    struct ring ring;

    memset(captures, 0, (KINDS + 1) * sizeof captures[0]);
    open_ring(&ring, size, itself, itself ? ORACLE_VOCAB + 50 : 0);
    assert_int_equal(runnel_session_new(ring.model, &session), RUNNEL_OK);
    manual_settle(ring.engine);
    run_kinds(&ring, penalised, session, captures);
    request = make_request("fff", 9, &captures[KINDS]);
    request.session = session;
    submit(&ring, &request);
    for (uint32_t i = 0; i < 100; i++)
        step(&ring);
    *most_flying = ring.oracle->most_flying;
    *n_steps = ring.oracle->n_steps;
    close_ring(&ring);
}

static void same_with_any(bool penalised)
{
    struct capture one[KINDS + 1], other[KINDS + 1];
    uint32_t most, n_stopped = 0;
    uint64_t steps, more;

    run_ring(1, false, penalised, one, &most, &steps);
    assert_int_equal(most, 1);
    for (uint32_t size = 1; size <= ORACLE_RING; size++)
        for (uint32_t itself = 0; itself < 2; itself++) {
            run_ring(size, itself != 0, penalised, other, &most, &more);
            assert_int_equal(most, size);
            for (uint32_t i = 0; i <= KINDS; i++)
                expect_same(&one[i], &other[i]);
            assert_int_equal(one[KINDS].last.usage.cached_tokens, other[KINDS].last.usage.cached_tokens);
            for (uint32_t i = 0; i <= KINDS; i++)
                capture_clear(&other[i]);
        }
    for (uint32_t i = 0; i <= KINDS; i++) {
        n_stopped += one[i].last.finish == RUNNEL_FINISH_STOP;
        capture_clear(&one[i]);
    }
    assert_true(n_stopped > 0 && n_stopped < KINDS);
}

static void same_with_any_ring(void **state)
{
    (void)state;
    same_with_any(false);
}

/* In rings of a device that has them, and of one that has not. They change what is said. */
static void penalties_in_any_ring(void **state)
{
    struct capture without[KINDS + 1], with[KINDS + 1];
    uint32_t most, n_other = 0;
    uint64_t steps, n_drafted = 0;

    (void)state;
    same_with_any(true);
    run_ring(1, true, false, without, &most, &steps);
    run_ring(1, true, true, with, &most, &steps);
    for (uint32_t i = 0; i <= KINDS; i++) {
        assert_true(with[i].last.type == RUNNEL_EVENT_DONE);
        n_drafted += with[i].last.usage.drafted_tokens;
        n_other += without[i].n_tokens != with[i].n_tokens ||
                   memcmp(without[i].tokens, with[i].tokens, with[i].n_tokens * sizeof with[i].tokens[0]) != 0;
        capture_clear(&without[i]);
        capture_clear(&with[i]);
    }
    assert_in_range(n_other, 3, KINDS);
    assert_true(n_drafted > 0);
}

/* Texts of so many distinct tokens that a step has room for the counts of three of them: the others wait for the next
 * one, and each comes to its end with what the host draws. */
static void run_crowd(bool itself, struct capture captures[KINDS], uint64_t *n_steps)
{
    struct ring ring;
    char text[DISTINCT + 1] = {0};

    memset(captures, 0, KINDS * sizeof captures[0]);
    for (uint32_t i = 0; i < DISTINCT; i++)
        text[i] = (char)('A' + i);
    open_ring(&ring, 2, itself, itself ? ORACLE_VOCAB : 0);
    for (uint32_t i = 0; i < KINDS; i++) {
        runnel_request request = make_request(text, 6, &captures[i]);

        request.prompt_bytes = DISTINCT - i;
        request.sampling.presence_penalty = 0.9f;
        request.sampling.frequency_penalty = 0.4f;
        submit(&ring, &request);
    }
    for (uint32_t i = 0; i < 200; i++)
        step(&ring);
    *n_steps = ring.oracle->n_steps;
    close_ring(&ring);
}

static void counts_take_turns(void **state)
{
    struct capture want[KINDS], got[KINDS];
    uint64_t n_host, n_itself;

    (void)state;
    run_crowd(false, want, &n_host);
    run_crowd(true, got, &n_itself);
    assert_true(n_itself > 2 * n_host);
    for (uint32_t i = 0; i < KINDS; i++) {
        expect_same(&want[i], &got[i]);
        capture_clear(&want[i]);
        capture_clear(&got[i]);
    }
}

/* Those that run would fill a step's room for counts by themselves, for as long as they run: prompts that come have
 * their turn. */
static void counts_for_who_comes(void **state)
{
    struct capture run[3] = {{0}}, late[3] = {{0}};
    struct ring ring;
    char text[DISTINCT + 1] = {0};

    (void)state;
    for (uint32_t i = 0; i < DISTINCT; i++)
        text[i] = (char)('A' + i);
    open_ring(&ring, 2, true, ORACLE_VOCAB);
    for (uint32_t i = 0; i < 6; i++) {
        runnel_request request = make_request(text, i < 3 ? 60 : 3, i < 3 ? &run[i] : &late[i - 3]);

        request.prompt_bytes = DISTINCT - i;
        request.sampling.presence_penalty = 0.9f;
        request.ignore_eos = 1;
        request.priority = i < 3 ? 0 : (int32_t)i - 3;
        submit(&ring, &request);
        for (uint32_t k = 0; i == 2 && k < 15; k++)
            step(&ring);
    }
    for (uint32_t i = 0; i < 40; i++)
        step(&ring);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(late[i].n_tokens, 3);
        assert_true(run[i].n_tokens > 0 && run[i].n_terminal == 0);
    }
    for (uint32_t i = 0; i < 200; i++)
        step(&ring);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(run[i].n_tokens, 60);
        capture_clear(&run[i]);
        capture_clear(&late[i]);
    }
    close_ring(&ring);
}

/* Cancelled with three steps in flight: told at once, let go behind the last of them, and nothing of it is left. */
static void cancelled_in_flight(void **state)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};
    struct capture capture = {0};
    runnel_request request = make_request("abc", TOKENS, &capture);
    runnel_stream stream;
    struct ring ring;

    (void)state;
    open_ring(&ring, ORACLE_RING, false, 0);
    stream = submit(&ring, &request);
    for (uint32_t i = 0; i < 6; i++)
        step(&ring);
    assert_int_equal(ring.oracle->n_flying, ORACLE_RING);
    assert_int_equal(runnel_stream_cancel(ring.engine, stream), RUNNEL_OK);
    manual_settle(ring.engine);
    for (uint32_t i = ORACLE_RING; i > 0; i--) {
        assert_int_equal(ring.oracle->n_flying, i);
        assert_int_equal(ring.model->decode.n_running, 1);
        step(&ring);
    }
    assert_int_equal(ring.model->decode.n_running, 0);
    assert_int_equal(capture.n_terminal, 1);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_CANCELLED);
    runnel_engine_get_stats(ring.engine, &stats);
    assert_int_equal(stats.streams, 0);
    assert_int_equal(stats.blocks_used, 0);
    capture_clear(&capture);
    close_ring(&ring);
}

/* While somebody has penalties so many steps are in flight: it has a row in each. Behind its end the others go ahead. */
static void depth_of_penalties(uint32_t max_changes, uint32_t depth)
{
    struct capture plain = {0}, penalised = {0};
    runnel_request request = make_request("abc", TOKENS, &plain);
    struct ring ring;
    uint64_t before;

    open_ring(&ring, ORACLE_RING, true, max_changes);
    submit(&ring, &request);
    for (uint32_t i = 0; i < 4; i++)
        step(&ring);
    assert_int_equal(ring.oracle->n_flying, ORACLE_RING);
    request = make_request("fed", 10, &penalised);
    request.sampling.presence_penalty = 0.5f;
    submit(&ring, &request);
    for (uint32_t i = 0; i < ORACLE_RING; i++)
        step(&ring);
    assert_int_equal(ring.oracle->n_flying, depth);
    before = ring.oracle->n_steps;
    while (penalised.n_tokens < 9)
        step(&ring);
    assert_in_range(ring.oracle->n_steps - before, 8, 10);
    step(&ring);
    step(&ring);
    assert_int_equal(penalised.n_terminal, 1);
    assert_int_equal(ring.oracle->n_flying, ORACLE_RING);
    for (uint32_t i = 0; i < TOKENS; i++)
        step(&ring);
    assert_int_equal(plain.n_tokens, TOKENS);
    capture_clear(&plain);
    capture_clear(&penalised);
    close_ring(&ring);
}

/* A device without penalties needs the host for them, one with them knows the token of the row that it draws from. */
static void penalties_in_flight(void **state)
{
    (void)state;
    depth_of_penalties(0, 1);
    depth_of_penalties(ORACLE_VOCAB - 1, 1);
    depth_of_penalties(ORACLE_VOCAB, 2);
}

/* ---- The CPU's threads ---- */

/* The bundled model with a backend of which two steps in flight are said to suit it. */
static runnel_model *ring_model(runnel_engine *engine, struct rn_device_caps *caps)
{
    struct rn_model_parts parts = {.limits = {.max_rows = 64,
                                              .max_seqs = 24,
                                              .max_outs = 16,
                                              .n_blocks = 128,
                                              .block_tokens = 32,
                                              .context_tokens = 256,
                                              .draws = true}};
    runnel_model *model = NULL;
    runnel_error error = {0};

    assert_int_equal(rn_gguf_open(&engine->heap, quick_model(), &parts.gguf, &error), RUNNEL_OK);
    assert_int_equal(rn_plan_new(&engine->heap, parts.gguf, 256, &parts.plan, &error), RUNNEL_OK);
    parts.n_vocab = parts.plan->n_vocab;
    assert_int_equal(rn_vocab_new(&engine->heap, parts.gguf, parts.n_vocab, &parts.vocab, &error), RUNNEL_OK);
    parts.device = rn_engine_device(engine, NULL, NULL);
    assert_non_null(parts.device);
    parts.backend = parts.device->kind->new_backend(parts.device, &engine->heap);
    assert_non_null(parts.backend);
    assert_int_equal(parts.backend->ops->prepare(parts.backend, parts.plan, &parts.limits, NULL, NULL, &error),
                     RUNNEL_OK);
    *caps = *parts.backend->caps;
    caps->good_ring = 2;
    parts.backend->caps = caps;
    assert_int_equal(rn_model_new_of_parts(engine, &parts, NULL, &model, &error), RUNNEL_OK);
    assert_int_equal(model->decode.ring.size, 2);
    return model;
}

static runnel_request story(uint32_t i, struct capture *capture)
{
    static const char *const prompts[] = {"Once upon a time", "The owl", "One day a girl named Lily", "In a forest"};
    runnel_request request = make_request(prompts[i % 4], UNLESS_SLOW(8 + 3 * i, 4 + i), capture);

    request.sampling.temperature = i % 2 ? 0.9f : 0;
    request.sampling.seed = i;
    request.sampling.repetition_penalty = i == 7 ? 1.2f : 1;
    request.ignore_eos = i % 3 == 0;
    return request;
}

static void run_stories(runnel_engine *engine, runnel_model *model, struct capture captures[KINDS])
{
    for (uint32_t i = 0; i < KINDS; i++) {
        runnel_request request = story(i, &captures[i]);
        runnel_stream stream;

        assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
        if (i == 9)
            runnel_stream_cancel(engine, stream);
    }
    for (uint32_t i = 0; i < KINDS; i++)
        run_until_end(engine, &captures[i]);
    assert_quiet(engine, 0);
}

static void same_on_threads(void **state)
{
    static struct capture one[KINDS], other[KINDS];
    runnel_engine *engine = start_engine(NULL);
    runnel_model *plain = load_model(engine, quick_model(), NULL), *ring;
    struct rn_device_caps caps;

    (void)state;
    run_stories(engine, plain, one);
    runnel_model_free(plain);
    await_models(engine, 0);
    ring = ring_model(engine, &caps);
    for (uint32_t round = 0; round < UNLESS_SLOW(4, 1); round++) {
        run_stories(engine, ring, other);
        for (uint32_t i = 0; i < KINDS; i++) {
            if (i != 9)
                expect_same(&one[i], &other[i]);
            assert_int_equal(other[i].n_terminal, 1);
            capture_clear(&other[i]);
        }
    }
    runnel_model_free(ring);
    await_models(engine, 0);
    runnel_engine_free(engine);
    for (uint32_t i = 0; i < KINDS; i++)
        capture_clear(&one[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_with_any_ring),    cmocka_unit_test(cancelled_in_flight),
        cmocka_unit_test(penalties_in_any_ring), cmocka_unit_test(penalties_in_flight),
        cmocka_unit_test(counts_take_turns),     cmocka_unit_test(counts_for_who_comes),
        cmocka_unit_test(same_on_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
