/* The point sets of the IQ formats: see grids.h for how a number holds a point. */
#include "model/quant/grids.h"
#include "model/quant/points.h"

#define SAME(number) number

const uint16_t rn_grid_iq2_xxs[256] = {RN_GRID_IQ2_XXS(SAME)};
const uint16_t rn_grid_iq2_xs[512] = {RN_GRID_IQ2_XS(SAME)};
const uint16_t rn_grid_iq2_s[1024] = {RN_GRID_IQ2_S(SAME)};
const uint16_t rn_grid_iq3_xxs[256] = {RN_GRID_IQ3_XXS(SAME)};
const uint16_t rn_grid_iq3_s[512] = {RN_GRID_IQ3_S(SAME)};
const uint16_t rn_grid_iq1_s[2048] = {RN_GRID_IQ1_S(SAME)};
