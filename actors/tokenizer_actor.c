/* The tokenizer actor: see tokenizer_actor.h. */
#include "actors/tokenizer_actor.h"

#include <stddef.h>
#include <string.h>

#include "actors/prompt/chat.h"
#include "actors/context.h"
#include "actors/grammar/text.h"
#include "actors/prompt/pair.h"
#include "actors/request.h"
#include "base/check.h"

static_assert(offsetof(struct rn_tokenizer, actor) == 0, "handlers get the actor");

/* Not of one that was ended meanwhile, whatever its text would have come to. */
static void fail(struct rn_request *request, const runnel_error *error)
{
    if (!rn_request_end_unwanted(request))
        rn_request_fail(request, error->status, "%s", error->message);
}

/* As the submit of a shorter text would say it: before its grammar is compiled. With a session its history counts, too,
 * which is known later. */
static void check_length(const struct rn_tokenizer *tokenizer, struct rn_request *request, size_t count)
{
    uint64_t room = rn_context_prompt_room(tokenizer->context, request->max_tokens);
    runnel_error error = {0};

    if (request->session_generation != 0 || count <= room)
        return;
    rn_error_set(&error, RUNNEL_CONTEXT, "the prompt has %zu tokens, %llu fit", count, (unsigned long long)room);
    fail(request, &error);
}

static void encode(struct rn_tokenizer *tokenizer, struct rn_request *request)
{
    const struct rn_vocab *vocab = tokenizer->context->vocab;
    const struct rn_tokenize_text text = {
        .text = request->text, .n = request->text_bytes, .flags = request->tokenize_flags};
    const struct rn_interrupt stop = rn_request_interrupt(request);
    runnel_error error = {0};
    size_t count = 0;

    if (rn_tokenize_until(vocab, request->heap, &text, &stop, &request->tokens, &count, &error) != RUNNEL_OK) {
        fail(request, &error);
        return;
    }
    rn_free(request->heap, request->text);
    request->text = NULL;
    request->n_tokens = request->capacity = (uint32_t)count;
    request->first_bos = (request->tokenize_flags & RUNNEL_TOKENIZE_BOS) != 0 && rn_vocab_add_bos(vocab);
    check_length(tokenizer, request, count);
}

/* Its reader and its grammar look at how the prompt ends. */
static void begin_answer(struct rn_request *request, const struct rn_rendered *prompt)
{
    struct rn_grammar_text *grammar = request->grammar;

    if (request->answer != NULL)
        rn_answer_start(request->answer, prompt->text, prompt->n, prompt->content);
    if (grammar != NULL && grammar->format != NULL)
        grammar->opened = rn_answer_opened(grammar->format, prompt->text, prompt->n, prompt->content);
}

/* A chat becomes text, and that tokens. */
static void encode_chat(struct rn_tokenizer *tokenizer, struct rn_request *request)
{
    const struct rn_vocab *vocab = tokenizer->context->vocab;
    const struct rn_interrupt stop = rn_request_interrupt(request);
    struct rn_rendered rendered;
    runnel_error error = {0};
    size_t count = 0;
    runnel_status status = rn_chat_render(request->chat, vocab, request->heap, &stop, &rendered, &error);

    if (status == RUNNEL_OK) {
        status = rn_chat_tokenize(&rendered, vocab, request->heap, &stop, &request->tokens, &count, &error);
        if (status == RUNNEL_OK)
            begin_answer(request, &rendered);
        rn_rendered_free(&rendered, request->heap);
    }
    rn_chat_free(request->chat);
    request->chat = NULL;
    request->n_tokens = request->capacity = (uint32_t)count;
    if (status != RUNNEL_OK)
        fail(request, &error);
}

static void encode_pair(struct rn_tokenizer *tokenizer, struct rn_request *request)
{
    const struct rn_interrupt stop = rn_request_interrupt(request);
    runnel_error error = {0};
    size_t count = 0;
    runnel_status status =
        rn_pair_tokenize(request->pair, tokenizer->context->vocab, &stop, &request->tokens, &count, &error);

    rn_pair_free(request->pair);
    request->pair = NULL;
    request->n_tokens = request->capacity = (uint32_t)count;
    if (status != RUNNEL_OK)
        fail(request, &error);
}

/* In the engine's limit it counted by its bytes so far. */
static void count_tokens(struct rn_request *request)
{
    rn_request_unqueue(request);
    request->n_queued = request->n_tokens;
    rn_counter_add(&request->context->totals->queued_tokens, request->n_tokens);
}

/* By way of the grammar actor if it has a grammar, or a session whose last turn may be there still. One that has its
 * outcome does not wait there for others' grammars. */
static void send_on(struct rn_tokenizer *tokenizer, struct rn_msg *msg)
{
    const struct rn_request *request = msg->request.request;
    bool session = request->session_generation != 0;

    tokenizer->sessions_follow |= session && request->grammar != NULL;
    if ((request->grammar != NULL && request->outcome == RN_OUTCOME_NONE) || (session && tokenizer->sessions_follow)) {
        msg->head.kind = RN_MSG_COMPILE;
        rn_actor_send(tokenizer->context->grammar, msg);
    } else {
        msg->head.kind = RN_MSG_ADMIT;
        rn_actor_send(tokenizer->context->tier, msg);
    }
}

static void on_encode(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tokenizer *tokenizer = (struct rn_tokenizer *)self;
    struct rn_request *request = msg->request.request;

    RN_ASSERT(rn_request_check(request) && (request->text == NULL || request->chat == NULL));
    if (request->job == NULL && !rn_request_end_unwanted(request)) {
        if (request->text != NULL)
            encode(tokenizer, request);
        if (request->chat != NULL)
            encode_chat(tokenizer, request);
        if (request->pair != NULL)
            encode_pair(tokenizer, request);
    }
    count_tokens(request);
    RN_ASSERT((request->text == NULL && request->chat == NULL) || request->outcome != RN_OUTCOME_NONE);
    RN_ASSERT(rn_request_check(request) && request->n_queued == request->n_tokens);
    send_on(tokenizer, msg);
}

static void on_session(struct rn_actor *self, struct rn_msg *msg)
{
    const struct rn_tokenizer *tokenizer = (const struct rn_tokenizer *)self;

    rn_actor_send(tokenizer->sessions_follow ? tokenizer->context->grammar : tokenizer->context->tier, msg);
}

static const struct rn_actor_class tokenizer_class = {
    .name = "tokenizer",
    .handlers =
        {
            [RN_MSG_ENCODE] = on_encode,
            [RN_MSG_SESSION_NEW] = on_session,
            [RN_MSG_SESSION_FREE] = on_session,
            [RN_MSG_SESSION_FORK] = on_session,
            [RN_MSG_CLOSE] = rn_actor_on_close,
        },
};

void rn_tokenizer_init(struct rn_tokenizer *tokenizer, const struct rn_context *context)
{
    *tokenizer = (struct rn_tokenizer){.context = context};
    rn_actor_init(&tokenizer->actor, context->runtime, &tokenizer_class,
                  rn_bounds_credits(&context->bounds, RN_ROLE_TOKENIZER));
}

bool rn_tokenizer_check(const struct rn_tokenizer *tokenizer)
{
    return tokenizer->actor.class == &tokenizer_class && tokenizer->context->tokenizer == &tokenizer->actor;
}
