/* What must hold while the simulation runs, and of every answer. See sim.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "actors/draft/cache.h"
#include "actors/tier/session_job.h"
#include "cache/prefix_node.h"
#include "tests/sim/edges.h"
#include "tests/sim/sim.h"

static uint32_t index_of(const struct sim *sim, const struct sim_stream *stream)
{
    return (uint32_t)(stream - sim->streams);
}

/* ---- Each event ---- */

/* Of the model's distribution: where a grammar leaves no choice, or the host draws, the token need not be the
 * likeliest. */
static void check_logprobs(struct sim *sim, const struct sim_stream *stream, const runnel_event *event)
{
    bool turned = stream->turn > 0 && event->logprob == -ORACLE_HOT;
    bool forced =
        (stream->grammar.n > 0 && event->token == stream->grammar.second && event->logprob == -ORACLE_HOT) || turned;
    int32_t wanted = (event->token + ORACLE_VOCAB - (int32_t)stream->turn) % ORACLE_VOCAB;
    int32_t hot = turned ? wanted : forced && event->n_top > 0 ? event->top[0].token : event->token;

    if (!stream->want_logprobs || event->token < 0)
        return;
    if ((event->logprob != 0.0f && !forced) || event->n_top != stream->n_top)
        sim_fail(sim, "stream %u: logprob %g and %u others", index_of(sim, stream), (double)event->logprob,
                 event->n_top);
    for (uint32_t i = 0; i < event->n_top; i++) {
        int32_t expected = i == 0 ? hot : (int32_t)i - ((int32_t)i <= hot);

        if (event->top[i].token != expected ||
            (i == 0 ? event->top[i].logprob != 0.0f : event->top[i].logprob != -ORACLE_HOT))
            sim_fail(sim, "stream %u: of the best, number %u is token %d at %g", index_of(sim, stream), i,
                     event->top[i].token, (double)event->top[i].logprob);
    }
}

static void take_token(struct sim *sim, struct sim_stream *stream, const runnel_event *event)
{
    if (!judge_utf8(event->text, event->text_bytes))
        sim_fail(sim, "stream %u: a piece of text is not whole UTF-8", index_of(sim, stream));
    if (stream->got_tail || stream->text_bytes + event->text_bytes > sizeof stream->text ||
        stream->n_tokens + event->n_tokens > SIM_EVENT_TOKENS || (event->n_tokens == 0 && event->text_bytes == 0) ||
        (event->n_tokens == 1) != (event->token >= 0)) {
        sim_fail(sim, "stream %u: token event %u cannot be", index_of(sim, stream), stream->n_tokens);
        return;
    }
    if (event->n_tokens > 1 && event->text_bytes > stream->coalesce_bytes)
        sim_fail(sim, "stream %u: %u tokens are joined to %zu bytes, of %u", index_of(sim, stream), event->n_tokens,
                 event->text_bytes, stream->coalesce_bytes);
    check_logprobs(sim, stream, event);
    memcpy(stream->text + stream->text_bytes, event->text, event->text_bytes);
    stream->text_bytes += event->text_bytes;
    stream->got_tail = event->n_tokens == 0;
    sim->n_joined += event->n_tokens > 1 ? event->n_tokens : 0;
    for (uint32_t i = 0; i < event->n_tokens; i++) {
        stream->shifts[stream->n_tokens] = (uint32_t)event->usage.shifts;
        stream->tokens[stream->n_tokens++] = event->token;
    }
}

/* The one hot logit; -1: not one-hot; -2: not numbers. */
static int32_t hot_of(const runnel_event *event)
{
    int32_t hot = -1;

    for (uint32_t i = 0; i < event->n_logits; i++) {
        if (isnan(event->logits[i]))
            return -2;
        if (event->logits[i] == ORACLE_HOT && hot == -1)
            hot = (int32_t)i;
        else if (event->logits[i] != 0.0f)
            return -1;
    }
    return hot;
}

static void take_logits(struct sim *sim, struct sim_stream *stream, const runnel_event *event)
{
    if (stream->n_logits == 0)
        stream->first_logits = event->position;
    if (!stream->want_logits || event->n_logits != ORACLE_VOCAB ||
        event->position != stream->first_logits + stream->n_logits ||
        stream->n_logits == sizeof stream->hot / sizeof stream->hot[0] || stream->n_tokens > 0) {
        sim_fail(sim, "stream %u: logits of position %llu after %llu", index_of(sim, stream),
                 (unsigned long long)event->position, (unsigned long long)stream->n_logits);
        return;
    }
    stream->hot[stream->n_logits++] = hot_of(event);
}

static void take_progress(struct sim *sim, struct sim_stream *stream, const runnel_event *event)
{
    if (!stream->want_progress || event->prompt_done <= stream->progress || event->prompt_done > event->prompt_total ||
        stream->n_tokens > 0 || (stream->progress > 0 && stream->progress_total != event->prompt_total))
        sim_fail(sim, "stream %u: progress %llu of %llu after %llu", index_of(sim, stream),
                 (unsigned long long)event->prompt_done, (unsigned long long)event->prompt_total,
                 (unsigned long long)stream->progress);
    stream->progress = event->prompt_done;
    stream->progress_total = event->prompt_total;
}

void sim_check_event(struct sim *sim, struct sim_stream *stream, const runnel_event *event)
{
    if (event->stream.id != stream->id.id)
        sim_fail(sim, "stream %u was told an event of another", index_of(sim, stream));
    if (stream->ended)
        sim_fail(sim, "stream %u was told an event after its end", index_of(sim, stream));
    if (stream->paused && !(stream->cancelled && event->type >= RUNNEL_EVENT_DONE))
        sim_fail(sim, "stream %u was told an event of type %d while it was paused", index_of(sim, stream),
                 (int)event->type);
    if ((event->type == RUNNEL_EVENT_FAILED) != (event->status != RUNNEL_OK) ||
        (event->type == RUNNEL_EVENT_FAILED) != (event->error[0] != '\0'))
        sim_fail(sim, "stream %u: event %d with status %s", index_of(sim, stream), (int)event->type,
                 runnel_status_name(event->status));
    if (event->type == RUNNEL_EVENT_TOKEN)
        take_token(sim, stream, event);
    else if (event->type == RUNNEL_EVENT_LOGITS)
        take_logits(sim, stream, event);
    else if (event->type == RUNNEL_EVENT_PROGRESS)
        take_progress(sim, stream, event);
}

/* ---- While it runs ---- */

/* What nobody owns may hold anything: make it so. */
static void poison_free(struct oracle *oracle, const struct rn_block_pool *pool)
{
    for (uint32_t i = 0; i < pool->n_free && i < pool->n_blocks; i++)
        if (pool->free_stack[i] < pool->n_blocks)
            oracle_poison_block(oracle, pool->free_stack[i]);
}

static void poison_free_blocks(struct sim_model *model)
{
    const struct rn_state_slots *states = &model->handle->tier.cache.states;
    const struct rn_block_pool *windows = &model->handle->tier.cache.blocks.windows;

    poison_free(model->oracle, &model->handle->tier.cache.blocks.pool);
    for (uint32_t i = 0; i < windows->n_free; i++)
        oracle_poison_window(model->oracle, windows->free_stack[i]);
    for (uint32_t i = 0; i < states->n; i++)
        if (states->slots[i].use == RN_STATE_FREE)
            oracle_poison_state(model->oracle, i);
    if (model->drafter != NULL)
        poison_free(model->drafter, &model->handle->draft.pool);
}

void sim_poison_free(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_MODELS; i++)
        if (sim->models[i].handle != NULL)
            poison_free_blocks(&sim->models[i]);
}

static bool is_waiting(const struct rn_tier *tier, uint32_t slot)
{
    for (const struct rn_request *r = tier->admission.waiting.first; r != NULL; r = r->next)
        if (r->slot == slot)
            return true;
    return false;
}

/* Who stands in the tree is running; who waits for a block stands in the queue, and somebody who runs computes it. */
static void check_paths(struct sim *sim, uint32_t index)
{
    const struct rn_tier *tier = &sim->models[index].handle->tier;

    for (uint32_t slot = 0; slot < sim->plan.max_streams; slot++) {
        const struct rn_cached_stream *stream = &tier->cache.streams[slot];
        enum rn_prefix_path_state state = stream->path.state;
        const struct rn_prefix_path *computing;

        if ((state == RN_PATH_ENTERED && (tier->admission.streams[slot].passed == 0 || !tier->cache.shares)) ||
            state == RN_PATH_TOLD)
            sim_fail(sim, "model %u: the path of slot %u is in state %d", index, slot, (int)state);
        if (state != RN_PATH_WAITING)
            continue;
        computing = tier->cache.blocks.tree.nodes[stream->path.waits_for].computing;
        sim->n_waits++;
        if (!is_waiting(tier, slot))
            sim_fail(sim, "model %u: slot %u waits for a block and is not in the queue", index, slot);
        if (computing == NULL || computing->state != RN_PATH_ENTERED)
            sim_fail(sim, "model %u: slot %u waits for a block that nobody computes", index, slot);
    }
}

/* Blocks are on their way between device and mover. */
static bool copies(const struct sim_model *model)
{
    return model->oracle != NULL && model->oracle->first_copies != NULL;
}

/* A step of the model or of its drafter is in flight: decode may wait for the latter. Or blocks are copied. */
bool sim_wakes(const struct sim_model *model)
{
    return model->handle != NULL && model->handle->decode.waking;
}

static bool computes(const struct sim_model *model)
{
    return copies(model) || sim_wakes(model) || (model->oracle != NULL && model->oracle->first != NULL) ||
           (model->drafter != NULL && model->drafter->first != NULL);
}

/* Object by object, to tell which; rn_tier_check looks at how they agree, too. */
static void check_tier(struct sim *sim, uint32_t index)
{
    const struct rn_tier *tier = &sim->models[index].handle->tier;
    bool acted = sim->models[index].tier_acted;

    sim->models[index].tier_acted = false;
    if (!acted || rn_tier_check(tier))
        return;
    if (!rn_block_pool_check(&tier->cache.blocks.pool))
        sim_fail(sim, "the block pool of model %u is not whole", index);
    if (!rn_prefix_tree_check(&tier->cache.blocks.tree))
        sim_fail(sim, "the prefix tree of model %u is not whole", index);
    if (!rn_prefix_cache_check(&tier->cache))
        sim_fail(sim, "the prefix cache of model %u is not whole", index);
    if (!rn_directory_check(&tier->directory))
        sim_fail(sim, "the directory of lower tiers of model %u is not whole", index);
    if (!rn_admission_check(&tier->admission))
        sim_fail(sim, "the admission of model %u is not whole", index);
    sim_fail(sim, "the objects of model %u's tier do not agree", index);
}

/* A long sketch, which changes with each prompt that is admitted and not otherwise. */
static bool is_ceiling_whole(struct sim_model *model)
{
    const struct rn_hit_ceiling *ceiling = &model->handle->tier.cache.ceiling;

    if (ceiling->n_seen == model->n_seen)
        return true;
    model->n_seen = ceiling->n_seen;
    return rn_hit_ceiling_check(ceiling);
}

static bool is_mover_whole(struct sim_model *model)
{
    bool acted = model->mover_acted;

    model->mover_acted = false;
    return !acted || rn_mover_check(&model->handle->mover);
}

/* The actor of the model whose state is not whole; NULL: all are. */
static const char *broken_actor(const runnel_model *model)
{
    if (!rn_tokenizer_check(&model->tokenizer))
        return "tokenizer";
    if (!rn_prefill_check(&model->prefill))
        return "prefill actor";
    if (!rn_verifier_check(&model->verifier))
        return "verifier";
    if (!rn_decode_check(&model->decode))
        return "decode actor";
    if (!rn_grammar_actor_check(&model->grammar))
        return "grammar actor";
    if (!rn_sampler_actor_check(&model->sampler))
        return "sampler";
    if (!rn_detokenizer_check(&model->detokenizer))
        return "detokenizer";
    if (!rn_fair_queue_check(&model->tier.admission.waiting) || !rn_fair_queue_check(&model->prefill.waiting))
        return "queue of those that wait";
    if (!rn_draft_share_check(&model->verifier.share))
        return "store of answers";
    if (model->draft.drafter != NULL && !rn_draft_cache_check(&model->draft))
        return "drafter's cache";
    for (const struct rn_session_job *job = model->tier.admission.jobs; job != NULL; job = job->next)
        if (!rn_session_job_check(job) || (job->ring != NULL && job != model->tier.admission.jobs))
            return "job of a session's file";
    return NULL;
}

/* No mailbox holds more of a kind than the kind's bound; every actor's state is whole. */
void sim_check_actors(struct sim *sim)
{
    const char *wrong = edges_check_router(sim->engine);

    if (!rn_router_check(&sim->engine->router))
        sim_fail(sim, "the state of the router is not whole");
    if (!rn_runtime_check(&sim->engine->runtime))
        sim_fail(sim, "the list of actors that can run is not whole");
    if (!rn_host_check(&sim->engine->host))
        sim_fail(sim, "the bridge to the host is not whole");
    if (!rn_worker_check(&sim->engine->worker))
        sim_fail(sim, "the worker is not whole");
    if (sim->engine->tracer != NULL && !rn_tracer_check(sim->engine->tracer))
        sim_fail(sim, "the tracer is not whole");
    if (!rn_totals_check(&sim->engine->totals))
        sim_fail(sim, "the engine's totals are not whole");
    for (const struct rn_metrics *m = rn_metrics_first(&sim->engine->metrics); m != NULL; m = m->next)
        if (!rn_metrics_check(m))
            sim_fail(sim, "the metrics of %s do not agree", m->name);
    for (uint32_t i = 0; i < SIM_MODELS && wrong == NULL; i++) {
        const char *broken;

        if (sim->models[i].handle == NULL)
            continue;
        wrong = edges_check_model(sim->models[i].handle);
        broken = is_ceiling_whole(&sim->models[i]) ? broken_actor(sim->models[i].handle) : "hit ceiling";
        if (broken != NULL)
            sim_fail(sim, "the state of model %u's %s is not whole", i, broken);
    }
    if (wrong != NULL)
        sim_fail(sim, "%s", wrong);
}

void sim_check_tick(struct sim *sim)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};

    sim->n_checks++;
    for (uint32_t i = 0; i < SIM_MODELS; i++) {
        if (sim->models[i].handle == NULL)
            continue;
        check_tier(sim, i);
        check_paths(sim, i);
        sim_check_drafter(sim, i);
        if (!is_mover_whole(&sim->models[i]))
            sim_fail(sim, "the tables of model %u's mover are not whole", i);
        if (!rn_draft_actor_check(&sim->models[i].handle->draft))
            sim_fail(sim, "the draft streams of model %u are not whole", i);
        if (!rn_verifier_check(&sim->models[i].handle->verifier))
            sim_fail(sim, "the streams of model %u's verifier are not whole", i);
    }
    runnel_engine_get_stats(sim->engine, &stats);
    if (stats.streams != sim->n_live)
        sim_fail(sim, "the engine counts %llu streams, the host %u", (unsigned long long)stats.streams, sim->n_live);
    for (uint32_t slot = 0; slot < sim->plan.max_streams; slot++) {
        const struct rn_outlet *outlet = &sim->engine->host.outlets[slot];

        uint32_t generation = rn_word_get(&outlet->generation);

        if ((generation & 1) != 0 && rn_outlet_waiting(outlet, generation) > outlet->window + 2)
            sim_fail(sim, "%u events wait for one reader", rn_outlet_waiting(outlet, generation));
    }
}

/* Blocks and lanes that the model's requests hold, wherever they are when nothing is under way. */
struct held {
    uint32_t references[1024];
    uint32_t lanes, shorts, windows;
};

static void count_blocks(struct held *held, const uint32_t *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (blocks[i] != RN_NO_BLOCK)
            held->references[blocks[i] % 1024]++;
}

static void count_request(struct held *held, const struct rn_request *request)
{
    count_blocks(held, request->blocks, request->n_blocks);
    count_blocks(held, request->means, request->n_means);
    for (uint32_t i = 0; i < request->windows.n; i++)
        held->windows += request->windows.blocks[i] != RN_NO_BLOCK;
    if (request->copy != RN_COPY_NONE)
        count_blocks(held, &request->copy_from, 1);
    held->lanes += request->lane == RN_LANE_OWN;
    held->shorts += request->lane == RN_LANE_SHORT;
}

/* The references to a block that the cache holds: of the tree and of the partial blocks. */
static uint32_t n_cached(const struct rn_tier_blocks *blocks, uint32_t block)
{
    return rn_prefix_tree_has(&blocks->tree, block) + rn_partial_blocks_have(&blocks->partials, block);
}

/* Blocks that somebody besides the cache holds. */
static uint64_t blocks_used(const struct rn_tier *tier)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < tier->cache.blocks.pool.n_blocks; i++)
        n += tier->cache.blocks.pool.references[i] > n_cached(&tier->cache.blocks, i);
    return n;
}

/* Of layers with windows: how often they are held, and how often checkpoints hold them. */
static uint64_t window_references(const struct rn_block_pool *windows)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < windows->n_blocks; i++)
        n += windows->references[i];
    return n;
}

static uint64_t marked_blocks(const struct rn_window_marks *marks)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < marks->n; i++)
        n += marks->marks[i].n;
    return n;
}

static void check_owners(struct sim *sim, uint32_t index)
{
    const runnel_model *model = sim->models[index].handle;
    const struct rn_block_pool *pool = &model->tier.cache.blocks.pool;
    struct held held = {.lanes = model->prefill.free_lanes};

    for (const struct rn_session *s = model->tier.admission.sessions; s != NULL; s = s->next)
        count_blocks(&held, s->blocks, s->n_blocks);
    for (const struct rn_request *r = model->prefill.waiting.first; r != NULL; r = r->next)
        count_request(&held, r);
    for (const struct rn_request *r = model->decode.prompts.first; r != NULL; r = r->next)
        count_request(&held, r);
    for (uint32_t i = 0; i < model->decode.n_running; i++)
        count_request(&held, model->decode.running[i]);
    for (uint32_t i = 0; i < pool->n_blocks; i++) {
        uint32_t n = held.references[i] + n_cached(&model->tier.cache.blocks, i);

        /* What the mover has been lent is the tier's to know; with the last of it all is exact again. */
        if (copies(&sim->models[index]) ? pool->references[i] < n : pool->references[i] != n)
            sim_fail(sim, "model %u: block %u has %u references, %u owners and the cache", index, i,
                     pool->references[i], held.references[i]);
    }
    for (const struct rn_request *r = model->tier.admission.waiting.first; r != NULL; r = r->next)
        if (model->tier.cache.streams[r->slot].path.state == RN_PATH_WAITING && model->prefill.waiting.n == 0 &&
            !computes(&sim->models[index]))
            sim_fail(sim, "model %u: slot %u waits for a block, and no step is in flight", index, r->slot);
    if (model->tier.admission.n_inside == 0 && !computes(&sim->models[index]))
        for (const struct rn_request *r = model->tier.admission.waiting.first; r != NULL; r = r->next)
            if (!r->stalled && r->session_generation == 0)
                sim_fail(sim, "model %u: slot %u waits, and nothing runs", index, r->slot);
    if (copies(&sim->models[index]) ? model->tier.cache.blocks.n_used > blocks_used(&model->tier)
                                    : model->tier.cache.blocks.n_used != blocks_used(&model->tier))
        sim_fail(sim, "model %u: the tier counts %u blocks in use", index, model->tier.cache.blocks.n_used);
    if (held.windows + marked_blocks(&model->tier.cache.marks) != window_references(&model->tier.cache.blocks.windows))
        sim_fail(sim, "model %u: %u blocks of windows are held, and others counted", index, held.windows);
    if (held.lanes != RN_PREFILL_LANES)
        sim_fail(sim, "model %u: %u prefill lanes are free or taken, not %d", index, held.lanes, RN_PREFILL_LANES);
    if (held.shorts != model->prefill.n_short)
        sim_fail(sim, "model %u: %u short prompts, counted as %u", index, held.shorts, model->prefill.n_short);
}

/* Nothing can run: then each live stream waits for the host, for a step or a time, or behind one that does. */
static void check_stuck(struct sim *sim)
{
    uint32_t waiting = 0, host_waits = 0, last = 0;

    for (uint32_t i = 0; i < SIM_MODELS; i++)
        host_waits += computes(&sim->models[i]);
    for (uint32_t i = 0; i < sim->n_streams; i++) {
        const struct sim_stream *stream = &sim->streams[i];
        const struct rn_outlet *outlet = &sim->engine->host.outlets[(uint32_t)stream->id.id];
        bool deliverable;

        if (stream->ended)
            continue;
        deliverable = rn_outlet_waiting(outlet, (uint32_t)(stream->id.id >> 32)) > 0 &&
                      (!stream->paused || rn_word_get(&outlet->cancelled) == stream->id.id >> 32);
        waiting++;
        last = i;
        host_waits += stream->paused || deliverable || stream->asked;
        if (deliverable && !stream->pull && atomic_load(&((struct rn_outlet *)(uintptr_t)outlet)->edge.up) == 0)
            sim_fail(sim, "stuck: %u events of stream %u were not announced to the host",
                     rn_outlet_waiting(outlet, (uint32_t)(stream->id.id >> 32)), i);
    }
    if (waiting > 0 && host_waits == 0)
        sim_fail(sim,
                 "stuck: %u streams live, the last is %u; no actor can run, no step is in flight, nothing waits for "
                 "the host",
                 waiting, last);
}

void sim_check_quiet(struct sim *sim)
{
    uint64_t used = 0, counted;
    bool all = true;

    for (uint32_t i = 0; i < SIM_MODELS; i++) {
        if (sim->models[i].handle != NULL) {
            check_owners(sim, i);
            used += blocks_used(&sim->models[i].handle->tier);
            all = all && !copies(&sim->models[i]);
        } else if (sim->models[i].oracle != NULL && !sim->models[i].oracle->freed) {
            all = false;
        }
    }
    counted = rn_metrics_sum(&sim->engine->metrics, RN_COUNT_BLOCKS_USED);
    if (all && counted != used)
        sim_fail(sim, "%llu blocks are counted and %llu are used", (unsigned long long)counted,
                 (unsigned long long)used);
    check_stuck(sim);
}

/* ---- The answers ---- */

struct history {
    int32_t tokens[JUDGE_TOKENS];
    uint32_t n;
};

static void judge_prompt_events(struct sim *sim, const struct sim_stream *stream, const struct history *history)
{
    uint64_t total = (uint64_t)history->n + stream->n_prompt;
    bool complete = stream->outcome == RUNNEL_EVENT_DONE;
    struct oracle_chain chain;

    if (stream->n_logits > 0 && stream->first_logits != history->n)
        sim_fail(sim, "stream %u: the first logits are of position %llu", index_of(sim, stream),
                 (unsigned long long)stream->first_logits);
    if (complete && stream->want_logits && history->n + stream->n_logits != total)
        sim_fail(sim, "stream %u: %llu logits after %u of %llu positions", index_of(sim, stream),
                 (unsigned long long)stream->n_logits, history->n, (unsigned long long)total);
    if (complete && stream->want_progress && (stream->progress != total || stream->progress_total != total))
        sim_fail(sim, "stream %u: progress ended at %llu of %llu", index_of(sim, stream),
                 (unsigned long long)stream->progress, (unsigned long long)total);
    oracle_chain_init(&chain, stream->salt);
    for (uint64_t i = 0; i < stream->first_logits + stream->n_logits && i < total; i++) {
        int32_t hot;

        oracle_chain_push(&chain, i < history->n ? history->tokens[i] : stream->prompt[i - history->n]);
        if (i < stream->first_logits)
            continue;
        hot = stream->hot[i - stream->first_logits];
        if (hot != oracle_chain_next(&chain, &sim->plan.alphabet) && !(hot == -2 && sim_has(sim, SIM_NAN_FAULTS)))
            sim_fail(sim, "stream %u: the logits of position %llu are wrong", index_of(sim, stream),
                     (unsigned long long)i);
    }
}

static void judge_usage(struct sim *sim, const struct sim_stream *stream, const struct history *history)
{
    const runnel_timings *t = &stream->timings;
    bool shares = !sim_has(sim, SIM_NO_PREFIX_CACHE) && !stream->want_logits;
    uint64_t most = shares ? UINT64_MAX : history->n;

    if (stream->usage.prompt_tokens != (uint64_t)history->n + stream->n_prompt || stream->usage.cached_tokens > most ||
        stream->usage.cached_tokens >= stream->usage.prompt_tokens)
        sim_fail(sim, "stream %u: usage says %llu of %llu cached; %u and %u tokens were asked", index_of(sim, stream),
                 (unsigned long long)stream->usage.cached_tokens, (unsigned long long)stream->usage.prompt_tokens,
                 history->n, stream->n_prompt);
    if (stream->usage.warm_tokens + stream->usage.cold_tokens > stream->usage.cached_tokens)
        sim_fail(sim, "stream %u: of %llu cached tokens %llu were warm and %llu cold", index_of(sim, stream),
                 (unsigned long long)stream->usage.cached_tokens, (unsigned long long)stream->usage.warm_tokens,
                 (unsigned long long)stream->usage.cold_tokens);
    sim->n_warm_tokens += stream->usage.warm_tokens;
    sim->n_cold_tokens += stream->usage.cold_tokens;
    sim_judge_cached(sim, stream, history->n);
    if ((t->first_token_us > 0) != (stream->usage.completion_tokens > 0) || t->end_us <= t->admitted_us ||
        (t->first_token_us > 0 && (t->first_token_us <= t->admitted_us || t->end_us <= t->first_token_us)))
        sim_fail(sim, "stream %u: timings %llu, %llu, %llu", index_of(sim, stream), (unsigned long long)t->admitted_us,
                 (unsigned long long)t->first_token_us, (unsigned long long)t->end_us);
}

/* How often the context was full: by the answer alone, however far the sequence had run on. */
static void judge_shifts(struct sim *sim, const struct sim_stream *stream, const struct judge_answer *answer)
{
    uint64_t n = stream->usage.completion_tokens, expected = n > 0 && n <= answer->n ? answer->shifted[n - 1] : 0;

    if (n <= answer->n && (stream->usage.shifts != expected || stream->usage.shifted_tokens != expected * answer->lost))
        sim_fail(sim, "stream %u: %llu shifts of %llu tokens in all, not %llu of %u each", index_of(sim, stream),
                 (unsigned long long)stream->usage.shifts, (unsigned long long)stream->usage.shifted_tokens,
                 (unsigned long long)expected, answer->lost);
    for (uint32_t i = 0; i < stream->n_tokens && i < answer->n; i++)
        if (stream->tokens[i] >= 0 && stream->shifts[i] != answer->shifted[i])
            sim_fail(sim, "stream %u: token %u came with %u shifts, not %u", index_of(sim, stream), i,
                     stream->shifts[i], answer->shifted[i]);
    sim->n_shifts += stream->usage.shifts;
    sim->n_guided += stream->grammar.n > 0 ? stream->usage.completion_tokens : 0;
}

/* The tokens that came; those that were joined are taken to be the right ones: their text is judged. */
static void told_tokens(const struct sim_stream *stream, const struct judge_answer *answer, int32_t *tokens)
{
    for (uint32_t i = 0; i < stream->n_tokens; i++)
        tokens[i] = stream->tokens[i] < 0 && i < answer->n_shown ? answer->tokens[i] : stream->tokens[i];
}

static bool is_text(const struct sim_stream *stream, const struct judge_stops *stops, const int32_t *tokens, bool end)
{
    char text[JUDGE_TEXT];
    int32_t stop;
    size_t n = judge_text(tokens, stream->n_tokens, stops, end, text, &stop);

    return n == stream->text_bytes && memcmp(text, stream->text, n) == 0;
}

/* The tokens and the text that came are those of the right answer, as far as they go. */
static void judge_text_so_far(struct sim *sim, const struct sim_stream *stream, const struct judge_request *request,
                              const struct judge_answer *answer)
{
    bool done = stream->ended && stream->outcome == RUNNEL_EVENT_DONE,
         end = done || (!stream->ended && stream->got_tail);
    int32_t tokens[SIM_EVENT_TOKENS];

    told_tokens(stream, answer, tokens);
    if (stream->n_tokens > answer->n_shown ||
        memcmp(tokens, answer->tokens, stream->n_tokens * sizeof answer->tokens[0]) != 0) {
        uint32_t i = 0;

        while (i < stream->n_tokens && i < answer->n_shown && tokens[i] == answer->tokens[i])
            i++;
        sim_fail(sim, "stream %u: token %u of %u is wrong (%d, not %d)", index_of(sim, stream), i, stream->n_tokens,
                 tokens[i], i < answer->n_shown ? answer->tokens[i] : -1);
        return;
    }
    /* What is held back is told of an answer that is done alone. The last event of a stream that joins may have it
     * before the end is told. */
    if (!is_text(stream, &request->stops, tokens, end) &&
        (stream->ended || stream->coalesce_bytes == 0 || !is_text(stream, &request->stops, tokens, true)))
        sim_fail(sim, "stream %u: %zu bytes of text after %u tokens are not those expected", index_of(sim, stream),
                 stream->text_bytes, stream->n_tokens);
    if (stream->ended && !stream->may_drop && stream->outcome != RUNNEL_EVENT_DONE &&
        stream->usage.completion_tokens != stream->n_tokens)
        sim_fail(sim, "stream %u: %u tokens, and usage says %llu", index_of(sim, stream), stream->n_tokens,
                 (unsigned long long)stream->usage.completion_tokens);
}

static void judge_done(struct sim *sim, const struct sim_stream *stream, const struct judge_answer *answer)
{
    if (!answer->fits || stream->finish != answer->finish || stream->usage.completion_tokens != answer->n)
        sim_fail(sim, "stream %u: done by %s after %llu tokens; right is %s after %u", index_of(sim, stream),
                 stream->finish == RUNNEL_FINISH_STOP ? "stop" : "length",
                 (unsigned long long)stream->usage.completion_tokens,
                 !answer->fits                          ? "no fit"
                 : answer->finish == RUNNEL_FINISH_STOP ? "stop"
                                                        : "length",
                 answer->n);
    if (stream->stop != answer->stop || stream->stop_token != answer->stop_token)
        sim_fail(sim, "stream %u: ended by stop %d or token %d; right is %d or %d", index_of(sim, stream), stream->stop,
                 stream->stop_token, answer->stop, answer->stop_token);
    if (stream->n_tokens != answer->n_shown || stream->text_bytes != answer->text_bytes ||
        memcmp(stream->text, answer->text, answer->text_bytes) != 0)
        sim_fail(sim, "stream %u: %u tokens and %zu bytes came, %u and %zu are right", index_of(sim, stream),
                 stream->n_tokens, stream->text_bytes, answer->n_shown, answer->text_bytes);
}

/* May this request end like that? */
static bool outcome_allowed(const struct sim *sim, const struct sim_stream *stream, const struct judge_answer *answer)
{
    if (stream->outcome != RUNNEL_EVENT_FAILED)
        return stream->outcome == RUNNEL_EVENT_DONE || stream->cancelled;
    switch (stream->status) {
    case RUNNEL_CONTEXT:
        return !answer->fits;
    case RUNNEL_NO_MEMORY:
        return sim_has(sim, SIM_ALLOC_FAULTS);
    case RUNNEL_DEVICE:
        return sim_has(sim, SIM_DEVICE_FAULTS);
    case RUNNEL_NUMERIC:
        return sim_has(sim, SIM_NAN_FAULTS);
    case RUNNEL_NOT_FOUND:
        return stream->session_freed;
    case RUNNEL_INVALID:
        return stream->wrong;
    case RUNNEL_TIMEOUT:
        return stream->deadline_ms > 0 && stream->timings.end_us >= (uint64_t)stream->deadline_ms * 1000;
    default:
        return false;
    }
}

static void judge_stream(struct sim *sim, const struct sim_stream *stream, struct history *history)
{
    const struct judge_request request = {
        .alphabet = &sim->plan.alphabet,
        .salt = stream->salt,
        .history = history->tokens,
        .prompt = stream->prompt,
        .n_history = history->n,
        .n_prompt = stream->n_prompt,
        .max_tokens = stream->max_tokens,
        .room = stream->room,
        .keep = stream->keep,
        .grammar = stream->grammar,
        .turn = stream->turn,
        .stops = {stream->stop_list, stream->n_stops, stream->stop_tokens, stream->n_stop_tokens},
    };
    struct judge_answer answer;

    judge_answer(&request, &answer);
    if (!stream->ended) { /* pulled, and not to its end */
        judge_text_so_far(sim, stream, &request, &answer);
        return;
    }
    if (!outcome_allowed(sim, stream, &answer))
        sim_fail(sim, "stream %u ended with event %d, %s", index_of(sim, stream), (int)stream->outcome,
                 runnel_status_name(stream->status));
    if (stream->timings.admitted_us == 0) {
        if (stream->outcome == RUNNEL_EVENT_DONE || stream->n_tokens > 0 || stream->text_bytes > 0 ||
            stream->n_logits > 0 || stream->usage.completion_tokens > 0)
            sim_fail(sim, "stream %u was not admitted and gave something", index_of(sim, stream));
        return;
    }
    judge_usage(sim, stream, history);
    if (stream->hosted && (stream->usage.drafted_tokens > 0 || (stream->wrong && stream->outcome == RUNNEL_EVENT_DONE)))
        sim_fail(sim, "stream %u drafted, or was done with a choice that is none", index_of(sim, stream));
    judge_prompt_events(sim, stream, history);
    judge_text_so_far(sim, stream, &request, &answer);
    judge_shifts(sim, stream, &answer);
    if (stream->outcome == RUNNEL_EVENT_DONE)
        judge_done(sim, stream, &answer);
    if (stream->usage.completion_tokens > answer.n || sim->failed || stream->outcome == RUNNEL_EVENT_FAILED)
        return;
    /* Prompt and answer become part of the session. */
    memcpy(history->tokens + history->n, stream->prompt, stream->n_prompt * sizeof stream->prompt[0]);
    history->n += stream->n_prompt;
    memcpy(history->tokens + history->n, answer.tokens, stream->usage.completion_tokens * sizeof answer.tokens[0]);
    history->n += (uint32_t)stream->usage.completion_tokens;
}

/* Whether what the session was before the streams from `at` on is known yet, and what it was. */
struct past {
    struct history history;
    bool known;
};

/* What goes on from this session, made before stream `at`, goes on from here. */
static void hand_down(const struct sim *sim, struct past *pasts, uint32_t serial, uint32_t from, uint32_t at)
{
    for (uint32_t child = serial + 1; child <= sim->n_sessions; child++)
        if (sim->origins[child].serial == serial && sim->origins[child].at > from && sim->origins[child].at <= at)
            pasts[child] = pasts[serial];
}

static void judge_jobs(struct sim *sim, const struct past *past, uint32_t serial, uint32_t from, uint32_t at)
{
    for (uint32_t i = 0; i < sim->n_streams; i++) {
        const struct sim_stream *stream = &sim->streams[i];

        if (stream->kind != SIM_GENERATES && stream->origin.serial == serial && stream->origin.at > from &&
            stream->origin.at <= at)
            sim_judge_job(sim, stream, past->history.n, past->known);
    }
}

static void judge_session(struct sim *sim, struct past *pasts, uint32_t serial)
{
    struct past *past = &pasts[serial];
    uint32_t from = 0;

    if (sim->origins[serial].serial == 0)
        past->known = true;
    for (uint32_t i = 0; i <= sim->n_streams && !sim->failed; i++) {
        const struct sim_stream *stream = &sim->streams[i];
        bool last = i == sim->n_streams;

        if (!last && (stream->kind != SIM_GENERATES || stream->session != serial))
            continue;
        /* first what was made before this turn */
        hand_down(sim, pasts, serial, from, last ? UINT32_MAX : i + 1);
        judge_jobs(sim, past, serial, from, last ? UINT32_MAX : i + 1);
        from = i + 1;
        if (last || !past->known)
            continue;
        judge_stream(sim, stream, &past->history);
        if (!stream->ended)
            past->known = false; /* what the later turns continue is not known */
    }
}

/* Requests without a session by themselves; the turns of a session in the order of their submit. */
void sim_judge_all(struct sim *sim)
{
    struct past *pasts = calloc(sim->n_sessions + 1, sizeof *pasts);

    for (uint32_t i = 0; i < sim->n_streams; i++)
        if (sim->streams[i].kind == SIM_IMPORTS && sim->streams[i].outcome != RUNNEL_EVENT_DONE)
            sim_lose(sim, sim->streams[i].imported);
    for (uint32_t i = 0; i < sim->n_streams && !sim->failed; i++)
        if (sim->streams[i].session == 0 && sim->streams[i].kind == SIM_GENERATES) {
            struct history history = {.n = 0};

            judge_stream(sim, &sim->streams[i], &history);
        }
    for (uint32_t serial = 1; serial <= sim->n_sessions && !sim->failed; serial++)
        judge_session(sim, pasts, serial);
    free(pasts);
}
