/* Products of float matrices against sums in double, at every level that the machine has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cpu/cpu.h"
#include "cpu/kernels.h"

#define MOST (200 * 600)

static float a[MOST], b[MOST], c[MOST], before[MOST];
static uint64_t coin_state = 5;

static void fill(float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)((double)(rn_splitmix64(&coin_state) >> 11) * 0x1p-52 - 1.0);
}

/* Each of the four ways in which the operands may lie. A row of c has three floats more than n, which stay. */
static void check(const struct rn_gemm *gemm, size_t m, size_t n, size_t depth, int turned, bool add)
{
    struct rn_strided left = turned & 1 ? (struct rn_strided){a, 1, m} : (struct rn_strided){a, depth, 1};
    struct rn_strided right = turned & 2 ? (struct rn_strided){b, 1, depth} : (struct rn_strided){b, n, 1};
    float *scratch = aligned_alloc(64, (gemm->scratch_floats * sizeof(float) + 63) / 64 * 64);
    size_t c_row = n + 3;

    assert_non_null(scratch);
    fill(c, m * c_row);
    memcpy(before, c, m * c_row * sizeof *c);
    gemm->run(m, n, depth, left, right, c, c_row, add, scratch);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < c_row; j++) {
            double sum = j >= n || add ? before[i * c_row + j] : 0.0;

            for (size_t k = 0; j < n && k < depth; k++)
                sum += (double)left.at[i * left.row + k * left.col] * right.at[k * right.row + j * right.col];
            if (j >= n)
                assert_true(c[i * c_row + j] == before[i * c_row + j]);
            else
                assert_true(fabs(c[i * c_row + j] - sum) <= 1e-6 * (double)(depth + 8));
        }
    free(scratch);
}

static void check_all(const struct rn_gemm *gemm)
{
    static const size_t sizes[][3] = {{1, 1, 1},     {6, 16, 3},  {7, 17, 5}, {97, 33, 40}, {100, 530, 4},
                                      {13, 20, 257}, {5, 8, 600}, {4, 3, 0},  {0, 5, 5},    {5, 0, 5}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int turned = 0; turned < 4; turned++)
            for (int add = 0; add < 2; add++)
                check(gemm, sizes[i][0], sizes[i][1], sizes[i][2], turned, add != 0);
}

static void test_plain(void **state)
{
    (void)state;
    fill(a, MOST);
    fill(b, MOST);
    check_all(rn_gemm_c());
}

static void test_avx2(void **state)
{
    (void)state;
    if (rn_level_avx2() == NULL)
        skip();
    fill(a, MOST);
    fill(b, MOST);
    check_all(rn_gemm_avx2());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain), cmocka_unit_test(test_avx2)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
