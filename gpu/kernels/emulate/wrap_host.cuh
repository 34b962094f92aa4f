/* wrap.cuh for the emulation. */
#ifndef RN_GPU_WRAP_HOST_CUH
#define RN_GPU_WRAP_HOST_CUH

#include <math.h>
#include <string.h>

#include "gpu/kernels/emulate/inside.h"

#define DEVICE inline
#define UNROLL
#define UNROLL_TIMES(n)
#define TABLE static const
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

#define RN_HERE                                                             \
    (__extension__({                                                        \
        static constexpr rn_emulated_site site_here = {__FILE__, __LINE__}; \
        &site_here;                                                         \
    }))

inline uint32_t thread_of_block()
{
    return rn_emulated_here.thread;
}
inline uint32_t block_x()
{
    return rn_emulated_here.block[0];
}
inline uint32_t block_y()
{
    return rn_emulated_here.block[1];
}
inline uint32_t block_z()
{
    return rn_emulated_here.block[2];
}
inline uint32_t grid_z()
{
    return rn_emulated_here.grid[2];
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

template <class T> inline T emulated_shuffled(const rn_emulated_site *site, T value, uint32_t from)
{
    emulated_shuffle<T> own = {value, value, from};

    rn_emulated_warp(site, emulated_shuffle<T>::together, &own);
    return own.result;
}

#define shuffle_xor(v, mask) emulated_shuffled(RN_HERE, v, (rn_emulated_here.thread % 32) ^ (mask))
#define shuffle(v, lane) emulated_shuffled(RN_HERE, v, lane)

/* What the lanes say together: bit i of `all` is lane i's. */
struct emulated_vote {
    bool own;
    uint32_t all;
    static void together(void *const data[32])
    {
        uint32_t all = 0;

        for (int lane = 0; lane < 32; lane++)
            all |= (uint32_t)static_cast<emulated_vote *>(data[lane])->own << lane;
        for (int lane = 0; lane < 32; lane++)
            static_cast<emulated_vote *>(data[lane])->all = all;
    }
};

inline uint32_t emulated_ballot(const rn_emulated_site *site, bool own)
{
    emulated_vote vote = {own, 0};

    rn_emulated_warp(site, emulated_vote::together, &vote);
    return vote.all;
}

#define ballot(own) emulated_ballot(RN_HERE, own)
#define any_lane(own) (emulated_ballot(RN_HERE, own) != 0)
#define all_lanes(own) (emulated_ballot(RN_HERE, own) == 0xffffffffu)

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

inline uint32_t times_bf16(uint32_t a, uint32_t b)
{
    return pack_bf16(float_of(a << 16) * float_of(b << 16), float_of(a & 0xffff0000u) * float_of(b & 0xffff0000u));
}

inline uint32_t permute(uint32_t a, uint32_t b, uint32_t selector)
{
    uint64_t bytes = a | (uint64_t)b << 32;
    uint32_t word = 0;

    for (int i = 0; i < 4; i++)
        word |= (uint32_t)(bytes >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i);
    return word;
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
typedef float emulated_row __attribute__((vector_size(32)));
struct emulated_matrix {
    float low[16][8], high[16][8]; /* of a, columns 2i and 2i + 1 */
    emulated_row b[16], sums[16];
};
inline __attribute__((always_inline)) void emulated_sums(emulated_matrix &m)
{
    for (int row = 0; row < 16; row++) {
        emulated_row sum = m.low[row][0] * m.b[0] + 0.0f;
        sum += m.high[row][0] * m.b[1];
        for (int i = 1; i < 8; i++) {
            sum += m.low[row][i] * m.b[2 * i];
            sum += m.high[row][i] * m.b[2 * i + 1];
        }
        m.sums[row] = sum;
    }
}
#if defined(__x86_64__)
inline __attribute__((target("avx2"))) void emulated_sums_avx2(emulated_matrix &m)
{
    emulated_sums(m);
}
inline void emulated_sums_of(emulated_matrix &m)
{
    if (__builtin_cpu_supports("avx2"))
        emulated_sums_avx2(m);
    else
        emulated_sums(m);
}
#else
inline void emulated_sums_of(emulated_matrix &m)
{
    emulated_sums(m);
}
#endif

template <float OF_HALF(uint32_t)> struct emulated_mma {
    float *c;
    const uint32_t *a, *b;
    static void together(void *const data[32])
    {
        uint32_t a[16][8], b[8][8]; /* pairs: [row][column / 2], [row / 2][column] */
        emulated_matrix m;

        for (int lane = 0; lane < 32; lane++) {
            const emulated_mma *own = static_cast<const emulated_mma *>(data[lane]);
            int g = lane / 4, t = lane % 4;

            for (int i = 0; i < 4; i++)
                a[g + i % 2 * 8][t + i / 2 * 4] = own->a[i];
            for (int i = 0; i < 2; i++)
                b[t + i * 4][g] = own->b[i];
        }
        for (int row = 0; row < 16; row++)
            for (int i = 0; i < 8; i++) {
                m.low[row][i] = OF_HALF(a[row][i] & 0xffff);
                m.high[row][i] = OF_HALF(a[row][i] >> 16);
            }
        for (int i = 0; i < 8; i++)
            for (int n = 0; n < 8; n++) {
                m.b[2 * i][n] = OF_HALF(b[i][n] & 0xffff);
                m.b[2 * i + 1][n] = OF_HALF(b[i][n] >> 16);
            }
        emulated_sums_of(m);
        for (int lane = 0; lane < 32; lane++) {
            float *c = static_cast<const emulated_mma *>(data[lane])->c;
            for (int i = 0; i < 4; i++)
                c[i] += m.sums[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
        }
    }
};

template <float OF_HALF(uint32_t)>
inline void emulated_product(const rn_emulated_site *site, float *c, const uint32_t *a, const uint32_t *b)
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
inline void emulated_load(const rn_emulated_site *site, rn_emulated_together together, uint32_t *w, uint32_t offset)
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
    template <class T> T *touch(uint64_t offset, rn_emulated_touch how) const
    {
        check(at + offset, sizeof(T), alignof(T));
        rn_emulated_global(at + offset, sizeof(T), how);
        return reinterpret_cast<T *>(at + offset);
    }
    template <class T> T get(uint64_t offset) const
    {
        T value;
        memcpy(&value, static_cast<const void *>(touch<T>(offset, RN_EMULATED_READ)), sizeof value);
        return value;
    }
    template <class T> void put(uint64_t offset, T value) const
    {
        memcpy(static_cast<void *>(touch<T>(offset, RN_EMULATED_WRITE)), &value, sizeof value);
    }
};

inline uint32_t word_of_host(uint64_t address)
{
    return __atomic_load_n(bytes_at(address).touch<uint32_t>(0, RN_EMULATED_READ), __ATOMIC_ACQUIRE);
}

/* Atomic operations are those of one thread after the other. */
template <class T> inline T emulated_add(T *at, T value)
{
    static_assert(T(0.5f) == T(0), "integers: a sum of floats depends on the order");
    T old = *at;
    *at = old + value;
    return old;
}
template <class T> inline T emulated_max(T *at, T value)
{
    T old = *at;
    *at = old < value ? value : old;
    return old;
}
template <class T> inline T emulated_exchange_if(T *at, T expected, T value)
{
    T old = *at;
    *at = old == expected ? value : old;
    return old;
}

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
    T *atomic(uint64_t i) const
    {
        check(i);
        return bytes.template touch<T>(i * sizeof(T), RN_EMULATED_ATOMIC);
    }
    T add(uint64_t i, T value) const
    {
        return emulated_add(atomic(i), value);
    }
    T max(uint64_t i, T value) const
    {
        return emulated_max(atomic(i), value);
    }
    T exchange_if(uint64_t i, T expected, T value) const
    {
        return emulated_exchange_if(atomic(i), expected, value);
    }
};

template <class T> struct shared {
    static_assert(sizeof(T) % 4 == 0, "whole words");
    uint32_t offset, n;
    shared(uint32_t byte, uint32_t count) : offset(byte), n(count)
    {
    }
    void *at(uint32_t i, rn_emulated_touch touch) const
    {
        if (i >= n)
            rn_emulated_fail("shared memory: element %u of an array of %u", i, n);
        return rn_emulated_shared(offset + i * sizeof(T), sizeof(T), touch);
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
        return emulated_add(static_cast<T *>(at(i, RN_EMULATED_ATOMIC)), value);
    }
    T max(uint32_t i, T value) const
    {
        return emulated_max(static_cast<T *>(at(i, RN_EMULATED_ATOMIC)), value);
    }
    T exchange_if(uint32_t i, T expected, T value) const
    {
        return emulated_exchange_if(static_cast<T *>(at(i, RN_EMULATED_ATOMIC)), expected, value);
    }
};

template <class T> inline void copy_async(const shared<T> &to, uint32_t i, const global<T> &from, uint64_t j)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "what the instruction copies");
    T value = from.get(j);
    if (i >= to.n)
        rn_emulated_fail("shared memory: element %u of an array of %u", i, to.n);
    rn_emulated_copy(to.offset + i * sizeof(T), &value, sizeof value);
}
inline void copy_async_16(uint32_t offset, uint64_t address)
{
    words4 value = bytes_at(address).get<words4>(0);
    rn_emulated_copy(offset, &value, sizeof value);
}
inline void copy_commit()
{
    rn_emulated_commit_copies();
}
template <uint32_t left> inline void copy_wait()
{
    rn_emulated_wait_copies(left);
}

#endif
