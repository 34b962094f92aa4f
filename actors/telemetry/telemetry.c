/* Notes of requests and steps: see telemetry.h. */
#include "actors/telemetry/telemetry.h"

#include "actors/batch.h"
#include "actors/context.h"
#include "actors/draft/drafter.h"
#include "actors/host/outlet.h"
#include "actors/request.h"
#include "actors/runtime/trace.h"
#include "base/check.h"

/* The counters of lower tiers stand in the order of enum rn_tier_kind. */
#define IN_ORDER(name)                                                                                 \
    ((int)RN_COUNT_COLD_##name - (int)RN_COUNT_WARM_##name == (int)RN_TIER_COLD - (int)RN_TIER_WARM && \
     (int)RN_COUNT_SHARED_##name - (int)RN_COUNT_WARM_##name == (int)RN_TIER_SHARED - (int)RN_TIER_WARM)
static_assert(RN_TIER_WARM == 0 && RN_TIERS == 3, "there are counters for three");
static_assert(IN_ORDER(HITS), "hits are counted by kind");
static_assert(IN_ORDER(IN) && IN_ORDER(OUT), "packed bytes are counted by kind");
static_assert(IN_ORDER(BYTES), "what a tier takes is counted by kind");

/* ---- Phases ---- */

static void trace_phase(const struct rn_actor *actor, const struct rn_request *request, uint64_t now_us)
{
    static const char *const names[] = {
        [RN_PHASE_QUEUED] = "queued", [RN_PHASE_PREFILL] = "prefill", [RN_PHASE_DECODE] = "decode"};
    const runnel_trace_event event = {
        .kind = RUNNEL_TRACE_REQUEST,
        .name = names[request->phase],
        .model = request->context->metrics->name,
        .messages = "",
        .begin_ns = 1000 * request->phase_us,
        .end_ns = 1000 * now_us,
        .stream = rn_stream_id(request->slot, request->generation).id,
        /* the first token ends its prefill and is of the next phase, but has been taken */
        .tokens = request->phase == RN_PHASE_PREFILL ? request->n_fill : request->n_tokens,
        .label = request->label,
    };

    rn_tracer_put(actor->runtime->tracer, actor->thread, &event, NULL);
}

static bool is_running(enum rn_phase phase)
{
    return phase == RN_PHASE_PREFILL || phase == RN_PHASE_DECODE;
}

/* What the list of streams says. The end is the outlet's own to tell. */
static void list_phase(const struct rn_request *request)
{
    static const runnel_phase phases[] = {[RN_PHASE_QUEUED] = RUNNEL_PHASE_QUEUED,
                                          [RN_PHASE_PREFILL] = RUNNEL_PHASE_PREFILL,
                                          [RN_PHASE_DECODE] = RUNNEL_PHASE_DECODE};

    if (request->phase != RN_PHASE_NONE)
        rn_word_set(&request->context->outlets[request->slot].phase, phases[request->phase]);
}

/* Ends the phase it is in and begins another one. actor NULL: it was in none. */
static void enter(const struct rn_actor *actor, struct rn_request *request, enum rn_phase phase, uint64_t now_us)
{
    struct rn_metrics *metrics = request->context->metrics;
    int waiting = (phase == RN_PHASE_QUEUED) - (request->phase == RN_PHASE_QUEUED);
    int running = is_running(phase) - is_running(request->phase);

    RN_ASSERT(phase != request->phase && now_us >= request->phase_us);
    RN_ASSERT(phase != RN_PHASE_DECODE || request->phase == RN_PHASE_PREFILL);
    if (request->phase != RN_PHASE_NONE && actor->runtime->tracer != NULL)
        trace_phase(actor, request, now_us);
    if (waiting != 0)
        rn_metrics_count(metrics, RN_COUNT_WAITING, waiting);
    if (running != 0)
        rn_metrics_count(metrics, RN_COUNT_RUNNING, running);
    request->phase = phase;
    request->phase_us = now_us;
    list_phase(request);
}

/* ---- Requests ---- */

void rn_telemetry_submitted(struct rn_request *request)
{
    rn_metrics_count(request->context->metrics, RN_COUNT_REQUESTS, 1);
    enter(NULL, request, RN_PHASE_QUEUED, request->submitted_us);
}

void rn_telemetry_refused(const struct rn_context *context, runnel_status status)
{
    if (status == RUNNEL_BUSY)
        rn_metrics_count(context->metrics, RN_COUNT_REFUSED, 1);
}

void rn_telemetry_admitted(struct rn_actor *tier, struct rn_request *request)
{
    struct rn_metrics *metrics = request->context->metrics;

    RN_ASSERT(request->phase == RN_PHASE_QUEUED && request->n_cached <= request->n_prompt);
    if (request->resumed) {
        enter(tier, request, RN_PHASE_PREFILL, rn_now_us(request->context->clock));
        return;
    }
    rn_metrics_time(metrics, RN_TIMING_QUEUE, request->admitted_us - request->submitted_us);
    rn_metrics_count(metrics, RN_COUNT_PREFIX_QUERIES, request->n_prompt);
    rn_metrics_count(metrics, RN_COUNT_PREFIX_HITS, request->n_cached);
    for (unsigned kind = 0; kind < RN_TIERS; kind++)
        rn_metrics_count(metrics, (enum rn_count)(RN_COUNT_WARM_HITS + kind), request->n_lower[kind]);
    enter(tier, request, RN_PHASE_PREFILL, request->admitted_us);
}

void rn_telemetry_preempted(struct rn_actor *tier, struct rn_request *request)
{
    RN_ASSERT(is_running(request->phase) && request->admitted_us >= request->submitted_us);
    rn_metrics_count(request->context->metrics, request->shifts ? RN_COUNT_SHIFTS : RN_COUNT_PREEMPTIONS, 1);
    enter(tier, request, RN_PHASE_QUEUED, rn_now_us(request->context->clock));
}

void rn_telemetry_blocks(const struct rn_context *context, int64_t n)
{
    rn_metrics_count(context->metrics, RN_COUNT_BLOCKS_USED, n);
}

void rn_telemetry_evicted(const struct rn_context *context, uint32_t n)
{
    rn_metrics_count(context->metrics, RN_COUNT_EVICTED_BLOCKS, n);
}

void rn_telemetry_dropped(const struct rn_context *context, uint32_t n)
{
    rn_metrics_count(context->metrics, RN_COUNT_CACHE_DROPPED, n);
}

void rn_telemetry_moved(const struct rn_context *context, unsigned kind, bool up, uint64_t bytes, int64_t takes)
{
    enum rn_count way = up ? RN_COUNT_WARM_OUT : RN_COUNT_WARM_IN;

    rn_metrics_count(context->metrics, (enum rn_count)(way + kind), (int64_t)bytes);
    rn_metrics_count(context->metrics, (enum rn_count)(RN_COUNT_WARM_BYTES + kind), takes);
}

void rn_telemetry_unpaid(const struct rn_context *context, uint32_t n)
{
    rn_metrics_count(context->metrics, RN_COUNT_CACHE_UNPAID, n);
}

void rn_telemetry_copied(const struct rn_context *context, uint64_t us)
{
    rn_metrics_count(context->metrics, RN_COUNT_CACHE_COPY_US, (int64_t)us);
}

void rn_telemetry_adopted(const struct rn_context *context, uint32_t n)
{
    rn_metrics_count(context->metrics, RN_COUNT_CACHE_ADOPTED, n);
}

void rn_telemetry_skipped(const struct rn_context *context, uint32_t n)
{
    rn_metrics_count(context->metrics, RN_COUNT_CACHE_SKIPPED, n);
}

void rn_telemetry_cold_writes(const struct rn_context *context, int change)
{
    rn_metrics_count(context->metrics, RN_COUNT_COLD_WRITES, change);
}

void rn_telemetry_move_errors(const struct rn_context *context, uint32_t n)
{
    rn_metrics_count(context->metrics, RN_COUNT_CACHE_ERRORS, n);
}

void rn_telemetry_token(const struct rn_actor *decode, struct rn_request *request, uint64_t now_us)
{
    struct rn_metrics *metrics = request->context->metrics;

    RN_ASSERT(is_running(request->phase) && request->first_token_us <= now_us);
    rn_metrics_count(metrics, RN_COUNT_TOKENS, 1);
    if (request->first_token_us == 0) {
        request->first_token_us = now_us;
        rn_metrics_time(metrics, RN_TIMING_FIRST_TOKEN, now_us - request->submitted_us);
    } else {
        rn_metrics_time(metrics, RN_TIMING_INTER_TOKEN, now_us - request->last_token_us);
    }
    if (request->phase != RN_PHASE_DECODE)
        enter(decode, request, RN_PHASE_DECODE, now_us);
    request->last_token_us = now_us;
}

/* A request that is done: its times as a whole. One without an answer has no first token. */
static void time_request(struct rn_metrics *metrics, const struct rn_request *request)
{
    uint64_t n = rn_request_answered(request);

    RN_ASSERT(request->admitted_us <= request->end_us && request->last_token_us <= request->end_us);
    rn_metrics_time(metrics, RN_TIMING_E2E, request->end_us - request->submitted_us);
    rn_metrics_time(metrics, RN_TIMING_PROMPT_TOKENS, request->n_prompt);
    rn_metrics_time(metrics, RN_TIMING_COMPUTED_TOKENS, request->n_prompt - request->n_cached);
    rn_metrics_time(metrics, RN_TIMING_GENERATION_TOKENS, n);
    if (request->first_token_us == 0)
        return;
    rn_metrics_time(metrics, RN_TIMING_PREFILL, request->first_token_us - request->admitted_us);
    rn_metrics_time(metrics, RN_TIMING_DECODE, request->last_token_us - request->first_token_us);
    rn_metrics_time(metrics, RN_TIMING_INFERENCE, request->last_token_us - request->admitted_us);
    if (n > 1)
        rn_metrics_time(metrics, RN_TIMING_PER_TOKEN, (request->last_token_us - request->first_token_us) / (n - 1));
}

static void log_end(const struct rn_request *request)
{
    static const char *const ends[] = {[RN_OUTCOME_NONE] = "",
                                       [RN_OUTCOME_DONE] = "done",
                                       [RN_OUTCOME_CANCELLED] = "cancelled",
                                       [RN_OUTCOME_FAILED] = "failed"};
    bool labelled = request->label[0] != '\0', failed = request->outcome == RN_OUTCOME_FAILED;

    rn_log(request->context->log, RUNNEL_LOG_DEBUG,
           "%s: stream %llx%s%s: %s, %u tokens of prompt (%u cached), %llu of answer, %llu ms%s%s",
           request->context->metrics->name, (unsigned long long)rn_stream_id(request->slot, request->generation).id,
           labelled ? " " : "", request->label, ends[request->outcome], request->n_prompt, request->n_cached,
           (unsigned long long)rn_request_answered(request),
           (unsigned long long)(request->end_us - request->submitted_us) / 1000, failed ? ": " : "",
           failed ? request->error.message : "");
}

void rn_telemetry_ended(struct rn_actor *detokenizer, struct rn_request *request)
{
    struct rn_metrics *metrics = request->context->metrics;
    bool done = request->outcome == RN_OUTCOME_DONE;
    enum rn_count which = request->outcome == RN_OUTCOME_CANCELLED  ? RN_COUNT_CANCELLED
                          : !done                                   ? RN_COUNT_FAILED
                          : request->finish == RUNNEL_FINISH_LENGTH ? RN_COUNT_LENGTH
                                                                    : RN_COUNT_STOPPED;

    RN_ASSERT(request->outcome != RN_OUTCOME_NONE && request->phase != RN_PHASE_NONE); /* once */
    rn_metrics_count(metrics, which, 1);
    if (done)
        time_request(metrics, request);
    enter(detokenizer, request, RN_PHASE_NONE, request->end_us);
    log_end(request);
}

/* ---- Steps ---- */

/* One thread at a time changes it: decode while no step is in flight, else the backend's, as steps end in their
 * order. */
static void set_since(struct rn_step_times *times, uint64_t ns)
{
    rn_counter_add(&times->verify_since_ns, (int64_t)ns - rn_counter_get(&times->verify_since_ns));
}

void rn_telemetry_step_begun(const struct rn_context *context, struct rn_batch *batch, bool first)
{
    const struct rn_drafter *drafter = context->drafter;

    batch->begin_ns = rn_now_ns(context->clock);
    if (first)
        set_since(context->times, batch->begin_ns);
    rn_counter_add(&context->times->steps_in_flight, 1);
    batch->waited = drafter->kind != RN_DRAFTER_NONE && !drafter->concurrent &&
                    rn_counter_get(&context->times->passes_in_flight) > 0;
}

void rn_telemetry_step_done(struct rn_batch *batch, const struct rn_context *context)
{
    struct rn_step_times *times = context->times;

    batch->end_ns = rn_now_ns(context->clock);
    RN_ASSERT(batch->end_ns >= batch->begin_ns && rn_counter_get(&times->steps_in_flight) > 0);
    rn_counter_add(&times->verify_ns, (int64_t)batch->end_ns - rn_counter_get(&times->verify_since_ns));
    set_since(times, batch->end_ns);
    rn_counter_add(&times->steps_in_flight, -1);
}

/* How long the target has computed in all, up to now. The counters are read one after the other: where a step ends
 * between two of them it is counted once too few or too often, which the caller bounds by its own time. */
static int64_t verified_ns(const struct rn_context *context, uint64_t now_ns)
{
    const struct rn_step_times *times = context->times;
    int64_t since_ns = rn_counter_get(&times->verify_since_ns), all_ns = rn_counter_get(&times->verify_ns);

    return all_ns + (rn_counter_get(&times->steps_in_flight) > 0 ? (int64_t)now_ns - since_ns : 0);
}

void rn_telemetry_draft_begun(const struct rn_context *context, struct rn_pass_times *pass)
{
    pass->begin_ns = rn_now_ns(context->clock);
    pass->begin_verified_ns = verified_ns(context, pass->begin_ns);
    pass->waited = rn_counter_get(&context->times->steps_in_flight) > 0;
    RN_ASSERT(rn_counter_get(&context->times->passes_in_flight) == 0);
    rn_counter_add(&context->times->passes_in_flight, 1);
}

void rn_telemetry_draft_done(const struct rn_context *context, struct rn_pass_times *pass)
{
    pass->end_ns = rn_now_ns(context->clock);
    RN_ASSERT(pass->end_ns >= pass->begin_ns && rn_counter_get(&context->times->passes_in_flight) == 1);
    rn_counter_add(&context->times->passes_in_flight, -1);
    pass->end_verified_ns = verified_ns(context, pass->end_ns);
}

uint64_t rn_telemetry_drafted(const struct rn_context *context, const struct rn_pass_times *pass)
{
    int64_t took_ns = (int64_t)(pass->end_ns - pass->begin_ns);
    int64_t beside_ns = pass->end_verified_ns - pass->begin_verified_ns;

    beside_ns = beside_ns < 0 ? 0 : beside_ns < took_ns ? beside_ns : took_ns;
    if (!context->drafter->concurrent) {
        took_ns -= beside_ns;
        beside_ns = 0;
    }
    RN_ASSERT(took_ns >= 0 && beside_ns <= took_ns);
    rn_metrics_count(context->metrics, RN_COUNT_DRAFT_PASSES, 1);
    rn_metrics_count(context->metrics, RN_COUNT_DRAFT_US, took_ns / 1000);
    rn_metrics_count(context->metrics, RN_COUNT_DRAFT_BESIDE_US, beside_ns / 1000);
    return (uint64_t)took_ns / 1000;
}

/* Those that it has computed: of a step that was stopped none. */
static uint32_t prompt_rows(const struct rn_batch *batch)
{
    uint32_t n = 0;

    if (batch->step.status == RUNNEL_CANCELLED)
        return 0;
    for (uint32_t i = 0; i < batch->n_parts; i++)
        n += batch->parts[i].prompt ? batch->parts[i].n_rows - batch->parts[i].n_repeated : 0;
    return n;
}

static uint32_t drawn_tokens(const struct rn_batch *batch)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < batch->step.n_outs; i++)
        n += batch->outs[i].sample && !batch->outs[i].refuted && batch->outs[i].status == RUNNEL_OK;
    return n;
}

static void trace_step(const struct rn_actor *actor, const struct rn_context *context, const struct rn_batch *batch,
                       uint32_t n_prompt)
{
    const runnel_trace_event event = {
        .kind = RUNNEL_TRACE_STEP,
        .track = actor->id,
        .name = "step",
        .model = context->metrics->name,
        .messages = "",
        .begin_ns = batch->begin_ns,
        .end_ns = batch->end_ns,
        .rows = batch->step.n_rows,
        .sequences = batch->step.n_seqs,
        .prompt_tokens = n_prompt,
        .tokens = drawn_tokens(batch),
    };

    rn_tracer_put(actor->runtime->tracer, actor->thread, &event, NULL);
}

/* Parts of n tokens have one in each place below n. */
static void count_places(struct rn_metrics *metrics, uint32_t first, const uint32_t *n_of_length)
{
    uint32_t n = 0;

    for (uint32_t i = RUNNEL_MAX_DRAFTS; i > 0; i--) {
        n += n_of_length[i];
        if (n > 0)
            rn_metrics_count(metrics, (enum rn_count)(first + i - 1), n);
    }
}

static void count_drafts(struct rn_metrics *metrics, const struct rn_batch *batch)
{
    uint32_t drafted[RUNNEL_MAX_DRAFTS + 1] = {0}, accepted[RUNNEL_MAX_DRAFTS + 1] = {0}, n_accepted = 0, n = 0;
    uint32_t n_right = 0, n_forced = 0, n_compared = 0;

    if (batch->n_drafts == 0)
        return;
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        const struct rn_batch_part *part = &batch->parts[i];

        RN_CHECK(part->n_drafts <= RUNNEL_MAX_DRAFTS && part->n_accepted <= part->n_drafts);
        RN_ASSERT(part->n_compared <= part->n_drafts);
        drafted[part->n_drafts]++;
        accepted[part->n_accepted]++;
        n_accepted += part->n_accepted;
        n_forced += part->by_grammar ? part->n_accepted : 0;
        n += part->n_drafts > 0;
        n_right += part->leaf_offset;
        n_compared += part->n_compared;
    }
    RN_ASSERT(n_right <= n_accepted && n_accepted <= batch->n_drafts && n <= batch->n_drafts);
    rn_metrics_count(metrics, RN_COUNT_DRAFTED, batch->n_drafts);
    rn_metrics_count(metrics, RN_COUNT_ACCEPTED, n_accepted);
    rn_metrics_count(metrics, RN_COUNT_FORCED, n_forced);
    rn_metrics_count(metrics, RN_COUNT_COMPARED, n_compared);
    rn_metrics_count(metrics, RN_COUNT_BRANCHED, batch->n_branches);
    rn_metrics_count(metrics, RN_COUNT_BRANCHED_RIGHT, n_right);
    rn_metrics_count(metrics, RN_COUNT_DRAFTS, n);
    count_places(metrics, RN_COUNT_DRAFTED_AT, drafted);
    count_places(metrics, RN_COUNT_ACCEPTED_AT, accepted);
}

uint64_t rn_telemetry_step(const struct rn_actor *decode, const struct rn_context *context,
                           const struct rn_batch *batch)
{
    struct rn_metrics *metrics = context->metrics;
    uint64_t now_us = rn_now_us(context->clock);
    uint32_t n_prompt = prompt_rows(batch);

    RN_ASSERT(n_prompt <= batch->step.n_rows && batch->step.n_seqs == batch->n_parts);
    rn_metrics_count(metrics, RN_COUNT_STEPS, 1);
    rn_metrics_count(metrics, RN_COUNT_PROMPT_TOKENS, n_prompt);
    count_drafts(metrics, batch);
    rn_metrics_time(metrics, RN_TIMING_STEP, (batch->end_ns - batch->begin_ns) / 1000);
    rn_metrics_time(metrics, RN_TIMING_ITERATION_TOKENS, batch->step.n_rows);
    rn_metrics_time(metrics, RN_TIMING_STEP_SEQUENCES, batch->step.n_seqs);
    if (decode->runtime->tracer != NULL)
        trace_step(decode, context, batch, n_prompt);
    return now_us;
}
