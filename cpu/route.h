/* One row of op ROUTE: which experts, and with what weights. */
#ifndef RN_CPU_ROUTE_H
#define RN_CPU_ROUTE_H

#include "model/plan.h"

/* logits [experts]; more [experts], or NULL; ids and weights [used]. Whatever the numbers are, ids are in range, and
 * but for rn_op.per different. */
void rn_route_row(const struct rn_op *op, const float *logits, const float *more, int32_t *ids, float *weights);

/* The weights of ids [used] that are known. */
void rn_route_weigh(const struct rn_op *op, const float *logits, const int32_t *ids, float *weights);

#endif
