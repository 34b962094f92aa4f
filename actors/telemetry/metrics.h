/* Metrics: counters, gauges and histograms of each model, written where things happen and read by any thread.
 *
 *   generate, tier, decode, detokenizer ──relaxed adds──▶ struct rn_metrics of the model ──▶ struct, Prometheus text
 *
 * A model's metrics are found by its name (its file's, without folder and ".gguf") and live as long as the engine:
 * a model that is freed and loaded again goes on counting, and nothing that was counted is ever lost. Two loads of
 * one file share them. Values are whole numbers: microseconds of the engine's clock, or tokens, rows, sequences.
 * Each event is counted here and nowhere else: runnel_engine_stats, too, is made of these.
 *
 * Nothing here orders anything, allocates (but rn_metrics_of) or waits. What is read while threads write is each
 * value by itself; a histogram's count is the sum of its buckets. */
#ifndef RN_ACTORS_TELEMETRY_METRICS_H
#define RN_ACTORS_TELEMETRY_METRICS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/check.h"
#include "mailbox/flag.h"
#include "model/expert_use.h"
#include "runnel.h"

/* First what decode writes in each step, then what is written once for each request. */
enum rn_count {
    RN_COUNT_TOKENS,
    RN_COUNT_PROMPT_TOKENS,
    RN_COUNT_STEPS,
    RN_COUNT_DRAFTED,
    RN_COUNT_ACCEPTED,
    RN_COUNT_FORCED,
    RN_COUNT_CUT,
    RN_COUNT_COMPARED,
    RN_COUNT_BRANCHED,
    RN_COUNT_BRANCHED_RIGHT,
    RN_COUNT_DRAFTS,
    RN_COUNT_DRAFTED_AT, /* RUNNEL_MAX_DRAFTS of each, by place */
    RN_COUNT_ACCEPTED_AT = RN_COUNT_DRAFTED_AT + RUNNEL_MAX_DRAFTS,
    RN_COUNT_ACCEPTED_AT_LAST = RN_COUNT_ACCEPTED_AT + RUNNEL_MAX_DRAFTS - 1,
    RN_COUNT_DRAFT_PASSES,
    RN_COUNT_DRAFT_US,
    RN_COUNT_DRAFT_BESIDE_US,
    RN_COUNT_DRAFT_BRANCHES,
    RN_COUNT_DRAFT_BRANCHES_RIGHT,
    RN_COUNT_REQUESTS,
    RN_COUNT_STOPPED,
    RN_COUNT_LENGTH,
    RN_COUNT_CANCELLED,
    RN_COUNT_FAILED,
    RN_COUNT_REFUSED,
    RN_COUNT_PREFIX_QUERIES,
    RN_COUNT_PREFIX_HITS,
    RN_COUNT_EVICTED_BLOCKS,
    RN_COUNT_PREEMPTIONS,
    RN_COUNT_SHIFTS,
    RN_COUNT_WARM_HITS,
    RN_COUNT_COLD_HITS,
    RN_COUNT_SHARED_HITS,
    RN_COUNT_WARM_IN,
    RN_COUNT_COLD_IN,
    RN_COUNT_SHARED_IN,
    RN_COUNT_WARM_OUT,
    RN_COUNT_COLD_OUT,
    RN_COUNT_SHARED_OUT,
    RN_COUNT_CACHE_DROPPED,
    RN_COUNT_CACHE_UNPAID,
    RN_COUNT_CACHE_COPY_US,
    RN_COUNT_CACHE_SKIPPED,
    RN_COUNT_CACHE_ERRORS,
    RN_COUNT_CACHE_ADOPTED,
    RN_COUNT_RUNNING,
    RN_COUNT_WAITING,
    RN_COUNT_BLOCKS_USED,
    RN_COUNT_BLOCKS_TOTAL,
    RN_COUNT_WARM_BYTES,
    RN_COUNT_COLD_BYTES,
    RN_COUNT_SHARED_BYTES,
    RN_COUNT_COLD_WRITES,
    RN_COUNTS
};

enum rn_timing {
    RN_TIMING_INTER_TOKEN,
    RN_TIMING_STEP,
    RN_TIMING_ITERATION_TOKENS,
    RN_TIMING_STEP_SEQUENCES,
    RN_TIMING_FIRST_TOKEN,
    RN_TIMING_QUEUE,
    RN_TIMING_PREFILL,
    RN_TIMING_DECODE,
    RN_TIMING_INFERENCE,
    RN_TIMING_E2E,
    RN_TIMING_PER_TOKEN,
    RN_TIMING_PROMPT_TOKENS,
    RN_TIMING_COMPUTED_TOKENS,
    RN_TIMING_GENERATION_TOKENS,
    RN_TIMINGS
};

/* Bucket i counts values in (at[i - 1], at[i]]; the last bucket what is above all. */
struct rn_edges {
    uint32_t n;
    bool seconds; /* values are microseconds and shown as seconds; else as they are */
    uint64_t at[RUNNEL_HISTOGRAM_EDGES];
};

/* How a counter and a histogram are shown; `at`: their place in runnel_metrics. */
struct rn_count_info {
    const char *name, *label; /* label: "finished_reason=\"stop\"", or NULL */
    const char *help;
    size_t at;
    bool gauge;
};
struct rn_timing_info {
    const char *name, *help;
    const struct rn_edges *edges;
    size_t at;
};
extern const struct rn_count_info rn_count_infos[RN_COUNTS];
extern const struct rn_timing_info rn_timing_infos[RN_TIMINGS];

struct rn_histogram {
    struct rn_counter counts[RUNNEL_HISTOGRAM_EDGES + 1];
    struct rn_counter sum;
};

struct rn_metrics {
    struct rn_metrics *next;                 /* constant once it is in the list */
    char *name;                              /* UTF-8 */
    _Atomic(struct rn_expert_use *) experts; /* NULL: none of the name has experts */
    struct rn_counter counts[RN_COUNTS];
    struct rn_histogram timings[RN_TIMINGS];
};

/* Grows at the front and loses nothing before rn_metrics_fini. */
struct rn_metrics_list {
    _Atomic(struct rn_metrics *) first;
};

/* The metrics of the model whose file is `path` (NULL: "model"): those there are, or new ones. NULL: no memory.
 * Any thread; lock-free. */
struct rn_metrics *rn_metrics_of(struct rn_metrics_list *list, struct rn_heap *heap, const char *path);
/* Where the use of a model's experts is counted: for the engine's life, as all else. Of another shape than the first
 * model of the name, or without memory: NULL, and it is not counted. Any thread; lock-free. */
struct rn_expert_use *rn_metrics_experts(struct rn_metrics *metrics, struct rn_heap *heap, uint32_t n_blocks,
                                         uint32_t n_experts);
/* NULL: none. Acquire; partner: the release in rn_metrics_experts. */
static inline const struct rn_expert_use *rn_metrics_expert_use(const struct rn_metrics *metrics)
{
    return atomic_load_explicit(&((struct rn_metrics *)(uintptr_t)metrics)->experts, memory_order_acquire);
}
void rn_metrics_fini(struct rn_metrics_list *list, struct rn_heap *heap);

/* The newest model's metrics; go on by `next`. Acquire; partner: the release in rn_metrics_of. */
static inline const struct rn_metrics *rn_metrics_first(const struct rn_metrics_list *list)
{
    return atomic_load_explicit(&((struct rn_metrics_list *)(uintptr_t)list)->first, memory_order_acquire);
}

/* What is counted of the engine as a whole; what is a model's is counted in its metrics alone. Written by whoever
 * begins or ends one, read by any thread. */
struct rn_totals {
    struct rn_counter streams, sessions, models, loads;
    struct rn_counter queued_tokens, queued_bytes;
    struct rn_counter asked_blocks, known_blocks; /* of prompts: all, and those an endless cache would have had */
    struct rn_word retry_us; /* the router's: between two ends of streams, smoothed; 0: not known */
};

/* Any thread. About ten nanoseconds where no other core has written to the line. */
static inline void rn_metrics_count(struct rn_metrics *metrics, enum rn_count which, int64_t n)
{
    RN_ASSERT((uint32_t)which < RN_COUNTS && (n >= 0 || rn_count_infos[which].gauge)); /* a counter only grows */
    rn_counter_add(&metrics->counts[which], n);
}

static inline void rn_metrics_time(struct rn_metrics *metrics, enum rn_timing which, uint64_t value)
{
    const struct rn_edges *edges = rn_timing_infos[which].edges;
    struct rn_histogram *histogram = &metrics->timings[which];
    uint32_t bucket = 0;

    RN_ASSERT(value <= INT64_MAX); /* no time that ends before it begins */
    while (bucket < edges->n && value > edges->at[bucket])
        bucket++;
    rn_counter_add(&histogram->counts[bucket], 1);
    rn_counter_add(&histogram->sum, (int64_t)value);
}

/* A gauge that two threads change may be seen below zero for a moment. */
static inline uint64_t rn_metrics_value(const struct rn_metrics *metrics, enum rn_count which)
{
    int64_t value = rn_counter_get(&metrics->counts[which]);

    return value > 0 ? (uint64_t)value : 0;
}

/* Of all models there have been: what rn_metrics_value is of each, added up. Any thread. */
uint64_t rn_metrics_sum(const struct rn_metrics_list *list, enum rn_count which);

/* Nothing is below zero, parts are no more than their wholes, and each request is in one phase or has ended once; what
 * is counted of the engine likewise. Where no thread writes. */
bool rn_metrics_check(const struct rn_metrics *metrics);
bool rn_totals_check(const struct rn_totals *totals);

/* Adds all models' metrics to what is there, and sets the edges. Any thread. */
void rn_metrics_collect(const struct rn_metrics_list *list, runnel_metrics *out);

#endif
