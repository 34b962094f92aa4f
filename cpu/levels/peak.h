/* What one thread of a SIMD level can do at most: the loops that runnel_engine_measure times.
 *
 * A round is a fixed number of operations in registers, on independent sums, so that neither memory nor a
 * chain of results sets the pace. A multiply-add is two operations. What the loops return only keeps the
 * compiler from leaving them out. */
#ifndef RN_CPU_LEVELS_PEAK_H
#define RN_CPU_LEVELS_PEAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RN_PEAK_BYTES = 256, /* read in one round of a read loop */
    RN_PEAK_AHEAD = 512  /* fetched so far ahead: at two cores of Sapphire Rapids 37 GB/s instead of 27 */
};

struct rn_peak {
    /* Reads memory[0..bytes), aligned to 64; bytes: a multiple of RN_PEAK_BYTES. read asks for RN_PEAK_AHEAD bytes
     * ahead, read_plain leaves that to the processor: which is faster depends on the machine. */
    uint64_t (*read)(const void *memory, size_t bytes);
    uint64_t (*read_plain)(const void *memory, size_t bytes);
    uint64_t (*integer)(uint64_t rounds); /* 8-bit products summed in 32 bits */
    uint64_t (*real)(uint64_t rounds);    /* fused multiply-adds of floats; plain ones at level "c" */
    double integer_ops, real_ops;         /* of one round */
};

/* Of a level by its name; one that is not known here has the loops of plain C. Never NULL. */
const struct rn_peak *rn_peak(const char *level);

extern const struct rn_peak rn_peak_c;
extern const struct rn_peak rn_peak_avx2;
extern const struct rn_peak rn_peak_avx2_vnni;
extern const struct rn_peak rn_peak_avx512;
extern const struct rn_peak rn_peak_neon;
extern const struct rn_peak rn_peak_dotprod;

/* The integer loop of NEON's dot products, in a file with flags of its own. */
uint64_t rn_peak_dotprod_integer(uint64_t rounds);
enum { RN_PEAK_DOTPROD_OPS = 2 * 16 * 16 };

/* Asks for the lines of a round that comes later. May point behind the memory: a prefetch never faults. */
static inline void rn_peak_ahead(const char *at)
{
    int i;

    for (i = 0; i < RN_PEAK_BYTES; i += 64)
        __builtin_prefetch(at + RN_PEAK_AHEAD + i);
}

/* The two read functions of a level, of its read_lines(memory, bytes, ahead). */
#define RN_PEAK_READS                                            \
    static uint64_t read_ahead(const void *memory, size_t bytes) \
    {                                                            \
        return read_lines(memory, bytes, true);                  \
    }                                                            \
    static uint64_t read_plain(const void *memory, size_t bytes) \
    {                                                            \
        return read_lines(memory, bytes, false);                 \
    }

/* Forgets what is known of a value, at no cost: a loop over it is not folded into one multiplication. */
#define RN_PEAK_FORGET(constraint, value) __asm__ volatile("" : "+" constraint(value))

#endif
