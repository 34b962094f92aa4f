/* Drafters of the simulation: a second oracle beside the model's, right with a chance, with runners-up or without; as a
 * draft model, or as a head that goes on from the model's features. */
#include "tests/sim/sim.h"

static uint32_t between(struct sim *sim, uint32_t low, uint32_t high)
{
    return low + sim_pick(sim, high - low + 1);
}

static void drafter_submitted(void *user, struct oracle *drafter)
{
    struct sim *sim = user;

    sim->n_guesses += drafter->last->n_outs;
    drafter->due_us = sim->now_us + sim_pick(sim, 1 + sim->plan.most_latency_us / 4);
    if (sim->step_at_once)
        oracle_complete(drafter, ORACLE_FAULT_NONE);
}

/* Few or many blocks, few or many streams at once, beside the model or in turn. */
bool sim_new_drafter(struct sim *sim, struct sim_model *model, struct rn_model_parts *parts)
{
    struct rn_backend_limits limits = {.max_seqs = between(sim, 1, 16),
                                       .n_blocks = between(sim, 1, sim_chance(sim, 50) ? 12 : 200),
                                       .block_tokens = 1u << sim_pick(sim, 6),
                                       .context_tokens = sim->plan.limits.context_tokens};

    limits.max_outs = limits.max_seqs;
    limits.max_rows = limits.max_seqs + 40 + sim_pick(sim, 40);
    model->drafter = oracle_new(&limits, &sim->plan.alphabet, model->oracle->salt);
    if (model->drafter == NULL)
        return false;
    model->drafter->wrong_percent = sim_chance(sim, 60) ? sim_pick(sim, 20) : sim_pick(sim, 101);
    if (sim_chance(sim, 70))
        model->drafter->second_percent = 1 + sim_pick(sim, 100);
    model->drafter->submitted = drafter_submitted;
    model->drafter->user = sim;
    parts->drafter = (struct rn_drafter){.n_layers = 1, .concurrent = sim_chance(sim, 60),
                                         .backend = &model->drafter->backend, .limits = limits,
                                         .pass_us = 1 + sim_pick(sim, sim->plan.most_latency_us / 4 + 1)};
    parts->drafter.kind = RN_DRAFTER_TOKENS;
    if (sim_chance(sim, 40)) {
        parts->drafter.kind = RN_DRAFTER_FEATURES;
        parts->drafter.n_features = parts->row_features = ORACLE_FEATURES;
        model->drafter->is_head = true;
    }
    for (uint32_t n = 1; n <= 64 && sim_chance(sim, 98); n *= 2)
        rn_step_cost_note(&parts->cost, n, 1 + sim->plan.most_latency_us / 2);
    return true;
}

/* Answers are short here, and whoever drafts is careful at first: some are given what they would have learnt. */
void sim_encourage(struct sim *sim, const struct oracle *oracle)
{
    for (uint32_t m = 0; m < SIM_MODELS; m++) {
        struct sim_model *model = &sim->models[m];

        if (model->oracle != oracle || model->handle == NULL || model->drafter == NULL ||
            oracle->limits.tree_depth == 0)
            continue;
        for (uint32_t i = 0; i < model->handle->decode.n_running; i++) {
            struct rn_speculation *speculation = &model->handle->decode.running[i]->model_speculation;

            speculation->purse = 4;
            speculation->seen = 64;
            speculation->rest = 0;
        }
    }
}
