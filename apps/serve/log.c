/* What the server tells on standard error: a line for each request, and what happens besides. With --log-json each line
 * is an object. log_lines.h brings them there. */
#include <stdarg.h>
#include <string.h>

#include "serve.h"

static FILE *open_line(struct serve *serve)
{
    rewind(serve->line.to);
    return serve->line.to;
}

static void close_line(struct serve *serve)
{
    fputc('\n', serve->line.to);
    fflush(serve->line.to);
    serve_log_put(serve, serve->line.bytes, serve->line.n);
}

static void put_member(FILE *to, const char *name, const char *text)
{
    fprintf(to, ",\"%s\":", name);
    app_json_string(to, text, strlen(text));
}

/* ---- What happens besides ---------------------------------------------------------------- */

static void tell(struct serve *serve, const char *level, const char *format, va_list arguments)
{
    char text[RUNNEL_ERROR_BYTES + 256];
    FILE *to = open_line(serve);

    vsnprintf(text, sizeof text, format, arguments);
    app_whole(text);
    if (serve->options->log_json) {
        fputs("{\"time\":\"", to);
        app_put_time(to);
        fprintf(to, "\",\"level\":\"%s\"", level);
        put_member(to, "message", text);
        fputc('}', to);
    } else {
        fputs(strcmp(level, "info") == 0 ? "" : "runnel: ", to);
        app_escaped(to, text, strlen(text), 0);
    }
    close_line(serve);
}

void serve_tell(struct serve *serve, const char *format, ...)
{
    va_list arguments;

    if (serve->options->quiet)
        return;
    va_start(arguments, format);
    tell(serve, "info", format, arguments);
    va_end(arguments);
}

void serve_complain(struct serve *serve, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    tell(serve, "error", format, arguments);
    va_end(arguments);
}

/* ---- Requests ---------------------------------------------------------------------------- */

static double ms(uint64_t us)
{
    return (double)us * 1e-3;
}

static void put_json(FILE *to, const struct serve_visit *visit)
{
    fputs("{\"time\":\"", to);
    app_put_time(to);
    fprintf(to, "\",\"level\":\"%s\",\"message\":\"request\"", visit->status >= 500 ? "error" : "info");
    put_member(to, "id", visit->id);
    put_member(to, "peer", visit->peer);
    put_member(to, "key", visit->key != NULL ? visit->key->name : "");
    put_member(to, "method", visit->method);
    put_member(to, "route", visit->route != NULL ? visit->route : visit->path);
    fprintf(to, ",\"status\":%d,\"bytes\":%llu,\"total_ms\":%.3f,\"cancelled\":%s", visit->status,
            (unsigned long long)visit->sent_bytes, ms(visit->total_us), visit->cancelled ? "true" : "false");
    if (visit->cut)
        fputs(",\"cut_off\":true", to);
    if (visit->model[0] != '\0')
        put_member(to, "model", visit->model);
    if (visit->prompt_tokens + visit->completion_tokens > 0)
        fprintf(to, ",\"prompt_tokens\":%llu,\"cached_tokens\":%llu,\"completion_tokens\":%llu",
                (unsigned long long)visit->prompt_tokens, (unsigned long long)visit->cached_tokens,
                (unsigned long long)visit->completion_tokens);
    if (visit->first_us > 0)
        fprintf(to, ",\"queue_ms\":%.3f,\"first_token_ms\":%.3f", ms(visit->queue_us), ms(visit->first_us));
    if (visit->body != NULL)
        put_member(to, "body", visit->body);
    fputc('}', to);
}

static void put_plain(FILE *to, const struct serve_visit *visit)
{
    app_put_time(to);
    fprintf(to, " %s ", visit->method);
    app_escaped(to, visit->path[0] != '\0' ? visit->path : "-", strlen(visit->path) + (visit->path[0] == '\0'), 0);
    fprintf(to, " %d", visit->status);
    if (visit->key != NULL && visit->key->name[0] != '\0')
        fprintf(to, ", key %s", visit->key->name);
    if (visit->prompt_tokens + visit->completion_tokens > 0)
        fprintf(to, ", tokens %llu + %llu", (unsigned long long)visit->prompt_tokens,
                (unsigned long long)visit->completion_tokens);
    fprintf(to, ", %llu bytes, %.1f ms", (unsigned long long)visit->sent_bytes, ms(visit->total_us));
    if (visit->first_us > 0)
        fprintf(to, " (queue %.1f, first token %.1f)", ms(visit->queue_us), ms(visit->first_us));
    fprintf(to, "%s, %s", visit->cut ? ", cut off" : visit->cancelled ? ", its client left" : "", visit->id);
    if (visit->body != NULL) {
        fputs(", ", to);
        app_escaped(to, visit->body, strlen(visit->body), 0);
    }
}

/* Probes of the process itself are told only where they fail; that it is not ready yet is no failure. */
void serve_log_visit(const struct serve_visit *visit)
{
    struct serve *serve = visit->serve;

    if (serve->options->quiet || (visit->is_public && (visit->status < 500 || visit->status == 503)))
        return;
    (serve->options->log_json ? put_json : put_plain)(open_line(serve), visit);
    close_line(serve);
}
