/* What a seed makes of a run: features, sizes, limits, weights, prompts. See sim.h. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/sim/cuda_oracle.h"
#include "tests/sim/sim.h"

/* Few slots, many requests that are cancelled at once, one actor kept waiting: what was sent to it for one
 * stream must not pile up behind that of the slot's next ones. */
static void plan_churn(struct sim_plan *plan)
{
    plan->features |= UINT64_C(1) << SIM_FEW_STREAMS | UINT64_C(1) << SIM_CANCEL;
    plan->features &= ~(UINT64_C(1) << SIM_FREE_ENGINE | UINT64_C(1) << SIM_PULL);
    plan->policy = SIM_STARVE_ONE;
    plan->n_ticks = 6000;
    plan->n_requests = SIM_STREAMS;
    plan->max_streams = 1;
    plan->max_sessions = 1;
    plan->weight_actor = 60;
    plan->weight_step = 20;
    plan->weight_host = 20;
    plan->weight_dispatch = 20;
    plan->weight_time = 1;
}

static uint32_t between(struct sim *sim, uint32_t low, uint32_t high)
{
    return low + sim_pick(sim, high - low + 1);
}

static void plan_alphabet(struct sim *sim, struct oracle_alphabet *alphabet)
{
    static const char *const sets[] = {"ab", "abcdefghij \n", "\xc3\xa9\xc3\xa9z",
                                       "\xe2\x82\xac"
                                       "a\xf0\x9f\x98\x80",
                                       "\xef\xbf\xbd\xf4\x8f\xed\x9f"
                                       "ab"};
    uint32_t which = sim_pick(sim, 7);

    if (which < 5) {
        alphabet->n = (uint32_t)strlen(sets[which]);
        memcpy(alphabet->bytes, sets[which], alphabet->n);
        return;
    }
    alphabet->n = 256;
    for (uint32_t i = 0; i < 256; i++)
        alphabet->bytes[i] = (uint8_t)i;
}

static void plan_limits(struct sim *sim, struct rn_backend_limits *limits)
{
    limits->max_rows = sim_chance(sim, 30) ? between(sim, 2, 8) : between(sim, 8, 64);
    limits->max_outs = between(sim, 1, limits->max_rows < 16 ? limits->max_rows : 16);
    limits->max_seqs = between(sim, 1, limits->max_outs + RN_PREFILL_LANES);
    limits->block_tokens = 1u << sim_pick(sim, 6);
    limits->context_tokens = between(sim, 8, 256);
    limits->n_blocks = sim_has(sim, SIM_TINY_MEMORY) ? between(sim, 1, 12) : between(sim, 16, 200);
}

/* Chunks are of 64 positions: sequences must be long to have means. */
static void plan_means(struct sim *sim)
{
    struct sim_plan *plan = &sim->plan;

    if (!sim_chance(sim, 10))
        return;
    plan->limits.mean_window = RN_CHUNK * between(sim, 1, 2);
    plan->limits.context_tokens = between(sim, 256, 800);
    plan->limits.max_rows = between(sim, 16, 96);
    plan->limits.block_tokens = 1u << between(sim, 2, 7);
    plan->limits.n_blocks =
        (sim_has(sim, SIM_TINY_MEMORY) ? between(sim, 300, 600) : between(sim, 500, 3000)) / plan->limits.block_tokens +
        4;
    plan->n_ticks = between(sim, 1000, 4000);
    sim_tell(sim, "means behind a window of %u", plan->limits.mean_window);
}

static void plan_trees(struct sim *sim)
{
    if (sim->plan.limits.mean_window == 0 && sim_chance(sim, 70))
        sim->plan.limits.tree_depth = RN_DRAFT_MOST;
}

/* Layers with windows that have blocks of their own: enough for one to four of the longest sequences. */
static void plan_windows(struct sim *sim, uint64_t bits)
{
    struct rn_backend_limits *limits = &sim->plan.limits;

    limits->window = 1 + (uint32_t)bits % 64;
    limits->n_windows = rn_kv_size_windows(limits, limits->context_tokens) * (1 + (uint32_t)(bits >> 6) % 4);
    limits->tree_depth = 0;
    sim_tell(sim, "layers with windows of %u, %u blocks of their own", limits->window, limits->n_windows);
}

/* How the device draws. Not by the run's random numbers: what the host does stays the same. */
static void plan_device(struct sim *sim)
{
    uint64_t state = sim->seed + 0x6472617773, bits = rn_splitmix64(&state);

    sim->plan.draws_itself = (bits & 1) != 0;
    sim->plan.features |= (bits >> 32 & 1) << SIM_SHIFTS;
    sim->plan.features |= (bits >> 33 & 1) << SIM_GRAMMARS;
    sim->plan.features |= (uint64_t)((bits >> 34) % 3 == 0) << SIM_HOSTS;
    sim->plan.ring = 1 + (uint32_t)(bits >> 8) % ORACLE_RING;
    sim->plan.limits.draws = sim->plan.ring > 1 || (bits & 2) != 0;
    if (sim->plan.draws_itself && sim->plan.limits.draws && (bits >> 2) % 4 != 0)
        sim->plan.limits.max_changes = ORACLE_VOCAB + (uint32_t)(bits >> 4) % 600;
    if ((bits >> 16) % 8 == 0 && sim->plan.limits.mean_window == 0) {
        sim->plan.limits.n_states = 1 + (uint32_t)(bits >> 40) % (4 * sim->plan.max_streams + 4);
        sim->plan.limits.tree_depth = 0;
    } else if ((bits >> 48) % 8 == 0 && sim->plan.limits.mean_window == 0) {
        plan_windows(sim, bits >> 51);
    }
}

/* What the oracle on the CUDA device has; and less of what takes long there. */
static void plan_cuda(struct sim *sim)
{
    const char *device = getenv("RUNNEL_SIM_DEVICE");
    struct sim_plan *plan = &sim->plan;
    struct rn_backend_limits *limits = &plan->limits;

    plan->on_cuda = device != NULL && strcmp(device, "cuda") == 0;
    if (!plan->on_cuda)
        return;
    plan->features &= ~(UINT64_C(1) << SIM_NAN_FAULTS | UINT64_C(1) << SIM_SPECULATE);
    plan->draws_itself = limits->draws = true;
    plan->ring = plan->ring > 2 ? 2 : plan->ring;
    plan->warm_bytes *= CUDA_ORACLE_BYTES / sizeof(uint64_t);
    limits->mean_window = limits->window = limits->n_windows = limits->n_states = limits->tree_depth = 0;
}

void sim_make_plan(struct sim *sim)
{
    struct sim_plan *plan = &sim->plan;

    for (uint32_t i = 0; i < SIM_SHIFTS; i++)
        plan->features |= (uint64_t)sim_chance(sim, 50) << i;
    /* What ends a run early or fails requests at random leaves less to look at: in fewer seeds. */
    for (uint32_t i = SIM_FREE_MODEL; i <= SIM_NAN_FAULTS; i++)
        if (sim_chance(sim, 50))
            plan->features &= ~(UINT64_C(1) << i);
    if (!sim_chance(sim, 8))
        plan->features &= ~(UINT64_C(1) << SIM_CHURN);
    if (!sim_chance(sim, 30))
        plan->features &= ~(UINT64_C(1) << SIM_NO_PREFIX_CACHE);
    if (!sim_chance(sim, 30))
        plan->features &= ~(UINT64_C(1) << SIM_QUEUE_LIMITS);
    plan->policy = (enum sim_policy)sim_pick(sim, SIM_POLICIES);
    plan->n_ticks = between(sim, 50, 1200);
    plan->n_requests = between(sim, 1, sim_chance(sim, 20) ? 64 : 20);
    plan->max_batch = between(sim, 1, 8);
    plan->max_streams = sim_has(sim, SIM_FEW_STREAMS) ? between(sim, 1, 4) : between(sim, 8, 32);
    plan->max_sessions = between(sim, 1, 4);
    if (sim_has(sim, SIM_QUEUE_LIMITS)) {
        plan->max_queued_tokens = sim_chance(sim, 70) ? between(sim, 1, 400) : 0;
        plan->max_queued_bytes = sim_chance(sim, 50) ? between(sim, 1, 8000) : 0;
    }
    plan->most_latency_us = 1u << sim_pick(sim, 12);
    if (plan->most_latency_us == 1) /* steps that take long: a prompt that is alone waits for others then */
        plan->most_latency_us = 1u << 19;
    plan->weight_actor = between(sim, 5, 60);
    plan->weight_step = between(sim, 1, 20);
    plan->weight_host = between(sim, 1, 10);
    plan->weight_dispatch = between(sim, 1, 10);
    plan->weight_time = between(sim, 1, 10);
    if (sim_has(sim, SIM_SESSION_FILES)) { /* sessions must have a life to be copied */
        plan->max_sessions = between(sim, 2, SIM_SESSIONS);
        plan->n_requests = between(sim, 10, 64);
        plan->n_ticks = between(sim, 400, 2400);
        plan->weight_host = between(sim, 5, 10);
    }
    if (sim_has(sim, SIM_CHURN))
        plan_churn(plan);
    plan_limits(sim, &plan->limits);
    plan_alphabet(sim, &plan->alphabet);
    for (uint32_t i = 0; i < SIM_PROMPTS * SIM_PROMPT_TOKENS; i++)
        sim->prompts[i / SIM_PROMPT_TOKENS][i % SIM_PROMPT_TOKENS] = (int32_t)sim_pick(sim, ORACLE_VOCAB);
    for (uint32_t i = 0; i < sizeof sim->priorities; i++)
        sim->priorities[i] = (uint8_t)sim_pick(sim, 256);
    sim->starved = sim_pick(sim, RN_MODEL_ACTORS);
    plan_means(sim);
    plan_trees(sim);
    sim_plan_tiers(sim);
    plan_device(sim);
    plan_cuda(sim);
}

void sim_tell_plan(struct sim *sim)
{
    const struct sim_plan *plan = &sim->plan;
    const struct rn_backend_limits *limits = &plan->limits;

    sim_tell(sim, "features %06llx policy %d; %u streams, %u sessions", (unsigned long long)plan->features,
             (int)plan->policy, plan->max_streams, plan->max_sessions);
    sim_tell(sim, "rows %u outs %u seqs %u; %u blocks of %u, context %u; alphabet of %u", limits->max_rows,
             limits->max_outs, limits->max_seqs, limits->n_blocks, limits->block_tokens, limits->context_tokens,
             plan->alphabet.n);
}
