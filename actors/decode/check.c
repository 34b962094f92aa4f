/* Is the state of the decode actor whole? See decode_actor.h. */
#include "actors/context.h"
#include "actors/decode_actor.h"
#include "actors/host/outlet.h"

/* What has ended or is to go back stays only for the step that reads it. */
static bool is_whole(const struct rn_decode *decode, const struct rn_request *request)
{
    const struct rn_credit *credit = &decode->credits[request->slot];
    const struct rn_outlet *outlet = &decode->context->outlets[request->slot];
    uint64_t places = (uint64_t)request->n_blocks * decode->context->limits->block_tokens;

    /* rows on draws that are not known; of one that has ended that of its last step has not joined it either */
    uint32_t ahead = request->in_steps - (request->in_steps > 0 && request->outcome == RN_OUTCOME_NONE);

    if ((request->outcome != RN_OUTCOME_NONE || request->preempted) && request->in_steps == 0)
        return false;
    if ((credit->choice != RN_CHOICE_NONE && request->choice == NULL) || request->choice != outlet->choice)
        return false;
    if (request->in_steps > decode->ring.n_flying || request->draw_step > decode->ring.n_submitted)
        return false;
    if (credit->generation != request->generation || credit->back || credit->away || credit->n < 0 ||
        (uint32_t)credit->n > outlet->window)
        return false;
    return request->n_tokens <= request->n_limit && request->n_limit <= request->capacity &&
           request->n_gone <= request->n_blocks && request->n_done <= request->n_tokens + ahead &&
           request->n_done <= places && request->n_behind <= request->n_done &&
           (decode->context->limits->n_states > 0 || request->n_behind == 0) &&
           rn_outlet_is(outlet, request->generation);
}

static bool running_are_whole(const struct rn_decode *decode, uint32_t *n_in_steps)
{
    if (decode->n_running > decode->context->max_streams || decode->cursor > decode->n_running)
        return false;
    for (uint32_t i = 0; i < decode->n_running; i++) {
        const struct rn_request *request = decode->running[i];

        if (request->lane != RN_LANE_NONE || request->last_chunk || request->n_done < request->n_fill ||
            !is_whole(decode, request))
            return false;
        *n_in_steps += request->in_steps;
    }
    return true;
}

static bool prompts_are_whole(const struct rn_decode *decode, uint32_t *n_in_steps)
{
    const struct rn_request *last = NULL;
    uint32_t n = 0, n_short = 0;

    for (const struct rn_request *r = decode->prompts.first; r != NULL; last = r, r = r->next) {
        if (++n > decode->prompts.n || r->lane == RN_LANE_NONE || r->n_done > r->n_fill || !is_whole(decode, r) ||
            (r->last_chunk && r->in_steps == 0))
            return false;
        n_short += r->lane == RN_LANE_SHORT;
        *n_in_steps += r->in_steps;
    }
    return n == decode->prompts.n && last == decode->prompts.last && n_short <= RN_PREFILL_SHORTS &&
           n - n_short <= RN_PREFILL_LANES;
}

/* Each part of the step is of one request that knows it, and has rows of its own. Of a batch that decode has: while it
 * is in flight nobody but its owner looks at it (law 2). */
bool rn_decode_batch_check(const struct rn_batch *batch)
{
    uint32_t n_rows = 0, n_outs = 0;

    for (uint32_t i = 0; i < batch->n_parts; i++) {
        if (batch->parts[i].request->in_steps == 0 || batch->parts[i].n_rows == 0)
            return false;
        n_rows += batch->parts[i].n_rows;
        n_outs += batch->parts[i].n_outs;
    }
    return n_rows == batch->step.n_rows && n_outs == batch->step.n_outs && batch->list != NULL &&
           batch->computed != NULL;
}

/* Each step in flight has rows of a request that is here, and none has that is not in flight. */
static bool steps_are_whole(const struct rn_decode *decode, uint32_t n_in_steps)
{
    const struct rn_step_ring *ring = &decode->ring;

    return rn_step_ring_check(ring) && n_in_steps >= ring->n_flying && (ring->n_flying > 0 || n_in_steps == 0) &&
           (!decode->holds || ring->n_flying == 0);
}

static bool lists_are_whole(const struct rn_decode *decode)
{
    uint32_t n = decode->ring.n_flying, n_computed = decode->ring.n_flying;

    for (const struct rn_token_list *l = decode->free_lists; l != NULL && n <= RN_TOKEN_LISTS; l = l->next)
        n++;
    for (const struct rn_computed_list *l = decode->free_computed; l != NULL && n_computed <= RN_COMPUTED_LISTS;
         l = l->next)
        n_computed++;
    return n <= RN_TOKEN_LISTS && n_computed <= RN_COMPUTED_LISTS;
}

bool rn_decode_check(const struct rn_decode *decode)
{
    uint32_t n_in_steps = 0;

    return running_are_whole(decode, &n_in_steps) && prompts_are_whole(decode, &n_in_steps) &&
           steps_are_whole(decode, n_in_steps) && lists_are_whole(decode) && rn_keep_time_check(&decode->keep) &&
           decode->kept.n_changes <= decode->context->limits->max_changes && decode->kept.n_late <= 1 &&
           rn_prompt_budget_check(&decode->pace);
}
