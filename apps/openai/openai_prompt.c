/* Log-probabilities of a prompt: a completion that echoes it and asks for them. See openai_answer.h.
 *
 * The stream gives the logits of the token behind each position of the prompt. What is told of a token is its
 * log-softmax in them, log p(t) = l(t) - max - log(sum exp(l - max)), and the best ones beside it; of the first token,
 * which nothing has predicted, null. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "openai_write.h"

bool openai_prompt_open(struct openai_choice *choice, const struct openai_prompt *prompt)
{
    runnel_model_info info = {.struct_size = sizeof info};
    uint32_t flags = RUNNEL_TOKENIZE_BOS | (choice->request->parse_special ? RUNNEL_TOKENIZE_SPECIAL : 0);
    size_t n = prompt->n_tokens;

    if (prompt->tokens == NULL &&
        runnel_tokenize(choice->model, prompt->text, prompt->text_bytes, flags, NULL, 0, &n) != RUNNEL_OK)
        return true; /* the submit will say what is wrong with it */
    choice->prompt = calloc(n + 1, sizeof *choice->prompt);
    if (choice->prompt == NULL)
        return false;
    if (prompt->tokens != NULL)
        memcpy(choice->prompt, prompt->tokens, n * sizeof *choice->prompt);
    else if (runnel_tokenize(choice->model, prompt->text, prompt->text_bytes, flags, choice->prompt, n, &n) !=
             RUNNEL_OK)
        return false;
    choice->n_prompt = n;
    choice->own_bos = prompt->tokens == NULL && n > 0 && runnel_model_get_info(choice->model, &info) == RUNNEL_OK &&
                      info.add_bos && choice->prompt[0] == info.bos;
    return true;
}

/* The logarithm of what the exponentials sum up to. */
static double log_sum(const float *logits, size_t n)
{
    float most = logits[0];
    double sum = 0;

    for (size_t i = 1; i < n; i++)
        most = logits[i] > most ? logits[i] : most;
    for (size_t i = 0; i < n; i++)
        sum += (double)expf(logits[i] - most);
    return (double)most + log(sum);
}

/* The best `room` of them, the best first, of equal ones the first; returns how many. */
static uint32_t take_best(const float *logits, size_t n, double sum, runnel_logprob *best, uint32_t room)
{
    uint32_t count = 0, at = 0;

    for (size_t i = 0; i < n && room > 0; i++) {
        float logprob = (float)((double)logits[i] - sum);

        if (count == room && logprob <= best[count - 1].logprob)
            continue;
        at = count < room ? count++ : count - 1;
        for (; at > 0 && best[at - 1].logprob < logprob; at--)
            best[at] = best[at - 1];
        best[at] = (runnel_logprob){(int32_t)i, logprob};
    }
    return count;
}

void openai_prompt_event(struct openai_choice *choice, const runnel_event *event)
{
    runnel_logprob best[RUNNEL_MAX_TOP_LOGPROBS];
    runnel_event told = {.type = RUNNEL_EVENT_TOKEN, .top = best};
    size_t next = (size_t)event->position + 1;
    double sum = 0;

    if (event->position == 0 && choice->n_prompt > 0) {
        told.token = choice->prompt[0];
        told.logprob = NAN;
        openai_logprobs_add(choice, &told);
        if (choice->own_bos) /* it is no part of the text */
            choice->characters = 0;
    }
    if (next >= choice->n_prompt || (uint32_t)choice->prompt[next] >= event->n_logits)
        return;
    sum = log_sum(event->logits, event->n_logits);
    told.token = choice->prompt[next];
    told.logprob = (float)((double)event->logits[told.token] - sum);
    told.n_top = take_best(event->logits, event->n_logits, sum, best, (uint32_t)choice->request->top_logprobs);
    openai_logprobs_add(choice, &told);
}
