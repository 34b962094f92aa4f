/* Metrics and trace of a run against what the host was told: every histogram is built again from the timings and
 * usages of the terminal events, and each request's phases must join to its life. See sim.h. */
#include "tests/sim/sim.h"

#include <math.h>
#include <string.h>

/* ---- Histograms ---- */

static void add(runnel_histogram *histogram, double value)
{
    uint32_t bucket = 0;

    while (bucket < histogram->n_edges && value > histogram->edges[bucket])
        bucket++;
    histogram->counts[bucket]++;
    histogram->count++;
    histogram->sum += value;
}

/* `seen` with nothing in it but its edges. */
static runnel_histogram empty(const runnel_histogram *seen)
{
    runnel_histogram histogram = {.n_edges = seen->n_edges};

    memcpy(histogram.edges, seen->edges, sizeof histogram.edges);
    return histogram;
}

static void expect_histogram(struct sim *sim, const char *what, const runnel_histogram *seen,
                             const runnel_histogram *expected)
{
    if (seen->count != expected->count || fabs(seen->sum - expected->sum) > 1e-6 ||
        memcmp(seen->counts, expected->counts, sizeof seen->counts) != 0)
        sim_fail(sim, "metrics: %s has %llu values, sum %g; the events had %llu, %g", what,
                 (unsigned long long)seen->count, seen->sum, (unsigned long long)expected->count, expected->sum);
}

static void expect_requests(struct sim *sim, const runnel_metrics *m)
{
    runnel_histogram first = empty(&m->first_token_s), queue = empty(&m->queue_s), prefill = empty(&m->prefill_s);
    runnel_histogram whole = empty(&m->request_s), prompt = empty(&m->request_prompt_tokens);
    runnel_histogram computed = empty(&m->request_computed_tokens), answer = empty(&m->request_tokens);

    for (uint32_t i = 0; i < sim->n_streams; i++) {
        const struct sim_stream *s = &sim->streams[i];
        const runnel_timings *t = &s->timings;

        if (s->kind != SIM_GENERATES)
            continue;
        if (t->first_token_us != 0)
            add(&first, 1e-6 * (double)t->first_token_us);
        if (t->admitted_us != 0)
            add(&queue, 1e-6 * (double)t->admitted_us);
        if (s->computed != RUNNEL_EVENT_DONE)
            continue;
        if (t->first_token_us != 0)
            add(&prefill, 1e-6 * (double)(t->first_token_us - t->admitted_us));
        add(&whole, 1e-6 * (double)t->end_us);
        add(&prompt, (double)s->usage.prompt_tokens);
        add(&computed, (double)(s->usage.prompt_tokens - s->usage.cached_tokens));
        add(&answer, (double)s->usage.completion_tokens);
    }
    expect_histogram(sim, "first_token_s", &m->first_token_s, &first);
    expect_histogram(sim, "queue_s", &m->queue_s, &queue);
    expect_histogram(sim, "prefill_s", &m->prefill_s, &prefill);
    expect_histogram(sim, "request_s", &m->request_s, &whole);
    expect_histogram(sim, "request_prompt_tokens", &m->request_prompt_tokens, &prompt);
    expect_histogram(sim, "request_computed_tokens", &m->request_computed_tokens, &computed);
    expect_histogram(sim, "request_tokens", &m->request_tokens, &answer);
}

static void expect(struct sim *sim, const char *what, uint64_t seen, uint64_t expected)
{
    if (seen != expected)
        sim_fail(sim, "metrics: %s is %llu and should be %llu", what, (unsigned long long)seen,
                 (unsigned long long)expected);
}

/* What requests that were admitted had cached, as their ends said. */
static void expect_cached(struct sim *sim, const runnel_metrics *m)
{
    uint64_t prompts = 0, cached = 0, told = 0, lower = 0;

    for (uint32_t i = 0; i < sim->n_streams; i++) {
        const struct sim_stream *s = &sim->streams[i];

        if (s->kind != SIM_GENERATES)
            continue;
        told += s->usage.completion_tokens;
        if (s->timings.admitted_us == 0)
            continue;
        prompts += s->usage.prompt_tokens;
        cached += s->usage.cached_tokens;
        lower += s->usage.warm_tokens + s->usage.cold_tokens + s->usage.shared_tokens;
    }
    expect(sim, "prefix_queries", m->prefix_queries, prompts);
    expect(sim, "prefix_hits", m->prefix_hits, cached);
    expect(sim, "hits of lower tiers", m->warm_hits + m->cold_hits + m->shared_hits, lower);
    if (m->tokens < told)
        sim_fail(sim, "metrics: %llu tokens, and %llu were told of", (unsigned long long)m->tokens,
                 (unsigned long long)told);
}

/* What the models' backends have been given, those of models that are gone included. */
static void expect_steps(struct sim *sim, const runnel_metrics *m)
{
    expect(sim, "steps", m->steps, sim->n_model_steps);
    expect(sim, "step_s", m->step_s.count, sim->n_model_steps);
    expect(sim, "step_sequences", m->step_sequences.count, sim->n_model_steps);
    expect(sim, "rows", (uint64_t)m->step_rows.sum, sim->n_model_rows);
    expect(sim, "first_token_s and inter_token_s", m->first_token_s.count + m->inter_token_s.count, m->tokens);
    if (m->prompt_tokens > sim->n_model_rows)
        sim_fail(sim, "metrics: more positions of prompts than rows");
}

/* The engine's sums are of the same counters. */
static void expect_stats(struct sim *sim, const runnel_metrics *m)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};

    runnel_engine_get_stats(sim->engine, &stats);
    expect(sim, "tokens of stats", stats.tokens, m->tokens);
    expect(sim, "prompt_tokens of stats", stats.prompt_tokens, m->prompt_tokens);
    expect(sim, "steps of stats", stats.steps, m->steps);
    expect(sim, "prefix_hit_tokens of stats", stats.prefix_hit_tokens, m->prefix_hits);
    expect(sim, "prefix_missed_tokens of stats", stats.prefix_missed_tokens, m->prefix_queries - m->prefix_hits);
    expect(sim, "evicted_blocks of stats", stats.evicted_blocks, m->evicted_blocks);
    expect(sim, "preemptions of stats", stats.preemptions, m->preemptions);
    expect(sim, "blocks_used of stats", stats.blocks_used, m->blocks_used);
    expect(sim, "blocks_total of stats", stats.blocks_total, m->blocks_total);
    expect(sim, "sessions", m->sessions, stats.sessions);
}

/* Blocks that there are, and, where no model has gone, those that the trees gave up. */
static void expect_blocks(struct sim *sim, const runnel_metrics *m)
{
    uint64_t total = 0, evicted = 0;
    bool all = true;

    for (uint32_t i = 0; i < SIM_MODELS; i++) {
        const struct sim_model *model = &sim->models[i];

        all = all && model->n_lives == (model->handle != NULL);
        if (model->handle == NULL) {
            all = all && (model->oracle == NULL || model->oracle->freed);
            continue;
        }
        total += model->handle->parts.limits.n_blocks;
        evicted += rn_prefix_tree_stats(&model->handle->tier.cache.blocks.tree).evicted +
                   model->handle->tier.cache.blocks.partials.n_evicted;
    }
    if (!all)
        return;
    expect(sim, "blocks_total", m->blocks_total, total);
    expect(sim, "evicted_blocks", m->evicted_blocks, evicted);
}

/* ---- The trace ---- */

void sim_on_trace(void *user, const runnel_trace_event *event)
{
    struct sim *sim = user;
    struct sim_stream *stream = NULL;

    if (event->end_ns < event->begin_ns)
        sim_fail(sim, "trace: %s ends before it begins", event->name);
    if (event->kind == RUNNEL_TRACE_ACTOR) {
        if (event->begin_ns < sim->actor_end_ns) /* one thread: no two at once */
            sim_fail(sim, "trace: %s overlaps the one before", event->name);
        sim->actor_end_ns = event->end_ns;
        return;
    }
    if (event->kind == RUNNEL_TRACE_STEP) {
        sim->n_trace_steps++;
        sim->n_trace_prompt += event->prompt_tokens;
        return;
    }
    for (uint32_t i = sim->n_streams; i > 0 && stream == NULL; i--)
        if (sim->streams[i - 1].id.id == event->stream)
            stream = &sim->streams[i - 1];
    if (stream == NULL) {
        sim_fail(sim, "trace: %s of no stream", event->name);
        return;
    }
    sim->n_trace_queued += strcmp(event->name, "queued") == 0;
    if (stream->phase_end_ns == 0)
        stream->phase_begin_ns = event->begin_ns;
    else if (stream->phase_end_ns != event->begin_ns)
        sim_fail(sim, "trace: %s does not begin where the phase before ended", event->name);
    stream->phase_end_ns = event->end_ns;
}

static void expect_phases(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n_streams; i++) {
        const struct sim_stream *s = &sim->streams[i];

        if (s->kind == SIM_GENERATES && s->phase_end_ns - s->phase_begin_ns != 1000 * s->timings.end_us)
            sim_fail(sim, "trace: the phases of stream %u are %llu ns long, its life %llu us", i,
                     (unsigned long long)(s->phase_end_ns - s->phase_begin_ns), (unsigned long long)s->timings.end_us);
    }
}

/* ---- The whole ---- */

void sim_check_metrics(struct sim *sim)
{
    runnel_metrics m = {.struct_size = sizeof m};

    runnel_engine_metrics(sim->engine, &m);
    expect(sim, "requests", m.requests, sim->n_streams - sim->n_jobs);
    expect(sim, "stopped + length", m.stopped + m.length, sim->n_outcomes[0]);
    expect(sim, "cancelled", m.cancelled, sim->n_outcomes[1]);
    expect(sim, "failed", m.failed, sim->n_outcomes[2]);
    expect(sim, "refused", m.refused, sim->n_busy);
    expect(sim, "running", m.running, 0);
    expect(sim, "waiting", m.waiting, 0);
    expect(sim, "queued_tokens", m.queued_tokens, 0);
    expect_steps(sim, &m);
    expect_cached(sim, &m);
    expect_blocks(sim, &m);
    expect_stats(sim, &m);
    expect_requests(sim, &m);
    sim->n_adopted = m.cache_adopted;
    sim->n_branches = m.draft_branches;
    sim->n_branches_right = m.draft_branches_right;
    sim->n_forced = m.forced;
    sim->n_cut = m.cut;
    if (m.draft_branches_right > m.draft_branches)
        sim_fail(sim, "metrics: more branches of drafters came true than were begun");
    if (sim->engine->tracer == NULL)
        return;
    rn_tracer_drain(sim->engine->tracer);
    expect(sim, "trace_dropped", m.trace_dropped, 0);
    expect(sim, "steps of the trace", sim->n_trace_steps, sim->n_model_steps);
    expect(sim, "prompts of the trace", sim->n_trace_prompt, m.prompt_tokens);
    expect(sim, "waits of the trace", sim->n_trace_queued, m.requests + m.preemptions + m.context_shifts);
    if (m.context_shifts < sim->n_shifts)
        sim_fail(sim, "metrics: %llu shifts, and answers were told %llu", (unsigned long long)m.context_shifts,
                 (unsigned long long)sim->n_shifts);
    expect_phases(sim);
}
