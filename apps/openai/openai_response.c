/* Answers of /v1/responses: a list of items in the order in which they began. See openai_answer.h.
 *
 * What was thought, what was said and each call is an item: a stretch of the choice's texts, or a call. One is under
 * way at a time; what is of another kind begins the next. */
#include <stdlib.h>
#include <string.h>

#include "apps/runnel/common.h"
#include "openai_write.h"

/* ---- Items ------------------------------------------------------------------------------- */

static struct openai_buffer *text_of(struct openai_choice *choice, enum openai_item_kind kind)
{
    struct openai_buffer *text = kind == OPENAI_REASONING ? &choice->reasoning : &choice->content;

    fflush(text->to);
    return text;
}

/* What has come of its texts by now belongs to it. */
static void end_item(struct openai_choice *choice)
{
    struct openai_item *item = &choice->items[choice->n_items - 1];

    if (item->kind == OPENAI_CALL)
        return;
    item->end = text_of(choice, item->kind)->n;
    if (choice->entries.to != NULL) {
        fflush(choice->entries.to);
        item->last_entry = choice->entries.n;
    }
}

/* The log-probabilities of a message begin where those of the one before it end. */
static size_t first_entry(const struct openai_choice *choice)
{
    for (size_t i = choice->n_items; i > 0; i--)
        if (choice->items[i - 1].kind == OPENAI_MESSAGE)
            return choice->items[i - 1].last_entry;
    return 0;
}

static void begin_item(struct openai_choice *choice, enum openai_item_kind kind, size_t call)
{
    struct openai_item item = {.kind = kind, .call = call}, *grown = NULL;

    if (choice->n_items > 0)
        end_item(choice);
    if (kind != OPENAI_CALL)
        item.begin = item.end = text_of(choice, kind)->n;
    if (kind == OPENAI_MESSAGE)
        item.first_entry = item.last_entry = first_entry(choice);
    grown = realloc(choice->items, (choice->n_items + 1) * sizeof *grown);
    if (grown == NULL) {
        choice->failed = true;
        return;
    }
    choice->items = grown;
    grown[choice->n_items++] = item;
}

static void continue_item(struct openai_choice *choice, enum openai_item_kind kind)
{
    if (choice->n_items == 0 || choice->items[choice->n_items - 1].kind != kind)
        begin_item(choice, kind, 0);
}

/* Nothing was said and nothing called: an empty message says so. */
static bool is_bare(const struct openai_choice *choice)
{
    for (size_t i = 0; i < choice->n_items; i++)
        if (choice->items[i].kind != OPENAI_REASONING)
            return false;
    return true;
}

void openai_items_before(struct openai_choice *choice, const runnel_event *event)
{
    if (choice->failed)
        return;
    if (event->type == RUNNEL_EVENT_TOKEN && event->text_bytes > 0)
        continue_item(choice, OPENAI_MESSAGE);
    else if (event->type == RUNNEL_EVENT_REASONING && event->text_bytes > 0)
        continue_item(choice, OPENAI_REASONING);
    else if (event->type == RUNNEL_EVENT_TOOL_CALL && (event->tool_call == 0 || !choice->request->one_call))
        begin_item(choice, OPENAI_CALL, event->tool_call);
    else if (event->type == RUNNEL_EVENT_DONE && is_bare(choice))
        begin_item(choice, OPENAI_MESSAGE, 0);
    if (event->type == RUNNEL_EVENT_DONE && !choice->failed)
        end_item(choice);
}

/* ---- Writing ----------------------------------------------------------------------------- */

void openai_item_id_write(FILE *to, const struct openai_choice *choice, size_t i, const struct openai_head *head)
{
    static const char *const prefixes[] = {[OPENAI_REASONING] = "rs", [OPENAI_MESSAGE] = "msg", [OPENAI_CALL] = "fc"};
    const char *line = strchr(head->id, '_');

    fprintf(to, "\"%s_%s_%zu\"", prefixes[choice->items[i].kind], line != NULL ? line + 1 : head->id, i);
}

static void put_bytes(FILE *to, struct openai_choice *choice, const struct openai_item *item)
{
    const struct openai_buffer *text = text_of(choice, item->kind);

    app_json_string(to, text->n > 0 ? text->bytes + item->begin : "", item->end - item->begin);
}

/* The id by which a client names the call in its next request: the model's, where it is known when it is first told. */
static void put_call_id(FILE *to, struct openai_call *call, size_t i, const struct openai_head *head)
{
    const char *line = strchr(head->id, '_');

    fflush(call->id.to);
    if (!call->told)
        call->own_id = call->id.n == 0;
    call->told = true;
    if (call->own_id)
        fprintf(to, "\"call_%s_%zu\"", line != NULL ? line + 1 : head->id, i);
    else
        openai_pour_string(to, &call->id);
}

static void put_call(FILE *to, struct openai_choice *choice, const struct openai_item *item,
                     const struct openai_head *head, bool begun)
{
    struct openai_call *call = item->call < choice->n_calls ? choice->calls[item->call] : NULL;

    if (call == NULL)
        return;
    fputs("\"call_id\":", to);
    put_call_id(to, call, item->call, head);
    fputs(",\"name\":", to);
    openai_pour_string(to, &call->name);
    fputs(",\"arguments\":", to);
    if (begun)
        fputs("\"\"", to);
    else
        openai_pour_string(to, &call->arguments);
    fprintf(to, ",\"status\":\"%s\"", begun ? "in_progress" : call->complete ? "completed" : "incomplete");
}

void openai_item_logprobs_write(FILE *to, struct openai_choice *choice, const struct openai_item *item)
{
    size_t from = item->first_entry;

    fputc('[', to);
    if (item->last_entry > from) {
        from += choice->entries.bytes[from] == ',';
        fwrite(choice->entries.bytes + from, 1, item->last_entry - from, to);
    }
    fputc(']', to);
}

void openai_part_write(FILE *to, struct openai_choice *choice, size_t i, bool begun)
{
    struct openai_item item = choice->items[i];

    if (begun)
        item.end = item.begin, item.last_entry = item.first_entry;
    fprintf(to, "{\"type\":\"%s\",\"text\":", item.kind == OPENAI_REASONING ? "reasoning_text" : "output_text");
    put_bytes(to, choice, &item);
    if (item.kind == OPENAI_MESSAGE) {
        fputs(",\"annotations\":[],\"logprobs\":", to);
        openai_item_logprobs_write(to, choice, &item);
    }
    fputc('}', to);
}

void openai_item_write(FILE *to, struct openai_choice *choice, size_t i, const struct openai_head *head, bool begun)
{
    static const char *const types[] = {
        [OPENAI_REASONING] = "reasoning", [OPENAI_MESSAGE] = "message", [OPENAI_CALL] = "function_call"};
    const struct openai_item *item = &choice->items[i];
    bool cut = choice->finish == RUNNEL_FINISH_LENGTH && i + 1 == choice->n_items;

    fprintf(to, "{\"type\":\"%s\",\"id\":", types[item->kind]);
    openai_item_id_write(to, choice, i, head);
    fputc(',', to);
    if (item->kind == OPENAI_CALL)
        put_call(to, choice, item, head, begun);
    else if (item->kind == OPENAI_MESSAGE)
        fprintf(to, "\"status\":\"%s\",\"role\":\"assistant\",\"content\":[",
                begun ? "in_progress"
                : cut ? "incomplete"
                      : "completed");
    else
        fputs("\"summary\":[],\"content\":[", to);
    if (item->kind != OPENAI_CALL && !begun)
        openai_part_write(to, choice, i, false);
    fputs(item->kind == OPENAI_CALL ? "}" : "]}", to);
}

/* Nothing before the answer has ended. */
static void put_output(FILE *to, struct openai_choice *choice, const struct openai_head *head)
{
    fputs(",\"output\":[", to);
    for (size_t i = 0; choice->end != 0 && i < choice->n_items; i++) {
        fputs(i > 0 ? "," : "", to);
        openai_item_write(to, choice, i, head, false);
    }
    fputc(']', to);
}

/* ---- The whole --------------------------------------------------------------------------- */

/* A request's number as it was written: six digits tell it from its neighbours among floats. */
static void put_setting(FILE *to, const char *name, float value)
{
    fprintf(to, ",\"%s\":%.6g", name, value < 1e-6f ? 0.0 : (double)value);
}

static void put_usage(FILE *to, const struct openai_request *request, struct openai_choice *choice,
                      const struct openai_head *head)
{
    unsigned long long in = choice->usage.prompt_tokens, out = choice->usage.completion_tokens;

    fprintf(
        to,
        ",\"usage\":{\"input_tokens\":%llu,\"input_tokens_details\":{\"cached_tokens\":%llu,\"cache_write_tokens\":0},"
        "\"output_tokens\":%llu,"
        "\"output_tokens_details\":{\"reasoning_tokens\":%llu},\"total_tokens\":%llu",
        in, head->details ? (unsigned long long)choice->usage.cached_tokens : 0ull, out,
        (unsigned long long)openai_reasoning_tokens(choice), in + out);
    openai_shifts_write(to, request, choice, 1);
    fputc('}', to);
}

/* A member as the request has it, or what it is where it has none. */
static void put_given(FILE *to, const char *name, const char *given, const char *usual)
{
    const char *text = given != NULL ? given : usual;

    fprintf(to, "\"%s\":", name);
    app_json_line(to, text, strlen(text));
}

/* What the request asked for, as it was asked. */
static void put_settings(FILE *to, const struct openai_request *request)
{
    fprintf(to, ",\"parallel_tool_calls\":%s,\"previous_response_id\":null,", request->one_call ? "false" : "true");
    put_given(to, "metadata", request->given.metadata, "{}");
    put_setting(to, "temperature", request->sampling.temperature);
    put_setting(to, "top_p", request->sampling.top_p);
    fputs(",\"text\":{", to);
    put_given(to, "format", request->given.format, "{\"type\":\"text\"}");
    fputs("},", to);
    put_given(to, "tool_choice", request->given.tool_choice, "\"auto\"");
    fputc(',', to);
    put_given(to, "tools", request->given.tools, "[]");
    fputc(',', to);
    put_given(to, "reasoning", request->given.reasoning, "{\"effort\":null,\"summary\":null}");
    fprintf(to, ",\"top_logprobs\":%lld,\"store\":false,\"truncation\":\"disabled\"", (long long)request->top_logprobs);
}

void openai_response_write(FILE *to, const struct openai_request *request, struct openai_choice *choice,
                           const struct openai_head *head)
{
    bool cut = choice->finish == RUNNEL_FINISH_LENGTH;

    fputs("{\"id\":", to);
    openai_string_write(to, head->id);
    fprintf(to,
            ",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"background\":false,\"error\":null,"
            "\"incomplete_details\":%s,",
            (long long)head->created,
            choice->end == 0 ? "in_progress"
            : cut            ? "incomplete"
                             : "completed",
            cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    put_given(to, "instructions", request->given.instructions, "null");
    fputs(",\"max_output_tokens\":", to);
    if (request->max_tokens >= 0)
        fprintf(to, "%lld", (long long)request->max_tokens);
    else
        fputs("null", to);
    fputs(",\"model\":", to);
    openai_string_write(to, request->model != NULL ? request->model : head->model);
    put_output(to, choice, head);
    put_settings(to, request);
    if (choice->end != 0)
        put_usage(to, request, choice, head);
    else
        fputs(",\"usage\":null", to);
    fputc('}', to);
}
