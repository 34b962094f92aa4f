/* A load of streaming requests and what it measures: see serve.c. One thread, on a libuv loop. */
#ifndef RUNNEL_BENCH_SERVE_LOAD_H
#define RUNNEL_BENCH_SERVE_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* Times in ms, in no order. */
struct sample {
    double *values;
    size_t n, room;
};

struct load {
    /* What is asked. */
    const char *host, *path, *model; /* model: of the library's own run */
    int port;
    uint32_t clients, requests; /* requests of each client, one after the other */
    uint32_t prompt_words, max_tokens, threads;
    uint32_t salt;             /* prompts of different ones are others */
    uint32_t never_read, idle; /* further clients that ask and never read; further connections that ask nothing */
    uint32_t probe_ms;         /* between two requests for /health; 0: none */
    uint32_t pid;              /* whose processor time is told; 0: nobody's */
    bool same;                 /* all requests have one prompt, and all answers must have one text */

    /* What came. */
    uv_loop_t loop;
    struct sample first, gaps, whole, probes;
    uint64_t tokens, answers, failed, events;
    uint64_t refused;   /* and asked again: the server was full */
    uint64_t text_hash; /* of the first answer's text */
    char *text;         /* that text as the server wrote it in JSON, if all are the same; NULL: of the library */
    uint32_t n_live;    /* clients with requests left */
    double began_ms, ended_ms, cpu_s, loop_s;
};

double load_now_ms(void);

/* Of the process `pid` so far; 0 where there is none. */
double load_cpu_s(uint32_t pid);

/* The same of its first thread. */
double load_loop_s(uint32_t pid);

void load_die(const char *what, const char *why);
void *load_need(void *memory);
void sample_add(struct sample *sample, double value);

/* The prompt of the n-th request of all: words drawn by its number, so that no two begin alike unless `same`.
 * NUL-terminated, to be freed. */
char *load_prompt(const struct load *load, uint64_t n);

/* Counts an answer; its text's hash must be the first one's where all are the same. */
void load_answered(struct load *load, uint64_t tokens, uint64_t text_hash, double began_ms);

enum { TEXT_HASH_BEGIN = 5381 };
uint64_t load_hash(uint64_t hash, const char *bytes, size_t n);

/* Everything against a server; everything in this process by the library. Both return when all answers have come. */
void load_run_clients(struct load *load);
void load_run_library(struct load *load);

#endif
