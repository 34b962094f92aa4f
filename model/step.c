/* The checkers of limits and of steps: see backend.h. */
#include "model/backend.h"
#include "model/kv.h"
#include "model/kv_size.h"

/* Does attention add to scores by distance? */
static bool leans(const struct rn_plan *plan)
{
    uint32_t i;

    for (i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].alibi != 0)
            return true;
    return false;
}

/* Does attention look at chosen positions? */
static bool chooses(const struct rn_plan *plan)
{
    uint32_t i;

    for (i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind == RN_OP_CHOOSE || plan->ops[i].kind == RN_OP_REACH)
            return true;
    return false;
}

/* Where values are the front of the keys: are they rotated by whole spans of these (kv.h)? */
static bool fronts_rotate(const struct rn_plan *plan)
{
    const struct rn_op *op;
    uint32_t i;

    for (i = 0; i < plan->n_ops; i++) {
        op = &plan->ops[i];
        if (op->kind == RN_OP_ATTENTION && plan->kv_layers[op->layer].v_width == 0 &&
            op->v_dim % rn_kv_rotation(op->k_dim) != 0)
            return false;
    }
    return true;
}

runnel_status rn_limits_check(const struct rn_backend_limits *limits, const struct rn_plan *plan,
                              const struct rn_device_caps *caps, runnel_error *error)
{
    if (limits->max_rows > caps->max_rows || limits->max_outs > caps->max_outs)
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "the device has steps of %u rows and %u wanted ones at most",
                            caps->max_rows, caps->max_outs);
    if (!rn_device_has_kv(caps, limits->kv_type))
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "the device has no cache of KV type %d", (int)limits->kv_type);
    if (rn_kv_rotated(limits->kv_type) && !fronts_rotate(plan))
        return rn_error_set(error, RUNNEL_UNSUPPORTED,
                            "KV types that rotate (q4, q3): the values of %s are a part of its keys that cannot be "
                            "rotated back by itself",
                            plan->architecture);
    if (limits->mean_window > 0 && !rn_device_can(caps, RN_CAN_MEANS))
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "the device has no means of chunks");
    if (limits->mean_window > 0 && leans(plan))
        return rn_error_set(error, RUNNEL_UNSUPPORTED,
                            "means of chunks: attention of architecture %s depends on distances, which a mean has not",
                            plan->architecture);
    if (limits->window > 0 && !rn_device_can(caps, RN_CAN_WINDOWS))
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "the device has no blocks of their own for layers with windows");
    if (limits->window > 0 && (limits->window != rn_plan_window(plan) || limits->n_windows == 0 ||
                               limits->mean_window > 0 || limits->tree_depth > 0))
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "blocks of layers with windows: not of this plan, or not so");
    if (limits->mean_window > 0 && chooses(plan))
        return rn_error_set(error, RUNNEL_UNSUPPORTED,
                            "means of chunks: attention of architecture %s looks at positions that it chooses",
                            plan->architecture);
    if (limits->tree_depth > 0 && !rn_device_can(caps, RN_CAN_TREES))
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "the device has no trees of candidates");
    if (limits->n_states > 0 && !rn_device_can(caps, RN_CAN_STATE))
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "the device has no recurrent states");
    if (limits->max_changes > 0 && !(limits->draws && rn_device_can(caps, RN_CAN_DRAW_ITSELF)))
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "the device changes no logits");
    if (limits->draws && !rn_device_can(caps, RN_CAN_DRAW))
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "the device does not draw");
    return RUNNEL_OK;
}

static bool seqs_ok(const struct rn_step *step, const struct rn_backend_limits *limits)
{
    const struct rn_step_seq *seq;
    uint32_t s, i;

    for (s = 0; s < step->n_seqs; s++) {
        seq = &step->seqs[s];
        if (seq->n_blocks == 0 || seq->blocks == NULL || (seq->n_means > 0 && seq->means == NULL))
            return false;
        for (i = 0; i < seq->n_blocks; i++)
            if (seq->blocks[i] >= limits->n_blocks && (limits->mean_window == 0 || seq->blocks[i] != RN_NO_BLOCK))
                return false;
        for (i = 0; i < seq->n_means; i++)
            if (seq->means[i] >= limits->n_blocks)
                return false;
    }
    return true;
}

/* Blocks of the positions [from, to) are there. */
static bool has_positions(const struct rn_step_seq *seq, uint32_t from, uint32_t to, uint32_t block_tokens)
{
    uint32_t i;

    for (i = from / block_tokens; i * block_tokens < to; i++)
        if (i >= seq->n_blocks || seq->blocks[i] == RN_NO_BLOCK)
            return false;
    return true;
}

/* With a mean window: all that the row looks at or computes has a place. */
static bool means_ok(const struct rn_step_seq *seq, uint32_t position, const struct rn_backend_limits *limits)
{
    struct rn_chunk_span span = rn_chunk_span(limits->mean_window, position, 0);
    uint32_t n_means = rn_chunk_ends(limits->mean_window, position) ? position / RN_CHUNK + 1 : span.to;

    if (limits->mean_window == 0)
        return seq->n_means == 0;
    return (uint64_t)seq->n_means * limits->block_tokens >= n_means &&
           has_positions(seq, span.sink, span.sink_end, limits->block_tokens) &&
           has_positions(seq, span.first, position + 1, limits->block_tokens);
}

/* Of layers with windows: all that the row looks at, and its own place. */
static bool windows_ok(const struct rn_step_seq *seq, uint32_t position, const struct rn_backend_limits *limits)
{
    uint32_t first = limits->window > 0 ? rn_kv_size_first_window(limits, position) : 0, i;

    if (limits->window == 0)
        return seq->windows == NULL && seq->n_windows == 0;
    for (i = first; i <= position / limits->block_tokens; i++)
        if (seq->windows == NULL || i >= seq->n_windows || seq->windows[i] >= limits->n_windows)
            return false;
    return true;
}

static bool row_ok(const struct rn_step *step, const struct rn_step_row *row, const struct rn_plan *plan,
                   const struct rn_backend_limits *limits)
{
    bool waits = step->drawn != NULL && step->drawn[row - step->rows] >= 0;

    return (waits || (row->token >= 0 && (uint32_t)row->token < plan->n_vocab)) && row->seq < step->n_seqs &&
           row->position < limits->context_tokens &&
           row->position / limits->block_tokens < step->seqs[row->seq].n_blocks &&
           means_ok(&step->seqs[row->seq], row->position, limits) &&
           windows_ok(&step->seqs[row->seq], row->position, limits);
}

/* Rows of one sequence stand together and ascend by one. Sequences appear in the order of their
 * first rows, each once: so that "together" can be seen from neighbours alone, a sequence that comes
 * back is found by walking to the front of the step. */
static bool order_ok(const struct rn_step *step, uint32_t r)
{
    const struct rn_step_row *row = &step->rows[r], *before = row - 1;
    uint32_t i;

    if (r == 0)
        return true;
    if (row->seq == before->seq)
        return step->parents != NULL || row->position == before->position + 1;
    for (i = 0; i < r; i++)
        if (step->rows[i].seq == row->seq)
            return false;
    return true;
}

/* The row's place among the rows of a tree is one that there may be. A row is in line where it and all between it and
 * the first are their neighbours' children; any other lies in a few blocks of a worker's (cpu/tree.c), whose number the
 * depth bounds. Behind the rows' own check. */
static bool tree_ok(const struct rn_step *step, const struct rn_backend_limits *limits)
{
    uint32_t r, first = 0;
    bool in_line = true;

    if (step->parents != NULL && (limits->tree_depth == 0 || limits->mean_window > 0))
        return false;
    for (r = 0; step->parents != NULL && r < step->n_rows; r++) {
        const struct rn_step_row *row = &step->rows[r];
        int32_t parent = step->parents[r];
        uint32_t place;

        if (r == 0 || row->seq != row[-1].seq)
            first = r;
        place = step->rows[first].position + (r - first);
        if (r == first
                ? parent != -1
                : parent < (int32_t)first || parent >= (int32_t)r || row->position != step->rows[parent].position + 1)
            return false;
        in_line = r == first || (in_line && parent == (int32_t)r - 1);
        if ((!in_line && row->position - step->rows[first].position > limits->tree_depth) ||
            place >= limits->context_tokens || place / limits->block_tokens >= step->seqs[row->seq].n_blocks)
            return false;
    }
    return true;
}

/* Where attention sees what is behind a row, sequences are whole. */
static bool whole_ok(const struct rn_step *step, const struct rn_plan *plan, const struct rn_backend_limits *limits)
{
    uint32_t r;

    if (!plan->bidirectional)
        return true;
    for (r = 0; r < step->n_rows; r++)
        if ((r == 0 || step->rows[r].seq != step->rows[r - 1].seq) && step->rows[r].position != 0)
            return false;
    return step->parents == NULL && limits->mean_window == 0;
}

static bool moves_ok(const struct rn_step *step, const struct rn_backend_limits *limits)
{
    uint32_t i, k;

    if (step->n_moves > 0 && (step->moves == NULL || limits->tree_depth == 0))
        return false;
    for (i = 0; i < step->n_moves; i++) {
        const struct rn_step_move *move = &step->moves[i];

        if (move->seq >= step->n_seqs || move->to >= move->from ||
            move->from / limits->block_tokens >= step->seqs[move->seq].n_blocks)
            return false;
        for (k = 0; k < i; k++)
            if (step->moves[k].seq == move->seq && step->moves[k].to == move->from)
                return false;
    }
    return true;
}

/* `first`, or the place in the block of a sequence's position, if it lies in the block and before. */
static uint32_t earlier(const struct rn_step *step, uint32_t seq, uint32_t position, uint32_t block,
                        uint32_t block_tokens, uint32_t first)
{
    uint32_t at = position % block_tokens;

    return step->seqs[seq].blocks[position / block_tokens] == block && at < first ? at : first;
}

/* The first place in the block that a row or a move writes; block_tokens: none does. */
static uint32_t first_written(const struct rn_step *step, uint32_t block, uint32_t block_tokens)
{
    uint32_t i, first = block_tokens;

    for (i = 0; i < step->n_rows; i++)
        first = earlier(step, step->rows[i].seq, rn_step_place(step, i), block, block_tokens, first);
    for (i = 0; i < step->n_moves; i++)
        first = earlier(step, step->moves[i].seq, step->moves[i].to, block, block_tokens, first);
    return first;
}

/* What is copied and counts is computed already. */
static bool counts(const struct rn_step *step, const struct rn_step_copy *copy, uint32_t block_tokens)
{
    uint32_t first = first_written(step, copy->to, block_tokens);

    return first < block_tokens && first_written(step, copy->from, block_tokens) >= first;
}

/* Behind the rows' own check. */
static bool copies_ok(const struct rn_step *step, const struct rn_backend_limits *limits)
{
    uint32_t i, k;

    if (step->n_copies > step->n_seqs || (step->n_copies > 0 && step->copies == NULL))
        return false;
    for (i = 0; i < step->n_copies; i++) {
        const struct rn_step_copy *copy = &step->copies[i];

        if (copy->from >= limits->n_blocks || copy->to >= limits->n_blocks || copy->from == copy->to ||
            !counts(step, copy, limits->block_tokens))
            return false;
        for (k = 0; k < step->n_copies; k++)
            if (step->copies[k].from == copy->to || (k != i && step->copies[k].to == copy->to))
                return false;
    }
    return true;
}

static bool features_ok(const struct rn_step *step, const struct rn_plan *plan)
{
    uint32_t i;

    if (step->early_features && plan->normed_at == 0)
        return false;
    if (step->n_features == 0)
        return true;
    if (step->features == NULL || step->feature_rows == NULL || plan->features_width == 0)
        return false;
    for (i = 0; i < step->n_features; i++)
        if (step->feature_rows[i] >= step->n_rows || (i > 0 && step->feature_rows[i] <= step->feature_rows[i - 1]))
            return false;
    return true;
}

/* Slots are there, each in one hand. */
static bool states_ok(const struct rn_step *step, const struct rn_backend_limits *limits)
{
    uint32_t i, k;

    if (limits->n_states == 0)
        return step->states == NULL && step->n_state_copies == 0;
    if (step->states == NULL || step->parents != NULL || (step->n_state_copies > 0 && step->state_copies == NULL))
        return false;
    for (i = 0; i < step->n_seqs; i++) {
        if (step->states[i] >= limits->n_states)
            return false;
        for (k = 0; k < i; k++)
            if (step->states[k] == step->states[i])
                return false;
    }
    for (i = 0; i < step->n_state_copies; i++) {
        const struct rn_step_state_copy *copy = &step->state_copies[i];

        if (copy->to >= limits->n_states || (copy->from >= limits->n_states && copy->from != RN_NO_STATE))
            return false;
        for (k = 0; k < step->n_state_copies; k++)
            if (step->state_copies[k].from == copy->to || (k != i && step->state_copies[k].to == copy->to))
                return false;
    }
    return true;
}

/* What a draw changes: its tokens exist; how many there are. A draw for which a drawer is called has none. */
static bool changes_ok(const struct rn_draw *draw, const struct rn_plan *plan, uint64_t *n)
{
    const struct rn_draw_changes *changes = &draw->changes;
    uint32_t i;

    if (!draw->wanted || draw->sampling == NULL)
        return changes->n_counts == 0 && changes->n_barred == 0;
    for (i = 0; i < changes->n_counts; i++)
        if (changes->counts[i].token < 0 || (uint32_t)changes->counts[i].token >= plan->n_vocab)
            return false;
    for (i = 0; i < changes->n_barred; i++)
        if (changes->barred[i] < 0 || (uint32_t)changes->barred[i] >= plan->n_vocab)
            return false;
    *n += (uint64_t)draw->sampling->n_biases + changes->n_counts + changes->n_barred;
    return true;
}

/* Somebody can draw, there is room for the logits, and what a row waits for can be there. */
static bool draws_ok(const struct rn_step *step, const struct rn_plan *plan, const struct rn_backend_limits *limits)
{
    uint64_t n_changes = 0;
    uint32_t i;

    if (step->n_outs > 0 && step->logits == NULL && (step->draws == NULL || !limits->draws))
        return false;
    for (i = 0; step->draws != NULL && i < step->n_outs; i++)
        if (step->draws[i].want_top > RUNNEL_MAX_TOP_LOGPROBS || !changes_ok(&step->draws[i], plan, &n_changes))
            return false;
    if (n_changes > limits->max_changes)
        return false;
    if (step->drawn == NULL)
        return true;
    for (i = 0; i < step->n_rows; i++)
        if (step->drawn[i] < -1 || step->drawn[i] >= (int32_t)limits->max_outs)
            return false;
    return step->n_outs == 0 || step->draws != NULL;
}

static bool adapters_ok(const struct rn_step *step, const struct rn_plan *plan)
{
    for (uint32_t s = 0; s < step->n_seqs; s++)
        if (step->seqs[s].adapter > plan->n_adapters)
            return false;
    return true;
}

bool rn_step_check(const struct rn_step *step, const struct rn_plan *plan, const struct rn_backend_limits *limits)
{
    uint32_t r, outs = 0;

    if (step->n_rows == 0 || step->n_rows > limits->max_rows || step->n_seqs == 0 || step->n_seqs > limits->max_seqs ||
        step->n_outs > (plan->logits_slot < 0 ? 0 : limits->max_outs) || step->on_done == NULL ||
        !seqs_ok(step, limits) || !adapters_ok(step, plan) || !draws_ok(step, plan, limits))
        return false;
    for (r = 0; r < step->n_rows; r++) {
        if (!row_ok(step, &step->rows[r], plan, limits) || !order_ok(step, r))
            return false;
        if (step->rows[r].out == -1)
            continue;
        if (step->rows[r].out < 0 || (uint32_t)step->rows[r].out != outs)
            return false;
        outs++;
    }
    if (plan->inputs_width > 0 && step->inputs == NULL)
        return false;
    return outs == step->n_outs && whole_ok(step, plan, limits) && tree_ok(step, limits) && moves_ok(step, limits) &&
           copies_ok(step, limits) && states_ok(step, limits) && features_ok(step, plan);
}
