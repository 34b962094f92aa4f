/* Rows of the KV cache (model/kv.h): where they lie, and their numbers. */
#ifndef RN_GPU_CACHE_CUH
#define RN_GPU_CACHE_CUH

#include "gpu/kernels/wrap.cuh"

enum : uint32_t { KV_F16, KV_F32, KV_BF16, KV_FP8, KV_Q8, KV_Q4, KV_Q3, KV_GROUP = 32, KV_PIECE = 256 };

/* Bytes of a group of m numbers, with its scale. */
DEVICE uint32_t kv_group_bytes(uint32_t type, uint32_t m)
{
    return 2 + (type == KV_Q8 ? m : type == KV_Q4 ? (m + 1) / 2 : (m + 3) / 4 + (m + 7) / 8);
}

/* Are rows rotated before they are stored? */
DEVICE bool kv_rotated(uint32_t type)
{
    return type == KV_Q4 || type == KV_Q3;
}

/* Bytes of a row of n numbers. */
DEVICE uint32_t kv_row_bytes(uint32_t type, uint32_t n)
{
    if (type >= KV_Q8)
        return n / KV_GROUP * kv_group_bytes(type, KV_GROUP) +
               (n % KV_GROUP == 0 ? 0 : kv_group_bytes(type, n % KV_GROUP));
    return n * (type == KV_F32 ? 4 : type == KV_FP8 ? 1 : 2);
}

/* Where position p of a sequence lies: its block in bytes, and its number there. */
struct kv_place {
    uint64_t block;
    uint32_t slot;
};
DEVICE kv_place place_of(const rn_cache_args &cache, uint32_t seq, uint32_t position)
{
    uint32_t at = global<uint32_t>(cache.table_at, cache.n_seqs).get(seq) + (position >> cache.block_log);
    uint32_t block = global<uint32_t>(cache.tables, cache.n_tables).get(at);

    return kv_place{block * cache.block_bytes, position & ((1u << cache.block_log) - 1)};
}

/* Where what a row of a tree (struct rn_attention_args) sees at a position lies: at the place of the row or of its
 * ancestor there. A row whose place is its position has such ancestors alone. */
DEVICE uint32_t seen_place(const global<uint32_t> &positions, const global<uint32_t> &places,
                           const global<uint32_t> &parents, uint32_t row, uint32_t position)
{
    while (positions.get(row) > position) {
        if (places.get(row) == positions.get(row))
            return position;
        row = parents.get(row);
    }
    return places.get(row);
}

DEVICE uint64_t row_at(const rn_cache_args &cache, kv_place place, uint32_t head, uint32_t bytes)
{
    return place.block + ((uint64_t)place.slot * cache.kv_heads + head) * bytes;
}

DEVICE float float_of_fp8(uint32_t code)
{
    uint32_t sign = (code & 0x80) << 24, exponent = code >> 3 & 15, rest = code & 7;

    if ((code & 0x7f) == 0x7f)
        return float_of(0x7fc00000u);
    if (exponent == 0)
        return (sign != 0 ? -1.0f : 1.0f) * (float)rest * 0.001953125f;
    return float_of(sign | (exponent + 120) << 23 | rest << 20);
}

/* Four numbers of a row of n that lies at byte `row`, from d on, a multiple of 4. PARTS: how many bfloat16 a number is
 * the sum of. */
template <uint32_t TYPE> struct kv_numbers;

template <> struct kv_numbers<KV_F32> {
    static constexpr uint32_t PARTS = 2;
    DEVICE static floats4 read(const bytes_at &cache, uint64_t row, uint32_t, uint32_t d)
    {
        return cache.get<floats4>(row + d * 4);
    }
};
template <> struct kv_numbers<KV_F16> {
    static constexpr uint32_t PARTS = 2;
    DEVICE static floats4 read(const bytes_at &cache, uint64_t row, uint32_t, uint32_t d)
    {
        words2 v = cache.get<words2>(row + d * 2);
        return floats4{{float_of_half(v.w[0] & 0xffff), float_of_half(v.w[0] >> 16), float_of_half(v.w[1] & 0xffff),
                        float_of_half(v.w[1] >> 16)}};
    }
};
template <> struct kv_numbers<KV_BF16> {
    static constexpr uint32_t PARTS = 1;
    DEVICE static floats4 read(const bytes_at &cache, uint64_t row, uint32_t, uint32_t d)
    {
        words2 v = cache.get<words2>(row + d * 2);
        return floats4{{low_bf16(v.w[0]), high_bf16(v.w[0]), low_bf16(v.w[1]), high_bf16(v.w[1])}};
    }
};
template <> struct kv_numbers<KV_FP8> {
    static constexpr uint32_t PARTS = 1;
    DEVICE static floats4 read(const bytes_at &cache, uint64_t row, uint32_t, uint32_t d)
    {
        uint32_t v = cache.get<uint32_t>(row + d);
        return floats4{{float_of_fp8(v & 0xff), float_of_fp8(v >> 8 & 0xff), float_of_fp8(v >> 16 & 0xff),
                        float_of_fp8(v >> 24)}};
    }
};
template <> struct kv_numbers<KV_Q8> {
    static constexpr uint32_t PARTS = 2;
    DEVICE static floats4 read(const bytes_at &cache, uint64_t row, uint32_t, uint32_t d)
    {
        uint64_t group = row + d / KV_GROUP * kv_group_bytes(KV_Q8, KV_GROUP), at = group + 2 + d % KV_GROUP;
        float scale = float_of_half(cache.get<uint16_t>(group));
        uint32_t low = cache.get<uint16_t>(at), high = cache.get<uint16_t>(at + 2);
        return floats4{{scale * (float)(int8_t)(low & 0xff), scale * (float)(int8_t)(low >> 8),
                        scale * (float)(int8_t)(high & 0xff), scale * (float)(int8_t)(high >> 8)}};
    }
};


/* The levels of model/kv.h. */
TABLE float kv_levels4[16] = {-127, -98, -77, -60, -45, -31, -19, -6, 6, 19, 31, 45, 60, 77, 98, 127};
TABLE float kv_levels3[8] = {-127, -76, -42, -13, 13, 42, 76, 127};

/* Rows of q3 may begin at odd bytes. */
DEVICE float kv_scale_at(const bytes_at &cache, uint64_t group)
{
    return float_of_half(cache.get<uint8_t>(group) | (uint32_t)cache.get<uint8_t>(group + 1) << 8);
}

/* How many numbers the group of number d has in a row of n. */
DEVICE uint32_t kv_group_of(uint32_t n, uint32_t d)
{
    uint32_t left = n - d / KV_GROUP * KV_GROUP;

    return left < KV_GROUP ? left : KV_GROUP;
}

template <> struct kv_numbers<KV_Q4> {
    static constexpr uint32_t PARTS = 2;
    DEVICE static floats4 read(const bytes_at &cache, uint64_t row, uint32_t n, uint32_t d)
    {
        uint64_t group = row + d / KV_GROUP * kv_group_bytes(KV_Q4, KV_GROUP), at = group + 2;
        uint32_t i = d % KV_GROUP, half = (kv_group_of(n, d) + 1) / 2;
        float scale = kv_scale_at(cache, group);
        floats4 v;

        UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t above = i + j >= half ? 1 : 0, code = cache.get<uint8_t>(at + i + j - above * half) >> (4 * above);
            v.v[j] = scale * kv_levels4[code & 15];
        }
        return v;
    }
};
template <> struct kv_numbers<KV_Q3> {
    static constexpr uint32_t PARTS = 2;
    DEVICE static floats4 read(const bytes_at &cache, uint64_t row, uint32_t n, uint32_t d)
    {
        uint64_t group = row + d / KV_GROUP * kv_group_bytes(KV_Q3, KV_GROUP), at = group + 2;
        uint32_t i = d % KV_GROUP, m = kv_group_of(n, d), low = (m + 3) / 4, high = (m + 7) / 8;
        float scale = kv_scale_at(cache, group);
        floats4 v;

        UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t two = cache.get<uint8_t>(at + (i + j) % low) >> ((i + j) / low * 2);
            uint32_t third = cache.get<uint8_t>(at + low + (i + j) % high) >> ((i + j) / high);
            v.v[j] = scale * kv_levels3[(two & 3) | (third & 1) << 2];
        }
        return v;
    }
};

#endif
