/* See runner.h. */
#include "tests/cpu/runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "cpu/nodes.h"
#include "tests/support/shared.h"

bool has_models(void)
{
    char path[1024];

    return shared_find("models", path, sizeof path);
}

struct model open_model(struct rn_heap *heap, const char *name, uint32_t context_tokens)
{
    struct model m = {NULL, NULL};
    runnel_error error = {0};
    char path[1024];

    assert_true(shared_find(name, path, sizeof path));
    if (rn_gguf_open(heap, path, &m.gguf, &error) != RUNNEL_OK ||
        rn_plan_new(heap, m.gguf, context_tokens, &m.plan, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    return m;
}

void close_model(struct model *model)
{
    rn_plan_free(model->plan);
    rn_gguf_free(model->gguf);
}

void open_runner(struct runner *r, struct rn_heap *heap, const struct rn_plan *plan, const struct rn_level *level,
                 uint32_t threads, const struct rn_backend_limits *limits)
{
    open_runner_at(r, heap, plan, level, threads, limits, RN_NODES_ROOT);
}

void open_runner_at(struct runner *r, struct rn_heap *heap, const struct rn_plan *plan, const struct rn_level *level,
                    uint32_t threads, const struct rn_backend_limits *limits, const char *root)
{
    begin_runner(r, heap, plan, level, threads, limits, root);
    prepare_runner(r);
}

void begin_runner(struct runner *r, struct rn_heap *heap, const struct rn_plan *plan, const struct rn_level *level,
                  uint32_t threads, const struct rn_backend_limits *limits, const char *root)
{
    r->plan = plan;
    r->limits = *limits;
    sem_init(&r->done, 0, 0);
    r->team = rn_team_new_at(heap, threads, root);
    assert_non_null(r->team);
    r->backend = level == NULL ? rn_cpu_reference_new(heap, r->team) : rn_cpu_backend_new_level(heap, r->team, level);
    assert_non_null(r->backend);
}

void prepare_runner(struct runner *r)
{
    runnel_error error = {0};

    if (r->backend->ops->prepare(r->backend, r->plan, &r->limits, NULL, NULL, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
}

void close_runner(struct runner *r)
{
    r->backend->ops->free(r->backend);
    rn_team_free(r->team);
    sem_destroy(&r->done);
}

void on_step_done(struct rn_step *step)
{
    sem_post(&((struct runner *)step->user)->done);
}

void run_step(struct runner *r, struct rn_step *step)
{
    step->on_done = on_step_done;
    step->user = r;
    step->status = RUNNEL_STATUS_MAX_;
    assert_true(rn_step_check(step, r->plan, &r->limits));
    r->backend->ops->submit_async(r->backend, step);
    sem_wait(&r->done);
    assert_int_equal(step->status, RUNNEL_OK);
}
