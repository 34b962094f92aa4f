/* Pieces of a layer: see parts.h. */
#include "train/parts.h"

#include <math.h>

typedef float four __attribute__((vector_size(16)));
typedef float loose __attribute__((vector_size(16), aligned(4), may_alias));

float rn_dot(const float *a, const float *b, size_t n)
{
    four low = {0}, high = {0};
    float sum;
    size_t i;

    for (i = 0; i + 8 <= n; i += 8) {
        low += *(const loose *)(a + i) * *(const loose *)(b + i);
        high += *(const loose *)(a + i + 4) * *(const loose *)(b + i + 4);
    }
    low += high;
    sum = (low[0] + low[1]) + (low[2] + low[3]);
    for (; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

void rn_axpy(float *y, float factor, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += factor * x[i];
}

void rn_norm(size_t rows, size_t n, const float *x, const float *weight, float eps, float *y, size_t y_row,
             float *scale)
{
    for (size_t r = 0; r < rows; r++, x += n, y += y_row) {
        scale[r] = 1.0f / sqrtf(rn_dot(x, x, n) / (float)n + eps);
        for (size_t i = 0; i < n; i++)
            y[i] = weight[i] * (x[i] * scale[r]);
    }
}

void rn_norm_back(size_t rows, size_t n, const float *x, const float *weight, const float *scale, const float *dy,
                  size_t dy_row, float *dx, float *d_weight)
{
    for (size_t r = 0; r < rows; r++, x += n, dx += n, dy += dy_row) {
        double along = 0;
        float pull;

        for (size_t i = 0; i < n; i++)
            along += (double)weight[i] * dy[i] * x[i];
        pull = (float)(along / (double)n) * scale[r] * scale[r] * scale[r];
        for (size_t i = 0; i < n; i++) {
            d_weight[i] += dy[i] * x[i] * scale[r];
            dx[i] += scale[r] * weight[i] * dy[i] - pull * x[i];
        }
    }
}

void rn_swiglu(size_t n, const float *gate, const float *up, float *z)
{
    for (size_t i = 0; i < n; i++)
        z[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

void rn_swiglu_back(size_t n, float *gate, float *up, const float *dz)
{
    for (size_t i = 0; i < n; i++) {
        float g = gate[i], u = up[i], s = 1.0f / (1.0f + expf(-g));

        gate[i] = dz[i] * u * s * (1.0f + g * (1.0f - s));
        up[i] = dz[i] * g * s;
    }
}

void rn_turns_fill(uint32_t positions, uint32_t dim, float base, float *turns)
{
    for (uint32_t p = 0; p < positions; p++)
        for (uint32_t i = 0; i < dim / 2; i++) {
            double angle = p * pow(base, -2.0 * i / dim);

            *turns++ = (float)cos(angle);
            *turns++ = (float)sin(angle);
        }
}

void rn_turn(size_t rows, uint32_t first, uint32_t heads, uint32_t dim, const float *turns, float direction, float *x)
{
    for (size_t r = 0; r < rows; r++) {
        const float *turn = turns + (first + r) * dim;

        for (uint32_t h = 0; h < heads; h++, x += dim)
            for (uint32_t i = 0; i < dim; i += 2) {
                float even = x[i], odd = x[i + 1], sine = direction * turn[i + 1];

                x[i] = even * turn[i] - odd * sine;
                x[i + 1] = even * sine + odd * turn[i];
            }
    }
}
