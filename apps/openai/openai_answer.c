/* Answers in OpenAI's form: see openai_answer.h. */
#include "openai_write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "apps/runnel/common.h"

enum { PIECE_BYTES = 1024 };

/* ---- Buffers ----------------------------------------------------------------------------- */

static bool buffer_open(struct openai_buffer *buffer)
{
    buffer->to = open_memstream(&buffer->bytes, &buffer->n);
    return buffer->to != NULL;
}

static void buffer_close(struct openai_buffer *buffer)
{
    if (buffer->to != NULL)
        fclose(buffer->to);
    free(buffer->bytes);
    *buffer = (struct openai_buffer){0};
}

static void put(struct openai_choice *choice, struct openai_buffer *buffer, const char *text, size_t n)
{
    if (n > 0 && fwrite(text, 1, n, buffer->to) != n)
        choice->failed = true;
}

/* What the buffer holds, as it is. */
static void pour(FILE *to, struct openai_buffer *buffer)
{
    fflush(buffer->to);
    if (buffer->n > 0)
        fwrite(buffer->bytes, 1, buffer->n, to);
}

void openai_pour_string(FILE *to, struct openai_buffer *buffer)
{
    fflush(buffer->to);
    app_json_string(to, buffer->n > 0 ? buffer->bytes : "", buffer->n);
}

void openai_sentence_write(FILE *to, const char *sentence)
{
    char whole[sizeof((struct openai_error *)NULL)->message];

    snprintf(whole, sizeof whole, "%s", sentence);
    app_whole(whole);
    app_json_string(to, whole, strlen(whole));
}

void openai_string_write(FILE *to, const char *text)
{
    if (text != NULL)
        app_json_string(to, text, strlen(text));
    else
        fputs("null", to);
}

const char *openai_choice_stop(const struct openai_choice *choice)
{
    bool ended = choice->finish == RUNNEL_FINISH_STOP && choice->stop >= 0;

    return ended && (size_t)choice->stop < choice->request->n_stops ? choice->request->stops[choice->stop] : NULL;
}

void openai_stop_write(FILE *to, const struct openai_choice *choice)
{
    const char *stop = openai_choice_stop(choice);

    if (stop == NULL && choice->finish == RUNNEL_FINISH_STOP && choice->stop_token >= 0)
        fprintf(to, "%d", (int)choice->stop_token);
    else
        openai_string_write(to, stop);
}

/* ---- A choice ---------------------------------------------------------------------------- */

/* The prompt's text in front of the answer. */
static bool echo(struct openai_choice *choice, const struct openai_prompt *prompt)
{
    size_t n = 0;
    char *text = NULL;
    bool good = false;

    if (prompt->text != NULL) {
        put(choice, &choice->content, prompt->text, prompt->text_bytes);
        return !choice->failed;
    }
    if (runnel_detokenize(choice->model, prompt->tokens, prompt->n_tokens, 1, NULL, 0, &n) != RUNNEL_OK)
        return true; /* ids that do not exist: the submit will say so */
    text = malloc(n + 1);
    good =
        text != NULL && runnel_detokenize(choice->model, prompt->tokens, prompt->n_tokens, 1, text, n, &n) == RUNNEL_OK;
    if (good)
        put(choice, &choice->content, text, n);
    free(text);
    return good && !choice->failed;
}

bool openai_choice_open(struct openai_choice *choice, const struct openai_request *request, size_t index,
                        runnel_model *model)
{
    const struct openai_prompt *prompt =
        request->prompts != NULL ? &request->prompts[index / openai_request_tries(request)] : NULL;
    bool good = true;

    *choice = (struct openai_choice){.model = model, .request = request, .stop = -1, .stop_token = -1};
    good = buffer_open(&choice->content) && buffer_open(&choice->reasoning);
    if (good && request->keeps_ids)
        good = buffer_open(&choice->ids);
    if (good && request->logprobs)
        good = buffer_open(&choice->entries) && buffer_open(&choice->tokens) && buffer_open(&choice->tops) &&
               buffer_open(&choice->offsets);
    if (good && request->echo)
        good = echo(choice, prompt) && (!request->logprobs || openai_prompt_open(choice, prompt));
    return good;
}

void openai_choice_close(struct openai_choice *choice)
{
    for (size_t i = 0; i < choice->n_calls; i++) {
        buffer_close(&choice->calls[i]->name);
        buffer_close(&choice->calls[i]->id);
        buffer_close(&choice->calls[i]->arguments);
        free(choice->calls[i]);
    }
    free(choice->calls);
    free(choice->items);
    free(choice->embedding);
    free(choice->prompt);
    buffer_close(&choice->content);
    buffer_close(&choice->reasoning);
    buffer_close(&choice->ids);
    buffer_close(&choice->entries);
    buffer_close(&choice->tokens);
    buffer_close(&choice->tops);
    buffer_close(&choice->offsets);
    *choice = (struct openai_choice){0};
}

/* ---- Log-probabilities ------------------------------------------------------------------- */

/* The text of a token, at most its first PIECE_BYTES. */
static size_t piece_of(runnel_model *model, int32_t token, char piece[PIECE_BYTES])
{
    size_t n = 0;

    if (runnel_token_text(model, token, 1, piece, PIECE_BYTES, &n) != RUNNEL_OK)
        return 0;
    return n < PIECE_BYTES ? n : PIECE_BYTES;
}

/* OpenAI's stand-in for what has no logarithm. */
static void put_logprob(FILE *to, float logprob)
{
    app_json_number(to, isfinite(logprob) ? (double)logprob : -9999.0);
}

/* vLLM's form of a token, for those that are no text by themselves. */
static void put_id(FILE *to, int32_t token)
{
    fprintf(to, "\"token_id:%d\"", (int)token);
}

static void put_bytes(FILE *to, const char *piece, size_t n)
{
    fputc('[', to);
    for (size_t i = 0; i < n; i++)
        fprintf(to, "%s%u", i > 0 ? "," : "", (unsigned char)piece[i]);
    fputc(']', to);
}

/* "token": .., "logprob": .., "bytes": [..] */
static void put_entry(FILE *to, const struct openai_choice *choice, int32_t token, float logprob)
{
    char piece[PIECE_BYTES];
    size_t n = piece_of(choice->model, token, piece);

    fputs("\"token\":", to);
    if (choice->request->tokens_as_ids)
        put_id(to, token);
    else
        app_json_string(to, piece, n);
    fputs(",\"logprob\":", to);
    put_logprob(to, logprob);
    fputs(",\"bytes\":", to);
    put_bytes(to, piece, n);
}

static void chat_logprobs(struct openai_choice *choice, const runnel_event *event)
{
    FILE *to = choice->entries.to;

    fprintf(to, "%s{", choice->n_entries > 0 ? "," : "");
    put_entry(to, choice, event->token, event->logprob);
    fputs(",\"top_logprobs\":[", to);
    for (uint32_t i = 0; i < event->n_top; i++) {
        fprintf(to, "%s{", i > 0 ? "," : "");
        put_entry(to, choice, event->top[i].token, event->top[i].logprob);
        fputc('}', to);
    }
    fputs("]}", to);
}

/* llama.cpp's: with its id, and where they are of what the samplers have left, the probability itself. */
static void put_llama_entry(FILE *to, struct openai_choice *choice, int32_t token, float logprob)
{
    char piece[PIECE_BYTES];
    size_t n = piece_of(choice->model, token, piece);

    fprintf(to, "\"id\":%d,\"token\":", (int)token);
    app_json_string(to, piece, n);
    fputs(",\"bytes\":", to);
    put_bytes(to, piece, n);
    if (choice->request->samplers.logprobs_after != 0) {
        fputs(",\"prob\":", to);
        app_json_number(to, exp((double)logprob));
    } else {
        fputs(",\"logprob\":", to);
        put_logprob(to, logprob);
    }
}

static void llama_logprobs(struct openai_choice *choice, const runnel_event *event)
{
    FILE *to = choice->entries.to;

    fprintf(to, "%s{", choice->n_entries > 0 ? "," : "");
    put_llama_entry(to, choice, event->token, event->logprob);
    fprintf(to, ",\"%s\":[", choice->request->samplers.logprobs_after != 0 ? "top_probs" : "top_logprobs");
    for (uint32_t i = 0; i < event->n_top; i++) {
        fprintf(to, "%s{", i > 0 ? "," : "");
        put_llama_entry(to, choice, event->top[i].token, event->top[i].logprob);
        fputc('}', to);
    }
    fputs("]}", to);
}

static bool is_utf8(const char *text, size_t n)
{
    json_t *string = json_stringn(text, n); /* NULL for what is not UTF-8 */

    json_decref(string);
    return string != NULL;
}

/* Pieces of characters are written "bytes:\xE2\x80", so that keys of top_logprobs stay apart. */
static void put_token_string(FILE *to, const struct openai_choice *choice, int32_t token, const char *piece, size_t n)
{
    if (choice->request->tokens_as_ids) {
        put_id(to, token);
        return;
    }
    if (is_utf8(piece, n)) {
        app_json_string(to, piece, n);
        return;
    }
    fputs("\"bytes:", to);
    for (size_t i = 0; i < n; i++)
        fprintf(to, "\\\\x%02x", (unsigned char)piece[i]);
    fputc('"', to);
}

static void completion_logprobs(struct openai_choice *choice, const runnel_event *event)
{
    const char *comma = choice->n_entries > 0 ? "," : "";
    char piece[PIECE_BYTES], other[PIECE_BYTES];
    size_t n = piece_of(choice->model, event->token, piece), m = 0;
    bool told = isnan(event->logprob); /* the token itself, which stands behind the best if it is none of them */

    fputs(comma, choice->entries.to);
    if (isnan(event->logprob))
        fputs("null", choice->entries.to);
    else
        put_logprob(choice->entries.to, event->logprob);
    fputs(comma, choice->tokens.to);
    put_token_string(choice->tokens.to, choice, event->token, piece, n);
    fprintf(choice->offsets.to, "%s%llu", comma, (unsigned long long)choice->characters);
    fprintf(choice->tops.to, isnan(event->logprob) ? "%snull" : "%s{", comma);
    for (uint32_t i = 0; i < event->n_top; i++) {
        fputs(i > 0 ? "," : "", choice->tops.to);
        m = piece_of(choice->model, event->top[i].token, other);
        put_token_string(choice->tops.to, choice, event->top[i].token, other, m);
        fputc(':', choice->tops.to);
        put_logprob(choice->tops.to, event->top[i].logprob);
        told = told || event->top[i].token == event->token;
    }
    if (!told) {
        fputs(event->n_top > 0 ? "," : "", choice->tops.to);
        put_token_string(choice->tops.to, choice, event->token, piece, n);
        fputc(':', choice->tops.to);
        put_logprob(choice->tops.to, event->logprob);
    }
    if (!isnan(event->logprob))
        fputc('}', choice->tops.to);
    for (size_t i = 0; i < n; i++)
        choice->characters += ((unsigned char)piece[i] & 0xC0) != 0x80;
}

void openai_logprobs_add(struct openai_choice *choice, const runnel_event *event)
{
    if (choice->request->llama_entries)
        llama_logprobs(choice, event);
    else if (choice->request->endpoint != OPENAI_COMPLETIONS)
        chat_logprobs(choice, event);
    else
        completion_logprobs(choice, event);
    choice->n_entries++;
    if (ferror(choice->entries.to) || ferror(choice->tokens.to) || ferror(choice->tops.to) ||
        ferror(choice->offsets.to))
        choice->failed = true;
}

/* ---- Events ------------------------------------------------------------------------------ */

static void begin_call(struct openai_choice *choice, const runnel_event *event)
{
    struct openai_call *call = calloc(1, sizeof *call);
    struct openai_call **grown = realloc(choice->calls, (choice->n_calls + 1) * sizeof(*grown));

    choice->calls = grown != NULL ? grown : choice->calls;
    if (call == NULL || grown == NULL) {
        free(call);
        choice->failed = true;
        return;
    }
    choice->calls[choice->n_calls++] = call;
    if (!buffer_open(&call->name) || !buffer_open(&call->id) || !buffer_open(&call->arguments)) {
        choice->failed = true;
        return;
    }
    put(choice, &call->name, event->text, event->text_bytes);
}

static void take_embedding(struct openai_choice *choice, const runnel_event *event)
{
    size_t bytes = event->n_embedding * sizeof *choice->embedding;

    choice->embedding = malloc(bytes);
    choice->failed = choice->embedding == NULL;
    if (choice->failed)
        return;
    memcpy(choice->embedding, event->embedding, bytes);
    choice->n_embedding = event->n_embedding;
}

static void add_id(struct openai_choice *choice, int32_t token)
{
    if (token >= 0 && fprintf(choice->ids.to, "%s%d", choice->n_ids++ > 0 ? "," : "", (int)token) < 0)
        choice->failed = true;
}

static void end_choice(struct openai_choice *choice, const runnel_event *event)
{
    const struct openai_request *request = choice->request;

    if (request->keeps_ids)
        add_id(choice, event->token);
    if (event->token >= 0 && request->logprobs && request->endpoint == OPENAI_COMPLETIONS && !request->ends_untold)
        openai_logprobs_add(choice, event);
    choice->end = event->type;
    choice->finish = event->finish;
    choice->stop = event->stop;
    choice->stop_token = event->stop_token;
    choice->usage = event->usage;
    choice->timings = event->timings;
    choice->status = event->status;
    choice->about = event->about;
    if (event->type == RUNNEL_EVENT_FAILED)
        snprintf(choice->error, sizeof choice->error, "%s", event->error);
}

void openai_choice_event(struct openai_choice *choice, const runnel_event *event)
{
    struct openai_call *call = event->tool_call < choice->n_calls ? choice->calls[event->tool_call] : NULL;

    if (choice->request->endpoint == OPENAI_RESPONSES)
        openai_items_before(choice, event);
    if (event->type >= RUNNEL_EVENT_DONE) {
        end_choice(choice, event);
        return;
    }
    if (choice->failed)
        return;
    switch (event->type) {
    case RUNNEL_EVENT_TOKEN:
        put(choice, &choice->content, event->text, event->text_bytes);
        if (event->token < 0)
            break;
        choice->logprob += (double)event->logprob;
        choice->n_tokens++;
        if (choice->request->keeps_ids)
            add_id(choice, event->token);
        if (choice->request->logprobs)
            openai_logprobs_add(choice, event);
        break;
    case RUNNEL_EVENT_LOGITS:
        openai_prompt_event(choice, event);
        break;
    case RUNNEL_EVENT_EMBEDDING:
        take_embedding(choice, event);
        break;
    case RUNNEL_EVENT_REASONING:
        put(choice, &choice->reasoning, event->text, event->text_bytes);
        break;
    case RUNNEL_EVENT_TOOL_CALL:
        begin_call(choice, event);
        break;
    case RUNNEL_EVENT_TOOL_ID:
        if (call != NULL)
            put(choice, &call->id, event->text, event->text_bytes);
        break;
    case RUNNEL_EVENT_TOOL_ARGUMENTS:
        if (call != NULL)
            put(choice, &call->arguments, event->text, event->text_bytes);
        break;
    case RUNNEL_EVENT_TOOL_END:
        if (call != NULL)
            call->complete = true;
        break;
    default:
        break;
    }
}

/* ---- The body ---------------------------------------------------------------------------- */

/* A call that was cut off is shown only where the answer's length is why: finish_reason says so. */
static bool is_shown(const struct openai_choice *choice, size_t i)
{
    if (choice->request->one_call && i > 0)
        return false;
    return choice->calls[i]->complete || choice->finish == RUNNEL_FINISH_LENGTH;
}

static size_t shown_calls(const struct openai_choice *choice)
{
    size_t n = 0;

    for (size_t i = 0; i < choice->n_calls; i++)
        n += is_shown(choice, i);
    return n;
}

static void put_calls(FILE *to, struct openai_choice *choice, size_t index, const char *answer)
{
    size_t shown = 0;

    fputs(",\"tool_calls\":[", to);
    for (size_t i = 0; i < choice->n_calls; i++) {
        struct openai_call *call = choice->calls[i];

        if (!is_shown(choice, i))
            continue;
        fflush(call->id.to);
        fprintf(to, "%s{\"id\":", shown++ > 0 ? "," : "");
        if (call->id.n > 0)
            openai_pour_string(to, &call->id);
        else
            fprintf(to, "\"call_%s_%zu_%zu\"", strrchr(answer, '-') != NULL ? strrchr(answer, '-') + 1 : answer, index,
                    i);
        fputs(",\"type\":\"function\",\"function\":{\"name\":", to);
        openai_pour_string(to, &call->name);
        fputs(",\"arguments\":", to);
        openai_pour_string(to, &call->arguments);
        fputs("}}", to);
    }
    fputc(']', to);
}

static const char *finish_name(const struct openai_choice *choice)
{
    if (choice->finish == RUNNEL_FINISH_LENGTH)
        return "length";
    return shown_calls(choice) == 0 ? "stop" : choice->request->functions ? "function_call" : "tool_calls";
}

/* The older form of the one call. */
static void put_function_call(FILE *to, struct openai_call *call)
{
    fputs(",\"function_call\":{\"name\":", to);
    openai_pour_string(to, &call->name);
    fputs(",\"arguments\":", to);
    openai_pour_string(to, &call->arguments);
    fputc('}', to);
}

static void put_completion_logprobs(FILE *to, struct openai_choice *choice)
{
    fputs("{\"tokens\":[", to);
    pour(to, &choice->tokens);
    fputs("],\"token_logprobs\":[", to);
    pour(to, &choice->entries);
    fputs("],\"top_logprobs\":[", to);
    pour(to, &choice->tops);
    fputs("],\"text_offset\":[", to);
    pour(to, &choice->offsets);
    fputs("]}", to);
}

static void put_logprobs(FILE *to, struct openai_choice *choice)
{
    if (!choice->request->logprobs) {
        fputs("null", to);
    } else if (choice->request->llama_entries) {
        fputc('[', to);
        pour(to, &choice->entries);
        fputc(']', to);
    } else if (choice->request->endpoint == OPENAI_CHAT) {
        fputs("{\"content\":[", to);
        pour(to, &choice->entries);
        fputs("],\"refusal\":null}", to);
    } else {
        put_completion_logprobs(to, choice);
    }
}

void openai_logprobs_take(FILE *to, struct openai_choice *choice)
{
    struct openai_buffer *buffers[] = {&choice->entries, &choice->tokens, &choice->tops, &choice->offsets};

    put_logprobs(to, choice);
    choice->n_entries = 0;
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        rewind(buffers[i]->to);
        fflush(buffers[i]->to);
    }
}

void openai_ids_take(FILE *to, struct openai_choice *choice)
{
    fputc('[', to);
    pour(to, &choice->ids);
    fputc(']', to);
    rewind(choice->ids.to);
    fflush(choice->ids.to);
    choice->n_ids = 0;
}

void openai_prompt_ids_write(FILE *to, const struct openai_request *request, size_t index)
{
    const struct openai_prompt *prompt = &request->prompts[index / openai_request_tries(request)];
    const int32_t *ids = prompt->tokens != NULL ? prompt->tokens : prompt->told;
    size_t n = prompt->tokens != NULL ? prompt->n_tokens : prompt->n_told;

    fputc('[', to);
    for (size_t i = 0; i < n; i++)
        fprintf(to, "%s%d", i > 0 ? "," : "", (int)ids[i]);
    fputc(']', to);
}

static void put_message(FILE *to, struct openai_choice *choice, size_t index, const struct openai_head *head)
{
    fflush(choice->content.to);
    fflush(choice->reasoning.to);
    fputs("\"message\":{\"role\":\"assistant\",\"content\":", to);
    if (choice->content.n == 0 && shown_calls(choice) > 0)
        fputs("null", to);
    else
        openai_pour_string(to, &choice->content);
    if (choice->reasoning.n > 0 && !choice->request->hides_reasoning) {
        fputs(",\"reasoning_content\":", to);
        openai_pour_string(to, &choice->reasoning);
    }
    if (shown_calls(choice) > 0 && choice->request->functions)
        put_function_call(to, choice->calls[0]);
    else if (shown_calls(choice) > 0)
        put_calls(to, choice, index, head->id);
    fputs(",\"refusal\":null},\"logprobs\":", to);
    put_logprobs(to, choice);
}

static void put_text(FILE *to, struct openai_choice *choice)
{
    fputs("\"text\":", to);
    openai_pour_string(to, &choice->content);
    fputs(",\"logprobs\":", to);
    put_logprobs(to, choice);
}

void openai_shifts_write(FILE *to, const struct openai_request *request, const struct openai_choice *choices, size_t n)
{
    unsigned long long shifts = 0, tokens = 0;

    if (request->context_keep < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        shifts += choices[i].usage.shifts;
        tokens += choices[i].usage.shifted_tokens;
    }
    fprintf(to, ",\"shifts\":%llu,\"shifted_tokens\":%llu", shifts, tokens);
}

uint64_t openai_reasoning_tokens(const struct openai_choice *choice)
{
    size_t n = 0;

    fflush(choice->reasoning.to);
    if (choice->reasoning.n == 0 ||
        runnel_tokenize(choice->model, choice->reasoning.bytes, choice->reasoning.n, 0, NULL, 0, &n) != RUNNEL_OK)
        return 0;
    return n < choice->usage.completion_tokens ? n : choice->usage.completion_tokens;
}

/* A prompt counts once, however many answers it gets. */
void openai_usage_write(FILE *to, const struct openai_request *request, const struct openai_choice *choices, size_t n,
                        const struct openai_head *head)
{
    unsigned long long prompt = 0, completion = 0, cached = 0, drafted = 0, accepted = 0, reasoning = 0;

    for (size_t i = 0; i < n; i++) {
        bool first = i % openai_request_tries(request) == 0;

        prompt += first ? choices[i].usage.prompt_tokens : 0;
        cached += first ? choices[i].usage.cached_tokens : 0;
        completion += choices[i].usage.completion_tokens;
        drafted += choices[i].usage.drafted_tokens;
        accepted += choices[i].usage.accepted_tokens;
        reasoning += head->details ? openai_reasoning_tokens(&choices[i]) : 0;
    }
    fprintf(to, "\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu", prompt,
            completion, prompt + completion);
    if (head->details)
        fprintf(to,
                ",\"prompt_tokens_details\":{\"cached_tokens\":%llu},\"completion_tokens_details\":{"
                "\"reasoning_tokens\":%llu,\"accepted_prediction_tokens\":%llu,"
                "\"rejected_prediction_tokens\":%llu}",
                cached, reasoning, accepted, drafted - accepted);
    openai_shifts_write(to, request, choices, n);
    fputc('}', to);
}

/* The bytes of the floats, little endian, three to four characters (RFC 4648). */
static void put_base64(FILE *to, const struct openai_choice *choice)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = 4 * choice->n_embedding;
    uint32_t bits = 0, three = 0;

    fputc('"', to);
    for (size_t i = 0; i < (n + 2) / 3 * 3; i++) {
        if (i % 4 == 0 && i < n)
            memcpy(&bits, &choice->embedding[i / 4], sizeof bits);
        three = three << 8 | (i < n ? bits >> (8 * (i % 4)) & 0xff : 0);
        for (int k = 3; i % 3 == 2 && k >= 0; k--) /* what lies behind the end is padding */
            fputc(i - i % 3 + (size_t)(3 - k) > n ? '=' : digits[three >> (6 * k) & 63], to);
    }
    fputc('"', to);
}

static void put_numbers(FILE *to, const struct openai_choice *choice)
{
    fputc('[', to);
    for (size_t i = 0; i < choice->n_embedding; i++) /* nine digits are the float itself */
        fprintf(to, "%s%.9g", i > 0 ? "," : "", (double)choice->embedding[i]);
    fputc(']', to);
}

static void write_embeddings(FILE *to, const struct openai_request *request, const struct openai_choice *choices,
                             size_t n, const struct openai_head *head)
{
    unsigned long long tokens = 0;

    fputs("{\"object\":\"list\",\"data\":[", to);
    for (size_t i = 0; i < n; i++) {
        fprintf(to, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i > 0 ? "," : "", i);
        if (request->base64)
            put_base64(to, &choices[i]);
        else
            put_numbers(to, &choices[i]);
        fputc('}', to);
        tokens += choices[i].usage.prompt_tokens;
    }
    fputs("],\"model\":", to);
    openai_string_write(to, request->model != NULL ? request->model : head->model);
    fprintf(to, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}", tokens, tokens);
}

/* ---- Whole answers ----------------------------------------------------------------------- */

/* Its tokens' mean log-probability; an empty answer is the worst. */
static double mean_of(const struct openai_choice *choice)
{
    return choice->n_tokens > 0 ? choice->logprob / (double)choice->n_tokens : -INFINITY;
}

/* The best of those that are not shown yet; of equal ones the first. */
static struct openai_choice *take_best(struct openai_choice *choices, size_t n)
{
    struct openai_choice *best = NULL;

    for (size_t i = 0; i < n; i++)
        if (!choices[i].shown && (best == NULL || mean_of(&choices[i]) > mean_of(best)))
            best = &choices[i];
    best->shown = true;
    return best;
}

/* A chat has one prompt, whose ids stand beside the choices. */
static void put_ids(FILE *to, const struct openai_request *request, struct openai_choice *choice, size_t index)
{
    if (request->endpoint != OPENAI_CHAT) {
        fputs(",\"prompt_token_ids\":", to);
        openai_prompt_ids_write(to, request, index);
    }
    fputs(",\"token_ids\":", to);
    openai_ids_take(to, choice);
}

/* n for each prompt: all in their order, or the best ones first. */
static void put_choices(FILE *to, const struct openai_request *request, struct openai_choice *choices, size_t n,
                        const struct openai_head *head)
{
    size_t tries = openai_request_tries(request), shown = (size_t)request->n;

    for (size_t i = 0; i < n / tries * shown; i++) {
        struct openai_choice *all = &choices[i / shown * tries];
        struct openai_choice *choice = request->best_of > 1 ? take_best(all, tries) : &all[i % shown];

        fprintf(to, "%s{\"index\":%zu,", i > 0 ? "," : "", i);
        if (request->endpoint == OPENAI_CHAT)
            put_message(to, choice, i, head);
        else
            put_text(to, choice);
        fprintf(to, ",\"finish_reason\":\"%s\",\"stop_reason\":", finish_name(choice));
        openai_stop_write(to, choice);
        if (request->tells_ids)
            put_ids(to, request, choice, (size_t)(choice - choices));
        fputc('}', to);
    }
}

void openai_answer_write(FILE *to, const struct openai_request *request, struct openai_choice *choices, size_t n,
                         const struct openai_head *head)
{
    bool chat = request->endpoint == OPENAI_CHAT;

    if (request->endpoint == OPENAI_EMBEDDINGS) {
        write_embeddings(to, request, choices, n, head);
        return;
    }
    if (request->endpoint == OPENAI_RERANK) {
        openai_rerank_write(to, request, choices, n, head);
        return;
    }
    if (request->endpoint == OPENAI_CLASSIFY) {
        openai_classes_write(to, request, choices, n, head);
        return;
    }
    if (request->endpoint == OPENAI_RESPONSES) {
        openai_response_write(to, request, &choices[0], head);
        return;
    }
    fputs("{\"id\":", to);
    openai_string_write(to, head->id);
    fprintf(to, ",\"object\":\"%s\",\"created\":%lld,\"model\":", chat ? "chat.completion" : "text_completion",
            (long long)head->created);
    openai_string_write(to, request->model != NULL ? request->model : head->model);
    fputs(",\"choices\":[", to);
    put_choices(to, request, choices, n, head);
    fputs("],", to);
    if (chat && request->tells_ids) {
        fputs("\"prompt_token_ids\":", to);
        openai_prompt_ids_write(to, request, 0);
        fputc(',', to);
    }
    openai_usage_write(to, request, choices, n, head);
    fputc('}', to);
}
