/* wrap.cuh for the emulation. */
#ifndef RN_GPU_WRAP_HOST_CUH
#define RN_GPU_WRAP_HOST_CUH

#include <math.h>
#include <string.h>

#include "gpu/kernels/emulate/inside.h"

#define DEVICE inline
#define UNROLL
#define UNROLL_TIMES(n)
/* The body is a function of the arguments; the table of kernels has one of a pointer to them. */
#define RN_KERNEL(name, args_type, threads, blocks)     \
    static void body_##name(const args_type &args);     \
    extern "C" void rn_kernel_##name(const void *args)  \
    {                                                   \
        body_##name(*static_cast<const args_type *>(args)); \
    }                                                   \
    static void body_##name(const args_type &args)
#define RN_KERNEL_AHEAD(name, args_type, threads, blocks) RN_KERNEL(name, args_type, threads, blocks)

/* Launches run one behind the other. */
inline void grid_wait()
{
}

#define RN_HERE (rn_emulated_site{__FILE__, __LINE__})

inline uint32_t thread_of_block()
{
    return rn_emulated_here()->thread;
}
inline uint32_t block_x()
{
    return rn_emulated_here()->block[0];
}
inline uint32_t block_y()
{
    return rn_emulated_here()->block[1];
}
inline uint32_t block_z()
{
    return rn_emulated_here()->block[2];
}
inline uint32_t grid_z()
{
    return rn_emulated_here()->grid[2];
}

#define sync_block() rn_emulated_sync_block(RN_HERE)
#define sync_warp() rn_emulated_sync_warp(RN_HERE)

/* A value from one lane to another. */
template <class T> struct emulated_shuffle {
    T value, result;
    uint32_t from;
    static void together(void *const data[32])
    {
        for (int lane = 0; lane < 32; lane++) {
            emulated_shuffle *own = static_cast<emulated_shuffle *>(data[lane]);
            own->result = static_cast<emulated_shuffle *>(data[own->from % 32])->value;
        }
    }
};

template <class T> inline T emulated_shuffled(rn_emulated_site site, T value, uint32_t from)
{
    emulated_shuffle<T> own = {value, value, from};

    rn_emulated_warp(site, emulated_shuffle<T>::together, &own);
    return own.result;
}

#define shuffle_xor(v, mask) emulated_shuffled(RN_HERE, v, (rn_emulated_here()->thread % 32) ^ (mask))
#define shuffle(v, lane) emulated_shuffled(RN_HERE, v, lane)

inline uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

inline uint32_t emulated_bf16(float value)
{
    uint32_t bits = bits_of(value);

    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline uint32_t pack_bf16(float low, float high)
{
    return emulated_bf16(low) | emulated_bf16(high) << 16;
}

inline uint32_t minus_bf16(uint32_t a, uint32_t b)
{
    return pack_bf16(float_of(a << 16) - float_of(b << 16), float_of(a & 0xffff0000u) - float_of(b & 0xffff0000u));
}

inline float float_of_half(uint32_t half)
{
    uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, rest = half & 1023;

    if (exponent == 0)
        return (sign != 0 ? -1.0f : 1.0f) * (float)rest * 5.9604644775390625e-8f;
    return float_of(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | rest << 13);
}

/* Below 2^-14 the unit is 2^-24, which adding 0.5 leaves as the last bit. */
inline uint32_t half_of(float value)
{
    uint32_t sign = bits_of(value) >> 16 & 0x8000u, size = bits_of(value) & 0x7fffffffu;

    if (size > 0x7f800000u)
        return sign | 0x7e00;
    if (size >= 0x477ff000u) /* 65520 */
        return sign | 0x7c00;
    if (size < 0x38800000u)
        return sign | (bits_of(float_of(size) + 0.5f) - 0x3f000000u);
    return sign | ((size - 0x38000000u + 0xfff + (size >> 13 & 1)) >> 13);
}

inline uint32_t pack_f16(float low, float high)
{
    return half_of(low) | half_of(high) << 16;
}

inline float power_of_2(float x)
{
    return exp2f(x);
}

/* The product of the tensor cores, in float, by ascending k. A lane's registers as wrap.cuh says. */
template <float OF_HALF(uint32_t)> struct emulated_mma {
    float *c;
    const uint32_t *a, *b;
    static void together(void *const data[32])
    {
        float a[16][16], b[16][8];

        for (int lane = 0; lane < 32; lane++) {
            const emulated_mma *own = static_cast<const emulated_mma *>(data[lane]);
            int g = lane / 4, t = lane % 4;

            for (int i = 0; i < 4; i++) {
                a[g + i % 2 * 8][2 * t + i / 2 * 8] = OF_HALF(own->a[i] & 0xffff);
                a[g + i % 2 * 8][2 * t + i / 2 * 8 + 1] = OF_HALF(own->a[i] >> 16);
            }
            for (int i = 0; i < 2; i++) {
                b[2 * t + i * 8][g] = OF_HALF(own->b[i] & 0xffff);
                b[2 * t + i * 8 + 1][g] = OF_HALF(own->b[i] >> 16);
            }
        }
        float sums[16][8] = {};
        for (int m = 0; m < 16; m++)
            for (int k = 0; k < 16; k++)
                for (int n = 0; n < 8; n++)
                    sums[m][n] += a[m][k] * b[k][n];
        for (int lane = 0; lane < 32; lane++) {
            float *c = static_cast<const emulated_mma *>(data[lane])->c;
            for (int i = 0; i < 4; i++)
                c[i] += sums[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
        }
    }
};

template <float OF_HALF(uint32_t)>
inline void emulated_product(rn_emulated_site site, float *c, const uint32_t *a, const uint32_t *b)
{
    emulated_mma<OF_HALF> own = {c, a, b};

    rn_emulated_warp(site, emulated_mma<OF_HALF>::together, &own);
}
inline float emulated_float_of_bf16(uint32_t bits)
{
    return float_of(bits << 16);
}
#define mma_bf16(c, a, b) emulated_product<emulated_float_of_bf16>(RN_HERE, c, a, b)
#define mma_f16(c, a, b) emulated_product<float_of_half>(RN_HERE, c, a, b)

/* Each lane reads the row that it has named; then each takes its words of all. */
struct emulated_matrices {
    uint16_t row[8];
    uint32_t *w;
    static void together(void *const data[32])
    {
        for (int lane = 0; lane < 32; lane++)
            for (int j = 0; j < 4; j++)
                memcpy(&of(data, lane)->w[j], &of(data, j * 8 + lane / 4)->row[lane % 4 * 2], 4);
    }
    static void transposed(void *const data[32])
    {
        for (int lane = 0; lane < 32; lane++)
            for (int j = 0; j < 4; j++)
                of(data, lane)->w[j] = of(data, j * 8 + lane % 4 * 2)->row[lane / 4] |
                                       (uint32_t)of(data, j * 8 + lane % 4 * 2 + 1)->row[lane / 4] << 16;
    }
    static emulated_matrices *of(void *const data[32], int lane)
    {
        return static_cast<emulated_matrices *>(data[lane]);
    }
};
inline void emulated_load(rn_emulated_site site, rn_emulated_together together, uint32_t *w, uint32_t offset)
{
    emulated_matrices own;

    if (offset % 16 != 0)
        rn_emulated_fail("shared memory: a matrix's row at byte %u", offset);
    memcpy(own.row, rn_emulated_shared(offset, 16, RN_EMULATED_READ), 16);
    own.w = w;
    rn_emulated_warp(site, together, &own);
}
#define load_matrices(w, offset) emulated_load(RN_HERE, emulated_matrices::together, w, offset)
#define load_transposed(w, offset) emulated_load(RN_HERE, emulated_matrices::transposed, w, offset)

struct bytes_at {
    uint64_t at, begin, end;
    bytes_at(uint64_t address) : at(address)
    {
        rn_emulated_range_of(address, &begin, &end);
    }
    void check(uint64_t place, uint64_t bytes, uint64_t alignment) const
    {
        if (place < begin || place > end || end - place < bytes)
            rn_emulated_fail("global memory: %llu bytes at %llu of an array whose allocation has %llu before and %llu "
                             "behind its begin",
                             (unsigned long long)bytes, (unsigned long long)(place - at),
                             (unsigned long long)(at - begin), (unsigned long long)(end - at));
        if (place % alignment != 0)
            rn_emulated_fail("global memory: an access to %llu bytes is not aligned", (unsigned long long)bytes);
    }
    template <class T> T get(uint64_t offset) const
    {
        check(at + offset, sizeof(T), alignof(T));
        T value;
        memcpy(&value, reinterpret_cast<const void *>(at + offset), sizeof value);
        return value;
    }
    template <class T> void put(uint64_t offset, T value) const
    {
        check(at + offset, sizeof(T), alignof(T));
        memcpy(reinterpret_cast<void *>(at + offset), &value, sizeof value);
    }
};

template <class T> struct global {
    bytes_at bytes;
    uint64_t n;
    global(uint64_t address, uint64_t count) : bytes(address), n(count)
    {
    }
    void check(uint64_t i) const
    {
        if (i >= n)
            rn_emulated_fail("global memory: element %llu of an array of %llu", (unsigned long long)i,
                             (unsigned long long)n);
    }
    T get(uint64_t i) const
    {
        check(i);
        return bytes.template get<T>(i * sizeof(T));
    }
    void put(uint64_t i, T value) const
    {
        check(i);
        bytes.put(i * sizeof(T), value);
    }
};

template <class T> struct shared {
    static_assert(sizeof(T) % 4 == 0, "whole words");
    uint32_t offset, n;
    shared(uint32_t byte, uint32_t count) : offset(byte), n(count)
    {
    }
    void *at(uint32_t i, rn_emulated_access access) const
    {
        if (i >= n)
            rn_emulated_fail("shared memory: element %u of an array of %u", i, n);
        return rn_emulated_shared(offset + i * sizeof(T), sizeof(T), access);
    }
    T get(uint32_t i) const
    {
        T value;
        memcpy(&value, at(i, RN_EMULATED_READ), sizeof value);
        return value;
    }
    void put(uint32_t i, T value) const
    {
        memcpy(at(i, RN_EMULATED_WRITE), &value, sizeof value);
    }
    T add(uint32_t i, T value) const
    {
        T *place = static_cast<T *>(at(i, RN_EMULATED_ADD)), old = *place;
        *place = old + value;
        return old;
    }
};

/* Copies to shared memory that are on their way. Until the wait the place has a pattern that is no number; it counts as
 * written both when the copy is set off and when it is there. */
struct emulated_copies {
    enum : uint32_t { MOST = 64 };
    uint32_t n, groups; /* copies, and groups closed so far */
    uint32_t offset[MOST], group[MOST];
    uint64_t address[MOST];
};
inline emulated_copies &emulated_copies_here()
{
    static thread_local emulated_copies of_thread[1024];
    return of_thread[rn_emulated_here()->thread];
}
inline void copy_async_16(uint32_t offset, uint64_t address)
{
    emulated_copies &own = emulated_copies_here();

    if (own.n == emulated_copies::MOST || offset % 16 != 0)
        rn_emulated_fail("shared memory: a copy to byte %u, %u on their way", offset, own.n);
    bytes_at(address).check(address, 16, 16);
    memset(rn_emulated_shared(offset, 16, RN_EMULATED_WRITE), 0xff, 16);
    own.offset[own.n] = offset;
    own.address[own.n] = address;
    own.group[own.n++] = own.groups;
}
inline void copy_commit()
{
    emulated_copies_here().groups++;
}
template <int N> inline void copy_wait()
{
    emulated_copies &own = emulated_copies_here();
    uint32_t i, kept = 0;

    for (i = 0; i < own.n; i++) {
        if (own.group[i] + N < own.groups) {
            memcpy(rn_emulated_shared(own.offset[i], 16, RN_EMULATED_WRITE), reinterpret_cast<const void *>(own.address[i]), 16);
            continue;
        }
        own.offset[kept] = own.offset[i];
        own.address[kept] = own.address[i];
        own.group[kept++] = own.group[i];
    }
    own.n = kept;
}

#endif
