/* What a draft model knows of a stream's past: a session's next turn, a fork, a request that was taken back and the
 * same prompt again begin with the KV that there is, others' salts share nothing, and what is not there is read as far
 * as its price allows. Over the oracle model under a logical clock: its drafter's guess follows from all tokens before
 * it, so that one that knew less, or something else, would be wrong. And a trained pair in a real dialogue. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "model/stop.h"
#include "tests/actors/fixture.h"
#include "tests/actors/draft/metered.h"
#include "tests/support/shared.h"
#include "tests/sim/told.h"

#define SALT 79
#define STEP_US 1000u
#define PASS_US 100u
#define BLOCK 16u

static const struct oracle_alphabet alphabet = {5, {'a', 'b', 'c', 'd', 'e'}};
static runnel_engine *engine;
static runnel_model *model;
static struct oracle *target, *drafter;
static bool concurrent;
static uint32_t drafter_row_us;
static uint64_t now_us, n_rows;     /* of the drafter */
static uint64_t n_passes, fails_at; /* likewise: the pass of that number fails; 0: none */
static bool branch_died;            /* a second branch was in it */

static uint64_t clock_now(void *user)
{
    (void)user;
    return now_us;
}

static void submitted(void *user, struct oracle *oracle)
{
    uint64_t takes = oracle == target ? STEP_US : PASS_US + drafter_row_us * (oracle->last->n_rows - 1), from = now_us;
    const struct oracle *other = oracle == target ? drafter : target;

    (void)user;
    n_rows += oracle == drafter ? oracle->last->n_rows : 0;
    if (!concurrent && other->first != NULL && other->due_us > from)
        from = other->due_us;
    oracle->due_us = from + takes;
}

static struct oracle *new_oracle(const struct rn_backend_limits *limits)
{
    struct oracle *oracle = oracle_new(limits, &alphabet, SALT);

    assert_non_null(oracle);
    oracle->submitted = submitted;
    return oracle;
}

static void start(bool beside, uint32_t n_blocks, uint32_t draft_blocks, uint32_t row_us)
{
    struct rn_backend_limits limits = {.max_rows = 128,
                                       .max_seqs = 16,
                                       .max_outs = 120,
                                       .n_blocks = n_blocks,
                                       .block_tokens = BLOCK,
                                       .context_tokens = 1400};
    struct rn_model_parts parts = {.limits = limits, .n_vocab = ORACLE_VOCAB};
    struct rn_clock clock = {.now_us = clock_now};
    runnel_engine_options options;

    concurrent = beside;
    now_us = 1;
    n_rows = n_passes = fails_at = 0;
    branch_died = false;
    drafter_row_us = row_us;
    runnel_engine_options_default(&options);
    options.max_streams = 8;
    assert_int_equal(rn_engine_new(&options, &clock, true, &engine, NULL), RUNNEL_OK);
    target = new_oracle(&limits);
    limits.n_blocks = draft_blocks;
    limits.max_seqs = limits.max_outs = 8;
    drafter = new_oracle(&limits);
    parts.backend = &target->backend;
    parts.vocab = rn_vocab_new_bytes(&engine->heap);
    parts.drafter = (struct rn_drafter){.kind = RN_DRAFTER_TOKENS,
                                        .n_layers = 1,
                                        .concurrent = beside,
                                        .backend = &drafter->backend,
                                        .limits = limits,
                                        .pass_us = PASS_US,
                                        .row_us = (float)row_us};
    for (uint32_t n = 1; n <= 64; n *= 2)
        rn_step_cost_record(&parts.cost, n, STEP_US);
    assert_int_equal(rn_model_new_of_parts(engine, &parts, NULL, &model, NULL), RUNNEL_OK);
}

static void run_actors(void)
{
    while (rn_runtime_runnable(&engine->runtime) > 0) {
        rn_runtime_step(&engine->runtime, 0, RN_ACTOR_BATCH);
        assert_true(rn_draft_actor_check(&model->draft) && rn_verifier_check(&model->verifier));
    }
}

/* Does it fail, and who is in it? */
static bool fails(const struct oracle *oracle)
{
    if (oracle != drafter || ++n_passes != fails_at)
        return false;
    for (uint32_t i = 0; i < model->draft.n_draft_streams; i++)
        branch_died |= model->draft.draft_streams[i].branch.in_pass;
    return true;
}

static void step(void)
{
    struct oracle *next = target;

    run_actors();
    if (target->first == NULL || (drafter->first != NULL && drafter->due_us < target->due_us))
        next = drafter;
    if (next->first != NULL) {
        now_us = now_us > next->due_us ? now_us : next->due_us;
        oracle_complete(next, fails(next) ? ORACLE_FAULT_DEVICE : ORACLE_FAULT_NONE);
    }
    run_actors();
    runnel_engine_dispatch(engine, 0);
    run_actors();
}

static void run(const struct told *told, uint32_t n)
{
    for (uint32_t i = 0; i < 20000 && !told_all_ended(told, n); i++)
        step();
    assert_true(told_all_ended(told, n));
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(told[i].last.type, RUNNEL_EVENT_DONE);
}

static void stop(void)
{
    while (target->first != NULL || drafter->first != NULL)
        step();
    runnel_engine_free(engine);
    assert_null(target->breach);
    assert_null(drafter->breach);
    oracle_free(target);
    oracle_free(drafter);
}

static runnel_request request_of(struct told *told, uint32_t seed, uint32_t n_prompt, int64_t max_tokens)
{
    runnel_request request = told_request(told, seed, n_prompt, max_tokens);

    request.draft = RUNNEL_DRAFT_MODEL;
    return request;
}

/* One turn to its end; rows that the drafter computed for it, but for those of what the turn itself has brought. */
static uint64_t take_turn(struct told *told, const runnel_request *request)
{
    const runnel_usage *usage = &told->last.usage;
    uint64_t before = n_rows, own;

    told_submit(told, model, request);
    run(told, 1);
    own = request->n_tokens + usage->completion_tokens + usage->drafted_tokens;
    return n_rows - before > own ? n_rows - before - own : 0;
}

static void continue_chain(struct oracle_chain *chain, const struct told *told, uint32_t n_prompt)
{
    for (uint32_t i = 0; i < n_prompt; i++)
        oracle_chain_push(chain, told->prompt[i]);
    for (uint32_t i = 0; i < told->n_tokens; i++) {
        assert_int_equal(told->tokens[i], oracle_chain_next(chain, &alphabet));
        oracle_chain_push(chain, told->tokens[i]);
    }
}

static bool is_right(const struct told *told)
{
    const runnel_usage *usage = &told->last.usage;

    return usage->accepted_tokens > usage->completion_tokens / 2 &&
           10 * usage->accepted_tokens > 9 * usage->drafted_tokens;
}

/* Behind each turn the drafter has nothing to read but that turn's own tokens, and is right as in the first. */
static void turns_go_on_where_they_were(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 2; way++) {
        static struct told told;
        struct oracle_chain chain, fork;
        runnel_session session, other;
        runnel_request request;

        start(way == 1, 400, 400, 0);
        assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
        oracle_chain_init(&chain, SALT);
        for (uint32_t turn = 0; turn < 4; turn++) {
            request = request_of(&told, turn, 40, 200);
            request.session = session;
            assert_in_range(take_turn(&told, &request), 0, 2 * BLOCK + 40);
            assert_true(is_right(&told));
            continue_chain(&chain, &told, 40);
        }
        fork = chain;
        assert_int_equal(runnel_session_fork(model, session, &other), RUNNEL_OK);
        for (uint32_t turn = 0; turn < 2; turn++) { /* both go on from the same KV */
            request = request_of(&told, 10 + turn, 10, 100);
            request.session = turn == 0 ? session : other;
            assert_in_range(take_turn(&told, &request), 0, 2 * BLOCK + 40);
            assert_true(is_right(&told));
            continue_chain(turn == 0 ? &chain : &fork, &told, 10);
        }
        stop();
    }
}

static void run_prompt(struct told *told, uint32_t seed, uint64_t salt)
{
    runnel_request request = request_of(told, seed, 200, 100);

    request.cache_salt = salt;
    told_submit(told, model, &request);
    run(told, 1);
    told_assert_text(told, &alphabet, SALT, 200, 100);
    assert_true(is_right(told));
}

/* The same prompt again is known, under another salt it is not. */
static void prompts_are_shared_by_salt(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 2; way++) {
        static struct told told;
        uint64_t rows[4];

        start(way == 1, 400, 400, 0);
        for (uint32_t i = 0; i < 4; i++) {
            rows[i] = n_rows;
            run_prompt(&told, 1, i / 2 == 0 ? 0 : 5);
            rows[i] = n_rows - rows[i];
        }
        for (uint32_t i = 0; i < 4; i += 2) {
            assert_in_range(rows[i], 290, 450);
            assert_in_range(rows[i + 1], 100, rows[i] - 200 + BLOCK + 40);
        }
        stop();
    }
}

static bool pass_is_wanted(void)
{
    for (uint32_t i = 0; i < model->draft.n_draft_streams; i++)
        if ((model->draft.draft_streams[i].in_pass || model->draft.draft_streams[i].branch.in_pass) &&
            !model->draft.draft_streams[i].ended)
            return true;
    return false;
}

/* The first of n streams is cancelled while a pass of the drafter is in flight. True: it was in that pass alone, which
 * then is to stop. Nothing of such a pass is taken by who has the same prompt. */
static bool cancel_in_a_pass(bool beside, uint32_t at, uint32_t n)
{
    static struct told told[2];
    bool stops = false;

    start(beside, 400, 400, 0);
    for (uint32_t i = 0; i < n; i++) {
        runnel_request request = request_of(&told[i], i, 200, 150);

        told_submit(&told[i], model, &request);
    }
    for (uint32_t i = 0; i < at || drafter->first == NULL; i++)
        step();
    assert_false(rn_stop_is_set(drafter->first->stop));
    assert_false(told[0].ended);
    assert_int_equal(runnel_stream_cancel(engine, told[0].stream), RUNNEL_OK);
    run_actors();
    if (target->first != NULL) /* nothing waits for the drafter */
        oracle_complete(target, ORACLE_FAULT_NONE);
    run_actors();
    runnel_engine_dispatch(engine, 0);
    run_actors();
    assert_int_equal(told[0].last.type, RUNNEL_EVENT_CANCELLED);
    if (drafter->first != NULL) {
        stops = rn_stop_is_set(drafter->first->stop);
        assert_int_equal(stops, !pass_is_wanted());
    }
    if (n > 1) {
        run(told + 1, 1);
        told_assert_text(&told[1], &alphabet, SALT, 200, 150);
        assert_true(is_right(&told[1]));
    }
    while (drafter->first != NULL)
        step();
    assert_int_equal(drafter->n_stopped, stops);
    run_prompt(&told[0], 0, 0);
    stop();
    return stops;
}

static void what_nobody_waits_for_is_stopped(void **state)
{
    uint32_t n_stopped[2][2] = {{0}};

    (void)state;
    for (uint32_t way = 0; way < 4; way++)
        for (uint32_t at = 1; at < 40; at += 2)
            n_stopped[way / 2][way % 2] += cancel_in_a_pass(way / 2 == 1, at, 1 + way % 2);
    assert_true(n_stopped[0][0] > 5 && n_stopped[1][0] > 5 && n_stopped[1][1] < n_stopped[1][0]);
}

/* Who runs takes the blocks of those that have ended: there is room for one stream and a bit. */
static void pasts_give_way(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 2; way++) {
        static struct told told;

        start(way == 1, 400, 24, 0);
        for (uint32_t i = 0; i < 6; i++)
            run_prompt(&told, i % 3, 0);
        stop();
    }
}

/* A request that is taken back for another comes again with its drafter's KV. */
static void who_was_taken_back_goes_on(void **state)
{
    uint64_t n_taken_back = 0;

    (void)state;
    for (uint32_t way = 0; way < 2; way++) {
        static struct told told[2];
        uint64_t own = 0;

        start(way == 1, 30, 400, 0);
        for (uint32_t i = 0; i < 2; i++) {
            runnel_request request = request_of(&told[i], i, 100, 300);

            request.priority = (int32_t)i;
            told_submit(&told[i], model, &request);
            while (i == 0 && told[0].n_tokens < 200)
                step();
        }
        run(told, 2);
        n_taken_back += metrics_of(engine).preemptions;
        for (uint32_t i = 0; i < 2; i++) {
            told_assert_text(&told[i], &alphabet, SALT, 100, 300);
            assert_true(is_right(&told[i]));
            own += 100 + told[i].last.usage.completion_tokens + told[i].last.usage.drafted_tokens;
        }
        assert_in_range(n_rows, 0, own + 2 * (BLOCK + 40));
        stop();
    }
    assert_true(n_taken_back > 0);
}

/* A turn of 100 tokens behind 400 that the drafter does not know: what it takes, without drafts or with. */
static uint64_t time_of_turn(uint32_t seed, uint32_t row_us, bool drafts, uint32_t wrong_percent, struct told *told)
{
    runnel_session session;
    runnel_request request;
    uint64_t begin_us;

    start(false, 400, 400, row_us);
    drafter->wrong_percent = wrong_percent;
    assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
    for (uint32_t turn = 0; turn < 2; turn++) {
        request = request_of(told, seed + turn, turn == 0 ? 200 : 20, turn == 0 ? 200 : 100);
        request.draft = turn == 1 && drafts ? RUNNEL_DRAFT_MODEL : RUNNEL_DRAFT_NONE;
        request.session = session;
        begin_us = now_us;
        told_submit(told, model, &request);
        run(told, 1);
    }
    begin_us = now_us - begin_us;
    stop();
    return begin_us;
}

/* To read all of it would cost nothing, 0.4 of a step, 4 steps or 12. What is cheap is read, and is worth it; a drafter
 * that is never right costs next to nothing, whatever there is to read. */
static void the_past_is_read_at_its_price(void **state)
{
    static const uint32_t row_us[] = {0, 1, 10, 30};
    static struct told told;

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t plain = 0, right = 0, wrong = 0;

        for (uint32_t seed = 0; seed < UNLESS_SLOW(10, 3); seed += 2) {
            plain += time_of_turn(seed, row_us[i], false, 0, &told);
            wrong += time_of_turn(seed, row_us[i], true, 100, &told);
            right += time_of_turn(seed, row_us[i], true, 0, &told);
            assert_true(row_us[i] > 1 || is_right(&told));
        }
        assert_true(row_us[i] > 1 || (double)plain > 2.5 * (double)right);
        printf("%u us a row: %.3f x plain, never right %.3f\n", row_us[i], (double)plain / (double)right,
               (double)plain / (double)wrong);
        assert_true((double)plain > 0.98 * (double)right && (double)plain > 0.98 * (double)wrong);
    }
}

/* A drafter with a second branch in the pass that fails drafts no more, and what that pass did not compute is kept for
 * nobody: the streams that run, and those that come with the same prompts, are told what they should be. */
static void one_that_dies_in_a_branch_is_left(void **state)
{
    uint32_t n_branches = 0;

    (void)state;
    for (uint32_t at = 4; at < UNLESS_SLOW(64, 24); at++) {
        static struct told told[2];

        start(true, 400, 400, 0);
        drafter->wrong_percent = 50;
        drafter->second_percent = 90;
        fails_at = at;
        for (uint32_t turn = 0; turn < 2; turn++) {
            for (uint32_t i = 0; i < 2; i++) {
                runnel_request request = request_of(&told[i], i, 60, 80);

                told_submit(&told[i], model, &request);
            }
            run(told, 2);
            for (uint32_t i = 0; i < 2; i++)
                told_assert_text(&told[i], &alphabet, SALT, 60, 80);
        }
        assert_true(n_passes == fails_at && told[1].last.usage.drafted_tokens == 0);
        n_branches += branch_died;
        stop();
    }
    printf("%u of them died in a branch\n", n_branches);
    assert_true(n_branches > 0);
}

/* ---- A trained pair ---- */

static struct {
    uint32_t n_tokens;
    int32_t tokens[3][128];
    uint64_t drafted, accepted; /* of all turns but the first */
} spoken;

/* Three turns of a dialogue, in the words of the model's own template. */
static void speak(runnel_engine *threads, runnel_model *pair, float temperature, uint32_t draft, bool compare)
{
    static const char *const asks[] = {"Tell me a story about an owl.", "And now one about a hare.",
                                       "What did it learn?"};
    runnel_session session;

    assert_int_equal(runnel_session_new(pair, &session), RUNNEL_OK);
    for (uint32_t turn = 0; turn < 3; turn++) {
        struct capture capture = {0};
        char prompt[160];
        runnel_request request;

        snprintf(prompt, sizeof prompt, "%s<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n",
                 turn > 0 ? "<|im_end|>\n" : "", asks[turn]);
        request = make_request(prompt, UNLESS_SLOW(100, 30), &capture);
        request.parse_special = 1;
        request.ignore_eos = 1;
        request.session = session;
        request.draft = draft;
        request.sampling.temperature = temperature;
        request.sampling.seed = turn;
        assert_int_equal(run_request(threads, pair, &request), RUNNEL_EVENT_DONE);
        assert_true(capture.n_tokens <= 128);
        if (compare)
            assert_memory_equal(spoken.tokens[turn], capture.tokens, capture.n_tokens * sizeof capture.tokens[0]);
        memcpy(spoken.tokens[turn], capture.tokens, capture.n_tokens * sizeof capture.tokens[0]);
        spoken.drafted += turn > 0 ? capture.last.usage.drafted_tokens : 0;
        spoken.accepted += turn > 0 ? capture.last.usage.accepted_tokens : 0;
        capture_clear(&capture);
    }
    assert_int_equal(runnel_session_free(pair, session), RUNNEL_OK);
}

/* All of the past known, from the turn before or read; or so dear that eight tokens of it are read: the answers are
 * those without drafts, and a third of the drafts and more are right, the first of a pass in three of four cases. */
static void dialogues_say_the_same(void **state)
{
    char target_path[300], draft_path[300];

    (void)state;
    if (!shared_find("models/runnel-tiny-F16.gguf", target_path, sizeof target_path) ||
        !shared_find("models/runnel-tiny-draft-F16.gguf", draft_path, sizeof draft_path))
        skip();
    for (uint32_t way = 0; way < 4; way++) {
        runnel_engine *threads = metered_engine();
        runnel_model *pair = metered_model(threads, target_path, draft_path);

        pair->draft.row_us = way % 2 == 0 ? 0 : 1000;
        spoken.drafted = spoken.accepted = 0;
        speak(threads, pair, way < 2 ? 0 : 0.8f, RUNNEL_DRAFT_NONE, false);
        speak(threads, pair, way < 2 ? 0 : 0.8f, RUNNEL_DRAFT_MODEL, true);
        printf("temperature %s, %s: %llu drafts in later turns, %llu right; runners-up in all, %llu, %llu right\n",
               way < 2 ? "0" : "0.8", way % 2 == 0 ? "all of the past" : "the end of it",
               (unsigned long long)spoken.drafted, (unsigned long long)spoken.accepted,
               (unsigned long long)metrics_of(threads).branched,
               (unsigned long long)metrics_of(threads).branched_right);
        assert_true(spoken.drafted > UNLESS_SLOW(20, 4) && 3 * spoken.accepted > spoken.drafted);
        runnel_model_free(pair);
        await_models(threads, 0);
        runnel_engine_free(threads);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_go_on_where_they_were),
        cmocka_unit_test(prompts_are_shared_by_salt),
        cmocka_unit_test(pasts_give_way),
        cmocka_unit_test(what_nobody_waits_for_is_stopped),
        cmocka_unit_test(who_was_taken_back_goes_on),
        cmocka_unit_test(the_past_is_read_at_its_price),
        cmocka_unit_test(one_that_dies_in_a_branch_is_left),
        cmocka_unit_test(dialogues_say_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
