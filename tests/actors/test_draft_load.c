/* What a load measures for who drafts: steps of each number of rows up to eight, and of more twice as many each
 * time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "fixture.h"

static runnel_model *load(runnel_engine *engine, const char *draft, uint32_t measure_ms)
{
    runnel_model_options options;

    runnel_model_options_default(&options);
    options.context_tokens = 256;
    options.draft_path = draft;
    options.draft_measure_ms = measure_ms;
    return load_model(engine, BUNDLED_MODEL, &options);
}

/* Given the time, no price of up to eight rows is a guess. */
static void each_small_step_is_measured(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load(engine, "exit:1", 600000);
    const struct rn_step_cost *cost = &model->parts.cost;

    (void)state;
    for (uint32_t n_rows = 1; n_rows <= 8; n_rows++)
        assert_true(cost->n[n_rows - 1] > 0 && cost->us[n_rows - 1] > 0);
    assert_true(rn_step_cost_reach(cost) > 32);
    runnel_engine_free(engine);
}

/* Without a drafter a load measures nothing; and how short a time it may take changes no text. */
static void no_text_depends_on_it(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    struct capture plain = {0}, fast = {0};
    runnel_request request = make_request("Once upon a time", 24, &plain);
    runnel_model *model = load(engine, NULL, 0);

    (void)state;
    assert_int_equal(model->parts.cost.n_notes, 0);
    run_request(engine, model, &request);
    runnel_model_free(model);
    model = load(engine, "exit:1", 1);
    request.user = &fast;
    request.draft = RUNNEL_DRAFT_MODEL;
    run_request(engine, model, &request);
    assert_int_equal(plain.text_bytes, fast.text_bytes);
    assert_memory_equal(plain.text, fast.text, plain.text_bytes);
    capture_clear(&plain);
    capture_clear(&fast);
    runnel_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_small_step_is_measured),
        cmocka_unit_test(no_text_depends_on_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
