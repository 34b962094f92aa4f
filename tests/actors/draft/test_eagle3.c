/* EAGLE-3 heads of other programs as drafters (eagle3_file.h). The text is the one without, greedy and sampled, many at
 * once. Each guess is the token that the head's plan gives over the finished text, with inputs of its own behind the
 * last known token. A head that is right always is always right. One of another model is refused.
 *
 * Time is the test's (metered.h), so that the policy always drafts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/engine.h"
#include "cpu/team.h"
#include "eagle3_file.h"
#include "tests/actors/fixture.h"
#include "metered.h"
#include "model/heads/head.h"

enum { STREAMS = 6, TOKENS = UNLESS_SLOW(80, 24), CONTEXT = 256, BLOCK = 16 };

static char round_model[64], round_head[2][64]; /* a head that is right always, and one that errs */
static char again[2][64];                       /* of all tokens, of some */

static const char *const prompts[STREAMS] = {"Once upon a time",
                                             "The king had a",
                                             "Tom went to the garden and saw",
                                             "{\"name\": \"",
                                             "She said that it was a very long way to the house of",
                                             "One day"};

/* ---- The text ---- */

struct answers {
    struct capture captures[STREAMS];
    uint64_t drafted, accepted, tokens;
};

/* draft: NULL: none. Odd streams are sampled. */
static void answer(const char *path, const char *draft, bool chains, struct answers *a)
{
    runnel_engine *engine = metered_engine();
    runnel_model *model = metered_model(engine, path, draft);

    memset(a, 0, sizeof *a);
    for (uint32_t i = 0; i < STREAMS; i++) {
        runnel_request request = make_request(prompts[i], TOKENS, &a->captures[i]);
        runnel_stream stream;

        request.sampling.temperature = i % 2 == 1 ? 0.7f : 0;
        request.sampling.seed = i;
        request.ignore_eos = 1;
        request.draft = draft != NULL ? RUNNEL_DRAFT_MODEL : 0;
        request.draft_max = i % 3 == 2 ? 8 : 4;
        request.draft_chain = chains;
        assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        run_until_end(engine, &a->captures[i]);
        assert_int_equal(a->captures[i].last.type, RUNNEL_EVENT_DONE);
        a->drafted += a->captures[i].last.usage.drafted_tokens;
        a->accepted += a->captures[i].last.usage.accepted_tokens;
        a->tokens += a->captures[i].n_tokens;
    }
    runnel_model_free(model);
    await_models(engine, 0);
    runnel_engine_free(engine);
}

static void clear(struct answers *a)
{
    for (uint32_t i = 0; i < STREAMS; i++)
        capture_clear(&a->captures[i]);
}

/* The share of drafts that were right, which are at least so many. */
static double check_same(const char *path, const char *draft, uint64_t drafts)
{
    struct answers plain, fast;
    double share = 0;

    answer(path, NULL, false, &plain);
    for (int chains = 0; chains < 2; chains++) {
        answer(path, draft, chains, &fast);
        for (uint32_t i = 0; i < STREAMS; i++) {
            assert_int_equal(plain.captures[i].n_tokens, fast.captures[i].n_tokens);
            assert_memory_equal(plain.captures[i].tokens, fast.captures[i].tokens,
                                plain.captures[i].n_tokens * sizeof(int32_t));
        }
        share = (double)fast.accepted / (double)(fast.drafted > 0 ? fast.drafted : 1);
        print_message("%s%s: %llu tokens, %llu drafts, %.3f right\n", draft, chains ? ", chains" : "",
                      (unsigned long long)fast.tokens, (unsigned long long)fast.drafted, share);
        assert_true(fast.drafted >= drafts);
        clear(&fast);
    }
    clear(&plain);
    return share;
}

static void text_is_the_same(void **state)
{
    (void)state;
    check_same(BUNDLED_MODEL, again[0], 8);
    check_same(BUNDLED_MODEL, again[1], 8);
}

/* The last drafts of a text may reach behind its end. */
static void one_that_knows_is_right(void **state)
{
    (void)state;
    assert_true(check_same(round_model, round_head[0], (uint64_t)STREAMS * TOKENS / 2) > 0.95);
}

static void one_that_errs_is_right_as_often_as_it_is(void **state)
{
    double share;

    (void)state;
    share = check_same(round_model, round_head[1], 40);
    assert_true(share > 0.3 && share < 0.9);
}

/* ---- Each guess ---- */

struct pass {
    struct rn_plan *plan;
    struct rn_backend *backend;
    struct rn_team *team;
    float *logits, *features; /* [CONTEXT, ...] of the rows of the last step */
    bool done;
};

static void on_done(struct rn_step *step)
{
    __atomic_store_n((bool *)step->user, true, __ATOMIC_RELEASE);
}

static void begin_pass(struct pass *pass, struct rn_heap *heap, struct rn_plan *plan)
{
    const struct rn_backend_limits limits = {.max_rows = CONTEXT,
                                             .max_seqs = 1,
                                             .max_outs = CONTEXT,
                                             .n_blocks = CONTEXT / BLOCK,
                                             .block_tokens = BLOCK,
                                             .context_tokens = CONTEXT};

    *pass = (struct pass){.plan = plan, .team = rn_team_new(heap, 2)};
    pass->backend = rn_cpu_backend_new(heap, pass->team);
    pass->logits = calloc((size_t)CONTEXT * plan->n_vocab, sizeof(float));
    pass->features = calloc((size_t)CONTEXT * plan->features_width, sizeof(float));
    assert_int_equal(pass->backend->ops->prepare(pass->backend, plan, &limits, NULL, NULL, NULL), RUNNEL_OK);
}

static void end_pass(struct pass *pass)
{
    pass->backend->ops->free(pass->backend);
    rn_team_free(pass->team);
    rn_plan_free(pass->plan);
    free(pass->logits);
    free(pass->features);
}

static void run(struct pass *pass, const int32_t *tokens, uint32_t first, uint32_t n, const float *inputs)
{
    static struct rn_step_row rows[CONTEXT];
    uint32_t blocks[CONTEXT / BLOCK];
    struct rn_step_seq seq = {.blocks = blocks, .n_blocks = CONTEXT / BLOCK};
    struct rn_step step = {.n_rows = n,
                           .n_seqs = 1,
                           .n_outs = n,
                           .rows = rows,
                           .seqs = &seq,
                           .logits = pass->logits,
                           .features = pass->features,
                           .inputs = inputs,
                           .on_done = on_done,
                           .user = &pass->done};

    for (uint32_t i = 0; i < CONTEXT / BLOCK; i++)
        blocks[i] = i;
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct rn_step_row){.token = tokens[i], .position = first + i, .out = (int32_t)i};
    __atomic_store_n(&pass->done, false, __ATOMIC_RELEASE);
    pass->backend->ops->submit_async(pass->backend, &step);
    while (!__atomic_load_n(&pass->done, __ATOMIC_ACQUIRE))
        usleep(50);
    assert_int_equal(step.status, RUNNEL_OK);
}

static int32_t likeliest(const float *logits, uint32_t n)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return (int32_t)best;
}

/* g of all positions, [CONTEXT, width]. */
static float *all_g(struct rn_heap *heap, const struct rn_gguf *gguf, const struct rn_gguf *head)
{
    struct rn_plan *plan = NULL;
    struct pass pass;
    float *g;

    assert_int_equal(rn_plan_new_for_head(heap, gguf, CONTEXT, head, &plan, NULL), RUNNEL_OK);
    begin_pass(&pass, heap, plan);
    assert_true(metered_seen.n <= CONTEXT);
    run(&pass, metered_seen.text, 0, metered_seen.n, NULL);
    g = calloc((size_t)CONTEXT * plan->normed_at, sizeof *g);
    for (uint32_t t = 0; t < metered_seen.n; t++)
        memcpy(g + (size_t)t * plan->normed_at, pass.features + (size_t)t * plan->features_width,
               plan->normed_at * sizeof *g);
    end_pass(&pass);
    return g;
}

/* Guesses that the step before left over are of another past: only those behind a wrong one are compared. */
static uint32_t compare_guesses(struct pass *pass, const float *g)
{
    uint32_t width = pass->plan->inputs_width, done = 0, compared = 0, last, i, n;
    bool fresh = true, all_right;
    float *own = calloc(width, sizeof *own);

    for (i = 0; i < metered_seen.n_guesses; i += n) {
        uint32_t root = metered_seen.guesses[i].position - 1;

        for (n = 1; i + n < metered_seen.n_guesses && metered_seen.guesses[i + n].place > 1; n++)
            ;
        all_right = true;
        run(pass, metered_seen.text + 1 + done, done, root - done, g + (size_t)done * width);
        last = root - done - 1;
        for (uint32_t j = 0; j < n && root + j + 1 < metered_seen.n; j++) {
            const struct metered_guess *guess = &metered_seen.guesses[i + j];

            assert_int_equal(guess->place, j + 1);
            if (fresh &&
                guess->token != likeliest(pass->logits + (size_t)last * pass->plan->n_vocab, pass->plan->n_vocab))
                fail_msg("position %u, place %u: token %d is not the plan's", guess->position, guess->place,
                         guess->token);
            compared += fresh;
            all_right = all_right && guess->token == metered_seen.text[guess->position];
            memcpy(own, pass->features + (size_t)last * width, width * sizeof *own);
            run(pass, &guess->token, root + j, 1, own);
            last = 0;
        }
        done = root;
        fresh = !all_right;
    }
    free(own);
    return compared;
}

static uint32_t check_guesses(const char *path, const char *draft, const char *prompt)
{
    runnel_engine *engine = metered_engine();
    runnel_model *model = metered_model(engine, path, draft);
    struct capture capture = {0};
    runnel_request request = make_request(prompt, TOKENS, &capture);
    struct rn_gguf *gguf = NULL, *head = NULL;
    struct rn_plan *plan = NULL;
    struct rn_heap heap;
    struct pass pass;
    uint32_t compared;
    float *g;

    memset(&metered_seen, 0, sizeof metered_seen);
    request.draft = RUNNEL_DRAFT_MODEL;
    request.draft_max = 4;
    request.draft_chain = true;
    request.ignore_eos = 1;
    metered_watch = metered_see;
    metered_restless = model;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    metered_watch = NULL;
    metered_restless = NULL;
    memcpy(metered_seen.text + capture.last.usage.prompt_tokens, capture.tokens,
           capture.n_tokens * sizeof capture.tokens[0]);
    capture_clear(&capture);
    runnel_model_free(model);
    await_models(engine, 0);
    runnel_engine_free(engine);
    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_gguf_open(&heap, path, &gguf, NULL), RUNNEL_OK);
    assert_int_equal(rn_gguf_open(&heap, draft, &head, NULL), RUNNEL_OK);
    g = all_g(&heap, gguf, head);
    assert_int_equal(rn_plan_new_head(&heap, head, gguf, CONTEXT, &plan, NULL), RUNNEL_OK);
    begin_pass(&pass, &heap, plan);
    compared = compare_guesses(&pass, g);
    end_pass(&pass);
    free(g);
    rn_gguf_free(gguf);
    rn_gguf_free(head);
    return compared;
}

static void each_guess_is_the_plans(void **state)
{
    uint32_t compared = 0;

    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        compared += check_guesses(BUNDLED_MODEL, again[i % 2], prompts[i]);
    print_message("%u guesses compared\n", compared);
    assert_true(compared > UNLESS_SLOW(40, 8));
    assert_true(check_guesses(round_model, round_head[0], prompts[0]) > 0);
    assert_true(check_guesses(round_model, round_head[1], prompts[0]) > UNLESS_SLOW(10, 2));
}

/* ---- Refused ---- */

static void one_of_another_model_is_refused(void **state)
{
    runnel_engine *engine = metered_engine();

    (void)state;
    metered_refuse(engine, BUNDLED_MODEL, round_head[0], RUNNEL_INVALID,
                   "key eagle3.target_hidden_size is 32, and the model's embedding_length 256");
    metered_refuse(engine, round_model, again[0], RUNNEL_INVALID,
                   "key eagle3.target_hidden_size is 256, and the model's embedding_length 32");
    runnel_engine_free(engine);
}

/* ---- The fixture ---- */

static int setup(void **state)
{
    (void)state;
    snprintf(round_model, sizeof round_model, "/tmp/runnel-round-%d.gguf", (int)getpid());
    eagle3_write_round(round_model);
    for (int i = 0; i < 2; i++) {
        snprintf(round_head[i], sizeof round_head[i], "/tmp/runnel-round-head%d-%d.gguf", i, (int)getpid());
        eagle3_write_round_head(round_head[i], i == 1);
        snprintf(again[i], sizeof again[i], "/tmp/runnel-again%d-%d.gguf", i, (int)getpid());
        eagle3_write_again(again[i], i == 1);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(round_model);
    for (int i = 0; i < 2; i++) {
        unlink(round_head[i]);
        unlink(again[i]);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_the_same),
        cmocka_unit_test(one_that_knows_is_right),
        cmocka_unit_test(one_that_errs_is_right_as_often_as_it_is),
        cmocka_unit_test(each_guess_is_the_plans),
        cmocka_unit_test(one_of_another_model_is_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
