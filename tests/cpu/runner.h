/* Models of ../shared (or $RUNNEL_SHARED) and steps on a CPU backend of one's own: what the tests of whole backends
 * share. What cannot be done fails the test that asked for it. One thread. */
#ifndef RN_TESTS_CPU_RUNNER_H
#define RN_TESTS_CPU_RUNNER_H

#include <semaphore.h>

#include "cpu/kernels.h"
#include "cpu/reference/reference.h"

struct model {
    struct rn_gguf *gguf;
    struct rn_plan *plan;
};

struct runner {
    struct rn_team *team;
    struct rn_backend *backend;
    const struct rn_plan *plan;
    struct rn_backend_limits limits;
    sem_t done; /* posted by on_step_done */
};

/* Are the models there? If not, says so on standard output: the test is to end with 77. */
bool has_models(void);

/* The model of this name in the shared folder; close_model frees it. */
struct model open_model(struct rn_heap *heap, const char *name, uint32_t context_tokens);
void close_model(struct model *model);

/* A backend with a team of its own; level NULL: the reference. The plan is borrowed until close_runner. */
void open_runner(struct runner *r, struct rn_heap *heap, const struct rn_plan *plan, const struct rn_level *level,
                 uint32_t threads, const struct rn_backend_limits *limits);
void close_runner(struct runner *r);

/* Likewise on the memory nodes that the files below `root` tell of. */
void open_runner_at(struct runner *r, struct rn_heap *heap, const struct rn_plan *plan, const struct rn_level *level,
                    uint32_t threads, const struct rn_backend_limits *limits, const char *root);

/* open_runner_at in two parts: between them a test may change what the backend is prepared with. */
void begin_runner(struct runner *r, struct rn_heap *heap, const struct rn_plan *plan, const struct rn_level *level,
                  uint32_t threads, const struct rn_backend_limits *limits, const char *root);
void prepare_runner(struct runner *r);

/* Runs the step, which must be valid, to its end, which must be good. */
void run_step(struct runner *r, struct rn_step *step);

/* The step's on_done, where its user is a runner. */
void on_step_done(struct rn_step *step);

#endif
