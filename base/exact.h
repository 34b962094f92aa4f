/* exp and log defined to the bit: doubles, + - × ÷ in the order that stands here and no fused products, so that plain
 * C, every SIMD level and a GPU get the same bits. The machine's libm does not promise that.
 *
 *   log x = e ln 2 + 2 (s + s³/3 + s⁵/5 + ... + s²³/23)      x = 2^e m, m in [√½, √2), s = (m - 1) / (m + 1)
 *   exp x = 2^n (1 + r + r²/2! + ... + r¹³/13!)              n = x / ln 2 to the nearest integer, r = x - n ln 2
 *
 * Both series are cut where the next term is below the last bit; the error is below 4 units in the last place. */
#ifndef RN_BASE_EXACT_H
#define RN_BASE_EXACT_H

#include <stdint.h>
#include <string.h>

#ifndef RN_EXACT
#define RN_EXACT static inline /* kernels of a GPU say here that a function is the device's */
#endif

#define RN_LN2_HIGH 0x1.62e42fefa0000p-1 /* 33 bits, so that its products with an exponent are exact */
#define RN_LN2_LOW 0x1.cf79abc9e3b39p-40

/* The natural logarithm of a normal positive number. */
RN_EXACT double rn_exact_log(double x)
{
    uint64_t bits;
    int64_t e;
    double m, s, z, sum;

    memcpy(&bits, &x, sizeof bits);
    e = (int64_t)((bits - 0x3fe6a09e667f3bcdu) >> 52) - ((bits < 0x3fe6a09e667f3bcdu) ? 4096 : 0);
    bits -= (uint64_t)e << 52;
    memcpy(&m, &bits, sizeof m);
    s = (m - 1) / (m + 1);
    z = s * s;
    sum = 1.0 / 23;
    sum = sum * z + 1.0 / 21;
    sum = sum * z + 1.0 / 19;
    sum = sum * z + 1.0 / 17;
    sum = sum * z + 1.0 / 15;
    sum = sum * z + 1.0 / 13;
    sum = sum * z + 1.0 / 11;
    sum = sum * z + 1.0 / 9;
    sum = sum * z + 1.0 / 7;
    sum = sum * z + 1.0 / 5;
    sum = sum * z + 1.0 / 3;
    sum = 2 * s + 2 * s * (z * sum) + (double)e * RN_LN2_LOW;
    return (double)e * RN_LN2_HIGH + sum;
}

/* e to the z as a whole number of 2^-42, to some 2 parts in a million: z at most 0, -inf too. In floats, since top-p
 * weighs a whole vocabulary; where it cuts, so much does not count. The power of 2 is z / ln 2 to the nearest, what is
 * left goes into the series of 2^r up to r⁶. */
RN_EXACT uint64_t rn_quick_weight(float z)
{
    const float shift = 0x1.8p23f; /* what is added to it is rounded to an integer, which is in the low bits */
    float x = (z > -30 ? z : -30) * 0x1.715476p0f, n = x + shift, r, sum, power;
    double whole;
    uint64_t result;
    uint32_t bits;

    memcpy(&bits, &n, sizeof bits);
    r = x - (n - shift);
    sum = 0x1.430912p-13f;
    sum = sum * r + 0x1.5d87fep-10f;
    sum = sum * r + 0x1.3b2ab6p-7f;
    sum = sum * r + 0x1.c6b08ep-5f;
    sum = sum * r + 0x1.ebfbep-3f;
    sum = sum * r + 0x1.62e43p-1f;
    sum = sum * r + 1;
    bits = (bits + 127) << 23;
    memcpy(&power, &bits, sizeof power);
    whole = (double)(sum * power) + 0x1p10; /* its last bit is 2^-42 */
    memcpy(&result, &whole, sizeof result);
    return result & (((uint64_t)1 << 52) - 1);
}

/* e to the x, x in [-708, 708]: there the result is a normal number. */
RN_EXACT double rn_exact_exp(double x)
{
    const double shift = 0x1.8p52; /* what is added to it is rounded to an integer, which is in the low bits */
    double n = x * 0x1.71547652b82fep0 + shift, r, sum, power;
    uint64_t bits;

    memcpy(&bits, &n, sizeof bits);
    n -= shift;
    r = (x - n * RN_LN2_HIGH) - n * RN_LN2_LOW;
    sum = 1.0 / 6227020800;
    sum = sum * r + 1.0 / 479001600;
    sum = sum * r + 1.0 / 39916800;
    sum = sum * r + 1.0 / 3628800;
    sum = sum * r + 1.0 / 362880;
    sum = sum * r + 1.0 / 40320;
    sum = sum * r + 1.0 / 5040;
    sum = sum * r + 1.0 / 720;
    sum = sum * r + 1.0 / 120;
    sum = sum * r + 1.0 / 24;
    sum = sum * r + 1.0 / 6;
    sum = sum * r + 0.5;
    sum = sum * r + 1;
    sum = sum * r + 1;
    bits = (bits + 1023) << 52;
    memcpy(&power, &bits, sizeof power);
    return sum * power;
}

#endif
