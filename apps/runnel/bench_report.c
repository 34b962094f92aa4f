/* What `runnel bench` prints: a table for people, CSV and JSON for programs. One list of fields makes the latter two,
 * so that they never differ; the help of the command describes it. */
#include <math.h>
#include <string.h>

#include "bench.h"

/* A test's figures against the limits of the machine; NAN where those are not known. */
struct share {
    double bytes_per_token, ops_per_token;
    double bandwidth_percent, peak_percent, limit_percent;
};

static struct share share_of(const struct bench_model *model, const struct bench_result *result)
{
    struct bench_need need = bench_cost_need(&model->cost, &result->test, model->batch_tokens);
    const runnel_machine *m = &model->machine;
    struct share share = {need.bytes, need.integer_ops + need.float_ops, NAN, NAN, NAN};

    if (!model->measured)
        return share;
    share.bandwidth_percent = 100 * result->rate.median * need.bytes / m->read_bytes_per_s;
    share.peak_percent =
        100 * result->rate.median * (need.integer_ops / m->integer_ops_per_s + need.float_ops / m->float_ops_per_s);
    share.limit_percent = fmax(share.bandwidth_percent, share.peak_percent);
    return share;
}

/* ---- Fields ------------------------------------------------------------------------------ */

/* A writer of one row or object: CSV without names, JSON with them, or the CSV head with names only. */
enum form { HEAD, CSV, JSON };
struct row {
    enum form form;
    bool begun;
};

static void put_name(struct row *row, const char *name)
{
    if (row->begun)
        fputc(',', stdout);
    row->begun = true;
    if (row->form == HEAD)
        fputs(name, stdout);
    else if (row->form == JSON)
        printf("\"%s\":", name);
}

/* RFC 4180: quoted where a comma, quote or line end asks for it. */
static void put_csv_text(const char *text)
{
    if (text[strcspn(text, ",\"\r\n")] == '\0') {
        fputs(text, stdout);
        return;
    }
    fputc('"', stdout);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', stdout);
        fputc(*text, stdout);
    }
    fputc('"', stdout);
}

static void put_text(struct row *row, const char *name, const char *text)
{
    put_name(row, name);
    if (row->form == JSON)
        app_json_string(stdout, text, strlen(text));
    else if (row->form == CSV)
        put_csv_text(text);
}

/* NAN: null in JSON, nothing in CSV. */
static void put_number(struct row *row, const char *name, double value)
{
    put_name(row, name);
    if (row->form == JSON)
        app_json_number(stdout, value);
    else if (row->form == CSV && isfinite(value))
        app_number(stdout, value);
}

static void put_count(struct row *row, const char *name, uint64_t value)
{
    put_name(row, name);
    if (row->form != HEAD)
        printf("%llu", (unsigned long long)value);
}

static void put_spread(struct row *row, const char *const names[3], const struct bench_spread *spread, bool known)
{
    put_number(row, names[0], known ? spread->median : NAN);
    put_number(row, names[1], known ? spread->min : NAN);
    put_number(row, names[2], known ? spread->max : NAN);
}

static void put_result(struct row *row, const struct bench_result *result)
{
    static const char *const rate[] = {"tokens_per_s", "tokens_per_s_min", "tokens_per_s_max"};
    static const char *const first[] = {"first_token_ms", "first_token_ms_min", "first_token_ms_max"};
    const struct bench_test *test = &result->test;

    put_text(row, "test", test->decode ? "decode" : "prefill");
    put_count(row, "prompt_tokens", test->decode ? 0 : test->tokens);
    put_count(row, "gen_tokens", test->decode ? test->tokens : 0);
    put_count(row, "streams", test->streams);
    put_count(row, "depth", test->depth);
    put_spread(row, rate, &result->rate, true);
    put_spread(row, first, &result->first_ms, !test->decode);
}

/* NAN: there is nothing that it could be a share of. Looking up n-grams takes no time worth telling. */
static double percent(double part, double whole, bool known)
{
    return known && whole > 0 ? 100 * part / whole : NAN;
}

uint64_t bench_rested(const struct bench_drafts *drafts, runnel_rest *rest)
{
    uint64_t sum = 0;

    *rest = RUNNEL_REST_NONE;
    for (uint32_t i = RUNNEL_REST_NONE + 1; i <= RUNNEL_REST_BROKEN; i++) {
        sum += drafts->rested[i];
        if (drafts->rested[i] > 0 && (*rest == RUNNEL_REST_NONE || drafts->rested[i] > drafts->rested[*rest]))
            *rest = (runnel_rest)i;
    }
    return sum;
}

static void put_drafts(struct row *row, const struct bench_drafts *drafts, bool drafter)
{
    runnel_rest rest;
    uint64_t rested = bench_rested(drafts, &rest);
    double right = percent((double)drafts->accepted, (double)drafts->passes, true) / 100;

    put_count(row, "drafted", drafts->drafted);
    put_count(row, "accepted", drafts->accepted);
    put_number(row, "tokens_per_pass", 1 + right);
    put_count(row, "rested", rested);
    put_text(row, "rest", runnel_rest_name(rest));
    put_number(row, "drafting_percent", percent((double)drafts->draft_us, (double)drafts->run_us, drafter));
    put_number(row, "overlap_percent", percent((double)drafts->beside_us, (double)drafts->draft_us, drafter));
}

static void put_share(struct row *row, const struct share *share)
{
    put_number(row, "bytes_per_token", share->bytes_per_token);
    put_number(row, "ops_per_token", share->ops_per_token);
    put_number(row, "bandwidth_percent", share->bandwidth_percent);
    put_number(row, "peak_percent", share->peak_percent);
    put_number(row, "limit_percent", share->limit_percent);
}

static void put_machine(struct row *row, const struct bench_model *model)
{
    const runnel_machine *m = &model->machine;

    put_number(row, "read_bytes_per_s", model->measured ? m->read_bytes_per_s : NAN);
    put_number(row, "integer_ops_per_s", model->measured ? m->integer_ops_per_s : NAN);
    put_number(row, "float_ops_per_s", model->measured ? m->float_ops_per_s : NAN);
    put_text(row, "level", m->level);
    put_text(row, "cpu", m->cpu);
}

/* Of choices of experts that are apart from their layers those that were on the device; NAN: none are apart. */
static double expert_hits(const struct bench_result *result)
{
    return percent((double)result->expert_hits, (double)(result->expert_hits + result->expert_misses), true);
}

static const char *draft_of(const struct app_options *options)
{
    return options->speculate && strcmp(options->draft, "none") == 0 ? "ngram" : options->draft;
}

static void put_row(const struct app_options *options, const struct bench_model *model,
                    const struct bench_result *result, enum form form)
{
    struct row row = {form, false};
    struct share share = share_of(model, result);

    put_text(&row, "program", "runnel");
    put_text(&row, "model", model->name);
    put_text(&row, "architecture", model->cost.architecture);
    put_text(&row, "format", model->cost.format);
    put_result(&row, result);
    put_count(&row, "repeats", (uint64_t)options->repeats);
    put_count(&row, "threads", model->threads);
    put_count(&row, "batch_tokens", model->batch_tokens);
    put_text(&row, "kv_type", options->kv_type);
    put_count(&row, "chunk_mean", (uint64_t)options->chunk_mean);
    put_text(&row, "device", options->device);
    put_count(&row, "device_layers", model->info.device_layers);
    put_count(&row, "device_experts", model->info.device_experts);
    put_number(&row, "expert_hit_percent", expert_hits(result));
    put_text(&row, "draft", draft_of(options));
    put_drafts(&row, &result->drafts, model->info.draft_parameters > 0);
    put_share(&row, &share);
    put_number(&row, "load_s", model->load_s);
    put_number(&row, "peak_rss_bytes", model->peak_rss_bytes > 0 ? (double)model->peak_rss_bytes : NAN);
    put_count(&row, "file_bytes", model->cost.file_bytes);
    put_count(&row, "weight_bytes", model->info.weight_bytes);
    put_count(&row, "tiled_bytes", model->info.tiled_bytes);
    put_count(&row, "mapped_bytes", model->info.mapped_bytes);
    put_count(&row, "kv_bytes", model->info.kv_bytes);
    put_machine(&row, model);
}

/* ---- Table ------------------------------------------------------------------------------- */

static void print_head(const struct bench_model *model)
{
    const runnel_machine *m = &model->machine;
    double mib = 1.0 / (1 << 20);
    char order[96];

    app_escaped(stdout, model->name, strlen(model->name), 0);
    fputs(": ", stdout);
    app_escaped(stdout, model->cost.architecture, strlen(model->cost.architecture), 0);
    printf(", mostly %s, loaded in %.2f s; memory at most %.0f MiB (file %.0f, keys and values %.0f)\n",
           model->cost.format, model->load_s, (double)model->peak_rss_bytes * mib, (double)model->cost.file_bytes * mib,
           (double)model->info.kv_bytes * mib);
    app_weights_text(&model->info, order, sizeof order);
    printf("weights lie %s\n", order);
    app_layers_text(&model->info, order, sizeof order);
    if (model->info.device_layers > 0)
        printf("layers: %s\n", order);
    app_experts_text(&model->info, order, sizeof order);
    if (model->info.device_experts > 0)
        printf("experts: %s\n", order);
    if (model->measured)
        printf("%s, %s, %u threads on %u memory node%s\n"
               "reads %.1f GB/s (median %.1f), computes %.0f Gop/s in 8 bits, %.0f in floats\n",
               m->cpu, m->level, (unsigned)m->compute_threads, (unsigned)m->memory_nodes,
               m->memory_nodes == 1 ? "" : "s", m->read_bytes_per_s * 1e-9, m->read_median_bytes_per_s * 1e-9,
               m->integer_ops_per_s * 1e-9, m->float_ops_per_s * 1e-9);
    printf("\n  %-8s %7s %8s %7s %11s %23s %13s %6s %6s\n", "test", "tokens", "streams", "depth", "tokens/s", "range",
           "first token", "read", "peak");
}

static void print_line(const struct bench_model *model, const struct bench_result *result)
{
    struct share share = share_of(model, result);
    char range[48], first[32] = "";

    snprintf(range, sizeof range, "%.2f .. %.2f", result->rate.min, result->rate.max);
    if (!result->test.decode)
        snprintf(first, sizeof first, "%.1f ms", result->first_ms.median);
    printf("  %-8s %7u %8u %7u %11.2f %23s %13s", result->test.decode ? "decode" : "prefill",
           (unsigned)result->test.tokens, (unsigned)result->test.streams, (unsigned)result->test.depth,
           result->rate.median, range, first);
    if (model->measured)
        printf(" %4.0f %% %4.0f %%\n", share.bandwidth_percent, share.peak_percent);
    else
        fputc('\n', stdout);
}

/* The part of all decoding that the drafter took. */
static void print_drafting(const struct bench_model *model)
{
    uint64_t draft_us = 0, beside_us = 0, run_us = 0;

    for (size_t i = 0; i < model->n_results; i++) {
        draft_us += model->results[i].drafts.draft_us;
        beside_us += model->results[i].drafts.beside_us;
        run_us += model->results[i].drafts.run_us;
    }
    if (draft_us > 0 && run_us > 0)
        printf("drafting takes %.1f %% of the time, of which %.0f %% beside the model's steps\n",
               100 * (double)draft_us / (double)run_us, 100 * (double)beside_us / (double)draft_us);
}

/* Why there were no drafts, of all tests together. */
static void print_rests(const struct bench_model *model)
{
    struct bench_drafts all = {0};
    runnel_rest rest;
    uint64_t rested;

    for (size_t i = 0; i < model->n_results; i++)
        for (uint32_t k = 0; k <= RUNNEL_REST_BROKEN; k++)
            all.rested[k] += model->results[i].drafts.rested[k];
    rested = bench_rested(&all, &rest);
    if (rested > 0)
        printf("the drafter rested for %llu pass%s of a sequence, mostly because %s\n", (unsigned long long)rested,
               rested == 1 ? "" : "es", runnel_rest_text(rest));
}

/* What came of drafts; right by place: of those that a pass had as its first, as its second ... */
static void print_drafts(const runnel_metrics *m)
{
    printf("drafts: %llu in %llu passes of a sequence, %llu right: %.2f tokens a pass; ",
           (unsigned long long)m->drafted, (unsigned long long)m->drafts, (unsigned long long)m->accepted,
           1 + (double)m->accepted / (double)m->drafts);
    if (m->compared > 0)
        printf("acceptance %.0f %%; ", 100 * (double)(m->accepted - m->branched_right) / (double)m->compared);
    printf("right by place");
    for (uint32_t i = 0; i < RUNNEL_MAX_DRAFTS && m->drafted_at[i] > 0; i++)
        printf(" %.0f", 100 * (double)m->accepted_at[i] / (double)m->drafted_at[i]);
    printf(" %%\n");
}

/* Of all tests together. */
static void print_hits(const struct bench_model *model)
{
    struct bench_result all = {.expert_hits = 0};

    for (size_t i = 0; i < model->n_results; i++) {
        all.expert_hits += model->results[i].expert_hits;
        all.expert_misses += model->results[i].expert_misses;
    }
    if (all.expert_hits + all.expert_misses > 0)
        printf("experts: %.0f %% of choices found theirs on the device\n", expert_hits(&all));
}

static void print_table(const struct bench_model *model, bool first)
{
    if (!first)
        fputc('\n', stdout);
    print_head(model);
    for (size_t i = 0; i < model->n_results; i++)
        print_line(model, &model->results[i]);
    if (model->metrics.drafts > 0)
        print_drafts(&model->metrics);
    print_rests(model);
    print_drafting(model);
    print_hits(model);
}

/* ---- The whole --------------------------------------------------------------------------- */

static void print_json(const struct app_options *options, const struct bench_model *model, bool first)
{
    printf("%s", first ? "{\"runnel\":\"" : "");
    if (first)
        printf("%s\",\n\"results\":[", runnel_version());
    for (size_t i = 0; i < model->n_results; i++) {
        fputs(first && i == 0 ? "\n  {" : ",\n  {", stdout);
        put_row(options, model, &model->results[i], JSON);
        fputc('}', stdout);
    }
}

static void print_csv(const struct app_options *options, const struct bench_model *model, bool first)
{
    if (first) {
        put_row(options, model, &model->results[0], HEAD);
        fputc('\n', stdout);
    }
    for (size_t i = 0; i < model->n_results; i++) {
        put_row(options, model, &model->results[i], CSV);
        fputc('\n', stdout);
    }
}

void bench_report(const struct app_options *options, const struct bench_model *model, bool first)
{
    if (options->json)
        print_json(options, model, first);
    else if (options->csv)
        print_csv(options, model, first);
    else
        print_table(model, first);
}

void bench_report_end(const struct app_options *options)
{
    if (options->json)
        fputs("\n]}\n", stdout);
}
