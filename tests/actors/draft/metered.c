/* See metered.h. */
#include "tests/actors/draft/metered.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "tests/actors/fixture.h"

enum { STEP_US = 1000, PASS_US = 50 };

void (*metered_watch)(const struct rn_step *step);

struct metered {
    struct rn_backend backend; /* first */
    struct rn_backend *inner;
    void (*on_done)(struct rn_step *step);
    uint64_t us;
};

static _Atomic uint64_t now_us; /* relaxed: a clock */
static struct metered metered[2];

static uint64_t clock_now(void *user)
{
    (void)user;
    return atomic_load_explicit(&now_us, memory_order_relaxed);
}

static void done(struct metered *m, struct rn_step *step)
{
    atomic_fetch_add_explicit(&now_us, m->us, memory_order_relaxed);
    m->on_done(step);
}

static void target_done(struct rn_step *step)
{
    done(&metered[0], step);
}

static void drafter_done(struct rn_step *step)
{
    done(&metered[1], step);
}

static void submit_metered(struct rn_backend *backend, struct rn_step *step)
{
    struct metered *m = (struct metered *)backend;

    if (m == &metered[0] && metered_watch != NULL)
        metered_watch(step);
    m->on_done = step->on_done;
    step->on_done = m == &metered[0] ? target_done : drafter_done;
    m->inner->ops->submit_async(m->inner, step);
}

static void free_metered(struct rn_backend *backend)
{
    struct metered *m = (struct metered *)backend;

    m->inner->ops->free(m->inner);
}

static size_t bytes_metered(const struct rn_backend *backend)
{
    const struct metered *m = (const struct metered *)backend;

    return m->inner->ops->block_bytes(m->inner);
}

static const char *layout_metered(const struct rn_backend *backend)
{
    const struct metered *m = (const struct metered *)backend;

    return m->inner->ops->layout(m->inner);
}

static struct rn_backend *meter(struct metered *m, struct rn_backend *inner, uint64_t us)
{
    static const struct rn_backend_ops ops = {.name = "metered",
                                              .submit_async = submit_metered,
                                              .free = free_metered,
                                              .block_bytes = bytes_metered,
                                              .layout = layout_metered};

    *m = (struct metered){.backend = {&ops, inner->caps}, .inner = inner, .us = us};
    return &m->backend;
}

/* ---- Engines and models ---- */

runnel_engine *metered_engine(void)
{
    const struct rn_clock clock = {.now_us = clock_now};
    runnel_engine *engine = NULL;
    runnel_engine_options options;

    atomic_store(&now_us, 1);
    runnel_engine_options_default(&options);
    options.scheduler_threads = 1; /* who watches a step's submit may look at the verifier */
    assert_int_equal(rn_engine_new(&options, &clock, false, &engine, NULL), RUNNEL_OK);
    return engine;
}

runnel_model *metered_model(runnel_engine *engine, const char *path, const char *draft)
{
    runnel_model_options options;
    runnel_model *model;

    runnel_model_options_default(&options);
    options.context_tokens = METERED_CONTEXT;
    options.draft_path = draft;
    model = load_model(engine, path, &options);
    model->parts.backend = meter(&metered[0], model->parts.backend, STEP_US);
    model->context.backend = model->parts.backend;
    if (draft != NULL)
        model->parts.drafter.backend = meter(&metered[1], model->parts.drafter.backend, PASS_US);
    model->decode.cost = (struct rn_step_cost){.us = {0}}; /* it was measured under a clock that stood still */
    for (uint32_t n = 1; n <= 64; n *= 2)
        rn_step_cost_record(&model->decode.cost, n, STEP_US);
    model->verifier.cost = model->decode.cost;
    /* No prompt waits for others by a clock that stands still while nothing runs. */
    rn_prompt_budget_init(&model->decode.pace, INFINITY);
    return model;
}

runnel_model *metered_restless;

void metered_keep_awake(void)
{
    for (uint32_t i = 0; metered_restless != NULL && i < metered_restless->decode.n_running; i++) {
        uint32_t slot = metered_restless->decode.running[i]->slot;
        struct rn_speculation *record = &metered_restless->verifier.streams[slot].model;

        record->rest = 0;
        record->budget = 4;
    }
}

struct metered_seen metered_seen;

void metered_see(const struct rn_step *step)
{
    struct metered_seen *seen = &metered_seen;

    metered_keep_awake();
    for (uint32_t r = 0; r < step->n_rows; r++) {
        const struct rn_step_row *row = &step->rows[r];

        assert_true(row->position < METERED_CONTEXT);
        if (seen->prompt_seen && r > 0) {
            assert_true(seen->n_guesses < METERED_MOST_GUESSES);
            seen->guesses[seen->n_guesses++] =
                (struct metered_guess){row->position, row->position - step->rows[0].position, row->token,
                                       step->parents != NULL && step->parents[r] != (int32_t)r - 1};
            continue;
        }
        seen->text[row->position] = row->token;
        seen->n = row->position + 1;
    }
    seen->prompt_seen = seen->prompt_seen || step->n_outs > 0;
}

void metered_refuse(runnel_engine *engine, const char *path, const char *draft, runnel_status status, const char *says)
{
    runnel_model_options options;
    runnel_model *model = NULL;
    runnel_error error = {0};
    runnel_status got;

    runnel_model_options_default(&options);
    options.draft_path = draft;
    got = runnel_model_load(engine, path, &options, &model, &error);
    if (got == RUNNEL_OK) {
        got = runnel_model_wait(model, -1, &error);
        runnel_model_free(model);
        await_models(engine, 0);
    }
    if (got != status || strstr(error.message, says) == NULL)
        fail_msg("%s: %d %s", draft, (int)got, error.message);
}
