/* The reference backend's ops with a recurrent state: as ops.c, row by row, each with its sequence's state.
 * */
#include <math.h>
#include <string.h>

#include "cpu/reference/reference.h"

float *rn_reference_state(const struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step,
                          uint32_t r)
{
    unsigned char *state = ref->states + step->states[step->rows[r].seq] * ref->plan->state_bytes;

    return (float *)state + ref->plan->state_layers[op->layer].at;
}

static float *row_of(const struct rn_reference *ref, int16_t slot, uint32_t r)
{
    return (float *)ref->slots[slot] + (size_t)r * ref->plan->slots[slot].width;
}

/* A row of a weight, decoded; valid until the next call. */
static const float *numbers(struct rn_reference *ref, int32_t weight, uint32_t row)
{
    const struct rn_weight *w = &ref->plan->weights[weight];

    w->type->decode((const unsigned char *)w->tensor->data + row * w->row_bytes, ref->row, w->cols);
    return ref->row;
}

/* The i-th number of a bias, which is one row or one column. */
static double bias_at(struct rn_reference *ref, int32_t bias, uint32_t i)
{
    if (bias < 0)
        return 0;
    return ref->plan->weights[bias].rows == 1 ? numbers(ref, bias, 0)[i] : numbers(ref, bias, i)[0];
}

/* Row r + k of r's sequence, of which `state` has the `before` rows before r; NULL: the step does not have it. */
static const float *input(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step, uint32_t r,
                          int64_t k, const float *state, uint32_t before)
{
    uint32_t at = r;

    if (k < 0)
        return state + (size_t)(before + k) * ref->plan->slots[op->a].width;
    while (k > 0 && ++at < step->n_rows)
        k -= step->rows[at].seq == step->rows[r].seq;
    return k == 0 ? row_of(ref, op->a, at) : NULL;
}

void rn_reference_conv(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t width = ref->plan->slots[op->a].width, taps = ref->plan->weights[op->weight].cols, r, c, i;
    uint32_t span = op->span > 1 ? op->span : 1, before = (taps - 1) * span;
    const float *a, *w, *inputs[RN_MAX_TAPS];
    float *state;
    double sum;

    for (r = 0; r < step->n_rows; r++) {
        state = rn_reference_state(ref, op, step, r); /* [before][width], oldest first */
        if (op->ahead > 0 && step->rows[r].position == 0)
            memset(state, 0, (size_t)before * width * sizeof *state);
        a = row_of(ref, op->a, r);
        for (i = 0; i < taps; i++)
            inputs[i] = input(ref, op, step, r, (int64_t)i * span - before + op->ahead, state, before);
        for (c = 0; c < width; c++) {
            sum = bias_at(ref, op->bias, c);
            w = numbers(ref, op->weight, c);
            for (i = 0; i < taps && inputs[i] != NULL; i++)
                sum += (double)w[i] * inputs[i][c];
            row_of(ref, op->out, r)[c] = (float)(op->activated ? rn_reference_activate(op->act, sum) : sum);
        }
        memmove(state, state + width, (size_t)(before - 1) * width * sizeof *state);
        memcpy(state + (size_t)(before - 1) * width, a, width * sizeof *state);
    }
}

/* One head of one row: its state, [v_dim][k_dim], goes on by the row. */
static void scan_head(struct rn_reference *ref, const struct rn_op *op, uint32_t r, uint32_t head, float *state)
{
    const float *a = row_of(ref, op->a, r), *x = a + (size_t)head * op->v_dim;
    const float *b = a + (size_t)op->heads * op->v_dim + (size_t)(head / (op->heads / op->kv_heads)) * op->k_dim;
    const float *c = b + (size_t)op->kv_heads * op->k_dim;
    float *out = row_of(ref, op->out, r) + (size_t)head * op->v_dim;
    double dt = row_of(ref, op->b, r)[head], d = bias_at(ref, op->bias, head), sum;
    const float *decay = numbers(ref, op->weight, head);
    bool one = ref->plan->weights[op->weight].cols == 1;
    uint32_t i, n;

    for (i = 0; i < op->v_dim; i++, state += op->k_dim) {
        sum = d * x[i];
        for (n = 0; n < op->k_dim; n++) {
            state[n] = (float)(exp(dt * decay[one ? 0 : n]) * state[n] + dt * x[i] * b[n]);
            sum += (double)state[n] * c[n];
        }
        out[i] = (float)sum;
    }
}

void rn_reference_scan(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t r, head;

    for (r = 0; r < step->n_rows; r++)
        for (head = 0; head < op->heads; head++)
            scan_head(ref, op, r, head, rn_reference_state(ref, op, step, r) + (size_t)head * op->v_dim * op->k_dim);
}

/* ---- Rows of blocks ---- */

/* Number i of what a block makes of the last n positions, of which those from `first` on count; at: the block's last.
 * state: as ops.def has it, of width `width`. */
static double compressed(const struct rn_op *op, const float *state, uint32_t width, uint32_t first, uint32_t at,
                         uint32_t i)
{
    uint32_t n = width / op->k_dim * op->per, k;
    double most = -INFINITY, total = 0, sum = 0, weight;
    const float *row;

    for (k = first; k < n; k++) {
        row = state + (size_t)((at + 1 + k) % n) * 2 * width + k / op->per * op->k_dim + i;
        most = fmax(most, row[width]);
    }
    for (k = first; k < n; k++) {
        row = state + (size_t)((at + 1 + k) % n) * 2 * width + k / op->per * op->k_dim + i;
        weight = exp(row[width] - most);
        total += weight;
        sum += weight * row[0];
    }
    return sum / total;
}

void rn_reference_compress(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t width = ref->plan->slots[op->a].width, n = width / op->k_dim * op->per, r, i, at, first;
    float *state, *row, *out;
    const float *w;

    for (r = 0; r < step->n_rows; r++) {
        at = step->rows[r].position;
        state = rn_reference_state(ref, op, step, r);
        row = state + (size_t)(at % n) * 2 * width;
        w = numbers(ref, op->weight, at % op->per);
        for (i = 0; i < width; i++) {
            row[i] = row_of(ref, op->a, r)[i];
            row[width + i] = row_of(ref, op->b, r)[i] + w[i];
        }
        out = row_of(ref, op->out, r);
        first = at + 1 < n ? n - (at + 1) : 0; /* of the first block there is none before */
        for (i = 0; i < op->k_dim; i++)
            out[i] = (at + 1) % op->per == 0 ? (float)compressed(op, state, width, first, at, i) : 0;
    }
}
