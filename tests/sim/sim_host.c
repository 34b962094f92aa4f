/* The host of the simulation: what it submits and does, and what it is told. See sim.h. */
#include <stdlib.h>
#include <string.h>

#include "actors/grammar/guide.h"
#include "actors/grammar/text.h"
#include "base/rng.h"
#include "tests/sim/sim.h"

/* ---- Being told ---- */

static void take_event(struct sim *sim, struct sim_stream *stream, const runnel_event *event)
{
    sim->n_events++;
    sim_sign(sim, (uint64_t)event->type << 32 | (uint32_t)event->token);
    sim_tell(sim, "host: stream %u is told event %d, token %d, %zu bytes", (uint32_t)(stream - sim->streams),
             (int)event->type, event->token, event->text_bytes);
    sim_check_event(sim, stream, event);
    if (event->type < RUNNEL_EVENT_DONE)
        return;
    stream->ended = true;
    stream->outcome = event->type;
    stream->computed = (runnel_event_type)sim->engine->host.outlets[(uint32_t)event->stream.id].end.type;
    if (stream->computed != stream->outcome &&
        (stream->computed != RUNNEL_EVENT_DONE || stream->outcome != RUNNEL_EVENT_CANCELLED || !stream->may_drop))
        sim_fail(sim, "stream %u: its work ended with %d, and it was told %d", (uint32_t)(stream - sim->streams),
                 (int)stream->computed, (int)stream->outcome);
    stream->finish = event->finish;
    stream->stop = event->stop;
    stream->stop_token = event->stop_token;
    stream->status = event->status;
    stream->usage = event->usage;
    stream->timings = event->timings;
    if (stream->kind == SIM_GENERATES)
        sim->n_outcomes[stream->computed - RUNNEL_EVENT_DONE]++;
    else
        sim_job_ended(sim, stream);
    sim->n_expired += event->status == RUNNEL_TIMEOUT;
}

void sim_on_event(void *user, const runnel_event *event)
{
    struct sim_stream *stream = user;
    struct sim *sim = stream->sim;

    if (sim->telling != NULL)
        sim_fail(sim, "a callback inside a callback");
    sim->telling = stream;
    take_event(sim, stream, event);
    sim->n_live -= stream->ended; /* the slot may be another's inside the callback */
    if (!sim->ending && !sim->failed && sim_has(sim, SIM_ACT_INSIDE) && sim_chance(sim, 10))
        sim_act(sim);
    sim->telling = NULL;
}

size_t sim_deliver(struct sim *sim, size_t max_events)
{
    size_t n = runnel_engine_dispatch(sim->engine, max_events);

    if (max_events > 0 && n > max_events)
        sim_fail(sim, "dispatch of %zu events ran %zu", max_events, n);
    return n;
}

/* One stream that is read with runnel_stream_next; the events it gave. */
static size_t pull_stream(struct sim *sim, struct sim_stream *stream)
{
    size_t most = 1 + sim_pick(sim, 6), n = 0;

    while (n < most && !stream->ended && !sim->failed) {
        runnel_event event;
        runnel_status status = runnel_stream_next(sim->engine, stream->id, 0, &event);

        if (status == RUNNEL_TIMEOUT)
            return n;
        if (status != RUNNEL_OK) {
            sim_fail(sim, "runnel_stream_next of a stream that has not ended: %s", runnel_status_name(status));
            return n;
        }
        take_event(sim, stream, &event);
        sim->n_live -= stream->ended;
        n++;
    }
    return n;
}

size_t sim_pull(struct sim *sim)
{
    size_t n = 0;

    for (uint32_t i = 0; i < sim->n_streams; i++)
        if (sim->streams[i].pull && !sim->streams[i].ended && (sim->ending || sim_chance(sim, 50)))
            n += pull_stream(sim, &sim->streams[i]);
    return n;
}

/* ---- Requests ---- */

static uint32_t put_character(struct sim *sim, char *at)
{
    static const char *const wide[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xef\xbf\xbd"};
    uint8_t byte = sim->plan.alphabet.bytes[sim_pick(sim, sim->plan.alphabet.n)];
    const char *character = wide[sim_pick(sim, 4)];

    if (byte != 0 && byte < 0x80) {
        *at = (char)byte;
        return 1;
    }
    memcpy(at, character, strlen(character));
    return (uint32_t)strlen(character);
}

static void choose_stops(struct sim *sim, struct sim_stream *stream)
{
    if (sim_has(sim, SIM_STOP_STRINGS) && sim_chance(sim, 60))
        stream->n_stops = 1 + sim_pick(sim, SIM_STOPS);
    for (uint32_t i = 0; i < stream->n_stops; i++) {
        uint32_t n = 0;

        for (uint32_t characters = 1 + sim_pick(sim, 3); characters > 0; characters--)
            n += put_character(sim, stream->stops[i] + n);
        stream->stop_list[i] = stream->stops[i];
    }
    if (sim_has(sim, SIM_STOP_TOKENS) && sim_chance(sim, 50))
        stream->n_stop_tokens = 1 + sim_pick(sim, SIM_STOPS);
    for (uint32_t i = 0; i < stream->n_stop_tokens; i++)
        stream->stop_tokens[i] = (int32_t)sim_pick(sim, ORACLE_VOCAB);
}

static void choose_prompt(struct sim *sim, struct sim_stream *stream)
{
    const int32_t *base = sim->prompts[sim_pick(sim, SIM_PROMPTS)];

    stream->as_text = sim_chance(sim, 40);
    stream->n_prompt = 1 + sim_pick(sim, sim_chance(sim, 50) ? 12 : SIM_PROMPT_TOKENS - 1);
    if (sim_has(sim, SIM_SHARED_STEMS)) { /* one stem, and most prompts fit */
        base = sim->prompts[0];
        stream->as_text = false;
        stream->n_prompt = 1 + sim_pick(sim, stream->room > 2 ? stream->room - 2 : 1) % (SIM_PROMPT_TOKENS - 1);
    }
    if (sim_has(sim, SIM_SESSION_FILES)) /* so that many turns fit a session */
        stream->n_prompt = 1 + stream->n_prompt % 12;
    for (uint32_t i = 0; i < stream->n_prompt; i++)
        stream->prompt[i] = base[i] & (stream->as_text ? 0x7f : 0xff);
    if (sim_chance(sim, 50))
        stream->prompt[stream->n_prompt - 1] = (int32_t)sim_pick(sim, 128);
    stream->max_tokens = 1 + (int64_t)sim_pick(sim, sim_chance(sim, 60) ? 12 : 90);
    if (sim_chance(sim, sim_has(sim, SIM_SESSION_FILES) ? 3 : 20))
        stream->max_tokens = sim_chance(sim, 50) ? -1 : 0;
}

/* Not by the run's random numbers: of requests that end with the context the rest stays the same. */
static void choose_shift(struct sim *sim, struct sim_stream *stream)
{
    uint64_t state = sim->seed + 0x7368696674 + sim->tick * 0x10001, bits = rn_splitmix64(&state);

    stream->keep = -1;
    if (!sim_has(sim, SIM_SHIFTS) || bits % 3 != 0)
        return;
    stream->keep = (int64_t)(bits >> 8) % (stream->room / 2 + 1);
    if (stream->max_tokens < 0 || (bits >> 40) % 2 == 0) /* and it has an end */
        stream->max_tokens = (int64_t)((bits >> 44) % 400);
}

static bool is_letter(int32_t token)
{
    return token >= 'a' && token <= 'z';
}

/* Likewise. Of bytes as tokens, or where all are ASCII as text. */
static void choose_grammar(struct sim *sim, struct sim_stream *stream)
{
    const struct oracle_alphabet *alphabet = &sim->plan.alphabet;
    uint64_t state = sim->seed + 0x6772616d + sim->tick * 0x10001, bits = rn_splitmix64(&state);
    struct judge_grammar *g = &stream->grammar;

    *g = (struct judge_grammar){0};
    if (!sim_has(sim, SIM_GRAMMARS) || bits % 2 != 0)
        return;
    g->first = alphabet->bytes[(bits >> 8) % alphabet->n];
    g->second = alphabet->bytes[(bits >> 20) % alphabet->n];
    g->n = 1 + (uint32_t)(bits >> 32) % 40;
    if ((bits & 2) != 0 && alphabet->n <= 12 && alphabet->bytes[0] == 'a' && is_letter(g->first) &&
        is_letter(g->second)) {
        stream->grammar_kind = RUNNEL_GRAMMAR_REGEX;
        snprintf(stream->grammar_text, sizeof stream->grammar_text, "([^%c]|%c%c){%u}", g->first, g->first, g->second,
                 g->n);
    } else {
        stream->grammar_kind = RUNNEL_GRAMMAR_GBNF;
        snprintf(stream->grammar_text, sizeof stream->grammar_text, "root ::= (!<[%d]> | <[%d]> <[%d]>){%u}", g->first,
                 g->first, g->second, g->n);
    }
}

static void fill_grammar(const struct sim_stream *stream, runnel_request *request, runnel_grammar *grammar)
{
    if (stream->grammar.n == 0)
        return;
    runnel_grammar_default(grammar);
    grammar->kind = (uint32_t)stream->grammar_kind;
    grammar->text = stream->grammar_text;
    grammar->text_bytes = strlen(stream->grammar_text);
    request->grammar = grammar;
}

static struct sim_session *choose_session(struct sim *sim, uint32_t model)
{
    uint32_t first = sim_pick(sim, SIM_SESSIONS);

    for (uint32_t i = 0; i < SIM_SESSIONS; i++) {
        struct sim_session *session = &sim->sessions[(first + i) % SIM_SESSIONS];

        if (session->id.id != 0 && session->model == model)
            return session;
    }
    return NULL;
}

/* Further samplers, which change nothing where one token is certain: but each keeps its state, needs its history or
 * its coin, and is drawn from a list. */
static void choose_samplers(struct sim *sim, runnel_samplers *samplers)
{
    static const char *const orders[] = {NULL, "top_k,min_p,temperature,penalties,dry", "xtc;typ_p;temp;mirostat"};

    runnel_samplers_default(samplers);
    samplers->order = orders[sim_pick(sim, 3)];
    samplers->penalty_scope = sim_pick(sim, 2);
    samplers->dry_multiplier = sim_chance(sim, 40) ? 0.5f : 0.0f;
    samplers->dry_base = 1;
    samplers->dry_allowed_length = 1 + sim_pick(sim, 3);
    samplers->dry_tokens = sim_pick(sim, 3) * 7;
    samplers->top_n_sigma = sim_chance(sim, 20) ? 1.0f : 0.0f;
    samplers->typical_p = sim_chance(sim, 20) ? 0.8f : 1.0f;
    samplers->xtc_probability = sim_chance(sim, 30) ? 0.5f : 0.0f;
    samplers->temperature_range = sim_chance(sim, 20) ? 0.2f : 0.0f;
    samplers->mirostat = sim_chance(sim, 30) ? 1 + sim_pick(sim, 2) : 0;
}

static void choose_sampling(struct sim *sim, runnel_sampling *sampling, runnel_samplers *samplers)
{
    if (!sim_has(sim, SIM_SAMPLED))
        return;
    if (sim_chance(sim, 40)) {
        choose_samplers(sim, samplers);
        sampling->samplers = samplers;
    }
    sampling->temperature = (float)sim_pick(sim, 20) * 0.1f;
    sampling->top_k = sim_pick(sim, 3) * 20;
    sampling->top_p = sim_chance(sim, 50) ? 0.9f : 1.0f;
    sampling->min_p = sim_chance(sim, 30) ? 0.1f : 0.0f;
    sampling->repetition_penalty = sim_chance(sim, 30) ? 1.3f : 1.0f;
    sampling->frequency_penalty = sim_chance(sim, 30) ? 0.5f : 0.0f;
    sampling->presence_penalty = sim_chance(sim, 30) ? 1.0f : 0.0f;
    sampling->seed = sim_pick(sim, 1000);
}

static void fill_request(struct sim *sim, struct sim_stream *stream, char *text, runnel_request *request,
                         runnel_samplers *samplers)
{
    runnel_request_default(request);
    if (stream->as_text) {
        for (uint32_t i = 0; i < stream->n_prompt; i++)
            text[i] = (char)stream->prompt[i];
        request->prompt = text;
        request->prompt_bytes = stream->n_prompt;
    } else {
        request->tokens = stream->prompt;
        request->n_tokens = stream->n_prompt;
    }
    request->max_tokens = stream->max_tokens;
    request->context_keep = stream->keep;
    request->stops = stream->stop_list;
    request->n_stops = stream->n_stops;
    request->stop_tokens = stream->stop_tokens;
    request->n_stop_tokens = stream->n_stop_tokens;
    request->want_logits = stream->want_logits;
    request->want_progress = stream->want_progress;
    request->want_logprobs = stream->want_logprobs;
    request->n_top = stream->n_top;
    request->ignore_eos = (uint8_t)sim_chance(sim, 50);
    request->coalesce_bytes = stream->coalesce_bytes;
    request->cache_salt = stream->cache_salt;
    request->tenant = stream->tenant;
    request->priority = stream->priority;
    request->deadline_ms = stream->deadline_ms;
    request->cache_wait = (runnel_cache_wait)sim_pick(sim, 3);
    request->cache_wait_ms = request->cache_wait == RUNNEL_CACHE_DEADLINE ? sim_pick(sim, 50) : 0;
    if (sim_has(sim, SIM_SPECULATE) && sim_chance(sim, 70)) {
        request->draft = RUNNEL_DRAFT_NGRAM; /* or a liar, see sim_new_model */
        if (sim->models[stream->model].drafter != NULL && sim_chance(sim, 80))
            request->draft = sim_chance(sim, 70) ? RUNNEL_DRAFT_MODEL : RUNNEL_DRAFT_NGRAM | RUNNEL_DRAFT_MODEL;
        request->draft_max = sim_pick(sim, RUNNEL_MAX_DRAFTS + 1);
    }
    choose_sampling(sim, &request->sampling, samplers);
    request->on_event = stream->pull ? NULL : sim_on_event;
    request->user = stream;
}

/* Whether the engine's limits on what waits allow one more, of so many bytes per token. */
static bool is_over(const struct sim *sim, const struct sim_stream *stream, const runnel_engine_stats *stats,
                    size_t token_bytes)
{
    uint64_t bytes = sizeof(struct rn_request) + stream->n_prompt * token_bytes +
                     stream->n_stop_tokens * sizeof(int32_t) +
                     (stream->grammar.n > 0 ? sizeof(struct rn_grammar_text) + strlen(stream->grammar_text) +
                                                  rn_guide_row_bytes(ORACLE_VOCAB, ORACLE_VOCAB, true)
                                            : 0);

    for (uint32_t i = 0; i < stream->n_stops; i++)
        bytes += strlen(stream->stops[i]) + 1;
    return (sim->plan.max_queued_tokens > 0 && stats->queued_tokens > 0 &&
            stats->queued_tokens + stream->n_prompt > sim->plan.max_queued_tokens) ||
           (sim->plan.max_queued_bytes > 0 && stats->queued_bytes > 0 &&
            stats->queued_bytes + bytes > sim->plan.max_queued_bytes);
}

/* Whether the engine may say what it says; `known` are the session's tokens as of now. Text counts by its bytes, or,
 * where the engine had to look whether it fits, by its tokens. */
static void check_answer(struct sim *sim, const struct sim_stream *stream, runnel_status status, uint32_t known,
                         const runnel_engine_stats *before, bool importing)
{
    bool no_slot = sim->n_live >= sim->plan.max_streams;
    bool full = no_slot || is_over(sim, stream, before, stream->as_text ? 1 : sizeof(int32_t));
    bool may_be_full = no_slot || is_over(sim, stream, before, sizeof(int32_t));
    bool fits = known + stream->n_prompt + (stream->max_tokens != 0) <= stream->room;

    if (status == RUNNEL_NO_MEMORY   ? sim->faults_armed
        : sim->closing               ? status == RUNNEL_CLOSED
        : status == RUNNEL_NOT_FOUND ? importing
        : status == RUNNEL_OK        ? !full && fits
        : status == RUNNEL_BUSY      ? may_be_full && fits
                                     : status == RUNNEL_CONTEXT && !fits)
        return;
    sim_fail(sim, "a submit got %s with %u of %u streams; %u tokens, %u known, max_tokens %lld, room %u",
             runnel_status_name(status), sim->n_live, sim->plan.max_streams, stream->n_prompt, known,
             (long long)stream->max_tokens, stream->room);
}

static void prepare_stream(struct sim *sim, struct sim_stream *stream, uint32_t model)
{
    const struct rn_backend_limits *limits = &sim->plan.limits;
    uint32_t blocks = (uint32_t)rn_kv_size_positions(limits);

    memset(stream, 0, sizeof *stream);
    stream->sim = sim;
    stream->model = model;
    stream->salt = sim->models[model].oracle->salt;
    stream->room = blocks < limits->context_tokens ? blocks : limits->context_tokens;
    stream->pull = sim_has(sim, SIM_PULL) && sim_chance(sim, 40);
    stream->want_logits = sim_has(sim, SIM_LOGITS) && sim_chance(sim, 30);
    stream->want_progress = sim_has(sim, SIM_PROGRESS) && sim_chance(sim, 50);
    stream->want_logprobs = sim_has(sim, SIM_LOGPROBS) && sim_chance(sim, 50);
    stream->n_top = stream->want_logprobs ? sim_pick(sim, RUNNEL_MAX_TOP_LOGPROBS + 1) : 0;
    if (sim_has(sim, SIM_COALESCE) && !stream->want_logprobs && sim_chance(sim, 60))
        stream->coalesce_bytes = 1 + sim_pick(sim, sim_chance(sim, 50) ? 12 : 400);
    stream->cache_salt = sim_has(sim, SIM_SALTS) ? sim_pick(sim, 3) : 0;
    stream->priority = sim_has(sim, SIM_PRIORITY) ? (int32_t)sim_pick(sim, 4) - 2 : 0;
    stream->tenant = sim_has(sim, SIM_TENANTS) ? sim_pick(sim, 4) : 0;
    stream->deadline_ms = sim_has(sim, SIM_DEADLINES) && sim_chance(sim, 30) ? 1 + sim_pick(sim, 100) : 0;
    choose_prompt(sim, stream);
    choose_stops(sim, stream);
    choose_shift(sim, stream);
    choose_grammar(sim, stream);
}

bool sim_choose_model(struct sim *sim, uint32_t *model)
{
    *model = sim_pick(sim, SIM_MODELS);
    for (uint32_t i = 0; i < SIM_MODELS; i++, *model = (*model + 1) % SIM_MODELS)
        if (sim->models[*model].handle != NULL)
            return true;
    return false;
}

static void act_submit(struct sim *sim)
{
    struct sim_stream *stream = &sim->streams[sim->n_streams];
    struct sim_session *session = NULL;
    char text[SIM_PROMPT_TOKENS];
    runnel_request request;
    runnel_samplers samplers;
    runnel_grammar grammar;
    runnel_error error;
    runnel_status status;
    runnel_engine_stats stats = {.struct_size = sizeof stats};
    uint32_t model, known = 0;

    if (sim->n_streams == SIM_STREAMS || sim->n_streams == sim->plan.n_requests || !sim_choose_model(sim, &model))
        return;
    prepare_stream(sim, stream, model);
    fill_request(sim, stream, text, &request, &samplers);
    fill_grammar(stream, &request, &grammar);
    sim_choose_host(sim, stream, &request, &samplers);
    if (sim_has(sim, SIM_SESSION) && sim_chance(sim, 80) && stream->keep < 0)
        session = choose_session(sim, model);
    if (session != NULL) {
        request.session = session->id;
        stream->session = session->serial;
        known = rn_word_get(&sim->engine->sessions[(uint32_t)session->id.id].n_known);
    }
    runnel_engine_get_stats(sim->engine, &stats);
    status = runnel_generate(sim->models[model].handle, &request, &stream->id, &error);
    sim_sign(sim, 0x400 + (uint64_t)-status);
    sim_tell(sim, "host: submits stream %u, slot %u, session %u: %u tokens, max %lld, %s: %s", sim->n_streams,
             (uint32_t)stream->id.id, stream->session, stream->n_prompt, (long long)stream->max_tokens,
             stream->pull ? "pulled" : "callback", runnel_status_name(status));
    check_answer(sim, stream, status, known, &stats, session != NULL && session->importing);
    sim->n_busy += status == RUNNEL_BUSY;
    if ((error.retry_ms > 0) != (status == RUNNEL_BUSY))
        sim_fail(sim, "a submit got %s and should be tried again in %u ms", runnel_status_name(status), error.retry_ms);
    if (error.status != status)
        sim_fail(sim, "a submit gave %s and the error says %s", runnel_status_name(status),
                 runnel_status_name(error.status));
    if (status != RUNNEL_OK)
        return;
    sim->n_streams++;
    sim->n_live++;
    if (sim_has(sim, SIM_CHURN) && sim_chance(sim, 97)) {
        stream->cancelled = true;
        runnel_stream_cancel(sim->engine, stream->id);
    }
}

/* What must be refused, and change nothing. */
static void act_bad_submit(struct sim *sim)
{
    static const int32_t token = 1, beyond = ORACLE_VOCAB;
    static const char *const broken[] = {"\xff"};
    runnel_request request;
    runnel_stream stream = {0};
    runnel_status status, expected = RUNNEL_INVALID;
    uint32_t model;

    if (!sim_choose_model(sim, &model))
        return;
    runnel_request_default(&request);
    request.tokens = &token;
    request.n_tokens = 1;
    switch (sim_pick(sim, 7)) {
    case 0:
        request.tokens = &beyond;
        break;
    case 1:
        request.n_tokens = 0;
        break;
    case 2:
        request.sampling.top_p = 2.0f;
        break;
    case 3:
        request.max_tokens = -2;
        break;
    case 4:
        request.stops = broken;
        request.n_stops = 1;
        break;
    case 5:
        request.context_keep = (int64_t)rn_kv_size_longest(&sim->plan.limits) / 2 + 1;
        break;
    default:
        request.session.id = 0x12345678u + (1ull << 60); /* never made */
        expected = RUNNEL_NOT_FOUND;
    }
    status = runnel_generate(sim->models[model].handle, &request, &stream, NULL);
    if (status != expected && !(status == RUNNEL_NO_MEMORY && sim->faults_armed) && !sim->closing)
        sim_fail(sim, "a bad submit got %s, not %s", runnel_status_name(status), runnel_status_name(expected));
}

/* ---- Wishes about streams ---- */

static void note_drop(struct sim_stream *stream)
{
    stream->may_drop |= stream->paused && stream->cancelled;
}

/* Also of streams that have ended: their ids must be known for what they are. */
static void act_on_stream(struct sim *sim, uint32_t what)
{
    struct sim_stream *stream;
    runnel_status status, expected;

    if (sim->n_streams == 0)
        return;
    stream = &sim->streams[sim_pick(sim, sim->n_streams)];
    if (stream->ended && sim_chance(sim, 80))
        return;
    expected = stream->ended ? RUNNEL_NOT_FOUND : RUNNEL_OK;
    if (what == 0) {
        status = runnel_stream_cancel(sim->engine, stream->id);
        stream->cancelled = true;
    } else if (what == 1) {
        status = runnel_stream_pause(sim->engine, stream->id);
        stream->paused = true;
    } else {
        status = runnel_stream_resume(sim->engine, stream->id);
        stream->paused = false;
    }
    note_drop(stream);
    sim_sign(sim, 0x500 + what);
    sim_tell(sim, "host: %s stream %u: %s",
             what == 0   ? "cancels"
             : what == 1 ? "pauses"
                         : "resumes",
             (uint32_t)(stream - sim->streams), runnel_status_name(status));
    if (status != expected)
        sim_fail(sim, "%s of stream %u got %s, not %s",
                 what == 0   ? "cancel"
                 : what == 1 ? "pause"
                             : "resume",
                 (uint32_t)(stream - sim->streams), runnel_status_name(status), runnel_status_name(expected));
}

bool sim_resume_some(struct sim *sim)
{
    bool paused = false;

    for (uint32_t i = 0; i < sim->n_streams; i++) {
        if (sim->streams[i].ended || !sim->streams[i].paused)
            continue;
        paused = true;
        if (!sim_chance(sim, 70))
            continue;
        sim->streams[i].paused = false;
        if (runnel_stream_resume(sim->engine, sim->streams[i].id) != RUNNEL_OK)
            sim_fail(sim, "resume of stream %u, which has not ended, was refused", i);
    }
    return paused;
}

/* ---- Sessions and models ---- */

static void act_session_new(struct sim *sim)
{
    struct sim_session *session = &sim->sessions[sim_pick(sim, SIM_SESSIONS)];
    runnel_engine_stats stats = {.struct_size = sizeof stats};
    runnel_session id;
    runnel_status status;
    uint32_t model;

    if (!sim_has(sim, SIM_SESSION) || session->id.id != 0 || sim->n_sessions == SIM_ALL_SESSIONS ||
        !sim_choose_model(sim, &model))
        return;
    runnel_engine_get_stats(sim->engine, &stats);
    status = runnel_session_new(sim->models[model].handle, &id);
    sim_sign(sim, 0x600 + (uint64_t)-status);
    sim_tell(sim, "host: a session of model %u: %s", model, runnel_status_name(status));
    if (status != (stats.sessions < sim->plan.max_sessions ? RUNNEL_OK : RUNNEL_BUSY))
        sim_fail(sim, "with %llu of %u sessions a new one got %s", (unsigned long long)stats.sessions,
                 sim->plan.max_sessions, runnel_status_name(status));
    if (status == RUNNEL_OK)
        *session = (struct sim_session){id, ++sim->n_sessions, model, false};
}

static void act_session_free(struct sim *sim)
{
    struct sim_session *session = &sim->sessions[sim_pick(sim, SIM_SESSIONS)];
    runnel_model *model = sim->models[session->model].handle;

    if (session->id.id == 0)
        return;
    sim_sign(sim, 0x700);
    sim_tell(sim, "host: frees session %u", session->serial);
    if (runnel_session_free(model, session->id) != RUNNEL_OK && !session->importing)
        sim_fail(sim, "a session could not be freed");
    if (runnel_session_free(model, session->id) != RUNNEL_NOT_FOUND)
        sim_fail(sim, "a session could be freed twice");
    session->id.id = 0;
    for (uint32_t i = 0; i < sim->n_streams; i++)
        if (sim->streams[i].session == session->serial && !sim->streams[i].ended)
            sim->streams[i].session_freed = true;
}

static void cancel_streams(struct sim *sim, int32_t model)
{
    for (uint32_t i = 0; i < sim->n_streams; i++)
        if (!sim->streams[i].ended && (model < 0 || sim->streams[i].model == (uint32_t)model)) {
            sim->streams[i].cancelled = true;
            note_drop(&sim->streams[i]);
        }
}

static void act_model(struct sim *sim)
{
    uint32_t model = sim_pick(sim, SIM_MODELS);

    if (sim->models[model].handle == NULL) {
        if (sim_has(sim, SIM_MANY_MODELS) && (sim->models[model].oracle == NULL || sim->models[model].oracle->freed))
            sim_new_model(sim, model);
    } else if (sim_has(sim, SIM_FREE_MODEL) && sim_chance(sim, 30)) {
        cancel_streams(sim, (int32_t)model);
        sim_free_model(sim, model);
    }
}

static void act_engine_free(struct sim *sim)
{
    if (!sim_has(sim, SIM_FREE_ENGINE) || !sim_chance(sim, 10))
        return;
    cancel_streams(sim, -1);
    sim_free_engine(sim);
}

void sim_act(struct sim *sim)
{
    uint32_t burst = sim_has(sim, SIM_BURSTS) && sim_chance(sim, 20) ? 1 + sim_pick(sim, 8) : 1;
    uint32_t what = sim_pick(sim, 100);

    if (sim->telling != NULL && runnel_engine_dispatch(sim->engine, 0) != 0)
        sim_fail(sim, "a dispatch inside a callback ran callbacks");
    if (sim->closing && what >= 75)
        return;
    if (sim_has(sim, SIM_SESSION_FILES) && !sim->closing && sim_chance(sim, 20))
        sim_act_session(sim);
    else if (what < 45)
        for (; burst > 0; burst--)
            act_submit(sim);
    else if (what < 55)
        act_on_stream(sim, sim_has(sim, SIM_CANCEL) ? 0 : 2);
    else if (what < 65)
        act_on_stream(sim, sim_has(sim, SIM_PAUSE) ? 1 : 2);
    else if (what < 70)
        act_on_stream(sim, 2);
    else if (what < 77)
        sim_act_session(sim);
    else if (what < 85)
        act_session_new(sim);
    else if (what < 88)
        act_session_free(sim);
    else if (what < 93)
        act_model(sim);
    else if (what < 98)
        act_bad_submit(sim);
    else
        act_engine_free(sim);
}
