/* The pieces of a layer, each with its way back. All sums of a backward pass are added to what is there.
 *
 * RMS norm: y = w * x * r, r = 1 / sqrt(mean(x²) + eps).
 *     dw += dy * x * r        dx += r * (w * dy) - x * r³ / n * sum(w * dy * x)
 * SwiGLU: z = silu(g) * u, silu(g) = g * s, s = 1 / (1 + exp(-g)).
 *     du = dz * g * s         dg = dz * u * s * (1 + g * (1 - s))
 * Rotation by an angle; its way back is the rotation by minus that.
 *
 * Threads: pure functions. */
#ifndef RN_TRAIN_PARTS_H
#define RN_TRAIN_PARTS_H

#include <stddef.h>
#include <stdint.h>

/* x, y [rows, n] with the given strides; scale [rows] takes r. */
void rn_norm(size_t rows, size_t n, const float *x, const float *weight, float eps, float *y, size_t y_row,
             float *scale);
/* dy with dy_row; dx [rows, n]. */
void rn_norm_back(size_t rows, size_t n, const float *x, const float *weight, const float *scale, const float *dy,
                  size_t dy_row, float *dx, float *d_weight);

/* z [n]; and back: gate and up become their own gradients. */
void rn_swiglu(size_t n, const float *gate, const float *up, float *z);
void rn_swiglu_back(size_t n, float *gate, float *up, const float *dz);

/* x [rows, heads, dim] in place; row i is at position first + i. turns [positions, dim]: cosine and sine of each pair.
 * direction 1, or -1 for the way back. */
void rn_turns_fill(uint32_t positions, uint32_t dim, float base, float *turns);
void rn_turn(size_t rows, uint32_t first, uint32_t heads, uint32_t dim, const float *turns, float direction, float *x);

float rn_dot(const float *a, const float *b, size_t n);
void rn_axpy(float *y, float factor, const float *x, size_t n); /* y += factor * x */

#endif
