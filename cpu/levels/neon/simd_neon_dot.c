/* The NEON level's products of block formats for processors with dot products (ASIMDDP). Built for those:
 * nothing here runs before rn_level_neon has seen the processor. */
#include <arm_neon.h>

#define dot_any vdotq_s32
#define DOT_LANE vdotq_laneq_s32
#define BLOCKS_NEON rn_blocks_neon_dot

#include "cpu/levels/neon/levels_arm.h"
#include "cpu/levels/neon/neon_blocks.inc"
