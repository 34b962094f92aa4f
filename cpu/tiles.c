/* Rows into tiles: see tiles.h. */
#include "cpu/tiles.h"

#include <string.h>

#include "base/check.h"
#include "model/quant/types.h"

enum { WORD = 4 };

/* Where the words of a block begin: behind the scale that does not fill one. In blocks of 256 that stands at the
 * end. */
static uint32_t words_at(const struct rn_type *type)
{
    return type->elements == 256 ? 0 : type->bytes % WORD;
}

/* Where byte x of a block goes to. */
static uint32_t place(uint32_t type_id, uint32_t x)
{
    return type_id == RN_Q6_K ? rn_tile_q6_k_at(x) : type_id == RN_Q3_K ? rn_tile_q3_k_at(x) : x;
}

/* `unit` bytes at `x` of the block of each row. */
static inline void lay_unit(const uint8_t *block, size_t row_bytes, size_t unit, uint8_t *to)
{
    for (uint32_t r = 0; r < RN_TILE_ROWS; r++)
        memcpy(to + r * unit, block + r * row_bytes, unit);
}

void rn_tiles_lay(uint32_t type_id, uint32_t cols, uint32_t n_rows, const uint8_t *rows, uint8_t *to)
{
    const struct rn_type *type = rn_type(type_id);
    size_t row_bytes = rn_type_bytes(type, cols), at;
    uint32_t bytes = type->bytes, words = words_at(type), scale = bytes % WORD, row, x;
    uint32_t scale_at = words > 0 ? 0 : bytes - scale;

    RN_CHECK(n_rows % RN_TILE_ROWS == 0);
    for (row = 0; row < n_rows; row += RN_TILE_ROWS, rows += RN_TILE_ROWS * row_bytes)
        for (at = 0; at < row_bytes; at += bytes, to += RN_TILE_ROWS * bytes) {
            if (scale > 0)
                lay_unit(rows + at + scale_at, row_bytes, scale, to + RN_TILE_ROWS * place(type_id, scale_at));
            for (x = words; x + WORD <= bytes; x += WORD)
                lay_unit(rows + at + x, row_bytes, WORD, to + RN_TILE_ROWS * place(type_id, x));
        }
}
