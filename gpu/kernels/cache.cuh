/* Rows of the KV cache (model/kv.h): where they lie, and their numbers. */
#ifndef RN_GPU_CACHE_CUH
#define RN_GPU_CACHE_CUH

#include "gpu/kernels/wrap.cuh"

enum : uint32_t { KV_F16, KV_F32, KV_BF16, KV_FP8, KV_Q8, KV_GROUP = 32, KV_GROUP_BYTES = 34 };

/* Bytes of a row of n numbers. */
DEVICE uint32_t kv_row_bytes(uint32_t type, uint32_t n)
{
    if (type == KV_Q8)
        return n + (n + KV_GROUP - 1) / KV_GROUP * 2;
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

/* Where what a row of a tree (struct rn_attention_args) sees at a position lies: at the place of the row or of its ancestor
 * there. A row whose place is its position has such ancestors alone. */
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

/* Four numbers of a row that lies at byte `row`, from d on, a multiple of 4. PARTS: how many bfloat16 a number is the sum
 * of. */
template <uint32_t TYPE> struct kv_numbers;

template <> struct kv_numbers<KV_F32> {
    static constexpr uint32_t PARTS = 2;
    DEVICE static floats4 read(const bytes_at &cache, uint64_t row, uint32_t d)
    {
        return cache.get<floats4>(row + d * 4);
    }
};
template <> struct kv_numbers<KV_F16> {
    static constexpr uint32_t PARTS = 2;
    DEVICE static floats4 read(const bytes_at &cache, uint64_t row, uint32_t d)
    {
        words2 v = cache.get<words2>(row + d * 2);
        return floats4{{float_of_half(v.w[0] & 0xffff), float_of_half(v.w[0] >> 16), float_of_half(v.w[1] & 0xffff),
                        float_of_half(v.w[1] >> 16)}};
    }
};
template <> struct kv_numbers<KV_BF16> {
    static constexpr uint32_t PARTS = 1;
    DEVICE static floats4 read(const bytes_at &cache, uint64_t row, uint32_t d)
    {
        words2 v = cache.get<words2>(row + d * 2);
        return floats4{{low_bf16(v.w[0]), high_bf16(v.w[0]), low_bf16(v.w[1]), high_bf16(v.w[1])}};
    }
};
template <> struct kv_numbers<KV_FP8> {
    static constexpr uint32_t PARTS = 1;
    DEVICE static floats4 read(const bytes_at &cache, uint64_t row, uint32_t d)
    {
        uint32_t v = cache.get<uint32_t>(row + d);
        return floats4{{float_of_fp8(v & 0xff), float_of_fp8(v >> 8 & 0xff), float_of_fp8(v >> 16 & 0xff),
                        float_of_fp8(v >> 24)}};
    }
};
template <> struct kv_numbers<KV_Q8> {
    static constexpr uint32_t PARTS = 2;
    DEVICE static floats4 read(const bytes_at &cache, uint64_t row, uint32_t d)
    {
        uint64_t group = row + d / KV_GROUP * KV_GROUP_BYTES, at = group + 2 + d % KV_GROUP;
        float scale = float_of_half(cache.get<uint16_t>(group));
        uint32_t low = cache.get<uint16_t>(at), high = cache.get<uint16_t>(at + 2);
        return floats4{{scale * (float)(int8_t)(low & 0xff), scale * (float)(int8_t)(low >> 8),
                        scale * (float)(int8_t)(high & 0xff), scale * (float)(int8_t)(high >> 8)}};
    }
};

#endif
