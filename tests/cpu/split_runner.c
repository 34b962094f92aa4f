/* See split_runner.h. */
#include "tests/cpu/split_runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cpu/cpu.h"
#include "model/cut.h"
#include "model/split.h"

void open_split(struct split_runner *s, struct rn_heap *heap, const struct rn_plan *plan, uint32_t n, uint32_t threads,
                const struct rn_backend_limits *limits)
{
    const struct rn_device_options options = {.n_threads = threads};
    struct runner *r = &s->runner;
    runnel_error error = {0};

    *s = (struct split_runner){.runner = {.plan = plan, .limits = *limits}};
    sem_init(&r->done, 0, 0);
    s->front = rn_cpu_kind.open(heap, &options, &error);
    s->back = rn_cpu_kind.open(heap, &options, &error);
    assert_true(s->front != NULL && s->back != NULL);
    if (rn_plan_cut(heap, plan, n, &s->parts[0], &s->parts[1], &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    r->backend = rn_split_new(heap, &(struct rn_split_part){s->front, s->parts[0]},
                              &(struct rn_split_part){s->back, s->parts[1]});
    assert_non_null(r->backend);
    if (r->backend->ops->prepare(r->backend, plan, &r->limits, NULL, NULL, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
}

void close_split(struct split_runner *s)
{
    s->runner.backend->ops->free(s->runner.backend);
    rn_plan_free(s->parts[0]);
    rn_plan_free(s->parts[1]);
    s->front->kind->close(s->front);
    s->back->kind->close(s->back);
    sem_destroy(&s->runner.done);
}
