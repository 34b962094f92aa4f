/* Metrics under the names of other servers, for dashboards and gateways that know those: see serve.h. */
#include <string.h>

#include "serve.h"

/* Those that mean the same in vLLM, behind "runnel_" here and "vllm:" there (docs/METRICS.md). */
static const char *const vllm[] = {"request_success_total",
                                   "generation_tokens_total",
                                   "prompt_tokens_total",
                                   "prefix_cache_queries_total",
                                   "prefix_cache_hits_total",
                                   "num_preemptions_total",
                                   "spec_decode_num_draft_tokens_total",
                                   "spec_decode_num_accepted_tokens_total",
                                   "spec_decode_num_drafts_total",
                                   "spec_decode_num_accepted_tokens_per_pos_total",
                                   "num_requests_running",
                                   "num_requests_waiting",
                                   "kv_cache_usage_perc",
                                   "time_to_first_token_seconds",
                                   "inter_token_latency_seconds",
                                   "request_time_per_output_token_seconds",
                                   "request_queue_time_seconds",
                                   "request_prefill_time_seconds",
                                   "request_decode_time_seconds",
                                   "request_inference_time_seconds",
                                   "e2e_request_latency_seconds",
                                   "request_prompt_tokens",
                                   "request_prefill_kv_computed_tokens",
                                   "request_generation_tokens",
                                   "iteration_tokens_total"};

static bool is_vllm(const char *name, size_t n)
{
    static const char *const parts[] = {"", "_bucket", "_sum", "_count"};
    char known[96];

    for (size_t i = 0; i < sizeof vllm / sizeof vllm[0]; i++)
        for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++)
            if ((size_t)snprintf(known, sizeof known, "%s%s", vllm[i], parts[k]) == n && memcmp(known, name, n) == 0)
                return true;
    return false;
}

static void put_vllm_line(FILE *to, const char *line, size_t n)
{
    size_t head = n > 7 && line[0] == '#' ? 7 : 0; /* "# HELP ", "# TYPE " */
    const char *name = line + head + 7;

    if (n > head + 7 && memcmp(line + head, "runnel_", 7) == 0 && is_vllm(name, strcspn(name, " {\n")))
        fprintf(to, "%.*svllm:%.*s\n", (int)head, line, (int)(n - head - 7), name);
}

static void put_llamacpp(FILE *to, const char *name, const char *type, double value)
{
    fprintf(to, "# TYPE llamacpp:%s %s\nllamacpp:%s ", name, type, name);
    app_number(to, value);
    fputc('\n', to);
}

void serve_put_compat(struct serve *serve, FILE *to, const char *text, size_t n)
{
    const char *names = serve->options->metrics_compat, *end = text + n;
    runnel_metrics metrics = {.struct_size = sizeof metrics};

    if (names == NULL)
        return;
    if (strcmp(names, "vllm") == 0) {
        for (const char *next = NULL; text < end; text = next + 1) {
            next = memchr(text, '\n', (size_t)(end - text));
            if (next == NULL)
                return;
            put_vllm_line(to, text, (size_t)(next - text));
        }
    } else if (runnel_engine_metrics(serve->app.engine, &metrics) == RUNNEL_OK) {
        put_llamacpp(to, "prompt_tokens_total", "counter", (double)metrics.prompt_tokens);
        put_llamacpp(to, "prompt_seconds_total", "counter", metrics.prefill_s.sum);
        put_llamacpp(to, "tokens_predicted_total", "counter", (double)metrics.tokens);
        put_llamacpp(to, "tokens_predicted_seconds_total", "counter", metrics.decode_s.sum);
        put_llamacpp(to, "n_decode_total", "counter", (double)metrics.steps);
        put_llamacpp(to, "requests_processing", "gauge", (double)metrics.running);
        put_llamacpp(to, "requests_deferred", "gauge", (double)metrics.waiting);
    }
}
