/* An answer to the bit: tokens, text, and of each token its logprob and those of the likeliest others. What must not
 * change with where a prompt's KV comes from. */
#ifndef RN_TESTS_ACTORS_ANSWER_H
#define RN_TESTS_ACTORS_ANSWER_H

#include "tests/actors/fixture.h"

enum { ANSWER_MOST = 96, ANSWER_TOP = 3 };

struct answer {
    struct capture capture;
    float logprobs[ANSWER_MOST];
    runnel_logprob tops[ANSWER_MOST][ANSWER_TOP];
    size_t n;
};

/* A sampled request for n_tokens, whatever they are, noted in *answer, which begins anew. */
runnel_request answer_request(struct answer *answer, const char *prompt, uint32_t n_tokens);

void assert_same_answer(const struct answer *a, const struct answer *b);

#endif
