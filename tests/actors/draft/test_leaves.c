/* Heads and prediction layers whose runners-up are leaves of trees, in closed form. The oracle model's features are
 * what a row has come to, and its heads go on from those: so whatever is guessed, and what is guessed second, follows
 * from the text alone, as far as each layer was given the features of the rows that were right. Everything that the
 * verifier is told is compared with that, by up to three layers, one stream and many. One thread, logical time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "tests/actors/fixture.h"
#include "tests/sim/manual.h"
#include "tests/sim/told.h"

enum { STREAMS = 8, LAYERS = 3, SALT = 41, STEP_US = 1000, PASS_US = 100 };

static const struct oracle_alphabet alphabet = {5, {'a', 'b', 'c', 'd', 'e'}};

struct setting {
    uint32_t n_layers;
    uint32_t right_percent, second_percent; /* of the others */
    uint32_t seqs;                          /* streams that draft at once */
    uint32_t blocks;                        /* of the drafter */
    bool asks_chain;
};

static struct setting setting;
static runnel_engine *engine;
static runnel_model *model;
static struct oracle *target, *layers[LAYERS];
static uint64_t now_us, n_compared;

static uint64_t clock_now(void *user)
{
    (void)user;
    return now_us;
}

static struct oracle *new_oracle(const struct rn_backend_limits *limits)
{
    struct oracle *oracle = oracle_new(limits, &alphabet, SALT);

    assert_non_null(oracle);
    return oracle;
}

static void new_layers(const struct rn_backend_limits *model_limits, struct rn_drafter *drafter)
{
    struct rn_backend_limits limits = *model_limits;

    limits.n_blocks = setting.blocks;
    limits.max_seqs = limits.max_outs = setting.seqs;
    limits.tree_depth = 0;
    for (uint32_t l = 0; l < setting.n_layers; l++) {
        layers[l] = new_oracle(&limits);
        layers[l]->is_head = true;
        layers[l]->wrong_percent = 100 - setting.right_percent;
        layers[l]->second_percent = setting.second_percent;
        if (l > 0)
            drafter->deeper[l - 1].backend = &layers[l]->backend;
    }
    drafter->kind = RN_DRAFTER_FEATURES;
    drafter->n_layers = setting.n_layers;
    drafter->backend = &layers[0]->backend;
    drafter->limits = limits;
    drafter->pass_us = PASS_US;
    drafter->n_features = ORACLE_FEATURES;
}

static void start(const struct setting *s)
{
    const struct rn_backend_limits limits = {.max_rows = 128,
                                             .max_seqs = 16,
                                             .max_outs = 120,
                                             .n_blocks = 800,
                                             .block_tokens = 16,
                                             .context_tokens = 1400,
                                             .tree_depth = RN_DRAFT_MOST};
    struct rn_model_parts parts = {.limits = limits, .n_vocab = ORACLE_VOCAB, .row_features = ORACLE_FEATURES};
    const struct rn_clock clock = {.now_us = clock_now};
    runnel_engine_options options;

    setting = *s;
    now_us = 1;
    runnel_engine_options_default(&options);
    options.max_streams = STREAMS;
    engine = manual_engine(&options, &clock);
    target = new_oracle(&limits);
    parts.backend = &target->backend;
    new_layers(&limits, &parts.drafter);
    for (uint32_t n = 1; n <= 64; n *= 2)
        rn_step_cost_record(&parts.cost, n, STEP_US);
    model = manual_model(engine, &parts, NULL);
}

static void stop(void)
{
    runnel_engine_free(engine);
    manual_oracle_free(target);
    for (uint32_t l = 0; l < setting.n_layers; l++)
        manual_oracle_free(layers[l]);
}

/* ---- What the verifier has been told ---- */

/* Behind the text before the first guess each is what a head holds likeliest there, and second. */
static void check_line(const struct rn_request *request)
{
    const struct rn_verifier_stream *stream = &model->verifier.streams[request->slot];
    const struct rn_guess_line *line = &stream->lines[0];
    struct oracle_chain chain;

    if (!stream->begun || stream->generation != request->generation || line->first > request->n_tokens)
        return;
    oracle_chain_init(&chain, SALT);
    for (uint32_t i = 0; i < line->first; i++)
        oracle_chain_push(&chain, request->tokens[i]);
    for (uint32_t i = 0; i < line->n; i++) {
        int32_t likeliest, second;

        oracle_foretell(layers[0], chain.sum, &likeliest, &second);
        if (line->guesses[i] != likeliest || line->seconds[i].token != second)
            fail_msg("behind %u tokens, guess %u: %d or %d, and it should be %d or %d", line->first, i,
                     line->guesses[i], line->seconds[i].token, likeliest, second);
        oracle_chain_push(&chain, likeliest);
        n_compared++;
    }
}

static void run_actors(void)
{
    while (rn_runtime_runnable(&engine->runtime) > 0) {
        rn_runtime_step(&engine->runtime, 0, RN_ACTOR_BATCH);
        assert_true(rn_draft_actor_check(&model->draft) && rn_verifier_check(&model->verifier));
        for (uint32_t i = 0; i < model->decode.n_running; i++)
            check_line(model->decode.running[i]);
    }
}

/* The model's next step, or the drafter's next pass, and all that follows. False: nothing is under way. */
static bool step(void)
{
    struct oracle *busy = target->first != NULL ? target : NULL;

    for (uint32_t l = 0; l < setting.n_layers; l++)
        busy = layers[l]->first != NULL ? layers[l] : busy;
    if (busy != NULL) {
        now_us += busy == target ? STEP_US : PASS_US;
        oracle_complete(busy, ORACLE_FAULT_NONE);
    }
    run_actors();
    runnel_engine_dispatch(engine, 0);
    run_actors();
    return busy != NULL;
}

/* All streams at once, with answers of n_tokens, each next one longer; how many steps they took. */
static uint64_t run_streams(const struct setting *s, uint32_t n, uint32_t n_prompt, uint32_t n_tokens)
{
    static struct told told[STREAMS];

    start(s);
    for (uint32_t i = 0; i < n; i++) {
        runnel_request request = told_request(&told[i], i, n_prompt + 7 * i, n_tokens + 20 * i);

        request.draft = RUNNEL_DRAFT_MODEL;
        request.draft_chain = setting.asks_chain;
        told_submit(&told[i], model, &request);
    }
    run_actors();
    while (!told_all_ended(told, n))
        if (!step())
            fail_msg("nothing is under way, and not all have ended");
    for (uint32_t i = 0; i < n; i++)
        told_assert_text(&told[i], &alphabet, SALT, n_prompt + 7 * i, n_tokens + 20 * i);
    return target->n_steps;
}

/* ---- Tests ---- */

static void guesses_are_of_what_came_true(void **state)
{
    static const uint32_t counts[] = {1, 3, STREAMS};

    (void)state;
    for (uint32_t n_layers = 1; n_layers <= LAYERS; n_layers++)
        for (uint32_t c = 0; c < 3; c++) {
            const struct setting s = {
                .n_layers = n_layers, .right_percent = 50, .second_percent = 90, .seqs = STREAMS, .blocks = 800};
            uint64_t right;

            n_compared = 0;
            run_streams(&s, counts[c], 3, UNLESS_SLOW(400, 120));
            right = metrics_of(engine).branched_right;
            print_message("%u layers, %u streams: %llu guesses compared, %llu runners-up right\n", n_layers, counts[c],
                          (unsigned long long)n_compared, (unsigned long long)right);
            assert_true(n_compared > 100 * counts[c] && right > 10 * counts[c]);
            stop();
        }
}

/* Half of the guesses right, and nine tenths of the second ones of the others: with leaves a head needs fewer steps. */
static void leaves_save_steps(void **state)
{
    (void)state;
    for (uint32_t n_layers = 1; n_layers <= LAYERS; n_layers++) {
        struct setting s = {
            .n_layers = n_layers, .right_percent = 50, .second_percent = 90, .seqs = STREAMS, .blocks = 800};
        uint64_t tree, chain;

        tree = run_streams(&s, 1, 20, 1000);
        stop();
        s.asks_chain = true;
        chain = run_streams(&s, 1, 20, 1000);
        assert_int_equal(metrics_of(engine).branched, 0);
        stop();
        print_message("%u layers, 1000 tokens: %llu steps with leaves, %llu without\n", n_layers,
                      (unsigned long long)tree, (unsigned long long)chain);
        assert_true((double)chain > 1.2 * (double)tree);
    }
}

/* Who comes to draft when a step without its features has begun, since others have drafted until then, has nothing to
 * guess from before the next one: decode does not wait for it. Nor where the drafter has few blocks. */
static void who_knows_no_features_is_not_waited_for(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 12; way++) {
        const struct setting s = {.n_layers = 1 + way % LAYERS,
                                  .right_percent = 90,
                                  .second_percent = 50,
                                  .seqs = 1 + way / 6,
                                  .blocks = way % 2 == 0 ? 800 : 6};

        run_streams(&s, 2 + way % 4, 2, 30 + 10 * way);
        stop();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guesses_are_of_what_came_true),
        cmocka_unit_test(leaves_save_steps),
        cmocka_unit_test(who_knows_no_features_is_not_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
