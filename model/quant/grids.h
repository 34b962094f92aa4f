/* The point sets ("grids") of the IQ formats.
 *
 * An IQ format quantises several neighbouring numbers at once: it stores an index into a set of
 * points in 8 or 4 dimensions, and apart from it the signs and a scale. Here a point is one number;
 * coordinate j is the field of `bits` bits at bit j * bits, and a field is an index into `levels`:
 *
 *     IQ1_S, IQ1_M               8 coordinates, 2 bits   -1 0 1
 *     IQ2_XXS, IQ2_XS, IQ2_S     8 coordinates, 2 bits   8 25 43
 *     IQ3_XXS                    4 coordinates, 3 bits   4 12 20 28 36 44 52 62
 *     IQ3_S                      4 coordinates, 3 bits   1 3 5 7 9 11 13 15
 */
#ifndef RN_MODEL_QUANT_GRIDS_H
#define RN_MODEL_QUANT_GRIDS_H

#include <stdint.h>

extern const uint16_t rn_grid_iq1_s[2048];
extern const uint16_t rn_grid_iq2_xxs[256];
extern const uint16_t rn_grid_iq2_xs[512];
extern const uint16_t rn_grid_iq2_s[1024];
extern const uint16_t rn_grid_iq3_xxs[256];
extern const uint16_t rn_grid_iq3_s[512];

#endif
