/* wrap.cuh for nvcc. */
#ifndef RN_GPU_WRAP_DEVICE_CUH
#define RN_GPU_WRAP_DEVICE_CUH

#include <cuda_fp16.h>

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define RN_PRAGMA(words) _Pragma(#words)
#define UNROLL_TIMES(n) RN_PRAGMA(unroll (n))
#define TABLE static __device__ const
#define RN_KERNEL_AHEAD(name, args_type, threads, blocks) \
    extern "C" __global__ void __launch_bounds__(threads, blocks) rn_kernel_##name(const __grid_constant__ args_type args)
#define RN_KERNEL(name, args_type, threads, blocks)    \
    DEVICE void rn_body_##name(const args_type &args); \
    RN_KERNEL_AHEAD(name, args_type, threads, blocks)  \
    {                                                  \
        grid_wait();                                   \
        rn_body_##name(args);                          \
    }                                                  \
    DEVICE void rn_body_##name(const args_type &args)

DEVICE void grid_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

DEVICE uint32_t thread_of_block()
{
    return threadIdx.x;
}
DEVICE uint32_t block_x()
{
    return blockIdx.x;
}
DEVICE uint32_t block_y()
{
    return blockIdx.y;
}
DEVICE uint32_t block_z()
{
    return blockIdx.z;
}
DEVICE uint32_t grid_z()
{
    return gridDim.z;
}

#define sync_block() __syncthreads()
#define sync_warp() __syncwarp()
#define shuffle_xor(v, mask) __shfl_xor_sync(0xffffffffu, v, mask)
#define shuffle(v, lane) __shfl_sync(0xffffffffu, v, lane)

#define ballot(own) __ballot_sync(0xffffffffu, own)
#define any_lane(own) (__any_sync(0xffffffffu, own) != 0)
#define all_lanes(own) (__all_sync(0xffffffffu, own) != 0)

DEVICE void mma_bf16(float *c, const uint32_t *a, const uint32_t *b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

DEVICE void mma_f16(float *c, const uint32_t *a, const uint32_t *b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The type that CUDA's functions know a number of T by. */
template <class T> struct atomic_number {
    static_assert(T(0.5f) == T(0), "integers: a sum of floats depends on the order");
    typedef T type;
};
template <> struct atomic_number<unsigned long> {
    typedef unsigned long long type;
};
template <class T> DEVICE T atomic_add(T *at, T value)
{
    typedef typename atomic_number<T>::type number;
    return (T)atomicAdd((number *)at, (number)value);
}
template <class T> DEVICE T atomic_max(T *at, T value)
{
    typedef typename atomic_number<T>::type number;
    return (T)atomicMax((number *)at, (number)value);
}
template <class T> DEVICE T atomic_exchange_if(T *at, T expected, T value)
{
    typedef typename atomic_number<T>::type number;
    return (T)atomicCAS((number *)at, (number)expected, (number)value);
}
#define ATOMIC_OPERATIONS(index)                                 \
    DEVICE T add(index i, T value) const                         \
    {                                                            \
        return atomic_add(at + i, value);                        \
    }                                                            \
    DEVICE T max(index i, T value) const                         \
    {                                                            \
        return atomic_max(at + i, value);                        \
    }                                                            \
    DEVICE T exchange_if(index i, T expected, T value) const     \
    {                                                            \
        return atomic_exchange_if(at + i, expected, value);      \
    }

template <class T> struct global {
    T *at;
    DEVICE global(uint64_t address, uint64_t) : at((T *)address)
    {
    }
    DEVICE T get(uint64_t i) const
    {
        return at[i];
    }
    DEVICE void put(uint64_t i, T value) const
    {
        at[i] = value;
    }
    ATOMIC_OPERATIONS(uint64_t)
};

struct bytes_at {
    unsigned char *at;
    DEVICE bytes_at(uint64_t address) : at((unsigned char *)address)
    {
    }
    template <class T> DEVICE T get(uint64_t offset) const
    {
        return *(const T *)(at + offset);
    }
    template <class T> DEVICE void put(uint64_t offset, T value) const
    {
        *(T *)(at + offset) = value;
    }
};

DEVICE uint32_t word_of_host(uint64_t address)
{
    uint32_t word;

    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(address) : "memory");
    return word;
}

extern __shared__ words4 rn_shared_memory[];

template <class T> struct shared {
    static_assert(sizeof(T) % 4 == 0, "whole words");
    T *at;
    DEVICE shared(uint32_t offset, uint32_t) : at((T *)((unsigned char *)rn_shared_memory + offset))
    {
    }
    DEVICE T get(uint32_t i) const
    {
        return at[i];
    }
    DEVICE void put(uint32_t i, T value) const
    {
        at[i] = value;
    }
    ATOMIC_OPERATIONS(uint32_t)
};

template <class T> DEVICE void copy_async(const shared<T> &to, uint32_t i, const global<T> &from, uint64_t j)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "what the instruction copies");
    uint32_t place = (uint32_t)__cvta_generic_to_shared(to.at + i);

    if (sizeof(T) == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(place), "l"(from.at + j) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                     :
                     : "r"(place), "l"(from.at + j), "n"(sizeof(T) == 8 ? 8 : 4)
                     : "memory");
}
DEVICE void copy_async_16(uint32_t offset, uint64_t address)
{
    uint32_t to = (uint32_t)__cvta_generic_to_shared(rn_shared_memory) + offset;

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(address) : "memory");
}
DEVICE void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> DEVICE void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

DEVICE void load_matrices(uint32_t *w, uint32_t offset)
{
    uint32_t from = (uint32_t)__cvta_generic_to_shared(rn_shared_memory) + offset;

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(from)
                 : "memory");
}
DEVICE void load_transposed(uint32_t *w, uint32_t offset)
{
    uint32_t from = (uint32_t)__cvta_generic_to_shared(rn_shared_memory) + offset;

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(from)
                 : "memory");
}

DEVICE uint32_t bits_of(float value)
{
    return __float_as_uint(value);
}
DEVICE float float_of(uint32_t bits)
{
    return __uint_as_float(bits);
}

DEVICE uint32_t pack_bf16(float low, float high)
{
    uint32_t pair;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

DEVICE uint32_t pack_f16(float low, float high)
{
    uint32_t pair;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

DEVICE float power_of_2(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE uint32_t minus_bf16(uint32_t a, uint32_t b)
{
    uint32_t difference;

    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(difference) : "r"(a), "r"(0x3f803f80u), "r"(b ^ 0x80008000u));
    return difference;
}

DEVICE uint32_t times_bf16(uint32_t a, uint32_t b)
{
    uint32_t product;

    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
    return product;
}

DEVICE uint32_t permute(uint32_t a, uint32_t b, uint32_t selector)
{
    return __byte_perm(a, b, selector);
}

DEVICE float float_of_half(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}
DEVICE uint32_t half_of(float value)
{
    return __half_as_ushort(__float2half_rn(value));
}

#endif
