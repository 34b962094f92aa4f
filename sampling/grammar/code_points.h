/* Sets of code points: in order, and as UTF-8. Pure functions. */
#ifndef RN_SAMPLING_GRAMMAR_CODE_POINTS_H
#define RN_SAMPLING_GRAMMAR_CODE_POINTS_H

#include "sampling/grammar/grammar.h"

#define RN_CODE_POINT_MOST 0x10ffffu

/* Sorts ranges[n], joins those that touch, leaves surrogates out; returns how many there are then, at most n + 1: the
 * array has room for one more. n log n on any input. */
size_t rn_code_points_normalise(struct rn_code_points *ranges, size_t n);

/* All code points but those of ranges[n], which are normal, to out[n + 2]; returns how many. They are normal too. */
size_t rn_code_points_negate(const struct rn_code_points *ranges, size_t n, struct rn_code_points *out);

/* Is it in ranges[n], which are normal? */
bool rn_code_points_have(const struct rn_code_points *ranges, size_t n, uint32_t code_point);

/* Bytes that begin a part of a range: byte i lies between low[i] and high[i]. */
struct rn_utf8_run {
    uint8_t low[4], high[4];
    uint32_t n;
};

/* The next part of a range that is written by one run: cut off its front. The range is normal and not empty, and is
 * empty (first > last) after the last part. */
void rn_utf8_run_take(struct rn_code_points *range, struct rn_utf8_run *run);

#endif
