/* What the parts of `runnel bench` share: bench.c runs the tests, bench_cost.c says what a model asks of the
 * machine, bench_report.c writes table, JSON and CSV. */
#ifndef RUNNEL_APP_BENCH_H
#define RUNNEL_APP_BENCH_H

#include "common.h"

struct bench_test {
    bool decode;     /* else prefill */
    uint32_t tokens; /* of a prompt, or of an answer */
    uint32_t streams, depth;
};

/* Of several values. */
struct bench_spread {
    double median, min, max;
};

/* What came of guesses in all runs of a test that count. */
struct bench_drafts {
    uint64_t passes, drafted, accepted; /* passes of a sequence with guesses; guesses in them; those that were right */
    uint64_t rested[RUNNEL_REST_BROKEN + 1]; /* passes of a sequence without guesses, by runnel_usage.rest */
    uint64_t draft_us, beside_us; /* the drafter's passes, and of that while the model computed as well ... */
    uint64_t run_us;              /* ... in so much time */
};

struct bench_result {
    struct bench_test test;
    struct bench_drafts drafts;
    uint64_t expert_hits, expert_misses; /* with --device-experts, in all runs that count */
    struct bench_spread rate;            /* tokens per second of all streams */
    struct bench_spread first_ms;        /* prefill: from submit to the first token's event */
};

/* What a file asks for: bytes of weights and operations on them. A weight takes part in a position's work if it is
 * multiplied; of experts, the chosen ones. */
struct bench_cost {
    char architecture[64], format[16];
    uint64_t file_bytes;
    double bytes;        /* read by every step, experts apart */
    double expert_bytes; /* of all experts */
    double experts, experts_used;
    double integer_ops, float_ops;           /* of one position, in block formats and in floats; without the head */
    double head_integer_ops, head_float_ops; /* of one row of logits */
    uint64_t kv_bytes_per_token;
    uint64_t chunk_mean; /* --chunk-mean; bench_cost_read leaves 0 */
};

/* What one token of a test needs. */
struct bench_need {
    double bytes, integer_ops, float_ops;
};

/* One model's part. */
struct bench_model {
    const char *path;
    char name[128]; /* of the file, without folder and ".gguf" */
    struct bench_cost cost;
    runnel_model_info info;
    uint32_t threads; /* 0: chosen by the library, and not told because nothing was measured */
    uint32_t batch_tokens;
    double load_s;
    uint64_t peak_rss_bytes; /* 0: not known */
    bool measured;
    runnel_machine machine;
    runnel_metrics metrics;       /* of all its runs, those that warm up too */
    struct bench_result *results; /* [n_results]; owned */
    size_t n_results;
};

/* bench_cost.c: reads the head of a file. An exit code. */
int bench_cost_read(struct bench_cost *cost, const char *path, runnel_kv_type kv_type);

/* What a token of the test needs, on average, in steps of at most batch_tokens rows. */
struct bench_need bench_cost_need(const struct bench_cost *cost, const struct bench_test *test, uint32_t batch_tokens);

/* bench_report.c: passes that rested, and why most of them did. */
uint64_t bench_rested(const struct bench_drafts *drafts, runnel_rest *rest);

/* bench_report.c: to standard output. first: of this call of the program. */
void bench_report(const struct app_options *options, const struct bench_model *model, bool first);

/* What stands behind the last model. */
void bench_report_end(const struct app_options *options);

#endif
