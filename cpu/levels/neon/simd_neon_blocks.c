/* The NEON level's products of block formats for processors without dot products: 8 x 8 bits to 16, two
 * of them added there (2 · 128 · 127 fits), then to 32. */
#include <arm_neon.h>

static inline int32x4_t dot_any(int32x4_t acc, int8x16_t w, int8x16_t y)
{
    return vpadalq_s16(acc, vmlal_high_s8(vmull_s8(vget_low_s8(w), vget_low_s8(y)), w, y));
}

static inline int32x4_t dot_lanes(int32x4_t acc, int8x16_t w, int8x16_t y)
{
    return vpadalq_s16(acc, vpaddq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(y)), vmull_high_s8(w, y)));
}

#define DOT_LANE(acc, w, y, lane) \
    dot_lanes(acc, w, vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(y), lane)))
#define BLOCKS_NEON rn_blocks_neon

#include "cpu/levels/neon/levels_arm.h"
#include "cpu/levels/neon/neon_blocks.inc"
