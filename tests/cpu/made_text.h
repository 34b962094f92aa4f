/* A text that is made up, through a backend in steps of any size: what the tests of every architecture share. What
 * cannot be done fails the test that asked for it. */
#ifndef RN_TESTS_CPU_MADE_TEXT_H
#define RN_TESTS_CPU_MADE_TEXT_H

#include "tests/cpu/runner.h"

/* What a backend makes of a text. */
struct made_result {
    float *logits;   /* [rows, n_vocab] */
    float *features; /* [rows, features_width] */
};

/* Rows of the text for the model of this name: of those that choose positions more than they choose (12). */
uint32_t made_rows(const char *name);

/* Of a backend for it: blocks of 16 positions, in f32. */
struct rn_backend_limits made_limits(const struct rn_plan *plan, uint32_t n_rows);

struct made_result made_result_new(struct rn_heap *heap, const struct rn_plan *plan, uint32_t n_rows);
void made_result_free(struct rn_heap *heap, struct made_result *result);
bool made_result_same(const struct made_result *a, const struct made_result *b, const struct rn_plan *plan,
                      uint32_t n_rows);

/* The text in steps of `chunk` rows; logits and features of all, as far as the model has them. */
void made_text_run(struct runner *r, uint32_t n_rows, uint32_t chunk, struct made_result *result);

#endif
