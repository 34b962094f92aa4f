/* What streaming clients get from a server, and what a host gets from the library for the same requests.
 *
 *   bench_serve --port N [--host ADDRESS] [--path /v1/completions] [LOAD]       a server that is running
 *   bench_serve --library MODEL.gguf [--threads N] [LOAD]                       the library in this process,
 *                                                                             behind a request that does not count
 *
 *   --clients N       so many at once (16); each asks again when its answer has ended
 *   --requests N      of each client (4)
 *   --prompt N        words of each prompt, other ones in each request (64)
 *   --max-tokens N    of each answer, whatever the model says (64)
 *   --salt N          other prompts than those of another N (0)
 *   --same            one prompt for all, and every answer must be the same text, or the status is 1
 *   --never-read N    so many further clients ask and never read
 *   --idle N          so many further connections ask nothing
 *   --probe MS        asks /health every so many ms and tells how long it takes
 *   --pid N           the server's process: tells the processor time it took for each token, and its first thread's,
 *                     which is the loop's of runnel serve and of --library
 *   --json            one object, for bench/serve_compare
 *
 * The server is any that speaks OpenAI's streamed completions: ours, llama.cpp's, vLLM's. Tells tokens and requests per
 * second, the time to the first token, between two events, and for a whole answer (median, p90, p99, worst).
 * Statuses: 1 when an answer failed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "serve_load.h"

/* ---- What both kinds of runs share ---- */

double load_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

double load_cpu_s(uint32_t pid)
{
    unsigned long user = 0, system = 0;
    char path[64], text[1024] = "", *at;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    if (pid == 0 || (file = fopen(path, "r")) == NULL)
        return 0;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    at = strrchr(text, ')'); /* behind the name: the state, ten numbers, and the two */
    if (at == NULL || sscanf(at + 1, " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu", &user, &system) != 2)
        return 0;
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

double load_loop_s(uint32_t pid)
{
    unsigned long long ns = 0;
    char path[64];
    FILE *file;

    snprintf(path, sizeof path, "/proc/%u/task/%u/schedstat", pid, pid);
    if (pid == 0 || (file = fopen(path, "r")) == NULL)
        return 0;
    if (fscanf(file, "%llu", &ns) != 1)
        ns = 0;
    fclose(file);
    return (double)ns * 1e-9;
}

void load_die(const char *what, const char *why)
{
    fprintf(stderr, "bench_serve: %s: %s\n", what, why);
    exit(1);
}

void *load_need(void *memory)
{
    if (memory == NULL)
        load_die("memory", "there is not enough");
    return memory;
}

void sample_add(struct sample *sample, double value)
{
    if (sample->n == sample->room) {
        sample->room = sample->room == 0 ? 1024 : 2 * sample->room;
        sample->values = load_need(realloc(sample->values, sample->room * sizeof *sample->values));
    }
    sample->values[sample->n++] = value;
}

char *load_prompt(const struct load *load, uint64_t n)
{
    static const char *const words[] = {"river", "stone", "lantern", "old",   "and",   "walked", "under", "silver",
                                        "the",   "bird",  "to",      "house", "sings", "of",     "blue",  "morning"};
    uint64_t state = (load->same ? 1 : n + 1 + (uint64_t)load->salt * 1000003) * 0x9e3779b97f4a7c15u;
    char *prompt = load_need(malloc((size_t)load->prompt_words * 9 + 1));
    size_t at = 0;

    for (uint32_t i = 0; i < load->prompt_words; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        at += (size_t)sprintf(prompt + at, " %s", words[state >> 60]);
    }
    prompt[at] = '\0';
    return prompt;
}

uint64_t load_hash(uint64_t hash, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = hash * 33 + (unsigned char)bytes[i];
    return hash;
}

void load_answered(struct load *load, uint64_t tokens, uint64_t text_hash, double began_ms)
{
    sample_add(&load->whole, load_now_ms() - began_ms);
    load->tokens += tokens;
    load->answers++;
    if (load->text_hash == 0)
        load->text_hash = text_hash;
    if (load->same && text_hash != load->text_hash) {
        fprintf(stderr, "bench_serve: an answer has another text\n");
        load->failed++;
    }
}

/* ---- Telling ---- */

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static double part(const struct sample *sample, double p)
{
    return sample->n == 0 ? 0 : sample->values[(size_t)((double)(sample->n - 1) * p)];
}

static void tell_sample(const char *name, struct sample *sample, bool json)
{
    if (sample->n > 0)
        qsort(sample->values, sample->n, sizeof *sample->values, by_value);
    printf(json ? ", \"%s\": [%.3f, %.3f, %.3f, %.3f]" : "%-14s %10.2f %10.2f %10.2f %10.2f\n", name, part(sample, 0.5),
           part(sample, 0.9), part(sample, 0.99), part(sample, 1));
    free(sample->values);
}

static void tell(struct load *load, bool json)
{
    double s = (load->ended_ms - load->began_ms) / 1e3;
    double per_token = load->tokens == 0 ? 0 : 1e6 / (double)load->tokens;
    double cpu_us = load->cpu_s * per_token, loop_us = load->loop_s * per_token;

    if (json)
        printf("{\"seconds\": %.3f, \"answers\": %lu, \"failed\": %lu, \"refused\": %lu, \"tokens\": %lu, \"events\": "
               "%lu, "
               "\"tokens_per_s\": %.2f, \"requests_per_s\": %.3f, \"text_hash\": %lu, \"cpu_us\": %.2f, \"loop_us\": "
               "%.2f, \"text\": \"%s\"",
               s, load->answers, load->failed, load->refused, load->tokens, load->events, (double)load->tokens / s,
               (double)load->answers / s, load->text_hash, cpu_us, loop_us, load->text == NULL ? "" : load->text);
    else
        printf("%lu answers, %lu failed, %lu refused and asked again, %lu tokens in %lu events, %.2f s: %.1f tokens/s, "
               "%.2f requests/s, "
               "%.1f us of processor time a token, %.2f of the first thread\n"
               "%-14s %10s %10s %10s %10s\n",
               load->answers, load->failed, load->refused, load->tokens, load->events, s, (double)load->tokens / s,
               (double)load->answers / s, cpu_us, loop_us, "ms", "median", "p90", "p99", "worst");
    tell_sample(json ? "first_ms" : "first token", &load->first, json);
    tell_sample(json ? "gap_ms" : "between events", &load->gaps, json);
    tell_sample(json ? "whole_ms" : "whole answer", &load->whole, json);
    tell_sample(json ? "probe_ms" : "/health", &load->probes, json);
    printf(json ? "}\n" : "");
    free(load->text);
}

/* ---- Arguments ---- */

static uint32_t number(const char *name, const char *text)
{
    char *end;
    unsigned long value = text == NULL ? 0 : strtoul(text, &end, 10);

    if (text == NULL || *text == '\0' || *end != '\0' || value > 1000000)
        load_die(name, "needs a number up to 1000000");
    return (uint32_t)value;
}

int main(int argc, char **argv)
{
    struct load load = {.host = "127.0.0.1",
                        .path = "/v1/completions",
                        .clients = 16,
                        .requests = 4,
                        .prompt_words = 64,
                        .max_tokens = 64};
    struct rlimit files;
    uint32_t port = 0, flag_same = 0, flag_json = 0;
    const struct {
        const char *name;
        uint32_t *number, *flag;
        const char **text;
    } options[] = {{"--port", &port, NULL, NULL},
                   {"--host", NULL, NULL, &load.host},
                   {"--path", NULL, NULL, &load.path},
                   {"--library", NULL, NULL, &load.model},
                   {"--threads", &load.threads, NULL, NULL},
                   {"--clients", &load.clients, NULL, NULL},
                   {"--requests", &load.requests, NULL, NULL},
                   {"--prompt", &load.prompt_words, NULL, NULL},
                   {"--max-tokens", &load.max_tokens, NULL, NULL},
                   {"--never-read", &load.never_read, NULL, NULL},
                   {"--idle", &load.idle, NULL, NULL},
                   {"--salt", &load.salt, NULL, NULL},
                   {"--pid", &load.pid, NULL, NULL},
                   {"--probe", &load.probe_ms, NULL, NULL},
                   {"--same", NULL, &flag_same, NULL},
                   {"--json", NULL, &flag_json, NULL}};

    for (int i = 1; i < argc; i++) {
        size_t o = 0, n = sizeof options / sizeof options[0];

        while (o < n && strcmp(argv[i], options[o].name) != 0)
            o++;
        if (o == n)
            load_die(argv[i], "no such option (the head of bench/serve.c lists them)");
        if (options[o].flag != NULL)
            *options[o].flag = 1;
        else if (options[o].number != NULL)
            *options[o].number = number(argv[i], argv[i + 1]), i++;
        else if (i + 1 < argc)
            *options[o].text = argv[++i];
        else
            load_die(argv[i], "needs a value");
    }
    load.port = (int)port;
    load.same = flag_same != 0;
    if ((load.port == 0) == (load.model == NULL) || load.clients == 0 || load.requests == 0 || load.max_tokens == 0)
        load_die("arguments", "one of --port and --library; at least one client, request and token");
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    uv_loop_init(&load.loop);
    load.n_live = load.clients;
    if (load.model != NULL)
        load.pid = (uint32_t)getpid();
    if (load.model != NULL)
        load_run_library(&load);
    else
        load_run_clients(&load);
    uv_loop_close(&load.loop);
    tell(&load, flag_json != 0);
    return load.failed > 0;
}
