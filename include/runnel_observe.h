/* runnel: what an engine does, in numbers: counts, metrics, live streams, and what its machine can do at most.
 * Included by runnel.h, whose rules hold here too. */
#ifndef RUNNEL_OBSERVE_H
#define RUNNEL_OBSERVE_H

#include "runnel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Counts ------------------------------------------------------------------------------ */

/* Counters run as long as the engine lives and include models that have been freed: each is the sum of what
 * runnel_metrics has of every model. */
typedef struct runnel_engine_stats {
    size_t struct_size; /* set by the caller to sizeof(runnel_engine_stats) */
    uint64_t streams;   /* not yet ended, or ended with events not yet delivered */
    uint64_t sessions;  /* not yet freed */
    uint64_t models;
    uint64_t messages;    /* in mailboxes or being handled */
    uint64_t blocks_used; /* KV blocks that requests or sessions hold, all models; blocks that only the cache holds
                             count as free */
    uint64_t blocks_total;
    uint64_t heap_bytes;           /* from the allocator, now */
    uint64_t steps;                /* forward passes done */
    uint64_t prompt_tokens;        /* positions prefilled */
    uint64_t tokens;               /* tokens generated */
    uint64_t prefix_hit_tokens;    /* tokens of admitted prompts whose KV was in the prefix cache or the session */
    uint64_t prefix_missed_tokens; /* the other tokens of admitted prompts */
    double prefix_ceiling;   /* share of the prompts' whole blocks that an infinite cache would have had (estimated),
                                in [0, 1] */
    uint64_t evicted_blocks; /* taken from the prefix cache for other use */
    uint64_t preemptions;    /* times that a running request gave its blocks to others and waited again */
    uint64_t queued_tokens;  /* of prompts that wait for their turn */
    uint64_t queued_bytes;   /* of requests that have not ended */
} runnel_engine_stats;

/* Returns OK or INVALID. */
RUNNEL_API runnel_status runnel_engine_get_stats(runnel_engine *engine, runnel_engine_stats *stats);

/* ---- Live streams ------------------------------------------------------------------------ */

/* name, value */
#define RUNNEL_PHASE_MAP(X)                                    \
    X(QUEUED, 0)  /* it waits for its turn */                  \
    X(PREFILL, 1) /* its prompt is computed */                 \
    X(DECODE, 2)  /* its answer is generated */                \
    X(FILE, 3)    /* a session goes to or comes from a file */ \
    X(ENDED, 4)   /* its terminal event waits to be delivered */

#define RUNNEL_PHASE_ENUM(name, value) RUNNEL_PHASE_##name = value,
typedef enum runnel_phase { RUNNEL_PHASE_MAP(RUNNEL_PHASE_ENUM) } runnel_phase;
#undef RUNNEL_PHASE_ENUM

RUNNEL_API const char *runnel_phase_name(runnel_phase phase); /* "PREFILL"; "UNKNOWN" */

typedef struct runnel_stream_info {
    size_t struct_size; /* set by the caller to sizeof(runnel_stream_info) */
    runnel_stream stream;
    const char *model; /* its file's name without ".gguf"; valid until the engine is freed */
    runnel_phase phase;
    uint32_t paused;                /* 1: delivery is paused */
    uint64_t tokens;                /* of the answer, so far */
    char label[RUNNEL_LABEL_BYTES]; /* "": none */
} runnel_stream_info;

/* The streams alive now, one per call: begin with *cursor = 0 and call until NOT_FOUND. A stream that lives from the
 * first call to the last is listed exactly once; each entry is consistent in itself, though its numbers may be a moment
 * old. Returns OK; INVALID; NOT_FOUND: there are no more. */
RUNNEL_API runnel_status runnel_engine_streams(runnel_engine *engine, uint64_t *cursor, runnel_stream_info *info);

/* ---- Metrics ----------------------------------------------------------------------------- */

#define RUNNEL_HISTOGRAM_EDGES 31
#define RUNNEL_METRIC_PLACES 32 /* room for guesses of a pass; RUNNEL_MAX_DRAFTS are used */

typedef struct runnel_histogram {
    uint32_t n_edges;
    uint32_t reserved;
    double edges[RUNNEL_HISTOGRAM_EDGES];        /* [n_edges], ascending: seconds where the field ends in _s */
    uint64_t counts[RUNNEL_HISTOGRAM_EDGES + 1]; /* [n_edges + 1]: of values above edges[i - 1] and not above
                                                    edges[i] */
    uint64_t count;                              /* of all values: the sum of counts */
    double sum;
} runnel_histogram;

/* Of all models that the engine has had. docs/METRICS.md explains each. */
typedef struct runnel_metrics {
    size_t struct_size; /* set by the caller to sizeof(runnel_metrics) */
    /* Since the engine began. */
    uint64_t requests;          /* accepted */
    uint64_t stopped, length;   /* done, by reason of their end ... */
    uint64_t cancelled, failed; /* ... and the others that have ended */
    uint64_t refused;           /* not accepted: BUSY */
    uint64_t tokens;            /* generated */
    uint64_t prompt_tokens;     /* positions of prompts computed */
    uint64_t steps;
    uint64_t prefix_queries, prefix_hits; /* tokens of admitted prompts; those of them that were cached */
    uint64_t evicted_blocks;
    uint64_t preemptions;              /* times that a running request gave its KV blocks to others and waited again */
    uint64_t trace_dropped;            /* trace events that found no room */
    uint64_t drafted, accepted;        /* tokens that were guessed and verified, and those that were right */
    uint64_t branched, branched_right; /* of them: runners-up of a guess, verified beside it */
    uint64_t drafts;                   /* times that a sequence took guesses into a pass: each gives one token and those
                                          of its guesses that were right */
    uint64_t drafted_at[RUNNEL_METRIC_PLACES];     /* drafted by place: the first guess of a pass, the second ... */
    uint64_t accepted_at[RUNNEL_METRIC_PLACES];    /* accepted, likewise: right, with all before them */
    uint64_t draft_passes, draft_us;               /* passes of the model's drafter, and their time ... */
    uint64_t draft_beside_us;                      /* ... and the part of it in which the model computed too */
    uint64_t draft_branches, draft_branches_right; /* second lines of guesses that a drafter with threads of its own
                                                      began, and those that came true */
    uint64_t warm_hits, cold_hits, shared_hits;    /* of prefix_hits: tokens from the lower tiers of the cache */
    uint64_t warm_bytes_in, warm_bytes_out;        /* packed bytes moved into each tier, and out of it */
    uint64_t cold_bytes_in, cold_bytes_out;
    uint64_t shared_bytes_in, shared_bytes_out;
    uint64_t cache_dropped; /* blocks that left the cache before any lower tier had them */
    uint64_t cache_unpaid;  /* of those, blocks whose copy was beyond the copy budget */
    uint64_t cache_copy_us; /* processor time of copies into lower tiers */
    uint64_t cache_skipped; /* blocks that were not fetched, since computing them was faster */
    uint64_t cache_errors;  /* blocks that could not be moved */
    uint64_t cache_adopted; /* blocks that others have put into a lower tier meanwhile, and that can be fetched from
                               there */
    /* Now. */
    uint64_t warm_bytes, cold_bytes; /* that the tiers take */
    uint64_t shared_bytes;           /* of the blocks that are known to be in the shared tier */
    uint64_t cold_writes;            /* models that write to their cache folder; others only read it */
    uint64_t running, waiting;       /* requests that are admitted, and that are not yet */
    uint64_t queued_tokens;          /* of prompts that wait */
    uint64_t sessions;
    uint64_t blocks_used, blocks_total; /* KV blocks */
    /* Of tokens and requests. A request counts when it is done, not if it is cancelled or failed; in queue_s it counts
     * at admission. */
    runnel_histogram first_token_s; /* submit to first token */
    runnel_histogram inter_token_s; /* token to next token */
    runnel_histogram per_token_s;   /* mean of a request's inter_token_s */
    runnel_histogram queue_s;       /* submit to admission */
    runnel_histogram prefill_s;     /* admission to first token */
    runnel_histogram decode_s;      /* first to last token */
    runnel_histogram inference_s;   /* admission to last token */
    runnel_histogram request_s;     /* submit to end */
    runnel_histogram request_prompt_tokens;
    runnel_histogram request_computed_tokens; /* of the prompt, those that were not cached */
    runnel_histogram request_tokens;          /* generated */
    /* Of steps. */
    runnel_histogram step_s;    /* submit to end */
    runnel_histogram step_rows; /* positions computed */
    runnel_histogram step_sequences;
    /* Since the engine began. */
    uint64_t context_shifts; /* times that an answer went on although its context was full (context_keep) */
    uint64_t forced;         /* of accepted: tokens of text that a grammar left no choice of */
    uint64_t cut;            /* guesses that a grammar refused before they cost a row; they do not count as drafted */
    uint64_t compared;       /* of drafted: guesses that were held against the model's token, those before them being
                                right; neither what stood behind a wrong one nor runners-up. A drafter's acceptance is
                                (accepted - branched_right) / compared */
} runnel_metrics;

/* Reads every value by itself, while others change. Returns OK or INVALID. */
RUNNEL_API runnel_status runnel_engine_metrics(runnel_engine *engine, runnel_metrics *metrics);

/* The same for each model by name, and the counts of runnel_engine_stats, in the text format of Prometheus (version
 * 0.0.4). Writes at most `capacity` bytes, the whole size to *bytes; not NUL-terminated. Numbers may gain digits
 * between a call that measures and one that writes: leave some room, or call again. Returns OK or INVALID. */
RUNNEL_API runnel_status runnel_engine_prometheus(runnel_engine *engine, char *text, size_t capacity, size_t *bytes);

/* How often each expert of a model was chosen. */
typedef struct runnel_expert_use {
    size_t struct_size;           /* set by the caller to sizeof(runnel_expert_use) */
    const char *model;            /* its name in the metrics, for the engine's life */
    uint32_t n_blocks, n_experts; /* of each block; blocks without experts have counts of 0 */
    uint64_t hits, misses;  /* with runnel_model_options.device_expert_bytes: choices of experts that had a place in
                                     the device's memory, and of others, which it read over the bus */
    uint64_t fetched_bytes; /* of experts that got the place of another one there */
} runnel_expert_use;

/* The model number `index` of those that have experts, or had before they were freed, from 0 on in no order that lasts
 * while models are loaded. counts[block * n_experts + expert], as far as `capacity` goes: rows of steps that were
 * computed by the expert, drafts that were refuted among them; each is read by itself, while others change. Returns OK,
 * INVALID or NOT_FOUND. */
RUNNEL_API runnel_status runnel_engine_expert_use(runnel_engine *engine, uint32_t index, runnel_expert_use *use,
                                                  uint64_t *counts, size_t capacity);

/* ---- The machine ------------------------------------------------------------------------- */

typedef struct runnel_machine {
    size_t struct_size;       /* set by the caller to sizeof(runnel_machine) */
    uint32_t compute_threads; /* of the engine's compute team */
    uint32_t memory_nodes;    /* whose processors these are spread over */
    char level[16];           /* the instruction set in use: "avx512-amx", "avx512", "avx2-vnni", "avx2", "neon", "c" */
    char cpu[64];             /* the processor's own name, or its architecture */
    uint64_t memory_bytes;    /* of the machine, or what the process's control group allows */
    double read_bytes_per_s;  /* reading memory in order, all threads: the best of several passes ... */
    double read_median_bytes_per_s; /* ... and the median one */
    double integer_ops_per_s;       /* 8-bit products summed in 32 bits; a multiply-add is two operations */
    double float_ops_per_s;         /* 32-bit fused multiply-adds, two operations each */
} runnel_machine;

/* The limits of the engine's threads, to hold a measured speed against. Reads memory of a size well beyond the caches
 * (up to 1 GiB, taken from the allocator and given back), then computes in registers. Blocks for about a second;
 * running streams go on between the passes and falsify the result. Returns OK; INVALID; STATE: the engine has no
 * compute threads or is being measured; CLOSED; NO_MEMORY: not even 32 MiB could be had. */
RUNNEL_API runnel_status runnel_engine_measure(runnel_engine *engine, runnel_machine *machine, runnel_error *error);

/* What is known of a device before a model is on it. Text that is not known is empty, and a number is 0. */
typedef struct runnel_device_info {
    size_t struct_size; /* set by the caller to sizeof(runnel_device_info) */
    uint32_t n_devices; /* of its kind that the machine has, whether they can be used or not (of the CPU, instruction
                           sets), ... */
    uint32_t index;     /* ... and which of them it is, from 0 */
    uint64_t memory_bytes, free_bytes; /* of the CPU's: the machine's, or what the process's control group allows and
                                          leaves */
    char name[96];
    char capability[16];              /* "9.0": the compute capability of a GPU */
    char kernels[RUNNEL_ERROR_BYTES]; /* of a device whose kernels are in a file of their own: its path, or a sentence
                                         that says where it was looked for; of the CPU the instruction sets that it has
                                         kernels for, the best first: "avx512, avx2-vnni, avx2, c" */
    char driver[RUNNEL_ERROR_BYTES];  /* likewise of its driver: which one, or what is wrong with it */
    char why[RUNNEL_ERROR_BYTES];     /* empty: models can be loaded on it; else the sentence with which a load is
                                         refused, and for which "auto" takes the CPU */
} runnel_device_info;

/* Looks for a device by its name, "cuda" or "cuda:1", "cpu" or "cpu:avx2", or "auto", which stands for "cuda". Opens
 * its library and its driver as the load of a model does, and closes them again: may block for seconds. Returns OK,
 * also for a device that cannot be used; INVALID; UNSUPPORTED: the name is not known, or the CPU does not have the
 * instruction set; CLOSED. */
RUNNEL_API runnel_status runnel_engine_device(runnel_engine *engine, const char *device, runnel_device_info *info,
                                              runnel_error *error);

#ifdef __cplusplus
}
#endif

#endif
