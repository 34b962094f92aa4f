/* Text, tokens, templates, grammars and prompts with a gap. */
#include <runnel_fields.h>
#include <stdio.h>
#include <string.h>

#include "jobs.h"
#include "parse.h"

/* ---- Tokens -------------------------------------------------------------------------------- */

static bool parse_tokenize(napi_env env, const napi_value *arguments, struct job *job)
{
    return job_parse_text(env, arguments, job) && napi_get_value_int64(env, arguments[1], &job->number) == napi_ok;
}

static runnel_status fill_tokens(struct job *job, void *out, size_t capacity, size_t *n)
{
    return runnel_tokenize(job->model, job->text, job->text_bytes, (uint32_t)job->number, out, capacity, n);
}

/* Of calls that fill no error. */
static void explain_invalid(struct job *job, const char *why)
{
    if (job->status != RUNNEL_INVALID)
        return;
    job->error.status = job->status;
    snprintf(job->error.message, sizeof job->error.message, "%s", why);
}

static void run_tokenize(struct job *job)
{
    job_fill(job, sizeof(int32_t), job->text_bytes / 2 + 8, fill_tokens);
    explain_invalid(job, "the text is not UTF-8, or has 2 GiB or more");
}

static bool parse_detokenize(napi_env env, const napi_value *arguments, struct job *job)
{
    return fields_tokens(env, &job->arena, "tokens", arguments[0], &job->tokens, &job->n_tokens) &&
           napi_get_value_int64(env, arguments[1], &job->number) == napi_ok;
}

static runnel_status fill_text(struct job *job, void *out, size_t capacity, size_t *n)
{
    return runnel_detokenize(job->model, job->tokens, job->n_tokens, job->number != 0, out, capacity, n);
}

static void run_detokenize(struct job *job)
{
    job_fill(job, 1, job->n_tokens * 8 + 8, fill_text);
    explain_invalid(job, "one of the tokens is not in the vocabulary");
}

static bool parse_token(napi_env env, const napi_value *arguments, struct job *job)
{
    return fields_token(env, "token", arguments[0], &job->token) &&
           napi_get_value_int64(env, arguments[1], &job->number) == napi_ok;
}

static runnel_status fill_token_text(struct job *job, void *out, size_t capacity, size_t *n)
{
    return runnel_token_text(job->model, job->token, job->number != 0, out, capacity, n);
}

static void run_token_text(struct job *job)
{
    job_fill(job, 1, 16, fill_token_text);
    explain_invalid(job, "the token is not in the vocabulary");
}

/* ---- Chats --------------------------------------------------------------------------------- */

static bool parse_chat(napi_env env, const napi_value *arguments, struct job *job)
{
    runnel_chat *chat = arena_alloc(&job->arena, sizeof *chat);
    struct target target = {.fields = fields_chat, .base = chat};

    if (chat == NULL)
        return addon_fail(env, RUNNEL_NO_MEMORY, NULL) != NULL;
    runnel_chat_default(chat);
    job->state = chat;
    return fields_read(env, &job->arena, arguments[0], &target, 1);
}

static runnel_status fill_template(struct job *job, void *out, size_t capacity, size_t *n)
{
    return runnel_apply_template(job->model, job->state, out, capacity, n, &job->error);
}

static void run_apply(struct job *job)
{
    job_fill(job, 1, 4096, fill_template);
}

static runnel_status fill_chat(struct job *job, void *out, size_t capacity, size_t *n)
{
    return runnel_tokenize_chat(job->model, job->state, out, capacity, n, &job->error);
}

static void run_tokenize_chat(struct job *job)
{
    job_fill(job, sizeof(int32_t), 1024, fill_chat);
}

/* renderTemplate(undefined, template, context, nowS) */
static bool parse_render(napi_env env, const napi_value *arguments, struct job *job)
{
    return job_parse_text(env, arguments, job) &&
           fields_text(env, &job->arena, "context", arguments[1], &job->path, &job->path_bytes) &&
           napi_get_value_int64(env, arguments[2], &job->number) == napi_ok;
}

static runnel_status fill_render(struct job *job, void *out, size_t capacity, size_t *n)
{
    return runnel_render_template(job->text, job->text_bytes, job->path, job->path_bytes, job->number, out, capacity, n,
                                  &job->error);
}

static void run_render(struct job *job)
{
    job_fill(job, 1, 4096, fill_render);
}

static runnel_template_info *new_info(struct job *job)
{
    runnel_template_info *info = arena_alloc(&job->arena, sizeof *info);

    job->out = info;
    if (info == NULL)
        job->status = RUNNEL_NO_MEMORY;
    else
        info->struct_size = sizeof *info;
    return info;
}

static void run_model_template(struct job *job)
{
    runnel_template_info *info = new_info(job);

    if (info != NULL)
        job->status = runnel_model_template(job->model, (uint32_t)job->number, info, &job->error);
}

static void run_file_template(struct job *job)
{
    runnel_template_info *info = new_info(job);

    if (info != NULL)
        job->status = runnel_file_template(job->file, (uint32_t)job->number, info, &job->error);
}

static void run_inspect_template(struct job *job)
{
    runnel_template_info *info = new_info(job);

    if (info != NULL)
        job->status = runnel_inspect_template(job->text, job->text_bytes, info, &job->error);
}

static napi_value template_result(napi_env env, struct job *job)
{
    return fields_write(env, fields_of("runnel_template_info"), job->out);
}

/* ---- Recommended sampling ------------------------------------------------------------------ */

struct recommended {
    runnel_sampling sampling;
    runnel_samplers samplers;
    uint32_t of_sampling, of_samplers;
};

static void run_sampling(struct job *job)
{
    struct recommended *r = arena_alloc(&job->arena, sizeof *r);
    runnel_request request;

    job->out = r;
    if (r == NULL) {
        job->status = RUNNEL_NO_MEMORY;
        return;
    }
    runnel_request_default(&request);
    r->sampling = request.sampling;
    runnel_samplers_default(&r->samplers);
    job->status = job->file != NULL ? runnel_file_sampling(job->file, &r->sampling, &r->of_sampling)
                                    : runnel_model_sampling(job->model, &r->sampling, &r->of_sampling);
    if (job->status == RUNNEL_OK)
        job->status = job->file != NULL ? runnel_file_samplers(job->file, &r->samplers, &r->of_samplers)
                                        : runnel_model_samplers(job->model, &r->samplers, &r->of_samplers);
}

/* The values that are recommended, as options of a request. */
static napi_value sampling_result(napi_env env, struct job *job)
{
    const struct recommended *r = job->out;
    uint32_t flags = r->of_sampling | r->of_samplers;
    const struct {
        const char *name;
        uint32_t flag;
        double value;
    } rows[] = {{"temperature", RUNNEL_RECOMMENDED_TEMPERATURE, (double)r->sampling.temperature},
                {"topK", RUNNEL_RECOMMENDED_TOP_K, r->sampling.top_k},
                {"topP", RUNNEL_RECOMMENDED_TOP_P, (double)r->sampling.top_p},
                {"minP", RUNNEL_RECOMMENDED_MIN_P, (double)r->sampling.min_p},
                {"repetitionPenalty", RUNNEL_RECOMMENDED_REPETITION_PENALTY, (double)r->sampling.repetition_penalty},
                {"penaltyTokens", RUNNEL_RECOMMENDED_PENALTY_TOKENS, r->sampling.penalty_tokens},
                {"xtcProbability", RUNNEL_RECOMMENDED_XTC_PROBABILITY, (double)r->samplers.xtc_probability},
                {"xtcThreshold", RUNNEL_RECOMMENDED_XTC_THRESHOLD, (double)r->samplers.xtc_threshold},
                {"mirostat", RUNNEL_RECOMMENDED_MIROSTAT, r->samplers.mirostat},
                {"mirostatTau", RUNNEL_RECOMMENDED_MIROSTAT_TAU, (double)r->samplers.mirostat_tau},
                {"mirostatEta", RUNNEL_RECOMMENDED_MIROSTAT_ETA, (double)r->samplers.mirostat_eta}};
    napi_value object;

    if (napi_create_object(env, &object) != napi_ok)
        return NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if ((flags & rows[i].flag) != 0)
            addon_set(env, object, rows[i].name, addon_number(env, rows[i].value));
    return object;
}

/* ---- Checks and gaps ----------------------------------------------------------------------- */

static bool parse_request(napi_env env, const napi_value *arguments, struct job *job)
{
    struct parsed *parsed = arena_alloc(&job->arena, sizeof *parsed);

    job->state = parsed;
    if (parsed == NULL)
        return addon_fail(env, RUNNEL_NO_MEMORY, NULL) != NULL;
    return parse_options(env, &job->arena, arguments[0], parsed);
}

static void run_grammar_check(struct job *job)
{
    job->status = runnel_grammar_check(job->model, &((struct parsed *)job->state)->request, &job->error);
}

static void run_sampling_check(struct job *job)
{
    job->status = runnel_sampling_check(job->model, &((struct parsed *)job->state)->request, &job->error);
}

static bool parse_infill(napi_env env, const napi_value *arguments, struct job *job)
{
    runnel_infill *infill = arena_alloc(&job->arena, sizeof *infill);
    struct target target = {.fields = fields_of("runnel_infill"), .base = infill};

    if (infill == NULL)
        return addon_fail(env, RUNNEL_NO_MEMORY, NULL) != NULL;
    runnel_infill_default(infill);
    job->state = infill;
    return fields_read(env, &job->arena, arguments[0], &target, 1);
}

static runnel_status fill_infill(struct job *job, void *out, size_t capacity, size_t *n)
{
    return runnel_tokenize_infill(job->model, job->state, out, capacity, n, &job->error);
}

static void run_infill(struct job *job)
{
    job_fill(job, sizeof(int32_t), 1024, fill_infill);
}

void text_export(napi_env env, napi_value exports)
{
    static const struct operation operations[] = {
        {"tokenize", JOB_OF_MODEL, 2, parse_tokenize, run_tokenize, job_tokens},
        {"detokenize", JOB_OF_MODEL, 2, parse_detokenize, run_detokenize, job_bytes},
        {"tokenText", JOB_OF_MODEL, 2, parse_token, run_token_text, job_bytes},
        {"applyTemplate", JOB_OF_MODEL, 1, parse_chat, run_apply, job_text},
        {"tokenizeChat", JOB_OF_MODEL, 1, parse_chat, run_tokenize_chat, job_tokens},
        {"renderTemplate", JOB_OF_NOTHING, 3, parse_render, run_render, job_text},
        {"modelTemplate", JOB_OF_MODEL, 1, job_parse_number, run_model_template, template_result},
        {"fileTemplate", JOB_OF_FILE, 1, job_parse_number, run_file_template, template_result},
        {"inspectTemplate", JOB_OF_NOTHING, 1, job_parse_text, run_inspect_template, template_result},
        {"modelSampling", JOB_OF_MODEL, 0, NULL, run_sampling, sampling_result},
        {"fileSampling", JOB_OF_FILE, 0, NULL, run_sampling, sampling_result},
        {"grammarCheck", JOB_OF_MODEL, 1, parse_request, run_grammar_check, NULL},
        {"samplingCheck", JOB_OF_MODEL, 1, parse_request, run_sampling_check, NULL},
        {"tokenizeInfill", JOB_OF_MODEL, 1, parse_infill, run_infill, job_tokens}};

    jobs_export(env, exports, operations, sizeof operations / sizeof operations[0]);
}
