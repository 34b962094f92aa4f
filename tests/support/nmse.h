/* How far logits or features are from what is expected. */
#ifndef RN_TESTS_NMSE_H
#define RN_TESTS_NMSE_H

#include <stddef.h>

/* The normalised mean square error of got [n] against want [n]: sum (got - want)^2 / sum want^2, without what is -inf in
 * both. In want -FLT_MAX stands for -inf too: llama.cpp writes it for tokens that are never given. */
double nmse(const float *got, const float *want, size_t n);

#endif
