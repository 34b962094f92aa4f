/* Metrics: the tables, the list of models, and the struct for the host. See metrics.h.
 *
 * Names and edges follow vLLM's (vllm/v1/metrics/buckets.py and loggers.py of 2026), so that dashboards can be carried
 * over by changing the prefix; docs/METRICS.md has the mapping. */
#include "actors/telemetry/metrics.h"

#include <stddef.h>
#include <string.h>

#include "base/check.h"
#include "text/vocab.h"

/* ---- Tables ---- */

#define MS 1000ull
#define S 1000000ull

static const struct rn_edges first_token_edges = {
    22, true, {1 * MS,   5 * MS,   10 * MS,  20 * MS, 40 * MS,   60 * MS, 80 * MS,   100 * MS,
               250 * MS, 500 * MS, 750 * MS, 1 * S,   2500 * MS, 5 * S,   7500 * MS, 10 * S,
               20 * S,   40 * S,   80 * S,   160 * S, 640 * S,   2560 * S}};
static const struct rn_edges inter_token_edges = {19,
                                                  true,
                                                  {10 * MS, 25 * MS, 50 * MS, 75 * MS, 100 * MS, 150 * MS, 200 * MS,
                                                   300 * MS, 400 * MS, 500 * MS, 750 * MS, 1 * S, 2500 * MS, 5 * S,
                                                   7500 * MS, 10 * S, 20 * S, 40 * S, 80 * S}};
static const struct rn_edges request_edges = {
    21, true, {300 * MS, 500 * MS, 800 * MS, 1 * S,  1500 * MS, 2 * S,   2500 * MS, 5 * S,   10 * S,   15 * S,  20 * S,
               30 * S,   40 * S,   50 * S,   60 * S, 120 * S,   240 * S, 480 * S,   960 * S, 1920 * S, 7680 * S}};
static const struct rn_edges iteration_edges = {
    13, false, {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}};
static const struct rn_edges request_tokens_edges = {
    19,
    false,
    {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000}};
/* Ours: a step is between a small model's on a GPU and a large one's on a slow CPU. */
static const struct rn_edges step_edges = {17,
                                           true,
                                           {100, 200, 500, 1 * MS, 2 * MS, 5 * MS, 10 * MS, 20 * MS, 50 * MS, 100 * MS,
                                            200 * MS, 500 * MS, 1 * S, 2 * S, 5 * S, 10 * S, 20 * S}};
static const struct rn_edges sequences_edges = {13, false, {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}};

#define AT(field) offsetof(runnel_metrics, field)

#define PLACE(count, name, field, i) [RN_COUNT_##count + i] = {name, "position=\"" #i "\"", NULL, AT(field[i]), false},
/* clang-format off */
#define LATER_PLACES(count, name, field)                                                                 \
    PLACE(count, name, field, 1) PLACE(count, name, field, 2) PLACE(count, name, field, 3)               \
    PLACE(count, name, field, 4) PLACE(count, name, field, 5) PLACE(count, name, field, 6)               \
    PLACE(count, name, field, 7) PLACE(count, name, field, 8) PLACE(count, name, field, 9)               \
    PLACE(count, name, field, 10) PLACE(count, name, field, 11) PLACE(count, name, field, 12)            \
    PLACE(count, name, field, 13) PLACE(count, name, field, 14) PLACE(count, name, field, 15)
/* clang-format on */

static_assert(RUNNEL_MAX_DRAFTS == 16, "LATER_PLACES names those behind the first");
static_assert(RUNNEL_MAX_DRAFTS <= RUNNEL_METRIC_PLACES, "every place of a guess is shown");

const struct rn_count_info rn_count_infos[RN_COUNTS] = {
    [RN_COUNT_TOKENS] = {"generation_tokens_total", NULL, "Tokens generated.", AT(tokens), false},
    [RN_COUNT_PROMPT_TOKENS] = {"prompt_tokens_total", NULL, "Positions of prompts computed.", AT(prompt_tokens),
                                false},
    [RN_COUNT_STEPS] = {"steps_total", NULL, "Forward passes done.", AT(steps), false},
    [RN_COUNT_DRAFTED] = {"spec_decode_num_draft_tokens_total", NULL, "Tokens guessed and verified.", AT(drafted),
                          false},
    [RN_COUNT_ACCEPTED] = {"spec_decode_num_accepted_tokens_total", NULL, "Guessed tokens that were right.",
                           AT(accepted), false},
    [RN_COUNT_FORCED] = {"grammar_forced_tokens_total", NULL,
                         "Tokens of text that a grammar left no choice of and that took no pass of their own.",
                         AT(forced), false},
    [RN_COUNT_CUT] = {"grammar_cut_draft_tokens_total", NULL,
                      "Tokens guessed that a grammar refused before they cost a row.", AT(cut), false},
    [RN_COUNT_COMPARED] = {"spec_decode_num_compared_draft_tokens_total", NULL,
                           "Of the tokens guessed: those before which all were right.", AT(compared), false},
    [RN_COUNT_BRANCHED] = {"spec_decode_num_branch_tokens_total", NULL,
                           "Of the tokens guessed: runners-up, verified beside the likeliest.", AT(branched), false},
    [RN_COUNT_BRANCHED_RIGHT] = {"spec_decode_num_accepted_branch_tokens_total", NULL, "Runners-up that were right.",
                                 AT(branched_right), false},
    [RN_COUNT_DRAFTS] = {"spec_decode_num_drafts_total", NULL, "Times that a sequence took guesses into a pass.",
                         AT(drafts), false},
    [RN_COUNT_DRAFTED_AT] = {"spec_decode_num_draft_tokens_per_pos_total", "position=\"0\"",
                             "Tokens guessed and verified, by their place in the pass.", AT(drafted_at[0]), false},
    LATER_PLACES(DRAFTED_AT, "spec_decode_num_draft_tokens_per_pos_total",
                 drafted_at)[RN_COUNT_ACCEPTED_AT] = {"spec_decode_num_accepted_tokens_per_pos_total", "position=\"0\"",
                                                      "Guessed tokens that were right, by their place in the pass.",
                                                      AT(accepted_at[0]), false},
    LATER_PLACES(ACCEPTED_AT, "spec_decode_num_accepted_tokens_per_pos_total",
                 accepted_at)[RN_COUNT_DRAFT_PASSES] = {"spec_decode_draft_passes_total", NULL,
                                                        "Passes of the drafter.", AT(draft_passes), false},
    [RN_COUNT_DRAFT_US] = {"spec_decode_draft_microseconds_total", NULL, "Time of the drafter's passes.", AT(draft_us),
                           false},
    [RN_COUNT_DRAFT_BESIDE_US] = {"spec_decode_draft_beside_microseconds_total", NULL,
                                  "Of it, time in which the model computed too.", AT(draft_beside_us), false},
    [RN_COUNT_DRAFT_BRANCHES] = {"spec_decode_draft_branches_total", NULL,
                                 "Second lines of guesses that the drafter began beside the likeliest.",
                                 AT(draft_branches), false},
    [RN_COUNT_DRAFT_BRANCHES_RIGHT] = {"spec_decode_accepted_draft_branches_total", NULL, "Those that came true.",
                                       AT(draft_branches_right), false},
    [RN_COUNT_REQUESTS] = {"requests_total", NULL, "Requests accepted.", AT(requests), false},
    [RN_COUNT_STOPPED] = {"request_success_total", "finished_reason=\"stop\"", "Requests that have ended, by reason.",
                          AT(stopped), false},
    [RN_COUNT_LENGTH] = {"request_success_total", "finished_reason=\"length\"", NULL, AT(length), false},
    [RN_COUNT_CANCELLED] = {"request_success_total", "finished_reason=\"abort\"", NULL, AT(cancelled), false},
    [RN_COUNT_FAILED] = {"request_success_total", "finished_reason=\"error\"", NULL, AT(failed), false},
    [RN_COUNT_REFUSED] = {"requests_refused_total", NULL, "Requests refused because a limit was reached.", AT(refused),
                          false},
    [RN_COUNT_PREFIX_QUERIES] = {"prefix_cache_queries_total", NULL, "Tokens of admitted prompts.", AT(prefix_queries),
                                 false},
    [RN_COUNT_PREFIX_HITS] = {"prefix_cache_hits_total", NULL,
                              "Tokens of admitted prompts that were in the prefix cache or the session.",
                              AT(prefix_hits), false},
    [RN_COUNT_EVICTED_BLOCKS] = {"evicted_blocks_total", NULL, "KV blocks taken from the prefix cache for other use.",
                                 AT(evicted_blocks), false},
    [RN_COUNT_PREEMPTIONS] = {"num_preemptions_total", NULL,
                              "Times that a request had to give its KV blocks to others.", AT(preemptions), false},
    [RN_COUNT_SHIFTS] = {"context_shifts_total", NULL, "Times that an answer went on although its context was full.",
                         AT(context_shifts), false},
    [RN_COUNT_WARM_HITS] = {"cache_tier_hits_total", "tier=\"warm\"",
                            "Tokens of admitted prompts that came up from a lower tier of the cache.", AT(warm_hits),
                            false},
    [RN_COUNT_COLD_HITS] = {"cache_tier_hits_total", "tier=\"cold\"", NULL, AT(cold_hits), false},
    [RN_COUNT_SHARED_HITS] = {"cache_tier_hits_total", "tier=\"shared\"", NULL, AT(shared_hits), false},
    [RN_COUNT_WARM_IN] = {"cache_tier_bytes_in_total", "tier=\"warm\"",
                          "Packed bytes of KV blocks put into a lower tier of the cache.", AT(warm_bytes_in), false},
    [RN_COUNT_COLD_IN] = {"cache_tier_bytes_in_total", "tier=\"cold\"", NULL, AT(cold_bytes_in), false},
    [RN_COUNT_SHARED_IN] = {"cache_tier_bytes_in_total", "tier=\"shared\"", NULL, AT(shared_bytes_in), false},
    [RN_COUNT_WARM_OUT] = {"cache_tier_bytes_out_total", "tier=\"warm\"",
                           "Packed bytes of KV blocks fetched from a lower tier of the cache.", AT(warm_bytes_out),
                           false},
    [RN_COUNT_COLD_OUT] = {"cache_tier_bytes_out_total", "tier=\"cold\"", NULL, AT(cold_bytes_out), false},
    [RN_COUNT_SHARED_OUT] = {"cache_tier_bytes_out_total", "tier=\"shared\"", NULL, AT(shared_bytes_out), false},
    [RN_COUNT_CACHE_DROPPED] = {"cache_dropped_blocks_total", NULL,
                                "KV blocks that left the cache although no lower tier had them yet.", AT(cache_dropped),
                                false},
    [RN_COUNT_CACHE_UNPAID] = {"cache_unpaid_blocks_total", NULL,
                               "Of the dropped KV blocks, those whose copy would have cost others too much.",
                               AT(cache_unpaid), false},
    [RN_COUNT_CACHE_COPY_US] = {"cache_copy_microseconds_total", NULL,
                                "Processor time of copies into lower tiers of the cache.", AT(cache_copy_us), false},
    [RN_COUNT_CACHE_SKIPPED] = {"cache_skipped_blocks_total", NULL,
                                "KV blocks that were not fetched, since computing them was faster.", AT(cache_skipped),
                                false},
    [RN_COUNT_CACHE_ERRORS] = {"cache_errors_total", NULL, "KV blocks that could not be moved between tiers.",
                               AT(cache_errors), false},
    [RN_COUNT_CACHE_ADOPTED] = {"cache_adopted_blocks_total", NULL,
                                "KV blocks that others have put into a lower tier while the model was loaded.",
                                AT(cache_adopted), false},
    [RN_COUNT_RUNNING] = {"num_requests_running", NULL, "Requests that have their KV blocks.", AT(running), true},
    [RN_COUNT_WAITING] = {"num_requests_waiting", NULL, "Requests that wait to be admitted.", AT(waiting), true},
    [RN_COUNT_BLOCKS_USED] = {"kv_blocks_used", NULL, "KV blocks that requests and sessions hold.", AT(blocks_used),
                              true},
    [RN_COUNT_BLOCKS_TOTAL] = {"kv_blocks", NULL, "KV blocks there are.", AT(blocks_total), true},
    [RN_COUNT_WARM_BYTES] = {"cache_tier_bytes", "tier=\"warm\"", "Bytes that a lower tier of the cache takes.",
                             AT(warm_bytes), true},
    [RN_COUNT_COLD_BYTES] = {"cache_tier_bytes", "tier=\"cold\"", NULL, AT(cold_bytes), true},
    [RN_COUNT_SHARED_BYTES] = {"cache_tier_bytes", "tier=\"shared\"", NULL, AT(shared_bytes), true},
    [RN_COUNT_COLD_WRITES] = {"cache_writes", NULL, "1: it writes to its cache folder; 0: it reads it, or has none.",
                              AT(cold_writes), true},
};

const struct rn_timing_info rn_timing_infos[RN_TIMINGS] = {
    [RN_TIMING_INTER_TOKEN] = {"inter_token_latency_seconds", "Time between two tokens of a request.",
                               &inter_token_edges, AT(inter_token_s)},
    [RN_TIMING_STEP] = {"step_seconds", "Time of a forward pass.", &step_edges, AT(step_s)},
    [RN_TIMING_ITERATION_TOKENS] = {"iteration_tokens_total", "Rows of a forward pass.", &iteration_edges,
                                    AT(step_rows)},
    [RN_TIMING_STEP_SEQUENCES] = {"step_sequences", "Sequences of a forward pass.", &sequences_edges,
                                  AT(step_sequences)},
    [RN_TIMING_FIRST_TOKEN] = {"time_to_first_token_seconds", "Time from submit to the first token.",
                               &first_token_edges, AT(first_token_s)},
    [RN_TIMING_QUEUE] = {"request_queue_time_seconds", "Time from submit to admission.", &request_edges, AT(queue_s)},
    [RN_TIMING_PREFILL] = {"request_prefill_time_seconds", "Time from admission to the first token.", &request_edges,
                           AT(prefill_s)},
    [RN_TIMING_DECODE] = {"request_decode_time_seconds", "Time from the first token to the last one.", &request_edges,
                          AT(decode_s)},
    [RN_TIMING_INFERENCE] = {"request_inference_time_seconds", "Time from admission to the last token.", &request_edges,
                             AT(inference_s)},
    [RN_TIMING_E2E] = {"e2e_request_latency_seconds", "Time from submit to the end.", &request_edges, AT(request_s)},
    [RN_TIMING_PER_TOKEN] = {"request_time_per_output_token_seconds", "Mean time between the tokens of a request.",
                             &inter_token_edges, AT(per_token_s)},
    [RN_TIMING_PROMPT_TOKENS] = {"request_prompt_tokens", "Tokens of a prompt.", &request_tokens_edges,
                                 AT(request_prompt_tokens)},
    [RN_TIMING_COMPUTED_TOKENS] = {"request_prefill_kv_computed_tokens", "Tokens of a prompt that were not cached.",
                                   &request_tokens_edges, AT(request_computed_tokens)},
    [RN_TIMING_GENERATION_TOKENS] = {"request_generation_tokens", "Tokens of an answer.", &request_tokens_edges,
                                     AT(request_tokens)},
};

/* ---- Check ---- */

static int64_t count_of(const struct rn_metrics *metrics, uint32_t which)
{
    return rn_counter_get(&metrics->counts[which]);
}

static int64_t n_timed(const struct rn_metrics *metrics, enum rn_timing which)
{
    int64_t n = 0;

    for (uint32_t i = 0; i <= rn_timing_infos[which].edges->n; i++)
        n += rn_counter_get(&metrics->timings[which].counts[i]);
    return n;
}

/* A part is no more than its whole. */
static bool parts_are_whole(const struct rn_metrics *metrics)
{
    static const struct {
        uint32_t part, whole;
    } pairs[] = {
        {RN_COUNT_PREFIX_HITS, RN_COUNT_PREFIX_QUERIES},
        {RN_COUNT_ACCEPTED, RN_COUNT_DRAFTED},
        {RN_COUNT_COMPARED, RN_COUNT_DRAFTED},
        {RN_COUNT_BRANCHED, RN_COUNT_DRAFTED},
        {RN_COUNT_BRANCHED_RIGHT, RN_COUNT_BRANCHED},
        {RN_COUNT_BRANCHED_RIGHT, RN_COUNT_ACCEPTED},
        {RN_COUNT_DRAFTS, RN_COUNT_DRAFTED},
        {RN_COUNT_FORCED, RN_COUNT_ACCEPTED},
        {RN_COUNT_DRAFT_BESIDE_US, RN_COUNT_DRAFT_US},
        {RN_COUNT_DRAFT_BRANCHES_RIGHT, RN_COUNT_DRAFT_BRANCHES},
        {RN_COUNT_CACHE_UNPAID, RN_COUNT_CACHE_DROPPED},
        {RN_COUNT_BLOCKS_USED, RN_COUNT_BLOCKS_TOTAL},
    };

    for (uint32_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (count_of(metrics, pairs[i].part) > count_of(metrics, pairs[i].whole))
            return false;
    for (uint32_t i = 0; i < RUNNEL_MAX_DRAFTS; i++)
        if (count_of(metrics, RN_COUNT_ACCEPTED_AT + i) > count_of(metrics, RN_COUNT_DRAFTED_AT + i) ||
            (i > 0 && count_of(metrics, RN_COUNT_DRAFTED_AT + i) > count_of(metrics, RN_COUNT_DRAFTED_AT + i - 1)))
            return false;
    return true;
}

bool rn_metrics_check(const struct rn_metrics *metrics)
{
    int64_t n_done = count_of(metrics, RN_COUNT_STOPPED) + count_of(metrics, RN_COUNT_LENGTH);
    int64_t n_ended = n_done + count_of(metrics, RN_COUNT_CANCELLED) + count_of(metrics, RN_COUNT_FAILED);

    for (uint32_t which = 0; which < RN_COUNTS; which++)
        if (count_of(metrics, which) < 0)
            return false;
    return parts_are_whole(metrics) &&
           count_of(metrics, RN_COUNT_REQUESTS) ==
               n_ended + count_of(metrics, RN_COUNT_RUNNING) + count_of(metrics, RN_COUNT_WAITING) &&
           n_timed(metrics, RN_TIMING_STEP) == count_of(metrics, RN_COUNT_STEPS) &&
           n_timed(metrics, RN_TIMING_FIRST_TOKEN) + n_timed(metrics, RN_TIMING_INTER_TOKEN) ==
               count_of(metrics, RN_COUNT_TOKENS) &&
           n_timed(metrics, RN_TIMING_E2E) == n_done &&
           n_timed(metrics, RN_TIMING_QUEUE) <= count_of(metrics, RN_COUNT_REQUESTS);
}

bool rn_totals_check(const struct rn_totals *totals)
{
    return rn_counter_get(&totals->streams) >= 0 && rn_counter_get(&totals->sessions) >= 0 &&
           rn_counter_get(&totals->loads) >= 0 && rn_counter_get(&totals->models) >= 0 &&
           rn_counter_get(&totals->queued_tokens) >= 0 && rn_counter_get(&totals->queued_bytes) >= 0 &&
           rn_counter_get(&totals->known_blocks) >= 0 &&
           rn_counter_get(&totals->known_blocks) <= rn_counter_get(&totals->asked_blocks);
}

/* ---- The list ---- */

/* The name of a file: no folder, no ".gguf"; bytes that are not UTF-8 become question marks. */
static char *name_of(struct rn_heap *heap, const char *path)
{
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    const char *begin = slash != NULL ? slash + 1 : path != NULL ? path : "model";
    size_t n = strlen(begin);
    char *name;

    if (n > 5 && strcmp(begin + n - 5, ".gguf") == 0)
        n -= 5;
    name = rn_strndup(heap, begin, n);
    if (name != NULL && !rn_utf8_valid(name, n))
        for (char *c = name; *c != '\0'; c++)
            *c = (unsigned char)*c < 0x80 ? *c : '?';
    return name;
}

static struct rn_metrics *find(struct rn_metrics *first, const char *name)
{
    struct rn_metrics *metrics = first;

    while (metrics != NULL && strcmp(metrics->name, name) != 0)
        metrics = metrics->next;
    return metrics;
}

static void free_one(struct rn_heap *heap, struct rn_metrics *metrics)
{
    rn_free(heap, atomic_load_explicit(&metrics->experts, memory_order_acquire)); /* partner: rn_metrics_experts */
    rn_free(heap, metrics->name);
    rn_free(heap, metrics);
}

/* Two that add the same name at once: one of them finds the other's when its exchange fails. */
struct rn_metrics *rn_metrics_of(struct rn_metrics_list *list, struct rn_heap *heap, const char *path)
{
    /* Acquire; partner: the release below. */
    struct rn_metrics *first = atomic_load_explicit(&list->first, memory_order_acquire);
    struct rn_metrics *metrics = rn_calloc(heap, 1, sizeof *metrics), *there;

    if (metrics == NULL)
        return NULL;
    metrics->name = name_of(heap, path);
    if (metrics->name == NULL) {
        rn_free(heap, metrics);
        return NULL;
    }
    do {
        there = find(first, metrics->name);
        if (there != NULL) {
            free_one(heap, metrics);
            return there;
        }
        metrics->next = first;
        /* Release: readers see name and next. Acquire on failure: we see the other's. Partner: rn_metrics_first. */
    } while (!atomic_compare_exchange_weak_explicit(&list->first, &first, metrics, memory_order_release,
                                                    memory_order_acquire));
    return metrics;
}

struct rn_expert_use *rn_metrics_experts(struct rn_metrics *metrics, struct rn_heap *heap, uint32_t n_blocks,
                                         uint32_t n_experts)
{
    /* Acquire: we read its shape; partner: the release below. */
    struct rn_expert_use *there = atomic_load_explicit(&metrics->experts, memory_order_acquire), *use;
    const size_t bytes = sizeof *use + (size_t)n_blocks * n_experts * sizeof use->counts[0];

    if (there == NULL) {
        use = rn_calloc(heap, 1, bytes);
        if (use == NULL)
            return NULL;
        use->n_blocks = n_blocks;
        use->n_experts = n_experts;
        /* Release: readers see the shape; acquire on failure: we see the other's. Partner: rn_metrics_expert_use. */
        if (atomic_compare_exchange_strong_explicit(&metrics->experts, &there, use, memory_order_release,
                                                    memory_order_acquire))
            return use;
        rn_free(heap, use);
    }
    return there->n_blocks == n_blocks && there->n_experts == n_experts ? there : NULL;
}

/* No request is under way, and no model. */
static bool is_quiet(const struct rn_metrics *metrics)
{
    return count_of(metrics, RN_COUNT_RUNNING) == 0 && count_of(metrics, RN_COUNT_WAITING) == 0 &&
           count_of(metrics, RN_COUNT_BLOCKS_USED) == 0 && count_of(metrics, RN_COUNT_BLOCKS_TOTAL) == 0;
}

void rn_metrics_fini(struct rn_metrics_list *list, struct rn_heap *heap)
{
    struct rn_metrics *metrics = atomic_load_explicit(&list->first, memory_order_acquire), *next;

    for (; metrics != NULL; metrics = next) {
        RN_ASSERT(rn_metrics_check(metrics) && is_quiet(metrics));
        next = metrics->next;
        free_one(heap, metrics);
    }
}

uint64_t rn_metrics_sum(const struct rn_metrics_list *list, enum rn_count which)
{
    uint64_t sum = 0;

    for (const struct rn_metrics *m = rn_metrics_first(list); m != NULL; m = m->next)
        sum += rn_metrics_value(m, which);
    return sum;
}

/* ---- The struct ---- */

static double shown(const struct rn_edges *edges, uint64_t value)
{
    return edges->seconds ? (double)value / 1e6 : (double)value;
}

static void add_histogram(const struct rn_metrics *metrics, enum rn_timing which, runnel_histogram *out)
{
    const struct rn_histogram *histogram = &metrics->timings[which];
    const struct rn_edges *edges = rn_timing_infos[which].edges;

    for (uint32_t i = 0; i <= edges->n; i++) {
        uint64_t n = (uint64_t)rn_counter_get(&histogram->counts[i]);

        out->counts[i] += n;
        out->count += n;
    }
    out->sum += shown(edges, (uint64_t)rn_counter_get(&histogram->sum));
}

static runnel_histogram *histogram_at(runnel_metrics *metrics, enum rn_timing which)
{
    return (runnel_histogram *)((char *)metrics + rn_timing_infos[which].at);
}

static void set_edges(runnel_metrics *out)
{
    for (uint32_t which = 0; which < RN_TIMINGS; which++) {
        const struct rn_edges *edges = rn_timing_infos[which].edges;
        runnel_histogram *histogram = histogram_at(out, which);

        RN_CHECK(edges->n <= RUNNEL_HISTOGRAM_EDGES);
        histogram->n_edges = edges->n;
        for (uint32_t i = 0; i < edges->n; i++) {
            RN_ASSERT(i == 0 || edges->at[i - 1] < edges->at[i]);
            histogram->edges[i] = shown(edges, edges->at[i]);
        }
    }
}

void rn_metrics_collect(const struct rn_metrics_list *list, runnel_metrics *out)
{
    set_edges(out);
    for (const struct rn_metrics *m = rn_metrics_first(list); m != NULL; m = m->next) {
        for (uint32_t which = 0; which < RN_COUNTS; which++)
            *(uint64_t *)((char *)out + rn_count_infos[which].at) += rn_metrics_value(m, which);
        for (uint32_t which = 0; which < RN_TIMINGS; which++)
            add_histogram(m, which, histogram_at(out, which));
    }
}
