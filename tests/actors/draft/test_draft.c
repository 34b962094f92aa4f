/* A draft model changes no text and costs no time. The oracle model under a logical clock, with another oracle as its
 * drafter that is right with a given chance, has a pass time of its own, breaks, or has little memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "base/rng.h"
#include "tests/actors/fixture.h"
#include "tests/sim/manual.h"
#include "tests/sim/told.h"

#define STREAMS 8
#define SALT 78
#define VERIFY_US 1000u

static const struct oracle_alphabet alphabet = {5, {'a', 'b', 'c', 'd', 'e'}};

/* What a run is made of. */
struct setting {
    bool concurrent;
    uint32_t right_percent;
    uint32_t pass_us; /* of the drafter; a step of the target takes VERIFY_US, whatever its rows */
    uint32_t n_blocks, draft_blocks, block_tokens;
    uint32_t fails_at;        /* the drafter's pass of that number fails; 0: none */
    uint32_t target_fails_at; /* likewise the model's step of that number */
    uint32_t jams_at;         /* from that pass on it takes a hundred times as long; 0: never */
    uint32_t second_percent;  /* not 0: where the drafter is wrong its second choice is right so often */
    uint32_t row_us;          /* not 0: what each row of the target takes besides VERIFY_US */
    bool chain;               /* the model cannot verify trees */
    bool asks_chain;          /* or the requests want none */
    uint32_t draft_max;       /* of the requests; 0: as many as they like */
    uint32_t first_seed;      /* of their prompts */
    bool states;              /* the model has a recurrent state */
    uint32_t wrong_steps;     /* in so many steps of the model, from the first on, no guess is right */
};

static struct setting setting;
static runnel_engine *engine;
static runnel_model *model;
static struct oracle *target, *drafter;
static uint64_t now_us, n_passes, n_warnings, n_allocations, n_branched, n_branched_right;

static uint64_t clock_now(void *user)
{
    (void)user;
    return now_us;
}

static void on_log(void *user, runnel_log_level level, const char *text)
{
    (void)user;
    n_warnings += level == RUNNEL_LOG_WARNING && strstr(text, "drafter") != NULL;
}

static void *count_alloc(void *user, size_t bytes, size_t alignment)
{
    void *ptr = NULL;

    (void)user;
    n_allocations++;
    return posix_memalign(&ptr, alignment < sizeof ptr ? sizeof ptr : alignment, bytes) == 0 ? ptr : NULL;
}

static void count_free(void *user, void *ptr, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(ptr);
}

static uint64_t latest(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t verify_us(uint32_t n_rows)
{
    return VERIFY_US + (uint64_t)setting.row_us * n_rows;
}

/* Each runs one step after the other; those that take turns wait for each other too. */
static void submitted(void *user, struct oracle *oracle)
{
    uint64_t takes = oracle == target ? verify_us(oracle->last->n_rows) : setting.pass_us, from = now_us;
    const struct oracle *other = oracle == target ? drafter : target;

    (void)user;
    if (oracle == drafter && setting.jams_at > 0 && n_passes + 1 >= setting.jams_at)
        takes *= 100;
    if (!setting.concurrent && other != NULL && other->first != NULL)
        from = latest(from, other->due_us);
    oracle->due_us = from + takes;
}

static struct oracle *new_oracle(const struct rn_backend_limits *limits, uint32_t wrong_percent)
{
    struct oracle *oracle = oracle_new(limits, &alphabet, SALT);

    assert_non_null(oracle);
    oracle->wrong_percent = wrong_percent;
    oracle->submitted = submitted;
    return oracle;
}

static void start(const struct setting *s, bool drafts)
{
    struct rn_backend_limits limits = {.max_rows = 128,
                                       .max_seqs = 16,
                                       .max_outs = 120,
                                       .n_blocks = s->n_blocks,
                                       .block_tokens = s->block_tokens,
                                       .context_tokens = 1400,
                                       .n_states = s->states ? 3 * STREAMS : 0,
                                       .tree_depth = s->chain || s->states ? 0 : RN_DRAFT_MOST};
    struct rn_model_parts parts = {.limits = limits, .n_vocab = ORACLE_VOCAB};
    struct rn_clock clock = {.now_us = clock_now};
    runnel_engine_options options;

    setting = *s;
    now_us = 1;
    n_passes = n_warnings = 0;
    runnel_engine_options_default(&options);
    options.max_streams = STREAMS;
    options.on_log = on_log;
    options.allocator = (runnel_allocator){count_alloc, count_free, NULL};
    engine = manual_engine(&options, &clock);
    target = new_oracle(&limits, 0);
    drafter = NULL;
    parts.backend = &target->backend;
    if (drafts) {
        limits.n_blocks = s->draft_blocks;
        limits.max_seqs = limits.max_outs = STREAMS;
        limits.max_rows = 128;
        limits.tree_depth = limits.n_states = 0;
        drafter = new_oracle(&limits, 100 - s->right_percent);
        drafter->second_percent = s->second_percent;
        parts.drafter = (struct rn_drafter){.kind = RN_DRAFTER_TOKENS,
                                            .n_layers = 1,
                                            .concurrent = s->concurrent,
                                            .backend = &drafter->backend,
                                            .limits = limits,
                                            .pass_us = s->pass_us};
    }
    for (uint32_t n = 1; drafts && n <= 64; n = n < 8 ? n + 1 : 2 * n) /* as the load does */
        rn_step_cost_record(&parts.cost, n, verify_us(n));
    model = manual_model(engine, &parts, NULL);
}

static void run_actors(void)
{
    static uint32_t n_steps;

    while (rn_runtime_runnable(&engine->runtime) > 0) {
        rn_runtime_step(&engine->runtime, 0, RN_ACTOR_BATCH);
        if (n_steps++ % UNLESS_SANITIZED(1, 16) > 0)
            continue;
        assert_true(rn_draft_actor_check(&model->draft) && rn_verifier_check(&model->verifier));
    }
}

static void complete(struct oracle *oracle)
{
    bool fails = (oracle == drafter && ++n_passes == setting.fails_at) ||
                 (oracle == target && setting.target_fails_at > 0 && target->n_steps == setting.target_fails_at);

    now_us = latest(now_us, oracle->due_us);
    oracle_complete(oracle, fails ? ORACLE_FAULT_DEVICE : ORACLE_FAULT_NONE);
    if (drafter != NULL && setting.wrong_steps > 0)
        drafter->wrong_percent = target->n_steps < setting.wrong_steps ? 100 : 100 - setting.right_percent;
    if (oracle->first != NULL)
        submitted(NULL, oracle);
}

/* Whatever is done next, and all that follows. False: nothing is under way. */
static bool step(void)
{
    bool a, b;

    run_actors();
    a = target->first != NULL;
    b = drafter != NULL && drafter->first != NULL;
    if (a && (!b || target->due_us <= drafter->due_us))
        complete(target);
    else if (b)
        complete(drafter);
    run_actors();
    runnel_engine_dispatch(engine, 0);
    run_actors();
    return a || b;
}

static void stop(void)
{
    while ((target->first != NULL || (drafter != NULL && drafter->first != NULL)) && step())
        ;
    runnel_engine_free(engine);
    manual_oracle_free(target);
    if (drafter != NULL)
        manual_oracle_free(drafter);
}

static runnel_request request_of(struct told *told, uint32_t seed, uint32_t n_prompt, int64_t max_tokens)
{
    runnel_request request = told_request(told, seed, n_prompt, max_tokens);

    request.draft = drafter != NULL ? RUNNEL_DRAFT_MODEL : RUNNEL_DRAFT_NONE;
    request.draft_chain = setting.asks_chain;
    request.draft_max = setting.draft_max;
    return request;
}

static void run_all(const struct told *told, uint32_t n)
{
    for (uint32_t i = 0; i < 100000 && !told_all_ended(told, n); i++)
        step();
    assert_true(told_all_ended(told, n));
}

/* n streams with prompts of several lengths; what they took, and the share of drafts that were right. */
static uint64_t run_streams(const struct setting *s, bool drafts, uint32_t n, int64_t n_tokens, double *accepted)
{
    static struct told told[STREAMS];
    uint64_t begin_us, took_us, drafted = 0, right = 0;

    start(s, drafts);
    begin_us = now_us;
    for (uint32_t i = 0; i < n; i++) {
        runnel_request request = request_of(&told[i], s->first_seed + i, 3 + 24 * i, n_tokens);

        request.sampling.temperature = i % 2 == 0 ? 0 : 0.9f;
        request.sampling.frequency_penalty = i % 3 == 0 ? 0.5f : 0;
        told_submit(&told[i], model, &request);
    }
    run_all(told, n);
    took_us = now_us - begin_us;
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(told[i].last.type, RUNNEL_EVENT_DONE);
        told_assert_text(&told[i], &alphabet, SALT, 3 + 24 * i, (uint32_t)n_tokens);
        drafted += told[i].last.usage.drafted_tokens;
        right += told[i].last.usage.accepted_tokens;
    }
    n_branched = metrics_of(engine).branched;
    n_branched_right = metrics_of(engine).branched_right;
    assert_true(n_branched_right <= n_branched && n_branched <= drafted);
    assert_int_equal(metrics_of(engine).drafted, drafted);
    assert_int_equal(metrics_of(engine).accepted, right);
    assert_true(drafts || drafted == 0);
    *accepted = drafted > 0 ? (double)right / (double)drafted : 0;
    stop();
    return took_us;
}

static struct setting plain_setting(bool concurrent, uint32_t right_percent)
{
    return (struct setting){.concurrent = concurrent,
                            .right_percent = right_percent,
                            .pass_us = VERIFY_US / 5,
                            .n_blocks = 800,
                            .draft_blocks = 800,
                            .block_tokens = 16};
}

static void texts_are_the_same(void **state)
{
    static const uint32_t percents[] = {0, 40, 80, 95, 100}, counts[] = {1, 3, 8};

    (void)state;
    for (uint32_t p = 0; p < 5; p++)
        for (uint32_t c = 0; c < 3; c++)
            for (uint32_t way = 0; way < UNLESS_SLOW(8, 2); way++) {
                struct setting s = plain_setting(way % 4 >= 2, percents[p]);
                double accepted;

                if (way % 2 == 1)
                    s.second_percent = 70;
                if (way >= 4) { /* they take blocks from each other, and not all find some to draft with */
                    s.n_blocks = 150;
                    s.draft_blocks = 40;
                    s.block_tokens = 4;
                }
                run_streams(&s, true, counts[c], 180, &accepted);
                if (percents[p] >= 80 && way < 4 && way % 2 == 0)
                    assert_true(accepted > 0.35 && (percents[p] < 100 || accepted > 0.95));
                if (percents[p] == 80 && way < 4 && way % 2 == 1)
                    assert_true(n_branched_right > 0);
                if (way % 2 == 0)
                    assert_int_equal(n_branched, 0);
            }
}

/* Right in half of the cases, and its second choice in nine tenths of the others: a chain breaks early, a tree does not
 * at its leaves. Where rows cost nothing the tree gains; where they are dear the policy leaves it and loses nothing.
 * Without trees in the backend, or with draft_chain, there are none. */
static void trees_gain_where_they_pay(void **state)
{
    static const uint32_t row_us[] = {0, 10, 60, 400};

    (void)state;
    for (uint32_t i = 0; i < UNLESS_SLOW(8, 0); i++) {
        struct setting s = plain_setting(i % 2 == 1, 50);
        uint64_t chain, tree;
        double accepted;

        s.second_percent = 90;
        s.row_us = row_us[i / 2];
        s.chain = i % 4 < 2;
        s.asks_chain = !s.chain;
        chain = run_streams(&s, true, 1, 1000, &accepted);
        assert_int_equal(n_branched, 0);
        s.chain = s.asks_chain = false;
        tree = run_streams(&s, true, 1, 1000, &accepted);
        print_message("%s, a row %u us: %.3f x chain, %llu runners-up, %llu right\n",
                      s.concurrent ? "beside" : "in turn", s.row_us, (double)chain / (double)tree,
                      (unsigned long long)n_branched, (unsigned long long)n_branched_right);
        assert_true((double)chain > (s.row_us == 0 ? 1.05 : 0.97) * (double)tree);
    }
}

/* Whatever the drafter is, drafting costs at most a fiftieth; where it is good, it gains. */
static void it_never_costs_much(void **state)
{
    static const uint32_t passes[] = {50, 200, 700, 3000}, percents[] = {0, 30, 100};

    (void)state;
    for (uint32_t way = 0; way < UNLESS_SLOW(2, 0); way++) /* one thread: nothing for ThreadSanitizer to see */
        for (uint32_t n = 1; n <= STREAMS; n += 7)
            for (uint32_t t = 0; t < 4; t++)
                for (uint32_t p = 0; p < 3; p++) {
                    struct setting s = plain_setting(way == 1, percents[p]);
                    double accepted;
                    uint64_t without = run_streams(&s, false, n, 1000, &accepted), with;

                    s.pass_us = passes[t];
                    with = run_streams(&s, true, n, 1000, &accepted);
                    if (getenv("RUNNEL_VERBOSE") != NULL)
                        printf("%s, %u streams, pass %u us, right %u: %.3f x plain, %llu passes\n",
                               way ? "beside" : "in turn", n, passes[t], percents[p], (double)without / (double)with,
                               (unsigned long long)n_passes);
                    assert_true((double)without > 0.98 * (double)with);
                    if (percents[p] == 100 && passes[t] <= 200)
                        assert_true((double)without > 2.5 * (double)with);
                }
}

/* A request that is alone has nobody to borrow from: whatever its first guesses are worth and however short it is, it
 * is not slower by more than a fiftieth, and behind wrong first guesses it still comes to those that are right. */
static void a_lone_request_never_loses(void **state)
{
    static const uint32_t passes[] = {50, 100, 250, 600}, rows[] = {0, 50, 150}, percents[] = {0, 40, 84};
    static const uint32_t wrong[] = {0, 2, 4, 8}, lengths[] = {10, 24, 96, 300};
    const uint32_t most = 2 * 4 * 3 * 3 * 4 * UNLESS_SANITIZED(4, 3);
    double least = 2, gain = 0;
    uint32_t n = 0, n_gains = 0;

    (void)state;
    for (uint32_t i = 0; i < UNLESS_SLOW(most, 0); i++) {
        struct setting s = plain_setting(i % 2 == 1, percents[i / 24 % 3]);
        uint32_t length = lengths[i / 288];
        double accepted, ratio;
        uint64_t without;

        s.pass_us = passes[i / 2 % 4];
        s.row_us = rows[i / 8 % 3];
        s.wrong_steps = wrong[i / 72 % 4];
        s.first_seed = i;
        without = run_streams(&s, false, 1, length, &accepted);
        ratio = (double)without / (double)run_streams(&s, true, 1, length, &accepted);
        if (ratio <= 0.98)
            fail_msg("%s, pass %u us, row %u us, right %u behind %u steps, %u tokens: %.3f of plain",
                     s.concurrent ? "beside" : "in turn", s.pass_us, s.row_us, s.right_percent, s.wrong_steps, length,
                     ratio);
        least = ratio < least ? ratio : least;
        if (s.right_percent == 84 && s.wrong_steps == 4 && s.row_us == 50 && s.pass_us == 100 && length == 96) {
            gain += ratio;
            n_gains++;
        }
        n++;
    }
    if (n > 0)
        print_message("%u lone requests: least %.4f of plain; %.2f behind four wrong steps\n", n, least,
                      gain / n_gains);
    assert_true(n == 0 || gain / n_gains > 1.2);
}

/* Likewise where rows come again behind wrong drafts; and good drafts gain. */
static void states_never_cost_much(void **state)
{
    static const uint32_t passes[] = {50, 250}, rows[] = {0, 50, 150}, percents[] = {0, 40, 84};
    double least = 2, most = 0;

    (void)state;
    for (uint32_t i = 0; i < UNLESS_SLOW(2 * 2 * 3 * 3 * 2, 0); i++) {
        struct setting s = plain_setting(i % 2 == 1, percents[i / 12 % 3]);
        uint32_t length = i < 36 ? 60 : 400;
        double accepted, ratio;
        uint64_t without;

        s.states = true;
        s.pass_us = passes[i / 2 % 2];
        s.row_us = rows[i / 4 % 3];
        s.first_seed = i;
        without = run_streams(&s, false, 1, length, &accepted);
        ratio = (double)without / (double)run_streams(&s, true, 1, length, &accepted);
        if (ratio <= 0.98)
            fail_msg("%s, pass %u us, row %u us, right %u, %u tokens: %.3f of plain",
                     s.concurrent ? "beside" : "in turn", s.pass_us, s.row_us, s.right_percent, length, ratio);
        least = ratio < least ? ratio : least;
        most = ratio > most ? ratio : most;
    }
    print_message("with states: %.4f to %.2f of plain\n", least, most);
    assert_true(UNLESS_SLOW(most > 2, true));
}

/* Drafter and model side by side against the same in turn, in logical time. */
static void pipeline_beats_turns(void **state)
{
    static const uint32_t percents[] = {80, 90, 95};

    (void)state;
    for (uint32_t p = 0; p < UNLESS_SLOW(3, 0); p++) {
        struct setting s = plain_setting(false, percents[p]);
        double accepted, ratio;
        uint64_t turns = run_streams(&s, true, 1, 1000, &accepted), beside;

        s.concurrent = true;
        beside = run_streams(&s, true, 1, 1000, &accepted);
        ratio = (double)turns / (double)beside;
        printf("right %u: %.2f tokens a step's time in turn, %.2f beside, ratio %.2f\n", percents[p],
               1000.0 * VERIFY_US / (double)turns, 1000.0 * VERIFY_US / (double)beside, ratio);
        assert_true(ratio > (percents[p] >= 90 ? 1.3 : 1.0));
    }
}

/* What a drafter beside the model gains by runners-up, with which it begins branches. */
static double gain_of_branches(uint32_t right_percent, uint32_t second_percent, uint32_t draft_max)
{
    struct setting s = plain_setting(true, right_percent);
    double us[2] = {0, 0}, accepted;

    s.chain = true;
    s.draft_max = draft_max;
    for (uint32_t i = 0; i < 2 * 8; i++) {
        s.second_percent = i % 2 == 0 ? 0 : second_percent;
        s.first_seed = 10 * (i / 2);
        us[i % 2] += (double)run_streams(&s, true, 1, 1000, &accepted);
    }
    return us[0] / us[1];
}

/* One guess a step, a pass is d of one, a guess is right with chance a, else the runner-up with r. The next guess is
 * there if this one and the token behind it are right, a²; with a branch, which begins at the guess, also if the
 * runner-up is, (1 - a) r. If it is not there the step waits for a pass. */
static void branches_gain_what_they_should(void **state)
{
    const double d = 0.2, r = 0.9;

    (void)state;
    for (uint32_t percent = 50; percent <= UNLESS_SLOW(80, 0); percent += UNLESS_SANITIZED(10, 30)) {
        double a = 0.01 * percent, late = 1 - a * a, gain = gain_of_branches(percent, 90, 1);
        double expected = (1 + d * late) / (1 + d * (late - (1 - a) * r)), many = gain_of_branches(percent, 90, 0);

        printf("right %u: a branch gains %.3f, computed %.3f; of many guesses %.3f\n", percent, gain, expected, many);
        assert_true(fabs(gain - expected) < 0.015 && many > (percent == 50 ? 1.08 : 0.99));
        assert_true(gain_of_branches(percent, 1, 1) > 0.99 && gain_of_branches(percent, 1, 0) > 0.99);
    }
}

/* What no drafter of ours tells: runners-up that are no tokens, or the guess itself, with shares that are none. */
static void lie(struct rn_guess_line *line, uint64_t *random)
{
    static const int32_t tokens[] = {-1, ORACLE_VOCAB, INT32_MIN, INT32_MAX, 0, 'a', 'b', 'c'};
    static const float shares[] = {0, -1, 1, 0.5f, 1e30f, (float)INFINITY, (float)NAN, 0.01f};

    for (uint32_t i = 0; i < RN_GUESS_MOST; i++) {
        uint64_t what = rn_splitmix64(random);

        if (what % 8 == 0)
            line->guesses[i] = tokens[what / 8 % 8];
        line->seconds[i].token = what / 64 % 3 == 0 ? line->guesses[i] : tokens[what / 256 % 8];
        line->seconds[i].share = shares[what / 2048 % 8];
    }
}

static void lies_change_nothing(void **state)
{
    uint64_t random = 11;

    (void)state;
    for (uint32_t i = 0; i < UNLESS_SLOW(12, 2); i++) {
        struct setting s = plain_setting(i % 2 == 0, 50);
        static struct told told[STREAMS];

        s.second_percent = 50;
        s.block_tokens = i % 3 == 0 ? 4 : 16;
        start(&s, true);
        for (uint32_t k = 0; k < STREAMS; k++) {
            runnel_request request = request_of(&told[k], k, 10 + k, 150);

            request.sampling.temperature = k % 2 == 0 ? 0 : 0.9f;
            told_submit(&told[k], model, &request);
        }
        while (!told_all_ended(told, STREAMS)) {
            assert_true(step());
            for (uint32_t k = 0; k < STREAMS; k++)
                for (uint32_t l = 0; l < RN_GUESS_LINES; l++)
                    lie(&model->verifier.streams[k].lines[l], &random);
        }
        for (uint32_t k = 0; k < STREAMS; k++)
            told_assert_text(&told[k], &alphabet, SALT, 10 + k, 150);
        assert_true(metrics_of(engine).branched > 0);
        stop();
    }
}

static void a_broken_drafter_is_left(void **state)
{
    static const uint32_t at[] = {1, 2, 3, 10, 100};

    (void)state;
    for (uint32_t i = 0; i < UNLESS_SLOW(10, 2); i++) {
        struct setting s = plain_setting(i % 2 == 0, 95);
        static struct told told[3];

        s.fails_at = at[i / 2];
        start(&s, true);
        for (uint32_t k = 0; k < 3; k++) {
            runnel_request request = request_of(&told[k], k, 50, 300);

            told_submit(&told[k], model, &request);
        }
        run_all(told, 3);
        for (uint32_t k = 0; k < 3; k++)
            told_assert_text(&told[k], &alphabet, SALT, 50, 300);
        assert_int_equal(n_passes, s.fails_at);
        assert_int_equal(n_warnings, 1);
        stop();
    }
}

/* A step that fails under a tree, or while a runner-up is moved to its place: those in it fail, what they have told is
 * right, and whoever comes behind them with the same prompt is told the same as always. */
static void failed_steps_leave_nothing_wrong(void **state)
{
    uint32_t n_failed = 0;

    (void)state;
    for (uint32_t i = 0; i < UNLESS_SLOW(40, 4); i++) {
        struct setting s = plain_setting(i % 2 == 0, 50);
        static struct told told[4];

        s.second_percent = 90;
        s.block_tokens = 4;
        s.target_fails_at = 4 + i;
        start(&s, true);
        for (uint32_t k = 0; k < 4; k++) {
            runnel_request request = request_of(&told[k], k % 2, 20, 60);

            told_submit(&told[k], model, &request);
            if (k % 2 == 1)
                run_all(told, k + 1);
        }
        for (uint32_t k = 0; k < 4; k++) {
            n_failed += told[k].last.type == RUNNEL_EVENT_FAILED;
            told_assert_text(&told[k], &alphabet, SALT, 20,
                             told[k].last.type == RUNNEL_EVENT_DONE ? 60 : told[k].n_tokens);
        }
        stop();
    }
    assert_true(n_failed > 0);
}

/* A drafter that jams is waited for once, and drafts no more while it does. */
static void a_jammed_drafter_is_left(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 2; way++) {
        struct setting s = plain_setting(way == 1, 95);
        static struct told told;
        runnel_request request;
        uint64_t begin_us;

        s.jams_at = 20;
        start(&s, true);
        request = request_of(&told, 1, 50, 1000);
        begin_us = now_us;
        told_submit(&told, model, &request);
        run_all(&told, 1);
        told_assert_text(&told, &alphabet, SALT, 50, 1000);
        assert_true(now_us - begin_us < (uint64_t)1000 * VERIFY_US + (uint64_t)500 * s.pass_us);
        assert_true(n_passes < 40);
        stop();
    }
}

/* Stop tokens, cancels and the end of the context within drafts; a session then holds exactly what was told. */
static void ends_within_drafts(void **state)
{
    uint64_t n_right = 0;

    (void)state;
    for (uint32_t seed = 0; seed < UNLESS_SLOW(80, 8); seed++) {
        struct setting s = plain_setting(seed % 4 < 2, seed % 8 < 4 ? 90 : 40);
        static struct told told, next;
        runnel_request request;
        runnel_session session;
        int32_t stop_token = 'c';
        struct oracle_chain chain;

        s.second_percent = 80;
        start(&s, true);
        assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
        request = request_of(&told, seed, 20 + seed, 80);
        request.session = session;
        if (seed % 2 == 0) {
            request.stop_tokens = &stop_token;
            request.n_stop_tokens = 1;
        }
        told_submit(&told, model, &request);
        for (uint32_t i = 0; i < 2000 && !told.ended; i++) {
            step();
            if (seed % 2 == 1 && i == 8 + seed)
                runnel_stream_cancel(engine, told.stream);
        }
        assert_true(told.ended);
        told_assert_text(&told, &alphabet, SALT, (uint32_t)request.n_tokens, told.n_tokens);
        oracle_chain_init(&chain, SALT);
        for (uint32_t i = 0; i < request.n_tokens; i++)
            oracle_chain_push(&chain, told.prompt[i]);
        for (uint32_t i = 0; i < told.last.usage.completion_tokens; i++)
            oracle_chain_push(&chain, oracle_chain_next(&chain, &alphabet));
        request = request_of(&next, seed + 1, 5, 100);
        request.session = session;
        told_submit(&next, model, &request);
        run_all(&next, 1);
        n_right += metrics_of(engine).branched_right;
        assert_int_equal(next.last.type, RUNNEL_EVENT_DONE);
        for (uint32_t i = 0; i < 5; i++)
            oracle_chain_push(&chain, next.prompt[i]);
        for (uint32_t i = 0; i < 100; i++) {
            assert_int_equal(next.tokens[i], oracle_chain_next(&chain, &alphabet));
            oracle_chain_push(&chain, next.tokens[i]);
        }
        stop();
    }
    assert_true(n_right > 0);
}

/* A prompt that the target finds in its prefix cache is computed by the drafter itself; then it drafts. */
static void a_cached_prompt_drafts_too(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 2; way++) {
        struct setting s = plain_setting(way == 1, 100);
        static struct told told[2];

        start(&s, true);
        for (uint32_t i = 0; i < 2; i++) {
            runnel_request request = request_of(&told[i], 1, 200, 300);

            told_submit(&told[i], model, &request);
            run_all(&told[i], 1);
            told_assert_text(&told[i], &alphabet, SALT, 200, 300);
            assert_true(told[i].last.usage.accepted_tokens > 200);
        }
        assert_true(told[1].last.usage.cached_tokens >= 160);
        stop();
    }
}

static void a_paused_reader_stops_its_drafts(void **state)
{
    struct setting s = plain_setting(true, 100);
    static struct told told[2];
    uint64_t before;

    (void)state;
    start(&s, true);
    for (uint32_t i = 0; i < 2; i++) {
        runnel_request request = request_of(&told[i], i, 10, 900);

        told_submit(&told[i], model, &request);
    }
    for (uint32_t i = 0; i < 20; i++)
        step();
    runnel_stream_pause(engine, told[0].stream);
    run_all(&told[1], 1);
    while (step())
        ;
    before = n_passes;
    assert_false(told[0].ended);
    for (uint32_t i = 0; i < 50; i++)
        step();
    assert_int_equal(n_passes, before); /* who is not read costs nothing */
    runnel_stream_resume(engine, told[0].stream);
    run_all(told, 2);
    told_assert_text(&told[0], &alphabet, SALT, 10, 900);
    told_assert_text(&told[1], &alphabet, SALT, 10, 900);
    stop();
}

/* Law 7: between its first tokens and its last a stream takes nothing from the heap, however often it rests and begins
 * to draft again. */
static void the_token_path_allocates_nothing(void **state)
{
    static const uint32_t percents[] = {0, 30, 95};

    (void)state;
    for (uint32_t i = 0; i < UNLESS_SLOW(6, 1); i++) {
        struct setting s = plain_setting(i % 2 == 0, percents[i / 2]);
        static struct told told;
        runnel_request request;
        uint64_t before;

        start(&s, true);
        request = request_of(&told, 1, 100, 1000);
        told_submit(&told, model, &request);
        while (told.n_tokens < 10)
            step();
        before = n_allocations;
        while (told.n_tokens < 900)
            step();
        assert_int_equal(n_allocations, before);
        run_all(&told, 1);
        stop();
    }
}

static void bad_parameters_are_refused(void **state)
{
    struct setting s = plain_setting(true, 100);
    static struct told told;
    runnel_request request;
    runnel_error error;

    (void)state;
    start(&s, false);
    request = request_of(&told, 1, 10, 10);
    request.draft = RUNNEL_DRAFT_MODEL;
    assert_int_equal(runnel_generate(model, &request, &told.stream, &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, "no drafter"));
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_the_same),
        cmocka_unit_test(trees_gain_where_they_pay),
        cmocka_unit_test(it_never_costs_much),
        cmocka_unit_test(a_lone_request_never_loses),
        cmocka_unit_test(states_never_cost_much),
        cmocka_unit_test(pipeline_beats_turns),
        cmocka_unit_test(branches_gain_what_they_should),
        cmocka_unit_test(lies_change_nothing),
        cmocka_unit_test(a_broken_drafter_is_left),
        cmocka_unit_test(failed_steps_leave_nothing_wrong),
        cmocka_unit_test(a_jammed_drafter_is_left),
        cmocka_unit_test(ends_within_drafts),
        cmocka_unit_test(a_cached_prompt_drafts_too),
        cmocka_unit_test(a_paused_reader_stops_its_drafts),
        cmocka_unit_test(the_token_path_allocates_nothing),
        cmocka_unit_test(bad_parameters_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
