/* The AVX2 level's products of floats.
 *
 * Direct: four weight rows by up to three inputs, the weights as they stand in the file. */
#include <immintrin.h>

#include "cpu/levels/floats_x86.h"
#include "cpu/levels/levels_x86.h"

#define INLINE static inline __attribute__((always_inline))

typedef __m256 VF;

#define vf_zero _mm256_setzero_ps
#define vf_fma _mm256_fmadd_ps
#define vf_load _mm256_load_ps
#define vf_store _mm256_store_ps
#define vf_eight _mm256_loadu_ps
#define vf_twice(v) (v)

#define WIDTH 3
#define OTHER const struct rn_kernel rn_other_avx2_kernel
enum { TILE = 4, VECTORS = 4, AHEAD = 1024, PACK_FLOATS_FROM = 8 };

/* Up to four rows from `row` on, inputs [first, first + n); n, kind are constants. */
INLINE void direct_part(const struct rn_matmul *m, enum rn_float_kind kind, uint32_t row, uint32_t first, uint32_t n)
{
    size_t size = kind == RN_FLOAT_32 ? 4 : 2;
    uint32_t height = m->rows - row < TILE ? m->rows - row : TILE, r, c, i;
    __m256 acc[TILE][WIDTH], x[WIDTH], w;
    const uint8_t *rows[TILE];
    float sums[TILE];

    static_assert(TILE == 4, "as many as are summed at once");
    for (r = 0; r < TILE; r++) {
        rows[r] = m->weights + (size_t)(row + (r < height ? r : height - 1)) * m->step * m->row_bytes;
        for (c = 0; c < n; c++)
            acc[r][c] = _mm256_setzero_ps();
    }
    for (i = 0; i + 8 <= m->cols; i += 8) {
        for (c = 0; c < n; c++)
            x[c] = _mm256_loadu_ps((const float *)m->inputs[first + c] + i);
        for (r = 0; r < TILE; r++) {
            w = rn_eight_floats(rows[r] + i * size, kind);
            if (n == 1)
                _mm_prefetch((const char *)rows[r] + i * size + AHEAD, _MM_HINT_T0);
            for (c = 0; c < n; c++)
                acc[r][c] = _mm256_fmadd_ps(w, x[c], acc[r][c]);
        }
    }
    for (r = 0; r < TILE; r++) {
        for (c = 0; c < n; c++) {
            if (i < m->cols)
                acc[r][c] = _mm256_fmadd_ps(rn_floats_at(rows[r], kind, i, m->cols),
                                            rn_floats_at(m->inputs[first + c], RN_FLOAT_32, i, m->cols), acc[r][c]);
        }
    }
    for (c = 0; c < n; c++) {
        _mm_storeu_ps(sums, rn_float_sums(acc[0][c], acc[1][c], acc[2][c], acc[3][c]));
        for (r = 0; r < height; r++)
            m->out[first + c][(size_t)(row + r) * m->step] = sums[r];
    }
}

INLINE void direct(const struct rn_matmul *m, enum rn_float_kind kind)
{
    uint32_t row, i;

    for (row = 0; row < m->rows; row += TILE) {
        for (i = 0; i + WIDTH <= m->n; i += WIDTH)
            direct_part(m, kind, row, i, WIDTH);
        if (i + 2 == m->n)
            direct_part(m, kind, row, i, 2);
        else if (i + 1 == m->n)
            direct_part(m, kind, row, i, 1);
    }
}

void rn_direct_f32(const struct rn_matmul *m)
{
    direct(m, RN_FLOAT_32);
}

void rn_direct_f16(const struct rn_matmul *m)
{
    direct(m, RN_FLOAT_16);
}

void rn_direct_bf16(const struct rn_matmul *m)
{
    direct(m, RN_FLOAT_B16);
}

#include "cpu/levels/floats.inc"

const struct rn_kernel *rn_floats_avx2(uint32_t type_id)
{
    return float_kernel(type_id);
}
