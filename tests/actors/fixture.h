/* What the tests of actors/ share: an engine with the bundled model, and a capture of a stream's events. */
#ifndef RN_TESTS_ACTORS_FIXTURE_H
#define RN_TESTS_ACTORS_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runnel.h"
#include "tests/slow.h"

#define BUNDLED_MODEL "examples/models/runnel-tiny-Q8_0.gguf"

/* Everything one stream delivered. Grows without bound: a test's streams are short. */
struct capture {
    char *text;
    size_t text_bytes;
    int32_t *tokens;
    size_t n_tokens;
    size_t n_events, n_progress, n_logits;
    unsigned n_terminal;
    runnel_event last; /* the terminal event; its pointers are not valid */
    char error[RUNNEL_ERROR_BYTES];
    size_t n_after_terminal;
    bool paused; /* set by the test: an event while it is set counts as a breach */
    size_t n_while_paused;
    void (*hook)(struct capture *, const runnel_event *); /* called after each event is noted */
    void *hook_user;
};

void capture_event(void *user, const runnel_event *event);
void capture_clear(struct capture *capture);

/* The device of models that name none: $RUNNEL_TEST_DEVICE, whose kernels are in the file $RUNNEL_TEST_LIBRARY. NULL,
 * and NULL: the CPU. With $RUNNEL_TEST_DEVICE_LAYERS so many layers are computed there, the others on the CPU. With an
 * emulated one a step costs a thousand times as much. */
const char *test_device(void);
void use_test_device(runnel_engine_options *options);

/* runnel_model_options.kv_bytes of one of a few models: a test's device is small, and the first would take nearly
 * all. */
uint64_t shared_kv_bytes(void);

/* As UNLESS_SLOW (tests/slow.h), and `few` on a test's device. */
#define UNLESS_EMULATED(many, few) (test_device() != NULL ? (few) : UNLESS_SLOW(many, few))

/* The bundled model; under ThreadSanitizer and on a test's device its small sibling of the same vocabulary, where that
 * is to be had. */
const char *quick_model(void);

/* An engine with options (NULL: defaults) and the bundled model, ready. Aborts the test on failure. */
runnel_engine *start_engine(const runnel_engine_options *options);
runnel_model *load_model(runnel_engine *engine, const char *path, const runnel_model_options *options);

/* A greedy request for `prompt` of at most max_tokens, captured. */
runnel_request make_request(const char *prompt, int64_t max_tokens, struct capture *capture);

/* Dispatches until the capture has its terminal event; fails the test after 60 seconds. */
void run_until_end(runnel_engine *engine, struct capture *capture);

/* Submits and runs to the end; returns the terminal type. */
runnel_event_type run_request(runnel_engine *engine, runnel_model *model, const runnel_request *request);

/* Waits until nothing is left in the engine but what it holds at rest; fails the test otherwise. */
void assert_quiet(runnel_engine *engine, uint64_t blocks_kept);

/* Runs a program's cases: those that $RUNNEL_TEST_CASES names, with spaces between them; without it, all. A name that
 * no case has fails the program. setup and teardown are the group's, or NULL. */
#define run_cases(tests, setup, teardown) run_cases_of(tests, sizeof(tests) / sizeof(tests)[0], setup, teardown)
struct CMUnitTest;
int run_cases_of(const struct CMUnitTest *tests, size_t n, int (*setup)(void **state), int (*teardown)(void **state));

/* Waits until the engine has n models: one that was freed is gone when its actors are. */
void await_models(runnel_engine *engine, uint64_t n);

#endif
