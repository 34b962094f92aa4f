/* The matrix unit of AMX: eight tiles of up to sixteen rows of 64 bytes. Linux saves their state for a process that has
 * asked for it (simd_avx512.c). A thread has it from AMX_SHAPE to AMX_END; no function leaves it behind. While tiles
 * hold anything, one of the two units for 512-bit floats is off. */
#ifndef RN_CPU_LEVELS_AMX_AMX_H
#define RN_CPU_LEVELS_AMX_AMX_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

/* The compiler's own functions for these do not tell it that they read memory. */
#define AMX_LOAD(tile, at, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(at), "r"((size_t)(stride)) : "memory")
#define AMX_STORE(tile, at, stride) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(at), "r"((size_t)(stride)) : "memory")
#define AMX_ZERO(tile) __asm__ volatile("tilezero %tmm" #tile)

/* C += A B: of bfloat16; of bytes, those of A with signs and those of B without, or the other way round. */
#define AMX_DOT_BF16(c, a, b) __asm__ volatile("tdpbf16ps %tmm" #b ", %tmm" #a ", %tmm" #c)
#define AMX_DOT_SIGNED_UNSIGNED(c, a, b) __asm__ volatile("tdpbsud %tmm" #b ", %tmm" #a ", %tmm" #c)
#define AMX_DOT_UNSIGNED_SIGNED(c, a, b) __asm__ volatile("tdpbusd %tmm" #b ", %tmm" #a ", %tmm" #c)

struct amx_shape {
    uint8_t palette, start, zero[14]; /* palette: 1 */
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static_assert(sizeof(struct amx_shape) == 64, "as the processor reads it");

#define AMX_SHAPE(shape) __asm__ volatile("ldtilecfg %0" : : "m"(shape) : "memory")
/* For products of bytes, 32 columns deep: tiles 0 to 3 are sums, 4 and 5 the first factor, 6 and 7 the second. */
static inline void amx_shape_products(void)
{
    struct amx_shape shape = {.palette = 1};
    uint32_t i;

    for (i = 0; i < 8; i++) {
        shape.row_bytes[i] = i == 4 || i == 5 ? 32 : 64;
        shape.rows[i] = i < 6 ? 16 : 8;
    }
    AMX_SHAPE(shape);
}

#define AMX_END() __asm__ volatile("tilerelease")

/* What the vectors add of 32 columns: the sums by a scale, of lines that are RN_INPUT_FINE or not; and a minimum. */
enum floats { SCALE, SCALE_OF_FINE, SCALE_AND_MINIMUM };

/* Of a strip of sixteen rows. */
static inline size_t strip_bytes(enum floats floats)
{
    return 64 * (size_t)(8 + 1 + (floats == SCALE_AND_MINIMUM));
}

#endif
