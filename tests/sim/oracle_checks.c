/* See oracle_checks.h. */
#include "tests/sim/oracle_checks.h"

#include "model/kv_size.h"
#include "tests/sim/oracle_device.h"
#include "tests/sim/oracle_draw.h"

void oracle_breach(struct oracle *oracle, const char *what)
{
    if (oracle->breach == NULL)
        oracle->breach = what;
}

static bool blocks_good(const struct oracle *oracle, const struct rn_step *step, const struct rn_step_row *row)
{
    uint32_t place = rn_step_place(step, (uint32_t)(row - step->rows));
    const struct rn_backend_limits *limits = &oracle->limits;
    const struct rn_step_seq *seq = &step->seqs[row->seq];
    uint32_t behind = rn_chunks_behind(limits->mean_window, row->position), n_held = 0;

    for (uint32_t i = 0; i <= place / limits->block_tokens; i++) {
        bool seen = behind <= RN_CHUNK_SINKS || i * limits->block_tokens < RN_CHUNK_SINKS * RN_CHUNK ||
                    (i + 1) * limits->block_tokens > behind * RN_CHUNK;

        if (i >= seq->n_blocks || (seq->blocks[i] >= limits->n_blocks && (seen || seq->blocks[i] != RN_NO_BLOCK)))
            return false;
    }
    for (uint32_t i = 0; i < seq->n_blocks; i++)
        n_held += seq->blocks[i] != RN_NO_BLOCK;
    for (uint32_t i = 0; i < seq->n_means; i++)
        if (seq->means[i] >= limits->n_blocks)
            return false;
    return n_held <= rn_kv_size_blocks(limits, limits->context_tokens) &&
           (limits->mean_window == 0 || (row->position + 1) / RN_CHUNK <= seq->n_means * limits->block_tokens);
}

/* The row stands behind its parent. */
static bool follows(const struct oracle *oracle, const struct rn_step *step, uint32_t r)
{
    uint32_t first = rn_step_first(step, r);
    int32_t parent = step->parents == NULL ? (int32_t)r - 1 : step->parents[r];

    if (r == first)
        return step->parents == NULL || parent == -1;
    return parent >= (int32_t)first && parent < (int32_t)r &&
           step->rows[r].position == step->rows[parent].position + 1 &&
           (step->parents == NULL ||
            (oracle->limits.tree_depth > 0 && oracle->limits.mean_window == 0 &&
             step->rows[r].position - step->rows[first].position <= oracle->limits.tree_depth));
}

/* What computes in its place can draw so, too. */
static bool can_draw(const struct oracle *oracle, const struct rn_draw *draw, uint64_t *n_changes)
{
    const struct oracle_device *device = oracle->device;

    return oracle_can_draw(draw, n_changes) &&
           (!draw->wanted || device == NULL || device->can_draw(device, draw->sampling));
}

/* The contract of backend.h, looked at when the step comes in and again when it runs. */
bool oracle_step_good(struct oracle *oracle, const struct rn_step *step)
{
    const struct rn_backend_limits *limits = &oracle->limits;
    uint64_t n_changes = 0;
    int32_t outs = 0;

    if (step->n_rows == 0 || step->n_rows > limits->max_rows || step->n_seqs > limits->max_seqs ||
        step->n_outs > limits->max_outs) {
        oracle_breach(oracle, "a step is larger than the limits, or empty");
        return false;
    }
    for (uint32_t i = 0; i < step->n_rows; i++) {
        const struct rn_step_row *row = &step->rows[i];
        bool first = i == 0 || row->seq != row[-1].seq;

        bool waits = step->drawn != NULL && step->drawn[i] >= 0;

        if ((!waits && (row->token < 0 || row->token >= ORACLE_VOCAB)) || row->position >= limits->context_tokens ||
            row->seq >= step->n_seqs)
            oracle_breach(oracle, "a row is out of range");
        else if (i == 0 ? row->seq != 0 : first && row->seq != row[-1].seq + 1)
            oracle_breach(oracle, "the rows of a sequence do not stand together");
        else if (!follows(oracle, step, i))
            oracle_breach(oracle, "a row does not stand behind its parent");
        else if (row->out != -1 && row->out != outs++)
            oracle_breach(oracle, "outs do not ascend without gaps");
        else if (!blocks_good(oracle, step, row))
            oracle_breach(oracle, "a block table does not cover its rows");
    }
    if ((uint32_t)outs != step->n_outs)
        oracle_breach(oracle, "n_outs is not the number of wanted rows");
    if (outs > 0 && step->draws == NULL && (step->logits == NULL || step->drawn != NULL))
        oracle_breach(oracle, "rows are wanted, and what becomes of them is not said");
    if (outs > 0 && step->draws != NULL && oracle->scratch == NULL &&
        (step->drawer == NULL || step->drawer->n_scratch == 0))
        oracle_breach(oracle, "nobody draws");
    for (uint32_t i = 0; i < step->n_outs && oracle->scratch != NULL; i++)
        if (step->draws == NULL || !can_draw(oracle, &step->draws[i], &n_changes))
            oracle_breach(oracle, "a draw is not one that the device can make by itself");
    if (n_changes > limits->max_changes)
        oracle_breach(oracle, "draws change more logits than the device has room for");
    if (outs > 0 && step->logits == NULL && !limits->draws)
        oracle_breach(oracle, "logits stay on a device that has no room for them");
    return oracle->breach == NULL;
}

/* The first place in the block that a row writes; per_block: none does. */
static uint32_t first_written(const struct rn_step *step, uint32_t block, uint32_t per_block)
{
    uint32_t first = per_block;

    for (uint32_t i = 0; i < step->n_rows + step->n_moves; i++) {
        const struct rn_step_move *move = &step->moves[i < step->n_rows ? 0 : i - step->n_rows];
        uint32_t place = i < step->n_rows ? rn_step_place(step, i) : move->to;

        if (step->seqs[i < step->n_rows ? step->rows[i].seq : move->seq].blocks[place / per_block] == block &&
            place % per_block < first)
            first = place % per_block;
    }
    return first;
}

void oracle_check_copies(struct oracle *oracle, const struct rn_step *step)
{
    uint32_t n_blocks = oracle->limits.n_blocks, per_block = oracle->limits.block_tokens;

    for (uint32_t i = 0; i < step->n_copies; i++) {
        const struct rn_step_copy *copy = &step->copies[i];

        if (copy->from >= n_blocks || copy->to >= n_blocks || copy->from == copy->to)
            oracle_breach(oracle, "a copy is out of range");
        for (uint32_t k = 0; k < step->n_copies; k++)
            if (step->copies[k].from == copy->to || (k != i && step->copies[k].to == copy->to))
                oracle_breach(oracle, "a block that is copied to has another part in the step");
        if (first_written(step, copy->from, per_block) < first_written(step, copy->to, per_block))
            oracle_breach(oracle, "a row writes into what is copied and counts");
        if (first_written(step, copy->to, per_block) == per_block)
            oracle_breach(oracle, "a block is copied to, and nothing is written behind");
    }
}

void oracle_check_moves(struct oracle *oracle, const struct rn_step *step)
{
    for (uint32_t i = 0; i < step->n_moves; i++) {
        const struct rn_step_move *move = &step->moves[i];

        if (move->seq >= step->n_seqs || move->to >= move->from ||
            move->from / oracle->limits.block_tokens >= step->seqs[move->seq].n_blocks)
            oracle_breach(oracle, "a move is out of range");
        for (uint32_t k = 0; k < i; k++)
            if (step->moves[k].seq == move->seq && step->moves[k].to == move->from)
                oracle_breach(oracle, "what was moved to is moved from");
    }
}

void oracle_check_states(struct oracle *oracle, const struct rn_step *step)
{
    uint32_t n_states = oracle->limits.n_states;

    if (n_states > 0 ? step->states == NULL || step->parents != NULL : step->states != NULL || step->n_state_copies > 0)
        oracle_breach(oracle, "a step has no states where there are some, or has them where there are none");
    for (uint32_t i = 0; n_states > 0 && i < step->n_seqs && oracle->breach == NULL; i++) {
        if (step->states[i] >= n_states)
            oracle_breach(oracle, "a state's slot is out of range");
        for (uint32_t k = 0; k < i; k++)
            if (step->states[k] == step->states[i])
                oracle_breach(oracle, "two sequences have one state");
    }
    for (uint32_t i = 0; i < step->n_state_copies; i++) {
        const struct rn_step_state_copy *copy = &step->state_copies[i];

        if (copy->to >= n_states || (copy->from >= n_states && copy->from != RN_NO_STATE))
            oracle_breach(oracle, "a copy of a state is out of range");
        for (uint32_t k = 0; k < step->n_state_copies; k++)
            if (step->state_copies[k].from == copy->to || (k != i && step->state_copies[k].to == copy->to))
                oracle_breach(oracle, "a state that is copied to has another part in the step");
    }
}
