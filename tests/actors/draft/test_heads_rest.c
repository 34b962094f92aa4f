/* A head that rests costs nothing: no step computes features for it and nobody is told of its stream, until shortly
 * before it tries again. The judge is the steps themselves, as the model's backend gets them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "tests/actors/draft/metered.h"
#include "tests/actors/draft/taught.h"

enum { TOKENS = 160, REST_AT = 20, REST = 60, LEAD = 4, POOR_AT = 110 };

/* Steps of the stream, in order; the watch fills them on decode's thread while the stream runs. */
static struct {
    runnel_model *model;
    uint32_t n;
    struct {
        uint32_t rest, n_features, n_rows, n_done;
    } steps[TOKENS];
} seen;

/* From a position on the stream rests, from a later one on its budget is spent. */
static void watch(const struct rn_step *step)
{
    struct rn_request *request = seen.model->decode.n_running == 1 ? seen.model->decode.running[0] : NULL;
    struct rn_speculation *speculation;

    if (request == NULL || seen.n == TOKENS)
        return;
    speculation = &seen.model->verifier.streams[request->slot].model;
    seen.steps[seen.n].rest = speculation->rest;
    seen.steps[seen.n].n_features = step->n_features;
    seen.steps[seen.n].n_rows = step->n_rows;
    seen.steps[seen.n++].n_done = request->n_done - request->n_prompt;
    if (request->n_done - request->n_prompt < POOR_AT) {
        speculation->budget = 4;
    } else {
        speculation->budget = -100;
        speculation->rest = 0;
    }
    if (request->n_done - request->n_prompt < REST_AT)
        speculation->rest = REST;
}

static void answer(runnel_engine *engine, runnel_model *model, uint32_t draft, struct capture *capture)
{
    char prompt[161];
    runnel_stream stream;
    runnel_request request;

    taught_prompt(0, 150, prompt);
    request = make_request(prompt, TOKENS - 10, capture);
    request.ignore_eos = 1;
    request.draft = draft;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    run_until_end(engine, capture);
}

static void a_head_at_rest_costs_nothing(void **state)
{
    uint32_t n_rests = 0, n_leads = 0, n_poor = 0, n_drafts = 0;
    runnel_engine *engine = metered_engine();
    struct capture plain = {0}, fast = {0};

    (void)state;
    seen.model = metered_model(engine, taught.target, taught.head_path);
    answer(engine, seen.model, RUNNEL_DRAFT_NONE, &plain);
    metered_watch = watch;
    answer(engine, seen.model, RUNNEL_DRAFT_MODEL, &fast);
    metered_watch = NULL;
    for (uint32_t i = 2; i < seen.n; i++) {
        bool rests = seen.steps[i - 1].rest == seen.steps[i].rest + 1; /* and did when the step was begun */

        if (seen.steps[i].n_done < REST_AT || seen.steps[i - 1].n_done < REST_AT)
            continue;
        if (rests && seen.steps[i].rest >= LEAD) {
            assert_int_equal(seen.steps[i].n_features, 0);
            assert_int_equal(seen.steps[i].n_rows, 1);
            n_rests++;
        } else if (seen.steps[i].rest < LEAD && seen.steps[i].n_done < POOR_AT) {
            assert_int_equal(seen.steps[i].n_features, seen.steps[i].n_rows);
            n_leads += seen.steps[i].n_rows == 1;
            n_drafts += seen.steps[i].n_rows - 1;
        } else if (seen.steps[i - 1].rest == 0 && seen.steps[i].rest == 0 && seen.steps[i - 1].n_done >= POOR_AT) {
            assert_int_equal(seen.steps[i].n_features, 0);
            n_poor++;
        }
    }
    print_message("%u steps at rest, %u before a try, %u drafts behind rests, %u steps without money\n", n_rests,
                  n_leads, n_drafts, n_poor);
    assert_true(n_rests >= REST - LEAD - 4 && n_leads >= LEAD && n_drafts > 0 && n_poor > 0);
    assert_int_equal(plain.text_bytes, fast.text_bytes);
    assert_memory_equal(plain.text, fast.text, plain.text_bytes);
    capture_clear(&plain);
    capture_clear(&fast);
    runnel_model_free(seen.model);
    await_models(engine, 0);
    runnel_engine_free(engine);
}

static int setup(void **state)
{
    (void)state;
    return taught_begin(UNLESS_SLOW(10, 3), 0);
}

static int teardown(void **state)
{
    (void)state;
    taught_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_head_at_rest_costs_nothing)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
