/* Products of float matrices: the contract between who needs them (train/) and who computes them fast (cpu/).
 *
 *   c[i][j] = (add ? c[i][j] : 0) + sum over k of a[i][k] * b[k][j]        i < m, j < n, k < depth
 *
 * An operand is read through two strides, so that a transposed matrix needs no copy: element (i, k) of `a` lies
 * at a[i * a_row + k * a_col]. The sum's order depends on the sizes alone: the same call gives the same bits
 * on the same machine.
 *
 * Threads: pure functions; `scratch` is the caller's own. */
#ifndef RN_MODEL_GEMM_H
#define RN_MODEL_GEMM_H

#include <stdbool.h>
#include <stddef.h>

/* A matrix seen through its strides, in elements. */
struct rn_strided {
    const float *at;
    size_t row, col;
};

struct rn_gemm {
    /* c [m, n] with c_row elements from row to row; scratch [scratch_floats], aligned to 64 bytes. Any size, 0
     * included: depth 0 leaves c as it is when adding, else zeros. */
    void (*run)(size_t m, size_t n, size_t depth, struct rn_strided a, struct rn_strided b, float *c, size_t c_row,
                bool add, float *scratch);
    size_t scratch_floats;
};

#endif
