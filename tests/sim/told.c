#include "tests/sim/told.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void on_event(void *user, const runnel_event *event)
{
    struct told *told = user;

    if (event->type == RUNNEL_EVENT_TOKEN && event->token >= 0 && told->n_tokens < TOLD_TOKENS)
        told->tokens[told->n_tokens++] = event->token;
    if (event->type < RUNNEL_EVENT_DONE)
        return;
    told->ended = true;
    told->last = *event;
}

runnel_request told_request(struct told *told, uint32_t seed, uint32_t n_prompt, int64_t max_tokens)
{
    runnel_request request;

    memset(told, 0, sizeof *told);
    for (uint32_t i = 0; i < TOLD_PROMPT; i++)
        told->prompt[i] = (int32_t)((seed * 31 + i * 7) % 250);
    runnel_request_default(&request);
    request.tokens = told->prompt;
    request.n_tokens = n_prompt;
    request.max_tokens = max_tokens;
    request.ignore_eos = 1;
    request.on_event = on_event;
    request.user = told;
    return request;
}

void told_submit(struct told *told, runnel_model *model, const runnel_request *request)
{
    assert_int_equal(runnel_generate(model, request, &told->stream, NULL), RUNNEL_OK);
}

bool told_all_ended(const struct told *told, uint32_t n)
{
    while (n > 0 && told[n - 1].ended)
        n--;
    return n == 0;
}

void told_assert_text(const struct told *told, const struct oracle_alphabet *alphabet, uint64_t salt, uint32_t n_prompt,
                      uint32_t n_tokens)
{
    struct oracle_chain chain;

    oracle_chain_init(&chain, salt);
    for (uint32_t i = 0; i < n_prompt; i++)
        oracle_chain_push(&chain, told->prompt[i]);
    assert_int_equal(told->n_tokens, n_tokens);
    for (uint32_t i = 0; i < n_tokens; i++) {
        assert_int_equal(told->tokens[i], oracle_chain_next(&chain, alphabet));
        oracle_chain_push(&chain, told->tokens[i]);
    }
}

runnel_metrics metrics_of(runnel_engine *engine)
{
    runnel_metrics m = {.struct_size = sizeof m};

    assert_int_equal(runnel_engine_metrics(engine, &m), RUNNEL_OK);
    return m;
}
