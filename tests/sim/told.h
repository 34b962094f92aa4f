/* A stream of the oracle model as its reader has seen it, judged by the closed form: for tests that drive an engine
 * without threads by hand. */
#ifndef RN_TESTS_SIM_TOLD_H
#define RN_TESTS_SIM_TOLD_H

#include "runnel.h"
#include "tests/sim/oracle_backend.h"

enum { TOLD_PROMPT = 200, TOLD_TOKENS = 1200 };

struct told {
    int32_t prompt[TOLD_PROMPT];
    runnel_stream stream;
    uint32_t n_tokens;
    int32_t tokens[TOLD_TOKENS]; /* of the answer */
    bool ended;
    runnel_event last; /* the terminal event; its pointers are not valid */
};

/* A request for n_prompt tokens that follow from the seed, whose events go to *told, which begins anew. */
runnel_request told_request(struct told *told, uint32_t seed, uint32_t n_prompt, int64_t max_tokens);

/* Fails the test where the request is refused. */
void told_submit(struct told *told, runnel_model *model, const runnel_request *request);

bool told_all_ended(const struct told *told, uint32_t n);

/* The answer's tokens are those that the oracle model of this salt draws behind the prompt's, and n_tokens of them. */
void told_assert_text(const struct told *told, const struct oracle_alphabet *alphabet, uint64_t salt, uint32_t n_prompt,
                      uint32_t n_tokens);

runnel_metrics metrics_of(runnel_engine *engine);

#endif
