/* Drafters of the simulation: a second oracle beside the model's, right with a chance, with runners-up or without; as a
 * draft model, or as a head that goes on from the model's features. */
#include <string.h>

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
    model->quick = sim_chance(sim, 50);
    model->drafter->wrong_percent = sim_chance(sim, 60) ? sim_pick(sim, model->quick ? 70 : 20) : sim_pick(sim, 101);
    if (model->quick || sim_chance(sim, 70))
        model->drafter->second_percent = 1 + sim_pick(sim, 100);
    model->drafter->submitted = drafter_submitted;
    model->drafter->user = sim;
    parts->drafter = (struct rn_drafter){.n_layers = 1,
                                         .concurrent = sim_chance(sim, 75),
                                         .backend = &model->drafter->backend,
                                         .limits = limits,
                                         .pass_us = 1 + sim_pick(sim, sim->plan.most_latency_us / 4 + 1)};
    parts->drafter.kind = RN_DRAFTER_TOKENS;
    if (sim_chance(sim, 30)) /* not all pasts are read */
        parts->drafter.row_us = (float)sim_pick(sim, sim->plan.most_latency_us / 4 + 1);
    if (sim_chance(sim, 40)) {
        parts->drafter.kind = RN_DRAFTER_FEATURES;
        parts->drafter.n_features = parts->row_features = ORACLE_FEATURES;
        model->drafter->is_head = true;
    }
    for (uint32_t n = 1; n <= 64 && sim_chance(sim, 98); n *= 2)
        rn_step_cost_record(&parts->cost, n, 1 + sim->plan.most_latency_us / 2);
    return true;
}

/* Others end their passes when it is their turn, as seldom as the model its steps, and so are too slow for much. */
void sim_hurry_drafters(struct sim *sim)
{
    for (uint32_t m = 0; m < SIM_MODELS; m++) {
        struct sim_model *model = &sim->models[m];

        if (model->drafter != NULL && model->quick && model->drafter->first != NULL && sim_chance(sim, 60)) {
            oracle_complete(model->drafter, ORACLE_FAULT_NONE);
            sim->n_steps++;
        }
    }
}

/* Answers are short here, and whoever drafts is careful at first: some are given what they would have learnt. */
void sim_encourage(struct sim *sim, const struct oracle *oracle)
{
    for (uint32_t m = 0; m < SIM_MODELS; m++) {
        struct sim_model *model = &sim->models[m];

        if (model->oracle != oracle || model->handle == NULL || model->drafter == NULL ||
            (oracle->limits.tree_depth == 0 && !model->quick))
            continue;
        for (uint32_t i = 0; i < model->handle->decode.n_running; i++) {
            uint32_t slot = model->handle->decode.running[i]->slot;
            struct rn_speculation *speculation = &model->handle->verifier.streams[slot].model;

            speculation->budget = 4;
            speculation->seen = 64;
            speculation->rest = 0;
        }
    }
}

/* ---- What drafters know ---- */

/* Rows of tokens before this one stand in the blocks; of a line in the pass the last block is being written. */
static uint32_t written(const struct rn_draft_actor *draft, uint32_t n_done, uint32_t from, bool in_pass)
{
    uint32_t per_block = draft->drafter->limits.block_tokens, before = from / per_block * per_block;

    return in_pass && before < n_done ? before : n_done;
}

/* The token of index i of the draft stream's line, or of its branch. */
static int32_t token_at(const struct rn_draft_stream *draft_stream, bool branch, uint32_t i)
{
    return branch && i >= draft_stream->branch.at ? draft_stream->branch.tokens[i - draft_stream->branch.at]
                                                  : draft_stream->tokens[i];
}

static void check_kv(struct sim *sim, const struct sim_model *model, const struct rn_draft_stream *draft_stream,
                     bool branch)
{
    const uint32_t *blocks = branch ? draft_stream->branch.blocks : draft_stream->blocks;
    uint32_t per_block = model->drafter->limits.block_tokens;
    uint32_t n = branch ? written(&model->handle->draft, draft_stream->branch.n_done, draft_stream->branch.from,
                                  draft_stream->branch.in_pass)
                        : written(&model->handle->draft, draft_stream->layers[0].n_done, draft_stream->from,
                                  draft_stream->in_pass);
    struct oracle_chain chain;

    oracle_chain_init(&chain, model->drafter->salt);
    for (uint32_t i = 0; i < n; i++) {
        oracle_chain_push(&chain, token_at(draft_stream, branch, i));
        if (model->drafter->kv[(size_t)blocks[i / per_block] * per_block + i % per_block] == chain.kv)
            continue;
        sim_fail(sim, "the drafter's KV of slot %u, %s, token %u of %u, is not that of its tokens", draft_stream->slot,
                 branch ? "its branch" : "its line", i, n);
        return;
    }
}

/* NULL: it does not run, or not any more. */
static const struct rn_request *request_of(const struct rn_decode *decode, const struct rn_draft_stream *draft_stream)
{
    for (uint32_t i = 0; i < decode->n_running; i++)
        if (decode->running[i]->slot == draft_stream->slot &&
            decode->running[i]->generation == draft_stream->generation)
            return decode->running[i];
    return NULL;
}

/* The verifier knows what was drawn before decode does, and the draft actor no more than that; of one that has come
 * again without a part of its text it may not have heard yet. */
static void check_tokens(struct sim *sim, const struct rn_verifier_stream *stream,
                         const struct rn_draft_stream *draft_stream, const struct rn_request *request)
{
    uint32_t n = stream->n_tokens < request->n_tokens ? stream->n_tokens : request->n_tokens;

    if (stream->generation != draft_stream->generation ||
        memcmp(stream->tokens, request->tokens, n * sizeof stream->tokens[0]) != 0)
        sim_fail(sim, "the verifier takes other tokens for those of slot %u", draft_stream->slot);
    else if (request->n_shifts == 0 && draft_stream->n_known > 0 &&
             (draft_stream->base + draft_stream->n_known > stream->n_tokens ||
              memcmp(draft_stream->tokens, stream->tokens + draft_stream->base,
                     draft_stream->n_known * sizeof draft_stream->tokens[0]) != 0))
        sim_fail(sim, "the drafter takes other tokens for those of slot %u", draft_stream->slot);
}

void sim_check_drafter(struct sim *sim, uint32_t index)
{
    const struct sim_model *model = &sim->models[index];
    const struct rn_draft_actor *draft = &model->handle->draft;

    for (uint32_t i = 0; model->drafter != NULL && i < draft->n_draft_streams; i++) {
        const struct rn_draft_stream *draft_stream = &draft->draft_streams[i];
        const struct rn_request *request = request_of(&model->handle->decode, draft_stream);

        if (draft_stream->generation == 0 || draft_stream->state == RN_DRAFTS_OFF || draft_stream->ended)
            continue;
        if (request != NULL)
            check_tokens(sim, &model->handle->verifier.streams[draft_stream->slot], draft_stream, request);
        if (draft->drafter->kind != RN_DRAFTER_TOKENS)
            continue; /* a head's row says nothing of the tokens before it */
        check_kv(sim, model, draft_stream, false);
        if (draft_stream->branch.at != 0)
            check_kv(sim, model, draft_stream, true);
    }
}
