/* What the tests of matrix products share: every format and level, weights and inputs between pages that cannot be
 * touched, a product driven in each of its ways, and its judge in double precision. What cannot be done fails the test
 * that asked for it. One thread. */
#ifndef RN_TESTS_CPU_PRODUCTS_RIG_H
#define RN_TESTS_CPU_PRODUCTS_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu/kernels.h"
#include "tests/slow.h"

enum { N_LEVELS = 6, N_FORMATS = 27, MAX_ROWS = 131, MAX_COLS = 1280, MAX_N = 64, PANEL_BYTES = 1 << 20 };

/* No product is compiled with sanitizers (cpu/levels/CMakeLists.txt): what is around it sees a part of the numbers of
 * inputs and rows, of every kind of call on every level for every format. */
enum { COUNT_STEP = UNLESS_SANITIZED(1, 4), ROW_STEP = UNLESS_SANITIZED(1, 11) };

struct format {
    uint32_t type;
    int d_at[2]; /* half floats in a block that must be sane; -1: none */
};

extern const char *const level_names[N_LEVELS]; /* this machine has some of them */
extern const struct format formats[N_FORMATS];  /* three without blocks first; all but the last one have own kernels */
extern struct rn_heap heap;                     /* the program's main begins it */
extern uint64_t seed;                           /* of what follows */

struct buffers {
    uint8_t *memory, *weights; /* the weights are the last bytes of the memory: see place */
    float *decoded, *a, *out, *alone;
    char *input_memory, *inputs; /* in the same way */
    double *values, *want;
    void *panel;
};

struct buffers take_buffers(void);
void give_buffers(struct buffers *b);

/* n bytes between two pages that cannot be touched, the second one right behind them: sanitizers do not see kernels. */
void *take_guarded(size_t n);
void give_guarded(void *bytes, size_t n);

/* Nearly normal, by twelve uniforms. */
float normal(void);

/* One block's scale, where random bits would make it NaN or of any size. */
void set_scale(const struct format *f, uint8_t *block, float d);

void random_weights(const struct format *f, uint32_t cols, uint32_t rows, uint8_t *out);

/* One block, or (i = 1) an odd number of blocks, and where a format has no blocks, no multiple of a vector. */
uint32_t cols_of(const struct format *f, int i);

const struct rn_kernel *kernel_of(const struct rn_level *level, uint32_t type);

/* How a product is driven: as the executor does, or one of its ways forced. */
enum way { AS_MEANT, DIRECT, PACKED, LAID, WAYS };

bool has_way(const struct rn_kernel *kernel, enum way way);

/* out[i][r] = weights[r] · inputs[i], rows [0, n_rows); out is [n][MAX_ROWS]. */
void product(const struct rn_kernel *kernel, enum way way, const struct format *f, uint32_t cols,
             const uint8_t *weights, uint32_t n_rows, const char *inputs, uint32_t n, void *panel, float *out);

/* The row as the kernel sees it, and what it stands for. */
void quantise(const struct rn_level *level, enum rn_input kind, const float *a, uint32_t cols, void *out,
              double *value);

/* Puts weights of a type, and inputs of so many bytes, where a read behind them is one of the guarded page. */
void place(struct buffers *b, uint32_t type, size_t n_weights, size_t input_bytes);

/* Random weights and MAX_N inputs (one of them zeros) of some magnitude. */
void make_case(const struct rn_level *level, const struct format *f, uint32_t cols, double magnitude,
               struct buffers *b);

/* b->want: the products of a case in double precision. Most of the time of a case is here. */
void judge(const struct format *f, uint32_t cols, struct buffers *b);

/* As nmse of tests/support, against want in double precision. */
double nmse_of_doubles(const float *got, const double *want, size_t n);

#endif
