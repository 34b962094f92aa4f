/* Answers with scores: documents in their order, and what texts are. See openai_answer.h. */
#include <stdlib.h>

#include "apps/runnel/common.h"
#include "openai_write.h"

static double score_of(const struct openai_choice *choice)
{
    return choice->n_embedding > 0 ? (double)choice->embedding[0] : 0;
}

static int by_score(const void *a, const void *b)
{
    const struct openai_choice *const *x = a, *const *y = b;
    double first = score_of(*x), second = score_of(*y);

    return first > second ? -1 : first < second ? 1 : *x < *y ? -1 : *x > *y;
}

static void put_result(FILE *to, const struct openai_request *request, const struct openai_choice *choice, size_t i)
{
    const struct openai_prompt *text = &request->prompts[i];

    fprintf(to, "{\"index\":%zu,\"%s\":%.9g", i, request->bare_scores ? "score" : "relevance_score", score_of(choice));
    if (request->return_documents) {
        fputs(request->bare_scores ? ",\"text\":" : ",\"document\":{\"text\":", to);
        app_json_string(to, text->text, text->text_bytes);
        fputs(request->bare_scores ? "" : "}", to);
    }
    fputc('}', to);
}

/* The best ones first. Without memory for the order: as they were given, which is an order, too. */
static void put_results(FILE *to, const struct openai_request *request, const struct openai_choice *choices, size_t n)
{
    const struct openai_choice **order = calloc(n, sizeof *order);
    size_t shown = request->top_n > 0 && (size_t)request->top_n < n ? (size_t)request->top_n : n;

    for (size_t i = 0; order != NULL && i < n; i++)
        order[i] = &choices[i];
    if (order != NULL)
        qsort(order, n, sizeof *order, by_score);
    fputc('[', to);
    for (size_t i = 0; i < shown; i++) {
        const struct openai_choice *choice = order != NULL ? order[i] : &choices[i];

        fputs(i > 0 ? "," : "", to);
        put_result(to, request, choice, (size_t)(choice - choices));
    }
    fputc(']', to);
    free(order);
}

static unsigned long long tokens_of(const struct openai_choice *choices, size_t n)
{
    unsigned long long tokens = 0;

    for (size_t i = 0; i < n; i++)
        tokens += choices[i].usage.prompt_tokens;
    return tokens;
}

static void put_head(FILE *to, const struct openai_request *request, const struct openai_head *head)
{
    fputs("{\"id\":", to);
    openai_string_write(to, head->id);
    fprintf(to, ",\"object\":\"list\",\"created\":%lld,\"model\":", (long long)head->created);
    openai_string_write(to, request->model != NULL ? request->model : head->model);
}

static void put_usage(FILE *to, unsigned long long tokens)
{
    fprintf(to, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}", tokens, tokens);
}

void openai_rerank_write(FILE *to, const struct openai_request *request, const struct openai_choice *choices, size_t n,
                         const struct openai_head *head)
{
    if (request->bare_scores) {
        put_results(to, request, choices, n);
        return;
    }
    put_head(to, request, head);
    fputs(",\"results\":", to);
    put_results(to, request, choices, n);
    fprintf(to, ",\"meta\":{\"tokens\":{\"input_tokens\":%llu}}", tokens_of(choices, n)); /* Cohere's usage */
    put_usage(to, tokens_of(choices, n));
}

/* The label of the best score; null where the file names none. */
static void put_label(FILE *to, const struct openai_choice *choice)
{
    const char *label = NULL;
    size_t bytes = 0, best = 0;

    for (size_t i = 1; i < choice->n_embedding; i++)
        if (choice->embedding[i] > choice->embedding[best])
            best = i;
    if (runnel_model_label(choice->model, (uint32_t)best, &label, &bytes) == RUNNEL_OK)
        app_json_string(to, label, bytes);
    else
        fputs("null", to);
}

void openai_classes_write(FILE *to, const struct openai_request *request, const struct openai_choice *choices, size_t n,
                          const struct openai_head *head)
{
    put_head(to, request, head);
    fputs(",\"data\":[", to);
    for (size_t i = 0; i < n; i++) {
        fprintf(to, "%s{\"index\":%zu,\"label\":", i > 0 ? "," : "", i);
        put_label(to, &choices[i]);
        fputs(",\"probs\":[", to);
        for (size_t k = 0; k < choices[i].n_embedding; k++)
            fprintf(to, "%s%.9g", k > 0 ? "," : "", (double)choices[i].embedding[k]);
        fprintf(to, "],\"num_classes\":%zu}", choices[i].n_embedding);
    }
    fputc(']', to);
    put_usage(to, tokens_of(choices, n));
}
