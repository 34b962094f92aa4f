/* Events as JSON, a line each. */
#include <string.h>

#include "common.h"

static const char *finish_name(runnel_finish finish)
{
    return finish == RUNNEL_FINISH_STOP ? "stop" : finish == RUNNEL_FINISH_LENGTH ? "length" : "none";
}

/* Of the event's token. */
static void put_logprobs(const runnel_event *event)
{
    fputs(",\"logprob\":", stdout);
    app_json_number(stdout, (double)event->logprob);
    fputs(",\"top\":[", stdout);
    for (uint32_t i = 0; i < event->n_top; i++) {
        printf("%s{\"id\":%d,\"logprob\":", i > 0 ? "," : "", (int)event->top[i].token);
        app_json_number(stdout, (double)event->top[i].logprob);
        fputc('}', stdout);
    }
    fputc(']', stdout);
}

static void token(const runnel_event *event, bool logprobs)
{
    printf("\"type\":\"token\",\"id\":%d,\"text\":", (int)event->token);
    app_json_string(stdout, event->text, event->text_bytes);
    if (logprobs && event->token >= 0)
        put_logprobs(event);
    if (event->usage.shifts > 0)
        printf(",\"shifts\":%llu", (unsigned long long)event->usage.shifts);
    fputs("}\n", stdout);
}

static void part(const runnel_event *event, const char *type)
{
    printf("\"type\":\"%s\"", type);
    if (event->type != RUNNEL_EVENT_REASONING)
        printf(",\"call\":%u", event->tool_call);
    if (event->type != RUNNEL_EVENT_TOOL_END) {
        fputs(",\"text\":", stdout);
        app_json_string(stdout, event->text, event->text_bytes);
    }
    fputs("}\n", stdout);
}

static void done(const runnel_event *event, bool logprobs)
{
    printf("\"type\":\"done\",\"finish\":\"%s\"", finish_name(event->finish));
    if (event->stop >= 0)
        printf(",\"stop\":%d", (int)event->stop);
    if (event->stop_token >= 0)
        printf(",\"stop_token\":%d", (int)event->stop_token);
    if (event->token < 0)
        return;
    printf(",\"id\":%d", (int)event->token);
    if (logprobs)
        put_logprobs(event);
}

static void end(const runnel_event *event, bool logprobs)
{
    const runnel_usage *u = &event->usage;
    const runnel_timings *t = &event->timings;

    if (event->type == RUNNEL_EVENT_DONE) {
        done(event, logprobs);
    } else if (event->type == RUNNEL_EVENT_CANCELLED) {
        fputs("\"type\":\"cancelled\"", stdout);
    } else {
        printf("\"type\":\"failed\",\"status\":\"%s\",\"error\":", runnel_status_name(event->status));
        app_json_string(stdout, event->error, strlen(event->error));
    }
    printf(",\"usage\":{\"prompt_tokens\":%llu,\"cached_tokens\":%llu,\"completion_tokens\":%llu",
           (unsigned long long)u->prompt_tokens, (unsigned long long)u->cached_tokens,
           (unsigned long long)u->completion_tokens);
    if (u->drafted_tokens > 0)
        printf(",\"drafted_tokens\":%llu,\"accepted_tokens\":%llu", (unsigned long long)u->drafted_tokens,
               (unsigned long long)u->accepted_tokens);
    if (u->rested_passes > 0)
        printf(",\"rested_passes\":%llu,\"rest\":\"%s\"", (unsigned long long)u->rested_passes,
               runnel_rest_name(u->rest));
    if (u->warm_tokens + u->cold_tokens > 0)
        printf(",\"warm_tokens\":%llu,\"cold_tokens\":%llu", (unsigned long long)u->warm_tokens,
               (unsigned long long)u->cold_tokens);
    if (u->shared_tokens > 0)
        printf(",\"shared_tokens\":%llu", (unsigned long long)u->shared_tokens);
    if (u->shifts > 0)
        printf(",\"shifts\":%llu,\"shifted_tokens\":%llu", (unsigned long long)u->shifts,
               (unsigned long long)u->shifted_tokens);
    putchar('}');
    printf(",\"timings\":{\"admitted_us\":%llu,\"first_token_us\":%llu,\"end_us\":%llu}}\n",
           (unsigned long long)t->admitted_us, (unsigned long long)t->first_token_us, (unsigned long long)t->end_us);
}

void app_json_event(const runnel_event *event, bool logprobs)
{
    app_json_event_of(event, logprobs, -1);
}

void app_json_event_of(const runnel_event *event, bool logprobs, int64_t answer)
{
    if (event->type == RUNNEL_EVENT_LOGITS || event->type == RUNNEL_EVENT_EMBEDDING)
        return;
    putchar('{');
    if (answer >= 0)
        printf("\"answer\":%lld,", (long long)answer);
    switch (event->type) {
    case RUNNEL_EVENT_TOKEN:
        token(event, logprobs);
        break;
    case RUNNEL_EVENT_PROGRESS:
        printf("\"type\":\"progress\",\"done\":%llu,\"total\":%llu}\n", (unsigned long long)event->prompt_done,
               (unsigned long long)event->prompt_total);
        break;
    case RUNNEL_EVENT_LOGITS:
    case RUNNEL_EVENT_EMBEDDING:
        break;
    case RUNNEL_EVENT_REASONING:
        part(event, "reasoning");
        break;
    case RUNNEL_EVENT_TOOL_CALL:
        part(event, "tool_call");
        break;
    case RUNNEL_EVENT_TOOL_ID:
        part(event, "tool_id");
        break;
    case RUNNEL_EVENT_TOOL_ARGUMENTS:
        part(event, "tool_arguments");
        break;
    case RUNNEL_EVENT_TOOL_END:
        part(event, "tool_end");
        break;
    case RUNNEL_EVENT_DONE:
    case RUNNEL_EVENT_CANCELLED:
    case RUNNEL_EVENT_FAILED:
        end(event, logprobs);
        break;
    }
}
