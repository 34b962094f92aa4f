/* KV formats against their definition in model/kv.h: every code of E4M3, each format's bytes taken apart here by
 * themselves, the nearest levels and the best scale by trying all, the rotation as a matrix; and sizes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "model/kv.h"
#include "model/quant/quant.h"

enum { MAX_DIM = 600 };

static const uint32_t sizes[] = {1, 2, 3, 7, 8, 13, 20, 31, 32, 33, 64, 80, 96, 112, 128, 256, 260, 320, 576};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

static uint64_t seed;

static float gaussian(void)
{
    double sum = -6;
    int i;

    for (i = 0; i < 12; i++)
        sum += (double)(rn_splitmix64(&seed) >> 11) * 0x1p-53;
    return (float)sum;
}

/* ---- E4M3 ---- */

static double e4m3(uint8_t code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double size = exponent == 0 ? mantissa / 8.0 * pow(2, -6) : (1 + mantissa / 8.0) * pow(2, exponent - 7);

    return code >= 128 ? -size : size;
}

static uint8_t encoded_f8(float x)
{
    uint8_t code;

    rn_kv_encode(RUNNEL_KV_FP8, &x, 1, &code);
    return code;
}

static void f8_codes(void **state)
{
    int code;

    (void)state;
    for (code = 0; code < 256; code++) {
        if ((code & 127) == 127) {
            assert_true(isnan(rn_f8_to_f32((uint8_t)code)));
            continue;
        }
        assert_true(rn_f8_to_f32((uint8_t)code) == e4m3((uint8_t)code));
        assert_int_equal(encoded_f8((float)e4m3((uint8_t)code)), code);
    }
    assert_int_equal(encoded_f8(NAN) & 127, 127);
    assert_int_equal(encoded_f8(INFINITY), 126);
    assert_int_equal(encoded_f8(-INFINITY), 254);
    assert_int_equal(encoded_f8(1e30f), 126);
    assert_true(e4m3(126) == 448);
}

/* Between two neighbours: the nearer one; in the middle the even one. */
static void f8_rounds(void **state)
{
    float low, high, middle;
    int code;

    (void)state;
    for (code = 0; code < 126; code++) {
        low = (float)e4m3((uint8_t)code);
        high = (float)e4m3((uint8_t)(code + 1));
        middle = (low + high) / 2; /* exact */
        assert_int_equal(encoded_f8(middle), code + code % 2);
        assert_int_equal(encoded_f8(nextafterf(middle, 0)), code);
        assert_int_equal(encoded_f8(nextafterf(middle, high)), code + 1);
        assert_int_equal(encoded_f8(-middle), (code + code % 2) | 128);
    }
}

/* ---- Groups ---- */

/* Code of number i in a group of n, from its bytes as kv.h describes them. */
static int code_of(runnel_kv_type type, const uint8_t *bytes, uint32_t n, uint32_t i)
{
    uint32_t q = (n + 3) / 4, e = (n + 7) / 8;
    int third;

    if (type == RUNNEL_KV_Q8)
        return bytes[i] < 128 ? bytes[i] : bytes[i] - 256;
    if (type == RUNNEL_KV_Q4)
        return i < (n + 1) / 2 ? bytes[i] % 16 : bytes[i - (n + 1) / 2] / 16;
    third = bytes[q + i % e] >> (i / e) & 1;
    return (bytes[i % q] >> (2 * (i / q)) & 3) + 4 * third;
}

static double level_of(runnel_kv_type type, int code)
{
    static const int four[] = {RN_KV_CODES4}, three[] = {RN_KV_CODES3};

    return type == RUNNEL_KV_Q8 ? code : type == RUNNEL_KV_Q4 ? four[code] : three[code];
}

static int n_codes(runnel_kv_type type)
{
    return type == RUNNEL_KV_Q4 ? 16 : 8;
}

/* Distance from x to d times the nearest level. */
static double least_error(runnel_kv_type type, double d, double x)
{
    double least = INFINITY;
    int code;

    if (type == RUNNEL_KV_Q8)
        return fabs(x - d * fmax(-127, fmin(127, d == 0 ? 0 : nearbyint(x / d))));
    for (code = 0; code < n_codes(type); code++)
        least = fmin(least, fabs(x - d * level_of(type, code)));
    return least;
}

static double squares(runnel_kv_type type, const float *a, uint32_t n, double d)
{
    double sum = 0, error;
    uint32_t i;

    for (i = 0; i < n; i++) {
        error = least_error(type, d, a[i]);
        sum += error * error;
    }
    return sum;
}

/* a: the group as it is to be stored. Tolerances are those of float against double. */
static void check_group(runnel_kv_type type, const float *a, uint32_t n, const uint8_t *bytes, const float *decoded)
{
    double d, most = 0, best = INFINITY, got;
    uint16_t half;
    uint32_t i;
    int s;

    memcpy(&half, bytes, 2);
    d = rn_f16_to_f32(half);
    for (i = 0; i < n; i++) {
        most = fmax(most, fabs(a[i]));
        got = d * level_of(type, code_of(type, bytes + 2, n, i));
        assert_true(decoded[i] == got);
        assert_true(fabs(a[i] - got) <= least_error(type, d, a[i]) + 1e-6 * fabs(a[i]) + 1e-30);
    }
    if (type == RUNNEL_KV_Q8) {
        assert_true(fabs(d - most / 127) <= most / 127 * 0x1p-11 + 0x1p-25);
        return;
    }
    for (s = 10; s <= 17; s++)
        best = fmin(best, squares(type, a, n, rn_f16_to_f32(rn_f32_to_f16((float)(most / 127 * s / 16)))));
    assert_true(squares(type, a, n, d) <= best * 1.00001 + 1e-30);
}

/* a times the matrix that kv.h names, written out. */
static void rotated(const float *a, uint32_t n, float *out)
{
    uint32_t span = 1, i, j;
    double sum;

    while (span < 256 && n % (2 * span) == 0)
        span *= 2;
    for (i = 0; i < n; i++) {
        for (sum = 0, j = 0; j < span; j++)
            sum += (__builtin_popcount(i % span & j) % 2 == 0 ? 1 : -1) * (double)a[i - i % span + j];
        out[i] = (float)(sum / sqrt(span));
    }
}

static void check_row(runnel_kv_type type, const float *a, uint32_t n)
{
    float want[MAX_DIM], decoded[MAX_DIM];
    uint8_t bytes[4 * MAX_DIM + 8];
    size_t at = 0, n_bytes = rn_kv_row_bytes(type, n);
    uint32_t i, m;

    memset(bytes, 0xa5, sizeof bytes);
    rn_kv_encode(type, a, n, bytes);
    for (i = 0; i < 8; i++)
        assert_int_equal(bytes[n_bytes + i], 0xa5);
    rn_kv_decode(type, bytes, n, decoded);
    memcpy(want, a, n * sizeof *a);
    if (type != RUNNEL_KV_Q8)
        rn_kv_rotate(want, n); /* judged by itself below */
    for (i = 0; i < n; i += m) {
        m = n - i < 32 ? n - i : 32;
        check_group(type, want + i, m, bytes + at, decoded + i);
        at += 2 + (type == RUNNEL_KV_Q8 ? m : type == RUNNEL_KV_Q4 ? (m + 1) / 2 : (m + 3) / 4 + (m + 7) / 8);
    }
    assert_int_equal(at, n_bytes);
}

static void groups(void **state)
{
    static const runnel_kv_type types[] = {RUNNEL_KV_Q8, RUNNEL_KV_Q4, RUNNEL_KV_Q3};
    float a[MAX_DIM];
    uint32_t t, s, i, repeat;

    (void)state;
    for (t = 0; t < 3; t++) {
        for (s = 0; s < N_SIZES; s++) {
            for (repeat = 0; repeat < 20; repeat++) {
                for (i = 0; i < sizes[s]; i++)
                    a[i] = gaussian() * (repeat % 5 == 1 ? 1e-3f : repeat % 5 == 2 && i == 5 ? 50 : 1);
                check_row(types[t], a, sizes[s]);
            }
        }
    }
}

static void rotation(void **state)
{
    float a[MAX_DIM], got[MAX_DIM], want[MAX_DIM];
    uint32_t s, i;

    (void)state;
    for (s = 0; s < N_SIZES; s++) {
        for (i = 0; i < sizes[s]; i++)
            got[i] = a[i] = gaussian();
        rn_kv_rotate(got, sizes[s]);
        rotated(a, sizes[s], want);
        for (i = 0; i < sizes[s]; i++)
            assert_true(fabsf(got[i] - want[i]) <= 2e-6f);
        rn_kv_rotate(got, sizes[s]); /* its own inverse */
        for (i = 0; i < sizes[s]; i++)
            assert_true(fabsf(got[i] - a[i]) <= 4e-6f);
    }
}

/* Nothing, what is no number, and what is too large for a scale. */
static void extremes(void **state)
{
    static const runnel_kv_type types[] = {RUNNEL_KV_Q8, RUNNEL_KV_Q4, RUNNEL_KV_Q3};
    float a[64], out[64];
    uint8_t bytes[256];
    uint32_t t, i;

    (void)state;
    for (t = 0; t < 3; t++) {
        memset(a, 0, sizeof a);
        rn_kv_encode(types[t], a, 64, bytes);
        rn_kv_decode(types[t], bytes, 64, out);
        for (i = 0; i < 64; i++)
            assert_true(out[i] == 0);
        a[40] = NAN;
        rn_kv_encode(types[t], a, 64, bytes);
        rn_kv_decode(types[t], bytes, 64, out);
        for (i = 32; i < 64; i++)
            assert_true(isnan(out[i]));
        a[40] = -INFINITY;
        rn_kv_encode(types[t], a, 64, bytes);
        rn_kv_decode(types[t], bytes, 64, out);
        assert_true(isnan(out[40]));
        for (i = 0; i < 64; i++)
            a[i] = i == 3 ? -3e38f : 0;
        rn_kv_encode(types[t], a, 64, bytes);
        rn_kv_decode(types[t], bytes, 64, out);
        assert_true(isfinite(out[3]) && fabsf(out[3]) >= 65504);
    }
}

/* Bits per number, and how near the stored row is: signal to noise of Gaussian numbers. */
static void errors(void **state)
{
    static const struct {
        runnel_kv_type type;
        uint32_t bytes; /* of 128 numbers */
        double least_db;
    } cases[] = {{RUNNEL_KV_F32, 512, 1000}, {RUNNEL_KV_F16, 256, 70}, {RUNNEL_KV_BF16, 256, 52},
                 {RUNNEL_KV_FP8, 128, 31},   {RUNNEL_KV_Q8, 136, 44},  {RUNNEL_KV_Q4, 72, 21.8},
                 {RUNNEL_KV_Q3, 56, 15.6}};
    double noise, signal;
    float a[128], out[128];
    uint8_t bytes[512];
    uint32_t c, i, repeat;

    (void)state;
    for (c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        assert_int_equal(rn_kv_row_bytes(cases[c].type, 128), cases[c].bytes);
        for (noise = signal = 0, repeat = 0; repeat < 500; repeat++) {
            for (i = 0; i < 128; i++)
                a[i] = gaussian();
            rn_kv_encode(cases[c].type, a, 128, bytes);
            rn_kv_decode(cases[c].type, bytes, 128, out);
            if (rn_kv_rotated(cases[c].type))
                rn_kv_rotate(out, 128);
            for (i = 0; i < 128; i++) {
                signal += (double)a[i] * a[i];
                noise += ((double)a[i] - out[i]) * ((double)a[i] - out[i]);
            }
        }
        if (!(10 * log10(signal / noise) >= cases[c].least_db))
            fail_msg("KV type %d: %.2f dB", (int)cases[c].type, 10 * log10(signal / noise));
    }
    assert_false(rn_kv_known((runnel_kv_type)7));
    assert_false(rn_kv_known((runnel_kv_type)-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(f8_codes), cmocka_unit_test(f8_rounds),
                                       cmocka_unit_test(groups),   cmocka_unit_test(rotation),
                                       cmocka_unit_test(extremes), cmocka_unit_test(errors)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
