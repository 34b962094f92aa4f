/* A file with three prediction layers (nextn_file.h) as a drafter. Each guess that was made is compared with what the
 * layers give when their plans are run over the finished text, one after the other: the guess j places behind the last
 * token, where those before it were right, is the likeliest token of layer j - 1 there, and its runner-up the second
 * likeliest. Guesses are read off the rows of the model's steps. So those behind a runner-up that was right must have
 * been made from its row's features, and from nothing that belongs to the guess in whose place it came.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/engine.h"
#include "cpu/team.h"
#include "tests/actors/fixture.h"
#include "metered.h"
#include "model/heads/head.h"
#include "nextn_file.h"
#include "taught.h"

enum { LAYERS = 3, TOKENS = UNLESS_SLOW(120, 40), CONTEXT = METERED_CONTEXT, BLOCK = 16, PROMPTS = 8 };

static char file_path[2][64]; /* of one layer, of three */

/* ---- What the layers give ---- */

static void on_done(struct rn_step *step)
{
    __atomic_store_n((bool *)step->user, true, __ATOMIC_RELEASE);
}

/* What a layer holds of a position. */
struct foretold {
    int32_t likeliest, second;
};

static struct foretold likeliest(const float *logits, uint32_t n)
{
    uint32_t best = 0, second;

    for (uint32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    second = best == 0;
    for (uint32_t i = second + 1; i < n; i++)
        second = i != best && logits[i] > logits[second] ? i : second;
    return (struct foretold){(int32_t)best, (int32_t)second};
}

/* n rows of a plan, from position 0; their features [n, width] to `out`, which may be `inputs`, and their likeliest
 * tokens. */
static void run(struct rn_heap *heap, struct rn_plan *plan, const int32_t *tokens, uint32_t n, const float *inputs,
                float *out, struct foretold *best)
{
    const struct rn_backend_limits limits = {.max_rows = CONTEXT,
                                             .max_seqs = 1,
                                             .max_outs = CONTEXT,
                                             .n_blocks = CONTEXT / BLOCK,
                                             .block_tokens = BLOCK,
                                             .context_tokens = CONTEXT};
    static struct rn_step_row rows[CONTEXT];
    uint32_t blocks[CONTEXT / BLOCK];
    struct rn_step_seq seq = {.blocks = blocks, .n_blocks = CONTEXT / BLOCK};
    struct rn_team *team = rn_team_new(heap, 2);
    struct rn_backend *backend = rn_cpu_backend_new(heap, team);
    float *logits = calloc((size_t)n * plan->n_vocab, sizeof *logits);
    float *features = calloc((size_t)n * plan->features_width, sizeof *features);
    bool done = false;
    struct rn_step step = {.n_rows = n,
                           .n_seqs = 1,
                           .n_outs = n,
                           .rows = rows,
                           .seqs = &seq,
                           .logits = logits,
                           .features = features,
                           .inputs = inputs,
                           .on_done = on_done,
                           .user = &done};

    for (uint32_t i = 0; i < CONTEXT / BLOCK; i++)
        blocks[i] = i;
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct rn_step_row){.token = tokens[i], .position = i, .out = (int32_t)i};
    assert_int_equal(backend->ops->prepare(backend, plan, &limits, NULL, NULL, NULL), RUNNEL_OK);
    backend->ops->submit_async(backend, &step);
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE))
        usleep(50);
    assert_int_equal(step.status, RUNNEL_OK);
    for (uint32_t i = 0; i < n; i++)
        best[i] = likeliest(logits + (size_t)i * plan->n_vocab, plan->n_vocab);
    memcpy(out, features, (size_t)n * plan->features_width * sizeof *features);
    backend->ops->free(backend);
    rn_team_free(team);
    rn_plan_free(plan);
    free(logits);
    free(features);
}

/* foretold[d][i]: the token of position i by layer d. */
static void foretell(const char *path, uint32_t layers, struct foretold foretold[LAYERS][CONTEXT])
{
    static struct foretold best[CONTEXT];
    struct rn_heap heap;
    struct rn_gguf *gguf = NULL;
    struct rn_plan *plan = NULL;
    float *state;

    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_gguf_open(&heap, path, &gguf, NULL), RUNNEL_OK);
    assert_int_equal(rn_plan_new(&heap, gguf, CONTEXT, &plan, NULL), RUNNEL_OK);
    state = calloc((size_t)CONTEXT * plan->features_width, sizeof *state);
    run(&heap, plan, metered_seen.text, metered_seen.n, NULL, state, best);
    for (uint32_t d = 0; d < layers; d++) {
        uint32_t n = metered_seen.n - 1 - d;

        assert_int_equal(rn_plan_new_nextn(&heap, gguf, CONTEXT, d, &plan, NULL), RUNNEL_OK);
        run(&heap, plan, metered_seen.text + 1 + d, n, state, state, best);
        for (uint32_t t = 0; t < n && t + 2 + d < CONTEXT; t++)
            foretold[d][t + 2 + d] = best[t];
    }
    free(state);
    rn_gguf_free(gguf);
}

/* ---- The comparison ---- */

struct tally {
    uint32_t compared[LAYERS], right[LAYERS];
    uint32_t leaves, leaves_right, behind; /* runners-up; guesses behind those that were right */
};

/* A step's guesses, as far as they have been looked at. */
struct progress {
    uint32_t root; /* position of its first row */
    uint32_t n_chain, n_right;
    uint32_t leaf_at; /* of the leaf that was right; 0: none */
    bool fresh;       /* all were made for this step: the one before has refuted what was left */
};

/* The next step that has guesses. */
static struct progress progress_to(const struct progress *last, const struct metered_guess *g)
{
    uint32_t end = last->root + last->n_right + (last->leaf_at > 0) + 1;

    return (struct progress){.root = g->position - 1, .fresh = g->position - 1 == end && last->n_right < last->n_chain};
}

static void check(const struct metered_guess *g, int32_t want)
{
    if (g->token != want)
        fail_msg("position %u, %s %u: token %d, and the layer gives %d", g->position, g->leaf ? "runner-up" : "guess",
                 g->place, g->token, want);
}

/* Of a step's guesses those behind a wrong one are not looked at. Leaves stand behind the chain; those that were left
 * over from a step before were made by a deeper layer. */
static void compare(uint32_t layers, struct tally *tally)
{
    static struct foretold foretold[LAYERS][CONTEXT];
    struct progress now = {0}, last = {0};

    foretell(file_path[layers > 1], layers, foretold);
    for (uint32_t i = 0; i < metered_seen.n_guesses; i++) {
        const struct metered_guess *g = &metered_seen.guesses[i];
        bool right = g->token == metered_seen.text[g->position];
        bool known;

        if (g->place == 1 && !g->leaf) {
            last = now;
            now = progress_to(&last, g);
        }
        now.n_chain += !g->leaf;
        if (g->place > now.n_right + 1)
            continue;
        known = now.fresh && g->place <= layers && g->position < metered_seen.n;
        if (g->leaf) {
            now.leaf_at = right ? g->position : now.leaf_at;
            if (!known)
                continue;
            check(g, foretold[g->place - 1][g->position].second);
            tally->leaves++;
            tally->leaves_right += right;
            continue;
        }
        now.n_right += right;
        if (!known)
            continue;
        check(g, foretold[g->place - 1][g->position].likeliest);
        tally->compared[g->place - 1]++;
        tally->right[g->place - 1] += right;
        tally->behind += last.leaf_at > 0;
    }
}

/* One after the other, prompts of all kinds of lengths. */
static void guess_all(uint32_t layers, struct tally *tally)
{
    runnel_engine *engine = metered_engine();
    runnel_model *model = metered_model(engine, file_path[layers > 1], "mtp");

    assert_int_equal(model->parts.drafter.n_layers, layers);
    metered_watch = metered_see;
    metered_restless = model;
    for (uint32_t i = 0; i < PROMPTS; i++) {
        static const uint32_t bytes[PROMPTS] = {20, 60, 200, 700, 35, 90, 120, 50};
        struct capture capture = {0};
        runnel_request request;
        char prompt[1000];

        memset(&metered_seen, 0, sizeof metered_seen);
        taught_prompt(i, bytes[i], prompt);
        request = make_request(prompt, TOKENS, &capture);
        request.draft = RUNNEL_DRAFT_MODEL;
        request.draft_max = 5;
        request.ignore_eos = 1;
        request.cache_salt = i + 1;
        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
        memcpy(metered_seen.text + capture.last.usage.prompt_tokens, capture.tokens,
               capture.n_tokens * sizeof capture.tokens[0]);
        compare(layers, tally);
        capture_clear(&capture);
    }
    metered_watch = NULL;
    metered_restless = NULL;
    runnel_model_free(model);
    await_models(engine, 0);
    runnel_engine_free(engine);
    for (uint32_t d = 0; d < layers; d++)
        print_message("layer %u of %u: %u guesses, %u right\n", d, layers, tally->compared[d], tally->right[d]);
    print_message("%u runners-up, %u right, %u guesses behind those\n", tally->leaves, tally->leaves_right,
                  tally->behind);
}

static void each_guess_is_its_layers(void **state)
{
    struct tally one, three;

    (void)state;
    memset(&one, 0, sizeof one);
    memset(&three, 0, sizeof three);
    guess_all(1, &one);
    guess_all(LAYERS, &three);
    assert_true(one.compared[0] > UNLESS_SLOW(60, 10) && three.compared[0] > UNLESS_SLOW(60, 10));
    /* all of them have guessed, and have been right; layers that have hardly been trained are seldom so */
    for (uint32_t d = 0; d < UNLESS_SLOW(LAYERS, 1); d++)
        assert_true(three.compared[d] > 15 && UNLESS_SLOW(three.right[d] > 4, true));
    assert_true(UNLESS_SLOW(one.behind > 30 && three.behind > 30, true));
}

/* Many at once, greedy and sampled, some cancelled: the text without. */
static void text_is_the_same(void **state)
{
    enum { STREAMS = 6 };
    struct capture plain[STREAMS] = {{0}}, fast[STREAMS] = {{0}};

    (void)state;
    for (int drafts = 0; drafts < 2; drafts++) {
        struct capture *captures = drafts ? fast : plain;
        runnel_engine *engine = metered_engine();
        runnel_model *model = metered_model(engine, file_path[1], drafts ? "mtp" : NULL);
        runnel_stream streams[STREAMS];
        char prompt[1000];
        uint64_t accepted = 0;

        for (uint32_t i = 0; i < STREAMS; i++) {
            runnel_request request;

            taught_prompt(i, 30 + 120 * i, prompt);
            request = make_request(prompt, TOKENS / 2, &captures[i]);
            request.sampling.temperature = i % 2 == 1 ? 0.7f : 0;
            request.sampling.seed = i;
            request.draft = drafts ? RUNNEL_DRAFT_MODEL : 0;
            request.draft_max = i % 3 == 2 ? 8 : 4;
            assert_int_equal(runnel_generate(model, &request, &streams[i], NULL), RUNNEL_OK);
        }
        if (drafts)
            runnel_stream_cancel(engine, streams[STREAMS - 1]);
        for (uint32_t i = 0; i < STREAMS; i++) {
            run_until_end(engine, &captures[i]);
            accepted += captures[i].last.usage.accepted_tokens;
        }
        assert_true(!drafts || UNLESS_SLOW(accepted > 20, true));
        runnel_model_free(model);
        await_models(engine, 0);
        runnel_engine_free(engine);
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        assert_true(i == STREAMS - 1 || plain[i].text_bytes == fast[i].text_bytes);
        assert_true(fast[i].text_bytes <= plain[i].text_bytes);
        if (fast[i].text_bytes > 0)
            assert_memory_equal(plain[i].text, fast[i].text, fast[i].text_bytes);
        capture_clear(&plain[i]);
        capture_clear(&fast[i]);
    }
}

/* ---- The fixture ---- */

static int setup(void **state)
{
    int failed = taught_begin(UNLESS_SLOW(40, 3), 5);

    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(file_path[i], sizeof file_path[i], "/tmp/runnel-nextn%d-%d.gguf", i == 0 ? 1 : LAYERS, (int)getpid());
        if (failed == 0)
            nextn_file_write(i == 0 ? 1 : LAYERS, file_path[i]);
    }
    return failed;
}

static int teardown(void **state)
{
    (void)state;
    taught_end();
    unlink(file_path[0]);
    unlink(file_path[1]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_guess_is_its_layers), cmocka_unit_test(text_is_the_same)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
