/* Speculation changes no text: over the oracle model, whose text is known in closed form, with proposers that lie more
 * or less; and over the bundled model on real threads, against the same request without drafts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "sampling/ngram.h"
#include "tests/actors/fixture.h"
#include "tests/sim/liar.h"
#include "tests/sim/manual.h"
#include "tests/sim/told.h"

#define STREAMS 8
#define SALT 77

static const struct oracle_alphabet alphabet = {5, {'a', 'b', 'c', 'd', 'e'}};
static runnel_engine *engine;
static runnel_model *model;
static struct oracle *oracle;
static struct liar_plan liar;
static uint64_t now_us, step_us;

static uint64_t clock_now(void *user)
{
    (void)user;
    return now_us;
}

static void start_with(const struct rn_backend_limits *room, uint32_t percent)
{
    struct rn_backend_limits limits = {.max_rows = 48,
                                       .max_seqs = 16,
                                       .max_outs = 40,
                                       .n_blocks = room->n_blocks,
                                       .block_tokens = room->block_tokens,
                                       .context_tokens = room->context_tokens,
                                       .mean_window = room->mean_window};
    struct rn_model_parts parts = {
        .limits = limits, .n_vocab = ORACLE_VOCAB, .new_proposer = liar_new, .proposer_user = &liar};
    struct rn_clock clock = {.now_us = clock_now};
    runnel_engine_options options;

    runnel_engine_options_default(&options);
    options.max_streams = STREAMS;
    liar = (struct liar_plan){.alphabet = alphabet, .salt = SALT, .percent = percent, .seed = percent};
    engine = manual_engine(&options, &clock);
    oracle = oracle_new(&limits, &alphabet, SALT);
    parts.backend = &oracle->backend;
    model = manual_model(engine, &parts, NULL);
    step_us = 1000;
}

static void start(uint32_t n_blocks, uint32_t block_tokens, uint32_t percent)
{
    start_with(&(struct rn_backend_limits){.n_blocks = n_blocks, .block_tokens = block_tokens, .context_tokens = 160},
               percent);
}

static void stop(void)
{
    manual_close(engine, oracle);
}

/* One step, which takes step_us whatever its rows, and all that follows. */
static void step(void)
{
    manual_run(engine);
    now_us += step_us;
    if (oracle->first != NULL)
        oracle_complete(oracle, ORACLE_FAULT_NONE);
    manual_run(engine);
    runnel_engine_dispatch(engine, 0);
    manual_run(engine);
}

static runnel_request request_of(struct told *told, uint32_t seed, int64_t max_tokens)
{
    runnel_request request = told_request(told, seed, 3 + seed % 13, max_tokens);

    request.draft = RUNNEL_DRAFT_NGRAM;
    return request;
}

/* Places add up, no later one has more than an earlier, and none is right more often than it was there. */
static void assert_places(uint64_t drafted, uint64_t accepted)
{
    runnel_metrics m = metrics_of(engine);

    assert_int_equal(m.drafts, m.drafted_at[0]);
    for (uint32_t i = 0; i < RUNNEL_MAX_DRAFTS; i++) {
        assert_true(m.accepted_at[i] <= m.drafted_at[i]);
        assert_true(i == 0 || (m.accepted_at[i] <= m.accepted_at[i - 1] && m.drafted_at[i] <= m.drafted_at[i - 1]));
        drafted -= m.drafted_at[i];
        accepted -= m.accepted_at[i];
    }
    assert_true(drafted == 0 && accepted == 0);
    assert_true(m.compared <= m.drafted && m.accepted - m.branched_right <= m.compared);
    assert_true(m.compared - (m.accepted - m.branched_right) <= m.drafts); /* one wrong guess of a pass at most */
}

/* Streams of several lengths at once; few blocks: they take them from each other. */
static void lies_cost_time_only(void **state)
{
    static const uint32_t percents[] = {0, 40, 80, 95, 100}, blocks[] = {40, 200};

    (void)state;
    for (uint32_t p = 0; p < 5; p++)
        for (uint32_t b = 0; b < 2; b++)
            for (uint32_t n = 1; n <= STREAMS; n += 3) {
                struct told told[STREAMS];
                uint64_t drafted = 0, accepted = 0;

                start(blocks[b], 4, percents[p]);
                for (uint32_t i = 0; i < n; i++) {
                    runnel_request request = request_of(&told[i], i + p, 60 + i);

                    request.draft_max = 1 + i % RUNNEL_MAX_DRAFTS;
                    request.sampling.temperature = i % 2 == 0 ? 0 : 0.9f;
                    request.sampling.frequency_penalty = i % 3 == 0 ? 0.5f : 0;
                    told_submit(&told[i], model, &request);
                }
                for (uint32_t i = 0; i < 3000 && !told_all_ended(told, n); i++)
                    step();
                for (uint32_t i = 0; i < n; i++) {
                    assert_int_equal(told[i].last.type, RUNNEL_EVENT_DONE);
                    told_assert_text(&told[i], &alphabet, SALT, 3 + (i + p) % 13, 60 + i);
                    drafted += told[i].last.usage.drafted_tokens;
                    accepted += told[i].last.usage.accepted_tokens;
                }
                assert_true(drafted > 0 && accepted <= drafted);
                assert_true(percents[p] > 0 || accepted * 20 < drafted);
                assert_int_equal(metrics_of(engine).drafted, drafted);
                assert_int_equal(metrics_of(engine).accepted, accepted);
                assert_places(drafted, accepted);
                stop();
            }
}

/* Drafts that are always right: 1 + 8 tokens a pass, none too many at the end; of the model's first stream each pass
 * one row more than those before, whose times are known. */
static void right_drafts_save_passes(void **state)
{
    struct told told;
    runnel_request request;
    uint64_t before;

    (void)state;
    start(40, 32, 100);
    liar.honest_count = true;
    for (uint32_t round = 0; round < 2; round++) {
        request = request_of(&told, 1 + round, 100);
        told_submit(&told, model, &request);
        before = oracle->n_steps;
        for (uint32_t i = 0; i < 200 && !told.ended; i++)
            step();
        told_assert_text(&told, &alphabet, SALT, 4 + round, 100);
        assert_int_equal(told.last.usage.drafted_tokens, told.last.usage.accepted_tokens);
        assert_int_equal(told.last.usage.completion_tokens, 100);
        assert_int_equal(metrics_of(engine).accepted_at[7], metrics_of(engine).drafted_at[7]);
        assert_true(round == 0 || metrics_of(engine).accepted_at[7] >= 10);
        assert_int_equal(metrics_of(engine).drafted_at[8], 0);
        /* the prompt and the first token; each other pass one token and its drafts */
        assert_int_equal(oracle->n_steps - before, 1 + 99 - told.last.usage.accepted_tokens);
        assert_true(oracle->n_steps - before <= 1 + 1 + (99 + 8) / 9 + (round == 0 ? 8 : 0));
    }
    stop();
}

/* Text of which a grammar leaves no choice, to a proposer that is always wrong: 1 + 8 tokens a pass. */
static void forced_text_saves_passes(void **state)
{
    static char text[101];
    const char *const only[] = {text};
    runnel_grammar grammar;
    struct told told;
    uint64_t before;

    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        text[i] = (char)('a' + i * i % 5);
    runnel_grammar_default(&grammar);
    grammar.kind = RUNNEL_GRAMMAR_CHOICES;
    grammar.choices = only;
    grammar.n_choices = 1;
    start(40, 32, 0);
    for (uint32_t round = 0; round < 2; round++) {
        runnel_request request = request_of(&told, 1 + round, 120);

        request.grammar = &grammar;
        request.sampling.temperature = round == 0 ? 0 : 0.9f;
        told_submit(&told, model, &request);
        before = oracle->n_steps;
        for (uint32_t i = 0; i < 200 && !told.ended; i++)
            step();
        assert_int_equal(told.last.type, RUNNEL_EVENT_DONE);
        assert_int_equal(told.last.finish, RUNNEL_FINISH_STOP);
        assert_int_equal(told.n_tokens, 100);
        for (uint32_t i = 0; i < 100; i++)
            assert_int_equal(told.tokens[i], text[i]);
        assert_true(told.last.usage.accepted_tokens >= 60);
        assert_int_equal(oracle->n_steps - before, 100 - told.last.usage.accepted_tokens);
    }
    stop();
}

/* Where old chunks become means: no wrong draft is in one, and what behind them is given away is nobody's still. */
static void drafts_stay_out_of_means(void **state)
{
    static const uint32_t percents[] = {0, 60, 100};
    static struct told told[2];

    (void)state;
    for (uint32_t p = 0; p < 3; p++) {
        start_with(
            &(struct rn_backend_limits){
                .n_blocks = 80, .block_tokens = 8, .context_tokens = 800, .mean_window = RN_CHUNK},
            percents[p]);
        for (uint32_t i = 0; i < 2; i++) {
            runnel_request request = request_of(&told[i], i, 600);

            request.draft_max = 3 + 10 * i;
            told_submit(&told[i], model, &request);
        }
        for (uint32_t i = 0; i < 3000 && !told_all_ended(told, 2); i++)
            step();
        for (uint32_t i = 0; i < 2; i++) {
            told_assert_text(&told[i], &alphabet, SALT, 3 + i, 600);
            assert_true(told[i].last.usage.drafted_tokens > 10);
            assert_true(percents[p] < 100 || told[i].last.usage.accepted_tokens > 400);
        }
        stop();
    }
}

/* Stop tokens and cancels within drafts; the session then holds exactly what was told. */
static void ends_within_drafts(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 20; seed++) {
        struct told told, next;
        runnel_request request;
        runnel_session session;
        int32_t stop_token = 'c';
        struct oracle_chain chain;

        start(200, 4, 90);
        assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
        request = request_of(&told, seed, 80);
        request.session = session;
        if (seed % 2 == 0) {
            request.stop_tokens = &stop_token;
            request.n_stop_tokens = 1;
        }
        told_submit(&told, model, &request);
        for (uint32_t i = 0; i < 200 && !told.ended; i++) {
            step();
            if (seed % 2 == 1 && i == 3 + seed / 4)
                runnel_stream_cancel(engine, told.stream);
        }
        assert_true(told.ended);
        told_assert_text(&told, &alphabet, SALT, (uint32_t)request.n_tokens, told.n_tokens);
        request = request_of(&next, seed + 1, 20);
        request.session = session;
        told_submit(&next, model, &request);
        for (uint32_t i = 0; i < 200 && !next.ended; i++)
            step();
        assert_int_equal(next.last.type, RUNNEL_EVENT_DONE);
        oracle_chain_init(&chain, SALT);
        for (uint32_t i = 0; i < 3 + seed % 13; i++)
            oracle_chain_push(&chain, told.prompt[i]);
        for (uint32_t i = 0; i < told.last.usage.completion_tokens; i++)
            oracle_chain_push(&chain, oracle_chain_next(&chain, &alphabet));
        for (uint32_t i = 0; i < request.n_tokens; i++)
            oracle_chain_push(&chain, next.prompt[i]);
        for (uint32_t i = 0; i < 20; i++) {
            assert_int_equal(next.tokens[i], oracle_chain_next(&chain, &alphabet));
            oracle_chain_push(&chain, next.tokens[i]);
        }
        stop();
    }
}

/* Rows that cost as much as passes: drafting ends, but for a try now and then. */
static void dear_drafts_end(void **state)
{
    struct told told;
    runnel_request request;

    (void)state;
    start(200, 4, 0);
    request = request_of(&told, 1, 110);
    told_submit(&told, model, &request);
    for (uint32_t i = 0; i < 400 && !told.ended; i++) {
        manual_run(engine);
        step_us = oracle->first != NULL ? 1000 * oracle->first->n_rows : 1000;
        step();
    }
    told_assert_text(&told, &alphabet, SALT, 4, 110);
    assert_true(told.last.usage.drafted_tokens > 0 && told.last.usage.drafted_tokens < 30);
    stop();
}

/* Passes that the answer takes to this prompt. */
static uint64_t passes_of(uint64_t tenant, uint64_t salt, bool share)
{
    uint64_t before = oracle->n_steps;
    struct told told;
    runnel_request request = request_of(&told, 5, 100);

    request.tenant = tenant;
    request.cache_salt = salt;
    request.draft_share = share;
    told_submit(&told, model, &request);
    for (uint32_t i = 0; i < 200 && !told.ended; i++)
        step();
    told_assert_text(&told, &alphabet, SALT, 8, 100);
    return oracle->n_steps - before;
}

/* What one answer said helps the tenant's next, and nobody else: of another tenant or salt, and of a request that
 * shares nothing, each takes the passes that it takes alone. */
static void shared_answers_help_their_tenant_only(void **state)
{
    uint64_t alone;

    (void)state;
    start(40, 32, 100);
    model->parts.new_proposer = NULL;
    for (uint32_t i = 0; i < 8; i++) /* the times of all steps are known then */
        passes_of(9, i, true), passes_of(9, i, true);
    alone = passes_of(1, 0, false);
    assert_int_equal(passes_of(1, 0, true), alone);
    assert_true(passes_of(1, 0, true) * 3 < alone);
    assert_int_equal(passes_of(2, 0, true), alone);
    assert_int_equal(passes_of(1, 1, true), alone);
    assert_int_equal(passes_of(1, 0, false), alone);
    assert_true(passes_of(2, 0, true) * 3 < alone);
    for (uint32_t i = 0; i < RN_DRAFT_SHARES; i++) /* the oldest go: it begins anew */
        passes_of(100 + i, 0, true);
    assert_int_equal(passes_of(1, 0, true), alone);
    stop();
}

/* What follows four tokens of the request, as its store says it then; -1: it does not know them. */
static int32_t stored_behind(struct rn_heap *heap, const struct rn_request *request, uint32_t at)
{
    struct rn_draft_share share;
    struct rn_proposer *proposer = rn_ngram_new(heap, 100);
    uint32_t place;
    int32_t next = -1;

    rn_draft_share_init(&share, heap);
    place = rn_draft_share_begin(&share, request, proposer);
    rn_draft_share_end(&share, place, proposer, request);
    rn_ngram_store_propose(share.places[0].store, request->tokens + at, 4, 4, 1, &next);
    proposer->ops->free(proposer);
    rn_draft_share_fini(&share);
    return next;
}

/* The answer is stored, with a little of the prompt before it: also where the context has lost a part since. */
static void answers_are_stored_behind_shifts(void **state)
{
    static const struct {
        uint32_t n_prompt, n_dropped, n_tokens, at;
        bool stored;
    } cases[] = {
        {40, 0, 60, 50, true},   {40, 0, 60, 34, true},   {40, 0, 60, 20, false},  {40, 0, 40, 34, false},
        {40, 100, 60, 4, true},  {40, 100, 60, 30, true}, {40, 100, 60, 2, false}, /* of the head there is nothing */
        {80, 100, 60, 10, true}, {60, 20, 60, 34, true},  {60, 20, 60, 20, false}, {60, 20, 40, 34, false},
    };
    struct rn_heap heap;
    int32_t tokens[60];

    (void)state;
    rn_heap_init(&heap, NULL);
    for (int32_t i = 0; i < 60; i++)
        tokens[i] = 7 * i;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rn_request request = {.draft_share = true, .context_keep = 4, .tokens = tokens};

        request.n_prompt = cases[i].n_prompt;
        request.n_dropped = cases[i].n_dropped;
        request.n_shifts = cases[i].n_dropped > 0;
        request.n_tokens = cases[i].n_tokens;
        assert_int_equal(stored_behind(&heap, &request, cases[i].at),
                         cases[i].stored ? 7 * ((int32_t)cases[i].at + 4) : -1);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void bad_parameters_are_refused(void **state)
{
    struct told told;
    runnel_request request;
    runnel_error error;

    (void)state;
    start(200, 4, 0);
    request = request_of(&told, 1, 10);
    request.draft = (runnel_draft)9;
    assert_int_equal(runnel_generate(model, &request, &told.stream, &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, "draft 9"));
    request.draft = RUNNEL_DRAFT_NGRAM;
    request.draft = RUNNEL_DRAFT_NONE;
    request.draft_share = 1;
    assert_int_equal(runnel_generate(model, &request, &told.stream, &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, "draft_share"));
    request.draft = RUNNEL_DRAFT_NGRAM;
    request.draft_max = RUNNEL_MAX_DRAFTS + 1;
    assert_int_equal(runnel_generate(model, &request, &told.stream, &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, "draft_max = 17"));
    stop();
}

/* Each further sampler in turn, with what it needs of the past. */
static void choose_samplers(runnel_samplers *samplers, uint32_t i)
{
    static const char *const orders[] = {NULL, "top_n_sigma,temperature,penalties,dry", "dry;min_p;temp;xtc"};

    runnel_samplers_default(samplers);
    samplers->order = orders[i % 3];
    samplers->dry_multiplier = i % 4 == 0 ? 0.8f : 0;
    samplers->penalty_scope = i % 2;
    samplers->min_tokens = 20;
    samplers->xtc_probability = 0.5f;
    samplers->typical_p = i % 4 == 1 ? 0.9f : 1;
    samplers->top_n_sigma = i % 4 == 2 ? 1 : 0;
    samplers->temperature_range = i % 4 == 3 ? 0.3f : 0;
    samplers->mirostat = i % 8 == 7 ? 2 : 0;
}

/* Real threads, real arithmetic, real n-grams: each request with drafts and without, greedy and sampled. */
static void bundled_model_says_the_same(void **state)
{
    static const char *const prompts[] = {"Once upon a time there was a little dog. Once upon a time there was a",
                                          "The cat sat on the mat. The cat sat on the mat. The cat sat", "Tom and"};
    runnel_engine *threads = start_engine(NULL);
    runnel_model *bundled = load_model(threads, quick_model(), NULL);
    uint64_t drafted = 0;

    (void)state;
    for (uint32_t i = 0; i < 24; i += test_device() != NULL ? 5 : 1) {
        struct capture plain = {0}, fast = {0};
        runnel_request request = make_request(prompts[i % 3], test_device() != NULL ? 14 : 60, &plain);
        runnel_samplers samplers;

        choose_samplers(&samplers, i);
        request.sampling.samplers = i < 12 ? NULL : &samplers;
        request.sampling.temperature = i < 6 || i == 15 ? 0 : 0.8f;
        request.sampling.seed = i;
        request.sampling.repetition_penalty = i % 2 == 0 ? 1 : 1.2f;
        run_request(threads, bundled, &request);
        request.user = &fast;
        request.draft = RUNNEL_DRAFT_NGRAM;
        run_request(threads, bundled, &request);
        assert_int_equal(plain.n_tokens, fast.n_tokens);
        assert_memory_equal(plain.tokens, fast.tokens, plain.n_tokens * sizeof *plain.tokens);
        assert_int_equal(plain.text_bytes, fast.text_bytes);
        assert_memory_equal(plain.text, fast.text, plain.text_bytes);
        assert_int_equal(plain.last.usage.drafted_tokens, 0);
        drafted += fast.last.usage.drafted_tokens;
        capture_clear(&plain);
        capture_clear(&fast);
    }
    /* whether a guess pays is a matter of time: steps of several rows are dear on an emulated device */
    assert_true(drafted > 0 || test_device() != NULL);
    runnel_engine_free(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lies_cost_time_only),
        cmocka_unit_test(right_drafts_save_passes),
        cmocka_unit_test(forced_text_saves_passes),
        cmocka_unit_test(drafts_stay_out_of_means),
        cmocka_unit_test(ends_within_drafts),
        cmocka_unit_test(dear_drafts_end),
        cmocka_unit_test(shared_answers_help_their_tenant_only),
        cmocka_unit_test(answers_are_stored_behind_shifts),
        cmocka_unit_test(bad_parameters_are_refused),
        cmocka_unit_test(bundled_model_says_the_same),
    };

    return run_cases(tests, NULL, NULL);
}
