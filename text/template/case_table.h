/* The characters whose upper or title case is more than one character (Unicode's SpecialCasing, the
 * unconditional ones); ascending. */
#ifndef RN_TEXT_TEMPLATE_CASE_TABLE_H
#define RN_TEXT_TEMPLATE_CASE_TABLE_H

#include <stdint.h>

struct rn_case_long {
    uint32_t c, upper[3], title[3]; /* 0 ends */
};

extern const struct rn_case_long rn_case_longs[];
extern const uint32_t rn_case_long_count;

#endif
