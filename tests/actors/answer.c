#include "tests/actors/answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void note(struct capture *capture, const runnel_event *event)
{
    struct answer *answer = capture->hook_user;

    if (event->type != RUNNEL_EVENT_TOKEN || event->token < 0)
        return;
    assert_true(answer->n < ANSWER_MOST && event->n_top == ANSWER_TOP);
    answer->logprobs[answer->n] = event->logprob;
    memcpy(answer->tops[answer->n++], event->top, sizeof answer->tops[0]);
}

runnel_request answer_request(struct answer *answer, const char *prompt, uint32_t n_tokens)
{
    runnel_request request;

    memset(answer, 0, sizeof *answer);
    answer->capture.hook = note;
    answer->capture.hook_user = answer;
    request = make_request(prompt, n_tokens, &answer->capture);
    request.want_logprobs = 1;
    request.n_top = ANSWER_TOP;
    request.ignore_eos = 1;
    request.sampling.temperature = 0.7f;
    request.sampling.seed = 11;
    return request;
}

void assert_same_answer(const struct answer *a, const struct answer *b)
{
    assert_true(a->n > 0);
    assert_int_equal(a->n, b->n);
    assert_string_equal(a->capture.text, b->capture.text);
    assert_memory_equal(a->capture.tokens, b->capture.tokens, a->n * sizeof(int32_t));
    assert_memory_equal(a->logprobs, b->logprobs, a->n * sizeof(float));
    assert_memory_equal(a->tops, b->tops, a->n * sizeof a->tops[0]);
}
