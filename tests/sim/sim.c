/* The simulation's run of one seed: see sim.h. */
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/sim/cuda_oracle.h"

/* A run that is not quiet after so many turns of its end will never be. */
#define END_TURNS 20000
#define CHECK_EVERY 8

uint32_t sim_pick(struct sim *sim, uint32_t n)
{
    return (uint32_t)((rn_splitmix64(&sim->rng) >> 32) * n >> 32);
}

bool sim_chance(struct sim *sim, uint32_t percent)
{
    return sim_pick(sim, 100) < percent;
}

bool sim_has(const struct sim *sim, enum sim_feature feature)
{
    return (sim->plan.features >> feature & 1) != 0;
}

void sim_sign(struct sim *sim, uint64_t what)
{
    uint64_t state = sim->signature ^ what;

    sim->signature = rn_splitmix64(&state);
}

void sim_tell(struct sim *sim, const char *format, ...)
{
    va_list args;

    if (sim->story == NULL)
        return;
    fprintf(sim->story, "%6llu ", (unsigned long long)sim->tick);
    va_start(args, format);
    vfprintf(sim->story, format, args);
    va_end(args);
    fputc('\n', sim->story);
    fflush(sim->story);
}

void sim_fail(struct sim *sim, const char *format, ...)
{
    va_list args;
    int n;

    if (sim->failed)
        return;
    sim->failed = true;
    n = snprintf(sim->failure, sizeof sim->failure, "tick %llu: ", (unsigned long long)sim->tick);
    va_start(args, format);
    vsnprintf(sim->failure + n, sizeof sim->failure - (size_t)n, format, args);
    va_end(args);
}

/* ---- What the engine is given: memory, time, a trace ---- */

static void *hook_alloc(void *user, size_t bytes, size_t alignment)
{
    struct sim *sim = user;
    void *ptr = NULL;

    if (sim->faults_armed && sim_pick(sim, 25) == 0)
        return NULL;
    if (posix_memalign(&ptr, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes) != 0)
        return NULL;
    memset(ptr, 0xcd, bytes); /* rubbish, but the same in each run */
    sim->live_bytes += bytes;
    sim->live_allocations++;
    return ptr;
}

static void hook_free(void *user, void *ptr, size_t bytes)
{
    struct sim *sim = user;

    memset(ptr, 0xdd, bytes);
    sim->live_bytes -= bytes;
    sim->live_allocations--;
    free(ptr);
}

/* Strictly ascending, so that 0 in a timing means "never". */
static uint64_t now_us(void *user)
{
    return ++((struct sim *)user)->now_us;
}

static uint32_t slot_of(const struct rn_msg *msg)
{
    switch ((enum rn_message_kind)msg->head.kind) {
    case RN_MSG_SUBMIT:
    case RN_MSG_ENCODE:
    case RN_MSG_ADMIT:
    case RN_MSG_PREFILL:
    case RN_MSG_OFFER:
    case RN_MSG_END:
    case RN_MSG_RETIRE:
    case RN_MSG_PREEMPTED:
        return msg->request.request->slot;
    case RN_MSG_CANCEL:
    case RN_MSG_EXPIRE:
    case RN_MSG_CREDIT:
    case RN_MSG_STOPPED:
    case RN_MSG_GROW:
    case RN_MSG_PREEMPT:
    case RN_MSG_READY:
    case RN_MSG_HALT:
        return msg->stream.slot;
    case RN_MSG_GRANT:
    case RN_MSG_UNGRANT:
        return msg->grant.slot;
    case RN_MSG_ENDED:
        return msg->ended.slot;
    case RN_MSG_SESSION_FORK:
        return msg->fork.slot;
    case RN_MSG_JOB_DONE:
        return msg->job.job->request->slot;
    case RN_MSG_SESSION_NEW:
    case RN_MSG_SESSION_FREE:
        return msg->session.slot;
    default:
        return 0;
    }
}

static void trace(void *user, const struct rn_actor *actor, const struct rn_msg *msg)
{
    struct sim *sim = user;

    for (uint32_t m = 0; m < SIM_MODELS; m++) {
        struct sim_model *model = &sim->models[m];

        model->mover_acted |= model->handle != NULL && actor == &model->handle->mover.actor;
        model->tier_acted |= model->handle != NULL && actor == &model->handle->tier.actor;
    }
    sim_sign(user, (uint64_t)actor->id << 40 | (uint64_t)msg->head.kind << 32 | slot_of(msg));
    sim_tell(user, "actor %u %s: %s of slot %u", actor->id, actor->class->name, rn_message_name(msg->head.kind),
             slot_of(msg));
}

/* ---- Models ---- */

/* Behind the tail of a prompt, which others copy. */
static bool is_behind_tail(const struct rn_tier *tier, uint32_t block, uint32_t place)
{
    for (uint32_t i = 0; i < tier->admission.n_inside; i++) {
        const struct rn_cached_stream *stream = &tier->cache.streams[tier->admission.inside[i]];

        if (stream->has_tail && stream->blocks[stream->n_blocks] == block)
            return place >= stream->n_tail && !rn_prefix_tree_has(&tier->cache.blocks.tree, block);
    }
    return false;
}

/* A block into which a step writes is its sequence's alone, but for those that copy what stands before. */
static void check_writes(struct sim *sim, const struct oracle *oracle)
{
    const struct rn_step *step = oracle->last;

    for (uint32_t m = 0; m < SIM_MODELS; m++) {
        const struct rn_block_pool *pool;

        if (sim->models[m].oracle != oracle || sim->models[m].handle == NULL)
            continue;
        pool = &sim->models[m].handle->tier.cache.blocks.pool;
        for (uint32_t i = 0; i < step->n_rows; i++) {
            const struct rn_step_row *row = &step->rows[i];
            uint32_t block = step->seqs[row->seq].blocks[rn_step_place(step, i) / oracle->limits.block_tokens];

            if (rn_block_pool_references(pool, block) != 1 &&
                !is_behind_tail(&sim->models[m].handle->tier, block,
                                rn_step_place(step, i) % oracle->limits.block_tokens))
                sim_fail(sim, "model %u: block %u is written and not its writer's alone", m, block);
        }
        for (uint32_t i = 0; i < step->n_copies; i++)
            if (rn_block_pool_references(pool, step->copies[i].to) != 1 ||
                rn_block_pool_references(pool, step->copies[i].from) == 0)
                sim_fail(sim, "model %u: block %u is copied to %u, and one of them is not held", m,
                         step->copies[i].from, step->copies[i].to);
    }
}

static void submitted(void *user, struct oracle *oracle)
{
    struct sim *sim = user;

    check_writes(sim, oracle);
    sim->n_model_steps++;
    sim->n_model_rows += oracle->last->n_rows;
    for (uint32_t i = 0; oracle->last->drawn != NULL && i < oracle->last->n_rows; i++)
        sim->n_ahead += oracle->last->drawn[i] >= 0;
    sim->n_again += ((const struct rn_batch *)oracle->last)->n_repeated;
    sim->n_copies += oracle->last->n_copies;
    sim->n_moves += oracle->last->n_moves;
    sim_encourage(sim, oracle);
    for (uint32_t i = 0; i < oracle->last->n_rows; i++)
        sim->n_means += rn_chunks_behind(oracle->limits.mean_window, oracle->last->rows[i].position) > RN_CHUNK_SINKS;
    oracle->due_us = sim->now_us + sim_pick(sim, sim->plan.most_latency_us);
    if (sim->step_at_once)
        oracle_complete(oracle, ORACLE_FAULT_NONE);
}

/* What the mover and sessions' jobs copy takes its time. */
static bool copying(void *user, struct oracle *oracle, const struct rn_host_copies *copies)
{
    struct sim *sim = user;

    (void)copies;
    if (sim->step_at_once)
        return false;
    oracle->copy_due_us = sim->now_us + sim_pick(sim, sim->plan.most_latency_us);
    return true;
}

bool sim_new_model(struct sim *sim, uint32_t index)
{
    struct sim_model *model = &sim->models[index];
    struct rn_model_parts parts = {.limits = sim->plan.limits, .n_vocab = ORACLE_VOCAB};
    runnel_model_options options;
    runnel_error error;
    runnel_status status;

    oracle_free(model->drafter);
    model->drafter = NULL;
    oracle_free(model->oracle);
    if (model->n_lives == 0 || !sim_has(sim, SIM_COLD) || sim_chance(sim, 20))
        model->salt = sim->seed << 16 | model->n_lives << 8 | (sim_chance(sim, 30) ? 0 : index);
    model->n_lives++;
    model->mover_acted = model->tier_acted = true;
    model->oracle = oracle_new(&sim->plan.limits, &sim->plan.alphabet, model->salt);
    parts.vocab = rn_vocab_new_bytes(&sim->engine->heap);
    if (model->oracle == NULL || parts.vocab == NULL ||
        (sim->plan.draws_itself && !oracle_draw_itself(model->oracle))) {
        rn_vocab_free(parts.vocab);
        oracle_free(model->oracle);
        model->oracle = NULL;
        return false;
    }
    if (sim->plan.on_cuda && !cuda_oracle_attach(model->oracle, sim_has(sim, SIM_DEVICE_FAULTS))) {
        sim_fail(sim, "the CUDA device cannot be had");
        rn_vocab_free(parts.vocab);
        oracle_free(model->oracle);
        model->oracle = NULL;
        return false;
    }
    model->oracle->deaf_percent = sim->seed % 4 == 0 ? 50 : 0;
    model->oracle->caps.good_ring = sim->plan.ring;
    model->oracle->submitted = submitted;
    model->oracle->copying = copying;
    model->oracle->user = sim;
    parts.backend = &model->oracle->backend;
    model->liar = (struct liar_plan){.alphabet = sim->plan.alphabet,
                                     .salt = model->oracle->salt,
                                     .percent = 30 * sim_pick(sim, 4),
                                     .seed = sim->seed + index};
    if (sim_chance(sim, 80)) {
        parts.new_proposer = liar_new;
        parts.proposer_user = &model->liar;
    }
    if (sim_has(sim, SIM_SPECULATE) && !rn_kv_size_forgets(&sim->plan.limits) && sim_chance(sim, 60))
        sim_new_drafter(sim, model, &parts);
    runnel_model_options_default(&options);
    options.no_prefix_cache = sim_has(sim, SIM_NO_PREFIX_CACHE);
    sim_tiers_of_model(sim, index, &parts, &options);
    status = rn_model_new_of_parts(sim->engine, &parts, &options, &model->handle, &error);
    sim_sign(sim, 0x100 + (uint64_t)-status);
    sim_tell(sim, "host: model %u is new: %s", index, runnel_status_name(status));
    if (status == RUNNEL_OK)
        return true;
    model->handle = NULL;
    if (status != RUNNEL_NO_MEMORY || !sim_has(sim, SIM_ALLOC_FAULTS) || error.status != status)
        sim_fail(sim, "a model was refused: %s: %s", runnel_status_name(status), error.message);
    if (!model->oracle->freed || (model->drafter != NULL && !model->drafter->freed))
        sim_fail(sim, "a model that was refused did not free its backends");
    return false;
}

void sim_free_model(struct sim *sim, uint32_t index)
{
    sim_sign(sim, 0x200 + index);
    sim_tell(sim, "host: frees model %u", index);
    sim_end_disk(sim, index);
    runnel_model_free(sim->models[index].handle);
    sim->models[index].handle = NULL;
    for (uint32_t i = 0; i < SIM_SESSIONS; i++)
        if (sim->sessions[i].model == index)
            sim->sessions[i].id.id = 0;
}

/* Everything that the engine held must be free, and every stream with a callback told its end. */
static void engine_gone(struct sim *sim)
{
    sim->engine = NULL;
    if (sim->live_bytes != 0 || sim->live_allocations != 0)
        sim_fail(sim, "%llu bytes in %llu allocations are left after the engine", (unsigned long long)sim->live_bytes,
                 (unsigned long long)sim->live_allocations);
    for (uint32_t i = 0; i < sim->n_streams; i++)
        if (!sim->streams[i].ended && !sim->streams[i].pull)
            sim_fail(sim, "stream %u got no terminal event from engine_free", i);
    for (uint32_t i = 0; i < SIM_MODELS; i++)
        if (sim->models[i].oracle != NULL && !sim->models[i].oracle->freed)
            sim_fail(sim, "the engine is freed and the backend of model %u is not", i);
    for (uint32_t i = 0; i < SIM_MODELS; i++)
        if (sim->models[i].drafter != NULL && !sim->models[i].drafter->freed)
            sim_fail(sim, "the engine is freed and the drafter of model %u is not", i);
}

void sim_free_engine(struct sim *sim)
{
    sim_sign(sim, 0x300);
    sim_tell(sim, "host: frees the engine");
    sim->closing = true;
    sim->faults_armed = false;
    sim->step_at_once = true;
    for (uint32_t i = 0; i < SIM_MODELS; i++) {
        while (sim->models[i].oracle != NULL && sim->models[i].oracle->first_copies != NULL)
            oracle_copy(sim->models[i].oracle);
        while (sim->models[i].oracle != NULL && sim->models[i].oracle->first != NULL)
            oracle_complete(sim->models[i].oracle, ORACLE_FAULT_NONE);
        while (sim->models[i].drafter != NULL && sim->models[i].drafter->first != NULL)
            oracle_complete(sim->models[i].drafter, ORACLE_FAULT_NONE);
        sim->models[i].handle = NULL;
    }
    memset(sim->sessions, 0, sizeof sim->sessions);
    sim->free_at_return = sim->telling != NULL;
    runnel_engine_free(sim->engine);
    if (!sim->free_at_return)
        engine_gone(sim);
}

static bool set_up(struct sim *sim)
{
    runnel_engine_options options;
    struct rn_clock clock = {.now_us = now_us, .user = sim};
    runnel_error error;

    runnel_engine_options_default(&options);
    options.max_streams = sim->plan.max_streams;
    options.max_sessions = sim->plan.max_sessions;
    options.max_queued_tokens = sim->plan.max_queued_tokens;
    options.max_queued_bytes = sim->plan.max_queued_bytes;
    options.allocator = (runnel_allocator){hook_alloc, hook_free, sim};
    options.on_trace = sim->seed % 8 == 0 ? sim_on_trace : NULL; /* its rings are large, to be filled with rubbish */
    options.trace_user = sim;
    if (rn_engine_new(&options, &clock, true, &sim->engine, &error) != RUNNEL_OK) {
        sim_fail(sim, "the engine was refused: %s", error.message);
        return false;
    }
    sim->engine->runtime.trace = trace;
    sim->engine->runtime.trace_user = sim;
    for (uint32_t i = 0; i < (sim_has(sim, SIM_MANY_MODELS) ? 2 : 1); i++)
        sim_new_model(sim, i);
    sim->faults_armed = sim_has(sim, SIM_ALLOC_FAULTS);
    return !sim->failed;
}

/* ---- Ticks ---- */

static uint32_t role_of(const struct rn_actor *actor)
{
    return actor->id == 0 ? RN_MODEL_ACTORS : (actor->id - 1) % RN_MODEL_ACTORS;
}

static uint32_t choose_actor(struct sim *sim, uint32_t n)
{
    struct rn_actor **actors = sim->engine->runtime.runnable;
    uint32_t choice = sim_pick(sim, n);

    if (sim->plan.policy == SIM_NEWEST && sim_chance(sim, 80))
        return n - 1;
    if (sim->plan.policy == SIM_PRIORITIES)
        for (uint32_t i = 0; i < n; i++)
            if (sim->priorities[actors[i]->id % 64] > sim->priorities[actors[choice]->id % 64])
                choice = i;
    if (sim->plan.policy == SIM_STARVE_ONE)
        for (uint32_t i = 0; i < n && role_of(actors[choice]) == sim->starved; i++)
            choice = (choice + 1) % n;
    return choice;
}

static bool run_actor(struct sim *sim)
{
    uint32_t n = rn_runtime_runnable(&sim->engine->runtime);
    uint32_t choice;

    if (n == 0)
        return false;
    choice = choose_actor(sim, n);
    if (sim->plan.policy == SIM_STARVE_ONE && role_of(sim->engine->runtime.runnable[choice]) == sim->starved &&
        sim_chance(sim, sim_has(sim, SIM_CHURN) ? 99 : 90))
        return false;
    rn_runtime_step(&sim->engine->runtime, choice, 1 + sim_pick(sim, sim->plan.max_batch));
    return true;
}

static enum oracle_fault choose_fault(struct sim *sim)
{
    if (sim_has(sim, SIM_DEVICE_FAULTS) && sim_chance(sim, 3))
        return ORACLE_FAULT_DEVICE;
    if (sim_has(sim, SIM_NAN_FAULTS) && sim_chance(sim, 3))
        return ORACLE_FAULT_NAN;
    return ORACLE_FAULT_NONE;
}

static bool complete_step(struct sim *sim, enum oracle_fault fault)
{
    uint32_t first = sim_pick(sim, 2 * SIM_MODELS);

    for (uint32_t i = 0; i < 2 * SIM_MODELS; i++) {
        uint32_t which = (first + i) % (2 * SIM_MODELS);
        struct sim_model *model = &sim->models[which / 2];
        struct oracle *oracle = which % 2 == 0 ? model->oracle : model->drafter;

        if (oracle != NULL && oracle->first_copies != NULL && oracle->copy_due_us <= sim->now_us) {
            sim_tell(sim, "backend %u: %u blocks are copied", which / 2, oracle->first_copies->n);
            oracle->copy_fails = fault == ORACLE_FAULT_DEVICE;
            oracle_copy(oracle);
            return true;
        }
        if (oracle != NULL && oracle->first != NULL && oracle->due_us <= sim->now_us) {
            sim_tell(sim, "%s %u: a step of %u rows is done, fault %d", which % 2 == 0 ? "backend" : "drafter",
                     which / 2, oracle->first->n_rows, (int)fault);
            sim->n_stopped -= oracle->n_stopped;
            oracle_complete(oracle, fault);
            sim->n_stopped += oracle->n_stopped;
            sim->n_steps++;
            return true;
        }
    }
    return false;
}

static bool in_flight(const struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_MODELS; i++)
        if ((sim->models[i].oracle != NULL &&
             (sim->models[i].oracle->first != NULL || sim->models[i].oracle->first_copies != NULL)) ||
            (sim->models[i].drafter != NULL && sim->models[i].drafter->first != NULL) || sim_wakes(&sim->models[i]))
            return true;
    return false;
}

static void pass_time(struct sim *sim)
{
    sim->now_us += 1 + sim_pick(sim, sim->plan.most_latency_us);
}

static void change_schedule(struct sim *sim)
{
    if (sim_has(sim, SIM_CHURN))
        return;
    sim->priorities[sim_pick(sim, sizeof sim->priorities)] = (uint8_t)sim_pick(sim, 256);
    if (sim_chance(sim, 20))
        sim->starved = sim_pick(sim, RN_MODEL_ACTORS + 1);
    if (sim_chance(sim, 10))
        sim->plan.policy = (enum sim_policy)sim_pick(sim, SIM_POLICIES);
}

static void check(struct sim *sim)
{
    if (sim->engine == NULL || sim->closing)
        return;
    if (sim->looks == SIM_LOOK_AT_STATE) {
        sim_check_actors(sim);
        if (sim->tick % CHECK_EVERY == 0)
            sim_check_tick(sim);
    }
    if (sim->tick % CHECK_EVERY == 0)
        sim_poison_free(sim);
    if (sim->engine->tracer != NULL)
        rn_tracer_drain(sim->engine->tracer);
    if (rn_runtime_runnable(&sim->engine->runtime) == 0)
        sim_check_quiet(sim);
}

static void tick(struct sim *sim)
{
    const struct sim_plan *plan = &sim->plan;
    uint32_t total =
        plan->weight_actor + plan->weight_step + plan->weight_host + plan->weight_dispatch + plan->weight_time;
    uint32_t at = sim_pick(sim, total);

    sim->tick++;
    if (sim_chance(sim, 20))
        rn_runtime_look_at_clock(&sim->engine->runtime);
    if (sim_chance(sim, 2))
        change_schedule(sim);
    sim_hurry_drafters(sim);
    if (at < plan->weight_actor) {
        run_actor(sim);
    } else if ((at -= plan->weight_actor) < plan->weight_step) {
        complete_step(sim, choose_fault(sim));
    } else if ((at -= plan->weight_step) < plan->weight_host) {
        sim_answer_some(sim);
        sim_act(sim);
        sim_act_disk(sim);
    } else if ((at -= plan->weight_host) < plan->weight_dispatch) {
        sim_deliver(sim, sim_pick(sim, 5));
        if (sim->free_at_return)
            engine_gone(sim);
        else
            sim_pull(sim);
    } else {
        pass_time(sim);
    }
    check(sim);
}

/* ---- The end ---- */

/* Lets everything run out that can without the host; in an order of the seed's choice. */
static void settle(struct sim *sim)
{
    while (!sim->failed && (rn_runtime_runnable(&sim->engine->runtime) > 0 || in_flight(sim))) {
        sim->tick++;
        if (run_actor(sim))
            check(sim);
        else if (!complete_step(sim, ORACLE_FAULT_NONE)) {
            pass_time(sim);
            rn_runtime_look_at_clock(&sim->engine->runtime);
        }
    }
}

static void run_out(struct sim *sim)
{
    for (uint32_t turn = 0; sim->n_live > 0 && turn < END_TURNS && !sim->failed; turn++) {
        bool waits = sim_resume_some(sim) | sim_answer_some(sim);
        uint64_t n_asked = sim->n_asked;

        settle(sim);
        if (!sim->failed && sim_deliver(sim, sim_pick(sim, 9)) + sim_pull(sim) == 0 && sim->n_asked == n_asked &&
            !waits && rn_runtime_runnable(&sim->engine->runtime) == 0)
            break;
        check(sim);
    }
    if (sim->n_live > 0)
        sim_fail(sim, "%u streams have not ended and nothing moves", sim->n_live);
}

static void expect_quiet(struct sim *sim, bool all_freed)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};

    runnel_engine_get_stats(sim->engine, &stats);
    if (stats.streams != 0 || stats.messages != 0 || stats.queued_tokens != 0 || stats.queued_bytes != 0)
        sim_fail(sim, "at rest there are %llu streams, %llu messages, %llu tokens and %llu bytes queued",
                 (unsigned long long)stats.streams, (unsigned long long)stats.messages,
                 (unsigned long long)stats.queued_tokens, (unsigned long long)stats.queued_bytes);
    if (all_freed && (stats.blocks_used != 0 || stats.blocks_total != 0 || stats.sessions != 0 || stats.models != 0))
        sim_fail(sim, "with every model freed there are %llu of %llu blocks, %llu sessions, %llu models",
                 (unsigned long long)stats.blocks_used, (unsigned long long)stats.blocks_total,
                 (unsigned long long)stats.sessions, (unsigned long long)stats.models);
}

static void count_cache(struct sim *sim)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};

    runnel_engine_get_stats(sim->engine, &stats);
    sim->n_hit_tokens = stats.prefix_hit_tokens;
    sim->n_evicted = stats.evicted_blocks;
    sim->n_preempted = stats.preemptions;
    if (!(stats.prefix_ceiling >= 0 && stats.prefix_ceiling <= 1))
        sim_fail(sim, "the ceiling of the hit rate is %g", stats.prefix_ceiling);
}

static void end(struct sim *sim)
{
    bool all = sim_chance(sim, 50);

    sim->faults_armed = false;
    sim->ending = true;
    run_out(sim);
    if (sim->failed)
        return;
    settle(sim);
    for (uint32_t i = 0; i < SIM_MODELS; i++) /* whoever acted last */
        sim->models[i].mover_acted = sim->models[i].tier_acted = true;
    sim_check_tick(sim);
    sim_check_quiet(sim);
    expect_quiet(sim, false);
    for (uint32_t i = 0; i < SIM_SESSIONS && !sim->failed; i++)
        if (sim->sessions[i].id.id != 0 && sim_chance(sim, 50))
            runnel_session_free(sim->models[sim->sessions[i].model].handle, sim->sessions[i].id);
    for (uint32_t i = 0; i < SIM_MODELS; i++)
        if (sim->models[i].handle != NULL && all)
            sim_free_model(sim, i);
    settle(sim);
    count_cache(sim);
    if (!sim->failed)
        expect_quiet(sim, all);
    if (!sim->failed)
        sim_check_metrics(sim);
    if (!sim->failed)
        sim_free_engine(sim);
}

static void look_for_breaches(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_MODELS; i++)
        if (sim->models[i].oracle != NULL && sim->models[i].oracle->breach != NULL)
            sim_fail(sim, "the contract of the backend was broken: %s", sim->models[i].oracle->breach);
    for (uint32_t i = 0; i < SIM_MODELS; i++)
        if (sim->models[i].drafter != NULL && sim->models[i].drafter->breach != NULL)
            sim_fail(sim, "the contract of the drafter's backend was broken: %s", sim->models[i].drafter->breach);
}

static void report_on(const struct sim *sim, struct sim_report *report)
{
    *report = (struct sim_report){
        .failed = sim->failed,
        .signature = sim->signature,
        .n_streams = sim->n_streams,
        .n_ticks = sim->tick,
        .n_steps = sim->n_steps,
        .n_events = sim->n_events,
        .n_checks = sim->n_checks,
        .n_hit_tokens = sim->n_hit_tokens,
        .n_state_tokens = sim->plan.limits.n_states > 0 ? sim->n_hit_tokens : 0,
        .n_window_tokens = sim->plan.limits.window > 0 ? sim->n_hit_tokens : 0,
        .n_waits = sim->n_waits,
        .n_evicted = sim->n_evicted,
        .n_copies = sim->n_copies,
        .n_moves = sim->n_moves,
        .n_ahead = sim->n_ahead,
        .n_again = sim->n_again,
        .n_means = sim->n_means,
        .n_guesses = sim->n_guesses,
        .n_branches = sim->n_branches,
        .n_branches_right = sim->n_branches_right,
        .n_forks = sim->n_forks,
        .n_imports = sim->n_imports,
        .n_preempted = sim->n_preempted,
        .n_expired = sim->n_expired,
        .n_busy = sim->n_busy,
        .n_joined = sim->n_joined,
        .n_warm_tokens = sim->n_warm_tokens,
        .n_cold_tokens = sim->n_cold_tokens,
        .n_adopted = sim->n_adopted,
        .n_deaths = sim->n_deaths,
        .n_stopped = sim->n_stopped,
        .n_shifts = sim->n_shifts,
        .n_guided = sim->n_guided,
        .n_forced = sim->n_forced,
        .n_cut = sim->n_cut,
        .n_asked = sim->n_asked,
    };
    memcpy(report->failure, sim->failure, sizeof report->failure);
    memcpy(report->n_outcomes, sim->n_outcomes, sizeof report->n_outcomes);
}

bool sim_run(uint64_t seed, enum sim_looks looks, FILE *story, struct sim_report *report)
{
    struct sim *sim = calloc(1, sizeof *sim);
    bool good;

    sim->streams = calloc(SIM_STREAMS, sizeof *sim->streams);
    sim->seed = sim->rng = sim->signature = seed;
    sim->now_us = 1;
    sim->story = story;
    sim->looks = looks;
    sim_make_plan(sim);
    sim_tell_plan(sim);
    if (set_up(sim)) {
        while (sim->tick < sim->plan.n_ticks && sim->engine != NULL && !sim->failed)
            tick(sim);
        if (sim->engine != NULL && !sim->failed)
            end(sim);
        if (!sim->failed)
            sim_judge_all(sim);
    }
    look_for_breaches(sim);
    sim_remove_files(sim);
    if (sim->disk != NULL && !sim->failed)
        fake_disk_free(sim->disk);
    report_on(sim, report);
    good = !sim->failed;
    if (good)
        for (uint32_t i = 0; i < SIM_MODELS; i++) {
            oracle_free(sim->models[i].oracle);
            oracle_free(sim->models[i].drafter);
        }
    free(sim->streams);
    free(sim);
    return good;
}
