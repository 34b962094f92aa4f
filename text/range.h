/* A part of a text, by bytes. */
#ifndef RN_TEXT_RANGE_H
#define RN_TEXT_RANGE_H

#include <stddef.h>

/* [begin, end) of a text. */
struct rn_range {
    size_t begin, end;
};

#endif
