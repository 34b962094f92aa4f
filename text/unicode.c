/* Lookup in the run table: a page of 256 code points gives a short range of runs, which is searched
 * by halves. See unicode.h. */
#include "text/unicode.h"

uint16_t rn_char_class_far(uint32_t code_point)
{
    uint32_t page = code_point >> 8;
    uint32_t low, high; /* runs[low] begins at or before code_point; runs[high] after it */

    if (code_point > 0x10ffff)
        return RN_CHAR_UNASSIGNED;
    if (page + 1 < (RN_UNICODE_INDEXED >> 8)) {
        low = rn_unicode_index[page];
        high = rn_unicode_index[page + 1] + 1u;
    } else {
        low = rn_unicode_index[(RN_UNICODE_INDEXED >> 8) - 1];
        high = rn_unicode_n_runs;
    }
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (rn_unicode_runs[middle] >> 8 <= code_point)
            low = middle;
        else
            high = middle;
    }
    return (uint16_t)(1u << (rn_unicode_runs[low] & 0xff));
}
