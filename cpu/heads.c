/* The op HEAD_SUM on the fast path: products with matrices of heads, transposed.
 *
 * A piece is a head. Each row of its matrix is decoded once for all rows of the step, and joins their sums in order: so
 * a row's bits do not depend on its step (law 5). */
#include <string.h>

#include "cpu/execute.h"
#include "model/stop.h"

static void sum_head(const struct rn_fast_context *c, const struct rn_instruction *in, uint32_t head)
{
    const struct rn_op *op = in->op;
    const struct rn_weight *w = &c->fast->plan->weights[op->weight];
    const uint8_t *matrix = w->tensor->data;
    uint32_t n = rn_fast_rows_of(c, in), row, i;
    float *decoded = c->scratch->panel;

    matrix += ((size_t)head * w->rows + op->group) * w->row_bytes;
    for (row = 0; row < n; row++)
        memset(rn_fast_row(c, op->out, row) + (size_t)head * w->cols, 0, w->cols * sizeof(float));
    for (i = 0; i < op->k_dim; i++, matrix += w->row_bytes) {
        w->type->decode(matrix, decoded, w->cols);
        for (row = 0; row < n; row++)
            c->fast->level->rows->accumulate(rn_fast_row(c, op->out, row) + (size_t)head * w->cols, decoded,
                                             rn_fast_row(c, op->a, row)[(size_t)head * op->k_dim + i], w->cols);
    }
}

void rn_fast_head_sum(const struct rn_fast_context *c, uint32_t index)
{
    const struct rn_instruction *in = &c->fast->program.list[index];
    uint32_t head;

    while ((head = rn_fast_take(c, index)) < in->op->heads && !rn_stop_is_set(c->step->stop))
        sum_head(c, in, head);
}
