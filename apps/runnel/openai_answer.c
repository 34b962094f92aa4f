/* Answers in OpenAI's form: see openai_answer.h. */
#include "openai_answer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

enum { MAX_CALLS = 128, PIECE_BYTES = 1024 };

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

static void pour_string(FILE *to, struct openai_buffer *buffer)
{
    fflush(buffer->to);
    app_json_string(to, buffer->n > 0 ? buffer->bytes : "", buffer->n);
}

void openai_string_write(FILE *to, const char *text)
{
    if (text != NULL)
        app_json_string(to, text, strlen(text));
    else
        fputs("null", to);
}

/* ---- A choice ---------------------------------------------------------------------------- */

/* The prompt's text in front of the answer. */
static bool echo(struct openai_choice *choice, const struct openai_prompt *prompt)
{
    size_t n = 0;
    char *text = NULL;
    bool good = false;

    if (prompt->tokens == NULL) {
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
    bool good = true;

    *choice = (struct openai_choice){.model = model, .request = request};
    good = buffer_open(&choice->content) && buffer_open(&choice->reasoning);
    if (good && request->logprobs)
        good = buffer_open(&choice->entries) && buffer_open(&choice->tokens) && buffer_open(&choice->tops) &&
               buffer_open(&choice->offsets);
    if (good && request->echo)
        good = echo(choice, &request->prompts[index / (size_t)request->n]);
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
    free(choice->embedding);
    buffer_close(&choice->content);
    buffer_close(&choice->reasoning);
    buffer_close(&choice->entries);
    buffer_close(&choice->tokens);
    buffer_close(&choice->tops);
    buffer_close(&choice->offsets);
    *choice = (struct openai_choice){0};
}

/* ---- Log-probabilities ------------------------------------------------------------------- */

/* The text of one token where it stands within a text: the second of two, because a vocabulary may take the first
 * one's space away. Of more than PIECE_BYTES: nothing. */
static size_t piece_of(runnel_model *model, int32_t token, char piece[PIECE_BYTES])
{
    const int32_t twice[2] = {token, token};
    char both[2 * PIECE_BYTES];
    size_t first = 0, all = 0, n = 0;

    if (token < 0 || runnel_detokenize(model, twice, 1, 1, NULL, 0, &first) != RUNNEL_OK ||
        runnel_detokenize(model, twice, 2, 1, both, sizeof both, &all) != RUNNEL_OK || all > sizeof both)
        return 0;
    n = all - first < PIECE_BYTES ? all - first : PIECE_BYTES;
    memcpy(piece, both + first, n);
    return n;
}

/* OpenAI's stand-in for what has no logarithm. */
static void put_logprob(FILE *to, float logprob)
{
    app_json_number(to, isfinite(logprob) ? (double)logprob : -9999.0);
}

/* "token": .., "logprob": .., "bytes": [..] */
static void put_entry(FILE *to, const char *piece, size_t n, float logprob)
{
    fputs("\"token\":", to);
    app_json_string(to, piece, n);
    fputs(",\"logprob\":", to);
    put_logprob(to, logprob);
    fputs(",\"bytes\":[", to);
    for (size_t i = 0; i < n; i++)
        fprintf(to, "%s%u", i > 0 ? "," : "", (unsigned char)piece[i]);
    fputc(']', to);
}

static void chat_logprobs(struct openai_choice *choice, const runnel_event *event, const char *piece, size_t n)
{
    FILE *to = choice->entries.to;
    char other[PIECE_BYTES];

    fprintf(to, "%s{", choice->n_entries > 0 ? "," : "");
    put_entry(to, piece, n, event->logprob);
    fputs(",\"top_logprobs\":[", to);
    for (uint32_t i = 0; i < event->n_top; i++) {
        fprintf(to, "%s{", i > 0 ? "," : "");
        put_entry(to, other, piece_of(choice->model, event->top[i].token, other), event->top[i].logprob);
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
static void put_token_string(FILE *to, const char *piece, size_t n)
{
    if (is_utf8(piece, n)) {
        app_json_string(to, piece, n);
        return;
    }
    fputs("\"bytes:", to);
    for (size_t i = 0; i < n; i++)
        fprintf(to, "\\\\x%02x", (unsigned char)piece[i]);
    fputc('"', to);
}

static void completion_logprobs(struct openai_choice *choice, const runnel_event *event, const char *piece, size_t n)
{
    const char *comma = choice->n_entries > 0 ? "," : "";
    char other[PIECE_BYTES];
    size_t m = 0;

    fputs(comma, choice->entries.to);
    put_logprob(choice->entries.to, event->logprob);
    fputs(comma, choice->tokens.to);
    put_token_string(choice->tokens.to, piece, n);
    fprintf(choice->offsets.to, "%s%llu", comma, (unsigned long long)choice->characters);
    fprintf(choice->tops.to, "%s{", comma);
    for (uint32_t i = 0; i < event->n_top; i++) {
        fputs(i > 0 ? "," : "", choice->tops.to);
        m = piece_of(choice->model, event->top[i].token, other);
        put_token_string(choice->tops.to, other, m);
        fputc(':', choice->tops.to);
        put_logprob(choice->tops.to, event->top[i].logprob);
    }
    fputc('}', choice->tops.to);
    for (size_t i = 0; i < n; i++)
        choice->characters += ((unsigned char)piece[i] & 0xC0) != 0x80;
}

static void add_logprobs(struct openai_choice *choice, const runnel_event *event)
{
    char piece[PIECE_BYTES];
    size_t n = piece_of(choice->model, event->token, piece);

    if (choice->request->endpoint == OPENAI_CHAT)
        chat_logprobs(choice, event, piece, n);
    else
        completion_logprobs(choice, event, piece, n);
    choice->n_entries++;
    if (ferror(choice->entries.to) || ferror(choice->tokens.to) || ferror(choice->tops.to) ||
        ferror(choice->offsets.to))
        choice->failed = true;
}

/* ---- Events ------------------------------------------------------------------------------ */

static void begin_call(struct openai_choice *choice, const runnel_event *event)
{
    struct openai_call **grown = NULL, *call = NULL;

    if (choice->n_calls == MAX_CALLS)
        return;
    call = calloc(1, sizeof *call);
    grown = realloc(choice->calls, (choice->n_calls + 1) * sizeof(*grown));
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

static void end_choice(struct openai_choice *choice, const runnel_event *event)
{
    choice->end = event->type;
    choice->finish = event->finish;
    choice->usage = event->usage;
    choice->status = event->status;
    if (event->type == RUNNEL_EVENT_FAILED)
        snprintf(choice->error, sizeof choice->error, "%s", event->error);
}

void openai_choice_event(struct openai_choice *choice, const runnel_event *event)
{
    struct openai_call *call = event->tool_call < choice->n_calls ? choice->calls[event->tool_call] : NULL;

    if (event->type >= RUNNEL_EVENT_DONE) {
        end_choice(choice, event);
        return;
    }
    if (choice->failed)
        return;
    switch (event->type) {
    case RUNNEL_EVENT_TOKEN:
        put(choice, &choice->content, event->text, event->text_bytes);
        if (choice->request->logprobs && event->token >= 0)
            add_logprobs(choice, event);
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
            pour_string(to, &call->id);
        else
            fprintf(to, "\"call_%s_%zu_%zu\"", strrchr(answer, '-') != NULL ? strrchr(answer, '-') + 1 : answer, index,
                    i);
        fputs(",\"type\":\"function\",\"function\":{\"name\":", to);
        pour_string(to, &call->name);
        fputs(",\"arguments\":", to);
        pour_string(to, &call->arguments);
        fputs("}}", to);
    }
    fputc(']', to);
}

static const char *finish_name(const struct openai_choice *choice)
{
    if (choice->finish == RUNNEL_FINISH_LENGTH)
        return "length";
    return shown_calls(choice) > 0 ? "tool_calls" : "stop";
}

static void put_message(FILE *to, struct openai_choice *choice, size_t index, const struct openai_head *head)
{
    fflush(choice->content.to);
    fflush(choice->reasoning.to);
    fputs("\"message\":{\"role\":\"assistant\",\"content\":", to);
    if (choice->content.n == 0 && shown_calls(choice) > 0)
        fputs("null", to);
    else
        pour_string(to, &choice->content);
    if (choice->reasoning.n > 0) {
        fputs(",\"reasoning_content\":", to);
        pour_string(to, &choice->reasoning);
    }
    if (shown_calls(choice) > 0)
        put_calls(to, choice, index, head->id);
    fputs(",\"refusal\":null},\"logprobs\":", to);
    if (choice->request->logprobs) {
        fputs("{\"content\":[", to);
        pour(to, &choice->entries);
        fputs("],\"refusal\":null}", to);
    } else {
        fputs("null", to);
    }
}

static void put_text(FILE *to, struct openai_choice *choice)
{
    fputs("\"text\":", to);
    pour_string(to, &choice->content);
    fputs(",\"logprobs\":", to);
    if (!choice->request->logprobs) {
        fputs("null", to);
        return;
    }
    fputs("{\"tokens\":[", to);
    pour(to, &choice->tokens);
    fputs("],\"token_logprobs\":[", to);
    pour(to, &choice->entries);
    fputs("],\"top_logprobs\":", to);
    if (choice->request->top_logprobs > 0) {
        fputc('[', to);
        pour(to, &choice->tops);
        fputc(']', to);
    } else {
        fputs("null", to);
    }
    fputs(",\"text_offset\":[", to);
    pour(to, &choice->offsets);
    fputs("]}", to);
}

/* Not OpenAI's: of a request that lets its answers go on when the context is full, how often it was. */
static void put_shifts(FILE *to, const struct openai_request *request, const struct openai_choice *choices, size_t n)
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

/* A prompt counts once, however many answers it gets. */
static void put_usage(FILE *to, const struct openai_request *request, const struct openai_choice *choices, size_t n)
{
    unsigned long long prompt = 0, completion = 0;

    for (size_t i = 0; i < n; i++) {
        prompt += i % (size_t)request->n == 0 ? choices[i].usage.prompt_tokens : 0;
        completion += choices[i].usage.completion_tokens;
    }
    fprintf(to, "\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu", prompt,
            completion, prompt + completion);
    put_shifts(to, request, choices, n);
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

/* ---- Responses --------------------------------------------------------------------------- */

/* Tokens of the text that was thought aloud, counted alone: a model may have spelled it in others. */
static uint64_t reasoning_tokens(struct openai_choice *choice)
{
    size_t n = 0;

    fflush(choice->reasoning.to);
    if (choice->reasoning.n == 0 ||
        runnel_tokenize(choice->model, choice->reasoning.bytes, choice->reasoning.n, 0, NULL, 0, &n) != RUNNEL_OK)
        return 0;
    return n < choice->usage.completion_tokens ? n : choice->usage.completion_tokens;
}

/* What was thought and what was said, each an item; ids are the answer's with another beginning. */
static void put_output(FILE *to, struct openai_choice *choice, const char *number)
{
    const char *status = choice->finish == RUNNEL_FINISH_LENGTH ? "incomplete" : "completed";

    fputs(",\"output\":[", to);
    fflush(choice->reasoning.to);
    if (choice->reasoning.n > 0) {
        fprintf(to,
                "{\"type\":\"reasoning\",\"id\":\"rs_%s\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\","
                "\"text\":",
                number);
        pour_string(to, &choice->reasoning);
        fputs("}]},", to);
    }
    fprintf(to,
            "{\"type\":\"message\",\"id\":\"msg_%s\",\"status\":\"%s\",\"role\":\"assistant\",\"content\":["
            "{\"type\":\"output_text\",\"text\":",
            number, status);
    pour_string(to, &choice->content);
    fputs(",\"annotations\":[],\"logprobs\":[]}]}]", to);
}

/* A request's number as it was written: six digits tell it from its neighbours among floats. */
static void put_setting(FILE *to, const char *name, float value)
{
    fprintf(to, ",\"%s\":%.6g", name, value < 1e-6f ? 0.0 : (double)value);
}

static void put_response_usage(FILE *to, const struct openai_request *request, struct openai_choice *choice)
{
    unsigned long long in = choice->usage.prompt_tokens, out = choice->usage.completion_tokens;

    fprintf(to,
            ",\"usage\":{\"input_tokens\":%llu,\"input_tokens_details\":{\"cached_tokens\":0,\"cache_write_tokens\":0},"
            "\"output_tokens\":%llu,"
            "\"output_tokens_details\":{\"reasoning_tokens\":%llu},\"total_tokens\":%llu",
            in, out, (unsigned long long)reasoning_tokens(choice), in + out);
    put_shifts(to, request, choice, 1);
    fputc('}', to);
}

static void write_response(FILE *to, const struct openai_request *request, struct openai_choice *choice,
                           const struct openai_head *head)
{
    const char *number = strchr(head->id, '_') != NULL ? strchr(head->id, '_') + 1 : head->id;
    bool cut = choice->finish == RUNNEL_FINISH_LENGTH;

    fputs("{\"id\":", to);
    openai_string_write(to, head->id);
    fprintf(to,
            ",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"background\":false,\"error\":null,"
            "\"incomplete_details\":%s,\"instructions\":%s,\"max_output_tokens\":",
            (long long)head->created, cut ? "incomplete" : "completed",
            cut ? "{\"reason\":\"max_output_tokens\"}" : "null",
            request->instructions != NULL ? request->instructions : "null");
    if (request->max_tokens >= 0)
        fprintf(to, "%lld", (long long)request->max_tokens);
    else
        fputs("null", to);
    fputs(",\"model\":", to);
    openai_string_write(to, request->model != NULL ? request->model : head->model);
    put_output(to, choice, number);
    fprintf(to, ",\"parallel_tool_calls\":true,\"previous_response_id\":null,\"metadata\":%s",
            request->metadata != NULL ? request->metadata : "{}");
    put_setting(to, "temperature", request->sampling.temperature);
    put_setting(to, "top_p", request->sampling.top_p);
    fputs(
        ",\"text\":{\"format\":{\"type\":\"text\"}},\"tool_choice\":\"auto\",\"tools\":[],\"truncation\":\"disabled\"",
        to);
    put_response_usage(to, request, choice);
    fputc('}', to);
}

void openai_answer_write(FILE *to, const struct openai_request *request, struct openai_choice *choices, size_t n,
                         const struct openai_head *head)
{
    bool chat = request->endpoint == OPENAI_CHAT;

    if (request->endpoint == OPENAI_EMBEDDINGS) {
        write_embeddings(to, request, choices, n, head);
        return;
    }
    if (request->endpoint == OPENAI_RESPONSES) {
        write_response(to, request, &choices[0], head);
        return;
    }
    fputs("{\"id\":", to);
    openai_string_write(to, head->id);
    fprintf(to, ",\"object\":\"%s\",\"created\":%lld,\"model\":", chat ? "chat.completion" : "text_completion",
            (long long)head->created);
    openai_string_write(to, request->model != NULL ? request->model : head->model);
    fputs(",\"choices\":[", to);
    for (size_t i = 0; i < n; i++) {
        fprintf(to, "%s{\"index\":%zu,", i > 0 ? "," : "", i);
        if (chat)
            put_message(to, &choices[i], i, head);
        else
            put_text(to, &choices[i]);
        fprintf(to, ",\"finish_reason\":\"%s\"}", finish_name(&choices[i]));
    }
    fputs("],", to);
    put_usage(to, request, choices, n);
    fputc('}', to);
}

void openai_error_write(FILE *to, const struct openai_error *error)
{
    fputs("{\"error\":{\"message\":", to);
    openai_string_write(to, error->message);
    fputs(",\"type\":", to);
    openai_string_write(to, error->type);
    fputs(",\"param\":", to);
    openai_string_write(to, error->param[0] != '\0' ? error->param : NULL);
    fputs(",\"code\":", to);
    openai_string_write(to, error->code);
    fputs("}}", to);
}
